/* Any bytes as what an agent writes, as what its ssh writes in between, and as what a worker
   writes. The first byte selects which; of an agent also whether it has greeted already and
   whether rank 0 is its own. Nothing is believed of workers that are not this agent's, lines come
   whole, and nothing that a worker writes is lost. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/launch/hosts_internal.h"
#include "launch/launch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void passed_on(void *user, int stream, const char *text, size_t bytes)
{
    size_t *given = user;

    require(stream == 1 || stream == 2);
    for (size_t i = 0; i < bytes; i++) /* so that a sanitizer sees each */
        *given += text[i] != '\n';
}

/* A file that begins with these bytes, read as a pipe whose other end is closed. */
static int holds(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("said", MFD_CLOEXEC);

    require(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

enum { HOSTS = 2, MINE = 2, WORKERS = 4, NEVER = -7 };

static void agent(const uint8_t *data, size_t size, bool greeted, bool mine_first, bool beside)
{
    size_t given = 0;
    const tutti_launch_host whats[HOSTS] = { { .name = "a", .first = mine_first ? 0 : MINE, .workers = MINE },
                                             { .name = "b", .first = mine_first ? MINE : 0, .workers = MINE } };
    const tutti_launch_hosts_options options = {
        .hosts = whats, .n_hosts = HOSTS, .output = passed_on, .user = &given
    };
    far_host hosts[HOSTS] = { 0 };
    far_worker workers[WORKERS];
    tutti_launch_result result = { 0 };
    far_launcher l = { .options = &options, .result = &result, .hosts = hosts, .workers = workers, .n = HOSTS,
                       .size = WORKERS, .kill_at = TUTTI_FOREVER, .force_at = TUTTI_FOREVER };
    far_host *h = &hosts[0];

    for (int i = 0; i < HOSTS; i++) {
        hosts[i].spec = &whats[i];
        hosts[i].stage = greeted ? RUNNING : STARTING;
        hosts[i].pid = hosts[i].pidfd = hosts[i].in = hosts[i].out = hosts[i].err = -1;
    }
    for (int r = 0; r < WORKERS; r++)
        workers[r] = (far_worker){ .pid = NEVER, .host = r >= whats[0].first && r < whats[0].first + MINE ? 0 : 1 };
    require(tutti_runtime_open_posix(&l.rt, NULL) == TUTTI_OK);
    h->received = malloc(RECEIVE_BYTES + 1);
    require(h->received != NULL);
    if (beside) {
        h->err = holds(data, size);
        require(!tutti_launch_far_read_err(&l, h));
        require(memchr(h->last_error, '\0', sizeof h->last_error) != NULL && given <= 3 * size); /* "a: " a line */
        close(h->err);
    } else {
        h->out = holds(data, size);
        require(!tutti_launch_far_read_out(&l, h));
        close(h->out);
    }
    require(h->n_received <= RECEIVE_BYTES && h->out_line.n <= LINE && h->err_line.n <= LINE && h->rsh_line.n <= LINE);
    require(strlen(h->address_seen) < sizeof h->address_seen && strlen(h->which_cores) < sizeof h->which_cores);
    require(strlen(result.text) < sizeof result.text && strlen(h->result.text) < sizeof h->result.text);
    for (int r = 0; r < WORKERS; r++)
        if (workers[r].host != 0)
            require(workers[r].pid == NEVER && !workers[r].ended && !workers[r].lost);
    require(!l.failed || result.text[0] != '\0');
    free(h->received);
    tutti_runtime_close(l.rt);
}

typedef struct written { const uint8_t *data; size_t at, size; } written;

static void line_of_worker(void *user, int rank, int stream, const char *text, size_t bytes)
{
    written *w = user;
    size_t same;

    require(rank == 3 && stream == 1 && bytes > 0 && bytes <= LAUNCH_LINE + 1 && text[bytes - 1] == '\n');
    require(memchr(text, '\n', bytes) == text + bytes - 1);
    same = w->at + bytes <= w->size && w->data[w->at + bytes - 1] == '\n' ? bytes : bytes - 1; /* else: it was cut */
    require(w->at + same <= w->size && memcmp(text, w->data + w->at, same) == 0);
    w->at += same;
}

static void worker(const uint8_t *data, size_t size)
{
    written w = { data, 0, size };
    launch_lines *l = malloc(sizeof *l);

    require(l != NULL);
    l->n = 0;
    l->fd = holds(data, size);
    tutti_launch_lines_read(l, line_of_worker, &w, 3, 1);
    require(l->fd < 0 && w.at == size);
    free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 4 << 16)
        return 0;
    if (data[0] & 2)
        worker(data + 1, size - 1);
    else
        agent(data + 1, size - 1, data[0] & 4, data[0] & 8, data[0] & 1);
    return 0;
}
