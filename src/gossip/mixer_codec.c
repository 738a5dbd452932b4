/* mixer_codec.c: neighbour averaging of models that travel through a codec: CHOCO-gossip
   (Koloskova, Stich, Jaggi, ICML 2019, arXiv 1902.00340). With averaging concurrent with the
   computation the order is that of Koloskova, Lin, Stich, Jaggi, ICLR 2020, arXiv 1907.09356.

   A model does not go to zero, so a codec would lose part of it again in every round. The
   difference to a copy that all neighbours have does go to zero. Every worker i has such a public
   copy p_i, held by the worker itself and by each that receives from it. All copies are the same
   to the bit, since all decode the same bytes:

     q_i = Q(u_i - p_i) is sent;  p_j += q_j for all j, including i;
     x_i = u_i + gamma sum_j W_ij (p_j - p_i)

   For symmetric or doubly stochastic W the mean of the models is preserved whatever Q loses. What
   Q loses stays in u_i - p_i: no further residual is needed.

   Choices where the papers leave one:
   1. Copies begin as the common initial model, not as 0. (That is as if it were sent once.)
   2. There is a copy for each neighbour instead of one weighted sum of them: n numbers per
      neighbour instead of n. But a lost neighbour can be excluded, which is not possible with a
      sum.
   3. A difference of equal copies is 0 exactly, so nothing drifts between models that agree.
   4. Graphs must be the same in every round. Otherwise a neighbour would miss corrections of the
      rounds in which it was none, and two "copies" of a worker would differ.

   gamma. The value of the theorem is safe, but too small to be useful (4e-4 on a ring of 8 if one
   element of 8 is sent). The default is omega^(3/2), where omega = 1 - |v - Q(v)|^2 / |v|^2 is
   measured once, for a vector v of normal numbers: 1 for casts and int8, 0.5 for sign, 0.3 for
   topk(ratio=0.1), 0.027 for topk(ratio=0.01). An option sets gamma. How the default compares with
   other values is in docs/methods/d-psgd.md.

   Messages: tensors one after the other, several in one message until it represents 4 MiB of
   model, so that one is encoded while those before it travel. A tensor whose codec does not state
   its length is preceded by a length of four bytes. With codec-checksum each is preceded by eight
   more, and is checked before any of it is added to a copy. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mixer_internal.h"
#include "tutti/codec.h"
#include "tutti/method/gossip.h"
#include "codec/codec.h"
#include "kernels/device.h"

enum { ELEMENTS = 1 << 20, SAMPLE = 1 << 16, PREFIX = 4, BLOCK = 4096 };
static const uint64_t late_step = UINT64_MAX; /* beyond any warm-up */

/* A message has the tensors [first, first + tensors) and at most `bytes` bytes. at: its offset in
   send, and in each neighbour's part of receive. */
typedef struct message { int first, tensors; size_t at, bytes; } message;

struct tutti_mixer_codec {
    tutti_codec *codec;
    tutti_codec_space space;
    tutti_view *tensor;          /* space.tensor */
    const char **name;           /* space.name */
    double gamma;
    message *message;            /* [messages]: the parts of a model */
    int messages;
    size_t bytes;                /* bytes of all messages, each rounded up */
    float *mine;                 /* [n], declared and saved: this worker's public copy */
    float **theirs;              /* [degree][n], declared: the neighbours' public copies, in the
                                    order of tutti_graph_round */
    bool checked;                /* codec-checksum: the eight bytes of checksum.c precede each
                                    tensor's bytes in a message */
    bool began;                  /* theirs are equal to what the neighbours have sent */
    float *difference;           /* [elements of the largest tensor], declared */
    uint8_t *scratch;            /* declared: scratch memory of the codec for any tensor */
    uint8_t *send;               /* [bytes], declared */
    uint8_t *receive;            /* [degree][bytes], declared */
    tutti_request *requests;     /* [messages][2 * degree]: receives, then sends */
};

