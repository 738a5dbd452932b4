/* byteps: synchronous data parallelism with parameter servers, some co-located with the workers
   and some on machines of their own. Each has the share of the gradient at which all links are
   busy for the same time. Jiang, Zhu, Lan, Yi, Cui, Guo, "A Unified Architecture for Accelerating
   Distributed DNN Training in Heterogeneous GPU/CPU Clusters", OSDI 2020.
     n machines with workers, k that only serve, M bytes of a gradient, B bytes a second of a link
     each way, D = n^2 + k n - 2 k, 0 <= k <= n
     of M a machine that only serves sums   2 (n - 1) / D
            one with workers sums           (n - k) / D
     each link carries, each way            2 n (n - 1) M / D = B t_opt
   With k = 0 that is the parameter server with co-located servers, which sends what an all-reduce
   does. With k = n it is the classic one, whose workers serve nothing.
     1. a machine       its workers sum their weighted gradients (reduce-scatter, gather at the
                        first)
     2. its first       splits each chunk of the gradient over all servers by those parts, and
                        sends them at once; up to `credits` chunks are in flight
     3. server          when all have sent theirs: the sum, to all of them
     4. a machine       hands the sum on; every worker makes the update
   With a codec (--codec) chunks are messages both ways: a server decodes what it receives, adds,
   and encodes the sum again; what is lost is sent with the next (feedback, src/server/coded.c).
   Servers only add, so every optimiser, clipping and share of a step works as in ddp, to the bit.
   With async=on no worker waits for others, and the same machines hold the one model by those
   parts:
     worker             x' := one step of its optimiser from x; sends x' - x; x := what comes back
     server             model := model + what is sent, which begins as the initial weights;
                        answers at once
   The model is the sum of the initial weights and of all that was ever sent, in any order.

   Differs from the paper and its release (bytedance/byteps):
   1. A chunk is split over all servers in the proportion of the parts. The release hashes whole
      chunks to servers, so shares are right on average over many.
   2. Chunks are ranges of the flat gradient: small tensors share one. The release splits tensor
      by tensor.
   3. Push and pull are one exchange: a server answers a worker only with the sum of the round
      that its push was for, and receives the next push of a chunk only when all have been
      answered. In the release the first push of the next round overwrites what a slow worker has
      yet to pull.
   4. `credits` covers a chunk from push to pull, and is on: each chunk in flight has a thread. In
      the release it covers the reduction inside a machine, and is off. The head of the queue is
      never overtaken by a smaller chunk.
   5. With more servers than machines all of them serve, with equal parts: time stays M / B, which
      is that of a worker's link, and each has less to add. The release refuses it.
   6. Sums are in the one order of summation and not in that of arrival.
   7. With dedicated servers a worker sends one chunk at a time, and more to servers whose part is
      larger (server.h, turns): messages sent at the same time share a link equally. With k = 0 it
      sends what it has: links are equally busy then, and it is 4 % faster.
   8. A codec encodes each server's part of a chunk separately, and no momentum is applied first.
      The release has Nesterov's there: here it is the optimiser's, at the worker.
   9. async=on: every worker is asynchronous, where those of a machine wait for each other in the
      release. Its store begins as zeros and not as the weights. */
#include <errno.h>
#include <string.h>

#include "tutti/method/server.h"
#include "tutti/method/steps.h"

typedef struct byteps {
    int64_t partition, credits;
    int priority, assign, wire, feedback;
    bool cross_barrier, async;
    const char *node;
    tutti_server_sums *sums;          /* NULL: async */
    tutti_server *server;             /* of async */
    float *before;                    /* [n]: x before the step, if async */
    int machines, workers_of_machine; /* n */
    uint32_t *parts;                  /* part of each server; valid within declare() */
    /* node=auto: why workers are machines of their own; "": no reason to report */
    char why[300];
} byteps;
enum { SERVE };                       /* service */
enum { FIFO, LAYER };
enum { SLICES, GREEDY };
enum { CREDITS_LEAST = 8, CREDITS_MOST = 64 };
enum { UNIT = 64, PARTS_MOST = (1 << 24) - 1 }; /* of tutti_server_setup */

