/* The client's own optimiser, memory and types: an update of the client's by the library's rule
   gives the bits of that rule in the engine, under every method that takes one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/engine.h"

enum { RANKS = 4, STEPS = 12, TENSORS = 3 };
static const size_t counts[TENSORS] = { 600, 7, 1200 }; /* of 20 x 30, 7, 40 x 30 */
#define TOTAL (600 + 7 + 1200)

typedef enum { ENGINE, CLIENT, ITSELF } owner;

/* A run, and what it leaves. */
typedef struct run {
    const char *method, *rule;
    tutti_engine_options options;
    owner who;                    /* whose optimiser: the engine's, the client's, after step */
    bool own;                    /* the client has memory of its own */
    bool from;                   /* gradients come by ready_from, from new memory each time */
    tutti_dtype dtype;           /* of both */
    int steps;
    int bad_step;                /* where worker 1 has a gradient that is not finite; -1: nowhere */
    float bad;
    double lr_after;             /* told by tutti_engine_lr before the fourth step; 0: not */
    bool show;
    float *x[RANKS];             /* agreed at the end, TOTAL each */
    float *after[RANKS];         /* x after the second step */
    uint64_t updates[RANKS], skipped[RANKS];
} run;

typedef struct seat {
    run *run;
    tutti_engine *e;
    tutti_plan *plan;
    tutti_optim *optim;
    uint64_t t;
    double lr;
    void *values[TENSORS];
} seat;

static float initial_of(int tensor, size_t i)
{
    return (float)tutti_uniform((tutti_rng){ 5, 1 + (uint64_t)tensor, 0 }, i) - 0.5f;
}

static void initial(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = initial_of(tensor, i);
}

static tutti_status held_out(void *user, double *loss, tutti_error *err)
{
    const seat *s = user;
    const float *x = tutti_engine_values(s->e, 0);

    (void)err;
    *loss = 0;
    for (size_t i = 0; i < TOTAL; i++)
        *loss += (double)x[i] * (double)x[i];
    return TUTTI_OK;
}

static void widen(tutti_dtype dtype, size_t n, const void *from, float *to)
{
    tutti_cast(NULL, tutti_host((void *)(uintptr_t)from, n, dtype), tutti_host(to, n, TUTTI_F32));
}

static void narrow(tutti_dtype dtype, size_t n, const float *from, void *to)
{
    tutti_cast(NULL, tutti_host((float *)(uintptr_t)from, n, TUTTI_F32), tutti_host(to, n, dtype));
}

/* The rule on the values where they stand, in their type. */
static tutti_status update(void *user, double factor, tutti_error *err)
{
    seat *s = user;
    const run *r = s->run;
    const tutti_rate rate = { s->lr * factor, 1, ++s->t };
    size_t first = 0;
    float wide[1200];

    (void)err;
    for (int k = 0; k < TENSORS; first += counts[k++])
        if (!r->own)
            tutti_update(s->optim, first, counts[k], tutti_engine_values(s->e, k), tutti_engine_gradient(s->e, k),
                         &rate);
        else {
            widen(r->dtype, counts[k], s->values[k], wide);
            tutti_update(s->optim, first, counts[k], wide, tutti_engine_gradient(s->e, k), &rate);
            narrow(r->dtype, counts[k], wide, s->values[k]);
        }
    return TUTTI_OK;
}

static tutti_status pass(seat *s, const tutti_pass *p, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    const run *r = s->run;
    float x[1200];

    for (int k = TENSORS - 1; k >= 0; k--) {
        float *const g = tutti_engine_gradient(s->e, k), *mine = r->from ? malloc(sizeof x) : g;
        void *const sent = r->from ? malloc(sizeof x) : NULL;
        tutti_status status;
        if (r->own)
            widen(r->dtype, counts[k], s->values[k], x);
        else
            memcpy(x, tutti_engine_values(s->e, k), counts[k] * sizeof *x);
        for (size_t i = 0; i < counts[k]; i++) {
            const float pull = (float)((m->rank * 13 + (int)(p->position * 5 + i) % 17) % 19) / 8 - 1;
            const float one = p->samples > 0 ? (float)p->scale * (float)p->samples / (float)p->divisor * (x[i] - pull) : 0;
            mine[i] = !r->from && p->keep ? mine[i] + one : one;
        }
        if (m->rank == 1 % m->workers && (int)m->step == r->bad_step && k == 1)
            mine[3] = r->bad;
        if (r->from)
            narrow(r->dtype, counts[k], mine, sent);
        status = r->from ? tutti_engine_ready_from(s->e, k, sent, r->dtype, err) : tutti_engine_ready(s->e, k, err);
        if (r->from) {
            memset(sent, 0xff, sizeof x);
            free(mine);
            free(sent);
        }
        TUTTI_TRY(status);
    }
    return tutti_engine_passed(s->e, (double)p->samples, err);
}

