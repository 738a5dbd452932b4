/* Goal: pieces that are updated as soon as they are exchanged train the bits of an update at the
   end of the step. A unit sees the values of the step before, all of them and no others, and they
   stay while it computes, whatever the optimiser, the number of workers, passes, tables, lanes
   and transports. A failure is reported and nothing hangs. What needs all gradients first is
   refused. Method: pieces.h; the reference waits at the end of the step (by_piece=no). When
   things happen is in tests/sim/by_piece_test.c. */
#include "pieces_job.h"
#include "scratch.h"

/* Both run as `like`, and see the same. */
static void same(const job *like, const char *options, const char *transport, int n)
{
    char method[2][200];
    job *a, *b;

    snprintf(method[0], sizeof method[0], "cut(bytes=512%s)", options);
    snprintf(method[1], sizeof method[1], "cut(bytes=512,by_piece=yes%s)", options);
    a = job_like(like, method[0]);
    b = job_like(like, method[1]);
    job_run(a, "shm", n);
    job_run(b, transport, n);
    job_same(a, b, n, 0);
    assert_int_equal(a->figures[n - 1].samples, b->figures[n - 1].samples);
    assert_int_equal(a->figures[n - 1].steps, b->figures[n - 1].steps);
    assert_true(a->bytes[n - 1] == b->bytes[n - 1] && a->messages[n - 1] == b->messages[n - 1]);
    drop(a);
    drop(b);
}

static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,nesterov=true)", "adamw(lr=0.01)", "sgd(lr=0.05)" };

static void piecewise_update_matches_an_update_at_step_end(void **state)
{
    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = 1; n <= RANKS; n++) {
            job *j = job_of("", optimizers[o]);
            same(j, "", "shm", n);
            same(j, ",width=3", "shm", n);
            drop(j);
        }
}

static void piecewise_update_is_exact_for_any_order_and_credit(void **state)
{
    static const char *const orders[] = { ",order=led,forward=yes", ",order=led,width=3,credit=1024",
                                          ",order=led,width=3,forward=yes,credit=512" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(orders); o++)
        for (int n = 1; n <= RANKS; n++) {
            job *j = job_of("", optimizers[o]);
            same(j, orders[o], "shm", n);
            drop(j);
        }
}

/* Values are still in use after the gradient of their unit is ready, and until the unit is
   released. */
static void nothing_is_updated_while_it_is_in_use(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->dawdles = true;
    same(j, "", "shm", 3);
    same(j, ",inside=no", "shm", 2); /* a piece meets several units */
    drop(j);
}

static void results_without_threads_are_the_same(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->options.lane = -1;
    for (int n = 1; n <= 3; n++) {
        same(j, "", "shm", n);
        same(j, ",order=led,forward=yes", "shm", n);
    }
    drop(j);
}

static void passes_schedules_and_short_steps_give_the_same_bits(void **state)
{
    job *j = job_of("", optimizers[1]);

    (void)state;
    j->options.accumulate = 3;
    j->options.lr_schedule = "cosine(warmup=2)";
    j->options.steps = STEPS;
    for (int n = 1; n <= 3; n++)
        same(j, "", "shm", n);
    j->options.accumulate = 1;
    j->options.data_samples = 9; /* in short steps some have no samples */
    for (int n = 2; n <= RANKS; n++)
        same(j, "", "shm", n);
    drop(j);
}

static void parameters_without_gradient_or_use_are_updated(void **state)
{
    job *j = job_of("", optimizers[1]); /* weights decay without a gradient */

    (void)state;
    j->unused = 3;
    same(j, "", "shm", 3);
    same(j, ",inside=no", "shm", 2);
    j->unused = -1;
    for (int u = 0; u < UNITS; u++) {
        j->frozen = u;
        same(j, ",order=led,forward=yes", "shm", 2);
    }
    drop(j);
}

static void client_memory_has_current_values_when_units_are_acquired(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->own_memory = true;
    for (int n = 1; n <= 3; n++)
        same(j, "", "shm", n);
    j->shows = 2;
    j->options.accumulate = 2;
    same(j, "", "shm", 2);
    drop(j);
}

