/* Pieces: diloco, whose fragments are exchanged while the next steps compute. Every step, the model
   shown and what is at rest are compared with a computation of the same rule in double precision.
   One worker is held up before the end of each step until the others have left it: with a delay
   none of them waits there for more than it has sent before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "training.h"

enum { ROUNDS = 9 };
enum { NONE, EAGER, DELAYED };

typedef struct streaming {
    int every, fragments, delay; /* steps between two exchanges */
    double mix;
    bool strided;
    int overlap;                 /* whole rounds: NONE, EAGER, DELAYED */
    /* with overlap: theta and v of each worker, and how far it has moved in its last round */
    double slow[EXPLORE_RANKS][TENSORS][PERIOD], pace[EXPLORE_RANKS][TENSORS][PERIOD],
        last[EXPLORE_RANKS][TENSORS][PERIOD];
    int part[TENSORS];           /* the fragment of each tensor */
    double x[EXPLORE_RANKS][TENSORS][PERIOD];
    double theta[TENSORS][PERIOD], v[TENSORS][PERIOD], sent[TENSORS][PERIOD]; /* sent: the mean displacement */
    int held;                    /* the worker that is held up; -1: none */
    uint64_t looks;              /* the step after which the model is evaluated */
} streaming;

static const size_t counts[TENSORS] = { 192, 64, 320 }; /* whole periods */

static void fill_streaming(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = (float)(i % PERIOD) / 8 - (float)tensor;
}

/* Tensor t of fragment p of round k: what is sent off, and what becomes of it. */
static void send_off(streaming *t, int tensor, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        t->sent[tensor][i] = 0;
        for (int r = 0; r < workers; r++)
            t->sent[tensor][i] += (t->theta[tensor][i] - t->x[r][tensor][i]) / workers;
    }
}

static void arrive(streaming *t, int tensor, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        t->v[tensor][i] = 0.5 * t->v[tensor][i] + t->sent[tensor][i];
        t->theta[tensor][i] -= 0.5 * (t->sent[tensor][i] + 0.5 * t->v[tensor][i]);
        for (int r = 0; r < workers; r++)
            t->x[r][tensor][i] = t->mix * t->x[r][tensor][i] + (1 - t->mix) * t->theta[tensor][i];
    }
}

/* Tensor t with overlap, at the end of its round: what has arrived is used, and what is sent. */
static void overlap(streaming *t, int tensor, int workers, bool first)
{
    for (int i = 0; i < PERIOD; i++) {
        double arrived = t->sent[tensor][i], moved;
        t->sent[tensor][i] = 0;
        for (int r = 0; r < workers; r++) {
            double *x = &t->x[r][tensor][i], *theta = &t->slow[r][tensor][i], *v = &t->pace[r][tensor][i], d = arrived;
            moved = *theta - *x;
            if (t->overlap == EAGER)
                d += (moved - t->last[r][tensor][i]) / workers;
            if (t->overlap == EAGER || !first) {
                *v = 0.5 * *v + d;
                *theta -= 0.5 * (d + 0.5 * *v);
            }
            *x = *theta;
            t->last[r][tensor][i] = moved;
            t->sent[tensor][i] += moved / workers;
        }
    }
}

static void follow(streaming *t, int step, int workers)
{
    const int done = step + 1, out = done + t->delay, k_round = done / t->every - 1;

    for (int k = 0; k < TENSORS; k++) {
        for (int r = 0; r < workers; r++)
            for (int i = 0; i < PERIOD; i++)
                t->x[r][k][i] -= rate * (t->x[r][k][i] - pull(r, (uint64_t)step, (size_t)i));
        if (t->overlap != NONE) {
            if (done % t->every == 0 && k_round % t->fragments == t->part[k])
                overlap(t, k, workers, k_round < t->fragments);
            continue;
        }
        if (out % t->every == 0 && (out / t->every - 1) % t->fragments == t->part[k])
            send_off(t, k, workers);
        if (done % t->every == 0 && (done / t->every - 1) % t->fragments == t->part[k])
            arrive(t, k, workers);
    }
}

