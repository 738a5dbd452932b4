/* slow.c: --slow: emulates workers of unequal speed.

     RANK:FACTOR      always
     RANK:FACTOR:P    in a step with probability P
     *:FACTOR:P       the same for each worker, drawn independently

   Several are separated by commas and multiply. A slowed worker sleeps (factor - 1) times as long
   as it has just computed, layer by layer, so that its gradients become ready as late as those of
   a slow machine. In simulated runs the sleep is virtual. The draws are a function of seed, rank
   and step: a resumed run is slowed in the same way.

   Computing is real time, so that workers which share a core are slowed by the same factor. But a
   thread that was stopped, or not scheduled for long, did not compute: what is more than STALLED
   times its processor time is not counted. */
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"
#include "base/numbers.h"
#include "runtime/clock.h"

enum { STALLED = 8 };

enum { SLOW_STREAM = 0x736c6f77 }; /* "slow": independent of all other draws */

/* Parses a number in [least, most]. *end: behind it. false: there is none, or it is another. */
static bool parse_between(const char *at, double least, double most, double *x, const char **end)
{
    return tutti_number_begins(at, x, end) && *x >= least && *x <= most;
}

/* Parses one entry at *text, and moves *text behind it and a comma. *rank -1: every worker. false:
   malformed. */
static bool parse_entry(const char **text, long *rank, double *factor, double *chance)
{
    const char *at = *text, *end = at + 1;

    *chance = 1;
    *rank = -1;
    if (*at != '*') {
        char *past;
        *rank = strtol(at, &past, 10);
        if (past == at || *rank < 0)
            return false;
        end = past;
    }
    if (*end != ':')
        return false;
    if (!parse_between(end + 1, 1, 1e6, factor, &end))
        return false;
    if (*end == ':' && !parse_between(end + 1, 0, 1, chance, &end))
        return false;
    if (*end != 0 && *end != ',')
        return false;
    *text = *end == ',' ? end + 1 : end;
    return *end == 0 || **text != 0;
}

tutti_status tutti_train_check_slow(const char *spec, int64_t workers, tutti_error *err)
{
    for (const char *at = spec; *at != 0;) {
        long rank;
        double factor, chance;
        if (!parse_entry(&at, &rank, &factor, &chance))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "slow is '%.80s'; write RANK:FACTOR, RANK:FACTOR:P or *:FACTOR:P with a factor "
                "from 1 to 1e6 and P from 0 to 1, several separated by commas",
                spec);
        if (rank >= workers)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "slow is '%.80s', but there is no worker %ld: with n = %lld they are 0 to %lld",
                spec, rank, (long long)workers, (long long)workers - 1);
    }
    return TUTTI_OK;
}

double tutti_train_slow_factor(const char *spec, uint64_t seed, int rank, uint64_t step)
{
    double product = 1;
    uint64_t entry = 0;

    for (const char *at = spec; *at != 0; entry++) {
        long whom;
        double factor, chance;
        if (!parse_entry(&at, &whom, &factor, &chance))
            break; /* checked before the run */
        if ((whom == -1 || whom == rank) &&
            (chance >= 1 ||
             tutti_uniform((tutti_rng){ seed, SLOW_STREAM + ((uint64_t)rank << 32), step }, entry) <
                 chance))
            product *= factor;
    }
    return product;
}

void tutti_train_computes(tutti_run *run)
{
    if (run->slow <= 1)
        return;
    run->computing.since_ns = tutti_now_ns(run->rt);
    run->computing.processor_ns = tutti_processor_ns();
}

void tutti_train_stretch(tutti_run *run)
{
    int64_t now, took, most;

    tutti_train_meter_pay(run);
    if (run->slow <= 1)
        return;
    now = tutti_now_ns(run->rt);
    took = now - run->computing.since_ns;
    most = STALLED * (tutti_processor_ns() - run->computing.processor_ns);
    if (took > most && !tutti_clock_is_common(run->rt))
        took = most;
    tutti_sleep_until(run->rt, now + (int64_t)((run->slow - 1) * (double)took));
    tutti_train_computes(run);
}
