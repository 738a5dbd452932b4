/* The kernels of base.h. Goal: every level gives the scalar reference's bits and touches
   nothing outside its arrays; the reference is what the header defines; rounding keeps the
   expectation; selection is exact. Method: each kernel at each level compared with the scalar one
   for all lengths, alignments and numbers; formulas written out again; brute force. */
#include "harness.h"
#include "kernels/codes.h"
#include <tutti/base.h>

enum { INPUT, OUTPUT, ARRAYS };
typedef struct job { size_t n; int variant; const float *x; const uint16_t *draws; uint8_t *bytes; float *y; } job;
static const char *const kernels[] = {
    "extents", "draws", "uniform", "nearest", "powers", "range", "any", "levels", "pack", "unpack", "signs",
    "signs_add", "above", "uniform_add", "range_add", "cut", "rows_dot", "rows_sum", "rows_add", "rows_product",
};
enum {
    EXTENTS,
    DRAWS,
    UNIFORM,
    NEAREST,
    POWERS,
    RANGE,
    ANY,
    LEVELS,
    PACK,
    UNPACK,
    SIGNS,
    SIGNS_ADD,
    ABOVE,
    UNIFORM_ADD,
    RANGE_ADD,
    CUT,
    ROWS_DOT,
    ROWS_SUM,
    ROWS_ADD,
    ROWS_PRODUCT,
    KERNELS
};

