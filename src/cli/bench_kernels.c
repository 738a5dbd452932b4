/* bench_kernels.c: `tutti bench kernels`: each vector kernel of base.h at each SIMD level.

   The figure is bytes moved per second as STREAM counts them: arrays read and arrays written, no
   write-allocate (McCalpin, "Memory Bandwidth and Machine Balance", 1995). It is compared with
   memcpy and with a triad in plain C in the same run. A kernel that computes little should come
   near a ratio of 1 when the vectors are larger than the caches. The programs alternate in every
   round, since the memory's bandwidth changes by the minute. Values are small normal numbers, so
   that neither infinities nor denormals are timed. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench_internal.h"
#include "kernels/vectors.h"
#include "base/machine.h"
#include "base/options.h"
#include "kernels/device.h"
#include "kernels/compensate.h"

typedef struct config { tutti_bench_common common; const char *bytes, *only; } config;
const tutti_option tutti_bench_kernels_options[] = {
    { "bytes", TUTTI_TEXT, TUTTI_AT(config, bytes), 0, 0, 0, "32MiB", "of each vector" },
    { "only", TUTTI_TEXT, TUTTI_AT(config, only), 0, 0, 0, "", "one kernel by name" },
    TUTTI_BENCH_COMMON(config),
    { 0 }
};

enum { VECTORS = 5, LEVELS = 3 };
typedef struct vectors { size_t n; float *of[VECTORS]; volatile double sink; } vectors;
typedef struct kernel {
    const char *name;
    double arrays;              /* of n floats, read and written */
    void (*run)(tutti_device *d, vectors *v);
    /* times only 1/part of the vectors, where computing takes far longer than memory; 0: all */
    size_t part;
} kernel;

static void copy(tutti_device *d, vectors *v) { tutti_copy(d, v->n, v->of[0], v->of[1]); }
static void bench_fill(tutti_device *d, vectors *v) { tutti_fill(d, v->n, 0.5f, v->of[1]); }
static void fill_normal(tutti_device *d, vectors *v)
{
    tutti_fill_normal(d, v->n, (tutti_rng){ 1, 2, 3 }, v->of[1]);
}
static void fill_uniform(tutti_device *d, vectors *v)
{
    tutti_fill_uniform(d, v->n, (tutti_rng){ 1, 2, 3 }, -1, 1, v->of[1]);
}
static void bench_add(tutti_device *d, vectors *v) { tutti_add(d, v->n, v->of[0], v->of[1]); }
static void scale(tutti_device *d, vectors *v) { tutti_scale(d, v->n, -1, v->of[1]); }
static void axpy(tutti_device *d, vectors *v) { tutti_axpy(d, v->n, 0.001f, v->of[0], v->of[1]); }
static void blend(tutti_device *d, vectors *v)
{
    tutti_blend(d, v->n, 0.5f, v->of[0], 0.5f, v->of[1]);
}
static void diff(tutti_device *d, vectors *v)
{
    tutti_diff(d, v->n, 0.5f, v->of[0], v->of[1], v->of[2]);
}
static void add_diff(tutti_device *d, vectors *v)
{
    tutti_add_diff(d, v->n, 0.001f, v->of[0], v->of[1], v->of[2]);
}
static void lerp(tutti_device *d, vectors *v) { tutti_lerp(d, v->n, 0.25f, v->of[0], v->of[1]); }
static void compensate(tutti_device *d, vectors *v)
{
    const tutti_compensation c = {
        .a = 1e-4f, .decay = 0.95f, .one_minus_decay = 0.05f, .eps = 1e-7f
    };
    tutti_compensate(d, v->n, &c, v->of[0], v->of[1], v->of[2], v->of[3]);
}
static void norm2(tutti_device *d, vectors *v) { v->sink = tutti_norm2(d, v->n, v->of[0]); }
static void dot(tutti_device *d, vectors *v) { v->sink = tutti_dot(d, v->n, v->of[0], v->of[1]); }
static void all_finite(tutti_device *d, vectors *v) { v->sink = tutti_finite(d, v->n, v->of[0]); }

static void tree_sum(tutti_device *d, vectors *v)
{
    const float *const x[4] = { v->of[0], v->of[1], v->of[2], v->of[3] };
    tutti_tree_sum(d, v->n, 4, x, NULL, v->of[4]);
}

static void cast(tutti_device *d, vectors *v, tutti_dtype half, bool back)
{
    const tutti_buffer wide = tutti_f32(d, v->of[back ? 2 : 0], v->n),
                       narrow = { d, v->of[1], v->n, half };

    if (back)
        tutti_cast(d, narrow, wide);
    else
        tutti_cast(d, wide, narrow);
}

static void to_bf16(tutti_device *d, vectors *v) { cast(d, v, TUTTI_BF16, false); }
static void from_bf16(tutti_device *d, vectors *v) { cast(d, v, TUTTI_BF16, true); }
static void to_f16(tutti_device *d, vectors *v) { cast(d, v, TUTTI_F16, false); }
static void from_f16(tutti_device *d, vectors *v) { cast(d, v, TUTTI_F16, true); }

