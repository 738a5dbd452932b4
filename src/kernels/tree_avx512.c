/* tree_avx512.c: tree.c for AVX-512. */
#include "simd_avx512.h"
#include "tree_simd.h"
