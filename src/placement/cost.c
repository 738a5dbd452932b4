/* cost.c: the times of stages, their units and the cost of a plan (placement.h).

   The shorter the period, the more units a stage needs. Between two periods at which a number of
   units changes, the shortest period is the cheapest. So provisioning begins with the fewest units
   for the floor, and gives the slowest stages one more unit at a time. With fractional units the
   cost would never fall along this path, since k x period(k) rises with the number of units k, by
   Amdahl's law. So it stops when that cost reaches the least cost so far. */
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

placement_run tutti_placement_run(const tutti_placement_problem *p, int first, int end, int type)
{
    placement_run run = { .price = p->type[type].price, .most = p->type[type].units };
    double computed = 0, communicated = 0;

    for (int l = first; l < end; l++) {
        const tutti_placement_time *t = &p->time[l][type];
        run.compute += t->compute / p->batch;
        run.communicate += t->communicate / p->batch;
        computed += t->compute_share * t->compute / p->batch;
        communicated += t->communicate_share * t->communicate / p->batch;
    }
    run.compute_share = run.compute > 0 ? fmin(1, computed / run.compute) : 1;
    run.communicate_share = run.communicate > 0 ? fmin(1, communicated / run.communicate) : 1;
    return run;
}

static double of_units(double seconds, double share, int units)
{
    return seconds * (1 - share + share / units);
}

double tutti_placement_period(const placement_run *run, int units)
{
    return fmax(of_units(run->compute, run->compute_share, units),
                of_units(run->communicate, run->communicate_share, units));
}

static double units_in_parts(double seconds, double share, double period)
{
    const double left = period - (1 - share) * seconds, needed = share * seconds;

    if (!(needed > 0))
        return left >= 0 ? 0 : INFINITY;
    return left > 0 ? needed / left : INFINITY;
}

double tutti_placement_bound(const placement_run *run, double period)
{
    const double units = fmax(units_in_parts(run->compute, run->compute_share, period),
                              units_in_parts(run->communicate, run->communicate_share, period));

    return isfinite(units) ? run->price * units : INFINITY;
}

double tutti_placement_hourly(const tutti_placement_problem *p, double period, double prices)
{
    return p->examples * period / 3600 * (prices + p->besides);
}

/* Returns the fewest units with which the run's period is at most `period`; 0: the available units
   are not enough. */
