/* Pieces: training runs of the engine on a quadratic, against the same algorithm computed alone
   in double precision (those of gossip methods: pieces_gossip.c); checkpoints. */
#include "place.h"
#include "training.h"
#include "tutti/tutti.h"
#include "tutti/method/gossip.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill_initial(void *user, int tensor, float *values)
{
    const training *const t = user;
    size_t first = 0;

    for (int k = 0; k < tensor; k++)
        first += t->count[k];
    for (size_t i = 0; i < t->count[tensor]; i++)
        values[i] = (float)((first + i) % PERIOD) / 8 - 3;
}

/* ---- references: one step ---- */
void training_ddp(training *t, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        double sum = 0;
        for (int r = 0; r < workers; r++)
            sum += (t->x[0][i] - pull(r, t->step, (size_t)i)) / workers;
        for (int r = 0; r < workers; r++)
            t->x[r][i] -= rate * sum;
    }
}

static void step_local(training *t, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        double mean = 0;
        for (int r = 0; r < workers; r++) {
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
            mean += t->x[r][i] / workers;
        }
        for (int r = 0; r < workers && (t->step + 1) % 2 == 0; r++)
            t->x[r][i] = mean;
    }
}

/* ---- the run ---- */
static tutti_status open_engine(tutti_engine **e, tutti_world *world, training *t, tutti_error *err)
{
    static const char *const names[TENSORS] = { "c", "b", "a" };
    tutti_param params[TENSORS];
    const tutti_engine_options options = {
        .method = t->is.method, .codec = t->is.codec, .lane = t->is.codec != NULL ? 2 : 0, .optimizer = "sgd(lr=0.25)",
        .batch = 2, .initial = fill_initial, .user = t,
    };

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { t->count[k] }, .unit = TENSORS - 1 - k };
    return tutti_engine_open(e, world, params, TENSORS, &options, err);
}

static tutti_status passes(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const uint64_t step = m->step;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int k = 0; k < TENSORS; k++) {
            const tutti_tensor *const tensor = &m->layout->tensor[k];
            for (size_t i = tensor->first; i < tensor->first + tensor->count; i++)
                m->g[i] = m->x[i] - (float)pull(m->rank, step, i);
            explore_dawdle(200);
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? TUTTI_OK : status;
}

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(passes(e, err));
    return tutti_engine_step(e, err);
}

/* Tensors stand in x at their places; the pattern runs over places, so the reference
   of place i is that of i % PERIOD. */
static tutti_status compare(const tutti_method *m, const double *x, const char *when, tutti_error *err)
{
    for (size_t i = 0; i < m->layout->used; i++)
        EXPLORE_EXPECT(fabs(m->x[i] - x[i % PERIOD]) <= 1e-4,
                       "%s: worker %d of %d, %s %llu steps: x[%zu] is %.7g instead of %.7g", m->ops->name, m->rank,
                       m->workers, when, (unsigned long long)m->step, i, (double)m->x[i], x[i % PERIOD]);
    return TUTTI_OK;
}

/* Members of a graph wait for their neighbours only: of two members, one may be as many exchanges
   ahead as the other is neighbours away (d-psgd.md, invariant 8), and each step has one, or one in
   `every`. The search is breadth first,
   along in-neighbours. */
static tutti_status check_lock_step(const training *t, const explore_case *c, const tutti_method *m, tutti_error *err)
{
    const int *const begun = (const int *)(const void *)c->shared;
    const int every = t->is.every > 0 ? (int)t->is.every : 1;
    int distance[EXPLORE_RANKS], in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < m->workers; r++)
        distance[r] = r == m->rank ? 0 : EXPLORE_RANKS;
    for (int far = 0; far < m->workers; far++)
        for (int r = 0; r < m->workers; r++) {
            tutti_graph_round(t->graph, 0, r, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (int a = 0; distance[r] == far && a < n_in; a++)
                distance[in[a]] = distance[in[a]] < far + 1 ? distance[in[a]] : far + 1;
        }
    for (int r = 0; r < m->workers; r++)
        EXPLORE_EXPECT(begun[m->rank] - begun[r] <= every * distance[r],
                       "worker %d begins step %d when worker %d, %d neighbours away, has begun %d only", m->rank,
                       begun[m->rank] - 1, r, distance[r], begun[r]);
    return TUTTI_OK;
}

