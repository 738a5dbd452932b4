/* stream.c: the contents of large files, in order, to the disk and from it, with the disk kept busy
   while the caller hashes. A checkpoint is as large as the model and every worker waits for it.

   Out: the caller's bytes are copied into blocks at a page's start. A full block is written at its
   place by one of a few threads, past the page cache, while the next is filled. A copy costs a
   tenth of what the disk takes. The page cache would cost that copy too, and then the pages
   themselves, which a training process's host has better uses for. The file's space is allocated
   first, so a full disk is found before the work and not after it. The last bytes, less than a
   block, are written by the caller when the threads have finished.

   In: a few threads read the next pieces while the caller hashes this one. They read through the
   page cache, since all workers of a host read the same file when they resume. One thread alone
   would wait for the disk after each of the kernel's readaheads, which are small. A worker that is
   alone on its host reads past the cache, whose copies are a third of the time: whole blocks, so a
   piece may have those at its ends twice.

   Small files, and all files of runtimes without parallel files (simulation, exploration, the
   tests' files in memory), are written and read by one call after the other: the same bytes.
   Measurements are in docs/design/checkpoints.md. */
#include "state_internal.h"
#include "runtime/files.h"
#include <errno.h>
#include <string.h>

enum {
    OUT_LANES = 4, OUT_BLOCKS = OUT_LANES + 2, OUT_BLOCK = 1 << 20,
    IN_LANES = 4, CACHE_LANES = 3, IN_PIECES = IN_LANES + 3, IN_PIECE = 1 << 20,
    IN_ROOM = IN_PIECE + 2 * TUTTI_FILE_BLOCK, /* of a piece with the blocks of its ends */
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
    uint8_t *memory;
    uint8_t *pieces;          /* [IN_PIECES][IN_ROOM], in memory, at a block's start */
    bool direct;              /* past the page cache */
    bool given;               /* the caller has a piece; used by the caller */
    tutti_monitor *monitor;   /* protects the rest; NULL: the caller reads */
    tutti_thread *lane[IN_LANES];
    size_t extent;            /* the extent that the next piece begins in */
    uint64_t at;              /* bytes of it that are in earlier pieces */
    uint64_t taken, used;     /* pieces begun, and pieces that the caller has finished with */
    size_t bytes[IN_PIECES];  /* [slots]: size of the piece in it */
    size_t begin[IN_PIECES];  /* [slots]: where in the slot it begins */
    bool read[IN_PIECES];     /* [slots]: the piece was read, or could not be */
    tutti_status status[IN_PIECES]; /* [slots]: the result */
    bool ending;              /* no more pieces will be begun: all are, one failed, or it closes */
    tutti_error why;          /* of the failed piece with the lowest number */
    uint64_t failed;          /* its number; UINT64_MAX: none */
};

/* Sets *of to the range of the next piece. False: there is none. */
static bool take_piece(tutti_state_in *i, tutti_state_extent *of)
{
    const tutti_state_extent *e;

    while (i->extent < i->n && i->at == i->extents[i->extent].bytes) {
        i->extent++;
        i->at = 0;
    }
    if (i->extent == i->n)
        return false;
    e = &i->extents[i->extent];
    of->offset = e->offset + i->at;
    of->bytes = e->bytes - i->at < IN_PIECE ? e->bytes - i->at : IN_PIECE;
    i->at += of->bytes;
    return true;
}

/* Reads a piece into its slot. *begin: where in the slot it is. */
static tutti_status read_piece(const tutti_state_in *i, size_t slot, const tutti_state_extent *of,
                               size_t *begin, tutti_error *err)
{
    uint8_t *to = i->pieces + slot * IN_ROOM;

    *begin = i->direct ? (size_t)(of->offset % TUTTI_FILE_BLOCK) : 0;
    return i->direct
               ? tutti_file_read_blocks(i->file->file, of->offset, to, (size_t)of->bytes, err)
               : tutti_file_read(i->file->file, of->offset, to, (size_t)of->bytes, err);
}

