/* client_job.h: runs whose client has an optimiser, memory and types of its own, or leaves them to
   the engine: the same gradients either way, so that what a run leaves can be compared to the bit.
   Ranks are threads. What a run leaves is in memory that a forked process shares. */
#ifndef TUTTI_TESTS_CLIENT_H
#define TUTTI_TESTS_CLIENT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state/plan.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { RANKS = 4, STEPS = 12, TENSORS = 3 };
static const size_t counts[TENSORS] = { 600, 7, 1200 }; /* 20 x 30, 7, 40 x 30 */
#define TOTAL (600 + 7 + 1200)

typedef enum { ENGINE, CLIENT, ITSELF } owner;

/* A run, and what it leaves. */
typedef struct run run;
struct run {
    const char *method, *rule;
    const tutti_method_ops *const *methods; /* NULL: the registry */
    tutti_engine_options options;
    owner who;                    /* whose optimiser: the engine's, the client's, after step */
    bool own;                    /* the client has memory of its own */
    bool from;                   /* gradients come by ready_from, from new memory each time */
    bool kept;                   /* gradients come from memory that the engine knows */
    bool few;                    /* in tensors 0 and 2 two thirds of the gradient's rows are 0 */
    bool sparse;                 /* which are announced as rows */
    tutti_dtype dtype;           /* of both */
    int wrong;                   /* what is announced instead, if not 0 */
    int steps;
    int bad_step;                /* where worker 1 has a gradient that is not finite; -1: nowhere */
    float bad;
    int left_out;                /* worker that never has a gradient of tensor 1; -1: all have */
    double lr_after;             /* set by tutti_engine_lr before the fourth step; 0: not */
    bool show;
    bool rounded;                /* gradients are written to g, rounded to dtype */
    bool judges;                 /* the client skips steps that are not finite */
    bool threads;                /* each call comes from a new thread */
    float *x[RANKS];             /* agreed at the end, TOTAL each */
    float *after[RANKS];         /* x after the second step */
    uint64_t updates[RANKS], skipped[RANKS];
    int unused[RANKS];           /* events that name an unused parameter */

    /* a checkpoint before this step, if it is not 0: saved there, or the run begins with it. The
       client saves its own optimiser's state itself. */
    int save_at, load_at;
    const char *directory;
    float *momentum[RANKS];

    tutti_status (*go)(run *r, int workers, tutti_error *err); /* NULL: on threads */
    double flops;                /* that a pass of worker 0 takes; the others take more */
};

typedef struct seat {
    run *run;
    tutti_engine *e;
    tutti_plan *plan;
    tutti_optim *optim;
    uint64_t t;
    double lr;
    void *values[TENSORS], *gradients[TENSORS];
} seat;

static inline float initial_of(int tensor, size_t i)
{
    return (float)tutti_uniform((tutti_rng){ 5, 1 + (uint64_t)tensor, 0 }, i) - 0.5f;
}

static inline void initial(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = initial_of(tensor, i);
}

static inline tutti_status held_out(void *user, double *loss, tutti_error *err)
{
    const seat *s = user;
    const float *x = tutti_engine_values(s->e, 0);

    (void)err;
    *loss = 0;
    for (size_t i = 0; i < TOTAL; i++)
        *loss += (double)x[i] * (double)x[i];
    return TUTTI_OK;
}

static tutti_device *device;     /* one that charges no simulated time */

static inline void widen(tutti_dtype dtype, size_t n, const void *from, float *to)
{
    tutti_cast(device, tutti_host((void *)(uintptr_t)from, n, dtype), tutti_host(to, n, TUTTI_F32));
}

static inline void narrow(tutti_dtype dtype, size_t n, const float *from, void *to)
{
    tutti_cast(device, tutti_host((float *)(uintptr_t)from, n, TUTTI_F32),
               tutti_host(to, n, dtype));
}

/* The rule, applied to the values in place, in their type. */
static inline tutti_status update(void *user, double factor, tutti_error *err)
{
    seat *s = user;
    const run *r = s->run;
    const tutti_rate rate = { s->lr * factor, 1, ++s->t };
    size_t first = 0;
    float wide[1200];

    (void)err;
    for (int k = 0; k < TENSORS; first += counts[k++])
        if (!r->own)
            tutti_update(s->optim, first, counts[k], tutti_engine_values(s->e, k),
                         tutti_engine_gradient(s->e, k), &rate);
        else {
            widen(r->dtype, counts[k], s->values[k], wide);
            tutti_update(s->optim, first, counts[k], wide, tutti_engine_gradient(s->e, k), &rate);
            narrow(r->dtype, counts[k], wide, s->values[k]);
        }
    return TUTTI_OK;
}

