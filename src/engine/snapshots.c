/* snapshots.c: snapshots of the model that are taken while the run continues (tutti.h), so that a
   curve of a method whose workers do not step together costs them no meeting.

   Each worker takes its snapshot by itself, at a point that the order of the gradients
   determines: nothing is sent, and in a simulated run no time passes. So a run with snapshots
   equals the run without, to the bit. The model is assembled when the run next quiesces.

   Two alternatives were rejected: evaluating in a thread, which takes cores from the computation
   and would have to fetch the others' models while these train; and evaluating on a rank of its
   own, which would share the workers' links. The price is memory. It has a bound, at which the
   client quiesces, and is declared, so a run that does not fit is refused before it begins. */
#include <errno.h>

#include "engine_internal.h"
#include "hooks.h"

/* While quiescent: the number of gradients of the run, or of steps if they are common. */
static uint64_t done(const tutti_engine *e)
{
    return e->is_async ? e->pace.agreed : e->counts.progress.step;
}

/* The index of the gradient, or step, that this worker computes now. */
static uint64_t position(const tutti_engine *e)
{
    return e->is_async ? e->pace.gradient : e->counts.progress.step;
}

static uint64_t my_samples(const tutti_engine *e)
{
    return e->is_async ? e->counts.own.samples : e->snapshots.samples;
}

tutti_status tutti_engine_snapshots_open(tutti_engine *e, tutti_error *err)
{
    tutti_engine_store *a = &e->snapshots;

    if (!(e->m.traits & (TUTTI_ASYNC | TUTTI_UNSYNCHRONIZED_STEPS)) ||
        e->options.snapshot_every == 0 || e->options.snapshot_most <= 0)
        return TUTTI_OK;
    a->capacity = e->options.snapshot_most;
    a->at = tutti_alloc((size_t)a->capacity, sizeof *a->at);
    return a->at != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing %d snapshots", a->capacity);
}

void tutti_engine_snapshots_declare(tutti_engine *e)
{
    tutti_engine_store *a = &e->snapshots;
    /* one more, for the run's own model during the evaluation of a snapshot */
    const size_t room = a->capacity > 0 ? (size_t)a->capacity + 1 : 0,
                 n = e->m.rank < e->m.workers ? e->m.n : 0;
    const tutti_state x = {
        .name = "engine.aside", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = room * n
    };
    const tutti_state own = { .name = "engine.aside-client",
                              .keep = TUTTI_SCRATCH,
                              .dtype = TUTTI_F32,
                              .count = room * (e->options.own_values + 1) };

    if (room > 0 && n > 0)
        tutti_declare(e->plan, &x, &a->x);
    if (room > 0 && e->options.own_values > 0)
        tutti_declare(e->plan, &own, &a->own);
}

void tutti_engine_snapshots_close(tutti_engine *e)
{
    tutti_free(e->snapshots.at);
}

int tutti_engine_snapshot_capacity(const tutti_engine *e)
{
    return e->snapshots.capacity;
}

int tutti_engine_snapshots_passed(const tutti_engine *e)
{
    return e->snapshots.passed;
}

/* ---- while the run continues ---- */

/* After a loss all may quiesce and resume without an evaluation: points passed before stay
   passed. */
void tutti_engine_snapshots_begin(tutti_engine *e)
{
    tutti_engine_store *a = &e->snapshots;

    if (a->capacity == 0 || a->begun)
        return;
    a->begun = true;
    a->first = done(e) / e->options.snapshot_every;
}

static uint64_t next_point(const tutti_engine *e)
{
    return (e->snapshots.first + (uint64_t)e->snapshots.passed + 1) * e->options.snapshot_every;
}

static uint64_t services_bytes(tutti_engine *e)
{
    uint64_t bytes;

    tutti_lock(e->services.monitor);
    bytes = e->services.bytes;
    tutti_unlock(e->services.monitor);
    return bytes;
}

/* Takes a snapshot. resting: x is the worker's model */
static void save_snapshot(tutti_engine *e, bool resting)
{
    tutti_engine_store *a = &e->snapshots;
    const size_t own = e->options.own_values + 1;
    tutti_engine_snapshot_at *at = &a->at[a->passed];
    float *const to = a->x != NULL ? a->x + (size_t)a->passed * e->m.n : NULL;
    tutti_figures f;

    tutti_engine_figures(e, &f);
    at->wall_ns = f.wall_ns;
    at->samples = my_samples(e);
    at->bytes = at->served ? f.bytes_sent - (services_bytes(e) - at->bytes) : f.bytes_sent;
    at->served = false;
    if (to != NULL && (resting || e->is_async || !tutti_facilities_snapshot_values(e, to)))
        tutti_copy(e->m.device, e->m.n, e->m.x, to);
    if (a->own != NULL)
        tutti_copy(e->m.device, own, e->own_values.now, a->own + (size_t)a->passed * own);
    a->passed++;
}

