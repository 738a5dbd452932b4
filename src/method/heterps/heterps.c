/* heterps: pipeline stages of a model, each on a number of workers given by a schedule, for
   heterogeneous resources; tables are at the workers of their stage. Liu, Wu, Feng, Zhang, Wu,
   Yao, Yu, Ma, Zhao, Dou, "HeterPS: Distributed Deep Learning With Reinforcement Learning Based
   Scheduling in Heterogeneous Environments", Future Generation Computer Systems 148, 2023, arXiv
   2111.10635.
     a step of M micro-batches through stages of k_0, k_1, ... workers, T samples in all
     micro-batch p    is computed by worker p mod k_q of stage q; forward and backward at w, one
                      forward, one backward
     worker j of q    g_j <- the sum over its micro-batches, in order, of the gradient of the sum
                      of their samples' losses over T
     at the end       dense values of q:   g <- the sum of g_0 ... by all-reduce; each updates
                      rows of its tables:  g to the workers that serve them; their sum, and the
                                           update there
   So a step is a synchronous one of ddp with the samples of all workers. A schedule only decides
   where it is computed.

   `tutti plan stages` (placement.h) searches for the stage of each layer and the number of
   workers of each stage. Without a schedule no difference between workers is known: all are one
   type. Then tables are one stage and the other layers another, each with as many workers as its
   operations need; a model without tables is one stage, which is data parallel.

   Differs from the paper, or is not stated there:
   1. A micro-batch stays whole between stages of different widths. The paper re-partitions it.
   2. Rows are served in ranges, by the workers of their stage, which compute as well. The paper
      shards by a hash over servers, and keeps hot rows on accelerators. Every table is in memory.
   3. The optimiser is the run's. That of the authors' tables, with a scalar for a row and clipped
      values, is not part of the method.
   4. Types in a schedule are names: ranks are assigned to the stages in order, and the launcher
      decides on which hosts ranks are. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collective/compare.h"
#include "pipeline/plan.h"
#include "placement/placement.h"
#include "runtime/files.h"
#include "tutti/method.h"
#include "tutti/method/pipeline.h"
#include "stage_rows.h"
#include "engine/modes/drive.h"
#include "pipeline/pipe.h"

enum { STAGES_MOST = TUTTI_PLACEMENT_LAYERS_MOST, SLOTS_MOST = 256, SCHEDULE_BYTES = 1 << 20 };

typedef struct heterps {
    const char *schedule;
    int64_t stages, micro_batches, in_flight;

    tutti_method *m;
    int k;                               /* stages */
    int first[STAGES_MOST + 1], width[STAGES_MOST];
    int *worker;                         /* [m->workers] */
    int64_t micro, passes;               /* samples of a micro-batch; micro-batches of a step */
    bool serves;                         /* a stage of several workers has tables */
    size_t enters, leaves;               /* floats per sample */
    tutti_pipe *pipe;
    tutti_stage_rows *rows;
    bool tables;                         /* this worker's stage has some */
    uint64_t began, step;                /* the pipe's first step; the current one */
    bool begun;
    int64_t samples;                     /* of the current step */
    tutti_pass pass[SLOTS_MOST];         /* by slot */
} heterps;

static const tutti_option heterps_options[] = {
    { "schedule", TUTTI_TEXT, TUTTI_AT(heterps, schedule), 0, 0, 0, "",
      "file that `tutti plan stages --schedule` wrote: the layers and workers of each stage; none: "
      "planned here" },
    { "stages", TUTTI_INT, TUTTI_AT(heterps, stages), 0, 0, TUTTI_PIPELINE_STAGES_MOST, NULL,
      "stages, cut so that the slowest is fastest by its operations and workers; 0: tables and the "
      "rest, one without tables",
      "schedule=none" },
    { "micro_batches", TUTTI_INT, TUTTI_AT(heterps, micro_batches), 0, 0, 1e6, NULL,
      "M: micro-batches of a step; 0: one for each batch of each worker, more where a stage takes "
      "fewer samples" },
    { "in_flight", TUTTI_INT, TUTTI_AT(heterps, in_flight), 0, 0, SLOTS_MOST, NULL,
      "micro-batches that a worker has between forward and backward, at most; 0: as many as keep "
      "it busy" },
    { 0 }
};

