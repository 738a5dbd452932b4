/* run.c: `tutti run -n 4 -- python train.py`: starts any command as the workers of a run. Each one
   gets its rank, the run's key and shared memory, its cores and number of threads, as the workers
   of `tutti train` do, and also its rank in the variables of torchrun. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include "tutti/base.h"
#include "base/options.h"
#include "collective/world.h"
#include "launch/launch.h"
#include "elsewhere.h"

typedef tutti_cli_run_config run_config;
enum { STOP, CONTINUE };

#define AT(member) TUTTI_AT(run_config, member)
const tutti_option tutti_cli_run_options[] = {
    { "n", TUTTI_INT, AT(n), 0, 0, 1024, NULL, "workers on this machine; 0: those of --hosts" },
    { "hosts", TUTTI_TEXT, AT(hosts), 0, 0, 0, "",
      "hosts with their workers, a:4,b:4 or gpu[01-16]:8, started by ssh; @FILE, '|COMMAND': as a "
      "hosts file has them, or a command prints them, with workers again and again; "
      "docs/CLUSTERS.md" },
    { "rsh", TUTTI_TEXT, AT(rsh), 0, 0, 0, "",
      "several hosts: what starts a command on one, as `RSH HOST COMMAND`, instead of ssh" },
    { "meet", TUTTI_TEXT, AT(meet), 0, 0, 0, "",
      "several hosts: ADDRESS or ADDRESS:PORT by which they reach this one; default: the one that "
      "the route to them has. With workers: by which workers of other machines do (`tutti join`); "
      "default: none do" },
    { "start-timeout", TUTTI_REAL, AT(start_timeout), 300, 0.1, 86400, NULL,
      "several hosts: seconds until all workers must have opened the run" },
    { "export", TUTTI_TEXT, AT(exports), 0, 0, 0, "",
      "several hosts: more variables to hand on, PATH,PYTHONPATH; docs/CLUSTERS.md has those that "
      "always are" },
    { "servers", TUTTI_INT, AT(servers), 0, 0, 1023, NULL,
      "ranks that only serve, in addition to the n workers and after them, for methods with "
      "servers; passed as TUTTI_SERVERS" },
    { "workers", TUTTI_TEXT, AT(workers), 0, 0, 0, "",
      "FEWEST:MOST: workers of this machine are lost, leave and are started again, and the script, "
      "which says prepare(elastic=True), goes on with the same bits; docs/PYTORCH.md" },
    { "restarts", TUTTI_INT, AT(restarts), 3, 0, 1000000, NULL,
      "with workers: how often each lost worker is started again, as a newcomer, after 1 s; 2 s, 4 s "
      "... up to 30 s if it is lost within 10 s each time" },
    { "workers-timeout", TUTTI_REAL, AT(workers_timeout), 600, 0.1, 1e7, NULL,
      "with workers: seconds for which the run waits with fewer than FEWEST workers, or after the "
      "loss of so many at once that the others may not go on alone; then it ends (exit code 3)" },
    { "pass", TUTTI_TEXT, AT(pass), 0, 0, 0, "",
      "with workers: the file by which `tutti join` and `tutti leave` find the run; none: "
      "tutti-PID.join here" },
    { "threads", TUTTI_INT, AT(threads), 0, 0, 1024, NULL,
      "compute threads a worker, passed as OMP_NUM_THREADS unless that is set; 0: max(1, cores / "
      "workers)" },
    { "pin", TUTTI_BOOL, AT(pin), 1, 0, 1, NULL, "each worker to cores of its own" },
    { "transport", TUTTI_SPEC, AT(transport), 0, 0, 0, "auto",
      "what carries messages: shm or tcp, with options (`tutti transports`); auto: shm on this "
      "machine, tcp on several hosts; passed as TUTTI_TRANSPORT" },
    { "on-loss", TUTTI_CHOICE, AT(on_loss), 0, 0, 0, "stop|continue",
      "when a worker is lost: stop (exit code 3), or let the others continue, with methods that "
      "can" },
    { "min-workers", TUTTI_INT, AT(min_workers), 1, 1, 1024, NULL,
      "with on-loss=continue: stop (exit code 3) when fewer workers than these are left" },
    { "grace", TUTTI_REAL, AT(grace), 3, 0.1, 86400, NULL,
      "seconds from a loss to the end of those that do not end by themselves" },
    { "stop-timeout", TUTTI_REAL, AT(stop_timeout), 10, 0.1, 86400, NULL,
      "seconds from a signal, which workers get as SIGTERM, to the end of those that do not end" },
    { "tag", TUTTI_BOOL, AT(tag), 0, 0, 1, NULL,
      "begin each line of a worker's output with its rank, [3]" },
    { 0 }
};

static void print_help(void)
{
    printf("tutti run -n N [--OPTION VALUE ...] -- COMMAND [ARGUMENT ...]\n"
           "tutti run -H a:4,b:4 [--OPTION VALUE ...] -- COMMAND [ARGUMENT ...]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Starts a command as the workers of a run, and ends when all have ended. Each "
                   "worker finds its place in TUTTI_RANK and TUTTI_SIZE, and as programs for "
                   "torchrun expect it: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
                   "MASTER_ADDR, MASTER_PORT. A worker that fails ends all, with a sentence.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_run_options, true);
    printf("\nExamples:\n"
           "  tutti run -n 4 -- python train.py --epochs 3\n"
           "  tutti run -n 8 --on-loss continue --tag -- python train.py\n"
           "  tutti run -H a:4,b:4 --export PATH,PYTHONPATH -- python train.py\n"
           "  tutti run --workers 2:8 -n 4 -- python train.py\n");
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "Exit codes: 0 all workers ended with 0; 1 one failed with another code than 2 "
                   "and 3; 2 bad usage; 3 a worker was lost; 128 + signal when stopped by one.");
}

/* ---- the command line ---- */
static tutti_status no_such(const char *flag, tutti_error *err)
{
    const char *names[32];
    char near[160];
    size_t n = 0;

    for (const tutti_option *o = tutti_cli_run_options; o->name != NULL && n < TUTTI_LENGTH(names);
         o++)
        names[n++] = o->name;
    tutti_suggest(flag, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no option '--%.80s'%s; `tutti run --help` lists them", flag, near);
}

/* Writes the option's name of a flag, --name[=value] or -n[value] or -H[value], to name[64].
 *value: what is given in the same argument, or NULL. */
static tutti_status split_flag(const char *arg, char name[64], const char **value, tutti_error *err)
{
    const bool longer = arg[1] == '-';
    if (!longer && arg[1] != 'n' && arg[1] != 'H')
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "there is no option '%.40s'; the only short ones are -n (workers), -H (hosts) and -h",
            arg);
    if (longer) {
        const size_t length = strcspn(arg + 2, "=");
        if (length >= 64)
            return no_such(arg + 2, err);
        snprintf(name, 64, "%.*s", (int)length, arg + 2);
        *value = arg[2 + length] == '=' ? arg + 3 + length : NULL;
    } else {
        snprintf(name, 64, "%s", arg[1] == 'n' ? "n" : "hosts");
        *value = arg[2] == '=' ? arg + 3 : arg[2] != 0 ? arg + 2 : NULL;
    }
    return TUTTI_OK;
}

