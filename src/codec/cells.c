/* cells.c: messages of the greatest elements of each cell (cells.h).

   Two bits a value (SparseLoCo's quantiser; Sarfi et al. 2025, arXiv 2508.15706): of all values x
   of a message, with their mean m and standard deviation s (unbiased),

     code   c = clamp(round((x - m) / (6 s / 4) + 2), 0, 3), a half to the even number
     level  l_c = the mean of the values with that code; 0: there are none

   and l_c is what code c is decoded to. The authors' code sends l_c - m and m, five numbers in
   place of four. Up to four values are the levels themselves: by the formula two values have one
   code always, and opposite ones would never arrive, whatever error feedback adds up. From three on
   some value is far enough from m, so a message keeps a part of any vector. A value that is not
   finite makes all levels NaN. Sums are of doubles in the order of the message, so bits are the
   same at each level of the kernels.

   mean=senders: an element of the mean is the mean of those workers that have sent it; a worker
   that has not does not count as 0. Such a mean is no sum of decoded messages, so it is made of all
   of them (`mean`), and goes to no single worker (TUTTI_CODEC_JOINT). Elements are added in the
   order of ranks, and turned back once. */
#include "cells.h"
#include "kernels/codes.h"

enum { SELECT_SLACK = 16, LEVELS = 4, LEVEL_BYTES = 4 * LEVELS };
#define A_NAN 0x7fc00000u
static const tutti_dtype value_types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

/* ---- cells ---- */

static size_t parts_of(size_t side, size_t chunk)
{
    return (side + chunk - 1) / chunk;
}

/* To the next cell of a view, row by row of cells; false: that was the last, and first and bit are
   those of all. */
static bool next_cell(const tutti_codec *c, const tutti_view *v, tutti_codec_cell *at)
{
    const tutti_codec_cells *s = c->self;
    const size_t chunk = (size_t)s->chunk, downs = parts_of(v->rows, chunk),
                 acrosses = parts_of(v->cols, chunk);

    if (at->h > 0) {
        at->first += at->k;
        at->bit += at->k * (size_t)at->bits;
        at->across++;
    }
    if (at->across == acrosses) {
        at->across = 0;
        at->down++;
    }
    if (v->count == 0 || at->down == downs)
        return false;
    at->row = at->down * v->rows / downs;
    at->h = (at->down + 1) * v->rows / downs - at->row;
    at->col = at->across * v->cols / acrosses;
    at->w = (at->across + 1) * v->cols / acrosses - at->col;
    at->k = at->h * at->w < (size_t)s->topk ? at->h * at->w : (size_t)s->topk;
    for (at->bits = 0; at->k < at->h * at->w && (size_t)1 << at->bits < at->h * at->w;)
        at->bits++;
    return true;
}

/* Elements, and bits of indexes, of a whole view. */
static tutti_codec_cell count_all(const tutti_codec *c, const tutti_view *v)
{
    tutti_codec_cell at = { 0 };

    while (next_cell(c, v, &at))
        ;
    return at;
}

/* Where element `index` of a cell is in the view. */
static size_t place_of(const tutti_view *v, const tutti_codec_cell *at, size_t index)
{
    return (at->row + index / at->w) * v->cols + at->col + index % at->w;
}

/* Bytes of the values of a message, before its indexes. */
static size_t value_bytes(const tutti_codec_cells *s, size_t values)
{
    if (s->value == TUTTI_CELLS_2BIT)
        return values == 0 ? 0 : LEVEL_BYTES + (2 * values + 7) / 8;
    return values * tutti_dtype_bytes(value_types[s->value]);
}

unsigned tutti_codec_cells_traits(const tutti_codec *c)
{
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_WHOLE_TENSOR | TUTTI_CODEC_FIXED |
           (((const tutti_codec_cells *)c->self)->mean == TUTTI_CELLS_SENDERS ? TUTTI_CODEC_JOINT
                                                                              : 0);
}

size_t tutti_codec_cells_bound(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec_cell all = count_all(c, v);

    return value_bytes(c->self, all.first) + (all.bit + 7) / 8;
}

/* ---- encoding ---- */

/* Elements of the largest cell, and of what selects from it. */
static size_t cell_elements(const tutti_codec *c, const tutti_view *v)
{
    const size_t chunk = (size_t)((const tutti_codec_cells *)c->self)->chunk;

    return (v->rows < chunk ? v->rows : chunk) * (v->cols < chunk ? v->cols : chunk);
}

