/* mixer.c: neighbour averaging, the communication of every gossip method (D-PSGD: Lian et al.,
   NeurIPS 2017; docs/methods/d-psgd.md). A model travels in chunks of 4 MiB: receives are posted
   before sends, and the next chunk before the last one is waited for. So no order of neighbours can
   deadlock (a ring of blocking sends does, once messages are too large to be buffered), the wires
   never idle, and the receive buffers are two chunks a neighbour however large the model is. Sums
   wait for all terms of a chunk and then add them in rank order. A running sum in order of arrival
   would need one buffer, and differ from run to run.

   Losses. A run that goes on after losses (TUTTI_GOES_ON) goes on here. A neighbour that is lost,
   before a round or in the middle of it, is left out, and what it would have weighed is added to
   W_ii. So rows still sum to 1. Where W is symmetric so is what is left of it, and among those that
   stay its columns sum to 1 as well; where edges are directed they do not. This is done chunk by
   chunk: of a model that came in part, the chunks that came are used and of the others nothing, and
   every element is still a mean whose weights sum to 1. To wait for the whole before the first sum
   would need a buffer as large as the model for each neighbour.

   Push-sum (SGP: Assran et al., ICML 2019; Kempe, Dobra, Gehrke, FOCS 2003; docs/methods/sgp.md) is
   the same with the sender's weights. Each message carries a share of the sender's mass, and the
   model kept is the mean of what came, weighted by the shares:
   z_i = sum_j P_ij m_j z_j / sum_j P_ij m_j. That is the numerator over the weight of the papers,
   without either being formed, so nothing is rounded by a division that is multiplied back. A mass
   is a whole number and a sender keeps what it does not give. So the sum over workers and messages
   under way is exact, to the last bit, for any weights. Of a loss: what was on its way to a lost
   neighbour is taken back, what the lost one held is lost with it. If it goes in the middle of a
   model, the mass after the round is that of the last chunk. */
#include <errno.h>
#include <string.h>

#include "mixer_internal.h"

enum { CHUNK = 1 << 20, SLOTS = 2, TERMS_MAX = 4096 }; /* tutti_tree_sum's limit */
static const size_t ahead_bytes = 256 * 1024; /* as for pieces: below, handing over costs more than it hides */

/* ---- from declare to close ---- */

static const tutti_facility_ops facility; /* at the end */

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
    tutti_facility_add(m, &facility, mixer);
    TUTTI_TRY(tutti_fail_within(
        err, (options->push ? tutti_graph_open_push : tutti_graph_open)(&mixer->graph, options->graph, m->workers, err),
        "method '%s'", m->ops->name));
    d = (size_t)tutti_graph_degree(mixer->graph);
    if (d >= TERMS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': graph '%s' gives a worker %zu neighbours; %d can be averaged at once",
                          m->ops->name, options->graph, d, TERMS_MAX - 1);
    mixer->chunk = m->n < CHUNK ? m->n : CHUNK;
    mixer->requests = tutti_alloc(SLOTS * 2 * d + 1, sizeof *mixer->requests);
    mixer->wanted = tutti_alloc(2 * d + 1, sizeof *mixer->wanted);
    mixer->in = tutti_alloc(d + 1, sizeof *mixer->in);
    mixer->out = tutti_alloc(d + 1, sizeof *mixer->out);
    mixer->w_in = tutti_alloc(d + 1, sizeof *mixer->w_in);
    mixer->w_out = tutti_alloc(d + 1, sizeof *mixer->w_out);
    mixer->share = tutti_alloc(d + 1, sizeof *mixer->share);
    mixer->term = tutti_alloc(d + 1, sizeof *mixer->term);
    mixer->weight = tutti_alloc(d + 1, sizeof *mixer->weight);
    if (m->traits & TUTTI_GOES_ON) {
        mixer->lost = tutti_alloc((size_t)m->workers, sizeof *mixer->lost);
        mixer->part = tutti_alloc((size_t)m->workers, sizeof *mixer->part);
        if (mixer->lost == NULL || mixer->part == NULL)
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
                                            .count = (m->n > CHUNK ? SLOTS : 1) * d * mixer->chunk }, &mixer->room);
    return TUTTI_OK;
}

