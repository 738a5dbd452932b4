/* The optimisers: PyTorch's numbers, ranges, scales, the slots they declare
   and the sentences they refuse with. */
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <tutti/method.h>
#include "allocations.h"
#include "optim/placed.h"
#include "optim/schedule.h"
#include "runtime/team.h"
#include "state/plan.h"
#include "vectors.h"
#include "base/machine.h"
#include "kernels/device.h"
#include "optim/optim.h"

typedef struct bench { tutti_device *device; tutti_plan *plan; tutti_optim *optim; } bench;

static bench bench_open(const char *spec, size_t first, size_t count, tutti_cpu cpu)
{
    bench b;
    tutti_error err = { .text = "" };

    assert_int_equal(tutti_device_open_host(&b.device, NULL, cpu, &err), TUTTI_OK);
    assert_int_equal(tutti_plan_open(&b.plan, first + count, &err), TUTTI_OK);
    if (tutti_optim_declare(&b.optim, b.plan, spec, "optim", first, count, TUTTI_SAME, b.device, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    assert_int_equal(tutti_plan_carry_out(b.plan, NULL, &err), TUTTI_OK);
    return b;
}

static void bench_close(bench *b)
{
    tutti_optim_close(b->optim);
    tutti_plan_close(b->plan);
    tutti_device_close(b->device);
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* How far a is from b in units in the last place of `size`. */
static double ulps(float a, float b, double size)
{
    return a == b ? 0 : fabs((double)a - b) / ldexp(1, ilogb(fmax(size, FLT_MIN)) - 23);
}

/* SGD to the bit; Adam's m and v too, unless L2 decay brings the weights back into the gradient.
   Adam's weights: PyTorch's square root may be off by its last place in each step, so that the
   steps, below 4 lr here, differ in their last two; over these twenty steps the tolerance is 2 ulp
   of the larger of |w| and 4 lr. With L2 decay 4 ulp of m and v themselves. */
static void optimizer_updates_match_pytorch(void **state)
{
    (void)state;
    for (int c = 0; c < CONFIGURATIONS; c++) {
        const char *spec = expected[c].spec;
        const bool adam = strncmp(spec, "adam", 4) == 0,
                   l2 = adam && spec[4] != 'w' && strstr(spec, "weight_decay") != NULL;
        bench b = bench_open(spec, 0, COUNT, TUTTI_CPU_AVX512);
        float w[COUNT];
        double worst = 0;
        memcpy(w, start, sizeof w);
        assert_true(tutti_optim_lr(b.optim) == expected[c].lr);
        for (int t = 1, k = 0; t <= STEPS; t++) {
            const tutti_rate rate = { expected[c].falling ? expected[c].lr / t : expected[c].lr, 1, (uint64_t)t };
            tutti_update(b.optim, 0, COUNT, w, gradients[t - 1], &rate);
            if (t != kept_steps[k])
                continue;
            for (int i = 0; i < COUNT; i++) {
                const double off = ulps(w[i], expected[c].kept[k][i], fmax(fabs(w[i]), 4 * expected[c].lr));
                worst = fmax(worst, off);
                if (off > (adam ? 2 : 0))
                    fail_msg("%s: weight %d after step %d is %a, not %a (%g ulp)", spec, i, t, w[i],
                             expected[c].kept[k][i], off);
            }
            k++;
        }
        for (int s = 0; s < b.optim->ops->slots(b.optim->self); s++)
            for (int i = 0; i < COUNT; i++) {
                const float is = b.optim->slot[s][i], be = expected[c].slot[s][i];
                worst = fmax(worst, ulps(is, be, fabs(be)));
                if (ulps(is, be, fabs(be)) > (l2 ? 4 : 0))
                    fail_msg("%s: slot %d of weight %d is %a, not %a", spec, s, i, is, be);
            }
        print_message("%s: at most %g ulp\n", spec, worst);
        bench_close(&b);
    }
}

static const char *const specs[] = {
    "sgd", "sgd(momentum=0.9)", "sgd(momentum=0.9,nesterov=on,weight_decay=0.1)", "sgd(momentum=0.5,dampening=0.5)",
    "adam", "adam(beta1=0.3,weight_decay=0.1)", "adamw(weight_decay=0.3)",
};

/* A number that is awkward once in a while: denormal, infinite, NaN, huge. */
static float awkward(uint64_t index)
{
    static const float special[] = { 0, -0.0f, 1e-40f, -1e-45f, INFINITY, -INFINITY, NAN, FLT_MAX, FLT_MIN };
    const tutti_rng rng = { 77, 0, 0 };

    if (tutti_random(rng, index) % 8 == 0)
        return special[(tutti_random(rng, index) >> 8) % TUTTI_LENGTH(special)];
    return (float)tutti_normal((tutti_rng){ 78, 0, 0 }, index);
}

/* The whole at once at the scalar level against odd ranges at each level, over several steps. */
static void any_split_and_any_level_give_the_same_bits(void **state)
{
    enum { FIRST = 1000, N = 517, ROUNDS = 4 };
    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(specs); s++)
        for (int cpu = TUTTI_CPU_SCALAR; cpu <= (int)tutti_cpu_best(); cpu++) {
            bench whole = bench_open(specs[s], FIRST, N, TUTTI_CPU_SCALAR),
                  parts = bench_open(specs[s], FIRST, N, (tutti_cpu)cpu);
            float w[2][N], g[N];
            uint64_t index = 0;
            for (size_t i = 0; i < N; i++)
                w[0][i] = w[1][i] = awkward(index++);
            for (uint64_t t = 1; t <= ROUNDS; t++) {
                const tutti_rate rate = { 0.01 / (double)t, 0.125, t };
                for (size_t i = 0; i < N; i++)
                    g[i] = awkward(index++);
                tutti_update(whole.optim, FIRST, N, w[0], g, &rate);
                for (size_t at = 0, count; at < N; at += count) {
                    count = 1 + tutti_random((tutti_rng){ 5, s, t }, at) % 60;
                    count = count < N - at ? count : N - at;
                    tutti_update(parts.optim, FIRST + at, count, w[1] + at, g + at, &rate);
                }
                for (size_t i = 0; i < N; i++) {
                    assert_true(same(w[0][i], w[1][i]));
                    for (int k = 0; k < whole.optim->ops->slots(whole.optim->self); k++)
                        assert_true(same(whole.optim->slot[k][i], parts.optim->slot[k][i]));
                }
            }
            bench_close(&whole);
            bench_close(&parts);
        }
}

static void a_power_of_two_as_scale_equals_scaled_gradients(void **state)
{
    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(specs); s++)
        for (int power = -8; power <= 8; power += 4) {
            bench folded = bench_open(specs[s], 0, COUNT, TUTTI_CPU_AVX512),
                  scaled = bench_open(specs[s], 0, COUNT, TUTTI_CPU_AVX512);
            const float factor = ldexpf(1, power);
            float w[2][COUNT], g[COUNT];
            memcpy(w[0], start, sizeof start);
            memcpy(w[1], start, sizeof start);
            for (int t = 1; t <= STEPS; t++) {
                const tutti_rate with = { 0.01, factor, (uint64_t)t }, without = { 0.01, 1, (uint64_t)t };
                for (int i = 0; i < COUNT; i++)
                    g[i] = factor * gradients[t - 1][i];
                tutti_update(folded.optim, 0, COUNT, w[0], gradients[t - 1], &with);
                tutti_update(scaled.optim, 0, COUNT, w[1], g, &without);
            }
            assert_memory_equal(w[0], w[1], sizeof w[0]);
            bench_close(&folded);
            bench_close(&scaled);
        }
}

/* Without eps a scale of 2^k changes nothing in Adam; with g = 0 and m = 0 a weight stays; AdamW
   without decay is Adam; the first step is lr in the direction of -g. */
static void adam_keeps_its_identities(void **state)
{
    bench one = bench_open("adam(eps=0)", 0, COUNT, TUTTI_CPU_AVX512),
          many = bench_open("adam(eps=0)", 0, COUNT, TUTTI_CPU_AVX512);
    bench plain = bench_open("adam", 0, COUNT, TUTTI_CPU_AVX512),
          decoupled = bench_open("adamw(weight_decay=0)", 0, COUNT, TUTTI_CPU_AVX512);
    float w[4][COUNT];
    const float zero[COUNT] = { 0 };
    (void)state;

    for (int j = 0; j < 4; j++)
        memcpy(w[j], start, sizeof start);
    for (int t = 1; t <= STEPS; t++) {
        const tutti_rate rate = { 0.01, 1, (uint64_t)t }, larger = { 0.01, 1024, (uint64_t)t };
        float g[COUNT];
        for (int i = 0; i < COUNT; i++)
            g[i] = i == 1 || i == 2 ? 1 : gradients[t - 1][i]; /* no 0 / 0, no denormal squares */
        tutti_update(one.optim, 0, COUNT, w[0], g, &rate);
        tutti_update(many.optim, 0, COUNT, w[1], g, &larger);
        tutti_update(plain.optim, 0, COUNT, w[2], gradients[t - 1], &rate);
        tutti_update(decoupled.optim, 0, COUNT, w[3], gradients[t - 1], &rate);
        if (t == 1)
            for (int i = 0; i < COUNT; i++)
                assert_true(ulps(w[0][i], start[i] - copysignf(0.01f, g[i]), fmax(fabs(start[i]), 0.01)) <= 3);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_equal(w[2], w[3], sizeof w[2]);
    bench_close(&plain);

    plain = bench_open("adam", 0, COUNT, TUTTI_CPU_AVX512);
    memcpy(w[0], start, sizeof start);
    tutti_update(plain.optim, 0, COUNT, w[0], zero, &(tutti_rate){ 0.01, 1, 1 });
    assert_memory_equal(w[0], start, sizeof start);
    bench_close(&one);
    bench_close(&many);
    bench_close(&plain);
    bench_close(&decoupled);
}

/* Late steps: beta^t is gone, and the rate is lr itself; a million steps cost no accuracy. */
static void the_bias_corrections_follow_t(void **state)
{
    static const uint64_t times[] = { 1, 2, 3, 10, 1000, 54321, 1000000, UINT64_MAX };
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(times); k++) {
        bench b = bench_open("adam(lr=0.5,eps=0)", 0, 1, TUTTI_CPU_SCALAR);
        const double t = (double)times[k], c1 = 1 - pow(0.9, t), c2 = 1 - pow(0.999, t);
        const double m = 0.1 * 3, v = 0.001 * 9, w = 1 - 0.5 / c1 * m / sqrt(v / c2);
        float x = 1, g = 3;
        tutti_update(b.optim, 0, 1, &x, &g, &(tutti_rate){ 0.5, 1, times[k] });
        assert_true(fabs(x - w) <= 4 * fmax(1, fabs(w)) * 0x1p-23);
        bench_close(&b);
    }
}

/* A thousand steps against the same rules in double: relative to the largest weight the difference
   stays below 1e-5. Decoupled decay adds what rounding 1 - lr weight_decay to float costs, as in
   PyTorch: up to 2^-25 a step, always in one direction. */
static void a_thousand_steps_stay_near_double_arithmetic(void **state)
{
    enum { N = 33, LONG = 1000 };
    static const struct { const char *spec; double beta1, beta2, l2, decoupled; } rows[] = {
        { "adam(weight_decay=0.01)",                       0.9, 0.999, 0.01, 0 },
        { "adamw(beta1=0.8,beta2=0.99,weight_decay=0.05)", 0.8, 0.99,  0,    0.05 },
        { "sgd(momentum=0.9,weight_decay=0.02)",           0.9, 0,     0.02, 0 },
    };
    (void)state;
    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        bench b = bench_open(rows[r].spec, 0, N, TUTTI_CPU_AVX512);
        float x[N], g[N];
        double w[N], m[N] = { 0 }, v[N] = { 0 }, largest = 0, off = 0;
        for (int i = 0; i < N; i++)
            w[i] = x[i] = (float)tutti_normal((tutti_rng){ 1, r, 0 }, (uint64_t)i);
        for (int t = 1; t <= LONG; t++) {
            const double lr = 0.01;
            for (int i = 0; i < N; i++) {
                double d;
                g[i] = (float)tutti_normal((tutti_rng){ 2, r, (uint64_t)t }, (uint64_t)i);
                d = g[i] + rows[r].l2 * w[i];
                if (rows[r].beta2 == 0) {
                    m[i] = t == 1 ? d : rows[r].beta1 * m[i] + d;
                    w[i] -= lr * m[i];
                    continue;
                }
                m[i] = rows[r].beta1 * m[i] + (1 - rows[r].beta1) * d;
                v[i] = rows[r].beta2 * v[i] + (1 - rows[r].beta2) * d * d;
                w[i] -= lr * rows[r].decoupled * w[i];
                w[i] -= lr / (1 - pow(rows[r].beta1, t)) * m[i] / (sqrt(v[i] / (1 - pow(rows[r].beta2, t))) + 1e-8);
            }
            tutti_update(b.optim, 0, N, x, g, &(tutti_rate){ lr, 1, (uint64_t)t });
        }
        for (int i = 0; i < N; i++) {
            largest = fmax(largest, fabs(w[i]));
            off = fmax(off, fabs(w[i] - x[i]));
        }
        assert_true(off <= (rows[r].decoupled == 0 ? 1e-5 : 1e-5 + LONG * 0x1p-25) * largest);
        bench_close(&b);
    }
}

