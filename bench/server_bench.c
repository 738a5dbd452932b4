/* server_bench.c: what bench/run server measures, one run a process.

     server_bench WORKERS ELEMENTS STEPS METHOD   every worker pushes a gradient of ELEMENTS floats
                                                  STEPS times through METHOD ("asgd"), with plain
                                                  sgd and no computation at all: push, update, pull
     server_bench WORKERS ROWS STEPS rows         every worker pulls and pushes, STEPS times, the
                                                  rows of a table of ROWS x 64 that DRAWS draws by
                                                  Zipf's law name, through a server that updates
                                                  them with plain sgd
     server_bench WORKERS ROWS STEPS updates      the same without the pull, which would leave the
                                                  rows in the cache

   Workers are threads over shared memory. Prints one JSON object:
   - seconds of all pushes together;
   - what a triad of plain C (McCalpin 1995) moves in as many threads, before and after, in bytes
     a second, on vectors of ELEMENTS each;
   - the ratio of both.

   What a push has to move at least, an element. The server reads the gradient in the worker's
   window and writes the answer there, and no vector stays in a cache:
     asgd               16 bytes: the gradient read, 4; the server's values read and written, 8; the
                        worker's written, 4
     parameter-server   20 bytes, however many workers: each gradient read, 4, and the mean written
                        in its place, 4; then the worker's update: gradient and value read, value
                        written, 12. The update cannot go along with the sum, which would leave 12:
                        clipping and numbers that are not finite are of the whole gradient. An
                        all-reduce moves as much.
   The engine's own look whether a gradient is finite (4) is none of it. Nor are the lines that a
   write fetches first (the triad's neither).

   Of rows it prints:
   - how many a second, a worker, from the question for them (or the push) to the end of their
     update. This is one core's work, since a worker waits while its server computes;
   - how many a second of the update alone (the time in tutti_server_update, on the server's
     threads);
   - how many the triad's rate would move, a row being read, its gradient read and the row written:
     768 bytes.
   The law's exponent is 1.1, over places of the table in an order without meaning, as hashes leave
   them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/method/server.h"
#include "tutti/tutti.h"

enum { TRIADS = 20, COLS = 64, BYTES_A_ROW = 3 * 4 * COLS, DRAWS = 65536, LISTS = 8, SERVE = 0 };

typedef struct bench {
    size_t n;
    int steps;
    const char *method;
    size_t rows;                 /* of a table; 0: none */
    bool pulls;                  /* its rows before they are pushed */
    double push_s, triad_s[2];   /* of rank 0, between barriers */
    double updated, update_s;    /* rows of all; time in updates, of all servers */
} bench;

/* ---- a server of rows, whose updates are timed ---- */
/* spent: time of the server's thread, read when the servers are quiescent */
typedef struct timed { tutti_server *server; int64_t spent; } timed;

static tutti_status timed_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    timed *t = m->self;
    const tutti_rate rate = tutti_rate_at(m, (uint64_t)r->b);
    const int64_t begin = tutti_now_ns(m->rt);

    tutti_server_update(t->server, r->in, &rate);
    t->spent += tutti_now_ns(m->rt) - begin;
    return tutti_server_answer(t->server, &r->note, 1, 0, NULL, 0, err);
}

static tutti_status timed_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return tutti_server_declare(&((timed *)m->self)->server, m, plan,
                                &(tutti_server_setup){ .rule = timed_rule, .service = SERVE }, err);
}

static tutti_status timed_step(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;
    return tutti_server_push(((timed *)m->self)->server, 0, (int64_t)m->step, m->g, NULL, &answers, err);
}

static tutti_status timed_rows_acquire(tutti_method *m, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    return tutti_server_need_rows(((timed *)m->self)->server, tensor, ids, n, err);
}

static tutti_status timed_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(((timed *)m->self)->server, err);
}

static tutti_status serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((timed *)m->self)->server, err);
}

static const tutti_service timed_services[] = { [SERVE] = { "server", serve }, { 0 } };
static const tutti_method_ops timed_ops = { .name = "rows",
                                            .family = "server",
                                            .self_bytes = sizeof(timed),
                                            .traits = TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER |
                                                      TUTTI_SPARSE_ROWS,
                                            .services = timed_services,
                                            .declare = timed_declare,
                                            .step = timed_step,
                                            .final_model = timed_final_model,
                                            .rows_acquire = timed_rows_acquire };
