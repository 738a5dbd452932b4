/* powersgd.c: codec powersgd: the gradient matrix D (rows x cols) as P Q^T of rank r, by one step
   of subspace iteration that starts from the previous step's Q. Vogels, Karimireddy and Jaggi,
   NeurIPS 2019, algorithm 1. Two linear rounds:

     0: P = D Q, summed
     1: P^ = orth(P), Q = D^T P^, mean
     Decoded: P^ Q^T = P^ P^T mean(D)

   iters_per_step=k, as in the authors' later package: k times that, each on what the earlier ones
   have left of D, and the products are added up: k r columns in 2 k rounds. What is left, (1 - P^
   P^T) D, is never computed. The columns of P are made orthogonal to all earlier ones instead,
   and then D^T P^ is the same of D and of what is left of it. So it is r k columns of a Krylov
   space, which the next step continues from the last Q.

   On the wire and in memory factors lie column after column: P as r x rows, Q as r x cols, so that
   orth and the products run along memory. Matrices that would not shrink by min_compression_rate,
   and whatever has one row, travel as they are in round 0.

   Error feedback subtracts this worker's part P^ Q_own^T (ef_rule=local: residuals stay as small
   as what was lost), or the decoded mean (aggregated: as in the paper's code and PyTorch). Both
   give the same trajectory of the model, since only the mean of the residuals is ever sent.

   There are no options orth and orth_eps, since there is one orthogonalisation that is right for
   every rank (orthogonal.c) and divides by no small number. The seed is the run's, compared by all
   workers before they begin. A codec by a tensor's size is large(...).

   factor_dtype: P and Q on the wire in 16 bits, their sums in float32, rounded once (reduce.c);
   what is no product stays float32. So that nothing leaves fp16's range, columns travel divided by
   powers of two that all workers know: Q's by the size that column had in the step before (state
   `sizes`). P's, whose size orth forgets, go by the same, since P is D times columns of about 1.
   Dividing so rounds nothing. A matrix's first product has no earlier size, and travels as
   float32. Error feedback takes for sent what was on the wire: of ef_rule=local the rounded
   Q_own. What the mean loses when it is rounded is corrected under ef_rule=aggregated only
   (exchange.c).

   Before step 0 an event lists the matrices that travel as products, with their rank, and why
   others do not; by their number in the model's order, since a codec knows no names. A rank above
   a matrix's smaller side is reduced to that side, which never shrinks the matrix: so only
   matrices that travel uncompressed have their rank reduced.

   For a matrix larger than the caches, ef(powersgd(rank=4)) is bound by memory. It passes over
   memory seven times, where a memcpy counts as two: residual + gradient, with D Q computed row by
   row as they are added (fold_part); D^T P; residual - P Q^T; the mean written past the caches.
   The products read four rows at once. Measurements are in docs/methods/powersgd.md.

   The kept Q's columns are divided by powers of two to a norm in [1, 2). D Q of a Q of D's own size
   would leave float's range where gradients are 1e-20 or 1e20. orth forgets the columns' size, so
   that nothing else changes by a bit.

   Q_own lies in the scratch between fold and mine, and with 16 bits P^ and the mean Q as floats
   after it. A dead layer's Q is 0, and so is P; orth draws new directions then (orthogonal.c). */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"
#include "kernels/device.h"
#include <assert.h>
#include <stdio.h>

