/* plain.c: the functions of math.h that are the same at every vector level: ids, tables of angles,
   losses, dropout's draws. */
#include <math.h>
#include "math.h"
#include "kernels/codes.h"

size_t tutti_nn_first_above(size_t n, const uint32_t *values, uint32_t limit)
{
    size_t i = 0;

    while (i < n && values[i] < limit)
        i++;
    return i;
}

/* Sorts pairs (id, index) by counting sorts of one byte each, the lowest first (LSD radix sort).
   The sorts are stable, so the indexes of an id ascend. A byte that all ids share is skipped, as
   the upper ones of a small vocabulary are. */
size_t tutti_nn_unique(size_t n, const uint32_t *ids, uint32_t *unique, uint32_t *order,
                       uint32_t *begin, uint64_t *scratch)
{
    uint64_t *from = scratch, *to = scratch + n;
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        from[i] = (uint64_t)ids[i] << 32 | i;
    for (int shift = 32; shift < 64 && n > 0; shift += 8) {
        size_t start[256] = { 0 }, at = 0;
        for (size_t i = 0; i < n; i++)
            start[from[i] >> shift & 255]++;
        if (start[from[0] >> shift & 255] == n)
            continue;
        for (size_t b = 0; b < 256; b++) {
            const size_t next = at + start[b];
            start[b] = at;
            at = next;
        }
        for (size_t i = 0; i < n; i++)
            to[start[from[i] >> shift & 255]++] = from[i];
        uint64_t *const other = from;
        from = to;
        to = other;
    }
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)from[i];
        if (i == 0 || from[i] >> 32 != from[i - 1] >> 32) {
            unique[count] = (uint32_t)(from[i] >> 32);
            begin[count++] = (uint32_t)i;
        }
    }
    begin[count] = (uint32_t)n;
    return count;
}

void tutti_nn_rotary(size_t length, size_t width, double base, float *cosine, float *sine)
{
    const size_t half = width / 2;

    for (size_t j = 0; j < half; j++) {
        const double turn = pow(base, -2.0 * (double)j / (double)width);
        for (size_t p = 0; p < length; p++) {
            cosine[p * half + j] = (float)cos((double)p * turn);
            sine[p * half + j] = (float)sin((double)p * turn);
        }
    }
}

double tutti_nn_entropy_loss(size_t rows, const nn_entropy *state, const uint32_t *labels,
                             size_t *right)
{
    double total = 0;

    *right = 0;
    for (size_t r = 0; r < rows; r++) {
        const double loss = nn_entropy_loss_of(&state[r]);
        *right += state[r].best == labels[r] && isfinite(loss);
        total += loss;
    }
    return total;
}

void tutti_nn_dropout(const nn_math *math, tutti_device *d, tutti_rng rng, uint64_t first, size_t n,
                      float p, const float *x, float *y)
{
    enum { GROUPS = 8, TILE = GROUPS * TUTTI_DRAWS };
    const uint32_t least = (uint32_t)lrintf(p * 65536);
    const float scale = (float)(65536.0 / (double)(65536 - (least < 65536 ? least : 65535)));
    uint16_t draws[TILE];

    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / TUTTI_DRAWS;
        const size_t skip = (size_t)((first + i) % TUTTI_DRAWS), room = TILE - skip,
                     count = n - i < room ? n - i : room;
        tutti_draws(d, rng, group, (skip + count + TUTTI_DRAWS - 1) / TUTTI_DRAWS, draws);
        math->drop(count, draws + skip, least, scale, x + i, y + i);
        i += count;
    }
}

/* For 32 queries, the most of any level (attention_body.h: block). */
size_t tutti_nn_attention_scratch(const nn_attention *a)
{
    return 32 * (5 * a->width + 2 * NN_KEYS + 5);
}
