/* bench_step.c: `tutti bench step`: the cost of exchanges in a training run, measured by
   alternating runs of

     METHOD    `tutti train` as requested
     single    the same workers without any exchange: the upper bound of METHOD's samples a second,
               and the reference of its exposed communication
     one step  METHOD with one step: the time from the command to the first step and of the end
     settings  with peers: finds the settings with which each PyTorch trains this network fastest
               (bench/peers/tune); all its later runs have them
     ddp       with peers: PyTorch's DistributedDataParallel on Gloo, and the same without
               synchronisation, its upper bound; one pair of runs for each Python in TUTTI_PYTHON.
               Names of figures include the version from the second Python on
     accuracy  with seeds: METHOD, and each PyTorch, after one epoch from that many seeds
     layers    passes of one worker, in this process (bench_layers.c): which share of the rate of a
               large product a step reaches, and the time of each layer

   The figures of a run are read from its summary.json. Wall times are those of training, without
   start and evaluation. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bench_internal.h"

typedef struct config {
    tutti_bench_common common;
    int64_t n, steps, threads, batch, seeds;
    const char *model, *method, *data, *transport, *optimizer, *loss_scale;
    int precision;
} config;
const tutti_option tutti_bench_step_options[] = {
    { "n", TUTTI_INT, TUTTI_AT(config, n), 2, 1, 1024, NULL, "workers" },
    { "model", TUTTI_SPEC, TUTTI_AT(config, model), 0, 0, 0, "mlp", "as of `tutti train`" },
    { "data", TUTTI_TEXT, TUTTI_AT(config, data), 0, 0, 0, "mnist", "as of `tutti train`" },
    { "method", TUTTI_SPEC, TUTTI_AT(config, method), 0, 0, 0, "ddp", "as of `tutti train`" },
    { "transport", TUTTI_SPEC, TUTTI_AT(config, transport), 0, 0, 0, "shm", "as of `tutti train`" },
    { "optimizer", TUTTI_SPEC, TUTTI_AT(config, optimizer), 0, 0, 0, "sgd(lr=0.05,momentum=0.9)",
      "as of `tutti train`; the peer knows sgd(lr,momentum,weight_decay) and "
      "adamw(lr,weight_decay)" },
    { "precision", TUTTI_CHOICE, TUTTI_AT(config, precision), 0, 0, 0, "fp32|bf16|fp16",
      "as of `tutti train`; the peer computes in fp32" },
    { "loss-scale", TUTTI_SPEC, TUTTI_AT(config, loss_scale), 0, 0, 0, "", "as of `tutti train`" },
    { "steps", TUTTI_INT, TUTTI_AT(config, steps), 200, 1, 1e9, NULL, "of a run" },
    { "batch", TUTTI_INT, TUTTI_AT(config, batch), 64, 1, 1e9, NULL, "samples a worker a step" },
    { "threads", TUTTI_INT, TUTTI_AT(config, threads), 1, 1, 1024, NULL, "a worker" },
    { "seeds", TUTTI_INT, TUTTI_AT(config, seeds), 0, 0, 100, NULL,
      "number of seeds for comparing the accuracy after one epoch; 0: no comparison" },
    TUTTI_BENCH_COMMON(config),
    { "with-peers", TUTTI_BOOL, TUTTI_AT(config, common.with_peers), 0, 0, 1, NULL,
      "run PyTorch too, set up as it is fastest (TUTTI_PYTHON=PATH:PATH... names Pythons that have "
      "it); it is an error if one is absent" },
    { 0 }
};

/* The runs that alternate. PEER + 2 k: PyTorch k; PEER + 2 k + 1: PyTorch k without exchange. */
enum { PEERS_MOST = 4, ASKED = 0, SINGLE, ONE_STEP, PEER, RUNS = PEER + 2 * PEERS_MOST };
enum { RATE, WALL, EXPOSED, MEMORY, HOST, VALUES };
static const char *const sources[VALUES] = { "samples_per_second", "wall_seconds",
                                             "exposed_comm_seconds", "peak_rss_bytes_per_worker",
                                             "host_seconds" };
