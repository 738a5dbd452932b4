/* runtime.h: time, threads, waiting, files, entropy. The only source of them; nothing above calls pthreads, clocks, open or
   sleeps (a transport may use what its own medium needs). Two implementations: posix here, and SimGrid in the sim plug-in (a
   thread is an actor, waiting yields, time is virtual). There runnable actors are resumed in a fixed order, so a program
   that touches the world only through these headers is a deterministic function of its seed. */
#ifndef TUTTI_RUNTIME_H
#define TUTTI_RUNTIME_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_runtime tutti_runtime;
typedef struct tutti_thread tutti_thread;
typedef struct tutti_monitor tutti_monitor; /* one lock and one condition: the only synchroniser above transports */
typedef struct tutti_file tutti_file;
#define TUTTI_FOREVER INT64_MAX

tutti_status tutti_runtime_open_posix(tutti_runtime **out, tutti_error *err);
void tutti_runtime_close(tutti_runtime *rt);

int64_t tutti_now_ns(tutti_runtime *rt);                              /* monotonic */
/* Whether now_ns is one clock for all ranks of a run, wherever they are, so that they can agree on an instant: only where time is virtual. posix: no; hosts' clocks begin when they are switched on. */
bool tutti_clock_is_common(const tutti_runtime *rt);
void tutti_sleep_until(tutti_runtime *rt, int64_t time_ns);           /* blocks */

/* Accounts for `flops` and `bytes` of memory traffic just done by the caller. posix: nothing. Simulated: adds the time this
   host needs to the caller's account; it passes at the caller's next blocking call (tutti_now_ns counts it at once).
   Kernels of device.h charge themselves; the model charges its layers. */
void tutti_charge(tutti_runtime *rt, double flops, double bytes);

/* run(arg) on a new thread; `name` for traces and debuggers (15 bytes count). join blocks, gives run's status and its
   sentence, frees. Opened at start only (allocates). */
tutti_status tutti_thread_open(tutti_thread **out, tutti_runtime *rt, const char *name,
                               tutti_status (*run)(void *arg, tutti_error *err), void *arg, tutti_error *err);
tutti_status tutti_thread_join(tutti_thread *thread, tutti_error *err);

tutti_status tutti_monitor_open(tutti_monitor **out, tutti_runtime *rt, tutti_error *err);
void tutti_monitor_close(tutti_monitor *m);
void tutti_lock(tutti_monitor *m);                                    /* blocks; not recursive; one at a time */
void tutti_unlock(tutti_monitor *m);
/* Blocks with the lock given up until wake() or the deadline (TUTTI_TIMEOUT). Spurious returns happen: loop. */
tutti_status tutti_wait(tutti_monitor *m, int64_t deadline_ns, tutti_error *err);
void tutti_wake(tutti_monitor *m);                                    /* all waiters; lock held */

/* ---- names: the addresses of a host, as getaddrinfo gives them (freeaddrinfo ends *list), or why there are none, as constant text (*list NULL then). Blocks for as long as the name
   service takes, 5 s at most; numbers are read at once. Needs no runtime: hosts have names outside of simulations only. ---- */
#define TUTTI_LOOKUP_NS (INT64_C(5) * 1000000000)
struct addrinfo;
const char *tutti_lookup(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);

/* ---- files: whole calls (no short reads or writes, EINTR retried); the sentence names the path, the offset and the cause.
   They go through the table so that a test can fail, cut or kill at the k-th operation. Paths are relative to the process. ---- */
typedef enum { TUTTI_FILE_READ, TUTTI_FILE_CREATE, TUTTI_FILE_APPEND } tutti_file_mode; /* CREATE: O_EXCL, 0644; APPEND: made if absent */
tutti_status tutti_file_open(tutti_file **out, tutti_runtime *rt, const char *path, tutti_file_mode mode, tutti_error *err);
uint64_t tutti_file_bytes(const tutti_file *f);                       /* at open, or so far written */
tutti_status tutti_file_read(tutti_file *f, uint64_t offset, void *to, size_t bytes, tutti_error *err); /* past the end: TUTTI_ERR_CORRUPT, with sizes */
tutti_status tutti_file_write(tutti_file *f, const void *from, size_t bytes, tutti_error *err);         /* appends */
tutti_status tutti_file_sync(tutti_file *f, tutti_error *err);
/* For large files in mode CREATE: written in any order, by several threads at once, past the page cache where the file system has that. */
#define TUTTI_FILE_BLOCK 4096
bool tutti_file_wide(tutti_runtime *rt);                              /* whether the implementation has what the next two need */
/* Takes the room of the whole file at once, so that a full disk is found before anything is written; then only write_at may write. */
tutti_status tutti_file_reserve(tutti_file *f, uint64_t bytes, tutti_error *err);
/* Several threads may be in it, on parts that do not overlap, as long as offset, address and size are multiples of TUTTI_FILE_BLOCK. Another part (the
   rest of a file) is written when no other call is under way, and ends writing past the cache. */
