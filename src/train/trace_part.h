/* trace_part.h: --trace in a run whose workers come and go: this process's part of the trace
   (record/files.h, member.c). Implemented by trace_part.c. Without --trace, and in a run of fixed
   workers, run->part is NULL, and these functions have no effect.

   A part that cannot be written ends no run: the process says so, and goes on without it. */
#ifndef TUTTI_TRAIN_TRACE_PART_H
#define TUTTI_TRAIN_TRACE_PART_H
#include "train/train_internal.h"

/* Makes run->part, before the first epoch. */
tutti_status tutti_train_part_open(tutti_run *run, tutti_error *err);
/* The next epoch is of the run of that number, and this process is that worker in it; below 0: it
   is none any more. */
void tutti_train_part_turn(tutti_run *run, uint64_t number, int64_t worker);
/* How many events the engine of the next epoch has to keep. */
size_t tutti_train_part_events(const tutti_run *run);
/* The run is accepted, and this process is index 0: removes the parts of an earlier one. keeps:
   they are of the run that goes on, unless this one has a trace, too. */
tutti_status tutti_train_part_accept(tutti_run *run, bool keeps, tutti_error *err);
/* Measures how far this process's clock is ahead of the first member's. Collective, within a
   meeting. */
tutti_status tutti_train_part_clock(tutti_run *run, tutti_error *err);
/* An epoch begins, and the clock is measured. */
void tutti_train_part_begin(tutti_run *run);
/* A step is made: its events are written, now or soon. */
void tutti_train_part_step(tutti_run *run);
/* The run has ended here: all members write what they have. Collective, within a meeting. */
tutti_status tutti_train_part_gather(tutti_run *run, tutti_error *err);
/* After that, at index 0: makes trace.json. */
void tutti_train_part_merge(tutti_run *run);
/* The epoch is over, and its engine is still open. */
void tutti_train_part_over(tutti_run *run);
/* gone: as of tutti_record_part_close. Frees run->part. */
void tutti_train_part_close(tutti_run *run, const char *gone);
#endif
