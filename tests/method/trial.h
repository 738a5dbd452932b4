/* trial.h: a run whose gradients are a formula of (rank, step, element, value). So a test can
   compute what a method must make of them. Ranks are threads. Each leaves its model after every
   step, and the bytes sent to each rank. Under a method with pieces in flight in the next step
   units are acquired and released one by one, and its models are kept as the next step finds them
   (not with `together`).

   A test fills in a `trial` (trial_of gives one), runs it (trial_run, or trial_try where it should
   fail), looks at what it left, and frees that (trial_drop). */
#ifndef TUTTI_TESTS_TRIAL_H
#define TUTTI_TESTS_TRIAL_H
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

enum { TRIAL_RANKS = 8, TRIAL_STEPS = 16, TRIAL_TENSORS = 3, TRIAL_METRICS = 1024 };

typedef struct trial {
    /* what is asked for */
    tutti_engine_options options;
    const char *method;
    int steps;
    size_t count[TRIAL_TENSORS];
    float (*gradient)(int rank, uint64_t step, size_t i, float x);
    double (*loss)(uint64_t step);          /* of each sample; NULL: 0 */
    const tutti_method_ops *const *methods; /* NULL: the registry */

    /* steps x workers gradients in all, by tutti_engine_more; x is left at the end only */
    bool asks;
    /* look at the agreed model after every step, which must disturb nothing */
    bool show;
    /* x before each step in place of after it; all wait for each other there */
    bool together;
    /* loss on samples held out, called on the rank's thread; NULL: there are none */
    double (*held_out)(struct trial *t, int rank, const float *x);
    /* at the end of each pass: what it was over; may write p->losses; NULL: nothing */
    tutti_status (*look)(struct trial *t, int rank, const tutti_pass *p, tutti_error *err);

    /* what a run leaves */
    int workers;
    int done[TRIAL_RANKS];                  /* steps of each */
    float *x[TRIAL_RANKS][TRIAL_STEPS + 1]; /* after each step; the last: agreed at the end */
    uint64_t bytes[TRIAL_RANKS][TRIAL_RANKS], messages[TRIAL_RANKS][TRIAL_RANKS]; /* [from][to] */
    uint64_t end_bytes[TRIAL_RANKS];        /* of bytes those of tutti_engine_finish */
    uint64_t seen[TRIAL_RANKS];             /* what look() makes of it */
    tutti_figures figures[TRIAL_RANKS];

    /* what worker 0 reports at the end; names are copied, for the engine's go with it */
    tutti_metric_record metric[TRIAL_METRICS];
    char metric_name[TRIAL_METRICS][64];
    int metrics;
} trial;

static inline size_t trial_size(const trial *t)
{
    return t->count[0] + t->count[1] + t->count[2];
}

/* Dyadic values of few bits: sums and products with dyadic rates are exact in float32. */
static inline float trial_initial_value(size_t i)
{
    return (float)(i % 64) / 16 - 2;
}

static inline float trial_constant(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)x;
    return (float)((rank * 37 + (int)(i % 29) * 5) % 32) / 8 - 2;
}

static inline float trial_alike(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return x - (float)((i * 7 + step) % 11);
}

/* f_r(x) = |x - b_r|^2 / 2 */
static inline float trial_quadratic(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    return x - (float)((rank * 13 + (int)(i % 17)) % 19) / 8;
}

/* Sums of these depend on the order of adding. */
static inline float trial_rough(int rank, uint64_t step, size_t i, float x)
{
    const uint64_t draw = tutti_random((tutti_rng){ (uint64_t)rank, step, 3 }, i);

    return x * 0.37f +
           (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000);
}

typedef struct trial_seat { trial *t; tutti_engine *e; } trial_seat; /* of a rank */

static inline tutti_status trial_evaluate(void *user, double *loss, tutti_error *err)
{
    const trial_seat *seat = user;
    const tutti_method *m = tutti_engine_method(seat->e);

    (void)err;
    *loss = seat->t->held_out(seat->t, m->rank, m->x);
    return TUTTI_OK;
}

static inline void trial_fill(void *user, int tensor, float *values)
{
    const trial *t = ((const trial_seat *)user)->t;
    size_t first = 0;

    for (int k = 0; k < tensor; k++)
        first += t->count[k];
    for (size_t i = 0; i < t->count[tensor]; i++)
        values[i] = trial_initial_value(first + i);
}

/* Of a method that has pieces in flight during the next step: what a step has left of a unit,
   which is one tensor, is there when the next step acquires it. */
