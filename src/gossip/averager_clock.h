/* averager_clock.h: an averager whose rounds are driven by a clock (the method bagua). Implemented
   by averager.c. */
#ifndef TUTTI_GOSSIP_AVERAGER_CLOCK_H
#define TUTTI_GOSSIP_AVERAGER_CLOCK_H
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default)

/* Rounds with all workers, driven by a clock, for methods with common steps (BAGUA's asynchronous
   averaging): the next round is granted pause_ns after the previous one has ended, whatever
   clients do meanwhile; 0: at once. The lowest present member grants, so all make the same
   rounds, and all granted rounds are made before the run is quiescent. tutti_averager_begin
   starts them, on all workers at the same step.
   services: as above; the second of them runs tutti_averager_clock and must be notified of
   losses. */
tutti_status tutti_averager_declare_clock(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                          int64_t pause_ns, const int services[4],
                                          tutti_error *err);

/* Within pass(); later calls have no effect. */
void tutti_averager_begin(tutti_averager *a);

/* run() of a service. */
tutti_status tutti_averager_clock(tutti_averager *a, tutti_error *err);
#pragma GCC visibility pop
#endif
