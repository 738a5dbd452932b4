/* Codecs that adapt themselves: what workers of ALQ, AMQ and Accordion merge (mixture_test.c: the
   mathematics). Goal: levels are on all workers the same bits, and change at the steps of the
   schedule only. Method: workers in one process, whose numbers the test sums. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "codec/mixture.h"
#include "codec/codec.h"

enum { WORKERS = 3 };

/* No update, no difference: until a codec fits its levels it sends the bytes of one that never
   does. */
static void messages_before_the_first_fit_match_a_fixed_codec(void **state)
{
    enum { LONG = 3000 };
    static const char *const pairs[][2] = {
        { "alq(bucket=256,first=6,second=9,every=20,initial=powers)",
          "alq(bucket=256,first=0,second=0,every=0,initial=powers)" },
        { "amq(bits=4,bucket=128,first=6,second=9,every=20,initial=powers)",
          "amq(bits=4,bucket=128,first=0,second=0,every=0,initial=powers)" },
    };
    static float x[LONG];
    uint64_t seed = 12;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(pairs); k++) {
        subject *s[2] = { subject_open(pairs[k][0], LONG), subject_open(pairs[k][1], LONG) };
        subject_said h[2] = { { .n = 0 } };
        s[0]->space.workers = s[1]->space.workers = 1;
        for (uint64_t step = 0; step < 9; step++) {
            uint8_t *m[2];
            size_t bytes[2];
            subject_fill(LONG, x, 1, &seed);
            for (int w = 0; w < 2; w++) {
                const tutti_view v = subject_view(s[w], step);
                subject_begin(&s[w], 1, step, 0, 0.1, &h[w]);
                m[w] = subject_encode(s[w], &v, x, &bytes[w]);
            }
            assert_int_equal(bytes[0], bytes[1]);
            assert_int_equal(memcmp(m[0], m[1], bytes[0]) == 0, step < 6);
            free(m[0]), free(m[1]);
        }
        assert_int_equal(h[1].n, 0);
        subject_close(s[0]), subject_close(s[1]);
    }
}

static double loss_of(subject *s, uint64_t step, const float *x, float *y, int draws)
{
    double loss = 0;

    for (int k = 0; k < draws; k++) {
        subject_round_trip(s, step + 1000 + (uint64_t)k, x, y);
        loss += subject_loss(s->tensor.count, x, y) / draws;
    }
    return loss;
}

