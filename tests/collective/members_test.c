/* Goal: what an agreement on the members gives its callers (comm.h), case by case; what schedules
   and deaths do to it is the explorer's (pieces_members.c). Method: ranks are threads over shm;
   one that is to be lost returns a failure of its own, which the others see as a loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "collective/members.h"
#include "tutti/comm.h"
#include "collective/world.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d, worker %d: not so: %s", __LINE__, \
                              tutti_world_rank(world), #condition); \
    } while (0)
#define GONE "this worker was told to fail"
#define EXPELLED "this test wants it out"

typedef tutti_status (*part)(tutti_world *world, tutti_members *m, tutti_error *err);

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_members *m;
    tutti_status status;

    TUTTI_TRY(tutti_members_open(&m, world, 3, err));
    status = (*(part *)arg)(world, m, err);
    tutti_members_close(m);
    return status;
}

static tutti_status run(int n, part what, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, rank_main, &what, err);
}

/* All of them must end well, except one that fails as intended, or was expelled. */
static void all_well(int n, part what)
{
    tutti_error err;
    const tutti_status status = run(n, what, &err);

    if (status != TUTTI_OK && strcmp(err.text, GONE) != 0 && strstr(err.text, EXPELLED) == NULL)
        fail_msg("%d workers: %s", n, err.text);
}

static tutti_status sum(tutti_group *g, int64_t mine, int64_t *all, tutti_error *err)
{
    *all = mine;
    return tutti_allreduce(g, TUTTI_SUM, tutti_host(all, 1, TUTTI_I64), err);
}

static tutti_status fail_here(tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_IO, 0, GONE);
}

/* ---- no rank is lost ---- */

static tutti_status well(tutti_world *world, tutti_members *m, tutti_error *err)
{
    const uint64_t context = tutti_members_group(m, 1).context;

    for (int k = 0; k < 20; k++) {
        bool again = true;
        TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
        CHECK(!again && tutti_members_epoch(m) == 0);
    }
    CHECK(tutti_members_group(m, 1).context == context && !tutti_members_group(m, 1).apart &&
          tutti_members_group(m, 1).size == tutti_world_size(world));
    CHECK(tutti_members_group(m, 2).context != context);
    for (int r = 0; r < tutti_world_size(world); r++)
        CHECK(tutti_members_has(m, r));
    TUTTI_TRY(tutti_members_part(m, err));
    return tutti_members_part(m, err);
}

static void without_losses_the_membership_does_not_change(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        all_well(n, well);
}

static tutti_status nothing_counted(tutti_world *world, tutti_members *m, tutti_error *err)
{
    uint64_t bytes, messages;
    bool again;

    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    TUTTI_TRY(tutti_members_part(m, err));
    tutti_world_sent(world, TUTTI_ANY, &bytes, &messages);
    CHECK(bytes == 0 && messages == 0);
    return TUTTI_OK;
}

static void agreements_are_not_counted_as_method_traffic(void **state)
{
    (void)state;
    all_well(3, nothing_counted);
}

/* ---- a part is spoilt ---- */

static tutti_status spoilt(tutti_world *world, tutti_members *m, tutti_error *err)
{
    const uint64_t context = tutti_members_group(m, 1).context;
    tutti_group g;
    int64_t all;
    bool again;

    TUTTI_TRY(tutti_members_agree(m, tutti_world_rank(world) == 1 ? TUTTI_ERR_PEER : TUTTI_OK, &again, err));
    CHECK(again && tutti_members_epoch(m) == 0);
    g = tutti_members_group(m, 1);
    CHECK(g.context != context && g.apart && g.size == tutti_world_size(world) && g.index == tutti_world_rank(world));
    TUTTI_TRY(sum(&g, 1 << tutti_world_rank(world), &all, err));
    CHECK(all == (1 << tutti_world_size(world)) - 1);
    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    CHECK(!again);
    return tutti_members_part(m, err);
}

static void a_failed_member_makes_all_repeat_in_another_context(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        all_well(n, spoilt);
}

