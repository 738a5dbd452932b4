/* Large files, which threads write and read ahead: the same bytes as by plain calls; a failure of
   any operation or allocation is reported, and leaves the earlier file and no trace; a stop at
   any operation leaves the old checkpoint or the new one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "memory_files.h"
#include "runtime/files.h"
#include "sanitized.h"
#include "state/read.h"
#include "state/state_internal.h"

static _Thread_local size_t until_failure = SIZE_MAX; /* allocations of this thread */

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return until_failure != SIZE_MAX && until_failure-- == 0 ? NULL : __real_tutti_alloc(count, size);
}

enum { MIB = 1 << 20, LARGE = 8 * MIB + 12345 };

typedef struct fixture { tutti_runtime *rt; uint8_t *values; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    if (tutti_runtime_open_posix(&f->rt, NULL) != TUTTI_OK || (f->values = malloc(24 * MIB)) == NULL)
        return -1;
    for (size_t k = 0; k < 24 * MIB; k++)
        f->values[k] = (uint8_t)(k * 2654435761u >> 13);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    tutti_runtime_close(f->rt);
    free(f->values);
    free(f);
    return 0;
}

static tutti_status write_parts(tutti_runtime *rt, const char *path, const uint8_t *values, const size_t *parts,
                                size_t n, uint64_t hashes[3], uint64_t *whole, tutti_error *err)
{
    static const char *const names[] = { "a", "b", "c" };
    tutti_tensor_entry e[3];
    tutti_status status;
    size_t at = 0;

    for (size_t k = 0; k < n; k++) {
        e[k] = (tutti_tensor_entry){
            .name = names[k], .dtype = TUTTI_U8, .dims = 1, .dim = { parts[k] }, .data = values + at
        };
        at += parts[k];
    }
    status = tutti_safetensors_write(rt, path, e, n, NULL, whole, err);
    for (size_t k = 0; k < n; k++)
        hashes[k] = e[k].hash;
    return status;
}

static void file_contents_do_not_depend_on_the_writer(void **state)
{
    static const size_t cases[][3] = {
        { 8 * MIB - 64, 0, 1 }, { 8 * MIB, 0, 0 }, { 8 * MIB + 1, 4095, 4096 }, { 1, 9 * MIB, 77 },
        { 3 * MIB + 5, 4 * MIB + 6, 2 * MIB }, { 16 * MIB - 4096, 4096, MIB }, { 23 * MIB, 1000, 10 },
    };
    fixture *f = *state;
    char base[] = "/tmp/tutti-stream-XXXXXX", path[64];

    assert_non_null(mkdtemp(base));
    snprintf(path, sizeof path, "%s/a", base);
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        memory_files *plain = memory_files_open(NULL), *wide = memory_files_open_wide(f->rt);
        uint64_t hashes[3][3], whole[3];
        size_t bytes, other, at = 0;
        uint8_t *data, *got;
        tutti_file *file;

        assert_int_equal(write_parts(&plain->rt, "a", f->values, cases[c], 3, hashes[0], &whole[0], NULL), TUTTI_OK);
        assert_int_equal(write_parts(&wide->rt, "a", f->values, cases[c], 3, hashes[1], &whole[1], NULL), TUTTI_OK);
        assert_int_equal(write_parts(f->rt, path, f->values, cases[c], 3, hashes[2], &whole[2], NULL), TUTTI_OK);
        data = memory_files_get(plain, "a", &bytes);
        got = memory_files_get(wide, "a", &other);
        assert_int_equal(other, bytes);
        assert_memory_equal(got, data, bytes);
        assert_int_equal(tutti_file_open(&file, f->rt, path, TUTTI_FILE_READ, NULL), TUTTI_OK);
        assert_int_equal(tutti_file_bytes(file), bytes);
        assert_int_equal(tutti_file_read(file, 0, got, bytes, NULL), TUTTI_OK);
        assert_memory_equal(got, data, bytes);
        tutti_file_close(file, NULL);
        for (int k = 0; k < 3; k++) {
            assert_true(whole[k] == tutti_hash(data, bytes));
            at = 0;
            for (int t = 0; t < 3; at += cases[c][t], t++)
                assert_true(hashes[k][t] == tutti_hash(f->values + at, cases[c][t]));
        }
        assert_int_equal(tutti_file_remove(f->rt, path, NULL), TUTTI_OK);
        memory_files_close(plain);
        memory_files_close(wide);
    }
    assert_int_equal(rmdir(base), 0);
}