static void workers_fit_equal_levels_at_the_scheduled_steps(void **state)
{
    static const char *const specs[] = {
        "alq(bucket=512,first=3,initial=powers,second=7,every=10)",
        "amq(bucket=512,first=3,initial=powers,second=7,every=10)",
        "alq(bucket=512,first=3,initial=powers,second=7,every=10,fit=single)",
        "alq(bucket=512,first=3,initial=powers,second=7,every=10,variant=gd,norm=max)",
        "alq(bits=4,bucket=256,first=3,initial=powers,second=7,every=10,zero_level=on,coding=huffman,components=4)",
        "amq(bits=4,bucket=1024,first=3,initial=powers,second=7,every=10,norm=max,fit=single)",
    };
    enum { LONG = 512 * 12 + 100 };
    static float x[WORKERS][LONG], y[LONG];
    uint64_t seed = 4;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        subject *s[WORKERS];
        subject_said h[WORKERS] = { { .n = 0 } };
        const size_t levels = strstr(specs[k], "bits=4") != NULL ? 16 : 8;
        double before = 0, after;
        for (int w = 0; w < WORKERS; w++) {
            s[w] = subject_open_as(specs[k], 1, LONG, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
            s[w]->space.workers = WORKERS;
        }
        for (uint64_t step = 0; step <= 22; step++) {
            /* falls by half before step 15: levels are fitted before step 16 */
            const double lr = step < 15 ? 0.1 : 0.05;
            const bool due = step == 3 || step == 7 || step == 10 || step == 20 || step == 16;
            const float first = subject_state(s[0], "codec.levels", TUTTI_SAME)[1];
            const int said = h[0].n;
            const size_t numbers = subject_begin(s, WORKERS, step, 0, lr, h);
            assert_int_equal(numbers > 0, due);
            assert_int_equal(h[0].n - said, due);
            assert_true(due || subject_state(s[0], "codec.levels", TUTTI_SAME)[1] == first);
            for (int w = 1; w < WORKERS; w++) {
                assert_memory_equal(subject_state(s[w], "codec.levels", TUTTI_SAME),
                                    subject_state(s[0], "codec.levels", TUTTI_SAME), levels * sizeof(float));
                assert_true(!due || strcmp(h[w].text[said], h[0].text[said]) == 0);
            }
            if (due) {
                double from, to;
                unsigned long long hash;
                const float *level = subject_state(s[0], "codec.levels", TUTTI_SAME);
                assert_int_equal(sscanf(strstr(h[0].text[said], "psi"), "psi %lf -> %lf, %*d buckets, levels %llx",
                                        &from, &to, &hash),
                                 3);
                assert_int_equal(hash, tutti_hash(level, levels * sizeof *level));
                assert_true(to <= from && (step != 3 || to < from)); /* to fall further it has to find new gradients */
                assert_true(level[0] == -1 && level[levels - 1] == 1 &&
                            (strstr(specs[k], "zero_level") == NULL || level[levels / 2] == 0));
            }
            for (int w = 0; w < WORKERS; w++) {
                tutti_view v = subject_view(s[w], step);
                size_t bytes;
                subject_fill(LONG, x[w], step < 12 ? 0 : 1, &seed);
                free(subject_encode(s[w], &v, x[w], &bytes));
            }
            if (step == 0)
                before = loss_of(s[0], step, x[0], y, 20);
        }
        subject_fill(LONG, x[0], 0, &seed);
        { /* what a fit to the same kind of gradients saves on the wire */
            subject_said again[WORKERS] = { { .n = 0 } };
            for (uint64_t step = 29; step <= 30; step++) {
                subject_begin(s, WORKERS, step, 0, 0.05, again);
                for (int w = 0; w < WORKERS; w++) {
                    tutti_view v = subject_view(s[w], step);
                    size_t bytes;
                    free(subject_encode(s[w], &v, x[0], &bytes));
                }
            }
        }
        after = loss_of(s[0], 30, x[0], y, 20);
        if (!(after < before))
            fail_msg("%s: loses %g with the first levels and %g with fitted ones", specs[k], before, after);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

/* sum N^2 (l_(j+1) - r) (r - l_j), and the expectation of the objective on the fitted distribution.
   */
static void rounding_variance_matches_the_papers_formula(void **state)
{
    enum { DIM = 512, K = 4000 };
    float x[DIM], y[DIM];
    uint64_t seed = 5;
    (void)state;

    for (int which = 0; which < 3; which++) {
        subject *s = subject_open((const char *const[]){ "alq(bucket=512)", "alq(bits=4,bucket=512,norm=max)",
                                                         "amq(bits=2,bucket=512)" }[which],
                                  DIM);
        const int n = which == 1 ? 16 : which == 2 ? 4 : 8;
        const float *level = subject_state(s, "codec.levels", TUTTI_SAME);
        double wanted = 0, scale, loss;
        subject_fill(DIM, x, 0, &seed);
        scale = sqrt(subject_norm2(DIM, x));
        for (size_t i = 0; i < DIM && which == 1; i++)
            scale = i == 0 ? fabs((double)x[0]) : fmax(scale, fabs((double)x[i]));
        for (size_t i = 0; i < DIM; i++) {
            const double r = (double)x[i] / scale;
            int j = 0;
            while (j + 2 < n && r >= (double)level[j + 1])
                j++;
            wanted += scale * scale * ((double)level[j + 1] - r) * (r - (double)level[j]);
        }
        loss = loss_of(s, 0, x, y, K);
        /* a sum over 512 elements, averaged 4000 times: the standard error is some 0.1 % */
        if (fabs(loss / wanted - 1) > 0.01)
            fail_msg("%d: lost %g, expected %g", which, loss, wanted);
        subject_close(s);
    }
}

/* Norm, mean and deviation of each whole bucket; with norm=max without the elements that are the
   norm. Incomplete buckets are skipped. */
static void sampled_bucket_statistics_match_the_papers_formulas(void **state)
{
    enum { BUCKET = 64, LONG = 4 * BUCKET + 10 };
    float x[LONG];
    uint64_t seed = 10;
    (void)state;

    for (int l2 = 0; l2 < 2; l2++) {
        subject *s = subject_open(l2 ? "alq(bucket=64,first=2)" : "alq(bucket=64,first=2,norm=max)", LONG);
        subject_said h = { .n = 0 };
        const float *of = subject_state(s, "codec.buckets", TUTTI_OWN_ZERO);
        tutti_view v = subject_view(s, 1);
        size_t bytes;
        subject_fill(LONG, x, 0, &seed);
        x[70] = 9, x[90] = -9;
        subject_begin(&s, 1, 1, 0, 0.1, &h);
        v.stage = 1; /* what an owner encodes again is no sample */
        free(subject_encode(s, &v, x, &bytes));
        assert_true(of[0] == 0);
        v.stage = 0;
        free(subject_encode(s, &v, x, &bytes));
        for (size_t b = 0; b < 5; b++, of += 3) {
            double norm = 0, sum = 0, squares = 0, n = 0;
            for (size_t i = b * BUCKET; i < (b + 1) * BUCKET && b < 4; i++)
                norm = l2 ? sqrt(norm * norm + (double)x[i] * x[i]) : fmax(norm, fabs((double)x[i]));
            for (size_t i = b * BUCKET; i < (b + 1) * BUCKET && b < 4; i++)
                if (l2 || fabs((double)x[i]) != norm)
                    sum += x[i] / norm, squares += (double)x[i] * x[i] / norm / norm, n++;
            assert_true(n == (b == 4 ? 0 : l2 ? 64 : b == 1 ? 62 : 63));
            assert_true(fabs((double)of[0] - norm) <= 1e-6 * norm &&
                        (n == 0 || (fabs((double)of[1] - sum / n) < 1e-6 &&
                                    fabs((double)of[2] - sqrt((squares - sum * sum / n) / (n - 1))) < 1e-6)));
        }
        subject_close(s);
    }
}

static void unfittable_gradients_keep_the_levels_and_are_reported(void **state)
{
    float x[900] = { 0 };
    uint64_t seed = 6;
    (void)state;

    for (int kind = 0; kind < 3; kind++) { /* shorter than two buckets; all zero; not finite */
        subject *s = subject_open("alq(bucket=512,first=2,second=0,every=0)", 900 * (kind == 0 ? 1 : 1));
        subject_said h = { .n = 0 };
        float was[8];
        tutti_view v = subject_view(s, 1);
        size_t bytes;
        subject_fill(900, x, 0, &seed);
        for (size_t i = 0; i < 900 && kind == 1; i++)
            x[i] = 0;
        x[5] = kind == 2 ? NAN : x[5];
        s->space.workers = 1;
        memcpy(was, subject_state(s, "codec.levels", TUTTI_SAME), sizeof was);
        subject_begin(&s, 1, 1, 0, 0.1, &h);
        free(subject_encode(s, &v, x, &bytes));
        subject_begin(&s, 1, 2, 0, 0.1, &h);
        assert_memory_equal(was, subject_state(s, "codec.levels", TUTTI_SAME), sizeof was);
        assert_int_equal(h.n, 1);
        assert_non_null(strstr(h.text[0], "levels stay: the gradients have "));
        subject_close(s);
    }
}

/* initial=normal: before step 0 and no other, levels are those of least Psi under a normal
   distribution whose mean square is that of a bucket's normalised elements, identical on all
   workers; a normal gradient then loses what Psi predicts, and initial=powers, which loses a
   hundred times that with the defaults, draws a warning with the number. */
static void initial_levels_are_optimal_for_normal_buckets(void **state)
{
    enum { LONG = 3 * 8192 };
    static const struct { const char *spec; double deviation;
    } rows[] = {
        { "alq(initial=%s)", 1 / 90.50966799187809 },
        { "amq(initial=%s)", 1 / 90.50966799187809 },
        { "alq(bits=4,bucket=512,zero_level=on,initial=%s)", 1 / 22.627416997969522 },
        { "alq(bucket=8192,norm=max,initial=%s)", 0.23556 },
    };
    static float x[LONG], y[LONG];
    uint64_t seed = 33;
    (void)state;

    subject_fill(LONG, x, 0, &seed);
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        double lost[2], least[2] = { 0 };
        for (int powers = 0; powers < 2; powers++) {
            char spec[80];
            subject *s[2];
            subject_said h[2] = { { .n = 0 } };
            const int levels = strstr(rows[k].spec, "bits=4") != NULL ? 16 : 8;
            double level[16], said = 0;
            tutti_codec_normal part = { 1, 0, rows[k].deviation, 0 };
            tutti_codec_mixture m = { .n = 1, .of = &part };
            snprintf(spec, sizeof spec, rows[k].spec, powers ? "powers" : "normal");
            for (int w = 0; w < 2; w++) {
                s[w] = subject_open_as(spec, 1, LONG, w, TUTTI_CPU_AVX512);
                s[w]->space.workers = 2;
            }
            assert_int_equal(subject_begin(s, 2, 0, 0, 0.1, h), powers ? 0 : levels + 3);
            assert_memory_equal(subject_state(s[0], "codec.levels", TUTTI_SAME),
                                subject_state(s[1], "codec.levels", TUTTI_SAME), (size_t)levels * sizeof(float));
            for (int l = 0; l < levels; l++)
                level[l] = (double)subject_state(s[0], "codec.levels", TUTTI_SAME)[l];
            assert_true(tutti_codec_mixture_make(&m));
            least[powers] = tutti_codec_psi(&m, levels, level) / (part.deviation * part.deviation);
            for (int j = 1; j < levels - 1 && !powers && rows[k].spec[1] == 'l'; j++) /* no level is better elsewhere */
                assert_true(level[j] == 0 || fabs(tutti_codec_psi_slope(&m, level, j)) < 1e-5 * part.deviation);
            lost[powers] = loss_of(s[0], 0, x, y, 20) / subject_norm2(LONG, x);
            assert_true(fabs(lost[powers] / least[powers] - 1) < 0.1);
            assert_true(h[0].warning[0] == 0 ||
                        sscanf(strstr(h[0].warning, "rounding adds about"), "rounding adds about %lf", &said) == 1);
            assert_true(least[powers] <= 1.25 ? said == 0 : fabs(said / least[powers] - 1) < 0.01);
            assert_int_equal(subject_begin(s, 2, 1, 0, 0.1, h), 0);
            subject_close(s[0]), subject_close(s[1]);
        }
        assert_true(least[0] < least[1] && lost[0] < lost[1]);
        assert_true(k > 1 || (least[1] > 100 && least[0] < 1.25));
    }
}

/* ---- accordion ---- */
enum { ROWS = 20, COLS = 30, N = ROWS * COLS };
static int level_of(subject *s)
{
    const tutti_view v = subject_view(s, 0);

    return tutti_codec_chosen(s->codec, &v) == s->codec->inner[1];
}

/* Decisions are a function of norms and rates, as the paper has them; all workers make the same
   ones; what is sent is the chosen codec's. */
static void accordion_switches_levels_by_gradient_norms(void **state)
{
    /* windows of 5 steps: size of their gradients; the level in them */
    static const struct { const char *spec; double size[8], lr[8]; int high[8]; } rows[] = {
        { "accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),unit=step,interval=5)",
          { 1, 1, 1.4, 1.2, 3, 3, 2.9, 0.1 }, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0, 0, 1, 1, 1, 0, 1, 1 } },
        { "accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),unit=step,interval=5,scope=model,eta=0.1)",
          { 1, 1, 1.4, 1.35, 1.3, 1.3, 1.3, 1.3 }, { 1, 1, 1, 1, 1, 1, 0.5, 0.49 }, { 0, 0, 1, 0, 1, 1, 0, 1 } },
        { "accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),unit=step,interval=5,eta=0)",
          { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0 } },
        /* a rate that rises is no reason */
        { "accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),unit=step,interval=5,eta=1e9)",
          { 1, 50, 1, 9, 0, 1, 1, 1 }, { 1, 1, 2, 4, 4, 4, 2, 2 }, { 0, 0, 1, 1, 1, 1, 0, 1 } },
    };
    static float g[WORKERS][N], y[WORKERS][N];
    float shape[N];
    uint64_t seed = 7;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (int big = 0; big < 2; big++) { /* a thousand times the loss: the same decisions */
            subject *s[WORKERS];
            subject_said h[WORKERS] = { { .n = 0 } };
            subject_fill(N, shape, 0, &seed);
            for (int w = 0; w < WORKERS; w++)
                s[w] = subject_open_as(rows[k].spec, ROWS, COLS, w, TUTTI_CPU_AVX512), s[w]->space.workers = WORKERS;
            for (uint64_t step = 0; step < 40; step++) {
                const int window = (int)step / 5;
                const size_t numbers = subject_begin(s, WORKERS, step, 0, rows[k].lr[window], h);
                assert_int_equal(numbers, step > 0 && step % 5 == 0); /* 4 bytes a layer and check */
                for (int w = 0; w < WORKERS; w++) {
                    if (level_of(s[w]) != rows[k].high[window])
                        fail_msg("%s: worker %d in window %d: level %d; %s", rows[k].spec, w, window, level_of(s[w]),
                                 h[w].n > 0 ? h[w].text[h[w].n - 1] : "");
                    for (size_t i = 0; i < N; i++) /* all count */
                        g[w][i] = (float)(rows[k].size[window] * (big ? 1000 : 1) * (double)shape[i] *
                                          (w == 0   ? 0.7
                                           : w == 1 ? 1.3
                                                    : 1));
                }
                subject_exchange(s, WORKERS, step, false, (float *[]){ g[0], g[1], g[2] },
                                 (float *[]){ y[0], y[1], y[2] });
                for (int w = 1; w < WORKERS; w++)
                    assert_memory_equal(y[0], y[w], sizeof y[0]);
            }
            for (int w = 0; w < WORKERS; w++) {
                assert_true(h[w].n >= 7 && strcmp(h[w].text[3], h[0].text[3]) == 0);
                subject_close(s[w]);
            }
        }
}

