/* regression.c: a program of your own on Tutti's engine, without a network library. Four workers
   fit y = w.x + b by least squares, by the method that is asked for (ddp), all on as many samples.
   It prints what it found and fails if that is wrong. Build: cc regression.c -ltutti -lm. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

enum { DIM = 8, SAMPLES = 4096, EPOCHS = 12 };
static const tutti_share share = { .samples = SAMPLES, .workers = 4, .batch = 32, .accumulate = 1, .seed = 1 };

static double feature(uint64_t sample, int k) { return tutti_normal((tutti_rng){ 7, 1, sample }, (uint64_t)k); }
static double truth(int k) { return 0.5 * k - 1; } /* the weights to be found; k = DIM is the bias */

typedef struct job { const char *method; double worst; } job;

static tutti_status worker(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[] = { { .name = "bias", .dims = 1, .dim = { 1 } },
                                   { .name = "weight", .dims = 1, .dim = { DIM } } };
    job *j = arg;
    const tutti_engine_options options = { .method = j->method, .optimizer = "sgd(lr=0.1)", .batch = share.batch,
                                           .data_samples = SAMPLES, .seed = share.seed };
    tutti_engine *e;
    tutti_pass pass;
    bool more;
    tutti_status status = tutti_engine_open(&e, world, params, 2, &options, err);

    while (status == TUTTI_OK && (status = tutti_engine_more_epochs(e, EPOCHS, &more, err)) == TUTTI_OK && more) {
        while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
            const float *w = tutti_engine_values(e, 1), *b = tutti_engine_values(e, 0);
            float *gw = memset(tutti_engine_gradient(e, 1), 0, DIM * sizeof *gw), *gb = tutti_engine_gradient(e, 0);
            double loss = 0;
            *gb = 0;
            for (int64_t i = 0; i < pass.samples; i++) {
                const uint64_t id = tutti_share_sample(&share, pass.epoch, pass.position + (uint64_t)i);
                double off = *b - truth(DIM); /* the guess less y */
                for (int k = 0; k < DIM; k++)
                    off += (w[k] - truth(k)) * feature(id, k);
                loss += off * off / 2;
                *gb += (float)(off / (double)pass.divisor);
                for (int k = 0; k < DIM; k++)
                    gw[k] += (float)(off * feature(id, k) / (double)pass.divisor);
            }
            tutti_engine_grad_ready(e, 0, err);
            tutti_engine_grad_ready(e, 1, err);
            tutti_engine_pass_end(e, loss, err);
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    status = status == TUTTI_OK ? tutti_engine_finish(e, err) : status;
    for (int k = 0; status == TUTTI_OK && tutti_world_rank(world) == 0 && k < DIM; k++)
        j->worst = fmax(j->worst, fabs(tutti_engine_values(e, 1)[k] - truth(k)));
    tutti_engine_close(e);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err;
    job j = { .method = argc > 1 ? argv[1] : "ddp" };
    if (tutti_world_run("shm", share.workers, worker, &j, &err) != TUTTI_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    return printf("largest error of a weight: %.2g\n", j.worst), !(j.worst < 1e-3);
}
