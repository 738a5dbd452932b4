/* loops_body.h: the loops, included by one file a level, which defines NN_LOOPS as the name of its table. Written so that the compiler
   turns each inner loop into vectors without reordering a sum: lanes are columns, never rows. */
#include "loops.h"
#include <string.h>

enum { COLUMNS = 64, ROWS = 64 };

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

static void bias_rows(size_t rows, size_t columns, size_t width, const float *restrict y, float *restrict g, float *restrict part)
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

static size_t map_at(const nn_maps *m, size_t image, size_t channel, size_t row, size_t column)
{
    return (((image * (m->channels / m->lanes) + channel / m->lanes) * m->height + row) * m->width + column) * m->lanes + channel % m->lanes;
}

/* From `channel` on, how many stand side by side in both. */
static size_t run_of(const nn_maps *a, const nn_maps *b, size_t channel)
{
    const size_t first = a->lanes - channel % a->lanes, second = b->lanes - channel % b->lanes;
    return first < second ? first : second;
}

/* small: y's; large: the stream's. Each row of places of each run of channels. */
#define EACH_SHORTCUT(small, large, n, to, from, step, ...)                                                         \
    for (size_t image = 0; image < (small)->images; image++)                                                        \
        for (size_t c = 0, n; c < (large)->channels; c += n) {                                                      \
            n = run_of(small, large, c);                                                                            \
            for (size_t row = 0; row < (small)->height; row++) {                                                    \
                size_t to = map_at(small, image, c, row, 0), from = map_at(large, image, c, row * (step), 0);       \
                for (size_t p = 0; p < (small)->width; p++, to += (small)->lanes, from += (step) * (large)->lanes)  \
                    for (size_t k = 0; k < n; k++)                                                                  \
                        __VA_ARGS__;                                                                                \
            }                                                                                                       \
        }

static void loop_shortcut(const nn_maps *small, const nn_maps *large, size_t stride, const float *stream, const float *x, float *y)
{
    if (y != x)
        memcpy(y, x, small->images * small->channels * small->height * small->width * sizeof *y);
    EACH_SHORTCUT(small, large, n, to, from, stride, y[to + k] += stream[from + k])
}

static void loop_shortcut_back(const nn_maps *small, const nn_maps *large, size_t stride, const float *slope, float *stream)
{
    EACH_SHORTCUT(small, large, n, to, from, stride, stream[from + k] += slope[to + k])
}

static void loop_places(const nn_maps *m, const float *x, float *rows)
{
    const size_t places = m->height * m->width;
    const float share = 1 / (float)places;

    for (size_t image = 0; image < m->images; image++)
        for (size_t c = 0; c < m->channels; c += m->lanes, x += places * m->lanes) {
            float *restrict sum = rows + image * m->channels + c;
            for (size_t k = 0; k < m->lanes; k++)
                sum[k] = 0;
            for (size_t p = 0; p < places; p++)
                for (size_t k = 0; k < m->lanes; k++)
                    sum[k] += x[p * m->lanes + k];
            for (size_t k = 0; k < m->lanes; k++)
                sum[k] *= share;
        }
}

static void loop_places_back(const nn_maps *m, const float *slope, float *dx)
{
    const size_t places = m->height * m->width;
    const float share = 1 / (float)places;

    for (size_t image = 0; image < m->images; image++)
        for (size_t c = 0; c < m->channels; c += m->lanes, dx += places * m->lanes) {
            const float *restrict row = slope + image * m->channels + c;
            for (size_t p = 0; p < places; p++)
                for (size_t k = 0; k < m->lanes; k++)
                    dx[p * m->lanes + k] = row[k] * share;
        }
}

const nn_loops NN_LOOPS = { .relu = loop_relu, .mask = loop_mask, .add = loop_add, .bias = loop_bias, .sum_relu = loop_sum_relu, .shortcut = loop_shortcut, .shortcut_back = loop_shortcut_back,
                            .places = loop_places, .places_back = loop_places_back };
