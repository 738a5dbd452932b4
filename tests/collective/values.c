/* Test values: see values.h. Written without the library, so that it can judge it. */
#include "values.h"
#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double real_at(int op, uint64_t h)
{
    static const double scales[8] = { 0x1p-40, 0x1p-31, 0x1p-29, 0x1p-27, 0x1p-25, 0x1p-24, 0x1p-18, 1 };
    const bool order = op == TUTTI_MAX || op == TUTTI_MIN;

    if (order && h % 61 == 0)
        return NAN;
    if (order && h % 7 == 0)
        return h & 64 ? 0.0 : -0.0;
    return (double)(int32_t)(h >> 32 & 0xffffff00) * scales[h & 7];
}

/* 16-bit floats as a sign, `exponent` bits (bias 2^(exponent-1) - 1) and `fraction` bits: BF16 8
   and 7, F16 5 and 10. Written with the C library's exact ldexp and nearbyint, not with bits. */
static double narrow_value(tutti_dtype dtype, uint16_t h)
{
    const int fraction = dtype == TUTTI_BF16 ? 7 : 10, exponent = 15 - fraction, bias = (1 << (exponent - 1)) - 1;
    const int e = h >> fraction & ((1 << exponent) - 1), m = h & ((1 << fraction) - 1);
    const double sign = h >> 15 ? -1 : 1;

    if (e == (1 << exponent) - 1)
        return m != 0 ? NAN : sign * INFINITY;
    return sign * (e == 0 ? ldexp(m, 1 - bias - fraction) : ldexp(m + (1 << fraction), e - bias - fraction));
}

/* Nearest, of two equally near the even one. */
static uint16_t narrow_from(tutti_dtype dtype, double x)
{
    const int fraction = dtype == TUTTI_BF16 ? 7 : 10, exponent = 15 - fraction, bias = (1 << (exponent - 1)) - 1;
    const uint16_t sign = signbit(x) ? 0x8000 : 0, infinite = (uint16_t)(((1 << exponent) - 1) << fraction);
    int e;
    double m;

    if (isnan(x))
        return (uint16_t)(infinite | 1 << (fraction - 1));
    if (x == 0 || isinf(x))
        return (uint16_t)(sign | (x == 0 ? 0 : infinite));
    e = ilogb(x) + bias < 1 ? 1 : ilogb(x) + bias;
    m = nearbyint(ldexp(fabs(x), bias + fraction - e)); /* of the last place */
    if (m >= ldexp(1, fraction + 1)) {
        m /= 2;
        e++;
    }
    if (e >= (1 << exponent) - 1)
        return (uint16_t)(sign | infinite);
    return (uint16_t)(sign | (m < ldexp(1, fraction) ? (int)m : (e << fraction) | ((int)m & ((1 << fraction) - 1))));
}

/* Bits: of many magnitudes, denormals, now and then one so large that sums overflow; NaN
   and zeros as for the larger types. */
static uint16_t narrow_at(tutti_dtype dtype, int op, uint64_t h)
{
    const int fraction = dtype == TUTTI_BF16 ? 7 : 10, exponent = 15 - fraction, bias = (1 << (exponent - 1)) - 1;
    const bool order = op == TUTTI_MAX || op == TUTTI_MIN;
    const int e = h % 31 == 5 ? 0 : h % 97 == 3 ? (1 << exponent) - 2 : bias - 6 + (int)(h >> 20 & 15);

    if (order && h % 61 == 0)
        return (uint16_t)(((1 << exponent) - 1) << fraction | 1);
    if (order && h % 7 == 0)
        return h & 64 ? 0 : 0x8000;
    return (uint16_t)((h >> 40 & 1) << 15 | (uint64_t)e << fraction | (h >> 44 & ((1u << fraction) - 1)));
}

void values_fill(tutti_dtype dtype, int op, uint64_t seed, int rank, size_t first, size_t count, void *out)
{
    for (size_t k = 0; k < count; k++) {
        const uint64_t h = mix(mix(seed * 1000 + (uint64_t)rank) + first + k);
        const double x = real_at(op, h);
        const float f = (float)x;
        const int32_t small = (int32_t)(uint32_t)h;
        unsigned char *to = (unsigned char *)out + k * tutti_dtype_bytes(dtype);
        switch (dtype) {
        case TUTTI_F32: memcpy(to, &f, 4); break;
        case TUTTI_F64: memcpy(to, &x, 8); break;
        case TUTTI_I32: memcpy(to, &small, 4); break;
        case TUTTI_I64: memcpy(to, &h, 8); break;
        case TUTTI_BF16:
        case TUTTI_F16: {
            const uint16_t narrow = narrow_at(dtype, op, h);
            memcpy(to, &narrow, 2);
            break;
        }
        case TUTTI_U8: case TUTTI_I8: memcpy(to, &h, 1); break;
        }
    }
}

