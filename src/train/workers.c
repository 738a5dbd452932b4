/* workers.c: the options of a run whose workers come and go (--workers). What such a run cannot do
   is refused here, before a worker is started, by the name of the option. */
#include <stdio.h>
#include <string.h>

#include "train_internal.h"
#include "engine/check.h"
#include "tutti/method.h"

/* Options about the members and their places. NULL: all well. */
static const char *against_places(const tutti_train_config *c)
{
    if (c->servers > 0)
        return "servers are given, and a server's slice of the model would be lost with it; leave "
               "servers at 0";
    if (strncmp(c->transport, "tcp", 3) != 0 || (c->transport[3] != 0 && c->transport[3] != '('))
        return "the transport is another than tcp, over which alone workers can come later; omit it";
    return NULL;
}

/* Options about losses, and what is kept for them. */
static const char *against_losses(const tutti_train_config *c)
{
    if (c->checkpoint_async)
        return "checkpoint-async is on, and a checkpoint that is being written when a worker comes "
               "or goes would be lost; leave it off";
    if (c->on_loss == TUTTI_ON_LOSS_STOP)
        return "on-loss is stop, and this run goes on after losses; omit it";
    if (c->on_loss == TUTTI_ON_LOSS_CONTINUE)
        return "on-loss is continue, which is for a fixed number of workers; this run goes on after "
               "losses without it";
    if (c->min_workers > 1)
        return "min-workers is given; FEWEST is the number with which the run goes on, so omit it";
    return NULL;
}

/* The parts of it are separated by commas (slow.c). */
static bool slows_by_rank(const char *slow)
{
    bool by_rank = false;

    for (const char *at = slow; *at != 0 && !by_rank; at += strcspn(at, ","), at += *at == ',')
        by_rank = *at != '*';
    return by_rank;
}

/* Options that belong to a worker by its rank, or to its part of a step. */
static const char *against_parts(const tutti_train_config *c)
{
    if (c->codec_cost != 0 || c->codec_report > 0 || c->codec_checksum ||
        strcmp(c->codec_hierarchy, "none") != 0)
        return "codec-cost, codec-report, codec-checksum or codec-hierarchy is given, and in such a "
               "run a codec encodes logical shares, and not what a worker sends; omit it";
    if (c->stream[0] != 0)
        return "stream is given, and the samples that wait at a worker would be lost with it; leave "
               "it out";
    if (strcmp(c->batch_share, "even") != 0 && strcmp(c->batch_share, "auto") != 0)
        return "batch-share has weights by rank, or of parts, and which worker has which changes; "
               "write auto, or omit it";
    if (slows_by_rank(c->slow))
        return "slow names a worker by its rank, and which one has it changes; write *:FACTOR";
    return NULL;
}

bool tutti_train_keeps_by_share(const tutti_train_config *c)
{
    unsigned traits;

    return c->codec[0] != 0 ||
           (tutti_method_traits(c->method, &traits) && (traits & TUTTI_STATES_OF_SHARES) != 0);
}

/* Can a worker be lost within a step, and be replaced, with this method? */
static tutti_status check_method(const tutti_train_config *c, tutti_error *err)
{
    unsigned traits;
    const char *why;

    if (!tutti_method_traits(c->method, &traits)) /* the engine reports it */
        return TUTTI_OK;
    why = (traits & TUTTI_LOGICAL_SHARES) == 0
              ? "does more in a step than to add gradients, and that depends on which workers there "
                "are"
          : (traits & TUTTI_WHOLE_STEPS) == 0
              ? "may be within a step when a worker is lost, and what it keeps is then of no step"
          : c->checkpoint_on_signal && c->codec[0] != 0
              ? "has a codec, which keeps a part of the state on each worker, so that none saves all "
                "of it as it leaves: leave checkpoint-on-signal off, and give checkpoint-every"
          : c->checkpoint_on_signal &&
                (traits & (TUTTI_SHARDED_OPTIMIZER | TUTTI_STATES_OF_SHARES)) != 0
              ? "has a part of the state on each worker, so that none saves all of it as it leaves: "
                "leave checkpoint-on-signal off, and give checkpoint-every"
              : NULL;
    return why == NULL ? TUTTI_OK
                       : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                    "workers is '%.40s', so that workers may come and go, but "
                                    "method '%.120s' %s; or take ddp, zero, local-sgd or "
                                    "bytescheduler(tune=off), or a fixed number of workers and "
                                    "checkpoints",
                                    c->workers, c->method, why);
}

/* Does the collective serve each number of workers that there may be, in the one order of sums? */
static tutti_status check_collective(const tutti_train_config *c, tutti_error *err)
{
    const bool of_codecs =
        strncmp(c->collective, "allgather", 9) == 0 || strncmp(c->collective, "alltoall", 8) == 0;

    if (strstr(c->collective, "any") != NULL || of_codecs)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "workers is '%.40s', so that workers may come and go, but collective "
                          "'%.120s' %s; leave it at auto",
                          c->workers, c->collective,
                          of_codecs ? "is for the messages of codecs"
                                    : "adds in an order that depends on which workers there are");
    for (int n = 1; n <= c->most; n++)
        TUTTI_TRY(tutti_fail_within(err, tutti_collective_check(c->collective, n, err),
                                    "workers is '%.40s', so there may be %d", c->workers, n));
    return TUTTI_OK;
}

static tutti_status check_options(const tutti_train_config *c, tutti_error *err)
{
    const char *against = against_places(c);

    against = against != NULL ? against : against_losses(c);
    against = against != NULL ? against : against_parts(c);
    return against == NULL ? TUTTI_OK
                           : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                        "workers is '%.40s', so that workers may come and go, but %s",
                                        c->workers, against);
}

/* The run begins with n; with hosts, it has all of theirs soon, and its launcher checks them. */
static tutti_status check_number(const tutti_train_config *c, tutti_error *err)
{
    return c->hosts[0] != 0 || (c->n >= c->least && c->n <= c->most)
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "n is %lld, and workers '%.40s' has the run begin with %d to %d", (long long)c->n,
                            c->workers, c->least, c->most);
}

tutti_status tutti_train_check_workers(tutti_train_config *c, tutti_error *err)
{
    int end = 0;

    c->least = c->most = 0;
    if (c->workers[0] == 0)
        return TUTTI_OK;
    if (sscanf(c->workers, "%d:%d%n", &c->least, &c->most, &end) != 2 || c->workers[end] != 0 ||
        c->least < 1 || c->least > c->most || c->most > TUTTI_TRAIN_WORKERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "workers is '%.80s'; write FEWEST:MOST, such as 2:8, from 1 to %d, or -n N for "
                          "a fixed number",
                          c->workers, TUTTI_TRAIN_WORKERS_MOST);
    TUTTI_TRY(check_options(c, err));
    TUTTI_TRY(check_number(c, err));
    if (c->elastic_shares == 0)
        c->elastic_shares = c->most;
    if (c->elastic_shares < c->most)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is %lld, and workers '%.40s' lets %d take part, each of "
                          "which computes at least one share; give at least %d, or omit it",
                          (long long)c->elastic_shares, c->workers, c->most, c->most);
    TUTTI_TRY(check_collective(c, err));
    return check_method(c, err);
}
