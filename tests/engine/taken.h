/* taken.h: a client of methods with free sample counts (steps.h). It records which samples each
   rank took, and how many in each step. A sample's gradient has three bits and does not depend on
   x, so sums of them are exact in any order. Ranks are threads, or simulated. */
#ifndef TUTTI_TESTS_TAKEN_H
#define TUTTI_TESTS_TAKEN_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "zeroed.h"

enum { TAKEN_RANKS = 6, TAKEN_STEPS = 400, TAKEN_SET = 4096, TAKEN_COUNT = 24, TAKEN_IDS = 256 };

typedef struct taken {
    /* what is asked for */
    tutti_engine_options options;
    const char *method;
    const tutti_method_ops *const *methods; /* NULL: the registry */
    const char *transport;                  /* NULL: shm */
    uint64_t samples;                       /* of the run; 0: `steps` steps */
    int steps;
    double seconds[TAKEN_RANKS];            /* that a sample costs a rank, virtual or not */
    double (*slower)(int rank, uint64_t step); /* that many times, in that step; NULL: once */
    int save_at;                            /* save before this step; 0: never */
    const char *save_to, *load_from;
    bool rests;                             /* the run is over when it has saved */
    int zero;                               /* declared state that is zeroed after the load
                                               (zeroed.h); -1: none */
    const struct taken *feed;               /* samples are those that its ranks took in this
                                               step, in order of rank, whatever the engine
                                               reports */

    /* what a run leaves */
    int workers, done;                      /* steps made here */
    int takes;                              /* what tutti_engine_takes returns */
    uint8_t times[TAKEN_RANKS][TAKEN_SET];  /* how often each rank took each sample */
    int64_t took[TAKEN_STEPS][TAKEN_RANKS];
    uint16_t id[TAKEN_STEPS][TAKEN_RANKS][TAKEN_IDS]; /* the first of each step */
    uint64_t position[TAKEN_RANKS][TAKEN_STEPS]; /* of the step's first pass */
    int64_t began_ns[TAKEN_STEPS][TAKEN_RANKS], ended_ns[TAKEN_STEPS][TAKEN_RANKS]; /* computing */
    double lr[TAKEN_STEPS];
    float x[TAKEN_RANKS][TAKEN_COUNT];      /* at the end, before agreeing */
    tutti_figures figures[TAKEN_RANKS];
    double compute_ms;                      /* the method's figure of that name; 0: it has none */
    uint64_t told;                          /* hash of all its figures, as worker 0 has them */
    int states;                             /* after a load: how many may be zeroed */
    char zeroed[64];
    uint64_t bytes[TAKEN_RANKS][TAKEN_RANKS], messages[TAKEN_RANKS][TAKEN_RANKS];
} taken;

static inline float taken_pull(uint64_t sample, int i)
{
    return (float)((int)((sample * 7 + (uint64_t)i * 5) % 15) - 7) / 8;
}

static inline uint64_t taken_fed(const taken *from, int step, int64_t at)
{
    int r = 0;

    for (; r + 1 < TAKEN_RANKS && at >= from->took[step][r]; r++)
        at -= from->took[step][r];
    return from->id[step][r][at];
}

static inline tutti_status taken_pass(taken *t, tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    float *g = tutti_engine_gradient(e, 0);
    float sum[TAKEN_COUNT] = { 0 };

    for (int64_t k = 0; k < p->samples; k++) {
        const int64_t at = t->took[m->step][m->rank] + k;
        const uint64_t id =
            t->feed != NULL
                ? taken_fed(t->feed, (int)m->step, at)
                : tutti_share_sample_of(m->share, m->rank, p->epoch, p->position + (uint64_t)k);
        if (id >= TAKEN_SET)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "sample %llu", (unsigned long long)id);
        if (at < TAKEN_IDS && !p->again)
            t->id[m->step][m->rank][at] = (uint16_t)id;
        t->times[m->rank][id] += !p->again;
        for (int i = 0; i < TAKEN_COUNT; i++)
            sum[i] += taken_pull(id, i);
    }
    for (int i = 0; i < TAKEN_COUNT; i++)
        g[i] = (p->keep ? g[i] : 0) + (p->samples > 0 ? sum[i] / (float)p->divisor : 0);
    if (t->seconds[m->rank] > 0)
        tutti_sleep_until(m->rt,
                          tutti_now_ns(m->rt) +
                              (int64_t)((double)p->samples * 1e9 * t->seconds[m->rank] *
                                        (t->slower != NULL ? t->slower(m->rank, m->step) : 1)));
    TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
    return tutti_engine_pass_end(e, (double)p->samples, err);
}

static inline tutti_status taken_step(taken *t, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int step = (int)m->step;
    tutti_pass p;
    tutti_status status;

    if (step >= TAKEN_STEPS)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "more than %d steps", TAKEN_STEPS);
    t->began_ns[step][m->rank] = tutti_now_ns(m->rt);
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (p.index == 0)
            t->position[m->rank][step] = p.epoch << 32 | p.position;
        TUTTI_TRY(taken_pass(t, e, &p, err));
        t->took[step][m->rank] += p.again ? 0 : p.samples;
        t->ended_ns[step][m->rank] = tutti_now_ns(m->rt);
    }
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    if (m->rank == 0)
        t->lr[step] = m->lr;
    return status;
}

