/* Codecs of the linear form, and error feedback over codecs of either form. Goal: what workers fold
   and sum is what they all unfold; random-k's draws, PowerSGD's projection and the conservation of
   error feedback are as the papers prove them. Method: four workers in one process; the mean over
   them in double; identities with tolerances from the arithmetic. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

enum { WORKERS = 4 };

static tutti_dtype number(const subject *s)
{
    const tutti_view v = subject_view(s, 1000000);

    return tutti_codec_number(s->codec, &v);
}

static size_t wire_bytes(const subject *s, const tutti_view *v, int round)
{
    return s->codec->ops->width(s->codec, v, round) * tutti_dtype_bytes(number(s));
}

static float wire_get(const subject *s, const void *wire, size_t i)
{
    float y;

    tutti_cast(s->device,
               (tutti_buffer){ s->device, (char *)(uintptr_t)wire + i * tutti_dtype_bytes(number(s)), 1, number(s) },
               tutti_f32(s->device, &y, 1));
    return y;
}

/* All rounds of `workers` subjects on x[w]; own[w] (or NULL) = what w contributed as decoded; y
   = the decoded mean, equal on all. */
static void mean(subject *const *s, int workers, uint64_t step, float *const *x, float *const *own, float *y)
{
    const tutti_codec_ops *ops = s[0]->codec->ops;
    const tutti_view v = subject_view(s[0], step);
    void *wire[WORKERS][SUBJECT_ROUNDS] = { { NULL } };

    for (int round = 0; round < ops->rounds; round++) {
        const size_t n = ops->width(s[0]->codec, &v, round);
        for (int w = 0; w < workers; w++) {
            assert_int_equal(ops->width(s[w]->codec, &v, round), n);
            wire[w][round] = malloc(wire_bytes(s[w], &v, round) + 1);
            ops->fold(s[w]->codec, &v, round, x[w], s[w]->scratch, wire[w]);
        }
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            float m;
            for (int w = 0; w < workers; w++)
                sum += wire_get(s[w], wire[w][round], i);
            m = (float)(sum / workers);
            for (int w = 0; w < workers; w++)
                tutti_cast(s[w]->device, tutti_f32(s[w]->device, &m, 1), (tutti_buffer){ s[w]->device,
                           (char *)wire[w][round] + i * tutti_dtype_bytes(number(s[0])), 1, number(s[0]) });
        }
    }
    for (int w = 0; w < workers; w++) {
        float *mine = malloc((v.count + 1) * sizeof *mine);
        for (size_t i = 0; i < v.count && own != NULL; i++)
            own[w][i] = 0;
        if (own != NULL)
            ops->mine(s[w]->codec, &v, x[w], s[w]->scratch, wire[w], 1, own[w]);
        ops->unfold(s[w]->codec, &v, s[w]->scratch, wire[w], mine);
        if (w == 0 && v.count > 0)
            memcpy(y, mine, v.count * sizeof *y);
        assert_true(v.count == 0 || memcmp(y, mine, v.count * sizeof *y) == 0);
        free(mine);
        for (int round = 0; round < SUBJECT_ROUNDS; round++)
            free(wire[w][round]);
    }
}

static void casts_round_within_their_precision(void **state)
{
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST], own[SUBJECT_LONGEST];
    uint64_t seed = 1;
    (void)state;

    for (int which = 0; which < 3; which++)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++) {
            const size_t n = subject_lengths[at];
            subject *s = subject_open((const char *const[]){ "fp16", "bf16", "trunc16" }[which], n);
            const double relative = which == 0 ? 0x1p-11 : which == 1 ? 0x1p-8 : 0x1p-7;
            const tutti_view v = subject_view(s, 0);
            subject_fill(n, x, 0, &seed);
            assert_int_equal(wire_bytes(s, &v, 0), 2 * n);
            mean(&s, 1, 0, (float *[]){ x }, (float *[]){ own }, y);
            for (size_t i = 0; i < n; i++) {
                assert_true(fabs((double)x[i] - y[i]) <= relative * fmax(fabs((double)x[i]), 0x1p-14));
                assert_true(which != 2 || fabsf(y[i]) <= fabsf(x[i]));
                assert_true(own[i] == y[i]);
            }
            subject_close(s);
        }
    for (int which = 0; which < 3; which++) {
        subject *s = subject_open((const char *const[]){ "fp16", "bf16", "trunc16" }[which], 4);
        uint32_t low_payload = 0xff800001;
        x[0] = NAN, x[1] = INFINITY, x[2] = -INFINITY, memcpy(&x[3], &low_payload, 4);
        mean(&s, 1, 0, (float *[]){ x }, NULL, y);
        assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == -INFINITY && isnan(y[3]));
        subject_close(s);
    }
}

/* Loss (1 - k/n) |x|^2 in expectation where k divides n; with the factor n/k
   unbiased with variance (n/k - 1) |x|^2. */
