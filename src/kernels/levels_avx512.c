/* levels_avx512.c: levels.c for AVX-512. */
#include "simd_random_avx512.h"
#include "levels_simd.h"
