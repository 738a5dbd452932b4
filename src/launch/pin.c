/* pin.c: assigns cores to workers (tutti_launch_pin). Workers get neighbouring cores in hwloc's
   logical order, so that those of one worker share caches; hwloc sees only what cpusets and the
   affinity of this process allow. A core comes with all its hardware threads: two workers on one
   core would only alternate.

   If there are enough cores, each worker gets one more than it computes on, so that its other
   threads (the lane of its exchanges, its loader) run concurrently with the computation. If several
   launchers of one run share cores (agents of two names of one machine), their workers are numbered
   together, and each launcher pins its own. */
#include <errno.h>
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include "launch_internal.h"

tutti_status tutti_launch_pin(cpu_set_t *sets, int workers, int first, int size, int threads,
                              tutti_error *err)
{
    hwloc_topology_t topology = NULL;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), mine = hwloc_bitmap_alloc();
    tutti_status status = TUTTI_OK;
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int cores, each;

    if (allowed == NULL || mine == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "pinning %d workers", workers);
        goto out;
    }
    if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0) {
        status = tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "cannot learn the cores of this machine; start the %d workers without pinning",
            workers);
        goto out;
    }
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(allowed, hwloc_topology_get_topology_cpuset(topology));
    hwloc_bitmap_and(allowed, allowed, hwloc_topology_get_allowed_cpuset(topology));
    cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, type);
    if (cores <=
        0) { /* this process may use only some hardware threads of each core, or the machine reports no
                         cores */
        type = HWLOC_OBJ_PU;
        cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, type);
    }
    if (cores <= 0) {
        status = tutti_fail(
            err, TUTTI_ERR_IO, 0,
            "found no core that this process may use; start the %d workers without pinning",
            workers);
        goto out;
    }
    each = (long long)size * (threads + 1LL) <= cores ? threads + 1 : threads;
    for (int r = 0; r < workers; r++) {
        const int from = (int)(((long long)first + r) * each % cores),
                  n = each < cores ? each : cores;
        hwloc_bitmap_zero(mine);
        for (int k = 0; k < n; k++)
            hwloc_bitmap_or(mine, mine,
                            hwloc_get_obj_inside_cpuset_by_type(topology, allowed, type,
                                                                (unsigned)((from + k) % cores))
                                ->cpuset);
        hwloc_bitmap_and(mine, mine, allowed);
        CPU_ZERO(&sets[r]);
        if (hwloc_cpuset_to_glibc_sched_affinity(topology, mine, &sets[r], sizeof sets[r]) != 0) {
            status = tutti_fail(err, TUTTI_ERR_IO, errno,
                                "cannot pin worker %d; start the %d workers without pinning", r,
                                workers);
            goto out;
        }
    }
out:
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(mine);
    if (topology != NULL)
        hwloc_topology_destroy(topology);
    return status;
}
