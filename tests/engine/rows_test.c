/* Goal: tables whose rows are known train the bits that whole gradients train, whatever the
   number of workers, the optimiser and how much is touched, send exactly what the rule
   prescribes, and leave alone the rows that no worker touched. Method: a client whose gradients
   are a formula of (rank, step, pass), given once by rows and once whole; ranks are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method.h"
#include "engine/calls.h"

enum { RANKS = 5, TENSORS = 3 }; /* a vector, a table, another table */
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

typedef struct run {
    tutti_engine_options options;
    const tutti_method_ops *const *methods;
    size_t rows, cols;           /* of the first table; the second has 3 x 2 */
    double touched[RANKS];       /* share of the rows that a pass of each rank names; above 1: it announces the whole */
    bool by_rows, own_memory;
    bool from;                   /* named rows come one after the other, in memory of the call */
    /* in a pass without samples all rows are named, and the client's memory holds arbitrary
       values */
    bool in_vain;
    bool shows;                  /* the agreed model, and how far this worker's is from it, after every step */
    int steps, bad_rank, bad_step;
    float *x[RANKS];             /* at the end */
    size_t n;
    uint64_t bytes[RANKS][RANKS];
    uint64_t skipped;
    /* within the first pass, instead of computing */
    tutti_status (*probe)(struct run *r, tutti_engine *e, tutti_error *err);
} run;

static double draw(const run *r, int rank, uint64_t step, int64_t pass, uint64_t what)
{
    return tutti_uniform((tutti_rng){ r->options.seed + 1, 1000 + (uint64_t)rank, step * 64 + (uint64_t)pass }, what);
}

static void initial(void *user, int tensor, float *values)
{
    const run *r = user;
    const size_t n = tensor == 0 ? 37 : tensor == 1 ? r->rows * r->cols : 6;
    for (size_t i = 0; i < n; i++)
        values[i] = (float)tutti_normal((tutti_rng){ r->options.seed, 7 + (uint64_t)tensor, 0 }, i);
}

/* Those rows of the first table, one behind the other. */
static tutti_status hand_over(const run *r, tutti_engine *e, const float *table, const uint32_t *ids, size_t n,
                              tutti_error *err)
{
    float *rows = tutti_alloc(n * r->cols + 1, sizeof *rows);
    tutti_status status;

    CHECK(rows != NULL);
    for (size_t k = 0; k < n; k++)
        memcpy(rows + k * r->cols, table + ids[k] * r->cols, r->cols * sizeof *rows);
    status = tutti_engine_grad_ready_rows_from(e, 1, ids, n, rows, TUTTI_F32, err);
    tutti_free(rows);
    return status;
}

/* The gradient of this pass: added where a row has been touched before, as nn does it. */
static tutti_status gradients(run *r, tutti_engine *e, const tutti_pass *p, float *const *memory, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    float *g[TENSORS];
    uint32_t *ids = tutti_alloc(r->rows, sizeof *ids), three[3];
    size_t n = 0, k = 0;
    tutti_status status = TUTTI_OK;

    CHECK(ids != NULL);
    for (int i = 0; i < TENSORS; i++)
        g[i] = memory[i] != NULL ? memory[i] : tutti_engine_gradient(e, i);
    for (size_t i = 0; i < 37; i++)
        g[0][i] =
            (p->keep && memory[0] == NULL ? g[0][i] : 0) + (float)(draw(r, m->rank, m->step, p->index, 5000 + i) - 0.5);
    if (!p->keep && memory[1] == NULL) /* what was there is gone */
        for (size_t i = 0; i < r->rows * r->cols && r->by_rows; i++)
            CHECK(g[1][i] == 0);
    for (size_t i = 0; i < r->rows; i++) {
        const bool touched = p->samples > 0 && draw(r, m->rank, m->step, p->index, i) < r->touched[m->rank],
                   vain = r->in_vain && p->samples == 0;
        for (size_t c = 0; c < r->cols; c++) {
            float *at = &g[1][i * r->cols + c],
                  value = touched ? (float)(draw(r, m->rank, m->step, p->index, 100000 + i * 64 + c) - 0.5) : 0;
            if (memory[1] != NULL) /* a client's own memory holds one pass; what is not named does not count */
                *at = touched || !r->by_rows ? value : vain ? NAN : 77;
            else if (r->by_rows && touched)
                *at += value;
            else if (!r->by_rows)
                *at = (p->keep ? *at : 0) + value;
            if (touched && m->rank == r->bad_rank && (int)m->step == r->bad_step && c == 0)
                *at = NAN;
        }
        if (touched || vain)
            ids[n++] = (uint32_t)i;
    }
    for (size_t i = 0; i < 3; i++) {
        const bool touched = p->samples > 0 && (m->step + i + (uint64_t)m->rank) % 2 == 0;
        for (size_t c = 0; c < 2; c++) {
            float *at = &g[2][2 * i + c], value = touched ? (float)(i + c + 1) / 8 : 0;
            if (memory[2] != NULL || !r->by_rows)
                *at = (p->keep && memory[2] == NULL ? *at : 0) + value;
            else if (touched)
                *at += value;
        }
        if (touched)
            three[k++] = (uint32_t)i;
    }
    status = tutti_engine_grad_ready(e, 0, err);
    if (status == TUTTI_OK)
        status = !r->by_rows || r->touched[m->rank] > 1 ? tutti_engine_grad_ready(e, 1, err)
                 : r->from && memory[1] != NULL         ? hand_over(r, e, g[1], ids, n, err)
                                                        : tutti_engine_grad_ready_rows(e, 1, ids, n, err);
    if (status == TUTTI_OK)
        status = r->by_rows ? tutti_engine_grad_ready_rows(e, 2, three, k, err) : tutti_engine_grad_ready(e, 2, err);
    tutti_free(ids);
    return status;
}