static void accordion_measures_norms_only_in_every_third_epoch(void **state)
{
    static float g[N], y[N];
    uint64_t seed = 8;
    subject *s = subject_open_as("accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),interval=3,eta=0.1)", ROWS, COLS,
                                 0, TUTTI_CPU_AVX512);
    subject_said h = { .n = 0 };
    (void)state;

    subject_fill(N, g, 0, &seed);
    /* epochs of four steps, the fourth of eight: 0, 3 and 6 are added up;
       checks after each; norms are of a step */
    for (uint64_t step = 0; step < 36; step++) {
        const uint64_t epoch = step < 20 ? (step < 12 ? step / 4 : 3) : step / 4 - 1;
        const size_t numbers = subject_begin(&s, 1, step, epoch, 0.1, &h);
        assert_int_equal(numbers, step == 4 || step == 20 || step == 32);
        assert_int_equal(level_of(s), epoch >= 4);
        if (epoch % 3 != 0)
            g[0] = 1000; /* not looked at */
        else
            g[0] = 0.1f;
        subject_exchange(&s, 1, step, false, (float *[]){ g }, (float *[]){ y });
    }
    g[3] = NAN; /* not seen */
    subject_begin(&s, 1, 36, 9, 0.1, &h);
    subject_exchange(&s, 1, 36, false, (float *[]){ g }, (float *[]){ y });
    for (size_t i = 0; i < N; i++)
        assert_true(isfinite(subject_state(s, "codec.sum", TUTTI_OWN_ZERO)[i]));
    subject_close(s);
}

