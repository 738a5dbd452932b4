/* client.c: the client's side of the flat space: its memory, in its own type, and its own
   optimiser.

   x is float32, whatever type the client computes in. What it is handed is rounded. The result of
   its optimiser is added to x wherever x had more bits than were handed out, and copied where
   both were equal. So a client in 16 bits has its own optimiser's bits as long as nothing else
   moves x, and what others have added below its last bit stays.

   In the same way an update is applied to a model other than x: x temporarily becomes that model
   for the call, and what the call has changed is added to the model. No worker waits meanwhile,
   however long the client's optimiser takes: a service may average that model, and both changes
   are in it. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "locks.h"
#include "refuse.h"

enum { CHUNK = 1024 }; /* floats on the stack */

static void *place_of(const tutti_param *p, void *memory, size_t element)
{
    return (char *)memory + element * tutti_dtype_bytes(p->dtype);
}

/* ---- values ---- */

void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count)
{
    const tutti_param *p = &e->params[tensor];
    tutti_device *d = e->m.device;

    if (p->values != NULL && e->m.x != NULL)
        tutti_cast(d, tutti_f32(d, e->m.x + e->tensors[tensor].first + first, count),
                   (tutti_buffer){ d, place_of(p, p->values, first), count, p->dtype });
}

void tutti_engine_hand_out(tutti_engine *e)
{
    const bool stands = e->client.holds || e->client.away || !e->values_changed;

    e->values_changed = false;
    for (int i = 0; i < e->layout.n_tensors && !stands; i++)
        tutti_engine_deliver(e, i, 0, e->tensors[i].count);
    e->client.handed += !stands;
    e->client.holds = e->client.updates && e->options.update == NULL;
}

void tutti_engine_read_values(tutti_engine *e, int tensor)
{
    const tutti_param *p = &e->params[tensor];
    const tutti_tensor *t = &e->tensors[tensor];
    tutti_device *d = e->m.device;

    if (p->values != NULL && e->m.x != NULL)
        tutti_cast(d, (tutti_buffer){ d, p->values, t->count, p->dtype },
                   tutti_f32(d, e->m.x + t->first, t->count));
}

/* Applies to x a change from `before` to `after`; x may have changed in addition. */
static void join(tutti_device *d, size_t n, const float *before, const float *after, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] == before[i] ? after[i] : x[i] + (after[i] - before[i]);
    tutti_device_charge(d, 2 * (double)n, 4 * sizeof(float) * (double)n);
}

/* Applies to x the client's changes of the values that it was handed. */
static void take_values(tutti_engine *e, int tensor)
{
    const tutti_param *p = &e->params[tensor];
    const tutti_tensor *t = &e->tensors[tensor];
    tutti_device *d = e->m.device;
    float before[CHUNK], after[CHUNK];
    uint16_t narrow[CHUNK];

    if (p->values == NULL || p->dtype == TUTTI_F32) { /* then x had no further bits */
        tutti_engine_read_values(e, tensor);
        return;
    }
    for (size_t at = 0, n; at < t->count; at += n) {
        float *x = e->m.x + t->first + at;
        n = t->count - at < CHUNK ? t->count - at : CHUNK;
        tutti_cast(d, tutti_f32(d, x, n), (tutti_buffer){ d, narrow, n, p->dtype });
        tutti_cast(d, (tutti_buffer){ d, narrow, n, p->dtype }, tutti_f32(d, before, n));
        tutti_cast(d, (tutti_buffer){ d, place_of(p, p->values, at), n, p->dtype },
                   tutti_f32(d, after, n));
        join(d, n, before, after, x);
    }
}

/* x := the values that the client has changed. */
static tutti_status bring(tutti_engine *e, tutti_error *err)
{
    if (!e->client.away)
        return TUTTI_OK;
    e->client.away = false;
    if (e->options.values != NULL)
        TUTTI_TRY(e->options.values(e->options.user, err));
    for (int i = 0; i < e->layout.n_tensors; i++)
        take_values(e, i);
    return TUTTI_OK;
}

tutti_status tutti_engine_collect(tutti_engine *e, tutti_error *err)
{
    for (int i = 0; i < e->layout.n_tensors && e->client.holds; i++)
        tutti_engine_read_values(e, i);
    return tutti_engine_failed(e, bring(e, err), err);
}

bool tutti_engine_values_stay(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_ASKS_FOR_VALUES) != 0 && e->client.updates &&
           e->options.update != NULL && e->options.values != NULL;
}

bool tutti_engine_gradient_stays(const tutti_engine *e, const tutti_pass *pass)
{
    const bool alone = pass->index == 0 && !pass->more && !pass->keep && !pass->exchange &&
                       !pass->merge,
               plain = e->options.clip_norm == 0 && e->options.nonfinite == TUTTI_NONFINITE_STOP &&
                       !e->scaler.on;

    return e->options.keeps_gradients && tutti_engine_values_stay(e) && alone && plain &&
           pass->samples > 0 && e->m.held == TUTTI_HELD_WHOLE && e->facilities.sizes == NULL &&
           !tutti_facilities_exchange_later(e);
}

