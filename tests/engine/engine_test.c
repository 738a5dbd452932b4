/* Goal: what tutti.h and docs/methods/ddp.md promise of a step holds on ranks that are threads:
   equal replicas, exact means, exact traffic, order, errors. Method: the toy client; every fact
   compared bit for bit where the contract demands it. */
#include <limits.h>
#include "sanitized.h"
#include "toy.h"

typedef struct job {
    toy t;
    bool no_lane;
    uint64_t hash[16];                     /* of each rank's values at the end */
    uint64_t each_step[16][64];            /* of each rank after each step */
    uint64_t bytes[16][16], messages[16][16]; /* [from][to], of the steps alone */
    tutti_figures figures[16];
    char event[16][200];
    int events[16];
    float *x;                              /* worker 0's values at the end; NULL: not wanted */
} job;

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    toy t = j->t;
    tutti_engine *e;
    const tutti_event_record *events;
    uint64_t bytes[16], messages[16];

    t.options.lane = j->no_lane ? -1 : 0;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int to = 0; to < size; to++)
        tutti_world_sent(world, to, &bytes[to], &messages[to]);
    for (int s = 0; s < t.steps; s++) {
        const tutti_status status = toy_step(e, &t, err);
        if (status != TUTTI_OK) {
            tutti_engine_close(e);
            return status;
        }
        j->each_step[rank][s] = toy_hash(e);
    }
    for (int to = 0; to < size; to++) {
        uint64_t b, m;
        tutti_world_sent(world, to, &b, &m);
        j->bytes[rank][to] = b - bytes[to];
        j->messages[rank][to] = m - messages[to];
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    j->hash[rank] = toy_hash(e);
    if (rank == 0 && j->x != NULL)
        memcpy(j->x, tutti_engine_method(e)->x, tutti_engine_method(e)->n * sizeof *j->x);
    tutti_engine_figures(e, &j->figures[rank]);
    j->events[rank] = tutti_engine_events(e, &events);
    if (j->events[rank] > 0)
        snprintf(j->event[rank], sizeof j->event[rank], "%s: %s", events[0].kind, events[0].text);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void run_job(job *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

static void ddp_with_one_worker_matches_single_bit_for_bit(void **state)
{
    job a = { .t = toy_default() }, b = { .t = toy_default() };

    (void)state;
    b.t.options.method = "single";
    a.t.options.optimizer = b.t.options.optimizer = "adamw(lr=0.01)";
    run_job(&a, 1);
    run_job(&b, 1);
    for (int s = 0; s < a.t.steps; s++)
        assert_int_equal(a.each_step[0][s], b.each_step[0][s]);
    assert_int_not_equal(a.each_step[0][0], a.each_step[0][1]); /* it does train */
}

static void replicas_are_equal_after_every_step_whatever_the_buckets_lane_and_order(void **state)
{
    static const char *const methods[] = {
        "ddp", "ddp(bucket_mb=0.000001,first_bucket_mb=0.000001)", "ddp(bucket_mb=1000,first_bucket_mb=1000)",
        "ddp(0.1)",
    };
    static const int sizes[] = { 3, 4, 7, 2 }; /* where threads are watched the first and the last */

    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 3)) {
        uint64_t first[64];
        for (size_t i = 0; i < 2 * TUTTI_LENGTH(methods); i++) {
            job j = { .t = toy_default(), .no_lane = i >= TUTTI_LENGTH(methods) };
            j.t.options.method = methods[i % TUTTI_LENGTH(methods)];
            j.t.order_seed = i; /* each rank announces in its own order */
            run_job(&j, sizes[p]);
            for (int s = 0; s < j.t.steps; s++) {
                for (int r = 1; r < sizes[p]; r++)
                    assert_int_equal(j.each_step[r][s], j.each_step[0][s]);
                if (i == 0)
                    first[s] = j.each_step[0][s];
                assert_int_equal(j.each_step[0][s], first[s]);
            }
        }
    }
}

/* The gradient that is applied is the tree sum of w_r g_r: one step of plain SGD with lr 1 shows
   it. data_samples 50, 3 workers, batch 4: the fifth step of the epoch has two samples: workers 0
   and 1 have one each, worker 2 has none. */
