/* server_internal.h: what the files of this room share. server.c says which they are. */
#ifndef TUTTI_SERVER_INTERNAL_H
#define TUTTI_SERVER_INTERNAL_H
#include <stdatomic.h>

#include "slice.h"
#include "tutti/server.h"

/* What one caller of several calls at once needs: of each call, in the arrays, and of all.

   in_window, back_in_window: bytes that stay in my window, for the server to read; that it is to
   write there.
   slice: what an answer is about, where that comes by way of `back`; else count 0.
   out, back: of slices with tables, what is sent and what comes. They grow to twice what was ever
   needed. */
typedef struct tutti_server_caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_note *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* which each goes to */
    size_t *in_window, *back_in_window;
    tutti_slice *slice;
    uint32_t *out;
    float *back;
    size_t out_room, back_room, out_words, back_words;
    int n;
    bool taken;                  /* under monitor */
} tutti_server_caller;

/* Of what is sent at a time: so many turns, taken in order; of them, which are over. */
typedef struct tutti_server_turns { int width; uint64_t taken, over; } tutti_server_turns;

typedef struct tutti_server_coded tutti_server_coded;
enum { COUNTS_MOST = 4 };

struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;
    tutti_server_sums *sums;     /* in place of the method's rule; NULL: none */
    tutti_server_tables *tables; /* likewise: only tables are here. setup.pieces is set, too */
    tutti_server_coded *coded;   /* pieces go through a codec; NULL: they do not */
    int servers, index;          /* index: mine, or -1 */
    int *member;                 /* servers: ranks; ascending */
    size_t *before;              /* servers + 1: parts of those before each; the last: of all.
                                    NULL: each has as much */
    size_t least;                /* the least part of those that have one */
    int *owner;                  /* pieces: who has each, from open() on; NULL: they are cut */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    bool in_windows;             /* what workers send and get may stay in their windows */

    /* my slice of x */
    size_t first, count;
    tutti_slice slice;           /* the same */
    float *values;
    int64_t *version;            /* server's thread. Declared */
    float *read;                 /* workers x count, with setup.reads: the slice as each was given
                                    it; server's thread. Declared */
    uint8_t *marks;              /* a row of the slice's tables each: has tutti_server_collect added
                                    to it? */
    float *zeros;                /* of the slice, for optimisers that want every row */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; /* one a slice: version and
                                                                         the method's */
    int n_counts;

    float *aside;                /* my slice at points (aside.c): room x count; NULL: no models are
                                    put aside. The server's thread; all quiet, the client's */
    int put_aside;               /* points so far */

    /* what comes and goes at the desk */
    void *desk_in, *desk_out;
    size_t in_bytes, out_bytes;
    int rooms, copies;
    float *wide;                 /* of what came as others, floats */
    void *half[2], *half_out;    /* where floats travel as others: what the client sends and gets,
                                    of all of x; what the server sends, of the slice */
    float *words;                /* what is answered, of slices with tables */
    tutti_note *answer;          /* workers: of one answer to many */
    size_t *placed;              /* workers: of it, bytes that were written in each one's window */
    tutti_slice_summand *summand; /* workers: scratch of sums, as are the next two */
    const float **from;          /* workers */
    float *no_row;               /* the widest row, of zeros */

    /* workers, as the server's thread knows them */
    uint64_t *delay;             /* of the last request of each */
    bool *asks;                  /* whose request has no answer yet */
    bool *gone;                  /* lost, as the rule has heard */
    double *seconds;             /* with setup.times, what each takes. Declared */
    int64_t *given_ns;           /* when each was given what it has; 0: not since services run. Also
                                    the client's while they rest */
    tutti_engine_call *told;     /* what each was told unasked */
    int64_t wake_at_ns;          /* for setup.due */

    /* the client's */
    int64_t *got;                /* servers: version of each slice that this worker has */
    _Atomic int64_t begun_ns;    /* since when all go on; 0: this worker's client does not yet */
    tutti_monitor *monitor;      /* of taken and turns */
    tutti_server_turns turns[2]; /* with setup.turns: to servers with the least part; to others */
    tutti_server_caller *callers;
    int n_callers;
};

/* Kinds of requests, besides those of the engine's services: rows of table b, by ids, or without
   them its whole part; the same, wanted in the sender's x; of a table at servers the whole part of
   its values or of a slot. */
