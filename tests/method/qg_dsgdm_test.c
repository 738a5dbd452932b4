/* Goal: qg-dsgdm.md's invariants, on ranks that are threads: the recursion of models and of the
   quasi-global buffer in all its forms, the identities, the traffic. Method: a spy around the
   method's step records the buffer after each; both are compared with a separate computation in
   double. Resuming is in tests/engine/state_test.c, losses in goes_on_test.c. */
#include "trial.h"
#include "tutti/method/gossip.h"

enum { D = 64, STEPS = 12 };
static struct { float h[TRIAL_STEPS][D]; bool has; } spied[TRIAL_RANKS];

static tutti_status spy_step(tutti_method *m, tutti_error *err)
{
    const int slot = m->optim->ops->slots(m->optim->self) - 1;

    TUTTI_TRY(tutti_method_find("qg-dsgdm")->step(m, err));
    spied[m->rank].has = slot >= 0;
    if (slot >= 0)
        memcpy(spied[m->rank].h[m->step], m->optim->slot[slot], sizeof spied[0].h[0]);
    return TUTTI_OK;
}

static void run_spied(trial *t, int n)
{
    tutti_method_ops spy = *tutti_method_find("qg-dsgdm");
    const tutti_method_ops *const methods[] = { &spy, NULL };

    spy.step = spy_step;
    t->methods = methods;
    trial_run(t, n);
    t->methods = NULL;
}

static trial of(const char *method, const char *optimizer, int steps)
{
    trial t = trial_of(method, optimizer, steps);

    t.count[0] = 40;
    t.count[1] = 17;
    t.count[2] = D - 57;
    return t;
}

/* ---- the recursion ---- */

typedef struct form {
    const char *options, *optimizer, *schedule, *graph;
    double lr, beta, mu, decay;
    bool nesterov, adam;
    int period;
    double beta2, eps;           /* of adam, whose beta1 is beta */
} form;

/* eta of a step: half of it from every third on. */
static double eta_of(const form *f, int step)
{
    return f->schedule == NULL ? f->lr : strstr(f->schedule, "gamma=0)") != NULL ? (step < 3 ? f->lr : 0)
                                                                                : f->lr * pow(0.5, step / 3);
}

static void mix(const tutti_graph *g, int n, int step, double (*x)[D])
{
    static double was[TRIAL_RANKS][D];
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    memcpy(was, x, sizeof was);
    for (int r = 0; r < n; r++) {
        tutti_graph_round(g, (uint64_t)step, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int i = 0; i < D; i++) {
            x[r][i] = self * was[r][i];
            for (int a = 0; a < n_in; a++)
                x[r][i] += w_in[a] * was[in[a]][i];
        }
    }
}

typedef struct reference {
    double x[TRIAL_RANKS][D], before[TRIAL_RANKS][D], h[TRIAL_RANKS][D], sum[TRIAL_RANKS][D], m[TRIAL_RANKS][D];
    int summed;
} reference;

static void local_step(const form *f, reference *t, int r, int step)
{
    const double eta = eta_of(f, step), c1 = 1 - pow(f->beta, step + 1), c2 = 1 - pow(f->beta2, step + 1);

    for (int i = 0; i < D; i++) {
        const double g = t->x[r][i] + (double)trial_quadratic(r, 0, (size_t)i, 0) + f->decay * t->x[r][i];
        const double b = f->beta * t->h[r][i] + g;
        t->before[r][i] = t->x[r][i];
        if (f->adam) {
            const double v = f->beta2 * t->h[r][i] + (1 - f->beta2) * g * g;
            t->m[r][i] = f->beta * t->m[r][i] + (1 - f->beta) * g;
            t->x[r][i] -= eta / c1 * t->m[r][i] / (sqrt(v) / sqrt(c2) + f->eps);
        } else
            t->x[r][i] -= eta * (f->nesterov ? g + f->beta * b : b);
    }
}

static void take(const form *f, reference *t, int r)
{
    double norm = 0;

    for (int i = 0; i < D; i++)
        norm += pow(t->sum[r][i] / t->summed, 2);
    for (int i = 0; i < D; i++) {
        const double d = t->sum[r][i] / t->summed;
        t->h[r][i] = f->mu * t->h[r][i] + (1 - f->mu) * (f->adam ? pow(d / (sqrt(norm) + 1e-8), 2) : d);
        t->sum[r][i] = 0;
    }
}

