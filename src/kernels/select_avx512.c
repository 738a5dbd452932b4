/* select_avx512.c: select.c for AVX-512. */
#include "simd_codes_avx512.h"
#include "select_simd.h"
