/* Any bytes as an IDX file. The first byte selects how: 0 the header alone; otherwise as the
   training images of a set whose other files are sound, opened and filled: bit 1 compresses the
   rest first, so that the fuzzer gets behind gzip's checksum, bit 2 takes the rest as labels
   instead. A set that opens asks for no more memory than a thousand times its files, and what is
   filled is whole. */
#include <zlib.h>
#include "../state/memory_files.h"
#include "data/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void put_sound(memory_files *m, const char *path, bool images)
{
    uint8_t file[16 + 2 * 6] = { 0, 0, 8, images ? 3 : 1, 0, 0, 0, 2 };

    if (images)
        memcpy(file + 8, (uint8_t[8]){ 0, 0, 0, 2, 0, 0, 0, 3 }, 8);
    memory_files_put(m, path, file, images ? 16 + 12 : 8 + 2);
}

static void put_compressed(memory_files *m, const char *path, const uint8_t *data, size_t size)
{
    z_stream z = { 0 };
    const size_t room = size + size / 100 + 200;
    uint8_t *to = malloc(room);

    require(to != NULL && deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = to;
    z.avail_out = (uInt)room;
    require(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    memory_files_put(m, path, to, room - z.avail_out);
    free(to);
}

static void use(const tutti_data *d)
{
    const tutti_data_shape *shape = tutti_data_shape_of(d);
    const uint64_t last[2] = { 0, shape->samples[TUTTI_TRAIN] - 1 };
    const size_t pixels = (size_t)shape->height * (size_t)shape->width;
    float *x = malloc(2 * pixels * sizeof *x);
    uint8_t labels[2];

    require(x != NULL && shape->classes >= 1 && shape->classes <= 256);
    tutti_data_gather(d, TUTTI_TRAIN, last, 2, x, labels);
    require(labels[0] < shape->classes && labels[1] < shape->classes);
    free(x);
}

static void open_and_fill(const uint8_t *data, size_t size, unsigned how)
{
    const char *path = how & 2 ? "d/train-labels-idx1-ubyte" : "d/train-images-idx3-ubyte";
    memory_files *m = memory_files_open(NULL);
    tutti_data *d;
    tutti_error err = { 0 };

    put_sound(m, "d/train-images-idx3-ubyte", true);
    put_sound(m, "d/train-labels-idx1-ubyte", false);
    put_sound(m, "d/t10k-images-idx3-ubyte", true);
    put_sound(m, "d/t10k-labels-idx1-ubyte", false);
    if (how & 1)
        put_compressed(m, path, data, size);
    else
        memory_files_put(m, path, data, size);
    if (tutti_data_open(&d, &m->rt, "d", &err) == TUTTI_OK) {
        const uint64_t bytes = tutti_data_shape_of(d)->bytes;
        void *block;
        require(bytes <= 1000 + 1100 * (size + 300));
        block = tutti_alloc((size_t)bytes, 1);
        require(block != NULL);
        if (tutti_data_attach(d, block, true, &err) == TUTTI_OK)
            use(d);
        else
            require(err.text[0] != '\0');
        tutti_free(block);
    } else {
        require(d == NULL && err.text[0] != '\0');
    }
    tutti_data_close(d);
    memory_files_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_idx_header h;
    tutti_error err = { 0 };

    if (size == 0)
        return 0;
    if (data[0] == 0)
        require((tutti_idx_parse("f", data + 1, size - 1, &h, &err) == TUTTI_OK) == (err.text[0] == '\0'));
    else
        open_and_fill(data + 1, size - 1, data[0] >> 1);
    return 0;
}
