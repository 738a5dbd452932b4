/* Goal: a tier gives back what was written, whatever the offsets, sizes, addresses, engine and
   order. When it bypasses the page cache it moves exactly the bytes of the formula. It is
   bounded, and nothing of it is left behind. Method: the same requests to a tier and to an array;
   /proc/self/io; a child that is killed; a child to which the kernel refuses io_uring. */
#include "disk.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static char spec_text[600];

/* Every kind of tier that this machine has; NULL after the last. */
static const char *spec_of(tutti_runtime *rt, int k, const char *more)
{
    static const struct { const char *engine, *direct; } kinds[] = {
        { "uring", "on" }, { "threads", "on" }, { "uring", "off" }, { "threads", "off" }, { NULL, NULL },
    };
    const char *engine, *direct;

    if (k > 4)
        return NULL;
    engine = kinds[k].engine;
    direct = kinds[k].direct;
    if (engine == NULL)
        return "host";
    if (strcmp(direct, "on") == 0)
        direct = disk_direct(rt);
    if (strcmp(engine, "uring") == 0 && !uring_allowed(rt))
        engine = "threads";
    snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",engine=%s,direct=%s%s)", DISK, engine, direct, more);
    return spec_text;
}

static uint64_t draw(uint64_t *at, uint64_t below)
{
    return tutti_random((tutti_rng){ 5, 6, 7 }, (*at)++) % below;
}

static tutti_status one(tutti_tier *t, bool write, uint64_t at, void *memory, size_t bytes, tutti_error *err)
{
    tutti_io io = { 0 }, *const list = &io;
    const tutti_status status =
        write ? tutti_tier_write(t, &io, at, memory, bytes, err) : tutti_tier_read(t, &io, at, memory, bytes, err);

    return status != TUTTI_OK ? status : tutti_tier_wait(t, &list, 1, err);
}

/* Writes of the round are parts of the tier between random cuts, so they meet in blocks; all are
   in flight at once. Then as many reads of anything. */
static void data_reads_back_at_any_offset_size_and_address(void **state)
{
    enum { BYTES = 3 * BLOCK * 16 + 77, AT_ONCE = 24, ROUNDS = 12 };
    tutti_runtime *rt = runtime_of_test();
    const char *spec;

    (void)state;
    for (int k = 0; (spec = spec_of(rt, k, ",depth=6,block=16384")) != NULL; k++) {
        char *image = calloc(1, BYTES), *out = calloc(1, 2 * BYTES + AT_ONCE * BLOCK), *in = malloc(4 * BYTES);
        tutti_io io[AT_ONCE] = { { 0 } }, *list[AT_ONCE];
        uint64_t seed = 100 * (uint64_t)k;
        tutti_error err = { 0 };
        tutti_tier *t;

        for (int r = 0; r < AT_ONCE; r++)
            list[r] = &io[r];
        if (tutti_tier_open(&t, rt, spec, BYTES, NULL, &err) != TUTTI_OK)
            fail_msg("%s: %s", spec, err.text);
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t at = 0;
            char *from = out;
            for (int r = 0; r < AT_ONCE; r++) {
                uint64_t bytes = r + 1 == AT_ONCE ? BYTES - at : draw(&seed, 2 * BYTES / AT_ONCE);
                if (bytes > BYTES - at)
                    bytes = BYTES - at;
                if (r % 4 == 0) /* as far from a block's start as its place is: direct except for the ends */
                    from += (at + 2 * BLOCK - (uintptr_t)from % BLOCK) % BLOCK;
                for (uint64_t i = 0; i < bytes; i++)
                    from[i] = image[at + i] = (char)(i * 7 + at + (uint64_t)round);
                assert_int_equal(tutti_tier_write(t, &io[r], at, from, bytes, NULL), TUTTI_OK);
                from += bytes;
                at += bytes;
            }
            if (tutti_tier_wait(t, list, AT_ONCE, &err) != TUTTI_OK)
                fail_msg("%s: %s", spec, err.text);
            from = in;
            for (int r = 0; r < AT_ONCE; r++) {
                uint64_t first = draw(&seed, BYTES), bytes = draw(&seed, BYTES / 8);
                if (bytes > BYTES - first)
                    bytes = BYTES - first;
                io[r] = (tutti_io){ 0 };
                memset(from, 0x55, bytes + 1);
                assert_int_equal(tutti_tier_read(t, &io[r], first, from, bytes, NULL), TUTTI_OK);
                from += bytes + 1;
            }
            assert_int_equal(tutti_tier_wait(t, list, AT_ONCE, &err), TUTTI_OK);
            for (int r = 0; r < AT_ONCE; r++) {
                assert_true(tutti_tier_done(t, &io[r]));
                assert_memory_equal(io[r].memory, image + io[r].at, io[r].bytes);
                assert_int_equal(io[r].memory[io[r].bytes], 0x55); /* and nothing behind it */
            }
        }
        assert_true(tutti_tier_count(t).under_way_peak <= 6);
        tutti_tier_close(t);
        free(image), free(out), free(in);
    }
    tutti_runtime_close(rt);
}

