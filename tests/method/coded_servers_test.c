/* Goal: what src/server/coded.c promises of gradients through a codec at servers, on ranks that
   are real threads: a codec that loses nothing changes nothing; the recursion of both residuals
   to the bit, against one written here; equal replicas whatever the codec; exact traffic of every
   pair; what is refused. Method: byteps, and 16-bit brain floats, whose rounding is implemented
   here again. */
#include "trial.h"

enum { ALL = 1533, STEPS = 6, TENSORS = 3 };
static const uint64_t begins[TENSORS + 1] = { 0, 1000, 1033, 1533 }; /* of tensors */

static trial coded(const char *method, const char *codec, int servers)
{
    trial t = trial_served(method, "sgd(lr=0.0625)", STEPS, servers);

    t.options.codec = codec;
    t.gradient = trial_rough;
    return t;
}

static void a_codec_that_loses_nothing_changes_no_bit(void **state)
{
    static const char *const forms[] = { "byteps", "byteps(partition_bytes=700,credits=3)",
                                         "byteps(partition_bytes=600,priority=layer)",
                                         "byteps(partition_bytes=256,assign=greedy)", "byteps(feedback=off)" };

    (void)state;
    for (size_t f = 0; f < TUTTI_LENGTH(forms); f++)
        for (int n = 1; n <= 4; n += f == 0 ? 1 : 3)
            for (int servers = 0; servers <= 4; servers += 2) {
                trial a = coded(forms[f], "fp32", servers), b = coded("ddp", "", 0);
                trial_run(&a, n + servers);
                trial_run(&b, n);
                for (int r = 0; r < n; r++)
                    for (int s = 0; s <= STEPS; s++)
                        assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
                trial_drop(&a);
                trial_drop(&b);
            }
}

/* ---- the recursion ---- */

/* To nearest, halves to even. */
static float brain(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Products rounded once, then sums of neighbours, as in all sums of the library. */
static float tree(const float *v, int n)
{
    int half = 1;

    if (n == 1)
        return v[0];
    while (2 * half < n)
        half *= 2;
    return tree(v, half) + tree(v + half, n - half);
}

/* Factors of the learning rate by step, powers of two, so that rescaling is exact. */
static const struct rates { const char *schedule; float factor[STEPS]; } constant_rate = { NULL, { 1, 1, 1, 1, 1, 1 } },
    falling = { "step(every=2,gamma=0.5)", { 1, 1, 0.5f, 0.5f, 0.25f, 0.25f } },
    plunging = { "step(every=1,gamma=0.125)", { 1, 1 / 8.0f, 1 / 64.0f, 1 / 512.0f, 1 / 4096.0f, 1 / 32768.0f } },
    rising = { "constant(warmup=4)", { 0.25f, 0.5f, 0.75f, 1, 1, 1 } };

/* Of workers in machines of `node`: x after each step. */
static void expect(float (*x)[ALL], int n, int node, bool feedback, const struct rates *rates)
{
    const int senders = n / node;
    float last = 1;
    static float owes[TRIAL_RANKS][ALL], owed[ALL];
    float now[ALL];

    memset(owes, 0, sizeof owes);
    memset(owed, 0, sizeof owed);
    for (size_t i = 0; i < ALL; i++)
        now[i] = trial_initial_value(i);
    for (uint64_t s = 0; s < STEPS; s++) {
        const float by = (float)(0.0625 * (double)last / (0.0625 * (double)rates->factor[s]));
        last = rates->factor[s];
        for (size_t i = 0; i < ALL; i++) {
            float sent[TRIAL_RANKS], inside[TRIAL_RANKS], sum, all;
            for (int m = 0; m < senders; m++) {
                for (int u = 0; u < node; u++) {
                    inside[u] = trial_rough(m * node + u, s, i, now[i]);
                    if (node > 1)
                        inside[u] *= 1.0f / (float)n;
                }
                sum = tree(inside, node);
                sum = feedback ? by * owes[m][i] + sum : sum;
                sent[m] = brain(sum);
                owes[m][i] = sum - sent[m];
                sent[m] *= node > 1 ? 1.0f : 1.0f / (float)n;
            }
            sum = tree(sent, senders);
            sum = feedback ? by * owed[i] + sum : sum;
            all = brain(sum);
            owed[i] = sum - all;
            now[i] -= 0.0625f * last * all;
        }
        memcpy(x[s], now, sizeof now);
    }
}

static void residuals_of_workers_and_servers_match_the_recursion(void **state)
{
    static const struct { const char *method; int n, node; bool feedback; const struct rates *rates; } cases[] = {
        { "byteps", 2, 1, true, &constant_rate },
        { "byteps(partition_bytes=700)", 3, 1, true, &constant_rate },
        { "byteps(partition_bytes=700)", 3, 1, true, &plunging },
        { "byteps(partition_bytes=300,assign=greedy)", 4, 1, true, &falling },
        { "byteps(node=2,partition_bytes=700)", 4, 2, true, &falling },
        { "byteps(feedback=on,priority=layer)", 4, 1, true, &constant_rate },
        { "byteps", 2, 1, true, &rising },
        { "byteps(feedback=off)", 4, 1, false, &falling },
    };
    static float x[STEPS][ALL];

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        expect(x, cases[c].n, cases[c].node, cases[c].feedback, cases[c].rates);
        for (int servers = 0; servers <= 3; servers++) {
            trial t = coded(cases[c].method, "bf16", servers);
            t.options.lr_schedule = cases[c].rates->schedule;
            t.options.steps = STEPS;
            trial_run(&t, cases[c].n + servers);
            for (int r = 0; r < cases[c].n; r++)
                for (int s = 0; s < STEPS; s++)
                    for (size_t i = 0; i < ALL; i++)
                        if (t.x[r][s][i] != x[s][i])
                            fail_msg("%s on %d and %d servers: worker %d, step %d, element %zu is %.9g, expected %.9g",
                                     cases[c].method, cases[c].n, servers, r, s, i, (double)t.x[r][s][i],
                                     (double)x[s][i]);
            trial_drop(&t);
        }
    }
}

