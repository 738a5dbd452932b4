/* sums.c: the loss and the samples since the last report, and the regret of the run: what reports
   contain about the steps and the engine does not know.

   Without epochs each worker has those of its own passes, and a report adds them up.

   With epochs (epoch.h) all members have those of all after each step, so that a lost member takes
   nothing with it. In a step each member adds to a copy. The last exchange of the step, before the
   question whether it is made (tutti_engine_options.commit), adds up the copies. Each share is in
   one of them and is 0 in the others, so its loss has the bits that it has when one worker computes
   that share all the time. A step that is not made leaves the sums of the step before.

   They are part of the state of a step, in the facts of checkpoints and images, with the step's
   learning rate and the answer to one question: is it recorded, that is, has index 0 written its
   report and its evaluation? A loss may end an epoch within these, and then no other member knows.
   So it is recorded if a checkpoint was saved after it, which all do together; an image, which
   must be the same on all members, does not say so. If it may not be, the next epoch makes them
   again, which changes nothing if they were there. That is why it is not the report that forgets
   the sums, but the next step that is made. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/share.h"
#include "sums.h"
#include "train_internal.h"

/* What follows the losses of the shares in step.sums. */
enum { SAMPLES, REGRET, OTHERS };

static size_t shares_of(const tutti_run *run)
{
    return (size_t)run->config->elastic_shares;
}

/* Has the last step been reported? */
static bool begins_anew(const tutti_run *run)
{
    return tutti_engine_method(run->engine)->step % (uint64_t)run->config->report_every == 0;
}

tutti_status tutti_train_sums_open(tutti_run *run, tutti_error *err)
{
    const size_t shares = shares_of(run);

    if (shares == 0)
        return TUTTI_OK;
    if (run->share_loss == NULL)
        run->share_loss = tutti_alloc(shares, sizeof *run->share_loss);
    if (run->epoch.number > 0 && run->step.sums == NULL)
        run->step.sums = tutti_alloc(shares + OTHERS, sizeof *run->step.sums);
    return run->share_loss != NULL && (run->epoch.number == 0 || run->step.sums != NULL)
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the losses of %zu shares",
                            shares);
}

void tutti_train_sums_close(tutti_run *run)
{
    tutti_free(run->share_loss);
    tutti_free(run->step.sums);
    run->share_loss = NULL;
    run->step.sums = NULL;
}

/* ---- a step ---- */

void tutti_train_sums_begin(tutti_run *run)
{
    const int stride = tutti_share_stride(&run->share);
    int first, mine;

    if (run->epoch.number == 0)
        return;
    first = tutti_share_logical(&run->share, run->rank, &mine);
    run->step.status = TUTTI_OK;
    memset(run->step.sums, 0, (shares_of(run) + OTHERS) * sizeof *run->step.sums);
    for (int i = 0; i < mine && !begins_anew(run); i++)
        run->step.sums[first + i * stride] = run->share_loss[first + i * stride];
}

void tutti_train_sums_add(tutti_run *run, const tutti_pass *pass, double loss, int64_t samples)
{
    double *const shares = run->epoch.number > 0 ? run->step.sums : run->share_loss;
    const int at = (int)(pass->index / run->share.accumulate);
    int first, mine;

    if (pass->again)
        return;
    first = tutti_share_logical(&run->share, run->rank, &mine);
    run->loss_sum += loss;
    if (shares != NULL && at < mine) /* else only others have a share in this pass */
        shares[first + at * tutti_share_stride(&run->share)] += loss;
    if (run->epoch.number > 0)
        run->step.sums[shares_of(run) + SAMPLES] += (double)samples;
    else
        run->loss_samples += (double)samples;
}

void tutti_train_sums_regret(tutti_run *run, double regret)
{
    if (run->epoch.number > 0)
        run->step.sums[shares_of(run) + REGRET] += regret;
    else
        run->regret += regret;
}

bool tutti_train_commit(void *user, uint64_t step)
{
    tutti_run *run = user;
    const tutti_train_epoch *epoch = &run->epoch;
    const size_t shares = shares_of(run);
    const double *const others = run->step.sums + shares;

    run->step.status = tutti_reduce_double(&run->all, TUTTI_SUM, run->step.sums, shares + OTHERS,
                                           &run->step.err);
    if (run->step.status != TUTTI_OK ||
        (epoch->commit != NULL && epoch->names == 0 && !epoch->commit(epoch->user, step)))
        return false;
    memcpy(run->share_loss, run->step.sums, shares * sizeof *run->share_loss);
    run->loss_samples = (begins_anew(run) ? 0 : run->loss_samples) + others[SAMPLES];
    run->regret += others[REGRET];
    run->step.lr = tutti_engine_method(run->engine)->lr;
    return true;
}