/* low = high: the bits of the codec itself. A residual outside is one for both levels: nothing is
   lost over switches. A codec that learns continues. */
/* With an interval as long as the run, or half of it, nothing is ever compared: that is reported
   before the first step, once; the run continues as it is. */
static void accordion_warns_when_it_will_never_switch(void **state)
{
    static const struct { const char *options; uint64_t steps, epochs; bool said; } rows[] = {
        { "interval=10", 800, 11, true }, { "interval=10", 800, 12, false }, { "interval=10", 0, 0, false },
        { "unit=step,interval=50", 100, 1, true }, { "unit=step,interval=50", 101, 1, false },
        { "unit=step,interval=50,eta=0", 100, 1, false },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        char spec[160];
        subject *s;
        subject_said h = { .n = 0 };
        snprintf(spec, sizeof spec, "accordion(low=topk(ratio=0.5),high=topk(ratio=0.01),%s)", rows[k].options);
        s = subject_open(spec, 600);
        for (uint64_t step = 0; step < 3; step++) {
            const tutti_codec_moment m = {
                .step = step, .steps = rows[k].steps, .epochs = rows[k].epochs, .lr = 0.1, .say = subject_hear,
                .with = &h,
            };
            h.warning[0] = 0;
            assert_int_equal(tutti_codec_begin(s->codec, &m, NULL), TUTTI_OK);
            assert_int_equal(strstr(h.warning, "nothing is compressed more in this run") != NULL,
                             step == 0 && rows[k].said);
        }
        subject_close(s);
    }
}

