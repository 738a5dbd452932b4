/* ata: adaptive task allocation. A step is B tasks (micro-batches at one model). How many of them
   each worker computes is learned by a bandit algorithm: from lower confidence bounds of all
   workers' times for a task. Maranjyan, Saad, Richtarik, Orabona, ICML 2025, arXiv 2502.00775.
     step k     worker i computes a_i tasks and reports its time T_i;
                x <- opt(x, mean over all B tasks)
     then       mean_i <- (K_i mean_i + T_i) / (K_i + a_i);  K_i <- K_i + a_i;
                s_i = mean_i - conf_i, at least 0;
                conf_i = 4 e A (sqrt(ln(2 k^2) / K_i) + ln(2 k^2) / K_i) width_scale
     a          a worker that was never tried gets one task, and no more; the others share the
                rest: those with s_i = 0, whose speed is not known yet, evenly, as long as there
                are any; else one by one to argmin (a_i + 1) s_i, which minimises max a_i s_i
   A bounds the spread of times (their sub-exponential norm), in seconds. It is `bound`, or with
   allocation=ata-empirical twice the mean itself. allocation=fixed is a baseline: the means are
   known (`seconds`), and the allocation that is best for them is kept.
   This is the form without a server, for data-parallel training. Times are all-gathered, and all
   workers compute the same allocation from them. Gradients are summed by an all-reduce, in which
   workers without a task take part, too; in the server form they would send 0 bytes. Samples,
   their positions and their weights are the step's, whichever worker computes them. So x moves as
   one worker with the whole step would move it. Times are of computing only, by the engine's
   clock.
   Chosen here: while no worker has been tried, the tasks left after one each are assigned evenly;
   ties are broken by an order that is drawn again each step.
   Not built: new owners for the tasks of a lost worker (it ends the run).
   Not built as an all-reduce: the baseline `greedy`, in which all are asked and the first B
   answers used. At a server it is ringmaster-asgd(max_delay=1,collect=B,stops=on). A step's
   samples have owners before it begins (base.h); loaders, weights and checkpoints rely on that.
   It would need:
   1. tasks that are claimed one by one within a step, as pace.c assigns gradients between steps;
   2. loaders that follow;
   3. a way to stop computations beyond B, where pieces are exchanged too (done gives TUTTI_CLOSED
      only in steps that exchange nothing);
   4. an exchange that begins once B are claimed, since until then no worker knows which pass is
      its last. */
#include <math.h>

#include "tutti/method.h"
#include "tutti/method/steps.h"

typedef struct ata {
    int allocation;
    int64_t tasks;               /* B */
    double bound, width_scale;
    const char *seconds;
    int64_t forget;
    double *mean, *count;        /* [workers]: mean_i in seconds, K_i; declared */
    struct { double bill, seconds, steps; } spent; /* bill: time of all workers; seconds: of the
                                                      slowest of each step; declared */
    int64_t counted_ns;          /* of the engine's clock, which restarts in each process */
    float *gathered;             /* [workers] */
    double *score;               /* [workers]: below 0: never tried */
    int64_t *next;               /* [workers] */
    int *order, *heap;           /* [workers]: order: drawn; heap: by score, of those that share */
} ata;
enum { ATA, EMPIRICAL, UNIFORM, FIXED };

static const tutti_option ata_options[] = {
    { "allocation", TUTTI_CHOICE, TUTTI_AT(ata, allocation), EMPIRICAL, 0, 3,
      "ata|ata-empirical|uniform|fixed",
      "by times that are learnt, with `bound` or with the means for their width; the same to all; "
      "by `seconds`" },
    { "tasks", TUTTI_INT, TUTTI_AT(ata, tasks), 0, 0, 1e9, NULL,
      "B: tasks of a step, of all workers, which must divide its samples; 0: workers x accumulate, "
      "of `batch` samples each" },
    { "bound", TUTTI_REAL, TUTTI_AT(ata, bound), 0, 0, 1e9, NULL,
      "A: how far the time of a task scatters, in seconds; allocation=ata needs it",
      "allocation=ata" },
    { "seconds", TUTTI_TEXT, TUTTI_AT(ata, seconds), 0, 0, 0, "",
      "what a task takes each worker, or anything in proportion: t0:t1:...; allocation=fixed needs "
      "it",
      "allocation=fixed" },
    { "width_scale", TUTTI_REAL, TUTTI_AT(ata, width_scale), 0.05, 0, 1e6, NULL,
      "of the confidence widths; 1: the paper's, which explore for hundreds of steps; 0: none",
      "allocation=ata|ata-empirical" },
    { "forget", TUTTI_INT, TUTTI_AT(ata, forget), 0, 0, 1e12, NULL,
      "a mean is over that many tasks at most, for speeds that drift (50 to 200); 0: over all",
      "allocation=ata|ata-empirical" },
    { 0 }
};