static const char *const heterps_constraints[] = {
    "the workers are those of the schedule: the sum of its units",
    "the model must have cuts where there are several stages; models with batch norms or a single "
    "layer have none",
    "a lost worker ends the run (exit code 3): its stage, or its rows, are nowhere else", NULL
};

/* ---- the plan ---- */

static bool has_tables(const tutti_method *m, int first, int end)
{
    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (t->row_sparse && t->unit >= first && t->unit < end)
            return true;
    }
    return false;
}

/* The plan for equal workers: by operations. */
static tutti_status plan_here(heterps *s, const tutti_method *m, const tutti_model *model,
                              tutti_error *err)
{
    const size_t n = (size_t)model->units;
    bool *cut = tutti_alloc(n, sizeof *cut);
    double *operations = tutti_alloc(n, sizeof *operations);
    int last = 0, behind = 0;
    tutti_status status =
        cut != NULL && operations != NULL
            ? TUTTI_OK
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a plan of %d units", model->units);

    while (last < model->units && has_tables(m, last, model->units))
        last++;
    for (int u = 0; u < model->units && status == TUTTI_OK; u++) {
        cut[u] = model->unit[u].cut;
        operations[u] = model->unit[u].forward + model->unit[u].backward + 1;
        behind = behind == 0 && u >= last && u > 0 && cut[u] ? u : behind;
    }
    s->k = (int)s->stages;
    if (s->k == 0 && status == TUTTI_OK) {
        s->k = last > 0 && behind > 0 && m->workers > 1 ? 2 : 1;
        for (int u = 1; u < model->units; u++)
            cut[u] = u == behind;
    }
    if (status == TUTTI_OK)
        status = tutti_fail_within(err,
                                   tutti_pipeline_widths(model->units, cut, operations, s->k,
                                                         m->workers, s->first, s->width, err),
                                   "heterps: stages is %lld", (long long)s->stages);
    tutti_free(cut);
    tutti_free(operations);
    return status;
}

static tutti_status read_text(const heterps *s, tutti_runtime *rt, char **text, size_t *bytes,
                              tutti_error *err)
{
    tutti_file *f = NULL;
    tutti_status status;

    *text = NULL;
    TUTTI_TRY(tutti_file_open(&f, rt, s->schedule, TUTTI_FILE_READ, err));
    *bytes = (size_t)tutti_file_bytes(f);
    if (*bytes > SCHEDULE_BYTES)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "%.200s: %zu bytes; a schedule has at most %d",
                            s->schedule, *bytes, SCHEDULE_BYTES);
    else if ((*text = tutti_alloc(*bytes + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %.200s", s->schedule);
    else
        status = tutti_file_read(f, 0, *text, *bytes, err);
    tutti_file_close(f, NULL);
    return status;
}

static tutti_status take_schedule(heterps *s, const tutti_method *m, const tutti_model *model,
                                  const tutti_placement_schedule *from, tutti_error *err)
{
    int units = 0;

    for (int q = 0; q < from->stages; q++)
        units += from->stage[q].units;
    if (from->model[0] == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%.200s: it is for layers that a file lists, not for a model; plan it with --model",
            s->schedule);
    if (model->spec != NULL && strcmp(from->model, model->spec) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%.200s: it is for --model '%.100s', and this run's is '%.100s'; plan it for this one",
            s->schedule, from->model, model->spec);
    if (units != m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.200s: its stages have %d units in all, and there are %d workers; give "
                          "-n %d, or plan with other units or another floor",
                          s->schedule, units, m->workers, units);
    if (from->unit[from->stages] != model->units)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.200s: its model has %d units, and this one %d; plan it again",
                          s->schedule, from->unit[from->stages], model->units);
    s->k = from->stages;
    for (int q = 0; q < s->k; q++) {
        s->first[q] = from->unit[q];
        s->width[q] = from->stage[q].units;
        if (!model->unit[s->first[q]].cut)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%.200s: stage %d begins with unit %d, where this model cannot be "
                              "cut; plan it again",
                              s->schedule, q, s->first[q]);
    }
    s->first[s->k] = model->units;
    return TUTTI_OK;
}

