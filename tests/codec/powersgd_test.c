/* PowerSGD over many steps: what linear_test.c, which looks at one, cannot see. Goal: both rules
   of error feedback move the model equally, and what differs is what they keep; a constant matrix
   is approached at the rate of subspace iteration, down to what no matrix of that rank has; all
   workers hold the same factors to the bit; memory is the residual and the factors. Method:
   matrices with singular values that are given; the tangents of the kept factor towards the true
   directions, which each step multiplies by known numbers. */
#include "subject.h"

enum { WORKERS = 4 };
#define ROW(x) ((float *[]){ x[0], x[1], x[2], x[3] })

/* What differs by rounding alone is made equal: the factors, and the mean of the residuals. Where
   singular values are close a rounding error rotates the factors of the next steps, and after a
   hundred of them two runs of the same rule on different processors would be apart as well. Each
   worker's own disagreement stays. */
static void alike(subject *const *a, subject *const *b)
{
    const size_t n = a[0]->space.n;

    for (size_t i = 0; i < n; i++) {
        double more = 0;
        for (int w = 0; w < WORKERS; w++)
            more += ((double)subject_state(a[w], "codec.e", TUTTI_OWN_MEAN)[i] -
                     (double)subject_state(b[w], "codec.e", TUTTI_OWN_MEAN)[i]) /
                    WORKERS;
        assert_true(fabs(more) < 1e-2);
        for (int w = 0; w < WORKERS; w++)
            subject_state(b[w], "codec.e", TUTTI_OWN_MEAN)[i] += (float)more;
    }
    for (int w = 0; w < WORKERS; w++)
        memcpy(subject_state(b[w], "codec.codec.q", TUTTI_SAME), subject_state(a[w], "codec.codec.q", TUTTI_SAME),
               2 * a[0]->tensor.cols * sizeof(float));
}

/* Gradients: a common one, which turns slowly, and noise of each worker's own. */
static void both_error_feedback_rules_update_the_model_equally(void **state)
{
    enum { ROWS = 24, COLS = 30, N = ROWS * COLS, STEPS = 400, LOCAL = 0, AGGREGATED = 1 };
    static const char *const specs[] = {
        "ef(powersgd(rank=2,ef_rule=local))", "ef(powersgd(rank=2,ef_rule=aggregated))",
    };
    static float g[WORKERS][N], y[2][WORKERS][N], common[N], held[WORKERS][N];
    double moved[2][N] = { { 0 } }, early[2] = { 0 }, late[2] = { 0 };
    subject *s[2][WORKERS];
    uint64_t seed = 1;
    (void)state;

    for (int rule = LOCAL; rule <= AGGREGATED; rule++)
        for (int w = 0; w < WORKERS; w++)
            s[rule][w] = subject_open_as(specs[rule], ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
    subject_fill(N, common, 0, &seed);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int w = 0; w < WORKERS; w++) {
            subject_fill(N, g[w], 0, &seed);
            for (int i = 0; i < N; i++) {
                g[w][i] += common[(i + (int)step / 50) % N];
                held[w][i] = g[w][i] + subject_state(s[LOCAL][w], "codec.e", TUTTI_OWN_MEAN)[i];
            }
        }
        for (int rule = LOCAL; rule <= AGGREGATED; rule++) {
            subject_exchange(s[rule], WORKERS, step, false, ROW(g), ROW(y[rule]));
            for (int w = 0; w < WORKERS; w++) {
                const double norm = sqrt(subject_norm2(N, subject_state(s[rule][w], "codec.e", TUTTI_OWN_MEAN)));
                early[rule] += step >= 80 && step < 120 ? norm / 40 / WORKERS : 0;
                late[rule] += step >= STEPS - 40 ? norm / 40 / WORKERS : 0;
                if (rule == LOCAL && !(norm * norm <= subject_norm2(N, held[w]) * (1 + 1e-6))) /* (1 - P^ P^T) D_w */
                    fail_msg("step %d: worker %d keeps %g of %g", (int)step, w, norm, sqrt(subject_norm2(N, held[w])));
                assert_memory_equal(subject_state(s[rule][w], "codec.codec.q", TUTTI_SAME),
                                    subject_state(s[rule][0], "codec.codec.q", TUTTI_SAME), 2 * COLS * sizeof(float));
                assert_memory_equal(y[rule][w], y[rule][0], sizeof y[rule][0]);
            }
            for (int i = 0; i < N; i++)
                moved[rule][i] += (double)y[rule][0][i];
        }
        {
            double apart = 0, size = 0, turned = 0;
            for (int i = 0; i < N; i++)
                apart += pow((double)y[LOCAL][0][i] - (double)y[AGGREGATED][0][i], 2),
                    size += pow((double)y[LOCAL][0][i], 2),
                    turned = fmax(turned, fabs(moved[LOCAL][i] - moved[AGGREGATED][i]));
            if (!(apart <= 1e-8 * size && turned < 0.05))
                fail_msg("step %d: the rules' mean gradients are %g apart of %g, the models %g", (int)step, sqrt(apart),
                         sqrt(size), turned);
        }
        alike(s[LOCAL], s[AGGREGATED]);
    }
    /* What is kept: with the local rule, as in a step where no workers disagree; with the
       aggregated rule also all disagreement there ever was, a random walk: twice as long in four
       times as many steps, and far longer. */
    if (!(late[LOCAL] < 1.25 * early[LOCAL] && late[AGGREGATED] > 1.5 * early[AGGREGATED] &&
          late[AGGREGATED] > 2 * late[LOCAL]))
        fail_msg("workers keep %g and later %g by the local rule, %g and %g by the aggregated one", early[LOCAL],
                 late[LOCAL], early[AGGREGATED], late[AGGREGATED]);
    for (int rule = LOCAL; rule <= AGGREGATED; rule++)
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[rule][w]);
}

