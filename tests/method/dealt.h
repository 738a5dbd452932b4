/* dealt.h: a run in which methods assign the passes of a step. Each sample has a gradient of its
   own. A pass takes as long as its worker's speed gives. What every worker used and was assigned
   is written down, in memory that a forked child shares. Integer gradients and dyadic rates make
   every sum exact, so it cannot change a bit which worker computed what. */
#ifndef TUTTI_TESTS_DEALT_H
#define TUTTI_TESTS_DEALT_H
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

#include "../engine/zeroed.h"
#include "base/share.h"

enum {
    DEALT_RANKS = 8, DEALT_STEPS = 64, DEALT_SAMPLES = 1024, DEALT_SIZE = 300, DEALT_FIRST = 201,
    DEALT_VISITS = 8192
};

typedef struct dealt_visit {
    uint16_t step, sample;
    bool named;                               /* the method has named it */
    float loss;
} dealt_visit;

typedef struct dealt_rank {
    float x[DEALT_SIZE];
    int64_t passes[DEALT_STEPS][DEALT_RANKS]; /* assigned to each in a step, as this rank saw it */
    int64_t computed[DEALT_STEPS];            /* passes that this rank did compute */
    int64_t step_ns[DEALT_STEPS], compute_ns[DEALT_STEPS];
    uint16_t used[DEALT_SAMPLES];             /* how often this rank used a sample */
    dealt_visit visit[DEALT_VISITS];          /* the same one by one, the first DEALT_VISITS */
    int visits;
    uint64_t bytes[DEALT_RANKS], messages[DEALT_RANKS];
    char event[16][400];
    int events;
} dealt_rank;

typedef struct dealt {
    tutti_engine_options options;
    const char *method, *directory; /* of a checkpoint */
    int steps, save_at;             /* save_at 0: not */
    bool load;                      /* continue from the checkpoint */
    int zero;                       /* declared state that is zeroed after the load; -1: none */
    bool real;                      /* gradients that are no integers */
    dealt_rank *rank;               /* DEALT_RANKS */
    int *states;                    /* declared ones that are not scratch */
    char *zeroed;                   /* 64 */

    /* of a sample in a step, where a method asks; NULL: 0 */
    float (*loss)(uint64_t sample, uint64_t step);
    /* what a pass takes, slept on the runtime; NULL: nothing */
    double (*seconds)(int rank, uint64_t step, int64_t pass, int64_t samples);
} dealt;

/* of each sample; [1]: no integers. Written before any rank runs */
static float dealt_gradient[2][DEALT_SAMPLES][DEALT_SIZE];

static inline void dealt_draw(void)
{
    for (uint64_t sample = 0; sample < DEALT_SAMPLES && dealt_gradient[1][0][0] == 0; sample++)
        for (uint64_t i = 0; i < DEALT_SIZE; i++) {
            const uint64_t h =
                (sample * 2654435761u + i * 40503u + 1) * UINT64_C(0x9E3779B97F4A7C15);
            dealt_gradient[0][sample][i] = (float)(h >> 60) - 8;
            /* row 0 comes last: it marks that all are there */
            dealt_gradient[1][DEALT_SAMPLES - 1 - sample][i] =
                (float)((double)(h >> 40) * 0x1p-24) - 0.5f;
        }
}

static inline dealt dealt_of(const char *method, int64_t batch, int64_t accumulate, int steps)
{
    dealt d = {
        .options = {
            .optimizer = "sgd(lr=0.25)", .batch = batch, .accumulate = accumulate, .seed = 11,
        },
        .method = method, .steps = steps, .zero = -1,
    };

    d.rank = mmap(NULL, DEALT_RANKS * sizeof *d.rank + 256, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(d.rank != MAP_FAILED);
    dealt_draw();
    d.states = (int *)(void *)(d.rank + DEALT_RANKS);
    d.zeroed = (char *)(d.states + 1);
    return d;
}

static inline void dealt_drop(dealt *d)
{
    munmap(d->rank, DEALT_RANKS * sizeof *d->rank + 256);
}

static inline tutti_status dealt_pass(dealt *d, tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    dealt_rank *mine = &d->rank[m->rank];
    const float *of[128];

    if (p->samples > 128)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a pass of %lld samples; the test has room for 128",
                          (long long)p->samples);
    for (int64_t b = 0; b < p->samples; b++) {
        const uint64_t sample = p->ids != NULL ? p->ids[b]
                                               : tutti_share_sample(m->share, p->epoch,
                                                                    p->position + (uint64_t)b);
        const float loss = d->loss != NULL ? d->loss(sample, m->step) : 0;
        of[b] = dealt_gradient[d->real][sample];
        mine->used[sample]++;
        if (mine->visits < DEALT_VISITS)
            mine->visit[mine->visits++] =
                (dealt_visit){ (uint16_t)m->step, (uint16_t)sample, p->ids != NULL, loss };
        if (p->losses != NULL)
            p->losses[b] = loss;
    }
    if (d->seconds != NULL && p->samples > 0) {
        tutti_runtime *rt = tutti_world_runtime(m->world);
        tutti_sleep_until(rt, tutti_now_ns(rt) + (int64_t)(1e9 * d->seconds(m->rank, m->step,
                                                                            p->index, p->samples)));
    }
    for (int k = 0; k < m->layout->n_tensors; k++) {
        const tutti_tensor *t = &m->layout->tensor[k];
        for (size_t i = t->first; i < t->first + t->count; i++) {
            double sum = 0;
            for (int64_t b = 0; b < p->samples; b++)
                sum += of[b][i];
            m->g[i] =
                (p->keep ? m->g[i] : 0) + (p->samples > 0 ? (float)(sum / (double)p->divisor) : 0);
        }
        TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
    }
    mine->computed[m->step] += p->samples > 0;
    return tutti_engine_pass_end(e, 0, err);
}

