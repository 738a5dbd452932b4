/* elastic_start.c: starts the workers of a run whose workers come and go: the founders, which meet
   in shared memory; those of other hosts once the founders have met; and lost ones again. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "elastic_internal.h"

extern char **environ;

/* ---- what they are started with ---- */

static bool is_ours(const char *variable)
{
    return strncmp(variable, "TUTTI_MEET", 10) == 0 || strncmp(variable, "TUTTI_RUN_", 10) == 0 ||
           strncmp(variable, TUTTI_LAUNCH_TELL "=", sizeof TUTTI_LAUNCH_TELL) == 0 ||
           strncmp(variable, TUTTI_LAUNCH_PASS "=", sizeof TUTTI_LAUNCH_PASS) == 0 ||
           strncmp(variable, TUTTI_LAUNCH_JOIN "=", sizeof TUTTI_LAUNCH_JOIN) == 0;
}

/* The workers get the key in their environment, which only this user can read. */
static tutti_status open_environment(elastic *e, tutti_error *err)
{
    char id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT];
    size_t n = 0;

    tutti_run_id_text(&e->options->id, id);
    tutti_run_key_text(&e->options->key, key);
    snprintf(e->text[ID], sizeof e->text[ID], TUTTI_MEET_VARIABLE_ID "=%s", id);
    snprintf(e->text[KEY], sizeof e->text[KEY], TUTTI_MEET_VARIABLE_KEY "=%s", key);
    snprintf(e->text[TELL], sizeof e->text[TELL], TUTTI_LAUNCH_TELL "=%d", e->tells[1]);
    snprintf(e->text[PASS], sizeof e->text[PASS], TUTTI_LAUNCH_PASS "=%.4200s", e->options->pass);
    snprintf(e->text[JOIN], sizeof e->text[JOIN], TUTTI_LAUNCH_JOIN "=%.4200s", e->options->pass);
    explicit_bzero(key, sizeof key);
    while (environ[n] != NULL)
        n++;
    for (int newcomer = 0; newcomer < 2; newcomer++) {
        char **to = tutti_alloc(n + VARIABLES + 1, sizeof *to);
        size_t kept = 0;
        e->environment[newcomer] = to;
        if (to == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting %d workers", e->n);
        for (size_t i = 0; i < n; i++)
            if (!is_ours(environ[i]))
                to[kept++] = environ[i];
        for (int v = 0; v < VARIABLES; v++)
            if ((v != JOIN || newcomer) && (v != PASS || !e->options->joins || e->options->keeps))
                to[kept++] = e->text[v];
    }
    return TUTTI_OK;
}

static tutti_status open_start(elastic *e, bool newcomer, tutti_error *err)
{
    tutti_launch_options o = { .workers = e->options->workers,
                               .threads = e->options->threads,
                               .argv = e->options->argv,
                               .environment = e->environment[newcomer] };

    return tutti_launch_start_open(newcomer ? &e->newcomers : &e->founders, e->rt, &o, e->region.fd,
                                   &e->signals.before, err);
}

static tutti_status open_pipe(elastic *e, tutti_error *err)
{
    if (pipe2(e->tells, O_CLOEXEC) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "no pipe for the workers; raise the limit of open files (ulimit -n)");
    fcntl(e->tells[0], F_SETFL, O_NONBLOCK);
    fcntl(e->tells[1], F_SETFD, 0); /* the workers'. This process starts no other program */
    return TUTTI_OK;
}

tutti_status tutti_launch_elastic_prepare(elastic *e, tutti_error *err)
{
    const tutti_launch_elastic_options *o = e->options;
    const size_t n = (size_t)e->n;

    TUTTI_TRY(tutti_runtime_open_posix(&e->rt, err));
    e->workers = tutti_alloc(n, sizeof *e->workers);
    e->cores = tutti_alloc(n, sizeof *e->cores);
    e->polled = tutti_alloc(n + 4, sizeof *e->polled);
    if (e->workers == NULL || e->cores == NULL || e->polled == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", e->n);
    for (size_t k = 0; k < n; k++) {
        e->workers[k].pidfd = -1;
        e->workers[k].elsewhere = (int)k >= o->workers;
    }
    TUTTI_TRY(tutti_launch_pin(e->cores, o->workers, 0, o->workers, o->threads, err));
    TUTTI_TRY(tutti_shm_region_open(&e->region, o->workers,
                                    (int64_t)o->workers * o->threads <= tutti_cores(), err));
    TUTTI_TRY(tutti_launch_signals_take(&e->signals, err));
    TUTTI_TRY(open_pipe(e, err));
    TUTTI_TRY(open_environment(e, err));
    TUTTI_TRY(open_start(e, false, err));
    return open_start(e, true, err);
}

/* ---- starting ---- */

static tutti_status start(elastic *e, int k, bool founder, tutti_error *err)
{
    worker *w = &e->workers[k];
    launch_start there = e->newcomers;
    tutti_status status;

    w->start_at = 0;
    w->begun_at = tutti_now_ns(e->rt);
    w->newcomer = !founder;
    w->in = w->done = w->refused = w->ours = false;
    w->stopped = (launch_stopped){ .since_ns = 0 };
    if (w->elsewhere)
        there.argv = w->argv;
    status = tutti_launch_start_worker(founder        ? &e->founders
                                       : w->elsewhere ? &there
                                                      : &e->newcomers,
                                       k, e->options->joins || w->elsewhere ? NULL : &e->cores[k],
                                       NULL, &w->pid, &w->pidfd, err);
    if (status == TUTTI_OK) {
        e->alive++;
        return TUTTI_OK;
    }
    if (w->pid > 0) { /* it runs but cannot be watched */
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
    }
    return status;
}

void tutti_launch_elastic_start_due(elastic *e)
{
    tutti_error why = { .rank = -1 };

    for (int k = 0; k < e->n; k++) {
        worker *w = &e->workers[k];
        if (w->start_at == 0 || tutti_now_ns(e->rt) < w->start_at)
            continue;
        if (e->ended)
            w->start_at = 0;
        else if (start(e, k, false, &why) != TUTTI_OK)
            say(e, why.text);
    }
}

tutti_status tutti_launch_elastic_begin(elastic *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < e->options->workers && status == TUTTI_OK; k++)
        status = start(e, k, !e->options->joins, err);
    return status;
}