/* Parses the option argv[*at]; *at: its last word. */
static tutti_status read_option(run_config *c, int argc, char **argv, int *at, tutti_error *err)
{
    char name[64], what[80];
    const char *arg = argv[*at], *value = NULL;
    const bool longer = arg[1] == '-';
    const tutti_option *o;

    TUTTI_TRY(split_flag(arg, name, &value, err));
    o = tutti_option_find(tutti_cli_run_options, name);
    if (o == NULL)
        return no_such(name, err);
    value = tutti_cli_flag_value(o, value, argc, argv, at);
    if (value == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "option '%.60s' needs a value: %s", arg,
                          o->help);
    snprintf(what, sizeof what, "%s%s", longer ? "--" : "-",
             longer          ? name
             : arg[1] == 'n' ? "n"
                             : "H");
    return tutti_option_set(o, what, value, c, err);
}

tutti_status tutti_cli_run_option(int argc, char **argv, int *at, tutti_error *err)
{
    run_config c;

    tutti_options_default(tutti_cli_run_options, &c);
    return read_option(&c, argc, argv, at, err);
}

/* Parses options up to "--" or the first word that is no option. *at: the command's first word. */
static tutti_status read_options(run_config *c, int argc, char **argv, int *at, bool *help,
                                 tutti_error *err)
{
    tutti_options_default(tutti_cli_run_options, c);
    for (*at = 1; *at < argc && argv[*at][0] == '-'; (*at)++) {
        const char *arg = argv[*at];
        if (strcmp(arg, "--") == 0) {
            (*at)++;
            break;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            *help = true;
            return TUTTI_OK;
        }
        TUTTI_TRY(read_option(c, argc, argv, at, err));
    }
    return TUTTI_OK;
}

