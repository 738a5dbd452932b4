/* engine_facility.h: what the engine offers to facilities (facility.h), in addition to method.h
   and steps.h, which are for all methods. Included by the modules between the engine and the
   methods (src/gossip, src/server) and by methods that have a facility of their own. They use the
   engine through these functions only: struct tutti_engine stays private. Implemented by the files
   of src/engine that the sections name.

   A facility is given the method; m->engine is the engine. Client thread unless noted. */
#ifndef TUTTI_ENGINE_FACILITY_H
#define TUTTI_ENGINE_FACILITY_H
#include "tutti/codec.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include "codec/codec.h"
#pragma GCC visibility push(default) /* for modules, not exported by the library:
                                        cmake/Install.cmake */

/* ---- the run (engine.c, declare.c, layout.c, members.c, finite.c, snapshots.c) ---- */

/* Returns whether `rank` is lost to this worker, in a run that continues after losses. The workers
   need not have agreed on it yet. Any thread. */
bool tutti_engine_misses(const tutti_engine *e, int rank);
/* Returns whether the run would continue after the loss of a rank. From declare() on. */
bool tutti_engine_continues(const tutti_engine *e);
/* Returns how many SLICE states this rank has declared, or, with `at`, sets *at to the memory of
   the k-th of them. Once they are allocated. Any thread. */
size_t tutti_engine_slices(const tutti_engine *e, size_t k, tutti_buffer *at);
/* Returns the option --lane: the number of threads of the lane; 0: the method decides; -1: no
   threads. */
int tutti_engine_lane(const tutti_engine *e);
/* Returns the lowest rank among the remaining workers, as last agreed. */
int tutti_engine_first(const tutti_engine *e);
/* Returns the run's algorithm for sums over all workers; NULL: each sum chooses. */
const char *tutti_engine_collective(const tutti_engine *e);
/* Returns whether --lane allows threads in addition to the client's. */
bool tutti_engine_has_lanes(const tutti_engine *e);
/* Within declare(): makes the engine refuse tutti_recut, because other state depends on how the
   flat space is split into pieces. */
void tutti_engine_keep_pieces(tutti_engine *e);
/* Within declare(), once m->piece_bytes and the like are set: splits the flat space into pieces,
   so that m->layout has them. */
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);
/* Returns whether a step may be skipped for a non-finite gradient (nonfinite=skip, loss scaling,
   or nonfinite=keep with a codec). Any thread. */
bool tutti_engine_may_skip(const tutti_engine *e);
/* Returns an upper bound of the number of pieces, whatever tutti_recut sets. From declare() on,
   once m->piece_bytes and the like are set. */
double tutti_engine_most_pieces(const tutti_engine *e);
/* Returns the number of pieces, until tutti_recut changes it. *largest: elements of the largest
   piece, without tables whose rows are known. From declare() on, likewise. */
int tutti_engine_pieces(const tutti_engine *e, size_t *largest);
/* Returns whether workers send whole gradients to servers that read g and write x in place. Then g
   and x are in shared windows. Derived from the method's traits. */
static inline bool tutti_engine_pushes(const tutti_method *m)
{
    return (m->traits & TUTTI_PARAMETER_SERVERS) != 0 &&
           (m->ops->exchange == NULL || (m->traits & TUTTI_THROUGH_SERVERS) == 0);
}
/* Within declare(), if gradients may be stale: declares the staleness metrics, so that they cover
   the whole run and not only this process. Does nothing if replicas are equal. */
void tutti_engine_declare_history(tutti_engine *e);
/* Within final_model(): returns this worker's own x [n] while x is being set to the agreed model;
   NULL: this worker has no model of its own. */
float *tutti_engine_kept(tutti_engine *e);

/* Returns the number of snapshots (tutti.h) that may exist at a time; 0: the run takes none. From
   declare() on. */
int tutti_engine_snapshot_capacity(const tutti_engine *e);
/* Returns how many snapshot points this worker's client has passed since the snapshots were last
   dropped. */
int tutti_engine_snapshots_passed(const tutti_engine *e);
/* On a rank that only serves: records that a service has stored its part of snapshot k. On a
   worker it does nothing. The service's thread. */
void tutti_engine_snapshot_served(tutti_engine *e, int k);

/* ---- time (clock.c, service/calls.c); times are of tutti_now_ns ---- */

/* Sets the client's activity to EXPOSED unless it is OUTSIDE or REPORT. Returns the activity
   before. */
tutti_doing tutti_engine_expose(tutti_engine *e);
/* Counts the interval as communication of the client, and records a trace event `what` (the
   pointer is kept). Does nothing while the activity is OUTSIDE or REPORT, or the clock is stopped.
   thread: 0: the client's; 1: another. */
