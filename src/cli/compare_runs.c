/* compare_runs.c: carries out the runs of a comparison, each in a child process. A run that has a
   summary.json is done, since a run writes it last and atomically; that of a script is done if it
   has ended well (compare_record.c). Another run is repeated, and its files are overwritten. The
   children die with this process, however it ends. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare_internal.h"
#include "runtime/files.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include "base/errors.h"
#include "base/machine.h"
#include "collective/world.h"
#include "launch/launch.h"

enum { MOST_JOBS = 256, LOOK_NS = 50 * 1000 * 1000 };

static struct {               /* written by the signal handler */
    volatile sig_atomic_t by; /* the signal by which the user ends all runs; 0: none yet */
} asked;

static void note(int number)
{
    asked.by = asked.by == 0 ? number : asked.by;
}

typedef struct job {
    pid_t child;      /* 0: the entry is free */
    size_t run;
    int64_t since_ns;
    int sent;         /* the signal that it got because of its timeout; 0: none */
    tutti_compare_log log;
} job;
typedef struct work {
    tutti_runtime *rt;
    const json_t *plan, *runs;
    /* absolute, since children change directory; self: this program */
    char directory[4096], self[4096];
    job jobs[MOST_JOBS];
    int active;       /* children now */
    int most;         /* most children at a time */
    bool limited;     /* --jobs was not given, so memory also limits the number of children */
    double *seconds;  /* [runs]: time of a run that ended here with results; else NAN */
    bool *done;       /* [runs]: has results, or has failed here, or its row was refused */
    double memory;    /* bytes: the most that a run has used */
    int failed;       /* runs that failed, without those that were refused or cut */
    bool *cut;        /* [runs]: ended, or not begun, because of the time limit; NULL: no limit */
    int64_t until_ns; /* the time limit */
    bool script;      /* the runs are of a script */
    double timeout;   /* seconds of a script's run; 0: no limit */
    tutti_screen *screen; /* NULL: no output */
} work;

static const char *name_of(const work *w, size_t run)
{
    return tutti_history_text(json_array_get(w->runs, run), "name");
}

static bool has_results(const work *w, size_t run)
{
    return tutti_compare_done(w->rt, w->directory, w->plan, name_of(w, run));
}

bool tutti_compare_failure_report(const char *directory, const char *name, char *text, size_t bytes)
{
    char path[4300], log[8192];
    ssize_t length, from;

    snprintf(path, sizeof path, "%s/runs/%s.log", directory, name);
    length = tutti_compare_tail(path, log, sizeof log);
    if (length < 0)
        return false;
    while (length > 0 && log[length - 1] == '\n')
        length--;
    for (from = length; from > 0 && log[from - 1] != '\n';)
        from--;
    if (strncmp(log + from, "tutti: ", 7) == 0)
        from += 7;
    snprintf(text, bytes, "%.*s", (int)(length - from), log + from);
    for (char *at = text; *at != 0; at++) /* a terminal's codes are not for a table */
        *at = (char)((unsigned char)*at < 32 ? ' ' : *at);
    if (text[0] == 0)
        snprintf(text, bytes, "ended without a word");
    return true;
}

/* Removes options from the environment. The words of a run include the options that the environment
   had when the plan was made, and the present ones must not change them. TUTTI_DATA stays: it is
   the folder of data sets (settings.c). */
static void forget_options(void)
{
    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        char name[80];
        snprintf(name, sizeof name, "TUTTI_%s", o->name);
        for (char *at = name + 6; *at != 0; at++)
            *at = (char)(*at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
        if (strcmp(o->name, "data") != 0)
            unsetenv(name);
    }
}

static void become_run(const work *w, size_t run, char **words, pid_t parent)
{
    const char *const start = tutti_history_text(w->plan, "directory");
    char log[4300];
    int to;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    if (getppid() != parent)
        _exit(EXIT_TRAINING);
    snprintf(log, sizeof log, "%s/runs/%s.log", w->directory, name_of(w, run));
    to = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (to < 0 || dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0)
        _exit(EXIT_TRAINING);
    if (chdir(start) != 0) {
        fprintf(stderr, "tutti: the directory %s, where this comparison was begun, is gone (%s)\n",
                start, tutti_errno_text(errno));
        _exit(EXIT_USAGE);
    }
    if (w->script) { /* its environment is its own; the launcher has flags alone */
        char folder[4300];
        snprintf(folder, sizeof folder, "%s/runs/%s", w->directory, name_of(w, run));
        setenv("TUTTI_TRACE_DIR", folder, 1);
        setenv("TUTTI_TRACE_OVERWRITE", "1", 1);
    } else
        forget_options();
    execv(w->self, words);
    _exit(EXIT_TRAINING);
}

