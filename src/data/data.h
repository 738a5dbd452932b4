/* data.h: data sets, their parts and the loader. base.h decides which worker uses which samples
   when. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H
#include "tutti/runtime.h"
#include "tutti/base.h"
#include "problem/problem.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- IDX files (LeCun): magic 0 0 type rank, big-endian dimensions, data. Plain or gzip. Only
   type 0x08 (unsigned byte) is read. ---- */
typedef struct tutti_idx_header {
    int rank;
    uint64_t dim[4];
    uint64_t bytes;               /* of data */
} tutti_idx_header;
/* head: the first `have` bytes of a file (16 + 4 x rank suffice). `path` for messages. */
tutti_status tutti_idx_parse(const char *path, const uint8_t *head, size_t have,
                             tutti_idx_header *header, tutti_error *err);

/* ---- data sets: samples and labels. One of four:
     1. Images, kept as bytes: a directory of IDX files with the four MNIST names, plain or .gz, of
        CIFAR-10's binary files, or of PNG and JPEG files, one folder per class (pictures.h).
     2. The samples of a synthetic problem (problem.h), kept as floats.
     3. A text: windows of tokens, with the token after each as its label, of a file that is mapped.
     4. A click log (clicks.h). ---- */
typedef struct tutti_data tutti_data;
typedef enum { TUTTI_TRAIN, TUTTI_TEST } tutti_split;

/* classes, mean and deviation are known after filling, classes of a text at once.

   tables, rows: of a click log, else 0: categories of a sample, each a row of a table of that
   many. Its values are those of the 13 integers: log(1 + x), minus the mean and divided by the
   deviation of the field's integers that are present in the training split. A missing one becomes
   0, the mean. */
typedef struct tutti_data_shape {
    uint64_t samples[2];          /* of each split */
    int channels, height, width;  /* 1, 28, 28; of a problem 1, 1, dim */
    int value_bytes;              /* 1: pixels; 4: floats of a problem; 0: a text */
    int context;                  /* of a text: tokens of a sample, and width; else 0 */
    int tables;
    uint32_t rows;
    int classes;                  /* largest label of both splits + 1; of a text the vocabulary */
    uint64_t bytes;               /* memory that fill needs */
    /* Of the training pixels / 255, over all of them (population). Of a problem 0, 1. */
    float mean, deviation;
} tutti_data_shape;

/* The named sets; what `tutti data list` and the docs show. */
typedef struct tutti_data_set {
    const char *name, *title;
    const tutti_option *options;
    bool drawn;                   /* a problem: generated from its options, always available */
    bool text, clicks, pictures;  /* its samples are windows of tokens; clicks; PNG, JPEG files */
    /* Of labelled files: number of classes. A label beyond them is TUTTI_ERR_CORRUPT when
       filling. 0: follows from the labels, as for a directory given by its path. */
    int classes;
    /* Of a text: file name in $TUTTI_DATA/name or the like. NULL: given by the option `file`. */
    const char *file;
    const char *maker;            /* the command that makes it; NULL: it is part of Tutti */
} tutti_data_set;
extern const tutti_data_set tutti_data_sets[]; /* {0}-ended */

/* Resolves the name of a data set:
     - A problem resolves to its canonical spec.
     - "mnist" or a spec of it, "mnist(distort=0.5)", is $TUTTI_DATA/mnist, else ./data/mnist, else
       `installed`/mnist (may be NULL). speech, cifar10 and moby-dick are found likewise.
     - text(file=PATH), tokens(file=PATH), clicks(file=PATH) and images(dir=PATH) resolve to PATH.
     - The name of an existing file or directory, and any text with a '/', is a path: of a directory
       of images (the three kinds are distinguished by its contents), of a token file (text.h), or
       of a text in UTF-8.

   A bad spec or a missing path: TUTTI_ERR_USAGE, with similar names or the paths tried. */
tutti_status tutti_data_find(tutti_runtime *rt, const char *text, const char *installed,
                             char *path, size_t bytes, tutti_error *err);

/* Finds and opens (as tutti_data_open), and applies the options of the spec, as for --data. */
tutti_status tutti_data_open_spec(tutti_data **out, tutti_runtime *rt, const char *text,
                                  const char *installed, tutti_error *err);

/* Reads and checks the headers of all four files; counts of images and labels must agree. Nothing
   big is read. */
tutti_status tutti_data_open(tutti_data **out, tutti_runtime *rt, const char *path,
                             tutti_error *err);