typedef struct pytorch {
    char python[1024];              /* as TUTTI_PYTHON names it; "": the script finds one */
    bool absent;
    char version[64];
    double *accuracy;               /* [seeds] */
    json_t *tuned; /* result of bench/peers/tune: "settings", the fastest; "tried": pairs of
                                       settings and samples a second; NULL: not tuned yet */
    const char *settings;           /* in tuned; NULL: not known yet */
} pytorch;
typedef struct bench {
    tutti_bench b;
    config config;
    tutti_bench_folder folder;
    pytorch peer[PEERS_MOST];
    int peers;                      /* 0 without --with-peers */
    double *value[RUNS][VALUES];    /* of each round */
    double *accuracy;               /* of each seed */
    tutti_bench_layers layers;
    int code;                       /* of a run that failed and has reported why, or 0 */
} bench;

static tutti_status read_values(bench *k, json_t *o, int run, int64_t r, const char *from,
                                tutti_error *err)
{
    for (int v = 0; v < VALUES; v++) {
        const json_t *value = json_object_get(o, sources[v]);
        if (!json_is_number(value))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%.200s has no number '%s'", from,
                              sources[v]);
        k->value[run][v][r] = json_number_value(value);
    }
    return TUTTI_OK;
}

typedef struct numbers { char n[24], steps[24], batch[24], threads[24], seed[24]; } numbers;

static numbers write_numbers(const bench *k)
{
    numbers t = { .seed = "0" };

    snprintf(t.n, sizeof t.n, "%lld", (long long)k->config.n);
    snprintf(t.steps, sizeof t.steps, "%lld", (long long)k->config.steps);
    snprintf(t.batch, sizeof t.batch, "%lld", (long long)k->config.batch);
    snprintf(t.threads, sizeof t.threads, "%lld", (long long)k->config.threads);
    return t;
}

/* A run of `tutti train` in folder `name`: for `steps` steps without an evaluation, or, with "",
   for an epoch with an evaluation. */
typedef struct training {
    const char *name, *method, *steps, *seed;
} training;

/* Runs it. *summary: json_decref it; NULL if k->code is not 0. */
static tutti_status train(bench *k, const training *of, json_t **summary, tutti_error *err)
{
    const numbers t = write_numbers(k);
    static const char *const precisions[] = { "fp32", "bf16", "fp16" };
    const bool epoch = of->steps[0] == 0;
    const char *scale = k->config.loss_scale[0] != 0 ? k->config.loss_scale
                        : k->config.precision == 2   ? "dynamic"
                                                     : "off";
    char self[4096], out[4200], path[4300], *text = NULL;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    tutti_status status;

    *summary = NULL;
    if (length < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "finding this command's own file (/proc/self/exe)");
    self[length] = 0;
    snprintf(out, sizeof out, "%s/%s", k->folder.path, of->name);
    status = tutti_bench_capture((const char *const[]){ self,
                                                        "train",
                                                        "-n",
                                                        t.n,
                                                        "--model",
                                                        k->config.model,
                                                        "--data",
                                                        k->config.data,
                                                        "--method",
                                                        of->method,
                                                        "--transport",
                                                        k->config.transport,
                                                        "--optimizer",
                                                        k->config.optimizer,
                                                        "--batch",
                                                        t.batch,
                                                        "--threads",
                                                        t.threads,
                                                        "--precision",
                                                        precisions[k->config.precision],
                                                        "--loss-scale",
                                                        scale,
                                                        "--seed",
                                                        of->seed,
                                                        "--quiet",
                                                        "--out",
                                                        out,
                                                        epoch ? "--epochs" : "--steps",
                                                        epoch ? "1" : of->steps,
                                                        "--final-eval",
                                                        epoch ? "on" : "off",
                                                        NULL },
                                 &text, &k->code, err);
    tutti_free(text);
    if (status != TUTTI_OK || k->code != 0)
        return status;
    snprintf(path, sizeof path, "%s/summary.json", out);
    *summary = json_load_file(path, 0, NULL);
    return *summary != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the run left no readable '%.300s'", path);
}

