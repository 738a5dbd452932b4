/* decoupled-diloco: DiLoCo without a barrier. Workers step alone; a server (the syncer) merges how
   far they have moved as soon as a quorum of them has answered, and moves the common model by it.
   After Douillard et al., "Decoupled DiLoCo for Resilient Distributed Pre-training", 2026, arXiv
   2604.21428.
   RECONSTRUCTED: abstract, figures and restatements were available, and no code. What they leave
   open is chosen here.
   M workers; theta, v: the server's model and outer momentum; H = period; c_m, n_m: steps and
   samples of worker m since it received theta last
     worker     x_m <- inner_step(x_m, g_m) for ever. After H steps it answers: it sends x_m, and
                waits until it is merged. With a quorum below M it also reports every `report`
                steps; the reply is to go on, to answer with what it has, or theta
     server     once K = quorum answers are in hand, and then for `grace` steps of those that wait,
                all others may answer with c_m < H. Merges what is in hand, in order of rank:
                D = sum w_m (theta - x_m) / sum w_m,  w_m = n_m n_m / c_m
                theta, v <- Outer(theta, v, D);  sends theta to those that it has merged
     late       an answer that began at an older theta is dropped, and its worker given theta: at
                its next report, before it sends anything
     merge=rda  in each tensor, phi(x) = x / |x|, phi(0) = 0:
                D = (sum w |D_m| / sum w) phi(sum w phi(D_m) / sum w);  tables: the mean
   The anchor is the server's theta, and not what m began from. With quorum=all, equal samples and
   merge=mean it is diloco with the same outer optimiser, to the bit.

   Choices:
   1. One fragment, the whole model. The paper exchanges 24, one a step.
   2. Nothing is computed during a merge (tau = 0): a worker that has answered waits for the quorum
      and the grace, never for a late worker. The paper's grace is what an overlap of tau steps
      leaves: gamma max(0, tau step - quorum - transfer), at most one step. Without an overlap that
      is 0 and would drop nearly all answers; so `grace` is a number of steps, 1 by default. A step
      is the mean over those that wait of 0.8 old + 0.2 new, from theta to the answer.
   3. Only the quorum's workers must have made H steps. A worker that is slower answers within the
      grace with the steps that it has.
   4. Samples stand for tokens. Where no answer has any all weigh the same.
   5. Outer optimiser as diloco's: Nesterov, 0.7, 0.9.
   6. outer=none with merge=mean is the mean of the models.
   7. A quorum is of the workers that are left, if those are fewer.
   8. At the end of a phase (a checkpoint, the end of the run) a worker that leaves answers with
      what it has. Its answer is merged with the next, and when all have left what is in hand is
      merged and all are sent theta. So the agreed model is the server's, and no step is lost but
      what was late. A worker that leaves counts for no quorum.
   9. The syncer moves when its rank is lost (src/server/server.h): a standby makes each merge from
      the same D before any worker is given theta. A request that the lost server left unanswered is
      sent again. `settled` has which answers are in a merge or were dropped, so that none is
      counted twice. Records since the last merge are lost. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/method/server.h"
#include "server/server.h"

/* The server's record of a worker. All members are doubles, also counts, since it is declared as a
   vector of doubles. */
