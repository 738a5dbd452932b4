/* alq.c: codecs alq and amq: as qsgd with levels that are fitted to the gradients at a few chosen
   steps. Faghri, Tabrizian, Markov, Alistarh, Roy and Ramezani-Kebrya, NeurIPS 2020. ALQ fits all
   levels, AMQ the multiplier p of +-{1, p, p^2, ...}. Between the fits the codec is an unbiased
   quantiser with a table of levels.

   A fit takes three rounds of tutti_codec_begin:
     `samples` steps      before it: `encode` keeps each whole bucket's norm, and mean and deviation
                          of its normalised elements. The gradients of these steps are the sample:
                          of each bucket the root mean square of its norms, and mean and deviation
                          of all its normalised elements
     round 0              each worker writes its `components` buckets of greatest norm to its own
                          part of the numbers (12 bytes each), so the sum has those of all workers
     round 1              worker 0 fits the mixture and finds the levels (mixture.c); the others
                          write zeros, so that the sum is worker 0's levels. If each worker fitted,
                          the levels could differ: the exponential and the error function are the
                          C library's, and differ between processors
     round 2              all use the new levels, and report Psi before and after

   The initial levels. The authors' code begins with NUQSGD's without a 0 (initial=powers). The
   least of these is 1/8 with 3 bits, where the elements of a bucket of 8192 are about 1/90 of its
   2-norm. Until the first fit rounding adds 127 times the gradient's square, which networks with
   batch normalisation survive and others do not. But the mean square of a bucket's normalised
   elements is known without a gradient: it is 1/d with the 2-norm, exactly. So by default
   (initial=normal) levels are fitted before step 0 to the normal distribution of that mean
   square. With norm=max, whose mean square is not known, the deviation is 1 / sqrt(2 ln d), by
   which the greatest of d normal numbers is 1. This first fit takes rounds 1 and 2. Where the
   initial levels would add more than 5/4 of a normal gradient's square, this is reported.

   Only whole buckets count, as in the authors' runs. Elements that are the scale itself (norm=max)
   are excluded from mean and deviation, since the distribution has its ends there. A part of the
   mixture has the weight N^2 d, which makes its Psi the variance that is added to the gradient;
   the authors' code has N (weight=norm). What is fitted replaces the levels only where it lowers
   Psi.

   Fits are before the steps `first` and `second`, before every multiple of `every`, and after
   `samples` steps at a learning rate of half the last one's or less. A skipped step gives no
   sample; the fit is a step later. While samples are taken for one fit, no other is begun.

   symmetric=on fits to the distribution and its mirror image together, whose best levels are
   symmetric. The published form, positive levels alone with a 0 as neighbour that is none of
   them, minimises something else than their variance. Levels are declared state, so that a worker
   that joins has them; on the wire there are codes only. */
#include "codec_internal.h"
#include "mixture.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"
#include <assert.h>
#include <stdio.h>

enum { COMPONENTS_MOST = TUTTI_ALQ_COMPONENTS_MOST, FIELDS = 3, NORM2 = 0, SINGLE = 1, NORMAL = 0 };
#define VARIANCE_MOST \
    1.25 /* of the gradient's square, beyond which what is begun with is warned of: as under nuqsgd */
typedef struct alq {
    tutti_codec_quantiser q;
    int variant, fit, weight, initial;
    bool zero_level, symmetric, on_lr_drop;
    int64_t components, samples, sweeps, first, second, every;
    tutti_levels ready;          /* made from level */
    float *level;                /* 2^bits */
    /* FIELDS of each bucket of the flat space: norm, mean, deviation; samples > 1: in how many
       steps it was seen, and was not 0 */
    float *bucket, *seen;
    float *numbers;
    bool prior;                  /* this step's fit is to what is known before any gradient */
    /* collect: the first step whose gradients are the sample, NEVER: none; fit: the step before
       which levels are fitted to it */
    struct { uint64_t collect, fit; double lr; } now;
} alq;
#define NEVER UINT64_MAX

#define QUANTISER_ROWS \
    TUTTI_ROW_ALQ_BITS(TUTTI_AT(tutti_codec_quantiser, bits)), \
    TUTTI_ROW_BUCKET(TUTTI_AT(tutti_codec_quantiser, bucket), 8192), \
    TUTTI_ROW_NORM(TUTTI_AT(tutti_codec_quantiser, l2), 1), \
    TUTTI_ROW_CODING(TUTTI_AT(tutti_codec_quantiser, coding), "coding"), \
    TUTTI_ROW_TAIL(TUTTI_AT(tutti_codec_quantiser, tail))