/* ---- the engine's calls, of a thread each where the run asks for it ---- */

typedef struct call {
    seat *seat;
    enum { PASS, READY, NOTHING, PASSED, STEP, LR, SHOW, RESUME, FINISH } what;
    tutti_pass *pass;
    int tensor;
    const void *gradient;        /* READY: NULL: it is in g */
    const uint32_t *ids;         /* READY: NULL: all of it */
    size_t n;
    tutti_error *err;
    tutti_status status;
} call;

static inline tutti_dtype told_type(const run *r)
{
    return r->wrong > 0 ? (tutti_dtype)r->wrong : r->dtype;
}

static inline void *make(void *arg)
{
    call *c = arg;
    const run *r = c->seat->run;
    tutti_engine *e = c->seat->e;

    switch (c->what) {
    case PASS: c->status = tutti_engine_pass_begin(e, c->pass, c->err); break;
    case READY:
        if (c->ids != NULL && c->gradient != NULL)
            c->status = tutti_engine_grad_ready_rows_from(e, c->tensor, c->ids, c->n, c->gradient,
                                                          told_type(r), c->err);
        else if (c->ids != NULL)
            c->status = tutti_engine_grad_ready_rows(e, c->tensor, c->ids, c->n, c->err);
        else if (c->gradient != NULL)
            c->status =
                tutti_engine_grad_ready_from(e, c->tensor, c->gradient, told_type(r), c->err);
        else
            c->status = tutti_engine_grad_ready(e, c->tensor, c->err);
        break;
    case NOTHING:
        c->status = tutti_engine_grad_ready_from(e, c->tensor, NULL, r->dtype, c->err);
        break;
    case PASSED: c->status = tutti_engine_pass_end(e, (double)c->pass->samples, c->err); break;
    case STEP: c->status = tutti_engine_step(e, c->err); break;
    case LR: c->status = tutti_engine_lr(e, r->lr_after, c->err); break;
    case SHOW: c->status = tutti_engine_eval_begin(e, c->err); break;
    case RESUME: c->status = tutti_engine_eval_end(e, c->err); break;
    case FINISH: c->status = tutti_engine_finish(e, c->err); break;
    }
    return NULL;
}

static inline tutti_status do_call(call c)
{
    pthread_t thread;

    if (!c.seat->run->threads)
        make(&c);
    else if (pthread_create(&thread, NULL, make, &c) != 0)
        return tutti_fail(c.err, TUTTI_ERR_IO, 0, "no thread for a call");
    else
        pthread_join(thread, NULL);
    return c.status;
}

enum { COLS = 30 };

static inline bool touches(const tutti_method *m, size_t row)
{
    return (row + m->step + (size_t)m->rank) % 3 == 0;
}

/* The rows of a tensor that a worker touches in this step. */
static inline size_t touched(const tutti_method *m, int tensor, uint32_t *ids)
{
    size_t n = 0;

    for (size_t row = 0; row < counts[tensor] / COLS; row++)
        if (touches(m, row))
            ids[n++] = (uint32_t)row;
    return n;
}

/* Those rows of a whole table, in place one after the other. */
static inline void pack_rows(char *table, size_t bytes, const uint32_t *ids, size_t n)
{
    for (size_t j = 0; j < n; j++)
        memmove(table + j * bytes, table + ids[j] * bytes, bytes);
}

static inline tutti_status pass(seat *s, tutti_pass *p, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    const run *r = s->run;
    float x[1200];

    if (r->flops > 0)
        tutti_charge(m->rt, r->flops * (1 + 0.37 * m->rank), 0);
    for (int k = TENSORS - 1; k >= 0; k--) {
        float *const g = tutti_engine_gradient(s->e, k);
        float *const mine = r->from || r->kept ? malloc(sizeof x) : g;
        void *const sent = r->from ? malloc(sizeof x) : NULL;
        const bool few = r->few && k != 1;
        uint32_t ids[1200 / COLS];
        const size_t rows = few ? touched(m, k, ids) : 0;
        tutti_status status;
        if (r->own)
            widen(r->dtype, counts[k], s->values[k], x);
        else
            memcpy(x, tutti_engine_values(s->e, k), counts[k] * sizeof *x);
        if (k == 1 && m->rank == r->left_out) {
            if (r->from)
                TUTTI_TRY(do_call((call){ s, NOTHING, .tensor = k, .err = err }));
            free(sent);
            if (mine != g)
                free(mine);
            continue;
        }
        for (size_t i = 0; i < counts[k]; i++) {
            /* a share has the same gradient on any worker */
            const int rank = r->options.elastic_shares > 0 ? 0 : m->rank;
            const int pull = (rank * 13 + (int)(p->position * 5 + i) % 17) % 19 - 8;
            const float part = p->samples > 0 ? (float)p->samples / (float)p->divisor : 0;
            float one = (float)p->scale * part * (x[i] - (float)pull / 8);
            uint16_t half[2];
            if (few && !touches(m, i / COLS))
                one = 0;
            if (r->rounded) {
                narrow(r->dtype, 1, &one, half);
                widen(r->dtype, 1, half, &one);
            }
            mine[i] = mine == g && p->keep ? mine[i] + one : one;
        }
        if (m->rank == 1 % m->workers && (int)m->step == r->bad_step && k == 1)
            mine[3] = r->bad;
        if (mine != g)
            narrow(r->dtype, counts[k], mine, r->from ? sent : s->gradients[k]);
        if (few && r->sparse && r->from)
            pack_rows(sent, COLS * tutti_dtype_bytes(r->dtype), ids, rows);
        status = do_call((call){ s, READY, .tensor = k, .gradient = sent, .n = rows,
                                 .ids = few && r->sparse ? ids : NULL, .err = err });
        if (r->from)
            memset(sent, 0xff, sizeof x);
        if (mine != g)
            free(mine);
        free(sent);
        TUTTI_TRY(status);
    }
    return do_call((call){ s, PASSED, .pass = p, .err = err });
}