static size_t prefix_of(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec *leaf = tutti_codec_chosen((tutti_codec *)(uintptr_t)c, v);

    return leaf->ops->rounds > 0 || (tutti_codec_traits(leaf) & TUTTI_CODEC_FIXED) != 0 ? 0 : PREFIX;
}

/* Bytes that precede a tensor's bytes in a message. */
static size_t head_of(const tutti_mixer_codec *c, const tutti_view *v)
{
    return prefix_of(c->codec, v) + (c->checked ? TUTTI_CHECKSUM_BYTES : 0);
}

/* The most bytes that a tensor takes in a message, in any step. */
static size_t bytes_most(const tutti_mixer_codec *c, tutti_view v)
{
    size_t most;

    v.step = 0;
    most = tutti_codec_point_bound(c->codec, &v);
    v.step = late_step;
    return head_of(c, &v) +
           (tutti_codec_point_bound(c->codec, &v) > most ? tutti_codec_point_bound(c->codec, &v) : most);
}

static tutti_status list_tensors(const tutti_method *m, tutti_mixer_codec *c, tutti_error *err)
{
    const tutti_layout *l = m->layout;

    c->tensor = tutti_alloc((size_t)l->n_tensors, sizeof *c->tensor);
    c->name = tutti_alloc((size_t)l->n_tensors, sizeof *c->name);
    c->message = tutti_alloc((size_t)l->n_tensors, sizeof *c->message);
    if (c->tensor == NULL || c->name == NULL || c->message == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'", m->ops->name);
    for (int i = 0; i < l->n_tensors; i++) {
        const tutti_tensor *t = &l->tensor[i];
        const bool vector = t->cols == 1;
        c->name[i] = t->name;
        if (t->count > INT32_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "parameter %s has %zu elements; a codec takes tensors of fewer than 2147483648", t->name,
                              t->count);
        c->tensor[i] = (tutti_view){ .tensor = i,
                                     .first = t->first,
                                     .count = t->count,
                                     .rows = vector ? 1 : t->rows,
                                     .cols = vector ? t->count : t->cols };
    }
    c->space = (tutti_codec_space){ .n = m->n,
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

static void cut_messages(tutti_mixer_codec *c)
{
    size_t elements = 0;

    for (int i = 0; i < c->space.n_tensors; i++) {
        message *last;
        if (c->messages == 0 || elements + c->tensor[i].count > ELEMENTS) {
            c->message[c->messages++] = (message){ .first = i, .at = c->bytes };
            elements = 0;
        }
        last = &c->message[c->messages - 1];
        elements += c->tensor[i].count;
        last->tensors++;
        last->bytes += bytes_most(c, c->tensor[i]);
        c->bytes = last->at + (last->bytes + 63) / 64 * 64;
    }
}

static tutti_status declare_memory(tutti_mixer *mixer, tutti_plan *plan, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const size_t d = (size_t)tutti_graph_degree(mixer->graph);
    size_t largest = 0, scratch = 0;

    for (int i = 0; i < c->space.n_tensors; i++) {
        tutti_view v = c->tensor[i];
        largest = v.count > largest ? v.count : largest;
        for (int late = 0; late < 2; late++) {
            v.step = late ? late_step : 0;
            scratch =
                tutti_codec_point_scratch(c->codec, &v) > scratch ? tutti_codec_point_scratch(c->codec, &v) : scratch;
        }
    }
    c->theirs = tutti_alloc(d + 1, sizeof *c->theirs);
    c->requests = tutti_alloc((size_t)c->messages * 2 * d + 1, sizeof *c->requests);
    if (c->theirs == NULL || c->requests == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'", mixer->m->ops->name);
    tutti_declare_vector(plan, "mixer.public", TUTTI_OWN_ZERO, &c->mine);
    for (size_t a = 0; a < d; a++) {
        char name[48];
        snprintf(name, sizeof name, "mixer.public-of-neighbour-%zu", a);
        tutti_declare_vector(plan, name, TUTTI_SCRATCH, &c->theirs[a]);
    }
    tutti_declare(
        plan, &(tutti_state){ .name = "mixer.difference", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = largest },
        &c->difference);
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "mixer.codec-scratch", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = scratch + 64 },
                  &c->scratch);
    tutti_declare(
        plan, &(tutti_state){ .name = "mixer.send", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = c->bytes + 64 },
        &c->send);
    tutti_declare(
        plan,
        &(tutti_state){ .name = "mixer.receive", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = d * c->bytes + 64 },
        &c->receive);
    return TUTTI_OK;
}

/* A biased codec must keep a part of whatever it encodes, or differences need not shrink; a codec
   that is only unbiased may increase them without bound. */
static tutti_status check_contracts(const tutti_codec *c, tutti_error *err)
{
    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            TUTTI_TRY(check_contracts(c->inner[i], err));
    if (c->ops->choose == NULL && (tutti_codec_traits(c) & TUTTI_CODEC_CONTRACTIVE) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%s' may lose as much as it is given, or more, and neighbours' copies come closer "
                          "only with one that always keeps a part: fp16, bf16, int8, topk, sign, or randomk",
                          c->ops->name);
    return TUTTI_OK;
}

tutti_status tutti_mixer_codec_declare(tutti_mixer *mixer, tutti_plan *plan, double gamma, tutti_error *err)
{
    tutti_method *m = mixer->m;
    bool checked;
    const char *name = m->ops->name, *spec = tutti_engine_codec(m->engine, &checked);
    tutti_mixer_codec *c;

    if (spec[0] == 0) {
        if (gamma > 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s': gamma is %g, but models travel without a codec, whose losses it is for; "
                              "omit gamma, or give a codec",
                              name, gamma);
        return TUTTI_OK;
    }
    if (tutti_graph_period(mixer->graph) != 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec is '%.80s', but the graph of method '%s' changes from round to round: through a codec differences "
            "to copies travel, and a neighbour that is none in some rounds "
            "would miss them; take a graph that stays (ring, torus, exponential, complete), or omit codec",
            spec, name);
    c = mixer->codec = tutti_alloc(1, sizeof *c);
    if (c == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the codec of method '%s'", name);
    c->gamma = gamma;
    c->checked = checked;
    TUTTI_TRY(list_tensors(m, c, err));
    TUTTI_TRY(tutti_codec_declare(&c->codec, plan, spec, "mixer.codec", &c->space, err));
    TUTTI_TRY(tutti_fail_within(err, tutti_codec_check_point(c->codec, err), "method '%s' sends to neighbours", name));
    TUTTI_TRY(tutti_fail_within(err, check_contracts(c->codec, err), "method '%s'", name));
    cut_messages(c);
    TUTTI_TRY(declare_memory(mixer, plan, err));
    tutti_engine_take_codec(m->engine);
    return TUTTI_OK;
}

/* ---- opening ---- */

/* Deterministic, so the same on all workers: contractive codecs draw the same numbers or none. */
static tutti_status measure_gamma(tutti_mixer_codec *c, tutti_error *err)
{
    tutti_device *d = c->space.device;
    tutti_view v = { .tensor = -1, .rows = 1, .step = late_step };
    float *x, *rest;
    void *scratch;
    uint8_t *out;
    double omega;
    tutti_status status = TUTTI_OK;

    for (int i = 0; i < c->space.n_tensors; i++)
        v.count = c->tensor[i].count > v.count ? c->tensor[i].count : v.count;
    v.cols = v.count = v.count < SAMPLE ? v.count : SAMPLE;
    x = tutti_alloc(v.count, sizeof *x);
    rest = tutti_alloc(v.count, sizeof *rest);
    scratch = tutti_alloc(tutti_codec_point_scratch(c->codec, &v) + 64, 1);
    out = tutti_alloc(tutti_codec_point_bound(c->codec, &v) + 64, 1);
    if (x == NULL || rest == NULL || scratch == NULL || out == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "measuring what a codec keeps");
    else {
        size_t bytes;
        tutti_fill_normal(d, v.count, (tutti_rng){ 0, 0, 0 }, x);
        tutti_copy(d, v.count, x, rest);
        bytes = tutti_codec_pack(c->codec, &v, x, scratch, out);
        status = tutti_codec_unpack_add(c->codec, &v, out, bytes, -1, rest, scratch, err);
        omega = 1 - tutti_norm2(d, v.count, rest) / tutti_norm2(d, v.count, x);
        c->gamma = omega > 0 ? pow(omega, 1.5) : 0;
        if (status == TUTTI_OK && !(c->gamma > 0))
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "codec '%s' keeps nothing of %zu normal numbers, so models would never come closer; "
                                "set gamma yourself, or take another codec",
                                c->codec->ops->name, v.count);
    }
    tutti_free(out);
    tutti_free(scratch);
    tutti_free(rest);
    tutti_free(x);
    return status;
}

tutti_status tutti_mixer_codec_open(tutti_mixer *mixer, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;

    if (c == NULL)
        return TUTTI_OK;
    tutti_codec_open(c->codec);
    if (c->gamma == 0) {
        TUTTI_TRY(measure_gamma(c, err));
        if (mixer->m->rank == 0 && mixer->m->workers > 1)
            tutti_event(mixer->m, "codec",
                        "models travel as differences to public copies, through '%s'; gamma is %.4g, by what it keeps "
                        "of normal numbers",
                        tutti_exchange_codec(mixer->m), c->gamma);
    }
    tutti_copy(mixer->m->device, mixer->m->layout->used, mixer->m->x, c->mine); /* a checkpoint's
                                                                                   value may
                                                                                   replace it */
    return TUTTI_OK;
}

void tutti_mixer_codec_close(tutti_mixer_codec *c)
{
    if (c == NULL)
        return;
    tutti_codec_close(c->codec);
    tutti_free(c->tensor);
    tutti_free(c->name);
    tutti_free(c->message);
    tutti_free(c->theirs);
    tutti_free(c->requests);
    tutti_free(c);
}

/* ---- a round ---- */

static tutti_request *requests_of(const tutti_mixer *mixer, int k)
{
    return mixer->codec->requests + (size_t)k * 2 * (size_t)tutti_graph_degree(mixer->graph);
}

static uint8_t *receive_memory(const tutti_mixer *mixer, int a, const message *g)
{
    return mixer->codec->receive + (size_t)a * mixer->codec->bytes + g->at;
}

static tutti_view view_of(const tutti_mixer_codec *c, int tensor, uint64_t k)
{
    tutti_view v = c->tensor[tensor];

    v.step = k;
    return v;
}

/* Checks this worker's copy of a tensor before others update theirs: a number that the codec
   cannot represent (fp16 beyond 65504) must not get there, since it would reach their models. */
static tutti_status check_copy(const tutti_mixer *mixer, const tutti_view *v, tutti_error *err)
{
    const tutti_mixer_codec *c = mixer->codec;
    const tutti_method *m = mixer->m;
    tutti_engine_bad bad;

    if (tutti_finite(c->space.device, v->count, c->mine + v->first) ||
        !tutti_engine_find_bad(m->engine, c->mine, v->tensor, 1, &bad))
        return TUTTI_OK;
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank,
                           "%s has moved by %g at element %zu when it is to be sent, which codec '%s' makes %g; take a "
                           "codec with a wider range (bf16 instead of fp16), "
                           "lower the learning rate or clip the gradient (clip-norm)",
                           m->layout->tensor[v->tensor].name, (double)c->difference[bad.element], bad.element,
                           c->codec->ops->name, (double)bad.value);
}

/* Writes a tensor's bytes to out, after their head. *some: their number. */
static void write_tensor(const tutti_mixer *mixer, const tutti_view *v, const float *x, uint8_t *out, size_t *some)
{
    tutti_mixer_codec *c = mixer->codec;
    const size_t prefix = prefix_of(c->codec, v), head = head_of(c, v);

    *some = tutti_codec_pack(c->codec, v, x, c->scratch, out + head);
    for (size_t k = 0; k < prefix; k++)
        out[k] = (uint8_t)(*some >> 8 * k);
    if (c->checked)
        tutti_checksum_put(c->codec, v, mixer->m->rank, out + head, *some, out + prefix);
}

/* y += a * the tensor from worker `from` at *in, which is advanced. bytes: of the whole
   message. */
static tutti_status get(const tutti_mixer *mixer, const tutti_view *v, int from, const uint8_t **in, const uint8_t *end,
                        size_t bytes, float a, float *y, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const size_t prefix = prefix_of(c->codec, v), head = head_of(c, v);
    size_t some = tutti_codec_point_bound(c->codec, v);

    if (prefix > 0 && (size_t)(end - *in) >= PREFIX)
        some = (size_t)(*in)[0] | (size_t)(*in)[1] << 8 | (size_t)(*in)[2] << 16 | (size_t)(*in)[3] << 24;
    if (head > (size_t)(end - *in) || some > (size_t)(end - *in) - head)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, from,
                               "worker %d sent %zu bytes that end within tensor %d; do all workers run the same "
                               "codec with the same options?",
                               from, bytes, v->tensor);
    if (c->checked)
        TUTTI_TRY(tutti_checksum_check(
            c->codec, v, from, &(tutti_codec_message){ *in + head, some }, *in + prefix, err));
    TUTTI_TRY(tutti_fail_within(err, tutti_codec_unpack_add(c->codec, v, *in + head, some, a, y, c->scratch, err),
                                "what worker %d sent of tensor %d", from, v->tensor));
    *in += head + some;
    return TUTTI_OK;
}

