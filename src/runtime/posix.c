/* posix.c: the runtime on Linux. Threads are pthreads, time is CLOCK_MONOTONIC, files are file
   descriptors. Each member does one system call and returns its errno; looping, sizes and error
   texts belong to the dispatch layer (runtime.c, file.c), so that every implementation shares
   them.

   A monitor is one mutex and one condition whose clock is CLOCK_MONOTONIC
   (pthread_condattr_setclock rather than pthread_cond_clockwait: the thread sanitizer knows only
   the former). */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "uring.h"
#include "runtime/queue.h"

#define NS_PER_S 1000000000
/* Enough for oneDNN's kernels and for a model's recursion, whatever `ulimit -s` is; pages are
   only taken when touched. */
#define STACK_BYTES ((size_t)8 << 20)

typedef struct { pthread_t thread; void (*run)(void *arg); void *arg; char name[16]; } posix_thread;
typedef struct { pthread_mutex_t mutex; pthread_cond_t condition; } posix_monitor;

static struct timespec timespec_of(int64_t time_ns)
{
    struct timespec t = { 0, 0 };

    if (time_ns > 0) { /* earlier than the clock's start: already passed */
        t.tv_sec = time_ns / NS_PER_S;
        t.tv_nsec = time_ns % NS_PER_S;
    }
    return t;
}

static void posix_close(void *self)
{
    (void)self;
}

static int64_t posix_now(void *self)
{
    struct timespec t;

    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void posix_sleep_until(void *self, int64_t time_ns)
{
    const struct timespec t = timespec_of(time_ns);

    (void)self;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

static void posix_charge(void *self, double flops, double bytes)
{
    (void)self;
    (void)flops;
    (void)bytes;
}

static void *thread_start(void *arg)
{
    posix_thread *t = arg;

    pthread_setname_np(pthread_self(), t->name);
    t->run(t->arg);
    return NULL;
}

static int posix_thread_open(void *self, void **thread, const char *name, void (*run)(void *arg),
                             void *arg)
{
    posix_thread *t = tutti_alloc(1, sizeof *t);
    pthread_attr_t attributes;
    int cause;

    (void)self;
    *thread = NULL;
    if (t == NULL)
        return ENOMEM;
    t->run = run;
    t->arg = arg;
    snprintf(t->name, sizeof t->name, "%s", name);
    cause = pthread_attr_init(&attributes);
    if (cause != 0)
        goto out;
    cause = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (cause == 0)
        cause = pthread_create(&t->thread, &attributes, thread_start, t);
    pthread_attr_destroy(&attributes);
out:
    if (cause == 0)
        *thread = t;
    else
        tutti_free(t);
    return cause;
}

static void posix_thread_join(void *self, void *thread)
{
    posix_thread *t = thread;

    (void)self;
    pthread_join(t->thread, NULL);
    tutti_free(t);
}

static int posix_monitor_open(void *self, void **monitor)
{
    posix_monitor *m = tutti_alloc(1, sizeof *m);
    pthread_condattr_t attributes;
    int cause;

    (void)self;
    *monitor = NULL;
    if (m == NULL)
        return ENOMEM;
    cause = pthread_mutex_init(&m->mutex, NULL);
    if (cause != 0)
        goto no_mutex;
    cause = pthread_condattr_init(&attributes);
    if (cause != 0)
        goto no_condition;
    cause = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (cause == 0)
        cause = pthread_cond_init(&m->condition, &attributes);
    pthread_condattr_destroy(&attributes);
    if (cause != 0)
        goto no_condition;
    *monitor = m;
    return 0;
no_condition:
    pthread_mutex_destroy(&m->mutex);
no_mutex:
    tutti_free(m);
    return cause;
}

static void posix_monitor_close(void *self, void *monitor)
{
    posix_monitor *m = monitor;

    (void)self;
    pthread_cond_destroy(&m->condition);
    pthread_mutex_destroy(&m->mutex);
    tutti_free(m);
}

static void posix_lock(void *self, void *monitor)
{
    posix_monitor *m = monitor;

    (void)self;
    pthread_mutex_lock(&m->mutex);
}

static void posix_unlock(void *self, void *monitor)
{
    posix_monitor *m = monitor;

    (void)self;
    pthread_mutex_unlock(&m->mutex);
}

static bool posix_wait(void *self, void *monitor, int64_t deadline_ns)
{
    posix_monitor *m = monitor;
    struct timespec t;

    (void)self;
    if (deadline_ns == TUTTI_FOREVER) {
        pthread_cond_wait(&m->condition, &m->mutex);
        return true;
    }
    t = timespec_of(deadline_ns);
    return pthread_cond_timedwait(&m->condition, &m->mutex, &t) != ETIMEDOUT;
}

static void posix_wake(void *self, void *monitor)
{
    posix_monitor *m = monitor;

    (void)self;
    pthread_cond_broadcast(&m->condition);
}

/* O_NONBLOCK while opening only: a FIFO whose other end is not open must not hang the caller.
   What cannot be read at an offset is refused here, where the path is at hand, rather than at the
   first read. */
static int posix_file_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    static const int flags[] = {
        [TUTTI_FILE_READ] = O_RDONLY,
        [TUTTI_FILE_CREATE] = O_WRONLY | O_CREAT | O_EXCL,
        [TUTTI_FILE_APPEND] = O_WRONLY | O_CREAT | O_APPEND,
    };
    struct stat about;
    int cause = 0;

    (void)self;
    *fd = open(path, flags[mode] | O_CLOEXEC | O_NONBLOCK, 0644);
    if (*fd < 0)
        return errno;
    if (fstat(*fd, &about) != 0)
        cause = errno;
    else if (S_ISDIR(about.st_mode))
        cause = EISDIR;
    else if (mode == TUTTI_FILE_READ && S_ISFIFO(about.st_mode))
        cause = ESPIPE;
    else if (fcntl(*fd, F_SETFL, flags[mode] & O_APPEND) != 0)
        cause = errno;
    if (cause != 0) {
        close(*fd);
        *fd = -1;
    }
    return cause;
}

static int posix_file_size(void *self, int fd, uint64_t *bytes)
{
    struct stat about;

    (void)self;
    *bytes = 0;
    if (fstat(fd, &about) != 0)
        return errno;
    *bytes = S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    return 0;
}

static int posix_file_read(void *self, int fd, uint64_t offset, void *to, size_t bytes,
                           size_t *done)
{
    ssize_t n;

    (void)self;
    *done = 0;
    if (offset > INT64_MAX)
        return EINVAL;
    n = pread(fd, to, bytes, (off_t)offset);
    if (n < 0)
        return errno;
    *done = (size_t)n;
    return 0;
}

static int posix_file_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    const ssize_t n = write(fd, from, bytes);

    (void)self;
    *done = n < 0 ? 0 : (size_t)n;
    return n < 0 ? errno : 0;
}

