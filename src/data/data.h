/* data.h: data sets, partitions of their samples, and the loader. Which worker uses which samples
   in which step is determined in base.h (tutti_share).

   Included by src/train, the commands (src/cli) and tests. Implemented in src/data: sets.c resolves
   names, dataset.c, problem.c, text.c and clicklog.c have the four kinds of sets, pack.c,
   partition.c and loader.c what their names tell. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H
#include "tutti/base.h"
#include "problem/problem.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- IDX files (LeCun): 0 0 type rank, big-endian dimensions, data. Plain or gzip. Only type 0x08
   (unsigned byte) is read. ---- */
typedef struct tutti_idx_header {
    int rank;                     /* 1 to 4 */
    uint64_t dim[4];              /* [rank] */
    uint64_t bytes;               /* of the data, after the header */
} tutti_idx_header;
/* Parses a header. head: the first `have` bytes of the file, which must be at least 4 + 4 x rank.
   path: for the sentence. TUTTI_ERR_CORRUPT: no such header. */
tutti_status tutti_idx_parse(const char *path, const uint8_t *head, size_t have,
                             tutti_idx_header *header, tutti_error *err);

/* ---- data sets: samples and labels. There are four kinds:
     1. Images, stored as bytes: from a directory of IDX files with the four MNIST names (plain or
        .gz), of CIFAR-10's binary files, or of PNG and JPEG files in one folder per class
        (pictures.h).
     2. The samples of a synthetic problem (problem.h), stored as floats.
     3. A text: a sample is a window of tokens, and its labels are the tokens that follow each. The
        file is mapped.
     4. A click log (clicks.h). The values of a sample are its 13 integers as log(1 + x),
        standardised by mean and deviation of the field over the training split; a missing integer
        becomes 0, the mean. ---- */
typedef struct tutti_data tutti_data;
typedef enum { TUTTI_TRAIN, TUTTI_TEST } tutti_split;

/* The shape of a set. classes, mean and deviation are set by tutti_data_attach; the classes of a
   text already when it is opened. */
typedef struct tutti_data_shape {
    uint64_t samples[2];          /* [split] */
    int channels, height, width;  /* of a sample: 1, 28, 28; of a problem 1, 1, dim */
    int value_bytes;              /* 1: pixels; 4: floats; 0: a text */
    int context;                  /* of a text: tokens of a sample, = width; else 0 */
    int tables;                   /* of a click log: categories of a sample; else 0 */
    uint32_t rows;                /* of a click log: rows of the table of each category; else 0 */
    int classes;                  /* largest label of both splits + 1; of a text the vocabulary */
    uint64_t bytes;               /* of the memory that tutti_data_attach needs */
    float mean, deviation;        /* of all training pixels / 255 (population); of a problem 0, 1 */
} tutti_data_shape;

/* A named set, as `tutti data list` and the docs show it. */
typedef struct tutti_data_set {
    const char *name, *title;
    const tutti_option *options;  /* {0}-ended */
    bool drawn;                   /* a problem: generated from its options, always available */
    bool text;                    /* its samples are windows of tokens */
    bool clicks;                  /* its samples are lines of a click log */
    bool pictures;                /* its samples are PNG and JPEG files */
    int classes;                  /* number of classes: a larger label is TUTTI_ERR_CORRUPT when the
                                     set is filled; 0: it follows from the labels */
    const char *file;             /* of a text: name of the file in the set's folder; NULL: the
                                     option `file` has its path */
    const char *maker;            /* the command that makes the set; NULL: none is needed */
} tutti_data_set;
extern const tutti_data_set tutti_data_sets[]; /* {0}-ended */

/* Writes the path of a data set, or the spec of a problem, to `path`. text: as of --data:
     - A problem resolves to its canonical spec.
     - "mnist", or a spec such as "mnist(distort=0.5)", resolves to $TUTTI_DATA/mnist, else to
       ./data/mnist, else to `installed`/mnist (installed NULL: not tried). speech, cifar10 and
       moby-dick are found likewise.
     - text(file=PATH), tokens(file=PATH), clicks(file=PATH) and images(dir=PATH) resolve to PATH.
     - The name of an existing file or directory, and any text with a '/', is a path: of a directory
       of images (of one of three kinds, which its contents tell), of a token file (text.h), or of
       a text in UTF-8.

   A bad spec or a missing path: TUTTI_ERR_USAGE, with similar names or the paths tried. */
tutti_status tutti_data_find(tutti_runtime *rt, const char *text, const char *installed,
                             char *path, size_t bytes, tutti_error *err);

/* Opens the set that --data names, with the options of the spec. installed: as of tutti_data_find.
   Reads no samples. */
tutti_status tutti_data_open_spec(tutti_data **out, tutti_runtime *rt, const char *text,
                                  const char *installed, tutti_error *err);

/* Opens a directory of IDX files. Reads and checks the headers of all four files, whose numbers of
   images and labels must agree. Reads no samples. */
tutti_status tutti_data_open(tutti_data **out, tutti_runtime *rt, const char *path,
                             tutti_error *err);
