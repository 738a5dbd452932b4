/* Goal: with engine_options.commit a worker whose step fails has, to the bit, the state of the step
   before, and the state after the step only if its commit was true: wherever in the step a worker
   is lost, by each method that has the trait, with logical shares and without, with clipping, a
   loss scale, several passes and a table whose rows are sent. So has each worker its shards and its
   copies of the next one's under zero; where one has made the step and another has not, both have
   them at either step. A run without a loss has the bits of a run without commit. An evaluation
   that fails leaves the state as it was; an update that fails does not, and neither does a step
   that is not over. Others are refused in a sentence.
   Method: the state as tutti_engine_state has it, and an image of it, are hashed after each step of
   a run without a loss.
   Then one worker leaves at a drawn moment: after some tensors of a pass, after the passes, or when
   it is asked to commit. The others' states are compared with those hashes. When a worker is asked
   its values are still those with which the step began. Ranks are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/image.h"
#include "rough.h"
#include "sanitized.h"
#include "tutti/method.h"
#include "tutti/method/steps.h"
#include "tutti/tutti.h"

enum { TENSORS = 3, STEPS = 5, RANKS = 4, OWN = 3, SAMPLES = 90, ROWS = 70, COLS = 10 };
/* below: after that many tensors of a pass */
enum { AFTER_PASSES = TENSORS, AT_COMMIT, AT_EVALUATION, MOMENTS };

static size_t count[TENSORS] = { ROWS * COLS, 33, 337 }; /* the first is a table */
static const char *const names[TENSORS] = { "c", "b", "a" };

typedef struct job {
    tutti_engine_options options;
    bool commit;
    int64_t period;                       /* local steps of a round; 0: a step is none */
    int quits_rank, quits_step, quits_at; /* quits_rank -1: none does */
    int64_t quits_pass;
    int bad_step;                         /* its gradient is not finite, so that it is skipped; -1: none */
    uint64_t hash[RANKS][STEPS + 1];      /* [rank][steps done]; written if no worker quits */
    uint64_t x[RANKS];                    /* at the end */
    uint64_t left[RANKS], steps[RANKS];   /* the state after a failure, and its number of steps */
    uint64_t shards[RANKS][STEPS + 1];    /* as `hash`, of the slots that zero cuts; 0: none */
    uint64_t beside[RANKS], beside_at[RANKS]; /* those that are left of another step, 0: none, and which */
    uint64_t commits[RANKS];              /* how often commit was true */
    uint64_t bytes[RANKS];                /* sent, at the end */
    size_t updated[RANKS];                /* elements, by each worker */
    bool whole[RANKS];
    bool update_fails;
} job;

typedef struct rank_state {
    job *j;
    int rank;
    tutti_engine *e;
    uint64_t x;                           /* the values when the step began */
} rank_state;

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < count[tensor]; i++)
        values[i] = rough(3, (uint64_t)tensor, i);
}

/* Where they are held by unit no worker has them now: 0. */
static uint64_t hash_values(const rank_state *r)
{
    const tutti_method *m = tutti_engine_method(r->e);

    return m->x == NULL ? 0 : tutti_hash(m->x, m->layout->used * sizeof(float));
}

static int unit_of(int tensor)
{
    return TENSORS - 1 - tensor;
}

/* Acquires all units, one after the other. hash: NULL, or of their values. */
static tutti_status forward(tutti_engine *e, uint64_t *hash, tutti_error *err)
{
    for (int k = TENSORS - 1; k >= 0; k--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), false, err));
        if (hash != NULL)
            *hash = *hash * 1099511628211u ^ tutti_hash(tutti_engine_values(e, k), count[k] * sizeof(float));
        TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), false, err));
    }
    return TUTTI_OK;
}

static bool quits(const rank_state *r, uint64_t step, int at)
{
    return r->rank == r->j->quits_rank && (int)step == r->j->quits_step && at == r->j->quits_at;
}

static bool commit(void *user, uint64_t step)
{
    const rank_state *r = user;
    const bool stays = r->j->period > 0 || hash_values(r) == r->x, /* in a round x is a share's */
        makes_it = !quits(r, step, AT_COMMIT) && step == r->j->commits[r->rank] && stays;

    r->j->commits[r->rank] += makes_it;
    return makes_it;
}

