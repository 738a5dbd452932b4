/* encoded.h: runs of methods that send codes, on ranks that are threads: the toy client, whose
   gradients follow from rank, element and step, and what came of each step. */
#ifndef TUTTI_TESTS_ENCODED_H
#define TUTTI_TESTS_ENCODED_H
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "../engine/toy.h"
#include "state/plan.h"

enum { RANKS = 8, STEPS = 16, ELEMENTS = 10 + 3000 + 33 + 2001 + 7 };

typedef struct job {
    toy t;
    int dead;                              /* an element whose gradient is 0, or -1 */
    bool alike;                            /* all workers have worker 0's gradients */
    int liars;                             /* the number of workers that have them with the
                                              sign turned */
    uint64_t hash[RANKS][STEPS];
    float x[STEPS + 1][ELEMENTS];          /* rank 0's before each step and at the end */
    float g[STEPS][ELEMENTS];              /* the mean gradient, of one worker */
    float v[STEPS][ELEMENTS];              /* state onebit-adam.v after each step */
    uint64_t bytes[STEPS];                 /* of all */
    int events;
    char event[2000];                      /* all of them, a line each */
} job;

static inline float pull_of(int rank, int i, int step)
{
    return (float)(((rank * 13 + i % 17) * 5 + step * 7) % 19) / 8 - 1;
}

static inline tutti_status job_step(job *j, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int s = (int)m->step;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int i = 0; i < ELEMENTS; i++)
            m->g[i] = i == j->dead ? 0
                                   : (m->rank < j->liars ? -1.0f : 1.0f) *
                                         (m->x[i] - pull_of(j->alike ? 0 : m->rank, i, s));
        for (int k = 0; k < TOY_TENSORS; k++)
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (m->rank == 0) {
        memcpy(j->x[s], m->x, sizeof j->x[s]);
        memcpy(j->g[s], m->g, sizeof j->g[s]);
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static inline tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world);
    toy t = j->t;
    tutti_engine *e;
    const tutti_event_record *events;
    uint64_t before, after, messages;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int s = 0; s < t.steps; s++) {
        tutti_status status;
        tutti_world_sent(world, TUTTI_ANY, &before, &messages);
        status = job_step(j, e, err);
        if (status != TUTTI_OK) {
            tutti_engine_close(e);
            return status;
        }
        tutti_world_sent(world, TUTTI_ANY, &after, &messages);
        __atomic_add_fetch(&j->bytes[s], after - before, __ATOMIC_RELAXED);
        j->hash[rank][s] = toy_hash(e);
        for (size_t i = 0; rank == 0 && i < tutti_plan_count(e->plan); i++) {
            void *memory;
            if (strcmp(tutti_plan_state(e->plan, i, &memory)->name, "frozen.v") == 0)
                memcpy(j->v[s], memory, sizeof j->v[s]);
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (rank == 0) {
        memcpy(j->x[t.steps], tutti_engine_method(e)->x, sizeof j->x[0]);
        j->events = tutti_engine_events(e, &events);
        for (int k = 0; k < j->events; k++)
            snprintf(j->event + strlen(j->event), sizeof j->event - strlen(j->event), "%s%s: %s",
                     k > 0 ? "\n" : "", events[k].kind, events[k].text);
    }
    tutti_engine_close(e);
    return TUTTI_OK;
}

static inline job *job_of(const char *method, const char *codec, const char *optimizer, int steps)
{
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    j->t = toy_matrices();
    j->t.options.method = method;
    j->t.options.codec = codec;
    j->t.options.optimizer = optimizer;
    j->t.options.data_samples = 0;
    j->t.steps = steps;
    j->dead = -1;
    return j;
}

static inline void run_job(job *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", j->t.options.method, n, err.text);
}

/* One of the events begins so. */
static inline bool was_said(const job *j, const char *kind)
{
    for (const char *line = j->event; line != NULL && j->events > 0;
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, kind, strlen(kind)) == 0)
            return true;
    return false;
}

static inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
#endif