static float largest(size_t n, const float *x)
{
    float most = 0;

    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Bytes and floats that each job may write; its inputs are x (floats) or the bytes. */
static size_t bytes_of(const job *j, int kernel)
{
    return kernel == PACK || kernel == UNPACK       ? tutti_packed_bytes(j->variant % 8 + 1, j->n)
           : kernel == SIGNS || kernel == SIGNS_ADD ? (j->n + 7) / 8
                                                    : j->n;
}

static void run(tutti_device *d, int kernel, const job *j, const uint8_t *codes, uint8_t *out, float *y,
                uint32_t *index, double sums[4])
{
    const int bits = j->variant % 7 + 2;
    const float scale = largest(j->n, j->x);

    switch (kernel) {
    case EXTENTS: {
        float low = 0, high = 0;
        sums[0] = tutti_norm1(d, j->n, j->x);
        low = tutti_absmax(d, j->n, j->x), memcpy(&sums[1], &low, sizeof low);
        if (j->n > 0)
            tutti_extent(d, j->n, j->x, &low, &high);
        memcpy(&sums[2], &low, sizeof low), memcpy(&sums[3], &high, sizeof high);
        break;
    }
    case DRAWS: {
        uint16_t draws[3 * TUTTI_DRAWS];
        tutti_draws(d, (tutti_rng){ j->n * 0x123456789abcdefu, (uint64_t)j->variant << 31, j->n << 28 },
                    j->n * 0x2000000, 3, draws);
        memcpy(out, draws, j->n < sizeof draws ? j->n : sizeof draws);
        break;
    }
    case UNIFORM: if (scale > 0) tutti_round_uniform(d, j->n, j->x, scale, bits, j->draws, out); break;
    case NEAREST: if (scale > 0) tutti_round_uniform(d, j->n, j->x, scale, bits, NULL, out); break;
    case POWERS: if (scale > 0) tutti_round_powers(d, j->n, j->x, scale, bits, j->draws, out); break;
    case RANGE: if (scale > 0) tutti_round_range(d, j->n, j->x, -scale, 2 * scale, out); break;
    case ANY: {
        float level[256];
        tutti_levels t;
        for (int k = 0; k < 1 << bits; k++)
            level[k] = (float)k / (float)((1 << bits) - 1) * 2 - 1, level[k] *= fabsf(level[k]);
        assert_true(tutti_levels_make(&t, bits, level));
        if (scale > 0)
            tutti_round_levels(d, j->n, j->x, scale, &t, j->draws, out);
        break;
    }
    case LEVELS: {
        float value[256];
        const int values = 1 << j->variant % 9;
        uint8_t *low = malloc(j->n + 1);
        for (int l = 0; l < 256; l++)
            value[l] = (float)l * 0.37f - 3;
        for (size_t i = 0; i < j->n; i++)
            low[i] = (uint8_t)(codes[i] & (values - 1));
        tutti_levels_add(d, j->n, low, values, value, y);
        free(low);
        break;
    }
    case PACK: {
        uint8_t *low = malloc(j->n + 1);
        for (size_t i = 0; i < j->n; i++)
            low[i] = (uint8_t)(codes[i] & ((1 << (j->variant % 8 + 1)) - 1));
        tutti_pack(d, j->variant % 8 + 1, j->n, low, out);
        free(low);
        break;
    }
    case UNPACK: {
        uint8_t *back = malloc(j->n + 1);
        tutti_unpack(d, j->variant % 8 + 1, j->n, codes, back);
        sums[0] = 0;
        for (size_t i = 0; i < j->n; i++)
            sums[0] = sums[0] * 0.75 + back[i] * (double)(i % 7 + 1);
        free(back);
        break;
    }
    case SIGNS:
        sums[0] = tutti_signs(d, j->n, j->x, j->variant % 2 != 0, out);
        /* the same sum, to the bit */
        sums[1] = sums[0] - (j->variant % 2 != 0 ? tutti_norm2 : tutti_norm1)(d, j->n, j->x);
        assert_true(sums[1] == 0 || !isfinite(sums[0]));
        sums[1] = 0;
        break;
    case SIGNS_ADD: tutti_signs_add(d, j->n, codes, -0.7f, y); break;
    case ABOVE:
        sums[0] = (double)tutti_select_above(d, j->n, j->x, 0x3f000000u + (uint32_t)(j->variant % 3) * 0x700000u,
                                             j->n * (size_t)(j->variant % 4) / 3, index, y);
        break;
    case UNIFORM_ADD: {
        uint8_t *low = malloc(j->n + 1);
        for (size_t i = 0; i < j->n; i++)
            low[i] = (uint8_t)(codes[i] & ((1 << bits) - 1));
        tutti_uniform_add(d, j->n, low, bits, 0.37f, -1.3f, y);
        free(low);
        break;
    }
    case RANGE_ADD: tutti_range_add(d, j->n, codes, -0.37f, 1.3f, -0.7f, y); break;
    case ROWS_DOT:
    case ROWS_SUM:
    case ROWS_ADD:
    case ROWS_PRODUCT: { /* as many m rows and p vectors as fit in x; the factor's columns are `step` apart */
        const int p = j->variant % 9 + 1;
        const size_t m = (size_t)(j->variant / 9 % 7), n = j->n / (m + (size_t)p), step = m + (size_t)j->variant % 2;
        const float *q = j->x + m * n;
        float a[9 * 8];
        for (size_t k = 0; k < TUTTI_LENGTH(a); k++)
            a[k] = (float)(k * 37 % 19) * 0.21f - 1.7f;
        if (kernel == ROWS_DOT && (size_t)p * step <= j->n)
            tutti_rows_dot(d, m, n, j->x, p, q, y, step);
        else if (kernel == ROWS_SUM)
            tutti_rows_sum(d, m, n, j->x, p, a, step, y);
        else if (kernel == ROWS_ADD)
            tutti_rows_add(d, m, n, -0.3f, p, a, step, q, y);
        else if (kernel == ROWS_PRODUCT)
            tutti_rows_product(d, m, n, p, a, step, q, y);
        break;
    }
    case CUT: tutti_cut_bf16(d, j->n, j->x, (uint16_t *)(void *)y); break;
    default: break;
    }
}

static void every_level_gives_the_references_bits(void **state)
{
    harness_levels l = harness_open();
    harness_area x_area = harness_area_open(), in_area = harness_area_open(), out_area = harness_area_open(),
                 y_area = harness_area_open(), i_area = harness_area_open();
    uint16_t draws[4096];
    uint64_t seed = 11;
    (void)state;

    for (size_t i = 0; i < TUTTI_LENGTH(draws); i++)
        draws[i] = (uint16_t)harness_random(&seed);
    for (size_t at = 0, n; (n = harness_length(at)) != SIZE_MAX; at++)
        for (int offset = HARNESS_FLUSH; offset < 16; offset += offset == HARNESS_FLUSH ? 1 : 5)
            for (int kernel = 0; kernel < KERNELS; kernel++) {
                job j = { .n = n, .variant = (int)(at * 3 + (size_t)offset + 1), .draws = draws + (at & 7) };
                /* NaN and infinity are theirs to answer for */
                const bool any = kernel == EXTENTS || kernel == SIGNS || kernel == ABOVE || kernel == CUT;
                const size_t bytes = bytes_of(&j, kernel);
                float *x = harness_place(&x_area, n * 4, offset, 4);
                uint8_t *in = harness_place(&in_area, kernel == UNPACK || kernel == SIGNS_ADD ? bytes : n, offset, 1);
                uint8_t first_out[4096], *out;
                float first_y[4096], *y;
                uint32_t first_index[4096], *index;
                double first[4] = { 0 };
                j.x = x;
                for (size_t i = 0; i < n; i++) {
                    x[i] = harness_number(&seed, any ? (int)(at % 3) : 0);
                    if (!any && harness_random(&seed) % 16 == 0)
                        x[i] = harness_random(&seed) % 2 ? -0.0f : 1e-42f;
                }
                for (size_t i = 0; i < (kernel == UNPACK || kernel == SIGNS_ADD ? bytes : n); i++)
                    in[i] = (uint8_t)harness_random(&seed);
                for (int level = 0; level < l.count; level++) {
                    double sums[4] = { 0 };
                    out = harness_place(&out_area, bytes, offset, 1);
                    y = harness_place(&y_area, n * 4, offset, 4);
                    index = harness_place(&i_area, n * 4, offset, 4);
                    memset(out, 0x5a, bytes);
                    for (size_t i = 0; i < n; i++)
                        y[i] = (float)i - 7, index[i] = 0xdeadbeef;
                    run(l.device[level], kernel, &j, in, out, y, index, sums);
                    if (kernel == ABOVE) /* beyond what was found a vector store may have written something */
                        for (size_t i = (size_t)sums[0]; i < n; i++)
                            y[i] = 0, index[i] = 0;
                    if (level == 0) {
                        memcpy(first_out, out, bytes), memcpy(first_y, y, n * 4), memcpy(first_index, index, n * 4),
                            memcpy(first, sums, sizeof sums);
                        continue;
                    }
                    if (isnan(first[0]) && isnan(sums[0]))
                        sums[0] = first[0];
                    if (memcmp(first_out, out, bytes) != 0 || memcmp(first_y, y, n * 4) != 0 ||
                        memcmp(first_index, index, n * 4) != 0 || memcmp(first, sums, sizeof sums) != 0)
                        fail_msg("%s differs: level %d, n %zu, offset %d, variant %d", kernels[kernel], level, n,
                                 offset, j.variant);
                    if (!harness_guards_stand(&out_area, out, bytes) || !harness_guards_stand(&y_area, y, n * 4) ||
                        !harness_guards_stand(&i_area, index, n * 4))
                        fail_msg("%s wrote outside: level %d, n %zu, offset %d, variant %d", kernels[kernel], level, n,
                                 offset, j.variant);
                }
            }
    harness_area_close(&x_area), harness_area_close(&in_area), harness_area_close(&out_area),
        harness_area_close(&y_area), harness_area_close(&i_area);
    harness_close(&l);
}

/* Compared with sums in double; and no element changes with how many rows, or vectors, are given
   at once. Rows of several runs, and rows that are only a remainder. */
static void products_with_few_vectors_match_the_formulas(void **state)
{
    static const size_t widths[] = { 1, 15, 16, 100, 2047, 2048, 2049, 5003 };
    enum { ROWS = 13, VECTORS = 9, WIDEST = 5003, STEP = 17 };
    static float x[ROWS * WIDEST], q[VECTORS * WIDEST], y[ROWS * WIDEST], one[ROWS * WIDEST];
    float a[VECTORS * STEP], b[VECTORS * STEP];
    harness_levels l = harness_open();
    uint64_t seed = 21;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(widths); at++)
        for (int p = 1; p <= VECTORS; p += at % 2 ? 3 : 2) {
            tutti_device *d = l.device[(at + (size_t)p) % (size_t)l.count];
            const size_t n = widths[at];
            for (size_t i = 0; i < ROWS * n; i++)
                x[i] = harness_number(&seed, 0), y[i] = one[i] = (float)i;
            for (size_t i = 0; i < (size_t)p * n; i++)
                q[i] = harness_number(&seed, 0);
            for (size_t i = 0; i < TUTTI_LENGTH(b); i++)
                b[i] = harness_number(&seed, 0);
            tutti_rows_dot(d, ROWS, n, x, p, q, a, STEP);
            for (size_t i = 0; i < ROWS; i++)
                for (size_t k = 0; k < (size_t)p; k++) {
                    double sum = 0, all = 0;
                    float alone;
                    for (size_t j = 0; j < n; j++)
                        sum += (double)x[i * n + j] * q[k * n + j], all += fabs((double)x[i * n + j] * q[k * n + j]);
                    assert_true(fabs((double)a[k * STEP + i] - sum) <= 1e-6 * all);
                    tutti_rows_dot(d, 1, n, x + i * n, 1, q + k * n, &alone, 1);
                    assert_int_equal(harness_bits(alone), harness_bits(a[k * STEP + i]));
                }
            tutti_rows_add(d, ROWS, n, -0.5f, p, b, STEP, q, y);
            for (size_t i = 0; i < ROWS; i++)
                for (int k = 0; k < p; k++)
                    tutti_rows_add(d, 1, n, -0.5f, 1, b + (size_t)k * STEP + i, STEP, q + (size_t)k * n, one + i * n);
            assert_memory_equal(y, one, ROWS * n * sizeof *y);
            for (size_t i = 0; i < ROWS * n; i++) {
                double sum = (double)i, all = sum;
                for (size_t k = 0; k < (size_t)p; k++)
                    sum -= 0.5 * b[k * STEP + i / n] * q[k * n + i % n],
                        all += fabs((double)b[k * STEP + i / n] * q[k * n + i % n]);
                assert_true(fabs((double)y[i] - sum) <= 1e-6 * all);
            }
            for (size_t i = 0; i < ROWS * n; i++)
                one[i] = 0;
            tutti_rows_add(d, ROWS, n, 1, p, b, STEP, q, one);
            tutti_rows_product(d, ROWS, n, p, b, STEP, q, y);
            assert_memory_equal(y, one, ROWS * n * sizeof *y);
            for (size_t j = 0; j < (size_t)p * n; j++)
                y[j] = one[j] = q[j];
            tutti_rows_sum(d, ROWS, n, x, p, b, STEP, y);
            for (size_t i = 0; i < ROWS; i++)
                for (int k = 0; k < p; k++)
                    tutti_rows_sum(d, 1, n, x + i * n, 1, b + (size_t)k * STEP + i, STEP, one + (size_t)k * n);
            assert_memory_equal(y, one, (size_t)p * n * sizeof *y);
            for (size_t j = 0; j < (size_t)p * n; j++) {
                double sum = q[j], all = fabs(sum);
                for (size_t i = 0; i < ROWS; i++)
                    sum += (double)b[j / n * STEP + i] * x[i * n + j % n],
                        all += fabs((double)b[j / n * STEP + i] * x[i * n + j % n]);
                assert_true(fabs((double)y[j] - sum) <= 1e-6 * all);
            }
        }
    harness_close(&l);
}

