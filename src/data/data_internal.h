/* data_internal.h: what the files of this module share. */
#ifndef TUTTI_DATA_INTERNAL_H
#define TUTTI_DATA_INTERNAL_H
#include "data/data.h"
#include "data/text.h"

/* The options of a named set (sets.c). All zero: the images as they are. */
typedef struct tutti_data_distortion { double distort; int64_t seed; } tutti_data_distortion;
/* Distorts images in place: each depends on (how, split, its index) and itself alone. distort.c has
   the formula. */
tutti_status tutti_data_distort(uint8_t *images, uint64_t samples, int height, int width,
                                tutti_split split, const tutti_data_distortion *how,
                                tutti_error *err);
void tutti_data_distort_by(tutti_data *data, const tutti_data_distortion *how); /* before attach */
/* Before attach: a label of `classes` or more is damage. 0, and without a call: any label is a
   class. */
void tutti_data_limit_classes(tutti_data *data, int classes);

/* How a text is read (text.c). */
typedef struct tutti_data_windows {
    const char *file;
    int64_t context, stride, val_windows, val_stride;
    double val;
} tutti_data_windows;
extern const tutti_option tutti_data_text_options[], tutti_data_moby_dick_options[];

/* How a click log is read (clicklog.c). */
typedef struct tutti_data_clicks { const char *file; int64_t rows; double val; } tutti_data_clicks;
extern const tutti_option tutti_data_clicks_options[];

/* How pictures are read (pictures.c). */
typedef struct tutti_data_pictures {
    const char *dir;
    int64_t size, seed;
    double test;
    bool grey;
} tutti_data_pictures;
extern const tutti_option tutti_data_pictures_options[];
typedef struct tutti_data_files tutti_data_files; /* their list */

/* ---- a data set (dataset.c; of a problem: problem.c; of a text: text.c; of clicks: clicklog.c)
   ---- */

/* Written last: a block without it was never filled. The fills below write all but it. */
#define DATA_MAGIC UINT64_C(0x3161746164747475)
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
    int most_classes;             /* 0: number of classes, from the labels */
    tutti_problem problem;        /* kind NONE: images from files */
    struct {
        char *path;               /* NULL: no text */
        tutti_contents contents;
        tutti_tokens tokens;      /* vocabulary 0: contents are the tokens, as bytes */
        const void *ids;
        int id_bytes;             /* 1, 2, 4 */
        uint64_t first[2], stride[2]; /* of each split: window i begins at first + i x stride */
    } text;
    struct {
        char *path;               /* NULL: no clicks */
        tutti_contents contents;
        uint64_t rows[2];         /* offset of the row numbers of each split; the rest: parts */
    } clicks;
    struct {                      /* bytes as those of IDX files, that come from elsewhere */
        char *path;               /* of the directory; NULL: from IDX files */
        /* Writes the samples and labels of both splits. */
        tutti_status (*fill)(tutti_data *d, uint8_t *block, tutti_error *err);
        tutti_data_files *files;  /* pictures.c */
        uint64_t records[6];      /* cifar.c: of each file */
    } elsewhere;
    char *class_name[256];        /* NULL: it has none */
    /* Offset of `from` and `way` of a problem with a known optimum (problem.h), 2 x dim doubles; 0:
       none. */
    uint64_t path;
};

/* Has the directory one of the four files? */
bool tutti_data_is_idx(tutti_runtime *rt, const char *path);

/* Adds a part of `bytes` at the next multiple of 64; false: larger than memory can be. */
bool tutti_data_place(size_t *total, uint64_t bytes, uint64_t *offset);
uint64_t tutti_data_hash_block(const tutti_data *d, const uint8_t *block);

/* problem.c. */
tutti_status tutti_data_problem_open(tutti_data **out, tutti_runtime *rt,
                                     const tutti_problem *problem, tutti_error *err);
tutti_status tutti_data_problem_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_problem_gather(const tutti_data *d, tutti_split split, const uint64_t *ids,
                               size_t n, uint64_t step, float *x, uint8_t *labels);

/* Samples of step 0 become those of `step`: a problem that drifts moves all of them equally. */
void tutti_data_problem_move(const tutti_data *d, uint64_t step, float *x, size_t n);

/* text.c. how->file is ignored. tokens: a token file, else a text in UTF-8. */
tutti_status tutti_data_text_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                  bool tokens, const tutti_data_windows *how, tutti_error *err);
tutti_status tutti_data_text_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_text_close(tutti_data *d);

/* clicklog.c. how->file is ignored. */
tutti_status tutti_data_clicks_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                    const tutti_data_clicks *how, tutti_error *err);
tutti_status tutti_data_clicks_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_clicks_gather(const tutti_data *d, tutti_split split, const uint64_t *ids, size_t n,
                              float *x, uint8_t *labels);
void tutti_data_clicks_close(tutti_data *d);

/* Sets whose bytes come from elsewhere. open: the set of a directory; place: sets its size:
   `samples` in each split, of channels x side x side. */
tutti_status tutti_data_elsewhere_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                       tutti_status (*fill)(tutti_data *d, uint8_t *block,
                                                            tutti_error *err),
                                       tutti_error *err);
tutti_status tutti_data_elsewhere_place(tutti_data *d, const uint64_t samples[2], int channels,
                                        int side, tutti_error *err);
/* The first n bytes of the name. TUTTI_ERR_MEMORY, without a sentence. */
tutti_status tutti_data_name_class(tutti_data *d, int k, const char *name, size_t n);
void tutti_data_forget_classes(tutti_data *d);

/* pictures.c. how->dir is ignored. is: does the directory hold folders? */
tutti_status tutti_data_pictures_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                      const tutti_data_pictures *how, tutti_error *err);
tutti_status tutti_data_is_pictures(tutti_runtime *rt, const char *path, bool *is,
                                    tutti_error *err);
void tutti_data_files_close(tutti_data_files *f); /* takes NULL */

/* cifar.c. whole: files have the published sizes. is: does the directory hold such files? */
tutti_status tutti_data_cifar_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                   bool whole, tutti_error *err);
bool tutti_data_is_cifar(tutti_runtime *rt, const char *path);

/* ---- stream.c: a file read from its beginning to its end, inflated on the way if its first two
   bytes are gzip's (RFC 1952) ---- */

typedef struct tutti_data_stream tutti_data_stream;
/* Keeps path. */
tutti_status tutti_data_stream_open(tutti_data_stream **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err);
void tutti_data_stream_close(tutti_data_stream *s);
/* The next `bytes` of the contents; *got is less only at their end. */
tutti_status tutti_data_stream_read(tutti_data_stream *s, void *to, size_t bytes, size_t *got,
                                    tutti_error *err);
/* Checks that nothing follows what has been read: neither contents nor other bytes after a gzip
   stream. The stream's checksum has been compared. */
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
