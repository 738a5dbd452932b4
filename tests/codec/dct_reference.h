/* dct_reference.h: the cosine transform of the cells of a tensor, in double, from its definition;
   and how many coefficients and bits a message has. For codec/dct and method/demo. */
#ifndef TUTTI_TESTS_DCT_REFERENCE_H
#define TUTTI_TESTS_DCT_REFERENCE_H
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct reference_cut { size_t parts, side; } reference_cut;

static inline reference_cut reference_cut_of(size_t side, size_t chunk)
{
    return (reference_cut){ side / chunk + (side % chunk != 0), side };
}

/* Where part i begins. */
static inline size_t reference_begin(reference_cut c, size_t i)
{
    return c.side * i / c.parts;
}

static inline double reference_basis(size_t n, size_t k, size_t j)
{
    return sqrt((k == 0 ? 1.0 : 2.0) / (double)n) *
           cos(3.14159265358979323846 * (2 * (double)j + 1) * (double)k / (2 * (double)n));
}

/* A cell of x, which has `cols` columns: h x w elements from (row, col) on. */
typedef struct reference_cell { size_t row, col, h, w; } reference_cell;

/* to[u w + v] := coefficient (u, v) of the cell; or back: to := the cell of these coefficients. */
static inline void reference_transform(const reference_cell *c, int back, const double *from,
                                       double *to)
{
    double *half = calloc(c->h * c->w, sizeof *half);

    for (size_t i = 0; i < c->h; i++)
        for (size_t v = 0; v < c->w; v++)
            for (size_t j = 0; j < c->w; j++)
                half[i * c->w + v] += from[i * c->w + j] * (back ? reference_basis(c->w, j, v)
                                                                 : reference_basis(c->w, v, j));
    for (size_t u = 0; u < c->h; u++)
        for (size_t v = 0; v < c->w; v++) {
            double sum = 0;
            for (size_t i = 0; i < c->h; i++)
                sum += half[i * c->w + v] * (back ? reference_basis(c->h, i, u)
                                                  : reference_basis(c->h, u, i));
            to[u * c->w + v] = sum;
        }
    free(half);
}

/* Calls for each cell of a rows x cols tensor. */
static inline void reference_cells(size_t rows, size_t cols, size_t chunk,
                                   void (*each)(void *user, const reference_cell *cell),
                                   void *user)
{
    const reference_cut down = reference_cut_of(rows, chunk),
                        across = reference_cut_of(cols, chunk);

    for (size_t a = 0; a < down.parts && rows * cols > 0; a++)
        for (size_t b = 0; b < across.parts; b++) {
            reference_cell c = { 0 };
            c.row = reference_begin(down, a);
            c.col = reference_begin(across, b);
            c.h = reference_begin(down, a + 1) - c.row;
            c.w = reference_begin(across, b + 1) - c.col;
            each(user, &c);
        }
}

typedef struct reference_size { size_t topk, values, bits; } reference_size;

static inline void reference_count(void *user, const reference_cell *cell)
{
    reference_size *s = user;
    const size_t n = cell->h * cell->w, k = n < s->topk ? n : s->topk;

    s->values += k;
    s->bits += k < n ? k * (size_t)ceil(log2((double)n) - 1e-9) : 0; /* a whole cell needs none */
}

/* Bytes of a message whose values have `each` bytes. */
static inline size_t reference_bytes(size_t rows, size_t cols, size_t topk, size_t chunk,
                                     size_t each)
{
    reference_size s = { .topk = topk };

    reference_cells(rows, cols, chunk, reference_count, &s);
    return each * s.values + (s.bits + 7) / 8;
}
#endif
