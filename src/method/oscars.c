/* oscars: local SGD in which a server measures the speed of every worker and gives each a number
   of steps of its own. So all arrive at the averaging together, and no worker waits long for one
   that does not. After Huang, "Oscars: Adaptive Semi-Synchronous Parallel Model for Distributed
   Deep Learning with Global View", arXiv 2102.08550 (2021).
   RECONSTRUCTED: only the paper's abstract was available. It states the aim and not the
   algorithm, which is therefore chosen here.
     worker i   H_i steps of the run's optimiser from w;  sends x_i - w, its time of computing,
                its mean loss
     server     t_i, c_i <- 0.8 (t_i, c_i) + 0.2 (seconds a step, seconds a round that were not
                computing)          its clock
                T = H median(t) + median(c)          length of a round
                the round ends once all have arrived, or after T (1 + grace) if `quorum` of all
                have arrived: w <- w + sum_i p_i (x_i - w);  sends w and
                H_i = (T - c_i) / t_i, 1 to quota_max H
     weights    steps: p_i ~ H_i;  uniform: p_i ~ 1;  normalised: (sum_i p_i H_i) sum_i p_i (x_i -
                w) / H_i with p_i ~ 1, which compensates for the pull of workers that make more
                steps
     late       one that began `age` rounds ago has its p_i times 1 / (1 + age) before all are
                scaled to sum to 1; older than max_late: dropped, and the worker restarts at once
     H          loss: interval sqrt(F / F_0), F the mean loss of rounds, smoothed likewise (after
                Wang, Joshi, AdaComm, 2018);  grow: interval (1 + growth r) (after Haddadpour et
                al. 2019)
   A worker that arrives late waits for the end of the round in which it arrives, like all others,
   so a round has at most one delta of each worker. A worker whose delta is dropped is assigned the
   steps that fit into the rest of the round. A step that would end after the round, by at most an
   eighth of its time, counts as within it: otherwise the clock's noise would take a step from half
   of a group of equal workers.
   H begins at 1. H and each H_i at most double from round to round, and H_i at most halves. With
   adapt=loss H is never above interval, and does not change if F is not above 0. The deadline of
   the first round of a run is computed when a quorum has arrived. Times are measured by the
   server's clock, except that of computing. The first round after a quiescence does not change
   c_i.
   Loss: a lost worker is not waited for any more, in its round or by the workers that have left.
   It is excluded from the statistics, so the quorum and T are those of the others. The deltas that
   it has delivered count.
   Optimiser states stay local. A checkpoint has the statistics of the surviving workers; another
   number of workers that continues from it begins with H_i = 1. At the end of a phase a worker
   that leaves delivers its delta. It counts neither for a quorum nor for the end of a round, and
   is answered when all workers have left. So at quiescence all workers have w, and no step is
   lost. A single worker sends its model instead of a delta, since w + (x - w) is not x to the
   bit. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tutti/method/server.h"
#include "tutti/method/steps.h"

/* The server's record of a worker. All members are doubles, also counts, since it is declared as a
   vector of doubles. */
