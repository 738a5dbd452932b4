/* Goal: loss scaling as src/engine/scaler.c promises it: a power of two changes no bit; an
   overflow makes the workers concerned skip the step and changes only the scale and the counts;
   the scale follows its rule; it survives a checkpoint. Method: the toy client, whose gradient is
   multiplied by pass.scale as it is computed; overflows put in where the test wants them; hashes
   of models; scales against tables worked out by hand from the rule. */
#include <stdlib.h>
#include <unistd.h>

#include "scratch.h"
#include "toy.h"
#include "engine/check.h"

enum { STEPS_MOST = 24, RANKS = 4 };

typedef struct job {
    toy t;
    const char *directory;        /* NULL: nothing is saved or loaded */
    int save_at;                  /* > 0: saved before this step */
    int load_at;                  /* > 0: loaded, and begun with this step */
    uint64_t hash[RANKS], each_step[RANKS][STEPS_MOST], skipped[RANKS];
    double scale[RANKS][STEPS_MOST]; /* after each step */
    int events[RANKS];
    char event[RANKS][400];       /* the last one */
} job;

static job job_of(const char *method, const char *scale)
{
    job j = { .t = toy_default() };

    j.t.options.method = method;
    j.t.options.loss_scale = scale;
    j.t.options.optimizer = "sgd(lr=0.05)";
    j.t.count[1] = 1200;
    j.t.count[3] = 901;
    j.t.bad_step = -1;
    return j;
}

static tutti_status steps(tutti_engine *e, job *j, toy *t, int rank, tutti_error *err)
{
    for (int k = j->load_at; k < t->steps; k++) {
        tutti_figures f;
        if (j->save_at > 0 && k == j->save_at)
            TUTTI_TRY(tutti_engine_save(e, j->directory, "{}", 1, err));
        TUTTI_TRY(toy_step(e, t, err));
        tutti_engine_figures(e, &f);
        j->scale[rank][k] = f.loss_scale;
        j->each_step[rank][k] = toy_hash(e);
    }
    return tutti_engine_finish(e, err);
}

static tutti_status load(tutti_engine *e, tutti_world *world, const char *directory, tutti_error *err)
{
    char found[512];
    tutti_checkpoint *c;
    tutti_status status;

    TUTTI_TRY(tutti_checkpoint_find(tutti_world_runtime(world), directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static tutti_status rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int r = tutti_world_rank(world);
    const tutti_event_record *events;
    toy t = j->t;
    tutti_engine *e;
    tutti_figures f;
    tutti_status status;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    status = j->load_at > 0 ? load(e, world, j->directory, err) : TUTTI_OK;
    if (status == TUTTI_OK)
        status = steps(e, j, &t, r, err);
    j->hash[r] = toy_hash(e);
    tutti_engine_figures(e, &f);
    j->skipped[r] = f.skipped;
    j->events[r] = tutti_engine_events(e, &events);
    if (j->events[r] > 0)
        snprintf(j->event[r], sizeof j->event[r], "%s: %s", events[j->events[r] - 1].kind,
                 events[j->events[r] - 1].text);
    tutti_engine_close(e);
    return status;
}

static void run(job *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, rank, j, &err) != TUTTI_OK)
        fail_msg("%s, %s: %s", j->t.options.method, j->t.options.loss_scale, err.text);
}

/* Products and sums of numbers times 2^k are the products and sums times 2^k, to the bit:
   gradients here are far from both ends of float32. Whatever exchanges it, a method with state of
   its own or a codec, has the gradient after the scale was divided out. */
