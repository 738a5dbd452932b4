/* tier.h: memory that is counted against a limit, and storage for state outside the device's
   memory: host memory, or a file on a disk (NVMe). Included by the state plan, the optimisers and
   the engine. Implemented by arena.c (arenas) and tier.c, host.c, nvme.c and chunks.c (tiers).

   An arena counts memory against a limit. A tier is a range of bytes [0, bytes) outside the
   device, which asynchronous requests read and write. The contents of a tier belong to one process
   and are lost when it ends, so a checkpoint has to read them. */
#ifndef TUTTI_TIER_H
#define TUTTI_TIER_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* ---- arenas: any thread, at any time. An arena keeps one sum of bytes for each name. ---- */
typedef struct tutti_arena tutti_arena;
#define TUTTI_UNBOUNDED UINT64_MAX /* a limit: none */
#define TUTTI_ARENA_ALIGN 64       /* the least alignment of memory from an arena */

/* Opens an arena. what: what error messages call the memory, "device memory". mend: how a user
   raises the limit, "raise --device-memory"; "": not at all. limit: the most bytes. Both strings
   are copied, at most 60 bytes of each. */
tutti_status tutti_arena_open(tutti_arena **out, tutti_runtime *rt, const char *what,
                              const char *mend, uint64_t limit, tutti_error *err);
/* Closes the arena, once all its memory was released. */
void tutti_arena_close(tutti_arena *a);

/* Allocates zeroed memory, and charges its bytes to `name`, a string that is copied, at most 40
   bytes of it. alignment: a power of two; for tiers that bypass the page cache TUTTI_FILE_BLOCK
   (runtime/files.h). TUTTI_ERR_MEMORY beyond the limit, or if the machine has no memory: the
   message states what is needed, the limit, and the users of the memory by name. */
tutti_status tutti_arena_take(tutti_arena *a, const char *name, size_t bytes, size_t alignment,
                              void **memory, tutti_error *err);
/* Frees such memory. Accepts NULL. */
void tutti_arena_give(tutti_arena *a, void *memory);

/* Counts memory that other code allocates: charges its bytes, or takes them back. */
tutti_status tutti_arena_charge(tutti_arena *a, const char *name, uint64_t bytes,
                                tutti_error *err);
void tutti_arena_refund(tutti_arena *a, const char *name, uint64_t bytes);

typedef struct tutti_arena_part { const char *name; uint64_t bytes; } tutti_arena_part;
/* Makes all n charges, or none, so that an error message has the sum of all. */
tutti_status tutti_arena_charge_all(tutti_arena *a, const tutti_arena_part *parts, size_t n,
                                    tutti_error *err);

typedef struct tutti_arena_sum { uint64_t now, peak, limit; } tutti_arena_sum;
/* Returns the bytes that are charged to a name now, and at most so far; NULL: to all names. A name
   that was never charged has 0. */
tutti_arena_sum tutti_arena_count(tutti_arena *a, const char *name);

/* ---- tiers; any thread ---- */
typedef struct tutti_tier tutti_tier;

/* The kinds of tiers, for help and docs; ends with {0}. */
extern const struct tutti_tier_kind {
    const char *name, *help;
    const tutti_option *options;
} tutti_tiers[];

/* A request, in the caller's memory. Zero it before its first use. It belongs to the tier from
   being posted until the wait for it has returned; then it may be posted again. Its members are
   the tier's. */
typedef struct tutti_io {
    struct tutti_io *next;
    char *memory;
    uint64_t at;                       /* offset in the tier */
    size_t bytes;                      /* of the request */
    size_t cut;                        /* bytes of it that were split into chunks */
    size_t left;                       /* bytes of it that are not complete */
    bool write, under_way;             /* under_way: posted and not complete */
    tutti_status status;
    tutti_error err;
} tutti_io;

/* Opens a tier of `bytes` bytes, at least 1, which are all 0. spec:
     - "host": memory of this process.
     - "nvme(path=DIR, ...)": a file without a name in DIR, which vanishes with this process
       however it ends. Its space is allocated here, so that a full disk is found before any work.
   arena: counts the host memory of the tier (all of a `host`, the staging memory of an `nvme`),
   and must outlive the tier; NULL: it is not counted. An error message states what is needed and
   what is available. Allocates, starts threads, blocks. */
tutti_status tutti_tier_open(tutti_tier **out, tutti_runtime *rt, const char *spec, uint64_t bytes,
                             tutti_arena *arena, tutti_error *err);
/* Waits for all requests, and closes the tier. Blocks. */
void tutti_tier_close(tutti_tier *t);

/* Post a request that reads, or writes, the bytes [at, at + bytes) of the tier. Any offset, size
   and address is legal. Concurrent requests must not overlap, unless both read. The memory must
   not move or change until the request was waited for. Blocks only while too many requests wait to
   begin. Fails, and posts nothing, if the range is not in the tier or the request is still in
   progress.

   Multiples of tutti_tier_block (offset, size and address) are transferred directly. If offset and
   address have the same remainder modulo a block, only the ends are copied through staging memory;
   otherwise all bytes are. A write reads each outer block that it does not fill. */
tutti_status tutti_tier_read(tutti_tier *t, tutti_io *io, uint64_t at, void *to, size_t bytes,
                             tutti_error *err);
tutti_status tutti_tier_write(tutti_tier *t, tutti_io *io, uint64_t at, const void *from,
                              size_t bytes, tutti_error *err);

/* Waits for all of n requests, and returns the first failure in their order. After a failed write
   only the bytes of its range are undefined. A request that was never posted counts as complete.
   Blocks; does not allocate. */
tutti_status tutti_tier_wait(tutti_tier *t, tutti_io *const *io, size_t n, tutti_error *err);

/* Returns whether the request is complete, so that a wait for it does not block. */
bool tutti_tier_done(tutti_tier *t, const tutti_io *io);

/* Returns the block size of direct transfers: 1 or TUTTI_FILE_BLOCK. */
size_t tutti_tier_block(const tutti_tier *t);
/* Returns the tier's bytes. */
uint64_t tutti_tier_bytes(const tutti_tier *t);

/* Returns the address of the bytes of a `host`, for access without requests; NULL: other tiers. */
void *tutti_tier_address(tutti_tier *t);

/* Pins memory that many requests will use, once and until the tier is closed, instead of in each
   request. false: the I/O engine or RLIMIT_MEMLOCK does not allow it; requests work all the
   same. */
bool tutti_tier_pin(tutti_tier *t, void *memory, size_t bytes);

/* Writes a description to out[bytes]: "nvme in '/data': 64.0 MiB, past the page cache, io_uring
   (liburing 2.3), 32 x 1048576 bytes at a time". Returns its length, as snprintf. */
int tutti_tier_describe(tutti_tier *t, char *out, size_t bytes);

/* Totals of successful requests since open. */
typedef struct tutti_tier_sum {
    uint64_t read, written;            /* bytes of the requests */
    uint64_t disk_read, disk_written;  /* bytes that they transferred, whole blocks at their ends
                                          included; if the page cache is bypassed, as in
                                          /proc/self/io */
    uint64_t requests;
    uint64_t staged;                   /* bytes copied through staging memory */
    int under_way_peak;                /* the most chunks in progress at a time */
} tutti_tier_sum;
/* Returns the totals. */
tutti_tier_sum tutti_tier_count(tutti_tier *t);
#pragma GCC visibility pop
#endif