/* Results larger than the caches are the same as those of short ones, whatever the alignment, and
   end where they should. */
static void long_products_match_short_products(void **state)
{
    enum { ROWS = 1100, WIDE = 4003, GUARD = 64 };
    harness_levels l = harness_open();
    float *q = malloc(4 * WIDE * sizeof *q), *a = malloc(4 * ROWS * sizeof *a),
          *memory = malloc((ROWS * WIDE + 2 * GUARD) * sizeof *memory), *row = malloc(WIDE * sizeof *row);
    uint64_t seed = 22;
    (void)state;

    for (size_t i = 0; i < 4 * WIDE; i++)
        q[i] = harness_number(&seed, 0);
    for (size_t i = 0; i < 4 * ROWS; i++)
        a[i] = harness_number(&seed, 0);
    for (int level = 1; level < l.count; level++)
        for (int p = 1; p <= 4; p++) {
            float *y = memory + GUARD - 3 * p + level;
            memset(memory, 0x5a, (ROWS * WIDE + 2 * GUARD) * sizeof *memory);
            tutti_rows_product(l.device[level], ROWS, WIDE, p, a, ROWS, q, y);
            for (size_t i = 0; i < ROWS; i++) {
                tutti_rows_product(l.device[level], 1, WIDE, p, a + i, ROWS, q, row);
                assert_memory_equal(y + i * WIDE, row, WIDE * sizeof *row);
            }
            for (const float *g = memory; g < memory + ROWS * WIDE + 2 * GUARD;
                 g = g + 1 == y ? y + ROWS * WIDE : g + 1)
                assert_int_equal(harness_bits(*g), 0x5a5a5a5a);
        }
    free(q), free(a), free(memory), free(row);
    harness_close(&l);
}

