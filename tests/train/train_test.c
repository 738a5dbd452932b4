/* Goal: the trainer gives the same bits whether its ranks are threads of this process or processes
   of the command, and fails cleanly where files do. Method: the first samples of MNIST;
   model.safetensors compared byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/train_internal.h"
#include "tutti/base.h"
#include "tutti/comm.h"
#include "mnist.h"
#include "sanitized.h"
#include "scratch.h"

static char folder[SCRATCH_PATH];

static int set_up(void **state)
{
    (void)state;
    scratch_make(folder);
    small_mnist(folder, "data", 600, 200);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static tutti_train_config configure(const char *out)
{
    static char data[300], directory[4][300];
    static int turn;
    tutti_train_config c;
    tutti_error err = { .rank = -1 };

    snprintf(data, sizeof data, "%s/data", folder);
    turn = (turn + 1) % 4;
    snprintf(directory[turn], sizeof directory[turn], "%s/%s", folder, out);
    tutti_options_default(tutti_train_options, &c);
    c.data = data;
    c.out = directory[turn];
    c.model = "mlp(hidden=48)";
    c.batch = 16;
    c.threads = 1;
    c.seed = 5;
    c.quiet = true;
    assert_int_equal(tutti_train_check(&c, 2, &err), TUTTI_OK);
    return c;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_train_io io = { 0 };
    return tutti_train_worker(world, arg, &io, err);
}

static tutti_status train_in_threads(tutti_train_config *c, int n, tutti_error *err)
{
    tutti_runtime *rt;

    c->n = n;
    *err = (tutti_error){ .rank = -1 };
    assert_int_equal(tutti_runtime_open_posix(&rt, err), TUTTI_OK);
    tutti_status status = tutti_train_prepare(rt, c, err);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? tutti_world_run("shm", n, rank_main, c, err) : status;
}

static void threads_and_processes_give_the_same_bits(void **state)
{
    static const struct {
        const char *model, *method;
        int n;
    } cases[] = { { "mlp(hidden=48)", "ddp", 3 },
                  { "cnn", "ddp", 2 },
                  { "mlp(hidden=48)", "single", 2 },
                  { "mlp(hidden=48)", "ddp", 1 } };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        char name[32];
        tutti_error err;
        snprintf(name, sizeof name, "threads-%zu", i);
        tutti_train_config c = configure(name);
        c.model = cases[i].model;
        c.method = cases[i].method;
        if (train_in_threads(&c, cases[i].n, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
#if !SANITIZED_THREAD /* there the command is not what is under test */
        shell("'%s/bin/tutti' train --model '%s' --method '%s' -n %d --batch 16 --threads 1 --seed 5 --quiet --data "
              "'%s/data' --out '%s/processes-%zu'",
              TUTTI_BINARY_DIR, cases[i].model, cases[i].method, cases[i].n, folder, folder, i);
        shell("cmp '%s/threads-%zu/model.safetensors' '%s/processes-%zu/model.safetensors'", folder, i, folder, i);
#endif
    }
}