tutti_status tutti_train_sums_end(const tutti_run *run, tutti_status status, tutti_error *err)
{
    if (status == TUTTI_OK || run->epoch.number == 0 || run->step.status == TUTTI_OK)
        return status;
    if (err != NULL)
        *err = run->step.err;
    return run->step.status;
}

/* ---- a report ---- */

static tutti_status add_up_shares(tutti_run *run, double *loss, tutti_error *err)
{
    const bool known = run->epoch.number > 0;

    if (!known)
        TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, run->share_loss, shares_of(run), err));
    *loss = 0;
    for (size_t v = 0; v < shares_of(run) && run->all.index == 0; v++)
        *loss += run->share_loss[v];
    if (!known)
        memset(run->share_loss, 0, shares_of(run) * sizeof *run->share_loss);
    return TUTTI_OK;
}

tutti_status tutti_train_sums_report(tutti_run *run, double *loss, double *samples,
                                     tutti_error *err)
{
    const bool others_tell = run->epoch.number > 0 && run->all.index > 0;

    *loss = run->loss_sum;
    *samples = others_tell ? 0 : run->loss_samples;
    return run->share_loss != NULL ? add_up_shares(run, loss, err) : TUTTI_OK;
}

void tutti_train_sums_reported(tutti_run *run)
{
    run->loss_sum = 0;
    if (run->epoch.number == 0)
        run->loss_samples = 0;
}

double tutti_train_sums_lr(const tutti_run *run)
{
    return run->epoch.number > 0 ? run->step.lr : tutti_engine_method(run->engine)->lr;
}

double tutti_train_sums_regret_of(const tutti_run *run)
{
    return run->epoch.number > 0 && run->all.index > 0 ? 0 : run->regret;
}

/* ---- as a part of the state of a step ---- */

json_t *tutti_train_sums_facts(const tutti_run *run, bool saved)
{
    json_t *shares = json_array();
    uint64_t step;

    tutti_engine_whole(run->engine, &step);
    for (size_t v = 0; v < shares_of(run); v++)
        json_array_append_new(shares, tutti_record_number(run->share_loss[v]));
    return json_pack("{s:o, s:o, s:o, s:o, s:b}", "share_loss", shares, "samples",
                     tutti_record_number(run->loss_samples), "regret",
                     tutti_record_number(run->regret), "lr", tutti_record_number(run->step.lr),
                     "recorded", (int)(saved && run->recorded == step));
}

/* Returns the number; null: it was not finite. */
static double number_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static tutti_status take(tutti_run *run, const json_t *sums, tutti_error *err)
{
    const json_t *const shares = json_object_get(sums, "share_loss");

    if (json_array_size(shares) != shares_of(run))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the state of step %llu is that of a run with elastic-shares %zu, and "
                          "here they are %zu; they decide the numbers and must be the same",
                          (unsigned long long)run->entered_step, json_array_size(shares),
                          shares_of(run));
    for (size_t v = 0; v < shares_of(run); v++)
        run->share_loss[v] = number_of(json_array_get(shares, v));
    run->loss_samples = number_of(json_object_get(sums, "samples"));
    run->regret = number_of(json_object_get(sums, "regret"));
    run->step.lr = number_of(json_object_get(sums, "lr"));
    if (run->entered_step > 0 && !json_is_true(json_object_get(sums, "recorded")))
        run->recorded = run->entered_step - 1;
    return TUTTI_OK;
}

tutti_status tutti_train_sums_take(tutti_run *run, tutti_error *err)
{
    json_t *facts;
    const json_t *sums;
    tutti_status status = TUTTI_OK;

    memset(run->share_loss, 0, shares_of(run) * sizeof *run->share_loss);
    run->loss_sum = run->loss_samples = run->regret = 0;
    if (run->epoch.from == NULL && run->resumed_facts == NULL)
        return TUTTI_OK;
    facts = json_loads(run->epoch.from != NULL ? tutti_checkpoint_facts(run->epoch.from)
                                               : run->resumed_facts,
                       0, NULL);
    tutti_free(run->resumed_facts);
    run->resumed_facts = NULL;
    sums = json_object_get(facts, "since_report");
    if (sums != NULL)
        status = take(run, sums, err);
    else /* of a run without epochs */
        run->regret = run->entered_step > 0 ? NAN : 0;
    json_decref(facts);
    return status;
}
