/* coded.c: pieces of gradients through a codec, both ways (Jiang et al., OSDI 2020, section 5:
   "server decompresses, sums, recompresses"; Zheng, Huang, Kwok, NeurIPS 2019, algorithm 2).

   With x_r what worker r sends of a part, C the codec and decode(C) what it is decoded to, the
   same bits for all:

     worker   p_r = x_r + e_r      sends c_r = C(p_r)      e_r = p_r - decode(c_r)
     server   p = sum_r a_r decode(c_r) + e     answers c = C(p) to all     e = p - decode(c)
     worker   g = decode(c)

   So all workers have the same bits. Without `feedback` there is neither e_r nor e.

   What workers send is x_r = workers * weight_r * g_r, and a_r = 1 / workers. So a worker's
   residual has the same weight in every step, and nothing is lost in a step in which it has no
   samples. For machines (node) x is the weighted sum of its workers' gradients, and a = 1.

   A part is what one server has of one piece. Its elements of one tensor are a separate vector to
   the codec, with a scale and largest elements of its own. The messages of these vectors follow
   one another, after the lengths of all but the last, 4 bytes each. Parts are known when the
   method declares: pieces are made then, once and for all.

   Residuals. A worker's is as long as the model: its mean over the workers survives a change of
   their number (of machines its sum). A server's is as long as what it serves, and is saved by
   elements of the model: other servers can load theirs from it, however parts are split.

   When the learning rate changes a residual is multiplied by old rate / new rate, so that its
   effect on the model stays the same, as in the release of BytePS and in the paper of error
   feedback (Karimireddy et al., ICML 2019, whose residual has the rate inside). At a rate of 0 it
   is unchanged. A dedicated server learns the rate from the requests.

   Tables are sent by rows, without the codec. Numbers that are not finite bypass the residuals
   (codec.h). They end the run, since a step cannot be skipped once residuals were updated for
   it. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "server_internal.h"
#include "engine/refuse.h"
#include "state/plan.h"
#include "codec/codec.h"

/* A server's part of a piece. The last three members are used at that server only. */
typedef struct part {
    size_t view, n;      /* its views are [view, view + n) of coded.view */
    size_t first, count; /* its elements are [first, first + count) of the model */
    size_t at, most;     /* offset and largest size in bytes of its message, in coded.sent and
                            coded.came */
    size_t pending;      /* offset of its residual in coded.pending */
    double rate;         /* the learning rate that the residual is scaled to */
    double told;         /* the learning rate of this round, from the workers' requests */
} part;

enum { LENGTH = 4 };

struct tutti_server_coded {
    tutti_server *s;
    tutti_codec *codec;
    tutti_codec_space space;
    tutti_view *tensor;
    const char **name;    /* [tensors of the model]: their names */
    tutti_view *view;     /* the views of all parts */
    part *part;           /* [pieces][servers] */
    tutti_range *mine;    /* [pieces]: this server's part; empty: it has none */
    bool feedback;        /* what the codec loses is added to the next message */
    size_t most;          /* largest size of any part's message in bytes */
    size_t scratch_bytes; /* scratch memory of the codec for any part */
    uint8_t *sent, *came; /* declared: this worker's messages to servers, and the answers */
    uint8_t *out;         /* [most], declared: the server's answer */
    float *residual;      /* declared: this worker's (machine's), of the whole model */
    float *pending;       /* declared: this server's residual, of what it serves */
    double rate;          /* the last learning rate above 0; declared */
    double before;        /* the value of rate before this step */
    size_t answered;      /* bytes of the last answer */
    uint8_t *scratch;     /* memory for each caller, then for the server (scratch_of) */
};

static size_t up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static part *part_of(const tutti_server_coded *c, int piece, int server)
{
    return &c->part[(size_t)piece * (size_t)c->s->servers + (size_t)server];
}

/* ---- from declare to close ---- */

/* auto: on, unless a residual could grow without bound (codec/common.c). */
static tutti_status choose_feedback(tutti_server_coded *c, tutti_error *err)
{
    static const tutti_conflict sent = {
        TUTTI_ASKED_SKIPS,
        "has sent a step by then, and what the codec still has to send of it would be lost", NULL,
        ", or give feedback=off"
    };
    const tutti_server *s = c->s;
    const unsigned traits = tutti_codec_traits(c->codec);
    const bool grows =
        (traits & (TUTTI_CODEC_UNBIASED | TUTTI_CODEC_CONTRACTIVE)) == TUTTI_CODEC_UNBIASED;

    if (s->setup.feedback == TUTTI_FEEDBACK_ON && grows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': feedback is on, but codec '%s' is unbiased and may lose "
                          "more than it was given, so that a residual can grow without end; take "
                          "feedback=off, or a codec that only omits information, such as topk or "
                          "sign",
                          s->m->ops->name, c->codec->ops->name);
    c->feedback = s->setup.feedback == TUTTI_FEEDBACK_ON ||
                  (s->setup.feedback == TUTTI_FEEDBACK_AUTO && !grows);
    return c->feedback ? tutti_refuse(s->m, &sent, 1, err) : TUTTI_OK;
}

