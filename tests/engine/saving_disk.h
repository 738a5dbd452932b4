/* saving_disk.h: a disk that waits for a test, is full, or ends the process. The functions by which
   a checkpoint changes something on the disk are wrapped at link time, and so are the two by which
   the test knows where a rank is: tutti_job_wait, and in the test itself tutti_alloc. Threads are
   ranks; one test at a time. */
#ifndef TUTTI_TESTS_SAVING_DISK_H
#define TUTTI_TESTS_SAVING_DISK_H
#include <errno.h>
#include <unistd.h>

#include "engine/lane.h"
#include "runtime/files.h"

enum { GATE_MS = 20000 };

static struct {
    _Atomic bool shut;           /* calls wait */
    _Atomic bool gave_up;        /* one waited for GATE_MS */
    _Atomic int opens_at;        /* when this number of ranks wait, the gate opens; 0: never */
    _Atomic int waiting;         /* ranks that wait for the job of a save */
    _Atomic int calls;           /* counted while `counts` */
    _Atomic bool counts;
    int full_at, dies_at;        /* the call that fails, or ends the process; 0: none */
} disk;
/* This rank's next wait for a job is that for a save, which is the last one whose calls are
   counted. */
static _Thread_local bool awaits;

static void disk_is_well(void)
{
    disk.shut = disk.gave_up = disk.counts = false;
    disk.opens_at = disk.waiting = disk.calls = 0;
    disk.full_at = disk.dies_at = 0;
}

static tutti_status strike(tutti_error *err)
{
    int call;

    for (int ms = 0; disk.shut; ms++) {
        if (ms == GATE_MS) {
            disk.gave_up = true;
            disk.shut = false;
        }
        usleep(1000);
    }
    if (!disk.counts)
        return TUTTI_OK;
    call = ++disk.calls;
    if (call == disk.dies_at)
        _exit(99);
    return call == disk.full_at ? tutti_fail(err, TUTTI_ERR_IO, ENOSPC, "the test's disk is full")
                                : TUTTI_OK;
}

#define WRAPPED(name, parameters, arguments) \
    tutti_status __real_##name parameters; \
    tutti_status __wrap_##name parameters; \
    tutti_status __wrap_##name parameters \
    { \
        TUTTI_TRY(strike(err)); \
        return __real_##name arguments; \
    }
WRAPPED(tutti_file_write, (tutti_file *f, const void *from, size_t bytes, tutti_error *err),
        (f, from, bytes, err))
WRAPPED(tutti_file_sync, (tutti_file *f, tutti_error *err), (f, err))
WRAPPED(tutti_file_rename, (tutti_runtime *rt, const char *from, const char *to, tutti_error *err),
        (rt, from, to, err))
WRAPPED(tutti_file_remove, (tutti_runtime *rt, const char *path, tutti_error *err),
        (rt, path, err))
WRAPPED(tutti_directory_make, (tutti_runtime *rt, const char *path, tutti_error *err),
        (rt, path, err))
WRAPPED(tutti_directory_sync, (tutti_runtime *rt, const char *path, tutti_error *err),
        (rt, path, err))

tutti_status __real_tutti_job_wait(tutti_lane *lane, tutti_job *waited, tutti_error *err);
tutti_status __wrap_tutti_job_wait(tutti_lane *lane, tutti_job *waited, tutti_error *err);
tutti_status __wrap_tutti_job_wait(tutti_lane *lane, tutti_job *waited, tutti_error *err)
{
    const bool was = awaits;
    tutti_status status;

    awaits = false;
    if (was && ++disk.waiting == disk.opens_at)
        disk.shut = false;
    status = __real_tutti_job_wait(lane, waited, err);
    if (was)
        disk.counts = false;
    return status;
}
#endif
