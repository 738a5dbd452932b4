/* Goal: parallax: dense tensors go by all-reduce and tables by servers, with ddp's bits; bytes
   and messages are the formula's from pair to pair; for every density of tables the bytes sent
   are the lesser of a gather's and of servers'; the search of parts finds the least of its model;
   a checkpoint resumes with any number of workers and servers. Method: a client whose gradients
   are a formula of the rows that it has asked for, so that an old row shows; two runs, one of one
   step, whose difference is what steps send. */
#include <math.h>
#include <string.h>

#include "../../src/method/partitions.h"
#include "scratch.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { RANKS = 12, TENSORS = 3, DENSE = 0 };
typedef struct run {
    tutti_engine_options options;
    size_t rows[TENSORS], cols[TENSORS]; /* of the dense one cols is 0 */
    double density;
    uint64_t seed;
    bool no_tables;              /* the dense tensor alone */
    bool asks;
    int from, steps;
    const char *load, *save;     /* directories */
    float *x[RANKS];
    uint64_t bytes[RANKS][RANKS], messages[RANKS][RANKS];
} run;

static size_t count_of(const run *r, int k)
{
    return r->rows[k] * (r->cols[k] > 0 ? r->cols[k] : 1);
}

static size_t size_of(const run *r)
{
    return count_of(r, 0) + (r->no_tables ? 0 : count_of(r, 1) + count_of(r, 2));
}

static bool touches(const run *r, int rank, uint64_t step, int tensor, size_t row)
{
    return tutti_uniform((tutti_rng){ r->seed + 1, 100 + (uint64_t)rank, step }, (uint64_t)tensor << 32 | row) <
           r->density;
}

static void initial(void *user, int tensor, float *values)
{
    const run *r = user;

    for (size_t i = 0; i < count_of(r, tensor); i++)
        values[i] = (float)((i * 7 + (size_t)tensor) % 64) / 16 - 2;
}

static float gradient(int rank, uint64_t step, size_t i, float x)
{
    return 0.5f * x - (float)((rank * 13 + (int)(i % 17) + (int)step) % 19) / 8;
}

static tutti_status one_pass(run *r, tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint32_t ids[4096];

    for (int k = 0; k < (r->no_tables ? 1 : TENSORS); k++) {
        const tutti_tensor *t = &m->layout->tensor[k];
        size_t n = 0;
        for (size_t row = 0; row < t->rows && k != DENSE; row++)
            if (p->samples > 0 && touches(r, m->rank, m->step, k, row))
                ids[n++] = (uint32_t)row;
        if (k != DENSE && r->asks)
            TUTTI_TRY(tutti_engine_rows_acquire(e, k, ids, n, err));
        for (size_t i = 0; i < (k == DENSE ? t->count : n * t->cols); i++) {
            const size_t at = k == DENSE ? i : ids[i / t->cols] * t->cols + i % t->cols;
            m->g[t->first + at] = (p->keep ? m->g[t->first + at] : 0) +
                                  (p->samples > 0 ? gradient(m->rank, m->step, at, m->x[t->first + at]) : 0);
        }
        TUTTI_TRY(k == DENSE ? tutti_engine_grad_ready(e, k, err) : tutti_engine_grad_ready_rows(e, k, ids, n, err));
    }
    return tutti_engine_pass_end(e, 1, err);
}

