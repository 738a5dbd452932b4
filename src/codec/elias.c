/* elias.c: writes the codes of a quantised bucket as Elias's universal codes (Elias, IEEE Trans.
   Inf. Theory 1975; QSGD, section 3.3). E(k) is the code of a whole number k >= 1. A message is
   one sequence of bits, from the lowest bit of its first byte on, without gaps between buckets;
   the rest of the last byte is 0.

     bucket:  scale (32 bits, float; its sign bit is 1 if the sparse form follows), then one of the
              two forms, unless the scale is 0 or NaN
     dense:   E(origin + 1) if levels are not evenly spaced; then for each element E(index + 1),
              and a sign bit if level > 0 (always, if no level is its own negative)
     sparse:  for each nonzero element E(distance from the nonzero element before it, or from -1),
              a sign bit, E(level); at the end E(distance to the bucket's end)
     gamma:   E(k) for a k of z + 1 bits: z zeros, a one, the z lower bits of k, lowest first
     omega:   E(k): groups, each a one and the lower bits (lowest first) of a number whose count of
              lower bits was the number before it, from 1 on, up to k; then a zero

   A level's index is small for frequent levels. If levels are evenly spaced (QSGD), the least is
   the most frequent, and the index is the level. Of levels that are fine near 0 (NUQSGD) the least
   is not: in a bucket of 512 most magnitudes are about 1/23 of the 2-norm, the second and third
   level of 4 bits. Their indexes count from the bucket's most frequent level, the origin,
   alternately up and down while there are levels on both sides: 0 is the origin, 1 the level
   above, 2 the level below.

   Levels without a zero, or of another multiplier than a half, are in a table from -1 to 1. Then a
   level's index is among the levels of its sign, every element has a sign bit, and there is no
   sparse form.

   The encoder takes the shorter form of each bucket, so the dense form bounds the size. Elias
   codes are encoded serially and slowly, for links that are slower still. */
#include "codec_internal.h"
#include "codec.h"
#include "kernels/codes.h"

static int top_bit(uint32_t k)
{
    return 31 - __builtin_clz(k);
}

int tutti_codec_elias_length(tutti_codec_coding code, uint32_t k)
{
    int bits = 1;

    if (code == TUTTI_CODEC_GAMMA)
        return 2 * top_bit(k) + 1;
    for (; k > 1; k = (uint32_t)top_bit(k))
        bits += top_bit(k) + 1;
    return bits;
}

static bool has_origin(const tutti_codec_quantiser *q)
{
    return q->grid != TUTTI_GRID_EVEN;
}

size_t tutti_codec_elias_bound(const tutti_codec_quantiser *q, size_t n)
{
    const uint32_t most = (uint32_t)tutti_codec_steps(q) + 1;

    const size_t longest = (size_t)tutti_codec_elias_length((tutti_codec_coding)q->coding, most);

    return ((32 + (has_origin(q) ? longest : 0)) * tutti_codec_buckets(q, n) + n * (longest + 1) +
            7) /
           8;
}

/* ---- codes, levels, indexes of levels ---- */
static uint32_t level_of(const tutti_codec_quantiser *q, uint32_t code)
{
    const uint32_t half = 1u << (q->bits - 1);

    return q->grid != TUTTI_GRID_ANY ? code & (half - 1)
           : code < half             ? half - 1 - code
                                     : code - half;
}

static uint32_t sign_of(const tutti_codec_quantiser *q, uint32_t code)
{
    return (code >> (q->bits - 1)) ^ (q->grid == TUTTI_GRID_ANY);
}

static uint32_t code_of(const tutti_codec_quantiser *q, uint32_t level, uint32_t sign)
{
    const uint32_t half = 1u << (q->bits - 1);

    return q->grid != TUTTI_GRID_ANY ? level | sign * half : sign ? half - 1 - level : half + level;
}

static bool has_sign(const tutti_codec_quantiser *q, uint32_t level)
{
    return level > 0 || q->grid == TUTTI_GRID_ANY;
}

/* The distance up to which there are levels on both sides of the origin, which is one of 0 to
   top. */
static uint32_t reach_of(uint32_t origin, uint32_t top)
{
    return origin < top - origin ? origin : top - origin;
}

/* The index of a level, from 0 on (see above). */
static uint32_t index_of(uint32_t level, uint32_t origin, uint32_t top)
{
    const uint32_t reach = reach_of(origin, top),
                   away = level > origin ? level - origin : origin - level;

    return away > reach ? reach + away : 2 * away - (level > origin);
}

/* The level of an index: the inverse of index_of. */
static uint32_t level_at(uint32_t index, uint32_t origin, uint32_t top)
{
    const uint32_t reach = reach_of(origin, top),
                   away = index > 2 * reach ? index - reach : (index + 1) / 2;
    const bool above = index > 2 * reach ? origin == reach : index % 2 == 1;

    return above ? origin + away : origin - away;
}

