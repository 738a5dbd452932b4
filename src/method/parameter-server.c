/* parameter-server: synchronous data parallelism with parameter servers. Every gradient is split
   over them; each sums its part of all workers' gradients and sends them the mean. Li, Andersen,
   Park, Smola et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI
   2014, in the synchronous form. Servers sum and workers update, as in BytePS (Jiang et al., OSDI
   2020).
     worker i, each bucket as it becomes ready:   send part k of g_i to server k, receive
                                                  part k of the mean in its place
     server k:                                    contribution_i := what i sends;
                                                  when all have sent: mean := sum_i
                                                  weight_i contribution_i, to all
   The sum is the project's tree over ranks, each product rounded once. So the bits are ddp's in
   any order of arrival, and every optimiser, clipping and share of a step that ddp has works here
   too: the update stays at the workers. A server that updates would need the norm of a gradient,
   and has only a part of it. backup-workers(backup=0) is that form.
   Chosen here: each bucket is split over all servers. There is no hashing, so all have equal
   parts. Servers are co-located by default: then each worker sends and receives 2 (n-1)/n d, as
   in an all-reduce by reduce-scatter and all-gather. With fewer servers their links carry it all:
   servers=1 shows the bottleneck that parameter servers are known for.
   Chosen here: with dedicated servers two buckets are in flight, and a worker sends one at a time
   (server.h, turns). So both directions of its link are busy.
   Chosen here, for a loss (not stated in the papers): the step continues without a worker that
   serves nothing; with --servers, without any worker. The mean is over those that sent, their
   weights divided by their sum. This includes the step in which the worker was lost: a shard that
   had received its gradient by then is a mean with it, and another one without. All survivors get
   the same, so replicas stay equal. */
#include "buckets.h"
#include "tutti/method/server.h"

typedef struct parameter_server {
    int64_t servers;
    double bucket, first_bucket;
    tutti_server_sums *sums;
} parameter_server;
enum { SERVE };                 /* service */

static const tutti_option parameter_server_options[] = {
    { "servers", TUTTI_INT, TUTTI_AT(parameter_server, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all" },
    BUCKETS_SIZE(TUTTI_AT(parameter_server, bucket), 25,
                 "; gradients are sent as soon as a bucket is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(parameter_server, first_bucket), "sending starts early"),
    { 0 }
};

static tutti_status parameter_server_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    parameter_server *s = m->self;

    TUTTI_TRY(buckets_cut(m, s->bucket, s->first_bucket, err));
    if (m->servers > 0)
        m->lane_width = 2; /* the answer to one arrives while the next is sent */
    return tutti_server_sums_declare(
        &s->sums, m, plan,
        &(tutti_server_sums_options){ .service = SERVE, .servers = (int)s->servers }, err);
}

static tutti_status parameter_server_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_server_sums_exchange(((parameter_server *)m->self)->sums, p, err);
}

static tutti_status parameter_server_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_sums_run(((parameter_server *)m->self)->sums, err);
}

enum {
    TRAITS = TUTTI_REPLICAS_EQUAL | TUTTI_PARAMETER_SERVERS | TUTTI_THROUGH_SERVERS |
             TUTTI_SPARSE_ROWS | TUTTI_FAULT_TOLERANT | TUTTI_ASKS_FOR_VALUES
};

static unsigned parameter_server_traits(const void *self)
{
    return tutti_server_traits(TRAITS, ((const parameter_server *)self)->servers == 0);
}

static const tutti_service parameter_server_services[] = {
    [SERVE] = { "server", parameter_server_serve }, { 0 }
};

static const char *const parameter_server_constraints[] = {
    "the bits of ddp, with every optimiser, clip-norm, nonfinite and batch-share; gradients travel "
    "as float32",
    "of tables (ctr, wordlm) rows go to the servers, and the rows of all workers come back, since "
    "each updates its whole model",
    "servers is at most the number of workers, whose threads they are",
    BUCKETS_CONSTRAINT,
    "a lost server ends the run (exit code 3); without a worker that serves nothing (servers below "
    "the number of workers, or --servers) the step takes the mean of the workers that are left, "
    "unless nonfinite=skip or loss-scale asks all in every step",
    NULL
};

const tutti_method_ops tutti_method_parameter_server = {
    .name = "parameter-server",
    .title = "Synchronous parameter server",
    .authors = "Li, Andersen, Park, Smola, Ahmed, Josifovski, Long, Shekita, Su",
    .year = 2014,
    .family = "server",
    .axes = { "servers", "every step", "fp32", "buckets, overlap", "replicated, sums at servers",
              "any" },
    .constraints = parameter_server_constraints,
    .options = parameter_server_options,
    .self_bytes = sizeof(parameter_server),
    .traits = TRAITS,
    .traits_of = parameter_server_traits,
    .services = parameter_server_services,
    .declare = parameter_server_declare,
    .exchange = parameter_server_exchange,
};
