/* data.h: data sets and the loader; who uses which samples when is share.h. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H
#include "device.h"
#include "options.h"
#include "problem.h"
#include "share.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- IDX files (LeCun): magic 0 0 type rank, big-endian dimensions, data. Plain or gzip. Only type 0x08 (unsigned byte) is read. ---- */
typedef struct tutti_idx_header { int rank; uint64_t dim[4]; uint64_t bytes; /* of data */ } tutti_idx_header;
/* The first `have` bytes of a file (16 + 4 x rank suffice). `path` for messages. */
tutti_status tutti_idx_parse(const char *path, const uint8_t *head, size_t have, tutti_idx_header *header, tutti_error *err);

/* ---- a data set of samples and labels: a directory of IDX files with the four MNIST names, plain or .gz, kept as bytes; or the samples of a synthetic
   problem (problem.h), kept as floats. ---- */
typedef struct tutti_data tutti_data;
typedef enum { TUTTI_TRAIN, TUTTI_TEST } tutti_split;
typedef struct tutti_data_shape {
    uint64_t samples[2];          /* of each split */
    int channels, height, width;  /* 1, 28, 28; of a problem 1, 1, dim */
    int value_bytes;              /* 1: pixels; 4: floats of a problem */
    int classes;                  /* largest label of both splits + 1; known after filling */
    uint64_t bytes;               /* memory that fill needs */
    float mean, deviation;        /* of the training pixels / 255, over all of them (population); known after filling. Of a problem 0, 1 */
} tutti_data_shape;
/* The sets with a name of their own; what `tutti data list` and the docs show. */
typedef struct tutti_data_set {
    const char *name, *title;
    const tutti_option *options;
    bool drawn;                   /* a problem: made from its options, found everywhere */
} tutti_data_set;
extern const tutti_data_set tutti_data_sets[]; /* {0}-ended */
/* Where a text leads: a problem to its canonical spec; "mnist" or a spec of it, "mnist(distort=0.5)", is $TUTTI_DATA/mnist, else ./data/mnist, else `installed`/mnist (may be NULL).
   What exists under the text as it stands, and any text with a '/', is a path. A bad spec or an absent place: TUTTI_ERR_USAGE, with near names or the
   places tried. */
tutti_status tutti_data_find(tutti_runtime *rt, const char *text, const char *installed, char *path, size_t bytes, tutti_error *err);
/* Finds and opens (as tutti_data_open), and takes the options of the spec: what --data takes. */
tutti_status tutti_data_open_spec(tutti_data **out, tutti_runtime *rt, const char *text, const char *installed, tutti_error *err);
/* Reads and checks the headers of all four files; counts of images and labels must agree. Nothing big is read. */
tutti_status tutti_data_open(tutti_data **out, tutti_runtime *rt, const char *path, tutti_error *err);
void tutti_data_close(tutti_data *data);
const tutti_data_shape *tutti_data_shape_of(const tutti_data *data);
/* memory: shape->bytes, kept. fill: read everything into it (checks sizes to the last byte, trailing bytes, labels < 256 classes) and distort it if the
   spec says so; otherwise
   another rank of this host has filled it (shape's late facts travel in it). */
tutti_status tutti_data_attach(tutti_data *data, void *memory, bool fill, tutti_error *err);
const uint8_t *tutti_data_labels(const tutti_data *data, tutti_split split);
/* Normalised floats of n samples and their labels: (pixel / 255 - mean) / deviation (a deviation of 0 counts as 1), from a table of 256. ids: indexes in the split.
   A problem that drifts is taken at step 0. */
void tutti_data_gather(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n, float *x, uint8_t *labels);
/* The same at a step counted from the run's beginning, which matters to a problem that drifts and to nothing else. */
void tutti_data_gather_at(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n, uint64_t step, float *x, uint8_t *labels);
/* The x of least loss over either split at that step, for a model of this data's own kind: true for quadratic; false (nothing written) where it is not
   known. After attach. x: width values. */
bool tutti_data_optimum(const tutti_data *data, uint64_t step, float *x);
uint64_t tutti_data_hash(const tutti_data *data);   /* of shapes and contents, of a problem of its options too: part of the fingerprint; after attach */

/* ---- loader: one thread that gathers ahead of the trainer. Batches come in (step, pass) order from where it was started. ---- */
typedef struct tutti_loader tutti_loader;
typedef struct tutti_batch { const float *x; const uint8_t *labels; int64_t samples; uint64_t step; int64_t pass; } tutti_batch;
/* depth: batches gathered ahead (1..16). No thread and a gather at take() if depth is 0. data (attached), rt: kept. */
tutti_status tutti_loader_open(tutti_loader **out, tutti_runtime *rt, const tutti_data *data, const tutti_share *share, int worker,
                               uint64_t first_step, int depth, tutti_error *err);
void tutti_loader_close(tutti_loader *loader);   /* ends the thread wherever it is; blocks until it has */
/* The next batch; valid until the next take or close. Blocks while it is being gathered. A pass of a tail step that has nothing for this
   worker comes too, with no samples. */
tutti_status tutti_loader_take(tutti_loader *loader, tutti_batch *batch, tutti_error *err);
/* The next batch is to be this one, not before the first step. For a loader of depth 0. */
void tutti_loader_seek(tutti_loader *loader, uint64_t step, int64_t pass);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