/* A smaller cell may need a few places more than the largest. */
static size_t select_elements(const tutti_codec *c, const tutti_view *v)
{
    const size_t n = cell_elements(c, v), topk = (size_t)((const tutti_codec_cells *)c->self)->topk;

    return tutti_select_room(n, n < topk ? n : topk) + SELECT_SLACK;
}

/* What is selected from, and selected, of a cell; and all values. */
size_t tutti_codec_cells_scratch(const tutti_codec *c, const tutti_view *v)
{
    return sizeof(float) *
           (2 * (cell_elements(c, v) + select_elements(c, v)) + count_all(c, v).first);
}

/* Copies a cell, column after column for `turn`, else row after row. */
static void load_cell(const tutti_codec *c, const tutti_view *v, const tutti_codec_cell *at,
                      const float *x, float *block)
{
    const bool turned = ((const tutti_codec_cells *)c->self)->turn != NULL;

    for (size_t i = 0; i < at->h; i++)
        for (size_t j = 0; j < at->w; j++)
            block[turned ? j * at->h + i : i * at->w + j] =
                x[(at->row + i) * v->cols + at->col + j];
    tutti_device_charge(c->space->device, 0, 8.0 * (double)(at->h * at->w));
}

static void put_numbers(const tutti_codec *c, size_t k, const float *value, uint8_t *out)
{
    const tutti_codec_cells *s = c->self;
    tutti_device *d = c->space->device;
    uint16_t half[TUTTI_CODEC_BLOCK];

    for (size_t i = 0; i < k && s->value == TUTTI_CELLS_FP32; i++)
        tutti_codec_put_f32(out + 4 * i, value[i]);
    for (size_t at = 0, some; at < k && s->value != TUTTI_CELLS_FP32; at += some) {
        some = k - at < TUTTI_CODEC_BLOCK ? k - at : TUTTI_CODEC_BLOCK;
        tutti_cast(d, (tutti_buffer){ d, (void *)(uintptr_t)(value + at), some, TUTTI_F32 },
                   (tutti_buffer){ d, half, some, value_types[s->value] });
        for (size_t i = 0; i < some; i++) {
            out[2 * (at + i)] = (uint8_t)half[i];
            out[2 * (at + i) + 1] = (uint8_t)(half[i] >> 8);
        }
    }
}

/* width: 6 s / 4; 0: all values are equal. */
static unsigned code_of(double x, double mean, double width)
{
    const double t = width > 0 ? (x - mean) / width + 2 : 2;

    return t <= 0.5 ? 0 : t < 1.5 ? 1 : t <= 2.5 ? 2 : 3;
}

/* k is above 0. */
static void put_codes(const tutti_codec *c, size_t k, const float *value, uint8_t *out)
{
    tutti_codec_writer to = { .out = out + LEVEL_BYTES };
    double mean = 0, squares = 0, width = 0, sum[LEVELS] = { 0 };
    size_t count[LEVELS] = { 0 };

    for (size_t i = 0; i < k; i++)
        mean += (double)value[i];
    mean /= (double)k;
    for (size_t i = 0; i < k; i++)
        squares += ((double)value[i] - mean) * ((double)value[i] - mean);
    if (k > 1 || !isfinite(squares))
        width = 6 * sqrt(squares / (double)(k > 1 ? k - 1 : 1)) / 4;
    for (size_t i = 0; i < k; i++) {
        const unsigned code =
            k <= LEVELS ? (unsigned)i : code_of((double)value[i], mean, width);
        sum[code] += (double)value[i];
        count[code]++;
        tutti_codec_write(&to, code, 2);
    }
    tutti_codec_write_end(&to);
    for (int l = 0; l < LEVELS; l++)
        if (!isfinite(width))
            tutti_codec_put_u32(out + 4 * l, A_NAN);
        else
            tutti_codec_put_f32(out + 4 * l, count[l] > 0 ? (float)(sum[l] / (double)count[l]) : 0);
    tutti_device_charge(c->space->device, 8.0 * (double)k, 12.0 * (double)k);
}

size_t tutti_codec_cells_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                                uint8_t *out)
{
    const tutti_codec_cells *s = c->self;
    const size_t most = cell_elements(c, v), room = select_elements(c, v),
                 values = count_all(c, v).first, indexes = value_bytes(s, values);
    float *block = scratch, *work = block + most, *value = work + most, *all = value + 2 * room;
    uint32_t *index = (uint32_t *)(void *)(value + room);
    tutti_codec_writer to = { .out = out + indexes };
    tutti_codec_cell at = { 0 };

    while (next_cell(c, v, &at)) {
        load_cell(c, v, &at, x, block);
        tutti_select_top(c->space->device, at.h * at.w,
                         s->turn != NULL ? s->turn(c, &at, false, block, work) : block, at.k, index,
                         value);
        memcpy(all + at.first, value, at.k * sizeof *all);
        for (size_t i = 0; i < at.k && at.bits > 0; i++)
            tutti_codec_write(&to, index[i], at.bits);
    }
    tutti_codec_write_end(&to);
    if (s->value != TUTTI_CELLS_2BIT)
        put_numbers(c, values, all, out);
    else if (values > 0)
        put_codes(c, values, all, out);
    return indexes + to.bytes;
}