static void a_scale_that_is_a_power_of_two_changes_no_bit(void **state)
{
    static const struct { const char *method, *codec; int64_t accumulate;
    } cases[] = {
        { "ddp", "", 1 },
        { "ddp", "", 3 },
        { "ddp", "ef(topk(ratio=0.1))", 1 },
        { "ddp", "fp16", 1 },
        { "single", "", 2 },
        { "d-psgd", "", 1 },
        { "local-sgd(period=3)", "", 2 },
        { "local-sgd(period=2,warmup=3)", "", 1 },
        { "onebit-adam(freeze_step=3)", "", 1 },
        { "onebit-adam(freeze_step=2,bias_correction=on)", "", 2 },
        { "signum", "", 2 },
        { "demo", "", 2 },
        { "dgc", "", 1 },
        { "lasgd(local_steps=2,max_delay=0)", "", 1 },
        { "powersgd(rank=2)", "", 1 },
        { "hetero-ring", "", 1 },
        { "sgp", "", 1 },
        { "bagua", "", 2 },
        { "bagua(algorithm=decentralized)", "", 1 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const int n = strcmp(cases[i].method, "single") == 0 ? 1 : 3;
        job off = job_of(cases[i].method, "off"), half = job_of(cases[i].method, "static(scale=0.5)"),
            large = job_of(cases[i].method, "dynamic(init=1048576,interval=2)");
        job *const all[] = { &off, &half, &large };
        for (size_t k = 0; k < TUTTI_LENGTH(all); k++) {
            all[k]->t.options.codec = cases[i].codec;
            all[k]->t.options.accumulate = cases[i].accumulate;
            all[k]->t.rows[1] = 30;
            run(all[k], n);
        }
        for (int r = 0; r < n; r++)
            if (half.hash[r] != off.hash[r] || large.hash[r] != off.hash[r])
                fail_msg("%s, codec '%s': worker %d has other values with a scale", cases[i].method, cases[i].codec, r);
        assert_true(off.scale[0][0] == 0 && half.scale[0][0] == 0.5 && large.scale[0][6] == 8388608);
        assert_int_equal(large.skipped[0], 0);
    }
}

/* ---- the rule, against tables ---- */
static void the_scale_follows_its_rule(void **state)
{
    static const struct { const char *spec; uint64_t bad; int steps; double scale[12];
    } cases[] = {
        { "dynamic(init=1024,interval=3)", 0, 7, { 1024, 1024, 2048, 2048, 2048, 4096, 4096 } },
        /* at once */
        { "dynamic(init=1024,interval=3)", 1 << 0, 5, { 512, 512, 512, 1024, 1024 } },
        /* two in a row, at a step that would have grown */
        { "dynamic(init=1024,interval=3)", 3 << 2, 8, { 1024, 1024, 512, 256, 256, 256, 512, 512 } },
        { "dynamic(init=1024,interval=2,growth=4,backoff=0.25)", 1 << 2, 6, { 1024, 4096, 1024, 1024, 4096, 4096 } },
        { "dynamic(init=1024,interval=4,hysteresis=2)",
          1 << 1 | 1 << 3,
          9,
          { 1024, 1024, 1024, 512, 512, 512, 512, 1024, 1024 } },
        /* growth brings hysteresis back */
        { "dynamic(init=1024,interval=2,hysteresis=2)",
          1 << 0 | 1 << 4 | 1 << 5,
          8,
          { 1024, 1024, 2048, 2048, 2048, 1024, 1024, 2048 } },
        { "dynamic(init=4,min=2,interval=9,on_min=continue)", 7 << 1, 6, { 4, 2, 2, 2, 2, 2 } },
        /* 2^100, 2^120, and no more: 2^140 is no float32 */
        { "dynamic(init=1.2676506002282294e30,growth=1048576,interval=1)",
          0,
          4,
          { 0x1p120, 0x1p120, 0x1p120, 0x1p120 } },
        { "static(scale=64)", 5 << 1, 5, { 64, 64, 64, 64, 64 } },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        job j = job_of("ddp", cases[i].spec);
        int bad = 0;
        j.t.bad_rank = 1;
        j.t.bad_tensor = 3;
        j.t.bad_steps = cases[i].bad;
        j.t.steps = cases[i].steps;
        run(&j, 2);
        for (int k = 0; k < cases[i].steps; k++) {
            bad += (int)(cases[i].bad >> k & 1);
            for (int r = 0; r < 2; r++)
                if (j.scale[r][k] != cases[i].scale[k])
                    fail_msg("%s: after step %d worker %d has %g, not %g", cases[i].spec, k, r, j.scale[r][k],
                             cases[i].scale[k]);
        }
        assert_int_equal(j.skipped[0], bad);
        assert_int_equal(j.skipped[1], bad);
    }
}

static void workers_exchanging_gradients_skip_the_same_steps(void **state)
{
    static const char *const codecs[] = { "", "ef(topk(ratio=0.2))", "qsgd(bits=4)", "bf16" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(codecs); i++) {
        job j = job_of("ddp", "dynamic(init=256)");
        j.t.options.codec = codecs[i];
        j.t.bad_rank = 2;
        j.t.bad_tensor = 1;
        j.t.bad_steps = 1 << 3;
        run(&j, 3);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.each_step[r][3], j.each_step[r][2]);
            assert_int_not_equal(j.each_step[r][4], j.each_step[r][3]);
            assert_int_equal(j.hash[r], j.hash[0]);
            assert_int_equal(j.skipped[r], 1);
            assert_true(j.scale[r][3] == 128 && j.scale[r][6] == 128);
            assert_string_equal(j.event[r], "overflow: worker 2: the gradient of d.weight overflowed in step 3 at the "
                                            "loss scale 256; the step was skipped, 1 in all, and the scale is 128");
        }
    }
}

