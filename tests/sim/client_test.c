/* Asynchronous methods with the client's own optimiser: in one order, the simulator's, an update of
   the client's by the library's rule gives the bits of that rule in the engine. */
#include "engine/client_job.h"
#include "forked.h"
#include "kernels/device.h"

typedef struct sim_call { run *r; int n; } sim_call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const sim_call *c = arg;
    return tutti_world_run("sim", c->n, rank_main, c->r, err);
}

static tutti_status forked_run(run *r, int workers, tutti_error *err)
{
    sim_call c = { r, workers };
    return forked(in_child, &c, err);
}

/* A pass takes a millisecond or more: the time of the two optimisers is negligible compared with
   it, and reverses no order. */
static void is_simulated(run *r)
{
    r->go = forked_run;
    r->flops = 1e8;
}

static void asynchronous_client_optimizer_is_bit_identical_to_the_engines(void **state)
{
    static const char *const methods[] = {
        "ad-psgd", "ad-psgd(lr_staleness=on)", "rand-psgd", "asr-adpsgd", "h-adpsgd",
        "hop(backup=1,skip=on,trigger=1)", "hermes(minibatch=1,chunk=2,push=always)", "oscars",
        "decoupled-diloco(period=2)", "decoupled-diloco(period=3,quorum=2)",
        "lasgd(local_steps=4,max_delay=3)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        compare(methods[k], CLIENT, 3, is_simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asynchronous_client_optimizer_is_bit_identical_to_the_engines),
    };
    int failed;

    if (tutti_device_open_host(&device, NULL, TUTTI_CPU_AVX512, NULL) != TUTTI_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_device_close(device);
    return failed;
}
