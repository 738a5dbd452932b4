/* train.c: `tutti train`. The same command line runs twice: in the launcher, which starts the workers and waits, and in each worker, which the
   launcher's environment tells its place. Simulated workers are no processes: the command runs them itself. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli_internal.h"
#include "tutti/launch.h"

typedef struct screen { bool terminal, open; } screen; /* open: a progress line stands without its end */

static void say(void *user, int status, const char *line)
{
    screen *s = user;

    if (s->terminal) {
        printf("\r\033[K%s", line);
        if (status == 0)
            putchar('\n');
        s->open = status != 0;
    } else
        puts(line);
    fflush(stdout);
}

static int work(tutti_cli_settings *s, tutti_error *err)
{
    screen display = { .terminal = isatty(STDOUT_FILENO) };
    tutti_train_io io = { .say = say, .user = &display };
    const char *started = getenv("TUTTI_STARTED_NS");
    char installed[4096];
    tutti_world *world;
    tutti_status status;

    signal(SIGINT, SIG_IGN); /* the launcher hears the terminal and tells us by SIGTERM */
    io.started_ns = started != NULL ? strtoll(started, NULL, 10) : 0;
    io.installed_data = tutti_cli_installed(installed, sizeof installed, "data");
    status = tutti_world_open(&world, s->config.transport, err);
    if (status == TUTTI_ERR_USAGE || status == TUTTI_ERR_IO) /* no way yet to tell the launcher; what else can fail has left its last words */
        return tutti_cli_fail(err);
    if (status != TUTTI_OK)
        return tutti_cli_code(status);
    status = tutti_train_worker(world, &s->config, &io, err);
    if (display.open)
        putchar('\n');
    if (fflush(stdout) != 0 && status == TUTTI_OK)
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "writing to standard output");
    if (status != TUTTI_OK)
        tutti_world_last_words(world, err);
    tutti_world_close(world);
    return tutti_cli_code(status);
}

/* Simulated workers: all of them here, in one call; their time is virtual, host_seconds is ours. */
typedef struct simulation { const tutti_train_config *config; tutti_train_io io; } simulation;

static tutti_status simulated_worker(tutti_world *world, void *arg, tutti_error *err)
{
    const simulation *sim = arg;

    return tutti_train_worker(world, sim->config, &sim->io, err);
}

static int simulate(tutti_cli_settings *s, int64_t started_ns, tutti_error *err)
{
    screen display = { .terminal = isatty(STDOUT_FILENO) };
    simulation sim = { .config = &s->config, .io = { .say = say, .user = &display, .started_ns = started_ns, .host = s->rt } };
    char installed[4096], *transport;
    tutti_status status;

    sim.io.installed_data = tutti_cli_installed(installed, sizeof installed, "data");
    status = tutti_train_transport(&s->config, &transport, err);
    if (status == TUTTI_OK)
        status = tutti_world_run(transport, (int)s->config.n, simulated_worker, &sim, err);
    tutti_free(transport);
    if (display.open)
        putchar('\n');
    if (fflush(stdout) != 0 && status == TUTTI_OK)
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "writing to standard output");
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(err);
}

static void default_out(tutti_cli_settings *s)
{
    const time_t now = time(NULL);
    struct tm local;
    char when[32], method[64];

    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    snprintf(method, sizeof method, "%.60s", s->config.method);
    method[strcspn(method, "(")] = 0;
    snprintf(s->out, sizeof s->out, "runs/%s-%s", when, method);
    for (int k = 2; k < 1000 && tutti_file_exists(s->rt, s->out); k++)
        snprintf(s->out, sizeof s->out, "runs/%s-%s-%d", when, method, k);
}

static tutti_status write_config(tutti_cli_settings *s, tutti_error *err)
{
    char *json;
    tutti_status status;

    TUTTI_TRY(tutti_train_config_json(&s->config, &json, err));
    status = tutti_train_write_file(s->rt, s->out, "config.json", json, strlen(json), err);
    tutti_free(json);
    return status;
}

