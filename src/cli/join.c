/* join.c: `tutti join`: one more worker of a run that is under way, from any machine. It asks a
   member what is trained, gets the state from the others, and trains until the run ends or until
   it is asked to leave (SIGTERM, Ctrl-C). Of a run of a script it starts the script, in
   join_script.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "join.h"

enum { ASK_MS = 5000, FREE_MS = 2000 }; /* until a member has answered; if one may be there */

typedef struct join_config {
    const char *key, *meet, *data, *out, *slow, *host, *rsh;
    int64_t threads;
    bool quiet;
} join_config;

const tutti_option tutti_cli_join_options[] = {
    { "key", TUTTI_TEXT, TUTTI_AT(join_config, key), 0, 0, 0, "",
      "with ADDRESS: the file `join` of the run's --out, or that of its --pass, or a copy, which you "
      "alone can read; none: TUTTI_RUN_ID, and TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE" },
    { "meet", TUTTI_TEXT, TUTTI_AT(join_config, meet), 0, 0, 0, "",
      "address by which the others reach this machine; none: that of the route to ADDRESS" },
    { "data", TUTTI_TEXT, TUTTI_AT(join_config, data), 0, 0, 0, "",
      "without COMMAND: where the run's data set is on this machine; none: where it is for the others" },
    { "out", TUTTI_TEXT, TUTTI_AT(join_config, out), 0, 0, 0, "",
      "without COMMAND: directory of the results, for the time in which this worker writes them; "
      "none: the run's" },
    { "threads", TUTTI_INT, TUTTI_AT(join_config, threads), 0, 0, 1024, NULL,
      "compute threads of a script's worker; 0, and in a run of `tutti train` always: as many as "
      "the others have" },
    { "quiet", TUTTI_BOOL, TUTTI_AT(join_config, quiet), 0, 0, 1, NULL,
      "without COMMAND: no progress; errors are always shown" },
    { "slow", TUTTI_TEXT, TUTTI_AT(join_config, slow), 0, 0, 0, "",
      "without COMMAND: *:FACTOR, as of `tutti train`: this worker emulates one that is so much "
      "slower; none: as for the others" },
    { "host", TUTTI_TEXT, TUTTI_AT(join_config, host), 0, 0, 0, "",
      "start the worker on that host, by ssh; none: here" },
    { "rsh", TUTTI_TEXT, TUTTI_AT(join_config, rsh), 0, 0, 0, "",
      "with host: the command that starts it there, as RSH HOST COMMAND; none: ssh" },
    { 0 }
};

/* ---- where the run is ---- */

static bool is_file(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0;
}

/* Reads the pass of a run's directory, or of the file itself. */
static tutti_status read_directory(tutti_launch_pass *pass, const char *where, tutti_error *err)
{
    struct stat about;
    char path[4200];

    if (stat(where, &about) == 0 && S_ISDIR(about.st_mode))
        tutti_cli_pass_of(where, path, sizeof path);
    else
        snprintf(path, sizeof path, "%.4096s", where);
    return tutti_launch_pass_read(pass, path, err);
}

/* From the launcher on another host (join_there.c). Children do not get it. */
static tutti_status take_pass(tutti_launch_pass *pass, tutti_error *err)
{
    const char *const given = getenv(TUTTI_LAUNCH_PASS_TEXT);
    char text[TUTTI_LAUNCH_PASS_BYTES] = "";
    tutti_status status;

    snprintf(text, sizeof text, "%s", given != NULL ? given : "");
    unsetenv(TUTTI_LAUNCH_PASS_TEXT);
    status = tutti_fail_within(err, tutti_launch_pass_parse(pass, text, err),
                               "in the variable " TUTTI_LAUNCH_PASS_TEXT);
    explicit_bzero(text, sizeof text);
    if (status == TUTTI_OK && pass->n == 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the variable " TUTTI_LAUNCH_PASS_TEXT " has no address of a member");
    return status;
}

tutti_status tutti_cli_member_find(tutti_cli_member *m, const char *key, const char *where,
                                   tutti_error *err)
{
    char host[256];
    int port;

    if (strcmp(where, "-") == 0)
        TUTTI_TRY(take_pass(&m->pass, err));
    else if (is_file(where) || strchr(where, '/') != NULL || strrchr(where, ':') == NULL)
        TUTTI_TRY(read_directory(&m->pass, where, err));
    else {
        TUTTI_TRY(tutti_cli_split_address(where, host, sizeof host, &port, err));
        if (port == 0 || strlen(where) >= sizeof *m->pass.at)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%.80s' is no address of a member; write HOST:PORT, as the run says "
                              "it when it begins",
                              where);
        if (key[0] != 0)
            TUTTI_TRY(tutti_launch_pass_read(&m->pass, key, err));
        else {
            TUTTI_TRY(tutti_node_options_of(&m->how.node, environ, err));
            m->pass.id = m->how.node.run;
            m->pass.key = m->how.node.key;
        }
        snprintf(m->pass.at[0], sizeof *m->pass.at, "%s", where);
        m->pass.n = 1;
    }
    m->how.node.run = m->pass.id;
    m->how.node.key = m->pass.key;
    tutti_cli_member_contacts(m);
    return TUTTI_OK;
}

