/* sharded.h: the state of the step modes that hold or update only parts of the model, and the
   functions that they call in each other: pieces in flight from one step to the next (by_piece.c);
   each worker's shard of every piece (shards.c); gradients held by piece (held.c); values held by
   unit (units.c, unit_values.c); updates outside the device (offload.c); and methods that run a
   pipeline schedule (drive.c, drive_sum.c). Included by these files only.

   A shard is the part of a piece that this worker updates. All state belongs to the client thread
   except where a comment names a lock, a job or a thread. "Declared" as in engine_internal.h. */
#ifndef TUTTI_SHARDED_H
#define TUTTI_SHARDED_H
#include "engine/engine_internal.h"
#include "optim/placed.h"
#include "tier/tier.h"
#include "tutti/method/pipeline.h"
#include "drive.h"
#include "offload.h"

/* Pieces that are still in flight when the next step begins (by_piece.c). */
typedef struct tutti_by_piece {
    tutti_engine *e;
    tutti_monitor *lock;         /* mutex of `held` and `exchanged` of tutti_engine_piece, which
                                    decide which thread updates a piece */
    tutti_rate rate;             /* of this step's updates */
    int left;                    /* pieces of the step before that were not yet waited for */
    bool *through;               /* [n_tensors]: in this step the backward pass of the tensor's
                                    unit is over */
    bool *stale;                 /* [n_tensors]: the client's memory of the tensor is older than x;
                                    it is written when the client acquires the tensor's unit */
    bool hands_out;              /* an entry of `stale` may be true */
    tutti_status status;         /* with `error`: of the first exchange waited for that failed;
                                    TUTTI_OK: none did */
    tutti_error error;
} tutti_by_piece;

/* Buffers of gradients that are held by piece (held.c). */
typedef struct tutti_held_pieces {
    tutti_engine *e;
    float *memory;               /* declared: the first buffers, contiguous */
    size_t room;                 /* elements of a gradient: as many as the largest piece has */
    size_t stride;               /* elements of a buffer, with what it receives under logical
                                    shares */
    int buffers;                 /* number of buffers, those of `more` included */
    float **more;                /* [n_more], capacity n_pieces: buffers allocated later */
    int n_more;
    tutti_monitor *lock;         /* mutex of the members below */
    float **free;                /* [n_free], capacity n_pieces: buffers that no piece has */
    int n_free;
    int under_way;               /* pieces that were started and have not returned their buffers */
} tutti_held_pieces;

/* Each worker's shard of every piece (shards.c). The workers of a node group divide each piece;
   all node groups do so in the same way. */
typedef struct tutti_shards {
    tutti_engine *e;
    int team;                    /* number of workers of a node group; 0, before
                                    tutti_shards_declare: all workers */
    int index;                   /* this worker's index in its node group */
    int *ranks;                  /* the ranks of `inside`, then those of `between`; NULL: there is
                                    one node group */
    tutti_group inside;          /* this worker's node group */
    tutti_group between;         /* the workers with this index in all node groups; size 0: there
                                    is one node group */
    tutti_range *mine;           /* [n_pieces]: this worker's shards, in the flat space */
    size_t *counts;              /* [n_pieces][team]: elements of each worker's shard */
    float *g;                    /* if gradients are held by piece: this worker's shards of the
                                    mean gradient, concatenated (declared, or the offload's); else
                                    NULL, and they are in m->g */
    size_t *at;                  /* [n_pieces]: the offset of each shard in such a concatenation */
    /* With options.commit (shards_whole.c): */
    tutti_range *copied;         /* [n_pieces]: the shards of the worker after this one, which this
                                    worker has copies of; NULL: it has none */
    tutti_range *both;           /* [n_pieces][2]: `mine` and `copied`, ascending */
    size_t *copied_at;           /* [n_pieces]: as `at`, of `copied` */
    size_t *sent;                /* [n_pieces][2][team]: elements of this worker's gradient that are
                                    sent to each, and of theirs that come from each */
    float *before;               /* declared, vectors x elements of each: those at that step (the
                                    slots, and values that are held by unit); NULL: no
                                    options.commit */
    uint64_t beside;             /* `before` is of the state after that number of steps;
                                    TUTTI_NO_STEP: unknown */
    float *fresh;                /* declared with `before`: the new values of one shard */
    size_t most;                 /* its elements */
    float *next;                 /* declared, if only gradients are held by piece: the new values of
                                    all workers; else they are gathered in m->g, or not at all */
    float *copied_g;             /* declared, likewise: the gradient of `copied`; else in m->g */
    /* The norm of the gradient, with clip-norm. A block (norm.c) may have elements of several
       shards: the worker with its first element adds up all of it. */
    size_t blocks;               /* blocks of the flat space */
    int *adder;                  /* [blocks]: index in the node group of the worker that adds up
                                    the block */
    size_t *blocks_of;           /* [team]: number of blocks that each worker adds up */
    size_t *moved;               /* [2][team]: elements that this worker sends to each worker, and
                                    then those that it receives from each */
    size_t n_out, n_in;          /* the totals of the two rows of `moved` */
    size_t *cursor;              /* [team]: scratch */
    float *out, *in;             /* [n_out], [n_in]: the elements sent and received */
    double *sums;                /* [blocks]: the sums of this worker's blocks */
    double *all_sums;            /* [blocks]: those of all workers, worker by worker */
} tutti_shards;