void tutti_data_close(tutti_data *data); /* NULL is allowed */
const tutti_data_shape *tutti_data_shape_of(const tutti_data *data);

/* Connects the set with its samples. memory: shape->bytes, which ranks of a host may share; the
   pointer is kept. fill: reads all samples into memory, checks them to the last byte, and distorts
   images if the spec requires that. Without fill another rank has filled the memory, which also
   contains the members of the shape that are known only then. */
tutti_status tutti_data_attach(tutti_data *data, void *memory, bool fill, tutti_error *err);
bool tutti_data_attached(const tutti_data *data);

/* After attach, for images: normalises pixels by this mean and deviation from now on, instead of
   the set's, for a network that was trained on another set. */
void tutti_data_normalise(tutti_data *data, float mean, float deviation);

/* Sets table[b] to (b / 255 - mean) / deviation, for each byte b; a deviation of 0 counts as 1. */
void tutti_data_normal_table(float mean, float deviation, float table[256]);

/* Returns the name of class k (0 to 255), in UTF-8: that of its folder, or its line in CIFAR-10's
   batches.meta.txt; NULL: it has none. */
const char *tutti_data_class_name(const tutti_data *data, int k);

/* Returns the labels of a split, [samples]; NULL: a text, or before attach. */
const uint8_t *tutti_data_labels(const tutti_data *data, tutti_split split);

/* Returns tutti_bpe_hash of the encoding of a token file; 0: tokens are bytes, or the set is no
   text. */
uint64_t tutti_data_encoding(const tutti_data *data);

/* Writes n samples of a text: `context` tokens each, and the token that follows each of these. ids:
   [n], indexes in the split. tokens, next: [n x context]. */
void tutti_data_gather_tokens(const tutti_data *data, tutti_split split, const uint64_t *ids,
                              size_t n, uint32_t *tokens, uint32_t *next);

/* Writes the row numbers of n samples of a click log, `tables` each. rows: [n x tables], each below
   shape->rows. x and labels come from tutti_data_gather. */
void tutti_data_gather_rows(const tutti_data *data, tutti_split split, const uint64_t *ids,
                            size_t n, uint32_t *rows);

/* Writes the values of n samples, x[n x channels x height x width], and their labels[n]. Pixels are
   normalised by tutti_data_normal_table. ids: [n], indexes in the split. A problem that drifts is
   that of step 0. */
void tutti_data_gather(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                       float *x, uint8_t *labels);

/* Does the same at a step, counted from the run's beginning, which matters only to a problem that
   drifts. */
void tutti_data_gather_at(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                          uint64_t step, float *x, uint8_t *labels);

/* ---- samples as bytes: a sample and its label, to be sent to another worker (give of
   tutti_engine_options). Numbers are little-endian. ----

     images    the pixels, the label
     problems  the values at step 0, float32, the label
     texts     context + 1 tokens, of as many bytes each as the vocabulary needs: 1, 2 or 4
     clicks    the values, float32, the row numbers, 4 bytes each, the label */
size_t tutti_data_sample_bytes(const tutti_data *data);

/* Packs n samples. ids: [n], indexes in the split. out: n x tutti_data_sample_bytes. */
void tutti_data_pack(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                     uint8_t *out);

/* Buffers for n samples, as the gathers above write them. NULL: the set has no such values. */
typedef struct tutti_data_buffers {
    float *x;                     /* [n x channels x height x width] */
    uint8_t *labels;              /* [n] */
    uint32_t *tokens, *next;      /* [n x context] */
    uint32_t *rows;               /* [n x tables] */
} tutti_data_buffers;

/* Unpacks n samples that were packed from an equal set, to the values that a gather at that step
   writes. TUTTI_ERR_CORRUPT: a label, token, row or value is invalid in this set; the sentence
   names the sample. */
tutti_status tutti_data_unpack(const tutti_data *data, const uint8_t *in, size_t n, uint64_t step,
                               const tutti_data_buffers *out, tutti_error *err);

/* Writes the parameters x[width] of least loss at that step, for the problem `quadratic`. false:
   they are not known, and nothing is written. After attach. */
bool tutti_data_optimum(const tutti_data *data, uint64_t step, float *x);

/* Returns the status of a call on files that the user has given, with TUTTI_ERR_CORRUPT replaced by
   TUTTI_ERR_USAGE, also in *err: the user has to repair the file. */
tutti_status tutti_data_given(tutti_status status, tutti_error *err);

/* Writes --data `text` to `out` with its path made absolute, if that is relative to the working
   directory `directory`. Names of sets and absolute paths do not change. TUTTI_ERR_USAGE: the
   result is longer than `bytes`, and `out` is `text`, truncated. */
tutti_status tutti_data_absolute(tutti_runtime *rt, const char *text, const char *directory,
                                 char *out, size_t bytes, tutti_error *err);

/* Returns a hash of shape and contents, of a problem also of its options. After attach. */
uint64_t tutti_data_hash(const tutti_data *data);

/* ---- a partition: divides the training set by its labels into a part for each worker (tutti_parts
   of base.h), so that workers have different distributions. partition.c describes the kinds.
   ---- */