static tutti_status load(const run *r, tutti_engine *e, tutti_world *world, tutti_error *err)
{
    char path[SCRATCH_PATH + 40];
    tutti_checkpoint *c;
    tutti_status status;

    snprintf(path, sizeof path, "%s/step-%08d", r->load, r->from);
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), path, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static tutti_status train(run *r, tutti_engine *e, tutti_world *world, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint64_t bytes[RANKS], messages[RANKS];
    bool more;

    if (r->load != NULL)
        TUTTI_TRY(load(r, e, world, err));
    for (int to = 0; to < m->everyone.size; to++)
        tutti_world_sent(world, to, &bytes[to], &messages[to]);
    for (int s = r->from; s < r->from + r->steps && m->rank < m->workers; s++) {
        tutti_status status;
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(one_pass(r, e, &p, err));
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
    }
    if (m->rank >= m->workers)
        TUTTI_TRY(tutti_engine_more(e, (uint64_t)(r->from + r->steps), &more, err));
    if (r->save != NULL)
        TUTTI_TRY(tutti_engine_save(e, r->save, "{}", 0, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    for (int to = 0; to < m->everyone.size; to++) {
        tutti_world_sent(world, to, &r->bytes[m->rank][to], &r->messages[m->rank][to]);
        r->bytes[m->rank][to] -= bytes[to];
        r->messages[m->rank][to] -= messages[to];
    }
    if (m->rank < m->workers) /* a rank that only serves has no x */
        memcpy(r->x[m->rank], m->x, size_of(r) * sizeof(float));
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    const tutti_param params[TENSORS] = {
        { .name = "d", .dims = 1, .dim = { r->rows[0] }, .unit = 2 },
        { .name = "t", .dims = 2, .dim = { r->rows[1], r->cols[1] }, .unit = 1, .row_sparse = true,
          .asks_rows = r->asks },
        { .name = "u", .dims = 2, .dim = { r->rows[2], r->cols[2] }, .unit = 0, .row_sparse = true,
          .asks_rows = r->asks },
    };
    tutti_engine_options options = r->options;
    tutti_engine *e;
    tutti_status status;

    options.initial = initial;
    options.user = r;
    status = tutti_engine_open(&e, world, params, r->no_tables ? 1 : TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(r, e, world, err);
    tutti_engine_close(e);
    return status;
}

static run run_of(const char *method, const char *optimizer, double density)
{
    return (run){ .options = { .method = method, .optimizer = optimizer, .batch = 2, .seed = 3 },
                  .rows = { 37, 60, 24 }, .cols = { 0, 5, 16 }, .density = density, .asks = true, .steps = 5 };
}

static tutti_status try(run *r, int n, tutti_error *err)
{
    for (int i = 0; i < n; i++)
        if (r->x[i] == NULL)
            assert_non_null(r->x[i] = tutti_alloc(size_of(r), sizeof(float)));
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
        tutti_free(r->x[i]);
        r->x[i] = NULL;
    }
}

static void same(const run *a, const run *b, int ranks)
{
    for (int k = 0; k < ranks; k++)
        if (memcmp(a->x[k], b->x[0], size_of(a) * sizeof(float)) != 0)
            fail_msg("%s with %s at density %g: rank %d has another model than %s", a->options.method,
                     a->options.optimizer, a->density, k, b->options.method);
}

/* ---- bits ---- */

static const char *const optimizers[] = { "sgd(lr=0.125)", "sgd(lr=0.125,momentum=0.5,lazy=on)", "adamw(lr=0.01)" };
static const double densities[] = { 0, 0.1, 0.5, 1 };

/* Servers on the workers' ranks, and on dedicated ranks; shares of a step are uneven and may be
   none. */
static void the_bits_are_those_of_ddp(void **state)
{
    static const int64_t shares[] = { 1, 4, 0, 3 };
    static const struct { const char *method; int servers; } cases[] = {
        { "parallax", 0 }, { "parallax", 2 }, { "parallax(node=2)", 1 }, { "parallax(profile=2)", 3 },
        { "parallax(servers=1,partitions=7)", 0 }, { "parallax(node=4,partitions=6,servers=1)", 0 },
        { "parallax(search_warmup=0,search_steps=1)", 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
            for (size_t d = 0; d < TUTTI_LENGTH(densities); d++) {
                run a = run_of(cases[k].method, optimizers[o], densities[d]), b = a;
                if ((k + o + d) % 2 == 0)
                    continue;
                a.seed = b.seed = k * 10 + d;
                b.options.method = "ddp";
                a.options.servers = cases[k].servers;
                a.options.batch_of = b.options.batch_of = (k + d) % 2 == 0 ? shares : NULL;
                a.options.lr_schedule = b.options.lr_schedule = "cosine(warmup=2)";
                a.options.steps = b.options.steps = 5;
                carry_out(&a, 4 + cases[k].servers);
                carry_out(&b, 4);
                same(&a, &b, 4);
                drop(&a);
                drop(&b);
            }
}

/* ddp with gradients of tables that are n times as large, n a power of two. */
static void sparse_sum_is_the_mean_times_the_worker_count(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        run a = run_of(form == 0 ? "parallax(sparse_reduce=sum)" : "parallax(sparse_reduce=sum,profile=1)",
                       "sgd(lr=0.125)", 1),
            b = run_of("parallax", "sgd(lr=0.125)", 1);
        a.steps = b.steps = 1;
        carry_out(&a, 4);
        carry_out(&b, 4);
        for (size_t i = 0; i < 37; i++)
            assert_true(a.x[1][i] == b.x[1][i]);
        for (size_t i = 37, first = 37; i < size_of(&a); i++) {
            float values[1024];
            first = i < 37 + 300 ? 37 : 337;
            initial(&a, first == 37 ? 1 : 2, values);
            if (fabsf(4 * (b.x[1][i] - values[i - first]) - (a.x[1][i] - values[i - first])) > 1e-5f)
                fail_msg("element %zu: %g is not four times %g", i, (double)(a.x[1][i] - values[i - first]),
                         (double)(b.x[1][i] - values[i - first]));
        }
        drop(&a);
        drop(&b);
    }
}

/* ---- traffic ---- */

/* Where server k's part of a table begins: evenly at multiples of 16, but between rows. */
static size_t begin_of(const run *r, int tensor, int k, int servers)
{
    const size_t count = count_of(r, tensor),
                 first = tensor == 0 ? 0 : count_of(r, 0) + (tensor == 2 ? count_of(r, 1) : 0);
    const size_t at = k == servers ? count : count / 16 * (size_t)k / (size_t)servers * 16;

    (void)first;
    return at / r->cols[tensor];
}

static uint64_t touched(const run *r, int rank, uint64_t step, int tensor, size_t low, size_t high)
{
    uint64_t n = 0;
    for (size_t row = low; row < high; row++)
        n += touches(r, rank, step, tensor, row);
    return n;
}

/* 4-byte words, and messages, that worker i sends server k in a step, and receives. */
static void between(const run *r, int i, int k, int servers, int chunks, uint64_t step, uint64_t *up, uint64_t *down,
                    uint64_t *asks, uint64_t *answers)
{
    for (int t = 1; t < TENSORS; t++) {
        const size_t low = begin_of(r, t, k, servers), rows = begin_of(r, t, k + 1, servers) - low, cols = r->cols[t];
        const size_t parts = (size_t)chunks < rows ? (size_t)chunks : rows;
        const uint64_t all = touched(r, i, step, t, low, low + rows);
        for (size_t j = 0, at = low; j < parts; j++) {
            const size_t some = rows / parts + (j < rows % parts);
            const uint64_t n = touched(r, i, step, t, at, at + some);
            *up += 1 + (n * (1 + cols) < some * cols ? n * (1 + cols) : some * cols);
            at += some;
        }
        *asks += parts + (all > 0);
        *answers += parts + (all > 0);
        *up += all * (1 + cols) < rows * cols ? all : 0;
        *down += all * (1 + cols) < rows * cols ? all * cols : rows * cols;
    }
}

/* What steps 1 to 4 send. */
static void carry_out_steps(run *r, int n)
{
    run none = *r;

    memset(none.x, 0, sizeof none.x);
    none.steps = 1;
    carry_out(r, n);
    carry_out(&none, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            r->bytes[i][j] -= none.bytes[i][j];
            r->messages[i][j] -= none.messages[i][j];
        }
    drop(&none);
}

static void rows_use_servers_and_dense_tensors_match_ddp_traffic(void **state)
{
    static const struct { const char *method; int workers, servers, of_workers, chunks; } cases[] = {
        { "parallax(partitions=1)", 2, 0, 2, 1 }, { "parallax(partitions=2)", 4, 0, 4, 2 },
        { "parallax(partitions=1,servers=2)", 5, 0, 2, 1 }, { "parallax(partitions=3)", 4, 3, 0, 3 },
        { "parallax(partitions=64,servers=1)", 3, 0, 1, 64 }, { "parallax(partitions=1)", 8, 0, 8, 1 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t d = 0; d < TUTTI_LENGTH(densities); d++) {
            const int n = cases[c].workers, all = n + cases[c].servers,
                      servers = cases[c].servers > 0 ? cases[c].servers : cases[c].of_workers,
                      first = cases[c].servers > 0 ? n : 0;
            run a = run_of(cases[c].method, "sgd(lr=0.125)", densities[d]), dense = a;
            a.options.servers = cases[c].servers;
            dense.options.method = "ddp";
            dense.no_tables = true;
            carry_out_steps(&a, all);
            carry_out_steps(&dense, n);
            for (int i = 0; i < all; i++)
                for (int j = 0; j < all; j++) {
                    uint64_t words = 0, messages = 0, other = 0, none = 0;
                    for (uint64_t step = 1; step < 5 && i != j; step++) {
                        if (i < n && j >= first && j < first + servers)
                            between(&a, i, j - first, servers, cases[c].chunks, step, &words, &other, &messages, &none);
                        if (j < n && i >= first && i < first + servers)
                            between(&a, j, i - first, servers, cases[c].chunks, step, &other, &words, &none, &messages);
                    }
                    if (i == j)
                        continue;
                    if (a.bytes[i][j] != dense.bytes[i][j] + 4 * words)
                        fail_msg("%s on %d, density %g: %d sent %d %llu bytes, expected %llu", a.options.method, n,
                                 a.density, i, j, (unsigned long long)a.bytes[i][j],
                                 (unsigned long long)(dense.bytes[i][j] + 4 * words));
                    if (a.messages[i][j] != dense.messages[i][j] + messages)
                        fail_msg("%s on %d, density %g: %d sent %d %llu messages, expected %llu", a.options.method, n,
                                 a.density, i, j, (unsigned long long)a.messages[i][j],
                                 (unsigned long long)(dense.messages[i][j] + messages));
                }
            drop(&a);
            drop(&dense);
        }
}

static uint64_t sent(const run *r, int n)
{
    uint64_t all = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            all += i == j ? 0 : r->bytes[i][j];
    return all;
}

static void model_without_tables_has_the_traffic_of_ddp(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++)
        for (int n = 2; n <= 5; n++) {
            run a = run_of("parallax", "adamw(lr=0.01)", 0.3), b = a;
            b.options.method = "ddp";
            a.no_tables = b.no_tables = form == 0;
            a.asks = b.asks = false; /* or a client that does not declare which rows it reads */
            a.options.clip_norm = b.options.clip_norm = 1;
            a.options.nonfinite = b.options.nonfinite = TUTTI_NONFINITE_SKIP;
            carry_out_steps(&a, n);
            carry_out_steps(&b, n);
            same(&a, &b, n);
            assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
            assert_memory_equal(a.messages, b.messages, sizeof a.messages);
            drop(&a);
            drop(&b);
        }
}

/* Over the density: ddp is the lesser of a gather of rows and an all-reduce. Servers send 2 / n
   of the gather; where they would send as much as the all-reduce the table is exchanged, once
   that is known. */
static void traffic_is_the_minimum_of_gather_and_servers(void **state)
{
    static const double alpha[] = { 0.01, 0.1, 0.3, 0.9, 1 };

    (void)state;
    for (int n = 2; n <= 8; n *= 2)
        for (size_t k = 0; k < TUTTI_LENGTH(alpha); k++) {
            run servers = run_of("parallax(profile=0)", "sgd(lr=0.125)", alpha[k]), both, gather;
            double rows = 0, ratio, least;
            servers.rows[0] = 1;
            servers.rows[1] = servers.rows[2] = 1024;
            servers.cols[1] = servers.cols[2] = 64;
            both = gather = servers;
            both.options.method = "parallax(profile=1)";
            gather.options.method = "ddp";
            carry_out_steps(&servers, n);
            carry_out_steps(&gather, n);
            carry_out_steps(&both, n);
            for (int i = 0; i < n; i++)
                for (uint64_t step = 1; step < 5; step++)
                    for (int t = 1; t < TENSORS; t++)
                        rows += (double)touched(&servers, i, step, t, 0, 1024);
            ratio = (double)sent(&gather, n) / (double)sent(&servers, n);
            /* whose rows they are is chance */
            if (alpha[k] * n * 65 < 2 * 64 * 0.9 &&
                fabs(ratio / (n / 2.0) - 1) > 0.03 + 2 / sqrt(rows))
                fail_msg("density %g on %d: a gather sends %.3f times what servers do, and not %g", alpha[k], n, ratio,
                         n / 2.0);
            /* alpha w (n-1)/n up and down from each, and ids */
            if (alpha[k] < 0.95)
                assert_true(fabs((double)sent(&servers, n) / (4 * rows * (2 * 64 + 2) * (n - 1) / n) - 1) <
                            0.03 + 2 / sqrt(rows));
            least = fmin((double)sent(&gather, n), (double)sent(&servers, n));
            least += 16.0 * TENSORS * n * n; /* the densities that all report */
            least += alpha[k] == 1 ? 4.0 * 2 * 1024 * 64 * (n - 1) : 0; /* a table that leaves its servers */
            if ((double)sent(&both, n) > (1.03 + 2 / sqrt(rows)) * least)
                fail_msg("density %g on %d: %llu bytes, but a gather has %llu and servers %llu", alpha[k], n,
                         (unsigned long long)sent(&both, n), (unsigned long long)sent(&gather, n),
                         (unsigned long long)sent(&servers, n));
            same(&both, &gather, n);
            same(&servers, &gather, n);
            drop(&servers);
            drop(&both);
            drop(&gather);
        }
}

/* ---- the search ---- */

static double model_of(double p, double t1, double t2)
{
    return 3 + t1 / p + t2 * (p - 1);
}

static void partition_search_finds_the_minimum_of_its_model(void **state)
{
    static const double t1[] = { 1, 4, 30, 200, 1000 }, t2[] = { 0.02, 0.1, 0.5 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(t1); i++)
        for (size_t j = 0; j < TUTTI_LENGTH(t2); j++)
            for (int64_t first = 1; first <= 64; first *= 4) {
                partition_search s = partition_search_begin(first, 1, 1024);
                double best = sqrt(t1[i] / t2[j]), low = 1024, high = 0;
                while (s.way != 0) {
                    low = fmin(low, (double)s.now);
                    high = fmax(high, (double)s.now);
                    partition_search_feed(&s, model_of((double)s.now, t1[i], t2[j]));
                }
                best = fmin(fmax(best, low), high);
                if (s.samples >= 3 && fabs((double)s.now - best) > 1)
                    fail_msg("t1 %g, t2 %g from %d: %d, expected %.2f", t1[i], t2[j], (int)first, (int)s.now, best);
            }
}

/* Times of no model at all stay within what was tried; two samples are compared. */
static void partition_search_result_stays_within_the_tried_range(void **state)
{
    partition_search s = partition_search_begin(4, 4, 8);

    (void)state;
    partition_search_feed(&s, 2);
    assert_int_equal(s.now, 8);
    partition_search_feed(&s, 1);
    assert_true(s.way == 0 && s.now == 8);
    s = partition_search_begin(4, 4, 4);
    assert_true(s.way == 0 && s.now == 4);
    for (uint64_t seed = 0; seed < 500; seed++) {
        int64_t low = 8, high = 8;
        uint64_t k = 0;
        s = partition_search_begin(8, 2, 512);
        while (s.way != 0) {
            low = s.now < low ? s.now : low;
            high = s.now > high ? s.now : high;
            assert_true(s.now >= 2 && s.now <= 512 && k < PARTITION_SAMPLES);
            partition_search_feed(&s, tutti_uniform((tutti_rng){ 1, seed, 0 }, k++));
        }
        assert_true(s.now >= low && s.now <= high);
    }
}

/* ---- checkpoints ---- */

/* With as many workers to the bit, whatever serves, and with a table that has left its servers;
   with another number it is the run of these workers from that model, ddp's. */
static void checkpoint_resumes_with_other_numbers_of_workers_and_servers(void **state)
{
    static const struct { int workers, servers; } sizes[] = { { 4, 0 }, { 4, 3 }, { 3, 0 }, { 2, 1 }, { 1, 0 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(sizes); k++)
        for (int form = 0; form < 3; form++) {
            char directory[SCRATCH_PATH];
            const char *method = form == 0 ? "parallax" : form == 1 ? "parallax(profile=1,threshold=0.01)"
                                                                    : "parallax(partitions=3,profile=0)";
            run saved = run_of(method, "adamw(lr=0.01)", 0.3), after, ddp;
            scratch_make(directory);
            saved.options.servers = (int)(k + (size_t)form) % 3;
            saved.steps = 4;
            saved.save = directory;
            saved.options.data_samples = 1000;
            carry_out(&saved, 4 + saved.options.servers);
            drop(&saved);
            after = saved;
            after.save = NULL;
            after.load = directory;
            after.from = after.steps = 4;
            after.options.servers = sizes[k].servers;
            ddp = after;
            carry_out(&after, sizes[k].workers + sizes[k].servers);
            ddp.options.servers = 0;
            if (sizes[k].workers == 4) { /* the whole run at once */
                ddp.load = NULL;
                ddp.from = 0;
                ddp.steps = 8;
                ddp.options.method = "ddp";
            } else /* servers that are as many, at another place */
                ddp.options.method = "parallax(servers=1,partitions=3)";
            carry_out(&ddp, sizes[k].workers);
            same(&after, &ddp, sizes[k].workers);
            drop(&after);
            drop(&ddp);
            scratch_remove(directory);
        }
}

/* ---- what is refused ---- */

static void check_refused(run r, int n, const char *sentence)
{
    tutti_error err;

    assert_int_equal(try(&r, n, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: '%s' does not say '%s'", r.options.method, err.text, sentence);
    drop(&r);
}

static void invalid_options_are_rejected(void **state)
{
    run r = run_of("parallax", "sgd(lr=0.1)", 0.5);

    (void)state;
    r.options.clip_norm = 1;
    check_refused(r, 2, "clip-norm is 1, but method 'parallax' updates shard by shard");
    r.options.clip_norm = 0;
    r.options.nonfinite = TUTTI_NONFINITE_SKIP;
    check_refused(r, 2, "nonfinite=skip may skip a step, but method 'parallax'");
    check_refused(run_of("parallax(servers=3)", "sgd(lr=0.1)", 0.5), 2, "servers is 3, but there are 2 workers");
    check_refused(run_of("parallax(partitions=65)", "sgd(lr=0.1)", 0.5), 2, "partitions");
    check_refused(run_of("parallax(node=3)", "sgd(lr=0.1)", 0.5), 6, "node has 3 workers, and sums of that many");
    check_refused(run_of("parallax(threshold=1.5)", "sgd(lr=0.1)", 0.5), 2, "threshold");
    check_refused(run_of("parallax(partitions=-1)", "sgd(lr=0.1)", 0.5), 2, "partitions");
    check_refused(run_of("parallax(sparse_reduce=max)", "sgd(lr=0.1)", 0.5), 2, "sparse_reduce");
    r = run_of("parallax", "sgd(lr=0.1)", 0.5);
    r.options.codec = "topk(k=0.1)";
    check_refused(r, 2, "has an exchange of its own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_ddp),
        cmocka_unit_test(sparse_sum_is_the_mean_times_the_worker_count),
        cmocka_unit_test(rows_use_servers_and_dense_tensors_match_ddp_traffic),
        cmocka_unit_test(model_without_tables_has_the_traffic_of_ddp),
        cmocka_unit_test(traffic_is_the_minimum_of_gather_and_servers),
        cmocka_unit_test(partition_search_finds_the_minimum_of_its_model),
        cmocka_unit_test(partition_search_result_stays_within_the_tried_range),
        cmocka_unit_test(checkpoint_resumes_with_other_numbers_of_workers_and_servers),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests_name("method/parallax", tests, NULL, NULL);
}
