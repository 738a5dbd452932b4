/* rough.h: numbers of unlike size and sign, so that another order of adding gives another sum. */
#ifndef TUTTI_TESTS_ENGINE_ROUGH_H
#define TUTTI_TESTS_ENGINE_ROUGH_H
#include "tutti/base.h"

static inline float rough(uint64_t epoch, uint64_t position, size_t i)
{
    const uint64_t draw = tutti_random((tutti_rng){ position + 1, epoch, 5 }, i);

    return (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000) / 300;
}
#endif