static tutti_status train(run *r, tutti_engine *e, tutti_world *world, float *const *memory, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint64_t before[RANKS], messages;
    tutti_pass p;

    for (int to = 0; to < m->workers; to++)
        tutti_world_sent(world, to, &before[to], &messages);
    for (int s = 0; s < r->steps; s++) {
        tutti_status status;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            if (r->probe != NULL)
                return r->probe(r, e, err);
            TUTTI_TRY(gradients(r, e, &p, memory, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 1, err));
        }
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
        if (r->shows) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            CHECK((tutti_engine_apart(e) > 0) == (m->workers > 1));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    for (int to = 0; to < m->workers; to++) {
        tutti_world_sent(world, to, &r->bytes[m->rank][to], &messages);
        r->bytes[m->rank][to] -= before[to];
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    memcpy(r->x[m->rank], m->x, r->n * sizeof(float));
    if (m->rank == 0) {
        tutti_figures f;
        tutti_engine_figures(e, &f);
        r->skipped = f.skipped;
    }
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    tutti_engine_options options = r->options;
    float *memory[TENSORS] = { 0 }, *values[TENSORS] = { 0 };
    tutti_param params[TENSORS] = {
        { .name = "c", .dims = 1, .dim = { 37 }, .unit = 2 },
        { .name = "table", .dims = 2, .dim = { r->rows, r->cols }, .unit = 1, .row_sparse = r->by_rows },
        { .name = "a", .dims = 2, .dim = { 3, 2 }, .unit = 0, .row_sparse = r->by_rows }
    };
    tutti_engine *e = NULL;
    tutti_status status = TUTTI_OK;

    options.initial = initial;
    options.user = r;
    for (int i = 0; i < TENSORS && r->own_memory; i++) {
        const size_t n = i == 0 ? 37 : i == 1 ? r->rows * r->cols : 6;
        params[i].values = values[i] = tutti_alloc(n, sizeof(float));
        params[i].gradient = memory[i] = tutti_alloc(n, sizeof(float));
        initial(r, i, values[i]);
    }
    status = tutti_engine_open_from(&e, world, params, TENSORS, &options,
                                    r->methods != NULL ? r->methods : tutti_methods, err);
    if (status == TUTTI_OK)
        status = train(r, e, world, memory, err);
    tutti_engine_close(e);
    for (int i = 0; i < TENSORS; i++) {
        tutti_free(values[i]);
        tutti_free(memory[i]);
    }
    return status;
}

static run run_of(size_t rows, size_t cols, double touched, uint64_t seed)
{
    run r = {
        .options = { .method = "ddp", .optimizer = "sgd(lr=0.125)", .batch = 2, .seed = seed }, .rows = rows,
        .cols = cols, .by_rows = true, .steps = 4, .bad_rank = -1,
    };
    for (int i = 0; i < RANKS; i++)
        r.touched[i] = touched;
    return r;
}

static tutti_status try(run *r, int n, tutti_error *err)
{
    r->n = 37 + r->rows * r->cols + 6;
    for (int i = 0; i < RANKS; i++)
        if (r->x[i] == NULL)
            r->x[i] = calloc(r->n, sizeof(float));
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, rank_main, r, err);
}

