/* Pieces: training runs of gossip methods, and of slowmo over them, against the same algorithm
   computed alone in double precision. */
#include "training.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- references: one step ---- */
static void mix(training *t, int workers, uint64_t round, double (*u)[PERIOD])
{
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < workers; r++) {
        tutti_graph_round(t->graph, round, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int i = 0; i < PERIOD; i++) {
            t->x[r][i] = self * u[r][i];
            for (int a = 0; a < n_in; a++)
                t->x[r][i] += w_in[a] * u[in[a]][i];
        }
    }
}

static void step_awc(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD], x[EXPLORE_RANKS][PERIOD];

    memcpy(u, t->x, sizeof u);
    memcpy(x, t->x, sizeof x);
    mix(t, workers, t->step, u);
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] -= rate * (x[r][i] - pull(r, t->step, (size_t)i));
}

static void step_atc(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD];

    memcpy(u, t->x, sizeof u);
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            u[r][i] -= rate * (u[r][i] - pull(r, t->step, (size_t)i));
    mix(t, workers, t->step, u);
}

/* saddle: the gradient of worker r's samples at x perturbed by `climb`. The norm is over all
   elements. */
static const double climb = 2;
static void sam(const training *t, int r, const double *x, double *g)
{
    double norm = 0;

    for (int i = 0; i < PERIOD; i++) {
        g[i] = x[i] - pull(r, t->step, (size_t)i);
        norm += g[i] * g[i] * (double)(t->count[0] + t->count[1] + t->count[2]) / PERIOD;
    }
    for (int i = 0; i < PERIOD; i++)
        g[i] += climb * g[i] / sqrt(norm);
}

static void step_sam(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD], g[PERIOD];

    memcpy(u, t->x, sizeof u);
    for (int r = 0; r < workers; r++) {
        sam(t, r, t->x[r], g);
        for (int i = 0; i < PERIOD; i++)
            u[r][i] -= rate * g[i];
    }
    mix(t, workers, t->step, u);
}

/* Every neighbour's samples at my model, by their weights. */
static void step_cross(training *t, int workers)
{
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;
    double x[EXPLORE_RANKS][PERIOD], g[PERIOD];

    memcpy(x, t->x, sizeof x);
    mix(t, workers, t->step, x);
    for (int r = 0; r < workers; r++) {
        tutti_graph_round(t->graph, t->step, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = -1; a < n_in; a++) {
            sam(t, a < 0 ? r : in[a], x[r], g);
            for (int i = 0; i < PERIOD; i++)
                t->x[r][i] -= rate * (a < 0 ? self : w_in[a]) * g[i];
        }
    }
}

static void step_twice(training *t, int workers) /* two rounds a step */
{
    double u[EXPLORE_RANKS][PERIOD];

    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
    for (uint64_t k = 0; k < 2; k++) {
        memcpy(u, t->x, sizeof u);
        mix(t, workers, 2 * t->step + k, u);
    }
}

/* sgp.md, overlap: what was sent `overlap` steps ago is added to numerator and weight, and these
   are split and sent; then comes a step at the de-biased model, applied to the numerator. */
static void step_push(training *t, int workers)
{
    const uint64_t every = (uint64_t)t->is.overlap, since = t->is.round > 0 ? t->step % t->is.round : t->step,
                   before = t->is.round > 0 ? t->step / t->is.round * ((t->is.round + every - 1) / every) : 0;
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < workers && since == 0; r++) {
        memcpy(t->own[r].x, t->x[r], sizeof t->own[r].x);
        t->own[r].w = 1;
    }
    for (int r = 0; r < workers && since % every == 0; r++) {
        for (int i = 0; i < PERIOD; i++)
            t->own[r].x[i] += t->flies[r].x[i];
        t->own[r].w += t->flies[r].w;
        memset(&t->flies[r], 0, sizeof t->flies[r]);
    }
    for (int r = 0; r < workers && since % every == 0; r++) {
        double kept = 1;
        tutti_graph_round(t->graph, before + since / every, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = 0; a < n_out; a++) {
            for (int i = 0; i < PERIOD; i++)
                t->flies[out[a]].x[i] += w_out[a] * t->own[r].x[i];
            t->flies[out[a]].w += w_out[a] * t->own[r].w;
            kept -= w_out[a];
        }
        for (int i = 0; i < PERIOD; i++)
            t->own[r].x[i] *= kept;
        t->own[r].w *= kept;
    }
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++) {
            t->own[r].x[i] -= rate * (t->own[r].x[i] / t->own[r].w - pull(r, t->step, (size_t)i));
            t->x[r][i] = t->own[r].x[i] / t->own[r].w;
        }
}

