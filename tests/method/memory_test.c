/* Goal: what gossip methods keep in addition to the model, its gradient and the optimiser's
   state, on every worker, is what their pages and sheets state (prague.md 11, qg-dsgdm.md 8,
   gut.md 4, hop.md's queues). And what a rank that only serves has is what server.h states: its
   shards and buffers for what is in flight, no x and no g. All memory that grows with the model
   is declared, so the declarations are counted. Method: the plan of an open engine, in vectors of
   the model's size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "state/plan.h"

enum { RANKS = 8, ELEMENTS = 1 << 16 };

typedef struct row {
    const char *method;
    int workers;
    int vectors;                 /* all of them */
    int kept;                    /* those that outlive a step */
} row;
typedef struct job { const row *row; double vectors[RANKS], kept[RANKS]; } job;

static tutti_status count_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const others[] = { "x", "g", "engine.", "optim." };
    const tutti_param param = { .name = "a", .dims = 1, .dim = { ELEMENTS } };
    job *j = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine *e;
    const tutti_status status = tutti_engine_open(
        &e, world, &param, 1,
        &(tutti_engine_options){ .method = j->row->method, .optimizer = "sgd(lr=0.1,momentum=0.9)", .batch = 2 }, err);

    for (size_t i = 0; status == TUTTI_OK && i < tutti_plan_count(e->plan); i++) {
        const tutti_state *s = tutti_plan_state(e->plan, i, NULL);
        const double vectors = (double)(s->count * tutti_dtype_bytes(s->dtype)) / (double)(e->m.n * sizeof(float));
        bool other = false;
        for (size_t k = 0; k < TUTTI_LENGTH(others); k++)
            other = other || (k < 2 ? strcmp(s->name, others[k]) == 0 : strncmp(s->name, others[k], 6) == 0);
        j->vectors[rank] += other ? 0 : vectors;
        j->kept[rank] += other || s->keep == TUTTI_SCRATCH ? 0 : vectors;
    }
    tutti_engine_close(e);
    return status;
}

