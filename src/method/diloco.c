/* diloco: workers step alone; an outer optimiser moves the common model by the mean of how far they
   have moved. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
   Models", 2023, arXiv 2311.08105. In parts and with overlap: Douillard et al., "Streaming DiLoCo
   with Overlapping Communication", 2025, arXiv 2501.18512. With overlap of whole rounds: Kale,
   Douillard, Donchev, "Eager Updates For Overlapped Communication and Computation in DiLoCo", 2025,
   arXiv 2502.12996.

   theta, v: the common model and the outer momentum, the same bits on all workers; x_k: the model
   of worker k; P = fragments, h = period / P; fragment p of round k is p = k mod P
     every step              x_k <- inner_step(x_k, g_k)          its state stays local
     step (k + 1) h - delay  Delta = (1/K) sum_k (theta_p - x_k,p)  is sent off
     step (k + 1) h          theta_p, v_p <- Outer(theta_p, v_p, Delta)
                             x_k,p <- mix x_k,p + (1 - mix) theta_p   of now: steps meanwhile count
   With one fragment and delay and mix 0 it is local-sgd with that outer optimiser, to the bit.

   With overlap an exchange has a whole round. D_k(t): how far worker k has moved in round t of the
   fragment; Delta(t): the mean of these; both are 0 for t = -1
     delayed, step (k + 1) h   theta_p, v_p <- Outer(theta_p, v_p, Delta(t - 1));  x_k,p <- theta_p
     eager                     the same with (D_k(t) + (K Delta(t - 1) - D_k(t - 1))) / K: its own
                               part is of now, the others' of the round before. So theta and v are
                               each worker's own
     both                      D_k(t) is sent off

   Choices where the papers and published code (torchft, MaxText) leave one:
   1. The exchange begins `delay` steps before the end of the round, as in torchft. MaxText begins
      it at the end and applies it `delay` steps later.
   2. `period` must be a multiple of `fragments`. MaxText rounds it.
   3. A fragment is some of the model's units (layers; PyTorch's parameters), whole. sequential:
      consecutive ones, so that the largest fragment is as small as it can be. strided: unit u is in
      fragment u mod P.
   4. A fragment's outer optimiser counts that fragment's updates.
   5. outer=none is the mean of the models, without an outer step.
   6. A codec has displacements to encode, as under local-sgd; its residual is one of tensors, so
      each fragment has its own part of it. The paper's 4-bit floats are the codec e3m0.
   7. weights=samples: Delta = sum_k (n_k / n) (theta_p - x_k,p), n_k the samples that worker k has
      trained on since this fragment was last sent off, n their sum. So each sample counts once.
   8. overlap=delayed: the first round makes no outer step, since nothing has arrived.
   9. overlap=eager: with a codec D_k(t) and D_k(t - 1) of the formula are as they were, and
      Delta(t - 1) is as decoded.
   10. The agreed model is the mean of the workers' models, theta where these are all equal. An
      exchange under way is not in it.
   11. With logical shares a step of the run is a round, as under local-sgd: of the whole model, so
      with one fragment and without delay, mix and overlap. Shares count by their samples. */
#include <math.h>

#include "periodic.h"
#include "tutti/method/steps.h"
#include "engine/modes/displacement.h"

typedef struct diloco {
    periodic local;
    int64_t fragments, delay;
    double mix;
    int order, weights, overlap;
    tutti_displacement *exchange;
    float *mean;                 /* [n]: what is exchanged, and then its mean; NULL: in x */
    tutti_range *tensors;        /* [n_tensors]: ranges of tensors, those of a fragment together */
    float *own;                  /* [n], with overlap=eager: D_k(t - 1); NULL: not needed */
    int64_t *samples;            /* [fragments], with weights=samples: this worker's since each was
                                    last sent off; NULL: they are not counted */
    /* [fragments + 1]: fragment p has the ranges first[p] .. first[p + 1] */
    int *first;
} diloco;
enum { SEQUENTIAL, STRIDED };
enum { UNIFORM, SAMPLES };
enum { NONE, EAGER, DELAYED };

