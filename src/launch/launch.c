/* launch.c: starts the workers of one host and watches them to their end (tutti_launch_run). The
   launcher computes nothing. It sleeps in poll() on the workers' pidfds and on its signals, so it
   sees a death as soon as the kernel does. What the kernel does not report is checked twice a
   second (stopped.c).

   What happens when

     a worker ends in order    nothing.
     a worker fails            its end is recorded in the shared memory, and all workers are woken.
                               The others end by themselves with TUTTI_ERR_PEER. Those that run
                               after the grace period are killed.
                               In a run that continues after losses no grace period begins while
                               enough workers are left. The loss is reported at once; that of a
                               worker that failed by itself 0.2 s later: if the others cannot
                               continue, they have reported so by then.
     a worker is stopped       over shared memory: the others are warned, then the worker is
                               killed, which is a failure.
     a worker has reported a   it is killed after the grace period; in a run that continues, too,
     failure and does not end  which would wait for it at the end.
     the user sends a signal   SIGTERM to all workers; then as above. A second signal kills at once.
     the last worker ends      processes that workers have started are ended, too (adopt.c).
     the launcher is killed    the kernel kills the workers (start.c). The shared memory has no
                               name and is freed with them.

   The message is about the worker that caused the failure (launch_ends.c): one that was killed,
   else the first that failed by itself, else the first that failed because of another. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "launcher.h"
#include "launch.h"

extern char **environ;

#define NS_PER_MS 1000000
#define OWN_FILES 8 /* in addition to the workers': streams, region, signals, a pipe at a start */
#define GRACE_NS ((int64_t)1000 * NS_PER_MS)
#define SILENCE_NS INT64_C(3000000000)
#define CHECK_NS ((int64_t)500 * NS_PER_MS)
#define RECHECK_NS \
    ((int64_t)10 * NS_PER_MS) /* between two checks of orphans that are being ended */
#define REAP_NS ((int64_t)10000 * NS_PER_MS) /* between two checks for orphans that have ended */

/* ---- signals ---- */
static void send_one(launch_worker *w, int signal)
{
    if (w->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, w->pidfd, signal, NULL, 0);
        w->killed_by = signal;
    }
}

static void send_all(launcher *l, int signal)
{
    for (int r = 0; r < l->options->workers; r++)
        send_one(&l->workers[r], signal);
}

static void report_worker(const launcher *l, int rank, bool ended)
{
    const launch_worker *w = &l->workers[rank];
    const bool ours = w->signal != 0 && (w->killed_by == w->signal || w->killed_by == SIGKILL);

    if (l->options->on_worker != NULL)
        l->options->on_worker(l->options->user, l->options->first + rank, w->pid, ended,
                              w->exit_code, ours ? 0 : w->signal);
}

static int64_t grace(const launcher *l)
{
    return l->options->grace_ns > 0 ? l->options->grace_ns : GRACE_NS;
}

static int64_t silence(const launcher *l)
{
    return l->options->silence_ns > 0 ? l->options->silence_ns : SILENCE_NS;
}

static void begin_grace(launcher *l, int64_t grace_ns)
{
    if (l->kill_at == TUTTI_FOREVER && !l->grace_over)
        l->kill_at = tutti_now_ns(l->rt) + grace_ns;
}

void tutti_launch_near_noticed(launcher *l)
{
    if (l->result->noticed_ns == 0)
        l->result->noticed_ns = tutti_now_ns(l->rt);
    begin_grace(l, grace(l));
}

void tutti_launch_near_read_signals(launcher *l)
{
    int next_signal;

    while ((next_signal = tutti_launch_signals_next(&l->signals)) != 0) {
        const int64_t now = tutti_now_ns(l->rt);
        if (l->user_signal == 0) {
            l->user_signal = next_signal;
            l->signal_at = now;
            l->failed_first = l->result->noticed_ns != 0;
            send_all(l, SIGTERM);
            begin_grace(l, l->options->stop_ns > 0 ? l->options->stop_ns : grace(l));
        } else if (l->options->stop_ns == 0 || now - l->signal_at >= TUTTI_LAUNCH_ECHO_NS) {
            l->hurried = true;
            send_all(l, SIGKILL);
        }
    }
}

/* ---- ends ---- */
static void reap_worker(launcher *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    int status = 0;
    const pid_t got = tutti_launch_reap(w->pid, &status);

    if (got == 0)
        return;
    close(w->pidfd);
    w->pidfd = -1;
    l->alive--;
    if (got <
        0) /* another part of this process has reaped it; its report still shows whether it left in order */
        w->exit_code = tutti_launch_near_report(l, rank).state == TUTTI_SHM_CLOSED ? 0 : 255;
    else if (WIFSIGNALED(status))
        w->signal = WTERMSIG(status);
    else
        w->exit_code = WEXITSTATUS(status);
    report_worker(l, rank, true);
    tutti_launch_near_ended(l, rank);
}

