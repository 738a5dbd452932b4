/* ring.c: the ring of ring.h: BAGUA's low-precision decentralised SGD (Gan et al., VLDB 2022, arXiv
   2107.01499; the primitive D_LP_S), which is difference compression (Tang, Gan, Zhang, Zhang,
   Liu, NeurIPS 2018, arXiv 1803.06443) with weights 1/3.

   Each member has w, the copy of its model that its neighbours hold, and l and r, its copies of
   the left and right neighbour's models. All begin as the common model. x is the model after the
   local step; Q encodes a vector, deq decodes it; c_l, c_r are the messages of the neighbours:

     t = (x - w) + (l - w) / 3 + (r - w) / 3      which is mix(w, l, r) + (x - w) - w
     c = Q(t) is sent to both neighbours
     l += deq(c_l);  r += deq(c_r);  w += deq(c);  x := w

   deq depends on the bytes only, and the sender adds deq(c), too, not t. So a member's w and its
   neighbours' copies of it stay equal to the bit. What Q loses of t is missing in w, so it is part
   of the next x - w. Of equal models t is exactly 0 in the order above; the released code computes
   x + l/3 + r/3 - (5/3) w, which is not.

   With two members the left and the right neighbour are the same one: it is sent each message
   twice and its difference is added twice, so its weight is 2/3. A single member's x does not
   change. Steps without an exchange do not change l, r and w.

   Buckets: tensors one after the other until the size of a bucket is reached. Each is a separate
   message, and one vector to the codec: it has one least and one greatest element. All receives
   are posted first. With `overlap` all buckets are encoded and sent before the first is waited
   for, so one is encoded while those before it travel; else each is waited for before the next is
   encoded.

   Node groups (src/gossip/mixer.c): the mean of a machine's models is x of its first worker,
   which alone is a member of the ring, and all workers of the machine copy its result. */
#include <errno.h>
#include <string.h>

#include "collective/leaders.h"
#include "engine/engine_facility.h"
#include "engine/exchange/ask.h"
#include "engine/facility.h"
#include "tutti/codec.h"
#include "tutti/method/gossip.h"
#include "ring.h"
#include "codec/codec.h"

enum { LEFT, RIGHT, SIDES };

/* at: offset of the message in `send`, and in each side's part of `receive`; bytes: its largest
   size */
typedef struct bucket { tutti_view view; size_t at, bytes; } bucket;

struct tutti_ring {
    tutti_method *m;
    int team, members;
    bool overlap;
    tutti_leaders leaders;
    int beside[SIDES];           /* ranks of the neighbours */
    tutti_codec *codec;
    tutti_codec_space space;
    tutti_view *view;            /* [buckets]: the codec's view of each */
    bucket *bucket;              /* [buckets] */
    int buckets;
    size_t bytes;                /* of all messages to one side, each rounded up to 64 */
    float *w;                    /* [n]: w above; declared */
    float *of[SIDES];            /* [n] each: l and r above; declared */
    int64_t declared_team;       /* size of the team that w, l and r belong to; declared */
    float *difference;           /* [elements of the largest bucket]: t above */
    uint8_t *scratch;            /* of the codec */
    uint8_t *send;               /* [bytes]: messages to both sides */
    uint8_t *receive;            /* [SIDES][bytes]: messages received */
    tutti_request *requests;     /* [buckets][receive, send][SIDES] */
};

static const tutti_facility_ops facility; /* at the end */

static void cut_buckets(tutti_ring *ring, size_t limit)
{
    const tutti_layout *l = ring->m->layout;

    for (int i = 0; i < l->n_tensors; i++) {
        tutti_view *v = &ring->view[ring->buckets];
        if (v->count == 0)
            *v = (tutti_view){ .tensor = ring->buckets, .first = l->tensor[i].first, .rows = 1 };
        v->cols = v->count += l->tensor[i].count;
        ring->buckets += v->count * sizeof(float) >= limit || i + 1 == l->n_tensors;
    }
}

static tutti_status declare_memory(tutti_ring *ring, tutti_plan *plan, tutti_error *err)
{
    size_t largest = 0, scratch = 0;

    for (int b = 0; b < ring->buckets; b++) {
        const tutti_view *v = &ring->view[b];
        const size_t need = tutti_codec_point_scratch(ring->codec, v);
        if (v->count > INT32_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s': a bucket has %zu elements, and a codec takes fewer "
                              "than 2147483648; make bucket_mb smaller",
                              ring->m->ops->name, v->count);
        ring->bucket[b] = (bucket){ .view = *v,
                                    .at = ring->bytes,
                                    .bytes = tutti_codec_point_bound(ring->codec, v) };
        ring->bytes += (ring->bucket[b].bytes + 63) / 64 * 64;
        largest = v->count > largest ? v->count : largest;
        scratch = need > scratch ? need : scratch;
    }
    tutti_declare_value(plan, "ring.team", TUTTI_SAME, &ring->declared_team,
                        sizeof ring->declared_team);
    tutti_declare_vector(plan, "ring.w", TUTTI_OWN_ZERO, &ring->w);
    tutti_declare_vector(plan, "ring.left", TUTTI_OWN_ZERO, &ring->of[LEFT]);
    tutti_declare_vector(plan, "ring.right", TUTTI_OWN_ZERO, &ring->of[RIGHT]);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ring.difference",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = largest },
                  &ring->difference);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ring.scratch",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_U8,
                                  .count = scratch + 64 },
                  &ring->scratch);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ring.send",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_U8,
                                  .count = ring->bytes + 64 },
                  &ring->send);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ring.receive",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_U8,
                                  .count = SIDES * ring->bytes + 64 },
                  &ring->receive);
    return TUTTI_OK;
}

