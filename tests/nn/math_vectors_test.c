/* src/nn/math against PyTorch: math_vectors.py says how math_vectors.h is made and by
   which formulas inputs are filled. */
#include "math_test.h"
#include "math_vectors.h"

enum { ARRAYS = 64 };
typedef struct pool { float *of[ARRAYS]; int count; } pool;

static float *kept(pool *p, float *array)
{
    assert_true(p->count < ARRAYS);
    return p->of[p->count++] = array;
}

static float *values(pool *p, int k, size_t n)
{
    float *x = kept(p, room(n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(sin(0.37 * (double)i + 1.3 * k) + cos(0.011 * (double)i + k));
    return x;
}

static uint32_t ids_of(size_t i, uint32_t limit) { return (uint32_t)(7 * i + 3) % limit; }

static void near(const char *name, const char *what, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s: %s is %.9g, PyTorch has %.9g", name, what, got, expected);
}

/* Tolerances are 2e-6 of the norm for the norm and single elements and, for a sum of n
   values, of norm sqrt(n), its largest. */
static void check(const char *name, const float *got, size_t n)
{
    for (size_t v = 0; v < TUTTI_LENGTH(vectors); v++)
        if (strcmp(vectors[v].name, name) == 0) {
            const vector *e = &vectors[v];
            const size_t places[] = { 0, n / 3, n / 2, n - 1 };
            double sum = 0, square = 0;
            assert_int_equal(n, e->count);
            for (size_t i = 0; i < n; i++) {
                sum += (double)got[i];
                square += (double)got[i] * (double)got[i];
            }
            near(name, "norm", sqrt(square), e->norm, 2e-6 * e->norm);
            near(name, "sum", sum, e->sum, 2e-6 * e->norm * sqrt((double)n));
            for (int i = 0; i < 4; i++)
                near(name, "an element", (double)got[places[i]], e->at[i], 2e-6 * e->norm);
            return;
        }
    fail_msg("math_vectors.h has no '%s'", name);
}

static void gelu_agrees(const nn_math *m, pool *p)
{
    const float *x = values(p, 0, 300), *dy = values(p, 1, 300);
    float *y = kept(p, room(300));

    m->gelu(300, x, y);
    check("gelu y", y, 300);
    m->gelu_back(300, x, dy, y);
    check("gelu dx", y, 300);
    m->gelu_tanh(300, x, y);
    check("gelu_tanh y", y, 300);
    m->gelu_tanh_back(300, x, dy, y);
    check("gelu_tanh dx", y, 300);
}

static void norms_agree(const nn_math *m, pool *p)
{
    enum { R = 70, C = 50, N = R * C };
    const float *x = values(p, 0, N), *gamma = values(p, 1, C), *beta = values(p, 2, C), *dy = values(p, 3, N);
    float *y = kept(p, room(N)), mean[R], rstd[R], dgamma[C], dbeta[C], scratch[4 * C];

    m->layer_norm(&(nn_norm){ R, C, gamma, beta, 1e-5f }, x, y, &(nn_row_statistics){ mean, rstd });
    check("layer_norm y", y, N);
    m->layer_norm_back(&(nn_norm){ R, C, gamma, NULL, 0 }, x, &(nn_row_statistics){ mean, rstd },
                       dy, &(nn_norm_slopes){ y, false, dgamma, dbeta, false }, scratch);
    check("layer_norm dx", y, N);
    check("layer_norm dgamma", dgamma, C);
    check("layer_norm dbeta", dbeta, C);
    m->rms_norm(&(nn_norm){ R, C, gamma, NULL, 1e-5f }, x, y, rstd);
    check("rms_norm y", y, N);
    m->rms_norm_back(&(nn_norm){ R, C, gamma, NULL, 0 }, x, rstd, dy,
                     &(nn_norm_slopes){ y, false, dgamma, NULL, false }, scratch);
    check("rms_norm dx", y, N);
    check("rms_norm dgamma", dgamma, C);
}

static void embedding_agrees(const nn_math *m, pool *p)
{
    enum { T = 40, W = 20, V = 11 };
    const float *table = values(p, 0, V * W), *dy = values(p, 3, T * W);
    float *y = kept(p, room(T * W)), dtable[V * W] = { 0 };
    uint32_t ids[T];

    for (size_t i = 0; i < T; i++)
        ids[i] = ids_of(i, 9);
    m->gather(T, W, ids, table, y);
    check("embedding y", y, T * W);
    m->scatter_add(T, &(nn_columns){ W, 0, W }, ids, dy, dtable);
    check("embedding dtable", dtable, V * W);
}

static void entropy_agrees(const nn_math *m, pool *p)
{
    enum { R = 9, C = 1300 };
    float *x = values(p, 0, R * C), loss;
    uint32_t labels[R];
    nn_entropy state[R];
    size_t right;

    for (size_t i = 0; i < R; i++)
        labels[i] = ids_of(i, C);
    for (size_t i = 0; i < R * C; i++)
        x[i] *= 4;
    m->entropy(&(nn_logits){ R, 0, 1024, C, x }, labels, state);
    m->entropy(&(nn_logits){ R, 1024, C - 1024, C, x + 1024 }, labels, state);
    loss = (float)tutti_nn_entropy_loss(R, state, labels, &right);
    check("cross_entropy y", &loss, 1);
    m->entropy_back(&(nn_logits){ R, 0, C, C, x }, labels, state, 0.125f, x);
    check("cross_entropy dx", x, R * C);
}

static void attention_agrees(const nn_math *m, pool *p)
{
    enum { B = 2, L = 45, H = 2, D = 24, N = B * L * H * D };
    for (int causal = 0; causal < 2; causal++) {
        const nn_attention a = { B, H, L, D, H * D, H * D, 1 / sqrtf(D), causal };
        const float *q = values(p, 0, N), *k = values(p, 1, N), *v = values(p, 2, N), *slope = values(p, 3, N);
        float *o = kept(p, room(N)), *dq = kept(p, room(N)), *dk = kept(p, room(N)), *dv = kept(p, room(N)),
              *scratch = kept(p, room(tutti_nn_attention_scratch(&a))), lse[B * H * L];
        m->attention(&a, 0, B * H, &(nn_attention_values){ q, k, v, o, lse }, scratch);
        m->attention_back(&a, 0, B * H, &(nn_attention_values){ q, k, v, o, lse },
                          &(nn_attention_slopes){ slope, dq, dk, dv }, scratch);
        check(causal ? "attention y" : "attention_all y", o, N);
        check(causal ? "attention dq" : "attention_all dq", dq, N);
        check(causal ? "attention dk" : "attention_all dk", dk, N);
        check(causal ? "attention dv" : "attention_all dv", dv, N);
    }
}

static void batch_norm_agrees(const nn_math *m, pool *p)
{
    enum { B = 3, C = 5, S = 42, N = B * C * S };
    const nn_channels c = { B, 1, S, C };
    const float *plain = values(p, 0, N), *gamma = values(p, 1, C), *beta = values(p, 2, C), *dy = values(p, 3, N);
    float *x = kept(p, room(N)), *y = kept(p, room(N)), *dx = kept(p, room(N)), *running_mean = values(p, 4, C),
          *running_variance = values(p, 5, C);
    float mean[C], rstd[C], dgamma[C], dbeta[C];

    for (size_t i = 0; i < N; i++) /* nchw to nhwc */
        x[(i / (C * S) * S + i % S) * C + i / S % C] = plain[i];
    m->batch_norm(&c, &(nn_batch_norm){ gamma, beta, 1e-5f, true }, x, y,
                  &(nn_row_statistics){ mean, rstd },
                  &(nn_running){ 0.1f, running_mean, running_variance });
    m->batch_norm_back(&c, &(nn_batch_norm_kept){ x, y, gamma, mean, rstd },
                       &(nn_batch_norm_slopes){ dy, dx, dgamma, dbeta, false });
    check("batch_norm y", y, N);
    check("batch_norm dx", dx, N);
    check("batch_norm dgamma", dgamma, C);
    check("batch_norm dbeta", dbeta, C);
    check("batch_norm running_mean", running_mean, C);
    check("batch_norm running_variance", running_variance, C);
}

static void on_every_level(void (*agrees)(const nn_math *m, pool *p))
{
    for (int l = 0; l < levels(); l++) {
        pool p = { .count = 0 };
        agrees(level(l), &p);
        for (int i = 0; i < p.count; i++)
            free(p.of[i]);
    }
}

static void gelu_agrees_with_pytorch(void **state) { (void)state; on_every_level(gelu_agrees); }
static void norms_agree_with_pytorch(void **state) { (void)state; on_every_level(norms_agree); }
static void embedding_agrees_with_pytorch(void **state) { (void)state; on_every_level(embedding_agrees); }
static void cross_entropy_agrees_with_pytorch(void **state) { (void)state; on_every_level(entropy_agrees); }
static void attention_agrees_with_pytorch(void **state) { (void)state; on_every_level(attention_agrees); }
static void batch_norm_agrees_with_pytorch(void **state) { (void)state; on_every_level(batch_norm_agrees); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_agrees_with_pytorch),      cmocka_unit_test(norms_agree_with_pytorch),
        cmocka_unit_test(embedding_agrees_with_pytorch), cmocka_unit_test(cross_entropy_agrees_with_pytorch),
        cmocka_unit_test(attention_agrees_with_pytorch), cmocka_unit_test(batch_norm_agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