static const tutti_option alq_options[] = {
    QUANTISER_ROWS, TUTTI_ROWS_ALQ(alq), TUTTI_ROWS_FIT(alq), { 0 }
};
static const tutti_option amq_options[] = { QUANTISER_ROWS, TUTTI_ROWS_FIT(alq), { 0 } };

static int levels_of(const alq *s)
{
    return 1 << s->q.bits;
}

static int pinned(const alq *s)
{
    return s->zero_level ? levels_of(s) / 2 : -1;
}

static tutti_status alq_check(const tutti_codec *c, tutti_error *err)
{
    const alq *s = c->self;

    if (s->second > 0 && s->second <= s->first)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "second is %lld and must be after first, %lld",
                          (long long)s->second, (long long)s->first);
    return tutti_codec_quantised_check(c, err);
}

static size_t numbers_of(const tutti_codec *c)
{
    const alq *s = c->self;
    const size_t fit = s->fit == SINGLE
                           ? FIELDS
                           : FIELDS * (size_t)s->components * (size_t)c->space->workers,
                 answer = (size_t)levels_of(s) + FIELDS;

    return fit > answer ? fit : answer;
}

static size_t slots_of(const tutti_codec *c)
{
    const tutti_view *tensor = c->space->tensor;
    const int n = c->space->n_tensors;

    /* what n is padded to depends on the workers */
    return (n > 0 ? tensor[n - 1].first + tensor[n - 1].count : c->space->n) /
               (size_t)((const alq *)c->self)->q.bucket +
           1;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    alq *s = c->self;

    s->q.grid = TUTTI_GRID_ANY;
    s->q.levels = &s->ready;
    tutti_codec_declare_floats(c, plan, "levels", TUTTI_SAME, (size_t)levels_of(s), &s->level);
    tutti_codec_declare_floats(c, plan, "buckets", TUTTI_OWN_ZERO, FIELDS * slots_of(c),
                               &s->bucket);
    if (s->samples > 1)
        tutti_codec_declare_floats(c, plan, "seen", TUTTI_OWN_ZERO, slots_of(c), &s->seen);
    tutti_codec_declare_floats(c, plan, "numbers", TUTTI_SCRATCH, numbers_of(c), &s->numbers);
    tutti_codec_declare_value(c, plan, "now", TUTTI_SAME, &s->now, sizeof s->now);
}

static void make_ready(alq *s)
{
    const bool good = tutti_levels_make(&s->ready, (int)s->q.bits, s->level);

    assert(good);
    (void)good;
}

/* The powers of a half, NUQSGD's without a zero; what is fitted before step 0 comes from there. */
static void open(tutti_codec *c)
{
    alq *s = c->self;
    double level[256];

    tutti_codec_powers(levels_of(s), fmax(0.5, tutti_codec_power_least(levels_of(s))), level);
    if (s->zero_level)
        level[pinned(s)] = 0;
    for (int l = 0; l < levels_of(s); l++)
        s->level[l] = (float)level[l];
    s->now.collect = NEVER;
    make_ready(s);
}

static tutti_status verify(const tutti_codec *c, tutti_error *err)
{
    const alq *s = c->self;
    tutti_levels made;

    if (!tutti_levels_make(&made, (int)s->q.bits, s->level))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "state '%s.levels' does not ascend from -1 to 1, so it is not what was saved; resume "
            "from an earlier checkpoint",
            c->prefix);
    return TUTTI_OK;
}

/* ---- the sample ---- */
static void sample(const tutti_codec *c, const tutti_view *v, const float *x)
{
    const alq *s = c->self;
    const size_t d = (size_t)s->q.bucket;

    /* whole buckets begin d apart, so that each has a slot to itself */
    for (size_t first = 0; first + d <= v->count; first += d) {
        const float norm = tutti_codec_bucket_scale(c, &s->q, x + first, d);
        float *slot = s->bucket + FIELDS * ((v->first + first) / d),
              *times = s->seen != NULL ? s->seen + (v->first + first) / d : NULL;
        double sum = 0, squares = 0, mean, deviation;
        size_t n = 0;
        if (!(norm > 0))
            continue;
        for (size_t i = first; i < first + d; i++) {
            const double r = (double)x[i] / norm;
            if (s->q.l2 || fabs(r) != 1) {
                sum += r;
                squares += r * r;
                n++;
            }
        }
        mean = n > 0 ? sum / (double)n : 0;
        deviation = n > 1 ? sqrt(fmax(squares - sum * mean, 0) / (double)(n - 1)) : 0;
        if (times != NULL && *times > 0) { /* with what was seen before: moments of all */
            const double before = (double)*times / ((double)*times + 1), now = 1 - before,
                         m0 = (double)slot[1], d0 = (double)slot[2], all = before * m0 + now * mean;
            deviation = sqrt(before * (d0 * d0 + (m0 - all) * (m0 - all)) +
                             now * (deviation * deviation + (mean - all) * (mean - all)));
            mean = all;
            slot[0] = (float)sqrt(before * (double)slot[0] * slot[0] + now * (double)norm * norm);
        } else
            slot[0] = norm;
        slot[1] = (float)mean;
        slot[2] = (float)deviation;
        if (times != NULL)
            ++*times;
    }
    tutti_device_charge(c->space->device, 4.0 * (double)v->count, 4.0 * (double)v->count);
}

