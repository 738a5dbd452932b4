/* averager.c: averages models concurrently with the computation. The model is s, protected by a
   lock. The client computes its gradients at a snapshot of s and applies them to s. A round takes
   u <- s, computes a(u) together with other workers, and adds the difference: s <- s + (a(u) -
   u). So steps made meanwhile are kept, the sum of all models is preserved whatever happens in
   between, and no thread waits while it holds the lock.

   A round involves all members, or all neighbours in that round's graph, so all workers must make
   the same rounds. Three schemes decide when a round is made:

     with all   (lasgd, delay-by-one) Each worker requests a round from its service at the same
                steps, and the round is an all-reduce. All have made equally many steps whenever
                the run is quiescent.
     beats      (asynchronous rings) No worker may wait for a slow worker's next gradient, so
                rounds are granted for the gradients of all workers together. Each worker reports
                its gradients to one worker, the one of lowest rank. For every `workers` gradients
                that worker grants `rounds` rounds to all workers at once, and replies with the
                total granted. Reports and grants go to servers that only record them and reply,
                and rounds are made by a thread that asks no other worker. So a member of a round
                waits only for members that have, or are about to get, the same grant: no cyclic
                wait is possible, whatever the graph.
     clock      (BAGUA's asynchronous averaging) The round is an all-reduce, and rounds are
                granted by a clock: the worker of lowest rank grants the next round a fixed time
                after its own part in the last one has ended. By then the last one has begun on
                all workers, so at most one round is under way and one is to come. The paper's
                workers agree in each round, by a collective, whether all want to stop. Here a
                worker that stops grants no more, and rounds already granted are made: workers at
                different steps quiesce without a message about it.

   All granted rounds are made before the run is quiescent. Reports, grants and their replies are
   calls, which quiescence counts, and a granted round is a pending one.

   Skipped rounds. Clients keep computing while rounds are made. Where rounds are slower than
   gradients, most of the rounds that are due are therefore skipped: none is granted that would be
   more than `ahead` x `rounds` ahead of what the slowest member is known to have made. So the
   links limit the rate of rounds, not any worker's rate of gradients, and at most that many
   rounds are left to be made at quiescence. After G gradients floor(G rounds / workers) rounds
   were due, and each was either made by all workers or skipped. A worker reports how many rounds
   it has made with its gradients, and in its reply to a grant. When a round is skipped all
   workers are notified, just to obtain these replies: so a worker that computes slowly, and
   therefore rarely reports, delays no round. The alternative is to let a client wait for the
   rounds that it was granted (`outstanding`). It starves the workers on a slow link and their
   neighbours: others finish a round before them, compute meanwhile, and so bring the next grant
   before these may continue.

   Losses. In a run that continues after losses (TUTTI_FAULT_TOLERANT) rounds exclude lost
   workers, and all survivors must still make the same rounds:

     with all   A loss in the middle of the all-reduce fails it on some workers and not on others.
                So each round ends with an agreement of the services (comm.h:
                tutti_members_agree). If the round failed on any worker, the survivors repeat it
                with the same u.
                Without a loss that costs an exchange of 40 bytes with each other member,
                concurrently with the computation.
     beats      The granting worker may be lost after it has sent a grant to some workers and not
                to others. Or it lives, and only its connection to one of them has failed. So a
                worker that learns of a loss sends all others, once, the number of the last round
                that it knows to be granted. While this worker misses another that is not yet lost
                to all (that is agreed at quiescence), it forwards every number that arrives, and
                so does each worker that it sends one to. So what any survivor has been granted,
                all survivors get. (That is eager reliable broadcast: Cachin, Guerraoui,
                Rodrigues, "Introduction to Reliable and Secure Distributed Programming", 2nd ed.
                2011, section 3.8.2, begun only when it may be needed.) Nothing is accepted from a
                lost worker any more, so no further number can appear. Numbers only rise: a worker
                that receives one twice makes no round twice, and two workers that both take
                themselves for the lowest do no harm. `workers` becomes the number of survivors:
                these average once per gradient of their own, as before. What the lost worker had
                received and not yet granted is forgotten. */
#include <errno.h>

#include "mixer_internal.h"
#include "collective/members.h"
#include "engine/facility.h"
#include "averager_clock.h"

/* A snapshot of the model (tutti.h). Rounds that were pending when it was taken still add to
   it. */
