/* bench_allreduce.c: `tutti bench allreduce`: the time of a sum over workers, by size, compared
   with other libraries (peers).

   Every program measures in the same way. The buffer is filled, all ranks pass a barrier, and each
   rank times the call; the time of a call is the maximum over ranks. A figure is the median over
   the calls of a round (as many as fit into --seconds, 7 to 5000), then the median over rounds,
   in which the programs alternate. Every result is checked. Workers and peers report in one
   format, a line for each size: BYTES MEDIAN_US P99_US CALLS ALGORITHM.

   The same command line runs in the launcher and, with the rank in the environment, in each worker,
   as in `tutti train`. Worker 0 writes its lines to the file descriptor that the launcher names in
   TUTTI_BENCH_FD; without it, as under mpirun, srun or torchrun, to standard output. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_internal.h"
#include "collective/table.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include "base/options.h"
#include "collective/world.h"

typedef struct config {
    tutti_bench_common common;
    int64_t n;
    const char *sizes, *algorithm, *transport, *tune;
    int buffers;
    double seconds;
} config;
enum { REGISTERED, FOREIGN, BOTH };
const tutti_option tutti_bench_allreduce_options[] = {
    { "n", TUTTI_INT, TUTTI_AT(config, n), 2, 1, 1024, NULL, "workers" },
    { "sizes", TUTTI_TEXT, TUTTI_AT(config, sizes), 0, 0, 0, "4,1KiB,64KiB,1MiB,16MiB",
      "bytes of float32, in a list" },
    { "registered", TUTTI_CHOICE, TUTTI_AT(config, buffers), BOTH, 0, 0, "on|off|both",
      "on: buffers in shared windows, as the engine's are; off: foreign memory" },
    { "algorithm", TUTTI_TEXT, TUTTI_AT(config, algorithm), 0, 0, 0, "auto",
      "of the sums; auto: Tutti chooses" },
    { "transport", TUTTI_SPEC, TUTTI_AT(config, transport), 0, 0, 0, "shm", "between the workers" },
    { "seconds", TUTTI_REAL, TUTTI_AT(config, seconds), 0.2, 0.0001, 60, NULL,
      "s, of calls for each size and round" },
    TUTTI_BENCH_COMMON(config),
    { "with-peers", TUTTI_BOOL, TUTTI_AT(config, common.with_peers), 0, 0, 1, NULL,
      "build and run the peers too; one that is absent is an error" },
    { "peers", TUTTI_TEXT, TUTTI_AT(config, common.peers), 0, 0, 0, "",
      "a list of openmpi, openmpi-shipped, mpich, mpich-shipped, gloo, limit "
      "(bench/peers/allreduce has more); none: all, limit only for 2 workers" },
    { "tune", TUTTI_TEXT, TUTTI_AT(config, tune), 0, 0, 0, "",
      "measure every algorithm instead and write the fastest of each size to this file" },
    { 0 }
};

/* The algorithms that a table may name (comm.h): those that keep the fixed order of sums. */
static const char *const algorithms[] = { "exchange", "doubling", "tree", "direct", "halving" };

enum { MOST_SIZES = 32, MOST_PROGRAMS = 16, CALLS_LEAST = 7, CALLS_MOST = 5000 };
typedef struct program {
    char name[48];
    double *median_us, *p99_us;    /* [sizes x rounds] */
    uint64_t calls[MOST_SIZES];    /* [size]: of the last round */
    bool ours;                     /* it is Tutti, not a peer */
    bool measured[MOST_SIZES];     /* [size] */
} program;
typedef struct bench {
    tutti_bench b;
    config config;
    size_t size[MOST_SIZES], n_sizes, n_programs;
    program program[MOST_PROGRAMS];
    FILE *report;               /* for worker 0's lines */
} bench;

/* ---- the worker ---- */

typedef struct timing { double *us; size_t calls; } timing;

static tutti_status check_sum(const float *x, size_t n, int p, tutti_error *err)
{
    const float sum = (float)p * (float)(p + 1) / 2; /* of 1, 2, ..., p, which is exact */

    for (size_t i = 0; i < n; i++)
        if (x[i] != sum)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "the all-reduce of %zu bytes is wrong: element %zu is %g, not %g",
                              n * sizeof *x, i, (double)x[i], (double)sum);
    return TUTTI_OK;
}

