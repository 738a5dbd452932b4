/* Goal: each algorithm of bagua is what its equations state and sends what they prescribe to the
   peers they prescribe, and its switches change how and not what. Method: identities to the bit
   with methods that share a part; recursions replayed in plain C; traffic of a step as the
   difference of two runs. Schedules and losses are tests/explore's, resuming is
   tests/engine/state_test.c. */
#include <time.h>

#include "trial.h"
#include "tutti/method/gossip.h"
#include "method/bagua/ring.h"

static void same_at_every_step(const char *one, const char *other, const char *optimizer, int n)
{
    trial a = trial_of(one, optimizer, 6), b = trial_of(other, optimizer, 6);

    trial_run(&a, n);
    trial_run(&b, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= 6; s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s and %s differ on worker %d of %d after step %d", one, other, r, n, s);
    trial_drop(&a);
    trial_drop(&b);
}

static void one_worker_matches_single_for_every_algorithm(void **state)
{
    static const char *const methods[] = {
        "bagua", "bagua(hierarchical=on)", "bagua(algorithm=bytegrad)", "bagua(algorithm=decentralized)",
        "bagua(algorithm=decentralized,peer_selection=shift_one)", "bagua(algorithm=low_precision_decentralized)",
        "bagua(algorithm=async,sync_interval_ms=0)", "bagua(algorithm=async,warmup_steps=3)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        assert_true(trial_same(&a, a.x[0][7], b.x[0][7]));
        assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
    same_at_every_step("bagua(algorithm=qadam,warmup_steps=3)", "qadam(warmup_steps=3)", "sgd(lr=0.01)", 1);
}

/* ---- gradients ---- */

static void exact_sums_are_ddp_to_the_bit_however_they_are_made(void **state)
{
    static const struct { const char *method; int n; } cases[] = {
        { "bagua", 2 },
        { "bagua", 5 },
        { "bagua(bucket_mb=0.001)", 4 },
        { "bagua(fusion=off)", 3 },
        { "bagua(fusion=off,overlap=off)", 4 },
        { "bagua(hierarchical=2)", 4 },
        { "bagua(hierarchical=2)", 6 },
        { "bagua(hierarchical=4,fusion=off)", 8 },
        { "bagua(hierarchical=1)", 4 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++)
        same_at_every_step(cases[i].method, "ddp", "sgd(lr=0.1,momentum=0.9)", cases[i].n);
}

/* Groups of three do not fit the binary tree of the sum. */
static void teams_of_three_match_ddp_within_rounding(void **state)
{
    trial a = trial_of("bagua(hierarchical=3)", "sgd(lr=0.1)", 6), b = trial_of("ddp", "sgd(lr=0.1)", 6);

    (void)state;
    trial_run(&a, 6);
    trial_run(&b, 6);
    for (int r = 0; r < 6; r++) {
        assert_true(trial_apart(&a, a.x[r][5], b.x[r][5]) < 1e-6);
        assert_true(trial_same(&a, a.x[r][5], a.x[0][5]));
    }
    trial_drop(&a);
    trial_drop(&b);
}

static void bytegrad_is_ddp_through_the_codec(void **state)
{
    static const struct { const char *method, *codec, *teams; int n; } cases[] = {
        { "bagua(algorithm=bytegrad)",                                    "ef(minmax8,server=on)", "none", 2 },
        { "bagua(algorithm=bytegrad)",                                    "ef(minmax8,server=on)", "none", 5 },
        { "bagua(algorithm=bytegrad,fusion=off,overlap=off)",             "ef(minmax8,server=on)", "none", 4 },
        { "bagua(algorithm=bytegrad,error_feedback=off,chunk=256)",       "minmax8(chunk=256)",    "none", 4 },
        { "bagua(algorithm=bytegrad,hierarchical=2,error_feedback=off)",  "minmax8",               "2",    4 },
        { "bagua(algorithm=bytegrad,hierarchical=2)",                     "ef(minmax8,server=on)", "2",    8 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        trial a = trial_of(cases[i].method, "sgd(lr=0.1)", 6), b = trial_of("ddp", "sgd(lr=0.1)", 6);
        b.options.codec = cases[i].codec;
        b.options.codec_hierarchy = cases[i].teams;
        trial_run(&a, cases[i].n);
        trial_run(&b, cases[i].n);
        for (int r = 0; r < cases[i].n; r++)
            for (int s = 0; s <= 6; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* What was delivered in T steps is T times the mean gradient except for the errors that are kept
   now: half a step of the codes for a worker and as much for an owner. Without feedback the same
   rounding is made T times. */
static void error_feedback_bounds_the_accumulated_error(void **state)
{
    enum { STEPS = 14 };
    static const int workers[] = { 2, 4 };
    double worst[2] = { 0 };

    (void)state;
    for (int off = 0; off < 2; off++)
        for (size_t p = 0; p < TUTTI_LENGTH(workers); p++) {
            trial t = trial_of(off ? "bagua(algorithm=bytegrad,error_feedback=off)" : "bagua(algorithm=bytegrad)",
                               "sgd(lr=1)", STEPS);
            const int n = workers[p];
            t.gradient = trial_constant;
            trial_run(&t, n);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double mean = 0;
                for (int r = 0; r < n; r++)
                    mean += trial_constant(r, 0, i, 0) / n;
                worst[off] = fmax(worst[off], fabs((double)trial_initial_value(i) - t.x[0][STEPS][i] - STEPS * mean));
            }
            trial_drop(&t);
        }
    assert_true(worst[0] <= 2 * 4.5 / 510 * 1.1); /* gradients and residuals range over 4 and a little */
    assert_true(worst[1] > 2 * worst[0]);
}

static void algorithm_qadam_matches_method_qadam(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        same_at_every_step("bagua(algorithm=qadam,warmup_steps=2,error_feedback=off)", "qadam(warmup_steps=2)",
                           "sgd(lr=0.01)", n);
        same_at_every_step("bagua(algorithm=qadam,warmup_steps=2,fusion=off,mask=none)",
                           "qadam(warmup_steps=2,error_feedback=on,mask=none)", "sgd(lr=0.01)", n);
    }
}

/* In the step after T of warm-up: sqrt(c2 of T + 1) / sqrt(c2 of T) times as long. */
static void the_growing_correction_makes_steps_longer(void **state)
{
    enum { T = 3 };
    trial a = trial_of("bagua(algorithm=qadam,warmup_steps=3,mask=none)", "sgd(lr=0.5)", T + 1),
          b = trial_of("bagua(algorithm=qadam,warmup_steps=3,mask=none,correction=growing)", "sgd(lr=0.5)", T + 1);
    const double longer = sqrt((1 - pow(0.999, T + 1)) / (1 - pow(0.999, T)));
    size_t seen = 0;

    (void)state;
    trial_run(&a, 1);
    trial_run(&b, 1);
    assert_true(trial_same(&a, a.x[0][T - 1], b.x[0][T - 1]));
    for (size_t i = 0; i < trial_size(&a); i++) {
        const double step = (double)a.x[0][T][i] - a.x[0][T - 1][i], grown = (double)b.x[0][T][i] - b.x[0][T - 1][i];
        if (fabs(step) < 0.05)
            continue;
        seen++;
        assert_true(fabs(grown / step - longer) < 1e-4);
    }
    assert_true(seen > 100);
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- models at full precision ---- */

static int peer_as_published(int s, int r, int n)
{
    const int half = n / 2, back = ((r - half - s) % half + half) % half;
    return r < half ? (s + r) % half + half : back;
}

static void pairs_match_the_published_schedule(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += 2) {
        tutti_graph *g;
        assert_int_equal(tutti_graph_open(&g, "shift-one", n, NULL), TUTTI_OK);
        for (int s = 0; s < 12; s++)
            for (int r = 0; r < n; r++) {
                int in[TRIAL_RANKS + 1], out[TRIAL_RANKS + 1], n_in, n_out;
                double w_in[TRIAL_RANKS + 1], w_out[TRIAL_RANKS + 1], self;
                const int peer = peer_as_published(s, r, n);
                tutti_graph_round(g, (uint64_t)s, r, in, w_in, &n_in, out, w_out, &n_out, &self);
                assert_true(n_in == 1 && n_out == 1 && in[0] == peer && out[0] == peer && peer != r);
                assert_true(self == 0.5 && w_in[0] == 0.5 && peer_as_published(s, peer, n) == r);
            }
        tutti_graph_close(g);
    }
}

/* x_(t+1) = mix(x_t) - lr g(x_t), mixed in every `interval`-th step, groups as one. */
static void check_mixing(const char *method, int n, int team, int interval, bool shifts)
{
    enum { STEPS = 9 };
    const double eta = 0.125;
    const int members = n / team;
    trial t = trial_of(method, "sgd(lr=0.125)", STEPS);

    t.count[0] = 50;
    t.count[2] = 7;
    trial_run(&t, n);
    for (size_t i = 0; i < trial_size(&t); i++) {
        double x[TRIAL_RANKS], mean = 0;
        for (int r = 0; r < n; r++)
            x[r] = trial_initial_value(i);
        for (int k = 0; k < STEPS; k++) {
            double of[TRIAL_RANKS] = { 0 }, all = 0, mixed[TRIAL_RANKS];
            for (int r = 0; r < n; r++) {
                of[r / team] += x[r] / team;
                all += x[r] / n;
            }
            for (int r = 0; r < n; r++) {
                const int a = r / team, b = shifts ? peer_as_published(k / interval, a, members) : 0;
                mixed[r] = k % interval != 0 ? x[r] : shifts ? (of[a] + of[b]) / 2 : all;
            }
            for (int r = 0; r < n; r++) {
                x[r] = mixed[r] - eta * (x[r] - (double)((r * 13 + (int)(i % 17)) % 19) / 8);
                if (!(fabs(t.x[r][k][i] - x[r]) < 4e-6))
                    fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", method, n, k, r, i,
                             (double)t.x[r][k][i], x[r]);
            }
        }
        for (int r = 0; r < n; r++)
            mean += x[r] / n;
        assert_true(fabs(t.x[0][STEPS][i] - mean) < 4e-6);
    }
    trial_drop(&t);
}

static void models_follow_the_recursion(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        check_mixing("bagua(algorithm=decentralized)", n, 1, 1, false);
    for (int n = 2; n <= 8; n += 2)
        check_mixing("bagua(algorithm=decentralized,peer_selection=shift_one)", n, 1, 1, true);
    check_mixing("bagua(algorithm=decentralized,communication_interval=3)", 4, 1, 3, false);
    check_mixing("bagua(algorithm=decentralized,peer_selection=shift_one,communication_interval=2)", 6, 1, 2, true);
    check_mixing("bagua(algorithm=decentralized,hierarchical=2)", 4, 2, 1, false);
    check_mixing("bagua(algorithm=decentralized,hierarchical=2,fusion=off,overlap=off)", 8, 2, 1, false);
    check_mixing("bagua(algorithm=decentralized,hierarchical=2,peer_selection=shift_one)", 8, 2, 1, true);
    check_mixing("bagua(algorithm=decentralized,hierarchical=3,peer_selection=shift_one,fusion=off)", 6, 3, 1, true);
}

static void models_have_the_bits_of_d_psgd_on_the_same_graph(void **state)
{
    static const char *const switches[] = { "", ",overlap=off", ",fusion=off" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(switches); k++) {
        char method[100];
        snprintf(method, sizeof method, "bagua(algorithm=decentralized%s)", switches[k]);
        same_at_every_step(method, "d-psgd(graph=complete)", "sgd(lr=0.1,momentum=0.9)", 5);
        snprintf(method, sizeof method, "bagua(algorithm=decentralized,peer_selection=shift_one%s)", switches[k]);
        same_at_every_step(method, "d-psgd(graph=shift-one)", "sgd(lr=0.1,momentum=0.9)", 6);
    }
}

/* ---- models of few bits: a method of the test's, whose models move as it likes ---- */

enum { RING_STEPS = 10 };
typedef struct rung {            /* of a worker, after each step */
    float *x, *of[3];            /* x before the exchange; left's, own and right's copy after it */
} rung;
static rung seen[TRIAL_RANKS][RING_STEPS];
static size_t seen_n;

typedef struct on_a_ring {
    const char *codec;
    int64_t bucket, team, every, still;
    bool overlap;
    tutti_ring *ring;
} on_a_ring;
static const tutti_option ring_options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(on_a_ring, codec), 0, 0, 0, "minmax8", "codec" },
    { "bucket", TUTTI_INT, TUTTI_AT(on_a_ring, bucket), 0, 0, 1e6, NULL, "bytes" },
    { "team", TUTTI_INT, TUTTI_AT(on_a_ring, team), 1, 1, 8, NULL, "team" },
    { "every", TUTTI_INT, TUTTI_AT(on_a_ring, every), 1, 1, 8, NULL, "interval" },
    { "still", TUTTI_INT, TUTTI_AT(on_a_ring, still), 1000, 0, 1000, NULL, "from that step on models stay" },
    { "overlap", TUTTI_BOOL, TUTTI_AT(on_a_ring, overlap), 1, 0, 1, NULL, "overlap" },
    { 0 }
};

static tutti_status ring_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    on_a_ring *s = m->self;
    return tutti_ring_declare(&s->ring, m, plan,
                              &(tutti_ring_options){ s->codec, (size_t)s->bucket, (int)s->team, s->overlap }, err);
}

static float *keep(const float *x)
{
    float *copy = tutti_alloc(seen_n, sizeof *copy);
    return copy == NULL ? NULL : memcpy(copy, x, seen_n * sizeof *copy);
}

static tutti_status ring_step(tutti_method *m, tutti_error *err)
{
    on_a_ring *s = m->self;
    rung *one = &seen[m->rank][m->step];

    for (size_t i = 0; i < m->layout->used && (int64_t)m->step < s->still; i++)
        m->x[i] += (float)tutti_normal((tutti_rng){ 3, (uint64_t)m->rank, m->step }, i);
    one->x = keep(m->x);
    if (m->step % (uint64_t)s->every == 0)
        TUTTI_TRY(tutti_ring_exchange(s->ring, m->step / (uint64_t)s->every, m->x, err));
    for (int side = -1; side <= 1; side++)
        one->of[side + 1] = keep(tutti_ring_of(s->ring, side));
    return TUTTI_OK;
}

static const tutti_method_ops ring_ops = {
    .name = "on-a-ring", .options = ring_options, .self_bytes = sizeof(on_a_ring), .declare = ring_declare,
    .step = ring_step, .traits = TUTTI_OWNS_UPDATE,
};
static const tutti_method_ops *const ring_methods[] = { &ring_ops, NULL };

static trial run_on_a_ring(const char *method, int n)
{
    trial t = trial_of(method, "", RING_STEPS);

    t.methods = ring_methods;
    seen_n = trial_size(&t);
    trial_run(&t, n);
    return t;
}

static void forget(trial *t)
{
    for (int r = 0; r < t->workers; r++)
        for (int s = 0; s < RING_STEPS; s++) {
            tutti_free(seen[r][s].x);
            for (int side = 0; side < 3; side++)
                tutti_free(seen[r][s].of[side]);
        }
    trial_drop(t);
}

static void neighbour_copies_match_the_owners_model_bit_for_bit(void **state)
{
    static const struct { const char *method; int n, team, every; } cases[] = {
        { "on-a-ring", 2, 1, 1 },
        { "on-a-ring(bucket=4000)", 3, 1, 1 },
        { "on-a-ring(overlap=off,bucket=1000000)", 5, 1, 1 },
        { "on-a-ring(every=3)", 4, 1, 3 },
        { "on-a-ring(team=2)", 6, 2, 1 },
        { "on-a-ring(codec=fp32)", 4, 1, 1 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int team = cases[c].team, n = cases[c].n;
        trial t = run_on_a_ring(cases[c].method, n);
        for (int s = 0; s < RING_STEPS; s++)
            for (int r = 0; r < n; r += team) {
                const rung *one = &seen[r][s], *left = &seen[(r + n - team) % n][s], *right = &seen[(r + team) % n][s];
                assert_true(trial_same(&t, one->of[0], left->of[1]));
                assert_true(trial_same(&t, one->of[2], right->of[1]));
                /* and each model equals the neighbours' copies of it; so does that of the whole
                   group */
                for (int j = 0; j < team && s % cases[c].every == 0; j++)
                    assert_true(trial_same(&t, t.x[r + j][s], one->of[1]));
                if (s % cases[c].every != 0)
                    assert_true(trial_same(&t, one->of[1], seen[r][s - 1].of[1]));
            }
        forget(&t);
    }
}

/* w moves by t except for half a step of the codes over the bucket, which here is a tensor. */
static void ring_step_matches_the_recursion(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        trial t = run_on_a_ring("on-a-ring", n);
        for (int r = 0; r < n; r++)
            for (int s = 1; s < RING_STEPS; s++) {
                const rung *before = &seen[r][s - 1], *now = &seen[r][s];
                size_t first = 0;
                for (int k = 0; k < TRIAL_TENSORS; first += t.count[k++]) {
                    double least = INFINITY, most = -INFINITY, worst = 0;
                    for (size_t i = first; i < first + t.count[k]; i++) {
                        const double l = before->of[0][i], w = before->of[1][i], right = before->of[2][i],
                                     moved = now->x[i] + l / 3 + right / 3 - 5.0 / 3 * w;
                        least = fmin(least, moved);
                        most = fmax(most, moved);
                        worst = fmax(worst, fabs(now->of[1][i] - (w + moved)));
                    }
                    assert_true(worst <= (most - least) / 510 + 2e-6);
                    assert_true(worst > 0); /* it is no full-precision ring */
                }
            }
        forget(&t);
    }
}

static double spread(const trial *t, int s)
{
    double sum = 0;

    for (size_t i = 0; i < trial_size(t); i++) {
        double mean = 0;
        for (int r = 0; r < t->workers; r++)
            mean += t->x[r][s][i] / t->workers;
        for (int r = 0; r < t->workers; r++)
            sum += pow(t->x[r][s][i] - mean, 2);
    }
    return sqrt(sum);
}

/* When the codec loses nothing it is d-psgd's ring; and models that no longer move agree in the
   end. */
static void the_ring_mixes_as_d_psgd_does_and_contracts(void **state)
{
    (void)state;
    for (int n = 3; n <= 5; n++) {
        trial a = run_on_a_ring("on-a-ring(still=1)", n);
        for (int s = 1; s < RING_STEPS; s++)
            assert_true(spread(&a, s) < 0.95 * spread(&a, s - 1) || spread(&a, s) < 0.05 * spread(&a, 0));
        forget(&a);
    }
    for (int n = 3; n <= 5; n++) {
        trial a = run_on_a_ring("on-a-ring(codec=fp32)", n);
        for (int r = 0; r < n; r++)
            for (int s = 1; s < RING_STEPS; s++)
                for (size_t i = 0; i < trial_size(&a); i++) {
                    const double left = a.x[(r + n - 1) % n][s - 1][i], right = a.x[(r + 1) % n][s - 1][i],
                                 own = a.x[r][s - 1][i], moved = seen[r][s].x[i] - own;
                    assert_true(fabs(a.x[r][s][i] - ((left + own + right) / 3 + moved)) < 1e-5);
                }
        forget(&a);
    }
}

static void low_precision_ring_approaches_the_optimum(void **state)
{
    static const char *const switches[] = { ",fusion=off", ",overlap=off", ",bucket_mb=0.004",
                                            ",communication_interval=2", ",hierarchical=2" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(switches); k++) {
        char method[100];
        trial t;
        snprintf(method, sizeof method, "bagua(algorithm=low_precision_decentralized%s)", switches[k]);
        t = trial_of(method, "sgd(lr=0.125)", 16);
        trial_run(&t, 4);
        for (size_t i = 0; i < trial_size(&t); i++) { /* towards the mean of the workers' optima */
            double best = 0;
            for (int r = 0; r < 4; r++)
                best += (double)((r * 13 + (int)(i % 17)) % 19) / 8 / 4;
            assert_true(fabs(t.x[0][16][i] - best) < 0.2 * fabs((double)trial_initial_value(i) - best) + 0.15);
        }
        trial_drop(&t);
    }
}

/* ---- what is sent: a step's is the difference of runs of 5 and of 3 steps, halved ---- */

typedef struct sent { double bytes[TRIAL_RANKS][TRIAL_RANKS], messages[TRIAL_RANKS][TRIAL_RANKS]; } sent;

static sent sent_of(const char *method, const char *optimizer, int n)
{
    sent s = { 0 };
    trial a = trial_of(method, optimizer, 3), b = trial_of(method, optimizer, 5);

    trial_run(&a, n);
    trial_run(&b, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            s.bytes[i][j] = ((double)b.bytes[i][j] - (double)a.bytes[i][j]) / 2;
            s.messages[i][j] = ((double)b.messages[i][j] - (double)a.messages[i][j]) / 2;
        }
    trial_drop(&a);
    trial_drop(&b);
    return s;
}

/* Up to 1024 numbers go from each to each; more are summed by halves, cut at a multiple of 64. So
   to sum a whole model the leader of two sends the other's half there, and gets all. */
enum { ELEMENTS = 1533, TENSORS = 3, HALF = ELEMENTS - 768 };

static void leaders_alone_send_between_machines(void **state)
{
    static const struct { const char *method; double led; } cases[] = { /* elements from leader to led */
        { "bagua(hierarchical=2)",                                                ELEMENTS + HALF },
        { "bagua(hierarchical=2,fusion=off)",                                     ELEMENTS },
        { "bagua(algorithm=decentralized,hierarchical=2)",                        ELEMENTS + HALF },
        { "bagua(algorithm=decentralized,hierarchical=2,peer_selection=shift_one)", ELEMENTS + HALF },
        { "bagua(algorithm=decentralized,hierarchical=2,fusion=off)",             ELEMENTS },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) { /* machines of 0, 1 and of 2, 3 */
        const sent s = sent_of(cases[k].method, "sgd(lr=0.1)", 4);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const bool inside = i != j && i / 2 == j / 2, between = i != j && i % 2 == 0 && j % 2 == 0;
                const double due = inside ? (i % 2 == 0 ? cases[k].led : ELEMENTS) : between ? ELEMENTS : 0;
                if (s.bytes[i][j] != 4 * due)
                    fail_msg("%s: %d sends %d %g bytes a step, not %g", cases[k].method, i, j, s.bytes[i][j], 4 * due);
            }
    }
}

