/* names.c: passes whose method names their samples, and asks for the loss of each
   (tutti_pass.ids, .losses). The method's names are checked before the client computes by them.
   The client's losses are checked afterwards: a client that states at open that it reports
   losses, and does not, would otherwise train by whatever was in that memory. */
#include <math.h>

#include "engine_internal.h"
#include "refuse.h"

tutti_status tutti_names_declare(tutti_method *m, tutti_error *err)
{
    static const tutti_conflict parts = { TUTTI_ASKED_PARTITION, "chooses among all samples",
                                          " that stay with it", ", or take another method" };
    const tutti_engine *e = m->engine;
    const tutti_rule rules[] = {
        { !e->options.names,
          "{method} chooses samples by their losses, for which the client takes samples by name and "
          "reports the loss of each (engine_options.names; in Python prepare(sampler=...) and "
          "step(losses=...))" },
        { e->options.data_samples == 0,
          "{method} chooses among the samples of the training set, but their number is not given; "
          "give data_samples when opening the engine" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    TUTTI_TRY(tutti_refuse(m, &parts, 1, err));
    m->names = true;
    return TUTTI_OK;
}

tutti_status tutti_engine_names_check(const tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    if ((p->ids != NULL || p->losses != NULL) && !e->m.names)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' names samples or asks for losses in a pass; that is legal after "
            "tutti_names_declare (steps.h)",
            e->m.ops->name);
    for (int64_t i = 0; p->ids != NULL && i < p->samples; i++)
        if (p->ids[i] >= e->division.share.samples)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method '%s' names sample %llu in a pass; the training set has %llu",
                              e->m.ops->name, (unsigned long long)p->ids[i],
                              (unsigned long long)e->division.share.samples);
    for (int64_t i = 0; p->losses != NULL && i < p->samples; i++)
        p->losses[i] = NAN;
    return TUTTI_OK;
}

tutti_status tutti_engine_losses_check(const tutti_engine *e, double loss_sum, tutti_error *err)
{
    const tutti_pass *p = &e->step.pass;

    for (int64_t i = 0; p->losses != NULL && isfinite(loss_sum) && i < p->samples; i++)
        if (isnan(p->losses[i]))
            return tutti_fail(
                err, TUTTI_ERR_STATE, 0,
                "the loss of sample %lld of %lld was not reported in step %llu; a client that is "
                "opened with names writes tutti_pass.losses before it calls passed (in PyTorch: "
                "optimizer.step(losses=...))",
                (long long)i, (long long)p->samples, (unsigned long long)e->counts.progress.step);
    return TUTTI_OK;
}
