/* displacement.h: displacements of the model that are exchanged concurrently with the next steps
   (the method diloco). Implemented by displacement.c. */
#ifndef TUTTI_ENGINE_MODES_DISPLACEMENT_H
#define TUTTI_ENGINE_MODES_DISPLACEMENT_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* ---- displacements, exchanged concurrently with the next steps
   (src/engine/modes/displacement.c) ---- */

/* tutti_exchange_all of some tensors, on a thread of the engine, while the client computes. At most
   one exchange at a time. All workers start the same exchanges in the same steps, and wait for
   them in the same steps, so that no bit depends on how long one takes. Client thread, within
   step().

   declare: within declare(). delay: most steps from start to wait. 0: they are called in the same
   step, and start makes the exchange. Without threads (engine_options.lane -1) it always does.
   start: d[n] is a displacement of the model, or the like. Of the tensors in `tensors`, which has
   `ranges` ranges of indexes, d := the mean over the workers, through the run's codec. d and
   tensors belong to the exchange until wait. weight: TUTTI_DISPLACEMENT_EQUAL, on all workers: the
   mean is unweighted. Else at least 0: worker r's d is multiplied by (number of workers) weight_r /
   (sum of weights), rounded to float, before the unweighted mean; where that is 1, and where all
   weights are 0, d stays what it is. Weights are sent as one all-gather of eight bytes.
   wait: blocks until it is over. TUTTI_OK at once where none was started since the last wait, as in
   a run that was resumed in between. Errors: those of tutti_exchange_all.

   quiescent: the exchange is over, and d has the mean. So declare d as TUTTI_SAME where delay is
   not 0, and use it in the step in which wait would be called. */
typedef struct tutti_displacement tutti_displacement;
tutti_status tutti_displacement_declare(tutti_displacement **out, tutti_method *m, int64_t delay,
                                        tutti_error *err);
enum { TUTTI_DISPLACEMENT_EQUAL = -1 };
void tutti_displacement_start(tutti_displacement *s, float *d, const tutti_range *tensors,
                              int ranges, int64_t weight);
tutti_status tutti_displacement_wait(tutti_displacement *s, tutti_error *err);
#pragma GCC visibility pop
#endif