static const tutti_option diloco_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(diloco, local.period), 64, 1, 1e9, NULL,
      "H: steps between two exchanges of the same parameters" },
    PERIODIC_OPTION_WARMUP,
    PERIODIC_OPTION_OUTER("sgd(lr=0.7,momentum=0.9,nesterov=true)"),
    { "fragments", TUTTI_INT, TUTTI_AT(diloco, fragments), 1, 1, 1e6, NULL,
      "P: parts of the model, exchanged in turn, one every period / P steps" },
    { "order", TUTTI_CHOICE, TUTTI_AT(diloco, order), SEQUENTIAL, 0, 1, "sequential|strided",
      "a fragment is consecutive layers, about equally large; or every P-th layer", "fragments>1" },
    { "delay", TUTTI_INT, TUTTI_AT(diloco, delay), 0, 0, 1e6, NULL,
      "steps that are computed while a fragment is exchanged; less than period / fragments",
      "overlap=none" },
    { "mix", TUTTI_REAL, TUTTI_AT(diloco, mix), 0, 0, 1, NULL,
      "share of a worker's own values that stays when a fragment has arrived; 0: the common ones "
      "replace them",
      "overlap=none" },
    { "overlap", TUTTI_CHOICE, TUTTI_AT(diloco, overlap), NONE, 0, 2, "none|eager|delayed",
      "whole rounds during an exchange: delayed: the outer step takes the mean of the round before; "
      "eager: of the others' displacements, with this worker's of now" },
    { "weights", TUTTI_CHOICE, TUTTI_AT(diloco, weights), UNIFORM, 0, 1, "uniform|samples",
      "what a worker's displacement counts: all the same, or by the samples that it has trained on "
      "since the last exchange",
      "overlap=none|delayed" },
    { 0 }
};

/* Steps between two exchanges. */
static uint64_t spacing(const diloco *s)
{
    return (uint64_t)(s->local.period / s->fragments);
}

/* ---- fragments: which tensors are exchanged together ---- */

/* How many runs of consecutive units it takes so that none has more than `most` elements. */
static int runs_needed(const size_t *size, int units, size_t most)
{
    size_t sum = 0;
    int runs = 1;

    for (int u = 0; u < units; u++) {
        const bool fits = sum + size[u] <= most;
        runs += !fits;
        sum = fits ? sum + size[u] : size[u];
    }
    return runs;
}

/* part[u] := the run of unit u: `parts` runs of consecutive units, none of them empty, the largest
   as small as possible. */
static void cut_evenly(const size_t *size, int units, int parts, int *part)
{
    size_t low = 0, high = 0, sum = 0;
    int p = 0;

    for (int u = 0; u < units; u++) {
        low = size[u] > low ? size[u] : low;
        high += size[u];
    }
    while (low < high) {
        const size_t half = low + (high - low) / 2;
        if (runs_needed(size, units, half) <= parts)
            high = half;
        else
            low = half + 1;
    }
    for (int u = 0; u < units; u++) {
        if (u > 0 && (sum + size[u] > low || units - u == parts - 1 - p)) {
            p++;
            sum = 0;
        }
        sum += size[u];
        part[u] = p;
    }
}

/* size[u] := elements of the u-th unit that has any; unit_of[t]: that unit of tensor t. Returns the
   number of such units. A client that has put all in one unit, as PyTorch's, knows of no layers:
   there each tensor is one, the first layer's, which is the last in the layout, being the first. */
