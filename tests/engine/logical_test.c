/* Goal: with logical shares a run has the same bits with any number of workers: those of as many
   workers as there are shares. Each sample is computed once, and what is sent is the formula of
   src/engine/logical.c. What depends on the number of workers is refused.
   Method: a client whose gradient is a sum of rough numbers of its samples, by position, so that
   the order of adding is seen. The reference is a run without logical shares with V workers. Ranks
   are threads. Resuming and whole trainings are in tests/cli/elastic_test.py, schedules and
   mutants in tests/explore (logical-shares). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "logical_job.h"
#include "sanitized.h"
#include "engine/logical_tree.h"

/* Nodes of the tree over `size` shares from `first` on that lie in [begin, end), and not their
   parents. */
static uint64_t nodes_in(int first, int size, int begin, int end)
{
    int half = 1;

    if (first >= end || first + size <= begin)
        return 0;
    if (first >= begin && first + size <= end)
        return 1;
    while (2 * half < size)
        half *= 2;
    return nodes_in(first, half, begin, end) + nodes_in(first + half, size - half, begin, end);
}

/* What all workers send in way 2 of a vector of c values; and where gradients are held by piece, of
   which each share is sent by itself. By unit: and values forward and back in each pass, not once.
   of: shares of each worker; NULL: equally many. */
static uint64_t values_by_parts(const tutti_method *m, uint64_t c, int shares, const int64_t *of)
{
    const uint64_t n = (uint64_t)m->workers, passes = ((uint64_t)shares + n - 1) / n, lines = (c + 15) / 16,
                   gathers = m->held == TUTTI_HELD_BY_UNIT ? 2 * passes : 1;
    uint64_t values = gathers * (n - 1) * c, first = 0;
    int end = 0;

    for (int r = 0; r < m->workers; r++) {
        const int begin = end;
        end += of != NULL ? (int)of[r] : shares / m->workers + (r < shares % m->workers);
        const uint64_t mine = 16 * (lines / n + ((uint64_t)r < lines % n)), last = first + mine,
                       own = first >= c ? 0 : last < c ? mine : c - first;
        values += (m->held != TUTTI_HELD_WHOLE ? (uint64_t)(end - begin) : nodes_in(0, shares, begin, end)) *
                  (c - own);
        first = last;
    }
    return values;
}

/* The numbers of a tensor in a round of powersgd with that rank. */
static uint64_t factor_of(const tutti_tensor *t, uint64_t rank, int round)
{
    const bool factors = t->cols > 1 && (t->rows + t->cols) * rank * 2 < t->rows * t->cols;

    return factors ? rank * (round == 0 ? t->rows : t->cols) : round == 0 ? t->count : 0;
}

