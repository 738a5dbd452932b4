/* engine_facility.h: what the engine offers to the rooms that stand between it and the methods
   (gossip, server), besides what calls.h and steps.h offer to everybody. They see the engine
   through these functions only: what it keeps, and how, stays its own.

   A facility (method.h: tutti_facility_ops) is handed the method, and m->engine is the engine. */
#ifndef TUTTI_ENGINE_FACILITY_H
#define TUTTI_ENGINE_FACILITY_H
#include "tutti/codec.h"
#include "tutti/engine.h"
#include "tutti/method.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

/* ---- the run ---- */

/* Is that rank lost to this worker, in a run that goes on after losses? All need not have agreed on
   it yet. (tutti_engine_fault_tolerant of engine.h is known from open() on, and not yet in
   declare().) */
bool tutti_engine_misses(const tutti_engine *e, int rank);
/* How many threads the run asks the lane to have (--lane); 0: as the method likes; -1: none. */
int tutti_engine_lane(const tutti_engine *e);
/* The lowest worker that is left, as last agreed. */
int tutti_engine_first(const tutti_engine *e);
/* The run's algorithm of the workers' sums, for groups of all of them; NULL: chosen for each. */
const char *tutti_engine_collective(const tutti_engine *e);
/* May there be threads beside the client's (--lane)? */
bool tutti_engine_has_lanes(const tutti_engine *e);
/* Within declare(): something goes by how pieces are cut, so tutti_recut is refused. */
void tutti_engine_keep_pieces(tutti_engine *e);
/* Within declare(), once the method has said how: they are cut now, and m->layout has them. */
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);
/* May steps be left out (nonfinite=skip, loss scaling)? */
bool tutti_engine_may_skip(const tutti_engine *e);
/* From declare() on, once the method has said how pieces are cut: how many there may be. */
double tutti_engine_most_pieces(const tutti_engine *e);
/* Likewise: how many there will be, as long as nobody cuts them anew. *largest: elements of the
   largest that is no table whose rows are known. */
int tutti_engine_pieces(const tutti_engine *e, size_t *largest);
/* Whole gradients go to servers, which read g and write x where they are: both are windows then.
   It follows from the method's traits. */
static inline bool tutti_engine_pushes(const tutti_method *m)
{
    return (m->traits & TUTTI_PARAMETER_SERVERS) != 0 &&
           (m->ops->exchange == NULL || (m->traits & TUTTI_THROUGH_SERVERS) == 0);
}
/* Within declare(), where gradients may be late: what is told of it is of the whole run. */
void tutti_engine_declare_history(tutti_engine *e);
/* n: the worker's own x while the agreed model is in x; NULL: it is the same. Within final_model().
   */
float *tutti_engine_kept(tutti_engine *e);

/* Models put aside (engine.h): how many may be; 0: none. From declare() on. / How many points this
   worker's client has passed since the last drop. Client thread. / A service of a rank that only
   serves has put its part of point k aside. */
int tutti_engine_aside_room(const tutti_engine *e);
int tutti_engine_aside_passed(const tutti_engine *e);
void tutti_engine_aside_served(tutti_engine *e, int k);

/* ---- time (clock.c) ---- */