static inline tutti_status trial_forward(trial *t, tutti_engine *e, int unit, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_tensor *tensor = &m->layout->tensor[TRIAL_TENSORS - 1 - unit];
    const int done = t->done[m->rank];

    TUTTI_TRY(tutti_engine_unit_acquire(e, unit, false, err));
    if (done > 0)
        memcpy(t->x[m->rank][done - 1] + tensor->first,
               tutti_engine_values(e, TRIAL_TENSORS - 1 - unit), tensor->count * sizeof(float));
    return tutti_engine_unit_release(e, unit, false, err);
}

/* In the engine's memory, or handed over where that has none. */
static inline tutti_status trial_announce(trial *t, tutti_engine *e, const tutti_pass *p, int k,
                                          tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_tensor *tensor = &m->layout->tensor[k];
    float *const own = m->g == NULL ? tutti_alloc(tensor->count, sizeof *own) : NULL,
                 *const g = m->g == NULL ? own : m->g + tensor->first;
    const float *const x = tutti_engine_values(e, k);
    tutti_status status;

    if (g == NULL)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < tensor->count; i++)
        g[i] = p->samples > 0
                   ? (float)p->scale * t->gradient(m->rank, m->step, tensor->first + i, x[i])
                   : 0;
    status = own == NULL ? tutti_engine_grad_ready(e, k, err)
                         : tutti_engine_grad_ready_from(e, k, own, TUTTI_F32, err);
    tutti_free(own);
    return status;
}

