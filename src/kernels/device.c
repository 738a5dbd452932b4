/* device.c: the device, and the vector functions of base.h and vectors.h: each calls the kernel
   of the device's table and charges the runtime. The charge counts the floating-point operations
   of the formula and the bytes that have to pass through memory once. So simulated time depends
   neither on the level nor on the machine on which the simulation runs. */
#include "kernels_internal.h"
#include "base/random.h"
#include "kernels/vectors.h"
#include "base/machine.h"
#include "device.h"
#include <assert.h>
#include <errno.h>
#include <math.h>

#define SET(name) name(&d->kernels);
tutti_status tutti_device_open_host(tutti_device **out, tutti_runtime *rt, tutti_cpu cpu,
                                    tutti_error *err)
{
    const tutti_cpu best = tutti_cpu_best();
    tutti_device *d = tutti_alloc(1, sizeof *d);

    *out = d;
    if (d == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "opening the host device: no memory for its %zu bytes; close other "
                          "programs or use fewer workers on this host",
                          sizeof *d);
    d->rt = rt;
    d->cpu = cpu < best ? cpu : best;

    TUTTI_KERNELS_FILES(SET, )
#if defined(__x86_64__)
    if (d->cpu >= TUTTI_CPU_AVX2) {
        TUTTI_KERNELS_FILES(SET, _avx2)
    }
    if (d->cpu >= TUTTI_CPU_AVX512) {
        TUTTI_KERNELS_FILES(SET, _avx512)
    }
#elif defined(__aarch64__)
    if (d->cpu >= TUTTI_CPU_NEON) {
        TUTTI_KERNELS_FILES(SET, _neon)
    }
#endif
    return TUTTI_OK;
}

void tutti_device_close(tutti_device *d)
{
    tutti_free(d);
}

tutti_cpu tutti_device_cpu(const tutti_device *d)
{
    return d->cpu;
}

const char *tutti_device_kind(const tutti_device *d)
{
    (void)d; /* one kind so far */
    return "host";
}

static const struct { const char *name; size_t bytes;
} dtypes[] = {
    [TUTTI_F32] = { "F32", 4 }, [TUTTI_BF16] = { "BF16", 2 }, [TUTTI_F16] = { "F16", 2 },
    [TUTTI_I32] = { "I32", 4 }, [TUTTI_I64] = { "I64", 8 },   [TUTTI_U8] = { "U8", 1 },
    [TUTTI_F64] = { "F64", 8 }, [TUTTI_I8] = { "I8", 1 },
};

size_t tutti_dtype_bytes(tutti_dtype dtype)
{
    assert((size_t)dtype < TUTTI_LENGTH(dtypes));
    return dtypes[dtype].bytes;
}

const char *tutti_dtype_name(tutti_dtype dtype)
{
    assert((size_t)dtype < TUTTI_LENGTH(dtypes));
    return dtypes[dtype].name;
}

/* Charges n elements. flops, bytes: of one element. */
static void charge(tutti_device *d, size_t n, double flops, double bytes)
{
    if (d->rt != NULL)
        tutti_charge(d->rt, (double)n * flops, (double)n * bytes);
}

void tutti_copy(tutti_device *d, size_t n, const float *x, float *y)
{
    if (n > 0 && x != y) /* the C library's copy knows the machine better than we do */
        memcpy(y, x, n * sizeof *y);
    charge(d, n, 0, 8);
}

void tutti_fill(tutti_device *d, size_t n, float a, float *y)
{
    d->kernels.fill(n, a, y);
    charge(d, n, 0, 4);
}

void tutti_fill_normal(tutti_device *d, size_t n, tutti_rng rng, float *y)
{
    uint32_t counter[4], key[2];

    rng.stream ^= TUTTI_NORMAL_STREAM;
    tutti_philox_begin(rng, counter, key);
    d->kernels.fill_normal(n, counter, key, y);
    charge(d, n, 100, 4);
}

void tutti_fill_uniform(tutti_device *d, size_t n, tutti_rng rng, float low, float high, float *y)
{
    uint32_t counter[4], key[2];

    tutti_philox_begin(rng, counter, key);
    d->kernels.fill_uniform(n, counter, key, low, high, y);
    charge(d, n, 50, 4);
}

void tutti_add(tutti_device *d, size_t n, const float *x, float *y)
{
    d->kernels.add(n, x, y);
    charge(d, n, 1, 12);
}

void tutti_scale(tutti_device *d, size_t n, float a, float *y)
{
    d->kernels.scale(n, a, y);
    charge(d, n, 1, 8);
}

void tutti_axpy(tutti_device *d, size_t n, float a, const float *x, float *y)
{
    d->kernels.axpy(n, a, x, y);
    charge(d, n, 2, 12);
}

