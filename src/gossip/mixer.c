/* mixer.c: neighbour averaging, the communication of every gossip method (D-PSGD: Lian et al.,
   NeurIPS 2017; docs/methods/d-psgd.md). A model travels in chunks of 4 MiB: receives are posted
   before sends, and the next chunk before the last one is waited for. So no order of neighbours
   can deadlock (a ring of blocking sends does, once messages are too large to be buffered), the
   wires never idle, and the receive buffers are two chunks a neighbour however large the model
   is. Sums wait for all terms of a chunk and then add them in rank order. A running sum in order
   of arrival would need one buffer, and differ from run to run.

   Losses. A fault-tolerant run (TUTTI_FAULT_TOLERANT) continues here. A neighbour that is lost,
   before a round or in the middle of it, is excluded, and its weight is added to W_ii. So rows
   still sum to 1. Where W is symmetric, what is left of it is too, and its columns sum to 1 among
   the survivors as well; where edges are directed they do not. This is done chunk by chunk: of a
   model that arrived in part, the chunks that arrived are used and the others are not, and every
   element is still a mean whose weights sum to 1. Waiting for the whole model before the first
   sum would need a buffer as large as the model for each neighbour.

   Push-sum (SGP: Assran et al., ICML 2019; Kempe, Dobra, Gehrke, FOCS 2003; docs/methods/sgp.md)
   is the same with the sender's weights. Each message carries a share of the sender's push-sum
   weight m, and the new model is the mean of the models received, weighted by the shares: z_i =
   sum_j P_ij m_j z_j / sum_j P_ij m_j. That is the papers' numerator over their weight, without
   forming either, so nothing is rounded by a division that is multiplied back. A push-sum weight
   is an integer and a sender keeps what it does not send. So the sum over workers and messages
   under way is exact, to the last bit, for any weights. At a loss, weight on its way to the lost
   neighbour is taken back, and weight that the neighbour held is lost with it. If the neighbour
   is lost in the middle of a model, the weight after the round is that of the last chunk.

   Node groups (BAGUA: Gan et al., VLDB 2022). The workers of a machine are one member of the
   graph: their mean goes to the first of them, the leader, which mixes it with other leaders',
   and the result goes to all workers of the machine. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "apart.h"
#include "collective/leaders.h"
#include "engine/facility.h"
#include "engine/lane.h"
#include "mixer_internal.h"
#include "cross.h"

enum { CHUNK = 1 << 20, SLOTS = 2, TERMS_MAX = 4096 }; /* tutti_tree_sum's limit */
static const size_t ahead_bytes = 256 * 1024; /* as for pieces: below this size, handing over
                                                 costs more than it hides */

/* ---- from declare to close ---- */

static const tutti_facility_ops facility; /* at the end */

static size_t largest_tensor(const tutti_layout *l)
{
    size_t most = 0;

    for (int i = 0; i < l->n_tensors; i++)
        most = l->tensor[i].count > most ? l->tensor[i].count : most;
    return most;
}

