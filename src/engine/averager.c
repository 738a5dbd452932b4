/* averager.c: models that are averaged beside the computation. The model is s, under a door; the client takes its gradients at a snapshot and applies them to s; a round takes
   u <- s, makes a(u) of it together with others, and adds the difference: s <- s + (a(u) - u). So steps made meanwhile stay, the sum of all models is kept whatever happens in
   between, and nobody waits with the door shut.

   Rounds take all members, or all neighbours of a graph's round, so all must make the same ones. Two ways:
     with all (lasgd, delay-by-one)     each worker owes its service a round at the same steps; the round is an all-reduce. All have made equally many steps whenever all is quiet.
     beats (rings at one's own pace)    nobody may wait for a slow worker's next gradient, so a round is granted by all together: each gradient is told to one worker, the lowest, which for every `workers` of
                                        them grants so many rounds, to each at once, and answers with how many that makes. Told gradients and grants go to servers that do nothing but note them and answer, and rounds are made by a thread that
                                        asks nobody; so a member waits in a round only for those who have, or are about to get, the same grant: no ring of waiting whatever the graph. A client waits for
                                        the rounds that it was granted, so rounds that are slower than gradients hold the gradients back instead of piling up.
   All rounds that are granted are made before all is quiet: told gradients, grants and answers are calls, which quiet counts, and a round that is granted is owed. So after G gradients exactly
   floor(G rounds / workers) rounds have been made, by everybody.

   In a run that goes on after losses (TUTTI_GOES_ON) rounds leave the lost out, and all who are left must still make the same ones:
     with all     a loss in the middle of the all-reduce fails it on some and not on others, so each round ends with an agreement of the services (comm.h: tutti_members_agree) and is made again, of the same
                  u, over those who are left, if it was spoilt for anybody. Without a loss that is an exchange of 40 bytes with each other member, beside the computation.
     beats        who grants may be lost between two it grants to; or it lives, and only its connection to one of them has failed. So whoever learns of a loss tells all others, once, the number of the last round
                  that it knows to be granted; and while anybody is lost to it and not yet to all (that is agreed when all are quiet), it hands on every number that comes, as does whom it tells: what one of those
                  who are left has been granted, all get (eager reliable broadcast: Cachin, Guerraoui, Rodrigues, "Introduction to Reliable and Secure Distributed Programming", 2nd ed. 2011, section 3.8.2, begun
                  where it may be needed). From a lost worker nothing is taken any more, so what is told then is all there is. Numbers only rise, so who hears one twice makes nothing twice, and two who both hold
                  themselves for the lowest do no harm. `workers` is how many are left: those average once a gradient of their own, as before. What the lost one had heard and not yet granted is forgotten. */
#include <errno.h>

#include "engine_internal.h"

struct tutti_averager {
    tutti_method *m;
    tutti_mixer *mixer;          /* NULL: with all */
    tutti_members *members;      /* the service's that makes rounds with all, in a run that goes on; NULL: it does not */
    int64_t rounds;              /* a step; 0: owed by the method */
    int tell, beat, mix, average; /* services */
    tutti_monitor *door;
    float *s, *sent, *mean;      /* n each; s under door, the others of the service that makes rounds */
    uint64_t averaged;           /* of s so far; under door */
    uint64_t seen;               /* averaged at the snapshot; client's */
    uint64_t round;              /* made; declared where the graph depends on it */
    uint64_t due;                /* gradients told, times rounds, that nothing was granted for yet; of who grants; declared */
    uint64_t granted, handed;    /* rounds; the last that I have told all others; under door */
    uint64_t untold;             /* gradients of mine; under door */
    bool spread;                 /* what is granted is to be told to all others; under door */
    int events;                  /* of the world, that `tell` has looked at */
    bool *gone;                  /* workers: agreed by all. Written when all is quiet */
    int *others;                 /* workers: whom a grant goes to; calls, each: to them; tell's */
    tutti_engine_call *calls;
    tutti_request **each;
};

tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan, const char *graph, int64_t rounds, const int services[4], tutti_error *err)
{
    const size_t workers = (size_t)m->workers;
    tutti_averager *a = tutti_alloc(1, sizeof *a);

    *out = a;
    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'", m->ops->name);
    a->m = m;
    tutti_engine_declare_history(m->engine);
    a->rounds = rounds;
    a->tell = services[0];
    a->beat = services[1];
    a->mix = services[2];
    a->average = services[3];
    tutti_declare_vector(plan, "averager.s", TUTTI_SCRATCH, &a->s); /* x has it when all is quiet */
    if (m->workers > 1) {
        tutti_declare_vector(plan, "averager.sent", TUTTI_SCRATCH, &a->sent);
        tutti_declare_vector(plan, "averager.mean", TUTTI_SCRATCH, &a->mean);
    }
    if (graph == NULL)
        return TUTTI_OK;
    tutti_declare_value(plan, "averager.round", TUTTI_SAME, &a->round, sizeof a->round);
    tutti_declare_value(plan, "averager.due", TUTTI_OWN_ZERO, &a->due, sizeof a->due);
    a->gone = tutti_alloc(workers, sizeof *a->gone);
    a->others = tutti_alloc(workers, sizeof *a->others);
    a->calls = tutti_alloc(workers, sizeof *a->calls);
    a->each = tutti_alloc(workers, sizeof *a->each);
    if (a->gone == NULL || a->others == NULL || a->calls == NULL || a->each == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'", m->ops->name);
    return tutti_mixer_declare(&a->mixer, m, plan, &(tutti_mixer_options){ .graph = graph }, err);
}

tutti_status tutti_averager_open(tutti_averager *a, tutti_error *err)
{
    const tutti_engine *e = a->m->engine;

    if (a->mixer != NULL)
        TUTTI_TRY(tutti_mixer_open(a->mixer, false, err));
    else if (e->members != NULL)
        TUTTI_TRY(tutti_members_open(&a->members, a->m->world, tutti_port_of("averager", 0, 0), err));
    return tutti_monitor_open(&a->door, a->m->rt, err);
}

void tutti_averager_close(tutti_averager *a)
{
    if (a == NULL)
        return;
    tutti_monitor_close(a->door);
    tutti_mixer_close(a->mixer);
    tutti_members_close(a->members);
    tutti_free(a->gone);
    tutti_free(a->others);
    tutti_free(a->calls);
    tutti_free(a->each);
    tutti_free(a);
}

/* ---- client thread ---- */

void tutti_averager_hold(tutti_averager *a)
{
    tutti_copy(a->m->device, a->m->n, a->s, a->m->x);
    if (a->mixer != NULL)
        tutti_engine_mixer_tell(a->mixer, a->round);
}

void tutti_averager_release(tutti_averager *a)
{
    tutti_copy(a->m->device, a->m->n, a->m->x, a->s);
    a->granted = a->handed = a->round;
    for (int r = 0; a->gone != NULL && r < a->m->workers; r++)
        a->gone[r] = !tutti_engine_has(a->m->engine, r);
}

void tutti_averager_read(tutti_averager *a)
{
    tutti_lock(a->door);
    tutti_copy(a->m->device, a->m->n, a->s, a->m->x);
    a->seen = a->averaged;
    tutti_unlock(a->door);
}

tutti_status tutti_averager_update(tutti_averager *a, int64_t outstanding, tutti_error *err)
{
    uint64_t staleness;

    tutti_lock(a->door);
    staleness = a->averaged - a->seen;
    tutti_unlock(a->door);
    tutti_stale(a->m, staleness);
    TUTTI_TRY(tutti_base_step_on(a->m, a->s, a->door, 1, err));
    if (a->rounds == 0 || a->m->workers == 1)
        return TUTTI_OK;
    tutti_lock(a->door);
    a->untold++;
    tutti_unlock(a->door);
    tutti_owe(a->m, a->tell, 1);
    if (outstanding < 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_await_rounds(a->m, a->tell, outstanding, err));
    return tutti_await_rounds(a->m, a->average, outstanding * a->rounds, err);
}

/* ---- services ---- */

static tutti_status reduce(tutti_averager *a, const tutti_group *members, tutti_error *err)
{
    tutti_group all = tutti_group_keyed(members, tutti_port_of("averager", 0, 0), (uint32_t)a->round);
    return tutti_allreduce_from(&all, TUTTI_MEAN, tutti_f32(a->m->device, a->sent, a->m->layout->used), tutti_f32(a->m->device, a->mean, a->m->layout->used), err);
}

static tutti_status with_all(tutti_averager *a, tutti_error *err)
{
    bool again = a->members != NULL;

    if (!again)
        return reduce(a, &a->m->all, err);
    while (again) {
        const tutti_group members = tutti_members_group(a->members, 0);
        const tutti_status status = reduce(a, &members, err);
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER) /* a failure of its own: it leaves, and is lost to the others */
            return status;
        TUTTI_TRY(tutti_members_agree(a->members, status, &again, err));
    }
    return TUTTI_OK;
}

static tutti_status make_round(tutti_averager *a, tutti_error *err)
{
    tutti_method *m = a->m;
    tutti_engine *e = m->engine;
    const int64_t begin = tutti_now_ns(m->rt);

    tutti_lock(a->door);
    tutti_copy(m->device, m->n, a->s, a->sent);
    tutti_unlock(a->door);
    TUTTI_TRY(a->mixer != NULL ? tutti_engine_mix_aside(a->mixer, a->round, a->sent, a->mean, err) : with_all(a, err));
    tutti_lock(a->door);
    tutti_add_diff(m->device, m->layout->used, 1, a->mean, a->sent, a->s);
    a->averaged++;
    tutti_unlock(a->door);
    a->round++;
    tutti_lock(e->services.monitor);
    e->services.comm_ns += tutti_now_ns(m->rt) - begin;
    tutti_unlock(e->services.monitor);
    return TUTTI_OK;
}