static void nothing_is_open(const memory_files *m)
{
    for (int k = 0; k < MEMORY_FDS; k++)
        assert_null(m->fds[k]);
}

static void failing_operation_is_reported_and_keeps_the_earlier_file(void **state)
{
    static const size_t parts[] = { LARGE }, old[] = { 3 };
    fixture *f = *state;

    for (memory_fault fault = FAULT_NO_SPACE; fault <= FAULT_SHORT; fault++) {
        uint64_t k = 0, failed = 0;
        for (bool ended = false; !ended;) {
            memory_files *m = memory_files_open_wide(f->rt);
            tutti_error err = { 0 };
            tutti_status status;
            uint64_t hashes[3];
            size_t bytes;

            assert_int_equal(write_parts(&m->rt, "a", f->values, old, 1, hashes, NULL, NULL), TUTTI_OK);
            m->operations = 0;
            m->fault = fault;
            m->fault_at = ++k;
            m->dawdle_ns = 2000000; /* blocks written during the one that fails are written well, and those after it */
            status = write_parts(&m->rt, "a", f->values, parts, 1, hashes, NULL, &err);
            ended = m->operations < k;
            memory_files_get(m, "a", &bytes);
            if (status == TUTTI_OK) {
                assert_true(bytes > LARGE);
                assert_true(ended || fault == FAULT_SHORT); /* what has failed is never forgotten */
            } else {
                failed++;
                assert_true(fault != FAULT_SHORT); /* the rest of a short write is written */
                assert_int_equal(status, TUTTI_ERR_IO);
                assert_true(bytes < 200);
                assert_non_null(strstr(err.text, "'a"));
                assert_non_null(
                    strstr(err.text, fault == FAULT_NO_SPACE
                                         ? "free space there or choose another place (No space left on device)"
                                         : "(Input/output error)"));
            }
            assert_int_equal(memory_files_count(m, "", ""), 1);
            nothing_is_open(m);
            memory_files_close(m);
        }
        assert_true(fault == FAULT_SHORT || failed >= 12); /* create, reserve, nine writes and the rest, sync, rename */
    }
}

/* ---- whole checkpoints ---- */

typedef struct saving {
    fixture *f;
    tutti_runtime *files;
    const char *dir;
    uint64_t step;
    size_t fail_at;
    bool reached;
    tutti_status status;
    tutti_error err;
} saving;

static tutti_saved item_of(uint8_t *data, uint64_t bytes)
{
    return (tutti_saved){
        .state = "x", .tensor = "w", .keep = TUTTI_SAME, .dtype = TUTTI_U8, .owner = -1, .count = bytes, .end = bytes,
        .data = data,
    };
}

static tutti_status save_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saving *s = arg;
    const tutti_saved item = item_of(s->f->values + s->step, LARGE);

    (void)err;
    until_failure = s->fail_at;
    s->status = tutti_checkpoint_save_through(world, s->files, s->dir, s->step, &item, 1, "{}", 1, &s->err);
    s->reached = until_failure == SIZE_MAX;
    until_failure = SIZE_MAX;
    return TUTTI_OK;
}

static tutti_status save(fixture *f, tutti_runtime *files, const char *dir, uint64_t step)
{
    saving s = { .f = f, .files = files, .dir = dir, .step = step, .fail_at = SIZE_MAX };

    assert_int_equal(tutti_world_run("shm", 1, save_rank, &s, NULL), TUTTI_OK);
    return s.status;
}

