/* ef.c: wrapper ef (error feedback): what a message has lost is added to the next message.
   Karimireddy, Rebjock, Stich and Jaggi, ICML 2019, algorithm 2, with the residual in units of the
   gradient.

     before:  p = d + decay e, kept in e
     account: e = p - decoded(p)

   d = x, or with momentum (as in the authors' code) what x makes of the worker's own buffer b =
   momentum b + x: d = b, nesterov: d = x + momentum b. The optimiser must have no momentum then.

   lr: what becomes of a residual when the learning rate changes.
     outside   it is unchanged, so that its effect on the model changes with the rate (PyTorch,
               PowerSGD)
     inside    its effect on the model is unchanged, as in the paper, whose p = lr g + e has the
               rate inside: here e is multiplied by old rate / new rate, which gives the same p /
               lr; while the rate is 0, e is not changed

   decay < 1 forgets, and what is forgotten is never delivered. reset_on_lr_drop forgets all when
   the rate falls to a half or less.

   flush_every=N: the last of every N steps goes through `flush`, fp32: the whole residual is
   delivered and is 0 then, exactly. An owner's residual (server=on) waits for the next compressed
   step, since a sum has no owner.

   The residual is stored by elements of the model, so it does not depend on the partition into
   pieces. A change of workers keeps its mean, which is what the model has not received yet. With
   logical shares each share has one, and a change of workers keeps them all. With server=on the
   owner of a sum has a second residual for what its re-encoding loses (stage 1); without it that
   loss is not corrected.

   Two options known from elsewhere are not here. ef_dtype: a residual of 16 bits drops what is
   below 2^-8 (bf16) or 2^-11 of it, so what was lost would no longer be delivered, which is all
   that error feedback promises. Forgetting at a checkpoint: a resumed run would differ from one
   that was not interrupted. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"

enum { OUTSIDE, INSIDE, CODEC = 0, FLUSH };
typedef struct ef {
    const char *codec, *flush;
    int64_t flush_every;
    bool server, nesterov, reset_on_lr_drop;
    int lr;
    double momentum, decay;
    double rate;                 /* the last learning rate above 0; declared if it is used */
    tutti_codec_own e;           /* the residual */
    float *owner;                /* declared with `server`: the residual of an owner of sums */
    tutti_codec_own b;           /* with momentum: the worker's momentum */
} ef;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(ef, codec), 0, 0, 0, "", "whose losses are made good" },
    TUTTI_ROW_SERVER(TUTTI_AT(ef, server), "server", 0),
    { "momentum", TUTTI_REAL, TUTTI_AT(ef, momentum), 0, 0, 0.9999, NULL,
      "of each worker's gradients, before they are encoded; the optimiser should have none then" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(ef, nesterov), 0, 0, 1, NULL, "with momentum: Nesterov's",
      "momentum>0" },
    { "lr", TUTTI_CHOICE, TUTTI_AT(ef, lr), OUTSIDE, 0, 0, "outside|inside",
      "when the learning rate changes: residuals weigh with the new rate, or stay what they "
      "weighed (the paper's)" },
    { "decay", TUTTI_REAL, TUTTI_AT(ef, decay), 1, 0, 1, NULL,
      "what is kept of a residual from step to step; below 1 the rest is lost" },
    { "reset_on_lr_drop", TUTTI_BOOL, TUTTI_AT(ef, reset_on_lr_drop), 0, 0, 1, NULL,
      "forget residuals when the learning rate falls to a half or less" },
    { "flush_every", TUTTI_INT, TUTTI_AT(ef, flush_every), 0, 0, 1e12, NULL,
      "the last step of each period of this many sends the whole residual, encoded by `flush`; 0: "
      "none does" },
    { "flush", TUTTI_SPEC, TUTTI_AT(ef, flush), 0, 0, 0, "fp32", "codec of those steps",
      "flush_every>0" },
    { 0 }
};

static unsigned ef_traits(const tutti_codec *c)
{
    return ((tutti_codec_traits(c->inner[CODEC]) | tutti_codec_traits(c->inner[FLUSH])) &
            TUTTI_CODEC_WHOLE_TENSOR) |
           (((const ef *)c->self)->momentum > 0 ? TUTTI_CODEC_MOMENTUM : 0);
}