static void follow(const form *f, const trial *t, int n, double tolerance)
{
    static reference e;
    tutti_graph *g;

    memset(&e, 0, sizeof e);
    assert_int_equal(tutti_graph_open(&g, f->graph, n, NULL), TUTTI_OK);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < D; i++)
            e.x[r][i] = trial_initial_value(i);
    for (int s = 0; s < t->steps; s++) {
        const double eta = eta_of(f, s);
        for (int r = 0; r < n; r++)
            local_step(f, &e, r, s);
        mix(g, n, s, e.x);
        for (int r = 0; r < n && eta > 0; r++)
            for (int i = 0; i < D; i++)
                e.sum[r][i] += (e.before[r][i] - e.x[r][i]) / (f->adam ? 1 : eta);
        e.summed += eta > 0;
        if ((s + 1) % f->period == 0 && e.summed > 0) {
            for (int r = 0; r < n; r++)
                take(f, &e, r);
            e.summed = 0;
        }
        for (int r = 0; r < n; r++)
            for (int i = 0; i < D; i++)
                if (!(fabs(e.x[r][i] - t->x[r][s][i]) < tolerance) ||
                    !(fabs(e.h[r][i] - spied[r].h[s][i]) < 20 * tolerance))
                    fail_msg("%s, %s on %d, step %d, worker %d, element %d: %.9g and %.9g, expected %.9g and %.9g",
                             t->method, t->options.optimizer, n, s, r, i, (double)t->x[r][s][i],
                             (double)spied[r].h[s][i], e.x[r][i], e.h[r][i]);
    }
    tutti_graph_close(g);
}

static void models_and_buffers_follow_the_recursion_in_every_form(void **state)
{
    static const form forms[] = {
        { "", "sgd(lr=0.125,momentum=0.75)", NULL, "ring", 0.125, 0.75, 0.75, 0, false, false, 1 },
        { "", "sgd(lr=0.125,momentum=0.75,nesterov=true)", NULL, "ring", 0.125, 0.75, 0.75, 0, true, false, 1 },
        /* Nesterov's second look has the decay, too; mu is not beta */
        { ",decay=0.5", "sgd(lr=0.125,momentum=0.75,nesterov=true,weight_decay=0.5)", "step(every=3,gamma=0.5)",
          "exponential", 0.125, 0.75, 0.5, 0.5, true, false, 1 },
        { ",decay=0", "sgd(lr=0.25,momentum=0.5,weight_decay=0.25)", "step(every=3,gamma=0.5)", "directed-ring", 0.25,
          0.5, 0, 0.25, false, false, 1 },
        { ",period=2", "sgd(lr=0.125,momentum=0.75,nesterov=true)", "step(every=3,gamma=0.5)", "one-peer-exponential",
          0.125, 0.75, 0.75, 0, true, false, 2 },
        { ",period=5", "sgd(lr=0.125,momentum=0.5)", "step(every=3,gamma=0.5)", "complete", 0.125, 0.5, 0.5, 0, false,
          false, 5 },
        { "", "adam(lr=0.125,beta1=0.5,beta2=0.75,weight_decay=0.25)", "step(every=3,gamma=0.5)", "ring", 0.125, 0.5,
          0.75, 0.25, false, true, 1, 0.75, 1e-4 }, /* of the method, not of adam */
        { ",decay=0.5", "adam(lr=0.125,beta1=0,beta2=0.75,eps=1e-8)", NULL, "star", 0.125, 0, 0.5, 0, false, true, 1,
          0.75, 1e-8 },
        /* the rate becomes 0: gossip alone, and no number is spoilt */
        { "", "sgd(lr=0.125,momentum=0.75,nesterov=true)", "step(every=3,gamma=0)", "ring", 0.125, 0.75, 0.75, 0, true,
          false, 1 },
        { ",period=2", "sgd(lr=0.125,momentum=0.75)", "step(every=3,gamma=0)", "ring", 0.125, 0.75, 0.75, 0, false,
          false, 2 },
    };
    static const int sizes[] = { 1, 2, 3, 5, 8 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            char method[100];
            trial t;
            snprintf(method, sizeof method, "qg-dsgdm(graph=%s%s)", forms[k].graph, forms[k].options);
            /* adam divides by next to nothing near the optimum, and what is rounded grows */
            t = of(method, forms[k].optimizer, forms[k].adam ? 7 : STEPS);
            t.options.lr_schedule = forms[k].schedule;
            t.options.steps = STEPS;
            run_spied(&t, sizes[z]);
            follow(&forms[k], &t, sizes[z], forms[k].adam ? 2e-4 : 2e-5);
            trial_drop(&t);
        }
}

