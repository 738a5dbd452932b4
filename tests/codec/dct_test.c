/* Goal: codec dct sends what DeMo extracts: of each cell of a tensor the greatest coefficients of
   its orthonormal cosine transform. Method: the transform from its definition in double
   (dct_reference.h); equalities to the bit where nothing is rounded. */
#include "subject.h"
#include "dct_reference.h"
#include "base/machine.h"

enum { LONGEST = 130 * 130 };
static const subject_shape shapes[] = { { 1, 1 },   { 1, 2 },    { 1, 7 },    { 1, 64 },  { 1, 65 },
                                        { 1, 127 }, { 1, 1009 }, { 2, 3 },    { 64, 64 }, { 100, 67 },
                                        { 3, 130 }, { 127, 5 },  { 65, 129 }, { 97, 2 } };
static const int chunks[] = { 1, 2, 5, 64, 128 };

static subject *opened(subject_shape shape, const char *format, int a, int b)
{
    char spec[100];

    snprintf(spec, sizeof spec, format, a, b);
    return subject_open_as(spec, shape.rows, shape.cols, 0, TUTTI_CPU_AVX512);
}

/* All coefficients: the inverse of the transform is its transpose. */
static void all_coefficients_give_the_tensor_back(void **state)
{
    float x[LONGEST], y[LONGEST];
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (size_t c = 0; c < TUTTI_LENGTH(chunks); c++) {
            const size_t n = shapes[k].rows * shapes[k].cols;
            subject *s = opened(shapes[k], "dct(topk=16384,chunk=%d)", chunks[c], 0);
            subject_fill(n, x, (int)(k + c) % 5, &seed);
            subject_round_trip(s, 0, x, y);
            for (size_t i = 0; i < n && chunks[c] == 1; i++)
                assert_true(y[i] == x[i]); /* a cell is an element */
            if (!(subject_loss(n, x, y) <= 1e-11 * subject_norm2(n, x)))
                fail_msg("%zu x %zu in cells of %d: %g of %g is lost", shapes[k].rows, shapes[k].cols, chunks[c],
                         subject_loss(n, x, y), subject_norm2(n, x));
            subject_close(s);
        }
}

/* ---- what is sent ---- */

typedef struct comparison {
    const float *x, *y;
    size_t cols, topk;
} comparison;

static int descending(const void *a, const void *b)
{
    const double d = fabs(*(const double *)b) - fabs(*(const double *)a);

    return (d > 0) - (d < 0);
}

/* What is lost of a cell is what the coefficients beyond the topk greatest have. Each one that is
   kept is the tensor's, and each other 0. */
static void compare_cell(void *user, const reference_cell *cell)
{
    const comparison *of = user;
    const size_t n = cell->h * cell->w, k = n < of->topk ? n : of->topk;
    double *x = calloc(6 * n, sizeof *x), *y = x + n, *was = y + n, *is = was + n, *sorted = is + n, size = 0,
           lost = 0, expected = 0;
    size_t kept = 0;

    for (size_t i = 0; i < cell->h; i++)
        for (size_t j = 0; j < cell->w; j++) {
            const size_t at = (cell->row + i) * of->cols + cell->col + j;
            x[i * cell->w + j] = (double)of->x[at];
            y[i * cell->w + j] = (double)of->y[at];
        }
    reference_transform(cell, 0, x, was);
    reference_transform(cell, 0, y, is);
    memcpy(sorted, was, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t i = 0; i < n; i++) {
        size += was[i] * was[i];
        lost += (was[i] - is[i]) * (was[i] - is[i]);
        expected += i >= k ? sorted[i] * sorted[i] : 0;
    }
    for (size_t i = 0; i < n; i++) {
        const double near = 1e-5 * sqrt(size) + 1e-30;
        assert_true(fabs(is[i]) <= near || fabs(is[i] - was[i]) <= near);
        kept += fabs(is[i]) > near;
    }
    assert_true(kept <= k);
    if (!(fabs(lost - expected) <= 1e-5 * size + 1e-30))
        fail_msg("%zu x %zu of row %zu, column %zu: %g is lost, and %g are the coefficients beyond the %zu greatest",
                 cell->h, cell->w, cell->row, cell->col, lost, expected, k);
    free(x);
}

