/* histogram.c: counts of whole numbers: one bin each up to 1024, above that four bins to a
   doubling. So delays are as exact as a reader can distinguish, and those of thousands of workers
   need hardly more memory. */
#include "engine_internal.h"

enum {
    EXACT_BITS = 10,
    SHARE_BITS = 2,
    SHARES = 1 << SHARE_BITS,
    FIRST_BEYOND = TUTTI_HISTOGRAM_EXACT + 1
};
_Static_assert((int)TUTTI_HISTOGRAM_EXACT == 1 << EXACT_BITS,
               "the bins beyond begin at a power of two");

int tutti_histogram_bin(uint64_t value)
{
    int bits = EXACT_BITS, bin;

    if (value <= TUTTI_HISTOGRAM_EXACT)
        return (int)value;
    while (value >> bits > 1)
        bits++;
    bin = FIRST_BEYOND + (bits - EXACT_BITS) * SHARES +
          (int)(value >> (bits - SHARE_BITS) & (SHARES - 1));
    return bin < TUTTI_HISTOGRAM_BINS ? bin : TUTTI_HISTOGRAM_BINS - 1;
}

uint64_t tutti_histogram_least(int bin)
{
    const int beyond = bin - FIRST_BEYOND, bits = EXACT_BITS + beyond / SHARES;

    if (bin <=
        FIRST_BEYOND) /* 1024 has a bin of its own, so the first beyond has one number less */
        return (uint64_t)bin;
    return (uint64_t)(SHARES + beyond % SHARES) << (bits - SHARE_BITS);
}

void tutti_histogram_add(tutti_histogram *h, uint64_t value)
{
    h->count[tutti_histogram_bin(value)]++;
}