static tutti_status got_all(int from, const uint8_t *in, const uint8_t *end, tutti_error *err)
{
    return in == end ? TUTTI_OK
                     : tutti_fail_rank(err, TUTTI_ERR_CORRUPT, from,
                                       "worker %d sent %zu bytes more than its tensors have; do all workers run the "
                                       "same codec with the same options?",
                                       from, (size_t)(end - in));
}

/* Encodes, for the tensors of message g, the difference to this worker's copy, and adds it to the
   copy as the others will. */
static tutti_status pack(const tutti_mixer *mixer, const tutti_mixer_round *r, const message *g, size_t *bytes,
                         tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    uint8_t *out = c->send + g->at;

    *bytes = 0;
    for (int i = g->first; i < g->first + g->tensors; i++) {
        const tutti_view v = view_of(c, i, r->k);
        const size_t head = head_of(c, &v), left = g->bytes - (size_t)(out - (c->send + g->at));
        size_t some;
        if (head + tutti_codec_point_bound(c->codec, &v) > left)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "codec '%s' makes longer messages in round %llu than at its beginning and end; this is a "
                              "fault of the program: please report it",
                              c->codec->ops->name, (unsigned long long)r->k);
        tutti_diff(c->space.device, v.count, 1, r->u + v.first, c->mine + v.first, c->difference);
        write_tensor(mixer, &v, c->difference, out, &some);
        TUTTI_TRY(tutti_codec_unpack_add(c->codec, &v, out + head, some, 1, c->mine + v.first, c->scratch, err));
        TUTTI_TRY(check_copy(mixer, &v, err));
        out += head + some;
    }
    *bytes = (size_t)(out - (c->send + g->at));
    return TUTTI_OK;
}

