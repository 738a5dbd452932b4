/* Wrappers that feed back: ef's momentum, ef21, dgc; and the warm-up of topk. Goal: what is held
   back is conserved, estimates follow the papers, at both ends of the way; nothing that is not
   finite stays. Method: workers in one process; the recursions of the papers written out again;
   small problems that distinguish methods. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "kernels/codes.h"

enum { WORKERS = 4, N = 600 };

static void open_all(subject **s, const char *spec)
{
    for (int w = 0; w < WORKERS; w++)
        s[w] = subject_open_as(spec, 20, N / 20, w, TUTTI_CPU_AVX512);
}

static void close_all(subject **s)
{
    for (int w = 0; w < WORKERS; w++)
        subject_close(s[w]);
}

#define ROW(x) ((float *[]){ x[0], x[1], x[2], x[3] })

/* The sum of what all received and all still keep is what they gave: with momentum, what momentum
   makes of it; and with the owner's residual in the second message. */
static void momentum_before_the_codec_is_conserved(void **state)
{
    static const struct { const char *spec; bool nesterov, again; } rows[] = {
        { "ef(topk(ratio=0.05),momentum=0.9)",           false, false },
        { "ef(sign,momentum=0.5,nesterov=on)",           true,  false },
        { "ef(topk(ratio=0.05),server=on,momentum=0.9)", false, true },
        { "ef(topk(ratio=0.1),server=on)",               false, true },
        { "ef(sign,server=on)",                          false, true },
    };
    static float g[WORKERS][N], y[WORKERS][N];
    static double b[WORKERS][N], given[N], delivered[N];
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        const double m = strstr(rows[k].spec, "0.9") != NULL        ? (double)0.9f
                         : strstr(rows[k].spec, "momentum") != NULL ? 0.5
                                                                    : 0;
        subject *s[WORKERS];
        memset(b, 0, sizeof b), memset(given, 0, sizeof given), memset(delivered, 0, sizeof delivered);
        open_all(s, rows[k].spec);
        for (uint64_t step = 0; step < 50; step++) {
            for (int w = 0; w < WORKERS; w++) {
                subject_fill(N, g[w], 0, &seed);
                for (size_t i = 0; i < N; i++) {
                    b[w][i] = m * b[w][i] + (double)g[w][i];
                    given[i] += (rows[k].nesterov ? (double)g[w][i] + m * b[w][i] : b[w][i]) / WORKERS;
                }
            }
            subject_exchange(s, WORKERS, step, rows[k].again, ROW(g), ROW(y));
            for (size_t i = 0; i < N; i++)
                delivered[i] += (double)y[0][i];
        }
        for (size_t i = 0; i < N; i++) {
            double e = rows[k].again ? (double)subject_state(s[0], "codec.owner", TUTTI_OWN_SUM)[i] : 0;
            for (int w = 0; w < WORKERS; w++)
                e += (double)subject_state(s[w], "codec.e", TUTTI_OWN_MEAN)[i] / WORKERS;
            if (!(fabs(given[i] - delivered[i] - e) < 1e-3)) /* sums of up to 300 in floats */
                fail_msg("%s, element %zu: given %g, delivered %g, kept %g", rows[k].spec, i, given[i], delivered[i],
                         e);
        }
        close_all(s);
    }
}

/* h = mean h_w on every worker after every step; |g - h_w|^2 contracts at a fixed point; h becomes
   the mean of the gradients, also by two stages. */