static void number_of_vectors_per_worker_matches_the_documentation(void **state)
{
    static const row rows[] = {
        /* s, what is sent, the mean; whatever the groups */
        { "prague", 5, 3, 0 },
        { "prague(generator=random,group_size=5)", 5, 3, 0 },
        { "prague(generator=static,group_size=2,inter_intra=2,overlap=on)", 8, 3, 0 },
        { "prague", 1, 1, 0 },
        /* models that come from neighbours: 2 of a ring, 4 of a complete graph */
        { "d-psgd(order=atc)", 5, 2, 0 },
        { "d-psgd(order=atc,graph=complete)", 5, 4, 0 },
        /* theta, v, the mean of theta, and a partner's; three of them are saved */
        { "noloco", 5, 4, 3 },
        { "noloco", 1, 2, 2 },
        /* two more, and one with a period */
        { "qg-dsgdm", 5, 4, 0 },
        { "qg-dsgdm(period=2)", 5, 5, 1 },
        /* three more. No copy of a neighbour outlives a step: two vectors do, whatever the graph */
        { "gut", 5, 5, 2 },
        { "gut(graph=complete)", 5, 7, 2 },
        { "gut(scaling=0)", 5, 3, 0 },
        /* qg-dsgdm and one more; 3 + 2 d */
        { "saddle", 5, 5, 0 },
        { "saddle(variant=n)", 5, 7, 0 },
        { "saddle(variant=n,graph=complete)", 5, 11, 0 },
        /* the average, 3 that come, slots, copies to send from */
        { "hop", 6, 1 + 3 + 3 * 2 + 2, 0 },
        { "hop(order=serial,graph=ring)", 6, 2 + 2 * 2 + 2, 0 },
        { "hop(mode=notify-ack)", 6, 1 + 3 + 3 + 1, 0 },
        { "hop(staleness=2)", 6, 1 + 3 + 3 * 2 + 4, 0 },
        { "hop(backup=1,max_gap=4)", 6, 1 + 3 + 3 * 5 + 5, 0 },
        { "hop(backup=1,max_gap=12)", 6, 1 + 3 + 3 * 13 + 8, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        job j = { .row = &rows[k] };
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", rows[k].workers, count_rank, &j, &err) != TUTTI_OK)
            fail_msg("%s: %s", rows[k].method, err.text);
        for (int r = 0; r < rows[k].workers; r++) /* numbers of their own are few compared with a vector */
            if (!(j.vectors[r] >= rows[k].vectors && j.vectors[r] < rows[k].vectors + 0.05) ||
                !(j.kept[r] >= rows[k].kept && j.kept[r] < rows[k].kept + 0.05))
                fail_msg("%s on %d: worker %d has %.3f vectors and keeps %.3f, expected %d and %d", rows[k].method,
                         rows[k].workers, r, j.vectors[r], j.kept[r], rows[k].vectors, rows[k].kept);
    }
}

/* ---- by kind, and before any memory is taken ---- */

typedef struct kinds_job {
    const char *method;
    uint64_t declared[RANKS][TUTTI_MEMORY_KINDS], taken[RANKS][TUTTI_MEMORY_KINDS];
} kinds_job;

static void sum_up(const tutti_engine *e, uint64_t bytes[TUTTI_MEMORY_KINDS])
{
    tutti_memory_record records[64];
    const size_t n = tutti_engine_memory(e, records, TUTTI_LENGTH(records));

    assert_in_range(n, 1, TUTTI_LENGTH(records));
    assert_int_equal(tutti_engine_memory(e, NULL, 0), n);
    for (size_t i = 0; i < n; i++)
        bytes[records[i].kind] += records[i].bytes;
}

static tutti_status declare_and_take(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "a", .dims = 1, .dim = { ELEMENTS } };
    kinds_job *j = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine_options options = { .method = j->method, .optimizer = "sgd(lr=0.1,momentum=0.9)", .batch = 2,
                                     .only_declared = true };
    tutti_engine *e;
    tutti_status status;

    for (int k = 0; k < 2; k++) { /* a world may have as many as only declare */
        memset(j->declared[rank], 0, sizeof j->declared[rank]);
        TUTTI_TRY(tutti_engine_open(&e, world, &param, 1, &options, err));
        sum_up(e, j->declared[rank]);
        if (tutti_engine_values(e, 0) != NULL || tutti_engine_step(e, NULL) != TUTTI_ERR_STATE)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "an engine that only declares goes on");
        else
            status = TUTTI_OK;
        tutti_engine_close(e);
        TUTTI_TRY(status);
    }
    options.only_declared = false;
    TUTTI_TRY(tutti_engine_open(&e, world, &param, 1, &options, err));
    sum_up(e, j->taken[rank]);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void declared_memory_of_each_kind_equals_allocated_memory(void **state)
{
    /* vectors of values, gradients, states, buffers on 3 workers, rounded down */
    static const struct { const char *method; int vectors[TUTTI_MEMORY_KINDS]; } rows[] = {
        { "ddp", { 1, 1, 1, 0, 0 } },
        { "d-psgd(order=atc)", { 1, 1, 1, 0, 3 } }, /* the models of two neighbours, and x during an evaluation */
        { "slowmo", { 1, 1, 3, 0, 1 } },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        kinds_job j = { .method = rows[k].method };
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", 3, declare_and_take, &j, &err) != TUTTI_OK)
            fail_msg("%s: %s", rows[k].method, err.text);
        for (int r = 0; r < 3; r++)
            for (int kind = 0; kind < TUTTI_MEMORY_KINDS; kind++) {
                const double vectors = (double)j.taken[r][kind] / (double)(ELEMENTS * sizeof(float));
                if (j.declared[r][kind] != j.taken[r][kind] || !(vectors >= rows[k].vectors[kind]) ||
                    !(vectors < rows[k].vectors[kind] + 0.05))
                    fail_msg("%s: worker %d declares %llu and has %llu bytes of %s, %.3f vectors", rows[k].method, r,
                             (unsigned long long)j.declared[r][kind], (unsigned long long)j.taken[r][kind],
                             tutti_memory_name((tutti_memory)kind), vectors);
            }
    }
}

/* ---- ranks that only serve ---- */

typedef struct served {
    const char *transport, *method;
    int workers, servers;
    double vectors;              /* of the model's size, on all of them */
} served;
typedef struct served_job { const served *row; double vectors[RANKS]; } served_job;