tutti_status tutti_values_get(tutti_method *m, tutti_error *err)
{
    return bring(m->engine, err);
}

void tutti_values_set(tutti_method *m)
{
    tutti_engine *e = m->engine;

    e->client.away = false;
    e->values_changed = true;
}

uint64_t tutti_engine_handed(const tutti_engine *e)
{
    return e->client.handed;
}

/* ---- gradients ---- */

/* g (count) := the values at `from`; add: += them. */
static void load_source(tutti_device *d, const void *from, tutti_dtype dtype, size_t count,
                        bool add, float *g)
{
    const tutti_buffer all = { d, (void *)(uintptr_t)from, count, dtype };
    float wide[CHUNK];

    if (!add)
        tutti_cast(d, all, tutti_f32(d, g, count));
    else if (dtype == TUTTI_F32)
        tutti_add(d, count, from, g);
    else
        for (size_t at = 0, n; at < count; at += n) {
            n = count - at < CHUNK ? count - at : CHUNK;
            tutti_cast(
                d, (tutti_buffer){ d, (char *)all.data + at * tutti_dtype_bytes(dtype), n, dtype },
                tutti_f32(d, wide, n));
            tutti_add(d, n, wide, g + at);
        }
}

/* Elements of a tensor: `count` from `begin` on. */
typedef struct elements {
    int tensor;
    size_t begin, count;
} elements;

/* The part that piece k has of these elements: returns its address in the piece's memory. *at: how
   many of the elements come before that part; *n: how many it has. */
static float *within(const tutti_engine *e, int k, const elements *of, size_t *at, size_t *n)
{
    const tutti_piece *p = &e->pieces[k];
    const size_t first = e->tensors[of->tensor].first + of->begin, end = first + of->count,
                 until = p->first + p->count, from = first > p->first ? first : p->first,
                 to = end < until ? end : until;

    *at = from - first;
    *n = to > from ? to - from : 0;
    return p->g + (from - p->first);
}

/* Sets those of the elements that piece k has to the values at `from`; add: adds them; NULL: sets
   0. */
static void load_range(tutti_engine *e, int k, const elements *of, const void *from,
                       tutti_dtype dtype, bool add)
{
    tutti_device *d = e->m.device;
    size_t at, n;
    float *g = within(e, k, of, &at, &n);

    if (n > 0 && from == NULL)
        tutti_fill(d, n, 0, g);
    else if (n > 0)
        load_source(d, (const char *)from + at * tutti_dtype_bytes(dtype), dtype, n, add, g);
}

static void put_rows(tutti_engine *e, int tensor, int k, const tutti_engine_source *s)
{
    const tutti_tensor *t = &e->tensors[tensor];
    const size_t bytes = t->cols * tutti_dtype_bytes(s->dtype);

    if (e->m.held != TUTTI_HELD_WHOLE) /* else a gradient that is not kept is 0 by now */
        load_range(e, k, &(elements){ tensor, 0, t->count }, NULL, s->dtype, false);
    for (size_t i = 0; i < s->n && s->from != NULL && e->step.pass.samples > 0; i++)
        load_range(e, k, &(elements){ tensor, s->ids[i] * t->cols, t->cols },
                   (const char *)s->from + (s->whole ? s->ids[i] : i) * bytes, s->dtype, true);
}

void tutti_engine_take_gradient(tutti_engine *e, int tensor, int k, const tutti_engine_source *s)
{
    const size_t count = e->tensors[tensor].count;

    if (s->rows)
        put_rows(e, tensor, k, s);
    else if (s->from != NULL && s->from == (const void *)tutti_engine_gradient(e, tensor))
        return;
    else if (s->from != NULL && e->step.pass.samples > 0)
        load_range(e, k, &(elements){ tensor, 0, count }, s->from, s->dtype, e->step.pass.keep);
    else if (!e->step.pass.keep)
        load_range(e, k, &(elements){ tensor, 0, count }, NULL, s->dtype, false);
}

/* ---- the client's optimiser ---- */

static void copy_part(tutti_method *m, float *at, const float *from, size_t first, size_t count,
                      const tutti_rate *rate)
{
    (void)first, (void)rate;
    tutti_copy(m->device, count, from, at);
}

static void join_part(tutti_method *m, float *at, const float *from, size_t first, size_t count,
                      const tutti_rate *rate)
{
    const tutti_engine *e = m->engine;

    (void)rate;
    join(m->device, count, e->client.before + first, from, at);
}

/* Applies `part` to the whole model, under its lock or locks. */
static void guarded(tutti_method *m, tutti_monitor *lock, const tutti_locks *locks,
                    tutti_locked_part *part, float *to, const float *from)
{
    if (locks != NULL) {
        tutti_engine_locked(m, locks, part, to, from);
        return;
    }
    if (lock != NULL)
        tutti_lock(lock);
    part(m, to, from, 0, m->layout->used, NULL);
    if (lock != NULL)
        tutti_unlock(lock);
}