static tutti_status compare(const tutti_method *m, const float *is, double (*be)[PERIOD], const char *what,
                            tutti_error *err)
{
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k]; i++)
            EXPLORE_EXPECT(fabs(is[m->layout->tensor[k].first + i] - be[k][i % PERIOD]) <= 1e-4,
                           "worker %d of %d, %s %llu steps: element %zu of tensor %d is %.7g instead of %.7g", m->rank,
                           m->workers, what, (unsigned long long)m->step, i, k,
                           (double)is[m->layout->tensor[k].first + i], be[k][i % PERIOD]);
    return TUTTI_OK;
}

/* At rest an exchange that was under way is over, and its mean is saved. */
static tutti_status check_at_rest(const streaming *t, tutti_engine *e, int step, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const int out = step + 1 + t->delay, p = (out / t->every - 1) % t->fragments;
    const tutti_saved *at;
    size_t n;

    TUTTI_TRY(tutti_engine_state(e, &at, &n, err));
    for (size_t k = 0; k < n && (t->overlap != NONE || out % t->every < t->delay) && out >= t->every; k++) {
        const bool is_mean = strcmp(at[k].state, "diloco.mean") == 0 && t->part[at[k].tensor[0] - 'a'] == p;
        const int tensor = is_mean ? at[k].tensor[0] - 'a' : 0;
        for (size_t i = 0; is_mean && i < at[k].end - at[k].begin; i++)
            EXPLORE_EXPECT(fabs(((const float *)at[k].data)[i] - t->sent[tensor][i % PERIOD]) <= 1e-4,
                           "worker %d of %d, at rest after step %d: the mean displacement of element %zu of %s is %.7g "
                           "instead of %.7g",
                           m->rank, m->workers, step, i, at[k].tensor, (double)((const float *)at[k].data)[i],
                           t->sent[tensor][i % PERIOD]);
    }
    return TUTTI_OK;
}

static void mean_of(const streaming *t, int workers, double (*mean)[PERIOD])
{
    for (int k = 0; k < TENSORS; k++)
        for (int i = 0; i < PERIOD; i++) {
            mean[k][i] = 0;
            for (int r = 0; r < workers; r++)
                mean[k][i] += t->x[r][k][i] / workers;
        }
}

static tutti_status pass(const streaming *t, explore_case *c, tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const int *const ended = (const int *)(const void *)c->shared;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int k = 0; k < TENSORS; k++) {
            const size_t first = m->layout->tensor[k].first;
            for (size_t i = 0; i < counts[k]; i++)
                m->g[first + i] = m->x[first + i] - (float)pull(m->rank, m->step, i);
            explore_dawdle(200);
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    for (int r = 0; r < m->workers && m->rank == t->held; r++)
        while (r != t->held && ended[r] <= (int)m->step)
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 100000);
    return status == TUTTI_CLOSED ? TUTTI_OK : status;
}