static tutti_status train_round(bench *k, int run, int64_t r, tutti_error *err)
{
    const numbers t = write_numbers(k);
    char name[64];
    json_t *o;
    tutti_status status;

    snprintf(name, sizeof name, "%d-%lld", run, (long long)r);
    status = train(k,
                   &(training){ name, run == SINGLE ? "single" : k->config.method,
                                run == ONE_STEP ? "1" : t.steps, t.seed },
                   &o, err);
    if (status == TUTTI_OK && k->code == 0)
        status = read_values(k, o, run, r, name, err);
    json_decref(o);
    return status;
}

/* Sets the environment from which a script of bench/peers knows which PyTorch p is. */
static void choose_python(const bench *k, const pytorch *p)
{
    if (p->python[0] != 0)
        setenv("TUTTI_PYTHON", p->python, 1);
    setenv("TUTTI_PEER_DATA", k->config.data, 1); /* most of its models know theirs */
    setenv("TUTTI_PEER_SETTINGS", p->settings != NULL ? p->settings : "", 1);
}

/* Half as many steps as a run has are enough to distinguish settings that matter. */
static tutti_status tune(bench *k, pytorch *p, const char *script, tutti_error *err)
{
    const numbers t = write_numbers(k);
    char steps[24], *text = NULL;
    int code;
    tutti_status status;

    snprintf(steps, sizeof steps, "%lld", (long long)(k->config.steps + 1) / 2);
    choose_python(k, p);
    status =
        tutti_bench_capture((const char *const[]){ script, k->config.model, t.n, steps, t.batch,
                                                   t.threads, k->config.optimizer, NULL },
                            &text, &code, err);
    p->absent = code == TUTTI_BENCH_ABSENT;
    if (status == TUTTI_OK && !p->absent && tutti_bench_interrupted() == 0) {
        p->tuned = code == 0 ? json_loads(text, 0, NULL) : NULL;
        p->settings = json_string_value(json_object_get(p->tuned, "settings"));
        if (p->settings == NULL)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                                "no settings of PyTorch were found (exit code %d); run `%s%s%s%s "
                                "'%s' %s %s %s %s '%s'` to see why",
                                code, p->python[0] != 0 ? "TUTTI_PYTHON=" : "", p->python,
                                p->python[0] != 0 ? " " : "", script, k->config.model, t.n, steps,
                                t.batch, t.threads, k->config.optimizer);
    }
    tutti_free(text);
    return status;
}

/* A run of a peer's script for that many `steps`, or for an "epoch". */
typedef struct peer_run {
    const char *script, *steps, *kind, *seed;
} peer_run;

/* Runs it with PyTorch p. *o: json_decref it; NULL if PyTorch
   is absent. */
static tutti_status peer(bench *k, pytorch *p, const peer_run *of, json_t **o, tutti_error *err)
{
    const numbers t = write_numbers(k);
    const char *version;
    char *text = NULL;
    int code;
    tutti_status status;

    *o = NULL;
    choose_python(k, p);
    status = tutti_bench_capture((const char *const[]){ of->script, k->config.model, t.n, of->steps,
                                                        t.batch, t.threads, of->kind, of->seed,
                                                        k->config.optimizer, NULL },
                                 &text, &code, err);
    p->absent = code == TUTTI_BENCH_ABSENT;
    if (status == TUTTI_OK && !p->absent) {
        *o = code == 0 ? json_loads(text, 0, NULL) : NULL;
        version = json_string_value(json_object_get(*o, "torch"));
        if (*o == NULL)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                                "PyTorch gave no figures (exit code %d); run `%s%s%s%s '%s' %s %s "
                                "%s %s ddp 0 '%s'` to see why",
                                code, p->python[0] != 0 ? "TUTTI_PYTHON=" : "", p->python,
                                p->python[0] != 0 ? " " : "", of->script, k->config.model, t.n,
                                of->steps, t.batch, t.threads, k->config.optimizer);
        snprintf(p->version, sizeof p->version, "%s", version != NULL ? version : "");
    }
    tutti_free(text);
    return status;
}

