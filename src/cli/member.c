/* member.c: runs whose workers come and go (`tutti train --workers`): what the launcher does for
   them, and what a worker does that takes part in one, as a founder or started again. `tutti join`
   (join.c) starts one more by hand. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elsewhere.h"
#include "member.h"
#include "runtime/names.h"
#include "tutti/launch.h"
#include "tutti/tutti.h"

/* ---- the launcher ---- */

tutti_status tutti_cli_member_secrets(tutti_runtime *rt, tutti_launch_elastic_options *o,
                                      tutti_error *err)
{
    tutti_node_options given;

    if (getenv(TUTTI_MEET_VARIABLE_KEY) == NULL && getenv(TUTTI_MEET_VARIABLE_KEY_FILE) == NULL) {
        tutti_run_id_make(rt, &o->id);
        tutti_run_key_make(rt, &o->key);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_node_options_of(&given, environ, err));
    o->id = given.run;
    o->key = given.key;
    tutti_run_key_wipe(&given.key);
    return TUTTI_OK;
}

tutti_status tutti_cli_launch_members(const tutti_cli_settings *s, const char *const *words,
                                      int64_t stop_ns, tutti_launch_result *result,
                                      tutti_error *err)
{
    char pass[4200];
    tutti_launch_elastic_options options = { .workers = (int)s->config.n,
                                             .threads = (int)s->config.threads,
                                             .argv = words,
                                             .restarts = (int)s->config.restarts,
                                             .leave_ns = stop_ns,
                                             .pass = pass,
                                             .say = tutti_cli_show_loss };
    tutti_cli_elsewhere there = { .pass = pass, .rsh = s->config.rsh, .quiet = s->config.quiet };
    char host[TUTTI_ADDRESS_BYTES];
    tutti_status status;
    int port;

    if (s->config.meet[0] != 0)
        TUTTI_TRY(tutti_cli_split_meet(s->config.meet, host, sizeof host, &port, err));
    tutti_cli_pass_of(s->out, pass, sizeof pass);
    TUTTI_TRY(tutti_cli_member_secrets(s->rt, &options, err));
    status = tutti_cli_elsewhere_open(&there, &options, s->config.hosts, &s->hosts, s->config.most, err);
    if (status == TUTTI_OK)
        status = tutti_launch_elastic(&options, result, err);
    tutti_cli_elsewhere_close(&there);
    tutti_run_key_wipe(&options.key);
    return status;
}

void tutti_cli_pass_of(const char *out, char *path, size_t bytes)
{
    snprintf(path, bytes, "%.4096s/join", out);
}

/* ---- a worker ---- */

/* Writes a line to the launcher, if there is one. */
static void tell(const tutti_cli_member *m, const char *what)
{
    char line[128];
    const int n = snprintf(line, sizeof line, "%d %s\n", m->rank, what);

    if (m->tell_fd >= 0 && write(m->tell_fd, line, (size_t)n) != n)
        return; /* the launcher has ended, and this process will */
}

/* Callback of the trainer. */
static bool leaves(void *user)
{
    (void)user;
    return tutti_cli_asked(NULL) != 0;
}

/* The first founder says how others come in. */
static void say_the_way(const tutti_cli_member *m, const char *address)
{
    const tutti_train_config *c = &m->s->config;

    if (m->tell_fd < 0 || m->rank != 0 || m->newcomer || c->quiet)
        return;
    printf("tutti: %d to %d workers; another joins by: tutti join %s\n", c->least, c->most, c->out);
    if (c->meet[0] != 0)
        printf("tutti: from other machines: tutti join %s --key FILE, a copy of %s/join\n", address,
               c->out);
    fflush(stdout);
}

/* Callback of the trainer. */
static void listens(void *user, const char *address)
{
    const tutti_cli_member *m = user;
    char what[80];

    snprintf(what, sizeof what, "at %s", address);
    tell(m, what);
    say_the_way(m, address);
}

tutti_status tutti_cli_split_address(const char *text, char *host, size_t bytes, int *port,
                                     tutti_error *err)
{
    const char *colon = strrchr(text, ':');
    const bool one = colon != NULL && (strchr(text, ':') == colon || colon[-1] == ']');
    const char *at = text[0] == '[' ? text + 1 : text;
    size_t n = one ? (size_t)(colon - at) : strlen(at);
    char *end = NULL;

    *port = 0;
    if (text[0] == '[' && n > 0 && at[n - 1] == ']')
        n--;
    if (one)
        *port = (int)strtol(colon + 1, &end, 10);
    if (n == 0 || n >= bytes || (one && (*end != 0 || *port < 1 || *port > 65535)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%.80s' is no address; write HOST or HOST:PORT, such as 10.0.0.2:29500",
                          text);
    memcpy(host, at, n);
    host[n] = 0;
    return TUTTI_OK;
}

/* An address in numbers is meant as it is, and so is `localhost`. */
static bool is_name(const char *host)
{
    struct in6_addr numbers;

    return inet_pton(AF_INET, host, &numbers) != 1 && inet_pton(AF_INET6, host, &numbers) != 1 &&
           strcmp(host, "localhost") != 0;
}

tutti_status tutti_cli_split_meet(const char *text, char *host, size_t bytes, int *port,
                                  tutti_error *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    char numbers[INET6_ADDRSTRLEN] = "";
    struct addrinfo *list = NULL;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_fail_within(err, tutti_cli_split_address(text, host, bytes, port, err), "meet"));
    if (!is_name(host) || tutti_lookup(host, "9", &hints, &list) != NULL)
        return TUTTI_OK; /* a name that is unknown is refused where a node listens */
    if (tutti_is_loopback(list->ai_addr)) {
        getnameinfo(list->ai_addr, list->ai_addrlen, numbers, sizeof numbers, NULL, 0, NI_NUMERICHOST);
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "meet is '%.80s', which is the loopback address %s on this machine, so no "
                            "other machine can join; give an address that others reach (ip -brief "
                            "address lists them), or leave --meet out",
                            host, numbers);
    }
    freeaddrinfo(list);
    return status;
}