static tutti_status update(void *user, double factor, tutti_error *err)
{
    const rank_state *r = user;

    (void)factor;
    return r->j->update_fails ? tutti_fail(err, TUTTI_ERR_NUMBER, 0, "this update fails") : TUTTI_OK;
}

static tutti_status leave(tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_IO, 0, "this worker leaves");
}

/* Adds what a pass has of a tensor to it. *n: the rows that it touches, in ascending order; a
   tensor that is no table is one row. */
static void compute(const tutti_pass *p, int k, float *g, uint32_t ids[ROWS], size_t *n)
{
    const size_t cols = k == 0 ? COLS : count[k], rows = count[k] / cols;

    *n = 0;
    for (size_t row = 0; row < rows; row++) {
        bool any = false;
        for (size_t i = row * cols; i < (row + 1) * cols; i++) {
            float sum = 0;
            for (int64_t s = 0; s < p->samples; s++) {
                const uint64_t position = p->position + (uint64_t)s;
                const bool touches = k > 0 || position * 7 % ROWS == row || position * 11 % ROWS == row;
                sum += touches ? rough(p->epoch, position, i + (size_t)k * 1000) : 0;
                any = any || touches;
            }
            sum = p->samples > 0 ? sum * (float)p->scale / (float)p->divisor : 0;
            if (k > 0 || any)
                g[i] = p->keep ? g[i] + sum : sum;
        }
        if (any)
            ids[(*n)++] = (uint32_t)row;
    }
}

static tutti_status one_pass(rank_state *r, tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    uint32_t ids[ROWS];
    size_t n;
    const uint64_t step = tutti_engine_method(e)->step;
    float *const own = tutti_engine_client_state(e);

    for (int i = 0; i < OWN && p->samples > 0; i++)
        own[i] = 0.75f * own[i] + 0.25f * rough(p->epoch, p->position, 5000 + (size_t)i);
    TUTTI_TRY(forward(e, NULL, err));
    for (int k = 0; k < TENSORS; k++) {
        float held[ROWS * COLS] = { 0 }, *whole, *g;
        TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), true, err));
        whole = tutti_engine_gradient(e, k);
        g = whole != NULL ? whole : held;
        if (p->index == r->j->quits_pass && quits(r, step, k))
            return leave(err);
        compute(p, k, g, ids, &n);
        if (k == 1 && (int)step == r->j->bad_step)
            g[0] = INFINITY;
        TUTTI_TRY(whole == NULL ? tutti_engine_grad_ready_from(e, k, held, TUTTI_F32, err)
                  : k == 0      ? tutti_engine_grad_ready_rows(e, k, ids, n, err) : tutti_engine_grad_ready(e, k, err));
        TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), true, err));
    }
    return tutti_engine_pass_end(e, 1, err);
}

static tutti_status one_step(rank_state *r, tutti_engine *e, tutti_error *err)
{
    const uint64_t step = tutti_engine_method(e)->step;
    tutti_pass p;
    tutti_status status;

    r->x = r->j->commit ? hash_values(r) : 0;
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(one_pass(r, e, &p, err));
    if (status != TUTTI_CLOSED)
        return status;
    return quits(r, step, AFTER_PASSES) ? leave(err) : tutti_engine_step(e, err);
}

static tutti_status evaluate(const rank_state *r, tutti_error *err)
{
    const uint64_t steps = tutti_engine_method(r->e)->step;

    if (quits(r, steps - 1, AT_EVALUATION))
        return leave(err);
    TUTTI_TRY(tutti_engine_eval_begin(r->e, err));
    TUTTI_TRY(forward(r->e, NULL, err));
    return tutti_engine_eval_end(r->e, err);
}

/* Of the slots in an image. */
static uint64_t hash_shards(const tutti_image *image)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < image->n; i++)
        if (image->pieces[i].keep == TUTTI_SLICE)
            hash = hash * 1099511628211u ^ image->hash[i] ^ image->pieces[i].begin;
    return hash;
}