static const tutti_method_ops *const timed_methods[] = { &timed_ops, NULL };

/* ---- which rows: by Zipf's law (rejection, Devroye 1986, X.6.1, for an exponent above 1 and
   without an end: what is beyond the table is drawn again) ---- */
static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t zipf(tutti_rng rng, uint64_t *at, size_t rows)
{
    const double s = 1.1, b = pow(2, s - 1);

    for (;;) {
        const double u = 1 - tutti_uniform(rng, (*at)++), v = tutti_uniform(rng, (*at)++),
                     x = floor(pow(u, -1 / (s - 1))), t = pow(1 + 1 / x, s - 1);
        if (x <= (double)rows && v * x * (t - 1) / (b - 1) <= t / b)
            return (uint32_t)x - 1;
    }
}

/* One list: the rows that DRAWS draws name, once each, ascending. A row's place is its rank times
   an odd number that shares no factor with `rows`, modulo it. */
static size_t draw_rows(size_t rows, int rank, int list, uint32_t *ids)
{
    const tutti_rng rng = { 1, (uint64_t)rank + 1, (uint64_t)list };
    uint64_t at = 0, step = 2654435761u;
    size_t n = 0;

    for (uint64_t a = step, c = rows; c != 0;) { /* until they share none */
        const uint64_t left = a % c;
        a = c;
        c = left;
        if (c == 0 && a != 1)
            a = step += 2, c = rows;
    }
    for (size_t k = 0; k < DRAWS; k++)
        ids[k] = (uint32_t)(zipf(rng, &at, rows) * step % rows);
    qsort(ids, DRAWS, sizeof *ids, ascending);
    for (size_t k = 0; k < DRAWS; k++)
        if (n == 0 || ids[k] != ids[n - 1])
            ids[n++] = ids[k];
    return n;
}

static tutti_status lap(tutti_world *world, int64_t *since, double *seconds, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, 99);

    TUTTI_TRY(tutti_barrier(&all, err));
    TUTTI_TRY(tutti_barrier(&all, err));
    *seconds = (double)(tutti_now_ns(tutti_world_runtime(world)) - *since) * 1e-9;
    *since = tutti_now_ns(tutti_world_runtime(world));
    return TUTTI_OK;
}

__attribute__((noinline)) static void triad(size_t n, float *restrict a, const float *restrict b,
                                            const float *restrict c)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

/* The rows of a step, of a table; n 0: it is none. */
typedef struct named { const uint32_t *ids; size_t n; } named;

