/* The suite of all transports on simulated ranks, a simulation a forked child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "forked.h"
#include "transport/conformance.h"

static tutti_status as_actors(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    (void)rt;
    return forked_ranks("sim", n, rank_main, arg, err);
}

int main(int argc, char **argv)
{
    const conformance_subject subject = {
        .name = "sim, ranks are actors", .ops = forked_sim(), .run = as_actors, .strict = true
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return conformance_run(&subject);
}
