/* copies.c: the image of a state whose parts are on one worker each, with copies of the parts of
   the worker after it (cyclically). So any workers may be lost of which no two are neighbours.

   It is for states that change in each step in a way that others cannot repeat, as the residuals of
   logical shares (exchange/shares.c): to copy them takes all of their bytes. So a client makes such
   an image of some steps only, and goes back to the last of them.

     size     each worker sends the one before it: the step, and how many pieces
     lists    of each piece: hashes of its name and of its contents, begin, end
     pieces   their contents, one call each

   As in all-to-alls, each worker has a message for each other one in each call; those to others
   than the neighbours are empty. What has arrived is compared with its hash: a wrong residual would
   change the model, and nothing would show it. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"
#include "image.h"
#include "collective/world.h"

enum { SIZE_NUMBERS = 2, STEP = 0, PIECES = 1, PIECE_NUMBERS = 4 };
/* of a piece in a list */
enum { NAME, CONTENTS, BEGIN, END };

typedef struct copying {
    tutti_image *image;
    tutti_group g;
    size_t *counts;              /* [2 size]: of an all-to-all */
    const tutti_saved **mine;    /* [n]: the parts of this worker */
    size_t n;
    uint64_t *lists;             /* [2][n][PIECE_NUMBERS]: those that are sent, then what arrives */
    tutti_saved *theirs;         /* [n]: the parts of the worker after it, in memory of their own */
} copying;

/* Elements of `sent` go to the worker before this one, and as many as `received` come from the one
   after it. */
static tutti_status shift(copying *c, tutti_buffer sent, tutti_buffer received, tutti_error *err)
{
    const size_t size = (size_t)c->g.size, index = (size_t)c->g.index;

    memset(c->counts, 0, 2 * size * sizeof *c->counts);
    c->counts[(index + size - 1) % size] = sent.count;
    c->counts[size + (index + 1) % size] = received.count;
    return tutti_alltoall_v(&c->g, c->counts, sent, received, err);
}

static uint64_t name_of(const tutti_saved *p)
{
    return tutti_hash(p->state, strlen(p->state)) * 31 + tutti_hash(p->tensor, strlen(p->tensor));
}

/* Lists what this worker alone has. */
static tutti_status open_copying(copying *c, tutti_error *err)
{
    const tutti_image *image = c->image;

    c->counts = tutti_alloc(2 * (size_t)c->g.size, sizeof *c->counts);
    c->mine = tutti_alloc(image->n + 1, sizeof *c->mine);
    c->lists = tutti_alloc((image->n + 1) * 2 * PIECE_NUMBERS, sizeof *c->lists);
    c->theirs = tutti_alloc(image->n + 1, sizeof *c->theirs);
    if (c->counts == NULL || c->mine == NULL || c->lists == NULL || c->theirs == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for copies of the next worker's state");
    for (size_t k = 0; k < image->n; k++) {
        const tutti_saved *p = &image->pieces[k];
        uint64_t *of = c->lists + c->n * PIECE_NUMBERS;
        if (p->keep != TUTTI_SLICE)
            continue;
        of[NAME] = name_of(p);
        of[CONTENTS] = image->hash[k];
        of[BEGIN] = p->begin;
        of[END] = p->end;
        c->mine[c->n++] = p;
    }
    return TUTTI_OK;
}

static void close_copying(copying *c)
{
    for (size_t k = 0; k < c->n && c->theirs != NULL; k++)
        tutti_free(c->theirs[k].data);
    tutti_free(c->counts);
    tutti_free(c->mine);
    tutti_free(c->lists);
    tutti_free(c->theirs);
}

static tutti_status differs(const copying *c, const char *what, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "worker %d: of the state that worker %d keeps alone %s; no copy of it is made",
                      c->g.index, (c->g.index + 1) % c->g.size, what);
}