/* base.h: draw 32 w + 2 l + h of group g is half h of word w of block 16 g + l, and
   blocks are those of tutti_random. */
static void draws_are_the_halves_of_tutti_random(void **state)
{
    harness_levels l = harness_open();
    uint16_t draws[2 * TUTTI_DRAWS];
    const tutti_rng rng = { 0x1122334455667788u, 0x99aabbccddeeff00u, 0x123456789au };
    (void)state;

    for (int level = 0; level < l.count; level++)
        /* the last: the index leaves 32 bits between the two groups */
        for (uint64_t k = 0, first = 0; k < 24; k++, first = k < 16 ? first * 7 + 1 : ((k - 15) << 28) - 1) {
            tutti_draws(l.device[level], rng, first, 2, draws);
            for (uint64_t i = 0; i < 2 * TUTTI_DRAWS; i++) {
                const uint64_t w = i % 128 / 32, lane = i % 32 / 2, h = i % 2, block = 16 * (first + i / 128) + lane;
                assert_int_equal(draws[i], (uint16_t)(tutti_random(rng, 2 * block + w / 2) >> (32 * (w % 2) + 16 * h)));
            }
        }
    harness_close(&l);
}

/* Over all 65536 draws the sum of levels is what the fraction gives, to half a draw: the
   expectation is exact to 2^-17. */
static void rounding_keeps_the_expectation_over_all_draws(void **state)
{
    harness_levels l = harness_open();
    static uint16_t draws[65536];
    static float x[65536];
    static uint8_t codes[65536];
    uint64_t seed = 5;
    (void)state;

    for (int i = 0; i < 65536; i++)
        draws[i] = (uint16_t)i;
    for (int round = 0; round < 60; round++) {
        const int bits = 2 + round % 7, top = (1 << (bits - 1)) - 1;
        const float scale =
            ldexpf(1 + (float)(harness_random(&seed) % 1000) / 1000, (int)(harness_random(&seed) % 40) - 20);
        float r = (float)(harness_random(&seed) % 100001) / 100000;
        double sum = 0, values = 0;
        if (round % 3 == 0)
            r = ldexpf(r, -(int)(harness_random(&seed) % 8));
        for (int i = 0; i < 65536; i++)
            x[i] = round % 2 ? -r * scale : r * scale;
        tutti_round_uniform(l.device[l.count - 1], 65536, x, scale, bits, draws, codes);
        for (int i = 0; i < 65536; i++)
            sum += codes[i] & top,
                assert_true((codes[i] & top) == 0 || codes[i] >> (bits - 1) == (r != 0 && round % 2));
        assert_true(fabs(sum / 65536 - (double)fabsf(x[0]) / scale * top) <= 0x1p-17 + 1e-6 * top);
        tutti_round_powers(l.device[l.count - 1], 65536, x, scale, bits, draws, codes);
        for (int i = 0; i < 65536; i++)
            values += (codes[i] & top) == 0 ? 0 : ldexp(1, (codes[i] & top) - top);
        assert_true(fabs(values / 65536 - (double)fabsf(x[0]) / scale) <=
                    0x1p-17 * fmax((double)fabsf(x[0]) / scale, ldexp(1, 1 - top)) + 3e-7);
    }
    harness_close(&l);
}

