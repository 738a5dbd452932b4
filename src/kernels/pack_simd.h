/* pack_simd.h: template of the kernels of pack.c, with eight codes in each lane of 64 bits.
   pack_LEVEL.c includes it after simd_codes_LEVEL.h. For any number of bits three steps close the
   gaps between the codes of a lane: between bytes, then between pairs, then between fours. In each
   step the upper of two neighbours moves down next to the lower one. Then the lanes are moved
   together within 128 bits. Unpacking is the inverse. For four bits, which most quantisers use,
   there is a shorter method. */
#include "simd_loop.h"

enum { AT_ONCE = 16 * QUARTERS };

/* In each unit of `unit` bits, close_gap moves the `half` bits at bit `half` down to bit `to`, and
   open_gap moves them back. The bits below `to` stay. */
INLINE qvec close_gap(qvec v, int unit, int half, int to)
{
    const uint64_t each = unit == 64   ? 1
                          : unit == 32 ? 0x0000000100000001u
                                       : 0x0001000100010001u,
                   low = (UINT64_C(1) << half) - 1;

    return qvec_or(qvec_and(v, qvec_all(each * low)),
                   qvec_srl(qvec_and(v, qvec_all(each * (low << half))), half - to));
}

INLINE qvec open_gap(qvec v, int unit, int half, int to)
{
    const uint64_t each = unit == 64   ? 1
                          : unit == 32 ? 0x0000000100000001u
                                       : 0x0001000100010001u,
                   low = (UINT64_C(1) << to) - 1;

    return qvec_or(qvec_and(v, qvec_all(each * low)),
                   qvec_sll(qvec_and(v, qvec_all(each * (low << to))), half - to));
}

static void LEVEL(pack)(int bits, size_t n, const uint8_t *codes, uint8_t *out)
{
    const size_t b = (size_t)bits, bytes = tutti_packed_bytes(bits, n);
    uint8_t together[16];
    size_t i = 0, at = 0;

    if (bits == 8) {
        if (n > 0)
            memcpy(out, codes, n);
        return;
    }
    for (; bits == 4 && n - i >= 64; i += 64, at += 32)
        pack_nibbles(codes + i, out + at);
    if (i == n)
        return;
    for (size_t j = 0; j < 16; j++)
        together[j] = (uint8_t)(j < b ? j : j < 2 * b ? 8 + j - b : 0x80);
    /* Each store writes sixteen bytes, and 2 b of them count: stop while the last one is still
       inside. */
    for (; n - i >= AT_ONCE && bytes - at >= (QUARTERS - 1) * 2 * b + 16;
         i += AT_ONCE, at += 2 * b * QUARTERS) {
        const qvec v =
            close_gap(close_gap(close_gap(qvec_get(codes + i), 16, 8, bits), 32, 16, 2 * bits), 64,
                      32, 4 * bits);
        qvec_put_quarters(out + at, 2 * b, qvec_shuffle(v, together));
    }
    tutti_kernels_pack(bits, n - i, codes + i, out + at);
}

static void LEVEL(unpack)(int bits, size_t n, const uint8_t *in, uint8_t *codes)
{
    const size_t b = (size_t)bits, bytes = tutti_packed_bytes(bits, n);
    uint8_t apart[16];
    size_t i = 0, at = 0;

    if (bits == 8) {
        if (n > 0)
            memcpy(codes, in, n);
        return;
    }
    for (; bits == 4 && n - i >= 64; i += 64, at += 32)
        unpack_nibbles(in + at, codes + i);
    if (i == n)
        return;
    for (size_t j = 0; j < 16; j++)
        apart[j] = (uint8_t)(j % 8 >= b ? 0x80 : j < 8 ? j : b + j - 8);
    for (; n - i >= AT_ONCE && bytes - at >= (QUARTERS - 1) * 2 * b + 16;
         i += AT_ONCE, at += 2 * b * QUARTERS)
        qvec_put(codes + i,
                 open_gap(open_gap(open_gap(qvec_shuffle(qvec_get_quarters(in + at, 2 * b), apart),
                                            64, 32, 4 * bits),
                                   32, 16, 2 * bits),
                          16, 8, bits));
    tutti_kernels_unpack(bits, n - i, in + at, codes + i);
}

/* `signs` also computes norm1 or norm2, as extent_simd.h and reduce_simd.h do: in a second pass
   over the block, in the L1 cache, memory would be idle. */
enum { LANES = TUTTI_KERNELS_LANES, PARTS = LANES / DWIDTH };
#define EACH_PART _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)
INLINE void magnitudes_add(const bool squares, const float *x, dvec sum[PARTS])
{
    EACH_PART {
        const dvec v = dvec_get(x + j * DWIDTH);
        sum[j] = squares ? dvec_fma(v, v, sum[j]) : dvec_add(sum[j], dvec_abs(v));
    }
}

INLINE double signs_of(const bool squares, size_t n, const float *x, uint8_t *out)
{
    double lane[LANES];
    dvec sum[PARTS];
    size_t rest;

    EACH_PART
        sum[j] = dvec_zero();
    /* the masks of 64 elements are stored at once: separate stores would take longer than the rest
       */
    for (; n >= 64; n -= 64, x += 64, out += 8) {
        uint64_t mask = 0;
        tutti_kernels_prefetch(x, 64);
        _Pragma("GCC unroll 8") for (int j = 0; j < 64; j += WIDTH)
            mask |= (uint64_t)vec_negative(vec_get(x + j, WIDTH)) << j;
        memcpy(out, &mask, sizeof mask);
        _Pragma("GCC unroll 4") for (int j = 0; j < 64; j += LANES)
            magnitudes_add(squares, x + j, sum);
    }
    EACH_VECTOR(n, {
        const uint32_t mask = vec_negative(vec_get(x + i, k));
        out[i / 8] = (uint8_t)mask;
        if (WIDTH == 16 && k > 8)
            out[i / 8 + 1] = (uint8_t)(mask >> 8);
    });
    for (rest = n; rest >= LANES; rest -= LANES, x += LANES)
        magnitudes_add(squares, x, sum);
    EACH_PART
        dvec_put(lane + j * DWIDTH, sum[j]);
    for (size_t j = 0; j < rest; j++)
        lane[j] += squares ? (double)x[j] * (double)x[j] : x[j] < 0 ? -(double)x[j] : (double)x[j];
    return tutti_kernels_fold(lane);
}

static double LEVEL(signs)(size_t n, const float *x, bool squares, uint8_t *out)
{
    return squares ? signs_of(true, n, x, out) : signs_of(false, n, x, out);
}

static void LEVEL(signs_add)(size_t n, const uint8_t *in, float v, float *y)
{
    const vec plus = vec_all(v);

    EACH_VECTOR(n, {
        uint32_t mask = in[i / 8];
        if (WIDTH == 16 && k > 8)
            mask |= (uint32_t)in[i / 8 + 1] << 8;
        vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_negate_if(plus, mask)));
    });
}

void LEVEL(tutti_kernels_packing)(tutti_kernels *t)
{
    t->pack = LEVEL(pack);
    t->unpack = LEVEL(unpack);
    t->signs = LEVEL(signs);
    t->signs_add = LEVEL(signs_add);
}
