/* ef.c: wrapper ef: what was not sent is added to what is sent next. Karimireddy, Rebjock, Stich and Jaggi, ICML 2019, algorithm 2, with the residual
   in units of the gradient (outside of the learning rate), as PyTorch's and PowerSGD's.
     before: p = d + e, kept in e;  account: e = p - decoded(p);  d = x, or with momentum (as in the authors' code) what x makes of the worker's own
     buffer b = momentum b + x: d = b, nesterov: d = x + momentum b. The optimiser must have no momentum then.
   The residual is addressed by place, so cutting the pieces anew moves nothing; a change of workers keeps its mean, which is what the
   model is owed. With server=on the
   owner of a sum has a second one for what its re-encoding loses (stage 1); without it that loss is not made good. */
#include "codec_internal.h"
#include "registry.h"

typedef struct ef { const char *codec; bool server, nesterov; double momentum; float *e, *owner, *b; } ef;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(ef, codec), 0, 0, 0, "", "whose losses are made good" },
    { "server", TUTTI_BOOL, TUTTI_AT(ef, server), 0, 0, 1, NULL, "a second residual for what the owner of a sum loses when it encodes it" },
    { "momentum", TUTTI_REAL, TUTTI_AT(ef, momentum), 0, 0, 0.9999, NULL, "of each worker's gradients, before they are encoded; the optimiser should have none then" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(ef, nesterov), 0, 0, 1, NULL, "with momentum: Nesterov's", "momentum>0" },
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

static const float *before(tutti_codec *c, const tutti_view *v, const float *x)
{
    tutti_device *d = c->space->device;
    const ef *s = c->self;
    float *e = residual(c, v);

    if (e == NULL)
        return x;
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
    .options = options, .self_bytes = sizeof(ef), .traits = traits, .check = check, .declare = declare, .choose = choose, .before = before,
    .account = account,
};
