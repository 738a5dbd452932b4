/* checkpoint.h: files of tensors, and the directories of them that are checkpoints of a run. The
   engine (engine.h) saves and loads its state by these; a client may read and write them too. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H
#include "comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the file format of model.safetensors and of checkpoint shards. Written so that
   any safetensors reader accepts it; files that are read are treated as untrusted. ---- */

#define TUTTI_SAFETENSORS_DIMS 8

typedef struct tutti_tensor_file tutti_tensor_file;
typedef struct tutti_tensor_entry {
    const char *name;             /* UTF-8, at most 1 KiB */
    tutti_dtype dtype;
    int dims;
    uint64_t dim[TUTTI_SAFETENSORS_DIMS];
    uint64_t begin, bytes;        /* in the data section; writer: ignored and set */
    const void *data;             /* writer: the contents; reader: NULL */
    struct tutti_tier *tier; uint64_t at; /* writer, with data NULL: the contents are in this tier
                                     from that byte on */
    /* writer, with data NULL and no tier: sets *data to the contents, which must stay valid until
       it is called for another tensor. It is called for one tensor after another, in file order. */
    tutti_status (*bring)(void *with, const struct tutti_tensor_entry *e, const void **data,
                          tutti_error *err);
    /* writer, with data NULL, no tier and no bring: copies `bytes` of the contents, from byte
       `offset` on, to `to`. It is called from the first byte to the last, tensors in file order. */
    tutti_status (*copy)(void *with, const struct tutti_tensor_entry *e, uint64_t offset, void *to,
                         size_t bytes, tutti_error *err);
    void *with;                   /* of bring, copy */
    uint64_t hash;                /* writer: set to the contents' XXH3-64; reader: 0 */
} tutti_tensor_entry;

/* Writes path + ".part" (an old one is removed first), syncs it, renames it to path. Does not
   sync the directory. On failure the part file is removed and an earlier `path` is unchanged.

   Tensors are laid out by descending element size, then name; the first starts at a multiple of
   64 bytes. entries[k].begin, bytes, hash are set. metadata: string pairs of __metadata__, a
   NULL-ended array of key, value, key, value. It has no time and no host, so files of equal runs
   are equal. A value of 16 zeros of the key "tutti_xxh3" becomes the XXH3-64 of the header as it
   was with these zeros. *hash (may be NULL): XXH3-64 of the whole file. */
tutti_status tutti_safetensors_write(tutti_runtime *rt, const char *path,
                                     tutti_tensor_entry *entries, size_t n,
                                     const char *const *metadata, uint64_t *hash,
                                     tutti_error *err);

/* Reads and checks the header:
     - its length, at most 16 MiB and within the file;
     - JSON of depth <= 32 without duplicate keys; metadata all strings;
     - known dtypes (sub-byte and unknown ones are refused by name);
     - shape x size = range without overflow;
     - ranges in order, contiguous, covering the file to its last byte.
   The sentence names the file, the tensor and both values. */
tutti_status tutti_safetensors_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err);
void tutti_safetensors_close(tutti_tensor_file *f);
size_t tutti_safetensors_count(const tutti_tensor_file *f);

/* Entry i, sorted by name. */
const tutti_tensor_entry *tutti_safetensors_entry(const tutti_tensor_file *f, size_t i);
const tutti_tensor_entry *tutti_safetensors_find(const tutti_tensor_file *f, const char *name);

/* NULL: absent. */
const char *tutti_safetensors_metadata(const tutti_tensor_file *f, const char *key);

/* `bytes` of the tensor's data from its byte `offset`. */
tutti_status tutti_safetensors_read(tutti_tensor_file *f, const tutti_tensor_entry *e,
                                    uint64_t offset, void *to, size_t bytes, tutti_error *err);

