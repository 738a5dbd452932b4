/* file.c: files and directories (files.h), on the functions of a runtime, which may transfer less
   than they are asked for and may be interrupted (EINTR). Messages have the path, the offset, and
   for common causes (no space, no permission, no such file) what mends them. */
#include "file.h"
#include "runtime/files.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The remedy, as a clause to stand before the system's message; "" where only the system's
   message helps. */
static const char *mend(int cause)
{
    switch (cause) {
    case ENOSPC: case EDQUOT: return "; free space there or choose another place";
    case EACCES: case EPERM: return "; check owner and permissions, or choose another place";
    case EROFS: return "; choose a place that can be written to";
    case ENOENT: return "; check the path";
    case EEXIST: return "; remove it or choose another name";
    case EMFILE: return "; raise the limit of open files (ulimit -n)";
    case EXDEV: return "; both must be on one file system";
    case ESPIPE: case EISDIR: return "; a regular file is needed";
    default: return "";
    }
}

static tutti_status status_of(int cause)
{
    return cause == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_IO;
}

tutti_status tutti_file_failed(const tutti_file *f, bool write, uint64_t offset, size_t bytes,
                               int cause, tutti_error *err)
{
    return tutti_fail(err, status_of(cause), cause,
                      "cannot %s %zu bytes at offset %" PRIu64 " of '%s'%s",
                      write ? "write" : "read", bytes, offset, f->path, mend(cause));
}

tutti_status tutti_file_ended(const tutti_file *f, uint64_t offset, size_t bytes, uint64_t here,
                              tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s' ends at %" PRIu64
                      " bytes, but %zu bytes were expected at offset %" PRIu64
                      "; it was cut short or is another kind of file",
                      f->path, f->bytes < here ? f->bytes : here, bytes, offset);
}

size_t tutti_file_advance(const tutti_file *f, size_t asked, size_t done, int *stalls)
{
    if (f->scratch && f->direct && done < asked)
        done -= done % TUTTI_FILE_BLOCK;
    *stalls = done > 0 ? 0 : *stalls + 1;
    return done;
}

tutti_status tutti_file_open(tutti_file **out, tutti_runtime *rt, const char *path,
                             tutti_file_mode mode, tutti_error *err)
{
    static const char *const doing[] = {
        [TUTTI_FILE_READ] = "open",
        [TUTTI_FILE_CREATE] = "create",
        [TUTTI_FILE_APPEND] = "open for appending",
    };
    tutti_file *f;
    int cause;

    *out = NULL;
    if ((unsigned)mode > TUTTI_FILE_APPEND)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%s' cannot be opened in mode %d; there are modes 0 (read), 1 (create) and 2 (append)",
            path, (int)mode);
    f = tutti_alloc(1, sizeof *f);
    if (f != NULL) {
        f->fd = -1;
        f->path = tutti_copy_text(path);
    }
    if (f == NULL || f->path == NULL) {
        tutti_free(f);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot %s '%s'", doing[mode], path);
    }
    f->rt = rt;
    f->mode = mode;
    do
        cause = rt->ops->file_open(rt->self, path, mode, &f->fd);
    while (cause == EINTR);
    if (cause == 0 && mode != TUTTI_FILE_CREATE)
        cause = rt->ops->file_size(rt->self, f->fd, &f->bytes);
    if (cause != 0) {
        if (f->fd >= 0)
            rt->ops->file_close(rt->self, f->fd);
        tutti_free(f->path);
        tutti_free(f);
        return tutti_fail(err, status_of(cause), cause, "cannot %s '%s'%s", doing[mode], path,
                          mend(cause));
    }
    *out = f;
    return TUTTI_OK;
}

uint64_t tutti_file_bytes(const tutti_file *f)
{
    return f->bytes;
}

