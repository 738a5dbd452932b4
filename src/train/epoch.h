/* epoch.h: a process that trains in several worlds, one after the other: those of the epochs of
   membership (docs/design/membership.md). Implemented by epoch.c; a part of train_internal.h, which
   includes it.

   The process calls tutti_train_begin and tutti_train_open_samples; for each epoch
   tutti_train_epoch_open, tutti_train_loop, tutti_train_epoch_close; at last tutti_train_close_all.
   Only with --elastic-shares. */
#ifndef TUTTI_TRAIN_EPOCH_H
#define TUTTI_TRAIN_EPOCH_H
#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"
#include "tutti/checkpoint.h"

typedef struct tutti_run tutti_run;

/* An epoch of membership as a member begins it. Those of tutti_train_epochs and of reports are
   passes over the data. */
typedef struct tutti_train_epoch {
    uint64_t number;                 /* 1: of the founders; 0: there are no epochs */
    tutti_checkpoint *from;          /* the state of the run at the step at which it begins; NULL:
                                        no step is done, or --resume names it. Borrowed */
    /* Asked after each step with which the run does not end: does the epoch end with it? The same
       answer on all members. NULL: it lasts to the end of the run. */
    bool (*ends)(void *user, uint64_t step);
    void *user;
} tutti_train_epoch;

/* Enters the world of the epoch, and opens all that training there needs. Close it also after a
   failure. TUTTI_ERR_USAGE: without --elastic-shares, or with --trace. TUTTI_ERR_STATE: members
   begin with states of different steps. Collective. Blocks. */
tutti_status tutti_train_epoch_open(tutti_run *run, tutti_world *world,
                                    const tutti_train_epoch *epoch, tutti_error *err);
/* Closes it, before the world. What the process has done there is kept. */
void tutti_train_epoch_close(tutti_run *run);
/* At the end of an epoch that no loss has ended: all members learn what each of them alone knows of
   the steps since the last report, and may leave. Collective. Blocks. */
tutti_status tutti_train_hand_over(tutti_run *run, tutti_error *err);

/* tutti_engine_figures, with the times and the traffic in earlier worlds. */
void tutti_train_figures(const tutti_run *run, tutti_figures *f);
/* Returns how many bytes the run has sent. members: those that its members have sent. */
double tutti_train_told_bytes(tutti_run *run, double members);
#endif
