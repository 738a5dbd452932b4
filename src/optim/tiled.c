/* tiled.c: an update that also writes a 16-bit copy of the weights, for computing with them
   (ZeRO-Offload, Ren et al., USENIX ATC 2021: the copy is made tile by tile with the update).

   The optimiser's rule updates a tile, which is rounded while it is in a near cache. So this works
   with any rule, and the bits are those of an update followed by a cast. The data pass through
   memory once: for AdamW 28 bytes a parameter, and 2 for the copy. The copy is written past the
   caches if it is larger than they are. w and the slots are written through the caches, because
   their lines are there already: they were read (docs/methods/zero-offload.md). */
#include <assert.h>
#include "optim_internal.h"
#include "kernels/vectors.h"
#include "optim/placed.h"
#include "runtime/team.h"

/* Elements. Of g, w and two slots these are 64 KiB: they fit into any L2 cache, and take long
   compared with the cost of a call. */
enum { TILE = 4096 };
#define PAST ((size_t)16 << 20) /* bytes of a copy */

typedef struct update {
    tutti_optim *o;
    size_t first;
    float *w;
    const float *g;
    const tutti_rate *rate;
    tutti_buffer to;
    bool past;
} update;

static void some(void *arg, size_t first, size_t count)
{
    const update *u = arg;

    for (size_t at = first; at < first + count;) {
        const size_t left = first + count - at, n = left < TILE ? left : TILE;
        tutti_update(u->o, u->first + at, n, u->w + at, u->g + at, u->rate);
        if (u->to.data != NULL && u->to.dtype == TUTTI_F32)
            tutti_copy(u->o->device, n, u->w + at, (float *)u->to.data + at);
        else if (u->to.data != NULL)
            tutti_cast_at_hand(u->o->device, n, u->w + at,
                               tutti_host((uint16_t *)u->to.data + at, n, u->to.dtype), u->past);
        at += n;
    }
}

void tutti_update_tiled(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                        const tutti_rate *rate, tutti_buffer to, tutti_team *team)
{
    update u = { o, first, w, g, rate, to, count * sizeof(uint16_t) >= PAST };

    assert(to.data == NULL ||
           (to.count == count &&
            (to.dtype == TUTTI_BF16 || to.dtype == TUTTI_F16 || to.dtype == TUTTI_F32)));
    if (team == NULL)
        some(&u, 0, count);
    else
        tutti_team_run(team, count, TILE, some, &u);
}
