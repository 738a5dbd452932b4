/* simd_loop.h: how the loops in *_simd.h walk over their vectors. */
#ifndef TUTTI_KERNELS_SIMD_LOOP_H
#define TUTTI_KERNELS_SIMD_LOOP_H

/* Runs `statement` for each vector of [0, n): its elements are [i, i + k). k is a constant in the
   loop; the rest goes through the same operations under a mask, so that an element's bits do not
   depend on where it stands. */
#define EACH_VECTOR(n, statement)                     \
    do {                                              \
        size_t i = 0;                                 \
        for (; (n) - i >= WIDTH; i += WIDTH) {        \
            const size_t k = WIDTH;                   \
            statement;                                \
        }                                             \
        if (i < (n)) {                                \
            const size_t k = (n) - i;                 \
            statement;                                \
        }                                             \
    } while (0)
#endif