static tutti_status unpack(const tutti_mixer *mixer, const tutti_mixer_round *r, const message *g, int a, size_t bytes,
                           tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const uint8_t *in = receive_memory(mixer, a, g), *end = in + bytes;

    for (int i = g->first; i < g->first + g->tensors; i++) {
        const tutti_view v = view_of(c, i, r->k);
        TUTTI_TRY(get(mixer, &v, mixer->in[a], &in, end, bytes, 1, c->theirs[a] + v.first, err));
    }
    return got_all(mixer->in[a], in, end, err);
}

static tutti_status post_receives(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_port port, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;

    for (int k = 0; k < c->messages; k++) {
        tutti_request *request = requests_of(mixer, k);
        for (int a = 0; a < r->n_in + r->n_out; a++)
            request[a].posted = false;
        for (int a = 0; a < r->n_in; a++)
            if (!tutti_mixer_is_lost(mixer, mixer->in[a]))
                TUTTI_TRY(tutti_post_recv(
                    mixer->m->world, &request[a], mixer->in[a], port,
                    tutti_host(receive_memory(mixer, a, &c->message[k]), c->message[k].bytes, TUTTI_U8), err));
    }
    return TUTTI_OK;
}

static tutti_status post_sends(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_port port, int k, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const tutti_header note = { .kind = (uint32_t)k };
    size_t bytes;

    TUTTI_TRY(pack(mixer, r, &c->message[k], &bytes, err));
    for (int a = 0; a < r->n_out; a++)
        if (!tutti_mixer_is_lost(mixer, mixer->out[a]))
            TUTTI_TRY(tutti_post_send(mixer->m->world, &requests_of(mixer, k)[r->n_in + a], mixer->out[a], port, &note,
                                      tutti_host(c->send + c->message[k].at, bytes, TUTTI_U8), err));
    return TUTTI_OK;
}

