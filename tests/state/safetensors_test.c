/* The file format: what is written is what is read, byte for byte as published; what is not the
   format is refused in a sentence, and a failing disk leaves the earlier file. The attacks are
   made here rather than stored: the code shows what is wrong with each. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "memory_files.h"
#include "tutti/tutti.h"
#include "state/parse.h"

typedef struct fixture { memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->m = memory_files_open(NULL);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    memory_files_close(f->m);
    free(f);
    return 0;
}

/* ---- writing and reading ---- */

static const char *const metadata[] = { "format", "pt", "quote", "\"\\\n", NULL };

static const uint8_t bytes_of_all[64] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                          13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24 };

/* One of each type; a scalar, an empty one, names that need escapes. */
static size_t all_kinds(tutti_tensor_entry *e)
{
    const tutti_tensor_entry all[] = {
        { .name = "u8", .dtype = TUTTI_U8, .dims = 1, .dim = { 3 }, .data = bytes_of_all },
        { .name = "i8", .dtype = TUTTI_I8, .dims = 1, .dim = { 5 }, .data = bytes_of_all },
        { .name = "scalar", .dtype = TUTTI_F32, .dims = 0, .data = bytes_of_all },
        { .name = "empty", .dtype = TUTTI_F32, .dims = 3, .dim = { 2, 0, 5 } },
        { .name = "f64", .dtype = TUTTI_F64, .dims = 2, .dim = { 2, 2 }, .data = bytes_of_all },
        { .name = "i64", .dtype = TUTTI_I64, .dims = 1, .dim = { 1 }, .data = bytes_of_all },
        { .name = "i32", .dtype = TUTTI_I32, .dims = 1, .dim = { 5 }, .data = bytes_of_all },
        { .name = "bf16", .dtype = TUTTI_BF16, .dims = 1, .dim = { 3 }, .data = bytes_of_all },
        { .name = "f16 \"\xc3\xa9\n",
          .dtype = TUTTI_F16,
          .dims = 8,
          .dim = { 1, 1, 1, 1, 1, 1, 1, 7 },
          .data = bytes_of_all },
    };
    memcpy(e, all, sizeof all);
    return TUTTI_LENGTH(all);
}

