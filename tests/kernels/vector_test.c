/* The element-wise kernels, the sums and the optimiser steps of base.h. Goal: every level gives
   the scalar reference's bits and touches nothing outside its arrays; the reference is the formula.
   Method: each operation in a table, run at each level and at the scalar one on the same numbers,
   for all lengths, all alignments, kinds of numbers and aliasings. */
#include "harness.h"
#include "kernels/vectors.h"
#include "kernels/compensate.h"

enum { ARRAYS = 4 };
typedef double operation(tutti_device *d, size_t n, float *const v[ARRAYS]); /* may change v; gives a sum or 0 */

static double copy(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_copy(d, n, v[0], v[1]); return 0; }
static double copy_self(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_copy(d, n, v[0], v[0]); return 0; }
static double fill(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_fill(d, n, -2.5f, v[0]); return 0; }
static double add(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_add(d, n, v[0], v[1]); return 0; }
static double add_self(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_add(d, n, v[0], v[0]); return 0; }
static double scale(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_scale(d, n, 0.3f, v[0]); return 0; }
static double axpy(tutti_device *d, size_t n, float *const v[ARRAYS]) { tutti_axpy(d, n, 1.7f, v[0], v[1]); return 0; }
static double axpy_self(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_axpy(d, n, -0.1f, v[0], v[0]);
    return 0;
}
static double blend(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_blend(d, n, 0.9f, v[0], 0.1f, v[1]);
    return 0;
}
static double blend_self(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_blend(d, n, 0.9f, v[0], 0.1f, v[0]);
    return 0;
}
static double diff(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_diff(d, n, 3.1f, v[0], v[1], v[2]);
    return 0;
}
static double diff_into_x(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_diff(d, n, 3.1f, v[0], v[1], v[0]);
    return 0;
}
static double diff_into_y(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_diff(d, n, 3.1f, v[0], v[1], v[1]);
    return 0;
}
static double add_diff(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_add_diff(d, n, 0.7f, v[0], v[1], v[2]);
    return 0;
}
static double add_diff_into_y(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_add_diff(d, n, 0.7f, v[0], v[1], v[1]);
    return 0;
}
static double lerp_near_x(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_lerp(d, n, 0.3f, v[0], v[1]);
    return 0;
}
static double lerp_near_y(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_lerp(d, n, 0.7f, v[0], v[1]);
    return 0;
}
static const tutti_compensation compensation = { .a = 0.04f, .decay = 0.95f, .one_minus_decay = 0.05f, .eps = 1e-7f };
static double compensate(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_compensate(d, n, &compensation, v[0], v[1], v[2], NULL);
    return 0;
}
static double compensate_by_mean(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    tutti_compensate(d, n, &compensation, v[0], v[1], v[2], v[3]);
    return 0;
}
static double norm2(tutti_device *d, size_t n, float *const v[ARRAYS]) { return tutti_norm2(d, n, v[0]); }
static double dot(tutti_device *d, size_t n, float *const v[ARRAYS]) { return tutti_dot(d, n, v[0], v[1]); }
static double dot_self(tutti_device *d, size_t n, float *const v[ARRAYS]) { return tutti_dot(d, n, v[1], v[1]); }
static double finite_all(tutti_device *d, size_t n, float *const v[ARRAYS]) { return tutti_finite(d, n, v[0]); }

static double tree3(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const float a[3] = { 0.2f, 0.3f, 0.5f };

    tutti_tree_sum(d, n, 3, (const float *const[3]){ v[0], v[1], v[2] }, a, v[2]);
    return 0;
}

static double tree11(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const float *x[11];

    for (int r = 0; r < 11; r++)
        x[r] = v[r % ARRAYS];
    tutti_tree_sum(d, n, 11, x, NULL, v[3]);
    return 0;
}

static double sgd_plain(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_sgd_step s = { .lr = 0.05f, .scale = 1 };

    tutti_step_sgd(d, n, &s, v[0], v[1], NULL);
    return 0;
}

static double sgd_decay(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_sgd_step s = { .lr = 0.05f, .scale = 0.37f, .decay = 0.013f };

    tutti_step_sgd(d, n, &s, v[0], v[1], NULL);
    return 0;
}

