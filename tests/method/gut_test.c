/* Goal: gut.md's invariants, on ranks that are threads: the recursion in the form of its page, in
   which each neighbour's update is known; the mean; the identities; the traffic. Method: models
   after every step are compared with a separate computation in double. Resuming is in
   tests/engine/state_test.c, losses in goes_on_test.c. */
#include "engine/engine_internal.h"
#include "state/plan.h"
#include "trial.h"
#include "tutti/method/gossip.h"
#include "kernels/device.h"

enum { D = 64, STEPS = 12 };

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
    const char *graph, *options, *optimizer, *schedule;
    double lr, mu, beta, decay;
    bool nesterov;
} form;

static double eta_of(const form *f, int step)
{
    return f->schedule == NULL ? f->lr : strstr(f->schedule, "gamma=0)") != NULL ? (step < 3 ? f->lr : 0)
                                                                                : f->lr * pow(0.5, step / 3);
}

/* z := W x */
static void mix(const tutti_graph *g, int n, double (*x)[D], double (*z)[D])
{
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    for (int r = 0; r < n; r++) {
        tutti_graph_round(g, 0, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int i = 0; i < D; i++) {
            z[r][i] = self * x[r][i];
            for (int a = 0; a < n_in; a++)
                z[r][i] += w_in[a] * x[in[a]][i];
        }
    }
}

/* y = g - p / eta + mu (sum_j W_ij s_j - g' - (b - 1) p' / eta'), primes: of the step before. */
static void follow(const form *f, const trial *t, int n)
{
    static double x[TRIAL_RANKS][D], z[TRIAL_RANKS][D], m[TRIAL_RANKS][D], s[TRIAL_RANKS][D], heard[TRIAL_RANKS][D],
        g[TRIAL_RANKS][D], p[TRIAL_RANKS][D];
    const double b = 1 + f->beta + (f->nesterov ? f->beta * f->beta : 0);
    double before = 0;
    tutti_graph *graph;

    assert_int_equal(tutti_graph_open(&graph, f->graph, n, NULL), TUTTI_OK);
    memset(m, 0, sizeof m);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < D; i++)
            x[r][i] = trial_initial_value(i);
    for (int k = 0; k < t->steps; k++) {
        const double eta = eta_of(f, k);
        mix(graph, n, x, z);
        if (k > 0)
            mix(graph, n, s, heard);
        for (int r = 0; r < n; r++)
            for (int i = 0; i < D; i++) {
                const double at = f->beta > 0 ? x[r][i] : z[r][i], displaced = z[r][i] - x[r][i],
                             now = z[r][i] + (double)trial_quadratic(r, 0, (size_t)i, 0) + f->decay * at;
                double y;
                if (eta == 0) {
                    x[r][i] = z[r][i];
                    continue;
                }
                y = now - displaced / eta;
                if (before > 0)
                    y += f->mu * (heard[r][i] - g[r][i] - (b - 1) / before * p[r][i]);
                m[r][i] = f->beta * m[r][i] + y;
                s[r][i] = f->nesterov ? y + f->beta * m[r][i] : m[r][i];
                x[r][i] -= eta * s[r][i];
                g[r][i] = now;
                p[r][i] = displaced;
            }
        before = eta;
        for (int r = 0; r < n; r++)
            for (int i = 0; i < D; i++)
                if (!(fabs(x[r][i] - t->x[r][k][i]) < 4e-5))
                    fail_msg("%s, %s on %d, step %d, worker %d, element %d: %.9g, expected %.9g", t->method,
                             t->options.optimizer, n, k, r, i, (double)t->x[r][k][i], x[r][i]);
    }
    tutti_graph_close(graph);
}