static void every_kind_of_tensor_is_read_back(void **state)
{
    fixture *f = *state;
    tutti_tensor_entry e[9];
    const size_t n = all_kinds(e);
    tutti_tensor_file *file;
    uint64_t hash, header = 0;
    uint8_t *data;
    size_t bytes;

    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", e, n, metadata, &hash, NULL), TUTTI_OK);
    data = memory_files_get(f->m, "a", &bytes);
    assert_true(hash == tutti_hash(data, bytes));
    for (int k = 7; k >= 0; k--)
        header = header << 8 | data[k];
    assert_int_equal((8 + header) % 64, 0);

    assert_int_equal(tutti_safetensors_open(&file, &f->m->rt, "a", NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_count(file), n);
    assert_string_equal(tutti_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(tutti_safetensors_metadata(file, "quote"), "\"\\\n");
    assert_null(tutti_safetensors_metadata(file, "absent"));
    assert_null(tutti_safetensors_find(file, "absent"));
    assert_null(tutti_safetensors_entry(file, n));
    for (size_t k = 0; k < n; k++) {
        const tutti_tensor_entry *r = tutti_safetensors_find(file, e[k].name);
        uint8_t back[64];
        assert_non_null(r);
        assert_int_equal(r->dtype, e[k].dtype);
        assert_int_equal(r->dims, e[k].dims);
        assert_memory_equal(r->dim, e[k].dim, sizeof r->dim);
        assert_int_equal(r->begin, e[k].begin);
        assert_int_equal(r->bytes, e[k].bytes);
        assert_int_equal(r->begin % tutti_dtype_bytes(r->dtype), 0);
        assert_null(r->data);
        assert_int_equal(tutti_safetensors_read(file, r, 0, back, (size_t)r->bytes, NULL), TUTTI_OK);
        assert_memory_equal(back, bytes_of_all, (size_t)r->bytes);
        if (r->bytes > 2) {
            assert_int_equal(tutti_safetensors_read(file, r, 1, back, 2, NULL), TUTTI_OK);
            assert_memory_equal(back, bytes_of_all + 1, 2);
        }
        if (k > 0)
            assert_true(strcmp(tutti_safetensors_entry(file, k - 1)->name, tutti_safetensors_entry(file, k)->name) < 0);
    }
    tutti_safetensors_close(file);
}

static void the_bytes_are_those_of_the_published_format(void **state)
{
    fixture *f = *state;
    static const float w[2] = { 1.0f, -2.0f };
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"0.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}";
    tutti_tensor_entry e[] = {
        { .name = "b", .dtype = TUTTI_U8, .dims = 1, .dim = { 1 }, .data = "x" },
        { .name = "0.weight", .dtype = TUTTI_F32, .dims = 2, .dim = { 2, 1 }, .data = w },
    };
    uint8_t *data;
    size_t bytes;

    assert_int_equal(
        tutti_safetensors_write(&f->m->rt, "a", e, 2, (const char *const[]){ "format", "pt", NULL }, NULL, NULL),
        TUTTI_OK);
    data = memory_files_get(f->m, "a", &bytes);
    assert_int_equal(bytes, 192 + 9);
    assert_memory_equal(data, ((uint8_t[]){ 184, 0, 0, 0, 0, 0, 0, 0 }), 8);
    assert_memory_equal(data + 8, header, sizeof header - 1);
    for (size_t k = 8 + sizeof header - 1; k < 192; k++)
        assert_int_equal(data[k], ' ');
    assert_memory_equal(data + 192, ((uint8_t[]){ 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 'x' }), 9);
    assert_string_equal(e[0].name, "b"); /* the caller's order stays */
    assert_int_equal(e[0].begin, 8);
}

static void the_order_of_the_entries_does_not_change_the_file(void **state)
{
    fixture *f = *state;
    tutti_tensor_entry e[9], swapped[9];
    const size_t n = all_kinds(e);
    uint64_t one, other;

    for (size_t k = 0; k < n; k++)
        swapped[k] = e[(k + 3) % n];
    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", e, n, metadata, &one, NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", swapped, n, metadata, &other, NULL), TUTTI_OK);
    assert_true(one == other);
}

static void a_file_without_tensors_is_valid(void **state)
{
    fixture *f = *state;
    tutti_tensor_file *file;

    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", NULL, 0, NULL, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_open(&file, &f->m->rt, "a", NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_count(file), 0);
    assert_null(tutti_safetensors_find(file, "x"));
    tutti_safetensors_close(file);
    tutti_safetensors_close(NULL);
}