typedef struct lane { tutti_tier *t; int index; bool failed; } lane;

enum { LANES = 4, LANE_BYTES = 5 * BLOCK + 1000, TURNS = 60 };

/* A part of its own, whose ends lie in blocks of its neighbours' parts. */
static tutti_status lane_run(void *arg, tutti_error *err)
{
    lane *l = arg;
    char *mine = malloc(LANE_BYTES), *back = malloc(LANE_BYTES);

    for (int turn = 0; turn < TURNS && !l->failed; turn++) {
        memset(mine, 16 * l->index + turn % 16, LANE_BYTES);
        memset(back, 0, LANE_BYTES);
        l->failed = one(l->t, true, (uint64_t)l->index * LANE_BYTES, mine, LANE_BYTES, err) != TUTTI_OK ||
                    one(l->t, false, (uint64_t)l->index * LANE_BYTES, back, LANE_BYTES, err) != TUTTI_OK ||
                    memcmp(mine, back, LANE_BYTES) != 0;
    }
    free(mine), free(back);
    return TUTTI_OK;
}

static void lanes_can_share_a_tier_and_its_boundary_blocks(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    const char *spec;

    (void)state;
    for (int k = 0; (spec = spec_of(rt, k, ",depth=3,block=8192")) != NULL; k++) {
        tutti_thread *thread[LANES];
        lane lanes[LANES];
        tutti_tier *t;

        assert_int_equal(tutti_tier_open(&t, rt, spec, LANES * LANE_BYTES, NULL, NULL), TUTTI_OK);
        for (int l = 0; l < LANES; l++) {
            lanes[l] = (lane){ .t = t, .index = l };
            assert_int_equal(tutti_thread_open(&thread[l], rt, "lane", lane_run, &lanes[l], NULL), TUTTI_OK);
        }
        for (int l = 0; l < LANES; l++) {
            tutti_thread_join(thread[l], NULL);
            assert_false(lanes[l].failed);
        }
        tutti_tier_close(t);
    }
    tutti_runtime_close(rt);
}

/* More requests than may wait: the thread that posts is held up, not refused, and closing waits
   for all. */
static void closing_waits_for_all_posted_requests(void **state)
{
    enum { REQUESTS = 200 };
    tutti_runtime *rt = runtime_of_test();
    const char *spec;

    (void)state;
    for (int k = 0; (spec = spec_of(rt, k, ",depth=2,block=4096")) != NULL; k++) {
        static tutti_io io[REQUESTS];
        static char from[REQUESTS][BLOCK];
        tutti_error err;
        tutti_tier *t;
        char byte = 0;

        memset(io, 0, sizeof io);
        assert_int_equal(tutti_tier_open(&t, rt, spec, REQUESTS * BLOCK, NULL, &err), TUTTI_OK);
        for (int r = 0; r < REQUESTS; r++) {
            memset(from[r], r, BLOCK);
            assert_int_equal(tutti_tier_write(t, &io[r], (uint64_t)r * BLOCK, from[r], BLOCK, NULL), TUTTI_OK);
        }
        assert_int_equal(one(t, false, REQUESTS * BLOCK - 1, &byte, 1, NULL), TUTTI_OK);
        tutti_tier_close(t);
        for (int r = 0; r < REQUESTS; r++)
            assert_true(!io[r].under_way && io[r].status == TUTTI_OK);
    }
    tutti_runtime_close(rt);
}