void tutti_blend(tutti_device *d, size_t n, float a, const float *x, float b, float *y)
{
    d->kernels.blend(n, a, x, b, y);
    charge(d, n, 3, 12);
}

void tutti_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z)
{
    d->kernels.diff(n, a, x, y, z);
    charge(d, n, 2, 12);
}

void tutti_add_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z)
{
    d->kernels.add_diff(n, a, x, y, z);
    charge(d, n, 3, 16);
}

void tutti_lerp(tutti_device *d, size_t n, float a, const float *x, float *y)
{
    d->kernels.lerp(n, a, x, y);
    charge(d, n, 3, 12);
}

void tutti_compensate(tutti_device *d, size_t n, const tutti_compensation *c, const float *x,
                      const float *y, float *g, float *mean)
{
    d->kernels.compensate(n, c, x, y, g, mean);
    charge(d, n, mean == NULL ? 5 : 11, mean == NULL ? 16 : 24);
}

void tutti_tree_sum(tutti_device *d, size_t n, int p, const float *const *x, const float *a,
                    float *y)
{
    tutti_kernels_tree_sum(&d->kernels, n, p, x, a, y);
    charge(d, n, (a == NULL ? 0 : p) + p - 1, 4.0 * (p + 1));
}

void tutti_tree_sum_all(tutti_device *d, size_t n, int p, float *const *x, const float *a)
{
    tutti_kernels_tree_sum_all(&d->kernels, n, p, x, a);
    charge(d, n, (a == NULL ? 0 : p) + p - 1, 4.0 * (2 * p));
}

double tutti_norm2(tutti_device *d, size_t n, const float *x)
{
    const double sum = d->kernels.norm2(n, x);

    charge(d, n, 2, 4);
    return sum;
}

double tutti_dot(tutti_device *d, size_t n, const float *x, const float *y)
{
    const double sum = d->kernels.dot(n, x, y);

    charge(d, n, 2, 8);
    return sum;
}

bool tutti_finite(tutti_device *d, size_t n, const float *x)
{
    const bool all = d->kernels.finite(n, x);

    charge(d, n, 0, 4);
    return all;
}

void tutti_cast(tutti_device *d, tutti_buffer from, tutti_buffer to)
{
    const tutti_kernels *k = &d->kernels;
    const size_t n = from.count;

    assert(from.count == to.count);
    charge(d, n, 0, (double)(tutti_dtype_bytes(from.dtype) + tutti_dtype_bytes(to.dtype)));
    if (from.dtype == to.dtype) {
        if (n > 0 && from.data != to.data)
            memcpy(to.data, from.data, n * tutti_dtype_bytes(to.dtype));
    } else if (from.dtype == TUTTI_F32 && to.dtype == TUTTI_BF16)
        k->bf16_from_f32(n, from.data, to.data);
    else if (from.dtype == TUTTI_BF16 && to.dtype == TUTTI_F32)
        k->f32_from_bf16(n, from.data, to.data);
    else if (from.dtype == TUTTI_F32 && to.dtype == TUTTI_F16)
        k->f16_from_f32(n, from.data, to.data);
    else if (from.dtype == TUTTI_F16 && to.dtype == TUTTI_F32)
        k->f32_from_f16(n, from.data, to.data);
    else if (from.dtype == TUTTI_F32 && to.dtype == TUTTI_F64)
        k->f64_from_f32(n, from.data, to.data);
    else if (from.dtype == TUTTI_F64 && to.dtype == TUTTI_F32)
        k->f32_from_f64(n, from.data, to.data);
    else
        assert(!"no cast between these two types");
}

void tutti_cast_at_hand(tutti_device *d, size_t n, const float *x, tutti_buffer to, bool past)
{
    const tutti_kernels *k = &d->kernels;

    assert(to.count == n && (to.dtype == TUTTI_BF16 || to.dtype == TUTTI_F16));
    if (to.dtype == TUTTI_BF16)
        (past ? k->bf16_past : k->bf16_from_f32)(n, x, to.data);
    else
        (past ? k->f16_past : k->f16_from_f32)(n, x, to.data);
    charge(d, n, 0, 2);
}

void tutti_step_sgd(tutti_device *d, size_t n, const tutti_sgd_step *s, float *w, const float *g,
                    float *momentum)
{
    assert((momentum == NULL) == (s->momentum == 0));
    d->kernels.sgd(n, s, w, g, momentum);
    charge(d, n, momentum == NULL ? 3 : 6, momentum == NULL ? 12 : 20);
}

void tutti_step_adam(tutti_device *d, size_t n, const tutti_adam_step *s, float *w, const float *g,
                     float *m, float *v)
{
    d->kernels.adam(n, s, w, g, m, v);
    charge(d, n, 15, 28);
}

void tutti_device_charge(tutti_device *d, double flops, double bytes)
{
    if (d->rt != NULL)
        tutti_charge(d->rt, flops, bytes);
}
