/* quantised.c: buckets of consecutive elements, each with a float scale and one code an element.
   That is what QSGD (Alistarh et al. 2017), NUQSGD (Ramezani-Kebrya et al. 2021), ALQ and AMQ
   (Faghri et al. 2020) and int8 have in common: all but the levels.

   On the wire the scales come first, then the codes of all buckets back to back. A bucket is a
   multiple of eight elements, so it begins on a byte, and only the end is padded. tail=dense: what
   the last bucket of a tensor lacks to be whole follows as float32, as in the authors' runs of ALQ
   and NUQSGD. Of a part of a tensor that is not its end (an owner's) the last bucket is short all
   the same, or cutting tensors would make half of them dense. The vector is processed in blocks
   that stay in the L1 cache together with their draws and codes.

   What bounds encoding 25 M elements with a 2-norm and drawn roundings is arithmetic, not memory.
   On one core of a Zen 5 with AVX-512, where a memcpy takes 5.1 to 5.5 ms, layers alone in the
   first cache take: rounding to alq's levels 3.9 ms, draws 2.0, norms 0.8, packing 0.15; memory
   adds 1.0 to all of them.

   Rounding: of 23 instructions for sixteen elements, 10 (comparisons into masks, permutations,
   widening and narrowing) go to two of the four units, and take 9 cycles. Tables held in registers,
   halvings side by side in any order, and draws and roundings woven into one another took as
   long. */
#include "codec_internal.h"

/* up to these the levels fit vector registers, and looking them up costs less than computing
   them */
enum { TABLE_BITS = 4 };
/* CALL: elements of a call; each call prepares draws and levels first */
enum { TOGETHER = 4 * TUTTI_CODEC_BLOCK, FOUR_MOST = 1 << 13, BUCKETS_MOST = TOGETHER / 8, CALL = 1 << 13 };

unsigned tutti_codec_quantised_traits(const tutti_codec *c)
{
    return TUTTI_CODEC_UNBIASED |
           (((const tutti_codec_quantiser *)c->self)->coding == TUTTI_CODEC_PLAIN ? TUTTI_CODEC_FIXED : 0);
}

tutti_status tutti_codec_quantised_check(const tutti_codec *c, tutti_error *err)
{
    const uint64_t bucket = (uint64_t)((const tutti_codec_quantiser *)c->self)->bucket;

    if ((bucket & (bucket - 1)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "bucket is %llu and must be a power of two, such as 512",
                          (unsigned long long)bucket);
    return TUTTI_OK;
}

size_t tutti_codec_buckets(const tutti_codec_quantiser *q, size_t n)
{
    return (n + (size_t)q->bucket - 1) / (size_t)q->bucket;
}

size_t tutti_codec_quantised_scratch(const tutti_codec *c, const tutti_view *v)
{
    return ((const tutti_codec_quantiser *)c->self)->coding == TUTTI_CODEC_HUFFMAN ? v->count : 0;
}

static size_t fixed_bytes(const tutti_codec_quantiser *q, size_t n)
{
    return 4 * tutti_codec_buckets(q, n) + tutti_packed_bytes((int)q->bits, n);
}

/* Elements at the end of a view that are no part of a bucket. */
static size_t tail_of(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec_quantiser *q = c->self;
    const tutti_view *tensor = v->tensor < 0 ? v : &c->space->tensor[v->tensor];

    return q->tail == TUTTI_CODEC_DENSE && v->first + v->count == tensor->first + tensor->count
               ? v->count % (size_t)q->bucket
               : 0;
}

size_t tutti_codec_quantised_bound(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t tail = tail_of(c, v), n = v->count - tail;

    return 4 * tail + (q->coding == TUTTI_CODEC_PLAIN     ? fixed_bytes(q, n)
                       : q->coding == TUTTI_CODEC_HUFFMAN ? tutti_codec_huffman_bound(q, n)
                                                          : tutti_codec_elias_bound(q, n));
}

/* The number of buckets whose scales are computed together, before their codes: as many as stay
   in the L1 cache, or four where those are no more than an eighth of the L2 cache. */
static size_t buckets_together(size_t bucket)
{
    return bucket > FOUR_MOST ? 1 : bucket > TOGETHER / 4 ? 4 : TOGETHER / bucket;
}

/* Computes the scales of the buckets of `count` elements, at most BUCKETS_MOST. */
static void bucket_scales(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x, size_t count,
                          size_t bucket, float *scale)
{
    double sums[BUCKETS_MOST];

    if (q->l2)
        tutti_norm2_each(c->space->device, count, bucket, x, sums);
    for (size_t b = 0, at = 0; at < count; b++, at += bucket) {
        /* The squares are exact and their sum grows in rounding too: the 2-norm is never below the
           greatest magnitude. */
        scale[b] = q->l2 ? (float)sqrt(sums[b])
                         : tutti_absmax(c->space->device, count - at < bucket ? count - at : bucket, x + at);
        scale[b] = isfinite(scale[b]) ? scale[b] : NAN;
    }
}

float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x, size_t count)
{
    float scale = 0;

    bucket_scales(c, q, x, count, count, &scale);
    return scale;
}