/* A worker without samples in a step keeps the residual that it had. All shares uneven: the mean
   is ddp's except for what sixteen bits lose, which the residual makes good. */
static void residuals_are_weighted_correctly_with_uneven_shares(void **state)
{
    int64_t shares[TRIAL_RANKS] = { 5, 0, 1 };
    trial a = coded("byteps", "bf16", 1), b = coded("ddp", "", 0);

    (void)state;
    a.gradient = b.gradient = trial_quadratic;
    a.options.batch_of = b.options.batch_of = shares;
    trial_run(&a, 4);
    trial_run(&b, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(trial_same(&a, a.x[r][STEPS], a.x[0][STEPS]));
        assert_true(trial_apart(&a, a.x[r][STEPS], b.x[0][STEPS]) < 1e-3);
    }
    trial_drop(&a);
    trial_drop(&b);
}

static void all_workers_have_the_same_bits_whatever_the_codec(void **state)
{
    static const char *const codecs[] = { "topk(ratio=0.1)", "sign",           "onebit",  "randomk(ratio=0.3)",
                                          "qsgd(bits=4)",    "nuqsgd(bits=3)", "int8",    "minmax8",
                                          "threshold",       "wangni",         "fp16",    "large(codec=topk,min=100)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int servers = 0; servers <= 2; servers += 2) {
            trial t = coded("byteps(partition_bytes=1024,credits=2)", codecs[c], servers), b = coded("ddp", "", 0);
            t.gradient = b.gradient = trial_quadratic;
            trial_run(&t, 4 + servers);
            trial_run(&b, 4);
            for (int r = 1; r < 4; r++)
                for (int s = 0; s <= STEPS; s++)
                    assert_true(trial_same(&t, t.x[r][s], t.x[0][s]));
            assert_false(strcmp(codecs[c], "fp16") != 0 && trial_same(&t, t.x[0][STEPS], b.x[0][STEPS]));
            trial_drop(&t);
            trial_drop(&b);
        }
}

/* ---- draws ---- */

/* The same in every step. Each element is the largest value or 0, which 2 bits represent exactly,
   so that only the server's message draws random numbers, not a worker's. */
static float on_levels(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)x;
    return rank == 0 ? (float)(i % 3) - 1 : 3 * (float)(i / 3 % 3) - 3;
}

/* Worker 0's message draws random numbers, and each element that the server gets is the largest
   value or 0. */
static float between_levels(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)x;
    return rank == 0 ? sinf((float)i) : 0;
}

/* Random rounding uses other draws in each step, at workers and at servers: with the same
   gradient in each step, elements are rounded in different directions. */
