/* cpu.c: what the processor has and the operating system saves. Both are checked: a kernel
   without XSAVE support for the wide registers (some virtual machines and sandboxes) faults at
   the first wide instruction although cpuid lists it. Nothing is remembered here, since the
   library has no globals and cpuid traps under a hypervisor: callers ask once and keep it. */
#include "tutti/base.h"
#include "machine.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Intel SDM vol. 1, 13.3: register state enabled in XCR0. */
#define XCR0_AVX 0x06u    /* SSE and the upper halves of ymm */
#define XCR0_AVX512 0xE6u /* the same, opmask, upper halves of zmm 0-15, zmm 16-31 */

static uint32_t enabled_state(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

tutti_cpu tutti_cpu_best(void)
{
    const unsigned avx2_needs = bit_AVX2;
    const unsigned avx512_needs = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const unsigned leaf1_needs = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    unsigned a, b, c, d;
    uint32_t state;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1_needs) != leaf1_needs)
        return TUTTI_CPU_SCALAR;
    state = enabled_state(); /* legal only with OSXSAVE */
    if ((state & XCR0_AVX) != XCR0_AVX)
        return TUTTI_CPU_SCALAR;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & avx2_needs) != avx2_needs)
        return TUTTI_CPU_SCALAR;
    if ((b & avx512_needs) != avx512_needs || (state & XCR0_AVX512) != XCR0_AVX512)
        return TUTTI_CPU_AVX2;
    return TUTTI_CPU_AVX512;
}
#elif defined(__aarch64__)
tutti_cpu tutti_cpu_best(void)
{
    return TUTTI_CPU_NEON; /* the architecture's, as SSE2 is x86-64's: nothing to ask */
}
#else
tutti_cpu tutti_cpu_best(void)
{
    return TUTTI_CPU_SCALAR;
}
#endif

const char *tutti_cpu_name(tutti_cpu cpu)
{
    static const char *const names[] = {
        [TUTTI_CPU_SCALAR] = "scalar",
#if defined(__x86_64__)
        [TUTTI_CPU_AVX2] = "avx2",
        [TUTTI_CPU_AVX512] = "avx512",
#elif defined(__aarch64__)
        [TUTTI_CPU_NEON] = "neon",
#endif
    };

    return (size_t)cpu < TUTTI_LENGTH(names) ? names[cpu] : "unknown";
}
