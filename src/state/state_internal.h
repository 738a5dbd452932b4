/* state_internal.h: what the file part of this module shares: safetensors, manifest,
   checkpoint. */
#ifndef TUTTI_STATE_INTERNAL_H
#define TUTTI_STATE_INTERNAL_H
#include "runtime/files.h"
#include "tutti/tutti.h"
#include <jansson.h>

#define TUTTI_STATE_NAME_MOST 1024                    /* bytes of a tensor's name in a file */
#define TUTTI_STATE_DEPTH_MOST 32                     /* of JSON */
#define TUTTI_STATE_HEADER_MOST ((uint64_t)16 << 20)  /* bytes of a safetensors header */
#define TUTTI_STATE_MANIFEST_MOST ((uint64_t)64 << 20)

/* ---- text.c ---- */
/* JSON from outside: depth and duplicate keys are checked, one value and white space only. *out is
   json_decref'ed by the caller. `what` begins the sentence: "header of 'a.safetensors'". */
tutti_status tutti_state_json(json_t **out, const char *text, size_t bytes, const char *what,
                              tutti_error *err);
bool tutti_state_utf8(const char *text);
/* A name from a file as a sentence may show it: without control characters, truncated at 60
   bytes. Gives out. */
#define TUTTI_STATE_SHOWN 68
const char *tutti_state_shown(char out[TUTTI_STATE_SHOWN], const char *name);
bool tutti_state_dtype(const char *name, tutti_dtype *dtype);   /* "F32"; false: none of ours */
bool tutti_state_count(const json_t *value, uint64_t *count);   /* from 0 to 2^63 - 1 */
void tutti_state_hex(char out[17], uint64_t hash);
bool tutti_state_unhex(const char *text, uint64_t *hash);       /* exactly 16 lower-case digits */
/* "directory/name"; tutti_free it; NULL: no memory. */
char *tutti_state_join(const char *directory, const char *name);

/* XXH3-64 of a stream; equal to tutti_hash of the whole. */
typedef struct tutti_state_hash tutti_state_hash;
tutti_state_hash *tutti_state_hash_open(void);                  /* NULL: no memory */
void tutti_state_hash_close(tutti_state_hash *h);
void tutti_state_hash_begin(tutti_state_hash *h);
void tutti_state_hash_add(tutti_state_hash *h, const void *data, size_t bytes);
uint64_t tutti_state_hash_end(const tutti_state_hash *h);

/* ---- stream.c: the contents of a file, in order, with the disk kept busy ---- */
typedef struct tutti_state_out tutti_state_out;
/* A new file of `bytes` bytes. */
tutti_status tutti_state_out_open(tutti_state_out **out, tutti_runtime *rt, const char *path,
                                  uint64_t bytes, tutti_error *err);
/* The next bytes; they are copied or written when it returns. A failure may be that of earlier
   bytes. */
tutti_status tutti_state_out_add(tutti_state_out *o, const void *data, size_t bytes,
                                 tutti_error *err);
/* whole: all `bytes` have come; they are on the disk when it returns. Otherwise the file is closed
   as it is. Frees in any case; takes NULL. */
tutti_status tutti_state_out_close(tutti_state_out *o, bool whole, tutti_error *err);

struct tutti_tensor_file;
typedef struct tutti_state_in tutti_state_in;
typedef struct tutti_state_extent { uint64_t offset, bytes; } tutti_state_extent; /* of a file */
/* Keeps file and extents. */
tutti_status tutti_state_in_open(tutti_state_in **out, tutti_runtime *rt,
                                 const struct tutti_tensor_file *file,
                                 const tutti_state_extent *extents, size_t n, tutti_error *err);
/* The next piece of the extents, in their order; no piece has bytes of two. It is the caller's to
   read until the next call. TUTTI_CLOSED: there is none. */
tutti_status tutti_state_in_next(tutti_state_in *i, const uint8_t **piece, size_t *bytes,
                                 tutti_error *err);
void tutti_state_in_close(tutti_state_in *i);

/* ---- safetensors.c ---- */
struct tutti_tensor_file {
    char *path;
    tutti_file *file;             /* NULL: parsed from memory */
    uint64_t data;                /* where the data section begins in the file */
    uint64_t file_bytes;
    tutti_tensor_entry *entries;  /* by name */
    size_t n;
    char **metadata;              /* key, value, ...; pairs of them */
    size_t pairs;
    char *text;                   /* the names and metadata, ended by 0 each */
};

