/* reduce_avx2.c: reduce.c for AVX2 with FMA. */
#include "simd_avx2.h"
#include "reduce_simd.h"
