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
typedef struct tutti_file tutti_file;
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

/* ---- thread pools (tutti_team): a loop divided among waiting threads. One loop at a time. ---- */
typedef struct tutti_team tutti_team;

/* threads: including the caller of run, at least 1. Only during start-up (allocates). */
tutti_status tutti_team_open(tutti_team **out, tutti_runtime *rt, const char *name, int threads,
                             tutti_error *err);
void tutti_team_close(tutti_team *t);
int tutti_team_threads(const tutti_team *t);

/* Runs work(arg, first, count) on parts that cover [0, items), one per thread, each but the last
   a multiple of `grain`. The same parts run on the same threads each time, so that memory stays
   near the thread that touched it first. Blocks. */
void tutti_team_run(tutti_team *t, size_t items, size_t grain,
                    void (*work)(void *arg, size_t first, size_t count), void *arg);

/* ---- names ---- */
/* The addresses of a host, as from getaddrinfo; free *list by freeaddrinfo. On failure *list is
   NULL and the result is the reason, as a constant string. Blocks for as long as the name service
   takes, 5 s at most. Numeric addresses need no lookup, and `localhost` is the loopback address
   without one (RFC 6761, 6.3). It needs no runtime: hosts have names outside of simulations
   only. */
#define TUTTI_LOOKUP_NS (INT64_C(5) * 1000000000)
struct addrinfo;
const char *tutti_lookup(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **list);

/* ---- files: whole calls (no short reads or writes, EINTR retried). The sentence names the path,
   the offset and the cause. They go through the table so that a test can fail, truncate or kill
   at the k-th operation. Paths are relative to the process. All of them may block. ---- */
typedef enum {
    TUTTI_FILE_READ,
    TUTTI_FILE_CREATE, /* O_EXCL, 0644 */
    TUTTI_FILE_APPEND  /* made if absent */
} tutti_file_mode;
tutti_status tutti_file_open(tutti_file **out, tutti_runtime *rt, const char *path,
                             tutti_file_mode mode, tutti_error *err);
uint64_t tutti_file_bytes(const tutti_file *f); /* at open, or so far written */

/* Reading past the end is TUTTI_ERR_CORRUPT, with sizes. */
tutti_status tutti_file_read(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                             tutti_error *err);
tutti_status tutti_file_write(tutti_file *f, const void *from, size_t bytes,
                              tutti_error *err); /* appends */
tutti_status tutti_file_sync(tutti_file *f, tutti_error *err);

/* For large files in mode CREATE: written in any order, by several threads concurrently,
   bypassing the page cache where the file system supports it.

   wide: does the implementation support reserve and write_at? */
#define TUTTI_FILE_BLOCK 4096
bool tutti_file_wide(tutti_runtime *rt);

/* Allocates the space of the whole file at once, so that a full disk is found before anything is
   written. Afterwards only write_at may write. */
tutti_status tutti_file_reserve(tutti_file *f, uint64_t bytes, tutti_error *err);

/* Several threads may call it concurrently, on parts that do not overlap, as long as offset,
   address and size are multiples of TUTTI_FILE_BLOCK. An unaligned part (the rest of a file) must
   be written when no other call is in progress, and ends bypassing the cache. */
tutti_status tutti_file_write_at(tutti_file *f, uint64_t offset, const void *from, size_t bytes,
                                 tutti_error *err);

/* *at := the contents of a file opened for reading, until it is closed. It is mapped where the
   runtime can, so that unused parts are not read, and processes share it; else it is read into
   memory. Afterwards it needs no descriptor, and only bytes and close are legal. An empty file
   yields a valid address of no bytes. A mapped file must not be truncated meanwhile: the kernel
   kills a process that reads beyond its end. */
tutti_status tutti_file_map(tutti_file *f, const void **at, tutti_error *err);

/* An unnamed file in a directory, of `bytes` zeros, for read and write_at at any offset. It
   vanishes when it is closed or when its process ends, in whatever way. Its space is allocated
   before this returns, so no later write finds the disk full.

   direct: bypass the page cache, so that reads reach the disk. Then address, offset and size of
   all reads and writes must be multiples of TUTTI_FILE_BLOCK. Where that is impossible
   (memory-backed file systems, blocks of another size) it fails with a sentence. */
tutti_status tutti_file_scratch(tutti_file **out, tutti_runtime *rt, const char *directory,
                                uint64_t bytes, bool direct, tutti_error *err);