/* what is in flight counts. */
static void slow(training *t, int workers)
{
    if ((t->step + 1) % t->is.round != 0)
        return;
    for (int i = 0; i < PERIOD; i++) {
        double mean = 0;
        for (int r = 0; r < workers; r++) {
            mean += (t->is.overlap > 0 ? t->own[r].x[i] + t->flies[r].x[i] : t->x[r][i]) / workers;
            t->flies[r].x[i] = t->flies[r].w = 0;
        }
        t->u[i] = t->u[i] / 2 + (t->anchor[i] - mean) / rate;
        t->anchor[i] -= rate * t->u[i];
        for (int r = 0; r < workers; r++)
            t->x[r][i] = t->own[r].x[i] = t->anchor[i];
    }
}

static void step_slow_local(training *t, int workers)
{
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
    slow(t, workers);
}

static void step_slow_awc(training *t, int workers)
{
    step_awc(t, workers);
    slow(t, workers);
}

static void step_slow_push(training *t, int workers)
{
    step_push(t, workers);
    slow(t, workers);
}

/* noloco: own.x is the outer momentum, flies.x the slow model. Both means are of one round's
   partners. */
static void step_slow_pairs(training *t, int workers)
{
    double theta[EXPLORE_RANKS][PERIOD], moved[EXPLORE_RANKS][PERIOD], mean[EXPLORE_RANKS][PERIOD];

    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++) {
            if (t->step == 0)
                t->flies[r].x[i] = t->x[r][i];
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
            theta[r][i] = t->flies[r].x[i];
            moved[r][i] = t->x[r][i] - theta[r][i];
        }
    if ((t->step + 1) % t->is.every != 0)
        return;
    mix(t, workers, t->step / t->is.every, theta);
    memcpy(mean, t->x, sizeof mean);
    mix(t, workers, t->step / t->is.every, moved);
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++) {
            t->own[r].x[i] = 0.5 * t->own[r].x[i] + 0.75 * t->x[r][i] + 0.875 * (mean[r][i] - theta[r][i]);
            t->flies[r].x[i] += t->own[r].x[i];
            t->x[r][i] = t->flies[r].x[i];
        }
}

/* ---- pieces ---- */
static tutti_status d_psgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const struct { const char *method, *graph; reference next; } runs[] = {
        { "d-psgd(graph=ring)",           "ring",        step_awc },
        { "d-psgd(graph=exponential)",    "exponential", step_awc },
        { "d-psgd(graph=complete)",       "complete",    step_awc },
        { "d-psgd(graph=ring,order=atc)", "ring",        step_atc },
        { "sgp(graph=exponential)",       "exponential", step_atc },
        { "rand-psgd(rounds=2)",          "random-ring", step_twice },
    };
    const uint64_t k = explore_draw(c, "graph", TUTTI_LENGTH(runs));

    return training_run(
        world, c, (training_case){ .method = runs[k].method, .graph = runs[k].graph, .next = runs[k].next }, err);
}

/* bagua: machines of some workers, in sums and in models, which change no model; pairs; and models
   that travel during the pass. */
static tutti_status bagua_with(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const fusion[] = { "", ",fusion=off" };
    const uint64_t k = explore_draw(c, "algorithm", 3);
    int team = 1 + (int)explore_draw(c, "team", (uint64_t)c->ranks);
    char method[120];

    while (c->ranks % team != 0 || (team == c->ranks && team > 1))
        team--;
    if (k == 1 && c->ranks / team % 2 == 0)
        return training_run(
            world, c,
            (training_case){ .method = "bagua(algorithm=decentralized,peer_selection=shift_one,hierarchical=off)",
                             .graph = "shift-one", .large = large, .next = step_awc }, err);
    snprintf(method, sizeof method, "bagua(algorithm=%s,hierarchical=%d%s)",
             k == 0 ? "gradient_allreduce" : "decentralized", team,
             fusion[explore_draw(c, "fusion", TUTTI_LENGTH(fusion))]);
    return training_run(world, c,
                        (training_case){ .method = method, .graph = k == 0 ? NULL : "complete", .large = large,
                                         .next = k == 0 ? training_ddp : step_awc }, err);
}

