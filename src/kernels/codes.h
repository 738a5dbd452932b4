/* codes.h: the vector kernels of codecs, beside those of base.h. Implemented by codes.c and
   select.c. Included by src/codec, and by others that draw many random numbers or take norms of
   parts. */
#ifndef TUTTI_KERNELS_CODES_H
#define TUTTI_KERNELS_CODES_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* ---- vector kernels of codecs: extents, random draws, rounding to levels, packing of
   bits, selection.

   As above every level gives the scalar reference's bits for any alignment and length. No
   call blocks or allocates. Codes are one byte per element between the rounding and the packing;
   callers process their vectors in blocks that stay in the first-level cache.

   A *code* of `bits` bits is an index of a level in its lower bits - 1 bits and the sign (1:
   negative) above it; index 0 has sign 0. ---- */

/* ---- extents ---- */
/* max |x|; 0 if n = 0; a NaN if there is one. */
float tutti_absmax(tutti_device *d, size_t n, const float *x);

/* The least and the greatest, -0 below 0; n > 0. Both finite iff all are. */
void tutti_extent(tutti_device *d, size_t n, const float *x, float *least, float *greatest);

/* tutti_norm2, to the bit, of each run of `each` elements (1 or more) of x, one after the other;
   the last run is what is left. sums: ceil(n / each). Faster than one call per run. */
void tutti_norm2_each(tutti_device *d, size_t n, size_t each, const float *x, double *sums);

/* ---- products for PowerSGD: of a matrix of m contiguous rows of n elements, with p contiguous
   vectors of n.

   Element (i, k) of the narrow factor is a[k * step + i], step >= m; p >= 1. Products are fused
   into the sums (fma); no order depends on the number of rows per call. ---- */
/* a(i, k) = x_i . q_k: runs of 2048 elements in float over 16 lanes (element j in lane j mod 16),
   added as tutti_norm2's; the runs in double. */
void tutti_rows_dot(tutti_device *d, size_t m, size_t n, const float *x, int p, const float *q,
                    float *a, size_t step);

/* q_k += a(i, k) x_i, i = 0, 1, ... */
void tutti_rows_sum(tutti_device *d, size_t m, size_t n, const float *x, int p, const float *a,
                    size_t step, float *q);

/* y_i += (by a(i, k)) q_k, k = 0, 1, ... */
void tutti_rows_add(tutti_device *d, size_t m, size_t n, float by, int p, const float *a,
                    size_t step, const float *q, float *y);

/* y = 0, then tutti_rows_add with by = 1. */
void tutti_rows_product(tutti_device *d, size_t m, size_t n, int p, const float *a, size_t step,
                        const float *q, float *y);

/* ---- random draws: 16 uniform bits per element, in groups of 128, which are 16 consecutive
   Philox blocks of `rng` (base.h). Draw 32 w + 2 l + h of a group is half h (0: lower) of word w
   of its block l. So a vector of 16 lanes computes 16 blocks and stores four words without a
   shuffle. ---- */
enum { TUTTI_DRAWS = 128 };
/* draws: groups x TUTTI_DRAWS, those of the groups first, first + 1, ... */
void tutti_draws(tutti_device *d, tutti_rng rng, uint64_t first, size_t groups, uint16_t *draws);

/* ---- rounding to levels: x finite, scale finite and > 0, |x| <= scale. draws: n, or NULL: to
   the nearest, halves away from 0. Rounding is stochastic and unbiased except for 2^-17 of a
   level, half of the resolution of sixteen bits. ---- */
/* Index l of |x| / scale among 0, 1/s, ..., 1 with s = 2^(bits-1) - 1; bits 2 .. 8 (QSGD). */
void tutti_round_uniform(tutti_device *d, size_t n, const float *x, float scale, int bits,
                         const uint16_t *draws, uint8_t *codes);

/* Index of |x| / scale among 0, 2^-s, ..., 1/2, 1 with s = 2^(bits-1) - 2; bits 2 .. 8 (NUQSGD).
   draws not NULL. */
void tutti_round_powers(tutti_device *d, size_t n, const float *x, float scale, int bits,
                        const uint16_t *draws, uint8_t *codes);

/* Arbitrary levels, prepared for rounding: 2^bits of them, from -1 to 1. A code is an index,
   without a sign. */
typedef struct tutti_levels {
    int bits;                    /* 2 .. 8 */
    float level[256];            /* 2^bits of them, ascending */
} tutti_levels;
/* false: they do not ascend from -1 to 1 in steps of at least 2^-30; t is then undefined. */
bool tutti_levels_make(tutti_levels *t, int bits, const float *level);

