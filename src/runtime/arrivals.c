/* arrivals.c: the model of arriving samples (arrivals.h). All counts are whole samples, and arrived
   = taken + dropped + waiting holds exactly. Only a take frees space, so what a full buffer has
   dropped since the last call is counted at the next. */
#include <math.h>
#include "runtime/arrivals.h"

static const double ns = 1e9;

void tutti_arrivals_begin(tutti_arrivals *a, double rate, uint64_t buffer, int64_t now_ns)
{
    *a = (tutti_arrivals){ .rate = rate, .buffer = buffer, .begin_ns = now_ns };
}

/* When sample k, from 1, comes; the end of time at the latest. */
static int64_t due(const tutti_arrivals *a, uint64_t k)
{
    const double after = ceil((double)k / a->rate * ns);
    return after < 0x1p62 && a->begin_ns < INT64_C(1) << 62 ? a->begin_ns + (int64_t)after
                                                            : INT64_MAX;
}

static uint64_t waiting(const tutti_arrivals *a)
{
    return a->arrived - a->taken - a->dropped;
}

uint64_t tutti_arrivals_waiting(tutti_arrivals *a, int64_t now_ns)
{
    if (now_ns > a->begin_ns) {
        /* never too many by rounding */
        const uint64_t about =
            (uint64_t)((double)(now_ns - a->begin_ns) / ns * a->rate * (1 - 1e-12));
        a->arrived = about > a->arrived ? about : a->arrived;
        while (due(a, a->arrived + 1) <= now_ns)
            a->arrived++;
    }
    if (a->buffer > 0 && waiting(a) > a->buffer)
        a->dropped += waiting(a) - a->buffer;
    return waiting(a);
}

int64_t tutti_arrivals_due(const tutti_arrivals *a, uint64_t n)
{
    const uint64_t there = waiting(a);

    return due(a, a->arrived + (n > there ? n - there : 0));
}

void tutti_arrivals_take(tutti_arrivals *a, tutti_runtime *rt, uint64_t n)
{
    const int64_t asked = tutti_now_ns(rt);
    int64_t now = asked;

    for (; tutti_arrivals_waiting(a, now) < n; now = tutti_now_ns(rt))
        tutti_sleep_until(rt, tutti_arrivals_due(a, n));
    a->waited_ns += now - asked;
    a->taken += n;
}