static size_t alq_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                         uint8_t *out)
{
    const alq *s = c->self;

    if (v->stage == 0 && s->now.collect != NEVER && v->step >= s->now.collect &&
        v->step < s->now.fit)
        sample(c, v, x);
    return tutti_codec_quantised_encode(c, v, x, scratch, out);
}

/* ---- a fit ---- */
/* Selects from n triples those of greatest norm, at most `most`, in that order, of equal ones the
   earlier; returns how many. The result may be the triples' memory. */
static size_t greatest(size_t n, const float *of, size_t most, float *to)
{
    float kept[FIELDS * COMPONENTS_MOST];
    size_t have = 0;

    assert(most <= COMPONENTS_MOST);
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!(of[FIELDS * i] > 0) || (have == most && of[FIELDS * i] <= kept[FIELDS * (most - 1)]))
            continue;
        for (at = have < most ? have++ : most - 1;
             at > 0 && kept[FIELDS * (at - 1)] < of[FIELDS * i]; at--)
            memcpy(kept + FIELDS * at, kept + FIELDS * (at - 1), FIELDS * sizeof *kept);
        memcpy(kept + FIELDS * at, of + FIELDS * i, FIELDS * sizeof *kept);
    }
    memcpy(to, kept, FIELDS * have * sizeof *kept);
    return have;
}

/* The distribution assumed for a bucket before any gradient. */
static tutti_codec_normal prior_of(const alq *s)
{
    const double d = (double)s->q.bucket;

    return (tutti_codec_normal){ 1, 0, 1 / sqrt(s->q.l2 ? d : 2 * log(d)), 0 };
}

static size_t give_sample(tutti_codec *c)
{
    const alq *s = c->self;
    const double d = (double)s->q.bucket;
    const size_t most = (size_t)s->components;
    double seen = 0, sum = 0, squares = 0;

    memset(s->numbers, 0, numbers_of(c) * sizeof *s->numbers);
    if (s->fit != SINGLE) {
        greatest(slots_of(c), s->bucket, most, s->numbers + FIELDS * most * (size_t)c->space->rank);
        return FIELDS * most * (size_t)c->space->workers;
    }
    for (size_t k = 0; k < slots_of(c); k++)
        if (s->bucket[FIELDS * k] > 0) {
            seen++;
            sum += (double)s->bucket[FIELDS * k + 1];
            squares += (double)s->bucket[FIELDS * k + 2] * s->bucket[FIELDS * k + 2] * (d - 1) / d;
        }
    s->numbers[0] = (float)seen;
    s->numbers[1] = (float)sum;
    s->numbers[2] = (float)squares;
    return FIELDS;
}

/* Lists the components that the levels are fitted to: the prior, the one normal that the sample
   has, or the greatest of all workers; with their mirror images. Returns how many buckets there
   were. */
static size_t list_components(tutti_codec *c, tutti_codec_mixture *m, tutti_codec_normal *part)
{
    const alq *s = c->self;
    size_t seen = 0;
    if (s->prior)
        part[m->n++] = prior_of(s);
    else if (s->fit == SINGLE) {
        seen = (size_t)s->numbers[0];
        part[m->n++] = (tutti_codec_normal){ 1, (double)s->numbers[1] / s->numbers[0],
                                             sqrt((double)s->numbers[2] / s->numbers[0]), 0 };
    } else {
        seen = greatest((size_t)s->components * (size_t)c->space->workers, s->numbers,
                        (size_t)s->components, s->numbers);
        for (size_t k = 0; k < seen; k++) {
            const double norm = (double)s->numbers[FIELDS * k];
            part[m->n++] = (tutti_codec_normal){ s->weight == NORM2 ? norm * norm : norm,
                                                 (double)s->numbers[FIELDS * k + 1],
                                                 (double)s->numbers[FIELDS * k + 2], 0 };
        }
    }
    for (int k = m->n - 1; k >= 0 && s->symmetric; k--) { /* the mirror image of each */
        part[m->n + k] = part[k];
        part[m->n + k].mean = -part[k].mean;
    }
    m->n *= s->symmetric ? 2 : 1;
    return seen;
}