/* The same for any levels; and a value on a level stays, whatever is drawn. */
static void any_levels_keep_the_expectation_over_all_draws(void **state)
{
    harness_levels l = harness_open();
    static uint16_t draws[65536];
    static float x[65536];
    static uint8_t codes[65536];
    uint64_t seed = 6;
    (void)state;

    for (int i = 0; i < 65536; i++)
        draws[i] = (uint16_t)i;
    for (int round = 0; round < 70; round++) {
        const int bits = 2 + round % 7, last = (1 << bits) - 1;
        const float scale =
            ldexpf(1 + (float)(harness_random(&seed) % 1000) / 1000, (int)(harness_random(&seed) % 40) - 20);
        float level[256], r = (float)(harness_random(&seed) % 200001) / 100000 - 1;
        double sum = 0;
        tutti_levels t;
        for (int k = 1; k < last; k++) /* crowded at zero by turns */
            level[k] = ((float)k + (float)(harness_random(&seed) % 1000) / 2000 - 0.25f) / (float)last * 2 - 1,
            level[k] *= round % 2 ? fabsf(level[k]) : 1;
        level[0] = -1, level[last] = 1;
        assert_true(tutti_levels_make(&t, bits, level));
        for (int i = 0; i < 65536; i++)
            x[i] = r * scale;
        tutti_round_levels(l.device[l.count - 1], 65536, x, scale, &t, draws, codes);
        for (int i = 0; i < 65536; i++) {
            sum += (double)level[codes[i]];
            assert_true(codes[i] == codes[0] || codes[i] == codes[0] + 1 || codes[i] + 1 == codes[0]);
        }
        assert_true(fabs(sum / 65536 - (double)x[0] / scale) <= 0x1p-17 + 1e-6);
        for (int k = 0; k <= last; k++) {
            for (int i = 0; i < 256; i++)
                x[i] = level[k];
            tutti_round_levels(l.device[round % l.count], 256, x, 1, &t, draws + (harness_random(&seed) & 0xfeff),
                               codes);
            for (int i = 0; i < 256; i++)
                assert_int_equal(codes[i], k);
        }
        if (last > 3) /* as near as floats can be: times the scale they may be equal */
            level[last - 1] = 1 - 0x1p-24f, level[last - 2] = 1 - 0x1p-23f;
        assert_true(tutti_levels_make(&t, bits, level));
        for (int k = 0; k <= last; k++) { /* what decodes to a level is sent as that level with any scale */
            for (int i = 0; i < 256; i++)
                x[i] = level[k] * scale;
            tutti_round_levels(l.device[round % l.count], 256, x, scale, &t, draws + (harness_random(&seed) & 0xfeff),
                               codes);
            for (int i = 0; i < 256; i++)
                assert_true(level[codes[i]] * scale == x[i]);
        }
        /* so near to the ends, x / scale has to be 1 in its last bit */
        level[1] = -1 + 0x1p-12f, level[last - 1] = 1 - 0x1p-12f;
        for (int k = 2; k < last - 1; k++)
            level[k] = (float)k / (float)last * 2 - 1;
        assert_true(tutti_levels_make(&t, bits, level));
        for (int i = 0; i < 65536; i++)
            x[i] = i % 2 ? scale : -scale;
        tutti_round_levels(l.device[round % l.count], 65536, x, scale, &t, draws, codes);
        for (int i = 0; i < 65536; i++)
            assert_int_equal(codes[i], i % 2 ? last : 0);
        level[1] = level[0];
        assert_false(tutti_levels_make(&t, bits, level));
        level[1] = -0.999f, level[last] = 0.5f;
        assert_false(tutti_levels_make(&t, bits, level));
        level[last] = 1, level[last / 2] = NAN;
        assert_false(tutti_levels_make(&t, bits, level));
    }
    harness_close(&l);
}

/* Scales from the least float to the greatest: codes are those of numbers of ordinary size, and the
   greatest magnitude is the greatest level. */
static void codes_do_not_depend_on_the_binade_of_the_scale(void **state)
{
    enum { N = 300 };
    harness_levels l = harness_open();
    uint16_t draws[N];
    float x[N], scaled[N], level[256];
    uint8_t first[3][N], codes[N];
    uint64_t seed = 23;
    tutti_levels t;
    (void)state;

    for (int bits = 2; bits <= 8; bits++) {
        const int last = (1 << bits) - 1, top = (1 << (bits - 1)) - 1;
        for (int k = 0; k <= last; k++)
            level[k] = (float)k / (float)last * 2 - 1, level[k] *= fabsf(level[k]);
        assert_true(tutti_levels_make(&t, bits, level));
        for (int i = 0; i < N; i++) { /* with 8 bits after the point, so that no power loses any */
            draws[i] = (uint16_t)harness_random(&seed);
            x[i] = (float)((int)(harness_random(&seed) % 513) - 256) / 256;
        }
        x[N - 1] = 1, x[N - 2] = -1;
        for (int power = -141; power <= 127; power += power < -130 || power > 120 ? 1 : 12)
            for (int at = 0; at < l.count; at++) {
                tutti_device *d = l.device[at];
                const float scale = ldexpf(1, power);
                for (int i = 0; i < N; i++)
                    scaled[i] = ldexpf(x[i], power);
                for (int kernel = 0; kernel < 3; kernel++) {
                    if (kernel == 2)
                        tutti_round_levels(d, N, scaled, scale, &t, draws, codes);
                    else
                        (kernel == 0 ? tutti_round_uniform : tutti_round_powers)(d, N, scaled, scale, bits, draws,
                                                                                 codes);
                    if (power == -141 && at == 0)
                        memcpy(first[kernel], codes, N);
                    if (memcmp(codes, first[kernel], N) != 0)
                        fail_msg("kernel %d, %d bits, scale 2^%d, level %d: other codes than at 2^-141", kernel, bits,
                                 power, at);
                    assert_int_equal(codes[N - 1], kernel == 2 ? last : top);
                    assert_int_equal(codes[N - 2], kernel == 2 ? 0 : top | 1 << (bits - 1));
                }
            }
    }
    harness_close(&l);
}