/* n orthonormal directions of `size` numbers each. */
static void directions(int n, int size, double *d, uint64_t *seed)
{
    for (int k = 0; k < n; k++) {
        double norm = 0;
        for (int i = 0; i < size; i++)
            d[k * size + i] = subject_uniform(seed) - 0.5;
        for (int again = 0; again < 2; again++)
            for (int l = 0; l < k; l++) {
                double dot = 0;
                for (int i = 0; i < size; i++)
                    dot += d[k * size + i] * d[l * size + i];
                for (int i = 0; i < size; i++)
                    d[k * size + i] -= dot * d[l * size + i];
            }
        for (int i = 0; i < size; i++)
            norm += d[k * size + i] * d[k * size + i];
        for (int i = 0; i < size; i++)
            d[k * size + i] /= sqrt(norm);
    }
}

enum { VALUES = 6, RANK_MOST = 2 };

/* For r columns of the kept Q: their components along the directions beyond the first r, in units
   of those along the first r: B A^-1. */
static void tangents(int r, int cols, const float *q, const double *v, double t[VALUES][RANK_MOST])
{
    double c[VALUES][RANK_MOST], inverse[RANK_MOST][RANK_MOST];

    for (int k = 0; k < VALUES; k++)
        for (int j = 0; j < r; j++) {
            c[k][j] = 0;
            for (int i = 0; i < cols; i++)
                c[k][j] += v[k * cols + i] * (double)q[j * cols + i];
        }
    if (r == 1)
        inverse[0][0] = 1 / c[0][0];
    else {
        const double det = c[0][0] * c[1][1] - c[0][1] * c[1][0];
        inverse[0][0] = c[1][1] / det, inverse[0][1] = -c[0][1] / det;
        inverse[1][0] = -c[1][0] / det, inverse[1][1] = c[0][0] / det;
    }
    for (int k = r; k < VALUES; k++)
        for (int j = 0; j < r; j++) {
            t[k][j] = 0;
            for (int l = 0; l < r; l++)
                t[k][j] += c[k][l] * inverse[l][j];
        }
}

/* D = sum sigma_k u_k v_k^T, the same in every step. Each step multiplies the tangent of direction
   k towards direction j by (sigma_k / sigma_j)^2: the slowest by (sigma_(r+1) / sigma_r)^2. What is
   lost comes down to the sum of sigma_k^2 beyond the rank, and never below: no matrix of that rank
   is nearer. */
