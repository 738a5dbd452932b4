/* codec_internal.h: what the files of codec/ share: numbers on the wire, streams of draws, names
   of states, quantised buckets. */
#ifndef TUTTI_CODEC_INTERNAL_H
#define TUTTI_CODEC_INTERNAL_H
#include <tutti/codec.h>
#include <math.h>
#include <string.h>

/* ---- table.c ---- */
/* Does the table of a codec have what its form needs? TUTTI_ERR_STATE: no; the sentence states
   what is missing. */
tutti_status tutti_codec_check_table(const tutti_codec_ops *ops, tutti_error *err);

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
/* This worker's for this view's step and stage; `shared`: the same on all workers. The streams
   are apart from those that other modules number 0, 1, 2 ... */
tutti_rng tutti_codec_rng(const tutti_codec *c, const tutti_view *v, bool shared);
/* The 16-bit draws of the places [at, at + count), at most TUTTI_CODEC_BLOCK: written to the
   caller's buffer, from the returned address on. */
enum { TUTTI_CODEC_BLOCK = 1536, TUTTI_CODEC_DRAWS = TUTTI_CODEC_BLOCK + TUTTI_DRAWS };
const uint16_t *tutti_codec_draws(const tutti_codec *c, tutti_rng rng, uint64_t at, size_t count,
                                  uint16_t room[TUTTI_CODEC_DRAWS]);
/* 32 bits of element `at` of those same draws, which then are half as many: at / 64 is its group.
   `held` caches the group (start with UINT64_MAX). */
typedef struct tutti_codec_words {
    tutti_rng rng;
    uint64_t group;
    uint16_t draws[TUTTI_DRAWS];
} tutti_codec_words;
uint32_t tutti_codec_word(const tutti_codec *c, tutti_codec_words *held, uint64_t at);

/* ---- states ---- */
/* name: "e"; the state is "<prefix>.e", one element an element of the flat space. */
void tutti_codec_declare_vector(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                float **slot);
/* The same for states that have no place in the flat space: `count` floats or bytes; a value in
   self. */
void tutti_codec_declare_floats(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                size_t count, float **slot);
void tutti_codec_declare_bytes(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               size_t count, uint8_t **slot);
void tutti_codec_declare_value(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               void *value, size_t bytes);

/* For wrappers that feed back what inner[0] loses: checks that inner[0] does not do so itself, is
   not only unbiased, and has the traits needed. */
tutti_status tutti_codec_check_fed(const tutti_codec *c, unsigned needed, tutti_error *err);

/* k = ceil(ratio n), at least 1, at most n; 0 of 0. A ratio of 0.07 of 100 is 7: a last bit of the
   product does not make it 8. */
size_t tutti_codec_fraction(double ratio, size_t n);
/* The sentence for a message of the wrong size. */
tutti_status tutti_codec_wrong_size(const tutti_codec *c, const tutti_view *v, size_t bytes,
                                    size_t wanted, tutti_error *err);

/* ---- quantised.c: buckets with a scale and codes of a few bits: int8, qsgd, nuqsgd, alq, amq
   ---- */
typedef enum {
    TUTTI_CODEC_PLAIN,
    TUTTI_CODEC_HUFFMAN,
    TUTTI_CODEC_GAMMA,
    TUTTI_CODEC_OMEGA
} tutti_codec_coding;
/* The struct of a quantising codec begins with this; options write the upper half, `declare` the
   lower one. */
