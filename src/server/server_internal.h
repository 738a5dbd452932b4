/* server_internal.h: what the files of this module share. server.c lists them. */
#ifndef TUTTI_SERVER_INTERNAL_H
#define TUTTI_SERVER_INTERNAL_H
#include <stdatomic.h>

#include "slice.h"
#include "tutti/server.h"

/* State of one caller of several calls at once: of each call, in the arrays, and of all.

     in_window       bytes that stay in this worker's window, for the server to read
     back_in_window  bytes that the server is to write there
     slice           the shard that an answer is about, if the answer comes through `back`; else
                     count 0
     out, back       of shards with tables, buffers of what is sent and received. They grow to
                     twice what was ever needed. */
typedef struct tutti_server_caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_note *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* the recipient of each */
    size_t *in_window, *back_in_window;
    tutti_slice *slice;
    uint32_t *out;
    float *back;
    size_t out_room, back_room, out_words, back_words;
    int n;
    bool taken;                  /* under the monitor */
} tutti_server_caller;

/* Limits simultaneous sends: width permits, `taken` in order; over: sends that have ended. */
typedef struct tutti_server_turns { int width; uint64_t taken, over; } tutti_server_turns;

typedef struct tutti_server_coded tutti_server_coded;
enum { COUNTS_MOST = 4 };

struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;
    tutti_server_sums *sums;     /* used instead of the method's rule; NULL: none */
    tutti_server_tables *tables; /* likewise, where servers have only tables. setup.pieces is set,
                                    too */
    tutti_server_coded *coded;   /* NULL: pieces do not go through a codec */
    int servers, index;          /* index: this rank's, or -1 */
    int *member;                 /* servers: ranks; ascending */
    size_t *before;              /* servers + 1: parts of the servers before each; the last: of
                                    all. NULL: equal parts */
    size_t least;                /* the smallest part of a server that has one */
    int *owner;                  /* pieces: the server of each, from open() on; NULL: they are
                                    split */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    bool in_windows;             /* what workers send and receive may stay in their windows */

    /* this server's shard of x */
    size_t first, count;
    tutti_slice slice;           /* the same */
    float *values;
    int64_t *version;            /* of the server's thread. Declared */
    float *read;                 /* workers x count, with setup.reads: the shard as each last
                                    received it; of the server's thread. Declared */
    uint8_t *marks;              /* one per row of the shard's tables: has tutti_server_collect
                                    added to it? */
    float *zeros;                /* of the shard, for optimisers that need every row */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; /* one per shard: version
                                                                         and the method's */
    int n_counts;

    float *snapshot;             /* this server's shard at the points (snapshots.c), capacity x
                                    count; NULL: no snapshots. Of the server's thread; at
                                    quiescence, of the client */
    int snapshot_due;            /* points so far */

    /* buffers of the request queue */
    void *requests_in, *requests_out;
    size_t in_bytes, out_bytes;
    int rooms, copies;
    float *wide;                 /* floats of what came in another type */
    void *half[2], *half_out;    /* where floats are converted for the wire: what the client sends
                                    and receives, of all of x; what the server sends, of the
                                    shard */
    float *words;                /* the answer, of shards with tables */
    tutti_note *answer;          /* workers: for one answer to many */
    size_t *placed;              /* workers: bytes of it that were written in each one's window */
    tutti_slice_summand *summand; /* workers: scratch of sums, like the next two */
    const float **from;          /* workers */
    float *no_row;               /* the widest row, of zeros */

    /* workers, as known to the server's thread */
    uint64_t *delay;             /* of the last request of each */
    bool *asks;                  /* the worker's request has no answer yet */
    bool *gone;                  /* lost, as the rule was notified */
    double *seconds;             /* with setup.times, the time of each. Declared */
    int64_t *given_ns;           /* when each was sent its present values; 0: not since services
                                    run. Also of the client while services are idle */
    tutti_engine_call *notices;  /* the last message sent unasked to each */
    int64_t wake_at_ns;          /* for setup.due */

    /* of the client */
    int64_t *got;                /* servers: version of each shard that this worker has */
    _Atomic int64_t begun_ns;    /* when all have continued; 0: this worker's client has not yet */
    tutti_monitor *monitor;      /* of `taken` and of `turns` */
    tutti_server_turns turns[2]; /* with setup.turns: for sends to servers with the least part; to
                                    others */
    tutti_server_caller *callers;
    int n_callers;
};

