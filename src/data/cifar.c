/* cifar.c: the data set of CIFAR-10's binary files (A. Krizhevsky, "Learning multiple layers of
   features from tiny images", 2009; the page of the data set has the format): data_batch_1.bin to
   data_batch_5.bin for training, and test_batch.bin. A record is a label and 32 x 32 pixels as
   three planes, red, green and blue, row-major: 3073 bytes. The names of the classes are the lines
   of batches.meta.txt, if there is one. */
#include "data_internal.h"
#include "runtime/files.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCHES = 5,
    SIDE = 32,
    PIXELS = 3 * SIDE * SIDE,
    RECORD = 1 + PIXELS,
    CLASSES = 10,
    WHOLE = 10000
};

static void name_of(const tutti_data *d, int batch, char *path, size_t bytes)
{
    if (batch < BATCHES)
        snprintf(path, bytes, "%s/data_batch_%d.bin", d->filled.path, batch + 1);
    else
        snprintf(path, bytes, "%s/test_batch.bin", d->filled.path);
}

bool tutti_data_is_cifar(tutti_runtime *rt, const char *path)
{
    char name[4200];

    snprintf(name, sizeof name, "%s/data_batch_1.bin", path);
    if (tutti_file_exists(rt, name))
        return true;
    snprintf(name, sizeof name, "%s/test_batch.bin", path);
    return tutti_file_exists(rt, name);
}

/* whole: the file must have 10000 records, as the published files. */
static tutti_status count_records(const tutti_data *d, int batch, bool whole, uint64_t *records,
                                  tutti_error *err)
{
    char path[4200];
    tutti_file *file;
    uint64_t bytes;

    name_of(d, batch, path, sizeof path);
    if (!tutti_file_exists(d->rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, ENOENT,
                          "'%s' is not there; CIFAR-10 has data_batch_1.bin to data_batch_5.bin "
                          "and test_batch.bin: put all six into one folder",
                          path);
    TUTTI_TRY(tutti_file_open(&file, d->rt, path, TUTTI_FILE_READ, err));
    bytes = tutti_file_bytes(file);
    tutti_file_close(file, NULL);
    *records = bytes / RECORD;
    if (bytes == 0 || bytes % RECORD != 0 || (whole && *records != WHOLE))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %llu bytes, but %s%d bytes each make %s; it was cut short or "
                          "is another file: fetch it again",
                          path, (unsigned long long)bytes,
                          whole ? "10000 records of " : "records of ", RECORD,
                          whole ? "30730000" : "a multiple of 3073");
    return TUTTI_OK;
}

/* Reads the names of the classes from batches.meta.txt, if it has a line for each class. */
static tutti_status read_names(tutti_data *d, tutti_error *err)
{
    char path[4200], text[1024];
    tutti_file *file;
    size_t bytes;
    const char *line = text;
    tutti_status status = TUTTI_OK;

    snprintf(path, sizeof path, "%s/batches.meta.txt", d->filled.path);
    if (!tutti_file_exists(d->rt, path))
        return TUTTI_OK;
    TUTTI_TRY(tutti_file_open(&file, d->rt, path, TUTTI_FILE_READ, err));
    bytes = tutti_file_bytes(file) < sizeof text ? (size_t)tutti_file_bytes(file) : 0;
    status = tutti_file_read(file, 0, text, bytes, err);
    tutti_file_close(file, NULL);
    text[bytes] = '\0';
    if (status != TUTTI_OK || strlen(text) < bytes ||
        tutti_utf8_valid((const uint8_t *)text, bytes) < bytes)
        return status;
    for (int k = 0; k < CLASSES; k++) {
        const size_t n = strcspn(line, "\r\n");
        if (n == 0) {
            tutti_data_forget_classes(d);
            return TUTTI_OK;
        }
        if (tutti_data_name_class(d, k, line, n) != TUTTI_OK)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "keeping the names in '%s'", path);
        line += n + strspn(line + n, "\r\n");
    }
    return TUTTI_OK;
}

static tutti_status fill_batch(const tutti_data *d, int batch, uint64_t records, uint8_t *x,
                               uint8_t *labels, tutti_error *err)
{
    enum { AT_ONCE = 256 };
    char path[4200];
    uint8_t *room = tutti_alloc(AT_ONCE, RECORD);
    tutti_file *file = NULL;
    tutti_status status;

    name_of(d, batch, path, sizeof path);
    status = room != NULL ? tutti_file_open(&file, d->rt, path, TUTTI_FILE_READ, err)
                          : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to read '%s'", path);
    if (status == TUTTI_OK && tutti_file_bytes(file) != records * RECORD)
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "'%s' was changed since it was opened; start again", path);
    for (uint64_t at = 0; at < records && status == TUTTI_OK; at += AT_ONCE) {
        const size_t n = (size_t)(records - at < AT_ONCE ? records - at : AT_ONCE);
        status = tutti_file_read(file, at * RECORD, room, n * RECORD, err);
        for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
            labels[at + i] = room[i * RECORD];
            memcpy(x + (at + i) * PIXELS, room + i * RECORD + 1, PIXELS);
            if (labels[at + i] >= CLASSES)
                status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                    "'%s': the label of record %llu is %d, but CIFAR-10 has the "
                                    "classes 0 to 9; it is damaged or another file: fetch it again",
                                    path, (unsigned long long)(at + i), labels[at + i]);
        }
    }
    tutti_file_close(file, NULL);
    tutti_free(room);
    return status;
}

static tutti_status fill_pictures(tutti_data *d, uint8_t *block, tutti_error *err)
{
    uint64_t at = 0;

    for (int batch = 0; batch <= BATCHES; batch++) {
        const tutti_split split = batch < BATCHES ? TUTTI_TRAIN : TUTTI_TEST;
        const uint64_t records = d->filled.records[batch];
        at = batch == BATCHES ? 0 : at;
        TUTTI_TRY(fill_batch(d, batch, records,
                             block + d->parts[split][DATA_X].offset + at * PIXELS,
                             block + d->parts[split][DATA_LABELS].offset + at, err));
        at += records;
    }
    return TUTTI_OK;
}

tutti_status tutti_data_cifar_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                   bool whole, tutti_error *err)
{
    uint64_t samples[2] = { 0 };
    tutti_data *d;
    tutti_status status;

    TUTTI_TRY(tutti_data_filled_open(&d, rt, path, fill_pictures, err));
    status = TUTTI_OK;
    for (int batch = 0; batch <= BATCHES && status == TUTTI_OK; batch++) {
        status = count_records(d, batch, whole, &d->filled.records[batch], err);
        samples[batch == BATCHES] += d->filled.records[batch];
    }
    d->most_classes = CLASSES;
    if (status == TUTTI_OK)
        status = read_names(d, err);
    if (status == TUTTI_OK)
        status = tutti_data_filled_place(d, samples, 3, SIDE, err);
    if (status == TUTTI_OK)
        *out = d;
    else
        tutti_data_close(d);
    return status;
}
