/* ef.c: wrapper ef: what was not sent is added to what is sent next. Karimireddy, Rebjock, Stich and Jaggi, ICML 2019, algorithm 2, with the residual
   in units of the gradient.
     before: p = d + decay e, kept in e;  account: e = p - decoded(p);  d = x, or with momentum (as in the authors' code) what x makes of the worker's own
     buffer b = momentum b + x: d = b, nesterov: d = x + momentum b. The optimiser must have no momentum then.
   lr: what becomes of a residual when the learning rate changes. outside: nothing, so that it weighs with the new rate (PyTorch, PowerSGD); inside: what it weighed stays, as in the paper, whose p = lr g + e has the
   rate inside: here e is multiplied by old rate / new rate, which is the same p / lr; at a rate of 0 it waits. decay < 1 forgets, and what is forgotten is never delivered. reset_on_lr_drop forgets all when the rate
   falls to a half or less.
   The residual is addressed by place, so cutting the pieces anew moves nothing; a change of workers keeps its mean, which is what the
   model is owed. With server=on the
   owner of a sum has a second one for what its re-encoding loses (stage 1); without it that loss is not made good. */
#include "codec_internal.h"
#include "registry.h"

enum { OUTSIDE, INSIDE };
typedef struct ef {
    const char *codec;
    bool server, nesterov, reset_on_lr_drop;
    int lr;
    double momentum, decay, rate; /* rate: the last one above 0; declared where it is needed */
    float *e, *owner, *b;
} ef;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(ef, codec), 0, 0, 0, "", "whose losses are made good" },
    { "server", TUTTI_BOOL, TUTTI_AT(ef, server), 0, 0, 1, NULL, "a second residual for what the owner of a sum loses when it encodes it" },
    { "momentum", TUTTI_REAL, TUTTI_AT(ef, momentum), 0, 0, 0.9999, NULL, "of each worker's gradients, before they are encoded; the optimiser should have none then" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(ef, nesterov), 0, 0, 1, NULL, "with momentum: Nesterov's", "momentum>0" },
    { "lr", TUTTI_CHOICE, TUTTI_AT(ef, lr), OUTSIDE, 0, 0, "outside|inside", "when the learning rate changes: residuals weigh with the new rate, or stay what they weighed (the paper's)" },
    { "decay", TUTTI_REAL, TUTTI_AT(ef, decay), 1, 0, 1, NULL, "what is kept of a residual from step to step; below 1 the rest is lost" },
    { "reset_on_lr_drop", TUTTI_BOOL, TUTTI_AT(ef, reset_on_lr_drop), 0, 0, 1, NULL, "forget residuals when the learning rate falls to a half or less" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    return c->inner[0]->ops->traits(c->inner[0]) & TUTTI_CODEC_WHOLE_TENSOR;
}

static tutti_status check(const tutti_codec *c, tutti_error *err)
{
    return tutti_codec_check_fed(c, 0, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    ef *s = c->self;

    tutti_codec_declare_vector(c, plan, "e", TUTTI_OWN_MEAN, &s->e);
    if (s->server)
        tutti_codec_declare_vector(c, plan, "owner", TUTTI_OWN_SUM, &s->owner);
    if (s->momentum > 0)
        tutti_codec_declare_vector(c, plan, "momentum", TUTTI_OWN_ZERO, &s->b);
    if (s->lr == INSIDE || s->reset_on_lr_drop)
        tutti_codec_declare_value(c, plan, "rate", TUTTI_SAME, &s->rate, sizeof s->rate);
}

static float *residual(const tutti_codec *c, const tutti_view *v)
{
    const ef *s = c->self;
    float *e = v->stage == 0 ? s->e : s->owner;

    return e == NULL ? NULL : e + v->first;
}

static tutti_codec *choose(tutti_codec *c, const tutti_view *v)
{
    (void)v;
    return c->inner[0];
}

static size_t begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    ef *s = c->self;
    float *const all[] = { s->e, s->owner };
    const double by = s->rate > 0 && m->lr > 0 && m->lr != s->rate && s->lr == INSIDE ? s->rate / m->lr : 1;
    const bool forget = s->reset_on_lr_drop && s->rate > 0 && m->lr <= 0.5 * s->rate;

    (void)round, (void)numbers;
    for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
        if (all[k] != NULL && forget)
            tutti_fill(c->space->device, c->space->n, 0, all[k]);
        else if (all[k] != NULL && by != 1)
            tutti_scale(c->space->device, c->space->n, (float)by, all[k]);
    if (m->lr > 0)
        s->rate = m->lr;
    return 0;
}

static const float *before(tutti_codec *c, const tutti_view *v, const float *x)
{
    tutti_device *d = c->space->device;
    const ef *s = c->self;
    float *e = residual(c, v);

    if (e == NULL)
        return x;
    if (s->decay < 1)
        tutti_scale(d, v->count, (float)s->decay, e);
    if (s->b == NULL || v->stage != 0) {
        tutti_add(d, v->count, x, e);
        return e;
    }
    tutti_blend(d, v->count, 1, x, (float)s->momentum, s->b + v->first);
    if (s->nesterov) {
        tutti_add(d, v->count, x, e);
        tutti_axpy(d, v->count, (float)s->momentum, s->b + v->first, e);
    } else
        tutti_add(d, v->count, s->b + v->first, e);
    return e;
}

static float account(tutti_codec *c, const tutti_view *v, float **into)
{
    *into = residual(c, v);
    return -1;
}

const tutti_codec_ops tutti_codec_ef = {
    .name = "ef", .paper = "Karimireddy et al., ICML 2019, algorithm 2", .help = "error feedback: what a codec loses is sent with the next",
    .options = options, .self_bytes = sizeof(ef), .traits = traits, .check = check, .declare = declare, .begin = begin, .choose = choose, .before = before,
    .account = account,
};
