/* loops_body.h: the loops, included by one file a level, which defines NN_LOOPS as the name of its table. Written so that the compiler
   turns each inner loop into vectors without reordering a sum: lanes are columns, never rows. */
#include "loops.h"

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

const nn_loops NN_LOOPS = { .relu = loop_relu, .mask = loop_mask, .add = loop_add, .bias = loop_bias };
