/* sharded.h: the modes of pieces, which stand on each other: pieces in flight from one step to the
   next (by_piece.c); each worker's shards of all pieces (shards.c); gradients held by piece
   (held.c), values held by unit (units.c) and updates outside the device (offload.c), of shards;
   and stages (drive.c), whose evaluations go by units. All state belongs to the client thread
   except what is marked. */
#ifndef TUTTI_SHARDED_H
#define TUTTI_SHARDED_H
#include "engine/engine_internal.h"
#include "optim/placed.h"
#include "tier/tier.h"
#include "tutti/method/pipeline.h"

/* Pieces still in flight when the next step begins (by_piece.c); client thread. */
typedef struct tutti_by_piece {
    tutti_engine *e;
    tutti_monitor *lock;         /* mutex of the state that decides which thread updates a
                                    piece */
    tutti_rate rate;             /* this step's rate; with m->by_piece */
    int left;                    /* pieces of the step before that were not yet waited for */
    bool *through;               /* n_tensors: the backward pass of its unit is over, in this
                                    step */
    bool *stale;                 /* n_tensors: the client's copy is older than what x is about to
                                    be */
    bool hands_out;              /* at least one is stale */
    tutti_status status;         /* of an exchange that has failed, with its error */
    tutti_error error;
} tutti_by_piece;

/* Gradients that are held by piece (held.c). */
typedef struct tutti_held_pieces {
    tutti_engine *e;
    float *memory;               /* declared */
    size_t room;                 /* elements of a buffer: those of the largest piece */
    int buffers;                 /* number of buffers in all */
    float **more;                /* n_more: additional buffers; n_pieces are enough */
    int n_more;
    tutti_monitor *lock;         /* mutex of the fields below */
    float **free;                /* n_free */
    int n_free;
    int under_way;               /* pieces to be exchanged that will then return their buffers */
} tutti_held_pieces;

/* Each worker's shard of every piece (shards.c). */
typedef struct tutti_shards {
    tutti_engine *e;
    int team;                    /* number of workers over which a piece is split; 0, before
                                    declare: all */
    int place;                   /* my index among them */
    int *ranks;                  /* ranks of the two groups below; NULL: there is one node
                                    group */
    tutti_group inside, between; /* my node group; the workers with my index in all node groups */
    tutti_range *mine;           /* n_pieces: in the flat space */
    size_t *counts;              /* n_pieces x team: elements of each worker's shard */
    float *g;                    /* declared if gradients are held by piece: my shards,
                                    concatenated; else they are in m->g */
    size_t *at;                  /* n_pieces: the offset of each shard in g */
    /* of the norm, with clip-norm: */
    size_t blocks;
    int *adder;                  /* blocks: which worker of the group adds each up */
    size_t *blocks_of;           /* team: number of blocks that each worker adds up */
    size_t *moved;               /* 2 x team: elements sent to each worker, then received from
                                    each */
    size_t n_out, n_in;          /* their totals */
    size_t *cursor;              /* team: scratch */
    float *out, *in;
    double *sums, *all_sums;     /* sums of my blocks; of all blocks, worker by worker */
} tutti_shards;

