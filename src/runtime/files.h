/* files.h: files and directories, through the table of a runtime (runtime.h). Whole calls: no short
   reads or writes, EINTR is retried. The sentence names the path, the offset and the cause. They go
   through the table so that a test can fail, truncate or kill at the k-th operation. Paths are
   relative to the process. All of them may block. */
#ifndef TUTTI_RUNTIME_FILES_H
#define TUTTI_RUNTIME_FILES_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)

typedef struct tutti_file tutti_file;

tutti_status tutti_file_open(tutti_file **out, tutti_runtime *rt, const char *path,
                             tutti_file_mode mode, tutti_error *err);
uint64_t tutti_file_bytes(const tutti_file *f); /* at open, or so far written */

/* Reading past the end is TUTTI_ERR_CORRUPT, with sizes. */
tutti_status tutti_file_read(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                             tutti_error *err);
tutti_status tutti_file_write(tutti_file *f, const void *from, size_t bytes,
                              tutti_error *err); /* appends */
tutti_status tutti_file_sync(tutti_file *f, tutti_error *err);

/* For large files in mode CREATE: written in any order, by several threads concurrently,
   bypassing the page cache where the file system supports it.

   wide: does the implementation support reserve and write_at? */
#define TUTTI_FILE_BLOCK 4096
bool tutti_file_wide(tutti_runtime *rt);

/* Allocates the space of the whole file at once, so that a full disk is found before anything is
   written. Afterwards only write_at may write. */
tutti_status tutti_file_reserve(tutti_file *f, uint64_t bytes, tutti_error *err);

/* Several threads may call it concurrently, on parts that do not overlap, as long as offset,
   address and size are multiples of TUTTI_FILE_BLOCK. An unaligned part (the rest of a file) must
   be written when no other call is in progress, and ends bypassing the cache. */
tutti_status tutti_file_write_at(tutti_file *f, uint64_t offset, const void *from, size_t bytes,
                                 tutti_error *err);

/* *at := the contents of a file opened for reading, until it is closed. It is mapped where the
   runtime can, so that unused parts are not read, and processes share it; else it is read into
   memory. Afterwards it needs no descriptor, and only bytes and close are legal. An empty file
   yields a valid address of no bytes. A mapped file must not be truncated meanwhile: the kernel
   kills a process that reads beyond its end. */
tutti_status tutti_file_map(tutti_file *f, const void **at, tutti_error *err);

/* An unnamed file in a directory, of `bytes` zeros, for read and write_at at any offset. It
   vanishes when it is closed or when its process ends, in whatever way. Its space is allocated
   before this returns, so no later write finds the disk full.

   direct: bypass the page cache, so that reads reach the disk. Then address, offset and size of
   all reads and writes must be multiples of TUTTI_FILE_BLOCK. Where that is impossible
   (memory-backed file systems, blocks of another size) it fails with a sentence. */
tutti_status tutti_file_scratch(tutti_file **out, tutti_runtime *rt, const char *directory,
                                uint64_t bytes, bool direct, tutti_error *err);

/* Accepts NULL; returns the result of close; frees in any case. */
tutti_status tutti_file_close(tutti_file *f, tutti_error *err);

/* A file that is created atomically.

   begin opens PATH.part in mode CREATE, and removes what a killed process has left there.
   `replace` false: PATH must not exist. end closes it. `status` is the result of the writing. If
   it is TUTTI_OK the file is renamed to PATH. Otherwise, or if that fails, it is removed, and
   `status` or that failure is returned. end accepts NULL and frees in any case. */
tutti_status tutti_file_begin(tutti_file **out, tutti_runtime *rt, const char *path, bool replace,
                              tutti_error *err);
tutti_status tutti_file_end(tutti_file *f, tutti_status status, tutti_error *err);

tutti_status tutti_file_rename(tutti_runtime *rt, const char *from, const char *to,
                               tutti_error *err);
/* A file or an empty directory; an absent one is OK. */
tutti_status tutti_file_remove(tutti_runtime *rt, const char *path, tutti_error *err);
/* With parents; an existing one is OK. */
tutti_status tutti_directory_make(tutti_runtime *rt, const char *path, tutti_error *err);
tutti_status tutti_directory_sync(tutti_runtime *rt, const char *path, tutti_error *err);

/* Calls `each` with every name (not . and ..) in bytewise order. Stops at its first status that is
   not OK. */
tutti_status tutti_directory_list(tutti_runtime *rt, const char *path,
                                  tutti_status (*each)(void *user, const char *name,
                                                       tutti_error *err),
                                  void *user, tutti_error *err);
bool tutti_file_exists(tutti_runtime *rt, const char *path);
/* Free bytes of the file system of path. */
tutti_status tutti_space_left(tutti_runtime *rt, const char *path, uint64_t *bytes,
                              tutti_error *err);
#pragma GCC visibility pop
#endif