/* Every allocation of the two open functions fails once: a status, a sentence, nothing given
   out, nothing leaked (sanitizers). */
static void opening_survives_any_failed_allocation(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < 2; schedule++)
        for (int n = 0;; n++) {
            tutti_plan *plan;
            tutti_optim *o = NULL;
            tutti_lr_schedule *s = NULL;
            tutti_error err = { .text = "" };
            tutti_status status;
            assert_int_equal(tutti_plan_open(&plan, 10, NULL), TUTTI_OK);
            allocations_left = n;
            if (schedule)
                status = tutti_lr_schedule_open(&s, "cosine(warmup=1)", 10, &err);
            else
                status = tutti_optim_declare(&o, plan, "sgd(lr=0.1)", "optim", 0, 10, TUTTI_SAME, NULL, &err);
            allocations_left = -1;
            if (status == TUTTI_OK) {
                assert_true(n >= 2);
                tutti_optim_close(o);
                tutti_lr_schedule_close(s);
                tutti_plan_close(plan);
                break;
            }
            assert_int_equal(status, TUTTI_ERR_MEMORY);
            assert_true(strlen(err.text) > 10);
            assert_true(o == NULL && s == NULL);
            tutti_plan_close(plan);
        }
}

static void slots_are_declared_as_state(void **state)
{
    static const struct { const char *spec; int slots; const char *names[2]; } rows[] = {
        { "sgd", 0, { NULL } }, { "sgd(momentum=0.1)", 1, { "outer.momentum" } },
        { "adam", 2, { "outer.exp_avg", "outer.exp_avg_sq" } }, { "adamw", 2, { "outer.exp_avg", "outer.exp_avg_sq" } },
    };
    tutti_device *d;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        tutti_plan *plan;
        tutti_optim *o;
        assert_int_equal(tutti_plan_open(&plan, 500, NULL), TUTTI_OK);
        assert_int_equal(tutti_optim_declare(&o, plan, rows[r].spec, "outer", 100, 30, TUTTI_SLICE, d, NULL), TUTTI_OK);
        assert_int_equal(tutti_plan_carry_out(plan, NULL, NULL), TUTTI_OK);
        assert_int_equal(tutti_plan_count(plan), rows[r].slots);
        for (int k = 0; k < rows[r].slots; k++) {
            void *memory;
            const tutti_state *s = tutti_plan_state(plan, (size_t)k, &memory);
            assert_string_equal(s->name, rows[r].names[k]);
            assert_true(s->keep == TUTTI_SLICE && s->dtype == TUTTI_F32 && s->placed && !s->shared);
            assert_true(s->first == 100 && s->count == 30);
            assert_ptr_equal(o->slot[k], memory);
        }
        for (int k = rows[r].slots; k < TUTTI_SLOTS_MAX; k++)
            assert_null(o->slot[k]);
        tutti_optim_close(o);
        tutti_plan_close(plan);
    }
    tutti_optim_close(NULL);
    tutti_device_close(d);
}