typedef struct tutti_codec_quantiser {
    int64_t bits;                /* 2 .. 8 */
    int64_t steps;               /* of grid EVEN: s, the levels above 0; 0: all that bits hold. Ask
                                    tutti_codec_steps */
    int64_t bucket;              /* elements; a multiple of 8 */
    int l2;                      /* scale: 1: the 2-norm; 0: the greatest magnitude */
    int coding;
    tutti_grid grid;
    bool nearest;                /* not stochastic; even levels only */
    const tutti_levels *levels;  /* of grid ANY; valid from open on */
    int tail;                    /* what becomes of a tensor's last elements where they do not fill
                                    a bucket */
} tutti_codec_quantiser;
enum { TUTTI_CODEC_SHORT, TUTTI_CODEC_DENSE };
static inline int tutti_codec_steps(const tutti_codec_quantiser *q)
{
    return q->steps > 0 ? (int)q->steps : (1 << (q->bits - 1)) - 1;
}
/* qsgd, nuqsgd: the rows behind bits (rows.h) */
#define TUTTI_CODEC_QUANTISER_ROWS(bucket_first, norm_first) \
    TUTTI_ROW_BUCKET(TUTTI_AT(tutti_codec_quantiser, bucket), bucket_first), \
    TUTTI_ROW_NORM(TUTTI_AT(tutti_codec_quantiser, l2), norm_first), \
    TUTTI_ROW_CODING_ANY(TUTTI_AT(tutti_codec_quantiser, coding), "coding", "elias|omega"), \
    TUTTI_ROW_TAIL(TUTTI_AT(tutti_codec_quantiser, tail))
/* The entries of their tables of operations. Fixed width: 4 ceil(n / bucket) + ceil(n bits / 8)
   bytes, scales first; else see huffman.c, elias.c. tail=dense: n without the tail, which follows,
   four bytes each. */
unsigned tutti_codec_quantised_traits(const tutti_codec *c);
tutti_status tutti_codec_quantised_check(const tutti_codec *c, tutti_error *err);
size_t tutti_codec_quantised_scratch(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_quantised_bound(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_quantised_encode(tutti_codec *c, const tutti_view *v, const float *x,
                                    void *scratch, uint8_t *out);
tutti_status tutti_codec_quantised_decode_add(tutti_codec *c, const tutti_view *v,
                                              const uint8_t *in, size_t bytes, float a, float *y,
                                              tutti_error *err);
/* "levels"; "bound" of roundings at random */
void tutti_codec_quantised_report(const tutti_codec *c, const tutti_view *v, const float *x,
                                  const float *decoded, const tutti_codec_listener *listener);
#define TUTTI_CODEC_QUANTISED                                                             \
    .bound = tutti_codec_quantised_bound, .scratch = tutti_codec_quantised_scratch,       \
    .encode = tutti_codec_quantised_encode, .decode_add = tutti_codec_quantised_decode_add, \
    .report = tutti_codec_quantised_report
/* For other codings of the same codes: how many buckets, the scale of one (0: all zero; NaN: an
   element or the 2-norm is not finite), its codes, at most TUTTI_CODEC_BLOCK at once, of the
   elements [at, at + count) of the view, and the decoded values of codes times a. */
size_t tutti_codec_buckets(const tutti_codec_quantiser *q, size_t n);
float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x,
                               size_t count);
void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q,
                              const tutti_view *v, const float *x, size_t at, size_t count,
                              float scale, uint8_t *codes);
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a,
                               float value[256]);
/* A code that encoding makes: with fewer levels than bits hold others may come from a peer. */
static inline bool tutti_codec_code_is_valid(const tutti_codec_quantiser *q, int code)
{
    return q->grid != TUTTI_GRID_EVEN ||
           (code & ((1 << (q->bits - 1)) - 1)) <= tutti_codec_steps(q);
}
bool tutti_codec_scale_is_valid(float scale); /* NaN, or finite and not negative */
/* Checks all scales of a message, four bytes each; "bucket" or "block" for the sentence. */
tutti_status tutti_codec_check_scales(const tutti_codec *c, size_t n, const uint8_t *in,
                                      const char *of, tutti_error *err);

/* ---- bits one after the other, from the lowest of a byte on: elias.c, huffman.c ---- */
typedef struct tutti_codec_writer {
    uint8_t *out;
    size_t bytes;
    uint64_t held;
    int have;
} tutti_codec_writer;
static inline void tutti_codec_write(tutti_codec_writer *w, uint32_t value, int bits)
{
    w->held |= (uint64_t)value << w->have;
    for (w->have += bits; w->have >= 8; w->have -= 8, w->held >>= 8)
        w->out[w->bytes++] = (uint8_t)w->held;
}
/* Fills the last byte up with 0. */
static inline void tutti_codec_write_end(tutti_codec_writer *w)
{
    tutti_codec_write(w, 0, (8 - w->have) % 8);
}

