/* merge.h: one update for several steps (the method accordion). Implemented by merge.c. */
#ifndef TUTTI_ENGINE_MODES_MERGE_H
#define TUTTI_ENGINE_MODES_MERGE_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* ---- one update for several steps (src/engine/modes/merge.c) ---- */

/* Within declare(), of methods whose replicas are equal: passes may have `merge`. In the last of
   the merged steps pieces are exchanged and step() is called as usual, and g is the mean over the
   samples of all these steps. The steps before it count for schedules, which go by samples, but
   not for rate.t. A run's last step always updates. A checkpoint may be made in between. */
tutti_status tutti_merge_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);

/* Number of steps merged into the current update, this one included. */
int64_t tutti_merged(const tutti_method *m);
#pragma GCC visibility pop
#endif
