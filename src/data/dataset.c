/* dataset.c: a data set (data.h), and the images of four IDX files as one. Opening reads headers
   only. Attaching gives the set its block, which all ranks of a host can share, and, on the rank
   that fills it, reads all samples. The block has no pointers:

     0      data_facts: what is known only after reading (classes, mean, deviation, hash)
     64     training images (samples x height x width), then training labels, test images, test
            labels, each at a multiple of 64

   Mean and deviation are those of all training pixels / 255, computed from a histogram of 256
   counts (MNIST: 0.1307, 0.3081). The counts are exact, so the order of samples does not matter.

   The other kinds of sets have blocks of the same form: problem.c, text.c, clicklog.c. */
#include "data_internal.h"
#include "runtime/files.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const file_names[2][2] = {
    { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
    { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
};

/* ---- opening: four headers ---- */

/* Sets p->path to directory/NAME or directory/NAME.gz, whichever is there. */
static tutti_status find_file(tutti_data *d, data_part *p, const char *directory, const char *name,
                              tutti_error *err)
{
    const size_t bytes = strlen(directory) + strlen(name) + sizeof "/.gz";

    p->path = tutti_alloc(bytes, 1);
    if (p->path == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open data set '%s'", directory);
    snprintf(p->path, bytes, "%s/%s", directory, name);
    if (tutti_file_exists(d->rt, p->path))
        return TUTTI_OK;
    snprintf(p->path, bytes, "%s/%s.gz", directory, name);
    if (tutti_file_exists(d->rt, p->path))
        return TUTTI_OK;
    if (!tutti_file_exists(d->rt, directory))
        return tutti_fail(err, TUTTI_ERR_USAGE, ENOENT, "no data set at '%s'", directory);
    return tutti_fail(err, TUTTI_ERR_USAGE, ENOENT,
                      "data set '%s' has neither '%s' nor '%s.gz'; put the four MNIST files there",
                      directory, name, name);
}

bool tutti_data_is_idx(tutti_runtime *rt, const char *path)
{
    char name[4200];

    for (int k = 0; k < 8; k++) {
        snprintf(name, sizeof name, "%s/%s%s", path, file_names[k & 1][k >> 1 & 1],
                 k & 4 ? ".gz" : "");
        if (tutti_file_exists(rt, name))
            return true;
    }
    return false;
}

/* Opens p's file and reads its header, leaving the stream at the first byte of data. */
static tutti_status open_part(tutti_data *d, const data_part *p, tutti_data_stream **stream,
                              tutti_idx_header *header, tutti_error *err)
{
    uint8_t head[TUTTI_DATA_HEAD];
    size_t want = 4, have = 0, got;
    tutti_status status = tutti_data_stream_open(stream, d->rt, p->path, err);

    memset(header, 0, sizeof *header);
    /* The first four bytes give how many follow; reading no further leaves the stream where the
       data begin. */
    for (int turn = 0; turn < 2 && status == TUTTI_OK; turn++) {
        status = tutti_data_stream_read(*stream, head + have, want - have, &got, err);
        have += got;
        if (status == TUTTI_OK && turn == 0 && have == 4 && head[3] >= 1 && head[3] <= 4)
            want += 4 * (size_t)head[3];
    }
    if (status == TUTTI_OK)
        status = tutti_idx_parse(p->path, head, have, header, err);
    if (status != TUTTI_OK) {
        tutti_data_stream_close(*stream);
        *stream = NULL;
    }
    return status;
}

/* Checks the header's sizes against the file's length, before memory is allocated by them. */
static tutti_status check_part(const data_part *p, int kind, const tutti_data_stream *stream,
                               tutti_error *err)
{
    const tutti_idx_header *h = &p->header;
    const int rank = kind == DATA_X ? 3 : 1;
    /* bytes < 2^64 - 20: four dimensions below 2^32 whose product fits */
    const uint64_t whole = tutti_idx_head_bytes(h) + h->bytes;

    if (h->rank != rank)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has %d dimensions, but %s have %d; it is another file under this name", p->path,
            h->rank, kind == DATA_X ? "images (samples, height, width)" : "labels (samples)", rank);
    if (whole < h->bytes || tutti_data_stream_most(stream) < whole)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has %llu bytes%s, too few for the %llu its header speaks of; it was cut short: "
            "fetch it again",
            p->path, (unsigned long long)tutti_data_stream_file_bytes(stream),
            tutti_data_stream_gzip(stream) ? " of gzip" : "", (unsigned long long)whole);
    if (!tutti_data_stream_gzip(stream) && tutti_data_stream_file_bytes(stream) > whole)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %llu bytes after the %llu its header speaks of; cut them off "
                          "or fetch the file again",
                          p->path,
                          (unsigned long long)(tutti_data_stream_file_bytes(stream) - whole),
                          (unsigned long long)whole);
    return TUTTI_OK;
}

