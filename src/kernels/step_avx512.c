/* step_avx512.c: step.c for AVX-512. */
#include "simd_avx512.h"
#include "step_simd.h"
