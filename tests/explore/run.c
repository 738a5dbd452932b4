/* run.c: one run of one seed, from the drawing of its circumstances to the verdict. */
#include "explore_internal.h"
#include "collective/collective_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What explore_run has prepared for x_run_ranks; the library calls the latter in between. */
static struct {
    const explore_piece *piece;
    uint64_t seed;
    bool verbose;
    explore_report *report;
    explore_case *c;
} prepared;

static void rank_body(void *arg)
{
    x_rank *const r = arg;
    tutti_status status;

    r->err.rank = -1;
    status = r->run->rank_main(&r->launch, r->run->arg, &r->err);
    r->ended = r->closed = true;
    if (status == TUTTI_OK || status == TUTTI_CLOSED) {
        x_depart(r->run, r->rank, X_LEFT, NULL);
        return;
    }
    r->status = status;
    if (r->err.status == TUTTI_OK)
        tutti_fail(&r->err, status, 0, "worker %d ended with '%s' and no sentence", r->rank, tutti_status_name(status));
    x_depart(r->run, r->rank, X_FAILED, &r->err);
}

static void copy_log(const x_run *run, explore_report *report, uint64_t most)
{
    const uint64_t kept = run->n_events < X_EVENTS ? run->n_events : X_EVENTS, n = kept < most ? kept : most;

    for (uint64_t k = run->n_events - n; k < run->n_events; k++) {
        const char *const line = run->events[k % X_EVENTS];
        const size_t length = strlen(line);
        if (report->log_used + length + 2 > sizeof report->log)
            return;
        memcpy(report->log + report->log_used, line, length);
        report->log_used += length;
        report->log[report->log_used++] = '\n';
    }
}

static tutti_status verdict(const x_run *run, tutti_error *err)
{
    const int culprit = x_culprit(run);
    const x_rank *r;

    if (culprit < 0)
        return TUTTI_OK;
    r = &run->ranks[culprit];
    if (r->state == X_LOST)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, culprit, "worker %d was lost: %s", culprit, r->words);
    if (r->err.status != TUTTI_OK) {
        if (err != NULL)
            *err = r->err;
        return r->status;
    }
    return tutti_fail_rank(err, r->status, r->blame, "%s", r->words);
}

tutti_status x_run_ranks(tutti_runtime *rt, const tutti_launch *launch,
                         tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err), void *arg,
                         tutti_error *err)
{
    x_run *const run = calloc(1, sizeof *run);
    uint64_t seed = prepared.seed;
    char name[24];
    tutti_status status;

    if (run == NULL || (run->events = calloc(X_EVENTS, sizeof *run->events)) == NULL || launch->size > EXPLORE_RANKS) {
        free(run);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a run of %d workers: it takes 1 to %d", launch->size,
                          EXPLORE_RANKS);
    }
    if (prepared.piece == NULL)
        (void)sscanf(launch->spec, "explore(seed=%" SCNu64 ")", &seed);
    run->rt = (tutti_runtime){ &x_runtime_ops, run };
    run->files = rt;
    run->piece = prepared.piece;
    run->report = prepared.report;
    run->verbose = prepared.verbose;
    run->size = launch->size;
    run->rank_main = rank_main;
    run->arg = arg;
    run->hash = UINT64_C(0xcbf29ce484222325);
    x_strategy(run, seed, prepared.piece != NULL && prepared.piece->deaths);
    for (int r = 0; r < run->size; r++) {
        run->ranks[r] = (x_rank){ .run = run, .rank = r, .launch = *launch, .blame = -1 };
        run->ranks[r].launch.rank = r;
        run->ranks[r].launch.within = &run->ranks[r];
        run->ranks[r].launch.rt = &run->rt;
        snprintf(name, sizeof name, "worker-%d", r);
        run->ranks[r].main = x_fiber_open(run, r, name, rank_body, &run->ranks[r]);
    }
    status = x_schedule(run, err);
    if (status == TUTTI_OK)
        status = verdict(run, err);
    if (prepared.c != NULL)
        prepared.c->cut = run->was_cut;
    for (int r = 0; r < run->size && prepared.c != NULL; r++) {
        prepared.c->rank[r].end = run->ranks[r].state == X_LOST ? EXPLORE_DIED : EXPLORE_ENDED;
        prepared.c->rank[r].expelled = run->ranks[r].refused_at != 0;
        prepared.c->rank[r].status = run->ranks[r].status;
        prepared.c->rank[r].err = run->ranks[r].err;
    }
    if (run->report != NULL) {
        run->report->steps = run->steps;
        run->report->events_hash = run->hash;
        run->report->seconds = (double)(run->now - X_EPOCH_NS) * 1e-9;
        copy_log(run, run->report, run->verbose ? X_EVENTS : 60);
    }
    x_messages_close(run);
    while (run->fibers != NULL) {
        x_fiber *const f = run->fibers;
        run->fibers = f->next;
        x_fiber_close(f);
    }
    free(run->events);
    free(run);
    return status;
}

static tutti_status piece_main(tutti_world *world, void *arg, tutti_error *err)
{
    explore_case *const c = arg;

    return c->piece->rank_main(world, c, err);
}

static tutti_status judge(const explore_case *c, tutti_error *err)
{
    for (int r = 0; r < c->ranks; r++)
        if (c->rank[r].end == EXPLORE_ENDED && c->rank[r].status != TUTTI_OK &&
            !(c->piece->deaths && c->rank[r].status == TUTTI_ERR_PEER))
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d: %s", r, c->rank[r].err.text);
    return TUTTI_OK;
}

static tutti_status run_and_judge(const tutti_transport_ops *ops, explore_case *c, explore_report *report,
                                  tutti_error *err)
{
    tutti_status status;

    prepared.piece = c->piece;
    prepared.c = c;
    status = tutti_world_run_on(ops, "explore", c->ranks, piece_main, c, err);
    if (report->text[0] != '\0') /* deadlock and the like */
        return status != TUTTI_OK ? status : TUTTI_ERR_STATE;
    status = (c->piece->judge != NULL ? c->piece->judge : judge)(c, err);
    if (status != TUTTI_OK)
        snprintf(report->text, sizeof report->text, "%s", err->text);
    return status;
}

tutti_status explore_run(const explore_piece *piece, uint64_t seed, bool verbose, explore_report *report)
{
    explore_case c = { .piece = piece, .seed = seed };
    tutti_transport_ops ops = explore_transport;
    tutti_error err = { .rank = -1 };
    tutti_status status;

    memset(report, 0, offsetof(explore_report, log));
    c.ranks = piece->least + (int)explore_draw(&c, "ranks", (uint64_t)(piece->most - piece->least) + 1);
    c.windows =
        piece->carrier == EXPLORE_WINDOWS || (piece->carrier == EXPLORE_EITHER && explore_draw(&c, "carrier", 2) == 0);
    c.shared = calloc(1, EXPLORE_SHARED);
    if (!c.windows) {
        ops.publish = NULL;
        ops.await = NULL;
    }
    if (piece->losses > 0) {
        ops.events = x_events;
        ops.expel = x_expel;
    }
    prepared.seed = seed;
    prepared.verbose = verbose;
    prepared.report = report;
    status = piece->prepare != NULL ? piece->prepare(&c, &err) : TUTTI_OK;
    if (status == TUTTI_OK)
        status = run_and_judge(&ops, &c, report, &err);
    else
        snprintf(report->text, sizeof report->text, "%s", err.text);
    prepared.piece = NULL;
    prepared.report = NULL;
    prepared.c = NULL;
    free(c.shared);
    return status;
}
