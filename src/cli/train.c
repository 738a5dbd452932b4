/* train.c: `tutti train`. The same command line runs twice: in the launcher, which starts the
   workers and waits for them, and in each worker, which finds its rank in the environment. Under
   another launcher (mpirun, srun, torchrun) each process is a worker at once. Simulated workers
   are not processes: the command runs them itself. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli_internal.h"
#include "elsewhere.h"
#include "member.h"
#include "simulate.h"
#include "base/settings.h"
#include "runtime/files.h"
#include "tutti/launch.h"
#include "tutti/tutti.h"
#include "collective/world.h"
#include "launch/launch.h"
#include "train/measured.h"

static bool is_tcp(const char *transport)
{
    return strncmp(transport, "tcp", 3) == 0 && (transport[3] == 0 || transport[3] == '(');
}

enum { STOP_SECONDS = 120 };     /* to save a checkpoint; then the run is ended without one */

/* ---- failure report ---- */

/* Returns the inode of config.json, which is replaced when a run has begun; 0: there is none. */
static ino_t config_of(const tutti_cli_settings *s)
{
    char path[4200];
    struct stat found;

    snprintf(path, sizeof path, "%s/config.json", s->out);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

/* Writes the flight record of a run that had begun and that a missing peer has ended. It is an
   extra: if it cannot be written, the error that ended the run is what counts. Prints nothing. */
static void write_flight(const tutti_cli_settings *s, tutti_world *world, ino_t before,
                         tutti_status status)
{
    if ((status == TUTTI_ERR_PEER || status == TUTTI_TIMEOUT) && config_of(s) != before)
        (void)tutti_world_flight(world, s->out, NULL);
}

/* Prints how an interrupted run can be resumed, if it had begun and has a checkpoint. before:
   config_of when this command started. */
static void say_how_to_resume(const tutti_cli_settings *s, ino_t before, int code)
{
    char found[4096];

    if (code == EXIT_DONE || code == EXIT_USAGE || config_of(s) == before)
        return;
    if (tutti_checkpoint_find(s->rt, s->out, found, sizeof found, NULL, 0, NULL) != TUTTI_OK)
        return;
    fprintf(stderr, "tutti: the newest checkpoint is %s; to continue from there: ", found);
    tutti_cli_print_resume(s, stderr);
    putc('\n', stderr);
}

/* The role of this process in the run. A worker that our launcher started has TUTTI_RANK.
   TUTTI_LAUNCHED means that our launcher prints the worker's failure report: "here" is a launcher
   that has made the output directory, too; "agent" one on another host, which has not. */
typedef struct standing {
    tutti_launch_place place;
    tutti_launch_host *hosts;    /* of -H */
    int n_hosts;
    bool worker;
    bool leaves;                 /* one of more processes than can resume the run */
    char meet[80];               /* --meet, if it is chosen here */
    bool out_given, threads_given;
    int argc; /* the command line, of which the workers' is made */
    char **argv;
    int64_t started_ns; /* when the command began */
} standing;

/* If another launcher has started as many processes as the run had workers at its beginning, and
   fewer have to resume it: the first processes do, and those that serve; the others end. */
static tutti_status take_part(tutti_cli_settings *s, standing *at, tutti_error *err)
{
    const int workers = at->place.size - (int)s->config.servers, spare = workers - s->savers.n;
    char part[32];

    if (s->savers.n == 0 || spare <= 0 || at->place.by <= TUTTI_BY_TUTTI ||
        strncmp(s->config.transport, "mpi", 3) == 0)
        return TUTTI_OK; /* MPI's processes cannot leave */
    s->config.n = s->savers.n;
    at->leaves = at->place.rank >= s->savers.n && at->place.rank < workers;
    snprintf(part, sizeof part, "%d:%d", s->savers.n, workers);
    setenv("TUTTI_TAKE_PART", part, 1);
    return at->leaves ? TUTTI_OK : tutti_launch_find_place(environ, &at->place, err);
}

static void say_savers(const tutti_cli_settings *s, int before)
{
    char of[48] = "";

    if (s->savers.n == 0 || s->config.n != s->savers.n || before == s->savers.n)
        return;
    if (s->savers.began > s->savers.n)
        snprintf(of, sizeof of, ", the remaining ones of %d", s->savers.began);
    fprintf(stderr,
            "tutti: the checkpoint in %s is of %d worker%s%s, and no other number can resume it: "
            "%d resume\n",
            s->config.resume, s->savers.n, s->savers.n == 1 ? "" : "s", of, s->savers.n);
}

/* Checks that the flags agree with the number of processes that a launcher has started. */
static tutti_status check_started(const tutti_cli_settings *s, const standing *at, tutti_error *err)
{
    const tutti_train_config *c = &s->config;
    const bool n_given = tutti_settings_origin(s->settings, "n", NULL) == TUTTI_FROM_FLAG,
               hosts_given = tutti_settings_origin(s->settings, "hosts", NULL) == TUTTI_FROM_FLAG;
    const char *flag;
    char more[64] = "";

    if (!at->worker)
        return TUTTI_OK;
    flag = c->hosts[0] != 0 && hosts_given ? "-H" : "-n";
    if (c->servers > 0)
        snprintf(more, sizeof more, ", and servers for %lld ranks besides", (long long)c->servers);
    if ((n_given || hosts_given) && c->n + c->servers != at->place.size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s asks for %lld workers%s, but %s has started %d processes (%s); omit "
                          "%s, or start `tutti train` once",
                          flag, (long long)c->n, more,
                          at->place.by == TUTTI_BY_TUTTI ? "somebody" : at->place.name,
                          at->place.size, at->place.found, flag);
    if (c->servers >= at->place.size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "servers is %lld, but %s has started %d processes (%s), which leaves no "
                          "worker; start more, or give fewer servers",
                          (long long)c->servers,
                          at->place.by == TUTTI_BY_TUTTI ? "somebody" : at->place.name,
                          at->place.size, at->place.found);
    return TUTTI_OK;
}

/* Sets the transport where none is given, and checks that it can be of this role. */
static tutti_status choose_transport(tutti_cli_settings *s, const standing *at, tutti_error *err)
{
    tutti_train_config *c = &s->config;
    const char *usual;
    bool here;
    usual = at->worker                              ? tutti_launch_place_transport(&at->place)
            : at->n_hosts > 1 || c->workers[0] != 0 ? "tcp"
                                                    : "shm";
    here = strncmp(c->transport, "shm", 3) == 0 || tutti_world_simulated(c->transport);
    /* a run of one machine that is resumed by a launcher, or on several */
    if (tutti_settings_origin(s->settings, "transport", NULL) == TUTTI_FROM_DEFAULT ||
        (s->transport_saved && here && (at->worker || at->n_hosts > 1)))
        c->transport = usual;
    if ((at->worker || at->n_hosts > 0) && tutti_world_simulated(c->transport))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the workers of transport '%.60s' live in one process; start `tutti "
                          "train -n N` once, by itself",
                          c->transport);
    return TUTTI_OK;
}

