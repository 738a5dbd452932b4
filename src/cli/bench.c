/* bench.c: `tutti bench`: calls a benchmark, and implements bench_internal.h. The command measures
   and prints; bench/run has the bounds and checks whether they are met. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_internal.h"
#include "base/errors.h"
#include "base/settings.h"
#include "runtime/files.h"

const tutti_command tutti_cli_benchmarks[] = {
    { "allreduce",
      "[-n N] [--sizes 4,64KiB,...]",
      "sums over workers, by size; compared with Open MPI, MPICH, Gloo and hand-written loops",
      tutti_bench_allreduce,
      { tutti_bench_allreduce_options } },
    { "step",
      "[-n N] [--model mlp] [--method ddp]",
      "training steps: samples a second, exposed communication, memory; compared with PyTorch",
      tutti_bench_step,
      { tutti_bench_step_options } },
    { "io",
      "[--dir DIR] [--bytes 256MiB]",
      "checkpoints, against direct writes and reads of the same size",
      tutti_bench_io,
      { tutti_bench_io_options } },
    { "kernels",
      "[--bytes 32MiB]",
      "vector kernels at each SIMD level, against memcpy",
      tutti_bench_kernels,
      { tutti_bench_kernels_options } },
    { "codec",
      "[--codec SPEC] [--rows 5000]",
      "codecs: encoding, decoding and adding, against memcpy",
      tutti_bench_codec,
      { tutti_bench_codec_options } },
    { 0 }
};

static tutti_status no_such(const tutti_bench *b, const tutti_option *options, const char *name,
                            tutti_error *err)
{
    const char *names[32];
    char near[128];
    size_t n = 0;

    for (const tutti_option *o = options; o->name != NULL && n < TUTTI_LENGTH(names); o++)
        names[n++] = o->name;
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "there is no option '--%.60s' of bench %s%s; `tutti bench %s --help` lists them", name,
        b->name, near, b->name);
}

static tutti_status take_argument(tutti_bench *b, const tutti_option *options, int argc,
                                  char **argv, int *at, tutti_error *err)
{
    const char *arg = argv[*at], *value;
    const bool is_short = arg[0] == '-' && arg[1] == 'n';
    char name[64], what[128];
    const tutti_option *option;
    size_t length;

    if (!is_short && strncmp(arg, "--", 2) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "bench %s takes options only, not '%.80s'; `tutti bench %s --help` lists them", b->name,
            arg, b->name);
    arg += is_short ? 1 : 2;
    length = is_short ? 1 : strcspn(arg, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, arg);
    option =
        length < sizeof name && (is_short || length > 1) ? tutti_option_find(options, name) : NULL;
    if (option == NULL)
        return no_such(b, options, name, err);
    value = arg[length] == '=' ? arg + length + 1 : is_short && arg[1] != 0 ? arg + 1 : NULL;
    value = tutti_cli_flag_value(option, value, argc, argv, at);
    if (value == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "option '%s' needs a value: %s", argv[*at],
                          option->help);
    snprintf(what, sizeof what, "%s%s", is_short ? "-" : "--", option->name);
    return tutti_settings_flag(b->settings, option->name, value, what, err);
}

tutti_status tutti_bench_open(tutti_bench *b, const tutti_bench_kind *kind, int argc, char **argv,
                              tutti_error *err)
{
    size_t used;

    *b = (tutti_bench){ .name = kind->name, .common = kind->common };
    used = (size_t)snprintf(b->command, sizeof b->command, "tutti bench %s", kind->name);
    for (int i = 1; i < argc && used < sizeof b->command; i++)
        used += (size_t)snprintf(b->command + used, sizeof b->command - used,
                                 strpbrk(argv[i], " ()'*;&|") != NULL ? " '%s'" : " %s", argv[i]);
    TUTTI_TRY(tutti_runtime_open_posix(&b->rt, err));
    TUTTI_TRY(tutti_settings_open(&b->settings, kind->options, kind->config, err));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            b->help = true;
            return TUTTI_OK;
        }
        TUTTI_TRY(take_argument(b, kind->options, argc, argv, &i, err));
    }
    return TUTTI_OK;
}

void tutti_bench_close(tutti_bench *b)
{
    tutti_settings_close(b->settings);
    tutti_runtime_close(b->rt);
}

json_t *tutti_bench_number(double x)
{
    char text[32];

    if (!isfinite(x))
        return json_null();
    snprintf(text, sizeof text, "%.6g", x);
    return json_real(strtod(text, NULL));
}

void tutti_bench_row(const tutti_bench *b, const tutti_bench_figure *f, json_t *more)
{
    json_t *row = json_pack("{s:s, s:o, s:s, s:o, s:s?, s:s, s:s}", "name", f->name, "value",
                            tutti_bench_number(f->value), "unit", f->unit, "ratio",
                            tutti_bench_number(f->ratio), "against", f->against, "command",
                            b->command, "tutti", tutti_version());
    char *text;

    if (more != NULL)
        json_object_update(row, more);
    json_decref(more);
    text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(6));
    puts(text != NULL ? text : "null");
    free(text);
    json_decref(row);
    fflush(stdout);
}

void tutti_bench_progress(const char *format, ...)
{
    va_list args;

    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tutti_bench_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

double tutti_bench_quantile(double *x, size_t n, double q)
{
    size_t k = (size_t)ceil(q * (double)n);

    qsort(x, n, sizeof *x, compare);
    return x[k > 0 ? k - 1 : 0];
}

void tutti_bench_print_bytes(char out[32], size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
    size_t u = 0;

    while (u < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 32, "%zu%s", bytes, units[u]);
}

/* In the child: unblocks all signals, and has it killed when this command ends, however that
   ends. */
