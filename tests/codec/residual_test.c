/* Error feedback as theory has it: what wrappers keep, step by step and over a thousand steps,
   and what codecs that they wrap may lose. Goal: what error feedback and one-bit codecs promise
   as equalities or bounds: nothing kept where nothing is lost, p = D + e to the bit with D as it
   is on the wire, the virtual iterate, the bound of the residual, EF21's rate, which codecs are
   contractions and which are not; and what each wrapper needs of memory. Method: workers in one
   process; the other side of each equation in double, or in floats where it is to the bit. The
   exchange's own order of the same steps is in tests/engine/exchange_test.c. */
#include "subject.h"
#include "state/plan.h"
#include "codec/codec.h"

enum { WORKERS = 4, ROWS = 24, COLS = 30, N = ROWS * COLS };
#define ROW(x) ((float *[]){ x[0], x[1], x[2], x[3] })

static void open_all(subject **s, const char *spec)
{
    for (int w = 0; w < WORKERS; w++)
        s[w] = subject_open_as(spec, ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
}

static void close_all(subject **s)
{
    for (int w = 0; w < WORKERS; w++)
        subject_close(s[w]);
}

/* Error feedback keeps the bits of the codec alone, and nothing is ever kept. EF21 adds differences
   up, h + (g - h), which rounds: within an ulp of the larger of the two, and never further, however
   many steps. */
static void lossless_codecs_produce_no_residual(void **state)
{
    static const struct { const char *plain, *wrapped; } rows[] = {
        { "fp32",                   "ef(fp32)" },
        { "topk(ratio=1)",          "ef(topk(ratio=1))" },
        { "topk(ratio=1)",          "ef(topk(ratio=1),server=on)" },
        { "threshold(value=1e-30)", "ef(threshold(value=1e-30))" },
        { "fp32",                   "ef21(fp32)" },
        { "topk(ratio=1)",          "ef21(topk(ratio=1))" },
    };
    static float g[WORKERS][N], y[2][WORKERS][N];
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        const bool ef21 = strncmp(rows[k].wrapped, "ef21", 4) == 0, again = strstr(rows[k].wrapped, "server") != NULL;
        subject *s[2][WORKERS];
        open_all(s[0], rows[k].plain), open_all(s[1], rows[k].wrapped);
        for (uint64_t step = 0; step < 40; step++) {
            double most = 0;
            for (int w = 0; w < WORKERS; w++) {
                subject_fill(N, g[w], (int)(step + (uint64_t)w) % 2, &seed);
                for (int i = 0; i < N; i++)
                    most = fmax(most, fabs((double)g[w][i]));
            }
            for (int k2 = 0; k2 < 2; k2++)
                subject_exchange(s[k2], WORKERS, step, again, ROW(g), ROW(y[k2]));
            for (int w = 0; w < WORKERS; w++) {
                const float *kept = subject_state(s[1][w], ef21 ? "codec.own" : "codec.e", TUTTI_OWN_MEAN);
                for (int i = 0; i < N; i++)
                    if (ef21 ? fabs((double)kept[i] - g[w][i]) > 4 * most * 0x1p-24 ||
                                   fabs((double)y[0][w][i] - y[1][w][i]) > 300 * most * 0x1p-24
                             : kept[i] != 0 || y[0][w][i] != y[1][w][i])
                        fail_msg("%s, step %d, worker %d, element %d: %.9g instead of %.9g, and %g is kept",
                                 rows[k].wrapped, (int)step, w, i, (double)y[1][w][i], (double)y[0][w][i],
                                 (double)kept[i]);
            }
        }
        close_all(s[0]), close_all(s[1]);
    }
}

/* e' = p - D in the float32 that both are in, with D as it is decoded at the other end, its sixteen
   bits and scales included. */
