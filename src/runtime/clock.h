/* clock.h: whether all ranks have one clock, and the date. Implemented by runtime.c. Included by
   the engine and by the record of a run. */
#ifndef TUTTI_RUNTIME_CLOCK_H
#define TUTTI_RUNTIME_CLOCK_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Is now_ns one clock for all ranks of a run, wherever they are, so that they can agree on an
   instant? Only where time is virtual. posix: no; a host's clock begins at its boot. */
bool tutti_clock_is_common(const tutti_runtime *rt);

/* Returns the seconds since 1970 by this host's calendar, for files that people sort by date. Never
   for durations: the calendar may be set while a run lasts. */
double tutti_date_seconds(void);
#pragma GCC visibility pop
#endif
