/* run.c: a simulation from the platform to the result (sim_run_ranks). SimGrid can be started once
   in a process, so a process has one run; a program that wants several forks.

   When no actor can continue, SimGrid kills all actors and returns as if all were well. So this
   file checks that all ranks have ended. If they have not, it reports which thread waits for what,
   from the records of threads and requests, which outlive the actors. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "sim_internal.h"

/* SimGrid's engine is the process's; so is the mark that it has been used. */
static atomic_flag engine_used = ATOMIC_FLAG_INIT;

/* ---- actors ---- */
static void rank_body(void *arg)
{
    sim_rank *r = arg;
    sim_thread *self = sim_self();
    tutti_status status;

    r->err.rank = -1;
    status = r->run->rank_main(&r->launch, r->run->arg, &r->err);
    sim_play(self);
    r->ended = r->closed = true;
    if (status == TUTTI_OK || status == TUTTI_CLOSED) {
        sim_depart(self, r->rank, SIM_LEFT, NULL);
        return;
    }
    r->status = status;
    if (r->err.status == TUTTI_OK)
        tutti_fail(&r->err, status, 0, "worker %d ended with '%s' and no sentence", r->rank,
                   tutti_status_name(status));
    sim_depart(self, r->rank, SIM_FAILED, &r->err);
}

/* ---- the report of a standstill ---- */
typedef struct report { char text[420]; size_t used, waits, shown; } report;

static void append_wait(report *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_wait(report *p, const char *format, ...)
{
    char part[160];
    va_list args;
    int length;

    p->waits++;
    va_start(args, format);
    length = vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof part ||
        p->used + (size_t)length + 3 > sizeof p->text)
        return;
    p->used += (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, "%s%s",
                                p->shown > 0 ? "; " : "", part);
    p->shown++;
}

/* Neither ended nor lost. A host may have failed so late that no rank learnt of it. */
static bool is_unfinished(const sim_run *run, int rank)
{
    return !run->ranks[rank].ended && run->ranks[rank].state != SIM_LOST &&
           sim_host_is_on(run, rank);
}

/* A rank's unmatched requests: its receives are in its own lists, its sends in their
   receivers'. */
static void append_messages(report *p, const sim_run *run, const sim_thread *t)
{
    for (int r = 0; r < run->size; r++)
        for (int b = 0; b < 2 * SIM_BUCKETS; b++) {
            const sim_link *head = b < SIM_BUCKETS ? &run->ranks[r].lists.sends[b]
                                                   : &run->ranks[r].lists.receives[b - SIM_BUCKETS];
            for (const sim_link *l = head->next; l != head; l = l->next) {
                const sim_op *op = SIM_OWNER(sim_op, link, (sim_link *)(uintptr_t)l);
                if (op->rank != t->rank || op->waiter != t)
                    continue;
                if (op->sends)
                    append_wait(p,
                                "worker %d (%s) sends to worker %d, tag %016" PRIx64
                                ", and it is not received",
                                t->rank, t->name, op->peer, op->tag);
                else if (op->peer == TUTTI_ANY)
                    append_wait(p, "worker %d (%s) receives from anybody, tag %016" PRIx64, t->rank,
                                t->name, op->tag);
                else
                    append_wait(p, "worker %d (%s) receives from worker %d, tag %016" PRIx64,
                                t->rank, t->name, op->peer, op->tag);
            }
        }
}

/* Appends what a thread of worker r waits for. */
static void append_thread(report *p, const sim_run *run, int r, const sim_thread *t)
{
    const sim_monitor *m = t->what;
    if (t->rank != r || !is_unfinished(run, r) || strcmp(t->name, "wire") == 0)
        return;
    switch (t->where) {
    case SIM_IN_MESSAGES:
        append_messages(p, run, t);
        break;
    case SIM_IN_LOCK:
        append_wait(p, "worker %d (%s) waits for a lock that %s holds", r, t->name,
                    m->holder != NULL ? m->holder->name : "nobody");
        break;
    case SIM_IN_WAIT:
        append_wait(p, "worker %d (%s) waits on a monitor", r, t->name);
        break;
    case SIM_IN_JOIN:
        append_wait(p, "worker %d (%s) waits for the end of its thread %s", r, t->name,
                    ((const sim_thread *)t->what)->name);
        break;
    case SIM_IN_GATE:
        append_wait(p, "worker %d (%s) waits for all workers to open the run or a window", r,
                    t->name);
        break;
    case SIM_RUNNING:
    case SIM_IN_SLEEP:
    case SIM_IN_HOLD:
    case SIM_ENDED:
        break;
    }
}