static void residual_is_the_input_minus_the_sent_values(void **state)
{
    static const char *const all[] = {
        "fp32", "fp16", "bf16", "trunc16", "int8", "int8(bucket=16)", "e3m0", "minmax8", "sign",
        "sign(block=64)", "onebit", "onebit-col", "onebit-col(min_rows=1)", "topk(ratio=0.05)", "threshold(value=1)",
        "randomk(ratio=0.1)", "randomk(ratio=0.2,block=8)", "large(sign,min=1000)", "large(fp16,min=10,small=sign)",
    };
    static float g[N], y[N], p[N];
    uint64_t seed = 2;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
        for (int server = 0; server < 2; server++) { /* the owner's side: what it holds is the mean and its residual */
            char spec[80];
            subject *s;
            const float *e, *owner = NULL;
            const bool summed = strstr(all[k], "16") != NULL || strstr(all[k], "randomk") != NULL ||
                                strstr(all[k], "fp32") != NULL || strncmp(all[k], "large", 5) == 0;
            if (server == 1 && summed)
                continue;
            snprintf(spec, sizeof spec, "ef(%s%s)", all[k], server ? ",server=on" : "");
            s = subject_open_as(spec, ROWS, COLS, 0, TUTTI_CPU_AVX512);
            e = subject_state(s, "codec.e", TUTTI_OWN_MEAN);
            owner = server ? subject_state(s, "codec.owner", TUTTI_OWN_SUM) : NULL;
            for (uint64_t step = 0; step < 25; step++) {
                float first[N];
                subject_fill(N, g, (int)step % 2, &seed);
                for (int i = 0; i < N; i++)
                    p[i] = g[i] + e[i], first[i] = owner != NULL ? owner[i] : 0;
                subject_exchange(&s, 1, step, server, (float *[]){ g }, (float *[]){ y });
                /* with one worker the mean is what it sent; with a second encoding that is p - e,
                   and the owner held owner + it */
                for (int i = 0; i < N; i++) {
                    volatile float sent = server ? p[i] - e[i] : y[i], kept = p[i] - sent,
                                   held = server ? sent + first[i] : 0, owners = held - y[i];
                    if (server ? fabsf(owner[i] - owners) > 4e-7f * (fabsf(held) + fabsf(p[i])) : kept != e[i])
                        fail_msg("%s, step %d, element %d: held %.9g, on the wire %.9g, kept %.9g", spec, (int)step, i,
                                 (double)(server ? held : p[i]), (double)y[i], (double)(server ? owner[i] : e[i]));
                }
            }
            subject_close(s);
        }
}

/* The virtual iterate over a thousand steps on quadratics, each worker with its own optimum; y_t =
   x_t - lr mean e_t is where the uncompressed gradients would have led. */
static void virtual_iterate_matches_uncompressed_training(void **state)
{
    enum { STEPS = 1000 };
    static const char *const all[] = {
        "ef(topk(ratio=0.02))", "ef(sign)", "ef(sign(block=64))", "ef(onebit-col)", "ef(onebit-col(min_rows=1))",
        "ef(int8)", "ef(minmax8)", "ef(bf16)", "ef(randomk(ratio=0.05))", "ef(threshold(value=0.1))",
        "ef(chunk-topk(topk=8,chunk=16))", "ef(powersgd(rank=1))", "ef(powersgd(rank=2,ef_rule=aggregated))",
        "ef(large(topk(ratio=0.02),min=10))", "ef(topk(ratio=0.02),server=on)", "ef(topk(ratio=0.02),flush_every=7)",
        "ef(powersgd(rank=1),flush_every=3,flush=bf16)",
    };
    static float g[WORKERS][N], y[WORKERS][N], b[WORKERS][N];
    static double x[N], straight[N];
    const double lr = 0.002;
    uint64_t seed = 3;
    (void)state;

    for (int w = 0; w < WORKERS; w++)
        subject_fill(N, b[w], 0, &seed);
    for (size_t k = 0; k < TUTTI_LENGTH(all); k++) {
        const bool again = strstr(all[k], "server") != NULL;
        subject *s[WORKERS];
        double apart = 0, size = 0;
        open_all(s, all[k]);
        memset(x, 0, sizeof x), memset(straight, 0, sizeof straight);
        for (uint64_t step = 0; step < STEPS; step++) {
            for (int w = 0; w < WORKERS; w++)
                for (int i = 0; i < N; i++) {
                    g[w][i] = (float)(x[i] - (double)b[w][i] - 3);
                    straight[i] -= lr * (double)g[w][i] / WORKERS;
                }
            subject_exchange(s, WORKERS, step, again, ROW(g), ROW(y));
            for (int i = 0; i < N; i++)
                x[i] -= lr * (double)y[0][i];
        }
        for (int i = 0; i < N; i++) {
            double e = again ? (double)subject_state(s[0], "codec.owner", TUTTI_OWN_SUM)[i] : 0;
            for (int w = 0; w < WORKERS; w++)
                e += (double)subject_state(s[w], "codec.e", TUTTI_OWN_MEAN)[i] / WORKERS;
            apart += pow(x[i] - lr * e - straight[i], 2), size += straight[i] * straight[i];
        }
        /* The mean of numbers of sixteen bits is itself rounded to sixteen bits, and no residual
           holds what that rounds away: 2^-9 of each step's mean, up or down. */
        if (!(sqrt(apart / size) <= (strstr(all[k], "bf16") != NULL ? 1e-3 : 1e-5)))
            fail_msg("%s: after %d steps the virtual iterate is %g away of %g", all[k], STEPS, sqrt(apart), sqrt(size));
        close_all(s);
    }
}