static tutti_status open_mixer(void *self, tutti_error *err)
{
    tutti_mixer *mixer = self;
    const tutti_method *m = mixer->m;

    TUTTI_TRY(tutti_mixer_codec_open(mixer, err));
    if (!tutti_engine_goes_on(m->engine)) { /* declare() comes before the engine knows */
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
    tutti_free(mixer->part);
    tutti_free(mixer);
}

/* ---- losses ---- */

static void leave_out(tutti_mixer *mixer, int rank)
{
    mixer->losses += !mixer->lost[rank];
    mixer->lost[rank] = true;
}

static void look_for_losses(tutti_mixer *mixer)
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

/* A message to or from this neighbour has ended because of a loss: of it, or of this
   worker, which the others have given up. */
static tutti_status lose(tutti_mixer *mixer, int rank, tutti_request *request, tutti_error *err)
{
    tutti_request *const own[1] = { request };

    /* of itself only who is expelled hears that (transport.h): who gave it up, and why */
    if (request->rank == mixer->m->rank)
        return tutti_wait_some(mixer->m->world, own, 1, 1, TUTTI_FOREVER, NULL, err);
    leave_out(mixer, rank);
    return TUTTI_OK;
}

static int root_of(int *part, int i)
{
    while (part[i] != i) {
        part[i] = part[part[i]]; /* paths stay short: of a ring they would be as long as it */
        i = part[i];
    }
    return i;
}

/* Without those who are lost: a worker that this one no longer averages with in any round, nor by
   way of others; -1: there is none. Of graphs drawn anew that is asked of so many rounds. */
static int falls_apart(tutti_mixer *mixer, uint64_t k)
{
    enum { DRAWN_ROUNDS = 256 };
    const uint64_t period = tutti_graph_period(mixer->graph), rounds = period > 0 ? period : DRAWN_ROUNDS;
    const tutti_method *m = mixer->m;
    int n_in, n_out, parts = 0;
    double self;

    for (int i = 0; i < m->workers; i++) {
        mixer->part[i] = i;
        parts += !mixer->lost[i];
    }
    for (uint64_t j = 0; j < rounds && parts > 1; j++)
        for (int i = 0; i < m->workers && parts > 1; i++) {
            if (mixer->lost[i])
                continue;
            tutti_graph_round(mixer->graph, k + j, i, mixer->in, mixer->w_in, &n_in, mixer->out, mixer->w_out, &n_out,
                              &self);
            for (int a = 0; a < n_in; a++) {
                const int theirs = mixer->lost[mixer->in[a]] ? -1 : root_of(mixer->part, mixer->in[a]),
                          mine = root_of(mixer->part, i);
                parts -= theirs >= 0 && theirs != mine;
                if (theirs >= 0)
                    mixer->part[theirs] = mine;
            }
        }
    if (parts <= 1)
        return -1;
    for (int i = 0; i < m->workers; i++)
        if (!mixer->lost[i] && root_of(mixer->part, i) != root_of(mixer->part, m->rank))
            return i;
    return -1;
}

void tutti_mixer_tell(tutti_mixer *mixer, uint64_t k)
{
    int other;

    if (mixer->losses == mixer->told)
        return;
    mixer->told = mixer->losses;
    other = falls_apart(mixer, k);
    if (other >= 0)
        tutti_event(mixer->m, "disconnected",
                    "without the workers that are lost the graph is not connected: workers %d and %d have no way to "
                    "average any more, until the end, where all who are "
                    "left do",
                    mixer->m->rank, other);
}

/* ---- chunks ---- */

static size_t length(const tutti_mixer *mixer, size_t c)
{
    const size_t left = mixer->m->layout->used - c * mixer->chunk;
    return left < mixer->chunk ? left : mixer->chunk;
}

static tutti_request *slot(const tutti_mixer *mixer, size_t c)
{
    return mixer->requests + c % SLOTS * 2 * (size_t)tutti_graph_degree(mixer->graph);
}

static float *room(const tutti_mixer *mixer, size_t c, int a)
{
    if (mixer->cross != NULL)
        return tutti_mixer_cross_room(mixer, a) + c * mixer->chunk;
    return mixer->room + (c % SLOTS * (size_t)tutti_graph_degree(mixer->graph) + (size_t)a) * mixer->chunk;
}

static tutti_status post(tutti_mixer *mixer, const tutti_mixer_round *r, size_t c, tutti_error *err)
{
    tutti_method *m = mixer->m;
    const tutti_port port = tutti_port_of("mixer", r->k, 0); /* chunks of a round arrive in order */
    tutti_request *request = slot(mixer, c);
    tutti_note note = { .kind = (uint32_t)c };

    for (int a = 0; a < r->n_in; a++, request++) {
        request->posted = false;
        if (!tutti_mixer_is_lost(mixer, mixer->in[a]))
            TUTTI_TRY(tutti_post_recv(m->world, request, mixer->in[a], port,
                                      tutti_f32(m->device, room(mixer, c, a), length(mixer, c)), err));
    }
    for (int a = 0; a < r->n_out; a++, request++) {
        request->posted = false;
        note.a = mixer->share[a];
        if (!tutti_mixer_is_lost(mixer, mixer->out[a]))
            TUTTI_TRY(tutti_post_send(m->world, request, mixer->out[a], port, &note,
                                      tutti_f32(m->device, (float *)r->u + c * mixer->chunk, length(mixer, c)), err));
    }
    return TUTTI_OK;
}

tutti_status tutti_mixer_await(tutti_mixer *mixer, const tutti_mixer_round *r, tutti_request *request, tutti_error *err)
{
    const size_t n = (size_t)(r->n_in + r->n_out);
    tutti_status status;

    for (size_t i = 0; i < n; i++)
        mixer->wanted[i] = &request[i];
    status = r->aside ? tutti_engine_wait_or_close(mixer->m->engine, mixer->wanted, (int)n, err)
                      : tutti_wait_some(mixer->m->world, mixer->wanted, n, n, TUTTI_FOREVER, NULL, err);
    if (status != TUTTI_ERR_PEER || mixer->lost == NULL)
        return status;
    for (size_t i = 0; i < n; i++) {
        if (!request[i].posted || request[i].status != TUTTI_ERR_PEER)
            continue;
        TUTTI_TRY(lose(mixer, i < (size_t)r->n_in ? mixer->in[i] : mixer->out[i - (size_t)r->n_in], &request[i], err));
        request[i].posted = false;
    }
    return TUTTI_OK;
}

/* What the models weigh: term and weight are those of the chunk, by rank. */
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
            mixer->term[terms] = r->u + c * mixer->chunk;
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
        mixer->term[terms] = room(mixer, c, a);
        mixer->weight[terms++] = (float)mixer->w_in[a];
    }
    mixer->terms = terms;
    return TUTTI_OK;
}