/* A worker with parts of a vector updates them as one with all of it, and states for which it has
   slots. */
static void slots_of_several_ranges_are_those_of_the_whole(void **state)
{
    static const tutti_range ranges[] = { { 16, 48 }, { 64, 0 }, { 100, 1 }, { 160, 33 }, { 200, 56 } };
    enum { N = 256 };
    float w[2][N], g[N];
    tutti_device *d;
    tutti_plan *plan;
    tutti_optim *whole, *part;
    size_t at = 0;
    (void)state;

    assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
    assert_int_equal(tutti_plan_open(&plan, N, NULL), TUTTI_OK);
    assert_int_equal(tutti_optim_declare(&whole, plan, "adam", "whole", 0, N, TUTTI_SAME, d, NULL), TUTTI_OK);
    assert_int_equal(
        tutti_optim_declare_ranges(
            &part, plan,
            &(tutti_optim_request){ "adam", "part", ranges, TUTTI_LENGTH(ranges), false, NULL, d },
            NULL),
        TUTTI_OK);
    assert_int_equal(tutti_plan_carry_out(plan, NULL, NULL), TUTTI_OK);
    for (size_t k = 2; k < 4; k++) {
        const tutti_state *s = tutti_plan_state(plan, k, NULL);
        assert_true(s->keep == TUTTI_SLICE && s->placed && s->n_ranges == TUTTI_LENGTH(ranges) && s->count == 138);
        assert_memory_equal(s->ranges, ranges, sizeof ranges);
    }
    for (size_t i = 0; i < N; i++)
        w[0][i] = w[1][i] = (float)i / 7;
    for (int t = 1; t <= 3; t++) {
        const tutti_rate rate = { 0.1, 1, (uint64_t)t };
        for (size_t i = 0; i < N; i++)
            g[i] = (float)((i * 31 + (size_t)t * 17) % 23) - 11;
        tutti_update(whole, 0, N, w[0], g, &rate);
        for (size_t k = TUTTI_LENGTH(ranges); k-- > 0;) { /* in any order, and in two */
            const tutti_range *r = &ranges[k];
            const size_t half = r->count / 2;
            tutti_update(part, r->first + half, r->count - half, w[1] + r->first + half, g + r->first + half, &rate);
            tutti_update(part, r->first, half, w[1] + r->first, g + r->first, &rate);
        }
    }
    for (size_t k = 0; k < TUTTI_LENGTH(ranges); k++) {
        const tutti_range *r = &ranges[k];
        assert_memory_equal(w[0] + r->first, w[1] + r->first, r->count * sizeof(float));
        for (int s = 0; s < 2; s++)
            assert_memory_equal(whole->slot[s] + r->first, part->slot[s] + at, r->count * sizeof(float));
        at += r->count;
    }
    tutti_optim_close(whole);
    tutti_optim_close(part);
    tutti_plan_close(plan);
    tutti_device_close(d);
}

