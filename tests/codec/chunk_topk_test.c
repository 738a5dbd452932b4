/* Goal: codec chunk-topk sends what SparseLoCo does: of each cell of a tensor the elements of
   greatest magnitude, as one of four levels. Method: selection and quantiser from their
   definitions; equalities to the bit. Cells are those of dct_reference.h. */
#include "subject.h"
#include "dct_reference.h"

enum { LONGEST = 130 * 130 };
static const subject_shape shapes[] = { { 1, 1 },   { 1, 2 },   { 1, 64 },  { 1, 65 },    { 1, 1009 }, { 2, 3 },
                                        { 64, 64 }, { 100, 67 }, { 3, 130 }, { 130, 130 }, { 97, 2 } };
static const int chunks[] = { 1, 5, 64, 128 };

static subject *opened(subject_shape shape, int topk, int chunk, const char *more)
{
    char spec[120];

    snprintf(spec, sizeof spec, "chunk-topk(topk=%d,chunk=%d%s)", topk, chunk, more);
    return subject_open_as(spec, shape.rows, shape.cols, 0, TUTTI_CPU_AVX512);
}

/* ---- what is sent ---- */

/* The elements of a message: value and place of each, in its order. */
typedef struct selection {
    const float *x;
    size_t cols, topk, n, place[LONGEST];
    float value[LONGEST];
} selection;

static size_t place_in(const selection *s, const reference_cell *cell, size_t i)
{
    return (cell->row + i / cell->w) * s->cols + cell->col + i % cell->w;
}

/* An element is sent if fewer than topk come before it: greater ones, and equal ones of a lower
   index. */
static void select_of_cell(void *user, const reference_cell *cell)
{
    selection *s = user;
    const size_t n = cell->h * cell->w;

    for (size_t i = 0; i < n; i++) {
        const size_t at = place_in(s, cell, i);
        size_t before = 0;
        for (size_t j = 0; j < n && before < s->topk; j++) {
            const float other = fabsf(s->x[place_in(s, cell, j)]);
            before += other > fabsf(s->x[at]) || (other == fabsf(s->x[at]) && j < i);
        }
        if (before < s->topk) {
            s->place[s->n] = at;
            s->value[s->n++] = s->x[at];
        }
    }
}

static selection *select_from(const float *x, subject_shape shape, size_t topk, size_t chunk)
{
    selection *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->x = x;
    s->cols = shape.cols;
    s->topk = topk;
    reference_cells(shape.rows, shape.cols, chunk, select_of_cell, s);
    return s;
}

/* SparseLoCo's quantiser: values are replaced by the mean of those with the same code. Up to four
   stay. */
static void quantise(selection *s)
{
    double mean = 0, squares = 0, width, sum[4] = { 0 }, count[4] = { 0 };
    int *code = calloc(s->n, sizeof *code);

    assert_non_null(code);
    for (size_t i = 0; i < s->n; i++)
        mean += (double)s->value[i];
    mean /= (double)s->n;
    for (size_t i = 0; i < s->n; i++)
        squares += ((double)s->value[i] - mean) * ((double)s->value[i] - mean);
    width = s->n > 1 ? 6 * sqrt(squares / (double)(s->n - 1)) / 4 : 0;
    for (size_t i = 0; i < s->n; i++) {
        code[i] = width > 0 ? (int)fmax(0, fmin(3, nearbyint(((double)s->value[i] - mean) / width + 2))) : 2;
        sum[code[i]] += (double)s->value[i];
        count[code[i]]++;
    }
    for (size_t i = 0; i < s->n && s->n > 4; i++)
        s->value[i] = (float)(sum[code[i]] / count[code[i]]);
    free(code);
}