static void values_on_a_level_are_coded_exactly(void **state)
{
    harness_levels l = harness_open();
    uint16_t draws[256];
    float x[256];
    uint8_t codes[256];
    (void)state;

    for (int i = 0; i < 256; i++)
        draws[i] = (uint16_t)(i * 257);
    for (int bits = 2; bits <= 8; bits++) {
        const int top = (1 << (bits - 1)) - 1;
        const float inverse = 1.0f / (float)top;
        assert_true(inverse * (float)top == 1.0f); /* what the decoders rest on */
        for (int level = 0; level <= top; level++) {
            for (int i = 0; i < 256; i++)
                x[i] = level == 0 ? 0 : -ldexpf(3, level - top);
            tutti_round_powers(l.device[0], 256, x, 3, bits, draws, codes);
            for (int i = 0; i < 256; i++)
                assert_int_equal(codes[i], level == 0 ? 0 : level | 1 << (bits - 1));
        }
        for (int i = 0; i < 256; i++)
            x[i] = i % 2 ? 0.1f : -0.1f;
        tutti_round_uniform(l.device[0], 256, x, 0.1f, bits, draws, codes);
        for (int i = 0; i < 256; i++)
            assert_int_equal(codes[i], i % 2 ? top : top | 1 << (bits - 1));
    }
    harness_close(&l);
}

/* Adding uniform levels is adding from the table that the formula makes, also where the scale is
   NaN; every level is met with both signs. */
static void uniform_levels_need_no_table(void **state)
{
    static const float scales[] = { 0.7f, 0, 3e38f, 1e-42f, NAN };
    harness_levels l = harness_open();
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (int bits = 2; bits <= 8; bits++)
            for (size_t s = 0; s < TUTTI_LENGTH(scales); s++) {
                const int half = 1 << (bits - 1);
                uint8_t codes[256];
                float value[256], table[256], formula[256];
                for (int k = 0; k < 256; k++) {
                    codes[k] = (uint8_t)(k & (2 * half - 1));
                    table[k] = formula[k] = k % 3 == 0 ? -0.0f : (float)k * 0.1f;
                }
                for (int k = 0; k < half; k++) {
                    value[k] = -0.3f * (scales[s] * ((float)k * (1.0f / (float)(half - 1))));
                    value[half + k] = -value[k];
                }
                tutti_levels_add(l.device[0], 256, codes, 2 * half, value, table);
                tutti_uniform_add(l.device[level], 256, codes, bits, scales[s], -0.3f, formula);
                for (int k = 0; k < 256; k++)
                    assert_true(harness_same(table[k], formula[k]));
            }
    harness_close(&l);
}

static void range_codes_decode_to_evenly_spaced_values(void **state)
{
    static const float ends[][2] = {
        { -1, 1 }, { 0, 0 }, { -3e38f, -1e38f }, { 1e-45f, 3e-40f }, { -0.0f, 7 }, { 0.1f, 0.1f },
    };
    harness_levels l = harness_open();
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (size_t s = 0; s < TUTTI_LENGTH(ends); s++) {
            const float least = ends[s][0], greatest = ends[s][1], step = (greatest - least) / 255.0f;
            uint8_t codes[256];
            float y[256];
            for (int k = 0; k < 256; k++) {
                codes[k] = (uint8_t)k;
                y[k] = -0.0f;
            }
            tutti_range_add(l.device[level], 256, codes, least, greatest, 1, y);
            assert_true(y[0] == least && y[255] == greatest);
            for (int k = 1; k < 255; k++) {
                const float product = step * (float)k, sum = least + product;
                assert_true(harness_same(y[k], -0.0f + sum));
            }
            tutti_range_add(l.device[level], 1, codes + 7, NAN, NAN, 1, y);
            assert_true(isnan(y[0]));
        }
    harness_close(&l);
}

static void cutting_goes_towards_zero_and_keeps_nan(void **state)
{
    static const uint32_t rows[][2] = {
        { 0x3f80ffff, 0x3f80 }, { 0xbf80ffff, 0xbf80 }, { 0x7f7fffff, 0x7f7f }, { 0x7f800000, 0x7f80 },
        { 0xff800000, 0xff80 }, { 0x7f800001, 0x7fc0 }, { 0xff80ffff, 0xffc0 }, { 0x0000ffff, 0 },
        { 0x80010000, 0x8001 },
    };
    harness_levels l = harness_open();
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
            float x[16];
            uint16_t y[16];
            for (int i = 0; i < 16; i++)
                x[i] = harness_float(rows[r][0]);
            tutti_cut_bf16(l.device[level], 16, x, y);
            for (int i = 0; i < 16; i++)
                assert_int_equal(y[i], rows[r][1]);
        }
    harness_close(&l);
}

static void packing_puts_element_i_at_bit_i_times_bits(void **state)
{
    harness_levels l = harness_open();
    uint8_t codes[300], out[300], back[300];
    uint64_t seed = 3;
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (int bits = 1; bits <= 8; bits++)
            for (size_t n = 0; n <= 300; n++) {
                for (size_t i = 0; i < n; i++)
                    codes[i] = (uint8_t)(harness_random(&seed) & ((1u << bits) - 1));
                tutti_pack(l.device[level], bits, n, codes, out);
                assert_int_equal(tutti_packed_bytes(bits, n), (n * (size_t)bits + 7) / 8);
                for (size_t k = 0; k < 8 * tutti_packed_bytes(bits, n); k++)
                    assert_int_equal(out[k / 8] >> k % 8 & 1,
                                     k < n * (size_t)bits ? codes[k / (size_t)bits] >> k % (size_t)bits & 1 : 0);
                tutti_unpack(l.device[level], bits, n, out, back);
                assert_true(n == 0 || memcmp(back, codes, n) == 0);
            }
    harness_close(&l);
}

