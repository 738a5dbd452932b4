/* Goal: onebit-adam and qadam are Adam until v is frozen, and afterwards what
   docs/methods/onebit-adam.md and qadam.md define. Method: the toy client on ranks that are
   threads; a second, separate computation where there is a formula. */
#include "encoded.h"

/* One worker: the gradient is known, so all of it can be computed separately. With bias
   correction, the correction of v is frozen with it, and that of m continues (BAGUA's
   pitfall). */
static void one_worker_is_adam_with_its_second_moment_frozen(void **state)
{
    enum { N = 12 };
    const double b1 = 0.8, b2 = 0.9, eps = 1e-3, lr = 0.05, wd = 0.01;
    static const struct { const char *name; int freeze; bool correct; } rows[] = {
        { "onebit-adam(freeze_step=3",                    3,   false },
        { "onebit-adam(freeze_step=5",                    5,   false },
        { "onebit-adam(freeze_step=100",                  100, false },
        { "onebit-adam(freeze_step=3,bias_correction=on", 3,   true },
        { "qadam(warmup_steps=2",                         2,   true },
        { "qadam(warmup_steps=4,bias_correction=off",     4,   false },
        { "qadam(eps=0.001",                              100, true },
    };

    (void)state;
    for (size_t f = 0; f < TUTTI_LENGTH(rows); f++) {
        char method[160];
        job *j;
        double *m = calloc(ELEMENTS, sizeof *m), *v = calloc(ELEMENTS, sizeof *v), *x = calloc(ELEMENTS, sizeof *x),
               worst = 0;
        snprintf(method, sizeof method, "%s,beta1=%g,beta2=%g%s)", rows[f].name, b1, b2,
                 strstr(rows[f].name, "(eps") != NULL ? "" : ",eps=0.001");
        j = job_of(method, NULL, "sgd(lr=0.05,weight_decay=0.01)", N);
        run_job(j, 1);
        for (int i = 0; i < ELEMENTS; i++)
            x[i] = j->x[0][i];
        for (int s = 0; s < N; s++)
            for (int i = 0; i < ELEMENTS; i++) {
                const double g = j->g[s][i], c1 = rows[f].correct ? 1 - pow(b1, s + 1) : 1,
                             c2 = rows[f].correct ? 1 - pow(b2, fmin(s + 1, rows[f].freeze)) : 1;
                m[i] = b1 * m[i] + (1 - b1) * g;
                if (s < rows[f].freeze)
                    v[i] = b2 * v[i] + (1 - b2) * g * g;
                x[i] -= lr * (m[i] / c1 / (sqrt(v[i] / c2) + eps) + wd * x[i]);
                worst = fmax(worst, fabs(x[i] - j->x[s + 1 < N ? s + 1 : N][i]) / (1 + fabs(x[i])));
            }
        if (worst > 1e-4)
            fail_msg("%s: %g from the formula", method, worst);
        assert_int_equal(j->events, rows[f].freeze < N);
        for (int s = rows[f].freeze; s + 1 < N; s++)
            assert_memory_equal(j->v[s], j->v[s + 1], sizeof j->v[s]);
        if (rows[f].freeze > 1)
            assert_memory_not_equal(j->v[0], j->v[N - 1], sizeof j->v[0]);
        free(m);
        free(v);
        free(x);
        free(j);
    }
}

/* Until it is frozen it is Adam, without correction of the bias, of the mean gradient of all.
   Workers with equal gradients, as many as a power of two, whose mean is exact: the bits of one
   worker. */
static void warmup_matches_adam_on_the_mean_gradient(void **state)
{
    enum { N = 10 };
    const double b1 = 0.8, b2 = 0.9, eps = 1e-3, lr = 0.05;
    static const char *const method = "onebit-adam(freeze_step=100,beta1=0.8,beta2=0.9,eps=1e-3)";
    job *one = job_of(method, NULL, "sgd(lr=0.05)", N);

    (void)state;
    one->alike = true;
    run_job(one, 1);
    for (int n = 2; n <= 5; n++) {
        job *j = job_of(method, NULL, "sgd(lr=0.05)", N);
        double worst = 0;
        run_job(j, n);
        for (int i = 0; i < ELEMENTS; i++) {
            double x = j->x[0][i], m = 0, v = 0;
            for (int s = 0; s < N; s++) {
                double g = x;
                for (int r = 0; r < n; r++)
                    g -= (double)pull_of(r, i, s) / n;
                m = b1 * m + (1 - b1) * g;
                v = b2 * v + (1 - b2) * g * g;
                x -= lr * m / (sqrt(v) + eps);
                worst = fmax(worst, fmax(fabs(x - j->x[s + 1][i]) / (1 + fabs(x)), fabs(v - j->v[s][i]) / (1 + v)));
            }
        }
        if (!(worst <= 1e-4))
            fail_msg("%d workers: %g from Adam of the mean gradient", n, worst);
        free(j);
        if (n != 2 && n != 4)
            continue;
        j = job_of(method, NULL, "sgd(lr=0.05)", N);
        j->alike = true;
        run_job(j, n);
        for (int s = 0; s < N; s++) {
            assert_memory_equal(j->x[s + 1], one->x[s + 1], sizeof j->x[0]);
            assert_memory_equal(j->v[s], one->v[s], sizeof j->v[0]);
        }
        free(j);
    }
    free(one);
}

