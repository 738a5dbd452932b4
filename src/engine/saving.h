/* saving.h: checkpoints that are written in the background (tutti_engine_save_begin). Included by
   engine_internal.h; implemented by saving.c, which describes how. Client thread. */
#ifndef TUTTI_ENGINE_SAVING_H
#define TUTTI_ENGINE_SAVING_H
#include "engine/lane.h"
#include "tutti/tutti.h"

typedef struct tutti_engine_saving {
    tutti_lane *lane;            /* one thread, which writes; NULL: no save has needed it yet */
    tutti_job job;               /* the save that is under way, or the last one */
    bool under_way;              /* the job was started, and was not waited for */

    /* what the job reads: it is the job's while that is under way */
    tutti_group group;           /* the ranks that save, as last agreed; a context of this save's
                                    own. Its ranks are `ranks`, since the members' list changes
                                    when others are lost; NULL: all */
    int *ranks;                  /* [ranks_room] */
    char *directory, *facts;
    int keep;
    uint64_t step;
    const tutti_saved *items;    /* [n]: `copies`, or the engine's own if the client waits */
    size_t n;

    /* the copy of what this rank saves, kept from one save to the next */
    tutti_saved *copies;         /* [copies_room] */
    uint8_t *memory;             /* [memory_room]: the contents */
    size_t ranks_room, copies_room, memory_room;
    tutti_saves saves;           /* figures; under_way is not used */
} tutti_engine_saving;

/* Waits for the save that is under way, if there is one, and returns its outcome. In a run that
   continues after losses one that a loss has spoilt is an event, and no failure. */
tutti_status tutti_engine_saving_wait(tutti_engine *e, tutti_error *err);
/* Before the next save, when this rank has waited and services are quiescent: waits until all ranks
   have waited, in a run that continues after losses. Otherwise a new first rank would clean up
   where another still writes for the first rank that was lost. Collective. */
tutti_status tutti_engine_saving_over(tutti_engine *e, tutti_error *err);
/* Bytes of memory for the copy. */
uint64_t tutti_engine_saving_bytes(const tutti_engine *e);
/* Waits, and frees everything. The outcome is lost. */
void tutti_engine_saving_close(tutti_engine *e);
#endif
