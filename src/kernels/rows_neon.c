/* rows_neon.c: rows.c for NEON. */
#include "simd_neon.h"
#include "rows_simd.h"