/* A unit of the model whose values are gathered when they are needed (units.c). */
typedef struct tutti_unit {
    size_t first, count;         /* its elements in the flat space */
    tutti_engine_span pieces;
    bool keeps;                  /* its gathered values are kept until the next update */
    float *home;                 /* if it keeps: the memory for them */
    float *values;               /* all its values, present or being gathered; NULL: this worker
                                    holds its shards only */
    int buffer;                  /* index of the buffer that `values` is in, if it is in one */
    bool apart;                  /* `values` is an allocation of its own */
    int needs;                   /* acquires that were not released yet */
    bool filled;                 /* the next update will write this worker's shards to `values` */
    bool posted;                 /* the shards are in `values` or being read, and the gather has
                                    not begun */
    bool pending;                /* the gather was started and not yet waited for */
    bool failed;                 /* it has failed: `values` are not those of the unit */
    bool is_timed;               /* the gather's time counts as the method's */
    tutti_engine *engine;
    tutti_job job;               /* the gather */
    tutti_group group;           /* its group */
    uint32_t turn;               /* sequence number in the key of the group of the next gather */
    uint32_t order_seq;          /* sequence number of the message that compares the order */
} tutti_unit;
/* Values that are held by unit (units.c). */
typedef struct tutti_units {
    tutti_engine *e;
    bool drives;                 /* the units are those of stages (drive.c), gathered for
                                    evaluations only */
    const char *more_name;       /* the arena's name for memory that is taken when it is needed */
    float *x;                    /* declared: this worker's shards, and its copies of others,
                                    concatenated (tutti_shards_value_at); NULL: they are in a tier
                                    without addresses */
    float *kept;                 /* declared: the memory of units that keep their values */
    float *memory;               /* declared: the buffers, contiguous */
    tutti_place place;           /* with offload, declared in place of x: the shards in a tier */
    tutti_io *io;                /* [n_pieces]: reads of the shards from that tier; NULL: they have
                                    an address */
    size_t room;                 /* elements of a buffer */
    int buffers;                 /* number of buffers */
    struct {
        int units;               /* number of units in the buffer */
        size_t taken;            /* elements in use */
    } buffer[1 + TUTTI_AHEAD_MOST]; /* [buffers] */
    tutti_unit *unit;            /* [n_units] */
    int ahead;                   /* number of buffers that may be read into, or gathered in, while
                                    the client computes with others; 0: nothing is prefetched */
    bool overlaps;               /* gathers overlap computation: their lane has a thread */
    bool fills;                  /* within tutti_units_fill: prefetched units are not read, since
                                    the update will write their shards */
    tutti_lane *lane;            /* of gathers only */
    int *seen;                   /* [n_seen], capacity room_seen: the units in the order in which a
                                    step acquires them */
    int n_seen, room_seen;
    int at;                      /* index in `seen` of the unit expected next */
    bool records;                /* this pass has left the expected order: its order is recorded */
    bool compares;               /* before each collective the workers compare what they are about
                                    to do: the client does not promise the same order on all */
    uint32_t order_seq;          /* sequence number of the next such comparison */
    int64_t *words;              /* [2][workers]: received by comparisons: those of gathers, and
                                    those of pieces */
    bool begun;                  /* the first step has begun, and `before` is set */
    tutti_tier_sum before;       /* bytes that the tier had moved when the first step began */
    int resident;                /* units whose `values` is not NULL */
    int resident_peak;           /* its maximum */
    int resident_reported;       /* the maximum that was last reported as a figure */
    size_t live_values, live_values_most; /* values of the resident units, and the maximum */
    size_t more, more_most;      /* values in allocations of their own, and the maximum */
    size_t reserve;              /* device bytes reserved for such allocations */
    bool charged;                /* the reserve is charged to the arena: there is no such
                                    allocation now */
} tutti_units;