tutti_status tutti_cli_member_host(tutti_cli_member *m, const char *meet, tutti_error *err)
{
    char host[256];
    int port;

    if (meet[0] != 0) {
        TUTTI_TRY(tutti_cli_split_meet(meet, m->host, sizeof m->host, &port, err));
        return port == 0 ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                      "meet is '%.80s', but a worker that joins takes a free port; "
                                      "leave ':%d' out",
                                      meet, port);
    }
    TUTTI_TRY(tutti_cli_split_address(m->contacts[0], host, sizeof host, &port, err));
    tutti_launch_route(host, m->host, sizeof m->host);
    m->how.node.host = m->host;
    return TUTTI_OK;
}

/* ---- settings ---- */

/* Bits may depend on the number of threads. A worker with another one would be admitted, and then
   its engine and those of the others end with that. */
static tutti_status check_threads(int64_t own, int64_t theirs, tutti_error *err)
{
    return own == 0 || own == theirs
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the workers of the run have %lld threads each, so --threads %lld is not "
                            "possible; leave it out",
                            (long long)theirs, (long long)own);
}

/* Options of a worker, as words: "--out=runs/x". */
typedef struct own_options {
    char text[5][4200];
    const char *words[7];            /* [n], NULL-ended */
    size_t n;
} own_options;

static void add_text(own_options *o, const char *name, const char *value)
{
    char *const text = o->text[o->n];

    if (value[0] == 0)
        return;
    snprintf(text, sizeof o->text[0], "--%s=%.4100s", name, value);
    o->words[o->n++] = text;
    o->words[o->n] = NULL;
}

/* Those of a run of `tutti train`. */
static void add_settings(own_options *o, const join_config *c)
{
    add_text(o, "out", c->out);
    add_text(o, "data", c->data);
    add_text(o, "slow", c->slow);
}

/* Reads the settings that a member has sent, as a configuration file, and those of this command. */
static tutti_status read_settings(tutti_cli_settings *s, const join_config *c, const char *told,
                                  tutti_error *err)
{
    char file[64], quiet[] = "--quiet", name[] = "join";
    own_options own = { .n = 0 };
    char *words[8] = { name, file };
    int n = 2, fd = memfd_create("tutti-join", MFD_CLOEXEC);
    tutti_status status = TUTTI_OK;

    if (fd < 0 || write(fd, told, strlen(told)) != (ssize_t)strlen(told))
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "keeping what the run is");
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
    add_settings(&own, c);
    for (size_t k = 0; k < own.n; k++)
        words[n++] = own.text[k];
    if (c->quiet)
        words[n++] = quiet;
    words[n] = NULL;
    if (status == TUTTI_OK)
        status = tutti_cli_read(s, n, words, NULL, err);
    if (fd >= 0)
        close(fd);
    s->config.out = s->out;
    if (status == TUTTI_OK)
        status = check_threads(c->threads, s->config.threads, err);
    return status == TUTTI_OK ? tutti_train_check(&s->config, tutti_cores(), err) : status;
}

static tutti_status take_part(tutti_cli_member *m, const join_config *c, const char *told,
                              tutti_error *err)
{
    tutti_screen display = { .terminal = tutti_screen_replaces() };
    tutti_train_io io = { .say = tutti_screen_say,
                          .columns = tutti_screen_columns,
                          .user = &display };
    char installed[4096];
    bool ended = false;
    tutti_status status;

    TUTTI_TRY(read_settings(m->s, c, told, err));
    io.installed_data = tutti_cli_installed(installed, sizeof installed, "data");
    TUTTI_TRY(tutti_train_check_data(m->s->rt, &m->s->config, io.installed_data, err));
    if (!m->s->config.quiet)
        printf("tutti: joins the run of %s\n", m->s->config.out);
    fflush(stdout);
    tutti_cli_handle_signals(false);
    status = tutti_cli_member_train(m, &io, &ended, err);
    tutti_screen_end(&display);
    if (status == TUTTI_OK && !ended)
        fprintf(stderr, "tutti: " TUTTI_LAUNCH_LEFT "\n");
    return status == TUTTI_OK ? tutti_cli_flush(err) : status;
}

