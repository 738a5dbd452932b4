/* base.h: status, error sentence, memory, random numbers. No other header is needed to read this
   one. Conventions of ALL headers:
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
/* Zeroed, 64-byte aligned. NULL: there is none, or count * size overflows. */
void *tutti_alloc(size_t count, size_t size);
void tutti_free(void *memory);           /* accepts NULL; keeps errno */
char *tutti_copy_text(const char *text); /* tutti_free it; NULL: no memory */

/* The value of a variable in an array of the form of environ, without a copy. environment NULL:
   nothing is set. Returns NULL if it is not set. */
const char *tutti_variable(char *const *environment, const char *name);

/* What this process may use of the machine. bytes: its memory, or the limit of control groups (a
   container's, a batch system's) if that is less. quota: the number of cores whose time those
   allow, rounded down, at least 1; INT_MAX where they set no limit. */
size_t tutti_machine_bytes(void);
int tutti_machine_quota(void);

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

/* 64 bits of XXH3 (the packaged xxHash). For fingerprints, files and ports, not for security. */
uint64_t tutti_hash(const void *data, size_t bytes);

/* ---- CPU: instruction sets for kernels ---- */
typedef enum { TUTTI_CPU_SCALAR, TUTTI_CPU_AVX2, TUTTI_CPU_AVX512 } tutti_cpu;

/* AVX2 means AVX2+FMA+F16C; AVX512 means F+BW+DQ+VL. OS support included. */
tutti_cpu tutti_cpu_best(void);
const char *tutti_cpu_name(tutti_cpu cpu); /* "scalar", "avx2", "avx512" */
#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