/* Finds the command's file, in PATH if its name has no '/'. Workers on other hosts use the same
   file. */
tutti_status tutti_cli_find_command(const char *name, char *path, size_t bytes, tutti_error *err)
{
    const char *at = getenv("PATH");
    struct stat about;

    if (strchr(name, '/') != NULL && (size_t)snprintf(path, bytes, "%s", name) < bytes)
        return TUTTI_OK;
    for (at = at != NULL ? at : "/usr/bin:/bin"; strchr(name, '/') == NULL; at++) {
        const int length = (int)strcspn(at, ":");
        const int n = snprintf(path, bytes, "%.*s%s%s", length, at, length > 0 ? "/" : "", name);
        if (n > 0 && (size_t)n < bytes && stat(path, &about) == 0 && S_ISREG(about.st_mode) &&
            access(path, X_OK) == 0)
            return TUTTI_OK;
        at += length;
        if (*at == '\0')
            break;
    }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no command '%.200s' in PATH; give the path of a program", name);
}

/* ---- the workers' environment ---- */
/* Workers must not inherit the rank and size of another run. */
void tutti_cli_forget_outer_run(void)
{
    static const char *const names[] = { "TUTTI_RANK",
                                         "TUTTI_SIZE",
                                         "TUTTI_SHM_FD",
                                         "TUTTI_MEET",
                                         "TUTTI_MEET_AT_RANK_0",
                                         "TUTTI_RUN_ID",
                                         "TUTTI_RUN_KEY",
                                         "TUTTI_RUN_KEY_FILE",
                                         "TUTTI_LAUNCHED",
                                         TUTTI_LAUNCH_TELL,
                                         TUTTI_LAUNCH_JOIN,
                                         TUTTI_LAUNCH_PASS,
                                         TUTTI_LAUNCH_WORKERS,
                                         TUTTI_LAUNCH_NODE,
                                         "TUTTI_STARTED_NS",
                                         "GROUP_RANK",
                                         "GROUP_WORLD_SIZE",
                                         "ROLE_RANK",
                                         "ROLE_WORLD_SIZE",
                                         "ROLE_NAME",
                                         "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "TORCHELASTIC_MAX_RESTARTS",
                                         "TORCHELASTIC_USE_AGENT_STORE" };

    for (size_t i = 0; i < TUTTI_LENGTH(names); i++)
        unsetenv(names[i]);
}

/* That port on all addresses, or one of the kernel's choice for 0. Returns its number; 0: it is in
   use. */
static int bound_port(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    socklen_t bytes = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int found = 0;

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &bytes) == 0)
        found = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return found;
}

/* A port that is not in use now. Rank 0 listens there seconds later, so it is one below those (from
   32768 on, unless somebody has changed that) that the kernel gives to every connection meanwhile.
   Another program may still take it before us, by chance only. 0: there is none. */
static int free_port(void)
{
    uint16_t drawn[16];
    tutti_runtime *rt;
    int port = 0;

    if (tutti_runtime_open_posix(&rt, NULL) != TUTTI_OK)
        return bound_port(0);
    tutti_entropy(rt, drawn, sizeof drawn);
    tutti_runtime_close(rt);
    for (size_t i = 0; port == 0 && i < TUTTI_LENGTH(drawn); i++)
        port = bound_port(20000 + drawn[i] % 12000);
    return port != 0 ? port : bound_port(0);
}

/* Sets variables for programs that open a process group of torch. MASTER_ADDR: how workers reach
   rank 0. */
static void tell_torch(const tutti_launch_host *first, int n_hosts)
{
    const char *name = n_hosts > 1 ? first->name : "127.0.0.1";
    char port[16];

    if (strchr(name, '@') != NULL)
        name = strrchr(name, '@') + 1;
    snprintf(port, sizeof port, "%d", free_port());
    setenv("MASTER_ADDR", name, 0);
    setenv("MASTER_PORT", port, 0);
}

/* ---- starting ---- */
typedef struct run_plan {
    run_config c;
    tutti_launch_host *hosts;
    int n_hosts, workers;
    bool meet;
    int64_t silence_ns; /* the transport's patience; 0: the launcher's own */
    char path[4096];
    const char **words; /* the command, NULL-ended */
} run_plan;

static void plan_close(run_plan *p)
{
    tutti_free(p->words);
    tutti_free(p->hosts);
    tutti_free(p->c.from.text);
}

