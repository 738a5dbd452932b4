/* server_bench.c: what bench/server measures, one run a process:

   server_bench WORKERS ELEMENTS STEPS METHOD     every worker pushes a gradient of ELEMENTS floats STEPS times through METHOD ("asgd"), with plain sgd and no computation at all: push, update, pull

   Workers are threads over shared memory. Prints one JSON object: seconds of all pushes together; what a triad of plain C (McCalpin 1995) moves meanwhile in as many threads, before and after, in bytes a second, on
   vectors of ELEMENTS each; and the ratio of both: a push moves at least 28 bytes an element (gradient copied to the server, 8; values updated with it, 12; values copied back, 8). */
#include <stdio.h>
#include <stdlib.h>

#include "tutti/engine.h"

enum { TRIADS = 20, BYTES_A_PUSH = 28 };

typedef struct bench {
    size_t n;
    int steps;
    const char *method;
    double push_s, triad_s[2];   /* of rank 0, between barriers */
} bench;

static tutti_status lap(tutti_world *world, int64_t *since, double *seconds, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, 99);

    TUTTI_TRY(tutti_barrier(&all, err));
    TUTTI_TRY(tutti_barrier(&all, err));
    *seconds = (double)(tutti_now_ns(tutti_world_runtime(world)) - *since) * 1e-9;
    *since = tutti_now_ns(tutti_world_runtime(world));
    return TUTTI_OK;
}

__attribute__((noinline)) static void triad(size_t n, float *restrict a, const float *restrict b, const float *restrict c)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

static tutti_status step(tutti_engine *e, tutti_error *err)
{
    tutti_pass pass;
    tutti_status status;

    while ((status = tutti_engine_pass(e, &pass, err)) == TUTTI_OK) {
        TUTTI_TRY(tutti_engine_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_passed(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status measure(tutti_world *world, bench *b, tutti_engine *e, float *memory, tutti_error *err)
{
    double seconds[4];
    int64_t since = 0;

    for (int k = 0; k < 3; k++)
        TUTTI_TRY(step(e, err)); /* warm: memory is there */
    TUTTI_TRY(lap(world, &since, &seconds[0], err));
    for (int k = 0; k < TRIADS; k++)
        triad(b->n, memory, memory + b->n, memory + 2 * b->n);
    TUTTI_TRY(lap(world, &since, &seconds[1], err));
    for (int k = 0; k < b->steps; k++)
        TUTTI_TRY(step(e, err));
    TUTTI_TRY(lap(world, &since, &seconds[2], err));
    for (int k = 0; k < TRIADS; k++)
        triad(b->n, memory, memory + b->n, memory + 2 * b->n);
    TUTTI_TRY(lap(world, &since, &seconds[3], err));
    if (tutti_world_rank(world) == 0) {
        b->push_s = seconds[2];
        b->triad_s[0] = seconds[1];
        b->triad_s[1] = seconds[3];
    }
    return tutti_engine_finish(e, err);
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    bench *b = arg;
    const tutti_param param = { .name = "w", .dims = 1, .dim = { b->n } };
    float *memory = tutti_alloc(3 * b->n, sizeof *memory);
    tutti_engine *e = NULL;
    tutti_status status = memory != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "room for a triad");

    for (size_t i = 0; i < 3 * b->n && memory != NULL; i++)
        memory[i] = (float)(i % 13);
    if (status == TUTTI_OK)
        status = tutti_engine_open(&e, world, &param, 1, &(tutti_engine_options){ .method = b->method, .optimizer = "sgd(lr=0.001)", .batch = 1, .lane = -1 }, err);
    if (status == TUTTI_OK)
        status = measure(world, b, e, memory, err);
    tutti_engine_close(e);
    tutti_free(memory);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench b = { 0 };
    int workers;
    double triad_rate;

    if (argc != 5 || (workers = atoi(argv[1])) < 1 || (b.n = (size_t)atol(argv[2])) < 1 || (b.steps = atoi(argv[3])) < 1) {
        fprintf(stderr, "server_bench WORKERS ELEMENTS STEPS METHOD\n");
        return 2;
    }
    b.method = argv[4];
    if (tutti_world_run("shm", workers, rank_main, &b, &err) != TUTTI_OK) {
        fprintf(stderr, "server_bench: %s\n", err.text);
        return 1;
    }
    triad_rate = 2.0 * TRIADS * workers * 12.0 * (double)b.n / (b.triad_s[0] + b.triad_s[1]);
    printf("{\"workers\": %d, \"elements\": %zu, \"pushes\": %d, \"seconds\": %.6f, \"bytes_a_second\": %.0f, \"triad_bytes_a_second\": %.0f, \"ratio\": %.4f}\n", workers, b.n, workers * b.steps, b.push_s,
           (double)BYTES_A_PUSH * workers * b.steps * (double)b.n / b.push_s, triad_rate, (double)BYTES_A_PUSH * workers * b.steps * (double)b.n / b.push_s / triad_rate);
    return 0;
}
