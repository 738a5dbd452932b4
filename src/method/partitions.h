/* partitions.h: the search for the number of parts in which parallax.c sends a large table: Kim et
   al., "Parallax", EuroSys 2019, section 3.3 (the authors' partitions.py). All of it is in this
   file. The time of a step with P parts is modelled as

     T(P) = t0 + t1 / P + t2 (P - 1)

   in seconds. t0: the time that does not depend on P; t1: the time that is divided among the
   parts; t2: the extra time of each part after the first. The search doubles P from the first
   value on while steps get faster, then halves P from the least value tried while steps get
   faster. With three samples or more T is fitted by least squares, and the result is the integer
   P in the range tried for which T is least. With fewer it is the fastest P tried.

   Differs from the authors' code: each time is compared with the best so far. They compare it with
   the one before it; when the search turns round, that is the slowest of the doubled values. */
#ifndef TUTTI_METHOD_PARTITIONS_H
#define TUTTI_METHOD_PARTITIONS_H
#include <stdbool.h>
#include <stdint.h>

enum { PARTITION_SAMPLES = 64 };
/* The state of a search. It has no pointers, so it may be declared state. */
typedef struct partition_search {
    int64_t now;                         /* P of the next step to be timed; when the search has
                                            ended, the result */
    int64_t least, most;                 /* bounds of P */
    int32_t samples;                     /* number of samples so far */
    int32_t way;                         /* 1: P doubles; -1: P halves; 0: the search has ended */
    int64_t tried[PARTITION_SAMPLES];    /* P of each sample */
    double seconds[PARTITION_SAMPLES];   /* time of a step of each sample */
} partition_search;

/* Returns a new search that begins at P = first. Requires 1 <= least <= first <= most. */
static inline partition_search partition_search_begin(int64_t first, int64_t least,
                                                      int64_t most)
{
    partition_search s = { .now = first, .least = least, .most = most };

    s.way = least < most;
    return s;
}

/* Fits t0 + t1 u + t2 v, with u = 1/P and v = P - 1, to the samples' times, which are divided by
   the largest of them: least squares by Cramer's rule on deviations from the means. Returns false
   if the samples do not determine both t1 and t2. */
static inline bool partition_fit(const partition_search *s, double *t1, double *t2)
{
    double largest = 0, u = 0, v = 0, t = 0, uu = 0, uv = 0, vv = 0, ut = 0, vt = 0, determinant;

    for (int i = 0; i < s->samples; i++)
        largest = s->seconds[i] > largest ? s->seconds[i] : largest;
    if (!(largest > 0))
        return false;
    for (int i = 0; i < s->samples; i++) {
        u += 1.0 / (double)s->tried[i] / s->samples;
        v += (double)(s->tried[i] - 1) / s->samples;
        t += s->seconds[i] / largest / s->samples;
    }
    for (int i = 0; i < s->samples; i++) {
        const double du = 1.0 / (double)s->tried[i] - u, dv = (double)(s->tried[i] - 1) - v,
                     dt = s->seconds[i] / largest - t;
        uu += du * du;
        uv += du * dv;
        vv += dv * dv;
        ut += du * dt;
        vt += dv * dt;
    }
    determinant = uu * vv - uv * uv;
    if (!(determinant > 1e-12 * uu * vv))
        return false;
    *t1 = (ut * vv - vt * uv) / determinant;
    *t2 = (vt * uu - ut * uv) / determinant;
    return true;
}

/* Ends the search: sets `now` to the result. */
static inline void partition_search_end(partition_search *s)
{
    int64_t low = s->tried[0], high = s->tried[0];
    int best = 0;
    double t1, t2, least;

    s->way = 0;
    for (int i = 1; i < s->samples; i++) {
        best = s->seconds[i] < s->seconds[best] ? i : best;
        low = s->tried[i] < low ? s->tried[i] : low;
        high = s->tried[i] > high ? s->tried[i] : high;
    }
    s->now = s->tried[best];
    if (s->samples < 3 || !partition_fit(s, &t1, &t2))
        return;
    least = t1 / (double)low + t2 * (double)(low - 1);
    s->now = low;
    for (int64_t p = low + 1; p <= high; p++) {
        const double at = t1 / (double)p + t2 * (double)(p - 1);
        if (at < least) {
            least = at;
            s->now = p;
        }
    }
}

/* Records that a step with P = now took that many seconds, and sets `now` to the next P to be
   timed. If `way` is 0 afterwards, the search has ended. Requires way != 0. */
static inline void partition_search_feed(partition_search *s, double seconds)
{
    bool better = true;
    int64_t low = s->now;

    for (int i = 0; i < s->samples; i++) {
        better = better && seconds < s->seconds[i];
        low = s->tried[i] < low ? s->tried[i] : low;
    }
    s->tried[s->samples] = s->now;
    s->seconds[s->samples++] = seconds;
    if (s->way > 0 && better && 2 * s->now <= s->most && s->samples < PARTITION_SAMPLES)
        s->now *= 2;
    else if ((s->way > 0 || better) && low / 2 >= s->least && s->samples < PARTITION_SAMPLES) {
        s->way = -1;
        s->now = low / 2;
    } else
        partition_search_end(s);
}
#endif
