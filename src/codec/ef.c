/* ef.c: wrapper ef: what was not sent is added to what is sent next. Karimireddy, Rebjock, Stich and Jaggi, ICML 2019, algorithm 2, with the residual
   in units of the gradient (outside of the learning rate), as PyTorch's and PowerSGD's.
     before: p = x + e, kept in e;  account: e = p - decoded(p).
   The residual is addressed by place, so cutting the pieces anew moves nothing; what must survive a change of workers is its sum. With server=on the
   owner of a sum has a second one for what its re-encoding loses (stage 1); without it that loss is not made good. */
#include "codec_internal.h"
#include "registry.h"

typedef struct ef { const char *codec; bool server; float *e, *owner; } ef;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(ef, codec), 0, 0, 0, "", "whose losses are made good" },
    { "server", TUTTI_BOOL, TUTTI_AT(ef, server), 0, 0, 1, NULL, "a second residual for what the owner of a sum loses when it encodes it" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    return c->inner[0]->ops->traits(c->inner[0]) & TUTTI_CODEC_WHOLE_TENSOR;
}

static tutti_status check(const tutti_codec *c, tutti_error *err)
{
    const tutti_codec *inner = c->inner[0];

    if (inner->ops->choose != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s inside of it is a wrapper, and a loss is made good once; give ef the codec itself", inner->ops->name);
    if ((inner->ops->traits(inner) & (TUTTI_CODEC_UNBIASED | TUTTI_CODEC_CONTRACTIVE)) == TUTTI_CODEC_UNBIASED)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is unbiased and may lose more than it was given, so that a residual can grow without end; use it "
                          "without ef, or with a codec that only leaves out, such as topk, sign or powersgd", inner->ops->name);
    return TUTTI_OK;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    ef *s = c->self;

    tutti_codec_declare_vector(c, plan, "e", TUTTI_OWN_SUM, &s->e);
    if (s->server)
        tutti_codec_declare_vector(c, plan, "owner", TUTTI_OWN_SUM, &s->owner);
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
    float *e = residual(c, v);

    if (e == NULL)
        return x;
    tutti_add(c->space->device, v->count, x, e);
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
