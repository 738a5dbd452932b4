/* data_internal.h: what the files of this room share. */
#ifndef TUTTI_DATA_INTERNAL_H
#define TUTTI_DATA_INTERNAL_H
#include "tutti/data.h"

/* The options of a named set (sets.c). All zero: the images as they are. */
typedef struct tutti_data_distortion { double distort; int64_t seed; } tutti_data_distortion;
/* Distorts images in place: each depends on (how, split, its index) and itself alone. distort.c has the formula. */
tutti_status tutti_data_distort(uint8_t *images, uint64_t samples, int height, int width, tutti_split split, const tutti_data_distortion *how,
                                tutti_error *err);
void tutti_data_distort_by(tutti_data *data, const tutti_data_distortion *how); /* before attach */

/* A file read from its beginning to its end, inflated on the way if its first two bytes say gzip (RFC 1952). */
typedef struct tutti_data_stream tutti_data_stream;
tutti_status tutti_data_stream_open(tutti_data_stream **out, tutti_runtime *rt, const char *path, tutti_error *err); /* keeps path */
void tutti_data_stream_close(tutti_data_stream *s);
/* The next `bytes` of the contents; *got is less only at their end. */
tutti_status tutti_data_stream_read(tutti_data_stream *s, void *to, size_t bytes, size_t *got, tutti_error *err);
/* Nothing may follow what has been read: neither contents nor, behind a gzip stream, anything else. Its checksum has been compared. */
tutti_status tutti_data_stream_finish(tutti_data_stream *s, tutti_error *err);
/* The most the contents can be: the file's size, or what gzip can make of it. */
uint64_t tutti_data_stream_most(const tutti_data_stream *s);
bool tutti_data_stream_gzip(const tutti_data_stream *s);
uint64_t tutti_data_stream_file_bytes(const tutti_data_stream *s);

#define TUTTI_DATA_HEAD 20 /* bytes of the longest IDX header taken: magic and four dimensions */
static inline size_t tutti_idx_head_bytes(const tutti_idx_header *h)
{
    return 4 + 4 * (size_t)h->rank;
}
#endif