/* Of a run whose workers come and go, which begins with those of the first one, here. */
static tutti_status read_hosts_of_members(tutti_cli_settings *s, standing *at, bool n_given,
                                          tutti_error *err)
{
    tutti_train_config *c = &s->config;

    if (at->worker) { /* its launcher has */
        c->n = at->place.size;
        return TUTTI_OK;
    }
    if (!n_given)
        c->n = 0;
    TUTTI_TRY(tutti_cli_elsewhere_check(&s->hosts, &c->hosts, c->workers, &c->n, err));
    if (c->meet[0] == 0) {
        tutti_cli_elsewhere_meet(c->hosts, at->meet, sizeof at->meet);
        c->meet = at->meet;
    }
    return TUTTI_OK;
}

/* Reads the hosts; their workers are those of the run. */
static tutti_status read_hosts(tutti_cli_settings *s, standing *at, int *workers, tutti_error *err)
{
    tutti_train_config *c = &s->config;
    const bool n_given = tutti_settings_origin(s->settings, "n", NULL) == TUTTI_FROM_FLAG,
               hosts_given = tutti_settings_origin(s->settings, "hosts", NULL) == TUTTI_FROM_FLAG;

    if (c->hosts[0] != 0 && !hosts_given &&
        n_given) /* -n alone: on this machine, whatever the file says */
        c->hosts = "";
    if (c->hosts[0] == 0)
        return TUTTI_OK;
    if (c->workers[0] != 0)
        return read_hosts_of_members(s, at, n_given, err);
    TUTTI_TRY(tutti_cli_hosts_read(&s->hosts, &c->hosts, err));
    TUTTI_TRY(tutti_launch_parse_hosts(c->hosts, &at->hosts, &at->n_hosts, workers, err));
    if (n_given && c->n != *workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "n is %lld, but the hosts '%.200s' have %d workers; omit -n, or write HOST:WORKERS",
            (long long)c->n, c->hosts, *workers);
    c->n = *workers;
    return TUTTI_OK;
}