/* Always true: |e'| <= sqrt(1 - delta) (|g| + |e|); so with |g| <= G never above G sqrt(1 -
   delta) / (1 - sqrt(1 - delta)). delta: for topk k / n, for sign that of the encoded vector. */
static void the_residual_stays_within_its_bound(void **state)
{
    static const struct {
        const char *spec;
        double delta;
    } rows[] = { { "ef(topk(ratio=0.01))", 8.0 / N },
                 { "ef(topk(ratio=0.1))", 0.1 },
                 { "ef(topk(ratio=0.5))", 0.5 },
                 { "ef(sign)", 0 },
                 { "ef(int8)", 1.0 / N } };
    static float g[N], y[N], p[N];
    uint64_t seed = 4;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open_as(rows[k].spec, ROWS, COLS, 0, TUTTI_CPU_AVX512);
        const float *e = subject_state(s, "codec.e", TUTTI_OWN_MEAN);
        double greatest = 0, highest = 0, least_delta = 1;
        for (uint64_t step = 0; step < 600; step++) {
            double delta = rows[k].delta, was = sqrt(subject_norm2(N, e)), sum = 0, norm, now;
            subject_fill(N, g, step % 3 == 2, &seed);
            if (step % 3 != 0) /* often the same direction: what a residual grows by */
                for (int i = 0; i < N; i++)
                    g[i] = 0.3f * g[i] + (float)(i % 7) - 3;
            norm = sqrt(subject_norm2(N, g));
            for (int i = 0; i < N; i++)
                p[i] = g[i] + e[i], sum += fabs((double)p[i]);
            delta = delta > 0 ? delta : sum * sum / (N * subject_norm2(N, p));
            subject_exchange(&s, 1, step, false, (float *[]){ g }, (float *[]){ y });
            now = sqrt(subject_norm2(N, e));
            if (!(now <= sqrt(1 - delta) * (norm + was) * (1 + 1e-6)))
                fail_msg("%s, step %d: %g is kept of a gradient of %g and a residual of %g; delta is %g", rows[k].spec,
                         (int)step, now, norm, was, delta);
            greatest = fmax(greatest, norm), highest = fmax(highest, now), least_delta = fmin(least_delta, delta);
        }
        assert_true(highest <= greatest * sqrt(1 - least_delta) / (1 - sqrt(1 - least_delta)));
        assert_true(highest > 0);
        subject_close(s);
    }
}

/* f(x) = x / 4, whose gradient is 4 once in four times and else -1. Signs go the wrong way on
   average; with error feedback they lead to -1. In one dimension a scaled sign loses nothing, so
   there is a second one, whose gradient is +20 and -20 by turns, and which gives both their scale.
   */
