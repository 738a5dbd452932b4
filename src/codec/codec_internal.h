/* codec_internal.h: what the codecs use in common. Included by the files of src/codec only. Each
   section names the file that implements it.

   All functions on messages are pure except for a codec's declared state, as codec.h demands: any
   thread; they do not block or allocate. Sizes are in bytes, counts in elements.
   TUTTI_ERR_CORRUPT: a message is not one that an encoder makes. */
#ifndef TUTTI_CODEC_INTERNAL_H
#define TUTTI_CODEC_INTERNAL_H
#include <tutti/codec.h>
#include "codec.h"
#include "kernels/codes.h"
#include <math.h>
#include <string.h>

/* ---- table.c ---- */
/* Checks that a codec's table has the functions that its form needs. TUTTI_ERR_STATE names a
   missing one. */
tutti_status tutti_codec_check_table(const tutti_codec_ops *ops, tutti_error *err);
/* The same for the traits that an opened codec has (TUTTI_CODEC_JOINT). */
tutti_status tutti_codec_check_mean(const tutti_codec_ops *ops, unsigned traits, tutti_error *err);

/* ---- numbers in messages: four bytes, little-endian, at any address ---- */
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

/* ---- random numbers (common.c) ---- */
/* Returns the generator for this view's step and stage: this worker's own, or, with `shared`, the
   same on all workers. Its stream differs from those that other modules number 0, 1, 2, ... */
tutti_rng tutti_codec_rng(const tutti_codec *c, const tutti_view *v, bool shared);
/* TUTTI_CODEC_BLOCK: elements that codecs process at a time, a multiple of 8. TUTTI_CODEC_DRAWS:
   size of a buffer for their draws. */
enum { TUTTI_CODEC_BLOCK = 1536, TUTTI_CODEC_DRAWS = TUTTI_CODEC_BLOCK + TUTTI_DRAWS };
/* Draws a 16-bit number for each of the elements [at, at + count) of the flat space; count is at
   most TUTTI_CODEC_BLOCK. Writes to the caller's buffer, and returns the address of the first
   number in it. */
const uint16_t *tutti_codec_draws(const tutti_codec *c, tutti_rng rng, uint64_t at, size_t count,
                                  uint16_t room[TUTTI_CODEC_DRAWS]);
/* The state of tutti_codec_word: the group of draws that was made last. */
typedef struct tutti_codec_words {
    tutti_rng rng;
    uint64_t group;              /* UINT64_MAX at first: none */
    uint16_t draws[TUTTI_DRAWS];
} tutti_codec_words;
/* Returns 32 random bits for element `at`. They are two of the 16-bit draws of the same generator,
   so a group has half as many. Fastest for ascending `at`. */
uint32_t tutti_codec_word(const tutti_codec *c, tutti_codec_words *held, uint64_t at);

/* ---- states (common.c) ---- */
/* Declares the state "<prefix>.<name>", a float for each element of the flat space; *slot receives
   its address when the plan is carried out. */
void tutti_codec_declare_vector(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                float **slot);
/* What a worker keeps of the gradients that it encodes, as a residual. */
typedef struct tutti_codec_own {
    float *at;                   /* declared, [count]; NULL: none */
    size_t count;
    size_t stride;               /* from a logical share's to the next; 0: it is the worker's */
} tutti_codec_own;
/* Declares it: a vector of the flat space, kept as `keep`; or where the plan has logical shares one
   for each of this worker's, which goes where the share goes. */
void tutti_codec_declare_own(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                             tutti_codec_own *own);
/* Returns the elements of a view of stage 0 or below, of its share; NULL: there are none. */
static inline float *tutti_codec_own_of(const tutti_codec_own *own, const tutti_view *v)
{
    return own->at == NULL ? NULL : own->at + (size_t)-v->stage * own->stride + v->first;
}
/* Declare likewise states that do not correspond to the flat space: `count` floats, `count` bytes,
   or a value that is part of c->self. */
void tutti_codec_declare_floats(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                size_t count, float **slot);
void tutti_codec_declare_bytes(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               size_t count, uint8_t **slot);
void tutti_codec_declare_value(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               void *value, size_t bytes);