static double sgd_first(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_sgd_step s = {
        .lr = 0.05f, .scale = 0.5f, .momentum = 0.9f, .one_minus_dampening = 0.7f, .first = true
    };

    tutti_step_sgd(d, n, &s, v[0], v[1], v[2]);
    return 0;
}

static double sgd_momentum(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_sgd_step s = {
        .lr = 0.05f, .scale = 0.5f, .momentum = 0.9f, .one_minus_dampening = 0.7f, .decay = 0.01f
    };

    tutti_step_sgd(d, n, &s, v[0], v[1], v[2]);
    return 0;
}

static double sgd_nesterov(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_sgd_step s = { .lr = 0.05f, .scale = 1, .momentum = 0.9f, .one_minus_dampening = 1, .nesterov = true };

    tutti_step_sgd(d, n, &s, v[0], v[1], v[2]);
    return 0;
}

static double adam(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_adam_step s = {
        .scale = 0.25f, .shrink = 1, .one_minus_beta1 = 0.1f, .beta2 = 0.999f, .one_minus_beta2 = 0.001f, .eps = 1e-8f,
        .step_size = 0.0037f, .root_c2 = 0.0632f,
    };

    tutti_step_adam(d, n, &s, v[0], v[1], v[2], v[3]);
    return 0;
}

static double adam_l2(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_adam_step s = {
        .scale = 1, .decay = 0.02f, .shrink = 1, .one_minus_beta1 = 0.7f, .beta2 = 0.9f, .one_minus_beta2 = 0.1f,
        .eps = 0, .step_size = 0.01f, .root_c2 = 0.9f,
    };

    tutti_step_adam(d, n, &s, v[0], v[1], v[2], v[3]);
    return 0;
}

static double adam_decoupled(tutti_device *d, size_t n, float *const v[ARRAYS])
{
    const tutti_adam_step s = {
        .scale = 1, .shrink = 0.9997f, .one_minus_beta1 = 0.5f, .beta2 = 0.95f, .one_minus_beta2 = 0.05f, .eps = 1e-6f,
        .step_size = 0.01f, .root_c2 = 0.3f,
    };

    tutti_step_adam(d, n, &s, v[0], v[1], v[2], v[3]);
    return 0;
}

static const struct { const char *name; operation *run;
} operations[] = {
#define ROW(f) { #f, f }
    ROW(copy),
    ROW(copy_self),
    ROW(fill),
    ROW(add),
    ROW(add_self),
    ROW(scale),
    ROW(axpy),
    ROW(axpy_self),
    ROW(blend),
    ROW(blend_self),
    ROW(diff),
    ROW(diff_into_x),
    ROW(diff_into_y),
    ROW(add_diff),
    ROW(add_diff_into_y),
    ROW(lerp_near_x),
    ROW(lerp_near_y),
    ROW(compensate),
    ROW(compensate_by_mean),
    ROW(norm2),
    ROW(dot),
    ROW(dot_self),
    ROW(finite_all),
    ROW(tree3),
    ROW(tree11),
    ROW(sgd_plain),
    ROW(sgd_decay),
    ROW(sgd_first),
    ROW(sgd_momentum),
    ROW(sgd_nesterov),
    ROW(adam),
    ROW(adam_l2),
    ROW(adam_decoupled),
#undef ROW
};