typedef struct record {
    double quota;                /* H_i: steps assigned last */
    double step_s;               /* t_i, seconds */
    double steps_timed;          /* number of steps that t_i was measured from; 0: t_i is unknown */
    double transfer_s;           /* c_i, seconds */
    double transfers_timed;      /* number of measurements of c_i */
    double waited_s;             /* seconds that it waited for other workers, in timed rounds */
    double spent_s;              /* seconds of these rounds: those whose beginning the server saw */
    double pushes;               /* deltas received */
    double steps_applied, steps_late, steps_dropped; /* steps of deltas, by what became of them */
    double effective_steps;      /* sum of the weights of its steps */
} record;
/* A worker's part in the open round. Service thread. */
typedef struct delivery {
    tutti_header note;           /* the request to answer, if it waits */
    bool waits;                  /* its request is not answered yet */
    bool gone;                   /* it has left the phase, or is lost */
    int64_t sent_ns;             /* when its last model was sent; 0: not seen */
    int64_t arrived_ns;          /* when its request arrived */
    double weight, steps;        /* of its delta, before the sum is scaled */
} delivery;
typedef struct oscars {
    int64_t interval, max_late;
    double growth, grace, quorum, quota_max;
    int adapt, weights;
    tutti_server *server;

    /* client thread */
    float *base;                 /* [n]: w as received */
    int64_t quota;               /* H_i. Declared, with `done` */
    int64_t done;                /* steps since w was received */
    double loss_sum;             /* sum of the losses of these steps */
    int64_t counted_ns;          /* tutti_computed_ns when w was received */

    /* the server: service thread */
    float *sum;                  /* [n]: sum of the weighted deltas of the open round */
    record *record;              /* [workers]; declared */
    struct {
        double interval, loss, first_loss;
        double target_s;         /* T; 0: not known yet */
        double rounds, rounds_timed, predicted_s, actual_s, oldest;
    } all;                       /* declared */
    delivery *delivery;          /* [workers] */
    tutti_header *requests;      /* [workers]: scratch */
    uint32_t *quotas;            /* [workers]: scratch */
    double *sorted;              /* [workers]: scratch */
    int present;                 /* workers that have neither left nor are lost */
    int waiting;                 /* those of them whose request is not answered yet */
    int64_t begun_ns;            /* start of the open round; 0: nothing has arrived yet */
    double weight, weighed_steps, steps, loss; /* sums of the open round */
} oscars;
enum { SERVE };                  /* service */
enum { LOSS, GROW, OFF };
enum { STEPS, UNIFORM, NORMALISED };
enum { LEAVES = 1, INTERVAL_MOST = 1000000 }; /* kind of a request: 2 x its steps, plus this bit */

static const tutti_option oscars_options[] = {
    { "interval", TUTTI_INT, TUTTI_AT(oscars, interval), 8, 1, INTERVAL_MOST, NULL,
      "H: steps of a worker of median speed between averagings, at most or at first (adapt)" },
    { "adapt", TUTTI_CHOICE, TUTTI_AT(oscars, adapt), LOSS, 0, 2, "loss|grow|off",
      "H falls as the root of the loss does; grows by `growth` of `interval` a round; stays" },
    { "growth", TUTTI_REAL, TUTTI_AT(oscars, growth), 0.01, 0, 1e6, NULL, "of adapt=grow",
      "adapt=grow" },
    { "grace", TUTTI_REAL, TUTTI_AT(oscars, grace), 0.2, 0, 1e6, NULL,
      "how much longer than planned a round may take, as a part of that, before it ends without "
      "the late workers" },
    { "quorum", TUTTI_REAL, TUTTI_AT(oscars, quorum), 0.8, 1e-6, 1, NULL,
      "part of the workers without which it does not end" },
    { "max_late", TUTTI_INT, TUTTI_AT(oscars, max_late), 1, 0, 1e9, NULL,
      "rounds that a worker's steps may be late; then they are dropped, and it starts again" },
    { "weights", TUTTI_CHOICE, TUTTI_AT(oscars, weights), STEPS, 0, 2, "steps|uniform|normalised",
      "a worker weighs as its steps are many; all the same; all the same for each step (for data "
      "that differ)" },
    { "quota_max", TUTTI_REAL, TUTTI_AT(oscars, quota_max), 4, 1, 1000, NULL,
      "the most steps that a fast worker is given, times H" },
    { 0 }
};

/* ---- the statistics of all workers: server's thread ---- */

/* Median of the known values; 0: none is known. */
static double median(const tutti_method *m, bool of_transfers)
{
    const oscars *s = m->self;
    int n = 0;

    for (int i = 0; i < m->workers; i++) {
        const record *p = &s->record[i];
        const double value = of_transfers ? p->transfer_s : p->step_s;
        int at = n;
        if ((of_transfers ? p->transfers_timed : p->steps_timed) == 0 ||
            !tutti_server_has(s->server, i))
            continue;
        for (; at > 0 && s->sorted[at - 1] > value; at--)
            s->sorted[at] = s->sorted[at - 1];
        s->sorted[at] = value;
        n++;
    }
    return n == 0 ? 0 : (s->sorted[(n - 1) / 2] + s->sorted[n / 2]) / 2;
}

static double target(const tutti_method *m)
{
    const oscars *s = m->self;
    return s->all.interval * median(m, false) + median(m, true);
}

static double smooth(double known, double times, double measured)
{
    return times == 0 ? measured : 0.8 * known + 0.2 * measured;
}