static tutti_status read_schedule(heterps *s, const tutti_method *m, const tutti_model *model,
                                  tutti_error *err)
{
    tutti_placement_schedule *from = tutti_alloc(1, sizeof *from);
    char *text = NULL;
    size_t bytes = 0;
    tutti_status status =
        from != NULL ? read_text(s, m->rt, &text, &bytes, err)
                     : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %.200s", s->schedule);

    if (status == TUTTI_OK)
        status = tutti_placement_read(s->schedule, text, bytes, from, err);
    if (status == TUTTI_OK)
        status = take_schedule(s, m, model, from, err);
    tutti_free(from);
    tutti_free(text);
    return tutti_fail_within(err, status, "heterps: schedule");
}

/* Splits a step's samples into M equal micro-batches. */
static tutti_status cut_step(heterps *s, const tutti_method *m, const tutti_model *model,
                             tutti_error *err)
{
    const int64_t batches = m->share->accumulate * m->workers, step = batches * m->share->batch;
    int64_t parts = 1;

    while (m->share->batch % parts != 0 || m->share->batch / parts > model->samples)
        parts++;
    s->passes = s->micro_batches > 0 ? s->micro_batches : batches * parts;
    if (step % s->passes != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "heterps: micro_batches is %lld, which does not divide the %lld samples of a step (%d "
            "workers x batch %lld x accumulate %lld); give a divisor",
            (long long)s->passes, (long long)step, m->workers, (long long)m->share->batch,
            (long long)m->share->accumulate);
    s->micro = step / s->passes;
    if (s->micro > model->samples)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "heterps: micro-batches of %lld samples; a stage takes %lld at most: "
                          "raise micro_batches or lower batch",
                          (long long)s->micro, (long long)model->samples);
    for (int q = 0; q < s->k; q++)
        if (s->width[q] > s->passes)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "heterps: stage %d has %d workers, and a step %lld micro-batches, so "
                              "some would have none; raise micro_batches",
                              q, s->width[q], (long long)s->passes);
    return TUTTI_OK;
}

/* ---- from declare to close ---- */

static tutti_pipe_options pipe_of(const heterps *s)
{
    return (tutti_pipe_options){ .stages = s->k,
                                 .in_flight = s->in_flight > 0 ? (int)s->in_flight : SLOTS_MOST,
                                 .width = s->width,
                                 .period = s->passes,
                                 .ranks = s->worker };
}

/* The index of a rank among its stage's workers; *stage: the stage. */
static int mate_of(const heterps *s, int rank, int *stage)
{
    for (*stage = 0; rank >= s->width[*stage]; ++*stage)
        rank -= s->width[*stage];
    return rank;
}

static tutti_status heterps_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    heterps *s = m->self;
    const tutti_model *model;
    tutti_pipe_options pipe;
    int stage, replica;

    s->m = m;
    TUTTI_TRY(tutti_drive_model(m, &model, err));
    TUTTI_TRY(s->schedule[0] != 0 ? read_schedule(s, m, model, err) : plan_here(s, m, model, err));
    TUTTI_TRY(cut_step(s, m, model, err));
    s->worker = tutti_alloc((size_t)m->workers, sizeof *s->worker);
    if (s->worker == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing the stages of %d workers",
                          m->workers);
    for (int r = 0; r < m->workers; r++)
        s->worker[r] = r;
    replica = mate_of(s, m->rank, &stage);
    pipe = pipe_of(s);
    TUTTI_TRY(tutti_drive_declare(m, plan,
                                  &(tutti_drive_options){ .pipelines = 1,
                                                          .stages = s->k,
                                                          .first = s->first,
                                                          .worker = s->worker,
                                                          .width = s->width,
                                                          .samples = s->micro,
                                                          .passes = s->passes,
                                                          .slots = tutti_pipe_slots(&pipe, stage) },
                                  err));
    s->enters = stage > 0 ? model->unit[s->first[stage]].enters : 0;
    s->leaves = stage < s->k - 1 ? model->unit[s->first[stage + 1]].enters : 0;
    for (int q = 0; q < s->k; q++)
        s->serves = s->serves || (s->width[q] > 1 && has_tables(m, s->first[q], s->first[q + 1]));
    s->tables = has_tables(m, s->first[stage], s->first[stage + 1]);
    return has_tables(m, 0, model->units)
               ? tutti_stage_rows_declare(&s->rows, m, plan, 0, s->worker + m->rank - replica, err)
               : TUTTI_OK;
}

