/* Piece: biased-local-sgd, whose passes name their samples. What every worker visited is recorded
   in shared memory, and the run is recomputed from that: which samples slow workers had to take,
   by the newest losses, and the model at which all must arrive. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 96, BATCH = 2, FAST_STEPS = 5, RATIO = 3, EPOCHS = 4, PLACES = 64, VISITS = 512 };
static const double rate = 0.125;

typedef struct visit { uint16_t round, pass, sample, named; float loss; } visit;
typedef struct seen {
    visit of[EXPLORE_RANKS][VISITS];
    int n[EXPLORE_RANKS];
} seen;

static double wants(uint64_t sample, size_t i)
{
    return (double)((sample * 7 + i * 5) % 37) / 4 - 4;
}

/* Up and down as rounds go by: the newest is neither the least nor the most. */
static float loss_of(uint64_t sample, uint64_t round)
{
    return (float)((sample * 37 + round * (round + sample % 7) * 11) % 64) / 16;
}

static void initial(void *user, int tensor, float *values)
{
    (void)user, (void)tensor;
    for (int i = 0; i < PLACES; i++)
        values[i] = (float)i / 8;
}

static tutti_status one_pass(const tutti_method *m, const tutti_pass *p, tutti_engine *e, seen *s, tutti_error *err)
{
    for (int i = 0; i < PLACES; i++)
        m->g[i] = 0;
    for (int64_t b = 0; b < p->samples; b++) {
        const uint64_t sample = p->ids != NULL ? p->ids[b]
                                               : tutti_share_sample(m->share, p->epoch, p->position + (uint64_t)b);
        EXPLORE_CHECK(s->n[m->rank] < VISITS && p->losses != NULL);
        p->losses[b] = loss_of(sample, m->step);
        s->of[m->rank][s->n[m->rank]++] = (visit){ (uint16_t)m->step, (uint16_t)p->index, (uint16_t)sample,
                                                   p->ids != NULL, p->losses[b] };
        for (size_t i = 0; i < PLACES; i++)
            m->g[i] += (m->x[i] - (float)wants(sample, i)) / (float)p->divisor;
    }
    explore_dawdle(m->rank == 0 ? 2000 : 200);
    TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
    return tutti_engine_pass_end(e, 0, err);
}

/* first: the round with which each epoch begins, and one more. */
static tutti_status run(tutti_engine *e, seen *s, int *first, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (bool more = true; more;) {
            tutti_pass p;
            tutti_status status;
            first[epoch + 1] = (int)m->step;
            TUTTI_TRY(tutti_engine_more_epochs(e, epoch + 1, &more, err));
            if (!more)
                break;
            while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
                TUTTI_TRY(one_pass(m, &p, e, s, err));
            if (status != TUTTI_CLOSED)
                return status;
            TUTTI_TRY(tutti_engine_step(e, err));
        }
    return tutti_engine_finish(e, err);
}

/* ---- found again ---- */

/* A round's scores: the newest; of those of the same round the larger. */
static void rescore(const seen *s, int workers, int round, float *score)
{
    float now[SAMPLES];

    for (int k = 0; k < SAMPLES; k++)
        now[k] = -1;
    for (int r = 0; r < workers; r++)
        for (int v = 0; v < s->n[r]; v++)
            if (s->of[r][v].round == round)
                now[s->of[r][v].sample] = fmaxf(now[s->of[r][v].sample], s->of[r][v].loss);
    for (int k = 0; k < SAMPLES; k++)
        score[k] = now[k] >= 0 ? now[k] : score[k];
}

static tutti_status check_lists(const tutti_method *m, const seen *s, const int *first, tutti_error *err)
{
    float score[SAMPLES];

    for (int k = 0; k < SAMPLES; k++)
        score[k] = INFINITY;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const int from = first[epoch], to = first[epoch + 1];
        const tutti_rng draw = { m->rng.seed, tutti_port_of("biased.candidates", 0, 0), (uint64_t)from };
        bool has[SAMPLES] = { false }, top[SAMPLES] = { false };
        uint64_t c[SAMPLES];
        int want = 0;
        for (int r = 0; r < m->workers; r++)
            for (int v = 0; v < s->n[r]; v++) {
                const visit *of = &s->of[r][v];
                if (!of->named || of->round < from || of->round >= to)
                    continue;
                EXPLORE_EXPECT(!has[of->sample], "sample %d is named twice in data pass %d", of->sample, epoch);
                has[of->sample] = true;
                want++;
            }
        const int among = RATIO * want < SAMPLES ? RATIO * want : SAMPLES;
        for (int k = 0; k < among; k++)
            c[k] = tutti_permuted(draw, SAMPLES, (uint64_t)k);
        for (int turn = 0; turn < want; turn++) {
            int best = -1;
            for (int k = 0; k < among; k++)
                if (!top[c[k]] && (best < 0 || score[c[k]] > score[c[best]]))
                    best = k;
            top[c[best]] = true;
        }
        for (int k = 0; k < SAMPLES; k++)
            EXPLORE_EXPECT(has[k] == top[k], "in data pass %d sample %d, of score %g, is %s of the slow workers'",
                           epoch, k, (double)score[k], has[k] ? "one" : "none");
        for (int round = from; round < to; round++)
            rescore(s, m->workers, round, score);
    }
    return TUTTI_OK;
}

