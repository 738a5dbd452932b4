/* arrivals.h: samples that arrive at a given rate and wait until they are taken (the streams of
   ScaDLES, Tyagi & Swany 2022). Plain data, which may be declared state; one thread at a time.

   Times are given by the caller: those of tutti_now_ns, or of any other clock. */
#ifndef TUTTI_ARRIVALS_H
#define TUTTI_ARRIVALS_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_arrivals {
    double rate;                  /* samples per second */
    uint64_t buffer;              /* most that wait, later ones are dropped; 0: no limit */
    int64_t begin_ns;
    uint64_t arrived, taken, dropped; /* waiting: arrived - taken - dropped */
    int64_t waited_ns;            /* in takes */
} tutti_arrivals;

/* Starts the arrivals now, with none waiting. rate above 0. */
void tutti_arrivals_begin(tutti_arrivals *a, double rate, uint64_t buffer, int64_t now_ns);

/* How many wait at that time, which must not be before that of the previous call. */
uint64_t tutti_arrivals_waiting(tutti_arrivals *a, int64_t now_ns);

/* The time at which n wait, if none is taken until then; with a buffer n is at most that. Not
   before the time of the last call. */
int64_t tutti_arrivals_due(const tutti_arrivals *a, uint64_t n);

/* Blocks until n wait and takes them. With a buffer n is at most that. */
void tutti_arrivals_take(tutti_arrivals *a, tutti_runtime *rt, uint64_t n);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