static inline tutti_status trial_step(trial *t, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_group all = tutti_group_workers(m->world, 4711);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (t->together) {
            memcpy(t->x[m->rank][t->done[m->rank]], m->x, trial_size(t) * sizeof(float));
            TUTTI_TRY(tutti_barrier(&all, err));
        }
        for (int u = 0; u < TRIAL_TENSORS && m->overlaps_steps; u++)
            TUTTI_TRY(trial_forward(t, e, u, err));
        for (int k = 0; k < TRIAL_TENSORS; k++) {
            const tutti_tensor *tensor = &m->layout->tensor[k];
            if (m->overlaps_steps)
                TUTTI_TRY(tutti_engine_unit_acquire(e, tensor->unit, true, err));
            TUTTI_TRY(trial_announce(t, e, &p, k, err));
            if (m->overlaps_steps)
                TUTTI_TRY(tutti_engine_unit_release(e, tensor->unit, true, err));
        }
        for (int64_t k = 0; p.losses != NULL && k < p.samples; k++)
            p.losses[k] = t->loss != NULL ? (float)t->loss(m->step) : 0;
        if (t->look != NULL)
            TUTTI_TRY(t->look(t, m->rank, &p, err));
        TUTTI_TRY(tutti_engine_pass_end(
            e, t->loss != NULL ? (double)p.samples * t->loss(m->step) : 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* For a rank that only serves: the calls of the workers' clients between their steps. */
static inline tutti_status trial_serve(trial *t, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int each = m->traits & TUTTI_ASYNC ? m->workers : 1;
    bool more;

    for (int s = t->show ? 1 : t->steps; s <= t->steps; s++) {
        TUTTI_TRY(tutti_engine_more(e, (uint64_t)(s * each), &more, err));
        if (more)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "rank %d, which only serves, was given a step", m->rank);
        if (t->show) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    return TUTTI_OK;
}

static inline tutti_status trial_train(trial *t, tutti_engine *e, tutti_world *world,
                                       tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint64_t bytes[TRIAL_RANKS], messages[TRIAL_RANKS], all[2], count;
    const int rank = m->rank;

    if (rank == 0)
        t->workers = m->workers;
    for (int to = 0; to < m->everyone.size; to++)
        tutti_world_sent(world, to, &bytes[to], &messages[to]);
    t->done[rank] = 0;
    if (rank >= m->workers)
        TUTTI_TRY(trial_serve(t, e, err));
    for (int s = 0; rank < m->workers && (t->asks || s < t->steps); s++) {
        bool more = true;
        if (t->asks)
            TUTTI_TRY(tutti_engine_more(e, (uint64_t)(t->steps * m->workers), &more, err));
        if (!more)
            break;
        TUTTI_TRY(trial_step(t, e, err));
        t->done[rank]++;
        if (!t->asks && !t->together && !m->overlaps_steps)
            memcpy(t->x[rank][s], m->x, trial_size(t) * sizeof(float));
        if (t->show) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    tutti_world_sent(world, TUTTI_ANY, &all[0], &count);
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_world_sent(world, TUTTI_ANY, &all[1], &count);
    t->end_bytes[rank] = all[1] - all[0];
    for (int to = 0; to < m->everyone.size; to++) {
        tutti_world_sent(world, to, &t->bytes[rank][to], &t->messages[rank][to]);
        t->bytes[rank][to] -= bytes[to];
        t->messages[rank][to] -= messages[to];
    }
    for (int k = 0; k < TRIAL_TENSORS && rank < m->workers; k++) { /* servers have none */
        const tutti_tensor *tensor = &m->layout->tensor[k];
        TUTTI_TRY(tutti_engine_unit_acquire(e, tensor->unit, false, err));
        memcpy(t->x[rank][t->steps] + tensor->first, tutti_engine_values(e, k),
               tensor->count * sizeof(float));
        TUTTI_TRY(tutti_engine_unit_release(e, tensor->unit, false, err));
    }
    if (m->overlaps_steps && rank < m->workers && t->steps > 0)
        memcpy(t->x[rank][t->steps - 1], t->x[rank][t->steps], trial_size(t) * sizeof(float));
    tutti_engine_figures(e, &t->figures[rank]);
    if (rank == 0) {
        const tutti_metric_record *told;
        t->metrics = tutti_engine_metrics(e, &told);
        if (t->metrics > TRIAL_METRICS)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "the method tells %d figures; a trial has room for %d", t->metrics,
                              TRIAL_METRICS);
        for (int k = 0; k < t->metrics; k++) {
            t->metric[k] = (tutti_metric_record){ NULL, told[k].worker, told[k].value, told[k].at };
            snprintf(t->metric_name[k], sizeof t->metric_name[k], "%s", told[k].name);
        }
    }
    return TUTTI_OK;
}

/* What the method reported of a worker (-1: of the run); NAN: nothing. */
static inline double trial_metric(const trial *t, const char *name, int worker)
{
    for (int k = 0; k < t->metrics; k++)
        if (t->metric[k].worker == worker && t->metric[k].at < 0 &&
            strcmp(t->metric_name[k], name) == 0)
            return t->metric[k].value;
    return NAN;
}

/* Of a worker's histogram: the number of values, their sum and the greatest. They are exact where
   no value exceeds 1,024. */
typedef struct trial_counts { double n, sum, most; } trial_counts;
static inline trial_counts trial_histogram(const trial *t, const char *name, int worker)
{
    trial_counts c = { 0 };
    for (int k = 0; k < t->metrics; k++)
        if (t->metric[k].worker == worker && t->metric[k].at >= 0 &&
            strcmp(t->metric_name[k], name) == 0) {
            c.n += t->metric[k].value;
            c.sum += t->metric[k].value * (double)t->metric[k].at;
            c.most = fmax(c.most, (double)t->metric[k].at);
        }
    return c;
}

static inline tutti_status trial_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TRIAL_TENSORS] = { "c", "b", "a" };
    trial *t = arg;
    tutti_engine_options options = t->options;
    tutti_param params[TRIAL_TENSORS];
    trial_seat seat = { .t = t };
    tutti_status status;

    for (int k = 0; k < TRIAL_TENSORS; k++)
        params[k] = (tutti_param){
            .name = names[k], .dims = 1, .dim = { t->count[k] }, .unit = TRIAL_TENSORS - 1 - k
        };
    options.method = t->method;
    options.needs = true;
    options.initial = trial_fill;
    options.user = &seat;
    options.evaluate = t->held_out != NULL ? trial_evaluate : NULL;
    status = tutti_engine_open_from(&seat.e, world, params, TRIAL_TENSORS, &options,
                                    t->methods != NULL ? t->methods : tutti_methods, err);
    if (status == TUTTI_OK)
        status = trial_train(t, seat.e, world, err);
    tutti_engine_close(seat.e);
    return status;
}

static inline trial trial_of(const char *method, const char *optimizer, int steps)
{
    return (trial){
        .options = { .optimizer = optimizer, .batch = 2 }, .method = method, .steps = steps,
        .count = { 1000, 33, 500 }, .gradient = trial_quadratic,
    };
}

/* The same with `servers` ranks behind the workers that only serve. */
static inline trial trial_served(const char *method, const char *optimizer, int steps, int servers)
{
    trial t = trial_of(method, optimizer, steps);

    t.options.servers = servers;
    return t;
}

static inline tutti_status trial_try(trial *t, int n, tutti_error *err)
{
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= t->steps; s++)
            if (t->x[r][s] == NULL &&
                (t->x[r][s] = tutti_alloc(trial_size(t), sizeof(float))) == NULL)
                return TUTTI_ERR_MEMORY;
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, trial_rank, t, err);
}

