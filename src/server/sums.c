/* sums.c: servers that add up gradients and keep no values (server.h). A server takes what
   workers send of a piece in any order, and when all have sent sums it and answers all at once.

   Memory. What is sent stays in place until it is answered: in the senders' windows where ranks
   share memory, and the sum is written over all of them; else in the receive buffers, where the
   sum is written over the first and sent from there. Only halves are converted to floats, each as
   it arrives, and copied from the conversion buffer. The last is not copied: it is summed there.

   The step of a piece is not over before all have sent theirs, so a worker cannot be a step ahead
   in one piece. It may be in others: pieces have separate state, and need no order.

   Slots. With Q of them, sums of Q pieces at most have begun and not ended at a server. Each
   worker begins its pieces in their order and has Q under way at most. So the pieces that it has
   sent without an answer yet are among its first Q that are not over. A sum that has not ended is
   over for no worker, so those that have begun are among the first Q of these. There is no cyclic
   wait: the first piece that is not over is under way at all workers, even with one slot. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "server_internal.h"
#include "engine/facility.h"
#include "engine/calls.h"
#include "server.h"

enum { TREE_MOST = 4096 }; /* tutti_tree_sum's */

/* The sum of a piece, or of what one rail sends of it. Contributors: workers, or nodes. */
typedef struct sum {
    int contributors;
    int rail;                    /* the rail whose workers contribute; -1: all workers do */
    int arrived;                 /* number of contributions that have arrived */
    uint64_t step;
    bool *has;                   /* [contributors]: its contribution has arrived */
    tutti_header *note;          /* [contributors]: header of the request that brought it */
    float *weight;               /* [contributors] */
    float **part;                /* [contributors]: the contribution's address */
    int place;                   /* slot of its contributions; -1: none */
    size_t at;                   /* without slots: offset of its part in each contributor's words */
} sum;

struct tutti_server_sums {
    tutti_method *m;
    tutti_server *server;
    tutti_server_sums_options options;
    float *contributions;        /* [places][contributors][words], places 0 counting as 1; NULL:
                                    contributions stay in the senders' windows or the receive
                                    buffers */
    size_t words;                /* words of one contributor: the largest part that this server
                                    has of a piece; if places is 0, its parts of all pieces */
    int places;                  /* slots that have memory of their own; 0: each piece has */
    double *figures;             /* [tutti_server_figures_count], with options.reports */

    /* used by the client and its lane */
    int *peers;                  /* [node]: ranks of this node */
    tutti_group inside;          /* their group */
    size_t *slot_of;             /* [pieces][node]: elements of each member's slot */
    tutti_monitor *monitor;      /* protects the members below, up to exposed_before_ns */
    int under_way, most;         /* pieces under way now, and the most so far */
    int64_t since_ns;            /* time up to which busy_ns and held_ns count */
    int64_t busy_ns;             /* time during which any piece was under way */
    /* the time that each piece was under way, summed over all pieces */
    double held_ns;
    uint64_t trips;              /* pieces that were exchanged */
    int64_t trip_ns;             /* time from request to answer, summed over them */
    int64_t trip_most_ns;        /* the longest of these times */
    int64_t hidden_ns;           /* the part of busy_ns for which the client has not waited */
    int64_t busy_before_ns;      /* busy_ns at the last tutti_server_sums_watch */
    int64_t exposed_before_ns;   /* the client's exposed time then */

    /* used by the server's thread */
    int n_sums, rails;           /* rails: sums per piece */
    sum *sums;                   /* [n_sums] */
    bool *taken;                 /* [places]: the slot is in use */
    float **present;             /* [workers]: contributions to the sum that is computed */
    float *share;                /* [workers]: their weights */
    uint64_t served_bytes;       /* bytes of answers */
    uint64_t ended;              /* sums that were answered */
};

/* ---- from declare to close ---- */

static int nodes_of(const tutti_server_sums *s)
{
    return s->m->workers / s->options.node;
}

/* An upper bound of the words of this server's parts of all pieces, however they are split. */
static size_t words_of_all(const tutti_server_sums *s)
{
    const double pieces = tutti_engine_most_pieces(s->m->engine);
    return tutti_server_most(s->server, s->m->layout->used) +
           32 * (size_t)s->rails * (size_t)pieces + tutti_server_slack(s->m);
}

/* Declares the memory of contributions that do not stay where they are: an area for each sum, or
   one per slot if that is less. */