static void every_level_gives_the_references_bits(void **state)
{
    harness_levels l = harness_open();
    harness_area area[2][ARRAYS]; /* [0]: the reference's, [1]: the level's */
    uint64_t seed = 1;
    (void)state;

    for (int who = 0; who < 2; who++)
        for (int j = 0; j < ARRAYS; j++)
            area[who][j] = harness_area_open();
    for (size_t at = 0, n; (n = harness_length(at)) != SIZE_MAX; at++)
        for (int offset = HARNESS_FLUSH; offset < 16; offset++) {
            const int kind = (int)((at + (size_t)(offset + 1)) % 3);
            for (size_t o = 0; o < TUTTI_LENGTH(operations); o++)
                for (int level = 1; level < l.count; level++) {
                    const uint64_t from = seed;
                    float *v[2][ARRAYS];
                    double sum[2];
                    bool equal;
                    for (int j = 0; j < ARRAYS; j++) {
                        /* The arrays of one operation stand at different
                           alignments, except in the flush case. */
                        const int place = offset == HARNESS_FLUSH ? offset : (offset + 5 * j) % 16;
                        v[0][j] = harness_place(&area[0][j], n * sizeof(float), 0, sizeof(float));
                        v[1][j] = harness_place(&area[1][j], n * sizeof(float), place, sizeof(float));
                        for (size_t i = 0; i < n; i++)
                            v[0][j][i] = v[1][j][i] = harness_number(&seed, kind);
                    }
                    sum[0] = operations[o].run(l.device[0], n, v[0]);
                    sum[1] = operations[o].run(l.device[level], n, v[1]);
                    equal = memcmp(&sum[0], &sum[1], sizeof sum[0]) == 0 || (isnan(sum[0]) && isnan(sum[1]));
                    for (int j = 0; j < ARRAYS; j++) {
                        for (size_t i = 0; i < n; i++)
                            equal = equal && harness_same(v[0][j][i], v[1][j][i]);
                        if (!harness_guards_stand(&area[1][j], v[1][j], n * sizeof(float)))
                            fail_msg("%s wrote outside array %d: level %d, n %zu, offset %d", operations[o].name, j,
                                     level, n, offset);
                    }
                    if (!equal)
                        fail_msg("%s differs: level %d, n %zu, offset %d, kind %d, seed %llu", operations[o].name,
                                 level, n, offset, kind, (unsigned long long)from);
                }
        }
    for (int who = 0; who < 2; who++)
        for (int j = 0; j < ARRAYS; j++)
            harness_area_close(&area[who][j]);
    harness_close(&l);
}

/* The formulas of base.h, each operation rounded to float through memory. */
static void the_reference_is_the_formula(void **state)
{
    harness_levels l = harness_open();
    tutti_device *d = l.device[0];
    uint64_t seed = 7;
    (void)state;

    for (int round = 0; round < 20000; round++) {
        const float x = harness_number(&seed, round % 2), y = harness_number(&seed, round % 2),
                    z = harness_number(&seed, round % 2);
        const float a = harness_number(&seed, 0), b = harness_number(&seed, 0);
        volatile float t = a * x, u = b * y, v = x - y, r;
        float q;
        r = y + x, q = y, tutti_add(d, 1, &x, &q), assert_true(harness_same(r, q));
        r = a * y, q = y, tutti_scale(d, 1, a, &q), assert_true(harness_same(r, q));
        r = y + t, q = y, tutti_axpy(d, 1, a, &x, &q), assert_true(harness_same(r, q));
        r = t + u, q = y, tutti_blend(d, 1, a, &x, b, &q), assert_true(harness_same(r, q));
        r = a * v, q = z, tutti_diff(d, 1, a, &x, &y, &q), assert_true(harness_same(r, q));
        u = a * v, r = z + u, q = z, tutti_add_diff(d, 1, a, &x, &y, &q), assert_true(harness_same(r, q));
        u = y - x, r = fmaf(0.3f, u, x), q = y, tutti_lerp(d, 1, 0.3f, &x, &q), assert_true(harness_same(r, q));
        r = fmaf(-0.25f, u, y), q = y, tutti_lerp(d, 1, 0.75f, &x, &q), assert_true(harness_same(r, q));
        { /* delay compensation of the gradient z, which was computed at y, for x; b in place of the mean */
            const tutti_compensation c = { .a = a, .decay = 0.75f, .one_minus_decay = 0.25f, .eps = 1e-7f };
            float m = fabsf(b);
            volatile float square = z * z, w = a * square, kept = 0.75f * m, added = 0.25f * square,
                           mean = kept + added, shifted = mean + 1e-7f, root = sqrtf(shifted), by;
            r = w * v, r = z + r, q = z, tutti_compensate(d, 1, &c, &x, &y, &q, NULL), assert_true(harness_same(r, q));
            by = w / root, r = by * v, r = z + r, q = z, tutti_compensate(d, 1, &c, &x, &y, &q, &m),
            assert_true(harness_same(r, q) && harness_same(mean, m));
        }
        q = z, tutti_copy(d, 1, &x, &q), assert_int_equal(harness_bits(q), harness_bits(x));
        q = z, tutti_fill(d, 1, x, &q), assert_true(harness_same(q, x));
    }
    harness_close(&l);
}

