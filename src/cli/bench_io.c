/* bench_io.c: `tutti bench io`: how fast checkpoints are written and read, compared with the disk
   of the same directory.

   The disk is measured as fio does it: O_DIRECT, blocks of 1 MiB, 8 of them in flight (here 8
   threads with one each), then fsync. As with fio, the file's space is allocated before the clock
   starts, and the file that it replaces is removed before.

   A checkpoint writes the same number of bytes, hashes them, and is durable at its end; its time
   includes all of that. A run also removes its oldest checkpoint, which takes long on some disks
   (discard): the second write of a round includes the removal, and is a figure of its own. Before
   reading, the pages of the checkpoint are dropped from the cache, so that the disk is read. Where
   the file system refuses O_DIRECT (tmpfs) the disk is measured with ordinary writes, which the
   report states. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bench_internal.h"
#include "runtime/files.h"
#include "base/options.h"
#include "kernels/device.h"
#include "state/read.h"

typedef struct config { tutti_bench_common common; const char *dir, *bytes; } config;
const tutti_option tutti_bench_io_options[] = {
    { "dir", TUTTI_TEXT, TUTTI_AT(config, dir), 0, 0, 0, ".",
      "on the disk to measure; a folder is made in it and removed" },
    { "bytes", TUTTI_TEXT, TUTTI_AT(config, bytes), 0, 0, 0, "256MiB", "of a checkpoint" },
    TUTTI_BENCH_COMMON(config),
    { "with-peers", TUTTI_BOOL, TUTTI_AT(config, common.with_peers), 0, 0, 1, NULL,
      "run fio too; it is an error if it is absent" },
    { 0 }
};

enum { BLOCK = 1 << 20, FLIGHT = 8, TENSORS = 16, PAGE = 4096 };
enum {
    WRITE_DIRECT,
    WRITE_CHECKPOINT,
    REPLACE_CHECKPOINT,
    READ_DIRECT,
    READ_CHECKPOINT,
    WRITE_FIO,
    READ_FIO,
    FIGURES
};
static const char *const figure_names[FIGURES] = {
    "direct write", "checkpoint write", "checkpoint write, older removed",
    "direct read",  "checkpoint read",  "fio write",
    "fio read"
};

typedef struct bench {
    tutti_bench b;
    config config;
    tutti_bench_folder folder;
    tutti_world *world;
    size_t bytes;               /* a multiple of BLOCK */
    char *memory, *values;      /* values: in memory, at a page */
    char found[4200];           /* the checkpoint that was read last */
    bool direct, fio_absent;
    double *rate[FIGURES];      /* GB/s of each round */
} bench;

typedef struct lane { bench *k; int fd, index; bool write; } lane;

static tutti_status lane_run(void *arg, tutti_error *err)
{
    const lane *l = arg;

    for (size_t at = (size_t)l->index * BLOCK; at < l->k->bytes; at += (size_t)FLIGHT * BLOCK)
        for (size_t done = 0; done < BLOCK;) {
            char *place = l->k->values + at + done;
            const off_t offset = (off_t)(at + done);
            const ssize_t got = l->write ? pwrite(l->fd, place, BLOCK - done, offset)
                                         : pread(l->fd, place, BLOCK - done, offset);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return tutti_fail(err, TUTTI_ERR_IO, got < 0 ? errno : EIO,
                                  "%s the file of the yardstick at byte %zu of %zu",
                                  l->write ? "writing" : "reading", at + done, l->k->bytes);
            done += (size_t)got;
        }
    return TUTTI_OK;
}

/* Opens the file of the yardstick, with O_DIRECT where the file system has it, and allocates it for
   a write. *fd: close it. */
