/* service_internal.h: what the files of src/engine/service call in each other. Included by
   service.c, calls.c, requests.c and quiescence.c only. */
#ifndef TUTTI_SERVICE_INTERNAL_H
#define TUTTI_SERVICE_INTERNAL_H
#include "../engine_internal.h"

/* Kinds of headers that the engine itself sends. */
enum {
    KIND_END = -1,      /* this worker to one of its own services or calls: end */
    KIND_FAILED = -2,   /* in a reply: the service has failed; `a` is the rank at fault */
    KIND_PENDING = -5   /* this worker to one of its own services: a round is pending */
};

/* Returns the port at which a service receives requests. index: in services.at. */
static inline tutti_port tutti_service_port(int index)
{
    return tutti_port_of("service", (uint64_t)index, 0);
}

/* Returns the port at which a service receives control messages of its own worker. */
static inline tutti_port tutti_service_word_port(int index)
{
    return tutti_port_of("service-word", (uint64_t)index, 0);
}

/* Returns TUTTI_OK for the loss of a worker without which the run continues; any other status
   unchanged. */
static inline tutti_status tutti_service_well_without(const tutti_engine *e, tutti_status status,
                                                      const tutti_error *err)
{
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

/* ---- service.c ---- */

/* Starts the services' threads that do not run yet. Called by all ranks at the same point. */
tutti_status tutti_service_start(tutti_engine *e, tutti_error *err);
/* Makes a round pending of each service that receives losses, if this worker has learnt of losses
   since the last call. */
void tutti_service_tell_losses(tutti_engine *e);
/* Wakes a service that waits for requests, by a message of kind KIND_PENDING, unless one is in
   flight to it. The monitor is locked. */
void tutti_service_wake(tutti_engine *e, int index);

/* ---- calls.c ---- */

/* Ends the waits of calls in progress without a reply. all: also the waits of
   tutti_engine_wait_or_close. The monitor is locked. */
void tutti_service_end_calls(tutti_engine *e, bool all);
/* Counts a request to a service of `member` as sent. Returns its ticket. */
uint64_t tutti_service_count_call(tutti_engine *e, int index, int member);

/* ---- requests.c; the service's thread ---- */

/* Waits for the next request, in order of arrival, or a control message of this worker, and sets
   *note to its header. The payload of a request is in the queue's current buffer.
   TUTTI_TIMEOUT. */
tutti_status tutti_requests_next(tutti_request_queue *q, tutti_header *note, int64_t deadline_ns,
                                 tutti_error *err);
/* Frees the current request's buffer for another request: it will not be answered. */
void tutti_requests_skip(tutti_request_queue *q);
/* The service has failed: sends all waiting replies at once. From now on failures of sends are
   ignored. */
tutti_status tutti_requests_expedite(tutti_request_queue *q, tutti_error *err);
/* The service has ended: sends all waiting replies, and waits until they are received or until_ns
   has passed. Does nothing if the queue is not open. */
void tutti_requests_drain(tutti_request_queue *q, int64_t until_ns);
#endif
