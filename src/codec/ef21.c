/* ef21.c: wrapper ef21: each worker keeps an estimate h_w of its own gradient and sends a
   compressed correction to it. Richtarik, Sokolov and Fatkhullin, NeurIPS 2021. With eta < 1 the
   momentum of EF21-SGDM (Fatkhullin, Tyurin and Richtarik, NeurIPS 2023): v_w = (1 - eta) v_w +
   eta g_w stands for g_w.

     before:  c_w = g_w - h_w
     account: h_w += decoded(c_w)
     after:   h += mean decoded(c_w), and h is the gradient

   All start at 0, so the first message is C(g_w), the published h_w = C(grad(x_0)). Where the
   owner of a mean encodes it again (stage 1), h follows what that decodes to. What it loses, mean
   h_w - h, is the owner's residual: a correction from h to the mean of all h_w is what it sends
   (EF21-BC).

   Not here: EF21+, in which each worker sends the better of C(g_w) and C(g_w - h_w). h would move
   by C(g_w) - h_w where it is the former, so every decoder would need every worker's h_w, W n
   numbers instead of n.

   Not here either: a step now and then that sends everything again. h and the mean of all h_w are
   moved by the same decoded numbers and differ by the rounding of sums alone (tested). h_w differ
   by worker and their mean is h: a change of workers keeps means. */
#include "codec_internal.h"
#include "registry.h"

typedef struct ef21 {
    const char *codec;
    double eta;
    float *h, *own, *owner, *v, *correction;
} ef21;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(ef21, codec), 0, 0, 0, "", "of the corrections" },
    { "eta", TUTTI_REAL, TUTTI_AT(ef21, eta), 1, 1e-6, 1, NULL,
      "share of the new gradient in what is followed; 1: the gradient itself" },
    { 0 }
};

static unsigned ef21_traits(const tutti_codec *c)
{
    return c->inner[0]->ops->traits(c->inner[0]) & TUTTI_CODEC_WHOLE_TENSOR;
}

static tutti_status ef21_check(const tutti_codec *c, tutti_error *err)
{
    const tutti_codec *inner = c->inner[0];

    if ((tutti_codec_traits(inner) & TUTTI_CODEC_JOINT) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the mean of %s is made of all workers' messages at once, and ef21 adds "
                          "up what each of them is decoded to; take mean=all",
                          inner->ops->name);
    return tutti_codec_check_fed(c, TUTTI_CODEC_CONTRACTIVE, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    ef21 *s = c->self;

    tutti_codec_declare_vector(c, plan, "h", TUTTI_SAME, &s->h);
    tutti_codec_declare_vector(c, plan, "own", TUTTI_OWN_MEAN, &s->own);
    tutti_codec_declare_vector(c, plan, "owner", TUTTI_OWN_SUM, &s->owner);
    tutti_codec_declare_vector(c, plan, "correction", TUTTI_SCRATCH, &s->correction);
    if (s->eta < 1)
        tutti_codec_declare_vector(c, plan, "momentum", TUTTI_OWN_MEAN, &s->v);
}

static tutti_codec *ef21_choose(tutti_codec *c, const tutti_view *v)
{
    (void)v;
    return c->inner[0];
}

static const float *ef21_before(tutti_codec *c, const tutti_view *v, const float *x)
{
    tutti_device *d = c->space->device;
    const ef21 *s = c->self;
    float *correction = s->correction + v->first;

    if (v->stage == 1) {
        tutti_add(d, v->count, x, s->owner + v->first);
        return s->owner + v->first;
    }
    if (s->v != NULL) {
        tutti_blend(d, v->count, (float)s->eta, x, (float)(1 - s->eta), s->v + v->first);
        x = s->v + v->first;
    }
    tutti_diff(d, v->count, 1, x, s->own + v->first, correction);
    return correction;
}

static float account(tutti_codec *c, const tutti_view *v, float **into)
{
    const ef21 *s = c->self;

    *into = (v->stage == 0 ? s->own : s->owner) + v->first;
    return v->stage == 0 ? 1 : -1;
}

static void after(tutti_codec *c, const tutti_view *v, float *y)
{
    float *h = ((const ef21 *)c->self)->h + v->first;

    if (!tutti_finite(c->space->device, v->count,
                      y)) /* not accounted for; it is reported, and h stays */
        return;
    tutti_add(c->space->device, v->count, y, h);
    tutti_copy(c->space->device, v->count, h, y);
}

const tutti_codec_ops tutti_codec_ef21 = {
    .name = "ef21",
    .paper = "Richtarik et al., NeurIPS 2021",
    .help = "corrections to each worker's estimate of its gradient",
    .options = options,
    .self_bytes = sizeof(ef21),
    .traits = ef21_traits,
    .check = ef21_check,
    .declare = declare,
    .choose = ef21_choose,
    .before = ef21_before,
    .by_element = true,
    .account = account,
    .after = after,
};