void tutti_engine_comm(tutti_engine *e, const char *what, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* Returns how long the client of this process has waited for communication, in ns. */
int64_t tutti_engine_exposed_ns(const tutti_engine *e);
/* Counts the time from begin_ns until now as communication of a service. Any thread. */
void tutti_engine_service_comm(tutti_engine *e, int64_t begin_ns);

/* ---- the run's codec (engine.c, exchange/checksum.c, finite.c) ---- */

/* Within declare(): returns the spec of the run's codec; "": there is none. *checked: messages
   carry checksums. */
const char *tutti_engine_codec(const tutti_engine *e, bool *checked);
/* Within declare(): reserves the run's codec for models, so gradients are sent uncompressed. */
void tutti_engine_take_codec(tutti_engine *e);
enum { TUTTI_CHECKSUM_BYTES = 8 };
/* Writes to out[TUTTI_CHECKSUM_BYTES] the checksum of `message`, which worker `from` has encoded
   from the view v. Any thread. */
void tutti_checksum_put(const tutti_codec *c, const tutti_view *v, int from, const uint8_t *message,
                        size_t bytes, uint8_t *out);
/* Compares the received checksum in[TUTTI_CHECKSUM_BYTES] with that of the received message.
   TUTTI_ERR_CORRUPT, naming tensor and sender. Any thread. */
tutti_status tutti_checksum_check(const tutti_codec *c, const tutti_view *v, int from,
                                  const tutti_codec_message *m, const uint8_t *in,
                                  tutti_error *err);
/* A non-finite number of a vector of the flat space. */
typedef struct tutti_engine_bad {
    bool found;                          /* false: there is none; the other members are not set */
    bool decoded;                        /* it is in the mean as the codec decoded it, and not in
                                            this worker's own gradient: another worker's, or an
                                            overflow in the codec */
    int tensor;
    size_t element;                      /* index within the tensor */
    float value;
} tutti_engine_bad;
/* Finds the first non-finite number of x[n] in the `tensors` tensors from tensor `first` on.
   Returns bad->found. Any thread. */
bool tutti_engine_find_bad(const tutti_engine *e, const float *x, int first, int tensors,
                           tutti_engine_bad *bad);

/* ---- rows of tables (rows.c) ---- */

/* Returns the rows of g that may be non-zero (`all`: every row); NULL: the tensor is not a table,
   or the method does not have TUTTI_SPARSE_ROWS. */
const tutti_rows *tutti_engine_rows_known(const tutti_engine *e, int tensor);
/* Records that the exchange in progress sums this table's gradient by rows. With `anew` it also
   empties the list of known rows, to which tutti_engine_rows_add then adds. The thread of that
   exchange. */
void tutti_engine_rows_sum(tutti_engine *e, int tensor, bool anew);
/* Appends n rows to the known rows, without those that are known already: the rows `ids`, or, if
   ids is NULL, those from `first` on. The thread of that exchange. */
void tutti_engine_rows_add(tutti_engine *e, int tensor, const uint32_t *ids, size_t first,
                           size_t n);
/* Records that any row of the table's gradient may be non-zero. */
void tutti_engine_rows_all(tutti_engine *e, int tensor);
/* Within declare(): x has every row of every table at any time, so clients request none. */
void tutti_engine_rows_whole(tutti_engine *e);
/* Returns whether the client requests this table's rows before it reads them (rows_acquire). */
bool tutti_engine_rows_asked(const tutti_engine *e, int tensor);
/* Sets whether the table is updated elsewhere: then updates of x omit it, and its rows are
   requested. Within declare() and resume(), or between steps. */
void tutti_engine_rows_away(tutti_engine *e, int tensor, bool away);
/* Checks n ids of rows, 32-bit words: they ascend and are among the rows `valid` of the table.
   TUTTI_ERR_CORRUPT otherwise, as sent by `worker`. ids need not be aligned. */
tutti_status tutti_rows_check_sent(const tutti_tensor *t, tutti_range valid, const void *ids,
                                   size_t n, int worker, tutti_error *err);
/* Likewise for ids that the client has passed to `call`, with TUTTI_ERR_USAGE. */
tutti_status tutti_rows_check_passed(const tutti_tensor *t, const uint32_t *ids, size_t n,
                                     const char *call, tutti_error *err);
/* Multiplies p->g by a, where it may be non-zero. The thread that has the piece. */
void tutti_engine_scale_piece(tutti_engine *e, tutti_piece *p, float a);
/* Returns the spec of the run's optimiser. */
const char *tutti_engine_optimizer(const tutti_engine *e);
/* Within declare(): states that servers each update a part of the model by themselves.
   TUTTI_ERR_USAGE if that is impossible: with clip-norm, nonfinite=skip, loss-scale, or a client's
   optimiser. */
tutti_status tutti_engine_updates_elsewhere(tutti_engine *e, tutti_error *err);

/* ---- services: calls (service/calls.c); any thread ----

   Parameters of all of them. index: of the service, in the method's table. member: rank that
   serves the request. note: the request's header (kind, a, b). The status is TUTTI_ERR_PEER if the
   member is lost or its service has failed. */

/* A call in progress, in the caller's memory, which must not move until the call has ended. Zero
   it before its first use. */
typedef struct tutti_engine_call {
    tutti_request request, reply;
    tutti_request leave;                 /* send of a message of this worker to itself, by which
                                            the wait for the call ends early */
    tutti_request left;                  /* its receive */
    bool pending;                        /* started and not yet ended */
    bool notified;                       /* `leave` was sent */
    uint64_t ticket;                     /* matches request and reply; unique in the run */
    struct tutti_engine_call *next;      /* the next of services.calls */
} tutti_engine_call;
/* Posts the request and the receive of its reply. in_window: bytes of the request that are in this
   worker's shared window, where the service reads them; they count as sent. note->ticket is set.
   Does not block. */
tutti_status tutti_engine_call_start(tutti_engine *e, tutti_engine_call *call, int index,
                                     int member, tutti_header *note, tutti_buffer request,
                                     size_t in_window, tutti_buffer reply, tutti_error *err);
/* Waits until the call has ended, however long, and sets *note to the reply's header. */
tutti_status tutti_engine_call_end(tutti_engine *e, tutti_engine_call *call, tutti_header *note,
                                   tutti_error *err);
/* Cancels a pending call; else does nothing. */
void tutti_engine_call_drop(tutti_engine *e, tutti_engine_call *call);
/* Calls the service on n members at once and waits for all replies, as n tutti_rpc_call do, but
   does not count the time. members, notes, requests, replies: [n]. in_window: [n], as above; NULL:
   none. calls, each: [n], scratch. TUTTI_CLOSED: this worker ends, or one of its services has
   failed. After a failure no call is pending. */
tutti_status tutti_engine_calls(tutti_engine *e, int index, int n, const int *members,
                                tutti_header *notes, const tutti_buffer *requests,
                                const size_t *in_window, const tutti_buffer *replies,
                                tutti_engine_call *calls, tutti_request **each, tutti_error *err);
/* Waits until all n requests `wanted`, which are requests or replies of calls in progress, have
   ended. one: any of these calls. Returns the first failure, which ends the wait. TUTTI_CLOSED: as
   for tutti_engine_calls. */
tutti_status tutti_engine_calls_wait(tutti_engine *e, tutti_engine_call *one,
                                     tutti_request *const *wanted, int n, tutti_error *err);
/* Sends one header to n members at once and waits for all replies, which carry no payload. The run
   may continue without a lost member: its missing reply is no failure. calls, each: [n],
   scratch. */
tutti_status tutti_engine_call_all(tutti_engine *e, int index, int n, const int *members,
                                   const tutti_header *note, tutti_engine_call *calls,
                                   tutti_request **each, tutti_error *err);
/* Posts a request that has no reply: the service only calls tutti_engine_answered. Quiescence
   counts the request, and no thread waits for it. r: as for tutti_post_send. Does not block. */
tutti_status tutti_engine_tell(tutti_engine *e, tutti_request *r, int index, int member,
                               const tutti_header *note, tutti_buffer payload, tutti_error *err);
/* tutti_post_send that counts the message, if `to` is another rank, as one of this worker's
   services. in_window: bytes moved through shared memory instead of the payload. */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port,
                               const tutti_header *note, tutti_buffer payload, size_t in_window,
                               tutti_error *err);