/* Each decides for itself: the others' steps, scales and counts are what they would have been. */
static void workers_without_gradient_exchange_skip_independently(void **state)
{
    static const char *const methods[] = { "local-sgd(period=4)", "d-psgd", "sgp" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        job j = job_of(methods[i], "dynamic(init=256)");
        j.t.bad_rank = 1;
        j.t.bad_tensor = 4;
        j.t.bad_steps = 1 << 1 | 1 << 5;
        run(&j, 3);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.skipped[r], r == 1 ? 2 : 0);
            assert_true(j.scale[r][6] == (r == 1 ? 64 : 256));
        }
        if (i == 0) { /* the model stays where it is for the step */
            assert_int_equal(j.each_step[1][1], j.each_step[1][0]);
            assert_int_not_equal(j.each_step[0][1], j.each_step[0][0]);
        }
    }
}

/* In its warm-up local-sgd exchanges gradients: there the verdict is common; later it is each
   worker's own. */
static void mixed_method_skips_jointly_only_in_exchange_steps(void **state)
{
    job j = job_of("local-sgd(period=4,warmup=3)", "dynamic(init=256)");

    (void)state;
    j.t.bad_rank = 0;
    j.t.bad_tensor = 0;
    j.t.bad_steps = 1 << 1 | 1 << 4;
    run(&j, 2);
    assert_true(j.scale[0][2] == 128 && j.scale[1][2] == 128);
    assert_true(j.scale[0][5] == 64 && j.scale[1][5] == 128);
    assert_int_equal(j.skipped[0], 2);
    assert_int_equal(j.skipped[1], 1);
}

/* One sample, always the same: a run with overflows is the run without those steps, if neither
   Adam's count nor the schedule saw them. */
static void skipped_steps_count_neither_for_adam_nor_the_schedule(void **state)
{
    job plain = job_of("single", "off"), bumpy = job_of("single", "static(scale=1024)");
    job *const both[] = { &plain, &bumpy };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        both[i]->t.options.optimizer = "adamw(lr=0.01)";
        both[i]->t.options.lr_schedule = "step(every=2,gamma=0.5,warmup=1)";
        both[i]->t.options.batch = 1;
        both[i]->t.options.data_samples = 1;
        both[i]->t.options.steps = 20;
        both[i]->t.bad_rank = 0;
        both[i]->t.bad_steps = i == 1 ? 1 << 0 | 3 << 3 | 1 << 8 : 0;
        both[i]->t.steps = i == 1 ? 11 : 7;
        run(both[i], 1);
    }
    assert_int_equal(bumpy.skipped[0], 4);
    assert_int_equal(bumpy.hash[0], plain.hash[0]);
}

