/* rounds.c: periodic methods with logical shares (tutti_rounds_declare). A step of the run is a
   round: V shares make H local steps each, and their models are averaged. A worker computes its
   shares one after the other, so it has one model at a time, however many there are:

     pass 0 of a share     x := start, slots := 0 (a client's optimiser: tutti_engine_round_begins)
     every A passes        x <- optimiser(x, g, slots), g the mean gradient of these passes; update
                           number t = 1 .. H of this round
     the last pass         g := x, or start - x, which logical.c adds in the tree of the shares with
                           the weight of its samples, as it adds gradients
     step                  once the round is committed x := the mean, or the method moves `start` by
                           the mean displacement

   A is engine_options.accumulate, H the method's `repeats`: the round has H A passes of each share,
   at the positions of the samples that H steps would have. So a round is a step for everything
   else: samples, schedules, reports, checkpoints, commit, members that come and go.

   Nothing outlives a round but the model and what the method keeps of rounds: slots are 0 again at
   the end. So the state is the same on all workers, and none is lost with a worker. A round that
   fails leaves the model with which it began.

   The exchange follows the last pass (m->whole), since the update of its pieces comes before. A
   local step in which a share has no samples is not made; a share without samples in the whole
   round weighs nothing. clip-norm bounds the gradient of each local step. */
#include <errno.h>
#include <math.h>

#include "engine/engine_internal.h"
#include "engine/hooks.h"
#include "engine/refuse.h"
#include "rounds.h"

struct tutti_rounds {
    tutti_engine *e;
    bool displaced;
    tutti_status (*before)(tutti_method *m, tutti_error *err); /* the method's; NULL: none */
    bool begun;                  /* x is a share's, not the common model */
    float *start;                /* declared, n: the model with which the round began */
    int64_t samples;             /* this share's, of the local step that is computed */
    tutti_rate rate;             /* of its update */
};

static int64_t passes_of_share(const tutti_rounds *s)
{
    return s->e->division.share.accumulate;
}

/* A client clears those of its optimiser before the next round. */
static void clear_slots(const tutti_rounds *s)
{
    const tutti_optim *o = s->e->m.optim;

    for (int k = 0; o != NULL && k < o->ops->slots(o->self); k++)
        tutti_fill(s->e->m.device, o->count, 0, o->slot[k]);
}

/* The samples of the local step to which pass `index` belongs. */
static int64_t samples_of(const tutti_rounds *s, int64_t index)
{
    const tutti_engine *e = s->e;
    const int64_t each = e->options.accumulate, begin = index / each * each;
    uint64_t epoch, position;
    int64_t samples = 0;

    for (int64_t k = begin; k < begin + each; k++)
        samples += tutti_share_pass(&e->division.share, e->m.rng.step, e->division.member, k,
                                    &epoch, &position);
    return samples;
}

static void set_pass(void *self, tutti_pass *pass)
{
    tutti_rounds *s = self;
    const tutti_engine *e = s->e;

    pass->keep = pass->same_values = pass->index % e->options.accumulate > 0;
    pass->divisor = s->samples = samples_of(s, pass->index);
}

static tutti_status begin_pass(void *self, const tutti_pass *pass, tutti_error *err)
{
    tutti_rounds *s = self;
    tutti_method *m = &s->e->m;

    (void)err;
    if (pass->index % passes_of_share(s) != 0)
        return TUTTI_OK;
    if (pass->index == 0)
        tutti_copy(m->device, m->n, m->x, s->start);
    else
        tutti_copy(m->device, m->n, s->start, m->x);
    s->begun = true;
    clear_slots(s);
    return TUTTI_OK;
}

/* Sets the rate of the update that ends with this pass. Before pieces of g change. */
static void set_rate(tutti_rounds *s)
{
    const tutti_engine *e = s->e;
    const int64_t step = e->step.pass.index % passes_of_share(s) / e->options.accumulate;
    double coefficient = 1;

    if (e->options.clip_norm > 0)
        coefficient = e->options.clip_norm / (sqrt(tutti_engine_norm2(e)) + 1e-6);
    s->rate = (tutti_rate){ e->m.lr, coefficient < 1 ? coefficient : 1, (uint64_t)step + 1 };
}