tutti_status tutti_file_read(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                             tutti_error *err)
{
    unsigned char *at = to;
    size_t left = bytes;
    int stalls = 0;

    while (left > 0) {
        const uint64_t here = offset + (bytes - left);
        size_t done = 0;
        const int cause = here < offset
                              ? EOVERFLOW
                              : f->rt->ops->file_read(f->rt->self, f->fd, here, at, left, &done);

        if (cause == EINTR)
            continue;
        if (cause != 0)
            return tutti_file_failed(f, false, here, left, cause, err);
        if (done == 0)
            return tutti_file_ended(f, offset, bytes, here, err);
        done = tutti_file_advance(f, left, done, &stalls);
        if (stalls >= TUTTI_FILE_STALLS)
            return tutti_file_failed(f, false, here, left, EIO, err);
        at += done;
        left -= done;
    }
    return TUTTI_OK;
}

bool tutti_file_read_direct(tutti_file *f)
{
    const tutti_runtime_ops *ops = f->rt->ops;
    unsigned char *block;

    if (f->mode != TUTTI_FILE_READ || f->bytes == 0 || ops->file_direct == NULL ||
        ops->file_direct(f->rt->self, f->fd, true) != 0)
        return false;
    block = tutti_alloc(4 * TUTTI_FILE_BLOCK, 1);
    /* some disks want larger blocks, and say so when they read */
    f->direct = block != NULL &&
                tutti_file_read_blocks(f, 0, block + (-(uintptr_t)block) % TUTTI_FILE_BLOCK, 1,
                                       NULL) == TUTTI_OK;
    if (!f->direct)
        ops->file_direct(f->rt->self, f->fd, false);
    tutti_free(block);
    return f->direct;
}

tutti_status tutti_file_read_blocks(tutti_file *f, uint64_t offset, void *to, size_t bytes,
                                    tutti_error *err)
{
    const uint64_t first = offset - offset % TUTTI_FILE_BLOCK, end = offset + bytes;
    uint64_t here = first;
    int stalls = 0;

    while (here < end) {
        const size_t blocks = (size_t)((end - here + TUTTI_FILE_BLOCK - 1) / TUTTI_FILE_BLOCK);
        size_t done = 0;
        const int cause =
            end < offset ? EOVERFLOW
                         : f->rt->ops->file_read(f->rt->self, f->fd, here,
                                                 (unsigned char *)to + (here - first),
                                                 blocks * TUTTI_FILE_BLOCK, &done);

        if (cause == EINTR)
            continue;
        if (cause != 0)
            return tutti_file_failed(f, false, here, (size_t)(end - here), cause, err);
        if (done == 0)
            return tutti_file_ended(f, offset, bytes, here, err);
        if (here + done < end) /* the next call has to begin at a block */
            done -= done % TUTTI_FILE_BLOCK;
        stalls = done > 0 ? 0 : stalls + 1;
        if (stalls >= TUTTI_FILE_STALLS)
            return tutti_file_ended(f, offset, bytes, here, err);
        here += done;
    }
    return TUTTI_OK;
}

tutti_status tutti_file_map(tutti_file *f, const void **at, tutti_error *err)
{
    static const char nothing[1];
    const tutti_runtime_ops *ops = f->rt->ops;
    int cause = EOPNOTSUPP;

    *at = NULL;
    if (f->mode != TUTTI_FILE_READ)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is open for writing; only what is read can be mapped", f->path);
    if (f->bytes > 0 && f->mapped == NULL && f->copy == NULL) {
        if (ops->file_map != NULL)
            cause = ops->file_map(f->rt->self, f->fd, f->bytes, &f->mapped);
        if (cause != 0) { /* some file systems cannot either */
            tutti_status status;
            f->mapped = NULL;
            f->copy = f->bytes <= SIZE_MAX ? tutti_alloc((size_t)f->bytes, 1) : NULL;
            if (f->copy == NULL)
                return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                  "room for the %" PRIu64 " bytes of '%s'", f->bytes, f->path);
            status = tutti_file_read(f, 0, f->copy, (size_t)f->bytes, err);
            if (status != TUTTI_OK) {
                tutti_free(f->copy);
                f->copy = NULL;
                return status;
            }
        }
    }
    if (f->fd >=
        0) /* a thousand simulated workers with one file each would be a thousand descriptors */
        ops->file_close(f->rt->self, f->fd);
    f->fd = -1;
    *at = f->bytes == 0 ? nothing : f->mapped != NULL ? f->mapped : f->copy;
    return TUTTI_OK;
}

