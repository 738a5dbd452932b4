// regression.cpp: Tutti from C++17. Four workers fit y = w.x + b, as examples/regression.c does.
// Build: c++ -std=c++17 regression.cpp -ltutti. The method is the first argument (ddp).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <tutti/tutti.h>

constexpr int dim = 8, samples = 4096, epochs = 12, workers = 4, batch = 32;
struct Failure { tutti_error error; };
struct Close { void operator()(tutti_engine *e) const { tutti_engine_close(e); } };
struct Job { const char *method; double worst; };

static double feature(uint64_t sample, int k) { return k == dim ? 1 : tutti_normal({7, 1, sample}, uint64_t(k)); }
static double truth(int k) { return 0.5 * k - 1; } // dim weights, then the bias

static void train(tutti_world *world, Job &job)
{
    tutti_error err;
    const auto check = [&](tutti_status s) { if (s != TUTTI_OK) throw Failure{err}; };
    tutti_param params{}; tutti_engine_options options{}; tutti_share share{};
    params.name = "weights", params.dims = 1, params.dim[0] = dim + 1;
    options.method = job.method, options.optimizer = "sgd(lr=0.1)", options.seed = share.seed = 1;
    options.batch = share.batch = batch, options.data_samples = share.samples = samples;
    share.workers = workers, share.accumulate = 1;
    tutti_engine *e = nullptr;
    check(tutti_engine_open(&e, world, &params, 1, &options, &err));
    const std::unique_ptr<tutti_engine, Close> closes(e);
    const float *w = tutti_engine_values(e, 0);
    for (bool more; check(tutti_engine_more_epochs(e, epochs, &more, &err)), more; check(tutti_engine_step(e, &err))) {
        tutti_pass pass; tutti_status s;
        while ((s = tutti_engine_pass_begin(e, &pass, &err)) == TUTTI_OK) {
            float *g = std::fill_n(tutti_engine_gradient(e, 0), dim + 1, 0.0f) - (dim + 1);
            double loss = 0, off = 0;
            for (uint64_t i = 0; i < uint64_t(pass.samples); i++, loss += off * off / 2, off = 0) {
                const uint64_t id = tutti_share_sample(&share, pass.epoch, pass.position + i);
                for (int k = 0; k <= dim; k++) off += (w[k] - truth(k)) * feature(id, k);
                for (int k = 0; k <= dim; k++) g[k] += float(off * feature(id, k) / double(pass.divisor));
            }
            check(tutti_engine_grad_ready(e, 0, &err));
            check(tutti_engine_pass_end(e, loss, &err));
        }
        if (s != TUTTI_CLOSED) throw Failure{err}; // closed: no more passes in this step
    }
    check(tutti_engine_finish(e, &err));
    for (int k = 0; tutti_world_rank(world) == 0 && k <= dim; k++)
        job.worst = std::max(job.worst, std::fabs(w[k] - truth(k)));
}

extern "C" tutti_status worker(tutti_world *world, void *arg, tutti_error *err)
{
    try { // C calls this: an exception must not leave it
        return train(world, *static_cast<Job *>(arg)), TUTTI_OK;
    } catch (const Failure &f) {
        return *err = f.error, f.error.status;
    }
}

int main(int argc, char **argv)
{
    tutti_error err; Job job{argc > 1 ? argv[1] : "ddp", 0};
    if (tutti_world_run("shm", workers, worker, &job, &err) != TUTTI_OK)
        return std::fprintf(stderr, "%s\n", err.text), 1;
    return std::printf("largest error of a weight: %.2g\n", job.worst), !(job.worst < 1e-3);
}
