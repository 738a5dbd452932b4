/* device.h: devices of ranks, and the vector kernels that fill with random numbers. Implemented by
   device.c. A world opens the device of its rank; programs that compute without a world open one
   here. */
#ifndef TUTTI_KERNELS_DEVICE_H
#define TUTTI_KERNELS_DEVICE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* cpu: the highest level to use, limited by what the machine supports. rt may be NULL: nothing is
   charged. */
tutti_status tutti_device_open_host(tutti_device **out, tutti_runtime *rt, tutti_cpu cpu,
                                    tutti_error *err);
void tutti_device_close(tutti_device *d);
tutti_cpu tutti_device_cpu(const tutti_device *d);
const char *tutti_device_kind(const tutti_device *d); /* "host" */

/* fill_normal   y = N(0,1), element i from index i: tutti_normal's, except for the last bit of one
                 in millions (src/kernels/fill.c)
   fill_uniform  y in [low,high), element i from index i; low = high: all low */
void tutti_fill_normal(tutti_device *d, size_t n, tutti_rng rng, float *y);
void tutti_fill_uniform(tutti_device *d, size_t n, tutti_rng rng, float low, float high, float *y);
#pragma GCC visibility pop
#endif
