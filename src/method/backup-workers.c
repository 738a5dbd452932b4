/* backup-workers: synchronous SGD that uses the first N of N + b gradients of each step and does
   not wait for the rest. Chen, Pan, Monga, Bengio, Jozefowicz, "Revisiting Distributed
   Synchronous SGD", arXiv 1604.00981 (2016).
     worker at step t:   asks server 0 whether it is among the first N of step t
       it is:            pushes its gradient and receives w_{t+1}
       it is not:        drops its gradient, receives the newest values, w_V, and continues with
                         step V; in steps t + 1 to V - 1 it computes nothing
     server:             when the N gradients of step t have arrived: w := opt(w, their mean by
                         samples, summed by rank), sent to all workers that wait for it
   Chosen here: one server decides which workers are among the first N. Where sharded servers
   count independently (as TensorFlow's accumulators do, one for each variable), a step's shards
   would be means over different workers. The question costs an empty message and its answer, and
   saves the b late gradients: a dropped gradient is not sent, so a step sends exactly N d up.
   backup=0 needs no such question: all are waited for, with ddp's bits, by servers that update. A
   worker that was overtaken continues from the values of one step: if shards have advanced while
   it requested the values, it requests them again.
   The learning rate is for N workers. All workers count the same steps. So the samples of steps
   that a worker was too late for are not used in that epoch, and at the end of the run no worker
   waits for missing steps. Options that need a message among all workers are refused: clip-norm
   (of the mean), nonfinite=skip and loss-scale (of the step).
   Chosen here, for a loss (the paper has its spare workers for this): no step waits for a lost
   worker. N gradients may not be possible any more, since every survivor has pushed or was
   overtaken. Then each shard ends the step with the gradients that it has; without any, its values
   do not change. */
#include <errno.h>
#include <string.h>

#include "tutti/method/server.h"
#include "engine/calls.h"
#include "server/server.h"

typedef struct backup_workers {
    int64_t backup, servers;
    tutti_server *server;
    /* x is w of this step; above m->step: this worker was overtaken. Client thread */
    uint64_t at;

    /* the server: service thread */
    uint64_t step;        /* this shard's values are w of this step */
    int arrived;          /* gradients of this step that have arrived */
    bool *has;            /* [workers]: its gradient of this step has arrived */
    tutti_header *note;   /* [workers]: the request that brought it */
    float **sent;         /* [workers]: that gradient, in its receive buffer */
    float **part, *weight; /* [workers] each: scratch: gradients to sum, and their weights */
    bool *waits;          /* [workers]: it waits for a step's values */
    uint64_t *wants;      /* [workers]: that step */
    tutti_header *waiting;  /* [workers]: its request for them */
    uint64_t open;        /* server 0: the step that still accepts gradients */
    int accepted;         /* gradients accepted for it */
    bool any_lost;
} backup_workers;
enum { SERVE };                 /* service */
enum { PUSH, FETCH, ASK };      /* requests */
enum { TREE_MOST = 4096 };      /* tutti_tree_sum's */

static const tutti_option backup_workers_options[] = {
    { "backup", TUTTI_INT, TUTTI_AT(backup_workers, backup), 1, 0, 65536, NULL,
      "b: workers that a step does not wait for, whichever are last" },
    { "servers", TUTTI_INT, TUTTI_AT(backup_workers, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all" },
    { 0 }
};

static tutti_status backup_workers_rule(tutti_method *m, const tutti_server_request *r,
                                        tutti_error *err);
static tutti_status backup_workers_lost(tutti_method *m, int worker, tutti_error *err);

static tutti_status backup_workers_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    backup_workers *s = m->self;
    const tutti_server_setup setup = { .rule = backup_workers_rule,
                                       .service = SERVE,
                                       .servers = (int)s->servers,
                                       .lost = backup_workers_lost };

    if (m->workers == 1)
        s->backup = 0;
    if (s->backup >= m->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'backup-workers': backup is %lld of %d workers, which leaves none to wait for; "
            "give at most %d",
            (long long)s->backup, m->workers, m->workers - 1);
    if (m->workers > TREE_MOST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'backup-workers': %d workers; a server sums the gradients of at most %d",
            m->workers, TREE_MOST);
    return tutti_server_declare(&s->server, m, plan, &setup, err);
}

static tutti_status backup_workers_open(tutti_method *m, tutti_error *err)
{
    backup_workers *s = m->self;
    const size_t workers = (size_t)m->workers;

    s->has = tutti_alloc(workers, sizeof *s->has);
    s->sent = tutti_alloc(workers, sizeof *s->sent);
    s->note = tutti_alloc(workers, sizeof *s->note);
    s->part = tutti_alloc(workers, sizeof *s->part);
    s->weight = tutti_alloc(workers, sizeof *s->weight);
    s->waits = tutti_alloc(workers, sizeof *s->waits);
    s->wants = tutti_alloc(workers, sizeof *s->wants);
    s->waiting = tutti_alloc(workers, sizeof *s->waiting);
    if (s->has == NULL || s->sent == NULL || s->note == NULL || s->part == NULL ||
        s->weight == NULL || s->waits == NULL || s->wants == NULL || s->waiting == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'backup-workers'");
    return TUTTI_OK;
}

static void backup_workers_close(tutti_method *m)
{
    backup_workers *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->has);
    tutti_free(s->sent);
    tutti_free(s->note);
    tutti_free(s->part);
    tutti_free(s->weight);
    tutti_free(s->waits);
    tutti_free(s->wants);
    tutti_free(s->waiting);
}

/* At quiescence all are at one step. */
static tutti_status backup_workers_resume(tutti_method *m, tutti_error *err)
{
    backup_workers *s = m->self;

    (void)err;
    s->at = s->step = s->open = m->step;
    return TUTTI_OK;
}

/* ---- client ---- */

static tutti_status backup_workers_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const backup_workers *s = m->self;

    (void)err;
    if (s->at > m->step)
        p->samples = p->divisor = 0;
    return TUTTI_OK;
}

