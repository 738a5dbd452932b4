/* base.h: what all parts stand on: status, error sentence, memory, random numbers, options, shares
   of samples; time, threads; devices, kernels, declared state. Conventions of ALL headers:
   - counts are elements, `bytes` are bytes, `_ns` are nanoseconds on the runtime's clock, ranks are
     int, indexes count from 0;
   - a pointer parameter is borrowed for the call unless its comment says `keeps`;
   - results go through pointers and are set (NULL, 0) on failure too; `err` may be NULL;
   - "blocks" means: waits through the runtime (a simulated actor yields), and ends early when a
     needed member dies;
   - close functions accept NULL and partly opened objects;
   - unless a comment states otherwise a function is callable from any runtime thread, and neither
     blocks nor allocates. */
#ifndef TUTTI_BASE_H
#define TUTTI_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 4
#define TUTTI_VERSION_PATCH 0
/* "0.4.0": version of the running library, not of the header used for compilation. */
const char *tutti_version(void);

/* ---- status and error ---- */
typedef enum tutti_status {
    TUTTI_OK = 0,
    TUTTI_CLOSED,      /* no failure: port closed, run ending, no more passes in the step */
    TUTTI_TIMEOUT,     /* the deadline given to this call passed; nothing was consumed */
    TUTTI_ERR_USAGE,   /* bad spec, option or combination (exit code 2) */
    TUTTI_ERR_MEMORY,
    TUTTI_ERR_IO,
    TUTTI_ERR_CORRUPT, /* a message or file violates its format */
    /* A rank that it needs (err->rank) died or left. What does not need that rank continues. */
    TUTTI_ERR_PEER,
    TUTTI_ERR_STATE,   /* call out of order, or a replica has diverged */
    TUTTI_ERR_NUMBER   /* a value that must be finite is not */
} tutti_status;
const char *tutti_status_name(tutti_status status); /* "corrupt"; constant text */

/* Caller's memory; valid text whenever status != OK. */
typedef struct tutti_error {
    tutti_status status;
    int rank, cause;   /* rank concerned or -1; errno or 0 */
    char text[480];
} tutti_error;

/* Fills *err (NULL: nothing) and returns `status`. A cause that is not 0 (an errno) is added in
   words: "... (No space left on device)". Too long a text is truncated at a whole UTF-8
   character; the cause is kept. Arguments may point into err->text. Keeps errno. */
tutti_status tutti_fail(tutti_error *err, tutti_status status, int cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* tutti_fail with err->rank = rank. */
tutti_status tutti_fail_rank(tutti_error *err, tutti_status status, int rank, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));

/* Puts "format: " before the text of a failure that is passed up the call chain; returns its
   status. With TUTTI_OK it does nothing, so that any call can be wrapped in it. */