static void every_model_follows_the_recursion(void **state)
{
    static const form forms[] = {
        { "ring", ",scaling=0.5", "sgd(lr=0.125)", NULL, 0.125, 0.5, 0, 0, false },
        { "ring", "", "sgd(lr=0.125)", "step(every=3,gamma=0.5)", 0.125, 0.9, 0, 0, false },
        { "exponential", ",scaling=0.75", "sgd(lr=0.125,weight_decay=0.5)", "step(every=3,gamma=0.5)", 0.125, 0.75, 0,
          0.5, false },
        { "directed-ring", ",scaling=0", "sgd(lr=0.25)", NULL, 0.25, 0, 0, 0, false },
        { "complete", ",scaling=1", "sgd(lr=0.125)", NULL, 0.125, 1, 0, 0, false },
        { "ring", "", "sgd(lr=0.125,momentum=0.5)", "step(every=3,gamma=0.5)", 0.125, 0.05, 0.5, 0, false },
        { "star", ",scaling=0.25", "sgd(lr=0.125,momentum=0.5,nesterov=true,weight_decay=0.25)",
          "step(every=3,gamma=0.5)", 0.125, 0.25, 0.5, 0.25, true },
        { "torus", ",scaling=0", "sgd(lr=0.125,momentum=0.5,nesterov=true)", NULL, 0.125, 0, 0.5, 0, true },
        /* the rate becomes 0: gossip alone */
        { "ring", "", "sgd(lr=0.125)", "step(every=3,gamma=0)", 0.125, 0.9, 0, 0, false },
        { "ring", "", "sgd(lr=0.125,momentum=0.5)", "step(every=3,gamma=0)", 0.125, 0.05, 0.5, 0, false },
    };
    static const int sizes[] = { 1, 2, 3, 5, 8 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            char method[100];
            trial t;
            snprintf(method, sizeof method, "gut(graph=%s%s)", forms[k].graph, forms[k].options);
            t = of(method, forms[k].optimizer, STEPS);
            t.options.lr_schedule = forms[k].schedule;
            t.options.steps = STEPS;
            trial_run(&t, sizes[z]);
            follow(&forms[k], &t, sizes[z]);
            trial_drop(&t);
        }
}

/* Whatever mu, and whatever a codec loses: the mean moves by the mean of the gradients, which are
   taken at the averaged models. */
static void the_mean_of_the_models_moves_by_the_mean_gradient(void **state)
{
    static const struct { const char *method, *codec; } cases[] = {
        { "gut",                              NULL },
        { "gut(scaling=0.5,graph=exponential)", NULL },
        { "gut(scaling=1,graph=star)",        NULL },
        { "gut(gamma=0.25)",                  "topk(ratio=0.25)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int n = 2; n <= 7; n += 5) {
            trial t = of(cases[k].method, "sgd(lr=0.25)", STEPS);
            double eta = 0.25, moved = 0;
            t.options.codec = cases[k].codec;
                t.options.lr_schedule = "step(every=3,gamma=0.5)";
            t.options.steps = STEPS;
            t.gradient = trial_constant;
            trial_run(&t, n);
            for (int s = 0; s < STEPS; s++) {
                eta = 0.25 * pow(0.5, s / 3);
                moved += eta;
                for (size_t i = 0; i < D; i += 7) {
                    double sum = 0, want = 0;
                    for (int r = 0; r < n; r++) {
                        sum += t.x[r][s][i];
                        want += trial_initial_value(i) - moved * trial_constant(r, 0, i, 0);
                    }
                    if (!(fabs(sum - want) <= 1e-4))
                        fail_msg("%s on %d, step %d, element %zu: %g, expected %g", cases[k].method, n, s, i, sum,
                                 want);
                }
            }
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&t, t.x[0][STEPS], t.x[r][STEPS]));
            trial_drop(&t);
        }
}

/* ---- identities ---- */

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = { "gut", "gut(scaling=0)", "gut(scaling=1,graph=complete)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = of(methods[k], "sgd(lr=0.1,weight_decay=0.01)", 7),
              b = of("single", "sgd(lr=0.1,weight_decay=0.01)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        for (int s = 0; s <= 7; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* scaling 0 communicates and then adapts: averaged once more, its models are those of d-psgd that
   adapts and then communicates, to the bit. */
static void without_tracking_it_is_d_psgd_that_communicates_first_to_the_bit(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n *= 2) {
        trial a = of("gut(scaling=0,graph=complete)", "sgd(lr=0.1)", 8),
              b = of("d-psgd(graph=complete,order=atc)", "sgd(lr=0.1)", 8);
        tutti_device *d;
        float weight[TRIAL_RANKS], mean[D];
        assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int s = 0; s < 8; s++) {
            const float *x[TRIAL_RANKS];
            for (int r = 0; r < n; r++) {
                weight[r] = 1.0f / (float)n;
                x[r] = a.x[r][s];
            }
            tutti_tree_sum(d, D, n, x, weight, mean);
            for (int r = 0; r < n; r++)
                assert_true(trial_same(&a, mean, b.x[r][s]));
        }
        tutti_device_close(d);
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void equal_gradients_keep_the_models_equal(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1)", "sgd(lr=0.1,momentum=0.9,nesterov=true)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        trial a = of("gut(graph=complete)", optimizers[k], 8), b = of("gut", optimizers[k], 8);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, 4);
        trial_run(&b, 1);
        for (int s = 0; s < 8; s++)
            for (int r = 0; r < 4; r++) {
                assert_true(trial_same(&a, a.x[r][s], a.x[0][s])); /* weights of 1/4 */
                assert_true(trial_apart(&a, a.x[r][s], b.x[0][s]) < 1e-5);
            }
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- what is kept ---- */

/* Models at the beginning of a step, and of the step before. */
typedef struct long_run { const char *graph; int steps; float x[2][TRIAL_RANKS][D]; } long_run;

static float *declared(const tutti_engine *e, const char *name)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        if (strcmp(tutti_plan_state(e->plan, i, &memory)->name, name) == 0)
            return memory;
    }
    return NULL;
}

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (size_t i = 0; i < D; i++)
        values[i] = trial_initial_value(i);
}