static void declare_places(tutti_server_sums *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    const bool tables = tutti_server_slack(m) > 0;
    const size_t all = words_of_all(s), one = tutti_server_words_most(s->server),
                 contributors = (size_t)(tables ? m->workers : nodes_of(s)),
                 slots = (size_t)(s->options.slots * s->rails);
    const bool keeps =
        tutti_server_index(s->server) >= 0 && m->workers > 1 && tutti_server_keeps(s->server);

    s->places = slots > 0 && slots * one < all ? (int)slots : 0;
    s->words = s->places > 0 ? one : all;
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "server.contributions",
                      .keep = TUTTI_SCRATCH,
                      .dtype = TUTTI_F32,
                      .count = keeps ? (s->places > 0 ? slots : 1) * contributors * s->words : 0 },
                  &s->contributions);
}

static tutti_status check_options(const tutti_method *m, const tutti_server_sums_options *o,
                                  tutti_error *err)
{
    const int lane = tutti_engine_lane(m->engine);
    const char *const slots = o->slots_name != NULL ? o->slots_name : "slots";

    if (m->workers > TREE_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %d workers; a server sums the gradients of at most %d",
                          m->ops->name, m->workers, TREE_MOST);
    if (o->slots > 0 && lane > o->slots)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s': lane is %d, but %d buffers are under way at a time (%s); omit lane, and "
            "give %s=%d",
            m->ops->name, lane, o->slots, slots, slots, lane);
    return TUTTI_OK;
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_server_sums_declare(tutti_server_sums **out, tutti_method *m, tutti_plan *plan,
                                       const tutti_server_sums_options *options, tutti_error *err)
{
    const tutti_server_setup setup = { .service = options->service,
                                       .servers = options->servers,
                                       .pieces = true,
                                       .wire = options->wire,
                                       .even = options->even,
                                       .node = options->node,
                                       .rails = options->rails,
                                       .turns = m->servers > 0 || options->undivided,
                                       .undivided = options->undivided,
                                       .mixed = options->mixed,
                                       .parts = options->parts,
                                       .codec = options->codec,
                                       .feedback = options->feedback };
    tutti_server_sums *s;
    tutti_server *server;

    *out = NULL;
    TUTTI_TRY(check_options(m, options, err));
    if (options->slots > 0) {
        m->lane_width = options->slots;
        m->all_on_lane = true;
    }
    /* opened before this facility, closed after it */
    TUTTI_TRY(tutti_server_declare(&server, m, plan, &setup, err));
    s = *out = server->sums = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the sums of method '%s'",
                          m->ops->name);
    s->m = m;
    s->server = server;
    s->options = *options;
    s->options.node = server->setup.node;
    s->options.rails = server->setup.rails;
    s->options.parts = NULL;
    s->rails = m->servers > 0 ? s->options.rails : 1;
    tutti_facility_add(m, &facility, s);
    declare_places(s, plan);
    if (options->reports)
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.told",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F64,
                                      .count = tutti_server_figures_count(m) },
                      &s->figures);
    return TUTTI_OK;
}

/* Finds the workers that sum with this one before anything is sent, and what each has of each
   piece. */
static tutti_status open_node(tutti_server_sums *s, tutti_error *err)
{
    const tutti_method *m = s->m;
    const size_t node = (size_t)s->options.node;

    if (node == 1 || m->rank >= m->workers)
        return TUTTI_OK;
    s->peers = tutti_alloc(node, sizeof *s->peers);
    s->slot_of = tutti_alloc((size_t)m->layout->n_pieces * node, sizeof *s->slot_of);
    if (s->peers == NULL || s->slot_of == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the sums of method '%s'",
                          m->ops->name);
    for (int k = 0; k < m->layout->n_pieces; k++)
        for (int u = 0; u < s->options.node; u++) {
            const tutti_piece *p = &m->layout->piece[k];
            size_t first;
            s->slot_of[(size_t)k * node + (size_t)u] =
                tutti_server_slot(s->server, u, p->first, p->count, &first);
        }
    for (int u = 0; u < s->options.node; u++)
        s->peers[u] = m->rank / s->options.node * s->options.node + u;
    s->inside = tutti_group_of(m->world, s->peers, s->options.node,
                               tutti_port_of("sums inside a node", 0, 0));
    return TUTTI_OK;
}

/* This server's part of a piece, or of what one rail sends of it. */
static size_t part_of(const tutti_server_sums *s, const tutti_piece *p, int rail, size_t *first)
{
    return tutti_server_part_of(s->server, tutti_server_index(s->server), rail, p->first, p->count,
                                first);
}

