/* state_internal.h: files of tensors (safetensors) and checkpoints, as the files of src/state have
   them in common. Included by these files only, except plan.c; each section names the file that
   implements it.

   A checkpoint is a directory with a file of tensors from each rank, and a manifest, which lists
   the states: a state is identified by its name and a tensor's name, and is saved in ranges of
   elements (begin, end), each by an owner (-1: the state is the same on all workers). File
   contents are not trusted: every size is checked. */
#ifndef TUTTI_STATE_INTERNAL_H
#define TUTTI_STATE_INTERNAL_H
#include "runtime/files.h"
#include "tutti/tutti.h"
#include <jansson.h>

/* The most: */
#define TUTTI_STATE_NAME_MOST 1024                    /* bytes of a tensor's name in a file */
#define TUTTI_STATE_DEPTH_MOST 32                     /* levels of nested JSON */
#define TUTTI_STATE_HEADER_MOST ((uint64_t)16 << 20)  /* bytes of a safetensors header */
#define TUTTI_STATE_MANIFEST_MOST ((uint64_t)64 << 20) /* bytes of a manifest */

/* ---- text.c ---- */
/* Parses a text from a file as one JSON value, and checks its depth and that keys are unique. The
   caller calls json_decref on *out. what: how an error message begins: "header of
   'a.safetensors'". TUTTI_ERR_CORRUPT. */
tutti_status tutti_state_json(json_t **out, const char *text, size_t bytes, const char *what,
                              tutti_error *err);
/* Returns whether the text is valid UTF-8. */
bool tutti_state_utf8(const char *text);
/* Writes a name from a file to `out` as an error message may show it: without control characters,
   truncated at 60 bytes. Returns out. */
#define TUTTI_STATE_SHOWN 68
const char *tutti_state_shown(char out[TUTTI_STATE_SHOWN], const char *name);
/* Sets *dtype to the type of that name, such as "F32"; false: it is no tutti_dtype. */
bool tutti_state_dtype(const char *name, tutti_dtype *dtype);
/* Sets *count to an integer from 0 to 2^63 - 1; false: the value is no such number. */
bool tutti_state_count(const json_t *value, uint64_t *count);
/* Writes a hash as 16 lower-case hexadecimal digits, and reads exactly that; false: the text is
   not. */
void tutti_state_hex(char out[17], uint64_t hash);
bool tutti_state_unhex(const char *text, uint64_t *hash);
/* Returns "directory/name", to be freed by tutti_free; NULL: no memory. */
char *tutti_state_join(const char *directory, const char *name);

/* XXH3-64 of a stream of bytes, equal to tutti_hash of all of them at once. begin: starts a new
   stream; end: returns the hash of the bytes added since. */
typedef struct tutti_state_hash tutti_state_hash;
tutti_state_hash *tutti_state_hash_open(void);                  /* NULL: no memory */
void tutti_state_hash_close(tutti_state_hash *h);
void tutti_state_hash_begin(tutti_state_hash *h);
void tutti_state_hash_add(tutti_state_hash *h, const void *data, size_t bytes);
uint64_t tutti_state_hash_end(const tutti_state_hash *h);

/* ---- seal.c: a text of JSON that has the hash of itself as a member ---- */
#define TUTTI_STATE_SEAL "tutti_xxh3"                /* the member's key */
#define TUTTI_STATE_UNSEALED "0000000000000000"      /* its value until the text is sealed */
#define TUTTI_STATE_HASHES "tutti_hashes"            /* in __metadata__: JSON, name -> XXH3-64 */
/* Sets the member to the text's hash. Does nothing if there is none with the value UNSEALED. */
void tutti_state_seal(char *text, size_t bytes);
typedef enum { TUTTI_SEAL_NONE, TUTTI_SEAL_BROKEN, TUTTI_SEAL_WHOLE } tutti_seal;
/* Compares the member with the text's hash. The text is changed meanwhile. */
tutti_seal tutti_state_seal_of(char *text, size_t bytes);

/* ---- stream.c: writes and reads the contents of a file in order, while the disk works
   concurrently ---- */
typedef struct tutti_state_out tutti_state_out;
/* Creates a file of `bytes` bytes, which are then added in order. */
tutti_status tutti_state_out_open(tutti_state_out **out, tutti_runtime *rt, const char *path,
                                  uint64_t bytes, tutti_error *err);
/* Adds the next bytes, which are copied or written on return. A failure may be that of earlier
   bytes. */
tutti_status tutti_state_out_add(tutti_state_out *o, const void *data, size_t bytes,
                                 tutti_error *err);
/* Closes the file and frees o, also after a failure. whole: all bytes were added, and are on the
   disk on return; otherwise the file is left as it is. Accepts NULL. */
tutti_status tutti_state_out_close(tutti_state_out *o, bool whole, tutti_error *err);