/* Gradients that never settle. */
static tutti_status noisy_step(tutti_engine *e, int rank, int step, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (size_t i = 0; i < D; i++)
            m->g[i] = trial_quadratic(rank, 0, i, m->x[i]) +
                      4 * (float)tutti_uniform((tutti_rng){ 5, (uint64_t)rank, (uint64_t)step }, i) - 2;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status follow_sums(long_run *l, tutti_world *world, const tutti_graph *graph, tutti_engine *e,
                                tutti_error *err)
{
    const int rank = tutti_world_rank(world);
    const tutti_method *m = tutti_engine_method(e);
    const float *kept = declared(e, "gut.z");
    tutti_group all = tutti_group_workers(m->world, 4711);
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    tutti_graph_round(graph, 0, rank, in, w_in, &n_in, out, w_out, &n_out, &self);
    for (int k = 0; k < l->steps; k++) {
        float (*x)[D] = l->x[k % 2]; /* written again after another barrier */
        memcpy(x[rank], m->x, sizeof x[rank]);
        TUTTI_TRY(tutti_barrier(&all, err));
        TUTTI_TRY(noisy_step(e, rank, k, err));
        for (size_t i = 0; i < D; i++) {
            double sum = self * (double)x[rank][i];
            for (int a = 0; a < n_in; a++)
                sum += w_in[a] * (double)x[in[a]][i];
            if (!(fabs((double)kept[i] - sum) <= 1e-6 * fmax(1, fabs(sum))))
                return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s, step %d, worker %d, element %zu: %.9g, expected %.9g",
                                  l->graph, k, rank, i, (double)kept[i], sum);
        }
    }
    return tutti_engine_finish(e, err);
}

static tutti_status long_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "a", .dims = 1, .dim = { D } };
    long_run *l = arg;
    char method[60];
    tutti_graph *graph;
    tutti_engine *e;
    tutti_status status;

    snprintf(method, sizeof method, "gut(graph=%s)", l->graph);
    TUTTI_TRY(tutti_graph_open(&graph, l->graph, tutti_world_size(world), err));
    status = tutti_engine_open(
        &e, world, &param, 1,
        &(tutti_engine_options){ .method = method, .optimizer = "sgd(lr=0.125)", .batch = 2, .initial = fill }, err);
    if (status == TUTTI_OK)
        status = follow_sums(l, world, graph, e, err);
    tutti_engine_close(e);
    tutti_graph_close(graph);
    return status;
}

/* gut.md, invariant 4: the weighted sum that is kept is that of the models, and after 1000 steps
   it is no further off. There are no copies of neighbours: method/memory. */
