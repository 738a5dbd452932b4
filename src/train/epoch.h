/* epoch.h: a process that trains in several worlds, one after the other: those of the epochs of
   membership (docs/design/membership.md). Implemented by epoch.c; a part of train_internal.h, which
   includes it.

   The process calls tutti_train_begin and tutti_train_open_samples; for each epoch
   tutti_train_epoch_open, tutti_train_loop, tutti_train_epoch_close; at last tutti_train_close_all.
   Only with --elastic-shares, and a method that makes each step as a whole or not at all
   (TUTTI_WHOLE_STEPS).

   A loss ends an epoch: what a member is in fails with TUTTI_ERR_PEER. Then it has the state of the
   last step that it has made (tutti_train_epoch_image), closes the epoch and its world, and begins
   the next epoch with the state that the members agree on. Reports, evaluations and results which
   the loss has cut short are made again there, so that the run's files have each of them once. */
#ifndef TUTTI_TRAIN_EPOCH_H
#define TUTTI_TRAIN_EPOCH_H
#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"
#include "tutti/files.h"

typedef struct tutti_run tutti_run;
struct tutti_image;                  /* state/image.h */

/* An epoch of membership as a member begins it. Those of tutti_train_epochs and of reports are
   passes over the data. */
typedef struct tutti_train_epoch {
    uint64_t number;                 /* 1: of the founders; 0: there are no epochs */
    tutti_checkpoint *from;          /* the state of the run at the step at which it begins; NULL:
                                        no step is done, or --resume names it. Borrowed */
    /* Asked after each step with which the run does not end: does the epoch end with it? The same
       answer on all members. NULL: it lasts to the end of the run. */
    bool (*ends)(void *user, uint64_t step);
    /* Asked in each step, step from 0, when all that the members send each other in it has arrived:
       is it to be made? false: it fails with TUTTI_ERR_PEER, as by a loss. It may block, and calls
       nothing of the run. NULL: yes. (tutti_engine_options.commit) */
    bool (*commit)(void *user, uint64_t step);
    /* Not 0: what each worker keeps is copied on another one only after the named steps: those that
       it divides, and the 1st, 2nd, 4th, 8th ... of the epoch below it. The epoch ends with the
       state of the last of them, or with that with which it began. `commit` is then called after
       such a step, once all workers have the copies of it, and not in the others, which are made at
       once. */
    uint64_t names;
    /* Asked before each pass of a step, step from 0: does the epoch last, so that it may be made?
       false: training ends with TUTTI_ERR_PEER, as by a loss, and computes no more in vain. NULL:
       yes. */
    bool (*lasts)(void *user, uint64_t step);
    /* The logical shares should be dealt again (--batch-share auto): asks for the next epoch.
       Called between two steps, by all members after the same one. NULL: they stay as they are. */
    void (*divides)(void *user);
    void *user;
} tutti_train_epoch;

/* Enters the world of the epoch, and opens all that training there needs. Close it also after a
   failure. TUTTI_ERR_USAGE: without --elastic-shares, with --trace but no part (trace_part.h),
   with a method without TUTTI_WHOLE_STEPS, or the state is of a run with another number of shares.
   TUTTI_ERR_STATE: members begin with states of different steps. Collective. Blocks. */
tutti_status tutti_train_epoch_open(tutti_run *run, tutti_world *world,
                                    const tutti_train_epoch *epoch, tutti_error *err);
/* Before the first epoch of a run with --resume: loads that checkpoint in a world of the founders,
   and copies the state of this one (tutti_train_epoch_image), with which epoch 1 begins. Leaves the
   world. Close the image with tutti_image_close. Collective. Blocks. */
tutti_status tutti_train_epoch_resume(tutti_run *run, tutti_world *world,
                                      struct tutti_image **image, tutti_error *err);
/* Copies the state of this member, with which another epoch may begin: before close, when
   tutti_train_loop has returned, or when it or what follows it has failed by a loss. image->step:
   its step. Close it with tutti_image_close. With named steps it is that of the last one that was
   agreed, with copies of what the next worker has; NULL: there is none, and the state with which
   the epoch began is still the state. TUTTI_ERR_STATE: it is not that of a whole
   step, or the failure was before the state was there. Sends nothing. Blocks. */
tutti_status tutti_train_epoch_image(tutti_run *run, struct tutti_image **image, tutti_error *err);
/* After that: copies what this member has of a neighbouring step, and others may lack
   (tutti_engine_image_beside), or of a neighbouring named step. *image NULL: it has nothing.
   Blocks. */
tutti_status tutti_train_epoch_beside(tutti_run *run, struct tutti_image **image, tutti_error *err);
/* After a step: if it is a named one, copies the state, has copies of the next worker's, and calls
   commit. TUTTI_ERR_PEER: also if that was false. Collective. Blocks. */
tutti_status tutti_train_epoch_name(tutti_run *run, tutti_error *err);
/* Closes it, before the world. What the process has done there is kept. */
void tutti_train_epoch_close(tutti_run *run);
/* At the end of an epoch that no loss has ended: all members learn how much each has sent, and may
   leave. Collective. Blocks. */
tutti_status tutti_train_hand_over(tutti_run *run, tutti_error *err);

/* tutti_engine_figures, with the times and the traffic in earlier worlds. */
void tutti_train_figures(const tutti_run *run, tutti_figures *f);
/* Returns how many bytes the run has sent. members: those that its members have sent. */
double tutti_train_told_bytes(tutti_run *run, double members);
#endif