static inline tutti_status taken_load(taken *t, tutti_engine *e, tutti_error *err)
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
    if (status == TUTTI_OK) {
        const char *name = "";
        const int states = zeroed_state(e, t->zero, &name, NULL);
        if (tutti_engine_method(e)->rank == 0) {
            t->states = states;
            snprintf(t->zeroed, sizeof t->zeroed, "%s", name);
        }
    }
    return status;
}

static inline void taken_tell(taken *t, const tutti_engine *e)
{
    const tutti_metric_record *metric;

    t->told = 0;
    for (int k = tutti_engine_metrics(e, &metric) - 1; k >= 0; k--) {
        t->told = 31 * t->told + tutti_hash(&metric[k].value, sizeof metric[k].value);
        if (strcmp(metric[k].name, "compute_ms") == 0)
            t->compute_ms = metric[k].value;
    }
}

static inline tutti_status taken_train(taken *t, tutti_engine *e, tutti_world *world,
                                       tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    bool more = true;

    if (t->load_from != NULL)
        TUTTI_TRY(taken_load(t, e, err));
    for (int s = 0;; s++) {
        if (t->samples > 0)
            TUTTI_TRY(tutti_engine_more_samples(e, t->samples, &more, err));
        if (!more || (t->samples == 0 && s == t->steps))
            break;
        if (t->save_at > 0 && s == t->save_at) {
            TUTTI_TRY(tutti_engine_save(e, t->save_to, "{}", 1, err));
            if (t->rests)
                break;
        }
        TUTTI_TRY(taken_step(t, e, err));
        if (m->rank == 0)
            t->done = s + 1;
    }
    memcpy(t->x[m->rank], tutti_engine_values(e, 0), sizeof t->x[0]);
    for (int to = 0; to < m->workers; to++)
        tutti_world_sent(world, to, &t->bytes[m->rank][to], &t->messages[m->rank][to]);
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_figures(e, &t->figures[m->rank]);
    if (m->rank == 0)
        taken_tell(t, e);
    return TUTTI_OK;
}

static inline tutti_status taken_rank(tutti_world *world, void *arg, tutti_error *err)
{
    taken *t = arg;
    const tutti_param param = { .name = "x", .dims = 1, .dim = { TAKEN_COUNT } };
    tutti_engine_options options = t->options;
    tutti_engine *e;
    tutti_status status;

    options.method = t->method;
    status = tutti_engine_open_from(&e, world, &param, 1, &options,
                                    t->methods != NULL ? t->methods : tutti_methods, err);
    if (status == TUTTI_OK && tutti_engine_method(e)->rank == 0) {
        t->workers = tutti_engine_method(e)->workers;
        t->takes = tutti_engine_takes(e);
    }
    if (status == TUTTI_OK)
        status = taken_train(t, e, world, err);
    tutti_engine_close(e);
    return status;
}

static inline taken *taken_of(const char *method, uint64_t set, uint64_t samples)
{
    taken *t = calloc(1, sizeof *t);

    assert_non_null(t);
    t->options = (tutti_engine_options){
        .optimizer = "sgd(lr=0.125)", .batch = 8, .data_samples = set, .seed = 5
    };
    t->method = method;
    t->samples = samples;
    t->zero = -1;
    return t;
}

static inline tutti_status taken_try(taken *t, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run(t->transport != NULL ? t->transport : "shm", n, taken_rank, t, err);
}

static inline void taken_run(taken *t, int n)
{
    tutti_error err;
    if (taken_try(t, n, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", t->method, n, err.text);
}

static inline void taken_refused(taken *t, int n, const char *sentence)
{
    tutti_error err;
    assert_int_not_equal(taken_try(t, n, &err), TUTTI_OK);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' is not in '%s'", sentence, err.text);
}

/* All ranks together have taken each sample of the set `times` times. */
static inline void taken_each(const taken *t, int n, int times)
{
    for (uint64_t s = 0; s < t->options.data_samples; s++) {
        int sum = 0;
        for (int r = 0; r < n; r++)
            sum += t->times[r][s];
        if (sum != times)
            fail_msg("%s on %d: sample %d was taken %d times, not %d", t->method, n, (int)s, sum,
                     times);
    }
}

static inline int64_t taken_sum(const taken *t, int step)
{
    int64_t sum = 0;
    for (int r = 0; r < TAKEN_RANKS; r++)
        sum += t->took[step][r];
    return sum;
}

static inline void taken_same(const taken *a, const taken *b, int n)
{
    for (int r = 0; r < n; r++)
        if (memcmp(a->x[r], b->x[r], sizeof a->x[r]) != 0)
            fail_msg("rank %d's models differ", r);
}
#endif