tutti_status tutti_fail_within(tutti_error *err, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One return, for bodies that are sequences of blocking calls: the papers' loops stay loops. */
#define TUTTI_TRY(call) \
    do { tutti_status try_ = (call); if (try_ != TUTTI_OK) return try_; } while (0)
#define TUTTI_LENGTH(a) (sizeof(a) / sizeof *(a))

/* ---- memory: all of the library's is from these two, so that a test can fail the n-th ---- */
/* Zeroed, 64-byte aligned; a page or more: whole pages, with nothing else in them. NULL: there is
   none, or count * size overflows. */
void *tutti_alloc(size_t count, size_t size);
void tutti_free(void *memory);           /* accepts NULL; keeps errno */
char *tutti_copy_text(const char *text); /* tutti_free it; NULL: no memory */

/* The value of a variable in an array of the form of environ, without a copy. environment NULL:
   nothing is set. Returns NULL if it is not set. */
const char *tutti_variable(char *const *environment, const char *name);

/* false and *out = 0 on overflow; for sizes from outside. */
bool tutti_size_mul(size_t a, size_t b, size_t *out);
bool tutti_size_add(size_t a, size_t b, size_t *out);

/* ---- counter-based random numbers: a pure function of (seed, stream, step, index); no state to
   save. Philox4x32-10 (Salmon et al., SC 2011).

   Counter = (index / 2 low, index / 2 high ^ fold high, step low, fold low), key = (seed low,
   stream low). fold mixes the high words of seed, stream and step, and is 0 when they are. See
   src/base/random.c: the packing is part of the format of a checkpoint, since a resumed run
   continues the sequence. All seeds and streams of 64 bits, steps below 2^32 and indexes below
   2^33 have distinct draws. ---- */
typedef struct { uint64_t seed, stream, step; } tutti_rng;

/* Bits of the stream that tutti_normal flips, so that its draws are separate. */
#define TUTTI_NORMAL_STREAM UINT64_C(0x4E6F726D00000000)
uint64_t tutti_random(tutti_rng rng, uint64_t index); /* 64 uniform bits */
double tutti_uniform(tutti_rng rng, uint64_t index);  /* [0,1), 53 bits */
double tutti_normal(tutti_rng rng, uint64_t index);   /* N(0,1): Box-Muller, separate draws */

/* Position -> element of a permutation of [0, n), in O(1) time and memory: a cycle-walking Feistel
   network keyed by rng. position < n. */
uint64_t tutti_permuted(tutti_rng rng, uint64_t n, uint64_t position);

/* 64 bits of XXH3 (the packaged xxHash, default secret, seed 0). For fingerprints, files and
   message tags, not for security. The same for native uint64_t only on hosts of one byte order. */
uint64_t tutti_hash(const void *data, size_t bytes);

/* ---- CPU: levels of instructions for kernels. 0 is plain C. What a number above 0 means is the
   architecture's: AVX2 and AVX512 on x86-64, NEON on arm64. A level above the machine's best
   stands for the best wherever one is asked for. ---- */
typedef enum {
    TUTTI_CPU_SCALAR,
    TUTTI_CPU_AVX2,                    /* AVX2, FMA and F16C */
    TUTTI_CPU_NEON = TUTTI_CPU_AVX2,   /* Advanced SIMD of Armv8.0-A: what every arm64 has */
    TUTTI_CPU_AVX512                   /* F, BW, DQ and VL */
} tutti_cpu;

/* ---- option tables. A table is used to parse, to validate, to print help, and for `tutti
   methods --json`, `tutti config --explain` and the docs. Specs (`adam(lr=0.001)`), the command's
   flags, files and the environment share the same tables. ---- */

/* ---- tables ---- */
typedef enum {
    TUTTI_INT,                   /* int64_t */
    TUTTI_REAL,                  /* double */
    TUTTI_BOOL,                  /* bool */
    TUTTI_CHOICE,                /* int: the index */
    TUTTI_TEXT,                  /* const char * */
    TUTTI_SPEC                   /* const char * */
} tutti_option_type;

/* Tables end with {0}; NULL is an empty table.

   when: condition under which the option has an effect: "solver=greedy", "select=randk|blockk",
   "momentum>0", for a text "steps=auto", or "file=none" for an empty one, several joined by '&'.
   NULL: always. Otherwise a spec may give only the default; the sentence names both options.

   reach: an effect of a value other than the default beyond the processes of this machine and the
   run's own folder, as used in sentences after the option's name: "starts programs". Such a value
   is accepted only from the starter of a run and never from a folder, which may be another
   person's. NULL: no such effect; reading a file is not one. */
typedef struct tutti_option {
    /* As in a spec or a file, words joined by '_'. A flag is "--" + name, joined by '-'. */
    const char *name;
    tutti_option_type type;
    size_t offset;               /* offset of the value in the owner's struct */
    /* INT, REAL: finite, inclusive bounds. CHOICE: initial is the index. BOOL: 0 or 1. */
    double initial, min, max;
    /* TEXT, SPEC: default, never NULL once applied ("" if none). CHOICE: "a|b|c". */
    const char *text;
    const char *help;            /* one line, with unit */
    const char *when, *reach;
} tutti_option;
#define TUTTI_AT(type, member) offsetof(type, member)

void tutti_options_default(const tutti_option *options, void *self);

/* Checks a user-written table before it is used: each option must have a name that is legal in a
   spec, a separate member within the self_bytes of the struct, a default within its bounds, and a
   `when` of options of this table. TUTTI_ERR_STATE with the first one that does not. Opening a
   method, a codec, an optimizer, a model or a tier does this. what: "method 'ddp'". */
tutti_status tutti_options_check(const tutti_option *options, const char *what, size_t self_bytes,
                                 tutti_error *err);

/* Parses a list a:b:c of positive reals of at most 1e9, as in TEXT values: returns how many, and
   writes as many of the first as fit. "" has none. -1: invalid. In any locale. */
int tutti_option_positives(const char *text, double *values, int room);

/* '-' and '_' are equivalent; NULL: none. */
const tutti_option *tutti_option_find(const tutti_option *options, const char *name);

/* "; did you mean 'lr' or 'lrs'?" or "": at most three of n names, by edit distance. */
void tutti_suggest(const char *name, const char *const *names, size_t n, char *out, size_t bytes);

/* ---- specs: name, name(), name(arg,...). An arg is a value, in table order, or key=value. A value
   may itself be a spec; lists are a:b:c (TEXT).

   Names are letters, digits, '_', '-' and '.', a letter first. A value may be in double quotes,
   with \" and \\ for those two. It must be if it has blanks at its ends, a comma outside of
   brackets or an unbalanced bracket. White space around tokens is ignored.

   These are errors: positional after keyed, a key given twice, an unknown key (similar ones are
   suggested), an unbalanced bracket, more after the end, over 4096 bytes or 16 levels. ---- */
typedef struct tutti_spec tutti_spec;
tutti_status tutti_spec_open(tutti_spec **out, const char *text, tutti_error *err); /* allocates */
void tutti_spec_close(tutti_spec *spec);
const char *tutti_spec_name(const tutti_spec *spec);

/* Defaults first, then the args; on failure self has some of them. `what`: "method 'ddp'".
   TEXT and SPEC values point into `spec`, which must outlive self. */
tutti_status tutti_spec_apply(const tutti_spec *spec, const char *what,
                              const tutti_option *options, void *self, tutti_error *err);

/* ---- knobs: parameters that change only the speed of a run, which is tuned while it trains
   (steps.h, tutti_tune_declare) ---- */
/* A number from low to high, or one of several choices.

   log: logarithmic scale; low must be above 0.
   multiple: values are multiples of it, within the box. 1: whole numbers. 0: any number.
   choices: names of the values 0, 1, ..., NULL-ended, without an order; low, high, log and
   multiple are then ignored. NULL: it is a number.
   first: the default, which must lie in the box. */
typedef struct tutti_knob {
    const char *name;                    /* pointer kept; used in figures and events */
    double low, high;
    bool log;
    double multiple;
    const char *const *choices;          /* kept */
    double first;
} tutti_knob;
enum { TUTTI_KNOBS_MOST = 6, TUTTI_POINTS_MOST = 200, TUTTI_KNOB_TEXT_BYTES = 64 };
/* knobs: copied; 1 to TUTTI_KNOBS_MOST.
   points: most points in total, including the default, which is the first; 2 to TUTTI_POINTS_MOST.
   drawn: how many of the others are drawn at random before the Gaussian process is used.
   xi: least improvement over the best that is sought, in standard deviations of the times given.
   A larger value explores more. seed: of the random draws. */
typedef struct tutti_tuner_options {
    const tutti_knob *knobs;
    int n_knobs;
    int points, drawn;
    double xi;
    uint64_t seed;
} tutti_tuner_options;

/* ---- which worker computes on which samples when. Pure functions of (seed, epoch,
   position), O(1), without messages: of the engine's weights and of the loader's samples.

   The training set is read in one common shuffled order per epoch (tutti_permuted). A step uses
   the next positions of it. The last step of an epoch is partial: the remaining samples. ---- */

/* A set divided into parts, one per worker. A sample is in exactly one of them, none is empty
   (data.h draws them). The memory belongs to the code that made it. */
typedef struct tutti_parts {
    const uint64_t *first;        /* workers + 1: part r is sample[first[r] .. first[r+1] - 1] */
    const uint32_t *sample;       /* indexes of samples */
} tutti_parts;

typedef struct tutti_share {
    uint64_t samples;             /* of the training split (D) */
    int workers;
    int64_t batch;                /* samples per worker and pass (B) */
    int64_t accumulate;           /* passes per step (A) */
    uint64_t seed;
    /* [workers], for workers of unequal speed: samples of each in a pass, summing to workers x
       batch. NULL: batch each. Borrowed. */
    const int64_t *batch_of;
    /* [workers]: passes of each in a step, of `batch` samples; A is then ignored. Never with
       batch_of. NULL: A each. Borrowed. */
    const int64_t *passes_of;
    /* Each worker has its own samples. Never with passes_of. NULL: one common order. Borrowed. */
    const tutti_parts *parts;
    /* V logical shares, from `workers` on: a step is cut as that of V workers is, and each worker
       computes a contiguous block of shares, batch_of[worker] of them if that is given; -V: share v
       is that of worker v mod `workers`. Never with passes_of or parts. 0: one a worker. */
    int logical;
} tutti_share;

int64_t tutti_share_passes(const tutti_share *s, int worker); /* of a full step; 0: it has none */

/* Divides `total` in proportion to weight[0..workers) (finite, not negative, not all 0) by
   largest remainders, ties to the lower rank. A worker that would get less than `least` gets
   `least`, and the rest is divided among the others in the same way (workers x least <= total). */
void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least,
                           int64_t *part);

