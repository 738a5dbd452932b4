/* staged.h: a client of the engine whose model is partitioned into stages (staged_model.h). It
   computes whole passes, too, with the same sums in the same order, so that what a pipeline
   leaves can be compared with `single` to the bit. Ranks are threads. */
#ifndef TUTTI_TESTS_STAGED_H
#define TUTTI_TESTS_STAGED_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "staged_model.h"

/* In a rank's thread: a failed check becomes the rank's failure, with its line. */
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

enum { SLOTS_MOST = 16, STAGED_RANKS = 8 };

typedef struct staged staged;
typedef struct staged_slot {
    bool full, back;     /* back: its backward has begun */
    int next;            /* unit that is computed next */
    tutti_pass pass;
    int64_t samples;
    float *out, *gradient, *to;
    double loss;
    float d[SAMPLES_MOST * WIDTH];
    const float *values; /* that its forward had, and their hash: for a table of the rows that
                            it names */
    uint64_t tag;
    bool named[WIDTH];
    float y[UNITS + 1][SAMPLES_MOST * WIDTH]; /* what enters each unit, what leaves the last */
} staged_slot;
/* A rank's. */
typedef struct staged_seat {
    staged *run;
    tutti_engine *e;
    tutti_model model;
    int first, end;
    int full, full_most; /* slots */
    bool apart;
    int busy;            /* slot in the midst of something; -1: none */
    size_t held, held_most;
    int forwards, forwards_most; /* slots in the midst of a forward */
    uint64_t retagged;   /* backwards that saw other values than their forward */
    staged_slot slot[SLOTS_MOST];
} staged_seat;
/* A run, and what it leaves. */
struct staged {
    tutti_engine_options options;
    const tutti_method_ops *const *methods; /* NULL: the registry */
    bool whole;           /* passes of the whole model, by a method that does not drive */
    bool uncut;           /* only unit 0 begins a stage */
    bool table;           /* the weights of unit 0 are one; not of whole passes */
    const char *spec;     /* the model's */
    bool odd_one;         /* rank 0 looks at units in another order */
    int steps, at_a_time; /* 0: all at once */
    int save_at, load_at; /* a checkpoint after that many steps / the run begins with it */
    const char *directory;
    int64_t delay_ns[STAGED_RANKS]; /* what a forward takes on each rank, in virtual time */
    const double *seconds;          /* of units on each rank, as its client has measured; NULL */
    int bad_step;                   /* where micro-batch 0 has a gradient that is no number; -1 */
    float x[STAGED_RANKS][STAGED_VALUES]; /* the model at the end, as each rank sees it */
    float shown[STAGED_VALUES];           /* as rank 0 saw it after the first call of drive */
    double loss[STAGED_RANKS];            /* of the last call */
    uint64_t samples;
    int full_most[STAGED_RANKS], forwards_most[STAGED_RANKS];
    size_t held_most[STAGED_RANKS];
    double told[STAGED_RANKS][4]; /* whatever `watch` records of a rank */
    uint64_t retagged;
    void (*watch)(staged_seat *s); /* before the engine is closed; of simulated ranks it asserts
                                      nothing */
};

static inline tutti_status staged_open(void *self, int first, int end, int slots, int64_t samples,
                                       bool apart, tutti_error *err)
{
    staged_seat *s = self;

    CHECK(first < end && slots >= 1 && slots <= SLOTS_MOST && samples <= SAMPLES_MOST);
    s->first = first;
    s->end = end;
    s->apart = apart;
    s->busy = -1;
    return TUTTI_OK;
}

/* Of the flat space; values begin with the range's first element. */
static inline const float *staged_at(const staged_seat *s, const float *values, int unit, bool bias)
{
    return values + (staged_place(unit, bias) - tutti_engine_method(s->e)->own.first);
}