/* For wrappers with error feedback: checks that c->inner[0] has none itself, makes no vote, is not
   unbiased without being contractive, and has the traits `needed`. TUTTI_ERR_USAGE. (common.c) */
tutti_status tutti_codec_check_fed(const tutti_codec *c, unsigned needed, tutti_error *err);

/* Returns ceil(ratio n), at least 1 and at most n; 0 if n is 0. A rounding error of the product
   does not count: 0.07 of 100 is 7, not 8. (common.c) */
size_t tutti_codec_fraction(double ratio, size_t n);
/* Makes and returns the error TUTTI_ERR_CORRUPT of a message of `bytes` bytes that should have
   `wanted`. (common.c) */
tutti_status tutti_codec_wrong_size(const tutti_codec *c, const tutti_view *v, size_t bytes,
                                    size_t wanted, tutti_error *err);

/* ---- quantised.c: for the codecs int8, qsgd, nuqsgd, alq and amq, whose messages have buckets
   with a scale and a code of a few bits for each element ---- */
/* How codes are written: with a fixed width, or in a code of variable length. */
typedef enum {
    TUTTI_CODEC_PLAIN,
    TUTTI_CODEC_HUFFMAN,
    TUTTI_CODEC_GAMMA,
    TUTTI_CODEC_OMEGA
} tutti_codec_coding;
/* The first member of the struct (c->self) of each of these codecs. Options write bits, steps,
   bucket, l2, coding and tail; `declare` writes the rest. */
typedef struct tutti_codec_quantiser {
    int64_t bits;                /* of a code, 2 to 8 */
    int64_t steps;               /* with TUTTI_GRID_EVEN: the number of levels above 0; 0: as many
                                    as `bits` hold. Read it by tutti_codec_steps */
    int64_t bucket;              /* elements of a bucket; a multiple of 8 */
    int l2;                      /* the scale of a bucket: 1: its 2-norm; 0: its greatest
                                    magnitude */
    int coding;                  /* a tutti_codec_coding */
    tutti_grid grid;             /* where the levels are */
    bool nearest;                /* rounds to the nearest level, not at random; TUTTI_GRID_EVEN
                                    only */
    const tutti_levels *levels;  /* with TUTTI_GRID_ANY: the levels; valid from `open` on */
    int tail;                    /* what is sent of a tensor's last elements if they do not fill a
                                    bucket: see below */
} tutti_codec_quantiser;
/* tail. SHORT: a bucket of fewer elements; DENSE: float32 numbers. */
enum { TUTTI_CODEC_SHORT, TUTTI_CODEC_DENSE };
/* Returns the number of levels above 0 of a grid that is even. */
static inline int tutti_codec_steps(const tutti_codec_quantiser *q)
{
    return q->steps > 0 ? (int)q->steps : (1 << (q->bits - 1)) - 1;
}
/* The rows (rows.h) of the option tables of qsgd and nuqsgd that follow the row of `bits`. */
#define TUTTI_CODEC_QUANTISER_ROWS(bucket_first, norm_first) \
    TUTTI_ROW_BUCKET(TUTTI_AT(tutti_codec_quantiser, bucket), bucket_first), \
    TUTTI_ROW_NORM(TUTTI_AT(tutti_codec_quantiser, l2), norm_first), \
    TUTTI_ROW_CODING_ANY(TUTTI_AT(tutti_codec_quantiser, coding), "coding", "elias|omega"), \
    TUTTI_ROW_TAIL(TUTTI_AT(tutti_codec_quantiser, tail))
/* Functions of tutti_codec_ops for these codecs. A message of n elements with codes of fixed width
   has the scales, 4 ceil(n / bucket) bytes, and then the codes, ceil(n bits / 8) bytes; huffman.c
   and elias.c describe the others. With TUTTI_CODEC_DENSE n is without the tail, whose numbers
   follow. */