/* *behind: 0 if this gradient is one of the N, else the number of steps by which the others are
   ahead. */
static tutti_status ask_servers(tutti_method *m, const backup_workers *s, uint32_t *behind,
                                tutti_error *err)
{
    tutti_server_answers answers;

    *behind = 0;
    if (s->backup == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_server_ask(s->server, 0, ASK, (int64_t)m->step, &answers, err));
    *behind = answers.kind;
    return TUTTI_OK;
}

static tutti_status backup_workers_step(tutti_method *m, tutti_error *err)
{
    backup_workers *s = m->self;
    tutti_server_answers answers;
    tutti_rate rate;
    uint32_t behind;
    bool skip;

    if (s->at > m->step) {
        tutti_discarded(m);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_base_check(m, &rate, &skip, err)); /* only checks that it is finite */
    TUTTI_TRY(ask_servers(m, s, &behind, err));
    if (behind > 0)
        tutti_discarded(m);
    else
        TUTTI_TRY(tutti_server_push(s->server, PUSH, (int64_t)m->step, m->g, m->x, &answers, err));
    s->at = m->step + (behind == 0 ? 1 : behind);
    while (behind > 0) {
        TUTTI_TRY(tutti_server_push(s->server, FETCH, (int64_t)s->at, NULL, m->x, &answers, err));
        behind = answers.kind;
        s->at += behind;
    }
    return TUTTI_OK;
}

/* ---- server ---- */

/* The mean of the gradients that arrived, by samples; false: none had samples, and it is 0. */
static bool mean(tutti_method *m, backup_workers *s, const tutti_server_request *r, float **of,
                 size_t *words)
{
    double samples = 0;
    int n = 0;

    for (int i = 0; i < m->workers; i++)
        if (s->has[i])
            samples += (double)tutti_share_step(m->share, s->step, i);
    for (int i = 0; i < m->workers; i++)
        if (s->has[i]) {
            s->part[n] = s->sent[i];
            s->weight[n++] =
                samples > 0 ? (float)((double)tutti_share_step(m->share, s->step, i) / samples) : 0;
        }
    *of = tutti_server_sum(s->server, r, n, s->part, s->weight, words);
    return samples > 0;
}

/* A worker that has pushed has w_t: of tables it needs only the rows of the mean. One that has
   waited for this step may lack any row. */
static tutti_status end_step(tutti_method *m, backup_workers *s, const tutti_server_request *r,
                             tutti_error *err)
{
    const tutti_rate rate = tutti_rate_at(m, s->step);
    const int n = s->arrived;
    int waiting = 0;
    float *along = NULL;
    size_t words = 0;

    if (n > 0 && mean(m, s, r, &along, &words))
        tutti_server_update(s->server, along, &rate);
    s->step++;
    s->arrived = 0;
    memset(s->has, 0, (size_t)m->workers * sizeof *s->has);
    for (int i = 0; i < m->workers; i++)
        if (s->waits[i] && s->wants[i] == s->step) {
            s->note[n + waiting++] = s->waiting[i];
            s->waits[i] = false;
        }
    if (n == 0) /* all accepted workers were lost: the values are unchanged */
        return waiting > 0 ? tutti_server_give(s->server, s->note, waiting, 0, err) : TUTTI_OK;
    return tutti_server_give_update(s->server, s->note, n, waiting, 0, along, words, err);
}

/* No survivor may still push to this step: each has pushed, or waits for a later step. */
static bool has_all_it_can_have(const tutti_method *m, const backup_workers *s)
{
    bool any = false;

    for (int i = 0; i < m->workers && s->any_lost; i++) {
        if (tutti_server_has(s->server, i) && !s->has[i] && !s->waits[i])
            return false;
        any = any || tutti_server_has(s->server, i);
    }
    return any;
}

static tutti_status end_without_the_lost(tutti_method *m, backup_workers *s, tutti_error *err)
{
    tutti_server_request slice = { 0 };

    slice.count = tutti_server_part(s->server, tutti_server_index(s->server), 0, m->layout->used,
                                    &slice.first);
    while (has_all_it_can_have(m, s))
        TUTTI_TRY(end_step(m, s, &slice, err));
    return TUTTI_OK;
}