static void a_constant_matrix_is_approached_at_the_rate_of_its_singular_values(void **state)
{
    enum { ROWS = 40, COLS = 50, N = ROWS * COLS };
    static const double sigma[VALUES] = { 9, 6, 4, 2.5, 1, 0.5 };
    static double u[VALUES * ROWS], v[VALUES * COLS];
    static float x[N], y[N];
    uint64_t seed = 2;
    (void)state;

    directions(VALUES, ROWS, u, &seed);
    directions(VALUES, COLS, v, &seed);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < VALUES; k++)
            sum += sigma[k] * u[k * ROWS + i / COLS] * v[k * COLS + i % COLS];
        x[i] = (float)sum;
    }
    for (int r = 1; r <= RANK_MOST; r++) {
        char spec[40];
        subject *s;
        double was[VALUES][RANK_MOST], t[VALUES][RANK_MOST], least = 0, loss = 0;
        int judged = 0;
        snprintf(spec, sizeof spec, "powersgd(rank=%d)", r);
        s = subject_open_as(spec, ROWS, COLS, 0, TUTTI_CPU_AVX512);
        for (int k = r; k < VALUES; k++)
            least += sigma[k] * sigma[k];
        tangents(r, COLS, subject_state(s, "codec.q", TUTTI_SAME), v, was);
        for (uint64_t step = 0; step < 30; step++) {
            subject_exchange(&s, 1, step, false, (float *[]){ x }, (float *[]){ y });
            loss = subject_loss(N, x, y);
            assert_true(loss >= least * (1 - 1e-5));
            tangents(r, COLS, subject_state(s, "codec.q", TUTTI_SAME), v, t);
            for (int k = r; k < VALUES; k++)
                for (int j = 0; j < r; j++) {
                    const double wanted = was[k][j] * pow(sigma[k] / sigma[j], 2);
                    if (fabs(was[k][j]) > 1e-3 && fabs(wanted) > 1e-4) { /* floats resolve 1e-7 of a direction */
                        judged++;
                        if (fabs(t[k][j] / wanted - 1) > 5e-3)
                            fail_msg("rank %d, step %d: the tangent of direction %d towards %d went from %g to %g "
                                     "instead of %g",
                                     r, (int)step, k, j, was[k][j], t[k][j], wanted);
                    }
                    was[k][j] = t[k][j];
                }
        }
        assert_true(judged > 10);
        if (!(fabs(loss / least - 1) < 1e-4))
            fail_msg("rank %d: %g is lost in the end, and the best matrix of that rank loses %g", r, loss, least);
        subject_close(s);
    }
}

/* P and Q travel, r (rows + cols) numbers a matrix; Q stays for the next start, and the worker's
   own one for the step. D has no copy: it is where the residual is. */
static void memory_is_the_residual_and_the_factors(void **state)
{
    static const subject_shape shapes[] = { { 40, 30 }, { 1, 77 }, { 100, 64 }, { 4, 5 }, { 64, 200 } };
    static const struct {
        size_t q, wire;
    } of[][5] = { { { 30, 70 }, { 0, 77 }, { 64, 164 }, { 5, 9 }, { 200, 264 } },
                  { { 90, 210 }, { 0, 77 }, { 192, 492 }, { 0, 20 }, { 600, 792 } } };
    (void)state;

    for (int k = 0; k < 2; k++) {
        subject *s = subject_open_on(k == 0 ? "ef(powersgd(rank=1))" : "ef(powersgd(rank=3))",
                                     (int)TUTTI_LENGTH(shapes), shapes, 0, TUTTI_CPU_AVX512);
        const tutti_codec *codec = s->codec->inner[0];
        size_t kept = s->space.n;
        for (size_t t = 0; t < TUTTI_LENGTH(shapes); t++) {
            const tutti_view *v = &s->tensors[t];
            size_t wire = 0;
            for (int round = 0; round < codec->ops->rounds; round++)
                wire += codec->ops->width(codec, v, round);
            assert_int_equal(wire, of[k][t].wire);
            assert_int_equal(codec->ops->scratch(codec, v), of[k][t].q * sizeof(float));
            kept += of[k][t].q;
        }
        assert_int_equal(subject_memory(s, true), kept * sizeof(float));
        subject_close(s);
    }
}

/* factor_dtype: the first product of a matrix goes as float32, then in two bytes a number,
   whatever the gradients' size, a millionth of a millionth or a million, which powers of two on
   the wire keep in range; what comes out is what float32 gives except for the rounding of
   factors, and the parts that error feedback takes for sent are what the mean is made of. A size
   that falls by 2^30 from one step to the next is found again. */