static void carry_out(run *r, int n)
{
    tutti_error err;
    if (try(r, n, &err) != TUTTI_OK)
        fail_msg("%d workers: %s", n, err.text);
}

static void drop(run *r)
{
    for (int i = 0; i < RANKS; i++) {
        free(r->x[i]);
        r->x[i] = NULL;
    }
}

static void check_same(run *by_rows, int n, const char *what)
{
    run whole = *by_rows;

    memset(whole.x, 0, sizeof whole.x);
    whole.by_rows = false;
    carry_out(by_rows, n);
    carry_out(&whole, n);
    for (int i = 0; i < n; i++)
        if (memcmp(by_rows->x[i], whole.x[i], whole.n * sizeof(float)) != 0)
            fail_msg("%s, %d workers: worker %d has another model by rows than whole", what, n, i);
    assert_int_equal(by_rows->skipped, whole.skipped);
    drop(&whole);
    drop(by_rows);
}

static void rows_and_whole_gradients_train_the_same_bits(void **state)
{
    static const char *const optimizers[] = {
        "sgd(lr=0.125)", "sgd(lr=0.1,momentum=0.9)", "adam(lr=0.01)", "adamw(lr=0.01)", "sgd(lr=0.1,weight_decay=0.1)",
        "sgd(lr=0.1,lazy=on)",
    };
    uint64_t seed = 1;

    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++, seed++) {
            const double touched[] = { 0, 0.02, 0.2, 0.5, 1, 2 };
            run r = run_of(1 + seed * 37 % 200, 1 + seed % 19, touched[seed % 6], seed);
            r.touched[seed % (uint64_t)n] = touched[seed / 6 % 5]; /* one of another kind */
            r.options.optimizer = optimizers[o];
            r.options.clip_norm = seed % 2 == 0 ? 0.3 : 0;
            r.options.accumulate = 1 + (int64_t)(seed % 3);
            r.options.lane = seed % 3 == 0 ? -1 : seed % 3 == 1 ? 0 : 2;
            r.own_memory = seed % 5 == 0;
            r.from = seed % 10 == 0;
            check_same(&r, n, optimizers[o]);
        }
}

/* A step in which only some workers have samples weighs them differently, and leaves lists
   empty. */
static void uneven_shares_train_the_same_bits(void **state)
{
    const int64_t shares[3] = { 4, 0, 2 };
    run r = run_of(90, 5, 0.1, 3);

    (void)state;
    r.options.batch_of = shares;
    check_same(&r, 3, "uneven shares");
    r = run_of(90, 5, 0.1, 4);
    r.options.data_samples = 9; /* steps of 6 and 3 */
    r.steps = 5;
    check_same(&r, 3, "a short step");
    r = run_of(90, 5, 0.1, 5);
    r.options.data_samples = 7; /* steps of 6 and 1: for two workers of three there are none */
    r.steps = 5;
    r.own_memory = r.in_vain = true;
    check_same(&r, 3, "rows named in a pass without samples");
    r.from = true;
    check_same(&r, 3, "rows handed over in a pass without samples");
}

/* ---- methods of other kinds ---- */
static tutti_status whole_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_allreduce_weighted(&p->group, (float)m->weight, tutti_f32(m->device, p->g, p->count), err);
}

static void methods_that_know_no_rows_get_the_whole_gradient(void **state)
{
    static const tutti_method_ops plain = {
        .name = "plain", .exchange = whole_exchange, .traits = TUTTI_REPLICAS_EQUAL,
    };
    static const tutti_method_ops mixed = {
        .name = "mixed", .exchange = whole_exchange, .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SPARSE_ROWS,
    };
    const tutti_method_ops *const methods[] = { &plain, &mixed, NULL };

    (void)state;
    for (int k = 0; k < 2; k++) {
        run r = run_of(150, 4, 0.05, 20 + (uint64_t)k), d = r;
        r.methods = methods;
        r.options.method = methods[k]->name;
        r.options.clip_norm = 0.5;
        d.options.clip_norm = 0.5;
        carry_out(&r, 3);
        carry_out(&d, 3);
        assert_memory_equal(r.x[1], d.x[1], r.n * sizeof(float)); /* ddp's */
        drop(&r);
        drop(&d);
    }
    run single = run_of(60, 3, 0.2, 9);
    single.options.method = "single";
    check_same(&single, 3, "single");
    single.shows = true;
    check_same(&single, 3, "single, looked at between steps");
}

