/* Goal: where the transport reports several hosts, or several nodes (NUMA) of a host, collectives
   cross between them as rarely as the lists prescribe, with the bits of one host; and a layout
   that does not fit is reported when the hierarchy is asked for by name. Method: shared memory's
   messages, with hosts and nodes that this test makes up. */
#include "collective/collective_internal.h"
#include "values.h"
#include "collective/world.h"
#include "transport/registry.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
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
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank %d of %d, algorithm %d: other bits than the tree's",
                              tutti_world_rank(world), p, k);
    }
    /* 2 n/q (P-1)/P against 2 n/p (p-q) of "direct"; slices are cut at 16 elements. */
    const uint64_t hosts = (uint64_t)p / 2, most = 2 * (COUNT / 2 + 16) * (hosts - 1) / hosts + 32 * hosts;
    if (elements[0] != elements[1] || elements[0] > most || elements[2] < elements[0] * 3 / 2)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                          "rank %d of %d sends %llu elements to other hosts by choice, %llu by name (at most %llu), "
                          "%llu without hosts",
                          tutti_world_rank(world), p, (unsigned long long)elements[0], (unsigned long long)elements[1],
                          (unsigned long long)most, (unsigned long long)elements[2]);
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
    if (sums(world, "hierarchy", x, &elements, &e) != TUTTI_ERR_USAGE ||
        strstr(e.text, "needs the same power of two of members on each of several hosts") == NULL)
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

static void equal_hosts_exchange_each_element_once(void **state)
{
    (void)state;
    run(4, pairs, hierarchical_main);
    run(6, pairs, hierarchical_main);
    run(8, pairs, hierarchical_main);
}

static void hierarchy_is_rejected_on_unequal_hosts(void **state)
{
    (void)state;
    run(4, three_and_one, unlike_main);
    run(5, pairs, unlike_main);
}

/* ---- nodes ---- */
#define MANY (16 * 16 * 3 * 5 * 4)

typedef struct layout { int p, host, node; } layout; /* ranks, of a host, of a node */
static layout shape;
static int shape_host(void *t, int rank)
{
    (void)t;
    return rank / shape.host;
}
/* Node numbers within the host: nodes of another host have the same ones. */
static int shape_node(void *t, int rank)
{
    (void)t;
    return rank % shape.host / shape.node;
}
static int unknown_of_one(void *t, int rank)
{
    return rank == 3 ? -1 : shape_node(t, rank);
}

typedef struct crossing { uint64_t hosts, nodes; } crossing; /* elements sent to other hosts, to other nodes of mine */

static crossing crossings(tutti_world *world)
{
    const int me = tutti_world_rank(world);
    crossing sum = { 0, 0 };

    for (int r = 0; r < tutti_world_size(world); r++) {
        uint64_t bytes, messages;
        tutti_world_sent(world, r, &bytes, &messages);
        if (r / shape.host != me / shape.host)
            sum.hosts += bytes / sizeof(float);
        else if (r / shape.node != me / shape.node)
            sum.nodes += bytes / sizeof(float);
    }
    return sum;
}

/* The bits are checked here. */
static tutti_status crossed_by(tutti_world *world, const char *algorithm, size_t n, crossing *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 5);
    const crossing before = crossings(world);
    float *x = tutti_alloc(2 * n, sizeof *x);
    tutti_status status;

    g.algorithm = algorithm;
    values_reduce(TUTTI_F32, TUTTI_SUM, 1, g.size, NULL, 0, n, x + n);
    values_fill(TUTTI_F32, TUTTI_SUM, 1, tutti_world_rank(world), 0, n, x);
    status = tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, n), err);
    if (status == TUTTI_OK && memcmp(x, x + n, n * sizeof *x) != 0)
        status = tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank %d, algorithm '%s': other bits than the tree's",
                            tutti_world_rank(world), algorithm != NULL ? algorithm : "by choice");
    tutti_free(x);
    *c = crossings(world);
    c->hosts -= before.hosts;
    c->nodes -= before.nodes;
    return status;
}

static tutti_status expect(const char *what, crossing got, crossing expected, tutti_error *err)
{
    if (got.hosts == expected.hosts && got.nodes == expected.nodes)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                      "%s: %llu elements to other hosts instead of %llu, %llu to other nodes instead of %llu", what,
                      (unsigned long long)got.hosts, (unsigned long long)expected.hosts, (unsigned long long)got.nodes,
                      (unsigned long long)expected.nodes);
}

/* A member of a node of q shares n/q of n elements with the m nodes of its host, and a member of
   a host of q m members shares n/(q m) with the P hosts; each share travels twice, except for the
   member's own part. */
static crossing once(void)
{
    const uint64_t nodes = (uint64_t)(shape.host / shape.node), hosts = (uint64_t)(shape.p / shape.host);
    const crossing c = { 2 * MANY / (uint64_t)shape.host * (hosts - 1) / hosts,
                         2 * MANY / (uint64_t)shape.node * (nodes - 1) / nodes };

    return c;
}