static void step_sgd(tutti_device *d, vectors *v)
{
    const tutti_sgd_step s = {
        .lr = 1e-4f, .scale = 1, .momentum = 0.9f, .one_minus_dampening = 1
    };
    tutti_step_sgd(d, v->n, &s, v->of[0], v->of[1], v->of[2]);
}

static void step_adam(tutti_device *d, vectors *v)
{
    const tutti_adam_step s = { .scale = 1,
                                .shrink = 1,
                                .one_minus_beta1 = 0.1f,
                                .beta2 = 0.999f,
                                .one_minus_beta2 = 0.001f,
                                .eps = 1e-8f,
                                .step_size = 1e-4f,
                                .root_c2 = 1 };
    tutti_step_adam(d, v->n, &s, v->of[0], v->of[1], v->of[2], v->of[3]);
}

static void copy_bytes(tutti_device *d, vectors *v)
{
    (void)d;
    memcpy(v->of[1], v->of[0], v->n * sizeof(float));
}

static void triad(tutti_device *d, vectors *v)
{
    const float *restrict b = v->of[0], *restrict c = v->of[2];
    float *restrict a = v->of[1];

    (void)d;
    for (size_t i = 0; i < v->n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

static const kernel yardsticks[] = { { "memcpy", 2, copy_bytes }, { "triad", 3, triad } };
static const kernel kernels[] = {
    { "copy", 2, copy },
    { "fill", 1, bench_fill },
    { "fill_normal", 1, fill_normal, 32 },
    { "fill_uniform", 1, fill_uniform, 32 },
    { "add", 3, bench_add },
    { "scale", 2, scale },
    { "axpy", 3, axpy },
    { "blend", 3, blend },
    { "diff", 3, diff },
    { "add_diff", 4, add_diff },
    { "lerp", 3, lerp },
    { "compensate", 6, compensate },
    { "tree_sum_4", 5, tree_sum },
    { "norm2", 1, norm2 },
    { "dot", 2, dot },
    { "finite", 1, all_finite },
    { "to_bf16", 1.5, to_bf16 },
    { "from_bf16", 1.5, from_bf16 },
    { "to_f16", 1.5, to_f16 },
    { "from_f16", 1.5, from_f16 },
    { "step_sgd", 5, step_sgd },
    { "step_adam", 7, step_adam },
};
enum { YARDSTICKS = TUTTI_LENGTH(yardsticks), KERNELS = TUTTI_LENGTH(kernels) };

typedef struct bench {
    tutti_bench b;
    config config;
    vectors v;
    tutti_device *device[LEVELS];
    int levels;
    double *rate[YARDSTICKS + KERNELS * LEVELS]; /* GB/s of each round */
} bench;

/* Restores the values of the start, so that no kernel reads the results of another; the same 64
   Ki values are repeated, since drawing takes long. of[3] >= 0: a second moment. */
static void refill(bench *k)
{
    const size_t drawn = k->v.n < 1 << 16 ? k->v.n : 1 << 16;

    for (int i = 0; i < VECTORS; i++) {
        tutti_fill_uniform(k->device[k->levels - 1], drawn, (tutti_rng){ 7, (uint64_t)i, 0 },
                           i == 3 ? 0.0f : -1.0f, 1, k->v.of[i]);
        for (size_t at = drawn; at < k->v.n; at += drawn)
            memcpy(k->v.of[i] + at, k->v.of[i],
                   (k->v.n - at < drawn ? k->v.n - at : drawn) * sizeof(float));
    }
}

static double measure(bench *k, const kernel *what, tutti_device *d)
{
    const size_t n = k->v.n;
    int64_t begin, took;

    if (what->part > 0 && n >= what->part)
        k->v.n = n / what->part;
    what->run(d, &k->v); /* pages, caches and clocks as the next one finds them */
    begin = tutti_now_ns(k->b.rt);
    what->run(d, &k->v);
    took = tutti_now_ns(k->b.rt) - begin;
    const double bytes = what->arrays * sizeof(float) * (double)k->v.n;
    k->v.n = n;
    return bytes / (double)(took > 0 ? took : 1);
}

static bool wanted(const bench *k, const char *name)
{
    return k->config.only[0] == 0 || strcmp(k->config.only, name) == 0;
}

static tutti_status open_all(bench *k, tutti_error *err)
{
    const char *names[KERNELS];
    char near[128];
    size_t bytes;
    bool known = false;

    for (size_t i = 0; i < KERNELS; i++) {
        names[i] = kernels[i].name;
        known = known || wanted(k, names[i]);
    }
    tutti_suggest(k->config.only, names, KERNELS, near, sizeof near);
    if (!known)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no kernel '%.60s'%s; `tutti bench kernels` lists them",
                          k->config.only, near);
    TUTTI_TRY(tutti_bytes_parse(k->config.bytes, strlen(k->config.bytes), &bytes, err));
    k->v.n = bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1;
    for (k->levels = 0; k->levels < LEVELS && k->levels <= (int)tutti_cpu_best(); k->levels++)
        TUTTI_TRY(tutti_device_open_host(&k->device[k->levels], NULL, (tutti_cpu)k->levels, err));
    for (int i = 0; i < VECTORS; i++)
        if ((k->v.of[i] = tutti_alloc(k->v.n, sizeof(float))) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "%d vectors of %zu bytes; ask for smaller ones with --bytes", VECTORS,
                              k->v.n * sizeof(float));
    for (size_t i = 0; i < TUTTI_LENGTH(k->rate); i++)
        if ((k->rate[i] = tutti_alloc((size_t)k->config.common.repeat, sizeof(double))) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples");
    return TUTTI_OK;
}

static void print_one(bench *k, const char *name, const char *level, double *rates,
                      double memcpy_rate)
{
    const size_t n = (size_t)k->config.common.repeat;
    const double rate = tutti_bench_median(rates, n);
    char label[80];

    if (k->config.common.json) {
        snprintf(label, sizeof label, "kernel/%s%s%s", name, level[0] != 0 ? "/" : "", level);
        tutti_bench_row(
            &k->b, &(tutti_bench_figure){ label, rate, "GB/s", rate / memcpy_rate, "memcpy" },
            json_pack("{s:f, s:f, s:I, s:I}", "min", rates[0], "max", rates[n - 1], "rounds",
                      (json_int_t)n, "bytes", (json_int_t)(k->v.n * sizeof(float))));
    } else
        printf("  %-14s %-8s %9.2f %9.2f %9.2f %9.2f\n", name, level, rate, rates[0], rates[n - 1],
               rate / memcpy_rate);
}

static tutti_status run_kernels(bench *k, tutti_error *err)
{
    char size[32];

    TUTTI_TRY(open_all(k, err));
    for (int64_t r = 0; r < k->config.common.repeat; r++) {
        tutti_bench_progress("kernels: round %lld of %lld", (long long)r + 1,
                             (long long)k->config.common.repeat);
        refill(k);
        for (size_t i = 0; i < YARDSTICKS; i++)
            k->rate[i][r] = measure(k, &yardsticks[i], NULL);
        for (size_t i = 0; i < KERNELS; i++)
            for (int level = 0; wanted(k, kernels[i].name) && level < k->levels; level++) {
                /* those read what the one before them wrote */
                if (level == 0 && strncmp(kernels[i].name, "from_", 5) != 0)
                    refill(k);
                k->rate[YARDSTICKS + i * LEVELS + (size_t)level][r] =
                    measure(k, &kernels[i], k->device[level]);
            }
    }
    tutti_bench_progress("%s", "");
    tutti_bench_print_bytes(size, k->v.n * sizeof(float));
    if (!k->config.common.json)
        printf("vector kernels, one thread, vectors of %s, GB/s of arrays read and written, %lld "
               "rounds\n\n"
               "  %-14s %-8s %9s %9s %9s %9s\n",
               size, (long long)k->config.common.repeat, "kernel", "level", "median", "least",
               "most", "/ memcpy");
    const double memcpy_rate = tutti_bench_median(k->rate[0], (size_t)k->config.common.repeat);
    for (size_t i = 0; i < YARDSTICKS; i++)
        print_one(k, yardsticks[i].name, "", k->rate[i], memcpy_rate);
    for (size_t i = 0; i < KERNELS; i++)
        for (int level = 0; wanted(k, kernels[i].name) && level < k->levels; level++)
            print_one(k, kernels[i].name, tutti_cpu_name((tutti_cpu)level),
                      k->rate[YARDSTICKS + i * LEVELS + (size_t)level], memcpy_rate);
    return TUTTI_OK;
}

int tutti_bench_kernels(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench k = { 0 };
    tutti_status status = tutti_bench_open(
        &k.b,
        &(tutti_bench_kind){ "kernels", tutti_bench_kernels_options, &k.config, &k.config.common },
        argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf("tutti bench kernels [--OPTION VALUE ...]\n\nTimes every vector kernel at each SIMD "
               "level this CPU has: "
               "bytes moved a second, and their ratio to memcpy of the same round.\n\n"
               "  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, tutti_bench_kernels_options, true);
    } else if (status == TUTTI_OK)
        status = run_kernels(&k, &err);
    for (int i = 0; i < VECTORS; i++)
        tutti_free(k.v.of[i]);
    for (int i = 0; i < LEVELS; i++)
        tutti_device_close(k.device[i]);
    for (size_t i = 0; i < TUTTI_LENGTH(k.rate); i++)
        tutti_free(k.rate[i]);
    tutti_bench_close(&k.b);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
