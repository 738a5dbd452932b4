/* search.c: the searches of placement.h by name, with their options. */
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

typedef union search_options { placement_rl rl; placement_genetic genetic; } search_options;
typedef tutti_status search_run(const tutti_placement_problem *p, const search_options *o, int *on,
                                double *cost, tutti_error *err);
typedef struct search { const char *name; const tutti_option *options; search_run *run; } search;

static const tutti_option rl_options[] = {
    { "hidden", TUTTI_INT, TUTTI_AT(placement_rl, hidden), 64, 1, 1024, NULL,
      "values of the LSTM's state" },
    { "samples", TUTTI_INT, TUTTI_AT(placement_rl, samples), 16, 1, 4096, NULL,
      "plans drawn a round" },
    { "rounds", TUTTI_INT, TUTTI_AT(placement_rl, rounds), 1000, 1, 100000, NULL,
      "rounds of REINFORCE" },
    { "lr", TUTTI_REAL, TUTTI_AT(placement_rl, lr), 0.1, 1e-9, 100, NULL, "learning rate" },
    { "entropy", TUTTI_REAL, TUTTI_AT(placement_rl, entropy), 0.1, 0, 100, NULL,
      "what a plan's -log P adds to its reward, falling to 0 over the rounds" },
    { "baseline_decay", TUTTI_REAL, TUTTI_AT(placement_rl, baseline_decay), 0.1, 0, 1, NULL,
      "of the moving mean of rewards" },
    { "penalty", TUTTI_REAL, TUTTI_AT(placement_rl, penalty), 10, 1, 1e6, NULL,
      "cost of a plan that misses the floor, in that of the dearest one that reaches it" },
    { "seed", TUTTI_INT, TUTTI_AT(placement_rl, seed), 1, 0, 4294967295.0, NULL,
      "of weights and draws" },
    { 0 }
};
static const tutti_option genetic_options[] = {
    { "population", TUTTI_INT, TUTTI_AT(placement_genetic, population), 32, 2, 100000, NULL,
      "plans of a generation" },
    { "generations", TUTTI_INT, TUTTI_AT(placement_genetic, generations), 150, 1, 100000, NULL,
      "generations" },
    { "seed", TUTTI_INT, TUTTI_AT(placement_genetic, seed), 1, 0, 4294967295.0, NULL, "of draws" },
    { 0 }
};
static const tutti_option no_options[] = { { 0 } };

static tutti_status run_rl(const tutti_placement_problem *p, const search_options *o, int *on,
                           double *cost, tutti_error *err)
{
    return tutti_placement_reinforce(p, &o->rl, on, cost, err);
}

static tutti_status run_genetic(const tutti_placement_problem *p, const search_options *o, int *on,
                                double *cost, tutti_error *err)
{
    return tutti_placement_genetic(p, &o->genetic, on, cost, err);
}

static tutti_status run_dp(const tutti_placement_problem *p, const search_options *o, int *on,
                           double *cost, tutti_error *err)
{
    (void)o;
    return tutti_placement_dp(p, on, cost, err);
}

static tutti_status run_brute(const tutti_placement_problem *p, const search_options *o, int *on,
                              double *cost, tutti_error *err)
{
    (void)o;
    return tutti_placement_brute(p, on, cost, err);
}

static tutti_status run_greedy(const tutti_placement_problem *p, const search_options *o, int *on,
                               double *cost, tutti_error *err)
{
    (void)o, (void)err;
    *cost = tutti_placement_greedy(p, on);
    return TUTTI_OK;
}

static tutti_status run_fixed(const tutti_placement_problem *p, const search_options *o, int *on,
                              double *cost, tutti_error *err)
{
    (void)o, (void)err;
    *cost = tutti_placement_fixed(p, on);
    return TUTTI_OK;
}

static const search searches[] = {
    { "rl", rl_options, run_rl },          { "dp", no_options, run_dp },
    { "brute", no_options, run_brute },    { "greedy", no_options, run_greedy },
    { "genetic", genetic_options, run_genetic }, { "fixed", no_options, run_fixed },
};

const char *tutti_placement_search(int i, const tutti_option **options)
{
    if (i < 0 || (size_t)i >= TUTTI_LENGTH(searches))
        return NULL;
    *options = searches[i].options;
    return searches[i].name;
}

static const search *find_search(const char *name, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(searches)];
    char near[128];

    for (size_t i = 0; i < TUTTI_LENGTH(searches); i++) {
        if (strcmp(searches[i].name, name) == 0)
            return &searches[i];
        names[i] = searches[i].name;
    }
    tutti_suggest(name, names, TUTTI_LENGTH(names), near, sizeof near);
    tutti_fail(err, TUTTI_ERR_USAGE, 0,
               "there is no search '%.40s'%s; there are rl, dp, brute, greedy, genetic, fixed",
               name, near);
    return NULL;
}

tutti_status tutti_placement_find(const tutti_placement_problem *p, const char *text,
                                  tutti_placement_plan *plan, tutti_error *err)
{
    search_options o = { 0 };
    int on[TUTTI_PLACEMENT_LAYERS_MOST] = { 0 };
    char what[64];
    const search *s;
    tutti_spec *spec;
    tutti_status status;
    double cost = INFINITY;

    *plan = (tutti_placement_plan){ 0 };
    TUTTI_TRY(tutti_spec_open(&spec, text, err));
    s = find_search(tutti_spec_name(spec), err);
    status = s != NULL ? TUTTI_OK : TUTTI_ERR_USAGE;
    if (s != NULL) {
        snprintf(what, sizeof what, "search '%s'", s->name);
        status = tutti_spec_apply(spec, what, s->options, &o, err);
    }
    if (status == TUTTI_OK)
        status = s->run(p, &o, on, &cost, err);
    tutti_spec_close(spec);
    if (status == TUTTI_OK)
        status = cost < INFINITY ? tutti_placement_provision(p, on, plan, err)
                                 : tutti_placement_refuse(p, err);
    return status;
}