static tutti_status exchange_sizes(copying *c, tutti_error *err)
{
    uint64_t sent[SIZE_NUMBERS] = { [STEP] = c->image->step, [PIECES] = c->n }, come[SIZE_NUMBERS];

    TUTTI_TRY(shift(c, tutti_host(sent, SIZE_NUMBERS, TUTTI_I64),
                    tutti_host(come, SIZE_NUMBERS, TUTTI_I64), err));
    return come[STEP] == sent[STEP] && come[PIECES] == sent[PIECES]
               ? TUTTI_OK
               : differs(c, "are other pieces, or those of another step", err);
}

static tutti_status exchange_lists(copying *c, tutti_error *err)
{
    const size_t n = c->n * PIECE_NUMBERS;
    uint64_t *const come = c->lists + n;

    TUTTI_TRY(shift(c, tutti_host(c->lists, n, TUTTI_I64), tutti_host(come, n, TUTTI_I64), err));
    for (size_t k = 0; k < c->n; k++) {
        const uint64_t *of = come + k * PIECE_NUMBERS;
        if (of[NAME] != c->lists[k * PIECE_NUMBERS + NAME] || of[BEGIN] > of[END] ||
            of[END] > c->mine[k]->count ||
            (of[BEGIN] < c->mine[k]->end && c->mine[k]->begin < of[END]))
            return differs(c, "is another list", err);
    }
    return TUTTI_OK;
}

static tutti_status exchange_piece(copying *c, size_t k, tutti_error *err)
{
    const uint64_t *const of = c->lists + (c->n + k) * PIECE_NUMBERS;
    const tutti_saved *const mine = c->mine[k];
    tutti_saved *const theirs = &c->theirs[k];
    size_t bytes;

    *theirs = *mine;
    theirs->begin = of[BEGIN];
    theirs->end = of[END];
    bytes = (size_t)tutti_image_bytes(theirs);
    theirs->data = tutti_alloc(bytes + 1, 1);
    if (theirs->data == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a copy of '%s' (%zu bytes)",
                          mine->state, bytes);
    TUTTI_TRY(shift(c, tutti_host(mine->data, (size_t)tutti_image_bytes(mine), TUTTI_U8),
                    tutti_host(theirs->data, bytes, TUTTI_U8), err));
    return tutti_hash(theirs->data, bytes) == of[CONTENTS] ? TUTTI_OK
                                                           : differs(c, "other bits arrived", err);
}

static tutti_status add_copies(tutti_engine *e, tutti_image *image, tutti_error *err)
{
    copying c = { .image = image,
                  .g = tutti_group_keyed(&e->m.all, tutti_port_of("image copies", 0, 0),
                                         (uint32_t)image->step) };
    tutti_status status = open_copying(&c, err);

    if (status == TUTTI_OK)
        status = exchange_sizes(&c, err);
    if (status == TUTTI_OK)
        status = exchange_lists(&c, err);
    for (size_t k = 0; k < c.n && status == TUTTI_OK; k++)
        status = exchange_piece(&c, k, err);
    if (status == TUTTI_OK) /* moves the pieces of `mine` */
        status = tutti_image_add(image, c.theirs, c.n, err);
    if (status == TUTTI_OK)
        image->copies = 1;
    close_copying(&c);
    return status;
}

tutti_status tutti_engine_image_copied(tutti_engine *e, const char *facts, tutti_image **image,
                                       tutti_error *err)
{
    const int64_t since = tutti_now_ns(e->rt);
    tutti_doing was;
    tutti_status status = tutti_engine_image(e, facts, image, err);

    if (status != TUTTI_OK || e->m.all.size == 1 || (*image)->whole || (*image)->copies > 0)
        return status; /* others have nothing that is not here, or this worker has copies of it */
    was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    tutti_engine_is_in(e, "copies of the state", -1);
    status = add_copies(e, *image, err);
    tutti_engine_doing(e, was);
    tutti_engine_mark(e, "copies", -1, 0, since, tutti_now_ns(e->rt));
    if (status != TUTTI_OK) {
        tutti_image_close(*image);
        *image = NULL;
    }
    return status;
}
