/* dgc.c: wrapper dgc: applies momentum before the selection, and accumulates what was not
   selected. Lin, Han, Mao, Wang and Dally, ICLR 2018 (Deep Gradient Compression).

     before:  g clipped;  u = m u + g, v = v + u;  v is encoded
              (nesterov, as in the authors' code: u = m (u + g), v = v + u + g)
     account: v = v - decoded(v), which for a selection is 0 in the elements that were sent
     after:   u = 0 in the elements that were sent (momentum factor masking: an element that was
              just sent has no momentum left)

   The momentum of a tensor that was sent whole is unchanged: no part of it was delayed, so none
   could become stale. Otherwise tensors too small to be worth a selection would train without
   momentum.

   Which elements were sent is known by their indexes, as in the authors' code, and not by what is
   left of v. An element of v that is 0 and was not selected was not sent, and its momentum
   continues; a 0 that fills a selection up was sent. A value that was sent in 16 bits leaves its
   rounding error in v (the authors' code drops it). A codec that makes no selection has sent all.

   The optimiser must be plain SGD. The paper clips each worker's gradient at clip / sqrt(workers)
   by the norm of the whole. Here a piece leaves before the others are known, so each range that is
   encoded (a tensor) is clipped by its own norm, as the authors' code does. The ratio falls to its
   end over the inner codec's warm-up: topk(ratio=0.001,warmup=4) is 25, 6.3, 1.6, 0.4 and 0.1 %,
   as published. server=on keeps what the owner of a sum loses when it encodes it again (stage 1),
   which no worker could know of. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"

typedef struct dgc {
    const char *codec;
    double momentum, clip;
    bool nesterov, masking, server;
    float *u, *v, *owner;
    /* 1 where v was sent, 0 otherwise and from `after` on; NULL: masking is off */
    uint8_t *sent;
} dgc;
static const tutti_option options[] = { { "codec", TUTTI_SPEC, TUTTI_AT(dgc, codec), 0, 0, 0,
                                          "topk(ratio=0.001,warmup=4)", "that selects" },
                                        TUTTI_ROW_DGC_MOMENTUM(TUTTI_AT(dgc, momentum)),
                                        TUTTI_ROW_DGC_NESTEROV(TUTTI_AT(dgc, nesterov)),
                                        TUTTI_ROW_DGC_MASKING(TUTTI_AT(dgc, masking)),
                                        TUTTI_ROW_DGC_CLIP(TUTTI_AT(dgc, clip)),
                                        TUTTI_ROW_SERVER(TUTTI_AT(dgc, server), "server", 1),
                                        { 0 } };

static unsigned dgc_traits(const tutti_codec *c)
{
    return (c->inner[0]->ops->traits(c->inner[0]) & TUTTI_CODEC_WHOLE_TENSOR) |
           (((const dgc *)c->self)->momentum > 0 ? TUTTI_CODEC_MOMENTUM : 0);
}

static tutti_status dgc_check(const tutti_codec *c, tutti_error *err)
{
    return tutti_codec_check_fed(c, 0, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    dgc *s = c->self;

    tutti_codec_declare_vector(c, plan, "u", TUTTI_OWN_ZERO, &s->u);
    tutti_codec_declare_vector(c, plan, "v", TUTTI_OWN_MEAN, &s->v);
    if (s->server)
        tutti_codec_declare_vector(c, plan, "owner", TUTTI_OWN_SUM, &s->owner);
    if (s->masking)
        tutti_codec_declare_bytes(c, plan, "sent", TUTTI_SCRATCH, c->space->n, &s->sent);
}

static tutti_codec *dgc_choose(tutti_codec *c, const tutti_view *v)
{
    (void)v;
    return c->inner[0];
}

static float *kept(const tutti_codec *c, const tutti_view *v)
{
    const dgc *s = c->self;

    return v->stage == 0 ? s->v + v->first : s->owner == NULL ? NULL : s->owner + v->first;
}

static const float *dgc_before(tutti_codec *c, const tutti_view *v, const float *x)
{
    tutti_device *d = c->space->device;
    const dgc *s = c->self;
    const float m = (float)s->momentum;
    float *held = kept(c, v), *u = s->u + v->first, by = 1;

    if (held == NULL)
        return x;
    if (v->stage == 1) {
        tutti_add(d, v->count, x, held);
        return held;
    }
    if (s->clip > 0) {
        const double norm = sqrt(tutti_norm2(d, v->count, x)),
                     most = s->clip / sqrt(c->space->workers);
        by = norm > most ? (float)(most / norm) : 1;
    }
    tutti_blend(d, v->count, s->nesterov ? m * by : by, x, m, u);
    tutti_add(d, v->count, u, held);
    if (s->nesterov)
        tutti_axpy(d, v->count, by, x, held);
    return held;
}

static float account(tutti_codec *c, const tutti_view *v, float **into)
{
    *into = kept(c, v);
    return -1;
}

static uint8_t *marks(tutti_codec *c, const tutti_view *v)
{
    const dgc *s = c->self;

    return v->stage == 0 && s->sent != NULL ? s->sent + v->first : NULL;
}

static void after(tutti_codec *c, const tutti_view *v, float *y)
{
    const dgc *s = c->self;
    float *u = s->u + v->first;
    uint8_t *sent = s->sent != NULL ? s->sent + v->first : NULL;

    (void)y;
    if (sent == NULL || v->count == 0)
        return;
    if (memchr(sent, 0, v->count) != NULL) /* else the whole was sent */
        for (size_t i = 0; i < v->count; i++)
            u[i] = sent[i] != 0 ? 0 : u[i];
    memset(sent, 0, v->count);
    tutti_device_charge(c->space->device, 0, 12.0 * (double)v->count);
}

const tutti_codec_ops tutti_codec_dgc = {
    .name = "dgc",
    .paper = "Lin et al., ICLR 2018",
    .help = "momentum of what is held back, forgotten when it is sent",
    .options = options,
    .self_bytes = sizeof(dgc),
    .traits = dgc_traits,
    .check = dgc_check,
    .declare = declare,
    .choose = dgc_choose,
    .before = dgc_before,
    .account = account,
    .marks = marks,
    .after = after,
};