static void the_greatest_elements_of_each_cell_are_sent(void **state)
{
    static const struct { int topk, chunk; } cases[] = { { 1, 5 }, { 7, 64 }, { 64, 64 }, { 16384, 128 } };
    static float x[LONGEST], y[LONGEST], expect[LONGEST];
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
            for (int two_bits = 0; two_bits < 2; two_bits++) {
                const size_t n = shapes[k].rows * shapes[k].cols;
                subject *s = opened(shapes[k], cases[c].topk, cases[c].chunk, two_bits ? "" : ",value_dtype=fp32");
                selection *sent;
                if (cases[c].topk > 64 && n > 5000) { /* the reference is quadratic */
                    subject_close(s);
                    continue;
                }
                subject_fill(n, x, (int)(k + c) % 5, &seed);
                x[n / 2] = -x[0]; /* of equal magnitudes the first */
                subject_round_trip(s, 0, x, y);
                sent = select_from(x, shapes[k], (size_t)cases[c].topk, (size_t)cases[c].chunk);
                if (two_bits)
                    quantise(sent);
                memset(expect, 0, n * sizeof *expect);
                for (size_t i = 0; i < sent->n; i++)
                    expect[sent->place[i]] = sent->value[i];
                for (size_t i = 0; i < n; i++)
                    if (y[i] != expect[i])
                        fail_msg("%zu x %zu, topk %d, chunk %d, %s: element %zu, %g, is %g, not %g", shapes[k].rows,
                                 shapes[k].cols, cases[c].topk, cases[c].chunk, two_bits ? "2bit" : "fp32", i,
                                 (double)x[i], (double)y[i], (double)expect[i]);
                free(sent);
                subject_close(s);
            }
}

static size_t values_of(size_t rows, size_t cols, size_t topk, size_t chunk)
{
    reference_size s = { .topk = topk };

    reference_cells(rows, cols, chunk, reference_count, &s);
    return s.values;
}

/* Values of four or two bytes, or 16 bytes of levels and two bits a value; and indexes. */
static void messages_have_the_bytes_of_the_formula(void **state)
{
    static const struct { const char *more; size_t each; } types[] = { { ",value_dtype=fp32", 4 },
                                                                      { ",value_dtype=fp16", 2 },
                                                                      { ",value_dtype=bf16", 2 },
                                                                      { "", 0 },
                                                                      { ",value_dtype=2bit,mean=senders", 0 } };
    static float x[LONGEST], y[LONGEST];
    uint64_t seed = 3;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (size_t c = 0; c < TUTTI_LENGTH(chunks); c++)
            for (size_t t = 0; t < TUTTI_LENGTH(types); t++) {
                const size_t rows = shapes[k].rows, cols = shapes[k].cols, chunk = (size_t)chunks[c],
                             values = values_of(rows, cols, 9, chunk),
                             bytes = reference_bytes(rows, cols, 9, chunk, types[t].each) +
                                     (types[t].each == 0 ? 16 + (values + 3) / 4 : 0);
                subject *s = opened(shapes[k], 9, chunks[c], types[t].more);
                subject_fill(rows * cols, x, 0, &seed);
                assert_int_equal(subject_round_trip(s, 0, x, y), bytes);
                assert_int_equal(s->codec->ops->bound(s->codec, &s->tensor), bytes);
                subject_close(s);
            }
}

/* SparseLoCo's figures: 112 bytes of a block of 64 x 64, 146 times less than float32. */
static void a_matrix_takes_112_bytes_a_block(void **state)
{
    enum { SIDE = 2048 };
    const subject_shape shape = { SIDE, SIDE }, empty = { 1, 0 };
    subject *s = opened(shape, 64, 64, ""), *none;
    const size_t bytes = s->codec->ops->bound(s->codec, &s->tensor);
    (void)state;

    assert_int_equal(bytes, 16 + 112 * (SIDE / 64) * (SIDE / 64));
    assert_true(4.0 * SIDE * SIDE / (double)bytes > 146);
    subject_close(s);
    s = subject_open_as("chunk-topk", SIDE, SIDE, 0, TUTTI_CPU_SCALAR); /* these are its defaults */
    assert_int_equal(s->codec->ops->bound(s->codec, &s->tensor), bytes);
    subject_close(s);
    none = opened(empty, 64, 64, "");
    assert_int_equal(none->codec->ops->bound(none->codec, &none->tensor), 0);
    subject_close(none);
}

/* Four values or fewer are levels themselves, two opposite ones too; so is a value that all
   elements have. */
static void values_that_are_levels_lose_nothing(void **state)
{
    static const struct { size_t n; float x[5]; } rows[] = {
        { 1, { -3 } }, { 5, { 2.5f, 2.5f, 2.5f, 2.5f, 2.5f } }, { 2, { 1, -1 } }, { 5, { 0, 0, 0, 0, 0 } },
        { 4, { 7, -0.5f, 7.5f, -20 } },
    };
    float y[5];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = opened((subject_shape){ 1, rows[k].n }, 5, 8, "");
        subject_round_trip(s, 0, rows[k].x, y);
        for (size_t i = 0; i < rows[k].n; i++)
            if (y[i] != rows[k].x[i])
                fail_msg("row %zu: %g is decoded to %g", k, (double)rows[k].x[i], (double)y[i]);
        subject_close(s);
    }
}

