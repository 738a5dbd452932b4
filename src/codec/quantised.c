/* quantised.c: what the codecs qsgd, nuqsgd, alq, amq and int8 share (QSGD: Alistarh et al. 2017;
   NUQSGD: Ramezani-Kebrya et al. 2021; ALQ and AMQ: Faghri et al. 2020). A tensor is cut into
   buckets of consecutive elements. A bucket has one float scale, and each element a code: the
   index of a level. The codecs differ in their levels. Declared in codec_internal.h.

   A message is all scales, then the codes of all buckets, packed without gaps. Bucket sizes are
   multiples of 8, so every bucket begins on a byte boundary; only the end of the codes is padded.
   tail=dense: if the last bucket of a tensor is not full, its elements follow as float32, as in
   the authors' runs of ALQ and NUQSGD. tail=dense does not apply to a part that ends inside its
   tensor (an owner's shard): its last bucket is short. Otherwise sharding would send many elements
   as float32.

   Elements are processed in blocks small enough that input, random draws and codes stay in the L1
   cache. Encoding is bound by arithmetic, not by memory (measurements: docs/methods/alq.md). */
#include "codec_internal.h"
#include "codec.h"
#include "kernels/codes.h"

/* Up to this many bits the level table fits vector registers, and a lookup is faster than
   computing levels. */
enum { TABLE_BITS = 4 };
/* TOGETHER: elements whose scales are computed at a time (24 KiB: they stay in L1). FOUR_MOST:
   largest bucket of which four are taken at a time (4 x 32 KiB: an eighth of a 1 MiB L2).
   BUCKETS_MOST: most buckets in TOGETHER elements; sizes are multiples of 8. CALL: elements of one
   call of tutti_quantise, which has a fixed cost. */
enum {
    TOGETHER = 4 * TUTTI_CODEC_BLOCK,
    FOUR_MOST = 1 << 13,
    BUCKETS_MOST = TOGETHER / 8,
    CALL = 1 << 13
};

unsigned tutti_codec_quantised_traits(const tutti_codec *c)
{
    const tutti_codec_quantiser *q = c->self;

    return (q->nearest ? 0 : TUTTI_CODEC_UNBIASED) |
           (q->coding == TUTTI_CODEC_PLAIN ? TUTTI_CODEC_FIXED : 0);
}

tutti_status tutti_codec_quantised_check(const tutti_codec *c, tutti_error *err)
{
    const uint64_t bucket = (uint64_t)((const tutti_codec_quantiser *)c->self)->bucket;

    if ((bucket & (bucket - 1)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "bucket is %llu and must be a power of two, such as 512",
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

/* Bytes of a message of n elements whose codes have one width, without its tail. */
static size_t fixed_width_bytes(const tutti_codec_quantiser *q, size_t n)
{
    return 4 * tutti_codec_buckets(q, n) + tutti_packed_bytes((int)q->bits, n);
}

/* Number of elements at the end of the view that are sent as float32 (tail=dense). */
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

    return 4 * tail + (q->coding == TUTTI_CODEC_PLAIN     ? fixed_width_bytes(q, n)
                       : q->coding == TUTTI_CODEC_HUFFMAN ? tutti_codec_huffman_bound(q, n)
                                                          : tutti_codec_elias_bound(q, n));
}

/* Number of buckets whose scales are computed before their codes: as many as fit TOGETHER
   elements; 4 for buckets up to FOUR_MOST; 1 for larger ones. */
static size_t buckets_together(size_t bucket)
{
    return bucket > FOUR_MOST ? 1 : bucket > TOGETHER / 4 ? 4 : TOGETHER / bucket;
}

/* Computes the scales of the buckets of `count` elements, at most BUCKETS_MOST. NaN: an element of
   the bucket is not finite, or all are and their 2-norm overflows float. The whole bucket is then
   decoded as NaN. */
static void bucket_scales(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x,
                          size_t count, size_t bucket, float *scale)
{
    double sums[BUCKETS_MOST];

    if (q->l2)
        tutti_norm2_each(c->space->device, count, bucket, x, sums);
    for (size_t b = 0, at = 0; at < count; b++, at += bucket) {
        /* Squares of floats are exact in double, and rounding is monotonic. So the 2-norm is never
           below the largest magnitude. */
        scale[b] = q->l2 ? (float)sqrt(sums[b])
                         : tutti_absmax(c->space->device, count - at < bucket ? count - at : bucket,
                                        x + at);
        scale[b] = isfinite(scale[b]) ? scale[b] : NAN;
    }
}

float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x,
                               size_t count)
{
    float scale = 0;

    bucket_scales(c, q, x, count, count, &scale);
    return scale;
}

static tutti_rounding rounding(const tutti_codec_quantiser *q)
{
    return (tutti_rounding){ .grid = q->grid,
                             .bits = (int)q->bits,
                             .nearest = q->nearest,
                             .steps = tutti_codec_steps(q),
                             .levels = q->levels };
}

void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q,
                              const tutti_view *v, const float *x, size_t at, size_t count,
                              float scale, uint8_t *codes)
{
    const tutti_rounding how = rounding(q);

    tutti_quantise(c->space->device, &how, tutti_codec_rng(c, v, false), v->first + at, count,
                   x + at, count, &scale, NULL, codes);
}