/* The number of steps that fit into `left` seconds. */
static uint32_t quota(const oscars *s, int worker, double left)
{
    record *p = &s->record[worker];
    /* step_s is 0 if the clock is too coarse */
    double steps =
        p->step_s > 0 ? floor((left - p->transfer_s) / p->step_s + 0.125) : s->all.interval;

    steps = fmax(1, fmin(steps, floor(s->quota_max * s->all.interval)));
    p->quota = fmax(ceil(p->quota / 2), fmin(steps, 2 * p->quota));
    return (uint32_t)p->quota;
}

static double next_interval(const oscars *s)
{
    const double most = (double)s->interval;
    double next = most;

    if (s->adapt == GROW)
        next = fmin(ceil(most * (1 + s->growth * s->all.rounds)), INTERVAL_MOST);
    else if (s->adapt == LOSS && s->all.first_loss > 0)
        /* a mean approaches a value from above */
        next = fmax(1, fmin(most, ceil(most * sqrt(s->all.loss / s->all.first_loss) * (1 - 1e-6))));
    return fmin(next, 2 * s->all.interval);
}

/* After a round: computes the interval and length of the next. */
static void look_ahead(tutti_method *m)
{
    oscars *s = m->self;
    const double loss = s->loss / s->steps;

    if (loss > 0 && isfinite(loss)) {
        s->all.loss = smooth(s->all.loss, s->all.first_loss, loss);
        s->all.first_loss = s->all.first_loss > 0 ? s->all.first_loss : loss;
    }
    s->all.rounds++;
    s->all.interval = next_interval(s);
    s->all.target_s = target(m);
}

/* ---- rounds: server's thread ---- */

/* Adds the deltas that have arrived to w. */
static void apply_deltas(tutti_method *m, int64_t now_ns)
{
    oscars *s = m->self;
    const double scale = s->weights == NORMALISED ? s->weighed_steps / s->weight / s->weight
                                                  : 1 / s->weight,
                 actual_s = (double)(now_ns - s->begun_ns) * 1e-9;

    tutti_server_add(s->server, (float)scale, s->sum);
    if (m->workers == 1)
        tutti_copy(m->device, m->layout->used, s->sum, tutti_server_values(s->server));
    tutti_fill(m->device, m->layout->used, 0, s->sum);
    for (int i = 0; i < m->workers; i++) {
        delivery *p = &s->delivery[i];
        s->record[i].effective_steps += scale * p->weight * p->steps;
        if (p->weight > 0 && p->sent_ns > 0) {
            s->record[i].waited_s += (double)(now_ns - p->arrived_ns) * 1e-9;
            s->record[i].spent_s += (double)(now_ns - p->sent_ns) * 1e-9;
        }
        p->weight = p->steps = 0;
    }
    if (s->all.target_s > 0) {
        s->all.rounds_timed++;
        s->all.predicted_s += s->all.target_s;
        s->all.actual_s += actual_s;
    }
    look_ahead(m);
    s->weight = s->weighed_steps = s->steps = s->loss = 0;
}

/* Answers the workers that wait; once all have left, also these: then the next round is the first
   of a phase. */
static tutti_status send_off(tutti_method *m, int64_t now_ns, tutti_error *err)
{
    oscars *s = m->self;
    const bool rests = s->present == 0;
    int n = 0;

    for (int i = 0; i < m->workers; i++) {
        delivery *p = &s->delivery[i];
        if (rests ? !p->gone : !p->waits)
            continue;
        s->requests[n] = p->note;
        s->quotas[n++] = quota(s, i, s->all.target_s);
        p->waits = false;
        p->gone = false;
        p->sent_ns = rests ? 0 : now_ns;
    }
    s->waiting = 0;
    s->present += rests ? n : 0;
    s->begun_ns = rests ? 0 : now_ns;
    tutti_server_wake_at(s->server, TUTTI_FOREVER);
    return tutti_server_give_each(s->server, s->requests, n, s->quotas, err);
}