/* Makes the local step. */
static tutti_status update(const tutti_rounds *s, tutti_error *err)
{
    tutti_engine *e = s->e;

    if (s->samples > 0 && s->before != NULL)
        TUTTI_TRY(s->before(&e->m, err));
    for (int k = 0; k < e->layout.n_pieces && s->samples > 0; k++) {
        const tutti_piece *p = &e->pieces[k];
        if (!e->client.updates)
            tutti_update(e->m.optim, p->first, p->count, e->m.x + p->first, p->g, &s->rate);
        else if (s->rate.scale != 1)
            tutti_engine_scale_piece(e, &e->pieces[k], (float)s->rate.scale);
    }
    return e->client.updates && s->samples > 0
               ? tutti_engine_client_update(e, e->m.x, NULL, NULL, 1, err)
               : TUTTI_OK;
}

/* p->g := what the share has come to. */
static void take_result(const tutti_rounds *s, const tutti_piece *p)
{
    const tutti_method *m = &s->e->m;

    if (s->displaced)
        tutti_diff(m->device, p->count, 1, s->start + p->first, m->x + p->first, p->g);
    else
        tutti_copy(m->device, p->count, m->x + p->first, p->g);
}

static tutti_status end_pass(void *self, tutti_error *err)
{
    tutti_rounds *s = self;
    tutti_engine *e = s->e;
    const int64_t done = e->step.pass.index + 1;

    if (done % e->options.accumulate != 0)
        return TUTTI_OK;
    for (int k = 0; k < e->layout.n_pieces; k++)
        TUTTI_TRY(tutti_engine_check_gradient(e, k, err));
    set_rate(s);
    TUTTI_TRY(update(s, err));
    if (done % passes_of_share(s) != 0)
        return TUTTI_OK;
    for (int k = 0; k < e->layout.n_pieces; k++)
        take_result(s, &e->pieces[k]);
    return TUTTI_OK;
}

static void undo(void *self)
{
    tutti_rounds *s = self;
    tutti_method *m = &s->e->m;

    if (!s->begun)
        return;
    tutti_copy(m->device, m->n, s->start, m->x);
    clear_slots(s);
    s->begun = false;
    s->e->values_changed = true;
}

void tutti_rounds_before_update(tutti_rounds *s,
                                tutti_status (*before)(tutti_method *m, tutti_error *err))
{
    s->before = before;
}

float *tutti_rounds_start(const tutti_rounds *s)
{
    return s->start;
}

tutti_status tutti_rounds_end(tutti_rounds *s, tutti_error *err)
{
    tutti_method *m = &s->e->m;
    tutti_rate rate;
    bool skip;

    TUTTI_TRY(tutti_base_check(m, &rate, &skip, err));
    tutti_copy(m->device, m->n, s->displaced ? s->start : m->g, m->x);
    clear_slots(s);
    s->begun = false;
    return TUTTI_OK;
}

static const tutti_facility_ops facility = { .provides = TUTTI_MAKES_ROUNDS,
                                             .excludes = TUTTI_MERGES_STEPS |
                                                         TUTTI_LATE_GRADIENTS |
                                                         TUTTI_SIZES_STEPS |
                                                         TUTTI_SHARDS_UPDATES | TUTTI_DRIVES,
                                             .close = tutti_free,
                                             .pass = set_pass,
                                             .begin_pass = begin_pass,
                                             .end_pass = end_pass,
                                             .undo = undo };

tutti_status tutti_rounds_declare(tutti_rounds **out, tutti_method *m, tutti_plan *plan,
                                  bool displaced, tutti_error *err)
{
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_SKIPS,
          "makes all local steps of a round, or none, where it has logical shares", NULL,
          ", or omit elastic-shares" },
    };
    tutti_engine *e = m->engine;
    tutti_rounds *s;

    *out = NULL;
    if (e->options.elastic_shares == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_refuse(m, conflicts, TUTTI_LENGTH(conflicts), err));
    s = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "rounds of local steps");
    s->e = e;
    s->displaced = displaced;
    tutti_facility_add(m, &facility, s);
    tutti_declare_vector(plan, "engine.round-start", TUTTI_SCRATCH, &s->start);
    m->whole = true;
    *out = s;
    return TUTTI_OK;
}