static tutti_status list_tensors(tutti_server_coded *c, tutti_error *err)
{
    const tutti_method *m = c->s->m;
    const tutti_layout *l = m->layout;

    c->tensor = tutti_alloc((size_t)l->n_tensors, sizeof *c->tensor);
    c->name = tutti_alloc((size_t)l->n_tensors, sizeof *c->name);
    if (c->tensor == NULL || c->name == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'",
                          m->ops->name);
    for (int i = 0; i < l->n_tensors; i++) {
        c->name[i] = l->tensor[i].name;
        c->tensor[i] = (tutti_view){ .tensor = i,
                                     .first = l->tensor[i].first,
                                     .count = l->tensor[i].count,
                                     .rows = 1,
                                     .cols = l->tensor[i].count };
    }
    c->space = (tutti_codec_space){ .n = l->used,
                                    .tensor = c->tensor,
                                    .name = c->name,
                                    .n_tensors = l->n_tensors,
                                    .rank = m->rank,
                                    .workers = m->workers,
                                    .seed = m->rng.seed,
                                    .device = m->device,
                                    .more = m->codecs };
    return TUTTI_OK;
}

/* Finds the views of a part. Returns their number; writes none where `views` is NULL. */
static size_t cut_views(const tutti_layout *l, size_t first, size_t count, tutti_view *views)
{
    size_t n = 0;

    for (int i = 0; i < l->n_tensors && l->tensor[i].first < first + count; i++) {
        const tutti_tensor *t = &l->tensor[i];
        const size_t begin = t->first > first ? t->first : first,
                     end =
                         t->first + t->count < first + count ? t->first + t->count : first + count;
        if (begin >= end)
            continue;
        if (views != NULL)
            views[n] = (tutti_view){
                .tensor = i, .first = begin, .count = end - begin, .rows = 1, .cols = end - begin
            };
        n++;
    }
    return n;
}

static size_t range_of(const tutti_server *s, const tutti_piece *p, int server, size_t *first)
{
    return p->rows != NULL ? 0
                           : tutti_server_part_of(s, server, s->setup.node > 1 ? 0 : -1, p->first,
                                                  p->count, first);
}

/* Lists the parts. Returns the bytes of all messages of a worker, and the number of elements that
   this rank serves. */
static tutti_status list_parts(tutti_server_coded *c, size_t *bytes, size_t *served,
                               tutti_error *err)
{
    const tutti_server *s = c->s;
    const tutti_layout *l = s->m->layout;
    size_t views = 0, first;

    for (int i = 0; i < l->n_pieces; i++)
        for (int k = 0; k < s->servers; k++) {
            const size_t count = range_of(s, &l->piece[i], k, &first);
            views += count > 0 ? cut_views(l, first, count, NULL) : 0;
        }
    c->part = tutti_alloc((size_t)l->n_pieces * (size_t)s->servers, sizeof *c->part);
    c->view = tutti_alloc(views + 1, sizeof *c->view);
    c->mine = tutti_alloc((size_t)l->n_pieces, sizeof *c->mine);
    if (c->part == NULL || c->view == NULL || c->mine == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'",
                          s->m->ops->name);
    views = 0;
    for (int i = 0; i < l->n_pieces; i++)
        for (int k = 0; k < s->servers; k++) {
            part *p = part_of(c, i, k);
            p->count = range_of(s, &l->piece[i], k, &p->first);
            if (p->count == 0)
                continue;
            p->view = views;
            p->n = cut_views(l, p->first, p->count, c->view + views);
            views += p->n;
            p->at = *bytes;
            p->most = LENGTH * (p->n - 1);
            for (size_t v = p->view; v < views; v++) {
                const size_t need = up(tutti_codec_point_scratch(c->codec, &c->view[v]));
                p->most += tutti_codec_point_bound(c->codec, &c->view[v]);
                c->scratch_bytes = need > c->scratch_bytes ? need : c->scratch_bytes;
            }
            *bytes += up(p->most);
            c->most = p->most > c->most ? p->most : c->most;
            if (k != s->index)
                continue;
            p->pending = *served;
            *served += p->count;
            c->mine[i] = (tutti_range){ p->first, p->count };
        }
    return TUTTI_OK;
}