tutti_status tutti_ring_declare(tutti_ring **out, tutti_method *m, tutti_plan *plan,
                                const tutti_ring_options *options, tutti_error *err)
{
    const size_t tensors = (size_t)m->layout->n_tensors;
    tutti_ring *ring = tutti_alloc(1, sizeof *ring);

    *out = ring;
    if (ring == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the ring of method '%s'",
                          m->ops->name);
    ring->m = m;
    ring->team = options->team > 0 ? options->team : 1;
    ring->members = m->workers / ring->team;
    ring->overlap = options->overlap;
    tutti_facility_add(m, &facility, ring);
    ring->view = tutti_alloc(tensors, sizeof *ring->view);
    ring->bucket = tutti_alloc(tensors, sizeof *ring->bucket);
    ring->requests = tutti_alloc(tensors * 2 * SIDES, sizeof *ring->requests);
    if (ring->view == NULL || ring->bucket == NULL || ring->requests == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the ring of method '%s'",
                          m->ops->name);
    cut_buckets(ring, options->bucket_bytes);
    ring->space = (tutti_codec_space){ .n = m->n,
                                       .tensor = ring->view,
                                       .n_tensors = ring->buckets,
                                       .rank = m->rank / ring->team,
                                       .workers = ring->members,
                                       .seed = m->rng.seed,
                                       .device = m->device };
    TUTTI_TRY(tutti_codec_declare(&ring->codec, plan, options->codec, "ring", &ring->space, err));
    TUTTI_TRY(tutti_codec_check_point(ring->codec, err));
    return declare_memory(ring, plan, err);
}

static tutti_status open_ring(void *self, tutti_error *err)
{
    tutti_ring *ring = self;
    const tutti_method *m = ring->m;
    const int me = m->rank / ring->team;

    tutti_codec_open(ring->codec);
    ring->declared_team = ring->team; /* a checkpoint's value may replace it */
    tutti_copy(m->device, m->n, m->x, ring->w);
    for (int s = 0; s < SIDES; s++)
        tutti_copy(m->device, m->n, m->x, ring->of[s]);
    ring->beside[LEFT] = (me + ring->members - 1) % ring->members * ring->team;
    ring->beside[RIGHT] = (me + 1) % ring->members * ring->team;
    return tutti_leaders_open(&ring->leaders, &m->all, ring->team, "ring", err);
}

static void close_ring(void *self)
{
    tutti_ring *ring = self;

    tutti_leaders_close(&ring->leaders);
    tutti_codec_close(ring->codec);
    tutti_free(ring->view);
    tutti_free(ring->bucket);
    tutti_free(ring->requests);
    tutti_free(ring);
}

/* ---- an exchange ---- */

static tutti_request *request_of(const tutti_ring *ring, int b, bool sends, int side)
{
    return &ring->requests[(b * 2 + sends) * SIDES + side];
}

static uint8_t *room_of(const tutti_ring *ring, int b, int side)
{
    return ring->receive + (size_t)side * ring->bytes + ring->bucket[b].at;
}

/* Returns the port of messages of round k towards a side. A message sent to the right arrives from
   the left; with two members the port distinguishes the two messages of a rank. */
static tutti_port port_of(uint64_t k, int towards)
{
    return tutti_port_of("ring", k, (uint64_t)towards);
}

static tutti_status post_receives(tutti_ring *ring, uint64_t k, tutti_error *err)
{
    for (int b = 0; b < ring->buckets; b++)
        for (int s = 0; s < SIDES; s++)
            TUTTI_TRY(tutti_post_recv(
                ring->m->world, request_of(ring, b, false, s), ring->beside[s],
                port_of(k, s == LEFT ? RIGHT : LEFT),
                tutti_host(room_of(ring, b, s), ring->bucket[b].bytes, TUTTI_U8), err));
    return TUTTI_OK;
}

