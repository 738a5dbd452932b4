/* elsewhere.c: hosts of a run whose workers come and go (--workers, -H). It begins on the first,
   which is this machine. For each worker of the others the launcher runs `tutti join PASS --host
   HOST` (join_there.c). */
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

tutti_status tutti_cli_elsewhere_read(const char *hosts, bool check, int *here, int *all,
                                      tutti_error *err)
{
    tutti_launch_host *list;
    tutti_status status = TUTTI_OK;
    int n;

    TUTTI_TRY(tutti_launch_parse_hosts(hosts, &list, &n, all, err));
    *here = list[0].workers;
    if (check && !is_this_machine(list[0].name))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "hosts begin with '%.80s', which is another machine, and a run whose workers "
                            "come and go (--workers) begins on this one; start it there, or write "
                            "localhost:N,%.80s ...",
                            list[0].name, list[0].name);
    tutti_free(list);
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
        if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
            address[0] = '\0';
    }
    tutti_free(list);
}

/* ---- commands ---- */

/* Of the workers of one host. */
typedef struct far_words {
    char host[140], rsh[700];
    const char **argv;
} far_words;

/* argv: this program, join, the path of the pass, options, "--", the command, NULL */
static tutti_status write_words(far_words *w, const tutti_cli_elsewhere *e, const char *self,
                                tutti_error *err)
{
    size_t n = 0, at = 0;

    while (e->command != NULL && e->command[n] != NULL)
        n++;
    w->argv = tutti_alloc(n + 9, sizeof *w->argv);
    if (w->argv == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for the workers of other hosts");
    if ((size_t)snprintf(w->rsh, sizeof w->rsh, "--rsh=%s", e->rsh) >= sizeof w->rsh)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "rsh is '%.80s...', which is too long", e->rsh);
    w->argv[at++] = self;
    w->argv[at++] = "join";
    w->argv[at++] = e->pass;
    w->argv[at++] = w->host;
    if (e->rsh[0] != '\0')
        w->argv[at++] = w->rsh;
    if (e->quiet)
        w->argv[at++] = "--quiet";
    if (n > 0)
        w->argv[at++] = "--";
    for (size_t k = 0; k < n; k++)
        w->argv[at++] = e->command[k];
    return TUTTI_OK;
}

tutti_status tutti_cli_elsewhere_open(tutti_cli_elsewhere *e, tutti_launch_elastic_options *o,
                                      const char *hosts, tutti_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", e->self, sizeof e->self - 1);
    far_words *words;
    int workers, at = 0;

    if (hosts[0] == '\0')
        return TUTTI_OK;
    e->self[length > 0 ? length : 0] = '\0';
    TUTTI_TRY(tutti_launch_parse_hosts(hosts, &e->hosts, &e->n_hosts, &workers, err));
    e->words = words = tutti_alloc((size_t)e->n_hosts, sizeof *words);
    e->list = tutti_alloc((size_t)workers, sizeof *e->list);
    if (words == NULL || e->list == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for the workers of other hosts");
    for (int h = 1; h < e->n_hosts; h++) {
        snprintf(words[h].host, sizeof words[h].host, "--host=%s", e->hosts[h].name);
        TUTTI_TRY(write_words(&words[h], e, e->self, err));
        for (int k = 0; k < e->hosts[h].workers; k++)
            e->list[at++] = (tutti_launch_elsewhere){ e->hosts[h].name, words[h].argv };
    }
    o->elsewhere = e->list;
    o->n_elsewhere = at;
    return TUTTI_OK;
}

void tutti_cli_elsewhere_close(tutti_cli_elsewhere *e)
{
    far_words *const words = e->words;

    for (int h = 0; h < e->n_hosts && words != NULL; h++)
        tutti_free(words[h].argv);
    tutti_free(words);
    tutti_free(e->list);
    tutti_free(e->hosts);
}
