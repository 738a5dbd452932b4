/* commit.c: a step that is made as a whole or not at all (engine_options.commit).

     passes     gradients are exchanged as they become ready, into g
     step       the rest is exchanged: the vote about numbers that are not finite, the norm, what
                facilities have to know of each other (facility.h: exchange_rest), new values of
                shards. All of it into memory that is no state
     question   commit(user, step). Until here a failure, or false, leaves the state of the step
                before
     update     values, slots, counters, loss scale, client state: local, on each worker

   So a worker whose question was answered by true has the step, and one that has not come so far
   has the step before, also if its client fails: one that asks for the state within a step gets
   that, and gives the step up. Which of them a run goes on from is decided elsewhere
   (docs/design/membership.md).

   What passes change before the question is client state (own_values), which is copied when a step
   begins and copied back when it fails; in rounds (modes/rounds.c) also values and slots, likewise.
   Everything else that is declared as state is written after the question. Methods promise it by
   TUTTI_WHOLE_STEPS; facilities that merge, delay or size steps keep state of a step before it is
   over, and so do codecs that have a residual. Where a codec encodes logical shares its states are
   copied when a step begins, and copied back (exchange/shares.c).

   The price: pieces are not updated while others are exchanged, and updated shards are gathered
   before the step is over, not during the next one. Sums stay in g, which is there anyway. Client
   state is kept twice; shards have a second copy of their slots, and where gradients are held by
   piece there is one of all values, or where these are held by unit, of the shards' values
   (modes/shards_whole.c). */
#include "engine_internal.h"
#include "engine/refuse.h"
#include "hooks.h"

tutti_status tutti_engine_commit_declare(tutti_engine *e, tutti_error *err)
{
    static const tutti_conflict apart = {
        TUTTI_ASKED_COMMIT, "changes what it keeps before all exchanges of a step are over", NULL,
        ", or take ddp, bytescheduler(tune=off) or zero"
    };
    static const tutti_conflict codec = {
        TUTTI_ASKED_CODEC, "makes its steps as a whole or not at all here (commit)",
        ", and what it keeps of a gradient changes while that is exchanged", ", or commit"
    };
    const unsigned modes = TUTTI_MERGES_STEPS | TUTTI_LATE_GRADIENTS | TUTTI_SIZES_STEPS | TUTTI_DRIVES;

    if (e->options.commit == NULL)
        return TUTTI_OK;
    if (!tutti_exchange_has_shares(e))
        TUTTI_TRY(tutti_refuse(&e->m, &codec, 1, err));
    if ((e->m.traits & TUTTI_WHOLE_STEPS) == 0 || tutti_method_does(&e->m, modes) != NULL)
        TUTTI_TRY(tutti_refuse(&e->m, &apart, 1, err));
    if (e->options.own_values > 0)
        tutti_declare(e->plan,
                      &(tutti_state){ .name = "commit.client",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = e->options.own_values + 1 },
                      &e->commit.client);
    return TUTTI_OK;
}

void tutti_engine_commit_begin(tutti_engine *e)
{
    if (e->commit.client != NULL)
        tutti_copy(e->m.device, e->options.own_values + 1, e->own_values.now, e->commit.client);
    e->commit.begun = true;
}

tutti_status tutti_engine_commit(tutti_engine *e, tutti_error *err)
{
    const uint64_t step = e->counts.progress.step;

    if (e->options.commit == NULL)
        return TUTTI_OK;
    if (!e->options.commit(e->options.user, step))
        return tutti_fail_rank(err, TUTTI_ERR_PEER, e->m.rank,
                               "worker %d: step %llu is not committed, since the workers of the run "
                               "change; the state is that of the step before",
                               e->m.rank, (unsigned long long)step);
    e->commit.begun = false;
    e->commit.changes = true;
    return TUTTI_OK;
}

void tutti_engine_commit_over(tutti_engine *e)
{
    e->commit.changes = false;
}

void tutti_engine_commit_undo(tutti_engine *e)
{
    if (e->commit.begun && e->commit.client != NULL)
        tutti_copy(e->m.device, e->options.own_values + 1, e->commit.client, e->own_values.now);
    e->commit.begun = false;
    tutti_facilities_undo(e);
}

static bool is_within_step(const tutti_engine *e)
{
    return e->stage == STAGE_PASS || e->stage == STAGE_BETWEEN;
}

bool tutti_engine_whole(const tutti_engine *e, uint64_t *step)
{
    *step = e->counts.progress.step;
    return e->options.commit != NULL ? !e->commit.changes
                                     : e->stage != STAGE_FAILED && !is_within_step(e);
}

bool tutti_engine_commit_left(tutti_engine *e)
{
    if (e->options.commit == NULL || e->commit.changes)
        return false;
    if (is_within_step(e)) {
        e->stage = STAGE_FAILED;
        tutti_engine_commit_undo(e);
    }
    return e->stage == STAGE_FAILED;
}
