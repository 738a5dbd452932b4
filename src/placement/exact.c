/* exact.c: the cheapest plan of all.

   brute tries all types^layers. dp tries the periods that some stage of some plan can have, from
   the floor's on. For one period the cost of a stage depends on nothing but its first and last
   layer and its type, so the cheapest plan is that of

     cost[first][type] = min over end of  price x units(first, end, type)
                                          + min over other types of cost[end][other]

   (a stage on the same type would be part of this one). The least possible cost of later periods is
   that of fractional units, which rises with the rate: once it is above the best, the search
   ends. Where units are limited and that plan has too many of a type, plans are enumerated with
   cost[][] as their bound. */
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

enum {
    LAYERS = TUTTI_PLACEMENT_LAYERS_MOST,
    TYPES = TUTTI_PLACEMENT_TYPES_MOST,
    BRUTE_MOST = 10000000
};
#define WORK_MOST 1e9            /* stages examined: a quarter of a minute or so */

/* ---- brute ---- */

tutti_status tutti_placement_brute(const tutti_placement_problem *p, int *on, double *cost,
                                   tutti_error *err)
{
    int here[LAYERS] = { 0 }, l;

    *cost = INFINITY;
    if (pow(p->types, p->layers) > BRUTE_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "search 'brute' of %d layers on %d types has %.3g plans to go through, "
                          "more than %d; use dp",
                          p->layers, p->types, pow(p->types, p->layers), BRUTE_MOST);
    do {
        const double got = tutti_placement_cost(p, here);
        if (got < *cost) {
            *cost = got;
            memcpy(on, here, (size_t)p->layers * sizeof *on);
        }
        for (l = p->layers - 1; l >= 0 && ++here[l] == p->types; l--)
            here[l] = 0;
    } while (l >= 0);
    return TUTTI_OK;
}

/* ---- dp ---- */

/* The layers [first, end) on a type: the fewest units for the current period (0: the available ones
   are not enough), and the period with them. */
typedef struct span { placement_run run; int units; double period; } span;
typedef struct programme {
    const tutti_placement_problem *p;
    span *spans;                 /* [layers: first][layers + 1: end][types] */
    double cost[LAYERS + 1][TYPES];
    double work;
    /* going through plans within limits */
    double best;
    int used[TYPES], on[LAYERS], best_on[LAYERS];
} programme;

static span *span_of(const programme *g, int first, int end, int type)
{
    return &g->spans[(first * (g->p->layers + 1) + end) * g->p->types + type];
}

static double cheapest_after(const programme *g, int end, int type)
{
    double least = end == g->p->layers ? 0 : INFINITY;

    for (int t = 0; t < g->p->types && end < g->p->layers; t++)
        if (t != type)
            least = fmin(least, g->cost[end][t]);
    return least;
}

/* Returns the sum of prices of the cheapest plan. period 0: with the spans' units; else with
   fractional units for that period. */
static double solve(programme *g, double period)
{
    const int layers = g->p->layers, types = g->p->types;

    g->work += (double)layers * layers * types;
    for (int first = layers - 1; first >= 0; first--)
        for (int t = 0; t < types; t++) {
            g->cost[first][t] = INFINITY;
            for (int end = first + 1; end <= layers; end++) {
                const span *s = span_of(g, first, end, t);
                const double own = period > 0 ? tutti_placement_bound(&s->run, period)
                                 : s->units > 0 ? s->run.price * s->units : INFINITY;
                g->cost[first][t] = fmin(g->cost[first][t], own + cheapest_after(g, end, t));
            }
        }
    return cheapest_after(g, 0, -1);
}

/* Sets the units of all spans to the fewest for the period, which is shorter than the one before.
   Returns the longest period of a span then. */
static double tighten(programme *g, double period)
{
    double longest = 0;

    for (int first = 0; first < g->p->layers; first++)
        for (int end = first + 1; end <= g->p->layers; end++)
            for (int t = 0; t < g->p->types; t++) {
                span *s = span_of(g, first, end, t);
                if (s->units > 0 && s->period > period) {
                    const double most = tutti_placement_period(&s->run, s->run.most);
                    int low = s->units + 1, high = s->run.most;
                    while (most <= period && low < high) {
                        const int middle = low + (high - low) / 2;
                        if (tutti_placement_period(&s->run, middle) <= period)
                            high = middle;
                        else
                            low = middle + 1;
                    }
                    s->units = most <= period ? low : 0;
                    s->period = s->units > 0 ? tutti_placement_period(&s->run, low) : 0;
                }
                longest = s->units > 0 ? fmax(longest, s->period) : longest;
            }
    return longest;
}