/* Compares the schedules of all workers: they are files, which may differ on several hosts. */
static tutti_status compare(const heterps *s, tutti_error *err)
{
    char text[STAGES_MOST * 24 + 64];
    size_t at = (size_t)snprintf(text, sizeof text, "heterps: stages (first unit x workers)=");

    for (int q = 0; q < s->k; q++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%dx%d ", s->first[q], s->width[q]);
    snprintf(text + at, sizeof text - at, "\n");
    return tutti_compare_text(&s->m->all, text, err);
}

static tutti_status heterps_open(tutti_method *m, tutti_error *err)
{
    heterps *s = m->self;
    tutti_pipe_options pipe = pipe_of(s);

    TUTTI_TRY(compare(s, err));
    tutti_metric(m, "stages", -1, s->k);
    tutti_metric(m, "micro_batches", -1, (double)s->passes);
    for (int r = 0, stage; r < m->workers; r++) {
        mate_of(s, r, &stage);
        tutti_metric(m, "stage", r, stage);
    }
    pipe.stage = m->stage;
    pipe.member = m->replica;
    pipe.enters = s->enters * (size_t)s->micro;
    pipe.leaves = s->leaves * (size_t)s->micro;
    return tutti_pipe_open(&s->pipe, m->world, &pipe, err);
}

static void heterps_close(tutti_method *m)
{
    heterps *s = m->self;

    if (s == NULL)
        return;
    tutti_pipe_close(s->pipe);
    tutti_free(s->worker);
}

static tutti_status heterps_serve(tutti_method *m, tutti_error *err)
{
    return tutti_stage_rows_run(((heterps *)m->self)->rows, err);
}

/* ---- a step ---- */

/* p is the pipe's number of a micro-batch, from the start of this process. A gradient of tables
   is never whole, so it is accumulated from the first one on. */
static tutti_status forward(void *self, int64_t p, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err)
{
    heterps *s = self;
    tutti_pass *pass = &s->pass[slot];

    (void)entered;
    tutti_drive_pass(s->m, s->step, (p - 1) % s->passes, pass);
    pass->divisor = s->samples;
    pass->keep = s->tables || pass->index >= s->m->replicas;
    *left = (size_t)pass->samples * s->leaves;
    return tutti_drive_forward(s->m, s->step, slot, pass, s->m->own_x, in, out, err);
}

static tutti_status backward(void *self, int64_t p, int slot, const float *slope, float *back,
                             tutti_error *err)
{
    heterps *s = self;

    (void)p;
    return tutti_drive_backward(s->m, s->step, slot, &s->pass[slot], s->m->own_x, slope,
                                s->m->own_g, back, err);
}

static void waits(void *self, bool now)
{
    tutti_drive_waits(((heterps *)self)->m, now);
}

/* Updates adjacent tensors that are no tables. */
static tutti_status update_dense(heterps *s, size_t first, size_t count, const tutti_rate *rate,
                                 tutti_error *err)
{
    tutti_method *m = s->m;
    float *const g = m->own_g + (first - m->own.first);

    if (count == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_drive_sum(m, g, count, err));
    TUTTI_TRY(tutti_drive_update_part(m, m->optim, first, count, m->own_x + (first - m->own.first),
                                      g, rate, err));
    if (s->tables)
        tutti_fill(m->device, count, 0, g);
    return TUTTI_OK;
}

/* Updates the stage's parameters; tables are between other tensors. */
static tutti_status update_tables(heterps *s, tutti_error *err)
{
    tutti_method *m = s->m;
    const tutti_rate rate = tutti_drive_rate(m, s->step, s->step + 1);
    const size_t end = m->own.first + m->own.count;
    size_t first = m->own.first;

    if (s->tables)
        TUTTI_TRY(tutti_stage_rows_push(s->rows, s->step, &rate, err));
    for (int i = 0; i < m->layout->n_tensors && s->tables; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (!tutti_stage_rows_has(s->rows, i))
            continue;
        TUTTI_TRY(update_dense(s, first, t->first - first, &rate, err));
        first = t->first + t->count;
    }
    return update_dense(s, first, end - first, &rate, err);
}

static tutti_status heterps_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    heterps *s = m->self;
    const tutti_pipe_work work = {
        .self = s, .forward = forward, .backward = backward, .waits = waits
    };

    if (!s->begun)
        s->began = m->step;
    s->begun = true;
    for (s->step = m->step; s->step < until; s->step++) {
        s->samples = tutti_share_step(m->share, s->step, -1);
        TUTTI_TRY(
            tutti_pipe_run(s->pipe, (int64_t)(s->step + 1 - s->began) * s->passes, &work, err));
        TUTTI_TRY(update_tables(s, err));
    }
    return TUTTI_OK;
}

