/* server_internal.h: the state of a facility of parameter servers (tutti/method/server.h), and
   what the files of src/server call in each other. Included by these files only; server.c lists
   them.

   Each server keeps a shard of the values, or sums, or tables. A rank may be a server, a worker,
   or both. "The server's thread" is the thread of the service that answers requests; "the client's
   thread" is the worker's. A window is memory of a worker that other ranks of the same host can
   read and write (tutti/comm.h). "Declared" memory is declared to the plan (base.h). */
#ifndef TUTTI_SERVER_INTERNAL_H
#define TUTTI_SERVER_INTERNAL_H
#include <stdatomic.h>

#include "slice.h"
#include "server.h"
#include "engine/facility.h"
#include "tutti/method/server.h"
#include "tables.h"

/* The calls that one thread makes to several servers at once. The arrays have an entry for each
   call: [n], with a capacity of one call for each server, or of TUTTI_SERVER_CHUNKS for each. */
typedef struct tutti_server_caller {
    tutti_engine_call *call;
    tutti_request **each;        /* scratch: the requests or replies that are waited for */
    tutti_header *note;          /* the request's header; then the reply's */
    tutti_buffer *request, *reply; /* payloads */
    int *member, *server;        /* rank, and index, of the server */
    size_t *in_window;           /* bytes of the request that stay in this worker's window, where
                                    the server reads them; else 0 */
    size_t *back_in_window;      /* bytes of the reply that the server writes to the window; else
                                    0 */
    tutti_slice *slice;          /* the shard that the reply is about, if the reply is in `back`;
                                    else its count is 0 */
    uint32_t *out;               /* [out_words], capacity out_room: requests about shards with
                                    tables, in 4-byte words (slice.h) */
    float *back;                 /* [back_words], capacity back_room: their replies */
    size_t out_room, back_room, out_words, back_words; /* capacities grow to twice what was
                                                          needed */
    int n;                       /* calls */
    bool taken;                  /* a thread uses this caller; under tutti_server.monitor */
} tutti_server_caller;

/* Limits the number of sends in progress to `width` (setup.turns). A send takes the number
   `taken`, which is then incremented, and waits until it is below over + width. */
typedef struct tutti_server_turns {
    int width;
    uint64_t taken;              /* sends that have asked so far */
    uint64_t over;               /* sends that have ended */
} tutti_server_turns;

typedef struct tutti_server_coded tutti_server_coded;
enum { COUNTS_MOST = 4 };        /* the most declared counters */

struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;    /* a copy; node and rails are at least 1, parts is NULL */
    tutti_server_sums *sums;     /* servers that sum pieces, in place of the method's rule; NULL:
                                    not */
    tutti_server_tables *tables; /* servers of tables only, likewise (setup.pieces is then set,
                                    too); NULL: not */
    tutti_server_coded *coded;   /* pieces through a codec; NULL: they are sent uncompressed */
    int servers;                 /* number of servers */
    int index;                   /* index of this rank's server; -1: this rank does not serve */
    int *member;                 /* [servers]: their ranks, ascending. With standbys member[0] is
                                    the first server: see tutti_server_rank */
    tutti_server_standby standby; /* standby.ranks 0: there is none */
    int *candidate;              /* [standby.ranks + 1]: the ranks that may serve, in this order */
    unsigned char *copied_note;  /* [note_bytes], declared: the note of a copy */
    float *copied;               /* [count], declared on standbys: its values */
    bool serves;                 /* this rank is the server. The server's thread */
    int in_step;                 /* the rank whose copy is that of this server; -1: none. The
                                    server's thread */
    atomic_bool whole;           /* this rank has the state of the last update it may know of */
    int called;                  /* the server of the client's last call; with standbys */
    tutti_header *early;         /* [workers]: requests that came before this rank serves */
    void **early_in;             /* [workers]: their payloads */
    int n_early;
    bool *fenced;                /* [standby.ranks + 1]: this candidate is lost to all others, too.
                                    The server's thread */
    int *others;                 /* [ranks], and so the next two: scratch of tutti_server_fence */
    tutti_engine_call *calls;
    tutti_request **each;
    size_t *before;              /* [servers + 1]: sums of the proportions (setup.parts) of the
                                    servers before each; NULL: equal parts */
    size_t least;                /* the smallest proportion that is not 0; 0: equal parts */
    int *owner;                  /* [pieces], from open() on: the server of each piece; NULL:
                                    pieces are split over the servers */
    size_t *part_of;             /* [members of everyone]: elements of x that each rank serves */
    bool in_windows;             /* what workers send and receive may stay in their windows */

    /* this server's shard of x; count 0: it has none */
    size_t first, count;         /* in the flat space */
    tutti_slice slice;           /* the same range (slice.h) */
    float *values;               /* [count], declared; NULL: servers keep no values */
    int64_t *version;            /* [1], declared: updates so far. The server's thread */
    float *read;                 /* [workers][count], declared, with setup.reads: the shard as each
                                    worker last received it. The server's thread */
    uint8_t *marks;              /* [rows of the shard's tables], declared, with setup.collects: 1
                                    if tutti_server_collect has added to the row */
    float *zeros;                /* [count], declared: 0 between updates; for optimisers that
                                    update every row */
    struct {
        const char *name;
        int64_t **slot;
    } counts[COUNTS_MOST];       /* [n_counts]: the declared counters: `version` and the
                                    method's */
    int n_counts;

    float *snapshot;             /* [capacity][count], declared: this shard at snapshot points
                                    (snapshots.c); NULL: no snapshots. The server's thread; while
                                    the run is quiescent, the client's */
    int snapshot_due;            /* snapshots taken since they were last dropped; likewise */

    /* memory of the request queue, declared */
    void *requests_in, *requests_out; /* n_buffers of in_bytes; n_copies of out_bytes */
    size_t in_bytes, out_bytes;
    int n_buffers;               /* requests that may be unanswered at a time */
    int n_copies;                /* copies of payloads, for tutti_requests_notify */
    float *wide;                 /* the numbers of one request, converted to floats; NULL: requests
                                    are floats */
    void *half[2];               /* [used] numbers of setup.wire each: what the client sends, and
                                    what it receives; NULL: setup.wire is float32 */
    void *half_out;              /* likewise what the server sends, for its shard */
    float *words;                /* the reply about a shard with tables */
    tutti_header *answer;        /* [workers]: scratch for replies to several requests */
    size_t *placed;              /* [workers], likewise: bytes of each reply that were written to
                                    the worker's window */
    tutti_slice_summand *summand; /* [workers]: scratch of sums of shards with tables */
    const float **from;          /* [workers]: likewise */
    float *no_row;               /* zeros, as many as the widest row of a table has columns: stands
                                    for a row that a worker has not sent */

    /* what the server's thread knows of the workers; [workers] each */
    uint64_t *delay;             /* at its last request: updates of the shard since the version
                                    that the worker had */
    bool *asks;                  /* its request is not answered yet */
    bool *gone;                  /* it is lost, and the rule was notified */
    double *seconds;             /* declared, with setup.times: its time (tutti_server_seconds) */
    int64_t *given_ns;           /* when it was sent the values that it has; 0: not since services
                                    were started. While services are idle the client's thread uses
                                    it */
    tutti_engine_call *notices;  /* the call of the last tutti_server_tell to it */
    int64_t wake_at_ns;          /* when setup.due is to be called; TUTTI_FOREVER: not */

    /* the client's */
    int64_t *got;                /* [servers], declared: the version of each shard that this worker
                                    has */
    _Atomic int64_t begun_ns;    /* when this worker's client passed the hook `begun`; 0: not
                                    yet */
    tutti_monitor *monitor;      /* mutex of the callers' `taken`, and of `turns` */
    tutti_server_turns turns[2]; /* sends to servers with the smallest part, and to the others */
    tutti_server_caller *callers; /* [n_callers]: one for each thread that may call: the client's,
                                     and
                                    those of the lane */
    int n_callers;
};

/* Kinds of requests that this module itself makes, in addition to the method's. b: index of the
   table. */
enum {
    KIND_ROWS = -3,              /* send rows of a table by their ids; without ids all that this
                                    server has of it */
    KIND_ROWS_TO_WINDOW = -4,    /* write them to the sender's x in its window */
    KIND_STATE = -6              /* send all that this server has of a table's values, or of a slot
                                    of the optimiser for it (tables.c) */
};
/* Flags in the kind of a request. */
enum {
    FROM_WINDOW = 1u << 30,      /* the shard that is sent is in the sender's g */
    TO_WINDOW = 1u << 29,        /* the reply is to be written to the sender's x, or for pieces to
                                    its g; `ticket` of the reply's header then has its bytes */
    KINDS = FROM_WINDOW | TO_WINDOW
};