tutti_status tutti_mixer_declare(tutti_mixer **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_mixer_options *options, tutti_error *err)
{
    tutti_mixer *mixer = tutti_alloc(1, sizeof *mixer);
    size_t d;

    *out = mixer;
    if (mixer == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the mixer of method '%s'", m->ops->name);
    mixer->m = m;
    mixer->ahead = options->ahead;
    mixer->sums = options->graph == NULL;
    mixer->by_tensor = options->by_tensor;
    mixer->team = options->team > 0 ? options->team : 1;
    tutti_facility_add(m, &facility, mixer);
    if (mixer->sums || mixer->team > 1)
        assert(!options->push && !options->encode && !options->cross && (m->traits & TUTTI_FAULT_TOLERANT) == 0);
    TUTTI_TRY(tutti_fail_within(
        err, (options->push ? tutti_graph_open_push : tutti_graph_open)(
                 &mixer->graph, mixer->sums ? "complete" : options->graph, m->workers / mixer->team, err),
        "method '%s'", m->ops->name));
    mixer->degree = mixer->sums ? 0 : tutti_graph_degree(mixer->graph);
    d = (size_t)mixer->degree;
    if (d >= TERMS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': graph '%s' gives a worker %zu neighbours; %d can be averaged at once",
                          m->ops->name, options->graph, d, TERMS_MAX - 1);
    mixer->chunk = m->n < CHUNK ? m->n : CHUNK;
    if (mixer->by_tensor || mixer->sums)
        mixer->chunk = mixer->sums && !mixer->by_tensor ? m->layout->used : largest_tensor(m->layout);
    mixer->requests = tutti_alloc(SLOTS * 2 * d + 1, sizeof *mixer->requests);
    mixer->wanted = tutti_alloc(2 * d + 1, sizeof *mixer->wanted);
    mixer->in = tutti_alloc(d + 1, sizeof *mixer->in);
    mixer->out = tutti_alloc(d + 1, sizeof *mixer->out);
    mixer->w_in = tutti_alloc(d + 1, sizeof *mixer->w_in);
    mixer->w_out = tutti_alloc(d + 1, sizeof *mixer->w_out);
    mixer->share = tutti_alloc(d + 1, sizeof *mixer->share);
    mixer->term = tutti_alloc(d + 1, sizeof *mixer->term);
    mixer->weight = tutti_alloc(d + 1, sizeof *mixer->weight);
    if (m->traits & TUTTI_FAULT_TOLERANT) {
        mixer->lost = tutti_alloc((size_t)m->workers, sizeof *mixer->lost);
        if (mixer->lost == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the mixer of method '%s'", m->ops->name);
    }
    if (mixer->requests == NULL || mixer->wanted == NULL || mixer->in == NULL || mixer->out == NULL ||
        mixer->w_in == NULL || mixer->w_out == NULL || mixer->share == NULL || mixer->term == NULL ||
        mixer->weight == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the mixer of method '%s'", m->ops->name);
    if (options->encode)
        TUTTI_TRY(tutti_mixer_codec_declare(mixer, plan, options->gamma, err));
    if (options->cross)
        TUTTI_TRY(tutti_mixer_cross_declare(mixer, options->graph, plan, err));
    if (d > 0 && mixer->codec == NULL && mixer->cross == NULL)
        tutti_declare(plan, &(tutti_state){ .name = "mixer.room", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                            .count = (m->n > mixer->chunk ? SLOTS : 1) * d * mixer->chunk },
                      &mixer->receive);
    return TUTTI_OK;
}

static tutti_status open_mixer(void *self, tutti_error *err)
{
    tutti_mixer *mixer = self;
    const tutti_method *m = mixer->m;

    TUTTI_TRY(tutti_mixer_codec_open(mixer, err));
    if ((mixer->sums || mixer->team > 1) && m->workers > 1)
        TUTTI_TRY(tutti_leaders_open(&mixer->leaders, &m->all, mixer->team, "mixer", err));
    if (!tutti_engine_fault_tolerant(m->engine)) { /* declare() is called before the engine knows */
        tutti_free(mixer->lost);
        mixer->lost = NULL;
    }
    if (!mixer->ahead || !tutti_engine_has_lanes(m->engine) || m->workers == 1 ||
        m->layout->used * sizeof(float) < ahead_bytes)
        return TUTTI_OK;
    return tutti_lane_open(&mixer->lane, m->rt, "mixer", 1, err);
}

static void close_mixer(void *self)
{
    tutti_mixer *mixer = self;

    tutti_lane_close(mixer->lane);
    tutti_mixer_cross_close(mixer);
    tutti_mixer_codec_close(mixer->codec);
    tutti_graph_close(mixer->graph);
    tutti_leaders_close(&mixer->leaders);
    tutti_free(mixer->requests);
    tutti_free(mixer->wanted);
    tutti_free(mixer->in);
    tutti_free(mixer->out);
    tutti_free(mixer->w_in);
    tutti_free(mixer->w_out);
    tutti_free(mixer->share);
    tutti_free(mixer->term);
    tutti_free(mixer->weight);
    tutti_free(mixer->lost);
    tutti_free(mixer);
}

/* ---- losses ---- */

static void leave_out(tutti_mixer *mixer, int rank)
{
    mixer->losses += !mixer->lost[rank];
    mixer->lost[rank] = true;
}

static void find_losses(tutti_mixer *mixer)
{
    tutti_peer_event event;

    for (; mixer->lost != NULL && tutti_world_events(mixer->m->world, mixer->events, &event, 1) > mixer->events;
         mixer->events++)
        if (event.change == TUTTI_PEER_LOST)
            leave_out(mixer, event.rank);
}

bool tutti_mixer_is_lost(const tutti_mixer *mixer, int rank)
{
    return mixer->lost != NULL && mixer->lost[rank];
}

/* Handles a message to or from this neighbour that a loss has ended: of the neighbour, or of this
   worker, which the others have expelled. */
static tutti_status lose(tutti_mixer *mixer, int rank, tutti_request *request, tutti_error *err)
{
    tutti_request *const own[1] = { request };

    /* Only an expelled worker gets that result for itself (transport.h): which worker expelled
       it, and why. */
    if (request->rank == mixer->m->rank)
        return tutti_wait_some(mixer->m->world, own, 1, 1, TUTTI_FOREVER, NULL, err);
    leave_out(mixer, rank);
    return TUTTI_OK;
}

tutti_status tutti_mixer_tell(tutti_mixer *mixer, uint64_t k, tutti_error *err)
{
    if (mixer->losses == mixer->reported)
        return TUTTI_OK;
    mixer->reported = mixer->losses;
    return tutti_apart_tell(mixer->m, mixer->graph, k, mixer->lost, err);
}

/* ---- chunks ---- */

static size_t chunks_of(const tutti_mixer *mixer)
{
    const tutti_layout *l = mixer->m->layout;
    return mixer->by_tensor ? (size_t)l->n_tensors : (l->used + mixer->chunk - 1) / mixer->chunk;
}

/* The first element of chunk c. */
static size_t first_of(const tutti_mixer *mixer, size_t c)
{
    return mixer->by_tensor ? mixer->m->layout->tensor[c].first : c * mixer->chunk;
}

/* The number of elements of chunk c. */
static size_t length(const tutti_mixer *mixer, size_t c)
{
    const size_t left = mixer->m->layout->used - c * mixer->chunk;

    if (mixer->by_tensor)
        return mixer->m->layout->tensor[c].count;
    return left < mixer->chunk ? left : mixer->chunk;
}

static tutti_request *slot(const tutti_mixer *mixer, size_t c)
{
    return mixer->requests + c % SLOTS * 2 * (size_t)mixer->degree;
}

static float *receive_memory(const tutti_mixer *mixer, size_t c, int a)
{
    if (mixer->cross != NULL)
        return tutti_mixer_cross_buffer(mixer, a) + first_of(mixer, c);
    return mixer->receive + (c % SLOTS * (size_t)mixer->degree + (size_t)a) * mixer->chunk;
}

static tutti_status post_message(tutti_mixer *mixer, const tutti_mixer_round *r, size_t c, tutti_error *err)
{
    tutti_method *m = mixer->m;
    const tutti_port port = tutti_port_of("mixer", r->k, 0); /* chunks of a round arrive in order */
    tutti_request *request = slot(mixer, c);
    tutti_header note = { .kind = (uint32_t)c };

    for (int a = 0; a < r->n_in; a++, request++) {
        request->posted = false;
        if (!tutti_mixer_is_lost(mixer, mixer->in[a]))
            TUTTI_TRY(tutti_post_recv(m->world, request, mixer->in[a], port,
                                      tutti_f32(m->device, receive_memory(mixer, c, a), length(mixer, c)), err));
    }
    for (int a = 0; a < r->n_out; a++, request++) {
        request->posted = false;
        note.a = mixer->share[a];
        if (!tutti_mixer_is_lost(mixer, mixer->out[a]))
            TUTTI_TRY(tutti_post_send(m->world, request, mixer->out[a], port, &note,
                                      tutti_f32(m->device, (float *)r->u + first_of(mixer, c), length(mixer, c)), err));
    }
    return TUTTI_OK;
}

tutti_status tutti_mixer_await(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_request *request, tutti_error *err)
{
    const size_t n = (size_t)(r->n_in + r->n_out);
    tutti_status status;

    for (size_t i = 0; i < n; i++)
        mixer->wanted[i] = &request[i];
    status = r->untimed ? tutti_engine_wait_or_close(mixer->m->engine, mixer->wanted, (int)n, err)
                      : tutti_wait_some(mixer->m->world, mixer->wanted, n, n, TUTTI_FOREVER, NULL, err);
    if (mixer->lost == NULL || !tutti_is_left_out(mixer->m, status, err))
        return status;
    for (size_t i = 0; i < n; i++) {
        if (!request[i].posted || request[i].status != TUTTI_ERR_PEER)
            continue;
        TUTTI_TRY(lose(mixer, i < (size_t)r->n_in ? mixer->in[i] : mixer->out[i - (size_t)r->n_in], &request[i], err));
        request[i].posted = false;
    }
    return TUTTI_OK;
}

/* Sets the terms and weights of the chunk, by rank. */
static tutti_status weigh(tutti_mixer *mixer, const tutti_mixer_round *r, size_t c, const tutti_request *request,
                          tutti_error *err)
{
    const int me = mixer->m->rank;
    const size_t bytes = length(mixer, c) * sizeof(float);
    double self = r->self;
    int terms = 0;
    bool mine = false;

    for (int a = 0; a < r->n_in; a++)
        self += request[a].posted ? 0 : mixer->w_in[a];
    for (int a = 0; a <= r->n_in; a++) {
        if (!mine && (a == r->n_in || mixer->in[a] > me)) {
            mixer->term[terms] = r->u + first_of(mixer, c);
            mixer->weight[terms++] = (float)self;
            mine = true;
        }
        if (a == r->n_in)
            break;
        if (!request[a].posted)
            continue;
        if (request[a].note.bytes != bytes)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, mixer->in[a],
                "worker %d sent %llu bytes of its model where %zu were due; all workers must run one version",
                mixer->in[a], (unsigned long long)request[a].note.bytes, bytes);
        mixer->term[terms] = receive_memory(mixer, c, a);
        mixer->weight[terms++] = (float)mixer->w_in[a];
    }
    mixer->terms = terms;
    return TUTTI_OK;
}

/* Push-sum: sets w_in and self from the shares. kept: the weight that this worker has sent to no
   neighbour. */
static tutti_status weigh_shares(tutti_mixer *mixer, tutti_mixer_round *r, tutti_mass kept,
                                 const tutti_request *request, tutti_error *err)
{
    tutti_mass own = kept, total;

    for (int a = 0; a < r->n_out; a++) /* a share that was not delivered is taken back */
        own += request[r->n_in + a].posted ? 0 : mixer->share[a];
    total = own;
    for (int a = 0; a < r->n_in; a++) {
        if (!request[a].posted)
            continue;
        if (request[a].note.a < 0 || request[a].note.a > TUTTI_MASS_ONE * mixer->m->workers)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, mixer->in[a],
                                   "worker %d sent a push-sum weight of %g, among %d workers that have as many in all; "
                                   "all workers must run one version",
                                   mixer->in[a], tutti_mass_real(request[a].note.a), mixer->m->workers);
        total += request[a].note.a;
    }
    for (int a = 0; a < r->n_in; a++)
        mixer->w_in[a] = request[a].posted && total > 0 ? (double)request[a].note.a / (double)total : 0;
    r->self = total > 0 ? (double)own / (double)total : 1;
    *r->mass = total;
    return TUTTI_OK;
}

static tutti_status finish_message(tutti_mixer *mixer, tutti_mixer_round *r, tutti_mass kept, size_t c,
                                   tutti_error *err)
{
    tutti_request *request = slot(mixer, c);

    TUTTI_TRY(tutti_mixer_await(mixer, r, request, err));
    if (r->mass != NULL)
        TUTTI_TRY(weigh_shares(mixer, r, kept, request, err));
    TUTTI_TRY(weigh(mixer, r, c, request, err));
    tutti_tree_sum(mixer->m->device, length(mixer, c), mixer->terms, mixer->term, mixer->weight,
                   r->x + first_of(mixer, c));
    return TUTTI_OK;
}

static tutti_status chunks(tutti_mixer *mixer, tutti_mixer_round *r, tutti_error *err)
{
    const size_t count = chunks_of(mixer);
    const tutti_mass kept = r->mass != NULL ? *r->mass : 0;

    TUTTI_TRY(post_message(mixer, r, 0, err));
    for (size_t c = 0; c < count; c++) {
        if (c + 1 < count)
            TUTTI_TRY(post_message(mixer, r, c + 1, err));
        TUTTI_TRY(finish_message(mixer, r, kept, c, err));
    }
    return TUTTI_OK;
}

/* Sets the neighbours of the round, and each one's share of the push-sum weight: *mass becomes
   what is kept. No thread is in a round. */
static tutti_mixer_round begin_round(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass)
{
    tutti_mixer_round r = { .k = k, .epoch = mixer->codec != NULL ? mixer->m->epoch : 0, .u = u, .x = x, .mass = mass };
    tutti_mass left = mass != NULL ? *mass : 0;

    find_losses(mixer);
    if (!mixer->sums)
        tutti_graph_round(mixer->graph, k, mixer->m->rank / mixer->team, mixer->in, mixer->w_in, &r.n_in, mixer->out,
                          mixer->w_out, &r.n_out, &r.self);
    for (int a = 0; a < r.n_in && mixer->team > 1; a++) /* members are node groups, represented by
                                                           their first workers */
        mixer->in[a] *= mixer->team;
    for (int a = 0; a < r.n_out && mixer->team > 1; a++)
        mixer->out[a] *= mixer->team;
    for (int a = 0; a < r.n_out; a++) {
        const tutti_mass due = mass != NULL && !tutti_mixer_is_lost(mixer, mixer->out[a])
                                   ? (tutti_mass)(mixer->w_out[a] * (double)*mass)
                                   : 0;
        mixer->share[a] = due < left ? due : left;
        left -= mixer->share[a];
    }
    if (mass != NULL)
        *mass = left;
    mixer->last = r;
    return r;
}

/* An all-reduce among all leaders. */
static tutti_status sum(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_group *between, tutti_error *err)
{
    tutti_device *d = mixer->m->device;

    for (size_t c = 0; c < chunks_of(mixer); c++) {
        const size_t at = first_of(mixer, c), n = length(mixer, c);
        TUTTI_TRY(tutti_allreduce_from(between, TUTTI_MEAN, tutti_f32(d, (float *)r->u + at, n),
                                       tutti_f32(d, r->x + at, n), err));
    }
    return TUTTI_OK;
}

/* back false: reduces the mean of the node group into x of its leader. back true: sends the
   leader's x to all of the group. */
static tutti_status between_team(tutti_mixer *mixer, tutti_mixer_round *r, tutti_leaders *l, bool back,
                                 tutti_error *err)
{
    tutti_device *d = mixer->m->device;

    for (size_t c = 0; c < chunks_of(mixer) && mixer->team > 1; c++) {
        const size_t at = first_of(mixer, c), n = length(mixer, c);
        TUTTI_TRY(back ? tutti_leaders_give(l, tutti_f32(d, r->x + at, n), err)
                       : tutti_leaders_take(l, tutti_f32(d, (float *)r->u + at, n), tutti_f32(d, r->x + at, n), err));
    }
    if (mixer->team > 1)
        r->u = r->x;
    return TUTTI_OK;
}

/* Makes a round, without the cleanup after a failure. */
static tutti_status run_round(tutti_mixer *mixer, tutti_mixer_round *r, tutti_error *err)
{
    tutti_leaders l = tutti_leaders_keyed(&mixer->leaders, r->k + 1, 0);

    if (mixer->team == 1)
        l.between.algorithm = tutti_engine_collective(mixer->m->engine);
    TUTTI_TRY(between_team(mixer, r, &l, false, err));
    if (mixer->m->rank % mixer->team == 0) {
        if (mixer->sums)
            TUTTI_TRY(sum(mixer, r, &l.between, err));
        else if (r->n_in + r->n_out > 0)
            TUTTI_TRY(mixer->codec != NULL ? tutti_mixer_codec_round(mixer, r, err) : chunks(mixer, r, err));
    }
    return between_team(mixer, r, &l, true, err);
}

/* Called by any one thread at a time. */
static tutti_status carry_out(tutti_mixer *mixer, tutti_mixer_round *r, tutti_error *err)
{
    tutti_status status;

    if (mixer->m->workers == 1 || (r->n_in + r->n_out == 0 && !mixer->sums && mixer->team == 1)) {
        if (r->u != r->x)
            tutti_copy(mixer->m->device, mixer->m->layout->used, r->u, r->x);
        return TUTTI_OK;
    }
    status = run_round(mixer, r, err);
    if (status == TUTTI_OK)
        return TUTTI_OK;
    if (mixer->codec != NULL)
        tutti_mixer_codec_cancel(mixer);
    for (int i = 0; i < SLOTS * 2 * mixer->degree; i++)
        tutti_cancel(mixer->m->world, &mixer->requests[i]);
    return status == TUTTI_CLOSED
               ? status
               : tutti_fail_within(err, status, "worker %d, averaging with its neighbours in round %llu",
                                   mixer->m->rank, (unsigned long long)r->k);
}

tutti_status tutti_mix(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass, tutti_error *err)
{
    tutti_engine *e = mixer->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t started_ns = tutti_now_ns(mixer->m->rt);
    tutti_mixer_round r = begin_round(mixer, k, u, x, mass);
    tutti_status status = carry_out(mixer, &r, err);

    status = status == TUTTI_OK ? tutti_mixer_tell(mixer, k, err) : status;
    tutti_engine_comm(e, "mix", 0, started_ns, tutti_now_ns(mixer->m->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_mixer_mix_untimed(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_error *err)
{
    tutti_mixer_round r = begin_round(mixer, k, u, x, NULL);
    r.untimed = true;
    return carry_out(mixer, &r, err);
}

/* ---- in two halves ---- */

static tutti_status run_started(tutti_job *job, tutti_error *err)
{
    tutti_mixer *mixer = job->owner;
    return carry_out(mixer, &mixer->started, err);
}

void tutti_mix_start(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass)
{
    mixer->started = begin_round(mixer, k, u, x, mass);
    mixer->mass = mass;
    if (mass != NULL) { /* the caller reads its own value while the job runs */
        mixer->moving = *mass;
        mixer->started.mass = &mixer->moving;
    }
    mixer->pending = true;
    mixer->arrived = false;
    if (mixer->lane == NULL)
        return;
    mixer->job.run = run_started;
    mixer->job.owner = mixer;
    tutti_lane_start(mixer->lane, &mixer->job);
}

static tutti_status drain_round(tutti_mixer *mixer, tutti_error *err)
{
    tutti_engine *e = mixer->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    int64_t from_ns = tutti_now_ns(mixer->m->rt), to_ns;
    tutti_status status;

    mixer->arrived = true;
    if (mixer->lane == NULL) {
        status = carry_out(mixer, &mixer->started, err);
        to_ns = tutti_now_ns(mixer->m->rt);
    } else {
        status = tutti_job_wait(mixer->lane, &mixer->job, err);
        from_ns = mixer->job.started_ns;
        to_ns = mixer->job.ended_ns;
    }
    if (mixer->mass != NULL)
        *mixer->mass = mixer->moving;
    status = status == TUTTI_OK ? tutti_mixer_tell(mixer, mixer->started.k, err) : status;
    tutti_engine_comm(e, "mix", mixer->lane != NULL, from_ns, to_ns);
    tutti_engine_doing(e, was);
    return status;
}

static tutti_status arrive_started(void *self, tutti_error *err)
{
    tutti_mixer *mixer = self;
    return mixer->pending && !mixer->arrived ? drain_round(mixer, err) : TUTTI_OK;
}

tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err)
{
    const tutti_status status = arrive_started(mixer, err);

    mixer->pending = false;
    return status;
}

void tutti_mixer_restart(tutti_mixer *mixer, const float *x)
{
    if (mixer->codec != NULL)
        tutti_mixer_codec_restart(mixer, x);
}

static const tutti_facility_ops facility = { .open = open_mixer, .close = close_mixer, .arrive = arrive_started };