/* ---- checkpoints are directories step-00001200/ of safetensors shards and one
   manifest.json. They are written so that at every instant a valid one can be found, and can be
   read by any number of workers. The engine decides what is saved; this module handles the files.

     DIR/step-00001200/rank-00003-of-00008.safetensors
         Saved by rank 3: key "<state>/<tensor>@<begin>", flat F32, U8, ... of the range.
     DIR/step-00001200/manifest.json
         Written last, by rank 0: format, version, step, world, facts, files [{rank, bytes, xxh3}].
         For every (state, tensor): dtype, count, keep, ranges [{file, begin, end, xxh3, owner}].
         Last the XXH3-64 of all preceding text.
     DIR/step-00001200-old/
         Only while a save replaces an existing step: found like any other.

   A directory without a valid manifest is no checkpoint. ---- */

/* ---- saving ---- */
/* A piece of state in memory: elements [begin, end) of (state, tensor), which has `count` in
   total. */
typedef struct tutti_saved {
    /* "x", "0.weight". tensor "": values outside the parameter space. No '/' in state, no '@' in
       tensor. */
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    /* -1: global (SAME, SLICE). Else the rank to which it belongs (OWN_*), which alone saves it.
       SHARD: either. */
    int owner;
    uint64_t count, begin, end;
    void *data;                   /* element `begin` */
    /* With data NULL: the contents are at byte `at` of this tier, which is read and written. */
    struct tutti_tier *tier; uint64_t at;
} tutti_saved;

/* Saves a checkpoint. All ranks call, each with its items; blocks. Ranges of global state must be
   disjoint over ranks and together complete. Rank 0 checks that from the gathered list before the
   manifest is written. `facts` is a JSON object, the same on all ranks, stored as "facts".

   Files are in DIR/tmp-... until the end (src/state/commit.c has the order of renames and
   fsyncs). Afterwards all but the newest `keep` valid checkpoints are removed, and tmp-
   directories of interrupted saves. keep below 1: all stay.

   A failure on any rank is reported on all (err->rank: that rank). It leaves earlier checkpoints
   unchanged, and no new one. */
tutti_status tutti_checkpoint_save(tutti_world *world, const char *dir, uint64_t step,
                                   const tutti_saved *items, size_t n, const char *facts, int keep,
                                   tutti_error *err);

/* ---- reading ---- */
/* Finds a checkpoint. `path` is one, or contains some (itself or its checkpoints/ folder): then
   the newest whose manifest parses and whose files exist with the right sizes. If a newer one is
   damaged an older one is used; skipped (may be NULL; skipped_bytes bytes) then lists which and
   why, a line each. One rank at a time may call. */
tutti_status tutti_checkpoint_find(tutti_runtime *rt, const char *path, char *found, size_t bytes,
                                   char *skipped, size_t skipped_bytes, tutti_error *err);

typedef struct tutti_checkpoint tutti_checkpoint;
/* Opens the manifest of exactly this directory. */
tutti_status tutti_checkpoint_open(tutti_checkpoint **out, tutti_runtime *rt,
                                   const char *directory, tutti_error *err);
void tutti_checkpoint_close(tutti_checkpoint *c);
uint64_t tutti_checkpoint_step(const tutti_checkpoint *c);
int tutti_checkpoint_world(const tutti_checkpoint *c);         /* ranks that saved it */
bool tutti_checkpoint_has(const tutti_checkpoint *c, const char *state);
const char *tutti_checkpoint_facts(const tutti_checkpoint *c); /* JSON text */

/* Piece i of the checkpoint, as a rank saved it, sorted by state, tensor, owner, begin. data is
   NULL; strings live as long as c. false and zeros beyond the end. */
bool tutti_checkpoint_piece(const tutti_checkpoint *c, size_t i, tutti_saved *piece);

/* Fills the ranges of the targets, every element exactly once. Hashes are verified for every key
   read (whole keys are read). Not collective: each rank reads what it needs.

   A target that the checkpoint lacks, or has with another dtype or count: TUTTI_ERR_USAGE naming
   state, tensor and both values. Damage: TUTTI_ERR_CORRUPT naming file, tensor and range. */
tutti_status tutti_checkpoint_read(tutti_checkpoint *c, const tutti_saved *targets, size_t n,
                                   tutti_error *err);

/* Reads everything and checks every hash (tutti check). */
tutti_status tutti_checkpoint_verify(tutti_checkpoint *c, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
