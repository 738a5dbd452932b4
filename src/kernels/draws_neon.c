/* draws_neon.c: draws.c for NEON. */
#include "simd_random_neon.h"
#include "draws_simd.h"
