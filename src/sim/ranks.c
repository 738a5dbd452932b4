/* ranks.c: the states of ranks: opening, closing, failures and the ranks that caused them; and
   windows, which are memory that all ranks share. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "sim_internal.h"
#include "base/machine.h"

/* Keeps why a rank has failed, and whom it blames. */
static void keep_reason(sim_run *run, int rank, const tutti_error *why)
{
    sim_rank *r = &run->ranks[rank];
    r->blame = why->status == TUTTI_ERR_PEER && why->rank >= 0 && why->rank < run->size &&
                       why->rank != rank
                   ? why->rank
                   : -1;
    r->order = run->failures++;
    if (r->status == TUTTI_OK)
        r->status = why->status;
    snprintf(r->reason, sizeof r->reason, "%s", why->text);
}

/* ---- endings ---- */
void sim_depart(sim_thread *self, int rank, sim_state state, const tutti_error *why)
{
    sim_run *run = self->run;
    sim_rank *r = &run->ranks[rank];
    const sim_state before = r->state;

    if (before >= SIM_FAILED || (before == SIM_LEFT && state != SIM_FAILED))
        return;
    if (state >= SIM_FAILED)
        keep_reason(run, rank, why);
    r->state = state;
    run->departed += before < SIM_LEFT;
    if (state == SIM_FAILED) /* its own requests continue until it closes */
        r->closed = r->closed || r->ended;
    if (state >= SIM_FAILED && before < SIM_LEFT)
        sim_record_lost(self, rank);
    sim_end_needing(self, rank);
    /* it is notified at once, whatever it waits for */
    for (sim_thread *t = run->threads; t != NULL && state == SIM_EXPELLED; t = t->next)
        if (t->rank == rank && t->where == SIM_IN_MESSAGES)
            sim_log_act(self, SIM_WAKE, t);
    sim_gate_open(self);
    sim_serve(self);
}

static int root_of(const sim_run *run, int rank)
{
    int root = rank;

    /* Two that blame each other are equally guilty: stop after as many steps as there are
       ranks. */
    for (int steps = 0; steps < run->size; steps++) {
        const sim_rank *r = &run->ranks[root];
        if (r->state < SIM_FAILED || r->blame < 0)
            return root;
        root = r->blame;
    }
    return rank;
}

int sim_because_of(const sim_run *run, int me, int rank)
{
    const int root = root_of(run, rank);

    return root == me ? rank : root;
}

/* The first that was lost; else the first that failed by itself; else the first that failed. */
int sim_culprit(const sim_run *run)
{
    uint64_t least = UINT64_MAX;
    int culprit = -1;

    for (int k = 0; k < run->size; k++) {
        const sim_rank *r = &run->ranks[k];
        const uint64_t guilt = (uint64_t)(r->state == SIM_LOST                          ? 0
                                          : r->blame < 0 && r->status != TUTTI_ERR_PEER ? 1
                                                                                        : 2)
                                   << 32 |
                               r->order;
        if (r->state >= SIM_FAILED && guilt < least) {
            least = guilt;
            culprit = k;
        }
    }
    return culprit;
}

bool sim_alone(const sim_run *run, int rank)
{
    const bool self_gone = run->ranks[rank].state >= SIM_LEFT;
    int gone = run->departed - self_gone;

    for (int k = 0; k < run->ranks[rank].n_events && run->ranks[rank].cuts > 0; k++)
        gone += run->ranks[rank].events[k].cut &&
                run->ranks[run->ranks[rank].events[k].rank].state < SIM_LEFT;
    return run->size > 1 && gone == run->size - 1;
}

tutti_status sim_fail_expelled(const sim_rank *me, tutti_error *err)
{
    return tutti_fail_rank(err, TUTTI_ERR_PEER, me->rank,
                           "worker %d is no member of the run any more: %s", me->rank, me->reason);
}

int sim_dead_peer(void *t, char *why, size_t bytes)
{
    sim_thread *self = sim_self();
    const sim_rank *me = t;
    const sim_run *run = me->run;

    if (sim_count_check(self))
        sim_give_up(self, "asked for dead peers");
    if (why != NULL && bytes > 0)
        why[0] = '\0';
    for (int k = 0; k < run->size; k++) {
        int root;
        if (k == me->rank || (run->ranks[k].state < SIM_FAILED && !sim_is_cut(run, me->rank, k)))
            continue;
        root = run->ranks[k].state < SIM_FAILED ? k : sim_because_of(run, me->rank, k);
        if (why != NULL && bytes > 0)
            sim_describe(run, me->rank, root, why, bytes);
        return root;
    }
    return -1;
}

void sim_failure_report(void *t, const tutti_error *err)
{
    sim_rank *me = t;
    sim_thread *self = sim_self();

    sim_play(self); /* after what it has computed and posted */
    sim_depart(self, me->rank, SIM_FAILED, err);
}

/* What all ranks meet for. there: returns whether a rank has arrived already; what: its argument.
 */
typedef struct awaited {
    bool (*there)(const sim_rank *r, const void *what);
    const void *what;
    const char *doing;
} awaited;

