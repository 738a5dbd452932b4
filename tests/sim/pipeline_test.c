/* Goal: a pipeline in the simulator takes the time of a one-forward-one-backward schedule: where
   messages are short stages wait only for the bubble, and where they are long each micro-batch
   waits for one message, since a stage has no more micro-batches in progress than there are stages
   behind it. Method: equal stages that compute for a known time on the `sim` transport, a forked
   child a run; the last end counts, against stages + micro-batches - 1 times a micro-batch, within
   5 %. */
#include "forked.h"
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { STAGES = 4, SHORT = 1 << 12, LONG = 1 << 17 }; /* floats: 63 us, 0.47 ms of 10 Gbit/s */

typedef struct trial {
    int stages;
    size_t floats;
    int64_t count, forward_ns, backward_ns;
    double took;                 /* s, until the last stage is done */
    double waited[STAGES];       /* s */
} trial;

typedef struct member {
    trial *t;
    tutti_runtime *rt;
    int stage;
    int64_t since_ns;
} member;

static tutti_status forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out, size_t *left,
                            tutti_error *err)
{
    const member *m = self;

    (void)p, (void)slot, (void)in, (void)entered, (void)err;
    *left = out != NULL ? m->t->floats : 0;
    tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + m->t->forward_ns);
    return TUTTI_OK;
}

static tutti_status backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    const member *m = self;

    (void)p, (void)slot, (void)slope, (void)back, (void)err;
    tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + m->t->backward_ns);
    return TUTTI_OK;
}

static void waits(void *self, bool waiting)
{
    member *m = self;

    if (waiting)
        m->since_ns = tutti_now_ns(m->rt);
    else
        m->t->waited[m->stage] += (double)(tutti_now_ns(m->rt) - m->since_ns) * 1e-9;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int ranks[STAGES] = { 0, 1, 2, 3 };
    member m = { .t = arg, .rt = tutti_world_runtime(world), .stage = tutti_world_rank(world) };
    trial *t = m.t;
    const tutti_pipe_work work = { .self = &m, .forward = forward, .backward = backward, .waits = waits };
    const int64_t begin = INT64_C(1000000000);
    tutti_status status;
    tutti_pipe *pipe;
    double took;

    TUTTI_TRY(tutti_pipe_open(&pipe, world,
                              &(tutti_pipe_options){ t->stages, m.stage, t->stages, ranks, 1,
                                                     m.stage > 0 ? t->floats : 0,
                                                     m.stage + 1 < t->stages ? t->floats : 0 },
                              err));
    tutti_sleep_until(m.rt, begin);
    status = tutti_pipe_run(pipe, t->count, &work, err);
    took = (double)(tutti_now_ns(m.rt) - begin) * 1e-9;
    t->took = took > t->took ? took : t->took;
    tutti_pipe_close(pipe);
    return status;
}

static tutti_status run_ranks(void *arg, tutti_error *err)
{
    const trial *t = arg;
    return tutti_world_run("sim", t->stages, rank_main, arg, err);
}

static double simulated(trial *t)
{
    tutti_error err = { 0 };

    if (forked(run_ranks, t, &err) != TUTTI_OK)
        fail_msg("%d stages: %s", t->stages, err.text);
    return t->took;
}

static void a_pipeline_has_the_bubble_of_the_formula(void **state)
{
    trial *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(t != MAP_FAILED);
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t count = 4; count <= 16; count *= 2) {
            const double each = 60e-3, busy = (double)count * each;
            const double formula = tutti_pipeline_bubble(stages, count), ideal = (double)(count + stages - 1) * each;
            *t = (trial){ .stages = stages, .floats = SHORT, .count = count, .forward_ns = 20000000,
                          .backward_ns = 40000000 };
            assert_true(fabs(1 - busy / simulated(t) - formula) <= 0.05 * formula + 1e-9);
            for (int q = 0; q < stages; q++) /* the rest of the time is reported as waiting, except its end */
                assert_true(t->waited[q] <= t->took - busy + 1e-9);
            *t = (trial){ .stages = stages, .floats = LONG, .count = count, .forward_ns = 20000000,
                          .backward_ns = 40000000 };
            assert_true(fabs(simulated(t) - ideal) < 0.05 * ideal);
        }
    munmap(t, sizeof *t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_pipeline_has_the_bubble_of_the_formula) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