typedef struct snapshot {
    float *x;
    uint64_t until;              /* rounds below this number change x */
} snapshot;

struct tutti_averager {
    tutti_method *m;
    tutti_mixer *mixer;          /* NULL: the round is an all-reduce */
    /* of the service that makes all-reduce rounds, in a fault-tolerant run; NULL otherwise */
    tutti_members *members;
    int64_t rounds;              /* rounds per gradient; 0: the method requests rounds */
    int tell, beat, mix, average; /* indexes of services */
    tutti_monitor *lock;         /* "under the lock" below */
    float *s;                    /* [n]: the model; under the lock */
    float *sent, *mean;          /* [n]: of the service that makes rounds: u, and a(u) */
    uint64_t averaged;           /* rounds applied to s; under the lock */
    uint64_t seen;               /* `averaged` when the client read s; client thread only */
    uint64_t pending;            /* rounds that the method has requested so far; under the lock */
    snapshot *snapshot;          /* [n_snapshots], with capacity for as many as there may be */
    int n_snapshots;             /* under the lock */
    /* target of the next snapshot; NULL: none is due. Client thread only */
    float *snapshot_to;
    uint64_t round;              /* rounds made; written under the lock by the service that makes
                                    them; declared if the graph depends on it */
    uint64_t due;                /* on the granting worker, declared: reported gradients times
                                    `rounds`, less the number of workers for each granted round.
                                    So after a report `due` / workers rounds were skipped so far */
    uint64_t granted;            /* rounds granted; under the lock */
    uint64_t handed;             /* the last value of `granted` that this worker has sent to all
                                    others; under the lock */
    uint64_t most;               /* rounds that may be granted beyond what all have made */
    uint64_t *made;              /* [workers]: rounds that each has made, as far as known here;
                                    under the lock */
    uint64_t unreported;         /* gradients of this worker not yet reported; under the lock */
    bool spread;                 /* `granted` must be sent to all others, which reply how many
                                    rounds they have made; under the lock */
    bool reported;               /* the client has emitted the event about skipped rounds */
    int events;                  /* number of the world's events that `tell` has processed */
    int64_t pause_ns;            /* clock: from the end of a round to the next grant */
    bool clocks;                 /* a clock grants rounds */
    bool begun;                  /* the client has allowed rounds to start; under the lock */
    int64_t ended_ns;            /* when the last round ended; under the lock */
    int64_t left_ns;             /* clock, declared: how much of the pause was left when the run
                                    became quiescent. The clock stands still until it goes on */
    bool *gone;                  /* [workers]: lost, as agreed by all. Written at quiescence */
    /* of the thread of the service `tell` */
    int *others;                 /* [workers]: the recipients of a grant */
    tutti_engine_call *calls;    /* [workers]: the calls to them */
    tutti_request **each;        /* [workers]: scratch, requests that are waited for */
};

static const tutti_facility_ops facility; /* at the end */

static tutti_status declare(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                            const char *graph, bool granted, const int services[4],
                            tutti_error *err)
{
    const size_t workers = (size_t)m->workers;
    tutti_averager *a = tutti_alloc(1, sizeof *a);

    *out = a;
    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'",
                          m->ops->name);
    a->m = m;
    tutti_facility_add(m, &facility, a);
    tutti_engine_declare_history(m->engine);
    a->ended_ns = INT64_MIN / 2;
    a->tell = services[0];
    a->beat = services[1];
    a->mix = services[2];
    a->average = services[3];
    tutti_declare_vector(plan, "averager.s", TUTTI_SCRATCH, &a->s); /* x holds it at quiescence */
    if (m->workers > 1) {
        tutti_declare_vector(plan, "averager.sent", TUTTI_SCRATCH, &a->sent);
        tutti_declare_vector(plan, "averager.mean", TUTTI_SCRATCH, &a->mean);
    }
    a->snapshot =
        tutti_alloc((size_t)tutti_engine_snapshot_capacity(m->engine) + 1, sizeof *a->snapshot);
    if (a->snapshot == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'",
                          m->ops->name);
    if (!granted)
        return TUTTI_OK;
    tutti_declare_value(plan, "averager.round", TUTTI_SAME, &a->round, sizeof a->round);
    if (graph != NULL)
        tutti_declare_value(plan, "averager.due", TUTTI_OWN_ZERO, &a->due, sizeof a->due);
    a->made = tutti_alloc(workers, sizeof *a->made);
    a->gone = tutti_alloc(workers, sizeof *a->gone);
    a->others = tutti_alloc(workers, sizeof *a->others);
    a->calls = tutti_alloc(workers, sizeof *a->calls);
    a->each = tutti_alloc(workers, sizeof *a->each);
    if (a->made == NULL || a->gone == NULL || a->others == NULL || a->calls == NULL ||
        a->each == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the averager of method '%s'",
                          m->ops->name);
    return graph == NULL ? TUTTI_OK
                         : tutti_mixer_declare(&a->mixer, m, plan,
                                               &(tutti_mixer_options){ .graph = graph }, err);
}

tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                    const char *graph, int64_t rounds, int64_t ahead,
                                    const int services[4], tutti_error *err)
{
    const tutti_status status = declare(out, m, plan, graph, graph != NULL, services, err);

    if (*out != NULL) {
        (*out)->rounds = rounds;
        (*out)->most = (uint64_t)(ahead * rounds);
    }
    return status;
}

tutti_status tutti_averager_declare_clock(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                          int64_t pause_ns, const int services[4], tutti_error *err)
{
    const tutti_status status = declare(out, m, plan, NULL, true, services, err);

    if (*out != NULL) {
        (*out)->clocks = true;
        (*out)->pause_ns = pause_ns;
        tutti_declare_value(plan, "averager.left", TUTTI_OWN_ZERO, &(*out)->left_ns,
                            sizeof (*out)->left_ns);
    }
    return status;
}

static tutti_status open_averager(void *self, tutti_error *err)
{
    tutti_averager *a = self;

    if (a->mixer == NULL && tutti_engine_fault_tolerant(a->m->engine))
        TUTTI_TRY(
            tutti_members_open(&a->members, a->m->world, tutti_port_of("averager", 0, 0), err));
    return tutti_monitor_open(&a->lock, a->m->rt, err);
}

static void close_averager(void *self)
{
    tutti_averager *a = self;

    tutti_monitor_close(a->lock);
    tutti_members_close(a->members);
    tutti_free(a->made);
    tutti_free(a->gone);
    tutti_free(a->others);
    tutti_free(a->calls);
    tutti_free(a->each);
    tutti_free(a->snapshot);
    tutti_free(a);
}

/* ---- client thread ---- */

/* A few rounds are skipped whenever a worker is late. It is an event once more rounds are skipped
   than made. */
static void report_rounds(tutti_averager *a)
{
    uint64_t left = 0, left_out;

    if (a->m->workers == 1)
        return;
    for (int r = 0; r < a->m->workers; r++)
        left += tutti_engine_has(a->m->engine, r);
    left_out = a->due / left;
    tutti_metric(a->m, "rounds", -1, (double)a->round);
    tutti_metric(a->m, "rounds_left_out", -1, (double)left_out);
    if (a->reported || left_out <= a->round || a->m->rank != tutti_engine_first(a->m->engine))
        return;
    a->reported = true;
    tutti_event(a->m, "rounds left out",
                "rounds of averaging take longer than the gradients that bring them: %llu were "
                "made and %llu skipped so far, so models are further apart than on a fast network; "
                "a larger batch leaves them more time",
                (unsigned long long)a->round, (unsigned long long)left_out);
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_averager *a = self;

    tutti_copy(a->m->device, a->m->n, a->s, a->m->x);
    if (a->clocks) {
        const int64_t left_ns = a->ended_ns + a->pause_ns - tutti_now_ns(a->m->rt);
        a->left_ns = left_ns > 0 ? left_ns : 0;
    }
    if (a->clocks && a->m->workers > 1)
        tutti_metric(a->m, "rounds", -1, (double)a->round);
    if (a->mixer == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_mixer_tell(a->mixer, a->round, err));
    report_rounds(a);
    return TUTTI_OK;
}

static tutti_status averager_resume(void *self, tutti_error *err)
{
    tutti_averager *a = self;

    (void)err;
    tutti_copy(a->m->device, a->m->n, a->m->x, a->s);
    a->granted = a->handed = a->round;
    if (a->clocks) { /* a checkpoint may have been written with another pause */
        const int64_t left_ns = a->left_ns < 0 ? 0 : a->left_ns < a->pause_ns ? a->left_ns : a->pause_ns;
        a->ended_ns = tutti_now_ns(a->m->rt) + left_ns - a->pause_ns;
    }
    for (int r = 0; a->gone != NULL && r < a->m->workers; r++) {
        a->gone[r] = !tutti_engine_has(a->m->engine, r);
        a->made[r] = a->round;
    }
    return TUTTI_OK;
}

