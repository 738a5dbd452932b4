/* hash.c: tutti_hash is XXH3_64bits of the packaged xxHash (default secret, seed 0). Any program
   with xxHash can recompute the hashes in our files. Message tags are computed with it too, so all
   processes must compute the same value. */
#include "tutti/base.h"

#include <xxhash.h>

uint64_t tutti_hash(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