static tutti_status end_if_over(tutti_method *m, int64_t now_ns, tutti_error *err)
{
    oscars *s = m->self;

    if (s->waiting < s->present) {
        int64_t deadline_ns;
        if (s->waiting == 0 || s->waiting < ceil(s->quorum * s->present - 1e-9))
            return TUTTI_OK;
        s->all.target_s = s->all.target_s > 0 ? s->all.target_s : target(m);
        deadline_ns = s->begun_ns + (int64_t)fmin(s->all.target_s * (1 + s->grace) * 1e9, 1e17);
        if (now_ns < deadline_ns) {
            tutti_server_wake_at(s->server, deadline_ns);
            return TUTTI_OK;
        }
    }
    if (s->weight > 0)
        apply_deltas(m, now_ns);
    return send_off(m, now_ns, err);
}

static tutti_status due(tutti_method *m, tutti_error *err)
{
    return end_if_over(m, tutti_now_ns(m->rt), err);
}

/* Takes a delta; false if it is too old. */
static bool add_delta(tutti_method *m, const tutti_server_request *r, double steps, double loss)
{
    oscars *s = m->self;
    record *p = &s->record[r->worker];
    const double part = 1 / (1 + (double)r->delay),
                 weight = s->weights == STEPS ? part * steps : part;

    p->pushes++;
    if (r->delay > (uint64_t)s->max_late) {
        p->steps_dropped += steps;
        return false;
    }
    *(r->delay > 0 ? &p->steps_late : &p->steps_applied) += steps;
    s->all.oldest = fmax(s->all.oldest, (double)r->delay);
    s->delivery[r->worker].weight = s->weights == NORMALISED ? weight / steps : weight;
    s->delivery[r->worker].steps = steps;
    if (m->workers > 1)
        tutti_axpy(m->device, r->count, (float)s->delivery[r->worker].weight, r->in, s->sum);
    else
        tutti_copy(m->device, r->count, r->in, s->sum);
    s->weight += weight;
    s->weighed_steps += part * steps;
    s->steps += steps;
    s->loss += steps * loss;
    return true;
}

static void learn_times(oscars *s, int worker, int64_t now_ns, double steps, double seconds)
{
    record *p = &s->record[worker];
    const int64_t sent_ns = s->delivery[worker].sent_ns;

    p->step_s = smooth(p->step_s, p->steps_timed, seconds / steps);
    p->steps_timed += steps;
    if (s->begun_ns == 0)
        s->begun_ns = now_ns - (int64_t)(seconds * 1e9);
    if (sent_ns == 0)
        return;
    p->transfer_s = smooth(p->transfer_s, p->transfers_timed,
                           fmax(0, (double)(now_ns - sent_ns) * 1e-9 - seconds));
    p->transfers_timed++;
}

static tutti_status lose(tutti_method *m, int worker, tutti_error *err)
{
    oscars *s = m->self;
    delivery *p = &s->delivery[worker];

    s->present -= !p->gone;
    s->waiting -= p->waits;
    p->waits = p->gone = false;
    return end_if_over(m, tutti_now_ns(m->rt), err);
}

static void unpack(int64_t b, float *seconds, float *loss)
{
    float both[2];

    memcpy(both, &b, sizeof both);
    *seconds = both[0];
    *loss = both[1];
}

static tutti_status on_request(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    oscars *s = m->self;
    delivery *p = &s->delivery[r->worker];
    const int64_t now_ns = tutti_now_ns(m->rt);
    const bool leaves = r->kind & LEAVES;
    const uint32_t steps = r->kind / 2;
    bool counts = true;
    float seconds, loss;

    unpack(r->b, &seconds, &loss);
    if (p->gone || steps > s->record[r->worker].quota || (steps == 0 && !leaves) ||
        (steps == 0) != (r->in == NULL) || !(seconds >= 0 && seconds < 1e9f))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d sent %lu steps of %g seconds, %s a displacement, of the "
                               "%g it was given; all workers must run one version and one "
                               "checkpoint",
                               r->worker, (unsigned long)steps, (double)seconds,
                               r->in == NULL ? "without" : "with", s->record[r->worker].quota);
    if (steps > 0) {
        learn_times(s, r->worker, now_ns, steps, (double)seconds);
        counts = add_delta(m, r, steps, (double)loss);
    }
    p->note = r->note;
    p->arrived_ns = now_ns;
    if (leaves) {
        p->gone = true;
        s->present--;
    } else if (counts) {
        p->waits = true;
        s->waiting++;
    } else {
        p->sent_ns = now_ns;
        return tutti_server_give(
            s->server, &r->note, 1,
            quota(s, r->worker, s->all.target_s - (double)(now_ns - s->begun_ns) * 1e-9), err);
    }
    return end_if_over(m, now_ns, err);
}

