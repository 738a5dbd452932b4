/* What codecs put on the wire, byte by byte.
   Goal: a message means the same to every machine and every version: numbers in little-endian
   order, sixteen bits among them, codes from the lowest bit of a byte on, draws of Philox. Encoder
   and decoder that are wrong in the same way agree with each other, and with this list they do not.
   Method: one vector and the bytes of each codec's message of it, written down. Those of codecs
   that draw hold the draws too: worker 1, step 3, seed 42.
   A change of these bytes is a change of the format: workers of two versions
   would not understand each other. */
#include "subject.h"
#include "base/machine.h"
#include "codec/codec.h"

enum { ROWS = 4, COLS = 6, N = ROWS * COLS, BYTES_MOST = 200 };
static const float vector[N] = { 0.5f, -1.25f, 3, 0, -0.0625f, 0.7f, -6.5f, 1.1f, 0.03f, -0.3f, 2, -2.2f, 0, 0.9f,
        -1.7f, 4.4f, 0.013f, -0.77f, 1.3f, -0.2f, 0.4f, -3.3f, 0.11f, 5.1f };

static const struct { const char *spec, *bytes; } golden[] = {
    { "fp32",
      "0000003f0000a0bf0000404000000000000080bd3333333f0000d0c0cdcc8c3f8fc2f53c9a9999be00000040cdcc0cc000000000666666"
      "3f9a99d9bfcdcc8c40f4fd543cb81e45bf6666a63fcdcc4cbecdcccc3e333353c0ae47e13d3333a340" },
    { "fp16", "003800bd0042000000ac9a3980c6663cae27cdb4004066c00000333bcdbe6644a82229ba333d66b266369ac20a2f1a45" },
    { "bf16", "003fa0bf4040000080bd333fd0c08d3ff63c9abe00400dc00000663fdabf8d40553c45bfa63f4dbecd3e53c0e13da340" },
    { "trunc16", "003fa0bf4040000080bd333fd0c08c3ff53c99be00400cc00000663fd9bf8c40543c45bfa63f4cbecc3e53c0e13da340" },
    { "int8(bucket=16)", "0000d0403333a3400a983b00810eff15018627ab0012a156009320850ad2037f" },
    { "int8(bucket=0)", "0000d0400a983b00810eff15018627ab0012a156008f198408c00264" },
    { "minmax8", "0000d0c03333a3409a73d18f8e9e00a79088bb5f8fa36af08f7eab8a984691ff" },
    { "qsgd(bits=2,bucket=16)", "0000d0403333a3401070d040004c" },
    { "qsgd(bits=3,bucket=16,norm=l2)", "9f0715418ed9c840408038400a34408062" },
    { "qsgd(bits=4,bucket=16)", "0000d0403333a3409103102f00b3105a9002c070" },
    { "qsgd(bits=8,bucket=16)", "0000d0403333a3400a983b00810eff16018627ab0012a156019320850ad2037f" },
    { "qsgd(levels=5,bucket=16)", "0000d0403333a3409003101d00a210390001b050" },
    { "qsgd(bits=3,bucket=16,tail=dense)",
      "0000d04080803c408a54f4fd543cb81e45bf6666a63fcdcc4cbecdcccc3e333353c0ae47e13d3333a340" },
    { "qsgd(bits=4,bucket=16,coding=huffman)", "0000d0403333a34031445050405505509926bfe82b6799e2d9" },
    { "qsgd(bits=4,bucket=16,coding=elias)", "0000d0c07db6f364de72c5cecc8c02559b8d00" },
    { "qsgd(bits=4,bucket=16,coding=omega)", "0000d0c0101b7664e682a13133330a2487a603" },
    { "nuqsgd(bits=3,bucket=16)", "9f0715418ed9c84080803c408a54400063" },
    { "nuqsgd(bits=3,bucket=16,zero_level=off)", "9f0715418ed9c8409c47865b35ce5cb7ec" },
    { "nuqsgd(bits=4,bucket=16,multiplier=0.7)", "9f0715418ed9c840598c9891884b98d5687b28f8" },
    { "nuqsgd(bits=4,bucket=16,coding=elias)", "9f0715410996ab0422d3293a43738ed9c8408aa594e04300" },
    { "e3m0", "00000041c306394fa0d5406dc0a4e361" },
    { "e3m0(bucket=16)", "0000004100000041c306394fa0d5406dc0a4e361" },
    { "alq(bits=3,bucket=16)", "9f0715418ed9c8409c47865b35ce5cb7ec" },
    { "alq(bits=3,bucket=16,zero_level=on,coding=huffman)", "9f0715418ed9c840303422437460040f3b6a090f" },
    { "amq(bits=3,bucket=16)", "9f0715418ed9c8409c47865b35ce5cb7ec" },
    { "sign", "671fbf3f524a2a" },
    { "sign(block=16,scale=l2)", "9f071540b4050e40524a2a" },
    { "onebit", "2bbb1240524a2a" },
    { "onebit-col(min_rows=1)",
      "9999193f0000d0c00000803f9a9939bfbf58923f9a99d9bfcdcc0c406666e6bfa529353f000080bd999939407b14bebf524a2a" },
    { "sign-vote", "524a2a00" },
    { "topk(ratio=0.2)", "02000000060000000f0000001500000017000000000040400000d0c0cdcc8c40333353c03333a340" },
    { "topk(ratio=0.2,value_dtype=fp16)", "02000000060000000f0000001500000017000000004280c666449ac21a45" },
    { "topk(ratio=0.2,value_dtype=bf16)", "02000000060000000f00000015000000170000004040d0c08d4053c0a340" },
    { "topk(ratio=0.2,index_code=delta)", "26182a000040400000d0c0cdcc8c40333353c03333a340" },
    { "topk(ratio=0.2,index_code=delta,value_dtype=bf16)", "26182a4040d0c08d4053c0a340" },
    { "topk(ratio=0.2,index_code=bitmap,value_dtype=fp16)", "4480a0004280c666449ac21a45" },
    { "dct(topk=6)", "597f89c033339b40fb366c4081ae6f4049654a409c124840c8c1582d" },
    { "dct(topk=3,chunk=4)", "354d49c0316784404cad494095993b4052f1b6c0ccf73e40844aa7" },
    { "dct(topk=2,chunk=4,value_dtype=fp16)", "23444d42b8c5f841a8a7" },
    { "chunk-topk(topk=4)", "0000d0c0cdcc8c40333353c03333a340e4e6d50b" },
    { "chunk-topk(topk=3,chunk=4)", "000000000000d0c0abaa2abf00009840e60e3268b9" },
    { "chunk-topk", "0000d0c09a9919c0ac1c1e3e00006840ba8a7adaaae6" },
    { "chunk-topk(topk=2,chunk=4,value_dtype=fp16)", "004280c666441a4532b6" },
    { "chunk-topk(topk=2,chunk=3,value_dtype=fp32)",
      "000040400000d0c000000040cdcc0cc09a99d9bf6666a63fcdcc8c403333a3401aaba1" },
    { "threshold(value=3)", "02000000060000000f0000001500000017000000000040400000d0c0cdcc8c40333353c03333a340" },
    { "threshold(value=3,value_dtype=bf16)", "02000000060000000f00000015000000170000004040d0c08d4053c0a340" },
    { "threshold(value=3,index_code=delta,value_dtype=fp16)", "0500000026182a004280c666449ac21a45" },
    { "randomk(ratio=0.2)", "0000003f0000d0c09a9999becdcc8c40cdcc4cbe" },
    { "randomk(ratio=0.2,block=3)", "0000003f0000a0bf000040406666a63fcdcc4cbecdcccc3e" },
    { "wangni(sparsity=0.4)",
      "0500000005000000ec513c4002000000060000000f0000001500000017000000000040400000d0c0cdcc8c40333353c03333a340010000"
      "800a0000000d0000000e00008011000080" },
    { "wangni(solver=closed,epsilon=0.5)",
      "02000000060000006db99f4006000000170000000000d0c03333a340010000800d0000000e0000800f0000001100008015000080" },
    { "powersgd(rank=1)", "c84456c02e364c414a0e85401b9e47c13b3dadc04213a83f5a3c95bfa4233f40f4c4a73f890da7c0" },
};