/* -n of the run that is resumed does not count. */
static bool n_is_given(const tutti_cli_settings *s)
{
    const tutti_origin from = tutti_settings_origin(s->settings, "n", NULL);

    return from != TUTTI_FROM_DEFAULT && (s->config.resume[0] == 0 || from != TUTTI_FROM_FILE);
}

/* A run whose workers come and go begins with the fewest, unless -n is given; one of them that is
   resumed has a fixed number of workers, unless --workers is given again. */
static tutti_status read_workers(tutti_cli_settings *s, tutti_error *err)
{
    static const char *const with_workers[] = { "restarts", "copy-every", "workers-timeout" };
    tutti_train_config *c = &s->config;

    if (c->workers[0] != 0 && atoi(c->workers) > 0 && !n_is_given(s))
        c->n = atoi(c->workers);
    /* a run that is resumed with a fixed number of workers has them in its file */
    for (size_t i = 0; i < TUTTI_LENGTH(with_workers) && c->workers[0] == 0; i++)
        if (tutti_settings_origin(s->settings, with_workers[i], NULL) == TUTTI_FROM_FLAG)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s is given, and it does nothing without workers, FEWEST:MOST; give both, "
                              "or omit it",
                              with_workers[i]);
    return TUTTI_OK;
}

/* Sets the role of this process. Flags override the environment, but must not contradict a launcher
   that has started several processes already. */
static tutti_status stand(tutti_cli_settings *s, standing *at, tutti_error *err)
{
    tutti_train_config *c = &s->config;
    int workers = 0, before;

    TUTTI_TRY(read_workers(s, err));
    TUTTI_TRY(tutti_launch_find_place(environ, &at->place, err));
    at->worker = at->place.by == TUTTI_BY_TUTTI || at->place.size > 1;
    TUTTI_TRY(read_hosts(s, at, &workers, err));
    if (c->workers[0] != 0 && at->worker && at->place.by != TUTTI_BY_TUTTI)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "workers is '%.40s', so that workers may come and go, but %s has started "
                          "%d processes (%s); start `tutti train` once, and `tutti join` elsewhere",
                          c->workers, at->place.name, at->place.size, at->place.found);
    before = (int)c->n;
    if (s->savers.n > 0 && s->savers.n < c->n && at->place.by <= TUTTI_BY_TUTTI) {
        tutti_cli_keep_left(&s->savers, at->hosts, &at->n_hosts, &workers);
        c->n = s->savers.n;
    }
    TUTTI_TRY(check_started(s, at, err));
    if (at->worker)
        c->n = at->place.size - c->servers;
    if (at->n_hosts > 0)
        TUTTI_TRY(tutti_cli_place_servers(&at->hosts, &at->n_hosts, (int)c->servers, workers, err));
    if (c->n > 1024)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%lld workers; at most 1024 are possible",
                          (long long)c->n);
    TUTTI_TRY(choose_transport(s, at, err));
    TUTTI_TRY(take_part(s, at, err));
    if (!at->worker || (at->place.rank == 0 && getenv("TUTTI_LAUNCHED") == NULL))
        say_savers(s, before);
    return TUTTI_OK;
}

