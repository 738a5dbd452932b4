/* Goal: scadles is its algorithm. Whatever the policy, all that arrived is trained, waiting or
   dropped, to the sample, after every round. The gradient is that of all samples of a round
   together; the rate follows their number up to its cap. A vote has the same result on all
   workers, and residuals move in compressed rounds alone. Injected samples are foreign, exactly
   as many as asked, and exactly their bytes are on the wire. Method: a client whose gradient is a
   formula of its samples, with a simulated clock, so that a separate oracle counts arrivals one
   by one, or with the running clock between its own readings; figures are read after every round;
   identities with ddp to the bit. */
#include <time.h>

#include "../scratch.h"
#include "trial.h"

enum { RANKS = 4, ROUNDS = 24, PART = 60, SET = RANKS * PART, COUNT = 24, BYTES = 9, FIGURES = 5 };

/* ---- a client with samples ---- */

typedef struct streams {
    const char *method, *optimizer;
    bool parts;                  /* worker r has samples r PART ... , all of class r */
    int workers, rounds;
    int64_t took[ROUNDS][RANKS], received[ROUNDS][RANKS];
    uint64_t sent[ROUNDS][RANKS][RANKS]; /* bytes in the pass hook */
    double figures[ROUNDS][RANKS][FIGURES]; /* arrived, trained, dropped, buffered, waited_seconds */
    bool clock;                  /* worker 2 computes for 15 ms, and between rounds pass 5 */
    int64_t began_ns[ROUNDS][RANKS], passed_ns[ROUNDS][RANKS], computed_ns[ROUNDS][RANKS], ended_ns[ROUNDS][RANKS];
    float x[ROUNDS + 1][RANKS][COUNT];
    double mean[ROUNDS][COUNT];  /* of the gradients of all samples of the round */
    int64_t samples[ROUNDS];
    uint64_t moved[ROUNDS];      /* hash of what worker 0's codec keeps */
} streams;

static uint64_t firsts[RANKS + 1];
static uint32_t ids[SET];
static const tutti_parts parts = { firsts, ids };

/* Few bits: sums are exact in any order. */
static float pull(uint64_t id, int i)
{
    return (float)((int)((id * 7 + (uint64_t)i * 5) % 15) - 7) / 8;
}

static tutti_status give(void *user, const uint64_t *which, size_t n, void *out, tutti_error *err)
{
    uint8_t *to = out;

    (void)user;
    (void)err;
    for (size_t k = 0; k < n; k++, to += BYTES) {
        memcpy(to, &which[k], sizeof which[k]);
        to[8] = (uint8_t)(which[k] / PART);
    }
    return TUTTI_OK;
}

static int label(void *user, uint64_t id)
{
    (void)user;
    return (int)(id / PART);
}

static tutti_status wrong(tutti_error *err, int line, const char *what)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", line, what);
}
#define CHECK(condition) do { if (!(condition)) return wrong(err, __LINE__, #condition); } while (0)

static tutti_status one_pass(streams *t, tutti_engine *e, const tutti_pass *p, double *sum, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int64_t own = p->samples - p->received;
    const uint8_t *come = p->given;

    memset(sum, 0, COUNT * sizeof *sum);
    for (int64_t k = 0; k < p->samples; k++) {
        uint64_t id;
        if (k < own)
            id = tutti_share_sample_of(m->share, m->rank, p->epoch, p->position + (uint64_t)k);
        else {
            memcpy(&id, come, sizeof id);
            CHECK(come[8] == id / PART && id / PART != (uint64_t)m->rank); /* every label is foreign */
            come += BYTES;
        }
        CHECK(id < SET && (!t->parts || k >= own || id / PART == (uint64_t)m->rank));
        for (int i = 0; i < COUNT; i++)
            sum[i] += pull(id, i);
    }
    for (int i = 0; i < COUNT; i++)
        m->g[i] = p->samples > 0 ? (float)(sum[i] / (double)p->divisor) : 0;
    return TUTTI_OK;
}

static tutti_status note(streams *t, tutti_engine *e, int round, const tutti_pass *p, double *sum, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_group all = tutti_group_workers(m->world, 4711 + (uint64_t)round);
    double counts[2] = { (double)(p->samples - p->received), (double)p->received }, told[2 * RANKS] = { 0 };

    t->took[round][m->rank] = p->samples - p->received;
    t->received[round][m->rank] = p->received;
    TUTTI_TRY(tutti_allgather(&all, tutti_host(counts, 2, TUTTI_F64),
                              tutti_host(told, 2 * (size_t)m->workers, TUTTI_F64), err));
    TUTTI_TRY(tutti_allreduce(&all, TUTTI_SUM, tutti_host(sum, COUNT, TUTTI_F64), err));
    if (m->rank > 0)
        return TUTTI_OK;
    t->samples[round] = 0;
    for (int k = 0; k < 2 * m->workers; k++)
        t->samples[round] += (int64_t)told[k];
    for (int i = 0; i < COUNT; i++)
        t->mean[round][i] = t->samples[round] > 0 ? sum[i] / (double)t->samples[round] : 0;
    return TUTTI_OK;
}