static tutti_status start_job(work *w, size_t run, tutti_error *err)
{
    const json_t *words = json_object_get(json_array_get(w->runs, run), "words");
    const size_t n = json_array_size(words);
    const char **argv = tutti_alloc(n + 4, sizeof *argv);
    const pid_t parent = getpid();
    char out[4300];
    job *free_one = w->jobs;
    sigset_t all, before;

    if (argv == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting run %s", name_of(w, run));
    for (size_t i = 0; i < n; i++)
        argv[i] = json_string_value(json_array_get(words, i));
    snprintf(out, sizeof out, "--out=%s/runs/%s", w->directory, name_of(w, run));
    if (w->script) {
        const tutti_status status = tutti_compare_record_begin(w->rt, out + strlen("--out="), err);
        if (status != TUTTI_OK) {
            tutti_free(argv);
            return status;
        }
    } else {
        argv[n] = out;
        argv[n + 1] = "--overwrite";
        argv[n + 2] = "--quiet";
    }
    while (free_one->child != 0)
        free_one++;
    fflush(NULL); /* else the child would write buffered output again */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* our handlers must not run in the child */
    *free_one = (job){ .child = fork(), .run = run, .since_ns = tutti_now_ns(w->rt) };
    if (free_one->child == 0) {
        signal(SIGINT, SIG_IGN); /* from the terminal: we get it too, and send SIGTERM */
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_IGN);
        sigprocmask(SIG_SETMASK, &before, NULL);
        become_run(w, run, (char **)(uintptr_t)argv, parent);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    tutti_free(argv);
    if (free_one->child < 0) {
        free_one->child = 0;
        return tutti_fail(err, TUTTI_ERR_IO, errno, "starting run %s", name_of(w, run));
    }
    w->active++;
    return TUTTI_OK;
}

/* ---- progress, and ends of runs ---- */

static bool same_row(const work *w, size_t a, size_t b)
{
    return json_equal(json_object_get(json_array_get(w->runs, a), "row"),
                      json_object_get(json_array_get(w->runs, b), "row"));
}

/* Returns the expected seconds of a run: the mean over those of its row that have ended, else over
   all that have ended. Below 0: none has. */
static double expected(const work *w, size_t run)
{
    double own = 0, all = 0;
    int n_own = 0, n = 0;

    for (size_t i = 0; i < json_array_size(w->runs); i++)
        if (isfinite(w->seconds[i])) {
            all += w->seconds[i];
            n++;
            own += same_row(w, i, run) ? w->seconds[i] : 0;
            n_own += same_row(w, i, run);
        }
    return n_own > 0 ? own / n_own : n > 0 ? all / n : -1;
}

static void print_progress(const work *w, int status, const char *what)
{
    const size_t n = json_array_size(w->runs);
    double left = 0;
    size_t done = 0;
    bool known = true;
    char line[600], time[48] = "";

    if (w->screen == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        const double takes = w->done[i] ? 0 : expected(w, i);
        double spent = 0;
        done += w->done[i];
        for (int k = 0; k < w->most && !w->done[i]; k++)
            if (w->jobs[k].child != 0 && w->jobs[k].run == i)
                spent = (double)(tutti_now_ns(w->rt) - w->jobs[k].since_ns) * 1e-9;
        known = known && takes >= 0;
        left += fmax(0, takes - spent);
    }
    left /= fmax(1, fmin(w->most, (double)(n - done)));
    if (done < n && known)
        snprintf(time, sizeof time, "  %.0f:%02.0f left", floor(left / 60), floor(fmod(left, 60)));
    snprintf(line, sizeof line, "%zu of %zu runs%s%s", done, n, time, what);
    tutti_screen_say(w->screen, status, line);
}

/* A method that refuses its row would refuse each run of it: the row's other runs are skipped. */
static void leave_row(work *w, size_t run)
{
    for (size_t i = 0; i < json_array_size(w->runs); i++) {
        bool active = false;
        for (int k = 0; k < w->most; k++)
            active = active || (w->jobs[k].child != 0 && w->jobs[k].run == i);
        if (!active && same_row(w, i, run))
            w->done[i] = true;
    }
}

/* Has a run that ended with `state` results? */
static bool judge(work *w, const job *of, int state)
{
    const tutti_compare_end end = { .plan = w->plan,
                                    .run = json_array_get(w->runs, of->run),
                                    .directory = w->directory,
                                    .state = state,
                                    .late = of->sent != 0,
                                    .seconds = (double)(tutti_now_ns(w->rt) - of->since_ns) * 1e-9,
                                    .timeout = w->timeout };

    return w->script ? tutti_compare_record_good(w->rt, &end) : has_results(w, of->run);
}

static void note_end(work *w, const job *of, int state)
{
    const json_t *run = json_array_get(w->runs, of->run),
                 *row = json_array_get(json_object_get(w->plan, "rows"),
                                       (size_t)json_integer_value(json_object_get(run, "row")));
    const double seconds = (double)(tutti_now_ns(w->rt) - of->since_ns) * 1e-9;
    const bool there = judge(w, of, state),
               refused = !there && !w->script && WIFEXITED(state) &&
                         WEXITSTATUS(state) == EXIT_USAGE;
    char label[300], what[600];

    w->done[of->run] = true;
    w->failed += !there && !refused;
    if (refused)
        leave_row(w, of->run);
    if (there) {
        char path[4200];
        tutti_history h;
        w->seconds[of->run] = seconds;
        snprintf(path, sizeof path, "%s/runs/%s", w->directory, name_of(w, of->run));
        if (tutti_history_open(&h, w->rt, path, NULL) == TUTTI_OK) {
            w->memory =
                fmax(w->memory, tutti_history_number(h.summary, "peak_rss_bytes_per_worker"));
            tutti_history_close(&h);
        }
    }
    tutti_compare_label(row, label, sizeof label);
    snprintf(what, sizeof what, "  %s %.80s %.80s seed %lld: %s", label,
             tutti_history_text(row, "condition"),
             json_string_value(
                 json_array_get(json_object_get(w->plan, "points"),
                                (size_t)json_integer_value(json_object_get(run, "point")))),
             (long long)json_integer_value(json_object_get(run, "seed")),
             there     ? "done"
             : refused ? "refused"
                       : "failed");
    print_progress(w, 0, what);
}

/* Is there memory for another run? A simulated run has all its workers in one process. If each run
   took as much memory as the largest so far, all together have to stay below 80 % of the machine's
   memory, since a run beyond that might be killed. */
static bool has_room(const work *w)
{
    if (w->active == 0)
        return true;
    return w->active < w->most &&
           (!w->limited || (w->active + 1) * w->memory < 0.8 * (double)tutti_machine_bytes());
}

static void bound_log(const work *w, job *of, bool ended)
{
    char log[4300];

    snprintf(log, sizeof log, "%s/runs/%s.log", w->directory, name_of(w, of->run));
    tutti_compare_bound_log(log, ended, &of->log);
}

static void reap_jobs(work *w)
{
    for (int k = 0; k < w->most; k++) {
        int state;
        bool ended;
        if (w->jobs[k].child == 0)
            continue;
        ended = waitpid(w->jobs[k].child, &state, WNOHANG) == w->jobs[k].child;
        bound_log(w, &w->jobs[k], ended);
        if (!ended)
            continue;
        w->active--;
        if (asked.by == 0 && (w->cut == NULL || !w->cut[w->jobs[k].run]))
            note_end(w, &w->jobs[k], state);
        w->jobs[k].child = 0;
    }
}

/* Ends runs that take longer than --timeout: SIGTERM, and after 20 s SIGKILL. */
static void end_late(work *w)
{
    for (int k = 0; k < w->most && w->timeout > 0; k++) {
        job *of = &w->jobs[k];
        const double seconds = (double)(tutti_now_ns(w->rt) - of->since_ns) * 1e-9;
        const int signal = seconds > w->timeout + 20 ? SIGKILL : SIGTERM;
        if (of->child == 0 || seconds <= w->timeout || of->sent == signal)
            continue;
        kill(of->child, signal);
        of->sent = signal;
    }
}

/* Ends all children: sends SIGTERM, after 10 s SIGKILL, and waits until none is left. */
static void end_all(work *w)
{
    const int64_t until = tutti_now_ns(w->rt) + INT64_C(10000000000);

    for (int sent = SIGTERM; w->active > 0; sent = tutti_now_ns(w->rt) > until ? SIGKILL : 0) {
        for (int k = 0; k < w->most && sent != 0; k++)
            if (w->jobs[k].child != 0)
                kill(w->jobs[k].child, sent);
        tutti_sleep_until(w->rt, tutti_now_ns(w->rt) + LOOK_NS / 5);
        reap_jobs(w);
    }
}

static bool is_late(work *w)
{
    if (w->cut == NULL || tutti_now_ns(w->rt) < w->until_ns)
        return false;
    reap_jobs(w); /* runs that have ended by themselves were not cut */
    for (size_t i = 0; i < json_array_size(w->runs); i++)
        w->cut[i] = !w->done[i];
    return true;
}

static tutti_status run_them(work *w, tutti_error *err)
{
    const size_t n = json_array_size(w->runs);
    int64_t shown_ns = 0;
    tutti_status status = TUTTI_OK;

    for (size_t next = 0;
         (next < n || w->active > 0) && asked.by == 0 && status == TUTTI_OK && !is_late(w);) {
        while (next < n && w->done[next])
            next++;
        if (next < n && has_room(w)) {
            status = start_job(w, next++, err);
            continue;
        }
        tutti_sleep_until(w->rt, tutti_now_ns(w->rt) + LOOK_NS);
        reap_jobs(w);
        end_late(w);
        if (tutti_now_ns(w->rt) - shown_ns > INT64_C(500000000)) {
            shown_ns = tutti_now_ns(w->rt);
            print_progress(w, 2, "");
        }
    }
    end_all(w);
    return status;
}

static tutti_status find_places(work *w, const char *directory, tutti_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", w->self, sizeof w->self - 1);
    char runs[4200], *whole;

    if (length < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "finding this command's own file (/proc/self/exe)");
    w->self[length] = 0;
    snprintf(runs, sizeof runs, "%s/runs", directory);
    TUTTI_TRY(tutti_directory_make(w->rt, runs, err));
    whole = realpath(directory, NULL);
    if (whole == NULL || strlen(whole) > 3700) {
        free(whole);
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding %.3000s", directory);
    }
    snprintf(w->directory, sizeof w->directory, "%s", whole);
    free(whole);
    return TUTTI_OK;
}

static bool all_simulated(const json_t *runs)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *words = json_object_get(json_array_get(runs, i), "words");
        bool simulated = false;
        for (size_t k = 0; k + 1 < json_array_size(words); k++)
            simulated = simulated ||
                        (strcmp(json_string_value(json_array_get(words, k)), "--transport") == 0 &&
                         tutti_world_simulated(json_string_value(json_array_get(words, k + 1))));
        if (!simulated)
            return false;
    }
    return true;
}