/* ---- messages that no encoder makes ---- */

/* Five elements, two sent: levels in bytes 0 to 15, codes in byte 16, indexes of 3 bits in byte
   17. */
static void invalid_messages_are_rejected(void **state)
{
    static const struct { float level; uint8_t codes, indexes; size_t bytes; const char *text; } rows[] = {
        { 1, 0x0d, 0x21, 17, "a message of 17 bytes for the 5 elements from 0 on should have 18" },
        { 1, 0x0d, 0x21, 19, "a message of 19 bytes for the 5 elements from 0 on should have 18" },
        { NAN, 0x0d, 0x21, 18, "level 2 of 4 is nan, and levels are finite, or all of them nan" },
        { INFINITY, 0x0d, 0x21, 18, "level 2 of 4 is inf, and levels are finite" },
        { 1, 0x1d, 0x21, 18, "bits are set behind the last of 2 codes" },
        { 1, 0x0d, 0x0a, 18, "index 2 of 2 of the cell at row 0, column 0 is 1, and it should be from 3 to 4" },
        { 1, 0x0d, 0x29, 18, "index 2 of 2 of the cell at row 0, column 0 is 5, and it should be from 2 to 4" },
        { 1, 0x0d, 0x61, 18, "bits are set behind the last of 2 indexes" },
        { 1, 0x0d, 0x21, 18, NULL },
    };
    float y[5];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = opened((subject_shape){ 1, 5 }, 2, 8, "");
        const tutti_view v = subject_view(s, 0);
        uint8_t in[19] = { [16] = rows[k].codes, [17] = rows[k].indexes };
        tutti_error err = { 0 };
        const float levels[] = { -2, rows[k].level, 0.5f, 4 };
        memcpy(in, levels, sizeof levels);
        for (int i = 0; i < 5; i++)
            y[i] = 0.5f;
        assert_int_equal(s->codec->ops->decode_add(s->codec, &v, in, rows[k].bytes, 1, y, &err),
                         rows[k].text == NULL ? TUTTI_OK : TUTTI_ERR_CORRUPT);
        if (rows[k].text != NULL && strstr(err.text, rows[k].text) == NULL)
            fail_msg("'%s' instead of '%s'", err.text, rows[k].text);
        for (int i = 0; i < 5; i++) /* codes 1 and 3, of elements 1 and 4 */
            assert_true(y[i] == (rows[k].text != NULL || (i != 1 && i != 4) ? 0.5f : i == 1 ? 1.5f : 4.5f));
        subject_close(s);
    }
}

/* A number that is not finite is sent; with levels it makes all of them NaN. */
static void nonfinite_values_arrive(void **state)
{
    float x[128], y[128];
    uint64_t seed = 8;
    (void)state;

    for (int bad = 0; bad < 3; bad++)
        for (int two_bits = 0; two_bits < 2; two_bits++) {
            subject *s = opened((subject_shape){ 1, 128 }, 4, 64, two_bits ? "" : ",value_dtype=fp32");
            int nan = 0, finite = 0;
            subject_fill(128, x, 0, &seed);
            x[17] = (const float[]){ NAN, INFINITY, -INFINITY }[bad];
            subject_round_trip(s, 0, x, y);
            assert_false(isfinite(y[17]));
            for (int i = 0; i < 128; i++) {
                nan += !isfinite(y[i]);
                finite += isfinite(y[i]) && y[i] != 0;
            }
            assert_int_equal(nan, two_bits ? 8 : 1);
            assert_int_equal(finite, two_bits ? 0 : 7);
            subject_close(s);
        }
}

/* ---- means, and error feedback ---- */

enum { WORKERS = 3, N = 64 };

/* Worker w has element 5, of size w + 1, and one of its own, 10 + w, of size 8. Both are sent.
   Over the senders the first has the mean 2 and the others 8; over all workers 2 and 8 / 3. */