static void the_greatest_coefficients_of_each_cell_are_sent(void **state)
{
    static const int topk[] = { 1, 4, 32 };
    float x[LONGEST], y[LONGEST];
    uint64_t seed = 2;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (size_t t = 0; t < TUTTI_LENGTH(topk); t++) {
            const int chunk = (const int[]){ 64, 8, 33 }[t];
            subject *s = opened(shapes[k], "dct(topk=%d,chunk=%d)", topk[t], chunk);
            subject_fill(shapes[k].rows * shapes[k].cols, x, (int)t % 2, &seed);
            subject_round_trip(s, 0, x, y);
            reference_cells(shapes[k].rows, shapes[k].cols, (size_t)chunk, compare_cell,
                            &(comparison){ x, y, shapes[k].cols, (size_t)topk[t] });
            subject_close(s);
        }
}

static void messages_have_the_bytes_of_the_formula(void **state)
{
    static const struct { const char *dtype; size_t each; } types[] = { { "fp32", 4 }, { "fp16", 2 }, { "bf16", 2 } };
    float x[LONGEST], y[LONGEST];
    uint64_t seed = 3;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (size_t c = 0; c < TUTTI_LENGTH(chunks); c++)
            for (size_t t = 0; t < TUTTI_LENGTH(types); t++) {
                char spec[100];
                subject *s;
                snprintf(spec, sizeof spec, "dct(topk=9,chunk=%d,value_dtype=%s)", chunks[c], types[t].dtype);
                s = subject_open_as(spec, shapes[k].rows, shapes[k].cols, 0, TUTTI_CPU_AVX512);
                subject_fill(shapes[k].rows * shapes[k].cols, x, 0, &seed);
                assert_int_equal(subject_round_trip(s, 0, x, y),
                                 reference_bytes(shapes[k].rows, shapes[k].cols, 9, (size_t)chunks[c], types[t].each));
                assert_int_equal(s->codec->ops->bound(s->codec, &s->tensor),
                                 reference_bytes(shapes[k].rows, shapes[k].cols, 9, (size_t)chunks[c], types[t].each));
                subject_close(s);
            }
}

/* A cell of 4 x 4, k = 2, values of 4 bytes: indexes of 4 bits in byte 8. A cell of 3 x 4: 12 and
   more are no index. Of 1 x 5 two indexes of 3 bits are followed by two bits of 0. */
static void invalid_messages_are_rejected(void **state)
{
    static const struct { subject_shape shape; uint8_t last; size_t bytes; const char *text; } rows[] = {
        { { 4, 4 }, 0x31, 10, "a message of 10 bytes for the 16 elements from 0 on should have 9" },
        { { 4, 4 }, 0x13, 9,
          "index 2 of 2 of the cell at row 0, column 0 is 1, and it should be from 4 to 15; the message was damaged" },
        { { 4, 4 }, 0x33, 9, "is 3, and it should be from 4 to 15" },
        { { 3, 4 }, 0xc1, 9, "is 12, and it should be from 2 to 11" },
        { { 1, 5 }, 0x61, 9, "bits are set behind the last of 2 indexes" },
    };
    float y[16];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = opened(rows[k].shape, "dct(topk=2,chunk=%d)", 4 + (rows[k].shape.rows == 1), 0);
        const tutti_view v = subject_view(s, 0);
        uint8_t in[10] = { 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f, rows[k].last, 0 };
        tutti_error err = { 0 };
        for (int i = 0; i < 16; i++)
            y[i] = 0.5f;
        assert_int_equal(s->codec->ops->decode_add(s->codec, &v, in, rows[k].bytes, 1, y, &err), TUTTI_ERR_CORRUPT);
        if (strstr(err.text, rows[k].text) == NULL)
            fail_msg("'%s' instead of '%s'", err.text, rows[k].text);
        for (int i = 0; i < 16; i++)
            assert_true(y[i] == 0.5f);
        subject_close(s);
    }
}

/* ---- means ---- */

enum { WORKERS = 3, SIDE = 8, N = SIDE * SIDE };

static tutti_status mean_of(subject *const *s, float (*x)[N], float *y, int *bad, tutti_error *err)
{
    const tutti_view v = subject_view(s[0], 0);
    tutti_codec_message m[WORKERS];
    uint8_t *at[WORKERS];
    float sums[2 * N];
    tutti_status status;

    for (int w = 0; w < WORKERS; w++) {
        size_t bytes;
        at[w] = subject_encode(s[w], &v, x[w], &bytes);
        m[w] = (tutti_codec_message){ at[w], w == *bad ? bytes - 1 : bytes };
    }
    assert_true(tutti_codec_mean_levels(WORKERS) <= 2);
    status = tutti_codec_mean(s[0]->codec, &v, m, 1, WORKERS, y, sums, bad, err);
    for (int w = 0; w < WORKERS; w++)
        free(at[w]);
    return status;
}