/* Of a step. rank: of powersgd; 0: gradients travel as they are. */
static uint64_t bytes_by_parts(const job *j, const tutti_method *m, int shares)
{
    uint64_t values = 0;

    for (int k = 0; k < m->layout->n_pieces; k++) {
        const tutti_piece *p = &m->layout->piece[k];
        for (int round = 0; round < (j->rank > 0 ? 2 : 1); round++) {
            uint64_t c = j->rank > 0 ? 0 : p->count;
            for (int t = p->first_tensor; j->rank > 0 && t < p->first_tensor + p->tensors; t++)
                c += factor_of(&m->layout->tensor[t], (uint64_t)j->rank, round);
            values += c > 0 ? values_by_parts(m, c, shares, j->options.batch_of) : 0;
        }
    }
    return 4 * values;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    tutti_engine *e = NULL;
    float x[SIZE] = { 0 };
    uint64_t before, after, messages;
    tutti_status status;

    status = job_open(&e, world, j, err);
    for (int s = 0; s < (j->steps > 0 ? j->steps : STEPS) && status == TUTTI_OK; s++) {
        const tutti_method *m = tutti_engine_method(e);
        tutti_world_sent(world, TUTTI_ANY, &before, &messages);
        status = job_step(j, e, err);
        tutti_world_sent(world, TUTTI_ANY, &after, &messages);
        if (s == 0)
            j->bytes[m->rank] = after - before;
        if (s == 0 && m->rank == 0)
            j->expected =
                bytes_by_parts(j, m, j->options.elastic_shares > 0 ? j->options.elastic_shares : m->workers);
        if (m->rank == 0 && !m->overlaps_steps && s < STEPS)
            memcpy(j->x[s], m->x, sizeof j->x[s]);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        status = job_values(e, x, err);
    if (status == TUTTI_OK) {
        const tutti_method *m = tutti_engine_method(e);
        j->hash[m->rank] = tutti_hash(x, sizeof x);
        if (j->options.own_values > 0)
            memcpy(j->own[m->rank], tutti_engine_client_state(e), sizeof j->own[m->rank]);
        if (m->rank == 0) {
            memcpy(j->x[STEPS - 1], x, sizeof x);
            tutti_engine_figures(e, &j->figures);
        }
    }
    tutti_engine_close(e);
    return status;
}

static void go(job *j, int n)
{
    tutti_error err;

    if (tutti_world_run("shm", n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s with %d shares, %d workers: %s", j->options.method, j->options.elastic_shares, n, err.text);
    for (int r = 1; r < n; r++)
        assert_true(j->hash[r] == j->hash[0]);
}

static const char *const methods[] = {
    "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)", "ddp", "zero(bucket_mb=0.001,first_bucket_mb=0.0005)",
    "bytescheduler(partition_mb=0.0005,credit_mb=0.002,fuse_mb=0.0002)",
    "zero(stage=2,bucket_mb=0.001,first_bucket_mb=0.0005)",
    "zero(stage=3,bucket_mb=0.001,first_bucket_mb=0.0005)"
};
/* Those that hold gradients by piece, and values by unit: a share of theirs is a pass. */
enum { HELD = 4, VALUES, ALL };

/* ---- rounds of local steps ---- */

#define ELASTIC "palsgd(period=2,form=elastic,mix_rate=2"
#define OUTER "outer=sgd(lr=0.7,momentum=0.9,nesterov=true)"

/* Five rounds of two steps of 4 x 3 samples are an epoch. Buffers begin anew in each round, as
   those of slowmo(buffers=reset) do. */
static void a_round_has_the_bits_of_local_steps_of_as_many_workers_as_shares(void **state)
{
    static const struct { const char *rounds, *steps, *optimizer; } of[] = {
        { "local-sgd(period=2)", "local-sgd(period=2)", "sgd(lr=0.1)" },
        { "local-sgd(period=2," OUTER ")", "local-sgd(period=2," OUTER ")", "sgd(lr=0.1)" },
        { "local-sgd(period=2)", "slowmo(period=2,alpha=1,beta=0,buffers=reset)",
          "sgd(lr=0.1,momentum=0.9)" },
        { "local-sgd(period=2)", "slowmo(period=2,alpha=1,beta=0,buffers=reset)", "adamw(lr=0.01)" },
        { "diloco(period=2)", "diloco(period=2)", "sgd(lr=0.1)" },
        { "slowmo(period=2,alpha=1,beta=0)", "slowmo(period=2,alpha=1,beta=0)", "sgd(lr=0.1,momentum=0.9)" },
        { "slowmo(period=2,beta=0.4)", "slowmo(period=2,beta=0.4)", "sgd(lr=0.1,momentum=0.9)" },
        { ELASTIC ")", ELASTIC ")", "sgd(lr=0.1)" },
        { ELASTIC ",outer=none)", ELASTIC ",outer=none)", "sgd(lr=0.1)" },
        { "palsgd(period=2,mix_prob=0)", "diloco(period=2)", "sgd(lr=0.1)" },
        { "slowmo(period=2,alpha=0.7,buffers=reset)", "slowmo(period=2,alpha=0.7,buffers=reset)", "adamw(lr=0.01)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        static job a, b;
        a = job_of(of[k].steps, 0);
        a.options.batch = 3;
        a.options.optimizer = of[k].optimizer;
        a.options.clip_norm = k % 2 == 0 ? 0 : 0.5;
        a.steps = 2 * STEPS;
        go(&a, 4);
        for (int n = 1; n <= 4; n++) {
            b = a;
            memset((void *)b.taken, 0, sizeof b.taken);
            b.options.method = of[k].rounds;
            b.options.elastic_shares = 4;
            b.steps = 0;
            go(&b, n);
            if (b.hash[0] != a.hash[0])
                fail_msg("%s of %d workers with %s is not %s", of[k].rounds, n, of[k].optimizer, of[k].steps);
            for (int i = 0; i < SAMPLES; i++)
                assert_true(a.taken[i] == 1 && b.taken[i] == 1);
            assert_int_equal(b.figures.samples, SAMPLES);
        }
    }
}

/* Also where local steps have several passes, and where shares have no samples in some of them, or
   in all. */
static void rounds_have_the_same_bits_with_any_number_of_workers(void **state)
{
    static const char *const of[] = { "local-sgd(period=3)", "local-sgd(period=2," OUTER ")", "diloco(period=3)",
                                      "slowmo(period=3)", "palsgd(period=3,form=elastic)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k += UNLESS_SANITIZED(1, 3))
        for (int samples = 37; samples <= SAMPLES; samples += 83) {
            static job a, b;
            a = job_of(of[k], 7);
            a.options.accumulate = 2;
            a.options.data_samples = (uint64_t)samples;
            a.options.clip_norm = 0.5;
            a.options.own_values = OWN;
            b = a;
            go(&a, 7);
            for (int n = 1; n <= 6; n++) {
                static job c;
                c = b;
                go(&c, n);
                assert_memory_equal(a.x, c.x, sizeof c.x);
                assert_memory_equal(a.own[0], c.own[0], sizeof c.own[0]);
                assert_int_equal(a.figures.samples, c.figures.samples);
                for (int i = 0; i < samples; i++)
                    assert_true(c.taken[i] == a.taken[i] && c.taken[i] == 1);
            }
        }
}

/* Position 34 is in the second local step of the second round, which is of 4 x 2 x 3 samples. */
static void a_local_step_that_is_not_finite_is_named(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        static job j;
        tutti_error err;
        j = job_of("local-sgd(period=3)", 4);
        j.bad_position = 34;
        j.bad_step = 1;
        assert_int_equal(tutti_world_run("shm", n, run_rank, &j, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "the gradient of d is inf at element 7 in step 1"));
    }
}

/* In a round an exchange of what ddp sends in a step, whatever the period. */
static void a_round_sends_what_a_step_of_ddp_does(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        static job round, step;
        round = job_of("local-sgd(period=5)", 4);
        step = job_of("ddp", 4);
        round.options.data_samples = step.options.data_samples = 0;
        go(&round, n);
        go(&step, n);
        for (int r = 0; r < n; r++)
            assert_int_equal(round.bytes[r], step.bytes[r]);
        assert_int_equal(round.figures.samples, 5 * step.figures.samples);
    }
}

/* The run of V workers without logical shares. */
static const job *reference(const job *like)
{
    static job a;
    const int shares = like->options.elastic_shares;

    a = *like;
    a.options.method = "ddp";
    a.options.elastic_shares = 0;
    go(&a, shares);
    return &a;
}

static void compare(const job *a, const job *like, const char *method, int n)
{
    static job b;

    b = *like;
    b.options.method = method;
    go(&b, n);
    assert_memory_equal(a->x[STEPS - 1], b.x[STEPS - 1], sizeof b.x[STEPS - 1]);
    assert_int_equal(a->figures.samples, b.figures.samples);
    assert_int_equal(a->figures.skipped, b.figures.skipped);
    for (int i = 0; i < SAMPLES && like->options.data_samples == SAMPLES; i++)
        assert_int_equal(b.taken[i], a->taken[i]);
}

static void any_number_of_workers_has_the_bits_of_as_many_workers_as_shares(void **state)
{
    static const int shares[] = { 6, 7, 12, 13 };

    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(shares); v += UNLESS_SANITIZED(1, 3)) {
        const job like = job_of("ddp", shares[v]);
        const job *a = reference(&like);
        for (int n = 1; n <= 6; n += UNLESS_SANITIZED(1, 2))
            for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
                if (k < UNLESS_SANITIZED(HELD, 1) || (k + v + (size_t)n) % UNLESS_SANITIZED(2, 4) == 0)
                    compare(a, &like, methods[k], n);
        compare(a, &like, methods[0], shares[v]);
        compare(a, &like, methods[v % 2 == 0 ? HELD : VALUES], shares[v]);
    }
}

/* Of workers of unequal speed. */
static void unequal_numbers_of_shares_have_the_same_bits(void **state)
{
    static const struct { int shares, n; int64_t of[5]; } divisions[] = {
        { 7, 2, { 6, 1 } }, { 7, 3, { 1, 1, 5 } }, { 12, 3, { 2, 7, 3 } }, { 13, 4, { 4, 4, 4, 1 } },
        { 12, 4, { 3, 3, 3, 3 } }, { 13, 5, { 1, 1, 1, 1, 9 } },
    };
    static const char *const of_rounds[] = { "local-sgd(period=3)", "diloco(period=2)" };

    (void)state;
    for (size_t d = 0; d < TUTTI_LENGTH(divisions); d += UNLESS_SANITIZED(1, 3)) {
        job like = job_of("ddp", divisions[d].shares);
        const job *a = reference(&like);
        like.options.batch_of = divisions[d].of;
        for (int k = 0; k < HELD; k += UNLESS_SANITIZED(1, 2))
            compare(a, &like, methods[k], divisions[d].n);
        for (size_t k = 0; k < TUTTI_LENGTH(of_rounds); k++) {
            static job even, uneven;
            even = uneven = job_of(of_rounds[k], divisions[d].shares);
            even.options.own_values = uneven.options.own_values = OWN;
            even.options.data_samples = uneven.options.data_samples = 37;
            uneven.options.batch_of = divisions[d].of;
            go(&even, divisions[d].n);
            go(&uneven, divisions[d].n);
            assert_memory_equal(even.x, uneven.x, sizeof even.x);
            assert_memory_equal(even.own[0], uneven.own[0], sizeof even.own[0]);
        }
    }
}

/* Passes of several batches, a last step of an epoch in which shares have fewer samples than
   passes, or none, and clipping. */
static void passes_tails_and_clipping_change_no_bit(void **state)
{
    (void)state;
    for (int samples = 37; samples <= 58; samples += UNLESS_SANITIZED(7, 14)) {
        job like = job_of("ddp", 12);
        const job *a;
        like.options.accumulate = 1 + samples % 3;
        like.options.data_samples = (uint64_t)samples;
        like.options.clip_norm = 0.5;
        like.options.optimizer = "adamw(lr=0.01)";
        a = reference(&like);
        for (int n = 1; n <= 5; n += UNLESS_SANITIZED(1, 2))
            for (int k = 0; k < (like.options.accumulate == 1 ? ALL : HELD); k += k < HELD ? 2 : 1)
                compare(a, &like, methods[k], n);
    }
}

static void a_share_that_is_not_finite_skips_the_step_on_all(void **state)
{
    static const int bad[] = { 24, 30, 47 }; /* in the first share of a worker, a later one, the last */

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bad); b += UNLESS_SANITIZED(1, 2))
        for (int scales = 0; scales < 2; scales++) {
            job like = job_of("ddp", 12);
            const job *a;
            like.bad_position = bad[b];
            like.bad_step = 1;
            if (scales == 1)
                like.options.loss_scale = "dynamic(init=1024,interval=2)";
            else
                like.options.nonfinite = TUTTI_NONFINITE_SKIP;
            a = reference(&like);
            assert_int_equal(a->figures.skipped, 1);
            for (int n = 1; n <= 5; n += UNLESS_SANITIZED(2, 4))
                for (int k = 0; k < ALL; k += UNLESS_SANITIZED(k < HELD ? 2 : 1, 3))
                    compare(a, &like, methods[k], n);
        }
}