static tutti_status standstill(const sim_run *run, tutti_error *err)
{
    report p = { .used = 0 };
    int living = 0, first = -1;

    for (int r = 0; r < run->size; r++)
        if (is_unfinished(run, r)) {
            living++;
            first = first < 0 ? r : first;
        }
    for (int r = 0; r < run->size; r++)
        for (const sim_thread *t = run->threads; t != NULL; t = t->next)
            append_thread(&p, run, r, t);
    tutti_fail_rank(
        err, TUTTI_ERR_STATE, first,
        "deadlock at %.9f s of virtual time: %d of %d workers wait and none can continue: %s",
        simgrid_get_clock(), living, run->size, p.text);
    if (p.shown < p.waits)
        tutti_fail_rank(err, TUTTI_ERR_STATE, first,
                        "deadlock at %.9f s of virtual time: %d of %d workers wait and none can "
                        "continue: %.*s; and %zu more",
                        simgrid_get_clock(), living, run->size, 330, p.text, p.waits - p.shown);
    return TUTTI_ERR_STATE;
}

static tutti_status result_of(const sim_run *run, tutti_error *err)
{
    const int culprit = sim_culprit(run);
    const sim_rank *r;
    char why[300];
    bool still = false;

    if (run->stuck) {
        if (err != NULL)
            *err = run->why;
        return run->why.status;
    }
    for (int k = 0; k < run->size; k++)
        still = still || is_unfinished(run, k);
    if (still)
        return standstill(run, err);
    for (int k = 0; k < run->size && culprit < 0; k++)
        if (!run->ranks[k].ended) {
            sim_lost_reason(run, k, why, sizeof why);
            return tutti_fail_rank(err, TUTTI_ERR_PEER, k, "worker %d was lost: %s", k, why);
        }
    if (culprit < 0)
        return TUTTI_OK;
    r = &run->ranks[culprit];
    if (r->state == SIM_LOST)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, culprit, "worker %d was lost: %s", culprit,
                               r->reason);
    if (r->err.status != TUTTI_OK) {
        /* what it returned; if it left a failure report and returned OK, that report */
        if (err != NULL)
            *err = r->err;
        return r->status;
    }
    return tutti_fail_rank(err, r->status, r->blame, "%s", r->reason);
}

/* ---- the run ---- */
/* The kernel limits how many memory areas a process has, and every stack takes two. What threads
   and vectors leave over is for wires: as many per direction and rank as fit; with fewer than two
   the times of messages would be far from the platform's. */
static tutti_status limit_wires(sim_run *run, tutti_error *err)
{
    const int64_t fixed = SIM_AREAS_FREE + (int64_t)run->size * SIM_AREAS_A_RANK,
                  each = (int64_t)run->size * 2 * SIM_AREAS_A_STACK;
    long long areas = 65530;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");

    if (file != NULL) {
        if (fscanf(file, "%lld", &areas) != 1)
            areas = 65530;
        fclose(file);
    }
    if (areas < fixed + 2 * each)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a simulation of %d workers needs up to %lld memory areas and this system allows a "
            "process %lld; simulate fewer workers, or raise the limit: sysctl "
            "vm.max_map_count=%lld",
            run->size, (long long)(fixed + 2 * each), areas, (long long)(fixed + 8 * each));
    run->wires =
        (areas - fixed) / each < SIM_WIRES_MOST ? (int)((areas - fixed) / each) : SIM_WIRES_MOST;
    return TUTTI_OK;
}

static tutti_status no_memory(const sim_run *run, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for %d simulated workers",
                      run->size);
}

static tutti_status make_ranks(sim_run *run, const tutti_launch *launch, tutti_error *err)
{
    run->ranks = tutti_alloc((size_t)run->size, sizeof *run->ranks);
    if (run->ranks == NULL)
        return no_memory(run, err);
    for (int k = 0; k < run->size; k++) {
        sim_rank *r = &run->ranks[k];
        r->run = run;
        r->rank = k;
        r->blame = -1;
        r->fails_at = INFINITY;
        r->failed_at = -1;
        r->launch = *launch;
        r->launch.rank = k;
        r->launch.within = r;
        r->launch.rt = &run->rt;
        sim_list_init(&r->own);
        sim_list_init(&r->with);
        sim_list_init(&r->flight);
        sim_list_init(&r->queue[0]);
        sim_list_init(&r->queue[1]);
        if (!sim_lists_open(&r->lists))
            return no_memory(run, err);
    }
    return TUTTI_OK;
}

