/* engine_facility.h: what the engine offers to the modules between it and the methods (gossip,
   server), in addition to method.h and steps.h, which are for all. These modules use the engine
   through these functions only: its data structures stay private.

   A facility (method.h: tutti_facility_ops) is given the method, and m->engine is the engine. */
#ifndef TUTTI_ENGINE_FACILITY_H
#define TUTTI_ENGINE_FACILITY_H
#include "tutti/codec.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#pragma GCC visibility push(default) /* for modules, not exported by the library:
                                        cmake/Install.cmake */

/* ---- the run ---- */

/* Is that rank lost to this worker, in a run that continues after losses? The workers need not
   have agreed on it yet. (tutti_engine_fault_tolerant of tutti.h is known from open() on, not
   yet in declare().) */
bool tutti_engine_misses(const tutti_engine *e, int rank);
/* Number of threads of the lane that the run asks for (--lane); 0: the method decides; -1:
   none. */
int tutti_engine_lane(const tutti_engine *e);
/* The lowest remaining worker, as last agreed. */
int tutti_engine_first(const tutti_engine *e);
/* The run's algorithm of the workers' sums, for groups of all of them; NULL: chosen for each. */
const char *tutti_engine_collective(const tutti_engine *e);
/* May there be threads in addition to the client's (--lane)? */
bool tutti_engine_has_lanes(const tutti_engine *e);
/* Within declare(): other state depends on the partition into pieces, so tutti_recut is
   refused. */
void tutti_engine_keep_pieces(tutti_engine *e);
/* Within declare(), once the method has set how: splits the flat space into pieces now; m->layout
   then has them. */
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);
/* May steps be skipped (nonfinite=skip, loss scaling)? */
bool tutti_engine_may_skip(const tutti_engine *e);
/* From declare() on, once the method has set how pieces are split: an upper bound of their
   number. */
double tutti_engine_most_pieces(const tutti_engine *e);
/* From declare() on, likewise: the number of pieces, as long as they are not split again.
   *largest: elements of the largest piece that is not a table with known rows. */
int tutti_engine_pieces(const tutti_engine *e, size_t *largest);
/* Do whole gradients go to servers that read g and write x in place? Both are then in windows.
   Derived from the method's traits. */
static inline bool tutti_engine_pushes(const tutti_method *m)
{
    return (m->traits & TUTTI_PARAMETER_SERVERS) != 0 &&
           (m->ops->exchange == NULL || (m->traits & TUTTI_THROUGH_SERVERS) == 0);
}
/* Within declare(), if gradients may be late: makes the staleness metrics cover the whole run. */
void tutti_engine_declare_history(tutti_engine *e);
/* n: the worker's own x while the agreed model is in x; NULL: it is the same. Within
   final_model(). */
float *tutti_engine_kept(tutti_engine *e);

/* Snapshots (tutti.h): how many there may be; 0: none. From declare() on. */
int tutti_engine_snapshot_capacity(const tutti_engine *e);
/* How many snapshot points this worker's client has passed since the last drop. Client thread. */
int tutti_engine_snapshots_passed(const tutti_engine *e);
/* A service of a rank that only serves has stored its part of snapshot k. */
void tutti_engine_snapshot_served(tutti_engine *e, int k);

/* ---- time (clock.c) ---- */

/* Sets the activity to EXPOSED, unless the client is in OUTSIDE or REPORT, which stays. Returns
   the previous one. */
tutti_doing tutti_engine_expose(tutti_engine *e);
/* The client has communicated: counted and traced, unless it is in OUTSIDE or REPORT or the clock
   is stopped. */