/* What a unit's forward leaves for its backward. */
static inline void staged_hold(staged_seat *s, const staged_slot *t, bool give)
{
    const size_t bytes = (size_t)t->samples * WIDTH * sizeof(float);

    s->held = give ? s->held - bytes : s->held + bytes;
    s->held_most = s->held > s->held_most ? s->held : s->held_most;
}

static inline bool staged_has_table(const staged_seat *s)
{
    return s->run->table && s->first == 0;
}

static inline uint64_t staged_tag(const staged_seat *s, const staged_slot *t, const float *values)
{
    const size_t n = tutti_engine_method(s->e)->own.count;
    float seen[STAGED_VALUES];

    memcpy(seen, values, n * sizeof *seen);
    if (staged_has_table(s)) {
        float *w = seen + (staged_at(s, values, 0, false) - values);
        staged_masked(w, t->named, w);
    }
    return tutti_hash(seen, n * sizeof *seen);
}

/* The table's weights as a micro-batch sees them, where this is the table's unit. */
static inline const float *staged_weight(const staged_seat *s, const staged_slot *t, int u,
                                         float masked[WIDTH])
{
    const float *w = staged_at(s, t->values, u, false);

    if (u > 0 || !staged_has_table(s))
        return w;
    staged_masked(w, t->named, masked);
    return masked;
}

/* The next unit of what was begun. */
static inline tutti_status staged_go_on(void *self, int slot, bool *over, double *loss,
                                        tutti_error *err)
{
    staged_seat *s = self;
    staged_slot *t = &s->slot[slot];
    const tutti_method *m = tutti_engine_method(s->e);
    const int u = t->next;
    float w0[WIDTH];

    CHECK(t->full && (s->apart || s->busy == slot));
    if (s->run->delay_ns[m->rank] > 0 && s->apart)
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + s->run->delay_ns[m->rank]);
    *loss = 0;
    if (!t->back) {
        staged_hold(s, t, false);
        staged_unit_forward(staged_weight(s, t, u, w0), staged_at(s, t->values, u, true),
                            t->samples, t->y[u], t->y[u + 1]);
        t->next++;
        *over = t->next == s->end;
        if (*over && t->out != NULL)
            memcpy(t->out, t->y[s->end], (size_t)t->samples * WIDTH * sizeof *t->out);
        s->forwards -= *over;
    } else {
        float *const gw = t->gradient + (staged_place(u, false) - m->own.first),
                     *const gb = t->gradient + (staged_place(u, true) - m->own.first);
        staged_unit_backward(staged_at(s, t->values, u, false), t->samples, t->y[u], t->y[u + 1],
                             t->d, t->pass.keep, u == 0 && s->run->table ? t->named : NULL, gw, gb,
                             u > s->first ? t->d : t->to);
        if (u == UNITS - 1 && s->run->bad_step >= 0 && t->pass.index == 0 &&
            t->pass.position /
                    (uint64_t)(m->share->batch * m->share->accumulate * m->share->workers) ==
                (uint64_t)s->run->bad_step)
            gw[3] = NAN;
        staged_hold(s, t, true);
        *over = t->next-- == s->first;
        *loss = *over ? t->loss : 0;
        t->full = !*over;
        s->full -= *over;
    }
    s->busy = *over ? -1 : slot;
    return TUTTI_OK;
}