static tutti_status for_ever(tutti_world *world, tutti_members *m, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_error own = { .rank = -1 };
    int meetings = 0;

    for (bool again = true; status == TUTTI_OK && again; meetings++)
        status = tutti_members_agree(m, tutti_world_rank(world) == 0 ? TUTTI_ERR_PEER : TUTTI_OK, &again, &own);
    CHECK(meetings == 8);
    CHECK(status == (tutti_world_rank(world) == 0 ? TUTTI_ERR_PEER : TUTTI_ERR_STATE));
    CHECK(tutti_world_rank(world) == 0 || strstr(own.text, "repeated one agreement 8 times") != NULL);
    return TUTTI_OK;
}

static void an_agreement_is_repeated_at_most_eight_times(void **state)
{
    (void)state;
    all_well(3, for_ever);
}

/* ---- a failure of one's own ---- */

static tutti_status failing(tutti_world *world, tutti_members *m, tutti_error *err)
{
    const int me = tutti_world_rank(world);
    tutti_error own = { .rank = 7, .text = "as it was" };
    tutti_status status;
    bool again = true;

    status = tutti_members_agree(m,
                                 me == 2   ? TUTTI_ERR_IO
                                 : me == 3 ? TUTTI_ERR_NUMBER
                                 : me == 0 ? TUTTI_ERR_PEER
                                           : TUTTI_OK,
                                 &again, &own);
    CHECK(!again);
    if (me == 2 || me == 3) {
        CHECK(status == (me == 2 ? TUTTI_ERR_IO : TUTTI_ERR_NUMBER));
        CHECK(own.rank == 7 && strcmp(own.text, "as it was") == 0);
    } else {
        char expected[120];
        snprintf(expected, sizeof expected, "worker 2 has failed (%s), and the run ends with it",
                 tutti_status_name(TUTTI_ERR_IO));
        CHECK(status == TUTTI_ERR_PEER && own.rank == 2 && strcmp(own.text, expected) == 0);
    }
    return TUTTI_OK;
}

static void local_failures_end_the_run_naming_the_lowest_rank(void **state)
{
    (void)state;
    all_well(5, failing);
}

/* ---- losses ---- */

static tutti_status one_goes(tutti_world *world, tutti_members *m, tutti_error *err)
{
    const int n = tutti_world_size(world), gone = 1;
    const uint64_t context = tutti_members_group(m, 1).context;
    tutti_group g = tutti_group_workers(world, 11);
    int64_t all;
    bool again;

    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    if (tutti_world_rank(world) == gone)
        return fail_here(err);
    do { /* some may have got through before it left: then all did, or the collective is repeated */
        tutti_error own;
        tutti_status status = sum(&g, 1 << tutti_world_rank(world), &all, &own);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER);
        TUTTI_TRY(tutti_members_agree(m, status, &again, err));
        g = tutti_members_group(m, 1);
    } while (again);
    CHECK(all == (1 << n) - 1 - (1 << gone));
    CHECK(tutti_members_epoch(m) == 1 && !tutti_members_has(m, gone) && g.size == n - 1 && g.apart &&
          g.context != context);
    for (int i = 0; i < g.size; i++)
        CHECK(g.ranks[i] == i + (i >= gone));
    CHECK(tutti_world_lost(world, gone, NULL, 0));
    return tutti_members_part(m, err);
}

static void a_lost_worker_is_excluded_and_the_others_repeat(void **state)
{
    (void)state;
    for (int n = 2; n <= 6; n++)
        for (int turn = 0; turn < 5; turn++)
            all_well(n, one_goes);
}

/* Goal: a loss that lets a member through one collective and fails it on another ends the next
   collective on the first. Method: worker 2 leaves. Worker 1's part of a gather is a message to
   worker 0, which waits for worker 2's; so worker 1 is in the broadcast, from worker 0, over
   messages or through shared memory, when worker 0 gives up. */
static bool on_rendezvous;