static void randomk_selects_every_element_equally_often(void **state)
{
    enum { N = 200, K = 20000 };
    float x[N], y[N];
    uint64_t seed = 2;
    (void)state;

    for (int which = 0; which < 4; which++) {
        subject *s = subject_open((const char *const[]){ "randomk(ratio=0.1)", "randomk(ratio=0.1,unbiased=true)",
                                                         "randomk(ratio=0.1,block=5)",
                                                         "randomk(ratio=0.25,block=10,unbiased=true)" }[which],
                                  N);
        const double share = which == 3 ? 0.25 : 0.1;
        double sum[N] = { 0 }, loss = 0, norm;
        subject_fill(N, x, 0, &seed);
        norm = subject_norm2(N, x);
        for (uint64_t step = 0; step < K; step++) {
            size_t sent = 0;
            mean(&s, 1, step, (float *[]){ x }, NULL, y);
            loss += subject_loss(N, x, y) / K;
            for (size_t i = 0; i < N; i++) {
                sent += y[i] != 0;
                sum[i] += y[i] / x[i];
                assert_true(y[i] == 0 || y[i] == x[i] * (which % 2 ? (float)(1 / share) : 1));
            }
            assert_int_equal(sent, share * N);
        }
        for (size_t i = 0; i < N; i++) { /* binomial: p K with standard deviation sqrt(K p (1 - p)) */
            const double drawn = which % 2 ? sum[i] * share : sum[i];
            assert_true(fabs(drawn - share * K) < 5.5 * sqrt(K * share * (1 - share)));
        }
        assert_true(fabs(loss / norm - (which % 2 ? 1 / share - 1 : 1 - share)) < 0.05 * (which % 2 ? 1 / share : 1));
        assert_int_equal(tutti_codec_traits(s->codec), which % 2 ? TUTTI_CODEC_UNBIASED : TUTTI_CODEC_CONTRACTIVE);
        subject_close(s);
    }
}

static void randomk_selection_is_shared_and_summable(void **state)
{
    float x[WORKERS][SUBJECT_LONGEST], own[WORKERS][SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 3;
    (void)state;

    for (int which = 0; which < 3; which++)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++) {
            /* a tensor below a block is one */
            const size_t n = subject_lengths[at],
                         block = which != 1       ? 1
                                 : n > 0 && n < 7 ? n
                                                  : 7,
                         blocks = (n + block - 1) / block;
            subject *s[WORKERS];
            for (int w = 0; w < WORKERS; w++) {
                s[w] = subject_open_as((const char *const[]){ "randomk(ratio=0.05)", "randomk(ratio=0.2,block=7)",
                                                              "randomk(ratio=1)" }[which],
                                       1, n, w, TUTTI_CPU_AVX2);
                subject_fill(n, x[w], 0, &seed);
            }
            const tutti_view v = subject_view(s[0], 0);
            const double ratio = which == 0 ? 0.05 : which == 1 ? 0.2 : 1;
            assert_int_equal(s[0]->codec->ops->width(s[0]->codec, &v, 0),
                             block * (n == 0 ? 0 : (size_t)fmax(1, ceil(ratio * (double)blocks - 1e-9))));
            mean(s, WORKERS, at, (float *[]){ x[0], x[1], x[2], x[3] }, (float *[]){ own[0], own[1], own[2], own[3] },
                 y);
            for (size_t i = 0; i < n; i++) {
                const double m = ((double)own[0][i] + own[1][i] + own[2][i] + own[3][i]) / 4;
                assert_true(fabs(m - y[i]) <= 1e-6);
                assert_true(own[2][i] == 0 || own[2][i] == x[2][i]);
                assert_true(which != 2 || own[3][i] == x[3][i]);
            }
            for (int w = 0; w < WORKERS; w++)
                subject_close(s[w]);
        }
}

/* What is drawn follows from shared_seed alone where it is given, and from the
   run's seed (42 here) where it is not. */
static void the_seed_of_randomk_decides_what_it_draws(void **state)
{
    enum { N = 5000 };
    static const struct {
        const char *spec;
        uint64_t run;
    } rows[] = { { "randomk(ratio=0.1)", 42 },
                 { "randomk(ratio=0.1,shared_seed=42)", 7 },
                 { "randomk(ratio=0.1,shared_seed=42)", 42 },
                 { "randomk(ratio=0.1)", 7 },
                 { "randomk(ratio=0.1,shared_seed=43)", 42 } };
    static float x[N], y[TUTTI_LENGTH(rows)][N];
    uint64_t seed = 3;
    (void)state;

    subject_fill(N, x, 0, &seed);
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open(rows[k].spec, N);
        s->space.seed = rows[k].run;
        mean(&s, 1, 3, (float *[]){ x }, NULL, y[k]);
        assert_int_equal(memcmp(y[k], y[0], sizeof y[0]) == 0, k < 3);
        subject_close(s);
    }
    assert_memory_not_equal(y[3], y[4], sizeof y[3]);
}