bool tutti_data_place(size_t *total, uint64_t bytes, uint64_t *offset)
{
    size_t padded;

    *offset = *total;
    if (!tutti_size_add(*total, bytes, total) ||
        !tutti_size_add(*total, DATA_ALIGNMENT - 1, &padded))
        return false;
    *total = padded / DATA_ALIGNMENT * DATA_ALIGNMENT;
    return true;
}

static tutti_status check_together(tutti_data *d, tutti_error *err)
{
    const tutti_idx_header *train = &d->parts[TUTTI_TRAIN][DATA_X].header,
                           *test = &d->parts[TUTTI_TEST][DATA_X].header;
    size_t total = DATA_ALIGNMENT;

    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const data_part *images = &d->parts[split][DATA_X], *labels = &d->parts[split][DATA_LABELS];
        if (images->header.dim[0] != labels->header.dim[0])
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has %llu images but '%s' has %llu labels; they are not of one data set",
                images->path, (unsigned long long)images->header.dim[0], labels->path,
                (unsigned long long)labels->header.dim[0]);
        d->shape.samples[split] = images->header.dim[0];
    }
    if (train->dim[1] != test->dim[1] || train->dim[2] != test->dim[2])
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has images of %llu x %llu but '%s' of %llu x %llu; both splits need one size",
            d->parts[TUTTI_TRAIN][DATA_X].path, (unsigned long long)train->dim[1],
            (unsigned long long)train->dim[2], d->parts[TUTTI_TEST][DATA_X].path,
            (unsigned long long)test->dim[1], (unsigned long long)test->dim[2]);
    if (train->dim[1] > INT_MAX || train->dim[2] > INT_MAX ||
        train->dim[1] * train->dim[2] > INT_MAX)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has images of %llu x %llu; at most %d pixels are supported",
                          d->parts[TUTTI_TRAIN][DATA_X].path, (unsigned long long)train->dim[1],
                          (unsigned long long)train->dim[2], INT_MAX);
    d->shape.value_bytes = d->shape.channels = 1;
    d->shape.height = (int)train->dim[1];
    d->shape.width = (int)train->dim[2];
    d->pixels = (size_t)(train->dim[1] * train->dim[2]);

    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        for (int kind = DATA_X; kind <= DATA_LABELS; kind++) {
            data_part *p = &d->parts[split][kind];
            if (!tutti_data_place(&total, p->header.bytes, &p->offset))
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "'%s' would make the data set larger than memory can be",
                                  p->path);
        }
    d->shape.bytes = total;
    return TUTTI_OK;
}

tutti_status tutti_data_open(tutti_data **out, tutti_runtime *rt, const char *path,
                             tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_data *d = tutti_alloc(1, sizeof *d);

    *out = NULL;
    if (d == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open data set '%s'", path);
    d->rt = rt;
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST && status == TUTTI_OK; split++)
        for (int kind = DATA_X; kind <= DATA_LABELS && status == TUTTI_OK; kind++) {
            data_part *p = &d->parts[split][kind];
            tutti_data_stream *stream = NULL;
            status = find_file(d, p, path, file_names[split][kind], err);
            if (status == TUTTI_OK)
                status = open_part(d, p, &stream, &p->header, err);
            if (status == TUTTI_OK)
                status = check_part(p, kind, stream, err);
            tutti_data_stream_close(stream);
        }
    if (status == TUTTI_OK)
        status = check_together(d, err);
    if (status == TUTTI_OK)
        *out = d;
    else
        tutti_data_close(d);
    return status;
}