/* ---- watching ---- */
static int milliseconds_to(const launcher *l)
{
    const int64_t meet_ns = l->meet != NULL ? tutti_meet_wait_ns(l->meet) : TUTTI_FOREVER;
    int64_t left = TUTTI_FOREVER;

    if (l->kill_at != TUTTI_FOREVER)
        left = l->kill_at - tutti_now_ns(l->rt);
    for (int r = 0; r < l->options->workers; r++)
        if (l->workers[r].lost_at != 0 && l->workers[r].lost_at - tutti_now_ns(l->rt) < left)
            left = l->workers[r].lost_at - tutti_now_ns(l->rt);
    if (l->check_at != TUTTI_FOREVER && l->check_at - tutti_now_ns(l->rt) < left)
        left = l->check_at - tutti_now_ns(l->rt);
    if (l->adopted_at != TUTTI_FOREVER && l->adopted_at - tutti_now_ns(l->rt) < left)
        left = l->adopted_at - tutti_now_ns(l->rt);
    if (left > meet_ns)
        left = meet_ns;
    if (left == TUTTI_FOREVER)
        return -1;
    left = left < 0 ? 0 : (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > INT_MAX ? INT_MAX : (int)left;
}

/* Serves the meeting place, and handles what it reports. A worker that is silent for too long is
   lost, like one that has ended. */
static void serve_meeting(launcher *l)
{
    if (l->meet == NULL)
        return;
    /* late workers are notified, and end by themselves with an error */
    tutti_meet_progress(l->meet, NULL);
    for (int rank; (rank = tutti_meet_event(l->meet)) >= 0;) {
        const tutti_meet_rank *met = tutti_meet_rank_of(l->meet, rank);
        launch_worker *w = &l->workers[rank];
        if (met->state < TUTTI_MEET_FAILED)
            continue;
        /* silent, or expelled: it must never come back */
        if (met->state == TUTTI_MEET_LOST && w->pidfd >= 0 && l->options->continue_on_loss) {
            w->stopped.expelled_ns = tutti_now_ns(l->rt);
            send_one(w, SIGKILL);
        }
        if (met->state == TUTTI_MEET_FAILED && l->options->continue_on_loss)
            continue; /* its end follows */
        if (!l->options->continue_on_loss && l->result->noticed_ns == 0)
            l->result->noticed_ns = met->noticed_ns;
        tutti_launch_near_lost(l, rank,
                               tutti_meet_complete(l->meet) ? TUTTI_SHM_RUNNING : TUTTI_SHM_ABSENT);
    }
}

/* Finds what no descriptor shows: which worker has failed and does not end, was expelled, or,
   over shared memory, is stopped. A launcher that was stopped itself (the whole job, by Ctrl-Z)
   has seen nothing of that time. */
static void check_workers(launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);
    const bool was_away = now - l->checked_at > 3 * CHECK_NS;

    l->checked_at = now;
    l->check_at = now + CHECK_NS;
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        char how[300];
        bool kill_it = false;
        if (w->pidfd < 0)
            continue;
        if (tutti_launch_near_report(l, r).state == TUTTI_SHM_FAILED) {
            w->reported_ns = w->reported_ns != 0 && !was_away ? w->reported_ns : now;
            kill_it = now - w->reported_ns >= grace(l);
        } else if (l->meet != NULL) {
            continue; /* over tcp the meeting place detects silence */
        } else if (tutti_shm_expelled(&l->region, r, how, sizeof how)) {
            /* until the next check it may end by itself, with its own error */
            kill_it = w->stopped.expelled_ns != 0;
            w->stopped.expelled_ns = now;
        } else
            kill_it = tutti_launch_stopped_check(&w->stopped, w->pid, silence(l), now, was_away);
        tutti_shm_stopped(&l->region, r, w->stopped.warned);
        if (kill_it)
            send_one(w, SIGKILL);
    }
}

static void read_lines(const launcher *l, int rank)
{
    for (int stream = 1; l->lines != NULL && stream <= 2; stream++)
        tutti_launch_lines_read(&l->lines[2 * rank + stream - 1], l->options->output,
                                l->options->user, l->options->first + rank, stream);
}

/* ---- what workers leave behind ---- */
static bool is_worker(void *user, pid_t pid)
{
    const launcher *l = user;

    for (int r = 0; r < l->options->workers; r++)
        if (l->workers[r].pidfd >= 0 && l->workers[r].pid == pid)
            return true;
    return false;
}