/* Called with the lock held. */
static void snapshot_due(tutti_averager *a)
{
    if (a->snapshot_to == NULL)
        return;
    tutti_copy(a->m->device, a->m->n, a->s, a->snapshot_to);
    a->snapshot[a->n_snapshots++] = (snapshot){ a->snapshot_to, a->pending };
    a->snapshot_to = NULL;
}

void tutti_averager_read(tutti_averager *a)
{
    tutti_lock(a->lock);
    snapshot_due(a);
    tutti_copy(a->m->device, a->m->n, a->s, a->m->x);
    a->seen = a->averaged;
    tutti_unlock(a->lock);
}

void tutti_averager_post(tutti_averager *a)
{
    tutti_lock(a->lock);
    snapshot_due(a);
    a->pending++;
    tutti_unlock(a->lock);
    tutti_round_post(a->m, a->average, 1);
}

/* ---- snapshots ---- */

/* The copy is made when the client next takes the lock, which is before it requests a round of
   its next step. Taking the lock just for this would be something that a run without snapshots
   does not do. */
static void snapshot_values(void *self, float *to)
{
    ((tutti_averager *)self)->snapshot_to = to;
}

static void snapshot_drop(void *self)
{
    ((tutti_averager *)self)->n_snapshots = 0; /* the run is quiescent */
}

tutti_status tutti_averager_update(tutti_averager *a, int64_t outstanding, tutti_error *err)
{
    uint64_t staleness;

    tutti_lock(a->lock);
    staleness = a->averaged - a->seen;
    tutti_unlock(a->lock);
    tutti_stale(a->m, staleness);
    TUTTI_TRY(tutti_base_step_on(a->m, a->s, a->lock, 1, err));
    if (a->rounds == 0 || a->m->workers == 1)
        return TUTTI_OK;
    tutti_lock(a->lock);
    a->unreported++;
    tutti_unlock(a->lock);
    tutti_round_post(a->m, a->tell, 1);
    if (outstanding < 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_round_await(a->m, a->tell, outstanding, err));
    return tutti_round_await(a->m, a->average, outstanding * a->rounds, err);
}

/* ---- services ---- */

static tutti_status reduce(tutti_averager *a, const tutti_group *members, tutti_error *err)
{
    tutti_group all =
        tutti_group_keyed(members, tutti_port_of("averager", 0, 0), (uint32_t)a->round);
    return tutti_allreduce_from(&all, TUTTI_MEAN,
                                tutti_f32(a->m->device, a->sent, a->m->layout->used),
                                tutti_f32(a->m->device, a->mean, a->m->layout->used), err);
}

static tutti_status with_all(tutti_averager *a, tutti_error *err)
{
    bool again = a->members != NULL;

    if (!again)
        return reduce(a, &a->m->all, err);
    while (again) {
        const tutti_group members = tutti_members_group(a->members, 0);
        const tutti_status status = reduce(a, &members, err);
        /* a failure of this worker itself: it leaves, and is lost to the others */
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        TUTTI_TRY(tutti_members_agree(a->members, status, &again, err));
    }
    return TUTTI_OK;
}

/* Called with the lock held. Adds to each snapshot, to the bit, what is added to s. No time is
   charged: evaluating a model is not part of the method's cost. */
static void complete_asides(tutti_averager *a)
{
    for (int k = 0; k < a->n_snapshots; k++)
        for (size_t i = 0; i < a->m->layout->used && a->snapshot[k].until > a->averaged; i++)
            a->snapshot[k].x[i] += a->mean[i] - a->sent[i];
}

static tutti_status make_round(tutti_averager *a, tutti_error *err)
{
    tutti_method *m = a->m;
    const int64_t begin = tutti_now_ns(m->rt);

    tutti_lock(a->lock);
    tutti_copy(m->device, m->n, a->s, a->sent);
    tutti_unlock(a->lock);
    TUTTI_TRY(a->mixer != NULL ? tutti_mixer_mix_untimed(a->mixer, a->round, a->sent, a->mean, err)
                               : with_all(a, err));
    tutti_lock(a->lock);
    tutti_add_diff(m->device, m->layout->used, 1, a->mean, a->sent, a->s);
    complete_asides(a);
    a->averaged++;
    a->round++;
    a->ended_ns = tutti_now_ns(m->rt);
    tutti_unlock(a->lock);
    tutti_engine_service_comm(m->engine, begin);
    return TUTTI_OK;
}

