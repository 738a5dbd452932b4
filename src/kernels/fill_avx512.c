/* fill_avx512.c: fill.c for AVX-512. */
#include "simd_random_avx512.h"
#include "fill_simd.h"