/* For services: waits until all n requests have ended. Returns the first failure among them;
   TUTTI_CLOSED, without waiting further: this worker closes. */
tutti_status tutti_engine_wait_or_close(tutti_engine *e, tutti_request *const *wanted, int n,
                                        tutti_error *err);
/* For services: waits until one of n requests has ended, with any status, or until deadline_ns;
   TUTTI_OK in both cases. TUTTI_CLOSED: this worker closes, or one of its services has failed, so
   a reply may never arrive. wanted: [n + 1]; the last entry is scratch. */
tutti_status tutti_engine_wait_any(tutti_engine *e, tutti_request **wanted, int n,
                                   int64_t deadline_ns, tutti_error *err);
/* Returns the status and the error of the first service of this worker that has failed; TUTTI_OK:
   none has. Client thread. */
tutti_status tutti_engine_check_services(tutti_engine *e, tutti_error *err);

/* ---- services: requests and answers (service/service.c, service/requests.c) ---- */

/* Within open(): makes a round of the service pending whenever this worker learns of losses. */
void tutti_engine_service_receives_losses(tutti_engine *e, int index);
/* Returns whether the service has a pending round. Any thread. */
bool tutti_engine_has_pending(tutti_engine *e, int index);
/* For another service, within a round of its own: waits until service `index` has no round pending
   or in progress and until_ns has passed. false: services are held, end, or have failed. */