/* The step of what is found, wholly read. */
static uint64_t found_step(fixture *f, tutti_runtime *files, const char *dir)
{
    uint8_t *back = malloc(LARGE);
    const tutti_saved item = item_of(back, LARGE);
    char found[200];
    tutti_checkpoint *c;
    uint64_t step;

    assert_non_null(back);
    assert_int_equal(tutti_checkpoint_find(files, dir, found, sizeof found, NULL, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&c, files, found, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_verify(c, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_read(c, &item, 1, NULL), TUTTI_OK);
    step = tutti_checkpoint_step(c);
    assert_memory_equal(back, f->values + step, LARGE);
    tutti_checkpoint_close(c);
    free(back);
    return step;
}

static void halt_at_any_operation_leaves_old_or_new_checkpoint(void **state)
{
    fixture *f = *state;

    for (int loss = 0; loss < 2; loss++) {
        int seen[3] = { 0 };
        uint64_t k = 0;
        for (bool ended = false; !ended;) {
            memory_files *m = memory_files_open_wide(f->rt);
            uint64_t step;

            assert_int_equal(save(f, &m->rt, "c", 1), TUTTI_OK);
            m->operations = 0;
            m->fault = FAULT_STOP;
            m->fault_at = ++k;
            save(f, &m->rt, "c", 2);
            ended = !m->stopped;
            memory_files_crash(m, loss, loss);
            step = found_step(f, &m->rt, "c");
            seen[step]++;
            assert_true(!ended || step == 2);
            memory_files_close(m);
        }
        assert_true(seen[1] > 15 && seen[2] > 0);
    }
}

static void damage_and_failing_reads_are_found_while_reading_ahead(void **state)
{
    fixture *f = *state;
    memory_files *m = memory_files_open_wide(f->rt);
    uint8_t *back = malloc(LARGE), *data;
    const tutti_saved item = item_of(back, LARGE);
    tutti_error err = { 0 };
    tutti_checkpoint *c;
    size_t bytes, failed = 0;

    assert_int_equal(save(f, &m->rt, "c", 1), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&c, &m->rt, "c/step-00000001", NULL), TUTTI_OK);
    m->reads = 0;
    assert_int_equal(tutti_checkpoint_read(c, &item, 1, NULL), TUTTI_OK);
    assert_true(m->reads > 8);
    for (uint64_t k = m->reads; k > 0; k--) {
        m->reads = 0;
        m->fail_read_at = k;
        failed += tutti_checkpoint_read(c, &item, 1, &err) == TUTTI_ERR_IO;
        assert_non_null(strstr(err.text, "cannot read "));
        nothing_is_open(m);
    }
    assert_true(failed > 8);
    m->fail_read_at = 0;
    data = memory_files_get(m, "c/step-00000001/rank-00000-of-00001.safetensors", &bytes);
    data[bytes - 3 * MIB] ^= 1;
    assert_int_equal(tutti_checkpoint_read(c, &item, 1, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "tensor 'x/w@0' (elements [0, 8400953)) has hash "));
    assert_int_equal(tutti_checkpoint_verify(c, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "tensor 'x/w@0' (elements [0, 8400953)) has hash "));
    tutti_checkpoint_close(c);
    memory_files_close(m);
    free(back);
}

/* ---- past the page cache ---- */

/* A disk whose direct reads are of whole blocks, and shorter than asked for. */
static struct {
    enum { DIRECT, NOT_DIRECT, LARGER_BLOCKS } kind;
    atomic_bool on;
    atomic_int blocks, others;   /* reads of each kind */
} disk;

static int disk_direct(void *self, int fd, bool on)
{
    (void)self;
    (void)fd;
    atomic_store(&disk.on, on && disk.kind != NOT_DIRECT);
    return disk.kind == NOT_DIRECT ? EINVAL : 0;
}

static int disk_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    tutti_runtime *real = self;

    if (atomic_load(&disk.on)) {
        if (disk.kind == LARGER_BLOCKS || offset % TUTTI_FILE_BLOCK != 0 || bytes % TUTTI_FILE_BLOCK != 0 ||
            (uintptr_t)to % TUTTI_FILE_BLOCK != 0)
            return EINVAL;
        if (bytes > 5 * TUTTI_FILE_BLOCK && atomic_load(&disk.blocks) % 7 != 0)
            bytes = 5 * TUTTI_FILE_BLOCK - 100;
    }
    atomic_fetch_add(atomic_load(&disk.on) ? &disk.blocks : &disk.others, 1);
    return real->ops->file_read(real->self, fd, offset, to, bytes, done);
}

