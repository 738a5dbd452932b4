/* Goal: tables under methods with servers: gradients go by rows, and rows come that were asked
   for; bits, sums and traffic are those that the rule prescribes, and no gradient is computed
   from an old row. Method: a client whose gradients are a formula of (rank, step) and of the rows
   that it reads; all others are poisoned in its eyes, since a formula never looks at them. Ranks
   are threads. Other schedules are tests/explore's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sanitized.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { RANKS = 8, TENSORS = 4, TABLE = 1, SMALL = 3 };
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

typedef struct run {
    tutti_engine_options options;
    size_t count[TENSORS], cols; /* of the table; the small one has 2 */
    double touched;              /* share of the rows that a pass names */
    bool rows, asks, own_memory; /* the client knows rows; it asks for them */
    bool constant;               /* gradients that do not depend on the model, of dyadic numbers */
    bool once;                   /* worker 0 touches rows in its first step, and no worker any others */
    bool shows;                  /* the agreed model after every step */
    int steps;
    const int64_t *reshare;      /* after step 1 */
    float *x[RANKS];             /* at the end */
    uint64_t bytes[RANKS][RANKS];
    tutti_figures figures[RANKS];
    /* within the first pass, instead of computing */
    tutti_status (*probe)(struct run *r, tutti_engine *e, tutti_error *err);
} run;
static _Atomic int done[RANKS];  /* steps of each */
static atomic_bool late;

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static size_t size_of(const run *r)
{
    return r->count[0] + r->count[1] + r->count[2] + r->count[3];
}

static size_t cols_of(const run *r, int tensor)
{
    return tensor == TABLE ? r->cols : tensor == SMALL ? 2 : 1;
}

static double draw(const run *r, int rank, uint64_t step, int64_t pass, uint64_t what)
{
    return tutti_uniform((tutti_rng){ r->options.seed + 1, 1000 + (uint64_t)rank, step * 64 + (uint64_t)pass }, what);
}

/* Where little is touched, at most one row of the small table is, or that table would travel
   whole. */
static bool is_touched(const run *r, int rank, uint64_t step, int64_t pass, int tensor, size_t row)
{
    return (!r->once || (rank == 0 && step == 0)) && (tensor != SMALL || row == 0 || r->touched > 0.1) &&
           draw(r, rank, step, pass, (uint64_t)tensor << 32 | row) < r->touched;
}

static float initial_value(size_t i)
{
    return (float)(i % 64) / 16 - 2;
}

static void initial(void *user, int tensor, float *values)
{
    const run *r = user;
    size_t first = 0;

    for (int k = 0; k < tensor; k++)
        first += r->count[k];
    for (size_t i = 0; i < r->count[tensor]; i++)
        values[i] = initial_value(first + i);
}

static float constant_of(int rank, size_t i)
{
    return (float)((rank * 37 + (int)(i % 29) * 5) % 32) / 8 - 2;
}

static float value(const run *r, int rank, uint64_t step, size_t i, float x)
{
    return r->constant ? constant_of(rank, i) : 0.5f * x - (float)((rank * 13 + (int)(i % 17) + (int)step) % 19) / 8;
}

static tutti_status one_table(run *r, tutti_engine *e, const tutti_pass *p, int tensor, float *memory, float *values,
                              uint32_t *ids, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_tensor *t = &m->layout->tensor[tensor];
    float *g = memory != NULL ? memory : m->g + t->first;
    const float *x = values != NULL ? values : m->x + t->first;
    size_t n = 0;

    for (size_t row = 0; row < t->count / cols_of(r, tensor); row++)
        if (p->samples > 0 && is_touched(r, m->rank, m->step, p->index, tensor, row))
            ids[n++] = (uint32_t)row;
    if (r->asks)
        TUTTI_TRY(tutti_engine_rows_acquire(e, tensor, ids, n, err));
    if (!r->rows && !(p->keep && memory == NULL))
        memset(g, 0, t->count * sizeof *g);
    for (size_t k = 0; k < n; k++)
        for (size_t c = 0, cols = cols_of(r, tensor); c < cols; c++) {
            const size_t i = ids[k] * cols + c;
            g[i] = (memory == NULL ? g[i] : 0) + value(r, m->rank, m->step, t->first + i, x[i]);
        }
    return r->rows ? tutti_engine_grad_ready_rows(e, tensor, ids, n, err) : tutti_engine_grad_ready(e, tensor, err);
}

