/* pack_neon.c: pack.c for NEON. */
#include "simd_codes_neon.h"
#include "pack_simd.h"