static void default_out(tutti_cli_settings *s);

/* Claims the output directory. If a default name is in use, by another run that began in the same
   second, tries the next one. */
static tutti_status claim_out(tutti_cli_settings *s, const standing *at, tutti_launch_claim **claim,
                              tutti_error *err)
{
    tutti_status status = tutti_launch_claim_open(claim, s->rt, s->out, err);
    char pass[4200];

    for (int k = 0; k < 100 && status == TUTTI_ERR_USAGE && !at->out_given; k++) {
        default_out(s);
        status = tutti_launch_claim_open(claim, s->rt, s->out, err);
    }
    if (status == TUTTI_OK && at->out_given) {
        tutti_cli_pass_of(s->out, pass, sizeof pass);
        status = tutti_cli_check_free(pass, "take part by `tutti join OUT`, or give another --out", err);
    }
    if (status != TUTTI_OK) {
        tutti_launch_claim_close(*claim);
        *claim = NULL;
    }
    return status;
}

/* Makes the output directory where no launcher of ours has done so: rank 0 does, on its host, and
   all ranks use its name, which may contain the time. Collective. */
static tutti_status prepare(tutti_cli_settings *s, const standing *at, tutti_world *world,
                            tutti_launch_claim **claim, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, tutti_port_of("name of the results", 0, 0));

    all.uncounted = true;
    TUTTI_TRY(tutti_train_compare(world, &s->config, err));
    if (at->place.rank == 0) {
        if (!at->out_given)
            default_out(s);
        TUTTI_TRY(claim_out(s, at, claim, err));
        TUTTI_TRY(tutti_train_prepare(s->rt, &s->config, err));
    }
    return tutti_broadcast(&all, 0, tutti_host(s->out, sizeof s->out, TUTTI_U8), err);
}

/* Must this rank report how the run ended, if no launcher of ours does? Rank 0 must, or rank 1 if
   rank 0 was lost. */
static bool reports_end(const standing *at, tutti_world *world)
{
    char why[8];

    return at->place.rank == 0 ||
           (at->place.rank == 1 && tutti_world_dead(world, why, sizeof why) == 0);
}

/* Reports which workers are missing, over tcp without a launcher of ours. */
static void say_waits(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "tutti: %s\n", line);
}

/* Prepares the signals and the io of a worker, and tells who has started it. installed: scratch. */
static void begin_work(const tutti_cli_settings *s, const standing *at, tutti_train_io *io,
                       char installed[4096])
{
    const char *started = getenv("TUTTI_STARTED_NS"), *launched = getenv("TUTTI_LAUNCHED");
    if (launched != NULL)
        /* the launcher receives the terminal's signal and sends us SIGTERM */
        signal(SIGINT, SIG_IGN);
    if (s->config.checkpoint_on_signal) {
        tutti_cli_handle_signals(launched != NULL);
        io->stop = tutti_cli_asked;
    }
    io->started_ns = started != NULL ? strtoll(started, NULL, 10) : 0;
    io->installed_data = tutti_cli_installed(installed, 4096, "data");
    if (at->place.by > TUTTI_BY_TUTTI && at->place.rank == 0 && !s->config.quiet)
        printf("tutti: %d workers started by %s (%s), transport %s\n", at->place.size,
               at->place.name, at->place.found, s->config.transport);
}

/* Joins the world of a run, by its transport. */
static tutti_status join_world(const tutti_cli_settings *s, tutti_world **world, tutti_error *err)
{
    char *transport;
    tutti_status status;
    status = tutti_train_transport(&s->config, &transport, err);
    if (status == TUTTI_OK)
        status = tutti_world_open_telling(world, transport, say_waits, NULL, err);
    tutti_free(transport);
    return status;
}

/* How a run has ended: with which status, and the code that the command ends with. */
typedef struct ending {
    tutti_status status;
    int code;
} ending;

