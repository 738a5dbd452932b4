/* draws_avx512.c: draws.c for AVX-512. */
#include "simd_random_avx512.h"
#include "draws_simd.h"
