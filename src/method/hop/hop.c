/* hop: decentralised SGD in which the gaps between workers' iterations are bounded. Luo, Lin,
   Zhuo, Qian, "Hop: Heterogeneity-Aware Decentralized Training", ASPLOS 2019, arXiv 1902.01064.
   The queues are in src/method/hop/queues.c; src/method/hop/ledger.c decides which worker may
   continue.
     iteration k of worker i
       order=parallel   send x_i;  g = g_i(x_i);  a = sum_j W_ij x_j(k);  x_i <- a - eta opt(g)
       order=serial     x_i <- x_i - eta opt(g_i(x_i));  send x_i;  x_i <- sum_j W_ij x_j(k)
       then             take a token of each out-neighbour;  k <- k + 1;
                        give a token to each in-neighbour
   x_j(k): the model of worker j that is tagged with iteration k; W: the graph's weights; opt, eta:
   the run's optimiser and learning rate. Models are matched by their tags, whenever they arrive.
   Without the options below, parallel gives the bits of d-psgd's awc, and serial those of its atc.
     max_gap          initial number of tokens of each out-neighbour: a worker may be that number
                      of iterations ahead of it
     backup           the models of this number of neighbours are not waited for: a is the mean of
                      those that have arrived, W_ij scaled to sum to 1. Late models are dropped
     staleness s      the newest model of each neighbour is mixed, if it is of iteration k - s or
                      later. linear: a model of iteration j weighs j - (k - s) + 1 times as much
     mode=notify-ack  no tokens: a model is sent once all receivers have mixed the one before it
     skip             a worker that is behind all its out-neighbours jumps to the slowest of them,
                      by at most max_jump: x_i <- the neighbours' mean of the last iteration that it
                      skips, without its own model and without a gradient
   Differs from the paper, or is not stated there:
   1. W is the graph's, not the plain mean over neighbours. On regular graphs the two are equal.
   2. Any optimiser is allowed; its buffers stay local.
   3. backup and staleness may be combined: all but `backup` neighbours must have a model that is
      new enough.
   4. A worker is behind if it has more than max_gap tokens of every out-neighbour: the excess is
      the number of iterations that it lags. A trigger on the bare number of tokens lets a worker
      that does not lag jump ahead of the others, and two such workers block a third for ever.
   5. Skipped steps are steps of the run in which this worker computes nothing: the learning
      rate's schedule, epochs and reports continue, and no worker takes their samples.
   6. A lost worker is excluded. The weight of its model is added to that of the worker's own
      model. */
#include "tutti/tutti.h"
#include "tutti/method/gossip.h"
#include "queues.h"
#include "engine/calls.h"
#include "engine/refuse.h"

typedef struct hop {
    tutti_queues_options options;
    int order;
    bool skip;
    int64_t trigger, max_jump;
    tutti_queues *queues;
    float *mixed;   /* [n]: parallel: a, while x is still read */
    float *figures; /* figures of all: `workers` x TOLD */
    uint64_t lands; /* the step before which a jump ends; until then this worker computes nothing */
    int64_t jump;   /* the length of a jump that begins in this step */
} hop;
enum { MODELS, TOKENS }; /* services */
enum { PARALLEL, SERIAL };
enum { SKIPPED, DROPPED, TOKENS_S, MODELS_S, GAP, TOLD = GAP + TUTTI_QUEUES_GAPS };

