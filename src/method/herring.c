/* herring: synchronous data parallelism with equally loaded servers: gradients are flattened into
   fusion buffers of equal bytes, and each buffer is split equally over the servers, whatever the
   tensors are. Thangakrishnan, Cavdar, Karakus, Ghai, Selivonchyk, Pruce, "Herring: Rethinking
   the Parameter Server at Scale for the Cloud", SC 2020. The form with rails is that of Fairring,
   its open re-implementation.
     N nodes of G workers; R rails, the first workers of each node; S bytes of a buffer
     1. inside a node   reduce-scatter of the weighted gradients: rail u holds slot u, S/R bytes,
                        summed over the node
     2. worker u        splits its slot into a shard for each of N' servers, and sends all at once
     3. server (j, u)   sum := the shards j of slot u of all nodes, to all of them at once
     4. inside a node   all-gather of the slots
   Two hops between nodes whatever N is, 2 (N - 1) messages a rail, node and buffer. Up to `slots`
   buffers are in flight at a time. Buffers end at every `fusion_mb`, inside tensors, and shards
   at multiples of 16 bytes, so servers differ by 16 bytes a buffer at most.
   Differs from the paper, whose text was not available, and from Fairring:
   1. Servers sum in the one order of summation, and not as shards arrive: the bits are ddp's. So
      G is a power of two, or there is one node. A buffer's shards are summed in the senders'
      memory where that is shared.
   2. The weights of unequal shares of a step are in the sums, so nothing is divided at the end.
   3. Tables go by rows from every worker to all servers (src/server/slice.c), where Herring's
      first release made them dense. A table is a separate buffer, and a server's bytes of it
      depend on the rows.
   4. There is no proxy: threads of the lane and of the server do what the paper gives a process.
   5. wire=fp16 applies between workers and servers only; inside a node sums travel as floats.
   6. A lost worker is handled as in parameter-server (docs/methods/herring.md). */
#include <string.h>

#include "tutti/method/server.h"
#include "engine/refuse.h"

typedef struct herring {
    double fusion, shard;
    int64_t slots, servers, rails;
    int placement, wire;
    const char *node;
    tutti_server_sums *sums;
    int workers_of_node; /* G */
    /* node=auto: why workers are nodes of their own; "": no reason to report */
    char why[300];
} herring;
enum { SERVE };                      /* service */
enum { AUTO, COLOCATED, DEDICATED }; /* placement */
enum { FUSION_BYTES = 25 << 20, SHARD_LEAST = 16 };

static const tutti_option herring_options[] = {
    { "fusion_mb", TUTTI_REAL, TUTTI_AT(herring, fusion), 0, 0, 65536, NULL,
      "S: size of a fusion buffer in MiB; 0: 25, or more if servers would get less than "
      "min_shard_kb of a buffer",
      NULL },
    { "slots", TUTTI_INT, TUTTI_AT(herring, slots), 4, 1, 64, NULL,
      "buffers that are under way at a time, at most", NULL },
    { "placement", TUTTI_CHOICE, TUTTI_AT(herring, placement), AUTO, 0, 2,
      "auto|colocated|dedicated",
      "servers are threads of workers (colocated), or ranks of their own (dedicated; --servers); "
      "auto: as the run has them",
      NULL },
    { "servers", TUTTI_INT, TUTTI_AT(herring, servers), 0, 0, 65536, NULL,
      "N': how many nodes serve as well, of each host in turn; 0: all", NULL },
    { "node", TUTTI_TEXT, TUTTI_AT(herring, node), 0, 0, 0, "auto",
      "which workers sum before anything is sent: the workers of a machine, that many workers of "
      "consecutive ranks, or none; auto: of a machine if machines are equal and have 2, 4, 8, ...",
      NULL },
    { "rails", TUTTI_INT, TUTTI_AT(herring, rails), 0, 0, 65536, NULL,
      "R: how many workers of a node send, each its slot of a buffer; 0: all of them", NULL },
    { "wire", TUTTI_CHOICE, TUTTI_AT(herring, wire), 0, 0, 1, "fp32|fp16",
      "what gradients and means travel as to servers and back; sums are fp32", NULL },
    { "min_shard_kb", TUTTI_REAL, TUTTI_AT(herring, shard), 64, 0, 1048576, NULL,
      "least part of a full buffer, in KiB, that goes to a server in one message; a smaller one is "
      "refused",
      NULL },
    { 0 }
};

/* ---- nodes, servers, rails ---- */

/* One machine whose workers share memory needs no servers, unless the options ask for some. */
static tutti_status choose_node(tutti_method *m, tutti_error *err)
{
    herring *s = m->self;
    const bool asked = m->servers > 0 || s->servers > 0;
    int node;

    TUTTI_TRY(tutti_server_node(m, s->node, &node, s->why, sizeof s->why, err));
    if (strcmp(s->node, "auto") == 0 && node == m->workers &&
        (asked || !tutti_world_shares(m->world)))
        node = 1;
    s->workers_of_node = node;
    return TUTTI_OK;
}

/* Every buffer is split into that many shards. */
static tutti_status set_buffers(tutti_method *m, int shards, tutti_error *err)
{
    const herring *s = m->self;
    double bytes = s->fusion * 1048576, least = s->shard * 1024;

    if (least < SHARD_LEAST)
        least = SHARD_LEAST;
    if (bytes == 0)
        bytes = least * shards > FUSION_BYTES ? least * shards : FUSION_BYTES;
    if (shards > 1 && bytes < least * shards)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'herring': fusion_mb is %g, so each of %d shards has %.0f bytes, "
                          "fewer than %.0f (min_shard_kb): messages that small waste the network; "
                          "give fusion_mb=0, which takes what is enough, fewer servers, or a lower "
                          "min_shard_kb",
                          s->fusion, shards, bytes / shards, least);
    m->piece_bytes = m->first_piece_bytes = ((size_t)bytes + 63) / 64 * 64;
    m->cut_bytes = true;
    return TUTTI_OK;
}