static void random_rounding_differs_between_steps(void **state)
{
    (void)state;
    for (int servers = 0; servers <= 2; servers += 2)
        for (int workers = 0; workers < 2; workers++) {
            trial t = coded("byteps(feedback=off)", "qsgd(bits=2,norm=max)", servers);
            int moved = 0;
            t.gradient = workers ? between_levels : on_levels;
            trial_run(&t, 2 + servers);
            for (int s = 1; s + 1 < STEPS; s++) {
                int others = 0;
                for (size_t i = 0; i < ALL; i++)
                    others += fabsf((t.x[0][s + 1][i] - t.x[0][s][i]) - (t.x[0][s][i] - t.x[0][s - 1][i])) > 1e-3f;
                moved += others > ALL / 10;
            }
            assert_int_equal(moved, STEPS - 2);
            trial_drop(&t);
        }
}

/* ---- traffic ---- */

/* For a part: 2 bytes an element, and 4 for each vector but the last. */
static uint64_t message(uint64_t first, uint64_t count)
{
    uint64_t vectors = 0;

    for (int t = 0; t < TENSORS; t++)
        vectors += first < begins[t + 1] && first + count > begins[t];
    return 2 * count + 4 * (vectors - 1);
}

static void encoded_traffic_per_pair_matches_its_parts(void **state)
{
    static const struct { int n, k, bytes; uint32_t parts[TRIAL_RANKS]; } cases[] = {
        { 2, 0, 0, { 1, 1 } },
        { 4, 0, 1024, { 1, 1, 1, 1 } },
        { 4, 2, 0, { 2, 2, 2, 2, 6, 6 } },
        { 4, 4, 2048, { 0, 0, 0, 0, 1, 1, 1, 1 } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int bytes = cases[c].bytes;
        char method[80];
        trial t;
        snprintf(method, sizeof method, "byteps(partition_bytes=%d)", bytes > 0 ? bytes : 4096000);
        t = coded(method, "bf16", cases[c].k);
        trial_run(&t, cases[c].n + cases[c].k);
        trial_parts_travel(&t, cases[c].n + cases[c].k, cases[c].parts, (uint64_t)bytes / 4, message);
        trial_drop(&t);
    }
}

/* ---- refusals ---- */

static void check_refused(const char *method, const char *codec, int nonfinite, const char *sentence)
{
    trial t = coded(method, codec, 0);
    tutti_error err;

    t.options.nonfinite = (tutti_nonfinite)nonfinite;
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' is not in: %s", sentence, err.text);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    (void)state;
    check_refused("byteps", "ef(topk)", TUTTI_NONFINITE_STOP, "give the codec inside of it alone");
    check_refused("byteps", "powersgd(rank=1)", TUTTI_NONFINITE_STOP, "can go from one worker to another");
    check_refused("byteps", "alq", TUTTI_NONFINITE_STOP, "there is no such sum");
    check_refused("byteps(wire=fp16)", "sign", TUTTI_NONFINITE_STOP, "omit one of the two");
    check_refused("byteps(feedback=on)", "qsgd(bits=4)", TUTTI_NONFINITE_STOP, "take feedback=off");
    check_refused("byteps(feedback=off)", "", TUTTI_NONFINITE_STOP, "omit feedback, or give a codec");
    check_refused("byteps", "sign", TUTTI_NONFINITE_SKIP, "or give feedback=off");
    check_refused("byteps(cross_barrier=on)", "sign", TUTTI_NONFINITE_STOP, "omit codec");
    check_refused("byteps(async=on)", "sign", TUTTI_NONFINITE_STOP, "codec is 'sign', but method 'byteps'");
}

/* Without residuals a step may be skipped; the run ends over such a gradient otherwise. */
static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    trial a = coded("byteps", "topk(ratio=0.5)", 1), b = coded("byteps(feedback=off)", "topk(ratio=0.5)", 1);
    tutti_error err;

    (void)state;
    a.gradient = b.gradient = trial_bad;
    assert_int_equal(trial_try(&a, 5, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "nan"));
    b.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&b, 5);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(b.figures[r].skipped, 1);
        assert_true(trial_same(&b, b.x[r][STEPS], b.x[0][STEPS]));
    }
    trial_drop(&a);
    trial_drop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_codec_that_loses_nothing_changes_no_bit),
        cmocka_unit_test(residuals_of_workers_and_servers_match_the_recursion),
        cmocka_unit_test(residuals_are_weighted_correctly_with_uneven_shares),
        cmocka_unit_test(all_workers_have_the_same_bits_whatever_the_codec),
        cmocka_unit_test(random_rounding_differs_between_steps),
        cmocka_unit_test(encoded_traffic_per_pair_matches_its_parts),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