static tutti_status one_call(tutti_group *g, float *x, size_t n, double *us, tutti_error *err)
{
    tutti_runtime *rt = tutti_world_runtime(g->world);
    tutti_group plain = *g;
    int64_t begin;

    tutti_fill(tutti_world_device(g->world), n, (float)(g->index + 1), x);
    plain.algorithm = NULL;
    TUTTI_TRY(tutti_barrier(&plain, err));
    g->sequence = plain.sequence;
    begin = tutti_now_ns(rt);
    TUTTI_TRY(tutti_allreduce(g, TUTTI_SUM, tutti_f32(tutti_world_device(g->world), x, n), err));
    *us = (double)(tutti_now_ns(rt) - begin) * 1e-3;
    return TUTTI_OK;
}

static tutti_status measure(const bench *k, tutti_group *g, float *x, size_t n, timing *t,
                            tutti_error *err)
{
    tutti_group plain;
    double first[3], calls;

    for (size_t i = 0; i < TUTTI_LENGTH(first); i++)
        TUTTI_TRY(one_call(g, x, n, &first[i], err));
    TUTTI_TRY(check_sum(x, n, g->size, err));
    calls = k->config.seconds * 1e6 / (tutti_bench_median(first, TUTTI_LENGTH(first)) + 1);
    plain = *g;
    plain.algorithm = NULL;
    TUTTI_TRY(tutti_reduce_double(&plain, TUTTI_MIN, &calls, 1, err)); /* one number for all */
    g->sequence = plain.sequence;
    t->calls = calls < CALLS_LEAST ? CALLS_LEAST : calls > CALLS_MOST ? CALLS_MOST : (size_t)calls;
    for (size_t i = 0; i < t->calls; i++) {
        TUTTI_TRY(one_call(g, x, n, &t->us[i], err));
        TUTTI_TRY(check_sum(x + n - 1, 1, g->size, err));
    }
    plain.sequence = g->sequence;
    TUTTI_TRY(tutti_reduce_double(&plain, TUTTI_MAX, t->us, t->calls, err));
    g->sequence = plain.sequence;
    return TUTTI_OK;
}

static tutti_status measure_all(const bench *k, tutti_group *g, bool registered, float *x,
                                timing *t, tutti_error *err)
{
    const bool tune = k->config.tune[0] != 0;
    const char *asked = strcmp(k->config.algorithm, "auto") == 0 ? NULL : k->config.algorithm;

    for (size_t s = 0; s < k->n_sizes; s++)
        for (size_t a = 0; a < (tune ? TUTTI_LENGTH(algorithms) : 1); a++) {
            const size_t n = k->size[s] / sizeof *x;
            const char *name = tune ? algorithms[a] : asked;
            g->algorithm = asked;
            if (tune) { /* by a table, as it is going to be chosen: a name in the group would mean messages only */
                char line[64];
                const int length = snprintf(line, sizeof line, "all-reduce * * %s\n", name);
                if (tutti_algorithm_check(name, g->size, NULL) != TUTTI_OK)
                    continue;
                TUTTI_TRY(tutti_collective_table_text(g->world, "the table of one line", line,
                                                      (size_t)length, err));
            }
            TUTTI_TRY(measure(k, g, x, n, t, err));
            if (g->index == 0) {
                fprintf(k->report, "%s %zu %.4f %.4f %zu %s\n",
                        registered ? "registered" : "foreign", k->size[s],
                        tutti_bench_median(t->us, t->calls),
                        tutti_bench_quantile(t->us, t->calls, 0.99), t->calls,
                        name != NULL ? name : "auto");
                fflush(k->report);
            }
        }
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const bench *k = arg;
    tutti_group g = tutti_group_workers(world, 1);
    timing t = { .us = tutti_alloc(CALLS_MOST, sizeof *t.us) };
    size_t most = 0;
    void *memory = NULL;
    tutti_status status = t.us != NULL ? TUTTI_OK
                                       : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                                    "memory for the times of %d calls", CALLS_MOST);

    for (size_t s = 0; s < k->n_sizes; s++)
        most = k->size[s] > most ? k->size[s] : most;
    if (status == TUTTI_OK && k->config.buffers != FOREIGN) {
        status = tutti_world_window(world, "bench", most, &memory, err);
        if (status == TUTTI_OK)
            status = measure_all(k, &g, true, memory, &t, err);
    }
    if (status == TUTTI_OK && k->config.buffers != REGISTERED) {
        memory = tutti_alloc(most, 1);
        status = memory != NULL
                     ? measure_all(k, &g, false, memory, &t, err)
                     : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a buffer of %zu bytes", most);
        tutti_free(memory);
    }
    tutti_free(t.us);
    return status;
}

