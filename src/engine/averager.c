/* averager.c: models that are averaged beside the computation. The model is s, under a door; the client takes its gradients at a snapshot and applies them to s; a round takes
   u <- s, makes a(u) of it together with others, and adds the difference: s <- s + (a(u) - u). So steps made meanwhile stay, the sum of all models is kept whatever happens in
   between, and nobody waits with the door shut.

   Rounds take all members, or all neighbours of a graph's round, so all must make the same ones. Two ways:
     with all (lasgd, delay-by-one)     each worker owes its service a round at the same steps; the round is an all-reduce. All have made equally many steps whenever all is quiet.
     beats (rings at one's own pace)    nobody may wait for a slow worker's next gradient, so a round is granted by all together: each gradient is told to member 0, which after every `workers` of
                                        them grants so many rounds, down a binary tree of the members' servers. A grant is answered at once and handed on before its round is made, so a
                                        member waits in a round only for those who have, or are about to get, the same grant: no ring of waiting whatever the graph. As a
                                        teller's answer comes after the grant, and a grant after the round before it, rounds that are slower than gradients hold the gradients back instead of piling up.
   All rounds that are granted are made before all is quiet: told gradients, grants and answers are calls, which quiet counts, and a server rests only when its round is over. So after G gradients
   exactly floor(G rounds / workers) rounds have been made, by everybody. */
#include <errno.h>

#include "engine_internal.h"

struct tutti_averager {
    tutti_method *m;
    tutti_mixer *mixer;          /* NULL: with all */
    int64_t rounds;              /* a step; 0: owed by the method */
    int tell, beat, mix;         /* services */
    tutti_monitor *door;
    float *s, *sent, *mean;      /* n each; s under door, the others of the service that makes rounds */
    uint64_t averaged;           /* of s so far; under door */
    uint64_t seen;               /* averaged at the snapshot; client's */
    uint64_t round;              /* made; declared where the graph depends on it */
    uint64_t told;               /* gradients; member 0's; declared */
};

tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan, const char *graph, int64_t rounds, const int services[3], tutti_error *err)
{
    tutti_averager *a = tutti_alloc(1, sizeof *a);

    *out = a;
    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'", m->ops->name);
    a->m = m;
    a->rounds = rounds;
    a->tell = services[0];
    a->beat = services[1];
    a->mix = services[2];
    tutti_declare_vector(plan, "averager.s", TUTTI_SCRATCH, &a->s); /* x has it when all is quiet */
    if (m->workers > 1) {
        tutti_declare_vector(plan, "averager.sent", TUTTI_SCRATCH, &a->sent);
        tutti_declare_vector(plan, "averager.mean", TUTTI_SCRATCH, &a->mean);
    }
    if (graph == NULL)
        return TUTTI_OK;
    tutti_declare_value(plan, "averager.round", TUTTI_SAME, &a->round, sizeof a->round);
    tutti_declare_value(plan, "averager.told", TUTTI_OWN_ZERO, &a->told, sizeof a->told);
    return tutti_mixer_declare(&a->mixer, m, plan, &(tutti_mixer_options){ .graph = graph }, err);
}

tutti_status tutti_averager_open(tutti_averager *a, tutti_error *err)
{
    if (a->mixer != NULL)
        TUTTI_TRY(tutti_mixer_open(a->mixer, false, err));
    return tutti_monitor_open(&a->door, a->m->rt, err);
}

void tutti_averager_close(tutti_averager *a)
{
    if (a == NULL)
        return;
    tutti_monitor_close(a->door);
    tutti_mixer_close(a->mixer);
    tutti_free(a);
}

/* ---- client thread ---- */

void tutti_averager_hold(tutti_averager *a)
{
    tutti_copy(a->m->device, a->m->n, a->s, a->m->x);
}

void tutti_averager_release(tutti_averager *a)
{
    tutti_copy(a->m->device, a->m->n, a->m->x, a->s);
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
    tutti_owe(a->m, a->tell, 1);
    return outstanding >= 0 ? tutti_await_rounds(a->m, a->tell, outstanding, err) : TUTTI_OK;
}

/* ---- services ---- */

static tutti_status with_all(tutti_averager *a, tutti_error *err)
{
    tutti_group all = tutti_group_keyed(&a->m->all, tutti_port_of("averager", 0, 0), (uint32_t)a->round);
    return tutti_allreduce_from(&all, TUTTI_MEAN, tutti_f32(a->m->device, a->sent, a->m->layout->used), tutti_f32(a->m->device, a->mean, a->m->layout->used), err);
}

tutti_status tutti_averager_round(tutti_averager *a, tutti_error *err)
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

tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err)
{
    tutti_status status;

    while ((status = tutti_round(a->m, a->tell, false, err)) == TUTTI_OK) {
        tutti_note note = { 0 };
        TUTTI_TRY(tutti_call(a->m, a->beat, 0, &note, tutti_nothing(), tutti_nothing(), err));
    }
    return status;
}

static tutti_status grant(tutti_averager *a, int member, uint64_t round, tutti_error *err)
{
    tutti_note note = { .a = (int64_t)round };
    return member < a->m->workers ? tutti_call(a->m, a->mix, member, &note, tutti_nothing(), tutti_nothing(), err) : TUTTI_OK;
}

tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err)
{
    const uint64_t workers = (uint64_t)a->m->workers, rounds = (uint64_t)a->rounds;
    tutti_note note;
    tutti_status status = TUTTI_OK;

    while (a->m->rank == 0 && (status = tutti_serve(a->m, a->beat, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        const uint64_t granted = a->told++ * rounds / workers;
        for (uint64_t k = granted; k < a->told * rounds / workers; k++)
            TUTTI_TRY(grant(a, 0, k, err));
        TUTTI_TRY(tutti_reply(a->m, &note, NULL, tutti_nothing(), err));
    }
    return status;
}

tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err)
{
    tutti_note note;
    tutti_status status;

    while ((status = tutti_serve(a->m, a->mix, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        if ((uint64_t)note.a != a->round)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, a->m->rank, "worker %d was granted averaging round %lld after %llu of them; all workers must run one version and one checkpoint",
                                   a->m->rank, (long long)note.a, (unsigned long long)a->round);
        TUTTI_TRY(tutti_reply(a->m, &note, NULL, tutti_nothing(), err));
        for (int child = 2 * a->m->rank + 1; child <= 2 * a->m->rank + 2; child++)
            TUTTI_TRY(grant(a, child, a->round, err));
        TUTTI_TRY(tutti_averager_round(a, err));
    }
    return status;
}
