/* ask.c: what would the codec make of this step's gradient? A method that decides by it whether
   the gradient goes through the codec at all asks before the first piece is exchanged
   (tutti_exchange_ask), and then takes tutti_exchange or tutti_exchange_plain.

   The codec is applied as in an exchange, but to a copy: wrappers process each tensor, it is
   encoded in the views that would be sent, and what decodes from that is measured. The codec's
   states are copied before and restored after, so that a residual is the same to the bit whether
   the method has asked or not. This costs one more encoding and a copy of the states, in memory
   and in time. A codec that draws gives the same draws again: they are a function of the view. */
#include <math.h>

#include "exchange_internal.h"
#include "engine/refuse.h"
#include "codec/codec.h"
#include "ask.h"

/* True if the codec sends sums of fewer numbers than the view has elements, so that no worker sends
   anything of its own that could be measured. A sum of all elements is not included: what it loses
   is not asked for, and counts as sent. */
static bool is_summed_in_part(const tutti_codec *c, const tutti_view *v)
{
    return c->ops->rounds > 1 || (c->ops->rounds == 1 && c->ops->width(c, v, 0) != v->count);
}

tutti_status tutti_exchange_ask_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_exchange *x = e->sums.exchange;
    const size_t bytes = tutti_exchange_state_bytes(x, plan);
    const tutti_rule rules[] = {
        { x->team > 1,
          "codec-hierarchy is '{codec_hierarchy}', but {method} decides by what the codec makes of "
          "every worker's own gradient; leave codec-hierarchy at none" },
        { e->options.codec_cost == TUTTI_CODEC_COST_AUTO_OFF,
          "codec-cost is auto-off, but {method} decides by itself in which steps gradients go "
          "through its codec; leave codec-cost off, or take explain" },
    };

    for (int t = 0; t < x->space.n_tensors; t++) {
        tutti_view v = x->tensor[t];
        const tutti_codec *chosen;
        v.step = TUTTI_EXCHANGE_LATE;
        chosen = tutti_codec_chosen(x->codec, &v);
        if (is_summed_in_part(chosen, &v))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s' looks at what each worker would send, and codec '%s' "
                              "sums it on its way",
                              m->ops->name, chosen->ops->name);
    }
    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    tutti_declare_vector(plan, "codec.asked", TUTTI_SCRATCH, &x->asked);
    if (bytes > 0)
        tutti_declare(plan,
                      &(tutti_state){ .name = "codec.asked-states",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_U8,
                                      .count = bytes },
                      &x->asked_states);
    return TUTTI_OK;
}

/* Adds the squared norm of what one view is decoded to. */
static tutti_status measure(tutti_exchange_job *job, const tutti_exchange_unit *u,
                            const tutti_view *v, const float *x, double *sent, tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;
    tutti_exchange_slot *slot = job->slot;
    size_t bytes;

    if (v->count == 0)
        return TUTTI_OK;
    if (u->codec->ops->scratch != NULL)
        TUTTI_TRY(tutti_exchange_grow(&slot->scratch, u->codec->ops->scratch(u->codec, v), 1, err));
    TUTTI_TRY(tutti_exchange_grow(&slot->send, u->codec->ops->bound(u->codec, v) + 1, 1, err));
    TUTTI_TRY(tutti_exchange_grow(&slot->decoded, v->count, sizeof(float), err));
    bytes = u->codec->ops->encode(u->codec, v, x, slot->scratch.at, slot->send.at);
    tutti_fill(d, v->count, 0, slot->decoded.at);
    TUTTI_TRY(
        u->codec->ops->decode_add(u->codec, v, slot->send.at, bytes, 1, slot->decoded.at, err));
    *sent += tutti_norm2(d, v->count, slot->decoded.at);
    return TUTTI_OK;
}

static tutti_status ask_codecs(tutti_exchange_job *job, tutti_route route, double *whole,
                               double *sent, tutti_error *err)
{
    tutti_engine_exchange *x = job->exchange;
    const int workers = x->space.workers;

    for (int t = 0; t < job->n_units; t++) {
        const tutti_exchange_unit *u = &job->unit[t];
        const bool owned = tutti_exchange_by_owners(u, workers, route);
        const float *from = u->n_wrappers > 0 ? tutti_codec_before(x->codec, &u->view, u->x) : u->x;
        whole[t] = tutti_norm2(x->space.device, u->view.count, from);
        if (u->codec->ops->rounds > 0) {
            sent[t] = whole[t];
            continue;
        }
        for (int o = 0; o < (owned ? workers : 1); o++) {
            const tutti_view v = owned ? tutti_exchange_part_of(u, o, workers, 0) : u->view;
            TUTTI_TRY(measure(job, u, &v, from + (v.first - u->view.first), &sent[t], err));
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_exchange_ask(tutti_method *m, double weight, double *whole, double *sent,
                                tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_exchange *x = e->sums.exchange;
    const size_t used = m->layout->used;
    const float scale = (float)(weight * x->space.workers);
    tutti_exchange_job job = { .exchange = x };
    const tutti_piece all = {
        .index = -1, .count = used, .tensors = m->layout->n_tensors, .g = x->asked
    };
    const bool finite = tutti_finite(m->device, used, m->g);
    tutti_status status;

    for (int t = 0; t < m->layout->n_tensors; t++)
        whole[t] = sent[t] = finite ? 0 : NAN;
    if (!finite)
        return TUTTI_OK;
    tutti_copy(m->device, used, m->g, x->asked);
    if (scale != 1)
        tutti_scale(m->device, used, scale, x->asked);
    job.slot = tutti_exchange_take_slot(x, err);
    if (job.slot == NULL)
        return TUTTI_ERR_STATE;
    tutti_exchange_keep_states(e, x->asked_states, false);
    status = tutti_exchange_set_up(&job, &all, e->counts.progress.step, err);
    if (status == TUTTI_OK)
        status = ask_codecs(&job, e->sums.route, whole, sent, err);
    tutti_exchange_keep_states(e, x->asked_states, true);
    tutti_exchange_give_slot(x, job.slot);
    return status;
}