static const tutti_option byteps_options[] = {
    { "partition_bytes", TUTTI_INT, TUTTI_AT(byteps, partition), 4096000, 256, 68719476736.0, NULL,
      "bytes of a chunk, rounded up to 64; each server that has a part gets 64 of a full one at "
      "least",
      "async=off" },
    { "credits", TUTTI_INT, TUTTI_AT(byteps, credits), 0, 0, CREDITS_MOST, NULL,
      "chunks under way at a time, from push to pull, at most; each has a thread. 0: as many as "
      "keep links busy, which are 8, or 4 (n - 1) / (n - k) if more; with assign=greedy 3 a server "
      "if more",
      "async=off" },
    { "priority", TUTTI_CHOICE, TUTTI_AT(byteps, priority), FIFO, 0, 1, "fifo|layer",
      "fifo: chunks go as they become ready; layer: of those that are ready what the next forward "
      "needs first",
      "async=off" },
    { "cross_barrier", TUTTI_BOOL, TUTTI_AT(byteps, cross_barrier), 0, 0, 1, NULL,
      "a layer's forward waits for its own parameters and not for the end of the step",
      "async=off" },
    { "assign", TUTTI_CHOICE, TUTTI_AT(byteps, assign), SLICES, 0, 1, "slices|greedy",
      "slices: each chunk is cut over all servers; greedy: it goes to one, the largest first to "
      "the one that is least full",
      "async=off" },
    { "node", TUTTI_TEXT, TUTTI_AT(byteps, node), 0, 0, 0, "auto",
      "which workers count as a machine and sum first: those of a machine, that many of "
      "consecutive ranks, or none; auto: those of a machine if there are several, equal, of 2, 4, "
      "8, ...",
      "async=off" },
    { "wire", TUTTI_CHOICE, TUTTI_AT(byteps, wire), 0, 0, 1, "fp32|fp16",
      "what travels between machines, both ways; servers add in fp32" },
    { "feedback", TUTTI_CHOICE, TUTTI_AT(byteps, feedback), TUTTI_FEEDBACK_AUTO, 0, 2,
      "auto|on|off",
      "with --codec: what it loses is sent with the next, by workers and by servers; auto: unless "
      "the codec is unbiased and does not contract",
      "async=off" },
    { "async", TUTTI_BOOL, TUTTI_AT(byteps, async), 0, 0, 1, NULL,
      "no worker waits for others: each updates by itself, and servers add its changes to the one "
      "model" },
    { 0 }
};

/* ---- the split ---- */

typedef struct split { /* shares of M */
    double server, machine, link; /* link: bytes each way that every link carries */
} split;

static split split_of(int machines, int servers)
{
    const double n = machines, k = servers, d = n * n + k * n - 2 * k;

    if (machines == 1)
        return (split){ 0 };
    if (servers >= machines) /* all wait for a worker's own link */
        return (split){ .server = 1 / k, .link = 1 };
    return (split){ .server = k > 0 ? 2 * (n - 1) / d : 0,
                    .machine = (n - k) / d,
                    .link = 2 * n * (n - 1) / d };
}

/* Integers in that proportion; rounded for thousands of machines. None are needed if all are
   equal. */
static tutti_status set_parts(const tutti_method *m, byteps *s, tutti_error *err)
{
    const uint64_t n = (uint64_t)s->machines, k = (uint64_t)m->servers;
    uint64_t server = 2 * (n - 1), machine = n - k;

    if (k == 0 || k >= n)
        return TUTTI_OK;
    while (k * server + n * machine > PARTS_MOST) {
        server = (server + 1) / 2;
        machine = (machine + 1) / 2;
    }
    s->parts = tutti_alloc(n + k, sizeof *s->parts);
    if (s->parts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'byteps'");
    for (uint64_t i = 0; i < n + k; i++)
        s->parts[i] = (uint32_t)(i < n ? machine : server);
    return TUTTI_OK;
}

/* ---- from declare to open ---- */

/* A run on one machine is treated like one on many: every worker is a machine. */
static tutti_status choose_machines(tutti_method *m, byteps *s, tutti_error *err)
{
    const bool chosen = strcmp(s->node, "auto") == 0;

    TUTTI_TRY(tutti_server_node(m, s->node, &s->workers_of_machine, s->why, sizeof s->why, err));
    if (chosen && s->workers_of_machine == m->workers)
        s->workers_of_machine = 1;
    s->machines = m->workers / s->workers_of_machine;
    return TUTTI_OK;
}

static int servers_of(const tutti_method *m, const byteps *s)
{
    return m->servers >= s->machines ? m->servers : s->machines + m->servers;
}

static tutti_status set_chunks(tutti_method *m, const byteps *s, tutti_error *err)
{
    const int servers = servers_of(m, s);

    if (s->machines > 1 && s->assign == SLICES && s->partition < (int64_t)servers * UNIT)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'byteps': partition_bytes is %lld, but %d servers have a part of "
                          "each chunk, of %d bytes at least; give %d or more, some millions as a "
                          "rule",
                          (long long)s->partition, servers, (int)UNIT, servers * UNIT);
    m->cut_bytes = true;
    m->piece_bytes = m->first_piece_bytes = ((size_t)s->partition + UNIT - 1) / UNIT * UNIT;
    if (s->priority == LAYER) {
        m->order = TUTTI_ORDER_LED;
        m->forward_first = true;
    }
    m->no_step = s->cross_barrier;
    return s->cross_barrier ? tutti_by_piece_declare(m, err) : TUTTI_OK;
}