static int by_magnitude_then_index(const void *a, const void *b, void *x)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const uint32_t ki = tutti_magnitude_key(((const float *)x)[i]), kj = tutti_magnitude_key(((const float *)x)[j]);

    return ki != kj ? (ki < kj ? 1 : -1) : (i > j) - (i < j);
}

static int by_index(const void *a, const void *b)
{
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

/* Against sorting; shapes: normal-like, few distinct values, all equal, one in four special,
   heavy where the sample does not look. */
static void top_k_is_exact_with_ties_by_index(void **state)
{
    static const size_t lengths[] = { 1, 7, 8, 511, 512, 513, 5000, 70001 };
    harness_levels l = harness_open();
    float *x = malloc(70001 * sizeof *x);
    uint32_t *order = malloc(70001 * sizeof *order), *index = malloc(70001 * sizeof *index);
    float *value = malloc(70001 * sizeof *value);
    uint64_t seed = 17;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++)
        for (int shape = 0; shape < 5; shape++) {
            const size_t n = lengths[at];
            for (size_t i = 0; i < n; i++) {
                x[i] = harness_number(&seed, shape == 3 ? 1 : 0);
                if (shape == 1)
                    x[i] = (float)(harness_random(&seed) % 3) - 1;
                else if (shape == 2)
                    x[i] = -0.5f;
                else if (shape == 4)
                    x[i] = i % 97 < 3 ? x[i] * 1e6f : x[i];
                order[i] = (uint32_t)i;
            }
            qsort_r(order, n, sizeof *order, by_magnitude_then_index, x);
            for (size_t k = 0; k <= n; k = k < 3 ? k + 1 : k * 3 < n || k == n ? k * 3 : n) {
                uint32_t *wanted = malloc((k + 1) * sizeof *wanted);
                memcpy(wanted, order, k * sizeof *wanted);
                qsort(wanted, k, sizeof *wanted, by_index);
                for (int level = 0; level < l.count; level++) {
                    assert_true(tutti_select_room(n, k) >= k && tutti_select_room(n, k) <= n);
                    tutti_select_top(l.device[level], n, x, k, index, value);
                    assert_true(k == 0 || memcmp(index, wanted, k * sizeof *index) == 0);
                    for (size_t i = 0; i < k; i++)
                        assert_int_equal(harness_bits(value[i]), harness_bits(x[wanted[i]]));
                }
                free(wanted);
                if (k == n)
                    break;
            }
        }
    free(x), free(order), free(index), free(value);
    harness_close(&l);
}

static void extents_match_the_minimum_and_maximum(void **state)
{
    harness_levels l = harness_open();
    float x[100], low, high;
    uint64_t seed = 9;
    (void)state;

    for (int level = 0; level < l.count; level++)
        for (size_t n = 1; n <= 100; n++) {
            float least = INFINITY, greatest = -INFINITY, most = 0;
            for (size_t i = 0; i < n; i++) {
                x[i] = harness_number(&seed, 0);
                least = fminf(least, x[i]), greatest = fmaxf(greatest, x[i]), most = fmaxf(most, fabsf(x[i]));
            }
            tutti_extent(l.device[level], n, x, &low, &high);
            assert_true(low == least && high == greatest && tutti_absmax(l.device[level], n, x) == most);
            x[seed % n] = harness_float(n % 2 ? 0x7fc00001 : 0xffc00001);
            tutti_extent(l.device[level], n, x, &low, &high);
            assert_true(isnan(low) || isnan(high));
            assert_true(isnan(tutti_absmax(l.device[level], n, x)) && isnan(tutti_norm1(l.device[level], n, x)));
        }
    assert_true(tutti_absmax(l.device[0], 0, x) == 0);
    harness_close(&l);
}

/* tutti_quantise is tutti_draws and tutti_round_* of each run: at every level, from any draw on,
   for runs of any length, some with a scale of 0 or NaN, whatever is prefetched; nothing is
   written beyond the codes. */
