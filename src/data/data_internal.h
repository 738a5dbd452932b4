/* data_internal.h: what the .c files of src/data share; included by them only. */
#ifndef TUTTI_DATA_INTERNAL_H
#define TUTTI_DATA_INTERNAL_H
#include "data/data.h"
#include "data/text.h"

/* The options of images that are distorted (distort.c). Zeroed: the images as they are. */
typedef struct tutti_data_distortion { double distort; int64_t seed; } tutti_data_distortion;
/* Grey images, one after the other. */
typedef struct tutti_data_images {
    uint8_t *at;
    uint64_t count;
    int height, width;
} tutti_data_images;
/* Distorts images in place. The result of an image depends only on itself, its index, how and
   split. */
tutti_status tutti_data_distort(const tutti_data_images *of, tutti_split split,
                                const tutti_data_distortion *how, tutti_error *err);
/* Before attach: images are to be distorted when they are filled. */
void tutti_data_distort_by(tutti_data *data, const tutti_data_distortion *how);
/* Before attach: a label of `classes` or more is an error; 0, the initial value: any label is
   valid. */
void tutti_data_limit_classes(tutti_data *data, int classes);

/* The options of a text (text.c, docs/DATA.md). */
typedef struct tutti_data_windows {
    const char *file;
    int64_t context;              /* tokens of a window */
    int64_t stride;               /* tokens from one window to the next; 0: context */
    int64_t val_windows;          /* windows of the validation split; 0: all that fit */
    int64_t val_stride;           /* between them; 0: context */
    double val;                   /* part of the text that is the validation split */
} tutti_data_windows;
extern const tutti_option tutti_data_text_options[], tutti_data_moby_dick_options[];

/* The options of a click log (clicklog.c). */
typedef struct tutti_data_clicks {
    const char *file;
    int64_t rows;                 /* of the table of each category */
    double val;                   /* part of the log that is the test split */
} tutti_data_clicks;
extern const tutti_option tutti_data_clicks_options[];

/* The options of pictures (pictures.c). */
typedef struct tutti_data_pictures {
    const char *dir;
    int64_t size;                 /* height and width of a sample */
    int64_t seed;                 /* of the draw of the test split */
    double test;                  /* part of each class that is the test split, if it is drawn */
    bool grey;                    /* one channel instead of three */
} tutti_data_pictures;
extern const tutti_option tutti_data_pictures_options[];
typedef struct tutti_data_files tutti_data_files; /* the list of files, in pictures.c */

/* ---- dataset.c: a data set, and images from IDX files ---- */

/* A set's memory (tutti_data_attach) is its block: data_facts at 0, then the parts. The magic
   number is written last, so a block without it was never filled. */
#define DATA_MAGIC UINT64_C(0x3161746164747475)
enum { DATA_X, DATA_LABELS, DATA_ALIGNMENT = 64 };

typedef struct data_facts {
    uint64_t magic, hash;         /* hash: of the contents */
    int32_t classes;
    float mean, deviation;
} data_facts;

/* The samples or the labels of a split. */
typedef struct data_part {
    char *path;                   /* where they come from, for messages; NULL: a problem */
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
    int most_classes;             /* number of valid labels; 0: any label is valid */
    tutti_problem problem;        /* kind NONE: the set is no problem */
    struct {
        char *path;               /* NULL: the set is no text */
        tutti_contents contents;
        tutti_tokens tokens;      /* vocabulary 0: the contents are the tokens, as bytes */
        const void *ids;          /* all tokens, in the mapped file */
        int id_bytes;             /* of a token: 1, 2, 4 */
        uint64_t first[2], stride[2]; /* [split]: window i begins at token first + i x stride */
    } text;
    struct {
        char *path;               /* NULL: the set is no click log */
        tutti_contents contents;
        uint64_t rows[2];         /* [split]: offset of the row numbers in the block */
    } clicks;
    struct {                      /* images that are not in IDX files: cifar.c, pictures.c */
        char *path;               /* of the directory; NULL: the set is no such set */
        /* Writes the samples and labels of both splits into the block. */
        tutti_status (*fill)(tutti_data *d, uint8_t *block, tutti_error *err);
        tutti_data_files *files;  /* pictures.c */
        uint64_t records[6];      /* cifar.c: [file] */
    } filled;
    char *class_name[256];        /* [class]: NULL: it has no name */
    uint64_t path;                /* of a problem with a known optimum: offset of `from` and `way`
                                     (problem.h) in the block, 2 x dim doubles; 0: none */
};

/* Has the directory one of the four IDX files? */
bool tutti_data_is_idx(tutti_runtime *rt, const char *path);

