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

/* ---- a data set (dataset.c; of a problem: problem.c) ---- */
#define DATA_MAGIC UINT64_C(0x3161746164747475) /* written last: a block without it was never filled */
enum { DATA_X, DATA_LABELS, DATA_ALIGNMENT = 64 };

typedef struct data_facts {
    uint64_t magic, hash;
    int32_t classes;
    float mean, deviation;
} data_facts;

typedef struct data_part {
    char *path;                   /* NULL: of a problem */
    tutti_idx_header header;
    uint64_t offset;              /* in the block */
} data_part;

struct tutti_data {
    tutti_runtime *rt;
    tutti_data_shape shape;
    data_part parts[2][2];        /* [split][DATA_X or DATA_LABELS] */
    size_t pixels;                /* values of a sample */
    uint8_t *block;               /* NULL until attached */
    float table[256];             /* normalised value of each byte; after attach */
    tutti_data_distortion distortion;
    tutti_problem problem;        /* kind NONE: images from files */
    uint64_t path;                /* offset of `from` and `way` of a problem with a known optimum (problem.h), 2 x dim doubles; 0: none */
};

/* Adds a part of `bytes` at the next multiple of 64; false: larger than memory can be. */
bool tutti_data_place(size_t *total, uint64_t bytes, uint64_t *offset);
uint64_t tutti_data_hash_block(const tutti_data *d, const uint8_t *block);
/* problem.c */
tutti_status tutti_data_problem_open(tutti_data **out, tutti_runtime *rt, const tutti_problem *problem, tutti_error *err);
tutti_status tutti_data_problem_fill(tutti_data *d, uint8_t *block, tutti_error *err); /* all but the magic */
void tutti_data_problem_gather(const tutti_data *d, tutti_split split, const uint64_t *ids, size_t n, uint64_t step, float *x, uint8_t *labels);

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
