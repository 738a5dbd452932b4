/* Goal: whatever the disk, the kernel or the memory refuses is a sentence. It ends the request
   that it befell and no other, and corrupts nothing. Short transfers are no failure. Method: a
   runtime whose transfers, of the queue as well as of the calls, are cut short, interrupted, and
   failed at the k-th; tutti_alloc is wrapped at link time. */
#include "disk.h"
#include "tier/tier.h"
#include <errno.h>

enum { BLOCK = 4096, BYTES = 32 * BLOCK };

static size_t until_failure = SIZE_MAX; /* while a tier is opened, by its thread alone */

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return until_failure != SIZE_MAX && until_failure-- == 0 ? NULL : __real_tutti_alloc(count, size);
}

/* Set while no request is in flight, except for the count, which all threads of a tier change. */
typedef struct faults {
    tutti_runtime rt;
    tutti_runtime_ops ops;
    tutti_runtime *below;
    int transfers;               /* since `begin` */
    int fail_at, cause;          /* the k-th transfer fails; 0: none */
    int nothing_at;              /* the k-th and all later ones move nothing */
    int interrupts;              /* every n-th one returns EINTR */
    size_t bite;                 /* and no transfer moves more */
    int reap_fails;              /* a cause */
    int opening_fails;           /* a cause, of the queue */
    int scratch_fails;
    uint64_t space;
} faults;

/* 0 or a cause, and what may be moved. */
static int strike(faults *f, size_t *bytes)
{
    const int k = __atomic_add_fetch(&f->transfers, 1, __ATOMIC_RELAXED);

    if (k == f->fail_at)
        return f->cause;
    if (f->interrupts != 0 && k % f->interrupts == 0)
        return EINTR;
    if (f->nothing_at != 0 && k >= f->nothing_at)
        *bytes = 0;
    if (f->bite != 0 && *bytes > f->bite)
        *bytes = f->bite;
    return 0;
}

/* Less is reported than the disk has moved: the rest is moved again, which changes nothing. */
static int faulty_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    faults *f = self;
    size_t told = bytes;
    int cause = strike(f, &told);

    *done = 0;
    if (cause == 0 && told > 0)
        cause = f->below->ops->file_read(f->below->self, fd, offset, to, bytes, done);
    *done = *done < told ? *done : told;
    return cause;
}

static int faulty_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    faults *f = self;
    size_t told = bytes;
    int cause = strike(f, &told);

    *done = 0;
    if (cause == 0 && told > 0)
        cause = f->below->ops->file_write_at(f->below->self, fd, offset, from, bytes, done);
    *done = *done < told ? *done : told;
    return cause;
}

static int faulty_space(void *self, const char *path, uint64_t *bytes)
{
    faults *f = self;
    const int cause = f->below->ops->space_left(f->below->self, path, bytes);

    if (f->space != 0)
        *bytes = f->space;
    return cause;
}

static int faulty_scratch(void *self, const char *directory, uint64_t bytes, bool direct, int *fd)
{
    faults *f = self;

    return f->scratch_fails != 0 ? f->scratch_fails
                                 : f->below->ops->file_scratch(f->below->self, directory, bytes, direct, fd);
}

static int faulty_queue_open(void *self, int depth, void **queue)
{
    faults *f = self;

    *queue = NULL;
    return f->opening_fails != 0 ? f->opening_fails : f->below->ops->queue_open(f->below->self, depth, queue);
}

static int faulty_reap(void *self, void *queue, bool block, tutti_queue_result *results, int room, int *n)
{
    faults *f = self;
    int cause;

    if (f->reap_fails != 0)
        return f->reap_fails;
    cause = f->below->ops->queue_reap(f->below->self, queue, block, results, room, n);
    for (int k = 0; k < *n; k++) {
        const int failed = strike(f, &results[k].done);
        if (failed != 0)
            results[k] = (tutti_queue_result){ .tag = results[k].tag, .cause = failed };
    }
    return cause;
}

static tutti_runtime *faulty(faults *f)
{
    *f = (faults){ .below = runtime_of_test() };
    f->ops = *f->below->ops; /* its other calls do not look at `self` */
    f->ops.file_read = faulty_read;
    f->ops.file_write_at = faulty_write_at;
    f->ops.space_left = faulty_space;
    f->ops.file_scratch = faulty_scratch;
    if (f->ops.queue_open != NULL) {
        f->ops.queue_open = faulty_queue_open;
        f->ops.queue_reap = faulty_reap;
    }
    f->rt.ops = &f->ops;
    f->rt.self = f;
    return &f->rt;
}

