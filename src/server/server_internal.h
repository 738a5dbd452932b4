/* server_internal.h: what the files of src/server share: a facility of parameter servers, each of
   which keeps a shard of the values, sums or tables (tutti/method/server.h). server.c lists the
   files. */
#ifndef TUTTI_SERVER_INTERNAL_H
#define TUTTI_SERVER_INTERNAL_H
#include <stdatomic.h>

#include "slice.h"
#include "engine/facility.h"
#include "tutti/method/server.h"

/* State of a thread that calls several servers at once. The arrays have an entry per call. A window
   is memory that other processes of the host can read and write (tutti/comm.h).

     in_window       bytes of the request that stay in this worker's window, for the server to read
     back_in_window  bytes of the reply that the server writes there
     slice           the shard that the reply is about, if it comes through `back`; else count 0
     out, back       for shards with tables: buffers of requests and replies, in 4-byte words. They
                     grow to twice what was ever needed; _room: capacity, _words: in use */
typedef struct tutti_server_caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_header *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* of each call: rank and index of the server */
    size_t *in_window, *back_in_window;
    tutti_slice *slice;
    uint32_t *out;
    float *back;
    size_t out_room, back_room, out_words, back_words;
    int n;
    bool taken;                  /* a thread uses it; under tutti_server.monitor */
} tutti_server_caller;

/* Limits simultaneous sends to `width`. taken: the next ticket; over: sends that have ended. A send
   waits until its ticket is below over + width. */
typedef struct tutti_server_turns { int width; uint64_t taken, over; } tutti_server_turns;

typedef struct tutti_server_coded tutti_server_coded;
enum { COUNTS_MOST = 4 };

/* "servers:", "workers:" before a comment: the number of entries of the array. */
struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;
    tutti_server_sums *sums;     /* used instead of the method's rule; NULL: none */
    tutti_server_tables *tables; /* likewise, where servers have only tables. setup.pieces is set,
                                    too */
    tutti_server_coded *coded;   /* NULL: pieces do not go through a codec */
    int servers, index;          /* index: this rank's, or -1 */
    int *member;                 /* servers: ranks; ascending */
    size_t *before;              /* servers + 1: prefix sums of the servers' proportions. NULL:
                                    equal parts */
    size_t least;                /* the smallest part of a server that has one */
    int *owner;                  /* pieces: the server of each, from open() on; NULL: pieces are
                                    split over the servers */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    bool in_windows;             /* what workers send and receive may stay in their windows */

    /* this server's shard of x */
    size_t first, count;
    tutti_slice slice;           /* the same range, as slice.h has it */
    float *values;
    int64_t *version;            /* of the server's thread. Declared */
    float *read;                 /* workers x count, with setup.reads: the shard as each last
                                    received it; of the server's thread. Declared */
    uint8_t *marks;              /* one per row of the shard's tables: 1 if tutti_server_collect has
                                    added to it */
    float *zeros;                /* of the shard, for optimisers that need every row */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; /* declared counters: version,
                                                                         and the method's */
    int n_counts;

    float *snapshot;             /* this server's shard at the points (snapshots.c), capacity x
                                    count; NULL: no snapshots. Of the server's thread; at
                                    quiescence, of the client */
    int snapshot_due;            /* snapshots taken so far */

    /* buffers of the request queue */
    void *requests_in, *requests_out;
    size_t in_bytes, out_bytes;
    int rooms, copies;           /* requests that may wait at a time; payload copies of replies */
    float *wide;                 /* a request's numbers of another type, converted to floats */
    void *half[2], *half_out;    /* where floats are converted for the wire: what the client sends
                                    and receives, of all of x; what the server sends, of the
                                    shard */
    float *words;                /* the reply of a shard with tables */
    tutti_header *answer;        /* workers: for one answer to many */
    size_t *placed;              /* workers: bytes of the reply written to the worker's window */
    tutti_slice_summand *summand; /* workers: scratch of sums, like the next two */
    const float **from;          /* workers */
    float *no_row;               /* zeros, as many as the widest row has columns: an absent row */

    /* workers, as known to the server's thread */
    uint64_t *delay;             /* updates between the version that the worker had and the shard's,
                                    at its last request */
    bool *asks;                  /* the worker's request has no answer yet */
    bool *gone;                  /* lost, and the rule has been notified of it */
    double *seconds;             /* with setup.times, the time of each. Declared */
    int64_t *given_ns;           /* when the worker was sent the values that it has; 0: not since
                                    the services were started. While they are idle the client's
                                    thread uses it */
    tutti_engine_call *notices;  /* the last message sent unasked to each */
    int64_t wake_at_ns;          /* for setup.due */

    /* of the client */
    int64_t *got;                /* servers: version of each shard that this worker has */
    _Atomic int64_t begun_ns;    /* when this worker's client passed the hook `begin`; 0: not yet */
    tutti_monitor *monitor;      /* of `taken` and of `turns` */
    tutti_server_turns turns[2]; /* with setup.turns: for sends to servers with the least part; to
                                    others */
    tutti_server_caller *callers;
    int n_callers;
};