/* With correction of the bias the warm-up is the optimiser adam under ddp, except for the
   rounding of lr m. */
static void bias_corrected_warmup_matches_ddp_with_adam(void **state)
{
    enum { N = 10 };
    static const char *const methods[] = { "onebit-adam(bias_correction=on,freeze_step=100)", "qadam" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 1; n <= 4; n += 3) {
            job *a = job_of(methods[k], NULL, "sgd(lr=0.05)", N), *b = job_of("ddp", NULL, "adam(lr=0.05)", N);
            double worst = 0;
            run_job(a, n), run_job(b, n);
            for (int s = 0; s <= N; s++)
                for (int i = 0; i < ELEMENTS; i++)
                    worst = fmax(worst, fabs((double)a->x[s][i] - b->x[s][i]));
            if (!(worst <= 2e-6))
                fail_msg("%s on %d: %g from adam", methods[k], n, worst);
            free(a), free(b);
        }
}

/* A share of the run is the corresponding number of steps; a run in which no switch falls is
   notified of that when it begins. */
static void a_warm_up_may_be_a_share_of_the_run(void **state)
{
    static const struct { const char *method; int steps, frozen; const char *said;
    } rows[] = {
        { "onebit-adam(freeze_step=0.4)", 10, 4, "freeze: the second moment is frozen after 4 steps" },
        { "qadam(warmup_steps=0.25)", 10, 3, "freeze: the second moment is frozen after 3 steps" },
        { "qadam(warmup_steps=0.001)", 10, 1, "freeze: the second moment is frozen after 1 steps" },
        { "qadam(warmup_steps=1)", 10, 1, "freeze: the second moment is frozen after 1 steps" },
        { "onebit-adam(freeze_step=10)", 10, 10,
          "codec: freeze_step is 10 and the run has 10 steps, so the second moment is not frozen and nothing is "
          "compressed; give fewer, or a share of the run such as freeze_step=0.2\nfreeze: " },
        { "qadam", 8, 0, "codec: warmup_steps is 100 and the run has 8 steps" },
        { "onebit-adam(freeze_step=9)", 10, 9, "freeze: the second moment is frozen after 9 steps" },
        { "onebit-adam", 8, 0,
          "codec: freeze_step=0 compares the second moment with that of 1000 steps before, and the run has 8, so "
          "it is not frozen and nothing is compressed; give the steps, or a share of the run such as "
          "freeze_step=0.2" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        job *j = job_of(rows[k].method, NULL, "sgd(lr=0.001)", rows[k].steps);
        j->t.options.steps = rows[k].steps;
        run_job(j, 2);
        if (strstr(j->event, rows[k].said) == NULL)
            fail_msg("%s in %d steps: '%s'", rows[k].method, rows[k].steps, j->event);
        for (int s = 1; s < rows[k].steps; s++)
            assert_int_equal(memcmp(j->v[s], j->v[s - 1], sizeof j->v[s]) == 0,
                             rows[k].frozen > 0 && s >= rows[k].frozen);
        free(j);
    }
}

static size_t bits_of(size_t n) { return 4 + ceil_div(n, 8); }
static size_t bytes_of(size_t n) { return 8 + n; }
static size_t chunks_of(size_t n) { return 8 * ceil_div(n, 256) + n; }

/* To the byte, for lengths that are no multiples of 8 W; and all workers have the same x and m,
   where m is what the next step's message starts from. */
static void replicas_are_equal_and_traffic_is_encoded_after_warmup(void **state)
{
    /* by_all: the messages of all go to all */
    static const struct { const char *method, *codec; size_t (*bytes)(size_t n); bool by_all;
    } rows[] = {
        { "onebit-adam(freeze_step=4,bucket_mb=1000)", "ef(onebit(scale=l1,block=0),server=on)", bits_of, false },
        { "onebit-adam(freeze_step=4,bucket_mb=1000,server_ef=off)", "ef(onebit(scale=l1,block=0),server=off)", bits_of,
          true },
        { "qadam(warmup_steps=4,bucket_mb=1000)", "minmax8(chunk=0)", bytes_of, false },
        { "qadam(warmup_steps=4,bucket_mb=1000,chunk=256,error_feedback=on)", "ef(minmax8(chunk=256),server=on)",
          chunks_of, false },
    };

    (void)state;
    for (size_t k = 0; k < 4 * TUTTI_LENGTH(rows); k++) {
        const size_t row = k / 4, n = 2 + k % 4;
        job *j = job_of(rows[row].method, NULL, "sgd(lr=0.01)", 10);
        char said[200];
        uint64_t coded = 0;
        run_job(j, (int)n);
        for (int s = 0; s < 10; s++)
            for (size_t r = 1; r < n; r++)
                assert_int_equal(j->hash[r][s], j->hash[0][s]);
        for (int s = 4; s < 9; s++)
            assert_memory_equal(j->v[s], j->v[s + 1], sizeof j->v[s]);
        for (int t = 0; t < TOY_TENSORS; t++) {
            const size_t count = j->t.count[t], each = ceil_div(count, n * 64) * 64;
            if (n < 4 || rows[row].by_all)
                coded += n * (n - 1) * rows[row].bytes(count);
            else
                for (size_t low = 0; low < count; low += each)
                    coded += 2 * (n - 1) * rows[row].bytes(count - low < each ? count - low : each);
        }
        for (int s = 0; s < 10; s++)
            if (s < 4)
                assert_in_range(j->bytes[s], 2 * (n - 1) * 4 * ELEMENTS, n * (n - 1) * 4 * ELEMENTS);
            else
                assert_int_equal(j->bytes[s], coded);
        snprintf(said, sizeof said,
                 "freeze: the second moment is frozen after 4 steps; from now on momentum travels as %s",
                 rows[row].codec);
        assert_true(was_said(j, said));
        free(j);
    }
}

/* v == 0 when it is frozen: no noise of the codec's scale may be divided by eps. */
static void weights_that_no_gradient_reached_stay_where_they_are(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const int mask = k % 2;
        job *j = job_of(
            (const char *const[]){ "onebit-adam(freeze_step=3,mask=none)", "onebit-adam(freeze_step=3,mask=auto)",
                                   "qadam(warmup_steps=3,mask=none)", "qadam(warmup_steps=3,mask=auto)" }[k],
            NULL, "sgd(lr=0.01)", 8);
        j->dead = 1234;
        run_job(j, 4);
        assert_true(j->x[3][1234] == j->x[0][1234]);
        assert_int_equal(j->x[8][1234] == j->x[0][1234], mask);
        assert_true(j->x[8][1235] != j->x[3][1235]);
        free(j);
    }
}