/* The index of one of the two levels next to x / scale. draws not NULL. */
void tutti_round_levels(tutti_device *d, size_t n, const float *x, float scale,
                        const tutti_levels *t, const uint16_t *draws, uint8_t *codes);

/* Drawing and rounding in one call, which is faster: the codes of the calls above with the draws
   first, first + 1, ... of rng. Draw k is number k % TUTTI_DRAWS of group k / TUTTI_DRAWS.

   scale[i / each] is that of element i: runs of `each` elements, 1 or more. All codes of a run
   whose scale is 0 or NaN are 0. `ahead`: x[i + distance] is prefetched while x[i] is rounded, as
   long as that is before x[end]; NULL: no prefetch. */
typedef enum tutti_grid {
    TUTTI_GRID_EVEN,             /* 0, 1/s, ..., 1 */
    TUTTI_GRID_POWERS,           /* 0, 2^-s, ..., 1/2, 1 */
    TUTTI_GRID_ANY               /* `levels` */
} tutti_grid;
typedef struct tutti_rounding {
    tutti_grid grid;
    int bits;
    bool nearest;                /* without draws; grid EVEN only */
    int steps;                   /* s of grid EVEN, below 2^(bits-1); 0: the maximum */
    const tutti_levels *levels;  /* of grid ANY, with the same bits */
} tutti_rounding;
typedef struct tutti_ahead { size_t distance, end; } tutti_ahead;
void tutti_quantise(tutti_device *d, const tutti_rounding *how, tutti_rng rng, uint64_t first,
                    size_t n, const float *x, size_t each, const float *scale,
                    const tutti_ahead *ahead, uint8_t *codes);

/* round((x - least) / range * 255), halves to even; no sign. range > 0 finite, x in
   [least, least + range]. */
void tutti_round_range(tutti_device *d, size_t n, const float *x, float least, float range,
                       uint8_t *codes);

/* y += value[code]. value has `values` entries, a power of two of at most 256; codes are below
   it. */
void tutti_levels_add(tutti_device *d, size_t n, const uint8_t *codes, int values,
                      const float *value, float *y);

/* tutti_levels_add for codes of tutti_round_uniform without a table: y += a * (scale * (l * (1 /
   s))), each product rounded; negated first where the sign is 1. */
void tutti_uniform_add(tutti_device *d, size_t n, const uint8_t *codes, int bits, float scale,
                       float a, float *y);

/* tutti_levels_add for codes of tutti_round_range: y += a * (least + (greatest - least) / 255 *
   code), each operation rounded; a * greatest for code 255. */
void tutti_range_add(tutti_device *d, size_t n, const uint8_t *codes, float least, float greatest,
                     float a, float *y);

/* The upper halves of floats: bfloat16, rounded towards zero; a NaN stays one. */
void tutti_cut_bf16(tutti_device *d, size_t n, const float *x, uint16_t *y);

/* ---- packing: element i is at bits [i * bits, (i + 1) * bits) of the output, the lowest bit of a
   byte first; bits 1 .. 8. Bits beyond the last element are 0. out: tutti_packed_bytes(bits,
   n). ---- */
size_t tutti_packed_bytes(int bits, size_t n);

/* codes below 2^bits. */
void tutti_pack(tutti_device *d, int bits, size_t n, const uint8_t *codes, uint8_t *out);
void tutti_unpack(tutti_device *d, int bits, size_t n, const uint8_t *in, uint8_t *codes);

/* One bit per element, packed as above: 1 where x < 0 (so 0, -0 and NaN are 0). Returns
   tutti_norm1 of x, to the bit, or with `squares` tutti_norm2: one pass over memory for both. */
double tutti_signs(tutti_device *d, size_t n, const float *x, bool squares, uint8_t *out);

/* y += v where the bit is 0, y += -v where it is 1. */
void tutti_signs_add(tutti_device *d, size_t n, const uint8_t *in, float v, float *y);

/* ---- selection: the key of x is its bits without the sign. Keys order as magnitudes do, and a NaN
   is above infinity. ---- */
uint32_t tutti_magnitude_key(float x);

/* The elements with a key of at least `key`, in order. Returns their number; writes as many as
   fit to index and value. */
size_t tutti_select_above(tutti_device *d, size_t n, const float *x, uint32_t key, size_t room,
                          uint32_t *index, float *value);

/* The k greatest keys, in order of index; of equal keys those of the lowest indexes; k <= n <
   2^32.
   index, value: tutti_select_room(n, k) entries; the first k are the result. */
size_t tutti_select_room(size_t n, size_t k);
void tutti_select_top(tutti_device *d, size_t n, const float *x, size_t k, uint32_t *index,
                      float *value);

#pragma GCC visibility pop
#endif
