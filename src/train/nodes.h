/* nodes.h: a process that trains as a member of a run whose members come, leave and are lost: it
   follows the epochs that its node (elastic/node.h) agrees on with the others, trains in the world
   of each, and gives its state to those that come (docs/design/membership.md). Implemented by
   nodes.c, nodes_wait.c and nodes_ask.c. */
#ifndef TUTTI_TRAIN_NODES_H
#define TUTTI_TRAIN_NODES_H
#include "elastic/follow.h"
#include "train/train.h"
#pragma GCC visibility push(default)

typedef struct tutti_run tutti_run;

/* How it takes part. most, about, say, save, saves_at_leave and mends are the trainer's,
   and so is the user of the follower's callbacks; leaves and listens get this one. */
typedef tutti_follow_options tutti_train_nodes;

/* Trains until the run has ended (*ended), or until this process has left it. After
   tutti_train_begin and tutti_train_open_samples. TUTTI_ERR_USAGE: with a run that has no epochs
   (epoch.h), or with --resume. TUTTI_TIMEOUT: a newcomer is not admitted. TUTTI_ERR_PEER: others
   were missing for lack_ns, or a part of the state; its last step is then in a checkpoint, if the
   run has checkpoints and this member all of the state. Blocks. */
tutti_status tutti_train_by_nodes(tutti_run *run, const tutti_train_nodes *how, bool *ended,
                                  tutti_error *err);

/* A process from its beginning to its end: opens the samples, and calls tutti_train_by_nodes.
   config: as tutti_train_check leaves it. data_hash: of a member's answer; NULL: not compared. */
tutti_status tutti_train_member(const tutti_train_config *config, const tutti_train_io *io,
                                const tutti_train_nodes *how, const char *data_hash, bool *ended,
                                tutti_error *err);

/* Asks the members at these addresses what they train: *config, a JSON object of the options of
   config.json and of `out`, then lines of the version and the hash of the data; tutti_free it.
   node: as in tutti_train_nodes. TUTTI_TIMEOUT: none of them has answered for limit_ns. Blocks. */
tutti_status tutti_train_ask(const tutti_node_options *node, const char *const *contacts, int n,
                             int64_t limit_ns, char **config, tutti_error *err);

typedef struct tutti_train_dismissal {
    int64_t rank;                /* the member that is to leave (tutti_member.rank); -1: none */
    int64_t answer_ns, leave_ns; /* how long it waits until a member answers, until it has left */
} tutti_train_dismissal;
/* Has a member leave, as one that is asked to itself, and waits for it. *epoch: the newest, without
   that member. TUTTI_ERR_USAGE: there is none of that rank, or it is the only one. TUTTI_TIMEOUT.
   Blocks. */
tutti_status tutti_train_dismiss(const tutti_node_options *node, const char *const *contacts, int n,
                                 const tutti_train_dismissal *what, tutti_epoch *epoch,
                                 tutti_error *err);
#pragma GCC visibility pop
#endif