/* Allocates the records of all runs; those that have results are done. */
static tutti_status find_done(work *w, tutti_error *err)
{
    const size_t n = json_array_size(w->runs);
    w->seconds = tutti_alloc(n + 1, sizeof *w->seconds);
    w->done = tutti_alloc(n + 1, sizeof *w->done);
    if (w->seconds == NULL || w->done == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the comparison");
    for (size_t i = 0; i < n; i++) {
        w->seconds[i] = (double)NAN;
        w->done[i] = has_results(w, i);
    }
    return TUTTI_OK;
}

tutti_status tutti_compare_run_all(tutti_runtime *rt, const tutti_compare_runs *runs, int *failed,
                                   int *signal, tutti_error *err)
{
    static const int wanted[] = { SIGTERM, SIGINT, SIGHUP };
    const struct sigaction noting = { .sa_handler = note };
    struct sigaction before[TUTTI_LENGTH(wanted)];
    tutti_screen screen = { .terminal = tutti_screen_replaces() };
    work w = { .rt = rt,
               .plan = runs->plan,
               .runs = json_object_get(runs->plan, "runs"),
               .script = json_object_get(runs->plan, "script") != NULL,
               .timeout = runs->timeout,
               .screen = runs->quiet ? NULL : &screen };
    const bool simulated = !w.script && all_simulated(w.runs);
    tutti_status status;

    *failed = *signal = 0;
    if (runs->jobs > 1 && !simulated)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "jobs is %d, but these runs are not simulated: each would take the "
                          "others' time; leave it out",
                          runs->jobs);
    if (runs->limit != NULL) {
        w.cut = runs->limit->cut;
        w.until_ns = tutti_now_ns(rt) + (int64_t)(runs->limit->seconds * 1e9);
    }
    w.limited = runs->jobs == 0;
    w.most = runs->jobs > 0 ? runs->jobs : simulated ? tutti_cores() : 1;
    w.most = w.most < MOST_JOBS ? w.most : MOST_JOBS;
    TUTTI_TRY(find_places(&w, runs->directory, err));
    status = find_done(&w, err);
    for (size_t i = 0; i < TUTTI_LENGTH(wanted); i++) { /* what is ignored (nohup) stays ignored */
        sigaction(wanted[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(wanted[i], &noting, NULL);
    }
    if (status == TUTTI_OK) {
        print_progress(&w, 0, "");
        status = run_them(&w, err);
    }
    for (size_t i = 0; i < TUTTI_LENGTH(wanted); i++)
        sigaction(wanted[i], &before[i], NULL);
    tutti_screen_end(&screen);
    tutti_free(w.seconds);
    tutti_free(w.done);
    *failed = w.failed;
    *signal = (int)asked.by;
    return status;
}