/* Worker 0: from the merged sample in numbers to levels, Psi before and after (equal: the levels
   stay) and how many buckets there were. */
static void fit(tutti_codec *c)
{
    const alq *s = c->self;
    const int n = levels_of(s);
    tutti_codec_normal part[2 * COMPONENTS_MOST];
    tutti_codec_mixture m = { .of = part, .sweeps = (int)s->sweeps };
    double level[256], before = 0, after = 0;
    size_t seen;
    tutti_levels made;

    seen = list_components(c, &m, part);
    for (int l = 0; l < n; l++)
        level[l] = (double)s->level[l];
    if ((seen >= 2 || s->prior) && tutti_codec_mixture_make(&m)) {
        float rounded[256];
        before = after = tutti_codec_psi(&m, n, level);
        if (c->ops == &tutti_codec_amq) {
            double psi;
            tutti_codec_powers(n, tutti_codec_psi_multiplier(&m, n, &psi), level);
        } else
            tutti_codec_psi_minimise(&m, n, level, pinned(s), s->variant == 1);
        for (int l = 0; l < n / 2 && s->symmetric; l++) {
            /* as the minimum is, but for the sweeps' last millionth */
            level[l] = 0.5 * (level[l] - level[n - 1 - l]);
            level[n - 1 - l] = -level[l];
        }
        for (int l = 0; l < n; l++) {
            rounded[l] = (float)level[l];
            level[l] = (double)rounded[l];
        }
        if (tutti_levels_make(&made, (int)s->q.bits, rounded))
            after = fmin(tutti_codec_psi(&m, n, level), before);
        for (int l = 0; l < n; l++)
            level[l] = after < before ? level[l] : (double)s->level[l];
    }
    for (int l = 0; l < n; l++)
        s->numbers[l] = (float)level[l];
    s->numbers[n] = (float)before;
    s->numbers[n + 1] = (float)after;
    s->numbers[n + 2] = (float)seen;
}

static void alq_say(const tutti_codec *c, const tutti_codec_moment *m)
{
    enum { SHOWN = 16 };
    const alq *s = c->self;
    const int n = levels_of(s);
    char text[640], of[40] = "of normal gradients";
    size_t used;

    if (m->say == NULL)
        return;
    if (!s->prior)
        snprintf(of, sizeof of, "%.0f buckets", (double)s->numbers[n + 2]);
    used = (size_t)snprintf(text, sizeof text, "%s: step %llu: ", c->ops->name,
                            (unsigned long long)m->step);
    if (s->numbers[n + 2] < 2 && !s->prior)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "levels stay: the gradients have %.0f buckets of %lld elements "
                                 "that are not zero, and a fit takes 2; a smaller bucket gives "
                                 "more",
                                 (double)s->numbers[n + 2], (long long)s->q.bucket);
    else
        used += (size_t)snprintf(
            text + used, sizeof text - used, "psi %.6g -> %.6g, %s, levels %016llx",
            (double)s->numbers[n], (double)s->numbers[n + 1], of,
            (unsigned long long)tutti_hash(s->level, (size_t)n * sizeof *s->level));
    for (int l = 0;
         l < n && n <= SHOWN && (s->numbers[n + 2] >= 2 || s->prior) && used < sizeof text; l++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %.4g", (double)s->level[l]);
    m->say(m->with, "levels", text);
}

/* Warns if the initial levels add much to a normal gradient, relative to its square. */
static void warn(const tutti_codec *c, const tutti_codec_moment *m)
{
    const alq *s = c->self;
    tutti_codec_normal part = prior_of(s);
    tutti_codec_mixture of = { .n = 1, .of = &part };
    double level[256], factor;
    char text[400];

    if (m->say == NULL || !tutti_codec_mixture_make(&of))
        return;
    for (int l = 0; l < levels_of(s); l++)
        level[l] = (double)s->level[l];
    factor = tutti_codec_psi(&of, levels_of(s), level) / (part.deviation * part.deviation);
    if (factor <= VARIANCE_MOST)
        return;
    snprintf(text, sizeof text,
             "%s: until levels are fitted to gradients, rounding adds about %.3g times their "
             "square, and the mean of workers as many times less; use more bits or a smaller "
             "bucket than %lld%s",
             c->ops->name, factor, (long long)s->q.bucket,
             s->initial == NORMAL ? "" : ", or initial=normal");
    m->say(m->with, "codec", text);
}

