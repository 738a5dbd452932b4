/* facility.h: the interface of a facility: a part that several methods share and that sits between
   them and the engine, such as a mixer (gossip.h) or servers (server.h). Included by the engine
   and by the modules that implement facilities (src/gossip, src/server, src/engine/modes, some
   folders of src/method). Implemented by facility.c; hooks.c makes the calls.

   A method's declare() calls a function of the facility, which adds the facility to the engine
   (tutti_facility_add). From then on the engine calls the facility's functions below in addition
   to the method's hooks, so the method need not call them.

   Order: for each event the engine calls the facilities in the order in which they were added, and
   then the method's hook of that name, which may use them. `close` is called in reverse: the
   method's, then those of the facilities from the last to the first. Where one result is needed,
   a comment below names the facility that decides.

   A step mode (src/engine/modes) is a facility that changes how steps are made: it merges steps,
   exchanges late, and so on. It has some of the functions below "steps". The engine knows no mode
   by name.

   Every function may be NULL: then the engine does without. All are called on the client thread
   unless noted. A function that returns an error ends the run with that error. */
#ifndef TUTTI_FACILITY_H
#define TUTTI_FACILITY_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* How the run that saved a checkpoint differs from this run, which loads it. */
typedef struct tutti_saved_run {
    int64_t slices;                      /* its number of shards of x at servers; 0: no servers */
    bool resized;                        /* another number of workers saved it */
    bool changed;                        /* resized, or the same number saved it but it began with
                                            more: some were lost */
} tutti_saved_run;
/* What a method does, by its facilities (tutti_facility_ops.provides) and by its traits, hooks and
   declarations. facility.c has the words for each. */
enum {
    TUTTI_MERGES_STEPS = 1 << 0,         /* makes one update of several steps */
    TUTTI_LATE_GRADIENTS = 1 << 1,       /* applies gradients some steps late */
    TUTTI_SIZES_STEPS = 1 << 2,          /* decides how many samples a step has */
    TUTTI_SHARDS_UPDATES = 1 << 3,       /* updates a shard of each piece on each worker */
    TUTTI_DRIVES = 1 << 4,               /* runs the passes of a step itself */
    TUTTI_MAKES_ROUNDS = 1 << 5,         /* updates in passes; a step is a round of such updates */
    /* from here on by the method alone; no facility provides these */
    TUTTI_NO_EXCHANGE = 1 << 6,          /* has no exchange hook */
    TUTTI_OWN_MODELS = 1 << 7,           /* models of workers differ */
    TUTTI_OWN_PACE = 1 << 8,             /* TUTTI_ASYNC */
    TUTTI_GOES_ON = 1 << 9,              /* TUTTI_FAULT_TOLERANT */
    TUTTI_SERVER_SUMS = 1 << 10,         /* TUTTI_THROUGH_SERVERS */
    TUTTI_WHOLE_SLOTS = 1 << 11,         /* without TUTTI_SHARDED_OPTIMIZER */
    TUTTI_OWN_UPDATE = 1 << 12,          /* an update that the engine cannot make by piece */
    TUTTI_STEP_HOOK = 1 << 13,
    TUTTI_WHOLE_GRADIENT = 1 << 14,      /* m->whole */
    TUTTI_ROW_SUMS = 1 << 15,            /* TUTTI_SPARSE_ROWS */
    TUTTI_PIECE_UPDATES = 1 << 16,       /* m->by_piece */
    TUTTI_PIECE_ORDER = 1 << 17,         /* m->order */
    TUTTI_SAMPLES_AGAIN = 1 << 18,       /* TUTTI_RECOMPUTES */
    TUTTI_ENCODED = 1 << 19,             /* gradients go through a codec */
    TUTTI_DOES_BITS = 20                 /* number of the bits above */
};
/* Functions of a facility that decides how many samples a step has, in place of the run's share
   (tutti_share). At most one facility of a method has them; then none of them is NULL. */
