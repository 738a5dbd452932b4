/* hash.c: XXH3 with 64 bits and its default secret, so that fingerprints in files can be checked by
   any program that has it. */
#include "tutti/base.h"

#include <xxhash.h>

uint64_t tutti_hash(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