/* Of the state in place and of an image of it. */
static tutti_status hash_state(tutti_engine *e, uint64_t *hash, uint64_t *shards, tutti_error *err)
{
    const tutti_saved *piece;
    tutti_image *image;
    size_t n;

    TUTTI_TRY(tutti_engine_state(e, &piece, &n, err));
    *hash = n;
    for (size_t i = 0; i < n; i++)
        *hash = *hash * 1099511628211u ^
                tutti_hash(piece[i].data, (piece[i].end - piece[i].begin) * tutti_dtype_bytes(piece[i].dtype));
    TUTTI_TRY(tutti_engine_image(e, "{}", &image, err));
    for (size_t i = 0; i < image->n; i++)
        *hash = *hash * 1099511628211u ^ image->hash[i];
    *hash ^= image->step;
    *shards = hash_shards(image);
    tutti_image_close(image);
    return TUTTI_OK;
}

static tutti_status take_figures(const rank_state *r, tutti_error *err)
{
    tutti_figures figures;

    tutti_engine_figures(r->e, &figures);
    r->j->x[r->rank] = 0;
    TUTTI_TRY(forward(r->e, &r->j->x[r->rank], err));
    r->j->bytes[r->rank] = figures.bytes_sent;
    if (strncmp(r->j->options.method, "zero", 4) == 0)
        r->j->updated[r->rank] = tutti_shards_count(tutti_engine_method(r->e), r->rank);
    return TUTTI_OK;
}

static void look_beside(job *j, int rank, tutti_engine *e)
{
    tutti_error none;
    tutti_image *image;

    if (tutti_engine_image_beside(e, &image, &none) != TUTTI_OK || image == NULL)
        return;
    j->beside[rank] = hash_shards(image);
    j->beside_at[rank] = image->step;
    if (image->facts[0] != 0 || image->whole || image->copies != (strncmp(j->options.method, "zero", 4) == 0))
        j->whole[rank] = false;
    tutti_image_close(image);
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    rank_state r = { .j = j, .rank = tutti_world_rank(world) };
    tutti_param params[TENSORS];
    tutti_engine_options options = j->options;
    tutti_engine *e = NULL;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = unit_of(k) };
    params[0] = (tutti_param){ .name = names[0], .dims = 2, .dim = { count[0] / COLS, COLS }, .unit = unit_of(0),
                               .row_sparse = true };
    options.initial = fill;
    options.user = &r;
    options.own_values = OWN;
    options.commit = j->commit ? commit : NULL;
    options.update = strcmp(options.optimizer, "client") == 0 ? update : NULL;
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    r.e = e;
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        if (j->quits_rank < 0)
            status = hash_state(e, &j->hash[r.rank][s], &j->shards[r.rank][s], err);
        if (status == TUTTI_OK)
            status = one_step(&r, e, err);
        if (status == TUTTI_OK && s % 2 == 0)
            status = evaluate(&r, err);
    }
    if (status == TUTTI_OK && j->quits_rank < 0)
        status = hash_state(e, &j->hash[r.rank][STEPS], &j->shards[r.rank][STEPS], err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        status = take_figures(&r, err);
    else if (e != NULL) { /* also on the worker that leaves, for those that it leaves */
        tutti_error none;
        uint64_t shards;
        j->whole[r.rank] = tutti_engine_whole(e, &j->steps[r.rank]);
        if (hash_state(e, &j->left[r.rank], &shards, &none) != TUTTI_OK)
            j->whole[r.rank] = false;
        look_beside(j, r.rank, e);
    }
    tutti_engine_close(e);
    return status;
}

static job job_of(const char *method, int shares)
{
    return (job){ .options = { .method = method, .optimizer = "adamw(lr=0.01)", .batch = 2, .data_samples = SAMPLES,
                               .seed = 3, .elastic_shares = shares, .needs = true, .same_order = true },
                  .commit = true, .quits_rank = -1, .bad_step = -1 };
}

