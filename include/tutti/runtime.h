/* runtime.h: time, threads, waiting, files, entropy. It is their only source: no code above it
   calls pthreads, clocks, open or sleep (a transport may use what its own medium needs).

   There are two implementations: posix here, and SimGrid in the sim plug-in. In the latter a
   thread is an actor, waiting yields, and time is virtual. Runnable actors are resumed in a fixed
   order, so a program whose only input and output is through these headers is a deterministic
   function of its seed. */
#ifndef TUTTI_RUNTIME_H
#define TUTTI_RUNTIME_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_runtime tutti_runtime;
typedef struct tutti_thread tutti_thread;
typedef struct tutti_monitor tutti_monitor; /* a lock and a condition, for all above transports */
#define TUTTI_FOREVER INT64_MAX

tutti_status tutti_runtime_open_posix(tutti_runtime **out, tutti_error *err);
void tutti_runtime_close(tutti_runtime *rt);

/* ---- time ---- */
int64_t tutti_now_ns(tutti_runtime *rt); /* monotonic */

/* Is now_ns one clock for all ranks of a run, wherever they are, so that they can agree on an
   instant? Only where time is virtual. posix: no; a host's clock begins at its boot. */
bool tutti_clock_is_common(const tutti_runtime *rt);
void tutti_sleep_until(tutti_runtime *rt, int64_t time_ns); /* blocks */

/* Accounts for `flops` and `bytes` of memory traffic just done by the caller. posix: nothing.
   Simulated: adds the time that this host needs for them to the caller's account. It elapses at
   the caller's next blocking call (tutti_now_ns includes it at once). Kernels of device.h charge
   themselves; the model charges its layers. */
void tutti_charge(tutti_runtime *rt, double flops, double bytes);

/* ---- threads and waiting ---- */
/* Runs run(arg) on a new thread. `name`: for traces and debuggers (the first 15 bytes are used).
   Only during start-up (allocates). */
tutti_status tutti_thread_open(tutti_thread **out, tutti_runtime *rt, const char *name,
                               tutti_status (*run)(void *arg, tutti_error *err), void *arg,
                               tutti_error *err);

/* Blocks until the thread has ended, returns run's status and its sentence, frees. */
tutti_status tutti_thread_join(tutti_thread *thread, tutti_error *err);

tutti_status tutti_monitor_open(tutti_monitor **out, tutti_runtime *rt, tutti_error *err);
void tutti_monitor_close(tutti_monitor *m);
void tutti_lock(tutti_monitor *m); /* blocks; not recursive; one at a time */
void tutti_unlock(tutti_monitor *m);

/* Releases the lock and blocks until wake() or the deadline (TUTTI_TIMEOUT), then takes it again.
   It may return spuriously: loop. */
tutti_status tutti_wait(tutti_monitor *m, int64_t deadline_ns, tutti_error *err);
void tutti_wake(tutti_monitor *m); /* all waiters; lock held */

/* ---- entropy ---- */
/* From the system; sim: from its seed. */
void tutti_entropy(tutti_runtime *rt, void *to, size_t bytes);

/* ---- the table of an implementation (posix, the sim plug-in, a fault injector in the tests).
   The functions above dispatch to it, loop over short operations and write the sentences. ---- */
typedef enum {
    TUTTI_FILE_READ,
    TUTTI_FILE_CREATE, /* O_EXCL, 0644 */
    TUTTI_FILE_APPEND  /* made if absent */
} tutti_file_mode;
/* An entry of a queue of asynchronous reads and writes. tag is returned with the result, whose
   count may be short. */
typedef struct tutti_queue_entry {
    uint64_t tag, offset;
    int fd, fixed;               /* index of queue_fix, or -1 */
    bool write;
    void *memory;
    size_t bytes;
} tutti_queue_entry;
typedef struct tutti_queue_result {
    uint64_t tag;
    int cause;                   /* 0 or an errno */
    size_t done;
} tutti_queue_result;