static void a_share_that_is_not_finite_stops_the_run(void **state)
{
    (void)state;
    for (int k = 0; k < UNLESS_SANITIZED(24, 9); k++) {
        static job j;
        tutti_error err;
        const int n = 1 + k / 3;
        j = job_of(k % 3 == 0 ? "ddp" : methods[k % 3 == 1 ? HELD : VALUES], 12);
        j.bad_position = 26;
        j.bad_step = 1;
        assert_int_equal(tutti_world_run("shm", n, run_rank, &j, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "the gradient of d is inf at element 7 in step 1"));
    }
}

static void each_sample_is_computed_once(void **state)
{
    (void)state;
    for (int k = 0; k < UNLESS_SANITIZED(30, 12); k++) {
        static job j;
        const int n = 1 + k / 3;
        j = job_of(k % 3 == 0 ? "ddp" : methods[k % 3 == 1 ? HELD : VALUES], 10);
        j.options.batch = 3; /* four steps an epoch */
        go(&j, n);
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(j.taken[i], 1);
    }
}

/* The tree over n of the values, split at the largest power of two below n. */
static float tree(const float *values, int n)
{
    int half = 1;

    if (n == 1)
        return values[0];
    while (2 * half < n)
        half *= 2;
    return tree(values, half) + tree(values + half, n - half);
}

