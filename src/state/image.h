/* image.h: the state of a run at a step in memory, as a checkpoint has it on a disk. An image is
   what one worker has of it, or what a newcomer has fetched from several (src/elastic). It is read
   as a checkpoint: tutti_engine_load and all that it calls do not know the difference.

   Pieces are those of a checkpoint: elements [begin, end) of (state, tensor) of an owner. Their
   order is by state, tensor, owner, begin, end. */
#ifndef TUTTI_STATE_IMAGE_H
#define TUTTI_STATE_IMAGE_H
#include "tutti/files.h"
#pragma GCC visibility push(default)

typedef struct tutti_image {
    uint64_t step;               /* steps done */
    int rank;                    /* whose image it is; one that was fetched: 0 */
    int world, workers;          /* ranks of the run, and those of them that are workers */
    bool whole;                  /* of no state do other ranks have what is not here */
    int copies;                  /* number of ranks after `rank`, cyclically, that have nothing that
                                    is not here; below `world` */
    char *facts;                 /* a JSON object; "": only what a worker has of its own is here */
    tutti_saved *pieces;         /* [n], in order; data: memory of the image, or NULL: not there */
    uint64_t *hash;              /* [n]: XXH3-64 of a piece's bytes */
    size_t n;
} tutti_image;

/* The bytes of a piece. */
static inline uint64_t tutti_image_bytes(const tutti_saved *piece)
{
    return (piece->end - piece->begin) * tutti_dtype_bytes(piece->dtype);
}

/* Has it all of the state of its step? */
static inline bool tutti_image_is_whole(const tutti_image *image)
{
    return image->facts[0] != 0 && (image->whole || image->copies + 1 >= image->world);
}

/* Compares the places of two pieces, with a result as that of strcmp. */
int tutti_image_order(const tutti_saved *a, const tutti_saved *b);

/* Copies items[n], whose contents are in memory or in a tier, and hashes them. of: step, rank,
   world, workers, whole, copies and facts, which are copied; the rest of it is ignored. Blocks
   (tiers). */
tutti_status tutti_image_copy(tutti_image **out, const tutti_image *of, const tutti_saved *items,
                              size_t n, tutti_error *err);
/* Adds copies of items[n], which are in memory and not in the image.
   TUTTI_ERR_MEMORY: the image is as it was. */
tutti_status tutti_image_add(tutti_image *image, const tutti_saved *items, size_t n,
                             tutti_error *err);
void tutti_image_close(tutti_image *image);

/* Opens the image as a checkpoint, which uses its memory: close that first. Every state must be
   complete, as in any checkpoint (TUTTI_ERR_CORRUPT names what is missing). Pieces that are listed
   but not there may not be read: TUTTI_ERR_STATE names them. */
tutti_status tutti_image_checkpoint(tutti_checkpoint **out, const tutti_image *image,
                                    tutti_error *err);
#pragma GCC visibility pop
#endif
