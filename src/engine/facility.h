/* facility.h: a facility is a part that several methods share, such as a mixer (gossip.h) or
   servers (server.h), between the engine and the methods. The method declares it within its
   declare(), where the facility registers itself. From then on the engine calls the functions below
   in addition to the method's hooks, so the method need not call them.

   Order: facilities in the order in which they were added, and then the method's hook of that
   name, which may use them. Close is the reverse: the method, then facilities in reverse order.
   A facility may also be a step mode (src/engine/modes), a way of making steps that a method asks
   for: merged steps, late exchange. Such a one has some of the functions below "steps". The engine
   knows no mode by name.

   All functions may be NULL, and all are called on the client thread, unless noted. A function
   that fails ends the run, with its error. */
#ifndef TUTTI_FACILITY_H
#define TUTTI_FACILITY_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

typedef struct tutti_saved_run {         /* how the run that saved a checkpoint differs */
    int64_t slices;                      /* number of shards of x at servers; 0: none */
    bool resized;                        /* this run has another number of workers */
    bool changed;                        /* same number, but not the same workers: some were lost */
} tutti_saved_run;
/* What a facility does to its method's steps, where others cannot be combined with that. */
enum {
    TUTTI_MERGES_STEPS = 1,              /* makes one update of several steps */
    TUTTI_LATE_GRADIENTS = 2,            /* applies gradients some steps late */
    TUTTI_SIZES_STEPS = 4,               /* decides how many samples a step has */
    TUTTI_SHARDS_UPDATES = 8,            /* updates a shard of each piece on each worker */
    TUTTI_DRIVES = 16,                   /* runs the passes of a step itself */
    TUTTI_FACILITY_BITS = 5              /* how many of the above there are */
};
/* How many samples a step has, where a facility decides that; else it is the run's share. At most
   one facility of a method does. */