/* Each share begins with the state of the step's beginning, and the next step with the mean over
   the shares that had samples. */
static void state_is_the_mean(const char *method, int64_t batch, int64_t passes)
{
    enum { V = 6 };
    job like = job_of(method, V);
    const tutti_share alone = { .samples = 41, .workers = V, .batch = batch, .accumulate = passes, .seed = 3 };
    float expected[OWN] = { 0 };

    like.options.batch = batch;
    like.options.accumulate = passes;
    like.options.data_samples = 41; /* the last step of an epoch is not full */
    like.options.own_values = OWN;
    for (uint64_t s = 0; s < STEPS; s++)
        for (size_t i = 0; i < OWN; i++) {
            float part[V];
            int with = 0;
            for (int v = 0; v < V; v++) {
                part[v] = expected[i];
                for (int64_t a = 0; a < passes; a++) {
                    uint64_t epoch, position;
                    if (tutti_share_pass(&alone, s, v, a, &epoch, &position) > 0)
                        part[v] = job_moves(part[v], epoch, position, i);
                }
                with += tutti_share_step(&alone, s, v) > 0;
                part[v] = tutti_share_step(&alone, s, v) > 0 ? part[v] : 0;
            }
            expected[i] = tree(part, V) * (1 / (float)with);
        }
    for (int n = 1; n <= V; n++) {
        static job j;
        j = like;
        go(&j, n);
        for (int r = 0; r < n; r++)
            assert_memory_equal(j.own[r], expected, sizeof expected);
    }
}