static inline tutti_status load(seat *s, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    tutti_checkpoint *checkpoint;
    char found[512];
    tutti_status status;

    TUTTI_TRY(tutti_checkpoint_find(m->rt, s->run->directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&checkpoint, m->rt, found, err));
    status = tutti_engine_load(s->e, checkpoint, err);
    tutti_checkpoint_close(checkpoint);
    return status;
}

/* Clears the state of the client's optimiser. */
static inline void begin_round(seat *s)
{
    s->t = 0;
    for (int k = 0; k < s->optim->ops->slots(s->optim->self); k++)
        memset(s->optim->slot[k], 0, TOTAL * sizeof(float));
}

/* What the client has is x, rounded. */
static inline tutti_status delivered(const seat *s, tutti_error *err)
{
    const run *r = s->run;
    uint16_t rounded[2 * 1200];

    for (int k = 0; k < TENSORS && r->own && r->who != ITSELF; k++) {
        narrow(r->dtype, counts[k], tutti_engine_values(s->e, k), rounded);
        if (memcmp(rounded, s->values[k], counts[k] * tutti_dtype_bytes(r->dtype)) != 0)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "what was delivered of tensor %d is not x, rounded", k);
    }
    return TUTTI_OK;
}

static inline tutti_status train(seat *s, tutti_error *err)
{
    run *r = s->run;
    const tutti_method *m = tutti_engine_method(s->e);
    const tutti_event_record *events;
    tutti_figures figures;

    if (r->load_at > 0) {
        TUTTI_TRY(load(s, err));
        s->t = (uint64_t)r->load_at;
        memcpy(s->optim->slot[0], r->momentum[m->rank], TOTAL * sizeof(float));
    }
    if (r->who != ENGINE)
        TUTTI_TRY(tutti_engine_lr(s->e, s->lr, err));
    for (int step = r->load_at; step < r->steps; step++) {
        tutti_pass p;
        tutti_status status;
        if (r->save_at > 0 && step == r->save_at) {
            TUTTI_TRY(tutti_engine_save(s->e, r->directory, "{}", 1, err));
            memcpy(r->momentum[m->rank], s->optim->slot[0], TOTAL * sizeof(float));
        }
        if (step == 3 && r->lr_after > 0) {
            TUTTI_TRY(do_call((call){ s, LR, .err = err }));
            s->lr = r->lr_after;
        }
        while ((status = do_call((call){ s, PASS, .pass = &p, .err = err })) == TUTTI_OK) {
            if (tutti_engine_round_begins(s->e))
                begin_round(s);
            TUTTI_TRY(pass(s, &p, err));
        }
        TUTTI_TRY(status == TUTTI_CLOSED ? do_call((call){ s, STEP, .err = err }) : status);
        if (r->who == ITSELF && (!r->judges || tutti_finite(m->device, TOTAL, m->g)))
            TUTTI_TRY(update(s, 1, err));
        if (step == 1)
            memcpy(r->after[m->rank], m->x, TOTAL * sizeof(float));
        for (int k = 0; k < TENSORS && step == 1 && r->own && r->who == ITSELF; k++)
            widen(r->dtype, counts[k], s->values[k], /* x may be older */
                  r->after[m->rank] + m->layout->tensor[k].first);
        if (r->show && step % 3 == 1) {
            TUTTI_TRY(do_call((call){ s, SHOW, .err = err }));
            TUTTI_TRY(delivered(s, err));
            TUTTI_TRY(do_call((call){ s, RESUME, .err = err }));
            TUTTI_TRY(delivered(s, err));
        }
    }
    TUTTI_TRY(do_call((call){ s, FINISH, .err = err }));
    tutti_engine_figures(s->e, &figures);
    memcpy(r->x[m->rank], m->x, TOTAL * sizeof(float));
    TUTTI_TRY(delivered(s, err));
    r->updates[m->rank] = s->t;
    r->skipped[m->rank] = figures.skipped;
    for (int k = tutti_engine_events(s->e, &events); k-- > 0;)
        r->unused[m->rank] += strcmp(events[k].kind, "unused-parameter") == 0;
    return TUTTI_OK;
}

