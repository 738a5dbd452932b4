/* mixer_cross.c: returns to neighbours what a worker computes from their models: the gradient of
   worker j's model on worker i's samples, from i to j ("cross-gradients", SADDLe and
   neighbourhood gradient clustering; docs/methods/saddle.md).

   Models that arrive in a round are kept whole, one per neighbour. Without a codec the buffer of
   a model is also the buffer of what is computed from it: the result is copied there, and stays
   until it is sent. So n numbers per neighbour come in and n go back, 2 d n in all on a graph of
   degree d, in 2 d n memory.

   With a codec models are public copies already (mixer_codec.c). What goes back is not a model
   but a gradient, and goes through the codec with ordinary error feedback. There is a residual
   per neighbour and one for the worker's own part, since all parts of a sum are to have the same
   noise:
     p = v + e;  Q(p) is sent;  e = p - Q(p)
   A vector that is not finite is sent as it is and leaves the residual unchanged, so the
   neighbour receives it and nothing stays corrupted. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mixer_internal.h"
#include "tutti/codec.h"
#include "tutti/method/gossip.h"
#include "cross.h"

struct tutti_mixer_cross {
    /* without a codec */
    float **model;           /* [degree][n], declared: models received, then what is returned */
    float **came;            /* [degree][n], declared: what neighbours return */
    /* with a codec; bytes: tutti_mixer_codec_bytes */
    float **residual;        /* [degree + 1][n], declared; the last is the worker's own */
    float *sum;              /* [n], declared */
    uint8_t *send;           /* [degree + 1][bytes], declared */
    uint8_t *receive;        /* [degree][bytes], declared */
    tutti_request *requests; /* [2 * degree]: receives, then sends */
    bool receives;           /* the receives are posted for this round */
};

static tutti_status declare_vectors(tutti_plan *plan, float ***vectors, int count, const char *what,
                                    tutti_keep keep, tutti_error *err)
{
    *vectors = tutti_alloc((size_t)count + 1, sizeof **vectors);
    if (*vectors == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening a mixer's cross-gradients");
    for (int a = 0; a < count; a++) {
        char name[48];
        snprintf(name, sizeof name, "mixer.%s-%d", what, a);
        tutti_declare_vector(plan, name, keep, &(*vectors)[a]);
    }
    return TUTTI_OK;
}

tutti_status tutti_mixer_cross_declare(tutti_mixer *mixer, const char *graph, tutti_plan *plan,
                                       tutti_error *err)
{
    tutti_method *m = mixer->m;
    const int d = tutti_graph_degree(mixer->graph);
    tutti_mixer_cross *c;

    if (!tutti_graph_is(mixer->graph, "symmetric"))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s': gradients go back to where models came from, but graph '%.80s' is not "
            "symmetric; take one whose edges go both ways (ring, torus, complete, hypercube)",
            m->ops->name, graph);
    if ((m->traits & TUTTI_FAULT_TOLERANT) != 0)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' continues after losses, but sends gradients back, and a lost worker "
            "cannot send those it has yet to return; this is a fault of the program: please report "
            "it",
            m->ops->name);
    c = mixer->cross = tutti_alloc(1, sizeof *c);
    if (c == NULL || (c->requests = tutti_alloc(2 * (size_t)d + 1, sizeof *c->requests)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening a mixer's cross-gradients");
    if (mixer->codec != NULL) {
        const size_t bytes = tutti_mixer_codec_bytes(mixer);
        tutti_declare_vector(plan, "mixer.cross-sum", TUTTI_SCRATCH, &c->sum);
        tutti_declare(plan,
                      &(tutti_state){ .name = "mixer.cross-send",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_U8,
                                      .count = ((size_t)d + 1) * bytes + 64 },
                      &c->send);
        tutti_declare(plan,
                      &(tutti_state){ .name = "mixer.cross-receive",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_U8,
                                      .count = (size_t)d * bytes + 64 },
                      &c->receive);
        return declare_vectors(plan, &c->residual, d + 1, "cross-residual", TUTTI_OWN_ZERO, err);
    }
    TUTTI_TRY(declare_vectors(plan, &c->model, d, "model-of-neighbour", TUTTI_SCRATCH, err));
    return declare_vectors(plan, &c->came, d, "cross", TUTTI_SCRATCH, err);
}

void tutti_mixer_cross_close(tutti_mixer *mixer)
{
    tutti_mixer_cross *c = mixer->cross;

    if (c == NULL)
        return;
    for (int a = 0; c->requests != NULL && a < 2 * tutti_graph_degree(mixer->graph); a++)
        tutti_cancel(mixer->m->world, &c->requests[a]); /* of a step that failed midway */
    tutti_free(c->model);
    tutti_free(c->came);
    tutti_free(c->residual);
    tutti_free(c->requests);
    tutti_free(c);
    mixer->cross = NULL;
}

float *tutti_mixer_cross_buffer(const tutti_mixer *mixer, int a)
{
    return mixer->cross->model[a];
}

int tutti_mixer_neighbours(const tutti_mixer *mixer)
{
    return mixer->last.n_in;
}

const float *tutti_mixer_model(const tutti_mixer *mixer, int a)
{
    return mixer->codec != NULL ? tutti_mixer_codec_copy(mixer, a) : mixer->cross->model[a];
}

static uint8_t *buffer_of(const tutti_mixer *mixer, uint8_t *buffers, int a)
{
    return buffers + (size_t)a * tutti_mixer_codec_bytes(mixer);
}

static tutti_port port_of(const tutti_mixer *mixer)
{
    return tutti_port_of("mixer, cross-gradients", mixer->last.k, 0);
}

static tutti_status post_receives(tutti_mixer *mixer, tutti_error *err)
{
    tutti_mixer_cross *c = mixer->cross;
    const tutti_method *m = mixer->m;

    for (int a = 0; a < mixer->last.n_in && !c->receives; a++)
        TUTTI_TRY(tutti_post_recv(m->world, &c->requests[a], mixer->in[a], port_of(mixer),
                                  mixer->codec == NULL
                                      ? tutti_f32(m->device, c->came[a], m->layout->used)
                                      : tutti_host(buffer_of(mixer, c->receive, a),
                                                   tutti_mixer_codec_bytes(mixer), TUTTI_U8),
                                  err));
    c->receives = true;
    return TUTTI_OK;
}

/* Encodes v plus what earlier messages lacked to `out`. */
static tutti_status encode_model(tutti_mixer *mixer, const float *v, float *residual, uint8_t *out,
                                 size_t *bytes, tutti_error *err)
{
    const tutti_method *m = mixer->m;
    const size_t n = m->layout->used;
    float *lacks = mixer->cross->sum;

    if (tutti_finite(m->device, n, v)) {
        tutti_add(m->device, n, v, residual);
        lacks = residual;
    } else
        tutti_copy(m->device, n, v, lacks);
    return tutti_mixer_codec_put(mixer, mixer->last.k, lacks, out, bytes, err);
}

tutti_status tutti_mixer_give_back(tutti_mixer *mixer, int a, const float *v, tutti_error *err)
{
    tutti_mixer_cross *c = mixer->cross;
    const tutti_method *m = mixer->m;
    tutti_request *send = &c->requests[mixer->last.n_in + a];
    size_t bytes;

    TUTTI_TRY(post_receives(mixer, err));
    if (mixer->codec == NULL) {
        tutti_copy(m->device, m->layout->used, v, c->model[a]);
        return tutti_post_send(m->world, send, mixer->in[a], port_of(mixer), &(tutti_header){ 0 },
                               tutti_f32(m->device, c->model[a], m->layout->used), err);
    }
    TUTTI_TRY(encode_model(mixer, v, c->residual[a], buffer_of(mixer, c->send, a), &bytes, err));
    return tutti_post_send(m->world, send, mixer->in[a], port_of(mixer), &(tutti_header){ 0 },
                           tutti_host(buffer_of(mixer, c->send, a), bytes, TUTTI_U8), err);
}

/* Sums as a tree over ascending rank, as models are. */
static tutti_status sum_up(tutti_mixer *mixer, float *v, tutti_error *err)
{
    const tutti_mixer_round *r = &mixer->last;
    const tutti_method *m = mixer->m;
    int terms = 0;

    for (int a = 0; a <= r->n_in; a++) {
        if (terms == a && (a == r->n_in || mixer->in[a] > m->rank)) {
            mixer->term[terms] = v;
            mixer->weight[terms++] = (float)r->self;
        }
        if (a == r->n_in)
            break;
        if (mixer->cross->requests[a].note.bytes != m->layout->used * sizeof(float))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, mixer->in[a],
                                   "worker %d sent %llu bytes of a cross-gradient where %zu were "
                                   "due; all workers must run one version",
                                   mixer->in[a],
                                   (unsigned long long)mixer->cross->requests[a].note.bytes,
                                   m->layout->used * sizeof(float));
        mixer->term[terms] = mixer->cross->came[a];
        mixer->weight[terms++] = (float)mixer->w_in[a];
    }
    tutti_tree_sum(m->device, m->layout->used, terms, mixer->term, mixer->weight, v);
    return TUTTI_OK;
}