/* In `a` of the header of a request about values: the lower VERSION_BITS bits are the version that
   the worker has of the shard; the bits above are the number of snapshot points that it has
   passed. */
enum { VERSION_BITS = 48 };

/* Returns whether numbers are sent as float32 (setup.wire). */
static inline bool tutti_server_is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

/* Returns whether numbers are sent as they are in memory: float32 without a codec. Tables never
   are. */
static inline bool tutti_server_as_it_is(const tutti_server *s)
{
    return tutti_server_is_float(s) && s->coded == NULL;
}

/* Returns a buffer of n numbers of the type setup.wire, from element `at` of `from` on. */
static inline tutti_buffer tutti_server_on_wire(const tutti_server *s, void *from, size_t at,
                                                size_t n)
{
    return (tutti_buffer){ s->m->device, (char *)from + at * tutti_dtype_bytes(s->setup.wire), n,
                           s->setup.wire };
}

/* Returns the request queue of this rank's server. */
static inline tutti_request_queue *tutti_server_requests(const tutti_server *s)
{
    return tutti_request_queue_of(s->m->engine, s->setup.service);
}

/* ---- parts.c: which ranks serve, and what part of a range each has ---- */

/* Parts of a range begin at multiples of ALIGNMENT elements; with setup.even of EVEN. */
enum { TUTTI_SERVER_ALIGNMENT = 16, TUTTI_SERVER_EVEN = 4 };
/* Chooses the ranks that serve: sets s->member and s->index. */
void tutti_server_place(tutti_server *s);
/* Sets the servers' proportions and the widths of s->turns, from the setup. */
tutti_status tutti_server_weigh(tutti_server *s, tutti_error *err);
/* Returns whether server k's part is larger than the smallest one. */
bool tutti_server_is_large(const tutti_server *s, int k);
/* Returns the most elements that a server has of a range of `count`, without regard to
   alignment. */
size_t tutti_server_most(const tutti_server *s, size_t count);

/* With nodes, a piece is split into slots, and slot u is sent by rail u, one worker of each node
   (setup.rails). */
/* Returns the rail by which the worker sends the piece; setup.rails or more: it sends nothing of
   it; -1: there are no nodes, or the piece is a table, so that it sends all of it. */
int tutti_server_rail(const tutti_server *s, int worker, const tutti_piece *p);
/* Returns the number of elements of the slot of that rail in a range, and sets *slot_first to the
   first one. */
size_t tutti_server_slot(const tutti_server *s, int rail, size_t first, size_t count,
                         size_t *slot_first);
/* Returns the number of elements that server k has of what that rail sends of a range, and sets
   *part_first to the first one; 0: it serves another rail. */
size_t tutti_server_part_of(const tutti_server *s, int k, int rail, size_t first, size_t count,
                            size_t *part_first);

/* Returns whether that rank serves a shard that is not empty. */
bool tutti_server_is_at(const tutti_server *s, int rank);
/* Makes and returns the error TUTTI_ERR_PEER of a run that cannot continue without that rank and
   its shard. why: why the rank is lost; it may be err->text. */
tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err);

/* ---- standby.c: ranks that take the place of a server that is lost ---- */

/* Requests between servers and other ranks' services. COPY: a standby gets a copy; FENCE: b is a
   rank that is lost to the sender. */
enum { KIND_COPY = -7, KIND_FENCE = -8 };
/* Within declare(): sets s->candidate. TUTTI_ERR_USAGE: too many. */
tutti_status tutti_server_standby_place(tutti_server *s, tutti_error *err);
void tutti_server_standby_declare(tutti_server *s, tutti_plan *plan);
/* Within open(). false: no memory. */
bool tutti_server_standby_open(tutti_server *s);
/* Returns the rank of server k, as far as this rank knows. Any thread. */
int tutti_server_rank(const tutti_server *s, int k);
/* Returns whether that rank may serve, and is not the only one left that may. */
bool tutti_server_goes_on_without(const tutti_server *s, int rank);
/* The facility's hook `without`, for servers with standbys. */
tutti_status tutti_server_standby_without(const tutti_server *s, int rank, const char *why,
                                          tutti_error *err);