static tutti_status peer_round(bench *k, const char *script, int run, int64_t r, tutti_error *err)
{
    const numbers t = write_numbers(k);
    json_t *o;
    tutti_status status = peer(
        k, &k->peer[(run - PEER) / 2],
        &(peer_run){ script, t.steps, (run - PEER) % 2 == 0 ? "ddp" : "alone", t.seed }, &o, err);

    if (status == TUTTI_OK && o != NULL)
        status = read_values(k, o, run, r, script, err);
    json_decref(o);
    return status;
}

/* Does bench/peers/train.py have this model? */
static bool peer_has(const char *model)
{
    static const char *const whole[] = { "mlp", "cnn", "vgg", "vgg(small)" };
    static const char *const any[] = { "resnet", "gpt", "wordlm", "blstm", "ctr" };

    for (size_t i = 0; i < TUTTI_LENGTH(whole); i++)
        if (strcmp(model, whole[i]) == 0)
            return true;
    for (size_t i = 0; i < TUTTI_LENGTH(any); i++)
        if (strcspn(model, "(") == strlen(any[i]) && strncmp(model, any[i], strlen(any[i])) == 0)
            return true;
    return false;
}

static tutti_status read_accuracy(json_t *o, const char *name, double *accuracy, const char *from,
                                  tutti_error *err)
{
    const json_t *value = json_object_get(o, name);

    if (!json_is_number(value))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "%.200s has no number '%s'; a model without an accuracy is compared without --seeds",
            from, name);
    *accuracy = 100 * json_number_value(value);
    return TUTTI_OK;
}

/* Measures the accuracy of METHOD and of each PyTorch from seed s. */
static tutti_status measure_accuracy(bench *k, const char *script, int64_t s, tutti_error *err)
{
    char name[64], seed[24];
    json_t *o;
    tutti_status status;

    snprintf(name, sizeof name, "seed-%lld", (long long)s);
    snprintf(seed, sizeof seed, "%lld", (long long)s);
    tutti_bench_progress("step: accuracy, seed %lld of %lld", (long long)s + 1,
                         (long long)k->config.seeds);
    status = train(k, &(training){ name, k->config.method, "", seed }, &o, err);
    if (status == TUTTI_OK && k->code == 0)
        status = read_accuracy(o, "final_test_accuracy", &k->accuracy[s], name, err);
    json_decref(o);
    for (int i = 0;
         i < k->peers && status == TUTTI_OK && k->code == 0 && tutti_bench_interrupted() == 0;
         i++) {
        if (k->peer[i].absent)
            continue;
        status = peer(k, &k->peer[i], &(peer_run){ script, "epoch", "ddp", seed }, &o, err);
        if (status == TUTTI_OK && o != NULL)
            status = read_accuracy(o, "accuracy", &k->peer[i].accuracy[s], script, err);
        json_decref(o);
    }
    return status;
}

/* Returns the median over rounds of a / b, or with `minus` of a - b. Each round is a pair, since
   the speed of the machine may differ between rounds. b NULL: of a. */
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

/* The least and greatest of the values that a figure is of: of `times` rounds, seeds or runs
   (counted). */
typedef struct extent {
    double least, most;
    const char *counted;
    int64_t times;
} extent;