static void updating_an_empty_shard_does_nothing(void **state)
{
    bench b = bench_open("sgd(momentum=0.9)", 64, 0, TUTTI_CPU_AVX512);
    (void)state;

    tutti_update(b.optim, 64, 0, NULL, NULL, &(tutti_rate){ 0.1, 1, 1 });
    bench_close(&b);
}

static void the_defaults_are_pytorchs(void **state)
{
    static const struct { const char *optim, *option; double value; } rows[] = {
        { "sgd", "lr", 0.01 }, { "sgd", "momentum", 0 }, { "sgd", "dampening", 0 }, { "sgd", "nesterov", 0 },
        { "sgd", "weight_decay", 0 }, { "adam", "lr", 0.001 }, { "adam", "beta1", 0.9 }, { "adam", "beta2", 0.999 },
        { "adam", "eps", 1e-8 }, { "adam", "weight_decay", 0 }, { "adamw", "lr", 0.001 }, { "adamw", "beta1", 0.9 },
        { "adamw", "beta2", 0.999 }, { "adamw", "eps", 1e-8 }, { "adamw", "weight_decay", 0.01 },
    };
    (void)state;
    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        const tutti_option *option = tutti_option_find(tutti_optim_find(rows[r].optim)->options, rows[r].option);
        assert_non_null(option);
        assert_true(option->initial == rows[r].value);
    }
}