static void accordion_preserves_codec_results_and_residuals(void **state)
{
    static float g[2][N], y[2][N], q[4 * COLS];
    double given[N] = { 0 }, delivered[N] = { 0 };
    uint64_t seed = 9;
    subject *s[2] = { subject_open_as("ef(accordion(low=powersgd(rank=2),high=powersgd(rank=2),unit=step,interval=3))",
                                      ROWS, COLS, 0, TUTTI_CPU_AVX512),
                      subject_open_as("ef(powersgd(rank=2))", ROWS, COLS, 0, TUTTI_CPU_AVX512) };
    subject *e = subject_open_as("ef(accordion(low=topk(ratio=0.3),high=sign,unit=step,interval=4,eta=0.2))", ROWS,
                                 COLS, 0, TUTTI_CPU_AVX512),
            *p;
    subject_said h[2] = { { .n = 0 } };
    int switched = 0, was = 0;
    (void)state;

    /* drawn by tensor: the same anyway */
    memcpy(subject_state(s[0], "codec.codec.high.q", TUTTI_SAME), subject_state(s[1], "codec.codec.q", TUTTI_SAME),
           2 * COLS * sizeof(float));
    for (uint64_t step = 0; step < 20; step++) {
        subject_fill(N, g[0], 0, &seed);
        h[0].n = 0;
        subject_begin(&s[0], 1, step, 0, step < 10 ? 0.1 : 0.01, h);
        for (int k = 0; k < 2; k++)
            subject_exchange(&s[k], 1, step, false, (float *[]){ g[0] }, (float *[]){ y[k] });
        assert_memory_equal(y[0], y[1], sizeof y[0]);
    }
    h[0].n = 0;
    for (uint64_t step = 0; step < 40; step++) {
        tutti_view v = subject_view(e, step);
        subject_fill(N, g[0], 0, &seed);
        for (size_t i = 0; i < N; i++)
            g[0][i] *= step / 12 % 2 == 0 ? 1 : 3;
        h[0].n = h[0].n > 4 ? 0 : h[0].n;
        subject_begin(&e, 1, step, 0, 0.1, h);
        switched += (tutti_codec_chosen(e->codec, &v) == e->codec->inner[0]->inner[1]) != was;
        was = tutti_codec_chosen(e->codec, &v) == e->codec->inner[0]->inner[1];
        subject_exchange(&e, 1, step, false, (float *[]){ g[0] }, (float *[]){ y[0] });
        for (size_t i = 0; i < N; i++)
            given[i] += (double)g[0][i], delivered[i] += (double)y[0][i];
    }
    assert_true(switched >= 4);
    for (size_t i = 0; i < N; i++)
        assert_true(fabs(given[i] - delivered[i] - (double)subject_state(e, "codec.e", TUTTI_OWN_MEAN)[i]) < 1e-4);
    /* From rank 4 to rank 2 the first columns stay. */
    p = subject_open_as("accordion(low=powersgd(rank=4),high=powersgd(rank=2),unit=step,interval=2,eta=1e9)", ROWS,
                        COLS, 0, TUTTI_CPU_AVX512);
    h[0].n = 0;
    for (uint64_t step = 0; step <= 4; step++) {
        memcpy(q, subject_state(p, "codec.low.q", TUTTI_SAME), sizeof q);
        subject_begin(&p, 1, step, 0, 0.1, h);
        if (step == 4) {
            assert_int_equal(level_of(p), 1);
            assert_memory_equal(subject_state(p, "codec.high.q", TUTTI_SAME), q, 2 * COLS * sizeof(float));
        }
        subject_fill(N, g[0], 0, &seed);
        subject_exchange(&p, 1, step, false, (float *[]){ g[0] }, (float *[]){ y[0] });
    }
    subject_close(s[0]), subject_close(s[1]), subject_close(e), subject_close(p);
}

