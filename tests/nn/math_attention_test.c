/* Goal: attention and its backward are softmax(scale q k^T) v and its derivative, with the same
   bits at every level and however units are split; a query never sees a later position. Method:
   the plain algorithm in double, whose derivative is itself checked against central differences;
   lengths round every tile, strides with gaps. */
#include "math_test.h"

typedef struct sample {
    nn_attention a;
    /* floats of q, k, v each (their rows overlap in memory as in a matrix of rows
       q, k, v), of o, of batch x heads */
    size_t in, out, units;
    float *qkv, *slope;
    float *o, *lse, *dqkv, *scratch;
} sample;

static sample sample_of(size_t batch, size_t heads, size_t length, size_t width, size_t gap, bool causal, uint64_t seed)
{
    sample s = { .a = { batch, heads, length, width, 3 * heads * width + gap, heads * width + gap,
                        1 / sqrtf((float)width), causal } };

    s.in = batch * length * s.a.stride;
    s.out = batch * length * s.a.out_stride;
    s.units = batch * heads;
    s.qkv = drawn(s.in, seed, 1.5);
    s.slope = drawn(s.out, seed + 1, 1);
    s.o = room(s.out);
    s.lse = room(s.units * length);
    s.dqkv = room(s.in);
    s.scratch = room(tutti_nn_attention_scratch(&s.a));
    return s;
}

static void sample_free(sample *s)
{
    float *const all[] = { s->qkv, s->slope, s->o, s->lse, s->dqkv, s->scratch };
    for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
        free(all[i]);
}

static void run(const nn_math *m, sample *s, size_t first, size_t count)
{
    const size_t d = s->a.heads * s->a.width;
    m->attention(&s->a, first, count,
                 &(nn_attention_values){ s->qkv, s->qkv + d, s->qkv + 2 * d, s->o, s->lse },
                 s->scratch);
    assert_guarded("attention's scratch", s->scratch, tutti_nn_attention_scratch(&s->a));
}

static void run_back(const nn_math *m, sample *s, size_t first, size_t count)
{
    const size_t d = s->a.heads * s->a.width;
    m->attention_back(&s->a, first, count,
                      &(nn_attention_values){ s->qkv, s->qkv + d, s->qkv + 2 * d, s->o, s->lse },
                      &(nn_attention_slopes){ s->slope, s->dqkv, s->dqkv + d, s->dqkv + 2 * d },
                      s->scratch);
    assert_guarded("attention's scratch", s->scratch, tutti_nn_attention_scratch(&s->a));
}

/* One unit in double; at: where its q, k, v begin in x and its o in out. p: length x length. */
static void plain(const nn_attention *a, const double *q, const double *k, const double *v, double *o, double *lse,
                  double *p)
{
    for (size_t i = 0; i < a->length; i++) {
        const size_t keys = a->causal ? i + 1 : a->length;
        double max = -INFINITY, sum = 0;
        for (size_t j = 0; j < keys; j++) {
            double s = 0;
            for (size_t t = 0; t < a->width; t++)
                s += q[i * a->stride + t] * k[j * a->stride + t];
            p[i * a->length + j] = s * (double)a->scale;
            max = fmax(max, p[i * a->length + j]);
        }
        for (size_t j = 0; j < keys; j++)
            sum += exp(p[i * a->length + j] - max);
        lse[i] = max + log(sum);
        for (size_t j = 0; j < a->length; j++)
            p[i * a->length + j] = j < keys ? exp(p[i * a->length + j] - lse[i]) : 0;
        for (size_t t = 0; t < a->width; t++) {
            o[i * a->out_stride + t] = 0;
            for (size_t j = 0; j < keys; j++)
                o[i * a->out_stride + t] += p[i * a->length + j] * v[j * a->stride + t];
        }
    }
}

static void plain_back(const nn_attention *a, const double *q, const double *k, const double *v, const double *o,
                       const double *p, const double *g, double *dq, double *dk, double *dv)
{
    for (size_t i = 0; i < a->length; i++) {
        double d = 0;
        for (size_t t = 0; t < a->width; t++)
            d += g[i * a->out_stride + t] * o[i * a->out_stride + t];
        for (size_t j = 0; j < a->length; j++) {
            const double w = p[i * a->length + j];
            double dp = 0;
            for (size_t t = 0; t < a->width; t++)
                dp += g[i * a->out_stride + t] * v[j * a->stride + t];
            for (size_t t = 0; t < a->width; t++) {
                dv[j * a->stride + t] += w * g[i * a->out_stride + t];
                dq[i * a->stride + t] += w * (dp - d) * (double)a->scale * k[j * a->stride + t];
                dk[j * a->stride + t] += w * (dp - d) * (double)a->scale * q[i * a->stride + t];
            }
        }
    }
}

