/* ticktock.h: micro-batches on one worker with alternating memory peaks (the method wavelet).
   Implemented by ticktock.c. */
#ifndef TUTTI_PIPELINE_TICKTOCK_H
#define TUTTI_PIPELINE_TICKTOCK_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* ---- tick and tock: micro-batches on one worker with alternating memory peaks ---- */

/* A micro-batch goes through `parts` parts: forward first, which allocates memory, then backward,
   which releases it (Wavelet: Wang et al., MLSys 2021). Several are in progress at a time, each
   begun an offset after the one before it, so that one allocates while another releases. One part
   is computed at a time.

   1. No two are in forward at a time.
   2. None begins before the one before it has used the offset of computing time.
   3. From the last beginning on all get equal computing time; none overtakes one that began
      before. */
enum { TUTTI_TICKTOCK_WAVES_MOST = 4 };
typedef struct tutti_ticktock_profile {
    int forwards, parts;         /* parts of forward, of both together */
    const double *seconds;       /* parts: of each, above 0 */
    const double *bytes;         /* parts: held while it is computed */
} tutti_ticktock_profile;
typedef struct tutti_ticktock_track {
    int next;                    /* part that is computed next */
    double at, since;            /* its computing time; the part of that since the last one began */
} tutti_ticktock_track;
typedef struct tutti_ticktock {
    const tutti_ticktock_profile *profile; /* may change between two calls, except its parts */
    int waves;                   /* most micro-batches in progress */
    double offset;               /* seconds */
    int64_t begun, over;         /* micro-batches; those between are running, k at k mod waves */
    tutti_ticktock_track of[TUTTI_TICKTOCK_WAVES_MOST];
} tutti_ticktock;

/* The micro-batch whose part is to be computed next, from 0 on; if it equals `begun` a new one
   begins, which may_begin allows. -1: none can be computed. */
int64_t tutti_ticktock_next(const tutti_ticktock *t, bool may_begin);

/* Call when that part was computed. Returns whether the micro-batch is over; it is then the
   oldest. */
bool tutti_ticktock_ran(tutti_ticktock *t, int64_t micro);

/* The peak of bytes held when micro-batches follow each other without a wait. */
double tutti_ticktock_peak(const tutti_ticktock_profile *profile, int waves, double offset);

/* The offset up to 1/waves of a micro-batch's time with the lowest such peak; of equal ones the
   largest. For a triangular profile it is 1/waves. */
double tutti_ticktock_offset(const tutti_ticktock_profile *profile, int waves);
#pragma GCC visibility pop
#endif