/* Where this worker listens: --meet, which its launcher has looked up. Its port is the first
   founder's, as the address by which the run is known. */
static tutti_status set_host(tutti_cli_member *m, tutti_error *err)
{
    int port = 0;

    if (m->s->config.meet[0] != 0)
        TUTTI_TRY(tutti_cli_split_address(m->s->config.meet, m->host, sizeof m->host, &port, err));
    m->how.node.host = m->host;
    m->how.node.port = m->rank == 0 && !m->newcomer && m->tell_fd >= 0 ? port : 0;
    return TUTTI_OK;
}

void tutti_cli_member_contacts(tutti_cli_member *m)
{
    for (int k = 0; k < m->pass.n; k++)
        m->contacts[k] = m->pass.at[k];
    m->how.contacts = m->contacts;
    m->how.n = m->pass.n;
}

/* Opens what a worker of our launcher needs: founders meet in shared memory, and one that is
   started again has the pass. */
static tutti_status open_launched(tutti_cli_member *m, tutti_error *err)
{
    const char *fd = getenv(TUTTI_LAUNCH_TELL), *join = getenv(TUTTI_LAUNCH_JOIN);

    m->tell_fd = fd != NULL ? atoi(fd) : -1;
    m->newcomer = join != NULL;
    TUTTI_TRY(tutti_node_options_of(&m->how.node, environ, err));
    if (join == NULL)
        return tutti_world_open(&m->founders, "shm", err);
    TUTTI_TRY(tutti_launch_pass_read(&m->pass, join, err));
    tutti_cli_member_contacts(m);
    return TUTTI_OK;
}

tutti_status tutti_cli_member_train(tutti_cli_member *m, const tutti_train_io *io, bool *ended,
                                    tutti_error *err)
{
    char *transport = NULL;
    tutti_status status;

    *ended = false;
    TUTTI_TRY(set_host(m, err));
    TUTTI_TRY(tutti_train_transport(&m->s->config, &transport, err));
    m->how.founders = m->founders;
    m->how.transport = transport;
    m->how.least = m->s->config.least;
    tutti_cli_pass_of(m->s->out, m->kept, sizeof m->kept);
    m->how.pass = m->kept;
    m->how.lack_ns = (int64_t)(m->s->config.workers_timeout * 1e9);
    m->how.node.most = m->s->config.most;
    m->how.leaves = leaves;
    m->how.listens = listens;
    m->how.user = m;
    status = tutti_train_member(&m->s->config, io, &m->how, m->data_hash, ended, err);
    tutti_free(transport);
    if (*ended)
        tell(m, "ended");
    return status;
}

void tutti_cli_member_close(tutti_cli_member *m)
{
    tutti_world_close(m->founders);
    tutti_run_key_wipe(&m->how.node.key);
    tutti_run_key_wipe(&m->pass.key);
}

/* All founders refuse the same: one of them says so. */
static int say_failure(const tutti_cli_member *m, const tutti_error *err)
{
    if (err->status == TUTTI_ERR_USAGE && !m->newcomer)
        return m->rank == 0 ? tutti_cli_fail(err) : EXIT_USAGE;
    fprintf(stderr, "tutti: worker %d: %s\n", m->rank, err->text);
    return tutti_cli_code(err->status);
}

int tutti_cli_work_member(tutti_cli_settings *s, const tutti_train_io *io, int rank,
                          tutti_error *err)
{
    tutti_cli_member m = { .s = s, .rank = rank, .tell_fd = -1 };
    bool ended = false;
    tutti_status status;

    tutti_cli_handle_signals(true);
    status = open_launched(&m, err);
    if (status == TUTTI_OK)
        status = tutti_cli_member_train(&m, io, &ended, err);
    if (status == TUTTI_OK && !ended && !tutti_cli_asked_by_launcher())
        fprintf(stderr, "tutti: worker %d has left the run\n", rank);
    tutti_cli_member_close(&m);
    if (status == TUTTI_OK)
        status = tutti_cli_flush(err);
    return status == TUTTI_OK ? EXIT_DONE : say_failure(&m, err);
}