/* ---- writing ---- */
static void put_elias(tutti_codec_writer *w, tutti_codec_coding code, uint32_t k)
{
    uint32_t group[8];
    int n = 0;

    if (code == TUTTI_CODEC_GAMMA) {
        const int z = top_bit(k);
        tutti_codec_write(w, 0, z);
        tutti_codec_write(w, 1, 1);
        tutti_codec_write(w, k & ((1u << z) - 1), z);
        return;
    }
    for (; k > 1; k = (uint32_t)top_bit(k))
        group[n++] = k;
    while (n > 0) {
        const int z = top_bit(group[--n]);
        tutti_codec_write(w, 1, 1);
        tutti_codec_write(w, group[n] & ((1u << z) - 1), z);
    }
    tutti_codec_write(w, 0, 1);
}

size_t tutti_codec_elias_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                const tutti_view *v, const float *x, uint8_t *out)
{
    const tutti_codec_coding code = (tutti_codec_coding)q->coding;
    const size_t bucket = (size_t)q->bucket;
    const uint32_t top = (uint32_t)tutti_codec_steps(q);
    uint8_t codes[TUTTI_CODEC_BLOCK];
    tutti_codec_writer w = { .out = out };

    for (size_t first = 0; first < v->count; first += bucket) {
        const size_t end = v->count - first < bucket ? v->count : first + bucket;
        const float scale = tutti_codec_bucket_scale(c, q, x + first, end - first);
        uint64_t dense = 0, sparse = 0;
        uint32_t bits, origin = 0, seen[128] = { 0 };
        bool is_sparse = false;
        memcpy(&bits, &scale, sizeof bits);
        if (!(scale > 0)) {
            tutti_codec_write(&w, isnan(scale) ? 0x7fc00000u : 0, 32);
            continue;
        }
        /* Passes over the bucket twice, to measure its two forms and to write the shorter one.
           Both passes have the same draws, which are a function of the element. */
        for (int writing = 0; writing < 2; writing++) {
            size_t before = first - 1; /* of the last nonzero; wraps below 0 as intended */
            if (writing == 1) {
                is_sparse = sparse < dense;
                tutti_codec_write(&w, bits | (is_sparse ? 0x80000000u : 0), 32);
                if (has_origin(q) && !is_sparse)
                    put_elias(&w, code, origin + 1);
            }
            for (size_t at = first, count; at < end; at += count) {
                count = end - at < TUTTI_CODEC_BLOCK ? end - at : TUTTI_CODEC_BLOCK;
                tutti_codec_bucket_codes(c, q, v, x, at, count, scale, codes);
                for (size_t i = 0; i < count; i++) {
                    const uint32_t level = level_of(q, codes[i]), sign = sign_of(q, codes[i]);
                    if (writing == 0) {
                        seen[level]++;
                        if (level > 0)
                            sparse += (uint64_t)tutti_codec_elias_length(
                                          code, (uint32_t)(at + i - before)) +
                                      1 + (uint64_t)tutti_codec_elias_length(code, level);
                    } else if (!is_sparse) {
                        put_elias(&w, code, index_of(level, origin, top) + 1);
                        if (has_sign(q, level))
                            tutti_codec_write(&w, sign, 1);
                    } else if (level > 0) {
                        put_elias(&w, code, (uint32_t)(at + i - before));
                        tutti_codec_write(&w, sign, 1);
                        put_elias(&w, code, level);
                    }
                    if (level > 0)
                        before = at + i;
                }
            }
            if (writing == 0) {
                sparse = q->grid == TUTTI_GRID_ANY ? UINT64_MAX
                                                   : sparse + (uint64_t)tutti_codec_elias_length(
                                                                  code, (uint32_t)(end - before));
                for (uint32_t l = 1; l <= top && has_origin(q); l++)
                    origin = seen[l] > seen[origin] ? l : origin;
                dense = has_origin(q) ? (uint64_t)tutti_codec_elias_length(code, origin + 1) : 0;
                for (uint32_t l = 0; l <= top; l++)
                    dense +=
                        seen[l] *
                        (uint64_t)(tutti_codec_elias_length(code, index_of(l, origin, top) + 1) +
                                   has_sign(q, l));
            } else if (is_sparse)
                put_elias(&w, code, (uint32_t)(end - before));
        }
    }
    tutti_codec_write_end(&w);
    return w.bytes;
}

/* ---- reading ---- */
typedef struct reader { const uint8_t *in; uint64_t at, end; bool short_of; } reader; /* in bits */

static uint32_t get(reader *r, int bits)
{
    uint32_t value = 0;

    if (r->end - r->at < (uint64_t)bits) {
        r->short_of = true;
        r->at = r->end;
        return 0;
    }
    for (int k = 0; k < bits; k++, r->at++)
        value |= (uint32_t)(r->in[r->at / 8] >> r->at % 8 & 1) << k;
    return value;
}

/* 0: no number of at most 31 bits */
static uint32_t get_elias(reader *r, tutti_codec_coding code)
{
    uint32_t k = 1;

    if (code == TUTTI_CODEC_GAMMA) {
        int z = 0;
        while (z < 31 && get(r, 1) == 0 && !r->short_of)
            z++;
        k = z == 31 ? 0 : 1u << z | get(r, z);
    } else
        while (get(r, 1) == 1) {
            if (k > 30)
                return 0;
            k = 1u << k | get(r, (int)k);
        }
    return r->short_of ? 0 : k;
}