static int work(bench *k, tutti_error *err)
{
    const char *where = getenv("TUTTI_BENCH_FD");
    const int fd = where != NULL ? dup((int)strtol(where, NULL, 10)) : dup(STDOUT_FILENO);
    tutti_world *world;
    tutti_status status;

    if (where != NULL)
        /* the launcher receives the terminal's signal and sends us SIGTERM */
        signal(SIGINT, SIG_IGN);
    k->report = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (k->report == NULL) {
        tutti_fail(err, TUTTI_ERR_IO, errno,
                   "opening the launcher's file descriptor '%s' (TUTTI_BENCH_FD)",
                   where != NULL ? where : "1");
        return tutti_cli_fail(err);
    }
    status = tutti_world_open(&world, k->config.transport, err);
    if (status != TUTTI_OK) {
        fclose(k->report);
        return where == NULL || status == TUTTI_ERR_USAGE || status == TUTTI_ERR_IO
                   ? tutti_cli_fail(err)
                   : tutti_cli_code(status);
    }
    status = rank_main(world, k, err);
    if (status != TUTTI_OK)
        tutti_world_failure_report(world, err);
    tutti_world_close(world);
    fclose(k->report);
    return status != TUTTI_OK && where == NULL ? tutti_cli_fail(err) : tutti_cli_code(status);
}

/* ---- the launcher ---- */

static int find_size(const bench *k, size_t bytes)
{
    for (size_t s = 0; s < k->n_sizes; s++)
        if (k->size[s] == bytes)
            return (int)s;
    return -1;
}

static program *find_program(bench *k, const char *name)
{
    for (size_t i = 0; i < k->n_programs; i++)
        if (strcmp(k->program[i].name, name) == 0)
            return &k->program[i];
    return NULL;
}

static tutti_status add_program(bench *k, const char *name, size_t length, bool ours,
                                tutti_error *err)
{
    const size_t samples = k->n_sizes * (size_t)k->config.common.repeat;
    program *p = &k->program[k->n_programs];

    if (length == 0 || length >= sizeof p->name || k->n_programs == MOST_PROGRAMS)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%.*s' cannot be one of the programs: names of 1 to %zu letters, at most %d programs",
            (int)length, name, sizeof p->name - 1, MOST_PROGRAMS);
    snprintf(p->name, sizeof p->name, "%.*s", (int)length, name);
    p->ours = ours;
    p->median_us = tutti_alloc(samples, sizeof(double));
    p->p99_us = tutti_alloc(samples, sizeof(double));
    k->n_programs++;
    return p->median_us != NULL && p->p99_us != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples");
}

/* Parses lines "NAME BYTES MEDIAN_US P99_US CALLS ..." into round r. peer: the name, which lines of
   peers do not have; NULL: lines have one. */
static tutti_status parse_round(bench *k, char *text, const char *peer, int64_t r, tutti_error *err)
{
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[48] = "", algorithm[160] = "";
        unsigned long long bytes, calls;
        double median, p99;
        program *p;
        int s;
        snprintf(name, sizeof name, "%s", peer != NULL ? peer : "");
        if (sscanf(line, peer != NULL ? "%llu %lf %lf %llu" : "%*s %llu %lf %lf %llu %159s", &bytes,
                   &median, &p99, &calls, algorithm) < 4 ||
            (peer == NULL && sscanf(line, "%47s", name) != 1))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%.80s' from %s is no line of figures",
                              line, peer != NULL ? peer : "worker 0");
        if (k->config.tune[0] != 0) { /* each algorithm is a program */
            char both[224];
            snprintf(both, sizeof both, "%.20s %.26s", name, algorithm);
            snprintf(name, sizeof name, "%.47s", both);
            if (find_program(k, name) == NULL)
                TUTTI_TRY(add_program(k, name, strlen(name), true, err));
        }
        p = find_program(k, name);
        s = find_size(k, (size_t)bytes);
        if (p == NULL || s < 0)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%.80s' from %s was not asked for", line,
                              peer != NULL ? peer : "worker 0");
        p->median_us[(size_t)s * (size_t)k->config.common.repeat + (size_t)r] = median;
        p->p99_us[(size_t)s * (size_t)k->config.common.repeat + (size_t)r] = p99;
        p->calls[s] = calls;
        p->measured[s] = true;
    }
    return TUTTI_OK;
}

