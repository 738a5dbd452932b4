/* reinforce.c: the policy's training.

   A round draws plans; theta goes along  mean over them of (reward - baseline) grad log P, where

     reward   -log(cost / least cost so far) - tau log P(plan);   tau = entropy (1 - round / rounds)

   The published settings are -cost / least and no tau (lr 0.01, 300 rounds; here 0.1 and 1000).
   With those the policy converges to one plan too soon: its P comes near 1, others are hardly
   drawn any more, and more rounds change little. The mean of -log P is the policy's entropy, so
   rare plans are rewarded, less and less over the rounds, and at the end cost alone counts. The
   entropy is what helps: with tau and -cost / least plans are as good, and with the logarithm and
   no tau they are not. The logarithm turns costs into ratios, like tau. So neither depends on the
   currency.

   A plan that does not reach the floor has `penalty` times the dearest feasible one's cost so far.
   The baseline is a moving mean of rewards that begins with the first round's. The cheapest plan
   that was ever drawn is kept, and the one with the likeliest types at the end if it is cheaper. */
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

typedef struct learner {
    const tutti_placement_problem *p;
    const placement_rl *o;
    placement_policy policy;
    double *gradient;
    int *on;                     /* samples x layers */
    double *cost, *log_chance, *reward; /* of each sample */
    double best, dearest;        /* costs of feasible plans so far */
    int *best_on;
} learner;

static void look_at(learner *r, const int *on, double cost)
{
    if (!(cost < INFINITY))
        return;
    r->dearest = fmax(r->dearest, cost);
    if (cost < r->best) {
        r->best = cost;
        memcpy(r->best_on, on, (size_t)r->p->layers * sizeof *on);
    }
}

/* While no feasible plan has been found, all plans have the same reward. Where the least cost is
   0 there are no ratios. */
static double reward_of_cost(const learner *r, double cost)
{
    if (!(r->best < INFINITY))
        return -log(r->o->penalty);
    if (!(r->best > 0))
        return -(double)(cost > 0);
    return log(r->best) - (cost < INFINITY ? log(cost) : log(r->o->penalty) + log(r->dearest));
}

static void learn(learner *r)
{
    const int samples = (int)r->o->samples, layers = r->p->layers;
    double baseline = 0;

    for (int64_t round = 0; round < r->o->rounds; round++) {
        const double tau = r->o->entropy * (1 - (double)round / (double)r->o->rounds);
        double mean = 0;
        for (int j = 0; j < samples; j++) {
            int *on = r->on + j * layers;
            r->log_chance[j] = tutti_placement_policy_run(
                &r->policy, PLACEMENT_DRAWN,
                (tutti_rng){ (uint64_t)r->o->seed, 2 + (uint64_t)j, (uint64_t)round }, on);
            r->cost[j] = tutti_placement_cost(r->p, on);
            look_at(r, on, r->cost[j]);
        }
        for (int j = 0; j < samples; j++) {
            r->reward[j] = reward_of_cost(r, r->cost[j]) - tau * r->log_chance[j];
            mean += r->reward[j] / samples;
        }
        if (round == 0)
            baseline = mean;
        memset(r->gradient, 0, r->policy.count * sizeof *r->gradient);
        for (int j = 0; j < samples; j++) {
            int *on = r->on + j * layers;
            tutti_placement_policy_run(&r->policy, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on);
            tutti_placement_policy_back(&r->policy, on, (r->reward[j] - baseline) / samples,
                                        r->gradient);
        }
        for (size_t i = 0; i < r->policy.count; i++)
            r->policy.theta[i] += r->o->lr * r->gradient[i];
        baseline += r->o->baseline_decay * (mean - baseline);
    }
    tutti_placement_policy_run(&r->policy, PLACEMENT_LIKELIEST, (tutti_rng){ 0 }, r->on);
    look_at(r, r->on, tutti_placement_cost(r->p, r->on));
}

tutti_status tutti_placement_reinforce(const tutti_placement_problem *p, const placement_rl *o,
                                       int *on, double *cost, tutti_error *err)
{
    learner r = { .p = p, .o = o, .best = INFINITY, .best_on = on };
    tutti_status status = TUTTI_OK;

    *cost = INFINITY;
    TUTTI_TRY(tutti_placement_policy_open(&r.policy, p, (int)o->hidden, (uint64_t)o->seed, err));
    r.gradient = tutti_alloc(r.policy.count, sizeof *r.gradient);
    r.on = tutti_alloc((size_t)o->samples * (size_t)p->layers, sizeof *r.on);
    r.cost = tutti_alloc((size_t)o->samples, sizeof *r.cost);
    r.log_chance = tutti_alloc((size_t)o->samples, sizeof *r.log_chance);
    r.reward = tutti_alloc((size_t)o->samples, sizeof *r.reward);
    if (r.gradient != NULL && r.on != NULL && r.cost != NULL && r.log_chance != NULL &&
        r.reward != NULL)
        learn(&r);
    else
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a round of %d plans",
                            (int)o->samples);
    *cost = r.best;
    tutti_free(r.reward);
    tutti_free(r.log_chance);
    tutti_free(r.cost);
    tutti_free(r.on);
    tutti_free(r.gradient);
    tutti_placement_policy_close(&r.policy);
    return status;
}
