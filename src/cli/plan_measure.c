/* plan_measure.c: measures this machine, to describe it as a platform of the simulator.

   Pass: the time of a worker's pass while all workers compute, from two runs of `single`, which
   exchanges nothing. One run has a few steps and the other some more, so that the difference is the
   time of steps that have warmed up.

   Speed: the simulator charges the part of a step other than its pass (the update) as operations
   of a host with a speed. A simulated run of `single` gives the number of operations, so the speed
   is chosen such that they take the measured time. Exchanges and codecs are loops over vectors, as
   updates are, so the speed applies to them, too.

   Of a measured network (train/measured.h) both times are those of its file, and the speed is
   that of `tutti platform`.

   If a platform is given, its speed is used, and the whole step is counted as the pass.

   Network: all workers send to the next worker and receive from the previous one, at the same time.
   In a simulated `cluster` a message takes latency + bytes / rate, which is solved for both here.
   Unequal links are not measured: they need a platform file. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_internal.h"
#include "platform/platform.h"
#include "record/files.h"
#include "runtime/files.h"

enum {
    WARM = 3,
    MORE = 16,
    SMALL = 4,
    LARGE = 1 << 20,
    HEADER = 40,
    SMALL_ROUNDS = 200,
    LARGE_ROUNDS = 24
};
#define SPEED 50e9

/* ---- runs without an exchange ---- */

typedef struct figures {
    double pass, other;
} figures; /* s, of all steps of a worker, the mean */

static double mean_of(const json_t *summary, const char *member)
{
    const json_t *workers = json_object_get(summary, "by_worker");
    double sum = 0;

    for (size_t i = 0; i < json_array_size(workers); i++)
        sum += tutti_history_number(json_array_get(workers, i), member);
    return sum / (double)json_array_size(workers);
}

/* Runs `single` for that many steps, and sets *f to its times. more: further flags, NULL-ended. */
static tutti_status run_single(const tutti_plan_measurement *at, const char *name, int steps,
                               const char *const *more, figures *f, tutti_error *err)
{
    char count[24], where[4200], run[4300], why[1000] = "it was ended";
    const char *flags[16] = { "--steps", count, "--servers", "0" };
    size_t n = 4;
    json_t *plan = NULL;
    tutti_history h = { 0 };
    int failed = 0;
    tutti_status status;

    snprintf(count, sizeof count, "%d", steps);
    for (size_t i = 0; more != NULL && more[i] != NULL; i++)
        flags[n++] = more[i];
    snprintf(where, sizeof where, "%s/%s", at->directory, name);
    snprintf(run, sizeof run, "%s/runs/0000", where);
    status =
        tutti_plan_of(&(tutti_plan_flags){ at->argc, at->argv, flags }, "single", "", &plan, err);
    if (status == TUTTI_OK && json_array_size(json_object_get(plan, "runs")) == 0)
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0, "%s",
            tutti_history_text(json_array_get(json_object_get(plan, "left_out"), 0), "why"));
    if (status == TUTTI_OK)
        status = tutti_directory_make(at->rt, where, err);
    if (status == TUTTI_OK)
        status = tutti_compare_run_all(at->rt, &(tutti_compare_runs){ where, plan, 1, true, NULL },
                                       &failed, at->signal, err);
    if (status == TUTTI_OK && *at->signal == 0) {
        status = tutti_history_open(&h, at->rt, run, NULL);
        if (status != TUTTI_OK || h.summary == NULL) {
            tutti_compare_failure_report(where, "0000", why, sizeof why);
            status =
                tutti_fail(err, TUTTI_ERR_USAGE, 0, "measuring what a pass takes here: %s", why);
        } else
            *f = (figures){ mean_of(h.summary, "compute_seconds"),
                            mean_of(h.summary, "other_seconds") };
    }
    tutti_history_close(&h);
    json_decref(plan);
    return status;
}

/* Returns the time of a step, from the difference that MORE steps make; if noise exceeds that, from
   the whole longer run. */
static double of_a_step(double few, double many)
{
    return many > few ? (many - few) / MORE : many / (WARM + MORE);
}

/* ---- messages ---- */

typedef struct ring {
    double seconds[2]; /* of a round: small, large; rank 0's */
} ring;

static tutti_status pass_on(tutti_world *world, float *from, float *to, size_t n, tutti_error *err)
{
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    const tutti_port port = tutti_port_of("plan", n, 0);
    const tutti_header note = { 0 };
    tutti_request sent, received, *both[] = { &sent, &received };
    tutti_status status;

    TUTTI_TRY(tutti_post_recv(world, &received, (rank + size - 1) % size, port,
                              tutti_host(to, n, TUTTI_F32), err));
    status = tutti_post_send(world, &sent, (rank + 1) % size, port, &note,
                             tutti_host(from, n, TUTTI_F32), err);
    if (status == TUTTI_OK)
        status = tutti_wait_some(world, both, 2, 2, TUTTI_FOREVER, NULL, err);
    if (status != TUTTI_OK) {
        tutti_cancel(world, &received);
        tutti_cancel(world, &sent);
    }
    return status;
}