float values_weight(int rank)
{
    return 0.1f + 0.37f * (float)rank;
}

#define TREE(name, type, sum)                                                     \
    static type tree_##name(int op, int p, const type *x)                         \
    {                                                                             \
        int half = 1;                                                             \
        if (p == 1)                                                               \
            return x[0];                                                          \
        while (2 * half < p)                                                      \
            half *= 2;                                                            \
        const type a = tree_##name(op, half, x), b = tree_##name(op, p - half, x + half); \
        if (op == TUTTI_MAX || op == TUTTI_MIN) {                                 \
            if (a != a)                                                           \
                return a;                                                         \
            if (b != b)                                                           \
                return b;                                                         \
            return op == TUTTI_MAX ? (b > a ? b : a) : (b < a ? b : a);           \
        }                                                                         \
        return (sum);                                                             \
    }
TREE(f32, float, a + b)
TREE(f64, double, a + b)
TREE(i32, int32_t, (int32_t)((uint32_t)a + (uint32_t)b))
TREE(i64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b))
TREE(u8, uint8_t, (uint8_t)(a + b))
TREE(i8, int8_t, (int8_t)(uint8_t)(a + b))

static bool is_narrow(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

void values_reduce(tutti_dtype dtype, int op, uint64_t seed, int p, const int *ranks, size_t first, size_t count,
                   void *out)
{
    const size_t bytes = tutti_dtype_bytes(dtype);
    union { float f[64]; double d[64]; int32_t s[64]; int64_t l[64]; uint8_t c[64]; int8_t i[64]; uint16_t h; } x;

    for (size_t k = 0; k < count; k++) {
        for (int r = 0; r < p; r++) {
            const int rank = ranks != NULL ? ranks[r] : r;
            uint16_t narrow;
            values_fill(dtype, op, seed, rank, first + k, 1,
                        is_narrow(dtype) ? (void *)&narrow : (unsigned char *)&x + (size_t)r * bytes);
            if (is_narrow(dtype))
                x.f[r] = (float)narrow_value(dtype, narrow);
            if (op == TUTTI_MEAN && (dtype == TUTTI_F32 || is_narrow(dtype)))
                x.f[r] *= 1.0f / (float)p;
            if (op == TUTTI_MEAN && dtype == TUTTI_F64)
                x.d[r] *= 1.0 / p;
            if (op == VALUES_WEIGHTED)
                x.f[r] *= values_weight(rank);
        }
        switch (dtype) {
        case TUTTI_F32: x.f[0] = tree_f32(op, p, x.f); break;
        case TUTTI_F64: x.d[0] = tree_f64(op, p, x.d); break;
        case TUTTI_I32: x.s[0] = tree_i32(op, p, x.s); break;
        case TUTTI_I64: x.l[0] = tree_i64(op, p, x.l); break;
        case TUTTI_BF16: case TUTTI_F16: x.h = narrow_from(dtype, (double)tree_f32(op, p, x.f)); break;
        case TUTTI_U8: x.c[0] = tree_u8(op, p, x.c); break;
        case TUTTI_I8: x.i[0] = tree_i8(op, p, x.i); break;
        }
        memcpy((unsigned char *)out + k * bytes, &x, bytes);
    }
}

bool values_equal(tutti_dtype dtype, const void *a, const void *b, size_t count, size_t *where)
{
    const size_t bytes = tutti_dtype_bytes(dtype);

    for (size_t k = 0; k < count; k++) {
        const unsigned char *x = (const unsigned char *)a + k * bytes, *y = (const unsigned char *)b + k * bytes;
        float f[2] = { 0 };
        double d[2];
        if (memcmp(x, y, bytes) == 0)
            continue;
        if (is_narrow(dtype)) {
            uint16_t a16, b16;
            memcpy(&a16, x, 2);
            memcpy(&b16, y, 2);
            if (isnan(narrow_value(dtype, a16)) && isnan(narrow_value(dtype, b16)))
                continue;
        }
        if (bytes >= 4) {
            memcpy(&f[0], x, 4);
            memcpy(&f[1], y, 4);
        }
        if (dtype == TUTTI_F32 && isnan(f[0]) && isnan(f[1]))
            continue;
        if (dtype == TUTTI_F64) {
            memcpy(&d[0], x, 8);
            memcpy(&d[1], y, 8);
            if (isnan(d[0]) && isnan(d[1]))
                continue;
        }
        *where = k;
        return false;
    }
    return true;
}
