/* Any bytes as a message of any codec. Byte 0 chooses the codec, bytes 1 and 2 the number of elements, byte 3 how: bit 0, the rest is laid over a
   valid message, so that the fuzzer need not guess sizes and scales. What is refused has a sentence and changes nothing; memory is exactly as long as
   promised, so that a read or a write beyond it is seen. */
#include <stdlib.h>
#include <string.h>
#include <tutti/codec.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const specs[] = {
    "int8(bucket=64)", "minmax8", "minmax8(chunk=256)", "qsgd", "qsgd(bits=2,bucket=64,norm=l2)", "qsgd(bits=3,bucket=32,coding=elias)",
    "qsgd(bits=8,bucket=64,coding=elias)", "qsgd(bits=2,bucket=512,norm=l2,coding=omega)", "qsgd(bits=5,coding=omega)", "nuqsgd(bits=5,bucket=64)", "sign",
    "sign(block=64)", "onebit", "topk(ratio=0.1)", "threshold(value=0.5)", "wangni(sparsity=0.2)", "wangni(solver=closed)",
    "qsgd(coding=huffman)", "nuqsgd(bits=8,bucket=64,coding=huffman)", "alq(bucket=64)", "alq(bits=5,bucket=32,coding=huffman,zero_level=on)", "amq(bits=2,bucket=512,coding=huffman)",
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_view v = { .tensor = 0, .step = 1 };
    tutti_codec_space space = { .tensor = &v, .n_tensors = 1, .workers = 1, .seed = 1 };
    const tutti_codec_ops *ops;
    tutti_error err = { 0 };
    tutti_plan *plan;
    tutti_codec *c;
    size_t bytes, n;
    bool over;
    uint8_t *in;
    float *y;

    if (size < 4)
        return 0;
    n = (data[1] | (size_t)data[2] << 8) % 2100;
    over = data[3] & 1;
    v.count = v.cols = space.n = n;
    v.rows = 1;
    require(tutti_device_open_host(&space.device, NULL, TUTTI_CPU_AVX512, NULL) == TUTTI_OK);
    require(tutti_plan_open(&plan, n, NULL) == TUTTI_OK);
    require(tutti_codec_declare(&c, plan, specs[data[0] % TUTTI_LENGTH(specs)], "codec", &space, NULL) == TUTTI_OK);
    require(tutti_plan_carry_out(plan, NULL, NULL) == TUTTI_OK);
    tutti_codec_open(c);
    data += 4;
    size -= 4;
    ops = c->ops;
    y = malloc(n * sizeof *y + (n == 0));
    require(y != NULL);

    if (over) {
        const size_t scratch_bytes = ops->scratch == NULL ? 0 : ops->scratch(c, &v), bound = ops->bound(c, &v);
        void *scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
        in = malloc(bound + 1);
        require(scratch != NULL && in != NULL);
        for (size_t i = 0; i < n; i++)
            y[i] = size == 0 ? 0 : (float)(int8_t)data[i % size] / 16;
        bytes = ops->encode(c, &v, y, scratch, in);
        require(bytes <= bound);
        in = realloc(in, bytes + (bytes == 0));
        for (size_t i = 0; i + 3 <= size && bytes > 0; i += 3)
            in[(data[i] | (size_t)data[i + 1] << 8) % bytes] ^= data[i + 2];
        free(scratch);
    } else {
        bytes = size;
        in = malloc(bytes + (bytes == 0));
        require(in != NULL);
        memcpy(in, data, bytes);
    }
    for (size_t i = 0; i < n; i++)
        y[i] = 1.5f;
    if (ops->decode_add(c, &v, in, bytes, 1, y, &err) != TUTTI_OK) {
        require(err.status == TUTTI_ERR_CORRUPT && err.text[0] != '\0');
        for (size_t i = 0; i < n; i++)
            require(y[i] == 1.5f);
    }
    free(in);
    free(y);
    tutti_codec_close(c);
    tutti_plan_close(plan);
    tutti_device_close(space.device);
    return 0;
}
