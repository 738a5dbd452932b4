/* nodes_internal.h: what the files of a trainer that follows its node share.
     nodes.c       it trains in the world of each epoch
     nodes_wait.c  what becomes of its state when it cannot go on */
#ifndef TUTTI_TRAIN_NODES_INTERNAL_H
#define TUTTI_TRAIN_NODES_INTERNAL_H
#include "elastic/follow.h"
#include "train/nodes.h"
#include "train_internal.h"

typedef struct node_trainer {
    tutti_run *run;
    const tutti_train_nodes *how;
    tutti_follower *follower;
    bool ended; /* the run has */
    /* When the last epoch in which it trained had failed here, when its world was closed, when it
       knew the next one and had its state, and when it was in that one's world; 0: not yet. */
    int64_t failed_ns, closed_ns, agreed_ns, met_ns;
} node_trainer;

/* Does the run have checkpoints? */
bool tutti_node_trainer_saves(const tutti_train_config *config);
/* Of tutti_follow_options. Writes the state as a checkpoint, if that step is not there. Blocks. */
tutti_status tutti_node_trainer_save(void *user, const tutti_image *image, tutti_error *err);
void tutti_node_trainer_mends(void *user, bool saves, char *text, size_t bytes);
#endif