/* Tells how a run that was started by no launcher of ours has ended, and how to resume it. */
static void say_end(tutti_cli_settings *s, const standing *at, tutti_world *world, ino_t before,
                    const ending *end, tutti_error *err)
{
    if (end->status == TUTTI_CLOSED && at->place.rank == 0)
        fprintf(stderr, "tutti: stopped by signal %d (SIG%s)\n", end->code - 128,
                tutti_launch_signal_name(end->code - 128));
    else if (end->status != TUTTI_OK && end->status != TUTTI_CLOSED)
        tutti_cli_fail(err);
    if (reports_end(at, world))
        say_how_to_resume(s, before, end->code);
}

static int work(tutti_cli_settings *s, const standing *at, tutti_error *err)
{
    tutti_screen display = { .terminal = tutti_screen_replaces() };
    tutti_train_io io = { .say = tutti_screen_say,
                          .columns = tutti_screen_columns,
                          .user = &display };
    const char *launched = getenv("TUTTI_LAUNCHED");
    char installed[4096];
    tutti_launch_claim *claim = NULL;
    tutti_world *world = NULL;
    tutti_status status;
    ino_t before = 0;
    int code;

    begin_work(s, at, &io, installed);
    if (s->config.most > 0) {
        code = tutti_cli_work_member(s, &io, at->place.rank, err);
        tutti_screen_end(&display);
        return code;
    }
    status = join_world(s, &world, err);
    /* the launcher cannot be notified yet; other failures have left a failure report */
    if (launched == NULL ? status != TUTTI_OK : status == TUTTI_ERR_USAGE || status == TUTTI_ERR_IO)
        return tutti_cli_fail(err);
    if (status != TUTTI_OK)
        return tutti_cli_code(status);
    if (launched == NULL || strcmp(launched, "here") != 0)
        status = prepare(s, at, world, &claim, err);
    before = config_of(s);
    tutti_world_folder(world, s->out);
    if (status == TUTTI_OK)
        status = tutti_train_worker(world, &s->config, &io, err);
    tutti_screen_end(&display);
    if (status == TUTTI_OK)
        status = tutti_cli_flush(err);
    if (status != TUTTI_OK && status != TUTTI_CLOSED)
        tutti_world_failure_report(world, err);
    write_flight(s, world, before, status);
    code = status == TUTTI_CLOSED ? tutti_cli_code_of_stop() : tutti_cli_code(status);
    if (launched == NULL)
        say_end(s, at, world, before, &(ending){ status, code }, err);
    tutti_world_close(world);
    tutti_launch_claim_close(claim);
    return code;
}

static void default_out(tutti_cli_settings *s)
{
    const time_t now = time(NULL);
    struct tm local;
    char when[32], method[64];

    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    snprintf(method, sizeof method, "%.60s", s->config.method);
    method[strcspn(method, "(")] = 0;
    snprintf(s->out, sizeof s->out, "runs/%s-%s", when, method);
    for (int k = 2; k < 1000 && tutti_file_exists(s->rt, s->out); k++)
        snprintf(s->out, sizeof s->out, "runs/%s-%s-%d", when, method, k);
}

/* Returns the command line of the workers: that of this command with the texts in `more` inserted
   before "--". They contain what was decided here and must not be decided again (a pinned worker
   sees fewer cores); the last of two equal flags counts. *threads_word: index of the word with the
   number of threads. tutti_free it. */
enum { MORE = 5 };
static const char **worker_words(int argc, char **argv, const char *self,
                                 const char *const more[MORE], int *threads_word)
{
    const char **words = tutti_alloc((size_t)argc + 2 + MORE, sizeof *words);
    int n = argc + 1, end = 2;

    if (words == NULL)
        return NULL;
    words[0] = self;
    words[1] = argv[0];
    for (int i = 1; i < argc; i++)
        words[1 + i] = argv[i];
    while (end < n && strcmp(words[end], "--") != 0)
        end++;
    memmove(words + end + MORE, words + end, (size_t)(n - end) * sizeof *words);
    for (int i = 0; i < MORE; i++)
        words[end + i] = more[i];
    *threads_word = end;
    return words;
}

