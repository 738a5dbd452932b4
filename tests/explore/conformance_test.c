/* The suite of all transports on the explorer's own, under the schedule of a seed (the argument,
   or 1): what the pieces stand on keeps the contract. Two parts of it do not apply: cancels in
   the middle of a transfer (here a message is taken in an instant), and
   a_rank_may_die_at_any_moment, whose ranks rely on all messages of a round being in flight when
   one of them dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include "explore.h"
#include "transport/conformance_internal.h"

const conformance_test conformance_cancels[] = { { 0 } };
static char spec[40];

static tutti_status as_fibers(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    const tutti_launch launch = { .size = n, .spec = spec };

    return explore_transport.run(rt, &launch, rank_main, arg, err);
}

int main(int argc, char **argv)
{
    const conformance_subject subject = {
        .name = "explore, ranks are fibers", .ops = &explore_transport, .run = as_fibers, .strict = true
    };

    cmocka_set_skip_filter("a_rank_may_die_at_any_moment");
    snprintf(spec, sizeof spec, "explore(seed=%s)", argc > 1 ? argv[1] : "1");
    return conformance_run(&subject);
}
