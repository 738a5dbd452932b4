/* hetpipe_plan.c: see hetpipe_plan.h. */
#include <errno.h>
#include <string.h>

#include "hetpipe_plan.h"
#include "tutti/method.h"

/* Of each worker. TUTTI_ERR_USAGE: no list of as many. */
static tutti_status list(const tutti_method *m, const char *option, const char *text, double *value, double otherwise,
                         tutti_error *err)
{
    const int n = tutti_option_positives(text, value, m->workers);

    for (int w = 0; w < m->workers && n == 0; w++)
        value[w] = otherwise;
    return n == 0 || n == m->workers
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "hetpipe: %s is '%.80s'; it is one number above 0 for each of the %d workers, as 1:1:0.5",
                            option, text, m->workers);
}

/* How many stages a pipeline has, and who is in which pipeline: worker[], in the order of ranks. */
static tutti_status allocate(const tutti_method *m, const tutti_model *model, const hetpipe_asked *a,
                             const double *speed, hetpipe_plan *p, tutti_error *err)
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
                                     "hetpipe: stages is %d, and %d workers make no whole number of virtual workers of "
                                     "so many; give a divisor of %d",
                                     k, n, n);
    for (int w = 0; w < n && status == TUTTI_OK; w++)
        node[w] = w / each;
    if (status == TUTTI_OK)
        status = tutti_fail_within(err,
                                   tutti_pipeline_allocate((tutti_pipeline_allocation)a->allocation, n, node, speed,
                                                           p->worker, &p->pipelines, &p->k, err),
                                   "hetpipe: allocation");
    tutti_free(node);
    TUTTI_TRY(status);
    if (a->stages > 0 && p->k != a->stages)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: stages is %lld, but %d workers a node make virtual workers of %d; leave stages or "
                          "node away",
                          (long long)a->stages, each, p->k);
    if (p->k > TUTTI_PIPELINE_STAGES_MOST || p->k > cuts)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: %d stages, but this model of %d units can be cut into %d at most%s; give stages, "
                          "or take other numbers of workers",
                          p->k, model->units, cuts < TUTTI_PIPELINE_STAGES_MOST ? cuts : TUTTI_PIPELINE_STAGES_MOST,
                          cuts == 1 ? ", that is not at all" : "");
    return TUTTI_OK;
}

/* Within a pipeline places go by memory, then by speed, the largest first, as early stages keep
   more: then place i is alike in all pipelines. The plan is for the slowest and the smallest of
   each. */
static void order(hetpipe_plan *p, const double *speed, const double *memory, double *place_speed, double *place_memory)
{
    for (int v = 0; v < p->pipelines; v++) {
        int *const w = p->worker + v * p->k;
        for (int i = 1; i < p->k; i++)
            for (int j = i; j > 0; j--) {
                const int a = w[j - 1], b = w[j];
                const bool more = memory[b] != memory[a] ? memory[b] > memory[a] : speed[b] > speed[a];
                if (more) {
                    w[j - 1] = b;
                    w[j] = a;
                }
            }
        for (int i = 0; i < p->k; i++) {
            place_speed[i] = v == 0 || speed[w[i]] < place_speed[i] ? speed[w[i]] : place_speed[i];
            place_memory[i] = v == 0 || memory[w[i]] < place_memory[i] ? memory[w[i]] : place_memory[i];
        }
    }
}

/* A plan of places becomes one of workers. */
static void take(hetpipe_plan *p, const tutti_pipeline_plan *plan)
{
    int row[TUTTI_PIPELINE_STAGES_MOST];

    p->predicted = plan->slowest;
    memcpy(p->first, plan->first, sizeof p->first);
    for (int v = 0; v < p->pipelines; v++) {
        int *const w = p->worker + v * p->k;
        memcpy(row, w, (size_t)p->k * sizeof *row);
        for (int q = 0; q < p->k; q++)
            w[q] = row[plan->worker[q]];
    }
}