/* Values that are held by unit (units.c); client thread, except what a job touches. */
typedef struct tutti_unit {
    size_t first, count;         /* in the flat space */
    tutti_engine_span pieces;
    bool keeps;                  /* its gathered values are kept until the next update */
    float *home;                 /* if it keeps: where they are kept */
    float *values;               /* its complete values, present or being gathered; NULL: they are
                                    not here */
    int buffer;                  /* index of the buffer that it is in */
    bool apart;                  /* it is in no buffer: its memory was taken from the arena */
    int needs;                   /* acquires that were not released yet */
    bool filled;                 /* the next update will leave my shards there */
    bool posted;                 /* my shards are being read, and the gather has not begun */
    bool pending;                /* being gathered */
    bool counts;                 /* the time of the gather counts as the method's */
    tutti_engine *engine;
    tutti_job job;               /* the gather, with its group and sequence numbers */
    tutti_group group;
    uint32_t turn, order_seq;
} tutti_unit;
typedef struct tutti_units {
    tutti_engine *e;
    bool drives;                 /* the units are those of stages (drive.c) */
    const char *more_name;       /* the arena's name for memory that is taken when it is needed */
    float *x, *kept, *memory;    /* declared: my shards, concatenated, at the offsets shards.at;
                                    the units that keep their values; the buffers */
    tutti_place place;           /* declared in place of x: my shards in a tier; x is their
                                    address if they are in memory */
    tutti_io *io;                /* n_pieces: reads of my shards; NULL: the shards have an
                                    address */
    size_t room;                 /* elements of a buffer */
    int buffers;
    struct { int units; size_t taken; } buffer[1 + TUTTI_AHEAD_MOST]; /* units, elements in use */
    tutti_unit *unit;     /* n_units */
    int ahead;                   /* number of buffers that may be read into, or gathered in, while
                                    the client computes with others */
    bool beside;                 /* gathers overlap computation: the lane has a thread */
    bool fills;                  /* the update itself fills the units that are prefetched */
    tutti_lane *lane;            /* of gathers only */
    int *seen;                   /* n_seen: units in the order in which a step acquires them */
    int n_seen, room_seen, at;   /* at: the next expected unit */
    bool records;                /* the order of the rest of this pass is not known */
    bool says;                   /* workers send each other what they are about to do */
    uint32_t order_seq;
    int64_t *words;              /* 2 x workers: received order messages, of gathers and of
                                    pieces */
    bool counts;                 /* the first step has begun; see before */
    tutti_tier_sum before;       /* bytes that the tier had moved when the first step began */
    int resident, resident_peak, resident_reported; /* units present; the maximum; the maximum last
                                                       reported */
    size_t live_values, live_values_most, more, more_most; /* values of the units present; of
                                                              those outside the buffers */
    size_t reserve;              /* device bytes reserved for units outside the buffers */
    bool charged;                /* the reserve is charged, while no unit is outside the
                                    buffers */
} tutti_units;

/* An update outside the device (offload.c). */
typedef struct tutti_offload {
    tutti_engine *e;
    tutti_offload_options options;
    tutti_place masters, g;      /* declared: of my shards, concatenated; g: likewise, and twice
                                    that if updates are delayed */
    /* values held by unit, in a tier without addresses: */
    float *room;                 /* staging buffers, each for the largest shard, for gradients on
                                    their route to the tier; the first also holds the shard that is
                                    being examined. NULL: g has an address */
    size_t room_bytes;           /* bytes of one buffer */
    int rooms;
    tutti_io io[8];              /* the transfer of each buffer */
    int next;                    /* the buffer that is taken next; on the lane's thread */
    int brought;                 /* the piece whose shard is in the first buffer; -1: none */
    bool filled;                 /* the master values are those of this run */
    tutti_placed *placed;
    tutti_update_part *part;     /* n_pieces, from the last to the first; of the running update */
    /* delayed: */
    struct { uint64_t ahead; } now; /* declared; 1: the masters have had an update that x has
                                       not */
    bool half;                   /* the second half of g is this step's */
    tutti_lane *lane;
    tutti_job job;               /* the running update */
    tutti_rate rate;             /* the rate of that update */
} tutti_offload;

/* A method that runs a pipeline schedule (drive.c). */
typedef struct tutti_driven {
    tutti_engine *e;
    tutti_drive_options o;       /* its arrays are those below */
    int first[TUTTI_DRIVE_STAGES_MOST + 1]; /* units at which the stages of my pipeline begin */
    int saved[TUTTI_DRIVE_STAGES_MOST + 1]; /* likewise of the first pipeline, which saves and
                                               evaluates the model */
    int width[TUTTI_DRIVE_STAGES_MOST];
    int *worker;                 /* workers, pipeline by pipeline, stage by stage */
    int place;                   /* this worker's index in `worker` */
    int *peers;                  /* pipelines: the worker of each, mine included, that has my
                                    stage and my index among its replicas */
    tutti_group replicas;        /* the replicas of my stage in my pipeline */
    int64_t waits_since_ns;
    tutti_lane *lane;            /* of sums over the pipelines (drive_sum.c); NULL: there is one
                                    pipeline */
    tutti_group group;
    uint32_t sums;               /* sums started so far */
    struct tutti_drive_sum {
        tutti_job job;
        tutti_group group;
        float weight, *gradient;
    } sum[TUTTI_DRIVE_SUMS_MOST];
} tutti_driven;

