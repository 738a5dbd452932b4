/* tier_internal.h: what the files of tier/ share. A tier is its ops, what they keep, and what all
   have in common: bounds of requests, waiting, counts. */
#ifndef TUTTI_TIER_INTERNAL_H
#define TUTTI_TIER_INTERNAL_H
#include "tier/tier.h"

/* open: t has rt, bytes, arena, monitor, and its options in self. After a failure close is called,
   which takes what is half open. post: a request within bounds, of at least a byte, marked as under
   way; it may block, and ends by tutti_tier_ended, in post or on another thread. describe: as
   snprintf, what comes after the name. */
typedef struct tier_ops {
    const struct tutti_tier_kind *kind;
    size_t self_bytes;
    tutti_status (*open)(tutti_tier *t, tutti_error *err);
    void (*close)(tutti_tier *t);
    void (*post)(tutti_tier *t, tutti_io *io);
    int (*describe)(tutti_tier *t, char *out, size_t bytes);
    void *(*address)(tutti_tier *t);                           /* or NULL */
    bool (*pin)(tutti_tier *t, void *memory, size_t bytes);    /* or NULL */
} tier_ops;
extern const tier_ops tutti_tier_host, tutti_tier_nvme;
extern const tutti_option tutti_tier_nvme_options[];

struct tutti_tier {
    const tier_ops *ops;
    void *self;                  /* begins with its options */
    tutti_runtime *rt;
    tutti_monitor *monitor;
    tutti_spec *spec;
    tutti_arena *arena, *own;    /* own: where the caller has none */
    uint64_t bytes;
    size_t block;
    tutti_tier_sum sum;          /* guarded by the monitor, as are the requests' own fields */
};

/* The request has ended; under the monitor. */
void tutti_tier_ended(tutti_tier *t, tutti_io *io);
#endif
