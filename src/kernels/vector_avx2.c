/* vector_avx2.c: vector.c for AVX2 with FMA. */
#include "simd_avx2.h"
#include "vector_simd.h"
