/* files.h: files and directories, by the functions of a runtime (base.h). Implemented in file.c.
   Included by many modules. A read or write is never short: it transfers all bytes or fails, and
   EINTR is retried. Messages name the path, the offset and the cause. All go through the runtime's
   table, so that a test can fail, truncate or kill at the k-th operation. Relative paths begin at
   the process' directory. All functions may block, except tutti_file_bytes and
   tutti_file_has_write_at.

   TUTTI_ERR_IO: the operating system refuses. TUTTI_ERR_MEMORY. Other statuses are named below. */
#ifndef TUTTI_RUNTIME_FILES_H
#define TUTTI_RUNTIME_FILES_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef struct tutti_file tutti_file;

/* Opens a file. *out is NULL on failure. */
tutti_status tutti_file_open(tutti_file **out, tutti_runtime *rt, const char *path,
                             tutti_file_mode mode, tutti_error *err);
/* Returns the size: when it was opened, and what was appended since; or as reserved. */
uint64_t tutti_file_bytes(const tutti_file *f);

/* Reads [offset, offset + bytes). TUTTI_ERR_CORRUPT: the file ends before that. */
tutti_status tutti_file_read(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                             tutti_error *err);
/* Makes reads of a file in mode READ bypass the page cache from now on, if the runtime and the file
   system can do that, and returns whether they do. Then only the next function may read. */
bool tutti_file_read_direct(tutti_file *f);
/* Reads the blocks of TUTTI_FILE_BLOCK bytes with [offset, offset + bytes) in them, at least one
   byte. `to` begins at a multiple of TUTTI_FILE_BLOCK, with space for two blocks more than bytes;
   the range begins at to + offset % TUTTI_FILE_BLOCK. Several threads may call it concurrently.
   TUTTI_ERR_CORRUPT: the file ends before offset + bytes. */
tutti_status tutti_file_read_blocks(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                                    tutti_error *err);
/* Appends. */
tutti_status tutti_file_write(tutti_file *f, const void *from, size_t bytes, tutti_error *err);
/* Blocks until all that was written is on the disk. */
tutti_status tutti_file_sync(tutti_file *f, tutti_error *err);

/* The next three are for large files in mode CREATE, which are written in any order, by several
   threads concurrently, bypassing the page cache if the file system supports it. */
#define TUTTI_FILE_BLOCK 4096    /* bytes */
/* Does the runtime support tutti_file_reserve and tutti_file_write_at? */
bool tutti_file_has_write_at(tutti_runtime *rt);

/* Sets the size of the file and allocates its space on the disk, if the file system can, so that a
   full disk is found before anything is written. Afterwards only tutti_file_write_at may write. */
tutti_status tutti_file_reserve(tutti_file *f, uint64_t bytes, tutti_error *err);

/* Writes [offset, offset + bytes). Several threads may call it concurrently, for ranges that do not
   overlap, if offset, address and size are multiples of TUTTI_FILE_BLOCK. A range that is not so
   (the end of a file) must be written while no other call is in progress; from then on the file
   uses the page cache. */
tutti_status tutti_file_write_at(tutti_file *f, uint64_t offset, const void *from, size_t bytes,
                                 tutti_error *err);

/* Sets *at to the contents of a file in mode READ, valid until tutti_file_close. The file is mapped
   if the runtime can, so that parts that are not used are not read, and processes share it; else it
   is read into memory. Its descriptor is closed: afterwards only tutti_file_bytes, tutti_file_map
   and tutti_file_close may be called. *at of an empty file is not NULL. A mapped file must not be
   truncated: the kernel kills a process that reads beyond its end. TUTTI_ERR_USAGE: another
   mode. */
tutti_status tutti_file_map(tutti_file *f, const void **at, tutti_error *err);

/* Creates a file without a name in a directory, of `bytes` zeros, for tutti_file_read and
   tutti_file_write_at at any offset. It is deleted when it is closed, or when the process ends in
   any way. Its space is allocated before this returns, so no later write finds the disk full.

   direct: bypass the page cache, so that reads reach the disk. Address, offset and size of all
   reads and writes must then be multiples of TUTTI_FILE_BLOCK. It fails if the file system cannot
   do that (it is in memory, or has blocks of another size). TUTTI_ERR_USAGE: the runtime has no
   such files. */
tutti_status tutti_file_scratch(tutti_file **out, tutti_runtime *rt, const char *directory,
                                uint64_t bytes, bool direct, tutti_error *err);

/* Closes and frees f in any case. Accepts NULL. Returns the result of closing. */
tutti_status tutti_file_close(tutti_file *f, tutti_error *err);

/* Begins to create a file atomically: opens PATH.part in mode CREATE, and removes what a killed
   process has left there. replace: false: PATH must not exist. *out is NULL on failure. */
tutti_status tutti_file_begin(tutti_file **out, tutti_runtime *rt, const char *path, bool replace,
                              tutti_error *err);
/* Ends it: closes and frees f in any case. status: the result of writing it. If that is TUTTI_OK,
   the file is renamed to PATH; if not, or if closing or renaming fails, it is removed. Returns
   status, or that failure. Accepts NULL. */
tutti_status tutti_file_end(tutti_file *f, tutti_status status, tutti_error *err);

/* Renames a file or directory; replaces an existing file `to`. */
tutti_status tutti_file_rename(tutti_runtime *rt, const char *from, const char *to,
                               tutti_error *err);
/* Removes a file or an empty directory. TUTTI_OK, too, if there is none. */
tutti_status tutti_file_remove(tutti_runtime *rt, const char *path, tutti_error *err);
/* Creates a directory and its parents. TUTTI_OK, too, if it exists. */
tutti_status tutti_directory_make(tutti_runtime *rt, const char *path, tutti_error *err);
/* Blocks until the names in a directory are on the disk. */
tutti_status tutti_directory_sync(tutti_runtime *rt, const char *path, tutti_error *err);

/* Calls `each` with every name in a directory, except "." and "..", in bytewise order. Stops at the
   first status of `each` that is not TUTTI_OK, and returns it. */
tutti_status tutti_directory_list(tutti_runtime *rt, const char *path,
                                  tutti_status (*each)(void *user, const char *name,
                                                       tutti_error *err),
                                  void *user, tutti_error *err);
/* Is there a file or directory of that name? */
bool tutti_file_exists(tutti_runtime *rt, const char *path);
/* Sets *bytes to the free bytes of the file system that path is on. */
tutti_status tutti_space_left(tutti_runtime *rt, const char *path, uint64_t *bytes,
                              tutti_error *err);
#pragma GCC visibility pop
#endif
