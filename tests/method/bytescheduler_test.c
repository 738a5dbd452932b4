/* Goal: bytescheduler.md's invariants, on ranks that are threads. Method: a client of its own, with
   layers that are needed one by one, which keeps what each forward has read; the reference is
   ddp. Gradients depend on what was read, so a forward that ran ahead of its parameters would
   show twice. The order of admission is looked at where it is forced: one worker holds its
   gradients back until all of the leader's are ready. Schedules of all kinds are
   tests/explore's, lanes by themselves tests/engine's, resuming is in tests/engine/state_test.c. */
#include <stdatomic.h>
#include <time.h>

#include "sanitized.h"
#include "trial.h"

enum { TENSORS = 6, STEPS = 6, MANY = 40, RANKS = 4 };
/* In ready order: two tensors of the last layer, the first of them large; a large one in the
   middle; small ones. */
static const size_t counts[TENSORS] = { 5000, 40, 64, 3000, 900, 100 };
static const int units[TENSORS] = { 3, 3, 2, 1, 1, 0 };
enum { UNITS = 4, SIZE = 5000 + 40 + 64 + 3000 + 900 + 100 };

typedef struct run {
    const char *method, *optimizer;
    tutti_engine_options options;
    int steps;
    bool show;                          /* the agreed model is looked at after each step */
    /* holds: worker 1 announces in step 0 only what the first layer needs, and the rest when worker
       0 reads its first layer in step 1. gates: it announces nothing in step 0 before worker 0 has
       announced all */
    bool holds, gates;
    _Atomic int begun, announced;
    float bad;                          /* of worker 1 in step 3, element 10 of tensor 3; 0: none */

    /* what it leaves: what each forward has read, by step; the last: the agreed model */
    float *seen[RANKS][MANY + 1];
    uint64_t bytes[RANKS][RANKS], messages[RANKS][RANKS];
    int pieces, lane;
    size_t piece_first[1024], piece_count[1024];
    tutti_trace_event *trace;           /* worker 0's */
    size_t n_trace;
    char event[1024];                   /* worker 0's of kind "schedule" */
    double credit, partition;           /* of the method, at the end */
} run;

static run run_of(const char *method, const char *optimizer)
{
    return (run){ .method = method, .optimizer = optimizer, .steps = STEPS,
                  .options = { .batch = 2, .needs = true, .lr_schedule = "cosine(warmup=2)", .steps = STEPS } };
}

static void drop(run *r)
{
    for (int k = 0; k < RANKS; k++)
        for (int s = 0; s <= r->steps; s++)
            tutti_free(r->seen[k][s]);
    tutti_free(r->trace);
}

static bool wait_for(_Atomic int *flag)
{
    for (int turn = 0; turn < 40000 && !*flag; turn++) /* 20 s */
        nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
    return *flag;
}

static float gradient(const run *r, int rank, uint64_t step, size_t i, float x)
{
    if (rank == 1 && step == 3 && r->bad != 0 && i == 5104 + 10)
        return r->bad;
    return trial_quadratic(rank, step, i, x) + (float)((step * 5 + i) % 7) / 16;
}

static void fill(void *user, int tensor, float *values)
{
    size_t first = 0;

    (void)user;
    for (int k = 0; k < tensor; k++)
        first += counts[k];
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = trial_initial_value(first + i);
}

static tutti_status announce(run *r, tutti_engine *e, const tutti_pass *p, int tensor, const float *seen,
                             tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_tensor *t = &m->layout->tensor[tensor];

    for (size_t i = t->first; i < t->first + t->count; i++) {
        const float g = p->samples > 0 ? (float)p->scale * gradient(r, m->rank, m->step, i, seen[i]) : 0;
        m->g[i] = p->keep ? m->g[i] + g : g;
    }
    return tutti_engine_grad_ready(e, tensor, err);
}