static void checkpoints_of_threads_resume_in_threads_with_the_same_bits(void **state)
{
    tutti_error err;
    tutti_train_config whole = configure("whole"), rest;
    char resume[400];

    (void)state;
    whole.epochs = 2;
    whole.checkpoint_every = 7;
    if (train_in_threads(&whole, 2, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    rest = configure("rest");
    rest.epochs = 2;
    snprintf(resume, sizeof resume, "%s/whole", folder);
    rest.resume = resume;
    if (train_in_threads(&rest, 2, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    shell("cmp '%s/whole/model.safetensors' '%s/rest/model.safetensors'", folder, folder);
}

/* ---- how far an evaluation is ---- */
static struct { char moments[1024]; int64_t clock; } told; /* by the one worker of its test */

static void collect(void *user, int status, const char *line)
{
    const size_t used = strlen(told.moments);

    (void)user;
    if (status == 2)
        snprintf(told.moments + used, sizeof told.moments - used, "%s\n", line);
}

/* 150 ms a look. */
static int64_t slow_clock(void *self)
{
    (void)self;
    return told.clock += 150 * 1000 * 1000;
}

static tutti_status telling_rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_runtime_ops ops = *tutti_world_runtime(world)->ops;
    tutti_runtime host = { &ops, tutti_world_runtime(world)->self };
    const tutti_train_io io = { .say = collect, .host = &host };

    ops.now = slow_clock;
    return tutti_train_worker(world, arg, &io, err);
}

/* Six pieces of 500, a look at the clock before each: reported at once, then when 200 ms have
   passed. */
static void evaluation_progress_is_reported_a_few_times_a_second(void **state)
{
    tutti_train_config c = configure("told");
    char data[300];
    tutti_runtime *rt;
    tutti_error err = { .rank = -1 };

    (void)state;
    small_mnist(folder, "long", 60, 3000);
    snprintf(data, sizeof data, "%s/long", folder);
    c.data = data;
    c.steps = 1;
    c.quiet = false;
    told.moments[0] = 0;
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(tutti_train_prepare(rt, &c, &err), TUTTI_OK);
    tutti_runtime_close(rt);
    if (tutti_world_run("shm", 1, telling_rank_main, &c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_string_equal(told.moments, "evaluating  test set  0 %  step 1\nevaluating  test set  33 %  step 1\n"
                                      "evaluating  test set  67 %  step 1\nevaluating  training set  0 %  step 1\n");
}

/* ---- what telling costs ---- */
static _Atomic uint64_t messages, bytes;

static tutti_status counting_rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_status status = rank_main(world, arg, err);
    uint64_t b, m;

    tutti_world_sent(world, TUTTI_ANY, &b, &m);
    messages += m;
    bytes += b;
    return status;
}

static void count_run(const char *out, int n, int64_t report_every)
{
    tutti_train_config c = configure(out);
    tutti_runtime *rt;
    tutti_error err = { .rank = -1 };

    c.n = n;
    c.batch = 4;
    c.steps = 4;
    c.report_every = report_every;
    c.final_eval = TUTTI_FINAL_EVAL_OFF;
    c.overwrite = true; /* the same directory again */
    messages = bytes = 0;
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(tutti_train_prepare(rt, &c, &err), TUTTI_OK);
    tutti_runtime_close(rt);
    if (tutti_world_run("shm", n, counting_rank_main, &c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* Up a binomial tree: every worker but the first sends one message, with seven doubles for each
   worker whose figures pass through it. */
static void a_report_takes_a_message_of_every_worker_but_the_first(void **state)
{
    static const struct {
        int n;
        uint64_t rows;
    } cases[] = { { 1, 0 }, { 2, 1 }, { 3, 2 }, { 5, 5 }, { 7, 9 }, { 8, 12 } };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const uint64_t others = (uint64_t)cases[i].n - 1;
        uint64_t once_messages, once_bytes;
        count_run("told-once", cases[i].n, 4);
        once_messages = messages;
        once_bytes = bytes;
        count_run("told-often", cases[i].n, 1);
        assert_int_equal(messages - once_messages, 3 * others);
        assert_int_equal(bytes - once_bytes, 3 * cases[i].rows * 7 * sizeof(double));
    }
}

/* What worker 0 writes has each worker's own figures, in the order of workers. */
static void summary_has_one_row_per_worker_in_order(void **state)
{
    json_t *summary, *rows;
    char path[400];

    (void)state;
    count_run("rows", 7, 2);
    snprintf(path, sizeof path, "%s/rows/summary.json", folder);
    summary = json_load_file(path, 0, NULL);
    rows = json_object_get(summary, "by_worker");
    assert_int_equal(json_array_size(rows), 7);
    for (size_t r = 0; r < 7; r++) {
        json_t *row = json_array_get(rows, r);
        assert_int_equal(json_integer_value(json_object_get(row, "worker")), r);
        assert_true(json_real_value(json_object_get(row, "wall_seconds")) > 0);
        assert_true(json_integer_value(json_object_get(row, "bytes_sent")) > 0);
    }
    json_decref(summary);
}

static void a_directory_that_cannot_be_written_is_named(void **state)
{
    tutti_error err;
    tutti_train_config c = configure("file");

    (void)state;
    shell("touch '%s/file'", folder);
    assert_int_equal(train_in_threads(&c, 2, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "/file"));
}

static void targets_are_read_strictly(void **state)
{
    static const char *const bad[] = {
        "accuracy", "accuracy=", "accuracy=2", "accuracy=nan", "accuracy=0.5x", "loss=-1", "loss=0", "speed=3", "=",
    };
    static const char *const good[] = { "accuracy=0.98", "accuracy=1", "loss=1.5", "loss=1e-3" };
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++) {
        char sentence[200];
        tutti_train_config c = configure("t");
        c.target = bad[i];
        snprintf(sentence, sizeof sentence,
                 "target is '%s'; write accuracy=A with A from 0 to 1, loss=L with L above 0, or, of clicks, auc=A",
                 bad[i]);
        assert_int_equal(tutti_train_check(&c, 2, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, sentence);
    }
    for (size_t i = 0; i < TUTTI_LENGTH(good); i++) {
        tutti_train_config c = configure("t");
        c.target = good[i];
        assert_int_equal(tutti_train_check(&c, 2, &err), TUTTI_OK);
    }
}

/* A chance of 1, of less, of all workers; products; the same for the same seed, rank and step. */
static void slow_factors_are_drawn_by_worker_and_step(void **state)
{
    int hit[3] = { 0 };

    (void)state;
    assert_true(tutti_train_slow_factor("", 1, 0, 0) == 1);
    assert_true(tutti_train_slow_factor("1:5", 1, 1, 7) == 5);
    assert_true(tutti_train_slow_factor("1:5", 1, 0, 7) == 1);
    assert_true(tutti_train_slow_factor("1:5,*:2", 1, 1, 7) == 10);
    for (uint64_t step = 0; step < 4000; step++)
        for (int r = 0; r < 3; r++) {
            const double f = tutti_train_slow_factor("*:4:0.25", 9, r, step);
            assert_true(f == 1 || f == 4);
            assert_true(f == tutti_train_slow_factor("*:4:0.25", 9, r, step));
            hit[r] += f == 4;
        }
    for (int r = 0; r < 3; r++) /* 1000 expected, deviation 27 */
        assert_in_range(hit[r], 850, 1150);
    assert_true(hit[0] != hit[1] || hit[1] != hit[2]);
}

static void threads_default_to_the_cores_of_a_worker(void **state)
{
    tutti_error err;

    (void)state;
    for (int cores = 1; cores <= 8; cores++)
        for (int n = 1; n <= 8; n++) {
            tutti_train_config c = configure("t");
            c.threads = 0;
            c.n = n;
            assert_int_equal(tutti_train_check(&c, cores, &err), TUTTI_OK);
            assert_int_equal(c.threads, cores >= n ? cores / n : 1);
        }
}

static void shares_are_read_strictly(void **state)
{
    static const char *const malformed[] = {
        "", ":", "1:", ":1", "1::2", "0x8:1", " 1:2", "1: 2", "1:2 ", "1:nan", "1:inf", "1:-2", "1:1e10", "1,5:2",
        "fair",
    };
    double weight[2];
    bool automatic;
    tutti_error err = { .rank = -1 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(malformed); k++)
        if (tutti_train_parse_shares(malformed[k], 2, weight, &automatic, &err) != TUTTI_ERR_USAGE ||
            strstr(err.text, "write even, auto, data, or a weight for each worker") == NULL)
            fail_msg("batch-share '%s' is accepted, or refused with: %s", malformed[k], err.text);
    assert_int_equal(tutti_train_parse_shares("2.5:1e-3", 2, weight, &automatic, &err), TUTTI_OK);
    assert_true(!automatic && weight[0] == 2.5 && weight[1] == 1e-3);
    assert_int_equal(tutti_train_parse_shares("0:1", 2, weight, &automatic, &err), TUTTI_OK);
    assert_int_equal(tutti_train_parse_shares("0:0", 2, weight, &automatic, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_train_parse_shares("1:2:3", 2, weight, &automatic, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_train_parse_shares("auto", 2, weight, &automatic, &err), TUTTI_OK);
    assert_true(automatic && weight[0] == 1 && weight[1] == 1);
}

static void a_worker_too_fast_to_measure_gets_the_largest_share(void **state)
{
    static const double seconds[] = { 1e-4, 0, 2e-4 }, unknown[] = { 1e-4, -1, 2e-4 }, none[] = { 0, 0, 0 };
    double speed[3];
    int64_t share[3];

    (void)state;
    assert_true(tutti_train_speeds(seconds, 3, speed));
    assert_true(speed[0] == 1 / 1e-4 && speed[1] > 1000 * speed[0] && speed[2] == 1 / 2e-4);
    tutti_share_apportion(96, 3, speed, 1, share);
    assert_true(share[0] == 1 && share[1] == 94 && share[2] == 1);
    assert_false(tutti_train_speeds(unknown, 3, speed));
    assert_true(tutti_train_speeds(none, 3, speed));
    assert_true(speed[0] == speed[1] && speed[1] == speed[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_processes_give_the_same_bits),
        cmocka_unit_test(checkpoints_of_threads_resume_in_threads_with_the_same_bits),
        cmocka_unit_test(evaluation_progress_is_reported_a_few_times_a_second),
        cmocka_unit_test(a_report_takes_a_message_of_every_worker_but_the_first),
        cmocka_unit_test(summary_has_one_row_per_worker_in_order),
        cmocka_unit_test(a_directory_that_cannot_be_written_is_named),
        cmocka_unit_test(targets_are_read_strictly),
        cmocka_unit_test(slow_factors_are_drawn_by_worker_and_step),
        cmocka_unit_test(threads_default_to_the_cores_of_a_worker),
        cmocka_unit_test(shares_are_read_strictly),
        cmocka_unit_test(a_worker_too_fast_to_measure_gets_the_largest_share),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