static void client_state_is_the_mean_over_shares(void **state)
{
    (void)state;
    state_is_the_mean("ddp", 2, 2);
    state_is_the_mean(methods[HELD], 2, 1); /* in the last step one share has no samples */
    state_is_the_mean(methods[VALUES], 2, 1);
}

/* Runs both; what all workers send is what they send without shares, or by the formula if the tree
   over the blocks is cut elsewhere than that over workers (parts). */
static void traffic_is_exact(job *j, job *plain, int n, bool parts)
{
    uint64_t sent = 0, usual = 0;

    go(j, n);
    go(plain, n);
    for (int r = 0; r < n; r++) {
        sent += j->bytes[r];
        usual += plain->bytes[r];
    }
    assert_int_equal(sent, parts ? j->expected : usual);
}

static void the_traffic_of_a_step_is_exactly_the_formula(void **state)
{
    static const struct { int shares, n; bool parts; } of[] = {
        { 12, 3, false }, { 12, 6, false }, { 8, 4, false }, { 7, 4, false }, { 12, 12, false },
        { 12, 4, true }, { 12, 5, true }, { 12, 2, true }, { 5, 4, true }, { 13, 6, true }
    };
    static const int64_t twelve[] = { 2, 7, 3 }, thirteen[] = { 8, 4, 1 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(of); i += UNLESS_SANITIZED(1, 2))
        for (int k = 0; k < 2; k++) {
            static job j, plain;
            j = job_of(methods[k], of[i].shares);
            plain = job_of(methods[k], 0);
            traffic_is_exact(&j, &plain, of[i].n, of[i].parts);
        }
    for (int k = 0; k < 2; k++) { /* by 8, 4 and 1 the tree is cut at nodes, but is not that over workers */
        static job j;
        j = job_of(methods[0], k == 0 ? 12 : 13);
        j.options.batch_of = k == 0 ? twelve : thirteen;
        go(&j, 3);
        assert_int_equal(j.bytes[0] + j.bytes[1] + j.bytes[2], j.expected);
    }
    for (size_t i = 0; i < 2 * TUTTI_LENGTH(of); i += UNLESS_SANITIZED(1, 3)) {
        const int shares = of[i / 2].shares, n = of[i / 2].n;
        static job j;
        uint64_t sent = 0;
        j = job_of(methods[i % 2 == 0 ? HELD : VALUES], shares);
        j.options.needs = i % 2 != 0; /* otherwise values are gathered within the step */
        go(&j, n);
        for (int r = 0; r < n; r++)
            sent += j.bytes[r];
        assert_int_equal(sent, j.expected);
    }
}

/* ---- through a codec that makes sums ---- */

static const struct coded { const char *method, *codec; } coded[] = {
    { "powersgd(bucket_mb=0.0005)", NULL },
    { "powersgd(rank=2,iters_per_step=2)", NULL },
    { "powersgd(ef_rule=aggregated,start_iter=2)", NULL },
    { "powersgd(error_feedback=off,warm_start=off,bucket_mb=0.0005)", NULL },
    { "ddp", "ef(powersgd,momentum=0.5,nesterov=on,decay=0.9,lr=inside)" },
    { "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)", "ef(powersgd(rank=2),flush_every=3)" },
    { "ddp", "ef(randomk(ratio=0.2))" },
    { "ddp", "randomk(ratio=0.3,block=5,unbiased=on)" },
    { "ddp", "large(codec=ef(powersgd),min=100,small=fp32)" },
};

static job coded_job(const struct coded *of, int shares)
{
    job j = job_of(of->method, shares);

    j.options.codec = of->codec;
    j.options.optimizer = "sgd(lr=0.1,momentum=0.9)";
    j.matrices = true;
    return j;
}

