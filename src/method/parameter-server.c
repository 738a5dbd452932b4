/* parameter-server: synchronous data parallelism by servers. Every gradient is cut over them; each
   sums its part of all workers' gradients and sends them the mean. Li, Andersen, Park, Smola et
   al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014, in the
   synchronous form. Servers sum and workers update, as in BytePS (Jiang et al., OSDI 2020).
     worker i, each bucket as it becomes ready:   send part k of g_i to server k, receive
                                                  part k of the mean in its place
     server k:                                    contribution_i := what i sends;
                                                  when all have sent: mean := sum_i
                                                  weight_i contribution_i, to all
   The sum is the project's tree over ranks, each product rounded once. So the bits are ddp's
   whatever arrives first, and every optimiser, clipping and share of a step that ddp has works here
   too: the update stays at the workers. A server that updates would need the norm of a gradient of
   which it has a part. backup-workers(backup=0) is that form.
   Chosen here: each bucket is cut over all servers. There is no hashing, so none has more than
   another. Servers are co-located by default: then each worker sends and receives 2 (n-1)/n d, as
   in an all-reduce by reduce-scatter and all-gather. With fewer servers their links carry it all:
   servers=1 shows the bottleneck that parameter servers are known for.
   Chosen here, of a loss (the papers do not say): the step goes on without a worker that serves
   nothing; with --servers, without any worker. The mean is over those that sent, their weights
   divided by their sum. This includes the step in which the worker was lost: a slice that had its
   gradient by then is a mean with it, and another one without. All that are left get the same, so
   replicas stay equal. */
#include <errno.h>
#include <string.h>

#include "tutti/server.h"

/* of a piece; workers each. at: in the contributions of each */
typedef struct sum {
    int arrived;
    uint64_t step;
    bool *has;
    tutti_note *note;
    float *weight;
    float **part;
    size_t at;
} sum;

typedef struct parameter_server {
    int64_t servers;
    double bucket, first_bucket;
    tutti_server *server;
    int n_pieces;
    float *contributions; /* workers x my parts of all pieces; NULL: they stay with those that sent them */

    /* the server's, of its thread */
    sum *sums;            /* n_pieces */
    float **present;      /* workers: contributions of those that sent, after a loss */
    float *share;         /* workers: their weights */
} parameter_server;
enum { SERVE };                 /* service */
enum { TREE_MOST = 4096 };      /* tutti_tree_sum's */

static const tutti_option parameter_server_options[] = {
    { "servers", TUTTI_INT, TUTTI_AT(parameter_server, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(parameter_server, bucket), 25, 1.0 / 1048576, 65536, NULL,
      "bucket size in MiB; gradients are sent as soon as a bucket is full" },
    { "first_bucket_mb", TUTTI_REAL, TUTTI_AT(parameter_server, first_bucket), 1, 1.0 / 1048576, 65536, NULL,
      "size of the first bucket in MiB: smaller, so that sending starts early; at most bucket_mb" },
    { 0 }
};

static tutti_status parameter_server_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);
static tutti_status parameter_server_lost(tutti_method *m, int worker, tutti_error *err);

/* More than my parts of all pieces can be, however the tensors are cut into pieces. */
static size_t room_of(const tutti_method *m, const parameter_server *s)
{
    return m->layout->used / (size_t)tutti_server_count(s->server) + 32 * (size_t)m->layout->n_tensors +
           tutti_server_slack(m);
}

