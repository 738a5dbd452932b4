/* tuned.h: runs that tune themselves, of a toy method whose exchange takes as long as a formula
   of its knobs gives. Ranks are threads, or simulated. What a run leaves is in memory that a
   forked process shares. */
#ifndef TUTTI_TESTS_TUNED_H
#define TUTTI_TESTS_TUNED_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tutti/tutti.h"
#include "tutti/method/steps.h"

enum { TUNED_RANKS = 5, TUNED_STEPS = 1200, TUNED_COUNT = 24, TUNED_KNOBS = 2, TUNED_EVENTS = 64 };

typedef struct tuned {
    /* what is asked for */
    const char *transport;       /* NULL: shm */
    tutti_engine_options options;
    tutti_knob knobs[TUNED_KNOBS];
    int n_knobs;                 /* 0: nothing is tuned */
    int points, drawn;
    int64_t drop, window;
    int steps;                   /* of the run, from where it begins */
    double (*seconds)(const double *value); /* of an exchange; NULL: no time */
    double noise;                /* of that, relative: half a normal draw; one in ten is longer */
    double compute;              /* seconds of a pass */
    int show_every;              /* the agreed model is looked at; 0: never */
    int save_at;                 /* save before this step of the process; 0: never */
    const char *save_to, *load_from;
    int fails, fails_at;         /* that rank's client gives up in that step; -1: none */

    /* what it leaves */
    double value[TUNED_RANKS][TUNED_STEPS][TUNED_KNOBS]; /* in each step */
    int applied[TUNED_RANKS][TUNED_STEPS];
    int64_t took_ns[TUNED_STEPS]; /* of worker 0 */
    uint64_t bytes, messages;    /* sent by all */
    float x[TUNED_COUNT];
    double tune_seconds, tune_points, tune_value[TUNED_KNOBS]; /* figures; NAN: none */
    int events;
    char event[TUNED_EVENTS][512];
    tutti_figures figures;
} tuned;

static tuned *tuned_now;         /* the one that runs: a test runs them one by one */

typedef struct tuned_toy { double value[TUNED_KNOBS]; } tuned_toy;

static inline tutti_status tuned_apply(tutti_method *m, const double *value, tutti_error *err)
{
    tuned_toy *s = m->self;

    if (m->step >= TUNED_STEPS)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "more than %d steps", TUNED_STEPS);
    memcpy(s->value, value, (size_t)tuned_now->n_knobs * sizeof *value);
    tuned_now->applied[m->rank][m->step]++;
    return TUTTI_OK;
}

static inline tutti_status tuned_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const tuned *t = tuned_now;
    const tutti_tune_options o = { .tuner = { .knobs = t->knobs, .n_knobs = t->n_knobs,
                                              .points = t->points, .drawn = t->drawn, .xi = 0.1 },
                                   .drop = t->drop, .steps = t->window, .apply = tuned_apply };

    return t->n_knobs > 0 ? tutti_tune_declare(m, plan, &o, err) : TUTTI_OK;
}

static inline tutti_status tuned_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const tuned_toy *s = m->self;
    const tutti_rng rng = { tuned_now->options.seed, 900 + (uint64_t)m->rank, 0 };

    if (p->index == 0 && tuned_now->seconds != NULL) {
        double slower = fabs(tutti_normal(rng, m->step)) * tuned_now->noise;
        if (tutti_uniform(rng, m->step) < 0.1)
            slower += 10 * tuned_now->noise;
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) +
                                     (int64_t)(1e9 * tuned_now->seconds(s->value) * (1 + slower)));
    }
    return tutti_base_exchange(m, p, err);
}

static const tutti_method_ops tuned_method = {
    .name = "tuned", .title = "A toy that tunes itself", .authors = "nobody",
    .family = "all-reduce",
    .axes = { "all-reduce", "every step", "none", "none", "replicated", "any" },
    .self_bytes = sizeof(tuned_toy), .traits = TUTTI_REPLICAS_EQUAL, .declare = tuned_declare,
    .exchange = tuned_exchange,
};
static const tutti_method_ops *const tuned_methods[] = { &tuned_method, NULL };