/* *code: an exit code as of `tutti train`; not 0: the reason has been printed. */
static tutti_status run_ours(bench *k, int argc, char **argv, int64_t r, int *code,
                             tutti_error *err)
{
    char self[4096], *text = NULL, number[16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const int fd = memfd_create("tutti-bench", 0); /* inherited by the workers */
    tutti_launch_result result = { .exit_code = EXIT_TRAINING };
    const char **words = tutti_alloc((size_t)argc + 3, sizeof *words);
    tutti_status status = TUTTI_OK;
    off_t bytes;

    if (length < 0 || fd < 0 || words == NULL)
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "preparing the workers");
    else {
        self[length] = 0;
        snprintf(number, sizeof number, "%d", fd);
        setenv("TUTTI_BENCH_FD", number, 1);
        words[0] = self;
        words[1] = "bench";
        for (int i = 0; i < argc; i++)
            words[2 + i] = argv[i];
        status = tutti_launch_run(
            &(tutti_launch_options){ .workers = (int)k->config.n,
                                     .threads = 1,
                                     .argv = words,
                                     .pin = true,
                                     .meet = strncmp(k->config.transport, "tcp", 3) == 0 },
            &result, err);
        unsetenv("TUTTI_BENCH_FD");
    }
    *code = result.exit_code;
    if (status == TUTTI_OK && result.text[0] != 0)
        fprintf(stderr, "tutti: %s\n", result.text);
    if (status == TUTTI_OK && *code == EXIT_DONE) {
        bytes = lseek(fd, 0, SEEK_END);
        text = bytes >= 0 ? tutti_alloc((size_t)bytes + 1, 1) : NULL;
        if (text == NULL || pread(fd, text, (size_t)bytes, 0) != bytes)
            status = tutti_fail(err, TUTTI_ERR_IO, errno, "reading what worker 0 reported");
        else
            status = parse_round(k, text, NULL, r, err);
    }
    tutti_free(text);
    tutti_free(words);
    if (fd >= 0)
        close(fd);
    return status;
}

static tutti_status simulate(bench *k, int64_t r, tutti_error *err)
{
    char *text = NULL;
    size_t bytes;
    tutti_status status;

    k->report = open_memstream(&text, &bytes);
    if (k->report == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, errno, "memory for the report");
    status = tutti_world_run(k->config.transport, (int)k->config.n, rank_main, k, err);
    fclose(k->report);
    if (status == TUTTI_OK)
        status = parse_round(k, text, NULL, r, err);
    free(text);
    return status;
}

/* TUTTI_OK and *absent: the peer reported that it is not installed. */
static tutti_status run_peer(bench *k, const char *folder, const char *name, int64_t r,
                             bool *absent, tutti_error *err)
{
    char script[4200], n[16], seconds[32], sizes[MOST_SIZES * 16] = "", *text;
    int code;
    tutti_status status;

    for (size_t s = 0, used = 0; s < k->n_sizes; s++)
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%zu", s > 0 ? "," : "",
                                 k->size[s]);
    snprintf(script, sizeof script, "%s/allreduce", folder);
    snprintf(n, sizeof n, "%lld", (long long)k->config.n);
    snprintf(seconds, sizeof seconds, "%g", k->config.seconds);
    status = tutti_bench_capture((const char *const[]){ script, name, n, sizes, seconds, NULL },
                                 &text, &code, err);
    *absent = code == TUTTI_BENCH_ABSENT;
    if (status == TUTTI_OK && code != 0 && !*absent)
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "peer '%s' failed with exit code %d; run `%s %s %s %s %s` to see why",
                            name, code, script, name, n, sizes, seconds);
    if (status == TUTTI_OK && !*absent)
        status = parse_round(k, text, strcmp(name, "limit") == 0 ? NULL : name, r, err);
    tutti_free(text);
    return status;
}