static void ef21_follows_the_gradients(void **state)
{
    static const struct { const char *spec; bool again; } rows[] = {
        { "ef21(topk(ratio=0.1))", false }, { "ef21(topk(ratio=0.1))", true }, { "ef21(sign)", false },
        { "ef21(powersgd(rank=2))", false }, { "ef21(topk(ratio=0.2),eta=0.3)", false },
        { "ef21(randomk(ratio=0.2))", false },
    };
    static float g[WORKERS][N], y[WORKERS][N];
    uint64_t seed = 2;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s[WORKERS];
        double was[WORKERS], away = 0, all = 0;
        open_all(s, rows[k].spec);
        for (int w = 0; w < WORKERS; w++) {
            subject_fill(N, g[w], 0, &seed);
            was[w] = subject_norm2(N, g[w]);
        }
        for (uint64_t step = 0; step < 150; step++) {
            subject_exchange(s, WORKERS, step, rows[k].again, ROW(g), ROW(y));
            for (int w = 0; w < WORKERS; w++) {
                const float *h = subject_state(s[w], "codec.h", TUTTI_SAME);
                const double now = subject_loss(N, g[w], subject_state(s[w], "codec.own", TUTTI_OWN_MEAN));
                assert_memory_equal(h, y[w], sizeof y[w]);
                assert_memory_equal(y[w], y[0], sizeof y[w]);
                if (strncmp(rows[k].spec, "ef21(topk(ratio=0.1))", 21) == 0)
                    assert_true(now <= 0.9 * was[w] + 1e-9);
                was[w] = now;
            }
            for (size_t i = 0; i < N && !rows[k].again; i++) {
                double mean = 0;
                for (int w = 0; w < WORKERS; w++)
                    mean += (double)subject_state(s[w], "codec.own", TUTTI_OWN_MEAN)[i] / WORKERS;
                assert_true(fabs(mean - (double)y[0][i]) < 1e-4);
            }
        }
        for (size_t i = 0; i < N; i++) {
            const double mean = ((double)g[0][i] + g[1][i] + g[2][i] + g[3][i]) / 4;
            away += pow(mean - (double)y[0][i], 2), all += mean * mean;
        }
        if (!(away < 1e-3 * all))
            fail_msg("%s, %s: %g of the mean gradient is still away", rows[k].spec,
                     rows[k].again ? "two stages" : "one stage", away / all);
        g[1][7] = NAN; /* seen by all, and then over */
        subject_exchange(s, WORKERS, 150, rows[k].again, ROW(g), ROW(y));
        assert_true(!tutti_finite(s[0]->device, N, y[0]) || strstr(rows[k].spec, "randomk") != NULL);
        g[1][7] = 0;
        subject_exchange(s, WORKERS, 151, rows[k].again, ROW(g), ROW(y));
        for (int w = 0; w < WORKERS; w++)
            assert_true(tutti_finite(s[w]->device, N, y[w]) || strstr(rows[k].spec, "powersgd") != NULL ||
                        strstr(rows[k].spec, "randomk") != NULL);
        close_all(s);
    }
}

/* Both directions written out again, in numbers that add without rounding. Every worker has an
   h_w of its own and corrects that one, the owner corrects h:
     c_w = v_w - h_w,  h_w += C(c_w);   d = mean C(c_w) + o,  h += C(d),  o = d - C(d);
     v_w = (1 - eta) v_w + eta g_w */
