/* server_internal.h: what the two halves of server.h share: server.c is the
   server's, calls.c its clients'. */
#ifndef TUTTI_SERVER_INTERNAL_H
#define TUTTI_SERVER_INTERNAL_H
#include <stdatomic.h>

#include "slice.h"
#include "tutti/server.h"

/* What one caller of several calls at once needs. */
typedef struct tutti_server_caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_note *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* whom each goes to */
    /* bytes that stay in my window for the server to read; that it is to write there */
    size_t *there, *back_there;
    /* what its answer is about, where that comes by way of `back`; else count 0 */
    tutti_slice *slice;
    /* of slices with tables: what is sent, what comes; grow to twice what was ever needed */
    uint32_t *out; float *back;
    size_t out_room, back_room, out_words, back_words;
    int n;
    bool taken;                  /* under monitor */
} tutti_server_caller;

enum { COUNTS_MOST = 4 };

struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;
    int servers, index;          /* index: mine, or -1 */
    int *member;                 /* servers: whose; ascending */
    size_t first, count;         /* my slice of x */
    tutti_slice slice;           /* the same */
    float *values;               /* of the slice */
    /* what comes and goes (desk.c) */
    void *desk_in, *desk_out; size_t in_bytes, out_bytes; int rooms, copies;
    float *wide;                 /* of what came as others, floats */
    /* what workers send and get may stay in their windows (server.c) */
    bool there;
    /* workers: of one answer to many, bytes that were written in the window of each */
    size_t *placed;
    void *half[2],
        *half_out; /* where floats travel as others: what the client sends and gets, of all of x; what the
                                    server sends, of the slice */
    /* workers x count, with setup.reads: the slice as each was given it; server's thread.
       Declared */
    float *read;
    float *words;                /* what is answered, of slices with tables */
    float *zeros;                /* of the slice, for optimisers that want every row */
    /* a row of the slice's tables each: has tutti_server_collect added to it? */
    uint8_t *marks;
    /* workers; workers; the widest row, of zeros: scratch of sums */
    tutti_slice_summand *summand; const float **from; float *no_row;
    int64_t *version;            /* of my slice; server's thread. Declared */
    /* one a slice: version and the method's */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; int n_counts;
    int64_t *got;                /* servers: version of each slice that this worker has; client's */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    uint64_t *delay;             /* workers: of the last request of each; server's thread */
    /* workers, with setup.times: what each takes; server's thread. Declared */
    double *seconds;
    /* workers: when each was given what it has; 0: not since services run; server's thread,
       and the client's while they rest */
    int64_t *given_ns;
    _Atomic int64_t begun_ns;    /* since when all go on; 0: this worker's client does not yet */
    bool *gone;                  /* workers: lost, as the rule has heard; server's thread */
    bool *asks;                  /* workers: whose request has no answer yet; server's thread */
    int64_t wake_at_ns;          /* for setup.due; server's thread */
    tutti_note *answer;          /* workers: of one answer to many */
    tutti_engine_call *told;     /* workers: what each was told unasked; server's thread */
    tutti_monitor *monitor;      /* of taken */
    tutti_server_caller *callers; int n_callers;
};

/* of a request: rows of table b, by ids, or without them its whole part; the same, wanted in the
   sender's x; besides those of service_internal.h */
enum { KIND_ROWS = -3, KIND_ROWS_THERE = -4 };
/* In the kind of a request: the slice of what is sent stands in the sender's g; what is
   answered is wanted in the sender's x, or, of pieces, g. An answer that stands there
   says so by its bytes, in `ticket`. */
enum { FROM_THERE = 1u << 30, TO_THERE = 1u << 29, KINDS = FROM_THERE | TO_THERE };

static inline bool tutti_server_is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

static inline tutti_buffer tutti_server_half(const tutti_server *s, void *from, size_t at, size_t n)
{
    return (tutti_buffer){ s->m->device, (char *)from + at * tutti_dtype_bytes(s->setup.wire), n,
                           s->setup.wire };
}

/* Is a slice at that rank? Its loss then, in a sentence, with why it is lost. */
bool tutti_server_is_at(const tutti_server *s, int rank);
tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err);
/* calls.c, of opening and closing. false: no memory. */
bool tutti_server_callers_open(tutti_server *s);
void tutti_server_callers_close(tutti_server *s);
/* n numbers to where they stand as the wire has them, from element 0 on; they are x's
   from `first` on (SIZE_MAX: the method's own). 16 bits overflow to infinity: told here,
   where it is known whose number it is. */
tutti_status tutti_server_narrow(const tutti_server *s, float *values, void *to, size_t first,
                                 size_t n, tutti_error *err);
#endif