static tutti_status oscars_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((oscars *)m->self)->server, err);
}

/* ---- client ---- */

static tutti_status oscars_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_server_setup setup = {
        .rule = on_request, .service = SERVE, .servers = 1, .due = due, .lost = lose
    };
    oscars *s = m->self;

    TUTTI_TRY(tutti_server_declare(&s->server, m, plan, &setup, err));
    /* equal to x at quiescence */
    tutti_declare_vector(plan, "oscars.base", TUTTI_SCRATCH, &s->base);
    tutti_declare_value(plan, "oscars.quota", TUTTI_OWN_ZERO, &s->quota, sizeof s->quota);
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "oscars.sum", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = m->n },
        &s->sum);
    tutti_declare(plan,
                  &(tutti_state){ .name = "oscars.workers",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F64,
                                  .count = (size_t)m->workers * sizeof(record) / sizeof(double),
                                  .of_workers = true },
                  &s->record);
    tutti_declare_value(plan, "oscars.all", TUTTI_SLICE, &s->all, sizeof s->all);
    return TUTTI_OK;
}

static tutti_status oscars_open(tutti_method *m, tutti_error *err)
{
    oscars *s = m->self;
    const size_t workers = (size_t)m->workers;

    s->delivery = tutti_alloc(workers, sizeof *s->delivery);
    s->requests = tutti_alloc(workers, sizeof *s->requests);
    s->quotas = tutti_alloc(workers, sizeof *s->quotas);
    s->sorted = tutti_alloc(workers, sizeof *s->sorted);
    if (s->delivery == NULL || s->requests == NULL || s->quotas == NULL || s->sorted == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'oscars'");
    s->quota = 1;
    s->all.interval = 1;
    s->present = m->workers;
    for (int i = 0; i < m->workers && s->record != NULL; i++)
        s->record[i].quota = 1;
    return TUTTI_OK;
}

/* The statistics are of the present workers. Another number of workers has no assigned steps but
   the probe. */
static tutti_status oscars_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    oscars *s = m->self;

    (void)began, (void)err;
    if (s->record == NULL)
        return TUTTI_OK;
    for (int i = 0; i < m->workers && left != m->workers; i++)
        s->record[i].quota = 1;
    s->all.target_s = s->all.target_s > 0 ? target(m) : 0;
    return TUTTI_OK;
}

static void oscars_close(tutti_method *m)
{
    oscars *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->delivery);
    tutti_free(s->requests);
    tutti_free(s->quotas);
    tutti_free(s->sorted);
}

static tutti_status oscars_resume(tutti_method *m, tutti_error *err)
{
    oscars *s = m->self;

    (void)err;
    if (m->x != NULL)
        tutti_copy(m->device, m->n, m->x, s->base);
    s->counted_ns = tutti_computed_ns(m);
    return TUTTI_OK;
}

static int64_t pack(double seconds, double loss)
{
    const float both[2] = { (float)seconds, (float)loss };
    int64_t b;

    memcpy(&b, both, sizeof b);
    return b;
}

/* Sends the steps made since w came, and receives the next w. */
static tutti_status hand_in(tutti_method *m, bool leaves, tutti_error *err)
{
    oscars *s = m->self;
    const int64_t now_ns = tutti_computed_ns(m);
    const int64_t b = pack((double)(now_ns - s->counted_ns) * 1e-9,
                           s->done > 0 ? s->loss_sum / (double)s->done : 0);
    tutti_server_answers answers;

    if (m->workers > 1)
        /* g is free: the gradient has been used */
        tutti_diff(m->device, m->layout->used, 1, m->x, s->base, m->g);
    else
        tutti_copy(m->device, m->layout->used, m->x, m->g);
    TUTTI_TRY(tutti_server_push(s->server, (uint32_t)s->done * 2 + (leaves ? LEAVES : 0), b,
                                s->done > 0 ? m->g : NULL, m->x, &answers, err));
    if (s->done > 0)
        tutti_stale(m, answers.delay);
    tutti_copy(m->device, m->layout->used, m->x, s->base);
    s->quota = answers.kind;
    s->done = 0;
    s->loss_sum = 0;
    s->counted_ns = now_ns;
    return TUTTI_OK;
}