/* On the server's thread: takes the place of servers that are lost, or a new standby. */
tutti_status tutti_server_standby_lost(tutti_server *s, tutti_error *err);
/* On the server's thread: a worker has asked this rank, to which those before it are not lost. */
void tutti_server_standby_called(const tutti_server *s, int worker);
/* On the server's thread: a rank that is lost to a server is lost to this one as well. */
tutti_status tutti_server_take_fence(tutti_server *s, const tutti_header *note, tutti_error *err);
/* On the server's thread: receives a copy. */
tutti_status tutti_server_take_copy(tutti_server *s, const tutti_header *note, tutti_error *err);

/* ---- assign.c: pieces that are not split ---- */

/* With setup.undivided: assigns each piece to a server, once pieces are made. Else does
   nothing. */
tutti_status tutti_server_assign(tutti_server *s, tutti_error *err);
/* Returns the server of the piece that begins at element `first`. */
int tutti_server_owner(const tutti_server *s, size_t first);
/* Returns the largest ratio, over the servers, of the elements that all pieces give a server to
   its proportion of them. */
double tutti_server_imbalance(const tutti_server *s);

/* ---- calls.c ---- */

/* Allocates the callers. false: no memory. */
bool tutti_server_callers_open(tutti_server *s);
void tutti_server_callers_close(tutti_server *s);
/* Converts values[n] to the type setup.wire. first: the element of x that values[0] is, for an
   error message; SIZE_MAX: they are no elements of x. TUTTI_ERR_NUMBER: a finite number becomes
   infinite in that type, or, unless setup.pieces, a number is not finite. (The engine checks
   gradients.) */
tutti_status tutti_server_narrow(const tutti_server *s, float *values, void *to, size_t first,
                                 size_t n, tutti_error *err);

/* ---- coded.c: pieces through a codec. A part is what one server has of one piece ---- */

/* Within declare(), once parts are known: sets s->coded, if setup.codec asks for it and the run
   has a codec. Else does nothing. TUTTI_ERR_USAGE: a codec that cannot be used. */
tutti_status tutti_server_coded_declare(tutti_server *s, tutti_plan *plan, tutti_error *err);
/* Within open(), once the callers are open. */
tutti_status tutti_server_coded_open(tutti_server *s, tutti_error *err);
void tutti_server_coded_close(tutti_server_coded *c); /* accepts NULL */
/* Returns the most bytes of a message, rounded up to an alignment. */
size_t tutti_server_coded_most(const tutti_server_coded *c);
/* A step begins on this worker: takes its learning rate, m->lr, by which residuals are scaled. */
void tutti_server_coded_begin(tutti_server_coded *c);
/* Services are about to run: sets the learning rates that a loaded checkpoint lacks. */
void tutti_server_coded_release(tutti_server_coded *c);
/* Returns the step's learning rate in the form in which `a` of a request's header has it. */
int64_t tutti_server_coded_rate(const tutti_server_coded *c);
/* On the server's thread: stores the learning rate that a request about the piece had. */
tutti_status tutti_server_coded_set_rate(tutti_server_coded *c, int piece, int64_t rate, int worker,
                                         tutti_error *err);
/* A message about a piece. peer: index of the server, or, on the server, of the worker. b: as in
   the request's header. caller: index of the caller in s->callers, whose thread calls; n_callers:
   the server's thread. */
typedef struct tutti_server_coded_at {
    int piece, peer;
    int64_t b;
    int caller;
} tutti_server_coded_at;
/* Encodes the server's part of the piece, from `values`, as the payload *request, and sets *reply
   to the memory for the reply. values: element 0 of the flat space. */
tutti_status tutti_server_coded_send(tutti_server_coded *c, const tutti_server_coded_at *at,
                                     const float *values, tutti_buffer *request,
                                     tutti_buffer *reply, tutti_error *err);
/* Decodes that reply, of `bytes` bytes, to `into`, element 0 of the flat space. */
tutti_status tutti_server_coded_came(tutti_server_coded *c, const tutti_server_coded_at *at,
                                     size_t bytes, float *into, tutti_error *err);