static tutti_status pass(run *r, tutti_engine *e, const tutti_pass *p, int step, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    float *seen = r->seen[m->rank][step];
    const bool held = r->holds && m->rank == 1 && step == 0;

    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        if (step == 1 && m->rank == 0 && u == 0)
            r->begun = 1;
        for (int k = 0; k < TENSORS; k++)
            if (units[k] == u)
                memcpy(seen + m->layout->tensor[k].first, m->x + m->layout->tensor[k].first,
                       counts[k] * sizeof *seen);
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    if (r->gates && m->rank == 1 && step == 0 && !wait_for(&r->announced))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker 0 waits before it has announced its gradients");
    if (r->holds && step == 0) /* the first layer's before all others, on all workers */
        TUTTI_TRY(announce(r, e, p, TENSORS - 1, seen, err));
    if (held && !wait_for(&r->begun))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker 0 waits for the exchange of step 0 before its forward");
    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        for (int k = 0; k < TENSORS; k++)
            if (units[k] == u && !(r->holds && step == 0 && k == TENSORS - 1))
                TUTTI_TRY(announce(r, e, p, k, seen, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    if (step == 0 && m->rank == 0)
        r->announced = 1;
    return tutti_engine_pass_end(e, 0, err);
}

static tutti_status steps_of(run *r, tutti_engine *e, tutti_error *err)
{
    for (int s = 0; s < r->steps; s++) {
        tutti_pass p;
        tutti_status status;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(pass(r, e, &p, s, err));
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
        if (r->show) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    return TUTTI_OK;
}

static tutti_status serve(const run *r, tutti_engine *e, tutti_error *err)
{
    bool more;

    TUTTI_TRY(tutti_engine_more(e, (uint64_t)r->steps, &more, err));
    return more ? tutti_fail(err, TUTTI_ERR_STATE, 0, "a rank that only serves was given a step") : TUTTI_OK;
}

static void keep_what_is_told(run *r, tutti_engine *e)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_trace_event *trace;
    const tutti_event_record *events;
    const int n = tutti_engine_events(e, &events);

    r->lane = m->lane_width;
    r->pieces = m->layout->n_pieces;
    r->credit = (double)m->credit;
    r->partition = (double)m->piece_bytes;
    for (int k = 0; k < r->pieces && k < 1024; k++) {
        r->piece_first[k] = m->layout->piece[k].first;
        r->piece_count[k] = m->layout->piece[k].count;
    }
    for (int k = 0; k < n; k++)
        if (strcmp(events[k].kind, "schedule") == 0)
            snprintf(r->event + strlen(r->event), sizeof r->event - strlen(r->event), "%.400s; ", events[k].text);
    r->n_trace = tutti_engine_trace(e, &trace);
    r->trace = tutti_alloc(r->n_trace + 1, sizeof *r->trace);
    if (r->trace != NULL && r->n_trace > 0)
        memcpy(r->trace, trace, r->n_trace * sizeof *trace);
}

static tutti_status rank_of(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TENSORS] = { "f", "e", "d", "c", "b", "a" };
    run *r = arg;
    tutti_engine_options options = r->options;
    uint64_t bytes[RANKS], messages[RANKS];
    tutti_param params[TENSORS];
    tutti_engine *e;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { counts[k] }, .unit = units[k] };
    options.method = r->method;
    options.optimizer = r->optimizer;
    options.initial = fill;
    TUTTI_TRY(tutti_engine_open(&e, world, params, TENSORS, &options, err));
    const tutti_method *m = tutti_engine_method(e);
    for (int to = 0; to < m->everyone.size && to < RANKS; to++)
        tutti_world_sent(world, to, &bytes[to], &messages[to]);
    status = m->rank < m->workers ? steps_of(r, e, err) : serve(r, e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    for (int to = 0; to < m->everyone.size && to < RANKS; to++) {
        tutti_world_sent(world, to, &r->bytes[m->rank][to], &r->messages[m->rank][to]);
        r->bytes[m->rank][to] -= bytes[to];
        r->messages[m->rank][to] -= messages[to];
    }
    if (status == TUTTI_OK && m->x != NULL)
        memcpy(r->seen[m->rank][r->steps], m->x, SIZE * sizeof(float));
    if (status == TUTTI_OK && m->rank == 0)
        keep_what_is_told(r, e);
    tutti_engine_close(e);
    return status;
}

static tutti_status try(run *r, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    for (int k = 0; k < RANKS; k++)
        for (int s = 0; s <= r->steps; s++)
            if (r->seen[k][s] == NULL && (r->seen[k][s] = tutti_alloc(SIZE, sizeof(float))) == NULL)
                return TUTTI_ERR_MEMORY;
    return tutti_world_run("shm", n + r->options.servers, rank_of, r, err);
}

static void go(run *r, int n)
{
    tutti_error err;

    if (try(r, n, &err) != TUTTI_OK)
        fail_msg("%s, %s on %d: %s", r->method, r->optimizer, n, err.text);
}

static void assert_same(const run *a, const run *b, int n)
{
    for (int k = 0; k < n; k++)
        for (int s = 0; s <= a->steps; s++)
            if (memcmp(a->seen[k][s], b->seen[k][s], SIZE * sizeof(float)) != 0)
                fail_msg("%s, %s on %d: worker %d reads in step %d what it does not under %s", a->method, a->optimizer,
                         n, k, s, b->method);
}

static const char *const optimizers[] = { "sgd(lr=0.05,momentum=0.9)", "adamw(lr=0.01)" };

/* ---- bits ---- */

/* 1 KiB is 256 elements: most tensors are several parts, and parts meet several tensors. */
static void results_match_ddp_for_any_partition_credit_and_order(void **state)
{
    static const char *const forms[] = {
        "bytescheduler",
        "bytescheduler(partition_mb=0.001,credit_mb=0.001)",          /* stop and wait */
        "bytescheduler(partition_mb=0.001,credit_mb=0.003,fuse_mb=0)",
        "bytescheduler(partition_mb=0.004,fuse_mb=0.0005)",
        "bytescheduler(partition_mb=0.001,priority=fifo)",
        "bytescheduler(partition_mb=0.0007,cross_barrier=off)",
        "bytescheduler(partition_mb=0.002,credit_mb=64)",
    };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = 1; n <= RANKS; n++) {
            run b = run_of("ddp", optimizers[o]);
            go(&b, n);
            for (size_t k = 0; k < TUTTI_LENGTH(forms); k++) {
                run a = run_of(forms[k], optimizers[o]);
                a.options.lane = (int)(k + (size_t)n) % 4 == 3 ? -1 : 0;
                a.show = k % 3 == 1;
                go(&a, n);
                assert_same(&a, &b, n);
                drop(&a);
            }
            drop(&b);
        }
}