/* ---- meeting ---- */
/* Waits at the gate until *arrived counts all ranks; PEER if that is no longer possible. */
static tutti_status meet(sim_thread *self, const sim_rank *me, const int *arrived,
                         const awaited *of, tutti_error *err)
{
    sim_run *run = self->run;

    while (*arrived < run->size) {
        if (me->state == SIM_EXPELLED)
            return sim_fail_expelled(me, err);
        for (int k = 0; k < run->size; k++) {
            const sim_rank *r = &run->ranks[k];
            if (r->state < SIM_LEFT || of->there(r, of->what))
                continue;
            r = &run->ranks[sim_because_of(run, me->rank, k)];
            return tutti_fail_rank(
                err, TUTTI_ERR_PEER, r->rank, "%s needs all workers; worker %d %s%s", of->doing,
                r->rank, r->state >= SIM_FAILED ? "failed: " : "has left the run", r->reason);
        }
        sim_gate_wait(self);
    }
    return TUTTI_OK;
}

static bool has_opened(const sim_rank *r, const void *what)
{
    (void)what;
    return r->opened;
}

tutti_status sim_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err)
{
    sim_thread *self;
    sim_rank *me;
    tutti_status status;

    (void)rt;
    *t = NULL;
    if (launch->within == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "simulated workers live in one process; start the run with 'tutti train --transport "
            "sim -n %d', or by tutti_world_run",
            launch->size);
    me = launch->within;
    self = sim_self();
    if (me->state != SIM_ABSENT)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "the place of worker %d of %d is taken already; a worker opens one world in its life",
            me->rank, me->run->size);
    sim_play(self);
    me->state = SIM_PRESENT;
    me->opened = true;
    if (++me->run->opened == me->run->size)
        sim_gate_open(self);
    status =
        meet(self, me, &me->run->opened, &(awaited){ has_opened, NULL, "opening the run" }, err);
    if (status != TUTTI_OK) {
        tutti_error unseen = { .status = status, .rank = -1 };
        sim_depart(self, me->rank, SIM_FAILED, err != NULL ? err : &unseen);
        me->closed = true;
        return status;
    }
    *t = me;
    return TUTTI_OK;
}

/* Its memory is the run's: other threads of the rank that still wait find their requests done. */
void sim_close(void *t)
{
    sim_thread *self = sim_self();
    sim_rank *me = t;

    if (me == NULL)
        return;
    sim_play(self);
    me->closed = true;
    sim_end_own(self, me->rank);
    sim_depart(self, me->rank, SIM_LEFT, NULL);
}

/* ---- shared memory: one mapping a window; it costs no virtual time, as no bytes move ---- */
static bool has_asked(const sim_rank *r, const void *what)
{
    return r->windows > *(const uint32_t *)what;
}

static sim_window *window_of(sim_run *run, uint32_t number, int rank, const char *name)
{
    sim_window **at = &run->windows, *w;

    for (; number > 0; number--)
        at = &(*at)->next;
    if (*at != NULL)
        return *at;
    w = tutti_alloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->name = tutti_copy_text(name);
    w->first = rank;
    w->bytes = tutti_alloc((size_t)run->size, sizeof *w->bytes);
    w->parts = tutti_alloc((size_t)run->size, sizeof *w->parts);
    *at = w;
    w->no_memory = w->name == NULL || w->bytes == NULL || w->parts == NULL;
    return w;
}

/* Called by the last to arrive. */
static void make_parts(sim_run *run, sim_window *w)
{
    unsigned char *base;
    size_t at = 0;

    for (int r = 0; r < run->size; r++)
        if (w->bytes[r] > SIZE_MAX / 4 ||
            !tutti_size_add(w->need, (w->bytes[r] + 63) / 64 * 64, &w->need)) {
            w->need = SIZE_MAX;
            break;
        }
    /* The kernel would promise more memory than it has, so the limit is checked here. */
    if (w->need > tutti_machine_bytes()) {
        w->no_memory = true;
        return;
    }
    if (w->need == 0)
        return;
    base = mmap(NULL, w->need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        w->no_memory = true;
        return;
    }
    for (int r = 0; r < run->size; r++) {
        w->parts[r] = base + at;
        at += (w->bytes[r] + 63) / 64 * 64;
    }
}

tutti_status sim_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                             tutti_error *err)
{
    sim_thread *self = sim_self();
    sim_rank *me = t;
    sim_run *run = me->run;
    const uint32_t number = me->windows;
    sim_window *w;

    memset(of_rank, 0, (size_t)run->size * sizeof *of_rank);
    sim_play(self);
    w = window_of(run, number, me->rank, name);
    if (w == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for window '%s'", name);
    me->windows++;
    if (!w->no_memory) {
        w->bytes[me->rank] = bytes;
        if (w->other == NULL && strcmp(w->name, name) != 0) {
            w->other = tutti_copy_text(name);
            w->odd = me->rank;
            w->no_memory = w->other == NULL;
        }
    }
    if (++w->arrived == run->size) {
        if (!w->no_memory && w->other == NULL)
            make_parts(run, w);
        sim_gate_open(self);
    }
    TUTTI_TRY(
        meet(self, me, &w->arrived, &(awaited){ has_asked, &number, "opening a window" }, err));
    if (w->other != NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "worker %d opens window '%.60s' while worker %d opens '%.60s'; all "
                          "workers must open the same windows in the same order",
                          w->first, w->name, w->odd, w->other);
    if (w->no_memory)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, 0,
            "window '%s' needs %zu bytes for all %d workers, this machine has %zu MiB; use fewer "
            "workers or a smaller window",
            name, w->need, run->size, tutti_machine_bytes() >> 20);
    memcpy(of_rank, w->parts, (size_t)run->size * sizeof *of_rank);
    return TUTTI_OK;
}
