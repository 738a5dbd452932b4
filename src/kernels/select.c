/* select.c: tutti_select_top: exactly k elements of the greatest magnitude, ties by index, without
   sorting and usually with one pass over the vector. A sample estimates the key above which there
   are some 2 k elements; one pass collects these, and the k-th greatest of them is found by
   counting. The sample affects the time only: if it misleads (fewer than k elements, or more than
   fit), the k-th key is found by counting the whole vector. Counting is a radix histogram of the
   key's 11, 10 and 10 bits from the top. */
#include "codes_internal.h"
#include <assert.h>

enum { SAMPLE = 16384 };

static size_t above(size_t n, const float *x, uint32_t key, size_t room, uint32_t *index,
                    float *value)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (tutti_kernels_key(x[i]) >= key) {
            if (found < room) {
                index[found] = (uint32_t)i;
                value[found] = x[i];
            }
            found++;
        }
    return found;
}

void tutti_kernels_select(tutti_kernels *t)
{
    t->above = above;
}

/* The key of rank 1 <= rank <= n from the top; *over: how many keys are greater. */
static uint32_t key_of_rank(size_t n, const float *x, size_t rank, size_t *over)
{
    static const struct { int shift, bits; } digit[] = { { 20, 11 }, { 10, 10 }, { 0, 10 } };
    uint32_t prefix = 0;

    *over = 0;
    for (size_t d = 0; d < TUTTI_LENGTH(digit); d++) {
        const int shift = digit[d].shift, above_it = shift + digit[d].bits;
        const uint32_t last = (1u << digit[d].bits) - 1;
        uint32_t count[2048] = { 0 }, b = last;
        for (size_t i = 0; i < n; i++) {
            const uint32_t key = tutti_kernels_key(x[i]);
            if (d == 0 || key >> above_it == prefix >> above_it)
                count[key >> shift & last]++;
        }
        for (; *over + count[b] < rank; b--)
            *over += count[b];
        prefix |= b << shift;
    }
    return prefix;
}

size_t tutti_select_room(size_t n, size_t k)
{
    const size_t spare = n / 256 + 1024;

    return spare > n || k > (n - spare) / 4 ? n : 4 * k + spare;
}

/* Moves the k wanted ones of n candidates to the front; they may be x itself, with no indexes
   yet. */
static void keep(size_t n, const float *x, const uint32_t *at, uint32_t key, size_t ties,
                 uint32_t *index, float *value)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t it = tutti_kernels_key(x[i]);
        if (it > key || (it == key && ties > 0)) {
            ties -= it == key;
            index[kept] = at == NULL ? (uint32_t)i : at[i];
            value[kept++] = x[i];
        }
    }
}

void tutti_kernels_select_top(const tutti_kernels *t, size_t n, const float *x, size_t k,
                              uint32_t *index, float *value)
{
    const size_t room = tutti_select_room(n, k), sample = n < room        ? 0
                                                          : room < SAMPLE ? room
                                                                          : SAMPLE;
    size_t found = 0, over;
    uint32_t key = 0;

    assert(k <= n && n <= UINT32_MAX);
    if (k == 0)
        return;
    if (room < n) {
        const size_t expected = (size_t)((double)k * (double)sample / (double)n);
        for (size_t j = 0; j < sample;
             j++) /* places spread by the golden ratio: no stride that a matrix could have */
            value[j] = x[(size_t)(((__uint128_t)(j * 0x9E3779B97F4A7C15u) * n) >> 64)];
        key = key_of_rank(sample, value, 2 * expected + 8 < sample ? 2 * expected + 8 : sample,
                          &over);
    }
    found = t->above(n, x, key, room, index, value);
    if (found >= k && found <= room) {
        key = key_of_rank(found, value, k, &over);
        keep(found, value, index, key, k - over, index, value);
    } else {
        key = key_of_rank(n, x, k, &over);
        keep(n, x, NULL, key, k - over, index, value);
    }
}