/* ---- the results ---- */

static double of(const bench *k, program *p, size_t s, double **p99)
{
    const size_t rounds = (size_t)k->config.common.repeat;

    *p99 = p->p99_us + s * rounds;
    return tutti_bench_median(p->median_us + s * rounds, rounds);
}

static void print_one(const bench *k, program *p, size_t s, const program *ours, double ours_us)
{
    const size_t rounds = (size_t)k->config.common.repeat;
    const double bus = 2.0 * (double)(k->config.n - 1) / (double)k->config.n,
                 bytes = (double)k->size[s];
    char size[32], name[128];
    /* the clock's step: a single worker may take less */
    double *p99, us = fmax(of(k, p, s, &p99), 1e-3);
    const double worst = tutti_bench_quantile(p99, rounds, 1),
                 ratio = !p->ours && ours != NULL && ours_us > 0 ? us / ours_us : NAN;

    tutti_bench_print_bytes(size, k->size[s]);
    snprintf(name, sizeof name, "allreduce/%lld/%s/%s", (long long)k->config.n, size, p->name);
    if (k->config.common.json)
        tutti_bench_row(
            &k->b, &(tutti_bench_figure){ name, us, "us", ratio, isnan(ratio) ? NULL : ours->name },
            json_pack("{s:I, s:I, s:s, s:o, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:s}", "bytes",
                      (json_int_t)k->size[s], "workers", (json_int_t)k->config.n, "program",
                      p->name, "p99_us", tutti_bench_number(worst), "min_us",
                      p->median_us[s * rounds], "max_us", p->median_us[s * rounds + rounds - 1],
                      "gbps", bytes / us * 1e-3, "bus_gbps", bus * bytes / us * 1e-3, "calls",
                      (json_int_t)p->calls[s], "rounds", (json_int_t)rounds, "algorithm",
                      p->ours ? k->config.algorithm : "", "transport",
                      p->ours ? k->config.transport : ""));
    else {
        char tail[32] = "-";
        if (!isnan(worst)) /* the hand-written loops report none */
            snprintf(tail, sizeof tail, "%.2f", worst);
        printf("  %-8s %-30s %12.2f %12s %9.3f %9.3f", size, p->name, us, tail, bytes / us * 1e-3,
               bus * bytes / us * 1e-3);
        if (!isnan(ratio))
            printf(" %9.2f", ratio);
        putchar('\n');
    }
}

static void print_all(bench *k)
{
    double *p99;

    if (!k->config.common.json)
        printf("all-reduce, float32 sum, %lld workers, %s, algorithm %s, %lld rounds; p99 of the "
               "worst round; ratio: "
               "time over that of Tutti on the same kind of buffer\n\n"
               "  %-8s %-30s %12s %12s %9s %9s %9s\n",
               (long long)k->config.n, k->config.transport, k->config.algorithm,
               (long long)k->config.common.repeat, "bytes", "program", "median us", "p99 us",
               "GB/s", "bus GB/s", "ratio");
    for (size_t s = 0; s < k->n_sizes; s++)
        for (size_t i = 0; i < k->n_programs; i++) {
            program *p = &k->program[i], *like = NULL;
            if (!p->measured[s])
                continue;
            /* The limit with buffers that both processes map is compared with registered ones,
               all others with what any program can use: foreign memory. */
            if (!p->ours)
                like = find_program(k, strcmp(p->name, "limit-registered") == 0 ||
                                               k->config.buffers == REGISTERED
                                           ? "registered"
                                           : "foreign");
            print_one(k, p, s, like, like != NULL ? of(k, like, s, &p99) : 0);
            if (!k->config.common.json && i + 1 == k->n_programs)
                putchar('\n');
        }
}

/* Writes a table for tutti_collective_table_load (comm.h). A line applies to calls up to its number
   of bytes: the geometric mean of the last size at which its algorithm was fastest and the next
   size. */
