/* runtime.h: what all parts stand on: time, threads, waiting, entropy, devices, vector kernels,
   declared state. It is the only source of time, threads and files: no code above it
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

void tutti_sleep_until(tutti_runtime *rt, int64_t time_ns); /* blocks */

/* Accounts for `flops` and `bytes` of memory traffic just done by the caller. posix: nothing.
   Simulated: adds the time that this host needs for them to the caller's account. It elapses at
   the caller's next blocking call (tutti_now_ns includes it at once). Vector kernels charge
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
    bool common_clock;         /* one clock for all ranks */
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

/* ---- devices, buffers and vector kernels. A method never dereferences model-sized memory.
   It calls these functions, which select the kernel by device (scalar, AVX2, AVX-512, NEON) and
   charge the runtime.

   Bits: every level gives the same bits as the scalar reference, for any alignment and length
   (tests/kernels). That needs a fixed order of operations, stated at each kernel: no contraction
   into FMA unless the formula says fma(). ---- */

/* ---- devices and buffers ---- */
/* Kind, kernel table, and the runtime to charge. One per rank, shared by its threads. */
typedef struct tutti_device tutti_device;

/* Charges the device's runtime (tutti_charge) for work that other code does on it: the layers of
   nn. Does nothing if there is no runtime. */
void tutti_device_charge(tutti_device *d, double flops, double bytes);

typedef enum {
    TUTTI_F32,
    TUTTI_BF16,
    TUTTI_F16,
    TUTTI_I32,
    TUTTI_I64,
    TUTTI_U8,
    TUTTI_F64,
    TUTTI_I8
} tutti_dtype;
size_t tutti_dtype_bytes(tutti_dtype dtype);
const char *tutti_dtype_name(tutti_dtype dtype); /* safetensors' names: "F32", "BF16", ... */

/* By value; does not own. */
typedef struct tutti_buffer {
    tutti_device *device;                        /* NULL: plain host memory */
    void *data;
    size_t count;                                /* elements of dtype */
    tutti_dtype dtype;
} tutti_buffer;
static inline tutti_buffer tutti_f32(tutti_device *d, float *x, size_t n)
{
    tutti_buffer b = { d, x, n, TUTTI_F32 };
    return b;
}
static inline tutti_buffer tutti_host(void *x, size_t n, tutti_dtype t)
{
    tutti_buffer b = { NULL, x, n, t };
    return b;
}
static inline tutti_buffer tutti_nothing(void)
{
    tutti_buffer b = { NULL, NULL, 0, TUTTI_U8 };
    return b;
}

/* ---- vector kernels (float32): x, y, z are n elements on d, at any float's alignment. They may
   be equal, and must not partly overlap. Each product and each sum is rounded separately, except
   in lerp. A NaN is a NaN at every level; its sign and payload are unspecified. ---- */
/*   copy          y = x
     fill          y = a
     add           y += x
     scale         y = a y
     axpy          y += a x
     blend         y = a x + b y
     diff          z = a (x - y)
     add_diff      z += a (x - y)
     lerp          y = x + a (y - x), as torch.lerp(x, y, a) of PyTorch 2.13 to the bit: one fused
                   multiply-add, from x where a < 0.5, else from y. 0 gives x and 1 gives y where
                   these are finite */
void tutti_copy(tutti_device *d, size_t n, const float *x, float *y);
void tutti_fill(tutti_device *d, size_t n, float a, float *y);
void tutti_add(tutti_device *d, size_t n, const float *x, float *y);
void tutti_scale(tutti_device *d, size_t n, float a, float *y);
void tutti_axpy(tutti_device *d, size_t n, float a, const float *x, float *y);
void tutti_blend(tutti_device *d, size_t n, float a, const float *x, float b, float *y);
void tutti_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);
void tutti_add_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);
void tutti_lerp(tutti_device *d, size_t n, float a, const float *x, float *y);

/* y = the sum of a[r] x[r] over p vectors, in the fixed order of summation
   (docs/design/numbers.md): products are rounded first, then added in the binary tree over r, split
   at the largest power of two below p. a NULL: plain sum. y may be any of x[r]. p from 1 to 4096.
   Memory-bound: p reads, one write. */
void tutti_tree_sum(tutti_device *d, size_t n, int p, const float *const *x, const float *a,
                    float *y);

/* sum x^2 and sum x y in double over 16 lanes (element i in lane i mod 16). Lanes are added
   pairwise 0+8, 1+9 ..., then 0+4 ..., 0+2, 0+1. */
double tutti_norm2(tutti_device *d, size_t n, const float *x);
double tutti_dot(tutti_device *d, size_t n, const float *x, const float *y);