static tutti_status open_direct(bench *k, bool write, int *fd, tutti_error *err)
{
    char path[4200];
    tutti_status status;
    snprintf(path, sizeof path, "%s/direct", k->folder.path);
    *fd = open(path,
               (write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY) | (k->direct ? O_DIRECT : 0) |
                   O_CLOEXEC,
               0600);
    if (*fd < 0 && errno == EINVAL && k->direct) {
        k->direct = false;
        *fd = open(path, (write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC, 0600);
    }
    if (*fd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "opening '%.300s'", path);
    if (write && fallocate(*fd, 0, 0, (off_t)k->bytes) != 0 && errno != EOPNOTSUPP) {
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "allocating %zu bytes for '%.300s'", k->bytes,
                            path);
        close(*fd);
        return status;
    }
    if (!write)
        posix_fadvise(*fd, 0, 0, POSIX_FADV_DONTNEED);
    return TUTTI_OK;
}

static tutti_status direct(bench *k, bool write, double *rate, tutti_error *err)
{
    tutti_thread *thread[FLIGHT] = { NULL };
    lane lanes[FLIGHT];
    tutti_status status = TUTTI_OK, last;
    int64_t begin;
    int fd;

    TUTTI_TRY(open_direct(k, write, &fd, err));
    begin = tutti_now_ns(k->b.rt);
    for (int i = 0; i < FLIGHT && status == TUTTI_OK; i++) {
        lanes[i] = (lane){ .k = k, .fd = fd, .index = i, .write = write };
        status = tutti_thread_open(&thread[i], k->b.rt, "direct", lane_run, &lanes[i], err);
    }
    for (int i = 0; i < FLIGHT; i++)
        if (thread[i] != NULL &&
            (last = tutti_thread_join(thread[i], status == TUTTI_OK ? err : NULL)) != TUTTI_OK &&
            status == TUTTI_OK)
            status = last;
    if (status == TUTTI_OK && write && fsync(fd) != 0)
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "syncing '%.300s/direct'", k->folder.path);
    *rate = (double)k->bytes / (double)(tutti_now_ns(k->b.rt) - begin);
    close(fd);
    return status;
}

/* Drops the pages of a file from the cache. */
static tutti_status drop_file(void *user, const char *name, tutti_error *err)
{
    char path[8192];
    int fd;

    (void)err;
    snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return TUTTI_OK;
}

static void items_of(const bench *k, tutti_saved items[TENSORS], char names[TENSORS][16])
{
    const size_t count = k->bytes / TENSORS / sizeof(float);

    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], 16, "%d.weight", i);
        items[i] = (tutti_saved){ .state = "x",
                                  .tensor = names[i],
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_F32,
                                  .owner = -1,
                                  .count = count,
                                  .end = count,
                                  .data = k->values + (size_t)i * count * sizeof(float) };
    }
}

static tutti_status checkpoint_write(bench *k, uint64_t step, int keep, double *rate,
                                     tutti_error *err)
{
    tutti_saved items[TENSORS];
    char names[TENSORS][16];
    int64_t begin;

    items_of(k, items, names);
    begin = tutti_now_ns(k->b.rt);
    TUTTI_TRY(
        tutti_checkpoint_save(k->world, k->folder.path, step, items, TENSORS, "{}", keep, err));
    *rate = (double)k->bytes / (double)(tutti_now_ns(k->b.rt) - begin);
    return TUTTI_OK;
}

/* Removes the checkpoint of the previous round. */
static tutti_status remove_last(void *user, const char *name, tutti_error *err)
{
    char path[8192];

    snprintf(path, sizeof path, "%s/%s", ((const bench *)user)->found, name);
    return tutti_file_remove(((const bench *)user)->b.rt, path, err);
}

static tutti_status checkpoint_read(bench *k, uint64_t step, tutti_error *err)
{
    tutti_saved items[TENSORS];
    char names[TENSORS][16], *const found = k->found;
    const uint64_t hash = tutti_hash(k->values, k->bytes);
    tutti_checkpoint *c = NULL;
    tutti_status status;
    int64_t begin;

    TUTTI_TRY(tutti_checkpoint_find(k->b.rt, k->folder.path, found, sizeof k->found, NULL, 0, err));
    TUTTI_TRY(tutti_directory_list(k->b.rt, found, drop_file, found, err));
    memset(k->values, 0, k->bytes);
    items_of(k, items, names);
    begin = tutti_now_ns(k->b.rt);
    status = tutti_checkpoint_open(&c, k->b.rt, found, err);
    if (status == TUTTI_OK) {
        tutti_checkpoint_alone(c);
        status = tutti_checkpoint_read(c, items, TENSORS, err);
    }
    k->rate[READ_CHECKPOINT][step] = (double)k->bytes / (double)(tutti_now_ns(k->b.rt) - begin);
    tutti_checkpoint_close(c);
    if (status == TUTTI_OK && tutti_hash(k->values, k->bytes) != hash)
        status = tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "the checkpoint in '%.200s' was read with other values than were written", found);
    return status;
}