/* The time that workers have to save a checkpoint when they are asked to end; 0: they save none. */
static int64_t stop_ns(const tutti_cli_settings *s)
{
    return s->config.checkpoint_on_signal ? STOP_SECONDS * INT64_C(1000000000) : 0;
}

/* Starts the workers of this host: all of a run, or an agent's. */
static tutti_status launch_here(const tutti_cli_settings *s, const char *const *words,
                                tutti_launch_result *result, tutti_error *err)
{
    const tutti_launch_options options = {
        .workers = (int)(s->config.n + s->config.servers),
        .threads = (int)s->config.threads,
        .argv = words,
        .pin = true,
        .meet = is_tcp(s->config.transport),
        .continue_on_loss = s->config.continue_on_loss,
        .servers = (int)s->config.servers,
        .least = (int)s->config.min_workers,
        .lost = tutti_cli_show_loss,
        .stop_ns = stop_ns(s),
        .silence_ns = tutti_train_silence_ns(&s->config),
        .ends_all = true,
    };
    return tutti_launch_run(&options, result, err);
}

/* The command of a worker: the program, and its arguments. threads_word: index of its --threads. */
typedef struct worker_command {
    const char *const *words;
    int threads_word;
} worker_command;

static tutti_status launch_hosts(const tutti_cli_settings *s, const standing *at,
                                 const worker_command *command, tutti_launch_result *result,
                                 tutti_error *err)
{
    char directory[4096];

    if (getcwd(directory, sizeof directory) == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding the working directory");
    const tutti_launch_hosts_options options = {
        .hosts = at->hosts,
        .n_hosts = at->n_hosts,
        .rsh = s->config.rsh,
        .agent = command->words[0],
        .argv = command->words,
        .threads_word = command->threads_word,
        .directory = directory,
        .threads = at->threads_given ? (int)s->config.threads : 0,
        .pin = true,
        .meet = is_tcp(s->config.transport),
        .address = s->config.meet,
        .start_ns = (int64_t)(s->config.start_timeout * 1e9),
        .continue_on_loss = s->config.continue_on_loss,
        .servers = (int)s->config.servers,
        .least = (int)s->config.min_workers,
        .stop_ns = stop_ns(s),
        .silence_ns = tutti_train_silence_ns(&s->config),
        .output = tutti_cli_show_output,
    };
    return tutti_launch_hosts(&options, result, err);
}

static tutti_status launch(tutti_cli_settings *s, const standing *at, int *code, tutti_error *err)
{
    char self[4096], out[4200], threads[64], started[40], transport[600], meet[300], *hosts = NULL;
    const char *const list = s->hosts.text;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *more[MORE] = { threads, out, transport, s->config.meet[0] != 0 ? meet : out, out };
    tutti_launch_result result;
    const char **words;
    tutti_status status;
    int threads_word;

    if (length < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "finding this command's own file (/proc/self/exe)");
    self[length] = 0;
    snprintf(out, sizeof out, "--out=%s", s->out);
    snprintf(meet, sizeof meet, "--meet=%.280s", s->config.meet);
    snprintf(threads, sizeof threads, "--threads=%lld", (long long)s->config.threads);
    if ((size_t)snprintf(transport, sizeof transport, "--transport=%s", s->config.transport) >=
        sizeof transport)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "transport '%.60s...' is too long",
                          s->config.transport);
    snprintf(started, sizeof started, "%lld", (long long)at->started_ns);
    if (list != NULL && (hosts = tutti_alloc(strlen(list) + sizeof "--hosts=", 1)) != NULL) {
        sprintf(hosts, "--hosts=%s", list);
        more[MORE - 1] = hosts;
    }
    words = worker_words(at->argc, at->argv, self, more, &threads_word);
    if (words == NULL || (list != NULL && hosts == NULL)) {
        tutti_free(words);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting the workers");
    }
    setenv("TUTTI_LAUNCHED", at->n_hosts > 0 ? "agent" : "here", 1);
    if (at->n_hosts == 0) {
        setenv("TUTTI_STARTED_NS", started, 1);
        status = s->config.most > 0 ? tutti_cli_launch_members(s, words, stop_ns(s), &result, err)
                                    : launch_here(s, words, &result, err);
    } else
        status = launch_hosts(s, at, &(worker_command){ words, threads_word }, &result, err);
    tutti_free(words);
    tutti_free(hosts);
    if (status != TUTTI_OK)
        return status;
    if (result.text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result.text);
    *code = result.exit_code;
    return TUTTI_OK;
}