static tutti_status bagua(tutti_world *world, explore_case *c, tutti_error *err)
{
    return bagua_with(world, c, false, err);
}

static tutti_status bagua_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return bagua_with(world, c, true, err);
}

/* Differences to public copies (d-psgd with gamma 1): none is lost and each is applied in full. A
   difference that is missed, applied twice, or of another round stays in a copy for good. */
static tutti_status choco_with(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const codecs[] = { "fp32", "topk(ratio=1)", "large(topk(ratio=1),min=200)" };
    static const char *const graphs[] = { "ring", "exponential", "complete", "directed-ring" };
    const char *const graph = graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    /* the gradient first leaves nothing to compute during the averaging */
    const bool atc = explore_draw(c, "order", 2) == 0 && !large;
    char method[80];

    snprintf(method, sizeof method, "d-psgd(graph=%s,gamma=1%s)", graph, atc ? ",order=atc" : "");
    return training_run(world, c,
                        (training_case){ .method = method, .graph = graph, .large = large,
                                         .codec = codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))],
                                         .next = atc ? step_atc : step_awc }, err);
}

static tutti_status choco(tutti_world *world, explore_case *c, tutti_error *err)
{
    return choco_with(world, c, false, err);
}

static tutti_status choco_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return choco_with(world, c, true, err);
}

/* Gradients travel back along the edges on which models came; codecs lose nothing. */
static tutti_status saddle_with(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "complete", "star", "random-matching" };
    static const char *const codecs[] = { NULL, "fp32", "topk(ratio=1)" };
    const char *const codec = large ? NULL : codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))];
    const char *const graph = graphs[large ? 0 : explore_draw(c, "graph", codec == NULL ? TUTTI_LENGTH(graphs) : 3)];
    const bool back = large || explore_draw(c, "back", 4) > 0;
    char method[80];

    snprintf(method, sizeof method, "saddle(variant=%s,graph=%s,rho=%g)", back ? "n" : "q", graph, climb);
    return training_run(world, c,
                        (training_case){ .method = method, .codec = codec, .graph = graph, .large = large,
                                         .next = back ? step_cross : step_sam }, err);
}

static tutti_status saddle(tutti_world *world, explore_case *c, tutti_error *err)
{
    return saddle_with(world, c, false, err);
}

static tutti_status saddle_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return saddle_with(world, c, true, err);
}

/* What is kept is read while the mixer's own thread adds arriving models to it. */
static tutti_status sgp_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "star(weights=push)", "directed-ring" };
    const char *const graph = graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    const int overlap = 1 + (int)explore_draw(c, "overlap", 3);
    char method[80];

    snprintf(method, sizeof method, "sgp(graph=%s,overlap=%d)", graph, overlap);
    return training_run(world, c,
                        (training_case){ .method = method, .graph = graph, .overlap = overlap, .large = true,
                                         .next = step_push }, err);
}

/* Rounds end while models are in flight, or with a thread of the mixer's that has just ended. */
static tutti_status slowmo(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "star(weights=push)", "directed-ring" };
    const uint64_t round = 2 + explore_draw(c, "round", 2), base = explore_draw(c, "base", 4);
    const char *const graph = graphs[base < 2 ? 0 : explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    const int overlap = base < 2 ? 0 : 1 + (int)explore_draw(c, "overlap", 2);
    char method[120];

    snprintf(method, sizeof method, base == 0   ? "slowmo(period=%d)"
                                    : base == 1 ? "slowmo(period=%d,base=d-psgd,graph=%s)"
                                                : "slowmo(period=%d,base=sgp,graph=%s,overlap=%d)",
             (int)round, graph, overlap);
    return training_run(world, c,
                        (training_case){ .method = method, .graph = base == 0 ? NULL : graph, .overlap = overlap,
                                         .round = round, .large = base > 0 && explore_draw(c, "large", 4) > 0,
                                         .next = base == 0   ? step_slow_local
                                                 : base == 1 ? step_slow_awc
                                                             : step_slow_push }, err);
}