static void client_that_acquires_no_units_sees_all_values(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->forgets = true;
    for (int own = 0; own < 2; own++) {
        j->own_memory = own == 1;
        for (int n = 1; n <= 3; n++)
            same(j, "", "shm", n);
    }
    drop(j);
}

static void tables_are_updated_by_rows(void **state)
{
    static const char *const rules[] = { "sgd(lr=0.1)", "adam(lr=0.01,lazy=on)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(rules); o++)
        for (int n = 1; n <= 3; n++) {
            job *j = job_of("", rules[o]);
            j->table[1] = j->table[5] = true;
            j->by_rows = o != 2 || n != 2;
            j->own_memory = n == 2;
            j->options.accumulate = 1 + n % 2;
            same(j, "", "shm", n);
            drop(j);
        }
}

static void evaluation_between_piecewise_updates_changes_nothing(void **state)
{
    job *a = job_of("cut(bytes=512,by_piece=yes)", optimizers[0]), *b = job_of(a->method, optimizers[0]);

    (void)state;
    b->shows = 1;
    job_run(a, "shm", 3);
    job_run(b, "shm", 3);
    job_same(a, b, 3, 0);
    drop(a);
    drop(b);
}

static void pieces_may_be_recut_while_exchanges_are_in_flight(void **state)
{
    job *j = job_of("", optimizers[1]);

    (void)state;
    for (int n = 2; n <= 3; n++) {
        same(j, ",least=64,recut_step=2,recut_bytes=64", "shm", n);
        same(j, ",least=64,order=led,forward=yes,width=2,recut_step=3,recut_bytes=2000", "shm", n);
    }
    drop(j);
}

static void results_over_sockets_match_the_reference(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    same(j, "", "tcp", 3);
    same(j, ",order=led,forward=yes,width=2", "tcp(local=tcp)", 2);
    drop(j);
}

/* ---- resuming ---- */

static void run_resumes_exactly_and_with_other_worker_counts(void **state)
{
    char directory[SCRATCH_PATH];

    (void)state;
    scratch_make(directory);
    for (int n = 1; n <= 3; n++) {
        job *a = job_of("cut(bytes=512,by_piece=yes,order=led,forward=yes)", optimizers[1]),
            *b = job_of("cut(bytes=704,by_piece=yes)", optimizers[1]);
        a->save_at = b->load_at = 3;
        a->directory = b->directory = directory;
        a->options.data_samples = b->options.data_samples = 0;
        job_run(a, "shm", n);
        job_run(b, "shm", n);
        job_same(a, b, n, 3);
        job_run(b, "shm", n % 3 + 1); /* that it can */
        drop(a);
        drop(b);
    }
    scratch_remove(directory);
}

/* ---- failures ---- */

static void a_gradient_that_is_not_finite_ends_the_run_wherever_it_is(void **state)
{
    static const char *const methods[] = { "cut(bytes=512,by_piece=yes)",
                                           "cut(bytes=512,by_piece=yes,order=led,forward=yes,width=3)",
                                           "cut(bytes=512,by_piece=yes,order=led,credit=512)" };

    (void)state;
    for (int n = 1; n <= 3; n += 2)
        for (int k = 0; k < TENSORS; k++)
            for (int step = 0; step < STEPS; step += STEPS - 1) /* the last one is reported by finish */
                job_has_nan(methods[k % 3], false, n, k, step);
}

static void worker_failing_mid_run_ends_the_run_of_all(void **state)
{
    (void)state;
    job_is_left("cut(bytes=512,by_piece=yes)", false, 0);
    job_is_left("cut(bytes=512,by_piece=yes,width=3)", false, 1);
    job_is_left("cut(bytes=512,by_piece=yes,order=led,forward=yes,width=2,credit=1024)", false, 2);
}

/* ---- what is refused ---- */

static void refuse(job *j, const char *options, const char *sentence)
{
    snprintf(j->method, sizeof j->method, "cut(by_piece=yes%s)", options);
    job_refused(j, sentence);
}

static job *plain(void)
{
    return job_of("", "sgd(lr=0.1)");
}

static tutti_status no_update(void *user, double factor, tutti_error *err)
{
    (void)user, (void)factor, (void)err;
    return TUTTI_OK;
}

static void options_needing_all_gradients_first_are_rejected(void **state)
{
    static const struct { const char *name, *why; } methods[] = {
        { "cut-step", "has a step hook, which comes after all exchanges" },
        { "cut-direction", "has an update of its own" },
        { "cut-apart", "keeps a model of its own on each worker" },
        { "cut-alone", "exchanges no gradients" },
    };
    job *j = plain();

    (void)state;
    j->options.clip_norm = 2;
    refuse(j, "",
           "clip-norm is 2, but method 'cut' updates each piece as soon as it is exchanged, before the norm of "
           "the whole gradient is known; leave clip-norm at 0, or have the method update at the end of a step");
    j = plain();
    j->options.nonfinite = TUTTI_NONFINITE_SKIP;
    refuse(j, "",
           "nonfinite=skip may skip a step, but method 'cut' updates each piece as soon as it is "
           "exchanged, before it is known whether the others are finite; leave nonfinite at stop, or "
           "have the method update at the end of a step");
    j = plain();
    j->options.loss_scale = "dynamic";
    refuse(j, "",
           "loss-scale may skip a step, but method 'cut' updates each piece as soon as it is exchanged, "
           "before it is known whether the others are finite; leave it off, or have the method update "
           "at the end of a step");
    for (int by_itself = 0; by_itself < 2; by_itself++) {
        j = job_of("", "client");
        j->options.update = by_itself ? NULL : no_update;
        refuse(j, "",
               "optimizer is 'client', whose update is one call for the whole model, but method 'cut' updates "
               "each piece as soon as it is exchanged; give its rule, as sgd(lr=0.05,momentum=0.9) (in Python "
               "tutti.torch.prepare does so for SGD, Adam and AdamW), or have the method update at the end of a step");
    }
    j = plain();
    j->options.codec = "fp16";
    refuse(j, ",inside=no",
           "codec is 'fp16', whose step begins when the exchange of the one before is over, but "
           "method 'cut' lets them overlap; omit codec, or have the method update at the end "
           "of a step");
    refuse(plain(), ",whole=yes",
           "method 'cut' would update each piece as soon as it is exchanged, but it looks at the whole gradient before "
           "it is exchanged");
    refuse(plain(), ",late=yes",
           "method 'cut' would update each piece as soon as it is exchanged, but it applies gradients some steps late");
    refuse(plain(), ",merge=yes",
           "method 'cut' would update each piece as soon as it is exchanged, but it makes one update of several steps");
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        char sentence[200];
        snprintf(sentence, sizeof sentence,
                 "method '%s' would update each piece as soon as it is exchanged, but it %s", methods[k].name,
                 methods[k].why);
        j = plain();
        snprintf(j->method, sizeof j->method, "%s(by_piece=yes)", methods[k].name);
        job_refused(j, sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(piecewise_update_matches_an_update_at_step_end),
        cmocka_unit_test(piecewise_update_is_exact_for_any_order_and_credit),
        cmocka_unit_test(nothing_is_updated_while_it_is_in_use),
        cmocka_unit_test(results_without_threads_are_the_same),
        cmocka_unit_test(passes_schedules_and_short_steps_give_the_same_bits),
        cmocka_unit_test(parameters_without_gradient_or_use_are_updated),
        cmocka_unit_test(client_memory_has_current_values_when_units_are_acquired),
        cmocka_unit_test(client_that_acquires_no_units_sees_all_values),
        cmocka_unit_test(tables_are_updated_by_rows),
        cmocka_unit_test(evaluation_between_piecewise_updates_changes_nothing),
        cmocka_unit_test(pieces_may_be_recut_while_exchanges_are_in_flight),
        cmocka_unit_test(results_over_sockets_match_the_reference),
        cmocka_unit_test(run_resumes_exactly_and_with_other_worker_counts),
        cmocka_unit_test(a_gradient_that_is_not_finite_ends_the_run_wherever_it_is),
        cmocka_unit_test(worker_failing_mid_run_ends_the_run_of_all),
        cmocka_unit_test(options_needing_all_gradients_first_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