/* sum |x| in the order of tutti_norm2. */
double tutti_norm1(tutti_device *d, size_t n, const float *x);

/* Are all elements finite (no NaN, no infinity)? */
bool tutti_finite(tutti_device *d, size_t n, const float *x);

/* fp32 <-> bf16, fp16, and float <-> double: counts must be equal, memory must not overlap.
   Rounds to nearest even, overflows to infinity, keeps denormals. A NaN keeps its sign and the
   upper bits of its payload and becomes a quiet NaN, as with F16C. Equal types: a copy.
   Unsupported pairs: assert. */
void tutti_cast(tutti_device *d, tutti_buffer from, tutti_buffer to);

/* ---- everything that outlives a step is declared here, once, before anything is allocated.
   The declarations determine the single arena, `tutti plan memory` (bytes by kind), checkpoints,
   and how a run resumes with another number of workers.

   A member of a method's struct that is not declared is lost on resume. A test zeroes every
   declared state after a load and checks that the run then differs. ---- */

/* ---- declarations ---- */
/* The kind of a state, which determines what happens to it when the number of workers changes
   from N to M. "Per worker" means that each worker has a separate vector. */
typedef enum tutti_keep {
    /* Bit-identical on all workers: saved once. */
    TUTTI_SAME,
    /* This worker holds elements of one global vector, [first, first+count) or those of `ranges`:
       repartitioned exactly, whatever ranges the loading worker has. */
    TUTTI_SLICE,
    /* Per worker; the mean must survive: models, residuals of a mean. All get the mean (N = M:
       unchanged). */
    TUTTI_OWN_MEAN,
    /* Per worker; the sum must survive: residuals of the owner of a part of a sum, push-sum
       weight. */
    TUTTI_OWN_SUM,
    /* Per worker; starts from zero on a change: local momenta, counters of neighbours. */
    TUTTI_OWN_ZERO,
    /* Not saved; counted by the plan; undefined at the start of each step. */
    TUTTI_SCRATCH
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);

/* of_workers: the state consists of equal parts, one per worker, by rank; [first, first + count)
   is the same range in each part. When it is loaded by other workers than those that saved it:
     - SLICE, OWN: the part of each remaining worker stays with that worker. New workers' parts are
       not changed.
     - SAME: all parts are left as open set them, so their contents are learnt again. */
typedef struct tutti_range { size_t first, count; } tutti_range;
typedef struct tutti_state {
    const char *name;            /* copied; unique with the engine: "optim.momentum" */
    tutti_keep keep;
    tutti_dtype dtype;
    /* Range in the flat parameter space. A state outside it has first = 0, unless it is a part of
       a vector of length `of`. */
    size_t first, count;
    /* SLICE that is placed: elements of several ranges of the flat space, ascending and not
       overlapping, concatenated. Then count is their sum and first is ignored. Empty ones are
       legal. The owner's memory, until the plan is closed. NULL: the one range above. */
    const tutti_range *ranges; size_t n_ranges;
    /* SLICE that is not placed: length of the whole vector; [first, first + count) is this
       worker's part. 0: this worker has all of it, and no other worker has any. */
    size_t of;
    bool of_workers;
    bool copy;                   /* SLICE: another worker saves the same elements: it is loaded, and
                                    never saved */
    bool placed;                 /* each element belongs to a parameter: saved by tensor name and
                                    range */
    bool late;                   /* absent from older checkpoints: then it stays as open left it */
    bool shared;                 /* in a transport window, which peers of this host can read */
    /* Where it is kept: a spec of tier.h, "host" or "nvme(path=...)", copied. Then `slot`
       receives a tutti_place, and the state uses no device memory. NULL or "": on the device. Not
       with `shared`. */
    const char *tier;
} tutti_state;

/* Location of a state in a tier: from byte `at` on, a multiple of TUTTI_FILE_BLOCK. memory: its
   bytes, where the tier has an address, else NULL. */
struct tutti_tier;
typedef struct tutti_place { struct tutti_tier *tier; uint64_t at; void *memory; } tutti_place;
typedef struct tutti_plan tutti_plan;

/* Only within a declare() hook. *slot is set before open() to the memory (zeroed, 64-byte
   aligned), or for a state in a tier to the tutti_place. Failures (a duplicate name, no memory)
   are kept in the plan and returned when it is carried out. */
void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot);

/* Declares a vector of layout->n elements, on the device. On a rank that only serves there is
   none, and *slot does not change. */
void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot);

/* Declares a value in the owner's struct; the pointer is kept. The second form is `late`. */
void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                         size_t bytes);
void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                              size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