static tutti_status run_in(void *arg, tutti_error *err)
{
    tutti_state_in *i = arg;
    tutti_state_extent of;

    (void)err;
    tutti_lock(i->monitor);
    for (;;) {
        tutti_error why = { .rank = -1 };
        tutti_status status;
        uint64_t number;
        size_t slot, begin;
        while (i->taken - i->used == IN_PIECES && !i->ending)
            tutti_wait(i->monitor, TUTTI_FOREVER, NULL);
        i->ending = i->ending || !take_piece(i, &of);
        if (i->ending)
            break;
        number = i->taken++;
        slot = (size_t)(number % IN_PIECES);
        i->read[slot] = false;
        tutti_unlock(i->monitor);
        status = read_piece(i, slot, &of, &begin, &why);
        tutti_lock(i->monitor);
        i->bytes[slot] = (size_t)of.bytes;
        i->begin[slot] = begin;
        i->status[slot] = status;
        i->read[slot] = true;
        if (status != TUTTI_OK) {
            i->ending = true;
            if (number < i->failed) {
                i->failed = number;
                i->why = why;
            }
        }
        tutti_wake(i->monitor);
    }
    tutti_wake(i->monitor);
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
    if (i == NULL || (i->memory = tutti_alloc(ahead ? IN_PIECES * IN_ROOM + TUTTI_FILE_BLOCK
                                              : bytes < IN_PIECE ? (size_t)bytes + 1
                                                                 : IN_PIECE,
                                              1)) == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to read '%s'", file->path);
        goto out;
    }
    i->pieces = i->memory + (ahead ? (-(uintptr_t)i->memory) % TUTTI_FILE_BLOCK : 0);
    i->direct = ahead && file->alone && tutti_file_read_direct(file->file);
    i->file = file;
    i->extents = extents;
    i->n = n;
    i->failed = UINT64_MAX;
    if (ahead)
        status = tutti_monitor_open(&i->monitor, rt, err);
    for (int k = 0; k < (i->direct ? IN_LANES : CACHE_LANES) && ahead && status == TUTTI_OK; k++)
        status = tutti_thread_open(&i->lane[k], rt, "tutti-read", run_in, i, err);
out:
    if (status == TUTTI_OK)
        *out = i;
    else
        tutti_state_in_close(i);
    return status;
}

/* By the caller itself, one piece after the other. */
static tutti_status read_next(tutti_state_in *i, tutti_error *err)
{
    tutti_state_extent of;

    if (!take_piece(i, &of))
        return TUTTI_CLOSED;
    i->bytes[0] = (size_t)of.bytes;
    return read_piece(i, 0, &of, &i->begin[0], err);
}

/* Waits for the next piece, that of *slot. */
static tutti_status await_next(tutti_state_in *i, size_t *slot, tutti_error *err)
{
    tutti_status status;

    tutti_lock(i->monitor);
    i->used += i->given;
    tutti_wake(i->monitor);
    *slot = (size_t)(i->used % IN_PIECES);
    while (i->used < i->taken ? !i->read[*slot] : !i->ending)
        tutti_wait(i->monitor, TUTTI_FOREVER, NULL);
    status = i->used < i->taken ? i->status[*slot] : TUTTI_CLOSED;
    if (status != TUTTI_OK && status != TUTTI_CLOSED && err != NULL)
        *err = i->why; /* all pieces before it were given, so it is the first that failed */
    tutti_unlock(i->monitor);
    return status;
}

tutti_status tutti_state_in_next(tutti_state_in *i, const uint8_t **piece, size_t *bytes,
                                 tutti_error *err)
{
    size_t slot = 0;
    tutti_status status;

    *piece = NULL;
    *bytes = 0;
    status = i->monitor == NULL ? read_next(i, err) : await_next(i, &slot, err);
    i->given = status == TUTTI_OK;
    if (status == TUTTI_OK) {
        *piece = i->pieces + slot * IN_ROOM + i->begin[slot];
        *bytes = i->bytes[slot];
    }
    return status;
}

void tutti_state_in_close(tutti_state_in *i)
{
    if (i == NULL)
        return;
    if (i->monitor != NULL) {
        tutti_lock(i->monitor);
        i->ending = true;
        tutti_wake(i->monitor);
        tutti_unlock(i->monitor);
    }
    for (int k = 0; k < IN_LANES; k++)
        if (i->lane[k] != NULL)
            tutti_thread_join(i->lane[k], NULL);
    tutti_monitor_close(i->monitor);
    tutti_free(i->memory);
    tutti_free(i);
}
