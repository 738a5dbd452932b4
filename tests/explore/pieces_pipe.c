/* Pieces: pipelines. */
#include "explore.h"
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"

enum { STAGES = 5, PIPELINES = 3, FLOATS = 5 };

typedef struct clocks { int64_t clock[PIPELINES][STAGES]; } clocks; /* shared */

typedef struct stage {
    const explore_case *c;
    tutti_world *world;
    clocks *clocks;
    int pipeline, pipelines, stage, stages, in_flight;
    int64_t distance;            /* -1: there are no gates */
    int64_t forwards, backwards;
    int64_t version[FLOATS + 3]; /* of what is in a slot */
} stage;

static int under_way(const stage *s)
{
    const int behind = s->stages - s->stage;
    return s->in_flight < behind ? s->in_flight : behind;
}

static int64_t least_clock(const stage *s)
{
    int64_t least = INT64_MAX;

    for (int v = 0; v < s->pipelines; v++)
        least = s->clocks->clock[v][s->stage] < least ? s->clocks->clock[v][s->stage] : least;
    return least;
}

/* A stage's output states which values it was computed with, and has another length each time. */
static tutti_status forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out, size_t *left,
                            tutti_error *err)
{
    stage *s = self;
    const int64_t version = tutti_wave_version(p, s->in_flight), stale = p - 1 - least_clock(s) * s->in_flight;

    EXPLORE_EXPECT(p == s->forwards + 1, "forward of %lld behind %lld", (long long)p, (long long)s->forwards);
    EXPLORE_EXPECT(slot >= 0 && slot < under_way(s) && s->version[slot] < 0, "slot %d is in use", slot);
    EXPLORE_EXPECT(in == NULL || (entered == (size_t)(1 + p % FLOATS) && in[0] == (float)version),
                   "%zu values of %g enter with micro-batch %lld", entered, in != NULL ? (double)in[0] : 0,
                   (long long)p);
    EXPLORE_EXPECT(s->backwards >= version, "values after %lld are not there yet", (long long)version);
    EXPLORE_EXPECT(s->distance < 0 || stale <= tutti_wave_staleness(s->in_flight, s->distance),
                   "micro-batch %lld misses %lld", (long long)p, (long long)stale);
    explore_dawdle(3000);
    s->forwards = p;
    s->version[slot] = version;
    *left = out != NULL ? (size_t)(1 + p % FLOATS) : 0;
    for (size_t i = 0; i < *left; i++)
        out[i] = (float)version;
    return TUTTI_OK;
}

static tutti_status backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    stage *s = self;
    const int64_t version = tutti_wave_version(p, s->in_flight);

    EXPLORE_EXPECT(p == s->backwards + 1, "backward of %lld behind %lld", (long long)p, (long long)s->backwards);
    EXPLORE_EXPECT(s->version[slot] == version && (slope == NULL || slope[0] == (float)version),
                   "backward of %lld sees values after %lld", (long long)p, (long long)s->version[slot]);
    explore_dawdle(3000);
    for (int64_t i = 0; back != NULL && i < 1 + p % FLOATS; i++)
        back[i] = (float)version;
    s->version[slot] = -1;
    s->backwards = p;
    s->clocks->clock[s->pipeline][s->stage] += tutti_wave_ends(p, s->in_flight);
    EXPLORE_EXPECT(s->distance < 0 || s->clocks->clock[s->pipeline][s->stage] - least_clock(s) <=
                                          tutti_wave_apart(s->distance),
                   "wave %lld, and somebody is at %lld", (long long)s->clocks->clock[s->pipeline][s->stage],
                   (long long)least_clock(s));
    return TUTTI_OK;
}

static bool open_for(const stage *s, int64_t p)
{
    return s->distance < 0 || least_clock(s) >= tutti_wave_gate(p, s->in_flight, s->distance);
}

static int64_t admitted(void *self)
{
    const stage *s = self;
    return s->forwards + open_for(s, s->forwards + 1);
}

static tutti_status await(void *self, int64_t p, tutti_error *err)
{
    const stage *s = self;
    tutti_runtime *rt = tutti_world_runtime(s->world);

    EXPLORE_EXPECT(s->forwards == s->backwards, "waits at a gate with %lld under way",
                   (long long)(s->forwards - s->backwards));
    while (!open_for(s, p))
        tutti_sleep_until(rt, tutti_now_ns(rt) + 1000);
    return TUTTI_OK;
}

static tutti_status run(tutti_world *world, explore_case *c, int pipelines, int64_t distance, tutti_error *err)
{
    const int rank = tutti_world_rank(world), stages = c->ranks / pipelines, first = rank / stages * stages;
    stage s = { .c = c, .world = world, .clocks = (clocks *)(void *)c->shared, .pipeline = rank / stages,
                .pipelines = pipelines, .stage = rank % stages, .stages = stages,
                .in_flight = 1 + (int)explore_draw(c, "in flight", 5), .distance = distance };
    const tutti_pipe_work work = { &s, forward, backward, admitted, await, NULL };
    const int64_t last = (int64_t)s.in_flight * (3 + (int64_t)explore_draw(c, "waves", 4)),
                  between = 1 + (int64_t)explore_draw(c, "between", (uint64_t)last);
    int ranks[STAGES];
    tutti_status status;
    tutti_pipe *pipe;

    if (rank >= pipelines * stages)
        return TUTTI_OK;
    for (int q = 0; q < stages; q++)
        ranks[q] = first + q;
    for (int i = 0; i < FLOATS + 3; i++)
        s.version[i] = -1;
    TUTTI_TRY(tutti_pipe_open(&pipe, world,
                              &(tutti_pipe_options){ stages, s.stage, s.in_flight, ranks, (uint64_t)s.pipeline,
                                                     s.stage > 0 ? FLOATS : 0, s.stage < stages - 1 ? FLOATS : 0 },
                              err));
    status = pipelines == 1 ? tutti_pipe_run(pipe, between, &work, err) : TUTTI_OK; /* emptied, and on */
    if (status == TUTTI_OK)
        status = tutti_pipe_run(pipe, last, &work, err);
    tutti_pipe_close(pipe);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(s.forwards == last && s.backwards == last, "%lld of %lld micro-batches", (long long)s.backwards,
                   (long long)last);
    return TUTTI_OK;
}

static tutti_status pipe_alone(tutti_world *world, explore_case *c, tutti_error *err)
{
    return run(world, c, 1, -1, err);
}

static tutti_status pipe_waves(tutti_world *world, explore_case *c, tutti_error *err)
{
    return run(world, c, 2 + (int)explore_draw(c, "pipelines", 2), (int64_t)explore_draw(c, "distance", 3), err);
}

const explore_piece explore_pipe_pieces[] = {
    { .name = "pipe",
      .help = "stages of one pipeline: order, slots, versions, lengths; emptied once in the middle",
      .least = 1,
      .most = STAGES,
      .rank_main = pipe_alone },
    { .name = "pipe-waves",
      .help = "two or three pipelines by waves with a gate at each stage: staleness, clocks, nobody waits for ever",
      .least = 4,
      .most = 9,
      .rank_main = pipe_waves },
    { .name = "pipe-dies",
      .help = "a rank is killed while a pipeline runs: all others end",
      .least = 2,
      .most = STAGES,
      .rank_main = pipe_alone,
      .deaths = true,
      .steps = 1000 },
    { 0 }
};
