/* files.h: what a run leaves in files: tensors, checkpoints, the record of its figures. The engine
   (tutti.h) saves and loads its state by these; a client may read and write them too. */
#ifndef TUTTI_FILES_H
#define TUTTI_FILES_H
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
/* A piece of state in memory: elements [begin, end) of the `count` of (state, tensor). */
typedef struct tutti_saved {
    /* "x", "0.weight". tensor "": values outside the space. No '/' in state, no '@' in tensor. */
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    /* -1: global (SAME, SLICE). Else its rank (OWN_*), which alone saves it. SHARD: either. */
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

/* ---- the record of a run, written by a client of the engine: what each worker did and when,
   on one clock, and its figures. `tutti report FOLDER` makes a page of it. The files have the form
   of those of `tutti train`:

     config.json     settings: of the engine, and the facts of the client
     metrics.jsonl   a line after steps 1, 2, 4, 8 ... and each report_every; at the end one with
                     the figures of rank 0 alone. With log_to its figures are in other files, too
     trace.json      activities of all ranks, for Perfetto and Chrome, when all have closed
     summary.json    figures of the whole run, likewise

   While a run lasts each rank appends what it did to a file of its own, trace-RANK.json, after each
   step: a JSON array without its end, which those programs load. At close it adds its figures,
   rank-RANK.json. The rank that closes last merges both kinds of files and removes them. Nobody
   waits for it. So a rank that is killed leaves what it has written, and the others end as they
   would without a record. tutti_record_merge then makes trace.json of what there is. On hosts
   without a common file system each has the files of its own ranks.

   Times are of tutti_now_ns (base.h), in ns. Calls are as the engine's: any thread, never two at
   a time, and none after the engine was closed.

   A rank that cannot write (the disk is full) reports that once: that call returns the failure,
   TUTTI_ERR_IO. Then it writes nothing more, and the run goes on: later calls take part in what
   ranks do together, and return TUTTI_OK. ---- */
struct tutti_engine; /* tutti.h */
typedef struct tutti_record tutti_record;

/* Most spans of a rank that are written, and a good trace_events of its engine: a program that
   shows traces can still load so many. What is beyond is counted ("lost"). */
enum { TUTTI_RECORD_EVENTS = 200000 };

typedef struct tutti_record_options {
    const char *folder;          /* is made, with its parents */
    bool overwrite;              /* remove the files of an earlier record that are there */
    bool samples;                /* the engine counts the client's samples (its batch is true) */
    uint64_t report_every;       /* steps; 0: 50 */
    const char *facts;           /* an object of JSON, members for config.json; rank 0's count.
                                    "script" and "command", an array of words: what page and
                                    summary call the run. NULL: none */
    const char *log_to;          /* "tensorboard,csv,prometheus": rank 0 writes the lines of
                                    metrics.jsonl in these forms as well; the same on all ranks.
                                    NULL: none */
    const char *metrics_port;    /* rank 0 answers GET /metrics there with the latest figures, as
                                    Prometheus reads them: "9400", of 127.0.0.1; "0.0.0.0:9400",
                                    "[::1]:9400"; the same on all ranks. NULL: none */
} tutti_record_options;

/* Begins the record of a run. All ranks, those too that only serve, after tutti_engine_open and
   before the first pass. The engine must outlive it; options are copied. Compares clocks where
   ranks may have different ones. TUTTI_ERR_USAGE, on all ranks: the folder is not empty, or is not
   the same on all, or another rank cannot write there, or the port cannot be had. TUTTI_ERR_IO:
   this one cannot. Nothing is left there then. Blocks. */
tutti_status tutti_record_open(tutti_record **out, struct tutti_engine *engine,
                               const tutti_record_options *options, tutti_error *err);
/* Adds a span of the client thread to the step that the engine is in: "forward". what: letters and
   blanks, copied. Spans overlap only in whole. The next tutti_record_step or close writes it. */
tutti_status tutti_record_span(tutti_record *r, const char *what, int64_t begin_ns, int64_t end_ns,
                               tutti_error *err);
/* Adds the mean loss of one batch of this worker. metrics.jsonl has the mean of all since its last
   line; without any it is null. */
void tutti_record_loss(tutti_record *r, double loss);
/* Adds a line of an evaluation: an object of JSON, numbers (or null) by name. Rank 0 writes it; r
   NULL: it is checked. TUTTI_ERR_USAGE: a name that cannot be, or that is the record's own. */
tutti_status tutti_record_log(tutti_record *r, const char *figures, tutti_error *err);
/* Call after each tutti_engine_step: writes what the step was. Where workers make their steps
   together (TUTTI_REPLICAS_EQUAL) and none may be lost, they also exchange the figures of a line of
   metrics.jsonl where one is due, and compare clocks after steps 1, 2, 4, 8 ... Then all workers
   call it after the same steps, and it blocks. Elsewhere a line has the figures of rank 0 alone.
   TUTTI_ERR_PEER: as the engine's calls. */
tutti_status tutti_record_step(tutti_record *r, tutti_error *err);
/* Ends the record and frees it in any case; accepts NULL. Before tutti_engine_close. Does not wait
   for other ranks. ended: the run has come to its end; false: it has failed, and this rank's files
   stay as they are. */
tutti_status tutti_record_close(tutti_record *r, bool ended, tutti_error *err);

/* ---- the same of a client that calls a world itself (comm.h), without an engine: the trace has
   these calls and waiting, and summary.json "calls": of rank 0 by group, name and codec.
   compute_seconds is the time in which no thread waited. Any thread, several at a time. ---- */
typedef struct tutti_call_record tutti_call_record;
typedef struct tutti_call {
    const char *group;           /* a thread of the trace, on which calls follow each other */
    const char *name, *codec;    /* codec "": none. Of a text 39 bytes are written */
    uint64_t bytes;              /* of values: the larger of what the client gives and gets */
    int64_t asked_ns, begin_ns, end_ns; /* the client has asked for it; it was made */
} tutti_call;

/* As tutti_record_open. folder "": this rank wants none; then no rank may, and *out is NULL. */
tutti_status tutti_call_record_open(tutti_call_record **out, tutti_world *world,
                                    const tutti_record_options *options, tutti_error *err);
/* Adds a call that is over. */
tutti_status tutti_call_record_call(tutti_call_record *r, const tutti_call *call, tutti_error *err);
/* A thread begins to wait for a call; returns the time. `waited` ends it, with that as begin_ns.
   thread: its name in the trace; NULL: the client's. */
int64_t tutti_call_record_wait(tutti_call_record *r);
tutti_status tutti_call_record_waited(tutti_call_record *r, const tutti_call *call,
                                      const char *thread, tutti_error *err);
void tutti_call_record_loss(tutti_call_record *r, double loss);
tutti_status tutti_call_record_log(tutti_call_record *r, const char *figures, tutti_error *err);
/* After each step of this rank. A line of metrics.jsonl has the figures of rank 0 alone. */
tutti_status tutti_call_record_step(tutti_call_record *r, tutti_error *err);
/* Compares clocks, if ranks may have different ones. All ranks, one call at a time; blocks. */
tutti_status tutti_call_record_clock(tutti_call_record *r, tutti_error *err);
tutti_status tutti_call_record_close(tutti_call_record *r, bool ended, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