static tutti_status post_bucket(tutti_ring *ring, uint64_t k, int b, const float *x,
                                tutti_error *err)
{
    tutti_device *d = ring->m->device;
    const bucket *at = &ring->bucket[b];
    tutti_view v = at->view;
    const tutti_header note = { .kind = (uint32_t)b };
    float *t = ring->difference;
    uint8_t *out = ring->send + at->at;
    size_t bytes;

    v.step = k;
    tutti_diff(d, v.count, 1, x + v.first, ring->w + v.first, t);
    for (int s = 0; s < SIDES; s++)
        tutti_add_diff(d, v.count, 1.0f / 3, ring->of[s] + v.first, ring->w + v.first, t);
    /* a codec cannot represent other numbers, and they would reach the neighbours' models */
    TUTTI_TRY(tutti_exchange_check_displacement(
        ring->m,
        &(tutti_piece){ .g = t, .first = v.first, .count = v.count, .step = ring->m->step,
                        .tensors = ring->m->layout->n_tensors },
        err));
    bytes = tutti_codec_pack(ring->codec, &v, t, ring->scratch, out);
    for (int s = 0; s < SIDES; s++)
        TUTTI_TRY(tutti_post_send(ring->m->world, request_of(ring, b, true, s), ring->beside[s],
                                  port_of(k, s), &note, tutti_host(out, bytes, TUTTI_U8), err));
    return tutti_codec_unpack_add(ring->codec, &v, out, bytes, 1, ring->w + v.first, ring->scratch,
                                  err);
}

static tutti_status get(tutti_ring *ring, uint64_t k, int b, float *x, tutti_error *err)
{
    tutti_request *wanted[2 * SIDES];
    tutti_view v = ring->bucket[b].view;

    v.step = k;
    for (int i = 0; i < 2 * SIDES; i++)
        wanted[i] = request_of(ring, b, i >= SIDES, i % SIDES);
    TUTTI_TRY(
        tutti_wait_some(ring->m->world, wanted, 2 * SIDES, 2 * SIDES, TUTTI_FOREVER, NULL, err));
    for (int s = 0; s < SIDES; s++)
        TUTTI_TRY(tutti_fail_within(
            err,
            tutti_codec_unpack_add(ring->codec, &v, room_of(ring, b, s),
                                   (size_t)request_of(ring, b, false, s)->note.bytes, 1,
                                   ring->of[s] + v.first, ring->scratch, err),
            "what worker %d sent of bucket %d", ring->beside[s], b));
    tutti_copy(ring->m->device, v.count, ring->w + v.first, x + v.first);
    return TUTTI_OK;
}

static tutti_status among_members(tutti_ring *ring, uint64_t k, float *x, tutti_error *err)
{
    tutti_status status = post_receives(ring, k, err);

    for (int b = 0; b < ring->buckets && status == TUTTI_OK; b++) {
        status = post_bucket(ring, k, b, x, err);
        if (status == TUTTI_OK && !ring->overlap)
            status = get(ring, k, b, x, err);
    }
    for (int b = 0; b < ring->buckets && status == TUTTI_OK && ring->overlap; b++)
        status = get(ring, k, b, x, err);
    for (int i = 0; i < ring->buckets * 2 * SIDES && status != TUTTI_OK; i++)
        tutti_cancel(ring->m->world, &ring->requests[i]);
    return status;
}

/* Refuses a checkpoint of other teams, in which the first workers have no copies of each other. */
static tutti_status check_team(const tutti_ring *ring, tutti_error *err)
{
    return ring->declared_team == ring->team
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the checkpoint has models on a ring of teams of %lld workers, and "
                            "this run has teams of %d: what a team's neighbours have of it would "
                            "be another's; resume it with as many workers a machine "
                            "(hierarchical=%lld)",
                            (long long)ring->declared_team, ring->team,
                            (long long)ring->declared_team);
}

tutti_status tutti_ring_exchange(tutti_ring *ring, uint64_t k, float *x, tutti_error *err)
{
    const tutti_method *m = ring->m;
    const tutti_buffer model = tutti_f32(m->device, x, m->layout->used);
    const tutti_doing was = tutti_engine_expose(m->engine);
    const int64_t begin_ns = tutti_now_ns(m->rt);
    tutti_leaders l = tutti_leaders_keyed(&ring->leaders, k + 1, 0);
    tutti_status status = check_team(ring, err);

    if (status == TUTTI_OK && ring->team > 1)
        status = tutti_leaders_take(&l, model, model, err);
    if (status == TUTTI_OK && ring->members > 1 && m->rank % ring->team == 0)
        status = among_members(ring, k, x, err);
    if (status == TUTTI_OK && ring->team > 1)
        status = tutti_leaders_give(&l, model, err);
    tutti_engine_comm(m->engine, "ring", 0, begin_ns, tutti_now_ns(m->rt));
    tutti_engine_doing(m->engine, was);
    return tutti_fail_within(err, status,
                             "worker %d, exchanging with its neighbours on the ring in round %llu",
                             m->rank, (unsigned long long)k);
}

const float *tutti_ring_of(const tutti_ring *ring, int side)
{
    return side == 0 ? ring->w : ring->of[side < 0 ? LEFT : RIGHT];
}

static const tutti_facility_ops facility = { .open = open_ring, .close = close_ring };
