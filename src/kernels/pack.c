/* pack.c: the references of packing codes of one byte into bits, the lowest bit first, and back. So
   the format does not depend on the machine's byte order. Signs are packed directly, without codes
   in between. */
#include "codes_internal.h"
#include <math.h>

void tutti_kernels_pack(int bits, size_t n, const uint8_t *codes, uint8_t *out)
{
    uint32_t held = 0;
    int have = 0;

    for (size_t i = 0; i < n; i++) {
        held |= (uint32_t)codes[i] << have;
        for (have += bits; have >= 8; have -= 8, held >>= 8)
            *out++ = (uint8_t)held;
    }
    if (have > 0)
        *out = (uint8_t)held;
}

void tutti_kernels_unpack(int bits, size_t n, const uint8_t *in, uint8_t *codes)
{
    uint32_t held = 0;
    int have = 0;

    for (size_t i = 0; i < n; i++) {
        if (have < bits) {
            held |= (uint32_t)*in++ << have;
            have += 8;
        }
        codes[i] = (uint8_t)(held & ((1u << bits) - 1));
        held >>= bits;
        have -= bits;
    }
}

/* The sums are those of norm1 and norm2 (extent.c, reduce.c). */
static double signs(size_t n, const float *x, bool squares, uint8_t *out)
{
    double lane[TUTTI_KERNELS_LANES] = { 0 };

    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        lane[i % TUTTI_KERNELS_LANES] += squares ? v * v : fabs(v);
        out[i / 8] = (uint8_t)((i % 8 == 0 ? 0 : out[i / 8]) | (x[i] < 0) << i % 8);
    }
    return tutti_kernels_fold(lane);
}

static void signs_add(size_t n, const uint8_t *in, float v, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + ((in[i / 8] >> i % 8 & 1) != 0 ? -v : v);
}

void tutti_kernels_packing(tutti_kernels *t)
{
    t->pack = tutti_kernels_pack;
    t->unpack = tutti_kernels_unpack;
    t->signs = signs;
    t->signs_add = signs_add;
}