static bool open_sum(tutti_server_sums *s, sum *of, const tutti_piece *p, int rail, size_t *at)
{
    size_t first, n;
    const bool flat = s->options.node == 1 || p->rows != NULL;
    tutti_slice slice;

    if (flat && rail > 0) /* there is only one */
        return true;
    of->rail = flat                ? -1
               : s->m->servers > 0 ? rail
                                   : tutti_server_index(s->server) % s->options.rails;
    of->contributors = flat ? s->m->workers : nodes_of(s);
    of->place = -1;
    of->at = *at;
    n = (size_t)of->contributors;
    of->has = tutti_alloc(n, sizeof *of->has);
    of->note = tutti_alloc(n, sizeof *of->note);
    of->weight = tutti_alloc(n, sizeof *of->weight);
    of->part = tutti_alloc(n, sizeof *of->part);
    n = part_of(s, p, of->rail, &first);
    slice = tutti_slice_of(s->m, first, n);
    *at += (tutti_slice_words_most(&slice) + 15) / 16 * 16;
    return of->has != NULL && of->note != NULL && of->weight != NULL && of->part != NULL;
}

static tutti_status open_sums(void *self, tutti_error *err)
{
    tutti_server_sums *s = self;
    const tutti_layout *l = s->m->layout;
    const size_t workers = (size_t)s->m->workers;
    size_t at = 0;
    bool enough;

    TUTTI_TRY(tutti_monitor_open(&s->monitor, s->m->rt, err));
    TUTTI_TRY(open_node(s, err));
    if (tutti_server_index(s->server) < 0 || workers == 1)
        return TUTTI_OK;
    s->sums = tutti_alloc((size_t)(l->n_pieces * s->rails), sizeof *s->sums);
    s->taken = tutti_alloc((size_t)s->places + 1, sizeof *s->taken);
    s->present = tutti_alloc(workers, sizeof *s->present);
    s->share = tutti_alloc(workers, sizeof *s->share);
    enough = s->sums != NULL && s->taken != NULL && s->present != NULL && s->share != NULL;
    for (; s->n_sums < l->n_pieces * s->rails && enough; s->n_sums++)
        enough = open_sum(s, &s->sums[s->n_sums], &l->piece[s->n_sums / s->rails],
                          s->n_sums % s->rails, &at);
    return enough ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the sums of method '%s'",
                               s->m->ops->name);
}

static void close_sums(void *self)
{
    tutti_server_sums *s = self;

    for (int k = 0; k < s->n_sums; k++) {
        tutti_free(s->sums[k].has);
        tutti_free(s->sums[k].note);
        tutti_free(s->sums[k].weight);
        tutti_free(s->sums[k].part);
    }
    tutti_free(s->sums);
    tutti_free(s->taken);
    tutti_free(s->present);
    tutti_free(s->share);
    tutti_free(s->peers);
    tutti_free(s->slot_of);
    tutti_monitor_close(s->monitor);
    tutti_free(s);
}

/* ---- figures ---- */

/* Called with the monitor held. */
static void pass_time(tutti_server_sums *s)
{
    const int64_t now_ns = tutti_now_ns(s->m->rt);

    if (s->under_way > 0) {
        s->busy_ns += now_ns - s->since_ns;
        s->held_ns += (double)s->under_way * (double)(now_ns - s->since_ns);
    }
    s->since_ns = now_ns;
}

static void count(tutti_server_sums *s, int more)
{
    tutti_lock(s->monitor);
    pass_time(s);
    s->under_way += more;
    s->most = s->under_way > s->most ? s->under_way : s->most;
    tutti_unlock(s->monitor);
}

/* Exchanges of a step begin after pass() and are over before step(): the part of their time for
   which the client has not waited is hidden. */
void tutti_server_sums_watch(tutti_server_sums *s, bool step)
{
    const int64_t exposed_ns = tutti_engine_exposed_ns(s->m->engine);
    int64_t hidden_ns;

    tutti_lock(s->monitor);
    pass_time(s);
    hidden_ns = s->busy_ns - s->busy_before_ns - (exposed_ns - s->exposed_before_ns);
    s->hidden_ns += step && hidden_ns > 0 ? hidden_ns : 0;
    s->busy_before_ns = s->busy_ns;
    s->exposed_before_ns = exposed_ns;
    tutti_unlock(s->monitor);
}

void tutti_server_sums_figures_of(const tutti_server_sums *s, tutti_server_sums_figures *f)
{
    *f = (tutti_server_sums_figures){
        .under_way_most = s->most,
        .under_way_mean = s->busy_ns > 0 ? s->held_ns / (double)s->busy_ns : 0,
        .trip_seconds = s->trips > 0 ? 1e-9 * (double)s->trip_ns / (double)s->trips : 0,
        .trip_seconds_most = 1e-9 * (double)s->trip_most_ns,
        .busy_seconds = 1e-9 * (double)s->busy_ns,
        .hidden_seconds = 1e-9 * (double)s->hidden_ns,
        .server = tutti_server_index(s->server),
        .imbalance = tutti_server_imbalance(s->server),
        .served_bytes = s->served_bytes,
        .sums = s->ended
    };
}