static void sixteen_bit_factors_match_float32_over_a_wide_range(void **state)
{
    enum { ROWS = 40, COLS = 56, N = ROWS * COLS, STEPS = 8 };
    static const struct { const char *spec, *wide; double close; } rows[] = {
        { "ef(powersgd(rank=3,factor_dtype=fp16))", "ef(powersgd(rank=3))",
          0x1p-9 }, { "ef(powersgd(rank=3,factor_dtype=bf16))", "ef(powersgd(rank=3))", 0x1p-6 },
        { "ef(powersgd(rank=2,iters_per_step=2,factor_dtype=fp16,ef_rule=aggregated))",
          "ef(powersgd(rank=2,iters_per_step=2,ef_rule=aggregated))", 0x1p-8 },
        { "ef(powersgd(rank=3,warm_start=off,factor_dtype=fp16))", "ef(powersgd(rank=3,warm_start=off))", 0x1p-9 },
    };
    static const float sizes[] = { 1, 0x1p-40f, 0x1p20f };
    static double u[6 * ROWS], v[6 * COLS];
    static float g[WORKERS][N], y[WORKERS][N], z[WORKERS][N], e[WORKERS][N];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (size_t size = 0; size < TUTTI_LENGTH(sizes); size++) {
            subject *s[WORKERS], *w32[WORKERS];
            uint64_t seed = 77;
            directions(6, ROWS, u, &seed);
            directions(6, COLS, v, &seed);
            for (int w = 0; w < WORKERS; w++) {
                s[w] = subject_open_as(rows[k].spec, ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
                w32[w] = subject_open_as(rows[k].wide, ROWS, COLS, w, TUTTI_CPU_AVX512);
            }
            for (uint64_t step = 0; step < STEPS; step++) {
                const tutti_view view = subject_view(s[0], step);
                const tutti_codec *leaf = s[0]->codec->inner[0];
                double lost = 0, apart = 0, whole = 0;
                const tutti_dtype then = strstr(rows[k].spec, "bf16") != NULL ? TUTTI_BF16 : TUTTI_F16;
                assert_int_equal(tutti_codec_number(leaf, &view), step == 0 ? TUTTI_F32 : then);
                for (int w = 0; w < WORKERS; w++)
                    for (int i = 0; i < N; i++) {
                        double sum = 0.02 * (subject_uniform(&seed) - 0.5);
                        for (int d = 0; d < 6; d++)
                            sum += pow(0.3, d) * u[d * ROWS + i / COLS] * v[d * COLS + i % COLS];
                        g[w][i] = (float)sum * sizes[size];
                        e[w][i] = subject_state(s[w], "codec.e", TUTTI_OWN_MEAN)[i] + g[w][i];
                    }
                for (int w = 0; w < WORKERS; w++)
                    memcpy(subject_state(w32[w], "codec.e", TUTTI_OWN_MEAN),
                           subject_state(s[w], "codec.e", TUTTI_OWN_MEAN), sizeof e[w]);
                for (int w = 0; w < WORKERS; w++) /* one step each from the same factors */
                    memcpy(subject_state(w32[w], "codec.codec.q", TUTTI_SAME),
                           subject_state(s[w], "codec.codec.q", TUTTI_SAME),
                           (strstr(rows[k].spec, "rank=3") != NULL ? 3 : 2) * COLS * sizeof(float));
                subject_exchange(s, WORKERS, step, false, ROW(g), ROW(y));
                subject_exchange(w32, WORKERS, step, false, ROW(g), ROW(z));
                for (int w = 1; w < WORKERS; w++)
                    assert_memory_equal(y[w], y[0], sizeof y[0]);
                for (int i = 0; i < N; i++) {
                    double kept = 0;
                    for (int w = 0; w < WORKERS; w++)
                        kept += ((double)e[w][i] - (double)subject_state(s[w], "codec.e", TUTTI_OWN_MEAN)[i]) / WORKERS;
                    lost += pow(kept - (double)y[0][i], 2), apart += pow((double)y[0][i] - (double)z[0][i], 2),
                        whole += pow((double)z[0][i], 2);
                }
                /* of the mean only its own rounding is not made good, and by
                   the aggregated rule not even that */
                if (!(sqrt(lost) <=
                      (strstr(rows[k].spec, "aggregated") != NULL ? 1e-6 : rows[k].close) * sqrt(whole)) ||
                    !(sqrt(apart) <= 4 * rows[k].close * sqrt(whole)))
                    fail_msg("%s at %g, step %d: %g of %g is lost, %g from float32's", rows[k].spec,
                             (double)sizes[size], (int)step, sqrt(lost), sqrt(whole), sqrt(apart));
            }
            for (int w = 0; w < WORKERS; w++)
                subject_close(s[w]), subject_close(w32[w]);
        }
    {
        subject *s[1] = { subject_open_as("powersgd(rank=2,factor_dtype=fp16)", ROWS, COLS, 0, TUTTI_CPU_AVX512) };
        double share = 0;
        for (uint64_t step = 0; step < 12; step++) {
            for (int i = 0; i < N; i++)
                g[0][i] = (float)(u[i / COLS] * v[i % COLS]) * (step < 3 ? 1 : 0x1p-30f);
            subject_exchange(s, 1, step, false, ROW(g), ROW(y));
            share = subject_loss(N, g[0], y[0]) / subject_norm2(N, g[0]);
        }
        assert_true(share < 1e-4);
        subject_close(s[0]);
    }
}

/* G is the mean where the mean has no more than r directions, whatever each worker has: here 4
   workers with matrices of full rank, far longer than the mean. */
static void a_mean_of_low_rank_is_decoded_exactly(void **state)
{
    enum { ROWS = 36, COLS = 44, N = ROWS * COLS, MOST = 4 };
    static double u[MOST * ROWS], v[MOST * COLS];
    static float x[WORKERS][N], y[WORKERS][N], mean[N];
    uint64_t seed = 12;
    (void)state;

    for (int r = 1; r <= MOST; r++) {
        char spec[60];
        subject *s[WORKERS];
        snprintf(spec, sizeof spec, "powersgd(rank=%d,min_compression_rate=1)", r);
        for (int w = 0; w < WORKERS; w++)
            s[w] = subject_open_as(spec, ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
        for (uint64_t step = 0; step < 3; step++) {
            directions(MOST, ROWS, u, &seed);
            directions(MOST, COLS, v, &seed);
            for (int w = 0; w < WORKERS; w += 2)
                subject_fill(N, x[w], 0, &seed);
            for (int i = 0; i < N; i++) {
                double sum = 0;
                for (int k = 0; k < r; k++)
                    sum += (k + 1) * u[k * ROWS + i / COLS] * v[k * COLS + i % COLS];
                mean[i] = (float)sum;
                for (int w = 0; w < WORKERS; w += 2) { /* in pairs they cancel */
                    x[w + 1][i] = mean[i] - x[w][i];
                    x[w][i] += mean[i];
                }
            }
            subject_exchange(s, WORKERS, step, false, ROW(x), ROW(y));
            for (int w = 0; w < WORKERS; w++) {
                assert_true(subject_norm2(N, x[w]) > 10 * subject_norm2(N, mean));
                if (!(subject_loss(N, mean, y[w]) <= 1e-8 * subject_norm2(N, mean)))
                    fail_msg("rank %d, step %d: %g of %g is lost", r, (int)step, sqrt(subject_loss(N, mean, y[w])),
                             sqrt(subject_norm2(N, mean)));
            }
        }
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

/* Gradients times a power of two are decoded to the same times that power, to the bit: for 1e-30
   as well as for 1e30, whose products with a factor of their own size no float holds. With
   factors of 16 bits: as long as no residual is below the least float. */
static void scaling_gradients_by_powers_of_two_is_exact(void **state)
{
    enum { ROWS = 30, COLS = 40, N = ROWS * COLS, STEPS = 8 };
    static const char *const specs[] = {
        "ef(powersgd(rank=2))", "ef(powersgd(rank=2,warm_start=off))", "powersgd(rank=3)",
        "ef(powersgd(rank=1,iters_per_step=3))", "ef(powersgd(rank=2,factor_dtype=fp16))",
        "ef(powersgd(rank=2,factor_dtype=bf16,ef_rule=aggregated))",
    };
    static const int exponents[] = { -96, -60, -1, 30, 96 };
    static float g[WORKERS][N], large[WORKERS][N], y[WORKERS][N], z[WORKERS][N];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t e = 0; e < TUTTI_LENGTH(exponents); e++) {
            subject *s[WORKERS], *t[WORKERS];
            uint64_t seed = 5;
            for (int w = 0; w < WORKERS; w++) {
                s[w] = subject_open_as(specs[k], ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
                t[w] = subject_open_as(specs[k], ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
            }
            for (uint64_t step = 0; step < STEPS; step++) {
                for (int w = 0; w < WORKERS; w++) {
                    subject_fill(N, g[w], 0, &seed);
                    for (int i = 0; i < N; i++)
                        large[w][i] = ldexpf(g[w][i], exponents[e]);
                }
                subject_exchange(s, WORKERS, step, false, ROW(g), ROW(y));
                subject_exchange(t, WORKERS, step, false, ROW(large), ROW(z));
                for (int i = 0; i < N; i++)
                    if (z[0][i] != ldexpf(y[0][i], exponents[e]))
                        fail_msg("%s, times 2^%d, step %d: element %d is %a and not %a", specs[k], exponents[e],
                                 (int)step, i, (double)z[0][i], (double)ldexpf(y[0][i], exponents[e]));
            }
            for (int w = 0; w < WORKERS; w++)
                subject_close(s[w]), subject_close(t[w]);
        }
}

/* Reported before step 0 and at no other: which matrices travel as products, and why the others
   do not; bytes are those of the widths. That some are too small for it is also shown to the
   user, in one line. */
static void compression_of_each_matrix_is_reported_once(void **state)
{
    static const subject_shape shapes[] = { { 60, 50 }, { 1, 33 }, { 3, 667 }, { 20, 20 }, { 10, 500 } };
    static const struct { const char *spec, *said, *warning;
    } rows[] = {
        { "powersgd(rank=2)",
          "powersgd: 3 of 4 matrices travel as products from step 0 on, 33600 -> 5280 bytes a step; 0 (60 x 50): rank "
          "2, 12000 -> 880 bytes; 2 (3 x 667): as it is, since rank 2 shrinks it 1.49 times, not more than 2; "
          "3 (20 x 20): rank 2, 1600 -> 320 bytes; 4 (10 x 500): rank 2, 20000 -> 4080 bytes",
          "powersgd: 1 of 4 matrices travel as they are, 19.2 % of their elements: they are so small that rank 2 does "
          "not shrink them more than 2 times (min_compression_rate); the first is 3 x 667; a lower rank shrinks more" },
        { "powersgd(rank=12,factor_dtype=fp16,start_iter=7,min_compression_rate=1)",
          "powersgd: 1 of 4 matrices travel as products from step 7 on, 12000 -> 2640 bytes a step; 0 (60 x 50): rank "
          "12, 12000 -> 2640 bytes; 2 (3 x 667): as it is, since rank 3, its lesser side, shrinks it 0.996 times, not "
          "more than 1; "
          "3 (20 x 20): as it is, since rank 12 shrinks it 0.833 times, not more than 1; 4 (10 x 500): as it is, since "
          "rank 10, its lesser side, shrinks it 0.98 times, not more than 1",
          "powersgd: 3 of 4 matrices travel as they are, 71.2 % of their elements: they are so small that rank 12 does "
          "not shrink them more than 1 times" },
        { "powersgd(rank=1,iters_per_step=3)",
          "; 2 (3 x 667): as it is, since rank 1 shrinks it 0.996 times, not more than 2; 3 (20 x 20): rank 1, "
          "1600 -> 480 bytes",
          "powersgd: 1 of 4 matrices travel as they are" },
        { "powersgd(rank=1)", "powersgd: 4 of 4 matrices travel as products", "" },
    };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open_on(rows[k].spec, (int)TUTTI_LENGTH(shapes), shapes, 0, TUTTI_CPU_AVX512);
        subject_said h = { .n = 0 };
        for (uint64_t step = 0; step < 3; step++) {
            const char *warning = step == 0 ? rows[k].warning : "";
            assert_int_equal(subject_begin(&s, 1, step, 0, 0.1, &h), 0);
            if (strncmp(h.warning, warning, strlen(warning)) != 0 || (warning[0] == 0 && h.warning[0] != 0))
                fail_msg("%s, step %d: '%s'", rows[k].spec, (int)step, h.warning);
            h.warning[0] = 0;
        }
        assert_int_equal(h.reports, 1);
        if (strstr(h.matrices, rows[k].said) == NULL)
            fail_msg("%s: %s", rows[k].spec, h.matrices);
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_error_feedback_rules_update_the_model_equally),
        cmocka_unit_test(a_constant_matrix_is_approached_at_the_rate_of_its_singular_values),
        cmocka_unit_test(a_mean_of_low_rank_is_decoded_exactly),
        cmocka_unit_test(scaling_gradients_by_powers_of_two_is_exact),
        cmocka_unit_test(compression_of_each_matrix_is_reported_once),
        cmocka_unit_test(memory_is_the_residual_and_the_factors),
        cmocka_unit_test(sixteen_bit_factors_match_float32_over_a_wide_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
