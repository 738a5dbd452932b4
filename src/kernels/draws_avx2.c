/* draws_avx2.c: draws.c for AVX2. */
#include "simd_random_avx2.h"
#include "draws_simd.h"