static tutti_status heterps_rows_acquire(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                         tutti_error *err)
{
    return tutti_stage_rows_need(((heterps *)m->self)->rows, tensor, ids, n, err);
}

/* Records the rows sent between workers so far, summed over all. */
static tutti_status heterps_final_model(tutti_method *m, tutti_error *err)
{
    const heterps *s = m->self;
    const bool uncounted = m->all.uncounted;
    uint64_t pulled, pushed;
    double rows[2];
    tutti_status status;

    if (s->rows == NULL)
        return TUTTI_OK;
    tutti_stage_rows_bytes(s->rows, &pulled, &pushed);
    rows[0] = (double)pulled;
    rows[1] = (double)pushed;
    m->all.uncounted = true;
    status = tutti_reduce_double(&m->all, TUTTI_SUM, rows, TUTTI_LENGTH(rows), err);
    m->all.uncounted = uncounted;
    TUTTI_TRY(status);
    tutti_metric(m, "rows_pulled", -1, rows[0]);
    tutti_metric(m, "rows_pushed", -1, rows[1]);
    return TUTTI_OK;
}

static bool heterps_serves(const void *self)
{
    return ((const heterps *)self)->serves;
}

const tutti_method_ops tutti_method_heterps = {
    .name = "heterps",
    .title = "HeterPS",
    .authors = "Liu, Wu, Feng, Zhang, Wu, Yao, Yu, Ma, Zhao, Dou",
    .year = 2021,
    .family = "pipeline",
    .axes = { .topology = "a pipeline, all-reduce and servers by stage",
              .synchrony = "every step",
              .codec = "none",
              .schedule = "one forward, one backward, a flush a step",
              .placement = "a stage on as many workers as it needs",
              .update = "any, tables on slices" },
    .constraints = heterps_constraints,
    .options = heterps_options,
    .self_bytes = sizeof(heterps),
    .traits = TUTTI_PIPELINE_SCHEDULE | TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER |
              TUTTI_DDP_EQUIVALENT | TUTTI_NEVER_SKIPS,
    .services = (const tutti_service[]){ { .name = "rows", .run = heterps_serve }, { 0 } },
    .serves = heterps_serves,
    .declare = heterps_declare,
    .open = heterps_open,
    .close = heterps_close,
    .drive = heterps_drive,
    .final_model = heterps_final_model,
    .rows_acquire = heterps_rows_acquire,
};
