/* file_test.c: files, on a real directory and on a table that cuts every operation short,
   interrupts it and fails the k-th. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "runtime/files.h"
#include "tutti/base.h"

/* ---- a runtime of files that cannot be trusted: every call goes to
   the posix one, in small bites ---- */
typedef struct faults {
    tutti_runtime *below;
    size_t bite;                 /* most bytes of one read or write */
    int interrupts;              /* every n-th call returns EINTR first; 0: never */
    int fail_at, cause;          /* the k-th call from now on fails; 0: none */
    int calls, opened, closed;
    bool stuck;                  /* writes take nothing */
} faults;

static int fault(faults *f)
{
    f->calls++;
    if (f->fail_at != 0 && f->calls == f->fail_at)
        return f->cause;
    return f->interrupts != 0 && f->calls % f->interrupts == 0 ? EINTR : 0;
}

static int faulty_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    faults *f = self;
    int cause = fault(f);
    if (cause == 0)
        cause = f->below->ops->file_open(f->below->self, path, mode, fd);
    f->opened += cause == 0;
    return cause;
}

static int faulty_size(void *self, int fd, uint64_t *bytes)
{
    faults *f = self;
    const int cause = f->fail_at != 0 ? fault(f) : 0;
    return cause != 0 ? cause : f->below->ops->file_size(f->below->self, fd, bytes);
}

static int faulty_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    faults *f = self;
    const int cause = fault(f);
    return cause != 0
               ? cause
               : f->below->ops->file_read(f->below->self, fd, offset, to, bytes < f->bite ? bytes : f->bite, done);
}

static int faulty_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    faults *f = self;
    const int cause = fault(f);
    *done = 0;
    return cause != 0 || f->stuck
               ? cause
               : f->below->ops->file_write(f->below->self, fd, from, bytes < f->bite ? bytes : f->bite, done);
}

static int faulty_reserve(void *self, int fd, uint64_t bytes)
{
    faults *f = self;
    const int cause = fault(f);
    return cause != 0 ? cause : f->below->ops->file_reserve(f->below->self, fd, bytes);
}

static int faulty_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    faults *f = self;
    const int cause = fault(f);
    *done = 0;
    return cause != 0 || f->stuck ? cause
                                  : f->below->ops->file_write_at(f->below->self, fd, offset, from,
                                                                 bytes < f->bite ? bytes : f->bite, done);
}

static int faulty_sync(void *self, int fd)
{
    faults *f = self;
    const int cause = fault(f);
    return cause != 0 ? cause : f->below->ops->file_sync(f->below->self, fd);
}

static int faulty_close(void *self, int fd)
{
    faults *f = self;
    int cause;
    f->closed++;
    f->calls++;
    cause = f->below->ops->file_close(f->below->self, fd);
    return f->fail_at != 0 && f->calls == f->fail_at ? f->cause : cause;
}

static tutti_runtime *faulty_runtime(faults *f, tutti_runtime_ops *ops, tutti_runtime *made)
{
    assert_int_equal(tutti_runtime_open_posix(&f->below, NULL), TUTTI_OK);
    *ops = *f->below->ops;
    ops->name = "faulty";
    ops->file_open = faulty_open;
    ops->file_size = faulty_size;
    ops->file_read = faulty_read;
    ops->file_write = faulty_write;
    ops->file_sync = faulty_sync;
    ops->file_close = faulty_close;
    ops->file_reserve = faulty_reserve;
    ops->file_write_at = faulty_write_at;
    *made = (tutti_runtime){ ops, f };
    return made;
}

/* ---- a directory of its own for each test ---- */
typedef struct place { tutti_runtime *rt; char directory[64], path[128]; } place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);

    strcpy(p->directory, "/tmp/tutti-files-XXXXXX");
    if (mkdtemp(p->directory) == NULL || tutti_runtime_open_posix(&p->rt, NULL) != TUTTI_OK)
        return -1;
    snprintf(p->path, sizeof p->path, "%s/file", p->directory);
    *state = p;
    return 0;
}