/* Options that a script has itself, if any. */
static tutti_status refuse_own(const join_config *c, tutti_error *err)
{
    const char *const given = c->data[0] != 0 ? "data"
                              : c->out[0] != 0 ? "out"
                              : c->slow[0] != 0 ? "slow"
                              : c->quiet        ? "quiet"
                                               : NULL;

    return given == NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "--%s is for runs of `tutti train`; what a script has is behind its "
                            "command, -- COMMAND",
                            given);
}

/* Is the command line for a run of this kind? */
static tutti_status check_kind(bool script, bool command, const char *where, tutti_error *err)
{
    if (script == command)
        return TUTTI_OK;
    if (script)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the run at %.200s is of a script, which this command starts here: tutti "
                          "join %.200s -- COMMAND, with the same arguments",
                          where, where);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "the run at %.200s is of `tutti train`, whose workers need no command: tutti "
                      "join %.200s",
                      where, where);
}

/* Cuts version and hash of the data off a member's answer of a run of `tutti train`. A worker of
   another one would be admitted, and then no engine opens, nor do those of the others. */
static tutti_status check_version(char *told, const char *where, const char **data_hash,
                                  tutti_error *err)
{
    char *const end = strchr(told, '\n'), *const hash = end != NULL ? strchr(end + 1, '\n') : NULL;
    const char *const theirs = end != NULL ? end + 1 : "an earlier version";

    if (hash != NULL)
        *hash = '\0';
    *data_hash = hash != NULL ? hash + 1 : NULL;
    if (strcmp(theirs, tutti_version()) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the workers of the run at %.200s have tutti %.40s, and this one has %s; "
                          "all have the same version",
                          where, theirs, tutti_version());
    *end = '\0';
    return TUTTI_OK;
}

/* Why no member may have answered, if this machine alone reaches them. */
static const char *why_near(const char *contact)
{
    return strncmp(contact, "127.", 4) == 0 || strncmp(contact, "[::1]", 5) == 0
               ? "; its workers are reached by their own machine only, unless it begins with "
                 "--meet ADDRESS"
               : "";
}

/* As join_run, on another host. */
static tutti_status join_there(tutti_cli_member *m, const join_config *c, const char *where,
                               char *const *command, int *code, tutti_error *err)
{
    own_options own = { .n = 0 };
    char threads[24] = "";

    TUTTI_TRY(tutti_cli_join_there_check(c->host, err));
    if (command != NULL)
        TUTTI_TRY(refuse_own(c, err));
    TUTTI_TRY(tutti_cli_member_find(m, c->key, where, err));
    add_settings(&own, c);
    add_text(&own, "meet", c->meet);
    if (c->threads > 0)
        snprintf(threads, sizeof threads, "%lld", (long long)c->threads);
    add_text(&own, "threads", threads);
    own.words[own.n] = c->quiet ? "--quiet" : NULL;
    own.words[own.n + c->quiet] = NULL;
    return tutti_cli_join_there_run(m,
                                    &(tutti_cli_join_there){ .host = c->host,
                                                             .rsh = c->rsh,
                                                             .own = own.words,
                                                             .command = command },
                                    code, err);
}

static tutti_status join_run(tutti_cli_member *m, const join_config *c, const char *where,
                             char *const *command, int *code, tutti_error *err)
{
    char *told = NULL;
    tutti_status status;

    if (command != NULL)
        TUTTI_TRY(refuse_own(c, err));
    TUTTI_TRY(tutti_cli_member_find(m, c->key, where, err));
    TUTTI_TRY(tutti_cli_member_host(m, c->meet, err));
    m->how.node.host = m->host;
    status = tutti_train_ask(&m->how.node, m->contacts, m->pass.n, ASK_MS * INT64_C(1000000), &told,
                             err);
    if (status == TUTTI_TIMEOUT)
        status = tutti_fail_within(err, status,
                                   "cannot join the run at %s, which may have ended, or have "
                                   "another key%s",
                                   m->contacts[0], why_near(m->contacts[0]));
    if (status == TUTTI_OK)
        status = check_kind(told[0] != '{', command != NULL, where, err);
    if (status == TUTTI_OK && command == NULL)
        status = check_version(told, where, &m->data_hash, err);
    if (status == TUTTI_OK && command != NULL) {
        const tutti_cli_join_script how = {
            .where = where, .told = told, .command = command, .threads = (int)c->threads
        };
        status = tutti_cli_join_script_run(m, &how, code, err);
    } else if (status == TUTTI_OK)
        status = take_part(m, c, told, err);
    tutti_free(told);
    return status;
}

