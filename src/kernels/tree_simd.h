/* tree_simd.h: template of the leaves of tree.c: the sum of up to eight products, added in
   registers in the tree's order. tree_LEVEL.c includes it after simd_LEVEL.h.

   L(r) is the product of vector r and its weight, L01 the sum of the products 0 and 1, and so on.
   */
#include "simd_loop.h"

#define L(r) (weighted ? vec_mul(w##r, vec_get(x##r + i, k)) : vec_get(x##r + i, k))
#define L01 vec_add(L(0), L(1))
#define L23 vec_add(L(2), L(3))
#define L45 vec_add(L(4), L(5))
#define L67 vec_add(L(6), L(7))
#define L0123 vec_add(L01, L23)

/* Computes y := the sum of a[r] x[r] over p vectors, or of x[r] if not `weighted`. Pointers and
   weights are copied to local variables first, since the compiler must assume that a store to y
   changes the arrays. */
INLINE void leaf(size_t n, int p, const float *const *x, const bool weighted, const float *a,
                 float *y)
{
#define AT(r) (r < p ? r : 0)
    const float *const x0 = x[0], *const x1 = x[AT(1)], *const x2 = x[AT(2)], *const x3 = x[AT(3)];
    const float *const x4 = x[AT(4)], *const x5 = x[AT(5)], *const x6 = x[AT(6)],
                       *const x7 = x[AT(7)];
#define WEIGHT(r) weighted ? vec_all(a[AT(r)]) : vec_all(1)
    const vec w0 = WEIGHT(0), w1 = WEIGHT(1), w2 = WEIGHT(2), w3 = WEIGHT(3);
    const vec w4 = WEIGHT(4), w5 = WEIGHT(5), w6 = WEIGHT(6), w7 = WEIGHT(7);
#undef WEIGHT
#undef AT

    switch (p) {
    case 1: EACH_VECTOR(n, vec_put(y + i, k, L(0))); break;
    case 2: EACH_VECTOR(n, vec_put(y + i, k, L01)); break;
    case 3: EACH_VECTOR(n, vec_put(y + i, k, vec_add(L01, L(2)))); break;
    case 4: EACH_VECTOR(n, vec_put(y + i, k, L0123)); break;
    case 5: EACH_VECTOR(n, vec_put(y + i, k, vec_add(L0123, L(4)))); break;
    case 6: EACH_VECTOR(n, vec_put(y + i, k, vec_add(L0123, L45))); break;
    case 7: EACH_VECTOR(n, vec_put(y + i, k, vec_add(L0123, vec_add(L45, L(6))))); break;
    default: EACH_VECTOR(n, vec_put(y + i, k, vec_add(L0123, vec_add(L45, L67)))); break;
    }
}

static void LEVEL(tree)(size_t n, int p, const float *const *x, const float *a, float *y)
{
    if (a == NULL)
        leaf(n, p, x, false, NULL, y);
    else
        leaf(n, p, x, true, a, y);
}

/* Computes the same sum and writes it to every x[r]. */
INLINE void leaf_all(size_t n, int p, float *const *x, const bool weighted, const float *a)
{
#define AT(r) (r < p ? r : 0)
    float *const x0 = x[0], *const x1 = x[AT(1)], *const x2 = x[AT(2)], *const x3 = x[AT(3)];
    float *const x4 = x[AT(4)], *const x5 = x[AT(5)], *const x6 = x[AT(6)], *const x7 = x[AT(7)];
    float *const all[] = { x0, x1, x2, x3, x4, x5, x6, x7 };
#define WEIGHT(r) weighted ? vec_all(a[AT(r)]) : vec_all(1)
    const vec w0 = WEIGHT(0), w1 = WEIGHT(1), w2 = WEIGHT(2), w3 = WEIGHT(3);
    const vec w4 = WEIGHT(4), w5 = WEIGHT(5), w6 = WEIGHT(6), w7 = WEIGHT(7);
#undef WEIGHT
#undef AT
/* `count` is a constant, so that each case is unrolled. */
#define TO_ALL(count, sum) \
    EACH_VECTOR(n, const vec s = sum; for (int r = 0; r < (count); r++) vec_put(all[r] + i, k, s))

    switch (p) {
    case 1: TO_ALL(1, L(0)); break;
    case 2: TO_ALL(2, L01); break;
    case 3: TO_ALL(3, vec_add(L01, L(2))); break;
    case 4: TO_ALL(4, L0123); break;
    case 5: TO_ALL(5, vec_add(L0123, L(4))); break;
    case 6: TO_ALL(6, vec_add(L0123, L45)); break;
    case 7: TO_ALL(7, vec_add(L0123, vec_add(L45, L(6)))); break;
    default: TO_ALL(8, vec_add(L0123, vec_add(L45, L67))); break;
    }
#undef TO_ALL
}

static void LEVEL(tree_all)(size_t n, int p, float *const *x, const float *a)
{
    if (a == NULL)
        leaf_all(n, p, x, false, NULL);
    else
        leaf_all(n, p, x, true, a);
}

void LEVEL(tutti_kernels_tree)(tutti_kernels *t)
{
    t->tree = LEVEL(tree);
    t->tree_all = LEVEL(tree_all);
}
