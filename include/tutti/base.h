/* base.h: status, error sentence, memory, random numbers, options, shares of samples. Conventions
   of ALL headers:
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
#define TUTTI_VERSION_MINOR 3
#define TUTTI_VERSION_PATCH 0
/* "0.3.0": version of the running library, not of the header used for compilation. */
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
    /* A rank that this call needs (err->rank) died or left. Operations that do not need it
       continue. */
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

/* ---- memory: all allocations of the library go through these two, so that a test can fail the
   n-th ---- */
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
   message tags, not for security. The hash of an array of native uint64_t is the same only on hosts
   of one byte order. */
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
    /* As in a spec or a file; a flag is "--" + name. Words are joined by '-' in flags, '_' in
       specs. */
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

/* Parses a list a:b:c of positive reals of at most 1e9, as in TEXT values: returns how many there
   are, and writes as many of the first as fit to values. "" has none. -1: invalid list.
   Independent of the locale. */
int tutti_option_positives(const char *text, double *values, int room);

/* '-' and '_' are equivalent; NULL: none. */
const tutti_option *tutti_option_find(const tutti_option *options, const char *name);

/* "; did you mean 'lr' or 'lrs'?" or "": similar names by edit distance, at most three. names: n
   of them. */
void tutti_suggest(const char *name, const char *const *names, size_t n, char *out, size_t bytes);

/* ---- specs: name, name(), name(arg,...). An arg is a value, in table order, or key=value. A value
   may itself be a spec; lists are a:b:c (TEXT).

   Names are letters, digits, '_', '-' and '.', a letter first. A value may be in double quotes,
   with \" and \\ for those two. It must be if it has blanks at its ends, a comma outside of
   brackets or an unbalanced bracket. White space around tokens is ignored.

   These are errors: positional after keyed, a key given twice, an unknown key (similar ones are
   suggested), an unbalanced bracket, anything after the end, more than 4096 bytes or 16 levels.
   ---- */
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
   points: most points in total, including the default, which is the first; 2 to
   TUTTI_POINTS_MOST.
   drawn: how many of the others are drawn at random before the Gaussian process is used.
   xi: minimum improvement over the best that is sought, in standard deviations of the times
   given. A larger value explores more.
   seed: of the random draws. */
typedef struct tutti_tuner_options {
    const tutti_knob *knobs;
    int n_knobs;
    int points, drawn;
    double xi;
    uint64_t seed;
} tutti_tuner_options;

/* ---- which worker computes on which samples when. Pure functions of (seed, epoch,
   position), O(1), without messages. The engine gets its weights from here, the loader its
   samples.

   The training set is read in one common shuffled order per epoch (tutti_permuted). A step uses
   the next positions of it. The last step of an epoch is partial: it has the remaining samples.
   ---- */

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
    /* Each worker has its own samples. Never with passes_of. NULL: all share one common order.
       Borrowed. */
    const tutti_parts *parts;
    /* V logical shares, from `workers` on: a step is cut as that of V workers is, and each worker
       computes a contiguous block of shares. So which samples a share has, and how many, does not
       depend on the number of workers. Never with the three above. 0: a share is a worker. */
    int logical;
} tutti_share;

int64_t tutti_share_passes(const tutti_share *s, int worker); /* of a full step; 0: it has none */

/* Divides `total` in proportion to weight[0..workers) (finite, not negative, not all 0) by
   largest remainders, ties to the lower rank. A worker that would get less than `least` gets
   `least`, and the rest is divided among the others in the same way (workers x least <= total). */
void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least,
                           int64_t *part);

/* Steps per epoch: ceil(D / (workers B A)); with passes_of: ceil(D / (their sum x B)); with logical
   shares: ceil(D / (V B A)). */
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

/* The sample's index, with or without parts. epoch, position: of tutti_share_pass of that worker,
   or further on in the pass. */
uint64_t tutti_share_sample_of(const tutti_share *s, int worker, uint64_t epoch,
                               uint64_t position);
#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