static tutti_status figures(streams *t, tutti_engine *e, int round, tutti_error *err)
{
    static const char *const names[FIGURES] = { "arrived", "trained", "dropped", "buffered", "waited_seconds" };
    const tutti_metric_record *m;
    const tutti_saved *pieces;
    size_t states;
    int n;

    TUTTI_TRY(tutti_engine_state(e, &pieces, &states, err));
    for (size_t k = 0; k < states && tutti_engine_method(e)->rank == 0; k++)
        if (strncmp(pieces[k].state, "codec", 5) == 0)
            t->moved[round] = t->moved[round] * 31 + tutti_hash(pieces[k].data, (pieces[k].end - pieces[k].begin) *
                                                                                    tutti_dtype_bytes(pieces[k].dtype));
    TUTTI_TRY(tutti_engine_eval_begin(e, err));
    TUTTI_TRY(tutti_engine_eval_end(e, err));
    n = tutti_engine_metrics(e, &m);
    for (int k = 0; k < n && tutti_engine_method(e)->rank == 0; k++)
        for (size_t f = 0; f < TUTTI_LENGTH(names); f++)
            if (strcmp(m[k].name, names[f]) == 0)
                t->figures[round][m[k].worker][f] = m[k].value;
    return TUTTI_OK;
}

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (int i = 0; i < COUNT; i++)
        values[i] = trial_initial_value((size_t)i);
}

