/* bench_step.c: `tutti bench step`: what exchanging costs a training run, by runs of `tutti train` that take turns:

     METHOD    as asked
     single    the same workers without any exchange: the ceiling of METHOD's samples a second, and what its exposed communication is measured against
     one step  a run of one step: from the command to the first step, and all that follows it
     ddp       with peers: PyTorch's DistributedDataParallel on Gloo, and without synchronisation, its own ceiling

   Nothing but the run's own summary.json is read, which tests hold to its word; wall times are those of training (start and evaluation are outside). */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bench_internal.h"

typedef struct config { tutti_bench_common common; int64_t n, steps, threads, batch; const char *model, *method, *data, *transport; } config;
static const tutti_option options[] = {
    { "n", TUTTI_INT, TUTTI_AT(config, n), 2, 1, 1024, NULL, "workers" },
    { "model", TUTTI_SPEC, TUTTI_AT(config, model), 0, 0, 0, "mlp", "as of `tutti train`" },
    { "data", TUTTI_TEXT, TUTTI_AT(config, data), 0, 0, 0, "mnist", "as of `tutti train`" },
    { "method", TUTTI_SPEC, TUTTI_AT(config, method), 0, 0, 0, "ddp", "as of `tutti train`" },
    { "transport", TUTTI_SPEC, TUTTI_AT(config, transport), 0, 0, 0, "shm", "as of `tutti train`" },
    { "steps", TUTTI_INT, TUTTI_AT(config, steps), 200, 1, 1e9, NULL, "of a run" },
    { "batch", TUTTI_INT, TUTTI_AT(config, batch), 64, 1, 1e9, NULL, "samples a worker a step" },
    { "threads", TUTTI_INT, TUTTI_AT(config, threads), 1, 1, 1024, NULL, "a worker" },
    TUTTI_BENCH_COMMON(config),
    { "with-peers", TUTTI_BOOL, TUTTI_AT(config, common.with_peers), 0, 0, 1, NULL, "run PyTorch too (TUTTI_PYTHON names a Python that has it); it is an error if it is absent" },
    { 0 }
};

enum { ASKED, SINGLE, ONE_STEP, PEER, PEER_ALONE, RUNS };
enum { RATE, WALL, EXPOSED, MEMORY, HOST, VALUES };
static const char *const sources[VALUES] = { "samples_per_second", "wall_seconds", "exposed_comm_seconds", "peak_rss_bytes_per_worker", "host_seconds" };
typedef struct bench {
    tutti_bench b;
    config config;
    tutti_bench_folder folder;
    bool absent;                    /* PyTorch */
    char torch[64];
    double *value[RUNS][VALUES];    /* of each round */
    int code;                       /* of a run that failed and has said why, or 0 */
} bench;

static tutti_status read_values(bench *k, json_t *o, int run, int64_t r, const char *from, tutti_error *err)
{
    for (int v = 0; v < VALUES; v++) {
        const json_t *value = json_object_get(o, sources[v]);
        if (!json_is_number(value))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%.200s has no number '%s'", from, sources[v]);
        k->value[run][v][r] = json_number_value(value);
    }
    return TUTTI_OK;
}

