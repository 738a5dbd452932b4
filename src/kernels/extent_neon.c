/* extent_neon.c: extent.c for NEON. */
#include "simd_codes_neon.h"
#include "extent_simd.h"