static tutti_status train(seat *s, tutti_error *err)
{
    run *r = s->run;
    const tutti_method *m = tutti_engine_method(s->e);
    tutti_figures figures;

    for (int step = 0; step < r->steps; step++) {
        tutti_pass p;
        tutti_status status;
        if (step == 3 && r->lr_after > 0) {
            TUTTI_TRY(tutti_engine_lr(s->e, r->lr_after, err));
            s->lr = r->lr_after;
        }
        while ((status = tutti_engine_pass(s->e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(pass(s, &p, err));
        TUTTI_TRY(status == TUTTI_CLOSED ? tutti_engine_step(s->e, err) : status);
        if (r->who == ITSELF)
            TUTTI_TRY(update(s, 1, err));
        if (step == 1)
            memcpy(r->after[m->rank], m->x, TOTAL * sizeof(float));
        if (r->show && step % 3 == 1) {
            TUTTI_TRY(tutti_engine_show(s->e, err));
            TUTTI_TRY(tutti_engine_resume(s->e, err));
        }
    }
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    tutti_engine_figures(s->e, &figures);
    memcpy(r->x[m->rank], m->x, TOTAL * sizeof(float));
    for (int k = 0; k < TENSORS && r->own && r->who != ITSELF; k++) { /* what the client has is that, rounded */
        uint16_t rounded[2 * 1200];
        narrow(r->dtype, counts[k], tutti_engine_values(s->e, k), rounded);
        if (memcmp(rounded, s->values[k], counts[k] * tutti_dtype_bytes(r->dtype)) != 0)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "what was delivered of tensor %d is not x, rounded", k);
    }
    r->updates[m->rank] = s->t;
    r->skipped[m->rank] = figures.skipped;
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TENSORS] = { "c", "b", "a" };
    seat s = { .run = arg };
    run *r = arg;
    tutti_engine_options options = r->options;
    tutti_param params[TENSORS];
    tutti_status status;

    for (int k = 0; k < TENSORS; k++) {
        const bool flat = counts[k] == 7;
        s.values[k] = malloc(counts[k] * sizeof(float));
        params[k] = (tutti_param){ .name = names[k], .dims = flat ? 1 : 2, .unit = TENSORS - 1 - k,
                                   .dim = { flat ? 7 : counts[k] / 30, 30 }, .dtype = r->own ? r->dtype : TUTTI_F32,
                                   .values = r->own ? s.values[k] : NULL };
        for (size_t i = 0; i < counts[k] && r->own; i++) {
            const float one = initial_of(k, i);
            narrow(r->dtype, 1, &one, (char *)s.values[k] + i * tutti_dtype_bytes(r->dtype));
        }
    }
    options.method = r->method;
    options.optimizer = r->who == ENGINE ? r->rule : "client";
    options.update = r->who == CLIENT ? update : NULL;
    options.initial = initial;
    options.evaluate = held_out;
    options.user = &s;
    options.batch = 2;
    status = tutti_plan_open(&s.plan, TOTAL, err);
    if (status == TUTTI_OK)
        status = tutti_optim_declare(&s.optim, s.plan, r->rule, "mine", 0, TOTAL, TUTTI_SAME, tutti_world_device(world),
                                     err);
    if (status == TUTTI_OK)
        status = tutti_plan_carry_out(s.plan, NULL, err);
    if (status == TUTTI_OK) {
        s.lr = tutti_optim_lr(s.optim);
        status = tutti_engine_open(&s.e, world, params, TENSORS, &options, err);
    }
    if (status == TUTTI_OK)
        status = train(&s, err);
    tutti_engine_close(s.e);
    tutti_optim_close(s.optim);
    tutti_plan_close(s.plan);
    for (int k = 0; k < TENSORS; k++)
        free(s.values[k]);
    return status;
}

static run run_of(const char *method, owner who)
{
    run r = { .method = method, .rule = "sgd(lr=0.05,momentum=0.9)", .who = who, .steps = STEPS, .bad_step = -1 };

    for (int k = 0; k < RANKS; k++) {
        r.x[k] = calloc(TOTAL, sizeof(float));
        r.after[k] = calloc(TOTAL, sizeof(float));
    }
    return r;
}

static void drop(run *r)
{
    for (int k = 0; k < RANKS; k++) {
        free(r->x[k]);
        free(r->after[k]);
    }
}

static tutti_status go(run *r, int workers, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", workers, rank_main, r, err);
}

static void must(run *r, int workers)
{
    tutti_error err;

    if (go(r, workers, &err) != TUTTI_OK)
        fail_msg("%s, %d workers, optimiser %d: %s", r->method, workers, (int)r->who, err.text);
}

static void same(const run *a, const run *b, int workers)
{
    for (int k = 0; k < workers; k++)
        for (size_t i = 0; i < TOTAL; i++)
            if (memcmp(&a->x[k][i], &b->x[k][i], sizeof(float)) != 0 ||
                memcmp(&a->after[k][i], &b->after[k][i], sizeof(float)) != 0)
                fail_msg("%s, worker %d of %d: value %zu is %.9g and %.9g, after two steps %.9g and %.9g", a->method, k,
                         workers, i, (double)a->x[k][i], (double)b->x[k][i], (double)a->after[k][i],
                         (double)b->after[k][i]);
}

/* change: what both runs have besides. */
static void compare(const char *method, owner who, int workers, void (*change)(run *r))
{
    run a = run_of(method, ENGINE), b = run_of(method, who);

    if (change != NULL) {
        change(&a);
        change(&b);
    }
    must(&a, workers);
    must(&b, workers);
    same(&a, &b, workers);
    drop(&a);
    drop(&b);
}

/* ---- the methods ---- */

/* Those that exchange gradients, and whose update is of x. */
static const char *const exchanging[] = {
    "ddp", "parameter-server", "hetero-ring", "ata", "stragglar(straggler=0)", "powersgd(rank=2)", "qsgd",
    "nuqsgd", "alq", "amq", "gradient-sparsification", "accordion(low=powersgd(rank=4),high=powersgd(rank=1),interval=1)",
};
/* Those whose bits do not depend on time. */
static const char *const determined[] = {
    "single", "local-sgd(period=3)", "local-sgd(period=3,warmup=2)",
    "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9))", "lasgd(local_steps=3,max_delay=1)",
    "lasgd(local_steps=3,max_delay=0,warmup=2)", "d-psgd", "d-psgd(order=atc)", "sgp", "sgp(overlap=1)",
    "sgp(graph=ring)", "rand-psgd(pace=step)", "rand-psgd(pace=step,mixing=delay-by-one)",
    "asr-adpsgd(mixing=delay-by-one)", "accordion(mode=batch,batch_high=12)",
    "accordion(mode=localsteps,period_low=2,period_high=4)",
};
/* Those that are asynchronous: with one worker. */
static const char *const alone[] = {
    "ad-psgd", "rand-psgd", "asr-adpsgd", "h-adpsgd", "hermes(minibatch=1,chunk=2)", "oscars", "asgd(hogwild=on)",
    "asgd(hogwild=on,locks=row)", "asgd(hogwild=on,locks=full)",
};

static void an_update_of_the_clients_gives_the_engines_bits(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 3; workers++) {
        for (size_t k = 0; k < TUTTI_LENGTH(exchanging); k++)
            compare(exchanging[k], CLIENT, workers, NULL);
        for (size_t k = 0; k < TUTTI_LENGTH(determined); k++)
            if (strstr(determined[k], "batch_high") == NULL || workers == 3)
                compare(determined[k], CLIENT, workers, NULL);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(alone); k++)
        compare(alone[k], CLIENT, 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_of_the_clients_gives_the_engines_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