static tutti_status no_sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    (void)numbers;
    ++*(int *)with;
    return tutti_fail(err, TUTTI_ERR_PEER, 0, "worker 1 has gone, and with it %zu numbers", n);
}

/* tutti_codec_begin reaches codecs inside of wrappers, asks for sums at their
   steps only, and says whose failed. */
static void a_failed_sum_names_its_codec(void **state)
{
    int sums = 0;
    float x[1024] = { 1 };
    subject *s = subject_open("accordion(low=alq(bucket=512,first=2,second=0,every=0,initial=powers),high=alq(bits=2,"
                              "first=0,second=0,every=0,initial=powers))",
                              1024);
    tutti_codec *outer = s->codec;
    tutti_codec_moment m = { .step = 0, .lr = 0.1, .sum = no_sum, .with = &sums };
    tutti_error err = { 0 };
    (void)state;

    assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_OK);
    m.step = 1;
    assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_OK);
    s->codec = outer->inner[0];
    subject_round_trip(s, 1, x, x);
    s->codec = outer;
    m.step = 2;
    assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text,
                        "codec 'alq': merging 768 numbers before step 2: worker 1 has gone, and with it 768 numbers");
    assert_int_equal(sums, 1);
    subject_close(s);
}

/* Levels that cannot be what a run saved are refused by name before anything is rounded to
   them. */