void tutti_data_close(tutti_data *data);
const tutti_data_shape *tutti_data_shape_of(const tutti_data *data);

/* memory: shape->bytes, the pointer is kept. fill: reads everything into it and distorts it if
   the spec requires it. It checks sizes to the last byte, trailing bytes, and labels < 256
   classes. Without fill another rank of this host has filled it (it also contains the members of
   the shape that are known only after filling). */
tutti_status tutti_data_attach(tutti_data *data, void *memory, bool fill, tutti_error *err);
bool tutti_data_attached(const tutti_data *data);

/* After attach, of images: normalises pixels by these from now on, instead of the set's own
   values: for a network that was trained on another set. */
void tutti_data_normalise(tutti_data *data, float mean, float deviation);

/* table[b] := the normalised value of byte b. */
void tutti_data_normal_table(float mean, float deviation, float table[256]);

/* Name of class k (0 to 255), in UTF-8: its folder's, or its line in CIFAR-10's batches.meta.txt.
   NULL: it has none. */
const char *tutti_data_class_name(const tutti_data *data, int k);

/* NULL of a text, and before attach. */
const uint8_t *tutti_data_labels(const tutti_data *data, tutti_split split);

/* Of a token file: tutti_bpe_hash of its encoding. 0: bytes, or no text. */
uint64_t tutti_data_encoding(const tutti_data *data);

/* Of a text: n windows of `context` tokens, and the token after each. ids: indexes in the split.
   Tokens are below `classes`. */
void tutti_data_gather_tokens(const tutti_data *data, tutti_split split, const uint64_t *ids,
                              size_t n, uint32_t *tokens, uint32_t *next);

/* Of a click log: `tables` row numbers of each of n samples, each below `rows`. x and labels come
   from tutti_data_gather. */
void tutti_data_gather_rows(const tutti_data *data, tutti_split split, const uint64_t *ids,
                            size_t n, uint32_t *rows);

/* Normalised floats of n samples and their labels: (pixel / 255 - mean) / deviation (a deviation
   of 0 counts as 1), from a table of 256. ids: indexes in the split. A problem that drifts is
   evaluated at step 0. */
void tutti_data_gather(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                       float *x, uint8_t *labels);

/* tutti_data_gather at a step counted from the run's beginning, which matters only to a problem
   that drifts. */
void tutti_data_gather_at(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                          uint64_t step, float *x, uint8_t *labels);

/* ---- samples as bytes: a sample with its label as in the set, to be sent to a worker that may
   not have it (tutti.h, give). Numbers are little-endian. ----

     images    the pixels, the label
     problems  the values at step 0, float32, the label
     texts     context + 1 tokens, of as many bytes each as the vocabulary needs: 1, 2 or 4
     clicks    the values, float32, the row numbers, 4 bytes each, the label */
size_t tutti_data_sample_bytes(const tutti_data *data);

/* out: n x sample_bytes. ids: indexes in the split. */
void tutti_data_pack(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                     uint8_t *out);

/* Destination of samples: what the gathers above write, for n samples. NULL where the set has
   none. */
typedef struct tutti_data_buffers {
    float *x;
    uint8_t *labels;
    uint32_t *tokens, *next, *rows;
} tutti_data_buffers;

/* Unpacks samples that were packed from an equal set: the same numbers as a gather at that step.
   TUTTI_ERR_CORRUPT: a label, token, row or value that is invalid in this set; it names the
   sample. */
tutti_status tutti_data_unpack(const tutti_data *data, const uint8_t *in, size_t n, uint64_t step,
                               const tutti_data_buffers *room, tutti_error *err);

/* The x of least loss over either split at that step, for a model of this data's own kind: true for
   quadratic; false (nothing written) where it is not known. After attach. x: width values. */
bool tutti_data_optimum(const tutti_data *data, uint64_t step, float *x);

/* For the status of a call on user-supplied files (opening, attaching, reading a picture): the
   user has to repair damage, as a wrong option, so TUTTI_ERR_CORRUPT becomes TUTTI_ERR_USAGE.
   Others do not change. */
tutti_status tutti_data_given(tutti_status status, tutti_error *err);

/* *out := `text` with its path, which is relative to the working directory `directory`, made
   absolute. Names and absolute paths do not change. TUTTI_ERR_USAGE: it is longer than `bytes`,
   and *out is `text`, truncated. */
tutti_status tutti_data_absolute(tutti_runtime *rt, const char *text, const char *directory,
                                 char *out, size_t bytes, tutti_error *err);

