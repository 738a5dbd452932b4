/* pack_avx2.c: pack.c for AVX2. */
#include "simd_codes_avx2.h"
#include "pack_simd.h"
