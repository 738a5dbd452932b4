/* sim_bench.c: what bench/sim measures, one run a process (a process has one simulation).

     sim_bench train WORKERS STEPS|epoch DATA OUT   `tutti train --transport sim
                                                    --model mlp(hidden=128) --batch 8 --method ddp`;
                                                    epoch: once over the data in all
     sim_bench ring WORKERS BYTES [ROUNDS]          an all-reduce of BYTES by a ring over ports
                                                    (Patarasuk and Yuan 2009). In each of 2 (p - 1)
                                                    rounds (or ROUNDS) every worker sends a slice to
                                                    the next and receives one from the one before

   Prints one JSON object: messages of all workers; host time of the process, as CPU seconds (user
   and system) and on the wall; virtual seconds; peak resident KiB. The ring's values are small
   integers, whose sums are exact in any order: a full run checks its answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include "train/train.h"

typedef struct bench {
    tutti_train_config config;
    const char *data;
    size_t bytes;
    int rounds;
    uint64_t messages;   /* workers are actors of one thread: no atomic */
    double virtual_s;
} bench;

static void account(bench *b, tutti_world *world, int64_t begin_ns)
{
    const double seconds = (double)(tutti_now_ns(tutti_world_runtime(world)) - begin_ns) * 1e-9;
    uint64_t bytes, messages;

    tutti_world_sent(world, TUTTI_ANY, &bytes, &messages);
    b->messages += messages;
    b->virtual_s = seconds > b->virtual_s ? seconds : b->virtual_s;
}

static tutti_status train_main(tutti_world *world, void *arg, tutti_error *err)
{
    bench *b = arg;
    const int64_t begin_ns = tutti_now_ns(tutti_world_runtime(world));

    TUTTI_TRY(tutti_train_worker(world, &b->config, &(tutti_train_io){ .installed_data = b->data }, err));
    account(b, world, begin_ns);
    return TUTTI_OK;
}

/* First float of slice s. */
static size_t slice(size_t n, int p, int s)
{
    const size_t most = n % (size_t)p, k = (size_t)s;
    return n / (size_t)p * k + (most < k ? most : k);
}

static tutti_status turn(tutti_world *world, size_t n, float *x, float *came, int round, tutti_error *err)
{
    const int p = tutti_world_size(world), rank = tutti_world_rank(world);
    const bool adds = round % (2 * (p - 1)) < p - 1;
    const int out = (rank - round % (p - 1) + (adds ? 0 : 1) + p) % p, in = (out + p - 1) % p;
    const size_t out_at = slice(n, p, out), in_at = slice(n, p, in), in_n = slice(n, p, in + 1) - in_at;
    const tutti_port port = tutti_port_of("ring", 0, 0);
    tutti_request send, recv, *const both[2] = { &recv, &send };

    TUTTI_TRY(tutti_post_recv(world, &recv, (rank + p - 1) % p, port,
                              tutti_host(adds ? came : x + in_at, in_n, TUTTI_F32), err));
    TUTTI_TRY(tutti_post_send(world, &send, (rank + 1) % p, port, NULL,
                              tutti_host(x + out_at, slice(n, p, out + 1) - out_at, TUTTI_F32), err));
    TUTTI_TRY(tutti_wait_some(world, both, 2, 2, TUTTI_FOREVER, NULL, err));
    for (size_t k = 0; adds && k < in_n; k++)
        x[in_at + k] += came[k];
    return TUTTI_OK;
}

static tutti_status ring_main(tutti_world *world, void *arg, tutti_error *err)
{
    bench *b = arg;
    const int p = tutti_world_size(world), rank = tutti_world_rank(world);
    const size_t n = b->bytes / sizeof(float);
    const int64_t begin_ns = tutti_now_ns(tutti_world_runtime(world));
    float *x = tutti_alloc(n + n / (size_t)p + 1, sizeof *x), sums[8] = { 0 };
    tutti_status status = TUTTI_OK;

    if (x == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a vector of %zu bytes", b->bytes);
    for (size_t k = 0; k < n; k++)
        x[k] = (float)((k + (size_t)rank) % 8);
    for (int round = 0; status == TUTTI_OK && round < b->rounds; round++)
        status = turn(world, n, x, x + n, round, err);
    account(b, world, begin_ns);
    for (int w = 0; w < p; w++)
        for (int k = 0; k < 8; k++)
            sums[k] += (float)((k + w) % 8);
    for (size_t k = 0; status == TUTTI_OK && b->rounds == 2 * (p - 1) && k < n; k++)
        if (x[k] != sums[k % 8])
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d has %g at %zu instead of %g", rank, (double)x[k], k,
                                (double)sums[k % 8]);
    tutti_free(x);
    return status;
}

static tutti_status prepare_training(bench *b, int workers, const char *steps, const char *out, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;

    tutti_options_default(tutti_train_options, &b->config);
    b->config.transport = "sim";
    b->config.model = "mlp(hidden=128)";
    b->config.method = "ddp";
    b->config.batch = 8;
    b->config.threads = 1;
    b->config.n = workers;
    b->config.steps = strcmp(steps, "epoch") == 0 ? 0 : atoll(steps);
    b->config.out = out;
    b->config.quiet = true;
    b->config.overwrite = true;
    TUTTI_TRY(tutti_train_check(&b->config, 1, err));
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = tutti_train_prepare(rt, &b->config, err);
    tutti_runtime_close(rt);
    return status;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

int main(int argc, char **argv)
{
    const bool trains = argc == 6 && strcmp(argv[1], "train") == 0,
               rings = (argc == 4 || argc == 5) && strcmp(argv[1], "ring") == 0;
    const int p = argc > 2 ? atoi(argv[2]) : 0;
    tutti_status status = TUTTI_OK;
    tutti_error err = { .rank = -1 };
    struct timespec begin, end;
    struct rusage use;
    bench b = { 0 };

    if (trains)
        b.data = argv[4];
    if (rings) {
        b.bytes = (size_t)atoll(argv[3]);
        b.rounds = argc > 4 ? atoi(argv[4]) : 2 * (p - 1);
    }
    if (!(trains && p >= 1) && !(rings && p >= 2 && b.bytes >= sizeof(float) * (size_t)p)) {
        fprintf(stderr,
                "usage: sim_bench train WORKERS STEPS|epoch DATA OUT\n       sim_bench ring WORKERS BYTES [ROUNDS]\n");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (trains)
        status = prepare_training(&b, p, argv[3], argv[5], &err);
    if (status == TUTTI_OK)
        status = tutti_world_run("sim", p, trains ? train_main : ring_main, &b, &err);
    if (status != TUTTI_OK) {
        fprintf(stderr, "sim_bench: %s\n", err.text);
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_SELF, &use);
    printf("{\"workers\": %d, \"messages\": %llu, \"cpu_seconds\": %.3f, \"wall_seconds\": %.3f, \"virtual_seconds\": "
           "%.6f, \"rss_kib\": %ld}\n",
           p, (unsigned long long)b.messages, seconds(use.ru_utime) + seconds(use.ru_stime),
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec), b.virtual_s,
           use.ru_maxrss);
    return 0;
}