static inline tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
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
        s.gradients[k] = malloc(counts[k] * sizeof(float));
        params[k] = (tutti_param){ .name = names[k], .dims = flat ? 1 : 2, .unit = TENSORS - 1 - k,
                                   .dim = { flat ? 7 : counts[k] / COLS, COLS },
                                   .row_sparse = r->sparse && !flat,
                                   .dtype = r->own || r->kept ? told_type(r) : TUTTI_F32,
                                   .values = r->own ? s.values[k] : NULL,
                                   .gradient = r->kept ? s.gradients[k] : NULL };
        for (size_t i = 0; i < counts[k] && r->own; i++) {
            const float one = initial_of(k, i);
            narrow(r->dtype, 1, &one, (char *)s.values[k] + i * tutti_dtype_bytes(r->dtype));
        }
    }
    options.method = r->method;
    options.optimizer = r->who == ENGINE ? r->rule : "client";
    options.update = r->who == CLIENT ? update : r->options.update;
    options.initial = initial;
    options.evaluate = held_out;
    options.user = &s;
    options.batch = 2;
    status = tutti_plan_open(&s.plan, TOTAL, err);
    if (status == TUTTI_OK)
        status = tutti_optim_declare(&s.optim, s.plan, r->rule, "mine", 0, TOTAL, TUTTI_SAME,
                                     tutti_world_device(world), err);
    if (status == TUTTI_OK)
        status = tutti_plan_carry_out(s.plan, NULL, err);
    if (status == TUTTI_OK) {
        s.lr = tutti_optim_lr(s.optim);
        status = tutti_engine_open_from(&s.e, world, params, TENSORS, &options,
                                        r->methods != NULL ? r->methods : tutti_methods, err);
    }
    if (status == TUTTI_OK)
        status = train(&s, err);
    tutti_engine_close(s.e);
    tutti_optim_close(s.optim);
    tutti_plan_close(s.plan);
    for (int k = 0; k < TENSORS; k++)
        free(s.values[k]), free(s.gradients[k]);
    return status;
}

static inline float *shared_floats(void)
{
    void *at = mmap(NULL, TOTAL * sizeof(float), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

static inline run run_of(const char *method, owner who)
{
    run r = { .method = method, .rule = "sgd(lr=0.05,momentum=0.9)", .who = who, .steps = STEPS,
              .bad_step = -1, .left_out = -1 };

    for (int k = 0; k < RANKS; k++) {
        r.x[k] = shared_floats();
        r.after[k] = shared_floats();
        r.momentum[k] = shared_floats();
    }
    return r;
}

static inline void drop(run *r)
{
    for (int k = 0; k < RANKS; k++) {
        munmap(r->x[k], TOTAL * sizeof(float));
        munmap(r->after[k], TOTAL * sizeof(float));
        munmap(r->momentum[k], TOTAL * sizeof(float));
    }
}

/* The same with as many workers. */
static inline tutti_status on_threads(run *r, int workers, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", workers, rank_main, r, err);
}

static inline void must(run *r, int workers)
{
    tutti_error err;

    if ((r->go != NULL ? r->go : on_threads)(r, workers, &err) != TUTTI_OK)
        fail_msg("%s, %d workers, optimiser %d: %s", r->method, workers, (int)r->who, err.text);
}

static inline void same(const run *a, const run *b, int workers)
{
    for (int k = 0; k < workers; k++)
        for (size_t i = 0; i < TOTAL; i++)
            if (memcmp(&a->x[k][i], &b->x[k][i], sizeof(float)) != 0 ||
                memcmp(&a->after[k][i], &b->after[k][i], sizeof(float)) != 0)
                fail_msg("%s, worker %d of %d: value %zu is %.9g and %.9g, after two steps %.9g "
                         "and %.9g",
                         a->method, k, workers, i, (double)a->x[k][i], (double)b->x[k][i],
                         (double)a->after[k][i], (double)b->after[k][i]);
}

/* change: what both runs have besides. */
static inline void compare(const char *method, owner who, int workers, void (*change)(run *r))
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

#endif