typedef struct powersgd {
    int64_t rank, iters_per_step, start_iter;
    double min_compression_rate;
    bool warm_start;
    int ef_rule, factor;
    /* the tensors' Q one after the other, each column divided by a power of two to about 1; NULL:
       nothing is compressed */
    float *q;
    float *
        size; /* 16 bits: of the columns of all Q of a tensor, the exponent of their norm in the step before */
} powersgd;
enum { LOCAL, AGGREGATED };
enum { RANK_MOST = TUTTI_POWERSGD_RANK_MOST, ITERS_MOST = TUTTI_POWERSGD_ITERS_MOST };
enum { PANEL = 32, SIZE_MOST = 100, SIZE_UNKNOWN = -1000, SIZE_LESS = 8 };
static const tutti_dtype factors[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

static const tutti_option options[] = {
    TUTTI_ROW_POWERSGD_RANK(TUTTI_AT(powersgd, rank)),
    TUTTI_ROW_POWERSGD_ITERS_PER_STEP(TUTTI_AT(powersgd, iters_per_step)),
    TUTTI_ROW_POWERSGD_MIN_COMPRESSION_RATE(TUTTI_AT(powersgd, min_compression_rate)),
    TUTTI_ROW_POWERSGD_START_ITER(TUTTI_AT(powersgd, start_iter)),
    TUTTI_ROW_POWERSGD_WARM_START(TUTTI_AT(powersgd, warm_start)),
    TUTTI_ROW_POWERSGD_EF_RULE(TUTTI_AT(powersgd, ef_rule), NULL),
    TUTTI_ROW_POWERSGD_FACTOR_DTYPE(TUTTI_AT(powersgd, factor)),
    { 0 }
};

/* Products of a matrix: as many as its lesser side has columns for. */
static size_t iters_of(const powersgd *s, size_t r, size_t rows, size_t cols)
{
    const size_t most = r == 0 ? 1 : (rows < cols ? rows : cols) / r;

    return (size_t)s->iters_per_step < most ? (size_t)s->iters_per_step : most;
}

/* r of a matrix; 0: it travels as it is. */
static size_t rank_of(const powersgd *s, size_t rows, size_t cols)
{
    size_t r = (size_t)s->rank;

    r = r < rows ? r : rows;
    r = r < cols ? r : cols;
    return (double)((rows + cols) * r * iters_of(s, r, rows, cols)) * s->min_compression_rate <
                   (double)rows * (double)cols
               ? r
               : 0;
}

static size_t rank_now(const tutti_codec *c, const tutti_view *v)
{
    const powersgd *s = c->self;

    return v->step < (uint64_t)s->start_iter ? 0 : rank_of(s, v->rows, v->cols);
}

/* The first element of tensor t's Q. */
static size_t powersgd_place(const tutti_codec *c, int t)
{
    size_t at = 0;

    for (int i = 0; i < t; i++)
        at += c->space->tensor[i].cols *
              rank_of(c->self, c->space->tensor[i].rows, c->space->tensor[i].cols);
    return at;
}

/* And where the sizes of its columns do. */
static size_t size_place(const tutti_codec *c, int t)
{
    size_t at = 0;

    for (int i = 0; i < t; i++) {
        const tutti_view *v = &c->space->tensor[i];
        const size_t r = rank_of(c->self, v->rows, v->cols);
        at += r * iters_of(c->self, r, v->rows, v->cols);
    }
    return at;
}

/* Callable before the states exist: the answer is the later one. */
static bool is_narrow(const tutti_codec *c, const tutti_view *v)
{
    const powersgd *s = c->self;

    return factors[s->factor] != TUTTI_F32 && rank_now(c, v) > 0 &&
           (s->size == NULL || s->size[size_place(c, v->tensor)] > SIZE_UNKNOWN);
}

static tutti_dtype powersgd_number(const tutti_codec *c, const tutti_view *v)
{
    return is_narrow(c, v) ? factors[((const powersgd *)c->self)->factor] : TUTTI_F32;
}

/* A generator shared by all workers: one a tensor, and one a step where the directions are
   redrawn; the upper word of `step` is orth's. */
static tutti_rng shared(const tutti_codec *c, const tutti_view *v, int tensor)
{
    tutti_rng rng = tutti_codec_rng(c, v, true);

    rng.stream += ((uint64_t)tensor + 1) << 8;
    return rng;
}

static unsigned powersgd_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_WHOLE_TENSOR;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    const size_t count = powersgd_place(c, c->space->n_tensors);

    if (count > 0)
        tutti_codec_declare_floats(c, plan, "q", TUTTI_SAME, count, &((powersgd *)c->self)->q);
    if (count > 0 && factors[((powersgd *)c->self)->factor] != TUTTI_F32)
        tutti_codec_declare_floats(c, plan, "sizes", TUTTI_SAME, size_place(c, c->space->n_tensors),
                                   &((powersgd *)c->self)->size);
}

static void open(tutti_codec *c)
{
    powersgd *s = c->self;

    for (int t = 0; t < c->space->n_tensors; t++) {
        const tutti_view *v = &c->space->tensor[t];
        const size_t n = v->cols * rank_of(s, v->rows, v->cols);
        if (n > 0)
            tutti_fill_normal(c->space->device, n, shared(c, &(tutti_view){ .step = 0 }, t),
                              s->q + powersgd_place(c, t));
    }
    if (s->size != NULL)
        tutti_fill(c->space->device, size_place(c, c->space->n_tensors), SIZE_UNKNOWN, s->size);
}