/* Called before this process's first round. In a new run all copies are equal. In a resumed run
   each worker sends its neighbours its copy once in full: so a checkpoint has one copy per
   worker, not one per neighbour, and may be of a run that has lost workers and continues with
   others as neighbours. */
static tutti_status begin_copies(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const tutti_port port = tutti_port_of("mixer, public copies", r->k, 0);
    const size_t n = mixer->m->layout->used;
    tutti_request *request = requests_of(mixer, 0);

    for (int a = 0; a < r->n_in + r->n_out; a++)
        request[a].posted = false;
    for (int a = 0; a < r->n_in; a++) {
        tutti_copy(c->space.device, n, c->mine, c->theirs[a]);
        if (r->k > 0 && !tutti_mixer_is_lost(mixer, mixer->in[a]))
            TUTTI_TRY(tutti_post_recv(mixer->m->world, &request[a], mixer->in[a], port,
                                      tutti_f32(c->space.device, c->theirs[a], n), err));
    }
    for (int a = 0; a < r->n_out; a++)
        if (r->k > 0 && !tutti_mixer_is_lost(mixer, mixer->out[a]))
            TUTTI_TRY(tutti_post_send(mixer->m->world, &request[r->n_in + a], mixer->out[a], port, &(tutti_header){ 0 },
                                      tutti_f32(c->space.device, c->mine, n), err));
    TUTTI_TRY(tutti_mixer_await(mixer, r, request, err));
    for (int a = 0; a < r->n_in; a++)
        if (request[a].posted && request[a].note.bytes != n * sizeof(float))
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, mixer->in[a],
                "worker %d sent %llu bytes of its public copy where %zu were due; all workers must run one version",
                mixer->in[a], (unsigned long long)request[a].note.bytes, n * sizeof(float));
    c->began = true;
    return TUTTI_OK;
}

