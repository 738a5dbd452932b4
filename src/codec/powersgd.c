/* powersgd.c: codec powersgd: the gradient matrix D (rows x cols) as P Q^T of rank r, by one step of subspace iteration that starts from the previous
   step's Q. Vogels, Karimireddy and Jaggi, NeurIPS 2019, algorithm 1. Two linear rounds:
     0: P = D Q, summed;  1: P^ = orth(P), Q = D^T P^, mean.  Decoded: P^ Q^T = P^ P^T mean(D).
   On the wire and in memory factors lie column after column: P as r x rows, Q as r x cols, so that orth and the products run along memory.
   Matrices that would not shrink by min_compression_rate, and whatever has one row, travel as they are in round 0.

   Error feedback subtracts this worker's part P^ Q_own^T (ef_rule=local: residuals stay as small as what was lost), or the decoded mean
   (aggregated: as in the paper's code and PyTorch). Both give the same trajectory of the model, since only the mean of the residuals is ever sent.
   Q_own lies in the scratch between fold and mine. A dead layer's Q is 0, and so is P; orth draws new directions then (orthogonal.c). */
#include "codec_internal.h"
#include "registry.h"
#include <assert.h>
#include <stdio.h>

typedef struct powersgd {
    int64_t rank, start_iter;
    double min_compression_rate;
    bool warm_start;
    int ef_rule;
    float *q;       /* the tensors' Q one after the other; NULL: nothing is compressed */
} powersgd;
enum { LOCAL, AGGREGATED };
enum { RANK_MOST = 512, TILE_ROWS = 8, TILE_COLS = 512 }; /* a tile has 16 KiB */

static const tutti_option options[] = {
    { "rank", TUTTI_INT, TUTTI_AT(powersgd, rank), 1, 1, RANK_MOST, NULL, "of the approximation; at most the lesser side of a matrix" },
    { "min_compression_rate", TUTTI_REAL, TUTTI_AT(powersgd, min_compression_rate), 2, 1, 1e9, NULL, "matrices that shrink less travel as they are" },
    { "start_iter", TUTTI_INT, TUTTI_AT(powersgd, start_iter), 0, 0, 1e12, NULL, "steps before the first that compresses" },
    { "warm_start", TUTTI_BOOL, TUTTI_AT(powersgd, warm_start), 1, 0, 1, NULL, "begin from the previous step's factor, not from a drawn one" },
    { "ef_rule", TUTTI_CHOICE, TUTTI_AT(powersgd, ef_rule), 0, 0, 0, "local|aggregated", "what ef(...) takes for sent: this worker's part, or the mean" },
    { 0 }
};

/* r of a matrix; 0: it travels as it is. */
static size_t rank_of(const powersgd *s, size_t rows, size_t cols)
{
    size_t r = (size_t)s->rank;

    r = r < rows ? r : rows;
    r = r < cols ? r : cols;
    return (double)((rows + cols) * r) * s->min_compression_rate < (double)rows * (double)cols ? r : 0;
}

static size_t rank_now(const tutti_codec *c, const tutti_view *v)
{
    const powersgd *s = c->self;

    return v->step < (uint64_t)s->start_iter ? 0 : rank_of(s, v->rows, v->cols);
}

/* Where tensor t's Q begins. */
static size_t place(const tutti_codec *c, int t)
{
    size_t at = 0;

    for (int i = 0; i < t; i++)
        at += c->space->tensor[i].cols * rank_of(c->self, c->space->tensor[i].rows, c->space->tensor[i].cols);
    return at;
}

/* Shared by all workers: of a tensor, and of a step where it is drawn anew; the upper word of `step` is orth's. */
static tutti_rng shared(const tutti_codec *c, const tutti_view *v, int tensor)
{
    tutti_rng rng = tutti_codec_rng(c, v, true);

    rng.stream += ((uint64_t)tensor + 1) << 8;
    return rng;
}

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_WHOLE_TENSOR;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    const size_t count = place(c, c->space->n_tensors);

    if (count > 0)
        tutti_codec_declare_floats(c, plan, "q", TUTTI_SAME, count, &((powersgd *)c->self)->q);
}

static void open(tutti_codec *c)
{
    powersgd *s = c->self;

    for (int t = 0; t < c->space->n_tensors; t++) {
        const tutti_view *v = &c->space->tensor[t];
        const size_t n = v->cols * rank_of(s, v->rows, v->cols);
        if (n > 0)
            tutti_fill_normal(c->space->device, n, shared(c, &(tutti_view){ .step = 0 }, t), s->q + place(c, t));
    }
}

/* Q_own, and where Q is not kept the drawn one. */
static size_t scratch_bytes(const tutti_codec *c, const tutti_view *v)
{
    return rank_now(c, v) * v->cols * sizeof(float);
}

static size_t width(const tutti_codec *c, const tutti_view *v, int round)
{
    const size_t r = rank_now(c, v);

    if (r == 0)
        return round == 0 ? v->count : 0;
    return r * (round == 0 ? v->rows : v->cols);
}