unsigned tutti_codec_quantised_traits(const tutti_codec *c);
tutti_status tutti_codec_quantised_check(const tutti_codec *c, tutti_error *err);
size_t tutti_codec_quantised_scratch(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_quantised_bound(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_quantised_encode(tutti_codec *c, const tutti_view *v, const float *x,
                                    void *scratch, uint8_t *out);
tutti_status tutti_codec_quantised_decode_add(tutti_codec *c, const tutti_view *v,
                                              const uint8_t *in, size_t bytes, float a, float *y,
                                              tutti_error *err);
/* Reports the figures "levels" and, unless `nearest`, "bound" (codec.h). */
void tutti_codec_quantised_report(const tutti_codec *c, const tutti_view *v, const float *x,
                                  const float *decoded, const tutti_codec_listener *listener);
#define TUTTI_CODEC_QUANTISED                                                             \
    .bound = tutti_codec_quantised_bound, .scratch = tutti_codec_quantised_scratch,       \
    .encode = tutti_codec_quantised_encode, .decode_add = tutti_codec_quantised_decode_add, \
    .report = tutti_codec_quantised_report
/* Parts of encoding and decoding, for huffman.c and elias.c. */
/* Returns the number of buckets of n elements. */
size_t tutti_codec_buckets(const tutti_codec_quantiser *q, size_t n);
/* Returns the scale of a bucket of `count` elements x; 0: all are 0; NaN: an element, or the
   2-norm, is not finite. */
float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x,
                               size_t count);
/* Writes the codes of the elements [at, at + count) of the view, which are x[count] and in one
   bucket with that scale; count is at most TUTTI_CODEC_BLOCK. */
void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q,
                              const tutti_view *v, const float *x, size_t at, size_t count,
                              float scale, uint8_t *codes);
/* Sets value[code] to a times the decoded value of each code in a bucket with that scale. */
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a,
                               float value[256]);
/* Returns whether an encoder may make this code. If there are fewer levels than `bits` hold, a
   damaged message may have other codes. */
static inline bool tutti_codec_code_is_valid(const tutti_codec_quantiser *q, int code)
{
    return q->grid != TUTTI_GRID_EVEN ||
           (code & ((1 << (q->bits - 1)) - 1)) <= tutti_codec_steps(q);
}
/* Returns whether an encoder may make this scale: NaN, or finite and not negative. */
bool tutti_codec_scale_is_valid(float scale);
/* Checks the n scales at the beginning of a message, four bytes each. of: what the error message
   calls what they belong to: "bucket", "block". */
tutti_status tutti_codec_check_scales(const tutti_codec *c, size_t n, const uint8_t *in,
                                      const char *of, tutti_error *err);

/* ---- writing bits one after the other, from the lowest bit of each byte on ---- */
typedef struct tutti_codec_writer {
    uint8_t *out;
    size_t bytes;                /* whole bytes written */
    uint64_t held;               /* the bits that do not fill a byte yet */
    int have;                    /* their number, 0 to 7 */
} tutti_codec_writer;
/* Writes the lowest `bits` bits of value; the higher ones must be 0. */
static inline void tutti_codec_write(tutti_codec_writer *w, uint32_t value, int bits)
{
    w->held |= (uint64_t)value << w->have;
    for (w->have += bits; w->have >= 8; w->have -= 8, w->held >>= 8)
        w->out[w->bytes++] = (uint8_t)w->held;
}
/* Fills the last byte with zeros. */
static inline void tutti_codec_write_end(tutti_codec_writer *w)
{
    tutti_codec_write(w, 0, (8 - w->have) % 8);
}

/* ---- elias.c: quantised codes as Elias gamma or omega codes ---- */
/* As bound, encode and decode_add of tutti_codec_ops, for a view without its tail. n: its
   elements. */
size_t tutti_codec_elias_bound(const tutti_codec_quantiser *q, size_t n);
size_t tutti_codec_elias_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                const tutti_view *v, const float *x, uint8_t *out);
tutti_status tutti_codec_elias_decode(const tutti_codec *c, const tutti_view *v,
                                      const tutti_codec_message *m, float a, float *y,
                                      tutti_error *err);
