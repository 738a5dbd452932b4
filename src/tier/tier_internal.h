/* tier_internal.h: a tier as its kinds implement it. Included by tier.c, which has what all kinds
   have in common (bounds of requests, waiting, totals), and by host.c, nvme.c and chunks.c. */
#ifndef TUTTI_TIER_INTERNAL_H
#define TUTTI_TIER_INTERNAL_H
#include "tier/tier.h"

/* A kind of tier. */
typedef struct tier_ops {
    const struct tutti_tier_kind *kind;
    size_t self_bytes;           /* bytes of the struct t->self, which begins with the options */
    /* Opens the tier: rt, bytes, arena, monitor and self (with options) of t are set. After a
       failure `close` is called, which frees what is half open. */
    tutti_status (*open)(tutti_tier *t, tutti_error *err);
    void (*close)(tutti_tier *t);
    /* Starts a request of at least 1 byte that lies within the tier and is marked as under_way.
       May block. Ends it by tutti_tier_ended, before it returns or on another thread. */
    void (*post)(tutti_tier *t, tutti_io *io);
    /* Writes what follows the name in tutti_tier_describe; as snprintf. */
    int (*describe)(tutti_tier *t, char *out, size_t bytes);
    void *(*address)(tutti_tier *t);                           /* tutti_tier_address; NULL: none */
    bool (*pin)(tutti_tier *t, void *memory, size_t bytes);    /* tutti_tier_pin; NULL: false */
} tier_ops;
extern const tier_ops tutti_tier_host, tutti_tier_nvme;
extern const tutti_option tutti_tier_nvme_options[];

struct tutti_tier {
    const tier_ops *ops;
    void *self;                  /* the kind's state; begins with its options */
    tutti_runtime *rt;
    tutti_monitor *monitor;      /* mutex of `sum`, of the members of requests, and of the kind's
                                    state as it says */
    tutti_spec *spec;
    tutti_arena *arena;          /* counts the tier's host memory: the caller's, or `own` */
    tutti_arena *own;            /* NULL: the caller has given one */
    uint64_t bytes;
    size_t block;                /* tutti_tier_block */
    tutti_tier_sum sum;
};

/* Marks a request as complete, with its status, counts it, and wakes those that wait. The monitor
   is locked. */
void tutti_tier_ended(tutti_tier *t, tutti_io *io);
#endif