static void declare_memory(tutti_server_coded *c, tutti_plan *plan, size_t bytes, size_t served)
{
    const tutti_server *s = c->s;
    const tutti_method *m = s->m;
    const bool works = m->rank < m->workers && m->workers > 1;
    tutti_state message = { .name = "server.coded-sent",
                            .keep = TUTTI_SCRATCH,
                            .dtype = TUTTI_U8,
                            .count = works ? bytes : 0 };

    tutti_declare(plan, &message, &c->sent);
    message.name = "server.coded-came";
    tutti_declare(plan, &message, &c->came);
    message.name = "server.coded-out";
    message.count = s->index >= 0 ? c->most : 0;
    tutti_declare(plan, &message, &c->out);
    if (!c->feedback || m->workers == 1)
        return;
    if (s->setup.node > 1)
        tutti_declare_vector(plan, "server.residual-of-machine", TUTTI_OWN_SUM, &c->residual);
    else
        tutti_declare_vector(plan, "server.residual", TUTTI_OWN_MEAN, &c->residual);
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.owed",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F32,
                                  .placed = true,
                                  .count = served,
                                  .ranges = c->mine,
                                  .n_ranges = (size_t)m->layout->n_pieces },
                  &c->pending);
    tutti_declare_value(plan, "server.rate", TUTTI_SAME, &c->rate, sizeof c->rate);
}

tutti_status tutti_server_coded_declare(tutti_server *s, tutti_plan *plan, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const size_t before = tutti_plan_count(plan);
    size_t bytes = 0, served = 0;
    bool checked;
    const char *const spec = tutti_engine_codec(e, &checked);
    tutti_server_coded *c;

    if (spec[0] == 0 && s->setup.codec && s->setup.feedback != TUTTI_FEEDBACK_AUTO)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s': feedback is of what a codec loses, and there is none; omit feedback, or "
            "give a codec",
            s->m->ops->name);
    if (spec[0] == 0 || !s->setup.codec)
        return TUTTI_OK;
    TUTTI_TRY(tutti_refuse_rules(
        s->m,
        (const tutti_rule[]){
            { s->setup.wire != TUTTI_F32, "{method}: wire sets how numbers travel to servers and "
                                          "back, and so does codec '{codec}'; omit one of the two" },
            { checked, "codec-checksum is on, but messages to the servers of {method} have no hash "
                       "of their own; leave codec-checksum off: transport tcp checks all it carries "
                       "(wire-check)" } },
        2, err));
    c = s->coded = tutti_alloc(1, sizeof *c);
    if (c == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'",
                          s->m->ops->name);
    c->s = s;
    TUTTI_TRY(list_tensors(c, err));
    TUTTI_TRY(tutti_codec_declare(&c->codec, plan, spec, "server.codec", &c->space, err));
    TUTTI_TRY(tutti_fail_within(
        err, tutti_codec_check_point(c->codec, err),
        "method '%s' sends servers their parts, and makes good what is lost (feedback)",
        s->m->ops->name));
    if ((tutti_codec_traits(c->codec) & TUTTI_CODEC_WHOLE_TENSOR) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%.80s' encodes whole tensors, and to the servers of method '%s' "
                          "parts of them are sent; take one that does not mind, such as topk, sign "
                          "or fp16",
                          spec, s->m->ops->name);
    if (tutti_plan_count(plan) > before)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%.80s' keeps what it learns of each tensor, and to servers parts "
                          "of them are sent; take one that keeps nothing, such as topk, sign or "
                          "fp16",
                          spec);
    TUTTI_TRY(choose_feedback(c, err));
    TUTTI_TRY(tutti_engine_cut(e, err));
    TUTTI_TRY(tutti_server_assign(s, err));
    TUTTI_TRY(list_parts(c, &bytes, &served, err));
    declare_memory(c, plan, bytes, served);
    tutti_engine_take_codec(e);
    return TUTTI_OK;
}

tutti_status tutti_server_coded_open(tutti_server *s, tutti_error *err)
{
    tutti_server_coded *c = s->coded;

    if (c == NULL)
        return TUTTI_OK;
    tutti_codec_open(c->codec);
    c->scratch = tutti_alloc((size_t)s->n_callers + 1, c->scratch_bytes + 64);
    return c->scratch != NULL ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "opening the codec of method '%s'", s->m->ops->name);
}