static const char *spec_of(tutti_runtime *rt, bool uring, const char *more)
{
    static char text[600];

    snprintf(text, sizeof text, "nvme(path=\"%s\",engine=%s,direct=%s%s)", DISK, uring ? "uring" : "threads",
             disk_direct(rt), more);
    return text;
}

static tutti_status one(tutti_tier *t, bool write, uint64_t at, void *memory, size_t bytes, tutti_error *err)
{
    tutti_io io = { 0 }, *const list = &io;
    const tutti_status status =
        write ? tutti_tier_write(t, &io, at, memory, bytes, err) : tutti_tier_read(t, &io, at, memory, bytes, err);

    return status != TUTTI_OK ? status : tutti_tier_wait(t, &list, 1, err);
}

static char *pages(size_t bytes, int value)
{
    void *memory;

    assert_int_equal(posix_memalign(&memory, BLOCK, bytes), 0);
    memset(memory, value, bytes);
    return memory;
}

/* A short transfer of 512 bytes is no whole block: what it moved does not count when the page
   cache is bypassed, and a transfer that never moves a block is given up. */
static void short_and_interrupted_transfers_are_completed(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);

    (void)state;
    for (int uring = uring_allowed(rt); uring >= 0; uring--) {
        char *out = pages(BYTES, 1), *in = pages(BYTES, 2);
        tutti_error err;
        tutti_tier *t;

        assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, uring, ",depth=3"), BYTES, NULL, NULL), TUTTI_OK);
        for (int i = 0; i < BYTES; i++)
            out[i] = (char)(i / 5);
        f.bite = 5000;
        f.interrupts = 3;
        f.transfers = 0;
        assert_int_equal(one(t, true, 10, out + 10, BYTES - 20, &err), TUTTI_OK);
        assert_int_equal(one(t, false, 10, in + 10, BYTES - 20, &err), TUTTI_OK);
        assert_memory_equal(in + 10, out + 10, BYTES - 20);
        assert_true(f.transfers > 30);
        f.interrupts = 0;
        if (strcmp(disk_direct(rt), "on") == 0) {
            f.bite = 512;
            assert_int_equal(one(t, false, 0, in, BLOCK, &err), TUTTI_ERR_IO);
            assert_string_equal(err.text, "tier 'nvme': cannot read 4096 bytes at offset 0 of '" DISK "' "
                                          "(Input/output error)");
        }
        f.bite = 0;
        assert_int_equal(one(t, false, 10, in + 10, BYTES - 20, &err), TUTTI_OK);
        tutti_tier_close(t);
        free(out), free(in);
    }
    tutti_runtime_close(f.below);
}

/* Each transfer of a write with two ends, in turn: it alone fails, its neighbours keep their
   bytes, and the tier continues. */
static void failed_transfer_fails_only_its_own_request(void **state)
{
    static const struct { int cause; const char *words; } causes[] = {
        { EIO, "(Input/output error)" },
        { ENOSPC, "; free space there or choose another place (No space left on device)" },
        { ESTALE, "(Stale file handle)" },
    };
    faults f;
    tutti_runtime *rt = faulty(&f);

    (void)state;
    for (int uring = uring_allowed(rt); uring >= 0; uring--)
        for (size_t c = 0; c < TUTTI_LENGTH(causes); c++) {
            int failures = 0;
            for (int at = 1;; at++) {
                enum { FIRST = 3 * BLOCK + 100, COUNT = 5 * BLOCK + 50 };
                char *old = pages(BYTES, 1), *new = pages(BYTES, 2), *in = pages(BYTES, 3);
                tutti_status status;
                tutti_error err = { 0 };
                tutti_tier *t;

                assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, uring, ",depth=1,block=8192"), BYTES, NULL, NULL),
                                 TUTTI_OK);
                assert_int_equal(one(t, true, 0, old, BYTES, NULL), TUTTI_OK);
                f.transfers = 0;
                f.fail_at = at;
                f.cause = causes[c].cause;
                status = one(t, true, FIRST, new + FIRST, COUNT, &err);
                f.fail_at = 0;
                if (status != TUTTI_OK) {
                    failures++;
                    assert_int_equal(status, TUTTI_ERR_IO);
                    assert_int_equal(err.cause, causes[c].cause);
                    assert_int_equal(strncmp(err.text, "tier 'nvme': cannot ", 20), 0);
                    assert_non_null(strstr(err.text, " bytes at offset "));
                    assert_non_null(strstr(err.text, " of '" DISK "'"));
                    assert_non_null(strstr(err.text, causes[c].words));
                }
                assert_int_equal(one(t, false, 0, in, BYTES, &err), TUTTI_OK);
                assert_memory_equal(in, old, FIRST);
                assert_memory_equal(in + FIRST + COUNT, old, BYTES - FIRST - COUNT);
                assert_int_equal(one(t, true, FIRST, new, COUNT, &err), TUTTI_OK);
                assert_int_equal(one(t, false, FIRST, in, COUNT, &err), TUTTI_OK);
                assert_memory_equal(in, new, COUNT);
                tutti_tier_close(t);
                free(old), free(new), free(in);
                if (status == TUTTI_OK)
                    break;
            }
            assert_true(failures >= 3); /* head, middle, tail, and what the ends read before */
        }
    tutti_runtime_close(f.below);
}