static void refuse(const char *spec, const char *prefix, const char *sentence)
{
    tutti_plan *plan;
    tutti_optim *o = (tutti_optim *)&plan;
    tutti_error err;

    assert_int_equal(tutti_plan_open(&plan, 10, NULL), TUTTI_OK);
    assert_int_equal(tutti_optim_declare(&o, plan, spec, prefix, 0, 10, TUTTI_SAME, NULL, &err), TUTTI_ERR_USAGE);
    assert_null(o);
    assert_string_equal(err.text, sentence);
    assert_int_equal(tutti_plan_count(plan), 0);
    tutti_plan_close(plan);
}

static void invalid_settings_are_rejected_with_a_message(void **state)
{
    char long_prefix[300];
    (void)state;

    refuse("sgd(nesterov=on)", "o",
           "optimizer 'sgd': nesterov=on needs a momentum above 0, and momentum is 0; add momentum=0.9 or leave "
           "nesterov out");
    refuse("sgd(momentum=0.9,nesterov=on,dampening=0.25)", "o",
           "optimizer 'sgd': nesterov=on needs dampening=0, and dampening is 0.25; "
           "leave one of the two out");
    refuse("adamx(lr=1)", "o",
           "unknown optimizer 'adamx'; did you mean 'adam' or 'adamw'? (there are sgd, adam, adamw)");
    memset(long_prefix, 'p', sizeof long_prefix - 1);
    long_prefix[sizeof long_prefix - 1] = '\0';
    refuse("adam", long_prefix,
           "optimizer 'adam': its states cannot be named 'pppppppppppppppppppp...': a prefix has at most 200 bytes, "
           "and this has 299");
}

