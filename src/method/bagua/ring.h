/* ring.h: ring averaging with compressed differences (ring.c): BAGUA's low-precision
   decentralised SGD. Each worker has copies of its two neighbours' models, which are updated by
   the differences.
   codec: spec of a codec that can encode for a single receiver (tutti_codec_check_point).
   bucket_bytes: consecutive tensors form one message, and one vector to the codec, when they
   reach that many bytes; 0: each tensor does.
   team: as for a mixer.
   overlap: a bucket is encoded while those before it are sent. Not under TUTTI_FAULT_TOLERANT: a
   loss ends the run. */
#ifndef TUTTI_BAGUA_RING_H
#define TUTTI_BAGUA_RING_H
#include "tutti/method.h"

typedef struct tutti_ring tutti_ring;
typedef struct tutti_ring_options {
    const char *codec;
    size_t bucket_bytes;
    int team;
    bool overlap;
} tutti_ring_options;
/* Within declare(). */
tutti_status tutti_ring_declare(tutti_ring **out, tutti_method *m, tutti_plan *plan,
                                const tutti_ring_options *options, tutti_error *err);
/* Exchange k, the same on all workers: x (n elements) is averaged with the neighbours' models and
   becomes what the neighbours have as this worker's model. One at a time. Blocks; client thread,
   within step(). TUTTI_ERR_NUMBER: x is not finite. */
tutti_status tutti_ring_exchange(tutti_ring *ring, uint64_t k, float *x, tutti_error *err);
/* For tests: this worker's copy of the left neighbour's model (-1), its own (0), the right one's
   (1). */
const float *tutti_ring_of(const tutti_ring *ring, int side);
#endif