/* Slow models travel during a round, on the mixer's own thread or at its end; displacements at its
   end. */
static tutti_status noloco(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "random-matching", "random-matching(seed=5)", "ring", "complete" };
    const char *const graph = graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    const uint64_t every = 1 + explore_draw(c, "every", 3);
    char method[120];

    snprintf(method, sizeof method, "noloco(period=%d,graph=%s,lr=0.75,momentum=0.5,gamma=0.875)", (int)every, graph);
    return training_run(world, c,
                        (training_case){ .method = method, .graph = graph, .every = every,
                                         .large = explore_draw(c, "large", 2) == 0, .next = step_slow_pairs }, err);
}

static tutti_status d_psgd_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return training_run(
        world, c, (training_case){ .method = "d-psgd(graph=ring)", .graph = "ring", .large = true, .next = step_awc },
        err);
}

const explore_piece explore_gossip_pieces[] = {
    { .name = "d-psgd",
      .help = "d-psgd on several graphs, both orders, sgp where it is the same, rand-psgd with two rounds a step",
      .least = 2,
      .most = 5,
      .rank_main = d_psgd },
    { .name = "d-psgd-ahead",
      .help = "d-psgd whose models travel on the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = d_psgd_ahead },
    { .name = "d-psgd-dies",
      .help = "a rank is killed while d-psgd trains: all others end",
      .least = 2,
      .most = 5,
      .rank_main = d_psgd,
      .deaths = true },
    { .name = "bagua",
      .help = "bagua's exact algorithms, with machines of some workers and without, by tensors and by buckets",
      .least = 2,
      .most = 6,
      .rank_main = bagua },
    { .name = "bagua-ahead",
      .help = "the same while models travel on the mixer's own thread, and pieces on the lane",
      .least = 2,
      .most = 4,
      .rank_main = bagua_ahead },
    { .name = "bagua-dies",
      .help = "a rank is killed while machines sum or average: all others end",
      .least = 2,
      .most = 4,
      .rank_main = bagua,
      .deaths = true },
    { .name = "choco",
      .help = "d-psgd whose models travel as differences to public copies, through codecs that lose nothing",
      .least = 2,
      .most = 5,
      .rank_main = choco },
    { .name = "choco-ahead",
      .help = "the same on the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = choco_ahead },
    { .name = "saddle",
      .help = "saddle on several graphs, with gradients that go back to where models came from, through codecs that "
              "lose nothing and without",
      .least = 2,
      .most = 5,
      .rank_main = saddle },
    { .name = "saddle-ahead",
      .help = "the same on rings while models travel on the mixer's own thread",
      .least = 2,
      .most = 3,
      .rank_main = saddle_ahead },
    { .name = "saddle-dies",
      .help = "a rank is killed while gradients go back: all others end",
      .least = 2,
      .most = 5,
      .rank_main = saddle,
      .deaths = true },
    { .name = "sgp-ahead",
      .help = "sgp with overlap on directed graphs: numerators, weights and what is on its way, while models travel on "
              "the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = sgp_ahead },
    { .name = "slowmo",
      .help = "slowmo over all its bases, on several graphs, with rounds that end while models are under way",
      .least = 2,
      .most = 4,
      .rank_main = slowmo },
    { .name = "slowmo-dies",
      .help = "a rank is killed in a round of slow momentum, or in its mean: all others end",
      .least = 2,
      .most = 4,
      .rank_main = slowmo,
      .deaths = true },
    { .name = "noloco",
      .help = "noloco in pairs that are drawn in each round, on rings and all together, while slow models travel on "
              "the mixer's own thread, and without it",
      .least = 2,
      .most = 5,
      .rank_main = noloco },
    { .name = "noloco-dies",
      .help = "a rank is killed while slow models travel or displacements are exchanged: all others end",
      .least = 2,
      .most = 4,
      .rank_main = noloco,
      .deaths = true },
    { 0 },
};