/* Steps per epoch: ceil(D / S), S = workers B A; passes_of: their sum B; logical shares: V B A. */
uint64_t tutti_share_steps(const tutti_share *s);

/* The samples of this worker's pass (0: none), the first position within the epoch, and *epoch.
   Step `step` is counted from the run's beginning.

   Full step: worker r, pass a, slot b has position (a workers + r) B + b of the step's. The last
   step of an epoch has T <= workers B A samples. Worker r takes floor(T / workers) and one more if
   r < T mod workers, contiguous by rank, in passes of at most B.

   With batch_of, B_q for worker q: the same positions divided at the sums of B_q, and those of a
   last step at [T S_r / S, T S_(r+1) / S) with S_r the sum below r. With passes_of: pass a of all
   that have one comes before pass a + 1 of any, by rank; a last step as with batch_of, S_r the
   sum of passes below r.

   With parts: steps, their sizes and weights are those above, and so is the epoch. Only the
   samples of a worker differ. It goes over its own part repeatedly, in a new order each time. A
   batch may begin in one traversal and end in the next. *position counts the samples that it has
   used since the run began. In an epoch of the run all workers together use D samples. So one
   with a small part uses each sample more often than one with a large part. With batch_of in
   proportion to the parts each sample is used once.

   With logical shares pass p is pass p mod A of the worker's share p / A. In the last step of an
   epoch it may have no samples although a later one has. */