/* ---- images that are not in IDX files ---- */

tutti_status tutti_data_filled_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                    tutti_status (*fill)(tutti_data *d, uint8_t *block,
                                                         tutti_error *err),
                                    tutti_error *err)
{
    tutti_data *d = tutti_alloc(1, sizeof *d);

    *out = NULL;
    if (d == NULL || (d->filled.path = tutti_copy_text(path)) == NULL) {
        tutti_free(d);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open data set '%s'", path);
    }
    d->rt = rt;
    d->filled.fill = fill;
    *out = d;
    return TUTTI_OK;
}

tutti_status tutti_data_filled_place(tutti_data *d, const uint64_t samples[2], int channels,
                                     int side, tutti_error *err)
{
    size_t total = DATA_ALIGNMENT;

    d->pixels = (size_t)channels * (size_t)side * (size_t)side;
    d->shape.value_bytes = 1;
    d->shape.channels = channels;
    d->shape.height = d->shape.width = side;
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        for (int kind = DATA_X; kind <= DATA_LABELS; kind++) {
            data_part *p = &d->parts[split][kind];
            size_t bytes;
            d->shape.samples[split] = samples[split];
            p->path = tutti_copy_text(d->filled.path);
            if (p->path == NULL)
                return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open data set '%s'",
                                  d->filled.path);
            if (!tutti_size_mul((size_t)samples[split], kind == DATA_X ? d->pixels : 1, &bytes) ||
                !tutti_data_place(&total, bytes, &p->offset))
                return tutti_fail(
                    err, TUTTI_ERR_USAGE, 0,
                    "the pictures of '%s' would make the data set larger than memory can be",
                    d->filled.path);
            p->header.bytes = bytes;
        }
    d->shape.bytes = total;
    return TUTTI_OK;
}

tutti_status tutti_data_name_class(tutti_data *d, int k, const char *name, size_t n)
{
    d->class_name[k] = tutti_alloc(n + 1, 1);
    if (d->class_name[k] == NULL)
        return TUTTI_ERR_MEMORY;
    memcpy(d->class_name[k], name, n);
    return TUTTI_OK;
}

void tutti_data_forget_classes(tutti_data *d)
{
    for (size_t k = 0; k < TUTTI_LENGTH(d->class_name); k++) {
        tutti_free(d->class_name[k]);
        d->class_name[k] = NULL;
    }
}

const char *tutti_data_class_name(const tutti_data *data, int k)
{
    return data->class_name[k];
}

void tutti_data_close(tutti_data *data)
{
    if (data == NULL)
        return;
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        for (int kind = DATA_X; kind <= DATA_LABELS; kind++)
            tutti_free(data->parts[split][kind].path);
    tutti_data_text_close(data);
    tutti_data_clicks_close(data);
    tutti_data_files_close(data->filled.files);
    tutti_data_forget_classes(data);
    tutti_free(data->filled.path);
    tutti_free(data);
}

void tutti_data_distort_by(tutti_data *data, const tutti_data_distortion *how)
{
    data->distortion = *how;
}

void tutti_data_limit_classes(tutti_data *data, int classes)
{
    data->most_classes = classes;
}

const tutti_data_shape *tutti_data_shape_of(const tutti_data *data)
{
    return &data->shape;
}

/* ---- attaching: the contents ---- */

static bool same_header(const tutti_idx_header *a, const tutti_idx_header *b)
{
    return a->rank == b->rank && a->bytes == b->bytes && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static tutti_status fill_part(tutti_data *d, const data_part *p, uint8_t *to, tutti_error *err)
{
    tutti_data_stream *stream;
    tutti_idx_header header;
    size_t got = 0;
    tutti_status status = open_part(d, p, &stream, &header, err);

    if (status == TUTTI_OK && !same_header(&header, &p->header))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "'%s' was changed since it was opened; start again", p->path);
    if (status == TUTTI_OK)
        status = tutti_data_stream_read(stream, to, header.bytes, &got, err);
    if (status == TUTTI_OK && got < header.bytes)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' ends after %llu of the %llu bytes of data its header speaks of; "
                            "it was cut short: fetch it again",
                            p->path, (unsigned long long)got, (unsigned long long)header.bytes);
    if (status == TUTTI_OK)
        status = tutti_data_stream_finish(stream, err);
    tutti_data_stream_close(stream);
    return status;
}

