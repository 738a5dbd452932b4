/* The suite of ports and collectives on simulated ranks, a simulation a forked child. */
#include "collective/conformance.h"
#include "forked.h"

static tutti_status as_actors(tutti_runtime *rt, const tutti_launch *launch,
                              tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err),
                              void *arg, tutti_error *err)
{
    (void)rt;
    return forked_ranks("sim", launch->size, rank_main, arg, err);
}

int main(void)
{
    tutti_transport_ops ops = *forked_sim();

    ops.run = as_actors;
    return collective_conformance(&ops, "sim", 8);
}
