/* elsewhere.c: hosts of a run (-H), in particular of one whose workers come and go (--workers). It
   begins on the first, which is this machine. For each worker of the others the launcher runs
   `tutti join PASS --host HOST` (join_there.c). */
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "elsewhere.h"
#include "launch/launch.h"
#include "runtime/names.h"

/* Without the user. */
static const char *name_of(const char *host)
{
    const char *at = strrchr(host, '@');

    return at != NULL ? at + 1 : host;
}

/* Is that address one of this machine? The kernel sends from it what is sent to it. */
static bool is_own_address(const char *name)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    char route[80], numbers[80] = "";
    bool own;

    if (tutti_lookup(name, "9", &hints, &list) != NULL)
        return false;
    own = tutti_is_loopback(list->ai_addr);
    tutti_launch_route(name, route, sizeof route);
    for (const struct addrinfo *a = list; a != NULL && !own; a = a->ai_next)
        own = getnameinfo(a->ai_addr, a->ai_addrlen, numbers, sizeof numbers, NULL, 0,
                          NI_NUMERICHOST) == 0 &&
              strcmp(numbers, route) == 0;
    freeaddrinfo(list);
    return own;
}

/* A host's own name may have a domain or none. */
static bool is_this_machine(const char *host)
{
    const char *const name = name_of(host);
    const size_t length = strcspn(name, ".");
    char own[256] = "";

    gethostname(own, sizeof own - 1);
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0 ||
           (strcspn(own, ".") == length && strncmp(name, own, length) == 0 &&
            (name[length] == 0 || own[length] == 0)) ||
           is_own_address(name);
}

/* ---- which hosts ---- */

tutti_status tutti_cli_hosts_read(tutti_cli_hosts *h, const char **hosts, tutti_error *err)
{
    tutti_launch_host *list;
    int n;

    if (!tutti_launch_hosts_moves(*hosts))
        return TUTTI_OK;
    TUTTI_TRY(tutti_launch_hosts_read(*hosts, &list, &n, err));
    h->source = *hosts;
    h->text = tutti_launch_hosts_text(list, n);
    tutti_free(list);
    if (n == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hosts '%.200s' have no host; write a line HOST:WORKERS for each", *hosts);
    if (h->text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for %d hosts", n);
    *hosts = h->text;
    return TUTTI_OK;
}

/* This machine's place in the list becomes the first. */
static tutti_status begin_here(tutti_cli_hosts *h, tutti_launch_host *list, int n, const char **hosts,
                               tutti_error *err)
{
    tutti_launch_host here;
    int k = 0;

    while (k < n && !is_this_machine(list[k].name))
        k++;
    if (k == n)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hosts '%.200s' do not have this machine, and a run whose workers come and go "
                          "(--workers) begins on it; add a line localhost:N",
                          h->source);
    here = list[k];
    memmove(list + 1, list, (size_t)k * sizeof *list);
    list[0] = here;
    tutti_free(h->text);
    *hosts = h->text = tutti_launch_hosts_text(list, n);
    return h->text != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for %d hosts", n);
}

/* all: of all hosts, which soon are in the run. Those that are read again may be more, or fewer. */
static tutti_status check_numbers(const tutti_cli_hosts *h, const char *hosts, const char *workers,
                                  int here, int all, tutti_error *err)
{
    int least, most;

    if (sscanf(workers, "%d:%d", &least, &most) != 2)
        return TUTTI_OK; /* no range, which is refused later */
    if (h->source == NULL && (all < least || all > most))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the hosts '%.80s' have %d workers, and workers is '%.40s', %d to %d", hosts, all,
                          workers, least, most);
    if (here > most)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hosts '%.80s' have %d workers on this machine, and workers is '%.40s', %d to %d",
                          h->source, here, workers, least, most);
    return TUTTI_OK;
}

