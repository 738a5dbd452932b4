/* tier.h: memory accounting, and storage for state outside device memory: host memory, or a file
   on a disk (NVMe).

   An arena counts memory against a limit. A tier is a range of bytes [0, bytes) elsewhere. It is
   read and written by asynchronous requests. The contents of a tier belong to one process and are
   lost when it ends, so a checkpoint has to read them. */
#ifndef TUTTI_TIER_H
#define TUTTI_TIER_H
#include "tutti/base.h"
#include "tutti/runtime.h"
#pragma GCC visibility push(default)

/* ---- arenas: any thread, at any time. An arena keeps one sum per name. ---- */
typedef struct tutti_arena tutti_arena;
#define TUTTI_UNBOUNDED UINT64_MAX
#define TUTTI_ARENA_ALIGN 64       /* a smaller alignment counts as this one */

/* what: name of the memory, "device memory"; limit: most bytes. mend: how a user raises the
   limit, "raise --device-memory". Both strings are copied, of at most 60 bytes. */
tutti_status tutti_arena_open(tutti_arena **out, tutti_runtime *rt, const char *what,
                              const char *mend, uint64_t limit, tutti_error *err);
void tutti_arena_close(tutti_arena *a); /* after all memory was released */

/* Allocates zeroed memory. alignment: a power of two; for tiers that bypass the page cache
   TUTTI_FILE_BLOCK (runtime.h). name: copied, of at most 40 bytes. The bytes are charged to it. It
   fails beyond the limit, and where the machine has no memory. The error states what is needed, the
   limit, and the users of the memory by name. */
tutti_status tutti_arena_take(tutti_arena *a, const char *name, size_t bytes, size_t alignment,
                              void **memory, tutti_error *err);
void tutti_arena_give(tutti_arena *a, void *memory); /* accepts NULL */

/* Counts memory that other code allocates. */
tutti_status tutti_arena_charge(tutti_arena *a, const char *name, uint64_t bytes,
                                tutti_error *err);
void tutti_arena_refund(tutti_arena *a, const char *name, uint64_t bytes);

/* Several charges at once, all or none. So a refusal reports the sum of all. */
typedef struct tutti_arena_part { const char *name; uint64_t bytes; } tutti_arena_part;
tutti_status tutti_arena_charge_all(tutti_arena *a, const tutti_arena_part *parts, size_t n,
                                    tutti_error *err);

/* Sums of a name; NULL: of all names. An unused name has 0. */
typedef struct tutti_arena_sum { uint64_t now, peak, limit; } tutti_arena_sum;
tutti_arena_sum tutti_arena_count(tutti_arena *a, const char *name);

/* ---- tiers ---- */
typedef struct tutti_tier tutti_tier;

/* The kinds of tiers, for help and docs; {0}-ended. */
extern const struct tutti_tier_kind {
    const char *name, *help;
    const tutti_option *options;
} tutti_tiers[];

/* One request. The caller's memory, zeroed before its first use; it belongs to the tier from
   posting until the wait for it has returned. Then it may be posted again. */
typedef struct tutti_io {
    struct tutti_io *next;
    char *memory;
    uint64_t at;
    size_t bytes, cut, left;           /* total; issued; not yet complete */
    bool write, under_way;
    tutti_status status;
    tutti_error err;
} tutti_io;

/* spec:
     - "host": memory of this process.
     - "nvme(path=DIR, ...)": an unnamed file in DIR, which vanishes with this process however it
       ends. Its space is allocated by open, so a full disk is found before any work.
   bytes: at least 1; all of them are 0 at first. arena: counts the host memory of the tier (all
   of `host`, staging of `nvme`) and must outlive it; NULL: it is not counted.

   A failure states what is needed and what is available. Allocates, starts threads, blocks. */
tutti_status tutti_tier_open(tutti_tier **out, tutti_runtime *rt, const char *spec, uint64_t bytes,
                             tutti_arena *arena, tutti_error *err);
/* Waits for requests in progress. Blocks. */
void tutti_tier_close(tutti_tier *t);

/* Posts a request. [at, at + bytes) must lie within the tier; any offset, size and address is
   legal. Concurrent requests must not overlap, except reads. The memory must not move or change
   until the request is waited for. Blocks only while too many requests are waiting to begin. It
   fails, and posts nothing, for a range beyond the tier or a request that is still in progress. Any
   thread.

   Multiples of tutti_tier_block (offset, size and address) are transferred directly. If offset and
   address are equally far from a block, only the ends are copied through staging memory; if not,
   all of it is. A write reads each outer block that it does not fill. */
tutti_status tutti_tier_read(tutti_tier *t, tutti_io *io, uint64_t at, void *to, size_t bytes,
                             tutti_error *err);
tutti_status tutti_tier_write(tutti_tier *t, tutti_io *io, uint64_t at, const void *from,
                              size_t bytes, tutti_error *err);

/* Waits for all of n requests, posted by any thread, and returns the first failure in their
   order. After a failed write only the bytes of its range are undefined. A request that was never
   posted counts as complete. Blocks; does not allocate. */
tutti_status tutti_tier_wait(tutti_tier *t, tutti_io *const *io, size_t n, tutti_error *err);

/* Is the request complete? Then a wait for it does not block. */
bool tutti_tier_done(tutti_tier *t, const tutti_io *io);

size_t tutti_tier_block(const tutti_tier *t); /* 1 or TUTTI_FILE_BLOCK */
uint64_t tutti_tier_bytes(const tutti_tier *t);

/* host: the address of its bytes, for direct access without requests. Others: NULL. */
void *tutti_tier_address(tutti_tier *t);

/* Pins memory that many requests will use, until the tier is closed, once instead of in each
   request, where the I/O engine and RLIMIT_MEMLOCK allow it. false: they do not; requests work all
   the same. */
bool tutti_tier_pin(tutti_tier *t, void *memory, size_t bytes);

/* A description: "nvme in '/data': 64.0 MiB, past the page cache, io_uring (liburing 2.3), 32 x
   1048576 bytes at a time". Returns strlen, as snprintf. */
int tutti_tier_describe(tutti_tier *t, char *out, size_t bytes);

/* Totals since open, of successful requests. disk_*: bytes that they transferred, ends included.
   When the page cache is bypassed these equal /proc/self/io. */
typedef struct tutti_tier_sum {
    uint64_t read, written, disk_read, disk_written, requests;
    uint64_t staged;                   /* bytes copied through staging memory */
    int under_way_peak;                /* most concurrent chunks */
} tutti_tier_sum;
tutti_tier_sum tutti_tier_count(tutti_tier *t);
#pragma GCC visibility pop
#endif
