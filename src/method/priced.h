/* priced.h: shared by methods that choose between two all-reduces: the time of each on this run's
   links, as a line through two sizes that were timed before the first step. Times are the slowest
   worker's, so all have the same line and reach the same decision. */
#ifndef TUTTI_METHOD_PRICED_H
#define TUTTI_METHOD_PRICED_H
#include <math.h>
#include "tutti/method.h"

/* s a call, s a byte of float32; zeros: not timed */
typedef struct priced { double call, byte; } priced;
/* elements: PRICED_PART: of a chunk (schedule.h); PRICED_MOST: of a vector */
enum { PRICED_TRIES = 3, PRICED_PART = 16, PRICED_MOST = 1 << 20 };
/* s; other load of the machine matters little to a measurement of that length */
#define PRICED_LONG 0.05

static inline double priced_seconds(const priced *p, size_t count)
{
    return p->call + p->byte * 4.0 * (double)count;
}

/* The least of several tries, each the slowest worker's time. The gradient's memory is zero
   before the first step, and stays so. */
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

/* Called within open(), by all workers. algorithm: as a group's (comm.h). The smaller size is the
   least that gives every worker a part: with a shorter vector some send nothing, and no message
   waits for the worst link. */
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
