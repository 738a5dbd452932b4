/* ring.h: averaging with both neighbours on a ring by compressed differences: BAGUA's low-precision
   decentralised SGD. bagua.c uses it; ring.c implements it and has the formulas. Each worker stores
   copies of its two neighbours' models, and updates them by the differences that it receives.
   Excludes TUTTI_FAULT_TOLERANT: a loss ends the run. */
#ifndef TUTTI_BAGUA_RING_H
#define TUTTI_BAGUA_RING_H
#include "tutti/method.h"

typedef struct tutti_ring tutti_ring;
typedef struct tutti_ring_options {
    const char *codec;           /* spec of a codec that can encode for a single receiver
                                    (tutti_codec_check_point) */
    size_t bucket_bytes;         /* consecutive tensors form a bucket, which is one message and one
                                    vector to the codec, when they reach that size; 0: each tensor
                                    is a bucket */
    int team;                    /* workers of consecutive ranks that are one member of the ring;
                                    0: each worker is a member */
    bool overlap;                /* a bucket is encoded while those before it are sent */
} tutti_ring_options;
/* Adds the ring to the method, as a facility, within declare(). */
tutti_status tutti_ring_declare(tutti_ring **out, tutti_method *m, tutti_plan *plan,
                                const tutti_ring_options *options, tutti_error *err);
/* Averages x[n] with the neighbours' models: x := the model of this worker that its neighbours have
   a copy of. All workers call it with the same k, which differs in each call. Client thread,
   within step(). Blocks; exposed time. TUTTI_ERR_NUMBER: x is not finite. TUTTI_ERR_USAGE: a
   checkpoint with another `team` was loaded. */
tutti_status tutti_ring_exchange(tutti_ring *ring, uint64_t k, float *x, tutti_error *err);
/* Returns this worker's copy of the left neighbour's model (side -1), of its own (0), or of the
   right neighbour's (1), for tests. */
const float *tutti_ring_of(const tutti_ring *ring, int side);
#endif