/* own += D^T P^, rows i .. and columns j .. of D only, which stay in the first cache for all r. */
static void add_tile(tutti_device *d, const tutti_view *v, size_t r, size_t i, size_t j, const float *p, const float *x, float *own)
{
    const size_t rows = v->rows - i < TILE_ROWS ? v->rows - i : TILE_ROWS, cols = v->cols - j < TILE_COLS ? v->cols - j : TILE_COLS;
    const float *row[TILE_ROWS];

    for (size_t m = 0; m < rows; m++)
        row[m] = x + (i + m) * v->cols + j;
    for (size_t k = 0; k < r; k++)
        tutti_axpy_many(d, cols, (int)rows, p + k * v->rows + i, row, own + k * v->cols + j);
}

static void fold(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch, void *const *wire)
{
    tutti_device *d = c->space->device;
    const powersgd *s = c->self;
    const size_t r = rank_now(c, v), rows = v->rows, cols = v->cols;
    float *p = wire[0];

    if (r == 0) {
        if (round == 0)
            tutti_copy(d, v->count, x, p);
    } else if (round == 0) {
        const float *q = s->q + place(c, v->tensor);
        assert(v->tensor >= 0 && v->count == rows * cols);
        if (!s->warm_start) {
            tutti_fill_normal(d, r * cols, shared(c, v, v->tensor), scratch);
            q = scratch;
        }
        const float *column[RANK_MOST];
        double sum[RANK_MOST];
        for (size_t k = 0; k < r; k++)
            column[k] = q + k * cols;
        for (size_t i = 0; i < rows; i++) { /* P = D Q: a row of D is read once */
            tutti_dot_many(d, cols, x + i * cols, (int)r, column, sum);
            for (size_t k = 0; k < r; k++)
                p[k * rows + i] = (float)sum[k];
        }
    } else {
        float *own = wire[1];
        tutti_codec_orthonormalise(d, rows, r, p, shared(c, v, v->tensor));
        tutti_fill(d, r * cols, 0, own);
        for (size_t i = 0; i < rows; i += TILE_ROWS) /* Q = D^T P^ */
            for (size_t j = 0; j < cols; j += TILE_COLS)
                add_tile(d, v, r, i, j, p, x, own);
        tutti_copy(d, r * cols, own, scratch);
    }
}

/* y += a P^ Q^T; from_zero: y = 0 first, a row at a time. */
static void add_product(const tutti_codec *c, const tutti_view *v, size_t r, const float *p, const float *q, float a, bool from_zero, float *y)
{
    const float *column[RANK_MOST];
    float by[RANK_MOST];

    for (size_t k = 0; k < r; k++)
        column[k] = q + k * v->cols;
    for (size_t i = 0; i < v->rows; i++) {
        for (size_t k = 0; k < r; k++)
            by[k] = a * p[k * v->rows + i];
        if (from_zero)
            tutti_fill(c->space->device, v->cols, 0, y + i * v->cols);
        tutti_axpy_many(c->space->device, v->cols, (int)r, by, column, y + i * v->cols);
    }
}

static void mine(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, void *const *wire, float a, float *y)
{
    const powersgd *s = c->self;
    const size_t r = rank_now(c, v);

    if (r == 0)
        tutti_axpy(c->space->device, v->count, a, s->ef_rule == LOCAL ? x : wire[0], y);
    else
        add_product(c, v, r, wire[0], s->ef_rule == LOCAL ? scratch : wire[1], a, false, y);
}

static void unfold(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y)
{
    tutti_device *d = c->space->device;
    const powersgd *s = c->self;
    const size_t r = rank_now(c, v);

    (void)scratch;
    if (r == 0) {
        tutti_copy(d, v->count, wire[0], y);
        return;
    }
    add_product(c, v, r, wire[0], wire[1], 1, true, y);
    if (s->warm_start && tutti_finite(d, r * v->cols, wire[1])) /* one step with a NaN must not spoil all that follow */
        tutti_copy(d, r * v->cols, wire[1], s->q + place(c, v->tensor));
}

/* Columns that both have; others are this codec's own last ones, drawn at first. */
static void follow(tutti_codec *c, const tutti_codec *from, int t)
{
    const tutti_view *v = &c->space->tensor[t];
    const powersgd *mine = c->self, *theirs = from->self;
    const size_t a = rank_of(mine, v->rows, v->cols), b = rank_of(theirs, v->rows, v->cols), r = a < b ? a : b;

    if (r > 0)
        tutti_copy(c->space->device, r * v->cols, theirs->q + place(from, t), mine->q + place(c, t));
}

const tutti_codec_ops tutti_codec_powersgd = {
    .name = "powersgd", .paper = "Vogels et al., NeurIPS 2019, algorithm 1", .help = "matrices as products of rank r, summed on the way",
    .options = options, .self_bytes = sizeof(powersgd), .rounds = 2, .traits = traits, .declare = declare, .open = open, .scratch = scratch_bytes,
    .width = width, .fold = fold, .mine = mine, .unfold = unfold, .follow = follow,
};
