/* vector_neon.c: vector.c for NEON. */
#include "simd_neon.h"
#include "vector_simd.h"
