/* join_there.c: `tutti join WHERE --host HOST`: the worker is started on another host, by its agent
   (launch/hosts.c), which also ends it when this command ends. The pass goes there with the agent's
   job, on its standard input, so no other user sees the key. A launcher with workers on several
   hosts (launch/elastic.c) runs one such command for each of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "join.h"
#include "run.h"

enum { LEAVE_S = 30 }; /* the worker has so long to leave */

/* The launcher that has started this command, and the number of its worker there; read before
   variables of an outer run are forgotten. */
typedef struct teller { int fd, worker; } teller;

static teller find_teller(void)
{
    const char *fd = getenv(TUTTI_LAUNCH_TELL), *rank = getenv("TUTTI_RANK");

    return (teller){ fd != NULL ? atoi(fd) : -1, rank != NULL ? atoi(rank) : 0 };
}

static void tell_end(const teller *t)
{
    char line[32];
    const int n = snprintf(line, sizeof line, "%d ended\n", t->worker);

    if (t->fd >= 0 && write(t->fd, line, (size_t)n) != n)
        return; /* the launcher has ended, and this process will */
}

static tutti_status one_host(const char *text, tutti_launch_host **host, tutti_error *err)
{
    int n, workers;

    TUTTI_TRY(tutti_launch_parse_hosts(text, host, &n, &workers, err));
    if (n == 1 && workers == 1)
        return TUTTI_OK;
    tutti_free(*host);
    *host = NULL;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "host is '%.80s', and one worker is started on one host; give this command once for "
                      "each worker",
                      text);
}

tutti_status tutti_cli_join_there_check(const char *text, tutti_error *err)
{
    tutti_launch_host *host;

    TUTTI_TRY(one_host(text, &host, err));
    tutti_free(host);
    return TUTTI_OK;
}

/* The command of the worker: tutti_free it. self: this command's file, there too. */
static const char **make_words(const tutti_cli_join_there *how, const char *self)
{
    size_t n = 0, own = 0, at = 0;
    const char **words;

    while (how->command != NULL && how->command[n] != NULL)
        n++;
    while (how->own[own] != NULL)
        own++;
    words = tutti_alloc(own + n + 5, sizeof *words);
    if (words == NULL)
        return NULL;
    words[at++] = self;
    words[at++] = "join";
    words[at++] = "-";
    for (size_t k = 0; k < own; k++)
        words[at++] = how->own[k];
    if (n > 0)
        words[at++] = "--";
    for (size_t k = 0; k < n; k++)
        words[at++] = how->command[k];
    return words;
}

/* In the environment, from which the job has it. */
static void hand_over(const tutti_launch_pass *pass)
{
    char text[TUTTI_LAUNCH_PASS_BYTES];

    tutti_launch_pass_text(pass, text);
    setenv(TUTTI_LAUNCH_PASS_TEXT, text, 1);
    explicit_bzero(text, sizeof text);
}

/* Callback of the launcher. *user: the worker has printed that it left the run. */
static void show(void *user, int stream, const char *text, size_t bytes)
{
    bool *const left = user;

    *left = *left || memmem(text, bytes, TUTTI_LAUNCH_LEFT, sizeof TUTTI_LAUNCH_LEFT - 1) != NULL;
    tutti_cli_show_output(NULL, stream, text, bytes);
}

static int code_of(const tutti_launch_result *result, bool left, const teller *t)
{
    if (result->exit_code >= 128) /* it was asked to leave */
        return EXIT_DONE;
    if (result->exit_code == EXIT_DONE && !left)
        tell_end(t);
    if (result->text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result->text);
    return result->signal != 0 ? 128 + result->signal : result->exit_code;
}

tutti_status tutti_cli_join_there_run(const tutti_cli_member *m, const tutti_cli_join_there *how,
                                      int *code, tutti_error *err)
{
    const teller t = find_teller();
    char self[4096], directory[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    tutti_launch_host *host;
    tutti_launch_result result;
    const char **words;
    bool left = false;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(one_host(how->host, &host, err));
    self[length > 0 ? length : 0] = '\0';
    words = make_words(how, self);
    if (length <= 0 || getcwd(directory, sizeof directory) == NULL)
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "finding this command and its directory");
    else if (words == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting a worker");
    if (status == TUTTI_OK) {
        const tutti_launch_hosts_options options = { .hosts = host,
                                                     .n_hosts = 1,
                                                     .rsh = how->rsh,
                                                     .agent = self,
                                                     .argv = words,
                                                     .directory = directory,
                                                     .stop_ns = LEAVE_S * INT64_C(1000000000),
                                                     .output = show,
                                                     .user = &left };
        tutti_cli_forget_outer_run();
        hand_over(&m->pass);
        status = tutti_launch_hosts(&options, &result, err);
        unsetenv(TUTTI_LAUNCH_PASS_TEXT);
    }
    if (status == TUTTI_OK)
        *code = code_of(&result, left, &t);
    tutti_free(words);
    tutti_free(host);
    return status;
}