static void results_over_servers_match_ddp_bit_for_bit(void **state)
{
    static const struct { const char *method; int n, servers; } cases[] = {
        { "bytescheduler(over=servers)", 2, 0 },
        { "bytescheduler(over=servers,partition_mb=0.001,credit_mb=0.004)", 3, 0 },
        { "bytescheduler(over=servers,partition_mb=0.002,servers=1)", 4, 0 },
        { "bytescheduler(over=servers,partition_mb=0.002,servers=2,priority=fifo)", 3, 0 },
        { "bytescheduler(over=servers,partition_mb=0.003,credit_mb=0.003)", 2, 1 },
        { "bytescheduler(over=servers,partition_mb=0.001,cross_barrier=off)", 2, 2 },
        { "bytescheduler(over=servers,partition_mb=0.00006103515625,credit_mb=0.0002,fuse_mb=0)", 3, 0 }, /* 64 bytes */
        { "bytescheduler(over=servers)", 1, 0 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        run a = run_of(cases[c].method, optimizers[c % 2]), b = run_of("ddp", optimizers[c % 2]);
        a.options.servers = cases[c].servers;
        go(&a, cases[c].n);
        go(&b, cases[c].n);
        assert_same(&a, &b, cases[c].n);
        drop(&a);
        drop(&b);
    }
}

/* Several passes a step, uneven shares, short steps. */
static void results_match_ddp_with_uneven_shares_and_several_passes(void **state)
{
    static const int64_t shares[] = { 1, 4, 1 };

    (void)state;
    for (int k = 0; k < 3; k++) {
        run a = run_of(k == 2 ? "bytescheduler(over=servers,partition_mb=0.001)" : "bytescheduler(partition_mb=0.001)",
                       optimizers[k % 2]),
            b = run_of("ddp", optimizers[k % 2]);
        a.options.batch_of = b.options.batch_of = k > 0 ? shares : NULL;
        a.options.data_samples = b.options.data_samples = 19;
        a.options.accumulate = b.options.accumulate = k == 0 ? 2 : 1;
        go(&a, 3);
        go(&b, 3);
        assert_same(&a, &b, 3);
        drop(&a);
        drop(&b);
    }
}

/* What needs all gradients has a barrier for it, and then ddp's bits. */
static void barrier_is_kept_where_required_and_reported(void **state)
{
    static const struct { double clip; tutti_nonfinite nonfinite; const char *scale, *words; } cases[] = {
        { 3, TUTTI_NONFINITE_STOP, "", "clip-norm" },
        { 0, TUTTI_NONFINITE_SKIP, "", "nonfinite" },
        { 0, TUTTI_NONFINITE_STOP, "dynamic(init=1024)", "loss-scale" },
    };
    tutti_error err;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        run a = run_of("bytescheduler(partition_mb=0.001)", optimizers[c % 2]), b = run_of("ddp", optimizers[c % 2]);
        a.options.clip_norm = cases[c].clip;
        a.options.nonfinite = cases[c].nonfinite;
        a.options.loss_scale = cases[c].scale;
        a.bad = cases[c].nonfinite == TUTTI_NONFINITE_SKIP || cases[c].scale[0] != 0 ? NAN : 0;
        b.options = a.options;
        b.bad = a.bad;
        go(&a, 2);
        go(&b, 2);
        assert_same(&a, &b, 2);
        if (strstr(a.event, cases[c].words) == NULL && a.lane > 0)
            fail_msg("the event is '%s', and has no word of %s", a.event, cases[c].words);
        drop(&b);
        a.method = "bytescheduler(partition_mb=0.001,cross_barrier=on)";
        assert_int_equal(try(&a, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].words) == NULL)
            fail_msg("it is refused by '%s', without a word of %s", err.text, cases[c].words);
        drop(&a);
    }
}