static void a_mean_is_over_the_senders_or_over_all(void **state)
{
    (void)state;

    for (int senders = 0; senders < 2; senders++)
        for (int two_bits = 0; two_bits < 2; two_bits++) { /* of two values both are levels */
            subject *s[WORKERS];
            tutti_codec_message m[WORKERS];
            uint8_t *at[WORKERS];
            float x[N], y[N], sums[2 * N];
            char more[60];
            int bad = -1;
            snprintf(more, sizeof more, ",mean=%s,value_dtype=%s", senders ? "senders" : "all",
                     two_bits ? "2bit" : "fp32");
            for (int w = 0; w < WORKERS; w++) {
                size_t bytes;
                memset(x, 0, sizeof x);
                x[5] = (float)w + 1;
                x[10 + w] = 8;
                s[w] = opened((subject_shape){ 8, 8 }, 2, 8, more);
                at[w] = subject_encode(s[w], &(tutti_view){ .count = N, .rows = 8, .cols = 8 }, x, &bytes);
                m[w] = (tutti_codec_message){ at[w], bytes };
            }
            assert_int_equal(tutti_codec_mean(s[0]->codec, &s[0]->tensor, m, 1, WORKERS, y, sums, &bad, NULL),
                             TUTTI_OK);
            for (int i = 0; i < N; i++) {
                const float wanted = i == 5 ? 2 : i >= 10 && i < 10 + WORKERS ? senders ? 8 : 8.0f / 3 : 0;
                assert_true(fabsf(y[i] - wanted) < 1e-6f);
            }
            for (int w = 0; w < WORKERS; w++) {
                free(at[w]);
                subject_close(s[w]);
            }
        }
}

/* SparseLoCo's recursion, to the bit: e := b e + x; s is sent of e; e := e - s as decoded. With all
   elements, as they are, e is 0 whatever b. */
static void error_feedback_with_decay_is_the_recursion(void **state)
{
    enum { ROWS = 20, COLS = 33, ALL = ROWS * COLS, STEPS = 5 };
    static const char *const specs[] = { "ef(chunk-topk(topk=6,chunk=16),decay=0.75)",
                                         "ef(chunk-topk(topk=16384,value_dtype=fp32),decay=0.75)" };
    (void)state;

    for (int exact = 0; exact < 2; exact++) {
        subject *s = subject_open_as(specs[exact], ROWS, COLS, 0, TUTTI_CPU_AVX512);
        float x[ALL], e[ALL] = { 0 }, sent[ALL];
        const float *kept = subject_state(s, "codec.e", TUTTI_OWN_MEAN);
        uint64_t seed = 7;
        for (uint64_t step = 0; step < STEPS; step++) {
            tutti_view v = subject_view(s, step);
            tutti_codec *leaf = tutti_codec_chosen(s->codec, &v);
            void *scratch = aligned_alloc(64, (leaf->ops->scratch(leaf, &v) + 64) / 64 * 64);
            uint8_t *out = malloc(leaf->ops->bound(leaf, &v));
            size_t bytes;
            subject_fill(ALL, x, 0, &seed);
            bytes = leaf->ops->encode(leaf, &v, tutti_codec_before(s->codec, &v, x), scratch, out);
            for (size_t i = 0; i < ALL; i++) {
                e[i] = 0.75f * e[i] + x[i];
                sent[i] = 0;
                assert_true(kept[i] == e[i]);
            }
            assert_int_equal(leaf->ops->decode_add(leaf, &v, out, bytes, 1, sent, NULL), TUTTI_OK);
            assert_int_equal(tutti_codec_sent(s->codec, &v, out, bytes, NULL), TUTTI_OK);
            for (size_t i = 0; i < ALL; i++) {
                e[i] -= sent[i];
                assert_true(kept[i] == e[i] && (!exact || e[i] == 0));
            }
            free(out);
            free(scratch);
        }
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_greatest_elements_of_each_cell_are_sent),
        cmocka_unit_test(messages_have_the_bytes_of_the_formula),
        cmocka_unit_test(a_matrix_takes_112_bytes_a_block),
        cmocka_unit_test(values_that_are_levels_lose_nothing),
        cmocka_unit_test(invalid_messages_are_rejected),
        cmocka_unit_test(nonfinite_values_arrive),
        cmocka_unit_test(a_mean_is_over_the_senders_or_over_all),
        cmocka_unit_test(error_feedback_with_decay_is_the_recursion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
