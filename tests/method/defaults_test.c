/* Goal: a method's defaults of the run's options hold where the user has not set them, for the
   number of workers there are; and a client that asks for epochs or samples trains as long under
   every method. Method: rows of toys and of the registry; engines on the ranks of two threads,
   whose gradients are 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "../../src/method/rule.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

static void defaults_over_n_are_divided_by_the_worker_count(void **state)
{
    static const tutti_method_default rows[] = {
        { "optimizer", "sgd(lr=0.2/n,momentum=0.5)" }, { "lr-schedule", "step(at=30/n:60/n,x2/n=1)" },
        { "codec", "topk(ratio=1/nodes)" }, { "validation", "0.02" }, { 0 }
    };
    static const tutti_method_ops ops = { .name = "toy", .defaults = rows }, none = { .name = "none" };
    static const struct { const char *option; int workers; const char *value; } cases[] = {
        { "optimizer", 1, "sgd(lr=0.2,momentum=0.5)" },
        { "optimizer", 8, "sgd(lr=0.025,momentum=0.5)" },
        { "optimizer", 3, "sgd(lr=0.06666666666666667,momentum=0.5)" },
        { "optimizer", 1024, "sgd(lr=0.0001953125,momentum=0.5)" },
        { "lr-schedule", 2, "step(at=15:30,x2/n=1)" }, /* the 2 is a part of a name */
        { "codec", 4, "topk(ratio=1/nodes)" },
        { "validation", 4, "0.02" },
    };
    char value[TUTTI_METHOD_DEFAULT_BYTES];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        assert_true(tutti_method_default_of(&ops, "toy", cases[i].option, NULL, cases[i].workers, value));
        assert_string_equal(value, cases[i].value);
    }
    assert_false(tutti_method_default_of(&ops, "toy", "batch", NULL, 2, value));
    assert_false(tutti_method_default_of(&none, "none", "optimizer", NULL, 2, value));
    assert_false(tutti_method_default_of(&ops, "toy", "optimizer", "adam", 2, value));
}

/* A method whose default depends on its own options, and that adds to a given adam. */
static void conditional_defaults_apply_and_extend_given_options(void **state)
{
    typedef struct toy { int64_t parts; int way; } toy;
    static const tutti_option options[] = {
        { "way", TUTTI_CHOICE, TUTTI_AT(toy, way), 0, 0, 2, "plain|fast|own", "a way" },
        { "parts", TUTTI_INT, TUTTI_AT(toy, parts), 1, 1, 9, NULL, "parts" }, { 0 }
    };
    static const tutti_method_default rows[] = {
        { "optimizer", "sgd(lr=0.3)", "way=own&parts>4" },
        { "optimizer", "adam(lr=0.2/n,eps=0.01)", "way=fast|own&optimizer=adam|adamw" },
        { "optimizer", "sgd(lr=0.2/n)", "way=own" },
        { "lr-schedule", "cosine", "parts>1" },
        { 0 }
    };
    static const tutti_method_ops ops = { .name = "toy", .options = options, .self_bytes = sizeof(toy),
                                          .defaults = rows };
    static const struct { const char *method, *option, *given, *value; } cases[] = {
        { "toy", "optimizer", NULL, NULL },
        { "toy(way=fast)", "optimizer", "", NULL },
        { "toy(own)", "optimizer", NULL, "sgd(lr=0.1)" },
        { "toy(way=own,parts=5)", "optimizer", "", "sgd(lr=0.3)" },
        { "toy(way=own)", "lr-schedule", NULL, NULL },
        { "toy(parts=2)", "lr-schedule", NULL, "cosine" },
        { "toy(parts=2)", "lr-schedule", "constant", NULL },
        { "toy", "optimizer", "adam", NULL },
        { "toy(fast)", "optimizer", "sgd(lr=1)", NULL },
        { "toy(fast)", "optimizer", "ada", NULL },
        { "toy(fast)", "optimizer", "adam", "adam(lr=0.1,eps=0.01)" },
        { "toy(fast)", "optimizer", "adamw()", "adamw(lr=0.1,eps=0.01)" },
        { "toy(own)", "optimizer", "adam( beta1=0.5 ) ", "adam( beta1=0.5 ,lr=0.1,eps=0.01)" },
        { "toy(own,9)", "optimizer", "adam(0.004)", "adam(0.004,eps=0.01)" }, /* lr is the first */
        { "toy(own)", "optimizer", "adam(eps=1e-8,lr=1)", NULL },
        { "toy(own)", "optimizer", "adam(lr=", NULL },
        { "toy(way=none)", "optimizer", NULL, NULL },
    };
    char value[TUTTI_METHOD_DEFAULT_BYTES];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++)
        if (tutti_method_default_of(&ops, cases[i].method, cases[i].option, cases[i].given, 2, value) !=
            (cases[i].value != NULL))
            fail_msg("case %zu: %s", i, cases[i].value != NULL ? "none" : value);
        else if (cases[i].value != NULL)
            assert_string_equal(value, cases[i].value);
}