tutti_status tutti_file_write(tutti_file *f, const void *from, size_t bytes, tutti_error *err)
{
    const unsigned char *at = from;

    while (bytes > 0) {
        size_t done = 0;
        int cause = f->rt->ops->file_write(f->rt->self, f->fd, at, bytes, &done);

        if (cause == EINTR)
            continue;
        if (cause == 0 && done == 0) /* would loop for ever */
            cause = EIO;
        if (cause != 0)
            return tutti_file_failed(f, true, f->bytes, bytes, cause, err);
        at += done;
        bytes -= done;
        f->bytes += done;
    }
    return TUTTI_OK;
}

bool tutti_file_has_write_at(tutti_runtime *rt)
{
    return rt->ops->file_reserve != NULL;
}

tutti_status tutti_file_reserve(tutti_file *f, uint64_t bytes, tutti_error *err)
{
    int cause;

    do
        cause = f->rt->ops->file_reserve(f->rt->self, f->fd, bytes);
    while (cause == EINTR);
    if (cause != 0 &&
        cause != EOPNOTSUPP) /* a file system that cannot reserve finds out while writing */
        return tutti_fail(err, status_of(cause), cause,
                          "cannot write the %" PRIu64 " bytes of '%s'%s", bytes, f->path,
                          mend(cause));
    f->bytes = bytes;
    f->direct = f->rt->ops->file_direct(f->rt->self, f->fd, true) == 0;
    return TUTTI_OK;
}

/* Some disks want larger blocks than TUTTI_FILE_BLOCK and report that by EINVAL: then the file
   goes through the cache after all, for all threads. */
tutti_status tutti_file_write_at(tutti_file *f, uint64_t offset, const void *from, size_t bytes,
                                 tutti_error *err)
{
    const tutti_runtime_ops *ops = f->rt->ops;
    const unsigned char *at = from;
    bool direct = f->direct && !f->scratch; /* a scratch file is past the cache for good */
    int stalls = 0;

    if (direct && ((uintptr_t)from % TUTTI_FILE_BLOCK != 0 || offset % TUTTI_FILE_BLOCK != 0 ||
                   bytes % TUTTI_FILE_BLOCK != 0)) {
        ops->file_direct(f->rt->self, f->fd, false);
        f->direct = direct = false;
    }
    while (bytes > 0) {
        size_t done = 0;
        int cause = ops->file_write_at(f->rt->self, f->fd, offset, at, bytes, &done);

        if (cause == EINTR)
            continue;
        if (cause == EINVAL && direct) {
            direct = false;
            if (ops->file_direct(f->rt->self, f->fd, false) == 0)
                continue;
        }
        done = tutti_file_advance(f, bytes, done, &stalls);
        if (cause == 0 && done == 0 &&
            (!f->scratch || stalls >= TUTTI_FILE_STALLS)) /* would loop for ever */
            cause = EIO;
        if (cause != 0)
            return tutti_file_failed(f, true, offset, bytes, cause, err);
        at += done;
        offset += done;
        bytes -= done;
    }
    return TUTTI_OK;
}

/* Sizes as people compare them; below a MiB as they are. */
static void print_room(char out[40], uint64_t bytes)
{
    if (bytes < 1 << 20)
        snprintf(out, 40, "%" PRIu64 " bytes", bytes);
    else
        snprintf(out, 40, "%.1f MiB", (double)bytes / (1 << 20));
}

