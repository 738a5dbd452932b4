/* partition.c: divides a labelled set into parts, one for each worker, with a chosen skew.

   Below n is the number of workers, C of classes, D of samples.

   dirichlet  even=off: for each class q ~ Dir(alpha 1_n) is the division of its samples among the
              workers. As in the usual code (Li et al., ICDE 2022, 2102.02079), a worker that has
              1/n of the set gets no more, and the draw is repeated until every worker has at least
              `least` samples: so sizes differ, but no part is empty.
              even=on: each worker draws its own mixture p ~ Dir(alpha C prior) over the classes
              (Hsu, Qi, Brown 2019, 1909.06335; without the factor C, with which alpha means the
              same for both). The workers draw one sample each, one after another, of a class drawn
              from p; a class without samples is left out. Sizes are D/n.
              even=cut: as in the code of Lin et al. (ICML 2021, 2102.04761). Workers are divided
              into groups of at most `group`, which get parts of the shuffled set in proportion.
              Within a group each class is divided as with even=off, until every worker has half of
              an even part. Then the group's samples, ordered by worker and class, are divided into
              parts of one size.
   class      k classes for each worker: the classes in a random order, repeated, k for each worker;
              the samples of a class are divided evenly among the workers that have it.
   shard      k shards for each worker (McMahan et al. 2017, 1602.05629): the samples, sorted by
              label, are divided into n k shards, which are assigned at random.

   Within a class samples come in a random order; each part is then sorted by index, so that reads
   are in order. All draws are functions of (seed, what is drawn). So the parts are the same on
   every machine, but for the last digit of libm's exp and log, which may move a sample or two. The
   gamma variates are Marsaglia and Tsang's (2000), in logarithms: for alpha = 0.001 most of them
   are below the smallest double. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_internal.h"

enum { EVEN_OFF, EVEN_ON, EVEN_CUT };
#define ITEM(member) TUTTI_AT(tutti_partition, member)
#define SEED \
    { \
        "seed", TUTTI_INT, ITEM(seed), -1, -1, 9007199254740992.0, NULL, \
            "of the draw; -1: the run's" \
    }
static const tutti_option dirichlet_options[] = {
    { "alpha", TUTTI_REAL, ITEM(alpha), 0.5, 1e-6, 1e6, NULL,
      "concentration: 100 is nearly even, 0.1 strong skew, 0.01 about a class a worker" },
    { "least", TUTTI_INT, ITEM(least), 10, 1, 1e9, NULL, "samples that each worker has at least",
      "even=off" },
    { "even", TUTTI_CHOICE, ITEM(even), EVEN_OFF, 0, 0, "off|on|cut",
      "all parts of one size: on: drawn with it; cut: drawn as they come, at least half of that "
      "each, then cut again" },
    SEED,
    { "group", TUTTI_INT, ITEM(group), 10, 1, 1e9, NULL,
      "workers at most that the classes are cut for at a time", "even=cut" },
    { 0 }
};
static const tutti_option class_options[] = {
    { "k", TUTTI_INT, ITEM(k), 2, 1, 256, NULL, "classes a worker" }, SEED, { 0 }
};
static const tutti_option shard_options[] = {
    { "k", TUTTI_INT, ITEM(k), 2, 1, 1 << 20, NULL, "shards a worker" }, SEED, { 0 }
};
const tutti_partition_set tutti_partitions[] = {
    { "iid", "all workers draw from one common order: every sample once an epoch, by any worker",
      NULL, TUTTI_PARTITION_IID },
    { "dirichlet", "each class cut by a draw from a Dirichlet distribution", dirichlet_options,
      TUTTI_PARTITION_DIRICHLET },
    { "class", "k classes a worker", class_options, TUTTI_PARTITION_CLASS },
    { "shard", "samples sorted by label and cut into shards, k of them a worker", shard_options,
      TUTTI_PARTITION_SHARD },
    { 0 }
};

/* Streams of random numbers: the kind is the high word, what is drawn the low ones. */
enum {
    STREAM_GAMMA = 0x67616d6d,
    STREAM_ORDER = 0x6f726465,
    STREAM_TURN = 0x7475726e,
    STREAM_CLASSES = 0x636c6173,
    STREAM_GROUP = 0x67726f75,
    STREAM_SHARDS = 0x73686172
};
enum { TRIES = 1000, CLASSES_MOST = 256 };