enum { KIND_ROWS = -3, KIND_ROWS_TO_WINDOW = -4, KIND_STATE = -6 };
/* In the kind of a request. FROM: the slice of what is sent stands in the sender's g. TO: what is
   answered is wanted in the sender's x, or, of pieces, g. An answer that stands in a window says so
   by its bytes, in `ticket`. */
enum { FROM_WINDOW = 1u << 30, TO_WINDOW = 1u << 29, KINDS = FROM_WINDOW | TO_WINDOW };

/* In `a` of a request about values, above the version: how many points its worker has passed. */
enum { VERSION_BITS = 48 };

static inline bool tutti_server_is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

/* What is sent is what stands in memory, but for tables. */
static inline bool tutti_server_as_it_is(const tutti_server *s)
{
    return tutti_server_is_float(s) && s->coded == NULL;
}

static inline tutti_buffer tutti_server_half(const tutti_server *s, void *from, size_t at, size_t n)
{
    return (tutti_buffer){ s->m->device, (char *)from + at * tutti_dtype_bytes(s->setup.wire), n,
                           s->setup.wire };
}

static inline tutti_engine_desk *tutti_server_desk(const tutti_server *s)
{
    return tutti_engine_desk_of(s->m->engine, s->setup.service);
}

/* ---- parts.c ---- */

/* Elements: slices begin at multiples, and with setup.even at those of fewer. */
enum { TUTTI_SERVER_ALIGNMENT = 16, TUTTI_SERVER_EVEN = 4 };
/* Which ranks serve: s->member, s->index. / How much each has. */
void tutti_server_place(tutti_server *s);
tutti_status tutti_server_weigh(tutti_server *s, tutti_error *err);
/* Has it more than the server with the least part? */
bool tutti_server_is_large(const tutti_server *s, int k);
/* The largest part of so many elements, but for where cuts fall. */
size_t tutti_server_most(const tutti_server *s, size_t count);
/* The rail by which a worker sends that piece: from setup.rails on, by none; -1: there are no
   rails, and the piece goes to all servers. / Its slot of a range. / tutti_server_part of what
   comes by a rail: 0 of a server of another rail. */
int tutti_server_rail(const tutti_server *s, int worker, const tutti_piece *p);
size_t tutti_server_slot(const tutti_server *s, int rail, size_t first, size_t count,
                         size_t *slot_first);
size_t tutti_server_part_of(const tutti_server *s, int k, int rail, size_t first, size_t count,
                            size_t *part_first);
/* Is a slice at that rank? Its loss then, in a sentence, with why it is lost. */
bool tutti_server_is_at(const tutti_server *s, int rank);
tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err);

/* ---- assign.c: pieces that are not cut ---- */

/* Within open(), once pieces are cut. / Of the piece that begins there. */
tutti_status tutti_server_assign(tutti_server *s, tutti_error *err);
int tutti_server_owner(const tutti_server *s, size_t first);
/* The most that a server has of all pieces, in multiples of its part of them. */
double tutti_server_imbalance(const tutti_server *s);

/* ---- calls.c ---- */

/* Of opening and closing. false: no memory. */
bool tutti_server_callers_open(tutti_server *s);
void tutti_server_callers_close(tutti_server *s);
/* n numbers to where they stand as the wire has them, from element 0 on. They are x's from `first`
   on (SIZE_MAX: the method's own). 16 bits overflow to infinity: told here, where it is known whose
   number it is. A gradient's that is not finite itself is judged by the engine. */
tutti_status tutti_server_narrow(const tutti_server *s, float *values, void *to, size_t first,
                                 size_t n, tutti_error *err);

/* ---- coded.c ---- */

/* Within declare(), once parts are weighed: where setup.codec says so and the run has one. */
tutti_status tutti_server_coded_declare(tutti_server *s, tutti_plan *plan, tutti_error *err);
/* After the callers. */
tutti_status tutti_server_coded_open(tutti_server *s, tutti_error *err);
void tutti_server_coded_close(tutti_server_coded *c); /* NULL-safe */
size_t tutti_server_coded_most(const tutti_server_coded *c); /* bytes of a message, rounded up */
/* A step begins on this worker, with m->lr. / Services are about to run. */
void tutti_server_coded_begin(tutti_server_coded *c);
void tutti_server_coded_release(tutti_server_coded *c);
/* What a request says of the step's learning rate, and the server's thread hears of it. */
int64_t tutti_server_coded_rate(const tutti_server_coded *c);
tutti_status tutti_server_coded_told(tutti_server_coded *c, int piece, int64_t rate, int worker,
                                     tutti_error *err);