/* Runs the script of fio, which prints "WRITE READ" in bytes a second. */
static tutti_status fio(bench *k, const char *peers, int64_t r, tutti_error *err)
{
    char script[4200], size[32], *text;
    double write, read;
    int code;
    tutti_status status;

    snprintf(script, sizeof script, "%s/disk", peers);
    snprintf(size, sizeof size, "%zu", k->bytes);
    status = tutti_bench_capture((const char *const[]){ script, k->folder.path, size, NULL }, &text,
                                 &code, err);
    k->fio_absent = code == TUTTI_BENCH_ABSENT;
    if (status == TUTTI_OK && !k->fio_absent &&
        (code != 0 || sscanf(text, "%lf %lf", &write, &read) != 2))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "fio gave no figures (exit code %d); run `%s DIR %s` to see why", code,
                            script, size);
    if (status == TUTTI_OK && !k->fio_absent) {
        k->rate[WRITE_FIO][r] = write * 1e-9;
        k->rate[READ_FIO][r] = read * 1e-9;
    }
    tutti_free(text);
    return status;
}

static tutti_status open_all(bench *k, tutti_error *err)
{
    uint64_t room;

    TUTTI_TRY(tutti_bytes_parse(k->config.bytes, strlen(k->config.bytes), &k->bytes, err));
    k->bytes = (k->bytes + BLOCK - 1) / BLOCK * BLOCK;
    k->direct = true;
    TUTTI_TRY(tutti_space_left(k->b.rt, k->config.dir, &room, err));
    if (room / 3 < k->bytes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%.200s' has %llu MiB free, but three times %zu MiB are needed; use a smaller --bytes",
            k->config.dir, (unsigned long long)(room >> 20), k->bytes >> 20);
    k->memory = tutti_alloc(k->bytes + PAGE, 1);
    if (k->memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "%zu bytes to write; ask for less with --bytes", k->bytes);
    k->values = k->memory + (PAGE - (uintptr_t)k->memory % PAGE) % PAGE;
    for (int i = 0; i < FIGURES; i++)
        if ((k->rate[i] = tutti_alloc((size_t)k->config.common.repeat, sizeof(double))) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples");
    TUTTI_TRY(tutti_world_open(&k->world, "shm", err));
    tutti_fill_normal(tutti_world_device(k->world), k->bytes / sizeof(float),
                      (tutti_rng){ 1, 2, 3 }, (float *)(void *)k->values);
    return tutti_bench_folder_make(&k->folder, k->config.dir, err);
}

/* Prints figure i, and its ratio to the yardstick `against`; -1: it has none. */
static void print_figure(bench *k, int i, const double *middle, int against, const char *size)
{
    const size_t n = (size_t)k->config.common.repeat;
    const double ratio = against >= 0 ? middle[i] / middle[against] : 0;
    char name[64];
    snprintf(name, sizeof name, "io/%s/%s", size, figure_names[i]);
    if (k->config.common.json)
        tutti_bench_row(&k->b,
                        &(tutti_bench_figure){ name, middle[i], "GB/s",
                                               against >= 0 ? ratio : 0.0 / 0.0,
                                               against >= 0 ? figure_names[against] : NULL },
                        json_pack("{s:f, s:f, s:I, s:I, s:b}", "min", k->rate[i][0], "max",
                                  k->rate[i][n - 1], "rounds", (json_int_t)n, "bytes",
                                  (json_int_t)k->bytes, "o_direct", k->direct));
    else if (against >= 0)
        printf("  %-32s %9.3f %9.3f %9.3f %9.2f of %s\n", figure_names[i], middle[i], k->rate[i][0],
               k->rate[i][n - 1], ratio, figure_names[against]);
    else
        printf("  %-32s %9.3f %9.3f %9.3f\n", figure_names[i], middle[i], k->rate[i][0],
               k->rate[i][n - 1]);
}

static void print_all(bench *k)
{
    const size_t n = (size_t)k->config.common.repeat;
    char size[32];
    double middle[FIGURES];

    tutti_bench_print_bytes(size, k->bytes);
    for (int i = 0; i < FIGURES; i++)
        middle[i] = tutti_bench_median(k->rate[i], n);
    if (!k->config.common.json)
        printf("checkpoint of %s in %s, GB/s, %zu rounds; yardstick: %s, 1 MiB x 8 in flight, then "
               "fsync\n\n"
               "  %-32s %9s %9s %9s %9s\n",
               size, k->config.dir, n,
               k->direct ? "O_DIRECT" : "ordinary writes (no O_DIRECT here)", "", "median", "least",
               "most", "ratio");
    for (int i = 0; i < FIGURES; i++) {
        const bool writes = i == WRITE_CHECKPOINT || i == REPLACE_CHECKPOINT || i == WRITE_FIO;
        const bool reads = i == READ_CHECKPOINT || i == READ_FIO;
        const int against = writes ? WRITE_DIRECT : reads ? READ_DIRECT : -1;
        if (i >= WRITE_FIO && (!k->config.common.with_peers || k->fio_absent))
            break;
        print_figure(k, i, middle, against, size);
    }
}

static tutti_status run_io(bench *k, tutti_error *err)
{
    char peers[4096] = "";

    if (k->config.common.with_peers)
        TUTTI_TRY(tutti_bench_peers(&k->b, peers, sizeof peers, err));
    TUTTI_TRY(open_all(k, err));
    for (int64_t r = 0; r < k->config.common.repeat; r++) {
        tutti_bench_progress("io: round %lld of %lld", (long long)r + 1,
                             (long long)k->config.common.repeat);
        TUTTI_TRY(direct(k, true, &k->rate[WRITE_DIRECT][r], err));
        if (r > 0) {
            TUTTI_TRY(tutti_directory_list(k->b.rt, k->found, remove_last, k, err));
            TUTTI_TRY(tutti_file_remove(k->b.rt, k->found, err));
        }
        TUTTI_TRY(checkpoint_write(k, 2 * (uint64_t)r, 0, &k->rate[WRITE_CHECKPOINT][r], err));
        TUTTI_TRY(
            checkpoint_write(k, 2 * (uint64_t)r + 1, 1, &k->rate[REPLACE_CHECKPOINT][r], err));
        TUTTI_TRY(direct(k, false, &k->rate[READ_DIRECT][r], err));
        TUTTI_TRY(checkpoint_read(k, (uint64_t)r, err));
        if (k->config.common.with_peers && !k->fio_absent)
            TUTTI_TRY(fio(k, peers, r, err));
        if (tutti_bench_interrupted() != 0)
            return TUTTI_OK; /* the signal is delivered when the folder has been removed */
    }
    tutti_bench_progress("%s", "");
    print_all(k);
    return TUTTI_OK;
}

int tutti_bench_io(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench k = { 0 };
    tutti_status status = tutti_bench_open(
        &k.b, &(tutti_bench_kind){ "io", tutti_bench_io_options, &k.config, &k.config.common },
        argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf(
            "tutti bench io [--OPTION VALUE ...]\n\nWrites and reads checkpoints of one worker, "
            "and as many bytes directly, in turn. Exit code 1: fio was asked for and is absent.\n\n"
            "  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, tutti_bench_io_options, true);
    } else if (status == TUTTI_OK)
        status = run_io(&k, &err);
    tutti_world_close(k.world);
    tutti_free(k.memory);
    for (int i = 0; i < FIGURES; i++)
        tutti_free(k.rate[i]);
    tutti_bench_folder_remove(&k.folder);
    tutti_bench_close(&k.b);
    return status != TUTTI_OK ? tutti_cli_fail(&err) : k.fio_absent ? EXIT_TRAINING : EXIT_DONE;
}
