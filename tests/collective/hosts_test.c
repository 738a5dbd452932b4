/* Goal: where the transport tells of several hosts, collectives cross between them as rarely as the lists say, with the bits of one host; and a layout that does not
   fit is said when the hierarchy is asked for by name. Method: shared memory's messages, with hosts that this test makes up. */
#include "collective/collective_internal.h"
#include "values.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define COUNT 5003

static tutti_transport_ops pretended;
static int pairs(void *t, int rank)
{
    (void)t;
    return rank / 2;
}
static int three_and_one(void *t, int rank)
{
    (void)t;
    return rank / 3;
}

/* Elements sent to ranks of other hosts. */
static uint64_t crossed(tutti_world *world)
{
    uint64_t sum = 0;

    for (int r = 0; r < tutti_world_size(world); r++) {
        uint64_t bytes, messages;
        tutti_world_sent(world, r, &bytes, &messages);
        sum += world->ops->host(NULL, r) != world->ops->host(NULL, tutti_world_rank(world)) ? bytes / sizeof(float) : 0;
    }
    return sum;
}

static tutti_status sums(tutti_world *world, const char *algorithm, float *x, uint64_t *elements, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 5);
    const uint64_t before = crossed(world);

    g.algorithm = algorithm;
    values_fill(TUTTI_F32, TUTTI_SUM, 1, tutti_world_rank(world), 0, COUNT, x);
    TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, COUNT), err));
    *elements = crossed(world) - before;
    return TUTTI_OK;
}

static tutti_status hierarchical_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[] = { NULL, "hierarchy", "direct" };
    const int p = tutti_world_size(world);
    float x[COUNT], expected[COUNT];
    uint64_t elements[3];

    (void)arg;
    values_reduce(TUTTI_F32, TUTTI_SUM, 1, p, NULL, 0, COUNT, expected);
    for (int k = 0; k < 3; k++) {
        TUTTI_TRY(sums(world, names[k], x, &elements[k], err));
        if (memcmp(x, expected, sizeof x) != 0)
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank %d of %d, algorithm %d: other bits than the tree's", tutti_world_rank(world), p, k);
    }
    /* 2 n/q (P-1)/P against 2 n/p (p-q) of "direct"; slices are cut at 16 elements. */
    const uint64_t hosts = (uint64_t)p / 2, most = 2 * (COUNT / 2 + 16) * (hosts - 1) / hosts + 32 * hosts;
    if (elements[0] != elements[1] || elements[0] > most || elements[2] < elements[0] * 3 / 2)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank %d of %d sends %llu elements to other hosts by choice, %llu by name (at most %llu), %llu without hosts", tutti_world_rank(world), p,
                          (unsigned long long)elements[0], (unsigned long long)elements[1], (unsigned long long)most, (unsigned long long)elements[2]);
    return TUTTI_OK;
}

static tutti_status unlike_main(tutti_world *world, void *arg, tutti_error *err)
{
    float x[COUNT], expected[COUNT];
    tutti_error e = { 0 };
    uint64_t elements;

    (void)arg;
    values_reduce(TUTTI_F32, TUTTI_SUM, 1, tutti_world_size(world), NULL, 0, COUNT, expected);
    TUTTI_TRY(sums(world, NULL, x, &elements, err));
    if (memcmp(x, expected, sizeof x) != 0)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank %d: other bits than the tree's", tutti_world_rank(world));
    if (sums(world, "hierarchy", x, &elements, &e) != TUTTI_ERR_USAGE || strstr(e.text, "needs the same power of two of members on each of several hosts") == NULL)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "asked for by name: %s", e.text);
    return TUTTI_OK;
}

static void run(int p, int (*host)(void *, int), tutti_status (*rank_main)(tutti_world *, void *, tutti_error *))
{
    tutti_error err = { 0 };

    pretended = *tutti_transport_find("shm");
    pretended.window = NULL;
    pretended.publish = NULL;
    pretended.await = NULL;
    pretended.host = host;
    if (tutti_world_run_on(&pretended, "shm", p, rank_main, NULL, &err) != TUTTI_OK)
        fail_msg("%d ranks: %s", p, err.text);
}

static void hosts_that_are_alike_exchange_each_element_once(void **state)
{
    (void)state;
    run(4, pairs, hierarchical_main);
    run(6, pairs, hierarchical_main);
    run(8, pairs, hierarchical_main);
}

static void hosts_that_are_not_alike_go_flat(void **state)
{
    (void)state;
    run(4, three_and_one, unlike_main);
    run(5, pairs, unlike_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_that_are_alike_exchange_each_element_once),
        cmocka_unit_test(hosts_that_are_not_alike_go_flat),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