typedef struct tutti_step_sizes {
    /* A step begins: sets m->samples, weight and epoch, as far as they are known. */
    void (*begin)(void *self);
    /* The next pass, before the method's hook changes it: sets its samples, where they are,
       divisor, more and exchange. */
    void (*pass)(const void *self, tutti_pass *pass);
    /* The method's hook has set the pass: takes its samples. TUTTI_ERR_STATE: not allowed. */
    tutti_status (*check)(void *self, const tutti_pass *pass, tutti_error *err);
    /* May the method's hook end the passes of this step (TUTTI_CLOSED)? */
    bool (*closed)(const void *self);
    /* The step is over: counts its samples (progress.samples). */
    tutti_status (*end)(void *self, tutti_error *err);
    /* Is there another step before the run has `samples` samples? */
    bool (*more)(void *self, uint64_t samples);
    /* Steps so far as the schedule of the learning rate counts them. */
    uint64_t (*nominal)(const void *self);
} tutti_step_sizes;
typedef struct tutti_facility_ops {
    /* Bits of the above, and those that it cannot be combined with: when the method has declared,
       the engine refuses two such facilities. */
    unsigned provides, excludes;
    const tutti_step_sizes *sizes;       /* NULL: it does not decide */
    /* Called on every rank, when x has been set to rank 0's on all workers. May communicate. */
    tutti_status (*open)(void *self, tutti_error *err);
    /* Services and the lane have ended. Called once for each facility that was added, however far
       its opening came. */
    void (*close)(void *self);
    /* A step begins on this worker: called before its first pass, and again when the step
       restarts. May communicate. */
    tutti_status (*begin)(void *self, tutti_error *err);
    /* The run is about to quiesce: on return everything that the client has started and not
       waited for is complete, with no message in flight. May communicate. Called in runs without
       services, too. */
    tutti_status (*arrive)(void *self, tutti_error *err);
    /* The run is quiescent: write to x and declared state what has to survive. May communicate with
       the members. */
    tutti_status (*quiesce)(void *self, tutti_error *err);
    /* Services are about to run, on no worker yet: restore from x and declared state. */
    tutti_status (*resume)(void *self, tutti_error *err);
    /* After resume, when all have left the barriers that follow it and this worker continues.
       Times are measured from here. */
    void (*begun)(void *self);
    /* That rank is lost, for the reason `why`. TUTTI_OK: the run can continue without it.
       Otherwise returns the error with which the run ends. Any thread; does not block. */
    tutti_status (*without)(const void *self, int rank, const char *why, tutti_error *err);
    /* Returns the number of shards in which values of x are kept outside the workers' x; a
       checkpoint records it. */
    int64_t (*slices)(const void *self);
    /* Snapshots (tutti.h, "snapshots"), for facilities that keep values of x outside the workers'
       x. The run is quiescent and has passed `points` points: makes the snapshots that are still
       missing. */
    void (*snapshot_due)(void *self, int points);
    /* Under TUTTI_UNSYNCHRONIZED_STEPS, where x is only a copy: to := the worker's model when this
       step begins, within `pass`. Contributions in flight that belong to it are added on arrival,
       before the run is quiescent. */
    void (*snapshot_values)(void *self, float *to);
    /* Within final_model: x := the snapshot of point k, on all workers. */
    tutti_status (*snapshot_final_model)(void *self, int k, tutti_error *err);
    /* All snapshots have been evaluated: drops them. */
    void (*snapshot_drop)(void *self);
    /* Is the declared state at `memory` one that cannot be read unchanged from a checkpoint of
       such a run? Then load reads it, after all the others. Neither sends anything. */
    bool (*recuts)(const void *self, const tutti_saved_run *run, const void *memory);
    tutti_status (*load)(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                         tutti_error *err);
    /* Declared state was replaced by that of a checkpoint, or written by the client. Checks it. */
    tutti_status (*loaded)(const void *self, tutti_error *err);

    /* ---- from declare() to the first step ---- */

    /* The method has declared: declares what depends on the rest, and refuses what it cannot be
       combined with. */
    tutti_status (*declared)(void *self, tutti_error *err);
    /* There is memory, and pieces are cut. */
    tutti_status (*cut)(void *self, tutti_error *err);
    /* Has the exchange of a single worker something to do? */
    bool (*exchanges_alone)(const void *self);
    /* Distributes rank 0's initial values in place of the engine. *done: it has. */
    tutti_status (*initial)(void *self, tutti_group *workers, bool *done, tutti_error *err);
    /* Memory that it takes when it is needed: fills at most one record, and returns how many. */
    size_t (*memory)(const void *self, tutti_memory_record *records);
    /* The range that this worker saves of a state of `count` elements which several workers have
       alike. */
    tutti_range (*saved_part)(const void *self, size_t count);

    /* ---- pieces and units ---- */

    /* A pass begins. */
    tutti_status (*begin_pass)(void *self, const tutti_pass *pass, tutti_error *err);
    /* The client is about to read a unit's values, or has read them. In passes and evaluations. */
    tutti_status (*acquire)(void *self, int unit, tutti_error *err);
    tutti_status (*release)(void *self, int unit, bool backward, tutti_error *err);
    /* The client is about to read rows of a table. */
    tutti_status (*acquire_rows)(void *self, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err);
    /* Where a tensor's values are, if not in x; NULL: they are not here now. */
    float *(*values)(const void *self, int tensor);
    /* A gradient is about to be announced. */
    tutti_status (*announce)(void *self, int tensor, tutti_error *err);
    /* A part of a gradient is about to be written to p->g: gives it memory. */
    tutti_status (*fill_piece)(void *self, tutti_piece *p, tutti_error *err);
    /* A piece starts; its group may be replaced. */
    void (*start_piece)(void *self, tutti_piece *p);
    /* On the thread that exchanges it: its exchange is about to begin; is over. */
    tutti_status (*begin_piece)(void *self, tutti_piece *p, tutti_error *err);
    void (*end_piece)(void *self, tutti_piece *p, tutti_status status);
    /* A pass has ended. */
    tutti_status (*end_pass)(void *self, tutti_error *err);
    /* With m->by_piece: the step's pieces continue during the next step. */
    tutti_status (*go_on)(void *self, tutti_error *err);
    /* The squared norm of the exchanged mean gradient, for clip-norm. Collective. */
    tutti_status (*norm2)(void *self, double *norm2, tutti_error *err);
    /* Values were replaced, by an update or a checkpoint. */
    tutti_status (*values_replaced)(void *self, tutti_error *err);
    /* A step has ended. */
    tutti_status (*end_step)(void *self, tutti_error *err);

    /* ---- steps ---- */

    /* There is memory, and the lane is open; values are not distributed yet. Before open. */
    tutti_status (*prepare)(void *self, tutti_error *err);
    /* Services have ended, and the lane is about to: ends threads of its own. Called once, before
       close. */
    void (*stop)(void *self);
    /* Does it exchange the gradient of this step by itself, after the step's passes? */
    bool (*exchanges)(const void *self);
    /* The method's hook has set the pass: may change it. */
    void (*pass)(void *self, tutti_pass *pass);
    /* p->g becomes this worker's gradient of the update: may change it. On the thread that
       exchanges the piece. */
    void (*take_in)(void *self, tutti_piece *p);
    /* If it exchanges: the passes of this step are over. *due: g is a gradient to be applied, which
       may be another step's; it is exchanged, and the same on all workers. */
    tutti_status (*exchange)(void *self, bool *due, tutti_error *err);
    /* The gradient in g is about to be applied: may keep it instead. *kept: then this step makes no
       update. */
    tutti_status (*keep)(void *self, bool *kept, tutti_error *err);
    /* An update was made or skipped. */
    void (*updated)(void *self);
    /* The run ends. As `exchange`; called until nothing is due. */
    tutti_status (*drain)(void *self, bool *due, tutti_error *err);
    /* Waits for what it has in flight; a failure is reported when that is due. measured: only for
       what the codec report measures. */
    void (*settle)(void *self, bool measured);
    /* Number of steps so far that made no update. */
    uint64_t (*behind)(const void *self);
} tutti_facility_ops;
/* Called within declare(), by the facility itself, once it has memory that close can free and
   before anything in it can fail. The pointer ops is kept. */
enum { TUTTI_FACILITIES_MOST = 8 };
void tutti_facility_add(tutti_method *m, const tutti_facility_ops *ops, void *self);
/* The `self` of the facility with these functions; NULL: it was not added. */
void *tutti_facility_self(const tutti_method *m, const tutti_facility_ops *ops);
/* What those that were added do of `excluded`, as the end of "method 'X' ..."; NULL: nothing. */
const char *tutti_facility_does(const tutti_method *m, unsigned excluded);
#pragma GCC visibility pop
#endif
