/* team.c: codec-hierarchy. The workers of a machine, where bytes are cheap, sum their gradients
   uncompressed. The mean goes through the codec once, from the first of them to the first of each
   other machine, and the result is distributed to the others uncompressed. So links between
   machines carry what as many workers as there are machines would send. And what a codec loses it
   loses of a mean, which has less noise than its parts. (1-bit Adam and DGC ask for it; BAGUA
   does it by default, so `bagua` sets the node groups itself.)

   To the codec there are as many workers as node groups: its draws, its residuals, what it learns
   and the owners of shards are per group. A group's states are those of its first worker; the
   others declare and save the same ones, which stay as they began, except for what `begin`
   computes from sums that all receive. With equal gradients inside each group, or groups of one,
   it is the run of the first workers alone, to the bit.

   A residual is a group's, so the mean of all workers' residuals would not be what the model
   still has to receive: a checkpoint is resumed with the number of workers and the groups that
   saved it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exchange_internal.h"
#include "ask.h"
#include "collective/leaders.h"

/* The number of workers of one machine, if all machines have equally many, of consecutive
   ranks. */
static tutti_status machines(const tutti_method *m, const char *option, int *team, tutti_error *err)
{
    int c = 1;

    while (c < m->workers && tutti_world_host(m->world, c) == tutti_world_host(m->world, 0))
        c++;
    for (int r = 0; r < m->workers; r++) {
        const int host = tutti_world_host(m->world, r);
        int there = 0;
        for (int other = 0; other < m->workers; other++)
            there += tutti_world_host(m->world, other) == host;
        if (there != c || tutti_world_host(m->world, r / c * c) != host)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s=machine: there are %d workers on the machine of worker %d and %d "
                              "on that of worker 0; machines must have equally many, of "
                              "consecutive ranks: change the hosts, or give their number (%s=N, "
                              "which divides %d)",
                              option, there, r, c, option, m->workers);
    }
    *team = c;
    return TUTTI_OK;
}

tutti_status tutti_team_parse(const tutti_method *m, const char *option, const char *value,
                              int *team, tutti_error *err)
{
    char *end;
    long c;

    *team = 1;
    if (strcmp(value, "machine") == 0)
        return machines(m, option, team, err);
    if (strcmp(value, "none") == 0)
        return TUTTI_OK;
    errno = 0;
    c = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != 0 || c < 1 || c > m->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s is '%.40s'; it must be machine, none, or a number of workers from 1 to %d", option,
            value, m->workers);
    if (m->workers % c != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s is %ld, which does not divide the %d workers; take a number of workers that is a "
            "multiple of it, or another %s",
            option, c, m->workers, option);
    *team = (int)c;
    return TUTTI_OK;
}

tutti_status tutti_exchange_team_declare(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;
    tutti_engine_exchange *x = e->sums.exchange;
    const int team = e->sums.codec_team;

    x->team = team;
    if (team == 1)
        return TUTTI_OK;
    if (team == m->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec-hierarchy is '%.40s', and all %d workers are one team, so that nothing is left "
            "for codec '%.80s'; omit one of the two, or give the workers of a smaller team "
            "(codec-hierarchy=N)",
            e->options.codec_hierarchy, m->workers, x->spec);
    if (e->options.codec_cost != TUTTI_CODEC_COST_OFF)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec-cost predicts exchanges among all workers, and with teams of %d "
                          "(codec-hierarchy) the first of each alone take part; leave codec-cost "
                          "off",
                          team);
    return tutti_leaders_open(&x->leaders, &m->all, team, "codec team", err);
}

tutti_status tutti_exchange_teams(tutti_method *m, const char *option, int team, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (strcmp(e->options.codec_hierarchy, "none") != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec-hierarchy is '%.40s', but method '%s' sets it itself (%s); omit codec-hierarchy",
            e->options.codec_hierarchy, m->ops->name, option);
    if (e->sums.collective != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "collective is '%.80s', for sums over all workers, but under method '%s' "
                          "the first workers of teams sum (%s); leave collective at auto, or turn "
                          "the teams off",
                          e->sums.collective, m->ops->name, option);
    e->sums.codec_team = team;
    return TUTTI_OK;
}

bool tutti_exchange_leads(const tutti_engine *e)
{
    return e->m.rank % e->sums.exchange->team == 0;
}

int tutti_exchange_team(const tutti_engine *e)
{
    return e->sums.exchange != NULL ? e->sums.exchange->team : 1;
}

tutti_status tutti_exchange_check_saved_team(const tutti_engine *e, int64_t saved_team,
                                             int saved_by, tutti_error *err)
{
    const int team = tutti_exchange_team(e);

    if (e->sums.exchange == NULL || (saved_team == team && (team == 1 || saved_by == e->m.workers)))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "the checkpoint was saved by %d workers in teams of %lld, and this run has "
                      "%d in teams of %d: what a codec keeps is a team's, and of other teams it "
                      "would be another; resume it with -n %d and codec-hierarchy=%lld",
                      saved_by, (long long)saved_team, e->m.workers, team, saved_by,
                      (long long)saved_team);
}