static void every_default_of_the_registry_is_a_spec_or_a_number(void **state)
{
    static const int workers[] = { 1, 2, 3, 8, 1024 };
    char value[TUTTI_METHOD_DEFAULT_BYTES];
    tutti_error err;
    size_t rows = 0;

    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        for (const tutti_method_default *d = tutti_methods[i]->defaults; d != NULL && d->option != NULL; d++, rows++)
            for (size_t k = 0; k < TUTTI_LENGTH(workers); k++) {
                tutti_spec *spec;
                double numbers[1];
                if (d->when == NULL)
                    assert_true(tutti_method_default_of(tutti_methods[i], tutti_methods[i]->name, d->option, NULL,
                                                        workers[k], value));
                else
                    snprintf(value, sizeof value, "%s", d->value);
                if (tutti_option_positives(value, numbers, 1) == 1)
                    continue;
                assert_int_equal(tutti_spec_open(&spec, value, &err), TUTTI_OK);
                tutti_spec_close(spec);
            }
    assert_true(rows > 0);
}

/* ---- engines ---- */

enum { RANKS = 2, COUNT = 64 };
typedef struct job {
    tutti_engine_options options;
    uint64_t epochs, samples;    /* one of them; 0: none */
    bool twice;                  /* the first half of it first */
    double lr[RANKS];            /* the optimiser's */
    double eps;                  /* rank 0's, of an adam */
    tutti_figures figures[RANKS];
} job;