/* r columns, one after the other; the last ones in a second call. */
static void orthonormalise(tutti_device *d, size_t n, size_t r, float *p)
{
    float *column[64];

    assert_true(r <= TUTTI_LENGTH(column));
    for (size_t k = 0; k < r; k++)
        column[k] = p + k * n;
    tutti_codec_orthonormalise(d, n, 0, r / 2, column, (tutti_rng){ 1, 2, 3 });
    tutti_codec_orthonormalise(d, n, r / 2, r, column, (tutti_rng){ 1, 2, 3 });
}

/* Columns that are dependent, zero, tiny, huge, nearly parallel (condition number 1e6 and more):
   P^T P = 1 in each case. */
static void columns_become_orthonormal_whatever_they_are(void **state)
{
    static const struct {
        size_t n, r;
    } shapes[] = { { 1, 1 }, { 2, 2 }, { 8, 8 }, { 9, 4 }, { 100, 4 }, { 1000, 8 }, { 513, 16 }, { 40, 40 } };
    float *p = malloc(1000 * 16 * sizeof *p);
    uint64_t seed = 4;
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_AVX512, NULL), TUTTI_OK);
    for (size_t at = 0; at < TUTTI_LENGTH(shapes); at++)
        for (int kind = 0; kind < 8; kind++) {
            const size_t n = shapes[at].n, r = shapes[at].r;
            subject_fill(n * r, p, 0, &seed);
            for (size_t c = 1; c < r; c++)
                for (size_t i = 0; i < n; i++) {
                    float *it = &p[c * n + i];
                    if (kind == 1)
                        *it = 3 * p[i];
                    else if (kind == 2)
                        *it = 0;
                    else if (kind == 3)
                        *it = p[i] + 1e-6f * *it;
                    else if (kind == 4)
                        *it *= 1e-40f;
                    else if (kind == 5)
                        *it *= 1e37f;
                    else if (kind == 6)
                        *it = p[i] * (float)(c + 1) + (c == r - 1 ? 1e-7f * *it : 0);
                }
            for (size_t i = 0; i < n * r && kind == 7; i++)
                p[i] = 0;
            orthonormalise(d, n, r, p);
            for (size_t a = 0; a < r; a++)
                for (size_t b = 0; b <= a; b++) {
                    double dot = 0;
                    for (size_t i = 0; i < n; i++)
                        dot += (double)p[a * n + i] * p[b * n + i];
                    if (!(fabs(dot - (a == b)) < 2e-6))
                        fail_msg("%zu x %zu, kind %d: columns %zu and %zu: %g", n, r, kind, a, b, dot);
                }
        }
    p[5] = NAN;
    orthonormalise(d, 100, 4, p);
    assert_true(isnan(p[0]) && isnan(p[399]));
    free(p);
    tutti_device_close(d);
}

/* Columns keep their span: orth must not replace what has a direction of its own. */
static void orthonormalisation_preserves_the_column_span(void **state)
{
    enum { N = 300, R = 5 };
    float a[N * R], p[N * R];
    uint64_t seed = 5;
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
    subject_fill(N * R, a, 0, &seed);
    memcpy(p, a, sizeof p);
    orthonormalise(d, N, R, p);
    for (size_t c = 0; c < R; c++) {
        double rest = 0;
        for (size_t i = 0; i < N; i++) {
            double projected = 0;
            for (size_t k = 0; k < R; k++)
                projected += tutti_dot(d, N, p + k * N, a + c * N) * p[k * N + i];
            rest += pow(a[c * N + i] - projected, 2);
        }
        assert_true(rest < 1e-10 * N);
    }
    tutti_device_close(d);
}

static void product(size_t rows, size_t cols, size_t r, float *x, uint64_t *seed)
{
    float *p = malloc(rows * r * sizeof *p), *q = malloc(cols * r * sizeof *q);

    subject_fill(rows * r, p, 0, seed);
    subject_fill(cols * r, q, 0, seed);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;
            for (size_t k = 0; k < r; k++)
                sum += (double)p[i * r + k] * q[j * r + k];
            x[i * cols + j] = (float)sum;
        }
    free(p);
    free(q);
}

static void powersgd_is_exact_on_matrices_of_its_rank(void **state)
{
    static const struct {
        size_t rows, cols, r;
    } shapes[] = { { 40, 30, 1 }, { 64, 100, 4 }, { 31, 257, 3 }, { 33, 20, 5 }, { 16, 16, 2 } };
    float x[31 * 257 + 1], y[31 * 257 + 1];
    uint64_t seed = 6;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(shapes); at++)
        for (size_t rank = 0; rank <= shapes[at].r; rank++) { /* of the matrix: 0, fewer than the codec's, as many */
            const size_t rows = shapes[at].rows, cols = shapes[at].cols, n = rows * cols;
            char spec[60];
            subject *s;
            snprintf(spec, sizeof spec, "powersgd(rank=%zu,min_compression_rate=1)", shapes[at].r);
            s = subject_open_as(spec, rows, cols, 0, TUTTI_CPU_AVX512);
            const tutti_view v = subject_view(s, 0);
            assert_int_equal(s->codec->ops->width(s->codec, &v, 0), shapes[at].r * rows);
            assert_int_equal(s->codec->ops->width(s->codec, &v, 1), shapes[at].r * cols);
            for (uint64_t step = 0; step < 3; step++) {
                product(rows, cols, rank, x, &seed);
                mean(&s, 1, step, (float *[]){ x }, NULL, y);
                assert_true(subject_loss(n, x, y) <= 1e-9 * subject_norm2(n, x));
            }
            subject_close(s);
        }
}