/* Push-sum: w_in and self become what the shares make of them. kept:
   what this worker gave to nobody. */
static tutti_status weigh_shares(tutti_mixer *mixer, tutti_mixer_round *r, tutti_mass kept,
                                 const tutti_request *request, tutti_error *err)
{
    tutti_mass own = kept, total;

    for (int a = 0; a < r->n_out; a++) /* what did not get there is taken back */
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

static tutti_status finish(tutti_mixer *mixer, tutti_mixer_round *r, tutti_mass kept, size_t c, tutti_error *err)
{
    tutti_request *request = slot(mixer, c);

    TUTTI_TRY(tutti_mixer_await(mixer, r, request, err));
    if (r->mass != NULL)
        TUTTI_TRY(weigh_shares(mixer, r, kept, request, err));
    TUTTI_TRY(weigh(mixer, r, c, request, err));
    tutti_tree_sum(mixer->m->device, length(mixer, c), mixer->terms, mixer->term, mixer->weight,
                   r->x + c * mixer->chunk);
    return TUTTI_OK;
}

static tutti_status chunks(tutti_mixer *mixer, tutti_mixer_round *r, tutti_error *err)
{
    const size_t count = (mixer->m->layout->used + mixer->chunk - 1) / mixer->chunk;
    const tutti_mass kept = r->mass != NULL ? *r->mass : 0;

    TUTTI_TRY(post(mixer, r, 0, err));
    for (size_t c = 0; c < count; c++) {
        if (c + 1 < count)
            TUTTI_TRY(post(mixer, r, c + 1, err));
        TUTTI_TRY(finish(mixer, r, kept, c, err));
    }
    return TUTTI_OK;
}

/* Whom the round is with, and what each gets of the mass: *mass becomes what
   is kept. No thread is in a round. */
static tutti_mixer_round begin(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass)
{
    tutti_mixer_round r = { .k = k, .epoch = mixer->codec != NULL ? mixer->m->epoch : 0, .u = u, .x = x, .mass = mass };
    tutti_mass left = mass != NULL ? *mass : 0;

    look_for_losses(mixer);
    tutti_graph_round(mixer->graph, k, mixer->m->rank, mixer->in, mixer->w_in, &r.n_in, mixer->out, mixer->w_out,
                      &r.n_out, &r.self);
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

/* Any one thread at a time. */
static tutti_status carry_out(tutti_mixer *mixer, tutti_mixer_round *r, tutti_error *err)
{
    tutti_status status;

    if (r->n_in + r->n_out == 0) {
        if (r->u != r->x)
            tutti_copy(mixer->m->device, mixer->m->layout->used, r->u, r->x);
        return TUTTI_OK;
    }
    status = mixer->codec != NULL ? tutti_mixer_codec_round(mixer, r, err) : chunks(mixer, r, err);
    if (status == TUTTI_OK)
        return TUTTI_OK;
    if (mixer->codec != NULL)
        tutti_mixer_codec_cancel(mixer);
    for (int i = 0; i < SLOTS * 2 * tutti_graph_degree(mixer->graph); i++)
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
    tutti_mixer_round r = begin(mixer, k, u, x, mass);
    const tutti_status status = carry_out(mixer, &r, err);

    tutti_mixer_tell(mixer, k);
    tutti_engine_comm(e, "mix", 0, started_ns, tutti_now_ns(mixer->m->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_mixer_mix_aside(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_error *err)
{
    tutti_mixer_round r = begin(mixer, k, u, x, NULL);
    r.aside = true;
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
    mixer->started = begin(mixer, k, u, x, mass);
    mixer->mass = mass;
    if (mass != NULL) { /* the caller reads its own while the job runs */
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

static tutti_status arrive(tutti_mixer *mixer, tutti_error *err)
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
    tutti_mixer_tell(mixer, mixer->started.k);
    tutti_engine_comm(e, "mix", mixer->lane != NULL, from_ns, to_ns);
    tutti_engine_doing(e, was);
    return status;
}

static tutti_status arrive_started(void *self, tutti_error *err)
{
    tutti_mixer *mixer = self;
    return mixer->pending && !mixer->arrived ? arrive(mixer, err) : TUTTI_OK;
}

tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err)
{
    const tutti_status status = arrive_started(mixer, err);

    mixer->pending = false;
    return status;
}

static const tutti_facility_ops facility = { .open = open_mixer, .close = close_mixer, .arrive = arrive_started };
