/* service_internal.h: what service.c, calls.c, requests.c and quiescence.c share. */
#ifndef TUTTI_SERVICE_INTERNAL_H
#define TUTTI_SERVICE_INTERNAL_H
#include "../engine_internal.h"

/* Kinds of headers. END: sent by a worker to itself so that its server wakes up for the end.
   FAILED, in a reply: the service has failed; a is the rank at fault. PENDING: wakes a server for a
   pending round. */
enum { KIND_END = -1, KIND_FAILED = -2, KIND_PENDING = -5 };

/* The port at which a service receives requests, by its index in services.at. */
static inline tutti_port tutti_service_port(int index)
{
    return tutti_port_of("service", (uint64_t)index, 0);
}

/* The port at which it receives control messages of its own worker. */
static inline tutti_port tutti_service_word_port(int index)
{
    return tutti_port_of("service-word", (uint64_t)index, 0);
}

/* A loss that the run continues without is not a failure. */
static inline tutti_status tutti_service_well_without(const tutti_engine *e, tutti_status status,
                                                      const tutti_error *err)
{
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

/* service.c */
/* collective; does nothing for services that run */
tutti_status tutti_service_start(tutti_engine *e, tutti_error *err);
/* notifies the services that want it of the losses that this worker has learnt of */
void tutti_service_tell_losses(tutti_engine *e);
/* wakes a server for its pending rounds. The monitor is locked */
void tutti_service_wake(tutti_engine *e, int index);
/* calls.c */
/* ends the calls in progress, so that their threads continue. The monitor is locked */
void tutti_service_end_calls(tutti_engine *e, bool all);
/* counts a request sent to the service: returns its ticket */
uint64_t tutti_service_count_call(tutti_engine *e, int index, int member);
/* requests.c */
/* The next request, in buffer `current`, or a control message of this worker itself. */
tutti_status tutti_requests_next(tutti_request_queue *q, tutti_header *note, int64_t deadline_ns,
                                 tutti_error *err);
/* The request that was taken is not to be answered: its buffer is free for another. */
void tutti_requests_skip(tutti_request_queue *q);
/* The service has failed: sends the replies that wait; their failures do not count any more. */
tutti_status tutti_requests_expedite(tutti_request_queue *q, tutti_error *err);
/* The service is over: sends the replies that wait, and waits until all are received, at most
   until until_ns. The queue need not be open. */
void tutti_requests_drain(tutti_request_queue *q, int64_t until_ns);
#endif