/* What goes through the codec between machines: a byte an element and each tensor's extremes. */
static void leaders_exchange_encoded_gradients(void **state)
{
    const sent s = sent_of("bagua(algorithm=bytegrad,hierarchical=2)", "sgd(lr=0.1)", 4),
               flat = sent_of("bagua(algorithm=bytegrad)", "sgd(lr=0.1)", 2),
               momentum = sent_of("bagua(algorithm=qadam,warmup_steps=1)", "sgd(lr=0.1)", 2);

    (void)state;
    assert_true(s.bytes[0][2] == ELEMENTS + 8 * TENSORS && s.bytes[2][0] == s.bytes[0][2] && s.messages[0][2] == 1);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            assert_true(s.bytes[i][j] == 0 || i / 2 == j / 2 || i % 2 + j % 2 == 0);
    assert_true(flat.bytes[0][1] == ELEMENTS + 8 * TENSORS && flat.messages[0][1] == 1);
    assert_true(momentum.bytes[0][1] == ELEMENTS + 8 * TENSORS && momentum.messages[0][1] == 1);
}

/* Fusion is a matter of messages: two halves of a bucket, or each tensor. */
static void fusion_reduces_messages_but_not_bytes(void **state)
{
    const sent fused = sent_of("bagua", "sgd(lr=0.1)", 2), each = sent_of("bagua(fusion=off)", "sgd(lr=0.1)", 2),
               models = sent_of("bagua(algorithm=decentralized,peer_selection=shift_one)", "sgd(lr=0.1)", 2),
               each_model =
                   sent_of("bagua(algorithm=decentralized,peer_selection=shift_one,fusion=off)", "sgd(lr=0.1)", 2);

    (void)state;
    assert_true(fused.messages[0][1] == 2 && each.messages[0][1] == TENSORS);
    assert_true(each.bytes[0][1] == fused.bytes[0][1] && each.bytes[0][1] == 4.0 * ELEMENTS);
    assert_true(models.messages[0][1] == 1 && each_model.messages[0][1] == TENSORS);
    assert_true(models.bytes[0][1] == 4.0 * ELEMENTS && each_model.bytes[0][1] == 4.0 * ELEMENTS);
}

