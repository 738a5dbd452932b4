/* tree_neon.c: tree.c for NEON with FMA. */
#include "simd_neon.h"
#include "tree_simd.h"