static void quantising_is_drawing_and_rounding(void **state)
{
    enum { N = 900 };
    harness_levels l = harness_open();
    float x[N], scale[N], level[256];
    uint8_t codes[N + 1], wanted[N];
    uint64_t seed = 31;
    (void)state;

    for (int round = 0; round < 400; round++) {
        const size_t n = harness_random(&seed) % (N + 1),
                     each = round % 5 == 0 ? N : 1 + harness_random(&seed) % (round % 2 ? 40 : 600);
        /* the first: the blocks' index leaves 32 bits on the way */
        const uint64_t first =
            round % 7 == 0 ? (UINT64_C(1) << 35) - harness_random(&seed) % 900 : harness_random(&seed) % 5000;
        const tutti_rng rng = { harness_random(&seed), harness_random(&seed), harness_random(&seed) };
        const tutti_ahead ahead = { .distance = harness_random(&seed) % 500, .end = n };
        tutti_levels t;
        tutti_rounding how = {
            .grid = (tutti_grid)(round % 3), .bits = 2 + (int)(harness_random(&seed) % 7), .levels = &t,
        };
        how.nearest = how.grid == TUTTI_GRID_EVEN && round % 2 == 0;
        how.steps = how.grid == TUTTI_GRID_EVEN && round % 4 < 2
                        ? 1 + (int)(harness_random(&seed) % ((1u << (how.bits - 1)) - 1))
                        : 0;
        for (int k = 0; k < 1 << how.bits; k++)
            level[k] = (float)k / (float)((1 << how.bits) - 1) * 2 - 1, level[k] *= fabsf(level[k]);
        assert_true(tutti_levels_make(&t, how.bits, level));
        for (size_t i = 0; i < n; i++)
            x[i] = harness_number(&seed, 0) * (harness_random(&seed) % 16 ? 1 : 0);
        for (size_t at = 0; at < n; at += each) {
            const size_t some = n - at < each ? n - at : each;
            float *s = &scale[at / each];
            *s = round % 4 == 1 && harness_random(&seed) % 3 == 0 ? (harness_random(&seed) % 2 ? 0 : NAN)
                                                                  : largest(some, x + at);
            memset(wanted + at, 0, some);
            for (size_t i = 0; i < some && *s > 0; i++) {
                const uint64_t draw = first + at + i;
                uint16_t draws[TUTTI_DRAWS];
                tutti_draws(l.device[0], rng, draw / TUTTI_DRAWS, 1, draws);
                if (how.steps > 0)
                    tutti_quantise(l.device[0], &how, rng, draw, 1, x + at + i, 1, s, NULL, wanted + at + i);
                else if (how.grid == TUTTI_GRID_EVEN)
                    tutti_round_uniform(l.device[0], 1, x + at + i, *s, how.bits,
                                        how.nearest ? NULL : &draws[draw % TUTTI_DRAWS], wanted + at + i);
                else if (how.grid == TUTTI_GRID_POWERS)
                    tutti_round_powers(l.device[0], 1, x + at + i, *s, how.bits, &draws[draw % TUTTI_DRAWS],
                                       wanted + at + i);
                else
                    tutti_round_levels(l.device[0], 1, x + at + i, *s, &t, &draws[draw % TUTTI_DRAWS], wanted + at + i);
            }
        }
        for (int k = 0; k < l.count; k++) {
            memset(codes, 0x5a, sizeof codes);
            tutti_quantise(l.device[k], &how, rng, first, n, x, each, scale, round % 2 ? &ahead : NULL, codes);
            for (size_t i = 0; i < n; i++)
                if (codes[i] != wanted[i])
                    fail_msg(
                        "round %d, level %d, grid %d, %d bits, element %zu of %zu in runs of %zu: %d in place of %d",
                        round, k, how.grid, how.bits, i, n, each, codes[i], wanted[i]);
            assert_int_equal(codes[n], 0x5a);
        }
    }
    harness_close(&l);
}

static void batched_run_sums_match_single_run_sums(void **state)
{
    enum { N = 700 };
    static const size_t runs[] = { 1, 7, 16, 17, 64, 100, 256, 350, N, 2 * N };
    harness_levels l = harness_open();
    float x[N];
    uint64_t seed = 77;
    (void)state;

    for (size_t i = 0; i < N; i++)
        x[i] = harness_number(&seed, 0);
    for (int level = 0; level < l.count; level++)
        for (size_t r = 0; r < TUTTI_LENGTH(runs); r++)
            for (size_t n = 0; n <= N; n += n < 40 ? 1 : 33) {
                double sums[N + 1];
                const size_t each = runs[r], count = (n + each - 1) / each;
                sums[count] = 4711;
                tutti_norm2_each(l.device[level], n, each, x, sums);
                for (size_t k = 0; k < count; k++) {
                    const size_t some = n - k * each < each ? n - k * each : each;
                    if (sums[k] != tutti_norm2(l.device[0], some, x + k * each))
                        fail_msg("level %d, %zu elements in runs of %zu, run %zu: %.17g", level, n, each, k, sums[k]);
                }
                assert_true(sums[count] == 4711);
            }
    harness_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantising_is_drawing_and_rounding),
        cmocka_unit_test(batched_run_sums_match_single_run_sums),
        cmocka_unit_test(every_level_gives_the_references_bits),
        cmocka_unit_test(products_with_few_vectors_match_the_formulas),
        cmocka_unit_test(long_products_match_short_products),
        cmocka_unit_test(draws_are_the_halves_of_tutti_random),
        cmocka_unit_test(rounding_keeps_the_expectation_over_all_draws),
        cmocka_unit_test(any_levels_keep_the_expectation_over_all_draws),
        cmocka_unit_test(codes_do_not_depend_on_the_binade_of_the_scale),
        cmocka_unit_test(values_on_a_level_are_coded_exactly),
        cmocka_unit_test(uniform_levels_need_no_table),
        cmocka_unit_test(range_codes_decode_to_evenly_spaced_values),
        cmocka_unit_test(cutting_goes_towards_zero_and_keeps_nan),
        cmocka_unit_test(packing_puts_element_i_at_bit_i_times_bits),
        cmocka_unit_test(top_k_is_exact_with_ties_by_index),
        cmocka_unit_test(extents_match_the_minimum_and_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