/* Elements [first, end) of a bucket with these levels. */
typedef struct bucket_of {
    const tutti_codec_quantiser *q;
    size_t first, end;
    uint32_t levels, origin;
} bucket_of;

/* Reads the elements of a bucket, each with its level. value: what each code adds; y NULL: only
   checks them. Returns NULL, or what is wrong with element *at. */
static const char *walk_levels(reader *r, const bucket_of *b, const float *value, float *y,
                               size_t *at)
{
    const tutti_codec_quantiser *q = b->q;
    const tutti_codec_coding code = (tutti_codec_coding)q->coding;
    for (size_t i = b->first; i < b->end; i++) {
        const uint32_t index = get_elias(r, code) - 1; /* of 0: beyond all levels */
        uint32_t level, sign;
        *at = i;
        if (index > b->levels)
            return r->short_of ? "the message ends before it" : "its level is beyond the greatest";
        level = level_at(index, b->origin, b->levels);
        sign = has_sign(q, level) ? get(r, 1) : 0;
        if (y != NULL && has_sign(q, level))
            y[i] += value[code_of(q, level, sign)];
    }
    return NULL;
}

/* Reads the elements of a bucket that are not 0, each with its distance from the one before. As
   walk_levels. */
static const char *walk_gaps(reader *r, const bucket_of *b, const float *value, float *y,
                             size_t *at)
{
    const tutti_codec_quantiser *q = b->q;
    const tutti_codec_coding code = (tutti_codec_coding)q->coding;
    for (size_t i = b->first - 1;;) {
        const uint32_t step = get_elias(r, code);
        uint32_t sign, level;
        if (step == 0 || step > b->end - i)
            return r->short_of ? "the message ends after it" : "the next one is beyond its bucket";
        i += step;
        if (i == b->end)
            break;
        *at = i;
        sign = get(r, 1);
        level = get_elias(r, code);
        if (level == 0 || level > b->levels)
            return r->short_of ? "the message ends before it" : "its level is beyond the greatest";
        if (y != NULL)
            y[i] += value[code_of(q, level, sign)];
    }
    return NULL;
}

/* Reads the message, and adds the elements to y; y NULL: only checks them. Returns NULL, or what is
   wrong with element *at. *at is n after the last element. */
static const char *walk(const tutti_codec_quantiser *q, size_t n, const tutti_codec_message *m,
                        float a, float *y, size_t *at)
{
    const tutti_codec_coding code = (tutti_codec_coding)q->coding;
    const size_t bucket = (size_t)q->bucket;
    const uint32_t levels = (uint32_t)tutti_codec_steps(q);
    reader r = { .in = m->at, .end = 8 * (uint64_t)m->bytes };
    float value[256];

    for (size_t first = 0; first < n; first += bucket) {
        const size_t end = n - first < bucket ? n : first + bucket;
        const uint32_t head = get(&r, 32), bits = head & 0x7fffffffu;
        const char *wrong;
        uint32_t origin = 0;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        *at = first;
        if (r.short_of)
            return "the message ends before its bucket";
        if (isinf(scale) || (head >> 31 == 1 && (!(scale > 0) || q->grid == TUTTI_GRID_ANY)))
            return "its bucket has no valid scale";
        if (y != NULL)
            tutti_codec_bucket_values(q, scale, a, value);
        if (!(scale > 0)) {
            for (size_t i = first; i < end && y != NULL && isnan(scale); i++)
                y[i] += scale;
            continue;
        }
        if (head >> 31 == 0 && has_origin(q) && (origin = get_elias(&r, code) - 1) > levels)
            return r.short_of ? "the message ends within its bucket's head"
                              : "the origin of its bucket's levels is beyond the greatest";
        if (head >> 31 == 0)
            wrong = walk_levels(&r, &(bucket_of){ q, first, end, levels, origin }, value, y, at);
        else
            wrong = walk_gaps(&r, &(bucket_of){ q, first, end, levels, origin }, value, y, at);
        if (wrong != NULL)
            return wrong;
        if (r.short_of)
            return "the message ends after it";
    }
    *at = n;
    if (r.end - r.at >= 8)
        return "the message continues after the last one";
    if (get(&r, (int)(r.end - r.at)) != 0)
        return "the last byte is not filled up with zeros";
    return NULL;
}

tutti_status tutti_codec_elias_decode(const tutti_codec *c, const tutti_view *v,
                                      const tutti_codec_message *m, float a, float *y,
                                      tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;

    size_t at = 0;
    const char *wrong = walk(q, v->count, m, a, NULL, &at);

    if (wrong != NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': element %zu of %zu in a message of %zu bytes: %s; the "
                          "message was damaged or is another codec's",
                          c->ops->name, at < v->count ? at + 1 : at, v->count, m->bytes, wrong);
    walk(q, v->count, m, a, y, &at);
    return TUTTI_OK;
}
