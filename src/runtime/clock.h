/* clock.h: whether all ranks have one clock, the date, and processor time. Implemented by
   runtime.c. */
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

/* Returns the processor time of the calling thread in ns. Real, also where time is virtual. */
int64_t tutti_processor_ns(void);
#pragma GCC visibility pop
#endif
