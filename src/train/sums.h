/* sums.h: the loss and the samples since the last report, and the regret of the run. */
#ifndef TUTTI_TRAIN_SUMS_H
#define TUTTI_TRAIN_SUMS_H
#include <jansson.h>
#include "train/train_internal.h"

/* Allocates them, once. */
tutti_status tutti_train_sums_open(tutti_run *run, tutti_error *err);
void tutti_train_sums_close(tutti_run *run);
/* A step begins, for the first time or again. */
void tutti_train_sums_begin(tutti_run *run);
/* Adds what a pass has. */
void tutti_train_sums_add(tutti_run *run, const tutti_pass *pass, double loss, int64_t samples);
/* Adds the regret of this worker's step. */
void tutti_train_sums_regret(tutti_run *run, double regret);
/* With epochs the engine's callback `commit` (user: the run): all learn the sums of all, and then
   the client of the epoch is asked. Collective. Blocks. */
bool tutti_train_commit(void *user, uint64_t step);
/* Returns the status of a step: its own, or that of the exchange in tutti_train_commit which has
   made it fail. */
tutti_status tutti_train_sums_end(const tutti_run *run, tutti_status status, tutti_error *err);
/* Sets what this worker gives to a report. The sums over the workers are those of the run.
   Collective. */
tutti_status tutti_train_sums_report(tutti_run *run, double *loss, double *samples,
                                     tutti_error *err);
/* The report is done. */
void tutti_train_sums_reported(tutti_run *run);
/* Returns the learning rate of the last step. */
double tutti_train_sums_lr(const tutti_run *run);
/* Returns the regret that this worker gives to the results. */
double tutti_train_sums_regret_of(const tutti_run *run);
/* Returns the sums as facts of a checkpoint or an image store them; json_decref it. saved: as of
   tutti_train_facts. Only with epochs. */
json_t *tutti_train_sums_facts(const tutti_run *run, bool saved);
/* Takes those of the state with which the epoch begins. Without any all are 0, and the regret is
   not known (NaN). TUTTI_ERR_USAGE: they have another number of shares. Local. */
tutti_status tutti_train_sums_take(tutti_run *run, tutti_error *err);
#endif