static void report_figure(bench *k, const tutti_bench_figure *f, const extent *s,
                          const pytorch *peer)
{
    char label[400];

    if (k->config.common.json) {
        snprintf(label, sizeof label, "step/%s/%lld/%s", k->config.model, (long long)k->config.n,
                 f->name);
        tutti_bench_row(&k->b,
                        &(tutti_bench_figure){ label, f->value, f->unit, f->ratio, f->against },
                        json_pack("{s:f, s:f, s:I, s:s, s:I, s:I, s:I, s:s, s:s?}", "min", s->least,
                                  "max", s->most, s->counted, (json_int_t)s->times, "method",
                                  k->config.method, "steps", (json_int_t)k->config.steps, "workers",
                                  (json_int_t)k->config.n, "threads", (json_int_t)k->config.threads,
                                  "torch", peer->version, "settings", peer->settings));
    } else if (f->against != NULL)
        printf("  %-44s %12.5g %-10s (%.5g - %.5g)  %.3f of %s\n", f->name, f->value, f->unit,
               s->least, s->most, f->ratio, f->against);
    else
        printf("  %-44s %12.5g %-10s (%.5g - %.5g)\n", f->name, f->value, f->unit, s->least,
               s->most);
}

/* A figure's name, and its unit, of which a measured value is `scale`. */
typedef struct quantity {
    const char *name;
    double scale;
    const char *unit;
} quantity;

/* over: the figures by which those of a are divided for the ratio; NULL: no ratio. */
static void figure(bench *k, const quantity *q, double *a, double *over, const char *against,
                   const pytorch *peer)
{
    double least, most, low, high;
    const double value = middle(k, a, NULL, false, &least, &most) * q->scale,
                 ratio = over != NULL ? middle(k, a, over, false, &low, &high) : NAN;

    report_figure(
        k, &(tutti_bench_figure){ q->name, value, q->unit, ratio, over != NULL ? against : NULL },
        &(extent){ least * q->scale, most * q->scale, "rounds", k->config.common.repeat }, peer);
}

static double mean_of(const double *x, int64_t n, double *least, double *most)
{
    double sum = 0;

    *least = *most = x[0];
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        *least = x[i] < *least ? x[i] : *least;
        *most = x[i] > *most ? x[i] : *most;
    }
    return sum / (double)n;
}

/* The same accuracy: the means differ by no more than the seeds do, that is, by the wider of the
   two ranges. */
static void print_accuracy(bench *k)
{
    double least, most, low, high;
    const double ours = mean_of(k->accuracy, k->config.seeds, &least, &most);
    char name[160], title[100];

    report_figure(k, &(tutti_bench_figure){ "accuracy after 1 epoch", ours, "%", NAN, NULL },
                  &(extent){ least, most, "seeds", k->config.seeds }, &k->peer[0]);
    for (int i = 0; i < k->peers; i++) {
        const pytorch *p = &k->peer[i];
        double theirs, spread;
        if (p->absent)
            continue;
        theirs = mean_of(p->accuracy, k->config.seeds, &low, &high);
        spread = most - least > high - low ? most - least : high - low;
        snprintf(title, sizeof title, i == 0 ? "PyTorch" : "PyTorch %.60s", p->version);
        snprintf(name, sizeof name, "%s accuracy after 1 epoch", title);
        report_figure(k, &(tutti_bench_figure){ name, theirs, "%", NAN, NULL },
                      &(extent){ low, high, "seeds", k->config.seeds }, p);
        snprintf(name, sizeof name, "accuracy off from %s", title);
        report_figure(k,
                      &(tutti_bench_figure){ name, fabs(ours - theirs), "points",
                                             fabs(ours - theirs) / spread,
                                             "the spread over seeds" },
                      &(extent){ spread, spread, "seeds", k->config.seeds }, p);
    }
}

