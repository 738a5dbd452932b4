/* Tiers under the simulator: there are no queues, so threads that are actors serve them; each rank
   has one of its own on one disk, and reads what it has written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "forked.h"
#include "tier/tier.h"
#include "tutti/comm.h"

enum { RANKS = 3, BYTES = 50000, PART = 7001 };

static tutti_status use(tutti_world *world, tutti_tier *t, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, 1);
    tutti_io out[BYTES / PART] = { { 0 } }, in = { 0 }, *list[BYTES / PART], *const one = &in;
    char from[BYTES], to[BYTES], what[600];

    tutti_tier_describe(t, what, sizeof what);
    if (strstr(what, "2 threads, since runtime 'sim' has no queues in this build") == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s", what);
    memset(from, 0, sizeof from);
    for (int r = 0; r < BYTES / PART; r++) {
        list[r] = &out[r];
        memset(from + r * PART, 16 * tutti_world_rank(world) + r, PART);
        TUTTI_TRY(tutti_tier_write(t, &out[r], (uint64_t)r * PART, from + r * PART, PART, err));
    }
    TUTTI_TRY(tutti_tier_wait(t, list, BYTES / PART, err));
    TUTTI_TRY(tutti_barrier(&all, err));
    TUTTI_TRY(tutti_tier_read(t, &in, 0, to, BYTES, err));
    TUTTI_TRY(tutti_tier_wait(t, &one, 1, err));
    return memcmp(from, to, BYTES) == 0 ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_STATE, 0, "other bytes were read");
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_status status;
    tutti_tier *t;

    TUTTI_TRY(tutti_tier_open(&t, tutti_world_runtime(world), arg, BYTES, NULL, err));
    status = use(world, t, err);
    tutti_tier_close(t);
    return status;
}

static tutti_status in_child(void *arg, tutti_error *err)
{
    return tutti_world_run("sim", RANKS, rank_main, arg, err);
}

static void every_rank_has_its_own_tier_and_reads_what_it_wrote(void **state)
{
    tutti_error err = { 0 };

    (void)state;
    if (forked(in_child, (char[]){ "nvme(path=\"" TUTTI_BINARY_DIR "\",direct=off,depth=2,block=4096)" }, &err) !=
        TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_rank_has_its_own_tier_and_reads_what_it_wrote) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