static int count_units(const tutti_layout *l, size_t *size, int *unit_of)
{
    int units = 0;

    for (int t = 0; t < l->n_tensors && l->n_units == 1; t++) {
        unit_of[t] = l->n_tensors - 1 - t;
        size[unit_of[t]] = l->tensor[t].count;
    }
    if (l->n_units == 1)
        return l->n_tensors;
    for (int unit = 0; unit < l->n_units; unit++) {
        bool any = false;
        for (int t = 0; t < l->n_tensors; t++)
            if (l->tensor[t].unit == unit) {
                any = true;
                size[units] += l->tensor[t].count;
                unit_of[t] = units;
            }
        units += any;
    }
    return units;
}

/* Lists the tensors of each fragment, adjacent ones as one range. */
static void list_fragments(diloco *s, const tutti_layout *l, const int *unit_of, const int *part)
{
    int n = 0;

    for (int p = 0; p < (int)s->fragments; p++) {
        s->first[p] = n;
        for (int t = 0; t < l->n_tensors; t++) {
            if (part[unit_of[t]] != p)
                continue;
            if (n > s->first[p] && s->tensors[n - 1].first + s->tensors[n - 1].count == (size_t)t)
                s->tensors[n - 1].count++;
            else
                s->tensors[n++] = (tutti_range){ (size_t)t, 1 };
        }
    }
    s->first[s->fragments] = n;
}

static tutti_status refuse_fragments(const diloco *s, int units, tutti_error *err)
{
    const long long period = s->local.period, parts = s->fragments, more = period % parts;

    if (parts > units)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'diloco': fragments is %lld, but a fragment is one or more of the model's "
            "layers with parameters (under PyTorch: of its parameters), which are %d; give at most "
            "that",
            parts, units);
    if (parts > period)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'diloco': fragments is %lld, but in %lld steps (period) at most "
                          "as many fragments can be exchanged, one a step; give fewer fragments, "
                          "or a longer period",
                          parts, period);
    if (more != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'diloco': period is %lld, no multiple of fragments, %lld, so "
                          "exchanges could not be equally far apart; give period=%lld or %lld",
                          period, parts, period - more, period - more + parts);
    if (s->delay >= (int64_t)spacing(s))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'diloco': delay is %lld, but the next exchange begins %lld steps (period / "
            "fragments) after the last; give a delay below that, a longer period, or fewer "
            "fragments",
            (long long)s->delay, (long long)spacing(s));
    return TUTTI_OK;
}

static tutti_status make_fragments(diloco *s, const tutti_layout *l, size_t *size, int *unit_of,
                                   tutti_error *err)
{
    const int units = count_units(l, size, unit_of);
    int *part;

    TUTTI_TRY(refuse_fragments(s, units, err));
    part = tutti_alloc((size_t)units, sizeof *part);
    s->tensors = tutti_alloc((size_t)l->n_tensors, sizeof *s->tensors);
    s->first = tutti_alloc((size_t)s->fragments + 1, sizeof *s->first);
    if (part == NULL || s->tensors == NULL || s->first == NULL) {
        tutti_free(part);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %lld fragments",
                          (long long)s->fragments);
    }
    if (s->order == SEQUENTIAL)
        cut_evenly(size, units, (int)s->fragments, part);
    for (int u = 0; u < units && s->order == STRIDED; u++)
        part[u] = u % (int)s->fragments;
    list_fragments(s, l, unit_of, part);
    tutti_free(part);
    return TUTTI_OK;
}

static tutti_status declare_fragments(diloco *s, const tutti_layout *l, tutti_error *err)
{
    /* no unit counts without a tensor */
    size_t *size = tutti_alloc((size_t)l->n_tensors, sizeof *size);
    int *unit_of = tutti_alloc((size_t)l->n_tensors, sizeof *unit_of);
    tutti_status status;

    if (size == NULL || unit_of == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %lld fragments",
                            (long long)s->fragments);
    else
        status = make_fragments(s, l, size, unit_of, err);
    tutti_free(size);
    tutti_free(unit_of);
    return status;
}