static void plain_signs_diverge_and_error_feedback_converges(void **state)
{
    uint64_t seed = 5;
    (void)state;

    for (int with = 0; with < 2; with++) {
        subject *s = subject_open(with ? "ef(sign)" : "sign", 2);
        float y[2];
        double x = 0, lowest = 0;
        for (uint64_t step = 0; step < 20000 && lowest > -1; step++) {
            float g[2] = { subject_uniform(&seed) < 0.25 ? 4.0f : -1.0f, step % 2 ? 20.0f : -20.0f };
            subject_exchange(&s, 1, step, false, (float *[]){ g }, (float *[]){ y });
            x = fmin(x - 0.001 * (double)y[0], 1); /* f is on [-1, 1] */
            lowest = fmin(lowest, x);
        }
        if (with ? lowest > -1 : !(x > 0.5 && lowest > -0.5))
            fail_msg("%s: x is %g in the end and was %g at least", with ? "ef(sign)" : "sign", x, lowest);
        subject_close(s);
    }
}

/* A codec that declares that it always keeps a part does: |C(x) - x|^2 <= (1 - delta) |x|^2 with
   its own delta, on all shapes of vectors, and on a matrix. One that does not declare it exceeds
   |x|^2 somewhere, or may keep nothing. All codecs of the registry are asked, so a new one is
   too. */
static void contractive_codecs_contract_and_no_others_claim_it(void **state)
{
    static const struct {
        const char *name, *spec;
    } beyond[] = { { "onebit", "onebit" },
                   { "qsgd", "qsgd(bits=2,norm=l2)" },
                   { "nuqsgd", "nuqsgd(bits=3)" },
                   { "alq", "alq" },
                   { "amq", "amq" },
                   { "wangni", "wangni" } };
    static float x[N], y[N];
    uint64_t seed = 6;
    int asked = 0;
    (void)state;

    for (size_t k = 0; tutti_codecs[k] != NULL; k++) {
        const char *name = tutti_codecs[k]->name, *spec = name;
        double worst = 0;
        subject *s;
        bool says, unbounded = false; /* more is lost than was given, of some vector */
        if (tutti_codecs[k]->choose != NULL)
            continue;
        for (size_t i = 0; i < TUTTI_LENGTH(beyond); i++)
            if (strcmp(beyond[i].name, name) == 0)
                spec = beyond[i].spec, unbounded = true;
        s = subject_open_as(spec, ROWS, COLS, 0, TUTTI_CPU_AVX512);
        says = (tutti_codec_traits(s->codec) & TUTTI_CODEC_CONTRACTIVE) != 0;
        asked++;
        for (int round = 0; round < 60; round++) {
            double norm, loss, sum = 0, delta = 0;
            subject_fill(N, x, round % 5, &seed);
            for (int i = 0; i < N && round % 10 >= 5; i++) /* mostly zeros, or far from zero */
                x[i] = round % 20 >= 10 ? x[i] + 10 : i % 9 == 0 ? x[i] : 0;
            norm = subject_norm2(N, x);
            for (int i = 0; i < N; i++)
                sum += fabs((double)x[i]);
            subject_exchange(&s, 1, (uint64_t)round, false, (float *[]){ x }, (float *[]){ y });
            loss = subject_loss(N, x, y);
            if (strcmp(name, "topk") == 0)
                delta = 8.0 / N;
            else if (strcmp(name, "sign") == 0 || strcmp(name, "onebit-col") == 0)
                delta = sum * sum / (N * norm); /* of one column two means keep no less than one scale */
            worst = fmax(worst, loss / norm);
            if (says && loss > fmax(1 - delta, 0) * norm * (1 + 1e-6) + 1e-9 * norm)
                fail_msg("%s says that it contracts and loses %g of |x|^2 = %g; delta is %g", name, loss, norm, delta);
        }
        if (unbounded && (says || worst <= 1))
            fail_msg("%s loses %g of |x|^2 at worst and says that it %s", name, worst,
                     says ? "contracts" : "may lose all");
        subject_close(s);
    }
    assert_true(asked >= 15);
}

/* EF21's theorem, on quadratics that are mu-strongly convex, with top-k, alpha = k / n: theta = 1 -
   sqrt(1 - alpha), beta = (1 - alpha) / theta; for gamma <= min(1 / (L + Lt sqrt(2 beta / theta)),
   theta / 2 mu) the sum f(x) - f* + gamma / theta mean |h_w - grad_w|^2 falls by 1 - gamma mu a
   step at least. */
