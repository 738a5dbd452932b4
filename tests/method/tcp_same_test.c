/* tcp_same_test.c: the methods whose results are a function of the seed give the same parameters to
   the bit over sockets as over shared memory. Method: gradients whose sums depend on the order of
   adding; after every step all parameters of all workers are compared. */
#include "trial.h"

enum { RANKS = 5, STEPS = 7, MOST = 32768 };
static float drawn[RANKS][STEPS][MOST]; /* once: a hundred runs add them */

static void draw_all(void)
{
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < STEPS; s++)
            for (size_t i = 0; i < MOST; i++) {
                const uint64_t draw = tutti_random((tutti_rng){ (uint64_t)r, (uint64_t)s, 3 }, i);
                drawn[r][s][i] = (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000);
            }
}

static float rough(int rank, uint64_t step, size_t i, float x)
{
    if (rank >= RANKS || step >= STEPS || i >= MOST)
        abort(); /* a thread's: no assertion of cmocka's */
    return x * 0.37f + drawn[rank][step][i];
}

static void run_on(trial *t, const char *transport, int n)
{
    tutti_error err = { .rank = -1 };

    for (int r = 0; r < n; r++)
        for (int s = 0; s <= t->steps; s++)
            assert_non_null(t->x[r][s] = tutti_alloc(trial_size(t), sizeof(float)));
    if (tutti_world_run(transport, n, trial_rank, t, &err) != TUTTI_OK)
        fail_msg("%s on %d over %s: %s", t->method, n, transport, err.text);
}

static void parameters_are_the_same_to_the_bit_over_sockets_and_shared_memory(void **state)
{
    static const char *const methods[] = {
        "ddp", "local-sgd(period=3)", "slowmo(base=sgp,overlap=1,period=3)", "d-psgd", "hop", "qg-dsgdm(period=2)",
        "gut", "parameter-server(servers=2)", "saddle(variant=n)", "backup-workers(backup=0)",
        "pipe-sgd(width=3,warmup=1)", "scadles(rates=2,batch_min=1,simulate_clock=on)",
        "palsgd(period=3,mix_prob=0.4)", "biased-local-sgd(round_steps=1,bias_ratio=1)",
        "diloco(period=4,fragments=2,delay=1)", "noloco(period=3)",
        "herring(servers=2,fusion_mb=0.02,min_shard_kb=0,slots=2,wire=fp16)", "byteps(partition_bytes=20000,credits=3)",
    };
    static const char *const transports[] = {
        "tcp", "tcp(local=tcp,streams=2,chunk=4096,eager=256)", "tcp(local=tcp,wire-check=off)",
    };
    static const int sizes[] = { 2, 3, 5 };

    (void)state;
    draw_all();
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++) {
        for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++) {
            trial shm = trial_of(methods[m], "sgd(lr=0.05,momentum=0.9)", STEPS);
            shm.gradient = rough;
            shm.count[0] = 30011;
            run_on(&shm, "shm", sizes[i]);
            for (size_t k = 0; k < TUTTI_LENGTH(transports); k++) {
                trial tcp = trial_of(methods[m], "sgd(lr=0.05,momentum=0.9)", STEPS);
                tcp.gradient = rough;
                tcp.count[0] = shm.count[0];
                run_on(&tcp, transports[k], sizes[i]);
                for (int r = 0; r < sizes[i]; r++)
                    for (int s = 0; s <= STEPS; s++)
                        if (!trial_same(&shm, shm.x[r][s], tcp.x[r][s]))
                            fail_msg("%s, %d workers, %s: worker %d differs after step %d", methods[m], sizes[i],
                                     transports[k], r, s);
                trial_drop(&tcp);
            }
            trial_drop(&shm);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        parameters_are_the_same_to_the_bit_over_sockets_and_shared_memory) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
