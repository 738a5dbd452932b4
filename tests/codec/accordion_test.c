/* Accordion over several layers: which level each has when, from norms and rates alone, and what
   that costs. Goal: decisions are a function of the norms and the learning rates, whichever
   gradients have these norms; equal levels touch no bit and no draw; bytes are the formula of the
   levels; four bytes a layer and check are merged; zeros, numbers beyond float and rates that do
   not fall leave a layer low. What codecs and residuals do over a switch is in adapt_test.c.
   Method: norms of each window and layer from a table or drawn; the published rule, computed
   separately in double. */
#include "subject.h"
#include "codec/codec.h"

enum { WORKERS = 3, LAYERS = 4, WINDOWS = 14, EACH = 3 };
static const subject_shape shapes[LAYERS] = { { 12, 20 }, { 1, 50 }, { 10, 10 }, { 1, 300 } };
enum { N = 12 * 20 + 50 + 100 + 300 };

static int level_of(const subject *s, int t)
{
    return tutti_codec_chosen(s->codec, &s->tensors[t]) == s->codec->inner[1];
}

/* A step of all layers; messages are topk's: gives their bytes, of one worker. */
static size_t step_of(subject *const *s, int workers, uint64_t step, float (*g)[N], float (*y)[N])
{
    size_t bytes = 0;

    for (int t = 0; t < s[0]->space.n_tensors; t++) {
        tutti_view v = s[0]->tensors[t];
        float *x[SUBJECT_WORKERS], *out[SUBJECT_WORKERS];
        const tutti_codec *leaf;
        v.step = step;
        leaf = tutti_codec_chosen(s[0]->codec, &v);
        for (int w = 0; w < workers; w++)
            x[w] = g[w] + v.first, out[w] = y[w] + v.first;
        bytes += leaf->ops->rounds > 0 ? leaf->ops->width(leaf, &v, 0) * tutti_dtype_bytes(tutti_codec_number(leaf, &v))
                                       : leaf->ops->bound(leaf, &v);
        subject_exchange_view(s, workers, v, false, x, out);
    }
    return bytes;
}

/* Gradients of one step whose sums over EACH steps have the requested norm, in any direction,
   different for each worker. The mean square over the workers is what counts. */
static void gradients(int workers, const double norm[LAYERS], float (*g)[N], const tutti_view *tensor, uint64_t *seed)
{
    for (int w = 0; w < workers; w++)
        for (int t = 0; t < LAYERS; t++) {
            float *x = g[w] + tensor[t].first;
            double size;
            subject_fill(tensor[t].count, x, 0, seed);
            size = sqrt(subject_norm2(tensor[t].count, x));
            for (size_t i = 0; i < tensor[t].count; i++)
                x[i] = (float)((double)x[i] / size * norm[t]);
        }
}

/* The rule, from what was recorded: critical iff |prev - now| >= eta prev, or there is no prev; and
   all after a fall of the rate, until the next check. */
static void replay(double eta, const double norm[WINDOWS][LAYERS], const double lr[WINDOWS], bool model,
                   int high[WINDOWS][LAYERS])
{
    for (int window = 0; window < WINDOWS; window++)
        for (int t = 0; t < LAYERS; t++) {
            double prev = 0, now = 0;
            for (int l = 0; l < LAYERS && window >= 2; l++)
                if (model || l == t)
                    prev += pow(norm[window - 2][l], 2), now += pow(norm[window - 1][l], 2);
            prev = sqrt(prev), now = sqrt(now);
            high[window][t] =
                window >= 2 && prev > 0 && fabs(prev - now) < eta * prev && lr[window] > 0.5 * lr[window - 1];
        }
}

/* Recorded norms. In each run other gradients lead to them, in one step of each window and in
   no other step; three workers and one; times 1 and times 2^10. Levels and bytes are the
   replay's. */