static tutti_rounding rounding(const tutti_codec_quantiser *q)
{
    return (tutti_rounding){
        .grid = q->grid, .bits = (int)q->bits, .nearest = q->nearest, .steps = tutti_codec_steps(q), .levels = q->levels
    };
}

void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const float *x,
                              size_t at, size_t count, float scale, uint8_t *codes)
{
    const tutti_rounding how = rounding(q);

    tutti_quantise(c->space->device, &how, tutti_codec_rng(c, v, false), v->first + at, count, x + at, count, &scale,
                   NULL, codes);
}

/* 2^e, e from -126 to 0. */
static float power(int e)
{
    const uint32_t bits = (uint32_t)(127 + e) << 23;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A level times the scale is rounded, then a times that: the same numbers as decoding first and
   adding after. */
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a, float value[256])
{
    const int half = 1 << (q->bits - 1), top = half - 1, steps = tutti_codec_steps(q);
    /* top * step is 1 exactly for all tops here, 1 .. 127 (tested); of another number of levels it
       need not be, so these are divided */
    const float step = 1.0f / (float)top;

    for (int l = 0; l < 2 * half && q->grid == TUTTI_GRID_ANY; l++)
        value[l] = a * (scale * q->levels->level[l]);
    for (int l = 0; l < half && q->grid != TUTTI_GRID_ANY; l++) {
        const float level = q->grid == TUTTI_GRID_POWERS ? l == 0 ? 0.0f : power(l - top)
                            : steps == top ? (float)l * step
                                                         : (float)l / (float)steps;
        value[l] = a * (scale * level);
        value[half + l] = -value[l];
    }
}

bool tutti_codec_scale_is_valid(float scale)
{
    return isnan(scale) || (isfinite(scale) && scale >= 0);
}

tutti_status tutti_codec_check_scales(const tutti_codec *c, size_t n, const uint8_t *in, const char *of,
                                      tutti_error *err)
{
    for (size_t b = 0; b < n; b++)
        if (!tutti_codec_scale_is_valid(tutti_codec_get_f32(in + 4 * b)))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec '%s': the scale of %s %zu of %zu is %g, and scales are 0 or more; "
                              "the message was damaged or is another codec's",
                              c->ops->name, of, b, n, (double)tutti_codec_get_f32(in + 4 * b));
    return TUTTI_OK;
}

static size_t encode_fixed(const tutti_codec *c, const tutti_view *v, const float *x, uint8_t *out)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t n = v->count, bucket = (size_t)q->bucket, bits = (size_t)q->bits,
                 together = buckets_together(bucket) * bucket;
    const tutti_rounding how = rounding(q);
    const tutti_rng rng = tutti_codec_rng(c, v, false);
    float scale[BUCKETS_MOST];
    uint8_t *packed = out + 4 * tutti_codec_buckets(q, n), codes[CALL];

    for (size_t first = 0; first < n; first += together) {
        const size_t end = n - first < together ? n : first + together;
        bucket_scales(c, q, x + first, end - first, bucket, scale);
        for (size_t b = 0; first + b * bucket < end; b++)
            tutti_codec_put_f32(out + 4 * (first / bucket + b), scale[b]);
        /* whole buckets, or a part of one; the codes of one while memory brings one of the next
           ones */
        for (size_t at = first, count; at < end; at += count) {
            const size_t b = (at - first) / bucket, left = first + (b + 1) * bucket - at;
            const tutti_ahead ahead = { .distance = together, .end = n - at };
            count = bucket < CALL ? CALL / bucket * bucket : left < CALL ? left : CALL;
            count = count < end - at ? count : end - at;
            tutti_quantise(c->space->device, &how, rng, v->first + at, count, x + at, bucket, scale + b, &ahead,
                           bits == 8 ? packed + at : codes);
            if (bits < 8)
                tutti_pack(c->space->device, (int)bits, count, codes, packed + at / 8 * bits);
        }
    }
    return fixed_bytes(q, n);
}

