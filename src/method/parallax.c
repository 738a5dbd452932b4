/* parallax: dense gradients by all-reduce, rows of tables by servers. Kim, Yu, Park, Cho, Jeong,
   Ha, Lee, Jeong, Chun, "Parallax: Sparsity-aware Data Parallel Training of Deep Neural
   Networks", EuroSys 2019, arXiv 1808.02621.
     worker, a table that a pass reads:   its rows, from the servers that have them
             each piece as it is ready:   dense: all-reduce, as ddp
                                          table: its rows to their servers
     server, when all have sent theirs:   sum by row, one step of the optimiser on the rows
   For a table of w bytes with a share alpha touched by a worker in a step, a worker sends alpha w
   (n-1)/n up and as much down, with the ids. In a gather of rows it sends alpha w (n-1), n/2
   times that, and in an all-reduce 2 w (n-1)/n. So a table is at servers unless alpha is about 1.
   alpha is measured, as the paper has it, over the first steps (`profile`): where it is above
   `threshold` the table leaves its servers and is exchanged like the rest. The default threshold
   is where rows with their ids would be no less than the table: alpha (1 + 1/cols) >= 1, at an
   equal price of all bytes. All routes give ddp's bits.
   Differs from the paper:
   1. The mean over workers is the default for tables too. The authors' code sums them
      (average_sparse=False), as sparse_reduce=sum does here.
   2. Parts. The paper distributes parts, contiguous ranges of rows, over servers. Here each
      server has one range of every table, whatever P is, which is sent in P parts. So another P
      moves no row, and a run is never restarted to try one.
   3. A table is exchanged if the client does not report the rows that it reads: all of it would
      have to be sent back.
   4. A worker has memory for all tables and their slots in x and m->optim, where checkpoints and
      evaluations expect them.
   5. Synchronous only. Asynchronous servers are asgd's. */
#include <string.h>

#include "buckets.h"
#include "partitions.h"
#include "tutti/method/server.h"
#include "server/tables.h"

typedef struct parallax {
    int64_t servers, partitions, warmup, timed, profile, reduce;
    double threshold, bucket, first_bucket;
    const char *node;

    tutti_server *server;
    bool any;                    /* a table is at servers */
    int64_t here;                /* steps in this process */
    /* [tensors]: rows sent since then; of the lane, and of the client between steps */
    double *rows;
    float *density;              /* [tensors] */
    bool decided;                /* which tables stay. Declared */
    partition_search search;     /* declared */
    int64_t in_window, begin_ns, spent_ns;
} parallax;
enum { SERVE };                  /* service */
enum { MEAN, SUM };              /* sparse_reduce */

