/* Goal: ddp, local-sgd and d-psgd end with the same parameters to the bit whether workers are
   processes, threads or simulated. Method: the trainer in threads of this process, the command
   with processes, the command with --transport sim, on the first samples of MNIST with short
   last steps; model.safetensors is compared byte for byte. Methods whose bits follow the clock
   or the order of arrival are not here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/train_internal.h"
#include "mnist.h"
#include "scratch.h"

static char folder[SCRATCH_PATH];

static int set_up(void **state)
{
    (void)state;
    scratch_make(folder);
    small_mnist(folder, "data", 200, 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_train_io io = { 0 };
    return tutti_train_worker(world, arg, &io, err);
}

static void in_threads(const char *method, int n, const char *out)
{
    tutti_train_config c;
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt;
    char data[300];
    tutti_status status;

    snprintf(data, sizeof data, "%s/data", folder);
    tutti_options_default(tutti_train_options, &c);
    c.data = data;
    c.out = out;
    c.model = "mlp(hidden=24)";
    c.method = method;
    c.n = n;
    c.batch = 6;
    c.steps = 14;
    c.threads = 1;
    c.seed = 5;
    c.quiet = true;
    c.final_eval = TUTTI_FINAL_EVAL_OFF;
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    status = tutti_train_check(&c, 2, &err);
    if (status == TUTTI_OK)
        status = tutti_train_prepare(rt, &c, &err);
    tutti_runtime_close(rt);
    if (status == TUTTI_OK)
        status = tutti_world_run("shm", n, rank_main, &c, &err);
    if (status != TUTTI_OK)
        fail_msg("%s on %d threads: %s", method, n, err.text);
}

static void by_command(const char *method, int n, const char *transport, const char *out)
{
    shell("'%s/bin/tutti' train --model 'mlp(hidden=24)' --method '%s' -n %d --batch 6 --steps 14 --threads 1 --seed 5 "
          "--optimizer 'sgd(lr=0.05,momentum=0.9)' --final-eval off --quiet --transport %s --data '%s/data' --out '%s'",
          TUTTI_BINARY_DIR, method, n, transport, folder, out);
}

/* Every count for every method, every option with several counts. */
static const struct { const char *method; int n[6]; } cases[] = {
    { "ddp", { 1, 2, 3, 4, 5, 8 } },
    { "ddp(bucket_mb=0.02,first_bucket_mb=0.01)", { 3, 8 } },
    { "local-sgd(period=3)", { 1, 2, 3, 4, 5, 8 } },
    { "local-sgd(period=4,warmup=5)", { 2, 5 } },
    { "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", { 3, 4 } },
    { "diloco(period=4,fragments=2,delay=1,mix=0.5)", { 3 } },
    { "palsgd(period=3,mix_prob=0.4,warmup=2)", { 3 } },
    { "slowmo(period=3)", { 5 } },
    { "slowmo(base=sgp,overlap=1,period=4)", { 4 } },
    { "d-psgd", { 1, 2, 3, 5, 8 } },
    { "d-psgd(order=atc)", { 4, 5 } },
    { "d-psgd(complete)", { 3, 4 } },
    { "d-psgd(complete,order=atc)", { 8 } },
    { "d-psgd(exponential)", { 4, 5 } },
    { "d-psgd(exponential,order=atc)", { 8 } },
    { "noloco(period=3)", { 4, 5 } },
    { "qg-dsgdm", { 8 } },
    { "saddle(variant=n)", { 4 } },
    { "gut(exponential)", { 5 } },
};

static void processes_threads_and_simulated_workers_end_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int k = 0; k < 6 && cases[c].n[k] > 0; k++) {
            char out[3][320];
            static const char *const where[] = { "threads", "processes", "sim" };
            for (int w = 0; w < 3; w++)
                snprintf(out[w], sizeof out[w], "%s/%s-%zu-%d", folder, where[w], c, cases[c].n[k]);
            in_threads(cases[c].method, cases[c].n[k], out[0]);
            by_command(cases[c].method, cases[c].n[k], "shm", out[1]);
            by_command(cases[c].method, cases[c].n[k], "sim", out[2]);
            for (int w = 1; w < 3; w++)
                shell("cmp '%s/model.safetensors' '%s/model.safetensors'", out[0], out[w]);
        }
    /* They are not all one thing. */
    shell("! cmp -s '%s/threads-0-4/model.safetensors' '%s/threads-2-4/model.safetensors'", folder, folder);
    shell("! cmp -s '%s/threads-0-4/model.safetensors' '%s/threads-0-3/model.safetensors'", folder, folder);
    shell("! cmp -s '%s/threads-5-5/model.safetensors' '%s/threads-6-5/model.safetensors'", folder, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        processes_threads_and_simulated_workers_end_with_the_same_bits) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
