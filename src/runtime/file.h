/* file.h: what a file is, for the calls of files and for queues. */
#ifndef TUTTI_RUNTIME_FILE_H
#define TUTTI_RUNTIME_FILE_H
#include "runtime/files.h"
#include "tutti/runtime.h"

struct tutti_file {
    tutti_runtime *rt;
    int fd;
    tutti_file_mode mode;
    bool direct;            /* past the page cache; only read while several threads write */
    bool scratch;           /* without a name: path is its directory */
    uint64_t bytes;
    const void *mapped;     /* all of it; NULL: not */
    void *copy;             /* the same where nothing can be mapped */
    char *path;
};

/* Report a read or write that has failed, and a read that found the end at `here`. */
tutti_status tutti_file_failed(const tutti_file *f, bool write, uint64_t offset, size_t bytes,
                               int cause, tutti_error *err);
tutti_status tutti_file_ended(const tutti_file *f, uint64_t offset, size_t bytes, uint64_t here,
                              tutti_error *err);

/* How far a short call has got. Past the page cache the next one has to begin at a whole block.
   No progress TUTTI_FILE_STALLS times in a row is a failure. */
#define TUTTI_FILE_STALLS 8
size_t tutti_file_headway(const tutti_file *f, size_t asked, size_t done, int *stalls);
#endif