static void reap_orphans(launcher *l)
{
    int left = 0;

    tutti_launch_adopt_reap(&l->adopted);
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        if (!w->continued_without || w->pidfd >= 0 || w->orphans_ended)
            continue;
        w->orphans_ended = tutti_launch_adopt_end(&l->adopted, SIGKILL, l->options->first + r) == 0;
        left += !w->orphans_ended;
    }
    l->adopted_at = tutti_now_ns(l->rt) + (left > 0 ? RECHECK_NS : REAP_NS);
}

/* No worker is left: ends the orphans. After a signal of the user they have the same time to save
   as the workers. */
static void end_what_is_left(launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);
    const int64_t until = l->grace_over || l->hurried ? now
                          : l->kill_at != TUTTI_FOREVER ? l->kill_at : now + grace(l);

    while (tutti_launch_adopt_end(&l->adopted,
                                  tutti_now_ns(l->rt) >= until || l->hurried ? SIGKILL : SIGTERM,
                                  -1) > 0) {
        poll(&(struct pollfd){ .fd = l->signals.fd, .events = POLLIN }, 1, RECHECK_NS / NS_PER_MS);
        tutti_launch_near_read_signals(l);
        for (int r = 0; r < l->options->workers; r++)
            read_lines(l, r);
    }
}

/* Lists what is waited for: ends of workers, signals, the meeting, and lines of output. */
static nfds_t list_polled(launcher *l)
{
    const int n = l->options->workers, n_lines = l->lines != NULL ? 2 * n : 0;
    for (int r = 0; r < n; r++)
        l->polled[r] =
            (struct pollfd){ .fd = l->workers[r].pidfd, .events = POLLIN }; /* -1 is passed over */
    l->polled[n] = (struct pollfd){ .fd = l->signals.fd, .events = POLLIN };
    l->polled[n + 1] =
        (struct pollfd){ .fd = l->meet != NULL ? tutti_meet_fd(l->meet) : -1, .events = POLLIN };
    for (int k = 0; k < n_lines; k++)
        l->polled[n + 2 + k] = (struct pollfd){ .fd = l->lines[k].fd, .events = POLLIN };
    return (nfds_t)(n + 2 + n_lines);
}

/* Passes on what the workers have printed, and sees their ends. */
static void serve_workers(launcher *l)
{
    const int n = l->options->workers;
    for (int r = 0; r < n; r++) {
        read_lines(l, r); /* its output is passed on before its end is reported */
        if (l->workers[r].pidfd >= 0 && l->polled[r].revents != 0)
            reap_worker(l, r);
        if (l->workers[r].lost_at != 0 && tutti_now_ns(l->rt) >= l->workers[r].lost_at)
            tutti_launch_near_lost(l, r, TUTTI_SHM_FAILED);
    }
}

static void watch_workers(launcher *l)
{
    const int n = l->options->workers;

    while (l->alive > 0) {
        const int before = l->alive;
        const nfds_t polled = list_polled(l);
        if (poll(l->polled, polled, milliseconds_to(l)) < 0 && errno != EINTR && errno != EAGAIN &&
            errno != ENOMEM)
            send_all(l, SIGKILL); /* cannot happen; without poll the workers could not be watched */
        /* before the deaths: workers that the user has ended are not lost */
        tutti_launch_near_read_signals(l);
        /* also before the deaths: a failure report comes before the end of the worker */
        serve_meeting(l);
        serve_workers(l);
        if (tutti_now_ns(l->rt) >= l->check_at)
            check_workers(l);
        if (l->user_signal != 0 &&
            l->alive < before) /* a wrapper has ended at once: signal its program as well */
            tutti_launch_adopt_end(&l->adopted, SIGTERM, -1);
        if (tutti_now_ns(l->rt) >= l->adopted_at)
            reap_orphans(l);
        if (l->kill_at != TUTTI_FOREVER && tutti_now_ns(l->rt) >= l->kill_at) {
            send_all(l, SIGKILL);
            l->kill_at = TUTTI_FOREVER;
            l->grace_over = true;
        }
    }
    for (int r = 0; r < n; r++)
        if (l->workers[r].lost_at != 0)
            tutti_launch_near_lost(l, r, TUTTI_SHM_FAILED);
    end_what_is_left(l);
}

/* ---- opening and closing ---- */
/* Opens the meeting place. The workers get the key in their environment, which only this user can
   read. */