/* ---- parts ---- */

/* Each element is in exactly one part, and no part exceeds delta. Without fusing the number of
   parts is the sum of ceil(s / delta); with it a part ends at the tensor with which it reaches
   fuse_mb. */
static void parts_are_cut_after_small_tensors_are_fused(void **state)
{
    /* fuse_mb in bytes: 0, 1 KiB, 4 KiB; delta of 1000 elements, rounded up to 64 bytes: 1008 */
    static const struct { double fuse; int parts; } cases[] = {
        { 0, 5 + 1 + 1 + 3 + 1 + 1 },                /* 5000 40 64 3000 900 100 */
        { 1.0 / 1024, 5 + 4 + 1 },                   /* 5000 | 40+64+3000, the last 80 with 900 | 100 */
        { 3.0 / 1024, 5 + 4 + 1 },
        { 64, 10 },                                  /* all: 9104 / 1008 */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        char method[96];
        run r;
        size_t at = 0;
        snprintf(method, sizeof method, "bytescheduler(partition_mb=%.9g,fuse_mb=%.9g)", 4000.0 / 1048576,
                 cases[c].fuse);
        r = run_of(method, optimizers[0]);
        r.steps = 1;
        go(&r, 2);
        assert_int_equal(r.pieces, cases[c].parts);
        for (int k = 0; k < r.pieces; k++) {
            assert_int_equal(r.piece_first[k], at);
            assert_true(r.piece_count[k] > 0 && r.piece_count[k] <= 1008);
            at += r.piece_count[k];
        }
        assert_int_equal(at, SIZE);
        drop(&r);
    }
}

/* What ddp sends in all, or parameter-server, and a message without payload for each part from
   worker 0 to each other. Small parts may take another algorithm, which sends more; these are
   large enough. */
static void traffic_matches_ddp_plus_one_message_per_part(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++)
        for (int over = 0; over < 2; over++) {
            run a = run_of(over ? "bytescheduler(over=servers,partition_mb=0.018)"
                                : "bytescheduler(partition_mb=0.018)",
                           optimizers[0]);
            uint64_t all = 0;
            a.options.lane = 2;
            go(&a, n);
            assert_int_equal(a.pieces, 2);
            for (int from = 0; from < n; from++)
                for (int to = 0; to < n; to++) {
                    all += a.bytes[from][to];
                    assert_int_equal(a.messages[from][to] - a.messages[to][from],
                                     from == to ? 0
                                     : from == 0  ? a.pieces * STEPS
                                     : to == 0    ? -a.pieces * STEPS
                                                  : 0);
                }
            assert_int_equal(all, (uint64_t)STEPS * 2 * (uint64_t)(n - 1) * sizeof(float) * SIZE);
            drop(&a);
        }
}

/* ---- the order ---- */

static int unit_of(const run *r, int piece)
{
    size_t first = 0;
    int least = UNITS;

    for (int k = 0; k < TENSORS; first += counts[k++])
        if (first < r->piece_first[piece] + r->piece_count[piece] && r->piece_first[piece] < first + counts[k] &&
            units[k] < least)
            least = units[k];
    return least;
}