static void one_that_is_alone_reads_past_the_cache(void **state)
{
    fixture *f = *state;
    char base[] = "/tmp/tutti-stream-XXXXXX", dir[64], path[128], file[192];
    uint8_t *back = malloc(LARGE);
    const tutti_saved item = item_of(back, LARGE);
    tutti_runtime_ops ops = *f->rt->ops; /* whose functions look at no self */
    tutti_runtime rt = { &ops, f->rt };
    tutti_error err = { 0 };
    tutti_checkpoint *c;

    assert_non_null(mkdtemp(base));
    snprintf(dir, sizeof dir, "%s/c", base);
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    snprintf(file, sizeof file, "%s/rank-00000-of-00001.safetensors", path);
    assert_int_equal(save(f, f->rt, dir, 1), TUTTI_OK);
    ops.file_direct = disk_direct;
    ops.file_read = disk_read;
    for (int alone = 0; alone < 2; alone++)
        for (int kind = DIRECT; kind <= LARGER_BLOCKS; kind++) {
            const bool direct = alone == 1 && kind == DIRECT;
            disk.kind = (unsigned)kind;
            atomic_store(&disk.on, false);
            assert_int_equal(tutti_checkpoint_open(&c, &rt, path, NULL), TUTTI_OK);
            if (alone == 1)
                tutti_checkpoint_alone(c);
            for (int verify = 0; verify < 2; verify++) {
                memset(back, 0, LARGE);
                atomic_store(&disk.on, false);
                atomic_store(&disk.blocks, 0);
                atomic_store(&disk.others, 0);
                if (verify == 0)
                    assert_int_equal(tutti_checkpoint_read(c, &item, 1, &err), TUTTI_OK);
                else
                    assert_int_equal(tutti_checkpoint_verify(c, &err), TUTTI_OK);
                assert_true(atomic_load(&disk.blocks) > 8 ? direct : !direct);
                assert_true(atomic_load(&disk.others) > 8 ? !direct : direct); /* those of a header are few */
                if (verify == 0)
                    assert_memory_equal(back, f->values + 1, LARGE);
            }
            tutti_checkpoint_close(c);
        }
    /* and on the disk that is here */
    assert_int_equal(tutti_checkpoint_open(&c, f->rt, path, NULL), TUTTI_OK);
    tutti_checkpoint_alone(c);
    memset(back, 0, LARGE);
    assert_int_equal(tutti_checkpoint_read(c, &item, 1, NULL), TUTTI_OK);
    assert_memory_equal(back, f->values + 1, LARGE);
    tutti_checkpoint_close(c);
    free(back);
    assert_int_equal(remove(file), 0);
    snprintf(file, sizeof file, "%s/manifest.json", path);
    assert_int_equal(remove(file), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(base), 0);
}

/* A file that becomes shorter while it is read. */
static void blocks_beyond_the_end_are_reported(void **state)
{
    fixture *f = *state;
    static const struct { uint64_t bytes, offset, count; bool fits; } cases[] = {
        { 10000, 0, 10000, true },    { 10000, 4095, 2, true }, { 10000, 9999, 1, true },  { 8192, 8000, 192, true },
        { 10000, 5000, 5001, false }, { 8192, 8192, 1, false }, { 8192, 4096, 4097, false },
    };
    uint8_t *memory = malloc(8 * TUTTI_FILE_BLOCK), *to = memory + (-(uintptr_t)memory) % TUTTI_FILE_BLOCK;
    char path[] = "/tmp/tutti-stream-XXXXXX";
    const int fd = mkstemp(path);
    tutti_file *file;

    assert_true(fd >= 0 && write(fd, f->values, 10000) == 10000);
    assert_int_equal(tutti_file_open(&file, f->rt, path, TUTTI_FILE_READ, NULL), TUTTI_OK);
    tutti_file_read_direct(file); /* where the file system cannot, blocks come from the cache */
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { 0 };
        tutti_status status;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, f->values, cases[k].bytes, 0), (ssize_t)cases[k].bytes);
        status = tutti_file_read_blocks(file, cases[k].offset, to, cases[k].count, &err);
        assert_int_equal(status, cases[k].fits ? TUTTI_OK : TUTTI_ERR_CORRUPT);
        if (cases[k].fits)
            assert_memory_equal(to + cases[k].offset % TUTTI_FILE_BLOCK, f->values + cases[k].offset,
                                cases[k].count);
        else
            assert_non_null(strstr(err.text, " bytes were expected at offset "));
    }
    assert_int_equal(tutti_file_close(file, NULL), TUTTI_OK);
    close(fd);
    remove(path);
    free(memory);
}

