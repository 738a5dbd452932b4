/* tutti_tree_sum and tutti_tree_sum_all. Goal: for every p the sum is the binary tree
   of docs/design/numbers.md, bit for bit, at every level; y may be any x; into all, every vector
   has it and nothing around them is touched.
   Method: the tree written as the recursion it is, an element at a time. */
#include "harness.h"
#include "kernels/vectors.h"

static float recursion(const float *const *x, const float *a, int from, int count, size_t i)
{
    int split = 1;
    volatile float product, left, right;

    if (count == 1) {
        product = a == NULL ? x[from][i] : a[from] * x[from][i];
        return product;
    }
    while (2 * split < count)
        split *= 2;
    left = recursion(x, a, from, split, i);
    right = recursion(x, a, from + split, count - split, i);
    return left + right;
}

/* p vectors of n numbers at uneven distances, so that alignments differ. */
static void compare(harness_levels *l, int p, size_t n, int kind, uint64_t seed)
{
    const size_t stride = n + 3;
    const float **x = calloc((size_t)p, sizeof *x);
    float *memory = calloc((size_t)p * stride + 1, sizeof *memory), *a = calloc((size_t)p, sizeof *a),
          *y = malloc((n + 1) * sizeof *y);

    for (int r = 0; r < p; r++) {
        x[r] = memory + (size_t)r * stride;
        a[r] = harness_number(&seed, 0);
    }
    for (size_t i = 0; i < (size_t)p * stride; i++)
        memory[i] = harness_number(&seed, kind);
    for (int weighted = 0; weighted < 2; weighted++)
        for (int level = 0; level < l->count; level++) {
            y[n] = 12345;
            tutti_tree_sum(l->device[level], n, p, x, weighted ? a : NULL, y);
            for (size_t i = 0; i < n; i++)
                if (!harness_same(y[i], recursion(x, weighted ? a : NULL, 0, p, i)))
                    fail_msg("p %d, n %zu, element %zu, level %d, weighted %d, kind %d", p, n, i, level, weighted,
                             kind);
            assert_true(y[n] == 12345);
        }
    free(x);
    free(memory);
    free(a);
    free(y);
}

/* As compare, with the sum in every vector; the gaps between vectors are checked as the vectors'
   neighbours. */
static void compare_all(harness_levels *l, int p, size_t n, int kind, uint64_t seed)
{
    const size_t stride = n + 3, count = (size_t)p * stride + 1;
    const float **x = calloc((size_t)p, sizeof *x);
    float **y = calloc((size_t)p, sizeof *y);
    float *fresh = calloc(count, sizeof *fresh), *memory = calloc(count, sizeof *memory),
          *a = calloc((size_t)p, sizeof *a);

    for (int r = 0; r < p; r++) {
        x[r] = fresh + 1 + (size_t)r * stride;
        y[r] = memory + 1 + (size_t)r * stride;
        a[r] = harness_number(&seed, 0);
    }
    for (size_t i = 0; i < count; i++)
        fresh[i] = harness_number(&seed, kind);
    for (int weighted = 0; weighted < 2; weighted++)
        for (int level = 0; level < l->count; level++) {
            memcpy(memory, fresh, count * sizeof *fresh);
            tutti_tree_sum_all(l->device[level], n, p, y, weighted ? a : NULL);
            for (size_t i = 0; i < count; i++) {
                const bool gap = i == 0 || (i - 1) % stride >= n;
                const float expected = gap ? fresh[i] : recursion(x, weighted ? a : NULL, 0, p, (i - 1) % stride);
                if (gap ? harness_bits(memory[i]) != harness_bits(expected) : !harness_same(memory[i], expected))
                    fail_msg("p %d, n %zu, place %zu, level %d, weighted %d, kind %d", p, n, i, level, weighted, kind);
            }
        }
    free(x);
    free(y);
    free(fresh);
    free(memory);
    free(a);
}