static tutti_status read_transport(run_plan *p, tutti_error *err)
{
    const char *text = p->c.transport;
    const tutti_train_config config = { .transport = text };
    const char *name;
    tutti_spec *spec;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_spec_open(&spec, text, err));
    name = tutti_spec_name(spec);
    p->meet = strcmp(name, "tcp") == 0 || p->n_hosts > 1;
    if (strcmp(text, "auto") == 0)
        goto out;
    if (strcmp(name, "shm") != 0 && strcmp(name, "tcp") != 0)
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "transport is '%.80s'; workers that `tutti run` starts meet over shm or tcp, or auto, "
            "which takes one of them",
            text);
    else if (p->n_hosts > 1 && strcmp(name, "shm") == 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "transport shm does not reach several hosts; use tcp");
    else
        status = tutti_world_check(text, err);
    if (status == TUTTI_OK)
        p->silence_ns = tutti_train_silence_ns(&config);
out:
    tutti_spec_close(spec);
    return status;
}

/* Refuses options of another kind of run, whose number of workers is fixed here. */
static tutti_status refuse_void(const run_config *c, tutti_error *err)
{
    static const char *const with_workers[] = { "restarts", "workers-timeout", "pass" };
    static const char *const with_hosts[] = { "rsh", "meet", "start-timeout", "export" };
    run_config usual;

    tutti_options_default(tutti_cli_run_options, &usual);
    for (size_t k = 0; k < TUTTI_LENGTH(with_workers); k++)
        if (tutti_cli_run_differs(with_workers[k], tutti_cli_run_options, c, &usual))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s is for runs whose workers come and go; give --workers "
                              "FEWEST:MOST too, or omit it",
                              with_workers[k]);
    for (size_t k = 0; k < TUTTI_LENGTH(with_hosts) && c->hosts[0] == 0; k++)
        if (tutti_cli_run_differs(with_hosts[k], tutti_cli_run_options, c, &usual))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s is for runs of several hosts; give -H HOST:N,HOST:N too, or omit "
                              "it",
                              with_hosts[k]);
    if (c->min_workers > 1 && c->on_loss != CONTINUE)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "min-workers is %lld, but the run ends with the first loss; give "
                          "--on-loss continue too, or omit it",
                          (long long)c->min_workers);
    return TUTTI_OK;
}

static tutti_status make_plan(run_plan *p, int argc, char **argv, int at, tutti_error *err)
{
    run_config *c = &p->c;
    tutti_launch_place place;

    if (at >= argc)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no command to run; write it behind the options: tutti run -n 4 "
                          "-- python train.py");
    if (c->workers[0] != 0)
        TUTTI_TRY(tutti_cli_run_members_check(c, tutti_cli_run_options, err));
    else
        TUTTI_TRY(refuse_void(c, err));
    if (c->hosts[0] == 0 && c->n == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "how many workers? give -n N, or -H HOST:N,HOST:N for several hosts");
    TUTTI_TRY(tutti_launch_find_place(environ, &place, err));
    if (place.by > TUTTI_BY_TUTTI && place.size > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s has started %d processes (%s) already; start the command itself by "
                          "it, without `tutti run`",
                          place.name, place.size, place.found);
    p->workers = (int)c->n;
    if (c->hosts[0] != 0 && c->most == 0) {
        TUTTI_TRY(tutti_cli_hosts_read(&c->from, &c->hosts, err));
        TUTTI_TRY(tutti_launch_parse_hosts(c->hosts, &p->hosts, &p->n_hosts, &p->workers, err));
    }
    if (c->n != 0 && c->n != p->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "n is %lld, but the hosts '%.200s' have %d workers; omit -n, or write HOST:WORKERS",
            (long long)c->n, c->hosts, p->workers);
    if (c->min_workers > p->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "min-workers is %lld, but the run has %d from its beginning; give at most %d",
            (long long)c->min_workers, p->workers, p->workers);
    TUTTI_TRY(read_transport(p, err));
    TUTTI_TRY(tutti_cli_find_command(argv[at], p->path, sizeof p->path, err));
    p->words = tutti_alloc((size_t)(argc - at) + 1, sizeof *p->words);
    if (p->words == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting the workers");
    p->words[0] = p->path;
    for (int i = at + 1; i < argc; i++)
        p->words[i - at] = argv[i];
    return TUTTI_OK;
}