void tutti_server_coded_close(tutti_server_coded *c)
{
    if (c == NULL)
        return;
    tutti_codec_close(c->codec);
    tutti_free(c->tensor);
    tutti_free(c->name);
    tutti_free(c->view);
    tutti_free(c->part);
    tutti_free(c->mine);
    tutti_free(c->scratch);
    tutti_free(c);
}

size_t tutti_server_coded_most(const tutti_server_coded *c)
{
    return up(c->most);
}

/* ---- learning rates ---- */

void tutti_server_coded_begin(tutti_server_coded *c)
{
    const double lr = c->s->m->lr;

    c->before = c->rate;
    c->rate = lr > 0 ? lr : c->rate;
}

void tutti_server_coded_release(tutti_server_coded *c)
{
    const int n = c->s->index >= 0 ? c->s->m->layout->n_pieces : 0;

    for (int i = 0; i < n; i++)
        if (part_of(c, i, c->s->index)->rate <=
            0) /* no round was made since a checkpoint was loaded */
            part_of(c, i, c->s->index)->rate = c->rate;
}

int64_t tutti_server_coded_rate(const tutti_server_coded *c)
{
    int64_t bits;

    memcpy(&bits, &c->rate, sizeof bits);
    return bits;
}

tutti_status tutti_server_coded_set_rate(tutti_server_coded *c, int piece, int64_t rate, int worker,
                                         tutti_error *err)
{
    double told;

    memcpy(&told, &rate, sizeof told);
    if (!(told >= 0) || isinf(told))
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d reports that the learning rate of bucket %d is %g; all workers must run one "
            "version",
            worker, piece, told);
    part_of(c, piece, c->s->index)->told = told;
    return TUTTI_OK;
}

/* Rescales a residual of n elements from one learning rate to another; e NULL: there is none. */
static void rescale(const tutti_server_coded *c, float *e, size_t n, double from, double to)
{
    if (e != NULL && from > 0 && to > 0 && from != to)
        tutti_scale(c->space.device, n, (float)(from / to), e);
}

/* ---- messages ---- */

/* The scratch of a caller, or, from the last index on, of the server's thread. */
static void *scratch_of(const tutti_server_coded *c, int caller)
{
    return c->scratch + up((size_t)caller * (c->scratch_bytes + 64));
}

static void put_length(uint8_t *to, uint32_t bytes)
{
    for (int k = 0; k < LENGTH; k++)
        to[k] = (uint8_t)(bytes >> 8 * k);
}

static uint32_t get_length(const uint8_t *from)
{
    uint32_t bytes = 0;

    for (int k = 0; k < LENGTH; k++)
        bytes |= (uint32_t)from[k] << 8 * k;
    return bytes;
}

/* The coding of a server's part of a piece, in a stage of the exchange and at the count b. */
typedef struct coding {
    const tutti_server_coded *c;
    const part *p;
    int stage;
    int64_t b;
    void *scratch;
} coding;
typedef struct message {
    uint8_t *at;
    size_t bytes;
} message;

/* Encodes x, of one view, as a message; e: its residual, NULL: without feedback. */
static tutti_status encode_view(const coding *w, const tutti_view *v, const float *x, float *e,
                                message *to, tutti_error *err)
{
    const tutti_server_coded *c = w->c;
    tutti_device *d = c->space.device;

    if (e == NULL || !tutti_finite(d, v->count, x)) {
        to->bytes = tutti_codec_pack(c->codec, v, x, w->scratch, to->at);
        return TUTTI_OK;
    }
    tutti_add(d, v->count, x, e);
    to->bytes = tutti_codec_pack(c->codec, v, e, w->scratch, to->at);
    return tutti_codec_unpack_add(c->codec, v, to->at, to->bytes, -1, e, w->scratch, err);
}

static tutti_view view_of(const tutti_server_coded *c, const part *p, size_t k, int stage,
                          int64_t b)
{
    tutti_view v = c->view[p->view + k];

    v.stage = stage;
    v.step = (uint64_t)b >> 32;
    return v;
}