/* W and the stages. A wave's samples are cut in W alike. */
static tutti_status choose(const tutti_method *m, const tutti_model *model, const hetpipe_asked *a,
                           tutti_cut_options *o, hetpipe_plan *p, tutti_error *err)
{
    const int64_t wave = m->share->batch * p->k,
                  least = a->in_flight > 0 ? a->in_flight : (wave + model->samples - 1) / model->samples,
                  most = a->in_flight > 0 ? a->in_flight : 2 * (least > p->k ? least : p->k);
    tutti_pipeline_plan best = { 0 };
    double rate = 0;
    tutti_error why = { .rank = -1 };
    tutti_status status = TUTTI_ERR_USAGE;

    if (a->in_flight > 0 && wave % a->in_flight != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: in_flight is %lld, which does not divide the %lld samples of a wave (%d stages x "
                          "batch %lld); give a divisor",
                          (long long)a->in_flight, (long long)wave, p->k, (long long)m->share->batch);
    if (a->in_flight > 0 && wave / a->in_flight > model->samples)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: micro-batches of %lld samples (%d stages x batch %lld / in_flight %lld); a stage "
                          "takes %lld at most: raise in_flight or lower batch",
                          (long long)(wave / a->in_flight), p->k, (long long)m->share->batch, (long long)a->in_flight,
                          (long long)model->samples);
    for (int64_t w = least, micro; w <= most && w <= wave; w++) {
        tutti_pipeline_plan plan;
        tutti_status now;
        if (wave % w != 0)
            continue;
        o->in_flight = (int)w;
        o->samples = wave / w;
        now = tutti_cut_stages(m, model, o, &plan, &why);
        if (now != TUTTI_OK && now != TUTTI_ERR_MEMORY)
            return tutti_fail(err, now, 0, "hetpipe: %s", why.text);
        micro = wave / w;
        if (now == TUTTI_OK && plan.rate * (double)micro > rate * (1 + 1e-9)) {
            best = plan;
            rate = plan.rate * (double)micro;
            status = TUTTI_OK;
        }
    }
    if (status != TUTTI_OK && why.text[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "hetpipe: %s", why.text);
    if (status != TUTTI_OK)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: a wave of %lld samples (%d stages x batch %lld) cannot be cut into equal "
                          "micro-batches of %lld at most; take another batch",
                          (long long)wave, p->k, (long long)m->share->batch, (long long)model->samples);
    o->in_flight = p->window = best.in_flight;
    o->samples = p->micro = wave / p->window;
    take(p, &best);
    return TUTTI_OK;
}

/* W is by operations and speeds all the same, since the bits of a run hang on it, and on cuts they
   do not. */
static tutti_status measured(const tutti_method *m, const tutti_model *model, tutti_cut_options *o,
                             const double *memory, double *fast, hetpipe_plan *p, tutti_error *err)
{
    double place_speed[TUTTI_PIPELINE_STAGES_MOST], place_memory[TUTTI_PIPELINE_STAGES_MOST], *slowest;
    tutti_pipeline_plan best;
    tutti_error why = { .rank = -1 };
    tutti_status status;

    if (model->seconds == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hetpipe: profile is measured, but this client has not measured its model; take "
                          "profile=modelled, with speeds");
    slowest = tutti_alloc((size_t)p->k * (size_t)model->units, sizeof *slowest);
    if (slowest == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a profile of %d units", model->units);
    for (int w = 0; w < m->workers; w++) {
        double all = 0;
        for (int u = 0; u < model->units; u++)
            all += model->seconds[w * model->units + u];
        fast[w] = 1 / all;
    }
    order(p, fast, memory, place_speed, place_memory);
    for (int v = 0; v < p->pipelines; v++)
        for (int i = 0; i < p->k; i++)
            for (int u = 0; u < model->units; u++) {
                const double here = model->seconds[p->worker[v * p->k + i] * model->units + u];
                double *const most = &slowest[i * model->units + u];
                *most = here > *most ? here : *most;
            }
    o->seconds = slowest;
    o->memory = place_memory;
    status = tutti_cut_stages(m, model, o, &best, &why);
    if (status == TUTTI_OK)
        take(p, &best);
    tutti_free(slowest);
    return status == TUTTI_OK ? status : tutti_fail(err, status, 0, "hetpipe: %s", why.text);
}

static tutti_status with_room(const tutti_method *m, const tutti_model *model, const hetpipe_asked *a, double *scratch,
                              hetpipe_plan *p, tutti_error *err)
{
    double *const speed = scratch, *const memory = scratch + m->workers;
    double place_speed[TUTTI_PIPELINE_STAGES_MOST], place_memory[TUTTI_PIPELINE_STAGES_MOST];
    tutti_cut_options o = { .speed = place_speed, .memory = place_memory, .gflops = a->gflops,
                            .bandwidth = a->bandwidth * 1e6 };

    TUTTI_TRY(list(m, "speeds", a->speeds, speed, 1, err));
    TUTTI_TRY(list(m, "memory", a->memory, memory, 0, err));
    for (int w = 0; w < m->workers; w++)
        memory[w] *= 1024 * 1024;
    TUTTI_TRY(allocate(m, model, a, speed, p, err));
    order(p, speed, memory, place_speed, place_memory);
    o.stages = p->k;
    o.more = p->pipelines > 1 ? 2 + 1.0 / p->pipelines : 0; /* a wave's sum, my part and its rooms */
    TUTTI_TRY(choose(m, model, a, &o, p, err));
    return a->profile == HETPIPE_MEASURED ? measured(m, model, &o, memory, speed, p, err) : TUTTI_OK;
}

tutti_status tutti_hetpipe_plan(const tutti_method *m, const tutti_model *model, const hetpipe_asked *asked,
                                hetpipe_plan *plan, tutti_error *err)
{
    double *scratch = tutti_alloc(2 * (size_t)m->workers, sizeof *scratch);
    tutti_status status;

    plan->worker = tutti_alloc((size_t)m->workers, sizeof *plan->worker);
    status = plan->worker != NULL && scratch != NULL
                 ? with_room(m, model, asked, scratch, plan, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "planning the stages of %d workers", m->workers);
    tutti_free(scratch);
    return status;
}