static tutti_status train(streaming *t, explore_case *c, tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    double mean[TENSORS][PERIOD];

    for (int k = 0; k < TENSORS; k++)
        for (int i = 0; i < PERIOD; i++) {
            t->theta[k][i] = (double)i / 8 - k;
            for (int r = 0; r < m->workers; r++)
                t->x[r][k][i] = t->slow[r][k][i] = t->theta[k][i];
        }
    for (int s = 0; s < ROUNDS; s++) {
        TUTTI_TRY(pass(t, c, e, err));
        TUTTI_TRY(tutti_engine_step(e, err));
        ((int *)(void *)c->shared)[m->rank]++;
        follow(t, s, m->workers);
        TUTTI_TRY(compare(m, m->x, t->x[m->rank], "after", err));
        if ((uint64_t)s == t->looks) {
            mean_of(t, m->workers, mean);
            TUTTI_TRY(check_at_rest(t, e, s, err));
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(compare(m, m->x, mean, "shown after", err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    mean_of(t, m->workers, mean);
    return compare(m, m->x, mean, "agreed after", err);
}

/* Tensor 2 is the first layer, and as large as the others together. */
static void draw(streaming *t, explore_case *c)
{
    static const int parts[4][2][TENSORS] = { { { 0 } }, { { 0 } }, { { 1, 1, 0 }, { 0, 1, 0 } },
                                              { { 2, 1, 0 }, { 2, 1, 0 } } };

    t->fragments = 1 + (int)explore_draw(c, "fragments", 3);
    t->every = 1 + (int)explore_draw(c, "every", 3);
    t->delay = (int)explore_draw(c, "delay", (uint64_t)t->every);
    t->mix = explore_draw(c, "mix", 2) == 0 ? 0 : 0.25;
    t->strided = t->fragments > 1 && explore_draw(c, "order", 2) == 0;
    memcpy(t->part, parts[t->fragments][t->strided], sizeof t->part);
}

static tutti_status diloco_with(tutti_world *world, explore_case *c, bool overlaps, bool dies, tutti_error *err)
{
    static const char *const ways[] = { "none", "eager", "delayed" };
    static const char *const codecs[] = { NULL, "fp32", "topk(ratio=1)", "ef(threshold(1e-30))" };
    static const char *const names[TENSORS] = { "a", "b", "c" };
    streaming *const t = tutti_alloc(1, sizeof *t);
    tutti_param params[TENSORS];
    char method[200];
    tutti_engine_options options = { .method = method, .optimizer = "sgd(lr=0.25)", .batch = 2,
                                     .initial = fill_streaming };
    tutti_engine *e = NULL;
    tutti_status status;

    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    draw(t, c);
    if (overlaps) {
        t->overlap = explore_draw(c, "overlap", 2) == 0 ? EAGER : DELAYED;
        t->delay = 0;
        t->mix = 0;
    }
    options.codec = codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))];
    t->held = dies || (t->delay == 0 && !overlaps) ? -1 : (int)explore_draw(c, "held", (uint64_t)c->ranks);
    t->looks = explore_draw(c, "looks", 2 * ROUNDS);
    if (t->looks < ROUNDS) /* all come to rest in that step together */
        t->held = -1;
    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { counts[k] }, .unit = TENSORS - 1 - k };
    snprintf(method, sizeof method,
             "diloco(period=%d,fragments=%d%s,delay=%d,mix=%g,overlap=%s,outer=sgd(lr=0.5,momentum=0.5,nesterov=true))",
             t->every * t->fragments, t->fragments, t->strided ? ",order=strided" : "", t->delay, t->mix,
             ways[t->overlap]);
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(t, c, e, err);
    tutti_engine_close(e);
    tutti_free(t);
    return status;
}

static tutti_status diloco(tutti_world *world, explore_case *c, tutti_error *err)
{
    return diloco_with(world, c, false, false, err);
}

static tutti_status diloco_overlaps(tutti_world *world, explore_case *c, tutti_error *err)
{
    return diloco_with(world, c, true, false, err);
}

static tutti_status diloco_dies(tutti_world *world, explore_case *c, tutti_error *err)
{
    return diloco_with(world, c, false, true, err);
}

const explore_piece explore_diloco_pieces[] = {
    { .name = "diloco",
      .help = "diloco: fragments travel beside the next steps, through codecs that lose nothing and without; one "
              "worker is held up at the end of each step until the others have left it",
      .least = 2,
      .most = 4,
      .rank_main = diloco },
    { .name = "diloco-overlaps",
      .help = "diloco whose exchanges have a whole round, delayed or eager; one worker is held up at the end of each "
              "step until the others have left it",
      .least = 2,
      .most = 4,
      .rank_main = diloco_overlaps },
    { .name = "diloco-dies",
      .help = "a rank is killed while fragments travel beside the next steps: all others end",
      .least = 2,
      .most = 4,
      .rank_main = diloco_dies,
      .deaths = true },
    { 0 },
};
