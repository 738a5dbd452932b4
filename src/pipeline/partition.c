/* partition.c: tutti_pipeline_partition and _best (plan.h), by dynamic programming. A state is the
   set of workers that have a stage, and the unit at which the last of these stages ends. The size
   of the set gives the index of the next stage, and so its memory. table[set][end] has the least
   time of the slowest stage of any plan that leads to the state. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include <math.h>

typedef struct programme {
    const tutti_pipeline_profile *p;
    const int *workers;
    int stages, in_flight;
    bool limits;                 /* the workers' memory is a limit */
} programme;

/* The best plan of a state: seconds of its slowest stage (INFINITY: no plan), first unit of its
   last stage, and that stage's worker as an index of `workers` (-1: no stage). */
typedef struct route { double slowest; int from, worker; } route;

static int under_way(const programme *g, int stage)
{
    return g->in_flight < g->stages - stage ? g->in_flight : g->stages - stage;
}

static double bytes_of(const programme *g, int stage, int first, int end)
{
    double bytes = 0;

    for (int u = first; u < end; u++) {
        const tutti_pipeline_unit *unit = &g->p->unit[u];
        bytes += unit->values * g->in_flight + unit->state + unit->kept * under_way(g, stage);
    }
    return bytes;
}

static double seconds_of(const programme *g, int worker, int first, int end)
{
    const tutti_pipeline_profile *p = g->p;
    double seconds = 0;

    for (int u = first; u < end; u++)
        seconds += p->seconds[worker * p->units + u];
    if (first > 0 && p->bandwidth > 0)
        seconds += p->latency + p->unit[first].enters / p->bandwidth;
    if (end < p->units && p->bandwidth > 0)
        seconds += p->latency + p->unit[end].enters / p->bandwidth;
    return seconds;
}

static bool fits(const programme *g, int worker, int stage, int first, int end)
{
    return !g->limits || g->p->memory[worker] == 0 ||
           bytes_of(g, stage, first, end) <= g->p->memory[worker];
}

static bool ends_at(const tutti_pipeline_profile *p, int end)
{
    return end == p->units || p->unit[end].cut;
}

/* Fills table[2^stages][units + 1]. */
static void solve(const programme *g, route *table)
{
    const int units = g->p->units, sets = 1 << g->stages, row = units + 1;

    for (int i = 0; i < sets * row; i++)
        table[i] = (route){ INFINITY, -1, -1 };
    table[0].slowest = 0;
    for (int set = 0; set < sets; set++) {
        const int stage = __builtin_popcount((unsigned)set);
        for (int first = 0; first < units; first++) {
            const route *here = &table[set * row + first];
            if (!(here->slowest < INFINITY))
                continue;
            for (int k = 0; k < g->stages; k++)
                for (int end = first + 1; end <= units && (set >> k & 1) == 0; end++) {
                    route *there = &table[(set | 1 << k) * row + end];
                    const double own = ends_at(g->p, end) ? seconds_of(g, g->workers[k], first, end)
                                                          : INFINITY,
                                 slowest = own > here->slowest ? own : here->slowest;
                    if (slowest < there->slowest && fits(g, g->workers[k], stage, first, end))
                        *there = (route){ slowest, first, k };
                }
        }
    }
}

/* Reads the plan from the table. Returns false if there is none. */
static bool read_plan(const programme *g, const route *table, tutti_pipeline_plan *plan)
{
    const int row = g->p->units + 1;
    int set = (1 << g->stages) - 1, end = g->p->units;
    double all = 0;

    *plan = (tutti_pipeline_plan){ .stages = g->stages, .in_flight = g->in_flight };
    if (!(table[set * row + end].slowest < INFINITY))
        return false;
    for (int q = g->stages - 1; q >= 0; q--) {
        const route *w = &table[set * row + end];
        plan->first[q + 1] = end;
        plan->worker[q] = g->workers[w->worker];
        plan->seconds[q] = seconds_of(g, plan->worker[q], w->from, end);
        plan->bytes[q] = bytes_of(g, q, w->from, end);
        plan->slowest = plan->seconds[q] > plan->slowest ? plan->seconds[q] : plan->slowest;
        all += plan->seconds[q];
        set &= ~(1 << w->worker);
        end = w->from;
    }
    plan->rate = g->in_flight < all / plan->slowest ? g->in_flight / all : 1 / plan->slowest;
    return true;
}

static bool sound(double x)
{
    return x >= 0 && isfinite(x);
}