static void the_applied_gradient_is_the_exactly_weighted_mean(void **state)
{
    job j = { .t = toy_default() };
    float *x, *expect;
    const tutti_share share = { 50, 3, 4, 1, 3 };
    size_t n = 0;

    (void)state;
    j.t.options.optimizer = "sgd(lr=0.5)";
    j.t.steps = 5;
    for (int i = 0; i < TOY_TENSORS; i++)
        n += j.t.count[i];
    x = tutti_alloc(n, sizeof *x);
    expect = tutti_alloc(n, sizeof *expect);
    assert_non_null(x);
    assert_non_null(expect);
    size_t at = 0;
    for (int i = 0; i < TOY_TENSORS; at += j.t.count[i], i++)
        toy_initial(&j.t, i, x + at);
    for (uint64_t s = 0; s < 5; s++) {
        const int64_t all = tutti_share_step(&share, s, -1);
        assert_int_equal(all, s < 4 ? 12 : 2);
        at = 0;
        uint64_t id[3][4];
        int64_t samples[3];
        for (int r = 0; r < 3; r++) {
            uint64_t epoch, position;
            samples[r] = tutti_share_pass(&share, s, r, 0, &epoch, &position);
            for (int64_t b = 0; b < samples[r]; b++)
                id[r][b] = tutti_share_sample(&share, epoch, position + (uint64_t)b);
        }
        for (int i = 0; i < TOY_TENSORS; at += j.t.count[i], i++)
            for (size_t k = 0; k < j.t.count[i]; k++) {
                float part[3];
                for (int r = 0; r < 3; r++) {
                    double sum = 0;
                    for (int64_t b = 0; b < samples[r]; b++)
                        sum += x[at + k] - toy_pull(id[r][b], i, k);
                    part[r] = (float)((double)samples[r] / (double)all) *
                              (samples[r] > 0 ? (float)(sum / (double)samples[r]) : 0);
                }
                expect[at + k] = x[at + k] - 0.5f * ((part[0] + part[1]) + part[2]);
            }
        memcpy(x, expect, n * sizeof *x);
    }
    run_job(&j, 3);
    /* The engine pads the end for three workers; compare through a hash
       of the vector padded the same way. */
    {
        float *padded = tutti_alloc(n + 1024, sizeof *padded);
        size_t place = 0;
        assert_non_null(padded);
        memcpy(padded, x, n * sizeof *x);
        place = (n + 191) / 192 * 192;
        assert_int_equal(tutti_hash(padded, place * sizeof *padded), j.hash[0]);
        tutti_free(padded);
    }
    tutti_free(x);
    tutti_free(expect);
}

/* ddp.md: 2 (n-1)/n e d bytes sent by each worker a step on average, 2 (n-1) e d in all; for a pair
   the direct algorithm sends the slice of the receiver (to be reduced) and its own reduced slice.
   The pieces are [first, first + count). */
static void the_traffic_of_a_step_is_exactly_the_formula(void **state)
{
    static const int sizes[] = { 1, 2, 3, 4, 8 };

    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
        const int n = sizes[p];
        job j = { .t = toy_default() };
        uint64_t total = 0;
        const uint64_t d = 10 + 70000 + 33 + 80001 + 7;
        j.t.options.method = "ddp(1000)";
        j.t.steps = 3;
        run_job(&j, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++) {
                total += j.bytes[r][to];
                if (n > 1 && r != to) {
                    assert_int_equal(j.bytes[r][to], j.bytes[to][r]); /* slice_to + slice_r both ways */
                    assert_in_range(j.bytes[r][to], 3 * 4 * 2 * (d / (uint64_t)n - 16),
                                    3 * 4 * 2 * (d / (uint64_t)n + 64));
                }
            }
        assert_int_equal(total, 3 * 2 * (uint64_t)(n - 1) * 4 * d);
        for (int r = 0; r < n; r++) { /* the engine's own account is the world's */
            uint64_t sent = 0;
            for (int to = 0; to < n; to++)
                sent += j.bytes[r][to];
            assert_int_equal(j.figures[r].bytes_sent, sent);
        }
    }
}