tutti_status tutti_partition_read(tutti_partition *p, const char *text, tutti_error *err)
{
    const char *names[8];
    size_t n = 0;
    char near[128], what[40];
    tutti_spec *spec;
    const tutti_partition_set *set = NULL;
    tutti_status status;

    *p = (tutti_partition){ .seed = -1 };
    status = tutti_spec_open(&spec, text, err);
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status, "partition");
    for (; tutti_partitions[n].name != NULL; n++) {
        names[n] = tutti_partitions[n].name;
        if (strcmp(names[n], tutti_spec_name(spec)) == 0)
            set = &tutti_partitions[n];
    }
    if (set == NULL) {
        tutti_suggest(tutti_spec_name(spec), names, n, near, sizeof near);
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "there is no partition '%.60s'%s; iid, dirichlet(alpha=A), class(k=K) "
                            "and shard(k=K) are known",
                            tutti_spec_name(spec), near);
    } else {
        snprintf(what, sizeof what, "partition '%s'", set->name);
        status = tutti_spec_apply(spec, what, set->options, p, err);
        p->kind = set->kind;
    }
    tutti_spec_close(spec);
    return status;
}

/* ---- draws ---- */

/* Draws the log of a Gamma(alpha, 1) variate (Marsaglia and Tsang 2000, section 6 for alpha < 1:
   G(alpha) = G(alpha + 1) U^(1/alpha)). */
static double log_gamma_variate(tutti_rng rng, double alpha)
{
    const double a = alpha < 1 ? alpha + 1 : alpha, d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    /* 1 - u is in (0, 1] */
    const double boost = alpha < 1 ? log(1 - tutti_uniform(rng, 0)) / alpha : 0;

    for (uint64_t k = 1;; k++) {
        const double x = tutti_normal(rng, k), u = 1 - tutti_uniform(rng, k);
        const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d) + log(v) + boost;
    }
}

/* Sets weight[i] in proportion to exp(log_weight[i]) where open[i], else 0; the largest is 1. */
static void from_logs(const double *log_weight, const bool *open, int n, double *weight)
{
    double most = -INFINITY;

    for (int k = 0; k < n; k++)
        most = open[k] && log_weight[k] > most ? log_weight[k] : most;
    for (int k = 0; k < n; k++)
        weight[k] = open[k] ? exp(log_weight[k] - most) : 0;
}

/* ---- the kinds ---- */

/* A partition that is being drawn, for the workers `first` to first + workers - 1. */
typedef struct cut {
    const tutti_partition *p;
    const uint8_t *labels;            /* [samples] */
    uint64_t samples, seed;
    int classes, workers;
    int first;
    uint64_t begin[CLASSES_MOST + 1]; /* the samples of class c are sorted[begin[c]] to */
    uint32_t *sorted;                 /* sorted[begin[c + 1] - 1], ascending */
    uint32_t *of;                     /* [samples]: worker of each sample */
    uint64_t *size;                   /* [workers]: samples of each worker */
    double *log_weight;               /* [max(workers, classes)]; even=on: [workers x classes] */
    double *weight;                   /* [max(workers, classes)] */
    bool *open;                       /* [max(workers, classes)]: may have a weight above 0 */
} cut;

static tutti_rng rng_of(const cut *c, int kind, uint64_t what, uint64_t turn)
{
    return (tutti_rng){ c->seed, (uint64_t)kind << 32 | what, turn };
}

/* Returns the i-th sample of a class in its random order. */
static uint32_t shuffled(const cut *c, int class, uint64_t i)
{
    const uint64_t n = c->begin[class + 1] - c->begin[class];
    return c->sorted[c->begin[class] +
                     tutti_permuted(rng_of(c, STREAM_ORDER, (uint64_t) class, 0), n, i)];
}

