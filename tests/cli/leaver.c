/* leaver.c: a program of the library for the tests of workers that leave early. Each worker makes
   steps of a quadratic by a method, and one of them leaves in order before the others:

     leaver METHOD WHO AFTER STEPS [MODE]

   Worker WHO closes its engine and its world after AFTER steps and ends normally; -1: none does.
   The others make STEPS steps and finish. Dedicated servers (TUTTI_SERVERS) have the last ranks.
   MODE:
     own      (default) the client makes steps without asking the engine for them
     asks     the client asks for each step (tutti_engine_more)
     slow     no worker leaves early, and worker WHO takes longer for a step than the others
     bare     no worker leaves early, and none calls tutti_engine_finish
     large    as bare, and the last messages take a while: a model of 8 MB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { COLS = 16 };
typedef struct job { const char *method, *mode; int who, after, steps, rows; } job;

static tutti_status evaluate(void *user, double *loss, tutti_error *err)
{
    (void)user;
    (void)err;
    *loss = 1;
    return TUTTI_OK;
}

static tutti_status pass(const job *j, tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    for (int t = 0; t < 2; t++) {
        const float *x = tutti_engine_values(e, t);
        float *g = tutti_engine_gradient(e, t);
        for (int i = 0; i < (t == 0 ? COLS : j->rows * COLS); i++)
            g[i] = p->samples > 0 ? x[i] - (float)tutti_engine_method(e)->rank : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, t, err));
    }
    for (int64_t k = 0; p->losses != NULL && k < p->samples; k++)
        p->losses[k] = 1;
    return tutti_engine_pass_end(e, (double)p->samples, err);
}

static tutti_status step(const job *j, tutti_engine *e, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(pass(j, e, &p, err));
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status train(const job *j, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const bool serves = m->rank >= m->workers, asks = strcmp(j->mode, "asks") == 0 || serves;
    const uint64_t until = (uint64_t)j->steps * (strcmp(j->mode, "asks") == 0 ? (uint64_t)m->workers : 1);
    bool more = true;

    for (int k = 0; asks || k < j->steps; k++) {
        if (asks)
            TUTTI_TRY(tutti_engine_more(e, until, &more, err));
        if (!more)
            break;
        if (m->rank == j->who && k == j->after)
            return TUTTI_OK;
        usleep(m->rank == j->who && strcmp(j->mode, "slow") == 0 ? 50000 : 2000);
        TUTTI_TRY(step(j, e, err));
    }
    return strcmp(j->mode, "bare") == 0 || strcmp(j->mode, "large") == 0 ? TUTTI_OK : tutti_engine_finish(e, err);
}

static tutti_status run(const job *j, tutti_world *world, tutti_error *err)
{
    const tutti_param params[] = { { .name = "bias", .dims = 1, .dim = { COLS } },
                                   { .name = "weight", .dims = 2, .dim = { (size_t)j->rows, COLS } } };
    const char *servers = getenv("TUTTI_SERVERS");
    const tutti_engine_options options = { .method = j->method,
                                           .batch = 4,
                                           .data_samples = 100000,
                                           .evaluate = evaluate,
                                           .names = true,
                                           .servers = servers != NULL ? atoi(servers) : 0 };
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, params, 2, &options, err);

    if (status != TUTTI_OK)
        return status;
    status = train(j, e, err);
    tutti_engine_close(e);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_world *world;
    tutti_status status;
    job j;

    if (argc < 5)
        return 2;
    j = (job){ argv[1], argc > 5 ? argv[5] : "own", atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), 8 };
    if (strcmp(j.mode, "large") == 0)
        j.rows = 1 << 17;
    status = tutti_world_open(&world, NULL, &err);
    if (status == TUTTI_OK) {
        status = run(&j, world, &err);
        if (status != TUTTI_OK)
            tutti_world_failure_report(world, &err);
        tutti_world_close(world);
    }
    if (status != TUTTI_OK)
        fprintf(stderr, "%s\n", err.text);
    return status == TUTTI_OK ? 0 : status == TUTTI_ERR_USAGE ? 2 : status == TUTTI_ERR_PEER ? 3 : 1;
}
