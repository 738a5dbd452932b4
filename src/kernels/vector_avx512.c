/* vector_avx512.c: vector.c for AVX-512. */
#include "simd_avx512.h"
#include "vector_simd.h"