/* The elements of a range of tensors. The last of the model includes the padding, which stays 0. */
static tutti_range elements(const tutti_method *m, const tutti_range *tensors)
{
    const tutti_layout *l = m->layout;
    const size_t end = tensors->first + tensors->count, first = l->tensor[tensors->first].first,
                 last = end == (size_t)l->n_tensors ? m->n : l->tensor[end].first;

    return (tutti_range){ first, last - first };
}

/* ---- opening ---- */

/* With logical shares. */
static tutti_status declare_rounds(diloco *s, tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    if (s->fragments > 1 || s->delay > 0 || s->mix > 0 || s->overlap != NONE)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'diloco' exchanges parts of the model, or during other steps "
                          "(fragments, delay, mix, overlap), but with logical shares "
                          "(elastic-shares, workers) each step is a round at whose end all of it is "
                          "exchanged; omit those options, or these");
    return periodic_declare(m, plan, "diloco.theta", "diloco.outer", false, err);
}

static tutti_status diloco_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    diloco *s = m->self;
    const int64_t delay = s->overlap != NONE ? (int64_t)spacing(s) : s->delay;
    tutti_status status;

    TUTTI_TRY(periodic_rounds_declare(m, plan, err));
    if (s->local.rounds != NULL)
        return declare_rounds(s, m, plan, err);
    TUTTI_TRY(declare_fragments(s, m->layout, err));
    TUTTI_TRY(tutti_displacement_declare(&s->exchange, m, delay, err));
    if (delay > 0 || s->mix > 0) /* a delayed mean outlives its step */
        tutti_declare_vector(plan, "diloco.mean", delay > 0 ? TUTTI_SAME : TUTTI_SCRATCH, &s->mean);
    if (s->overlap == EAGER)
        tutti_declare_vector(plan, "diloco.own", TUTTI_OWN_MEAN, &s->own);
    if (s->weights == SAMPLES)
        tutti_declare(plan,
                      &(tutti_state){ .name = "diloco.samples",
                                      .keep = TUTTI_OWN_ZERO,
                                      .dtype = TUTTI_I64,
                                      .count = (size_t)s->fragments },
                      &s->samples);
    s->local.keep = s->overlap == EAGER ? TUTTI_OWN_MEAN : TUTTI_SAME;
    status = periodic_declare(m, plan, "diloco.theta", "diloco.outer", s->overlap != NONE, err);
    s->local.displaced = s->local.displaced || s->overlap != NONE;
    return status;
}

static tutti_status diloco_open(tutti_method *m, tutti_error *err)
{
    const diloco *s = m->self;
    size_t largest = 0;

    if (s->local.rounds != NULL)
        return periodic_open(m, err);
    for (int p = 0; p < (int)s->fragments; p++) {
        size_t count = 0;
        for (int r = s->first[p]; r < s->first[p + 1]; r++)
            for (size_t t = 0; t < s->tensors[r].count; t++)
                count += m->layout->tensor[s->tensors[r].first + t].count;
        largest = count > largest ? count : largest;
    }
    if (m->rank == 0) {
        tutti_metric(m, "fragment_bytes", -1, (double)largest * sizeof(float));
        if (s->mix == 1 && m->workers > 1)
            tutti_event(
                m, "mix",
                "mix is 1: the common model is computed, and no worker takes anything from it");
    }
    return periodic_open(m, err);
}

static void diloco_close(tutti_method *m)
{
    diloco *s = m->self;

    periodic_close(m);
    if (s == NULL)
        return;
    tutti_free(s->tensors);
    tutti_free(s->first);
}

/* ---- a step ---- */

static float *exchanged(const tutti_method *m)
{
    const diloco *s = m->self;

    return s->mean != NULL ? s->mean : m->x;
}

/* Sends off what `exchanged` has of fragment p. */
static void send_off(const tutti_method *m, int p)
{
    const diloco *s = m->self;
    int64_t weight = TUTTI_DISPLACEMENT_EQUAL;

    if (s->samples != NULL) {
        weight = s->samples[p];
        s->samples[p] = 0;
    }
    tutti_displacement_start(s->exchange, exchanged(m), s->tensors + s->first[p],
                             s->first[p + 1] - s->first[p], weight);
}