size_t tutti_codec_quantised_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t tail = tail_of(c, v);
    tutti_view whole = *v;
    size_t bytes;

    whole.count = whole.cols = v->count - tail;
    whole.rows = 1;
    bytes = q->coding == TUTTI_CODEC_PLAIN     ? encode_fixed(c, &whole, x, out)
            : q->coding == TUTTI_CODEC_HUFFMAN ? tutti_codec_huffman_encode(c, q, &whole, x, scratch, out)
                                               : tutti_codec_elias_encode(c, q, &whole, x, out);
    for (size_t i = 0; i < tail; i++)
        tutti_codec_put_f32(out + bytes + 4 * i, x[whole.count + i]);
    return bytes + 4 * tail;
}

/* With fewer levels than bits hold, a damaged message may have codes that no encoder makes. */
static tutti_status check_codes(const tutti_codec *c, size_t n, const uint8_t *packed, tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t bits = (size_t)q->bits;
    const uint8_t mask = (uint8_t)((1 << (bits - 1)) - 1);
    uint8_t codes[TUTTI_CODEC_BLOCK];

    if (q->grid != TUTTI_GRID_EVEN || tutti_codec_steps(q) == mask)
        return TUTTI_OK;
    for (size_t at = 0, count; at < n; at += count) {
        uint8_t most = 0;
        count = n - at < TUTTI_CODEC_BLOCK ? n - at : TUTTI_CODEC_BLOCK;
        tutti_unpack(c->space->device, (int)bits, count, packed + at / 8 * bits, codes);
        for (size_t i = 0; i < count; i++)
            most = (codes[i] & mask) > most ? codes[i] & mask : most;
        for (size_t i = 0; i < count && !tutti_codec_code_is_valid(q, most); i++)
            if (!tutti_codec_code_is_valid(q, codes[i]))
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "codec '%s': element %zu of %zu has level %d, and the greatest is %d; "
                                  "the message was damaged or is another codec's",
                                  c->ops->name, at + i, n, codes[i] & mask, tutti_codec_steps(q));
    }
    return TUTTI_OK;
}