int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass,
                         uint64_t *epoch, uint64_t *position);

/* Samples of that worker in that step; worker -1: of all. */
int64_t tutti_share_step(const tutti_share *s, uint64_t step, int worker);

/* The shuffled sample's index; without parts. */
uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position);

/* The sample's index, parts or not. epoch, position: of its tutti_share_pass, or further on. */
uint64_t tutti_share_sample_of(const tutti_share *s, int worker, uint64_t epoch, uint64_t position);

/* ---- the runtime: the only source of time, threads, entropy and files. No code above it calls
   pthreads, clocks, open or sleep (a transport may use what its own medium needs).

   There are two implementations: posix here, and SimGrid in the sim plug-in. In the latter a
   thread is an actor, waiting yields, and time is virtual. Runnable actors are resumed in a fixed
   order, so a program whose only input and output is through these headers is a deterministic
   function of its seed. ---- */
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
/* An entry of a queue of asynchronous I/O. tag comes with the result, whose count may be short. */
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

/* `self` comes first. Calls of files return 0 or an errno, and counts through pointers. */
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
    /* Allocates the space, sets the size. EOPNOTSUPP: not supported, nothing has changed. */
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

/* fp32 <-> bf16, fp16, and float <-> double: equal counts, memory must not overlap. To nearest
   even, overflows to infinity, keeps denormals. A NaN keeps its sign and the upper bits of its
   payload and becomes a quiet NaN, as with F16C. Equal types: a copy. Others: assert. */
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
    /* Per worker; the mean must survive: models, residuals of a mean. All get it. */
    TUTTI_OWN_MEAN,
    /* Per worker; the sum must survive: residuals of the owner of a part, push-sum weight. */
    TUTTI_OWN_SUM,
    /* Per worker; starts from zero on a change: local momenta, counters of neighbours. */
    TUTTI_OWN_ZERO,
    /* Not saved; counted by the plan; undefined at the start of each step. */
    TUTTI_SCRATCH
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);

/* of_workers: the state consists of equal parts, one per worker, by rank; [first, first + count)
   is the same range in each part. When it is loaded by other workers than those that saved it:
     - SLICE, OWN: each remaining worker keeps its part. New workers' parts are not changed.
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
    bool copy;                   /* SLICE that another worker saves: it is loaded, never saved */
    bool placed;                 /* elements belong to parameters: saved by tensor name, range */
    bool late;                   /* absent from older checkpoints: then it stays as open left it */
    bool shared;                 /* in a transport window, which peers of this host can read */
    /* Where it is kept: a spec of tier.h, "host" or "nvme(path=...)", copied. Then `slot`
       receives a tutti_place. NULL or "": on the device. Not with `shared`. */
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
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