static const tutti_option hop_options[] = {
    { "graph", TUTTI_SPEC, TUTTI_AT(hop, options.graph), 0, 0, 0, "",
      "which workers average with each other; `tutti topology` lists them; none: ring-based, ring "
      "for an odd number of workers" },
    { "mode", TUTTI_CHOICE, TUTTI_AT(hop, options.mode), TUTTI_QUEUES_STANDARD, 0, 1,
      "standard|notify-ack",
      "standard: tokens bound how far workers are apart; notify-ack: a model is sent once all have "
      "mixed the last" },
    { "max_gap", TUTTI_INT, TUTTI_AT(hop, options.max_gap), 8, 0, 1024, NULL,
      "iterations that a worker may be ahead of one that takes its models; 0: no tokens",
      "mode=standard" },
    { "backup", TUTTI_INT, TUTTI_AT(hop, options.backup), 0, 0, 65536, NULL,
      "neighbours whose models are not waited for, whichever are last", "mode=standard" },
    { "staleness", TUTTI_INT, TUTTI_AT(hop, options.staleness), 0, 0, 1023, NULL,
      "iterations that a neighbour's model may be old; below max_gap", "mode=standard" },
    { "staleness_weights", TUTTI_CHOICE, TUTTI_AT(hop, options.weights), TUTTI_QUEUES_LINEAR, 0, 1,
      "linear|uniform", "with staleness: linear: a newer model weighs more", "staleness>0" },
    { "skip", TUTTI_BOOL, TUTTI_AT(hop, skip), 0, 0, 1, NULL,
      "a worker that is behind jumps over iterations; with backup or staleness" },
    { "trigger", TUTTI_INT, TUTTI_AT(hop, trigger), 2, 1, 1024, NULL,
      "iterations behind that make a worker jump", "skip=on" },
    { "max_jump", TUTTI_INT, TUTTI_AT(hop, max_jump), 4, 1, 1024, NULL,
      "iterations jumped at once, at most max_gap", "skip=on" },
    { "order", TUTTI_CHOICE, TUTTI_AT(hop, order), PARALLEL, 0, 1, "parallel|serial",
      "parallel: the models travel that gradients are taken at; serial: update, then send" },
    { 0 }
};

static tutti_status hop_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[2] = { MODELS, TOKENS };
    hop *s = m->self;
    const tutti_queues_options *o = &s->options;
    const tutti_rule rules[] = {
        { o->backup > 0 && o->max_gap == 0,
          "{method}: backup is {backup} and max_gap 0: without tokens a worker that does not wait for "
          "a slow one runs ahead of it without bound; set max_gap, say 8" },
        { o->max_gap > 0 && o->staleness >= o->max_gap,
          "{method}: staleness is {staleness} and max_gap {max_gap}: tokens would hold workers back "
          "before any model is so old; set max_gap above staleness, or 0 for no tokens" },
        { s->skip && o->backup == 0 && o->staleness == 0,
          "{method}: skip is on, but with backup=0 and staleness=0 all wait for a slow worker, so it "
          "is never behind; give backup=1, or a staleness" },
        { s->skip && (o->max_gap == 0 || s->max_jump > o->max_gap),
          "{method}: max_jump is {max_jump} and max_gap {max_gap}: tokens show how far a worker is "
          "behind, and no worker is further than max_gap; give max_jump at most max_gap, which is 1 "
          "or more" },
    };
    const tutti_state figures = { .name = "hop.told",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)m->workers * TOLD };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    tutti_sit_out_declare(m, plan);
    tutti_declare(plan, &figures, &s->figures);
    if (s->order == PARALLEL && m->workers > 1)
        tutti_declare_vector(plan, "hop.mixed", TUTTI_SCRATCH, &s->mixed);
    return tutti_queues_declare(&s->queues, m, plan, &s->options, services, err);
}

static tutti_status hop_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    hop *s = m->self;

    if (p->index == 0 && m->step >= s->lands && s->skip) {
        s->jump = tutti_queues_may_jump(s->queues, s->trigger, s->max_jump);
        s->lands = m->step + (uint64_t)s->jump;
    }
    if (m->step < s->lands) {
        p->samples = p->divisor = 0;
        return TUTTI_OK;
    }
    return p->index == 0 && s->order == PARALLEL ? tutti_queues_send(s->queues, m->x, err)
                                                 : TUTTI_OK;
}

/* Makes the whole jump in the first of its steps. */
static tutti_status sit_out(tutti_method *m, hop *s, tutti_error *err)
{
    const int64_t by = s->jump;

    tutti_sit_out(m);
    s->jump = 0;
    return by > 0 ? tutti_queues_jump(s->queues, by, m->x, err) : TUTTI_OK;
}

static tutti_status hop_step(tutti_method *m, tutti_error *err)
{
    hop *s = m->self;

    if (m->step < s->lands)
        return sit_out(m, s, err);
    if (s->mixed != NULL) {
        TUTTI_TRY(tutti_queues_mix(s->queues, m->x, s->mixed, err));
        tutti_copy(m->device, m->layout->used, s->mixed, m->x); /* a = sum_j W_ij x_j */
    }
    TUTTI_TRY(tutti_base_step(m, err)); /* a - eta opt(g)     */
    if (s->order == SERIAL) {
        TUTTI_TRY(tutti_queues_send(s->queues, m->x, err));
        TUTTI_TRY(tutti_queues_mix(s->queues, m->x, m->x, err));
    }
    return tutti_queues_go_on(s->queues, err);
}

