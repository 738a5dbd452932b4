/* means.c: collectives that a method's hooks may call, over all workers or over the node group:
   the mean, the values of the first member, the values of all (method.h). */
#include <string.h>

#include "engine_internal.h"
#include "calls.h"

static tutti_status all_reduce(tutti_method *m, tutti_reduction op, const char *what, float *x,
                               size_t n, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    tutti_status status;

    m->all.algorithm = e->sums.collective;
    status = tutti_allreduce(&m->all, op, tutti_f32(m->device, x, n), err);
    m->all.algorithm = NULL;
    tutti_engine_comm(e, what, 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_average(tutti_method *m, float *x, tutti_error *err)
{
    return all_reduce(m, TUTTI_MEAN, "average", x, m->layout->used, err);
}

tutti_status tutti_sum(tutti_method *m, float *x, size_t n, tutti_error *err)
{
    return all_reduce(m, TUTTI_SUM, "sum", x, n, err);
}

tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status = tutti_allgather_v(&m->all, counts, mine, all, err);

    tutti_engine_comm(e, "gather", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_take_over(tutti_method *m, float *x, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status =
        m->team > 1
            ? tutti_engine_with_team(e,
                                     tutti_broadcast(&e->groups.team, 0,
                                                     tutti_f32(m->device, x, m->layout->used), err),
                                     err)
            : TUTTI_OK;

    tutti_engine_comm(e, "take over", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_gather(tutti_method *m, const float *mine, size_t n, float *all,
                          tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status =
        tutti_allgather(&m->all, tutti_host((float *)(uintptr_t)mine, n, TUTTI_F32),
                        tutti_host(all, n * (size_t)m->all.size, TUTTI_F32), err);
    int from = m->all.size;

    /* members' rows are contiguous, in order of rank */
    for (int r = m->workers - 1; r >= 0 && status == TUTTI_OK && m->all.size < m->workers; r--)
        if (from > 0 && m->all.ranks[from - 1] == r)
            memmove(all + (size_t)r * n, all + (size_t)--from * n, n * sizeof *all);
        else
            memset(all + (size_t)r * n, 0, n * sizeof *all);
    tutti_engine_comm(e, "gather", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}
