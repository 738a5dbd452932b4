/* hetpipe_plan.c: computes the plan of hetpipe_plan.h. */
#include <errno.h>
#include <string.h>

#include "hetpipe_plan.h"
#include "tutti/method.h"
#include "tutti/method/pipeline.h"
#include "pipeline/allocate.h"

/* Reads a list with one value per worker. TUTTI_ERR_USAGE: it is not such a list. */
static tutti_status read_list(const tutti_method *m, const char *option, const char *text,
                              double *value, double otherwise, tutti_error *err)
{
    const int n = tutti_option_positives(text, value, m->workers);

    for (int w = 0; w < m->workers && n == 0; w++)
        value[w] = otherwise;
    return n == 0 || n == m->workers ? TUTTI_OK
                                     : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                                  "hetpipe: %s is '%.80s'; it is one number above "
                                                  "0 for each of the %d workers, as 1:1:0.5",
                                                  option, text, m->workers);
}

/* Finds the number of stages of a pipeline, and the workers of each pipeline: worker[], in the
   order of ranks. */
static tutti_status allocate(const tutti_method *m, const tutti_model *model,
                             const hetpipe_asked *a, const double *speed, hetpipe_plan *p,
                             tutti_error *err)
{
    const int n = m->workers, cuts = tutti_cut_most(model);
    int *node = tutti_alloc((size_t)n, sizeof *node), each = (int)a->node, k = (int)a->stages;
    tutti_status status;

    if (node == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "allocating %d workers", n);
    for (int d = 2; d <= n && d <= TUTTI_PIPELINE_STAGES_MOST && d <= cuts && k == 0; d++)
        k = n % d == 0 ? d : 0;
    k = k == 0 ? 1 : k;
    if (each == 0)
        each = a->allocation == TUTTI_PIPELINE_EQUAL ? n / k : k;
    status = n % k == 0 ? TUTTI_OK
                        : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                     "hetpipe: stages is %d, and %d workers make no whole number "
                                     "of virtual workers of that size; give a divisor of %d",
                                     k, n, n);
    for (int w = 0; w < n && status == TUTTI_OK; w++)
        node[w] = w / each;
    if (status == TUTTI_OK)
        status = tutti_fail_within(err,
                                   tutti_pipeline_allocate((tutti_pipeline_allocation)a->allocation,
                                                           n, node, speed, p->worker, &p->pipelines,
                                                           &p->k, err),
                                   "hetpipe: allocation");
    tutti_free(node);
    TUTTI_TRY(status);
    if (a->stages > 0 && p->k != a->stages)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: stages is %lld, but %d workers a node make virtual workers of "
                          "%d; omit stages or node",
                          (long long)a->stages, each, p->k);
    if (p->k > TUTTI_PIPELINE_STAGES_MOST || p->k > cuts)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: %d stages, but this model of %d units can be cut into %d at "
                          "most%s; give stages, or take other numbers of workers",
                          p->k, model->units,
                          cuts < TUTTI_PIPELINE_STAGES_MOST ? cuts : TUTTI_PIPELINE_STAGES_MOST,
                          cuts == 1 ? ", that is not at all" : "");
    return TUTTI_OK;
}

/* The speed and memory of each worker, by which pipelines are partitioned. */
typedef struct workers {
    const double *speed, *memory;        /* [workers] */
    /* workers x units, measured; NULL: by operations and speed */
    const double *seconds;
} workers;

/* Within a pipeline, stages are assigned by memory, then by speed, the largest first, since early
   stages keep more. */
static void order(hetpipe_plan *p, const workers *of)
{
    for (int v = 0; v < p->pipelines; v++) {
        int *const w = p->worker + v * p->k;
        for (int i = 1; i < p->k; i++)
            for (int j = i; j > 0; j--) {
                const int a = w[j - 1], b = w[j];
                const bool more = of->memory[b] != of->memory[a] ? of->memory[b] > of->memory[a]
                                                                 : of->speed[b] > of->speed[a];
                if (more) {
                    w[j - 1] = b;
                    w[j] = a;
                }
            }
    }
}

/* Are two workers equal, so that exchanging them does not change the partition? */
static bool alike(const workers *of, int units, int a, int b)
{
    return of->speed[a] == of->speed[b] && of->memory[a] == of->memory[b] &&
           (of->seconds == NULL || memcmp(of->seconds + a * units, of->seconds + b * units,
                                          (size_t)units * sizeof *of->seconds) == 0);
}

/* A pipeline before v with the same workers stage by stage; v: there is none. */
static int same_as(const hetpipe_plan *p, const workers *of, int units, int v)
{
    for (int u = 0; u < v; u++) {
        bool same = true;
        for (int i = 0; i < p->k && same; i++)
            same = alike(of, units, p->worker[u * p->k + i], p->worker[v * p->k + i]);
        if (same)
            return u;
    }
    return v;
}

