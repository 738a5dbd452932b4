/* stage_rows.h: tables of a stage at the workers that have it (drive.h; HeterPS: Liu et al. 2021).
   Each of them serves a range of the rows of every table of its stage: what is pulled and pushed of
   a table stays among those workers.

     need    before a forward: of the rows that it reads those that are not here yet in this step,
             from who serves them
     push    when a step's micro-batches are over: the gradients of all rows that were needed, to
             who serves them. Once all have pushed, their sum, in the one order of summation by
             m->mate, and one step of the run's optimiser along it. Only then are they answered
     next    so who needs a row of the next step reads what all have pushed of this one, and values
             do not change within a step

   The bits are those of an all-reduce of the whole tables and of an update of all rows. A stage
   with one worker has its rows itself, and nothing is sent.

   It is a facility. own_x has room for the tables in full. While all is quiet own_x and m->optim of
   every worker of the stage have all rows, so checkpoints know of no servers. Every loss ends the
   run. */
#ifndef TUTTI_STAGE_ROWS_H
#define TUTTI_STAGE_ROWS_H
#include "method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_stage_rows tutti_stage_rows;
/* Within declare(), after tutti_drive_declare, on all workers of a run that has tables, whether
   their stage has any or not. service: index of the method's service whose run() is
   tutti_stage_rows_run. mates: m->mates, the workers that have this stage; read by it alone.
   Memory with several workers of a stage: twice the tables' values, and an id a row.
   TUTTI_ERR_USAGE: too many workers. */
tutti_status tutti_stage_rows_declare(tutti_stage_rows **out, tutti_method *m, tutti_plan *plan,
                                      int service, const int *mates, tutti_error *err);
/* Is it a table of my stage? From declare() on. */
bool tutti_stage_rows_has(const tutti_stage_rows *s, int tensor);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_stage_rows_run(tutti_stage_rows *s, tutti_error *err);

/* ---- client thread, within drive() ---- */
/* A rows_acquire hook's (method.h). Exposed time. */
tutti_status tutti_stage_rows_need(tutti_stage_rows *s, int tensor, const uint32_t *ids, size_t n,
                                   tutti_error *err);
/* own_g: the step's gradient here, of tables 0 but in rows that were needed; those are 0
   afterwards. All workers of the stage call it once a step. Blocks until the rows are updated.
   Exposed time. */
tutti_status tutti_stage_rows_push(tutti_stage_rows *s, uint64_t step, const tutti_rate *rate,
                                   tutti_error *err);
/* Of this process so far: rows that came from others, and that went to them. */
void tutti_stage_rows_told(const tutti_stage_rows *s, uint64_t *pulled, uint64_t *pushed);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
