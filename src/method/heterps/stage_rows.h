/* stage_rows.h: the tables of a pipeline stage, served by the workers that share the stage
   (HeterPS: Liu et al. 2021; stages: tutti/method/pipeline.h). heterps.c uses it and stage_rows.c
   implements it. Each of these workers serves a range of the rows of every table of its stage, so
   pulls and pushes of a table stay among them. A replica is the index of a worker among those of
   its stage.

     need    before a forward: pulls the rows that the forward reads, except those that this worker
             serves or has pulled in this step
     push    at the end of a step: pushes the gradients of all rows that were needed in the step to
             the workers that serve them. Once all workers of the stage have pushed, a server sums
             the gradients of a row, in the fixed order of summation by replica, and makes one step
             of the run's optimiser along the sum. Then it answers all of them

   So values do not change within a step, and a row pulled in the next step includes all pushes of
   this one. The bits are those of an all-reduce of the whole tables and an update of all rows. In a
   stage with one worker nothing is sent.

   It is a facility of the method. m->own_x has memory for whole tables. When the run is quiescent,
   every worker of the stage has all rows in own_x and in the slots of m->optim, so checkpoints do
   not depend on the ranges. Every loss ends the run. */
#ifndef TUTTI_STAGE_ROWS_H
#define TUTTI_STAGE_ROWS_H
#include "tutti/method.h"
typedef struct tutti_stage_rows tutti_stage_rows;
/* Adds the facility to the method, within declare() and after tutti_drive_declare, on all workers
   of a run that has tables, also on those whose stage has none. service: index of the method's
   service that runs tutti_stage_rows_run. replicas[m->replicas]: ranks of the workers that share
   this stage; read only by this call. Memory in a stage with several workers: twice the tables'
   values, and 4 bytes per row. TUTTI_ERR_USAGE: more than 256 workers share the stage. */
tutti_status tutti_stage_rows_declare(tutti_stage_rows **out, tutti_method *m, tutti_plan *plan,
                                      int service, const int *replicas, tutti_error *err);
/* Returns true if the tensor is a table of this worker's stage. s NULL: false. */
bool tutti_stage_rows_has(const tutti_stage_rows *s, int tensor);
/* Serves requests: the run() of the service. Returns at once if this worker serves nothing, or s
   is NULL. */
tutti_status tutti_stage_rows_run(tutti_stage_rows *s, tutti_error *err);

/* ---- client thread, within drive() ---- */

/* Makes the rows ids[n] of a table of the stage present in m->own_x, for the hook rows_acquire
   (method.h). The ids ascend. Blocks; exposed time. */
tutti_status tutti_stage_rows_need(tutti_stage_rows *s, int tensor, const uint32_t *ids, size_t n,
                                   tutti_error *err);
/* Pushes the step's gradient of the tables in m->own_g, which must be 0 in rows that were not
   needed in the step, and sets it to 0. rate: of this step. All workers of the stage call it once
   per step. Blocks until the rows are updated; exposed time. */
tutti_status tutti_stage_rows_push(tutti_stage_rows *s, uint64_t step, const tutti_rate *rate,
                                   tutti_error *err);
/* Returns the numbers of rows that this process has received from other workers (*pulled) and sent
   to them (*pushed) so far. */
void tutti_stage_rows_bytes(const tutti_stage_rows *s, uint64_t *pulled, uint64_t *pushed);
#endif