/* Sets f->classes to the largest label + 1. One damaged label would give the network up to 256
   outputs without a message. Only in a set whose number of classes is known is it distinguished
   from a rare class. */
static tutti_status find_classes(const tutti_data *d, const uint8_t *block, data_facts *f,
                                 tutti_error *err)
{
    f->classes = 0;
    /* both: a label of the test set needs an output as well */
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const uint8_t *labels = block + d->parts[split][DATA_LABELS].offset;
        for (uint64_t i = 0; i < d->shape.samples[split]; i++) {
            if (d->most_classes > 0 && labels[i] >= d->most_classes)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "'%s': label %llu is %d, but the set has the classes 0 to %d; it "
                                  "is damaged: make or fetch it again, or give the path of its "
                                  "directory if it is a set of another kind",
                                  d->parts[split][DATA_LABELS].path, (unsigned long long)i,
                                  labels[i], d->most_classes - 1);
            if (labels[i] >= f->classes)
                f->classes = labels[i] + 1;
        }
    }
    return TUTTI_OK;
}

static void find_moments(const tutti_data *d, const uint8_t *block, data_facts *f)
{
    const data_part *images = &d->parts[TUTTI_TRAIN][DATA_X];
    const uint8_t *pixel = block + images->offset;
    const double n = (double)images->header.bytes;
    const uint64_t end = images->header.bytes;
    /* Four in turn: neighbours are mostly of one grey, and a count waits for
       the one before it: twice as fast. */
    uint64_t turns[4][256] = { 0 }, histogram[256], i = 0;
    double mean = 0, variance = 0;

    for (; i + 4 <= end; i += 4) {
        turns[0][pixel[i]]++;
        turns[1][pixel[i + 1]]++;
        turns[2][pixel[i + 2]]++;
        turns[3][pixel[i + 3]]++;
    }
    for (; i < end; i++)
        turns[0][pixel[i]]++;
    for (int v = 0; v < 256; v++)
        histogram[v] = turns[0][v] + turns[1][v] + turns[2][v] + turns[3][v];
    for (int v = 0; v < 256; v++)
        mean += (double)histogram[v] * v;
    mean /= n * 255;
    for (int v = 0; v < 256; v++)
        variance += (double)histogram[v] * (v / 255.0 - mean) * (v / 255.0 - mean);
    f->mean = (float)mean;
    f->deviation = (float)sqrt(variance / n);
}

uint64_t tutti_data_hash_block(const tutti_data *d, const uint8_t *block)
{
    const uint64_t parts[6] = {
        d->shape.samples[0],
        d->shape.samples[1],
        (uint64_t)d->shape.channels,
        (uint64_t)d->shape.height,
        (uint64_t)d->shape.width,
        tutti_hash(block + DATA_ALIGNMENT, d->shape.bytes - DATA_ALIGNMENT),
    };
    return tutti_hash(parts, sizeof parts);
}

/* Reads the images and labels into the block, and finds its facts. */
static tutti_status fill_images(tutti_data *data, uint8_t *block, data_facts *f, tutti_error *err)
{
    if (data->filled.fill != NULL)
        TUTTI_TRY(data->filled.fill(data, block, err));
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        for (int kind = DATA_X; kind <= DATA_LABELS; kind++) {
            const data_part *p = &data->parts[split][kind];
            const uint64_t end = p->offset + p->header.bytes;
            if (data->filled.fill == NULL)
                TUTTI_TRY(fill_part(data, p, block + p->offset, err));
            /* the hash goes over the gaps too */
            memset(block + end, 0,
                   (size_t)((DATA_ALIGNMENT - end % DATA_ALIGNMENT) % DATA_ALIGNMENT));
        }
    TUTTI_TRY(find_classes(data, block, f, err));
    /* before the moments and the hash, which are those of what is trained on */
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        TUTTI_TRY(
            tutti_data_distort(&(tutti_data_images){ block + data->parts[split][DATA_X].offset,
                                                     data->shape.samples[split], data->shape.height,
                                                     data->shape.width },
                               (tutti_split)split, &data->distortion, err));
    find_moments(data, block, f);
    f->hash = tutti_data_hash_block(data, block);
    return TUTTI_OK;
}