static void decisions_are_a_function_of_norms_and_rates(void **state)
{
    static const double etas[] = { 0.5, 0.2, 3 };
    static float g[WORKERS][N], y[WORKERS][N];
    uint64_t seed = 1;
    (void)state;

    for (int run = 0; run < 12; run++) {
        const bool model = run % 4 == 3;
        const double eta = etas[run % 3];
        double norm[WINDOWS][LAYERS], lr[WINDOWS];
        int high[WINDOWS][LAYERS], switched = 0;
        char spec[200];
        for (int window = 0; window < WINDOWS; window++)
            /* away from the threshold, so that rounding decides nothing: factors
               of 1, 1.15, 1.8 or 6, up or down */
            for (int t = 0; t < LAYERS; t++)
                norm[window][t] = window == 0 ? 1
                                              : norm[window - 1][t] *
                                                    pow((const double[]){ 1, 1.15, 1.8, 6 }[subject_random(&seed) % 4],
                                                        subject_random(&seed) % 2 ? 1 : -1);
        for (int window = 0; window < WINDOWS; window++)
            lr[window] =
                window == 0 ? 0.1 : lr[window - 1] * (window == 6 ? 0.1 : window == 9 ? 0.9 : window == 10 ? 3 : 1);
        replay(eta, (const double (*)[LAYERS])norm, lr, model, high);
        snprintf(spec, sizeof spec,
                 "accordion(low=topk(ratio=0.5),high=topk(ratio=0.02),unit=step,interval=%d,eta=%g%s)", EACH, eta,
                 model ? ",scope=model" : "");
        for (int again = 0; again < 3; again++) {
            const int workers = again == 2 ? 1 : WORKERS;
            const double by = again == 1 ? 0x1p10 : 1;
            subject *s[WORKERS];
            subject_said h[WORKERS] = { { .n = 0 } };
            size_t bytes = 0, formula = 0;
            for (int w = 0; w < workers; w++) {
                s[w] = subject_open_on(spec, LAYERS, shapes, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
                s[w]->space.workers = workers;
            }
            for (uint64_t step = 0; step < WINDOWS * EACH; step++) {
                const int window = (int)step / EACH;
                const bool check = step > 0 && step % EACH == 0;
                double wanted[LAYERS] = { 0 };
                for (int w = 0; w < workers; w++)
                    h[w].n = 0;
                /* 7: numbers of four bytes, at checks only */
                assert_int_equal(subject_begin(s, workers, step, 0, lr[window], h), check ? (model ? 1 : LAYERS) : 0);
                for (int w = 0; w < workers; w++)
                    for (int t = 0; t < LAYERS; t++)
                        if (level_of(s[w], t) != high[window][t])
                            fail_msg("%s, run %d, %d workers: worker %d has layer %d at level %d in window %d", spec,
                                     run, workers, w, t, level_of(s[w], t), window);
                for (int t = 0; t < LAYERS; t++) {
                    wanted[t] = step % EACH == (uint64_t)(window % EACH) ? by * norm[window][t] : 0;
                    formula += 8 * (size_t)ceil((high[window][t] ? 0.02 : 0.5) * (double)s[0]->tensors[t].count - 1e-9);
                    switched += window > 0 && high[window][t] != high[window - 1][t];
                }
                gradients(workers, wanted, g, s[0]->tensors, &seed);
                bytes += step_of(s, workers, step, g, y);
            }
            assert_int_equal(bytes, formula);
            for (int w = 0; w < workers; w++)
                subject_close(s[w]);
        }
        assert_true(switched >= 3 * EACH * 2); /* in the three runs together there were decisions to make */
    }
}

/* Two equal levels are the codec itself, its draws included, whatever is decided; dense ones are no
   codec at all. */
static void equal_levels_match_the_plain_codec_bitwise(void **state)
{
    static const struct { const char *spec, *plain;
    } rows[] = {
        { "accordion(low=fp32,high=fp32,unit=step,interval=2)", "fp32" },
        { "accordion(low=qsgd(bits=3,bucket=64),high=qsgd(bits=3,bucket=64),unit=step,interval=2)",
          "qsgd(bits=3,bucket=64)" },
        { "accordion(low=nuqsgd,high=nuqsgd,unit=step,interval=3,scope=model)", "nuqsgd" },
        { "accordion(low=wangni,high=wangni,unit=step,interval=2)", "wangni" },
        { "accordion(low=randomk(ratio=0.1),high=randomk(ratio=0.1),unit=step,interval=2)", "randomk(ratio=0.1)" },
    };
    static float g[WORKERS][N], y[2][WORKERS][N];
    uint64_t seed = 2;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (int workers = 1; workers <= WORKERS; workers += 2) {
            subject *s[2][WORKERS];
            int high = 0;
            for (int w = 0; w < workers; w++) {
                s[0][w] = subject_open_on(rows[k].spec, LAYERS, shapes, w, TUTTI_CPU_AVX512),
                s[1][w] = subject_open_on(rows[k].plain, LAYERS, shapes, w, TUTTI_CPU_AVX512);
                s[0][w]->space.workers = workers;
            }
            for (uint64_t step = 0; step < 16; step++) {
                subject_said h[WORKERS] = { { .n = 0 } };
                for (int w = 0; w < workers; w++) {
                    subject_fill(N, g[w], 0, &seed);
                    for (size_t i = 0; i < N; i++)
                        g[w][i] += step / 6 % 2 == 0 ? 1 : 8;
                }
                subject_begin(s[0], workers, step, 0, 0.1, h);
                for (int t = 0; t < LAYERS; t++)
                    high += level_of(s[0][0], t);
                for (int k2 = 0; k2 < 2; k2++)
                    step_of(s[k2], workers, step, g, y[k2]);
                for (int w = 0; w < workers; w++)
                    assert_memory_equal(y[0][w], y[1][w], sizeof y[0][w]);
            }
            assert_true(high > 0 && high < 16 * LAYERS); /* both levels were there */
            for (int w = 0; w < workers; w++)
                subject_close(s[0][w]), subject_close(s[1][w]);
        }
}

static size_t bytes_of(const tutti_codec *c, const tutti_view *v)
{
    size_t bytes = c->ops->rounds == 0 ? c->ops->bound(c, v) : 0;

    for (int round = 0; round < c->ops->rounds; round++)
        bytes += c->ops->width(c, v, round) * tutti_dtype_bytes(tutti_codec_number(c, v));
    return bytes;
}

enum { RUN = 40 };
typedef struct said { int n; char text[RUN][1300]; } said;

/* The gradients are the same whatever is decided. For the run that acts: the saving reported is
   what `low` all the time would have sent, less what was sent. For the dry run: the result is the
   mean of the inputs. */
static void run_with(const char *spec, bool dry, said *heard)
{
    static float g[WORKERS][N], y[WORKERS][N];
    subject *s[WORKERS];
    const tutti_codec *c;
    uint64_t seed = 5;
    size_t saved = 0;

    for (int w = 0; w < WORKERS; w++) {
        s[w] = subject_open_on(spec, LAYERS, shapes, w, TUTTI_CPU_AVX512);
        s[w]->space.workers = WORKERS;
    }
    for (c = s[0]->codec; strcmp(c->ops->name, "accordion") != 0;)
        c = c->inner[0];
    for (uint64_t step = 0; step < RUN; step++) {
        subject_said h[WORKERS] = { { .n = 0 } };
        double norm[LAYERS];
        subject_begin(s, WORKERS, step, 0, step < 31 ? 0.1 : 0.01, h);
        for (int i = 0; i < h[0].n; i++) {
            const char *told = strstr(h[0].text[i], " bytes saved");
            memcpy(heard->text[heard->n++], h[0].text[i], sizeof heard->text[0]);
            while (told != NULL && told[-1] != ' ')
                told--;
            assert_true(dry || told == NULL || strtoull(told, NULL, 10) == saved);
        }
        for (int t = 0; t < LAYERS; t++) {
            const tutti_codec *now = tutti_codec_chosen(s[0]->codec, &s[0]->tensors[t]);
            norm[t] = step / 6 % (uint64_t)(t + 2) == 0 ? 4 : 1;
            if (now == c->inner[1] && bytes_of(now, &s[0]->tensors[t]) < bytes_of(c->inner[0], &s[0]->tensors[t]))
                saved += bytes_of(c->inner[0], &s[0]->tensors[t]) - bytes_of(now, &s[0]->tensors[t]);
        }
        gradients(WORKERS, norm, g, s[0]->tensors, &seed);
        step_of(s, WORKERS, step, g, y);
        for (size_t i = 0; i < N && dry; i++)
            assert_true(fabs((double)y[0][i] - ((double)g[0][i] + (double)g[1][i] + (double)g[2][i]) / WORKERS) < 1e-6);
    }
    assert_true(dry || saved > 0);
    for (int w = 0; w < WORKERS; w++)
        subject_close(s[w]);
}

static void a_dry_run_reports_the_same_decisions(void **state)
{
    static const char *const forms[] = {
        "accordion(low=topk(ratio=0.5),high=topk(ratio=0.02),unit=step,interval=3%s)",
        "ef(accordion(low=powersgd(rank=3,min_compression_rate=1),high=powersgd(rank=1),unit=step,interval=3,scope="
        "model%s))",
        "large(ef(accordion(low=topk(ratio=0.2),high=sign,unit=step,interval=3,norm_source=rank0%s)),min=90)"
    };
    static const char mark[] = " (dry run)";
    static said heard[2];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++) {
        for (int dry = 0; dry < 2; dry++) {
            char spec[240];
            snprintf(spec, sizeof spec, forms[k], dry ? ",dry_run=on" : "");
            heard[dry].n = 0;
            run_with(spec, dry, &heard[dry]);
        }
        assert_true(heard[0].n == 14 && heard[1].n == 14); /* 13 checks and a fall of the rate */
        for (int i = 0; i < 14; i++) {
            char *at = strstr(heard[1].text[i], mark);
            assert_non_null(at);
            memmove(at, at + strlen(mark), strlen(at + strlen(mark)) + 1);
            assert_string_equal(heard[0].text[i], heard[1].text[i]);
        }
    }
}