/* ---- the allocation ---- */

static void draw_order(const tutti_method *m, uint64_t k)
{
    const ata *s = m->self;
    const tutti_rng rng = { m->rng.seed, tutti_port_of("ata", 0, 0), k }; /* the same on all */

    for (int i = 0; i < m->workers; i++)
        s->order[i] = (int)tutti_permuted(rng, (uint64_t)m->workers, (uint64_t)i);
}

/* The time of worker i with one more task. Of two with equal cost the one higher up in the heap
   wins: it was built in the drawn order. */
static double cost(const ata *s, int i)
{
    return (double)(s->next[i] + 1) * s->score[i];
}

static void sift(const ata *s, int n, int at)
{
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2; child++)
            if (child < n && cost(s, s->heap[child]) < cost(s, s->heap[least]))
                least = child;
        if (least == at)
            return;
        const int i = s->heap[at];
        s->heap[at] = s->heap[least];
        s->heap[least] = i;
        at = least;
    }
}

static void by_scores(const ata *s, int n, int64_t left)
{
    for (int at = n / 2; at-- > 0;)
        sift(s, n, at);
    for (; left > 0; left--) {
        s->next[s->heap[0]]++;
        sift(s, n, 0);
    }
}

/* Computes next[] from score[], B tasks in all. */
static void allocate(const tutti_method *m, uint64_t k)
{
    ata *s = m->self;
    const int workers = m->workers;
    int64_t left = s->tasks;
    int n = 0, tried = 0;

    draw_order(m, k);
    for (int i = 0; i < workers; i++)
        s->next[i] = 0;
    for (int i = 0; i < workers; i++) {
        const int r = s->order[i];
        tried += s->score[r] >= 0;
        if (s->score[r] < 0 && left > 0) {
            s->next[r] = 1;
            left--;
        }
    }
    for (int i = 0; i < workers; i++) /* evenly: to workers whose speed is unresolved, or to all
                                         if none has been tried */
        if (tried == 0 || s->score[s->order[i]] == 0)
            s->heap[n++] = s->order[i];
    for (int i = 0; i < n; i++)
        s->next[s->heap[i]] += left / n + (i < left % n);
    if (n > 0)
        return;
    for (int i = 0; i < workers; i++)
        if (s->score[s->order[i]] >= 0)
            s->heap[n++] = s->order[i];
    by_scores(s, n, left);
}

/* ---- hooks ---- */

static tutti_status ata_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    ata *s = m->self;
    const size_t n = (size_t)m->workers;
    const int64_t step = m->share->batch * m->share->accumulate * m->workers;

    if (s->tasks == 0)
        s->tasks = m->workers * m->share->accumulate;
    if (step % s->tasks != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'ata': tasks is %lld, which does not divide the %lld samples of "
                          "a step (%d workers x batch x accumulate)",
                          (long long)s->tasks, (long long)step, m->workers);
    if ((s->allocation == ATA) != (s->bound > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'ata': bound goes with allocation=ata, which needs it: a bound "
                          "on how far the time of a task scatters, in seconds");
    if (s->allocation == FIXED && tutti_option_positives(s->seconds, NULL, 0) != m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'ata': seconds is '%.80s', but allocation=fixed needs a positive "
                          "number for each of the %d workers: t0:t1:...",
                          s->seconds, m->workers);
    TUTTI_TRY(tutti_passes_assign_declare(m, plan, step / s->tasks, err));
    tutti_declare(plan,
                  &(tutti_state){ .name = "ata.mean",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_F64,
                                  .count = n,
                                  .of_workers = true },
                  &s->mean);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ata.count",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_F64,
                                  .count = n,
                                  .of_workers = true },
                  &s->count);
    tutti_declare_value(plan, "ata.spent", TUTTI_SAME, &s->spent, sizeof s->spent);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "ata.gathered", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = n },
        &s->gathered);
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "ata.score", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = n },
                  &s->score);
    tutti_declare(
        plan,
        &(tutti_state){ .name = "ata.next", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->next);
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "ata.order", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32, .count = n },
                  &s->order);
    tutti_declare(
        plan,
        &(tutti_state){ .name = "ata.heap", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32, .count = n },
        &s->heap);
    return TUTTI_OK;
}