static void ef21_matches_its_recursion_on_worker_and_owner(void **state)
{
    enum { D = 8, K = 2, STEPS = 6 };
    static const struct { const char *spec; double eta; bool again; } rows[] = {
        { "ef21(topk(ratio=0.25))", 1, false }, { "ef21(topk(ratio=0.25))", 1, true },
        { "ef21(topk(ratio=0.25),eta=0.5)", 0.5, false },
        { "ef21(topk(ratio=0.25),eta=0.5)", 0.5, true },
    };
    (void)state;

    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        double v[WORKERS][D] = { { 0 } }, own[WORKERS][D] = { { 0 } }, h[D] = { 0 }, o[D] = { 0 };
        float g[WORKERS][D], y[WORKERS][D];
        uint64_t seed = 20 + r;
        subject *s[WORKERS];
        for (int w = 0; w < WORKERS; w++)
            s[w] = subject_open_as(rows[r].spec, 1, D, w, TUTTI_CPU_AVX512);
        for (uint64_t step = 0; step < STEPS; step++) {
            double mean[D] = { 0 };
            for (int w = 0; w < WORKERS; w++) {
                float c[D], sent[N];
                uint32_t at[N];
                for (int i = 0; i < D; i++) {
                    g[w][i] = (float)((int)(subject_random(&seed) % 8192) - 4096) / 64;
                    v[w][i] = (1 - rows[r].eta) * v[w][i] + rows[r].eta * (double)g[w][i];
                    c[i] = (float)(v[w][i] - own[w][i]);
                }
                tutti_select_top(s[w]->device, D, c, K, at, sent);
                for (int k = 0; k < K; k++) {
                    own[w][at[k]] += (double)sent[k];
                    mean[at[k]] += (double)sent[k] / WORKERS;
                }
            }
            if (rows[r].again) {
                float d[D], sent[N];
                uint32_t at[N];
                for (int i = 0; i < D; i++) {
                    o[i] += mean[i];
                    d[i] = (float)o[i];
                    mean[i] = 0;
                }
                tutti_select_top(s[0]->device, D, d, K, at, sent);
                for (int k = 0; k < K; k++) {
                    mean[at[k]] = (double)sent[k];
                    o[at[k]] = 0;
                }
            }
            subject_exchange(s, WORKERS, step, rows[r].again, ROW(g), ROW(y));
            for (int i = 0; i < D; i++) {
                h[i] += mean[i];
                for (int w = 0; w < WORKERS; w++)
                    if ((double)y[w][i] != h[i] || (double)subject_state(s[w], "codec.own",
                            TUTTI_OWN_MEAN)[i] != own[w][i] ||
                        (double)subject_state(s[w], "codec.h", TUTTI_SAME)[i] != h[i])
                        fail_msg("%s, %s, step %d, worker %d, element %d: h is %g, not %g, h_w %g, not %g",
                                 rows[r].spec, rows[r].again ? "two stages" : "one stage", (int)step, w, i,
                                 (double)y[w][i], h[i], (double)subject_state(s[w], "codec.own", TUTTI_OWN_MEAN)[i],
                                 own[w][i]);
                assert_true((double)subject_state(s[0], "codec.owner", TUTTI_OWN_SUM)[i] == o[i]);
            }
        }
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

/* f_w = |x|^2 / 2 +- b.x. Error feedback with top-1 keeps moving at the size of its steps, EF21
   stops at the optimum. */
static void ef21_rests_where_error_feedback_moves(void **state)
{
    static const char *const specs[] = { "ef(topk(ratio=0.01))", "ef21(topk(ratio=0.01))" };
    double moved[2];
    (void)state;

    for (int k = 0; k < 2; k++) {
        subject *s[2];
        float x[10], g[2][10], y[2][10];
        for (int w = 0; w < 2; w++)
            s[w] = subject_open_as(specs[k], 1, 10, w, TUTTI_CPU_AVX512);
        for (int i = 0; i < 10; i++)
            x[i] = 1;
        moved[k] = 0;
        for (uint64_t step = 0; step < 6000; step++) {
            for (int i = 0; i < 10; i++) {
                g[0][i] = x[i] + (float)(i + 1) * 3;
                g[1][i] = x[i] - (float)(10 - i) * 3 + (float)(9 - 2 * i) * 3; /* opposite: +3 (i + 1) and -3 (i + 1) */
            }
            subject_exchange(s, 2, step, false, (float *[]){ g[0], g[1] }, (float *[]){ y[0], y[1] });
            for (int i = 0; i < 10; i++) {
                x[i] -= 0.02f * y[0][i];
                moved[k] = step > 5900 ? fmax(moved[k], fabs((double)x[i])) : 0;
            }
        }
        subject_close(s[0]), subject_close(s[1]);
    }
    assert_true(moved[0] > 1e-2 && moved[1] < 1e-4);
}

/* DGC's recursion written out, also where values travel in 16 bits: their momentum is masked like
   that of others. With everything sent it is momentum SGD, and the mask, which is for what is
   held back, leaves it alone; nothing is lost without the mask. */
static void dgc_matches_its_recursion(void **state)
{
    static const struct { const char *spec; bool nesterov, masking; double ratio, clip; } rows[] = {
        { "dgc(topk(ratio=0.05))",                                                             false, true,  0.05, 0 },
        { "dgc(topk(ratio=0.05),nesterov=on)",                                                 true,  true,  0.05, 0 },
        { "dgc(topk(ratio=0.05),masking=off)",                                                 false, false, 0.05, 0 },
        { "dgc(topk(ratio=1),masking=off)",                                                    false, false, 1,    0 },
        { "dgc(topk(ratio=1))",                                                                false, true,  1,    0 },
        { "dgc(topk(ratio=0.1),clip=20)",                                                      false, true,  0.1,  20 },
        { "dgc(topk(ratio=0.05),nesterov=on,clip=30)",                                         true,  true,  0.05, 30 },
        { "dgc(topk(ratio=0.05,value_dtype=bf16))",                                            false, true,  0.05, 0 },
        { "dgc(large(topk(ratio=0.1,value_dtype=fp16,index_code=delta),min=100),nesterov=on)", true,  true,  0.1,  0 },
        { "dgc(topk(ratio=0.05,value_dtype=bf16,index_code=bitmap),masking=off)",              false, false, 0.05, 0 },
    };
    static float g[N], y[N];
    static double u[N], v[N];
    uint64_t seed = 3;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open(rows[k].spec, N); /* of 4 workers: clipped at half of clip */
        const double m = (double)0.9f, off = strstr(rows[k].spec, "bf16") != NULL ? 0x1p-8 /* of a value on its way */
                                             : strstr(rows[k].spec, "fp16") != NULL ? 0x1p-11 : 0;
        memset(u, 0, sizeof u), memset(v, 0, sizeof v);
        for (uint64_t step = 0; step < 40; step++) {
            size_t sent = 0;
            double norm, by;
            subject_fill(N, g, 0, &seed);
            norm = sqrt(subject_norm2(N, g));
            by = rows[k].clip > 0 && norm > rows[k].clip / 2 ? rows[k].clip / 2 / norm : 1;
            for (size_t i = 0; i < N; i++) {
                const double it = by * (double)g[i];
                u[i] = rows[k].nesterov ? m * (u[i] + it) : m * u[i] + it;
                v[i] += u[i] + (rows[k].nesterov ? it : 0);
            }
            subject_exchange(&s, 1, step, false, (float *[]){ g }, (float *[]){ y });
            for (size_t i = 0; i < N; i++) {
                if (y[i] != 0) {
                    sent++;
                    if (fabs((double)y[i] - v[i]) > 1e-4 + off * fabs(v[i]))
                        fail_msg("%s, step %d, element %zu: sent %g, the recursion has %g", rows[k].spec, (int)step, i,
                                 (double)y[i], v[i]);
                    v[i] = off > 0 ? v[i] - (double)y[i] : 0; /* what 16 bits lose is put back */
                    u[i] = rows[k].masking && rows[k].ratio < 1 ? 0 : u[i];
                }
                assert_true(fabs((double)subject_state(s, "codec.v", TUTTI_OWN_MEAN)[i] - v[i]) < 1e-4 &&
                            fabs((double)subject_state(s, "codec.u", TUTTI_OWN_ZERO)[i] - u[i]) < 1e-4);
            }
            assert_int_equal(sent, (size_t)ceil(rows[k].ratio * N - 1e-9));
        }
        subject_close(s);
    }
}