static tutti_status check_profile(const programme *g, tutti_error *err)
{
    const tutti_pipeline_profile *p = g->p;
    int places = 0;

    if (p->units < 1 || p->units > TUTTI_PIPELINE_UNITS_MOST || g->stages < 1 ||
        g->stages > TUTTI_PIPELINE_STAGES_MOST || g->in_flight < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a pipeline of %d layers in %d stages with %d micro-batches in flight: "
                          "layers must be from 1 to %d, stages from 1 to %d, micro-batches 1 or "
                          "more",
                          p->units, g->stages, g->in_flight, TUTTI_PIPELINE_UNITS_MOST,
                          TUTTI_PIPELINE_STAGES_MOST);
    for (int u = 0; u < p->units; u++) {
        const tutti_pipeline_unit *unit = &p->unit[u];
        places += u == 0 || unit->cut;
        if (!sound(unit->enters) || !sound(unit->values) || !sound(unit->state) ||
            !sound(unit->kept))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the profile of unit %d has bytes below 0, or not finite", u);
    }
    for (int k = 0; k < g->stages; k++) {
        const int w = g->workers[k];
        if (w < 0 || w >= p->workers)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "stage on worker %d; the profile has workers 0 to %d", w,
                              p->workers - 1);
        for (int other = 0; other < k; other++)
            if (g->workers[other] == w)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "worker %d has two stages of one pipeline", w);
        for (int u = 0; u < p->units; u++)
            if (!(p->seconds[w * p->units + u] > 0) || !isfinite(p->seconds[w * p->units + u]))
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "unit %d takes %g seconds on worker %d; it must be above 0", u,
                                  p->seconds[w * p->units + u], w);
    }
    if (g->stages > places)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d stages of a model that can begin one at %d places; use fewer stages "
                          "or a deeper model",
                          g->stages, places);
    return TUTTI_OK;
}

/* TUTTI_ERR_MEMORY: names the stage that lacks most memory in the plan without limits. */
static tutti_status fail_unfit(const programme *g, const tutti_pipeline_plan *plan,
                               tutti_error *err)
{
    int worst = 0;
    double most = -INFINITY;

    for (int q = 0; q < plan->stages; q++) {
        const double memory = g->p->memory[plan->worker[q]],
                     lacks = memory > 0 ? plan->bytes[q] - memory : -INFINITY;
        if (lacks > most)
            most = lacks, worst = q;
    }
    return tutti_fail(
        err, TUTTI_ERR_MEMORY, 0,
        "no cut of the model in %d stages with %d micro-batches in flight fits the memory of its "
        "workers; in the fastest stage %d (units %d to %d, on worker %d) needs %.0f bytes and has "
        "%.0f"
        "; use more stages, fewer or smaller micro-batches, or recompute=on",
        g->stages, g->in_flight, worst, plan->first[worst], plan->first[worst + 1] - 1,
        plan->worker[worst], plan->bytes[worst], g->p->memory[plan->worker[worst]]);
}

tutti_status tutti_pipeline_partition(const tutti_pipeline_profile *profile, const int *workers,
                                      int stages, int in_flight, tutti_pipeline_plan *plan,
                                      tutti_error *err)
{
    programme g = { profile, workers, stages, in_flight, true };
    tutti_status status = TUTTI_OK;
    route *table;

    *plan = (tutti_pipeline_plan){ 0 };
    TUTTI_TRY(check_profile(&g, err));
    table = tutti_alloc((size_t)1 << stages, (size_t)(profile->units + 1) * sizeof *table);
    if (table == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to cut %d layers in %d stages",
                          profile->units, stages);
    solve(&g, table);
    if (!read_plan(&g, table, plan)) {
        g.limits = false;
        solve(&g, table);
        read_plan(&g, table, plan);
        status = fail_unfit(&g, plan, err);
        *plan = (tutti_pipeline_plan){ 0 };
    }
    tutti_free(table);
    return status;
}

tutti_status tutti_pipeline_best(const tutti_pipeline_profile *profile, const int *workers,
                                 int stages, int most, tutti_pipeline_plan *plan, tutti_error *err)
{
    TUTTI_TRY(tutti_pipeline_partition(profile, workers, stages, 1, plan, err));
    for (int in_flight = 2; in_flight <= most; in_flight++) {
        tutti_pipeline_plan other;
        const tutti_status status =
            tutti_pipeline_partition(profile, workers, stages, in_flight, &other, NULL);
        if (status == TUTTI_ERR_MEMORY)
            break; /* more takes more */
        if (status != TUTTI_OK)
            return status;
        if (other.rate > plan->rate)
            *plan = other;
    }
    return TUTTI_OK;
}
