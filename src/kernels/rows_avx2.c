/* rows_avx2.c: rows.c for AVX2. */
#include "simd_avx2.h"
#include "rows_simd.h"