/* Momentum factor masking goes by the places that were sent, as the authors' code does (indices
   filled with 0), and not by what is left of v. Element 0 is never sent: its v comes to exactly 0
   by itself, and its momentum continues. A sum that came to 0 and fills a selection up was sent,
   and its momentum is forgotten. Also in 16 bits, by other lists of indexes, and within wrappers
   that choose. */
static void dgc_masks_momentum_by_sent_positions(void **state)
{
    static const char *const specs[] = {
        "dgc(topk(ratio=0.25),momentum=0.5)", "dgc(topk(ratio=0.25,value_dtype=bf16),momentum=0.5)",
            "dgc(topk(ratio=0.25,value_dtype=fp16,index_code=delta),momentum=0.5)",
        "dgc(topk(ratio=0.25,index_code=bitmap),momentum=0.5)", "dgc(threshold(value=50),momentum=0.5)",
            "dgc(threshold(value=50,index_code=delta),momentum=0.5)",
        "dgc(large(topk(ratio=0.25),min=2),momentum=0.5)",
            "dgc(accordion(low=topk(ratio=0.25),high=topk(ratio=0.25)),momentum=0.5)",
            "dgc(topk(ratio=0.25),momentum=0.5,server=off)",
    };
    static const float cancels[] = { 1, -1.5f, 0, 0 }, golden_u[] = { 1, -1, -0.5f, -0.25f }, golden_v[] = { 1, 0,
            -0.5f, -0.75f };
    subject *s;
    const float *u, *v;
    float y[4];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        s = subject_open(specs[k], 4);
        u = subject_state(s, "codec.u", TUTTI_OWN_ZERO), v = subject_state(s, "codec.v", TUTTI_OWN_MEAN);
        for (uint64_t step = 0; step < 4; step++) {
            float g[] = { cancels[step], 0, 0, 128 };
            subject_exchange(&s, 1, step, false, (float *[]){ g }, (float *[]){ y });
            if (u[0] != golden_u[step] || v[0] != golden_v[step] || u[3] != 0 || v[3] != 0 || y[0] != 0 || y[3] != 128)
                fail_msg("%s, step %d: u is %g and v %g where nothing was sent, %g and %g where %g was", specs[k],
                        (int)step, (double)u[0], (double)v[0], (double)u[3], (double)v[3], (double)y[3]);
        }
        subject_close(s);
    }
    s = subject_open("dgc(topk(ratio=0.5),momentum=0.5)", 4);
    u = subject_state(s, "codec.u", TUTTI_OWN_ZERO), v = subject_state(s, "codec.v", TUTTI_OWN_MEAN);
    for (int step = 0; step < 2; step++) { /* sent: 1 and 3; then 3 and, of three that are 0, the first */
        float g[] = { cancels[step], step == 0 ? 32 : 0, 0, 64 };
        subject_exchange(&s, 1, (uint64_t)step, false, (float *[]){ g }, (float *[]){ y });
        assert_true(u[0] == (step == 0 ? 1 : 0) && v[0] == (step == 0 ? 1 : 0) && u[1] == 0 && u[3] == 0 && y[3] == 64);
    }
    subject_close(s);
}

