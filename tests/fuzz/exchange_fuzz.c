/* Any bytes as what a worker has sent of the tensors of a piece, one message behind the other:
   what exchange/message.c cuts it into (`take`), and what it decodes of that (`add`). Byte 0
   chooses the codec, byte 1 how many tensors (1 to 4), bytes 2 and 3 their elements, byte 4 how:
   bit 0, the rest is laid over valid messages; bit 1, they have checksums. Every cut lies within
   what came; what is refused has a sentence; what was decoded before stays. The source file is
   included, since its functions are static. */
#include <stdlib.h>
#include "../../src/engine/exchange/message.c"
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNITS = 4 };
static const char *const specs[] = {
    "qsgd(coding=elias)",
    "qsgd(bits=2,bucket=64,norm=l2,coding=omega)",
    "nuqsgd(bits=5,bucket=64,coding=huffman)",
    "alq(bucket=64,coding=huffman)",
    "threshold(value=0.5)",
    "wangni(sparsity=0.3)",
    "topk(ratio=0.1)",
    "sign(block=64)",
    "int8(bucket=64)",
    "minmax8(chunk=256)",
    "ef(threshold(value=0.5))",
    "large(wangni(sparsity=0.3),min=100,small=topk(ratio=0.2))",
    "nuqsgd(bucket=64,coding=elias)",
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void open_units(tutti_exchange_job *job, tutti_codec *c, bool checked)
{
    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        *u = (tutti_exchange_unit){ .view = c->space->tensor[i], .codec = c, .turn = -1, .checked = checked };
        u->view.step = 1;
        while (u->codec->ops->choose != NULL)
            u->codec = u->codec->ops->choose(u->codec, &u->view);
    }
}

/* Valid messages of all tensors, one behind the other. */
static size_t write_all(tutti_exchange_job *job, const uint8_t *data, size_t size, uint8_t **in)
{
    size_t most = 0, bytes = 0;

    for (int i = 0; i < job->n_units; i++)
        most += message_bound(&job->unit[i], &job->unit[i].view);
    *in = malloc(most + 1);
    require(*in != NULL);
    for (int i = 0; i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        float *x = malloc(u->view.count * sizeof *x + 1);
        message m;
        size_t one;
        require(x != NULL);
        for (size_t k = 0; k < u->view.count; k++)
            x[k] = size == 0 ? 0 : (float)(int8_t)data[(k + (size_t)i) % size] / 16;
        require(write_message(&(coding){ job, u, &u->view }, x, *in + bytes, &m, &one, NULL) ==
                TUTTI_OK);
        bytes += one;
        free(x);
    }
    require(bytes <= most);
    *in = realloc(*in, bytes + (bytes == 0));
    return bytes;
}

/* As gather() reads what a worker sent. */
static void read_all(const tutti_exchange_job *job, const uint8_t *in, size_t bytes)
{
    const uint8_t *at = in, *const end = in + bytes;

    for (int i = 0; i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        tutti_error err = { 0 };
        message m;
        float *y = malloc(u->view.count * sizeof *y + (u->view.count == 0));
        tutti_status status = read_message(&(coding){ job, u, &u->view }, 1, &at, end, &m, &err);
        require(y != NULL && at >= in && at <= end);
        for (size_t k = 0; k < u->view.count; k++)
            y[k] = 1.5f;
        if (status == TUTTI_OK) {
            require(m.at >= in && m.at <= end && m.bytes <= (size_t)(end - m.at));
            status = decode_message(&(coding){ job, u, &u->view }, &m, 1, 1, y, &err);
        }
        if (status != TUTTI_OK) {
            require(err.status == TUTTI_ERR_CORRUPT && err.text[0] != '\0');
            for (size_t k = 0; k < u->view.count; k++)
                require(y[k] == 1.5f);
        }
        free(y);
        if (status != TUTTI_OK)
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_view tensor[UNITS];
    tutti_codec_space space = { .tensor = tensor, .workers = 2, .seed = 1 };
    tutti_exchange_slot slot = { .taken = true };
    tutti_exchange_unit unit[UNITS];
    uint64_t payload[UNITS] = { 0 };
    tutti_engine_exchange exchange = { .slot = &slot, .payload = payload };
    tutti_group group = { .index = 1, .size = 2 };
    tutti_exchange_job job = { .exchange = &exchange, .slot = &slot, .group = &group, .unit = unit };
    tutti_plan *plan;
    tutti_codec *c;
    uint8_t *in;
    size_t bytes, each;

    if (size < 5)
        return 0;
    job.n_units = space.n_tensors = 1 + data[1] % UNITS;
    each = (data[2] | (size_t)data[3] << 8) % 700;
    for (int i = 0; i < job.n_units; i++) {
        const size_t n = i == 2 ? 0 : each / (size_t)(i + 1); /* the third part of a piece may be empty */
        tensor[i] = (tutti_view){ .tensor = i, .first = space.n, .count = n, .rows = 1, .cols = n };
        space.n += n;
    }
    require(tutti_device_open_host(&space.device, NULL, TUTTI_CPU_AVX512, NULL) == TUTTI_OK);
    require(tutti_plan_open(&plan, space.n, NULL) == TUTTI_OK);
    require(tutti_codec_declare(&c, plan, specs[data[0] % TUTTI_LENGTH(specs)], "codec", &space, NULL) == TUTTI_OK);
    require(tutti_plan_carry_out(plan, NULL, NULL) == TUTTI_OK);
    tutti_codec_open(c);
    exchange.codec = c;
    exchange.space = space;
    open_units(&job, c, (data[4] & 2) != 0);
    if (data[4] & 1) {
        bytes = write_all(&job, data + 5, size - 5, &in);
        for (size_t i = 5; i + 3 <= size && bytes > 0; i += 3)
            in[(data[i] | (size_t)data[i + 1] << 8) % bytes] ^= data[i + 2];
    } else {
        bytes = size - 5;
        in = malloc(bytes + (bytes == 0));
        require(in != NULL);
        memcpy(in, data + 5, bytes);
    }
    read_all(&job, in, bytes);
    free(in);
    tutti_free(slot.scratch.at);
    tutti_codec_close(c);
    tutti_plan_close(plan);
    tutti_device_close(space.device);
    return 0;
}