/* ---- the norm ---- */

/* Of what has been exchanged: whole, including the padding at the end, in ranges of one to three
   blocks. */
static tutti_status look_at_blocks(tutti_method *m, tutti_error *err)
{
    enum { BLOCKS = 32 };
    const size_t used = m->layout->used, blocks = (used + TUTTI_NORM_BLOCK - 1) / TUTTI_NORM_BLOCK;
    double expect[BLOCKS] = { 0 }, sums[BLOCKS];

    CHECK(blocks > 3 && blocks < BLOCKS && m->n < BLOCKS * (size_t)TUTTI_NORM_BLOCK);
    for (size_t b = 0; b < blocks; b++) {
        const size_t at = b * TUTTI_NORM_BLOCK, left = used - at;
        expect[b] = tutti_norm2(m->device, left < TUTTI_NORM_BLOCK ? left : TUTTI_NORM_BLOCK, m->g + at);
    }
    tutti_norm2_blocks(m, 0, used, sums);
    CHECK(memcmp(sums, expect, blocks * sizeof *sums) == 0);
    tutti_norm2_blocks(m, 0, m->n, sums);
    CHECK(memcmp(sums, expect, (m->n + TUTTI_NORM_BLOCK - 1) / TUTTI_NORM_BLOCK * sizeof *sums) == 0);
    for (size_t b = 0, some; b < blocks; b += some) {
        some = 1 + (b + m->step) % 3;
        some = some < blocks - b ? some : blocks - b;
        tutti_norm2_blocks(m, b * TUTTI_NORM_BLOCK, b + some < blocks ? some * TUTTI_NORM_BLOCK
                                                                      : used - b * TUTTI_NORM_BLOCK, sums);
        CHECK(memcmp(sums, expect + b, some * sizeof *sums) == 0);
    }
    return tutti_base_step(m, err);
}

static void norm_is_independent_of_how_the_vector_is_cut(void **state)
{
    static const struct { size_t rows, cols; double touched; } tables[] = {
        { 3000, 7, 0.02 }, { 3000, 7, 0.3 }, { 5000, 3, 0 }, { 3, 9000, 0.5 }, { 20, 1000, 1 }, { 2, 8192, 2 },
    };
    tutti_method_ops row = *tutti_method_find("ddp");
    const tutti_method_ops *const rows[] = { &row, NULL };

    (void)state;
    row.step = look_at_blocks;
    for (size_t k = 0; k < TUTTI_LENGTH(tables); k++)
        for (int n = 1; n <= 3; n++) {
            run r = run_of(tables[k].rows, tables[k].cols, tables[k].touched, 90 + k);
            r.methods = rows;
            r.options.clip_norm = 0.3;
            check_same(&r, n, "blocks of the norm");
        }
}

static void clipped_run_is_identical_for_all_pieces_and_threads(void **state)
{
    static const struct { const char *method; int lane; } cuts[] = {
        { "ddp", 0 }, { "ddp(bucket_mb=0.01)", 2 }, { "ddp(bucket_mb=0.0001)", 1 }, { "ddp(bucket_mb=0.001)", -1 },
    };

    (void)state;
    for (int n = 1; n <= 4; n += 3) {
        run first = run_of(900, 11, 0.4, 5);
        first.options.clip_norm = 0.2;
        carry_out(&first, n);
        for (size_t k = 0; k < TUTTI_LENGTH(cuts); k++)
            for (int by_rows = 0; by_rows < 2; by_rows++) {
                run r = run_of(900, 11, 0.4, 5);
                r.by_rows = by_rows;
                r.options.method = cuts[k].method;
                r.options.lane = cuts[k].lane;
                r.options.clip_norm = 0.2;
                carry_out(&r, n);
                assert_memory_equal(r.x[0], first.x[0], r.n * sizeof(float));
                drop(&r);
            }
        drop(&first);
    }
}

/* ---- traffic ---- */

/* Tables of 200 x 7 and 3 x 2 and a vector of 37, 3 workers, one step. A run in which no worker
   touches a row of the large table sends the vector, the small table, and counts of rows; one
   whose method exchanges all whole sends the same without the two counts, and the table. The
   difference is what a table's exchange adds, for each pair. */
