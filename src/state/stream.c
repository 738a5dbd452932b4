/* stream.c: the contents of large files, in order, to the disk and from it, with the disk kept busy
   while the caller hashes. A checkpoint is as large as the model and every worker waits for it.

   Out: the caller's bytes are copied into blocks at a page's start. A full block is written at its
   place by one of a few threads, past the page cache, while the next is filled. A copy costs a
   tenth of what the disk takes. The page cache would cost that copy too, and then the pages
   themselves, which a training process's host has better uses for. The file's space is allocated
   first, so a full disk is found before the work and not after it. The last bytes, less than a
   block, are written by the caller when the threads have finished.

   In: one thread reads the next pieces while the caller hashes this one. It reads through the page
   cache, since all workers of a host read the same file when they resume.

   Small files, and all files of runtimes without parallel files (simulation, exploration, the
   tests' files in memory), are written and read by one call after the other: the same bytes.
   Measurements are in docs/design/checkpoints.md. */
#include "state_internal.h"
#include "runtime/files.h"
#include <errno.h>
#include <string.h>

enum {
    OUT_LANES = 4, OUT_BLOCKS = OUT_LANES + 2, OUT_BLOCK = 1 << 20,
    IN_PIECES = 4, IN_PIECE = 1 << 20,
    LEAST = 8 << 20           /* bytes of a file for which threads are worth their start */
};

/* ---- out ---- */

/* Blocks of memory are used in rotation: block number b is in slot b mod OUT_BLOCKS, and goes to
   byte b * OUT_BLOCK of the file. */
struct tutti_state_out {
    tutti_file *file;
    uint64_t bytes;           /* bytes that the caller has written so far */
    uint8_t *memory;          /* NULL: each write goes to the file directly */
    uint8_t *blocks;          /* [OUT_BLOCKS][OUT_BLOCK], in memory, at the start of a page */
    tutti_monitor *monitor;   /* protects `filled` to `why` */
    tutti_thread *lane[OUT_LANES];
    uint64_t filled;          /* blocks handed over to lanes */
    uint64_t taken;           /* blocks that lanes have begun to write */
    size_t last;              /* bytes of block filled - 1 */
    bool busy[OUT_BLOCKS];    /* [slots]: handed over and not yet written */
    bool ending;              /* no more blocks will be handed over */
    tutti_status status;      /* the first failure of a lane */
    tutti_error why;
};

static tutti_status run_out(void *arg, tutti_error *err)
{
    tutti_state_out *o = arg;

    (void)err;
    tutti_lock(o->monitor);
    for (;;) {
        tutti_error why = { .rank = -1 };
        tutti_status status = TUTTI_OK;
        uint64_t b;
        size_t bytes;
        while (o->taken == o->filled && !o->ending)
            tutti_wait(o->monitor, TUTTI_FOREVER, NULL);
        if (o->taken == o->filled)
            break;
        b = o->taken++;
        bytes = b + 1 == o->filled ? o->last : OUT_BLOCK; /* only the very last one is shorter */
        if (o->status == TUTTI_OK) { /* after a failure blocks are only taken away */
            tutti_unlock(o->monitor);
            status = tutti_file_write_at(o->file, b * OUT_BLOCK,
                                         o->blocks + b % OUT_BLOCKS * OUT_BLOCK, bytes, &why);
            tutti_lock(o->monitor);
        }
        if (status != TUTTI_OK && o->status == TUTTI_OK) {
            o->status = status;
            o->why = why;
        }
        o->busy[b % OUT_BLOCKS] = false;
        tutti_wake(o->monitor);
    }
    tutti_unlock(o->monitor);
    return TUTTI_OK;
}

tutti_status tutti_state_out_open(tutti_state_out **out, tutti_runtime *rt, const char *path,
                                  uint64_t bytes, tutti_error *err)
{
    tutti_state_out *o = tutti_alloc(1, sizeof *o);
    tutti_status status = TUTTI_OK;
    size_t room;

    *out = NULL;
    if (o == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot write '%s'", path);
    status = tutti_file_open(&o->file, rt, path, TUTTI_FILE_CREATE, err);
    if (status != TUTTI_OK || bytes < LEAST || !tutti_file_has_write_at(rt))
        goto out;

    room = (size_t)OUT_BLOCKS * OUT_BLOCK + TUTTI_FILE_BLOCK;
    o->memory = tutti_alloc(room, 1);
    if (o->memory == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "cannot write '%s': %zu bytes for blocks on their way to the disk",
                            path, room);
        goto out;
    }
    o->blocks =
        o->memory + (TUTTI_FILE_BLOCK - (uintptr_t)o->memory % TUTTI_FILE_BLOCK) % TUTTI_FILE_BLOCK;
    status = tutti_file_reserve(o->file, bytes, err);
    if (status == TUTTI_OK)
        status = tutti_monitor_open(&o->monitor, rt, err);
    for (int i = 0; i < OUT_LANES && status == TUTTI_OK; i++)
        status = tutti_thread_open(&o->lane[i], rt, "tutti-write", run_out, o, err);
out:
    if (status == TUTTI_OK)
        *out = o;
    else
        tutti_state_out_close(o, false, NULL);
    return status;
}