tutti_status tutti_cli_elsewhere_check(tutti_cli_hosts *h, const char **hosts, const char *workers,
                                       int64_t *n, tutti_error *err)
{
    tutti_launch_host *list;
    tutti_status status = TUTTI_OK;
    int n_hosts, all, here;

    TUTTI_TRY(tutti_cli_hosts_read(h, hosts, err));
    TUTTI_TRY(tutti_launch_parse_hosts(*hosts, &list, &n_hosts, &all, err));
    if (h->source != NULL)
        status = begin_here(h, list, n_hosts, hosts, err);
    else if (!is_this_machine(list[0].name))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "hosts begin with '%.80s', which is another machine, and a run whose workers "
                            "come and go (--workers) begins on this one; start it there, or write "
                            "localhost:N,%.80s ...",
                            list[0].name, list[0].name);
    here = list[0].workers;
    tutti_free(list);
    if (status == TUTTI_OK)
        status = check_numbers(h, *hosts, workers, here, all, err);
    if (status == TUTTI_OK && *n != 0 && *n != here)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "n is %lld, but the first of the hosts '%.200s', on which the run begins, has %d "
                            "workers; omit -n, or write HOST:WORKERS",
                            (long long)*n, *hosts, here);
    *n = here;
    return status;
}

void tutti_cli_elsewhere_meet(const char *hosts, char *address, size_t bytes)
{
    tutti_launch_host *list;
    int n, workers;

    address[0] = '\0';
    if (tutti_launch_parse_hosts(hosts, &list, &n, &workers, NULL) != TUTTI_OK)
        return;
    for (int h = 1; h < n && address[0] == '\0'; h++) {
        tutti_launch_route(list[h].name, address, bytes);
        if (tutti_launch_is_loopback(address))
            address[0] = '\0';
    }
    tutti_free(list);
}

/* ---- commands ---- */

/* The command of the workers of one host. */
typedef struct tutti_cli_far {
    struct tutti_cli_far *next;
    char host[140];              /* --host=NAME */
    const char *argv[];
} far_command;

/* argv: this program, join, the path of the pass, options, "--", the command, NULL */
static far_command *make_command(const tutti_cli_elsewhere *e, const char *host)
{
    size_t n = 0, at = 0;
    far_command *f;

    while (e->command != NULL && e->command[n] != NULL)
        n++;
    f = tutti_alloc(1, sizeof *f + (n + 8) * sizeof *f->argv);
    if (f == NULL)
        return NULL;
    snprintf(f->host, sizeof f->host, "--host=%s", host);
    f->argv[at++] = e->self;
    f->argv[at++] = "join";
    f->argv[at++] = e->pass;
    f->argv[at++] = f->host;
    if (e->rsh_word[0] != '\0')
        f->argv[at++] = e->rsh_word;
    if (e->quiet)
        f->argv[at++] = "--quiet";
    if (n > 0)
        f->argv[at++] = "--";
    for (size_t k = 0; k < n; k++)
        f->argv[at++] = e->command[k];
    f->argv[at] = NULL;
    return f;
}

/* Callback of the launcher. */
static const char *const *command_of(void *commands, const char *host)
{
    tutti_cli_elsewhere *e = commands;
    far_command *f = e->list;

    while (f != NULL && strcmp(f->host + sizeof "--host=" - 1, host) != 0)
        f = f->next;
    if (f == NULL && (f = make_command(e, host)) != NULL) {
        f->next = e->list;
        e->list = f;
    }
    return f != NULL ? f->argv : NULL;
}

tutti_status tutti_cli_elsewhere_open(tutti_cli_elsewhere *e, tutti_launch_elastic_options *o,
                                      const char *hosts, const tutti_cli_hosts *of, int most,
                                      tutti_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", e->self, sizeof e->self - 1);
    int workers;

    if (hosts[0] == '\0')
        return TUTTI_OK;
    e->self[length > 0 ? length : 0] = '\0';
    if (e->rsh[0] != '\0' &&
        (size_t)snprintf(e->rsh_word, sizeof e->rsh_word, "--rsh=%s", e->rsh) >= sizeof e->rsh_word)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "rsh is '%.80s...', which is too long", e->rsh);
    TUTTI_TRY(tutti_launch_parse_hosts(hosts, &e->hosts, &o->n_hosts, &workers, err));
    o->hosts = e->hosts;
    o->source = of->source;
    o->most = most;
    o->command = command_of;
    o->commands = e;
    return TUTTI_OK;
}

void tutti_cli_elsewhere_close(tutti_cli_elsewhere *e)
{
    for (far_command *f = e->list, *next; f != NULL; f = next) {
        next = f->next;
        tutti_free(f);
    }
    tutti_free(e->hosts);
}