static tutti_status two_in_one_meeting(tutti_world *world, tutti_members *m, tutti_error *err)
{
    const int me = tutti_world_rank(world);
    bool again;

    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    if (me == 2)
        return fail_here(err);
    for (int meeting = 0; meeting == 0 || again; meeting++) {
        tutti_group g = tutti_members_group(m, 1);
        int64_t mine = 10 + me, all[3] = { 0 }, word = me == 0 ? 77 : 0;
        tutti_error own = { .rank = -1 };
        tutti_status status;
        g.algorithm = "flat";
        status = tutti_gather_parts(&g, 0, tutti_host(&mine, 1, TUTTI_I64), tutti_host(all, (size_t)g.size, TUTTI_I64),
                                    &own);
        CHECK(meeting > 0 ? status == TUTTI_OK : me == 1 || status == TUTTI_ERR_PEER);
        g.algorithm = tutti_members_epoch(m) == 0 && on_rendezvous ? "window" : "tree";
        if (status == TUTTI_OK)
            status = tutti_broadcast(&g, 0, tutti_host(&word, 1, TUTTI_I64), &own);
        CHECK(status == (meeting > 0 ? TUTTI_OK : TUTTI_ERR_PEER));
        CHECK(status == TUTTI_OK || own.rank == 2);
        CHECK(status != TUTTI_OK || (word == 77 && (me == 1 || (all[0] == 10 && all[1] == 11))));
        TUTTI_TRY(tutti_members_agree(m, status, &again, err));
    }
    CHECK(tutti_members_epoch(m) == 1 && !tutti_members_has(m, 2));
    return tutti_members_part(m, err);
}

static void a_loss_missed_in_one_collective_ends_the_next(void **state)
{
    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        on_rendezvous = turn % 2 == 1;
        all_well(3, two_in_one_meeting);
    }
}

static tutti_status expelling(tutti_world *world, tutti_members *m, tutti_error *err)
{
    tutti_error own = { .rank = -1 };
    tutti_status status;
    bool again;

    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    if (tutti_world_rank(world) == 1)
        tutti_world_expel(world, 2, EXPELLED);
    status = tutti_members_agree(m, TUTTI_OK, &again, &own);
    if (tutti_world_rank(world) == 2) {
        CHECK(status == TUTTI_ERR_PEER && own.rank == 2 &&
              strstr(own.text, "worker 2 is no member of the run any more: ") == own.text);
        return fail_here(err);
    }
    if (status != TUTTI_OK && err != NULL)
        *err = own;
    TUTTI_TRY(status);
    if (tutti_members_has(m, 2)) /* worker 1 may have agreed before its message had come round */
        TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    CHECK(!tutti_members_has(m, 2) && tutti_members_epoch(m) == 1 && tutti_world_lost(world, 2, NULL, 0));
    return tutti_members_part(m, err);
}

static void an_expelled_worker_is_notified_and_the_others_agree(void **state)
{
    (void)state;
    for (int turn = 0; turn < 10; turn++)
        all_well(4, expelling);
}

static tutti_status alone(tutti_world *world, tutti_members *m, tutti_error *err)
{
    tutti_group g;
    int64_t all;
    bool again;

    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    if (tutti_world_rank(world) != 2)
        return fail_here(err);
    for (int r = 0; r < tutti_world_size(world); r++)
        while (r != 2 && !tutti_world_lost(world, r, NULL, 0))
            tutti_sleep_until(tutti_world_runtime(world), tutti_now_ns(tutti_world_runtime(world)) + 1000000);
    TUTTI_TRY(tutti_members_agree(m, TUTTI_OK, &again, err));
    g = tutti_members_group(m, 1);
    CHECK(!again && g.size == 1 && g.index == 0 && g.ranks[0] == 2 && tutti_members_epoch(m) == 1);
    TUTTI_TRY(sum(&g, 5, &all, err));
    CHECK(all == 5);
    return tutti_members_part(m, err);
}

static void the_last_remaining_worker_continues_alone(void **state)
{
    (void)state;
    all_well(4, alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_losses_the_membership_does_not_change),
        cmocka_unit_test(agreements_are_not_counted_as_method_traffic),
        cmocka_unit_test(a_failed_member_makes_all_repeat_in_another_context),
        cmocka_unit_test(an_agreement_is_repeated_at_most_eight_times),
        cmocka_unit_test(local_failures_end_the_run_naming_the_lowest_rank),
        cmocka_unit_test(a_lost_worker_is_excluded_and_the_others_repeat),
        cmocka_unit_test(a_loss_missed_in_one_collective_ends_the_next),
        cmocka_unit_test(an_expelled_worker_is_notified_and_the_others_agree),
        cmocka_unit_test(the_last_remaining_worker_continues_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