/* Copies what belongs to a unit, so that gaps do not count. */
static void check(const char *what, const nn_attention *a, const float *got, const double *expected, size_t stride,
                  double tolerance)
{
    float *g = calloc(a->length * a->width, sizeof *g);
    double *e = calloc(a->length * a->width, sizeof *e);
    for (size_t i = 0; i < a->length; i++)
        for (size_t t = 0; t < a->width; t++) {
            g[i * a->width + t] = got[i * stride + t];
            e[i * a->width + t] = expected[i * stride + t];
        }
    assert_near(what, a->length * a->width, g, e, tolerance);
    free(g);
    free(e);
}

/* Errors grow with the square root of the number of terms: width for a score, length for a sum. */
static void agrees(size_t batch, size_t heads, size_t length, size_t width, size_t gap, bool causal, const nn_math *m)
{
    sample s = sample_of(batch, heads, length, width, gap, causal, length * 31 + width);
    double *x = widened(s.in, s.qkv), *g = widened(s.out, s.slope), *o = calloc(s.out, sizeof *o),
           *lse = calloc(length, sizeof *lse), *p = calloc(length * length, sizeof *p);
    double *dx = calloc(s.in, sizeof *dx);
    const size_t d = heads * width;
    const double tolerance = 4e-7 * sqrt((double)(length + width)) * 2;

    run(m, &s, 0, s.units);
    run_back(m, &s, 0, s.units);
    for (size_t u = 0; u < s.units; u++) {
        const size_t at = u / heads * length * s.a.stride + u % heads * width,
                     out = u / heads * length * s.a.out_stride + u % heads * width;
        plain(&s.a, x + at, x + at + d, x + at + 2 * d, o + out, lse, p);
        plain_back(&s.a, x + at, x + at + d, x + at + 2 * d, o + out, p, g + out, dx + at, dx + at + d,
                   dx + at + 2 * d);
        check("o", &s.a, s.o + out, o + out, s.a.out_stride, tolerance);
        assert_near("lse", length, s.lse + u * length, lse, tolerance);
        check("dq", &s.a, s.dqkv + at, dx + at, s.a.stride, tolerance);
        check("dk", &s.a, s.dqkv + at + d, dx + at + d, s.a.stride, tolerance);
        check("dv", &s.a, s.dqkv + at + 2 * d, dx + at + 2 * d, s.a.stride, tolerance);
    }
    for (size_t i = 0; i < s.in && gap > 0; i++) /* nothing was written between the rows */
        if (i % s.a.stride >= 3 * d)
            assert_memory_equal(&s.dqkv[i], "ZZZZ", 4);
    assert_guarded("o", s.o, s.out);
    assert_guarded("lse", s.lse, s.units * length);
    assert_guarded("dqkv", s.dqkv, s.in);
    double *const all[] = { x, g, o, lse, p, dx };
    for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
        free(all[i]);
    sample_free(&s);
}

static void forward_and_backward_agree_with_the_plain_algorithm(void **state)
{
    static const size_t lengths[] = { 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200 };
    static const size_t widths[] = { 1, 3, 7, 8, 16, 20, 32, 40, 64, 65 };

    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 0; i < TUTTI_LENGTH(lengths); i++) {
            if (l == 0 && lengths[i] > 65)
                continue; /* slow, and its bits are compared below */
            agrees(1, 1, lengths[i], widths[i % TUTTI_LENGTH(widths)], 0, true, level(l));
            agrees(2, 3, lengths[i], widths[(i + 3) % TUTTI_LENGTH(widths)], 5, true, level(l));
            agrees(1, 2, lengths[i], widths[(i + 5) % TUTTI_LENGTH(widths)], 1, false, level(l));
        }
}

/* The derivative of sum(slope o) by one value, in double: the plain
   backward is the yardstick above. */
static void plain_attention_gradients_match_central_differences(void **state)
{
    enum { L = 7, W = 3 };
    for (int causal = 0; causal < 2; causal++) {
        sample s = sample_of(1, 1, L, W, 0, causal, 5);
        double *x = widened(s.in, s.qkv), *g = widened(s.out, s.slope), o[L * W], lse[L], p[L * L],
               dx[3 * L * W] = { 0 };

        (void)state;
        plain(&s.a, x, x + W, x + 2 * W, o, lse, p);
        plain_back(&s.a, x, x + W, x + 2 * W, o, p, g, dx, dx + W, dx + 2 * W);
        for (size_t i = 0; i < s.in; i++) {
            const double keep = x[i], h = 1e-5;
            double f[2];
            for (int side = 0; side < 2; side++) {
                x[i] = keep + (side == 0 ? -h : h);
                plain(&s.a, x, x + W, x + 2 * W, o, lse, p);
                f[side] = 0;
                for (size_t j = 0; j < s.out; j++)
                    f[side] += g[j] * o[j];
            }
            x[i] = keep;
            assert_true(fabs((f[1] - f[0]) / (2 * h) - dx[i]) < 1e-8);
        }
        free(x);
        free(g);
        sample_free(&s);
    }
}