typedef enum {
    TUTTI_PARTITION_IID,
    TUTTI_PARTITION_DIRICHLET,
    TUTTI_PARTITION_CLASS,
    TUTTI_PARTITION_SHARD
} tutti_partition_kind;
typedef struct tutti_partition {
    tutti_partition_kind kind;
    double alpha;                 /* dirichlet */
    int64_t least;                /* dirichlet: least number of samples of a worker */
    int64_t k;                    /* class, shard: classes or shards of a worker */
    int64_t seed;                 /* of the draw; -1: the run's */
    int even;                     /* dirichlet, option even: 0: off; parts differ in size */
    int64_t group;                /* dirichlet with even=cut: workers that are drawn together */
} tutti_partition;
typedef struct tutti_partition_set {
    const char *name, *title;
    const tutti_option *options;
    tutti_partition_kind kind;
} tutti_partition_set;
extern const tutti_partition_set tutti_partitions[]; /* {0}-ended */

/* Parses "iid", "dirichlet(alpha=0.1)", "class(k=2)", "shard(k=2)". */
tutti_status tutti_partition_read(tutti_partition *p, const char *text, tutti_error *err);

/* *bytes: memory that the parts need, aligned to 8. false: the size overflows. */
bool tutti_partition_bytes(uint64_t samples, int workers, size_t *bytes);
/* Sets *parts to the parts in memory that tutti_partition_draw has filled. */
void tutti_partition_at(tutti_parts *parts, const void *memory, int workers);

/* The labels of the samples that are cut, each below `classes`. */
typedef struct tutti_partition_labels {
    const uint8_t *at;
    uint64_t samples;
    int classes;
} tutti_partition_labels;
/* Draws the parts into memory. Every sample is in exactly one part, no part is empty, and the
   indexes of a part ascend. Not for iid, which has no parts. labels: [samples], each below classes
   (1 to 256). seed: the run's. TUTTI_ERR_USAGE: these labels and workers do not allow the
   partition. Deterministic. */
tutti_status tutti_partition_draw(const tutti_partition *p, const tutti_partition_labels *of,
                                  int workers, uint64_t seed, void *memory, tutti_error *err);

/* Sets count[classes] to the number of samples of each class in the worker's part. Returns sum over
   classes c of |p_c - q_c|, where p is the distribution of classes in the part and q that in the
   whole set: 0 if they are equal, 2 if they are disjoint (Zhao et al. 2018 call it earth mover's
   distance). labels: [samples]. */
double tutti_partition_histogram(const tutti_parts *parts, int worker, const uint8_t *labels,
                                 uint64_t samples, int classes, uint64_t *count);

/* ---- the loader: gathers the batches of a worker, by a thread ahead of the trainer. Batches come
   in the order of (step, pass), beginning with first_step. ---- */
typedef struct tutti_loader tutti_loader;
/* The samples of a pass. */
typedef struct tutti_batch {
    const float *x;                 /* [samples x channels x height x width]; NULL: a text */
    const uint8_t *labels;          /* [samples]; NULL: a text */
    const uint32_t *tokens, *next;  /* [samples x context], of a text; else NULL */
    const uint32_t *rows;           /* [samples x tables], of a click log; else NULL */
    int64_t samples;                /* 0: the pass has none for this worker */
    uint64_t step;
    int64_t pass;                   /* in the step */
} tutti_batch;

/* Opens the loader of a worker. depth: batches gathered ahead, 1 to 16; 0: there is no thread, and
   take gathers. data (attached) and rt are kept; share is copied, but not its arrays. */
tutti_status tutti_loader_open(tutti_loader **out, tutti_runtime *rt, const tutti_data *data,
                               const tutti_share *share, int worker, uint64_t first_step,
                               int depth, tutti_error *err);

/* Returns the memory of a loader that is opened with these arguments. data need not be attached. */
size_t tutti_loader_bytes(const tutti_data *data, const tutti_share *share, int worker, int depth);

/* Ends the thread and frees the loader; NULL is allowed. Blocks until the thread has ended. */
void tutti_loader_close(tutti_loader *loader);

/* Sets *batch to the next batch, which is valid until the next take or close. The passes of a tail
   step that have no samples for this worker are returned, too. Blocks until the batch is
   gathered. */
tutti_status tutti_loader_take(tutti_loader *loader, tutti_batch *batch, tutti_error *err);

/* Makes the given pass the next batch, with these samples. For a loader of depth 0, in a run whose
   order of samples does not follow from the share. epoch, position: as of tutti_share_sample_of.
   TUTTI_ERR_USAGE: samples is larger than the share's batch. */
tutti_status tutti_loader_seek(tutti_loader *loader, uint64_t step, int64_t pass, uint64_t epoch,
                               uint64_t position, int64_t samples, tutti_error *err);

/* After seek: gives the next batch these samples of the training split instead of those at epoch
   and position. ids: indexes in the split, `samples` of seek; copied. */
void tutti_loader_seek_ids(tutti_loader *loader, const uint64_t *ids);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