static void ef21_converges_at_the_rate_of_its_theorem(void **state)
{
    enum { D = 20, K = 4, STEPS = 3000 };
    const double alpha = (double)K / D, theta = 1 - sqrt(1 - alpha), beta = (1 - alpha) / theta;
    static float g[WORKERS][D], y[WORKERS][D];
    double a[WORKERS][D], b[WORKERS][D], x[D], best[D], mu = INFINITY, smooth = 0, lt = 0, gamma, bound = 0, first = 0,
                                                        last = 0;
    uint64_t seed = 7;
    subject *s[WORKERS];
    (void)state;

    for (int w = 0; w < WORKERS; w++) {
        double most = 0;
        s[w] = subject_open_as("ef21(topk(ratio=0.2))", 1, D, w, TUTTI_CPU_AVX512);
        for (int i = 0; i < D; i++)
            a[w][i] = 0.5 + subject_uniform(&seed), b[w][i] = 8 * subject_uniform(&seed) - 4,
            most = fmax(most, a[w][i]);
        lt += most * most / WORKERS;
    }
    for (int i = 0; i < D; i++) {
        const double curve = (a[0][i] + a[1][i] + a[2][i] + a[3][i]) / WORKERS;
        best[i] = (b[0][i] + b[1][i] + b[2][i] + b[3][i]) / WORKERS / curve;
        x[i] = 10, mu = fmin(mu, curve), smooth = fmax(smooth, curve);
    }
    gamma = fmin(1 / (smooth + sqrt(lt) * sqrt(2 * beta / theta)), theta / (2 * mu));
    for (uint64_t step = 0; step < STEPS; step++) {
        double f = 0, away = 0;
        for (int w = 0; w < WORKERS; w++)
            for (int i = 0; i < D; i++)
                g[w][i] = (float)(a[w][i] * x[i] - b[w][i]);
        subject_exchange(s, WORKERS, step, false, ROW(g), ROW(y)); /* h_w follows grad_w(x), and then x moves along h */
        for (int w = 0; w < WORKERS; w++)
            away += subject_loss(D, g[w], subject_state(s[w], "codec.own", TUTTI_OWN_MEAN)) / WORKERS;
        for (int i = 0; i < D; i++)
            f += (a[0][i] + a[1][i] + a[2][i] + a[3][i]) / WORKERS * pow(x[i] - best[i], 2) / 2;
        last = f + gamma / theta * away;
        first = step == 0 ? last : first;
        bound = step == 0 ? last : bound * (1 - gamma * mu);
        if (!(last <= bound + 1e-9 * first)) /* down to what float32 resolves */
            fail_msg("step %d: %g, and the theorem has %g at most", (int)step, last, bound);
        for (int i = 0; i < D; i++)
            x[i] -= gamma * (double)y[0][i];
    }
    assert_true(last < 1e-8 * first);
    close_all(s);
}

/* After the last of every flush_every steps no residual is left, to the bit where `flush` loses
   nothing, and the model has had the sum of all gradients; in between, and after it, it is the
   wrapper without. */