static void tensors_that_cannot_be_stored_are_rejected(void **state)
{
    fixture *f = *state;
    char long_name[1026];
    const struct { tutti_tensor_entry e[2]; size_t n; const char *const *meta; const char *text;
    } cases[] = {
        { { { .name = "x", .dtype = TUTTI_U8, .data = "" }, { .name = "x", .dtype = TUTTI_F32, .data = bytes_of_all } },
          2,
          NULL,
          "cannot write 'a': two tensors are named 'x'" },
        { { { .name = "__metadata__", .data = bytes_of_all } },
          1,
          NULL,
          "cannot write 'a': '__metadata__' is no name for a tensor (UTF-8, at most 1024 bytes, not __metadata__)" },
        { { { .name = "\xc3(", .data = bytes_of_all } },
          1,
          NULL,
          "cannot write 'a': '(not UTF-8)' is no name for a tensor (UTF-8, at most 1024 bytes, not __metadata__)" },
        { { { .name = "x", .dims = 9, .data = bytes_of_all } },
          1,
          NULL,
          "cannot write 'a': tensor 'x' has 9 dimensions; 0 to 8 are possible" },
        { { { .name = "x", .dims = 2, .dim = { UINT64_C(1) << 40, UINT64_C(1) << 40 }, .data = bytes_of_all } },
          1,
          NULL,
          "cannot write 'a': tensor 'x' is larger than a file can be" },
        { { { .name = "x", .dims = 1, .dim = { 4 } } },
          1,
          NULL,
          "cannot write 'a': tensor 'x' has 16 bytes and no data" },
        { { { .name = "x", .data = bytes_of_all } },
          1,
          (const char *const[]){ "k", "v", "k", "w", NULL },
          "cannot write 'a': metadata are pairs of UTF-8 texts with different keys; pair 2 is not" },
        { { { .name = "x", .data = bytes_of_all } },
          1,
          (const char *const[]){ "k", "\xff", NULL },
          "cannot write 'a': metadata are pairs of UTF-8 texts with different keys; pair 1 is not" },
        { { { .name = long_name, .data = bytes_of_all } },
          1,
          NULL,
          "cannot write 'a': 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' is no name for a tensor "
          "(UTF-8, at most 1024 bytes, "
          "not __metadata__)" },
    };

    memset(long_name, 'n', 1025);
    long_name[1025] = '\0';
    memory_files_put(f->m, "a", "before", 6);
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_tensor_entry e[2] = { cases[k].e[0], cases[k].e[1] };
        tutti_error err;
        uint64_t hash = 1;
        size_t bytes;
        assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", e, cases[k].n, cases[k].meta, &hash, &err),
                         TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].text);
        assert_int_equal(hash, 0);
        assert_memory_equal(memory_files_get(f->m, "a", &bytes), "before", 6);
        assert_int_equal(memory_files_count(f->m, "", ""), 1);
    }
}

/* Fault number k for every k: an error and the earlier file whole, or success and the new one; no
   part file is left, except by a kill. */
static void a_failing_disk_leaves_the_earlier_file(void **state)
{
    fixture *f = *state;
    tutti_tensor_entry e[9];
    const size_t n = all_kinds(e);

    for (memory_fault fault = FAULT_STOP; fault <= FAULT_SHORT; fault++) {
        tutti_status status = TUTTI_ERR_IO;
        uint64_t k;
        bool ended = false;
        for (k = 1; !ended; k++) {
            tutti_error err = { 0 };
            size_t bytes, part_bytes;
            bool part;
            memory_files_close(f->m);
            f->m = memory_files_open(NULL);
            memory_files_put(f->m, "a", "before", 6);
            memory_files_put(f->m, "a.part", "left by a crash", 15);
            f->m->fault = fault;
            f->m->fault_at = k;
            status = tutti_safetensors_write(&f->m->rt, "a", e, n, metadata, NULL, &err);
            ended = f->m->operations < k;
            part = memory_files_get(f->m, "a.part", &part_bytes) != NULL;
            if (fault == FAULT_STOP)
                memory_files_crash(f->m, true, false); /* renamed without a sync of the contents would show here */
            memory_files_get(f->m, "a", &bytes);
            if (status != TUTTI_OK) {
                assert_int_equal(status, TUTTI_ERR_IO);
                assert_int_equal(err.cause, fault == FAULT_NO_SPACE ? ENOSPC : EIO);
                assert_int_equal(bytes, 6);
            } else {
                assert_true(bytes > 64);
            }
            assert_true(fault == FAULT_STOP || !part || k == 1); /* number 1 is the removal of the old part */
        }
        assert_int_equal(status, TUTTI_OK);
        assert_true(k > 10);
    }
}

/* ---- attacks ---- */

