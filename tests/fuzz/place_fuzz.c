/* Any text as an environment, a list of hosts, hosts with workers, a command: nothing is read
   beyond it, and what is accepted keeps its promises. */
#include <stdlib.h>
#include <string.h>

#include "../../src/launch/launch_internal.h"
#include "launch/gather.h"
#include "launch/launch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void environment_of(char *text, size_t size)
{
    char *list[32], **more;
    size_t n = 0;
    tutti_launch_place p;

    for (size_t at = 0; at < size && n + 1 < TUTTI_LENGTH(list); at += strlen(text + at) + 1)
        list[n++] = text + at;
    list[n] = NULL;
    if (tutti_launch_find_place(list, &p, NULL) != TUTTI_OK)
        return;
    require(p.rank >= 0 && p.rank < p.size && p.local_rank >= -1 && (p.by == TUTTI_BY_NOBODY) == (p.name[0] == '\0'));
    require(tutti_launch_place_environment(&p, list, &more, NULL) == TUTTI_OK);
    for (size_t i = 0; i < n; i++)
        require(more[i] == list[i]);
    list[n] = NULL;
    if (p.by != TUTTI_BY_NOBODY) { /* what a transport reads agrees with that */
        tutti_launch_place again;
        require(tutti_launch_find_place(more, &again, NULL) == TUTTI_OK);
        require(again.rank == p.rank && again.size == p.size && again.by == TUTTI_BY_TUTTI);
    }
    tutti_free(more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), name[64];
    const char **words;
    tutti_launch_host *hosts;
    int n, workers, sum = 0;
    size_t n_words;

    if (text == NULL || size > 4096) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    environment_of(text, size);
    for (int64_t i = 0; i < 100; i++)
        if (tutti_launch_host_at(text, i, name, sizeof name, NULL) != TUTTI_OK)
            break;
        else
            require(name[0] != '\0' && strpbrk(name, "[],: \t\n'\"") == NULL);
    if (tutti_launch_parse_hosts(text, &hosts, &n, &workers, NULL) == TUTTI_OK) {
        for (int i = 0; i < n; i++) {
            require(hosts[i].first == sum && hosts[i].workers > 0 && hosts[i].name[0] != '-' &&
                    hosts[i].name[0] != '\0');
            sum += hosts[i].workers;
        }
        require(sum == workers && n > 0);
    }
    tutti_free(hosts);
    if (tutti_launch_split_command(text, 2, &words, &n_words, NULL) == TUTTI_OK) {
        require(n_words > 0 && words[n_words] == NULL);
        for (size_t i = 0; i < n_words; i++)
            require(strlen(words[i]) <= size);
        tutti_free(words);
    }
    free(text);
    return 0;
}