/* Sixteen lanes and their pairwise sum, written out from the header. */
static void sums_use_the_documented_sixteen_lanes(void **state)
{
    harness_levels l = harness_open();
    float x[1000], y[1000];
    uint64_t seed = 3;
    (void)state;

    for (int i = 0; i < 1000; i++)
        x[i] = harness_number(&seed, 0), y[i] = harness_number(&seed, 0);
    for (size_t n = 0; n <= 1000; n += n < 50 ? 1 : 19) {
        double lane[16] = { 0 }, l8[8], l4[4], square[16] = { 0 }, s8[8], s4[4];
        for (size_t i = 0; i < n; i++) {
            lane[i % 16] += (double)x[i] * y[i];
            square[i % 16] += (double)x[i] * x[i];
        }
        for (int j = 0; j < 8; j++)
            l8[j] = lane[j] + lane[j + 8], s8[j] = square[j] + square[j + 8];
        for (int j = 0; j < 4; j++)
            l4[j] = l8[j] + l8[j + 4], s4[j] = s8[j] + s8[j + 4];
        for (int level = 0; level < l.count; level++) {
            assert_true(tutti_dot(l.device[level], n, x, y) == (l4[0] + l4[2]) + (l4[1] + l4[3]));
            assert_true(tutti_norm2(l.device[level], n, x) == (s4[0] + s4[2]) + (s4[1] + s4[3]));
        }
    }
    harness_close(&l);
}

static void one_number_that_is_not_finite_is_found_anywhere(void **state)
{
    static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xff800001 };
    harness_levels l = harness_open();
    float x[70];
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (size_t n = 0; n <= 70; n++) {
            for (size_t i = 0; i < 70; i++)
                x[i] = harness_float(i < n ? 0x7f7fffff : 0x7f800000); /* beyond n they do not count */
            assert_true(tutti_finite(l.device[level], n, x));
            for (size_t at = 0; at < n; at++) {
                x[at] = harness_float(bad[(at + n) % TUTTI_LENGTH(bad)]);
                assert_false(tutti_finite(l.device[level], n, x));
                x[at] = harness_float(0x807fffff);
            }
        }
    harness_close(&l);
}

/* Overlap, shards and tiles rely on this: an element's bits do not depend on the range in which
   it is processed. */
static void steps_do_not_depend_on_the_split(void **state)
{
    enum { N = 211 };
    harness_levels l = harness_open();
    float whole[ARRAYS][N], pieces[ARRAYS][N];
    uint64_t seed = 5;
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (int round = 0; round < 300; round++) {
            operation *const run =
                (operation *const[]){ sgd_momentum, sgd_nesterov, sgd_decay, adam, adam_l2, adam_decoupled }[round % 6];
            for (int j = 0; j < ARRAYS; j++)
                for (int i = 0; i < N; i++)
                    whole[j][i] = pieces[j][i] = harness_number(&seed, round % 3);
            run(l.device[level], N, (float *const[]){ whole[0], whole[1], whole[2], whole[3] });
            for (size_t first = 0, count; first < N; first += count) {
                count = harness_random(&seed) % 40;
                count = count < N - first ? count : N - first;
                run(l.device[level], count,
                    (float *const[]){ pieces[0] + first, pieces[1] + first, pieces[2] + first, pieces[3] + first });
            }
            for (int j = 0; j < ARRAYS; j++)
                for (int i = 0; i < N; i++)
                    assert_true(harness_same(whole[j][i], pieces[j][i]));
        }
    harness_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_gives_the_references_bits),
        cmocka_unit_test(the_reference_is_the_formula),
        cmocka_unit_test(sums_use_the_documented_sixteen_lanes),
        cmocka_unit_test(one_number_that_is_not_finite_is_found_anywhere),
        cmocka_unit_test(steps_do_not_depend_on_the_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