static void tier_misuse_is_rejected(void **state)
{
    static const struct { const char *spec, *says; } bad[] = {
        { "hots", "unknown tier 'hots'; did you mean 'host'? (there are host and nvme(path=DIR))" },
        { "nvme", "tier 'nvme': path is missing; name a directory on the disk: nvme(path=DIR)" },
        { "nvme(path=/,block=5000)", "tier 'nvme': block=5000 is no multiple of 4096" },
        { "nvme(path=/nowhere)", "tier 'nvme': cannot learn the space left at '/nowhere'; check the path "
                                 "(No such file or directory)" },
        { "nvme(path=/proc/self/maps)", NULL },
        { "nvme(path=/,depth=0)", NULL },
        { "nvme(path=/,engine=fast)", NULL },
        { "nvme(path", NULL },
        { "host(x=1)", NULL },
    };
    tutti_runtime *rt = runtime_of_test();
    tutti_io io = { 0 }, *const list = &io;
    tutti_error err;
    tutti_tier *t;
    char byte[8] = { 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(bad); k++) {
        assert_int_not_equal(tutti_tier_open(&t, rt, bad[k].spec, 4096, NULL, &err), TUTTI_OK);
        assert_null(t);
        assert_true(strlen(err.text) > 10);
        if (bad[k].says != NULL)
            assert_string_equal(err.text, bad[k].says);
    }
    assert_int_equal(tutti_tier_open(&t, rt, "host", 0, NULL, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_tier_open(&t, rt, "host", UINT64_C(1) << 60, NULL, &err), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "1152921504606846976 bytes are needed and this process may have "));

    assert_int_equal(tutti_tier_open(&t, rt, "host", 100, NULL, &err), TUTTI_OK);
    assert_int_equal(tutti_tier_write(t, &io, 96, byte, 5, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "tier 'host' has 100 bytes, and 5 of them cannot be written from 96 on");
    assert_int_equal(tutti_tier_read(t, &io, UINT64_MAX, byte, 5, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_tier_wait(t, &list, 1, &err), TUTTI_OK); /* nothing was posted */
    assert_int_equal(tutti_tier_read(t, &io, 100, byte, 0, &err), TUTTI_OK);
    assert_int_equal(tutti_tier_wait(t, &list, 1, &err), TUTTI_OK);
    io.under_way = true;
    assert_int_equal(tutti_tier_read(t, &io, 0, byte, 5, &err), TUTTI_ERR_STATE);
    tutti_tier_close(t);
    tutti_tier_close(NULL);
    tutti_runtime_close(rt);
}

static void a_tier_of_host_memory_is_counted_and_has_an_address(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    tutti_error err;
    tutti_arena *a;
    tutti_tier *t;
    char word[4] = "abc", out[200];

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "host memory", "raise the limit", 5000, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_open(&t, rt, "host", 5001, a, &err), TUTTI_ERR_MEMORY);
    assert_string_equal(err.text, "tier 'host': host memory: 'tier host' needs 5001 bytes, and 5000 of 5000 are free; "
                                  "raise the limit to 5001 at least");
    assert_int_equal(tutti_tier_open(&t, rt, "host", 5000, a, &err), TUTTI_OK);
    assert_int_equal(tutti_arena_count(a, NULL).now, 5000);
    assert_int_equal(tutti_tier_block(t), 1);
    assert_int_equal(tutti_tier_bytes(t), 5000);
    assert_int_equal(one(t, true, 7, word, 3, NULL), TUTTI_OK);
    assert_memory_equal((char *)tutti_tier_address(t) + 6, "\0abc\0", 5);
    assert_false(tutti_tier_pin(t, word, 4));
    tutti_tier_describe(t, out, sizeof out);
    assert_string_equal(out, "host: 0.0 MiB of memory");
    tutti_tier_close(t);
    assert_int_equal(tutti_arena_count(a, NULL).now, 0);
    /* nvme counts its staging, and nothing that grows with the tier */
    if (strcmp(disk_direct(rt), "on") == 0) {
        snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",depth=3,block=4096)", DISK);
        assert_int_equal(tutti_tier_open(&t, rt, spec_text, 1000000, a, &err), TUTTI_ERR_MEMORY);
        assert_non_null(strstr(err.text, "'tier nvme: staging' needs 12288 bytes, and 5000 of 5000 are free"));
    }
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

static void tmpfs_directory_is_rejected_unless_direct_io_is_off(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    struct statfs about;
    tutti_error err;
    tutti_tier *t;
    char out[400];

    (void)state;
    if (statfs("/dev/shm", &about) != 0 || about.f_type != 0x01021994) {
        printf("skipped: /dev/shm is no tmpfs here\n");
        tutti_runtime_close(rt);
        return;
    }
    assert_int_equal(tutti_tier_open(&t, rt, "nvme(path=/dev/shm)", 65536, NULL, &err), TUTTI_ERR_IO);
    assert_string_equal(err.text, "tier 'nvme': what is in '/dev/shm' cannot be read and written past the "
                                  "page cache in blocks of 4096 bytes: it is memory, or a disk with other blocks; "
                                  "choose another place, or allow the page cache (direct=off)");
    assert_int_equal(
        tutti_tier_open(&t, rt, "nvme(path=/dev/shm,direct=off,engine=threads,depth=2)", 65536, NULL, &err), TUTTI_OK);
    tutti_tier_describe(t, out, sizeof out);
    assert_string_equal(out, "nvme in '/dev/shm': 0.1 MiB, through the page cache, 2 threads, "
                             "2 x 1048576 bytes at a time");
    tutti_tier_close(t);
    tutti_runtime_close(rt);
}

static void tier_larger_than_the_disk_is_rejected(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    tutti_error err;
    tutti_tier *t;
    uint64_t left;

    (void)state;
    snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",direct=off)", DISK);
    assert_int_equal(tutti_space_left(rt, DISK, &left, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_open(&t, rt, spec_text, left + (UINT64_C(1) << 40), NULL, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "tier 'nvme': "));
    assert_non_null(strstr(err.text, " MiB are needed in '" DISK "', which has space for "));
    assert_non_null(strstr(err.text, "; free space there or choose another place (No space left on device)"));
    tutti_runtime_close(rt);
}

/* ---- what /proc/self/io reports ---- */
static uint64_t proc_io(const char *name)
{
    FILE *f = fopen("/proc/self/io", "r");
    char line[100];
    unsigned long long value = UINT64_MAX;

    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ": %llu", &value);
    if (f != NULL)
        fclose(f);
    return value;
}