static void assign_samples(cut *c, int class, uint64_t from, uint64_t to, int worker)
{
    for (uint64_t i = from; i < to; i++)
        c->of[shuffled(c, class, i)] = (uint32_t)(c->first + worker);
    c->size[worker] += to - from;
}

static uint64_t smallest(const cut *c)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < c->workers; r++)
        least = c->size[r] < least ? c->size[r] : least;
    return least;
}

static void dirichlet_once(cut *c, uint64_t turn)
{
    memset(c->size, 0, (size_t)c->workers * sizeof *c->size);
    for (int class = 0; class < c->classes; class++) {
        const uint64_t n = c->begin[class + 1] - c->begin[class];
        double sum = 0, before = 0;
        uint64_t from = 0;
        int last = 0;
        if (n == 0)
            continue;
        for (int r = 0; r < c->workers; r++) {
            c->log_weight[r] = log_gamma_variate(
                rng_of(c, STREAM_GAMMA, (uint64_t) class * (uint64_t)c->workers + (uint64_t)r,
                       turn),
                c->p->alpha);
            /* some worker always is: this class is not assigned yet */
            c->open[r] = c->size[r] * (uint64_t)c->workers < c->samples;
        }
        from_logs(c->log_weight, c->open, c->workers, c->weight);
        for (int r = 0; r < c->workers; r++) {
            sum += c->weight[r];
            last = c->weight[r] > 0 ? r : last;
        }
        for (int r = 0; r <= last; r++) {
            /* the last one with a weight takes what is left, whatever the rounding */
            const double cut_at = (before += c->weight[r]) / sum * (double)n;
            const uint64_t to = r == last || cut_at >= (double)n ? n : (uint64_t)cut_at;
            assign_samples(c, class, from, to, r);
            from = to;
        }
    }
}

/* Repeats the draw until every worker has at least `least` samples. */
static tutti_status dirichlet_least(cut *c, uint64_t least, tutti_error *err)
{
    uint64_t best = 0;

    for (uint64_t turn = 0; turn < TRIES; turn++) {
        dirichlet_once(c, turn);
        if (smallest(c) >= least)
            return TUTTI_OK;
        best = smallest(c) > best ? smallest(c) : best;
    }
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "partition 'dirichlet': with alpha %g none of %d draws leaves each of %d workers at least "
        "%llu samples (the best left %llu); use even=on, a larger alpha, fewer workers or a "
        "smaller %s",
        c->p->alpha, TRIES, c->workers, (unsigned long long)least, (unsigned long long)best,
        c->p->even == EVEN_CUT ? "group" : "least");
}

static tutti_status dirichlet(cut *c, tutti_error *err)
{
    if (c->samples / (uint64_t)c->workers < (uint64_t)c->p->least)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "partition 'dirichlet': least is %lld, but %llu samples are at most %llu "
                          "for each of %d workers",
                          (long long)c->p->least, (unsigned long long)c->samples,
                          (unsigned long long)(c->samples / (uint64_t)c->workers), c->workers);
    return dirichlet_least(c, (uint64_t)c->p->least, err);
}

/* Sorts the samples from `from` to `to` of the shuffled set by class, into group->sorted. */
static void sort_group(const cut *c, uint64_t from, uint64_t to, cut *group)
{
    const tutti_rng order = rng_of(c, STREAM_GROUP, 0, 0);
    uint64_t at[CLASSES_MOST] = { 0 };

    memset(group->begin, 0, sizeof group->begin);
    for (uint64_t i = from; i < to; i++)
        group->begin[c->labels[tutti_permuted(order, c->samples, i)] + 1]++;
    for (int k = 0; k < c->classes; k++) {
        at[k] = group->begin[k];
        group->begin[k + 1] += group->begin[k];
    }
    for (uint64_t i = from; i < to; i++) {
        const uint32_t sample = (uint32_t)tutti_permuted(order, c->samples, i);
        group->sorted[at[c->labels[sample]]++] = sample;
    }
}

