/* rows_simd.h: template of the kernels of rows.c. rows_LEVEL.c includes it after simd_LEVEL.h. Rows
   and vectors are processed in blocks, so that a loaded vector is used in several products, and
   the accumulators of a block stay in registers. x_i is row i, q_k vector k. */
#include "simd_loop.h"

enum {
    LANES = TUTTI_KERNELS_LANES,
    PARTS = LANES / WIDTH, /* vectors that hold the lanes of a product */
    ROWS = 4 / PARTS,      /* rows of a block of rows_dot */
    COLUMNS = 4,           /* vectors of a block of rows_dot */
    BLOCK = 4,             /* rows, and vectors, of a block of the other kernels */
    TILE = 1024            /* elements; a tile of four vectors is 16 KiB */
};
/* The loop is unrolled, so that the arrays in it are in registers. */
#define EACH(name, count) _Pragma("GCC unroll 4") for (size_t name = 0; name < (count); name++)

/* Adds to sum[i][k] the product of row i and vector k over n elements, one run of rows_dot. m rows
   and p vectors, whose first elements are x_step and q_step apart. */
INLINE void dot_block(const size_t m, const size_t p, size_t n, const float *x, size_t x_step,
                      const float *q, size_t q_step, double sum[ROWS][COLUMNS])
{
    vec lane[ROWS][COLUMNS][PARTS];
    size_t j = 0;

    EACH(i, m) EACH(k, p) EACH(h, PARTS)
        lane[i][k][h] = vec_all(0);
    for (; n - j >= LANES; j += LANES)
        EACH(h, PARTS) {
            vec row[ROWS];
            EACH(i, m)
                row[i] = vec_get(x + i * x_step + j + h * WIDTH, WIDTH);
            EACH(k, p) {
                const vec column = vec_get(q + k * q_step + j + h * WIDTH, WIDTH);
                EACH(i, m)
                    lane[i][k][h] = vec_fma(row[i], column, lane[i][k][h]);
            }
        }
    EACH(h, PARTS) /* lanes beyond the end get 0 added */
        if (j + h * WIDTH < n) {
            const size_t left = n - j - h * WIDTH, some = left < WIDTH ? left : WIDTH;
            EACH(i, m)
            EACH(k, p) lane[i][k][h] =
                vec_fma(vec_get(x + i * x_step + j + h * WIDTH, some),
                        vec_get(q + k * q_step + j + h * WIDTH, some), lane[i][k][h]);
        }
    EACH(i, m) EACH(k, p)
        sum[i][k] += (double)vec_fold(lane[i][k]);
}

INLINE void dot_rows(const size_t m, size_t n, const float *x, int p, const float *q, float *a,
                     size_t step)
{
    for (int k = 0, some; k < p; k += some) {
        double sum[ROWS][COLUMNS] = { { 0 } };
        some = p - k >= COLUMNS ? COLUMNS : 1;
        for (size_t first = 0; first < n; first += TUTTI_KERNELS_RUN) {
            const size_t run = n - first < TUTTI_KERNELS_RUN ? n - first : TUTTI_KERNELS_RUN;
            if (some == COLUMNS)
                dot_block(m, COLUMNS, run, x + first, n, q + (size_t)k * n + first, n, sum);
            else
                dot_block(m, 1, run, x + first, n, q + (size_t)k * n + first, n, sum);
        }
        for (size_t i = 0; i < m; i++)
            for (int c = 0; c < some; c++)
                a[(size_t)(k + c) * step + i] = (float)sum[i][c];
    }
}

static void LEVEL(rows_dot)(const tutti_factor *f, const float *x, const float *q, float *a)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;
    size_t i = 0;

    for (; m - i >= ROWS; i += ROWS)
        dot_rows(ROWS, n, x + i * n, p, q, a + i, step);
    for (; i < m; i++)
        dot_rows(1, n, x + i * n, p, q, a + i, step);
}

/* Computes elements [j, j + count) of y_i := y_i (fresh: 0) + the sum over k of factor[i][k] x_k, k
   ascending, i < m, k < p. */
INLINE void add_vector(const size_t m, const size_t p, const bool fresh, size_t n, size_t j,
                       const size_t count, vec factor[BLOCK][BLOCK], const float *x, float *y)
{
    vec from[BLOCK];

    EACH(k, p)
        from[k] = vec_get(x + k * n + j, count);
    EACH(i, m) {
        vec sum = fresh ? vec_all(0) : vec_get(y + i * n + j, count);
        EACH(k, p)
            sum = vec_fma(factor[i][k], from[k], sum);
        vec_put(y + i * n + j, count, sum);
    }
}

/* Computes that for all n elements, with factor[i][k] = by a[i * a_row + k * a_column]. */
INLINE void add_block(const size_t m, const size_t p, const bool fresh, size_t n, float by,
                      const float *a, size_t a_row, size_t a_column, const float *x, float *y)
{
    vec factor[BLOCK][BLOCK];

    EACH(i, m) EACH(k, p)
        factor[i][k] = vec_all(by * a[i * a_row + k * a_column]);
    EACH_VECTOR(n, add_vector(m, p, fresh, n, i, k, factor, x, y));
}