static const tutti_option parallax_options[] = {
    { "servers", TUTTI_INT, TUTTI_AT(parallax, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all" },
    { "threshold", TUTTI_REAL, TUTTI_AT(parallax, threshold), 0, 0, 1, NULL,
      "share of a table's rows in a push above which it is exchanged as dense; 0: where rows and "
      "ids would be no less than the table" },
    { "profile", TUTTI_INT, TUTTI_AT(parallax, profile), 20, 0, 1000000000, NULL,
      "steps over which that share is measured; 0: every table stays at servers" },
    { "sparse_reduce", TUTTI_CHOICE, TUTTI_AT(parallax, reduce), MEAN, 0, SUM, "mean|sum",
      "what becomes of the workers' gradients of a table: their mean, as of the rest, or their "
      "sum" },
    { "node", TUTTI_TEXT, TUTTI_AT(parallax, node), 0, 0, 0, "auto",
      "which workers sum rows before they are sent: the workers of a machine, that many workers of "
      "consecutive ranks, or none; auto: of a machine if there are several, which are equal and "
      "have 2, 4, 8, ..." },
    { "partitions", TUTTI_INT, TUTTI_AT(parallax, partitions), 0, 0, TUTTI_SERVER_CHUNKS, NULL,
      "parts in which each server is sent its rows of a table, P in all over the servers; 0: "
      "searched while it trains" },
    { "search_warmup", TUTTI_INT, TUTTI_AT(parallax, warmup), 200, 0, 1000000000, NULL,
      "steps with each P that are not timed", "partitions=0" },
    { "search_steps", TUTTI_INT, TUTTI_AT(parallax, timed), 200, 1, 1000000000, NULL,
      "steps with each P that are timed", "partitions=0" },
    BUCKETS_SIZE(TUTTI_AT(parallax, bucket), 25,
                 " of dense gradients; exchanged as soon as a bucket is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(parallax, first_bucket), "exchange starts early"),
    { 0 }
};

/* ---- from declare to open ---- */

static tutti_status choose_node(const tutti_method *m, int *node, tutti_error *err)
{
    const parallax *s = m->self;
    char why[8]; /* not reported */

    TUTTI_TRY(tutti_fail_within(err, tutti_server_node(m, s->node, node, why, sizeof why, err),
                                "method 'parallax'"));
    if (strcmp(s->node, "auto") == 0 && *node == m->workers)
        *node = 1;
    return TUTTI_OK;
}

static tutti_status parallax_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    parallax *s = m->self;
    const tutti_state rows = { .name = "parallax.rows", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64,
                               .count = (size_t)m->layout->n_tensors };
    tutti_state density = rows;
    int node;

    TUTTI_TRY(buckets_cut(m, s->bucket, s->first_bucket, err));
    TUTTI_TRY(choose_node(m, &node, err));
    TUTTI_TRY(tutti_server_tables_declare(&s->server, m, plan, SERVE, (int)s->servers, node, err));
    density.name = "parallax.density";
    density.dtype = TUTTI_F32;
    tutti_declare(plan, &rows, &s->rows);
    tutti_declare(plan, &density, &s->density);
    s->search =
        partition_search_begin(s->partitions > 0 ? s->partitions : 1, 1,
                               s->partitions > 0 || m->workers == 1 ? 1 : TUTTI_SERVER_CHUNKS);
    for (int i = 0; i < m->layout->n_tensors; i++)
        s->any = s->any || tutti_server_has_table(s->server, i);
    if (!s->any)
        return TUTTI_OK;
    tutti_declare_late_value(plan, "parallax.search", TUTTI_SAME, &s->search, sizeof s->search);
    tutti_declare_late_value(plan, "parallax.decided", TUTTI_SAME, &s->decided, sizeof s->decided);
    return TUTTI_OK;
}

static tutti_status parallax_resume(tutti_method *m, tutti_error *err)
{
    parallax *s = m->self;

    (void)err;
    s->any = false;
    for (int i = 0; i < m->layout->n_tensors; i++)
        s->any = s->any || tutti_server_has_table(s->server, i);
    return TUTTI_OK;
}

/* ---- which tables stay at servers ---- */

static bool is_dense(const parallax *s, const tutti_tensor *t, double density)
{
    return s->threshold > 0 ? density > s->threshold : density * (1 + 1 / (double)t->cols) >= 1;
}

static tutti_status decide_tables(tutti_method *m, tutti_error *err)
{
    parallax *s = m->self;
    const int n = m->layout->n_tensors;

    for (int i = 0; i < n; i++)
        s->density[i] =
            (float)(s->rows[i] / (double)s->here / (double)m->layout->tensor[i].rows / m->workers);
    TUTTI_TRY(tutti_sum(m, s->density, (size_t)n, err));
    s->decided = true;
    for (int i = 0; i < n; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (!tutti_server_has_table(s->server, i))
            continue;
        if (m->rank == 0) {
            tutti_metric_at(m, "table_density", -1, i, (double)s->density[i]);
            tutti_event(m, "table", "%s: a push has %.3g of its rows, so it %s", t->name,
                        (double)s->density[i],
                        is_dense(s, t, (double)s->density[i]) ? "is exchanged as dense"
                                                              : "stays at servers");
        }
        if (is_dense(s, t, (double)s->density[i]))
            TUTTI_TRY(tutti_server_take_table(s->server, i, err));
    }
    return parallax_resume(m, err);
}

/* ---- a step ---- */

/* All workers have counted the same steps. */
static tutti_status search(tutti_method *m, tutti_error *err)
{
    parallax *s = m->self;
    float seconds = (float)((double)s->spent_ns * 1e-9 / (double)s->timed / m->workers);

    TUTTI_TRY(tutti_sum(m, &seconds, 1, err));
    if (m->rank == 0)
        tutti_event(m, "partitions", "a step with tables in %lld parts a server takes %.4g s",
                    (long long)s->search.now, (double)seconds);
    partition_search_feed(&s->search, (double)seconds);
    if (s->search.way == 0 && m->rank == 0)
        tutti_event(m, "partitions", "tables are sent in %lld parts a server from here on",
                    (long long)s->search.now);
    s->in_window = s->spent_ns = 0;
    return TUTTI_OK;
}

static tutti_status parallax_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    parallax *s = m->self;

    if (p->index > 0 || !s->any)
        return TUTTI_OK;
    if (!s->decided && s->profile > 0 && s->here >= s->profile)
        TUTTI_TRY(decide_tables(m, err));
    if (s->any && s->search.way != 0 && s->in_window == s->warmup + s->timed)
        TUTTI_TRY(search(m, err));
    s->begin_ns = tutti_now_ns(m->rt);
    return TUTTI_OK;
}

static tutti_status parallax_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    parallax *s = m->self;
    const double weight = p->rows != NULL && s->reduce == SUM ? 1 : p->weight;

    if (p->rows == NULL || !tutti_server_has_table(s->server, p->first_tensor))
        return tutti_exchange(m, p, weight, err);
    TUTTI_TRY(tutti_server_push_rows(s->server, p, (float)weight, (int)s->search.now, err));
    s->rows[p->first_tensor] +=
        (double)(p->rows->all ? m->layout->tensor[p->first_tensor].rows : p->rows->n); /* including
                                                                                          those of
                                                                                          its
                                                                                          node */
    return TUTTI_OK;
}