/* Kinds of requests, in addition to those of the engine's services.

     ROWS            rows of table b by their ids; without ids the server's whole part
     ROWS_TO_WINDOW  the same, written to the sender's x in its window
     STATE           of a table at servers the whole part of its values, or of an optimiser's slot
     */
enum { KIND_ROWS = -3, KIND_ROWS_TO_WINDOW = -4, KIND_STATE = -6 };
/* Flags in the kind of a request. FROM: the shard that is sent is in the sender's g. TO: the
   reply is to be written to the sender's x, or, for pieces, to its g. A reply that is in a window
   has the number of its bytes in note.ticket. KINDS: the mask of both flags. */
enum { FROM_WINDOW = 1u << 30, TO_WINDOW = 1u << 29, KINDS = FROM_WINDOW | TO_WINDOW };

/* In note.a of a request about values the bits from this one on have the number of snapshot points
   that its worker has passed; below is the version. */
enum { VERSION_BITS = 48 };

static inline bool tutti_server_is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

/* True if values are sent as they are in memory: float32 without a codec. Tables are not. */
static inline bool tutti_server_as_it_is(const tutti_server *s)
{
    return tutti_server_is_float(s) && s->coded == NULL;
}

/* n numbers of the type of the wire, from element `at` of `from` on. */
static inline tutti_buffer tutti_server_half(const tutti_server *s, void *from, size_t at, size_t n)
{
    return (tutti_buffer){ s->m->device, (char *)from + at * tutti_dtype_bytes(s->setup.wire), n,
                           s->setup.wire };
}

static inline tutti_request_queue *tutti_server_requests(const tutti_server *s)
{
    return tutti_request_queue_of(s->m->engine, s->setup.service);
}

/* ---- parts.c ---- */

/* Elements: shards begin at multiples of ALIGNMENT, with setup.even of EVEN. */
enum { TUTTI_SERVER_ALIGNMENT = 16, TUTTI_SERVER_EVEN = 4 };
/* place: determines the ranks that serve: s->member, s->index. weigh: determines the size of each
   part. */
void tutti_server_place(tutti_server *s);
tutti_status tutti_server_weigh(tutti_server *s, tutti_error *err);
/* Is server k's part larger than the smallest one? */
bool tutti_server_is_large(const tutti_server *s, int k);
/* The most elements that a server has of a range of `count`, without regard to alignment. */
size_t tutti_server_most(const tutti_server *s, size_t count);
/* Rails: pieces are sent to groups of servers in turn (setup.rails in tutti/method/server.h).
   rail: the rail by which a worker sends that piece; from setup.rails on: none; -1: there are no
   rails, and the piece goes to all servers. slot: the part of a range that goes by a rail. part_of:
   tutti_server_part of what goes by a rail; 0 for a server of another rail. */
int tutti_server_rail(const tutti_server *s, int worker, const tutti_piece *p);
size_t tutti_server_slot(const tutti_server *s, int rail, size_t first, size_t count,
                         size_t *slot_first);
size_t tutti_server_part_of(const tutti_server *s, int k, int rail, size_t first, size_t count,
                            size_t *part_first);
/* is_at: does that rank serve a shard? slice_lost: the error for the loss of that rank and its
   shard; why: the reason of the loss. */
bool tutti_server_is_at(const tutti_server *s, int rank);
tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err);

/* ---- assign.c: pieces that are not split ---- */

/* assign: within open(), once pieces are made. owner: the server of the piece that begins
   there. */
tutti_status tutti_server_assign(tutti_server *s, tutti_error *err);
int tutti_server_owner(const tutti_server *s, size_t first);
/* The largest ratio over the servers of the bytes that all pieces give it to its equal part. */
double tutti_server_imbalance(const tutti_server *s);

/* ---- calls.c ---- */

/* Called within opening and closing. false: no memory. */
bool tutti_server_callers_open(tutti_server *s);
void tutti_server_callers_close(tutti_server *s);
/* Converts n numbers to the type of the wire. first: their first element in x (SIZE_MAX: they are
   numbers of the method, not of x). 16 bits overflow to infinity: reported here, where the element
   is known. A gradient's number that is not finite itself is handled by the engine. */
tutti_status tutti_server_narrow(const tutti_server *s, float *values, void *to, size_t first,
                                 size_t n, tutti_error *err);

/* ---- coded.c ---- */

/* Within declare(), once parts are weighed. Does nothing unless setup.codec asks for it and the
   run has a codec. */
tutti_status tutti_server_coded_declare(tutti_server *s, tutti_plan *plan, tutti_error *err);
/* Called after the callers are open. */
tutti_status tutti_server_coded_open(tutti_server *s, tutti_error *err);
void tutti_server_coded_close(tutti_server_coded *c); /* NULL-safe */
size_t tutti_server_coded_most(const tutti_server_coded *c); /* bytes of a message, rounded up */
/* begin: a step begins on this worker, with m->lr. release: services are about to run; sets the
   rates that a loaded checkpoint lacks. */
