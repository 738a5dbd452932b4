/* sharded.h: what the tests of zero and zero-offload run: a client with memory of its own, which
   hands its gradients over, on ranks that are threads. */
#ifndef TUTTI_TESTS_SHARDED_H
#define TUTTI_TESTS_SHARDED_H
#include "trial.h"

enum {
    TENSORS = 6, STEPS = 5, RANKS = 4, UNITS = 4, BLOCK = 4096,
    SIZE = 9001 + 40 + 64 + 3003 + 901 + 100
};
/* In ready order: two tensors of the last layer, the first of them large; small ones. */
static const size_t counts[TENSORS] = { 9001, 40, 64, 3003, 901, 100 };
static const int units[TENSORS] = { 3, 3, 2, 1, 1, 0 };

typedef struct run {
    const char *method;
    tutti_engine_options options;

    /* what it leaves */
    float x[RANKS][SIZE];
    uint64_t bytes[RANKS][RANKS], messages[RANKS][RANKS]; /* of the steps */
    int pieces;
    size_t piece_first[64], piece_count[64];
    double updated[RANKS], state_bytes[RANKS], units_live, values_live, tier_read, tier_written;
} run;

static inline run run_of(const char *method)
{
    return (run){ .method = method,
                  .options = { .batch = 2,
                               .needs = true,
                               .same_order = true,
                               .optimizer = "adamw(lr=0.01)",
                               .collective = "direct" } };
}

static inline void fill(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = trial_initial_value(i + (size_t)tensor);
}

static bool alike; /* gradients of all workers are rank 0's */
static bool whole; /* they are small whole numbers, whose sums have the same bits in any order */

/* Of tensor element i. */
static inline float gradient_of(int rank, uint64_t step, size_t i, float x)
{
    return trial_quadratic(rank, step, i, x) + (float)((step * 5 + i) % 7) / 3;
}

static inline float whole_number(const tutti_method *m, const tutti_pass *p, size_t i)
{
    return (float)((int64_t)(m->step * 5 + i + 3 * (size_t)m->rank) % 7 - 3 + p->index);
}

static inline tutti_status pass(tutti_engine *e, const tutti_pass *p, float *memory,
                                tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        for (int k = 0; k < TENSORS; k++) {
            const float *x = tutti_engine_values(e, k);
            if (units[k] != u)
                continue;
            for (size_t i = 0; i < counts[k]; i++)
                memory[i] = whole ? whole_number(m, p, i)
                                  : gradient_of(alike ? 0 : m->rank, m->step, i, x[i]);
            if (whole && m->step == 2 && p->index == 0 && k == 3 && m->rank == m->workers - 1)
                memory[7] = NAN; /* all skip the step */
            TUTTI_TRY(tutti_engine_grad_ready_from(e, k, memory, TUTTI_F32, err));
        }
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    return tutti_engine_pass_end(e, 0, err);
}

static inline void count(tutti_world *world, int rank, run *r, int sign)
{
    for (int to = 0; to < tutti_world_size(world); to++) {
        uint64_t bytes, messages;
        tutti_world_sent(world, to, &bytes, &messages);
        r->bytes[rank][to] += (uint64_t)sign * bytes;
        r->messages[rank][to] += (uint64_t)sign * messages;
    }
}

static inline void keep_what_is_told(run *r, tutti_engine *e)
{
    const tutti_layout *l = tutti_engine_method(e)->layout;
    const tutti_metric_record *told;
    const int n = tutti_engine_metrics(e, &told);

    r->pieces = l->n_pieces;
    for (int k = 0; k < l->n_pieces && k < 64; k++) {
        r->piece_first[k] = l->piece[k].first;
        r->piece_count[k] = l->piece[k].count;
    }
    for (int k = 0; k < n; k++) {
        if (strcmp(told[k].name, "updated_elements") == 0)
            r->updated[told[k].worker] = told[k].value;
        if (strcmp(told[k].name, "state_bytes_per_parameter") == 0)
            r->state_bytes[told[k].worker] = told[k].value;
        if (strcmp(told[k].name, "units_live") == 0)
            r->units_live = told[k].value;
        if (strcmp(told[k].name, "values_live") == 0)
            r->values_live = told[k].value;
        if (strcmp(told[k].name, "tier_read_bytes") == 0)
            r->tier_read = told[k].value;
        if (strcmp(told[k].name, "tier_written_bytes") == 0)
            r->tier_written = told[k].value;
    }
}

/* Copies unit by unit, since some methods hold no more than a unit. */
static inline tutti_status copy_values(tutti_engine *e, float *to, tutti_error *err)
{
    const tutti_layout *l = tutti_engine_method(e)->layout;

    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        for (int k = 0; k < TENSORS; k++)
            if (units[k] == u)
                memcpy(to + l->tensor[k].first, tutti_engine_values(e, k), counts[k] * sizeof *to);
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    return TUTTI_OK;
}

static inline tutti_status rank_of(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TENSORS] = { "f", "e", "d", "c", "b", "a" };
    run *r = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine_options options = r->options;
    tutti_param params[TENSORS];
    float *memory = tutti_alloc(SIZE, sizeof *memory);
    tutti_engine *e;
    tutti_status status;

    if (memory == NULL)
        return TUTTI_ERR_MEMORY;
    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){
            .name = names[k], .dims = 1, .dim = { counts[k] }, .unit = units[k]
        };
    options.method = r->method;
    options.initial = fill;
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        count(world, rank, r, -1);
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK &&
               (status = pass(e, &p, memory, err)) == TUTTI_OK)
            ;
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK) {
        count(world, rank, r, 1);
        status = copy_values(e, r->x[rank], err);
    }
    if (status == TUTTI_OK && rank == 0)
        keep_what_is_told(r, e);
    tutti_engine_close(e);
    tutti_free(memory);
    return status;
}

static inline void go(run *r, int n)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", n, rank_of, r, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", r->method, n, err.text);
}

/* For adds_up_as_ddp: with a lane and without, of a client that asks for units. */
static inline void lanes_differ(run *r, size_t k)
{
    r->options.lane = k % 2 == 0 ? 0 : -1;
    r->options.needs = true;
}

/* Passes that are added up, and gradients whose sums do not depend on their order: ddp's bits.
   `set` changes a run's options, for the method of that number. One pass has a
   gradient that is not finite. */
static inline void adds_up_as_ddp(const char *const *methods, size_t n_methods,
                                  void (*set)(run *r, size_t method))
{
    static run a, b;

    whole = true;
    for (int n = 1; n <= RANKS; n *= 2)
        for (int passes = 2; passes <= 3; passes++)
            for (size_t k = 0; k < n_methods; k++) {
                a = run_of("ddp");
                a.options.accumulate = passes;
                a.options.clip_norm = k % 2 == 0 ? 3 : 0;
                a.options.nonfinite = TUTTI_NONFINITE_SKIP;
                b = a;
                b.method = methods[k];
                if (set != NULL)
                    set(&b, k);
                go(&a, n);
                go(&b, n);
                for (int r = 0; r < n; r++)
                    if (memcmp(a.x[r], b.x[r], sizeof a.x[r]) != 0)
                        fail_msg("%s, %d passes, worker %d of %d: not ddp's bits", methods[k],
                                 passes, r, n);
            }
    whole = false;
}

/* On two ranks. */
static inline void refused(run *r, tutti_status status, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", 2, rank_of, r, &err), status);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: %s", r->method, err.text);
}
#endif
