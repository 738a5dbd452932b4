/* pieces_job.h: a client that goes through its units one by one, under a method whose pieces are
   cut, ordered and updated by its options (pipeline.h). What a run leaves is compared with what
   another leaves: the values that each unit had when it was needed, in every step, and those at the
   end.

   A job is memory that a forked process shares. Ranks are threads. */
#ifndef TUTTI_TESTS_PIECES_H
#define TUTTI_TESTS_PIECES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cut.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

/* ---- the client ---- */

enum { RANKS = 4, STEPS = 6, TENSORS = 7, UNITS = 4, TOTAL = 20000, COLS = 5 };

typedef struct job job;
struct job {
    char method[300];            /* of cut_methods */
    tutti_engine_options options;
    size_t count[TENSORS];       /* in the order of announcing */
    int unit[TENSORS];
    bool table[TENSORS];         /* of COLS columns */
    bool by_rows;                /* tables are announced by the rows that are touched */
    bool own_memory;
    bool forgets;                /* it calls need and done of no unit */
    int unused;                  /* a tensor that never has a gradient; -1: none */
    int frozen;                  /* a unit that is neither needed nor announced; -1: none */
    bool dawdles;                /* between ready and done, as if it computed with the values */
    double flops;                /* of each unit, forward; backward takes twice that */
    int bad_rank, bad_tensor, bad_step; /* where a gradient is not finite; bad_rank -1: nowhere */
    size_t bad_element;
    int quits_rank, quits_step;  /* the worker that fails by itself, in that step; quits_rank
                                    -1: none */
    int quits_unit;              /* in its backward; -1: once the step is over */
    int other_rank, other_tensor; /* in the same step; other_rank -1: nowhere else */
    int save_at, load_at;        /* before these steps; 0: not */
    const char *directory;
    int shows;                   /* before this step; 0: never */

    /* what it leaves */
    uint64_t seen[RANKS][STEPS][TENSORS]; /* values of each tensor when its unit was needed */
    float x[RANKS][TOTAL];
    int pieces;                  /* at the end */
    tutti_figures figures[RANKS];
    uint64_t bytes[RANKS], messages[RANKS]; /* sent in the steps and the end */
    int n_trace;                 /* of worker 0, where options.trace_events asks for it */
    tutti_trace_event trace[4096];
};

static inline job *job_of(const char *method, const char *optimizer)
{
    static const size_t count[TENSORS] = { 10, 700, 33, 1001, 7, 130, 250 };
    static const int unit[TENSORS] = { 3, 3, 2, 2, 1, 0, 0 };
    job *j = mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(j != MAP_FAILED);
    snprintf(j->method, sizeof j->method, "%s", method);
    j->options = (tutti_engine_options){ .optimizer = optimizer, .batch = 2, .data_samples = 44,
                                         .seed = 3 };
    memcpy(j->count, count, sizeof count);
    memcpy(j->unit, unit, sizeof unit);
    j->unused = j->frozen = j->bad_rank = j->other_rank = j->quits_rank = -1;
    return j;
}

static inline void drop(job *j)
{
    munmap(j, sizeof *j);
}

typedef struct seat {
    job *j;
    tutti_engine *e;
    int rank;
    float *values[TENSORS], *gradients[TENSORS];
} seat;

static inline float *values_of(const seat *s, int k)
{
    return s->j->own_memory ? s->values[k] : tutti_engine_values(s->e, k);
}

static inline uint64_t hash_of(const seat *s, int k)
{
    return tutti_hash(values_of(s, k), s->j->count[k] * sizeof(float));
}

static inline void job_initial(void *user, int tensor, float *values)
{
    const seat *s = user;

    for (size_t i = 0; i < s->j->count[tensor]; i++)
        values[i] = (float)tutti_uniform((tutti_rng){ 9, 100 + (uint64_t)tensor, 0 }, i) - 0.5f;
}

/* Rough numbers: their sums depend on the order of adding. */
static inline float pull(int rank, uint64_t step, int64_t pass, int k, size_t i)
{
    const uint64_t draw = tutti_random((tutti_rng){ (uint64_t)rank + 1, step * 16 + (uint64_t)pass,
                                                    (uint64_t)k }, i);

    return (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000) / 300;
}

static inline bool touches(int rank, uint64_t step, size_t row)
{
    return (row + step + (uint64_t)rank) % 3 == 0;
}

