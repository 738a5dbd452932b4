/* buckets.h: shared by methods that exchange gradients in buckets, each as soon as it is full:
   options for the size of a bucket and of the first one, their constraint, and the split into
   pieces. */
#ifndef TUTTI_METHOD_BUCKETS_H
#define TUTTI_METHOD_BUCKETS_H
#include "tutti/method.h"

enum { BUCKETS_FIRST = 1 };              /* MiB; the default */
#define BUCKETS_SIZE(at, initial, what) \
    { "bucket_mb", TUTTI_REAL, at, initial, 1.0 / 1048576, 65536, NULL, "bucket size in MiB" what }
#define BUCKETS_SIZE_FIRST(at, what) \
    { "first_bucket_mb", TUTTI_REAL, at, BUCKETS_FIRST, 1.0 / 1048576, 65536, NULL, \
      "size of the first bucket in MiB: smaller, so that " what }
#define BUCKETS_CONSTRAINT "first_bucket_mb may not exceed bucket_mb"

/* Makes pieces of `size` MiB, the first of `first` MiB if that is less: if only bucket_mb is
   given it may be below the other's default. Refused: a first bucket that was explicitly set to
   be larger. */
static inline tutti_status buckets_cut(tutti_method *m, double size, double first, tutti_error *err)
{
    if (first > size && first != BUCKETS_FIRST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': first_bucket_mb is %g but bucket_mb is only %g; "
                          "the first bucket may not be the larger one",
                          m->ops->name, first, size);
    m->piece_bytes = (size_t)(size * 1048576);
    m->first_piece_bytes = (size_t)((first < size ? first : size) * 1048576);
    return TUTTI_OK;
}
#endif
