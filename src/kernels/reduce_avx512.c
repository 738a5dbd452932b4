/* reduce_avx512.c: reduce.c for AVX-512. */
#include "simd_avx512.h"
#include "reduce_simd.h"