/* An update outside the device (offload.c). */
typedef struct tutti_offload {
    tutti_engine *e;
    tutti_offload_options options;
    tutti_place masters;         /* declared: the master values of this worker's shards,
                                    concatenated. Held by unit: the values themselves */
    tutti_place g;               /* declared: their mean gradient, likewise; twice that if updates
                                    are delayed */
    /* values held by unit, in a tier without addresses: */
    float *staging;              /* buffers for gradients on their way to the tier, each for the
                                    largest shard. The first one also holds the shard that the
                                    client thread has read back. NULL: g has an address */
    size_t staging_bytes;        /* bytes of one buffer */
    int n_staging;               /* number of buffers */
    tutti_io io[8];              /* [n_staging]: the transfer of each buffer */
    int next;                    /* the buffer that is used next; on the lane's thread */
    int brought;                 /* the piece whose shard was read back; -1: none */
    bool filled;                 /* the masters have this run's values */
    tutti_placed *placed;
    tutti_update_part *part;     /* [n_pieces], the last piece first: the parts of the update */
    /* delayed updates: */
    struct {                     /* declared */
        uint64_t ahead;          /* 1: the masters have had an update that x has not; else 0 */
    } now;
    bool second_half;            /* this step's gradient is in the second half of g */
    tutti_lane *lane;            /* of the running update */
    tutti_job job;               /* the running update */
    tutti_rate rate;             /* its rate */
} tutti_offload;

/* A method that runs a pipeline schedule (drive.c). */
typedef struct tutti_driven {
    tutti_engine *e;
    tutti_drive_options o;       /* a copy; its arrays are those below */
    int first[TUTTI_DRIVE_STAGES_MOST + 1]; /* [stages + 1]: units at which the stages of this
                                               worker's pipeline begin, and the end */
    int saved[TUTTI_DRIVE_STAGES_MOST + 1]; /* [stages + 1]: likewise of the first pipeline, which
                                               saves and evaluates the model */
    int width[TUTTI_DRIVE_STAGES_MOST]; /* [stages]: number of replicas of each stage */
    int *worker;                 /* [workers]: pipeline by pipeline, stage by stage, replica by
                                    replica */
    int index;                   /* this worker's index in `worker` */
    int *peers;                  /* [pipelines]: the worker of each pipeline, this one included,
                                    that has this worker's stage and its index among the
                                    replicas */
    tutti_group replicas;        /* the replicas of this worker's stage in its pipeline */
    int64_t waits_since_ns;      /* when the method's current wait began (drive.c) */
    tutti_lane *lane;            /* of sums over the pipelines (drive_sum.c); NULL: the pipelines
                                    sum nothing */
    tutti_group group;           /* the group of these sums: `peers` */
    uint32_t sums;               /* sums started so far: their sequence number */
    struct tutti_drive_sum {
        tutti_job job;           /* first member: the job's address is the sum's */
        tutti_group group;
        float weight, *gradient;
    } sum[TUTTI_DRIVE_SUMS_MOST];
} tutti_driven;

extern const tutti_facility_ops tutti_by_piece_mode, tutti_shards_mode, tutti_held_mode,
    tutti_units_mode, tutti_offload_mode, tutti_drive_mode;
/* These return the mode's state; NULL: the method has not declared the mode. */
tutti_by_piece *tutti_by_piece_of(const tutti_engine *e);
tutti_shards *tutti_shards_of(const tutti_engine *e);
tutti_held_pieces *tutti_held_of(const tutti_engine *e);
tutti_units *tutti_units_of(const tutti_engine *e);
tutti_offload *tutti_offload_of(const tutti_engine *e);
tutti_driven *tutti_drive_of(const tutti_engine *e);

/* ---- by_piece.c ---- */

/* Within declare(): adds the mode, so that pieces may be in flight when the next step begins
   (m->overlaps_steps). */
tutti_status tutti_by_piece_overlap(tutti_method *m, tutti_error *err);
/* Keeps the first failure of a piece's exchange or a unit's gather, for tutti_by_piece_rest. */
void tutti_by_piece_keep(tutti_engine *e, tutti_status status, const tutti_error *why);
/* Returns what was kept, without waiting. */
tutti_status tutti_by_piece_kept(tutti_engine *e, tutti_error *err);
/* Waits for all pieces and unit gathers in flight. Returns the first failure of them, in every
   call from then on. */
tutti_status tutti_by_piece_rest(tutti_engine *e, tutti_error *err);

/* ---- shards.c ---- */

/* Within step(): starts the all-gather of piece k's values, which overlaps the next step. */
void tutti_shards_start_gather(tutti_engine *e, int k);
/* Returns the address of the mean gradient of this worker's shard of a piece; valid once the piece
   is exchanged. */
