/* policy.c: the LSTM that chooses types layer by layer (Hochreiter, Schmidhuber 1997), in doubles,
   and the gradient of a plan's log-probability. Layers of a network are its steps:

     x    one-hot index of the layer, one-hot kind, bytes that enter, bytes of values, seconds of
          communication (each of the largest), one-hot type of the layer before
     z    W x + U h + b, for the gates input, forget, candidate, output
     c    sigmoid(z_f) c + sigmoid(z_i) tanh(z_g);   h = sigmoid(z_o) tanh(c)
     P    softmax(V h + a)

   W and U are stored by columns, so a one-hot input adds one column. The LSTM of src/nn is not
   used: it takes rows of float32, and cannot draw step by step. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"

enum { FEATURES = 3 };

/* Returns the activations of layer l, 7h values: gates after their functions (4h), c, tanh c, h.
   After those of all layers `steps` has 6h values of scratch for tutti_placement_policy_back. */
static double *step_of(const placement_policy *a, int l)
{
    return a->steps + (size_t)l * 7 * (size_t)a->hidden;
}

typedef struct weights { double *w, *u, *b, *v, *a; } weights;

static weights weights_of(const placement_policy *a, double *theta)
{
    const size_t h = (size_t)a->hidden;
    weights m = { .w = theta };

    m.u = m.w + (size_t)a->inputs * 4 * h;
    m.b = m.u + h * 4 * h;
    m.v = m.b + 4 * h;
    m.a = m.v + (size_t)a->types * h;
    return m;
}

/* Writes the inputs of layer l that are not 0, at most 6, and returns their number. before: the
   type of the layer before; -1: there is none. */
static int inputs_of(const placement_policy *a, int l, int before, int *index, double *value)
{
    const int kinds = a->layers, features = kinds + a->kinds, types = features + FEATURES;
    int n = 0;

    index[n] = l, value[n++] = 1;
    index[n] = kinds + a->kind[l], value[n++] = 1;
    for (int f = 0; f < FEATURES; f++)
        index[n] = features + f, value[n++] = a->feature[l * FEATURES + f];
    if (before >= 0)
        index[n] = types + before, value[n++] = 1;
    return n;
}

static void add_scaled(size_t n, double by, const double *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += by * x[i];
}

