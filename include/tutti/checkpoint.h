/* checkpoint.h: directories step-00001200/ of safetensors shards and one manifest.json, written so that at every instant a valid
   checkpoint can be found, and read at any number of workers (checkpointing.md). The engine says what there is; this room knows files.

     DIR/step-00001200/rank-00003-of-00008.safetensors   what rank 3 saved; key "<state>/<tensor>@<begin>", flat F32/U8... of the range
     DIR/step-00001200/manifest.json                      written last, by rank 0: format, version, step, world, facts, files [{rank, bytes,
                                                         xxh3}], and for every (state, tensor): dtype, count, keep, ranges [{file, begin,
                                                         end, xxh3, owner}]; last the XXH3-64 of all that stands before it
     DIR/step-00001200-old/                               only while a save replaces a step that was there: found like any other
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

/* A piece of state in memory: elements [begin, end) of (state, tensor), which has `count` in all. */
typedef struct tutti_saved {
    const char *state, *tensor;   /* "x", "0.weight"; tensor "" for values without a place. No '/' in state, no '@' in tensor */
    tutti_keep keep;
    tutti_dtype dtype;
    int owner;                    /* -1: global (SAME, SLICE); else the rank whose own it is (OWN_*), which alone saves it; SHARD: either */
    uint64_t count, begin, end;
    void *data;                   /* element `begin` */
} tutti_saved;

/* All ranks call; blocks. Each saves its items (ranges of global state must be disjoint over ranks and together complete; rank 0 checks that
   from the gathered list before the manifest is written). facts: a JSON object, the same on all ranks, stored as "facts". Order of events and
   fsyncs: see the sheet; DIR/tmp-... until the end; afterwards all but the newest `keep` valid checkpoints, and tmp- directories of dead saves, are
   removed (keep below 1: all stay). Any failure on any rank is reported on all (err->rank: whose), leaves earlier checkpoints as they were and no new one. */
tutti_status tutti_checkpoint_save(tutti_world *world, const char *dir, uint64_t step, const tutti_saved *items, size_t n, const char *facts,
                                   int keep, tutti_error *err);

/* The same by the members of a group, as a run of so many workers: ranks, files and owners (tutti_saved.owner) are their indexes, and messages are under the group's context, so a
   save that has failed may be tried again under another one. err->rank is a rank of the world. */
tutti_status tutti_checkpoint_save_group(const tutti_group *group, const char *dir, uint64_t step, const tutti_saved *items, size_t n, const char *facts, int keep, tutti_error *err);

/* Finds a checkpoint: `path` is one, or holds some (itself or its checkpoints/ folder): the newest whose manifest parses, whose files exist with the right sizes. Older
   ones are taken when a newer is damaged; *skipped (may be NULL; room bytes) then says which and why, a line each. One rank at a time may call. */
tutti_status tutti_checkpoint_find(tutti_runtime *rt, const char *path, char *found, size_t bytes, char *skipped, size_t skipped_bytes, tutti_error *err);

typedef struct tutti_checkpoint tutti_checkpoint;
/* Opens the manifest of exactly this directory. */
tutti_status tutti_checkpoint_open(tutti_checkpoint **out, tutti_runtime *rt, const char *directory, tutti_error *err);
void tutti_checkpoint_close(tutti_checkpoint *c);
uint64_t tutti_checkpoint_step(const tutti_checkpoint *c);
int tutti_checkpoint_world(const tutti_checkpoint *c);               /* ranks that saved it */
bool tutti_checkpoint_has(const tutti_checkpoint *c, const char *state);
const char *tutti_checkpoint_facts(const tutti_checkpoint *c);       /* JSON text */
/* Fills the ranges of the targets. Every element exactly once; hashes are verified for every key read (whole keys are read). What the checkpoint
   lacks, or has with another dtype or count: TUTTI_ERR_USAGE naming state, tensor and both values; damage: TUTTI_ERR_CORRUPT naming file,
   tensor and range. Not collective: each rank reads what it needs. */
tutti_status tutti_checkpoint_read(tutti_checkpoint *c, const tutti_saved *targets, size_t n, tutti_error *err);
/* Reads everything and checks every hash (tutti check). */
tutti_status tutti_checkpoint_verify(tutti_checkpoint *c, tutti_error *err);
/* The manifest alone, for the fuzz target. */
tutti_status tutti_checkpoint_parse(tutti_checkpoint **out, const char *path, const char *text, size_t bytes, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