/* Returns the number of bits that the code of k, at least 1, has. */
int tutti_codec_elias_length(tutti_codec_coding code, uint32_t k);

/* ---- huffman.c: quantised codes as a canonical Huffman code ---- */
enum { TUTTI_CODEC_HUFFMAN_LONGEST = 12 }; /* the most bits of a word */
/* Sets length[symbols] to the word lengths of an optimal prefix code for the frequencies
   count[symbols]: 0 where the count is 0, at most TUTTI_CODEC_HUFFMAN_LONGEST. A single symbol has
   length 1. */
void tutti_codec_huffman_lengths(int symbols, const uint32_t *count, uint8_t *length);
/* As bound, encode and decode_add of tutti_codec_ops, for a view without its tail. n: its
   elements. codes: [v->count], scratch. */
size_t tutti_codec_huffman_bound(const tutti_codec_quantiser *q, size_t n);
size_t tutti_codec_huffman_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                  const tutti_view *v, const float *x, uint8_t *codes,
                                  uint8_t *out);
tutti_status tutti_codec_huffman_decode(const tutti_codec *c, const tutti_view *v,
                                        const tutti_codec_message *m, float a, float *y,
                                        tutti_error *err);

/* ---- sparse.c: lists of indexes and of values, for topk and threshold. k: number of elements
   sent of the n of a view ---- */
/* The first member of the struct (c->self) of these codecs: what the options value_dtype and
   index_code select (rows.h). */
typedef struct tutti_codec_sparse { int value, index; } tutti_codec_sparse;
/* Returns whether k of n elements always take tutti_codec_sparse_bound(s, n, k) bytes. */
bool tutti_codec_sparse_is_fixed(const tutti_codec_sparse *s);
/* Returns whether values are sent as float32, so that nothing is lost of them. */
bool tutti_codec_sparse_is_exact(const tutti_codec_sparse *s);
/* Returns the most bytes of k of n elements. */
size_t tutti_codec_sparse_bound(const tutti_codec_sparse *s, size_t n, size_t k);
/* Writes the elements with these ascending indexes [k] and values [k]. Returns the bytes
   written. */
size_t tutti_codec_sparse_put(const tutti_codec *c, const tutti_codec_sparse *s, size_t n, size_t k,
                              const uint32_t *index, const float *value, uint8_t *out);
/* Adds a times the k elements of the message to y[v->count], after it has checked the message:
   indexes ascend and are below v->count. */
tutti_status tutti_codec_sparse_add(const tutti_codec *c, const tutti_codec_sparse *s,
                                    const tutti_view *v, size_t k, const uint8_t *in, size_t bytes,
                                    float a, float *y, tutti_error *err);
/* Sets mark[i] to 1 for each index i of a message that tutti_codec_sparse_add accepts. */
void tutti_codec_sparse_places(const tutti_codec_sparse *s, const tutti_view *v, size_t k,
                               const uint8_t *in, size_t bytes, uint8_t *mark);
/* Checks k numbers of four bytes. In each, the bits of `mask` are an index; indexes ascend and
   are below v->count. of: what the error message calls these elements: "kept". */
tutti_status tutti_codec_sparse_check(const tutti_codec *c, const tutti_view *v, size_t k,
                                      const uint8_t *in, uint32_t mask, const char *of,
                                      tutti_error *err);

/* ---- orthogonal.c ---- */
/* Scales p[n] by a power of two, which rounds nothing, so that its 2-norm is in [1, 2). Returns
   the square of that norm; 0: all elements are 0; not finite: p is unchanged. */
double tutti_codec_to_unit(tutti_device *d, size_t n, float *p);
/* Makes the columns [from, to), each of n elements, orthonormal, and orthogonal to the columns
   before `from`, which must be orthonormal; to <= n. A column that is 0 or depends on those before
   it is replaced by one drawn from rng, the same on all workers. If a column has a NaN or
   infinity, it and all later columns become NaN. */
void tutti_codec_orthonormalise(tutti_device *d, size_t n, size_t from, size_t to,
                                float *const *column, tutti_rng rng);
#endif
