/* clock.c: how far the clocks of ranks are apart.

   Each host has a clock of its own. All ranks call a barrier a few times, and each one records by
   its own clock when it came and when it left. No rank leaves a barrier before all have come.
   So of ranks i and 0, whose clocks are ahead of a true one by a and b:
       came_0 - b <= left_i - a   and   came_i - a <= left_0 - b,
   that is  came_i - left_0 <= a - b <= left_i - came_0.  The tightest bounds over all barriers
   hold. If 0 lies between the bounds, a - b is taken as 0. Else a - b is taken in the middle, and
   the file states by how much that may be wrong ("within_us" of the event "clock"). This is
   measured more than once in a run, since clocks drift: between two measurements the difference is
   interpolated. */
#include <string.h>

#include "record/files.h"
#include "tutti/comm.h"
#include "collective/world.h"

enum { BARRIERS = 16 };

bool tutti_record_clocks_differ(const tutti_world *world)
{
    const char *transport = tutti_world_transport(world);

    return strcmp(transport, "shm") != 0 && !tutti_world_simulated(transport);
}

tutti_status tutti_record_clock_compare(tutti_group *group, tutti_record_clock *clock,
                                        tutti_error *err)
{
    tutti_runtime *rt = tutti_world_runtime(group->world);
    int64_t mine[2 * BARRIERS], first[2 * BARRIERS], least = INT64_MIN, most = INT64_MAX;

    for (int k = 0; k < BARRIERS; k++) {
        mine[2 * k] = tutti_now_ns(rt);
        TUTTI_TRY(tutti_barrier(group, err));
        mine[2 * k + 1] = tutti_now_ns(rt);
    }
    memcpy(first, mine, sizeof first);
    TUTTI_TRY(tutti_broadcast(group, 0, tutti_host(first, TUTTI_LENGTH(first), TUTTI_I64), err));
    for (int k = 0; k < BARRIERS; k++) {
        const int64_t at_least = mine[2 * k] - first[2 * k + 1],
                      at_most = mine[2 * k + 1] - first[2 * k];
        least = at_least > least ? at_least : least;
        most = at_most < most ? at_most : most;
    }
    *clock = (tutti_record_clock){ .reference = tutti_group_rank(group, 0) };
    if (least > 0 || most < 0) {
        clock->ahead_ns = least + (most - least) / 2;
        clock->within_ns = (most - least) / 2;
    }
    clock->at_ns = tutti_now_ns(rt);
    return TUTTI_OK;
}

int64_t tutti_record_clock_ahead(const tutti_record_clock *clocks, int n, int64_t at_ns)
{
    const tutti_record_clock *a, *b;
    int k = 1;

    while (k < n - 1 && clocks[k].at_ns < at_ns)
        k++;
    b = &clocks[n > 1 ? k : 0];
    a = n > 1 ? b - 1 : b;
    if (a->reference != b->reference || b->at_ns <= a->at_ns)
        return b->ahead_ns;
    return a->ahead_ns + (int64_t)((double)(b->ahead_ns - a->ahead_ns) *
                                   (double)(at_ns - a->at_ns) / (double)(b->at_ns - a->at_ns));
}