/* What a plan is made for, by these workers and options. plans: two for each pipeline. */
typedef struct planner {
    const tutti_method *m;
    const tutti_model *model;
    workers *of;
    tutti_cut_options *o;
    tutti_pipeline_plan *plans;
} planner;

/* Partitions the model for one pipeline. */
static tutti_status cut_one(const planner *t, const hetpipe_plan *p, int v, double *seconds,
                            tutti_pipeline_plan *plan, tutti_error *err)
{
    const tutti_model *model = t->model;
    const workers *of = t->of;
    tutti_cut_options *o = t->o;
    double speed[TUTTI_PIPELINE_STAGES_MOST], memory[TUTTI_PIPELINE_STAGES_MOST];
    tutti_error why = { .rank = -1 };
    tutti_status status;

    for (int i = 0; i < p->k; i++) {
        const int w = p->worker[v * p->k + i];
        speed[i] = of->speed[w];
        memory[i] = of->memory[w];
        if (seconds != NULL)
            memcpy(seconds + i * model->units, of->seconds + w * model->units,
                   (size_t)model->units * sizeof *seconds);
    }
    o->speed = speed;
    o->memory = memory;
    o->seconds = seconds;
    if (p->pipelines == 1)
        return tutti_cut_stages(t->m, model, o, plan, err);
    status = tutti_cut_stages(t->m, model, o, plan, &why);
    return status == TUTTI_OK ? status
                              : tutti_fail(err, status, 0, "virtual worker %d of %d: %s", v,
                                           p->pipelines, why.text);
}

/* Partitions the model for each pipeline; plan: pipelines. Pipelines run in lock-step, or nearly,
   so the slowest counts. rate: its micro-batches a second. */
