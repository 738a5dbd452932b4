/* safetensors.h: the file format of model.safetensors and of checkpoint shards. Written so that
   any safetensors reader accepts it; files that are read are treated as untrusted. */
#ifndef TUTTI_SAFETENSORS_H
#define TUTTI_SAFETENSORS_H
#include "device.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
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
    void *with;
    uint64_t hash;                /* writer: set to the contents' XXH3-64; reader: 0 */
} tutti_tensor_entry;

/* Writes path + ".part" (an old one is removed first), syncs it, renames it to path. Does not
   sync the directory. On failure the part file is removed and an earlier `path` is unchanged.

   Tensors are laid out by descending element size, then name; the first starts at a multiple of
   64 bytes. entries[k].begin, bytes, hash are set. metadata: string pairs of __metadata__, a
   NULL-ended array of key, value, key, value. It has no time and no host, so files of equal runs
   are equal. *hash (may be NULL): XXH3-64 of the whole file. */
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

/* The header alone, for the fuzz target: head has 8 + N bytes or less, file_bytes is the assumed
   size of the file. */
tutti_status tutti_safetensors_parse(tutti_tensor_file **out, const char *path,
                                     const uint8_t *head, size_t have, uint64_t file_bytes,
                                     tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