/* The model after all rounds, in double, from what each visited. */
static tutti_status check_model(const tutti_method *m, const seen *s, int rounds, tutti_error *err)
{
    double x[PLACES], mean[PLACES];
    int at[EXPLORE_RANKS] = { 0 };

    for (int i = 0; i < PLACES; i++)
        x[i] = (double)i / 8;
    for (int round = 0; round < rounds; round++) {
        memset(mean, 0, sizeof mean);
        for (int r = 0; r < m->workers; r++) {
            double mine[PLACES];
            memcpy(mine, x, sizeof mine);
            while (at[r] < s->n[r] && s->of[r][at[r]].round == round) {
                const int begin = at[r], pass = s->of[r][begin].pass;
                while (at[r] < s->n[r] && s->of[r][at[r]].round == round && s->of[r][at[r]].pass == pass)
                    at[r]++;
                for (size_t i = 0; i < PLACES; i++) {
                    double g = 0;
                    for (int v = begin; v < at[r]; v++)
                        g += (mine[i] - wants(s->of[r][v].sample, i)) / (at[r] - begin);
                    mine[i] -= rate * g;
                }
            }
            for (int i = 0; i < PLACES; i++)
                mean[i] += mine[i] / m->workers;
        }
        memcpy(x, mean, sizeof x);
    }
    for (int i = 0; i < PLACES; i++)
        EXPLORE_EXPECT(fabs((double)m->x[i] - x[i]) <= 1e-4, "worker %d of %d: x[%d] is %.7g instead of %.7g", m->rank,
                       m->workers, i, (double)m->x[i], x[i]);
    return TUTTI_OK;
}

static tutti_status biased(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int n = tutti_world_size(world);
    const int slow = (int)explore_draw(c, "slow", (uint64_t)n), other = (int)explore_draw(c, "other", (uint64_t)n);
    const tutti_param param = { .name = "x", .dims = 1, .dim = { PLACES } };
    char method[200], optimizer[40];
    int used = snprintf(method, sizeof method, "biased-local-sgd(bias_ratio=%d,steps=", RATIO);
    seen *const s = (seen *)(void *)c->shared;
    int first[EPOCHS + 1] = { 0 };
    tutti_engine *e = NULL;
    tutti_status status;

    for (int r = 0; r < n; r++) /* of four workers and more two may be slow */
        used += snprintf(method + used, sizeof method - (size_t)used, "%s%d", r > 0 ? ":" : "",
                         r == slow || (n > 3 && r == other) ? 1 : FAST_STEPS);
    snprintf(method + used, sizeof method - (size_t)used, ")");
    snprintf(optimizer, sizeof optimizer, "sgd(lr=%g)", rate);
    const tutti_engine_options options = { .method = method, .optimizer = optimizer, .batch = BATCH,
                                           .data_samples = SAMPLES, .seed = c->seed, .names = true,
                                           .initial = initial };
    status = tutti_engine_open(&e, world, &param, 1, &options, err);
    if (status == TUTTI_OK)
        status = run(e, s, first, err);
    /* the last round's average has met all: all have recorded theirs */
    if (status == TUTTI_OK && tutti_world_rank(world) == 0)
        status = check_lists(tutti_engine_method(e), s, first, err);
    if (status == TUTTI_OK)
        status = check_model(tutti_engine_method(e), s, first[EPOCHS], err);
    tutti_engine_close(e);
    return status;
}

const explore_piece explore_chosen_pieces[] = {
    { .name = "biased-local-sgd", .help = "biased-local-sgd with one or two slow workers, several data passes",
      .least = 2, .most = 5, .rank_main = biased },
    { 0 }
};