/* Computes that for any m and p, in blocks. The first elements of consecutive x, and of consecutive
   y, are n apart. */
INLINE void add_blocks(const bool fresh, size_t m, size_t p, size_t n, float by, const float *a,
                       size_t a_row, size_t a_column, const float *x, float *y)
{
    for (size_t k = 0, columns; k < p; k += columns) {
        const bool first = fresh && k == 0;
        columns = p - k >= BLOCK ? BLOCK : 1;
        for (size_t i = 0, rows; i < m; i += rows) {
            const float *of = a + i * a_row + k * a_column;
            rows = m - i >= BLOCK ? BLOCK : 1;
            if (rows == BLOCK && columns == BLOCK)
                add_block(BLOCK, BLOCK, first, n, by, of, a_row, a_column, x + k * n, y + i * n);
            else if (rows == BLOCK)
                add_block(BLOCK, 1, first, n, by, of, a_row, a_column, x + k * n, y + i * n);
            else if (columns == BLOCK)
                add_block(1, BLOCK, first, n, by, of, a_row, a_column, x + k * n, y + i * n);
            else
                add_block(1, 1, first, n, by, of, a_row, a_column, x + k * n, y + i * n);
        }
    }
}

static void LEVEL(rows_sum)(const tutti_factor *f, const float *x, const float *a, float *q)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;

    add_blocks(false, (size_t)p, m, n, 1, a, step, 1, x, q);
}

/* Processes a block of rows with all vectors before the next block, so that a row is loaded into
   the cache once. */
static void LEVEL(rows_add)(const tutti_factor *f, float by, const float *a, const float *q,
                            float *y)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;

    for (size_t i = 0; i < m; i += BLOCK)
        add_blocks(false, m - i < BLOCK ? m - i : BLOCK, (size_t)p, n, by, a + i, 1, step, q,
                   y + i * n);
}

/* Computes elements [from, to) of a row of rows_product. Aligned vectors are stored past the
   caches, so that the overwritten memory is not read. */
INLINE void stream_row(const size_t p, size_t n, size_t from, size_t to, const float *a,
                       size_t step, const float *q, float *y)
{
    vec factor[BLOCK];
    size_t j = from;

    EACH(c, p)
        factor[c] = vec_all(a[c * step]);
    for (size_t count; j < to; j += count) {
        const bool aligned = (uintptr_t)(y + j) % sizeof(vec) == 0;
        const size_t up = aligned ? WIDTH : WIDTH - (uintptr_t)(y + j) % sizeof(vec) / sizeof *y;
        vec sum = vec_all(0);
        count = to - j < up ? to - j : up;
        EACH(c, p)
            sum = vec_fma(factor[c], vec_get(q + c * n + j, count), sum);
        if (aligned && count == WIDTH)
            vec_stream(y + j, sum);
        else
            vec_put(y + j, count, sum);
    }
}

/* Computes rows_product with p <= BLOCK vectors, tile by tile: all rows of a tile, so that the tile
   of the vectors stays in the L1 cache. The tiles of a row begin at aligned memory. */
INLINE void stream_rows(const size_t p, size_t m, size_t n, const float *a, size_t step,
                        const float *q, float *y)
{
    for (size_t tile = 0; tile < n; tile += TILE)
        for (size_t i = 0; i < m; i++) {
            const size_t up =
                (sizeof(vec) - (uintptr_t)(y + i * n) % sizeof(vec)) % sizeof(vec) / sizeof *y;
            const size_t from = tile == 0 ? 0 : tile + up, to = tile + TILE >= n ? n
                                                                : tile + TILE + up < n
                                                                    ? tile + TILE + up
                                                                    : n;
            if (from < to)
                stream_row(p, n, from, to, a + i, step, q, y + i * n);
        }
    stream_end();
}

static void LEVEL(rows_product)(const tutti_factor *f, const float *a, const float *q, float *y)
{
    const size_t m = f->m, n = f->n, step = f->step;
    const int p = f->p;
    const int columns = m * n * sizeof *y >= TUTTI_KERNELS_STREAM ? p : BLOCK + 1;

    switch (columns) {
    case 1: stream_rows(1, m, n, a, step, q, y); break;
    case 2: stream_rows(2, m, n, a, step, q, y); break;
    case 3: stream_rows(3, m, n, a, step, q, y); break;
    case 4: stream_rows(4, m, n, a, step, q, y); break;
    default:
        for (size_t i = 0; i < m; i += BLOCK)
            add_blocks(true, m - i < BLOCK ? m - i : BLOCK, (size_t)p, n, 1, a + i, 1, step, q,
                       y + i * n);
    }
}

void LEVEL(tutti_kernels_rows)(tutti_kernels *t)
{
    t->rows_dot = LEVEL(rows_dot);
    t->rows_sum = LEVEL(rows_sum);
    t->rows_add = LEVEL(rows_add);
    t->rows_product = LEVEL(rows_product);
}
