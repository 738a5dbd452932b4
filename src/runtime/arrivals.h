/* arrivals.h: a model of samples that arrive at a constant rate and wait in a buffer until they are
   taken (the streams of ScaDLES, Tyagi & Swany 2022). Implemented in arrivals.c. Included by
   src/method/scadles and src/train. tutti_arrivals is plain data, which may be declared state of a
   checkpoint. One thread at a time.

   Sample k, from 1, arrives k / rate seconds after begin. Times are given by the caller, in ns of
   tutti_now_ns or of any other clock; they must not decrease from call to call. */
#ifndef TUTTI_ARRIVALS_H
#define TUTTI_ARRIVALS_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_arrivals {
    double rate;                  /* samples per second */
    uint64_t buffer;              /* most samples that wait; later ones are dropped; 0: no limit */
    int64_t begin_ns;
    /* Samples since begin, at the time of the last call. Those that wait are arrived - taken -
       dropped. */
    uint64_t arrived, taken, dropped;
    int64_t waited_ns;            /* total time that tutti_arrivals_take has blocked */
} tutti_arrivals;

/* Begins at now_ns, with no sample waiting. rate: above 0. */
void tutti_arrivals_begin(tutti_arrivals *a, double rate, uint64_t buffer, int64_t now_ns);

/* Returns how many samples wait at now_ns, and updates the counts. */
uint64_t tutti_arrivals_waiting(tutti_arrivals *a, int64_t now_ns);

/* Returns the time at which n samples wait, if none is taken until then; if n wait already, a time
   that has passed. n: at most the buffer, if that is not 0. */
int64_t tutti_arrivals_due(const tutti_arrivals *a, uint64_t n);

/* Blocks until n samples wait, on the clock of rt, and takes them. n: as above. */
void tutti_arrivals_take(tutti_arrivals *a, tutti_runtime *rt, uint64_t n);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
