/* folder.h: weights in one safetensors file, or in a folder of several with an index, as Hugging
   Face's libraries write and read them. Implemented in folder.c, which reads, verify.c and
   folder_write.c. Included by src/train and src/cli.

   What is written here has hashes. Each file has in its __metadata__ "tutti_hashes", a JSON object
   from each tensor's name to the XXH3-64 of its contents, and "tutti_xxh3", the XXH3-64 of the
   file's header as it was with 16 zeros there. The index has "tutti_xxh3" in its "metadata",
   likewise of its whole text. Other readers ignore these. */
#ifndef TUTTI_STATE_FOLDER_H
#define TUTTI_STATE_FOLDER_H
#include "tutti/files.h"
#pragma GCC visibility push(default)

#define TUTTI_TENSORS_FILE "model.safetensors"
#define TUTTI_TENSORS_INDEX "model.safetensors.index.json"

/* Opens a safetensors file, or a folder that has model.safetensors or else
   model.safetensors.index.json and the files that this names. Use the result like one file's
   (tutti/files.h); it has no metadata if it is a folder with an index.

   The index is not trusted: it may name files of the folder only; each tensor is in the file that
   it names and in no other; the files have no others; total_size, if given, is theirs.
   TUTTI_ERR_CORRUPT names file and tensor. Files that the index does not name are not looked at. */
tutti_status tutti_tensors_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                tutti_error *err);

/* Reads everything and compares it with the hashes. *hashed: they are there; false: the files were
   written by others, and only what tutti_tensors_open checks is known. TUTTI_ERR_CORRUPT names the
   file and the tensor. */
tutti_status tutti_tensors_verify(tutti_tensor_file *f, bool *hashed, tutti_error *err);

typedef struct tutti_tensors_target {
    const char *path;             /* of a file or folder that does not exist */
    uint64_t most;                /* bytes of tensors in a file of a folder, unless one tensor has
                                     more; 0: path is one file */
    size_t files;                 /* set: files of tensors that were written */
    uint64_t bytes;               /* set: of all tensors */
} tutti_tensors_target;
/* Writes tensors, each read twice: for its hash, then to be written. `bring` of an entry may not be
   used. They are placed in files in the order given. The path appears when all is on the disk, or
   not at all. TUTTI_ERR_USAGE: the path exists. TUTTI_ERR_CORRUPT: a tensor was another when it was
   read again. */
tutti_status tutti_tensors_write(tutti_runtime *rt, tutti_tensors_target *to,
                                 tutti_tensor_entry *entries, size_t n, tutti_error *err);
#pragma GCC visibility pop
#endif