tutti_status tutti_averager_average(tutti_averager *a, tutti_error *err)
{
    tutti_status status;

    while ((status = tutti_round_next(a->m, a->average, false, err)) == TUTTI_OK)
        TUTTI_TRY(make_round(a, err));
    return status;
}

/* ---- grants ---- */

static int events(const tutti_averager *a)
{
    return tutti_engine_fault_tolerant(a->m->engine) ? tutti_world_events(a->m->world, 0, NULL, 0)
                                                     : 0;
}

/* True if this worker has lost another one that may still be reachable for others. */
static bool misses_one(const tutti_averager *a)
{
    if (events(a) == 0)
        return false;
    for (int r = 0; r < a->m->workers; r++)
        if (!a->gone[r] && tutti_engine_misses(a->m->engine, r))
            return true;
    return false;
}

/* Grants rounds up to number `count`, or `more` beyond what is granted already, whichever is
   greater. hand_on: this worker must send the number to all others. */
static void take_grant(tutti_averager *a, uint64_t count, uint64_t more, bool hand_on)
{
    uint64_t news;

    tutti_lock(a->lock);
    count = count > a->granted + more ? count : a->granted + more;
    news = count - a->granted;
    a->granted = count;
    hand_on = hand_on && a->granted > a->handed;
    a->spread = a->spread || hand_on;
    tutti_unlock(a->lock);
    tutti_round_post(a->m, a->average, (int64_t)news);
    tutti_round_post(a->m, a->tell, hand_on);
}

static void learn(tutti_averager *a, int rank, uint64_t made)
{
    tutti_lock(a->lock);
    a->made[rank] = made > a->made[rank] ? made : a->made[rank];
    tutti_unlock(a->lock);
}

static uint64_t known(tutti_averager *a, int rank)
{
    uint64_t made;

    tutti_lock(a->lock);
    made = rank == a->m->rank ? a->round : a->made[rank];
    tutti_unlock(a->lock);
    return made;
}

/* Sends the number of granted rounds to all others; they reply how many they have made. */
static tutti_status tell_others(tutti_averager *a, uint64_t granted, tutti_error *err)
{
    const tutti_header note = { .kind = misses_one(a), .a = (int64_t)granted };
    int n = 0;

    for (int r = 0; r < a->m->workers; r++)
        if (r != a->m->rank && !tutti_engine_misses(a->m->engine, r)) {
            a->each[n] = NULL;
            a->others[n++] = r;
        }
    TUTTI_TRY(
        tutti_engine_call_all(a->m->engine, a->mix, n, a->others, &note, a->calls, a->each, err));
    for (int k = 0; k < n && a->each[k] != NULL; k++) {
        const tutti_request *answer = a->each[k];
        if (answer->status == TUTTI_OK &&
            answer->note.kind == 0) /* a lost worker's answer has no content */
            learn(a, answer->note.from, (uint64_t)answer->note.a);
    }
    return TUTTI_OK;
}

/* Reports this number of gradients, and how many rounds this worker has made, to the surviving
   worker of lowest rank. */
static tutti_status tell_gradients(tutti_averager *a, uint64_t gradients, uint64_t made,
                                   tutti_error *err)
{
    for (int r = 0; r < a->m->workers; r++) {
        tutti_header note = { .a = (int64_t)gradients, .b = (int64_t)made };
        tutti_status status;
        if (tutti_engine_misses(a->m->engine, r))
            continue;
        status = tutti_rpc_call(a->m, a->beat, r, &note, tutti_nothing(), tutti_nothing(), err);
        /* The grant itself may still be under way: without this the worker would continue without
           the rounds that its own gradients have brought. */
        if (status == TUTTI_OK)
            take_grant(a, (uint64_t)note.a, 0, misses_one(a));
        if (!tutti_is_left_out(a->m, status, err))
            return status;
    }
    return TUTTI_OK;
}

/* A round of this service is requested for each gradient of this worker, for each number to be
   sent to all, and for losses. */
tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err)
{
    tutti_status status;

    while ((status = tutti_round_next(a->m, a->tell, false, err)) == TUTTI_OK) {
        const int seen = events(a);
        uint64_t granted, gradients, made;
        bool spread;
        tutti_lock(a->lock);
        granted = a->granted;
        made = a->round;
        spread = a->spread || seen > a->events;
        gradients = a->unreported; /* All at once, so that they do not pile up where a message takes
                                  longer than a gradient. */
        a->spread = false;
        a->unreported = 0;
        a->handed = spread ? granted : a->handed;
        tutti_unlock(a->lock);
        a->events = seen;
        if (spread)
            TUTTI_TRY(tell_others(a, granted, err));
        if (gradients > 0)
            TUTTI_TRY(tell_gradients(a, gradients, made, err));
    }
    return status;
}

static bool is_lowest(const tutti_averager *a)
{
    int r = 0;

    while (tutti_engine_misses(a->m->engine, r))
        r++;
    return r == a->m->rank;
}

void tutti_averager_begin(tutti_averager *a)
{
    bool news;

    if (a->m->workers == 1)
        return;
    tutti_lock(a->lock);
    news = !a->begun;
    a->begun = true;
    tutti_unlock(a->lock);
    tutti_round_post(a->m, a->beat, news);
}

/* A round of this service is requested when the client begins, and at a loss: this worker may
   then be the one that grants. */
tutti_status tutti_averager_clock(tutti_averager *a, tutti_error *err)
{
    tutti_method *m = a->m;
    bool grants = false;
    tutti_status status;

    while ((status = tutti_round_next(m, a->beat, grants, err)) == TUTTI_OK) {
        int64_t ended_ns;
        tutti_lock(a->lock);
        grants = a->begun && is_lowest(a);
        tutti_unlock(a->lock);
        if (!grants || !tutti_engine_wait_idle(m->engine, a->average, INT64_MIN))
            continue;
        tutti_lock(a->lock);
        ended_ns = a->ended_ns;
        tutti_unlock(a->lock);
        if (tutti_engine_wait_idle(m->engine, a->average, ended_ns + a->pause_ns))
            take_grant(a, 0, 1, true);
    }
    return status;
}

/* `due` rounds are due. Grants as many as leave no worker too far behind; returns that number. */
static uint64_t grant(tutti_averager *a, uint64_t due)
{
    uint64_t least = UINT64_MAX, room;

    for (int r = 0; r < a->m->workers; r++)
        if (!tutti_engine_misses(a->m->engine, r)) {
            const uint64_t made = known(a, r);
            least = made < least ? made : least;
        }
    tutti_lock(a->lock);
    room = a->granted - least < a->most ? a->most - (a->granted - least) : 0;
    room = room < due ? room : due;
    a->spread = a->spread || room < due;
    tutti_unlock(a->lock);
    if (room < due)
        tutti_round_post(a->m, a->tell, 1);
    take_grant(a, 0, room, true);
    return room;
}

tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err)
{
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(a->m, a->beat, &note, tutti_nothing(), TUTTI_FOREVER,
                                       err)) == TUTTI_OK) {
        tutti_header answer = { 0 };
        uint64_t left = 0, before;
        for (int r = 0; r < a->m->workers; r++)
            left += !tutti_engine_misses(a->m->engine, r);
        learn(a, note.from, (uint64_t)note.b);
        before = a->due / left;
        a->due += (uint64_t)note.a * (uint64_t)a->rounds;
        if (a->due / left > before)
            a->due -= left * grant(a, a->due / left - before);
        tutti_lock(a->lock);
        answer.a = (int64_t)a->granted;
        tutti_unlock(a->lock);
        TUTTI_TRY(tutti_rpc_reply(a->m, &note, &answer, err));
    }
    return status;
}

tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err)
{
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(a->m, a->mix, &note, tutti_nothing(), TUTTI_FOREVER, err)) ==
           TUTTI_OK) {
        tutti_header answer = { 0 };
        take_grant(a, (uint64_t)note.a, 0, note.kind != 0 || misses_one(a));
        tutti_lock(a->lock);
        answer.a = (int64_t)a->round;
        tutti_unlock(a->lock);
        TUTTI_TRY(tutti_rpc_reply(a->m, &note, &answer, err));
    }
    return status;
}

static const tutti_facility_ops facility = {
    .open = open_averager, .close = close_averager, .quiesce = quiesce, .resume = averager_resume,
    .snapshot_values = snapshot_values, .snapshot_drop = snapshot_drop
};