static void number_of_buckets_is_reported(void **state)
{
    static const struct { const char *method; double buckets; } cases[] = {
        { "bagua", 1 },
        { "bagua(fusion=off)", TENSORS },
        { "bagua(bucket_mb=0.0038)", 2 }, /* 3984 bytes: 1000 elements; 33 and 500 */
        { "bagua(bucket_mb=65536)", 1 },
        { "bagua(bucket_mb=0.00000095367431640625)", TENSORS },
        { "bagua(algorithm=decentralized,fusion=off)", TENSORS },
        { "bagua(algorithm=decentralized,bucket_mb=0.0038)", 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, "sgd(lr=0.1)", 2);
        trial_run(&t, 2);
        if (trial_metric(&t, "buckets", -1) != cases[k].buckets)
            fail_msg("%s has %g buckets", cases[k].method, trial_metric(&t, "buckets", -1));
        trial_drop(&t);
    }
}

/* In two rounds of shift_one over four workers each meets both opposite peers, and no other
   worker. */
static void pairs_send_to_opposite_peers_only(void **state)
{
    const sent s = sent_of("bagua(algorithm=decentralized,peer_selection=shift_one)", "sgd(lr=0.1)", 4);

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const bool opposite = i / 2 != j / 2;
            assert_true(s.bytes[i][j] == (opposite ? 2.0 * ELEMENTS : 0));
            assert_true(s.messages[i][j] == (opposite ? 0.5 : 0));
        }
}

