/* file.h: the state of an open file (tutti_file, files.h). Included by file.c and queue.c only.
   Implemented in file.c. */
#ifndef TUTTI_RUNTIME_FILE_H
#define TUTTI_RUNTIME_FILE_H
#include "runtime/files.h"
#include "tutti/base.h"

struct tutti_file {
    tutti_runtime *rt;
    int fd;                 /* -1: closed, its contents are mapped or copied */
    tutti_file_mode mode;
    bool direct;            /* bypasses the page cache; does not change while several threads
                               write */
    bool scratch;           /* has no name; path is its directory */
    uint64_t bytes;         /* size */
    const void *mapped;     /* mapping of all of it; NULL: none */
    void *copy;             /* copy of all of it, if it cannot be mapped; NULL: none */
    char *path;             /* for messages; owned */
};

/* Returns the error of a read or write that has failed. cause: errno. */
tutti_status tutti_file_failed(const tutti_file *f, bool write, uint64_t offset, size_t bytes,
                               int cause, tutti_error *err);
/* Returns TUTTI_ERR_CORRUPT: a read of [offset, offset + bytes) has found the end of the file at
   `here`. */
tutti_status tutti_file_ended(const tutti_file *f, uint64_t offset, size_t bytes, uint64_t here,
                              tutti_error *err);

/* Returns by how many bytes a call that has transferred `done` of `asked` bytes has advanced: done,
   or, for a scratch file that bypasses the page cache, done rounded down to whole blocks, where the
   next call must begin. *stalls counts calls in a row that have not advanced; at TUTTI_FILE_STALLS
   the caller gives up. */
#define TUTTI_FILE_STALLS 8
size_t tutti_file_advance(const tutti_file *f, size_t asked, size_t done, int *stalls);
#endif
