/* histogram.c: how often which whole number came: 0 to 31 one by one, above that four bins to a doubling, so that delays of a few workers are exact and those of thousands take no more room. */
#include "engine_internal.h"

enum { EXACT = 32, EXACT_BITS = 5, SHARE_BITS = 2 };

int tutti_histogram_bin(uint64_t value)
{
    int bits = EXACT_BITS, bin;

    if (value < EXACT)
        return (int)value;
    while (value >> bits > 1)
        bits++;
    bin = EXACT + (bits - EXACT_BITS) * (1 << SHARE_BITS) + (int)(value >> (bits - SHARE_BITS) & ((1 << SHARE_BITS) - 1));
    return bin < TUTTI_HISTOGRAM_BINS ? bin : TUTTI_HISTOGRAM_BINS - 1;
}

uint64_t tutti_histogram_least(int bin)
{
    const int beyond = bin - EXACT, bits = EXACT_BITS + beyond / (1 << SHARE_BITS);

    return bin < EXACT ? (uint64_t)bin : (uint64_t)((1 << SHARE_BITS) + beyond % (1 << SHARE_BITS)) << (bits - SHARE_BITS);
}

void tutti_histogram_add(tutti_histogram *h, uint64_t value)
{
    h->count[tutti_histogram_bin(value)]++;
}

void tutti_metric_histogram(tutti_method *m, const char *name, int worker, const tutti_histogram *h)
{
    for (int bin = 0; bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (h->count[bin] > 0)
            tutti_metric_at(m, name, worker, (int64_t)tutti_histogram_least(bin), (double)h->count[bin]);
}