/* Kinds of requests, in addition to those of the engine's services: rows of table b, by ids, or
   without ids the server's whole part; the same, to be written to the sender's x; for a table at
   servers the whole part of its values or of a slot. */
enum { KIND_ROWS = -3, KIND_ROWS_TO_WINDOW = -4, KIND_STATE = -6 };
/* Flags in the kind of a request. FROM: the shard that is sent is in the sender's g. TO: the
   answer is to be written to the sender's x, or, for pieces, to its g. An answer that is in a
   window is marked by its bytes, in `ticket`. */
enum { FROM_WINDOW = 1u << 30, TO_WINDOW = 1u << 29, KINDS = FROM_WINDOW | TO_WINDOW };

/* In `a` of a request about values, above the version: how many points its worker has passed. */
enum { VERSION_BITS = 48 };

static inline bool tutti_server_is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

/* What is sent is a plain range of memory, except tables. */
static inline bool tutti_server_as_it_is(const tutti_server *s)
{
    return tutti_server_is_float(s) && s->coded == NULL;
}

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

/* Elements: shards begin at multiples of this, and with setup.even at multiples of the smaller. */
enum { TUTTI_SERVER_ALIGNMENT = 16, TUTTI_SERVER_EVEN = 4 };
/* place: determines the ranks that serve: s->member, s->index. weigh: determines the size of each
   part. */
void tutti_server_place(tutti_server *s);
tutti_status tutti_server_weigh(tutti_server *s, tutti_error *err);
/* Is its part larger than the least one? */
bool tutti_server_is_large(const tutti_server *s, int k);
/* The largest part of that many elements, apart from alignment. */
size_t tutti_server_most(const tutti_server *s, size_t count);
/* rail: the rail by which a worker sends that piece; from setup.rails on: none; -1: there are no
   rails, and the piece goes to all servers. slot: the rail's slot of a range. part_of:
   tutti_server_part of what comes by a rail: 0 for a server of another rail. */
int tutti_server_rail(const tutti_server *s, int worker, const tutti_piece *p);
size_t tutti_server_slot(const tutti_server *s, int rail, size_t first, size_t count,
                         size_t *slot_first);
size_t tutti_server_part_of(const tutti_server *s, int k, int rail, size_t first, size_t count,
                            size_t *part_first);
/* is_at: is there a shard at that rank? slice_lost: the error of its loss, with the reason. */
bool tutti_server_is_at(const tutti_server *s, int rank);
tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err);

/* ---- assign.c: pieces that are not split ---- */

/* assign: within open(), once pieces are made. owner: the server of the piece that begins
   there. */
tutti_status tutti_server_assign(tutti_server *s, tutti_error *err);
int tutti_server_owner(const tutti_server *s, size_t first);
/* The largest load of a server by all pieces, in multiples of its part of them. */
double tutti_server_imbalance(const tutti_server *s);

/* ---- calls.c ---- */

/* Called within opening and closing. false: no memory. */
bool tutti_server_callers_open(tutti_server *s);
void tutti_server_callers_close(tutti_server *s);
/* Converts n numbers to the type of the wire. They are x's from `first` on (SIZE_MAX: the
   method's own). 16 bits overflow to infinity: reported here, where the element is known. A
   gradient's number that is not finite itself is handled by the engine. */
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
/* begin: a step begins on this worker, with m->lr. release: services are about to run. */
void tutti_server_coded_begin(tutti_server_coded *c);
void tutti_server_coded_release(tutti_server_coded *c);
/* rate: the step's learning rate as sent in a request. told: passes it to the server's thread. */
int64_t tutti_server_coded_rate(const tutti_server_coded *c);
tutti_status tutti_server_coded_set_rate(tutti_server_coded *c, int piece, int64_t rate, int worker,
                                         tutti_error *err);