/* The first `bytes` of the block being filled go to the lanes; waits until there is a next one
   to fill. Gives the lanes' failure. */
static tutti_status hand_over(tutti_state_out *o, size_t bytes, tutti_error *err)
{
    tutti_status status;

    tutti_lock(o->monitor);
    o->busy[o->filled % OUT_BLOCKS] = true;
    o->last = bytes;
    o->filled++;
    tutti_wake(o->monitor);
    while (o->busy[o->filled % OUT_BLOCKS])
        tutti_wait(o->monitor, TUTTI_FOREVER, NULL);
    status = o->status;
    if (status != TUTTI_OK && err != NULL)
        *err = o->why;
    tutti_unlock(o->monitor);
    return status;
}

tutti_status tutti_state_out_add(tutti_state_out *o, const void *data, size_t bytes,
                                 tutti_error *err)
{
    const uint8_t *at = data;

    if (o->blocks == NULL) {
        o->bytes += bytes;
        return tutti_file_write(o->file, data, bytes, err);
    }
    while (bytes > 0) {
        const size_t in = (size_t)(o->bytes % OUT_BLOCK),
                     piece = bytes < OUT_BLOCK - in ? bytes : OUT_BLOCK - in;
        memcpy(o->blocks + o->bytes / OUT_BLOCK % OUT_BLOCKS * OUT_BLOCK + in, at, piece);
        o->bytes += piece;
        at += piece;
        bytes -= piece;
        if (in + piece == OUT_BLOCK)
            TUTTI_TRY(hand_over(o, OUT_BLOCK, err));
    }
    return TUTTI_OK;
}

/* All lanes end when all blocks are written. */
static tutti_status join_out(tutti_state_out *o, tutti_error *err)
{
    if (o->monitor != NULL) {
        tutti_lock(o->monitor);
        o->ending = true;
        tutti_wake(o->monitor);
        tutti_unlock(o->monitor);
    }
    for (int i = 0; i < OUT_LANES; i++) {
        if (o->lane[i] != NULL)
            tutti_thread_join(o->lane[i], NULL); /* a lane's result is in o */
        o->lane[i] = NULL;
    }
    if (o->status != TUTTI_OK && err != NULL)
        *err = o->why;
    return o->status;
}

/* Writes the last, partial block: whole pages by the lanes, the rest by this thread. */
static tutti_status finish_out(tutti_state_out *o, tutti_error *err)
{
    const size_t in = (size_t)(o->bytes % OUT_BLOCK),
                 pages = in / TUTTI_FILE_BLOCK * TUTTI_FILE_BLOCK;
    const uint8_t *block = o->blocks + o->bytes / OUT_BLOCK % OUT_BLOCKS * OUT_BLOCK;

    if (pages > 0)
        TUTTI_TRY(hand_over(o, pages, err));
    TUTTI_TRY(join_out(o, err));
    return in == pages ? TUTTI_OK
                       : tutti_file_write_at(o->file, o->bytes - (in - pages), block + pages,
                                             in - pages, err);
}

tutti_status tutti_state_out_close(tutti_state_out *o, bool whole, tutti_error *err)
{
    tutti_status status = TUTTI_OK, closed;

    if (o == NULL)
        return TUTTI_OK;
    if (whole && o->blocks != NULL)
        status = finish_out(o, err);
    join_out(o, NULL);
    if (whole && status == TUTTI_OK)
        status = tutti_file_sync(o->file, err);
    closed = tutti_file_close(o->file, status == TUTTI_OK ? err : NULL);
    tutti_monitor_close(o->monitor);
    tutti_free(o->memory);
    tutti_free(o);
    return status == TUTTI_OK ? closed : status;
}

/* ---- in ---- */

/* Piece number p is in slot p mod IN_PIECES. The caller uses the last piece that it was given until
   it asks for the next. */
struct tutti_state_in {
    const tutti_tensor_file *file;
    const tutti_state_extent *extents; /* [n] */
    size_t n;
    size_t extent;            /* the extent that is being read; used by who reads */
    uint64_t at;              /* bytes of it that have been read; likewise */
    uint8_t *pieces;          /* [IN_PIECES][IN_PIECE] */
    size_t bytes[IN_PIECES];  /* [slots]: size of the piece in it */
    bool given;               /* the caller has a piece; used by the caller */
    tutti_monitor *monitor;   /* protects `read` to `why`; NULL: the caller reads */
    tutti_thread *thread;
    uint64_t read, used;      /* pieces read, and pieces that the caller has finished with */
    bool ending;              /* no more pieces are needed */
    tutti_status status;      /* why no more pieces will be read; TUTTI_CLOSED: the end */
    tutti_error why;
};