/* Adds one after the other by rank: each message is decoded as it is added. */
static tutti_status sum_up_decoded(tutti_mixer *mixer, float *v, tutti_error *err)
{
    const tutti_mixer_round *r = &mixer->last;
    tutti_mixer_cross *c = mixer->cross;
    const tutti_method *m = mixer->m;
    uint8_t *own = buffer_of(mixer, c->send, tutti_graph_degree(mixer->graph));
    size_t bytes;

    TUTTI_TRY(
        encode_model(mixer, v, c->residual[tutti_graph_degree(mixer->graph)], own, &bytes, err));
    tutti_fill(m->device, m->layout->used, 0, v);
    TUTTI_TRY(tutti_mixer_codec_get(mixer, r->k, m->rank, own, bytes, (float)r->self, v, err));
    for (int a = 0; a < r->n_in; a++)
        TUTTI_TRY(tutti_mixer_codec_get(mixer, r->k, mixer->in[a], buffer_of(mixer, c->receive, a),
                                        c->requests[a].note.bytes, (float)mixer->w_in[a], v, err));
    return TUTTI_OK;
}

tutti_status tutti_mixer_take_back(tutti_mixer *mixer, float *v, tutti_error *err)
{
    tutti_mixer_cross *c = mixer->cross;
    tutti_engine *e = mixer->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t started_ns = tutti_now_ns(mixer->m->rt);
    tutti_status status = post_receives(mixer, err);

    if (status == TUTTI_OK && mixer->last.n_in > 0)
        status = tutti_mixer_await(mixer, &mixer->last, c->requests, err);
    if (status == TUTTI_OK)
        status = (mixer->codec != NULL && mixer->last.n_in > 0 ? sum_up_decoded : sum_up)(mixer, v, err);
    c->receives = false;
    if (status != TUTTI_OK)
        for (int a = 0; a < 2 * mixer->last.n_in; a++)
            tutti_cancel(mixer->m->world, &c->requests[a]);
    tutti_engine_comm(e, "cross", 0, started_ns, tutti_now_ns(mixer->m->rt));
    tutti_engine_doing(e, was);
    return tutti_fail_within(err, status, "worker %d, taking back gradients of round %llu",
                             mixer->m->rank, (unsigned long long)mixer->last.k);
}