/* On a client's thread, of index `caller`. send: encodes its part of the piece as a message, and
   gives the buffer of the answer. came: decodes the answer to `into`. values, into: element 0 of
   the flat space. b: of the request. */
tutti_status tutti_server_coded_send(tutti_server_coded *c, int piece, int server, int64_t b,
                                     const float *values, int caller, tutti_buffer *request,
                                     tutti_buffer *reply, tutti_error *err);
tutti_status tutti_server_coded_came(tutti_server_coded *c, int piece, int server, int64_t b,
                                     size_t bytes, int caller, float *into, tutti_error *err);
/* On the server's thread. heard: decodes what a worker sent, to floats. answer: encodes the sum
   as a message, valid until the next; the sum itself is unchanged. */
tutti_status tutti_server_coded_receive(tutti_server_coded *c, int piece, int64_t b, const void *in,
                                        size_t bytes, int worker, float *out, tutti_error *err);
tutti_status tutti_server_coded_answer(tutti_server_coded *c, int piece, int64_t b, float *sum,
                                       tutti_buffer *payload, tutti_error *err);
/* Bytes of the last answer, to one worker, about that many elements of that piece. */
size_t tutti_server_answered(const tutti_server *s, int piece, size_t count);

/* ---- sums.c: used in place of the rule and `lost` of a method ---- */

tutti_status tutti_server_sums_rule(tutti_server_sums *s, const tutti_server_request *r,
                                    tutti_error *err);
tutti_status tutti_server_sums_lost(tutti_server_sums *s, tutti_error *err);

/* ---- tables.c ---- */

/* This server's part of that table; NULL: none. */
float *tutti_server_table(const tutti_server *s, int tensor, size_t *first, size_t *count);
/* A push, or KIND_STATE. */
tutti_status tutti_server_tables_rule(tutti_server_tables *s, const tutti_note *note, void *in,
                                      tutti_error *err);

/* ---- calls.c, for tables.c ---- */

/* push_chunks: on the lane: sends the rows of g in each server's part of the piece, in chunks.
   fetch: on the client's thread: KIND_STATE `b` of all servers, into `into` (from element 0 of
   the flat space on). */
tutti_status tutti_server_push_chunks(tutti_server *s, const tutti_piece *p, int chunks,
                                      tutti_error *err);
tutti_status tutti_server_fetch(tutti_server *s, int tensor, int64_t b, float *into,
                                tutti_error *err);
/* Chunk j of n of a server's part of a table, in whole rows: the first ones get one more. */
size_t tutti_server_chunk(size_t cols, size_t first, size_t count, int j, int n,
                          size_t *chunk_first);
/* ---- figures.c: figures of all workers; figures: tutti_server_figures_count of them ---- */

size_t tutti_server_figures_count(const tutti_method *m);
tutti_status tutti_server_report_figures(const tutti_server_sums *s, tutti_method *m,
                                         double *figures, tutti_error *err);

/* ---- server.c ---- */

/* The most words of a request or an answer. */
size_t tutti_server_room(const tutti_server *s);

/* ---- snapshots.c: snapshots ---- */

/* declare: within declare(), for servers that keep values. mark: the number of points that a
   worker sends with each request. */
void tutti_server_snapshot_declare(tutti_server *s, tutti_plan *plan);
int64_t tutti_server_snapshot_mark(const tutti_server *s);
/* On the server's thread: removes the mark from a request, and takes a snapshot of the shard if
   one is due. */
tutti_status tutti_server_snapshot_look(tutti_server *s, tutti_note *note, tutti_error *err);
/* Hooks of tutti_facility_ops. */
void tutti_server_snapshot_due(void *self, int points);
tutti_status tutti_server_snapshot_final_model(void *self, int k, tutti_error *err);
void tutti_server_snapshot_drop(void *self);

/* ---- saved.c ---- */

/* Sets what workers were sent to the model that all begin with. */
void tutti_server_read_first(tutti_server *s);
/* Hooks of tutti_facility_ops. */
int64_t tutti_server_slices(const void *self);
bool tutti_server_recuts(const void *self, const tutti_saved_run *run, const void *memory);
tutti_status tutti_server_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                               tutti_error *err);
#endif
