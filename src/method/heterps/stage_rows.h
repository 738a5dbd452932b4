/* stage_rows.h: tables of a stage, served by the workers that share the stage (pipeline.h; HeterPS:
   Liu et al. 2021). Each of them serves a range of the rows of every table of its stage: pulls and
   pushes of a table stay among those workers.

     need    before a forward: pulls the rows that it reads and that are not present yet in this
             step from the workers that serve them
     push    when a step's micro-batches are over: pushes the gradients of all rows that were pulled
             to the workers that serve them. Once all have pushed, a server sums them, in the fixed
             order of summation (by index in the stage), and makes one step of the run's optimiser
             along the sum. Only then does it reply
     next    so a worker that pulls a row in the next step reads the pushes of all of this one, and
             values do not change within a step

   The bits are those of an all-reduce of the whole tables and of an update of all rows. A stage
   with one worker has all its rows, and nothing is sent.

   It is a facility. own_x has space for the tables in full. When the run is quiescent own_x and
   m->optim of every worker of the stage have all rows, so checkpoints do not depend on servers.
   Every loss ends the run. */
#ifndef TUTTI_STAGE_ROWS_H
#define TUTTI_STAGE_ROWS_H
#include "tutti/method.h"
typedef struct tutti_stage_rows tutti_stage_rows;
/* Within declare(), after tutti_drive_declare, on all workers of a run that has tables, whether
   their stage has any or not. service: index of the method's service whose run() is
   tutti_stage_rows_run. replicas: the ranks of the workers that share this stage; only this call
   reads it. Memory with several workers of a stage: twice the tables' values, and an id per row.
   TUTTI_ERR_USAGE: too many workers. */
tutti_status tutti_stage_rows_declare(tutti_stage_rows **out, tutti_method *m, tutti_plan *plan,
                                      int service, const int *replicas, tutti_error *err);
/* Is it a table of this worker's stage? From declare() on. */
bool tutti_stage_rows_has(const tutti_stage_rows *s, int tensor);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_stage_rows_run(tutti_stage_rows *s, tutti_error *err);

/* ---- client thread, within drive() ---- */
/* For a rows_acquire hook (method.h). Exposed time. */
tutti_status tutti_stage_rows_need(tutti_stage_rows *s, int tensor, const uint32_t *ids, size_t n,
                                   tutti_error *err);
/* Pushes the step's gradient in own_g, which in tables is 0 except in rows that were pulled;
   those are 0 afterwards. All workers of the stage call it once per step. Blocks until the rows
   are updated. Exposed time. */
tutti_status tutti_stage_rows_push(tutti_stage_rows *s, uint64_t step, const tutti_rate *rate,
                                   tutti_error *err);
/* Figures of this process so far: rows received from other workers, and sent to them. */
void tutti_stage_rows_bytes(const tutti_stage_rows *s, uint64_t *pulled, uint64_t *pushed);
#endif