tutti_status tutti_averager_average(tutti_averager *a, tutti_error *err)
{
    tutti_status status;

    while ((status = tutti_round(a->m, a->average, false, err)) == TUTTI_OK)
        TUTTI_TRY(make_round(a, err));
    return status;
}

/* ---- grants ---- */

static int events(const tutti_averager *a)
{
    const tutti_engine *e = a->m->engine;
    return e->members != NULL ? tutti_world_events(a->m->world, 0, NULL, 0) : 0;
}

/* Is anybody lost to me who may be there for others? */
static bool misses_one(const tutti_averager *a)
{
    if (events(a) == 0)
        return false;
    for (int r = 0; r < a->m->workers; r++)
        if (!a->gone[r] && tutti_engine_misses(a->m->engine, r))
            return true;
    return false;
}

/* So many rounds, or `more` than I knew of, are to be made; hand_on: all others are to hear of it from me. */
static void take_grant(tutti_averager *a, uint64_t count, uint64_t more, bool hand_on)
{
    uint64_t news;

    tutti_lock(a->door);
    count = count > a->granted + more ? count : a->granted + more;
    news = count - a->granted;
    a->granted = count;
    hand_on = hand_on && a->granted > a->handed;
    a->spread = a->spread || hand_on;
    tutti_unlock(a->door);
    tutti_owe(a->m, a->average, (int64_t)news);
    tutti_owe(a->m, a->tell, hand_on);
}

static tutti_status tell_others(tutti_averager *a, uint64_t granted, tutti_error *err)
{
    const tutti_note note = { .kind = misses_one(a), .a = (int64_t)granted };
    int n = 0;

    for (int r = 0; r < a->m->workers; r++)
        if (r != a->m->rank && !tutti_engine_misses(a->m->engine, r))
            a->others[n++] = r;
    return tutti_engine_call_all(a->m->engine, a->mix, n, a->others, &note, a->calls, a->each, err);
}

/* One gradient, to the lowest that is left. */
static tutti_status tell_gradient(tutti_averager *a, tutti_error *err)
{
    for (int r = 0; r < a->m->workers; r++) {
        tutti_note note = { 0 };
        tutti_status status;
        if (tutti_engine_misses(a->m->engine, r))
            continue;
        status = tutti_call(a->m, a->beat, r, &note, tutti_nothing(), tutti_nothing(), err);
        if (status == TUTTI_OK) /* the grant itself may still be under way: without this its worker would go on without the rounds that its own gradients have brought */
            take_grant(a, (uint64_t)note.a, 0, misses_one(a));
        if (!tutti_is_left_out(a->m, status, err))
            return status;
    }
    return TUTTI_OK;
}

/* Owed a round for each gradient of mine, for what is to be handed on, and for losses. */
tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err)
{
    tutti_status status;

    while ((status = tutti_round(a->m, a->tell, false, err)) == TUTTI_OK) {
        const int known = events(a);
        uint64_t granted;
        bool spread, gradient;
        tutti_lock(a->door);
        granted = a->granted;
        spread = a->spread || known > a->events;
        gradient = a->untold > 0;
        a->spread = false;
        a->untold -= gradient;
        a->handed = spread ? granted : a->handed;
        tutti_unlock(a->door);
        a->events = known;
        if (spread)
            TUTTI_TRY(tell_others(a, granted, err));
        if (gradient)
            TUTTI_TRY(tell_gradient(a, err));
    }
    return status;
}

tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err)
{
    tutti_note note;
    tutti_status status;

    while ((status = tutti_serve(a->m, a->beat, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_note answer = { 0 };
        uint64_t left = 0;
        for (int r = 0; r < a->m->workers; r++)
            left += !tutti_engine_misses(a->m->engine, r);
        a->due += (uint64_t)a->rounds;
        if (a->due >= left)
            take_grant(a, 0, a->due / left, true);
        a->due %= left;
        tutti_lock(a->door);
        answer.a = (int64_t)a->granted;
        tutti_unlock(a->door);
        TUTTI_TRY(tutti_reply(a->m, &note, &answer, tutti_nothing(), err));
    }
    return status;
}

tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err)
{
    tutti_note note;
    tutti_status status;

    while ((status = tutti_serve(a->m, a->mix, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        take_grant(a, (uint64_t)note.a, 0, note.kind != 0 || misses_one(a));
        TUTTI_TRY(tutti_reply(a->m, &note, NULL, tutti_nothing(), err));
    }
    return status;
}
