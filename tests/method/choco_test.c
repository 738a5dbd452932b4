/* Goal: neighbours' averages through a codec (src/gossip/mixer_codec.c), under d-psgd:
   CHOCO's recursion itself, to the bit where it is a formula; the mean; that models
   agree in the end; the bytes of every pair; its rate and its memory; what is refused.
   Resuming is in tests/engine/state_test.c, losses in goes_on_test.c, other transports
   in tests/cli/transports_test.py. */
#include "engine/engine_internal.h"
#include "state/plan.h"
#include "trial.h"
#include "tutti/method/gossip.h"

static trial of(const char *method, const char *codec, int steps)
{
    trial t = trial_of(method, "sgd(lr=0.25)", steps);
    t.options.codec = codec;
    return t;
}

static float at_first(int rank, uint64_t step, size_t i, float x) /* apart after one step, and nothing else */
{
    return step == 0 ? trial_constant(rank, step, i, x) : 0;
}

/* The k greatest magnitudes of each tensor, of equal ones the lowest. */
static void keep(const trial *t, float *q, double ratio)
{
    size_t first = 0;

    for (int k = 0; k < TRIAL_TENSORS; first += t->count[k], k++) {
        const size_t left = (size_t)ceil(ratio * (double)t->count[k]);
        bool kept[1000] = { false };
        for (size_t m = 0; m < left; m++) {
            size_t best = t->count[k];
            for (size_t i = 0; i < t->count[k]; i++)
                if (!kept[i] && (best == t->count[k] || fabsf(q[first + i]) > fabsf(q[first + best])))
                    best = i;
            kept[best] = true;
        }
        for (size_t i = 0; i < t->count[k]; i++)
            q[first + i] = kept[i] ? q[first + i] : 0;
    }
}

/* order B (awc): x <- x + gamma (W - I) p - eta g(x), p <- p + Q(x - p) before it; order A (atc):
   the gradient first. In the same float32 arithmetic: to the bit. */