/* Largest difference of two runs' values. */
static double apart(const job *a, const job *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a->x[i] - b->x[i]));
    return most;
}

/* Three passes of two samples are one of six, up to rounding: a sum of three float32 in place of
   one, each step. A run of two samples ends with another model. */
static void accumulation_sends_nothing_extra_and_equals_the_larger_batch(void **state)
{
    job jobs[3] = { { .t = toy_default() }, { .t = toy_default() }, { .t = toy_default() } }, *a = &jobs[0],
        *b = &jobs[1], *less = &jobs[2];
    uint64_t sent_a = 0, sent_b = 0;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < TOY_TENSORS; i++)
        n += a->t.count[i] + 64; /* whatever stands between tensors */
    a->t.options.batch = less->t.options.batch = 2;
    a->t.options.accumulate = 3;
    b->t.options.batch = 6;
    for (int k = 0; k < 3; k++) {
        jobs[k].t.options.data_samples = 48; /* four steps of twelve: no tail */
        jobs[k].t.options.optimizer = "sgd(lr=0.5)";
        jobs[k].x = tutti_alloc(n, sizeof(float));
        run_job(&jobs[k], 2);
    }
    for (int r = 0; r < 2; r++)
        for (int to = 0; to < 2; to++) {
            sent_a += a->bytes[r][to];
            sent_b += b->bytes[r][to];
        }
    assert_int_equal(sent_a, sent_b);
    assert_int_equal(a->figures[0].samples, b->figures[0].samples);
    assert_int_equal(a->figures[0].steps, b->figures[0].steps);
    if (!(apart(a, b, n) < 2e-6 && apart(a, less, n) > 0.05))
        fail_msg("accumulated passes end %g from the larger batch, and %g from the smaller one", apart(a, b, n),
                 apart(a, less, n));
    for (int k = 0; k < 3; k++)
        tutti_free(jobs[k].x);
}

static void a_client_with_its_own_memory_gets_the_same_bits(void **state)
{
    job a = { .t = toy_default() }, b = { .t = toy_default() };

    (void)state;
    b.t.own_memory = true;
    a.t.options.batch = b.t.options.batch = 3;
    for (int i = 0; i < TOY_TENSORS; i++) {
        b.t.values[i] = tutti_alloc(b.t.count[i], sizeof(float));
        b.t.gradients[i] = tutti_alloc(b.t.count[i], sizeof(float));
        toy_initial(&b.t, i, b.t.values[i]);
    }
    run_job(&a, 1);
    run_job(&b, 1);
    assert_int_equal(a.hash[0], b.hash[0]);
    for (int i = 0; i < TOY_TENSORS; i++) {
        tutti_free(b.t.values[i]);
        tutti_free(b.t.gradients[i]);
    }
}

/* ---- passes without samples, of clients that have their own memory ---- */

/* As toy_step, but of a pass without samples only the end of each gradient is announced: its
   memory contains what the client had there before. */