static tutti_status ata_open(tutti_method *m, tutti_error *err)
{
    ata *s = m->self;

    for (int r = 0; r < m->workers; r++)
        s->score[r] = -1;
    if (s->allocation == FIXED)
        tutti_option_positives(s->seconds, s->score, m->workers);
    allocate(m, 0);
    return tutti_passes_assign(m, s->next, err);
}

static tutti_status ata_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_exchange(m, p, 1, err);
}

/* Learns from the times of step k (from 1) of all workers. */
static void learn(tutti_method *m, uint64_t k)
{
    ata *s = m->self;
    const double log_k = log(2 * (double)k * (double)k);
    double slowest = 0;

    for (int r = 0; r < m->workers; r++) {
        const double tasks =
                         (double)tutti_share_step(m->share, m->step, r) / (double)m->share->batch,
                     seconds = (double)s->gathered[r];
        double width;
        if (tasks > 0) {
            if (s->forget > 0 && s->count[r] > (double)s->forget)
                s->count[r] = (double)s->forget;
            s->mean[r] = (s->count[r] * s->mean[r] + seconds) / (s->count[r] + tasks);
            s->count[r] += tasks;
            s->spent.bill += seconds;
            slowest = seconds > slowest ? seconds : slowest;
        }
        width = 4 * M_E * (s->allocation == ATA ? s->bound : 2 * s->mean[r]) * s->width_scale;
        s->score[r] = -1;
        if (s->count[r] > 0)
            s->score[r] =
                fmax(0, s->mean[r] - width * (sqrt(log_k / s->count[r]) + log_k / s->count[r]));
    }
    s->spent.seconds += slowest;
    s->spent.steps++;
}

static tutti_status ata_step(tutti_method *m, tutti_error *err)
{
    ata *s = m->self;
    const int64_t now_ns = tutti_computed_ns(m);
    const float mine = (float)((double)(now_ns - s->counted_ns) * 1e-9);

    TUTTI_TRY(tutti_base_step(m, err));
    s->counted_ns = now_ns;
    if (m->workers == 1)
        return TUTTI_OK;
    TUTTI_TRY(tutti_gather(m, &mine, 1, s->gathered, err));
    learn(m, m->step + 1);
    if (s->allocation == UNIFORM || s->allocation == FIXED)
        return TUTTI_OK;
    allocate(m, m->step + 1);
    return tutti_passes_assign(m, s->next, err);
}

/* All have the same model: only figures are recorded. */
static tutti_status ata_final_model(tutti_method *m, tutti_error *err)
{
    const ata *s = m->self;

    (void)err;
    if (m->rank != 0 || m->workers == 1)
        return TUTTI_OK;
    tutti_metric(m, "work_seconds", -1, s->spent.bill);
    tutti_metric(m, "slowest_seconds", -1, s->spent.seconds);
    for (int r = 0; r < m->workers; r++) {
        tutti_metric(m, "task_seconds", r, s->mean[r]);
        tutti_metric(m, "tasks", r, (double)m->share->passes_of[r]);
    }
    return TUTTI_OK;
}

static const char *const ata_constraints[] = {
    "tasks divide the run's step, workers x batch x accumulate",
    "it decides how much each worker computes: batch-share must be even, and partition iid",
    "a worker without a task computes nothing, but takes part in the all-reduce",
    ("a lost worker ends the run (exit code 3); a checkpoint is resumed with any number of "
     "workers; another number of workers has its times measured again"),
    NULL
};

const tutti_method_ops tutti_method_ata = {
    .name = "ata",
    .title = "ATA: adaptive task allocation",
    .authors = "Maranjyan, Saad, Richtarik, Orabona",
    .year = 2025,
    .family = "all-reduce",
    .axes = { "all-reduce", "every step", "fp32 or any", "buckets, overlap", "replicated", "any" },
    .constraints = ata_constraints,
    .options = ata_options,
    .self_bytes = sizeof(ata),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES,
    .declare = ata_declare,
    .open = ata_open,
    .pass = tutti_passes_divide,
    .exchange = ata_exchange,
    .step = ata_step,
    .final_model = ata_final_model,
};
