/* Goal: a process is on a node (NUMA) if all CPUs that it may use are of that node, and the
   transports report that to each other. Method: a runtime whose file system lists the CPUs of a
   node. */
#include "transport/node.h"
#include "tutti/transport.h"
#include "transport/registry.h"
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct faked {
    tutti_runtime_ops ops;
    tutti_runtime runtime;
    int without;                 /* CPU that no node has; -1: none */
    int asked;
} faked;
static faked fake; /* posix passes its own `self` on */

static int exists(void *self, const char *path)
{
    unsigned node;
    int cpu;

    (void)self;
    if (sscanf(path, "/sys/devices/system/node/node%u/cpu%d", &node, &cpu) != 2)
        return EINVAL;
    fake.asked++;
    return cpu == fake.without ? ENOENT : 0;
}

static void a_process_on_the_cpus_of_one_node_is_on_that_node(void **state)
{
    tutti_runtime *rt;
    cpu_set_t mine;
    unsigned cpu, node;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    assert_int_equal(getcpu(&cpu, &node), 0);
    fake.ops = *rt->ops;
    fake.ops.exists = exists;
    fake.runtime = (tutti_runtime){ &fake.ops, rt->self };
    fake.without = -1;
    fake.asked = 0;
    /* on this machine; with several nodes the scheduler may move us between the calls */
    assert_int_equal(tutti_node_here(&fake.runtime), (int)node);
    assert_int_equal(fake.asked, CPU_COUNT(&mine));
    for (int k = 0; k < CPU_SETSIZE; k++) {
        fake.without = k;
        if (CPU_ISSET(k, &mine))
            assert_int_equal(tutti_node_here(&fake.runtime), -1);
    }
    tutti_runtime_close(rt);
}

/* All ranks are threads of this process, so all are where it is. */
static tutti_status rank_main(const tutti_launch *launch, void *arg, tutti_error *err)
{
    const tutti_transport_ops *ops = arg;
    tutti_runtime *rt;
    void *t;
    tutti_status status;
    int here;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    here = tutti_node_here(rt);
    status = ops->open(&t, rt, launch, err);
    for (int r = 0; r < launch->size && status == TUTTI_OK; r++)
        if (ops->node(t, r) != here)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d says that rank %d is on node %d, not %d",
                                launch->rank, r, ops->node(t, r), here);
    ops->close(t);
    tutti_runtime_close(rt);
    return status;
}

static void every_rank_knows_the_node_of_every_rank(void **state)
{
    static const char *const names[] = { "shm", "tcp" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++) {
        const tutti_transport_ops *ops = tutti_transport_find(names[k]);
        const tutti_launch launch = { .size = 3, .spec = names[k] };
        tutti_error err = { .rank = -1 };
        tutti_runtime *rt;
        assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
        if (ops->run(rt, &launch, rank_main, (void *)(uintptr_t)ops, &err) != TUTTI_OK)
            fail_msg("%s: %s", names[k], err.text);
        tutti_runtime_close(rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_on_the_cpus_of_one_node_is_on_that_node),
        cmocka_unit_test(every_rank_knows_the_node_of_every_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