static tutti_status count_server(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "a", .dims = 1, .dim = { ELEMENTS } };
    served_job *j = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, &param, 1,
                                            &(tutti_engine_options){ .method = j->row->method,
                                                                     .optimizer = "sgd(lr=0.1,momentum=0.9)",
                                                                     .batch = 2, .servers = j->row->servers },
                                            err);

    if (status == TUTTI_OK && rank >= j->row->workers) {
        for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
            const tutti_state *s = tutti_plan_state(e->plan, i, NULL);
            if (strncmp(s->name, "engine.", 7) == 0) /* figures, few compared with a model */
                continue;
            j->vectors[rank] += (double)(s->count * tutti_dtype_bytes(s->dtype)) / (double)(ELEMENTS * sizeof(float));
        }
        if (e->m.x != NULL || e->m.g != NULL || tutti_engine_values(e, 0) != NULL ||
            tutti_engine_gradient(e, 0) != NULL)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d, which only serves, has x or g", rank);
    }
    tutti_engine_close(e);
    return status;
}

/* Values and a momentum: 2, where values are kept. In addition n R, and what the rule asks
   for. */
static void server_memory_is_its_shards_plus_requests_in_flight(void **state)
{
    static const served rows[] = {
        { "tcp", "asgd", 3, 1, 2 + 3 },
        { "tcp", "asgd", 3, 3, 2 + 3 },
        { "tcp", "asgd(compensate=constant)", 3, 1, 2 + 3 + 3 },
        { "tcp", "asgd(softsync=2)", 3, 2, 2 + 3 + 1 },
        { "tcp", "ssp", 4, 1, 2 + 4 },
        { "tcp", "backup-workers(backup=1)", 4, 2, 2 + 4 },
        { "tcp", "ringmaster-asgd(stops=on)", 3, 1, 2 + 3 + 3 },
        { "tcp", "oscars", 3, 1, 1 + 3 + 1 },
        { "tcp", "decoupled-diloco", 3, 1, 2 + 3 },
        { "tcp", "decoupled-diloco(outer=none)", 3, 1, 1 + 3 },
        { "shm", "decoupled-diloco", 3, 1, 2 },
        /* one bucket; eight parts, with one in flight for each thread; buffers used in turn */
        { "tcp", "parameter-server", 3, 1, 3 },
        { "tcp", "parameter-server", 2, 3, 2 },
        { "tcp", "bytescheduler(over=servers,partition_mb=0.03125,credit_mb=0.0625)", 2, 1, 2 * 3 / 8.0 },
        { "tcp", "herring(node=none,fusion_mb=0.03125,min_shard_kb=0,slots=2)", 3, 1, 3 * 2 / 8.0 },
        { "tcp", "parameter-server", 1, 1, 1 },
        /* what is in flight stays in the workers' windows */
        { "shm", "asgd", 3, 1, 2 },
        { "shm", "ssp", 3, 2, 2 },
        { "shm", "backup-workers(backup=1)", 4, 1, 2 },
        { "shm", "parameter-server", 3, 1, 0 },
        { "shm", "herring(node=none,fusion_mb=0.03125,min_shard_kb=0,slots=2)", 3, 1, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        served_job j = { .row = &rows[k] };
        tutti_error err = { .rank = -1 };
        double all = 0;
        if (tutti_world_run(rows[k].transport, rows[k].workers + rows[k].servers, count_server, &j, &err) != TUTTI_OK)
            fail_msg("%s: %s", rows[k].method, err.text);
        for (int r = rows[k].workers; r < rows[k].workers + rows[k].servers; r++)
            all += j.vectors[r];
        if (!(all >= rows[k].vectors && all < rows[k].vectors + 0.05))
            fail_msg("%s over %s, %d workers: %d servers have %.3f vectors, expected %.3f", rows[k].method,
                     rows[k].transport, rows[k].workers, rows[k].servers, all, rows[k].vectors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_of_vectors_per_worker_matches_the_documentation),
        cmocka_unit_test(declared_memory_of_each_kind_equals_allocated_memory),
        cmocka_unit_test(server_memory_is_its_shards_plus_requests_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