/* Reserves space and sets the size at once: writes inside a file's size need not wait for each
   other, those that make it longer do. */
static int posix_file_reserve(void *self, int fd, uint64_t bytes)
{
    (void)self;
    if (bytes > INT64_MAX)
        return EFBIG;
    return bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
}

/* File systems in memory take the flag since Linux 6.6 and have nothing but the cache. */
static int posix_file_direct(void *self, int fd, bool on)
{
    const int flags = fcntl(fd, F_GETFL);
    struct statfs about;

    (void)self;
    if (on && fstatfs(fd, &about) == 0 &&
        (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC))
        return EINVAL;
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 ? 0
                                                                                            : errno;
}

static int posix_file_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes,
                               size_t *done)
{
    ssize_t n;

    (void)self;
    *done = 0;
    if (offset > INT64_MAX)
        return EFBIG;
    n = pwrite(fd, from, bytes, (off_t)offset);
    if (n < 0)
        return errno;
    *done = (size_t)n;
    return 0;
}

/* Without O_TMPFILE (NFS, old kernels) a name that is removed at once. Where a file system cannot
   reserve, the C library writes, so the space is taken in any case. */
static int posix_file_scratch(void *self, const char *directory, uint64_t bytes, bool direct,
                              int *fd)
{
    char path[4096];
    int cause = 0;

    *fd = -1;
    if (bytes > INT64_MAX)
        return EFBIG;
    *fd = open(directory, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (*fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        if ((size_t)snprintf(path, sizeof path, "%s/tutti-XXXXXX", directory) >= sizeof path)
            return ENAMETOOLONG;
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd >= 0)
            unlink(path);
    }
    if (*fd < 0)
        return errno;
    if (bytes > 0)
        cause = posix_fallocate(*fd, 0, (off_t)bytes);
    if (cause == 0 && direct)
        cause = posix_file_direct(self, *fd, true);
    if (cause != 0) {
        close(*fd);
        *fd = -1;
    }
    return cause;
}

static int posix_file_sync(void *self, int fd)
{
    (void)self;
    return fsync(fd) == 0 ? 0 : errno;
}

static int posix_file_close(void *self, int fd)
{
    (void)self;
    /* Linux has released the descriptor even when it returns EINTR; closing again could close
       another thread's file. */
    return close(fd) == 0 || errno == EINTR ? 0 : errno;
}