/* 2^e, e from -126 to 0. */
static float power(int e)
{
    const uint32_t bits = (uint32_t)(127 + e) << 23;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Level l >= 0 of an even grid or one of powers, for scale 1. */
static float level_of(const tutti_codec_quantiser *q, int l)
{
    const int top = (1 << (q->bits - 1)) - 1, steps = tutti_codec_steps(q);

    if (q->grid == TUTTI_GRID_POWERS)
        return l == 0 ? 0.0f : power(l - top);
    /* l * (1 / top) gives exactly 1 for l = top and every top used here, 1 to 127 (tested). For
       another number of steps this need not hold, so l is divided. */
    if (steps == top)
        return (float)l * (1.0f / (float)top);
    return (float)l / (float)steps;
}

/* value[code] = a * (scale * level). scale * level is rounded first, so adding value[code] has the
   same bits as decoding and then adding a times the result. */
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a,
                               float value[256])
{
    const int half = 1 << (q->bits - 1);

    for (int l = 0; l < 2 * half && q->grid == TUTTI_GRID_ANY; l++)
        value[l] = a * (scale * q->levels->level[l]);
    for (int l = 0; l < half && q->grid != TUTTI_GRID_ANY; l++) {
        value[l] = a * (scale * level_of(q, l));
        value[half + l] = -value[l];
    }
}

bool tutti_codec_scale_is_valid(float scale)
{
    return isnan(scale) || (isfinite(scale) && scale >= 0);
}

tutti_status tutti_codec_check_scales(const tutti_codec *c, size_t n, const uint8_t *in,
                                      const char *of, tutti_error *err)
{
    for (size_t b = 0; b < n; b++)
        if (!tutti_codec_scale_is_valid(tutti_codec_get_f32(in + 4 * b)))
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "codec '%s': the scale of %s %zu of %zu is %g, and scales are 0 or more; the "
                "message was damaged or is another codec's",
                c->ops->name, of, b + 1, n, (double)tutti_codec_get_f32(in + 4 * b));
    return TUTTI_OK;
}

static size_t encode_fixed_width(const tutti_codec *c, const tutti_view *v, const float *x,
                                 uint8_t *out)
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
        /* One call takes whole buckets, or part of a large one. While it rounds, the next group's
           elements are prefetched (ahead). */
        for (size_t at = first, count; at < end; at += count) {
            const size_t b = (at - first) / bucket, left = first + (b + 1) * bucket - at;
            const tutti_ahead ahead = { .distance = together, .end = n - at };
            count = bucket < CALL ? CALL / bucket * bucket : left < CALL ? left : CALL;
            count = count < end - at ? count : end - at;
            tutti_quantise(c->space->device, &how, rng, v->first + at, count, x + at, bucket,
                           scale + b, &ahead, bits == 8 ? packed + at : codes);
            if (bits < 8)
                tutti_pack(c->space->device, (int)bits, count, codes, packed + at / 8 * bits);
        }
    }
    return fixed_width_bytes(q, n);
}

size_t tutti_codec_quantised_encode(tutti_codec *c, const tutti_view *v, const float *x,
                                    void *scratch, uint8_t *out)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t tail = tail_of(c, v);
    tutti_view whole = *v;
    size_t bytes;

    whole.count = whole.cols = v->count - tail;
    whole.rows = 1;
    bytes = q->coding == TUTTI_CODEC_PLAIN ? encode_fixed_width(c, &whole, x, out)
            : q->coding == TUTTI_CODEC_HUFFMAN
                ? tutti_codec_huffman_encode(c, q, &whole, x, scratch, out)
                : tutti_codec_elias_encode(c, q, &whole, x, out);
    for (size_t i = 0; i < tail; i++)
        tutti_codec_put_f32(out + bytes + 4 * i, x[whole.count + i]);
    return bytes + 4 * tail;
}

/* Refuses codes that no level has, which a damaged message may contain if there are fewer levels
   than codes. */
static tutti_status check_codes(const tutti_codec *c, size_t n, const uint8_t *packed,
                                tutti_error *err)
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
                return tutti_fail(
                    err, TUTTI_ERR_CORRUPT, 0,
                    "codec '%s': element %zu of %zu has level %d, and the greatest is %d; the "
                    "message was damaged or is another codec's",
                    c->ops->name, at + i + 1, n, codes[i] & mask, tutti_codec_steps(q));
    }
    return TUTTI_OK;
}

