/* Any bytes as a message of any codec. Byte 0 chooses the codec, bytes 1 and 2 the number
   of elements, byte 3 how: bit 0, the rest is laid over a valid message, so that the
   fuzzer need not guess sizes and scales; bit 1, the message goes from one worker to
   another (tutti_codec_unpack_add), as that of a codec that is summed always does. What is
   refused has a sentence and changes nothing; memory is exactly as long as promised, so
   that a read or a write beyond it is seen. */
#include <stdlib.h>
#include <string.h>
#include <tutti/codec.h>
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const specs[] = {
    "int8(bucket=64)",
    "minmax8",
    "minmax8(chunk=256)",
    "qsgd",
    "qsgd(bits=2,bucket=64,norm=l2)",
    "qsgd(bits=3,bucket=32,coding=elias)",
    "qsgd(bits=8,bucket=64,coding=elias)",
    "qsgd(bits=2,bucket=512,norm=l2,coding=omega)",
    "qsgd(bits=5,coding=omega)",
    "nuqsgd(bits=5,bucket=64)",
    "sign",
    "sign(block=64)",
    "onebit",
    "topk(ratio=0.1)",
    "threshold(value=0.5)",
    "wangni(sparsity=0.2)",
    "wangni(solver=closed)",
    "qsgd(coding=huffman)",
    "nuqsgd(bits=8,bucket=64,coding=huffman)",
    "alq(bucket=64)",
    "alq(bits=5,bucket=32,coding=huffman,zero_level=on)",
    "amq(bits=2,bucket=512,coding=huffman)",
    "fp32",
    "fp16",
    "bf16",
    "trunc16",
    "randomk(ratio=0.1)",
    "randomk(ratio=0.3,block=7,unbiased=on)",
    "large(topk(ratio=0.1),min=100,small=fp16)",
    "large(qsgd(coding=elias),min=50,small=sign)",
    "topk(ratio=0.1,index_code=delta,value_dtype=fp16)",
    "topk(ratio=0.2,index_code=bitmap)",
    "threshold(value=0.5,index_code=delta)",
    "threshold(value=1,index_code=auto,value_dtype=bf16)",
    "qsgd(levels=5,bucket=64)",
    "qsgd(levels=2,bucket=64,coding=elias)",
    "qsgd(levels=9,coding=huffman)",
    "nuqsgd(bucket=64,tail=dense)",
    "onebit-col",
    "sign-vote",
    "nuqsgd(bucket=64,coding=elias)",
    "nuqsgd(bits=3,bucket=32,coding=omega)",
    "nuqsgd(bits=5,bucket=64,zero_level=off,coding=elias)",
    "dct(topk=4)",
    "dct(topk=3,chunk=7,value_dtype=fp16)",
    "chunk-topk(topk=4)",
    "chunk-topk(topk=3,chunk=7)",
    "e3m0(bucket=64)",
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
    tutti_error err = { 0 };
    tutti_plan *plan;
    tutti_codec *c, *leaf;
    size_t bytes, n;
    tutti_status status;
    bool over, point;
    void *scratch;
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
    leaf = tutti_codec_chosen(c, &v);
    point = (data[3] & 2) != 0 || leaf != c || leaf->ops->rounds > 0;
    data += 4;
    size -= 4;
    scratch = aligned_alloc(64, ((point                        ? tutti_codec_point_scratch(c, &v)
                                  : leaf->ops->scratch == NULL ? 0
                                                               : leaf->ops->scratch(leaf, &v)) +
                                 64) /
                                    64 * 64);
    require(scratch != NULL);
    y = malloc(n * sizeof *y + (n == 0));
    require(y != NULL);

    if (over) {
        /* of no elements: nothing, or what the codec makes of none */
        const size_t bound = point ? tutti_codec_point_bound(c, &v) : leaf->ops->bound(leaf, &v);
        in = malloc(bound + 1);
        require(in != NULL);
        for (size_t i = 0; i < n; i++)
            y[i] = size == 0 ? 0 : (float)(int8_t)data[i % size] / 16;
        bytes = point ? tutti_codec_pack(c, &v, y, scratch, in) : leaf->ops->encode(leaf, &v, y, scratch, in);
        require(bytes <= bound);
        in = realloc(in, bytes + (bytes == 0));
        for (size_t i = 0; i + 3 <= size && bytes > 0; i += 3)
            in[(data[i] | (size_t)data[i + 1] << 8) % bytes] ^= data[i + 2];
    } else {
        bytes = size;
        in = malloc(bytes + (bytes == 0));
        require(in != NULL);
        memcpy(in, data, bytes);
    }
    for (size_t i = 0; i < n; i++)
        y[i] = 1.5f;
    status = point ? tutti_codec_unpack_add(c, &v, in, bytes, 1, y, scratch, &err)
                   : leaf->ops->decode_add(leaf, &v, in, bytes, 1, y, &err);
    if (status != TUTTI_OK) {
        require(err.status == TUTTI_ERR_CORRUPT && err.text[0] != '\0');
        for (size_t i = 0; i < n; i++)
            require(y[i] == 1.5f);
    }
    free(in);
    free(y);
    free(scratch);
    tutti_codec_close(c);
    tutti_plan_close(plan);
    tutti_device_close(space.device);
    return 0;
}