/* A client's thread, `caller` of them: its part of the piece as a message, and where the answer is
   to come. / What came, to `into`. values, into: element 0 of the flat space. b: a request's. */
tutti_status tutti_server_coded_send(tutti_server_coded *c, int piece, int server, int64_t b,
                                     const float *values, int caller, tutti_buffer *request,
                                     tutti_buffer *reply, tutti_error *err);
tutti_status tutti_server_coded_came(tutti_server_coded *c, int piece, int server, int64_t b,
                                     size_t bytes, int caller, float *into, tutti_error *err);
/* The server's thread: what a worker sent, as floats. / The sum as a message, good until the next;
   of the sum itself nothing is changed. */
tutti_status tutti_server_coded_heard(tutti_server_coded *c, int piece, int64_t b, const void *in,
                                      size_t bytes, int worker, float *out, tutti_error *err);
tutti_status tutti_server_coded_answer(tutti_server_coded *c, int piece, int64_t b, float *sum,
                                       tutti_buffer *payload, tutti_error *err);
/* Bytes of the last answer about so many elements of that piece, as it went to one worker. */
size_t tutti_server_answered(const tutti_server *s, int piece, size_t count);

/* ---- sums.c: as the rule and `lost` of a method's ---- */

tutti_status tutti_server_sums_rule(tutti_server_sums *s, const tutti_server_request *r,
                                    tutti_error *err);
tutti_status tutti_server_sums_lost(tutti_server_sums *s, tutti_error *err);

/* ---- tables.c ---- */

/* My part of that table; NULL: none is here. */
float *tutti_server_table(const tutti_server *s, int tensor, size_t *first, size_t *count);
/* A push, or KIND_STATE. */
tutti_status tutti_server_tables_rule(tutti_server_tables *s, const tutti_note *note, void *in,
                                      tutti_error *err);

/* ---- calls.c, for tables.c ---- */

/* Of the lane: rows of g that lie in each server's part of the piece, in chunks. The client's:
   KIND_STATE `b` of all servers, into `into` (of element 0 of the flat space). */
tutti_status tutti_server_push_chunks(tutti_server *s, const tutti_piece *p, int chunks,
                                      tutti_error *err);
tutti_status tutti_server_fetch(tutti_server *s, int tensor, int64_t b, float *into,
                                tutti_error *err);
/* Chunk j of n of a server's part of a table, of whole rows: the first get one more. */
size_t tutti_server_chunk(size_t cols, size_t first, size_t count, int j, int n,
                          size_t *chunk_first);
/* ---- told.c: numbers of all workers; told: so many ---- */

size_t tutti_server_told_count(const tutti_method *m);
tutti_status tutti_server_told(const tutti_server_sums *s, tutti_method *m, double *told,
                               tutti_error *err);

/* ---- server.c ---- */

/* Words of a request or an answer, at most. */
size_t tutti_server_room(const tutti_server *s);

/* ---- aside.c: models put aside ---- */

/* Within declare(), of servers that keep values. / What a worker says of itself with each
   request. */
void tutti_server_aside_declare(tutti_server *s, tutti_plan *plan);
int64_t tutti_server_aside_mark(const tutti_server *s);
/* The server's thread: takes the mark off a request, and puts the slice aside where it is due. */
tutti_status tutti_server_aside_look(tutti_server *s, tutti_note *note, tutti_error *err);
/* Of tutti_facility_ops. */
void tutti_server_put_aside(void *self, int points);
tutti_status tutti_server_agree_aside(void *self, int k, tutti_error *err);
void tutti_server_drop_aside(void *self);

/* ---- saved.c ---- */

/* What workers were given: the model that all begin with. */
void tutti_server_read_first(tutti_server *s);
/* Of tutti_facility_ops. */
int64_t tutti_server_slices(const void *self);
bool tutti_server_recuts(const void *self, const tutti_saved_run *run, const void *memory);
tutti_status tutti_server_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                               tutti_error *err);
#endif