/* All of the warm-up is Adam, its last step too, to the bit; the mask is for what is compressed,
   from the next step on. */
static void last_warmup_step_is_not_compressed(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int n = 1; n <= 4; n += 3) {
            job *j = job_of(k == 0 ? "onebit-adam(freeze_step=3)" : "qadam(warmup_steps=3)", NULL, "sgd(lr=0.01)", 4);
            job *dense =
                job_of(k == 0 ? "onebit-adam(freeze_step=100)" : "qadam(warmup_steps=100)", NULL, "sgd(lr=0.01)", 4);
            run_job(j, n);
            run_job(dense, n);
            assert_memory_equal(j->x[3], dense->x[3], sizeof j->x[0]);
            assert_memory_not_equal(j->x[4], dense->x[4], sizeof j->x[0]);
            free(j);
            free(dense);
        }
}

/* D = 4 steps: with gradients of a steady size |v_t|_1 / |v_(t-D)|_1 comes near 1 after a few
   windows, and not before the rate has risen. */
static void second_moment_is_frozen_automatically_when_stable(void **state)
{
    int frozen[2] = { -1, -1 };

    (void)state;
    for (int warmup = 0; warmup < 2; warmup++) {
        job *j = job_of("onebit-adam(beta2=0.75)", NULL, "sgd(lr=0.001)", STEPS);
        j->t.options.lr_schedule = warmup ? "constant(warmup=13)" : "constant";
        j->t.options.steps = STEPS;
        run_job(j, 2);
        for (int s = STEPS - 2; s >= 0; s--)
            if (memcmp(j->v[s], j->v[s + 1], sizeof j->v[s]) != 0) {
                frozen[warmup] = s + 2; /* steps of the warm-up */
                break;
            }
        if (warmup == 0)
            for (int s = 4; s < STEPS; s++) { /* the rule, from the states themselves */
                double now = 0, before = 0;
                for (int i = 0; i < ELEMENTS; i++) {
                    now += j->v[s][i];
                    before += j->v[s - 4][i];
                }
                if (now / before >= 0.96 && before / now >= 0.96) {
                    assert_int_equal(frozen[0], s + 1);
                    break;
                }
            }
        free(j);
    }
    assert_in_range(frozen[0], 6, STEPS - 2);
    assert_in_range(frozen[1], frozen[0] > 14 ? frozen[0] : 14, STEPS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_is_adam_with_its_second_moment_frozen),
        cmocka_unit_test(warmup_matches_adam_on_the_mean_gradient),
        cmocka_unit_test(bias_corrected_warmup_matches_ddp_with_adam),
        cmocka_unit_test(a_warm_up_may_be_a_share_of_the_run),
        cmocka_unit_test(replicas_are_equal_and_traffic_is_encoded_after_warmup),
        cmocka_unit_test(weights_that_no_gradient_reached_stay_where_they_are),
        cmocka_unit_test(last_warmup_step_is_not_compressed),
        cmocka_unit_test(second_moment_is_frozen_automatically_when_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