/* A byte an element and the two extremes of each bucket, to both neighbours. */
static void a_ring_sends_a_byte_an_element_to_both_sides(void **state)
{
    const sent fused = sent_of("bagua(algorithm=low_precision_decentralized)", "sgd(lr=0.1)", 5),
               each = sent_of("bagua(algorithm=low_precision_decentralized,fusion=off)", "sgd(lr=0.1)", 5),
               two = sent_of("bagua(algorithm=low_precision_decentralized)", "sgd(lr=0.1)", 2),
               teams = sent_of("bagua(algorithm=low_precision_decentralized,hierarchical=2)", "sgd(lr=0.1)", 6);

    (void)state;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            const bool beside = (i + 1) % 5 == j || (j + 1) % 5 == i;
            assert_true(fused.bytes[i][j] == (beside ? ELEMENTS + 8 : 0) && fused.messages[i][j] == beside);
            assert_true(each.bytes[i][j] == (beside ? ELEMENTS + 8 * TENSORS : 0));
            assert_true(each.messages[i][j] == (beside ? TENSORS : 0));
        }
    assert_true(two.bytes[0][1] == 2 * (ELEMENTS + 8) && two.messages[0][1] == 2);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            assert_true(teams.bytes[i][j] == (i == j              ? 0
                                              : i / 2 == j / 2    ? 4.0 * (ELEMENTS + (i % 2 == 0 ? HALF : 0))
                                              : i % 2 + j % 2 > 0 ? 0
                                                                  : ELEMENTS + 8));
}