tutti_status tutti_data_attach(tutti_data *data, void *memory, bool fill, tutti_error *err)
{
    uint8_t *block = memory;
    data_facts *f = memory;

    _Static_assert(sizeof(data_facts) <= DATA_ALIGNMENT, "the facts stand before the first image");
    if (fill)
        memset(block, 0, DATA_ALIGNMENT);
    if (fill && data->problem.kind != TUTTI_PROBLEM_NONE) {
        TUTTI_TRY(tutti_data_problem_fill(data, block, err));
        f->magic = DATA_MAGIC;
    } else if (fill && data->text.path != NULL) {
        TUTTI_TRY(tutti_data_text_fill(data, block, err));
        f->magic = DATA_MAGIC;
    } else if (fill && data->clicks.path != NULL) {
        TUTTI_TRY(tutti_data_clicks_fill(data, block, err));
        f->magic = DATA_MAGIC;
    } else if (fill) {
        TUTTI_TRY(fill_images(data, block, f, err));
        f->magic = DATA_MAGIC;
    } else if (f->magic != DATA_MAGIC) {
        char name[256];
        tutti_problem_print(&data->problem, name, sizeof name);
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "the data set of '%s' has not been filled on this host; the rank that fills it must "
            "have done so, without failure, before the others attach",
            name[0] != '\0'             ? name
            : data->text.path != NULL   ? data->text.path
            : data->clicks.path != NULL ? data->clicks.path
                                        : data->parts[TUTTI_TRAIN][DATA_X].path);
    }
    data->block = block;
    data->shape.classes = f->classes;
    tutti_data_normalise(data, f->mean, f->deviation);
    return TUTTI_OK;
}

void tutti_data_normalise(tutti_data *data, float mean, float deviation)
{
    data->shape.mean = mean;
    data->shape.deviation = deviation;
    tutti_data_normal_table(mean, deviation, data->table);
}

/* Computes in float, in the order of the formula, as PyTorch's ToTensor and Normalize do. Images of
   one grey have no deviation and become zeros. */
void tutti_data_normal_table(float mean, float deviation, float table[256])
{
    for (int v = 0; v < 256; v++)
        table[v] = ((float)v / 255.0f - mean) / (deviation > 0 ? deviation : 1.0f);
}

bool tutti_data_attached(const tutti_data *data)
{
    return data->block != NULL;
}

const uint8_t *tutti_data_labels(const tutti_data *data, tutti_split split)
{
    return data->block == NULL || data->text.path != NULL
               ? NULL
               : data->block + data->parts[split][DATA_LABELS].offset;
}

void tutti_data_gather(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                       float *x, uint8_t *labels)
{
    tutti_data_gather_at(data, split, ids, n, 0, x, labels);
}

void tutti_data_gather_at(const tutti_data *data, tutti_split split, const uint64_t *ids, size_t n,
                          uint64_t step, float *x, uint8_t *labels)
{
    const uint8_t *images = data->block + data->parts[split][DATA_X].offset,
                  *all = data->block + data->parts[split][DATA_LABELS].offset;
    const size_t pixels = data->pixels;

    assert(data->block != NULL && data->text.path == NULL);
    if (data->problem.kind != TUTTI_PROBLEM_NONE) {
        tutti_data_problem_gather(data, split, ids, n, step, x, labels);
        return;
    }
    if (data->clicks.path != NULL) {
        tutti_data_clicks_gather(data, split, ids, n, x, labels);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint8_t *image = images + ids[i] * pixels;
        assert(ids[i] < data->shape.samples[split]);
        for (size_t k = 0; k < pixels; k++)
            x[i * pixels + k] = data->table[image[k]];
        labels[i] = all[ids[i]];
    }
}

uint64_t tutti_data_hash(const tutti_data *data)
{
    const data_facts *f = (const data_facts *)data->block;

    return f == NULL ? 0 : f->hash;
}