typedef struct record {
    double step_s, timed;        /* seconds a step; 0 of timed: not known */
    double answers, merged, late; /* answers received, and what became of them */
    double reports, given;       /* reports received; how often it was sent theta */
    double steps_merged, steps_dropped;
    double effective_steps;      /* sum over merges of its steps times its weight */
} record;
/* A worker's part in the next merge. Service thread. */
typedef struct answer {
    double began;                /* 1 + the version of the model that it began at */
    bool here;                   /* its answer is in hand */
    bool waits;                  /* and its request is to be replied to after the merge */
    bool gone;                   /* it has left the phase: is replied to when all have */
    tutti_header note;           /* that request */
    float *x;                    /* [n]: its model, in the request's memory */
    double steps, samples;
} answer;
typedef struct decoupled {
    int64_t period, report;
    const char *quorum, *outer;
    double grace;
    int weights, merge, standby;
    int needed;                  /* the quorum as a number */
    tutti_server *server;

    /* client thread */
    int64_t steps, samples;      /* c_m, n_m */

    /* the server: service thread */
    tutti_optim *update;         /* the outer optimiser; NULL: none */
    record *record;              /* [workers]; declared */
    struct {
        double merges, members;  /* merges, and how many answers they had together */
    } all;                       /* declared */
    answer *hand;                /* [workers] */
    double *settled;             /* [workers]: `began` of its last answer that was merged or
                                    dropped. One that is sent again to another server is neither */
    int64_t over;                /* the last phase that all have left. Not a flag: a copy of it may
                                    come when the standby's client is in the next phase */
    _Atomic int64_t phase;       /* this rank's phase, from 1 on; written while services rest */
    int64_t deadline_ns;         /* end of the grace; 0: there is no quorum */
    tutti_header *requests;      /* [workers]: scratch, as the next three */
    float **part, *weight, *by;
} decoupled;
enum { SERVE };                  /* service */
enum { PACE, SAMPLES, UNIFORM };
enum { MEAN, RDA };
/* A request's kind is 4 x its steps + what it is. */
enum { REPORT, ANSWER, LEAVES };
enum { GO_ON, SEND };            /* replies to reports without theta */
enum { MEMBERS_MOST = 4096 };    /* tutti_tree_sum's */

static const tutti_option decoupled_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(decoupled, period), 64, 1, 1000000, NULL,
      "H: steps of a worker between two answers" },
    { "outer", TUTTI_SPEC, TUTTI_AT(decoupled, outer), 0, 0, 0,
      "sgd(lr=0.7,momentum=0.9,nesterov=true)",
      "optimiser of the merged displacement, at the server; none: the plain mean" },
    { "quorum", TUTTI_TEXT, TUTTI_AT(decoupled, quorum), 0, 0, 0, "all",
      "answers that a merge waits for: a number, or all; 1: no worker waits for another" },
    { "grace", TUTTI_REAL, TUTTI_AT(decoupled, grace), 1, 0, 1e6, NULL,
      "how long the quorum then waits for the others, in steps; for a quorum below the number of "
      "workers" },
    { "report", TUTTI_INT, TUTTI_AT(decoupled, report), 1, 1, 1000000, NULL,
      "steps between two reports of a worker, in which it learns of merges; for a quorum below the "
      "number of workers" },
    { "weights", TUTTI_CHOICE, TUTTI_AT(decoupled, weights), PACE, 0, 2, "pace|samples|uniform",
      "what an answer counts: its samples times samples a step; its samples; all the same" },
    { "merge", TUTTI_CHOICE, TUTTI_AT(decoupled, merge), MEAN, 0, 1, "mean|rda",
      "the weighted mean of displacements; or mean length times mean direction, of each tensor" },
    { "standby", TUTTI_INT, TUTTI_AT(decoupled, standby), 1, 0, 4096, NULL,
      "workers that may take the server's place, one after the other, when it is lost" },
    { 0 }
};

static int64_t phase_of(const decoupled *s)
{
    return atomic_load_explicit(&s->phase, memory_order_relaxed);
}

/* ---- merging: server's thread ---- */

static double weight_of(const decoupled *s, const answer *a)
{
    switch (s->weights) {
    case PACE: return a->samples * (a->samples / a->steps);
    case SAMPLES: return a->samples;
    default: return 1;
    }
}

/* Lists the answers in hand by rank: part, weight (sum 1). Returns how many. */
static int list_hand(const tutti_method *m)
{
    decoupled *s = m->self;
    double sum = 0;
    int n = 0, k = 0;

    for (int r = 0; r < m->workers; r++) {
        n += s->hand[r].here;
        sum += s->hand[r].here ? weight_of(s, &s->hand[r]) : 0;
    }
    for (int r = 0; r < m->workers; r++)
        if (s->hand[r].here) {
            s->part[k] = s->hand[r].x;
            s->weight[k++] = (float)(sum > 0 ? weight_of(s, &s->hand[r]) / sum : 1.0 / n);
        }
    return n;
}