static tutti_status train(bench *k, int run, int64_t r, tutti_error *err)
{
    const char *method = run == SINGLE ? "single" : k->config.method;
    char self[4096], out[4200], summary[4300], n[24], steps[24], batch[24], threads[24], *text = NULL;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    json_t *o;
    tutti_status status;

    if (length < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding this command's own file (/proc/self/exe)");
    self[length] = 0;
    snprintf(out, sizeof out, "%s/%d-%lld", k->folder.path, run, (long long)r);
    snprintf(n, sizeof n, "%lld", (long long)k->config.n);
    snprintf(steps, sizeof steps, "%lld", run == ONE_STEP ? 1LL : (long long)k->config.steps);
    snprintf(batch, sizeof batch, "%lld", (long long)k->config.batch);
    snprintf(threads, sizeof threads, "%lld", (long long)k->config.threads);
    status = tutti_bench_capture((const char *const[]){ self, "train", "-n", n, "--model", k->config.model, "--data", k->config.data, "--method", method, "--transport",
                                 k->config.transport, "--steps", steps, "--batch", batch, "--threads", threads, "--final-eval", "off", "--quiet", "--out", out, NULL },
                                 &text, &k->code, err);
    tutti_free(text);
    if (status != TUTTI_OK || k->code != 0)
        return status;
    snprintf(summary, sizeof summary, "%s/summary.json", out);
    o = json_load_file(summary, 0, NULL);
    status = o != NULL ? read_values(k, o, run, r, summary, err) : tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the run left no readable '%.300s'", summary);
    json_decref(o);
    return status;
}

static tutti_status peer(bench *k, const char *peers, int run, int64_t r, tutti_error *err)
{
    char script[4200], n[24], steps[24], batch[24], threads[24], *text = NULL;
    int code;
    tutti_status status;

    snprintf(script, sizeof script, "%s/train", peers);
    snprintf(n, sizeof n, "%lld", (long long)k->config.n);
    snprintf(steps, sizeof steps, "%lld", (long long)k->config.steps);
    snprintf(batch, sizeof batch, "%lld", (long long)k->config.batch);
    snprintf(threads, sizeof threads, "%lld", (long long)k->config.threads);
    status = tutti_bench_capture((const char *const[]){ script, k->config.model, n, steps, batch, threads, run == PEER ? "ddp" : "alone", NULL }, &text, &code, err);
    k->absent = code == TUTTI_BENCH_ABSENT;
    if (status == TUTTI_OK && !k->absent) {
        json_t *o = code == 0 ? json_loads(text, 0, NULL) : NULL;
        const char *version = json_string_value(json_object_get(o, "torch"));
        status = o != NULL ? read_values(k, o, run, r, script, err) :
                 tutti_fail(err, TUTTI_ERR_STATE, 0, "PyTorch gave no figures (exit code %d); run `%s %s %s %s %s %s ddp` to see why", code, script, k->config.model, n, steps,
                            batch, threads);
        snprintf(k->torch, sizeof k->torch, "%s", version != NULL ? version : "");
        json_decref(o);
    }
    tutti_free(text);
    return status;
}

/* Over rounds: of each pair by itself, since the runs of a round meet the same machine. what: 0 a / b, 1 a - b. */
static double middle(bench *k, double *a, double *b, bool minus, double *least, double *most)
{
    const size_t n = (size_t)k->config.common.repeat;
    double x[1000], result;

    for (size_t i = 0; i < n; i++)
        x[i] = b == NULL ? a[i] : minus ? a[i] - b[i] : a[i] / b[i];
    result = tutti_bench_median(x, n);
    *least = x[0];
    *most = x[n - 1];
    return result;
}

/* A figure: a, or a - b. ratio: a / over (NULL: none). */
static void figure(bench *k, const char *name, double *a, double scale, const char *unit, double *over, const char *against)
{
    char label[160];
    double least, most, low, high;
    const double value = middle(k, a, NULL, false, &least, &most) * scale, ratio = over != NULL ? middle(k, a, over, false, &low, &high) : NAN;

    least *= scale;
    most *= scale;
    if (k->config.common.json) {
        snprintf(label, sizeof label, "step/%s/%lld/%s", k->config.model, (long long)k->config.n, name);
        tutti_bench_row(&k->b, label, value, unit, ratio, over != NULL ? against : NULL,
                        json_pack("{s:f, s:f, s:I, s:s, s:I, s:I, s:s}", "min", least, "max", most, "rounds", (json_int_t)k->config.common.repeat, "method", k->config.method,
                                  "steps", (json_int_t)k->config.steps, "workers", (json_int_t)k->config.n, "torch", k->torch));
    } else if (over != NULL)
        printf("  %-44s %12.5g %-10s (%.5g - %.5g)  %.3f of %s\n", name, value, unit, least, most, ratio, against);
    else
        printf("  %-44s %12.5g %-10s (%.5g - %.5g)\n", name, value, unit, least, most);
}

static void print_all(bench *k)
{
    const size_t n = (size_t)k->config.common.repeat;
    double (*const noop) = NULL, *difference[RUNS] = { NULL };
    double least, most;
    char name[160];

    if (!k->config.common.json)
        printf("%s, %s, %lld workers x %lld threads, %lld steps of %lld samples a worker, %s, %zu rounds\n\n", k->config.model, k->config.method, (long long)k->config.n,
               (long long)k->config.threads, (long long)k->config.steps, (long long)k->config.batch, k->config.transport, n);
    /* (run - run without exchange), in place of single's exposed time, which is 0 but for the mean at its end. */
    difference[SINGLE] = k->value[SINGLE][EXPOSED];
    for (size_t r = 0; r < n; r++)
        difference[SINGLE][r] = k->value[ASKED][WALL][r] - k->value[SINGLE][WALL][r];
    snprintf(name, sizeof name, "%.60s", k->config.method);
    figure(k, name, k->value[ASKED][RATE], 1, "samples/s", k->value[SINGLE][RATE], "no exchange");
    figure(k, "no exchange", k->value[SINGLE][RATE], 1, "samples/s", noop, NULL);
    (void)middle(k, k->value[ASKED][EXPOSED], NULL, false, &least, &most);
    figure(k, "exposed communication", k->value[ASKED][EXPOSED], 1e3 / (double)k->config.steps, "ms/step", k->value[ASKED][WALL], "the step");
    figure(k, "run less no-exchange run", difference[SINGLE], 1e3 / (double)k->config.steps, "ms/step", k->value[ASKED][EXPOSED], "exposed communication");
    figure(k, "memory", k->value[ASKED][MEMORY], 1.0 / (1 << 20), "MiB/worker", k->config.common.with_peers && !k->absent ? k->value[PEER][MEMORY] : noop, "PyTorch's");
    figure(k, "command to the end of one step", k->value[ONE_STEP][HOST], 1, "s", noop, NULL);
    if (k->config.common.with_peers && !k->absent) {
        figure(k, "PyTorch DDP on Gloo", k->value[PEER][RATE], 1, "samples/s", k->value[PEER_ALONE][RATE], "PyTorch without exchange");
        figure(k, "PyTorch without exchange", k->value[PEER_ALONE][RATE], 1, "samples/s", noop, NULL);
        snprintf(name, sizeof name, "%.60s against PyTorch", k->config.method);
        figure(k, name, k->value[ASKED][RATE], 1, "samples/s", k->value[PEER][RATE], "PyTorch DDP on Gloo");
    }
}

static tutti_status run(bench *k, tutti_error *err)
{
    const char *temporary = getenv("TMPDIR");
    char peers[4096] = "";

    if (k->config.common.with_peers && strcmp(k->config.model, "mlp") != 0 && strcmp(k->config.model, "cnn") != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the peer has models mlp and cnn, not '%.60s'; leave out --with-peers", k->config.model);
    if (k->config.common.with_peers)
        TUTTI_TRY(tutti_bench_peers(&k->b, peers, sizeof peers, err));
    for (int i = 0; i < RUNS * VALUES; i++)
        if ((k->value[i / VALUES][i % VALUES] = tutti_alloc((size_t)k->config.common.repeat, sizeof(double))) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the samples");
    TUTTI_TRY(tutti_bench_folder_make(&k->folder, temporary != NULL && temporary[0] != 0 ? temporary : "/tmp", err));
    for (int64_t r = 0; r < k->config.common.repeat; r++)
        for (int what = 0; what < (k->config.common.with_peers ? RUNS : PEER); what++) {
            static const char *const names[RUNS] = { "as asked", "no exchange", "one step", "PyTorch", "PyTorch without exchange" };
            if (what >= PEER && k->absent)
                continue;
            tutti_bench_progress("step: round %lld of %lld, %s", (long long)r + 1, (long long)k->config.common.repeat, names[what]);
            TUTTI_TRY(what < PEER ? train(k, what, r, err) : peer(k, peers, what, r, err));
            if (k->code != 0 || tutti_bench_interrupted() != 0)
                return TUTTI_OK;
        }
    tutti_bench_progress("%s", "");
    print_all(k);
    return TUTTI_OK;
}

int tutti_bench_step(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench k = { 0 };
    tutti_status status = tutti_bench_open(&k.b, "step", options, &k.config, &k.config.common, argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf("tutti bench step [--OPTION VALUE ...]\n\nRuns `tutti train` with a method and without exchange, in turn: samples a second and their share of the ceiling, exposed communication, "
               "memory, time\nto a first step. Exit code 1: PyTorch was asked for and is absent.\n\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, options, true);
        printf("\nExamples:\n  tutti bench step --model cnn -n 2 --with-peers\n  tutti bench step --method 'local-sgd(period=8)' -n 4\n");
    } else if (status == TUTTI_OK)
        status = run(&k, &err);
    for (int i = 0; i < RUNS * VALUES; i++)
        tutti_free(k.value[i / VALUES][i % VALUES]);
    tutti_bench_folder_remove(&k.folder);
    tutti_bench_close(&k.b);
    return status != TUTTI_OK ? tutti_cli_fail(&err) : k.code != 0 ? k.code : k.absent ? EXIT_TRAINING : EXIT_DONE;
}
