/* Weights in one file or in a folder with an index (folder.h): what is written is what is read,
   also at every place where a file ends; a changed bit, a cut and a disk that fails or loses power
   never give other weights. Files are in memory, so every byte and every operation is tried. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "memory_files.h"
#include "tutti/tutti.h"
#include "state/folder.h"
#include "../../src/state/state_internal.h"

#define INDEX "to/" TUTTI_TENSORS_INDEX
enum { TENSORS = 5 };

static const uint8_t values[80] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3 };

/* 28, 6, 8, 0 and 13 bytes; one name needs escapes. */
static void all_kinds(tutti_tensor_entry e[TENSORS])
{
    const tutti_tensor_entry all[TENSORS] = {
        { .name = "layer.weight", .dtype = TUTTI_F32, .dims = 2, .dim = { 7, 1 }, .data = values },
        { .name = "layer.\"bias\"", .dtype = TUTTI_BF16, .dims = 1, .dim = { 3 }, .data = values + 28 },
        { .name = "step", .dtype = TUTTI_I64, .dims = 0, .data = values + 34 },
        { .name = "empty", .dtype = TUTTI_F32, .dims = 2, .dim = { 0, 3 }, .data = values },
        { .name = "table", .dtype = TUTTI_U8, .dims = 1, .dim = { 13 }, .data = values + 42 },
    };
    memcpy(e, all, sizeof all);
}

static tutti_status write_tensors(memory_files *m, uint64_t most, tutti_tensors_target *to, tutti_error *err)
{
    tutti_tensor_entry e[TENSORS];

    all_kinds(e);
    *to = (tutti_tensors_target){ .path = most % 2 == 0 ? "to" : "to//", .most = most }; /* as a shell completes it */
    return tutti_tensors_write(&m->rt, to, e, TENSORS, err);
}

/* Opens it and verifies all of it, values included, and compares it with what all_kinds has. */
static tutti_status read_tensors(memory_files *m, bool *hashed, tutti_error *err)
{
    tutti_tensor_entry e[TENSORS];
    tutti_tensor_file *f;
    tutti_status status;

    all_kinds(e);
    TUTTI_TRY(tutti_tensors_open(&f, &m->rt, "to", err));
    status = tutti_tensors_verify(f, hashed, err);
    if (status == TUTTI_OK)
        assert_int_equal(tutti_safetensors_count(f), TENSORS);
    for (int k = 0; k < TENSORS && status == TUTTI_OK; k++) {
        const tutti_tensor_entry *r = tutti_safetensors_find(f, e[k].name);
        uint8_t back[64];
        assert_non_null(r);
        assert_int_equal(r->dtype, e[k].dtype);
        assert_int_equal(r->dims, e[k].dims);
        assert_memory_equal(r->dim, e[k].dim, sizeof r->dim);
        assert_int_equal(tutti_safetensors_read(f, r, 0, back, (size_t)r->bytes, NULL), TUTTI_OK);
        assert_memory_equal(back, e[k].data, (size_t)r->bytes);
        for (uint64_t at = 0; at < r->bytes; at++) { /* and byte by byte */
            assert_int_equal(tutti_safetensors_read(f, r, at, back, 1, NULL), TUTTI_OK);
            assert_int_equal(back[0], ((const uint8_t *)e[k].data)[at]);
        }
        assert_int_equal(tutti_safetensors_read(f, r, r->bytes, back, 1, NULL), TUTTI_ERR_USAGE);
    }
    tutti_safetensors_close(f);
    return status;
}

static void every_division_is_read_back(void **state)
{
    /* 28, 6, 8, 0, 13: a file is full when another tensor would exceed it */
    static const struct { uint64_t most; size_t files; } cases[] = {
        { 0, 1 }, { 1, 4 }, { 13, 4 }, { 14, 3 }, { 20, 3 }, { 21, 3 }, { 27, 2 }, { 34, 2 }, { 42, 2 }, { 54, 2 },
        { 55, 1 }, { UINT64_MAX, 1 }
    };
    tutti_tensors_target to;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        memory_files *m = memory_files_open(NULL);
        bool hashed = false;
        assert_int_equal(write_tensors(m, cases[k].most, &to, NULL), TUTTI_OK);
        assert_int_equal(to.files, cases[k].files);
        assert_int_equal(to.bytes, 55);
        assert_int_equal(memory_files_count(m, "to", ""), cases[k].most == 0 ? 0 : cases[k].files + 1);
        assert_int_equal(memory_files_count(m, "", ""), 1);
        assert_int_equal(read_tensors(m, &hashed, NULL), TUTTI_OK);
        assert_true(hashed);
        memory_files_close(m);
    }
}

