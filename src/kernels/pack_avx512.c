/* pack_avx512.c: pack.c for AVX-512. */
#include "simd_codes_avx512.h"
#include "pack_simd.h"