/* ---- identities ---- */

/* Whatever the options ask of a buffer that is not there. */
static void without_momentum_it_is_d_psgd_to_the_bit(void **state)
{
    static const struct { const char *qg, *plain, *codec; int n; } cases[] = {
        { "qg-dsgdm",                                      "d-psgd(order=atc)",                            NULL,   3 },
        { "qg-dsgdm(decay=0.5,period=2)",                  "d-psgd(order=atc)",                            NULL,   1 },
        { "qg-dsgdm(graph=one-peer-exponential,decay=0)",  "d-psgd(order=atc,graph=one-peer-exponential)", NULL,   5 },
        { "qg-dsgdm(graph=exponential,gamma=0.25)",        "d-psgd(order=atc,graph=exponential,gamma=0.25)",
          "topk(ratio=0.1)", 8 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial a = of(cases[k].qg, "sgd(lr=0.1,weight_decay=0.01)", 7),
              b = of(cases[k].plain, "sgd(lr=0.1,weight_decay=0.01)", 7);
        a.options.codec = b.options.codec = cases[k].codec;
        run_spied(&a, cases[k].n);
        trial_run(&b, cases[k].n);
        assert_false(spied[0].has);
        for (int r = 0; r < cases[k].n; r++)
            for (int s = 0; s <= 7; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* h' = beta h + g with mu = 0 on one worker: heavy ball, to the bit for dyadic numbers. */
static void one_worker_with_zero_decay_matches_heavy_ball(void **state)
{
    trial a = of("qg-dsgdm(decay=0)", "sgd(lr=0.25,momentum=0.5)", 6),
          b = of("single", "sgd(lr=0.25,momentum=0.5)", 6);

    (void)state;
    a.gradient = b.gradient = trial_constant;
    trial_run(&a, 1);
    trial_run(&b, 1);
    for (int s = 0; s <= 6; s++)
        assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
    trial_drop(&a);
    trial_drop(&b);
}

static float same_constant(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return trial_constant(0, step, i, x);
}

/* All see the constant gradient c: h_t = (1 - (mu + (1 - mu) beta)^t) c / (1 - beta). */
static void a_constant_gradient_brings_the_buffer_to_its_fixed_point(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n += 3) {
        trial t = of("qg-dsgdm", "sgd(lr=0.125,momentum=0.5)", TRIAL_STEPS);
        t.gradient = same_constant;
        run_spied(&t, n);
        for (int s = 0; s < TRIAL_STEPS; s++)
            for (int r = 0; r < n; r++)
                for (size_t i = 0; i < D; i++) {
                    const double due = (1 - pow(0.75, s + 1)) * 2 * trial_constant(0, 0, i, 0);
                    assert_true(fabs(spied[r].h[s][i] - due) < 1e-4);
                }
        trial_drop(&t);
    }
}

static float opposed(int rank, uint64_t step, size_t i, float x)
{
    return rank == 0 ? trial_constant(1, step, i, x) : -trial_constant(1, step, i, x);
}

/* The gradients +c and -c of two workers never enter the buffers, where local momenta would grow
   towards c / (1 - beta); and the models stay. */
static void gradients_that_cancel_leave_buffers_and_models_at_rest(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.25,momentum=0.5)", "sgd(lr=0.25,momentum=0.5,nesterov=true)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        trial t = of("qg-dsgdm(graph=complete)", optimizers[k], STEPS);
        t.gradient = opposed;
        run_spied(&t, 2);
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < 2; r++)
                for (size_t i = 0; i < D; i++)
                    assert_true(spied[r].h[s][i] == 0 && t.x[r][s][i] == trial_initial_value(i));
        trial_drop(&t);
    }
}

/* In step 0 gradients that sum to 0 put the models apart; then there are none. */
static float apart_in_sum(int rank, uint64_t step, size_t i, float x)
{
    static const float of_rank[] = { 3, -1, -4, 2 };

    (void)x;
    return step == 0 ? of_rank[rank] * (float)(1 + i % 5) : 0;
}