/* A file of this header and `data` bytes of data, through parse and through open. */
static tutti_status take(fixture *f, const char *header, size_t data, tutti_error *err)
{
    const size_t n = strlen(header);
    uint8_t *file = calloc(1, 8 + n + data);
    tutti_tensor_file *t;
    tutti_error opened = { 0 };
    tutti_status status, other;

    for (int k = 0; k < 8; k++)
        file[k] = (uint8_t)(n >> 8 * k);
    memcpy(file + 8, header, n);
    status = tutti_safetensors_parse(&t, "a", file, 8 + n, 8 + n + data, err);
    assert_true((t != NULL) == (status == TUTTI_OK));
    tutti_safetensors_close(t);
    memory_files_put(f->m, "a", file, 8 + n + data);
    other = tutti_safetensors_open(&t, &f->m->rt, "a", &opened);
    assert_int_equal(status, other);
    if (status != TUTTI_OK)
        assert_string_equal(err->text, opened.text);
    tutti_safetensors_close(t);
    free(file);
    return status;
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void inconsistent_headers_are_rejected(void **state)
{
    static const struct { const char *header; size_t data; const char *text;
    } cases[] = {
        { "[]", 0, "'a' has a header that does not begin with '{'; the file is damaged or not a safetensors file" },
        { "", 0, "'a' has a header that does not begin with '{'; the file is damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[1]", 0, 4), 4,
          "header of 'a' is not valid JSON: '}' expected near end of file (line 1, byte 53)" },
        { "{\"x\":" T("F32", "[1]", 0, 4) "}{}", 4,
          "header of 'a' is not valid JSON: end of file expected near '{' (line 1, byte 55)" },
        { "{\"x\":" T("F32", "[1]", 0, 4) ",\"x\":" T("F32", "[1]", 0, 4) "}", 4,
          "header of 'a' is not valid JSON: duplicate object key near '\"x\"' (line 1, byte 57)" },
        { "{\"x\":" T("F32", "[2]", 0, 8) ",\"y\":" T("F32", "[1]", 4, 8) "}", 8,
          "'a', tensor 'y': begins at 4 of the data, but the tensor before it ends at 8 (they overlap); the file is "
          "damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[1]", 0, 4) ",\"y\":" T("F32", "[1]", 8, 12) "}", 12,
          "'a', tensor 'y': begins at 8 of the data, but the tensor before it ends at 4 (a hole); the file is damaged "
          "or not a safetensors file" },
        { "{\"x\":" T("F32", "[1]", 4, 8) "}", 8,
          "'a', tensor 'x': begins at 4 of the data, but the tensor before it ends at 0 (a hole); the file is damaged "
          "or not a safetensors file" },
        { "{\"x\":" T("F32", "[1]", 0, 4) "}", 5,
          "'a' has 5 bytes of data, but its tensors end at 4; bytes were added, or its header is damaged" },
        { "{\"x\":" T("F32", "[1]", 0, 4) "}", 3,
          "'a', tensor 'x': range [0, 4) does not lie in the 3 bytes of data; the file was cut short or its header is "
          "damaged" },
        { "{\"x\":" T("F32", "[1]", 4, 0) "}", 4,
          "'a', tensor 'x': range [4, 0) does not lie in the 4 bytes of data; the file was cut short or its header is "
          "damaged" },
        { "{\"x\":" T("F32", "[2]", 0, 4) "}", 4,
          "'a', tensor 'x': range [0, 4) has 4 bytes, shape and dtype ask for 8; the file is damaged or not a "
          "safetensors file" },
        { "{\"x\":" T("F32", "[4294967296,4294967296,4]", 0, 4) "}", 4,
          "'a', tensor 'x': the shape's product overflows 64 bits at dimension 2 (4294967296); the file is damaged or "
          "not a safetensors file" },
        { "{\"x\":" T("F32", "[9223372036854775808]", 0, 4) "}", 4,
          "header of 'a' is not valid JSON: too big integer near '9223372036854775808' "
          "(line 1, byte 48)" },
        { "{\"x\":" T("F32", "[9223372036854775807]", 0, 9223372036854775807) "}", 4,
          "'a', tensor 'x': the shape's product overflows 64 bits at dimension 1 (9223372036854775807); the file is "
          "damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[-1]", 0, 4) "}", 4,
          "'a', tensor 'x': dimension 1 is no whole number from 0 up; the file is damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[1.0]", 0, 4) "}", 4,
          "'a', tensor 'x': dimension 1 is no whole number from 0 up; the file is damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "'a', tensor 'x': 9 dimensions; at most 8 are read" },
        { "{\"x\":" T("F32", "{}", 0, 4) "}", 4,
          "'a', tensor 'x': no shape; the file is damaged or not a safetensors file" },
        { "{\"x\":" T("F32", "[1]", -4, 0) "}", 4,
          "'a', tensor 'x': data_offsets are not two whole numbers from 0 up; the file is damaged or not a "
          "safetensors file" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
          "'a', tensor 'x': data_offsets are not two whole numbers from 0 up; the file is damaged or not a safetensors "
          "file" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
          "'a', tensor 'x': 4 members where dtype, shape and data_offsets are all the format has; the file is damaged "
          "or not a safetensors file" },
        { "{\"x\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
          "'a', tensor 'x': no dtype; the file is damaged or not a safetensors file" },
        { "{\"x\":" T("F8_E4M3", "[4]", 0, 4) "}", 4,
          "'a', tensor 'x': dtype 'F8_E4M3' is not read (F64, F32, F16, BF16, I64, I32, U8, I8 are); convert the "
          "file" },
        { "{\"x\":" T("F4", "[8]", 0, 4) "}", 4,
          "'a', tensor 'x': dtype 'F4' is not read (F64, F32, F16, BF16, I64, I32, U8, I8 are); convert the file" },
        { "{\"x\":7}", 0,
          "'a', tensor 'x': no object with dtype, shape and data_offsets; the file is damaged or not a safetensors "
          "file" },
        { "{\"__metadata__\":[]}", 0,
          "'a' has __metadata__ that is no object; the file is damaged or not a safetensors file" },
        { "{\"__metadata__\":{\"k\":1}}", 0,
          "'a' has metadata 'k' that is no text; the file is damaged or not a safetensors file" },
        { "{\"x\\u0000y\":" T("F32", "[1]", 0, 4) "}", 4,
          "header of 'a' is not valid JSON: NUL byte in object key not supported near '\"x\\u0000y\"' (line 1, "
          "byte 11)" },
        { "{\"\xc3(\":" T("F32", "[1]", 0, 4) "}", 4,
          "header of 'a' is not valid JSON: unable to decode byte 0xc3 near '\"' (line 1, byte 2)" },
        { "{\"esc\\u001b[2J\":7}", 0,
          "'a', tensor 'esc?[2J': no object with dtype, shape and data_offsets; the file is damaged or not a "
          "safetensors file" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { 0 };
        assert_int_equal(take(*state, cases[k].header, cases[k].data, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
    }
}

static void unusual_but_valid_headers_are_accepted(void **state)
{
    tutti_error err;

    assert_int_equal(take(*state, "{}", 0, &err), TUTTI_OK);
    assert_int_equal(take(*state, "{}      \n", 0, &err), TUTTI_OK);
    assert_int_equal(take(*state, "{\"__metadata__\":{}}", 0, &err), TUTTI_OK);
    assert_int_equal(take(*state, "{\"\":" T("F32", "[]", 0, 4) "}", 4, &err), TUTTI_OK);
    assert_int_equal(take(*state, "{\"b\":" T("F32", "[1]", 4, 8) ",\"a\":" T("F32", "[1]", 0, 4) "}", 8, &err),
                     TUTTI_OK);
    assert_int_equal(
        take(*state,
             "{\"z\":" T("F32", "[0]", 4, 4) ",\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("U8", "[1,0]", 0, 0) "}", 4,
             &err),
        TUTTI_OK);
    assert_int_equal(take(*state, "{\"a\":" T("F32", "[0,9223372036854775807,9223372036854775807]", 0, 0) "}", 0, &err),
                     TUTTI_OK);
}