/* Worker w has coefficient 5, of size w + 1, and one of its own, 10 + w, of size 8. Both are sent.
   Over the senders the first has the mean 2 and the others 8; over all workers 2 and 8 / 3. */
static void a_mean_is_over_the_senders_or_over_all(void **state)
{
    const reference_cell cell = { 0, 0, SIDE, SIDE };
    (void)state;

    for (int senders = 0; senders < 2; senders++) {
        subject *s[WORKERS];
        float x[WORKERS][N], y[N];
        double wanted[N] = { 0 }, tensor[N];
        int bad = -1;
        for (int w = 0; w < WORKERS; w++) {
            double q[N] = { 0 };
            q[5] = w + 1;
            q[10 + w] = 8;
            wanted[5] += q[5] / 3;
            wanted[10 + w] = senders ? 8 : 8.0 / 3;
            reference_transform(&cell, 1, q, tensor);
            for (int i = 0; i < N; i++)
                x[w][i] = (float)tensor[i];
            s[w] = subject_open_as(senders ? "dct(topk=2,chunk=8,mean=senders)" : "dct(topk=2,chunk=8)", SIDE, SIDE, w,
                                   TUTTI_CPU_AVX512);
        }
        assert_int_equal(mean_of(s, x, y, &bad, NULL), TUTTI_OK);
        reference_transform(&cell, 1, wanted, tensor);
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)y[i] - tensor[i]) < 1e-5);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

/* Where all send all coefficients both means are the mean of the tensors. A message of the wrong
   length is refused by its worker's number. */