/* All that is sent: a message, or the numbers of successive rounds, in which this worker's
   numbers stand for the mean. */
static size_t sent_of(const char *spec, tutti_cpu cpu, uint8_t *out)
{
    subject *s = subject_open_as(spec, ROWS, COLS, 1, cpu);
    const tutti_view v = subject_view(s, 3);
    size_t bytes = 0;

    if (s->codec->ops->rounds == 0) {
        uint8_t *m = subject_encode(s, &v, vector, &bytes);
        assert_true(bytes <= BYTES_MOST);
        memcpy(out, m, bytes);
        free(m);
    } else {
        uint64_t room[SUBJECT_ROUNDS][BYTES_MOST / 8];
        void *wire[SUBJECT_ROUNDS];
        for (int round = 0; round < SUBJECT_ROUNDS; round++)
            wire[round] = room[round];
        for (int round = 0; round < s->codec->ops->rounds; round++) {
            const size_t one = s->codec->ops->width(s->codec, &v,
                    round) * tutti_dtype_bytes(tutti_codec_number(s->codec, &v));
            assert_true(bytes + one <= BYTES_MOST);
            s->codec->ops->fold(s->codec, &v, round, vector, s->scratch, wire);
            memcpy(out + bytes, wire[round], one);
            bytes += one;
        }
    }
    subject_close(s);
    return bytes;
}

