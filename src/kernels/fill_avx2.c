/* fill_avx2.c: fill.c for AVX2. */
#include "simd_random_avx2.h"
#include "fill_simd.h"