static tutti_status remove_one(void *user, const char *name, tutti_error *err)
{
    const place *p = user;
    char path[400];

    snprintf(path, sizeof path, "%s/%s", p->directory, name);
    return tutti_file_remove(p->rt, path, err);
}

static int teardown(void **state)
{
    place *p = *state;

    tutti_directory_list(p->rt, p->directory, remove_one, p, NULL);
    tutti_file_remove(p->rt, p->directory, NULL);
    tutti_runtime_close(p->rt);
    free(p);
    return 0;
}

static tutti_status write_text(tutti_runtime *rt, const char *path, tutti_file_mode mode, const char *text,
                               tutti_error *err)
{
    tutti_file *f;
    tutti_status status = tutti_file_open(&f, rt, path, mode, err), closed;

    if (status != TUTTI_OK)
        return status;
    status = tutti_file_write(f, text, strlen(text), err);
    if (status == TUTTI_OK)
        status = tutti_file_sync(f, err);
    closed = tutti_file_close(f, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? closed : status;
}

static void assert_says(const tutti_error *err, const char *a, const char *b)
{
    if (strstr(err->text, a) == NULL || strstr(err->text, b) == NULL)
        fail_msg("'%s' should contain '%s' and '%s'", err->text, a, b);
}

static void written_data_is_read_back(void **state)
{
    place *p = *state;
    tutti_file *f;
    char got[16] = "";

    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "hello ", NULL), TUTTI_OK);
    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_APPEND, "world", NULL), TUTTI_OK);
    assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_bytes(f), 11);
    assert_int_equal(tutti_file_read(f, 4, got, 7, NULL), TUTTI_OK);
    assert_string_equal(got, "o world");
    assert_int_equal(tutti_file_read(f, 11, got, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_close(f, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_close(NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_APPEND, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_bytes(f), 11);
    assert_int_equal(tutti_file_write(f, "!", 1, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_bytes(f), 12);
    assert_int_equal(tutti_file_close(f, NULL), TUTTI_OK);
}

/* Mapped where the table can map, read where it has no such call or the call fails; either way
   the descriptor is closed at once. */
static void all_of_a_file_is_mapped_or_else_read(void **state)
{
    place *p = *state;

    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "hello world", NULL), TUTTI_OK);
    for (int kind = 0; kind < 3; kind++) {
        faults f = { .bite = 3, .interrupts = kind == 2 ? 2 : 0 };
        tutti_runtime_ops ops;
        tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);
        tutti_error err = { 0 };
        const void *at, *again;
        tutti_file *file;
        if (kind > 0)
            ops.file_map = NULL;
        assert_int_equal(tutti_file_open(&file, rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_map(file, &at, NULL), TUTTI_OK);
        assert_memory_equal(at, "hello world", 11);
        assert_int_equal(f.closed, 1);
        assert_int_equal(tutti_file_map(file, &again, NULL), TUTTI_OK);
        assert_ptr_equal(at, again);
        assert_int_equal(tutti_file_bytes(file), 11);
        assert_int_equal(tutti_file_close(file, NULL), TUTTI_OK);
        assert_int_equal(f.closed, f.opened);

        assert_int_equal(tutti_file_open(&file, rt, p->path, TUTTI_FILE_APPEND, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_map(file, &at, &err), TUTTI_ERR_USAGE);
        assert_says(&err, p->path, "is open for writing; only what is read can be mapped");
        assert_null(at);
        assert_int_equal(tutti_file_close(file, NULL), TUTTI_OK);
        if (kind == 1) { /* a read that fails leaves a file that can be closed */
            assert_int_equal(tutti_file_open(&file, rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
            f.calls = 0;
            f.fail_at = 2;
            f.cause = EIO;
            assert_int_equal(tutti_file_map(file, &at, &err), TUTTI_ERR_IO);
            assert_null(at);
            f.fail_at = 0;
            assert_int_equal(tutti_file_close(file, NULL), TUTTI_OK);
        }
        tutti_runtime_close(f.below);
    }
    assert_int_equal(truncate(p->path, 0), 0);
    tutti_file *empty;
    const void *nothing;
    assert_int_equal(tutti_file_open(&empty, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_map(empty, &nothing, NULL), TUTTI_OK);
    assert_non_null(nothing);
    assert_int_equal(tutti_file_bytes(empty), 0);
    tutti_file_close(empty, NULL);
}

static void reading_past_the_end_is_an_error_with_sizes(void **state)
{
    place *p = *state;
    tutti_error err = { 0 };
    tutti_file *f;
    char got[32];

    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "0123456789", NULL), TUTTI_OK);
    assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_read(f, 4, got, 16, &err), TUTTI_ERR_CORRUPT);
    assert_says(&err, p->path, "ends at 10 bytes, but 16 bytes were expected at offset 4");
    assert_int_equal(tutti_file_read(f, UINT64_MAX - 3, got, 16, &err), TUTTI_ERR_IO);
    assert_int_equal(tutti_file_read(f, UINT64_MAX, got, 1, &err), TUTTI_ERR_IO);
    assert_int_equal(truncate(p->path, 6), 0); /* cut while open */
    assert_int_equal(tutti_file_read(f, 4, got, 6, &err), TUTTI_ERR_CORRUPT);
    assert_says(&err, "ends at 6 bytes", "cut short");
    tutti_file_close(f, NULL);
}

static void open_errors_name_the_path_and_a_correction(void **state)
{
    place *p = *state;
    tutti_error err = { 0 };
    tutti_file *f = (tutti_file *)p;
    char fifo[200];

    assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_READ, &err), TUTTI_ERR_IO);
    assert_null(f);
    assert_says(&err, p->path, "check the path (No such file or directory)");
    assert_int_equal(err.cause, ENOENT);
    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "", NULL), TUTTI_OK);
    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "", &err), TUTTI_ERR_IO);
    assert_says(&err, "cannot create", "remove it or choose another name (File exists)");
    assert_int_equal(tutti_file_open(&f, p->rt, p->directory, TUTTI_FILE_READ, &err), TUTTI_ERR_IO);
    assert_says(&err, p->directory, "a regular file is needed (Is a directory)");
    snprintf(fifo, sizeof fifo, "%s/fifo", p->directory);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(tutti_file_open(&f, p->rt, fifo, TUTTI_FILE_READ, &err), TUTTI_ERR_IO); /* does not hang */
    assert_int_equal(tutti_file_open(&f, p->rt, fifo, TUTTI_FILE_APPEND, &err), TUTTI_ERR_IO);
    assert_int_equal(tutti_file_open(&f, p->rt, p->path, (tutti_file_mode)3, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_file_open(&f, p->rt, "", TUTTI_FILE_READ, &err), TUTTI_ERR_IO);
    assert_null(f);
}