static void disk_traffic_matches_the_formula(void **state)
{
    enum { BYTES = 40 * BLOCK };
    tutti_runtime *rt = runtime_of_test();
    const char *spec;

    (void)state;
    if (strcmp(disk_direct(rt), "on") != 0 || proc_io("read_bytes") == UINT64_MAX) {
        printf("skipped: /proc/self/io beside a disk\n");
        tutti_runtime_close(rt);
        return;
    }
    for (int k = 0; k < 2 && (spec = spec_of(rt, k, ",depth=4,block=16384")) != NULL; k++) {
        char *memory, *whole;
        tutti_tier_sum before, after;
        uint64_t reads, writes;
        tutti_tier *t;

        assert_int_equal(posix_memalign((void **)&memory, BLOCK, BYTES + BLOCK), 0);
        memset(memory, 3, BYTES + BLOCK);
        whole = memory;
        assert_int_equal(tutti_tier_open(&t, rt, spec, BYTES, NULL, NULL), TUTTI_OK);
        assert_int_equal(one(t, true, 0, whole, BYTES, NULL), TUTTI_OK); /* the file system has now its own to do */
        before = tutti_tier_count(t);
        reads = proc_io("read_bytes");
        writes = proc_io("write_bytes");

        assert_int_equal(one(t, true, 0, whole, BYTES, NULL), TUTTI_OK);
        assert_int_equal(one(t, false, BLOCK, whole, 9 * BLOCK, NULL), TUTTI_OK);
        after = tutti_tier_count(t);
        assert_int_equal(after.disk_written - before.disk_written, BYTES);
        assert_int_equal(after.disk_read - before.disk_read, 9 * BLOCK);
        assert_int_equal(after.staged, 0);
        /* [100, 2 BLOCK + 300): two outer blocks are read and three written; then three read */
        assert_int_equal(one(t, true, 100, memory + 100, 2 * BLOCK + 200, NULL), TUTTI_OK);
        assert_int_equal(one(t, false, 100, memory + 100, 2 * BLOCK + 200, NULL), TUTTI_OK);
        after = tutti_tier_count(t);
        assert_int_equal(after.disk_written - before.disk_written, BYTES + 3 * BLOCK);
        assert_int_equal(after.disk_read - before.disk_read, (9 + 2 + 3) * BLOCK);
        assert_int_equal(after.written - before.written, BYTES + 2 * BLOCK + 200);
        assert_int_equal(after.read, 9 * BLOCK + 2 * BLOCK + 200);
        assert_int_equal(after.staged, 2 * (BLOCK + 200));
        assert_int_equal(after.requests - before.requests, 4);
        assert_int_equal(proc_io("read_bytes") - reads, after.disk_read - before.disk_read);
        assert_int_equal(proc_io("write_bytes") - writes, after.disk_written - before.disk_written);
        tutti_tier_close(t);
        free(memory);
    }
    tutti_runtime_close(rt);
}