static int64_t ns(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

static void show_line(void *user, int rank, int stream, const char *line, size_t bytes)
{
    FILE *to = stream == 1 ? stdout : stderr;

    fprintf(to, "[%d] ", rank);
    tutti_cli_show_output(user, stream, line, bytes);
}

static tutti_status start_here(const run_plan *p, tutti_launch_result *result, tutti_error *err)
{
    const int ranks = p->workers + (int)p->c.servers, share = tutti_cores() / ranks;
    const tutti_launch_options options = {
        .workers = ranks,
        .threads = p->c.threads > 0 ? (int)p->c.threads
                   : share > 1      ? share
                                    : 1,
        .argv = p->words,
        .pin = p->c.pin,
        .grace_ns = ns(p->c.grace),
        .silence_ns = p->silence_ns,
        .meet = p->meet,
        .continue_on_loss = p->c.on_loss == CONTINUE,
        .servers = (int)p->c.servers,
        .least = (int)p->c.min_workers,
        .lost = tutti_cli_show_loss,
        .stop_ns = ns(p->c.stop_timeout),
        .torch = true,
        .output = p->c.tag ? show_line : NULL,
        .ends_all = true,
    };
    return tutti_launch_run(&options, result, err);
}

static tutti_status start_there(run_plan *p, tutti_launch_result *result, tutti_error *err)
{
    char self[4096], directory[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "finding this command's own file (/proc/self/exe)");
    self[length] = 0;
    if (getcwd(directory, sizeof directory) == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding the working directory");
    TUTTI_TRY(tutti_cli_place_servers(&p->hosts, &p->n_hosts, (int)p->c.servers, p->workers, err));
    const tutti_launch_hosts_options options = {
        .hosts = p->hosts,
        .n_hosts = p->n_hosts,
        .rsh = p->c.rsh,
        .agent = self,
        .argv = p->words,
        .directory = directory,
        .threads = (int)p->c.threads,
        .pin = p->c.pin,
        .meet = p->meet,
        .address = p->c.meet,
        .start_ns = ns(p->c.start_timeout),
        .grace_ns = ns(p->c.grace),
        .silence_ns = p->silence_ns,
        .continue_on_loss = p->c.on_loss == CONTINUE,
        .servers = (int)p->c.servers,
        .least = (int)p->c.min_workers,
        .stop_ns = ns(p->c.stop_timeout),
        .torch = true,
        .tag = p->c.tag,
        .exports = p->c.exports,
        .output = tutti_cli_show_output,
    };
    return tutti_launch_hosts(&options, result, err);
}

static tutti_status start_processes(run_plan *p, int *code, tutti_error *err)
{
    char text[32], host[64] = "";
    tutti_launch_result result;

    tutti_cli_forget_outer_run();
    if (p->c.most == 0)
        tell_torch(p->hosts, p->n_hosts);
    unsetenv("TUTTI_SERVERS");
    unsetenv("TUTTI_TRANSPORT"); /* one of before may not be where these workers meet */
    if (strcmp(p->c.transport, "auto") != 0)
        setenv("TUTTI_TRANSPORT", p->c.transport, 1);
    if (p->c.servers > 0) {
        snprintf(text, sizeof text, "%lld", (long long)p->c.servers);
        setenv("TUTTI_SERVERS", text, 1);
    }
    TUTTI_TRY(p->c.most > 0    ? tutti_cli_run_members(&p->c, p->words, &result, err)
              : p->n_hosts > 0 ? start_there(p, &result, err)
                               : start_here(p, &result, err));
    gethostname(host, sizeof host - 1);
    if (result.text[0] != 0 && result.rank >= 0 && p->n_hosts == 0)
        fprintf(stderr, "tutti: host %s: %s\n", host, result.text);
    else if (result.text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result.text);
    *code = result.exit_code;
    return TUTTI_OK;
}

tutti_status tutti_cli_run_check(int argc, char **argv, tutti_error *err)
{
    run_plan p = { .n_hosts = 0 };
    int at = 0;
    bool help = false;
    tutti_status status = read_options(&p.c, argc, argv, &at, &help, err);

    if (status == TUTTI_OK)
        status = make_plan(&p, argc, argv, at, err);
    plan_close(&p);
    return status;
}

int tutti_cli_run(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    run_plan p = { .n_hosts = 0 };
    int at = 0, code = EXIT_DONE;
    bool help = false;
    tutti_status status = read_options(&p.c, argc, argv, &at, &help, &err);

    if (status == TUTTI_OK && help)
        print_help();
    else if (status == TUTTI_OK) {
        tutti_cli_keep_running();
        status = make_plan(&p, argc, argv, at, &err);
        if (status == TUTTI_OK)
            status = start_processes(&p, &code, &err);
    }
    if (status != TUTTI_OK)
        code = tutti_cli_fail(&err);
    plan_close(&p);
    return code;
}
