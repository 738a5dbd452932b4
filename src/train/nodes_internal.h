/* nodes_internal.h: what the files of a process that follows its node share.
     nodes.c       the node, the epochs
     nodes_state.c what it has of the state, and gets
     nodes_wait.c  what it waits for when it cannot train, and how that ends */
#ifndef TUTTI_TRAIN_NODES_INTERNAL_H
#define TUTTI_TRAIN_NODES_INTERNAL_H
#include "elastic/carry.h"
#include "train/nodes.h"
#include "train_internal.h"

#define NODES_MS INT64_C(1000000)
enum { ADMISSION_MS = 60000, DEAD_MS = 1000, LEAVING_MS = 5000, LACK_MS = 600000, SAY_MS = 3000 };

typedef struct follower {
    tutti_run *run;
    const tutti_train_nodes *how;
    tutti_carrier *carrier;
    tutti_image *whole;  /* where a part is on offer: all of the state that an epoch begins with;
                            NULL: it is what is on offer, or is not needed any more */
    bool missing;        /* no member has all of the state of the epoch, nor have all together */
    int64_t missing_ns;  /* since when */
    bool missing_said;   /* a line was printed */
    tutti_node *node;
    tutti_epoch *newest; /* scratch, too large for a stack */
    uint64_t epoch;      /* whose state it fetches, or in whose world it trains */
    uint64_t spent;      /* the epoch whose world has ended, or could not be opened; 0 */
    int64_t spent_ns;    /* since when */
    uint64_t few;        /* the epoch that has too few workers; 0 */
    int few_n;           /* how many it has */
    int64_t few_ns;      /* since when it waits for others; goes on when more of them go */
    bool alone;          /* too few answer to decide an epoch, and a line was printed */
    int64_t alone_ns;    /* since when */
    int64_t opened_ns;   /* since when the node is open */
    bool ready, leaving; /* the node knows */
    bool ended;          /* the run has */
} follower;

static inline int64_t tutti_follower_limit(const follower *f)
{
    return f->how->lack_ns != 0 ? f->how->lack_ns : LACK_MS * NODES_MS;
}

/* Waits a moment for another view. */
void tutti_follower_wait(follower *f, const tutti_node_view *view);
/* There are fewer workers than the run is to have. TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_more(follower *f, const tutti_node_view *view,
                                          tutti_error *err);
/* Those that answer cannot decide the next epoch. TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_majority(follower *f, const tutti_node_view *view,
                                              tutti_error *err);
/* Those that are left do not have all of the state of the epoch, for the reason `why`.
   TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_state(follower *f, const tutti_node_view *view,
                                           const char *why, tutti_error *err);

/* ---- nodes_state.c ---- */

/* An epoch has ended: what it has left is on offer (train_in). Takes over both images; NULL: it has
   left nothing else than there was. */
tutti_status tutti_follower_keep(follower *f, const tutti_node_view *view, tutti_image *image,
                                 tutti_image *beside, tutti_error *err);
/* It has no state any more. */
tutti_status tutti_follower_drop(follower *f, tutti_error *err);
/* Gets the state of the epoch, or finds that it is not to be had yet. */
tutti_status tutti_follower_get_state(follower *f, const tutti_node_view *view, tutti_error *err);
/* Does it have more than a part of the state that the node says it holds? If not: gets the rest. */
bool tutti_follower_has_all(const follower *f, const tutti_node_view *view);
tutti_status tutti_follower_get_rest(follower *f, const tutti_node_view *view, tutti_error *err);
/* Opens what the epoch begins with. *from NULL: no step is done. */
tutti_status tutti_follower_open_state(const follower *f, uint64_t step, tutti_checkpoint **from,
                                       tutti_error *err);

/* ---- nodes_wait.c ---- */

/* Before this process ends without the others: writes its state as a checkpoint, where the run has
   checkpoints and this is all of the state. Of several that answer the first does, and not if that
   step is there. Blocks. */
tutti_status tutti_follower_save(follower *f, const tutti_node_view *view, tutti_error *err);
#endif