static void steps_within_the_communication_interval_send_nothing(void **state)
{
    trial one = trial_of("bagua(algorithm=decentralized,communication_interval=7)", "sgd(lr=0.1)", 7),
          two = trial_of("bagua(algorithm=decentralized,communication_interval=7)", "sgd(lr=0.1)", 8),
          never = trial_of("bagua(algorithm=low_precision_decentralized,communication_interval=1000000000)",
                           "sgd(lr=0.1)", 8);

    (void)state;
    trial_run(&one, 2);
    trial_run(&two, 2);
    trial_run(&never, 2);
    assert_int_equal(two.bytes[0][1] - one.bytes[0][1], 4 * ELEMENTS);
    assert_int_equal(one.bytes[0][1] - one.end_bytes[0], 4 * ELEMENTS);
    assert_int_equal(never.bytes[0][1] - never.end_bytes[0], 2 * (ELEMENTS + 8));
    trial_drop(&one);
    trial_drop(&two);
    trial_drop(&never);
}

/* ---- async ---- */

static int pause_ms;

static void rest_for(int ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

/* Worker 1 is slow. */
static float slow_constant(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0)
        rest_for(rank == 1 ? 4 : 1);
    return trial_constant(rank, step, i, x);
}

/* However often models are averaged, and whichever worker is ahead: the mean of all moves by the
   mean of all gradients, and the run ends. On a busy machine one run may end before its first
   averaging. */
