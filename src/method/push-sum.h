/* push-sum.h: SGD on push-sum: each worker has a model and a weight, and decides alone which
   fractions of both it sends to each out-neighbour. Assran, Loizou, Ballas, Rabbat, ICML 2019,
   arXiv 1811.10792, algorithms 1 and 2. Included by sgp.c, as its step, and by slowmo.c, as a part
   of its step. All of it is in this file.

     overlap=0    x_i <- x_i - eta opt(g_i(z_i));  (x_i, w_i) <- sum_j P_ij (x_j, w_j);
                  z_i = x_i / w_i
     overlap=tau  at the beginning of every tau-th step the messages sent tau steps ago are added,
                  then (x, w) is split and sent again; gradients are computed and applied meanwhile

   x_i: the numerator; w_i: the weight, initially 1; z_i: the model of worker i; P: the graph's
   weights, whose columns sum to 1; opt, eta: the run's optimiser and its learning rate. A worker
   stores z in m->x, and w; x = w z is never formed (src/gossip/mixer.c). So a step with rate eta
   on x is a step with rate eta / w on z. */
#ifndef TUTTI_METHOD_PUSH_SUM_H
#define TUTTI_METHOD_PUSH_SUM_H
#include "tutti/method/gossip.h"

typedef struct push_sum {
    const char *graph;           /* option: a graph spec */
    int64_t overlap;             /* option: tau, steps; 0: no overlap */

    uint64_t period;             /* steps from one push_sum_settle to the next, set by the method
                                    before it calls push_sum_declare; 0: it never calls settle */
    tutti_mixer *mixer;
    tutti_mass mass;             /* w. With overlap the mixer changes it from tutti_mix_start to
                                    tutti_mix_wait; afterwards it is the kept and the received
                                    weight. Declared */
    bool whole;                  /* this process has executed every step of the run so far */
    float *agreed;               /* [n + PUSH_SUM_DIGITS + 1]: scratch of push_sum_mean: numerator,
                                    digits of the weight, and `whole`. Declared */
    /* with overlap only; declared */
    tutti_mass kept;             /* the part of w that was not sent in the last round */
    float *sent;                 /* [n]: z when the last round started */
    float *mixed;                /* [n]: the result of that round */
} push_sum;

/* push_sum_mean sums weights as PUSH_SUM_DIGITS floats of PUSH_SUM_DIGIT_BITS bits each, whose sums
   over up to 2^14 workers are exact. */
enum { PUSH_SUM_DIGITS = 6, PUSH_SUM_DIGIT_BITS = 10 };

/* The row of `overlap` in a method's table of options. */
#define PUSH_SUM_OVERLAP(at, when) \
    { "overlap", TUTTI_INT, at, 0, 0, 1e6, NULL, \
      "steps that an exchange may take, hidden behind their gradients; 0: exchange after each " \
      "step", when }

/* Returns true if rounds overlap with steps. */
static inline bool push_sum_overlaps(const push_sum *s, const tutti_method *m)
{
    return s->overlap > 0 && m->workers > 1;
}

/* Declares state and mixer, within declare(). Fails as tutti_mixer_declare does. */
static inline tutti_status push_sum_declare(push_sum *s, tutti_method *m, tutti_plan *plan,
                                            tutti_error *err)
{
    s->mass = s->kept = TUTTI_MASS_ONE;
    tutti_declare_value(plan, "sgp.mass", TUTTI_OWN_SUM, &s->mass, sizeof s->mass);
    if (m->workers > 1)
        tutti_declare(plan,
                      &(tutti_state){ .name = "sgp.agreed", .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32, .count = m->n + PUSH_SUM_DIGITS + 1 },
                      &s->agreed);
    if (push_sum_overlaps(s, m)) {
        tutti_declare_value(plan, "sgp.kept", TUTTI_OWN_ZERO, &s->kept, sizeof s->kept);
        tutti_declare_vector(plan, "sgp.sent", TUTTI_OWN_ZERO, &s->sent);
        tutti_declare_vector(plan, "sgp.mixed", TUTTI_OWN_ZERO, &s->mixed);
    }
    return tutti_mixer_declare(&s->mixer, m, plan,
                               &(tutti_mixer_options){ .graph = s->graph, .push = true,
                                                       .ahead = push_sum_overlaps(s, m) },
                               err);
}

/* TUTTI_ERR_NUMBER: this worker's weight is so small that z would lose its precision. */
static inline tutti_status push_sum_check(const push_sum *s, const tutti_method *m, tutti_mass mass,
                                          tutti_error *err)
{
    if (mass >= TUTTI_MASS_ONE / 1000000)
        return TUTTI_OK;
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank,
                           "worker %d is starved: its push-sum weight has fallen to %g in step "
                           "%llu, since graph '%s' brings it less than it gives away; use a graph "
                           "that sends it more (`tutti topology` shows the weights)",
                           m->rank, tutti_mass_real(mass), (unsigned long long)m->step, s->graph);
}

/* Returns the number of steps since push_sum_settle, or since the beginning of the run, when the
   run has made `done` steps. */
static inline uint64_t push_sum_since(const push_sum *s, uint64_t done)
{
    return s->period > 0 ? done % s->period : done;
}

/* Returns the number of the round that starts in this step. A period has period / tau rounds,
   rounded up; the last one ends with the period. */
static inline uint64_t push_sum_round(const push_sum *s, uint64_t step)
{
    const uint64_t every = s->overlap > 0 ? (uint64_t)s->overlap : 1,
                   of_period = (s->period + every - 1) / every,
                   periods = s->period > 0 ? step / s->period : 0;

    return periods * of_period + push_sum_since(s, step) / every;
}