static tutti_status streams_rank(tutti_world *world, void *arg, tutti_error *err)
{
    streams *t = arg;
    tutti_param param = { .name = "x", .dims = 1, .dim = { COUNT } };
    const tutti_engine_options options = { .method = t->method,
                                           .optimizer = t->optimizer,
                                           .batch = 4,
                                           .data_samples = SET,
                                           .seed = 3,
                                           .parts = t->parts ? &parts : NULL,
                                           .initial = fill,
                                           .sample_bytes = BYTES,
                                           .give = give,
                                           .label = label };
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);

    for (int s = 0; s < t->rounds && status == TUTTI_OK; s++) {
        const tutti_method *m = tutti_engine_method(e);
        uint64_t before[RANKS], after, messages;
        double sum[COUNT];
        tutti_pass p;
        memcpy(t->x[s][m->rank], m->x, sizeof t->x[s][m->rank]);
        t->began_ns[s][m->rank] = tutti_now_ns(tutti_world_runtime(world));
        for (int to = 0; to < m->workers; to++)
            tutti_world_sent(world, to, &before[to], &messages);
        status = tutti_engine_pass_begin(e, &p, err);
        t->passed_ns[s][m->rank] = tutti_now_ns(tutti_world_runtime(world));
        for (int to = 0; to < m->workers; to++) {
            tutti_world_sent(world, to, &after, &messages);
            t->sent[s][m->rank][to] = after - before[to];
        }
        if (status == TUTTI_OK)
            status = one_pass(t, e, &p, sum, err);
        if (status == TUTTI_OK)
            status = note(t, e, s, &p, sum, err);
        if (status == TUTTI_OK)
            status = tutti_engine_grad_ready(e, 0, err);
        if (status == TUTTI_OK)
            status = tutti_engine_pass_end(e, 0, err);
        while (status == TUTTI_OK)
            status = tutti_engine_pass_begin(e, &p, err);
        if (t->clock && m->rank == 2)
            nanosleep(&(struct timespec){ .tv_nsec = 15000000 }, NULL);
        t->computed_ns[s][m->rank] = tutti_now_ns(tutti_world_runtime(world));
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
        t->ended_ns[s][m->rank] = tutti_now_ns(tutti_world_runtime(world));
        if (t->clock)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        memcpy(t->x[s + 1][m->rank], m->x, sizeof t->x[s + 1][m->rank]);
        if (status == TUTTI_OK)
            status = figures(t, e, s, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static streams *streams_of(const char *method, bool own_parts)
{
    streams *t = calloc(1, sizeof *t);

    for (uint64_t r = 0; r <= RANKS; r++)
        firsts[r] = r * PART;
    for (uint32_t i = 0; i < SET; i++)
        ids[i] = i;
    t->method = method;
    t->optimizer = "sgd(lr=0.25)";
    t->parts = own_parts;
    t->workers = RANKS;
    t->rounds = ROUNDS;
    return t;
}

static void run(streams *t)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", t->workers, streams_rank, t, &err) != TUTTI_OK)
        fail_msg("%s: %s", t->method, err.text);
}

/* ---- arrivals ---- */

static void every_arrived_sample_is_trained_waiting_or_dropped(void **state)
{
    static const struct { const char *policy; int64_t min, max, cap; } cases[] = {
        { "persistence", 1, 9, 0 }, { "truncation", 1, 9, 0 }, { "truncation", 6, 1000, 0 }, { "cap,cap=12", 4, 9, 12 },
        { "persistence", 3, 100, 0 }, { "cap,cap=30", 1, 5, 30 },
    };
    static const double rate[RANKS] = { 2, 5, 16, 1 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        char method[200];
        streams *t;
        int64_t taken[RANKS] = { 0 }, dropped[RANKS] = { 0 }, all = 0;
        snprintf(method, sizeof method,
                 "scadles(rates=2:5:16:1,simulate_clock=on,batch_min=%lld,batch_max=%lld,policy=%s,compress=off)",
                 (long long)cases[c].min, (long long)cases[c].max, cases[c].policy);
        t = streams_of(method, true); /* no worker's epoch is cut before SET samples */
        run(t);
        for (int s = 0; s < ROUNDS; s++) {
            bool less = false;
            for (int r = 0; r < RANKS; r++) {
                const int64_t arrived = (int64_t)(rate[r] * (s + 1));
                const double *f = t->figures[s][r];
                int64_t there, b;
                if (cases[c].cap > 0 && arrived - taken[r] - dropped[r] > cases[c].cap)
                    dropped[r] = arrived - taken[r] - cases[c].cap;
                there = arrived - taken[r] - dropped[r];
                b = there < cases[c].min ? 0 : there < cases[c].max ? there : cases[c].max;
                assert_true(t->took[s][r] <= b);
                less = less || t->took[s][r] < b;
                all += t->took[s][r];
                taken[r] += t->took[s][r];
                if (strncmp(cases[c].policy, "truncation", 10) == 0 && b > 0)
                    dropped[r] = arrived - taken[r];
                assert_true(f[0] == (double)arrived && f[1] == (double)taken[r] && f[2] == (double)dropped[r]);
                assert_true(f[0] == f[1] + f[2] + f[3] && f[3] >= 0);
                assert_true(strncmp(cases[c].policy, "truncation", 10) != 0 || f[3] < (double)cases[c].min);
                assert_true(cases[c].cap == 0 || f[3] <= (double)cases[c].cap);
            }
            assert_true(!less || all % SET == 0); /* only where an epoch ends */
        }
        free(t);
    }
}

/* On the running clock: what came lies between what a rate brings in the least and the most time
   that the clock can have run, which stands between steps. What is taken is counted by the
   client. So the figures are compared with nothing that the method reports. */
static void real_clock_samples_are_accounted_within_the_waiting_window(void **state)
{
    static const struct { const char *policy; int64_t max, cap; } cases[] = {
        { "truncation", 5, 0 }, { "persistence", 5, 0 }, { "cap,cap=12", 5, 12 }, { "truncation", 1000, 0 },
    };
    static const double rate[RANKS] = { 300, 900, 500, 150 }, window = 0.01;
    double most_dropped = 0, most_waiting = 0;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        char method[200];
        streams *t;
        int64_t all = 0;
        snprintf(method, sizeof method,
                 "scadles(rates=300:900:500:150,window_s=%g,batch_min=1,batch_max=%lld,policy=%s,compress=off)", window,
                 (long long)cases[c].max, cases[c].policy);
        t = streams_of(method, false);
        t->clock = true;
        run(t);
        for (int s = 0; s < ROUNDS; s++) {
            bool less = false;
            for (int r = 0; r < RANKS; r++) {
                static const double none[FIGURES];
                const double *f = t->figures[s][r], *was = s > 0 ? t->figures[s - 1][r] : none;
                const double there = fmin(f[0] - was[1] - was[2], cases[c].cap > 0 ? (double)cases[c].cap : INFINITY),
                             took = (double)t->took[s][r];
                double most = 1e-9 * (double)(t->passed_ns[s][r] - t->began_ns[s][r]), least = f[4];
                for (int k = 0; k < s; k++) {
                    most += 1e-9 * (double)(t->ended_ns[k][r] - t->began_ns[k][r]);
                    least += 1e-9 * (double)(t->computed_ns[k][r] - t->passed_ns[k][r]);
                }
                assert_true(f[0] <= rate[r] * most + 1e-6 && f[0] > rate[r] * least - 1 - 1e-6);
                assert_true(f[1] == was[1] + took && took <= fmin(there, (double)cases[c].max));
                less = less || took < fmin(there, (double)cases[c].max);
                all += t->took[s][r];
                if (strncmp(cases[c].policy, "truncation", 10) == 0)
                    assert_true(f[3] == 0 && f[2] - was[2] == f[0] - was[0] - took);
                else
                    assert_true(f[3] == there - took && f[2] - was[2] == f[0] - was[1] - was[2] - there);
                assert_true(f[4] - was[4] <= window + 1e-9);
                assert_true(r != 2 || s == 0 || f[4] == was[4]); /* its samples came while it computed */
                most_dropped = fmax(most_dropped, f[2]);
                most_waiting = fmax(most_waiting, f[3]);
            }
            assert_true(!less || all % SET == 0); /* only where an epoch ends */
        }
        assert_true(t->figures[ROUNDS - 1][3][4] > 0); /* some wait at all */
        free(t);
    }
    assert_true(most_dropped > 0 && most_waiting > 0);
}