static void print_peer(bench *k, int i)
{
    const pytorch *p = &k->peer[i];
    char name[300], title[100], other[130];
    size_t at;
    json_t *one;

    if (p->absent)
        return;
    snprintf(title, sizeof title, i == 0 ? "PyTorch" : "PyTorch %.60s", p->version);
    snprintf(name, sizeof name, "%s DDP on Gloo", title);
    snprintf(other, sizeof other, "%s without exchange", title);
    figure(k, &(quantity){ name, 1, "samples/s" }, k->value[PEER + 2 * i][RATE],
           k->value[PEER + 2 * i + 1][RATE], other, p);
    figure(k, &(quantity){ other, 1, "samples/s" }, k->value[PEER + 2 * i + 1][RATE], NULL, NULL,
           p);
    snprintf(other, sizeof other, "%s DDP on Gloo", title);
    snprintf(name, sizeof name, "%.60s against %s", k->config.method, title);
    figure(k, &(quantity){ name, 1, "samples/s" }, k->value[ASKED][RATE],
           k->value[PEER + 2 * i][RATE], other, p);
    json_array_foreach (json_object_get(p->tuned, "tried"), at, one) {
        const char *settings = json_string_value(json_array_get(one, 0));
        const double rate = json_number_value(json_array_get(one, 1));
        snprintf(name, sizeof name, "%s set up with %.150s", title,
                 settings == NULL || settings[0] == 0 ? "nothing more" : settings);
        report_figure(k, &(tutti_bench_figure){ name, rate, "samples/s", NAN, NULL },
                      &(extent){ rate, rate, "runs", 1 }, p);
    }
}

/* Prints the layers. The rate is that of METHOD's steps, with batches, optimiser and exchange. */
static void print_layers(bench *k)
{
    const tutti_bench_layers *l = &k->layers;
    double rest = l->seconds, least, most;
    const double samples = middle(k, k->value[ASKED][RATE], NULL, false, &least, &most),
                 scale = l->flops / (double)k->config.n * 1e-9;
    char name[80];

    report_figure(k,
                  &(tutti_bench_figure){ "products of a worker", samples * scale, "GFLOP/s",
                                         samples * scale * 1e9 / l->peak, "one large product's" },
                  &(extent){ least * scale, most * scale, "rounds", k->config.common.repeat },
                  &k->peer[0]);
    if (!k->config.common.json)
        printf("\nA pass of %lld samples takes %.4g ms, a large product reaches %.4g GFLOP/s; of a "
               "pass:\n\n"
               "  %-28s %11s %11s %7s %9s\n",
               (long long)k->config.batch, l->seconds * 1e3, l->peak * 1e-9, "layer", "forward ms",
               "backward ms", "share", "GFLOP/s");
    for (int i = 0; i < l->count; i++) {
        const tutti_nn_time *t = &l->row[i];
        const double seconds = t->forward + t->backward, share = seconds / l->seconds;
        rest -= seconds;
        snprintf(name, sizeof name, "layer %.40s", t->name);
        if (k->config.common.json) {
            char label[200];
            snprintf(label, sizeof label, "step/%.80s/%lld/%s", k->config.model,
                     (long long)k->config.n, name);
            tutti_bench_row(&k->b,
                            &(tutti_bench_figure){ label, seconds * 1e3, "ms", share, "the pass" },
                            json_pack("{s:f, s:f, s:f}", "forward_ms", t->forward * 1e3,
                                      "backward_ms", t->backward * 1e3, "gflops",
                                      seconds > 0 ? t->flops / seconds * 1e-9 : 0));
        } else if (share >= 0.0005)
            printf("  %-28s %11.3f %11.3f %6.1f%% %9.4g\n", t->name, t->forward * 1e3,
                   t->backward * 1e3, 100 * share, seconds > 0 ? t->flops / seconds * 1e-9 : 0);
    }
    if (!k->config.common.json)
        printf("  %-28s %23.3f %6.1f%%\n", "loss, sums over blocks", rest * 1e3,
               100 * rest / l->seconds);
}

