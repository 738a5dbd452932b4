/* The suite where every send is a rendezvous and there are no windows: nothing may rely on
   buffering. */
#include "conformance.h"
#include "strict.h"

int main(void)
{
    return collective_conformance(&tutti_test_strict, "strict", 11);
}
