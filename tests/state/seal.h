/* seal.h: a manifest's last member, as manifest.c writes it, put behind any text: so that tests
   and the fuzzer get past the hash. */
#ifndef TUTTI_TESTS_STATE_SEAL_H
#define TUTTI_TESTS_STATE_SEAL_H
#include "tutti/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* free() it; *bytes: its length. */
static inline char *seal(const char *text, size_t n, size_t *bytes)
{
    char *sealed = malloc(n + 64);
    if (sealed == NULL)
        abort();
    memcpy(sealed, text, n);
    *bytes = n + (size_t)sprintf(sealed + n, ",\n \"xxh3\": \"%016llx\"\n}\n",
                                 (unsigned long long)tutti_hash(text, n));
    return sealed;
}
#endif