/* The first codec inside c that must see every step's gradient; NULL: none. */
static const tutti_codec *find_watch(const tutti_codec *c)
{
    const tutti_codec *found = c->ops->watch != NULL ? c : NULL;

    for (size_t i = 0; found == NULL && i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            found = find_watch(c->inner[i]);
    return found;
}

static tutti_status ef_check(const tutti_codec *c, tutti_error *err)
{
    const ef *s = c->self;
    const tutti_codec *flush = c->inner[FLUSH], *watch = find_watch(c->inner[CODEC]);

    if (flush->ops->choose != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "flush is %s, a wrapper, and the whole residual must be sent by a codec that is not a "
            "wrapper: fp32, bf16 or fp16",
            flush->ops->name);
    if (s->flush_every > 0 && watch != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "flush_every is %lld, and %s inside of it would not see the gradients of the steps "
            "that flush; omit flush_every",
            (long long)s->flush_every, watch->ops->name);
    return tutti_codec_check_fed(c, 0, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    ef *s = c->self;

    tutti_codec_declare_own(c, plan, "e", TUTTI_OWN_MEAN, &s->e);
    if (s->server)
        tutti_codec_declare_vector(c, plan, "owner", TUTTI_OWN_SUM, &s->owner);
    if (s->momentum > 0)
        tutti_codec_declare_own(c, plan, "momentum", TUTTI_OWN_ZERO, &s->b);
    if (s->lr == INSIDE || s->reset_on_lr_drop)
        tutti_codec_declare_value(c, plan, "rate", TUTTI_SAME, &s->rate, sizeof s->rate);
}

static float *residual(const tutti_codec *c, const tutti_view *v)
{
    const ef *s = c->self;

    if (v->stage <= 0)
        return tutti_codec_own_of(&s->e, v);
    return s->owner == NULL ? NULL : s->owner + v->first;
}

static tutti_codec *ef_choose(tutti_codec *c, const tutti_view *v)
{
    const uint64_t every = (uint64_t)((const ef *)c->self)->flush_every;

    return c->inner[every > 0 && v->step % every == every - 1 ? FLUSH : CODEC];
}

static size_t ef_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    ef *s = c->self;
    float *const all[] = { s->e.at, s->owner };
    const size_t n[] = { s->e.count, c->space->n };
    const double by =
        s->rate > 0 && m->lr > 0 && m->lr != s->rate && s->lr == INSIDE ? s->rate / m->lr : 1;
    const bool forget = s->reset_on_lr_drop && s->rate > 0 && m->lr <= 0.5 * s->rate;

    (void)round, (void)numbers;
    for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
        if (all[k] != NULL && forget)
            tutti_fill(c->space->device, n[k], 0, all[k]);
        else if (all[k] != NULL && by != 1)
            tutti_scale(c->space->device, n[k], (float)by, all[k]);
    if (m->lr > 0)
        s->rate = m->lr;
    return 0;
}

static const float *ef_before(tutti_codec *c, const tutti_view *v, const float *x)
{
    tutti_device *d = c->space->device;
    const ef *s = c->self;
    float *const e = residual(c, v), *const b = v->stage <= 0 ? tutti_codec_own_of(&s->b, v) : NULL;

    if (e == NULL)
        return x;
    if (s->decay < 1)
        tutti_scale(d, v->count, (float)s->decay, e);
    if (b == NULL) {
        tutti_add(d, v->count, x, e);
        return e;
    }
    tutti_blend(d, v->count, 1, x, (float)s->momentum, b);
    if (s->nesterov) {
        tutti_add(d, v->count, x, e);
        tutti_axpy(d, v->count, (float)s->momentum, b, e);
    } else
        tutti_add(d, v->count, b, e);
    return e;
}

static float account(tutti_codec *c, const tutti_view *v, float **into)
{
    *into = residual(c, v);
    return -1;
}

const tutti_codec_ops tutti_codec_ef = {
    .name = "ef",
    .paper = "Karimireddy et al., ICML 2019, algorithm 2",
    .help = "error feedback: what a codec loses is sent with the next",
    .options = options,
    .self_bytes = sizeof(ef),
    .traits = ef_traits,
    .check = ef_check,
    .declare = declare,
    .begin = ef_begin,
    .choose = ef_choose,
    .before = ef_before,
    .by_element = true,
    .account = account,
};