static tutti_status train_checked(training *t, explore_case *c, tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    double mean[PERIOD] = { 0 };
    bool under_way;

    for (int r = 0; r < m->workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->anchor[i] = t->x[r][i] = (double)i / 8 - 3;
    TUTTI_TRY(compare(m, t->x[m->rank], "after", err));
    for (t->step = 0; t->step < STEPS;) {
        ((int *)(void *)c->shared)[m->rank]++;
        if (t->graph != NULL && t->is.overlap == 0 && tutti_graph_period(t->graph) == 1)
            TUTTI_TRY(check_lock_step(t, c, m, err));
        TUTTI_TRY(one_step(e, err));
        t->is.next(t, m->workers);
        t->step++;
        TUTTI_TRY(compare(m, t->x[m->rank], "after", err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    under_way = t->is.overlap > 0 && (t->is.round == 0 || t->step % t->is.round > 0);
    for (int r = 0; r < m->workers; r++)
        for (int i = 0; i < PERIOD; i++)
            mean[i] += (under_way ? t->own[r].x[i] + t->flies[r].x[i] : t->x[r][i]) / m->workers;
    return compare(m, mean, "agreed after", err);
}

/* When all have stopped what is pending is exchanged, on all workers: the mean gradients of the
   last steps. */
static tutti_status check_pending(tutti_engine *e, int step, int late, double (*pulled)[PERIOD], tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const tutti_saved *at;
    size_t n;

    TUTTI_TRY(tutti_engine_state(e, &at, &n, err));
    for (size_t k = 0; k < n; k++)
        for (int s = step < late ? 0 : step - late + 1; s <= step; s++) {
            char name[32];
            snprintf(name, sizeof name, "engine.late-%d", s % late);
            for (size_t i = 0; strcmp(at[k].state, name) == 0 && i < at[k].end - at[k].begin; i++)
                EXPLORE_EXPECT(fabs(((const float *)at[k].data)[i] - pulled[s][i % PERIOD]) <= 1e-4,
                               "worker %d of %d, at rest after step %d: the gradient of step %d is %.7g instead of "
                               "%.7g at element %zu of %s",
                               m->rank, m->workers, step, s, (double)((const float *)at[k].data)[i],
                               pulled[s][i % PERIOD], i, at[k].tensor);
        }
    return TUTTI_OK;
}

/* pipe-sgd.md: the mean gradient of K - 1 steps ago is applied, and when the run ends the rest,
   if it drains. One worker, `held`, reaches the end of a step when all others have left it: none
   of them waits there for its exchange. In some seeds the model is evaluated in between. */
static tutti_status pipe_checked(training *t, explore_case *c, tutti_engine *e, int width, bool drains, int held,
                                 tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    int *const ended = (int *)(void *)c->shared;
    const int late = width - 1;
    const uint64_t looks = explore_draw(c, "looks", 2 * STEPS);
    double pulled[STEPS][PERIOD] = { 0 }, *x = t->x[0];

    for (int i = 0; i < PERIOD; i++)
        x[i] = (double)i / 8 - 3;
    for (t->step = 0; t->step < STEPS; t->step++) {
        const int s = (int)t->step;
        TUTTI_TRY(passes(e, err));
        for (int r = 0; r < m->workers && m->rank == held; r++)
            while (r != held && ended[r] <= s)
                tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 100000);
        TUTTI_TRY(tutti_engine_step(e, err));
        ended[m->rank]++;
        for (int i = 0; i < PERIOD; i++) {
            for (int r = 0; r < m->workers; r++)
                pulled[s][i] += (x[i] - pull(r, t->step, (size_t)i)) / m->workers;
            x[i] -= s >= late ? rate * pulled[s - late][i] : 0;
        }
        TUTTI_TRY(compare(m, x, "in step", err));
        if (t->step == looks) {
            TUTTI_TRY(check_pending(e, s, late, pulled, err));
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(compare(m, x, "shown in step", err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    for (int s = STEPS - late; s < STEPS && drains; s++)
        for (int i = 0; i < PERIOD; i++)
            x[i] -= rate * pulled[s][i];
    return compare(m, x, "agreed after", err);
}

static tutti_status pipe_with(tutti_world *world, explore_case *c, bool dies, tutti_error *err)
{
    static const char *const codecs[] = { NULL, "fp32", "topk(ratio=1)", "ef(threshold(1e-30))" };
    const int width = 2 + (int)explore_draw(c, "width", 2);
    const bool drains = explore_draw(c, "drains", 2) == 0;
    char method[80];
    training *const t = tutti_alloc(1, sizeof *t);
    tutti_engine *e = NULL;
    tutti_status status;

    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    snprintf(method, sizeof method, "pipe-sgd(width=%d,warmup=0,bucket_mb=0.001%s)", width, drains ? "" : ",drain=off");
    t->is.method = method;
    t->is.codec = codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))];
    t->count[0] = 192;
    t->count[1] = 64;
    t->count[2] = 320;
    status = open_engine(&e, world, t, err);
    if (status == TUTTI_OK)
        status =
            pipe_checked(t, c, e, width, drains, dies ? -1 : (int)explore_draw(c, "held", (uint64_t)c->ranks), err);
    tutti_engine_close(e);
    tutti_free(t);
    return status;
}

static tutti_status pipe_sgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    return pipe_with(world, c, false, err);
}

static tutti_status pipe_dies(tutti_world *world, explore_case *c, tutti_error *err)
{
    return pipe_with(world, c, true, err);
}

tutti_status training_run(tutti_world *world, explore_case *c, training_case is, tutti_error *err)
{
    training *const t = tutti_alloc(1, sizeof *t);
    tutti_engine *e = NULL;
    tutti_status status;

    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    t->is = is;
    /* Whole periods: so places and tensors' own elements have one pattern. */
    t->count[0] = is.large ? 70016 : 192;
    t->count[1] = 64;
    t->count[2] = 320;
    status = is.graph == NULL ? TUTTI_OK
             : is.overlap > 0 ? tutti_graph_open_push(&t->graph, is.graph, tutti_world_size(world), err)
                              : tutti_graph_open(&t->graph, is.graph, tutti_world_size(world), err);
    if (status == TUTTI_OK)
        status = open_engine(&e, world, t, err);
    if (status == TUTTI_OK)
        status = train_checked(t, c, e, err);
    tutti_engine_close(e);
    tutti_graph_close(t->graph);
    tutti_free(t);
    return status;
}

/* Codecs that lose nothing, in all forms: messages of one length and of lengths that differ, by
   gather and by owners, sums, and several in a piece. */
static tutti_status encoded(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const codecs[] = {
        "topk(ratio=1)", "threshold(1e-30)", "ef(threshold(1e-30))", "ef(topk(ratio=1),server=on)", "fp32",
        "large(threshold(1e-30),min=200,small=topk(ratio=1))", "large(ef(topk(ratio=1)),min=200)", "ef(powersgd)",
    };

    return training_run(world, c,
                        (training_case){ .method = large ? "ddp(bucket_mb=0.26,first_bucket_mb=0.26)"
                                                         : "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)",
                                         .codec = codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))],
                                         .large = large, .next = training_ddp }, err);
}