/* Adds the result of a round to the model: z := mixed + (kept / mass) (z - sent). mixed is (kept
   sent + received numerators) / mass; z has changed since the round started, and only the kept
   part of the weight has made these steps. */
static inline void push_sum_merge(const push_sum *s, const tutti_method *m, float *z)
{
    const size_t n = m->layout->used;
    const double share = tutti_mass_real(s->kept) / tutti_mass_real(s->mass);

    tutti_diff(m->device, n, (float)share, z, s->sent, z);
    tutti_add(m->device, n, s->mixed, z);
}

/* Waits for the round in progress and adds its result to m->x. */
static inline tutti_status push_sum_take(push_sum *s, tutti_method *m, tutti_error *err)
{
    TUTTI_TRY(tutti_mix_wait(s->mixer, err));
    TUTTI_TRY(push_sum_check(s, m, s->mass, err));
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    push_sum_merge(s, m, m->x);
    return TUTTI_OK;
}

/* Ends a round and starts the next, with overlap, within pass(). */
static inline tutti_status push_sum_pass(push_sum *s, tutti_method *m, const tutti_pass *p,
                                         tutti_error *err)
{
    const uint64_t since = push_sum_since(s, m->step);

    if (p->index > 0)
        return TUTTI_OK;
    s->whole = s->whole || m->step == 0;
    if (!push_sum_overlaps(s, m) || since % (uint64_t)s->overlap != 0)
        return TUTTI_OK;
    if (since > 0)
        TUTTI_TRY(push_sum_take(s, m, err));
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_copy(m->device, m->layout->used, m->x, s->sent);
    tutti_mix_start(s->mixer, push_sum_round(s, m->step), s->sent, s->mixed, &s->mass);
    s->kept = s->mass;
    return push_sum_check(s, m, s->kept, err);
}

/* Applies the gradient; without overlap, then makes a round. Within step(). */
static inline tutti_status push_sum_step(push_sum *s, tutti_method *m, tutti_error *err)
{
    const bool ahead = push_sum_overlaps(s, m);

    TUTTI_TRY(tutti_base_step_on(m, m->x, NULL, 1 / tutti_mass_real(ahead ? s->kept : s->mass),
                                 err));
    if (ahead)
        return TUTTI_OK;
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    TUTTI_TRY(tutti_mix(s->mixer, push_sum_round(s, m->step), m->x, m->x, &s->mass, err));
    return push_sum_check(s, m, s->mass, err);
}

/* Sets m->x to the sum of all numerators over the sum of all weights. One collective sums both:
   with two, a loss might end the first on some workers only, and the others would wait in the
   second. TUTTI_ERR_STATE: the weights do not sum to the number of workers, though no worker was
   lost and the run was not resumed. */
static inline tutti_status push_sum_mean(push_sum *s, tutti_method *m, tutti_error *err)
{
    const size_t n = m->layout->used;
    tutti_mass all = 0;
    int whole;

    tutti_copy(m->device, n, m->x, s->agreed);
    tutti_scale(m->device, n, (float)(tutti_mass_real(s->mass) / m->workers), s->agreed);
    for (int k = 0; k < PUSH_SUM_DIGITS; k++)
        s->agreed[n + (size_t)k] =
            (float)(s->mass >> PUSH_SUM_DIGIT_BITS * k & ((1 << PUSH_SUM_DIGIT_BITS) - 1));
    /* some workers may not know of a loss yet */
    s->agreed[n + PUSH_SUM_DIGITS] =
        s->whole && tutti_world_events(m->world, 0, NULL, 0) == 0;
    TUTTI_TRY(tutti_sum(m, s->agreed, n + PUSH_SUM_DIGITS + 1, err));
    whole = (int)s->agreed[n + PUSH_SUM_DIGITS];
    for (int k = 0; k < PUSH_SUM_DIGITS; k++)
        all += (tutti_mass)s->agreed[n + (size_t)k] << PUSH_SUM_DIGIT_BITS * k;
    if (whole == m->workers && all != m->workers * TUTTI_MASS_ONE)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the workers' push-sum weights sum to %.15g instead of %d after step "
                          "%llu, so a model was lost or counted twice; this is a fault of the "
                          "program: please report it",
                          tutti_mass_real(all), m->workers, (unsigned long long)m->step);
    tutti_copy(m->device, n, s->agreed, m->x);
    tutti_scale(m->device, n, (float)(m->workers / tutti_mass_real(all)), m->x);
    return TUTTI_OK;
}

/* The hook final_model: m->x := push-sum's mean. */
static inline tutti_status push_sum_final_model(push_sum *s, tutti_method *m, tutti_error *err)
{
    if (m->workers == 1)
        return TUTTI_OK;
    if (push_sum_overlaps(s, m) && push_sum_since(s, m->step) > 0)
        push_sum_merge(s, m, m->x);
    return push_sum_mean(s, m, err);
}

/* Ends a period, within its last step: all workers continue from push-sum's mean, with no message
   in flight and with weight 1. */
static inline tutti_status push_sum_settle(push_sum *s, tutti_method *m, tutti_error *err)
{
    if (m->workers == 1)
        return TUTTI_OK;
    if (push_sum_overlaps(s, m))
        TUTTI_TRY(push_sum_take(s, m, err));
    TUTTI_TRY(push_sum_mean(s, m, err));
    s->mass = s->kept = TUTTI_MASS_ONE;
    return TUTTI_OK;
}
#endif