void tutti_server_coded_begin(tutti_server_coded *c);
void tutti_server_coded_release(tutti_server_coded *c);
/* rate: the step's learning rate as sent in a request. set_rate: on the server's thread, stores it.
   */
int64_t tutti_server_coded_rate(const tutti_server_coded *c);
tutti_status tutti_server_coded_set_rate(tutti_server_coded *c, int piece, int64_t rate, int worker,
                                         tutti_error *err);
/* On the client's thread with index `caller`. send: encodes server's part of the piece as a
   message, and sets *reply to the buffer for the reply. came: decodes that reply to `into`. values,
   into: element 0 of the flat space. b: note.b of the request. */
tutti_status tutti_server_coded_send(tutti_server_coded *c, int piece, int server, int64_t b,
                                     const float *values, int caller, tutti_buffer *request,
                                     tutti_buffer *reply, tutti_error *err);
tutti_status tutti_server_coded_came(tutti_server_coded *c, int piece, int server, int64_t b,
                                     size_t bytes, int caller, float *into, tutti_error *err);
/* On the server's thread. receive: decodes a worker's message to floats. answer: encodes the sum as
   a message, valid until the next; the sum itself is unchanged. */
tutti_status tutti_server_coded_receive(tutti_server_coded *c, int piece, int64_t b, const void *in,
                                        size_t bytes, int worker, float *out, tutti_error *err);
tutti_status tutti_server_coded_answer(tutti_server_coded *c, int piece, int64_t b, float *sum,
                                       tutti_buffer *payload, tutti_error *err);
/* Bytes of the last answer, to one worker, about that many elements of that piece. */
size_t tutti_server_answered(const tutti_server *s, int piece, size_t count);

/* ---- sums.c: takes the place of a method's rule and of its `lost` ---- */

tutti_status tutti_server_sums_rule(tutti_server_sums *s, const tutti_server_request *r,
                                    tutti_error *err);
tutti_status tutti_server_sums_lost(tutti_server_sums *s, tutti_error *err);

/* ---- tables.c ---- */

/* This server's part of that table; NULL: none. */
float *tutti_server_table(const tutti_server *s, int tensor, size_t *first, size_t *count);
/* Handles a push of rows, or a KIND_STATE request. */
tutti_status tutti_server_tables_rule(tutti_server_tables *s, const tutti_header *note, void *in,
                                      tutti_error *err);

/* ---- calls.c, for tables.c ---- */

/* push_chunks: sends the rows of g in each server's part of the piece, in chunks; on the lane.
   fetch: requests KIND_STATE `b` from all servers, into `into` (element 0 of the flat space); on
   the client's thread. */
tutti_status tutti_server_push_chunks(tutti_server *s, const tutti_piece *p, int chunks,
                                      tutti_error *err);
tutti_status tutti_server_fetch(tutti_server *s, int tensor, int64_t b, float *into,
                                tutti_error *err);
/* Chunk j of n of a server's part of a table, in whole rows: the first ones get one more. */
size_t tutti_server_chunk(size_t cols, size_t first, size_t count, int j, int n,
                          size_t *chunk_first);
/* ---- figures.c: measurements of all workers ---- */

size_t tutti_server_figures_count(const tutti_method *m);
/* figures: tutti_server_figures_count numbers. */
tutti_status tutti_server_report_figures(const tutti_server_sums *s, tutti_method *m,
                                         double *figures, tutti_error *err);

/* ---- server.c ---- */

/* The most 4-byte words that a request or a reply can have. */
size_t tutti_server_room(const tutti_server *s);

/* ---- snapshots.c: snapshots ---- */

/* declare: within declare(), for servers that keep values. mark: the number of points that a
   worker sends with each request. */
void tutti_server_snapshot_declare(tutti_server *s, tutti_plan *plan);
int64_t tutti_server_snapshot_mark(const tutti_server *s);
/* On the server's thread: removes the mark from a request, and takes a snapshot of the shard if
   one is due. */
tutti_status tutti_server_snapshot_look(tutti_server *s, tutti_header *note, tutti_error *err);
/* Hooks of tutti_facility_ops. */
void tutti_server_snapshot_due(void *self, int points);
tutti_status tutti_server_snapshot_final_model(void *self, int k, tutti_error *err);
void tutti_server_snapshot_drop(void *self);

/* ---- saved.c ---- */

/* Sets `read` of every worker to the initial model. */
void tutti_server_read_first(tutti_server *s);
/* Hooks of tutti_facility_ops. */
int64_t tutti_server_slices(const void *self);
bool tutti_server_recuts(const void *self, const tutti_saved_run *run, const void *memory);
tutti_status tutti_server_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                               tutti_error *err);
#endif
