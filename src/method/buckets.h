/* buckets.h: the options bucket_mb and first_bucket_mb of methods that exchange gradients in
   buckets, each as soon as it is full (ddp, parameter-server, parallax, zero, zero-offload,
   zero-infinity), and what they set. All of it is in this file.

   A row of the table of options is made by BUCKETS_SIZE and BUCKETS_SIZE_FIRST. at: TUTTI_AT of
   the option, a double in MiB; initial: the default; what: the end of the help text. */
#ifndef TUTTI_METHOD_BUCKETS_H
#define TUTTI_METHOD_BUCKETS_H
#include "tutti/method.h"

enum { BUCKETS_FIRST = 1 };              /* default of first_bucket_mb, in MiB */
#define BUCKETS_SIZE(at, initial, what) \
    { "bucket_mb", TUTTI_REAL, at, initial, 1.0 / 1048576, 65536, NULL, "bucket size in MiB" what }
#define BUCKETS_SIZE_FIRST(at, what) \
    { "first_bucket_mb", TUTTI_REAL, at, BUCKETS_FIRST, 1.0 / 1048576, 65536, NULL, \
      "size of the first bucket in MiB: smaller, so that " what }
#define BUCKETS_CONSTRAINT "first_bucket_mb may not exceed bucket_mb"

/* Sets the engine's piece sizes: `size` MiB, and for the first piece `first` MiB, but at most
   `size`: a bucket_mb below the default of first_bucket_mb is allowed. TUTTI_ERR_USAGE: `first` is
   above `size` and is not the default. */
static inline tutti_status buckets_cut(tutti_method *m, double size, double first, tutti_error *err)
{
    if (first > size && first != BUCKETS_FIRST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': first_bucket_mb is %g but bucket_mb is only %g; the first "
                          "bucket may not be the larger one",
                          m->ops->name, first, size);
    m->piece_bytes = (size_t)(size * 1048576);
    m->first_piece_bytes = (size_t)((first < size ? first : size) * 1048576);
    return TUTTI_OK;
}
#endif
