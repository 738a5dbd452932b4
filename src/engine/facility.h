/* facility.h: a facility is a part that several methods share, such as a mixer (gossip.h) or
   servers (server.h), between the engine and the methods. The method declares it within its
   declare(), where the facility registers itself. From then on the engine calls the functions below
   in addition to the method's hooks, so the method need not call them.

   Order: facilities in the order in which they were added, and then the method's hook of that
   name, which may use them. Close is the reverse: the method, then facilities in reverse order.
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
typedef struct tutti_facility_ops {
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
} tutti_facility_ops;
/* Called within declare(), by the facility itself, once it has memory that close can free and
   before anything in it can fail. The pointer ops is kept. */
enum { TUTTI_FACILITIES_MOST = 8 };
void tutti_facility_add(tutti_method *m, const tutti_facility_ops *ops, void *self);
#pragma GCC visibility pop
#endif
