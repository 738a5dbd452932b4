/* nodes_internal.h: what the files of a process that follows its node share.
     nodes.c       the node, the state, the epochs
     nodes_wait.c  what it waits for when it cannot train, and how that ends */
#ifndef TUTTI_TRAIN_NODES_INTERNAL_H
#define TUTTI_TRAIN_NODES_INTERNAL_H
#include "elastic/carry.h"
#include "train/nodes.h"
#include "train_internal.h"

#define NODES_MS INT64_C(1000000)
enum { ADMISSION_MS = 60000, DEAD_MS = 1000, LEAVING_MS = 5000, LACK_MS = 600000 };

typedef struct follower {
    tutti_run *run;
    const tutti_train_nodes *how;
    tutti_carrier *carrier;
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
/* Before this process ends without the others: writes its state as a checkpoint, where the run has
   checkpoints. Of several that answer the first does, and not if that step is there. Blocks. */
tutti_status tutti_follower_save(follower *f, const tutti_node_view *view, tutti_error *err);
#endif