typedef struct tutti_step_sizes {
    /* A step begins: sets m->samples, m->weight and m->epoch as far as they are known. */
    void (*begin)(void *self);
    /* Sets the samples, epoch, position, divisor, more and exchange of the next pass, before the
       method's hook may change them. */
    void (*pass)(const void *self, tutti_pass *pass);
    /* Counts the samples of a pass once the method's hook has set it. TUTTI_ERR_STATE: the hook
       may not take that many. */
    tutti_status (*check)(void *self, const tutti_pass *pass, tutti_error *err);
    /* Returns whether the method's hook may end the passes of this step (TUTTI_CLOSED). */
    bool (*closed)(const void *self);
    /* The step is over: adds its samples, over all workers, to the run's (progress.samples). */
    tutti_status (*end)(void *self, tutti_error *err);
    /* Returns whether a further step is needed until the run has `samples` samples. */
    bool (*more)(void *self, uint64_t samples);
    /* Returns the number of steps so far as the learning rate's schedule counts them. */
    uint64_t (*nominal)(const void *self);
} tutti_step_sizes;
typedef struct tutti_facility_ops {
    /* Bits of the enum above: what this facility does, and what it cannot be combined with. After
       the method's declare() the engine refuses two facilities if one excludes what the other
       provides. */
    unsigned provides, excludes;
    const tutti_step_sizes *sizes;       /* NULL: it does not decide how many samples a step has */
    /* Called on every rank once x has been set to rank 0's values on all workers. May
       communicate. */
    tutti_status (*open)(void *self, tutti_error *err);
    /* Frees the facility. Called once for each facility that was added, even if opening failed,
       when services and the lane have ended. */
    void (*close)(void *self);
    /* Called before the first pass of a step, and again if the step restarts. May communicate. */
    tutti_status (*begin)(void *self, tutti_error *err);
    /* The run is about to quiesce: completes everything that the client has started and not yet
       waited for, so that no message of it is in flight on return. May communicate. Called in
       runs without services, too. */
    tutti_status (*arrive)(void *self, tutti_error *err);
    /* The run is quiescent: writes what has to survive to x and to declared state. May communicate
       with the members. */
    tutti_status (*quiesce)(void *self, tutti_error *err);
    /* Services are about to run, on no worker yet: restores from x and declared state. */
    tutti_status (*resume)(void *self, tutti_error *err);
    /* Called after `resume`, once all workers have passed the barriers that follow it and this
       worker continues. Measured times should begin here. */
    void (*begun)(void *self);
    /* Returns TUTTI_OK if the run can continue without `rank`, which is lost for the reason `why`;
       otherwise the error with which the run ends. Any thread; does not block. */
    tutti_status (*without)(const void *self, int rank, const char *why, tutti_error *err);
    /* Returns the number of shards in which values of x are kept outside the workers' x. A
       checkpoint records the sum over the facilities. */
    int64_t (*slices)(const void *self);
    /* Returns whether this rank's SLICE states are copies now, which another rank saves. */
    bool (*stands_by)(const void *self);
    /* Snapshots (tutti.h, "snapshots"), for facilities that keep values of x outside the workers'
       x. The run is quiescent and has passed `points` snapshot points: makes the snapshots that
       are still missing. */
    void (*snapshot_due)(void *self, int points);
    /* Under TUTTI_UNSYNCHRONIZED_STEPS, where x is only a copy: writes this worker's model, as it
       is when the current step begins, to to[n]. Called within `pass`. Contributions to that model
       that are still in flight are added to `to` when they arrive, before the run is quiescent.
       The first facility that has this function decides. */
    void (*snapshot_values)(void *self, float *to);
    /* Within final_model: sets x to the snapshot of point k, on all workers. */
    tutti_status (*snapshot_final_model)(void *self, int k, tutti_error *err);
    /* Drops all snapshots, which have been evaluated. */
    void (*snapshot_drop)(void *self);
    /* Returns whether the declared state at address `memory` cannot be read unchanged from a
       checkpoint of `run`, so that `load` reads it. Sends nothing. */
    bool (*recuts)(const void *self, const tutti_saved_run *run, const void *memory);
    /* Reads from the checkpoint the states for which `recuts` is true. Called after all other
       states were read. Sends nothing. */
    tutti_status (*load)(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                         tutti_error *err);
    /* Checks declared state that was replaced by a checkpoint's or written by the client. */
    tutti_status (*loaded)(const void *self, tutti_error *err);

    /* ---- from declare() to the first step ---- */

    /* Called after the method's declare(): declares what depends on other declarations, and
       refuses incompatible settings. */
    tutti_status (*declared)(void *self, tutti_error *err);
    /* Called when declared memory is allocated and the pieces have their addresses. */
    tutti_status (*cut)(void *self, tutti_error *err);
    /* Returns whether the exchange hook has work to do in a run of one worker. */
    bool (*exchanges_alone)(const void *self);
    /* Distributes rank 0's initial values in place of the engine, and sets *done; or leaves it to
       the next facility or the engine. Collective over `workers`. */
    tutti_status (*initial)(void *self, tutti_group *workers, bool *done, tutti_error *err);
    /* Reports memory that is allocated when it is needed: writes at most one record and returns
       the number written. */
    size_t (*memory)(const void *self, tutti_memory_record *records);
    /* Returns what this worker saves of range k of a state, if several workers have equal copies of
       it. before: elements in the ranges before it. The first facility that has this function
       decides. */
    tutti_range (*saved_part)(const void *self, const tutti_state *state, size_t k, size_t before);
    /* Returns of how many workers after this one, cyclically, it has all declared state that has
       ranges, too. The first facility that has this function decides. */
    int (*copies)(const void *self);
    /* With engine_options.commit: returns what the declared state at address `memory` was in the
       step before, or would have been in the step that has failed, and sets *step to the number of
       steps done there; NULL: it is not known. The first facility that has this function
       decides. */
    void *(*beside)(const void *self, const void *memory, uint64_t *step);

    /* ---- pieces and units ---- */

    /* A pass begins, as `pass` describes it. */
    tutti_status (*begin_pass)(void *self, const tutti_pass *pass, tutti_error *err);
    /* The client is about to read (acquire), or has read (release), the values of a unit. In
       passes and in evaluations. */
    tutti_status (*acquire)(void *self, int unit, tutti_error *err);
    tutti_status (*release)(void *self, int unit, bool backward, tutti_error *err);
    /* The client is about to read n rows of a table. */
    tutti_status (*acquire_rows)(void *self, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err);
    /* Returns the address of a tensor's values, where they are not in x; NULL: this worker does
       not hold them now. The first facility that has this function decides. */
    float *(*values)(const void *self, int tensor);
    /* A tensor's gradient is about to be announced. */
    tutti_status (*announce)(void *self, int tensor, tutti_error *err);
    /* Makes sure that p->g has memory: part of a gradient is about to be written to it. */
    tutti_status (*fill_piece)(void *self, tutti_piece *p, tutti_error *err);
    /* A piece starts, before its job is given to the lane. May replace p->group. */
    void (*start_piece)(void *self, tutti_piece *p);
    /* The exchange of a piece is about to begin. On the thread that exchanges it. */
    tutti_status (*begin_piece)(void *self, tutti_piece *p, tutti_error *err);
    /* In place of the weighted sum over the workers (tutti_exchange_plain): p->g := the sum of the
       step's gradient, on all of them; or, where part is not NULL, part := the sum of this worker's
       part of the piece (tutti_engine_part_at), and p->g is undefined. On the thread that exchanges
       the piece. The first facility that has this function decides. */
    tutti_status (*sum)(void *self, tutti_piece *p, float *part, tutti_error *err);
    /* The exchange of a piece has ended with `status`. On the same thread. */
    void (*end_piece)(void *self, tutti_piece *p, tutti_status status);
    /* A pass has ended, and all its gradients were announced. */
    tutti_status (*end_pass)(void *self, tutti_error *err);
    /* With m->by_piece, within step(), in place of waiting for the step's pieces: prepares for
       them to continue during the next step. */
    tutti_status (*go_on)(void *self, tutti_error *err);
    /* Sets *norm2 to the squared norm of the exchanged mean gradient, for clip-norm.
       Collective. */
    tutti_status (*norm2)(void *self, double *norm2, tutti_error *err);
    /* Within step(), once its gradients are exchanged and before anything of the state changes:
       exchanges what else of the step the workers have to know of each other, into memory that is
       no state; end_step then uses it. Collective. */
    tutti_status (*exchange_rest)(void *self, tutti_error *err);
    /* Values were replaced, by the update of a step or by a checkpoint. */
    tutti_status (*values_replaced)(void *self, tutti_error *err);
    /* A step has ended and was counted. With engine_options.commit it exchanges nothing. */
    tutti_status (*end_step)(void *self, tutti_error *err);
    /* A call has failed: puts back what the passes of a step that is not committed have changed of
       declared state. */
    void (*undo)(void *self);

    /* ---- steps ---- */

    /* Called when declared memory is allocated and the lane is open, before initial values are
       distributed, and so before `open`. */
    tutti_status (*prepare)(void *self, tutti_error *err);
    /* Ends the facility's own threads. Called once, before `close`, when services have ended and
       before the lane is closed. */
    void (*stop)(void *self);
    /* Returns whether this facility, not the engine, exchanges the gradient of this step, after
       the step's passes. The first one that returns true does. */
    bool (*exchanges)(const void *self);
    /* Called when the method's hook has set a pass: may change it. */
    void (*pass)(void *self, tutti_pass *pass);
    /* Called when p->g becomes this worker's gradient of the update, without the loss scale: may
       change it. On the thread that exchanges the piece. */
    void (*take_in)(void *self, tutti_piece *p);
    /* Where `exchanges` returned true and the passes of this step are over: starts or makes the
       exchange. *due: g now holds a gradient to be applied, which may be an earlier step's; it is
       exchanged and the same on all workers. */
    tutti_status (*exchange)(void *self, bool *due, tutti_error *err);
    /* Called when the gradient in g is about to be applied. *kept: the facility has stored it for
       a later step instead, and this step makes no update. */
    tutti_status (*keep)(void *self, bool *kept, tutti_error *err);
    /* The update of a gradient was made, or skipped. */
    void (*updated)(void *self);
    /* The run ends: as `exchange`, for gradients not applied yet. Called, each time followed by an
       update, until *due is false. */
    tutti_status (*drain)(void *self, bool *due, tutti_error *err);
    /* Waits for the facility's exchanges in flight. It keeps a failure for when the gradient is
       due. measured: waits only if the codec report measures one of them. */
    void (*settle)(void *self, bool measured);
    /* Returns the number of steps so far that made no update, because their gradients are merged
       into, or applied by, the update of a later step. */
    uint64_t (*behind)(const void *self);
} tutti_facility_ops;
/* Adds a facility to the engine of m. The facility calls it within the method's declare(), once
   `self` is in a state that ops->close can free and before anything else in it can fail. ops,
   self: the pointers are kept. */
enum { TUTTI_FACILITIES_MOST = 8 };
void tutti_facility_add(tutti_method *m, const tutti_facility_ops *ops, void *self);
/* Returns the `self` of the facility that was added with `ops`; NULL: none was. */
void *tutti_facility_self(const tutti_method *m, const tutti_facility_ops *ops);
/* Returns the first of the bits `excluded` that the method does, as the end of a sentence that
   begins "method 'X' ..."; NULL: it does none. */
const char *tutti_method_does(const tutti_method *m, unsigned excluded);
#pragma GCC visibility pop
#endif