/* stay: x is not read afterwards, unless the method asks for it. */
static tutti_status call(tutti_engine *e, double factor, bool stay, tutti_error *err)
{
    tutti_status status;

    e->values_changed = e->values_changed || !stay; /* the method may have moved x since the pass */
    tutti_engine_hand_out(e);
    status = e->options.update(e->options.user, factor, err);
    e->client.away = status == TUTTI_OK;
    if (status == TUTTI_OK && !stay)
        status = bring(e, err);
    e->values_changed = !stay;
    return status == TUTTI_CLOSED
               ? tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "the client's update gave TUTTI_CLOSED, which it may not (tutti.h)")
               : status;
}

tutti_status tutti_engine_client_update(tutti_engine *e, float *x, tutti_monitor *lock,
                                        const tutti_locks *locks, double factor, tutti_error *err)
{
    tutti_method *m = &e->m;
    const size_t n = e->layout.used;
    tutti_status status;

    if (e->options.update == NULL ? x != m->x || factor != 1 : x != m->x && e->client.kept == NULL)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' declared that all workers' models are equal, and that it gives the "
            "optimiser the gradient of x; but it updates %s, which is not possible with optimizer "
            "'client'%s",
            m->ops->name, x != m->x ? "another model" : "by another rate",
            e->options.update == NULL ? " without an update" : "");
    if (e->options.update == NULL)
        return TUTTI_OK;
    if (x == m->x)
        return call(e, factor, tutti_engine_values_stay(e), err);
    TUTTI_TRY(bring(e, err));
    tutti_copy(m->device, n, m->x, e->client.kept);
    guarded(m, lock, locks, copy_part, e->client.before, x);
    tutti_copy(m->device, n, e->client.before, m->x);
    status = call(e, factor, false, err);
    if (status == TUTTI_OK)
        guarded(m, lock, locks, join_part, x, m->x);
    tutti_copy(m->device, n, e->client.kept, m->x);
    return status;
}

/* ---- checks ---- */

tutti_status tutti_engine_check_client(tutti_engine *e, tutti_error *err)
{
    const tutti_engine_options *o = &e->options;
    const bool updates = e->client.updates, by_itself = updates && o->update == NULL;
    const tutti_rule rules[] = {
        { !updates && o->update != NULL,
          "there is an update of the client's, but optimizer is '{optimizer}', so nothing would call "
          "it; give optimizer 'client', or omit update" },
        { o->nonfinite == TUTTI_NONFINITE_KEEP && !by_itself,
          "nonfinite is keep, which is for a client that updates by itself (optimizer 'client' "
          "without an update): an update with a gradient that is not finite would spoil the model" },
        { updates && (e->m.traits & TUTTI_OWNS_UPDATE) != 0,
          "optimizer is 'client', but {method} has an update of its own and uses no optimiser; omit "
          "optimizer" },
        { updates && (e->m.traits & TUTTI_NON_GRADIENT_UPDATE) != 0,
          "optimizer is 'client', but {method} updates along a direction of its own, which no other "
          "optimiser may change; give sgd, as sgd(lr=0.01) (in Python tutti.torch.prepare does so "
          "for an SGD)" },
        { updates && strcmp(o->lr_schedule, "constant") != 0,
          "lr-schedule is '{lr_schedule}', but optimizer is 'client', whose learning rate is the "
          "client's; omit lr-schedule and let the client schedule it (tutti_engine_lr gives it to "
          "the method)" },
        { by_itself && e->scaler.on,
          "loss-scale may skip a step, but optimizer is 'client' without an update: the client "
          "updates by itself and would not know; leave it off, and scale the loss in the client" },
        { by_itself && o->nonfinite == TUTTI_NONFINITE_SKIP,
          "nonfinite=skip may skip a step, but optimizer is 'client' without an update: the client "
          "updates by itself and would not know; take stop or keep" },
    };

    if (o->nonfinite < TUTTI_NONFINITE_STOP || o->nonfinite > TUTTI_NONFINITE_KEEP)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "nonfinite is %d; there are stop, skip and keep (tutti.h)",
                          (int)o->nonfinite);
    if (by_itself)
        e->refused |= 1u << TUTTI_ASKED_SKIPS;
    return tutti_refuse_rules(&e->m, rules, TUTTI_LENGTH(rules), err);
}

tutti_status tutti_engine_check_exchange_only(tutti_engine *e, tutti_error *err)
{
    const char *what =
        tutti_method_does(&e->m, TUTTI_NO_EXCHANGE | TUTTI_OWN_MODELS | TUTTI_MERGES_STEPS |
                                     TUTTI_LATE_GRADIENTS | TUTTI_SIZES_STEPS | TUTTI_MAKES_ROUNDS);

    if (!e->client.updates || e->options.update != NULL)
        return TUTTI_OK;
    return what == NULL ? TUTTI_OK
                        : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                     "optimizer is 'client' without an update, so gradients are "
                                     "only exchanged, but method '%s' %s; hand it the optimiser "
                                     "too (an update in the options; in Python tutti.torch.prepare "
                                     "in place of DistributedDataParallel)",
                                     e->m.ops->name, what);
}
