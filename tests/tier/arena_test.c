/* Goal: what is taken is counted to the byte, under its name; a limit holds, and the refusal
   states what is needed, what there is and which names have it. Method: sizes, names and
   alignments; threads that take and give at once. */
#include "disk.h"
#include "tier/tier.h"

static void arena_memory_is_counted_by_name(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    tutti_arena *a;
    void *x, *y, *z;

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "device memory", "raise --device-memory", 1000, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "gradients", 300, 0, &x, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "gradients", 100, 0, &y, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "activations", 600, 4096, &z, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_count(a, "gradients").now, 400);
    assert_int_equal(tutti_arena_count(a, NULL).now, 1000);
    assert_int_equal(tutti_arena_count(a, NULL).limit, 1000);
    assert_int_equal(tutti_arena_count(a, "nobody").peak, 0);
    tutti_arena_give(a, y);
    tutti_arena_give(a, z);
    assert_int_equal(tutti_arena_charge(a, "gradients", 50, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_count(a, "gradients").now, 350);
    assert_int_equal(tutti_arena_count(a, "gradients").peak, 400);
    assert_int_equal(tutti_arena_count(a, NULL).peak, 1000);
    assert_int_equal(tutti_arena_count(a, "activations").now, 0);
    tutti_arena_refund(a, "gradients", 50);
    tutti_arena_give(a, x);
    tutti_arena_give(a, NULL);
    assert_int_equal(tutti_arena_count(a, NULL).now, 0);
    tutti_arena_close(a);
    tutti_arena_close(NULL);
    tutti_runtime_close(rt);
}

static void memory_is_zero_and_aligned_and_all_of_it_can_be_used(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    tutti_arena *a;

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "host memory", "", TUTTI_UNBOUNDED, NULL), TUTTI_OK);
    for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2)
        for (size_t bytes = 0; bytes < 9000; bytes = 3 * bytes + 1) {
            unsigned char *m;
            assert_int_equal(tutti_arena_take(a, "x", bytes, alignment, (void **)&m, NULL), TUTTI_OK);
            assert_int_equal((uintptr_t)m % (alignment < 64 ? 64 : alignment), 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(m[i], 0);
            memset(m, 0xAA, bytes);
            tutti_arena_give(a, m);
        }
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

static void memory_error_lists_need_free_bytes_and_largest_users(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    static const char *const names[] = { "parameters at work", "gradients", "activations", "staging", "small", "less" };
    static const uint64_t bytes[] = { 10, 400, 30, 400, 3, 2 };
    tutti_error err;
    tutti_arena *a;
    void *x;

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "device memory", "raise --device-memory", 1000, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "all", 1001, 0, &x, &err), TUTTI_ERR_MEMORY);
    assert_null(x);
    assert_string_equal(err.text, "device memory: 'all' needs 1001 bytes, and 1000 of 1000 are free; "
                                  "raise --device-memory to 1001 at least");
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        assert_int_equal(tutti_arena_charge(a, names[k], bytes[k], NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "gradients", 156, 0, &x, &err), TUTTI_ERR_MEMORY);
    assert_null(x);
    assert_string_equal(err.text,
                        "device memory: 'gradients' needs 156 bytes, and 155 of 1000 are free: 'staging' 400, "
                        "'gradients' 400, 'activations' 30, 'parameters at work' 10 and others 5; "
                        "raise --device-memory to 1001 at least");
    assert_int_equal(tutti_arena_count(a, NULL).now, 845);
    assert_int_equal(tutti_arena_charge(a, "gradients", UINT64_MAX, &err), TUTTI_ERR_MEMORY);
    assert_int_equal(tutti_arena_take(a, "gradients", 155, 0, &x, NULL), TUTTI_OK);
    tutti_arena_give(a, x);
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        tutti_arena_refund(a, names[k], bytes[k]);
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

static void several_charges_are_made_all_or_none(void **state)
{
    static const tutti_arena_part parts[] = { { "x", 60 }, { "optim.exp_avg", 50 }, { "x", 5 } };
    tutti_runtime *rt = runtime_of_test();
    tutti_error err;
    tutti_arena *a;

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "device memory", "raise --device-memory", 120, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_charge(a, "activations", 10, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_charge_all(a, parts, 3, &err), TUTTI_ERR_MEMORY);
    assert_string_equal(err.text, "device memory: 115 bytes are needed, and 110 of 120 are free: 'x' 65, "
                                  "'optim.exp_avg' 50, 'activations' 10; raise --device-memory to 125 at least");
    assert_int_equal(tutti_arena_count(a, NULL).now, 10);
    assert_int_equal(tutti_arena_count(a, NULL).peak, 10);
    assert_int_equal(tutti_arena_count(a, "x").peak, 0);
    assert_int_equal(tutti_arena_charge_all(a, parts, 2, &err), TUTTI_OK);
    assert_int_equal(tutti_arena_count(a, NULL).peak, 120);
    assert_int_equal(tutti_arena_count(a, "x").now, 60);
    tutti_arena_refund(a, "activations", 10);
    for (int k = 0; k < 2; k++)
        tutti_arena_refund(a, parts[k].name, parts[k].bytes);
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

static tutti_status take_and_give(void *arg, tutti_error *err)
{
    tutti_arena *a = arg;

    for (int k = 0; k < 2000; k++) {
        void *x = NULL;
        if (tutti_arena_take(a, k % 2 == 0 ? "even" : "odd", 100, 0, &x, err) != TUTTI_OK)
            continue; /* others have it */
        tutti_arena_give(a, x);
    }
    return TUTTI_OK;
}

static void threads_never_have_more_than_the_limit(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    tutti_thread *thread[4];
    tutti_arena *a;

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "device memory", "raise it", 250, NULL), TUTTI_OK);
    for (int k = 0; k < 4; k++)
        assert_int_equal(tutti_thread_open(&thread[k], rt, "taker", take_and_give, a, NULL), TUTTI_OK);
    for (int k = 0; k < 4; k++)
        assert_int_equal(tutti_thread_join(thread[k], NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_count(a, NULL).now, 0);
    assert_true(tutti_arena_count(a, NULL).peak <= 200);
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_counted_by_name),
        cmocka_unit_test(memory_is_zero_and_aligned_and_all_of_it_can_be_used),
        cmocka_unit_test(memory_error_lists_need_free_bytes_and_largest_users),
        cmocka_unit_test(several_charges_are_made_all_or_none),
        cmocka_unit_test(threads_never_have_more_than_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
