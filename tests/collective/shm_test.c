/* The suite on the embedded transport: windows, the rendezvous table in shared memory, and
   messages between threads. */
#include "conformance.h"
#include "sanitized.h"

int main(void)
{
    return collective_conformance(NULL, "shm", UNLESS_SANITIZED(17, 8));
}