/* ---- figures ---- */

static void tell_of(tutti_method *m, int worker, const float *figures)
{
    tutti_metric(m, "iterations_skipped", worker, (double)figures[SKIPPED]);
    tutti_metric(m, "models_dropped", worker, (double)figures[DROPPED]);
    tutti_metric(m, "tokens_waited_seconds", worker, (double)figures[TOKENS_S]);
    tutti_metric(m, "models_waited_seconds", worker, (double)figures[MODELS_S]);
    for (int gap = 0; gap < TUTTI_QUEUES_GAPS; gap++)
        if (figures[GAP + gap] > 0)
            tutti_metric_at(m, "gap", worker, gap, (double)figures[GAP + gap]);
}

static tutti_status report_figures(tutti_method *m, hop *s, tutti_error *err)
{
    const tutti_queues_figures *t = tutti_queues_figures_of(s->queues);
    float mine[TOLD] = { [SKIPPED] = (float)t->skipped,
                         [DROPPED] = (float)t->dropped,
                         [TOKENS_S] = (float)t->tokens_s,
                         [MODELS_S] = (float)t->models_s };

    for (int gap = 0; gap < TUTTI_QUEUES_GAPS; gap++)
        mine[GAP + gap] = (float)t->gap[gap];
    TUTTI_TRY(tutti_gather(m, mine, TOLD, s->figures, err));
    for (int r = 0; r < m->workers; r++)
        tell_of(m, r, s->figures + (size_t)r * TOLD);
    return TUTTI_OK;
}

/* The mean of the models, and the figures of each worker, which are not the method's traffic. */
static tutti_status hop_final_model(tutti_method *m, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    if (m->workers == 1)
        return TUTTI_OK;
    TUTTI_TRY(tutti_average(m, m->x, err));
    was = tutti_engine_doing(m->engine, TUTTI_DOING_OUTSIDE);
    status = report_figures(m, m->self, err);
    tutti_engine_doing(m->engine, was);
    return status;
}

/* Called when all workers are at one step. None is in a jump. */
static tutti_status hop_resume(tutti_method *m, tutti_error *err)
{
    (void)err;
    ((hop *)m->self)->lands = 0;
    return TUTTI_OK;
}

static tutti_status models(tutti_method *m, tutti_error *err)
{
    return tutti_queues_take_models(((hop *)m->self)->queues, err);
}

static tutti_status tokens(tutti_method *m, tutti_error *err)
{
    return tutti_queues_take_tokens(((hop *)m->self)->queues, err);
}

static const tutti_service hop_services[] = {
    [MODELS] = { "models", models, true }, [TOKENS] = { "tokens", tokens }, { 0 }
};

static const char *const hop_constraints[] = {
    "the graph must stay the same in every round, and exist for the number of workers; ring-based "
    "takes an even number, ring any",
    "with backup or staleness which models are mixed depends on which workers are early, so runs "
    "differ in their bits, except simulated ones; without them the bits are d-psgd's",
    "backup needs tokens (max_gap) and leaves every worker a neighbour to wait for; a worker that "
    "stays slow holds the others at max_gap iterations ahead of it, unless it jumps (skip=on)",
    "skip needs backup or staleness: the samples of steps that are jumped over are skipped in that "
    "epoch",
    "memory: a model for each neighbour and each iteration that it may be ahead, as many more to "
    "send",
    "a lost worker is excluded where the transport survives the loss (shm, tcp, sim): its weight "
    "goes to its neighbours' own models, its samples are not computed; with on-loss=stop, on other "
    "transports, and on a directed graph without tokens, it ends the run (exit code 3)",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

const tutti_method_ops tutti_method_hop = {
    .name = "hop",
    .title = "Update queues and token queues",
    .authors = "Luo, Lin, Zhuo, Qian",
    .year = 2019,
    .family = "gossip",
    .axes = { "graph", "bounded gap, neighbours", "fp32", "overlap", "a model each", "any" },
    .constraints = hop_constraints,
    .options = hop_options,
    .self_bytes = sizeof(hop),
    .traits = TUTTI_FAULT_TOLERANT,
    .services = hop_services,
    .declare = hop_declare,
    .pass = hop_pass,
    .step = hop_step,
    .final_model = hop_final_model,
    .resume = hop_resume,
};