static tutti_status encoded_small(tutti_world *world, explore_case *c, tutti_error *err)
{
    return encoded(world, c, false, err);
}

static tutti_status encoded_lanes(tutti_world *world, explore_case *c, tutti_error *err)
{
    return encoded(world, c, true, err);
}

static tutti_status ddp(tutti_world *world, explore_case *c, tutti_error *err)
{
    const training_case ddp_case = { .method = "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)", .next = training_ddp };

    return training_run(world, c, ddp_case, err);
}

static tutti_status ddp_lanes(tutti_world *world, explore_case *c, tutti_error *err)
{
    return training_run(world, c,
                        (training_case){ .method = "ddp(bucket_mb=0.26,first_bucket_mb=0.26)", .large = true,
                                         .next = training_ddp }, err);
}

static tutti_status local_sgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    return training_run(world, c, (training_case){ .method = "local-sgd(period=2)", .next = step_local }, err);
}

/* ---- checkpoints ---- */
/* What worker r holds in save number g. */
static void hold(const explore_case *c, int rank, int g, float *shared, float *own, tutti_saved items[2])
{
    const uint64_t begin = (uint64_t)(100 * rank / c->ranks), end = (uint64_t)(100 * (rank + 1) / c->ranks);

    for (uint64_t i = begin; i < end; i++)
        shared[i - begin] = (float)(g * 1000) + (float)i;
    for (int i = 0; i < 7; i++)
        own[i] = (float)(g * 1000 + rank * 50 + i);
    items[0] = (tutti_saved){
        .state = "x", .tensor = "w", .keep = TUTTI_SAME, .dtype = TUTTI_F32, .owner = -1, .count = 100, .begin = begin,
        .end = end, .data = shared,
    };
    items[1] = (tutti_saved){
        .state = "own", .tensor = "", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_F32, .owner = rank, .count = 7, .begin = 0,
        .end = 7, .data = own,
    };
}

/* The newest checkpoint is whole, and one save's throughout; it is no older than
   save `least` (0: there may be none). */