static tutti_status oscars_step(tutti_method *m, tutti_error *err)
{
    oscars *s = m->self;

    TUTTI_TRY(tutti_base_step(m, err));
    s->done++;
    s->loss_sum += m->loss;
    return s->done >= s->quota ? hand_in(m, false, err) : TUTTI_OK;
}

static tutti_status oscars_retire(tutti_method *m, tutti_error *err)
{
    return hand_in(m, true, err);
}

/* All have had the server's model since they left. */
static tutti_status oscars_final_model(tutti_method *m, tutti_error *err)
{
    (void)m, (void)err;
    return TUTTI_OK;
}

static tutti_status oscars_quiesce(tutti_method *m, tutti_error *err)
{
    const oscars *s = m->self;

    (void)err;
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    if (m->x != NULL)
        tutti_copy(m->device, m->layout->used, tutti_server_values(s->server), m->x);
    for (int i = 0; i < m->workers; i++) {
        const record *p = &s->record[i];
        tutti_metric(m, "quota", i, p->quota);
        tutti_metric(m, "step_seconds", i, p->step_s);
        tutti_metric(m, "transfer_seconds", i, p->transfer_s);
        tutti_metric(m, "idle_share", i, p->spent_s > 0 ? p->waited_s / p->spent_s : 0);
        tutti_metric(m, "pushes", i, p->pushes);
        tutti_metric(m, "steps_applied", i, p->steps_applied);
        tutti_metric(m, "steps_late", i, p->steps_late);
        tutti_metric(m, "steps_dropped", i, p->steps_dropped);
        tutti_metric(m, "effective_steps", i, p->effective_steps);
    }
    tutti_metric(m, "rounds", -1, s->all.rounds);
    tutti_metric(m, "interval", -1, s->all.interval);
    tutti_metric(m, "round_seconds", -1,
                 s->all.rounds_timed > 0 ? s->all.actual_s / s->all.rounds_timed : 0);
    tutti_metric(m, "round_seconds_planned", -1,
                 s->all.rounds_timed > 0 ? s->all.predicted_s / s->all.rounds_timed : 0);
    tutti_metric(m, "applied_delay_max", -1, s->all.oldest);
    return TUTTI_OK;
}

static const tutti_service oscars_services[] = { [SERVE] = { "server", oscars_serve }, { 0 } };

static const char *const oscars_constraints[] = {
    "experimental: reconstructed from the paper's abstract, since the full text was not available; "
    "it may differ from the paper",
    "a semi-synchronous local SGD: --steps N is N x workers gradients by whichever worker is free; "
    "runs differ in their bits, except simulated ones",
    "with data of their own (--partition) fast workers weigh more, unless weights=normalised",
    "optimiser state stays each worker's own",
    "the loss of the server ends the run (exit code 3); no round waits for any other worker that "
    "is lost, and quorum is of the workers that are left; the model is at the server, and a "
    "checkpoint, saved before a loss or after one, is resumed with any number of workers",
    NULL
};

/* Of a worker of median speed; fewer where `adapt` has made H smaller. */
static uint64_t oscars_repeats(const void *self)
{
    return (uint64_t)((const oscars *)self)->interval;
}

const tutti_method_ops tutti_method_oscars = {
    .name = "oscars",
    .title =
        "Oscars: unequal numbers of local steps, by a server's view of all speeds (reconstructed)",
    .authors = "Huang",
    .year = 2021,
    .family = "server",
    .axes = { "one server", "rounds of unequal steps, without late workers", "fp32", "none",
              "a model each", "any, local" },
    .constraints = oscars_constraints,
    .options = oscars_options,
    .repeats = oscars_repeats,
    .self_bytes = sizeof(oscars),
    .traits = TUTTI_PARAMETER_SERVERS | TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .services = oscars_services,
    .declare = oscars_declare,
    .open = oscars_open,
    .close = oscars_close,
    .step = oscars_step,
    .final_model = oscars_final_model,
    .retire = oscars_retire,
    .quiesce = oscars_quiesce,
    .resume = oscars_resume,
    .resized = oscars_resized,
};
