/* Goal: no memory is an ordinary result here too. Method: tutti_alloc is wrapped at link time; in
   each rank the 1st, 2nd, 3rd ... allocation inside the call fails until the call succeeds. All
   ranks learn of it, the older checkpoint stays, nothing is left behind, and the address
   sanitizer sees what leaks. */
#include "saved.h"
#include "state/folder.h"

static _Thread_local size_t until_failure = SIZE_MAX; /* of this rank; a failure makes it SIZE_MAX again */

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return until_failure != SIZE_MAX && until_failure-- == 0 ? NULL : __real_tutti_alloc(count, size);
}

typedef struct failing { saving s; int rank; size_t at; bool reached; } failing;

static tutti_status save_and_fail(tutti_world *world, void *arg, tutti_error *err)
{
    failing *f = arg;
    tutti_status status;

    if (tutti_world_rank(world) == f->rank)
        until_failure = f->at;
    status = save_rank(world, &f->s, err);
    if (tutti_world_rank(world) == f->rank)
        f->reached = until_failure == SIZE_MAX;
    until_failure = SIZE_MAX;
    return status;
}

static void saving_without_memory_fails_on_every_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        bool reached = true;
        size_t failures = 0;
        for (size_t at = 0; reached; at++) {
            memory_files *m = memory_files_open(NULL);
            failing f = {
                .s = { .files = &m->rt, .dir = "a", .facts = "{\"seed\": 7}", .step = 20, .generation = 2, .keep = 1 },
                .rank = rank,
                .at = at
            };
            tutti_status status;

            assert_int_equal(save_plain(&m->rt, "a", 2, 10, 1, 1), TUTTI_OK);
            assert_int_equal(tutti_world_run("shm", 2, save_and_fail, &f, NULL), TUTTI_OK);
            reached = f.reached;
            status = f.s.status[rank];
            if (status == TUTTI_OK) { /* what failed was only the removal of something old */
                expect_whole(&m->rt, "a/step-00000020", 2, 2, 2);
            } else {
                char found[100];
                failures++;
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_true(strlen(f.s.err[rank].text) > 10);
                assert_int_equal(tutti_checkpoint_find(&m->rt, "a", found, sizeof found, NULL, 0, NULL), TUTTI_OK);
                expect_whole(&m->rt, found, 2, 2, strcmp(found, "a/step-00000010") == 0 ? 1 : 2);
                expect_whole(&m->rt, "a/step-00000010", 2, 2, 1);
            }
            assert_true((f.s.status[1 - rank] == TUTTI_OK) == (status == TUTTI_OK));
            memory_files_close(m);
        }
        assert_true(failures > 10);
    }
}

static tutti_status use(memory_files *m, tutti_error *err)
{
    tutti_checkpoint *c = NULL;
    tutti_status status;
    char found[100];
    holding h;

    hold(&h, 1, 2, true);
    status = tutti_checkpoint_find(&m->rt, "a", found, sizeof found, NULL, 0, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_open(&c, &m->rt, "a/step-00000020", err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_read(c, h.items, KINDS, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_verify(c, err);
    tutti_checkpoint_close(c);
    return status;
}

static void reading_without_memory_fails_without_falling_back(void **state)
{
    memory_files *m = memory_files_open(NULL);
    tutti_status status = TUTTI_ERR_MEMORY;
    size_t at;

    (void)state;
    assert_int_equal(save_plain(&m->rt, "a", 2, 10, 1, 2), TUTTI_OK);
    assert_int_equal(save_plain(&m->rt, "a", 2, 20, 2, 2), TUTTI_OK);
    for (at = 0; status != TUTTI_OK; at++) {
        tutti_error err = { 0 };
        until_failure = at;
        status = use(m, &err);
        until_failure = SIZE_MAX;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        assert_true(status == TUTTI_OK || strlen(err.text) > 10);
    }
    assert_true(at > 50);
    memory_files_close(m);
}

/* ---- weights in a file, or in a folder with an index ---- */

static tutti_status piece_of_values(void *with, const tutti_tensor_entry *e, uint64_t offset, void *to, size_t bytes,
                                    tutti_error *err)
{
    (void)with;
    (void)offset;
    (void)err;
    memset(to, e->name[0], bytes);
    return TUTTI_OK;
}

static tutti_status write_weights(memory_files *m, uint64_t most, tutti_error *err)
{
    tutti_tensors_target to = { .path = "w", .most = most };
    tutti_tensor_entry e[2] = {
        { .name = "a", .dtype = TUTTI_F32, .dims = 1, .dim = { 3 }, .data = "twelve bytes" },
        { .name = "b", .dtype = TUTTI_U8, .dims = 1, .dim = { 10 }, .copy = piece_of_values },
    };
    return tutti_tensors_write(&m->rt, &to, e, 2, err);
}

static void writing_weights_without_memory_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t most = 0; most < 2; most++) {
        tutti_status status = TUTTI_ERR_MEMORY;
        size_t at;
        for (at = 0; status != TUTTI_OK; at++) {
            memory_files *m = memory_files_open(NULL);
            tutti_error err = { 0 };
            until_failure = at;
            status = write_weights(m, most, &err);
            until_failure = SIZE_MAX;
            if (status != TUTTI_OK) {
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_true(strlen(err.text) > 10);
                assert_false(tutti_file_exists(&m->rt, "w"));
            }
            assert_int_equal(memory_files_count(m, "", ""), status == TUTTI_OK);
            memory_files_close(m);
        }
        assert_true(at > 10);
    }
}

static tutti_status read_weights(memory_files *m, tutti_error *err)
{
    tutti_tensor_file *f;
    bool hashed;
    tutti_status status;

    TUTTI_TRY(tutti_tensors_open(&f, &m->rt, "w", err));
    status = tutti_tensors_verify(f, &hashed, err);
    assert_true(status != TUTTI_OK || (hashed && tutti_safetensors_count(f) == 2));
    tutti_safetensors_close(f);
    return status;
}

/* A folder is no file for want of memory, and no file is one without hashes. */
static void reading_weights_without_memory_fails(void **state)
{
    (void)state;
    for (uint64_t most = 0; most < 2; most++) {
        memory_files *m = memory_files_open(NULL);
        tutti_status status = TUTTI_ERR_MEMORY;
        size_t at;
        assert_int_equal(write_weights(m, most, NULL), TUTTI_OK);
        for (at = 0; status != TUTTI_OK; at++) {
            tutti_error err = { 0 };
            until_failure = at;
            status = read_weights(m, &err);
            until_failure = SIZE_MAX;
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
            assert_true(status == TUTTI_OK || strlen(err.text) > 10);
        }
        assert_true(at > 10);
        memory_files_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_without_memory_fails_on_every_rank),
        cmocka_unit_test(reading_without_memory_fails_without_falling_back),
        cmocka_unit_test(writing_weights_without_memory_leaves_nothing),
        cmocka_unit_test(reading_weights_without_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
