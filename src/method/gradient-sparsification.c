/* gradient-sparsification: synchronous data parallelism in which few elements of a gradient are
   sent. Wangni, Wang, Liu, Zhang, "Gradient Sparsification for Communication-Efficient
   Distributed Optimization", NeurIPS 2018, arXiv 1710.09854 (select=wangni); Stich, Cordonnier,
   Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, arXiv 1809.07599 (the others).
     wangni           element i is kept with probability p_i = min(c |g_i|, 1) and divided by it:
                      unbiased, nothing is remembered. c is such that `ratio` of all are expected
                      (solver=greedy, the paper's algorithm 3), or the fewest for which the
                      variance is at most 1 + `epsilon` times |g|^2 (solver=closed, algorithm 2)
     topk             the greatest magnitudes of g + e; the rest stays in e
     randk, blockk    elements or blocks that are drawn identically on all workers, so that only
                      values travel and are summed on the way. The rest stays in e, or with ef=off
                      what is sent is multiplied by n/k, which is unbiased
   Selection is by tensor; tensors of fewer than min_numel elements travel as they are. */
#include "coded.h"

enum { WANGNI, TOPK, RANDK, BLOCKK };
enum { GREEDY, CLOSED };
typedef struct sparsification {
    int select, solver, value, index;
    double ratio, epsilon, bucket_mb;
    int64_t block, min_numel, warmup;
    bool ef;
    const char *exclude, *ratios;
} sparsification;

static const tutti_option sparsification_options[] = {
    { "select", TUTTI_CHOICE, TUTTI_AT(sparsification, select), WANGNI, 0, 0,
      "wangni|topk|randk|blockk",
      "which elements: at random in proportion to magnitude, the greatest, or the same random ones "
      "on all workers" },
    { "ratio", TUTTI_REAL, TUTTI_AT(sparsification, ratio), 0.01, 1e-9, 1, NULL,
      "share of elements sent; of a factor of 100: 0.01", "solver=greedy" },
    TUTTI_ROW_WANGNI_SOLVER(TUTTI_AT(sparsification, solver), "select=wangni"),
    TUTTI_ROW_WANGNI_EPSILON(TUTTI_AT(sparsification, epsilon)),
    { "ef", TUTTI_BOOL, TUTTI_AT(sparsification, ef), 1, 0, 1, NULL,
      "error feedback: what was not sent is added to the next gradient; wangni has none and needs "
      "none" },
    TUTTI_ROW_RANDOMK_BLOCK(TUTTI_AT(sparsification, block), 256, 2, "select=blockk"),
    CODED_LEAST(TUTTI_AT(sparsification, min_numel), "min_numel", 1024, NULL),
    CODED_BUCKET(TUTTI_AT(sparsification, bucket_mb), "gradients in MiB that are", NULL),
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(sparsification, value), "select=topk"),
    TUTTI_ROW_INDEX_CODE(TUTTI_AT(sparsification, index), "select=topk"),
    CODED_EXCLUDE(TUTTI_AT(sparsification, exclude)),
    TUTTI_ROW_TOPK_WARMUP(TUTTI_AT(sparsification, warmup), 0, "select=topk"),
    TUTTI_ROW_TOPK_WARMUP_RATIOS(TUTTI_AT(sparsification, ratios), "select=topk"),
    { 0 }
};

static tutti_status sparsification_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const sparsification *s = m->self;
    const bool ef = s->ef && s->select != WANGNI;
    sparsification selecting = *s;
    char selected[CODED_SPEC], coded[CODED_SPEC], spec[CODED_SPEC];

    coded_cut(m, s->bucket_mb);
    selecting.warmup = coded_warmup(s->warmup, 0, s->ratios);
    if (s->select == WANGNI && s->solver == CLOSED)
        coded_print(selected, "wangni(epsilon=%.17g,solver=closed)", s->epsilon);
    else if (s->select == WANGNI)
        coded_print(selected, "wangni(sparsity=%.17g)", s->ratio);
    else if (s->select == TOPK)
        coded_spec("topk", m->ops->options, &selecting, NULL, NULL, selected);
    else
        coded_print(selected, "randomk(ratio=%.17g,block=%lld,unbiased=%s)", s->ratio,
                    s->select == RANDK ? 1LL : (long long)s->block, ef ? "off" : "on");
    coded_print(coded, ef ? "ef(%s)" : "%s", selected);
    return tutti_exchange_declare(m, plan, coded_large(m, coded, s->min_numel, spec), err);
}

static const char *const sparsification_constraints[] = {
    "resumed with another number of workers, each has the mean of the residuals",
    "topk with ef: all workers receive what each has sent, which is more than an all-reduce from 1 / ratio workers on",
    "clip-norm acts on the decoded mean", "codec is part of the method: codec must be omitted", NULL
};

static const tutti_method_default sparsification_defaults[] = { { "optimizer", "sgd(lr=0.05)" },
                                                                { 0 } };

static uint64_t gradient_sparsification_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const sparsification *s = self;

    (void)steps;
    return s->select == TOPK ? coded_warmup_epochs(s->warmup, s->ratios) * epoch : 0;
}

const tutti_method_ops tutti_method_gradient_sparsification = {
    .name = "gradient-sparsification",
    .title = "Sparsified gradients",
    .authors = "Wangni, Wang, Liu, Zhang",
    .year = 2018,
    .family = "all-reduce",
    .constraints = sparsification_constraints,
    .options = sparsification_options,
    .defaults = sparsification_defaults,
    .settles = gradient_sparsification_settles,
    .self_bytes = sizeof(sparsification),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .axes = { "all-gather or all-reduce", "every step", "sparse, unbiased or error feedback",
              "buckets, overlap", "replicated", "any" },
    .declare = sparsification_declare,
    .exchange = tutti_base_exchange,
};