static tutti_status one_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const struct {
        size_t bytes;
        int rounds;
    } kinds[] = { { SMALL, SMALL_ROUNDS }, { LARGE, LARGE_ROUNDS } };
    tutti_runtime *rt = tutti_world_runtime(world);
    float *from = tutti_alloc(LARGE / sizeof(float), sizeof *from),
          *to = tutti_alloc(LARGE / sizeof(float), sizeof *to);
    tutti_status status = from != NULL && to != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "measuring messages");

    for (size_t k = 0; k < TUTTI_LENGTH(kinds) && status == TUTTI_OK; k++) {
        int64_t since = 0;
        for (int i = -kinds[k].rounds / 4; i < kinds[k].rounds && status == TUTTI_OK; i++) {
            since = i == 0 ? tutti_now_ns(rt) : since;
            status = pass_on(world, from, to, kinds[k].bytes / sizeof(float), err);
        }
        if (tutti_world_rank(world) == 0)
            ((ring *)arg)->seconds[k] = (double)(tutti_now_ns(rt) - since) * 1e-9 / kinds[k].rounds;
    }
    tutti_free(from);
    tutti_free(to);
    return status;
}

static tutti_status measure_network(tutti_measured *m, const tutti_train_config *c,
                                    tutti_error *err)
{
    ring r = { { 0 } };
    char *transport;
    tutti_status status;

    TUTTI_TRY(tutti_train_transport(c, &transport, err));
    status = tutti_world_run(transport, (int)c->n, one_rank, &r, err);
    tutti_free(transport);
    m->latency = r.seconds[0];
    m->rate = 8.0 * (LARGE + HEADER) / fmax(r.seconds[1] - r.seconds[0], 1e-7);
    return status;
}

/* ---- both ---- */

static tutti_status write_platform(tutti_measured *m, const tutti_plan_measurement *at,
                                   double speed, char *path, size_t bytes, tutti_error *err)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    tutti_status status;

    if (out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, errno, "writing a platform");
    snprintf(m->platform, sizeof m->platform,
             "cluster(n=%lld,rate=%.0fbps,latency=%.0fns,speed=%.0ff)", (long long)at->config->n,
             m->rate, m->latency * 1e9, speed);
    status = tutti_platform_print(out, m->platform, err);
    fclose(out);
    if (status == TUTTI_OK)
        status = tutti_record_write(at->rt, at->directory, "platform.xml", text, length, err);
    free(text);
    snprintf(path, bytes, "%s/platform.xml", at->directory);
    return status;
}

tutti_status tutti_plan_measure(tutti_measured *m, const tutti_plan_measurement *at, bool links,
                                tutti_error *err)
{
    figures few = { 0 }, many = { 0 }, simulated = { 0 };
    char path[4200], pass[32];
    const char *const sim[] = { "--transport", "sim",       "--platform", path, "--step-time",
                                pass,          "--threads", "1",          NULL };

    *m = (tutti_measured){ .latency = 50e-6, .rate = 10e9 }; /* of one worker nothing is sent */
    if (at->known != NULL) {
        m->pass_seconds = (at->known->forward + at->known->backward) * (double)at->config->batch /
                          (double)at->known->batch;
        m->update_seconds = at->known->optimizer;
        if (at->config->n > 1)
            TUTTI_TRY(measure_network(m, at->config, err));
        return write_platform(m, at, SPEED, path, sizeof path, err);
    }
    TUTTI_TRY(run_single(at, "few", WARM, NULL, &few, err));
    if (*at->signal == 0)
        TUTTI_TRY(run_single(at, "many", WARM + MORE, NULL, &many, err));
    m->pass_seconds = fmax(of_a_step(few.pass, many.pass), 1e-9);
    m->update_seconds = of_a_step(few.other, many.other);
    if (!links || *at->signal != 0)
        return TUTTI_OK;
    if (at->config->n > 1)
        TUTTI_TRY(measure_network(m, at->config, err));
    snprintf(pass, sizeof pass, "%.9g", m->pass_seconds);
    TUTTI_TRY(write_platform(m, at, SPEED, path, sizeof path, err));
    if (*at->signal == 0)
        TUTTI_TRY(run_single(at, "simulated", WARM, sim, &simulated, err));
    m->speed =
        fmin(fmax(SPEED * simulated.other / WARM / fmax(m->update_seconds, 1e-9), 1e6), 1e15);
    return write_platform(m, at, m->speed, path, sizeof path, err);
}
