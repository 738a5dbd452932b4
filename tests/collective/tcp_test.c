/* The suite over sockets: no windows, no shared memory, messages between threads of one
   process. */
#include "conformance.h"

int main(void)
{
    return collective_conformance(NULL, "tcp", 8);
}
