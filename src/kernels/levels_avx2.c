/* levels_avx2.c: levels.c for AVX2. */
#include "simd_random_avx2.h"
#include "levels_simd.h"