static int fewest(const placement_run *run, double period)
{
    int low = 1, high = run->most;

    if (high < 1 || tutti_placement_period(run, high) > period)
        return 0;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (tutti_placement_period(run, middle) <= period)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* ---- provisioning ---- */

typedef struct pipeline {
    int stages;
    int type[TUTTI_PLACEMENT_LAYERS_MOST], first[TUTTI_PLACEMENT_LAYERS_MOST + 1];
    placement_run run[TUTTI_PLACEMENT_LAYERS_MOST];
    int units[TUTTI_PLACEMENT_LAYERS_MOST];
    int limit;                   /* the stage that cannot reach the floor; -1: each stage can */
} pipeline;

static void cut_stages(const tutti_placement_problem *p, const int *on, pipeline *pipe)
{
    pipe->stages = 0;
    for (int l = 0; l < p->layers; l++)
        if (l == 0 || on[l] != on[l - 1]) {
            pipe->first[pipe->stages] = l;
            pipe->type[pipe->stages++] = on[l];
        }
    pipe->first[pipe->stages] = p->layers;
    for (int i = 0; i < pipe->stages; i++)
        pipe->run[i] = tutti_placement_run(p, pipe->first[i], pipe->first[i + 1], pipe->type[i]);
}

static int used(const pipeline *pipe, int type)
{
    int units = 0;

    for (int i = 0; i < pipe->stages; i++)
        units += pipe->type[i] == type ? pipe->units[i] : 0;
    return units;
}

static bool within_limits(const tutti_placement_problem *p, const pipeline *pipe)
{
    for (int t = 0; t < p->types; t++)
        if (used(pipe, t) > p->type[t].units)
            return false;
    return true;
}

static double period_of(const pipeline *pipe)
{
    double period = 0;

    for (int i = 0; i < pipe->stages; i++)
        period = fmax(period, tutti_placement_period(&pipe->run[i], pipe->units[i]));
    return period;
}

static double cost_of(const tutti_placement_problem *p, const pipeline *pipe, double period)
{
    double prices = 0;

    for (int i = 0; i < pipe->stages; i++)
        prices += pipe->run[i].price * pipe->units[i];
    return tutti_placement_hourly(p, period, prices);
}

static double bound_of(const tutti_placement_problem *p, const pipeline *pipe, double period)
{
    double prices = 0;

    for (int i = 0; i < pipe->stages; i++)
        prices += tutti_placement_bound(&pipe->run[i], period);
    return p->examples * period / 3600 * prices;
}

/* Gives each of the slowest stages one more unit. Returns false if one of them has no more units,
   or would not become faster. */
static bool hasten(pipeline *pipe, double period)
{
    for (int i = 0; i < pipe->stages; i++)
        if (tutti_placement_period(&pipe->run[i], pipe->units[i]) >= period) {
            if (pipe->units[i] >= pipe->run[i].most ||
                tutti_placement_period(&pipe->run[i], pipe->units[i] + 1) >= period)
                return false;
            pipe->units[i]++;
        }
    return true;
}

/* Sets pipe->units to the cheapest, and returns the cost; INFINITY: the floor cannot be reached. */
static double provide(const tutti_placement_problem *p, pipeline *pipe)
{
    int best_units[TUTTI_PLACEMENT_LAYERS_MOST];
    double best = INFINITY, period;

    for (int i = 0; i < pipe->stages; i++) {
        pipe->units[i] = fewest(&pipe->run[i], 1 / p->floor);
        pipe->limit = i;
        if (pipe->units[i] == 0)
            return INFINITY;
    }
    pipe->limit = -1;
    while (within_limits(p, pipe)) {
        double cost;
        period = period_of(pipe);
        cost = cost_of(p, pipe, period);
        if (cost < best) {
            best = cost;
            memcpy(best_units, pipe->units, sizeof best_units);
        }
        if (!(period > 0) || bound_of(p, pipe, period) >= best || !hasten(pipe, period))
            break;
    }
    if (best < INFINITY)
        memcpy(pipe->units, best_units, sizeof best_units);
    return best;
}

double tutti_placement_cost(const tutti_placement_problem *p, const int *on)
{
    pipeline pipe;

    cut_stages(p, on, &pipe);
    return provide(p, &pipe);
}

static tutti_status too_slow(const tutti_placement_problem *p, const pipeline *pipe,
                             tutti_error *err)
{
    const int i = pipe->limit;

    if (i >= 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the floor of %g examples a second is out of reach: layers '%s' to '%s' "
                          "on all %d of '%s' reach %g; lower the floor, or give more units or "
                          "other types",
                          p->floor, p->layer[pipe->first[i]].name,
                          p->layer[pipe->first[i + 1] - 1].name, p->type[pipe->type[i]].units,
                          p->type[pipe->type[i]].name,
                          1 / tutti_placement_period(&pipe->run[i], p->type[pipe->type[i]].units));
    for (int t = 0; t < p->types; t++)
        if (used(pipe, t) > p->type[t].units)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the floor of %g examples a second takes %d of '%s' in this plan, "
                              "and there are %d; lower the floor or give more",
                              p->floor, used(pipe, t), p->type[t].name, p->type[t].units);
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "a plan without units, which should not be possible");
}