/* Nothing arrives at the workers of the replayed run: it takes what is written down. */
static void recorded_run_is_replayed_bit_for_bit(void **state)
{
    static const char *const options = "batch_max=5,batch_min=2,inject_alpha=0.5,inject_beta=0.5,compress_ratio=0.3";
    char folder[SCRATCH_PATH], file[SCRATCH_PATH + 8], method[2][SCRATCH_PATH + 300];
    streams *recorded, *replayed;
    int taken = 0, less = 0;

    (void)state;
    scratch_make(folder);
    snprintf(file, sizeof file, "%s/record", folder);
    for (int k = 0; k < 2; k++)
        snprintf(method[k], sizeof method[k], "scadles(%s,%s=%s,%s)", options, k == 0 ? "record" : "replay", file,
                 k == 0 ? "rates=300:900:500:150,window_s=0.01" : "rates=0.001,window_s=1000");
    recorded = streams_of(method[0], true);
    recorded->clock = true;
    replayed = streams_of(method[1], true);
    run(recorded);
    run(replayed);
    assert_memory_equal(replayed->took, recorded->took, sizeof recorded->took);
    assert_memory_equal(replayed->received, recorded->received, sizeof recorded->received);
    assert_memory_equal(replayed->x, recorded->x, sizeof recorded->x);
    assert_memory_equal(replayed->moved, recorded->moved, sizeof recorded->moved);
    for (int s = 0; s < ROUNDS; s++)
        for (int r = 0; r < RANKS; r++) {
            const double *f = replayed->figures[s][r];
            assert_true(f[0] == f[1] && f[2] == 0 && f[3] == 0 && f[4] == 0);
            taken += recorded->took[s][r] > 0;
            less += recorded->took[s][r] < 5;
        }
    assert_true(taken > 0 && less > 0);
    free(recorded);
    free(replayed);
    scratch_remove(folder);
}

/* Over many seeds: the samples that are drawn, and that samples arrive at the drawn rate. */
static void drawn_rates_follow_the_configured_distribution(void **state)
{
    enum { SEEDS = 32, WORKERS = 8, DRAWS = SEEDS * WORKERS };
    static const struct { const char *rates; double deviation, in_the_middle; } cases[] = {
        { "uniform", 80 / 3.4641016, 0.5 },
        { "normal", 20 * 0.9594, 0.6827 }, /* cut at two deviations: what is beyond is on the edge */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        double sum = 0, squares = 0, middle = 0;
        char method[120];
        trial t = trial_of(method, "sgd(lr=0.1)", 1);
        snprintf(method, sizeof method, "scadles(rates=%s,simulate_clock=on,window_s=100,batch_max=100000,compress=off)",
                 cases[c].rates);
        t.count[0] = t.count[1] = t.count[2] = 1;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            t.options.seed = seed;
            trial_run(&t, WORKERS);
            for (int r = 0; r < WORKERS; r++) {
                const double rate = trial_metric(&t, "rate", r);
                assert_true(rate >= 20 && rate <= 100);
                assert_true(trial_metric(&t, "arrived", r) == floor(rate * 100)); /* by its own draw */
                sum += rate / DRAWS;
                squares += (rate - 60) * (rate - 60) / DRAWS;
                middle += (fabs(rate - 60) < 20) / (double)DRAWS;
            }
        }
        /* four deviations of a mean, of a variance whose tails are cut, of a share */
        assert_true(fabs(sum - 60) <= 4 * cases[c].deviation / sqrt(DRAWS));
        assert_true(fabs(squares / (cases[c].deviation * cases[c].deviation) - 1) <= 4 * sqrt(2.0 / DRAWS));
        assert_true(fabs(middle - cases[c].in_the_middle) <= 4 * sqrt(0.25 / DRAWS));
        trial_drop(&t);
    }
}