static void header_depth_and_name_length_are_limited(void **state)
{
    char header[3000] = "{\"x\":";
    tutti_error err;

    for (int k = 0; k < 40; k++)
        strcat(header, "[");
    for (int k = 0; k < 40; k++)
        strcat(header, "]");
    strcat(header, "}");
    assert_int_equal(take(*state, header, 0, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "header of 'a' is nested deeper than 32 levels (byte 44); nothing we write is");
    memset(header + 2, 'n', 1025);
    strcpy(header + 2 + 1025, "\":" T("F32", "[0]", 0, 0) "}");
    assert_int_equal(take(*state, header, 0, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "'a', tensor 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...': the "
                                  "name has 1025 bytes; at most 1024 are "
                                  "read");
    memmove(header + 2, header + 3, strlen(header + 3) + 1);
    assert_int_equal(take(*state, header, 0, &err), TUTTI_OK);
}

static void header_lengths_are_compared_with_the_file_first(void **state)
{
    static const struct { uint8_t head[8]; size_t have; uint64_t file; const char *text;
    } cases[] = {
        { { 0 },
          7,
          7,
          "'a' has 7 bytes, fewer than the 8 that give a safetensors file's header length; it was cut short" },
        { { 0, 0, 0, 0, 0, 0, 0, 0x80 },
          8,
          8,
          "'a' claims a header of 9223372036854775808 bytes; at most 16777216 are read; the file is damaged or not a "
          "safetensors file" },
        { { 255, 255, 255, 255, 255, 255, 255, 255 },
          8,
          UINT64_MAX,
          "'a' claims a header of 18446744073709551615 bytes; at most 16777216 are read; the "
          "file is damaged or not a safetensors file" },
        { { 9 }, 8, 16, "'a' claims a header of 9 bytes, but only 8 follow; it was cut short" },
        { { 9 }, 8, 17, "'a': 0 of the header's 9 bytes are there; it was cut short" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_tensor_file *t;
        tutti_error err;
        assert_int_equal(tutti_safetensors_parse(&t, "a", cases[k].head, cases[k].have, cases[k].file, &err),
                         TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
        assert_null(t);
    }
}

static void every_truncation_of_a_file_is_refused(void **state)
{
    fixture *f = *state;
    tutti_tensor_entry e[9];
    const size_t n = all_kinds(e);
    tutti_tensor_file *t;
    uint8_t *data;
    size_t bytes;

    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", e, n, metadata, NULL, NULL), TUTTI_OK);
    data = memory_files_get(f->m, "a", &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        memory_files_put(f->m, "b", data, cut);
        assert_int_equal(tutti_safetensors_open(&t, &f->m->rt, "b", NULL), TUTTI_ERR_CORRUPT);
    }
}

static void reading_outside_a_tensor_is_refused(void **state)
{
    fixture *f = *state;
    tutti_tensor_entry e = { .name = "x", .dtype = TUTTI_F32, .dims = 1, .dim = { 2 }, .data = bytes_of_all };
    tutti_tensor_file *t;
    tutti_error err;
    uint8_t to[16], *data;
    size_t bytes;

    assert_int_equal(tutti_safetensors_write(&f->m->rt, "a", &e, 1, NULL, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_open(&t, &f->m->rt, "a", NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_read(t, tutti_safetensors_entry(t, 0), 4, to, 5, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "'a', tensor 'x': bytes [4, 4 + 5) were asked for, it has 8");
    assert_int_equal(tutti_safetensors_read(t, tutti_safetensors_entry(t, 0), UINT64_MAX, to, 5, &err),
                     TUTTI_ERR_USAGE);
    tutti_safetensors_close(t);
    data = memory_files_get(f->m, "a", &bytes);
    assert_int_equal(tutti_safetensors_parse(&t, "a", data, bytes - 8, bytes, NULL), TUTTI_OK);
    assert_int_equal(tutti_safetensors_read(t, tutti_safetensors_entry(t, 0), 0, to, 4, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "'a' was parsed from memory; there is no file to read tensors from");
    tutti_safetensors_close(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_tensor_is_read_back),
        TEST(the_bytes_are_those_of_the_published_format),
        TEST(the_order_of_the_entries_does_not_change_the_file),
        TEST(a_file_without_tensors_is_valid),
        TEST(tensors_that_cannot_be_stored_are_rejected),
        TEST(a_failing_disk_leaves_the_earlier_file),
        TEST(inconsistent_headers_are_rejected),
        TEST(unusual_but_valid_headers_are_accepted),
        TEST(header_depth_and_name_length_are_limited),
        TEST(header_lengths_are_compared_with_the_file_first),
        TEST(every_truncation_of_a_file_is_refused),
        TEST(reading_outside_a_tensor_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