static double dot(size_t n, const double *x, const double *y)
{
    double sum[4] = { 0 };
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum[0] += x[i] * y[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void forward(placement_policy *a, int l, int before)
{
    const size_t h = (size_t)a->hidden;
    const weights m = weights_of(a, a->theta);
    double *gate = step_of(a, l), *cell = gate + 4 * h, *bent = cell + h, *out = bent + h;
    /* c, tanh c, h of the step before */
    const double *last = l > 0 ? step_of(a, l - 1) + 4 * h : NULL;
    double value[FEATURES + 3];
    int index[FEATURES + 3];
    const int n = inputs_of(a, l, before, index, value);

    memcpy(gate, m.b, 4 * h * sizeof *gate);
    for (int i = 0; i < n; i++)
        add_scaled(4 * h, value[i], m.w + (size_t)index[i] * 4 * h, gate);
    for (size_t j = 0; l > 0 && j < h; j++)
        add_scaled(4 * h, last[2 * h + j], m.u + j * 4 * h, gate);
    for (size_t j = 0; j < h; j++) {
        gate[j] = sigmoid(gate[j]);
        gate[h + j] = sigmoid(gate[h + j]);
        gate[2 * h + j] = tanh(gate[2 * h + j]);
        gate[3 * h + j] = sigmoid(gate[3 * h + j]);
        cell[j] = (l > 0 ? gate[h + j] * last[j] : 0) + gate[j] * gate[2 * h + j];
        bent[j] = tanh(cell[j]);
        out[j] = gate[3 * h + j] * bent[j];
    }
}

/* Computes the probabilities of layer l's types. None is 0, also after rounding, so log P of every
   plan is finite. */
static void softmax(const placement_policy *a, int l, double *chance)
{
    const size_t h = (size_t)a->hidden;
    const weights m = weights_of(a, a->theta);
    double most = -INFINITY, sum = 0;

    for (int t = 0; t < a->types; t++) {
        chance[t] = m.a[t] + dot(h, m.v + (size_t)t * h, step_of(a, l) + 6 * h);
        most = fmax(most, chance[t]);
    }
    for (int t = 0; t < a->types; t++)
        sum += chance[t] = exp(chance[t] - most);
    for (int t = 0; t < a->types; t++)
        chance[t] = fmax(chance[t] / sum, DBL_MIN);
}

static int choose_type(const placement_policy *a, const double *chance, placement_choice how,
                       double drawn)
{
    int best = 0;

    if (how == PLACEMENT_DRAWN) {
        for (; best + 1 < a->types && drawn >= chance[best]; best++)
            drawn -= chance[best];
        return best;
    }
    for (int t = 1; t < a->types; t++)
        best = chance[t] > chance[best] ? t : best;
    return best;
}

double tutti_placement_policy_run(placement_policy *a, placement_choice how, tutti_rng rng, int *on)
{
    double log_chance = 0;

    for (int l = 0; l < a->layers; l++) {
        double *chance = a->chance + l * a->types;
        forward(a, l, l > 0 ? on[l - 1] : -1);
        softmax(a, l, chance);
        if (how != PLACEMENT_GIVEN)
            on[l] = choose_type(a, chance, how, tutti_uniform(rng, (uint64_t)l));
        log_chance += log(chance[on[l]]);
    }
    return log_chance;
}

void tutti_placement_policy_back(const placement_policy *a, const int *on, double weight,
                                 double *gradient)
{
    const size_t h = (size_t)a->hidden;
    const weights m = weights_of(a, a->theta), d = weights_of(a, gradient);
    double *room = a->steps + (size_t)a->layers * 7 * h, *slope = room, *slope_cell = room + h,
           *z = room + 2 * h;

    memset(slope, 0, 2 * h * sizeof *slope); /* of h and of c, from the step behind */
    for (int l = a->layers - 1; l >= 0; l--) {
        const double *gate = step_of(a, l), *bent = gate + 5 * h, *out = gate + 6 * h;
        const double *last = l > 0 ? step_of(a, l - 1) + 4 * h : NULL;
        double value[FEATURES + 3];
        int index[FEATURES + 3];
        const int n = inputs_of(a, l, l > 0 ? on[l - 1] : -1, index, value);
        for (int t = 0; t < a->types; t++) {
            const double s = weight * ((t == on[l]) - a->chance[l * a->types + t]);
            d.a[t] += s;
            add_scaled(h, s, out, d.v + (size_t)t * h);
            add_scaled(h, s, m.v + (size_t)t * h, slope);
        }
        for (size_t j = 0; j < h; j++) {
            const double in = gate[j], forget = gate[h + j], candidate = gate[2 * h + j],
                         let_out = gate[3 * h + j];
            const double cell = slope_cell[j] + slope[j] * let_out * (1 - bent[j] * bent[j]);
            z[j] = cell * candidate * in * (1 - in);
            z[h + j] = l > 0 ? cell * last[j] * forget * (1 - forget) : 0;
            z[2 * h + j] = cell * in * (1 - candidate * candidate);
            z[3 * h + j] = slope[j] * bent[j] * let_out * (1 - let_out);
            slope_cell[j] = cell * forget;
        }
        add_scaled(4 * h, 1, z, d.b);
        for (int i = 0; i < n; i++)
            add_scaled(4 * h, value[i], z, d.w + (size_t)index[i] * 4 * h);
        for (size_t j = 0; l > 0 && j < h; j++) {
            add_scaled(4 * h, last[2 * h + j], z, d.u + j * 4 * h);
            slope[j] = dot(4 * h, m.u + j * 4 * h, z);
        }
    }
}

/* ---- opening ---- */

static void read_kinds(placement_policy *a, const tutti_placement_problem *p)
{
    int first[TUTTI_PLACEMENT_LAYERS_MOST]; /* a layer of each kind */

    for (int l = 0; l < p->layers; l++) {
        int k = 0;
        while (k < a->kinds && strcmp(p->layer[first[k]].kind, p->layer[l].kind) != 0)
            k++;
        if (k == a->kinds)
            first[a->kinds++] = l;
        a->kind[l] = k;
    }
}

static void read_features(placement_policy *a, const tutti_placement_problem *p)
{
    double most[FEATURES] = { 0 };

    for (int l = 0; l < p->layers; l++) {
        double *f = a->feature + l * FEATURES;
        f[0] = p->layer[l].enters;
        f[1] = p->layer[l].values;
        for (int t = 0; t < p->types; t++)
            f[2] += p->time[l][t].communicate / p->types;
        for (int k = 0; k < FEATURES; k++)
            most[k] = fmax(most[k], f[k]);
    }
    for (int i = 0; i < p->layers * FEATURES; i++)
        a->feature[i] /= most[i % FEATURES] > 0 ? most[i % FEATURES] : 1;
}

tutti_status tutti_placement_policy_open(placement_policy *a, const tutti_placement_problem *p,
                                         int hidden, uint64_t seed, tutti_error *err)
{
    const size_t h = (size_t)hidden, layers = (size_t)p->layers, types = (size_t)p->types;

    *a = (placement_policy){ .layers = p->layers, .types = p->types, .hidden = hidden };
    read_kinds(a, p);
    a->inputs = p->layers + a->kinds + FEATURES + p->types;
    a->count = ((size_t)a->inputs + h + 1) * 4 * h + types * (h + 1);
    a->theta = tutti_alloc(a->count, sizeof *a->theta);
    a->feature = tutti_alloc(layers * FEATURES, sizeof *a->feature);
    a->steps = tutti_alloc((layers * 7 + 6) * h, sizeof *a->steps); /* slopes behind */
    a->chance = tutti_alloc(layers * types, sizeof *a->chance);
    if (a->theta == NULL || a->feature == NULL || a->steps == NULL || a->chance == NULL) {
        tutti_placement_policy_close(a);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a policy with %d hidden values",
                          hidden);
    }
    read_features(a, p);
    for (size_t i = 0; i < a->count; i++)
        a->theta[i] = (2 * tutti_uniform((tutti_rng){ seed, 0, 0 }, i) - 1) / sqrt(hidden);
    return TUTTI_OK;
}

void tutti_placement_policy_close(placement_policy *a)
{
    tutti_free(a->theta);
    tutti_free(a->feature);
    tutti_free(a->steps);
    tutti_free(a->chance);
    *a = (placement_policy){ 0 };
}