/* Twice the chunks that are sent at a time: a server with r times the least part gets r chunks at
   a time (server.h, turns). With whole chunks that is one per server, and two for a server whose
   answer is pending. */
static int credits_of(const tutti_method *m, const byteps *s)
{
    const int n = s->machines, k = m->servers, apart = n > k ? n - k : 1;
    int busy = k < n ? (4 * (n - 1) + apart - 1) / apart : 0;

    if (s->credits > 0)
        return (int)s->credits;
    if (s->assign == GREEDY)
        busy = 3 * servers_of(m, s);
    return busy < CREDITS_LEAST ? CREDITS_LEAST : busy < CREDITS_MOST ? busy : CREDITS_MOST;
}

static tutti_status declare_sums(tutti_method *m, byteps *s, tutti_plan *plan, tutti_error *err)
{
    TUTTI_TRY(set_chunks(m, s, err));
    return tutti_server_sums_declare(
        &s->sums, m, plan,
        &(tutti_server_sums_options){ .service = SERVE,
                                      .node = s->workers_of_machine,
                                      .undivided = s->assign == GREEDY,
                                      .mixed = s->parts != NULL,
                                      .parts = s->parts,
                                      .wire = s->wire == 0 ? TUTTI_F32 : TUTTI_F16,
                                      .codec = true,
                                      .feedback = (tutti_feedback)s->feedback,
                                      .slots = credits_of(m, s),
                                      .slots_name = "credits",
                                      .reports = true },
        err);
}

static tutti_status async_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);

static tutti_status declare_async(tutti_method *m, byteps *s, tutti_plan *plan, tutti_error *err)
{
    tutti_declare(plan,
                  &(tutti_state){ .name = "byteps.before",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = m->rank < m->workers ? m->n : 0 },
                  &s->before);
    return tutti_server_declare(
        &s->server, m, plan,
        &(tutti_server_setup){ .rule = async_rule,
                               .service = SERVE,
                               .mixed = s->parts != NULL,
                               .parts = s->parts,
                               .wire = s->wire == 0 ? TUTTI_F32 : TUTTI_F16 },
        err);
}

static tutti_status byteps_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    byteps *s = m->self;
    tutti_status status;

    s->workers_of_machine = 1;
    s->machines = m->workers;
    if (!s->async)
        TUTTI_TRY(tutti_fail_within(err, choose_machines(m, s, err), "method 'byteps'"));
    TUTTI_TRY(set_parts(m, s, err));
    status = s->async ? declare_async(m, s, plan, err) : declare_sums(m, s, plan, err);
    tutti_free(s->parts);
    s->parts = NULL;
    return status;
}

static tutti_status byteps_open(tutti_method *m, tutti_error *err)
{
    const byteps *s = m->self;
    const split of = split_of(s->machines, m->servers);

    (void)err;
    if (m->rank > 0 || m->workers == 1)
        return TUTTI_OK;
    if (s->why[0] != 0)
        tutti_event(m, "machines", "every worker is a machine by itself: %s", s->why);
    if (s->machines == 1)
        tutti_event(m, "split",
                    "all %d workers are one machine, which sums by itself and sends nothing to "
                    "servers; node=none lets each of them send",
                    m->workers);
    else if (m->servers > s->machines)
        tutti_event(m, "split",
                    "%d servers sum %.4g of the gradient each, %d machines none; each link of a "
                    "machine carries all of it each way, as with %d servers: more do not help",
                    m->servers, of.server, s->machines, s->machines);
    else
        tutti_event(m, "split",
                    "%d servers sum %.4g of the gradient each, %d machines %.4g; each link carries "
                    "%.4g of it each way, so a step's exchange takes %.4g of what it takes without "
                    "servers",
                    m->servers, of.server, s->machines, of.machine, of.link,
                    of.link / split_of(s->machines, 0).link);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status byteps_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const byteps *s = m->self;

    (void)err;
    if (s->async)
        p->exchange = false;
    else
        tutti_server_sums_watch(s->sums, false);
    return TUTTI_OK;
}

static tutti_status byteps_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_server_sums_exchange(((byteps *)m->self)->sums, p, err);
}

/* Makes the worker's own update, sends its change to the servers, and takes their model. */
static tutti_status async_step(tutti_method *m, byteps *s, tutti_error *err)
{
    tutti_server_answers answers;

    tutti_copy(m->device, m->n, m->x, s->before);
    TUTTI_TRY(tutti_base_step(m, err));
    tutti_copy(m->device, m->n, m->x, m->g);
    tutti_axpy(m->device, m->n, -1, s->before, m->g);
    TUTTI_TRY(tutti_server_push(s->server, 0, 0, m->g, m->x, &answers, err));
    tutti_stale(m, answers.delay);
    return TUTTI_OK;
}

