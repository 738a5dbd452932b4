/* simd_loop.h: the loop over the elements of a vector, for the templates *_simd.h. */
#ifndef TUTTI_KERNELS_SIMD_LOOP_H
#define TUTTI_KERNELS_SIMD_LOOP_H

/* Executes `statement` for each run of WIDTH elements of [0, n), and for the rest. In it the
   elements are [i, i + k). k is the constant WIDTH, except for the rest, to which the same
   operations are applied under a mask. So an element's bits do not depend on its index. */
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
