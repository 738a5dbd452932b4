/* join_script.c: `tutti join WHERE -- COMMAND`: one more worker of a run of a script, which `tutti
   run --workers` has begun. A member tells how many workers there are to be and how many threads
   each has; the rest is the program's (src/elastic/elastic.c), which gets the pass as a lost worker
   does that is started again. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "join.h"
#include "run.h"

/* A file with the pass, as the worker finds it in whatever directory it is. */
typedef struct pass_file {
    char path[PATH_MAX];
    int fd;                      /* one in memory, to be closed; -1: the run's own, or a copy */
} pass_file;

static tutti_status find_pass(const tutti_cli_member *m, const char *where, pass_file *pass,
                              tutti_error *err)
{
    char given[4200], *real;
    struct stat about;

    pass->fd = -1;
    if (stat(where, &about) == 0) {
        snprintf(given, sizeof given, "%.4096s", where);
        if (S_ISDIR(about.st_mode))
            tutti_cli_pass_of(where, given, sizeof given);
        real = realpath(given, pass->path);
        return real != NULL ? TUTTI_OK
                            : tutti_fail(err, TUTTI_ERR_IO, errno, "finding '%.300s'", given);
    }
    pass->fd = memfd_create("tutti-join", 0);
    snprintf(pass->path, PATH_MAX, "/proc/self/fd/%d", pass->fd);
    if (pass->fd < 0 || fchmod(pass->fd, 0600) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "keeping how the run is reached");
    return tutti_launch_pass_print(&m->pass, pass->fd, err);
}

/* Parses a member's answer: TUTTI_LAUNCH_SCRIPT, the workers, and the threads of one. */
static tutti_status take_told(const char *told, int *threads, tutti_error *err)
{
    char workers[81];
    int theirs;

    if (sscanf(told, TUTTI_LAUNCH_SCRIPT " %80s %d", workers, &theirs) != 2 || theirs < 1)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a member of the run has told '%.80s', which this version of tutti does "
                          "not know",
                          told);
    if (*threads == 0)
        *threads = theirs;
    setenv(TUTTI_LAUNCH_WORKERS, workers, 1);
    unsetenv("OMP_NUM_THREADS"); /* bits may depend on it, so this machine's own does not count */
    return TUTTI_OK;
}

static tutti_status start(const tutti_cli_member *m, const tutti_cli_join_script *how,
                          const char *const *words, const pass_file *pass, int *code,
                          tutti_error *err)
{
    tutti_launch_elastic_options options = { .workers = 1,
                                             .threads = how->threads,
                                             .argv = words,
                                             .script = true,
                                             .joins = true,
                                             .pass = pass->path,
                                             .keeps = pass->fd < 0,
                                             .id = m->pass.id,
                                             .key = m->pass.key,
                                             .say = tutti_cli_show_loss };
    tutti_launch_result result;
    tutti_status status = take_told(how->told, &options.threads, err);

    if (status == TUTTI_OK)
        status = tutti_launch_elastic(&options, &result, err);
    tutti_run_key_wipe(&options.key);
    TUTTI_TRY(status);
    if (result.text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result.text);
    *code = result.exit_code;
    return TUTTI_OK;
}

tutti_status tutti_cli_join_script_run(const tutti_cli_member *m, const tutti_cli_join_script *how,
                                       int *code, tutti_error *err)
{
    char file[4096];
    pass_file pass = { .fd = -1 };
    const char **words;
    size_t n = 0;
    tutti_status status;

    TUTTI_TRY(tutti_cli_find_command(how->command[0], file, sizeof file, err));
    while (how->command[n] != NULL)
        n++;
    words = tutti_alloc(n + 1, sizeof *words);
    if (words == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting a worker");
    words[0] = file;
    for (size_t k = 1; k < n; k++)
        words[k] = how->command[k];
    tutti_cli_forget_outer_run();
    tutti_cli_tell_node(m->host, 0);
    status = find_pass(m, how->where, &pass, err);
    if (status == TUTTI_OK)
        status = start(m, how, words, &pass, code, err);
    if (pass.fd >= 0)
        close(pass.fd);
    tutti_free(words);
    return status;
}