/* G projects the mean; W workers are one with the mean; a constant matrix is approached. */
static void powersgd_of_workers_equals_powersgd_of_their_mean(void **state)
{
    enum { ROWS = 48, COLS = 70, N = ROWS * COLS };
    static float x[WORKERS][N], m[N], y[N], z[N], own[WORKERS][N];
    subject *s[WORKERS], *one = subject_open_as("powersgd(rank=3)", ROWS, COLS, 0, TUTTI_CPU_AVX512);
    uint64_t seed = 7;
    double before = INFINITY;
    (void)state;

    for (int w = 0; w < WORKERS; w++)
        s[w] = subject_open_as("powersgd(rank=3)", ROWS, COLS, w, w % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
    for (uint64_t step = 0; step < 12; step++) {
        double inner = 0, loss, sums = 0;
        for (int w = 0; w < WORKERS && step < 6; w++)
            subject_fill(N, x[w], 0, &seed);
        for (size_t i = 0; i < N; i++)
            m[i] = (float)(((double)x[0][i] + x[1][i] + x[2][i] + x[3][i]) / 4);
        mean(s, WORKERS, step, (float *[]){ x[0], x[1], x[2], x[3] }, (float *[]){ own[0], own[1], own[2], own[3] }, y);
        mean(&one, 1, step, (float *[]){ m }, NULL, z);
        loss = subject_loss(N, m, y);
        for (size_t i = 0; i < N; i++) {
            inner += (double)y[i] * ((double)m[i] - y[i]);
            sums = fmax(sums, fabs(((double)own[0][i] + own[1][i] + own[2][i] + own[3][i]) / 4 - y[i]));
        }
        assert_true(subject_loss(N, y, z) <= 1e-7 * subject_norm2(N, y));
        assert_true(fabs(inner) <= 1e-5 * subject_norm2(N, m) && loss <= subject_norm2(N, m));
        assert_true(sums <= 1e-5); /* rule local: the parts are what the mean is made of */
        if (step > 6)
            assert_true(loss <= before * (1 + 1e-5)); /* the same matrix: the warm start gains */
        before = loss;
    }
    for (int w = 0; w < WORKERS; w++)
        subject_close(s[w]);
    subject_close(one);
}

/* The published iterations, slowly and in double: each on what the previous ones have left of
   every worker's matrix, which is computed here from the sum of the products. */
static void powersgd_iterations_continue_on_the_remainder(void **state)
{
    enum { ROWS = 30, COLS = 45, N = ROWS * COLS, R = 3, ITERS = 4 };
    static float x[WORKERS][N], y[N];
    static double d[WORKERS][N], p[R][ROWS], q[R][COLS], own[WORKERS][R][COLS], sum[N];
    uint64_t seed = 31;
    (void)state;

    for (int iters = 1; iters <= ITERS; iters++)
        for (int r = 1; r <= R; r++) {
            char spec[80];
            subject *s[WORKERS];
            snprintf(spec, sizeof spec, "powersgd(rank=%d,iters_per_step=%d,min_compression_rate=1)", r, iters);
            for (int w = 0; w < WORKERS; w++)
                s[w] = subject_open_as(spec, ROWS, COLS, w, w % 2 ? TUTTI_CPU_AVX2 : TUTTI_CPU_AVX512);
            if (iters * r * (ROWS + COLS) >= N) { /* nothing would be gained */
                const tutti_view v = subject_view(s[0], 0);
                assert_int_equal(s[0]->codec->ops->width(s[0]->codec, &v, 0), N);
            }
            for (uint64_t step = 0; step < 3 && iters * r * (ROWS + COLS) < N; step++) {
                const float *kept = subject_state(s[0], "codec.q", TUTTI_SAME);
                double away = 0, all = 0;
                for (int w = 0; w < WORKERS; w++) {
                    subject_fill(N, x[w], 0, &seed);
                    for (int i = 0; i < N; i++)
                        d[w][i] = (double)x[w][i];
                }
                for (int k = 0; k < r; k++)
                    for (int j = 0; j < COLS; j++)
                        q[k][j] = (double)kept[k * COLS + j];
                memset(sum, 0, sizeof sum);
                for (int t = 0; t < iters; t++) {
                    for (int k = 0; k < r; k++) {
                        double norm = 0;
                        for (int i = 0; i < ROWS; i++) {
                            p[k][i] = 0;
                            for (int w = 0; w < WORKERS; w++)
                                for (int j = 0; j < COLS; j++)
                                    p[k][i] += d[w][i * COLS + j] * q[k][j];
                        }
                        for (int again = 0; again < 2; again++)
                            for (int l = 0; l < k; l++) {
                                double inner = 0;
                                for (int i = 0; i < ROWS; i++)
                                    inner += p[l][i] * p[k][i];
                                for (int i = 0; i < ROWS; i++)
                                    p[k][i] -= inner * p[l][i];
                            }
                        for (int i = 0; i < ROWS; i++)
                            norm += p[k][i] * p[k][i];
                        for (int i = 0; i < ROWS; i++)
                            p[k][i] /= sqrt(norm);
                    }
                    for (int k = 0; k < r; k++)
                        for (int j = 0; j < COLS; j++) {
                            q[k][j] = 0;
                            for (int w = 0; w < WORKERS; w++) {
                                own[w][k][j] = 0;
                                for (int i = 0; i < ROWS; i++)
                                    own[w][k][j] += d[w][i * COLS + j] * p[k][i];
                                q[k][j] += own[w][k][j] / WORKERS;
                            }
                        }
                    for (int i = 0; i < N; i++)
                        for (int k = 0; k < r; k++) {
                            sum[i] += p[k][i / COLS] * q[k][i % COLS];
                            for (int w = 0; w < WORKERS; w++)
                                d[w][i] -= p[k][i / COLS] * own[w][k][i % COLS];
                        }
                }
                mean(s, WORKERS, step, (float *[]){ x[0], x[1], x[2], x[3] }, NULL, y);
                for (int i = 0; i < N; i++)
                    away += pow(sum[i] - (double)y[i], 2), all += sum[i] * sum[i];
                if (!(away <= 1e-8 * all))
                    fail_msg("%s, step %d: %g of the mean is elsewhere", spec, (int)step, sqrt(away / all));
                for (int k = 0; k < r; k++) { /* kept is the last one, each column divided by a power of two */
                    const double size = sqrt(subject_norm2(COLS, kept + k * COLS));
                    double whole = 0;
                    for (int j = 0; j < COLS; j++)
                        whole += q[k][j] * q[k][j];
                    assert_true(size >= 1 && size < 2 &&
                                fabs(log2(sqrt(whole) / size) - round(log2(sqrt(whole) / size))) < 1e-3);
                    for (int j = 0; j < COLS; j++)
                        assert_true(fabs((double)kept[k * COLS + j] * sqrt(whole) / size - q[k][j]) < 1e-3);
                }
            }
            for (int w = 0; w < WORKERS; w++)
                subject_close(s[w]);
        }
    for (int iters = 1; iters <= ITERS; iters++) { /* k of rank 1 are exact on matrices of rank k, whatever the start */
        char spec[80];
        subject *s;
        snprintf(spec, sizeof spec, "powersgd(iters_per_step=%d)", iters);
        s = subject_open_as(spec, ROWS, COLS, 0, TUTTI_CPU_AVX512);
        for (uint64_t step = 0; step < 3; step++) {
            product(ROWS, COLS, (size_t)iters, x[0], &seed);
            mean(&s, 1, step, (float *[]){ x[0] }, NULL, y);
            assert_true(subject_loss(N, x[0], y) <= 1e-8 * subject_norm2(N, x[0]));
        }
        subject_close(s);
    }
}

static void powersgd_sends_incompressible_matrices_uncompressed(void **state)
{
    static const struct { const char *spec; size_t rows, cols; uint64_t step; bool dense; } rows[] = {
        { "powersgd(rank=4)",                        1,  500, 0, true },
        { "powersgd(rank=4)",                        16, 16,  0, true },
        { "powersgd(rank=4)",                        17, 17,  0, false },
        { "powersgd(rank=4,min_compression_rate=3)", 17, 17,  0, true },
        { "powersgd(rank=2,start_iter=5)",           50, 50,  4, true },
        { "powersgd(rank=2,start_iter=5)",           50, 50,  5, false },
    };
    float x[2500], y[2500];
    uint64_t seed = 8;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open_as(rows[k].spec, rows[k].rows, rows[k].cols, 0, TUTTI_CPU_AVX512);
        const size_t n = rows[k].rows * rows[k].cols;
        subject_fill(n, x, 0, &seed);
        mean(&s, 1, rows[k].step, (float *[]){ x }, NULL, y);
        assert_int_equal(memcmp(x, y, n * sizeof *x) == 0, rows[k].dense);
        subject_close(s);
    }
}