struct tutti_tensor_file;
typedef struct tutti_state_in tutti_state_in;
/* A range of bytes of a file. */
typedef struct tutti_state_extent { uint64_t offset, bytes; } tutti_state_extent;
/* Starts reading extents[n] of the file, in this order. Both must stay until the reader is
   closed. */
tutti_status tutti_state_in_open(tutti_state_in **out, tutti_runtime *rt,
                                 const struct tutti_tensor_file *file,
                                 const tutti_state_extent *extents, size_t n, tutti_error *err);
/* Sets *piece to the next bytes, all of one extent, which are valid until the next call.
   TUTTI_CLOSED: all were returned. */
tutti_status tutti_state_in_next(tutti_state_in *i, const uint8_t **piece, size_t *bytes,
                                 tutti_error *err);
void tutti_state_in_close(tutti_state_in *i);

/* ---- safetensors.c: a file of tensors that was opened for reading ---- */
struct tutti_tensor_file {
    char *path;
    tutti_file *file;             /* NULL: parsed from memory */
    bool alone;                   /* no other process of this host reads it now */
    uint64_t data;                /* offset of the data section in the file */
    uint64_t file_bytes;
    tutti_tensor_entry *entries;  /* [n], sorted by name */
    size_t n;
    char **metadata;              /* [2 pairs]: key, value, key, value, ... */
    size_t pairs;
    char *text;                   /* memory of the names, keys and values, each ended by 0 */
    /* Of a folder of files (folder.c), else n_parts 0: its files. Entries of f itself then have
       their `begin` in the parts' data sections, one after another; their names are the parts'. */
    tutti_tensor_file **parts;
    size_t n_parts;
    tutti_seal sealed;            /* of the folder's index */
};

/* ---- manifest.c: a checkpoint's manifest in memory, also while it is being made ---- */
/* The elements [begin, end) of a state, saved by one rank. */
typedef struct tutti_manifest_range {
    uint64_t begin, end, hash;
    uint32_t file;                /* index in tutti_checkpoint.files */
    int owner;
} tutti_manifest_range;
typedef struct tutti_manifest_state {
    char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    uint64_t count;               /* elements of the whole state, of one owner */
    size_t first, n;              /* its ranges are [first, first + n) of tutti_checkpoint.ranges,
                                     sorted by (owner, begin) */
} tutti_manifest_state;
/* The file of a rank. */
typedef struct tutti_manifest_file { int rank; uint64_t bytes, hash; } tutti_manifest_file;
/* One range that is read, for n targets from `first` on in the reader's sorted list. */
typedef struct tutti_read_job {
    const tutti_manifest_range *range;
    size_t state, first, n;       /* state: index in tutti_checkpoint.states */
} tutti_read_job;
/* Where the bytes of a checkpoint's ranges are: in files of a directory (read.c) or in memory
   (image.c). */
typedef struct tutti_source {
    /* Begins to read jobs[n], n >= 1, ranges of one file, in this order. jobs stay until close.
       *reading is closed after a failure, too. */
    tutti_status (*open)(void **reading, const tutti_checkpoint *c, const tutti_read_job *jobs,
                         size_t n, tutti_error *err);
    /* Sets *piece to the next bytes, at least one, all of one range, valid until the next call. */
    tutti_status (*next)(void *reading, const uint8_t **piece, size_t *bytes, tutti_error *err);
    /* Fails with TUTTI_ERR_CORRUPT: the bytes of the range had hash `found`. */
    tutti_status (*damaged)(const tutti_checkpoint *c, const tutti_read_job *job, uint64_t found,
                            tutti_error *err);
    void (*close)(void *reading); /* accepts NULL */
    /* Checks every hash. */
    tutti_status (*verify)(const tutti_checkpoint *c, tutti_error *err);
} tutti_source;
extern const tutti_source tutti_source_files;
struct tutti_checkpoint {
    char *path;                   /* of the manifest, for error messages */
    char *directory;              /* or what stands for it in error messages; NULL: the manifest
                                     was parsed from memory */
    const tutti_source *source;   /* NULL: there is a manifest only */
    const void **memory;          /* [n_ranges]: their bytes, another's memory; NULL: files */
    tutti_runtime *rt;
    bool alone;                   /* read.h */
    uint64_t step;
    int world;                    /* number of ranks that saved it */
    char *facts;                  /* the saver's JSON object */
    tutti_manifest_file *files;   /* [n_files], sorted by rank */
    size_t n_files;
    tutti_manifest_state *states; /* [n_states], sorted by (state, tensor) */
    size_t n_states;
    tutti_manifest_range *ranges; /* [n_ranges] */
    size_t n_ranges;
};
#define TUTTI_STATE_FILE_NAME 64
/* Writes the name of a rank's file: "rank-00003-of-00008.safetensors". */
void tutti_state_file_name(char out[TUTTI_STATE_FILE_NAME], int rank, int world);
/* Writes the name that a range has in a file of tensors: "<state>/<tensor>@<begin>". room:
   capacity of out; the lengths of both names and 24 suffice. */