tutti_status tutti_server_sums_final_model(tutti_server_sums *s, tutti_error *err)
{
    return tutti_server_report_figures(s, s->m, s->figures, err);
}

/* ---- the client ---- */

/* Packs b: the step, and the weight as the float that is multiplied with. */
static int64_t pack(uint64_t step, float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return (int64_t)(step << 32 | bits);
}

static tutti_status go(tutti_server_sums *s, tutti_piece *p, float weight, tutti_error *err)
{
    const int64_t begin_ns = tutti_now_ns(s->m->rt);
    int64_t took_ns;
    const tutti_status status = tutti_server_exchange(s->server, p, pack(p->step, weight), err);

    tutti_lock(s->monitor);
    took_ns = tutti_now_ns(s->m->rt) - begin_ns;
    s->trip_ns += took_ns;
    s->trip_most_ns = took_ns > s->trip_most_ns ? took_ns : s->trip_most_ns;
    s->trips++;
    tutti_unlock(s->monitor);
    return status;
}

/* The weight of this node among all samples of the step. */
static float weight_of_node(const tutti_server_sums *s, uint64_t step)
{
    const int64_t all = tutti_share_step(s->m->share, step, -1);
    int64_t mine = 0;

    for (int u = 0; u < s->options.node; u++)
        mine += tutti_share_step(s->m->share, step, s->peers[u]);
    return all > 0 ? (float)((double)mine / (double)all) : 0;
}

/* Without one of these no sum of this node is possible any more. */
static const char peers[] = "the workers of its node";

static tutti_status exchange_of_node(tutti_server_sums *s, tutti_piece *p, tutti_error *err)
{
    const tutti_method *m = s->m;
    const int mine = m->rank % s->options.node;
    const size_t *counts = s->slot_of + (size_t)p->index * (size_t)s->options.node;
    const uint64_t key = 2 * (uint64_t)p->index + 1;
    tutti_group sums = tutti_group_keyed(&s->inside, key, p->group.sequence),
                spread = tutti_group_keyed(&s->inside, key + 1, p->group.sequence);
    const tutti_buffer all = tutti_f32(m->device, p->g, p->count);
    tutti_buffer slot;
    size_t first;

    tutti_server_slot(s->server, mine, 0, p->count, &first);
    slot = tutti_f32(m->device, p->g + first, counts[mine]);
    tutti_scale(m->device, p->count, (float)p->weight, p->g);
    TUTTI_TRY(tutti_fails_with(
        m, peers, tutti_reduce_scatter_v(&sums, TUTTI_SUM, counts, all, slot, err), err));
    if (nodes_of(s) > 1 && counts[mine] > 0)
        TUTTI_TRY(go(s, p, weight_of_node(s, p->step), err));
    return tutti_fails_with(m, peers, tutti_allgather_v(&spread, counts, slot, all, err), err);
}

/* Scales the gradient before a codec (coded.c); the servers take the plain mean. */
static float weigh_here(const tutti_server_sums *s, tutti_piece *p)
{
    const double counts = p->weight * s->m->workers;

    if (fabs(counts - 1) > 1e-12)
        tutti_scale(s->m->device, p->count, (float)counts, p->g);
    return 1.0f / (float)s->m->workers;
}

tutti_status tutti_server_sums_exchange(tutti_server_sums *s, tutti_piece *p, tutti_error *err)
{
    tutti_status status;

    count(s, 1);
    if (s->options.node > 1 && p->rows == NULL)
        status = exchange_of_node(s, p, err);
    else if (s->server->coded != NULL && p->rows == NULL)
        status = go(s, p, weigh_here(s, p), err);
    else
        status = go(s, p, (float)p->weight, err);
    count(s, -1);
    return status;
}

/* ---- the server's thread ---- */

tutti_status tutti_server_sums_run(tutti_server_sums *s, tutti_error *err)
{
    return s->m->workers == 1 ? TUTTI_OK : tutti_server_run(s->server, err);
}

static int rank_of(const tutti_server_sums *s, const sum *of, int contributor)
{
    return of->rail < 0 ? contributor : contributor * s->options.node + of->rail;
}

static bool everybody_sent(const tutti_server_sums *s, const sum *of)
{
    for (int i = 0; i < of->contributors && of->arrived < of->contributors; i++)
        if (!of->has[i] && tutti_server_has(s->server, rank_of(s, of, i)))
            return false;
    return true;
}