static unsigned alq_traits(const tutti_codec *c)
{
    return tutti_codec_quantised_traits(c) | TUTTI_CODEC_MERGES;
}

/* The next step after this one before which the schedule has a fit; so far away that none is
   sampled for: there is none. */
static uint64_t next_fit(const alq *s, uint64_t step)
{
    const uint64_t every =
        s->every > 0 ? (step / (uint64_t)s->every + 1) * (uint64_t)s->every : NEVER;
    uint64_t next = every;

    if ((uint64_t)s->first > step && (uint64_t)s->first < next)
        next = (uint64_t)s->first;
    if ((uint64_t)s->second > step && (uint64_t)s->second < next)
        next = (uint64_t)s->second;
    return next;
}

/* Worker 0's levels, to be summed with the others' zeros. */
static size_t give_levels(tutti_codec *c)
{
    const alq *s = c->self;
    const size_t answer = (size_t)levels_of(s) + FIELDS;

    if (c->space->rank == 0)
        fit(c);
    else
        memset(s->numbers, 0, answer * sizeof *s->numbers);
    return answer;
}

/* The first round of a step: gives the sample if it is due, and begins the next one where it is
   time. */
static size_t first_round(tutti_codec *c, const tutti_codec_moment *m)
{
    alq *s = c->self;
    const bool due = s->now.collect != NEVER && s->now.fit == m->step,
               fell = s->on_lr_drop && m->lr <= 0.5 * s->now.lr && s->now.lr > 0;
    const size_t given = due ? give_sample(c) : 0;
    const uint64_t next = next_fit(s, m->step);
    make_ready(s); /* the levels may come from a checkpoint, and are good (verify) */
    s->now.lr = m->lr;
    if (due)
        s->now.collect = NEVER;
    /* after a fall of the rate only gradients from now on are like the later ones */
    if (fell || (s->now.collect == NEVER && next - m->step <= (uint64_t)s->samples)) {
        s->now.collect = m->step;
        s->now.fit = fell ? m->step + (uint64_t)s->samples : next;
        memset(s->bucket, 0, FIELDS * slots_of(c) * sizeof *s->bucket);
        if (s->seen != NULL)
            memset(s->seen, 0, slots_of(c) * sizeof *s->seen);
    }
    s->prior = m->step == 0 && s->initial == NORMAL;
    if (m->step == 0 && !s->prior)
        warn(c, m);
    return s->prior ? give_levels(c) : given;
}

static size_t alq_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    alq *s = c->self;

    *numbers = s->numbers;
    if (round == 0)
        return first_round(c, m);
    if (round == 1 && !s->prior)
        return give_levels(c);
    memcpy(s->level, s->numbers, (size_t)levels_of(s) * sizeof *s->level);
    make_ready(s);
    alq_say(c, m);
    if (s->prior)
        warn(c, m);
    return 0;
}

/* The sample was to have its gradients: the next step's are as good. */
static void left_out(tutti_codec *c, uint64_t step)
{
    alq *s = c->self;

    (void)step;
    if (s->now.collect != NEVER)
        s->now.fit++;
}

const tutti_codec_ops tutti_codec_alq = {
    .name = "alq",
    .paper = "Faghri et al., NeurIPS 2020 (ALQ)",
    .help = "levels fitted to the gradients now and then, rounded at random: unbiased",
    .options = alq_options,
    .self_bytes = sizeof(alq),
    .traits = alq_traits,
    .check = alq_check,
    .declare = declare,
    .open = open,
    .verify = verify,
    .begin = alq_begin,
    .left_out = left_out,
    .bound = tutti_codec_quantised_bound,
    .scratch = tutti_codec_quantised_scratch,
    .encode = alq_encode,
    .decode_add = tutti_codec_quantised_decode_add,
    .report = tutti_codec_quantised_report,
};
const tutti_codec_ops tutti_codec_amq = {
    .name = "amq",
    .paper = "Faghri et al., NeurIPS 2020 (AMQ)",
    .help = "levels at powers of a multiplier that is fitted now and then: unbiased",
    .options = amq_options,
    .self_bytes = sizeof(alq),
    .traits = alq_traits,
    .check = alq_check,
    .declare = declare,
    .open = open,
    .verify = verify,
    .begin = alq_begin,
    .left_out = left_out,
    .bound = tutti_codec_quantised_bound,
    .scratch = tutti_codec_quantised_scratch,
    .encode = alq_encode,
    .decode_add = tutti_codec_quantised_decode_add,
    .report = tutti_codec_quantised_report,
};
