/* clicklog.c: a click log as a data set. It is parsed once, by the rank that fills the block, into
   the input of a network, so that a batch is only copied. The block is that of dataset.c, with for
   each split values (samples x 13 floats), labels, and row numbers (samples x 26 of 4 bytes), each
   at a multiple of 64. The last part of the lines, option `val`, is the test split: a log is in the
   order of time, and clicks of later days are to be predicted.

   A missing integer must not look like a small one, so it becomes the mean of its field, which
   carries no information. Mean and deviation are computed over the training split, in double, in
   the order of the lines. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data_internal.h"
#include "data/clicks.h"

#define AT(member) TUTTI_AT(tutti_data_clicks, member)
const tutti_option tutti_data_clicks_options[] = {
    { "file", TUTTI_TEXT, AT(file), 0, 0, 0, "", "where it is" },
    { "rows", TUTTI_INT, AT(rows), 100000, 2, 4294967295.0, NULL,
      "rows of each of the 26 tables that categories are hashed to" },
    { "val", TUTTI_REAL, AT(val), 0.1, 1e-6, 0.9, NULL,
      "share of the log, at its end, that is kept for testing" },
    { 0 }
};

static uint64_t lines_of(const tutti_contents *c)
{
    uint64_t lines = 0;

    for (uint64_t at = 0; at < c->bytes; lines++) {
        const uint8_t *end = memchr(c->at + at, '\n', (size_t)(c->bytes - at));
        at = end != NULL ? (uint64_t)(end - c->at) + 1 : c->bytes;
    }
    return lines;
}

static tutti_status place_lines(tutti_data *d, const tutti_data_clicks *how, tutti_error *err)
{
    const uint64_t lines = lines_of(&d->clicks.contents),
                   train = (uint64_t)((double)lines * (1 - how->val));
    size_t total = DATA_ALIGNMENT, values;

    if (lines == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%s' is empty; give a click log",
                          d->clicks.path);
    if (train == 0 || train == lines)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' has %" PRIu64 " clicks; val=%g leaves %" PRIu64
                          " for training and %" PRIu64 " for testing; both need at least one",
                          d->clicks.path, lines, how->val, train, lines - train);
    d->shape.samples[TUTTI_TRAIN] = train;
    d->shape.samples[TUTTI_TEST] = lines - train;
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const uint64_t n = d->shape.samples[split];
        if (!tutti_size_mul((size_t)n, TUTTI_CLICKS_CATEGORIES * sizeof(uint32_t), &values) ||
            !tutti_data_place(&total, n * TUTTI_CLICKS_INTEGERS * sizeof(float),
                              &d->parts[split][DATA_X].offset) ||
            !tutti_data_place(&total, n, &d->parts[split][DATA_LABELS].offset) ||
            !tutti_data_place(&total, values, &d->clicks.rows[split]))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%s' has %" PRIu64 " clicks, more than fit in memory",
                              d->clicks.path, lines);
    }
    d->shape.bytes = total;
    return TUTTI_OK;
}

tutti_status tutti_data_clicks_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                    const tutti_data_clicks *how, tutti_error *err)
{
    tutti_data *d = tutti_alloc(1, sizeof *d);
    tutti_status status;

    *out = NULL;
    if (d != NULL)
        d->clicks.path = tutti_copy_text(path);
    if (d == NULL || d->clicks.path == NULL) {
        tutti_free(d);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the click log '%s'", path);
    }
    d->rt = rt;
    d->pixels = TUTTI_CLICKS_INTEGERS;
    d->shape = (tutti_data_shape){ .channels = 1,
                                   .height = 1,
                                   .width = TUTTI_CLICKS_INTEGERS,
                                   .value_bytes = (int)sizeof(float),
                                   .tables = TUTTI_CLICKS_CATEGORIES,
                                   .rows = (uint32_t)how->rows,
                                   .classes = 2,
                                   .deviation = 1 };
    status = tutti_contents_open(&d->clicks.contents, rt, path, err);
    if (status == TUTTI_OK)
        status = place_lines(d, how, err);
    if (status == TUTTI_OK)
        *out = d;
    else
        tutti_data_close(d);
    return status;
}

void tutti_data_clicks_close(tutti_data *d)
{
    tutti_contents_close(&d->clicks.contents);
    tutti_free(d->clicks.path);
    d->clicks.path = NULL;
}

/* Standardises the values of each field. Before, a missing one is NaN. */
static void standardise(tutti_data *d, uint8_t *block)
{
    const uint64_t n = d->shape.samples[TUTTI_TRAIN];
    const float *train =
        (const float *)(const void *)(block + d->parts[TUTTI_TRAIN][DATA_X].offset);

    for (int k = 0; k < TUTTI_CLICKS_INTEGERS; k++) {
        double sum = 0, square = 0, there = 0, mean, deviation;
        for (uint64_t i = 0; i < n; i++) {
            const double x = (double)train[i * TUTTI_CLICKS_INTEGERS + (uint64_t)k];
            there += !isnan(x);
            sum += isnan(x) ? 0 : x;
        }
        mean = there > 0 ? sum / there : 0;
        for (uint64_t i = 0; i < n; i++) {
            const double x = (double)train[i * TUTTI_CLICKS_INTEGERS + (uint64_t)k];
            square += isnan(x) ? 0 : (x - mean) * (x - mean);
        }
        deviation = square > 0 ? sqrt(square / there) : 1;
        for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
            float *x = (float *)(void *)(block + d->parts[split][DATA_X].offset) + k;
            for (uint64_t i = 0; i < d->shape.samples[split]; i++, x += TUTTI_CLICKS_INTEGERS)
                *x = isnan(*x) ? 0 : (float)(((double)*x - mean) / deviation);
        }
    }
}