static void a_resumed_run_has_the_same_scales_skips_and_bits(void **state)
{
    static const char *const methods[] = { "ddp", "local-sgd(period=2)", "d-psgd", "onebit-adam(freeze_step=4)" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        char directory[SCRATCH_PATH];
        job whole = job_of(methods[i], "dynamic(init=1024,interval=3,hysteresis=2)"), rest;
        scratch_make(directory);
        whole.directory = directory;
        whole.t.options.optimizer = i == 3 ? "sgd(lr=0.01)" : "adam(lr=0.01)";
        whole.t.bad_rank = 1;
        whole.t.bad_tensor = 2;
        /* one unit of hysteresis is gone, and one good step has been, when it is saved */
        whole.t.bad_steps = 1 << 1 | 1 << 4 | 1 << 6;
        whole.t.steps = 11;
        rest = whole;
        whole.save_at = 3;
        rest.load_at = 3;
        run(&whole, 2);
        run(&rest, 2);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(rest.hash[r], whole.hash[r]);
            assert_int_equal(rest.skipped[r], whole.skipped[r]);
            for (int k = 3; k < 11; k++)
                assert_true(rest.scale[r][k] == whole.scale[r][k]);
        }
        assert_true(whole.scale[1][10] != 1024 || whole.scale[1][5] != 1024);
        scratch_remove(directory);
    }
}

static void overflow_at_minimum_scale_ends_the_run_with_reason(void **state)
{
    job j = job_of("ddp", "dynamic(init=4,min=2)");
    tutti_error err = { .rank = -1 };

    (void)state;
    j.t.bad_rank = 1;
    j.t.bad_tensor = 3;
    j.t.bad_steps = 3 << 2;
    assert_int_equal(tutti_world_run("shm", 2, rank, &j, &err), TUTTI_ERR_NUMBER);
    if (strstr(err.text,
               "worker 1: the gradient of b.weight is not finite in step 3, with the loss scale at its least, 2, so "
               "scaling is not the cause; lower the learning rate, clip the gradient (clip-norm), "
               "take precision bf16, or continue to skip steps (loss-scale dynamic(on_min=continue))") == NULL)
        fail_msg("%s", err.text);
}

static void invalid_loss_scales_are_rejected(void **state)
{
    static const struct { const char *spec, *words; } cases[] = {
        { "dynamo", "unknown loss-scale 'dynamo'; did you mean 'dynamic'? (there are off, static, dynamic)" },
        { "static(scale=1000)",
          "loss-scale: scale is 1000; it must be a power of two, by which a gradient can be multiplied and divided "
          "without rounding (1024 is near)" },
        { "dynamic(init=3)", "init is 3; it must be a power of two" },
        { "dynamic(growth=1)", "growth" },
        { "dynamic(growth=3)", "growth is 3; it must be a power of two" },
        { "dynamic(backoff=1)", "backoff" },
        { "dynamic(backoff=0)", "backoff" },
        { "dynamic(backoff=0.3)",
          "backoff is 0.3; it must be a power of two, by which a gradient can be multiplied and divided without "
          "rounding (0.25 is near)" },
        { "dynamic(interval=0)", "interval" },
        { "dynamic(hysteresis=0)", "hysteresis" },
        { "dynamic(init=2,min=4)", "loss-scale: min is 4, above init, 2" },
        { "off(1)", "off" },
        { "static(", "loss-scale" },
    };

    (void)state;
    assert_int_equal(tutti_loss_scale_check("", NULL), TUTTI_OK);
    assert_int_equal(tutti_loss_scale_check(NULL, NULL), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_error err = { 0 };
        assert_int_equal(tutti_loss_scale_check(cases[i].spec, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].spec, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scale_that_is_a_power_of_two_changes_no_bit),
        cmocka_unit_test(the_scale_follows_its_rule),
        cmocka_unit_test(workers_exchanging_gradients_skip_the_same_steps),
        cmocka_unit_test(workers_without_gradient_exchange_skip_independently),
        cmocka_unit_test(mixed_method_skips_jointly_only_in_exchange_steps),
        cmocka_unit_test(skipped_steps_count_neither_for_adam_nor_the_schedule),
        cmocka_unit_test(a_resumed_run_has_the_same_scales_skips_and_bits),
        cmocka_unit_test(overflow_at_minimum_scale_ends_the_run_with_reason),
        cmocka_unit_test(invalid_loss_scales_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