static void attention_agrees_bitwise_at_every_cpu_level_and_split(void **state)
{
    static const size_t shapes[][5] = {
        { 2, 2, 33, 16, 0 }, { 1, 3, 65, 8, 3 }, { 1, 1, 130, 20, 0 }, { 2, 1, 17, 1, 1 }, { 1, 1, 64, 64, 0 },
        { 1, 2, 100, 33, 2 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(shapes); i++)
        for (int causal = 0; causal < 2; causal++) {
            const size_t *n = shapes[i];
            sample a = sample_of(n[0], n[1], n[2], n[3], n[4], causal, i);
            run(level(0), &a, 0, a.units);
            run_back(level(0), &a, 0, a.units);
            for (int l = 0; l < levels(); l++) {
                sample b = sample_of(n[0], n[1], n[2], n[3], n[4], causal, i);
                for (size_t u = b.units; u-- > 0;)
                    run(level(l), &b, u, 1);
                for (size_t u = 0; u < b.units; u++)
                    run_back(level(l), &b, u, 1);
                assert_same("o", a.out, b.o, a.o);
                assert_same("lse", a.units * a.a.length, b.lse, a.lse);
                assert_same("dqkv", a.in, b.dqkv, a.dqkv);
                sample_free(&b);
            }
            sample_free(&a);
        }
}

/* Changing positions from p on changes no bit of what comes before; a
   query's slope reaches no later key. */
static void a_query_never_sees_a_later_position(void **state)
{
    enum { L = 150, W = 16 };

    (void)state;
    for (size_t p = 1; p < L; p += 29) {
        sample a = sample_of(1, 1, L, W, 0, true, 9), b = sample_of(1, 1, L, W, 0, true, 9);
        const nn_math *m = level(levels() - 1);
        for (size_t i = p * b.a.stride; i < b.in; i++)
            b.qkv[i] = -3 * b.qkv[i] + 1;
        run(m, &a, 0, 1);
        run(m, &b, 0, 1);
        assert_same("o before", p * W, b.o, a.o);
        assert_same("lse before", p, b.lse, a.lse);
        assert_true(memcmp(a.o + p * W, b.o + p * W, W * sizeof(float)) != 0);
        memset(a.slope + p * W, 0, (L - p) * W * sizeof(float));
        run_back(m, &a, 0, 1);
        for (size_t i = p * a.a.stride; i < a.in; i++)
            assert_true(a.dqkv[i] == 0);
        sample_free(&a);
        sample_free(&b);
    }
}

/* Scores of +-1000: exp never overflows, and one key takes all. */
static void large_scores_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++) {
        sample s = sample_of(1, 1, 70, 4, 0, true, 3);
        for (size_t i = 0; i < s.in; i++)
            s.qkv[i] = 0;
        for (size_t i = 0; i < 70; i++) {
            s.qkv[i * s.a.stride] = 100;                                    /* q */
            /* k: score 1000 at the first, -1000 elsewhere */
            s.qkv[i * s.a.stride + 4] = i == 0 ? 20 : -20;
            s.qkv[i * s.a.stride + 8] = (float)i + 1;                        /* v */
        }
        run(level(l), &s, 0, 1);
        run_back(level(l), &s, 0, 1);
        for (size_t i = 0; i < 70; i++)
            assert_true(s.o[i * 4] == 1 && s.lse[i] == 1000);
        for (size_t i = 0; i < s.in; i++)
            assert_true(isfinite(s.dqkv[i]));
        sample_free(&s);
    }
}

static void nan_inputs_propagate_to_the_output(void **state)
{
    (void)state;
    for (int part = 0; part < 3; part++) {
        sample s = sample_of(1, 1, 40, 8, 0, true, 4);
        s.qkv[20 * s.a.stride + (size_t)part * 8] = NAN;
        run(level(levels() - 1), &s, 0, 1);
        assert_true(isnan(s.o[20 * 8]));
        sample_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_attention_gradients_match_central_differences),
        cmocka_unit_test(forward_and_backward_agree_with_the_plain_algorithm),
        cmocka_unit_test(attention_agrees_bitwise_at_every_cpu_level_and_split),
        cmocka_unit_test(a_query_never_sees_a_later_position),
        cmocka_unit_test(large_scores_neither_overflow_nor_vanish),
        cmocka_unit_test(nan_inputs_propagate_to_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