/* Values out of bounds come from the table; here only that each is refused, and that its name is
   in the sentence. */
static void values_out_of_bounds_are_refused(void **state)
{
    static const struct { const char *spec, *option; } rows[] = {
        { "sgd(lr=-0.1)", "lr" }, { "sgd(momentum=1.5)", "momentum" }, { "sgd(dampening=-1)", "dampening" },
        { "sgd(weight_decay=-1e-4)", "weight_decay" }, { "sgd(lr=nan)", "lr" }, { "adam(beta1=1)", "beta1" },
        { "adam(beta2=1)", "beta2" }, { "adam(beta1=-0.1)", "beta1" }, { "adam(eps=-1e-8)", "eps" },
        { "adamw(weight_decay=-0.01)", "weight_decay" }, { "adamw(lr=inf)", "lr" },
        { "sgd(nesterov=perhaps)", "nesterov" }, { "adam(momentum=0.9)", "momentum" }, { "sgd(", "sgd(" },
    };
    (void)state;
    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        tutti_plan *plan;
        tutti_optim *o;
        tutti_error err = { .text = "" };
        assert_int_equal(tutti_plan_open(&plan, 10, NULL), TUTTI_OK);
        assert_int_equal(tutti_optim_declare(&o, plan, rows[r].spec, "o", 0, 10, TUTTI_SAME, NULL, &err),
                         TUTTI_ERR_USAGE);
        assert_null(o);
        assert_non_null(strstr(err.text, rows[r].option));
        assert_int_equal(strncmp(err.text, "optimizer", 9), 0);
        tutti_plan_close(plan);
    }
}

/* Files of the folder that are no optimiser. */
static bool part_of_the_room(const char *file)
{
    static const char *const parts[] = { "registry.c", "optim.c", "schedule.c", "tiled.c", "placed.c" };

    for (size_t i = 0; i < TUTTI_LENGTH(parts); i++)
        if (strcmp(file, parts[i]) == 0)
            return true;
    return false;
}

static void registry_matches_the_source_folder(void **state)
{
    DIR *folder = opendir(TUTTI_SOURCE_DIR "/src/optim");
    struct dirent *entry;
    size_t files = 0, rows = 0;
    (void)state;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char name[256];
        const size_t length = strlen(entry->d_name);
        if (length < 3 || length >= sizeof name || strcmp(entry->d_name + length - 2, ".c") != 0 ||
            part_of_the_room(entry->d_name))
            continue;
        memcpy(name, entry->d_name, length - 2);
        name[length - 2] = '\0';
        if (tutti_optim_find(name) == NULL)
            fail_msg("src/optim/%s is not in the registry", entry->d_name);
        files++;
    }
    closedir(folder);
    for (; tutti_optims[rows] != NULL; rows++) {
        int names = 0;
        assert_ptr_equal(tutti_optim_find(tutti_optims[rows]->name), tutti_optims[rows]);
        while (tutti_optims[rows]->slot_names[names] != NULL)
            names++;
        assert_true(names <= TUTTI_SLOTS_MAX);
        assert_non_null(tutti_optims[rows]->paper);
    }
    assert_int_equal(files, rows);
    assert_null(tutti_optim_find("registry"));
}