/* Of any round; one in which no worker has enough samples moves nothing. */
static void update_uses_the_mean_gradient_and_the_scaled_rate(void **state)
{
    static const char *const methods[] = {
        "scadles(rates=2:5:16:1,simulate_clock=on,batch_max=99,batch_min=1,compress=off)",
        "scadles(rates=4:8:12:16,simulate_clock=on,batch_max=99,batch_min=1,compress=off,ref_batch=20,lr_scale_max=1.5)",
        "scadles(rates=2:2:3:1,simulate_clock=on,batch_max=99,batch_min=6,policy=persistence,compress=off)",
        "scadles(rates=9:5:16:7,simulate_clock=on,batch_max=99,batch_min=1,compress=off,inject_alpha=0.5,"
        "inject_beta=0.5)",
    };
    int still = 0;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        streams *t = streams_of(methods[k], true);
        run(t);
        for (int s = 0; s < ROUNDS; s++) {
            const double ref = k == 1 ? 20 : 16, most = k == 1 ? 1.5 : 4,
                         factor = fmin((double)t->samples[s] / ref, most);
            for (int r = 0; r < RANKS; r++)
                for (int i = 0; i < COUNT; i++) {
                    const double wanted = t->x[s][r][i] - 0.25 * factor * t->mean[s][i];
                    assert_true(fabs(t->x[s + 1][r][i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
                    assert_true(t->x[s + 1][r][i] == t->x[s + 1][0][i]);
                }
            still += t->samples[s] == 0;
        }
        free(t);
    }
    assert_true(still > 0);
}

/* Rates of twice as many samples, otherwise the same: a step of twice the length, until the
   cap. */
static void the_rate_is_linear_in_the_samples_of_a_round(void **state)
{
    const int rates[] = { 1, 2, 4, 8 };
    float moved[4];

    (void)state;
    for (int k = 0; k < 4; k++) {
        char method[160];
        trial t = trial_of(method, "sgd(lr=0.125)", 1);
        snprintf(method, sizeof method,
                 "scadles(rates=%d,simulate_clock=on,batch_max=99,batch_min=1,ref_batch=4,lr_scale_max=4,compress=off)",
                 rates[k]);
        t.gradient = trial_constant;
        t.options.data_samples = 1000; /* no epoch ends */
        trial_run(&t, 4);
        moved[k] = t.x[0][0][5] - trial_initial_value(5);
        trial_drop(&t);
    }
    assert_true(moved[0] != 0 && moved[1] == 2 * moved[0] && moved[2] == 4 * moved[0] && moved[3] == moved[2]);
}

static void equal_rates_are_ddp_to_the_bit(void **state)
{
    static const char *const methods[] = {
        "scadles(rates=2,simulate_clock=on,batch_min=1,compress=off)",
        "scadles(rates=1000,simulate_clock=on,batch_min=1,batch_max=2,compress=off,policy=persistence)",
        "scadles(rates=2,simulate_clock=on,batch_min=1,delta=0)", /* with a codec that is never taken */
        "scadles(rates=2,simulate_clock=on,batch_min=1,delta=0,rho_form=reference,server_ef=off,bucket_mb=0.004)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 1; n <= 4; n++) {
            trial a = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 8),
                  b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 8);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s <= 8; s++)
                for (int r = 0; r < n; r++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- compression ---- */

static void replicas_agree_and_delta_sets_how_often_rounds_compress(void **state)
{
    static const struct { const char *options; int least, most; } cases[] = {
        { "delta=1", 12, 12 }, { "delta=0", 0, 0 }, { "delta=1,server_ef=off", 12, 12 },
        { "compress_ratio=1,delta=0", 12, 12 }, { "compress=off", 0, 0 },
        { "compress_ratio=0.3,delta=0.2,memory=0", 1, 11 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int n = 2; n <= 5; n++) {
            char method[200];
            trial t = trial_of(method, "sgd(lr=0.05)", 12);
            snprintf(method, sizeof method, "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,%s)",
                     cases[k].options);
            trial_run(&t, n);
            assert_true(trial_metric(&t, "rounds", -1) == 12);
            assert_true(trial_metric(&t, "compressed_rounds", -1) >= cases[k].least &&
                        trial_metric(&t, "compressed_rounds", -1) <= cases[k].most);
            for (int s = 0; s <= 12; s++)
                for (int r = 1; r < n; r++)
                    assert_true(trial_same(&t, t.x[r][s], t.x[0][s]));
            trial_drop(&t);
        }
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Without a residual: from the gradient alone, at the model that step begins with. */
static double rho_of(const trial *t, int rank, int step, double ratio, bool reference)
{
    double before = 0, after = 0;
    size_t first = 0;

    for (int k = 0; k < TRIAL_TENSORS; first += t->count[k++]) {
        double squares[2000], all = 0, kept = 0;
        for (size_t i = 0; i < t->count[k]; i++) {
            const float x = step == 0 ? trial_initial_value(first + i) : t->x[rank][step - 1][first + i];
            const double g = (double)t->gradient(rank, (uint64_t)step, first + i, x);
            squares[i] = g * g;
            all += g * g;
        }
        qsort(squares, t->count[k], sizeof *squares, descending);
        for (size_t i = 0; i < (size_t)ceil(ratio * (double)t->count[k]); i++)
            kept += squares[i];
        before += reference ? sqrt(all) : all;
        after += reference ? sqrt(kept) : kept;
    }
    return reference ? fabs(before - after) / before : 1 - sqrt(after / before);
}

/* Of three workers one vote is enough, of two one. */
static void compression_is_voted_by_the_predicted_error(void **state)
{
    (void)state;
    for (int reference = 0; reference < 2; reference++)
        for (int n = 2; n <= 3; n++)
            for (int above = 0; above < 2; above++) {
                char method[200];
                trial t = trial_of(method, "sgd(lr=0.05)", 1);
                double least = 1;
                for (int r = 0; r < n; r++)
                    least = fmin(least, rho_of(&t, r, 0, 0.1, reference));
                assert_true(least > 0.01 && least < 0.99);
                snprintf(method, sizeof method,
                         "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,compress_ratio=0.1,delta=%.9f,"
                         "rho_form=%s)",
                         least + (above ? 1e-5 : -1e-5), reference ? "reference" : "default");
                trial_run(&t, n);
                assert_true(trial_metric(&t, "compressed_rounds", -1) == above);
                trial_drop(&t);
            }
}

/* An ever larger part of the norm is in every 13th element, the more so the later the step and
   the higher the rank. */
static float ever_steeper(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return (i % 13 == 0 ? 2 + (float)rank / 4 + 2 * (float)step : 1) * (i % 2 == 0 ? 1 : -1);
}

/* From four workers up floor(D / 2) are two votes and more. What each would lose it reports
   itself; owners of parts look at parts of tensors, so that is near the oracle's. */
static void compression_needs_the_votes_of_half_the_workers(void **state)
{
    (void)state;
    for (int n = 3; n <= 7; n += n == 5 ? 2 : 1) {
        char method[200];
        trial t = trial_of(method, "sgd(lr=0.05)", 1);
        double loses[TRIAL_RANKS + 1] = { 0 };
        t.gradient = ever_steeper;
        snprintf(method, sizeof method, "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,delta=0)");
        trial_run(&t, n);
        for (int r = 0; r < n; r++) {
            loses[r] = trial_metric(&t, "loses", r);
            assert_true(fabs(loses[r] - rho_of(&t, r, 0, 0.1, false)) <= (n <= 3 ? 1e-6 : 0.02));
        }
        qsort(loses, (size_t)n, sizeof *loses, descending);
        for (int votes = 0; votes <= n; votes++) { /* loses[n - votes] and those behind it are votes */
            const double over = votes < n ? loses[n - votes - 1] : 1, under = loses[n - votes];
            assert_true(over - under > 1e-4);
            snprintf(method, sizeof method, "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,delta=%.9f)",
                     (over + under) / 2);
            trial_run(&t, n);
            assert_true(trial_metric(&t, "compressed_rounds", -1) == (votes >= (n < 4 ? 1 : n / 2)));
        }
        trial_drop(&t);
    }
}

/* Uncompressed rounds, so that the oracle needs no residual. It reports where the mean, and no
   round's own share, comes below a bound: there the first round is compressed. */
static void predicted_error_is_an_exponential_moving_average(void **state)
{
    enum { STEPS = 8 };
    static const double memories[] = { 0, 0.5, 0.9 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(memories); k++)
        for (int n = 2; n <= 3; n++) {
            char method[200];
            trial t = trial_of(method, "sgd(lr=0.05)", STEPS);
            double least[STEPS];
            t.gradient = ever_steeper;
            snprintf(method, sizeof method, "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,delta=0,memory=%g)",
                     memories[k]);
            trial_run(&t, n);
            for (int r = 0; r < n; r++) {
                double mean = 0;
                for (int s = 0; s < STEPS; s++) {
                    const double rho = rho_of(&t, r, s, 0.1, false);
                    assert_true(rho > 0 && rho < 1);
                    mean = s == 0 ? rho : memories[k] * mean + (1 - memories[k]) * rho;
                    least[s] = r == 0 ? mean : fmin(least[s], mean);
                }
                assert_true(fabs(trial_metric(&t, "loses", r) - mean) <= 1e-6);
            }
            assert_true(least[STEPS - 2] - least[STEPS - 1] > 1e-3);
            snprintf(method, sizeof method,
                     "scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,delta=%.9f,memory=%g)",
                     (least[STEPS - 2] + least[STEPS - 1]) / 2, memories[k]);
            trial_run(&t, n);
            assert_true(trial_metric(&t, "compressed_rounds", -1) == 1);
            trial_drop(&t);
        }
}

/* With residuals, after every number of rounds. */
static void predicted_error_is_a_fraction_up_to_one(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n += 3)
        for (int steps = 1; steps <= 8; steps++) {
            trial t = trial_of("scadles(rates=3,simulate_clock=on,batch_max=99,batch_min=1,delta=1,memory=0,"
                               "compress_ratio=0.01)",
                               "sgd(lr=0.05)", steps);
            trial_run(&t, n);
            assert_true(trial_metric(&t, "compressed_rounds", -1) == steps);
            for (int r = 0; r < n; r++)
                assert_true(trial_metric(&t, "loses", r) > 0 && trial_metric(&t, "loses", r) <= 1);
            trial_drop(&t);
        }
}

static void a_residual_moves_in_compressed_rounds_alone(void **state)
{
    streams *dense = streams_of("scadles(rates=9:5:16:7,simulate_clock=on,batch_max=99,batch_min=1,delta=0)", true),
            *sparse = streams_of("scadles(rates=9:5:16:7,simulate_clock=on,batch_max=99,batch_min=1,delta=1)", true);

    (void)state;
    run(dense);
    run(sparse);
    for (int s = 1; s < ROUNDS; s++) {
        assert_true(dense->moved[s] == dense->moved[0]);
        assert_true(sparse->moved[s] != sparse->moved[s - 1]);
    }
    free(dense);
    free(sparse);
}

/* To all up to three workers, by owners of parts from four up. */
static void compression_ratio_one_matches_the_uncompressed_sum(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        trial a = trial_of("scadles(rates=2,simulate_clock=on,batch_min=1,compress_ratio=1)", "sgd(lr=0.1)", 8),
              b = trial_of("scadles(rates=2,simulate_clock=on,batch_min=1,compress=off)", "sgd(lr=0.1)", 8);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int s = 0; s <= 8; s++)
            assert_true(trial_apart(&a, a.x[0][s], b.x[0][s]) <= 1e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* All skip the step: they learn of it from the sum. */
static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    static const char *const methods[] = { "scadles(rates=2,simulate_clock=on,batch_min=1,delta=0.3)",
                                           "scadles(rates=2,simulate_clock=on,batch_min=1,delta=1)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "sgd(lr=0.1)", 6);
        trial_ends_when_not_finite(&t);
        trial_run(&t, 4);
        for (int r = 0; r < 4; r++)
            assert_int_equal(t.figures[r].skipped, 1);
        assert_true(trial_same(&t, t.x[0][3], t.x[0][2]) && !trial_same(&t, t.x[0][4], t.x[0][3]));
        trial_drop(&t);
    }
}

/* ---- injection ---- */

static void sample_injection_sends_exactly_the_configured_samples(void **state)
{
    static const struct { double alpha, beta; } cases[] = { { 0.5, 0.5 }, { 0.25, 0.25 }, { 1, 1 }, { 0.3, 0.1 } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int64_t draws = (int64_t)ceil(cases[c].alpha * RANKS);
        char with[220];
        streams *plain = streams_of("scadles(rates=9:5:16:7,simulate_clock=on,batch_min=1,batch_max=14)", true), *t;
        snprintf(with, sizeof with,
                 "scadles(rates=9:5:16:7,simulate_clock=on,batch_min=1,batch_max=14,inject_alpha=%g,inject_beta=%g)",
                 cases[c].alpha, cases[c].beta);
        t = streams_of(with, true);
        run(plain);
        run(t);
        for (int s = 0; s < ROUNDS; s++) {
            uint64_t bytes = 0, samples = 0;
            for (int r = 0; r < RANKS; r++) {
                assert_int_equal(t->took[s][r], plain->took[s][r]);
                assert_int_equal(t->received[s][r], draws * (int64_t)floor(cases[c].beta * (double)t->took[s][r]));
                samples += (uint64_t)t->received[s][r];
                for (int to = 0; to < RANKS; to++) {
                    const uint64_t more = t->sent[s][r][to] - plain->sent[s][r][to];
                    assert_true(r == to || more % BYTES == 0);
                    bytes += r != to ? more : 0;
                }
            }
            for (int to = 0; to < RANKS; to++) { /* what came to a worker is what was sent to it */
                uint64_t come = 0;
                for (int r = 0; r < RANKS; r++)
                    come += r != to ? t->sent[s][r][to] - plain->sent[s][r][to] : 0;
                assert_int_equal(come, (uint64_t)t->received[s][to] * BYTES);
            }
            assert_int_equal(bytes, samples * BYTES);
        }
        free(t);
        free(plain);
    }
}

static void is_refused(streams *t, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", t->workers, streams_rank, t, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s", err.text);
    free(t);
}

static void conflicting_options_are_rejected(void **state)
{
    trial t = trial_of("scadles(inject_alpha=0.5,inject_beta=0.5)", "sgd(lr=0.1)", 1);
    tutti_error err;

    (void)state;
    is_refused(streams_of("scadles(rates=1:2)", false),
               "method 'scadles': rates is '1:2'; write uniform, normal, the samples a second of every worker, or of "
               "each of the 4: r0:r1:...");
    is_refused(streams_of("scadles(rate_low=5,rate_high=4)", false), "rate_low is 5 and rate_high 4; swap them");
    is_refused(streams_of("scadles(batch_min=9,batch_max=8)", false), "batch_min is 9 and batch_max 8; swap them");
    is_refused(streams_of("scadles(batch_min=5)", false),
               "batch_min is 5, but a worker takes at most the run's batch, 4; give a larger batch_max or a smaller "
               "batch_min");
    is_refused(streams_of("scadles(policy=cap,cap=7,batch_max=9)", false),
               "cap is 7 samples, and batch_min, which would never wait at once, 8; make cap as large at least");
    is_refused(streams_of("scadles(inject_alpha=0.5,inject_beta=0.5)", false),
               "inject_alpha is 0.5, but all workers draw from one common set, so that no class is foreign to any");
    is_refused(streams_of("scadles(inject_alpha=0.5,inject_beta=0.01,batch_max=50)", true),
               "inject_beta is 0.01, and that share of a batch of batch_max, 50, is less than one sample");
    t.options.streams = true;
    t.method = "scadles";
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "stream is given, but method 'scadles' has a model of its own of samples that "
                                     "arrive; omit stream"));
    t.options.streams = false;
    t.options.accumulate = 2;
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "accumulate is 2, but what has come is one pass"));
    t.options.accumulate = 1;
    t.options.codec = "topk";
    t.method = "scadles";
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "codec is 'topk', but method 'scadles' brings its own"));
    trial_drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_arrived_sample_is_trained_waiting_or_dropped),
        cmocka_unit_test(real_clock_samples_are_accounted_within_the_waiting_window),
        cmocka_unit_test(recorded_run_is_replayed_bit_for_bit),
        cmocka_unit_test(drawn_rates_follow_the_configured_distribution),
        cmocka_unit_test(update_uses_the_mean_gradient_and_the_scaled_rate),
        cmocka_unit_test(the_rate_is_linear_in_the_samples_of_a_round),
        cmocka_unit_test(equal_rates_are_ddp_to_the_bit),
        cmocka_unit_test(replicas_agree_and_delta_sets_how_often_rounds_compress),
        cmocka_unit_test(compression_is_voted_by_the_predicted_error),
        cmocka_unit_test(compression_needs_the_votes_of_half_the_workers),
        cmocka_unit_test(predicted_error_is_an_exponential_moving_average),
        cmocka_unit_test(predicted_error_is_a_fraction_up_to_one),
        cmocka_unit_test(a_residual_moves_in_compressed_rounds_alone),
        cmocka_unit_test(compression_ratio_one_matches_the_uncompressed_sum),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
        cmocka_unit_test(sample_injection_sends_exactly_the_configured_samples),
        cmocka_unit_test(conflicting_options_are_rejected),
    };
    return cmocka_run_group_tests_name("method/scadles", tests, NULL, NULL);
}
