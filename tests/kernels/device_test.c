/* The device itself: levels, types, random fills, and what it charges to a runtime that counts. */
#include "harness.h"
#include "kernels/vectors.h"
#include "base/machine.h"
#include "kernels/device.h"
#include "kernels/compensate.h"
#include <tutti/base.h>

static void a_device_has_at_most_the_machines_level(void **state)
{
    (void)state;
    for (int cpu = TUTTI_CPU_SCALAR; cpu <= TUTTI_CPU_AVX512; cpu++) {
        tutti_device *d;
        const int best = (int)tutti_cpu_best();
        assert_int_equal(tutti_device_open_host(&d, NULL, (tutti_cpu)cpu, NULL), TUTTI_OK);
        assert_int_equal(tutti_device_cpu(d), cpu < best ? cpu : best);
        assert_string_equal(tutti_device_kind(d), "host");
        tutti_device_close(d);
    }
    tutti_device_close(NULL);
}

static void types_have_the_names_and_sizes_of_safetensors(void **state)
{
    static const struct { tutti_dtype dtype; const char *name; size_t bytes; } rows[] = {
        { TUTTI_F32, "F32", 4 }, { TUTTI_BF16, "BF16", 2 }, { TUTTI_F16, "F16", 2 }, { TUTTI_I32, "I32", 4 },
        { TUTTI_I64, "I64", 8 }, { TUTTI_U8, "U8", 1 },     { TUTTI_F64, "F64", 8 },  { TUTTI_I8, "I8", 1 },
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        assert_string_equal(tutti_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(tutti_dtype_bytes(rows[i].dtype), rows[i].bytes);
    }
}

static void random_fills_are_a_function_of_the_index(void **state)
{
    const tutti_rng rng = { 42, 3, 9 };
    float normal[300], uniform[300], shorter[17];
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_AVX512, NULL), TUTTI_OK);
    tutti_fill_normal(d, 300, rng, normal);
    tutti_fill_uniform(d, 300, rng, -0.5f, 2, uniform);
    for (size_t i = 0; i < 300; i++) {
        assert_true(normal[i] == (float)tutti_normal(rng, i));
        assert_true(uniform[i] == (float)(-0.5 + 2.5 * tutti_uniform(rng, i)));
    }
    tutti_fill_normal(d, 17, rng, shorter);
    assert_memory_equal(shorter, normal, sizeof shorter);
    tutti_device_close(d);
}

/* Levels give the same bits at every length; a normal is that of base.h except for the last bit
   now and then, since the library's log and cos may differ. */
static void random_fills_are_the_same_at_every_level(void **state)
{
    enum { N = 100003 };
    harness_levels l = harness_open();
    float *first = malloc(N * sizeof *first), *other = malloc(N * sizeof *other);
    const tutti_rng rngs[] = { { 42, 3, 9 }, { 0, 0, 0 }, { UINT64_MAX, UINT64_MAX - 5, UINT64_MAX / 3 } };
    (void)state;

    for (size_t r = 0; r < TUTTI_LENGTH(rngs); r++) {
        size_t different = 0;
        tutti_fill_normal(l.device[0], N, rngs[r], first);
        for (size_t i = 0; i < N; i++) {
            const float x = (float)tutti_normal(rngs[r], i);
            assert_true(first[i] >= nextafterf(x, -INFINITY) && first[i] <= nextafterf(x, INFINITY));
            different += first[i] != x;
        }
        assert_true(different <= 2);
        for (int k = 1; k < l.count; k++) {
            tutti_fill_normal(l.device[k], N, rngs[r], other);
            assert_memory_equal(other, first, N * sizeof *other);
        }
        tutti_fill_uniform(l.device[0], N, rngs[r], -0.5f, 2, first);
        for (size_t i = 0; i < N; i++)
            assert_true(first[i] == (float)(-0.5 + 2.5 * tutti_uniform(rngs[r], i)));
        for (int k = 1; k < l.count; k++) {
            tutti_fill_uniform(l.device[k], N, rngs[r], -0.5f, 2, other);
            assert_memory_equal(other, first, N * sizeof *other);
        }
        for (size_t n = 0; n < 70; n++)
            for (int k = 0; k < l.count; k++) {
                other[n] = 77;
                tutti_fill_uniform(l.device[k], n, rngs[r], -0.5f, 2, other);
                assert_memory_equal(other, first, n * sizeof *other);
                tutti_fill_normal(l.device[k], n, rngs[r], other);
                assert_true(other[n] == 77);
            }
    }
    free(first);
    free(other);
    harness_close(&l);
}