static void pinned_memory_gives_the_same_bytes(void **state)
{
    enum { BYTES = 64 * BLOCK };
    tutti_runtime *rt = runtime_of_test();
    tutti_arena *a;
    tutti_tier *t;
    void *memory;
    char out[500];

    (void)state;
    assert_int_equal(tutti_arena_open(&a, rt, "host memory", "", TUTTI_UNBOUNDED, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_take(a, "tiles", BYTES, BLOCK, &memory, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_open(&t, rt, spec_of(rt, 0, ""), BYTES, a, NULL), TUTTI_OK);
    if (!tutti_tier_pin(t, memory, BYTES))
        printf("skipped: pinned memory\n");
    for (int i = 0; i < BYTES; i++)
        ((char *)memory)[i] = (char)(i / 3);
    assert_int_equal(one(t, true, 0, memory, BYTES, NULL), TUTTI_OK);
    memset(memory, 0, BYTES);
    assert_int_equal(one(t, false, 0, memory, BYTES, NULL), TUTTI_OK);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(((char *)memory)[i], (char)(i / 3));
    tutti_tier_describe(t, out, sizeof out);
    print_message("%s\n", out);
    tutti_tier_close(t);
    tutti_arena_give(a, memory);
    tutti_arena_close(a);
    tutti_runtime_close(rt);
}

/* ---- children ---- */
static int entries_of(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void a_killed_process_leaves_no_tier_files(void **state)
{
    char folder[] = DISK "/tier-XXXXXX", ready = 0;
    int pipes[2], status;
    tutti_runtime *rt = runtime_of_test();
    uint64_t before;
    pid_t child;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        tutti_tier *t;
        snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",direct=%s)", folder, disk_direct(rt));
        ready = tutti_tier_open(&t, rt, spec_text, 1 << 24, NULL, NULL) == TUTTI_OK && entries_of(folder) == 2;
        if (write(pipes[1], &ready, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(pipes[0], &ready, 1), 1);
    assert_int_equal(ready, 1);
    assert_int_equal(tutti_space_left(rt, folder, &before, NULL), TUTTI_OK);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(entries_of(folder), 2); /* . and .. */
    assert_int_equal(rmdir(folder), 0);
    close(pipes[0]), close(pipes[1]);
    tutti_runtime_close(rt);
}

/* The file has no name, so it cannot be removed by others either. */
static void an_open_tier_survives_removal_of_its_directory(void **state)
{
    char folder[] = DISK "/tier-XXXXXX", text[5] = "tier";
    tutti_runtime *rt = runtime_of_test();
    tutti_error err;
    tutti_tier *t;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",direct=%s)", folder, disk_direct(rt));
    assert_int_equal(tutti_tier_open(&t, rt, spec_text, 1 << 20, NULL, NULL), TUTTI_OK);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(one(t, true, 70000, text, 5, NULL), TUTTI_OK);
    memset(text, 0, 5);
    assert_int_equal(one(t, false, 70000, text, 5, NULL), TUTTI_OK);
    assert_string_equal(text, "tier");
    tutti_tier_close(t);
    assert_int_equal(tutti_tier_open(&t, rt, spec_text, 1 << 20, NULL, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "cannot learn the space left at '"));
    tutti_runtime_close(rt);
}

/* From here on io_uring_setup is not permitted to this process. */
static bool refuse_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { TUTTI_LENGTH(code), code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int without_uring(tutti_runtime *rt)
{
    char text[5] = "tier", out[600], want[] = "the kernel refuses io_uring with 4 transfers under way";
    tutti_error err;
    tutti_tier *t;

    snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",depth=4,engine=uring,direct=off)", DISK);
    if (tutti_tier_open(&t, rt, spec_text, 9999, NULL, &err) == TUTTI_OK || strstr(err.text, want) == NULL ||
        strstr(err.text, "(Operation not permitted); engine=threads does without") == NULL)
        return 1;
    snprintf(spec_text, sizeof spec_text, "nvme(path=\"%s\",depth=4,direct=off)", DISK);
    if (tutti_tier_open(&t, rt, spec_text, 9999, NULL, &err) != TUTTI_OK)
        return 2;
    tutti_tier_describe(t, out, sizeof out);
    if (strstr(out, "4 threads, since ") == NULL || strstr(out, want) == NULL)
        return 3;
    if (one(t, true, 5000, text, 5, NULL) != TUTTI_OK)
        return 4;
    memset(text, 0, 5);
    if (one(t, false, 5000, text, 5, NULL) != TUTTI_OK || strcmp(text, "tier") != 0)
        return 5;
    tutti_tier_close(t);
    return 0;
}

static void threads_replace_io_uring_if_the_kernel_refuses_it(void **state)
{
    tutti_runtime *rt = runtime_of_test();
    int status;
    pid_t child;

    (void)state;
    if (!uring_allowed(rt)) {
        tutti_runtime_close(rt);
        return;
    }
    child = fork();
    if (child == 0)
        _exit(refuse_uring() ? without_uring(rt) : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("skipped: this system has no seccomp filters\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
    tutti_runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_replace_io_uring_if_the_kernel_refuses_it),
        cmocka_unit_test(a_killed_process_leaves_no_tier_files),
        cmocka_unit_test(an_open_tier_survives_removal_of_its_directory),
        cmocka_unit_test(data_reads_back_at_any_offset_size_and_address),
        cmocka_unit_test(lanes_can_share_a_tier_and_its_boundary_blocks),
        cmocka_unit_test(closing_waits_for_all_posted_requests),
        cmocka_unit_test(tier_misuse_is_rejected),
        cmocka_unit_test(a_tier_of_host_memory_is_counted_and_has_an_address),
        cmocka_unit_test(tmpfs_directory_is_rejected_unless_direct_io_is_off),
        cmocka_unit_test(tier_larger_than_the_disk_is_rejected),
        cmocka_unit_test(disk_traffic_matches_the_formula),
        cmocka_unit_test(pinned_memory_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