/* The text that other libraries read, with the hash of itself where they look at nothing. */
static void the_index_is_as_published(void **state)
{
    static const char wanted[] = "{\n"
                                 "  \"metadata\": {\n"
                                 "    \"total_size\": 55,\n"
                                 "    \"tutti_xxh3\": \"0000000000000000\"\n"
                                 "  },\n"
                                 "  \"weight_map\": {\n"
                                 "    \"empty\": \"model-00002-of-00003.safetensors\",\n"
                                 "    \"layer.\\\"bias\\\"\": \"model-00002-of-00003.safetensors\",\n"
                                 "    \"layer.weight\": \"model-00001-of-00003.safetensors\",\n"
                                 "    \"step\": \"model-00002-of-00003.safetensors\",\n"
                                 "    \"table\": \"model-00003-of-00003.safetensors\"\n"
                                 "  }\n"
                                 "}\n";
    memory_files *m = memory_files_open(NULL);
    tutti_tensors_target to;
    char hash[17], *digits;
    uint8_t *text;
    size_t bytes;

    (void)state;
    assert_int_equal(write_tensors(m, 20, &to, NULL), TUTTI_OK);
    text = memory_files_get(m, INDEX, &bytes);
    assert_int_equal(bytes, sizeof wanted - 1);
    digits = strstr(wanted, "0000000000000000");
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tutti_hash(wanted, bytes));
    assert_memory_equal(text + (digits - wanted), hash, 16);
    memcpy(text + (digits - wanted), digits, 16);
    assert_memory_equal(text, wanted, bytes);
    memory_files_close(m);
}

/* ---- what is damaged ---- */

static void expect_refused(memory_files *m, const char *path, size_t at)
{
    tutti_error err = { 0 };
    bool hashed;
    const tutti_status status = read_tensors(m, &hashed, &err);

    if (status == TUTTI_OK)
        fail_msg("'%s', changed at %zu, was taken", path, at);
    assert_int_equal(status, TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "'to"));
}

/* bits: of each byte that are tried. */
static void damage(memory_files *m, const char *path, int bits)
{
    size_t bytes;
    uint8_t *data = memory_files_get(m, path, &bytes), *sound = malloc(bytes);

    assert_non_null(sound);
    memcpy(sound, data, bytes);
    for (size_t at = 0; at < bytes; at++)
        for (int bit = 0; bit < bits; bit++) {
            data[at] ^= (uint8_t)(1 << (bits == 8 ? bit : (int)(at + (size_t)bit * 5) % 8));
            expect_refused(m, path, at);
            data[at] = sound[at];
        }
    for (size_t left = 0; left < bytes; left += left + 40 < bytes ? 7 : 1) {
        memory_files_put(m, path, sound, left);
        expect_refused(m, path, left);
    }
    memory_files_put(m, path, sound, bytes);
    free(sound);
}

static void every_changed_bit_of_a_folder_is_refused(void **state)
{
    memory_files *m = memory_files_open(NULL);
    tutti_tensors_target to;
    bool hashed = false;

    (void)state;
    assert_int_equal(write_tensors(m, 34, &to, NULL), TUTTI_OK);
    assert_int_equal(to.files, 2);
    damage(m, INDEX, 8);
    damage(m, "to/model-00001-of-00002.safetensors", 2);
    damage(m, "to/model-00002-of-00002.safetensors", 2);
    assert_int_equal(read_tensors(m, &hashed, NULL), TUTTI_OK);
    assert_true(hashed);
    memory_files_close(m);
}

static void every_changed_bit_of_a_file_is_refused(void **state)
{
    memory_files *m = memory_files_open(NULL);
    tutti_tensors_target to;

    (void)state;
    assert_int_equal(write_tensors(m, 0, &to, NULL), TUTTI_OK);
    damage(m, "to", 8);
    memory_files_close(m);
}

/* Who only opens it, as --init does, does not compare values. A changed index is refused there,
   too. Without a hash, as others write it, it must be true. */