/* Where floats are coarse, half of the draws round up to the excluded end: none may stay there. */
static void a_uniform_fill_never_reaches_its_upper_end(void **state)
{
    static const float ranges[][2] = {
        { 16777216, 16777218 }, { 1, 0x1.000004p0f }, { -0x1.000004p0f, -1 }, { 0, 0x1p-149f }, { -0x1p-149f, 0 }
    };
    float y[500];
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
    for (size_t r = 0; r < TUTTI_LENGTH(ranges); r++) {
        tutti_fill_uniform(d, 500, (tutti_rng){ r, 0, 0 }, ranges[r][0], ranges[r][1], y);
        for (size_t i = 0; i < 500; i++)
            assert_true(y[i] >= ranges[r][0] && y[i] < ranges[r][1]);
    }
    tutti_fill_uniform(d, 5, (tutti_rng){ 0 }, 3, 3, y);
    for (size_t i = 0; i < 5; i++)
        assert_true(y[i] == 3);
    tutti_device_close(d);
}

typedef struct { double flops, bytes; } account;

static void note(void *self, double flops, double bytes)
{
    account *a = self;
    a->flops += flops;
    a->bytes += bytes;
}

#define CHARGED(call, f, b)                                  \
    do {                                                     \
        sum = (account){ 0, 0 };                             \
        call;                                                \
        assert_true(sum.flops == (f) && sum.bytes == (b));   \
    } while (0)

static void every_kernel_charges_its_work(void **state)
{
    static const tutti_runtime_ops ops = {
        .abi = TUTTI_RUNTIME_ABI, .bytes = sizeof ops, .name = "counting", .charge = note
    };
    account sum;
    tutti_runtime rt = { &ops, &sum };
    const tutti_sgd_step plain = { .lr = 1, .scale = 1 }, momentum = { .lr = 1, .scale = 1, .momentum = 0.5f };
    const tutti_adam_step adam = { .scale = 1, .shrink = 1, .one_minus_beta1 = 0.1f, .eps = 1, .root_c2 = 1 };
    const tutti_compensation compensation = { .a = 1, .eps = 1 };
    float x[100] = { 0 }, y[100] = { 0 }, z[100] = { 0 }, w[100] = { 0 };
    uint16_t h[100];
    const float *both[2] = { x, y }, weights[2] = { 1, 1 };
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, &rt, TUTTI_CPU_AVX512, NULL), TUTTI_OK);
    CHARGED(tutti_copy(d, 100, x, y), 0, 800);
    CHARGED(tutti_fill(d, 100, 1, y), 0, 400);
    CHARGED(tutti_add(d, 100, x, y), 100, 1200);
    CHARGED(tutti_scale(d, 100, 2, y), 100, 800);
    CHARGED(tutti_axpy(d, 100, 2, x, y), 200, 1200);
    CHARGED(tutti_blend(d, 100, 2, x, 1, y), 300, 1200);
    CHARGED(tutti_diff(d, 100, 2, x, y, z), 200, 1200);
    CHARGED(tutti_add_diff(d, 100, 2, x, y, z), 300, 1600);
    CHARGED(tutti_lerp(d, 100, 0.5f, x, y), 300, 1200);
    CHARGED(tutti_compensate(d, 100, &compensation, x, y, z, NULL), 500, 1600);
    CHARGED(tutti_compensate(d, 100, &compensation, x, y, z, w), 1100, 2400);
    CHARGED(tutti_tree_sum(d, 100, 2, both, NULL, z), 100, 1200);
    CHARGED(tutti_tree_sum(d, 100, 2, both, weights, z), 300, 1200);
    CHARGED(tutti_tree_sum_all(d, 100, 2, (float *const[]){ x, y }, NULL), 100, 1600);
    CHARGED((void)tutti_norm2(d, 100, x), 200, 400);
    CHARGED((void)tutti_dot(d, 100, x, y), 200, 800);
    CHARGED((void)tutti_finite(d, 100, x), 0, 400);
    CHARGED(tutti_cast(d, tutti_f32(d, x, 100), tutti_host(h, 100, TUTTI_F16)), 0, 600);
    CHARGED(tutti_fill_normal(d, 100, (tutti_rng){ 0 }, y), 10000, 400);
    CHARGED(tutti_fill_uniform(d, 100, (tutti_rng){ 0 }, 0, 1, y), 5000, 400);
    CHARGED(tutti_step_sgd(d, 100, &plain, w, x, NULL), 300, 1200);
    CHARGED(tutti_step_sgd(d, 100, &momentum, w, x, y), 600, 2000);
    CHARGED(tutti_step_adam(d, 100, &adam, w, x, y, z), 1500, 2800);
    tutti_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_has_at_most_the_machines_level),
        cmocka_unit_test(types_have_the_names_and_sizes_of_safetensors),
        cmocka_unit_test(random_fills_are_a_function_of_the_index),
        cmocka_unit_test(random_fills_are_the_same_at_every_level),
        cmocka_unit_test(a_uniform_fill_never_reaches_its_upper_end),
        cmocka_unit_test(every_kernel_charges_its_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
