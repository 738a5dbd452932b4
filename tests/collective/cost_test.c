/* Goal: the cost model gives the published formulas of the collectives and of stragglar on
   homogeneous clusters, to rounding, and walks lists as the world does: arrivals, ports,
   rendezvous. Method: all algorithms over group sizes, slices even, against the closed formulas;
   small lists by hand. */
#include "collective/schedule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define P_MAX 128
#define ALPHA 50e-6
#define BETA 0.8e-9
#define GAMMA 3e-11

static double priced(const char *name, int p, int straggler, size_t n, const tutti_cost *cost, double *times)
{
    double own[P_MAX], last = 0, *all = times != NULL ? times : own;
    tutti_schedule *lists[P_MAX] = { 0 };
    tutti_error err = { 0 };

    for (int i = 0; i < p; i++) {
        const tutti_schedule_key key = {
            TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, name), p, i, straggler, n
        };
        assert_int_equal(tutti_schedule_open(&lists[i], &key, NULL), TUTTI_OK);
    }
    if (tutti_schedule_cost((const tutti_schedule *const *)lists, p, cost, all, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < p; i++) {
        last = all[i] > last ? all[i] : last;
        tutti_schedule_close(lists[i]);
    }
    return last;
}

static void close_to(const char *what, int p, double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-11 * expected))
        fail_msg("%s over %d: %.15g s, the formula says %.15g s", what, p, got, expected);
}

static int lg_up(int n)
{
    int lg = 0;

    while (1 << lg < n)
        lg++;
    return lg;
}

static void formulas_hold_on_homogeneous_clusters(void **state)
{
    const tutti_cost cost = { ALPHA, BETA, GAMMA, 4, NULL };

    (void)state;
    for (int p = 2; p <= P_MAX; p += p < 20 ? 1 : 27) {
        const size_t n = 320 * (size_t)p;
        const double s = 4.0 * (double)n, ring = (p - 1.0) / p * s;
        const int lg = lg_up(p);
        close_to("ring", p, priced("ring", p, 0, n, &cost, NULL), 2 * (p - 1) * ALPHA + 2 * ring * BETA + ring * GAMMA);
        close_to("direct", p, priced("direct", p, 0, n, &cost, NULL), 2 * ALPHA + 2 * ring * BETA + ring * GAMMA);
        close_to("exchange", p, priced("exchange", p, 0, n, &cost, NULL),
                 ALPHA + (p - 1) * s * BETA + (p - 1) * s * GAMMA);
        if ((p & (p - 1)) == 0) {
            close_to("tree", p, priced("tree", p, 0, n, &cost, NULL), 2 * lg * (ALPHA + s * BETA) + lg * s * GAMMA);
            close_to("doubling", p, priced("doubling", p, 0, n, &cost, NULL), lg * (ALPHA + s * BETA + s * GAMMA));
            close_to("halving", p, priced("halving", p, 0, n, &cost, NULL),
                     2 * lg * ALPHA + 2 * ring * BETA + ring * GAMMA);
        }
    }
}

static const tutti_cost free_sums = { ALPHA, BETA, 0, 4, NULL };

/* The straggler comes after delta: max(delta, T_RS) + T_SAR, whichever member it is. */
static void stragglar_cost_matches_the_papers_formula(void **state)
{
    static const double delays[] = { 0, 1e-3, 0.1, 3.0 };

    (void)state;
    for (int p = 4; p <= P_MAX; p *= 2) {
        const size_t n = 3200 * (size_t)(p - 1);
        const double s = 4.0 * (double)n, chunk = s / (p - 1) * BETA, rounds = p - 2 + lg_up(p);
        const double t_rs = (p - 2) * (ALPHA + chunk), t_sar = rounds * (ALPHA + chunk);
        for (size_t d = 0; d < TUTTI_LENGTH(delays); d++)
            for (int straggler = 0; straggler < p; straggler += 1 + p / 3) {
                double arrival[P_MAX] = { 0 };
                tutti_cost cost = free_sums;
                arrival[straggler] = delays[d];
                cost.arrival = arrival;
                close_to("stragglar", p, priced("stragglar", p, straggler, n, &cost, NULL),
                         fmax(delays[d], t_rs) + t_sar);
            }
    }
}

/* All wait for the latest in a ring: delta + T_ring where delta is its longest. */
static void a_ring_starts_when_its_last_member_arrives(void **state)
{
    double arrival[8] = { 0, 0, 0, 1, 0, 0, 0, 0 }, times[8];
    tutti_cost cost = free_sums;

    (void)state;
    cost.arrival = arrival;
    close_to("late ring", 8, priced("ring", 8, 0, 8 * 160, &cost, times), 1 + 14 * (ALPHA + 640 * BETA));
}

/* A gain over ring as the authors' model has it: 3 us, 450 GiB/s, 1 GiB,
   bandwidth terms: 1.13, 1.36, 1.56, 1.82. */