/* Each element of a message, whatever its value, and no other, of every codec that can list them:
   k of them where zeros fill the selection up, else those that are decoded to other than 0. */
static void reported_positions_are_those_in_the_message(void **state)
{
    static const struct { const char *spec; size_t k; } rows[] = { /* k: of N, where fewer are not 0; 0: those */
        { "topk(ratio=0.05)", 30 }, { "topk(ratio=0.05,value_dtype=bf16)", 30 },
        { "topk(ratio=0.05,value_dtype=fp16,index_code=delta)", 30 }, { "topk(ratio=0.05,index_code=bitmap)", 30 },
        { "topk(ratio=0.05,index_code=auto)", 30 }, { "topk(ratio=1)", N }, { "threshold(value=0.5)", 0 },
        { "threshold(value=0.5,index_code=delta)", 0 },
        { "threshold(value=0.5,index_code=bitmap,value_dtype=fp16)", 0 }, { "randomk(ratio=0.05)", 30 },
        { "randomk(ratio=0.05,block=8)", 32 }, { "chunk-topk(topk=3)", 30 },
        { "chunk-topk(topk=1,chunk=20,value_dtype=fp16)", 30 },
    };
    static float x[N], y[N];
    static uint8_t mark[N + 1];
    uint64_t seed = 6;
    (void)state;

    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++)
        for (int few = 0; few < 2; few++) {
            subject *s = subject_open(rows[r].spec, N);
            const tutti_view v = subject_view(s, 9);
            const bool summed = s->codec->ops->rounds > 0;
            void *wire[SUBJECT_ROUNDS];
            size_t bytes = 0, marked = 0;
            uint8_t *m;
            subject_fill(N, x, 0, &seed);
            for (int i = 0; i < N; i++)
                x[i] = few && i % 40 != 7 ? 0 : x[i] == 0 ? 1 : x[i];
            m = summed ? malloc(4 * N) : subject_encode(s, &v, x, &bytes);
            wire[0] = m;
            if (summed) {
                s->codec->ops->fold(s->codec, &v, 0, x, s->scratch, wire);
                s->codec->ops->unfold(s->codec, &v, s->scratch, wire, y);
            } else
                subject_decode(s, &v, m, bytes, y);
            memset(mark, 0, sizeof mark);
            s->codec->ops->places(s->codec, &v, summed ? NULL : m, bytes, mark);
            for (size_t i = 0; i < N; i++) {
                marked += mark[i];
                if (few ? mark[i] == 0 && y[i] != 0 : mark[i] != (y[i] != 0))
                    fail_msg("%s, element %zu: %g was sent and it is marked %d", rows[r].spec, i, (double)y[i],
                            mark[i]);
            }
            assert_int_equal(mark[N], 0);
            assert_true(rows[r].k == 0 || marked == rows[r].k);
            free(m);
            subject_close(s);
        }
}

