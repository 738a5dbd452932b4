/* fill_neon.c: fill.c for NEON. */
#include "simd_random_neon.h"
#include "fill_simd.h"