/* Ranks that change both ways, of each layer at its own times. The columns that both have are the
   same before and after, those that one alone has are what they were; the codec that hands over,
   and layers that stay where they are, keep theirs. What is kept is what was given and not
   delivered, over all switches. */
static void factors_and_residuals_survive_every_switch(void **state)
{
    enum {
        MORE = 4,
        LESS = 2,
        ROWS = 24,
        COLS = 30,
        OTHER_ROWS = 20,
        OTHER_COLS = 18,
        ALL = ROWS * COLS + 40 + OTHER_ROWS * OTHER_COLS,
        STEPS = 60,
        PARTS = 3
    };
    static const subject_shape of[PARTS] = { { ROWS, COLS }, { 1, 40 }, { OTHER_ROWS, OTHER_COLS } };
    /* fp16: the mean's own rounding is not made good */
    static const struct {
        const char *spec;
        double lost;
    } rows[] = { { "", 1e-4 }, { ",ef_rule=aggregated", 1e-4 }, { ",factor_dtype=fp16", 2e-2 } };
    static float g[WORKERS][ALL], y[WORKERS][ALL], before[2][MORE * (COLS + OTHER_COLS)];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        static double given[ALL], delivered[ALL];
        const size_t columns[2] = { MORE, LESS };
        char spec[240];
        subject *s[WORKERS];
        int switched[2] = { 0 };
        uint64_t seed = 21;
        snprintf(spec, sizeof spec,
                 "ef(accordion(low=powersgd(rank=4,min_compression_rate=1%s),high=powersgd(rank=2,min_compression_rate="
                 "1%s),unit=step,interval=2))",
                 rows[k].spec, rows[k].spec);
        memset(given, 0, sizeof given), memset(delivered, 0, sizeof delivered);
        for (int w = 0; w < WORKERS; w++) {
            s[w] = subject_open_on(spec, PARTS, of, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
            s[w]->space.workers = WORKERS;
        }
        for (uint64_t step = 0; step < STEPS; step++) {
            subject_said h[WORKERS] = { { .n = 0 } };
            float *q[2] = { subject_state(s[0], "codec.codec.low.q", TUTTI_SAME),
                            subject_state(s[0], "codec.codec.high.q", TUTTI_SAME) };
            int was[PARTS];
            for (int level = 0; level < 2; level++)
                memcpy(before[level], q[level], columns[level] * (COLS + OTHER_COLS) * sizeof(float));
            for (int t = 0; t < PARTS; t++)
                was[t] = tutti_codec_chosen(s[0]->codec, &s[0]->tensors[t]) == s[0]->codec->inner[0]->inner[1];
            subject_begin(s, WORKERS, step, 0, 0.1, h);
            for (int t = 0; t < PARTS; t += 2) {
                const int is = tutti_codec_chosen(s[0]->codec, &s[0]->tensors[t]) == s[0]->codec->inner[0]->inner[1];
                const size_t cols = t == 0 ? COLS : OTHER_COLS;
                for (int level = 0; level < 2; level++) {
                    const size_t at = t == 0 ? 0 : columns[level] * COLS, from = t == 0 ? 0 : columns[!level] * COLS,
                                 shared = is != was[t] && is == level ? LESS : 0;
                    assert_memory_equal(q[level] + at, shared > 0 ? before[!level] + from : before[level] + at,
                                        (shared > 0 ? shared : columns[level]) * cols * sizeof(float));
                    if (shared > 0)
                        assert_memory_equal(q[level] + at + shared * cols, before[level] + at + shared * cols,
                                            (columns[level] - shared) * cols * sizeof(float));
                }
                if (is != was[t])
                    switched[is]++;
                for (size_t c = 0; c < MORE; c++) /* and every column is a direction */
                    assert_true(subject_norm2(cols, q[0] + (t == 0 ? 0 : MORE * COLS) + c * cols) > 0);
            }
            for (int w = 0; w < WORKERS; w++) {
                for (int t = 0; t < PARTS; t++)
                    subject_fill(s[w]->tensors[t].count, g[w] + s[w]->tensors[t].first, 0, &seed);
                for (size_t i = 0; i < ALL; i++)
                    g[w][i] *= step / 6 % 3 == (i < ROWS * COLS) ? 8 : 1, given[i] += (double)g[w][i] / WORKERS;
            }
            for (int t = 0; t < PARTS; t++) {
                tutti_view v = s[0]->tensors[t];
                float *x[WORKERS], *out[WORKERS];
                v.step = step;
                for (int w = 0; w < WORKERS; w++)
                    x[w] = g[w] + v.first, out[w] = y[w] + v.first;
                subject_exchange_view(s, WORKERS, v, false, x, out);
            }
            for (int w = 1; w < WORKERS; w++) {
                assert_memory_equal(y[w], y[0], sizeof y[0]);
                assert_memory_equal(subject_state(s[w], "codec.codec.low.q", TUTTI_SAME), q[0],
                                    MORE * (COLS + OTHER_COLS) * sizeof(float));
            }
            for (size_t i = 0; i < ALL; i++)
                delivered[i] += (double)y[0][i];
        }
        for (size_t i = 0; i < ALL; i++) {
            double kept = 0;
            for (int w = 0; w < WORKERS; w++)
                kept += (double)subject_state(s[w], "codec.e", TUTTI_OWN_MEAN)[i] / WORKERS;
            if (!(fabs(given[i] - delivered[i] - kept) < rows[k].lost * 8))
                fail_msg("%s: element %zu: given %g, delivered %g, kept %g", spec, i, given[i], delivered[i], kept);
        }
        assert_true(switched[0] >= 4 && switched[1] >= 4);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

/* A layer without gradients, and one whose norm is beyond float, are low at every check, and the
   report shows why; the other layers are not touched. */
static void layers_with_zero_or_infinite_norm_stay_low(void **state)
{
    static float g[WORKERS][N], y[WORKERS][N];
    subject *s = subject_open_on("accordion(low=topk(ratio=0.5),high=topk(ratio=0.02),unit=step,interval=2,eta=0.9)",
                                 LAYERS, shapes, 0, TUTTI_CPU_AVX512);
    uint64_t seed = 3;
    (void)state;

    s->space.workers = 1;
    for (uint64_t step = 0; step < 12; step++) {
        const double norm[LAYERS] = { 1, 0, 0.5, 1 };
        subject_said h = { .n = 0 };
        subject_begin(&s, 1, step, 0, 0.1, &h);
        for (int t = 0; t < LAYERS; t++)
            assert_int_equal(level_of(s, t), step >= 4 && (t == 0 || t == 2));
        if (step >= 4 && step % 2 == 0) {
            assert_int_equal(h.n, 1);
            assert_non_null(strstr(h.text[0], "2 of 4 high"));
            assert_non_null(strstr(h.text[0], "1: 0 -> 0 low"));
            assert_non_null(strstr(h.text[0], "3: inf -> inf low"));
        }
        gradients(1, norm, g, s->tensors, &seed);
        for (size_t i = 0; i < s->tensors[3].count; i++)
            g[0][s->tensors[3].first + i] *= 3e25f; /* finite, and its square is not */
        step_of(&s, 1, step, g, y);
    }
    subject_close(s);
}

/* Neither a warm-up nor a cosine is a fall of the rate, except for the cosine's last three steps,
   whose rates are as 9 : 4 : 1; a step to a half is. */
static void slow_learning_rate_changes_do_not_count_as_drops(void **state)
{
    enum { STEPS = 120 };
    static float g[WORKERS][N], y[WORKERS][N];
    uint64_t seed = 4;
    (void)state;

    /* a warm-up of 20 steps and then: a cosine to 0; nothing; a half at step 60 */
    for (int kind = 0; kind < 3; kind++) {
        subject *s =
            subject_open_on("accordion(low=topk(ratio=0.5),high=topk(ratio=0.02),unit=step,interval=5,eta=0.9)", LAYERS,
                            shapes, 0, TUTTI_CPU_AVX512);
        const double norm[LAYERS] = { 1, 1, 1, 1 };
        s->space.workers = 1;
        for (uint64_t step = 0; step < STEPS; step++) {
            const double t = (double)step, cosine = 0.05 * (1 + cos(3.14159265358979 * (t - 20) / (STEPS - 20))),
                         after = kind == 0 ? cosine : kind == 1 || step < 60 ? 0.1 : 0.05,
                         lr = step < 20 ? 0.1 * (t + 1) / 20 : after;
            subject_said h = { .n = 0 };
            subject_begin(&s, 1, step, 0, lr, &h);
            if (kind != 0 || step < STEPS - 3)
                for (int k = 0; k < LAYERS; k++)
                    assert_int_equal(level_of(s, k), step >= 10 && !(kind == 2 && step >= 60 && step < 65));
            gradients(1, norm, g, s->tensors, &seed);
            if (step % 5 != 0) /* each window has its one gradient */
                memset(g, 0, sizeof g);
            step_of(&s, 1, step, g, y);
        }
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_a_function_of_norms_and_rates),
        cmocka_unit_test(equal_levels_match_the_plain_codec_bitwise),
        cmocka_unit_test(a_dry_run_reports_the_same_decisions),
        cmocka_unit_test(factors_and_residuals_survive_every_switch),
        cmocka_unit_test(layers_with_zero_or_infinite_norm_stay_low),
        cmocka_unit_test(slow_learning_rate_changes_do_not_count_as_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
