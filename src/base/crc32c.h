/* crc32c.h: the CRC of files that other programs read; our own have tutti_hash (base.h).
   Implemented by crc32c.c. */
#ifndef TUTTI_BASE_CRC32C_H
#define TUTTI_BASE_CRC32C_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Returns the CRC-32C (Castagnoli) of bytes: of RFC 3720, of TFRecord. For small data. */
uint32_t tutti_crc32c(const void *data, size_t bytes);
#pragma GCC visibility pop
#endif
