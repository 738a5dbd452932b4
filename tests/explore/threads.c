/* threads.c: the runtime: a thread is a fiber, a monitor a flag that is watched for misuse. Files
   are the real ones, with a pause before each operation. */
#include "explore_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t now(void *self)
{
    x_run *const run = self;

    x_pause(run, "clock");
    return run->now;
}

static void sleep_until(void *self, int64_t time_ns)
{
    x_run *const run = self;

    x_pause(run, "sleep");
    while (run->now < time_ns)
        x_block(run, X_IN_SLEEP, NULL, time_ns);
}

/* Computing takes as long as the seed draws. */
static void charge(void *self, double flops, double bytes)
{
    (void)flops;
    (void)bytes;
    x_pause(self, "compute");
}

static int thread_open(void *self, void **thread, const char *name, void (*body)(void *arg), void *arg)
{
    x_run *const run = self;

    x_pause(run, "thread");
    *thread = x_fiber_open(run, run->current->rank, name, body, arg);
    x_event(run, "starts thread %s", name);
    return *thread != NULL ? 0 : ENOMEM;
}

static void thread_join(void *self, void *thread)
{
    x_run *const run = self;
    x_fiber *const other = thread;

    x_pause(run, "join");
    while (other->where != X_ENDED)
        x_block(run, X_IN_JOIN, other, TUTTI_FOREVER);
}

/* ---- monitors ---- */
static int monitor_open(void *self, void **monitor)
{
    x_run *const run = self;
    x_monitor *m = calloc(1, sizeof *m);

    *monitor = m;
    if (m == NULL)
        return ENOMEM;
    m->number = run->n_monitors++;
    return 0;
}

/* Kept: a use after this is reported by the address sanitizer in the library's own part of it,
   and by the number here. */
static void monitor_close(void *self, void *monitor)
{
    x_run *const run = self;
    const x_monitor *const m = monitor;

    if (m->holder != NULL || m->waiting > 0)
        x_find(run, "worker %d (%s) closes monitor %d while worker %d %s it", run->current->rank, run->current->name,
               m->number, m->holder != NULL ? m->holder->rank : run->current->rank,
               m->holder != NULL ? "holds" : "still waits on");
    free(monitor);
}

static void enter(x_run *run, x_monitor *m)
{
    while (m->holder != NULL)
        x_block(run, X_IN_LOCK, m, TUTTI_FOREVER);
    m->holder = run->current;
}

static void lock(void *self, void *monitor)
{
    x_run *const run = self;
    x_monitor *const m = monitor;

    x_pause(run, "lock");
    if (m->holder == run->current)
        x_find(run, "worker %d (%s) locks monitor %d, which it holds", run->current->rank, run->current->name,
               m->number);
    enter(run, m);
}

static bool owns(x_run *run, const x_monitor *m, const char *doing)
{
    if (m->holder == run->current)
        return true;
    x_find(run, "worker %d (%s) %s monitor %d, which %s%s holds", run->current->rank, run->current->name, doing,
           m->number, m->holder != NULL ? "another thread, " : "nobody", m->holder != NULL ? m->holder->name : "");
    return false;
}

/* All that wait for the lock may try: which one gets it is the schedule's choice. */
static void leave(x_run *run, x_monitor *m)
{
    m->holder = NULL;
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where == X_IN_LOCK && f->what == m)
            x_wake(run, f);
}

static void unlock(void *self, void *monitor)
{
    x_run *const run = self;

    if (owns(run, monitor, "unlocks"))
        leave(run, monitor);
    x_pause(run, "unlock");
}

static void wake(void *self, void *monitor)
{
    x_run *const run = self;
    x_monitor *const m = monitor;

    if (!owns(run, m, "wakes"))
        return;
    m->wakes++;
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where == X_IN_WAIT && f->what == m)
            x_wake(run, f);
}

static bool wait_on(void *self, void *monitor, int64_t deadline_ns)
{
    x_run *const run = self;
    x_monitor *const m = monitor;
    const uint64_t seen = m->wakes;
    bool spurious = false, woken;

    if (!owns(run, m, "waits on"))
        return true;
    if (run->one_in_spurious > 0 && x_random(run, run->one_in_spurious) == 0)
        spurious = true; /* allowed: a waiting thread has to look again */
    leave(run, m);
    m->waiting++;
    if (spurious)
        x_pause(run, "wait");
    else
        while (m->wakes == seen && run->now < deadline_ns)
            x_block(run, X_IN_WAIT, m, deadline_ns);
    m->waiting--;
    woken = spurious || m->wakes != seen;
    enter(run, m);
    return woken;
}

/* ---- files and entropy ---- */
#define FILES x_run *const run = self; const tutti_runtime *const files = run->files; x_pause(run, "file")
static int file_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    FILES;
    return files->ops->file_open(files->self, path, mode, fd);
}
static int file_size(void *self, int fd, uint64_t *bytes)
{
    FILES;
    return files->ops->file_size(files->self, fd, bytes);
}
static int file_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    FILES;
    return files->ops->file_read(files->self, fd, offset, to, bytes, done);
}
static int file_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    FILES;
    return files->ops->file_write(files->self, fd, from, bytes, done);
}
static int file_sync(void *self, int fd) { (void)fd; FILES; (void)files; return 0; } /* no power fails here */
static int file_close(void *self, int fd) { FILES; return files->ops->file_close(files->self, fd); }
static int file_rename(void *self, const char *from, const char *to)
{
    FILES;
    x_event(run, "renames to %s", strrchr(to, '/') != NULL ? strrchr(to, '/') + 1 : to);
    return files->ops->file_rename(files->self, from, to);
}
static int file_remove(void *self, const char *path) { FILES; return files->ops->file_remove(files->self, path); }
static int directory_make(void *self, const char *path) { FILES; return files->ops->directory_make(files->self, path); }
static int directory_sync(void *self, const char *path) { (void)path; FILES; (void)files; return 0; }
static int directory_list(void *self, const char *path, void (*each)(void *user, const char *name), void *user)
{
    FILES;
    return files->ops->directory_list(files->self, path, each, user);
}
static int exists(void *self, const char *path) { FILES; return files->ops->exists(files->self, path); }
static int space_left(void *self, const char *path, uint64_t *bytes)
{
    FILES;
    return files->ops->space_left(files->self, path, bytes);
}

static void entropy(void *self, void *to, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        ((unsigned char *)to)[k] = (unsigned char)x_random(self, 256);
}

static void runtime_close(void *self)
{
    (void)self; /* the run's own */
}

const tutti_runtime_ops x_runtime_ops = {
    .abi = TUTTI_RUNTIME_ABI,
    .bytes = sizeof(tutti_runtime_ops),
    .name = "explore",
    .close = runtime_close,
    .now = now,
    .sleep_until = sleep_until,
    .charge = charge,
    .thread_open = thread_open,
    .thread_join = thread_join,
    .monitor_open = monitor_open,
    .monitor_close = monitor_close,
    .lock = lock,
    .unlock = unlock,
    .wait = wait_on,
    .wake = wake,
    .file_open = file_open,
    .file_size = file_size,
    .file_read = file_read,
    .file_write = file_write,
    .file_sync = file_sync,
    .file_close = file_close,
    .file_rename = file_rename,
    .file_remove = file_remove,
    .directory_make = directory_make,
    .directory_sync = directory_sync,
    .directory_list = directory_list,
    .exists = exists,
    .space_left = space_left,
    .entropy = entropy,
};
