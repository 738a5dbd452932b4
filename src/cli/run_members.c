/* run_members.c: `tutti run --workers FEWEST:MOST`: processes of any program that takes part in a
   run whose workers come and go, as a script with prepare(elastic=True) does. The program's side is
   src/elastic/elastic.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "elsewhere.h"
#include "member.h"
#include "run.h"

enum { WORKERS_MOST = 1024 };

/* Options of runs with a fixed number of workers. */
static const char *const not_here[] = { "start-timeout", "export",      "servers", "pin",
                                        "on-loss",       "min-workers", "grace",   "tag" };

bool tutti_cli_run_differs(const char *name, const tutti_option *options,
                           const tutti_cli_run_config *c, const tutti_cli_run_config *usual)
{
    const tutti_option *o = tutti_option_find(options, name);
    char mine[300], theirs[300];

    tutti_option_print(o, c, mine, sizeof mine);
    tutti_option_print(o, usual, theirs, sizeof theirs);
    return strcmp(mine, theirs) != 0;
}

static tutti_status refuse_others(const tutti_cli_run_config *c, const tutti_option *options,
                                  tutti_error *err)
{
    tutti_cli_run_config usual;

    tutti_options_default(options, &usual);
    for (size_t k = 0; k < TUTTI_LENGTH(not_here); k++)
        if (tutti_cli_run_differs(not_here[k], options, c, &usual))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "--%s is for runs with a fixed number of workers; with --workers "
                              "the run goes on after each loss; omit it",
                              not_here[k]);
    if (strcmp(c->transport, "auto") != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "transport is '%.80s'; workers that come and go meet over tcp; omit it",
                          c->transport);
    return TUTTI_OK;
}

tutti_status tutti_cli_run_members_check(tutti_cli_run_config *c, const tutti_option *options,
                                         tutti_error *err)
{
    int end = -1;

    if (sscanf(c->workers, "%d:%d%n", &c->least, &c->most, &end) != 2 || end < 0 ||
        c->workers[end] != 0 || c->least < 1 || c->least > c->most || c->most > WORKERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "workers is '%.80s'; write FEWEST:MOST, such as 2:8, of 1 to %d workers",
                          c->workers, WORKERS_MOST);
    TUTTI_TRY(refuse_others(c, options, err));
    if (c->hosts[0] != 0)
        return tutti_cli_elsewhere_check(&c->from, &c->hosts, c->workers, &c->n, err);
    if (c->rsh[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "rsh is for runs of several hosts; give -H HOST:N,HOST:N too, or omit it");
    if (c->n == 0)
        c->n = c->least;
    if (c->n < c->least || c->n > c->most)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "n is %lld, and workers %d:%d; the run begins with a number from %d to %d",
            (long long)c->n, c->least, c->most, c->least, c->most);
    return TUTTI_OK;
}

void tutti_cli_tell_node(const char *host, int port)
{
    char text[TUTTI_ADDRESS_BYTES + 16];

    snprintf(text, sizeof text, "%s %d", host, port);
    if (host[0] != 0)
        setenv(TUTTI_LAUNCH_NODE, text, 1);
}

/* Where the workers listen: --meet; "": where this machine alone reaches them. */
static tutti_status tell_meet(const char *meet, tutti_error *err)
{
    char host[TUTTI_ADDRESS_BYTES] = "";
    int port = 0;

    if (meet[0] != 0)
        TUTTI_TRY(tutti_cli_split_meet(meet, host, sizeof host, &port, err));
    tutti_cli_tell_node(host, port);
    return TUTTI_OK;
}

/* The file of the pass, as the workers find it in whatever directory they are. */
static tutti_status name_pass(const tutti_cli_run_config *c, char *path, size_t bytes,
                              tutti_error *err)
{
    char here[4096];
    int n;

    if (c->pass[0] != '/' && getcwd(here, sizeof here) == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding the working directory");
    if (c->pass[0] == '/')
        n = snprintf(path, bytes, "%s", c->pass);
    else if (c->pass[0] != 0)
        n = snprintf(path, bytes, "%s/%s", here, c->pass);
    else
        n = snprintf(path, bytes, "%s/tutti-%ld.join", here, (long)getpid());
    return (size_t)n < bytes ? TUTTI_OK
                             : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                          "pass is '%.60s...', whose path has %d bytes of at most %zu; "
                                          "give a shorter one",
                                          c->pass, n, bytes - 1);
}

tutti_status tutti_cli_run_members(const tutti_cli_run_config *c, const char *const *words,
                                   tutti_launch_result *result, tutti_error *err)
{
    const int share = tutti_cores() / c->most; /* bits may depend on it, and must not on n */
    char pass[4200], workers[80];
    tutti_launch_elastic_options options = { .workers = (int)c->n,
                                             .threads = c->threads > 0 ? (int)c->threads
                                                        : share > 1    ? share
                                                                       : 1,
                                             .argv = words,
                                             .script = true,
                                             .restarts = (int)c->restarts,
                                             .leave_ns = (int64_t)(c->stop_timeout * 1e9),
                                             .pass = pass,
                                             .say = tutti_cli_show_loss };
    tutti_cli_elsewhere there = { .pass = pass, .rsh = c->rsh, .command = words };
    tutti_launch_claim *claim = NULL;
    char meet[80] = "";
    tutti_runtime *rt;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(name_pass(c, pass, sizeof pass, err));
    TUTTI_TRY(tutti_launch_pass_replaces(pass, err));
    if (c->meet[0] == 0 && c->hosts[0] != 0)
        tutti_cli_elsewhere_meet(c->hosts, meet, sizeof meet);
    TUTTI_TRY(tell_meet(c->meet[0] != 0 ? c->meet : meet, err));
    snprintf(workers, sizeof workers, "%d:%d:%.3f", c->least, c->most, c->workers_timeout);
    setenv(TUTTI_LAUNCH_WORKERS, workers, 1);
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    if (c->pass[0] != 0) /* the other name is this process's own */
        status = tutti_launch_claim_pass(&claim, rt, pass, err);
    if (status == TUTTI_OK)
        status = tutti_cli_check_free(
            pass, "take part by `tutti join PASS -- COMMAND`, or give another --pass", err);
    if (status == TUTTI_OK)
        status = tutti_cli_member_secrets(rt, &options, err);
    if (status == TUTTI_OK)
        status = tutti_cli_elsewhere_open(&there, &options, c->hosts, &c->from, c->most, err);
    if (status == TUTTI_OK)
        status = tutti_launch_elastic(&options, result, err);
    tutti_cli_elsewhere_close(&there);
    tutti_run_key_wipe(&options.key);
    tutti_launch_claim_close(claim);
    tutti_runtime_close(rt);
    return status;
}
