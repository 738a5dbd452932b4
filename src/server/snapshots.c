/* snapshots.c: the servers' part of snapshots of the model (tutti.h).

   The values are here, and not at the workers, whose copies may be of any time. Each request
   states how many points its worker has passed, in bits that its version does not need. Before a
   server processes the first request from beyond a point, its shard is the model of that point:
   it has gradients from before the point only. Several servers see that request at different
   moments, as they see all others. No message is added, so a run with points equals the run
   without. */
#include <assert.h>
#include <stdlib.h>

#include "server_internal.h"

void tutti_server_snapshot_declare(tutti_server *s, tutti_plan *plan)
{
    const size_t room = (size_t)tutti_engine_snapshot_capacity(s->m->engine);

    assert(room < 1u << 15);
    if (room > 0 && s->index >= 0 && s->count > 0)
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.aside",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = room * s->count },
                      &s->snapshot);
}

int64_t tutti_server_snapshot_mark(const tutti_server *s)
{
    return (int64_t)tutti_engine_snapshots_passed(s->m->engine) << VERSION_BITS;
}

static void save_snapshots(tutti_server *s, int points)
{
    for (; s->snapshot != NULL && s->snapshot_due < points; s->snapshot_due++) {
        tutti_copy(s->m->device, s->count, s->values,
                   s->snapshot + (size_t)s->snapshot_due * s->count);
        tutti_engine_snapshot_served(s->m->engine, s->snapshot_due);
    }
}

tutti_status tutti_server_snapshot_look(tutti_server *s, tutti_header *note, tutti_error *err)
{
    const int64_t passed = note->a >> VERSION_BITS;

    if (passed == 0)
        return TUTTI_OK;
    if (passed < 0 || passed > tutti_engine_snapshot_capacity(s->m->engine))
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, note->from,
            "worker %d reports that it has passed %lld points at which models are kept, of at most "
            "%d; all workers must run one version",
            note->from, (long long)passed, tutti_engine_snapshot_capacity(s->m->engine));
    note->a &= (INT64_C(1) << VERSION_BITS) - 1;
    save_snapshots(s, (int)passed);
    return TUTTI_OK;
}

/* ---- at quiescence ---- */

void tutti_server_snapshot_due(void *self, int points)
{
    save_snapshots(self, points);
}

tutti_status tutti_server_snapshot_final_model(void *self, int k, tutti_error *err)
{
    tutti_server *s = self;
    float *const now = s->values;
    tutti_status status;

    if (s->snapshot != NULL)
        s->values = s->snapshot + (size_t)k * s->count;
    status = tutti_server_final_model(s, err);
    s->values = now;
    return status;
}

void tutti_server_snapshot_drop(void *self)
{
    ((tutti_server *)self)->snapshot_due = 0;
}
