/* heuristics.c: the searches greedy, genetic and fixed (placement.h), to compare others with. */
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

enum { LAYERS = TUTTI_PLACEMENT_LAYERS_MOST };

static void keep_if_cheaper(const tutti_placement_problem *p, const int *here, int *on,
                            double *cost)
{
    const double got = tutti_placement_cost(p, here);

    if (got < *cost) {
        *cost = got;
        memcpy(on, here, (size_t)p->layers * sizeof *on);
    }
}

double tutti_placement_fixed(const tutti_placement_problem *p, int *on)
{
    double cost = INFINITY;
    int here[LAYERS];

    for (int first = 0; first < p->types; first++)
        for (int rest = 0; rest < p->types; rest++) {
            for (int l = 0; l < p->layers; l++)
                here[l] = l == 0 ? first : rest;
            keep_if_cheaper(p, here, on, &cost);
        }
    return cost;
}

/* A layer that reaches the floor nowhere goes to the first type, so that what follows is tried. */
double tutti_placement_greedy(const tutti_placement_problem *p, int *on)
{
    tutti_placement_problem part = *p;
    double cost = INFINITY;

    for (part.layers = 1; part.layers <= p->layers; part.layers++) {
        int *here = &on[part.layers - 1], best = 0;
        cost = INFINITY;
        for (*here = 0; *here < p->types; ++*here) {
            const double got = tutti_placement_cost(&part, on);
            if (got < cost) {
                cost = got;
                best = *here;
            }
        }
        *here = best;
    }
    return cost;
}

/* ---- genetic: the better of two is a parent; children take the first layers of one parent and the
   others of the other, and each layer changes once in as many children as there are layers. The
   cheapest of a generation lives on. ---- */

typedef struct being { int on[LAYERS]; double cost; } being;
typedef struct draws { tutti_rng rng; uint64_t next; } draws;

static int below(draws *d, int n)
{
    return (int)(tutti_uniform(d->rng, d->next++) * n);
}

static const being *better_of_two(const being *all, int n, draws *d)
{
    const being *a = &all[below(d, n)], *b = &all[below(d, n)];
    return a->cost <= b->cost ? a : b;
}

static void breed(const tutti_placement_problem *p, const being *all, int n, being *child, draws *d)
{
    const being *mother = better_of_two(all, n, d), *father = better_of_two(all, n, d);
    const int at = below(d, p->layers);

    for (int l = 0; l < p->layers; l++) {
        child->on[l] = l <= at ? mother->on[l] : father->on[l];
        if (below(d, p->layers) == 0)
            child->on[l] = below(d, p->types);
    }
    child->cost = tutti_placement_cost(p, child->on);
}

static const being *cheapest(const being *all, int n)
{
    const being *best = all;

    for (int i = 1; i < n; i++)
        best = all[i].cost < best->cost ? &all[i] : best;
    return best;
}

tutti_status tutti_placement_genetic(const tutti_placement_problem *p, const placement_genetic *o,
                                     int *on, double *cost, tutti_error *err)
{
    const int n = (int)o->population;
    draws d = { .rng = { (uint64_t)o->seed, 1, 0 } };
    being *all = tutti_alloc(2 * (size_t)n, sizeof *all), *now = all, *next = all + n, *turn;

    *cost = INFINITY;
    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %d plans", 2 * n);
    for (int i = 0; i < n; i++) {
        for (int l = 0; l < p->layers; l++)
            now[i].on[l] = below(&d, p->types);
        now[i].cost = tutti_placement_cost(p, now[i].on);
    }
    for (int64_t g = 0; g < o->generations; g++) {
        next[0] = *cheapest(now, n);
        for (int i = 1; i < n; i++)
            breed(p, now, n, &next[i], &d);
        turn = now, now = next, next = turn;
    }
    *cost = cheapest(now, n)->cost;
    memcpy(on, cheapest(now, n)->on, (size_t)p->layers * sizeof *on);
    tutti_free(all);
    return TUTTI_OK;
}