static void powersgd_recovers_from_zeros_and_from_nan(void **state)
{
    enum { ROWS = 30, COLS = 40, N = ROWS * COLS };
    float x[N], y[N];
    uint64_t seed = 9;
    (void)state;

    for (int warm = 0; warm < 2; warm++) {
        subject *s = subject_open_as(warm ? "powersgd(rank=2)" : "powersgd(rank=2,warm_start=false)", ROWS, COLS, 0,
                                     TUTTI_CPU_AVX512);
        for (uint64_t step = 0; step < 10; step++) {
            if (step < 5)
                memset(x, 0, sizeof x);
            else
                product(ROWS, COLS, 1, x, &seed);
            mean(&s, 1, step, (float *[]){ x }, NULL, y);
            for (size_t i = 0; i < N; i++)
                assert_true(isfinite(y[i]));
            /* Step 5 of a warm start has drawn directions: it can only gain from the start that
               it was given; the next step has found the matrix. */
            assert_true(subject_loss(N, x, y) <= (warm && step == 5 ? 1 - 1e-4 : 1e-9) * subject_norm2(N, x));
        }
        x[7] = NAN; /* seen by all workers */
        mean(&s, 1, 10, (float *[]){ x }, NULL, y);
        assert_true(isnan(y[0]) && isnan(y[N - 1]));
        product(ROWS, COLS, 1, x, &seed); /* and over with it */
        mean(&s, 1, 11, (float *[]){ x }, NULL, y);
        assert_true(subject_loss(N, x, y) <= 1e-9 * subject_norm2(N, x));
        subject_close(s);
    }
}