static tutti_status decode_fixed_width(const tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                       float a, float *y, tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t n = v->count, bucket = (size_t)q->bucket, bits = (size_t)q->bits,
                 buckets = tutti_codec_buckets(q, n);
    const bool table = q->grid != TUTTI_GRID_EVEN || bits <= TABLE_BITS ||
                       tutti_codec_steps(q) < (1 << (bits - 1)) - 1;
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

tutti_status tutti_codec_quantised_decode_add(tutti_codec *c, const tutti_view *v,
                                              const uint8_t *in, size_t bytes, float a, float *y,
                                              tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t tail = tail_of(c, v);
    tutti_view whole = *v;

    if (bytes < 4 * tail ||
        (q->coding == TUTTI_CODEC_PLAIN && bytes != tutti_codec_quantised_bound(c, v)))
        return tutti_codec_wrong_size(c, v, bytes, tutti_codec_quantised_bound(c, v), err);
    bytes -= 4 * tail;
    whole.count = whole.cols = v->count - tail;
    whole.rows = 1;
    TUTTI_TRY(
        q->coding == TUTTI_CODEC_PLAIN ? decode_fixed_width(c, &whole, in, a, y, err)
        : q->coding == TUTTI_CODEC_HUFFMAN
            ? tutti_codec_huffman_decode(c, &whole, &(tutti_codec_message){ in, bytes }, a, y, err)
            : tutti_codec_elias_decode(c, &whole, &(tutti_codec_message){ in, bytes }, a, y, err));
    for (size_t i = 0; i < tail; i++)
        y[whole.count + i] += a * tutti_codec_get_f32(in + bytes + 4 * i);
    return TUTTI_OK;
}

/* ---- reported figures ---- */

/* All levels, ascending, as values for scale 1. Returns their number. */
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

/* The factor in E|x - decoded|^2 <= bound |x|^2, for buckets of d elements. Let r = x / scale. The
   scale is at least the largest magnitude and at most the 2-norm, so |r_i| <= 1 and |r|_2 >= 1.
   Rounding r_i between neighbouring levels a < b has the variance (b - r_i)(r_i - a).

   Even levels (QSGD): min(d / (4 s^2), sqrt(d) / s); the paper's first term is 4 times larger
   (docs/methods/qsgd.md).

   Other levels (Faghri et al. 2020): the sum of two terms. (1) Between two levels of one sign with
   ratio rho: (rho - 1)^2 / (4 rho), the largest of all pairs. (2) Around 0: if 0 is a level and l
   the next, min(l^2 d / 4, l sqrt(d)), the larger of the two sides; if not, d w^2 / 4, with w the
   width of the interval around 0. */
static double bound_of(const tutti_codec_quantiser *q, const double *level, int n, double d)
{
    const double s = tutti_codec_steps(q);
    double ratio = 0, middle = 0;

    if (q->grid == TUTTI_GRID_EVEN)
        return fmin(d / (4 * s * s), sqrt(d) / s);
    for (int j = 0; j + 1 < n; j++) {
        const double a = level[j], b = level[j + 1],
                     rho = a > 0   ? b / a
                           : b < 0 ? a / b
                                   : 1,
                     width = b - a;
        ratio = fmax(ratio, (rho - 1) * (rho - 1) / (4 * rho));
        if (a <= 0 && b >= 0)
            middle = fmax(middle, a < 0 && b > 0 ? d * width * width / 4
                                                 : fmin(d * width * width / 4, width * sqrt(d)));
    }
    return ratio + middle;
}

void tutti_codec_quantised_report(const tutti_codec *c, const tutti_view *v, const float *x,
                                  const float *decoded, const tutti_codec_listener *listener)
{
    const tutti_codec_quantiser *q = c->self;
    const size_t whole = v->count - tail_of(c, v), bucket = (size_t)q->bucket;
    double level[256], count[256] = { 0 }, bound;
    const int n = list_levels(q, level);

    /* buckets with a non-finite scale are skipped */
    for (size_t first = 0; first < whole; first += bucket) {
        const size_t some = whole - first < bucket ? whole - first : bucket;
        const float scale = tutti_codec_bucket_scale(c, q, x + first, some);
        for (size_t i = first; i < first + some && scale >= 0; i++)
            count[nearest(level, n, scale > 0 ? (double)decoded[i] / (double)scale : 0)]++;
    }
    listener->receive(listener->user, "levels", (size_t)n, count);
    bound = bound_of(q, level, n, (double)(bucket < v->count ? bucket : v->count));
    if (!q->nearest)
        listener->receive(listener->user, "bound", 1, &bound);
}