tutti_status tutti_data_clicks_fill(tutti_data *d, uint8_t *block, tutti_error *err)
{
    const tutti_contents *c = &d->clicks.contents;
    data_facts *f = (data_facts *)(void *)block;
    uint64_t at = 0, line = 0;

    memset(block, 0, (size_t)d->shape.bytes); /* the hash goes over the gaps too */
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        float *x = (float *)(void *)(block + d->parts[split][DATA_X].offset);
        uint32_t *rows = (uint32_t *)(void *)(block + d->clicks.rows[split]);
        for (uint64_t i = 0; i < d->shape.samples[split]; i++) {
            tutti_click click;
            size_t used;
            if (at == c->bytes)
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "'%s' was changed since it was opened; start again",
                                  d->clicks.path);
            TUTTI_TRY(tutti_click_parse(&click, &(tutti_click_place){ d->clicks.path, ++line },
                                        c->at + at, c->bytes - at, &used, err));
            at += used;
            block[d->parts[split][DATA_LABELS].offset + i] = click.label;
            for (int k = 0; k < TUTTI_CLICKS_INTEGERS; k++)
                *x++ = click.has >> k & 1 ? tutti_click_integer(&click, k) : NAN;
            for (int k = 0; k < TUTTI_CLICKS_CATEGORIES; k++)
                *rows++ = tutti_click_row(&click, k, d->shape.rows);
        }
    }
    standardise(d, block);
    f->classes = 2;
    f->deviation = 1;
    f->hash = tutti_data_hash_block(d, block) ^ d->shape.rows;
    return TUTTI_OK;
}

void tutti_data_clicks_gather(const tutti_data *d, tutti_split split, const uint64_t *ids, size_t n,
                              float *x, uint8_t *labels)
{
    const float *all = (const float *)(const void *)(d->block + d->parts[split][DATA_X].offset);

    for (size_t i = 0; i < n; i++) {
        assert(ids[i] < d->shape.samples[split]);
        memcpy(x + i * d->pixels, all + ids[i] * d->pixels, d->pixels * sizeof *x);
        labels[i] = d->block[d->parts[split][DATA_LABELS].offset + ids[i]];
    }
}

void tutti_data_gather_rows(const tutti_data *data, tutti_split split, const uint64_t *ids,
                            size_t n, uint32_t *rows)
{
    const uint32_t *all = (const uint32_t *)(const void *)(data->block + data->clicks.rows[split]);

    assert(data->block != NULL && data->clicks.path != NULL);
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] < data->shape.samples[split]);
        memcpy(rows + i * TUTTI_CLICKS_CATEGORIES, all + ids[i] * TUTTI_CLICKS_CATEGORIES,
               TUTTI_CLICKS_CATEGORIES * sizeof *rows);
    }
}