/* ---- decoding ---- */

/* The number of `bits` bits, up to 14, from bit `at` on. */
static uint32_t bits_at(const uint8_t *in, size_t at, int bits)
{
    uint32_t word = 0;

    for (size_t k = at / 8; 8 * k < at + (size_t)bits; k++)
        word |= (uint32_t)in[k] << 8 * (k - at / 8);
    return word >> at % 8 & ((1u << bits) - 1);
}

/* Are bits set in the last byte of these `bits` bits behind them? */
static bool goes_on(const uint8_t *in, size_t bits)
{
    return bits % 8 != 0 && in[bits / 8] >> bits % 8 != 0;
}

/* All levels are finite, or all are NaN; nothing is behind the codes. */
static tutti_status check_codes(const tutti_codec *c, const uint8_t *in, size_t values,
                                tutti_error *err)
{
    const bool first = isnan(tutti_codec_get_f32(in));

    for (int l = 0; l < LEVELS; l++) {
        const float level = tutti_codec_get_f32(in + 4 * l);
        if (isinf(level) || isnan(level) != first)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec '%s': level %d of %d is %g, and levels are finite, or all of "
                              "them nan; the message was damaged or is another codec's",
                              c->ops->name, l + 1, (int)LEVELS, (double)level);
    }
    if (goes_on(in + LEVEL_BYTES, 2 * values))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': bits are set behind the last of %zu codes; the message was "
                          "damaged or is another codec's", c->ops->name, values);
    return TUTTI_OK;
}

static tutti_status check_message(const tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                  size_t bytes, tutti_error *err)
{
    const tutti_codec_cells *s = c->self;
    const tutti_codec_cell all = count_all(c, v);
    const size_t values = value_bytes(s, all.first), wanted = values + (all.bit + 7) / 8;
    tutti_codec_cell at = { 0 };

    if (bytes != wanted)
        return tutti_codec_wrong_size(c, v, bytes, wanted, err);
    if (s->value == TUTTI_CELLS_2BIT && all.first > 0)
        TUTTI_TRY(check_codes(c, in, all.first, err));
    while (next_cell(c, v, &at))
        for (size_t i = 0, least = 0; i < at.k && at.bits > 0; i++) {
            const size_t index = bits_at(in + values, at.bit + i * (size_t)at.bits, at.bits);
            if (index < least || index >= at.h * at.w)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "codec '%s': index %zu of %zu of the cell at row %zu, column %zu "
                                  "is %zu, and it should be from %zu to %zu; the message was "
                                  "damaged or is another codec's",
                                  c->ops->name, i + 1, at.k, at.row, at.col, index, least,
                                  at.h * at.w - 1);
            least = index + 1;
        }
    if (goes_on(in + values, all.bit))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': bits are set behind the last of %zu indexes; the message "
                          "was damaged or is another codec's", c->ops->name, all.first);
    return TUTTI_OK;
}

static float value_at(const tutti_codec *c, const uint8_t *in, size_t i)
{
    const tutti_codec_cells *s = c->self;
    tutti_device *d = c->space->device;
    uint16_t half;
    float value;

    if (s->value == TUTTI_CELLS_FP32)
        return tutti_codec_get_f32(in + 4 * i);
    if (s->value == TUTTI_CELLS_2BIT)
        return tutti_codec_get_f32(in + 4 * bits_at(in + LEVEL_BYTES, 2 * i, 2));
    half = (uint16_t)(in[2 * i] | in[2 * i + 1] << 8);
    tutti_cast(d, (tutti_buffer){ d, &half, 1, value_types[s->value] }, tutti_f32(d, &value, 1));
    return value;
}

/* A message that has been checked. */
typedef struct sent { const uint8_t *values, *indexes; } sent;

static sent read_message(const tutti_codec *c, const tutti_view *v, const uint8_t *in)
{
    return (sent){ in, in + value_bytes(c->self, count_all(c, v).first) };
}