static void sum_parts(const tutti_method *m, int n, size_t first, size_t count, const float *weight)
{
    decoupled *s = m->self;

    for (int k = 0; k < n; k++)
        s->part[k] += first;
    tutti_tree_sum(m->device, count, n, (const float *const *)s->part, weight, s->part[0]);
    for (int k = 0; k < n; k++)
        s->part[k] -= first;
}

/* The first part := the mean length of the parts in a tensor, in their mean direction. */
static void merge_directions(const tutti_method *m, int n, const tutti_tensor *t)
{
    decoupled *s = m->self;
    float *const d = s->part[0] + t->first;
    double radius = 0, length;

    for (int k = 0; k < n; k++) {
        const double norm = sqrt(tutti_norm2(m->device, t->count, s->part[k] + t->first));
        radius += (double)s->weight[k] * norm;
        s->by[k] = norm > 0 ? (float)((double)s->weight[k] / norm) : 0;
    }
    sum_parts(m, n, t->first, t->count, s->by);
    length = sqrt(tutti_norm2(m->device, t->count, d));
    tutti_scale(m->device, t->count, length > 0 ? (float)(radius / length) : 0, d);
}

/* Moves theta along d; without an outer optimiser and rda, to d. */
static void move(tutti_method *m, float *d)
{
    decoupled *s = m->self;

    if (s->update != NULL) {
        tutti_update(s->update, 0, m->layout->used, tutti_server_values(s->server), d,
                     &(tutti_rate){ tutti_optim_lr(s->update), 1, (uint64_t)s->all.merges + 1 });
        tutti_server_changed(s->server);
    } else if (s->merge == RDA)
        tutti_server_add(s->server, -1, d);
    else
        tutti_server_blend(s->server, 1, d);
}

/* The n answers' models -> theta: sum w x of them, or an outer step. They are overwritten. Returns
   what theta was moved by. */
static const float *step_outer(tutti_method *m, int n)
{
    decoupled *s = m->self;
    const tutti_layout *l = m->layout;
    float *const theta = tutti_server_values(s->server);
    const bool displaced = s->update != NULL || s->merge == RDA;

    for (int k = 0; k < n && displaced; k++)
        tutti_diff(m->device, l->used, 1, theta, s->part[k], s->part[k]);
    if (s->merge == MEAN)
        sum_parts(m, n, 0, l->used, s->weight);
    for (int t = 0; t < l->n_tensors && s->merge == RDA; t++)
        if (l->tensor[t].row_sparse)
            sum_parts(m, n, l->tensor[t].first, l->tensor[t].count, s->weight);
        else
            merge_directions(m, n, &l->tensor[t]);
    move(m, s->part[0]);
    return s->part[0];
}

/* Sends theta to those that wait, or, once all have left, to these. */
static tutti_status send_theta(tutti_method *m, bool all_left, tutti_error *err)
{
    decoupled *s = m->self;
    int n = 0;

    for (int r = 0; r < m->workers; r++) {
        answer *a = &s->hand[r];
        if (all_left ? !a->gone : !a->waits)
            continue;
        a->waits = a->gone = false;
        s->record[r].given++;
        s->requests[n++] = a->note;
    }
    return n > 0 ? tutti_server_give(s->server, s->requests, n, GO_ON, err) : TUTTI_OK;
}

/* Returns what theta was moved by; NULL: there was nothing to merge. */
static const float *merge_hand(tutti_method *m)
{
    decoupled *s = m->self;
    const int n = list_hand(m);
    const float *moved;
    int k = 0;

    if (n == 0)
        return NULL;
    moved = step_outer(m, n);
    s->all.merges++;
    s->all.members += n;
    for (int r = 0; r < m->workers; r++) {
        if (!s->hand[r].here)
            continue;
        s->hand[r].here = false;
        s->record[r].effective_steps += (double)s->weight[k++] * s->hand[r].steps;
        s->record[r].merged++;
        s->record[r].steps_merged += s->hand[r].steps;
        s->settled[r] = s->hand[r].began;
    }
    return moved;
}