/* Lists the contributions by rank, and their weights: the worker's weight, or 1 for a node's sum,
   which includes the weights. Without workers that were lost before, the weights are normalised
   again. */
static void choose_present(const tutti_server_sums *s, const sum *of)
{
    const bool left_out = of->arrived < of->contributors;
    double all = 0;
    int n = 0;

    for (int i = 0; i < of->contributors; i++)
        all += of->has[i] ? (double)of->weight[i] : 0;
    for (int i = 0; i < of->contributors; i++)
        if (of->has[i]) {
            const double one = of->rail < 0 ? (double)of->weight[i] : 1;
            s->present[n] = of->part[i];
            s->share[n++] = (float)(!left_out ? one : all > 0 ? one / all : 0);
        }
}

static tutti_status end_sum(tutti_server_sums *s, sum *of, size_t first, size_t count,
                            tutti_error *err)
{
    const tutti_server_request part = { .kind = (uint32_t)((of - s->sums) / s->rails),
                                        .b = (int64_t)(of->step << 32),
                                        .first = first,
                                        .count = count };
    const int n = of->arrived;

    choose_present(s, of);
    for (int i = 0; i < of->contributors; i++)
        of->has[i] = false;
    of->arrived = 0;
    if (of->place >= 0)
        s->taken[of->place] = false;
    of->place = -1;
    TUTTI_TRY(tutti_server_answer_sum(s->server, &part, of->note, n, 0, s->present, s->share, err));
    s->served_bytes += tutti_server_answered(s->server, (int)part.kind, count);
    s->ended++;
    return TUTTI_OK;
}

/* The memory for this contribution; NULL: more sums have begun than there are slots. */
static float *place_of(tutti_server_sums *s, sum *of, int contributor)
{
    const size_t most = (size_t)(tutti_server_slack(s->m) > 0 ? s->m->workers : nodes_of(s));

    if (s->places == 0)
        return s->contributions + (size_t)contributor * s->words + of->at;
    for (int k = 0; k < s->places && of->place < 0; k++)
        if (!s->taken[k]) {
            s->taken[k] = true;
            of->place = k;
        }
    return of->place < 0
               ? NULL
               : s->contributions + ((size_t)of->place * most + (size_t)contributor) * s->words;
}

static tutti_status out_of_turn(const tutti_server_request *r, tutti_error *err)
{
    return tutti_fail_rank(
        err, TUTTI_ERR_CORRUPT, r->worker,
        "worker %d sent its part of bucket %lu of step %llu out of turn; all workers must run one "
        "version and one checkpoint",
        r->worker, (unsigned long)r->kind, (unsigned long long)r->b >> 32);
}

tutti_status tutti_server_sums_rule(tutti_server_sums *s, const tutti_server_request *r,
                                    tutti_error *err)
{
    const int rail = tutti_server_rail(s->server, r->worker, &s->m->layout->piece[r->kind]),
              who = rail < 0 ? r->worker : r->worker / s->options.node;
    sum *of = &s->sums[(int)r->kind * s->rails + (s->rails > 1 && rail > 0 ? rail : 0)];
    const uint32_t bits = (uint32_t)r->b;
    const uint64_t step = (uint64_t)r->b >> 32;

    if (r->in == NULL || of->has[who] || (of->arrived > 0 && of->step != step))
        return out_of_turn(r, err);
    of->part[who] = r->in;
    memcpy(&of->weight[who], &bits, sizeof bits);
    of->has[who] = true;
    of->step = step;
    of->note[of->arrived++] = r->note;
    if (everybody_sent(s, of))
        return end_sum(s, of, r->first, r->count, err); /* the last is summed where it is */
    if (r->stays)
        return TUTTI_OK;
    of->part[who] = place_of(s, of, who);
    if (of->part[who] == NULL)
        return out_of_turn(r, err);
    tutti_copy(s->m->device, r->words, r->in, of->part[who]);
    return TUTTI_OK;
}

tutti_status tutti_server_sums_lost(tutti_server_sums *s, tutti_error *err)
{
    for (int k = 0; k < s->n_sums; k++) {
        sum *of = &s->sums[k];
        size_t first;
        const size_t count = part_of(s, &s->m->layout->piece[k / s->rails], of->rail, &first);
        if (of->arrived > 0 && everybody_sent(s, of))
            TUTTI_TRY(end_sum(s, of, first, count, err));
    }
    return TUTTI_OK;
}

static const tutti_facility_ops facility = { .open = open_sums, .close = close_sums };