static size_t index_at(const tutti_codec_cell *at, const sent *m, size_t i)
{
    return at->bits == 0 ? i : bits_at(m->indexes, at->bit + i * (size_t)at->bits, at->bits);
}

static void charge(const tutti_codec *c, const tutti_codec_cell *at)
{
    tutti_device_charge(c->space->device, (double)at->k, 16.0 * (double)at->k);
}

/* Adds a message's elements of a cell to block, which is as load_cell has it. Counts them in
   `senders`, unless NULL. */
static void add_elements(const tutti_codec *c, const tutti_codec_cell *at, const sent *m,
                         float *block, uint16_t *senders)
{
    const bool turned = ((const tutti_codec_cells *)c->self)->turn != NULL;

    for (size_t i = 0; i < at->k; i++) {
        const size_t index = index_at(at, m, i),
                     place = turned ? index % at->w * at->h + index / at->w : index;
        block[place] += value_at(c, m->values, at->first + i);
        if (senders != NULL)
            senders[place]++;
    }
    charge(c, at);
}

/* y += a times the elements of a cell, where they are sent. */
static void add_cell(const tutti_codec *c, const tutti_view *v, const tutti_codec_cell *at,
                     const sent *m, float a, float *y)
{
    for (size_t i = 0; i < at->k; i++)
        y[place_of(v, at, index_at(at, m, i))] += a * value_at(c, m->values, at->first + i);
    charge(c, at);
}

/* The same of a cell that is turned back. */
static void add_turned(const tutti_codec *c, const tutti_view *v, const tutti_codec_cell *at,
                       const sent *m, float a, float *y)
{
    const tutti_codec_cells *s = c->self;
    tutti_device *d = c->space->device;
    float block[TUTTI_CELLS_MOST], work[TUTTI_CELLS_MOST];
    const float *x;

    tutti_fill(d, at->h * at->w, 0, block);
    add_elements(c, at, m, block, NULL);
    x = s->turn(c, at, true, block, work);
    for (size_t i = 0; i < at->h; i++)
        tutti_axpy(d, at->w, a, x + i * at->w, y + place_of(v, at, i * at->w));
}

tutti_status tutti_codec_cells_decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                          size_t bytes, float a, float *y, tutti_error *err)
{
    const bool turned = ((const tutti_codec_cells *)c->self)->turn != NULL;
    tutti_codec_cell at = { 0 };
    sent m;

    TUTTI_TRY(check_message(c, v, in, bytes, err));
    m = read_message(c, v, in);
    while (next_cell(c, v, &at))
        (turned ? add_turned : add_cell)(c, v, &at, &m, a, y);
    return TUTTI_OK;
}

tutti_status tutti_codec_cells_mean(tutti_codec *c, const tutti_view *v,
                                    const tutti_codec_messages *all, float *y, tutti_error *err)
{
    const tutti_codec_cells *s = c->self;
    const size_t values = value_bytes(s, count_all(c, v).first);
    tutti_device *d = c->space->device;
    float block[TUTTI_CELLS_MOST], work[TUTTI_CELLS_MOST];
    uint16_t senders[TUTTI_CELLS_MOST];
    tutti_codec_cell at = { 0 };

    for (*all->bad = 0; *all->bad < all->n; ++*all->bad) {
        const tutti_codec_message *m = &all->first[(size_t)*all->bad * all->stride];
        TUTTI_TRY(check_message(c, v, m->at, m->bytes, err));
    }
    while (next_cell(c, v, &at)) {
        const size_t n = at.h * at.w;
        const float *x;
        tutti_fill(d, n, 0, block);
        memset(senders, 0, n * sizeof *senders);
        for (int r = 0; r < all->n; r++) {
            const uint8_t *in = all->first[(size_t)r * all->stride].at;
            add_elements(c, &at, &(sent){ in, in + values }, block, senders);
        }
        for (size_t i = 0; i < n; i++)
            block[i] /= (float)(senders[i] > 0 ? senders[i] : 1);
        tutti_device_charge(d, (double)n, 10.0 * (double)n);
        x = s->turn != NULL ? s->turn(c, &at, true, block, work) : block;
        for (size_t i = 0; i < at.h; i++)
            tutti_copy(d, at.w, x + i * at.w, y + place_of(v, &at, i * at.w));
    }
    return TUTTI_OK;
}

void tutti_codec_cells_places(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                              uint8_t *mark)
{
    const sent m = read_message(c, v, in);
    tutti_codec_cell at = { 0 };

    (void)bytes;
    while (next_cell(c, v, &at))
        for (size_t i = 0; i < at.k; i++)
            mark[place_of(v, &at, index_at(&at, &m, i))] = 1;
}