/* Divides the group's samples, ordered by worker, class and draw, into `workers` parts of one size,
   the k-th of which is worker k's. */
static void make_even(cut *group)
{
    const uint64_t n = (uint64_t)group->workers;
    uint64_t at = 0;

    for (uint64_t k = 0; k < n; k++) { /* size[k] becomes where worker k's begin */
        const uint64_t size = group->size[k];
        group->size[k] = at;
        at += size;
    }
    for (int class = 0; class < group->classes; class++)
        for (uint64_t i = 0; i < group->begin[class + 1] - group->begin[class]; i++) {
            const uint32_t sample = shuffled(group, class, i);
            const uint64_t place = group->size[group->of[sample] - (uint32_t)group->first]++;
            group->of[sample] =
                (uint32_t)group->first + (uint32_t)(((place + 1) * n - 1) / group->samples);
        }
    for (uint64_t k = 0; k < n; k++)
        group->size[k] = group->samples * (k + 1) / n - group->samples * k / n;
}

static tutti_status dirichlet_groups(cut *c, uint32_t *sorted, tutti_error *err)
{
    const uint64_t n = (uint64_t)c->workers;
    cut group = *c;

    group.sorted = sorted;
    for (int first = 0; first < c->workers; first += group.workers) {
        const uint64_t from = c->samples * (uint64_t)first / n;
        uint64_t to;
        group.workers = c->workers - first < c->p->group ? c->workers - first : (int)c->p->group;
        to = c->samples * (uint64_t)(first + group.workers) / n;
        group.first = first;
        group.size = c->size + first;
        group.samples = to - from;
        group.seed = tutti_random(rng_of(c, STREAM_GROUP, 1, 0), (uint64_t)first);
        sort_group(c, from, to, &group);
        TUTTI_TRY(dirichlet_least(&group, group.samples / (2 * (uint64_t)group.workers), err));
        make_even(&group);
    }
    return TUTTI_OK;
}

static tutti_status dirichlet_even(cut *c, tutti_error *err)
{
    const uint64_t each = c->samples / (uint64_t)c->workers,
                   extra = c->samples % (uint64_t)c->workers;
    uint64_t used[CLASSES_MOST] = { 0 };

    (void)err;
    for (int r = 0; r < c->workers; r++)
        for (int class = 0; class < c->classes; class++) {
            const double prior =
                (double)(c->begin[class + 1] - c->begin[class]) / (double)c->samples;
            const uint64_t what = (uint64_t)r * (uint64_t)c->classes + (uint64_t)class;
            c->log_weight[what] = prior > 0 ? log_gamma_variate(rng_of(c, STREAM_GAMMA, what, 0),
                                                                c->p->alpha * c->classes * prior)
                                            : 0;
        }
    for (uint64_t turn = 0; turn < each + (extra > 0); turn++)
        for (int r = 0; r < (turn < each ? c->workers : (int)extra); r++) {
            double sum = 0, at;
            int class = 0, last = 0;
            for (int k = 0; k < c->classes; k++)
                c->open[k] = used[k] < c->begin[k + 1] - c->begin[k];
            from_logs(c->log_weight + (size_t)r * (size_t)c->classes, c->open, c->classes,
                      c->weight);
            for (int k = 0; k < c->classes; k++) {
                sum += c->weight[k];
                last = c->weight[k] > 0 ? k : last;
            }
            at = tutti_uniform(rng_of(c, STREAM_TURN, (uint64_t)r, 0), turn) * sum;
            while (class < last && (at -= c->weight[class]) >= 0)
                class++;
            while (!c->open[class]) /* a weight of 0 may be hit at its edge */
                class++;
            assign_samples(c, class, used[class], used[class] + 1, r);
            used[class]++;
        }
    return TUTTI_OK;
}