/* ---- error feedback ---- */

static void fed_back(subject *const *s, int workers, uint64_t step, float *const *g, float *y)
{
    float *all[SUBJECT_WORKERS] = { y };

    for (int w = 1; w < workers; w++)
        all[w] = malloc((s[w]->space.n + 1) * sizeof *y);
    subject_exchange(s, workers, step, false, g, all);
    for (int w = 1; w < workers; w++)
        free(all[w]);
}

static float *residual_of(const subject *s)
{
    return subject_state(s, "codec.e", TUTTI_OWN_MEAN);
}

/* Error feedback: the sum of what was delivered and the mean residual is the sum of the mean
   gradients. */
static void error_feedback_loses_nothing(void **state)
{
    static const char *const wrapped[] = {
        "ef(topk(ratio=0.05))", "ef(sign)", "ef(onebit)", "ef(onebit-col(min_rows=1))", "ef(int8)", "ef(minmax8)",
        "ef(threshold(value=1))", "ef(randomk(ratio=0.1))", "ef(randomk(ratio=0.2,block=8))", "ef(powersgd(rank=2))",
        "ef(powersgd(rank=2,ef_rule=aggregated))", "ef(powersgd(rank=2,iters_per_step=3))",
    };
    enum { ROWS = 24, COLS = 30, N = ROWS * COLS, STEPS = 60 };
    static float g[WORKERS][N], y[N];
    uint64_t seed = 10;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(wrapped); k++)
        for (int workers = 1; workers <= WORKERS; workers += 3) {
            subject *s[WORKERS];
            double given[N] = { 0 }, delivered[N] = { 0 };
            for (int w = 0; w < workers; w++)
                s[w] = subject_open_as(wrapped[k], ROWS, COLS, w, TUTTI_CPU_AVX512);
            for (uint64_t step = 0; step < STEPS; step++) {
                for (int w = 0; w < workers; w++)
                    subject_fill(N, g[w], 0, &seed);
                fed_back(s, workers, step, (float *[]){ g[0], g[1], g[2], g[3] }, y);
                for (size_t i = 0; i < N; i++) {
                    for (int w = 0; w < workers; w++)
                        given[i] += (double)g[w][i] / workers;
                    delivered[i] += y[i];
                }
            }
            for (size_t i = 0; i < N; i++) {
                double e = 0;
                for (int w = 0; w < workers; w++)
                    e += (double)residual_of(s[w])[i] / workers;
                if (!(fabs(given[i] - delivered[i] - e) < 1e-4)) /* some 4 roundings a step of numbers up to 10 */
                    fail_msg("%s, %d workers, element %zu: given %g, delivered %g, kept %g", wrapped[k], workers, i,
                             given[i], delivered[i], e);
            }
            for (int w = 0; w < workers; w++)
                subject_close(s[w]);
        }
}

/* Disjoint supports: what is sent and what is kept are the elements themselves, bit for bit. */
static void selection_plus_residual_is_bitwise_the_input(void **state)
{
    enum { N = 500 };
    float g[N], y[N], p[N];
    uint64_t seed = 11;
    (void)state;

    for (int which = 0; which < 3; which++) {
        subject *s = subject_open(
            (const char *const[]){ "ef(topk(ratio=0.1))", "ef(threshold(value=1))", "ef(randomk(ratio=0.1))" }[which],
            N);
        memset(p, 0, sizeof p);
        for (uint64_t step = 0; step < 30; step++) {
            const float *e = residual_of(s);
            subject_fill(N, g, 0, &seed);
            for (size_t i = 0; i < N; i++)
                p[i] = e[i] + g[i];
            fed_back(&s, 1, step, (float *[]){ g }, y);
            for (size_t i = 0; i < N; i++)
                assert_true(y[i] == 0 ? e[i] == p[i] : y[i] == p[i] && e[i] == 0);
        }
        subject_close(s);
    }
}