static tutti_status write_table(bench *k, tutti_error *err)
{
    FILE *f = fopen(k->config.tune, "w");
    const char *best[MOST_SIZES];
    double *p99;
    bool failed;

    if (f == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "writing the table of algorithms '%.300s'",
                          k->config.tune);
    fprintf(f,
            "# KIND MEMBERS BYTES ALGORITHM: the fastest on this machine, up to that many members "
            "and bytes. Written by\n# %s\n",
            k->b.command);
    for (size_t s = 0; s < k->n_sizes; s++) {
        double least = INFINITY;
        best[s] = "";
        for (size_t i = 0; i < k->n_programs; i++) {
            const double us = k->program[i].measured[s] ? of(k, &k->program[i], s, &p99) : INFINITY;
            if (us < least) {
                least = us;
                best[s] = strchr(k->program[i].name, ' ') + 1;
            }
        }
    }
    for (size_t s = 0; s < k->n_sizes; s++)
        if (s + 1 == k->n_sizes)
            fprintf(f, "all-reduce %lld * %s\n", (long long)k->config.n, best[s]);
        else if (strcmp(best[s], best[s + 1]) != 0)
            fprintf(f, "all-reduce %lld %.0f %s\n", (long long)k->config.n,
                    sqrt((double)k->size[s] * (double)k->size[s + 1]), best[s]);
    failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "writing the table of algorithms '%.300s'",
                          k->config.tune);
    return TUTTI_OK;
}

/* ---- */

static tutti_status check_config(bench *k, tutti_error *err)
{
    const char *algorithm = strcmp(k->config.algorithm, "auto") == 0 ? NULL : k->config.algorithm;
    const char *at = k->config.sizes;

    while (*at != 0) {
        const size_t length = strcspn(at, ",");
        size_t bytes;
        if (k->n_sizes == MOST_SIZES)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "more than %d sizes; measure them in several runs", MOST_SIZES);
        TUTTI_TRY(tutti_bytes_parse(at, length, &bytes, err));
        if (bytes % sizeof(float) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "size %zu is no number of floats; it must be a multiple of 4 bytes",
                              bytes);
        if (k->n_sizes > 0 && bytes <= k->size[k->n_sizes - 1])
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "size '%.*s' stands behind a larger or equal one; write sizes in rising order",
                (int)length, at);
        k->size[k->n_sizes++] = bytes;
        at += length + (at[length] == ',');
    }
    if (k->n_sizes == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "no sizes; write them as --sizes 4,64KiB,16MiB");
    if (k->config.tune[0] != 0 &&
        (algorithm != NULL || k->config.common.with_peers || k->config.buffers == BOTH))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "--tune measures every algorithm on one kind of buffer: give "
                          "--registered on or off, no --algorithm and no --with-peers");
    if (algorithm != NULL)
        TUTTI_TRY(tutti_algorithm_check(algorithm, (int)k->config.n, err));
    if (k->config.common.with_peers && tutti_world_simulated(k->config.transport))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "peers are measured in real time, transport '%.60s' in virtual time; omit --with-peers",
            k->config.transport);
    return tutti_world_check(k->config.transport, err);
}

static tutti_status open_programs(bench *k, tutti_error *err)
{
    if (k->config.common.peers[0] == 0)
        k->config.common.peers = k->config.n == 2
                                     ? "openmpi,openmpi-shipped,mpich,mpich-shipped,gloo,limit"
                                     : "openmpi,openmpi-shipped,mpich,mpich-shipped,gloo";
    if (k->config.tune[0] == 0 && k->config.buffers != FOREIGN)
        TUTTI_TRY(add_program(k, "registered", 10, true, err));
    if (k->config.tune[0] == 0 && k->config.buffers != REGISTERED)
        TUTTI_TRY(add_program(k, "foreign", 7, true, err));
    for (const char *at = k->config.common.peers; k->config.common.with_peers && *at != 0;) {
        const size_t length = strcspn(at, ",");
        if (length == 5 && strncmp(at, "limit", 5) == 0) { /* one program with two results */
            TUTTI_TRY(add_program(k, "limit-registered", 16, false, err));
            TUTTI_TRY(add_program(k, "limit-foreign", 13, false, err));
        } else
            TUTTI_TRY(add_program(k, at, length, false, err));
        at += length + (at[length] == ',');
    }
    return TUTTI_OK;
}