static int posix_file_map(void *self, int fd, uint64_t bytes, const void **at)
{
    void *mapped;

    (void)self;
    *at = NULL;
    if (bytes > SIZE_MAX)
        return EOVERFLOW;
    mapped = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return errno;
    *at = mapped;
    return 0;
}

static void posix_file_unmap(void *self, const void *at, uint64_t bytes)
{
    (void)self;
    munmap((void *)(uintptr_t)at, (size_t)bytes);
}

static int posix_file_rename(void *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to) == 0 ? 0 : errno;
}

static int posix_file_remove(void *self, const char *path)
{
    (void)self;
    return remove(path) == 0 ? 0 : errno;
}

static int posix_directory_make(void *self, const char *path)
{
    (void)self;
    return mkdir(path, 0777) == 0 ? 0 : errno;
}

static int posix_directory_sync(void *self, const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = 0;

    (void)self;
    if (fd < 0)
        return errno;
    if (fsync(fd) != 0)
        cause = errno;
    close(fd);
    return cause;
}

static int posix_directory_list(void *self, const char *path,
                                void (*each)(void *user, const char *name), void *user)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    int cause;

    (void)self;
    if (directory == NULL)
        return errno;
    for (;;) {
        errno = 0;
        entry = readdir(directory);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(user, entry->d_name);
    }
    cause = errno;
    closedir(directory);
    return cause;
}

static int posix_exists(void *self, const char *path)
{
    (void)self;
    return access(path, F_OK) == 0 ? 0 : errno;
}

static int posix_space_left(void *self, const char *path, uint64_t *bytes)
{
    struct statvfs about;

    (void)self;
    *bytes = 0;
    if (statvfs(path, &about) != 0)
        return errno;
    *bytes = (uint64_t)about.f_bavail * about.f_frsize;
    return 0;
}

static void posix_entropy(void *self, void *to, size_t bytes)
{
    unsigned char *at = to;
    int fd;

    while (bytes > 0) {
        const ssize_t n = getrandom(at, bytes, 0);
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    if (bytes == 0)
        return;
    /* A sandbox that refuses getrandom usually still has the device. */
    fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes > 0) {
        const ssize_t n = read(fd, at, bytes);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            break;
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    if (fd >= 0)
        close(fd);
    /* Neither: seeds of runs should at least differ by time and
       process. Nothing of ours needs secrecy. */
    for (uint64_t i = 0; bytes > 0; i++, at++, bytes--) {
        const tutti_rng rng = { (uint64_t)posix_now(self), (uint64_t)getpid(), 0 };
        *at = (unsigned char)tutti_random(rng, i);
    }
}

static const tutti_runtime_ops posix_ops = {
    .abi = TUTTI_RUNTIME_ABI,
    .bytes = sizeof(tutti_runtime_ops),
    .name = "posix",
    .close = posix_close,
    .now = posix_now,
    .sleep_until = posix_sleep_until,
    .charge = posix_charge,
    .thread_open = posix_thread_open,
    .thread_join = posix_thread_join,
    .monitor_open = posix_monitor_open,
    .monitor_close = posix_monitor_close,
    .lock = posix_lock,
    .unlock = posix_unlock,
    .wait = posix_wait,
    .wake = posix_wake,
    .file_open = posix_file_open,
    .file_size = posix_file_size,
    .file_read = posix_file_read,
    .file_write = posix_file_write,
    .file_sync = posix_file_sync,
    .file_close = posix_file_close,
    .file_rename = posix_file_rename,
    .file_remove = posix_file_remove,
    .directory_make = posix_directory_make,
    .directory_sync = posix_directory_sync,
    .directory_list = posix_directory_list,
    .exists = posix_exists,
    .space_left = posix_space_left,
    .entropy = posix_entropy,
    .file_reserve = posix_file_reserve,
    .file_direct = posix_file_direct,
    .file_write_at = posix_file_write_at,
    .file_map = posix_file_map,
    .file_unmap = posix_file_unmap,
    .file_scratch = posix_file_scratch,
#ifdef TUTTI_URING
    .queue_open = tutti_uring_open,
    .queue_close = tutti_uring_close,
    .queue_fix = tutti_uring_fix,
    .queue_add = tutti_uring_add,
    .queue_reap = tutti_uring_reap,
    .queue_kick = tutti_uring_kick,
#endif
};

const char *tutti_queue_built_with(void)
{
#ifdef TUTTI_URING
    return "liburing " TUTTI_URING;
#else
    return "";
#endif
}

tutti_status tutti_runtime_open_posix(tutti_runtime **out, tutti_error *err)
{
    tutti_runtime *rt = tutti_alloc(1, sizeof *rt);

    *out = rt;
    if (rt == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the runtime needs %zu bytes",
                          sizeof *rt);
    rt->ops = &posix_ops;
    return TUTTI_OK;
}