float *tutti_shard_gradient(const tutti_engine *e, int piece);

/* ---- shards_whole.c: with options.commit ---- */

#define TUTTI_NO_STEP UINT64_MAX
/* Within tutti_shards_declare, before the optimiser is declared: which copies this worker has. */
tutti_status tutti_shards_whole_cut(tutti_shards *s, tutti_error *err);
/* After that: declares the second copy of the slots, and of values that are held by unit. */
void tutti_shards_whole_declare(tutti_shards *s);
void tutti_shards_whole_close(tutti_shards *s);
/* In a step's last pass: sends the exchanged gradient of this worker's shard to the worker before
   it, and receives that of the next one. Without copies does nothing. On the thread that exchanges
   the piece. */
tutti_status tutti_shards_whole_exchange(tutti_engine *e, tutti_piece *p, tutti_error *err);
/* Within step(), after the checks: makes the update, or none of it. */
tutti_status tutti_shards_whole_update(tutti_shards *s, const tutti_rate *rate,
                                       const tutti_engine_verdict *found, tutti_error *err);
/* Is this range of slots or values a copy of another worker's? */
bool tutti_shards_whole_is_copy(const tutti_shards *s, tutti_range r);
/* The offset of this worker's shard of piece k in a vector of all its ranges (`both`, or `mine`),
   and the offset of its copy. */
size_t tutti_shards_value_at(const tutti_shards *s, size_t k);
size_t tutti_shards_copy_at(const tutti_shards *s, size_t k);
/* Functions of facility.h. */
int tutti_shards_whole_copies(const void *self);
void *tutti_shards_whole_beside(const void *self, const void *memory, uint64_t *step);

/* ---- held.c ---- */

/* Within declare(), once pieces are cut: adds the mode, and declares its buffers. TUTTI_ERR_USAGE:
   the method needs the whole gradient. */
tutti_status tutti_held_declare(tutti_method *m, tutti_error *err);

/* ---- units.c ---- */

/* Within tutti_shards_declare: adds the mode, and declares shards and buffers. keep: units of at
   most that many values keep their gathered values until the update. */
tutti_status tutti_units_declare(tutti_engine *e, size_t keep, tutti_error *err);
/* Within tutti_drive_declare: adds the mode for methods whose stages hold the values. Units are
   then gathered for evaluations only, into memory allocated for that time. */
tutti_status tutti_units_declare_evaluations(tutti_engine *e, tutti_error *err);
/* Before an update of shards in a tier: gives buffers to the units that the next step needs first,
   so that the update writes their shards there as well. */
tutti_status tutti_units_fill(tutti_engine *e, tutti_error *err);
/* Returns where the update is to write this worker's shard of a piece in addition to the tier;
   NULL: nowhere. */
float *tutti_units_filled(const tutti_engine *e, int piece);
/* Waits for the gathers in flight. Does nothing where values are not held by unit. */
tutti_status tutti_units_rest(tutti_engine *e, tutti_error *err);

/* ---- offload.c: mean gradients in a tier without addresses. Without such a tier the first three
   do nothing and return TUTTI_OK ---- */

/* Sets *to to the staging buffer into which the exchange is to write the mean of the piece's
   shard. adds: first reads into it what the step's earlier passes left in the tier. On the thread
   of the exchange. */
tutti_status tutti_offload_stage(tutti_engine *e, int piece, bool adds, float **to,
                                 tutti_error *err);
/* Starts writing the shard, which is in the staging buffer `from`, to the tier. On the same
   thread. */
tutti_status tutti_offload_write(tutti_engine *e, int piece, float *from, tutti_error *err);
/* Reads a piece's shard from the tier to the address that tutti_offload_staged returns. Client
   thread, once all pieces are exchanged. */
tutti_status tutti_offload_read(tutti_engine *e, int piece, tutti_error *err);
/* Returns that address; NULL: g has an address of its own. */
float *tutti_offload_staged(const tutti_engine *e, int piece);

/* ---- drive.c, drive_sum.c ---- */

/* Opens the lane of sums over the pipelines, if there are several with the same stages. */
tutti_status tutti_drive_sums_open(tutti_driven *d, tutti_error *err);
/* Closes it; before the engine's services are closed, as every lane. */
void tutti_drive_sums_close(tutti_driven *d);
/* Broadcasts a unit's values [range.count], which are in `range` of the flat space, from the
   worker that has the unit in the first pipeline. values: written elsewhere. Collective over
   `workers`. */
tutti_status tutti_drive_broadcast_unit(tutti_engine *e, int unit, tutti_range range, float *values,
                                        tutti_group *workers, tutti_error *err);
#endif