static tutti_status read_piece(tutti_state_in *i, uint64_t number, tutti_error *err)
{
    const size_t slot = (size_t)(number % IN_PIECES);
    const tutti_state_extent *e;
    size_t bytes;

    while (i->extent < i->n && i->at == i->extents[i->extent].bytes) {
        i->extent++;
        i->at = 0;
    }
    if (i->extent == i->n)
        return TUTTI_CLOSED;
    e = &i->extents[i->extent];
    bytes = e->bytes - i->at < IN_PIECE ? (size_t)(e->bytes - i->at) : IN_PIECE;
    TUTTI_TRY(
        tutti_file_read(i->file->file, e->offset + i->at, i->pieces + slot * IN_PIECE, bytes, err));
    i->bytes[slot] = bytes;
    i->at += bytes;
    return TUTTI_OK;
}

static tutti_status run_in(void *arg, tutti_error *err)
{
    tutti_state_in *i = arg;
    tutti_status status = TUTTI_OK;

    (void)err;
    tutti_lock(i->monitor);
    while (status == TUTTI_OK) {
        const uint64_t number = i->read;
        tutti_error why = { .rank = -1 };
        while (number - i->used == IN_PIECES && !i->ending)
            tutti_wait(i->monitor, TUTTI_FOREVER, NULL);
        if (i->ending)
            break;
        tutti_unlock(i->monitor);
        status = read_piece(i, number, &why);
        tutti_lock(i->monitor);
        i->status = status;
        i->why = why;
        i->read += status == TUTTI_OK;
        tutti_wake(i->monitor);
    }
    tutti_unlock(i->monitor);
    return TUTTI_OK;
}

tutti_status tutti_state_in_open(tutti_state_in **out, tutti_runtime *rt,
                                 const tutti_tensor_file *file, const tutti_state_extent *extents,
                                 size_t n, tutti_error *err)
{
    tutti_state_in *i = tutti_alloc(1, sizeof *i);
    tutti_status status = TUTTI_OK;
    uint64_t bytes = 0;
    bool ahead;

    *out = NULL;
    for (size_t k = 0; k < n; k++)
        bytes += extents[k].bytes; /* all of one file */
    ahead = bytes >= LEAST && tutti_file_has_write_at(rt);
    if (i == NULL ||
        (i->pieces = tutti_alloc(ahead ? IN_PIECES : 1,
                                 bytes < IN_PIECE ? (size_t)bytes + 1 : IN_PIECE)) == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to read '%s'", file->path);
        goto out;
    }
    i->file = file;
    i->extents = extents;
    i->n = n;
    if (ahead) {
        status = tutti_monitor_open(&i->monitor, rt, err);
        if (status == TUTTI_OK)
            status = tutti_thread_open(&i->thread, rt, "tutti-read", run_in, i, err);
    }
out:
    if (status == TUTTI_OK)
        *out = i;
    else
        tutti_state_in_close(i);
    return status;
}

tutti_status tutti_state_in_next(tutti_state_in *i, const uint8_t **piece, size_t *bytes,
                                 tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    uint64_t number;

    *piece = NULL;
    *bytes = 0;
    if (i->thread == NULL) {
        number = 0;
        status = read_piece(i, 0, err);
    } else {
        tutti_lock(i->monitor);
        i->used += i->given;
        tutti_wake(i->monitor);
        number = i->used;
        while (i->read == number && i->status == TUTTI_OK)
            tutti_wait(i->monitor, TUTTI_FOREVER, NULL);
        if (i->read == number) {
            status = i->status;
            if (err != NULL)
                *err = i->why;
        }
        tutti_unlock(i->monitor);
    }
    i->given = status == TUTTI_OK;
    if (status == TUTTI_OK) {
        *piece = i->pieces + number % IN_PIECES * IN_PIECE;
        *bytes = i->bytes[number % IN_PIECES];
    }
    return status;
}

void tutti_state_in_close(tutti_state_in *i)
{
    if (i == NULL)
        return;
    if (i->thread != NULL) {
        tutti_lock(i->monitor);
        i->ending = true;
        tutti_wake(i->monitor);
        tutti_unlock(i->monitor);
        tutti_thread_join(i->thread, NULL);
    }
    tutti_monitor_close(i->monitor);
    tutti_free(i->pieces);
    tutti_free(i);
}