tutti_status tutti_placement_provision(const tutti_placement_problem *p, const int *on,
                                       tutti_placement_plan *plan, tutti_error *err)
{
    pipeline pipe;
    double cost, period;

    *plan = (tutti_placement_plan){ 0 };
    for (int l = 0; l < p->layers; l++)
        if (on[l] < 0 || on[l] >= p->types)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer '%s' on type %d; there are types 0 to %d", p->layer[l].name,
                              on[l], p->types - 1);
    cut_stages(p, on, &pipe);
    cost = provide(p, &pipe);
    if (!(cost < INFINITY))
        return too_slow(p, &pipe, err);
    period = period_of(&pipe);
    memcpy(plan->on, on, (size_t)p->layers * sizeof *on);
    plan->stages = pipe.stages;
    plan->rate = 1 / period;
    plan->seconds = p->examples * period;
    plan->cost = cost;
    for (int i = 0; i < pipe.stages; i++) {
        const placement_run *run = &pipe.run[i];
        const int units = pipe.units[i];
        plan->stage[i] = (tutti_placement_stage){
            .type = pipe.type[i], .first = pipe.first[i], .end = pipe.first[i + 1], .units = units,
            .compute = of_units(run->compute, run->compute_share, units),
            .communicate = of_units(run->communicate, run->communicate_share, units),
            .slack = 1 - tutti_placement_period(run, units) / period,
        };
    }
    return TUTTI_OK;
}

double tutti_placement_share(double one, const int *units, const double *seconds, int n)
{
    double above = 0, below = 0;

    for (int i = 0; i < n; i++) {
        const double less = 1 - 1.0 / units[i];
        above += less * (1 - seconds[i] / one);
        below += less * less;
    }
    return below > 0 ? fmin(1, fmax(0, above / below)) : 0;
}

/* ---- checking ---- */

static bool within(double x, double low, double high)
{
    return x >= low && x <= high;
}

static tutti_status check_layer(const tutti_placement_problem *p, int l, tutti_error *err)
{
    if (!within(p->layer[l].enters, 0, 1e18) || !within(p->layer[l].values, 0, 1e18))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer '%s': enters and values are bytes, 0 to 1e18", p->layer[l].name);
    for (int t = 0; t < p->types; t++) {
        const tutti_placement_time *m = &p->time[l][t];
        if (!within(m->compute, 0, 1e9) || !within(m->communicate, 0, 1e9))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer '%s' on '%s': compute is %g and communicate %g; they must be "
                              "seconds, 0 to 1e9",
                              p->layer[l].name, p->type[t].name, m->compute, m->communicate);
        if (!within(m->compute_share, 0, 1) || !within(m->communicate_share, 0, 1))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer '%s' on '%s': compute_share is %g and communicate_share %g; "
                              "they must be from 0 to 1",
                              p->layer[l].name, p->type[t].name, m->compute_share,
                              m->communicate_share);
        if (!(m->compute + m->communicate > 0))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer '%s' takes no time at all on '%s'; measure it",
                              p->layer[l].name, p->type[t].name);
    }
    return TUTTI_OK;
}

tutti_status tutti_placement_check(const tutti_placement_problem *p, tutti_error *err)
{
    if (p->layers < 1 || p->layers > TUTTI_PLACEMENT_LAYERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%d layers to place; there must be 1 to %d",
                          p->layers, TUTTI_PLACEMENT_LAYERS_MOST);
    if (p->types < 1 || p->types > TUTTI_PLACEMENT_TYPES_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%d types of resources; there must be 1 to %d",
                          p->types, TUTTI_PLACEMENT_TYPES_MOST);
    if (!within(p->batch, 1, 1e12) || !within(p->examples, 1, 1e18) ||
        !within(p->floor, 1e-9, 1e15) || !within(p->besides, 0, 1e9))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "batch is %g, examples %g, floor %g and besides %g; they must be 1 to "
                          "1e12, 1 to 1e18, 1e-9 to 1e15 and 0 to 1e9",
                          p->batch, p->examples, p->floor, p->besides);
    for (int t = 0; t < p->types; t++) {
        if (!within(p->type[t].price, 0, 1e9))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "a unit of '%s' costs %g an hour; it must be 0 to 1e9",
                              p->type[t].name, p->type[t].price);
        if (p->type[t].units < 1 || p->type[t].units > TUTTI_PLACEMENT_UNITS_MOST)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "there are %d units of '%s'; it must be 1 to %d", p->type[t].units,
                              p->type[t].name, TUTTI_PLACEMENT_UNITS_MOST);
    }
    for (int l = 0; l < p->layers; l++)
        TUTTI_TRY(check_layer(p, l, err));
    return TUTTI_OK;
}
