/* Pieces: the membership protocol (src/membership) in the world of epochs.h. Founders train; others
   join, leave, die (several at once, in the middle of a change), stand still, are cut off and come
   back; messages are lost, doubled and overtaken. The world checks safety after every input. When
   the faults end, a run that still has a majority and its state must be whole again. */
#include "epochs.h"
#include <string.h>

typedef unsigned long long ull;

static int pick_alive(epochs_world *w)
{
    const int first = (int)epochs_draw(w, SLOTS);

    for (int k = 0; k < SLOTS; k++)
        if (epochs_at(w, (first + k) % SLOTS) != NULL)
            return (first + k) % SLOTS;
    return -1;
}

static int pick_free(epochs_world *w)
{
    const int first = (int)epochs_draw(w, SLOTS);

    for (int k = 0; k < SLOTS; k++)
        if (epochs_at(w, (first + k) % SLOTS) == NULL)
            return (first + k) % SLOTS;
    return -1;
}

/* ---- faults ---- */

/* Would a majority of the newest epoch, and of the one before while it is not known to all, be left
   without that process, and a holder? */
static bool may_be_spared(epochs_world *w, life *l)
{
    bool left;

    l->alive = false;
    left = epochs_recoverable(w);
    l->alive = true;
    return left;
}

static void kill_some(epochs_world *w, int most, bool gentle)
{
    const int n = 1 + (int)epochs_draw(w, (uint64_t)most);

    for (int k = 0; k < n; k++) {
        const int slot = pick_alive(w);
        if (slot >= 0 && (!gentle || may_be_spared(w, epochs_at(w, slot))))
            epochs_kill(w, epochs_at(w, slot), epochs_draw(w, 2) == 0);
    }
}

static void cut_off(epochs_world *w)
{
    const uint64_t kind = epochs_draw(w, 3);
    const int a = (int)epochs_draw(w, SLOTS), b = (int)epochs_draw(w, SLOTS);
    bool side[SLOTS];

    for (int k = 0; k < SLOTS; k++)
        side[k] = kind > 0 && epochs_draw(w, kind == 1 ? 2 : 4) == 0;
    for (int i = 0; i < SLOTS; i++)
        for (int j = 0; j < SLOTS; j++)
            w->cut[i][j] = w->cut[i][j] || side[i] != side[j];
    if (kind == 0) /* one direction of one link */
        w->cut[a][b] = true;
    if (epochs_draw(w, 2) == 0)
        epochs_report_cuts(w);
}

static void start_one(epochs_world *w)
{
    const int slot = pick_free(w);

    if (slot >= 0)
        (void)epochs_join(w, slot);
}

static void fault(epochs_world *w, bool gentle)
{
    const uint64_t kind = epochs_draw(w, 16);
    const int slot = pick_alive(w);

    if (kind < 3)
        kill_some(w, 1, gentle);
    else if (kind < 5)
        kill_some(w, 3, gentle);
    else if (kind < 9)
        start_one(w);
    else if (kind < 10 && slot >= 0 && epochs_alive(w) > 2)
        epochs_leave(w, epochs_at(w, slot));
    else if (kind < 12)
        cut_off(w);
    else if (kind < 14)
        memset(w->cut, 0, sizeof w->cut);
    else if (kind < 15 && slot >= 0)
        epochs_pause(w, epochs_at(w, slot), (int64_t)epochs_draw(w, 4000) * MS);
    else if (slot >= 0) /* a false alarm */
        tutti_membership_lost(epochs_at(w, slot)->m, w->now_ns, 1 + epochs_draw(w, (uint64_t)w->n_lives));
    if (slot >= 0 && epochs_at(w, slot) != NULL)
        epochs_observe(w, epochs_at(w, slot));
}

/* Until then all must be well after the faults: suspicion, a change or two for those that are lost,
   the return of those that were cut off, one for their admission. */
enum { SETTLES_MS = 14000 };