static void run_whole(job *j, int n)
{
    tutti_error err;

    if (tutti_world_run("shm", n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s with %d shares: %s", j->options.method, j->options.elastic_shares, err.text);
}

/* What is left of shards at another step than that of its worker has the bits of that step. Where
   the steps of workers differ, each has those of the other one. */
static void assert_beside(const job *reference, const job *j, int n, int lost)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (int r = 0; r < n; r++)
        if (r != lost) {
            least = j->steps[r] < least ? j->steps[r] : least;
            most = j->steps[r] > most ? j->steps[r] : most;
        }
    for (int r = 0; r < n; r++) {
        const uint64_t at = j->beside_at[r];
        if (r == lost || reference->shards[r][0] == 0)
            continue;
        if (j->beside[r] != 0 && ((at != j->steps[r] + 1 && at + 1 != j->steps[r]) ||
                                  j->beside[r] != reference->shards[r][at]))
            fail_msg("worker %d has other shards at step %d than that step has", r, (int)at);
        if (least != most && (j->beside[r] == 0 || at != (j->steps[r] == least ? most : least)))
            fail_msg("worker %d has %d steps, of %d to %d, and no shards of the other step", r, (int)j->steps[r],
                     (int)least, (int)most);
    }
}

/* Every worker that was left has the step before, or the step that it committed. So has the one
   that leaves, whose engine has not failed. */
static void lose_one(const job *reference, int n, int rank, int step, int at)
{
    static job j;
    tutti_error err;

    j = *reference;
    j.quits_rank = rank;
    j.quits_step = step;
    j.quits_at = at;
    j.quits_pass = step % 2 == 0 ? 0 : j.options.accumulate * (j.period > 0 ? j.period : 1) - 1;
    memset(j.whole, 0, sizeof j.whole);
    memset(j.beside, 0, sizeof j.beside);
    memset(j.commits, 0, sizeof j.commits);
    assert_int_not_equal(tutti_world_run("shm", n, run_rank, &j, &err), TUTTI_OK);
    for (int r = 0; r < n; r++) {
        /* in step `step` a worker that is lost has not sent all that a commit waits for */
        const uint64_t least = (uint64_t)step + (at == AT_EVALUATION),
                       most = (uint64_t)step + (at >= AFTER_PASSES);
        if (!j.whole[r] || j.steps[r] != j.commits[r] || j.steps[r] < least || j.steps[r] > most ||
            j.left[r] != reference->hash[r][j.steps[r]])
            fail_msg("%s, %d shares, worker %d lost in step %d at %d: worker %d has %s, %d steps, %d commits",
                     j.options.method, j.options.elastic_shares, rank, step, at, r,
                     j.whole[r] ? "another state" : "no whole state", (int)j.steps[r], (int)j.commits[r]);
    }
    assert_beside(reference, &j, n, at == AT_COMMIT ? -1 : rank);
}

enum { DDP, ZERO, HELD = 3, VALUES };
static const char *const methods[] = { "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)",
                                       "zero(bucket_mb=0.001,first_bucket_mb=0.0005)",
                                       "bytescheduler(partition_mb=0.0005,credit_mb=0.002,fuse_mb=0.0002)",
                                       "zero(stage=2,bucket_mb=0.001,first_bucket_mb=0.0005)",
                                       "zero(stage=3,bucket_mb=0.001,first_bucket_mb=0.0005,persist=40)" };

static bool is_held(size_t m)
{
    return m == HELD || m == VALUES;
}

static bool is_zero(size_t m)
{
    return m == ZERO || is_held(m);
}

static job varied(size_t m, int variant)
{
    job j = job_of(methods[m], variant % 2 == 0 ? 0 : 6);

    j.options.accumulate = is_held(m) && j.options.elastic_shares > 0 ? 1 : 1 + variant % 3 / 2;
    j.options.clip_norm = variant % 3 == 1 ? 0.5 : 0;
    j.options.lane = variant == 5 ? -1 : variant % 3; /* 0: the method's */
    if (variant == 4 && !is_zero(m))
        j.options.optimizer = "adam(lr=0.01,lazy=on)";
    if (variant / 2 == 1)
        j.options.loss_scale = "dynamic(init=1024,interval=2)";
    j.bad_step = variant == 3 ? (AT_COMMIT + variant) % (STEPS - 1) : -1;
    return j;
}

static void a_lost_worker_leaves_a_step_or_none_of_it(void **state)
{
    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++)
        for (int variant = 0; variant < 6; variant += UNLESS_SANITIZED(1, 3)) {
            static job a;
            a = varied(m, variant);
            run_whole(&a, RANKS);
            for (int at = 0; at < MOMENTS; at++)
                lose_one(&a, RANKS, (at + variant) % RANKS,
                         at == AT_EVALUATION ? variant % 2 * 2 : (at + variant) % (STEPS - 1), at);
        }
}

