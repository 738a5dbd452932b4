/* The suite on the embedded transport: windows, boards and messages between threads. */
#include "conformance.h"

int main(void)
{
    return collective_conformance(NULL, "shm");
}