/* Starts the run, in a process that is not a worker. */
static tutti_status start_run(tutti_cli_settings *s, const standing *at, int *code,
                              tutti_error *err)
{
    tutti_launch_claim *claim = NULL;
    tutti_status status = TUTTI_OK;
    ino_t before;

    TUTTI_TRY(tutti_world_check(s->config.transport, err));
    if (at->n_hosts > 1 && !is_tcp(s->config.transport))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "transport '%.60s' does not reach several hosts from here; use tcp, or "
                          "start the run by mpirun",
                          s->config.transport);
    if (at->n_hosts == 0) { /* else rank 0 does it, on its host */
        char installed[4096];
        TUTTI_TRY(tutti_train_check_data(
            s->rt, &s->config, tutti_cli_installed(installed, sizeof installed, "data"), err));
        TUTTI_TRY(claim_out(s, at, &claim, err));
        status = tutti_train_prepare(s->rt, &s->config, err);
    }
    before = config_of(s);
    if (status == TUTTI_OK && tutti_world_simulated(s->config.transport))
        *code = tutti_cli_simulate(s, at->started_ns, err);
    else if (status == TUTTI_OK)
        status = launch(s, at, code, err);
    if (status == TUTTI_OK)
        say_how_to_resume(s, before, *code);
    tutti_launch_claim_close(claim);
    return status;
}

/* Trains as worker, or starts the workers. */
static tutti_status train(tutti_cli_settings *s, standing *at, int *code, tutti_error *err)
{
    tutti_status status;
    if (tutti_world_simulated(s->config.transport) && s->config.threads == 0)
        s->config.threads = 1; /* one core runs them all, one after the other */
    at->threads_given = s->config.threads != 0;
    at->out_given = s->out[0] != 0;
    tutti_cli_keep_running();
    if (!at->worker || (at->place.rank == 0 && getenv("TUTTI_LAUNCHED") == NULL))
        tutti_cli_say_left(s);
    status = tutti_train_check(&s->config, tutti_cores(), err);
    if (status == TUTTI_OK && !at->worker)
        status = tutti_cli_check_void(s, true, err);
    if (status == TUTTI_OK)
        status = tutti_measured_check(&s->config, true, err);
    if (status == TUTTI_OK && !at->out_given)
        default_out(s);
    s->config.out = s->out;
    if (status == TUTTI_OK && at->worker)
        *code = work(s, at, err);
    else if (status == TUTTI_OK)
        status = start_run(s, at, code, err);
    return status;
}

int tutti_cli_train(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s;
    standing at = { .argc = argc, .argv = argv };
    int code = EXIT_DONE;
    tutti_status status = tutti_cli_read(&s, argc, argv, NULL, &err);

    at.started_ns = s.rt != NULL ? tutti_now_ns(s.rt) : 0;
    if (status == TUTTI_OK && s.help)
        tutti_cli_train_help(stdout, s.help_all);
    else if (status == TUTTI_OK)
        status = stand(&s, &at, &err);
    if (status == TUTTI_OK && at.leaves) {
        tutti_cli_close(&s);
        return EXIT_DONE;
    }
    if (status == TUTTI_OK && !s.help)
        status = tutti_cli_method_defaults(&s, &err);
    if (status == TUTTI_OK && !s.help)
        status = train(&s, &at, &code, &err);
    if (status != TUTTI_OK)
        code = tutti_cli_fail(&err);
    tutti_free(at.hosts);
    tutti_cli_close(&s);
    return code;
}