static void encoded_messages_match_the_golden_bytes(void **state)
{
    int wrong = 0;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(golden); k++)
        for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu += (int)tutti_cpu_best() > 0 ? (int)tutti_cpu_best() : 1) {
            uint8_t out[BYTES_MOST];
            char text[2 * BYTES_MOST + 1] = "";
            const size_t bytes = sent_of(golden[k].spec, (tutti_cpu)cpu, out);
            for (size_t i = 0; i < bytes; i++)
                snprintf(text + 2 * i, 3, "%02x", out[i]);
            if (strcmp(text, golden[k].bytes) != 0) {
                print_error("%s at level %d is\n    %s, and it was\n    %s\n", golden[k].spec, cpu, text,
                        golden[k].bytes);
                wrong++;
            }
        }
    assert_int_equal(wrong, 0);
}

/* The recorded message is decoded to the same numbers as the message encoded now: a decoder reads
   what an encoder of another machine wrote. */
static void golden_messages_are_decoded(void **state)
{
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(golden); k++) {
        subject *s = subject_open_as(golden[k].spec, ROWS, COLS, 0, TUTTI_CPU_SCALAR);
        const tutti_view v = subject_view(s, 3);
        const size_t bytes = strlen(golden[k].bytes) / 2;
        uint8_t in[BYTES_MOST];
        float y[N] = { 0 };
        double loss, all;
        for (size_t i = 0; i < bytes; i++) {
            unsigned byte;
            assert_int_equal(sscanf(golden[k].bytes + 2 * i, "%2x", &byte), 1);
            in[i] = (uint8_t)byte;
        }
        if (s->codec->ops->rounds == 0) {
            const bool list = strncmp(golden[k].spec, "topk", 4) == 0 || strncmp(golden[k].spec, "threshold", 9) == 0;
            const double exact = strstr(golden[k].spec, "=bf16") != NULL   ? 0x1p-8
                                 : strstr(golden[k].spec, "=fp16") != NULL ? 0x1p-11
                                                                           : 0; /* what a value may lose */
            assert_int_equal(s->codec->ops->decode_add(s->codec, &v, in, bytes, 1, y, NULL), TUTTI_OK);
            for (size_t i = 0; i < N && list; i++)
                if (fabs((double)y[i] - (fabsf(vector[i]) >= 3 ? vector[i] : 0)) > exact * fabs((double)vector[i]))
                    fail_msg("%s: %g is decoded to %g", golden[k].spec, (double)vector[i], (double)y[i]);
            loss = subject_loss(N, vector, y), all = subject_norm2(N, vector);
            if ((tutti_codec_traits(s->codec) & TUTTI_CODEC_CONTRACTIVE) != 0 && !(loss < 0.7 * all))
                fail_msg("%s: %g of %g is lost", golden[k].spec, loss, all);
        }
        subject_close(s);
    }
}

/* No codec of its own message is left out. */
static void every_codec_has_a_golden_message(void **state)
{
    (void)state;

    for (size_t k = 0; tutti_codecs[k] != NULL; k++) {
        const size_t length = strlen(tutti_codecs[k]->name);
        bool listed = tutti_codecs[k]->choose != NULL;
        for (size_t i = 0; i < TUTTI_LENGTH(golden); i++)
            listed = listed || (strncmp(golden[i].spec, tutti_codecs[k]->name, length) == 0 &&
                    (golden[i].spec[length] == '\0' || golden[i].spec[length] == '('));
        if (!listed)
            fail_msg("codec '%s' has no message in this file's list", tutti_codecs[k]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_messages_match_the_golden_bytes),
        cmocka_unit_test(golden_messages_are_decoded),
        cmocka_unit_test(every_codec_has_a_golden_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
