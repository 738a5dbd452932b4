/* Goal: memory is zeroed, aligned and refused rather than wrapped round; hashes and CPU levels are those of others. */
#include "base_test.h"

#include <errno.h>

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 300; bytes++) {
        for (int again = 0; again < 2; again++) { /* the second time from memory that was just written */
            unsigned char *memory = tutti_alloc(bytes, 1);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(memory[i], 0);
            memset(memory, 0xFF, bytes);
            tutti_free(memory);
        }
    }
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    static const size_t pairs[][2] = {
        { SIZE_MAX, 2 }, { 2, SIZE_MAX }, { SIZE_MAX, SIZE_MAX }, { SIZE_MAX / 2, 3 }, { SIZE_MAX, 1 }, { 1, SIZE_MAX - 62 },
        { (size_t)1 << 32, (size_t)1 << 32 }, { PTRDIFF_MAX, 1 }, { (size_t)PTRDIFF_MAX + 1, 1 },
    };
    size_t out;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(pairs); i++) {
        errno = 0;
        assert_null(tutti_alloc(pairs[i][0], pairs[i][1]));
        assert_int_equal(errno, ENOMEM);
    }
    out = 5;
    assert_false(tutti_size_mul(SIZE_MAX, 2, &out));
    assert_int_equal(out, 0);
    assert_true(tutti_size_mul(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(tutti_size_mul(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
    out = 5;
    assert_false(tutti_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 0);
    assert_true(tutti_size_add(SIZE_MAX, 0, &out));
    assert_true(out == SIZE_MAX);
}

static void a_copy_of_text_is_a_copy(void **state)
{
    static const char text[] = "na\xC3\xAFve";
    char *copy = tutti_copy_text(text), *empty = tutti_copy_text("");

    (void)state;
    assert_string_equal(copy, text);
    assert_ptr_not_equal(copy, text);
    assert_string_equal(empty, "");
    tutti_free(copy);
    tutti_free(empty);
}

/* Known answers of XXH3_64bits with seed 0, as other implementations publish them. */
static void hashes_are_xxh3(void **state)
{
    (void)state;
    assert_true(tutti_hash("", 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(tutti_hash("a", 1) == UINT64_C(0xE6C632B61E964E1F));
    assert_true(tutti_hash("abc", 3) == UINT64_C(0x78AF5F94892F3950));
}

static void the_cpu_level_agrees_with_the_compiler_s(void **state)
{
    const tutti_cpu best = tutti_cpu_best();

    (void)state;
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_SCALAR), "scalar");
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_AVX2), "avx2");
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_AVX512), "avx512");
    assert_string_equal(tutti_cpu_name((tutti_cpu)9), "unknown");
#if defined(__x86_64__)
    __builtin_cpu_init();
    {
        const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        assert_int_equal(best, avx512 ? TUTTI_CPU_AVX512 : avx2 ? TUTTI_CPU_AVX2 : TUTTI_CPU_SCALAR);
    }
#else
    assert_int_equal(best, TUTTI_CPU_SCALAR);
#endif
}

/* As its whole name, not as the beginning of another; the first one counts, and an empty value is one. */
static void a_variable_is_found_by_its_whole_name(void **state)
{
    char longer[] = "RANKS=8", none[] = "RANK", first[] = "RANK=3", second[] = "RANK=4", empty[] = "EMPTY=";
    char *const environment[] = { longer, none, first, second, empty, NULL };

    (void)state;
    assert_ptr_equal(tutti_variable(environment, "RANK"), first + 5);
    assert_string_equal(tutti_variable(environment, "RANKS"), "8");
    assert_string_equal(tutti_variable(environment, "EMPTY"), "");
    assert_null(tutti_variable(environment, "RAN"));
    assert_null(tutti_variable(NULL, "RANK"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variable_is_found_by_its_whole_name),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(a_copy_of_text_is_a_copy),
        cmocka_unit_test(hashes_are_xxh3),
        cmocka_unit_test(the_cpu_level_agrees_with_the_compiler_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