/* Encodes a part; x, e: begin at element p->first. to->at: where the message is written. */
static tutti_status encode_part(const coding *w, const float *x, float *e, message *to,
                                tutti_error *err)
{
    const part *p = w->p;

    to->bytes = LENGTH * (p->n - 1);
    for (size_t k = 0; k < p->n; k++) {
        const tutti_view v = view_of(w->c, p, k, w->stage, w->b);
        const size_t at = v.first - p->first;
        message one = { to->at + to->bytes, 0 };
        TUTTI_TRY(encode_view(w, &v, x + at, e == NULL ? NULL : e + at, &one, err));
        to->bytes += one.bytes;
        if (k + 1 < p->n)
            put_length(to->at + LENGTH * k, (uint32_t)one.bytes);
    }
    return TUTTI_OK;
}

/* Decodes a message to y (from element p->first on). It came from a peer: lengths are not
   trusted. */
static tutti_status decode_part(const coding *w, const uint8_t *in, size_t bytes, float *y,
                                tutti_error *err)
{
    const tutti_server_coded *c = w->c;
    const part *p = w->p;
    size_t at = LENGTH * (p->n - 1);

    tutti_fill(c->space.device, p->count, 0, y);
    for (size_t k = 0; k < p->n; k++) {
        const tutti_view v = view_of(c, p, k, w->stage, w->b);
        const size_t left = bytes >= at ? bytes - at : 0,
                     some = k + 1 < p->n && bytes >= at ? get_length(in + LENGTH * k) : left;
        if (bytes < at || some > left)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "a message of %zu bytes ends before its vector %zu of %zu; it was "
                              "damaged, or both ends run different versions",
                              bytes, k + 1, p->n);
        TUTTI_TRY(tutti_codec_unpack_add(c->codec, &v, in + at, some, 1, y + (v.first - p->first),
                                         w->scratch, err));
        at += some;
    }
    return TUTTI_OK;
}

tutti_status tutti_server_coded_send(tutti_server_coded *c, const tutti_server_coded_at *at,
                                     const float *values, tutti_buffer *request,
                                     tutti_buffer *reply, tutti_error *err)
{
    const part *p = part_of(c, at->piece, at->peer);
    float *const e = c->residual == NULL ? NULL : c->residual + p->first;
    message to = { c->sent + p->at, 0 };

    rescale(c, e, p->count, c->before, c->rate);
    TUTTI_TRY(encode_part(&(coding){ c, p, 0, at->b, scratch_of(c, at->caller) }, values + p->first,
                          e, &to, err));
    *request = tutti_host(c->sent + p->at, to.bytes, TUTTI_U8);
    *reply = tutti_host(c->came + p->at, p->most, TUTTI_U8);
    return TUTTI_OK;
}

tutti_status tutti_server_coded_came(tutti_server_coded *c, const tutti_server_coded_at *at,
                                     size_t bytes, float *into, tutti_error *err)
{
    const part *p = part_of(c, at->piece, at->peer);

    return tutti_fail_within(err,
                             decode_part(&(coding){ c, p, 1, at->b, scratch_of(c, at->caller) },
                                         c->came + p->at, bytes, into + p->first, err),
                             "what the server at rank %d answered about bucket %d",
                             c->s->member[at->peer], at->piece);
}

tutti_status tutti_server_coded_receive(tutti_server_coded *c, const tutti_server_coded_at *at,
                                        const void *in, size_t bytes, float *out, tutti_error *err)
{
    return tutti_fail_within(err,
                             decode_part(&(coding){ c, part_of(c, at->piece, c->s->index), 0, at->b,
                                                    scratch_of(c, at->caller) },
                                         in, bytes, out, err),
                             "what worker %d sent of bucket %d", at->peer, at->piece);
}

tutti_status tutti_server_coded_answer(tutti_server_coded *c, int piece, int64_t b, float *sum,
                                       tutti_buffer *payload, tutti_error *err)
{
    part *p = part_of(c, piece, c->s->index);
    float *const e = c->pending == NULL ? NULL : c->pending + p->pending;
    message to = { c->out, 0 };

    rescale(c, e, p->count, p->rate, p->told);
    p->rate = p->told > 0 ? p->told : p->rate;
    TUTTI_TRY(
        encode_part(&(coding){ c, p, 1, b, scratch_of(c, c->s->n_callers) }, sum, e, &to, err));
    *payload = tutti_host(c->out, to.bytes, TUTTI_U8);
    c->answered = to.bytes;
    return TUTTI_OK;
}

size_t tutti_server_answered(const tutti_server *s, int piece, size_t count)
{
    return s->coded != NULL && s->m->layout->piece[piece].rows == NULL
               ? s->coded->answered
               : count * tutti_dtype_bytes(s->setup.wire);
}