static tutti_status parallax_step(tutti_method *m, tutti_error *err)
{
    parallax *s = m->self;

    TUTTI_TRY(tutti_base_step(m, err));
    s->here++;
    if (s->in_window >= s->warmup)
        s->spent_ns += tutti_now_ns(m->rt) - s->begin_ns;
    s->in_window += s->in_window < s->warmup + s->timed;
    return TUTTI_OK;
}

static tutti_status parallax_rows_acquire(tutti_method *m, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err)
{
    return tutti_server_need_rows(((parallax *)m->self)->server, tensor, ids, n, err);
}

/* All have the same model already. */
static tutti_status parallax_final_model(tutti_method *m, tutti_error *err)
{
    const parallax *s = m->self;
    int tables = 0;

    (void)err;
    for (int i = 0; i < m->layout->n_tensors; i++)
        tables += tutti_server_has_table(s->server, i);
    if (m->rank == 0 && m->workers > 1) {
        tutti_metric(m, "tables_at_servers", -1, tables);
        tutti_metric(m, "partitions", -1, (double)s->search.now);
    }
    return TUTTI_OK;
}

static tutti_status parallax_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((parallax *)m->self)->server, err);
}

/* ---- the row ---- */

static const tutti_service parallax_services[] = { [SERVE] = { "server", parallax_serve }, { 0 } };

static const char *const parallax_constraints[] = {
    "the bits of ddp with sparse_reduce=mean; without tables whose rows are asked for its bytes, "
    "too",
    "a table at servers is updated by itself: clip-norm, nonfinite=skip, loss-scale, a client's "
    "optimizer are refused",
    "nodes have equally many workers of consecutive ranks, and 2, 4, 8, ... of them unless there "
    "is one node",
    "servers is at most the number of workers; with --servers ranks of their own serve, and no "
    "worker",
    BUCKETS_CONSTRAINT,
    "a lost worker or server ends the run (exit code 3): every all-reduce needs every worker",
    NULL
};

static uint64_t parallax_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return (uint64_t)((const parallax *)self)->profile;
}

const tutti_method_ops tutti_method_parallax = {
    .name = "parallax",
    .title = "Parallax: dense by all-reduce, sparse by servers",
    .authors = "Kim, Yu, Park, Cho, Jeong, Ha, Lee, Jeong, Chun",
    .year = 2019,
    .family = "server",
    .axes = { "all-reduce and servers", "every step", "fp32", "buckets, overlap",
              "dense replicated, tables sliced", "any, tables on slices" },
    .constraints = parallax_constraints,
    .options = parallax_options,
    .settles = parallax_settles,
    .self_bytes = sizeof(parallax),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SPARSE_ROWS | TUTTI_PARAMETER_SERVERS,
    .services = parallax_services,
    .declare = parallax_declare,
    .pass = parallax_pass,
    .exchange = parallax_exchange,
    .step = parallax_step,
    .final_model = parallax_final_model,
    .rows_acquire = parallax_rows_acquire,
    .resume = parallax_resume,
};