/* Each share has what a worker has without shares: its residual, its momentum, its factors. */
static void shares_that_are_encoded_have_the_bits_of_as_many_workers(void **state)
{
    static const int shares[] = { 12, 7 };
    static const int64_t uneven[] = { 5, 1, 6 };

    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(shares); v++)
        for (size_t k = v; k < TUTTI_LENGTH(coded); k += UNLESS_SANITIZED(1 + v, 3)) {
            static job a, b;
            a = coded_job(&coded[k], 0);
            a.options.clip_norm = k % 2 == 0 ? 0 : 0.5;
            a.options.lr_schedule = "step(every=2,gamma=0.5)";
            a.options.accumulate = 1 + (int64_t)k % 2;
            a.options.data_samples = 37 + 9 * k; /* with tails, in which a share may have none */
            go(&a, shares[v]);
            for (int n = 1; n <= shares[v]; n = n == 6 && shares[v] > 7 ? shares[v] : n + 1) {
                b = a;
                memset((void *)b.taken, 0, sizeof b.taken);
                b.options.elastic_shares = shares[v];
                b.options.batch_of = n == 3 && shares[v] == 12 ? uneven : NULL;
                go(&b, n);
                if (b.hash[0] != a.hash[0])
                    fail_msg("%s, %s: %d workers with %d shares are not %d workers", coded[k].method,
                             coded[k].codec != NULL ? coded[k].codec : "", n, shares[v], shares[v]);
            }
        }
}

/* What is not finite is skipped with all that it has changed, in whichever share it is. */
static void a_share_that_is_encoded_and_not_finite_skips_the_step(void **state)
{
    static const int bad[] = { 24, 30, 47 };

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bad); b++)
        for (size_t k = 0; k < TUTTI_LENGTH(coded); k += UNLESS_SANITIZED(2, 4)) {
            static job a, j;
            a = coded_job(&coded[k], 0);
            a.bad_position = bad[b];
            a.bad_step = 1;
            a.options.nonfinite = TUTTI_NONFINITE_SKIP;
            go(&a, 12);
            assert_int_equal(a.figures.skipped, 1);
            for (int n = 1; n <= 5; n += 2) {
                j = a;
                j.options.elastic_shares = 12;
                go(&j, n);
                assert_int_equal(j.figures.skipped, 1);
                assert_true(j.hash[0] == a.hash[0]);
            }
        }
}

/* Where the tree is cut elsewhere each round goes by its parts' owners. */
static void the_traffic_of_factors_is_exactly_the_formula(void **state)
{
    static const struct { int shares, n; bool parts; } of[] = {
        { 12, 3, false }, { 12, 6, false }, { 12, 12, false }, { 8, 2, false },
        { 12, 4, true }, { 12, 5, true }, { 12, 2, true }, { 7, 3, true }
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(of); i++)
        for (int rank = 1; rank <= 2; rank++) {
            static job j, plain;
            j = job_of(rank == 1 ? "powersgd(bucket_mb=0.0005)" : "powersgd(rank=2)", of[i].shares);
            j.matrices = true;
            j.rank = rank;
            plain = j;
            plain.options.elastic_shares = 0;
            traffic_is_exact(&j, &plain, of[i].n, of[i].parts);
        }
}