/* On the server's thread: decodes a worker's message of this server's part of the piece to
   `out`. */
tutti_status tutti_server_coded_receive(tutti_server_coded *c, const tutti_server_coded_at *at,
                                        const void *in, size_t bytes, float *out, tutti_error *err);
/* On the server's thread: encodes the sum of this server's part as *payload, which is valid until
   the next call. `sum` is unchanged. */
tutti_status tutti_server_coded_answer(tutti_server_coded *c, int piece, int64_t b, float *sum,
                                       tutti_buffer *payload, tutti_error *err);
/* Returns the bytes that the last answer about `count` elements of the piece had, to one worker;
   with a codec or without. */
size_t tutti_server_answered(const tutti_server *s, int piece, size_t count);

/* ---- sums.c: servers that sum pieces. They take the place of the method's rule and of its
   setup.lost ---- */

tutti_status tutti_server_sums_rule(tutti_server_sums *s, const tutti_server_request *r,
                                    tutti_error *err);
tutti_status tutti_server_sums_lost(tutti_server_sums *s, tutti_error *err);

/* ---- tables.c: servers of tables ---- */

/* Returns the address of the first element that this server has of the table, and sets *first and
   *count to its elements in the flat space; NULL: it has none. */
float *tutti_server_table(const tutti_server *s, int tensor, size_t *first, size_t *count);
/* On the server's thread: handles a push of rows, or a request of KIND_STATE. in: its payload. */
tutti_status tutti_server_tables_rule(tutti_server_tables *s, const tutti_header *note, void *in,
                                      tutti_error *err);

/* ---- calls.c, for tables.c ---- */

/* Sends the rows of g that each server has of the piece, in `chunks` messages, and waits for all
   replies. On a thread of the lane. */
tutti_status tutti_server_push_chunks(tutti_server *s, const tutti_piece *p, int chunks,
                                      tutti_error *err);
/* Requests KIND_STATE with that b from all servers of the table, and writes the replies to `into`,
   element 0 of the flat space. Client thread. */
tutti_status tutti_server_fetch(tutti_server *s, int tensor, int64_t b, float *into,
                                tutti_error *err);
/* Returns the elements of chunk j of n of the elements [first, first + count) of a table with
   `cols` columns, which are whole rows, and sets *chunk_first. The first chunks have one row more
   if n does not divide the rows. */
size_t tutti_server_chunk(size_t cols, size_t first, size_t count, int j, int n,
                          size_t *chunk_first);

/* ---- figures.c: measurements of all workers ---- */

/* Returns the length of the array `figures` below. */
size_t tutti_server_figures_count(const tutti_method *m);
/* Within final_model(): gathers the measurements of servers and workers, and records them as
   figures of the run. figures: scratch. Collective over the workers. */
tutti_status tutti_server_report_figures(const tutti_server_sums *s, tutti_method *m,
                                         double *figures, tutti_error *err);

/* ---- server.c ---- */

/* Returns the most 4-byte words that the payload of a request or of a reply can have. */
size_t tutti_server_words_most(const tutti_server *s);

/* ---- snapshots.c: snapshots of the model ---- */

/* Within declare(), for servers that keep values: declares s->snapshot. */
void tutti_server_snapshot_declare(tutti_server *s, tutti_plan *plan);
/* Returns the bits above VERSION_BITS of `a` of a request: how many points this worker has
   passed. */
int64_t tutti_server_snapshot_mark(const tutti_server *s);
/* On the server's thread: removes these bits from the header of a request, and takes the snapshots
   that are due before the request is handled. */
tutti_status tutti_server_snapshot_look(tutti_server *s, tutti_header *note, tutti_error *err);
/* The facility's hooks of these names (engine/facility.h). */
void tutti_server_snapshot_due(void *self, int points);
tutti_status tutti_server_snapshot_final_model(void *self, int k, tutti_error *err);
void tutti_server_snapshot_drop(void *self);

/* ---- saved.c: checkpoints ---- */

/* Sets s->read of every worker to the initial values, as if each had received them. */
void tutti_server_read_first(tutti_server *s);
/* The facility's hooks of these names. */
int64_t tutti_server_slices(const void *self);
bool tutti_server_recuts(const void *self, const tutti_saved_run *run, const void *memory);
tutti_status tutti_server_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                               tutti_error *err);
#endif
