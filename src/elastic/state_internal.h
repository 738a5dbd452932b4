/* state_internal.h: manifests, and the state that a newcomer fetches, as the files state*.c share
   them. */
#ifndef TUTTI_ELASTIC_STATE_INTERNAL_H
#define TUTTI_ELASTIC_STATE_INTERNAL_H
#include "elastic/state.h"
#include <string.h>

/* ---- manifests (state_wire.c) ---- */

/* A manifest that was checked as a whole. Names and hashes are in the message. */
typedef struct tutti_manifest_reader {
    int rank, world, workers;
    bool whole;                  /* image.h */
    int copies;                  /* image.h */
    const char *facts;           /* "": none */
    size_t pieces;               /* those that are left */
    const uint8_t *at;           /* the next one */
} tutti_manifest_reader;

/* A piece of it. */
typedef struct tutti_manifest_piece {
    tutti_saved saved;           /* without data */
    const uint8_t *hashes;       /* [ranges], 8 bytes each */
    uint64_t ranges;
} tutti_manifest_piece;

static inline uint32_t tutti_elastic_range_bytes(const tutti_elastic_state *of)
{
    return of->range_bytes != 0 ? of->range_bytes : TUTTI_ELASTIC_RANGE;
}

/* The number of ranges of `bytes` bytes. */
static inline uint64_t tutti_elastic_ranges(const tutti_elastic_state *of, uint64_t bytes)
{
    const uint32_t each = tutti_elastic_range_bytes(of);

    return bytes / each + (bytes % each != 0);
}

static inline bool same_state(const tutti_saved *a, const tutti_saved *b)
{
    return strcmp(a->state, b->state) == 0 && strcmp(a->tensor, b->tensor) == 0;
}

static inline bool same_form(const tutti_saved *a, const tutti_saved *b)
{
    return a->keep == b->keep && a->dtype == b->dtype && a->count == b->count;
}

uint64_t tutti_elastic_number(const uint8_t *from, int bytes);

/* Checks the whole message, and that it is of that state. Allocates nothing. */
tutti_status tutti_manifest_begin(tutti_manifest_reader *r, const tutti_elastic_state *of,
                                  const uint8_t *bytes, size_t n, tutti_error *err);
/* false: there are no more pieces. */
bool tutti_manifest_next(tutti_manifest_reader *r, const tutti_elastic_state *of,
                         tutti_manifest_piece *p);

/* ---- a fetch ---- */
enum { WINDOW_MOST = 64 };        /* requests to a holder */

typedef enum range_state { FREE, ASKED, HERE } range_state;

typedef struct piece {
    tutti_saved saved;           /* names and data are its own; data NULL: not wanted */
    bool wanted;
    uint64_t *hash;              /* [ranges] */
    uint8_t *is;                 /* [ranges]: range_state */
    uint64_t ranges, free;       /* free: of them FREE */
    uint64_t first_free;         /* none before it is FREE */
    int holders;                 /* that are not lost */
} piece;

typedef struct has { size_t piece; uint64_t first; } has;     /* number of its first range */
typedef struct asked { size_t piece; uint64_t range; } asked; /* range: of the piece */

typedef struct holder {
    uint64_t id;
    bool listed;                 /* its manifest is here */
    bool lost;
    bool stalled;
    int damaged;                 /* ranges that it has sent damaged */
    has *has;                    /* [n_has], in the order of its manifest */
    size_t n_has;
    uint64_t ranges;             /* in its manifest */
    asked asked[WINDOW_MOST];    /* what it owes. A range that is ASKED is in one list */
    int n_asked;
    int64_t heard_ns;            /* when it last sent something, or was asked after it owed
                                    nothing, or was passed over */
} holder;

struct tutti_fetch {
    tutti_fetch_options options;
    char *facts;                 /* NULL: no manifest that has them is here */
    int world, workers;          /* 0: no manifest is here */
    bool *ranks;                 /* [world]: has this rank nothing that is in no manifest? */
    int n_ranks;
    bool whole;                  /* a manifest has come that lists every state */
    piece *pieces;               /* [n], as they came */
    size_t *order;               /* [n]: their indexes, in order */
    size_t n, room;
    holder *holders;             /* [n_holders] */
    size_t n_holders, holders_room;
    uint64_t needed, here;       /* bytes */
    tutti_fetch_state state;
};

/* Piece k in order. */
static inline const tutti_saved *sorted(const tutti_fetch *f, size_t k)
{
    return &f->pieces[f->order[k]].saved;
}

/* state_known.c */
/* Takes a manifest. After a failure the holder is lost, and the caller counts it so. */
tutti_status tutti_fetch_list(tutti_fetch *f, holder *h, const uint8_t *bytes, size_t n,
                              tutti_error *err);
/* Does a manifest list all elements of every state? If not, *what lacks some of *owner. */
bool tutti_fetch_covers(const tutti_fetch *f, const tutti_saved **what, int *owner);
/* Are all states listed? */
bool tutti_fetch_is_listed(const tutti_fetch *f);
void tutti_fetch_free_piece(piece *p);
#endif