/* The gradient of a tensor, announced. */
static inline tutti_status announce(seat *s, const tutti_pass *p, int k, tutti_error *err)
{
    job *j = s->j;
    const uint64_t step = tutti_engine_method(s->e)->step;
    const float *x = values_of(s, k);
    float *g = j->own_memory ? s->gradients[k] : tutti_engine_gradient(s->e, k);
    const bool rows = j->table[k] && j->by_rows;
    const float part = p->samples > 0 ? (float)p->samples / (float)p->divisor : 0;
    uint32_t ids[TOTAL / COLS];
    size_t n = 0;

    for (size_t i = 0; i < j->count[k]; i++) {
        const bool touched = !j->table[k] || touches(s->rank, step, i / COLS);
        const float one = touched ? part * (0.1f * x[i] + pull(s->rank, step, p->index, k, i)) : 0;
        if (j->own_memory)
            g[i] = one;
        else if (touched || !rows)
            g[i] = p->keep || rows ? g[i] + one : one;
    }
    if (s->rank == j->bad_rank && k == j->bad_tensor && (int)step == j->bad_step)
        g[j->bad_element] = NAN;
    if (s->rank == j->other_rank && k == j->other_tensor && (int)step == j->bad_step)
        g[0] = INFINITY;
    if (!rows)
        return tutti_engine_grad_ready(s->e, k, err);
    for (size_t row = 0; row < j->count[k] / COLS; row++)
        if (touches(s->rank, step, row))
            ids[n++] = (uint32_t)row;
    return tutti_engine_grad_ready_rows(s->e, k, ids, n, err);
}

static inline tutti_status quit(const seat *s, uint64_t step, int unit, tutti_error *err)
{
    return s->rank == s->j->quits_rank && (int)step == s->j->quits_step && unit == s->j->quits_unit
               ? tutti_fail(err, TUTTI_ERR_STATE, 0, "that is enough")
               : TUTTI_OK;
}

static inline tutti_status job_pass(seat *s, const tutti_pass *p, tutti_error *err)
{
    job *j = s->j;
    const tutti_method *m = tutti_engine_method(s->e);
    const uint64_t step = m->step;

    for (int u = 0; u < UNITS; u++) {
        if (!j->forgets && u != j->frozen)
            TUTTI_TRY(tutti_engine_unit_acquire(s->e, u, false, err));
        for (int k = 0; k < TENSORS; k++)
            if (j->unit[k] == u && u != j->frozen && p->index == 0)
                j->seen[s->rank][step][k] = hash_of(s, k);
        tutti_charge(m->rt, j->flops, 0);
        if (!j->forgets && u != j->frozen)
            TUTTI_TRY(tutti_engine_unit_release(s->e, u, false, err));
    }
    for (int u = UNITS - 1; u >= 0; u--) {
        if (!j->forgets && u != j->frozen)
            TUTTI_TRY(tutti_engine_unit_acquire(s->e, u, true, err));
        TUTTI_TRY(quit(s, step, u, err));
        tutti_charge(m->rt, j->flops, 0);
        for (int k = 0; k < TENSORS; k++)
            if (j->unit[k] == u && k != j->unused && u != j->frozen)
                TUTTI_TRY(announce(s, p, k, err));
        tutti_charge(m->rt, j->flops, 0);
        if (j->dawdles)
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 300000);
        for (int k = 0; k < TENSORS; k++) /* what is in use has not been updated */
            if (j->unit[k] == u && u != j->frozen)
                CHECK(hash_of(s, k) == j->seen[s->rank][step][k]);
        if (!j->forgets && u != j->frozen)
            TUTTI_TRY(tutti_engine_unit_release(s->e, u, true, err));
    }
    return tutti_engine_pass_end(s->e, (double)p->samples, err);
}

static inline tutti_status job_load(seat *s, tutti_error *err)
{
    tutti_runtime *const rt = tutti_engine_method(s->e)->rt;
    tutti_checkpoint *checkpoint;
    char found[512];
    tutti_status status;

    TUTTI_TRY(tutti_checkpoint_find(rt, s->j->directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&checkpoint, rt, found, err));
    status = tutti_engine_load(s->e, checkpoint, err);
    tutti_checkpoint_close(checkpoint);
    return status;
}