/* Q_own of each product, and where Q is not kept the drawn one; with 16 bits also P^ and the mean
   Q of each. */
static size_t scratch_bytes(const tutti_codec *c, const tutti_view *v)
{
    return rank_now(c, v) * iters_of(c->self, rank_now(c, v), v->rows, v->cols) *
           (v->cols +
            (factors[((const powersgd *)c->self)->factor] != TUTTI_F32 ? v->rows + v->cols : 0)) *
           sizeof(float);
}

static size_t powersgd_width(const tutti_codec *c, const tutti_view *v, int round)
{
    const size_t r = rank_now(c, v);

    if (r == 0)
        return round == 0 ? v->count : 0;
    return (size_t)round / 2 >= iters_of(c->self, r, v->rows, v->cols)
               ? 0
               : r * (round % 2 == 0 ? v->rows : v->cols);
}

/* ---- factors as floats: on the wire, or in the scratch where the wire has 16 bits ---- */
static float *p_of(const tutti_codec *c, const tutti_view *v, size_t r, size_t j, void *scratch,
                   void *const *wire)
{
    return is_narrow(c, v)
               ? (float *)scratch + r * iters_of(c->self, r, v->rows, v->cols) * v->cols +
                     j * r * v->rows
               : wire[2 * j];
}

static float *q_of(const tutti_codec *c, const tutti_view *v, size_t r, size_t j, void *scratch,
                   void *const *wire)
{
    return is_narrow(c, v) ? (float *)scratch +
                                 r * iters_of(c->self, r, v->rows, v->cols) * (v->cols + v->rows) +
                                 j * r * v->cols
                           : wire[2 * j + 1];
}

/* The exponent by which column k of product j's Q is divided on the wire. */
static int size_of(const tutti_codec *c, const tutti_view *v, size_t r, size_t j, size_t k)
{
    return (int)((const powersgd *)c->self)->size[size_place(c, v->tensor) + j * r + k];
}

/* The products of a tensor's view with r columns, in these buffers. */
typedef struct product {
    tutti_codec *c;
    const tutti_view *v;
    size_t r;
    void *scratch;
    void *const *wire;
} product;

static void scale_columns(const product *w, size_t j, int times, size_t n, float *of)
{
    const tutti_codec *c = w->c;
    const tutti_view *v = w->v;
    const size_t r = w->r;

    for (size_t k = 0; k < r; k++)
        tutti_scale(c->space->device, n, ldexpf(1, times * size_of(c, v, r, j, k)), of + k * n);
}

/* The wire's numbers of a round as floats. */
static void widen(const tutti_codec *c, const tutti_view *v, size_t n, void *in, float *out)
{
    tutti_device *d = c->space->device;

    tutti_cast(d, (tutti_buffer){ d, in, n, powersgd_number(c, v) }, tutti_f32(d, out, n));
}

static void narrow(const tutti_codec *c, const tutti_view *v, size_t n, float *in, void *out)
{
    tutti_device *d = c->space->device;

    tutti_cast(d, tutti_f32(d, in, n), (tutti_buffer){ d, out, n, powersgd_number(c, v) });
}

/* The mean Q of all products as floats of their own size. */
static void widen_means(const product *w)
{
    const tutti_codec *c = w->c;
    const tutti_view *v = w->v;
    const size_t r = w->r;
    void *scratch = w->scratch;
    void *const *wire = w->wire;

    for (size_t j = 0; j < iters_of(c->self, r, v->rows, v->cols) && is_narrow(c, v); j++) {
        float *q = q_of(c, v, r, j, scratch, wire);
        widen(c, v, r * v->cols, wire[2 * j + 1], q);
        scale_columns(w, j, 1, v->cols, q);
    }
}

/* The columns of P of product j become orthonormal, and orthogonal to those of the products
   before. */
static void make_orthonormal(const tutti_codec *c, const tutti_view *v, size_t r, size_t j,
                             void *scratch, void *const *wire)
{
    float *column[RANK_MOST * ITERS_MOST];

    for (size_t k = 0; k < (j + 1) * r; k++)
        column[k] = p_of(c, v, r, k / r, scratch, wire) + k % r * v->rows;
    tutti_codec_orthonormalise(c->space->device, v->rows, j * r, (j + 1) * r, column,
                               shared(c, v, v->tensor));
}