static tutti_status step(tutti_engine *e, named rows, bool pulls, tutti_error *err)
{
    tutti_pass pass;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
        if (rows.n > 0 && pulls)
            TUTTI_TRY(tutti_engine_rows_acquire(e, 0, rows.ids, rows.n, err));
        if (rows.n > 0)
            TUTTI_TRY(tutti_engine_grad_ready_rows(e, 0, rows.ids, rows.n, err));
        else
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status measure(tutti_world *world, bench *b, tutti_engine *e, float *memory, const named lists[LISTS],
                            tutti_error *err)
{
    const int warm = b->rows > 0 ? LISTS : 3;
    tutti_group all = tutti_group_workers(world, 98);
    double seconds[4], told[2] = { 0 };
    int64_t since = 0;

    for (int k = 0; k < warm; k++)
        TUTTI_TRY(step(e, lists[k % LISTS], b->pulls, err)); /* warm: memory is there */
    TUTTI_TRY(tutti_engine_eval_begin(e, err)); /* quiesces the servers, so that their times can be read */
    TUTTI_TRY(tutti_engine_eval_end(e, err));
    if (b->rows > 0)
        ((timed *)tutti_engine_method(e)->self)->spent = 0;
    TUTTI_TRY(lap(world, &since, &seconds[0], err));
    for (int k = 0; k < TRIADS; k++)
        triad(b->n, memory, memory + b->n, memory + 2 * b->n);
    TUTTI_TRY(lap(world, &since, &seconds[1], err));
    for (int k = 0; k < b->steps; k++) {
        TUTTI_TRY(step(e, lists[k % LISTS], b->pulls, err));
        told[0] += (double)lists[k % LISTS].n;
    }
    TUTTI_TRY(lap(world, &since, &seconds[2], err));
    for (int k = 0; k < TRIADS; k++)
        triad(b->n, memory, memory + b->n, memory + 2 * b->n);
    TUTTI_TRY(lap(world, &since, &seconds[3], err));
    if (tutti_world_rank(world) == 0) {
        b->push_s = seconds[2];
        b->triad_s[0] = seconds[1];
        b->triad_s[1] = seconds[3];
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (b->rows > 0)
        told[1] = (double)((timed *)tutti_engine_method(e)->self)->spent * 1e-9;
    TUTTI_TRY(tutti_reduce_double(&all, TUTTI_SUM, told, 2, err));
    if (tutti_world_rank(world) == 0) {
        b->updated = told[0];
        b->update_s = told[1];
    }
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    bench *b = arg;
    const tutti_param vector = { .name = "w", .dims = 1, .dim = { b->n } }, table = {
        .name = "w", .dims = 2, .dim = { b->rows, COLS }, .row_sparse = true, .asks_rows = b->pulls
    };
    uint32_t *ids = b->rows > 0 ? tutti_alloc((size_t)LISTS * DRAWS, sizeof *ids) : NULL;
    named lists[LISTS] = { { 0 } };
    float *memory = tutti_alloc(3 * b->n, sizeof *memory);
    tutti_engine *e = NULL;
    tutti_status status = memory != NULL && (b->rows == 0 || ids != NULL)
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for a triad");

    for (int k = 0; k < LISTS && ids != NULL; k++)
        lists[k] =
            (named){ ids + (size_t)k * DRAWS, draw_rows(b->rows, tutti_world_rank(world), k, ids + (size_t)k * DRAWS) };
    for (size_t i = 0; i < 3 * b->n && memory != NULL; i++)
        memory[i] = (float)(i % 13);
    if (status == TUTTI_OK)
        status = tutti_engine_open_from(&e, world, b->rows > 0 ? &table : &vector, 1,
                                        &(tutti_engine_options){ .method = b->rows > 0 ? timed_ops.name : b->method,
                                                                 .optimizer = "sgd(lr=0.001)",
                                                                 .batch = 1,
                                                                 .lane = -1 },
                                        b->rows > 0 ? timed_methods : tutti_methods, err);
    if (status == TUTTI_OK)
        status = measure(world, b, e, memory, lists, err);
    tutti_engine_close(e);
    tutti_free(ids);
    tutti_free(memory);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench b = { 0 };
    int workers;
    double triad_rate, push_rate;

    if (argc != 5 || (workers = atoi(argv[1])) < 1 || (b.n = (size_t)atol(argv[2])) < 1 ||
        (b.steps = atoi(argv[3])) < 1) {
        fprintf(stderr, "server_bench WORKERS ELEMENTS STEPS METHOD\n");
        return 2;
    }
    b.method = argv[4];
    b.pulls = strcmp(b.method, "rows") == 0;
    if (b.pulls || strcmp(b.method, "updates") == 0) {
        b.rows = b.n;
        b.n = (size_t)1 << 24; /* of the triad */
    }
    if (tutti_world_run("shm", workers, rank_main, &b, &err) != TUTTI_OK) {
        fprintf(stderr, "server_bench: %s\n", err.text);
        return 1;
    }
    triad_rate = 2.0 * TRIADS * workers * 12.0 * (double)b.n / (b.triad_s[0] + b.triad_s[1]);
    if (b.rows > 0) {
        printf("{\"workers\": %d, \"rows\": %zu, \"rows_a_push\": %.0f, \"seconds\": %.6f, \"rows_a_second_a_worker\": "
               "%.0f, \"updates_a_second\": %.0f, \"triad_rows_a_second\": %.0f}\n",
               workers, b.rows, b.updated / workers / b.steps, b.push_s, b.updated / workers / b.push_s,
               b.updated / b.update_s, triad_rate / workers / BYTES_A_ROW);
        return 0;
    }
    push_rate = (strcmp(b.method, "parameter-server") == 0 ? 20.0 : 16.0) * workers * b.steps * (double)b.n / b.push_s;
    printf("{\"workers\": %d, \"elements\": %zu, \"pushes\": %d, \"seconds\": %.6f, \"bytes_a_second\": %.0f, "
           "\"triad_bytes_a_second\": %.0f, \"ratio\": %.4f}\n",
           workers, b.n, workers * b.steps, b.push_s, push_rate, triad_rate, push_rate / triad_rate);
    return 0;
}