static tutti_status by_class(cut *c, tutti_error *err)
{
    const int k = (int)c->p->k, slots = k * c->workers;

    if (k > c->classes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "partition 'class': k is %d, but there are %d classes", k, c->classes);
    if (slots < c->classes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "partition 'class': %d workers with %d class%s each have %d of the %d classes, and no "
            "worker would have the others; k must be at least %d",
            c->workers, k, k > 1 ? "es" : "", slots, c->classes,
            (c->classes + c->workers - 1) / c->workers);
    for (int place = 0; place < c->classes; place++) {
        /* slots place, place + classes, ...: slot s is worker s / k's */
        const int class = (int)tutti_permuted(rng_of(c, STREAM_CLASSES, 0, 0), (uint64_t)c->classes,
                                              (uint64_t)place);
        const uint64_t n = c->begin[class + 1] - c->begin[class],
                       holders = (uint64_t)((slots - place + c->classes - 1) / c->classes);
        for (uint64_t h = 0; h < holders; h++)
            assign_samples(c, class, n * h / holders, n * (h + 1) / holders,
                           (place + (int)h * c->classes) / k);
    }
    return TUTTI_OK;
}

static tutti_status by_shard(cut *c, tutti_error *err)
{
    const uint64_t k = (uint64_t)c->p->k, shards = k * (uint64_t)c->workers;

    if (shards > c->samples)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "partition 'shard': %d workers with %llu shards each need %llu shards, "
                          "but there are %llu samples",
                          c->workers, (unsigned long long)k, (unsigned long long)shards,
                          (unsigned long long)c->samples);
    for (uint64_t place = 0; place < shards; place++) {
        const uint64_t shard = tutti_permuted(rng_of(c, STREAM_SHARDS, 0, 0), shards, place);
        const uint64_t from = c->samples / shards * shard + c->samples % shards * shard / shards,
                       to = c->samples / shards * (shard + 1) +
                            c->samples % shards * (shard + 1) / shards;
        for (uint64_t i = from; i < to; i++)
            c->of[c->sorted[i]] = (uint32_t)(place / k);
        c->size[place / k] += to - from;
    }
    return TUTTI_OK;
}

/* ---- parts ---- */

bool tutti_partition_bytes(uint64_t samples, int workers, size_t *bytes)
{
    size_t list;

    return tutti_size_mul((size_t)samples, sizeof(uint32_t), &list) &&
           tutti_size_add(list, ((size_t)workers + 1) * sizeof(uint64_t), bytes);
}

void tutti_partition_at(tutti_parts *parts, const void *memory, int workers)
{
    parts->first = memory;
    parts->sample = (const uint32_t *)(const void *)(parts->first + workers + 1);
}

static tutti_status sort_by_class(cut *c, tutti_error *err)
{
    uint64_t at[CLASSES_MOST];

    for (uint64_t i = 0; i < c->samples; i++) {
        if (c->labels[i] >= c->classes)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "sample %llu has label %d, but there are %d classes",
                              (unsigned long long)i, c->labels[i], c->classes);
        c->begin[c->labels[i] + 1]++;
    }
    for (int k = 0; k < c->classes; k++) {
        at[k] = c->begin[k];
        c->begin[k + 1] += c->begin[k];
    }
    for (uint64_t i = 0; i < c->samples; i++)
        c->sorted[at[c->labels[i]]++] = (uint32_t)i;
    return TUTTI_OK;
}