/* Round k: how far its fragment has moved, or without an outer optimiser and a codec the model
   itself, is sent off. */
static tutti_status begin_round(tutti_method *m, uint64_t k, tutti_error *err)
{
    const diloco *s = m->self;
    const int p = (int)(k % (uint64_t)s->fragments);

    TUTTI_TRY(tutti_values_get(m, err));
    for (int r = s->first[p]; r < s->first[p + 1]; r++) {
        const tutti_range part = elements(m, &s->tensors[r]);
        if (s->local.displaced)
            periodic_displace(m, part.first, part.count, exchanged(m));
        else if (s->mean != NULL)
            tutti_copy(m->device, part.count, m->x + part.first, s->mean + part.first);
    }
    send_off(m, p);
    return TUTTI_OK;
}

/* x := what the worker keeps of its own values, and the rest of the common ones. */
static void take(const tutti_method *m, tutti_range part)
{
    const diloco *s = m->self;
    const float *common = (s->local.displaced ? s->local.theta : exchanged(m)) + part.first;
    float *x = m->x + part.first;

    if (s->mix > 0 && s->mix < 1)
        tutti_lerp(m->device, part.count, (float)s->mix, common, x);
    else if (s->mix == 0 && common != x)
        tutti_copy(m->device, part.count, common, x);
}

/* Round k: the mean has arrived. */
static tutti_status end_round(tutti_method *m, uint64_t k, tutti_error *err)
{
    const diloco *s = m->self;
    const int p = (int)(k % (uint64_t)s->fragments);
    double moved = 0;

    TUTTI_TRY(tutti_displacement_wait(s->exchange, err));
    if (s->fragments > 1 || s->mix > 0) /* else all of x is replaced */
        TUTTI_TRY(tutti_values_get(m, err));
    for (int r = s->first[p]; r < s->first[p + 1]; r++) {
        const tutti_range part = elements(m, &s->tensors[r]);
        if (s->local.displaced) {
            if (m->rank == 0)
                moved += tutti_norm2(m->device, part.count, exchanged(m) + part.first);
            periodic_update(m, part.first, part.count, exchanged(m),
                            k / (uint64_t)s->fragments + 1);
        }
        take(m, part);
    }
    if (s->mix < 1)
        tutti_values_set(m);
    if (s->local.displaced && m->rank == 0)
        tutti_metric(m, "displacement", -1, sqrt(moved));
    return TUTTI_OK;
}

/* delta, of a fragment, := what the outer optimiser takes under overlap=eager; x has D_k(t). */
static void join_own(const tutti_method *m, tutti_range part, float *delta)
{
    const diloco *s = m->self;
    tutti_device *d = m->device;
    float *own = s->own + part.first;

    delta += part.first;
    tutti_scale(d, part.count, (float)m->workers, delta);
    tutti_axpy(d, part.count, -1, own, delta);
    tutti_add(d, part.count, m->x + part.first, delta);
    tutti_scale(d, part.count, (float)(1.0 / m->workers), delta);
    tutti_copy(d, part.count, m->x + part.first, own);
}

/* With logical shares. */
static tutti_status step_of_shares(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    TUTTI_TRY(periodic_end_round(m, err));
    if (s->update != NULL && m->rank == 0)
        tutti_metric(m, "displacement", -1, sqrt(tutti_norm2(m->device, m->n, m->g)));
    return TUTTI_OK;
}