static void means_of_all_coefficients_are_the_mean(void **state)
{
    uint64_t seed = 5;
    (void)state;

    for (int senders = 0; senders < 2; senders++) {
        subject *s[WORKERS];
        float x[WORKERS][N], y[N];
        tutti_error err = { 0 };
        int bad = -1;
        for (int w = 0; w < WORKERS; w++) {
            subject_fill(N, x[w], 0, &seed);
            s[w] = subject_open_as(senders ? "dct(topk=64,chunk=8,mean=senders)" : "dct(topk=64,chunk=8)", SIDE, SIDE,
                                   w, TUTTI_CPU_AVX512);
        }
        assert_int_equal(mean_of(s, x, y, &bad, NULL), TUTTI_OK);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(y[i] - (x[0][i] + x[1][i] + x[2][i]) / 3) < 1e-5f);
        bad = 1;
        assert_int_equal(mean_of(s, x, y, &bad, &err), TUTTI_ERR_CORRUPT);
        assert_int_equal(bad, 1);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

static void a_mean_over_senders_has_the_same_bits_at_every_level(void **state)
{
    const subject_shape shape = { SIDE, SIDE };
    float x[WORKERS][N], y[N], first[N];
    uint64_t seed = 6;
    (void)state;

    for (int w = 0; w < WORKERS; w++)
        subject_fill(N, x[w], w % 2, &seed);
    for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++) {
        subject *s[WORKERS];
        int bad = -1;
        for (int w = 0; w < WORKERS; w++)
            s[w] = subject_open_on("dct(topk=3,chunk=3,mean=senders)", 1, &shape, w, (tutti_cpu)cpu);
        assert_int_equal(mean_of(s, x, cpu == 0 ? first : y, &bad, NULL), TUTTI_OK);
        if (cpu > 0)
            assert_memory_equal(y, first, sizeof y);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

static void a_mean_over_senders_goes_to_no_single_worker(void **state)
{
    subject *joint = subject_open("dct(mean=senders)", 100), *plain = subject_open("dct", 100);
    tutti_error err = { 0 };
    (void)state;

    assert_int_equal(tutti_codec_check_point(joint->codec, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "the mean of codec 'dct' is made of all workers' messages at once"));
    assert_int_equal(tutti_codec_check_point(plain->codec, &err), TUTTI_OK);
    subject_close(joint);
    subject_close(plain);
}

/* DeMo's recursion, to the bit: m := b m + g; q is sent of m; m := m - q as decoded. */
static void error_feedback_with_decay_is_the_decoupled_momentum(void **state)
{
    enum { ROWS = 20, COLS = 33, ALL = ROWS * COLS, STEPS = 5 };
    const float decay = 0.75f;
    subject *s = subject_open_as("ef(dct(topk=6,chunk=16,mean=senders),decay=0.75,lr=inside)", ROWS, COLS, 0,
                                 TUTTI_CPU_AVX512);
    float g[ALL], m[ALL] = { 0 }, q[ALL];
    const float *e = subject_state(s, "codec.e", TUTTI_OWN_MEAN);
    uint64_t seed = 7;
    (void)state;

    for (uint64_t step = 0; step < STEPS; step++) {
        tutti_view v = subject_view(s, step);
        tutti_codec *leaf = tutti_codec_chosen(s->codec, &v);
        void *scratch = aligned_alloc(64, (leaf->ops->scratch(leaf, &v) + 64) / 64 * 64);
        uint8_t *out = malloc(leaf->ops->bound(leaf, &v));
        size_t bytes;
        subject_fill(ALL, g, 0, &seed);
        bytes = leaf->ops->encode(leaf, &v, tutti_codec_before(s->codec, &v, g), scratch, out);
        for (size_t i = 0; i < ALL; i++) {
            m[i] = decay * m[i] + g[i];
            q[i] = 0;
            assert_true(e[i] == m[i]);
        }
        assert_int_equal(leaf->ops->decode_add(leaf, &v, out, bytes, 1, q, NULL), TUTTI_OK);
        assert_int_equal(tutti_codec_sent(s->codec, &v, out, bytes, NULL), TUTTI_OK);
        for (size_t i = 0; i < ALL; i++) {
            m[i] -= q[i];
            assert_true(e[i] == m[i]);
        }
        free(out);
        free(scratch);
    }
    subject_close(s);
}

/* The matrices are scratch, which may be anything when a step begins. */
static void matrices_are_made_again_where_their_memory_has_changed(void **state)
{
    static const size_t at[] = { 0, 1000, 178879 }; /* of the matrices of lengths 1 to 64 */
    float x[200], first[200], y[200];
    uint64_t seed = 9;
    (void)state;

    subject_fill(200, x, 0, &seed);
    for (size_t k = 0; k < TUTTI_LENGTH(at); k++) {
        subject *s = subject_open("dct(topk=8)", 200);
        float *basis = subject_state(s, "codec.basis", TUTTI_SCRATCH);
        subject_round_trip(s, 0, x, first);
        basis[at[k]] = k == 1 ? NAN : 7;
        assert_int_equal(tutti_codec_begin(s->codec, &(tutti_codec_moment){ .step = 1 }, NULL), TUTTI_OK);
        subject_round_trip(s, 1, x, y);
        assert_memory_equal(y, first, sizeof y);
        assert_true(fabsf(basis[at[k]]) <= 1);
        subject_close(s);
    }
}

/* Of two cells one has a number that is not finite: it is not finite as decoded, the other is as it
   was. */
static void nonfinite_values_stay_in_their_cell(void **state)
{
    float x[128], clean[128], y[128];
    uint64_t seed = 8;
    (void)state;

    subject_fill(128, x, 0, &seed);
    for (int bad = 0; bad < 3; bad++) {
        subject *s = subject_open("dct(topk=4)", 128);
        x[17] = 1;
        subject_round_trip(s, 0, x, clean);
        x[17] = (const float[]){ NAN, INFINITY, -INFINITY }[bad];
        subject_round_trip(s, 0, x, y);
        for (int i = 0; i < 64; i++)
            assert_false(isfinite(y[i]));
        assert_memory_equal(y + 64, clean + 64, 64 * sizeof *y);
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_coefficients_give_the_tensor_back),
        cmocka_unit_test(the_greatest_coefficients_of_each_cell_are_sent),
        cmocka_unit_test(messages_have_the_bytes_of_the_formula),
        cmocka_unit_test(invalid_messages_are_rejected),
        cmocka_unit_test(a_mean_is_over_the_senders_or_over_all),
        cmocka_unit_test(means_of_all_coefficients_are_the_mean),
        cmocka_unit_test(a_mean_over_senders_has_the_same_bits_at_every_level),
        cmocka_unit_test(a_mean_over_senders_goes_to_no_single_worker),
        cmocka_unit_test(error_feedback_with_decay_is_the_decoupled_momentum),
        cmocka_unit_test(matrices_are_made_again_where_their_memory_has_changed),
        cmocka_unit_test(nonfinite_values_stay_in_their_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