static void print_all(bench *k)
{
    const size_t n = (size_t)k->config.common.repeat;
    const bool peers = k->peers > 0 && !k->peer[0].absent;
    const pytorch *torch = &k->peer[0];
    /* in place of single's exposed time, which is 0 but for the mean at its end */
    double *difference = k->value[SINGLE][EXPOSED];
    char name[160];

    if (!k->config.common.json)
        printf("%s, %s, %lld workers x %lld threads, %lld steps of %lld samples a worker, %s, %zu "
               "rounds\n\n",
               k->config.model, k->config.method, (long long)k->config.n,
               (long long)k->config.threads, (long long)k->config.steps, (long long)k->config.batch,
               k->config.transport, n);
    for (size_t r = 0; r < n; r++)
        difference[r] = k->value[ASKED][WALL][r] - k->value[SINGLE][WALL][r];
    snprintf(name, sizeof name, "%.60s", k->config.method);
    figure(k, &(quantity){ name, 1, "samples/s" }, k->value[ASKED][RATE], k->value[SINGLE][RATE],
           "no exchange", torch);
    figure(k, &(quantity){ "no exchange", 1, "samples/s" }, k->value[SINGLE][RATE], NULL, NULL,
           torch);
    figure(k, &(quantity){ "exposed communication", 1e3 / (double)k->config.steps, "ms/step" },
           k->value[ASKED][EXPOSED], k->value[ASKED][WALL], "the step", torch);
    figure(k, &(quantity){ "run less no-exchange run", 1e3 / (double)k->config.steps, "ms/step" },
           difference, k->value[ASKED][EXPOSED], "exposed communication", torch);
    figure(k, &(quantity){ "memory", 1.0 / (1 << 20), "MiB/worker" }, k->value[ASKED][MEMORY],
           peers ? k->value[PEER][MEMORY] : NULL, "PyTorch's", torch);
    figure(k, &(quantity){ "command to the end of one step", 1, "s" }, k->value[ONE_STEP][HOST],
           NULL, NULL, torch);
    for (int i = 0; i < k->peers; i++)
        print_peer(k, i);
    if (k->config.seeds > 0)
        print_accuracy(k);
    print_layers(k);
}

/* Makes a peer for each PyTorch of TUTTI_PYTHON; if that is not set, for the one that the script
   finds. */
static tutti_status name_peers(bench *k, tutti_error *err)
{
    const char *at = getenv("TUTTI_PYTHON");

    k->peers = 1;
    if (at == NULL || at[0] == 0)
        return TUTTI_OK;
    for (k->peers = 0; *at != 0; at += *at == ':') {
        const size_t length = strcspn(at, ":");
        if (k->peers == PEERS_MOST || length >= sizeof k->peer[0].python)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "TUTTI_PYTHON is '%.200s'; it may name %d Pythons, with a ':' "
                              "between two, of %zu bytes each",
                              getenv("TUTTI_PYTHON"), PEERS_MOST, sizeof k->peer[0].python - 1);
        memcpy(k->peer[k->peers].python, at, length);
        k->peers += length > 0;
        at += length;
    }
    return TUTTI_OK;
}

static tutti_status run_all(bench *k, const char *script, const char *tuner, tutti_error *err)
{
    for (int i = 0; i < k->peers; i++) {
        tutti_bench_progress("step: settings of PyTorch");
        TUTTI_TRY(tune(k, &k->peer[i], tuner, err));
        if (tutti_bench_interrupted() != 0)
            return TUTTI_OK;
    }
    for (int64_t r = 0; r < k->config.common.repeat; r++)
        for (int what = 0; what < PEER + 2 * k->peers; what++) {
            static const char *const names[PEER + 2] = { "as asked", "no exchange", "one step",
                                                         "PyTorch", "PyTorch without exchange" };
            if (what >= PEER && k->peer[(what - PEER) / 2].absent)
                continue;
            tutti_bench_progress("step: round %lld of %lld, %s", (long long)r + 1,
                                 (long long)k->config.common.repeat,
                                 names[what < PEER ? what : PEER + (what - PEER) % 2]);
            TUTTI_TRY(what < PEER ? train_round(k, what, r, err)
                                  : peer_round(k, script, what, r, err));
            if (k->code != 0 || tutti_bench_interrupted() != 0)
                return TUTTI_OK;
        }
    for (int64_t s = 0; s < k->config.seeds; s++) {
        TUTTI_TRY(measure_accuracy(k, script, s, err));
        if (k->code != 0 || tutti_bench_interrupted() != 0)
            return TUTTI_OK;
    }
    tutti_bench_progress("step: layers");
    TUTTI_TRY(tutti_bench_layers_measure(
        &k->layers, k->b.rt,
        &(tutti_bench_work){
            k->config.model, k->config.data, k->config.batch, (int)k->config.threads,
            (tutti_dtype[]){ TUTTI_F32, TUTTI_BF16, TUTTI_F16 }[k->config.precision] },
        err));
    tutti_bench_progress("%s", "");
    print_all(k);
    return TUTTI_OK;
}