static void without_gradients_the_sum_of_models_and_of_buffers_is_kept(void **state)
{
    double first = 0, last = 0;
    trial t = of("qg-dsgdm", "sgd(lr=0.125,momentum=0.5,nesterov=true)", TRIAL_STEPS);

    (void)state;
    t.gradient = apart_in_sum;
    run_spied(&t, 4);
    for (int s = 0; s < TRIAL_STEPS; s++)
        for (size_t i = 0; i < D; i++) {
            double sum = 0, h = 0;
            for (int r = 0; r < 4; r++) {
                sum += t.x[r][s][i];
                h += spied[r].h[s][i];
                *(s == 0 ? &first : &last) = fabs(t.x[r][s][i] - trial_initial_value(i));
            }
            assert_true(fabs(sum - 4 * trial_initial_value(i)) < 1e-5 && fabs(h) < 1e-4);
        }
    assert_true(last < 0.05 * first);
    trial_drop(&t);
}

static void equal_gradients_keep_the_models_equal_and_equal_to_one_worker(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,nesterov=true)", "adam(lr=0.01)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        trial a = of("qg-dsgdm(graph=one-peer-exponential)", optimizers[k], 8), b = of("qg-dsgdm", optimizers[k], 8);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, 5);
        trial_run(&b, 1);
        for (int s = 0; s < 8; s++)
            for (int r = 0; r < 5; r++)
                assert_true(trial_same(&a, a.x[r][s], b.x[0][s])); /* weights of 1/2 */
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- compared with the formula ---- */

static void every_pair_sends_what_d_psgd_sends(void **state)
{
    static const char *const graphs[] = { "ring", "one-peer-exponential" }, *const codecs[] = { NULL, "int8" };

    (void)state;
    for (int k = 0; k < 3; k++) {
        char qg[80], plain[80];
        trial a, b;
        snprintf(qg, sizeof qg, "qg-dsgdm(graph=%s,period=2)", graphs[k % 2]);
        snprintf(plain, sizeof plain, "d-psgd(order=atc,graph=%s)", graphs[k % 2]);
        a = trial_of(qg, "sgd(lr=0.1,momentum=0.9)", 5);
        b = trial_of(plain, "sgd(lr=0.1,momentum=0.9)", 5);
        a.options.codec = b.options.codec = codecs[k / 2];
        trial_run(&a, 5);
        trial_run(&b, 5);
        assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
        assert_memory_equal(a.messages, b.messages, sizeof a.messages);
        for (int r = 0; r < 5; r++)
            assert_int_equal(a.figures[r].bytes_sent, b.figures[r].bytes_sent);
        if (k == 0) /* a ring, two neighbours */
            assert_int_equal(a.figures[0].bytes_sent - a.end_bytes[0], 5 * 2 * 4 * trial_size(&a));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void the_gradient_is_clipped_and_not_the_momentum(void **state)
{
    trial t = of("qg-dsgdm", "sgd(lr=0.5,momentum=0.5)", 2);
    double first = 0, second = 0;

    (void)state;
    t.options.clip_norm = 1;
    t.gradient = same_constant;
    trial_run(&t, 1);
    for (size_t i = 0; i < D; i++) {
        first += pow(t.x[0][0][i] - trial_initial_value(i), 2);
        second += pow(t.x[0][1][i] - t.x[0][0][i], 2);
    }
    assert_true(fabs(sqrt(first) - 0.5) < 1e-5); /* eta |g|, and then eta (1 + beta (1 - mu)) |g| */
    assert_true(fabs(sqrt(second) - 0.5 * 1.25) < 1e-5);
    trial_drop(&t);
}

static void nonfinite_gradient_leaves_all_models_finite(void **state)
{
    trial t = trial_of("qg-dsgdm", "sgd(lr=0.1,momentum=0.9,nesterov=true)", 8);

    (void)state;
    trial_ends_when_not_finite(&t);
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    for (int r = 0; r < 4; r++)
        for (size_t i = 0; i < trial_size(&t); i++)
            assert_true(isfinite(t.x[r][7][i]));
    trial_drop(&t);
}

/* Its first step is skipped on one worker; PyTorch's sgd would restart its momentum in the
   second. */
static float bad_at_first(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return rank == 1 && step == 0 ? NAN : (float)(1 + i % 3);
}

static void skipped_first_step_loses_no_momentum(void **state)
{
    trial t = of("qg-dsgdm(graph=complete)", "sgd(lr=0.5,momentum=0.5)", 2);

    (void)state;
    t.gradient = bad_at_first;
    t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    run_spied(&t, 2);
    /* c = g: after step 0 both have moved by eta c / 2, so h = c / 4; in step 1 both move by
       eta (c / 8 + c) */
    for (size_t i = 0; i < D; i++) {
        const double c = (double)(1 + i % 3);
        for (int r = 0; r < 2; r++) {
            assert_true(fabs(spied[r].h[0][i] - c / 4) < 1e-5);
            assert_true(fabs(t.x[r][0][i] - t.x[r][1][i] - 0.5 * (c / 8 + c)) < 1e-5);
        }
    }
    trial_drop(&t);
}

static tutti_status no_update(void *user, double factor, tutti_error *err)
{
    (void)user, (void)factor, (void)err;
    return TUTTI_OK;
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *sentence; } cases[] = {
        { "qg-dsgdm(decay=-0.5)", "sgd(lr=0.1,momentum=0.9)",
          "method 'qg-dsgdm': decay is -0.5; it must be from 0 to 0.999999, or -1 for the optimiser's own" },
        { "qg-dsgdm", "sgd(lr=0.1,momentum=1)",
          "method 'qg-dsgdm': the optimiser's momentum is 1, so nothing would ever enter the quasi-global one; give it "
          "below 1, or a decay" },
        { "qg-dsgdm(period=2)", "adam(lr=0.1)",
          "method 'qg-dsgdm': period is 2, but until the first period is over 'adam' would divide by the last gradient "
          "alone, which may be next to nothing; leave period at 1, or take sgd with momentum" },
        { "qg-dsgdm(graph=hypercube)", "sgd(lr=0.1)",
          "method 'qg-dsgdm': graph 'hypercube' cannot have 3 members; their number must be a power of two: 2 or 4; "
          "ring, torus, exponential and one-peer-exponential take any number" },
        { "qg-dsgdm", "client",
          "optimizer is 'client', but method 'qg-dsgdm' makes the momentum of its optimiser from how far the models "
          "moved, and cannot reach a client's; give its rule, as sgd(lr=0.05,momentum=0.9) (in Python "
          "tutti.torch.prepare does so for SGD, Adam and AdamW)" },
    };
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = of(cases[k].method, cases[k].optimizer, 2);
        if (strcmp(cases[k].optimizer, "client") == 0)
            t.options.update = no_update;
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].sentence);
        trial_drop(&t);
    }
}