static void averagings_keep_the_mean_and_the_run_ends(void **state)
{
    static const char *const methods[] = { "bagua(algorithm=async,sync_interval_ms=0)",
                                           "bagua(algorithm=async,sync_interval_ms=2)",
                                           "bagua(algorithm=async)",
                                           "bagua(algorithm=async,sync_interval_ms=0,warmup_steps=4)" };
    double rounds = 0;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int show = 0; show < 2; show++) {
            trial t = trial_of(methods[k], "sgd(lr=0.125)", 10);
            t.gradient = slow_constant;
            t.show = show == 1;
            trial_run(&t, 3);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double mean = 0;
                for (int r = 0; r < 3; r++)
                    mean += trial_constant(r, 0, i, 0) / 3;
                assert_true(fabs(t.x[0][10][i] - (trial_initial_value(i) - 1.25 * mean)) < 1e-5);
            }
            assert_true(t.done[0] == 10 && t.done[1] == 10);
            rounds += trial_metric(&t, "rounds", -1);
            trial_drop(&t);
        }
    assert_true(rounds >= 1);
}

/* Gradients in the first four steps only, and then idle time. */
static float then_nothing(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0 && step >= 4)
        rest_for(pause_ms);
    return step < 4 ? trial_quadratic(rank, step, i, x) : 0;
}

/* Once no worker steps any more, two averagings bring all models to the same bits. The machine
   may be busy: the time that they are given doubles. */
static void two_averaging_rounds_reach_consensus(void **state)
{
    bool same = false;

    (void)state;
    for (pause_ms = 2; pause_ms <= 128 && !same; pause_ms *= 2) {
        trial t = trial_of("bagua(algorithm=async,sync_interval_ms=0)", "sgd(lr=0.125)", 8);
        t.gradient = then_nothing;
        trial_run(&t, 3);
        same = trial_same(&t, t.x[0][7], t.x[1][7]) && trial_same(&t, t.x[0][7], t.x[2][7]);
        assert_false(trial_same(&t, t.x[0][3], t.x[1][3]) && trial_same(&t, t.x[0][4], t.x[1][4]));
        trial_drop(&t);
    }
    assert_true(same);
}

/* In the warm-up it is ddp; nothing is averaged before its end. */
static void a_warm_up_is_ddp(void **state)
{
    trial a = trial_of("bagua(algorithm=async,sync_interval_ms=0,warmup_steps=6)", "sgd(lr=0.1,momentum=0.9)", 6),
          b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 6);

    (void)state;
    trial_run(&a, 4);
    trial_run(&b, 4);
    assert_true(trial_same(&a, a.x[0][6], b.x[0][6]));
    assert_true(trial_metric(&a, "rounds", -1) == 0);
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- the tuner ---- */