/* Reserves `bytes` in a block: *offset is *total, which becomes the next multiple of 64 after them.
   false: the block would be larger than memory can be. */
bool tutti_data_place(size_t *total, uint64_t bytes, uint64_t *offset);
/* Returns the hash of a block without its data_facts. */
uint64_t tutti_data_hash_block(const tutti_data *d, const uint8_t *block);

/* ---- problem.c: the samples of a synthetic problem. The fill functions here and below write the
   whole block except data_facts.magic. ---- */

tutti_status tutti_data_problem_open(tutti_data **out, tutti_runtime *rt,
                                     const tutti_problem *problem, tutti_error *err);
tutti_status tutti_data_problem_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_problem_gather(const tutti_data *d, tutti_split split, const uint64_t *ids,
                               size_t n, uint64_t step, float *x, uint8_t *labels);

/* Moves n samples from their position at step 0 to that at `step`: a problem that drifts moves all
   of them equally. */
void tutti_data_problem_move(const tutti_data *d, uint64_t step, float *x, size_t n);

/* ---- text.c. how->file is ignored ---- */

/* tokens: path is a token file; else a text in UTF-8. */
tutti_status tutti_data_text_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                  bool tokens, const tutti_data_windows *how, tutti_error *err);
tutti_status tutti_data_text_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_text_close(tutti_data *d);

/* ---- clicklog.c. how->file is ignored ---- */

tutti_status tutti_data_clicks_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                    const tutti_data_clicks *how, tutti_error *err);
tutti_status tutti_data_clicks_fill(tutti_data *d, uint8_t *block, tutti_error *err);
void tutti_data_clicks_gather(const tutti_data *d, tutti_split split, const uint64_t *ids, size_t n,
                              float *x, uint8_t *labels);
void tutti_data_clicks_close(tutti_data *d);

/* ---- dataset.c, for images that are not in IDX files ---- */

/* Makes a set of the directory `path`, which fill fills when it is attached. */
tutti_status tutti_data_filled_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                    tutti_status (*fill)(tutti_data *d, uint8_t *block,
                                                         tutti_error *err),
                                    tutti_error *err);
/* Sets the size of the set: samples[split] images of channels x side x side bytes. */
tutti_status tutti_data_filled_place(tutti_data *d, const uint64_t samples[2], int channels,
                                     int side, tutti_error *err);
/* Names class k by the first n bytes of `name`. TUTTI_ERR_MEMORY, without a sentence. */
tutti_status tutti_data_name_class(tutti_data *d, int k, const char *name, size_t n);
/* Removes the names of all classes. */
void tutti_data_forget_classes(tutti_data *d);

/* ---- pictures.c. how->dir is ignored ---- */

tutti_status tutti_data_pictures_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                      const tutti_data_pictures *how, tutti_error *err);
/* *is: the directory has folders. */
tutti_status tutti_data_is_pictures(tutti_runtime *rt, const char *path, bool *is,
                                    tutti_error *err);
void tutti_data_files_close(tutti_data_files *f); /* NULL is allowed */

/* ---- cifar.c ---- */

/* whole: the files must have the published sizes. */
tutti_status tutti_data_cifar_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                   bool whole, tutti_error *err);
/* Has the directory one of CIFAR-10's files? */
bool tutti_data_is_cifar(tutti_runtime *rt, const char *path);

/* ---- stream.c: reads a file from its beginning to its end, and decompresses it if its first two
   bytes are those of gzip (RFC 1952) ---- */

typedef struct tutti_data_stream tutti_data_stream;
/* path: kept, not copied. */
tutti_status tutti_data_stream_open(tutti_data_stream **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err);
void tutti_data_stream_close(tutti_data_stream *s);
/* Reads the next `bytes` of the contents. *got: less than `bytes` only at their end. */
tutti_status tutti_data_stream_read(tutti_data_stream *s, void *to, size_t bytes, size_t *got,
                                    tutti_error *err);
/* Checks that nothing follows what has been read: neither contents nor other bytes after a gzip
   stream, whose checksum is compared, too. */
tutti_status tutti_data_stream_finish(tutti_data_stream *s, tutti_error *err);
/* Returns the most bytes that the contents can have: the file's size, or, of gzip, that times its
   largest ratio. */
uint64_t tutti_data_stream_most(const tutti_data_stream *s);
bool tutti_data_stream_gzip(const tutti_data_stream *s); /* is the file compressed? */
uint64_t tutti_data_stream_file_bytes(const tutti_data_stream *s);

#define TUTTI_DATA_HEAD 20 /* bytes of the longest IDX header taken: magic and four dimensions */
static inline size_t tutti_idx_head_bytes(const tutti_idx_header *h)
{
    return 4 + 4 * (size_t)h->rank;
}
#endif