static tutti_status cut_all(const planner *t, const hetpipe_plan *p, tutti_pipeline_plan *plan,
                            double *rate, tutti_error *err)
{
    const tutti_model *model = t->model;
    const workers *of = t->of;
    double *seconds = NULL;
    tutti_status status = TUTTI_OK;

    if (of->seconds != NULL) {
        seconds = tutti_alloc((size_t)p->k * (size_t)model->units, sizeof *seconds);
        if (seconds == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a profile of %d units", model->units);
    }
    for (int v = 0; v < p->pipelines && status == TUTTI_OK; v++) {
        const int like = same_as(p, of, model->units, v);
        if (like < v)
            plan[v] = plan[like];
        else
            status = cut_one(t, p, v, seconds, &plan[v], err);
        if (status == TUTTI_OK)
            *rate = v == 0 || plan[v].rate < *rate ? plan[v].rate : *rate;
    }
    tutti_free(seconds);
    return status;
}

/* Converts plans of pipelines to the plan of workers. */
static void set_workers(hetpipe_plan *p, const tutti_pipeline_plan *plan)
{
    int row[TUTTI_PIPELINE_STAGES_MOST];

    p->predicted = 0;
    for (int v = 0; v < p->pipelines; v++) {
        int *const w = p->worker + v * p->k;
        p->predicted = plan[v].slowest > p->predicted ? plan[v].slowest : p->predicted;
        memcpy(p->first + v * (p->k + 1), plan[v].first, ((size_t)p->k + 1) * sizeof *p->first);
        memcpy(row, w, (size_t)p->k * sizeof *row);
        for (int q = 0; q < p->k; q++)
            w[q] = row[plan[v].worker[q]];
    }
}

/* Chooses W, which is the same for all, and the stages. A wave's samples are split into W equal
   micro-batches. */
static tutti_status choose_stages(const planner *t, const hetpipe_asked *a, hetpipe_plan *p,
                                  tutti_error *err)
{
    const tutti_method *m = t->m;
    const tutti_model *model = t->model;
    tutti_cut_options *o = t->o;
    const int64_t wave = m->share->batch * p->k,
                  least = a->in_flight > 0 ? a->in_flight
                                           : (wave + model->samples - 1) / model->samples,
                  most = a->in_flight > 0 ? a->in_flight : 2 * (least > p->k ? least : p->k);
    tutti_pipeline_plan *const best = t->plans, *const plan = t->plans + p->pipelines;
    double rate = 0, here = 0;
    tutti_error why = { .rank = -1 };
    tutti_status status = TUTTI_ERR_USAGE;

    if (a->in_flight > 0 && wave % a->in_flight != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: in_flight is %lld, which does not divide the %lld samples of a "
                          "wave (%d stages x batch %lld); give a divisor",
                          (long long)a->in_flight, (long long)wave, p->k,
                          (long long)m->share->batch);
    if (a->in_flight > 0 && wave / a->in_flight > model->samples)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: micro-batches of %lld samples (%d stages x batch %lld / "
                          "in_flight %lld); a stage takes %lld at most: raise in_flight or lower "
                          "batch",
                          (long long)(wave / a->in_flight), p->k, (long long)m->share->batch,
                          (long long)a->in_flight, (long long)model->samples);
    for (int64_t w = least, micro; w <= most && w <= wave; w++) {
        tutti_status now;
        if (wave % w != 0)
            continue;
        o->in_flight = (int)w;
        o->samples = wave / w;
        now = cut_all(t, p, plan, &here, &why);
        if (now != TUTTI_OK && now != TUTTI_ERR_MEMORY)
            return tutti_fail(err, now, 0, "hetpipe: %s", why.text);
        micro = wave / w;
        if (now == TUTTI_OK && here * (double)micro > rate * (1 + 1e-9)) {
            memcpy(best, plan, (size_t)p->pipelines * sizeof *best);
            rate = here * (double)micro;
            status = TUTTI_OK;
        }
    }
    if (status != TUTTI_OK && why.text[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "hetpipe: %s", why.text);
    if (status != TUTTI_OK)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "hetpipe: a wave of %lld samples (%d stages x batch %lld) cannot be cut into equal "
            "micro-batches of %lld at most; take another batch",
            (long long)wave, p->k, (long long)m->share->batch, (long long)model->samples);
    o->in_flight = p->window = best->in_flight;
    o->samples = p->micro = wave / p->window;
    set_workers(p, best);
    return TUTTI_OK;
}

/* Measured times do not change W, which is by operations and speeds: the bits of a run depend on
   W, and not on the partition. */
static tutti_status measured(const planner *t, double *fast, hetpipe_plan *p, tutti_error *err)
{
    const tutti_method *m = t->m;
    const tutti_model *model = t->model;
    workers *of = t->of;
    double rate;
    tutti_error why = { .rank = -1 };
    tutti_status status;

    if (model->seconds == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "hetpipe: profile is measured, but this client has not measured its model; take "
            "profile=modelled, with speeds");
    for (int w = 0; w < m->workers; w++) {
        double all = 0;
        for (int u = 0; u < model->units; u++)
            all += model->seconds[w * model->units + u];
        fast[w] = 1 / all;
    }
    of->speed = fast;
    of->seconds = model->seconds;
    order(p, of);
    status = cut_all(t, p, t->plans, &rate, &why);
    if (status == TUTTI_OK)
        set_workers(p, t->plans);
    return status == TUTTI_OK ? status : tutti_fail(err, status, 0, "hetpipe: %s", why.text);
}

/* Memory for a plan. speed, memory: [workers]. plans: two for each pipeline. */
typedef struct room {
    double *speed, *memory;
    tutti_pipeline_plan *plans;
} room;

static tutti_status with_room(const tutti_method *m, const tutti_model *model,
                              const hetpipe_asked *a, const room *in, hetpipe_plan *p,
                              tutti_error *err)
{
    double *speed = in->speed, *memory = in->memory;
    tutti_pipeline_plan *plans = in->plans;
    workers of = { .speed = speed, .memory = memory };
    tutti_cut_options o = { .gflops = a->gflops, .bandwidth = a->bandwidth * 1e6 };
    const planner t = { m, model, &of, &o, plans };

    TUTTI_TRY(read_list(m, "speeds", a->speeds, speed, 1, err));
    TUTTI_TRY(read_list(m, "memory", a->memory, memory, 0, err));
    for (int w = 0; w < m->workers; w++)
        memory[w] *= 1024 * 1024;
    TUTTI_TRY(allocate(m, model, a, speed, p, err));
    order(p, &of);
    o.stages = p->k;
    /* a wave's sum, this worker's part and its buffers */
    o.more = p->pipelines > 1 ? 2 + 1.0 / p->pipelines : 0;
    TUTTI_TRY(choose_stages(&t, a, p, err));
    return a->profile == HETPIPE_MEASURED ? measured(&t, speed, p, err) : TUTTI_OK;
}

tutti_status tutti_hetpipe_plan(const tutti_method *m, const tutti_model *model,
                                const hetpipe_asked *asked, hetpipe_plan *plan, tutti_error *err)
{
    const size_t n = (size_t)m->workers; /* at most that many pipelines */
    double *scratch = tutti_alloc(2 * n, sizeof *scratch);
    tutti_pipeline_plan *plans = tutti_alloc(2 * n, sizeof *plans);
    tutti_status status;

    plan->worker = tutti_alloc(n, sizeof *plan->worker);
    plan->first = tutti_alloc(2 * n, sizeof *plan->first); /* k + 1 for k stages */
    status = plan->worker != NULL && plan->first != NULL && scratch != NULL && plans != NULL
                 ? with_room(m, model, asked, &(room){ scratch, scratch + n, plans }, plan, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "planning the stages of %d workers",
                              m->workers);
    tutti_free(scratch);
    tutti_free(plans);
    return status;
}