static void become(const char *const *argv, int out, pid_t parent)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(out, STDOUT_FILENO) >= 0)
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "tutti: cannot run '%s' (%s)\n", argv[0], tutti_errno_text(errno));
    _exit(127);
}

tutti_status tutti_bench_capture(const char *const *argv, char **text, int *code, tutti_error *err)
{
    enum { MOST = 1 << 20 };
    const pid_t parent = getpid();
    size_t used = 0;
    ssize_t got;
    int ends[2], state;
    pid_t pid;

    *code = -1;
    *text = tutti_alloc(MOST, 1);
    if (*text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the output of '%s'", argv[0]);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "opening a pipe for '%s'", argv[0]);
    pid = fork();
    if (pid == 0)
        become(argv, ends[1], parent);
    const int cause = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tutti_fail(err, TUTTI_ERR_IO, cause, "starting '%.300s'", argv[0]);
    }
    /* Output beyond the limit is read and discarded, so that the program never waits for us. */
    for (char rest[4096];;) {
        const bool room = used < MOST - 1;
        got =
            room ? read(ends[0], *text + used, MOST - 1 - used) : read(ends[0], rest, sizeof rest);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        used += room && got > 0 ? (size_t)got : 0;
    }
    close(ends[0]);
    while (waitpid(pid, &state, 0) < 0)
        if (errno != EINTR)
            return tutti_fail(err, TUTTI_ERR_IO, errno, "waiting for '%.300s'", argv[0]);
    *code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return TUTTI_OK;
}

tutti_status tutti_bench_peers(const tutti_bench *b, char *path, size_t bytes, tutti_error *err)
{
    /* The working directory comes first; then a build folder of the source tree, recognised by
       its CMake cache; then an installation. */
    static const struct {
        const char *folder, *needs;
    } beside[] = { { "../../../bench/peers", "../CMakeCache.txt" },
                   { "../share/tutti/bench/peers", "" } };
    char self[2048], script[4200];
    ssize_t length;

    snprintf(path, bytes, "bench/peers");
    if (tutti_file_exists(b->rt, "bench/peers/allreduce"))
        return TUTTI_OK;
    length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    *(strrchr(self, '/') != NULL ? strrchr(self, '/') : self) = 0;
    for (size_t i = 0; i < TUTTI_LENGTH(beside); i++) {
        snprintf(script, sizeof script, "%s/%s", self, beside[i].needs);
        if (!tutti_file_exists(b->rt, script))
            continue;
        snprintf(path, bytes, "%s/%s", self, beside[i].folder);
        snprintf(script, sizeof script, "%s/allreduce", path);
        if (tutti_file_exists(b->rt, script))
            return TUTTI_OK;
    }
    path[0] = 0;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "--with-peers needs Tutti's folder bench/peers, which is not here; run it in "
                      "the source tree, or without --with-peers");
}

static void signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

tutti_status tutti_bench_folder_make(tutti_bench_folder *f, const char *parent, tutti_error *err)
{
    sigset_t set;

    f->made = false;
    if (snprintf(f->path, sizeof f->path, "%s/tutti-bench-XXXXXX", parent) >= (int)sizeof f->path)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the path of the folder to measure in is too long (%zu bytes)",
                          strlen(parent));
    signals(&set);
    sigprocmask(SIG_BLOCK, &set, &f->mask);
    if (mkdtemp(f->path) == NULL) {
        const int cause = errno;
        sigprocmask(SIG_SETMASK, &f->mask, NULL);
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "making a folder in '%.300s'; name a writable one", parent);
    }
    f->made = true;
    return TUTTI_OK;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    (void)remove(path); /* what cannot be removed stays: a report would help no one */
    return 0;
}

void tutti_bench_folder_remove(tutti_bench_folder *f)
{
    if (!f->made)
        return;
    nftw(f->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    f->made = false;
    sigprocmask(SIG_SETMASK, &f->mask, NULL); /* a signal that waited ends the command here */
}

int tutti_bench_interrupted(void)
{
    static const int each[] = { SIGINT, SIGTERM, SIGHUP };
    sigset_t waiting;

    sigpending(&waiting);
    for (size_t i = 0; i < TUTTI_LENGTH(each); i++)
        if (sigismember(&waiting, each[i]) == 1)
            return each[i];
    return 0;
}

static void print_benchmarks(FILE *out)
{
    fprintf(out, "tutti bench allreduce|step|io|kernels|codec [--OPTION VALUE ...]\n\n"
                 "Measures, with ratios to what was measured in the same run:\n\n");
    for (const tutti_command *c = tutti_cli_benchmarks; c->name != NULL; c++)
        fprintf(out, "  tutti bench %-9s %-36s %s\n", c->name, c->arguments, c->help);
    fprintf(out, "\n`tutti bench NAME --help` explains one. --json: rows for programs; `make "
                 "bench-all` keeps them in bench/results.\n");
}

int tutti_cli_bench(int argc, char **argv)
{
    const char *names[8];
    char near[128];
    size_t n = 0;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_benchmarks(stdout);
        return EXIT_DONE;
    }
    if (argc < 2)
        return tutti_cli_usage("bench", "name one: allreduce, step, io, kernels or codec");
    for (const tutti_command *c = tutti_cli_benchmarks; c->name != NULL; c++) {
        if (strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
        names[n++] = c->name;
    }
    tutti_suggest(argv[1], names, n, near, sizeof near);
    return tutti_cli_usage("bench", "there is no benchmark '%.80s'%s", argv[1], near);
}
