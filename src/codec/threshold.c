/* threshold.c: codec threshold: the elements of at least a given magnitude. Aji and Heafield,
   EMNLP 2017 (with their threshold fixed). An element takes 8 bytes. The number of elements
   follows from the size of the message, or, if index_code is not int32, is in its first four
   bytes. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"

enum { INT32 }; /* of index_code */

typedef struct threshold { tutti_codec_sparse list; double value; } threshold;
static const tutti_option options[] = {
    { "value", TUTTI_REAL, TUTTI_AT(threshold, value), 0.001, 1e-30, 1e30, NULL,
      "least magnitude that is sent" },
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(tutti_codec_sparse, value), NULL),
    TUTTI_ROW_INDEX_CODE(TUTTI_AT(tutti_codec_sparse, index), NULL),
    { 0 }
};

/* Bytes of the count: 0 with indexes of four bytes, where the message's size gives it. */
static size_t prefix(const tutti_codec *c)
{
    return ((const threshold *)c->self)->list.index == INT32 ? 0 : 4;
}

static unsigned threshold_traits(const tutti_codec *c)
{
    (void)c;
    return 0; /* it may send nothing */
}

static size_t room(const tutti_codec *c, const tutti_view *v)
{
    (void)c;
    return 8 * v->count;
}

/* Whatever is sent: of indexes that are shorter where few are, or where many are, both ends. */
static size_t threshold_bound(const tutti_codec *c, const tutti_view *v)
{
    const threshold *s = c->self;
    const size_t all = tutti_codec_sparse_bound(&s->list, v->count, v->count);

    return prefix(c) + all + (s->list.index == INT32 ? 0 : (v->count + 3) / 4);
}

static size_t threshold_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                               uint8_t *out)
{
    const threshold *s = c->self;
    uint32_t *index = scratch;
    float *value = (float *)scratch + v->count;
    const size_t k =
        tutti_select_above(c->space->device, v->count, x, tutti_magnitude_key((float)s->value),
                           v->count, index, value);

    if (prefix(c) > 0)
        tutti_codec_put_u32(out, (uint32_t)k);
    return prefix(c) +
           tutti_codec_sparse_put(c, &s->list, v->count, k, index, value, out + prefix(c));
}

/* The number of elements of a message. */
static size_t k_of(const tutti_codec *c, const uint8_t *in, size_t bytes)
{
    const threshold *s = c->self;
    const size_t head = prefix(c);

    return head == 0       ? bytes / tutti_codec_sparse_bound(&s->list, 32, 1)
           : bytes >= head ? tutti_codec_get_u32(in)
                           : 0;
}

static void places(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                   uint8_t *mark)
{
    tutti_codec_sparse_places(&((const threshold *)c->self)->list, v, k_of(c, in, bytes),
                              in + prefix(c), bytes - prefix(c), mark);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const threshold *s = c->self;
    const size_t head = prefix(c), one = tutti_codec_sparse_bound(&s->list, 32, 1),
                 k = k_of(c, in, bytes);

    if ((head == 0 && bytes % one != 0) || bytes < head || k > v->count)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec 'threshold': a message of %zu bytes for %zu elements; it should "
                          "be %s%zu%s; do both workers run the same codec?",
                          bytes, v->count, head == 0 ? "a multiple of " : "at least ",
                          head == 0 ? one : head,
                          head == 0 ? " and have no more" : " and say no more");
    return tutti_codec_sparse_add(c, &s->list, v, k, in + head, bytes - head, a, y, err);
}

const tutti_codec_ops tutti_codec_threshold = {
    .name = "threshold",
    .paper = "Aji and Heafield, EMNLP 2017",
    .help = "the elements of at least a given magnitude",
    .options = options,
    .self_bytes = sizeof(threshold),
    .traits = threshold_traits,
    .scratch = room,
    .bound = threshold_bound,
    .encode = threshold_encode,
    .decode_add = decode_add,
    .places = places,
};
