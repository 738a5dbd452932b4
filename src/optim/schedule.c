/* schedule.c: the learning rate over the run, as a factor on the base rate and a pure function of
   the step. So a resumed run and every replica find it without state or message. It uses no pow()
   and no cos() of the C library, which has variants for different processors that differ in the
   last bit: sums, products and quotients only, the same bits everywhere.

   With W steps of warm-up (Goyal et al., arXiv 1706.02677: gradual warm-up) and S steps in all, for
   step t from 0:
       t < W         (t + 1) / W: the first step moves already, the last of the warm-up has the
                     whole rate
       t >= W        the shape at (t - W) of S - W steps; from t = S on its last value. S unknown:
                     the shape at t - W, which cosine and linear do not have
   cosine is Loshchilov and Hutter, ICLR 2017 (SGDR), eq. (5), without restarts. */
#include "optim_internal.h"
#include "optim/schedule.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct schedule_options {
    int64_t warmup, every;
    double gamma, floor;
} schedule_options;

struct tutti_lr_schedule {
    const struct tutti_lr_schedule_ops *ops;
    uint64_t steps;
    schedule_options options;
};

#define STEPS_MAX 9007199254740992.0 /* 2^53: options pass through double */
#define WARMUP \
    { \
        "warmup", TUTTI_INT, TUTTI_AT(schedule_options, warmup), 0, 0, STEPS_MAX, NULL, \
            "steps over which the rate rises from 0" \
    }
#define FLOOR \
    { \
        "floor", TUTTI_REAL, TUTTI_AT(schedule_options, floor), 0, 0, 1, NULL, \
            "factor at the end of the run" \
    }

static const tutti_option constant_options[] = { WARMUP, { 0 } };
static const tutti_option decay_options[] = { WARMUP, FLOOR, { 0 } };
static const tutti_option step_options[] = {
    { "every", TUTTI_INT, TUTTI_AT(schedule_options, every), 1000, 1, STEPS_MAX, NULL,
      "steps between two drops" },
    { "gamma", TUTTI_REAL, TUTTI_AT(schedule_options, gamma), 0.1, 0, 1, NULL, "factor of a drop" },
    WARMUP,
    { 0 },
};

static double constant(const void *self, uint64_t done, uint64_t of)
{
    (void)self, (void)done, (void)of;
    return 1;
}

static double step(const void *self, uint64_t done, uint64_t of)
{
    const schedule_options *s = self;

    (void)of;
    return tutti_optim_power(s->gamma, done / (uint64_t)s->every);
}

/* The remaining part, from 1 to 0; a run without steps after its warm-up is at its end. */
static double remaining(uint64_t done, uint64_t of)
{
    return of == 0 ? 0 : (double)(of - done) / (double)of;
}

static double linear(const void *self, uint64_t done, uint64_t of)
{
    const schedule_options *s = self;

    return s->floor + (1 - s->floor) * remaining(done, of); /* 1 and floor are met exactly */
}

/* cos(pi x) for x in [0, 1] to about 2^-52. Folded to [0, pi/4], where eight terms of the series
   are enough (the ninth is below 2^-58); the folds are exact. */
static double cosine_pi(double x)
{
    const double pi = 3.14159265358979323846;
    double y, sum = 1;

    if (x > 0.5)
        return -cosine_pi(1 - x);
    if (x <= 0.25) {
        y = pi * x;
        for (int k = 16; k > 0; k -= 2)
            sum = 1 - sum * (y * y) / (k * (k - 1));
        return sum;
    }
    y = pi * (0.5 - x);
    for (int k = 17; k > 1; k -= 2)
        sum = 1 - sum * (y * y) / (k * (k - 1));
    return y * sum;
}

static double cosine(const void *self, uint64_t done, uint64_t of)
{
    const schedule_options *s = self;

    return s->floor + (1 - s->floor) * (0.5 * (1 + cosine_pi(1 - remaining(done, of))));
}

const struct tutti_lr_schedule_ops tutti_lr_schedules[] = {
    { "constant", "the base rate throughout", constant_options, constant },
    { "step", "multiplied by gamma at regular intervals", step_options, step },
    { "cosine", "half a cosine from the base rate down to floor", decay_options, cosine },
    { "linear", "a straight line from the base rate down to floor", decay_options, linear },
    { 0 },
};

static tutti_status unknown(const char *name, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(tutti_lr_schedules) - 1];
    char near[160];

    for (size_t i = 0; i < TUTTI_LENGTH(names); i++)
        names[i] = tutti_lr_schedules[i].name;
    tutti_suggest(name, names, TUTTI_LENGTH(names), near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "unknown schedule '%.60s'%s (there are constant, step, cosine, linear)", name,
                      near);
}

tutti_status tutti_lr_schedule_open(tutti_lr_schedule **out, const char *text, uint64_t steps,
                                    tutti_error *err)
{
    tutti_status status;
    tutti_lr_schedule *s = tutti_alloc(1, sizeof *s);
    tutti_spec *spec = NULL;
    char what[64];

    *out = NULL;
    if (s == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for schedule '%s'", text);
        goto out;
    }
    s->steps = steps > 0 ? steps : UINT64_MAX; /* unknown: the shape does not look at it */
    status = tutti_fail_within(err, tutti_spec_open(&spec, text, err), "schedule");
    if (status != TUTTI_OK)
        goto out;
    for (s->ops = tutti_lr_schedules; s->ops->name != NULL; s->ops++)
        if (strcmp(s->ops->name, tutti_spec_name(spec)) == 0)
            break;
    if (s->ops->name == NULL) {
        status = unknown(tutti_spec_name(spec), err);
        goto out;
    }
    snprintf(what, sizeof what, "schedule '%s'", s->ops->name);
    status = tutti_spec_apply(spec, what, s->ops->options, &s->options, err);
    if (status != TUTTI_OK)
        goto out;
    if (steps == 0 && s->ops->options == decay_options)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s falls until the end of the run, whose number of steps is not "
                            "known; give it (steps), or take constant or step",
                            what);
    else if (steps > 0 && (uint64_t)s->options.warmup > steps)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s: a warm-up of %llu steps is longer than the run of %llu steps; "
                            "take a shorter warmup or a longer run",
                            what, (unsigned long long)s->options.warmup, (unsigned long long)steps);
out:
    tutti_spec_close(spec); /* the options are numbers: nothing points into it */
    if (status == TUTTI_OK)
        *out = s;
    else
        tutti_lr_schedule_close(s);
    return status;
}

void tutti_lr_schedule_close(tutti_lr_schedule *s)
{
    tutti_free(s);
}

double tutti_lr_schedule_factor(const tutti_lr_schedule *s, uint64_t step_index)
{
    const uint64_t warmup = (uint64_t)s->options.warmup,
                   at = step_index < s->steps ? step_index : s->steps;

    if (at < warmup)
        return (double)(at + 1) / (double)warmup;
    return s->ops->shape(&s->options, at - warmup, s->steps - warmup);
}