static tutti_status run_step(bench *k, tutti_error *err)
{
    const char *temporary = getenv("TMPDIR");
    const size_t rounds = (size_t)k->config.common.repeat, seeds = (size_t)k->config.seeds;
    char peers[4096] = "", script[4200], tuner[4200];
    bool room = (k->accuracy = tutti_alloc(seeds, sizeof(double))) != NULL;

    if (k->config.common.with_peers && !peer_has(k->config.model))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the peer has models mlp, cnn, resnet(depth), vgg(small), "
            "gpt(layers,dim,heads,context), wordlm(vocab,dim,hidden,context), blstm(layers,hidden) "
            "and ctr(dim,layers,hidden), not '%.60s'; omit --with-peers",
            k->config.model);
    if (k->config.common.with_peers) {
        TUTTI_TRY(name_peers(k, err));
        TUTTI_TRY(tutti_bench_peers(&k->b, peers, sizeof peers, err));
    }
    snprintf(script, sizeof script, "%s/train", peers);
    snprintf(tuner, sizeof tuner, "%s/tune", peers);
    for (int i = 0; i < RUNS * VALUES; i++)
        room = (k->value[i / VALUES][i % VALUES] = tutti_alloc(rounds, sizeof(double))) != NULL &&
               room;
    for (int i = 0; i < k->peers; i++)
        room = (k->peer[i].accuracy = tutti_alloc(seeds, sizeof(double))) != NULL && room;
    if (!room)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples");
    TUTTI_TRY(tutti_bench_folder_make(
        &k->folder, temporary != NULL && temporary[0] != 0 ? temporary : "/tmp", err));
    return run_all(k, script, tuner, err);
}

int tutti_bench_step(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench k = { 0 };
    bool absent = false;
    tutti_status status = tutti_bench_open(
        &k.b, &(tutti_bench_kind){ "step", tutti_bench_step_options, &k.config, &k.config.common },
        argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf("tutti bench step [--OPTION VALUE ...]\n\nRuns `tutti train` with a method and "
               "without exchange, "
               "in turn: samples a second and their share of the ceiling, exposed communication, "
               "memory, time\n"
               "to a first step; with --seeds the accuracy after an epoch; then how much of a "
               "large product's "
               "rate it reaches, and the time of each layer. Exit code 1: PyTorch was asked for "
               "and is absent.\n\n"
               "  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, tutti_bench_step_options, true);
        printf("\nExamples:\n  tutti bench step --model cnn -n 2 --with-peers\n"
               "  TUTTI_PYTHON=/opt/new/bin/python:/usr/bin/python3 tutti bench step --with-peers "
               "--seeds 3\n"
               "  tutti bench step --method 'local-sgd(period=8)' -n 4\n  tutti bench step --model "
               "'gpt(4,256,4)' --data moby-dick --optimizer 'adamw(lr=0.0003)' --batch 8 -n 1 "
               "--threads 2 --with-peers\n");
    } else if (status == TUTTI_OK)
        status = run_step(&k, &err);
    for (int i = 0; i < RUNS * VALUES; i++)
        tutti_free(k.value[i / VALUES][i % VALUES]);
    for (int i = 0; i < PEERS_MOST; i++) {
        tutti_free(k.peer[i].accuracy);
        json_decref(k.peer[i].tuned);
        absent = absent || k.peer[i].absent;
    }
    tutti_free(k.accuracy);
    tutti_bench_layers_free(&k.layers);
    tutti_bench_folder_remove(&k.folder);
    tutti_bench_close(&k.b);
    return status != TUTTI_OK ? tutti_cli_fail(&err)
           : k.code != 0      ? k.code
           : absent           ? EXIT_TRAINING
                              : EXIT_DONE;
}