static void the_gain_is_that_of_the_authors_model(void **state)
{
    static const struct { int p; double gain; } rows[] = { { 4, 1.13 }, { 8, 1.36 }, { 16, 1.56 }, { 64, 1.82 } };
    const double beta = 1 / (450.0 * (1 << 30)), s = 1 << 30;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        const int p = rows[k].p;
        double arrival[P_MAX] = { 0 };
        tutti_cost cost = { 0, beta, 0, 4, arrival };
        double ring, late;
        arrival[p - 1] = 1;
        ring = priced("ring", p, 0, (1 << 28) / (size_t)p / 16 * 16 * (size_t)p, &cost, NULL) - 1;
        late = priced("stragglar", p, p - 1, (1 << 28) / (size_t)(p - 1) / 16 * 16 * (size_t)(p - 1), &cost, NULL) - 1;
        assert_true(fabs(ring - 2 * (p - 1.0) / p * s * beta) < 1e-6 * ring);
        assert_true(fabs(ring / late - rows[k].gain) < 0.0051);
    }
}

/* Ports: two messages to one member take turns, one out and one in do not; a receipt
   posted late holds the sender up. */
static void messages_take_turns_at_a_port(void **state)
{
    tutti_step steps[3][4] = {
        { { .kind = TUTTI_STEP_RECV, .peer = 1, .count = 100 },
          { .kind = TUTTI_STEP_RECV, .peer = 2, .count = 100 },
          { .kind = TUTTI_STEP_SEND, .peer = 1, .round = 1, .count = 100 },
          { .kind = TUTTI_STEP_WAIT, .n = 3 } },
        { { .kind = TUTTI_STEP_SEND, .peer = 0, .count = 100 },
          { .kind = TUTTI_STEP_RECV, .peer = 0, .round = 1, .count = 100 },
          { .kind = TUTTI_STEP_WAIT, .n = 2 } },
        { { .kind = TUTTI_STEP_SEND, .peer = 0, .count = 100 }, { .kind = TUTTI_STEP_WAIT, .n = 1 } },
    };
    tutti_schedule lists[3] = {
        { .steps = steps[0], .n_steps = 4, .requests = 3 }, { .steps = steps[1], .n_steps = 3, .requests = 2 },
        { .steps = steps[2], .n_steps = 2, .requests = 1 },
    };
    const tutti_schedule *const all[3] = { &lists[0], &lists[1], &lists[2] };
    double arrival[3] = { 0 }, times[3];
    const tutti_cost cost = { 1, 0.25, 0, 4, arrival }; /* 100 s of wire a message */

    (void)state;
    assert_int_equal(tutti_schedule_cost(all, 3, &cost, times, NULL), TUTTI_OK);
    assert_true(times[0] == 201 && times[1] == 101 && times[2] == 201);
    arrival[1] = 50; /* now 2's message is first */
    assert_int_equal(tutti_schedule_cost(all, 3, &cost, times, NULL), TUTTI_OK);
    assert_true(times[0] == 201 && times[1] == 201 && times[2] == 101);
    arrival[0] = 1000;
    assert_int_equal(tutti_schedule_cost(all, 3, &cost, times, NULL), TUTTI_OK);
    assert_true(times[0] == 1201 && times[2] == 1201 && times[1] == 1101);
}

static void a_sender_has_one_port_too(void **state)
{
    tutti_step steps[3][3] = {
        { { .kind = TUTTI_STEP_SEND, .peer = 1, .count = 100 },
          { .kind = TUTTI_STEP_SEND, .peer = 2, .count = 100 },
          { .kind = TUTTI_STEP_WAIT, .n = 2 } },
        { { .kind = TUTTI_STEP_RECV, .peer = 0, .count = 100 }, { .kind = TUTTI_STEP_WAIT, .n = 1 } },
        { { .kind = TUTTI_STEP_RECV, .peer = 0, .count = 100 }, { .kind = TUTTI_STEP_WAIT, .n = 1 } },
    };
    tutti_schedule lists[3] = {
        { .steps = steps[0], .n_steps = 3, .requests = 2 }, { .steps = steps[1], .n_steps = 2, .requests = 1 },
        { .steps = steps[2], .n_steps = 2, .requests = 1 },
    };
    const tutti_schedule *const all[3] = { &lists[0], &lists[1], &lists[2] };
    const tutti_cost cost = { 1, 0.25, 0, 4, NULL };
    double times[3];

    (void)state;
    assert_int_equal(tutti_schedule_cost(all, 3, &cost, times, NULL), TUTTI_OK);
    assert_true(times[0] == 201 && times[1] == 101 && times[2] == 201);
}

/* Four members, two a block: both members of block 0 send to the other block at once, and wait for
   each other at its port; within a block they do not. */