/* f = c |a + b| + |a - b|, 0 < c < 1, from (1, 1): the signs of the gradients never move a + b,
   with error feedback it goes to 0. */
static void error_feedback_mends_the_counterexample_of_sign(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        subject *s = subject_open(with ? "ef(sign)" : "sign", 2);
        float x[2] = { 1, 1 }, y[2];
        for (uint64_t step = 0; step < 4000; step++) {
            const float up = 0.5f * (x[0] + x[1] >= 0 ? 1.0f : -1.0f), apart = x[0] - x[1] >= 0 ? 1.0f : -1.0f;
            float g[2] = { up + apart, up - apart };
            if (with)
                fed_back(&s, 1, step, (float *[]){ g }, y);
            else
                subject_round_trip(s, step, g, y);
            x[0] -= 0.003f * y[0], x[1] -= 0.003f * y[1];
        }
        assert_true(with ? fabsf(x[0] + x[1]) < 0.05f : fabsf(x[0] + x[1] - 2) < 1e-3f);
        subject_close(s);
    }
}

static void server_option_adds_a_residual_for_the_owner(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        subject *s = subject_open(with ? "ef(sign,server=on)" : "ef(sign)", 10);
        tutti_view v = subject_view(s, 0);
        float x[10] = { 1, 2 }, *into;
        v.stage = 1;
        assert_true((s->codec->ops->before(s->codec, &v, x) == x) == !with);
        s->codec->ops->account(s->codec, &v, &into);
        assert_int_equal(into != NULL, with);
        assert_int_equal(tutti_plan_count(s->plan), 1 + with);
        subject_close(s);
    }
}

/* ---- specs ---- */

static void invalid_codec_specs_are_rejected_with_a_message(void **state)
{
    static const struct { const char *spec, *text;
    } rows[] = {
        { "topq",
          "unknown codec 'topq'; did you mean 'topk'? (there are fp32, fp16, bf16, trunc16, int8, minmax8, qsgd, "
          "nuqsgd, e3m0, alq, amq, sign, onebit, onebit-col, sign-vote, topk, threshold, randomk, wangni, dct, "
          "chunk-topk, powersgd, ef, large, ef21, dgc, accordion)" },
        { "qsgd(bucket=500)", "codec 'qsgd': bucket is 500 and must be a power of two, such as 512" },
        { "int8(bucket=9)", "codec 'int8': bucket is 9 and must be 0 or at least 16" },
        { "minmax8(chunk=9)", "codec 'minmax8': chunk is 9 and must be 0 or at least 256" },
        { "ef(sign-vote)",
          "codec 'ef': sign-vote makes a vote of what is sent, and of a vote nothing can be made good; use it "
          "without ef, or take sign, which has a scale" },
        { "ef21(large(sign-vote,min=10))",
          "codec 'ef21': sign-vote makes a vote of what is sent, and of a vote nothing can be made good; use it "
          "without ef21, or take sign, which has a scale" },
        { "ef",
          "codec 'ef' wraps another one, 'codec', and was given none; write ef(codec=topk(ratio=0.01)), for example" },
        { "ef(qsgd)",
          "codec 'ef': qsgd is unbiased and may lose more than it was given, so that a residual can grow without "
          "end; use it without ef, or with a codec that loses less than it was given, such as topk, sign or powersgd" },
        { "ef(ef(sign))",
          "codec 'ef': ef inside of it feeds back by itself, and a loss is made good once; give ef the codec itself" },
        { "ef21(dct(mean=senders))",
          "codec 'ef21': the mean of dct is made of all workers' messages at once, and ef21 adds up what each of them "
          "is decoded to; take mean=all" },
        { "ef21(large(accordion(low=fp32,high=dct(mean=senders)),min=10))",
          "codec 'ef21': the mean of large is made of all workers' messages at once, and ef21 adds up what each "
          "of them is decoded to; take mean=all" },
        { "ef21(threshold)",
          "codec 'ef21': threshold may lose as much as it was given, and ef21 converges with codecs that always "
          "keep a part, such as topk, sign or powersgd" },
        { "dgc(alq)", NULL },
        { "ef(accordion(low=qsgd,high=qsgd))", NULL },
        { "ef(accordion(low=ef(sign),high=sign))", NULL },
        { "ef(large(ef(topk)))",
          "codec 'ef': ef inside of it feeds back by itself, and a loss is made good once; give ef the codec itself" },
        { "dgc(large(dgc(topk)))", NULL },
        { "ef(large(qsgd,small=topk))", NULL },
        { "ef(large(topk,small=qsgd))", NULL },
        { "ef(accordion(low=qsgd,high=topk))", NULL },
        { "ef(large(large(ef(sign))))", NULL },
        { "accordion(low=topk)", NULL },
        { "accordion(low=ef(topk),high=sign)",
          "codec 'accordion': ef inside of it is a wrapper, whose state would be one a level; put it round both: "
          "ef(accordion(low=..., high=...))" },
        { "alq(first=9,second=9)", "codec 'alq': second is 9 and must be after first, 9" },
        { "alq(bucket=100)", NULL },
        { "ef(topk,flush=bf16)", NULL },
        { "ef(topk,flush_every=5,flush=large(fp32))",
          "codec 'ef': flush is large, a wrapper, and the whole residual must be sent by a codec that is not a "
          "wrapper: fp32, bf16 or fp16" },
        { "ef(large(accordion(low=topk(ratio=0.1),high=topk)),flush_every=5)",
          "codec 'ef': flush_every is 5, and accordion inside of it would not see the gradients of the steps that "
          "flush; omit flush_every" },
        { "ef(nosuch)", NULL },
        { "qsgd(bits=1)",
          "codec 'qsgd': bits is 1, and a sign and at least one level above 0 take 2; signs alone are codec sign, "
          "or onebit" },
        { "qsgd(bits=9)", NULL },
        { "topk(ratio=1.5)", NULL },
        { "topk(", NULL },
        { "", NULL },
        { "fp16(x=1)", NULL },
        { "ef(ef(ef(ef(ef(ef(sign))))))", NULL },
    };
    const tutti_codec_space space = { .n = 10 };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_plan *plan;
        tutti_codec *c = (void *)1;
        tutti_error err = { 0 };
        assert_int_equal(tutti_plan_open(&plan, 10, NULL), TUTTI_OK);
        assert_int_equal(tutti_codec_declare(&c, plan, rows[k].spec, "codec", &space, &err), TUTTI_ERR_USAGE);
        assert_null(c);
        assert_true(err.text[0] != '\0');
        if (rows[k].text != NULL)
            assert_string_equal(err.text, rows[k].text);
        tutti_plan_close(plan);
    }
    tutti_codec_close(NULL);
}