static inline tutti_status job_train(seat *s, tutti_world *world, tutti_error *err)
{
    job *j = s->j;
    const tutti_method *m = tutti_engine_method(s->e);
    uint64_t bytes, messages;
    tutti_pass p;
    tutti_status status;

    tutti_world_sent(world, TUTTI_ANY, &bytes, &messages);
    if (j->load_at > 0)
        TUTTI_TRY(job_load(s, err));
    for (int step = j->load_at; step < STEPS; step++) {
        if (j->save_at > 0 && step == j->save_at)
            TUTTI_TRY(tutti_engine_save(s->e, j->directory, "{}", 1, err));
        if (j->shows > 0 && step % j->shows == 0) {
            TUTTI_TRY(tutti_engine_eval_begin(s->e, err));
            TUTTI_TRY(tutti_engine_eval_end(s->e, err));
        }
        while ((status = tutti_engine_pass_begin(s->e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(job_pass(s, &p, err));
        TUTTI_TRY(status == TUTTI_CLOSED ? tutti_engine_step(s->e, err) : status);
        TUTTI_TRY(quit(s, (uint64_t)step, -1, err));
    }
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    for (int k = 0; k < TENSORS; k++)
        memcpy(j->x[m->rank] + m->layout->tensor[k].first, values_of(s, k),
               j->count[k] * sizeof(float));
    tutti_engine_figures(s->e, &j->figures[m->rank]);
    tutti_world_sent(world, TUTTI_ANY, &j->bytes[m->rank], &j->messages[m->rank]);
    j->bytes[m->rank] -= bytes;
    j->messages[m->rank] -= messages;
    if (m->rank == 0) {
        const tutti_trace_event *events;
        const size_t n = tutti_engine_trace(s->e, &events);
        CHECK(n <= TUTTI_LENGTH(j->trace));
        memcpy(j->trace, events, n * sizeof *events);
        j->n_trace = (int)n;
        j->pieces = m->layout->n_pieces;
    }
    return TUTTI_OK;
}

static inline tutti_status job_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TENSORS] = { "g", "f", "e", "d", "c", "b", "a" };
    job *j = arg;
    float memory[2][TOTAL];
    seat s = { .j = j, .rank = tutti_world_rank(world) };
    tutti_engine_options options = j->options;
    tutti_param params[TENSORS];
    size_t at = 0;
    tutti_status status;

    for (int k = 0; k < TENSORS; at += j->count[k++]) {
        const bool table = j->table[k];
        s.values[k] = memory[0] + at;
        s.gradients[k] = memory[1] + at;
        params[k] = (tutti_param){ .name = names[k], .unit = j->unit[k],
                                   .dims = table ? 2 : 1, .row_sparse = table,
                                   .dim = { table ? j->count[k] / COLS : j->count[k], COLS },
                                   .values = j->own_memory ? s.values[k] : NULL,
                                   .gradient = j->own_memory ? s.gradients[k] : NULL };
        if (j->own_memory)
            job_initial(&s, k, s.values[k]);
    }
    options.method = j->method;
    options.initial = job_initial;
    options.user = &s;
    options.needs = !j->forgets;
    status = tutti_engine_open_from(&s.e, world, params, TENSORS, &options, cut_methods, err);
    if (status == TUTTI_OK)
        status = job_train(&s, world, err);
    tutti_engine_close(s.e);
    return status;
}

static inline tutti_status job_try(job *j, const char *transport, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run(transport, n, job_rank, j, err);
}

static inline void job_run(job *j, const char *transport, int n)
{
    tutti_error err;

    if (job_try(j, transport, n, &err) != TUTTI_OK)
        fail_msg("%s with %s, %d workers on %s: %s", j->method, j->options.optimizer, n, transport,
                 err.text);
}

/* All values that were seen, and the final ones, from step `from` on. */
static inline void job_same(const job *a, const job *b, int n, int from)
{
    for (int r = 0; r < n; r++) {
        for (int step = from; step < STEPS; step++)
            for (int k = 0; k < TENSORS; k++)
                if (a->seen[r][step][k] != b->seen[r][step][k])
                    fail_msg("%s and %s, %d workers: worker %d saw other values of tensor %d in "
                             "step %d", a->method, b->method, n, r, k, step);
        if (memcmp(a->x[r], b->x[r], sizeof a->x[r]) != 0)
            fail_msg("%s and %s, %d workers: worker %d ends with other values", a->method,
                     b->method, n, r);
    }
}

/* The same job under another method, without the results of the first. */
static inline job *job_like(const job *like, const char *method)
{
    job *j = job_of("", NULL);

    memcpy(j, like, offsetof(job, seen));
    snprintf(j->method, sizeof j->method, "%s", method);
    return j;
}

/* It is refused with this sentence. */
static inline void job_refused(job *j, const char *sentence)
{
    tutti_error err;

    assert_int_equal(job_try(j, "shm", 2, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    drop(j);
}

/* The last of n workers has a nan at the end of tensor k in that step: it is named. */
static inline void job_has_nan(const char *method, bool own_memory, int n, int k, int step)
{
    static const char *const names[TENSORS] = { "g", "f", "e", "d", "c", "b", "a" };
    job *j = job_of(method, "sgd(lr=0.1,momentum=0.9,nesterov=true)");
    char start[80];
    tutti_error err;

    j->own_memory = own_memory;
    j->bad_rank = n - 1, j->bad_tensor = k, j->bad_step = step;
    j->bad_element = j->count[k] - 1;
    assert_int_equal(job_try(j, "shm", n, &err), TUTTI_ERR_NUMBER);
    snprintf(start, sizeof start, "worker %d: the gradient of %s is nan at element %zu in step %d",
             n - 1, names[k], j->bad_element, step);
    if (strstr(err.text, start) == NULL)
        fail_msg("%s: %s", j->method, err.text);
    drop(j);
}

/* Of three workers that one leaves, once after a step, once in its last unit and once in its
   first: all learn why. */
static inline void job_is_left(const char *method, bool own_memory, int rank)
{
    for (int unit = -1; unit < UNITS; unit += 3) {
        job *j = job_of(method, "sgd(lr=0.1,momentum=0.9,nesterov=true)");
        tutti_error err;

        j->own_memory = own_memory;
        j->quits_rank = rank, j->quits_step = 2, j->quits_unit = unit;
        assert_int_equal(job_try(j, "shm", 3, &err), TUTTI_ERR_STATE);
        if (strstr(err.text, "that is enough") == NULL)
            fail_msg("%s: %s", j->method, err.text);
        drop(j);
    }
}

#endif