static tutti_status add_gradient(tutti_method *m, backup_workers *s, const tutti_server_request *r,
                                 tutti_error *err)
{
    if (r->in == NULL || (uint64_t)r->b != s->step || s->has[r->worker])
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, r->worker,
            "worker %d sent a gradient of step %lld when step %llu was due; all workers must run "
            "one version and one checkpoint",
            r->worker, (long long)r->b, (unsigned long long)s->step);
    s->sent[r->worker] = r->in; /* the gradient stays where it is: it is in floats */
    s->has[r->worker] = true;
    s->note[s->arrived++] = r->note;
    return s->arrived == m->workers - (int)s->backup ? end_step(m, s, r, err)
                                                     : end_without_the_lost(m, s, err);
}

static tutti_status fetch(tutti_method *m, backup_workers *s, const tutti_server_request *r,
                          tutti_error *err)
{
    const uint64_t wanted = (uint64_t)r->b;

    if (s->step == wanted)
        return tutti_server_give(s->server, &r->note, 1, 0, err);
    if (s->step > wanted)
        return tutti_server_answer(s->server, &r->note, 1, (uint32_t)(s->step - wanted), NULL, 0, err);
    s->waits[r->worker] = true;
    s->wants[r->worker] = wanted;
    s->waiting[r->worker] = r->note;
    return end_without_the_lost(m, s, err);
}

static tutti_status decide_step(tutti_method *m, backup_workers *s, const tutti_server_request *r,
                                tutti_error *err)
{
    const uint64_t step = (uint64_t)r->b;
    const uint32_t behind = step < s->open ? (uint32_t)(s->open - step) : 0;

    if (step > s->open && s->any_lost) {
        /* a worker that asks for it knows that the last step is over */
        s->open = step;
        s->accepted = 0;
    }
    if (step > s->open)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d is at step %llu, but step %llu is not over; all workers "
                               "must run one version and one checkpoint",
                               r->worker, (unsigned long long)step, (unsigned long long)s->open);
    if (behind == 0 && ++s->accepted == m->workers - (int)s->backup) {
        s->accepted = 0;
        s->open++;
    }
    return tutti_server_answer(s->server, &r->note, 1, behind, NULL, 0, err);
}

static tutti_status backup_workers_rule(tutti_method *m, const tutti_server_request *r,
                                        tutti_error *err)
{
    backup_workers *s = m->self;

    switch (r->kind) {
    case PUSH: return add_gradient(m, s, r, err);
    case FETCH: return fetch(m, s, r, err);
    default: return decide_step(m, s, r, err);
    }
}

static tutti_status backup_workers_lost(tutti_method *m, int worker, tutti_error *err)
{
    backup_workers *s = m->self;

    s->any_lost = true;
    s->waits[worker] = false;
    return end_without_the_lost(m, s, err);
}

enum {
    TRAITS = TUTTI_UNSYNCHRONIZED_STEPS | TUTTI_NEVER_SKIPS | TUTTI_REPLICAS_EQUAL |
             TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER | TUTTI_SPARSE_ROWS |
             TUTTI_FAULT_TOLERANT
};

static unsigned backup_workers_traits(const void *self)
{
    return tutti_server_traits(TRAITS, ((const backup_workers *)self)->servers == 0);
}

static tutti_status backup_workers_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((backup_workers *)m->self)->server, err);
}

static const tutti_service backup_workers_services[] = {
    [SERVE] = { "server", backup_workers_serve }, { 0 }
};

static const char *const backup_workers_constraints[] = {
    "the learning rate is for workers - backup gradients a step, whose mean it takes",
    "with backup=0 the bits are ddp's; else which gradients a step takes depends on which workers "
    "are early, so runs differ in their bits, except simulated ones",
    "a worker that is overtaken skips to the step that is open; the samples of the steps between "
    "are skipped in that epoch",
    "clip-norm, nonfinite=skip and loss-scale are refused: servers update slice by slice",
    "of tables (ctr, wordlm) gradients are sent by rows and the rows that have changed come back; "
    "a worker that was overtaken gets whole tables, and so do all workers under an optimizer that "
    "moves every row (momentum, decay or adam without lazy)",
    "a lost server ends the run (exit code 3); a worker that serves nothing (servers below the "
    "number of workers, or --servers) is one that a step need not wait for, and with fewer left "
    "than a step takes it takes those",
    NULL
};

const tutti_method_ops tutti_method_backup_workers = {
    .name = "backup-workers",
    .title = "Synchronous SGD with backup workers",
    .authors = "Chen, Pan, Monga, Bengio, Jozefowicz",
    .year = 2016,
    .family = "server",
    .axes = { "servers", "every step, without the last b", "fp32", "none", "sliced",
              "any, on slices" },
    .constraints = backup_workers_constraints,
    .options = backup_workers_options,
    .self_bytes = sizeof(backup_workers),
    .traits = TRAITS,
    .traits_of = backup_workers_traits,
    .services = backup_workers_services,
    .declare = backup_workers_declare,
    .open = backup_workers_open,
    .close = backup_workers_close,
    .pass = backup_workers_pass,
    .step = backup_workers_step,
    .resume = backup_workers_resume,
};
