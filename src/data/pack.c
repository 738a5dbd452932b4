/* pack.c: samples as bytes (data.h), by which one worker sends them to another. The bytes are those
   of the set and not the network's input: pixels are four times shorter than their floats, and the
   drift of a problem is added where the sample is used. Received samples are checked like a file,
   since a peer is not trusted. */
#include "data_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Returns the bytes of a sample without its label. */
static size_t body_bytes(const tutti_data *d)
{
    if (d->text.path != NULL)
        return ((size_t)d->shape.context + 1) * (size_t)d->text.id_bytes;
    if (d->clicks.path != NULL)
        return d->pixels * sizeof(float) + (size_t)d->shape.tables * sizeof(uint32_t);
    return d->pixels * (size_t)d->shape.value_bytes;
}

size_t tutti_data_sample_bytes(const tutti_data *data)
{
    return body_bytes(data) + (data->text.path == NULL ? 1 : 0);
}

void tutti_data_pack(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                     uint8_t *out)
{
    const tutti_data *d = data;
    const uint8_t *x = d->block + d->parts[split][DATA_X].offset,
                  *labels = d->block + d->parts[split][DATA_LABELS].offset;
    const size_t body = body_bytes(d), of_x = d->pixels * (size_t)d->shape.value_bytes;

    assert(d->block != NULL);
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] < d->shape.samples[split]);
        if (d->text.path != NULL) {
            const uint64_t at = d->text.first[split] + ids[i] * d->text.stride[split];
            memcpy(out, (const uint8_t *)d->text.ids + at * (size_t)d->text.id_bytes, body);
            out += body;
            continue;
        }
        memcpy(out, x + ids[i] * of_x, of_x);
        if (d->clicks.path != NULL)
            memcpy(out + of_x, d->block + d->clicks.rows[split] + ids[i] * (body - of_x),
                   body - of_x);
        out[body] = labels[ids[i]];
        out += body + 1;
    }
}

static tutti_status wrong(size_t i, const char *what, size_t value, size_t bound, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "sample %zu of those that came has %s %zu, and they are below %zu; do all "
                      "workers have the same data set?",
                      i, what, value, bound);
}

static tutti_status unpack_tokens(const tutti_data *d, const uint8_t *in, size_t i,
                                  uint32_t *tokens, uint32_t *next, tutti_error *err)
{
    const size_t context = (size_t)d->shape.context, bytes = (size_t)d->text.id_bytes;

    for (size_t k = 0; k <= context; k++) {
        uint32_t token = 0;
        for (size_t b = 0; b < bytes; b++)
            token |= (uint32_t)in[k * bytes + b] << 8 * b;
        if (token >= (uint32_t)d->shape.classes)
            return wrong(i, "token", token, (size_t)d->shape.classes, err);
        if (k < context)
            tokens[i * context + k] = token;
        if (k > 0)
            next[i * context + k - 1] = token;
    }
    return TUTTI_OK;
}

static tutti_status unpack_floats(const tutti_data *d, const uint8_t *in, size_t i, float *x,
                                  tutti_error *err)
{
    memcpy(x, in, d->pixels * sizeof *x);
    for (size_t k = 0; k < d->pixels; k++)
        if (!isfinite(x[k]))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "sample %zu of those that came has %g as its value %zu", i,
                              (double)x[k], k);
    return TUTTI_OK;
}

tutti_status tutti_data_unpack(const tutti_data *data, const uint8_t *in, size_t n, uint64_t step,
                               const tutti_data_buffers *room, tutti_error *err)
{
    const tutti_data *d = data;
    const size_t body = body_bytes(d), pixels = d->pixels;

    assert(d->block != NULL);
    for (size_t i = 0; i < n; i++, in += tutti_data_sample_bytes(d)) {
        if (d->text.path != NULL) {
            TUTTI_TRY(unpack_tokens(d, in, i, room->tokens, room->next, err));
            continue;
        }
        if (in[body] >= d->shape.classes)
            return wrong(i, "label", in[body], (size_t)d->shape.classes, err);
        room->labels[i] = in[body];
        if (d->shape.value_bytes == 1) {
            for (size_t k = 0; k < pixels; k++)
                room->x[i * pixels + k] = d->table[in[k]];
            continue;
        }
        TUTTI_TRY(unpack_floats(d, in, i, room->x + i * pixels, err));
        if (d->clicks.path != NULL) {
            const size_t tables = (size_t)d->shape.tables;
            memcpy(room->rows + i * tables, in + pixels * sizeof(float),
                   tables * sizeof *room->rows);
            for (size_t t = 0; t < tables; t++)
                if (room->rows[i * tables + t] >= d->shape.rows)
                    return wrong(i, "row", room->rows[i * tables + t], d->shape.rows, err);
        } else if (d->problem.kind != TUTTI_PROBLEM_NONE)
            tutti_data_problem_move(d, step, room->x + i * pixels, 1);
    }
    return TUTTI_OK;
}