tutti_status tutti_cli_check_free(const char *pass, const char *mends, tutti_error *err)
{
    tutti_cli_member m = { .rank = -1, .tell_fd = -1 };
    char *told = NULL;
    tutti_status status = TUTTI_OK;

    if (!is_file(pass) || tutti_launch_pass_read(&m.pass, pass, NULL) != TUTTI_OK || m.pass.n == 0)
        return TUTTI_OK;
    m.how.node.run = m.pass.id;
    m.how.node.key = m.pass.key;
    tutti_cli_member_contacts(&m);
    if (tutti_cli_member_host(&m, "", NULL) == TUTTI_OK &&
        tutti_train_ask(&m.how.node, m.contacts, m.pass.n, FREE_MS * INT64_C(1000000), &told, NULL) ==
            TUTTI_OK)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the run of '%.300s' is under way, and its workers answer; %s", pass, mends);
    tutti_free(told);
    tutti_run_key_wipe(&m.pass.key);
    tutti_run_key_wipe(&m.how.node.key);
    return status;
}

static void print_help(void)
{
    printf("tutti join OUT|ADDRESS [--key FILE] [--OPTION VALUE ...]\n"
           "tutti join PASS|ADDRESS [--key FILE] [--OPTION VALUE ...] -- COMMAND [ARGUMENT ...]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Takes part in a run of `tutti train --workers FEWEST:MOST` that is under way, as "
                   "one more worker, until the run ends. It learns from a member what is trained, "
                   "gets the state from the others' memory, and trains on from their step. OUT is "
                   "the directory of the run, on this machine or one that both see. ADDRESS is "
                   "HOST:PORT of any member. SIGTERM or Ctrl-C: it leaves, and no step is lost.");
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "With COMMAND: in a run of `tutti run --workers FEWEST:MOST -- COMMAND`, whose "
                   "script this starts once more, here. PASS is the file of that run's --pass, or a "
                   "copy of it. A script that is another one is refused before it takes part.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_join_options, true);
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "Exit codes: 0 the run has ended, or this worker has left it; 1 it failed, or was "
                   "not admitted; 2 bad usage, or another script than the run's; 3 it was lost, or "
                   "too few others were left. A command ends with its own code.");
}

/* Takes "--" and what follows it from the arguments: the command. NULL: there is none. */
static char **split_command(int *argc, char **argv)
{
    for (int k = 1; k < *argc; k++)
        if (strcmp(argv[k], "--") == 0) {
            *argc = k;
            argv[k] = NULL;
            return argv + k + 1;
        }
    return NULL;
}

int tutti_cli_join(int argc, char **argv)
{
    join_config c;
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s = { .rt = NULL };
    tutti_cli_member m = { .s = &s, .tell_fd = -1, .newcomer = true };
    char **const command = split_command(&argc, argv);
    int code = EXIT_DONE;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_join_options, &c);
    if (tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_join_options, NULL, &c }, &argc, argv,
                             &help, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    if (help) {
        print_help();
        return EXIT_DONE;
    }
    if (argc != 2 || (argv[1][0] == '-' && argv[1][1] != 0))
        return tutti_cli_usage("join", "it takes the directory or the pass of a run, or HOST:PORT of a member");
    if (command != NULL && command[0] == NULL)
        return tutti_cli_usage("join", "there is no command behind --; tutti join PASS -- python train.py");
    if (c.rsh[0] != 0 && c.host[0] == 0)
        return tutti_cli_usage("join", "rsh is given, and it does nothing without host; give --host too, or omit it");
    tutti_cli_keep_running();
    status = (c.host[0] != 0 ? join_there : join_run)(&m, &c, argv[1], command, &code, &err);
    tutti_cli_member_close(&m);
    if (s.rt != NULL)
        tutti_cli_close(&s);
    return status == TUTTI_OK ? code : tutti_cli_fail(&err);
}
