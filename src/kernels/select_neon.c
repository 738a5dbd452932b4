/* select_neon.c: select.c for NEON. */
#include "simd_codes_neon.h"
#include "select_simd.h"