static void full_disk_error_includes_a_correction(void **state)
{
    place *p = *state;
    tutti_error err = { 0 };
    tutti_file *f;

    assert_int_equal(tutti_file_open(&f, p->rt, "/dev/full", TUTTI_FILE_APPEND, NULL), TUTTI_OK);
    assert_int_equal(tutti_file_write(f, "12345", 5, &err), TUTTI_ERR_IO);
    assert_says(&err, "cannot write 5 bytes at offset 0 of '/dev/full'",
                "free space there or choose another place (No space left on device)");
    assert_int_equal(err.cause, ENOSPC);
    tutti_file_close(f, NULL);
}

static void short_and_interrupted_calls_are_completed(void **state)
{
    place *p = *state;
    char text[1001], got[1000];

    for (size_t i = 0; i < 1000; i++)
        text[i] = (char)('a' + i * i % 23);
    text[1000] = '\0';
    for (size_t bite = 1; bite < 600; bite = bite * 3 + 1) {
        faults f = { .bite = bite, .interrupts = 2 };
        tutti_runtime_ops ops;
        tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);
        tutti_file *file;
        assert_int_equal(write_text(rt, p->path, TUTTI_FILE_CREATE, text, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_open(&file, rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_read(file, 3, got, 997, NULL), TUTTI_OK);
        assert_memory_equal(got, text + 3, 997);
        assert_int_equal(tutti_file_close(file, NULL), TUTTI_OK);
        assert_true(f.calls > 2000 / (int)bite);
        assert_int_equal(tutti_file_remove(rt, p->path, NULL), TUTTI_OK);
        tutti_runtime_close(f.below);
    }
}

/* Method: fail the 1st, 2nd, 3rd ... call until all goes well; each failure has a sentence with the
   path and leaves no descriptor open. */
static void every_failing_call_is_reported_and_leaks_no_descriptor(void **state)
{
    place *p = *state;
    tutti_status status = TUTTI_ERR_IO;
    int k;

    for (k = 1; status != TUTTI_OK; k++) {
        faults f = { .bite = 4, .fail_at = k, .cause = EIO };
        tutti_runtime_ops ops;
        tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);
        tutti_error err = { 0 };
        char got[10];
        tutti_file *file;
        tutti_file_remove(p->rt, p->path, NULL);
        assert_true(k < 50);
        status = write_text(rt, p->path, TUTTI_FILE_CREATE, "0123456789", &err);
        if (status == TUTTI_OK)
            status = tutti_file_open(&file, rt, p->path, TUTTI_FILE_READ, &err);
        if (status == TUTTI_OK) {
            tutti_status closed;
            status = tutti_file_read(file, 0, got, 10, &err);
            closed = tutti_file_close(file, status == TUTTI_OK ? &err : NULL);
            if (status == TUTTI_OK)
                status = closed;
        }
        assert_int_equal(f.opened, f.closed);
        if (status != TUTTI_OK) {
            assert_says(&err, p->path, "(Input/output error)");
            assert_int_equal(err.cause, EIO);
        }
        tutti_runtime_close(f.below);
    }
    assert_true(k > 10); /* open, three writes, sync, close, open, size, three reads, close */
}