void tutti_mixer_codec_restart(tutti_mixer *mixer, const float *x)
{
    tutti_mixer_codec *c = mixer->codec;
    const size_t n = mixer->m->layout->used;

    tutti_copy(c->space.device, n, x, c->mine);
    for (int a = 0; a < tutti_graph_degree(mixer->graph); a++)
        tutti_copy(c->space.device, n, x, c->theirs[a]);
}

/* x := u + gamma sum over the surviving neighbours of W_ij (p_j - p_i). */
static void move(const tutti_mixer *mixer, const tutti_mixer_round *r)
{
    const tutti_mixer_codec *c = mixer->codec;
    const size_t n = mixer->m->layout->used;
    float apart[BLOCK];

    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < BLOCK ? n - at : BLOCK;
        if (r->x != r->u)
            tutti_copy(c->space.device, some, r->u + at, r->x + at);
        for (int a = 0; a < r->n_in; a++) {
            if (tutti_mixer_is_lost(mixer, mixer->in[a]))
                continue;
            tutti_diff(c->space.device, some, (float)(c->gamma * mixer->w_in[a]), c->theirs[a] + at, c->mine + at,
                       apart);
            tutti_add(c->space.device, some, apart, r->x + at);
        }
    }
}

static tutti_status no_sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    (void)with, (void)n, (void)numbers;
    /* tutti_codec_check_point */
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "neighbours have no sum over all workers; this is a fault of the program: please report it");
}

