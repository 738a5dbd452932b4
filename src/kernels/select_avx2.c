/* select_avx2.c: select.c for AVX2. */
#include "simd_codes_avx2.h"
#include "select_simd.h"