static inline tutti_status staged_forward(void *self, int slot, const tutti_pass *p,
                                          const float *values, const float *in, float *out,
                                          bool *over, tutti_error *err)
{
    staged_seat *s = self;
    staged_slot *t = &s->slot[slot];
    const tutti_method *m = tutti_engine_method(s->e);
    double none;

    CHECK(slot >= 0 && slot < SLOTS_MOST && !t->full && p->samples > 0);
    CHECK((in == NULL) == (s->first == 0) && (out == NULL) == (s->end == UNITS));
    CHECK(s->busy < 0 || s->apart);
    if (s->run->delay_ns[m->rank] > 0 && !s->apart)
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + s->run->delay_ns[m->rank]);
    if (staged_has_table(s)) {
        uint32_t ids[TABLE_ROWS];
        const size_t n = staged_named(p, ids, t->named);
        TUTTI_TRY(tutti_engine_rows_acquire(s->e, 2 * UNITS - 1, ids, n, err));
    }
    t->full = true;
    t->back = false;
    t->next = s->first;
    t->pass = *p;
    t->out = out;
    t->samples = p->samples;
    t->values = values;
    t->tag = staged_tag(s, t, values);
    s->full_most = ++s->full > s->full_most ? s->full : s->full_most;
    s->forwards_most = ++s->forwards > s->forwards_most ? s->forwards : s->forwards_most;
    if (s->first == 0)
        staged_draw(m->share, p, 1, t->y[0]);
    else
        memcpy(t->y[s->first], in, (size_t)p->samples * WIDTH * sizeof *in);
    s->busy = slot;
    return staged_go_on(self, slot, over, &none, err);
}

static inline tutti_status staged_backward(void *self, int slot, const tutti_pass *p,
                                           const float *values, const float *slope, float *gradient,
                                           float *back, bool *over, double *loss, tutti_error *err)
{
    staged_seat *s = self;
    staged_slot *t = &s->slot[slot];
    const tutti_method *m = tutti_engine_method(s->e);
    float target[SAMPLES_MOST * WIDTH];
    const size_t n = (size_t)p->samples * WIDTH;

    CHECK(t->full && t->samples == p->samples && (slope == NULL) == (s->end == UNITS));
    CHECK(t->next == s->end && (s->busy < 0 || s->apart));
    s->retagged += t->values != values || t->tag != staged_tag(s, t, values);
    t->pass = *p;
    t->back = true;
    t->next = s->end - 1;
    t->gradient = gradient;
    t->to = back;
    t->loss = 0;
    if (slope == NULL) {
        staged_draw(m->share, p, 2, target);
        t->loss = staged_loss(target, t->y[UNITS], n, (double)p->divisor, t->d);
    } else
        memcpy(t->d, slope, n * sizeof *t->d);
    s->busy = slot;
    return staged_go_on(self, slot, over, loss, err);
}

static inline size_t staged_held(void *self)
{
    return ((staged_seat *)self)->held;
}

/* ---- whole passes ---- */