static tutti_status gradients(run *r, tutti_engine *e, const tutti_pass *p, float *const *memory, float *const *values,
                              tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint32_t *ids = tutti_alloc(r->count[TABLE] + 3, sizeof *ids);
    tutti_status status = TUTTI_OK;

    CHECK(ids != NULL);
    for (int k = 0; k < TENSORS && status == TUTTI_OK; k++) {
        const tutti_tensor *t = &m->layout->tensor[k];
        const float *x = values[k] != NULL ? values[k] : m->x + t->first;
        float *g = memory[k] != NULL ? memory[k] : m->g + t->first;
        if (k == TABLE || k == SMALL) {
            status = one_table(r, e, p, k, memory[k], values[k], ids, err);
            continue;
        }
        for (size_t i = 0; i < t->count; i++)
            g[i] = (p->keep && memory[k] == NULL ? g[i] : 0) +
                   (p->samples > 0 ? value(r, m->rank, m->step, t->first + i, x[i]) : 0);
        status = tutti_engine_grad_ready(e, k, err);
    }
    tutti_free(ids);
    return status;
}

static tutti_status train(run *r, tutti_engine *e, tutti_world *world, float *const *memory, float *const *values,
                          tutti_error *err)
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
            /* the others would long have gone on, if they did not wait */
            if (r->reshare != NULL && m->rank == 0 && s == 1)
                for (int k = 0; k < 500; k++)
                    nap();
            TUTTI_TRY(gradients(r, e, &p, memory, values, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 1, err));
        }
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
        done[m->rank]++;
        if (r->shows) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            tutti_engine_apart(e);
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
        if (r->reshare != NULL && s == 1)
            TUTTI_TRY(tutti_engine_reshare(e, r->reshare, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    for (int to = 0; to < m->workers; to++) {
        tutti_world_sent(world, to, &r->bytes[m->rank][to], &messages);
        r->bytes[m->rank][to] -= before[to];
    }
    memcpy(r->x[m->rank], m->x, size_of(r) * sizeof(float));
    tutti_engine_figures(e, &r->figures[m->rank]);
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    tutti_engine_options options = r->options;
    float *memory[TENSORS] = { 0 }, *values[TENSORS] = { 0 };
    tutti_param params[TENSORS] = {
        { .name = "c", .dims = 1, .dim = { r->count[0] }, .unit = 2 },
        { .name = "table", .dims = 2, .dim = { r->count[1] / r->cols, r->cols }, .unit = 1,
          .row_sparse = r->rows, .asks_rows = r->asks },
        { .name = "b", .dims = 1, .dim = { r->count[2] }, .unit = 1 },
        { .name = "a", .dims = 2, .dim = { r->count[3] / 2, 2 }, .unit = 0,
          .row_sparse = r->rows, .asks_rows = r->asks },
    };
    tutti_engine *e = NULL;
    tutti_status status = TUTTI_OK;

    options.initial = initial;
    options.user = r;
    for (int i = 0; i < TENSORS && r->own_memory; i++) {
        params[i].values = values[i] = tutti_alloc(r->count[i], sizeof(float));
        params[i].gradient = memory[i] = tutti_alloc(r->count[i], sizeof(float));
        initial(r, i, values[i]);
    }
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(r, e, world, memory, values, err);
    tutti_engine_close(e);
    for (int i = 0; i < TENSORS; i++) {
        tutti_free(values[i]);
        tutti_free(memory[i]);
    }
    return status;
}

static run run_of(const char *method, const char *optimizer, double touched, uint64_t seed)
{
    return (run){
        .options = { .method = method, .optimizer = optimizer, .batch = 2, .seed = seed },
        .count = { 37, 60 * 5, 20, 6 }, .cols = 5, .touched = touched, .rows = true, .asks = true, .steps = 5,
    };
}

static tutti_status try(run *r, int n, tutti_error *err)
{
    for (int i = 0; i < RANKS; i++) {
        done[i] = 0;
        if (r->x[i] == NULL)
            r->x[i] = calloc(size_of(r), sizeof(float));
    }
    late = false;
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, rank_main, r, err);
}