static tutti_status go_through(epochs_world *w, tutti_error *err)
{
    const bool gentle = epochs_draw(w, 5) > 0;
    const int faults = 10 + (int)epochs_draw(w, 25);
    const int64_t mean_ns = (100 + (int64_t)epochs_draw(w, 1200)) * MS;
    bool well;

    w->loss = (int)epochs_draw(w, 3) * (int)epochs_draw(w, 60);
    w->twice = (int)epochs_draw(w, 100);
    w->late = (int)epochs_draw(w, 2) * (int)epochs_draw(w, 200);
    w->latency_ns = (int64_t)(1 + epochs_draw(w, 40)) * MS;
    for (int k = 0; k < faults; k++) {
        fault(w, gentle);
        if (k % 6 == 5 && epochs_at(w, k % SLOTS) != NULL)
            epochs_renew(w, epochs_at(w, k % SLOTS));
        TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, 2 * (uint64_t)mean_ns), err));
    }
    epochs_heal(w);
    /* what is under way, an admission of one that is dead by now, may still cost the majority */
    TUTTI_TRY(epochs_run(w, w->now_ns + 1500LL * MS, err));
    well = epochs_recoverable(w);
    explore_note("%llu changes, %llu deaths, %llu joins, %llu leaves, %llu returns; %s", (ull)w->changes,
                 (ull)w->deaths, (ull)w->joins, (ull)w->leaves, (ull)w->returns,
                 well ? "is to settle" : "a majority is lost");
    TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)(well ? SETTLES_MS : 3000) * MS, err));
    if (well) {
        const uint64_t step = w->lives[w->decided[w->newest]->members[0].id - 1].step;
        TUTTI_TRY(epochs_settled(w, err));
        TUTTI_TRY(epochs_run(w, w->now_ns + 2000LL * MS, err));
        EXPLORE_EXPECT(w->lives[w->decided[w->newest]->members[0].id - 1].step > step,
                       "no step is made after step %llu", (ull)step);
    }
    return TUTTI_OK;
}

static tutti_status through_faults(explore_case *c, bool synchronous, int most, tutti_error *err)
{
    epochs_world *const w = epochs_open(c->seed, 1 + (int)explore_draw(c, "founders", (uint64_t)most), synchronous);
    tutti_status status;

    status = go_through(w, err);
    epochs_close(w);
    return status;
}

static tutti_status faults_in_step(tutti_world *world, explore_case *c, tutti_error *err)
{
    (void)world;
    return through_faults(c, true, 7, err);
}

static tutti_status faults_at_own_pace(tutti_world *world, explore_case *c, tutti_error *err)
{
    (void)world;
    return through_faults(c, false, 7, err);
}

static tutti_status faults_of_few(tutti_world *world, explore_case *c, tutti_error *err)
{
    (void)world;
    return through_faults(c, explore_draw(c, "in step", 2) == 0, 3, err);
}

/* ---- joins and leaves alone ---- */

/* No part that a member has given to a step is thrown away, and all keep the state. */
static tutti_status nothing_is_lost(epochs_world *w, uint64_t since, tutti_error *err)
{
    EXPLORE_EXPECT(w->returns == 0, "%llu members were removed, and nothing was wrong with them", (ull)w->returns);
    for (uint64_t k = since + 1; k <= w->newest; k++)
        for (int i = 0; i < w->decided[k]->n; i++) {
            const tutti_member *const a = &w->decided[k]->members[i];
            EXPLORE_EXPECT(a->holds || a->rank >= w->decided[k - 1]->next_rank,
                           "life %llu has lost its state as epoch %llu began, and nothing was wrong", (ull)a->id,
                           (ull)k);
        }
    for (int k = 0; k < w->n_lives; k++) {
        const life *const l = &w->lives[k];
        if (!l->alive || l->frozen_ns == 0)
            continue;
        EXPLORE_EXPECT(l->contributed_epoch != l->epoch || l->contributed_step <= l->step,
                       "life %llu drops step %llu as epoch %llu ends", (ull)l->id, (ull)l->contributed_step,
                       (ull)l->epoch);
        EXPLORE_EXPECT(w->now_ns - l->frozen_ns < 300LL * MS,
                       "life %llu stands still for %.3f s, for a change without a loss", (ull)l->id,
                       (double)(w->now_ns - l->frozen_ns) * 1e-9);
    }
    return TUTTI_OK;
}