static tutti_status herring_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    herring *s = m->self;
    tutti_server_sums_options options = { .service = SERVE,
                                          .servers = (int)s->servers,
                                          .even = true,
                                          .slots = (int)s->slots,
                                          .reports = true };
    const tutti_rule rules[] = {
        { s->placement == DEDICATED && m->servers == 0,
          "{method}: placement is dedicated, but no rank only serves; give --servers N, for example "
          "one for each machine" },
        { s->placement == COLOCATED && m->servers > 0,
          "{method}: placement is colocated, but there are ranks that only serve (--servers); leave "
          "one of the two away" },
    };
    int nodes, places;

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    TUTTI_TRY(tutti_fail_within(err, choose_node(m, err), "method 'herring'"));
    if (s->rails > s->workers_of_node)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'herring': rails is %d, but a node has %d workers, and each is "
                          "one rail at most; omit rails, or make nodes larger (node)",
                          (int)s->rails, s->workers_of_node);
    nodes = m->workers / s->workers_of_node;
    places = m->servers > 0 ? m->servers : s->servers > 0 ? (int)s->servers : nodes;
    options.node = s->workers_of_node;
    options.rails = s->rails > 0 ? (int)s->rails : s->workers_of_node;
    options.wire = s->wire == 0 ? TUTTI_F32 : TUTTI_F16;
    TUTTI_TRY(set_buffers(m, nodes == 1 ? 1 : places * options.rails, err));
    return tutti_server_sums_declare(&s->sums, m, plan, &options, err);
}

static tutti_status herring_open(tutti_method *m, tutti_error *err)
{
    const herring *s = m->self;

    (void)err;
    if (m->rank == 0 && s->why[0] != 0)
        tutti_event(m, "nodes",
                    "every worker is a node by itself and sends to the servers what it has: %s",
                    s->why);
    if (m->rank == 0 && m->workers > 1 && s->workers_of_node == m->workers)
        tutti_event(m, "one node",
                    "all %d workers are one node, which sums by itself and sends nothing to "
                    "servers; node=none lets each of them send",
                    m->workers);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status herring_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)p;
    (void)err;
    tutti_server_sums_watch(((herring *)m->self)->sums, false);
    return TUTTI_OK;
}

static tutti_status herring_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_server_sums_exchange(((herring *)m->self)->sums, p, err);
}

static tutti_status herring_step(tutti_method *m, tutti_error *err)
{
    tutti_server_sums_watch(((herring *)m->self)->sums, true);
    return tutti_base_step(m, err);
}

static tutti_status herring_final_model(tutti_method *m, tutti_error *err)
{
    const herring *s = m->self;
    const int nodes = m->workers / s->workers_of_node;

    TUTTI_TRY(tutti_server_sums_final_model(s->sums, err));
    if (m->rank >= m->workers || m->workers == 1)
        return TUTTI_OK;
    tutti_metric(m, "fusion_bytes", -1, (double)m->piece_bytes);
    tutti_metric(m, "nodes", -1, nodes);
    tutti_metric(m, "rails", -1, s->rails > 0 ? s->rails : s->workers_of_node);
    return TUTTI_OK;
}

static tutti_status herring_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_sums_run(((herring *)m->self)->sums, err);
}

/* ---- the row ---- */

enum {
    TRAITS = TUTTI_REPLICAS_EQUAL | TUTTI_PARAMETER_SERVERS | TUTTI_THROUGH_SERVERS |
             TUTTI_SPARSE_ROWS | TUTTI_FAULT_TOLERANT | TUTTI_ASKS_FOR_VALUES
};

static unsigned herring_traits(const void *self)
{
    return tutti_server_traits(TRAITS, ((const herring *)self)->servers == 0);
}

static const tutti_service herring_services[] = { [SERVE] = { "server", herring_serve }, { 0 } };

static const char *const herring_constraints[] = {
    "the bits of ddp with wire=fp32, with every optimiser, clip-norm, nonfinite and batch-share",
    "nodes have equally many workers of consecutive ranks, and 2, 4, 8, ... of them unless there "
    "is one node; where machines differ from this node=auto treats every worker as a node, and "
    "reports it",
    "of tables (ctr, wordlm) rows go from every worker to the servers, and the rows of all workers "
    "come back",
    "servers is at most the number of nodes; with --servers ranks of their own serve, and no "
    "worker",
    "a lost server ends the run (exit code 3); without a worker that serves nothing (servers below "
    "the number of nodes, or --servers) the step takes the mean of the workers that are left, and "
    "the rest of its node leaves with it, unless nonfinite=skip or loss-scale asks all in every "
    "step",
    NULL
};

const tutti_method_ops tutti_method_herring = {
    .name = "herring",
    .title = "Herring: a balanced parameter server",
    .authors = "Thangakrishnan, Cavdar, Karakus, Ghai, Selivonchyk, Pruce",
    .year = 2020,
    .family = "server",
    .axes = { "servers, machines first", "every step", "fp32 or fp16",
              "equal buffers, several under way", "replicated, sums at servers", "any" },
    .constraints = herring_constraints,
    .options = herring_options,
    .self_bytes = sizeof(herring),
    .traits = TRAITS,
    .traits_of = herring_traits,
    .services = herring_services,
    .declare = herring_declare,
    .open = herring_open,
    .pass = herring_pass,
    .exchange = herring_exchange,
    .step = herring_step,
    .final_model = herring_final_model,
};
