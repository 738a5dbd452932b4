/* rows.c: the references of products of a matrix with a few vectors, for low-rank codecs. Each
   product is fused into the following sum (fma), and every element has one order of operations. So
   neither the grouping of rows nor the level changes a bit. */
#include "kernels_internal.h"
#include <math.h>

static void rows_dot(const tutti_factor *f, const float *x, const float *q, float *a)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;

    for (size_t i = 0; i < m; i++)
        for (int k = 0; k < p; k++) {
            const float *row = x + i * n, *column = q + (size_t)k * n;
            double sum = 0;
            for (size_t first = 0; first < n; first += TUTTI_KERNELS_RUN) {
                const size_t end = n - first < TUTTI_KERNELS_RUN ? n : first + TUTTI_KERNELS_RUN;
                float lane[TUTTI_KERNELS_LANES] = { 0 };
                for (size_t j = first; j < end; j++)
                    lane[j % TUTTI_KERNELS_LANES] =
                        fmaf(row[j], column[j], lane[j % TUTTI_KERNELS_LANES]);
                for (size_t width = TUTTI_KERNELS_LANES / 2; width > 0; width /= 2)
                    for (size_t j = 0; j < width; j++)
                        lane[j] += lane[j + width];
                sum += (double)lane[0];
            }
            a[(size_t)k * step + i] = (float)sum;
        }
}

static void rows_sum(const tutti_factor *f, const float *x, const float *a, float *q)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;

    for (int k = 0; k < p; k++)
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                q[(size_t)k * n + j] =
                    fmaf(a[(size_t)k * step + i], x[i * n + j], q[(size_t)k * n + j]);
}

static void rows_add(const tutti_factor *f, float by, const float *a, const float *q, float *y)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;

    for (size_t i = 0; i < m; i++)
        for (int k = 0; k < p; k++)
            for (size_t j = 0; j < n; j++)
                y[i * n + j] =
                    fmaf(by * a[(size_t)k * step + i], q[(size_t)k * n + j], y[i * n + j]);
}

static void rows_product(const tutti_factor *f, const float *a, const float *q, float *y)
{
    for (size_t i = 0; i < f->m * f->n; i++)
        y[i] = 0;
    rows_add(f, 1, a, q, y);
}

void tutti_kernels_rows(tutti_kernels *t)
{
    t->rows_dot = rows_dot;
    t->rows_sum = rows_sum;
    t->rows_add = rows_add;
    t->rows_product = rows_product;
}