/* Writes 5 blocks and 77 bytes, the last whole block first; at a
   block's start in memory if aligned. */
static tutti_status write_wide(tutti_runtime *rt, const char *path, const unsigned char *from, tutti_error *err)
{
    enum { BLOCK = TUTTI_FILE_BLOCK };
    tutti_file *f;
    tutti_status status = tutti_file_open(&f, rt, path, TUTTI_FILE_CREATE, err), closed;

    if (status != TUTTI_OK)
        return status;
    status = tutti_file_reserve(f, 5 * BLOCK + 77, err);
    for (size_t b = 5; b-- > 0 && status == TUTTI_OK;)
        status = tutti_file_write_at(f, b * BLOCK, from + b * BLOCK, BLOCK, err);
    if (status == TUTTI_OK)
        status = tutti_file_write_at(f, 5 * BLOCK, from + 5 * BLOCK, 77, err);
    if (status == TUTTI_OK)
        status = tutti_file_sync(f, err);
    closed = tutti_file_close(f, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? closed : status;
}

/* Short and interrupted calls, memory at a block's start and off it; every call fails once, also
   with EINVAL, which a disk that needs larger blocks returns. */
static void parts_in_any_order_make_the_file(void **state)
{
    enum { BLOCK = TUTTI_FILE_BLOCK, BYTES = 5 * BLOCK + 77 };
    place *p = *state;
    unsigned char *memory = aligned_alloc(BLOCK, 8 * BLOCK), *got = malloc(BYTES);

    assert_true(tutti_file_has_write_at(p->rt));
    for (size_t i = 0; i < 8 * BLOCK; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 11);
    for (size_t shift = 0; shift < 2; shift++)
        for (int cause = 0; cause < 3; cause++) {
            tutti_status status = TUTTI_ERR_IO;
            for (int k = cause == 0 ? 0 : 1; status != TUTTI_OK; k++) {
                faults f = {
                    .bite = cause == 0 ? 1000 : BLOCK, .interrupts = cause == 0 ? 3 : 0, .fail_at = k,
                    .cause = cause == 1 ? ENOSPC : EINVAL,
                };
                tutti_runtime_ops ops;
                tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);
                tutti_error err = { 0 };
                tutti_file *file;
                assert_true(k < 30);
                status = write_wide(rt, p->path, memory + shift, &err);
                if (status != TUTTI_OK)
                    assert_says(&err, p->path,
                                cause == 1 ? "free space there or choose another place (No space left on device)"
                                           : "(Invalid argument)");
                assert_int_equal(f.opened, f.closed);
                if (status == TUTTI_OK) {
                    assert_int_equal(tutti_file_open(&file, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
                    assert_int_equal(tutti_file_bytes(file), BYTES);
                    assert_int_equal(tutti_file_read(file, 0, got, BYTES, NULL), TUTTI_OK);
                    assert_memory_equal(got, memory + shift, BYTES);
                    tutti_file_close(file, NULL);
                }
                tutti_file_remove(p->rt, p->path, NULL);
                tutti_runtime_close(f.below);
            }
        }
    free(memory);
    free(got);
}

static void a_write_of_zero_bytes_does_not_loop_forever(void **state)
{
    place *p = *state;
    faults f = { .bite = 4, .stuck = true };
    tutti_runtime_ops ops;
    tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);

    assert_int_equal(write_text(rt, p->path, TUTTI_FILE_CREATE, "x", NULL), TUTTI_ERR_IO);
    tutti_runtime_close(f.below);
}

static int shut_directory_make(void *self, const char *path)
{
    (void)self;
    return strcmp(path, "/root") == 0 ? EEXIST : EACCES;
}

static int shut_exists(void *self, const char *path)
{
    (void)self;
    (void)path;
    return EACCES;
}

/* As another user's home is to the system: there, and not to be looked into. */
static void inaccessible_directory_is_reported_as_a_permission_error(void **state)
{
    faults f = { .bite = 4 };
    tutti_runtime_ops ops;
    tutti_runtime made, *rt = faulty_runtime(&f, &ops, &made);
    tutti_error err = { 0 };

    (void)state;
    ops.directory_make = shut_directory_make;
    ops.exists = shut_exists;
    assert_int_equal(tutti_directory_make(rt, "/root/x", &err), TUTTI_ERR_IO);
    assert_string_equal(
        err.text,
        "cannot make directory '/root/x'; check owner and permissions, or choose another place (Permission denied)");
    tutti_runtime_close(f.below);
}

static void directories_are_made_with_parents(void **state)
{
    place *p = *state;
    char deep[200], through[200];
    tutti_error err = { 0 };

    snprintf(deep, sizeof deep, "%s/a//b/c/", p->directory);
    assert_int_equal(tutti_directory_make(p->rt, deep, &err), TUTTI_OK);
    assert_int_equal(tutti_directory_make(p->rt, deep, &err), TUTTI_OK);
    assert_true(tutti_file_exists(p->rt, deep));
    assert_int_equal(tutti_directory_sync(p->rt, deep, &err), TUTTI_OK);
    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "x", NULL), TUTTI_OK);
    assert_int_equal(tutti_directory_make(p->rt, p->path, &err), TUTTI_ERR_IO);
    snprintf(through, sizeof through, "%s/x/y", p->path);
    assert_int_equal(tutti_directory_make(p->rt, through, &err), TUTTI_ERR_IO);
    assert_says(&err, through, "/file' is a file; remove it or choose another name (Not a directory)");
    snprintf(through, sizeof through, "%s/link", p->directory);
    assert_int_equal(symlink("nowhere", through), 0);
    assert_int_equal(tutti_directory_make(p->rt, through, &err), TUTTI_ERR_IO);
    assert_says(&err, through, "/link' is a link to what is not there; remove it or choose another name");
    assert_int_equal(unlink(through), 0);
    assert_int_equal(tutti_directory_make(p->rt, "", &err), TUTTI_ERR_IO);
    assert_int_equal(tutti_directory_make(p->rt, "/", &err), TUTTI_OK);
    assert_int_equal(tutti_directory_sync(p->rt, p->path, &err), TUTTI_ERR_IO);
    snprintf(deep, sizeof deep, "%s/a", p->directory);
    assert_int_equal(tutti_file_remove(p->rt, deep, &err), TUTTI_ERR_IO);
    assert_says(&err, deep, "empty it first");
    for (int depth = 3; depth > 0; depth--) {
        static const char *const levels[] = { "a", "a/b", "a/b/c" };
        snprintf(deep, sizeof deep, "%s/%s", p->directory, levels[depth - 1]);
        assert_int_equal(tutti_file_remove(p->rt, deep, &err), TUTTI_OK);
        assert_false(tutti_file_exists(p->rt, deep));
        assert_int_equal(tutti_file_remove(p->rt, deep, &err), TUTTI_OK); /* absent is fine */
    }
}