/* y += a (the sum of the products P^ Q^T from the first on); Q: this worker's own, or the mean.
   From the end, where the fold has just been. */
static void add_products(const product *w, size_t first, bool own, float a, float *y)
{
    const tutti_codec *c = w->c;
    const tutti_view *v = w->v;
    const size_t r = w->r;
    void *scratch = w->scratch;
    void *const *wire = w->wire;
    const size_t rows = v->rows, cols = v->cols, products = iters_of(c->self, r, rows, cols);

    for (size_t end = first < products ? rows : 0, i; end > 0; end = i) {
        i = end > PANEL ? end - PANEL : 0;
        for (size_t j = first; j < products; j++)
            tutti_rows_add(c->space->device, end - i, cols, a, (int)r,
                           p_of(c, v, r, j, scratch, wire) + i, rows,
                           own ? (float *)scratch + j * r * cols : q_of(c, v, r, j, scratch, wire),
                           y + i * cols);
    }
}

/* r columns divided by powers of two, to about 1. */
static void take_units(const tutti_codec *c, size_t r, size_t n, const float *from, float *to)
{
    tutti_copy(c->space->device, r * n, from, to);
    for (size_t k = 0; k < r; k++)
        tutti_codec_to_unit(c->space->device, n, to + k * n);
}

/* Folds the rows [from, to), which x holds; it is called for the last rows first. */
static void fold_p(const product *w, size_t j, size_t from, size_t to, const float *x)
{
    tutti_codec *c = w->c;
    const tutti_view *v = w->v;
    const size_t r = w->r;
    void *scratch = w->scratch;
    void *const *wire = w->wire;
    tutti_device *d = c->space->device;
    const powersgd *s = c->self;
    const size_t rows = v->rows, cols = v->cols;
    const float *q = s->q + powersgd_place(c, v->tensor);
    /* where Q_own will be */
    float *p = p_of(c, v, r, j, scratch, wire), *own = (float *)scratch + j * r * cols;

    assert(v->tensor >= 0 && v->count == rows * cols);
    if (j > 0) {
        if (is_narrow(c, v))
            /* as it travelled: its columns are about 1 */
            widen(c, v, r * cols, wire[2 * j - 1], own);
        else
            take_units(c, r, cols, wire[2 * j - 1], own);
        q = own;
    } else if (!s->warm_start) {
        if (to == rows)
            tutti_fill_normal(d, r * cols, shared(c, v, v->tensor), own);
        q = own;
    }
    /* P = D Q, from the end of D, which is still in the caches since D was just made */
    for (size_t end = to, i; end > from; end = i) {
        i = end - from > PANEL ? end - PANEL : from;
        tutti_rows_dot(d, end - i, cols, x + (i - from) * cols, (int)r, q, p + i, rows);
    }
    if (is_narrow(c, v) && from == 0) {
        scale_columns(w, j > 0 ? j - 1 : 0, -1, rows, p); /* of D times about 1 */
        narrow(c, v, r * rows, p, wire[2 * j]);
    }
}

static void fold_q(const product *w, size_t j, const float *x)
{
    tutti_codec *c = w->c;
    const tutti_view *v = w->v;
    const size_t r = w->r;
    void *scratch = w->scratch;
    void *const *wire = w->wire;
    tutti_device *d = c->space->device;
    const size_t rows = v->rows, cols = v->cols;
    float *own = (float *)scratch + j * r * cols, *to = is_narrow(c, v) ? own : wire[2 * j + 1];

    if (is_narrow(c, v))
        widen(c, v, r * rows, wire[2 * j], p_of(c, v, r, j, scratch, wire));
    make_orthonormal(c, v, r, j, scratch, wire);
    tutti_fill(d, r * cols, 0, to);
    /* Q = D^T P^ */
    tutti_rows_sum(d, rows, cols, x, (int)r, p_of(c, v, r, j, scratch, wire), rows, to);
    if (is_narrow(c, v)) {
        scale_columns(w, j, -1, cols, own);
        narrow(c, v, r * cols, own, wire[2 * j + 1]);
        widen(c, v, r * cols, wire[2 * j + 1], own); /* what is sent is what it has become */
        scale_columns(w, j, 1, cols, own);
    } else
        tutti_copy(d, r * cols, to, own);
}