static int launch(tutti_cli_settings *s, int argc, char **argv, int64_t started_ns, tutti_error *err)
{
    char self[4096], out[4200], threads[64], started[40], foreign[160];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    tutti_launch_result result;
    const char **words;

    if (tutti_launch_foreign(environ, foreign, sizeof foreign) != NULL) {
        tutti_fail(err, TUTTI_ERR_USAGE, 0, "started by another launcher (%s), which this version cannot serve; run `tutti train -n N` by itself: it starts its own "
                   "workers", foreign);
        return tutti_cli_fail(err);
    }
    if (length < 0) {
        tutti_fail(err, TUTTI_ERR_IO, errno, "finding this command's own file (/proc/self/exe)");
        return tutti_cli_fail(err);
    }
    self[length] = 0;
    words = tutti_alloc((size_t)argc + 4, sizeof *words);
    if (words == NULL)
        return EXIT_TRAINING;
    snprintf(out, sizeof out, "--out=%s", s->out);
    snprintf(threads, sizeof threads, "--threads=%lld", (long long)s->config.threads);
    snprintf(started, sizeof started, "%lld", (long long)started_ns);
    setenv("TUTTI_STARTED_NS", started, 1);
    words[0] = self;
    words[1] = argv[0];
    for (int i = 1; i < argc; i++)
        words[1 + i] = argv[i];
    /* What was decided here must not be decided again: a pinned worker sees fewer cores. The last of two equal flags wins. */
    int n = argc + 1, end = 2;
    while (end < n && strcmp(words[end], "--") != 0)
        end++;
    memmove(words + end + 2, words + end, (size_t)(n - end) * sizeof *words);
    words[end] = out;
    words[end + 1] = threads;
    if (tutti_launch_run(&(tutti_launch_options){ .workers = (int)s->config.n, .threads = (int)s->config.threads, .argv = words, .pin = true }, &result, err) != TUTTI_OK) {
        tutti_free(words);
        return tutti_cli_fail(err);
    }
    tutti_free(words);
    if (result.text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result.text);
    return result.exit_code;
}

static void help(void)
{
    printf("tutti train [FILE] [--OPTION VALUE ...]\n\nTrains a network with n workers. Values come from flags, else environment (TUTTI_BATCH for --batch), else FILE (YAML, or "
           "JSON\nif it begins with '{'; keys are the flags without dashes), else the defaults below.\n\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_train_options, true);
    printf("\nExamples:\n  tutti train --model cnn --data mnist -n 2 --method ddp --epochs 1\n"
           "  tutti train --model mlp -n 4 --optimizer 'adamw(lr=0.001)' --lr-schedule 'cosine(warmup=100)' --checkpoint-every 200 --out runs/mlp\n"
           "  tutti train --resume runs/mlp --epochs 3\n"
           "  tutti train --transport sim --platform cluster.xml -n 8 --step-time 0.01 --slow 0:5 --batch-share auto\n");
}

int tutti_cli_train(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s;
    int code = EXIT_DONE;
    tutti_status status = tutti_cli_read(&s, argc, argv, NULL, &err);
    const int64_t started_ns = s.rt != NULL ? tutti_now_ns(s.rt) : 0;

    if (status == TUTTI_OK && s.help)
        help();
    else if (status == TUTTI_OK) {
        const bool simulated = tutti_world_simulated(s.config.transport);
        if (simulated && s.config.threads == 0)
            s.config.threads = 1; /* one core runs them all, one after the other */
        status = tutti_train_check(&s.config, tutti_cores(), &err);
        if (status == TUTTI_OK && s.out[0] == 0)
            default_out(&s);
        s.config.out = s.out;
        if (status != TUTTI_OK)
            ;
        else if (getenv("TUTTI_RANK") != NULL)
            code = work(&s, &err);
        else {
            status = tutti_world_check(s.config.transport, &err);
            if (status == TUTTI_OK)
                status = tutti_train_prepare(s.rt, &s.config, &err);
            if (status == TUTTI_OK)
                status = write_config(&s, &err);
            if (status == TUTTI_OK)
                code = simulated ? simulate(&s, started_ns, &err) : launch(&s, argc, argv, started_ns, &err);
        }
    }
    if (status != TUTTI_OK)
        code = tutti_cli_fail(&err);
    tutti_cli_close(&s);
    return code;
}
