/* random.h: the block function of the library's random numbers (tutti_random, base.h). Implemented
   in random.c. Included by src/kernels, which draws many numbers at a time. */
#ifndef TUTTI_BASE_RANDOM_H
#define TUTTI_BASE_RANDOM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Computes Philox4x32-10: four words from a counter and a key. */
void tutti_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Sets the counter and the key of block 0 of rng. Block j, which has draws 2j and 2j + 1, is
   tutti_philox with the same key and with counter[0] = the low 32 bits of j and counter[1] XOR the
   high 32 bits of j. */
void tutti_philox_begin(tutti_rng rng, uint32_t counter[4], uint32_t key[2]);
#pragma GCC visibility pop
#endif