/* The command line, which each of the workers is started with. */
typedef struct asked {
    int argc;
    char **argv;
} asked;
/* The folder of the peers' programs, and which of them are absent. */
typedef struct peers {
    char folder[4096];
    bool absent[MOST_PROGRAMS + 1];
} peers;

static tutti_status run_round(bench *k, const asked *of, peers *p, int64_t r, int *code,
                              tutti_error *err)
{
    const char *at = k->config.common.peers;

    tutti_bench_progress("allreduce: round %lld of %lld, tutti", (long long)r + 1,
                         (long long)k->config.common.repeat);
    if (tutti_world_simulated(k->config.transport))
        TUTTI_TRY(simulate(k, r, err));
    else
        TUTTI_TRY(run_ours(k, of->argc, of->argv, r, code, err));
    for (size_t i = 0; k->config.common.with_peers && *code == EXIT_DONE && *at != 0; i++) {
        const size_t length = strcspn(at, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        tutti_bench_progress("allreduce: round %lld of %lld, %s", (long long)r + 1,
                             (long long)k->config.common.repeat, name);
        if (!p->absent[i])
            TUTTI_TRY(run_peer(k, p->folder, name, r, &p->absent[i], err));
        at += length + (at[length] == ',');
    }
    return TUTTI_OK;
}

static tutti_status run_allreduce(bench *k, int argc, char **argv, int *code, tutti_error *err)
{
    peers p = { .folder = "" };

    TUTTI_TRY(open_programs(k, err));
    if (k->config.common.with_peers)
        TUTTI_TRY(tutti_bench_peers(&k->b, p.folder, sizeof p.folder, err));
    for (int64_t r = 0; r < k->config.common.repeat && *code == EXIT_DONE; r++)
        TUTTI_TRY(run_round(k, &(asked){ argc, argv }, &p, r, code, err));
    tutti_bench_progress("%s", "");
    if (*code != EXIT_DONE)
        return TUTTI_OK;
    print_all(k);
    if (k->config.tune[0] != 0)
        TUTTI_TRY(write_table(k, err));
    for (size_t i = 0; i < TUTTI_LENGTH(p.absent); i++)
        if (p.absent[i])
            *code = EXIT_TRAINING;
    return TUTTI_OK;
}

int tutti_bench_allreduce(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    int code = EXIT_DONE;
    bench k = { 0 };
    tutti_status status =
        tutti_bench_open(&k.b,
                         &(tutti_bench_kind){ "allreduce", tutti_bench_allreduce_options, &k.config,
                                              &k.config.common },
                         argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf("tutti bench allreduce [--OPTION VALUE ...]\n\nTimes sums over n workers for each "
               "size; time of a call: "
               "maximum over workers after a barrier. Exit code 1: a peer that was asked for is "
               "absent.\n\n"
               "  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, tutti_bench_allreduce_options, true);
        printf("\nExamples:\n  tutti bench allreduce -n 2 --sizes 4,64KiB,16MiB --with-peers\n"
               "  tutti bench allreduce -n 4 --registered on --tune allreduce.table\n");
    } else if (status == TUTTI_OK) {
        tutti_launch_place place;
        status = tutti_launch_find_place(environ, &place, &err);
        /* a worker: of ours, or of another launcher, for which worker 0 prints lines of figures */
        if (status == TUTTI_OK && place.size > 1)
            k.config.n = place.size;
        if (status == TUTTI_OK)
            status = check_config(&k, &err);
        if (status == TUTTI_OK && (place.size > 1 || place.by == TUTTI_BY_TUTTI))
            code = work(&k, &err);
        else if (status == TUTTI_OK)
            status = run_allreduce(&k, argc, argv, &code, &err);
    }
    for (size_t i = 0; i < k.n_programs; i++) {
        tutti_free(k.program[i].median_us);
        tutti_free(k.program[i].p99_us);
    }
    tutti_bench_close(&k.b);
    return status == TUTTI_OK ? code : tutti_cli_fail(&err);
}