static tutti_status byteps_step(tutti_method *m, tutti_error *err)
{
    byteps *s = m->self;

    if (s->async)
        return async_step(m, s, err);
    tutti_server_sums_watch(s->sums, true);
    return tutti_base_step(m, err);
}

/* Requests for this server's part are handled one after the other, so an answer is of one
   version. */
static tutti_status async_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    tutti_server *server = ((byteps *)m->self)->server;

    tutti_server_add(server, 1, r->in);
    return tutti_server_give(server, &r->note, 1, 0, err);
}

static tutti_status byteps_final_model(tutti_method *m, tutti_error *err)
{
    const byteps *s = m->self;
    const split of = split_of(s->machines, m->servers);

    TUTTI_TRY(s->async ? tutti_server_final_model(s->server, err)
                       : tutti_server_sums_final_model(s->sums, err));
    if (m->rank >= m->workers || m->workers == 1)
        return TUTTI_OK;
    tutti_metric(m, "machines", -1, s->machines);
    tutti_metric(m, "servers", -1, m->servers);
    tutti_metric(m, "share_of_machine", -1, of.machine);
    tutti_metric(m, "share_of_server", -1, of.server);
    tutti_metric(m, "share_of_link", -1, of.link);
    return TUTTI_OK;
}

static tutti_status byteps_serve(tutti_method *m, tutti_error *err)
{
    const byteps *s = m->self;
    return s->async ? tutti_server_run(s->server, err) : tutti_server_sums_run(s->sums, err);
}

/* ---- the row ---- */

enum {
    SYNC =
        TUTTI_REPLICAS_EQUAL | TUTTI_PARAMETER_SERVERS | TUTTI_THROUGH_SERVERS | TUTTI_SPARSE_ROWS,
    ASYNC = TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS
};

/* Workers serve, unless there are as many servers as machines: the engine adds FAULT_TOLERANT
   then. A leader-ordered lane needs its leader, and what overlaps with the next step has no end
   at which others could continue. */
static unsigned byteps_traits(const void *self)
{
    const byteps *s = self;

    if (s->async)
        return ASYNC;
    return SYNC | TUTTI_ASKS_FOR_VALUES |
           (s->priority == LAYER || s->cross_barrier ? TUTTI_FAIL_STOP : 0) |
           (s->cross_barrier ? TUTTI_NEVER_SKIPS : 0);
}

static const tutti_service byteps_services[] = { [SERVE] = { "server", byteps_serve }, { 0 } };

static const char *const byteps_constraints[] = {
    "the bits of ddp with wire=fp32, with every optimiser, clip-norm, nonfinite and batch-share",
    "--servers k ranks only serve, for example each on a machine of its own; more servers than "
    "machines do not help",
    "machines have equally many workers of consecutive ranks, and 2, 4, 8, ... of them unless "
    "there is one machine; otherwise node=auto treats every worker as a machine, and reports it",
    "of tables (ctr, wordlm) rows go from every worker to the servers, and the rows of all workers "
    "come back",
    "cross_barrier needs an optimizer of the run's own, and no clip-norm, loss-scale or "
    "nonfinite=skip",
    "async=on: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "async=on: what workers change is added and not averaged, so divide the learning rate by their "
    "number; optimizer state is each worker's own, tables travel whole, and there is no bound on "
    "the delay (ssp has one)",
    "a lost server ends the run (exit code 3), and so does a lost worker that serves; with as many "
    "servers as machines the step takes the mean of the workers that are left, and the rest of a "
    "machine leaves with its lost worker, unless nonfinite=skip, loss-scale, priority=layer or "
    "cross_barrier asks for all in every step",
    NULL
};

const tutti_method_ops tutti_method_byteps = {
    .name = "byteps",
    .title = "BytePS: servers next to the workers and on machines of their own",
    .authors = "Jiang, Zhu, Lan, Yi, Cui, Guo",
    .year = 2020,
    .family = "server",
    .axes = { "servers, machines first", "every step, or none", "fp32 or fp16",
              "chunks, several under way", "replicated, sums at servers", "any" },
    .constraints = byteps_constraints,
    .options = byteps_options,
    .self_bytes = sizeof(byteps),
    .traits = SYNC | ASYNC | TUTTI_FAIL_STOP | TUTTI_FAULT_TOLERANT,
    .traits_of = byteps_traits,
    .services = byteps_services,
    .declare = byteps_declare,
    .open = byteps_open,
    .pass = byteps_pass,
    .exchange = byteps_exchange,
    .step = byteps_step,
    .final_model = byteps_final_model,
};
