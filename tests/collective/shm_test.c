/* The suite on the embedded transport: windows, boards and messages between threads. */
#include "conformance.h"

int main(void)
{
#ifdef __SANITIZE_THREAD__ /* ten times as slow */
    return collective_conformance(NULL, "shm", 8);
#else
    return collective_conformance(NULL, "shm", 17);
#endif
}