static void messages_between_blocks_take_turns_at_their_ports(void **state)
{
    const double far = 3 * BETA, bytes = 4000;
    const tutti_cost cost = { ALPHA, BETA, 0, 4, NULL, { { 2, far } } };
    const tutti_step send = { .kind = TUTTI_STEP_SEND, .count = 1000 },
                     recv = { .kind = TUTTI_STEP_RECV, .count = 1000 }, wait = { .kind = TUTTI_STEP_WAIT, .n = 1 };
    double times[4];

    (void)state;
    for (int near = 0; near < 2; near++) { /* 0 and 1 send to 2 and 3; or to each other's neighbours: 0 to 1, 2 to 3 */
        tutti_step steps[4][2] = {
            { send, wait }, { near ? recv : send, wait }, { near ? send : recv, wait }, { recv, wait }
        };
        tutti_schedule lists[4];
        const tutti_schedule *all[4];
        for (int i = 0; i < 4; i++) {
            steps[i][0].peer = near ? i ^ 1 : (i + 2) % 4;
            lists[i] = (tutti_schedule){ .steps = steps[i], .n_steps = 2, .requests = 1 };
            all[i] = &lists[i];
        }
        assert_int_equal(tutti_schedule_cost(all, 4, &cost, times, NULL), TUTTI_OK);
        close_to("first", 4, times[0], ALPHA + bytes * (near ? BETA : far));
        close_to("second", 4, times[near ? 2 : 1], ALPHA + bytes * (near ? BETA : 2 * far));
    }
}

/* Goal: nodes are looked at where the model predicts that it pays, and only there. Method: both
   lists priced with the constants of the rule (schedule.c): 8 GB/s a member, 20 GB/s a node's
   border, 2 us a message; near the break-even either is right. */
static void node_hierarchy_is_used_where_the_model_predicts_gain(void **state)
{
    static const int sizes[] = { 2, 4, 8, 16 };
    int paid = 0, not = 0;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(sizes); k++)
        for (int nodes = 2; nodes <= 4 && nodes * sizes[k] <= P_MAX; nodes++)
            for (size_t n = (size_t)1 << 11; n <= (size_t)1 << 21; n *= 8) { /* smaller ones go another way */
                const int q = sizes[k], p = q * nodes;
                const tutti_cost cost = { 2e-6, 1 / 8e9, 0, 4, NULL, { { q, 1 / 20e9 } } };
                const bool pays = tutti_nodes_pay(p, q, n);
                double nested = 0, flat = priced("direct", p, 0, n, &cost, NULL), times[P_MAX];
                tutti_schedule *lists[P_MAX] = { 0 };
                for (int i = 0; i < p; i++) {
                    const tutti_schedule_key key = {
                        TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "hierarchy"), p, i, 0, n, NULL, 0, q
                    };
                    assert_int_equal(tutti_schedule_open(&lists[i], &key, NULL), TUTTI_OK);
                }
                assert_int_equal(tutti_schedule_cost((const tutti_schedule *const *)lists, p, &cost, times, NULL),
                                 TUTTI_OK);
                for (int i = 0; i < p; i++) {
                    nested = times[i] > nested ? times[i] : nested;
                    tutti_schedule_close(lists[i]);
                }
                paid += pays;
                not += !pays;
                if (pays ? nested > 1.02 * flat : nested < 0.8 * flat)
                    fail_msg("%d nodes of %d, %zu elements: %s, but flat takes %.1f us and by nodes %.1f us", nodes, q,
                             n, pays ? "by nodes" : "flat", flat * 1e6, nested * 1e6);
            }
    assert_true(paid > 0 && not > 0);
}

static void a_deadlock_is_reported(void **state)
{
    tutti_step steps[2][4] = {
        { { .kind = TUTTI_STEP_SEND, .peer = 1, .count = 1 },
          { .kind = TUTTI_STEP_WAIT, .n = 1 },
          { .kind = TUTTI_STEP_RECV, .peer = 1, .count = 1 },
          { .kind = TUTTI_STEP_WAIT, .first = 1, .n = 1 } },
        { { .kind = TUTTI_STEP_SEND, .peer = 0, .count = 1 },
          { .kind = TUTTI_STEP_WAIT, .n = 1 },
          { .kind = TUTTI_STEP_RECV, .peer = 0, .count = 1 },
          { .kind = TUTTI_STEP_WAIT, .first = 1, .n = 1 } },
    };
    tutti_schedule lists[2] = {
        { .steps = steps[0], .n_steps = 4, .requests = 2 }, { .steps = steps[1], .n_steps = 4, .requests = 2 },
    };
    const tutti_schedule *const all[2] = { &lists[0], &lists[1] };
    double times[2];
    tutti_error err = { 0 };

    (void)state;
    assert_int_equal(tutti_schedule_cost(all, 2, &free_sums, times, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "member 0 of 2"));
    assert_non_null(strstr(err.text, "deadlock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_hold_on_homogeneous_clusters),
        cmocka_unit_test(stragglar_cost_matches_the_papers_formula),
        cmocka_unit_test(a_ring_starts_when_its_last_member_arrives),
        cmocka_unit_test(the_gain_is_that_of_the_authors_model),
        cmocka_unit_test(messages_take_turns_at_a_port),
        cmocka_unit_test(a_sender_has_one_port_too),
        cmocka_unit_test(messages_between_blocks_take_turns_at_their_ports),
        cmocka_unit_test(node_hierarchy_is_used_where_the_model_predicts_gain),
        cmocka_unit_test(a_deadlock_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