/* What shares keep of their gradients is on one worker each, which can give it of both steps. */
static void a_lost_worker_leaves_what_shares_keep_of_a_step(void **state)
{
    static const struct { const char *method, *codec; } of[] = {
        { "powersgd(bucket_mb=0.0005)", NULL },
        { "powersgd(rank=2,iters_per_step=2,ef_rule=aggregated)", NULL },
        { "ddp", "ef(randomk(ratio=0.3),momentum=0.5)" },
    };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(of); m++)
        for (int variant = 0; variant < 4; variant += UNLESS_SANITIZED(1, 3)) {
            static job a, b;
            a = job_of(of[m].method, 6 + variant);
            a.options.codec = of[m].codec;
            a.options.optimizer = "sgd(lr=0.1)";
            a.options.clip_norm = variant == 1 ? 0.5 : 0;
            a.options.lane = variant - 1;
            a.options.accumulate = 1 + variant % 2;
            if (variant >= 2)
                a.options.nonfinite = TUTTI_NONFINITE_SKIP;
            a.bad_step = variant == 3 ? 2 : -1;
            b = a;
            b.commit = false;
            run_whole(&a, RANKS);
            run_whole(&b, RANKS);
            assert_memory_equal(a.hash, b.hash, sizeof a.hash);
            for (int at = 0; at < MOMENTS; at++)
                lose_one(&a, RANKS, (at + variant) % RANKS,
                         at == AT_EVALUATION ? variant % 2 * 2 : (at + variant) % (STEPS - 1), at);
        }
}

/* Some workers have no shard, some neither a shard nor a copy, and others nothing but a copy. */
static void a_model_with_fewer_parts_than_workers_has_whole_steps(void **state)
{
    static const size_t small[][TENSORS] = { { COLS, 1, 2 }, { 2 * COLS, 17, 16 } };
    const size_t usual[TENSORS] = { count[0], count[1], count[2] };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(small); k++)
        for (int n = 2; n <= RANKS; n += UNLESS_SANITIZED(1, 2))
            for (int variant = 0; variant < 12; variant += UNLESS_SANITIZED(1, 3)) {
                const size_t m = variant < 4 ? ZERO : variant < 8 ? HELD : VALUES;
                static job a;
                memcpy(count, small[k], sizeof count);
                a = varied(m, variant % 4);
                if (n % 2 == 0)
                    a.options.method = m == ZERO ? "zero" : m == HELD ? "zero(stage=2)" : "zero(stage=3)";
                run_whole(&a, n);
                for (int at = 0; at < MOMENTS; at++)
                    lose_one(&a, n, (at + variant) % n,
                             at == AT_EVALUATION ? variant % 2 * 2 : (at + variant) % (STEPS - 1), at);
                memcpy(count, usual, sizeof count);
            }
}

static void a_run_that_commits_has_the_bits_of_one_that_does_not(void **state)
{
    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++)
        for (int variant = 0; variant < 6; variant += UNLESS_SANITIZED(1, 3)) {
            static job a, b;
            a = varied(m, variant);
            b = varied(m, variant);
            b.commit = false;
            run_whole(&a, RANKS);
            run_whole(&b, RANKS);
            assert_memory_equal(a.x, b.x, sizeof a.x);
            for (int s = 0; s <= STEPS; s++)
                for (int r = 0; r < RANKS; r++)
                    if (!is_zero(m)) /* there each has copies, too */
                        assert_true(a.hash[r][s] == b.hash[r][s]);
        }
}

/* In a step a worker sends its shard's gradient to one more worker, where the optimiser has slots,
   or values are in shards; and it updates that of the next worker, too. */