static inline tutti_status staged_pass(staged_seat *s, const tutti_pass *p, tutti_error *err)
{
    tutti_engine *e = s->e;
    staged_slot *t = &s->slot[0];
    float target[SAMPLES_MOST * WIDTH];
    double loss;

    CHECK(p->samples <= SAMPLES_MOST && !s->run->table);
    staged_draw(tutti_engine_share(e), p, 1, t->y[0]);
    staged_draw(tutti_engine_share(e), p, 2, target);
    for (int u = 0; u < UNITS; u++) {
        const int b = 2 * (UNITS - 1 - u);
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        staged_unit_forward(tutti_engine_values(e, b + 1), tutti_engine_values(e, b), p->samples,
                            t->y[u], t->y[u + 1]);
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    loss = staged_loss(target, t->y[UNITS], (size_t)p->samples * WIDTH,
                       p->divisor > 0 ? (double)p->divisor : 1, t->d);
    for (int u = UNITS - 1; u >= 0; u--) {
        const int b = 2 * (UNITS - 1 - u);
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        staged_unit_backward(tutti_engine_values(e, b + 1), p->samples, t->y[u], t->y[u + 1], t->d,
                             p->keep, NULL, tutti_engine_gradient(e, b + 1),
                             tutti_engine_gradient(e, b), u > 0 ? t->d : NULL);
        TUTTI_TRY(tutti_engine_grad_ready(e, b, err));
        TUTTI_TRY(tutti_engine_grad_ready(e, b + 1, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    return tutti_engine_pass_end(e, loss, err);
}

static inline tutti_status staged_step(staged_seat *s, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(s->e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(staged_pass(s, &p, err));
    return status == TUTTI_CLOSED ? tutti_engine_step(s->e, err) : status;
}

/* ---- a run ---- */

/* The model in an evaluation. With stages it comes unit by unit, and all ranks contribute
   units. */
static inline tutti_status staged_read(staged_seat *s, float *to, tutti_error *err)
{
    for (int u = 0; u < UNITS; u++) {
        const bool odd = s->run->odd_one && tutti_engine_method(s->e)->rank == 0;
        const int asked = odd ? (u + 1) % UNITS : u, b = 2 * (UNITS - 1 - asked);
        CHECK(s->run->whole || tutti_engine_values(s->e, b) == NULL);
        TUTTI_TRY(tutti_engine_unit_acquire(s->e, asked, false, err));
        for (int k = 0; k < 2 * UNITS; k++) {
            const float *x = tutti_engine_values(s->e, k);
            CHECK((x != NULL) == (s->run->whole || k / 2 == b / 2));
            if (k / 2 == b / 2)
                memcpy(to + (size_t)k * WIDTH, x, WIDTH * sizeof *to);
        }
        TUTTI_TRY(tutti_engine_unit_release(s->e, asked, false, err));
    }
    return TUTTI_OK;
}

static inline tutti_status staged_go(staged_seat *s, tutti_error *err)
{
    staged *r = s->run;
    const tutti_method *m = tutti_engine_method(s->e);
    tutti_figures f;

    if (r->load_at > 0) {
        char path[512];
        tutti_checkpoint *c = NULL;
        tutti_status status;
        snprintf(path, sizeof path, "%s/step-%08d", r->directory, r->load_at);
        TUTTI_TRY(tutti_checkpoint_open(&c, m->rt, path, err));
        status = tutti_engine_load(s->e, c, err);
        tutti_checkpoint_close(c);
        TUTTI_TRY(status);
    }
    while (m->step < (uint64_t)r->steps) {
        uint64_t until = m->step + (uint64_t)(r->at_a_time > 0 ? r->at_a_time : r->steps);
        until = until > (uint64_t)r->steps ? (uint64_t)r->steps : until;
        if (r->save_at > 0 && m->step < (uint64_t)r->save_at && until > (uint64_t)r->save_at)
            until = (uint64_t)r->save_at;
        if (r->whole)
            TUTTI_TRY(staged_step(s, err));
        else {
            CHECK(tutti_engine_values(s->e, 0) == NULL);
            TUTTI_TRY(tutti_engine_drive(s->e, until, err));
            CHECK(m->step == until);
        }
        r->loss[m->rank] = m->loss;
        if (r->save_at > 0 && m->step == (uint64_t)r->save_at)
            TUTTI_TRY(tutti_engine_save(s->e, r->directory, "{}", 0, err));
        if (!r->whole && m->step < (uint64_t)r->steps) {
            TUTTI_TRY(tutti_engine_eval_begin(s->e, err));
            TUTTI_TRY(staged_read(s, r->x[m->rank], err));
            if (m->rank == 0)
                memcpy(r->shown, r->x[0], sizeof r->shown);
            TUTTI_TRY(tutti_engine_eval_end(s->e, err));
        }
    }
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    TUTTI_TRY(staged_read(s, r->x[m->rank], err));
    tutti_engine_figures(s->e, &f);
    if (m->rank == 0)
        r->samples = f.samples;
    CHECK(f.wall_ns == f.compute_ns + f.exposed_ns + f.other_ns);
    return TUTTI_OK;
}

static inline tutti_status staged_rank(tutti_world *world, void *arg, tutti_error *err)
{
    staged *r = arg;
    staged_seat *s = tutti_alloc(1, sizeof *s);
    tutti_param params[2 * UNITS];
    char names[2 * UNITS][24];
    tutti_status status;

    CHECK(s != NULL);
    s->run = r;
    s->model = (tutti_model){ .self = s,
                              .spec = r->spec,
                              .units = UNITS,
                              .unit = r->uncut ? staged_uncut : staged_units,
                              .samples = SAMPLES_MOST,
                              .open = staged_open,
                              .forward = staged_forward,
                              .backward = staged_backward,
                              .go_on = staged_go_on,
                              .held = staged_held,
                              .seconds = r->seconds };
    for (int k = 0; k < 2 * UNITS; k++) {
        snprintf(names[k], sizeof names[k], "%d.%s", UNITS - 1 - k / 2,
                 k % 2 == 0 ? "bias" : "weight");
        params[k] = (tutti_param){
            .name = names[k], .dims = 1, .dim = { WIDTH }, .unit = UNITS - 1 - k / 2
        };
    }
    if (r->table) {
        tutti_param *t = &params[2 * UNITS - 1];
        *t = (tutti_param){ .name = t->name, .dims = 2, .dim = { TABLE_ROWS, TABLE_COLS },
                            .row_sparse = true, .asks_rows = true };
    }
    tutti_engine_options o = r->options;
    o.initial = staged_initial;
    o.model = &s->model;
    o.needs = true;
    o.same_order = !r->odd_one;
    status = r->methods != NULL
                 ? tutti_engine_open_from(&s->e, world, params, 2 * UNITS, &o, r->methods, err)
                 : tutti_engine_open(&s->e, world, params, 2 * UNITS, &o, err);
    if (status == TUTTI_OK) {
        const int rank = tutti_engine_method(s->e)->rank;
        status = staged_go(s, err);
        r->full_most[rank] = s->full_most;
        r->forwards_most[rank] = s->forwards_most;
        r->held_most[rank] = s->held_most;
        if (s->retagged > 0)
            r->retagged = s->retagged;
        if (r->watch != NULL && status == TUTTI_OK)
            r->watch(s);
        tutti_engine_close(s->e);
    }
    tutti_free(s);
    return status;
}

static inline staged staged_default(const char *method)
{
    return (staged){ .options = { .method = method,
                                  .batch = 8,
                                  .data_samples = 200,
                                  .seed = 3,
                                  .optimizer = "sgd(lr=0.1,momentum=0.9)" },
                     .steps = 6,
                     .bad_step = -1 };
}

/* The status, and its sentence in err. */
static inline tutti_status staged_run(staged *r, const char *transport, int ranks, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run(transport, ranks, staged_rank, r, err);
}

/* In a process of its own: there is one simulation in each. */
static inline void staged_simulates(staged *r, const char *transport, int ranks)
{
    staged *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t child;

    assert_true(shared != MAP_FAILED);
    *shared = *r;
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tutti_error err;
        const bool well = staged_run(shared, transport, ranks, &err) == TUTTI_OK;
        if (!well)
            fprintf(stderr, "%s on %d simulated ranks: %s\n", r->options.method, ranks, err.text);
        _exit(well ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    *r = *shared;
    munmap(shared, sizeof *shared);
    assert_int_equal(status, 0);
}

static inline void staged_runs(staged *r, const char *transport, int ranks)
{
    tutti_error err;

    if (strncmp(transport, "sim", 3) == 0)
        staged_simulates(r, transport, ranks);
    else if (staged_run(r, transport, ranks, &err) != TUTTI_OK)
        fail_msg("%s on %d ranks: %s", r->options.method, ranks, err.text);
    assert_int_equal(r->retagged, 0);
}

/* What `single` makes of it with `batch` samples a step. */
static inline staged staged_single(const staged *like, int64_t batch)
{
    staged r = *like;

    r.options.method = "single";
    r.options.batch = batch;
    r.options.accumulate = 1;
    r.table = false;
    r.whole = true;
    r.methods = NULL;
    r.save_at = r.load_at = 0;
    r.at_a_time = 1;
    staged_runs(&r, "shm", 1);
    return r;
}
#endif
