/* carry_internal.h: notes that carry a state, and what the files of a carrier share (carry.c says
   what each note has).
     carry.c        what is on offer, and other answers of this process
     carry_fetch.c  what it fetches itself */
#ifndef TUTTI_ELASTIC_CARRY_INTERNAL_H
#define TUTTI_ELASTIC_CARRY_INTERNAL_H
#include "elastic/carry.h"

enum {
    ASK = TUTTI_NODE_KINDS,
    MANIFEST,
    RANGE,
    NONE,
    AGAIN,
    WHICH,
    ABOUT,
    LEAVE,
    HAVE,
    ENDED,
    FAILED,
    KINDS_END = 2 * TUTTI_NODE_KINDS
};
enum {
    STEP_BYTES = 8,
    ASK_BYTES = STEP_BYTES + 1 + 8,
    OWN_MOST = 128,              /* at least what a fetch asks one holder for */
    OTHERS_MS = 3000             /* others that have not answered by then are passed over */
};

#define CARRY_MS INT64_C(1000000)

/* What is on offer. */
typedef struct offered {
    tutti_image *image;          /* NULL: nothing */
    tutti_elastic_state of;      /* the image's */
    uint8_t *manifest;           /* [manifest_bytes]: the image's */
    size_t manifest_bytes;
    uint64_t version;            /* the manifest's */
} offered;

/* One that has asked for the manifest of a step before it was on offer. */
typedef struct waiting { uint64_t id, step; } waiting;

/* A holder whose manifest has come. */
typedef struct listed { uint64_t id, version; } listed;

struct tutti_carrier {
    tutti_runtime *rt;
    tutti_monitor *lock;         /* of all below */
    tutti_node *node;            /* NULL: nothing can be sent */
    offered main, beside;
    waiting askers[TUTTI_MEMBERS_MAX];
    int n_askers;
    tutti_fetch *fetch;          /* NULL: nothing is fetched */
    uint64_t step;               /* that is fetched */
    uint64_t beside_of[TUTTI_MEMBERS_MAX]; /* those that are asked for any part of that */
    int n_beside_of;
    int64_t beside_ns;           /* when they were asked */
    uint64_t gone[TUTTI_MEMBERS_MAX]; /* those of them that have ended */
    int n_gone;
    listed of[TUTTI_MEMBERS_MAX]; /* whose manifests have come */
    int n_of;
    uint64_t own[OWN_MOST];      /* ranges that this process asked itself for */
    int n_own;
    char *about;                 /* what it tells of the run; NULL: nothing */
    bool asks;                   /* what the run is */
    bool dismissed;              /* a LEAVE has come */
    bool ended, ended_failed;    /* an ENDED has come; one of a run that has failed */
    uint64_t failed[TUTTI_MEMBERS_MAX], failed_epoch; /* those that have sent a FAILED of that */
    int n_failed;
    uint64_t have[TUTTI_MEMBERS_MAX], have_epoch; /* those that have all of the state of that */
    int n_have;
    int64_t asked_ns;            /* when an ASK for something on offer has come last; 0 */
    char *told;                  /* the answer; NULL: there is none yet */
    tutti_error differs;         /* status TUTTI_ERR_STATE: holders contradict each other */
};

static inline void put_number(uint8_t to[8], uint64_t number)
{
    for (int k = 0; k < 8; k++)
        to[k] = (uint8_t)(number >> 8 * k);
}

static inline uint64_t get_number(const uint8_t from[8])
{
    uint64_t number = 0;

    for (int k = 0; k < 8; k++)
        number |= (uint64_t)from[k] << 8 * k;
    return number;
}

/* Of a manifest. */
static inline uint64_t version_of(const uint8_t *bytes, size_t n)
{
    return n >= 8 ? get_number(bytes + n - 8) : 0;
}

static inline bool is_among(const uint64_t *ids, int n, uint64_t id)
{
    for (int k = 0; k < n; k++)
        if (ids[k] == id)
            return true;
    return false;
}

/* Sends a note. false: there is no such process any more. What is not sent else is asked for
   again. */
bool tutti_carrier_post(tutti_carrier *c, uint64_t to, uint32_t kind, uint64_t tag,
                        const void *bytes, size_t n);
/* What is on offer of that step; NULL: nothing. any: also parts of tutti_carrier_offer_beside. */
const offered *tutti_carrier_find(const tutti_carrier *c, uint64_t step, bool any);
/* A note for what is fetched has come. */
void tutti_carrier_take(tutti_carrier *c, const tutti_node_note *note);
#endif