tutti_status tutti_mixer_codec_round(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const tutti_port port = tutti_port_of("mixer", r->k, 0); /* messages of a round arrive in order */

    if (!c->began)
        TUTTI_TRY(begin_copies(mixer, r, err));
    TUTTI_TRY(
        tutti_codec_begin(c->codec, &(tutti_codec_moment){ .step = r->k, .epoch = r->epoch, .sum = no_sum }, err));
    TUTTI_TRY(post_receives(mixer, r, port, err));
    for (int k = 0; k < c->messages; k++)
        TUTTI_TRY(post_sends(mixer, r, port, k, err));
    for (int k = 0; k < c->messages; k++) {
        tutti_request *request = requests_of(mixer, k);
        TUTTI_TRY(tutti_mixer_await(mixer, r, request, err));
        for (int a = 0; a < r->n_in; a++)
            if (request[a].posted)
                TUTTI_TRY(unpack(mixer, r, &c->message[k], a, request[a].note.bytes, err));
    }
    move(mixer, r);
    return TUTTI_OK;
}

/* ---- vectors other than models ---- */

float *tutti_mixer_codec_copy(const tutti_mixer *mixer, int a)
{
    return mixer->codec->theirs[a];
}

size_t tutti_mixer_codec_bytes(const tutti_mixer *mixer)
{
    return mixer->codec->bytes;
}

/* A view with random draws of its own: those of the model's message were for other numbers. */
static tutti_view aside_of(const tutti_mixer_codec *c, int tensor, uint64_t k)
{
    tutti_view v = view_of(c, tensor, k);

    v.stage = 1;
    return v;
}

tutti_status tutti_mixer_codec_put(const tutti_mixer *mixer, uint64_t k, float *x, uint8_t *out, size_t *bytes,
                                   tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;

    *bytes = 0;
    for (int i = 0; i < c->space.n_tensors; i++) {
        const tutti_view v = aside_of(c, i, k);
        const size_t head = head_of(c, &v);
        size_t some;
        write_tensor(mixer, &v, x + v.first, out + *bytes, &some);
        TUTTI_TRY(tutti_codec_unpack_add(c->codec, &v, out + *bytes + head, some, -1, x + v.first, c->scratch, err));
        *bytes += head + some;
    }
    return TUTTI_OK;
}

tutti_status tutti_mixer_codec_get(const tutti_mixer *mixer, uint64_t k, int from, const uint8_t *in, size_t bytes,
                                   float a, float *y, tutti_error *err)
{
    tutti_mixer_codec *c = mixer->codec;
    const uint8_t *const end = in + bytes;

    for (int i = 0; i < c->space.n_tensors; i++) {
        const tutti_view v = aside_of(c, i, k);
        TUTTI_TRY(get(mixer, &v, from, &in, end, bytes, a, y + v.first, err));
    }
    return got_all(from, in, end, err);
}

void tutti_mixer_codec_cancel(tutti_mixer *mixer)
{
    for (size_t i = 0; i < (size_t)mixer->codec->messages * 2 * (size_t)tutti_graph_degree(mixer->graph); i++)
        tutti_cancel(mixer->m->world, &mixer->codec->requests[i]);
}