static inline tutti_status tuned_step(tuned *t, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    float *x = tutti_engine_values(e, 0), *g = tutti_engine_gradient(e, 0);
    const uint64_t step = m->step;
    tutti_status status;
    tutti_pass p;

    if (step >= TUNED_STEPS)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "more than %d steps", TUNED_STEPS);
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (m->rank == t->fails && (int)step == t->fails_at)
            return tutti_fail(err, TUTTI_ERR_IO, 0, "worker %d gives up", m->rank);
        memcpy(t->value[m->rank][step], ((const tuned_toy *)m->self)->value, sizeof t->value[0][0]);
        for (int i = 0; i < TUNED_COUNT; i++)
            g[i] = x[i] - (float)((m->rank * 5 + i * 3 + (int)step) % 7);
        if (t->compute > 0)
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + (int64_t)(1e9 * t->compute));
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static inline tutti_status tuned_load(tuned *t, tutti_engine *e, tutti_error *err)
{
    tutti_checkpoint *c = NULL;
    tutti_runtime *rt = tutti_engine_method(e)->rt;
    char path[4096];
    tutti_status status = tutti_checkpoint_find(rt, t->load_from, path, sizeof path, NULL, 0, err);

    if (status == TUTTI_OK)
        status = tutti_checkpoint_open(&c, rt, path, err);
    if (status == TUTTI_OK)
        status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static inline void tuned_tell(tuned *t, const tutti_engine *e)
{
    const tutti_event_record *event;
    const tutti_metric_record *metric;
    const int events = tutti_engine_events(e, &event), metrics = tutti_engine_metrics(e, &metric);
    char name[80];

    t->events = 0;
    for (int i = 0; i < events && t->events < TUNED_EVENTS; i++)
        if (strcmp(event[i].kind, "tune") == 0)
            snprintf(t->event[t->events++], sizeof t->event[0], "%s", event[i].text);
    t->tune_seconds = t->tune_points = t->tune_value[0] = t->tune_value[1] = NAN;
    for (int i = 0; i < metrics; i++) {
        const double value = metric[i].value;
        if (strcmp(metric[i].name, "tune_seconds") == 0)
            t->tune_seconds = value;
        if (strcmp(metric[i].name, "tune_points") == 0)
            t->tune_points = value;
        for (int k = 0; k < t->n_knobs; k++) {
            snprintf(name, sizeof name, "tune_%s", t->knobs[k].name);
            t->tune_value[k] = strcmp(metric[i].name, name) == 0 ? value : t->tune_value[k];
        }
    }
}

static inline tutti_status tuned_train(tuned *t, tutti_engine *e, tutti_world *world,
                                       tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    uint64_t sent[2];
    double all[2];

    if (t->load_from != NULL)
        TUTTI_TRY(tuned_load(t, e, err));
    for (int s = 0; s < t->steps; s++) {
        const uint64_t step = m->step;
        const int64_t begin = tutti_now_ns(m->rt);
        if (t->save_at > 0 && s == t->save_at)
            TUTTI_TRY(tutti_engine_save(e, t->save_to, "{}", 1, err));
        TUTTI_TRY(tuned_step(t, e, err));
        if (m->rank == 0)
            t->took_ns[step] = tutti_now_ns(m->rt) - begin;
        if (t->show_every > 0 && s % t->show_every == 0) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 50000000);
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    tutti_world_sent(world, TUTTI_ANY, &sent[0], &sent[1]);
    if (m->rank == 0) {
        memcpy(t->x, tutti_engine_values(e, 0), sizeof t->x);
        tuned_tell(t, e);
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    all[0] = (double)sent[0];
    all[1] = (double)sent[1];
    if (m->workers > 1) {
        tutti_group group = tutti_group_workers(world, 4711);
        TUTTI_TRY(tutti_reduce_double(&group, TUTTI_SUM, all, 2, err));
    }
    if (m->rank == 0) {
        tutti_engine_figures(e, &t->figures);
        t->bytes = (uint64_t)all[0];
        t->messages = (uint64_t)all[1];
    }
    return TUTTI_OK;
}

static inline tutti_status tuned_rank(tutti_world *world, void *arg, tutti_error *err)
{
    tuned *t = arg;
    const tutti_param param = { .name = "x", .dims = 1, .dim = { TUNED_COUNT } };
    tutti_engine *e;
    tutti_status status =
        tutti_engine_open_from(&e, world, &param, 1, &t->options, tuned_methods, err);

    if (status == TUTTI_OK)
        status = tuned_train(t, e, world, err);
    tutti_engine_close(e);
    return status;
}

static inline tutti_status tuned_threads(tuned *t, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    tuned_now = t;
    return tutti_world_run(t->transport != NULL ? t->transport : "shm", n, tuned_rank, t, err);
}

/* One knob over ten doublings, whose default is 4 Mi. */
static inline tuned *tuned_of(double (*seconds)(const double *value), int steps)
{
    tuned *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(t != MAP_FAILED);
    t->options = (tutti_engine_options){ .method = "tuned", .optimizer = "sgd(lr=0.125)",
                                         .seed = 3 };
    t->knobs[0] = (tutti_knob){ .name = "size", .low = 1 << 16, .high = 1 << 26, .log = true,
                                .multiple = 64, .first = 1 << 22 };
    t->n_knobs = 1;
    t->points = 15;
    t->drawn = 5;
    t->drop = 2;
    t->window = 8;
    t->seconds = seconds;
    t->steps = steps;
    t->fails = -1;
    return t;
}

static inline void tuned_drop(tuned *t)
{
    munmap(t, sizeof *t);
}
#endif
