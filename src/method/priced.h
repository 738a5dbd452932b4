/* priced.h: the predicted time of an all-reduce on this run's links, for methods that choose
   between two algorithms (stragglar, hetero-ring). All of it is in this file. The prediction is a
   line through the times of two sizes, measured before the first step. A measured time is that of
   the slowest worker, so all workers have the same line and decide the same. */
#ifndef TUTTI_METHOD_PRICED_H
#define TUTTI_METHOD_PRICED_H
#include <math.h>
#include "tutti/method.h"

/* call: seconds of a call, whatever its size; byte: seconds per byte of float32. Both 0: not
   measured. */
typedef struct priced { double call, byte; } priced;
enum {
    PRICED_TRIES = 3,      /* most measurements of a size */
    PRICED_PART = 16,      /* elements of the smallest part that an algorithm gives a worker:
                              a chunk (schedule.h) */
    PRICED_MOST = 1 << 20  /* most elements of the larger size */
};
/* A measurement of at least that many seconds is not repeated. */
#define PRICED_LONG 0.05

/* Returns the predicted seconds of an all-reduce of `count` floats. */
static inline double priced_seconds(const priced *p, size_t count)
{
    return p->call + p->byte * 4.0 * (double)count;
}

/* Measures an all-reduce of `count` floats: *seconds := the least of up to PRICED_TRIES times, each
   that of the slowest worker. It sums m->g, which is zero before the first step. Collective. */
static inline tutti_status priced_try(tutti_method *m, tutti_group *g, const char *algorithm,
                                      size_t count, double *seconds, tutti_error *err)
{
    *seconds = INFINITY;
    for (int k = 0; k < PRICED_TRIES && (k == 0 || *seconds < PRICED_LONG); k++) {
        int64_t begin;
        double took;
        g->algorithm = NULL;
        TUTTI_TRY(tutti_barrier(g, err));
        begin = tutti_now_ns(m->rt);
        g->algorithm = algorithm;
        TUTTI_TRY(tutti_allreduce(g, TUTTI_SUM, tutti_f32(m->device, m->g, count), err));
        took = 1e-9 * (double)(tutti_now_ns(m->rt) - begin);
        g->algorithm = NULL;
        TUTTI_TRY(tutti_reduce_double(g, TUTTI_MAX, &took, 1, err));
        *seconds = fmin(*seconds, took);
    }
    return TUTTI_OK;
}

/* Measures an all-reduce at two sizes and sets *out, within open(). Collective. algorithm: as in
   tutti_group (comm.h). The smaller size is the least with which every worker has a part: in a
   smaller vector some workers would send nothing, and their links would not be measured. */
static inline tutti_status priced_measure(tutti_method *m, const char *algorithm, priced *out,
                                          tutti_error *err)
{
    const size_t most = m->layout->used < PRICED_MOST ? m->layout->used : PRICED_MOST;
    const size_t parts = PRICED_PART * (size_t)m->workers, least = parts < most ? parts : most;
    tutti_group g = tutti_group_keyed(
        &m->all, tutti_port_of(algorithm != NULL ? algorithm : "auto", most, 0), 0);
    double seconds[2];

    TUTTI_TRY(priced_try(m, &g, algorithm, least, &seconds[0], err));
    TUTTI_TRY(priced_try(m, &g, algorithm, most, &seconds[1], err));
    out->byte =
        most > least ? fmax(seconds[1] - seconds[0], 0) / (4.0 * (double)(most - least)) : 0;
    out->call = fmax(seconds[0] - out->byte * 4.0 * (double)least, 0);
    return TUTTI_OK;
}
#endif
