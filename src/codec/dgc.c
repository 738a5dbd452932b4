/* dgc.c: wrapper dgc: momentum that goes with what is held back. Lin, Han, Mao, Wang and Dally, ICLR 2018 (Deep Gradient Compression).
     before:  g clipped;  u = m u + g, v = v + u  (nesterov, as in the authors' code: u = m (u + g), v = v + u + g);  v is encoded
     account: v = v - decoded(v), which for a selection is 0 where it was sent
     after:   u = 0 where v was sent: momentum factor masking, since what was just sent must not push again. Of a tensor that was sent whole nothing is held
              back that could become stale, and its momentum stays: else tensors too small to be worth a selection would train without any
   What was sent as it is leaves 0 in v, which is how it is told. A codec that sends something else (values in 16 bits) leaves the rest of it there, which the authors' code drops; then what was sent is kept apart until
   masked, n numbers more.
   The optimiser must be plain SGD. The paper clips each worker's gradient at clip / sqrt(workers) by the norm of the whole; a piece leaves before the
   others are known, so here, as the authors' code does, each range that is encoded (a tensor) is clipped by its own norm. The ratio falls to its end over the
   inner codec's warm-up: topk(ratio=0.001,warmup=4) is 25, 6.3, 1.6, 0.4 and 0.1 %, as published. server=on keeps what the owner of a sum loses when it
   encodes it again (stage 1), which no worker could know of. */
#include "codec_internal.h"
#include "registry.h"

typedef struct dgc { const char *codec; double momentum, clip; bool nesterov, masking, server; float *u, *v, *owner, *sent; } dgc; /* sent: 0 but from account to after; NULL: not needed */
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(dgc, codec), 0, 0, 0, "topk(ratio=0.001,warmup=4)", "that selects" },
    { "momentum", TUTTI_REAL, TUTTI_AT(dgc, momentum), 0.9, 0, 0.9999, NULL, "of each worker's gradients; the optimiser should have none" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(dgc, nesterov), 0, 0, 1, NULL, "Nesterov's momentum", "momentum>0" },
    { "masking", TUTTI_BOOL, TUTTI_AT(dgc, masking), 1, 0, 1, NULL, "forget the momentum of what was sent" },
    { "clip", TUTTI_REAL, TUTTI_AT(dgc, clip), 0, 0, 1e9, NULL, "norm of a tensor's gradient beyond which it is scaled down, times the root of the workers; 0: none" },
    { "server", TUTTI_BOOL, TUTTI_AT(dgc, server), 1, 0, 1, NULL, "a residual for what the owner of a sum loses when it encodes it" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    return (c->inner[0]->ops->traits(c->inner[0]) & TUTTI_CODEC_WHOLE_TENSOR) | (((const dgc *)c->self)->momentum > 0 ? TUTTI_CODEC_MOMENTUM : 0);
}

static tutti_status check(const tutti_codec *c, tutti_error *err)
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
    if (s->masking && (tutti_codec_traits(c->inner[0]) & TUTTI_CODEC_SELECTS) == 0)
        tutti_codec_declare_vector(c, plan, "sent", TUTTI_SCRATCH, &s->sent);
}

static tutti_codec *choose(tutti_codec *c, const tutti_view *v)
{
    (void)v;
    return c->inner[0];
}

static float *kept(const tutti_codec *c, const tutti_view *v)
{
    const dgc *s = c->self;

    return v->stage == 0 ? s->v + v->first : s->owner == NULL ? NULL : s->owner + v->first;
}

static const float *before(tutti_codec *c, const tutti_view *v, const float *x)
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
        const double norm = sqrt(tutti_norm2(d, v->count, x)), most = s->clip / sqrt(c->space->workers);
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
    const dgc *s = c->self;

    *into = v->stage == 0 && s->sent != NULL ? s->sent + v->first : kept(c, v);
    return v->stage == 0 && s->sent != NULL ? 1 : -1;
}

static bool is_sent(const float *held, const float *sent, size_t i)
{
    return sent != NULL ? sent[i] != 0 : held[i] == 0;
}

static void after(tutti_codec *c, const tutti_view *v, float *y)
{
    tutti_device *d = c->space->device;
    const dgc *s = c->self;
    float *held = s->v + v->first, *u = s->u + v->first, *sent = s->sent != NULL ? s->sent + v->first : NULL;
    bool whole = true;

    (void)y;
    for (size_t i = 0; i < v->count && s->masking && whole; i++)
        whole = held[i] == 0 || is_sent(held, sent, i);
    for (size_t i = 0; i < v->count && s->masking && !whole; i++)
        u[i] = is_sent(held, sent, i) ? 0 : u[i];
    if (sent != NULL) {
        tutti_axpy(d, v->count, -1, sent, held);
        tutti_fill(d, v->count, 0, sent);
    }
    tutti_device_charge(d, 0, 12.0 * (double)v->count);
}

const tutti_codec_ops tutti_codec_dgc = {
    .name = "dgc", .paper = "Lin et al., ICLR 2018", .help = "momentum of what is held back, forgotten when it is sent",
    .options = options, .self_bytes = sizeof(dgc), .traits = traits, .check = check, .declare = declare, .choose = choose, .before = before, .account = account,
    .after = after,
};