static inline tutti_status dealt_train(dealt *d, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_runtime *rt = tutti_world_runtime(m->world);
    dealt_rank *mine = &d->rank[m->rank];
    const tutti_event_record *events;
    uint64_t bytes[DEALT_RANKS], messages[DEALT_RANKS];
    tutti_status status;
    tutti_pass p;

    for (int to = 0; to < m->workers; to++)
        tutti_world_sent(m->world, to, &bytes[to], &messages[to]);
    for (int s = (int)m->step; s < d->steps; s++) {
        const int64_t began = tutti_now_ns(rt), computed = tutti_computed_ns(m);
        if (d->save_at > 0 && s == d->save_at && !d->load)
            TUTTI_TRY(tutti_engine_save(e, d->directory, "{}", 1, err));
        for (int r = 0; r < m->workers; r++)
            mine->passes[s][r] = tutti_share_passes(m->share, r);
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(dealt_pass(d, e, &p, err));
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
        mine->step_ns[s] = tutti_now_ns(rt) - began;
        mine->compute_ns[s] = tutti_computed_ns(m) - computed;
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    memcpy(mine->x, m->x, sizeof mine->x);
    for (int to = 0; to < m->workers; to++) {
        tutti_world_sent(m->world, to, &mine->bytes[to], &mine->messages[to]);
        mine->bytes[to] -= bytes[to];
        mine->messages[to] -= messages[to];
    }
    mine->events = tutti_engine_events(e, &events);
    for (int k = 0; k < mine->events && k < 16; k++)
        snprintf(mine->event[k], sizeof mine->event[k], "%llu %s: %s",
                 (unsigned long long)events[k].step, events[k].kind, events[k].text);
    return TUTTI_OK;
}

static inline tutti_status dealt_load(dealt *d, tutti_engine *e, tutti_error *err)
{
    tutti_runtime *rt = tutti_world_runtime(tutti_engine_method(e)->world);
    char path[512];
    tutti_checkpoint *c;
    tutti_status status;
    const tutti_method *m = tutti_engine_method(e);
    const char *name = "";
    void *memory = NULL;
    int64_t all = 0;
    int states;

    for (int r = 0; r < m->workers; r++)
        all += tutti_share_passes(m->share, r);
    TUTTI_TRY(tutti_checkpoint_find(rt, d->directory, path, sizeof path, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&c, rt, path, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    states = zeroed_state(e, d->zero, &name, &memory);
    /* a step of no passes is none: an even assignment stands for 0 */
    for (int64_t r = 0; strcmp(name, "engine.passes") == 0 && r < m->workers; r++)
        ((int64_t *)memory)[r] = all / m->workers;
    if (m->rank == 0) {
        *d->states = states;
        snprintf(d->zeroed, 64, "%s", name);
    }
    return status;
}

static inline tutti_status dealt_main(tutti_world *world, void *arg, tutti_error *err)
{
    dealt *d = arg;
    tutti_engine_options options = d->options;
    const tutti_param params[2] = {
        { .name = "b", .dims = 1, .dim = { DEALT_FIRST }, .unit = 1 },
        { .name = "a", .dims = 1, .dim = { DEALT_SIZE - DEALT_FIRST } }
    };
    tutti_engine *e;
    tutti_status status;

    options.method = d->method;
    status = tutti_engine_open(&e, world, params, 2, &options, err);
    if (status == TUTTI_OK && d->load)
        status = dealt_load(d, e, err);
    if (status == TUTTI_OK)
        status = dealt_train(d, e, err);
    tutti_engine_close(e);
    return status;
}

static inline void dealt_run(dealt *d, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, dealt_main, d, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", d->method, n, err.text);
}

/* Largest difference, relative to the largest value. */
static inline double dealt_apart(const dealt *a, const dealt *b)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < DEALT_SIZE; i++) {
        most = fmax(most, fabs((double)a->rank[0].x[i] - b->rank[0].x[i]));
        size = fmax(size, fabs((double)b->rank[0].x[i]));
    }
    return most / size;
}

static inline bool dealt_same(const dealt *a, const dealt *b)
{
    return memcmp(a->rank[0].x, b->rank[0].x, sizeof a->rank[0].x) == 0;
}
#endif
