/* minmax8.c: codec minmax8: rounds each element to the nearest of 256 evenly spaced levels from the
   least to the greatest element of its chunk. After BAGUA's MinMaxUInt8 (Gan et al., VLDB 2022),
   with messages of the same size: n + 8 ceil(n / chunk) bytes, the two extremes of each chunk
   first.

   Differs in the arithmetic. BAGUA's scale is 255 / (max - min + 1e-7), which rounds chunks of
   small numbers to nothing. Here a chunk of equal numbers is exact whatever they are, and the
   error is at most (max - min) / 510 and the rounding. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"

typedef struct minmax8 { int64_t chunk; } minmax8;
static const tutti_option options[] = {
    TUTTI_ROW_MINMAX8_CHUNK(TUTTI_AT(minmax8, chunk)),
    { 0 }
};

static unsigned minmax8_traits(const tutti_codec *c)
{
    (void)c;
    /* many zeros with few large numbers among them may be decoded larger than they were */
    return TUTTI_CODEC_FIXED;
}

static tutti_status minmax8_check(const tutti_codec *c, tutti_error *err)
{
    const int64_t chunk = ((const minmax8 *)c->self)->chunk;

    if (chunk != 0 && chunk < 256)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "chunk is %lld and must be 0 or at least 256",
                          (long long)chunk);
    return TUTTI_OK;
}

static size_t chunk_of(const tutti_codec *c, const tutti_view *v)
{
    const size_t chunk = (size_t)((const minmax8 *)c->self)->chunk;

    return chunk == 0 || chunk > v->count ? v->count : chunk;
}

static size_t chunks_of(const tutti_codec *c, const tutti_view *v)
{
    const size_t chunk = chunk_of(c, v);

    return chunk == 0 ? 0 : (v->count + chunk - 1) / chunk;
}

static size_t minmax8_bound(const tutti_codec *c, const tutti_view *v)
{
    return 8 * chunks_of(c, v) + v->count;
}

static size_t minmax8_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                             uint8_t *out)
{
    const size_t chunk = chunk_of(c, v);
    uint8_t *codes = out + 8 * chunks_of(c, v);

    (void)scratch;
    for (size_t first = 0; first < v->count; first += chunk, out += 8) {
        const size_t n = v->count - first < chunk ? v->count - first : chunk;
        float least, greatest, range;
        tutti_extent(c->space->device, n, x + first, &least, &greatest);
        range = greatest - least;
        if (!isfinite(range))
            least = greatest = NAN;
        if (range > 0 && isfinite(range))
            tutti_round_range(c->space->device, n, x + first, least, range, codes + first);
        else
            memset(codes + first, 0, n);
        tutti_codec_put_f32(out, least);
        tutti_codec_put_f32(out + 4, greatest);
    }
    return minmax8_bound(c, v);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t chunk = chunk_of(c, v), chunks = chunks_of(c, v);

    if (bytes != minmax8_bound(c, v))
        return tutti_codec_wrong_size(c, v, bytes, minmax8_bound(c, v), err);
    for (size_t k = 0; k < chunks; k++) {
        const float least = tutti_codec_get_f32(in + 8 * k),
                    greatest = tutti_codec_get_f32(in + 8 * k + 4);
        if (!(isnan(least) && isnan(greatest)) &&
            !(isfinite(greatest - least) && least <= greatest))
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "codec 'minmax8': chunk %zu of %zu goes from %g to %g, which is no range; the "
                "message was damaged or is another codec's",
                k + 1, chunks, (double)least, (double)greatest);
    }
    for (size_t k = 0, first = 0; k < chunks; k++, first += chunk) {
        const float least = tutti_codec_get_f32(in + 8 * k),
                    greatest = tutti_codec_get_f32(in + 8 * k + 4);
        tutti_range_add(c->space->device, v->count - first < chunk ? v->count - first : chunk,
                        in + 8 * chunks + first, least, greatest, a, y + first);
    }
    return TUTTI_OK;
}

const tutti_codec_ops tutti_codec_minmax8 = {
    .name = "minmax8",
    .paper = "Gan et al., VLDB 2022 (BAGUA)",
    .help = "8 bits an element between a chunk's extremes",
    .options = options,
    .self_bytes = sizeof(minmax8),
    .traits = minmax8_traits,
    .check = minmax8_check,
    .bound = minmax8_bound,
    .encode = minmax8_encode,
    .decode_add = decode_add,
};
