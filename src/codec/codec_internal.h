/* codec_internal.h: what the files of codec/ share: numbers on the wire, streams of draws, names of states, quantised buckets. */
#ifndef TUTTI_CODEC_INTERNAL_H
#define TUTTI_CODEC_INTERNAL_H
#include <tutti/codec.h>
#include <math.h>
#include <string.h>

/* ---- numbers on the wire: little-endian, at any address ---- */
static inline void tutti_codec_put_u32(uint8_t *p, uint32_t v)
{
    for (int k = 0; k < 4; k++)
        p[k] = (uint8_t)(v >> 8 * k);
}

static inline uint32_t tutti_codec_get_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void tutti_codec_put_f32(uint8_t *p, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    tutti_codec_put_u32(p, bits);
}

static inline float tutti_codec_get_f32(const uint8_t *p)
{
    const uint32_t bits = tutti_codec_get_u32(p);
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- draws ---- */
/* This worker's for this view's step and stage; `shared`: the same on all workers. The streams lie apart from those that others number 0, 1, 2 ... */
tutti_rng tutti_codec_rng(const tutti_codec *c, const tutti_view *v, bool shared);
/* The 16-bit draws of the places [at, at + count), at most TUTTI_CODEC_BLOCK: in `room`, from the place that is returned. */
enum { TUTTI_CODEC_BLOCK = 1024, TUTTI_CODEC_DRAWS = TUTTI_CODEC_BLOCK + TUTTI_DRAWS };
const uint16_t *tutti_codec_draws(const tutti_codec *c, tutti_rng rng, uint64_t at, size_t count, uint16_t room[TUTTI_CODEC_DRAWS]);
/* 32 bits of element `at` of those same draws, which then are half as many: at / 64 is its group. `held` caches the group (start with UINT64_MAX). */
typedef struct tutti_codec_words { tutti_rng rng; uint64_t group; uint16_t draws[TUTTI_DRAWS]; } tutti_codec_words;
uint32_t tutti_codec_word(const tutti_codec *c, tutti_codec_words *held, uint64_t at);

/* ---- states ---- */
/* name: "e"; the state is "<prefix>.e", one element an element of the flat space. */
void tutti_codec_declare_vector(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep, float **slot);

/* k = ceil(ratio n), at least 1, at most n; 0 of 0. A ratio of 0.07 of 100 is 7: a last bit of the product does not make it 8. */
size_t tutti_codec_fraction(double ratio, size_t n);
/* The sentence for a message of the wrong size. */
tutti_status tutti_codec_wrong_size(const tutti_codec *c, const tutti_view *v, size_t bytes, size_t wanted, tutti_error *err);

/* ---- quantised.c: buckets with a scale and codes of a few bits; qsgd, nuqsgd, int8 ---- */
typedef struct tutti_codec_quantiser {
    int bits;
    size_t bucket;               /* elements; a multiple of 8 */
    bool l2;                     /* scale: the 2-norm; else the greatest magnitude */
    bool powers;                 /* levels 0, 2^-s, ..., 1/2, 1; else 0, 1/s, ..., 1 */
    bool nearest;                /* not stochastic; uniform levels only */
} tutti_codec_quantiser;
/* Bytes: 4 ceil(n / bucket) + ceil(n bits / 8), scales first. */
size_t tutti_codec_quantised_bytes(const tutti_codec_quantiser *q, size_t n);
size_t tutti_codec_quantise(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const float *x, uint8_t *out);
tutti_status tutti_codec_dequantise(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const uint8_t *in, size_t bytes,
                                    float a, float *y, tutti_error *err);
/* For other codings of the same codes: the scale of a bucket (0: all zero; NaN: not finite), its codes, at most TUTTI_CODEC_BLOCK at once, of the
   elements [at, at + count) of the view, and the decoded values of codes times a. */
float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x, size_t count);
void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const float *x, size_t at, size_t count,
                              float scale, uint8_t *codes);
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a, float value[256]);
bool tutti_codec_scale_is_valid(float scale); /* NaN, or finite and not negative */

/* ---- elias.c ---- */
typedef enum { TUTTI_CODEC_GAMMA, TUTTI_CODEC_OMEGA } tutti_codec_elias;
size_t tutti_codec_elias_bound(const tutti_codec_quantiser *q, tutti_codec_elias code, size_t n);
size_t tutti_codec_elias_encode(const tutti_codec *c, const tutti_codec_quantiser *q, tutti_codec_elias code, const tutti_view *v, const float *x,
                                uint8_t *out);
tutti_status tutti_codec_elias_decode(const tutti_codec *c, const tutti_codec_quantiser *q, tutti_codec_elias code, const tutti_view *v,
                                      const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err);
int tutti_codec_elias_length(tutti_codec_elias code, uint32_t k); /* bits of k >= 1 */

/* ---- sparse.c: index and value lists; topk and threshold ---- */
size_t tutti_codec_sparse_put(size_t k, const uint32_t *index, const float *value, uint8_t *out); /* 8 k bytes: the indexes, then the values */
/* k pairs: indexes ascend and are below v->count. */
tutti_status tutti_codec_sparse_add(const tutti_codec *c, const tutti_view *v, size_t k, const uint8_t *in, float a, float *y, tutti_error *err);
/* k indexes of four bytes, of which `mask` counts: ascending and below v->count. `of`: "kept" for the sentence. */
tutti_status tutti_codec_sparse_check(const tutti_codec *c, const tutti_view *v, size_t k, const uint8_t *in, uint32_t mask, const char *of,
                                      tutti_error *err);

/* ---- orthogonal.c ---- */
/* r columns of n elements, one after the other in p, become orthonormal, r <= n. A column that depends on those before it (or is 0) is replaced by
   one drawn from rng: the same on all workers. NaN and infinity make every column from theirs on NaN. */
void tutti_codec_orthonormalise(tutti_device *d, size_t n, size_t r, float *p, tutti_rng rng);
#endif