void tutti_engine_snapshots_pass(tutti_engine *e)
{
    tutti_engine_store *a = &e->snapshots;
    tutti_doing was;

    if (a->passed >= a->capacity || !a->begun || position(e) < next_point(e))
        return;
    /* evaluation is not part of the method's cost */
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    while (a->passed < a->capacity && position(e) >= next_point(e))
        save_snapshot(e, false);
    tutti_engine_doing(e, was);
}

/* Stores in `bytes` what its services had sent then; put() computes from it what the rank had
   sent. */
void tutti_engine_snapshot_served(tutti_engine *e, int k)
{
    if (e->m.rank < e->m.workers)
        return;
    e->snapshots.at[k].served = true;
    e->snapshots.at[k].bytes = services_bytes(e);
}

/* ---- while quiescent ---- */

static tutti_status quiesce_engine(tutti_engine *e, tutti_error *err)
{
    const tutti_status status = tutti_engine_quiesce(e, err);

    if (status != TUTTI_OK)
        e->stage = STAGE_FAILED;
    return tutti_engine_cause(e, status, err);
}

tutti_status tutti_engine_snapshots(tutti_engine *e, int *n, tutti_error *err)
{
    tutti_engine_store *a = &e->snapshots;
    uint64_t points;
    tutti_doing was;

    *n = a->passed;
    if (!a->begun || e->stage != STAGE_READY) /* finish has done it already */
        return TUTTI_OK;
    if (!e->is_async && !e->services.held)
        TUTTI_TRY(quiesce_engine(e, err));
    points = done(e) / e->options.snapshot_every - a->first;
    points = points < (uint64_t)a->capacity ? points : (uint64_t)a->capacity;
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    tutti_facilities_snapshot_due(e, (int)points);
    while (a->passed < (int)points)
        save_snapshot(e, true);
    tutti_engine_doing(e, was);
    *n = a->passed;
    return TUTTI_OK;
}

void tutti_engine_snapshot(const tutti_engine *e, int k, tutti_snapshot *snapshot)
{
    const tutti_engine_snapshot_at *at = &e->snapshots.at[k];

    *snapshot = (tutti_snapshot){ .gradients = (e->snapshots.first + (uint64_t)k + 1) *
                                               e->options.snapshot_every,
                                  .wall_ns = at->wall_ns,
                                  .bytes_sent = at->bytes,
                                  .samples_since = my_samples(e) - at->samples };
}

void tutti_engine_drop_snapshots(tutti_engine *e)
{
    e->snapshots.begun = false;
    e->snapshots.passed = 0;
    if (e->snapshots.capacity > 0)
        tutti_facilities_snapshot_drop(e);
}

/* The snapshot stays where it is, and serves as the worker's own model (e->kept) meanwhile. After
   finish e->kept is needed again. */
void tutti_engine_snapshot_take(tutti_engine *e, int k)
{
    tutti_engine_store *a = &e->snapshots;
    const size_t n = e->m.n, own = e->options.own_values + 1, spare = (size_t)a->capacity;

    a->was = e->stage;
    a->shown = 1 + k;
    a->kept = e->kept;
    a->own_kept = e->own_values.kept;
    if (a->x != NULL) {
        tutti_copy(e->m.device, n, e->m.x, a->x + spare * n);
        tutti_copy(e->m.device, n, a->x + (size_t)k * n, e->m.x);
        e->kept = e->kept != NULL ? a->x + (size_t)k * n : NULL;
    }
    if (a->own != NULL) {
        tutti_copy(e->m.device, own, e->own_values.now, a->own + spare * own);
        tutti_copy(e->m.device, own, a->own + (size_t)k * own, e->own_values.now);
        e->own_values.kept = e->own_values.kept != NULL ? a->own + (size_t)k * own : NULL;
    }
    e->values_changed = true;
}

tutti_status tutti_engine_snapshot_final_model(tutti_engine *e, int k, tutti_error *err)
{
    tutti_method *m = &e->m;
    bool at_servers;

    TUTTI_TRY(tutti_facilities_snapshot_final_model(e, k, &at_servers, err));
    /* a node group has one model, and the mean of equal models need not equal it to the bit */
    return at_servers || m->workers == m->team || m->rank >= m->workers
               ? TUTTI_OK
               : tutti_average(m, m->x, err);
}

void tutti_engine_snapshot_back(tutti_engine *e)
{
    tutti_engine_store *a = &e->snapshots;
    const size_t n = e->m.n, own = e->options.own_values + 1, spare = (size_t)a->capacity;

    if (a->x != NULL)
        tutti_copy(e->m.device, n, a->x + spare * n, e->m.x);
    if (a->own != NULL)
        tutti_copy(e->m.device, own, a->own + spare * own, e->own_values.now);
    e->kept = a->kept;
    e->own_values.kept = a->own_kept;
    a->shown = 0;
    e->stage = a->was;
}