static void an_index_that_was_changed_is_not_opened(void **state)
{
    static const char step[] = "\"step\": \"model-0000";
    memory_files *m = memory_files_open(NULL);
    tutti_tensor_file *f;
    tutti_tensors_target to;
    tutti_error err = { 0 };
    uint8_t *text;
    size_t bytes;

    (void)state;
    assert_int_equal(write_tensors(m, 20, &to, NULL), TUTTI_OK);
    text = memory_files_get(m, INDEX, &bytes);
    uint8_t *file = memmem(text, bytes, step, sizeof step - 1), *key = memmem(text, bytes, "tutti_xxh3", 10);
    assert_non_null(file);
    assert_non_null(key);
    file[sizeof step - 1] = '1';
    assert_int_equal(tutti_tensors_open(&f, &m->rt, "to", &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "does not have the hash that is written in it"));
    memcpy(key, "other_hash", 10);
    assert_int_equal(tutti_tensors_open(&f, &m->rt, "to", &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "'to/model-00002-of-00003.safetensors' has tensor 'step'"));
    file[sizeof step - 1] = '2';
    assert_int_equal(tutti_tensors_open(&f, &m->rt, "to", &err), TUTTI_OK);
    tutti_safetensors_close(f);
    memory_files_close(m);
}

/* Files of one folder and the index of another are each sound, and not one model. */
static void a_file_of_another_folder_is_refused(void **state)
{
    memory_files *m = memory_files_open(NULL);
    tutti_tensor_entry e[TENSORS];
    tutti_tensors_target to = { .path = "other", .most = 34 };
    tutti_error err = { 0 };
    uint8_t *data;
    size_t bytes;
    bool hashed;

    (void)state;
    all_kinds(e);
    e[0].name = "layer.heavier";
    assert_int_equal(tutti_tensors_write(&m->rt, &to, e, TENSORS, NULL), TUTTI_OK);
    assert_int_equal(write_tensors(m, 34, &to, NULL), TUTTI_OK);
    data = memory_files_get(m, "other/model-00001-of-00002.safetensors", &bytes);
    memory_files_put(m, "to/model-00001-of-00002.safetensors", data, bytes);
    assert_int_equal(read_tensors(m, &hashed, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "'layer.heavier'"));
    memory_files_close(m);
}

/* ---- a text with its hash in itself ---- */

static void a_text_knows_whether_it_was_changed(void **state)
{
    /* the tensor's name looks like the member, and is before it */
    static const char sound[] = "{\"tutti_xxh3\":{\"dtype\":\"F32\"},\"a\":\"\\\"tutti_xxh3\\\":\","
                                "\"m\":{\"tutti_xxh3\": \"0000000000000000\"}}";
    char text[sizeof sound];

    (void)state;
    strcpy(text, sound);
    tutti_state_seal(text, sizeof text - 1);
    assert_int_equal(memcmp(text + sizeof text - 1 - 19, "0000000000000000", 16) != 0, 1);
    assert_int_equal(tutti_state_seal_of(text, sizeof text - 1), TUTTI_SEAL_WHOLE);
    for (size_t at = 0; at < sizeof text - 1; at++) {
        char changed[sizeof text];
        strcpy(changed, text);
        changed[at] ^= 1;
        assert_int_not_equal(tutti_state_seal_of(changed, sizeof text - 1), TUTTI_SEAL_WHOLE);
    }
    assert_int_equal(tutti_state_seal_of(text, sizeof text - 1), TUTTI_SEAL_WHOLE); /* it is as it was */
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *cut = malloc(n + 1); /* exactly as long, so that a read past the end is seen */
        assert_non_null(cut);
        memcpy(cut, text, n);
        assert_int_not_equal(tutti_state_seal_of(cut, n), TUTTI_SEAL_WHOLE);
        free(cut);
    }
    strcpy(text, sound);
    assert_int_equal(tutti_state_seal_of(text, 30), TUTTI_SEAL_NONE);
    tutti_state_seal(text, 30);
    assert_string_equal(text, sound);
}

/* ---- what fails while it is written ---- */

typedef struct source { int calls, fail_at, change_at; } source;

static tutti_status from_source(void *with, const tutti_tensor_entry *e, uint64_t offset, void *to, size_t bytes,
                                tutti_error *err)
{
    source *s = with;

    (void)offset;
    memset(to, e->name[0], bytes);
    if (++s->calls == s->fail_at)
        return tutti_fail(err, TUTTI_ERR_IO, 0, "the source fails");
    if (s->calls == s->change_at)
        *(uint8_t *)to ^= 1;
    return TUTTI_OK;
}

static tutti_status write_from(memory_files *m, uint64_t most, source *s, tutti_error *err)
{
    tutti_tensors_target to = { .path = "to", .most = most };
    tutti_tensor_entry e[2] = {
        { .name = "a", .dtype = TUTTI_U8, .dims = 1, .dim = { 300000 }, .copy = from_source, .with = s },
        { .name = "b", .dtype = TUTTI_U8, .dims = 1, .dim = { 10 }, .copy = from_source, .with = s },
    };
    return tutti_tensors_write(&m->rt, &to, e, 2, err);
}

