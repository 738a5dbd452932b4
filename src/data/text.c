/* text.c: a text as a data set. The file is mapped: the bytes of a text are its tokens, and a token
   file has a list of them. The block that ranks share has only data_facts. The rank that fills it
   reads the whole file once, to check it and to compute its hash.

     |<------------------ training, [0, cut) ----------------->|<--- validation, [cut, n) --->|
     |context|+1
        |context|+1                                              cut = floor(n (1 - val))

     windows begin every `stride` tokens; stride 0: every `context`

   A sample is a window of context + 1 tokens: all but the last are the input, and all but the first
   are to be predicted. Windows that begin every `context` tokens use every token once in an epoch;
   with stride=1 a window begins at every token. The validation windows of moby-dick are those of
   the comparison with PyTorch (bench/peers): 16, every 3000 bytes. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <inttypes.h>
#include <string.h>

#include "data_internal.h"

#define AT(member) TUTTI_AT(tutti_data_windows, member)
#define WINDOWS \
    { "context", TUTTI_INT, AT(context), 128, 1, 1 << 20, NULL, "tokens of a sample" }, \
    { "stride", TUTTI_INT, AT(stride), 0, 0, 1e15, NULL, \
      "tokens from the beginning of a training window to that of the next; 0: context" }, \
    { "val", TUTTI_REAL, AT(val), 0.05, 1e-6, 0.9, NULL, \
      "share of the text, at its end, that is kept for validation" }
#define VALIDATION(windows, stride) \
    { "val_windows", TUTTI_INT, AT(val_windows), windows, 0, 1e15, NULL, \
      "windows of the validation part that are used; 0: all" }, \
    { "val_stride", TUTTI_INT, AT(val_stride), stride, 0, 1e15, NULL, \
      "tokens from one of them to the next; 0: context" }
const tutti_option tutti_data_text_options[] = {
    { "file", TUTTI_TEXT, AT(file), 0, 0, 0, "", "where it is" }, WINDOWS, VALIDATION(0, 0), { 0 }
};
const tutti_option tutti_data_moby_dick_options[] = { WINDOWS, VALIDATION(16, 3000), { 0 } };

static tutti_status open_ids(tutti_data *d, bool tokens, uint64_t *count, tutti_error *err)
{
    *count = 0;
    if (tokens) {
        TUTTI_TRY(tutti_tokens_open(&d->text.tokens, d->rt, d->text.path, err));
        d->text.ids = d->text.tokens.ids;
        d->text.id_bytes = d->text.tokens.id_bytes;
        *count = d->text.tokens.count;
        d->shape.classes =
            d->text.tokens.vocabulary > INT_MAX ? INT_MAX : (int)d->text.tokens.vocabulary;
    } else {
        TUTTI_TRY(tutti_contents_open(&d->text.contents, d->rt, d->text.path, err));
        d->text.ids = d->text.contents.at;
        d->text.id_bytes = 1;
        *count = d->text.contents.bytes;
        d->shape.classes = 256;
    }
    if (*count == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%s' is empty; give a text", d->text.path);
    return TUTTI_OK;
}

/* Returns how many windows of `window` tokens, one every `stride` tokens, n tokens have. */
static uint64_t windows_in(uint64_t n, uint64_t window, uint64_t stride)
{
    return n < window ? 0 : (n - window) / stride + 1;
}

static tutti_status place_windows(tutti_data *d, uint64_t count, const tutti_data_windows *how,
                                  tutti_error *err)
{
    const uint64_t window = (uint64_t)how->context + 1,
                   cut = (uint64_t)((double)count * (1 - how->val));

    d->text.first[TUTTI_TEST] = cut;
    d->text.stride[TUTTI_TRAIN] = (uint64_t)(how->stride > 0 ? how->stride : how->context);
    d->text.stride[TUTTI_TEST] = (uint64_t)(how->val_stride > 0 ? how->val_stride : how->context);
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const uint64_t n = split == TUTTI_TRAIN ? cut : count - cut;
        d->shape.samples[split] = windows_in(n, window, d->text.stride[split]);
        if (d->shape.samples[split] == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%s' has %" PRIu64 " tokens, %" PRIu64
                              " of them for %s; a window of context %lld needs %" PRIu64
                              ": give a smaller context, a longer text or another val",
                              d->text.path, count, n,
                              split == TUTTI_TRAIN ? "training" : "validation",
                              (long long)how->context, window);
    }
    if (how->val_windows > 0 && d->shape.samples[TUTTI_TEST] < (uint64_t)how->val_windows)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%s' has %" PRIu64 " tokens for validation, enough for %" PRIu64
            " windows of context %lld every %" PRIu64 " tokens, but val_windows is %lld; "
            "give fewer, a smaller val_stride or a larger val",
            d->text.path, count - cut, d->shape.samples[TUTTI_TEST], (long long)how->context,
            d->text.stride[TUTTI_TEST], (long long)how->val_windows);
    if (how->val_windows > 0)
        d->shape.samples[TUTTI_TEST] = (uint64_t)how->val_windows;
    return TUTTI_OK;
}

