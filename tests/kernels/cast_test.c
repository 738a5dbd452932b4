/* tutti_cast. Goal: the rules of base.h (nearest even, infinity on overflow, denormals kept, NaN
   quiet with its sign and upper payload), the same bits at every level. Method: all 65536 halves
   and bfloat16 against values computed with ldexp; rounding at every neighbour's midpoint; random
   and special bits at all levels, all lengths and alignments. */
#include "harness.h"

static void cast(tutti_device *d, size_t n, void *x, tutti_dtype from, void *y, tutti_dtype to)
{
    tutti_cast(d, tutti_host(x, n, from), tutti_host(y, n, to));
}

/* A 16-bit format with `fraction` bits after the point and the exponent's bias, in double:
   exact. */
static double value(uint16_t h, int fraction, int bias)
{
    const int exponent = (h & 0x7fff) >> fraction, part = h & ((1 << fraction) - 1);
    const double magnitude =
        exponent == 0 ? ldexp(part, 1 - bias - fraction) : ldexp(part + (1 << fraction), exponent - bias - fraction);

    return h & 0x8000 ? -magnitude : magnitude;
}

static const struct {
    tutti_dtype dtype;
    int fraction, bias;
} formats[] = { { TUTTI_F16, 10, 15 }, { TUTTI_BF16, 7, 127 } };