void tutti_state_key(char *out, size_t room, const char *state, const char *tensor, uint64_t begin);
/* Compares two pairs of names, with a result as that of strcmp. */
int tutti_state_order(const char *state, const char *tensor, const char *other_state,
                      const char *other_tensor);
/* Checks that every state's ranges are disjoint and complete for each of its owners. what: how an
   error message begins. TUTTI_ERR_CORRUPT. */
tutti_status tutti_manifest_check(const tutti_checkpoint *c, const char *what, tutti_error *err);
/* Sets *text to the text of the manifest, to be freed by tutti_free, and *bytes to its length. */
tutti_status tutti_manifest_print(const tutti_checkpoint *c, char **text, size_t *bytes,
                                  tutti_error *err);

/* ---- merge.c: makes a manifest of the ranks' lists ---- */
/* A range that a rank has reported as saved. */
typedef struct tutti_saved_piece {
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    uint64_t count;
    tutti_manifest_range range;   /* without its `file` */
    int rank;                     /* the rank that has written it */
} tutti_saved_piece;
/* Sets *out to the manifest of these pieces [n], which it sorts. files: [n_files], sorted by rank,
   of the ranks that have written one. The result has no step, world and facts yet and is not
   checked. */
tutti_status tutti_manifest_merge(tutti_checkpoint **out, const char *path,
                                  tutti_saved_piece *pieces, size_t n,
                                  const tutti_manifest_file *files, size_t n_files,
                                  tutti_error *err);

/* ---- checkpoint.c ---- */
/* The name of a checkpoint in a directory. */
typedef struct tutti_found_step {
    uint64_t step;
    bool old;                     /* it ends with "-old" (commit.c) */
    char *name;                   /* "step-00001200" */
} tutti_found_step;
typedef struct tutti_found_steps {
    tutti_found_step *at;         /* [n], capacity room */
    size_t n, room;
} tutti_found_steps;
/* Lists the names in the directory that are those of checkpoints, the newest first. Free the list
   also after a failure. */
tutti_status tutti_state_list_steps(tutti_runtime *rt, const char *directory,
                                    tutti_found_steps *list, tutti_error *err);
void tutti_state_free_steps(tutti_found_steps *list);
/* Returns the path of a file, by its index in c->files; to be freed by tutti_free. NULL: no
   memory. */
char *tutti_state_path_of(const tutti_checkpoint *c, size_t file);

/* ---- commit.c: the directories of a save, and how they become a checkpoint; on rank 0 ---- */
typedef struct tutti_commit {
    tutti_runtime *rt;
    const char *dir;              /* DIR, in which checkpoints are saved; the caller's */
    uint64_t step;
    char *tmp;                    /* DIR/tmp-00001200-0123456789abcdef: where files are written */
    char *final;                  /* DIR/step-00001200: the checkpoint */
    char *old;                    /* DIR/step-00001200-old: an earlier one of the same step,
                                     meanwhile */
} tutti_commit;
/* Sets the paths. id: distinguishes this save from others of the same step. */
tutti_status tutti_commit_open(tutti_commit *c, tutti_runtime *rt, const char *dir, uint64_t step,
                               uint64_t id, tutti_error *err);
void tutti_commit_close(tutti_commit *c);
/* Returns dir, or the nearest of its parents that exists; to be freed by tutti_free. NULL: no
   memory. */
char *tutti_commit_nearest(tutti_runtime *rt, const char *dir);
/* Creates DIR, so that a loss of power does not remove it, and tmp. After a failure there is no
   tmp. */
tutti_status tutti_commit_begin(tutti_commit *c, tutti_error *err);
/* Writes the manifest m into tmp, and renames tmp to `final`. After a failure the checkpoints in
   DIR are as they were. */
tutti_status tutti_commit_finish(tutti_commit *c, const tutti_checkpoint *m, tutti_error *err);
/* Removes from the directory what saves have left that failed or whose processes died. Ignores
   errors. */
void tutti_commit_clean(tutti_runtime *rt, const char *dir);
/* Removes what this save has left: its own directories tmp-. A worker that was expelled may end
   its save while its successor already writes another. Ignores errors. */
void tutti_commit_drop(const tutti_commit *c);
/* Removes the checkpoints of other steps except the `keep` newest that are whole, counting c's
   own. keep 0 or less: removes none. Ignores errors. */
void tutti_commit_retire(tutti_commit *c, int keep);

/* ---- save.c ---- */
/* Does what tutti_checkpoint_save does, with the files of the runtime `files` instead of the
   world's, so that a test can make them fail. */
tutti_status tutti_checkpoint_save_through(tutti_world *world, tutti_runtime *files,
                                           const char *dir, uint64_t step, const tutti_saved *items,
                                           size_t n, const char *facts, int keep, tutti_error *err);
#endif
