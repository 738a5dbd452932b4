/* rows_avx512.c: rows.c for AVX-512. */
#include "simd_avx512.h"
#include "rows_simd.h"