static tutti_status start_ranks(sim_run *run, const sim_options *options, tutti_error *err)
{
    sg_host_t *hosts;
    size_t n;
    char name[32];
    tutti_status status =
        sim_platform_load(options->platform, run->size, run->faults > 0, &hosts, &n, err);

    for (int k = 0; k < run->size && status == TUTTI_OK; k++) {
        sim_rank *r = &run->ranks[k];
        snprintf(name, sizeof name, "worker-%d", k);
        r->host = hosts[k];
        r->mailbox = sg_mailbox_by_name(name);
        r->main = sim_thread_make(
            run, &(sim_thread_plan){ k, r->host, name, rank_body, r, SIM_THREAD_STACK_KIB },
            &r->actor);
        if (r->main == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting simulated worker %d of %d",
                                k, run->size);
    }
    run->spare = status == TUTTI_OK && n > (size_t)run->size ? hosts[run->size] : NULL;
    if (status == TUTTI_OK && !run->steady && !sim_faults_start(run))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "starting the watchers of %d simulated workers", run->size);
    free(hosts);
    return status;
}

/* SimGrid's actors and mailboxes go with the process. */
static void close_run(sim_run *run)
{
    for (sim_thread *t = run->threads, *next; t != NULL; t = next) {
        next = t->next;
        if (t->semaphore != NULL)
            sg_sem_destroy(t->semaphore);
        tutti_free(t->log.acts);
        tutti_free(t->now.acts);
        if (t->rank >= 0 && strcmp(t->name, "wire") == 0)
            tutti_free(t->arg);
        tutti_free(t);
    }
    for (sim_transfer *t = run->transfers, *next; t != NULL; t = next) {
        next = t->all;
        tutti_free(t);
    }
    for (sim_window *w = run->windows, *next; w != NULL; w = next) {
        next = w->next;
        if (w->parts != NULL && w->parts[0] != NULL)
            munmap(w->parts[0], w->need);
        tutti_free(w->name);
        tutti_free(w->other);
        tutti_free(w->bytes);
        tutti_free(w->parts);
        tutti_free(w);
    }
    for (size_t k = 0; k < run->n_chunks; k++)
        tutti_free(run->chunks[k]);
    tutti_free(run->chunks);
    for (int k = 0; run->ranks != NULL && k < run->size; k++) {
        sim_lists_close(&run->ranks[k].lists);
        tutti_free(run->ranks[k].events);
    }
    tutti_free(run->ranks);
    tutti_free(run);
}

tutti_status sim_run_ranks(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err)
{
    sim_options options;
    sim_run *run = NULL;
    tutti_spec *spec;
    tutti_status status;

    tutti_options_default(sim_option_table, &options);
    status = tutti_spec_open(
        &spec, launch->spec != NULL && launch->spec[0] != '\0' ? launch->spec : "sim", err);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "transport 'sim'", sim_option_table, &options, err);
    if (status == TUTTI_OK && (launch->size < 1 || launch->size > SIM_RANKS))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "a simulation of %d workers: it takes 1 to %d",
                            launch->size, SIM_RANKS);
    if (status == TUTTI_OK && atomic_flag_test_and_set(&engine_used))
        status = tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "this process has had its simulation: SimGrid can be started once in a process; start "
            "the next one in another (fork before the first)");
    if (status != TUTTI_OK)
        goto out;
    run = tutti_alloc(1, sizeof *run);
    if (run == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a simulation");
        goto out;
    }
    run->rt = (tutti_runtime){ &sim_runtime_ops, run };
    run->files = rt;
    run->size = launch->size;
    status = limit_wires(run, err);
    run->seed = (uint64_t)options.seed;
    run->peer_timeout = options.peer_timeout;
    run->rank_main = rank_main;
    run->arg = arg;
    sim_list_init(&run->gate);
    sim_list_init(&run->with_any);
    if (status == TUTTI_OK)
        status = make_ranks(run, launch, err);
    if (status == TUTTI_OK)
        status = sim_faults_read(run, options.fail, err);
    run->steady = options.platform[0] == '\0' && run->faults == 0;
    if (status == TUTTI_OK)
        status = start_ranks(run, &options, err);
    if (status == TUTTI_OK) {
        simgrid_run();
        status = result_of(run, err);
    }
out:
    tutti_spec_close(spec);
    if (run != NULL)
        close_run(run);
    return status;
}