static tutti_status look(const explore_case *c, tutti_runtime *rt, int least, tutti_error *err)
{
    char directory[200], found[400];
    tutti_checkpoint *k;
    float x[100], own[EXPLORE_RANKS][7];
    tutti_saved targets[1 + EXPLORE_RANKS];
    tutti_status status;
    int g;

    explore_place(c, directory, sizeof directory);
    status = tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, err);
    if (status != TUTTI_OK)
        return least == 0 ? TUTTI_OK : status;
    TUTTI_TRY(tutti_checkpoint_open(&k, rt, found, err));
    g = (int)tutti_checkpoint_step(k);
    targets[0] = (tutti_saved){
        .state = "x", .tensor = "w", .keep = TUTTI_SAME, .dtype = TUTTI_F32, .owner = -1, .count = 100, .begin = 0,
        .end = 100, .data = x,
    };
    for (int r = 0; r < c->ranks; r++)
        targets[1 + r] = (tutti_saved){
            .state = "own", .tensor = "", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_F32, .owner = r, .count = 7,
            .begin = 0, .end = 7, .data = own[r],
        };
    status = tutti_checkpoint_read(k, targets, 1 + (size_t)c->ranks, err);
    tutti_checkpoint_close(k);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(g >= least, "the newest checkpoint is number %d, but number %d was saved", g, least);
    for (int i = 0; i < 100; i++)
        EXPLORE_EXPECT(x[i] == (float)(g * 1000 + i), "checkpoint %d: element %d is %g", g, i, (double)x[i]);
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < 7; i++)
            EXPLORE_EXPECT(own[r][i] == (float)(g * 1000 + r * 50 + i),
                           "checkpoint %d: own element %d of worker %d is %g", g, i, r, (double)own[r][i]);
    return TUTTI_OK;
}

static tutti_status checkpoint(tutti_world *world, explore_case *c, tutti_error *err)
{
    int *const saved = (int *)(void *)c->shared;
    char directory[200];
    float shared[100], own[7];
    tutti_saved items[2];

    explore_place(c, directory, sizeof directory);
    for (int g = 1; g <= 2; g++) {
        hold(c, tutti_world_rank(world), g, shared, own, items);
        explore_dawdle(10000);
        TUTTI_TRY(tutti_checkpoint_save(world, directory, (uint64_t)g, items, 2, "{}", 1, err));
        *saved = g; /* from the moment that the first rank was notified of success */
        if (!c->piece->deaths)
            TUTTI_TRY(look(c, tutti_world_runtime(world), g, err));
    }
    return TUTTI_OK;
}

static tutti_status judge_checkpoint(const explore_case *c, tutti_error *err)
{
    char directory[200];
    tutti_runtime *rt;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    for (int r = 0; r < c->ranks && status == TUTTI_OK; r++)
        if (c->rank[r].end == EXPLORE_ENDED && c->rank[r].status != TUTTI_OK &&
            !(c->piece->deaths && c->rank[r].status == TUTTI_ERR_PEER))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d: %s", r, c->rank[r].err.text);
    if (status == TUTTI_OK)
        status = look(c, rt, *(const int *)(const void *)c->shared, err);
    explore_place(c, directory, sizeof directory);
    explore_place_remove(directory);
    tutti_runtime_close(rt);
    return status;
}

const explore_piece explore_train_pieces[] = {
    { .name = "ddp", .help = "ddp in small buckets", .least = 2, .most = 4, .rank_main = ddp },
    { .name = "ddp-lanes",
      .help = "ddp whose first bucket goes by a lane",
      .least = 2,
      .most = 3,
      .rank_main = ddp_lanes },
    { .name = "encoded",
      .help = "ddp through codecs that lose nothing, in small buckets",
      .least = 2,
      .most = 5,
      .rank_main = encoded_small },
    { .name = "encoded-lanes",
      .help = "the same, two pieces at a time on lanes",
      .least = 2,
      .most = 4,
      .rank_main = encoded_lanes },
    { .name = "encoded-dies",
      .help = "a rank is killed while gradients travel through a codec: all others end",
      .least = 2,
      .most = 5,
      .rank_main = encoded_small,
      .deaths = true },
    { .name = "pipe-sgd",
      .help = "pipe-sgd: gradients travel beside the next steps, through codecs that lose nothing and without; one "
              "worker is held up at the end of each step until the others have left it",
      .least = 2,
      .most = 4,
      .rank_main = pipe_sgd },
    { .name = "pipe-sgd-dies",
      .help = "a rank is killed while gradients travel beside the next steps: all others end",
      .least = 2,
      .most = 4,
      .rank_main = pipe_dies,
      .deaths = true },
    { .name = "local-sgd", .help = "local-sgd(period=2)", .least = 2, .most = 5, .rank_main = local_sgd },
    { .name = "ddp-dies",
      .help = "a rank is killed while ddp trains: all others end",
      .least = 2,
      .most = 4,
      .rank_main = ddp,
      .deaths = true },
    { .name = "checkpoint",
      .help = "two saves; after each the newest is whole and the one just saved",
      .least = 1,
      .most = 5,
      .rank_main = checkpoint,
      .judge = judge_checkpoint },
    { .name = "checkpoint-dies",
      .help = "a rank is killed while saving: what is found afterwards is whole",
      .least = 2,
      .most = 5,
      .rank_main = checkpoint,
      .judge = judge_checkpoint,
      .deaths = true,
      .steps = 1000 },
    { 0 },
};