static void traffic_per_pair_follows_the_table_exchange_rule(void **state)
{
    static const tutti_method_ops mixed = {
        .name = "mixed", .exchange = whole_exchange, .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SPARSE_ROWS,
    };
    static const tutti_method_ops *const methods[] = { &mixed, NULL };
    static const double touched[] = { 0.005, 0.1, 0.4, 0.55, 0.7, 0.76, 1 };
    bool sparse[2] = { false, false };

    (void)state;
    for (size_t k = 0; k < 2 * TUTTI_LENGTH(touched); k++) {
        const bool lazy = k >= TUTTI_LENGTH(touched); /* in addition to a whole table a bit a
                                                         row, in words of 8 bytes */
        const double share = touched[k % TUTTI_LENGTH(touched)];
        run none = run_of(200, 7, 0, 60 + k), whole = none, r = none;
        uint64_t rows[3] = { 0 }, all = 0;
        none.steps = whole.steps = r.steps = 1;
        none.options.optimizer = whole.options.optimizer = r.options.optimizer =
            lazy ? "adam(lr=0.01,lazy=on)" : "sgd(lr=0.125)";
        whole.methods = methods;
        whole.options.method = "mixed";
        for (int w = 0; w < 3; w++)
            r.touched[w] = w == 1 ? share / 2 : share;
        carry_out(&none, 3);
        carry_out(&whole, 3);
        carry_out(&r, 3);
        for (int w = 0; w < 3; w++)
            for (uint64_t i = 0; i < 200; i++)
                rows[w] += draw(&r, w, 0, 0, i) < r.touched[w];
        for (int w = 0; w < 3; w++)
            all += rows[w] * (7 + 1);
        for (int from = 0; from < 3; from++)
            for (int to = 0; to < 3; to++) {
                const uint64_t expected = all < 2 * 200 * 7 ? none.bytes[from][to] + rows[from] * (7 + 1) * 4
                                                            : whole.bytes[from][to] + 2 * sizeof(int64_t) +
                                                                  (lazy && share < 1 ? 32 : 0) + (lazy ? 8 : 0);
                if (from != to && r.bytes[from][to] != expected)
                    fail_msg("%g touched%s: %d sent %d %llu bytes instead of %llu", share, lazy ? ", lazy" : "", from,
                             to, (unsigned long long)r.bytes[from][to], (unsigned long long)expected);
            }
        sparse[all < 2 * 200 * 7] = true;
        drop(&none);
        drop(&whole);
        drop(&r);
    }
    assert_true(sparse[0] && sparse[1]);
}

/* ---- lazy rows ---- */

/* Momentum 1/2, rate 1/8, one worker or two: all products are exact, so the rule can be followed
   in float. The table travels as rows or whole, which must make no difference. */
static void follow_lazy_rows(int n, size_t cols, double share)
{
    run r = run_of(40, cols, share, 77);
    float *x = calloc(40 * cols, sizeof *x), *b = calloc(40 * cols, sizeof *b);

    r.options.optimizer = "sgd(lr=0.125,momentum=0.5,lazy=on)";
    r.options.clip_norm = 0;
    r.steps = 6;
    carry_out(&r, n);
    initial(&r, 1, x);
    for (uint64_t step = 0; step < 6; step++)
        for (uint64_t i = 0; i < 40; i++) {
            bool touched = false;
            for (int w = 0; w < n; w++)
                touched = touched || draw(&r, w, step, 0, i) < share;
            for (uint64_t c = 0; c < cols && touched; c++) {
                float g = 0;
                for (int w = 0; w < n; w++)
                    g += draw(&r, w, step, 0, i) < share
                             ? (float)(draw(&r, w, step, 0, 100000 + i * 64 + c) - 0.5) / (float)n
                             : 0;
                b[cols * i + c] = 0.5f * b[cols * i + c] + g;
                x[cols * i + c] -= 0.125f * b[cols * i + c];
            }
        }
    for (int w = 0; w < n; w++)
        if (memcmp(r.x[w] + 37, x, 40 * cols * sizeof *x) != 0)
            fail_msg("%d workers, %zu columns, touched %g: rows that nobody has named have moved, or others have not",
                     n, cols, share);
    drop(&r);
    free(x);
    free(b);
}