static void expect(trial *t, const char *spec, bool atc, double gamma, double ratio)
{
    enum { D = 1533 };
    static float x[TRIAL_RANKS][D], p[TRIAL_RANKS][D], q[D];
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;
    tutti_graph *g;

    assert_int_equal(trial_size(t), D);
    assert_int_equal(tutti_graph_open(&g, spec, t->workers, NULL), TUTTI_OK);
    for (int r = 0; r < t->workers; r++)
        for (size_t i = 0; i < D; i++)
            x[r][i] = p[r][i] = trial_initial_value(i);
    for (int s = 0; s < t->steps; s++) {
        for (int r = 0; r < t->workers; r++) {
            for (size_t i = 0; i < D; i++) {
                const float gradient = t->gradient(r, (uint64_t)s, i, x[r][i]);
                q[i] = 0.25f * gradient;
                if (atc)
                    x[r][i] -= q[i];
            }
            for (size_t i = 0; i < D; i++)
                q[i] = x[r][i] - p[r][i];
            keep(t, q, ratio);
            for (size_t i = 0; i < D; i++)
                p[r][i] += q[i];
        }
        for (int r = 0; r < t->workers; r++) {
            tutti_graph_round(g, (uint64_t)s, r, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (size_t i = 0; i < D; i++) {
                const float gradient = t->gradient(r, (uint64_t)s, i, x[r][i]);
                for (int a = 0; a < n_in; a++)
                    x[r][i] += (float)(gamma * w_in[a]) * (p[in[a]][i] - p[r][i]);
                if (!atc)
                    x[r][i] -= 0.25f * gradient;
            }
        }
        for (int r = 0; r < t->workers; r++)
            if (!trial_same(t, x[r], t->x[r][s]))
                fail_msg("%s on %d, %s: worker %d after step %d is %g apart", t->method, t->workers, t->options.codec,
                         r, s, trial_apart(t, x[r], t->x[r][s]));
    }
    tutti_graph_close(g);
}

static void models_match_the_recursion_bit_for_bit(void **state)
{
    static const struct { const char *graph, *codec; double ratio, gamma; } cases[] = {
        { "ring",          "topk(ratio=0.25)",             0.25, 0.25 },
        { "ring",          "topk(ratio=0.02)",             0.02, 0.0625 },
        { "complete",      "topk(ratio=0.1)",              0.1,  0.5 },
        { "directed-ring", "fp32",                         1,    1 },
        { "exponential",   "large(topk(ratio=0.5),min=1)", 0.5,  0.5 },
        { "star",          "fp32",                         1,    0.75 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int n = 2; n <= 7; n += k == 0 ? 1 : 3)
            for (int order = 0; order < 2; order++) {
                char method[120];
                trial t;
                snprintf(method, sizeof method, "d-psgd(graph=%s,gamma=%g,order=%s)", cases[k].graph, cases[k].gamma,
                         order ? "atc" : "awc");
                t = of(method, cases[k].codec, 9);
                trial_run(&t, n);
                expect(&t, cases[k].graph, order, cases[k].gamma, cases[k].ratio);
                trial_drop(&t);
            }
}

/* Nothing lost and gamma 1: d-psgd. */
static void lossless_codec_matches_d_psgd(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++)
        for (int n = 1; n <= 8; n++) {
            trial a = of(order ? "d-psgd(order=atc)" : "d-psgd", "fp32", 8),
                  b = of(order ? "d-psgd(order=atc)" : "d-psgd", NULL, 8);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++)
                for (int s = 0; s <= 8; s++)
                    assert_true(n == 1 ? trial_same(&a, a.x[r][s], b.x[r][s])
                                       : trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-6);
            trial_drop(&a);
            trial_drop(&b);
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

static const char *const contractive[] = {
    "fp32", "fp16", "bf16", "trunc16", "int8", "sign", "topk(ratio=0.2)", "topk(ratio=0.2,warmup=2)",
    "randomk(ratio=0.3)", "randomk(ratio=0.3,block=8)", "large(sign,min=100)", "large(topk(ratio=0.3),small=fp16)",
};

/* Invariant 2, and that the default gamma averages: after the one step that separates models they
   come together, and their mean stays. */
static void lossy_averaging_preserves_the_mean_and_contracts_the_models(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(contractive); k++) {
        trial t = of("d-psgd(order=atc)", contractive[k], TRIAL_STEPS), plain = of("d-psgd(order=atc)", NULL, 1);
        t.gradient = plain.gradient = at_first;
        trial_run(&t, 6);
        trial_run(&plain, 6);
        for (size_t i = 0; i < trial_size(&t); i += 3) {
            double first = 0;
            for (int r = 0; r < 6; r++)
                first += plain.x[r][0][i] / 6;
            for (int s = 0; s < TRIAL_STEPS; s += 5) {
                double mean = 0;
                for (int r = 0; r < 6; r++)
                    mean += t.x[r][s][i] / 6;
                assert_true(fabs(mean - first) < 2e-6);
            }
        }
        if (!(spread(&t, TRIAL_STEPS - 1) < 0.7 * spread(&t, 1)))
            fail_msg("%s: the models were %g apart and are %g", contractive[k], spread(&t, 1),
                     spread(&t, TRIAL_STEPS - 1));
        trial_drop(&t);
        trial_drop(&plain);
    }
}

/* Invariant 3 for good: a copy that differed by a bit would stay so, and models with
   it. Workers with equal gradients stay equal to the bit, and are `single`'s:
   differences of equal copies are 0. */
static void workers_with_equal_gradients_keep_equal_models(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(contractive); k++) {
        trial a = of("d-psgd(graph=exponential)", contractive[k], 10), b = of("single", NULL, 10);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, 5);
        trial_run(&b, 1);
        for (int r = 0; r < 5; r++)
            for (int s = 0; s < 10; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* From 256 KiB on a thread of the mixer's makes the rounds, while gradients are computed; a first
   tensor of more than 4 MiB makes two messages. */
static void overlap_with_computation_gives_the_same_bits(void **state)
{
    static const size_t counts[2][TRIAL_TENSORS] = { { 60000, 40000, 500 }, { (1 << 20) + 100, 333, 1000 } };

    (void)state;
    for (int k = 0; k < 2; k++) {
        trial t[2] = { of("d-psgd(overlap=on)", "topk(ratio=0.01,warmup=1)", 4),
                       of("d-psgd(overlap=off)", "topk(ratio=0.01,warmup=1)", 4) };
        for (int i = 0; i < 2; i++) {
            memcpy(t[i].count, counts[k], sizeof t[i].count);
            t[i].options.lane = 1;
            t[i].options.data_samples = 12; /* epochs of two steps: the codec's warm-up ends in the middle */
            trial_run(&t[i], 3);
        }
        for (int r = 0; r < 3; r++)
            for (int s = 0; s <= 4; s++)
                assert_true(trial_same(&t[0], t[0].x[r][s], t[1].x[r][s]));
        assert_true(t[0].messages[0][1] >= (k == 0 ? 4u : 8u));
        for (int i = 0; i < 2; i++)
            trial_drop(&t[i]);
    }
}

/* Invariant 9. Three tensors of 1000, 33 and 500 elements in one message. */
static void each_worker_sends_one_encoded_model_per_round(void **state)
{
    static const struct { const char *codec; uint64_t bytes; } cases[] = {
        { "fp32", 4 * 1533 }, { "fp16", 2 * 1533 }, { "sign", 3 * 4 + 125 + 5 + 63 },
        { "topk(ratio=0.1)", 8 * (100 + 4 + 50) }, { "randomk(ratio=0.1)", 4 * (100 + 4 + 50) },
        { "large(sign,min=100)", 2 * 4 + 125 + 63 + 4 * 33 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = of("d-psgd(graph=directed-ring)", cases[k].codec, 7);
        trial_run(&t, 4);
        for (int r = 0; r < 4; r++) {
            const int to = t.bytes[r][(r + 1) % 4] > t.bytes[r][(r + 3) % 4] ? (r + 1) % 4 : (r + 3) % 4;
            uint64_t all = 0;
            for (int other = 0; other < 4; other++)
                all += t.bytes[r][other];
            if (all - t.end_bytes[r] != 7 * cases[k].bytes)
                fail_msg("%s: worker %d sent %llu bytes in 7 rounds instead of 7 x %llu", cases[k].codec, r,
                         (unsigned long long)(all - t.end_bytes[r]), (unsigned long long)cases[k].bytes);
            assert_true(t.bytes[r][to] >= 7 * cases[k].bytes); /* to the one neighbour; the rest is the end's */
        }
        trial_drop(&t);
    }
}

/* ---- rate and memory ---- */

enum { AVERAGED = 8, ROUNDS = 3000, EVERY = 100 };
typedef struct averaging {
    tutti_engine_options options;
    int rounds;
    float x[ROUNDS / EVERY + 1][TRIAL_RANKS][AVERAGED];
    /* numbers of the public copies of worker 0, and of all else that the mixer keeps over rounds */
    size_t copies, other;
} averaging;

static void fill_zero(void *user, int tensor, float *values)
{
    (void)user, (void)tensor;
    memset(values, 0, AVERAGED * sizeof *values);
}

/* After a first step that puts the workers apart nothing is computed any more, only averaged. */
static tutti_status average_rank(tutti_world *world, void *arg, tutti_error *err)
{
    averaging *a = arg;
    tutti_engine_options options = a->options;
    const tutti_param param = { .name = "x", .dims = 1, .dim = { AVERAGED } };
    const int rank = tutti_world_rank(world);
    tutti_engine *e;
    tutti_status status;

    options.initial = fill_zero;
    TUTTI_TRY(tutti_engine_open(&e, world, &param, 1, &options, err));
    for (size_t i = 0; rank == 0 && i < tutti_plan_count(e->plan); i++) {
        const tutti_state *s = tutti_plan_state(e->plan, i, NULL);
        a->copies += strncmp(s->name, "mixer.public", 12) == 0 ? s->count : 0;
        a->other +=
            strncmp(s->name, "mixer.public", 12) != 0 && strncmp(s->name, "mixer", 5) == 0 && s->keep != TUTTI_SCRATCH
                ? s->count
                : 0;
    }
    status = TUTTI_OK;
    for (int k = 0; k <= a->rounds && status == TUTTI_OK; k++) {
        const tutti_method *m = tutti_engine_method(e);
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int i = 0; i < AVERAGED; i++)
                m->g[i] = k > 0 ? 0 : (float)((rank * 5 + i * 3) % 8) - 3.5f;
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
        if (status == TUTTI_OK && k % EVERY == 0)
            memcpy(a->x[k / EVERY][rank], m->x, sizeof a->x[0][rank]);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static double apart_at(const averaging *a, int n, int k)
{
    double sum = 0;

    for (int i = 0; i < AVERAGED; i++) {
        double mean = 0;
        for (int r = 0; r < n; r++)
            mean += (double)a->x[k][r][i] / n;
        for (int r = 0; r < n; r++)
            sum += pow((double)a->x[k][r][i] - mean, 2);
    }
    return sum;
}

/* Invariant 6: a ring of 8, one of 8 numbers in a message. With gamma 0.2 the squared distance
   between the workers and their mean falls by the same factor in the same number of rounds, again
   and again, down to what float32 resolves; with 0.7 it grows. */
static void sparse_averaging_converges_linearly_for_small_gamma_only(void **state)
{
    static averaging a;
    tutti_error err = { .rank = -1 };
    double first;
    int end = 0;
    (void)state;

    a = (averaging){
        .options = {
            .method = "d-psgd(order=atc,gamma=0.2)", .codec = "topk(ratio=0.125)", .optimizer = "sgd(lr=1)", .batch = 1,
        },
        .rounds = ROUNDS,
    };
    assert_int_equal(tutti_world_run("shm", 8, average_rank, &a, &err), TUTTI_OK);
    first = apart_at(&a, 8, 0);
    assert_true(first > 100);
    while (end < ROUNDS / EVERY && apart_at(&a, 8, end) > 1e-11)
        end++;
    if (end == ROUNDS / EVERY)
        fail_msg("after %d rounds the workers are still %g apart of %g", ROUNDS, apart_at(&a, 8, end), first);
    /* on the way: every EVERY rounds bring a gain, at a rate within a factor of the average
       one */
    for (int k = 1; k < end; k++) {
        const double rate = log(apart_at(&a, 8, 0) / apart_at(&a, 8, end - 1)) / (end - 1),
                     now = log(apart_at(&a, 8, k - 1) / apart_at(&a, 8, k));
        if (!(now > 0.3 * rate && now < 3 * rate))
            fail_msg("in rounds %d to %d the squares fell by e^-%g, on average by e^-%g", (k - 1) * EVERY, k * EVERY,
                     now, rate);
    }
    a = (averaging){
        .options = {
            .method = "d-psgd(order=atc,gamma=0.7)", .codec = "topk(ratio=0.125)", .optimizer = "sgd(lr=1)", .batch = 1,
        },
        .rounds = 400,
    };
    assert_int_equal(tutti_world_run("shm", 8, average_rank, &a, &err), TUTTI_OK);
    assert_true(apart_at(&a, 8, 4) > 10 * apart_at(&a, 8, 0));
}

/* The published 2 n are one sum of the neighbours' copies and one's own; here each neighbour has
   one, (degree + 1) n, so that one that is lost can be excluded (mixer_codec.c). And nothing else
   over rounds. */
static void memory_is_one_public_copy_per_neighbour_plus_own(void **state)
{
    static const struct {
        const char *graph;
        int n, degree;
    } rows[] = { { "ring", 6, 2 }, { "complete", 5, 4 }, { "directed-ring", 4, 1 }, { "ring", 2, 1 } };
    static averaging a;
    tutti_error err = { .rank = -1 };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        char method[60];
        size_t padded; /* n: to a multiple of 64 x workers */
        snprintf(method, sizeof method, "d-psgd(graph=%s)", rows[k].graph);
        a = (averaging){ .options = { .method = method, .codec = "sign", .optimizer = "sgd(lr=1)", .batch = 1 } };
        assert_int_equal(tutti_world_run("shm", rows[k].n, average_rank, &a, &err), TUTTI_OK);
        padded = 64 * (size_t)rows[k].n;
        if (a.copies != (size_t)(rows[k].degree + 1) * padded || a.other != 0)
            fail_msg("%s of %d: %zu numbers of public copies, %zu others", rows[k].graph, rows[k].n, a.copies, a.other);
    }
}

static void unsupported_codecs_are_rejected_with_the_reason(void **state)
{
    static const struct { const char *method, *codec, *sentence; } cases[] = {
        { "d-psgd", "powersgd",
          "method 'd-psgd' sends to neighbours: codec 'powersgd' sends rounds that are each made of the sum of the "
          "one before over all workers" },
        { "d-psgd", "ef(topk)",
          "codec 'ef' makes good what is lost of a mean over all workers; from one worker to another nothing is "
          "averaged: give the codec inside of it alone" },
        { "d-psgd", "large(dgc(topk))", "codec 'dgc' makes good" },
        { "d-psgd", "alq", "codec 'alq' adapts by numbers that are summed over all workers" },
        { "d-psgd", "accordion(low=topk(ratio=0.1),high=topk)", "codec 'accordion' adapts by numbers" },
        { "d-psgd", "qsgd", "codec 'qsgd' may lose as much as it is given, or more" },
        { "d-psgd", "large(topk,small=wangni)", "codec 'wangni' may lose" },
        { "d-psgd", "randomk(unbiased=on)", "codec 'randomk' may lose" },
        { "d-psgd", "minmax8", "codec 'minmax8' may lose" },
        { "d-psgd(graph=one-peer-exponential)", "topk", "the graph of method 'd-psgd' changes from round to round" },
        { "d-psgd(gamma=0.5)", NULL, "gamma is 0.5, but models travel without a codec" },
        { "sgp", "topk", "method 'sgp' sends models or nothing: what a codec loses of a model is lost in every step" },
        { "ad-psgd", "topk",
          "method 'ad-psgd' sends models or nothing: what a codec loses of a model is lost in every step" },
        { "rand-psgd", "fp16", "(ddp, bagua, local-sgd, diloco, palsgd, slowmo, d-psgd" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = of(cases[k].method, cases[k].codec, 1);
        tutti_error err;
        assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[k].sentence) == NULL)
            fail_msg("%s through %s: %s", cases[k].method, cases[k].codec != NULL ? cases[k].codec : "nothing",
                     err.text);
        trial_drop(&t);
    }
}

static float huge_at_worker_one(int rank, uint64_t step, size_t i, float x)
{
    (void)step, (void)x;
    return rank == 1 && i == 1010 ? 70000 : 0.125f;
}

/* A number that all copies would take over must be finite. */
static void value_outside_the_codec_range_ends_the_run(void **state)
{
    static const char *const codecs[] = { "fp16", "large(topk(ratio=0.3),small=fp16)", "bf16", "int8",
                                          "topk(ratio=0.2)" },
                             *const ends[] = { "fp16", "large", NULL, NULL, NULL };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++) {
        trial t = of("d-psgd(graph=ring)", codecs[c], 3);
        tutti_error err;
        char sentence[400];
        t.gradient = huge_at_worker_one;
        t.options.optimizer = "sgd(lr=1)";
        if (ends[c] == NULL) {
            trial_run(&t, 4);
            trial_drop(&t);
            continue;
        }
        snprintf(
            sentence, sizeof sentence,
            "worker 1, averaging with its neighbours in round 1: b has moved by -70000 at element 10 when it is to be "
            "sent, which codec '%s' makes -inf; take a codec with a wider range (bf16 instead of fp16), lower the "
            "learning rate or clip the gradient (clip-norm)",
            ends[c]);
        assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_NUMBER);
        assert_string_equal(err.text, sentence);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_match_the_recursion_bit_for_bit),
        cmocka_unit_test(lossless_codec_matches_d_psgd),
        cmocka_unit_test(lossy_averaging_preserves_the_mean_and_contracts_the_models),
        cmocka_unit_test(workers_with_equal_gradients_keep_equal_models),
        cmocka_unit_test(overlap_with_computation_gives_the_same_bits),
        cmocka_unit_test(each_worker_sends_one_encoded_model_per_round),
        cmocka_unit_test(sparse_averaging_converges_linearly_for_small_gamma_only),
        cmocka_unit_test(memory_is_one_public_copy_per_neighbour_plus_own),
        cmocka_unit_test(unsupported_codecs_are_rejected_with_the_reason),
        cmocka_unit_test(value_outside_the_codec_range_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