static tutti_status no_scratch(const char *directory, uint64_t bytes, uint64_t left, int cause,
                               tutti_error *err)
{
    char need[40], have[40];

    print_room(need, bytes);
    print_room(have, left);
    if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG)
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "%s are needed in '%s', which has space for %s%s", need, directory, have,
                          mend(ENOSPC));
    if (cause == EINVAL)
        return tutti_fail(
            err, TUTTI_ERR_IO, 0,
            "what is in '%s' cannot be read and written past the page cache in blocks of %d bytes: "
            "it is memory, or a disk with other blocks; choose another place, or allow the page "
            "cache (direct=off)",
            directory, TUTTI_FILE_BLOCK);
    return tutti_fail(err, status_of(cause), cause, "cannot make a file of %s in '%s'%s", need,
                      directory, mend(cause));
}

/* What a file system reports about itself is not enough: some accept the flag and refuse the
   first block. */
static int try_block(tutti_file *f)
{
    const tutti_runtime_ops *ops = f->rt->ops;
    char *memory = tutti_alloc(2, TUTTI_FILE_BLOCK);
    char *const block =
        memory + (TUTTI_FILE_BLOCK - (uintptr_t)memory % TUTTI_FILE_BLOCK) % TUTTI_FILE_BLOCK;
    size_t done;
    int cause;

    if (memory == NULL)
        return ENOMEM;
    do
        cause = ops->file_write_at(f->rt->self, f->fd, 0, block, TUTTI_FILE_BLOCK, &done);
    while (cause == EINTR);
    if (cause == 0)
        do
            cause = ops->file_read(f->rt->self, f->fd, 0, block, TUTTI_FILE_BLOCK, &done);
        while (cause == EINTR);
    tutti_free(memory);
    return cause;
}

tutti_status tutti_file_scratch(tutti_file **out, tutti_runtime *rt, const char *directory,
                                uint64_t bytes, bool direct, tutti_error *err)
{
    const tutti_runtime_ops *ops = rt->ops;
    uint64_t left = 0;
    tutti_file *f;
    int cause;

    *out = NULL;
    if (ops->file_scratch == NULL || ops->file_write_at == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "runtime '%s' has no scratch files", ops->name);
    TUTTI_TRY(tutti_space_left(rt, directory, &left, err));
    if (left < bytes)
        return no_scratch(directory, bytes, left, ENOSPC, err);
    f = tutti_alloc(1, sizeof *f);
    if (f != NULL) {
        f->rt = rt;
        f->fd = -1;
        f->mode = TUTTI_FILE_CREATE;
        f->scratch = true;
        f->direct = direct;
        f->bytes = bytes;
        f->path = tutti_copy_text(directory);
    }
    if (f == NULL || f->path == NULL) {
        tutti_free(f);
        return no_scratch(directory, bytes, left, ENOMEM, err);
    }
    do
        cause = ops->file_scratch(rt->self, directory, bytes, direct, &f->fd);
    while (cause == EINTR);
    if (cause == 0 && direct && bytes >= TUTTI_FILE_BLOCK)
        cause = try_block(f);
    if (cause != 0) {
        tutti_file_close(f, NULL);
        return no_scratch(directory, bytes, left, cause, err);
    }
    *out = f;
    return TUTTI_OK;
}

tutti_status tutti_file_sync(tutti_file *f, tutti_error *err)
{
    int cause;

    do
        cause = f->rt->ops->file_sync(f->rt->self, f->fd);
    while (cause == EINTR);
    if (cause == 0)
        return TUTTI_OK;
    return tutti_fail(err, status_of(cause), cause,
                      "cannot bring the %" PRIu64 " bytes of '%s' to the disk%s", f->bytes, f->path,
                      mend(cause));
}

tutti_status tutti_file_close(tutti_file *f, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    int cause;

    if (f == NULL)
        return TUTTI_OK;
    if (f->mapped != NULL)
        f->rt->ops->file_unmap(f->rt->self, f->mapped, f->bytes);
    tutti_free(f->copy);
    cause = f->fd >= 0 ? f->rt->ops->file_close(f->rt->self, f->fd) : 0;
    if (cause != 0)
        status = tutti_fail(err, status_of(cause), cause, "closing '%s' after %" PRIu64 " bytes%s",
                            f->path, f->bytes, mend(cause));
    tutti_free(f->path);
    tutti_free(f);
    return status;
}

