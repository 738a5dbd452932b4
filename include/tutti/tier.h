/* tier.h: memory that is counted, and state that is kept where there is more room: host memory, or
   a file on a disk (NVMe).

   An arena counts memory against a limit. A tier is a range of bytes [0, bytes) elsewhere. It is
   read and written by requests, which go on beside the caller. What a tier holds is one process's
   and ends with it: a checkpoint reads it out. */
#ifndef TUTTI_TIER_H
#define TUTTI_TIER_H
#include "options.h"
#include "runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- arenas: any thread, at any time. A name sums what was taken under it. ---- */
typedef struct tutti_arena tutti_arena;
#define TUTTI_UNBOUNDED UINT64_MAX
#define TUTTI_ARENA_ALIGN 64       /* the least alignment */

/* what: "device memory", of which `limit` bytes may be taken. mend: how a user raises the limit,
   "raise --device-memory". Both are copied, of at most 60 bytes. */
tutti_status tutti_arena_open(tutti_arena **out, tutti_runtime *rt, const char *what,
                              const char *mend, uint64_t limit, tutti_error *err);
void tutti_arena_close(tutti_arena *a); /* all that was taken has been given back */

/* Zeroed memory. alignment: a power of two; for tiers that go past the page cache
   TUTTI_FILE_BLOCK. name: copied, of at most 40 bytes. Beyond the limit it fails with what is
   needed, what there is, and who has it. Allocates. */
tutti_status tutti_arena_take(tutti_arena *a, const char *name, size_t bytes, size_t alignment,
                              void **memory, tutti_error *err);
void tutti_arena_give(tutti_arena *a, void *memory); /* takes NULL */

/* The same for memory that somebody else allocates: it is counted only. */
tutti_status tutti_arena_charge(tutti_arena *a, const char *name, uint64_t bytes,
                                tutti_error *err);
void tutti_arena_refund(tutti_arena *a, const char *name, uint64_t bytes);

/* Several charges at once, all or none. So what is refused is told with the sum of all. */
typedef struct tutti_arena_part { const char *name; uint64_t bytes; } tutti_arena_part;
tutti_status tutti_arena_charge_all(tutti_arena *a, const tutti_arena_part *parts, size_t n,
                                    tutti_error *err);

/* name NULL: of all. A name that nobody used has 0. */
typedef struct tutti_arena_sum { uint64_t now, peak, limit; } tutti_arena_sum;
tutti_arena_sum tutti_arena_count(tutti_arena *a, const char *name);

/* ---- tiers ---- */
typedef struct tutti_tier tutti_tier;

/* What a tier may be: for help and docs; {0}-ended. */
extern const struct tutti_tier_kind {
    const char *name, *help;
    const tutti_option *options;
} tutti_tiers[];

/* One request. Caller's memory, zero before its first use; the tier's from the post until the wait
   for it has returned. Then it may be posted again. */
typedef struct tutti_io {
    struct tutti_io *next;
    char *memory;
    uint64_t at;
    size_t bytes, cut, left;           /* in all; handed out; not yet ended */
    bool write, under_way;
    tutti_status status;
    tutti_error err;
} tutti_io;

/* spec:
     - "host": memory of this process.
     - "nvme(path=DIR, ...)": a file without a name in DIR, which is gone with this process however
       it ends. All room is taken here, so a full disk is found before any work.
   bytes: at least 1; all of them are 0 at first. arena: counts what host memory the tier takes
   (all of `host`, staging of `nvme`) and outlives it; NULL: nobody counts.

   It fails with what is needed and what there is. Allocates, starts threads, blocks. */
tutti_status tutti_tier_open(tutti_tier **out, tutti_runtime *rt, const char *spec, uint64_t bytes,
                             tutti_arena *arena, tutti_error *err);
/* Waits for what is under way. Blocks. */
void tutti_tier_close(tutti_tier *t);

/* Posts a request. [at, at + bytes) lies within the tier; any offset, size and address will do.
   Requests that are under way at a time must not overlap, but for reads. The memory stays still
   until the request is waited for. Blocks only while too many requests are waiting to begin. A
   failure posts nothing (a range that is not the tier's, a request that is under way). Any thread.

   Multiples of tutti_tier_block (offset, size and address) go as they are. Of the others the ends
   take a way round through staging memory: a read more for each end of a write. */
tutti_status tutti_tier_read(tutti_tier *t, tutti_io *io, uint64_t at, void *to, size_t bytes,
                             tutti_error *err);
tutti_status tutti_tier_write(tutti_tier *t, tutti_io *io, uint64_t at, const void *from,
                              size_t bytes, tutti_error *err);

/* Waits for all of n requests, each posted by whatever thread, and gives the first failure in their
   order. What a failed write should have replaced is undefined, and nothing else is. What was never
   posted has ended. Blocks; does not allocate. */
tutti_status tutti_tier_wait(tutti_tier *t, tutti_io *const *io, size_t n, tutti_error *err);

/* Has it ended? Then a wait for it does not block. */
bool tutti_tier_done(tutti_tier *t, const tutti_io *io);

size_t tutti_tier_block(const tutti_tier *t); /* 1 or TUTTI_FILE_BLOCK */
uint64_t tutti_tier_bytes(const tutti_tier *t);

/* host: where its bytes are, so that nobody need copy them; requests do. Others: NULL. */
void *tutti_tier_address(tutti_tier *t);

/* Memory that many requests will use, until the tier is closed: pinned once rather than by each of
   them, where engine and limits allow. false: they do not, and all goes on without. */
bool tutti_tier_pin(tutti_tier *t, void *memory, size_t bytes);

/* In words what it is: "nvme in '/data': 64.0 MiB, past the page cache, io_uring (liburing 2.3),
   32 x 1048576 bytes at a time". Gives strlen, as snprintf. */
int tutti_tier_describe(tutti_tier *t, char *out, size_t bytes);

/* Since it was opened, of requests that have ended well. disk_*: what they moved, ends included.
   Past the page cache that is what /proc/self/io says. */
typedef struct tutti_tier_sum {
    uint64_t read, written, disk_read, disk_written, requests;
    uint64_t staged;                   /* bytes that took the way round */
    int under_way_peak;                /* of chunks, at a time */
} tutti_tier_sum;
tutti_tier_sum tutti_tier_count(tutti_tier *t);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
