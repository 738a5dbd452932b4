/* loops_body.h: private: the loops of loops.h. Included by loops.c, loops_avx2.c and
   loops_avx512.c, each compiled for one vector level; the includer defines NN_LOOPS as the name of
   its table.

   The compiler vectorises each inner loop without reordering a sum: a vector's lanes are columns or
   channels, never rows. */
#include "loops.h"
#include <string.h>

enum {
    COLUMNS = 64, /* whose sums are kept in registers */
    ROWS = 64     /* of a partial sum */
};

static void loop_relu(size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static void loop_mask(size_t n, const float *restrict y, float *restrict g)
{
    for (size_t i = 0; i < n; i++)
        g[i] = y[i] <= 0 ? 0 : g[i];
}

static void loop_add(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Masks `width` columns of `rows` rows of g by y (NULL: no mask) and adds their sums to part. */
static void bias_rows(size_t rows, size_t columns, size_t width, const float *restrict y,
                      float *restrict g, float *restrict part)
{
    for (size_t r = 0; r < rows; r++) {
        float *restrict row = g + r * columns;
        if (y != NULL) {
            const float *restrict mask = y + r * columns;
            for (size_t j = 0; j < width; j++)
                row[j] = mask[j] <= 0 ? 0 : row[j];
        }
        for (size_t j = 0; j < width; j++)
            part[j] += row[j];
    }
}

static void loop_bias(size_t rows, size_t columns, const float *y, float *g, float *sum, bool add)
{
    for (size_t c = 0; c < columns; c += COLUMNS) {
        const size_t width = columns - c < COLUMNS ? columns - c : COLUMNS;
        float total[COLUMNS] = { 0 };
        for (size_t r = 0; r < rows; r += ROWS) {
            float part[COLUMNS] = { 0 };
            const size_t at = r * columns + c, n = rows - r < ROWS ? rows - r : ROWS;
            /* A constant width lets the compiler keep the sums in registers. */
            if (width == COLUMNS)
                bias_rows(n, columns, COLUMNS, y != NULL ? y + at : NULL, g + at, part);
            else
                bias_rows(n, columns, width, y != NULL ? y + at : NULL, g + at, part);
            for (size_t j = 0; j < width; j++)
                total[j] += part[j];
        }
        for (size_t j = 0; j < width; j++)
            sum[c + j] = add ? sum[c + j] + total[j] : total[j];
    }
}

static void loop_sum_relu(size_t n, const float *a, const float *b, float *y)
{
    for (size_t i = 0; i < n; i++) {
        const float v = a[i] + b[i];
        y[i] = v < 0 ? 0 : v;
    }
}

/* Returns the index of a value in maps. */
static size_t map_at(const nn_maps *m, size_t image, size_t channel, size_t row, size_t column)
{
    return (((image * (m->channels / m->lanes) + channel / m->lanes) * m->height + row) * m->width +
            column) *
               m->lanes +
           channel % m->lanes;
}

/* Returns the number of channels from `channel` on that are adjacent in both layouts. */
static size_t run_of(const nn_maps *a, const nn_maps *b, size_t channel)
{
    const size_t first = a->lanes - channel % a->lanes, second = b->lanes - channel % b->lanes;
    return first < second ? first : second;
}

/* Runs the last argument for each value of `large` that is added to one of `small`: `to` + k and
   `from` + k are their indexes, k counts the n channels that are adjacent in both. */
#define EACH_SHORTCUT(small, large, n, to, from, step, ...)                              \
    for (size_t image = 0; image < (small)->images; image++)                             \
        for (size_t c = 0, n; c < (large)->channels; c += n) {                           \
            n = run_of(small, large, c);                                                 \
            for (size_t row = 0; row < (small)->height; row++) {                         \
                size_t to = map_at(small, image, c, row, 0);                             \
                size_t from = map_at(large, image, c, row * (step), 0);                  \
                for (size_t p = 0; p < (small)->width; p++) {                            \
                    for (size_t k = 0; k < n; k++)                                       \
                        __VA_ARGS__;                                                     \
                    to += (small)->lanes;                                                \
                    from += (step) * (large)->lanes;                                     \
                }                                                                        \
            }                                                                            \
        }

static void loop_shortcut(const nn_maps *small, const nn_maps *large, size_t stride,
                          const float *stream, const float *x, float *y)
{
    if (y != x)
        memcpy(y, x, small->images * small->channels * small->height * small->width * sizeof *y);
    EACH_SHORTCUT(small, large, n, to, from, stride, y[to + k] += stream[from + k])
}

static void loop_shortcut_back(const nn_maps *small, const nn_maps *large, size_t stride,
                               const float *slope, float *stream)
{
    EACH_SHORTCUT(small, large, n, to, from, stride, stream[from + k] += slope[to + k])
}

static void loop_mean_pool(const nn_maps *m, const float *x, float *rows)
{
    const size_t positions = m->height * m->width;
    const float share = 1 / (float)positions;

    for (size_t image = 0; image < m->images; image++)
        for (size_t c = 0; c < m->channels; c += m->lanes, x += positions * m->lanes) {
            float *restrict sum = rows + image * m->channels + c;
            for (size_t k = 0; k < m->lanes; k++)
                sum[k] = 0;
            for (size_t p = 0; p < positions; p++)
                for (size_t k = 0; k < m->lanes; k++)
                    sum[k] += x[p * m->lanes + k];
            for (size_t k = 0; k < m->lanes; k++)
                sum[k] *= share;
        }
}

static void loop_mean_pool_back(const nn_maps *m, const float *slope, float *dx)
{
    const size_t positions = m->height * m->width;
    const float share = 1 / (float)positions;

    for (size_t image = 0; image < m->images; image++)
        for (size_t c = 0; c < m->channels; c += m->lanes, dx += positions * m->lanes) {
            const float *restrict row = slope + image * m->channels + c;
            for (size_t p = 0; p < positions; p++)
                for (size_t k = 0; k < m->lanes; k++)
                    dx[p * m->lanes + k] = row[k] * share;
        }
}

/* ---- max pooling: eight lanes at a time by the compiler's vector extension, since it does not
   vectorise such short loops; remaining lanes one by one ---- */
enum { LANES = NN_LANES };
typedef float lanes_f32 __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t lanes_i32 __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint8_t lanes_u8 __attribute__((vector_size(LANES), aligned(1), may_alias));

static inline int32_t argmax_at(const void *argmax, size_t bytes, size_t i)
{
    return bytes == 1 ? ((const uint8_t *)argmax)[i] : ((const int32_t *)argmax)[i];
}

static inline void set_argmax(void *argmax, size_t bytes, size_t i, size_t at)
{
    if (bytes == 1)
        ((uint8_t *)argmax)[i] = (uint8_t)at;
    else
        ((int32_t *)argmax)[i] = (int32_t)at;
}

/* Pools one window of NN_LANES channels. line: floats from a row of maps to the next. argmax:
   bytes; NULL: not wanted. */
static inline void pool_lanes(const float *x, size_t lanes, size_t line, size_t side, float *y,
                              uint8_t *argmax, bool relu)
{
    lanes_f32 best = *(const lanes_f32 *)x;
    lanes_i32 where = { 0 };

    for (size_t at = 1; at < side * side; at++) {
        const lanes_f32 v = *(const lanes_f32 *)(x + at / side * line + at % side * lanes);
        const lanes_i32 more = v > best;
        where = (more & (int32_t)at) | (~more & where);
        best = (lanes_f32)((more & (lanes_i32)v) | (~more & (lanes_i32)best));
    }
    *(lanes_f32 *)y = relu ? (lanes_f32)(~(best < 0) & (lanes_i32)best) : best;
    if (argmax != NULL)
        *(lanes_u8 *)argmax = __builtin_convertvector(where, lanes_u8);
}

static inline float pool_lane(const float *x, size_t lanes, size_t line, size_t side, bool relu,
                              size_t *argmax)
{
    float best = *x;

    *argmax = 0;
    for (size_t at = 1; at < side * side; at++) {
        const float v = x[at / side * line + at % side * lanes];
        *argmax = v > best ? at : *argmax;
        best = v > best ? v : best;
    }
    return relu && best < 0 ? 0 : best;
}

/* Writes the slopes of one window of NN_LANES channels. y NULL: no mask. */
static inline void pool_lanes_back(const float *y, const uint8_t *argmax, const float *slope,
                                   size_t lanes, size_t line, size_t side, float *dx)
{
    const lanes_i32 stood = __builtin_convertvector(*(const lanes_u8 *)argmax, lanes_i32);
    lanes_i32 g = *(const lanes_i32 *)slope;

    if (y != NULL)
        g &= ~(*(const lanes_f32 *)y <= 0);
    for (size_t at = 0; at < side * side; at++)
        *(lanes_i32 *)(dx + at / side * line + at % side * lanes) = (stood == (int32_t)at) & g;
}

static inline void pool_lane_back(float g, int32_t argmax, size_t lanes, size_t line, size_t side,
                                  float *dx)
{
    for (size_t at = 0; at < side * side; at++)
        dx[at / side * line + at % side * lanes] = argmax == (int32_t)at ? g : 0;
}

static void loop_pool(const nn_windows *w, const float *x, float *y, void *argmax, bool relu)
{
    const nn_maps *m = w->m;
    const size_t side = w->side;
    const size_t lines = m->height / side, windows = m->width / side, line = m->width * m->lanes,
                 bytes = nn_argmax_bytes(side);

    for (size_t i = w->first; i < w->first + w->count; i++)
        for (size_t p = 0; p < windows; p++) {
            const float *from =
                x + (i / lines * m->height + i % lines * side) * line + p * side * m->lanes;
            const size_t to = (i * windows + p) * m->lanes;
            size_t k = 0, where;
            for (; bytes == 1 && k + LANES <= m->lanes; k += LANES) {
                uint8_t *wanted = argmax != NULL ? (uint8_t *)argmax + to + k : NULL;
                if (side == 2) /* a constant: the window stays in registers */
                    pool_lanes(from + k, m->lanes, line, 2, y + to + k, wanted, relu);
                else
                    pool_lanes(from + k, m->lanes, line, side, y + to + k, wanted, relu);
            }
            for (; k < m->lanes; k++) {
                y[to + k] = pool_lane(from + k, m->lanes, line, side, relu, &where);
                if (argmax != NULL)
                    set_argmax(argmax, bytes, to + k, where);
            }
        }
}

static void loop_pool_back(const nn_windows *w, const float *y, const void *argmax,
                           const float *slope, float *dx)
{
    const nn_maps *m = w->m;
    const size_t side = w->side;
    const size_t lines = m->height / side, windows = m->width / side, line = m->width * m->lanes,
                 covered = windows * side * m->lanes, bytes = nn_argmax_bytes(side);

    for (size_t i = w->first; i < w->first + w->count; i++) {
        float *begin = dx + (i / lines * m->height + i % lines * side) * line;
        for (size_t p = 0; p < windows; p++) {
            const size_t to = (i * windows + p) * m->lanes;
            float *at = begin + p * side * m->lanes;
            size_t k = 0;
            for (; bytes == 1 && k + LANES <= m->lanes; k += LANES) {
                const float *mask = y != NULL ? y + to + k : NULL;
                if (side == 2)
                    pool_lanes_back(mask, (const uint8_t *)argmax + to + k, slope + to + k,
                                    m->lanes, line, 2, at + k);
                else
                    pool_lanes_back(mask, (const uint8_t *)argmax + to + k, slope + to + k,
                                    m->lanes, line, side, at + k);
            }
            for (; k < m->lanes; k++)
                pool_lane_back(y != NULL && y[to + k] <= 0 ? 0 : slope[to + k],
                               argmax_at(argmax, bytes, to + k), m->lanes, line, side, at + k);
        }
        for (size_t r = 0; r < side; r++)
            memset(begin + r * line + covered, 0, (line - covered) * sizeof *dx);
        if (i % lines == lines - 1)
            memset(begin + side * line, 0, (m->height - lines * side) * line * sizeof *dx);
    }
}

/* ---- weights of a convolution of few channels ---- */
enum { TAPS = 9 }; /* most taps whose sums are kept in registers */

/* For each of rows x n taps: adds to total[tap] the sum over a line's `width` positions of the
   slope (NN_LANES channels) times the input value under the tap. */
static inline void tap_line(const float *x, size_t x_line, const float *slope, size_t lanes,
                            size_t width, size_t rows, size_t n, lanes_f32 *total)
{
    lanes_f32 sum[TAPS] = { 0 };

    for (size_t q = 0; q < width; q++) {
        const lanes_f32 d = *(const lanes_f32 *)(slope + q * lanes);
        for (size_t r = 0; r < rows; r++)
            for (size_t s = 0; s < n; s++)
                sum[r * n + s] += d * x[r * x_line + q + s];
    }
    for (size_t t = 0; t < rows * n; t++)
        total[t] += sum[t];
}

/* Writes the weights' gradients for NN_LANES output channels from `out_channel` on and input
   channel c: taps [tap, tap + n) of row r of the window, or, if side is 3, all taps. */
static void tap_group(const nn_maps *out, const nn_maps *in, size_t side, size_t c, size_t r,
                      size_t tap, size_t n, size_t out_channel, const float *x, const float *slope,
                      float *weights)
{
    const bool whole = side == 3;
    lanes_f32 total[TAPS] = { 0 };

    for (size_t image = 0; image < out->images; image++)
        for (size_t p = 0; p < out->height; p++) {
            const float *from =
                            x + ((image * in->channels + c) * in->height + p + r) * in->width + tap,
                        *line = slope + map_at(out, image, out_channel, p, 0);
            if (whole)
                tap_line(from, in->width, line, out->lanes, out->width, 3, 3, total);
            else
                tap_line(from, in->width, line, out->lanes, out->width, 1, n, total);
        }
    for (size_t k = 0; k < LANES; k++)
        for (size_t t = 0; t < (whole ? TAPS : n); t++)
            weights[(((out_channel + k) * in->channels + c) * side + r) * side + tap + t] =
                total[t][k];
}

static void loop_weights_of_plain(const nn_plain_conv *v, const float *x, const float *slope,
                                  float *weights, float *bias)
{
    const nn_maps *out = v->out, *in = v->in;
    const size_t side = v->side;

    for (size_t g = v->first; g < v->first + v->count; g++) {
        lanes_f32 total = { 0 };
        for (size_t c = 0; c < in->channels; c++)
            for (size_t r = 0; r < (side == 3 ? 1 : side); r++)
                for (size_t tap = 0; tap < side; tap += TAPS)
                    tap_group(out, in, side, c, r, tap, side - tap < TAPS ? side - tap : TAPS,
                              g * LANES, x, slope, weights);
        for (size_t image = 0; image < out->images; image++)
            for (size_t p = 0; p < out->height; p++) {
                const float *line = slope + map_at(out, image, g * LANES, p, 0);
                lanes_f32 sum = { 0 };
                for (size_t q = 0; q < out->width; q++)
                    sum += *(const lanes_f32 *)(line + q * out->lanes);
                total += sum;
            }
        *(lanes_f32 *)(bias + g * LANES) = total;
    }
}

const nn_loops NN_LOOPS = { .relu = loop_relu,
                            .mask = loop_mask,
                            .add = loop_add,
                            .bias = loop_bias,
                            .sum_relu = loop_sum_relu,
                            .shortcut = loop_shortcut,
                            .shortcut_back = loop_shortcut_back,
                            .mean_pool = loop_mean_pool,
                            .mean_pool_back = loop_mean_pool_back,
                            .pool = loop_pool,
                            .pool_back = loop_pool_back,
                            .weights_of_plain = loop_weights_of_plain };