tutti_status tutti_data_text_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                  bool tokens, const tutti_data_windows *how, tutti_error *err)
{
    tutti_data *d = tutti_alloc(1, sizeof *d);
    uint64_t count;
    tutti_status status;

    *out = NULL;
    if (d != NULL)
        d->text.path = tutti_copy_text(path);
    if (d == NULL || d->text.path == NULL) {
        tutti_free(d);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the text '%s'", path);
    }
    d->rt = rt;
    d->shape = (tutti_data_shape){ .channels = 1,
                                   .height = 1,
                                   .width = (int)how->context,
                                   .context = (int)how->context,
                                   .bytes = DATA_ALIGNMENT,
                                   .deviation = 1 };
    d->pixels = (size_t)how->context;
    status = open_ids(d, tokens, &count, err);
    if (status == TUTTI_OK)
        status = place_windows(d, count, how, err);
    if (status == TUTTI_OK)
        *out = d;
    else
        tutti_data_close(d);
    return status;
}

uint64_t tutti_data_encoding(const tutti_data *data)
{
    return data->text.tokens.made_by;
}

void tutti_data_text_close(tutti_data *d)
{
    tutti_tokens_close(&d->text.tokens);
    tutti_contents_close(&d->text.contents);
    tutti_free(d->text.path);
    d->text.path = NULL;
}

tutti_status tutti_data_text_fill(tutti_data *d, uint8_t *block, tutti_error *err)
{
    data_facts *f = (data_facts *)(void *)block;
    const bool tokens = d->text.id_bytes > 1;
    uint64_t parts[8] = { d->shape.samples[0],        d->shape.samples[1],
                          (uint64_t)d->shape.context, (uint64_t)d->shape.classes,
                          d->text.first[TUTTI_TEST],  d->text.stride[TUTTI_TRAIN],
                          d->text.stride[TUTTI_TEST], 0 };

    if (tokens) {
        TUTTI_TRY(tutti_tokens_verify(&d->text.tokens, d->text.path, err));
        parts[7] = d->text.tokens.hash;
    } else {
        const uint64_t bytes = d->text.contents.bytes,
                       valid = tutti_utf8_valid(d->text.contents.at, bytes);
        if (valid < bytes)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' is no text in UTF-8: byte %" PRIu64
                              " (0x%02x) is not part of a character; convert it, or take any bytes "
                              "through `tutti data tokens`",
                              d->text.path, valid, d->text.contents.at[valid]);
        parts[7] = tutti_hash(d->text.contents.at, (size_t)bytes);
    }
    f->classes = d->shape.classes;
    f->deviation = 1;
    f->hash = tutti_hash(parts, sizeof parts);
    return TUTTI_OK;
}

/* Each token is read once and written to both lists, but for the ends of the window. */
#define COPY_WINDOW(type) do { \
        const type *from = (const type *)data->text.ids + at; \
        for (size_t k = 0; k < context; k++) \
            to[k] = from[k]; \
        for (size_t k = 0; k < context; k++) \
            after[k] = from[k + 1]; \
    } while (0)

void tutti_data_gather_tokens(const tutti_data *data, tutti_split split, const uint64_t *ids,
                              size_t n, uint32_t *tokens, uint32_t *next)
{
    const size_t context = (size_t)data->shape.context;

    assert(data->block != NULL && data->text.path != NULL);
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = data->text.first[split] + ids[i] * data->text.stride[split];
        uint32_t *restrict to = tokens + i * context, *restrict after = next + i * context;
        assert(ids[i] < data->shape.samples[split]);
        if (data->text.id_bytes == 1)
            COPY_WINDOW(uint8_t);
        else if (data->text.id_bytes == 2)
            COPY_WINDOW(uint16_t);
        else
            COPY_WINDOW(uint32_t);
    }
}