static tutti_status decode_fixed(const tutti_codec *c, const tutti_view *v, const uint8_t *in, float a, float *y,
                                 tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t n = v->count, bucket = (size_t)q->bucket, bits = (size_t)q->bits, buckets = tutti_codec_buckets(q, n);
    const bool table = q->grid != TUTTI_GRID_EVEN || bits <= TABLE_BITS || tutti_codec_steps(q) < (1 << (bits - 1)) - 1;
    uint8_t codes[TUTTI_CODEC_BLOCK];
    float value[256];

    TUTTI_TRY(tutti_codec_check_scales(c, buckets, in, "bucket", err));
    TUTTI_TRY(check_codes(c, n, in + 4 * buckets, err));
    for (size_t first = 0; first < n; first += bucket) {
        const size_t end = n - first < bucket ? n : first + bucket;
        const float scale = tutti_codec_get_f32(in + 4 * (first / bucket));
        if (table)
            tutti_codec_bucket_values(q, scale, a, value);
        for (size_t at = first, count; at < end; at += count) {
            const uint8_t *from = in + 4 * buckets + at / 8 * bits;
            count = end - at < TUTTI_CODEC_BLOCK ? end - at : TUTTI_CODEC_BLOCK;
            if (bits < 8) {
                tutti_unpack(c->space->device, (int)bits, count, from, codes);
                from = codes;
            }
            if (table)
                tutti_levels_add(c->space->device, count, from, 1 << bits, value, y + at);
            else
                tutti_uniform_add(c->space->device, count, from, (int)bits, scale, a, y + at);
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_codec_quantised_decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                                              float a, float *y, tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t tail = tail_of(c, v);
    tutti_view whole = *v;

    if (bytes < 4 * tail || (q->coding == TUTTI_CODEC_PLAIN && bytes != tutti_codec_quantised_bound(c, v)))
        return tutti_codec_wrong_size(c, v, bytes, tutti_codec_quantised_bound(c, v), err);
    bytes -= 4 * tail;
    whole.count = whole.cols = v->count - tail;
    whole.rows = 1;
    TUTTI_TRY(q->coding == TUTTI_CODEC_PLAIN     ? decode_fixed(c, &whole, in, a, y, err)
              : q->coding == TUTTI_CODEC_HUFFMAN ? tutti_codec_huffman_decode(c, q, &whole, in, bytes, a, y, err)
                                                 : tutti_codec_elias_decode(c, q, &whole, in, bytes, a, y, err));
    for (size_t i = 0; i < tail; i++)
        y[whole.count + i] += a * tutti_codec_get_f32(in + bytes + 4 * i);
    return TUTTI_OK;
}

/* ---- reported figures ---- */

/* The levels of a bucket whose scale is 1, ascending. */
static int list_levels(const tutti_codec_quantiser *q, double level[256])
{
    const int top = q->grid == TUTTI_GRID_EVEN ? tutti_codec_steps(q) : (1 << (q->bits - 1)) - 1;
    float value[256];

    tutti_codec_bucket_values(q, 1, 1, value);
    if (q->grid == TUTTI_GRID_ANY) {
        for (int l = 0; l < 1 << q->bits; l++)
            level[l] = (double)value[l];
        return 1 << q->bits;
    }
    for (int l = -top; l <= top; l++)
        level[l + top] = l < 0 ? -(double)value[-l] : (double)value[l];
    return 2 * top + 1;
}

static int nearest(const double *level, int n, double r)
{
    int low = 0, high = n - 1;

    while (high - low > 1) {
        const int half = (low + high) / 2;
        *(level[half] <= r ? &low : &high) = half;
    }
    return r - level[low] <= level[high] - r ? low : high;
}

/* E|x - decoded|^2 <= bound |x|^2 for buckets of d elements. r of a bucket, x / scale, is at most
   1 and has a 2-norm of at least 1, since no scale is above the 2-norm; rounded to the levels a <
   b it loses (b - r)(r - a). Even levels: QSGD's min(d / (4 s^2), sqrt(d) / s), the first sharper
   by 4 (docs/methods/qsgd.md). All others (Faghri et al. 2020): (rho - 1)^2 / (4 rho) of r^2
   between levels of one sign whose ratio is rho, and from 0 to the first, l, K_q l^(2-q)
   d^((2-q)/2), taken at both ends of q, l^2 d / 4 and l sqrt(d); without a level 0 a quarter of
   the square of the middle interval each. */
static double bound_of(const tutti_codec_quantiser *q, const double *level, int n, double d)
{
    const double s = tutti_codec_steps(q);
    double ratio = 0, middle = 0;

    if (q->grid == TUTTI_GRID_EVEN)
        return fmin(d / (4 * s * s), sqrt(d) / s);
    for (int j = 0; j + 1 < n; j++) {
        const double a = level[j], b = level[j + 1], rho = a > 0 ? b / a : b < 0 ? a / b : 1, width = b - a;
        ratio = fmax(ratio, (rho - 1) * (rho - 1) / (4 * rho));
        if (a <= 0 && b >= 0)
            middle =
                fmax(middle, a < 0 && b > 0 ? d * width * width / 4 : fmin(d * width * width / 4, width * sqrt(d)));
    }
    return ratio + middle;
}

void tutti_codec_quantised_tell(const tutti_codec *c, const tutti_view *v, const float *x, const float *decoded,
                                const tutti_codec_listener *to)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t whole = v->count - tail_of(c, v), bucket = (size_t)q->bucket;
    double level[256], count[256] = { 0 }, bound;
    const int n = list_levels(q, level);

    /* a bucket with a number that is not finite is skipped */
    for (size_t first = 0; first < whole; first += bucket) {
        const size_t some = whole - first < bucket ? whole - first : bucket;
        const float scale = tutti_codec_bucket_scale(c, q, x + first, some);
        for (size_t i = first; i < first + some && scale >= 0; i++)
            count[nearest(level, n, scale > 0 ? (double)decoded[i] / (double)scale : 0)]++;
    }
    to->hear(to->with, "levels", (size_t)n, count);
    bound = bound_of(q, level, n, (double)(bucket < v->count ? bucket : v->count));
    if (!q->nearest)
        to->hear(to->with, "bound", 1, &bound);
}