/* Three calls of the source a reading: two for a, one for b. */
static void a_source_that_fails_or_changes_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t most = 0; most < 2; most++) {
        for (int at = 1; at <= 6; at++) {
            memory_files *m = memory_files_open(NULL);
            tutti_error err = { 0 };
            assert_int_equal(write_from(m, most, &(source){ .fail_at = at }, &err), TUTTI_ERR_IO);
            assert_string_equal(err.text, "the source fails");
            assert_int_equal(memory_files_count(m, "", ""), 0);
            assert_int_equal(write_from(m, most, &(source){ .change_at = at }, &err), TUTTI_ERR_CORRUPT);
            assert_non_null(strstr(err.text, at % 3 == 0 ? "tensor 'b' changed" : "tensor 'a' changed"));
            assert_int_equal(memory_files_count(m, "", ""), 0);
            assert_int_equal(write_from(m, most, &(source){ 0 }, NULL), TUTTI_OK);
            memory_files_close(m);
        }
    }
}

static void what_is_there_stays(void **state)
{
    memory_files *m = memory_files_open(NULL);
    tutti_tensors_target to;
    tutti_error err = { 0 };
    size_t bytes;

    (void)state;
    memory_files_put(m, "to/mine", "x", 1);
    for (uint64_t most = 0; most < 2; most++) {
        assert_int_equal(write_tensors(m, most, &to, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "is there already"));
    }
    assert_non_null(memory_files_get(m, "to/mine", &bytes));
    assert_int_equal(tutti_file_remove(&m->rt, "to/mine", NULL), TUTTI_OK);
    assert_int_equal(tutti_file_remove(&m->rt, "to", NULL), TUTTI_OK);
    memory_files_put(m, "to.unfinished/mine", "x", 1); /* no call of ours has left this */
    assert_int_equal(write_tensors(m, 1, &to, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "to.unfinished"));
    assert_non_null(memory_files_get(m, "to.unfinished/mine", &bytes));
    memory_files_close(m);
}

/* Every operation fails, or the process is killed at it, and power is lost. The path has all of it
   or is not there, and the next call ends the work. */
static void a_disk_that_fails_leaves_all_or_nothing(void **state)
{
    static const memory_fault faults[] = { FAULT_STOP, FAULT_NO_SPACE, FAULT_IO, FAULT_SHORT };
    static const uint64_t sizes[] = { 0, 20 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(sizes) * TUTTI_LENGTH(faults) * 3; k++) {
        const uint64_t most = sizes[k % 2];
        const memory_fault fault = faults[k / 2 % 4];
        uint64_t at = 1;
        for (bool reached = true; reached; at++) {
            memory_files *m = memory_files_open(NULL);
            tutti_tensors_target to;
            bool hashed;
            m->fault = fault;
            m->fault_at = at;
            const tutti_status status = write_tensors(m, most, &to, NULL);
            reached = m->operations >= at;
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_IO);
            assert_true(status == TUTTI_OK || reached);
            if (fault != FAULT_STOP && status != TUTTI_OK)
                assert_int_equal(memory_files_count(m, "", "to.unf"), 0);
            memory_files_crash(m, k / 8 > 0, k / 8 > 1);
            if (status == TUTTI_OK) /* it was said to be on the disk */
                assert_int_equal(read_tensors(m, &hashed, NULL), TUTTI_OK);
            else if (tutti_file_exists(&m->rt, "to"))
                assert_int_equal(read_tensors(m, &hashed, NULL), TUTTI_OK);
            else
                assert_int_equal(write_tensors(m, most, &to, NULL), TUTTI_OK);
            memory_files_close(m);
        }
        assert_true(at > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_division_is_read_back),
        cmocka_unit_test(the_index_is_as_published),
        cmocka_unit_test(every_changed_bit_of_a_folder_is_refused),
        cmocka_unit_test(every_changed_bit_of_a_file_is_refused),
        cmocka_unit_test(an_index_that_was_changed_is_not_opened),
        cmocka_unit_test(a_file_of_another_folder_is_refused),
        cmocka_unit_test(a_text_knows_whether_it_was_changed),
        cmocka_unit_test(a_source_that_fails_or_changes_leaves_nothing),
        cmocka_unit_test(what_is_there_stays),
        cmocka_unit_test(a_disk_that_fails_leaves_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