static void a_flush_delivers_the_whole_residual(void **state)
{
    enum { EVERY = 4 };
    static const struct { const char *plain, *flushed; bool exact, again; } rows[] = {
        { "ef(topk(ratio=0.05))", "ef(topk(ratio=0.05),flush_every=4)",            true,  false },
        { "ef(sign,server=on)",   "ef(sign,server=on,flush_every=4)",              true,  true },
        { "ef(powersgd(rank=1))", "ef(powersgd(rank=1),flush_every=4)",            true,  false },
        { "ef(topk(ratio=0.05))", "ef(topk(ratio=0.05),flush_every=4,flush=bf16)", false, false },
    };
    static float g[WORKERS][N], y[2][WORKERS][N];
    static double owed[N];
    uint64_t seed = 11;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s[2][WORKERS];
        open_all(s[0], rows[k].plain), open_all(s[1], rows[k].flushed);
        memset(owed, 0, sizeof owed);
        for (uint64_t step = 0; step < 3 * EVERY; step++) {
            const bool flushes = step % EVERY == EVERY - 1;
            for (int w = 0; w < WORKERS; w++)
                subject_fill(N, g[w], 0, &seed);
            for (int j = 0; j < 2; j++)
                subject_exchange(s[j], WORKERS, step, rows[k].again, ROW(g), ROW(y[j]));
            if (step < EVERY - 1)
                assert_memory_equal(y[0], y[1], sizeof y[0]);
            for (int i = 0; i < N; i++) {
                owed[i] += ((double)g[0][i] + g[1][i] + g[2][i] + g[3][i]) / WORKERS - (double)y[1][0][i];
                for (int w = 0; w < WORKERS && flushes; w++) {
                    const float e = subject_state(s[1][w], "codec.e", TUTTI_OWN_MEAN)[i];
                    if (rows[k].exact ? e != 0 : fabs((double)e) > 0x1p-5)
                        fail_msg("%s, step %d, worker %d, element %d: %g is still owed", rows[k].flushed, (int)step, w,
                                 i, (double)e);
                }
                if (flushes && !rows[k].again && fabs(owed[i]) > (rows[k].exact ? 1e-5 : 0.05))
                    fail_msg("%s, step %d, element %d: %g of the mean was never delivered", rows[k].flushed, (int)step,
                             i, owed[i]);
            }
        }
        close_all(s[0]), close_all(s[1]);
    }
}

/* Memory of a worker: numbers per element that are kept over steps, and bytes per element of
   scratch in addition. */
static void codec_memory_matches_the_papers_formulas(void **state)
{
    static const struct { const char *spec; size_t kept, scratch;
    } rows[] = {
        { "qsgd", 0, 0 },
        { "nuqsgd", 0, 0 },
        { "topk", 0, 0 },
        { "wangni", 0, 0 },
        { "sign", 0, 0 },
        { "sign-vote", 0, 0 },
        { "onebit-col", 0, 0 },
        { "minmax8", 0, 0 },
        { "fp16", 0, 0 },
        { "randomk", 0, 0 },
        { "ef(topk)", 1, 0 },
        { "ef(sign)", 1, 0 },
        { "ef(onebit-col)", 1, 0 },
        { "ef(randomk)", 1, 0 },
        { "ef(topk,server=on)", 2, 0 },
        { "ef(topk,momentum=0.9)", 2, 0 },
        { "large(ef(topk),min=1)", 1, 0 },
        { "ef(topk,flush_every=9)", 1, 0 },
        { "dgc(topk,server=off)", 2, 1 },
        { "dgc(topk,server=off,masking=off)", 2, 0 },
        { "dgc(topk(value_dtype=bf16))", 3, 1 },
        { "dgc(topk)", 3, 1 },
        /* a byte: whether it was sent, until it is masked; the third: for the owner's
        part of a second encoding */
        { "ef21(topk)", 3, 4 },
        { "ef21(topk,eta=0.1)", 4, 4 }, /* h_w and h, the owner's; a correction under way */
    };
    static const subject_shape shapes[] = { { 20, 30 }, { 1, 33 }, { 5, 200 } };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open_on(rows[k].spec, 3, shapes, 0, TUTTI_CPU_AVX512);
        const size_t kept = rows[k].kept * s->space.n * sizeof(float), all = kept + rows[k].scratch * s->space.n;
        if (subject_memory(s, false) != kept || subject_memory(s, true) != all)
            fail_msg("%s keeps %zu bytes and has %zu in all; %zu and %zu were expected", rows[k].spec,
                    subject_memory(s, false), subject_memory(s, true), kept, all);
        /* by place: nothing of it moves when pieces are cut again differently */
        for (size_t i = 0; i < tutti_plan_count(s->plan); i++) {
            const tutti_state *state_of = tutti_plan_state(s->plan, i, NULL);
            assert_true(state_of->keep == TUTTI_SCRATCH ||
                        (state_of->placed && state_of->first == 0 && state_of->count == s->space.n));
        }
        subject_close(s);
    }
}

/* ---- in parts ---- */