static tutti_status open_meet(launcher *l, tutti_error *err)
{
    tutti_meet_options m = { .address = "unix",
                             .size = l->options->workers,
                             .silence_ns = silence(l) };
    char *const *given = l->options->environment != NULL ? l->options->environment : environ;
    char where[120], id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT];
    tutti_status status;
    size_t n = 0, kept = 0;

    tutti_run_id_make(l->rt, &m.id);
    tutti_run_key_make(l->rt, &m.key);
    tutti_run_id_text(&m.id, id);
    tutti_run_key_text(&m.key, key);
    status = tutti_meet_open(&l->meet, l->rt, &m, err);
    tutti_run_key_wipe(&m.key);
    if (status != TUTTI_OK)
        return status;
    while (given[n] != NULL)
        n++;
    l->environment = tutti_alloc(n + TUTTI_LENGTH(l->meet_text) + 1, sizeof *l->environment);
    if (l->environment == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting %d workers with %zu variables",
                          l->options->workers, n);
    for (size_t i = 0; i < n; i++) { /* variables of an outer run are not passed on */
        if (strncmp(given[i], TUTTI_MEET_VARIABLE, strlen(TUTTI_MEET_VARIABLE)) != 0 &&
            strncmp(given[i], "TUTTI_RUN_", 10) != 0)
            l->environment[kept++] = given[i];
    }
    tutti_meet_where(l->meet, NULL, where, sizeof where);
    snprintf(l->meet_text[0], sizeof *l->meet_text, TUTTI_MEET_VARIABLE "=%s", where);
    snprintf(l->meet_text[1], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_ID "=%s", id);
    snprintf(l->meet_text[2], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_KEY "=%s", key);
    /* the launcher serves it */
    snprintf(l->meet_text[3], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_AT_0 "=0");
    for (size_t i = 0; i < TUTTI_LENGTH(l->meet_text); i++)
        l->environment[kept++] = l->meet_text[i];
    l->as_given.environment = l->environment;
    return TUTTI_OK;
}

/* All workers are watched by one poll, whose entries the limit of open files limits: beyond it the
   end of workers would not be seen. */
static tutti_status check_files(const tutti_launch_options *o, tutti_error *err)
{
    const rlim_t files = (rlim_t)o->workers * (o->output != NULL ? 3 : 1) + OWN_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < files)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "watching %d workers needs %llu open files, and the limit is %llu; raise "
                          "it (ulimit -n %llu), or use fewer workers",
                          o->workers, (unsigned long long)files, (unsigned long long)limit.rlim_cur,
                          (unsigned long long)files);
    return TUTTI_OK;
}

/* Checks the options of a launch. */
static tutti_status check_options(const tutti_launch_options *o, tutti_error *err)
{
    const int local_size = o->local_size > 0 ? o->local_size : o->workers;
    if (o->argv == NULL || o->argv[0] == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "no program to start; give the path of one and its arguments");
    if (o->size > 0 && (o->first < 0 || o->first > o->size - o->workers || o->meet))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d workers from rank %d on are no part of %d that meet elsewhere",
                          o->workers, o->first, o->size);
    if (o->local_first < 0 || o->local_first > local_size - o->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%d workers from worker %d on are no part of %d that share this machine's cores",
            o->workers, o->local_first, local_size);
    if (o->workers < 1 || o->workers > TUTTI_SHM_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d workers asked for; one host takes from 1 to %d", o->workers,
                          TUTTI_SHM_RANKS);
    return check_files(o, err);
}