static inline void trial_run(trial *t, int n)
{
    tutti_error err;
    if (trial_try(t, n, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", t->method, n, err.text);
}

static inline float trial_bad(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return rank == 1 && step == 3 && i == 1010 ? NAN : 1;
}

/* Worker 1 of 4 computes a gradient that is not finite. That ends the run. From here on such a
   step is skipped. */
static inline void trial_ends_when_not_finite(trial *t)
{
    tutti_error err;

    t->gradient = trial_bad;
    assert_int_equal(trial_try(t, 4, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "worker 1: the gradient of b is nan at element 10 in step 3"));
    t->options.nonfinite = TUTTI_NONFINITE_SKIP;
}

/* After another run: worker 1 alone has skipped a step. */
static inline void trial_left_out_by_one(const trial *t)
{
    for (int r = 0; r < 4; r++)
        assert_int_equal(t->figures[r].skipped, r == 1);
}

static inline void trial_drop(trial *t)
{
    for (int r = 0; r < TRIAL_RANKS; r++)
        for (int s = 0; s <= TRIAL_STEPS; s++) {
            tutti_free(t->x[r][s]);
            t->x[r][s] = NULL;
        }
}

/* A run that ends because of a gradient, and one in which the worker with that gradient alone
   skips the step. */
static inline void trial_not_finite(const char *method, const char *optimizer)
{
    trial t = trial_of(method, optimizer, 6);

    trial_ends_when_not_finite(&t);
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    trial_drop(&t);
}

static inline bool trial_same(const trial *t, const float *a, const float *b)
{
    return memcmp(a, b, trial_size(t) * sizeof *a) == 0;
}

/* Largest difference of an element, relative to the largest element. */
static inline double trial_apart(const trial *t, const float *a, const float *b)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < trial_size(t); i++) {
        most = fmax(most, fabs((double)a[i] - b[i]));
        size = fmax(size, fabs((double)a[i]));
    }
    return most / fmax(size, 1);
}

/* Every worker has ddp's bits after every step. share: 0: all have as many samples; else
   different numbers, drawn by it, where worker 0 has the rest. */
static inline void trial_is_ddp(const char *method, const char *optimizer, int n, int servers,
                                double clip, int64_t share)
{
    int64_t shares[TRIAL_RANKS];
    trial a = trial_served(method, optimizer, 4, servers), b = trial_of("ddp", optimizer, 4);

    shares[0] = 2 * n;
    for (int r = 1; r < n; r++) {
        shares[r] = r * share % 4;
        shares[0] -= shares[r];
    }
    a.gradient = b.gradient = trial_rough;
    a.options.clip_norm = b.options.clip_norm = clip;
    a.options.batch_of = b.options.batch_of = share > 0 ? shares : NULL;
    trial_run(&a, n + servers);
    trial_run(&b, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= 4; s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s with %s on %d and %d servers: after step %d worker %d differs from "
                         "ddp", method, optimizer, n, servers, s, r);
    trial_drop(&a);
    trial_drop(&b);
}

/* Where part j begins of `count` elements that are divided in such parts. / How many it has. */
static inline uint64_t trial_part_begin(const uint32_t *parts, int n, int j, uint64_t count)
{
    uint64_t before = 0, all = 0;

    for (int i = 0; i < n; i++) {
        all += parts[i];
        before += i < j ? parts[i] : 0;
    }
    return before == all ? count : count / 16 * before / all * 16;
}
static inline uint64_t trial_part(const uint32_t *parts, int n, int j, uint64_t count)
{
    return trial_part_begin(parts, n, j + 1, count) - trial_part_begin(parts, n, j, count);
}

static inline uint64_t trial_floats(uint64_t first, uint64_t count)
{
    (void)first;
    return 4 * count;
}

/* After a run on `ranks` ranks: in each step every worker has sent each rank its part of every
   `chunk` elements of the model (0: of all at once), and has received the same from it. Parts of
   no element do not travel. message: bytes of that of elements [first, first + count). */
static inline void trial_parts_travel(const trial *t, int ranks, const uint32_t *parts,
                                      uint64_t chunk,
                                      uint64_t (*message)(uint64_t first, uint64_t count))
{
    const int n = ranks - t->options.servers;
    const uint64_t all = trial_size(t), each = chunk > 0 ? chunk : all, steps = (uint64_t)t->steps;

    assert_int_equal(t->workers, n);
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++) {
            uint64_t bytes = 0, messages = 0;
            for (uint64_t at = 0; at < all && i != j; at += each) {
                const uint64_t count = all - at < each ? all - at : each;
                const uint64_t mine = trial_part(parts, ranks, i, count),
                               its = trial_part(parts, ranks, j, count);
                if (i < n && its > 0) {
                    bytes += message(at + trial_part_begin(parts, ranks, j, count), its);
                    messages++;
                }
                if (j < n && mine > 0) {
                    bytes += message(at + trial_part_begin(parts, ranks, i, count), mine);
                    messages++;
                }
            }
            if (t->bytes[i][j] != steps * bytes)
                fail_msg("%s on %d and %d: %d sent %d %llu bytes, expected %llu", t->method, n,
                         t->options.servers, i, j, (unsigned long long)t->bytes[i][j],
                         (unsigned long long)(steps * bytes));
            assert_int_equal(t->messages[i][j], steps * messages);
        }
}
#endif