static void sums_into_all_vectors_have_the_same_bits_in_each(void **state)
{
    static const size_t lengths[] = { 0, 1, 3, 8, 15, 16, 17, 33, 255, 256, 257, 600 };
    harness_levels l = harness_open();
    (void)state;

    for (int p = 1; p <= 20; p++)
        for (size_t j = 0; j < TUTTI_LENGTH(lengths); j++)
            compare_all(&l, p, lengths[j], (int)j % 3, (uint64_t)p * 1000 + j);
    compare_all(&l, 64, 300, 0, 7);
    compare_all(&l, 129, 20, 0, 8);
    harness_close(&l);
}

static void tree_sum_matches_recursion_for_any_vector_count(void **state)
{
    static const int more[] = { 63, 64, 65, 96, 100, 127, 128, 129, 1000, 2047, 2048, 4095, 4096 };
    static const size_t lengths[] = { 0, 1, 7, 16, 31, 255, 256, 257, 700 };
    harness_levels l = harness_open();
    (void)state;

    for (int p = 1; p <= 40; p++)
        for (size_t j = 0; j < TUTTI_LENGTH(lengths); j++)
            compare(&l, p, lengths[j], (int)j % 3, (uint64_t)p * 100 + j);
    for (size_t j = 0; j < TUTTI_LENGTH(more); j++)
        compare(&l, more[j], 1 + 40 / (j + 1), 0, j);
    harness_close(&l);
}

/* (0+1)+2 keeps the 1 that 0+(1+2) loses; six and seven likewise. */
static void summation_order_is_as_documented(void **state)
{
    harness_levels l = harness_open();
    const float big = 1e8f, minus = -1e8f, one = 1;
    float y;
    (void)state;

    for (int level = 0; level < l.count; level++) {
        tutti_tree_sum(l.device[level], 1, 3, (const float *const[]){ &big, &minus, &one }, NULL, &y);
        assert_true(y == 1);
        tutti_tree_sum(l.device[level], 1, 3, (const float *const[]){ &big, &one, &minus }, NULL, &y);
        assert_true(y == 0);
        tutti_tree_sum(l.device[level], 1, 6, (const float *const[]){ &big, &minus, &big, &minus, &one, &one }, NULL,
                       &y);
        assert_true(y == 2);
        tutti_tree_sum(l.device[level], 1, 7, (const float *const[]){ &one, &one, &one, &one, &big, &minus, &one },
                       NULL, &y);
        assert_true(y == 5);
        tutti_tree_sum(l.device[level], 1, 7, (const float *const[]){ &one, &one, &one, &big, &minus, &one, &one },
                       NULL, &y);
        assert_true(y == 0); /* (1+1)+(1+big) = big and (-big+1)+1 = -big */
    }
    harness_close(&l);
}

static void the_result_may_overwrite_any_input_vector(void **state)
{
    enum { P = 19, N = 600 };
    harness_levels l = harness_open();
    static float memory[P][N], fresh[P][N], expected[N];
    const float *x[P];
    uint64_t seed = 11;
    (void)state;

    for (int r = 0; r < P; r++) {
        x[r] = memory[r];
        for (int i = 0; i < N; i++)
            fresh[r][i] = harness_number(&seed, 0);
    }
    for (int level = 0; level < l.count; level++)
        for (int p = 1; p <= P; p++)
            for (int into = 0; into < p; into++) {
                memcpy(memory, fresh, sizeof memory);
                for (int i = 0; i < N; i++)
                    expected[i] = recursion(x, NULL, 0, p, (size_t)i);
                tutti_tree_sum(l.device[level], N, p, x, NULL, memory[into]);
                assert_memory_equal(memory[into], expected, sizeof expected);
                for (int r = 0; r < P; r++)
                    if (r != into)
                        assert_memory_equal(memory[r], fresh[r], sizeof fresh[r]);
            }
    harness_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_sum_matches_recursion_for_any_vector_count),
        cmocka_unit_test(sums_into_all_vectors_have_the_same_bits_in_each),
        cmocka_unit_test(summation_order_is_as_documented),
        cmocka_unit_test(the_result_may_overwrite_any_input_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