static tutti_status step_of_few(tutti_engine *e, toy *t, tutti_error *err)
{
    const tutti_share share = { t->options.data_samples, tutti_engine_method(e)->workers, t->options.batch,
                                t->options.accumulate, t->options.seed };
    const uint64_t step = tutti_engine_method(e)->step;
    tutti_status status;
    tutti_pass p;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (p.samples > 0) {
            TUTTI_TRY(toy_pass(e, t, &share, &p, step, err));
            continue;
        }
        for (int i = 0; i < TOY_TENSORS; i++) {
            for (size_t k = 0; k < t->count[i]; k++)
                t->gradients[i][k] = NAN; /* times a weight of 0 it is still one */
            TUTTI_TRY(tutti_engine_grad_ready(e, i, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status few_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    toy t = j->t;
    tutti_status status = TUTTI_OK;
    tutti_engine *e = NULL;

    t.own_memory = true;
    for (int i = 0; i < TOY_TENSORS; i++) {
        t.values[i] = tutti_alloc(t.count[i], sizeof(float));
        t.gradients[i] = tutti_alloc(t.count[i], sizeof(float));
        toy_initial(&t, i, t.values[i]);
    }
    status = toy_open(&e, world, &t, err);
    for (int s = 0; s < t.steps && status == TUTTI_OK; s++)
        status = step_of_few(e, &t, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        j->hash[tutti_world_rank(world)] = toy_hash(e);
    tutti_engine_close(e);
    for (int i = 0; i < TOY_TENSORS; i++) {
        tutti_free(t.values[i]);
        tutti_free(t.gradients[i]);
    }
    return status;
}

/* 26 samples in steps of 12: the third step's two go to the first two of three workers. */
static void gradient_memory_is_ignored_in_passes_without_samples(void **state)
{
    static const char *const methods[] = { "ddp", "d-psgd", "local-sgd(period=2)" };

    (void)state;
    for (size_t k = 0; k < 2 * TUTTI_LENGTH(methods); k++) {
        job a = { .t = toy_default() }, b;
        tutti_error err = { .rank = -1 };
        a.t.options.method = methods[k / 2];
        a.t.options.data_samples = 26;
        a.t.options.accumulate = 1 + (int64_t)k % 2;
        a.t.options.batch = 4 / a.t.options.accumulate;
        a.t.count[1] = 700, a.t.count[3] = 801;
        b = a;
        run_job(&a, 3);
        if (tutti_world_run("shm", 3, few_rank, &b, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < 3; r++)
            assert_int_equal(a.hash[r], b.hash[r]);
    }
}

static void an_unused_parameter_counts_as_zero_and_is_named_once(void **state)
{
    job j = { .t = toy_default() };

    (void)state;
    j.t.unused = 2;
    run_job(&j, 2);
    assert_int_equal(j.hash[0], j.hash[1]);
    assert_int_equal(j.events[0], 1);
    assert_string_equal(j.event[0],
                        "unused-parameter: c.bias had no gradient in step 0; it counts as zero (reported once)");
}

static void a_bad_gradient_stops_the_run_and_names_worker_tensor_and_step(void **state)
{
    job j = { .t = toy_default() };
    tutti_error err = { .rank = -1 };

    (void)state;
    j.t.bad_rank = 1;
    j.t.bad_tensor = 3;
    j.t.bad_step = 2;
    assert_int_equal(tutti_world_run("shm", 3, run_rank, &j, &err), TUTTI_ERR_NUMBER);
    assert_int_equal(err.rank, 1);
    assert_string_equal(err.text, "worker 1: the gradient of b.weight is nan at element 40000 in step 2; lower the "
                                  "learning rate, clip the gradient (clip-norm) or "
                                  "leave such steps out (nonfinite=skip)");
}

static void nonfinite_skip_applies_to_all_workers_and_is_reported(void **state)
{
    job j = { .t = toy_default() };

    (void)state;
    j.t.bad_rank = 1;
    j.t.bad_tensor = 3;
    j.t.bad_step = 2;
    j.t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    run_job(&j, 3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.each_step[r][2], j.each_step[r][1]); /* no update */
        assert_int_not_equal(j.each_step[r][3], j.each_step[r][2]);
        assert_int_equal(j.hash[r], j.hash[0]);
        assert_int_equal(j.figures[r].skipped, 1);
        assert_string_equal(
            j.event[r], "nonfinite: worker 1: the gradient of b.weight is not finite in step 2; the step was skipped");
    }
}

static void clipping_changes_the_update_only_above_the_norm(void **state)
{
    job free_run = { .t = toy_default() }, loose = { .t = toy_default() }, tight = { .t = toy_default() };

    (void)state;
    free_run.t.steps = loose.t.steps = tight.t.steps = 1;
    loose.t.options.clip_norm = 1e9; /* larger than any gradient: nothing changes */
    tight.t.options.clip_norm = 0.001;
    run_job(&free_run, 2);
    run_job(&loose, 2);
    run_job(&tight, 2);
    assert_int_equal(free_run.hash[0], loose.hash[0]);
    assert_int_not_equal(free_run.hash[0], tight.hash[0]);
}

/* ---- how far one SGD step moves under clipping: |dx| = lr max_norm / (1
   + 1e-6 / norm), to rounding ---- */
static tutti_status clipped_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = toy_default();
    tutti_engine *e;
    const tutti_method *m;
    float *before;
    double moved = 0;

    (void)arg;
    t.options.clip_norm = 0.25;
    t.options.optimizer = "sgd(lr=1)";
    TUTTI_TRY(toy_open(&e, world, &t, err));
    m = tutti_engine_method(e);
    before = tutti_alloc(m->n, sizeof *before);
    memcpy(before, m->x, m->n * sizeof *before);
    TUTTI_TRY(toy_step(e, &t, err));
    for (size_t i = 0; i < m->n; i++)
        moved += ((double)m->x[i] - before[i]) * ((double)m->x[i] - before[i]);
    tutti_free(before);
    tutti_engine_close(e);
    CHECK(fabs(sqrt(moved) - 0.25) < 1e-5);
    return TUTTI_OK;
}

static void clipped_step_moves_by_exactly_the_clip_norm(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_world_run("shm", 2, clipped_rank, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* ---- fingerprints ---- */

typedef struct mismatch { int which; tutti_status status[4]; char text[4][480]; } mismatch;

static tutti_status mismatch_rank(tutti_world *world, void *arg, tutti_error *err)
{
    mismatch *m = arg;
    const int rank = tutti_world_rank(world);
    toy t = toy_default();
    tutti_engine *e;

    if (rank == 2 && m->which == 0)
        t.options.batch = 5;
    if (rank == 2 && m->which == 1)
        t.count[1] = 70001;
    if (rank == 1 && m->which == 2)
        t.options.optimizer = "sgd(lr=0.06,momentum=0.9)";
    if (rank == 3 && m->which == 4) /* the seed of codecs' draws, as for PowerSGD's first factors */
        t.options.seed++;
    if (rank == 3 && m->which == 3)
        t.options.fingerprint = "model=other\n";
    else if (m->which == 3)
        t.options.fingerprint = "model=mlp\n";
    m->status[rank] = toy_open(&e, world, &t, err);
    snprintf(m->text[rank], sizeof m->text[rank], "%s", err->text);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void workers_that_differ_are_refused_on_all_with_both_values(void **state)
{
    static const char *const sentence[] = {
        "worker 2 has batch '5' but worker 0 has '4'; start all workers with the same options, model and data",
        "worker 2 has parameter 1 'd.weight of shape 70001 in unit 3' but worker 0 has 'd.weight of shape 70000 in "
        "unit 3'; start all workers with the same options, model and data",
        "worker 1 has optimizer 'sgd(lr=0.06,momentum=0.9)' but worker 0 has 'sgd(lr=0.05,momentum=0.9)'; start all "
        "workers with the same options, model and data",
        "worker 3 has model 'other' but worker 0 has 'mlp'; start all workers with the same options, model and data",
        "worker 3 has seed '4' but worker 0 has '3'; start all workers with the same options, model and data",
    };

    (void)state;
    for (int which = 0; which < 5; which++) {
        mismatch m = { .which = which };
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", 4, mismatch_rank, &m, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(m.status[r], TUTTI_ERR_USAGE);
            assert_string_equal(m.text[r], sentence[which]);
        }
    }
}

/* ---- what some ranks refuse by themselves ---- */

typedef struct refused { unsigned who; tutti_status status[4]; char text[4][480]; } refused; /* who: bits */

static tutti_status refusal_rank(tutti_world *world, void *arg, tutti_error *err)
{
    refused *r = arg;
    const int rank = tutti_world_rank(world);
    toy t = toy_default(), bad = t;
    tutti_engine *e;

    bad.options.batch = r->who >> rank & 1 ? -7 - rank : t.options.batch;
    r->status[rank] = toy_open(&e, world, &bad, err);
    snprintf(r->text[rank], sizeof r->text[rank], "%s", err->text);
    CHECK(e == NULL);
    TUTTI_TRY(toy_open(&e, world, &t, err)); /* the world is as it was */
    TUTTI_TRY(toy_step(e, &t, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void options_rejected_by_one_rank_are_rejected_on_all(void **state)
{
    (void)state;
    for (unsigned who = 1; who < 16; who++) {
        refused r = { .who = who };
        tutti_error err = { .rank = -1 };
        int first = 0;
        char told[600], number[16];

        while ((who >> first & 1) == 0)
            first++;
        if (tutti_world_run("shm", 4, refusal_rank, &r, &err) != TUTTI_OK)
            fail_msg("%x: %s", who, err.text);
        snprintf(told, sizeof told, "worker %d refuses its options: %s", first, r.text[first]);
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(r.status[rank], TUTTI_ERR_USAGE);
            snprintf(number, sizeof number, "%d", -7 - rank);
            if (who >> rank & 1)
                assert_true(strncmp(r.text[rank], "batch", 5) == 0 && strstr(r.text[rank], number) != NULL);
            else
                assert_string_equal(r.text[rank], told);
        }
    }
}

/* ---- calls out of order, bad options ---- */

static tutti_status order_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = toy_default();
    tutti_engine *e;
    tutti_pass p;

    (void)arg;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    CHECK(tutti_engine_values(e, 0) != NULL && tutti_engine_gradient(e, TOY_TENSORS - 1) != NULL);
    for (int k = 0; k < 4; k++) { /* there are no such tensors */
        const int tensor = (int[]){ TOY_TENSORS, 99, -1, INT_MIN }[k];
        CHECK(tutti_engine_values(e, tensor) == NULL && tutti_engine_gradient(e, tensor) == NULL);
        CHECK(tutti_engine_grad_ready(e, tensor, err) != TUTTI_OK &&
              tutti_engine_grad_ready_rows(e, tensor, NULL, 0, err) != TUTTI_OK &&
              tutti_engine_rows_acquire(e, tensor, NULL, 0, err) != TUTTI_OK);
    }
    CHECK(tutti_engine_step(e, err) == TUTTI_ERR_STATE && strstr(err->text, "step was called between steps") != NULL);
    CHECK(tutti_engine_grad_ready(e, 0, err) == TUTTI_ERR_STATE &&
          strstr(err->text, "grad_ready was called outside a pass") != NULL);
    CHECK(tutti_engine_pass_end(e, 0, err) == TUTTI_ERR_STATE);
    CHECK(tutti_engine_eval_end(e, err) == TUTTI_ERR_STATE);
    TUTTI_TRY(tutti_engine_pass_begin(e, &p, err));
    CHECK(tutti_engine_pass_begin(e, &p, err) == TUTTI_ERR_STATE);
    CHECK(tutti_engine_finish(e, err) == TUTTI_ERR_STATE);
    CHECK(tutti_engine_eval_begin(e, err) == TUTTI_ERR_STATE);
    CHECK(tutti_engine_grad_ready(e, TOY_TENSORS, err) == TUTTI_ERR_USAGE &&
          strstr(err->text, "tensor 5; there are 5") != NULL);
    CHECK(tutti_engine_grad_ready(e, -1, err) == TUTTI_ERR_USAGE &&
          tutti_engine_grad_ready_rows(e, 99, NULL, 0, err) == TUTTI_ERR_USAGE &&
          tutti_engine_rows_acquire(e, -1, NULL, 0, err) == TUTTI_ERR_USAGE);
    CHECK(tutti_engine_unit_acquire(e, 99, false, err) == TUTTI_ERR_STATE);
    TUTTI_TRY(tutti_engine_grad_ready(e, 2, err));
    CHECK(tutti_engine_grad_ready(e, 2, err) == TUTTI_ERR_STATE &&
          strstr(err->text, "c.bias was announced twice") != NULL);
    TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    CHECK(tutti_engine_pass_begin(e, &p, err) == TUTTI_CLOSED);
    TUTTI_TRY(tutti_engine_step(e, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    CHECK(tutti_engine_pass_begin(e, &p, err) == TUTTI_ERR_STATE);
    tutti_engine_close(e);
    return TUTTI_OK;
}

/* ---- a second engine ---- */

static tutti_status second_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const char *const method = arg;
    const int rank = tutti_world_rank(world);
    toy t = toy_default(), bad = t, other = t;
    tutti_engine *e, *late;
    uint64_t before, after, messages;

    bad.options.method = "dpd";
    t.options.method = method;
    other.options.batch = rank == 1 ? 5 : 4;
    CHECK(toy_open(&e, world, &bad, err) == TUTTI_ERR_USAGE && e == NULL);
    CHECK(toy_open(&e, world, &other, err) == TUTTI_ERR_USAGE && e == NULL); /* refused on all */
    for (int again = 0; again < 2; again++) {
        if (again == 0) {
            TUTTI_TRY(toy_open(&e, world, &t, err));
            TUTTI_TRY(toy_step(e, &t, err));
        }
        tutti_world_sent(world, TUTTI_ANY, &before, &messages);
        if (again == 1 || rank == 0) /* no other rank need know of it */
            CHECK(toy_open(&late, world, &t, err) == TUTTI_ERR_STATE && late == NULL &&
                  strstr(err->text, "this world has had an engine already") != NULL);
        tutti_world_sent(world, TUTTI_ANY, &after, &messages);
        CHECK(again == 0 || after == before);
        if (again == 0) { /* the first one is none the worse */
            TUTTI_TRY(toy_step(e, &t, err));
            TUTTI_TRY(tutti_engine_finish(e, err));
            tutti_engine_close(e);
        }
    }
    return TUTTI_OK;
}

static void a_second_engine_of_a_world_is_refused(void **state)
{
    static const char *const methods[] = { "ddp", "asgd", "ad-psgd" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", 3, second_rank, (void *)(uintptr_t)methods[i], &err) != TUTTI_OK)
            fail_msg("%s: %s", methods[i], err.text);
    }
}

static void calls_out_of_order_are_rejected(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_world_run("shm", 1, order_rank, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

typedef struct refusal { tutti_engine_options options; const char *sentence; } refusal;

static tutti_status refuse_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const refusal *r = arg;
    toy t = toy_default();
    tutti_engine *e;

    t.options = r->options;
    CHECK(toy_open(&e, world, &t, err) == TUTTI_ERR_USAGE);
    CHECK(e == NULL);
    if (strstr(err->text, r->sentence) == NULL)
        return tutti_fail(NULL, TUTTI_ERR_STATE, 0, "unused"), TUTTI_ERR_STATE; /* err keeps the sentence that came */
    return TUTTI_OK;
}

typedef struct traced { tutti_engine_options options; size_t n; uint64_t lost, first, last; } traced;

static tutti_status trace_rank(tutti_world *world, void *arg, tutti_error *err)
{
    traced *j = arg;
    const tutti_trace_event *events;
    toy t = toy_default();
    tutti_engine *e;

    t.options.trace_events = j->options.trace_events;
    t.options.trace_first = j->options.trace_first;
    t.options.trace_steps = j->options.trace_steps;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int s = 0; s < 8; s++)
        TUTTI_TRY(toy_step(e, &t, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    j->n = tutti_engine_trace(e, &events);
    j->lost = tutti_engine_trace_lost(e);
    j->first = j->n > 0 ? events[0].step : 0;
    j->last = j->n > 0 ? events[j->n - 1].step : 0;
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void trace_covers_the_requested_steps_and_counts_lost_events(void **state)
{
    traced all = { .options = { .trace_events = 10000 } }, some = all, narrow = all, none = { 0 };
    traced *const each[] = { &all, &some, &narrow, &none };
    tutti_error err = { .rank = -1 };

    (void)state;
    some.options.trace_first = 3;
    some.options.trace_steps = 2;
    narrow.options.trace_events = 5;
    for (size_t i = 0; i < TUTTI_LENGTH(each); i++)
        if (tutti_world_run("shm", 1, trace_rank, each[i], &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    assert_int_equal(all.first, 0);
    assert_int_equal(all.last, 7);
    assert_int_equal(all.n % 8, 0);
    assert_int_equal(some.first, 3);
    assert_int_equal(some.last, 4);
    assert_int_equal(some.n, all.n / 8 * 2);
    assert_int_equal(narrow.n, 5);
    assert_int_equal(narrow.lost, all.n - 5);
    assert_int_equal(all.lost + some.lost + none.lost + none.n, 0);
}

static void invalid_options_are_rejected_with_value_and_fix(void **state)
{
    static const refusal cases[] = {
        { { .method = "dpp" }, "there is no method 'dpp'; did you mean 'ddp'?" },
        { { .method = "ddp(bucket=3)" }, "unknown option 'bucket'" },
        { { .method = "ddp(bucket_mb=2,first_bucket_mb=3)" }, "first_bucket_mb is 3 but bucket_mb is only 2" },
        { { .method = "ddp(bucket_mb=-1)" }, "bucket_mb" },
        { { .batch = -4 }, "batch is -4" },
        { { .accumulate = -1 }, "accumulate is -1" },
        { { .clip_norm = -0.5 }, "clip-norm is -0.5" },
        { { .optimizer = "sdg" }, "sgd" },
        { { .lr_schedule = "cosin" }, "cosine" },
        { { .lane = 100 }, "lane width is 100" },
        { { .codec = "topkk" }, "unknown codec 'topkk'; did you mean 'topk'?" },
        { { .codec = "topk(ratio=2)" }, "'ratio' is 2" },
        { { .codec = "ef(qsgd)" }, "qsgd is unbiased" },
        { { .codec = "topk", .method = "sgp" },
          "codec is 'topk', but method 'sgp' sends models or nothing: what a codec loses of a model is lost in every "
          "step" },
        { { .codec = "topk", .method = "asgd" },
          "codec is 'topk', but method 'asgd' asks servers, each worker by itself: a codec gives means over all "
          "workers, and what it loses of the model that comes back is lost every time" },
        { { .codec = "topk", .method = "stragglar" },
          "codec is 'topk', but method 'stragglar' has an exchange of its own, of float32; omit codec, or take a "
          "method whose gradients, or models as differences, may go through one (ddp, bagua, local-sgd, diloco, "
          "palsgd, slowmo, d-psgd, qg-dsgdm" },
        { { .codec = "topk", .method = "hetero-ring(collective=ring)" },
          "its ring sums float32, and codec is 'topk'; omit collective, so that the codec chooses what carries "
          "it" },
        { { .codec = "ef(topk)", .collective = "direct" },
          "collective is 'direct', an algorithm for sums of float32, but codec 'topk' sends messages that cannot be "
          "summed; take allgather or alltoall, or leave collective at auto" },
        { { .codec = "fp16", .collective = "direct" },
          "but codec 'fp16' sends something else; leave collective at auto" },
        { { .collective = "allgathr" }, "allgathr" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_error err = { .rank = -1 };
        refusal r = cases[i];
        if (tutti_world_run("shm", 1, refuse_rank, &r, &err) != TUTTI_OK)
            fail_msg("case %zu: wanted '%s', got '%s'", i, r.sentence, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddp_with_one_worker_matches_single_bit_for_bit),
        cmocka_unit_test(replicas_are_equal_after_every_step_whatever_the_buckets_lane_and_order),
        cmocka_unit_test(the_applied_gradient_is_the_exactly_weighted_mean),
        cmocka_unit_test(the_traffic_of_a_step_is_exactly_the_formula),
        cmocka_unit_test(accumulation_sends_nothing_extra_and_equals_the_larger_batch),
        cmocka_unit_test(a_client_with_its_own_memory_gets_the_same_bits),
        cmocka_unit_test(gradient_memory_is_ignored_in_passes_without_samples),
        cmocka_unit_test(an_unused_parameter_counts_as_zero_and_is_named_once),
        cmocka_unit_test(a_bad_gradient_stops_the_run_and_names_worker_tensor_and_step),
        cmocka_unit_test(nonfinite_skip_applies_to_all_workers_and_is_reported),
        cmocka_unit_test(clipping_changes_the_update_only_above_the_norm),
        cmocka_unit_test(clipped_step_moves_by_exactly_the_clip_norm),
        cmocka_unit_test(workers_that_differ_are_refused_on_all_with_both_values),
        cmocka_unit_test(options_rejected_by_one_rank_are_rejected_on_all),
        cmocka_unit_test(a_second_engine_of_a_world_is_refused),
        cmocka_unit_test(calls_out_of_order_are_rejected),
        cmocka_unit_test(trace_covers_the_requested_steps_and_counts_lost_events),
        cmocka_unit_test(invalid_options_are_rejected_with_value_and_fix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