static tutti_status nodes_main(tutti_world *world, void *arg, tutti_error *err)
{
    const int me = tutti_world_rank(world);
    crossing c;

    (void)arg;
    for (int r = 0; r < shape.p; r++)
        if (tutti_world_host(world, r) != r / shape.host || tutti_world_node(world, r) != r / shape.node * shape.node)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d says of rank %d: host %d, node %d", me, r,
                              tutti_world_host(world, r), tutti_world_node(world, r));
    TUTTI_TRY(crossed_by(world, "hierarchy", MANY, &c, err));
    TUTTI_TRY(expect("by name", c, once(), err));
    TUTTI_TRY(crossed_by(world, "direct", MANY, &c, err));
    if (c.hosts + c.nodes <= once().hosts + once().nodes)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                          "'direct' sends only %llu elements to other hosts and %llu to other nodes",
                          (unsigned long long)c.hosts, (unsigned long long)c.nodes);
    return TUTTI_OK;
}

/* By default: flat for a small vector and where windows serve (arg), by nodes for a large one. */
static tutti_status choice_main(tutti_world *world, void *arg, tutti_error *err)
{
    crossing c, flat;

    TUTTI_TRY(crossed_by(world, NULL, 256, &c, err));
    TUTTI_TRY(crossed_by(world, "exchange", 256, &flat, err));
    TUTTI_TRY(expect("a small vector", c, flat, err));
    TUTTI_TRY(crossed_by(world, NULL, MANY, &c, err));
    TUTTI_TRY(crossed_by(world, "direct", MANY, &flat, err));
    return expect("a large vector", c, arg != NULL ? flat : once(), err);
}

static tutti_status flat_main(tutti_world *world, void *arg, tutti_error *err)
{
    crossing c, flat;

    (void)arg;
    TUTTI_TRY(crossed_by(world, "direct", MANY, &flat, err));
    TUTTI_TRY(crossed_by(world, "hierarchy", MANY, &c, err));
    TUTTI_TRY(expect("by name", c, flat, err));
    TUTTI_TRY(crossed_by(world, NULL, MANY, &c, err));
    return expect("by choice", c, flat, err);
}

static tutti_status run_nodes(layout l, int (*node)(void *, int), bool windows,
                              tutti_status (*rank_main)(tutti_world *, void *, tutti_error *), tutti_error *err)
{
    shape = l;
    pretended = *tutti_transport_find("shm");
    if (!windows) {
        pretended.window = NULL;
        pretended.publish = NULL;
        pretended.await = NULL;
    }
    pretended.host = shape_host;
    pretended.node = node;
    return tutti_world_run_on(&pretended, "shm", l.p, rank_main, windows ? &shape : NULL, err);
}

static void well(layout l, int (*node)(void *, int), bool windows,
                 tutti_status (*rank_main)(tutti_world *, void *, tutti_error *))
{
    tutti_error err = { 0 };

    if (run_nodes(l, node, windows, rank_main, &err) != TUTTI_OK)
        fail_msg("%d ranks, %d a host, %d a node: %s", l.p, l.host, l.node, err.text);
}

static void equal_nodes_exchange_each_element_once(void **state)
{
    static const layout layouts[] = {
        { 8, 4, 2 }, { 16, 8, 2 }, { 16, 8, 4 }, { 12, 4, 2 }, { 4, 4, 2 }, { 12, 12, 4 }
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(layouts); k++)
        well(layouts[k], shape_node, false, nodes_main);
}

static void nodes_are_used_for_large_vectors_without_windows(void **state)
{
    (void)state;
    well((layout){ 16, 16, 8 }, shape_node, false, choice_main);
    well((layout){ 16, 16, 8 }, shape_node, true, choice_main);
}

static void unequal_or_unknown_nodes_use_a_flat_algorithm(void **state)
{
    (void)state;
    well((layout){ 6, 6, 3 }, shape_node, false, flat_main);         /* no power of two */
    well((layout){ 10, 10, 8 }, shape_node, false, flat_main);
    well((layout){ 16, 16, 8 }, unknown_of_one, false, flat_main);
    well((layout){ 16, 16, 8 }, NULL, false, flat_main);
    well((layout){ 8, 8, 8 }, shape_node, false, flat_main);         /* one node */
}

static void the_environment_sets_the_number_of_nodes_per_host(void **state)
{
    static const char *const wrong[] = { "0", "-1", "two", "2x", "99999" };
    tutti_error err = { 0 };

    (void)state;
    setenv("TUTTI_NODES", "2", 1);
    well((layout){ 8, 8, 4 }, NULL, false, nodes_main);
    well((layout){ 8, 4, 2 }, unknown_of_one, false, nodes_main); /* whatever the machine reports */
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++) {
        setenv("TUTTI_NODES", wrong[k], 1);
        assert_int_equal(run_nodes((layout){ 2, 2, 1 }, NULL, false, nodes_main, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "it must be the number of NUMA nodes of each host, 1 to 1024"));
        assert_non_null(strstr(err.text, wrong[k]));
        assert_int_equal(tutti_world_check("shm", &err), TUTTI_ERR_USAGE);
    }
    unsetenv("TUTTI_NODES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hosts_exchange_each_element_once),
        cmocka_unit_test(hierarchy_is_rejected_on_unequal_hosts),
        cmocka_unit_test(equal_nodes_exchange_each_element_once),
        cmocka_unit_test(nodes_are_used_for_large_vectors_without_windows),
        cmocka_unit_test(unequal_or_unknown_nodes_use_a_flat_algorithm),
        cmocka_unit_test(the_environment_sets_the_number_of_nodes_per_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