extern const tutti_facility_ops tutti_by_piece_mode, tutti_shards_mode, tutti_held_mode,
    tutti_units_mode, tutti_offload_mode, tutti_drive_mode;
/* The engine's; NULL: the method has not declared it. */
tutti_by_piece *tutti_by_piece_of(const tutti_engine *e);
tutti_shards *tutti_shards_of(const tutti_engine *e);
tutti_held_pieces *tutti_held_of(const tutti_engine *e);
tutti_units *tutti_units_of(const tutti_engine *e);
tutti_offload *tutti_offload_of(const tutti_engine *e);
tutti_driven *tutti_drive_of(const tutti_engine *e);

/* ---- by_piece.c ---- */

/* Within declare(): pieces may be in flight when the next step begins (m->overlaps_steps). */
tutti_status tutti_by_piece_overlap(tutti_method *m, tutti_error *err);
/* Waits for all pieces in flight. Every call reports a failure. */
tutti_status tutti_by_piece_rest(tutti_engine *e, tutti_error *err);

/* ---- shards.c ---- */

/* Within step(): starts the all-gather of piece k's values, which overlaps the next step. */
void tutti_shards_start_gather(tutti_engine *e, int k);
/* Where the mean of my shard of a piece is, from its exchange on. */
float *tutti_shard_gradient(const tutti_engine *e, int piece);

/* ---- held.c ---- */

/* Within declare(), once pieces are cut. */
tutti_status tutti_held_declare(tutti_method *m, tutti_error *err);

/* ---- units.c ---- */

/* Within tutti_shards_declare. keep: units of at most that many values keep their gathered
   values. */
tutti_status tutti_units_declare(tutti_engine *e, size_t keep, tutti_error *err);
/* Within tutti_drive_declare: units are gathered only to be evaluated or saved; no values are
   held. */
tutti_status tutti_units_declare_looks(tutti_engine *e, tutti_error *err);
/* Before the update: of units that are read from a tier, gives those that are needed first a
   buffer. */
tutti_status tutti_units_fill(tutti_engine *e, tutti_error *err);
/* Where the update is to leave my shard of a piece; NULL: in the tier alone. */
float *tutti_units_filled(const tutti_engine *e, int piece);
/* Waits for the gathers in flight; nothing where values are not held by unit. */
tutti_status tutti_units_rest(tutti_engine *e, tutti_error *err);

/* ---- offload.c: gradients in a tier without addresses; else these do nothing ---- */

/* *to: where the mean of a shard is to be written (adds: it will be added to what the passes
   before have left there). */
tutti_status tutti_offload_takes(tutti_engine *e, int piece, bool adds, float **to,
                                 tutti_error *err);
/* The mean has arrived at `from` and goes to the tier; called on the thread of the exchange. */
tutti_status tutti_offload_keeps(tutti_engine *e, int piece, float *from, tutti_error *err);
/* Brings a piece's shard to where tutti_offload_looks points; client thread, once all pieces are
   exchanged. */
tutti_status tutti_offload_bring(tutti_engine *e, int piece, tutti_error *err);
float *tutti_offload_looks(const tutti_engine *e, int piece); /* NULL: g has an address */

/* ---- drive.c, drive_sum.c ---- */

tutti_status tutti_drive_sums_open(tutti_driven *d, tutti_error *err);
/* Before the services are closed, as for every lane. */
void tutti_drive_sums_close(tutti_driven *d);
/* Broadcasts a unit's values, which are in `range`, to all workers; collective. */
tutti_status tutti_drive_bring(tutti_engine *e, int unit, tutti_range range, float *values,
                               tutti_group *workers, tutti_error *err);
#endif