/* `self` comes first in every call. Calls of the files group return 0 or an errno, and counts
   through pointers. */
typedef struct tutti_runtime_ops {
    uint32_t abi, bytes;       /* TUTTI_RUNTIME_ABI, sizeof *this */
    const char *name;
    bool common_clock;         /* tutti_clock_is_common */
    void (*close)(void *self);

    int64_t (*now)(void *self);
    void (*sleep_until)(void *self, int64_t time_ns);
    void (*charge)(void *self, double flops, double bytes);

    /* 0 or an errno. */
    int (*thread_open)(void *self, void **thread, const char *name, void (*run)(void *arg),
                       void *arg);
    void (*thread_join)(void *self, void *thread);
    int (*monitor_open)(void *self, void **monitor);
    void (*monitor_close)(void *self, void *monitor);
    void (*lock)(void *self, void *monitor);
    void (*unlock)(void *self, void *monitor);
    /* false: the deadline passed. */
    bool (*wait)(void *self, void *monitor, int64_t deadline_ns);
    void (*wake)(void *self, void *monitor);

    int (*file_open)(void *self, const char *path, tutti_file_mode mode, int *fd);
    int (*file_size)(void *self, int fd, uint64_t *bytes);
    /* May be short; 0 bytes: the end. */
    int (*file_read)(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done);
    /* May be short. */
    int (*file_write)(void *self, int fd, const void *from, size_t bytes, size_t *done);
    int (*file_sync)(void *self, int fd);
    int (*file_close)(void *self, int fd);
    int (*file_rename)(void *self, const char *from, const char *to);
    int (*file_remove)(void *self, const char *path);
    int (*directory_make)(void *self, const char *path); /* one level */
    int (*directory_sync)(void *self, const char *path);
    /* In any order. */
    int (*directory_list)(void *self, const char *path, void (*each)(void *user, const char *name),
                          void *user);
    int (*exists)(void *self, const char *path);         /* 0 or an errno */
    int (*space_left)(void *self, const char *path, uint64_t *bytes);

    void (*entropy)(void *self, void *to, size_t bytes);

    /* ---- files written by several threads: all three, write_at alone, or none (NULL) ---- */
    /* Allocates the space, and sets the size. EOPNOTSUPP: not supported, and nothing has
       changed. */
    int (*file_reserve)(void *self, int fd, uint64_t bytes);
    /* From the next write on, bypass the page cache. EINVAL: not supported. */
    int (*file_direct)(void *self, int fd, bool on);
    /* May be short. EINVAL: cannot bypass the cache. */
    int (*file_write_at)(void *self, int fd, uint64_t offset, const void *from, size_t bytes,
                         size_t *done);

    /* ---- a whole file, of at least a byte, as memory to read: both or none (NULL) ---- */
    int (*file_map)(void *self, int fd, uint64_t bytes, const void **at);
    void (*file_unmap)(void *self, const void *at, uint64_t bytes);

    /* ---- an unnamed file, with its space; needs file_write_at. Or NULL ---- */
    int (*file_scratch)(void *self, const char *directory, uint64_t bytes, bool direct, int *fd);

    /* ---- queues: all or none (NULL) ---- */
    int (*queue_open)(void *self, int depth, void **queue);
    void (*queue_close)(void *self, void *queue);
    /* EOPNOTSUPP: cannot. */
    int (*queue_fix)(void *self, void *queue, int index, void *memory, size_t bytes);
    void (*queue_add)(void *self, void *queue, const tutti_queue_entry *entry);
    /* block: at least one, or a kick. EINTR: again. */
    int (*queue_reap)(void *self, void *queue, bool block, tutti_queue_result *results, int room,
                      int *n);
    void (*queue_kick)(void *self, void *queue);
} tutti_runtime_ops;
#define TUTTI_RUNTIME_ABI 4
/* Opened by the implementation's open function. */
struct tutti_runtime {
    const tutti_runtime_ops *ops;
    void *self;
};
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
