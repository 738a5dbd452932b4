/* extent_avx512.c: extent.c for AVX-512. */
#include "simd_codes_avx512.h"
#include "extent_simd.h"