/* ---- the standby ---- */

enum { NOTE_PARTS = 4 };
typedef struct note_part {
    void *at;
    size_t bytes;
} note_part;

/* What a standby has to know in addition to theta and v, in the order of the note. */
static void note_parts(decoupled *s, int workers, note_part part[NOTE_PARTS])
{
    part[0] = (note_part){ s->record, (size_t)workers * sizeof *s->record };
    part[1] = (note_part){ s->settled, (size_t)workers * sizeof *s->settled };
    part[2] = (note_part){ &s->all, sizeof s->all };
    part[3] = (note_part){ &s->over, sizeof s->over };
}

static void write_note(tutti_method *m, void *note)
{
    note_part part[NOTE_PARTS];
    char *at = note;

    note_parts(m->self, m->workers, part);
    for (int i = 0; i < NOTE_PARTS; at += part[i++].bytes)
        memcpy(at, part[i].at, part[i].bytes);
}

static size_t note_bytes(const tutti_method *m)
{
    note_part part[NOTE_PARTS];
    size_t bytes = 0;

    note_parts(m->self, m->workers, part);
    for (int i = 0; i < NOTE_PARTS; i++)
        bytes += part[i].bytes;
    return bytes;
}

/* On the standby: makes the merge that the server has made. */
static tutti_status copied(tutti_method *m, float *moved, const void *note, tutti_error *err)
{
    note_part part[NOTE_PARTS];
    const char *at = note;

    (void)err;
    if (moved != NULL)
        move(m, moved);
    note_parts(m->self, m->workers, part);
    for (int i = 0; i < NOTE_PARTS; at += part[i++].bytes)
        memcpy(part[i].at, at, part[i].bytes);
    return TUTTI_OK;
}

/* Nanoseconds that a quorum waits for the others. */
static int64_t grace_ns(const tutti_method *m)
{
    const decoupled *s = m->self;
    double sum = 0;
    int n = 0;

    for (int r = 0; r < m->workers; r++)
        if (s->hand[r].waits && s->record[r].timed > 0) {
            sum += s->record[r].step_s;
            n++;
        }
    return n == 0 ? 0 : (int64_t)fmin(s->grace * sum / n * 1e9, 1e17);
}

/* Merges if it is time to. */
static tutti_status proceed(tutti_method *m, tutti_error *err)
{
    decoupled *s = m->self;
    const float *moved;
    int present = 0, waiting = 0;

    for (int r = 0; r < m->workers; r++)
        if (tutti_server_has(s->server, r)) {
            present += !s->hand[r].gone;
            waiting += s->hand[r].waits;
        }
    if (waiting < present) {
        const int64_t now_ns = tutti_now_ns(m->rt);
        const bool quorum = waiting > 0 && waiting >= s->needed;
        s->deadline_ns = !quorum ? 0 : s->deadline_ns > 0 ? s->deadline_ns : now_ns + grace_ns(m);
        tutti_server_wake_at(s->server, quorum ? s->deadline_ns : TUTTI_FOREVER);
        if (!quorum || now_ns < s->deadline_ns)
            return TUTTI_OK;
    }
    s->deadline_ns = 0;
    tutti_server_wake_at(s->server, TUTTI_FOREVER);
    moved = merge_hand(m);
    s->over = present == 0 ? phase_of(s) : s->over;
    if (moved != NULL || present == 0) /* before any worker sees it */
        TUTTI_TRY(tutti_server_copy(s->server, moved, err));
    return send_theta(m, present == 0, err);
}

/* ---- requests: server's thread ---- */

static void learn_seconds(const tutti_method *m, int worker, double steps)
{
    const decoupled *s = m->self;
    record *p = &s->record[worker];
    const double took =
        (double)(tutti_now_ns(m->rt) - tutti_server_given_ns(s->server, worker)) * 1e-9 / steps;

    if (took > 0) {
        p->step_s = p->timed > 0 ? 0.8 * p->step_s + 0.2 * took : took;
        p->timed++;
    }
}