typedef struct { char seen[2000]; int stop_after; } listing;

static tutti_status note_name(void *user, const char *name, tutti_error *err)
{
    listing *l = user;

    strcat(strcat(l->seen, name), " ");
    return --l->stop_after == 0 ? tutti_fail(err, TUTTI_ERR_STATE, 0, "enough") : TUTTI_OK;
}

static void names_are_listed_in_bytewise_order(void **state)
{
    place *p = *state;
    static const char *const names[] = { "b", "a", "Z", "a10", "a2", ".hidden", "\xC3\xA4" };
    listing l = { "", -1 };
    tutti_error err = { 0 };
    char path[200];

    for (size_t i = 0; i < TUTTI_LENGTH(names); i++) {
        snprintf(path, sizeof path, "%s/%s", p->directory, names[i]);
        assert_int_equal(write_text(p->rt, path, TUTTI_FILE_CREATE, "", NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_directory_list(p->rt, p->directory, note_name, &l, &err), TUTTI_OK);
    assert_string_equal(l.seen, ".hidden Z a a10 a2 b \xC3\xA4 ");
    l = (listing){ "", 2 };
    assert_int_equal(tutti_directory_list(p->rt, p->directory, note_name, &l, &err), TUTTI_ERR_STATE);
    assert_string_equal(l.seen, ".hidden Z ");
    assert_string_equal(err.text, "enough");
    assert_int_equal(tutti_directory_list(p->rt, p->path, note_name, &l, &err), TUTTI_ERR_IO);
    assert_says(&err, p->path, "(No such file or directory)");
}

static void many_names_are_listed(void **state)
{
    place *p = *state;
    char path[200];
    listing l = { "", -1 };

    for (int i = 0; i < 150; i++) {
        snprintf(path, sizeof path, "%s/%03d", p->directory, (i * 37) % 150);
        assert_int_equal(write_text(p->rt, path, TUTTI_FILE_CREATE, "", NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_directory_list(p->rt, p->directory, note_name, &l, NULL), TUTTI_OK);
    assert_int_equal(strlen(l.seen), 600);
    assert_memory_equal(l.seen + 400, "100 101 ", 8);
}

static void renaming_replaces_and_errors_name_both_files(void **state)
{
    place *p = *state;
    char other[200];
    tutti_error err = { 0 };
    uint64_t bytes = 0;

    snprintf(other, sizeof other, "%s/other", p->directory);
    assert_int_equal(tutti_file_rename(p->rt, p->path, other, &err), TUTTI_ERR_IO);
    assert_says(&err, p->path, other);
    assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "new", NULL), TUTTI_OK);
    assert_int_equal(write_text(p->rt, other, TUTTI_FILE_CREATE, "old", NULL), TUTTI_OK);
    assert_int_equal(tutti_file_rename(p->rt, p->path, other, &err), TUTTI_OK);
    assert_false(tutti_file_exists(p->rt, p->path));
    assert_int_equal(tutti_space_left(p->rt, p->directory, &bytes, &err), TUTTI_OK);
    assert_true(bytes > 0);
    assert_int_equal(tutti_space_left(p->rt, p->path, &bytes, &err), TUTTI_ERR_IO);
    assert_int_equal(bytes, 0);
}

/* Goal: under its name a file is whole: the old one or the new one; nothing else is left, except
   after a kill. Method: fail the 1st, 2nd, 3rd ... call until all goes well, with and without an
   old one; and an unfinished one of a try that was killed. */
static void a_file_appears_whole_or_not_at_all(void **state)
{
    place *p = *state;
    char part[200], got[8];

    snprintf(part, sizeof part, "%s.part", p->path);
    for (int old = 0; old < 2; old++) {
        tutti_status status = TUTTI_ERR_IO;
        tutti_file *f;
        int k;
        assert_int_equal(tutti_file_remove(p->rt, p->path, NULL), TUTTI_OK);
        if (old)
            assert_int_equal(write_text(p->rt, p->path, TUTTI_FILE_CREATE, "old!", NULL), TUTTI_OK);
        for (k = 1; status != TUTTI_OK; k++) {
            faults faulty = { .bite = 2, .fail_at = k, .cause = EIO };
            tutti_runtime_ops ops;
            tutti_runtime made, *rt = faulty_runtime(&faulty, &ops, &made);
            tutti_error err = { 0 };
            status = tutti_file_begin(&f, rt, p->path, true, &err);
            if (status == TUTTI_OK)
                status = tutti_file_end(f, tutti_file_write(f, "newer", 5, &err), &err);
            assert_int_equal(faulty.opened, faulty.closed);
            assert_false(tutti_file_exists(p->rt, part));
            if (status != TUTTI_OK) {
                assert_says(&err, p->path, "Input/output error");
                assert_int_equal(tutti_file_exists(p->rt, p->path), old);
            }
            if (status != TUTTI_OK && old) {
                assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
                assert_int_equal(tutti_file_bytes(f), 4);
                tutti_file_close(f, NULL);
            }
            tutti_runtime_close(faulty.below);
        }
        assert_true(k > 5);
        assert_int_equal(tutti_file_open(&f, p->rt, p->path, TUTTI_FILE_READ, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_read(f, 0, got, 5, NULL), TUTTI_OK);
        assert_memory_equal(got, "newer", 5);
        tutti_file_close(f, NULL);
    }
    {
        tutti_error err = { 0 };
        tutti_file *f;
        assert_int_equal(tutti_file_begin(&f, p->rt, p->path, false, &err), TUTTI_ERR_IO);
        assert_null(f);
        assert_says(&err, "cannot create", "remove it or choose another name (File exists)");
        assert_int_equal(tutti_file_end(NULL, TUTTI_ERR_STATE, NULL), TUTTI_ERR_STATE);
        assert_int_equal(tutti_file_remove(p->rt, p->path, NULL), TUTTI_OK);
        assert_int_equal(write_text(p->rt, part, TUTTI_FILE_CREATE, "of a killed one", NULL), TUTTI_OK);
        assert_int_equal(tutti_file_begin(&f, p->rt, p->path, false, &err), TUTTI_OK);
        assert_int_equal(tutti_file_end(f, tutti_file_write(f, "x", 1, &err), &err), TUTTI_OK);
        assert_false(tutti_file_exists(p->rt, part));
        assert_true(tutti_file_exists(p->rt, p->path));
    }
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_PLACE(written_data_is_read_back),
        IN_PLACE(all_of_a_file_is_mapped_or_else_read),
        IN_PLACE(reading_past_the_end_is_an_error_with_sizes),
        IN_PLACE(open_errors_name_the_path_and_a_correction),
        IN_PLACE(full_disk_error_includes_a_correction),
        IN_PLACE(short_and_interrupted_calls_are_completed),
        IN_PLACE(every_failing_call_is_reported_and_leaks_no_descriptor),
        IN_PLACE(parts_in_any_order_make_the_file),
        IN_PLACE(a_write_of_zero_bytes_does_not_loop_forever),
        cmocka_unit_test(inaccessible_directory_is_reported_as_a_permission_error),
        IN_PLACE(directories_are_made_with_parents),
        IN_PLACE(names_are_listed_in_bytewise_order),
        IN_PLACE(many_names_are_listed),
        IN_PLACE(a_file_appears_whole_or_not_at_all),
        IN_PLACE(renaming_replaces_and_errors_name_both_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