/* The last one cannot leave: it stays until another one has its state. */
static tutti_status leave_alone(epochs_world *w, tutti_error *err)
{
    const uint64_t since = w->newest;

    epochs_leave(w, epochs_at(w, pick_alive(w)));
    TUTTI_TRY(epochs_run(w, w->now_ns + 500LL * MS, err));
    EXPLORE_EXPECT(w->newest == since && epochs_alive(w) == 1, "the only member has left, or goes from epoch to epoch");
    start_one(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + 4000LL * MS, err));
    EXPLORE_EXPECT(epochs_alive(w) == 1, "the member that waited for another has not left");
    return epochs_settled(w, err);
}

static tutti_status come_and_go(epochs_world *w, tutti_error *err)
{
    for (int k = 0; k < 12; k++) {
        const uint64_t since = w->newest;
        const int slot = pick_alive(w), left = epochs_alive(w);
        const bool leaves = left > 1 && (left > SLOTS - 3 || epochs_draw(w, 2) == 0);
        if (left == 1 && epochs_draw(w, 3) == 0) {
            TUTTI_TRY(leave_alone(w, err));
            continue;
        }
        if (leaves)
            epochs_leave(w, epochs_at(w, slot));
        for (int n = (int)epochs_draw(w, 3); n >= 0 && !leaves; n--)
            start_one(w);
        for (int64_t end = w->now_ns + 3000LL * MS; w->now_ns < end;) {
            TUTTI_TRY(epochs_run(w, w->now_ns + 5LL * MS, err));
            TUTTI_TRY(nothing_is_lost(w, since, err));
        }
        TUTTI_TRY(epochs_settled(w, err));
        EXPLORE_EXPECT(w->newest > since, "nobody was admitted or left within 3 s");
        EXPLORE_EXPECT(!leaves || epochs_alive(w) == left - 1, "the worker at slot %d has not left within 3 s", slot);
    }
    return TUTTI_OK;
}

/* ---- epochs that members ask for ---- */

/* One epoch, of the same members and those that have come, however many have asked for it. */
static tutti_status renewals(epochs_world *w, tutti_error *err)
{
    for (int k = 0; k < 12; k++) {
        const uint64_t since = w->newest, asks = 1 + epochs_draw(w, SLOTS);
        const bool comes = epochs_draw(w, 3) == 0, all = epochs_draw(w, 2) == 0;
        const int before = epochs_alive(w), first = pick_alive(w);
        for (int slot = 0; slot < SLOTS; slot++)
            if (epochs_at(w, slot) != NULL && (slot == first || all || epochs_draw(w, asks) == 0))
                epochs_renew(w, epochs_at(w, slot));
        if (comes)
            start_one(w);
        for (int64_t end = w->now_ns + 3000LL * MS; w->now_ns < end;) {
            TUTTI_TRY(epochs_run(w, w->now_ns + 5LL * MS, err));
            TUTTI_TRY(nothing_is_lost(w, since, err));
        }
        TUTTI_TRY(epochs_settled(w, err));
        EXPLORE_EXPECT(w->newest > since, "none of %d members has begun the epoch that it was asked for", before);
        EXPLORE_EXPECT(w->newest <= since + 1 + comes, "epochs follow each other: from %llu to %llu", (ull)since,
                       (ull)w->newest);
        EXPLORE_EXPECT(epochs_alive(w) >= before, "a member is gone since an epoch was asked for");
    }
    return TUTTI_OK;
}

static tutti_status asked_for(tutti_world *world, explore_case *c, tutti_error *err)
{
    epochs_world *const w = epochs_open(c->seed, 1 + (int)explore_draw(c, "founders", 6), true);
    tutti_status status;

    (void)world;
    w->step_ns = 90LL * MS;
    w->step_least_ns = 2 * w->latency_ns;
    status = renewals(w, err);
    epochs_close(w);
    return status;
}

