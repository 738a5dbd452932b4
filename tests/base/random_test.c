/* Goal: the generator is Philox, its packing never changes, draws look uniform or normal, and
   permutations are permutations. Method: published known answers, pinned draws, chi-square with
   bounds that a sound generator passes for certain: the seeds are fixed, so a test that passes once
   passes always, and the bounds say how far from chance "sound" may be. */
#include "base_test.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

static void philox_gives_the_known_answers(void **state)
{
    static const struct { uint32_t counter[4], key[2], out[4]; } known[] = { /* Random123, kat_vectors */
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD } },
        { { 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344 }, { 0xA4093822, 0x299F31D0 },
          { 0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1 } },
    };
    uint32_t out[4];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(known); i++) {
        tutti_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

/* Small values are packed as they are; the rest of the packing is pinned, since
   checkpoints hold nothing but seeds. */
static void the_packing_is_the_documented_one(void **state)
{
    const tutti_rng rng = { 1, 2, 3 };
    uint32_t out[4];

    (void)state;
    for (uint64_t index = 0; index < 20; index++) {
        const uint32_t counter[4] = { (uint32_t)index / 2, 0, 3, 0 }, key[2] = { 1, 2 };
        const unsigned at = index % 2 * 2;
        tutti_philox(counter, key, out);
        assert_true(tutti_random(rng, index) == (out[at] | (uint64_t)out[at + 1] << 32));
        assert_true(tutti_uniform(rng, index) == (double)(tutti_random(rng, index) >> 11) / 9007199254740992.0);
    }
    assert_true(tutti_random(rng, 0) == UINT64_C(0xD5AF937B4236452E));
    assert_true(
        tutti_random((tutti_rng){ UINT64_C(0x123456789ABCDEF0), UINT64_C(0xFEDCBA9876543210), UINT64_C(0x100000003) },
                     7) == UINT64_C(0x6C71E75A01B21FD3));
}

static int compare_words(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Draws of 64 bits repeat in a million with probability 3e-8: a
   repetition is a collision of inputs. */
static void every_coordinate_matters_in_all_its_bits(void **state)
{
    static uint64_t draws[1 << 16];
    size_t n = 0;

    (void)state;
    /* Every single bit of every coordinate, alone and in pairs. The lowest bit of the
       index picks the half of a block. */
    for (int a = 0; a < 256; a++)
        for (int b = 0; b <= a; b++) {
            uint64_t x[4] = { 0, 0, 0, 0 };
            x[a / 64] |= UINT64_C(1) << a % 64;
            x[b / 64] |= UINT64_C(1) << b % 64;
            draws[n++] = tutti_random((tutti_rng){ x[0], x[1], x[2] }, x[3]);
        }
    draws[n++] = tutti_random((tutti_rng){ 0, 0, 0 }, 0);
    qsort(draws, n, sizeof draws[0], compare_words);
    for (size_t i = 1; i < n; i++)
        assert_true(draws[i - 1] != draws[i]);

    /* A box of small values. */
    n = 0;
    for (uint64_t i = 0; i < 1 << 16; i++)
        draws[n++] = tutti_random((tutti_rng){ i & 15, i >> 4 & 15, i >> 8 & 15 }, i >> 12);
    qsort(draws, n, sizeof draws[0], compare_words);
    for (size_t i = 1; i < n; i++)
        assert_true(draws[i - 1] != draws[i]);
}

/* Chi-square over `cells`, as standard deviations from its mean: (X
   - f) / sqrt(2 f), f = cells - 1. */
static double chi_square(const uint32_t *count, size_t cells, double expected)
{
    double x = 0;

    for (size_t i = 0; i < cells; i++)
        x += (count[i] - expected) * (count[i] - expected) / expected;
    return (x - (double)(cells - 1)) / sqrt(2.0 * (double)(cells - 1));
}

static void uniforms_fill_cells_evenly_along_every_coordinate(void **state)
{
    enum { DRAWS = 200000, CELLS = 256 };

    (void)state;
    for (int along = 0; along < 4; along++) {
        uint32_t top[CELLS] = { 0 }, low[CELLS] = { 0 }, pair[CELLS] = { 0 };
        uint64_t before = 0;
        for (uint64_t i = 0; i < DRAWS; i++) {
            const tutti_rng rng = { along == 0 ? i : 5, along == 1 ? i : 6, along == 2 ? i : 7 };
            const uint64_t bits = tutti_random(rng, along == 3 ? i : 8);
            top[bits >> 56]++;
            low[bits & 255]++;
            pair[(bits >> 60) << 4 | (before & 15)]++;
            before = bits >> 60;
        }
        assert_true(fabs(chi_square(top, CELLS, DRAWS / (double)CELLS)) < 4);
        assert_true(fabs(chi_square(low, CELLS, DRAWS / (double)CELLS)) < 4);
        assert_true(fabs(chi_square(pair, CELLS, DRAWS / (double)CELLS)) < 4);
    }
}

static void uniforms_stay_below_one(void **state)
{
    double least = 1, most = 0;

    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        const double u = tutti_uniform((tutti_rng){ 11, 0, 0 }, i);
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    assert_true(least >= 0 && least < 1e-4);
    assert_true(most < 1 && most > 1 - 1e-4);
}

/* Moments of n normals: the mean has deviation 1/sqrt(n), the variance sqrt(2/n), skewness
   sqrt(6/n), kurtosis sqrt(24/n). */
static void normals_are_normal(void **state)
{
    enum { DRAWS = 400000, CELLS = 64 };
    uint32_t count[CELLS] = { 0 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, next = 0, with_uniform = 0, before = 0;

    (void)state;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const tutti_rng rng = { 3, 1, 4 };
        const double x = tutti_normal(rng, i), u = tutti_uniform(rng, i);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        next += x * before;
        with_uniform += x * (u - 0.5);
        before = x;
        count[(int)(0.5 * erfc(-x / sqrt(2)) * CELLS * (1 - 1e-16))]++;
    }
    assert_true(fabs(m1 / DRAWS) < 4 / sqrt(DRAWS));
    assert_true(fabs(m2 / DRAWS - 1) < 4 * sqrt(2.0 / DRAWS));
    assert_true(fabs(m3 / DRAWS) < 4 * sqrt(15.0 / DRAWS));
    assert_true(fabs(m4 / DRAWS - 3) < 4 * sqrt(96.0 / DRAWS));
    assert_true(fabs(next / DRAWS) < 4 / sqrt(DRAWS));
    assert_true(fabs(with_uniform / DRAWS) < 4 * sqrt(1 / 12.0 / DRAWS));
    assert_true(fabs(chi_square(count, CELLS, DRAWS / (double)CELLS)) < 4);
}

/* ---- permutations ---- */

static void assert_bijection(tutti_rng rng, uint64_t n, unsigned char *seen)
{
    memset(seen, 0, n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t element = tutti_permuted(rng, n, i);
        assert_true(element < n);
        assert_int_equal(seen[element], 0);
        seen[element] = 1;
    }
}

static void every_length_is_permuted_without_loss(void **state)
{
    static unsigned char seen[1000003];

    (void)state;
    for (uint64_t n = 1; n <= 2000; n++)
        assert_bijection((tutti_rng){ n * 7919, 1, n % 3 }, n, seen);
    for (uint64_t i = 0; i < 6; i++) {
        const uint64_t n = 1 + tutti_random((tutti_rng){ 99, 0, 0 }, i) % 300000;
        assert_bijection((tutti_rng){ i, 0, 0 }, n, seen);
    }
    assert_bijection((tutti_rng){ 1, 2, 3 }, 1000003, seen);
}

static void huge_lengths_are_permuted_in_range(void **state)
{
    static const uint64_t lengths[] = { UINT32_MAX, (uint64_t)1 << 32, ((uint64_t)1 << 32) + 1, (uint64_t)1 << 63,
                                        UINT64_MAX };

    (void)state;
    for (size_t l = 0; l < TUTTI_LENGTH(lengths); l++) {
        uint64_t before = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            const uint64_t element =
                tutti_permuted((tutti_rng){ 5, 0, 0 }, lengths[l], i < 500 ? i : lengths[l] - 1 - (i - 500));
            assert_true(element < lengths[l]);
            assert_true(i == 0 || element != before);
            before = element;
        }
    }
}

/* Where each position lands over many steps, for lengths with parts of every small width. */
static void permuted_positions_are_uniform(void **state)
{
    static const uint64_t lengths[] = { 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33 };
    enum { ORDERS = 20000 };

    (void)state;
    for (size_t l = 0; l < TUTTI_LENGTH(lengths); l++) {
        const uint64_t n = lengths[l];
        for (uint64_t position = 0; position < n; position += 1 + n / 8) {
            uint32_t count[33] = { 0 };
            for (uint64_t step = 0; step < ORDERS; step++)
                count[tutti_permuted((tutti_rng){ 1, 0, step }, n, position)]++;
            /* 4.5: the chi-square of few cells has a long right tail, and 60 of them are looked
               at. */
            assert_true(chi_square(count, n, ORDERS / (double)n) < 4.5);
        }
    }
}

/* All pairs of (where 0 lands, where 1 lands). */
static void pairs_of_permuted_positions_are_uniform(void **state)
{
    enum { N = 12, ORDERS = 60000 };
    uint32_t count[N * (N - 1)] = { 0 };

    (void)state;
    for (uint64_t step = 0; step < ORDERS; step++) {
        const tutti_rng rng = { 4, 0, step };
        const uint64_t a = tutti_permuted(rng, N, 0), b = tutti_permuted(rng, N, 1);
        count[a * (N - 1) + b - (b > a)]++;
    }
    assert_true(fabs(chi_square(count, N * (N - 1), ORDERS / (double)(N * (N - 1)))) < 4);
}

static void orders_are_repeatable_and_differ_by_seed_stream_and_step(void **state)
{
    enum { N = 1000 };
    const tutti_rng rngs[] = { { 1, 1, 1 }, { 2, 1, 1 }, { 1, 2, 1 }, { 1, 1, 2 }, { 1, 1, (uint64_t)1 << 32 | 1 } };

    (void)state;
    for (size_t a = 0; a < TUTTI_LENGTH(rngs); a++)
        for (size_t b = 0; b < TUTTI_LENGTH(rngs); b++) {
            int same = 0;
            for (uint64_t i = 0; i < N; i++)
                same += tutti_permuted(rngs[a], N, i) == tutti_permuted(rngs[b], N, i);
            if (a == b)
                assert_int_equal(same, N);
            else
                assert_in_range(same, 0, 12); /* one is expected: the matches of two random orders are Poisson(1) */
        }
}

static void the_orders_are_pinned(void **state)
{
    static const uint64_t order[] = { 5, 9, 6, 0, 1, 8, 2, 7, 10, 4, 3 };

    (void)state;
    for (uint64_t i = 0; i < TUTTI_LENGTH(order); i++)
        assert_int_equal(tutti_permuted((tutti_rng){ 1, 2, 3 }, TUTTI_LENGTH(order), i), order[i]);
    assert_true(tutti_permuted((tutti_rng){ 1, 2, 3 }, UINT64_C(1) << 40, 12345) == UINT64_C(859842290229));
    /* log and cos differ by a few ULP */
    assert_true(fabs(tutti_normal((tutti_rng){ 1, 2, 3 }, 0) - 0.18165425096853563) < 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(the_packing_is_the_documented_one),
        cmocka_unit_test(every_coordinate_matters_in_all_its_bits),
        cmocka_unit_test(uniforms_fill_cells_evenly_along_every_coordinate),
        cmocka_unit_test(uniforms_stay_below_one),
        cmocka_unit_test(normals_are_normal),
        cmocka_unit_test(every_length_is_permuted_without_loss),
        cmocka_unit_test(huge_lengths_are_permuted_in_range),
        cmocka_unit_test(permuted_positions_are_uniform),
        cmocka_unit_test(pairs_of_permuted_positions_are_uniform),
        cmocka_unit_test(orders_are_repeatable_and_differ_by_seed_stream_and_step),
        cmocka_unit_test(the_orders_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