static void fold_part(tutti_codec *c, const tutti_view *v, size_t from, size_t count,
                      const float *x, void *scratch, void *const *wire)
{
    const size_t r = rank_now(c, v);

    if (r == 0)
        tutti_copy(c->space->device, count, x, (float *)wire[0] + from);
    else
        fold_p(&(product){ c, v, r, scratch, wire }, 0, from / v->cols, (from + count) / v->cols,
               x);
}

static void powersgd_fold(tutti_codec *c, const tutti_view *v, int round, const float *x,
                          void *scratch, void *const *wire)
{
    const size_t r = rank_now(c, v), j = (size_t)round / 2;

    if (round == 0)
        fold_part(c, v, 0, v->count, x, scratch, wire);
    else if (r == 0 || j >= iters_of(c->self, r, v->rows, v->cols))
        return;
    else if (round % 2 == 0)
        fold_p(&(product){ c, v, r, scratch, wire }, j, 0, v->rows, x);
    else
        fold_q(&(product){ c, v, r, scratch, wire }, j, x);
}

static void mine(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y)
{
    const powersgd *s = c->self;
    const size_t r = rank_now(c, v);

    if (r == 0)
        tutti_axpy(c->space->device, v->count, a, s->ef_rule == LOCAL ? x : wire[0], y);
    else {
        if (s->ef_rule == AGGREGATED)
            widen_means(&(product){ c, v, r, scratch, wire });
        add_products(&(product){ c, v, r, scratch, wire }, 0, s->ef_rule == LOCAL, a, y);
    }
}

/* Learns what the next step divides product j by. Where a column is 0, possibly because 16 bits
   cannot distinguish it from 0, the divisor falls further with each step. */
static void learn_sizes(const tutti_codec *c, const tutti_view *v, size_t r, size_t j,
                        const float *q)
{
    float *size = ((const powersgd *)c->self)->size + size_place(c, v->tensor) + j * r;

    for (size_t k = 0; k < r; k++) {
        const double square = tutti_norm2(c->space->device, v->cols, q + k * v->cols);
        const int e = square > 0               ? ilogb(sqrt(square))
                      : size[k] > SIZE_UNKNOWN ? (int)size[k] - SIZE_LESS
                                               : 0;
        size[k] = (float)(e > SIZE_MOST ? SIZE_MOST : e < -SIZE_MOST ? -SIZE_MOST : e);
    }
}

static void unfold(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y)
{
    tutti_device *d = c->space->device;
    const powersgd *s = c->self;
    const size_t r = rank_now(c, v), products = iters_of(s, r, v->rows, v->cols);
    const float *q[ITERS_MOST];
    bool finite = true;

    if (r == 0) {
        tutti_copy(d, v->count, wire[0], y);
        return;
    }
    widen_means(&(product){ c, v, r, scratch, wire });
    tutti_rows_product(d, v->rows, v->cols, (int)r, p_of(c, v, r, 0, scratch, wire), v->rows,
                       q_of(c, v, r, 0, scratch, wire), y);
    add_products(&(product){ c, v, r, scratch, wire }, 1, false, 1, y);
    for (size_t j = 0; j < products; j++) {
        q[j] = q_of(c, v, r, j, scratch, wire);
        finite = finite && tutti_finite(d, r * v->cols, q[j]);
    }
    if (!finite) /* one step with a NaN must not spoil all that follow */
        return;
    for (size_t j = 0; j < products && s->size != NULL; j++)
        learn_sizes(c, v, r, j, q[j]);
    if (s->warm_start)
        take_units(c, r, v->cols, q[products - 1], s->q + powersgd_place(c, v->tensor));
}

/* Bytes of a matrix's factors in one step, once it is compressed. */
static size_t factor_bytes(const tutti_codec *c, const tutti_view *v, size_t r)
{
    return r * iters_of(c->self, r, v->rows, v->cols) * (v->rows + v->cols) *
           tutti_dtype_bytes(factors[((const powersgd *)c->self)->factor]);
}

/* A warning for the user that matrices travel dense in spite of the given rank, since their
   factors would be no smaller. */
