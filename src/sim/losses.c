/* losses.c: hosts that fail, links that fail, ranks that others expel: how that happens, and when
   the other ranks learn of it.

   A host fails when its platform's profile or the option `fail` says so. In both cases SimGrid
   kills its actors. A failure of a profile happens between two moments of the simulation, when no
   actor is in the middle of anything. A failure of `fail` is caused by an actor, concurrently with
   other actors of that moment, so that actor first holds the others: a thread that is playing its
   log finishes that, and no other thread begins (sim_hold). What a thread has appended to its log
   and not played is lost with it, except what other threads wait for (finish_log_of).

   The other ranks learn of the failure by time only. Watchers, actors on two other hosts or on a
   host without a rank, wait for the end of a rank's main actor, and report peer-timeout later that
   the rank is lost. Then watchers whose own host has failed are replaced; one that finds its rank
   dead reports that peer-timeout later. All ranks learn of a loss at the same time.

   The two ranks at the ends of a link that fails lose each other at the first message that needs
   the link, as with a connection that breaks. If that splits the ranks into parts, at most one part
   continues (transport/events.h), and the ranks of the others are expelled, since two runs would
   write one result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../transport/events.h"
#include "sim_internal.h"
#include "base/numbers.h"

/* ---- what was asked for ---- */
static tutti_status read_one(sim_run *run, const char *all, const char **text, tutti_error *err)
{
    char *past;
    const long rank = strtol(*text, &past, 10);
    const bool named = past != *text && rank >= 0 && *past == '@';
    const char *end = past;
    double at = -1;

    if (!named || !tutti_number_begins(past + 1, &at, &end) || !(at >= 0) || !isfinite(at) ||
        (*end != '\0' && (*end != ':' || end[1] == '\0')))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "fail is '%.80s'; write RANK@SECONDS, of several RANK@SECONDS:RANK@SECONDS, with "
            "seconds of virtual time from 0 on, or @FILE",
            all);
    if (rank >= run->size)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "fail is '%.80s', but there is no worker %ld: with %d workers they are 0 to %d", all,
            rank, run->size, run->size - 1);
    if (isfinite(run->ranks[rank].fails_at))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "fail is '%.80s': worker %ld cannot fail twice",
                          all, rank);
    run->ranks[rank].fails_at = at;
    run->faults++;
    *text = end + (*end == ':');
    return TUTTI_OK;
}

tutti_status sim_faults_read(sim_run *run, const char *text, tutti_error *err)
{
    if (text[0] == '@')
        return sim_trace_read(run, text + 1, err);
    for (const char *at = text; *at != '\0';)
        TUTTI_TRY(read_one(run, text, &at, err));
    return TUTTI_OK;
}

/* ---- a host fails ---- */
void sim_hold(sim_thread *self)
{
    while (self->run->held > 0 || (self->rank >= 0 && self->run->ranks[self->rank].off)) {
        self->where = SIM_IN_HOLD;
        /* a wake-up for something else is not missed: a waiting thread checks its flags first */
        sg_sem_acquire(self->semaphore);
        self->where = SIM_RUNNING;
    }
}

static bool is_busy(const sim_run *run)
{
    for (const sim_thread *t = run->threads; t != NULL; t = t->next)
        if (t->playing && t->where == SIM_RUNNING)
            return true;
    return run->making > 0;
}

/* The actor is on the host that it turns off, whose threads stay held until they are killed. */
static void fail(void *arg)
{
    sim_rank *r = arg;
    sim_run *run = r->run;

    sg_actor_daemonize(sg_actor_self());
    sg_actor_sleep_until(r->fails_at);
    if (r->ended)
        return;
    run->held++; /* of several that fail at once the last releases them */
    while (is_busy(run))
        sg_actor_yield();
    r->off = true;
    run->held--;
    for (sim_thread *t = run->threads; t != NULL && run->held == 0; t = t->next)
        if (t->where == SIM_IN_HOLD)
            sg_sem_release(t->semaphore);
    sg_host_turn_off(r->host);
}

bool sim_faults_start(sim_run *run)
{
    for (int k = 0; k < run->size; k++)
        if (isfinite(run->ranks[k].fails_at) &&
            sim_thread_make(run,
                            &(sim_thread_plan){ -1, run->ranks[k].host, "fault", fail,
                                                &run->ranks[k], SIM_SERVICE_STACK_KIB },
                            NULL) == NULL)
            return false;
    return sim_watch_all(run);
}