static void stored_neighbour_sum_does_not_drift_from_the_models(void **state)
{
    static const char *const graphs[] = { "ring", "star" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++) {
        long_run *l = calloc(1, sizeof *l);
        tutti_error err = { .rank = -1 };
        assert_non_null(l);
        l->graph = graphs[k];
        l->steps = 1000;
        if (tutti_world_run("shm", 5, long_rank, l, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        free(l);
    }
}

/* ---- compared with the formula ---- */

static void every_pair_sends_what_d_psgd_sends(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1)", "sgd(lr=0.1,momentum=0.9)", "sgd(lr=0.1)" };
    static const char *const codecs[] = { NULL, NULL, "int8" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        trial a = trial_of("gut", optimizers[k], 5), b = trial_of("d-psgd", optimizers[k], 5);
        a.options.codec = b.options.codec = codecs[k];
        trial_run(&a, 5);
        trial_run(&b, 5);
        assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
        assert_memory_equal(a.messages, b.messages, sizeof a.messages);
        for (int r = 0; r < 5; r++)
            assert_int_equal(a.figures[r].bytes_sent, b.figures[r].bytes_sent);
        if (codecs[k] == NULL) /* a ring, two neighbours */
            assert_int_equal(a.figures[0].bytes_sent - a.end_bytes[0], 5 * 2 * 4 * trial_size(&a));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void several_passes_and_evaluations_do_not_change_training(void **state)
{
    trial a = of("gut", "sgd(lr=0.1,momentum=0.9)", 6), b = of("gut", "sgd(lr=0.1,momentum=0.9)", 6);

    (void)state;
    b.show = true;
    b.options.accumulate = 3; /* the trial's gradient is the same in each pass, and not added up */
    trial_run(&a, 3);
    trial_run(&b, 3);
    assert_int_equal(b.messages[0][1], a.messages[0][1] + 6); /* a message a look, so small it is; one mix a step */
    for (int r = 0; r < 3; r++)
        for (int s = 0; s <= 6; s++)
            assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
    trial_drop(&a);
    trial_drop(&b);
}

/* Worker 1 has no gradient in step 3: it only gossips, and its neighbours follow what it did. So
   the mean moves by the mean of the other gradients. */
static void skipped_gradient_moves_the_mean_by_the_others_only(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.25)", "sgd(lr=0.25,momentum=0.5)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        trial t = trial_of("gut(scaling=0.5)", optimizers[k], 8);
        trial_ends_when_not_finite(&t);
        trial_run(&t, 4);
        trial_left_out_by_one(&t);
        for (size_t i = 0; i < trial_size(&t); i += 50)
            for (int s = 0; s < 8; s++) {
                double sum = 0;
                for (int r = 0; r < 4; r++)
                    sum += t.x[r][s][i] / 4.0;
                assert_true(isfinite(sum));
                if (k == 0)
                    assert_true(fabs(sum - (trial_initial_value(i) - 0.25 * (s + 1 - (s >= 3 ? 0.25 : 0)))) < 1e-4);
            }
        trial_drop(&t);
    }
}

static tutti_status no_update(void *user, double factor, tutti_error *err)
{
    (void)user, (void)factor, (void)err;
    return TUTTI_OK;
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *sentence; } cases[] = {
        { "gut(scaling=-0.5)", "sgd(lr=0.1)",
          "method 'gut': scaling is -0.5; it must be from 0 to 1, or -1 for the default" },
        { "gut", "adam(lr=0.1)",
          "method 'gut' reads updates off the models as differences divided by the learning rate, which are sgd's and "
          "not those of 'adam'; write --optimizer 'sgd(lr=0.05)', with momentum or without" },
        { "gut(graph=one-peer-exponential)", "sgd(lr=0.1)",
          "method 'gut': graph 'one-peer-exponential' changes from round to round, and what neighbours did is read off "
          "two rounds with the same; take a graph that stays (ring, torus, exponential, complete)" },
        { "gut", "client",
          "optimizer is 'client', but method 'gut' updates along a direction of its own, which no other optimiser may "
          "change; give sgd, as sgd(lr=0.01) (in Python tutti.torch.prepare does so for an SGD)" },
    };
    tutti_error err;
    trial t;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        t = of(cases[k].method, cases[k].optimizer, 2);
        if (strcmp(cases[k].optimizer, "client") == 0)
            t.options.update = no_update;
        assert_int_equal(trial_try(&t, 5, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].sentence);
        trial_drop(&t);
    }
    t = of("gut", "sgd(lr=0.1)", 2);
    t.options.clip_norm = 1;
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "gut"));
    trial_drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_follows_the_recursion),
        cmocka_unit_test(the_mean_of_the_models_moves_by_the_mean_gradient),
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(without_tracking_it_is_d_psgd_that_communicates_first_to_the_bit),
        cmocka_unit_test(equal_gradients_keep_the_models_equal),
        cmocka_unit_test(stored_neighbour_sum_does_not_drift_from_the_models),
        cmocka_unit_test(every_pair_sends_what_d_psgd_sends),
        cmocka_unit_test(several_passes_and_evaluations_do_not_change_training),
        cmocka_unit_test(skipped_gradient_moves_the_mean_by_the_others_only),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
