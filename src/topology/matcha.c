/* matcha.c: MATCHA: Wang, Sahu, Yang, Joshi, Kar, arXiv 1905.09435. The edges of a base graph as
   matchings M_1 .. M_m with Laplacians L_j. In each round M_j takes part with probability p_j, by
   itself: W_k = 1 - alpha sum_j B_j L_j. The time of a round is proportional to the number of
   matchings, so the budget c bounds its expectation: sum p_j <= m c.

     p       maximises lambda_2(sum_j p_j L_j), which is concave: projected supergradients,
             d lambda_2 / d p_j = v^T L_j v with v the eigenvector (no semidefinite solver). The
             best p seen is kept, so it is never worse than p_j = c.
     alpha   minimises the largest eigenvalue on vectors of sum 0 of
             E[W^T W] = 1 - 2 alpha Lbar + alpha^2 (Lbar^2 + 2 Ltil),
             Lbar = sum p_j L_j, Ltil = sum p_j (1 - p_j) L_j. That is convex in alpha, so by
             bisection on the sign of the derivative z^T(..)z at the top eigenvector z.

   Differs from the paper: alpha is at most 1/(largest degree), so that no W has a negative weight.
   All members compute the same p and alpha (eigen.c), and draw B_j from (seed, round, j). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "topology_internal.h"

enum { ASCENTS = 120, HALVINGS = 30, TURNS = 300, TURNS_LAST = 20000 };

void tutti_matchings_close(tutti_matchings *m)
{
    if (m == NULL)
        return;
    tutti_free(m->partner);
    tutti_free(m->chance);
    tutti_free(m);
}

/* ---- operators on vectors of sum 0 ---- */

typedef struct laplacian { /* y = shift x - sum_j p_j L_j x */
    const tutti_matchings *m;
    size_t n;
    const double *p;
    double shift;
} laplacian;

static void apply_laplacian(const void *of, const double *x, double *y)
{
    const laplacian *l = of;

    for (size_t i = 0; i < l->n; i++)
        y[i] = l->shift * x[i];
    for (size_t j = 0; j < (size_t)l->m->count; j++) {
        const int *partner = l->m->partner + j * l->n;
        for (size_t i = 0; i < l->n; i++)
            y[i] -= l->p[j] * (x[i] - x[partner[i]]);
    }
}

typedef struct expectation { /* y = E[W^T W] x */
    laplacian mean, spread;  /* both with shift 0: -Lbar, -Ltil */
    double alpha;
    double *room;            /* [2 n] */
} expectation;

static void apply_expectation(const void *of, const double *x, double *y)
{
    const expectation *e = of;
    const size_t n = e->mean.n;
    double *once = e->room, *spread = e->room + n;

    apply_laplacian(&e->mean, x, once);     /* -Lbar x */
    apply_laplacian(&e->mean, once, y);     /* Lbar^2 x */
    apply_laplacian(&e->spread, x, spread); /* -Ltil x */
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] + 2 * e->alpha * once[i] + e->alpha * e->alpha * (y[i] - 2 * spread[i]);
}

/* ---- p ---- */

typedef struct search {
    tutti_matchings *m;
    size_t n;
    double *v, *room;                 /* [n]: eigen's scratch */
    double *p, *slope, *spread;       /* [count] each */
    double *more;                     /* [2 n] */
    uint64_t draws;
} search;

static double sum_of_clipped(const double *p, int count, double less)
{
    double sum = 0;
    for (int j = 0; j < count; j++)
        sum += fmin(1, fmax(0, p[j] - less));
    return sum;
}

/* The nearest point with 0 <= p_j <= 1 and sum p = total. */
static void project(double *p, int count, double total)
{
    double low = 0, high = 0;

    for (int j = 0; j < count; j++) {
        low = fmin(low, p[j] - 1);
        high = fmax(high, p[j]);
    }
    for (int turn = 0; turn < 60; turn++) {
        const double middle = (low + high) / 2;
        if (sum_of_clipped(p, count, middle) > total)
            low = middle;
        else
            high = middle;
    }
    for (int j = 0; j < count; j++)
        p[j] = fmin(1, fmax(0, p[j] - high)); /* high: not above the total */
}