static tutti_status calm(tutti_world *world, explore_case *c, tutti_error *err)
{
    epochs_world *const w = epochs_open(c->seed, 1 + (int)explore_draw(c, "founders", 6), true);
    tutti_status status;

    (void)world;
    w->step_ns = 90LL * MS;
    w->step_least_ns = 2 * w->latency_ns; /* else a member may be past the step that the change names */
    status = come_and_go(w, err);
    epochs_close(w);
    return status;
}

/* ---- one loss at a time ---- */

static bool kill_at(epochs_world *w, int slot, bool noticed)
{
    if (slot < 0 || !may_be_spared(w, epochs_at(w, slot)))
        return false;
    epochs_kill(w, epochs_at(w, slot), noticed);
    return true;
}

static int slot_of_first(const epochs_world *w)
{
    return w->lives[w->decided[w->newest]->members[0].id - 1].slot;
}

static tutti_status none_else_removed(const epochs_world *w, uint64_t since, tutti_error *err)
{
    for (int i = 0; i < w->decided[since]->n; i++) {
        const uint64_t id = w->decided[since]->members[i].id;
        EXPLORE_EXPECT(tutti_epoch_find(w->decided[w->newest], id) >= 0 || !w->lives[id - 1].alive,
                       "life %llu was removed, and another was lost", (ull)id);
    }
    return TUTTI_OK;
}

static bool all_dead_are_out(const epochs_world *w)
{
    bool out = true;

    for (int i = 0; i < w->decided[w->newest]->n; i++)
        out = out && w->lives[w->decided[w->newest]->members[i].id - 1].alive;
    return out;
}

/* A loss is mended as soon as it is known: at once where the transport reports it, else when the
   member has been silent for long enough. Which member it was makes no difference, nor whether a
   newcomer is being admitted, or another loss mended: often the one that proposes is lost, too. */
static tutti_status lose_some(epochs_world *w, tutti_error *err)
{
    const bool noticed = epochs_draw(w, 2) == 0;
    const int64_t most_ns = noticed ? 600LL * MS : DEAD_NS + 500LL * MS;
    const uint64_t since = w->newest;
    int slot = -1;

    if (epochs_draw(w, 2) == 0 && epochs_alive(w) < SLOTS - 3) {
        start_one(w);
        TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, 1000) * MS, err));
    }
    for (int n = (int)epochs_draw(w, 3); n >= 0; n--) {
        slot = epochs_draw(w, 2) == 0 ? slot_of_first(w) : pick_alive(w);
        if (epochs_at(w, slot) == NULL || !kill_at(w, slot, noticed))
            continue;
        TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, noticed ? 150 : 1500) * MS, err));
    }
    TUTTI_TRY(epochs_run(w, w->now_ns + most_ns, err));
    if (!epochs_recoverable(w)) /* the last that had the state, or half of a majority, went in a change */
        return TUTTI_CLOSED;
    EXPLORE_EXPECT(all_dead_are_out(w), "a member that is %s is in the epoch %.3f s later",
                   noticed ? "reported as lost" : "silent", (double)most_ns * 1e-9);
    TUTTI_TRY(none_else_removed(w, since, err));
    start_one(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + 5000LL * MS, err));
    return epochs_settled(w, err);
}

static tutti_status losses(tutti_world *world, explore_case *c, tutti_error *err)
{
    const bool synchronous = explore_draw(c, "in step", 2) == 0;
    epochs_world *const w = epochs_open(c->seed, 2 + (int)explore_draw(c, "founders", 6), synchronous);
    tutti_status status = TUTTI_OK;

    (void)world;
    for (int k = 0; k < 8 && status == TUTTI_OK; k++)
        status = lose_some(w, err);
    epochs_close(w);
    return status == TUTTI_CLOSED ? TUTTI_OK : status;
}

/* ---- programs that fail ---- */

/* The times that src/elastic/follow.c gives one that fails, in boundaries of the protocol. */
#define FAILING_NS (4 * BOUNDARY_NS)
#define FAILING_MOST_NS (10 * FAILING_NS)

/* Members whose program fails make no step any more. They leave in order all the same, also while
   another is admitted or does not have the state yet, and one that is left goes on. */