/* ---- manifest.c: a checkpoint's manifest in memory, also while it is being made ---- */
typedef struct tutti_manifest_range {
    uint64_t begin, end, hash;
    uint32_t file;                /* index in files */
    int owner;
} tutti_manifest_range;
typedef struct tutti_manifest_state {
    char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    uint64_t count;
    size_t first, n;              /* its ranges, by (owner, begin) */
} tutti_manifest_state;
typedef struct tutti_manifest_file { int rank; uint64_t bytes, hash; } tutti_manifest_file;
struct tutti_checkpoint {
    char *path;                   /* of the manifest, for sentences */
    char *directory;              /* NULL: parsed from memory */
    tutti_runtime *rt;
    uint64_t step;
    int world;
    char *facts;
    tutti_manifest_file *files;   /* by rank */
    size_t n_files;
    tutti_manifest_state *states; /* by (state, tensor) */
    size_t n_states;
    tutti_manifest_range *ranges;
    size_t n_ranges;
};
#define TUTTI_STATE_FILE_NAME 64
/* "rank-00003-of-00008.safetensors" */
void tutti_state_file_name(char out[TUTTI_STATE_FILE_NAME], int rank, int world);
/* "<state>/<tensor>@<begin>"; room: capacity of out, the names' lengths and 24. */
void tutti_state_key(char *out, size_t room, const char *state, const char *tensor, uint64_t begin);
/* As strcmp of the pairs. */
int tutti_state_order(const char *state, const char *tensor, const char *other_state,
                      const char *other_tensor);
/* Every state's ranges are disjoint and complete for each owner; sentences begin with `what`. */
tutti_status tutti_manifest_check(const tutti_checkpoint *c, const char *what, tutti_error *err);
/* The text that is written; tutti_free it. c->facts is JSON. */
tutti_status tutti_manifest_print(const tutti_checkpoint *c, char **text, size_t *bytes,
                                  tutti_error *err);

/* ---- merge.c: the ranks' lists become a manifest ---- */
typedef struct tutti_saved_piece {
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    uint64_t count;
    tutti_manifest_range range;   /* all but its `file` */
    int rank;                     /* that has written it */
} tutti_saved_piece;
/* Sorts the pieces. files: by rank, those that have one. The result has no step, world or facts yet
   and is not checked. */
tutti_status tutti_manifest_merge(tutti_checkpoint **out, const char *path,
                                  tutti_saved_piece *pieces, size_t n,
                                  const tutti_manifest_file *files, size_t n_files,
                                  tutti_error *err);

/* ---- checkpoint.c ---- */
typedef struct tutti_found_step {
    uint64_t step;
    bool old;                     /* "step-00001200-old", see commit.c */
    char *name;
} tutti_found_step;
typedef struct tutti_found_steps { tutti_found_step *at; size_t n, room; } tutti_found_steps;
/* The names in the directory that are those of checkpoints, newest first. Free the list in any
   case. */
tutti_status tutti_state_list_steps(tutti_runtime *rt, const char *directory,
                                    tutti_found_steps *list, tutti_error *err);
void tutti_state_free_steps(tutti_found_steps *list);
/* tutti_free it; NULL: no memory. */
char *tutti_state_path_of(const tutti_checkpoint *c, size_t file);

/* ---- commit.c: rank 0's part of a save. A plan of directories, and the steps on it. ---- */
typedef struct tutti_commit {
    tutti_runtime *rt;
    const char *dir;
    uint64_t step;
    /* DIR/tmp-00001200-0123456789abcdef, DIR/step-00001200, DIR/step-00001200-old */
    char *tmp, *final, *old;
} tutti_commit;
tutti_status tutti_commit_open(tutti_commit *c, tutti_runtime *rt, const char *dir, uint64_t step,
                               uint64_t id, tutti_error *err);
void tutti_commit_close(tutti_commit *c);
/* dir, or the nearest above it that exists; tutti_free it. */
char *tutti_commit_place(tutti_runtime *rt, const char *dir);
/* Makes DIR, durable, and tmp; tmp is not there on failure. */
tutti_status tutti_commit_begin(tutti_commit *c, tutti_error *err);
/* Writes the manifest of m into tmp and makes tmp the checkpoint. On failure everything visible is
   as it was. */
tutti_status tutti_commit_finish(tutti_commit *c, const tutti_checkpoint *m, tutti_error *err);
/* Removes what failed and dead saves have left, as far as that works. */
void tutti_commit_clean(tutti_runtime *rt, const char *dir);
/* Removes all but the newest, c's own among them. */
void tutti_commit_retire(tutti_commit *c, int keep);

/* ---- save.c: tutti_checkpoint_save with the files of another runtime than the world's,
   so that a test can fail them ---- */
tutti_status tutti_checkpoint_save_through(tutti_world *world, tutti_runtime *files,
                                           const char *dir, uint64_t step, const tutti_saved *items,
                                           size_t n, const char *facts, int keep, tutti_error *err);
#endif
