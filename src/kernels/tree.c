/* tree.c: the sum of p vectors x[0] .. x[p-1], with weights or without, in the one order that all
   sums of the project have. Each product a[r] x[r] is rounded. Then they are added in a binary
   tree over r, split at the largest power of two below p, and so on in each part. p = 3: (0+1)+2;
   p = 6: ((0+1)+(2+3))+(4+5).

   The tree is built as a binary counter counts. A leaf is the sum of eight vectors, formed in
   registers; leaf after leaf goes on a stack of blocks. After each the two uppermost blocks are
   added as often as the number of leaves so far can be halved. So the stack holds one complete
   subtree for each one bit of that number, the largest lowest. Adding it up from the top closes
   the tree. The stack after 2, 4, 5, 6 and 7 leaves (leaf 0 to leaf 6), and the end:

       [01]      [0123]   [0123][4]   [0123][45]   [0123][45][6]  ->  0123 + (45 + 6)

   A block is 1 KiB, hence the stack, of ten blocks for p = 4096, stays in the L1 cache (and fits
   the small stacks of simulated threads), and memory sees p reads and one write. A block of y is
   written when all of its x are read: y may be any x[r]. */
#include "kernels_internal.h"
#include <assert.h>

enum { BLOCK = 256, DEPTH = 10 }; /* 4096 / 8 leaves = 2^9: at most ten subtrees at a time */

/* Element i of the sum of p <= TUTTI_KERNELS_LEAVES vectors. a NULL: no weights. */
static float tree_at(size_t i, int p, const float *const *x, const float *a)
{
    float v[TUTTI_KERNELS_LEAVES] = { 0 };

    for (int r = 0; r < p; r++)
        v[r] = a == NULL ? x[r][i] : a[r] * x[r][i];
    for (int width = 1; width < p;
         width *= 2) /* neighbours of `width` products each; one without a partner waits */
        for (int r = 0; r + width < p; r += 2 * width)
            v[r] = v[r] + v[r + width];
    return v[0];
}

static void tree(size_t n, int p, const float *const *x, const float *a, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tree_at(i, p, x, a);
}

static void tree_all(size_t n, int p, float *const *x, const float *a)
{
    for (size_t i = 0; i < n; i++) {
        const float sum = tree_at(i, p, (const float *const *)x, a);
        for (int r = 0; r < p; r++)
            x[r][i] = sum;
    }
}

void tutti_kernels_tree(tutti_kernels *t)
{
    t->tree = tree;
    t->tree_all = tree_all;
}

/* stack[0] := elements [i, i + count) of the sum of p vectors, more than one leaf has. count is
   BLOCK at most. */
static void block(const tutti_kernels *t, size_t i, size_t count, int p, const float *const *x,
                  const float *a, float stack[DEPTH][BLOCK])
{
    unsigned leaves = 0;
    int top = 0;

    for (int r = 0; r < p; r += TUTTI_KERNELS_LEAVES) {
        const int here = p - r < TUTTI_KERNELS_LEAVES ? p - r : TUTTI_KERNELS_LEAVES;
        const float *leaf[TUTTI_KERNELS_LEAVES];
        for (int q = 0; q < here; q++)
            leaf[q] = x[r + q] + i;
        assert(top < DEPTH);
        t->tree(count, here, leaf, a == NULL ? NULL : a + r, stack[top++]);
        leaves++;
        for (unsigned pairs = leaves; pairs % 2 == 0; pairs /= 2, top--)
            t->add(count, stack[top - 1], stack[top - 2]);
    }
    for (; top > 1; top--)
        t->add(count, stack[top - 1], stack[top - 2]);
}

void tutti_kernels_tree_sum(const tutti_kernels *t, size_t n, int p, const float *const *x,
                            const float *a, float *y)
{
    float stack[DEPTH][BLOCK];

    assert(p >= 1 && p <= 4096);
    if (p <= TUTTI_KERNELS_LEAVES) {
        t->tree(n, p, x, a, y);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        block(t, i, count, p, x, a, stack);
        memcpy(y + i, stack[0], count * sizeof *y);
    }
}

void tutti_kernels_tree_sum_all(const tutti_kernels *t, size_t n, int p, float *const *x,
                                const float *a)
{
    float stack[DEPTH][BLOCK];

    assert(p >= 1 && p <= 4096);
    if (p <= TUTTI_KERNELS_LEAVES) {
        t->tree_all(n, p, x, a);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        block(t, i, count, p, (const float *const *)x, a, stack);
        for (int r = 0; r < p; r++)
            memcpy(x[r] + i, stack[0], count * sizeof *stack[0]);
    }
}