/* Threads, tiles, odd places and the copy change no bit: the copy is what tutti_cast gives. The
   long one is of the size from which the copy goes past the caches. */
static void tiled_update_with_copy_matches_update_and_cast(void **state)
{
    static const char *const rules[] = { "sgd", "sgd(momentum=0.9)", "adam(weight_decay=0.1)", "adamw" };
    static const size_t counts[] = { 0, 1, 63, 4096, 4097, 50001, ((size_t)8 << 20) + 77 };
    static const tutti_dtype types[] = { TUTTI_BF16, TUTTI_F16 };
    tutti_runtime *rt;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++)
        for (size_t k = 0; k < TUTTI_LENGTH(rules); k++)
            for (tutti_cpu cpu = TUTTI_CPU_SCALAR; cpu <= tutti_cpu_best(); cpu++) {
                const size_t n = counts[c];
                const tutti_dtype type = types[(k + c) % 2];
                tutti_rate rate = { .lr = 0.1, .scale = 0.5, .t = 1 };
                bench one, many;
                float *w, *x, *g;
                uint16_t *cast, *copy;
                tutti_team *team;
                if (n > 100000 && (cpu != tutti_cpu_best() || k < 3)) /* the scalar one takes its time */
                    continue;
                one = bench_open(rules[k], 3, n + 1, cpu);
                many = bench_open(rules[k], 3, n + 1, cpu);
                w = malloc((n + 2) * sizeof *w), x = malloc((n + 2) * sizeof *x), g = malloc((n + 2) * sizeof *g);
                cast = malloc((n + 3) * sizeof *copy), copy = malloc((n + 3) * sizeof *copy);
                assert_int_equal(tutti_team_open(&team, rt, "update", 1 + (int)(c + k) % 4, NULL), TUTTI_OK);
                tutti_fill_normal(one.device, n + 2, (tutti_rng){ 1, 2, 3 }, w);
                memcpy(x, w, (n + 2) * sizeof *x);
                for (; rate.t <= 2; rate.t++) {
                    tutti_fill_normal(one.device, n + 2, (tutti_rng){ 1, 2, 3 + rate.t }, g);
                    copy[n + 1] = 0x1234;
                    tutti_update(one.optim, 4, n, w + 1, g + 1, &rate);
                    tutti_cast(one.device, tutti_host(w + 1, n, TUTTI_F32), tutti_host(cast + 1, n, type));
                    tutti_update_tiled(many.optim, 4, n, x + 1, g + 1, &rate, tutti_host(copy + 1, n, type),
                                       rate.t == 2 && c == 4 ? NULL : team);
                    assert_memory_equal(x, w, (n + 2) * sizeof *x);
                    assert_memory_equal(copy + 1, cast + 1, n * sizeof *copy);
                    assert_int_equal(copy[n + 1], 0x1234);
                }
                tutti_update(one.optim, 4, n, w + 1, g + 1, &rate);
                tutti_update_tiled(many.optim, 4, n, x + 1, g + 1, &rate, tutti_nothing(), team);
                assert_memory_equal(x, w, (n + 2) * sizeof *x);
                tutti_team_close(team);
                free(w), free(x), free(g), free(cast), free(copy);
                bench_close(&one), bench_close(&many);
            }
    tutti_runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizer_updates_match_pytorch),
        cmocka_unit_test(any_split_and_any_level_give_the_same_bits),
        cmocka_unit_test(a_power_of_two_as_scale_equals_scaled_gradients),
        cmocka_unit_test(tiled_update_with_copy_matches_update_and_cast),
        cmocka_unit_test(adam_keeps_its_identities),
        cmocka_unit_test(the_bias_corrections_follow_t),
        cmocka_unit_test(a_thousand_steps_stay_near_double_arithmetic),
        cmocka_unit_test(opening_survives_any_failed_allocation),
        cmocka_unit_test(slots_are_declared_as_state),
        cmocka_unit_test(slots_of_several_ranges_are_those_of_the_whole),
        cmocka_unit_test(updating_an_empty_shard_does_nothing),
        cmocka_unit_test(the_defaults_are_pytorchs),
        cmocka_unit_test(invalid_settings_are_rejected_with_a_message),
        cmocka_unit_test(values_out_of_bounds_are_refused),
        cmocka_unit_test(registry_matches_the_source_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