/* Refuses what no worker of this version sends. */
static tutti_status check(const tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    const decoupled *s = m->self;
    const uint32_t what = r->kind % 4, steps = r->kind / 4;
    const bool brings = what == ANSWER || (what == LEAVES && steps > 0);

    if (what <= LEAVES && brings == (r->in != NULL) && (steps > 0 || what == LEAVES) && r->b >= 0 &&
        !s->hand[r->worker].waits && !s->hand[r->worker].gone)
        return TUTTI_OK;
    return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                           "worker %d sent a request of kind %lu, of %lu steps and %lld samples, %s "
                           "its model; all workers must run one version",
                           r->worker, (unsigned long)what, (unsigned long)steps, (long long)r->b,
                           r->in == NULL ? "without" : "with");
}

static tutti_status on_request(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    decoupled *s = m->self;
    record *p = &s->record[r->worker];
    answer *a = &s->hand[r->worker];
    const uint32_t what = r->kind % 4, steps = r->kind / 4;
    const bool late = r->delay > 0;
    const double began = 1 + (double)(tutti_server_version(s->server) - r->delay);
    const bool settled = s->settled[r->worker] == began; /* by a server that is lost */

    TUTTI_TRY(check(m, r, err));
    if (what == REPORT) {
        p->reports++;
        if (!late)
            return tutti_server_answer(s->server, &r->note, 1, s->deadline_ns > 0 ? SEND : GO_ON,
                                       NULL, 0, err);
    } else if (r->in != NULL && !settled) {
        p->answers++;
        p->late += late;
        learn_seconds(m, r->worker, steps);
    }
    if (late && !settled) {
        p->steps_dropped += steps;
        s->settled[r->worker] = began;
    }
    if ((late && what != LEAVES) || s->over == phase_of(s)) { /* or all have left and got theta */
        p->given++;
        return tutti_server_give(s->server, &r->note, 1, GO_ON, err);
    }
    *a = (answer){ .began = began, .here = r->in != NULL && !late, .waits = what == ANSWER, .gone = what == LEAVES,
                   .note = r->note, .x = r->in, .steps = steps, .samples = (double)r->b };
    return proceed(m, err);
}

static tutti_status lose(tutti_method *m, int worker, tutti_error *err)
{
    decoupled *s = m->self;

    s->hand[worker] = (answer){ 0 };
    return proceed(m, err);
}

static tutti_status decoupled_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((decoupled *)m->self)->server, err);
}

/* ---- opening ---- */