static void all_sixteen_bit_numbers_widen_exactly(void **state)
{
    static uint16_t h[65536], back[65536];
    static float x[65536];
    harness_levels l = harness_open();
    (void)state;

    for (size_t i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    for (size_t f = 0; f < TUTTI_LENGTH(formats); f++)
        for (int level = 0; level < l.count; level++) {
            const int fraction = formats[f].fraction, infinity = 0x7fff >> fraction << fraction;
            cast(l.device[level], 65536, h, formats[f].dtype, x, TUTTI_F32);
            cast(l.device[level], 65536, x, TUTTI_F32, back, formats[f].dtype);
            for (uint32_t i = 0; i < 65536; i++) {
                const uint32_t sign = (i & 0x8000) << 16, magnitude = i & 0x7fff;
                if (magnitude > (uint32_t)infinity) { /* the payload moves up, the quiet bit is set */
                    const uint32_t payload = (magnitude & (uint32_t)((1 << fraction) - 1)) << (23 - fraction);
                    assert_int_equal(harness_bits(x[i]), sign | 0x7fc00000 | payload);
                    assert_int_equal(back[i], i | 1u << (fraction - 1));
                } else {
                    if (magnitude == (uint32_t)infinity)
                        assert_int_equal(harness_bits(x[i]), sign | 0x7f800000);
                    else
                        assert_true(x[i] == value((uint16_t)i, fraction, formats[f].bias) &&
                                    (harness_bits(x[i]) & 0x80000000) == sign);
                    assert_int_equal(back[i], i);
                }
            }
        }
    harness_close(&l);
}

/* Between each number and the next: below the middle down, above it
   up, in the middle to the even one. */
static void narrowing_rounds_to_nearest_even(void **state)
{
    harness_levels l = harness_open();
    (void)state;

    for (size_t f = 0; f < TUTTI_LENGTH(formats); f++)
        for (int level = 0; level < l.count; level++) {
            const int fraction = formats[f].fraction, bias = formats[f].bias, infinity = 0x7fff >> fraction << fraction;
            for (int h = 0; h < infinity; h++) {
                const double next = h + 1 == infinity ? ldexp(1, bias + 1) : value((uint16_t)(h + 1), fraction, bias);
                const double middle = (value((uint16_t)h, fraction, bias) + next) / 2;
                float x[16]; /* a whole vector, so that it is the level's own code */
                uint16_t y[16];
                assert_true((float)middle == middle);
                for (int i = 0; i < 16; i += 4) {
                    x[i] = (float)middle, x[i + 1] = nextafterf((float)middle, 0),
                    x[i + 2] = nextafterf((float)middle, INFINITY);
                    x[i + 3] = -(float)middle;
                }
                cast(l.device[level], 16, x, TUTTI_F32, y, formats[f].dtype);
                for (int i = 0; i < 16; i += 4) {
                    assert_int_equal(y[i], h + (h & 1));
                    assert_int_equal(y[i + 1], h);
                    assert_int_equal(y[i + 2], h + 1);
                    assert_int_equal(y[i + 3], 0x8000 | (h + (h & 1)));
                }
            }
        }
    harness_close(&l);
}

static void float_and_double_convert_as_c_does(void **state)
{
    harness_levels l = harness_open();
    double wide[9] = { 1e39,         -1e39,        1e-46,     0x1.fffffefffffffp127, 0x1.ffffffp127, -0.0,
                       0x1.000001p0, 0x1.000003p0, 0x1.8p-149 };
    const float narrow[9] = { INFINITY, -INFINITY, 0, 0x1.fffffep127f, INFINITY, -0.0f, 1, 0x1.000004p0f, 0x1p-148f };
    uint64_t snan = 0xfff4567800000001u;
    (void)state;

    for (int level = 0; level < l.count; level++) {
        float y[9];
        double back[9];
        cast(l.device[level], 9, wide, TUTTI_F64, y, TUTTI_F32);
        for (int i = 0; i < 9; i++)
            assert_int_equal(harness_bits(y[i]), harness_bits(narrow[i]));
        cast(l.device[level], 9, y, TUTTI_F32, back, TUTTI_F64);
        for (int i = 0; i < 9; i++)
            assert_true(back[i] == y[i] && !signbit(back[i]) == !signbit(y[i]));
        for (int i = 0; i < 9; i++)
            memcpy(&back[i], &snan, sizeof snan);
        cast(l.device[level], 9, back, TUTTI_F64, y, TUTTI_F32);
        for (int i = 0; i < 9; i++) /* sign and upper payload kept, quiet */
            assert_int_equal(harness_bits(y[i]), 0xffe2b3c0);
    }
    harness_close(&l);
}

/* Conversions of NaN included: all bits are specified. */
static void every_level_casts_to_the_references_bits(void **state)
{
    static const tutti_dtype pairs[][2] = {
        { TUTTI_F32, TUTTI_BF16 }, { TUTTI_BF16, TUTTI_F32 }, { TUTTI_F32, TUTTI_F16 },
        { TUTTI_F16, TUTTI_F32 },  { TUTTI_F32, TUTTI_F64 },  { TUTTI_F64, TUTTI_F32 },
        { TUTTI_U8, TUTTI_U8 },    { TUTTI_I8, TUTTI_I8 },    { TUTTI_F16, TUTTI_F16 },
    };
    harness_levels l = harness_open();
    harness_area from = harness_area_open(), expected = harness_area_open(), to = harness_area_open();
    uint64_t seed = 17;
    (void)state;

    for (size_t at = 0, n; (n = harness_length(at)) != SIZE_MAX && n * sizeof(double) < 14000; at++)
        for (int offset = HARNESS_FLUSH; offset < 16; offset++)
            for (size_t p = 0; p < TUTTI_LENGTH(pairs); p++) {
                const size_t in = tutti_dtype_bytes(pairs[p][0]), out = tutti_dtype_bytes(pairs[p][1]);
                uint8_t *x = harness_place(&from, n * in, offset, in);
                uint8_t *e = harness_place(&expected, n * out, 0, out);
                for (size_t i = 0; i < n; i++) {
                    const float number = harness_number(&seed, (int)(harness_random(&seed) % 3));
                    const double wide = (double)number * (1 + (double)(harness_random(&seed) % 1024) * 0x1p-33);
                    const uint64_t any = harness_random(&seed);
                    if (pairs[p][0] == TUTTI_F32)
                        memcpy(x + i * in, &number, in);
                    else if (pairs[p][0] == TUTTI_F64 && any % 4 != 0)
                        memcpy(x + i * in, &wide, in);
                    else
                        memcpy(x + i * in, &any, in);
                }
                cast(l.device[0], n, x, pairs[p][0], e, pairs[p][1]);
                for (int level = 1; level < l.count; level++) {
                    uint8_t *y = harness_place(&to, n * out, offset, out);
                    cast(l.device[level], n, x, pairs[p][0], y, pairs[p][1]);
                    if (memcmp(y, e, n * out) != 0)
                        fail_msg("%s to %s differs: level %d, n %zu, offset %d", tutti_dtype_name(pairs[p][0]),
                                 tutti_dtype_name(pairs[p][1]), level, n, offset);
                    assert_true(harness_guards_stand(&to, y, n * out));
                }
            }
    harness_area_close(&from);
    harness_area_close(&expected);
    harness_area_close(&to);
    harness_close(&l);
}

/* Every 997th float and the ends of every binade: the whole range of
   exponents and patterns of the fraction. */
static void levels_agree_on_narrowing_for_all_exponents(void **state)
{
    enum { N = 4096 };
    static float x[N];
    static uint16_t expected[N], y[N];
    harness_levels l = harness_open();
    uint32_t bits = 0;
    (void)state;

    for (size_t f = 0; f < TUTTI_LENGTH(formats); f++)
        for (uint32_t round = 0; round < 1060; round++) {
            for (size_t i = 0; i < N; i++)
                x[i] =
                    harness_float(i < 512 ? (uint32_t)i << 23 | (round % 2 ? 0x7fffff - round : round) : (bits += 997));
            cast(l.device[0], N, x, TUTTI_F32, expected, formats[f].dtype);
            for (int level = 1; level < l.count; level++) {
                cast(l.device[level], N, x, TUTTI_F32, y, formats[f].dtype);
                assert_memory_equal(y, expected, sizeof y);
            }
        }
    harness_close(&l);
}

/* Results larger than the caches are the same as those of short ones, whatever the alignment, and
   end where they should. */
static void long_casts_match_short_casts(void **state)
{
    enum { LONG = (17 << 19) + 5, SHORT = 100000, GUARD = 64 }; /* 17 MiB of halves */
    harness_levels l = harness_open();
    uint8_t *from = malloc((size_t)LONG * 4 + 64), *to = malloc((size_t)LONG * 4 + 3 * GUARD),
            *part = malloc(SHORT * 4);
    uint64_t seed = 31;
    (void)state;

    for (size_t i = 0; i < LONG / 2; i++) {
        const uint64_t any = harness_random(&seed);
        memcpy(from + 8 * i, &any, 8);
    }
    for (int level = 1; level < l.count; level++)
        for (size_t f = 0; f < 2 * TUTTI_LENGTH(formats); f++) {
            const tutti_dtype half = formats[f / 2].dtype, a = f % 2 ? half : TUTTI_F32, b = f % 2 ? TUTTI_F32 : half;
            const size_t in = tutti_dtype_bytes(a), out = tutti_dtype_bytes(b), offset = (f + 1) * out;
            uint8_t *y = to + GUARD + offset;
            memset(to, 0x5a, (size_t)LONG * 4 + 3 * GUARD);
            cast(l.device[level], LONG, from, a, y, b);
            for (size_t at = 0, n; at < LONG; at += n) {
                n = LONG - at < SHORT ? LONG - at : SHORT;
                cast(l.device[level], n, from + at * in, a, part, b);
                assert_memory_equal(y + at * out, part, n * out);
            }
            for (size_t i = 0; i < GUARD; i++)
                assert_true(y[-1 - (ptrdiff_t)i] == 0x5a && (y + (size_t)LONG * out)[i] == 0x5a);
        }
    free(from), free(to), free(part);
    harness_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sixteen_bit_numbers_widen_exactly),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(float_and_double_convert_as_c_does),
        cmocka_unit_test(every_level_casts_to_the_references_bits),
        cmocka_unit_test(levels_agree_on_narrowing_for_all_exponents),
        cmocka_unit_test(long_casts_match_short_casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