/* A wrapper and a codec that record the calls that they get. */
enum { PARTS_MOST = 4096 };
typedef struct asked { size_t first[PARTS_MOST], count[PARTS_MOST], n, whole; } asked;

static tutti_codec *inner_of(tutti_codec *c, const tutti_view *v)
{
    (void)v;
    return c->inner[0];
}

static const float *note_before(tutti_codec *c, const tutti_view *v, const float *x)
{
    asked *a = c->self;

    assert_true(a->n < PARTS_MOST && v->count == v->rows * v->cols);
    a->first[a->n] = v->first;
    a->count[a->n++] = v->count;
    return x;
}

static void note_fold(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch, void *const *wire)
{
    (void)v, (void)round, (void)x, (void)scratch, (void)wire;
    ((asked *)c->self)->whole++;
}

static void note_part(tutti_codec *c, const tutti_view *v, size_t from, size_t count, const float *x, void *scratch,
                      void *const *wire)
{
    const asked *a = c->self;

    (void)scratch, (void)wire;
    /* what the wrapper has just been asked for */
    assert_true(a->n > 0 && a->first[a->n - 1] == v->first + from && a->count[a->n - 1] == count);
    assert_true(*x == (float)from);
}

/* Goal: parts are whole rows, lie back to back from the end to the beginning, and are used where
   both sides can; else there is one part, the view. Method: a wrapper and a codec of the test's
   own, shapes with rows longer and shorter than a part. */
static void parts_are_whole_rows_from_the_end_on(void **state)
{
    static const struct {
        size_t rows, cols;
        bool cut;
    } shapes[] = { { 1, 1, false },    { 3, 5, false },      { 1, 40000, true }, { 7, 9000, true },
                   { 300, 130, true }, { 2, 100000, false }, { 40000, 1, true }, { 0, 3, false } };
    tutti_codec_ops leaf = { .name = "leaf", .rounds = 1, .fold = note_fold },
                    wrapper = { .name = "wrapper", .choose = inner_of, .before = note_before };
    static asked a;
    static float x[200000];
    (void)state;

    for (size_t i = 0; i < TUTTI_LENGTH(x); i++)
        x[i] = (float)i;
    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (int able = 0; able < 4; able++) {
            const tutti_view v = {
                .first = 50, .count = shapes[k].rows * shapes[k].cols, .rows = shapes[k].rows, .cols = shapes[k].cols
            };
            tutti_codec inside = { .ops = &leaf, .self = &a },
                        c = { .ops = &wrapper, .self = &a, .inner = { &inside } };
            const bool cut = shapes[k].cut && able == 3;
            size_t end = v.first + v.count;
            a.n = a.whole = 0;
            wrapper.by_element = (able & 1) != 0;
            leaf.fold_part = (able & 2) != 0 ? note_part : NULL;
            assert_ptr_equal(tutti_codec_fold_first(&c, &v, x, NULL, NULL), x);
            assert_int_equal(a.whole, !cut);
            assert_int_equal(a.n > 1, cut);
            for (size_t i = 0; i < a.n; i++) {
                assert_int_equal(a.first[i] + a.count[i], end);
                assert_true(v.rows < 2 || (a.count[i] % v.cols == 0 && (a.first[i] - v.first) % v.cols == 0));
                end = a.first[i];
            }
            assert_int_equal(end, v.first);
        }
}

/* Goal: what is sent, what the other rounds fold, and every state are the same bits whether a
   view is wrapped and folded part by part or at once; where a wrapper looks at the whole (dgc's
   norm), too. Method: both ways side by side over some steps, at two levels of SIMD, one worker
   whose numbers stand for the mean. */
