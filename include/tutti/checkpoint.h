/* checkpoint.h: checkpoints are directories step-00001200/ of safetensors shards and one
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

   A directory without a valid manifest is no checkpoint. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H
#include "comm.h"
#include "safetensors.h"
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

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

/* tutti_checkpoint_save by the members of a group, as a run of group->size workers. Ranks, files
   and owners (tutti_saved.owner) are their indexes. Messages use the group's context, so a save
   that has failed may be repeated with another one. err->rank is a rank of the world. */
tutti_status tutti_checkpoint_save_group(const tutti_group *group, const char *dir, uint64_t step,
                                         const tutti_saved *items, size_t n, const char *facts,
                                         int keep, tutti_error *err);

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

/* The manifest alone, for the fuzz target. */
tutti_status tutti_checkpoint_parse(tutti_checkpoint **out, const char *path, const char *text,
                                    size_t bytes, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