static const char unfinished[] = ".part";

tutti_status tutti_file_begin(tutti_file **out, tutti_runtime *rt, const char *path, bool replace,
                              tutti_error *err)
{
    const size_t length = strlen(path);
    char *part;
    tutti_status status;

    *out = NULL;
    if (!replace && tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_IO, EEXIST, "cannot create '%s'%s", path, mend(EEXIST));
    part = tutti_alloc(length + sizeof unfinished, 1);
    if (part == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot create '%s'", path);
    strcat(strcpy(part, path), unfinished);
    status = tutti_file_remove(rt, part, err);
    if (status == TUTTI_OK)
        status = tutti_file_open(out, rt, part, TUTTI_FILE_CREATE, err);
    tutti_free(part);
    return status;
}

tutti_status tutti_file_end(tutti_file *f, tutti_status status, tutti_error *err)
{
    tutti_runtime *rt;
    char *part, *path;

    if (f == NULL)
        return status;
    rt = f->rt;
    part = f->path;
    path = status == TUTTI_OK ? tutti_copy_text(part) : NULL;
    /* close's own, for its error text; without memory it has none */
    f->path = tutti_copy_text(part);
    if (f->path == NULL || (status == TUTTI_OK && path == NULL))
        status = status != TUTTI_OK
                     ? status
                     : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "naming '%s'", part);
    if (status == TUTTI_OK)
        status = tutti_file_close(f, err);
    else
        tutti_file_close(f, NULL);
    if (status == TUTTI_OK) {
        path[strlen(path) - strlen(unfinished)] = '\0';
        status = tutti_file_rename(rt, part, path, err);
    }
    if (status != TUTTI_OK)
        tutti_file_remove(rt, part, NULL);
    tutti_free(part);
    tutti_free(path);
    return status;
}

tutti_status tutti_file_rename(tutti_runtime *rt, const char *from, const char *to,
                               tutti_error *err)
{
    int cause;

    do
        cause = rt->ops->file_rename(rt->self, from, to);
    while (cause == EINTR);
    if (cause == 0)
        return TUTTI_OK;
    return tutti_fail(err, status_of(cause), cause, "cannot rename '%s' to '%s'%s", from, to,
                      mend(cause));
}

tutti_status tutti_file_remove(tutti_runtime *rt, const char *path, tutti_error *err)
{
    int cause;

    do
        cause = rt->ops->file_remove(rt->self, path);
    while (cause == EINTR);
    if (cause == 0 || cause == ENOENT)
        return TUTTI_OK;
    return tutti_fail(err, status_of(cause), cause, "cannot remove '%s'%s", path,
                      cause == ENOTEMPTY || cause == EEXIST ? "; empty it first" : mend(cause));
}

/* mkdir gives EEXIST for a file too, and EACCES or EROFS for some directories that are there.
   PATH/. is there exactly if PATH is a directory, so one question to exists() decides all of
   these. `path` ends before `length`. */
static int make_level(tutti_runtime *rt, const char *path, size_t length, char *scratch)
{
    int cause, there;

    memcpy(scratch, path, length);
    scratch[length] = '\0';
    do
        cause = rt->ops->directory_make(rt->self, scratch);
    while (cause == EINTR);
    if (cause == 0)
        return 0;
    memcpy(scratch + length, "/.", 3);
    there = rt->ops->exists(rt->self, scratch);
    if (there == 0)
        return 0;
    if (cause != EEXIST)
        return cause;
    scratch[length] = '\0';
    if (there == ENOENT && rt->ops->exists(rt->self, scratch) == ENOENT)
        return EEXIST; /* a link: there is a name, and nothing where it leads */
    return there == EACCES ? EACCES : ENOTDIR; /* a directory that may not be searched is no file */
}