/* Enumerates all plans of layers from `first` on that may be cheaper than g->best, within
   limits. */
static void go_through(programme *g, int first, int before, double prices)
{
    if (first == g->p->layers) {
        g->best = prices;
        memcpy(g->best_on, g->on, sizeof g->on);
        return;
    }
    for (int end = g->p->layers; end > first && g->work < WORK_MOST; end--)
        for (int t = 0; t < g->p->types; t++) {
            const span *s = span_of(g, first, end, t);
            const double own = prices + s->run.price * s->units;
            g->work++;
            if (t == before || s->units == 0 || g->used[t] + s->units > s->run.most ||
                own + cheapest_after(g, end, t) >= g->best)
                continue;
            for (int l = first; l < end; l++)
                g->on[l] = t;
            g->used[t] += s->units;
            go_through(g, end, t, own);
            g->used[t] -= s->units;
        }
}

static tutti_status open_spans(programme *g, tutti_error *err)
{
    const int layers = g->p->layers, types = g->p->types;

    g->spans = tutti_alloc((size_t)layers * (size_t)(layers + 1) * (size_t)types, sizeof *g->spans);
    if (g->spans == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to place %d layers on %d types",
                          layers, types);
    for (int first = 0; first < layers; first++)
        for (int end = first + 1; end <= layers; end++)
            for (int t = 0; t < types; t++) {
                span *s = span_of(g, first, end, t);
                s->run = tutti_placement_run(g->p, first, end, t);
                s->units = 1;
                s->period = tutti_placement_period(&s->run, 1);
            }
    return TUTTI_OK;
}

tutti_status tutti_placement_dp(const tutti_placement_problem *p, int *on, double *cost,
                                tutti_error *err)
{
    programme g = { .p = p };
    double period = 1 / p->floor;

    *cost = INFINITY;
    TUTTI_TRY(open_spans(&g, err));
    while ((period = tighten(&g, period)) > 0 && g.work < WORK_MOST &&
           p->examples * period / 3600 * solve(&g, period) < *cost) {
        /* only what would be cheaper than the best at this period */
        const double worth =
            *cost < INFINITY ? *cost * 3600 / (p->examples * period) - p->besides : INFINITY;
        if (solve(&g, 0) < worth) {
            double got;
            g.best = worth;
            go_through(&g, 0, -1, 0);
            got = g.best < worth ? tutti_placement_cost(p, g.best_on) : INFINITY;
            if (got < *cost) {
                *cost = got;
                memcpy(on, g.best_on, (size_t)p->layers * sizeof *on);
            }
        }
        period = nextafter(period, 0);
    }
    tutti_free(g.spans);
    if (g.work >= WORK_MOST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "search 'dp' of %d layers on %d types, with as many units as there are, looked at %.0g "
            "stages and was not at the end; use rl, or fewer layers",
            p->layers, p->types, WORK_MOST);
    return TUTTI_OK;
}

/* ---- why no plan was found ---- */

/* Sets on[] to the types with which the slowest stage is fastest, if each stage may use all units
   of its type. */
static void fastest(const tutti_placement_problem *p, int *on)
{
    /* of layers from `first` on, the stage before on `t` */
    double least[LAYERS + 1][TYPES + 1] = { { 0 } };
    int end_of[LAYERS][TYPES + 1], type_of[LAYERS][TYPES + 1];

    for (int first = p->layers - 1; first >= 0; first--)
        for (int before = 0; before <= p->types; before++) {
            least[first][before] = INFINITY;
            end_of[first][before] = first + 1;
            type_of[first][before] = before == 0; /* unless nothing is finite */
            for (int t = 0; t < p->types; t++)
                for (int end = first + 1; end <= p->layers && t != before; end++) {
                    const placement_run run = tutti_placement_run(p, first, end, t);
                    const double got = fmax(tutti_placement_period(&run, run.most), least[end][t]);
                    if (got < least[first][before]) {
                        least[first][before] = got;
                        end_of[first][before] = end;
                        type_of[first][before] = t;
                    }
                }
        }
    for (int first = 0, before = p->types; first < p->layers;) {
        const int end = end_of[first][before], type = type_of[first][before];
        for (int l = first; l < end; l++)
            on[l] = type;
        first = end;
        before = type;
    }
}

tutti_status tutti_placement_refuse(const tutti_placement_problem *p, tutti_error *err)
{
    tutti_placement_plan plan;
    int on[LAYERS];

    fastest(p, on);
    TUTTI_TRY(tutti_fail_within(err, tutti_placement_provision(p, on, &plan, err),
                                "even in the fastest plan"));
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "this search found no plan that reaches the floor of %g examples a second, "
                      "and there is one; use dp",
                      p->floor);
}