static tutti_status parameter_server_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    parameter_server *s = m->self;
    const tutti_server_setup setup = { .rule = parameter_server_rule, .service = SERVE, .servers = (int)s->servers,
                                       .pieces = true, .lost = parameter_server_lost };
    bool keeps;

    if (m->workers > TREE_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'parameter-server': %d workers; a server sums the gradients of at most %d",
                          m->workers, TREE_MOST);
    m->piece_bytes = (size_t)(s->bucket * 1048576);
    m->first_piece_bytes = (size_t)((s->first_bucket < s->bucket ? s->first_bucket : s->bucket) * 1048576);
    TUTTI_TRY(tutti_server_declare(&s->server, m, plan, &setup, err));
    keeps = tutti_server_index(s->server) >= 0 && m->workers > 1 && tutti_server_keeps(s->server);
    tutti_declare(plan, &(tutti_state){ .name = "parameter-server.contributions", .keep = TUTTI_SCRATCH,
                                        .dtype = TUTTI_F32, .count = keeps ? (size_t)m->workers * room_of(m, s) : 0 },
                  &s->contributions);
    return TUTTI_OK;
}

static tutti_status parameter_server_open(tutti_method *m, tutti_error *err)
{
    parameter_server *s = m->self;
    const size_t workers = (size_t)m->workers;
    size_t at = 0;

    if (tutti_server_index(s->server) < 0 || m->workers == 1)
        return TUTTI_OK;
    s->sums = tutti_alloc((size_t)m->layout->n_pieces, sizeof *s->sums);
    s->present = tutti_alloc(workers, sizeof *s->present);
    s->share = tutti_alloc(workers, sizeof *s->share);
    s->n_pieces = s->sums != NULL && s->present != NULL && s->share != NULL ? m->layout->n_pieces : 0;
    for (int k = 0; k < s->n_pieces; k++) {
        sum *of = &s->sums[k];
        const size_t words = tutti_server_words(s->server, m->layout->piece[k].first, m->layout->piece[k].count);
        of->has = tutti_alloc(workers, sizeof *of->has);
        of->note = tutti_alloc(workers, sizeof *of->note);
        of->weight = tutti_alloc(workers, sizeof *of->weight);
        of->part = tutti_alloc(workers, sizeof *of->part);
        if (of->has == NULL || of->note == NULL || of->weight == NULL || of->part == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'parameter-server'");
        of->at = at;
        at += (words + 15) / 16 * 16;
    }
    return s->n_pieces > 0 ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'parameter-server'");
}

static void parameter_server_close(tutti_method *m)
{
    parameter_server *s = m->self;

    if (s == NULL)
        return;
    for (int k = 0; k < s->n_pieces; k++) {
        tutti_free(s->sums[k].has);
        tutti_free(s->sums[k].note);
        tutti_free(s->sums[k].weight);
        tutti_free(s->sums[k].part);
    }
    tutti_free(s->sums);
    tutti_free(s->present);
    tutti_free(s->share);
}

/* In b: the step, and the weight as the float that it is multiplied with. */
static int64_t pack(uint64_t step, float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return (int64_t)(step << 32 | bits);
}

static tutti_status parameter_server_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    parameter_server *s = m->self;
    return tutti_server_exchange(s->server, p, pack(m->step, (float)m->weight), err);
}

static bool everybody_sent(const tutti_method *m, const sum *of)
{
    const parameter_server *s = m->self;

    for (int r = 0; r < m->workers && of->arrived < m->workers; r++)
        if (!of->has[r] && tutti_server_has(s->server, r))
            return false;
    return true;
}

/* Of those that sent, without workers that were lost before: the tree over their ranks, their
   weights anew. */
static void choose_present(const parameter_server *s, const sum *of, int workers)
{
    double all = 0;
    int n = 0;

    for (int r = 0; r < workers; r++)
        all += of->has[r] ? (double)of->weight[r] : 0;
    for (int r = 0; r < workers; r++)
        if (of->has[r]) {
            s->present[n] = of->part[r];
            s->share[n++] = all > 0 ? (float)((double)of->weight[r] / all) : 0;
        }
}

static tutti_status end_sum(tutti_method *m, sum *of, size_t first, size_t count, tutti_error *err)
{
    const parameter_server *s = m->self;
    const tutti_server_request part = { .first = first, .count = count };
    const int n = of->arrived;
    const bool all = n == m->workers;

    if (!all)
        choose_present(s, of, m->workers);
    for (int r = 0; r < m->workers; r++)
        of->has[r] = false;
    of->arrived = 0;
    return tutti_server_answer_sum(s->server, &part, of->note, n, 0, all ? of->part : s->present,
                                   all ? of->weight : s->share, err);
}

