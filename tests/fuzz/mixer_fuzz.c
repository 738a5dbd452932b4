/* Any bytes as what a neighbour has sent of its model's difference to its public copy: what
   mixer_codec.c decodes of it. Byte 0 chooses the codec, bytes 1 and 2 the elements, byte 3 how:
   bit 0, the rest is laid over a valid message; bit 1, it has checksums. What is refused has a
   sentence that names the neighbour; memory is exactly as long as what came. Codecs that a mixer
   would not be given, since they do not contract, are among them: their messages state their
   lengths. The source file is included, since its functions are static. */
#include <stdlib.h>
#include "../../src/gossip/mixer_codec.c"
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS = 3 };
static const char *const specs[] = {
    "fp32",
    "fp16",
    "sign",
    "topk(ratio=0.1)",
    "randomk(ratio=0.2)",
    "int8(bucket=64)",
    "large(sign,min=100,small=fp16)",
    "qsgd(coding=elias)",
    "threshold(value=0.5)",
    "wangni(sparsity=0.3)",
    "large(qsgd(bits=2,coding=huffman),min=50,small=topk(ratio=0.5))",
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* One message of all tensors, in memory of its size, at c->receive. */
static size_t receive(tutti_mixer *mixer, const tutti_mixer_round *r, const uint8_t *data, size_t size, bool over)
{
    tutti_mixer_codec *c = mixer->codec;
    size_t bytes = size;

    require(c->messages == 1);
    if (over) {
        for (size_t i = 0; i < mixer->m->layout->used; i++)
            mixer->m->x[i] = size == 0 ? 0 : (float)(int8_t)data[i % size] / 16;
        require(pack(mixer, r, &c->message[0], &bytes, NULL) == TUTTI_OK);
        require(bytes <= c->message[0].bytes);
    }
    c->receive = malloc(bytes + (bytes == 0));
    require(c->receive != NULL);
    if (bytes > 0)
        memcpy(c->receive, over ? c->send : data, bytes);
    for (size_t i = 0; i + 3 <= size && over && bytes > 0; i += 3)
        c->receive[(data[i] | (size_t)data[i + 1] << 8) % bytes] ^= data[i + 2];
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tutti_method_ops ops = { .name = "fuzzed" };
    tutti_tensor tensor[TENSORS];
    tutti_layout layout = { .tensor = tensor, .n_tensors = TENSORS };
    tutti_method m = { .ops = &ops, .layout = &layout, .rank = 1, .workers = 2, .rng = { .seed = 1 } };
    tutti_mixer mixer = { .m = &m };
    const int in[1] = { 1 };
    tutti_error err = { 0 };
    tutti_plan *plan;
    tutti_mixer_round r = { .k = 3, .n_in = 1, .n_out = 1 };
    size_t n, bytes;

    if (size < 4)
        return 0;
    n = (data[1] | (size_t)data[2] << 8) % 900 + 1;
    for (int i = 0; i < TENSORS; i++) {
        tensor[i] = (tutti_tensor){
            .name = "w", .first = layout.used, .count = n / (size_t)(i + 1) + 1, .rows = n / (size_t)(i + 1) + 1,
            .cols = 1,
        };
        layout.used += tensor[i].count;
    }
    m.n = layout.n = layout.used;
    require(tutti_device_open_host(&m.device, NULL, TUTTI_CPU_AVX512, NULL) == TUTTI_OK);
    require(tutti_graph_open(&mixer.graph, "ring", 2, NULL) == TUTTI_OK);
    require(tutti_plan_open(&plan, m.n, NULL) == TUTTI_OK);
    mixer.in = (int *)(uintptr_t)in;
    mixer.codec = tutti_alloc(1, sizeof *mixer.codec);
    require(mixer.codec != NULL && list_tensors(&m, mixer.codec, NULL) == TUTTI_OK);
    require(tutti_codec_declare(&mixer.codec->codec, plan, specs[data[0] % TUTTI_LENGTH(specs)], "mixer.codec",
                                &mixer.codec->space, NULL) == TUTTI_OK);
    mixer.codec->checked = (data[3] & 2) != 0;
    cut_messages(mixer.codec);
    require(declare_memory(&mixer, plan, NULL) == TUTTI_OK);
    require(tutti_plan_carry_out(plan, NULL, NULL) == TUTTI_OK);
    tutti_codec_open(mixer.codec->codec);
    m.x = malloc(m.n * sizeof *m.x);
    mixer.codec->theirs[0] = malloc(m.n * sizeof *m.x);
    require(m.x != NULL && mixer.codec->theirs[0] != NULL);
    for (size_t i = 0; i < m.n; i++)
        m.x[i] = mixer.codec->theirs[0][i] = 1.5f;
    r.u = m.x;
    bytes = receive(&mixer, &r, data + 4, size - 4, data[3] & 1);
    if (unpack(&mixer, &r, &mixer.codec->message[0], 0, bytes, &err) != TUTTI_OK)
        require(err.status == TUTTI_ERR_CORRUPT && strstr(err.text, "worker 1 sent") != NULL);
    free(mixer.codec->receive);
    free(mixer.codec->theirs[0]);
    free(m.x);
    tutti_mixer_codec_close(mixer.codec);
    tutti_plan_close(plan);
    tutti_graph_close(mixer.graph);
    tutti_device_close(m.device);
    return 0;
}