/* The ratio of epoch e of E: ratio^((e + 1) / (E + 1)); memory is that of the first, messages those
   of their epoch, and others' are refused. */
static void topk_warms_up(void **state)
{
    static const double published[] = { 0.25, 0.063, 0.0158, 0.004, 0.001, 0.001 };
    static float x[20000];
    uint64_t seed = 4;
    subject *s = subject_open("topk(ratio=0.001,warmup=4)", 20000);
    subject_said h = { .n = 0 };
    (void)state;

    subject_fill(20000, x, 0, &seed);
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        tutti_view v = subject_view(s, epoch);
        size_t bytes;
        uint8_t *m;
        float y[1];
        subject_begin(&s, 1, epoch, epoch, 0.1, &h);
        m = subject_encode(s, &v, x, &bytes);
        assert_true(fabs((double)bytes / 8 / 20000 / published[epoch] - 1) < 0.01);
        subject_begin(&s, 1, epoch, epoch == 0 ? 1 : 0, 0.1, &h);
        assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, bytes, 1, y, NULL), TUTTI_ERR_CORRUPT);
        free(m);
    }
    subject_close(s);
}

/* A ratio of each epoch, then `ratio`: k of its epoch in every message, to the byte. */
static void topk_uses_one_listed_ratio_per_epoch(void **state)
{
    static const struct { const char *spec; double ratio[6];
    } rows[] = {
        { "topk(ratio=0.001,warmup_ratios=0.25:0.063:0.015:0.004:0.001)", { 0.25, 0.063, 0.015, 0.004, 0.001, 0.001 } },
        { "topk(ratio=0.01,warmup_ratios=1)", { 1, 0.01, 0.01, 0.01, 0.01, 0.01 } },
        { "topk(ratio=0.01,warmup_ratios=0.5:0.5:0.01)", { 0.5, 0.5, 0.01, 0.01, 0.01, 0.01 } },
    };
    static float x[20001];
    uint64_t seed = 5;
    (void)state;

    subject_fill(20001, x, 0, &seed);
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open(rows[k].spec, 20001);
        subject_said h = { .n = 0 };
        /* and again from the first, as in a run that is resumed in whatever epoch */
        for (uint64_t turn = 0; turn < 12; turn++) {
            const tutti_view v = subject_view(s, turn);
            size_t bytes;
            subject_begin(&s, 1, turn, turn % 6, 0.1, &h);
            free(subject_encode(s, &v, x, &bytes));
            assert_int_equal(bytes, 8 * (size_t)ceil(rows[k].ratio[turn % 6] * 20001));
        }
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(momentum_before_the_codec_is_conserved),
        cmocka_unit_test(ef21_follows_the_gradients),
        cmocka_unit_test(ef21_matches_its_recursion_on_worker_and_owner),
        cmocka_unit_test(ef21_rests_where_error_feedback_moves),
        cmocka_unit_test(dgc_matches_its_recursion),
        cmocka_unit_test(dgc_masks_momentum_by_sent_positions),
        cmocka_unit_test(reported_positions_are_those_in_the_message),
        cmocka_unit_test(topk_warms_up),
        cmocka_unit_test(topk_uses_one_listed_ratio_per_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