static void warn(const tutti_codec *c, const tutti_codec_moment *m)
{
    const powersgd *s = c->self;
    size_t dense = 0, matrices = 0, elements = 0, all = 0;
    int first = -1;
    char text[320];

    for (int t = 0; t < c->space->n_tensors; t++) {
        const tutti_view *v = &c->space->tensor[t];
        if (v->rows < 2)
            continue;
        matrices++;
        all += v->count;
        if (rank_of(s, v->rows, v->cols) > 0)
            continue;
        dense++;
        elements += v->count;
        first = first < 0 ? t : first;
    }
    if (dense == 0)
        return;
    snprintf(text, sizeof text,
             "powersgd: %zu of %zu matrices travel as they are, %.3g %% of their elements: they "
             "are so small that rank %lld does not shrink them more than %g times "
             "(min_compression_rate); the first is %zu x %zu; a lower rank shrinks more",
             dense, matrices, 100.0 * (double)elements / (double)all, (long long)s->rank,
             s->min_compression_rate, c->space->tensor[first].rows, c->space->tensor[first].cols);
    m->say(m->with, "codec", text);
}

/* Sends nothing, asks for nothing: reports once how each matrix travels. */
static size_t powersgd_begin(tutti_codec *c, const tutti_codec_moment *m, int round,
                             float **numbers)
{
    enum { SHOWN = 24, EACH = 120 };
    const powersgd *s = c->self;
    size_t used = 0, products = 0, matrices = 0, before = 0, after = 0;
    char list[SHOWN * EACH] = "", text[sizeof list + 240];

    (void)round, (void)numbers;
    if (m->step > 0 || m->say == NULL)
        return 0;
    for (int t = 0; t < c->space->n_tensors; t++) {
        const tutti_view *v = &c->space->tensor[t];
        const size_t least = v->rows < v->cols ? v->rows : v->cols,
                     r = rank_of(s, v->rows, v->cols),
                     asked = (size_t)s->rank < least ? (size_t)s->rank : least;
        char *at = list + used;
        const size_t room = used < sizeof list ? sizeof list - used : 0;
        if (v->rows < 2)
            continue;
        if (r > 0) {
            before += v->count * sizeof(float), after += factor_bytes(c, v, r);
            products++;
        }
        if (matrices++ >= SHOWN || room == 0)
            continue;
        if (r > 0)
            used += (size_t)snprintf(at, room, "; %d (%zu x %zu): rank %zu, %zu -> %zu bytes", t,
                                     v->rows, v->cols, r, v->count * sizeof(float),
                                     factor_bytes(c, v, r));
        else
            used += (size_t)snprintf(
                at, room,
                "; %d (%zu x %zu): as it is, since rank %zu%s shrinks it %.3g times, not more than "
                "%g",
                t, v->rows, v->cols, asked, asked < (size_t)s->rank ? ", its lesser side," : "",
                (double)v->count /
                    (double)((v->rows + v->cols) * asked * iters_of(s, asked, v->rows, v->cols)),
                s->min_compression_rate);
    }
    snprintf(text, sizeof text,
             "powersgd: %zu of %zu matrices travel as products from step %lld on, %zu -> %zu bytes "
             "a step%s%s",
             products, matrices, (long long)s->start_iter, before, after, list,
             matrices > SHOWN ? "; ..." : "");
    m->say(m->with, "matrices", text);
    warn(c, m);
    return 0;
}

/* Columns that both have; others are this codec's own last ones, drawn at first. */
static void follow(tutti_codec *c, const tutti_codec *from, int t)
{
    const tutti_view *v = &c->space->tensor[t];
    const powersgd *mine = c->self, *theirs = from->self;
    const size_t a = rank_of(mine, v->rows, v->cols), b = rank_of(theirs, v->rows, v->cols),
                 r = a < b ? a : b;

    if (r > 0)
        tutti_copy(c->space->device, r * v->cols, theirs->q + powersgd_place(from, t),
                   mine->q + powersgd_place(c, t));
    for (size_t k = 0; k < r && mine->size != NULL && theirs->size != NULL; k++)
        mine->size[size_place(c, t) + k] = theirs->size[size_place(from, t) + k];
}

const tutti_codec_ops tutti_codec_powersgd = {
    .name = "powersgd",
    .paper = "Vogels et al., NeurIPS 2019, algorithm 1",
    .help = "matrices as products of rank r, summed on the way",
    .options = options,
    .self_bytes = sizeof(powersgd),
    .rounds = 2 * ITERS_MOST,
    .number = powersgd_number,
    .traits = powersgd_traits,
    .declare = declare,
    .open = open,
    .begin = powersgd_begin,
    .scratch = scratch_bytes,
    .width = powersgd_width,
    .fold = powersgd_fold,
    .fold_part = fold_part,
    .mine = mine,
    .unfold = unfold,
    .follow = follow,
};