static void carry_out(run *r, int n)
{
    tutti_error err;
    if (try(r, n, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", r->options.method, n, err.text);
}

static void drop(run *r)
{
    for (int i = 0; i < RANKS; i++) {
        free(r->x[i]);
        r->x[i] = NULL;
    }
}

static void same(const run *a, const run *b, int n, const char *what)
{
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < size_of(a); i++)
            if (memcmp(&a->x[r][i], &b->x[r][i], sizeof(float)) != 0)
                fail_msg("%s: %s with %s on %d, touched %g, seed %llu: worker %d has %.9g at element %zu, %s has %.9g",
                         what, a->options.method, a->options.optimizer, n, a->touched,
                         (unsigned long long)a->options.seed, r, (double)a->x[r][i], i, b->options.method,
                         (double)b->x[r][i]);
}

/* ---- bits ---- */

static const char *const optimizers[] = {
    "sgd(lr=0.125)", "sgd(lr=0.125,momentum=0.5)", "sgd(lr=0.125,momentum=0.5,lazy=on)", "adamw(lr=0.01)",
    "adam(lr=0.01,lazy=on)",
};
static const double shares[] = { 0, 0.015, 0.3, 0.8, 1.1 };

static bool updates_at_servers(const char *method)
{
    return strncmp(method, "backup", 6) == 0 || strncmp(method, "parallax", 8) == 0;
}

static void synchronous_methods_have_the_bits_of_ddp(void **state)
{
    static const char *const methods[] = {
        "parameter-server", "parameter-server(servers=2)", "parameter-server(bucket_mb=0.001)",
        "backup-workers(backup=0)", "backup-workers(backup=0,servers=1)",
        "herring(servers=2,fusion_mb=0.001,min_shard_kb=0)", "herring(node=2,fusion_mb=0.001,min_shard_kb=0)",
        "parallax", "parallax(servers=2,bucket_mb=0.001)", "parallax(node=2,partitions=9)", "parallax(profile=2)",
        "parallax(profile=3,threshold=0.2,partitions=6)",
        "byteps(partition_bytes=1000)", "byteps(partition_bytes=1000,assign=greedy)",
    };
    static const int sizes[] = { 2, 3, 8 }; /* the first of eight servers has no part of a table */

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
            for (size_t t = 0; t < TUTTI_LENGTH(shares); t++) {
                const int n = strstr(methods[k], "node=") != NULL ? 4 : sizes[(k + o + t) % 3];
                run a = run_of(methods[k], optimizers[o], shares[t], k * 100 + o * 10 + t), b = a;
                b.options.method = "ddp";
                b.asks = false;
                a.options.clip_norm = b.options.clip_norm = updates_at_servers(methods[k]) ? 0 : 5;
                a.options.accumulate = b.options.accumulate = 1 + (int64_t)t % 2;
                a.own_memory = (k + t) % 2 == 0;
                a.shows = o == 1;
                carry_out(&a, n);
                carry_out(&b, n);
                same(&a, &b, n, "rows");
                for (int r = 1; r < n; r++)
                    assert_memory_equal(a.x[0], a.x[r], size_of(&a) * sizeof(float));
                drop(&a);
                drop(&b);
            }
}

/* What is computed from an old row differs: alone, every row that changes does so at the server. */
static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "asgd", "asgd(hogwild=on)", "asgd(hogwild=on,locks=row)", "asgd(hogwild=on,locks=full)",
        "asgd(compensate=adaptive)", "ssp", "ssp(staleness=0)", "backup-workers", "parameter-server",
        "parallax",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
            for (size_t t = 0; t < TUTTI_LENGTH(shares); t++) {
                run a = run_of(methods[k], optimizers[o], shares[t], k * 100 + o * 10 + t), b = a;
                b.options.method = "single";
                a.options.clip_norm = b.options.clip_norm = strncmp(methods[k], "backup", 6) == 0 ? 0 : 5;
                a.own_memory = t % 2 == 0;
                a.shows = o % 2 == 1;
                a.asks = t != 1;
                carry_out(&a, 1);
                carry_out(&b, 1);
                same(&a, &b, 1, "alone");
                drop(&a);
                drop(&b);
            }
}