void sim_lost_reason(const sim_run *run, int rank, char *text, size_t bytes)
{
    const sim_rank *r = &run->ranks[rank];
    const double at = r->failed_at >= 0 ? r->failed_at : r->fails_at;

    snprintf(text, bytes,
             isfinite(at) ? "its host '%s' failed at %.9f s of virtual time"
                          : "its host '%s' failed",
             sg_host_get_name(r->host), at);
}

/* Does what its threads had still to do for others when they died: wake them, start their
   transfers. */
static void finish_log_of(sim_thread *self, int rank)
{
    for (sim_thread *t = self->run->threads; t != NULL; t = t->next)
        for (size_t k = t->played; t->rank == rank && k < t->log.n; k++)
            if (t->log.acts[k].kind == SIM_WAKE || t->log.acts[k].kind == SIM_START)
                sim_log_act(self, t->log.acts[k].kind, t->log.acts[k].object);
}

static void watch_links(void *arg)
{
    sim_rank *r = arg;
    sim_thread *self = sim_self();
    tutti_error why = { .rank = -1 };
    char reason[300];

    sg_actor_daemonize(sg_actor_self());
    sg_actor_join(r->actor, -1);
    if (r->ended)
        return;
    if (r->failed_at < 0)
        r->failed_at = simgrid_get_clock() < r->fails_at ? simgrid_get_clock() : r->fails_at;
    if (r->run->peer_timeout > 0)
        sg_actor_sleep_for(sim_to_whole_ns(r->run->peer_timeout));
    if (r->state == SIM_LOST) /* the other watcher was here */
        return;
    sim_lost_reason(r->run, r->rank, reason, sizeof reason);
    tutti_fail(&why, TUTTI_ERR_STATE, 0, "%s", reason);
    finish_log_of(self, r->rank);
    sim_depart(self, r->rank, SIM_LOST, &why);
    sim_play(self);
    if (!sim_watch_all(r->run))
        sim_out_of_memory(self);
}

/* A host that is up, on which no watcher of this rank is yet: one without a rank, else the next
   ones. */
static sg_host_t watch_host(const sim_run *run, const sim_rank *r)
{
    if (run->spare != NULL && sg_host_is_on(run->spare))
        return run->spare;
    for (int k = 1; k < run->size; k++) {
        sg_host_t host = run->ranks[(r->rank + k) % run->size].host;
        if (sim_host_is_on(run, (r->rank + k) % run->size) && host != r->watched_on[0] &&
            host != r->watched_on[1])
            return host;
    }
    return NULL;
}

bool sim_watch_all(sim_run *run)
{
    for (int rank = 0; rank < run->size; rank++) {
        sim_rank *r = &run->ranks[rank];
        for (int k = 0; k < 2 && !r->ended && r->state != SIM_LOST; k++) {
            sg_host_t on;
            if (r->watched_on[k] != NULL && sg_host_is_on(r->watched_on[k]))
                continue;
            on = watch_host(run, r);
            if (on == NULL || on == r->watched_on[1 - k])
                continue;
            r->watched_on[k] = on;
            if (sim_thread_make(
                    run,
                    &(sim_thread_plan){ -1, on, "watcher", watch_links, r, SIM_SERVICE_STACK_KIB },
                    NULL) == NULL)
                return false;
        }
    }
    return true;
}

/* ---- which ranks have learnt of what ---- */
static void note(sim_thread *self, int whom, int rank, bool cut)
{
    sim_rank *r = &self->run->ranks[whom];

    if (r->n_events == r->events_capacity) {
        const int capacity = r->events_capacity > 0 ? 2 * r->events_capacity : 4;
        sim_event *more = tutti_alloc((size_t)capacity, sizeof *more);
        if (more == NULL)
            sim_out_of_memory(self);
        if (r->n_events > 0)
            memcpy(more, r->events, (size_t)r->n_events * sizeof *more);
        tutti_free(r->events);
        r->events = more;
        r->events_capacity = capacity;
    }
    r->events[r->n_events++] = (sim_event){
        .rank = rank, .at_ns = sim_now_ns(self), .cut_at = simgrid_get_clock(), .cut = cut
    };
    r->cuts += cut;
}

static const sim_event *cut_between(const sim_run *run, int me, int rank)
{
    const sim_rank *r = &run->ranks[me];

    for (int k = 0; k < r->n_events && r->cuts > 0; k++)
        if (r->events[k].cut && r->events[k].rank == rank)
            return &r->events[k];
    return NULL;
}