static tutti_status fail_some(epochs_world *w, tutti_error *err)
{
    const bool joins = epochs_alive(w) < 2 || (epochs_alive(w) < 5 && epochs_draw(w, 2) == 0);
    const uint64_t deaths = w->deaths, since = w->newest;
    int fail = 1 + (int)epochs_draw(w, 2);

    if (joins)
        start_one(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, 1500) * MS, err));
    for (; fail > 0 && epochs_alive(w) > 1; fail--) {
        life *const l = epochs_at(w, epochs_draw(w, 2) == 0 ? slot_of_first(w) : pick_alive(w));
        if (l == NULL || l->fails_ns != 0 || tutti_membership_state_of(l->m) != TUTTI_MEMBER)
            continue;
        epochs_fail_program(w, l, FAILING_NS, FAILING_MOST_NS);
        if (epochs_alive(w) < 3)
            break; /* one stays */
        TUTTI_TRY(epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, 100) * MS, err));
    }
    TUTTI_TRY(epochs_run(w, w->now_ns + FAILING_NS + 3 * w->fetch_ns + 1000LL * MS, err));
    EXPLORE_EXPECT(w->deaths == deaths, "a member that has failed ends, and has not left");
    TUTTI_TRY(none_else_removed(w, since, err));
    return epochs_settled(w, err);
}

static tutti_status failures(tutti_world *world, explore_case *c, tutti_error *err)
{
    epochs_world *const w = epochs_open(c->seed, 1 + (int)explore_draw(c, "founders", 3), true);
    tutti_status status = TUTTI_OK;

    (void)world;
    if (explore_draw(c, "slow fetches", 2) == 1)
        w->fetch_ns = 2 * FAILING_NS;
    for (int k = 0; k < 8 && status == TUTTI_OK; k++)
        status = fail_some(w, err);
    epochs_close(w);
    return status;
}

/* ---- proposers against each other ---- */

static void false_alarms(epochs_world *w)
{
    const tutti_epoch *const e = w->decided[w->newest];

    for (int slot = 0; slot < SLOTS; slot++) {
        life *const l = epochs_at(w, slot);
        if (l == NULL || epochs_draw(w, 2) == 0)
            continue;
        tutti_membership_lost(l->m, w->now_ns, e->members[epochs_draw(w, (uint64_t)e->n)].id);
        epochs_observe(w, l);
    }
}

/* Members take over from each other sooner than messages arrive, and suspect whoever is slow: many
   ballots are in flight at a time. Only safety is looked at. */
static tutti_status duel(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int founders = 3 + (int)explore_draw(c, "founders", 3);
    epochs_world *const w = epochs_open_with(c->seed, founders, false, 300LL * MS, 25LL * MS);
    tutti_status status = TUTTI_OK;

    (void)world;
    w->late = 300;
    w->latency_ns = (int64_t)(20 + epochs_draw(w, 150)) * MS;
    w->loss = (int)epochs_draw(w, 200);
    for (int k = 0; k < 80 && status == TUTTI_OK; k++) {
        life *const l = epochs_at(w, pick_alive(w));
        const uint64_t kind = epochs_draw(w, 6);
        if (kind == 0)
            start_one(w);
        else if (kind == 1)
            epochs_pause(w, l, (int64_t)epochs_draw(w, 500) * MS);
        else if (kind == 2)
            cut_off(w);
        else if (kind == 3)
            memset(w->cut, 0, sizeof w->cut);
        false_alarms(w);
        status = epochs_run(w, w->now_ns + (int64_t)epochs_draw(w, 200) * MS, err);
    }
    epochs_close(w);
    return status;
}

/* ---- links ---- */

static bool anyone_acts(const epochs_world *w)
{
    bool any = false;

    for (int k = 0; k < w->n_lives; k++)
        any = any || (w->lives[k].alive && tutti_membership_acts(w->lives[k].m));
    return any;
}

/* All links break, and come back. In between nobody hears a majority: all wait, and nothing is
   decided. */