static void invalid_restored_levels_are_rejected(void **state)
{
    int sums = 0;
    subject *s = subject_open("large(amq(bits=2),min=1)", 1024);
    float *level = subject_state(s, "codec.codec.levels", TUTTI_SAME), kept;
    const tutti_codec_moment m = { .step = 7, .lr = 0.1, .sum = no_sum, .with = &sums };
    tutti_error err = { 0 };
    (void)state;

    assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_OK);
    for (int l = 0; l < 4; l++) {
        kept = level[l];
        level[l] = l % 2 == 0 ? NAN : -2;
        assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, "codec 'amq', before step 7: state 'codec.codec.levels' does not ascend from -1 "
                                      "to 1, so it is not what was saved; resume from an earlier checkpoint");
        level[l] = kept;
    }
    assert_int_equal(tutti_codec_begin(s->codec, &m, &err), TUTTI_OK);
    assert_int_equal(sums, 0);
    subject_close(s);
}

/* Which matrices are too small is reported once, before step 0. Nothing is reported of vectors
   and of what is excluded by name: there it is expected. */
static void uncompressed_small_matrices_are_reported_once(void **state)
{
    static const subject_shape shapes[] = { { 32, 9 }, { 1, 33 }, { 3, 50 }, { 60, 50 } };
    static const struct { const char *spec, *said; } rows[] = {
        { "large(sign,min=1000)",
          "large: 2 of 3 matrices, 438 elements together, are smaller than min, 1000, and travel as fp32; a "
          "smaller min encodes them" },
        { "large(sign,min=200,small=fp16)",
          "large: 1 of 3 matrices, 150 elements together, are smaller than min, 200, and travel as fp16; a smaller "
          "min encodes them" },
        { "large(sign,min=100)", "" },
    };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open_on(rows[k].spec, (int)TUTTI_LENGTH(shapes), shapes, 0, TUTTI_CPU_AVX512);
        subject_said h = { .n = 0 };
        for (uint64_t step = 0; step < 3; step++) {
            assert_int_equal(subject_begin(&s, 1, step, 0, 0.1, &h), 0);
            assert_string_equal(h.warning, step == 0 ? rows[k].said : "");
            h.warning[0] = 0;
        }
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_before_the_first_fit_match_a_fixed_codec),
        cmocka_unit_test(workers_fit_equal_levels_at_the_scheduled_steps),
        cmocka_unit_test(rounding_variance_matches_the_papers_formula),
        cmocka_unit_test(sampled_bucket_statistics_match_the_papers_formulas),
        cmocka_unit_test(unfittable_gradients_keep_the_levels_and_are_reported),
        cmocka_unit_test(initial_levels_are_optimal_for_normal_buckets),
        cmocka_unit_test(accordion_switches_levels_by_gradient_norms),
        cmocka_unit_test(accordion_measures_norms_only_in_every_third_epoch),
        cmocka_unit_test(accordion_warns_when_it_will_never_switch),
        cmocka_unit_test(accordion_preserves_codec_results_and_residuals),
        cmocka_unit_test(a_failed_sum_names_its_codec),
        cmocka_unit_test(invalid_restored_levels_are_rejected),
        cmocka_unit_test(uncompressed_small_matrices_are_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
