/* make.h: IDX files and gzip streams for the tests of this module, in memory. */
#ifndef TUTTI_TESTS_DATA_MAKE_H
#define TUTTI_TESTS_DATA_MAKE_H
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>
#include "state/memory_files.h"
#include "data/data.h"

typedef struct bytes { uint8_t *data; size_t n; } bytes;

/* rank dimensions, then as many bytes as their product; byte i is fill(i). */
static inline bytes make_idx(int rank, const uint32_t *dim, uint8_t (*fill)(size_t i))
{
    bytes b = { NULL, 4 + 4 * (size_t)rank };
    size_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= dim[k];
    b.data = malloc(b.n + n);
    assert_non_null(b.data);
    memcpy(b.data, (uint8_t[4]){ 0, 0, 8, (uint8_t)rank }, 4);
    for (int k = 0; k < rank; k++)
        for (int j = 0; j < 4; j++)
            b.data[4 + 4 * k + j] = (uint8_t)(dim[k] >> (24 - 8 * j));
    for (size_t i = 0; i < n; i++)
        b.data[b.n + i] = fill(i);
    b.n += n;
    return b;
}

/* extra: bytes of an extra field in the gzip header, to make the stream as long as a test needs
   it. */
static inline bytes make_gzip_extra(const uint8_t *data, size_t n, size_t extra)
{
    z_stream z = { 0 };
    bytes b = { NULL, 0 };
    gz_header head = { .os = 3, .extra = calloc(1, extra + 1), .extra_len = (uInt)extra };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    if (extra > 0)
        assert_int_equal(deflateSetHeader(&z, &head), Z_OK);
    b.n = deflateBound(&z, n) + 64;
    b.data = malloc(b.n);
    assert_non_null(b.data);
    z.next_in = (uint8_t *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = b.data;
    z.avail_out = (uInt)b.n;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    b.n -= z.avail_out;
    deflateEnd(&z);
    free(head.extra);
    return b;
}

static inline bytes make_gzip(const uint8_t *data, size_t n)
{
    return make_gzip_extra(data, n, 0);
}

/* A PNG of one grey, by hand. */
static inline bytes make_png(uint32_t width, uint32_t height)
{
    uint8_t rows[400] = { 0 }, body[600];
    uLongf n = sizeof body;
    bytes b = { calloc(1, 8 + 25 + 12 + sizeof body + 12), 8 };
    const size_t raw = (width + 1) * height;
    assert_true(raw <= sizeof rows && b.data != NULL);
    assert_int_equal(compress(body, &n, rows, raw), Z_OK);
    memcpy(b.data, "\x89PNG\r\n\x1a\n", 8);
    for (int k = 0; k < 3; k++) {
        const char *kind = k == 0 ? "IHDR" : k == 1 ? "IDAT" : "IEND";
        const uint8_t head[13] = { [3] = (uint8_t)width, [7] = (uint8_t)height, [8] = 8 };
        const uint32_t size = k == 0 ? 13 : k == 1 ? (uint32_t)n : 0;
        uint8_t *at = b.data + b.n;
        if (size > 0)
            memcpy(at + 8, k == 0 ? head : body, size);
        memcpy(at + 4, kind, 4);
        for (int j = 0; j < 4; j++) {
            const uint32_t crc = (uint32_t)crc32(0, at + 4, 4 + size);
            at[j] = (uint8_t)(size >> (24 - 8 * j));
            at[8 + size + (uint32_t)j] = (uint8_t)(crc >> (24 - 8 * j));
        }
        b.n += 12 + size;
    }
    return b;
}

static inline uint8_t fill_pixel(size_t i) { return (uint8_t)(i * 37 % 251); }
static inline uint8_t fill_label(size_t i) { return (uint8_t)(i % 10); }

/* A data set of height x width images in a directory of m. */
static inline void put_set_in(memory_files *m, const char *directory, uint32_t train, uint32_t test,
                              uint32_t height, uint32_t width, bool gzip)
{
    static const char *const names[4] = {
        "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
    };
    for (int k = 0; k < 4; k++) {
        const uint32_t dim[3] = { k < 2 ? train : test, height, width };
        bytes b = k % 2 == 0 ? make_idx(3, dim, fill_pixel) : make_idx(1, dim, fill_label);
        char path[100];
        if (gzip) {
            bytes z = make_gzip(b.data, b.n);
            free(b.data);
            b = z;
        }
        snprintf(path, sizeof path, "%s/%s%s", directory, names[k], gzip ? ".gz" : "");
        memory_files_put(m, path, b.data, b.n);
        free(b.data);
    }
}

static inline void put_set(memory_files *m, uint32_t train, uint32_t test, uint32_t height,
                           uint32_t width, bool gzip)
{
    put_set_in(m, "set", train, test, height, width, gzip);
}
#endif
