/* step_neon.c: step.c for NEON with FMA. */
#include "simd_neon.h"
#include "step_simd.h"