/* Exchanges of step 0 on worker 0, in the order of their admission: the queue ends there. */
typedef struct admission { int piece; int64_t ready_ns, at_ns, ended_ns; } admission;
static int by_time(const void *a, const void *b)
{
    const int64_t x = ((const admission *)a)->at_ns, y = ((const admission *)b)->at_ns;
    return (x > y) - (x < y);
}

static int admissions(const run *r, uint64_t step, admission *log)
{
    int n = 0;

    for (size_t k = 0; k < r->n_trace; k++)
        if (r->trace[k].step == step && strcmp(r->trace[k].what, "queue") == 0)
            log[n++] = (admission){ r->trace[k].index, r->trace[k].begin_ns, r->trace[k].end_ns, 0 };
    for (size_t k = 0; k < r->n_trace; k++)
        for (int i = 0; i < n; i++)
            if (r->trace[k].step == step && strcmp(r->trace[k].what, "exchange") == 0 &&
                r->trace[k].index == log[i].piece)
                log[i].ended_ns = r->trace[k].end_ns;
    qsort(log, (size_t)n, sizeof *log, by_time);
    return n;
}

/* Worker 1 begins when all of worker 0's gradients are ready. Until then worker 0 has admitted as
   much as the credit allows; from there on the order is that of layers, with the parts of a layer
   in sequence. */
static void ready_parts_are_sent_in_layer_order(void **state)
{
    static admission log[1024];

    (void)state;
    for (int credit = 1; credit <= 3; credit++)
        for (int fifo = 0; fifo < 2; fifo++) {
            char method[128];
            run r;
            int n;
            snprintf(method, sizeof method, "bytescheduler(partition_mb=%.9g,credit_mb=%.9g,fuse_mb=0%s)",
                     1024.0 / 1048576, 1024.0 * credit / 1048576, fifo ? ",priority=fifo" : "");
            r = run_of(method, optimizers[0]);
            r.options.lane = 3;
            r.options.trace_events = 4096;
            r.gates = true;
            go(&r, 2);
            n = admissions(&r, 0, log);
            assert_int_equal(n, r.pieces);
            for (int k = credit + 1; k < n; k++) {
                const int a = log[k - 1].piece, b = log[k].piece;
                if (fifo ? a > b : unit_of(&r, a) > unit_of(&r, b) || (unit_of(&r, a) == unit_of(&r, b) && a > b))
                    fail_msg("%s: part %d of layer %d is admitted after part %d of layer %d", method, b, unit_of(&r, b),
                             a, unit_of(&r, a));
            }
            drop(&r);
        }
}

static void bytes_in_flight_do_not_exceed_the_credit(void **state)
{
    static admission log[1024];

    (void)state;
    for (int credit = 1; credit <= 3; credit++) {
        char method[128];
        run r;
        int64_t most = 0;
        snprintf(method, sizeof method, "bytescheduler(partition_mb=%.9g,credit_mb=%.9g)", 1024.0 / 1048576,
                 1024.0 * credit / 1048576);
        r = run_of(method, optimizers[0]);
        r.options.lane = 4; /* threads for more */
        r.options.trace_events = 4096;
        go(&r, 3);
        for (uint64_t step = 0; step < STEPS; step++) {
            const int n = admissions(&r, step, log);
            assert_int_equal(n, r.pieces);
            for (int k = 0; k < n; k++) {
                int64_t bytes = 0;
                for (int i = 0; i <= k; i++)
                    if (log[i].ended_ns > log[k].at_ns || i == k)
                        bytes += 4 * (int64_t)r.piece_count[log[i].piece];
                most = bytes > most ? bytes : most;
            }
        }
        assert_true(most <= 1024 * credit);
        drop(&r);
    }
}

/* The forward of step 1 begins at worker 0 while the exchange of step 0 waits for worker 1.
   Priority inside one step would end this with a sentence: there worker 0 waits for all of it. */
static void forward_overlaps_the_exchange_of_the_previous_step(void **state)
{
    static const char *const forms[] = { "bytescheduler(partition_mb=0.001,credit_mb=1,fuse_mb=0)",
                                         "bytescheduler(over=servers,partition_mb=0.001,credit_mb=1,fuse_mb=0)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++) {
        run a = run_of(forms[k], optimizers[0]), b = run_of("ddp", optimizers[0]);
        a.options.lane = 4;
        a.options.trace_events = 4096;
        a.holds = true;
        go(&a, 2);
        go(&b, 2);
        assert_same(&a, &b, 2);
        drop(&a);
        drop(&b);
    }
}

