/* random.h: the block function of the random numbers (base.h), for kernels. */
#ifndef TUTTI_BASE_RANDOM_H
#define TUTTI_BASE_RANDOM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* The block function, 10 rounds. */
void tutti_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* For kernels: the counter and the key of block 0. Block j holds draws 2j and 2j + 1. It has
   counter[0] = j low, and counter[1] ^= j high. */
void tutti_philox_begin(tutti_rng rng, uint32_t counter[4], uint32_t key[2]);
#pragma GCC visibility pop
#endif
