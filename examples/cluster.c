/* cluster.c: a program of your own on several processes, of one host or of many. It saves what it
   has learnt, resumes from there, and answers with it. Each process gets its rank from the
   environment, however it was started (docs/CLUSTERS.md):

     tutti key run.key
     export TUTTI_RUN_KEY_FILE=run.key TUTTI_SIZE=2 TUTTI_MEET=a:29500
     TUTTI_RANK=0 ./cluster train saved 400       on host a
     TUTTI_RANK=1 ./cluster train saved 400       on any host that has the key and
                                                  sees `saved` under this path
     ./cluster ask saved 1 0 0 0 0 0 0 0          in one process

   `train saved 800` then continues at step 400, with as many processes as you like. Build: cc
   cluster.c -ltutti -lm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { DIM = 8, SAMPLES = 4096, SAMPLES_A_STEP = 128, SAVE_EVERY = 100 };

/* The model, y = w.x + b, and its data. Samples are functions of their number, so every process has
   them all. */
static double feature(uint64_t sample, int k) { return tutti_normal((tutti_rng){ 7, 1, sample }, (uint64_t)k); }
static double truth(int k) { return 0.5 * k - 1; } /* k = DIM is the bias */

static double guess(const float *w, float b, const double *x)
{
    double y = b;

    for (int k = 0; k < DIM; k++)
        y += w[k] * x[k];
    return y;
}

static tutti_status open_engine(tutti_engine **e, tutti_world *world, tutti_error *err)
{
    static const tutti_param params[] = { { .name = "bias", .dims = 1, .dim = { 1 } },
                                          { .name = "weight", .dims = 1, .dim = { DIM } } };
    const tutti_engine_options options = { .method = "ddp", .optimizer = "sgd(lr=0.1)", .data_samples = SAMPLES,
                                           .batch = SAMPLES_A_STEP / tutti_world_size(world), .seed = 1 };

    return tutti_engine_open(e, world, params, 2, &options, err);
}

/* One worker looks for what was saved. All take what it found, so that they cannot differ. */
static tutti_status go_on(tutti_engine *e, tutti_world *world, const char *directory, uint64_t *step, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, tutti_port_of("what was saved", 0, 0));
    tutti_checkpoint *saved = NULL;
    char found[1024] = "";
    tutti_status status;

    if (tutti_world_rank(world) == 0 &&
        tutti_checkpoint_find(tutti_world_runtime(world), directory, found, sizeof found, NULL, 0, NULL) != TUTTI_OK)
        found[0] = 0; /* nothing yet */
    status = tutti_broadcast(&all, 0, tutti_host(found, sizeof found, TUTTI_U8), err);
    *step = 0;
    if (status != TUTTI_OK || found[0] == 0)
        return status;
    status = tutti_checkpoint_open(&saved, tutti_world_runtime(world), found, err);
    if (status == TUTTI_OK)
        status = tutti_engine_load(e, saved, err);
    if (status == TUTTI_OK)
        *step = tutti_checkpoint_step(saved);
    tutti_checkpoint_close(saved);
    return status;
}

/* This worker's part of a step: forward and backward over the samples that the engine asks for. */
static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const float *w = tutti_engine_values(e, 1), *b = tutti_engine_values(e, 0);
    float *gw = tutti_engine_gradient(e, 1), *gb = tutti_engine_gradient(e, 0);
    tutti_status status;
    tutti_pass pass;

    while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
        double loss = 0;
        *gb = 0;
        memset(gw, 0, DIM * sizeof *gw);
        for (int64_t i = 0; i < pass.samples; i++) {
            const uint64_t id = tutti_share_sample(tutti_engine_share(e), pass.epoch, pass.position + (uint64_t)i);
            double x[DIM], off, y = truth(DIM);
            for (int k = 0; k < DIM; k++) {
                x[k] = feature(id, k);
                y += truth(k) * x[k];
            }
            off = guess(w, *b, x) - y;
            loss += off * off / 2;
            *gb += (float)(off / (double)pass.divisor);
            for (int k = 0; k < DIM; k++)
                gw[k] += (float)(off * x[k] / (double)pass.divisor);
        }
        if ((status = tutti_engine_grad_ready(e, 0, err)) != TUTTI_OK ||
            (status = tutti_engine_grad_ready(e, 1, err)) != TUTTI_OK ||
            (status = tutti_engine_pass_end(e, loss, err)) != TUTTI_OK)
            return status;
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static void say(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static tutti_status train(const char *directory, uint64_t steps, tutti_error *err)
{
    tutti_world *world = NULL;
    tutti_engine *e = NULL;
    uint64_t step = 0;
    tutti_status status = tutti_world_open_telling(&world, "", say, NULL, err); /* waits, and reports missing ranks */

    if (status == TUTTI_OK)
        status = open_engine(&e, world, err);
    if (status == TUTTI_OK)
        status = go_on(e, world, directory, &step, err);
    if (status == TUTTI_OK && tutti_world_rank(world) == 0)
        printf("%d processes, from step %llu\n", tutti_world_size(world), (unsigned long long)step);
    while (status == TUTTI_OK && step < steps) {
        status = one_step(e, err);
        if (status == TUTTI_OK && (++step % SAVE_EVERY == 0 || step == steps))
            status = tutti_engine_save(e, directory, "{}", 2, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status != TUTTI_OK && world != NULL)
        tutti_world_failure_report(world, err); /* the others learn why */
    tutti_engine_close(e);
    tutti_world_close(world);
    return status;
}

/* The parameters alone, without a world or an engine. */
static tutti_status ask(const char *directory, const double *x, tutti_error *err)
{
    float w[DIM], b;
    const tutti_saved wanted[] = {
        { .state = "x", .tensor = "bias", .dtype = TUTTI_F32, .owner = -1, .count = 1, .end = 1, .data = &b },
        { .state = "x", .tensor = "weight", .dtype = TUTTI_F32, .owner = -1, .count = DIM, .end = DIM, .data = w }
    };
    tutti_checkpoint *saved = NULL;
    tutti_runtime *rt = NULL;
    char found[1024];
    tutti_status status = tutti_runtime_open_posix(&rt, err);

    if (status == TUTTI_OK)
        status = tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_open(&saved, rt, found, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_read(saved, wanted, 2, err);
    if (status == TUTTI_OK)
        printf("step %llu: y = %.4f\n", (unsigned long long)tutti_checkpoint_step(saved), guess(w, b, x));
    tutti_checkpoint_close(saved);
    tutti_runtime_close(rt);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err = { .text = "" };
    double x[DIM] = { 0 };
    tutti_status status;

    if (argc == 4 && strcmp(argv[1], "train") == 0)
        status = train(argv[2], strtoull(argv[3], NULL, 10), &err);
    else if (argc == 3 + DIM && strcmp(argv[1], "ask") == 0) {
        for (int k = 0; k < DIM; k++)
            x[k] = strtod(argv[3 + k], NULL);
        status = ask(argv[2], x, &err);
    } else {
        fprintf(stderr, "usage: cluster train DIRECTORY STEPS, or cluster ask DIRECTORY and %d numbers\n", DIM);
        return 2;
    }
    if (status != TUTTI_OK)
        fprintf(stderr, "cluster: %s\n", err.text);
    return status != TUTTI_OK;
}