/* The last eigenvector is a good beginning, and may be a trap: it can be an eigenvector still
   when it is no longer that of the top (always where all L_j have the same ones). So a part
   of a new random vector is added each time; the same one again would not do, since p has
   moved along with what came of it. */
static double top(search *s, const tutti_operator *a, double tolerance, int turns)
{
    s->draws++;
    for (size_t i = 0; i < s->n; i++) /* length about 0.3 */
        s->v[i] += (tutti_uniform((tutti_rng){ 0, 0x67726170680002u, s->draws }, i) - 0.5) /
                   sqrt((double)s->n);
    return tutti_eigen_top(a, s->v, tolerance, turns, s->room);
}

static double second_of(search *s, int turns)
{
    double most = 0;
    laplacian l = { s->m, s->n, s->p, 0 };
    const tutti_operator a = { apply_laplacian, &l, s->n };

    for (int j = 0; j < s->m->count; j++)
        most += s->p[j];
    l.shift = 2 * most; /* no eigenvalue of L_j is above 2 */
    return l.shift - top(s, &a, 1e-9, turns);
}

static void climb(search *s, double budget)
{
    const int count = s->m->count;
    const double total = budget * count;
    double best = -1;

    for (int j = 0; j < count; j++)
        s->p[j] = budget;
    for (int turn = 0; turn < ASCENTS; turn++) {
        const double here = second_of(s, TURNS);
        double length = 0;
        if (here > best) {
            best = here;
            memcpy(s->m->chance, s->p, (size_t)count * sizeof *s->p);
        }
        for (int j = 0; j < count; j++) {
            const int *partner = s->m->partner + (size_t)j * s->n;
            s->slope[j] = 0;
            for (size_t i = 0; i < s->n; i++)
                /* each edge is met from both ends */
                s->slope[j] += (s->v[i] - s->v[partner[i]]) * (s->v[i] - s->v[partner[i]]) / 2;
            length += s->slope[j] * s->slope[j];
        }
        if (length == 0 || total >= count)
            break;
        for (int j = 0; j < count; j++)
            s->p[j] += 0.3 / sqrt(turn + 1.0) * s->slope[j] / sqrt(length);
        project(s->p, count, total);
    }
}

/* ---- alpha ---- */

static void find_alpha(search *s, int degree)
{
    tutti_matchings *m = s->m;
    const size_t n = s->n;
    expectation e = { { m, n, m->chance, 0 }, { m, n, s->spread, 0 }, 0, s->more };
    const tutti_operator a = { apply_expectation, &e, n };
    double low = 0, high = 1.0 / degree;

    for (int j = 0; j < m->count; j++)
        s->spread[j] = m->chance[j] * (1 - m->chance[j]);
    for (int turn = 0; turn <= HALVINGS; turn++) {
        double slope = 0;
        e.alpha = turn == 0 ? high : (low + high) / 2; /* first whether the bound is the best */
        top(s, &a, 1e-9, TURNS);
        apply_laplacian(&e.mean, s->v, s->more);
        apply_laplacian(&e.spread, s->v, s->more + n);
        for (size_t i = 0; i < n; i++) /* half the derivative of z^T E[W^T W] z */
            slope += s->v[i] * s->more[i] +
                     e.alpha * (s->more[i] * s->more[i] - 2 * s->v[i] * s->more[n + i]);
        if (slope <= 0)
            low = e.alpha;
        else
            high = e.alpha;
        if (low == high)
            break;
    }
    m->alpha = e.alpha = high;
    m->second = fmax(0, top(s, &a, 1e-10, TURNS_LAST));
}

/* ---- the family ---- */