static tutti_status read_quorum(const tutti_method *m, tutti_error *err)
{
    decoupled *s = m->self;
    const bool all = strcmp(s->quorum, "all") == 0;
    char *end = NULL;
    const long n = all ? m->workers : strtol(s->quorum, &end, 10);

    if (!all && (end == s->quorum || *end != 0 || n < 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'decoupled-diloco': quorum is '%s'; give a number of workers, 1 "
                          "or more, or all",
                          s->quorum);
    if (n > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'decoupled-diloco': quorum is %ld, but there are %d workers; "
                          "give at most that, or all",
                          n, m->workers);
    if ((all || (n == m->workers && n > 1)) && (s->grace != 1 || s->report != 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'decoupled-diloco': %s has no effect with quorum=%.20s, since a "
                          "merge waits for all in any case; omit it, or give a quorum below the "
                          "%d workers",
                          s->grace != 1 ? "grace" : "report", s->quorum, m->workers);
    s->needed = (int)n;
    return TUTTI_OK;
}

static void declare_served(tutti_method *m, tutti_plan *plan)
{
    decoupled *s = m->self;

    tutti_declare(plan,
                  &(tutti_state){ .name = "decoupled.workers",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F64,
                                  .count = (size_t)m->workers * sizeof(record) / sizeof(double),
                                  .of_workers = true },
                  &s->record);
    tutti_declare_value(plan, "decoupled.all", TUTTI_SLICE, &s->all, sizeof s->all);
}

static tutti_status declare_server(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_server_setup setup = {
        .rule = on_request, .service = SERVE, .servers = 1, .due = proceed, .times = true,
        .lost = lose
    };
    decoupled *s = m->self;
    const tutti_server_standby standby = {
        /* a launcher ends the run when a rank that only serves is lost */
        .ranks = m->servers > 0 ? 0 : s->standby,
        .note_bytes = note_bytes(m),
        .write = write_note,
        .copied = copied
    };

    if (m->servers > 0 && s->standby > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'decoupled-diloco': standby is %d, but the server is a rank that "
                          "only serves, whose place no worker takes; omit standby, or servers",
                          s->standby);
    return tutti_server_declare_standby(&s->server, m, plan, &setup, &standby, err);
}

static tutti_status decoupled_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    decoupled *s = m->self;

    TUTTI_TRY(read_quorum(m, err));
    if (m->workers > MEMBERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'decoupled-diloco': %d workers; the server merges at most %d",
                          m->workers, MEMBERS_MOST);
    if (strcmp(s->outer, "none") == 0)
        s->outer = "";
    TUTTI_TRY(declare_server(m, plan, err));
    if (tutti_server_index(s->server) >= 0)
        declare_served(m, plan);
    if (s->outer[0] == 0)
        return TUTTI_OK;
    /* on all ranks, so that all refuse a wrong one; it has slots where it is used */
    return tutti_fail_within(
        err,
        tutti_optim_declare(&s->update, plan, s->outer, "decoupled.outer", 0,
                            tutti_server_index(s->server) >= 0 ? m->layout->used : 0, TUTTI_SLICE,
                            m->device, err),
        "method '%s': outer", m->ops->name);
}

static tutti_status decoupled_open(tutti_method *m, tutti_error *err)
{
    decoupled *s = m->self;
    const size_t workers = (size_t)m->workers;

    atomic_init(&s->phase, 1);
    s->hand = tutti_alloc(workers, sizeof *s->hand);
    s->settled = tutti_alloc(workers, sizeof *s->settled);
    s->requests = tutti_alloc(workers, sizeof *s->requests);
    s->part = tutti_alloc(workers, sizeof *s->part);
    s->weight = tutti_alloc(workers, sizeof *s->weight);
    s->by = tutti_alloc(workers, sizeof *s->by);
    if (s->hand == NULL || s->requests == NULL || s->part == NULL || s->weight == NULL ||
        s->by == NULL || s->settled == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'decoupled-diloco'");
    return TUTTI_OK;
}

static void decoupled_close(tutti_method *m)
{
    decoupled *s = m->self;

    if (s == NULL)
        return;
    tutti_optim_close(s->update);
    tutti_free(s->hand);
    tutti_free(s->settled);
    tutti_free(s->requests);
    tutti_free(s->part);
    tutti_free(s->weight);
    tutti_free(s->by);
}

/* ---- client ---- */

/* Sends a request, with the model if there are steps to answer with, and takes theta if it is sent
   that. *answers: the reply. */
static tutti_status ask(tutti_method *m, uint32_t what, tutti_server_answers *answers,
                        tutti_error *err)
{
    decoupled *s = m->self;
    const bool brings = what != REPORT && s->steps > 0;
    tutti_status status;

    do {
        /* The gradient has been used. If x is theta in part, since the server was lost while it
           answered, this request is settled, and its model is not read. */
        if (brings)
            tutti_copy(m->device, m->layout->used, m->x, m->g);
        status = tutti_server_push(s->server, (uint32_t)s->steps * 4 + what, s->samples,
                                   brings ? m->g : NULL, m->x, answers, err);
    } while (tutti_server_moved(s->server, status, err));
    if (status != TUTTI_OK)
        return status;
    if (!answers->values)
        return TUTTI_OK;
    if (s->steps > 0)
        tutti_stale(m, answers->delay);
    s->steps = s->samples = 0;
    return TUTTI_OK;
}

static tutti_status decoupled_step(tutti_method *m, tutti_error *err)
{
    decoupled *s = m->self;
    bool answers_now;

    TUTTI_TRY(tutti_base_step(m, err));
    s->steps++;
    s->samples += m->samples;
    answers_now = s->steps >= s->period;
    if (s->needed < m->workers && (answers_now || s->steps % s->report == 0)) {
        tutti_server_answers told;
        TUTTI_TRY(ask(m, REPORT, &told, err));
        if (told.values)
            return TUTTI_OK;
        answers_now = answers_now || told.kind == SEND;
    }
    if (answers_now) {
        tutti_server_answers theta;
        return ask(m, ANSWER, &theta, err);
    }
    return TUTTI_OK;
}

static tutti_status decoupled_retire(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;

    return ask(m, LEAVES, &answers, err);
}

static void report(tutti_method *m)
{
    const decoupled *s = m->self;

    if (!tutti_server_is_here(s->server))
        return;
    for (int r = 0; r < m->workers; r++) {
        const record *p = &s->record[r];
        tutti_metric(m, "answers", r, p->answers);
        tutti_metric(m, "answers_merged", r, p->merged);
        tutti_metric(m, "answers_late", r, p->late);
        tutti_metric(m, "reports", r, p->reports);
        tutti_metric(m, "given", r, p->given);
        tutti_metric(m, "steps_merged", r, p->steps_merged);
        tutti_metric(m, "steps_dropped", r, p->steps_dropped);
        tutti_metric(m, "effective_steps", r, p->effective_steps);
        tutti_metric(m, "step_seconds", r, p->step_s);
    }
    tutti_metric(m, "merges", -1, s->all.merges);
    tutti_metric(m, "answers_a_merge", -1,
                 s->all.merges > 0 ? s->all.members / s->all.merges : 0);
}

/* All have had the server's model since they left. It may be lost since the run came to rest. */
static tutti_status decoupled_final_model(tutti_method *m, tutti_error *err)
{
    (void)err;
    report(m);
    return TUTTI_OK;
}

static tutti_status decoupled_quiesce(tutti_method *m, tutti_error *err)
{
    (void)err;
    atomic_fetch_add_explicit(&((decoupled *)m->self)->phase, 1, memory_order_relaxed);
    report(m);
    return TUTTI_OK;
}

static const tutti_service decoupled_services[] = { [SERVE] = { "server", decoupled_serve },
                                                    { 0 } };

static const char *const decoupled_constraints[] = {
    "experimental: reconstructed from the paper's abstract, figures and restatements, since its "
    "code is not public; one fragment, and nothing is computed during a merge",
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "quorum is all, or 1 to the number of workers; with it below that a worker sends the server a "
    "message every `report` steps",
    "optimiser state stays each worker's own",
    "if the server is lost a worker that stands by goes on as the server, and no merge is lost; "
    "the loss of all that may serve, or of a rank that only serves, ends the run (exit code 3); no "
    "merge waits for a worker that "
    "is lost, and a quorum is at most the workers that are left; the model is at the server, and a "
    "checkpoint, saved before a loss or after one, is resumed with any number of workers",
    NULL
};

static uint64_t decoupled_repeats(const void *self)
{
    return (uint64_t)((const decoupled *)self)->period;
}

const tutti_method_ops tutti_method_decoupled_diloco = {
    .name = "decoupled-diloco",
    .title = "Decoupled DiLoCo: merges of a quorum, at a server (reconstructed)",
    .authors = "Douillard, Rush, Donchev, Charles, Fallen, Dubey, Gog, Josef Dean, Woodworth, Garrett, "
               "Keating, Bishop, Prior, Yvinec, Szlam, Ranzato, Jeff Dean",
    .year = 2026,
    .family = "server",
    .axes = { "one server", "merges of a quorum, every period steps", "fp32", "none",
              "a model each", "any, local, and an outer one" },
    .constraints = decoupled_constraints,
    .options = decoupled_options,
    .repeats = decoupled_repeats,
    .self_bytes = sizeof(decoupled),
    .traits = TUTTI_PARAMETER_SERVERS | TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .services = decoupled_services,
    .declare = decoupled_declare,
    .open = decoupled_open,
    .close = decoupled_close,
    .step = decoupled_step,
    .final_model = decoupled_final_model,
    .retire = decoupled_retire,
    .quiesce = decoupled_quiesce,
};
