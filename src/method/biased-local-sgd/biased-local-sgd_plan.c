/* biased-local-sgd_plan.c: computes the shares of biased-local-sgd_plan.h. */
#include "biased-local-sgd_plan.h"

int64_t tutti_biased_batch(const tutti_method *m)
{
    return m->share->batch * m->share->accumulate;
}

int64_t tutti_biased_round(const tutti_method *m, int64_t steps)
{
    const int64_t batch = tutti_biased_batch(m);
    return steps < TUTTI_BIASED_ROUND_MOST / batch ? steps * batch : TUTTI_BIASED_ROUND_MOST;
}

bool tutti_biased_slow(const int64_t *tau, int workers, int worker)
{
    int64_t most = 0;

    for (int r = 0; r < workers; r++)
        most = tau[r] > most ? tau[r] : most;
    return 2 * tau[worker] <= most;
}

int64_t tutti_biased_takes(const tutti_method *m, const int64_t *tau, int64_t left, int worker)
{
    const int64_t mine = tutti_biased_round(m, tau[worker]);
    int64_t below = 0, all = 0;

    for (int r = 0; r < m->workers; r++) {
        below += r < worker ? tutti_biased_round(m, tau[r]) : 0;
        all += tutti_biased_round(m, tau[r]);
    }
    return left / all * mine + (int64_t)((__int128)(left % all) * (below + mine) / all) -
           (int64_t)((__int128)(left % all) * below / all);
}

int64_t tutti_biased_takes_slow(const tutti_method *m, const int64_t *tau, int64_t left, int end)
{
    int64_t sum = 0;

    for (int r = 0; r < end; r++)
        sum += tutti_biased_slow(tau, m->workers, r) ? tutti_biased_takes(m, tau, left, r) : 0;
    return sum;
}
