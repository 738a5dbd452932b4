/* cross.h: cross-gradients of a mixer (the method saddle). Implemented by mixer_cross.c. */
#ifndef TUTTI_GOSSIP_CROSS_H
#define TUTTI_GOSSIP_CROSS_H
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default)

/* Cross-gradients (src/gossip/mixer_cross.c): a vector that this worker computes at a neighbour's
   model is sent back to that neighbour. For mixers with `cross`: the graph must be symmetric in
   all rounds, and a loss ends the run, so not under TUTTI_FAULT_TOLERANT. Client thread.

   neighbours: number of neighbours in the round that was begun; they are indexed by ascending
   rank. The other calls are for a completed round (tutti_mix, tutti_mix_wait), before the next
   begins.
   model: the a-th neighbour's model when the round began; with a codec its public copy after the
   round. Valid until the first give_back.
   give_back: sends v (n elements) to the a-th neighbour, once each. Does not wait. Encoded by the
   codec, if models are, with error feedback: the encoding error of v is added to the next
   message.
   take_back: v := W_ii v + sum_j W_ij v_j, where v_j is the vector from neighbour j, with W of
   that round, summed as models are. With a codec v is replaced by its decoded encoding as well.
   Blocks. */
int tutti_mixer_neighbours(const tutti_mixer *mixer);
const float *tutti_mixer_model(const tutti_mixer *mixer, int a);
tutti_status tutti_mixer_give_back(tutti_mixer *mixer, int a, const float *v, tutti_error *err);
tutti_status tutti_mixer_take_back(tutti_mixer *mixer, float *v, tutti_error *err);

/* Call between two rounds when all workers have the same model x (n elements), to the bit, by
   other means than rounds. With a codec the public copies become x, on all without a message.
   Client thread. */
void tutti_mixer_restart(tutti_mixer *mixer, const float *x);
#pragma GCC visibility pop
#endif
