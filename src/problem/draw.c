/* draw.c: the samples of a problem (problem.h), all from the counter-based generator. Element j of
   vector i (a sample, a class's centre, ...) is the draw with the stream of that kind of vector,
   step i and index j. So any sample is computed in O(dim) without those before it, and a larger
   set begins with the smaller one.

   quadratic: the common centre moves between the points FROM and TO. Without `simplex` both are
   N(0, I); with it both are uniform on the simplex (dim exponentials divided by their sum). The
   centre of class k is at skew (u_k - mean u) from the common centre, u_k ~ N(0, I), so the mean of
   the classes' centres is the common centre. Since samples come in pairs +e, -e, it is the mean of
   the samples, too: a method's error can be distinguished from the noise of a finite set. */
#include "problem/problem.h"
#include <math.h>

/* streams of the generator, distinct from those of runs */
enum {
    FROM = 0x70726f62,
    TO,
    CLASSES,
    NOISE,
    NOISE_TEST,
    TEACHER,
    FEATURES,
    FEATURES_TEST,
    LABELS,
    LABELS_TEST
};

static tutti_rng rng_of(const tutti_problem *p, uint64_t stream, uint64_t thing)
{
    return (tutti_rng){ .seed = (uint64_t)p->seed, .stream = stream, .step = thing };
}

void tutti_problem_spectrum(int64_t dim, double condition, double *value)
{
    for (int64_t j = 0; j < dim; j++)
        value[j] = dim > 1 ? pow(condition, -(double)j / (double)(dim - 1)) : 1;
}

static void draw_point(const tutti_problem *p, uint64_t stream, double *at)
{
    const tutti_rng rng = rng_of(p, stream, 0);
    double sum = 0;

    for (int64_t j = 0; j < p->dim; j++)
        sum += at[j] =
            p->simplex ? -log(1 - tutti_uniform(rng, (uint64_t)j)) : tutti_normal(rng, (uint64_t)j);
    for (int64_t j = 0; j < p->dim && p->simplex; j++)
        at[j] = sum > 0 ? at[j] / sum : 1 / (double)p->dim;
}

tutti_status tutti_problem_path(const tutti_problem *p, double *from, double *direction,
                                tutti_error *err)
{
    if (p->kind != TUTTI_PROBLEM_QUADRATIC)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "only the problem quadratic has a path");
    draw_point(p, FROM, from);
    draw_point(p, TO, direction);
    for (int64_t j = 0; j < p->dim; j++)
        direction[j] -= from[j];
    return TUTTI_OK;
}

double tutti_problem_position(const tutti_problem *p, const double *direction, uint64_t step)
{
    double length = 0, turns;

    if (p->drift <= 0)
        return 0;
    for (int64_t j = 0; j < p->dim; j++)
        length += direction[j] * direction[j];
    turns = fmod(p->drift * (double)step / 1000 / sqrt(length), 2);
    return turns <= 1 ? turns : 2 - turns;
}

static void draw_quadratic(const tutti_problem *p, int split, const double *from,
                           const double *shift, float *x, uint8_t *labels)
{
    const uint64_t n = tutti_problem_samples(p, split);

    for (uint64_t i = 0; i < n; i++) {
        const uint64_t pair = i / 2, class = pair % (uint64_t)p->classes;
        const tutti_rng rng = rng_of(p, split == 0 ? NOISE : NOISE_TEST, pair);
        const double sign = i % 2 == 0 ? p->noise : -p->noise;
        const double *to = shift + class * (uint64_t)p->dim;
        labels[i] = (uint8_t)class;
        for (int64_t j = 0; j < p->dim; j++)
            x[i * (uint64_t)p->dim + (uint64_t)j] =
                (float)(from[j] + to[j] +
                        (p->noise > 0 ? sign * tutti_normal(rng, (uint64_t)j) : 0));
    }
}

/* Sets shift[classes][dim] to the classes' centres relative to the common centre. */
static void draw_classes(const tutti_problem *p, double *shift)
{
    for (int64_t j = 0; j < p->dim; j++) {
        double mean = 0;
        for (int64_t k = 0; k < p->classes; k++)
            mean += shift[k * p->dim + j] =
                p->skew > 0 ? tutti_normal(rng_of(p, CLASSES, (uint64_t)k), (uint64_t)j) : 0;
        mean /= (double)p->classes;
        for (int64_t k = 0; k < p->classes; k++)
            shift[k * p->dim + j] = p->skew * (shift[k * p->dim + j] - mean);
    }
}

static uint8_t label_of(const tutti_problem *p, const double *teacher, const float *x,
                        tutti_rng rng)
{
    int64_t best = 0;
    double most = 0;

    for (int64_t k = 0; k < p->classes; k++) {
        double y = 0;
        for (int64_t j = 0; j < p->dim; j++)
            y += teacher[k * p->dim + j] * (double)x[j];
        if (k == 0 || y > most)
            most = y, best = k;
    }
    if (tutti_uniform(rng, 0) < p->noise) /* one of the others, equally likely */
        best =
            (best + 1 + (int64_t)(tutti_random(rng, 1) % (uint64_t)(p->classes - 1))) % p->classes;
    return (uint8_t)best;
}

static void draw_logistic(const tutti_problem *p, int split, const double *deviation,
                          const double *teacher, float *x, uint8_t *labels)
{
    const uint64_t n = tutti_problem_samples(p, split);

    for (uint64_t i = 0; i < n; i++) {
        const tutti_rng rng = rng_of(p, split == 0 ? FEATURES : FEATURES_TEST, i);
        float *at = x + i * (uint64_t)p->dim;
        for (int64_t j = 0; j < p->dim; j++)
            at[j] = (float)(deviation[j] * tutti_normal(rng, (uint64_t)j));
        labels[i] = label_of(p, teacher, at, rng_of(p, split == 0 ? LABELS : LABELS_TEST, i));
    }
}

tutti_status tutti_problem_draw(const tutti_problem *p, int split, float *x, uint8_t *labels,
                                tutti_error *err)
{
    /* both bounded by their options */
    const size_t dim = (size_t)p->dim, classes = (size_t)p->classes;
    double *a = tutti_alloc((classes + 2) * dim, sizeof *a), *b = a + dim, *c = b + dim;

    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory to draw the samples of a problem of dim %zu", dim);
    if (p->kind == TUTTI_PROBLEM_QUADRATIC) {
        draw_point(p, FROM, a);
        draw_classes(p, c);
        draw_quadratic(p, split, a, c, x, labels);
    } else {
        tutti_problem_spectrum(p->dim, p->condition, a);
        for (size_t j = 0; j < dim; j++)
            a[j] = sqrt(a[j]);
        for (size_t k = 0; k < classes; k++)
            for (size_t j = 0; j < dim; j++)
                c[k * dim + j] = tutti_normal(rng_of(p, TEACHER, k), j);
        draw_logistic(p, split, a, c, x, labels);
    }
    tutti_free(a);
    return TUTTI_OK;
}