static tutti_status solve(tutti_graph *g, tutti_matchings *m, const tutti_graph *base,
                          tutti_error *err)
{
    const size_t n = (size_t)g->n;
    double *room;
    search s;

    TUTTI_TRY(tutti_matchings_find(m, base, err));
    m->chance = tutti_alloc((size_t)m->count, sizeof *m->chance);
    room = tutti_alloc(3 * n + tutti_eigen_scratch(n) + 3 * (size_t)m->count, sizeof *room);
    if (m->chance == NULL || room == NULL) {
        tutti_free(room);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "the chances of %d matchings of %d members", m->count, g->n);
    }
    s = (search){ .m = m,
                  .n = n,
                  .v = room,
                  .more = room + n,
                  .room = room + 3 * n,
                  .p = room + 3 * n + tutti_eigen_scratch(n) };
    s.slope = s.p + m->count;
    s.spread = s.slope + m->count;
    climb(&s, g->options.budget);
    find_alpha(&s, base->degree_max);
    for (int j = 0; j < m->count; j++)
        for (size_t i = 0; i < n; i++)
            m->messages += m->partner[(size_t)j * n + i] != (int)i ? m->chance[j] : 0;
    g->degree_max = base->degree_max;
    tutti_free(room);
    return TUTTI_OK;
}

static tutti_status prepare(tutti_graph *g, tutti_error *err)
{
    tutti_graph *base;
    tutti_status status;

    g->matchings = tutti_alloc(1, sizeof *g->matchings);
    if (g->matchings == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the matchings of graph '%s'",
                          g->options.base);
    TUTTI_TRY(tutti_fail_within(err, tutti_graph_open(&base, g->options.base, g->n, err),
                                "graph 'matcha'"));
    status = tutti_graph_require(base, "static", err);
    if (status == TUTTI_OK)
        status = tutti_graph_require(base, "symmetric", err);
    status = tutti_fail_within(
        err, status, "graph 'matcha' takes a fixed, undirected base (ring, torus, random, ...)");
    if (status == TUTTI_OK)
        status = solve(g, g->matchings, base, err);
    tutti_graph_close(base);
    return status;
}

static bool few_enough(const tutti_graph *g, char *mend, size_t bytes)
{
    if (g->n <= TUTTI_GRAPH_GAP_MAX)
        return true;
    snprintf(mend, bytes,
             "at most %d, since chances and weight come from its eigenvalues; random-matching "
             "takes any number",
             TUTTI_GRAPH_GAP_MAX);
    return false;
}

static int degree(const tutti_graph *g)
{
    return g->degree_max;
}

static void list_matcha(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    const tutti_matchings *m = g->matchings;

    (void)sign;
    for (int j = 0; j < m->count; j++)
        if (tutti_uniform((tutti_rng){ (uint64_t)g->options.seed, 0x67726170680003u, k },
                          (uint64_t)j) < m->chance[j])
            tutti_graph_join_weighted(out, m->partner[(size_t)j * (size_t)g->n + (size_t)i],
                                      m->alpha);
    out->self = fmax(0, 1 - out->count * m->alpha);
}

static void meets(const tutti_graph *g, int i, tutti_graph_list *out)
{
    const tutti_matchings *m = g->matchings;

    for (int j = 0; j < m->count; j++)
        if (m->chance[j] > 0)
            tutti_graph_join(out, m->partner[(size_t)j * (size_t)g->n + (size_t)i]);
}

static double second(const tutti_graph *g)
{
    return g->matchings->second;
}

static double messages(const tutti_graph *g)
{
    return g->matchings->messages;
}

static const tutti_option matcha_options[] = {
    { "base", TUTTI_SPEC, TUTTI_AT(tutti_graph_options, base), 0, 0, 0, "ring",
      "the graph whose edges are drawn from: fixed and undirected" },
    { "budget", TUTTI_REAL, TUTTI_AT(tutti_graph_options, budget), 0.5, 0.001, 1, NULL,
      "part of its matchings that take part in a round, on average" },
    { "seed", TUTTI_INT, TUTTI_AT(tutti_graph_options, seed), 0, 0, 9007199254740992.0, NULL,
      "of the draw" },
    { 0 }
};

const tutti_graph_rules tutti_graph_matcha[] = {
    { .name = "matcha",
      .help = "MATCHA: matchings of a base graph, drawn in each round within a budget",
      .options = matcha_options,
      .own = true,
      .drawn = true,
      .fits = few_enough,
      .prepare = prepare,
      .degree = degree,
      .list = list_matcha,
      .meets = meets,
      .second = second,
      .messages = messages },
    { 0 }
};