/* EXPOSED, unless the client is aside (OUTSIDE, REPORT) and stays so. Gives what it was. */
tutti_doing tutti_engine_expose(tutti_engine *e);
/* The client has communicated: counted and traced, unless it is aside or the clock stands. */
void tutti_engine_comm(tutti_engine *e, const char *what, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* What the client has waited for communication in this process, in ns. Client thread. */
int64_t tutti_engine_exposed_ns(const tutti_engine *e);
/* A service has communicated, from then until now. */
void tutti_engine_service_comm(tutti_engine *e, int64_t begin_ns);

/* ---- the run's codec ---- */

/* Within declare(): its spec; "": there is none. checked: do messages carry checksums? */
const char *tutti_engine_codec(const tutti_engine *e, bool *checked);
/* Within declare(): models go through it, and gradients as they are. */
void tutti_engine_take_codec(tutti_engine *e);
/* Of a message that worker `from` makes of v (checksum.c). check: `in` is what came in front of
   it; TUTTI_ERR_CORRUPT names tensor and sender. */
enum { TUTTI_CHECKSUM_BYTES = 8 };
void tutti_checksum_put(const tutti_codec *c, const tutti_view *v, int from, const uint8_t *message,
                        size_t bytes, uint8_t *out);
tutti_status tutti_checksum_check(const tutti_codec *c, const tutti_view *v, int from,
                                  const uint8_t *message, size_t bytes, const uint8_t *in,
                                  tutti_error *err);
/* A number that is not finite. decoded: not this worker's own, but the mean of all as the codec
   decoded it: another worker's, or an overflow in the codec. */
typedef struct tutti_engine_bad {
    bool found, decoded;
    int tensor;
    size_t element;
    float value;
} tutti_engine_bad;
/* x, of the flat space: the first of them in `tensors` tensors from `first` on. false: none. */
bool tutti_engine_find_bad(const tutti_engine *e, const float *x, int first, int tensors,
                           tutti_engine_bad *bad);

/* ---- rows of tables (rows.c) ---- */

/* Rows of g that may be other than 0. NULL: no table, or one whose rows are not known. */
const tutti_rows *tutti_engine_rows_known(const tutti_engine *e, int tensor);
/* This exchange has summed the table's gradient. anew: its known rows are those named from here. */
void tutti_engine_rows_sum(tutti_engine *e, int tensor, bool anew);
/* Behind those that are known: ids, n of them and none known yet; ids NULL: n from `first` on. */
void tutti_engine_rows_add(tutti_engine *e, int tensor, const uint32_t *ids, size_t first,
                           size_t n);
/* Any row may be other than 0. */
void tutti_engine_rows_all(tutti_engine *e, int tensor);
/* Within declare(): x has every row at any time, and none is asked for. */
void tutti_engine_rows_whole(tutti_engine *e);
/* Are this table's rows asked for? / It is updated elsewhere, or not any more: updates of x leave
   it alone, and its rows are asked for. Within declare() and resume(), or between steps. */
bool tutti_engine_rows_asked(const tutti_engine *e, int tensor);
void tutti_engine_rows_away(tutti_engine *e, int tensor, bool away);
/* Its gradient, as far as it may be other than 0. */
void tutti_engine_scale_piece(tutti_engine *e, tutti_piece *p, float a);
/* The run's optimiser, as a spec. */
const char *tutti_engine_optimizer(const tutti_engine *e);
/* Within declare(): servers update a part of the model, each by itself. TUTTI_ERR_USAGE where that
   cannot be: with clip-norm, nonfinite=skip, loss-scale, or an optimiser of the client's. */
tutti_status tutti_engine_updates_elsewhere(tutti_engine *e, tutti_error *err);

/* ---- services: calls (service/calls.c) ---- */

/* A call that has begun and not ended. Stays where it is meanwhile. */
typedef struct tutti_engine_call {
    tutti_request request, reply;
    tutti_request leave, left;           /* to and by itself, when the worker closes */
    bool pending;
    bool told;                           /* to leave */
    uint64_t ticket;
    struct tutti_engine_call *next;      /* of the engine's list */
} tutti_engine_call;
/* in_window: bytes of the request that stay in my window, where the service reads them. */
tutti_status tutti_engine_call_start(tutti_engine *e, tutti_engine_call *call, int index,
                                     int member, tutti_note *note, tutti_buffer request,
                                     size_t in_window, tutti_buffer reply, tutti_error *err);
/* note: becomes the reply's. */
tutti_status tutti_engine_call_end(tutti_engine *e, tutti_engine_call *call, tutti_note *note,
                                   tutti_error *err);
void tutti_engine_call_drop(tutti_engine *e, tutti_engine_call *call);
/* Several calls of a service at once, and all their answers: tutti_call without counting the time.
   in_window: as above, of each; NULL: none. calls, each: n, the caller's memory. */
tutti_status tutti_engine_calls(tutti_engine *e, int index, int n, const int *members,
                                tutti_note *notes, const tutti_buffer *requests,
                                const size_t *in_window, const tutti_buffer *replies,
                                tutti_engine_call *calls, tutti_request **each, tutti_error *err);
/* Of calls that have begun, `one` among them: until all of n requests or replies of theirs have
   ended, as tutti_engine_calls waits. TUTTI_CLOSED: this worker ends. The first failure. */
tutti_status tutti_engine_calls_wait(tutti_engine *e, tutti_engine_call *one,
                                     tutti_request *const *wanted, int n, tutti_error *err);
/* The same note to several members at once, and all their answers, which say nothing. A member that
   is left out gives none, and that is well. calls, each: n, the caller's memory. */
tutti_status tutti_engine_call_all(tutti_engine *e, int index, int n, const int *members,
                                   const tutti_note *note, tutti_engine_call *calls,
                                   tutti_request **each, tutti_error *err);
/* A request to a service that gives no answer, only tutti_engine_answered: quiet counts it, and
   nobody waits for it. r: as for tutti_post_send; any thread; does not block. A member that is left
   out: TUTTI_ERR_PEER, as of a call. */
tutti_status tutti_engine_tell(tutti_engine *e, tutti_request *r, int index, int member,
                               const tutti_note *note, tutti_buffer payload, tutti_error *err);
/* For services: until all of n have ended, or this worker closes (TUTTI_CLOSED). The first failure
   among them. */
tutti_status tutti_engine_wait_or_close(tutti_engine *e, tutti_request *const *wanted, int n,
                                        tutti_error *err);
/* For services: until one of n has ended, however it did, or it is that time. TUTTI_CLOSED: this
   worker closes, or one of its services has failed, so that an answer need not come. wanted: room
   for one more. */
tutti_status tutti_engine_wait_any(tutti_engine *e, tutti_request **wanted, int n,
                                   int64_t deadline_ns, tutti_error *err);
/* Has a service failed? Its sentence. */
tutti_status tutti_engine_services_look(tutti_engine *e, tutti_error *err);

/* ---- services: requests and answers (service/service.c, service/desk.c) ---- */

/* Within open(): this service is owed a round when this worker has learnt of losses. */
void tutti_engine_service_hears(tutti_engine *e, int index);
/* Is it owed rounds? */
bool tutti_engine_owes(tutti_engine *e, int index);
/* For a service, within a round of its own: until this other one is owed nothing and is in no
   round, and it is that time. false: services are held, or end. */
bool tutti_engine_wait_idle(tutti_engine *e, int index, int64_t until_ns);
/* A service that serves and is owed a round gets that from tutti_engine_serve in place of a
   request. Is it that? Then nobody is to be answered. */
bool tutti_engine_is_owed(const tutti_engine *e, const tutti_note *note);
/* tutti_serve of a service whose desk is open. *in (may be NULL): the room of the request, the
   service's until it asks for the next; with `keeps` until it answers that request. */
tutti_status tutti_engine_serve(tutti_engine *e, int index, tutti_note *note, void **in,
                                int64_t deadline_ns, tutti_error *err);
/* The request is about to be answered at the desk. Gives the service that took it. */
typedef struct tutti_engine_service tutti_engine_service;
tutti_engine_service *tutti_engine_answered(tutti_engine *e, const tutti_note *request);

/* A desk is where a service takes requests and answers them, many at a time. */
typedef struct tutti_engine_desk tutti_engine_desk;
enum { TUTTI_DESK_MOST = 256 };          /* requests that come, and answers that go, at a time */
typedef struct tutti_desk_setup {
    int rooms;                           /* of requests; 0: one for each rank, without memory */
    const int *of;                       /* rooms: from whom each takes its requests; NULL: all take
                                            from anybody */
    int copies;                          /* of what answers carry */
    void *in, *out;                      /* rooms x in_bytes, copies x out_bytes: the owner's */
    size_t in_bytes, out_bytes;
    const size_t *bytes;                 /* rooms: of each, one behind the other, in place of
                                            in_bytes; then `of` is given, and rooms that take from
                                            one rank take its requests in their order, again and
                                            again: the k-th has the size of the k-th request */
    bool stays;                          /* what answers carry is left as it is until taken */
    bool keeps;                          /* a room is its request's until that is answered, and
                                            what answers carry is sent from there: no copies but
                                            for tutti_desk_tell */
    bool at_once;                        /* no answer waits for its turn: there are few */
} tutti_desk_setup;
/* Of that service. */
tutti_engine_desk *tutti_engine_desk_of(tutti_engine *e, int index);
tutti_status tutti_desk_open(tutti_engine_desk *d, tutti_engine *e, int index,
                             const tutti_desk_setup *setup, tutti_error *err);
/* What was seen of the link. A desk that is not open is well, too. */
void tutti_desk_forget(tutti_engine_desk *d);
/* Several answers with one payload. Does not wait until they are taken; blocks while there is no
   room; TUTTI_CLOSED: the end. in_window: bytes of each that stand in the window of the worker that
   asked already, in place of the payload; 0, or NULL for all: none. The service's thread. */
tutti_status tutti_desk_answer(tutti_engine_desk *d, const tutti_note *requests,
                               const tutti_note *answers, int n, tutti_buffer payload,
                               const size_t *in_window, tutti_error *err);
/* The same of a request to a service, whose answer says nothing and is waited for by nobody. *told:
   false while the last one by this call is unanswered, or to a member that is lost. call: zeroed
   at first; its reply is to be cancelled in the end. */
tutti_status tutti_desk_tell(tutti_engine_desk *d, tutti_engine_call *call, int service, int member,
                             const tutti_note *note, tutti_buffer payload, bool *told,
                             tutti_error *err);
#pragma GCC visibility pop
#endif