/* Allocates the records of the workers. */
static tutti_status open_records(launcher *l, tutti_error *err)
{
    const tutti_launch_options *o = l->options;
    const size_t n = (size_t)o->workers;
    l->workers = tutti_alloc(n, sizeof *l->workers);
    l->polled = tutti_alloc(3 * n + 2, sizeof *l->polled);
    if (o->output != NULL)
        l->lines = tutti_alloc(2 * n, sizeof *l->lines);
    for (size_t k = 0; l->lines != NULL && k < 2 * n; k++)
        l->lines[k].fd = -1;
    if (o->pin)
        l->cores = tutti_alloc(n, sizeof *l->cores);
    if (l->workers == NULL || l->polled == NULL || (o->pin && l->cores == NULL) ||
        (o->output != NULL && l->lines == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", o->workers);
    for (size_t r = 0; r < n; r++)
        l->workers[r] = (launch_worker){ .pid = -1, .pidfd = -1, .guilt = GUILT_NONE };
    return TUTTI_OK;
}

static tutti_status prepare(launcher *l, tutti_error *err)
{
    const tutti_launch_options *o = l->options;
    const int threads = o->threads > 0 ? o->threads : 1,
              local_size = o->local_size > 0 ? o->local_size : o->workers;

    TUTTI_TRY(check_options(o, err));
    TUTTI_TRY(tutti_runtime_open_posix(&l->rt, err));
    TUTTI_TRY(open_records(l, err));
    if (o->pin)
        TUTTI_TRY(tutti_launch_pin(l->cores, o->workers, o->local_first, local_size, threads, err));
    TUTTI_TRY(tutti_shm_region_open(&l->region, o->workers,
                                    (int64_t)local_size * threads <= tutti_cores(), err));
    TUTTI_TRY(tutti_launch_signals_take(&l->signals, err));
    l->as_given = *o;
    if (o->ends_all) {
        TUTTI_TRY(tutti_launch_adopt_begin(&l->adopted, is_worker, l, err));
        l->adopted_at = tutti_now_ns(l->rt) + REAP_NS;
    }
    gethostname(l->host, sizeof l->host - 1);
    l->memory_kills = tutti_launch_memory_kills("");
    l->checked_at = tutti_now_ns(l->rt);
    if (o->size == 0 &&
        o->workers > 1) /* of a part of a run, another launcher receives the reports */
        l->check_at = l->checked_at + CHECK_NS;
    if (o->meet)
        TUTTI_TRY(open_meet(l, err));
    TUTTI_TRY(tutti_launch_start_open(&l->start, l->rt, &l->as_given, l->region.fd,
                                      &l->signals.before, err));
    if (o->size > 0)
        snprintf(l->start.size_text, sizeof l->start.size_text, "%s=%d", TUTTI_SHM_VARIABLE_SIZE,
                 o->size);
    return TUTTI_OK;
}

static tutti_status start_all(launcher *l, tutti_error *err)
{
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        int theirs[2] = { -1, -1 };
        tutti_status status = TUTTI_OK;
        for (int k = 0; k < 2 && l->lines != NULL && status == TUTTI_OK; k++)
            if (!tutti_launch_lines_open(&l->lines[2 * r + k], &theirs[k]))
                status = tutti_fail(err, TUTTI_ERR_IO, errno,
                                    "no pipe for the output of worker %d; raise the limit of open "
                                    "files (ulimit -n)",
                                    l->options->first + r);
        if (status == TUTTI_OK)
            status = tutti_launch_start_worker(
                &l->start, l->options->first + r, l->cores != NULL ? &l->cores[r] : NULL,
                l->lines != NULL ? theirs : NULL, &w->pid, &w->pidfd, err);
        for (int k = 0; k < 2; k++)
            if (theirs[k] >= 0)
                close(theirs[k]);
        if (status == TUTTI_OK) {
            l->alive++;
            report_worker(l, r, false);
            continue;
        }
        if (w->pid > 0) { /* it runs but cannot be watched */
            kill(w->pid, SIGKILL);
            waitpid(w->pid, NULL, 0);
        }
        send_all(l, SIGKILL);
        watch_workers(l);
        return status;
    }
    return TUTTI_OK;
}

static void launcher_close(launcher *l)
{
    tutti_launch_adopt_close(&l->adopted);
    tutti_launch_start_close(&l->start);
    tutti_launch_signals_release(&l->signals);
    tutti_meet_close(l->meet);
    tutti_free(l->environment);
    tutti_shm_region_close(&l->region);
    for (int k = 0; l->lines != NULL && k < 2 * l->options->workers; k++)
        tutti_launch_lines_close(&l->lines[k], l->options->output, l->options->user,
                                 l->options->first + k / 2, k % 2 + 1);
    tutti_free(l->lines);
    tutti_free(l->cores);
    tutti_free(l->polled);
    tutti_free(l->workers);
    tutti_runtime_close(l->rt);
}

tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result,
                              tutti_error *err)
{
    launcher l = { .options = options,
                   .result = result,
                   .region = { .fd = -1, .owned = true },
                   .signals = { .fd = -1 },
                   .check_at = TUTTI_FOREVER,
                   .adopted_at = TUTTI_FOREVER,
                   .kill_at = TUTTI_FOREVER };
    tutti_error own = { .rank = -1 };
    tutti_status status;

    *result = (tutti_launch_result){ .rank = -1 };
    status = prepare(&l, &own);
    if (status == TUTTI_OK)
        status = start_all(&l, &own);
    if (status == TUTTI_OK) {
        watch_workers(&l);
        tutti_launch_near_conclude(&l);
    } else {
        *result =
            (tutti_launch_result){ .exit_code = status == TUTTI_ERR_USAGE ? 2 : 1, .rank = -1 };
        snprintf(result->text, sizeof result->text, "%s", own.text);
        if (err != NULL)
            *err = own;
    }
    launcher_close(&l);
    return status;
}