static tutti_status zero_step(tutti_engine *e, tutti_error *err)
{
    static const float zeros[COUNT];
    tutti_pass pass;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, 0, true, err));
        TUTTI_TRY(tutti_engine_grad_ready_from(e, 0, zeros, TUTTI_F32, err)); /* which every method takes */
        for (int64_t i = 0; pass.losses != NULL && i < pass.samples; i++)
            pass.losses[i] = 0;
        TUTTI_TRY(tutti_engine_unit_release(e, 0, true, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status train_until(tutti_engine *e, uint64_t epochs, uint64_t samples, tutti_error *err)
{
    bool more = true;

    while (more) {
        if (epochs > 0)
            TUTTI_TRY(tutti_engine_more_epochs(e, epochs, &more, err));
        else
            TUTTI_TRY(tutti_engine_more_samples(e, samples, &more, err));
        if (more)
            TUTTI_TRY(zero_step(e, err));
    }
    return TUTTI_OK;
}

static tutti_status held_out(void *user, double *loss, tutti_error *err)
{
    (void)user, (void)err;
    *loss = 1;
    return TUTTI_OK;
}

static tutti_status work(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { COUNT } };
    job *j = arg;
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &j->options, err);

    if (status != TUTTI_OK)
        return status;
    j->lr[tutti_world_rank(world)] =
        tutti_engine_method(e)->optim != NULL ? tutti_optim_lr(tutti_engine_method(e)->optim) : -1;
    if (tutti_world_rank(world) == 0 && strncmp(tutti_engine_method(e)->optim->ops->name, "adam", 4) == 0)
        j->eps = rule_real(tutti_engine_method(e)->optim, "eps");
    if (j->twice)
        status = train_until(e, j->epochs / 2, j->samples / 2, err);
    if (status == TUTTI_OK && j->epochs + j->samples > 0)
        status = train_until(e, j->epochs, j->samples, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        tutti_engine_figures(e, &j->figures[tutti_world_rank(world)]);
    tutti_engine_close(e);
    return status;
}

static void run(job *j)
{
    tutti_error err = { .text = "" };

    if (tutti_world_run("shm", RANKS, work, j, &err) != TUTTI_OK)
        fail_msg("%s: %s", j->options.method, err.text);
}

static void client_options_override_the_methods_defaults(void **state)
{
    static const struct { const char *method, *optimizer; double lr;
    } cases[] = {
        { NULL, NULL, 0.05 },
        { "ddp", NULL, 0.05 },
        { "ddp", "", 0.05 },
        { "asgd", NULL, 0.05 },
        { "asgd(softsync=2)", "", 0.05 },
        { "asgd", "sgd(lr=0.125,momentum=0.9)", 0.125 },
        { "onebit-adam", NULL, 0.001 },
        { "onebit-adam", "sgd(lr=0.25)", 0.25 },
        { "bagua", NULL, 0.05 },
        { "bagua(algorithm=qadam)", NULL, 0.001 },
        { "bagua(algorithm=qadam)", "sgd(lr=0.25)", 0.25 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        job j = { .options = { .method = cases[i].method, .optimizer = cases[i].optimizer } };
        run(&j);
        assert_true(j.lr[0] == cases[i].lr && j.lr[1] == cases[i].lr);
    }
}

/* The method adds what a given adam lacks; what is given is not touched. */
static void method_defaults_complete_a_given_optimizer(void **state)
{
    static const struct { const char *method, *optimizer; double eps; } cases[] = {
        { "ddp", "adam", 1e-8 },
        { "qg-dsgdm", "adam", 1e-4 },
        { "qg-dsgdm", "adamw(lr=0.5)", 1e-4 },
        { "qg-dsgdm", "adam(eps=1e-8)", 1e-8 },
        { "saddle", "adam(lr=0.5)", 1e-4 },
        { "saddle(variant=n)", "adam", 1e-8 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        job j = { .options = { .method = cases[i].method, .optimizer = cases[i].optimizer } };
        run(&j);
        assert_true(j.eps == cases[i].eps);
    }
}

/* 100 samples in batches of 16: an epoch of two workers is 4 steps, or 7 gradients, the last of
   them cut. The samples of a worker that a step of backup-workers does not wait for are not
   counted, so there it waits for all. The clock of scadles runs a hundred times faster than by
   its defaults. */
static void every_method_trains_the_same_samples_per_epoch(void **state)
{
    static const struct { const char *name, *spec; } otherwise[] = {
        { "backup-workers", "backup-workers(backup=0)" },
        { "scadles", "scadles(rate_low=2000,rate_high=10000,window_s=0.01)" },
    };

    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        for (int twice = 0; twice < 2; twice++) {
            const char *method = tutti_methods[i]->name;
            if (tutti_methods[i]->drive != NULL) /* those need a client of their own: method/hetpipe, method/wavelet */
                continue;
            for (size_t k = 0; k < TUTTI_LENGTH(otherwise); k++)
                if (strcmp(tutti_methods[i]->name, otherwise[k].name) == 0)
                    method = otherwise[k].spec;
            job j = {
                .options = {
                    .method = method, .batch = 16, .data_samples = 100, .evaluate = held_out, .names = true,
                    .needs = true,
                },
                .epochs = 4, .twice = twice,
            };
            run(&j);
            if (j.figures[0].samples != 400 || j.figures[1].samples != 400)
                fail_msg("%s: 4 epochs of 100 samples were %llu and %llu samples", method,
                         (unsigned long long)j.figures[0].samples, (unsigned long long)j.figures[1].samples);
        }
}

static void training_stops_at_the_first_step_with_enough_samples(void **state)
{
    static const struct { const char *method; uint64_t data, asked, had; } cases[] = {
        { "ddp", 0, 1, 16 },       { "asgd", 0, 1, 8 },       /* a step of both; a gradient of either */
        { "ddp", 0, 160, 160 },    { "asgd", 0, 160, 160 },
        { "ddp", 0, 161, 176 },    { "asgd", 0, 161, 168 },
        { "ddp", 100, 100, 100 },  { "asgd", 100, 100, 100 }, /* an epoch's last step is cut */
        { "ddp", 100, 97, 100 },   { "asgd", 100, 97, 100 },
        { "ddp", 100, 96, 96 },    { "asgd", 100, 96, 96 },
        { "ddp", 100, 250, 264 },  { "asgd", 100, 250, 256 },
        { "local-sgd", 100, 250, 264 }, { "ringmaster-asgd", 100, 250, 256 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        job j = {
            .options = { .method = cases[i].method, .batch = 8, .data_samples = cases[i].data },
            .samples = cases[i].asked,
        };
        run(&j);
        if (j.figures[0].samples != cases[i].had)
            fail_msg("%s, %llu samples asked for: %llu, and not %llu", cases[i].method,
                     (unsigned long long)cases[i].asked, (unsigned long long)j.figures[0].samples,
                     (unsigned long long)cases[i].had);
    }
}

static void impossible_training_lengths_are_rejected(void **state)
{
    tutti_error err = { .text = "" };
    job unknown = { .options = { .batch = 8 }, .epochs = 2 },
        endless = { .options = { .batch = 1, .data_samples = 100 }, .epochs = UINT64_MAX / 2 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", RANKS, work, &unknown, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(
        err.text, "2 epochs of a training set whose size is not given; give data_samples when opening the engine"));
    assert_int_equal(tutti_world_run("shm", RANKS, work, &endless, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "that many epochs are more than 2^63 steps; ask for fewer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_over_n_are_divided_by_the_worker_count),
        cmocka_unit_test(conditional_defaults_apply_and_extend_given_options),
        cmocka_unit_test(method_defaults_complete_a_given_optimizer),
        cmocka_unit_test(every_default_of_the_registry_is_a_spec_or_a_number),
        cmocka_unit_test(client_options_override_the_methods_defaults),
        cmocka_unit_test(every_method_trains_the_same_samples_per_epoch),
        cmocka_unit_test(training_stops_at_the_first_step_with_enough_samples),
        cmocka_unit_test(impossible_training_lengths_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