void tutti_engine_comm(tutti_engine *e, const char *what, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* Time that the client has waited for communication in this process, in ns. Client thread. */
int64_t tutti_engine_exposed_ns(const tutti_engine *e);
/* A service has communicated from begin_ns until now. */
void tutti_engine_service_comm(tutti_engine *e, int64_t begin_ns);

/* ---- the run's codec ---- */

/* Within declare(): the codec's spec; "": there is none. checked: do messages carry checksums? */
const char *tutti_engine_codec(const tutti_engine *e, bool *checked);
/* Within declare(): models go through the codec, and gradients are sent uncompressed. */
void tutti_engine_take_codec(tutti_engine *e);
/* The checksum of a message that worker `from` makes of v (checksum.c). check: `in` is the
   received checksum; TUTTI_ERR_CORRUPT names tensor and sender. */
enum { TUTTI_CHECKSUM_BYTES = 8 };
void tutti_checksum_put(const tutti_codec *c, const tutti_view *v, int from, const uint8_t *message,
                        size_t bytes, uint8_t *out);
tutti_status tutti_checksum_check(const tutti_codec *c, const tutti_view *v, int from,
                                  const uint8_t *message, size_t bytes, const uint8_t *in,
                                  tutti_error *err);
/* A non-finite number. decoded: it is not this worker's own but in the mean as the codec decoded
   it: another worker's, or an overflow in the codec. */
typedef struct tutti_engine_bad {
    bool found, decoded;
    int tensor;
    size_t element;
    float value;
} tutti_engine_bad;
/* Finds the first non-finite number of x, a vector of the flat space, in `tensors` tensors from
   `first` on. false: none. */
bool tutti_engine_find_bad(const tutti_engine *e, const float *x, int first, int tensors,
                           tutti_engine_bad *bad);

/* ---- rows of tables (rows.c) ---- */

/* Rows of g that may be non-zero. NULL: no table, or one whose rows are not known. */
const tutti_rows *tutti_engine_rows_known(const tutti_engine *e, int tensor);
/* This exchange has summed the table's gradient. With `anew` its known rows are reset to those
   added from here on. */
void tutti_engine_rows_sum(tutti_engine *e, int tensor, bool anew);
/* Adds known rows: n ids that are not known yet; ids NULL: n rows from `first` on. */
void tutti_engine_rows_add(tutti_engine *e, int tensor, const uint32_t *ids, size_t first,
                           size_t n);
/* Any row may be non-zero. */
void tutti_engine_rows_all(tutti_engine *e, int tensor);
/* Within declare(): x has every row at any time, and rows are not requested. */
void tutti_engine_rows_whole(tutti_engine *e);
/* Are this table's rows requested? */
bool tutti_engine_rows_asked(const tutti_engine *e, int tensor);
/* Sets whether the table is updated elsewhere: then updates of x skip it, and its rows are
   requested. Within declare() and resume(), or between steps. */
void tutti_engine_rows_away(tutti_engine *e, int tensor, bool away);
/* Scales a piece's gradient where it may be non-zero. */
void tutti_engine_scale_piece(tutti_engine *e, tutti_piece *p, float a);
/* The run's optimiser, as a spec. */
const char *tutti_engine_optimizer(const tutti_engine *e);
/* Within declare(): servers each update a part of the model by themselves. TUTTI_ERR_USAGE if
   that is impossible: with clip-norm, nonfinite=skip, loss-scale, or a client's optimiser. */
tutti_status tutti_engine_updates_elsewhere(tutti_engine *e, tutti_error *err);

/* ---- services: calls (service/calls.c) ---- */

/* A call in progress. It must not be moved meanwhile. */
typedef struct tutti_engine_call {
    tutti_request request, reply;
    tutti_request leave, left;           /* the worker's message to itself that ends the wait,
                                            when the worker closes */
    bool pending;
    bool notified;                       /* `leave` was sent */
    uint64_t ticket;
    struct tutti_engine_call *next;      /* the next of the engine's list */
} tutti_engine_call;
/* in_window: bytes of the request that are in this worker's window, where the service reads
   them. */
tutti_status tutti_engine_call_start(tutti_engine *e, tutti_engine_call *call, int index,
                                     int member, tutti_header *note, tutti_buffer request,
                                     size_t in_window, tutti_buffer reply, tutti_error *err);
/* note: set to the reply's header. */
tutti_status tutti_engine_call_end(tutti_engine *e, tutti_engine_call *call, tutti_header *note,
                                   tutti_error *err);
void tutti_engine_call_drop(tutti_engine *e, tutti_engine_call *call);
/* Makes several calls of a service at once and waits for all replies: tutti_rpc_call without
   counting the time. in_window: as above, for each; NULL: none. calls, each: n, the caller's
   memory. */
tutti_status tutti_engine_calls(tutti_engine *e, int index, int n, const int *members,
                                tutti_header *notes, const tutti_buffer *requests,
                                const size_t *in_window, const tutti_buffer *replies,
                                tutti_engine_call *calls, tutti_request **each, tutti_error *err);
/* Waits until all of n requests or replies of calls in progress have ended, as tutti_engine_calls
   does; `one` is one of the calls. TUTTI_CLOSED: this worker ends. Returns the first failure. */
tutti_status tutti_engine_calls_wait(tutti_engine *e, tutti_engine_call *one,
                                     tutti_request *const *wanted, int n, tutti_error *err);
/* Sends the same header to several members at once and waits for all replies, which carry
   nothing. A member that is excluded gives none, which is no failure. calls, each: n, the
   caller's memory. */
tutti_status tutti_engine_call_all(tutti_engine *e, int index, int n, const int *members,
                                   const tutti_header *note, tutti_engine_call *calls,
                                   tutti_request **each, tutti_error *err);
/* A request to a service that sends no reply and only calls tutti_engine_answered: quiescence
   counts it, and no thread waits for it. r: as for tutti_post_send; any thread; does not block. A
   member that is excluded: TUTTI_ERR_PEER, as for a call. */
tutti_status tutti_engine_tell(tutti_engine *e, tutti_request *r, int index, int member,
                               const tutti_header *note, tutti_buffer payload, tutti_error *err);
/* For services: waits until all n requests have ended, or this worker closes (TUTTI_CLOSED).
   Returns the first failure among them. */
tutti_status tutti_engine_wait_or_close(tutti_engine *e, tutti_request *const *wanted, int n,
                                        tutti_error *err);
/* For services: waits until one of n requests has ended, however it did, or until the deadline.
   TUTTI_CLOSED: this worker closes, or one of its services has failed, so a reply may never
   arrive. wanted: with space for one more. */
tutti_status tutti_engine_wait_any(tutti_engine *e, tutti_request **wanted, int n,
                                   int64_t deadline_ns, tutti_error *err);
/* Has a service failed? Then returns its status and error. */
tutti_status tutti_engine_services_look(tutti_engine *e, tutti_error *err);

/* ---- services: requests and answers (service/service.c, service/requests.c) ---- */

/* Within open(): this service gets a pending round whenever this worker has learnt of losses. */
void tutti_engine_service_receives_losses(tutti_engine *e, int index);
/* Has it pending rounds? */
bool tutti_engine_has_pending(tutti_engine *e, int index);
/* For a service, within a round of its own: waits until service `index` has no pending round and
   is in none, and the time has come. false: services are held, or end. */
bool tutti_engine_wait_idle(tutti_engine *e, int index, int64_t until_ns);
/* A service that serves requests and has a pending round gets it from tutti_engine_serve instead
   of a request. Is `note` that? Then there is no reply to send. */
bool tutti_engine_is_pending(const tutti_engine *e, const tutti_header *note);
/* tutti_rpc_receive of a service whose request queue is open. *in (may be NULL): the buffer of the
   request. It is the service's until it asks for the next request; with `keeps` until it answers
   this one. */
tutti_status tutti_engine_serve(tutti_engine *e, int index, tutti_header *note, void **in,
                                int64_t deadline_ns, tutti_error *err);
/* The request is about to be answered. Returns the service that took it. */
typedef struct tutti_engine_service tutti_engine_service;
tutti_engine_service *tutti_engine_answered(tutti_engine *e, const tutti_header *request);

/* A service's request queue: it receives requests and sends replies, many at a time. */
typedef struct tutti_request_queue tutti_request_queue;
enum { TUTTI_REQUESTS_MOST = 256 };      /* the most requests received, and replies sent, at a
                                            time */
typedef struct tutti_requests_setup {
    int rooms;                           /* number of request buffers; 0: one for each rank,
                                            without memory */
    const int *of;                       /* the rank that each buffer receives from; NULL: all
                                            receive from any rank */
    int copies;                          /* number of copies of payloads */
    void *in, *out;                      /* memory of the buffers and of the copies, in_bytes and
                                            out_bytes each: owned by the caller */
    size_t in_bytes, out_bytes;
    const size_t *bytes;                 /* the size of each buffer, contiguous, instead of
                                            in_bytes; then `of` must be given, and the buffers of
                                            one rank receive its requests in order, cyclically:
                                            the k-th has the size of the k-th request */
    bool stays;                          /* payloads do not change until they are received */
    bool keeps;                          /* a buffer keeps its request until that is answered, and
                                            the reply's payload is sent from there: copies are
                                            needed for tutti_requests_notify only */
    bool at_once;                        /* no reply is paced: there are few */
} tutti_requests_setup;
/* The request queue of that service. */
tutti_request_queue *tutti_request_queue_of(tutti_engine *e, int index);
tutti_status tutti_requests_open(tutti_request_queue *q, tutti_engine *e, int index,
                                 const tutti_requests_setup *setup, tutti_error *err);
/* Discards the estimates of the link. The queue need not be open. */
void tutti_requests_forget(tutti_request_queue *q);
/* Sends several replies with one payload. Does not wait until they are received, but blocks while
   no buffer is free; TUTTI_CLOSED: the end. in_window: for each, the bytes that are already in
   the caller's window instead of the payload; 0, or NULL for all: none. The service's thread. */
tutti_status tutti_requests_reply(tutti_request_queue *q, const tutti_header *requests,
                                  const tutti_header *answers, int n, tutti_buffer payload,
                                  const size_t *in_window, tutti_error *err);
/* Sends a request to a service through the queue; its reply carries nothing and is not waited
   for. *notified: false if the last request by this call is unanswered, or the member is lost.
   call: zeroed at first; its reply must be cancelled in the end. */
tutti_status tutti_requests_notify(tutti_request_queue *q, tutti_engine_call *call, int service,
                                   int member, const tutti_header *note, tutti_buffer payload,
                                   bool *notified, tutti_error *err);
#pragma GCC visibility pop
#endif
