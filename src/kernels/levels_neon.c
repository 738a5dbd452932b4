/* levels_neon.c: levels.c for NEON. */
#include "simd_random_neon.h"
#include "levels_simd.h"