/* Of many requests in flight the failed ones are those whose transfers failed. */
static void other_requests_complete_after_one_fails(void **state)
{
    enum { REQUESTS = 16 };
    faults f;
    tutti_runtime *rt = faulty(&f);

    (void)state;
    for (int uring = uring_allowed(rt); uring >= 0; uring--) {
        tutti_io io[REQUESTS] = { { 0 } }, *list[REQUESTS];
        char *out = pages(BYTES, 7);
        int failed = 0;
        tutti_error err;
        tutti_tier *t;

        assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, uring, ",depth=4,block=4096"), BYTES, NULL, NULL),
                         TUTTI_OK);
        f.transfers = 0;
        f.fail_at = 9;
        f.cause = EIO;
        for (int r = 0; r < REQUESTS; r++) {
            list[r] = &io[r];
            assert_int_equal(tutti_tier_write(t, &io[r], (uint64_t)r * 2 * BLOCK, out, 2 * BLOCK, NULL), TUTTI_OK);
        }
        assert_int_equal(tutti_tier_wait(t, list, REQUESTS, &err), TUTTI_ERR_IO);
        for (int r = 0; r < REQUESTS; r++)
            failed += io[r].status != TUTTI_OK;
        assert_int_equal(failed, 1);
        assert_int_equal(tutti_tier_count(t).requests, REQUESTS - 1);
        f.fail_at = 0;
        tutti_tier_close(t);
        free(out);
    }
    tutti_runtime_close(f.below);
}

static void truncated_tier_file_is_reported(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);

    (void)state;
    for (int uring = uring_allowed(rt); uring >= 0; uring--) {
        char *in = pages(BYTES, 0);
        tutti_error err;
        tutti_tier *t;

        assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, uring, ",depth=2"), BYTES, NULL, NULL), TUTTI_OK);
        f.transfers = 0;
        f.nothing_at = 1;
        assert_int_equal(one(t, false, BLOCK, in, BLOCK, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, "tier 'nvme': '" DISK "' ends at 4096 bytes, but 4096 bytes were expected at "
                                      "offset 4096; it was cut short or is another kind of file");
        /* Nor does a write hang when the disk takes nothing. */
        assert_int_equal(one(t, true, BLOCK, in, BLOCK, &err), TUTTI_ERR_IO);
        f.nothing_at = 0;
        tutti_tier_close(t);
        free(in);
    }
    tutti_runtime_close(f.below);
}

static void full_disk_is_reported_when_the_tier_opens(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);
    tutti_error err;
    tutti_tier *t;

    (void)state;
    f.space = 3 << 20;
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, false, ""), 5 << 20, NULL, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, ": 5.0 MiB are needed in '" DISK "', which has space for 3.0 MiB; free space "
                                     "there or choose another place (No space left on device)"));
    f.space = 0;
    f.scratch_fails = EDQUOT; /* there is space, but not for this user */
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, false, ""), 5 << 20, NULL, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, ": 5.0 MiB are needed in '" DISK "', which has space for "));
    f.scratch_fails = EACCES;
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, false, ""), 100, NULL, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "cannot make a file of 4096 bytes in '" DISK "'; check owner and permissions"));
    tutti_runtime_close(f.below);
}

