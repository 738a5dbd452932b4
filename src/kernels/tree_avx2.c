/* tree_avx2.c: tree.c for AVX2 with FMA. */
#include "simd_avx2.h"
#include "tree_simd.h"