/* Every table in src/codec is registered once, and declares what it must. */
static void registry_matches_the_source_folder(void **state)
{
    size_t in_folder = 0, registered = 0;
    FILE *f = popen("cat " TUTTI_SOURCE_DIR "/src/codec/*.c", "r");
    char line[1000], name[40];
    (void)state;

    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "const tutti_codec_ops tutti_codec_%39s =", name) != 1)
            continue;
        for (char *c = name; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        if (tutti_codec_find(name) == NULL)
            fail_msg("%s is in no registry", name);
        in_folder++;
    }
    pclose(f);
    for (; tutti_codecs[registered] != NULL; registered++) {
        const tutti_codec_ops *o = tutti_codecs[registered];
        assert_ptr_equal(tutti_codec_find(o->name), o);
        assert_true(o->options != NULL && o->paper != NULL && o->help != NULL && o->traits != NULL);
        /* one form */
        assert_int_equal((o->rounds > 0) + (o->bound != NULL) + (o->choose != NULL), 1);
        assert_true(o->rounds == 0 || (o->width != NULL && o->fold != NULL && o->mine != NULL && o->unfold != NULL));
        assert_true(o->bound == NULL || (o->encode != NULL && o->decode_add != NULL));
        assert_true((!o->by_element || o->before != NULL) && (o->fold_part == NULL || o->fold != NULL));
    }
    assert_int_equal(in_folder, registered);
    assert_null(tutti_codec_find("nosuch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_round_within_their_precision),
        cmocka_unit_test(randomk_selects_every_element_equally_often),
        cmocka_unit_test(randomk_selection_is_shared_and_summable),
        cmocka_unit_test(the_seed_of_randomk_decides_what_it_draws),
        cmocka_unit_test(columns_become_orthonormal_whatever_they_are),
        cmocka_unit_test(orthonormalisation_preserves_the_column_span),
        cmocka_unit_test(powersgd_is_exact_on_matrices_of_its_rank),
        cmocka_unit_test(powersgd_of_workers_equals_powersgd_of_their_mean),
        cmocka_unit_test(powersgd_iterations_continue_on_the_remainder),
        cmocka_unit_test(powersgd_sends_incompressible_matrices_uncompressed),
        cmocka_unit_test(powersgd_recovers_from_zeros_and_from_nan),
        cmocka_unit_test(error_feedback_loses_nothing),
        cmocka_unit_test(selection_plus_residual_is_bitwise_the_input),
        cmocka_unit_test(error_feedback_mends_the_counterexample_of_sign),
        cmocka_unit_test(server_option_adds_a_residual_for_the_owner),
        cmocka_unit_test(invalid_codec_specs_are_rejected_with_a_message),
        cmocka_unit_test(registry_matches_the_source_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