static void missing_io_uring_is_reported_or_threads_are_used(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);
    char *out, *in, text[700];
    tutti_error err;
    tutti_tier *t;

    (void)state;
    if (!uring_allowed(rt)) {
        tutti_runtime_close(f.below);
        return;
    }
    out = pages(BYTES, 4), in = pages(BYTES, 0);
    f.opening_fails = ENOSYS;
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, true, ""), BYTES, NULL, &err), TUTTI_ERR_IO);
    snprintf(text, sizeof text,
             "tier 'nvme': engine=uring: the kernel refuses io_uring with 32 transfers under way (%s); engine=threads "
             "does without", strerror(ENOSYS));
    assert_string_equal(err.text, text);
    snprintf(text, sizeof text, "nvme(path=\"%s\",direct=%s)", DISK, disk_direct(rt));
    assert_int_equal(tutti_tier_open(&t, rt, text, BYTES, NULL, &err), TUTTI_OK);
    assert_false(tutti_tier_pin(t, out, BYTES));
    assert_int_equal(one(t, true, 0, out, BYTES, NULL), TUTTI_OK);
    assert_int_equal(one(t, false, 0, in, BYTES, NULL), TUTTI_OK);
    assert_memory_equal(in, out, BYTES);
    tutti_tier_describe(t, text, sizeof text);
    assert_non_null(strstr(text, "32 threads, since the kernel refuses io_uring"));
    tutti_tier_close(t);
    free(out), free(in);
    tutti_runtime_close(f.below);
}

/* The queue itself is lost: every request learns of it, later ones too, and nothing waits for
   ever. */
static void a_lost_queue_ends_all_requests(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);
    tutti_io io[6] = { { 0 } }, *list[6];
    tutti_error err;
    tutti_tier *t;
    char *out;

    (void)state;
    if (!uring_allowed(rt)) {
        tutti_runtime_close(f.below);
        return;
    }
    out = pages(BYTES, 4);
    f.reap_fails = EBADF;
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, true, ",depth=1,block=4096"), BYTES, NULL, &err), TUTTI_OK);
    for (int r = 0; r < 6; r++) {
        list[r] = &io[r];
        assert_int_equal(tutti_tier_write(t, &io[r], (uint64_t)r * 2 * BLOCK, out, 2 * BLOCK, NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_tier_wait(t, list, 6, &err), TUTTI_ERR_IO);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(io[r].status, TUTTI_ERR_IO);
        assert_string_equal(io[r].err.text, "tier 'nvme': io_uring no longer takes or gives back transfers "
                                            "(Bad file descriptor)");
    }
    tutti_tier_close(t);
    free(out);
    tutti_runtime_close(f.below);
}

static void opening_a_tier_without_memory_fails(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);

    (void)state;
    for (int kind = uring_allowed(rt) ? 0 : 1; kind < 3; kind++) {
        tutti_status status = TUTTI_ERR_MEMORY;
        size_t at;
        for (at = 0; status != TUTTI_OK; at++) {
            tutti_error err = { 0 };
            const char *spec = kind == 2 ? "host" : spec_of(rt, kind == 0, ",depth=2");
            tutti_tier *t;
            until_failure = at;
            status = tutti_tier_open(&t, rt, spec, BYTES, NULL, &err);
            until_failure = SIZE_MAX;
            if (status == TUTTI_OK) {
                tutti_tier_close(t);
                break;
            }
            assert_int_equal(status, TUTTI_ERR_MEMORY);
            assert_null(t);
            assert_true(strlen(err.text) > 10);
        }
        assert_true(at > 4);
    }
    tutti_runtime_close(f.below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_interrupted_transfers_are_completed),
        cmocka_unit_test(failed_transfer_fails_only_its_own_request),
        cmocka_unit_test(other_requests_complete_after_one_fails),
        cmocka_unit_test(truncated_tier_file_is_reported),
        cmocka_unit_test(full_disk_is_reported_when_the_tier_opens),
        cmocka_unit_test(missing_io_uring_is_reported_or_threads_are_used),
        cmocka_unit_test(a_lost_queue_ends_all_requests),
        cmocka_unit_test(opening_a_tier_without_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
