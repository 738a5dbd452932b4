/* address.c: parses the options about hosts (-H, --rsh), and finds the address by which another
   host reaches this one. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "launch/gather.h"
#include "runtime/names.h"
#include "tutti/base.h"
#include "tutti/launch.h"
#include "launch_internal.h"
#include "launch.h"

#define WORKERS_MOST 65536
#define HOSTS_MOST 4096          /* each is compared with all before it */

/* Parses one item of the list, [at, end): writes the pattern of its names, and the workers of
   each. */
static tutti_status parse_item(const char *at, const char *end, char *names, size_t bytes,
                               long *workers, tutti_error *err)
{
    const char *colon = end;
    char *stop;

    *workers = 1;
    while (colon > at && colon[-1] >= '0' && colon[-1] <= '9')
        colon--;
    if (colon > at && colon < end && colon[-1] == ':') {
        *workers = strtol(colon, &stop, 10);
        colon--;
    } else
        colon = end;
    if (colon == at || (size_t)(colon - at) >= bytes || *workers < 1 || *workers > WORKERS_MOST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%.*s' is no host with its workers; write NAME or NAME:WORKERS with 1 to %d workers",
            (int)(end - at < 100 ? end - at : 100), at, WORKERS_MOST);
    memcpy(names, at, (size_t)(colon - at));
    names[colon - at] = '\0';
    return TUTTI_OK;
}

/* Returns the end of the item at `at`: the next comma that is not in brackets, or the text's. */
static const char *item_end(const char *at)
{
    for (int depth = 0; *at != '\0' && (depth > 0 || *at != ','); at++)
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
    return at;
}

/* Counts the hosts of a list and their workers, and writes the hosts. hosts NULL: counts only, for
   the caller to take memory; names that stand twice are found when they are written. */
static tutti_status expand(const char *text, tutti_launch_host *hosts, int *n, int *workers,
                           tutti_error *err)
{
    const char *at = text, *end;
    char names[1024], name[sizeof hosts->name];

    *n = *workers = 0;
    for (;; at = end + 1) {
        long each;
        tutti_status status;
        end = item_end(at);
        TUTTI_TRY(parse_item(at, end, names, sizeof names, &each, err));
        for (int64_t i = 0;
             (status = tutti_launch_host_at(names, i, name, sizeof name, err)) == TUTTI_OK; i++) {
            if (name[0] == '-' || strstr(name, "@-") != NULL) /* ssh would take it for an option */
                return tutti_fail(err, TUTTI_ERR_USAGE, 0, "host '%.80s' begins with '-'", name);
            if (*workers > WORKERS_MOST - each || *n == HOSTS_MOST)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "more than %d workers or %d hosts in '%.80s'", WORKERS_MOST,
                                  HOSTS_MOST, text);
            if (hosts != NULL) {
                for (int k = 0; k < *n; k++)
                    if (strcmp(hosts[k].name, name) == 0)
                        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                          "host '%.80s' is named twice; write it once with all its "
                                          "workers, %.80s:%ld",
                                          name, name, hosts[k].workers + each);
                hosts[*n] = (tutti_launch_host){ .workers = (int)each, .first = *workers };
                snprintf(hosts[*n].name, sizeof hosts->name, "%s", name);
            }
            ++*n;
            *workers += (int)each;
        }
        if (status != TUTTI_CLOSED)
            return status;
        if (*end == '\0')
            return TUTTI_OK;
    }
}

tutti_status tutti_launch_parse_hosts(const char *text, tutti_launch_host **hosts, int *n_hosts,
                                      int *workers, tutti_error *err)
{
    tutti_status status;

    *hosts = NULL;
    status = tutti_fail_within(err, expand(text, NULL, n_hosts, workers, err), "hosts");
    if (status == TUTTI_OK) {
        *hosts = tutti_alloc((size_t)*n_hosts, sizeof **hosts);
        if (*hosts == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a list of %d hosts",
                              *n_hosts);
        status = tutti_fail_within(err, expand(text, *hosts, n_hosts, workers, err), "hosts");
    }
    if (status != TUTTI_OK) {
        tutti_free(*hosts);
        *hosts = NULL;
        *n_hosts = *workers = 0;
    }
    return status;
}

tutti_status tutti_launch_split_command(const char *text, size_t more, const char ***words,
                                        size_t *n, tutti_error *err)
{
    const size_t length = strlen(text), most = length / 2 + 1;
    /* one piece of memory: the pointers, `more` of the caller's, a NULL, the words' bytes */
    const char **list = tutti_alloc(1, (most + more + 1) * sizeof *list + length + 1);
    char *to, quote = '\0';
    bool within = false;

    *words = NULL;
    *n = 0;
    if (list == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "splitting a command of %zu bytes",
                          length);
    to = (char *)(list + most + more + 1);
    for (const char *c = text;; c++) {
        const bool blank = quote == '\0' && (*c == ' ' || *c == '\t' || *c == '\n');
        if (*c == '\0' || blank) {
            if (within)
                *to++ = '\0';
            within = false;
            if (*c == '\0')
                break;
            continue;
        }
        if (!within)
            list[(*n)++] = to;
        within = true;
        if (*c == quote)
            quote = '\0';
        else if (quote == '\0' && (*c == '\'' || *c == '"'))
            quote = *c;
        else
            *to++ = *c;
    }
    if (quote != '\0' || *n == 0) {
        tutti_free(list);
        *n = 0;
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          quote != '\0' ? "rsh is '%.200s': a quote is not closed"
                                        : "rsh is '%.200s': there is no command in it",
                          text);
    }
    *words = list;
    return TUTTI_OK;
}

/* Connecting a UDP socket sends nothing: it makes the kernel choose the route, and with it this
   host's address. Port 9 stands for any. */
void tutti_launch_route(const char *host, char *text, size_t bytes)
{
    const char *name = strrchr(host, '@');
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *list = NULL;
    struct sockaddr_storage own;

    text[0] = '\0';
    if (tutti_lookup(name != NULL ? name + 1 : host, "9", &hints, &list) != NULL)
        return;
    for (const struct addrinfo *a = list; a != NULL && text[0] == '\0'; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t length = sizeof own;
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
            getnameinfo((struct sockaddr *)&own, length, text, (socklen_t)bytes, NULL, 0,
                        NI_NUMERICHOST) != 0)
            text[0] = '\0';
        close(fd);
    }
    freeaddrinfo(list);
}

bool tutti_launch_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}
