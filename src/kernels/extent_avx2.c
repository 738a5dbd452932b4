/* extent_avx2.c: extent.c for AVX2. */
#include "simd_codes_avx2.h"
#include "extent_simd.h"
