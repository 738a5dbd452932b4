/* dynamic.c: a training method of your own in a program of your own. docs/ADD-A-METHOD.md explains
   each part. Build: cc dynamic.c -ltutti -lm. Four workers each know one point, and together
   compute the mean of the four. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
#include <tutti/method.h>

/* dynamic: each worker steps alone; the models are averaged only when one of them has moved far.
   Kamp, Adilova, Sicking, Hueger, Schlicht, Wirtz, Wrobel, "Efficient Decentralized Deep Learning
   by Dynamic Model Averaging", ECML PKDD 2018, arXiv 1807.03210.
     every step       x_i <- inner_step(x_i, g_i)
     every H steps    if |x_i - theta|^2 > delta of any i:   theta <- (1/n) sum_k x_k;  x_j <- theta
   Differs from the paper: one look decides for all; the paper first tries to balance a few. */
typedef struct dynamic {
    int64_t period;
    double delta;
    float *theta;                /* n: the model that all had after the last average */
    float *way, *gap;            /* n: x - theta; workers: everybody's |x - theta|^2 */
} dynamic;

static const tutti_option dynamic_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(dynamic, period), 4, 1, 1e9, NULL, "H: steps between two looks", NULL, NULL },
    { "delta", TUTTI_REAL, TUTTI_AT(dynamic, delta), 1, 0, 1e30, NULL, "a squared distance that calls for an average",
      NULL, NULL },
    { 0 }
};

static tutti_status dynamic_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    dynamic *s = m->self;
    const tutti_state gap = { .name = "dynamic.gap", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                              .count = (size_t)m->workers };

    (void)err;
    tutti_declare_vector(plan, "dynamic.theta", TUTTI_SAME, &s->theta);
    tutti_declare_vector(plan, "dynamic.way", TUTTI_SCRATCH, &s->way);
    tutti_declare(plan, &gap, &s->gap);
    return TUTTI_OK;
}

static tutti_status dynamic_open(tutti_method *m, tutti_error *err)
{
    dynamic *s = m->self;

    (void)err;
    tutti_copy(m->device, m->n, m->x, s->theta);
    return TUTTI_OK;
}

static tutti_status dynamic_step(tutti_method *m, tutti_error *err)
{
    dynamic *s = m->self;
    bool far = false;
    float mine;

    TUTTI_TRY(tutti_base_step(m, err)); /* x_i <- inner_step(x_i, g_i), by the run's optimiser */
    if ((m->step + 1) % (uint64_t)s->period != 0 || m->workers == 1)
        return TUTTI_OK;
    tutti_diff(m->device, m->n, 1, m->x, s->theta, s->way);
    mine = (float)tutti_norm2(m->device, m->n, s->way);
    TUTTI_TRY(tutti_gather(m, &mine, 1, s->gap, err)); /* the same numbers on all, so all decide alike */
    for (int r = 0; r < m->workers; r++)
        far = far || s->gap[r] > s->delta;
    if (!far)
        return TUTTI_OK;
    TUTTI_TRY(tutti_average(m, m->x, err));
    tutti_copy(m->device, m->n, m->x, s->theta);
    return TUTTI_OK;
}

static const char *const dynamic_constraints[] = { "a lost worker ends the run at the next look", NULL };

static const tutti_method_ops tutti_method_dynamic = {
    .name = "dynamic",
    .title = "Dynamic model averaging",
    .authors = "Kamp, Adilova, Sicking, Hueger, Schlicht, Wirtz, Wrobel",
    .year = 2018,
    .family = "periodic",
    .axes = { "all-reduce", "when a model has moved", "none", "none", "a model each", "any" },
    .constraints = dynamic_constraints,
    .options = dynamic_options,
    .self_bytes = sizeof(dynamic),
    .declare = dynamic_declare,
    .open = dynamic_open,
    .step = dynamic_step,
};

/* ---- the program: what any client of the engine does ---- */

enum { WORKERS = 4, DIM = 8, STEPS = 200 };
static const tutti_method_ops *const mine[] = { &tutti_method_dynamic, NULL };
static float point(int worker, int k) { return (float)(worker * worker + 1) / (float)(k + 3); }

typedef struct job { const char *method; float x[DIM]; uint64_t bytes; } job;

static tutti_status worker(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[] = { { .name = "x", .dims = 1, .dim = { DIM } } };
    const int rank = tutti_world_rank(world);
    job *j = arg;
    tutti_engine *e;
    tutti_pass pass;
    tutti_figures figures;
    bool more;
    tutti_status status = tutti_engine_open_from(
        &e, world, params, 1, &(tutti_engine_options){ .method = j->method, .optimizer = "sgd(lr=0.05)", .batch = 1 },
        strncmp(j->method, "dynamic", 7) == 0 ? mine : tutti_methods, err);

    while (status == TUTTI_OK && (status = tutti_engine_more(e, STEPS, &more, err)) == TUTTI_OK && more) {
        while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
            const float *x = tutti_engine_values(e, 0);
            float *g = tutti_engine_gradient(e, 0), loss = 0;
            for (int k = 0; k < DIM; k++) { /* the loss of its one sample: |x - point|^2 / 2 */
                const float off = x[k] - point(rank, k);
                g[k] = off * (float)pass.samples / (float)pass.divisor;
                loss += off * off / 2;
            }
            tutti_engine_grad_ready(e, 0, err);
            tutti_engine_pass_end(e, loss, err);
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    status = status == TUTTI_OK ? tutti_engine_finish(e, err) : status;
    if (status == TUTTI_OK && rank == 0) {
        tutti_engine_figures(e, &figures);
        j->bytes = figures.bytes_sent;
        memcpy(j->x, tutti_engine_values(e, 0), sizeof j->x);
    }
    tutti_engine_close(e);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err;
    job j = { .method = argc > 1 ? argv[1] : "dynamic" };
    float worst = 0;

    if (tutti_world_run("shm", WORKERS, worker, &j, &err) != TUTTI_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("model:");
    for (int k = 0; k < DIM; k++) {
        float off = j.x[k];
        for (int r = 0; r < WORKERS; r++)
            off -= point(r, k) / WORKERS;
        worst = off > worst ? off : -off > worst ? -off : worst;
        printf(" %.9g", j.x[k]);
    }
    printf("\noff the mean by %.1g; worker 0 sent %llu bytes\n", worst, (unsigned long long)j.bytes);
    return worst > 1e-3;
}