static tutti_status all_apart(epochs_world *w, tutti_error *err)
{
    const uint64_t since = w->newest;

    memset(w->cut, true, sizeof w->cut);
    if (epochs_draw(w, 2) == 0)
        epochs_report_cuts(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + DEAD_NS + (int64_t)(200 + epochs_draw(w, 2000)) * MS, err));
    EXPLORE_EXPECT(!anyone_acts(w), "a member acts, and no two hear each other");
    EXPLORE_EXPECT(w->newest == since, "epoch %llu was decided, and no two hear each other", (ull)w->newest);
    epochs_heal(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + 6000LL * MS, err));
    return epochs_settled(w, err);
}

/* Two members that are not the first lose each other. The first hears both, so one of the two has
   to see to it. */
static tutti_status two_apart(epochs_world *w, tutti_error *err)
{
    const uint64_t since = w->newest;
    const int a = 1 + (int)epochs_draw(w, (uint64_t)w->decided[since]->n - 2);
    const int x = w->lives[w->decided[since]->members[a].id - 1].slot;
    const int y = w->lives[w->decided[since]->members[a + 1].id - 1].slot;

    w->cut[x][y] = true;
    w->cut[y][x] = epochs_draw(w, 2) == 0;
    TUTTI_TRY(epochs_run(w, w->now_ns + DEAD_NS + (w->decided[since]->n + 1) * RETRY_NS, err));
    EXPLORE_EXPECT(w->newest > since, "two members do not hear each other, and are in one epoch");
    epochs_heal(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + 6000LL * MS, err));
    return epochs_settled(w, err);
}

/* A step takes very long. Who comes or leaves waits for its end for a limited time. */
static tutti_status long_step(epochs_world *w, tutti_error *err)
{
    const uint64_t since = w->newest;
    const int64_t step_ns = w->step_ns;

    w->step_ns = INT64_MAX;
    start_one(w);
    TUTTI_TRY(epochs_run(w, w->now_ns + 1000LL * MS + BOUNDARY_NS, err));
    EXPLORE_EXPECT(w->newest > since, "a newcomer waits for a step that does not end");
    w->step_ns = step_ns;
    TUTTI_TRY(epochs_run(w, w->now_ns + 1000LL * MS, err));
    return epochs_settled(w, err);
}

static tutti_status links(tutti_world *world, explore_case *c, tutti_error *err)
{
    epochs_world *const w = epochs_open(c->seed, 3 + (int)explore_draw(c, "founders", 4), true);
    tutti_status status;

    (void)world;
    status = epochs_run(w, 500LL * MS, err);
    for (int k = 0; k < 6 && status == TUTTI_OK; k++) {
        const uint64_t kind = epochs_draw(w, 3);
        status = kind == 0 ? all_apart(w, err) : kind == 1 ? two_apart(w, err) : long_step(w, err);
    }
    epochs_close(w);
    return status;
}

const explore_piece explore_epochs_pieces[] = {
    { .name = "epochs-in-step",
      .help = "members agree on epochs through faults; a step needs all members",
      .least = 1, .most = 1, .rank_main = faults_in_step },
    { .name = "epochs-own-pace",
      .help = "members agree on epochs through faults; each makes its own steps",
      .least = 1, .most = 1, .rank_main = faults_at_own_pace },
    { .name = "epochs-few",
      .help = "the same with one to three founders, where halves decide",
      .least = 1, .most = 1, .rank_main = faults_of_few },
    { .name = "epochs-calm",
      .help = "members join and leave, and no step is thrown away",
      .least = 1, .most = 1, .rank_main = calm },
    { .name = "epochs-renewed",
      .help = "members ask for the next epoch: there is one, with all of them, and no step is thrown away",
      .least = 1, .most = 1, .rank_main = asked_for },
    { .name = "epochs-loss",
      .help = "members are lost, and the next epoch begins as soon as that is known",
      .least = 1, .most = 1, .rank_main = losses },
    { .name = "epochs-failure",
      .help = "programs of members fail, also while others join, and they leave in order",
      .least = 1, .most = 1, .rank_main = failures },
    { .name = "epochs-duel",
      .help = "members take over from each other all the time, and agree all the same",
      .least = 1, .most = 1, .rank_main = duel },
    { .name = "epochs-links",
      .help = "links break and come back, and steps do not end",
      .least = 1, .most = 1, .rank_main = links },
    { 0 }
};