/* With overlap: the end of round k. */
static tutti_status overlap_round(tutti_method *m, uint64_t k, tutti_error *err)
{
    const diloco *s = m->self;
    const int p = (int)(k % (uint64_t)s->fragments);
    const uint64_t before = k / (uint64_t)s->fragments; /* rounds of this fragment */
    double moved = 0;

    TUTTI_TRY(tutti_displacement_wait(s->exchange, err));
    TUTTI_TRY(tutti_values_get(m, err));
    for (int r = s->first[p]; r < s->first[p + 1]; r++) {
        const tutti_range part = elements(m, &s->tensors[r]);
        float *x = m->x + part.first, *mean = s->mean + part.first;
        periodic_displace(m, part.first, part.count, m->x);
        if (s->overlap == EAGER)
            join_own(m, part, s->mean);
        if (m->rank == 0)
            moved += tutti_norm2(m->device, part.count, mean);
        if (s->overlap == EAGER || before > 0)
            periodic_update(m, part.first, part.count, s->mean,
                            before + (s->overlap == EAGER ? 1 : 0));
        tutti_copy(m->device, part.count, x, mean);
        tutti_copy(m->device, part.count, s->local.theta + part.first, x);
    }
    tutti_values_set(m);
    if (m->rank == 0)
        tutti_metric(m, "displacement", -1, sqrt(moved));
    send_off(m, p);
    return TUTTI_OK;
}

static tutti_status diloco_step(tutti_method *m, tutti_error *err)
{
    const diloco *s = m->self;
    const uint64_t done = m->step + 1 - (uint64_t)s->local.warmup, every = spacing(s),
                   ahead = (uint64_t)s->delay;

    if (s->local.rounds != NULL)
        return step_of_shares(m, err);
    TUTTI_TRY(tutti_base_step(m, err));
    if (periodic_warms_up(m))
        return periodic_follow(m, err);
    for (int p = 0; s->samples != NULL && p < (int)s->fragments; p++)
        s->samples[p] += m->samples;
    if (s->overlap != NONE)
        return done % every == 0 ? overlap_round(m, done / every - 1, err) : TUTTI_OK;
    if ((done + ahead) % every == 0)
        TUTTI_TRY(begin_round(m, (done + ahead) / every - 1, err));
    return done % every == 0 ? end_round(m, done / every - 1, err) : TUTTI_OK;
}

/* The hook settles: with overlap a first round waits for nothing. */
static uint64_t diloco_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const diloco *s = self;

    return periodic_settles(self, steps, epoch) +
           (s->overlap != NONE ? (uint64_t)s->local.period : 0);
}

static tutti_status diloco_final_model(tutti_method *m, tutti_error *err)
{
    const diloco *s = m->self;

    if (s->fragments == 1 && s->mix == 0 && s->overlap != EAGER)
        return periodic_final_model(m, err);
    return m->workers > 1 && m->step > (uint64_t)s->local.warmup ? tutti_average(m, m->x, err)
                                                                 : TUTTI_OK;
}

static const char *const diloco_constraints[] = {
    "period is a multiple of fragments, and delay is less than period / fragments",
    "the mean is over workers: with unequal shares of the samples take weights=samples",
    "a lost worker ends the run (exit code 3) when an exchange needs it",
    "a displacement that the codec has no number for (fp16: beyond 65504) ends the run before it "
    "is sent",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    "elastic-shares: a step is a round of period local steps of each share, and optimiser state "
    "begins at 0 in each; any number of workers, who may come and go; not with warmup, fragments, "
    "delay, mix and overlap",
    NULL
};

const tutti_method_ops tutti_method_diloco = {
    .name = "diloco",
    .title = "DiLoCo, streaming DiLoCo",
    .authors = "Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam, Shen",
    .year = 2023,
    .family = "periodic",
    .traits = TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS,
    .axes = { "all-reduce", "a fragment every period / fragments steps", "fp32 or any", "overlap",
              "a model each", "any, and an outer one" },
    .constraints = diloco_constraints,
    .options = diloco_options,
    .settles = diloco_settles,
    .repeats = periodic_repeats,
    .self_bytes = sizeof(diloco),
    .declare = diloco_declare,
    .open = diloco_open,
    .close = diloco_close,
    .pass = periodic_pass,
    .exchange = periodic_exchange,
    .step = diloco_step,
    .final_model = diloco_final_model,
};