/* ---- the tuner ---- */

static void tuner_decisions_do_not_change_the_results(void **state)
{
    static const char *const forms[] = {
        "bytescheduler(partition_mb=0.002,credit_mb=0.004,tune=both,tune_points=3,tune_steps=4)",
        "bytescheduler(partition_mb=0.002,tune=credit,tune_points=4,tune_steps=4)",
        "bytescheduler(over=servers,partition_mb=0.002,credit_mb=0.004,tune=credit,tune_points=3,tune_steps=4)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
        for (int n = 1; n <= 3; n += 2) {
            run a = run_of(forms[k], optimizers[k % 2]), b = run_of("ddp", optimizers[k % 2]);
            a.steps = b.steps = MANY; /* 3 windows, and 6 in which the best of them meets the default */
            a.options.lane = 2;
            go(&a, n);
            go(&b, n);
            assert_same(&a, &b, n);
            drop(&a);
            drop(&b);
        }
}

/* ---- what goes wrong ---- */

static void nonfinite_gradient_is_reported_with_worker_tensor_and_step(void **state)
{
    static const char *const forms[] = { "bytescheduler(partition_mb=0.001)",
                                         "bytescheduler(partition_mb=0.001,cross_barrier=off)",
                                         "bytescheduler(over=servers,partition_mb=0.001)" };
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
        for (int lane = -1; lane <= 2; lane += 3) {
            run r = run_of(forms[k], optimizers[k % 2]);
            r.options.lane = lane;
            r.bad = NAN;
            assert_int_equal(try(&r, 3, &err), TUTTI_ERR_NUMBER);
            if (strstr(err.text, "worker 1: the gradient of c is nan at element 10 in step 3") == NULL)
                fail_msg("%s: %s", forms[k], err.text);
            drop(&r);
        }
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *codec; int servers; const char *words; } cases[] = {
        { "bytescheduler(partition_mb=8,credit_mb=4)", "sgd", "", 0,
          "partition_mb is 8 but credit_mb is only 4: a credit admits one part or more; give credit_mb=8" },
        { "bytescheduler(partition_mb=1e-5)", "sgd", "", 0, "a part has 64 or more" },
        { "bytescheduler(credit_mb=1e-5)", "sgd", "", 0, "a part has 64 or more" },
        { "bytescheduler(servers=2)", "sgd", "", 0, "over=servers" },
        { "bytescheduler(tune_points=5)", "sgd", "", 0, "tune=credit|both" },
        { "bytescheduler(over=servers,tune=both)", "sgd", "", 0, "over servers the parts stay as they are" },
        { "bytescheduler(over=servers)", "sgd", "fp16", 0, "has an exchange of its own, of float32" },
        { "bytescheduler", "sgd", "powersgd", 0, "has an exchange of its own, of float32" },
        { "bytescheduler", "sgd", "", 1, "has no servers with these options" },
        { "bytescheduler(cross_barrier=on)", "client", "", 0, "client" },
    };
    tutti_error err;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        run r = run_of(cases[c].method, cases[c].optimizer);
        r.options.codec = cases[c].codec;
        r.options.servers = cases[c].servers;
        r.options.lr_schedule = "constant";
        assert_int_equal(try(&r, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].words) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        drop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_match_ddp_for_any_partition_credit_and_order),
        cmocka_unit_test(results_over_servers_match_ddp_bit_for_bit),
        cmocka_unit_test(results_match_ddp_with_uneven_shares_and_several_passes),
        cmocka_unit_test(barrier_is_kept_where_required_and_reported),
        cmocka_unit_test(parts_are_cut_after_small_tensors_are_fused),
        cmocka_unit_test(traffic_matches_ddp_plus_one_message_per_part),
        cmocka_unit_test(ready_parts_are_sent_in_layer_order),
        cmocka_unit_test(bytes_in_flight_do_not_exceed_the_credit),
        cmocka_unit_test(forward_overlaps_the_exchange_of_the_previous_step),
        cmocka_unit_test(tuner_decisions_do_not_change_the_results),
        cmocka_unit_test(nonfinite_gradient_is_reported_with_worker_tensor_and_step),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