bool tutti_engine_wait_idle(tutti_engine *e, int index, int64_t until_ns);
/* Returns whether `note`, which tutti_engine_serve has set, stands for a pending round instead of
   a request. There is then no reply to send. */
bool tutti_engine_is_pending(const tutti_engine *e, const tutti_header *note);
/* tutti_rpc_receive for a service whose request queue is open; it also returns pending rounds. *in
   (in may be NULL): the buffer with the request's payload; NULL: none. The buffer is the service's
   until it asks for the next request; with keep_until_answered until it answers this one. */
tutti_status tutti_engine_serve(tutti_engine *e, int index, tutti_header *note, void **in,
                                int64_t deadline_ns, tutti_error *err);
typedef struct tutti_engine_service tutti_engine_service;
/* Records that the request is about to be answered. Returns the service that took it; NULL: none
   did, or it was answered before. */
tutti_engine_service *tutti_engine_answered(tutti_engine *e, const tutti_header *request);

/* A service's request queue (requests.c): it receives many requests and sends many replies at a
   time. Only the service's thread uses it unless noted. */
typedef struct tutti_request_queue tutti_request_queue;
enum { TUTTI_REQUESTS_MOST = 256 };      /* the default number of buffers is at most this */
/* How to open a queue. Zero means: a buffer for each rank, of 0 bytes, and no copies. */
typedef struct tutti_requests_setup {
    int buffers;                         /* number of request buffers; 0: one for each rank, at
                                            most TUTTI_REQUESTS_MOST */
    const int *sources;                  /* [buffers]: the rank whose requests each accepts; NULL:
                                            all accept those of any rank */
    int copies;                          /* number of copies of payloads that replies may be sent
                                            from */
    void *in, *out;                      /* memory of the buffers, and of the copies; the caller's,
                                            until the queue is closed */
    size_t in_bytes, out_bytes;          /* bytes of one buffer, and of one copy */
    const size_t *bytes;                 /* [buffers]: their sizes, in place of in_bytes; they are
                                            contiguous in `in`. Then `sources` must be given: the
                                            buffers of one rank receive its requests in the order
                                            of the buffers, again and again, so the k-th must have
                                            the size of the k-th request. NULL: in_bytes */
    bool stable;                         /* the service does not change a payload until it is
                                            received, so payloads are not copied */
    bool keep_until_answered;            /* a buffer keeps its request until that is answered, and
                                            the reply's payload is sent from there. Copies are then
                                            needed for tutti_requests_notify only */
    bool at_once;                        /* replies are not paced: there are few */
} tutti_requests_setup;
/* Returns the queue of that service, open or not. */
tutti_request_queue *tutti_request_queue_of(tutti_engine *e, int index);
/* Opens the queue of service `index`. *setup is copied; its arrays need not outlive the call. */
tutti_status tutti_requests_open(tutti_request_queue *q, tutti_engine *e, int index,
                                 const tutti_requests_setup *setup, tutti_error *err);
/* Discards the estimates of the link's rate, by which replies are paced. Does nothing if the queue
   is not open. Any thread. */
void tutti_requests_forget(tutti_request_queue *q);
/* Sends replies with the headers `answers` and one payload to n requests. Does not wait until they
   are received, but blocks while no memory or no slot is free. in_window: [n], the bytes that are
   in the caller's shared window instead of the payload; 0: none; NULL: none for all. TUTTI_CLOSED:
   this worker closes. */
tutti_status tutti_requests_reply(tutti_request_queue *q, const tutti_header *requests,
                                  const tutti_header *answers, int n, tutti_buffer payload,
                                  const size_t *in_window, tutti_error *err);
/* Sends a request to service `service` of a member through the queue, and does not wait for its
   reply, which carries no payload. *notified: false if `call`'s last request is still unanswered
   or the member is lost; then nothing is sent. call: zero it before the first use; cancel its
   reply in the end. */
tutti_status tutti_requests_notify(tutti_request_queue *q, tutti_engine_call *call, int service,
                                   int member, const tutti_header *note, tutti_buffer payload,
                                   bool *notified, tutti_error *err);
#pragma GCC visibility pop
#endif
