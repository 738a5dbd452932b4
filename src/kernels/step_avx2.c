/* step_avx2.c: step.c for AVX2 with FMA. */
#include "simd_avx2.h"
#include "step_simd.h"