/* Accepts NULL; returns the result of close; frees in any case. */
tutti_status tutti_file_close(tutti_file *f, tutti_error *err);

/* A file that is created atomically.

   begin opens PATH.part in mode CREATE, and removes what a killed process has left there.
   `replace` false: PATH must not exist. end closes it. `status` is the result of the writing. If
   it is TUTTI_OK the file is renamed to PATH. Otherwise, or if that fails, it is removed, and
   `status` or that failure is returned. end accepts NULL and frees in any case. */
tutti_status tutti_file_begin(tutti_file **out, tutti_runtime *rt, const char *path, bool replace,
                              tutti_error *err);
tutti_status tutti_file_end(tutti_file *f, tutti_status status, tutti_error *err);

tutti_status tutti_file_rename(tutti_runtime *rt, const char *from, const char *to,
                               tutti_error *err);
/* A file or an empty directory; an absent one is OK. */
tutti_status tutti_file_remove(tutti_runtime *rt, const char *path, tutti_error *err);
/* With parents; an existing one is OK. */
tutti_status tutti_directory_make(tutti_runtime *rt, const char *path, tutti_error *err);
tutti_status tutti_directory_sync(tutti_runtime *rt, const char *path, tutti_error *err);

/* Calls `each` with every name (not . and ..) in bytewise order. Stops at its first status that is
   not OK. */
tutti_status tutti_directory_list(tutti_runtime *rt, const char *path,
                                  tutti_status (*each)(void *user, const char *name,
                                                       tutti_error *err),
                                  void *user, tutti_error *err);
bool tutti_file_exists(tutti_runtime *rt, const char *path);
/* Free bytes of the file system of path. */
tutti_status tutti_space_left(tutti_runtime *rt, const char *path, uint64_t *bytes,
                              tutti_error *err);

/* ---- queues: asynchronous reads and writes of files, many at a time. One thread adds and reaps.
   Concurrently any thread may kick, and one at a time may fix. ---- */
typedef struct tutti_queue tutti_queue;

/* The caller's memory, which must not move or change from add until it has been reaped. A
   transfer is complete as a call of tutti_file_read or write_at (not short), with the same
   sentences. */
typedef struct tutti_transfer {
    tutti_file *file;
    bool write;
    int fixed;                   /* result of tutti_queue_fix for this memory, or -1 */
    uint64_t offset;
    void *memory;
    size_t bytes;                /* at most 1 GiB */
    void *user;                  /* the caller's */
    tutti_status status;         /* valid after reap */
    tutti_error err;
    size_t done;                 /* the queue's */
    int stalls;                  /* likewise */
} tutti_transfer;

/* depth: most concurrent transfers, 1 to 4096. It fails where this build, this runtime or this
   kernel has no such queue; then use threads and blocking calls instead. */
tutti_status tutti_queue_open(tutti_queue **out, tutti_runtime *rt, int depth, tutti_error *err);
void tutti_queue_close(tutti_queue *q); /* no transfer is in flight */

/* Pins memory, at most 1 GiB, so that transfers within it need not do so each time. It stays until
   the queue is closed. A failure (old kernel, limit of locked memory) changes nothing. */
tutti_status tutti_queue_fix(tutti_queue *q, void *memory, size_t bytes, int *fixed,
                             tutti_error *err);

/* The transfer begins by the next reap at the latest. At most `depth` may be in flight. */
void tutti_queue_add(tutti_queue *q, tutti_transfer *t);

/* Returns completed transfers, as many as fit. block: waits for one, or for a kick, after which
   *n may be 0. A failure is of the queue itself: the state of the transfers in flight is then
   unknown. */
tutti_status tutti_queue_reap(tutti_queue *q, bool block, tutti_transfer **ended, int room, int *n,
                              tutti_error *err);
void tutti_queue_kick(tutti_queue *q); /* the reap that blocks, or the next one, returns */
const char *tutti_queue_built_with(void); /* "liburing 2.3"; "": this build has none */

/* ---- entropy ---- */
/* From the system; sim: from its seed. */
void tutti_entropy(tutti_runtime *rt, void *to, size_t bytes);

/* ---- the table of an implementation (posix, the sim plug-in, a fault injector in the tests).
   The functions above dispatch to it, loop over short operations and write the sentences. ---- */
/* An entry of a queue. tag is returned with the result, whose count may be short. */
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