static tutti_status write_parts(const cut *c, void *memory, tutti_error *err)
{
    uint64_t *first = memory;
    uint32_t *sample = (uint32_t *)(void *)(first + c->workers + 1);

    first[0] = 0;
    for (int r = 0; r < c->workers; r++) {
        if (c->size[r] == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the partition leaves worker %d of %d without a sample (the set has "
                              "%llu); use fewer workers",
                              r, c->workers, (unsigned long long)c->samples);
        first[r + 1] = first[r] + c->size[r];
        c->size[r] = first[r];
    }
    for (uint64_t i = 0; i < c->samples; i++)
        sample[c->size[c->of[i]]++] = (uint32_t)i;
    return TUTTI_OK;
}

/* Allocates what a cut needs. */
static tutti_status take_memory(cut *c, tutti_error *err)
{
    const tutti_partition *p = c->p;
    const size_t n = (size_t)c->workers, k = (size_t)c->classes, weights = n > k ? n : k;
    c->sorted = tutti_alloc((size_t)c->samples, sizeof *c->sorted);
    c->of = tutti_alloc((size_t)c->samples, sizeof *c->of);
    c->size = tutti_alloc(n, sizeof *c->size);
    c->log_weight = tutti_alloc(p->even == EVEN_ON ? n * k : weights, sizeof *c->log_weight);
    c->weight = tutti_alloc(weights, sizeof *c->weight);
    c->open = tutti_alloc(weights, sizeof *c->open);
    if (c->sorted == NULL || c->of == NULL || c->size == NULL || c->log_weight == NULL ||
        c->weight == NULL || c->open == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to cut %llu samples into parts",
                          (unsigned long long)c->samples);
    return TUTTI_OK;
}

/* Gives each sample a part. sorted: room for a group's samples, under even=cut. */
static tutti_status cut_by_kind(cut *c, uint32_t *sorted, tutti_error *err)
{
    const tutti_partition *p = c->p;

    TUTTI_TRY(sort_by_class(c, err));
    return p->kind == TUTTI_PARTITION_CLASS   ? by_class(c, err)
           : p->kind == TUTTI_PARTITION_SHARD ? by_shard(c, err)
           : p->even == EVEN_ON               ? dirichlet_even(c, err)
           : p->even == EVEN_CUT              ? dirichlet_groups(c, sorted, err)
                                              : dirichlet(c, err);
}

tutti_status tutti_partition_draw(const tutti_partition *p, const tutti_partition_labels *of,
                                  int workers, uint64_t seed, void *memory, tutti_error *err)
{
    const uint64_t samples = of->samples;
    const int classes = of->classes;
    uint32_t *sorted;                 /* of a group */
    cut c = { .p = p,
              .labels = of->at,
              .samples = samples,
              .classes = classes,
              .workers = workers,
              .seed = p->seed >= 0 ? (uint64_t)p->seed : seed };
    tutti_status status = TUTTI_OK;

    assert(workers > 0 && classes > 0 && classes <= CLASSES_MOST && p->kind != TUTTI_PARTITION_IID);
    if (samples > UINT32_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a partition of %llu samples is too large; up to %u are possible",
                          (unsigned long long)samples, UINT32_MAX);
    status = take_memory(&c, err);
    sorted = tutti_alloc(p->even == EVEN_CUT ? (size_t)samples : 1, sizeof *sorted);
    if (status == TUTTI_OK && sorted == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to cut %llu samples into parts",
                            (unsigned long long)samples);
    if (status == TUTTI_OK)
        status = cut_by_kind(&c, sorted, err);
    if (status == TUTTI_OK)
        status = write_parts(&c, memory, err);
    tutti_free(c.sorted);
    tutti_free(c.of);
    tutti_free(sorted);
    tutti_free(c.size);
    tutti_free(c.log_weight);
    tutti_free(c.weight);
    tutti_free(c.open);
    return status;
}

double tutti_partition_histogram(const tutti_parts *parts, int worker, const uint8_t *labels,
                                 uint64_t samples, int classes, uint64_t *count)
{
    uint64_t all[CLASSES_MOST] = { 0 };
    const double n = (double)(parts->first[worker + 1] - parts->first[worker]);
    double distance = 0;

    memset(count, 0, (size_t)classes * sizeof *count);
    for (uint64_t i = 0; i < samples; i++)
        all[labels[i]]++;
    for (uint64_t i = parts->first[worker]; i < parts->first[worker + 1]; i++)
        count[labels[parts->sample[i]]]++;
    for (int k = 0; k < classes; k++)
        distance += fabs((double)count[k] / n - (double)all[k] / (double)samples);
    return distance;
}