static void what_depends_on_the_number_of_workers_is_refused(void **state)
{
    static const int64_t uneven[] = { 3, 1 }, none[] = { 4, 0 };
    static const struct {
        const char *method, *codec, *collective, *optimizer, *sentence;
        int shares, accumulate, report;
        bool batch_of, none, skip;
    } cases[] = {
        { .method = "local-sgd(period=5,warmup=3)", .shares = 4,
          .sentence = "method 'local-sgd': warmup is 3, but with logical shares (elastic-shares, workers) each step "
                      "is a round of 5 local steps, from the first on; give warmup=0, or omit those" },
        { .method = "local-sgd", .shares = 4, .codec = "bf16", .sentence = "codec is 'bf16', and it would encode" },
        { .method = "local-sgd", .shares = 4, .skip = true,
          .sentence = "nonfinite=skip may skip a step, but method 'local-sgd' makes all local steps of a round, or "
                      "none" },
        { .method = "local-sgd(period=2000000)", .shares = 4,
          .sentence = "is a round of 2000000 local steps of 1 passes (accumulate); it may have 1 to 1048576 passes" },
        { .method = "diloco(warmup=2)", .shares = 4, .sentence = "method 'diloco': warmup is 2, but with logical" },
        { .method = "diloco(fragments=2)", .shares = 4,
          .sentence = "method 'diloco' exchanges parts of the model, or during other steps" },
        { .method = "diloco(delay=2)", .shares = 4, .sentence = "(fragments, delay, mix, overlap), but with logical" },
        { .method = "diloco(overlap=eager)", .shares = 4, .sentence = "method 'diloco' exchanges parts of the model" },
        { .method = "slowmo(base=sgp)", .shares = 4, .sentence = "but base is not local, whose steps send nothing" },
        { .method = "slowmo(local_freq=3)", .shares = 4, .sentence = "but local_freq is given, and no share waits" },
        { .method = "slowmo(buffers=maintain)", .shares = 4, .sentence = "but buffers are maintained, as auto does" },
        { .method = "slowmo", .shares = 4, .optimizer = "adam(lr=0.01)", .sentence = "give buffers=reset" },
        { .method = "slowmo(buffers=average)", .shares = 4, .sentence = "but buffers are averaged, and a share" },
        { .method = "palsgd", .shares = 4,
          .sentence = "method 'palsgd' does more in a step than to add gradients, or its options do" },
        { .method = "palsgd(form=elastic,warmup=2)", .shares = 4, .sentence = "method 'palsgd': warmup is 2, but" },
        { .method = "d-psgd", .shares = 4,
          .sentence = "elastic-shares is 4, but method 'd-psgd' does more in a step than to add gradients, or its "
                      "options do, and what it does depends on the number of workers; or omit elastic-shares "
                      "(docs/design/membership.md)" },
        { .method = "zero(stage=3)", .shares = 4, .accumulate = 2, .sentence = "so that a share is of one pass" },
        { .method = "zero(stage=2)", .shares = 4, .accumulate = 3,
          .sentence = "method 'zero' holds gradients by piece, so that a share is of one pass: give accumulate=1 and "
                      "as many times more shares; or omit elastic-shares" },
        { .method = "zero(group=1)", .shares = 4, .sentence = "does more in a step" },
        { .method = "bytescheduler(over=servers)", .shares = 4, .sentence = "does more in a step" },
        { .method = "ddp", .shares = 1,
          .sentence = "elastic-shares is 1 for 2 workers; it must be from the number of workers to 1024, since each "
                      "worker computes at least one share" },
        { .method = "ddp", .shares = 1025, .sentence = "elastic-shares is 1025 for 2 workers" },
        { .method = "zero(stage=2)", .shares = 4, .batch_of = true,
          .sentence = "method 'zero' holds gradients by piece, so that shares are dealt to the workers in turn: omit "
                      "batch-share; or omit elastic-shares" },
        { .method = "ddp", .shares = 5, .batch_of = true,
          .sentence = "the workers get 4 logical shares; together it must be 5" },
        { .method = "ddp", .shares = 4, .none = true, .batch_of = true,
          .sentence = "worker 1 gets 0 logical shares; each worker computes one or more" },
        { .method = "ddp", .shares = 4, .collective = "ring(order=any)", .sentence = "an order of its own" },
        { .method = "ddp", .shares = 4, .optimizer = "adam(lazy=true)", .sentence = "omit lazy, or those" },
        { .method = "ddp", .shares = 4, .codec = "bf16",
          .sentence = "codec is 'bf16', and it would round sums to 16 bits on their way, and which sums travel "
                      "depends on the number of workers, but method 'ddp' adds the gradients of logical shares here "
                      "(elastic-shares, workers); omit codec, or those" },
        { .method = "ddp", .shares = 4, .codec = "ef(topk(ratio=0.1))",
          .sentence = "codec is 'ef(topk(ratio=0.1))', and it would encode the gradient of each worker" },
        { .method = "ddp", .shares = 4, .codec = "ef21(powersgd)",
          .sentence = "and it keeps a state of each worker, and not of each share" },
        { .method = "ddp", .shares = 4, .codec = "accordion(low=powersgd(rank=2),high=powersgd)",
          .sentence = "and it adapts to the gradient of each worker" },
        { .method = "powersgd(factor_dtype=bf16)", .shares = 4,
          .sentence = "elastic-shares is 4, but method 'powersgd' has a codec, and it would round sums to 16 bits on "
                      "their way, and which sums travel depends on the number of workers; send float32 "
                      "(factor_dtype=fp32), or omit elastic-shares" },
        { .method = "powersgd", .shares = 4, .report = 2,
          .sentence = "method 'powersgd' has a codec, which encodes each share: leave codec-cost, codec-report and "
                      "codec-hierarchy off; or omit elastic-shares" },
        { .method = "local-sgd", .shares = 4, .codec = "ef(powersgd)", .sentence = "and it would encode" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static job j;
        tutti_error err;
        j = job_of(cases[i].method, cases[i].shares);
        j.options.needs = true;
        j.matrices = true;
        j.options.codec = cases[i].codec;
        j.options.codec_report = (uint64_t)cases[i].report;
        j.options.accumulate = cases[i].accumulate;
        j.options.collective = cases[i].collective;
        j.options.batch_of = cases[i].none ? none : cases[i].batch_of ? uneven : NULL;
        j.options.nonfinite = cases[i].skip ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
        if (cases[i].optimizer != NULL)
            j.options.optimizer = cases[i].optimizer;
        assert_int_equal(tutti_world_run("shm", 2, run_rank, &j, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("case %zu: %s", i, err.text);
    }
}

/* ---- the tree ---- */

/* The nodes of a block cover it, each is the sum of what a worker adds in order, and a block is of
   as few as the tree allows. */
static void nodes_cover_their_block(void **state)
{
    (void)state;
    for (int shares = 1; shares <= 40; shares++)
        for (int first = 0; first < shares; first++)
            for (int n = 1; first + n <= shares; n++) {
                tutti_logical_node nodes[TUTTI_LOGICAL_NODES];
                const int k = tutti_logical_nodes(shares, (tutti_logical_node){ first, n }, nodes);
                int at = first;
                assert_int_equal(k, nodes_in(0, shares, first, first + n));
                for (int i = 0; i < k; i++) {
                    assert_int_equal(nodes[i].first, at);
                    at += nodes[i].count;
                    assert_false(i > 0 && tutti_logical_joins(shares, nodes[i - 1], nodes[i]));
                }
                assert_int_equal(at, first + n);
            }
}

static void the_largest_run_has_room_for_the_nodes_of_any_block(void **state)
{
    (void)state;
    for (int first = 0; first < TUTTI_LOGICAL_MOST; first += 7)
        for (int end = first + 1; end <= TUTTI_LOGICAL_MOST; end += 5)
            for (int shares = TUTTI_LOGICAL_MOST - 1; shares <= TUTTI_LOGICAL_MOST; shares++)
                assert_true(end > shares || nodes_in(0, shares, first, end) <= TUTTI_LOGICAL_NODES);
}

static void blocks_that_are_the_tree_over_workers_are_recognised(void **state)
{
    static const tutti_logical_node four_of_five[] = { { 0, 2 }, { 2, 1 }, { 3, 1 }, { 4, 1 } },
                                    three_of_five[] = { { 0, 2 }, { 2, 2 }, { 4, 1 } },
                                    two_of_twelve[] = { { 0, 6 }, { 6, 6 } },
                                    three_of_twelve[] = { { 0, 4 }, { 4, 4 }, { 8, 4 } };

    (void)state;
    assert_false(tutti_logical_is_workers(5, 4, four_of_five));
    assert_true(tutti_logical_is_workers(5, 3, three_of_five));
    assert_false(tutti_logical_is_workers(12, 2, two_of_twelve));
    assert_true(tutti_logical_is_workers(12, 3, three_of_twelve));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_cover_their_block),
        cmocka_unit_test(the_largest_run_has_room_for_the_nodes_of_any_block),
        cmocka_unit_test(blocks_that_are_the_tree_over_workers_are_recognised),
        cmocka_unit_test(any_number_of_workers_has_the_bits_of_as_many_workers_as_shares),
        cmocka_unit_test(unequal_numbers_of_shares_have_the_same_bits),
        cmocka_unit_test(passes_tails_and_clipping_change_no_bit),
        cmocka_unit_test(a_share_that_is_not_finite_skips_the_step_on_all),
        cmocka_unit_test(a_share_that_is_not_finite_stops_the_run),
        cmocka_unit_test(each_sample_is_computed_once),
        cmocka_unit_test(client_state_is_the_mean_over_shares),
        cmocka_unit_test(the_traffic_of_a_step_is_exactly_the_formula),
        cmocka_unit_test(a_round_has_the_bits_of_local_steps_of_as_many_workers_as_shares),
        cmocka_unit_test(rounds_have_the_same_bits_with_any_number_of_workers),
        cmocka_unit_test(a_local_step_that_is_not_finite_is_named),
        cmocka_unit_test(a_round_sends_what_a_step_of_ddp_does),
        cmocka_unit_test(shares_that_are_encoded_have_the_bits_of_as_many_workers),
        cmocka_unit_test(a_share_that_is_encoded_and_not_finite_skips_the_step),
        cmocka_unit_test(the_traffic_of_factors_is_exactly_the_formula),
        cmocka_unit_test(what_depends_on_the_number_of_workers_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