/* ---- the options' ends, with momentum ---- */

static void extreme_option_values_still_train(void **state)
{
    static const struct { const char *method, *optimizer; } cases[] = {
        { "qg-dsgdm(decay=0)",           "sgd(lr=0.05,momentum=0.9,nesterov=true)" },
        { "qg-dsgdm(decay=0.999999)",    "sgd(lr=0.05,momentum=0.9,nesterov=true)" },
        { "qg-dsgdm(period=1000000000)", "sgd(lr=0.05,momentum=0.9)" },
        { "qg-dsgdm(decay=0,period=3)",  "sgd(lr=0.05,momentum=0.9)" },
        { "qg-dsgdm(decay=0)",           "adamw(lr=0.02)" },
        { "qg-dsgdm(decay=0.999999)",    "adam(lr=0.02)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = of(cases[k].method, cases[k].optimizer, TRIAL_STEPS);
        double before = 0, after = 0;
        trial_run(&t, 4);
        for (size_t i = 0; i < D; i++) { /* the distance from the mean optimum */
            double due = 0;
            for (int r = 0; r < 4; r++)
                due -= trial_quadratic(r, 0, i, 0) / 4;
            before += pow(trial_initial_value(i) - due, 2);
            after += pow(t.x[0][TRIAL_STEPS][i] - due, 2);
        }
        if (!(after < 0.95 * before))
            fail_msg("%s, %s: squared distance from %g to %g", cases[k].method, cases[k].optimizer, before, after);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_buffers_follow_the_recursion_in_every_form),
        cmocka_unit_test(without_momentum_it_is_d_psgd_to_the_bit),
        cmocka_unit_test(one_worker_with_zero_decay_matches_heavy_ball),
        cmocka_unit_test(a_constant_gradient_brings_the_buffer_to_its_fixed_point),
        cmocka_unit_test(gradients_that_cancel_leave_buffers_and_models_at_rest),
        cmocka_unit_test(without_gradients_the_sum_of_models_and_of_buffers_is_kept),
        cmocka_unit_test(equal_gradients_keep_the_models_equal_and_equal_to_one_worker),
        cmocka_unit_test(every_pair_sends_what_d_psgd_sends),
        cmocka_unit_test(the_gradient_is_clipped_and_not_the_momentum),
        cmocka_unit_test(nonfinite_gradient_leaves_all_models_finite),
        cmocka_unit_test(skipped_first_step_loses_no_momentum),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(extreme_option_values_still_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