static void wrapping_and_folding_in_parts_is_bitwise_equal(void **state)
{
    static const char *const specs[] = {
        "ef(fp32)", "ef(fp16,decay=0.5)", "ef(trunc16,momentum=0.5)", "ef(bf16,momentum=0.5,nesterov=on)", "ef21(fp16)",
        "ef21(fp32,eta=0.5)", "ef(powersgd(rank=2))", "ef(powersgd(rank=5,warm_start=off))",
        "ef(powersgd(rank=2,factor_dtype=fp16,iters_per_step=2))", "ef(powersgd(rank=300))",
        "ef(large(powersgd(rank=3),min=100,small=fp16))", "ef(randomk(ratio=0.1))", "dgc(randomk(ratio=0.1),clip=0.01)",
        "dgc(fp32,clip=0.01)",
    };
    static const subject_shape shapes[] = { { 300, 130 }, { 9, 9001 }, { 1, 40000 }, { 3, 5 } };
    enum { MOST = 81009 };
    static float g[MOST], y[2][MOST];
    uint64_t seed = 5;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t shape = 0; shape < TUTTI_LENGTH(shapes); shape++) {
            subject *s[2];
            void *wire[2][SUBJECT_ROUNDS];
            for (int way = 0; way < 2; way++) {
                s[way] = subject_open_as(specs[k], shapes[shape].rows, shapes[shape].cols, 0,
                                         way == 0 ? TUTTI_CPU_AVX2 : TUTTI_CPU_AVX512);
                for (int r = 0; r < SUBJECT_ROUNDS; r++)
                    wire[way][r] = calloc(s[way]->tensor.count + 1, sizeof(float));
            }
            for (uint64_t step = 0; step < 3; step++) {
                const tutti_view v = subject_view(s[0], step);
                subject_fill(v.count, g, (int)step % 2, &seed);
                for (int way = 0; way < 2; way++) {
                    tutti_codec *leaf = tutti_codec_chosen(s[way]->codec, &v);
                    void *scratch = aligned_alloc(
                        64, leaf->ops->scratch == NULL ? 64 : (leaf->ops->scratch(leaf, &v) + 64) / 64 * 64);
                    const float *p = way == 0 ? tutti_codec_before(s[0]->codec, &v, g)
                                              : tutti_codec_fold_first(s[1]->codec, &v, g, scratch, wire[1]);
                    for (int r = way; r < leaf->ops->rounds; r++)
                        leaf->ops->fold(leaf, &v, r, p, scratch, wire[way]);
                    tutti_codec_sent_rounds(s[way]->codec, &v, p, scratch, wire[way]);
                    leaf->ops->unfold(leaf, &v, scratch, wire[way], y[way]);
                    tutti_codec_after(s[way]->codec, &v, y[way]);
                    free(scratch);
                }
                assert_memory_equal(y[0], y[1], v.count * sizeof(float));
                for (int r = 0; r < SUBJECT_ROUNDS; r++)
                    assert_memory_equal(wire[0][r], wire[1][r], v.count * sizeof(float));
                for (size_t i = 0; i < tutti_plan_count(s[0]->plan); i++) {
                    void *memory[2];
                    const tutti_state *of = tutti_plan_state(s[0]->plan, i, &memory[0]);
                    tutti_plan_state(s[1]->plan, i, &memory[1]);
                    if (of->count > 0 && memcmp(memory[0], memory[1], of->count * tutti_dtype_bytes(of->dtype)) != 0)
                        fail_msg("%s, %zu x %zu, step %d: state %s differs", specs[k], shapes[shape].rows,
                                 shapes[shape].cols, (int)step, of->name);
                }
            }
            for (int way = 0; way < 2; way++) {
                for (int r = 0; r < SUBJECT_ROUNDS; r++)
                    free(wire[way][r]);
                subject_close(s[way]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lossless_codecs_produce_no_residual),
        cmocka_unit_test(residual_is_the_input_minus_the_sent_values),
        cmocka_unit_test(virtual_iterate_matches_uncompressed_training),
        cmocka_unit_test(the_residual_stays_within_its_bound),
        cmocka_unit_test(plain_signs_diverge_and_error_feedback_converges),
        cmocka_unit_test(contractive_codecs_contract_and_no_others_claim_it),
        cmocka_unit_test(ef21_converges_at_the_rate_of_its_theorem),
        cmocka_unit_test(a_flush_delivers_the_whole_residual),
        cmocka_unit_test(codec_memory_matches_the_papers_formulas),
        cmocka_unit_test(parts_are_whole_rows_from_the_end_on),
        cmocka_unit_test(wrapping_and_folding_in_parts_is_bitwise_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