static void copies_of_shards_cost_one_value_for_each_of_them(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1)", "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int k = 0; k < 3 * RANKS; k++) {
            static const size_t stage[] = { ZERO, HELD, VALUES };
            const size_t m = stage[k % 3];
            const int n = 1 + k / 3;
            static job with, without;
            with = job_of(methods[m], n % 2 == 0 ? 6 : 0);
            with.options.optimizer = optimizers[o];
            with.options.clip_norm = 0.5;
            without = with;
            without.commit = false;
            run_whole(&with, n);
            run_whole(&without, n);
            for (int r = 0; r < n; r++) {
                const bool copies = (o > 0 || m == VALUES) && n > 1;
                const size_t mine = without.updated[r], next = without.updated[(r + 1) % n];
                assert_int_equal(with.bytes[r] - without.bytes[r], copies ? STEPS * sizeof(float) * mine : 0);
                assert_int_equal(with.updated[r], mine + (copies ? next : 0));
            }
        }
}

/* Passes update the model of a share, and its slots. What is left is the model with which the round
   began, or the one that it was to leave. */
static void a_lost_worker_leaves_a_round_or_none_of_it(void **state)
{
    static const char *const of[] = { "local-sgd(period=3)",
                                      "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9))",
                                      "diloco(period=3)", "slowmo(period=3,buffers=reset)",
                                      "palsgd(period=3,form=elastic)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++)
        for (int variant = 0; variant < 3; variant++) {
            static job a;
            a = job_of(of[k], 6);
            a.period = 3;
            a.options.accumulate = 1 + variant / 2;
            a.options.clip_norm = variant == 1 ? 0.5 : 0;
            run_whole(&a, RANKS);
            for (int at = 0; at < MOMENTS; at++)
                lose_one(&a, RANKS, (at + variant) % RANKS,
                         at == AT_EVALUATION ? variant % 2 * 2 : (at + variant) % (STEPS - 1), at);
        }
}

static void an_update_that_fails_leaves_no_whole_state(void **state)
{
    static job j;
    tutti_error err;

    (void)state;
    j = job_of(methods[DDP], 0);
    j.options.optimizer = "client";
    run_whole(&j, 2);
    memset(j.commits, 0, sizeof j.commits);
    j.update_fails = true;
    j.quits_rank = RANKS; /* none does, and the states are not hashed */
    assert_int_equal(tutti_world_run("shm", 2, run_rank, &j, &err), TUTTI_ERR_NUMBER);
    for (int r = 0; r < 2; r++)
        assert_true(!j.whole[r] && j.steps[r] == 0 && j.commits[r] == 1);
}

static void what_cannot_is_refused(void **state)
{
    static const struct { const char *method, *codec, *says; } cases[] = {
        { "local-sgd", "", "is to be made as a whole or not at all (commit), but method 'local-sgd' changes" },
        { "zero-infinity", "", "but method 'zero-infinity' changes what it keeps before all exchanges of a step are" },
        { "bytescheduler(cross_barrier=on)", "", "but method 'bytescheduler' updates each piece as soon as" },
        { "ddp", "ef(topk(ratio=0.1))", "makes its steps as a whole or not at all here (commit)" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static job j;
        tutti_error err;
        j = job_of(cases[i].method, 0);
        j.options.needs = true;
        j.options.codec = cases[i].codec;
        assert_int_equal(tutti_world_run("shm", 2, run_rank, &j, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].method, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_worker_leaves_a_step_or_none_of_it),
        cmocka_unit_test(a_lost_worker_leaves_what_shares_keep_of_a_step),
        cmocka_unit_test(a_model_with_fewer_parts_than_workers_has_whole_steps),
        cmocka_unit_test(a_run_that_commits_has_the_bits_of_one_that_does_not),
        cmocka_unit_test(copies_of_shards_cost_one_value_for_each_of_them),
        cmocka_unit_test(a_lost_worker_leaves_a_round_or_none_of_it),
        cmocka_unit_test(an_update_that_fails_leaves_no_whole_state),
        cmocka_unit_test(what_cannot_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