static void allocation_failures_are_reported_and_keep_the_old_checkpoint(void **state)
{
    fixture *f = *state;
    uint8_t *back = malloc(LARGE);
    const tutti_saved item = item_of(back, LARGE);
    size_t failures = 0;
    bool reached = true;

    for (size_t at = 0; reached; at++) {
        memory_files *m = memory_files_open_wide(f->rt);
        saving s = { .f = f, .files = &m->rt, .dir = "c", .step = 2, .fail_at = at };
        assert_int_equal(save(f, &m->rt, "c", 1), TUTTI_OK);
        assert_int_equal(tutti_world_run("shm", 1, save_rank, &s, NULL), TUTTI_OK);
        reached = s.reached;
        if (s.status != TUTTI_OK && s.status != TUTTI_ERR_MEMORY)
            fail_msg("allocation %zu: %s", at, s.err.text);
        assert_int_equal(found_step(f, &m->rt, "c"), s.status == TUTTI_OK ? 2 : 1);
        nothing_is_open(m);
        failures += s.status != TUTTI_OK;
        if (!reached) { /* and reading */
            tutti_status status = TUTTI_ERR_MEMORY;
            size_t k;
            for (k = 0; status != TUTTI_OK; k++) {
                tutti_checkpoint *c;
                assert_int_equal(tutti_checkpoint_open(&c, &m->rt, "c/step-00000002", NULL), TUTTI_OK);
                until_failure = k;
                status = tutti_checkpoint_read(c, &item, 1, NULL);
                until_failure = SIZE_MAX;
                assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
                nothing_is_open(m);
                tutti_checkpoint_close(c);
            }
            assert_true(k > 8);
        }
        memory_files_close(m);
    }
    assert_true(failures > 25); /* the monitor and four threads among them */
    free(back);
}

/* ---- a real process on a real disk ---- */

static atomic_int writes_left;

/* The process ends in the middle of a write, without warning, whatever its other threads do. */
static int killed_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    tutti_runtime *real = self;

    if (atomic_fetch_sub(&writes_left, 1) == 0) {
        real->ops->file_write_at(real->self, fd, offset, from, bytes / 2, done);
        _exit(99);
    }
    return real->ops->file_write_at(real->self, fd, offset, from, bytes, done);
}

static void kill_in_any_write_leaves_the_old_checkpoint(void **state)
{
    fixture *f = *state;
    char base[] = "/tmp/tutti-stream-XXXXXX", dir[64], path[128];
    int outcome = 99, k;

    assert_non_null(mkdtemp(base));
    snprintf(dir, sizeof dir, "%s/c", base);
    assert_int_equal(save(f, f->rt, dir, 1), TUTTI_OK);
    for (k = 0; outcome == 99; k++) {
        const pid_t child = fork();
        int ended;
        assert_true(child >= 0);
        if (child == 0) {
            tutti_runtime_ops ops = *f->rt->ops; /* whose functions look at no self */
            tutti_runtime killed = { &ops, f->rt };
            ops.file_write_at = killed_write_at;
            atomic_store(&writes_left, k);
            _exit(save(f, &killed, dir, 2) == TUTTI_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended));
        outcome = WEXITSTATUS(ended);
        assert_int_equal(found_step(f, f->rt, dir), outcome == 99 ? 1 : 2);
    }
    assert_int_equal(outcome, 0);
    assert_true(k > 8);
    snprintf(path, sizeof path, "%s/step-00000002/rank-00000-of-00001.safetensors", dir);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "%s/step-00000002/manifest.json", dir);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "%s/step-00000002", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0); /* what the killed ones have left is gone */
    assert_int_equal(rmdir(base), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(file_contents_do_not_depend_on_the_writer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failing_operation_is_reported_and_keeps_the_earlier_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(halt_at_any_operation_leaves_old_or_new_checkpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_and_failing_reads_are_found_while_reading_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_alone_reads_past_the_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(blocks_beyond_the_end_are_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocation_failures_are_reported_and_keep_the_old_checkpoint, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(kill_in_any_write_leaves_the_old_checkpoint, set_up, tear_down),
    };
#if SANITIZED_THREAD /* there each operation of the rest fails in turn, which takes minutes */
    int failed = 0;
    static const char *const threads[] = {
        "file_contents_do_not_depend_on_the_writer", "damage_and_failing_reads_are_found_while_reading_ahead",
        "one_that_is_alone_reads_past_the_cache",
    };
    for (size_t k = 0; k < TUTTI_LENGTH(threads); k++) {
        cmocka_set_test_filter(threads[k]);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