tutti_status tutti_file_write_at(tutti_file *f, uint64_t offset, const void *from, size_t bytes, tutti_error *err);
/* All of a file opened for reading, until it is closed: mapped where the runtime can, so that what is not looked at is not read, and processes share it; else read into memory.
   Needs no descriptor from then on, and only bytes and close are legal. A mapped file must not be cut short meanwhile: the kernel kills who reads beyond its end. An empty one is a
   valid address of no bytes. */
tutti_status tutti_file_map(tutti_file *f, const void **at, tutti_error *err);
tutti_status tutti_file_close(tutti_file *f, tutti_error *err);       /* takes NULL; reports what close reports; frees in any case */
/* A file that appears whole or not at all: begin opens PATH.part in mode CREATE (what a killed try has left there goes); `replace` false: PATH must not be there. end closes it and, where
   `status`, how the writing went, is TUTTI_OK, gives it its name; else, or if that fails, it is removed, and `status` or that failure is returned. Takes NULL; frees in any case. */
tutti_status tutti_file_begin(tutti_file **out, tutti_runtime *rt, const char *path, bool replace, tutti_error *err);
tutti_status tutti_file_end(tutti_file *f, tutti_status status, tutti_error *err);
tutti_status tutti_file_rename(tutti_runtime *rt, const char *from, const char *to, tutti_error *err);
tutti_status tutti_file_remove(tutti_runtime *rt, const char *path, tutti_error *err);      /* file or empty directory; absent is OK */
tutti_status tutti_directory_make(tutti_runtime *rt, const char *path, tutti_error *err);   /* with parents; existing is OK */
tutti_status tutti_directory_sync(tutti_runtime *rt, const char *path, tutti_error *err);
/* Names (not . and ..) in bytewise order; each call of `each` gets one; stops at its first status that is not OK. */
tutti_status tutti_directory_list(tutti_runtime *rt, const char *path, tutti_status (*each)(void *user, const char *name, tutti_error *err), void *user, tutti_error *err);
bool tutti_file_exists(tutti_runtime *rt, const char *path);
tutti_status tutti_space_left(tutti_runtime *rt, const char *path, uint64_t *bytes, tutti_error *err); /* of the file system of path */

void tutti_entropy(tutti_runtime *rt, void *to, size_t bytes);        /* from the system; sim: from its seed */

/* ---- the table: what an implementation (posix, the sim plug-in, a fault injector in the tests) offers. `self` first in
   every call; the functions above dispatch, loop over short operations and write the sentences. Calls of the files group give 0 or an
   errno; counts through pointers. ---- */
typedef struct tutti_runtime_ops {
    uint32_t abi, bytes;                       /* TUTTI_RUNTIME_ABI, sizeof *this */
    const char *name;
    bool common_clock;                         /* tutti_clock_is_common */
    void (*close)(void *self);
    int64_t (*now)(void *self);
    void (*sleep_until)(void *self, int64_t time_ns);
    void (*charge)(void *self, double flops, double bytes);
    int (*thread_open)(void *self, void **thread, const char *name, void (*run)(void *arg), void *arg); /* errno */
    void (*thread_join)(void *self, void *thread);
    int (*monitor_open)(void *self, void **monitor);
    void (*monitor_close)(void *self, void *monitor);
    void (*lock)(void *self, void *monitor);
    void (*unlock)(void *self, void *monitor);
    bool (*wait)(void *self, void *monitor, int64_t deadline_ns); /* false: the deadline passed */
    void (*wake)(void *self, void *monitor);
    int (*file_open)(void *self, const char *path, tutti_file_mode mode, int *fd);
    int (*file_size)(void *self, int fd, uint64_t *bytes);
    int (*file_read)(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done);  /* may be short; 0 = end */
    int (*file_write)(void *self, int fd, const void *from, size_t bytes, size_t *done);          /* may be short */
    int (*file_sync)(void *self, int fd);
    int (*file_close)(void *self, int fd);
    int (*file_rename)(void *self, const char *from, const char *to);
    int (*file_remove)(void *self, const char *path);
    int (*directory_make)(void *self, const char *path);          /* one level */
    int (*directory_sync)(void *self, const char *path);
    int (*directory_list)(void *self, const char *path, void (*each)(void *user, const char *name), void *user); /* any order */
    int (*exists)(void *self, const char *path);                  /* 0 or an errno */
    int (*space_left)(void *self, const char *path, uint64_t *bytes);
    void (*entropy)(void *self, void *to, size_t bytes);
    /* All three or none (NULL): files written by several threads. */
    int (*file_reserve)(void *self, int fd, uint64_t bytes);      /* room, and the size; EOPNOTSUPP: cannot, and nothing has changed */
    int (*file_direct)(void *self, int fd, bool on);              /* from the next write on, past the page cache; EINVAL: cannot */
    int (*file_write_at)(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done); /* may be short; EINVAL: not past the cache */
    /* Both or none (NULL): a whole file, of at least a byte, as memory to read. */
    int (*file_map)(void *self, int fd, uint64_t bytes, const void **at);
    void (*file_unmap)(void *self, const void *at, uint64_t bytes);
} tutti_runtime_ops;
#define TUTTI_RUNTIME_ABI 3
struct tutti_runtime { const tutti_runtime_ops *ops; void *self; }; /* opened by the implementation's own open function */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