static void lazy_rows_keep_their_values_and_slots(void **state)
{
    float *x = calloc(150, sizeof *x);

    (void)state;
    for (int n = 1; n <= 2; n++)
        for (size_t cols = 1; cols <= 3; cols += 2)
            for (int k = 0; k < 4; k++)
                follow_lazy_rows(n, cols, (const double[]){ 0.2, 0.4, 0.7, 0.85 }[k]);

    for (int n = 1; n <= 3; n += 2) { /* where every row is touched in every step, lazy or not is the same */
        run lazy = run_of(30, 5, 1, 78), eager = lazy;
        lazy.options.optimizer = "adam(lr=0.01,lazy=on)";
        eager.options.optimizer = "adam(lr=0.01)";
        carry_out(&lazy, n);
        carry_out(&eager, n);
        /* the small table is touched in turns */
        assert_memory_equal(lazy.x[0], eager.x[0], (37 + 150) * sizeof(float));
        drop(&lazy);
        drop(&eager);
        lazy = run_of(30, 5, 0.01, 79); /* most are never touched */
        lazy.options.optimizer = "adamw(lr=0.01,lazy=on)";
        carry_out(&lazy, n);
        initial(&lazy, 1, x);
        for (uint64_t i = 0; i < 30; i++) {
            bool touched = false;
            for (int w = 0; w < n; w++)
                for (uint64_t step = 0; step < 4; step++)
                    touched = touched || draw(&lazy, w, step, 0, i) < 0.01;
            assert_int_equal(memcmp(lazy.x[0] + 37 + 5 * i, x + 5 * i, 5 * sizeof *x) == 0, !touched);
        }
        drop(&lazy);
    }
    free(x);
}

/* ---- what goes wrong ---- */
static void a_gradient_that_is_not_finite_is_found_in_its_row(void **state)
{
    tutti_error err;
    run r = run_of(80, 3, 0.5, 31);

    (void)state;
    r.bad_rank = 1;
    r.bad_step = 2;
    assert_int_equal(try(&r, 3, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "worker 1: the gradient of table is nan at element"));
    r.options.nonfinite = TUTTI_NONFINITE_SKIP;
    check_same(&r, 3, "a step left out");
    r = run_of(80, 3, 0.5, 31);
    r.bad_rank = 1;
    r.bad_step = 2;
    r.options.nonfinite = TUTTI_NONFINITE_SKIP;
    carry_out(&r, 3);
    assert_int_equal(r.skipped, 1);
    drop(&r);
}

static tutti_status misuse(run *r, tutti_engine *e, tutti_error *err)
{
    const uint32_t down[] = { 3, 3 }, high[] = { 2, 10 };

    (void)r;
    CHECK(tutti_engine_grad_ready_rows(e, 0, down, 1, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "c, which was not given as row_sparse") != NULL);
    CHECK(tutti_engine_grad_ready_rows(e, 1, high, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 10 of table at place 1; rows must ascend, and there are 10") != NULL);
    CHECK(tutti_engine_grad_ready_rows(e, 1, down, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 3 of table at place 1; rows must ascend") != NULL);
    CHECK(tutti_engine_grad_ready_rows(e, 9, down, 1, err) == TUTTI_ERR_USAGE);
    CHECK(tutti_engine_grad_ready_rows(e, 1, down, 1, err) == TUTTI_OK);
    CHECK(tutti_engine_grad_ready_rows(e, 1, down, 1, err) == TUTTI_ERR_STATE &&
          strstr(err->text, "announced twice") != NULL);
    return TUTTI_OK;
}

static tutti_status flat_table(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param flat = { .name = "t", .dims = 1, .dim = { 9 }, .row_sparse = true };
    tutti_engine *e;

    (void)arg;
    CHECK(tutti_engine_open(&e, world, &flat, 1, NULL, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "'t' is row_sparse with 1 dimension and 9 rows") != NULL);
    return TUTTI_OK;
}

static void misuse_is_rejected_with_an_error_message(void **state)
{
    run r = run_of(10, 3, 0.5, 1);
    tutti_error err = { .rank = -1 };

    (void)state;
    r.probe = misuse;
    carry_out(&r, 1);
    drop(&r);
    if (tutti_world_run("shm", 1, flat_table, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_whole_gradients_train_the_same_bits),
        cmocka_unit_test(uneven_shares_train_the_same_bits),
        cmocka_unit_test(methods_that_know_no_rows_get_the_whole_gradient),
        cmocka_unit_test(norm_is_independent_of_how_the_vector_is_cut),
        cmocka_unit_test(clipped_run_is_identical_for_all_pieces_and_threads),
        cmocka_unit_test(traffic_per_pair_follows_the_table_exchange_rule),
        cmocka_unit_test(lazy_rows_keep_their_values_and_slots),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_found_in_its_row),
        cmocka_unit_test(misuse_is_rejected_with_an_error_message),
    };
    return cmocka_run_group_tests_name("engine/rows", tests, NULL, NULL);
}