/* Hash of shapes and contents, of a problem also of its options: part of the fingerprint; after
   attach. */
uint64_t tutti_data_hash(const tutti_data *data);

/* ---- a partition: the training set divided by labels into parts, one per worker (base.h,
   tutti_parts), so that workers see different distributions ---- */
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
    int64_t k;                    /* class, shard: how many per worker */
    int64_t seed;                 /* of the draw; -1: the run's */
    int even;                     /* dirichlet: how parts are made equal in size; 0: not */
    int64_t group;                /* dirichlet: workers whose parts are drawn together, if `even`
                                     cuts */
} tutti_partition;
typedef struct tutti_partition_set {
    const char *name, *title;
    const tutti_option *options;
    tutti_partition_kind kind;
} tutti_partition_set;
/* {0}-ended; src/data/partition.c describes how each is drawn. */
extern const tutti_partition_set tutti_partitions[];

/* Reads "iid", "dirichlet(alpha=0.1)", "class(k=2)", "shard(k=2)". */
tutti_status tutti_partition_read(tutti_partition *p, const char *text, tutti_error *err);

/* Memory that the parts need, aligned to 8 bytes; false: the size overflows. tutti_partition_at
   finds them in it. */
bool tutti_partition_bytes(uint64_t samples, int workers, size_t *bytes);
void tutti_partition_at(tutti_parts *parts, const void *memory, int workers);

/* Draws the parts into memory: every sample is in exactly one, none is empty, each ascends. Not for
   iid, which has no parts. labels: below classes (1 to 256). TUTTI_ERR_USAGE: a partition that
   these labels and workers do not allow. Deterministic; allocates. */
tutti_status tutti_partition_draw(const tutti_partition *p, const uint8_t *labels,
                                  uint64_t samples, int classes, int workers, uint64_t seed,
                                  void *memory, tutti_error *err);

/* count[0..classes): samples of each class in the worker's part; labels: of all samples. Returns
   the distance of its class distribution p from that of the whole set q, sum_c |p_c - q_c|: 0
   equal, 2 disjoint (Zhao et al. 2018 call it earth mover's). */
double tutti_partition_histogram(const tutti_parts *parts, int worker, const uint8_t *labels,
                                 uint64_t samples, int classes, uint64_t *count);

/* ---- the loader: one thread that gathers ahead of the trainer. Batches come in (step, pass)
   order, beginning with first_step. ---- */
typedef struct tutti_loader tutti_loader;
typedef struct tutti_batch {
    const float *x;
    const uint8_t *labels;
    const uint32_t *tokens, *next;  /* of a text, instead of x and labels: samples x context each */
    const uint32_t *rows;           /* of a click log, with x and labels: samples x tables */
    int64_t samples;
    uint64_t step;
    int64_t pass;
} tutti_batch;

/* depth: batches gathered ahead (1..16). 0: no thread, take() gathers. data (attached), rt:
   pointers are kept. */
tutti_status tutti_loader_open(tutti_loader **out, tutti_runtime *rt, const tutti_data *data,
                               const tutti_share *share, int worker, uint64_t first_step,
                               int depth, tutti_error *err);

/* Memory of a loader that is opened with these arguments. The data need not be attached. */
size_t tutti_loader_bytes(const tutti_data *data, const tutti_share *share, int worker, int depth);

/* Ends the thread wherever it is; blocks until it has. */
void tutti_loader_close(tutti_loader *loader);

/* The next batch, valid until the next take or close. Blocks while it is being gathered. A pass
   of a tail step without samples for this worker is returned too, with samples 0. */
tutti_status tutti_loader_take(tutti_loader *loader, tutti_batch *batch, tutti_error *err);

/* Sets the samples of the next batch, which is that of the given pass. For a run whose order does
   not follow from the share, or a method that decides itself which samples a pass has, and a
   loader of depth 0. epoch, position: as for tutti_share_sample_of. samples: at most the share's
   batch (TUTTI_ERR_USAGE). */
tutti_status tutti_loader_seek(tutti_loader *loader, uint64_t step, int64_t pass, uint64_t epoch,
                               uint64_t position, int64_t samples, tutti_error *err);

/* After seek: the batch has these samples of the training split instead of those at epoch and
   position; their number is seek's `samples`. ids: copied; each below the set's number of
   samples. */
void tutti_loader_seek_ids(tutti_loader *loader, const uint64_t *ids);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