bool sim_is_cut(const sim_run *run, int me, int rank)
{
    return cut_between(run, me, rank) != NULL;
}

void sim_record_lost(sim_thread *self, int rank)
{
    for (int r = 0; r < self->run->size; r++)
        if (r != rank && !sim_is_cut(self->run, r, rank))
            note(self, r, rank, false);
}

void sim_describe(const sim_run *run, int me, int rank, char *text, size_t bytes)
{
    const sim_rank *r = &run->ranks[rank];
    const sim_event *cut = cut_between(run, me, rank);
    char reason[600];

    if (cut != NULL)
        snprintf(reason, sizeof reason,
                 "worker %d cannot be reached: a link to it failed at %.9f s of virtual time", rank,
                 cut->cut_at);
    else
        snprintf(reason, sizeof reason,
                 r->state == SIM_FAILED  ? "worker %d failed: %s"
                 : r->state > SIM_FAILED ? "worker %d was lost: %s"
                 : r->state == SIM_LEFT  ? "worker %d has left the run%s"
                                         : "worker %d is there%s",
                 rank, r->state >= SIM_FAILED ? r->reason : "");
    tutti_events_copy(text, bytes, reason);
}

int sim_events(void *t, int first, tutti_peer_event *out, int capacity)
{
    const sim_rank *me = t;
    sim_thread *self = sim_self();

    if (sim_count_check(self))
        sim_give_up(self, "asked who is lost");
    for (int i = 0; i < capacity && first >= 0 && first < me->n_events - i; i++) {
        const sim_event *e = &me->events[first + i];
        out[i] = (tutti_peer_event){ .epoch = (uint32_t)(first + i) + 1,
                                     .rank = e->rank,
                                     .change = TUTTI_PEER_LOST,
                                     .at_ns = e->at_ns };
        sim_describe(me->run, me->rank, e->rank, out[i].why, sizeof out[i].why);
    }
    return me->n_events;
}

/* ---- expelled ---- */
void sim_expel(void *t, int rank, const char *why)
{
    sim_rank *me = t;
    sim_thread *self = sim_self();
    tutti_error err = { .rank = -1 };

    if (rank < 0 || rank >= me->run->size || rank == me->rank)
        return;
    sim_play(self);
    if (me->closed || me->state >= SIM_FAILED || me->run->ranks[rank].state != SIM_PRESENT ||
        sim_is_cut(me->run, me->rank, rank))
        return;
    tutti_fail(&err, TUTTI_ERR_STATE, 0, "worker %d has expelled it: %s", me->rank, why);
    sim_depart(self, rank, SIM_EXPELLED, &err);
}

/* here := the ranks of `present` that are on one side with `from`, by links that have not
   failed. */
static void side_of(const sim_run *run, int from, const bool *present, bool *here)
{
    bool more = true;

    memset(here, 0, (size_t)run->size * sizeof *here);
    here[from] = true;
    while (more) {
        more = false;
        for (int a = 0; a < run->size; a++)
            for (int b = 0; b < run->size && here[a]; b++)
                if (!here[b] && present[b] && !sim_is_cut(run, a, b))
                    more = here[b] = true;
    }
}

static void expel_cut_off(sim_thread *self)
{
    sim_run *run = self->run;
    const size_t size = (size_t)run->size;
    bool *present = tutti_alloc(size, 3 * sizeof *present), *gone = present + size,
         *here = gone + size;
    tutti_error err = { .rank = -1 };

    if (present == NULL)
        sim_out_of_memory(self);
    tutti_fail(&err, TUTTI_ERR_STATE, 0,
               "links have failed that cut it off from half of the workers or more");
    for (size_t r = 0; r < size; r++) {
        present[r] = run->ranks[r].state == SIM_PRESENT;
        gone[r] = !present[r];
    }
    for (int r = 0; r < run->size; r++) {
        side_of(run, r, present, here);
        if (present[r] && !tutti_events_side_continues(run->size, here, gone))
            sim_depart(self, r, SIM_EXPELLED, &err);
    }
    tutti_free(present);
}

void sim_cut(sim_thread *self, int a, int b)
{
    if (sim_is_cut(self->run, a, b) || sim_is_cut(self->run, b, a))
        return;
    note(self, a, b, true);
    note(self, b, a, true);
    sim_end_between(self, a, b);
    expel_cut_off(self);
}