tutti_status tutti_directory_make(tutti_runtime *rt, const char *path, tutti_error *err)
{
    const size_t length = strlen(path);
    char *scratch = tutti_alloc(length + 3, 1);
    int cause = length == 0 ? ENOENT : 0;
    size_t end = 0;

    if (scratch == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot make directory '%s'", path);
    while (cause == 0 && end < length) {
        while (path[end] == '/')
            end++;
        while (end < length && path[end] != '/')
            end++;
        cause = make_level(rt, path, end, scratch);
    }
    tutti_free(scratch);
    if (cause == 0)
        return TUTTI_OK;
    if (cause == ENOTDIR)
        return tutti_fail(
            err, TUTTI_ERR_IO, cause,
            "cannot make directory '%s': '%.*s' is a file; remove it or choose another name", path,
            (int)(end < 200 ? end : 200), path);
    if (cause == EEXIST)
        return tutti_fail(err, TUTTI_ERR_IO, 0,
                          "cannot make directory '%s': '%.*s' is a link to what is not there; "
                          "remove it or choose another name",
                          path, (int)(end < 200 ? end : 200), path);
    return tutti_fail(err, status_of(cause), cause, "cannot make directory '%s'%s", path,
                      mend(cause));
}

tutti_status tutti_directory_sync(tutti_runtime *rt, const char *path, tutti_error *err)
{
    int cause;

    do
        cause = rt->ops->directory_sync(rt->self, path);
    while (cause == EINTR);
    if (cause == 0)
        return TUTTI_OK;
    return tutti_fail(err, status_of(cause), cause, "cannot bring directory '%s' to the disk%s",
                      path, mend(cause));
}

/* ---- listing: names are gathered, then sorted, so that `each` may itself use the directory
   ---- */
typedef struct { char **names; size_t count, room; bool no_memory; } name_list;

static void append_name(void *user, const char *name)
{
    name_list *list = user;

    if (list->no_memory)
        return;
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? 64 : 2 * list->room;
        char **more = tutti_alloc(room, sizeof *more);
        if (more == NULL) {
            list->no_memory = true;
            return;
        }
        if (list->count > 0)
            memcpy(more, list->names, list->count * sizeof *more);
        tutti_free(list->names);
        list->names = more;
        list->room = room;
    }
    list->names[list->count] = tutti_copy_text(name);
    if (list->names[list->count] == NULL)
        list->no_memory = true;
    else
        list->count++;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

tutti_status tutti_directory_list(tutti_runtime *rt, const char *path,
                                  tutti_status (*each)(void *user, const char *name,
                                                       tutti_error *err),
                                  void *user, tutti_error *err)
{
    name_list list = { NULL, 0, 0, false };
    tutti_status status = TUTTI_OK;
    int cause;

    do {
        for (size_t i = 0; i < list.count; i++)
            tutti_free(list.names[i]);
        list.count = 0;
        cause = rt->ops->directory_list(rt->self, path, append_name, &list);
    } while (cause == EINTR);
    if (list.no_memory)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "cannot list directory '%s' after %zu names", path, list.count);
    else if (cause != 0)
        status = tutti_fail(err, status_of(cause), cause, "cannot list directory '%s'%s", path,
                            mend(cause));
    if (status == TUTTI_OK && list.count > 1)
        qsort(list.names, list.count, sizeof *list.names, by_bytes);
    for (size_t i = 0; i < list.count; i++) {
        if (status == TUTTI_OK)
            status = each(user, list.names[i], err);
        tutti_free(list.names[i]);
    }
    tutti_free(list.names);
    return status;
}

bool tutti_file_exists(tutti_runtime *rt, const char *path)
{
    return rt->ops->exists(rt->self, path) == 0;
}

tutti_status tutti_space_left(tutti_runtime *rt, const char *path, uint64_t *bytes,
                              tutti_error *err)
{
    int cause;

    *bytes = 0;
    do
        cause = rt->ops->space_left(rt->self, path, bytes);
    while (cause == EINTR);
    if (cause == 0)
        return TUTTI_OK;
    return tutti_fail(err, status_of(cause), cause, "cannot learn the space left at '%s'%s", path,
                      mend(cause));
}