static tutti_status parameter_server_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    parameter_server *s = m->self;
    sum *of = &s->sums[r->kind];
    const uint32_t bits = (uint32_t)r->b;
    const uint64_t step = (uint64_t)r->b >> 32;

    if (r->in == NULL || of->has[r->worker] || (of->arrived > 0 && of->step != step))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d sent its part of bucket %lu of step %llu out of turn; all workers must run "
                               "one version and one checkpoint",
                               r->worker, (unsigned long)r->kind, (unsigned long long)step);
    of->part[r->worker] = r->in;
    memcpy(&of->weight[r->worker], &bits, sizeof bits);
    of->has[r->worker] = true;
    of->step = step;
    of->note[of->arrived++] = r->note;
    if (everybody_sent(m, of))
        return end_sum(m, of, r->first, r->count, err); /* the last is summed where it is */
    if (!r->stays) {
        of->part[r->worker] = s->contributions + (size_t)r->worker * room_of(m, s) + of->at;
        tutti_copy(m->device, r->words, r->in, of->part[r->worker]);
    }
    return TUTTI_OK;
}

static tutti_status parameter_server_lost(tutti_method *m, int worker, tutti_error *err)
{
    parameter_server *s = m->self;

    (void)worker;
    for (int k = 0; k < s->n_pieces; k++) {
        size_t first;
        const size_t count = tutti_server_part(s->server, tutti_server_index(s->server), m->layout->piece[k].first,
                                               m->layout->piece[k].count, &first);
        if (s->sums[k].arrived > 0 && everybody_sent(m, &s->sums[k]))
            TUTTI_TRY(end_sum(m, &s->sums[k], first, count, err));
    }
    return TUTTI_OK;
}

enum { TRAITS = TUTTI_REPLICAS_EQUAL | TUTTI_SERVERS | TUTTI_THROUGH_SERVERS | TUTTI_KNOWS_ROWS | TUTTI_GOES_ON };

static unsigned parameter_server_traits(const void *self)
{
    return tutti_server_traits(TRAITS, ((const parameter_server *)self)->servers == 0);
}

static tutti_status serve(tutti_method *m, tutti_error *err)
{
    return m->workers == 1 ? TUTTI_OK : tutti_server_run(((parameter_server *)m->self)->server, err);
}

static const tutti_service parameter_server_services[] = { [SERVE] = { "server", serve }, { 0 } };

static const char *const parameter_server_constraints[] = {
    "the bits of ddp, with every optimiser, clip-norm, nonfinite and batch-share; gradients travel as float32",
    "of tables (ctr, wordlm) rows go to the servers, and the rows of all workers come back, "
    "since each updates its whole model",
    "servers is at most the number of workers, whose threads they are",
    "a lost server ends the run (exit code 3); without a worker that serves nothing (servers below the number of "
    "workers, or --servers) the step takes the mean of those who are left, "
    "unless nonfinite=skip or loss-scale asks all in every step",
    NULL
};

const tutti_method_ops tutti_method_parameter_server = {
    .name = "parameter-server",
    .title = "Synchronous parameter server",
    .authors = "Li, Andersen, Park, Smola, Ahmed, Josifovski, Long, Shekita, Su",
    .year = 2014,
    .family = "server",
    .axes = { "servers", "every step", "fp32", "buckets, overlap", "replicated, sums at servers", "any" },
    .constraints = parameter_server_constraints,
    .options = parameter_server_options,
    .self_bytes = sizeof(parameter_server),
    .traits = TRAITS,
    .traits_of = parameter_server_traits,
    .services = parameter_server_services,
    .declare = parameter_server_declare,
    .open = parameter_server_open,
    .close = parameter_server_close,
    .exchange = parameter_server_exchange,
};