/* Buckets of other sizes, and leaders alternating with all workers: the bits are ddp's whatever
   is tried. */
static void a_tuned_run_has_the_bits_of_ddp(void **state)
{
    static const char *const methods[] = {
        "bagua(autotune=on,sample_steps=1,bucket_mb=0.002)",
        "bagua(autotune=on,sample_steps=1,bucket_mb=0.002,hierarchical=2)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 16),
              b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 16);
        trial_run(&a, 4);
        trial_run(&b, 4);
        for (int s = 0; s <= 16; s++)
            assert_true(trial_same(&a, a.x[1][s], b.x[1][s]));
        assert_true(fabs(trial_metric(&a, "tune_bucket_mb", -1) - 0.002) > 1e-5); /* it is trying others */
        assert_true(isfinite(trial_metric(&a, "tune_hierarchical", -1)) == (k == 1));
        trial_drop(&a);
        trial_drop(&b);
    }
    same_at_every_step("bagua(autotune=on)", "single", "sgd(lr=0.1)", 1); /* no peer to exchange with */
}

/* ---- what is refused ---- */

static void conflicting_options_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *says; int n; } wrong[] = {
        { "bagua(algorithm=decentralized,peer_selection=shift_one)", "", "makes pairs of workers, and there are 3", 3 },
        { "bagua(algorithm=decentralized,peer_selection=shift_one,hierarchical=2)", "",
          "makes pairs of machines (hierarchical), and there are 3", 6 },
        { "bagua(algorithm=decentralized,peer_selection=ring)", "", "'d-psgd(graph=ring)' is a ring", 4 },
        { "bagua(algorithm=low_precision_decentralized,peer_selection=all)", "", "follows two fixed neighbours", 4 },
        { "bagua(algorithm=low_precision_decentralized,peer_selection=shift_one)", "", "peer_selection=shift_one", 4 },
        { "bagua(algorithm=async,hierarchical=on)", "", "averages among all workers", 4 },
        { "bagua(hierarchical=on)", "", "all 4 workers are one machine", 4 },
        { "bagua(hierarchical=4)", "", "all 4 workers are one machine", 4 },
        { "bagua(hierarchical=3)", "", "does not divide the 4 workers", 4 },
        { "bagua(hierarchical=maybe)", "", "it must be auto, on, off, or how many", 4 },
        { "bagua(hierarchical=7)", "",
          "'7'; it must be auto, on, off, or how many workers of consecutive ranks count as one, from 1 to 4", 4 },
        { "bagua(hierarchical=2x)", "", "'2x'; it must be auto, on, off, or how many", 4 },
        { "bagua(hierarchical=0)", "", "'0'; it must be auto, on, off, or how many", 4 },
        { "bagua(algorithm=qadam,warmup_steps=0)", "sgd(lr=0.01)", "which it must have seen", 2 },
        { "bagua(algorithm=async,warmup_steps=0.5)", "", "takes a whole number of steps", 2 },
        { "bagua(algorithm=qadam)", "sgd(lr=0.01,momentum=0.9)", "takes the learning rate of a plain one", 2 },
        { "bagua(sync_interval_ms=3)", "", "it needs algorithm=async", 2 },
        { "bagua(peer_selection=all)", "", "it needs algorithm=decentralized", 2 },
        { "bagua(algorithm=decentral)", "", "low_precision_decentralized", 2 },
        { "bagua(fusion=off,bucket_mb=3)", "", "it needs fusion=on", 2 },
        { "bagua(algorithm=bytegrad,chunk=3)", "", "at least 256", 2 },
        { "bagua(algorithm=bytegrad,autotune=on)", "", "it needs algorithm=gradient_allreduce", 2 },
        { "bagua(fusion=off,autotune=on)", "", "it needs fusion=on", 2 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++) {
        trial t = trial_of(wrong[i].method, wrong[i].optimizer, 1);
        tutti_error err;
        if (trial_try(&t, wrong[i].n, &err) != TUTTI_ERR_USAGE || strstr(err.text, wrong[i].says) == NULL)
            fail_msg("%s: %s", wrong[i].method, err.text);
        trial_drop(&t);
    }
}