static void ssp_without_staleness_matches_ddp_with_tables(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        run a = run_of("ssp(staleness=0)", "sgd(lr=0.125)", 0.4, 50 + (uint64_t)n), b = a;
        b.options.method = "ddp";
        carry_out(&a, n);
        carry_out(&b, n);
        for (size_t i = 0; i < size_of(&a); i++)
            if (!(fabs((double)a.x[0][i] - (double)b.x[0][i]) < 2e-6))
                fail_msg("on %d, element %zu: %.9g, ddp has %.9g", n, i, (double)a.x[0][i], (double)b.x[0][i]);
        drop(&a);
        drop(&b);
    }
}

/* ---- sums and reads ---- */

/* Where element i is: its tensor, and its row in it. */
static int tensor_of(const run *r, size_t i, size_t *row)
{
    int k = 0;
    for (; k < TENSORS - 1 && i >= r->count[k]; k++)
        i -= r->count[k];
    *row = i / cols_of(r, k);
    return k;
}

static void no_row_is_lost_or_counted_twice(void **state)
{
    static const struct {
        const char *method;
        bool even;
        int of;
    } cases[] = { { "asgd", false, 1 },
                  { "asgd(servers=1)", false, 1 },
                  { "asgd(softsync=2)", false, 2 },
                  { "ssp(staleness=0)", true, 1 },
                  { "ssp(staleness=2)", true, 1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (size_t t = 0; t < TUTTI_LENGTH(shares); t++)
            for (int n = 2; n <= 8; n *= 2) {
                run a = run_of(cases[k].method, k % 2 == 0 ? "sgd(lr=0.0625)" : "sgd(lr=0.0625,lazy=on)", shares[t],
                               70 + t);
                a.constant = true;
                a.asks = (k + t) % 3 != 0;
                a.shows = t == 2;
                a.steps = 6;
                carry_out(&a, n);
                for (size_t i = 0; i < size_of(&a); i++) {
                    double want = initial_value(i);
                    size_t row;
                    const int tensor = tensor_of(&a, i, &row);
                    for (int r = 0; r < n; r++)
                        for (uint64_t s = 0; s < 6; s++)
                            if ((tensor != TABLE && tensor != SMALL) || is_touched(&a, r, s, 0, tensor, row))
                                want -= 0.0625 * (double)constant_of(r, i) / (cases[k].even ? n : cases[k].of);
                    for (int r = 0; r < n; r++)
                        if (a.x[r][i] != (float)want)
                            fail_msg("%s on %d, touched %g, worker %d, element %zu: %.9g, expected %.9g",
                                     a.options.method, n, a.touched, r, i, (double)a.x[r][i], want);
                }
                drop(&a);
            }
}

/* Lazy momentum advances where an untouched row is taken for touched, in this update or in a
   later one. */
static void rows_that_are_collected_are_updated_once(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        run a = run_of("asgd(softsync=2)", "sgd(lr=0.0625,momentum=0.5,lazy=on)", 0.3, 30 + (uint64_t)n);
        a.constant = a.once = true;
        a.shows = n == 3;
        a.steps = 6;
        carry_out(&a, n);
        for (size_t i = a.count[0]; i < a.count[0] + a.count[1]; i++) {
            const float want =
                initial_value(i) -
                (is_touched(&a, 0, 0, 0, TABLE, (i - a.count[0]) / a.cols) ? 0.0625f * constant_of(0, i) / 2 : 0);
            if (a.x[0][i] != want)
                fail_msg("on %d, element %zu: %.9g, expected %.9g", n, i, (double)a.x[0][i], (double)want);
        }
        drop(&a);
    }
}

/* Worker 1 waits in its second pass until worker 0 has made all its steps: what it reads
   then is what all of them have left. It gives a gradient of those rows, which is not
   compensated for what it has read. */
static tutti_status look(const run *r, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const uint32_t ids[] = { 3, 7 };
    const tutti_tensor *t = &m->layout->tensor[TABLE];

    TUTTI_TRY(tutti_engine_rows_acquire(e, TABLE, ids, 2, err));
    for (size_t k = 0; k < 2; k++)
        for (size_t c = 0; c < r->cols; c++) {
            const size_t i = t->first + ids[k] * r->cols + c;
            const float want = initial_value(i) - 0.0625f * (float)(r->steps * (int)(k + 1)) /
                                                      (strncmp(r->options.method, "ssp", 3) == 0 ? 2 : 1);
            if (m->x[i] != want)
                return tutti_fail(err, TUTTI_ERR_STATE, 0, "row %u of worker 1 has %.9g at column %zu, expected %.9g",
                                  ids[k], (double)m->x[i], c, (double)want);
        }
    return TUTTI_OK;
}

static tutti_status old_rows_rank(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    tutti_engine_options options = r->options;
    const tutti_param params[] = {
        { .name = "c", .dims = 1, .dim = { 37 } },
        { .name = "table", .dims = 2, .dim = { 60, 5 }, .row_sparse = true, .asks_rows = true }
    };
    const uint32_t ids[] = { 3, 7 };
    const tutti_method *m;
    tutti_engine *e = NULL;
    tutti_pass p;
    tutti_status status = TUTTI_OK;

    options.initial = initial;
    options.user = r;
    TUTTI_TRY(tutti_engine_open(&e, world, params, 2, &options, err));
    m = tutti_engine_method(e);
    for (int s = 0; s < r->steps; s++) {
        status = tutti_engine_pass_begin(e, &p, err);
        if (status == TUTTI_OK && m->rank == 1 && s == 1) {
            for (int k = 0; k < 200000 && done[0] < r->steps; k++) /* 20 s at most */
                nap();
            late = done[0] < r->steps;
            status = look(r, e, err);
        } else if (status == TUTTI_OK)
            status = tutti_engine_rows_acquire(e, TABLE, ids, m->rank == 0 ? 2 : 0, err);
        for (size_t k = 0; status == TUTTI_OK && (m->rank == 0 || s == 1) && k < 2; k++)
            for (size_t c = 0; c < 5; c++)
                m->g[37 + ids[k] * 5 + c] = (float)(k + 1);
        if (status == TUTTI_OK)
            status = tutti_engine_grad_ready(e, 0, err);
        if (status == TUTTI_OK)
            status = tutti_engine_grad_ready_rows(e, TABLE, ids, m->rank == 0 || s == 1 ? 2 : 0, err);
        if (status == TUTTI_OK)
            status = tutti_engine_pass_end(e, 0, err);
        if (status == TUTTI_OK && (status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        if (status != TUTTI_OK)
            break;
        done[m->rank]++;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    for (size_t k = 0; status == TUTTI_OK && k < 2; k++)
        for (size_t i = 37 + ids[k] * 5, end = i + 5; status == TUTTI_OK && i < end; i++)
            if (m->x[i] != initial_value(i) - 0.0625f * (float)((r->steps + 1) * (int)(k + 1)) /
                                                  (strncmp(r->options.method, "ssp", 3) == 0 ? 2 : 1))
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "row %u of worker %d ends with %.9g at element %zu",
                                    ids[k], m->rank, (double)m->x[i], i);
    tutti_engine_close(e);
    return status;
}

static void acquired_rows_have_their_current_values(void **state)
{
    static const char *const methods[] = {
        "asgd",
        "asgd(servers=1)",
        "asgd(compensate=constant,lambda=1000)",
        "ssp(staleness=100)",
#if !SANITIZED_THREAD /* its races are what it is */
        "asgd(hogwild=on)",
#endif
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run r = run_of(methods[k], "sgd(lr=0.0625)", 0, 1);
        tutti_error err = { .rank = -1 };
        r.steps = 7;
        for (int i = 0; i < RANKS; i++)
            done[i] = 0;
        if (tutti_world_run("shm", 2, old_rows_rank, &r, &err) != TUTTI_OK)
            fail_msg("%s: %s", methods[k], err.text);
        assert_false(late);
    }
}

/* ---- traffic: from pair to pair ---- */

/* Where server k's part of [first, first + count) begins: evenly at
   multiples of 16, but between rows. */
static size_t cut(const run *r, size_t first, size_t count, int servers, int k)
{
    size_t at = first + (k == servers ? count : count / 16 * (size_t)k / (size_t)servers * 16), row;
    const size_t begin = r->count[0], small = r->count[0] + r->count[1] + r->count[2];

    if (k < servers && at >= begin && at < begin + r->count[1] && (row = (at - begin) % r->cols) != 0)
        at -= row;
    return k < servers && at >= small && at < small + 6 ? at - (at - small) % 2 : at;
}

typedef bool touches(const run *r, int rank, uint64_t step, int tensor, size_t row);

static bool mine(const run *r, int rank, uint64_t step, int tensor, size_t row)
{
    return is_touched(r, rank, step, 0, tensor, row);
}

static int all_of;
static bool anybody(const run *r, int rank, uint64_t step, int tensor, size_t row)
{
    bool any = false;
    (void)rank;
    for (int w = 0; w < all_of; w++)
        any = any || is_touched(r, w, step, 0, tensor, row);
    return any;
}

/* 4-byte words that the elements [begin, end) make with the rows of tables by the rule. values:
   without any rows. Of a request for those rows: asked, and what is given. */
static uint64_t words(const run *r, size_t begin, size_t end, touches *of, int rank, uint64_t step, uint64_t *asked,
                      uint64_t *given, uint64_t *values)
{
    uint64_t all = 0;
    size_t at = 0;

    *asked = *given = *values = 0;
    for (int k = 0; k < TENSORS; at += r->count[k++]) {
        const size_t low = begin > at ? begin : at, high = end < at + r->count[k] ? end : at + r->count[k],
                     cols = cols_of(r, k);
        uint64_t n = 0;
        if (low >= high)
            continue;
        if (k != TABLE && k != SMALL) {
            all += high - low;
            *values += high - low;
            continue;
        }
        for (size_t row = (low - at) / cols; row < (high - at) / cols; row++)
            n += of(r, rank, step, k, row);
        *values += 1;
        all += 1 + (n * (1 + cols) < high - low ? n * (1 + cols) : high - low);
        if (n > 0) {
            *asked += n * (1 + cols) < high - low ? n : 0;
            *given += n * (1 + cols) < high - low ? n * cols : high - low;
        }
    }
    return all;
}

static void pushes_and_pulls_send_rows_and_nothing_else(void **state)
{
    static const char *const methods[] = { "asgd", "asgd(servers=1)", "ssp(staleness=2,servers=2)" };
    static const int sizes[] = { 2, 3, 5, 7 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t t = 0; t < TUTTI_LENGTH(shares); t++)
            for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
                const int n = sizes[p], s = k == 0 ? n : k == 1 ? 1 : 2;
                run r = run_of(methods[k], "sgd(lr=0.0625)", shares[t], 400 + t * 10 + p);
                uint64_t beyond = 0, all = 0, rows = 0, asked, given, values;
                carry_out(&r, n);
                for (int i = 0; i < n; i++)
                    for (int j = 0; j < n; j++) {
                        uint64_t sent = 0;
                        for (uint64_t step = 0; step < 5 && i != j; step++) {
                            if (j < s) { /* what i asks of j */
                                sent += words(&r, cut(&r, 0, size_of(&r), s, j), cut(&r, 0, size_of(&r), s, j + 1),
                                              mine, i, step, &asked, &given, &values) +
                                        asked;
                                rows += asked;
                            }
                            if (i < s) { /* what i answers j */
                                words(&r, cut(&r, 0, size_of(&r), s, i), cut(&r, 0, size_of(&r), s, i + 1), mine, j,
                                      step, &asked, &given, &values);
                                sent += values + given;
                            }
                        }
                        if (r.bytes[i][j] < 4 * sent)
                            fail_msg("%s on %d, touched %g: %d sent %d %llu bytes, expected %llu at least", methods[k],
                                     n, r.touched, i, j, (unsigned long long)r.bytes[i][j],
                                     (unsigned long long)(4 * sent));
                        beyond += r.bytes[i][j] - 4 * sent;
                        all += 4 * sent;
                    }
                if (beyond != (uint64_t)(n - 1) * 4 * size_of(&r)) /* the shards, at the end */
                    fail_msg("%s on %d, touched %g: %llu bytes besides the %llu expected, the end has %llu", methods[k],
                             n, r.touched, (unsigned long long)beyond, (unsigned long long)all,
                             (unsigned long long)((uint64_t)(n - 1) * 4 * size_of(&r)));
                if (r.touched == 0 || r.touched == 0.3 || r.touched > 1)
                    assert_int_equal(rows > 0, r.touched == 0.3);
                drop(&r);
            }
}

static void parameter_server_returns_the_rows_touched_by_any_worker(void **state)
{
    static const int sizes[] = { 2, 3, 8 }; /* the first of eight servers has no part of a table */

    (void)state;
    for (int form = 0; form < 2; form++)
        for (size_t t = 0; t < TUTTI_LENGTH(shares); t++)
            for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
                const int n = sizes[p], s = form == 0 ? n : 2;
                run r = run_of(form == 0 ? "parameter-server" : "parameter-server(servers=2)", "sgd(lr=0.125)",
                               shares[t], 600 + t * 10 + p);
                all_of = n;
                carry_out(&r, n);
                for (int i = 0; i < n; i++)
                    for (int j = 0; j < n; j++) {
                        uint64_t sent = 0, asked, given, values;
                        for (uint64_t step = 0; step < 5 && i != j; step++)
                            for (size_t piece = 0, at = 0; piece < TENSORS; at += r.count[piece++]) {
                                if (j < s)
                                    sent += words(&r, cut(&r, at, r.count[piece], s, j),
                                                  cut(&r, at, r.count[piece], s, j + 1), mine, i, step, &asked, &given,
                                                  &values);
                                if (i < s)
                                    sent += words(&r, cut(&r, at, r.count[piece], s, i),
                                                  cut(&r, at, r.count[piece], s, i + 1), anybody, i, step, &asked,
                                                  &given, &values);
                            }
                        if (r.bytes[i][j] != 4 * sent)
                            fail_msg("%s on %d, touched %g: %d sent %d %llu bytes, expected %llu", r.options.method, n,
                                     r.touched, i, j, (unsigned long long)r.bytes[i][j],
                                     (unsigned long long)(4 * sent));
                    }
                drop(&r);
            }
}

/* ---- shares that move ---- */

/* A request of a step is weighed by that step's shares: gradients are constants, worker r's r +
   1, so what is left is known exactly. Worker 0 is long in its pass before they move, and the
   others are not waited for by ssp. */
static void requests_are_weighted_by_the_shares_of_their_step(void **state)
{
    static const int64_t before[] = { 2, 4, 1, 1 }, after[] = { 4, 1, 2, 1 };
    static const char *const methods[] = {
        "ssp(staleness=100)", "ssp(staleness=100,servers=1)", "backup-workers(backup=0)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run r = run_of(methods[k], "sgd(lr=0.0625)", 1.1, 9);
        r.constant = true;
        r.options.batch_of = before;
        r.reshare = after;
        carry_out(&r, 4);
        for (size_t i = 0; i < size_of(&r); i++) {
            double want = initial_value(i);
            for (int w = 0; w < 4; w++)
                want -= 0.0625 * (double)constant_of(w, i) * (2 * (double)before[w] + 3 * (double)after[w]) / 8;
            if (r.x[2][i] != (float)want)
                fail_msg("%s, element %zu: %.9g, expected %.9g", methods[k], i, (double)r.x[2][i], want);
        }
        drop(&r);
    }
}

/* ---- what goes wrong ---- */
static tutti_status misuse(run *r, tutti_engine *e, tutti_error *err)
{
    const uint32_t down[] = { 3, 3 }, high[] = { 2, 60 }, some[] = { 2, 5 }, other[] = { 2, 4 },
                   all[] = { 2, 4, 5 };

    (void)r;
    CHECK(tutti_engine_rows_acquire(e, 0, some, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "rows_acquire was called for tensor 0, c; it is for tables that were given with "
                            "asks_rows") != NULL);
    CHECK(tutti_engine_rows_acquire(e, 4, some, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "rows_acquire was called for tensor 4; it is") != NULL);
    CHECK(tutti_engine_rows_acquire(e, TABLE, high, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 60 of table at place 1; rows must ascend, and there are 60") != NULL);
    CHECK(tutti_engine_rows_acquire(e, TABLE, down, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 3 of table at place 1; rows must ascend") != NULL);
    CHECK(tutti_engine_grad_ready_rows(e, SMALL, down, 1, err) == TUTTI_ERR_USAGE);
    CHECK(tutti_engine_grad_ready_rows(e, TABLE, some, 1, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 2 of table, which this pass has not asked for; call rows_acquire") != NULL);
    CHECK(tutti_engine_rows_acquire(e, TABLE, some, 2, err) == TUTTI_OK);
    CHECK(tutti_engine_grad_ready(e, TABLE, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "grad_ready was called for table, which asks for rows; use grad_ready_rows") != NULL);
    CHECK(tutti_engine_grad_ready_rows(e, TABLE, other, 2, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "row 4 of table, which this pass has not asked for") != NULL);
    CHECK(tutti_engine_rows_acquire(e, TABLE, other, 2, err) == TUTTI_OK); /* 4 besides */
    CHECK(tutti_engine_grad_ready_rows(e, TABLE, all, 3, err) == TUTTI_OK);
    CHECK(tutti_engine_rows_acquire(e, TABLE, some, 2, err) == TUTTI_ERR_STATE &&
          strstr(err->text, "rows_acquire was called for table after its gradient was announced") != NULL);
    return TUTTI_OK;
}

static tutti_status no_table(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param flat = { .name = "t", .dims = 2, .dim = { 9, 2 }, .asks_rows = true };
    tutti_engine *e;

    (void)arg;
    CHECK(tutti_engine_open(&e, world, &flat, 1, NULL, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "'t' asks_rows, but is not row_sparse") != NULL);
    return TUTTI_OK;
}

static void misuse_is_rejected_with_an_error_message(void **state)
{
    static const char *const methods[] = { "ddp", "asgd" };
    tutti_error err = { .rank = -1 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run r = run_of(methods[k], "sgd(lr=0.1)", 0.5, 1);
        r.probe = misuse;
        carry_out(&r, 1);
        drop(&r);
    }
    if (tutti_world_run("shm", 1, no_table, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_methods_have_the_bits_of_ddp),
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(ssp_without_staleness_matches_ddp_with_tables),
        cmocka_unit_test(no_row_is_lost_or_counted_twice),
        cmocka_unit_test(rows_that_are_collected_are_updated_once),
        cmocka_unit_test(acquired_rows_have_their_current_values),
        cmocka_unit_test(pushes_and_pulls_send_rows_and_nothing_else),
        cmocka_unit_test(parameter_server_returns_the_rows_touched_by_any_worker),
        cmocka_unit_test(requests_are_weighted_by_the_shares_of_their_step),
        cmocka_unit_test(misuse_is_rejected_with_an_error_message),
    };
    return cmocka_run_group_tests_name("method/server-rows", tests, NULL, NULL);
}
