/* late.h: gradients that are exchanged concurrently with the next steps and applied late (the
   method pipe-sgd). Implemented by late.c. */
#ifndef TUTTI_ENGINE_MODES_LATE_H
#define TUTTI_ENGINE_MODES_LATE_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* ---- late exchange, concurrent with the next steps (src/engine/modes/late.c) ---- */

/* Within declare(), of methods with equal replicas that exchange pieces in every step. From step
   `from` on the gradient of step t is exchanged while steps t + 1 ... t + steps compute, and
   step() is called with it at the end of step t + steps: then it is in g, on all workers. In the
   first `steps` steps from `from` on there is nothing to apply, and step() is not called. So no
   hook may use g between the last pass and step(), and a pass changes nothing but g.

     exchange   runs on a thread of the engine, pieces in order, step after step, with any codec. It
                reads p (step, weight, group) instead of m. Tables are sent whole.
     step       clipping, the check for finite numbers and skipping concern the gradient that is
                applied. The loss scale of the gradient's own step is divided out, and m->lr is the
                rate of that step.
     quiescent  before a checkpoint, an evaluation or the end exchanges in flight are waited for.
                Their gradients are declared state, the same on all, and are applied at the same
                later step.
     end        with `drain` the engine calls step() for the last `steps` gradients when the run
                ends, else they are dropped.

   steps 0: nothing is late. Without threads (engine_options.lane -1) each exchange is over before
   its step ends, but is applied equally late. TUTTI_ERR_USAGE: other methods; m->whole, as soon as
   declare() is over; more than TUTTI_LATE_MOST steps; a lazy optimiser; an exchange-only client. */
enum { TUTTI_LATE_MOST = 15 };
tutti_status tutti_late_declare(tutti_method *m, tutti_plan *plan, int steps, uint64_t from,
                                bool drain, tutti_error *err);

/* Within step(): the step whose gradient is in g, and its age in steps; age 0: this step. */
uint64_t tutti_late_step(const tutti_method *m);
uint64_t tutti_late_age(const tutti_method *m);

/* Do exchanges run concurrently with the computation? From open() on; false also where nothing is
   late. */
bool tutti_late_overlaps(const tutti_method *m);

/* Time that this worker has waited for such exchanges in this process, in ns. Client thread. */
int64_t tutti_late_waited_ns(const tutti_method *m);
#pragma GCC visibility pop
#endif