static void conflicting_run_options_are_rejected(void **state)
{
    static const struct { const char *method, *codec, *teams, *collective, *says; double clip; } wrong[] = {
        { "bagua(algorithm=bytegrad)", "fp16", "none", "auto", "brings its own", 0 },
        { "bagua(algorithm=decentralized)", "fp16", "none", "auto", "has an exchange of its own", 0 },
        { "bagua(algorithm=bytegrad,hierarchical=2)", "", "2", "auto", "sets it itself (hierarchical)", 0 },
        { "bagua(hierarchical=2)", "", "none", "halving", "the first workers of teams sum", 0 },
        { "bagua(algorithm=qadam)", "", "none", "auto", "clip-norm is 1", 1 },
        { "bagua(autotune=on)", "fp16", "none", "auto", "partitions gradients again during training", 0 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++) {
        trial t = trial_of(wrong[i].method, "sgd(lr=0.1)", 1);
        tutti_error err;
        t.options.codec = wrong[i].codec;
        t.options.codec_hierarchy = wrong[i].teams;
        t.options.collective = wrong[i].collective;
        t.options.clip_norm = wrong[i].clip;
        if (trial_try(&t, 4, &err) != TUTTI_ERR_USAGE || strstr(err.text, wrong[i].says) == NULL)
            fail_msg("%s: %s", wrong[i].method, err.text);
        trial_drop(&t);
    }
}

/* Clipping, a codec and the client's optimiser depend on the algorithm, not on the method. */
static void traits_follow_from_the_algorithm(void **state)
{
    static const struct { const char *spec; unsigned traits; } right[] = {
        { "bagua", TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS },
        { "bagua(algorithm=bytegrad)", TUTTI_REPLICAS_EQUAL },
        { "bagua(algorithm=qadam)", TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE },
        { "bagua(algorithm=decentralized)", 0 },
        { "bagua(algorithm=low_precision_decentralized)", 0 },
        { "bagua(algorithm=async)", TUTTI_FAULT_TOLERANT | TUTTI_UNSYNCHRONIZED_STEPS },
        { "bagua(algorithm=async,warmup_steps=1)", TUTTI_UNSYNCHRONIZED_STEPS },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(right); i++) {
        unsigned traits;
        assert_true(tutti_method_traits(right[i].spec, &traits));
        assert_int_equal(traits, right[i].traits);
    }
    for (int hierarchical = 0; hierarchical < 2; hierarchical++) {
        trial a = trial_of(hierarchical ? "bagua(hierarchical=2)" : "bagua", "sgd(lr=0.1)", 6),
              b = trial_of("ddp", "sgd(lr=0.1)", 6);
        a.options.codec = b.options.codec = "fp16";
        a.options.clip_norm = b.options.clip_norm = 1;
        b.options.codec_hierarchy = hierarchical ? "2" : "none";
        trial_run(&a, 4);
        trial_run(&b, 4);
        assert_true(trial_same(&a, a.x[1][6], b.x[1][6]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    static const char *const all[] = { "bagua", "bagua(algorithm=bytegrad)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(all); k++) {
        trial t = trial_of(all[k], "sgd(lr=0.1)", 6);
        trial_ends_when_not_finite(&t);
        trial_run(&t, 4);
        for (int r = 0; r < 4; r++)
            assert_int_equal(t.figures[r].skipped, 1);
        trial_drop(&t);
    }
    trial_not_finite("bagua(algorithm=decentralized,peer_selection=shift_one)", "sgd(lr=0.1)");
    trial_not_finite("bagua(algorithm=low_precision_decentralized)", "sgd(lr=0.1)");
    trial_not_finite("bagua(algorithm=async,sync_interval_ms=0)", "sgd(lr=0.1)");
}

static float huge_at_worker_one(int rank, uint64_t step, size_t i, float x)
{
    (void)step, (void)x;
    return rank == 1 && i == 1010 ? 3e38f : 0.125f;
}

/* What goes round the ring is added to copies of neighbours: an infinite value may not travel. */
static void infinite_value_is_not_sent_to_the_neighbours_on_the_ring(void **state)
{
    trial t = trial_of("bagua(algorithm=low_precision_decentralized)", "sgd(lr=2)", 2);
    tutti_error err;

    (void)state;
    t.gradient = huge_at_worker_one;
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "worker 1: b has moved by -inf at element 10 when it is to be sent in step 0; "
                                     "lower the learning rate or clip the gradient (clip-norm)"));
    trial_drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_single_for_every_algorithm),
        cmocka_unit_test(exact_sums_are_ddp_to_the_bit_however_they_are_made),
        cmocka_unit_test(teams_of_three_match_ddp_within_rounding),
        cmocka_unit_test(bytegrad_is_ddp_through_the_codec),
        cmocka_unit_test(error_feedback_bounds_the_accumulated_error),
        cmocka_unit_test(algorithm_qadam_matches_method_qadam),
        cmocka_unit_test(the_growing_correction_makes_steps_longer),
        cmocka_unit_test(pairs_match_the_published_schedule),
        cmocka_unit_test(models_follow_the_recursion),
        cmocka_unit_test(models_have_the_bits_of_d_psgd_on_the_same_graph),
        cmocka_unit_test(neighbour_copies_match_the_owners_model_bit_for_bit),
        cmocka_unit_test(ring_step_matches_the_recursion),
        cmocka_unit_test(the_ring_mixes_as_d_psgd_does_and_contracts),
        cmocka_unit_test(low_precision_ring_approaches_the_optimum),
        cmocka_unit_test(leaders_alone_send_between_machines),
        cmocka_unit_test(leaders_exchange_encoded_gradients),
        cmocka_unit_test(fusion_reduces_messages_but_not_bytes),
        cmocka_unit_test(number_of_buckets_is_reported),
        cmocka_unit_test(pairs_send_to_opposite_peers_only),
        cmocka_unit_test(a_ring_sends_a_byte_an_element_to_both_sides),
        cmocka_unit_test(steps_within_the_communication_interval_send_nothing),
        cmocka_unit_test(averagings_keep_the_mean_and_the_run_ends),
        cmocka_unit_test(two_averaging_rounds_reach_consensus),
        cmocka_unit_test(a_warm_up_is_ddp),
        cmocka_unit_test(a_tuned_run_has_the_bits_of_ddp),
        cmocka_unit_test(conflicting_options_are_rejected),
        cmocka_unit_test(conflicting_run_options_are_rejected),
        cmocka_unit_test(traits_follow_from_the_algorithm),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
        cmocka_unit_test(infinite_value_is_not_sent_to_the_neighbours_on_the_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
