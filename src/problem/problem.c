/* problem.c: the tables of options, and reading and printing of specs (problem.h). */
#include "problem/problem.h"
#include "base/options.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) TUTTI_AT(tutti_problem, member)
#define DIM(initial) { "dim", TUTTI_INT, AT(dim), initial, 1, 16384, NULL, "values of a sample" }
#define SAMPLES(help) { "samples", TUTTI_INT, AT(samples), 4096, 2, 1 << 24, NULL, help }
#define SEED \
    { \
        "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL, \
            "of the samples; that of the run has no part in them" \
    }

const tutti_option tutti_quadratic_options[] = {
    DIM(100),
    { "condition", TUTTI_REAL, AT(condition), 100, 1, 1e12, NULL,
      "largest curvature over the smallest; the largest is 1, so lr < 2 is stable" },
    { "noise", TUTTI_REAL, AT(noise), 0.1, 0, 1e6, NULL,
      "deviation of samples round the centre of their class, each value" },
    { "classes", TUTTI_INT, AT(classes), 8, 1, 64, NULL,
      "classes that the samples belong to, equally many to each" },
    { "skew", TUTTI_REAL, AT(skew), 0, 0, 1e6, NULL,
      "deviation of the classes' centres round the common one, each value" },
    { "simplex", TUTTI_BOOL, AT(simplex), 0, 0, 1, NULL,
      "the common centre lies on the probability simplex, and x starts at 1 / dim instead of 0" },
    { "drift", TUTTI_REAL, AT(drift), 0, 0, 1e6, NULL,
      "distance that all centres move in 1,000 steps, to and fro between two drawn points" },
    SAMPLES("training samples, a multiple of 2 x classes; an eighth as many test samples"),
    SEED,
    { 0 }
};

const tutti_option tutti_logistic_options[] = {
    DIM(20),
    { "condition", TUTTI_REAL, AT(condition), 10, 1, 1e12, NULL,
      "largest variance of a feature over the smallest; the largest is 1" },
    { "noise", TUTTI_REAL, AT(noise), 0.1, 0, 1, NULL,
      "share of the labels that are replaced by another class" },
    { "classes", TUTTI_INT, AT(classes), 2, 2, 64, NULL, "classes of the labels" },
    SAMPLES("training samples; an eighth as many test samples"),
    SEED,
    { 0 }
};

const tutti_problem_set tutti_problems[] = {
    { "quadratic", tutti_quadratic_options, TUTTI_PROBLEM_QUADRATIC },
    { "logistic", tutti_logistic_options, TUTTI_PROBLEM_LOGISTIC },
    { 0 }
};

const tutti_problem_set *tutti_problem_named(const char *text)
{
    size_t length;

    while (isspace((unsigned char)*text))
        text++;
    length = strcspn(text, "( \t\n\v\f\r");
    for (const tutti_problem_set *set = tutti_problems; set->name != NULL; set++)
        if (strlen(set->name) == length && strncmp(set->name, text, length) == 0)
            return set;
    return NULL;
}

static const tutti_problem_set *set_of(tutti_problem_kind kind)
{
    for (const tutti_problem_set *set = tutti_problems; set->name != NULL; set++)
        if (set->kind == kind)
            return set;
    return NULL;
}

static uint64_t divisor_of(const tutti_problem *p)
{
    return p->kind == TUTTI_PROBLEM_QUADRATIC ? 2 * (uint64_t)p->classes : 1;
}

/* Checks what the bounds of single options cannot express. */
static tutti_status check_shape(const tutti_problem *p, const char *what, const char *name,
                                tutti_error *err)
{
    const uint64_t divisor = divisor_of(p);

    if ((uint64_t)p->samples % divisor != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s '%s': samples is %lld; it must be a multiple of 2 x classes = %llu, "
                          "so that every class has the same number of pairs",
                          what, name, (long long)p->samples, (unsigned long long)divisor);
    if (p->skew > 0 && p->classes < 2)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s '%s': skew is %g, but there is one class; it takes classes of 2 or more", what,
            name, p->skew);
    if (p->drift > 0 && p->dim < 2 && p->simplex)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s '%s': drift is %g, but the simplex of dim 1 is one point; it takes a "
                          "dim of 2 or more",
                          what, name, p->drift);
    if (p->samples > ((int64_t)1 << 31) / p->dim)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s '%s': %lld samples of %lld values are more than the 2^31 values "
                          "possible; use fewer of either",
                          what, name, (long long)p->samples, (long long)p->dim);
    return TUTTI_OK;
}

tutti_status tutti_problem_read(tutti_problem *p, const char *text, const char *what, bool *bare,
                                tutti_error *err)
{
    const tutti_problem_set *set = tutti_problem_named(text);
    tutti_spec *spec;
    tutti_status status;
    char who[64];

    *p = (tutti_problem){ 0 };
    if (bare != NULL)
        *bare = false;
    if (set == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s '%.60s' is no synthetic problem", what,
                          text);
    status = tutti_spec_open(&spec, text, err);
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status, "%s '%.60s'", what, text);
    snprintf(who, sizeof who, "%s '%s'", what, set->name);
    status = tutti_spec_apply(spec, who, set->options, p, err);
    p->kind = set->kind;
    if (status == TUTTI_OK)
        status = check_shape(p, what, set->name, err);
    if (status != TUTTI_OK)
        *p = (tutti_problem){ 0 };
    else if (bare != NULL)
        *bare = tutti_spec_count(spec) == 0;
    tutti_spec_close(spec);
    return status;
}

int tutti_problem_print(const tutti_problem *p, char *out, size_t bytes)
{
    const tutti_problem_set *set = set_of(p->kind);

    if (set == NULL) {
        if (bytes > 0)
            out[0] = '\0';
        return 0;
    }
    return tutti_spec_print(set->name, set->options, p, out, bytes);
}

tutti_status tutti_problem_same(const tutti_problem *model, const tutti_problem *data,
                                tutti_error *err)
{
    if (model->kind != data->kind)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the model is %s and the data are %s; name one of them and leave the other out",
            set_of(model->kind)->name, set_of(data->kind)->name);
    for (const tutti_option *o = set_of(model->kind)->options; o->name != NULL; o++) {
        char a[40], b[40];
        tutti_option_print(o, model, a, sizeof a);
        tutti_option_print(o, data, b, sizeof b);
        if (strcmp(a, b) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "model and data are two different problems: %s is %s in the model "
                              "and %s in the data; give the options once, or the same ones twice",
                              o->name, a, b);
    }
    return TUTTI_OK;
}

uint64_t tutti_problem_samples(const tutti_problem *p, int split)
{
    const uint64_t divisor = divisor_of(p), eighth = ((uint64_t)p->samples + 7) / 8;

    return split == 0 ? (uint64_t)p->samples : (eighth + divisor - 1) / divisor * divisor;
}
