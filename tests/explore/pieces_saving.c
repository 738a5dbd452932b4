/* Pieces: checkpoints that are written in the background, one after each step, while all are there
   and while ranks die and connections break (explore.h: losses). What must hold at any moment: the
   newest checkpoint is complete, and no older than one that a rank knows to be written. */
#include "explore.h"
#include "place.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { STEPS = 4, COUNT = 300 };

/* The newest step that a rank knows to have a checkpoint; 0: none. In shared memory. */
static int *known(const explore_case *c)
{
    return (int *)(void *)c->shared;
}

static tutti_status look(const explore_case *c, tutti_runtime *rt, tutti_error *err)
{
    char directory[200], found[400];
    tutti_checkpoint *k;
    tutti_status status;
    const int least = *known(c);
    int step;

    explore_place(c, directory, sizeof directory);
    status = tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, err);
    if (status != TUTTI_OK)
        return least == 0 ? TUTTI_OK : status;
    TUTTI_TRY(tutti_checkpoint_open(&k, rt, found, err));
    step = (int)tutti_checkpoint_step(k);
    status = tutti_checkpoint_verify(k, err);
    tutti_checkpoint_close(k);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(step >= least, "the newest checkpoint is of step %d, but that of step %d was written", step, least);
    return TUTTI_OK;
}

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (size_t i = 0; i < COUNT; i++)
            m->g[i] = m->x[i] - (float)((m->rank * 13 + (int)m->step * 29 + (int)(i % 64) * 7) % 41) / 4;
        explore_dawdle(2000);
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* The workers that are left, as last agreed, a bit each. */
static unsigned members(const tutti_engine *e, const explore_case *c)
{
    unsigned bits = 0;

    for (int r = 0; r < c->ranks; r++)
        bits |= (unsigned)tutti_engine_has(e, r) << r;
    return bits;
}

/* The save of that step is over. Has this rank seen that it is a checkpoint? */
static bool note(const tutti_engine *e, explore_case *c, int step, uint64_t *written)
{
    const uint64_t before = *written;
    tutti_saves saves;

    tutti_engine_saves(e, &saves);
    *written = saves.written;
    if (*written > before && step > *known(c))
        *known(c) = step;
    return *written > before;
}

static tutti_status evaluate(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_eval_begin(e, err));
    return tutti_engine_eval_end(e, err);
}

/* Evaluations are meetings, in which workers agree on losses while a save is under way. */
static tutti_status train(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const uint64_t ends = explore_draw(c, "ends", 1 << STEPS), shows = explore_draw(c, "shows", 1 << STEPS);
    char directory[200];
    uint64_t written = 0;
    unsigned then = 0;

    explore_place(c, directory, sizeof directory);
    for (int s = 1; s <= STEPS; s++) {
        bool over;
        TUTTI_TRY(one_step(e, err));
        if (shows >> (s - 1) & 1)
            TUTTI_TRY(evaluate(e, err));
        if ((ends & ends / 2) >> (s - 1) & 1)
            TUTTI_TRY(tutti_engine_save_end(e, err));
        TUTTI_TRY(tutti_engine_save_begin(e, directory, "{}", 2, err));
        over = note(e, c, s - 1, &written);
        EXPLORE_EXPECT(s == 1 || over || members(e, c) != then, "the checkpoint of step %d is lost without a worker",
                       s - 1);
        then = members(e, c);
        if (!c->piece->losses)
            TUTTI_TRY(look(c, tutti_engine_method(e)->rt, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    (void)note(e, c, STEPS, &written);
    EXPLORE_CHECK(c->piece->losses > 0 || written == STEPS);
    return TUTTI_OK;
}

static tutti_status saving(tutti_world *world, explore_case *c, const char *method, tutti_error *err)
{
    const tutti_param param = { .name = "x", .dims = 1, .dim = { COUNT } };
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(tutti_engine_open(&e, world, &param, 1,
                                &(tutti_engine_options){ .method = method, .optimizer = "sgd(lr=0.125,momentum=0.5)",
                                                         .batch = 2 },
                                err));
    explore_ready();
    status = train(e, c, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status saving_in_the_background(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = { "ddp", "zero", "local-sgd(period=2)", "d-psgd(graph=ring)" };

    return saving(world, c, methods[explore_draw(c, "method", TUTTI_LENGTH(methods))], err);
}

static tutti_status saving_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    return saving(world, c, "d-psgd(graph=complete)", err);
}

/* The first rank dies in a call of the thread that writes, and another's is slow: it still writes
   for the dead rank while the others have a new first one. */
static tutti_status saving_first_dies(tutti_world *world, explore_case *c, tutti_error *err)
{
    explore_dies_in(0, "checkpoint-0", 150);
    explore_slow_thread(1 + (int)explore_draw(c, "slow", (uint64_t)c->ranks - 1), "checkpoint-0", INT64_C(1) << 22);
    return saving_goes_on(world, c, err);
}

/* A rank that was given up, or has given up all others, ends with TUTTI_ERR_PEER. Where a
   connection was cut both sides may save, and each removes temporary directories of the other: one
   of them then ends with TUTTI_ERR_IO. */
static bool may_end(const explore_case *c, tutti_status status)
{
    return status == TUTTI_OK || (c->piece->losses > 0 && status == TUTTI_ERR_PEER) ||
           (c->cut && status == TUTTI_ERR_IO);
}

static tutti_status judge_saving(const explore_case *c, tutti_error *err)
{
    char directory[200];
    tutti_runtime *rt;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    for (int r = 0; r < c->ranks && status == TUTTI_OK; r++)
        if (c->rank[r].end == EXPLORE_ENDED && !may_end(c, c->rank[r].status))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d: %s", r, c->rank[r].err.text);
    if (status == TUTTI_OK)
        status = look(c, rt, err);
    explore_place(c, directory, sizeof directory);
    explore_place_remove(directory);
    tutti_runtime_close(rt);
    return status;
}

const explore_piece explore_saving_pieces[] = {
    { .name = "checkpoint-async",
      .help = "checkpoints are written by a thread while the next steps are made: each one that is over is complete",
      .least = 2,
      .most = 4,
      .rank_main = saving_in_the_background,
      .judge = judge_saving },
    { .name = "checkpoint-async-goes-on",
      .help = "the same while ranks die and connections break: those who stay train on, and the newest checkpoint that "
              "one knows of is there",
      .least = 2,
      .most = 5,
      .rank_main = saving_goes_on,
      .judge = judge_saving,
      .losses = 4,
      .steps = 3000 },
    { .name = "checkpoint-async-first-dies",
      .help = "the first worker dies while its thread writes, and another still writes for it",
      .least = 3,
      .most = 4,
      .rank_main = saving_first_dies,
      .judge = judge_saving,
      .losses = 1,
      .steps = 3000 },
    { 0 }
};
