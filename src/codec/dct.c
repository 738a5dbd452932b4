/* dct.c: codec dct: the greatest coefficients of a cosine transform of each cell of a tensor. The
   extraction of DeMo (Peng, Chen, Su, Quesnelle, Kingma, Liu, "DeMo: Decoupled Momentum
   Optimization", ICLR 2026, arXiv 2411.19870), whose momentum is error feedback around it:
   ef(dct,decay=0.999).

     cells    as cells.h has them
     encode   Q = D_h X D_w^T, the orthonormal DCT-II; sent are the topk of greatest magnitude of
              each cell, of equal ones the lowest indexes; all where a cell has no more
     decode   D_h^T Q D_w

   The authors' code cuts a side into parts of its largest divisor up to chunk. Both are equal where
   chunk divides the side, and where that divisor is the longest part here. A side that is a larger
   prime has parts of one element there, so that nothing is compressed.

   Messages, and mean=senders, which is the authors' mean: cells.h, cells.c.

   The transform is two products by tutti_rows_product, so its bits are the same at each level. The
   matrices are made of sums, products and quotients of doubles in one order, without the system's
   cosine: the same on each machine. A cell costs h w (h + w) multiply-adds a direction, at chunk=64
   128 an element: once to encode, and once for each message that is decoded; with mean=senders once
   for all of them. The matrices of all lengths up to chunk, and their transposes, are 8 chunk^3 / 3
   bytes: 0.7 MB at 64.

   A number that is not finite makes its cell not finite. The coefficients that are sent then have a
   NaN or an infinity, and so has the whole decoded cell. */
#include "cells.h"
#include "registry.h"
#include "kernels/codes.h"

enum { SIDE_MOST = TUTTI_CELLS_SIDE_MOST };

typedef struct dct {
    tutti_codec_cells cells;
    size_t longest;              /* side of a cell that occurs */
    float *basis;                /* for each length up to `longest` D and its transpose */
    double norm;                 /* of all of that */
} dct;
static const tutti_option options[] = {
    TUTTI_ROW_CELLS_TOPK(TUTTI_AT(dct, cells.topk), 32, "coefficients"),
    TUTTI_ROW_CELLS_CHUNK(TUTTI_AT(dct, cells.chunk)),
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(dct, cells.value), NULL),
    TUTTI_ROW_CELLS_MEAN(TUTTI_AT(dct, cells.mean), TUTTI_CELLS_ALL, "a coefficient"),
    { 0 }
};

/* ---- the matrices ---- */

/* Elements before the matrices of length n: the sum of 2 t^2 over the lengths t below n. */
static size_t basis_place(size_t n)
{
    return (n - 1) * n * (2 * n - 1) / 3;
}

/* cos(pi turn / (2 n)), within 2^-52. */
static double cosine(size_t turn, size_t n)
{
    const double pi = 3.14159265358979323846;
    double x, square, sum = 1;
    bool negative, odd;

    turn %= 4 * n;
    turn = turn > 2 * n ? 4 * n - turn : turn;
    negative = turn > n;
    turn = negative ? 2 * n - turn : turn;
    odd = 2 * turn > n; /* beyond pi/4 it is the sine of what is left to pi/2 */
    x = pi * (double)(odd ? n - turn : turn) / (double)(2 * n);
    square = x * x;
    for (int i = 10; i > 0; i--)
        sum = 1 - square * sum / ((2 * i) * (odd ? 2 * i + 1 : 2 * i - 1));
    sum = odd ? x * sum : sum;
    return negative ? -sum : sum;
}

/* D of length n: sqrt(2 / n) cos(pi (2 j + 1) k / (2 n)), in row 0 sqrt(1 / n). */
static void make_one(size_t n, float *forth, float *back)
{
    float turns[4 * SIDE_MOST];

    for (size_t turn = 0; turn < 4 * n; turn++)
        turns[turn] = (float)(sqrt(2.0 / (double)n) * cosine(turn, n));
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++)
            forth[k * n + j] = back[j * n + k] =
                k == 0 ? (float)sqrt(1.0 / (double)n) : turns[(2 * j + 1) * k % (4 * n)];
}

static double basis_norm(const tutti_codec *c)
{
    const dct *s = c->self;

    return tutti_norm2(c->space->device, basis_place(s->longest + 1), s->basis);
}

static void open(tutti_codec *c)
{
    dct *s = c->self;

    for (size_t n = 1; n <= s->longest; n++)
        make_one(n, s->basis + basis_place(n), s->basis + basis_place(n) + n * n);
    s->norm = basis_norm(c);
}

/* Scratch may be anything when a step begins, and the matrices are made again if it is. */
static size_t dct_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    (void)m, (void)round, (void)numbers;
    if (!(basis_norm(c) == ((const dct *)c->self)->norm))
        open(c);
    return 0;
}

/* D of length n, or its transpose. */
static const float *basis_of(const dct *s, size_t n, bool transposed)
{
    return s->basis + basis_place(n) + (transposed ? n * n : 0);
}

/* `turn` of cells.h: the transform, or back. */
static float *transform(const tutti_codec *c, const tutti_codec_cell *at, bool back, float *block,
                        float *work)
{
    const dct *s = c->self;
    tutti_device *d = c->space->device;

    tutti_rows_product(d, at->h, at->w, (int)at->w, block, at->h, basis_of(s, at->w, !back), work);
    if (at->h == 1)
        return work;
    tutti_rows_product(d, at->h, at->w, (int)at->h, basis_of(s, at->h, !back), at->h, work, block);
    return block;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    dct *s = c->self;

    s->cells.turn = transform;
    s->longest = c->space->n < (size_t)s->cells.chunk ? c->space->n : (size_t)s->cells.chunk;
    s->longest = s->longest > 0 ? s->longest : 1;
    tutti_codec_declare_floats(c, plan, "basis", TUTTI_SCRATCH, basis_place(s->longest + 1),
                               &s->basis);
}

const tutti_codec_ops tutti_codec_dct = {
    .name = "dct",
    .paper = "Peng et al., ICLR 2026 (DeMo)",
    .help = "the greatest coefficients of a cosine transform, of each chunk of a tensor",
    .options = options,
    .self_bytes = sizeof(dct),
    .declare = declare,
    .open = open,
    .begin = dct_begin,
    TUTTI_CODEC_CELLS,
};