/* ---- elias.c ---- */
size_t tutti_codec_elias_bound(const tutti_codec_quantiser *q, size_t n);
size_t tutti_codec_elias_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                const tutti_view *v, const float *x, uint8_t *out);
tutti_status tutti_codec_elias_decode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                      const tutti_view *v, const uint8_t *in, size_t bytes, float a,
                                      float *y, tutti_error *err);
int tutti_codec_elias_length(tutti_codec_coding code, uint32_t k); /* bits of k >= 1 */

/* ---- huffman.c ---- */
enum { TUTTI_CODEC_HUFFMAN_LONGEST = 12 };
/* Lengths of an optimal prefix code, 0 where count is 0, at most TUTTI_CODEC_HUFFMAN_LONGEST; one
   symbol alone has 1. */
void tutti_codec_huffman_lengths(int symbols, const uint32_t *count, uint8_t *length);
size_t tutti_codec_huffman_bound(const tutti_codec_quantiser *q, size_t n);
size_t tutti_codec_huffman_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                  const tutti_view *v, const float *x, uint8_t *codes,
                                  uint8_t *out);
tutti_status tutti_codec_huffman_decode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                        const tutti_view *v, const uint8_t *in, size_t bytes,
                                        float a, float *y, tutti_error *err);

/* ---- sparse.c: index and value lists; topk and threshold ---- */
/* The struct of a codec that sends them begins with this. */
typedef struct tutti_codec_sparse { int value, index; } tutti_codec_sparse;
/* k elements of n always take bound(n, k) bytes */
bool tutti_codec_sparse_is_fixed(const tutti_codec_sparse *s);
/* values travel as they are */
bool tutti_codec_sparse_is_exact(const tutti_codec_sparse *s);
size_t tutti_codec_sparse_bound(const tutti_codec_sparse *s, size_t n, size_t k);
/* gives the bytes written */
size_t tutti_codec_sparse_put(const tutti_codec *c, const tutti_codec_sparse *s, size_t n, size_t k,
                              const uint32_t *index, const float *value, uint8_t *out);
/* k of v->count elements: indexes ascend and are below v->count. */
tutti_status tutti_codec_sparse_add(const tutti_codec *c, const tutti_codec_sparse *s,
                                    const tutti_view *v, size_t k, const uint8_t *in, size_t bytes,
                                    float a, float *y, tutti_error *err);
/* mark[i] = 1 for each index of a message that tutti_codec_sparse_add takes. */
void tutti_codec_sparse_places(const tutti_codec_sparse *s, const tutti_view *v, size_t k,
                               const uint8_t *in, size_t bytes, uint8_t *mark);
/* Checks k indexes of four bytes, where the bits of `mask` are the index: ascending and below
   v->count. `of`: "kept" for the sentence. */
tutti_status tutti_codec_sparse_check(const tutti_codec *c, const tutti_view *v, size_t k,
                                      const uint8_t *in, uint32_t mask, const char *of,
                                      tutti_error *err);

/* ---- orthogonal.c ---- */
/* Scales by a power of two, so that nothing is rounded, to a norm in [1, 2), and gives the norm's
   square; 0: all zero; not finite: nothing done. */
double tutti_codec_to_unit(tutti_device *d, size_t n, float *p);
/* The columns [from, to) of n elements, to <= n, become orthonormal, and orthogonal to those
   before `from`, which are orthonormal. A column that depends on those before it (or is 0) is
   replaced by one drawn from rng: the same on all workers. NaN and infinity make every column from
   theirs on NaN. */
void tutti_codec_orthonormalise(tutti_device *d, size_t n, size_t from, size_t to,
                                float *const *column, tutti_rng rng);
#endif
