/* service_internal.h: what service.c, calls.c, desk.c and quiet.c share. */
#ifndef TUTTI_SERVICE_INTERNAL_H
#define TUTTI_SERVICE_INTERNAL_H
#include "../engine_internal.h"

/* Kinds of notes. END: what a worker sends to itself so that its server wakes up for the end.
   FAILED, in a reply: the service has failed; a is whose fault it was. OWED: what wakes a server
   for a round that it is owed. */
enum { KIND_END = -1, KIND_FAILED = -2, KIND_OWED = -5 };

/* Where a service takes requests, by its place in services.at. */
static inline tutti_port tutti_service_port(int index)
{
    return tutti_port_of("service", (uint64_t)index, 0);
}

/* Where it hears what its worker tells itself. */
static inline tutti_port tutti_service_word_port(int index)
{
    return tutti_port_of("service-word", (uint64_t)index, 0);
}

/* A failure that is a loss the run goes on without is none. */
static inline tutti_status tutti_service_well_without(const tutti_engine *e, tutti_status status,
                                                      const tutti_error *err)
{
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

/* service.c */
/* collective; nothing of those that run */
tutti_status tutti_service_start(tutti_engine *e, tutti_error *err);
/* those that this worker has learnt of, to the services that want to hear of them */
void tutti_service_tell_losses(tutti_engine *e);
/* a server, for what it is owed. The monitor is held */
void tutti_service_wake(tutti_engine *e, int index);
/* calls.c */
/* whoever waits in one goes on. The monitor is held */
void tutti_service_end_calls(tutti_engine *e, bool all);
/* a request to it is on its way: its ticket */
uint64_t tutti_service_count_call(tutti_engine *e, int index, int member);
/* desk.c */
/* The next request, in room `taken`, or a word of this worker's own. */
tutti_status tutti_desk_next(tutti_engine_desk *d, tutti_note *note, int64_t deadline_ns,
                             tutti_error *err);
/* The request that it has given is not to be answered: its room takes another. */
void tutti_desk_pass_over(tutti_engine_desk *d);
/* The service has failed: whatever waits for its turn goes, and what
   becomes of it is no failure any more. */
tutti_status tutti_desk_hurry(tutti_engine_desk *d, tutti_error *err);
/* The service is over: sends what waits for its turn and waits until all answers are taken, until
   then at most. A desk that is not open is well, too. */
void tutti_desk_drain(tutti_engine_desk *d, int64_t until_ns);
#endif
