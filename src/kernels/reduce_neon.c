/* reduce_neon.c: reduce.c for NEON with FMA. */
#include "simd_neon.h"
#include "reduce_simd.h"
