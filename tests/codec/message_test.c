/* What codecs of the message form have in common (each_test.c: what they have not). Goal: sizes
   on the wire and expectations are the published ones; a message from a peer is refused with a
   sentence or decoded, and never changes anything that it does not name; all processors write the
   same bytes. Method: one list of specs. */
#include "subject.h"
#include "base/machine.h"
#include "codec/codec.h"
#include <float.h>
#include "codec/codec_internal.h"

static const char *const specs[] = {
    "int8",
    "int8(bucket=20)",
    "int8(bucket=0)",
    "minmax8",
    "minmax8(chunk=300)",
    "qsgd",
    "qsgd(bits=2,bucket=64,norm=l2)",
    "qsgd(bits=3,bucket=16)",
    "qsgd(bits=8,bucket=1024)",
    "qsgd(bits=4,coding=elias)",
    "qsgd(bits=2,bucket=2048,norm=l2,coding=elias)",
    "qsgd(bits=5,bucket=128,norm=l2,coding=omega)",
    "nuqsgd",
    "nuqsgd(bits=3,bucket=64)",
    "nuqsgd(bits=8,norm=max)",
    "nuqsgd(bits=5,bucket=128)",
    "sign",
    "sign(block=100)",
    "sign(scale=l2,block=64)",
    "onebit",
    "onebit-col",
    "sign-vote",
    "topk",
    "topk(ratio=0.3)",
    "topk(ratio=1)",
    "topk(ratio=0.05,value_dtype=fp16,index_code=delta)",
    "topk(ratio=0.2,index_code=bitmap,value_dtype=bf16)",
    "topk(ratio=0.03,index_code=auto)",
    "topk(ratio=1,index_code=delta)",
    "dct",
    "dct(topk=3,chunk=7,value_dtype=fp16)",
    "dct(topk=9,chunk=128,mean=senders,value_dtype=bf16)",
    "e3m0",
    "e3m0(bucket=32)",
    "chunk-topk",
    "chunk-topk(topk=3,chunk=7)",
    "chunk-topk(topk=9,chunk=128,mean=senders,value_dtype=fp16)",
    "threshold(value=0.5)",
    "threshold(value=1e-20)",
    "threshold(value=0.7,index_code=delta)",
    "threshold(value=1.5,index_code=auto,value_dtype=fp16)",
    "threshold(value=0.1,index_code=bitmap)",
    "threshold(value=0.5,value_dtype=bf16)",
    "wangni",
    "wangni(sparsity=0.3)",
    "wangni(solver=closed,epsilon=0.5)",
    "wangni(solver=closed,epsilon=0)",
    "qsgd(coding=huffman)",
    "nuqsgd(bits=8,bucket=64,coding=huffman)",
    "qsgd(bits=2,bucket=64,norm=l2,coding=huffman)",
    "alq(bucket=128)",
    "alq(bits=5,bucket=64,norm=max)",
    "alq(bits=4,bucket=512,zero_level=on,coding=huffman)",
    "amq(bits=2,bucket=32)",
    "amq(bits=8,bucket=256)",
    "qsgd(levels=5,bucket=64)",
    "qsgd(levels=100,bucket=128,norm=l2)",
    "qsgd(levels=2,bucket=64,coding=elias)",
    "qsgd(levels=20,coding=huffman)",
    "nuqsgd(bucket=64,tail=dense)",
    "qsgd(bits=3,bucket=64,coding=elias,tail=dense)",
    "nuqsgd(coding=elias)",
    "nuqsgd(bits=3,bucket=64,coding=omega)",
    "nuqsgd(bits=5,bucket=128,zero_level=off,coding=elias,tail=dense)",
    "alq(bucket=64,coding=huffman,tail=dense)",
};
static const char *const unbiased[] = {
    "qsgd(bits=2,bucket=64)",
    "qsgd(bits=4,bucket=64,norm=l2)",
    "qsgd(bits=8,bucket=64)",
    "qsgd(bits=3,bucket=32,coding=elias)",
    "nuqsgd(bits=3,bucket=64)",
    "nuqsgd(bits=4,bucket=32,norm=max)",
    "nuqsgd(bits=8,bucket=64)",
    "wangni(sparsity=0.1)",
    "wangni(solver=closed,epsilon=2)",
    "alq(bucket=64)",
    "alq(bits=4,bucket=64,zero_level=on)",
    "amq(bits=5,bucket=32,norm=max)",
    "nuqsgd(bits=4,bucket=64,coding=huffman)",
    "nuqsgd(bits=4,bucket=64,coding=elias)",
    "qsgd(levels=1,bucket=64)",
    "qsgd(levels=6,bucket=64,norm=l2)",
    "qsgd(levels=100,bucket=64)",
    "nuqsgd(bits=3,bucket=64,tail=dense)",
};

static size_t quantised(size_t n, size_t bits, size_t bucket)
{
    return (n * bits + 7) / 8 + 4 * ((n + bucket - 1) / bucket);
}

/* The published formulas, to the byte. */
static void message_sizes_match_the_papers_formulas(void **state)
{
    float x[SUBJECT_LONGEST];
    uint64_t seed = 1;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++) {
        const size_t n = subject_lengths[at];
        const struct { const char *spec; size_t bytes;
        } rows[] = {
            { "int8", quantised(n, 8, 2048) },
            { "int8(bucket=20)", quantised(n, 8, 24) },
            { "int8(bucket=0)", n + (n > 0 ? 4 : 0) },
            { "minmax8", n + (n > 0 ? 8 : 0) },
            { "minmax8(chunk=300)", n + 8 * ((n + 299) / 300) },
            { "qsgd", quantised(n, 4, 512) },
            { "qsgd(bits=3,bucket=16)", quantised(n, 3, 16) },
            { "nuqsgd(bits=5,bucket=128)", quantised(n, 5, 128) },
            { "e3m0(bucket=64)", quantised(n, 4, 64) },
            { "sign", (n + 7) / 8 + (n > 0 ? 4 : 0) },
            { "sign-vote", n > 0 ? n / 8 + 1 : 0 },
            { "onebit-col", (n + 7) / 8 + (n > 0 ? 8 : 0) },
            { "onebit-col(min_rows=1)", (n + 7) / 8 + (n > 0 ? 8 : 0) },
            { "onebit(block=100)", (n + 7) / 8 + 4 * ((n + 103) / 104) },
            { "topk(ratio=0.01)", 8 * share(n, 0.01) },
            { "topk(ratio=0.07)", 8 * share(n, 0.07) },
            { "topk(ratio=1)", 8 * n },
            { "topk(ratio=0.07,value_dtype=fp16)", 6 * share(n, 0.07) },
            { "topk(ratio=0.07,index_code=bitmap)", 4 * share(n, 0.07) + (n + 7) / 8 },
            { "topk(ratio=0.01,index_code=auto,value_dtype=bf16)",
              2 * share(n, 0.01) + (4 * share(n, 0.01) <= (n + 7) / 8 ? 4 * share(n, 0.01) : (n + 7) / 8) },
            { "topk(ratio=1,index_code=auto)", 4 * n + (n + 7) / 8 },
            { "qsgd(levels=1)", quantised(n, 2, 512) },
            { "qsgd(levels=7)", quantised(n, 4, 512) },
            { "qsgd(levels=8)", quantised(n, 5, 512) },
            { "qsgd(levels=127,bucket=64)", quantised(n, 8, 64) },
            { "nuqsgd(bucket=128,tail=dense)", quantised(n / 128 * 128, 4, 128) + 4 * (n % 128) },
        };
        subject_fill(n, x, 0, &seed);
        for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
            subject *s = subject_open(rows[r].spec, n);
            const tutti_view v = subject_view(s, 3);
            size_t bytes;
            free(subject_encode(s, &v, x, &bytes));
            if (bytes != rows[r].bytes || s->codec->ops->bound(s->codec, &v) != bytes)
                fail_msg("%s of %zu: %zu bytes, bound %zu, formula %zu", rows[r].spec, n, bytes,
                         s->codec->ops->bound(s->codec, &v), rows[r].bytes);
            subject_close(s);
        }
    }
}

static void all_processors_write_and_read_the_same_bits(void **state)
{
    float x[SUBJECT_LONGEST], y[2][SUBJECT_LONGEST];
    uint64_t seed = 2;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++) {
            const size_t n = subject_lengths[at];
            uint8_t *first = NULL;
            size_t first_bytes = 0;
            subject_fill(n, x, (int)(at % 5), &seed);
            for (int level = 0; level <= (int)tutti_cpu_best(); level++) {
                subject *s = subject_open_as(specs[k], 1, n, 1, (tutti_cpu)level);
                const tutti_view v = subject_view(s, at);
                size_t bytes;
                uint8_t *m = subject_encode(s, &v, x, &bytes);
                subject_decode(s, &v, m, bytes, y[level > 0]);
                if (level == 0)
                    first = m, first_bytes = bytes;
                else {
                    if (bytes != first_bytes || memcmp(m, first, bytes) != 0 || memcmp(y[0], y[1], n * sizeof *x) != 0)
                        fail_msg("%s of %zu differs at level %d", specs[k], n, level);
                    free(m);
                }
                subject_close(s);
            }
            free(first);
        }
}

/* y + a * decoded, each rounded by itself. */
static void decode_add_adds_a_scaled_result(void **state)
{
    float x[SUBJECT_LONGEST], d[SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 3;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (int round = 0; round < 6; round++) {
            const size_t n = subject_lengths[(size_t)round * 3 + 2];
            const float a = (const float[]){ -1, 0.25f, 0.3f }[round % 3];
            subject *s = subject_open(specs[k], n);
            const tutti_view v = subject_view(s, 5);
            size_t bytes;
            uint8_t *m;
            subject_fill(n, x, round % 2, &seed);
            m = subject_encode(s, &v, x, &bytes);
            subject_decode(s, &v, m, bytes, d);
            subject_fill(n, y, 0, &seed);
            for (size_t i = 0; i < n; i++) {
                volatile float product = a * d[i], sum = y[i] + product;
                d[i] = sum;
            }
            assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, bytes, a, y, NULL), TUTTI_OK);
            for (size_t i = 0; i < n; i++)
                assert_true(d[i] == y[i]);
            free(m);
            subject_close(s);
        }
}

/* A refusal has a sentence and leaves y alone; whatever is accepted is harmless. */
static void require_refusal_or_harmless(subject *s, const tutti_view *v, const uint8_t *in, size_t bytes, float *y,
                                        bool must_refuse)
{
    tutti_error err = { 0 };
    tutti_status status;

    for (size_t i = 0; i < v->count; i++)
        y[i] = 1.5f;
    status = s->codec->ops->decode_add(s->codec, v, in, bytes, 1, y, &err);
    if (status == TUTTI_OK) {
        if (must_refuse)
            fail_msg("%s took a message of %zu bytes for %zu elements", s->codec->ops->name, bytes, v->count);
        return;
    }
    assert_int_equal(status, TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, s->codec->ops->name));
    for (size_t i = 0; i < v->count; i++)
        assert_true(y[i] == 1.5f);
}

static void damaged_messages_are_refused_or_harmless(void **state)
{
    static const size_t lengths[] = { 0, 1, 9, 130 };
    float x[130], y[130];
    uint64_t seed = 4;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            subject *s = subject_open(specs[k], lengths[at]);
            const bool says_its_size = strncmp(specs[k], "threshold", 9) != 0 || strstr(specs[k], "index_code") != NULL;
            const size_t each = strstr(specs[k], "bf16") != NULL ? 6 : 8; /* else cut between two elements it is one */
            const tutti_view v = subject_view(s, 7);
            size_t bytes;
            uint8_t *m, *bad;
            subject_fill(lengths[at], x, 0, &seed);
            m = subject_encode(s, &v, x, &bytes);
            for (size_t cut = 0; cut < bytes; cut++) {
                bad = malloc(cut + (cut == 0));
                memcpy(bad, m, cut);
                require_refusal_or_harmless(s, &v, bad, cut, y, says_its_size || cut % each != 0);
                free(bad);
            }
            bad = calloc(1, bytes + 9);
            if (bytes > 0)
                memcpy(bad, m, bytes);
            require_refusal_or_harmless(s, &v, bad, bytes + 1, y, true);
            require_refusal_or_harmless(s, &v, bad, bytes + 9, y, true);
            for (size_t bit = 0; bit < 8 * bytes; bit++) { /* each alone */
                memcpy(bad, m, bytes);
                bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
                require_refusal_or_harmless(s, &v, bad, bytes, y, false);
            }
            for (int flip = 0; flip < 200 && bytes > 0; flip++) {
                memcpy(bad, m, bytes);
                for (int j = 0; j <= 1 + flip % 4; j++)
                    bad[subject_random(&seed) % bytes] ^= (uint8_t)(1u << subject_random(&seed) % 8);
                require_refusal_or_harmless(s, &v, bad, bytes, y, false);
                for (size_t j = 0; j < bytes && flip % 10 == 0; j++)
                    bad[j] = (uint8_t)subject_random(&seed);
                require_refusal_or_harmless(s, &v, bad, bytes, y, false);
            }
            free(bad);
            free(m);
            subject_close(s);
        }
}

/* What another codec, or the same one with other options, has made of as many elements: refused, or
   numbers; in memory of exactly its size. */
static void foreign_messages_are_refused_or_harmless(void **state)
{
    static const size_t lengths[] = { 1, 8, 33, 130 };
    float x[130], y[130];
    uint64_t seed = 41;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
        subject *s[TUTTI_LENGTH(specs)];
        subject_fill(lengths[at], x, 0, &seed);
        for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
            s[k] = subject_open(specs[k], lengths[at]);
        for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
            const tutti_view v = subject_view(s[k], 7);
            size_t bytes;
            uint8_t *m = subject_encode(s[k], &v, x, &bytes);
            for (size_t other = 0; other < TUTTI_LENGTH(specs); other++) {
                const bool fixed = (tutti_codec_traits(s[other]->codec) & TUTTI_CODEC_FIXED) != 0;
                require_refusal_or_harmless(s[other], &v, m, bytes, y,
                                            fixed && bytes != s[other]->codec->ops->bound(s[other]->codec, &v));
            }
            free(m);
        }
        for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
            subject_close(s[k]);
    }
}

/* A message of one worker to another, and likewise one of numbers to be summed: refused unless it
   has exactly its length, and no read goes beyond it. */
static void damaged_messages_from_one_worker_to_another_are_refused_or_harmless(void **state)
{
    static const char *const all[] = {
        "fp32", "fp16", "bf16", "trunc16", "randomk(ratio=0.1)", "randomk(ratio=0.3,block=7,unbiased=on)",
        "large(topk(ratio=0.1),min=100,small=fp16)", "large(qsgd(coding=elias),min=5,small=sign)",
    };
    static const size_t lengths[] = { 0, 1, 9, 130 };
    float x[130], y[130];
    uint64_t seed = 42;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at];
            subject *s = subject_open(all[k], n);
            const tutti_view v = subject_view(s, 7);
            void *scratch = aligned_alloc(64, (tutti_codec_point_scratch(s->codec, &v) + 64) / 64 * 64);
            uint8_t *m = malloc(tutti_codec_point_bound(s->codec, &v) + 1), *bad;
            size_t bytes;
            subject_fill(n, x, 0, &seed);
            bytes = tutti_codec_pack(s->codec, &v, x, scratch, m);
            for (size_t length = 0; length <= bytes + 1; length++)
                /* cut; with each bit turned over; longer */
                for (size_t bit = 0; bit < (length == bytes ? 8 * bytes + 1 : 1); bit++) {
                    tutti_error err = { 0 };
                    tutti_status status;
                    bad = calloc(1, length + (length == 0));
                    memcpy(bad, m, length < bytes ? length : bytes);
                    if (length == bytes && bit < 8 * bytes)
                        bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
                    for (size_t i = 0; i < n; i++)
                        y[i] = 1.5f;
                    status = tutti_codec_unpack_add(s->codec, &v, bad, length, 1, y, scratch, &err);
                    assert_true(status == TUTTI_OK ? length == bytes
                                                   : status == TUTTI_ERR_CORRUPT && err.text[0] != '\0');
                    for (size_t i = 0; i < n && status != TUTTI_OK; i++)
                        assert_true(y[i] == 1.5f);
                    free(bad);
                }
            free(m), free(scratch);
            subject_close(s);
        }
}

/* Bytes of variable messages: the codes that the fixed width gives with the same draws, each as
   long as its prefix code. Elias: the shorter form of each bucket; Huffman: the table, and no
   more than fixed width. */
static void variable_message_sizes_match_their_code_lengths(void **state)
{
    static const char *const names[] = { "elias", "omega", "huffman" };
    float x[SUBJECT_LONGEST];
    uint64_t seed = 43;
    (void)state;

    for (int bits = 2; bits <= 8; bits += 3)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++)
            for (int coding = 0; coding < 3; coding++) {
                enum { BUCKET = 128 };
                const size_t n = subject_lengths[at], buckets = (n + BUCKET - 1) / BUCKET;
                const uint32_t half = 1u << (bits - 1);
                uint32_t count[256] = { 0 };
                uint8_t length[256], *fixed;
                size_t bytes, wanted = 0, sum = 0, at_most = 0;
                char spec[80];
                subject *s;
                tutti_view v;
                subject_fill(n, x, (int)(at % 5), &seed);
                for (size_t i = 0; i < n; i++)
                    x[i] = at % 3 == 0 && i / BUCKET % 2 == 0 ? 0 : x[i]; /* whole buckets of zeros */
                snprintf(spec, sizeof spec, "qsgd(bits=%d,bucket=%d,norm=l2)", bits, BUCKET);
                s = subject_open(spec, n), v = subject_view(s, 1);
                fixed = subject_encode(s, &v, x, &bytes);
                for (size_t b = 0; b < buckets; b++) {
                    const size_t end = n - b * BUCKET < BUCKET ? n : (b + 1) * BUCKET;
                    size_t dense = 0, sparse = 0, last = b * BUCKET - 1;
                    if (!(tutti_codec_get_f32(fixed + 4 * b) > 0)) {
                        wanted += 32;
                        continue;
                    }
                    for (size_t i = b * BUCKET; i < end; i++) {
                        uint32_t code = 0, level;
                        for (int k = 0; k < bits; k++)
                            code |= (uint32_t)(fixed[4 * buckets + (i * (size_t)bits + (size_t)k) / 8] >>
                                                   (i * (size_t)bits + (size_t)k) % 8 &
                                               1)
                                    << k;
                        count[code]++;
                        level = code % half;
                        dense += (size_t)tutti_codec_elias_length(coding == 1 ? TUTTI_CODEC_OMEGA : TUTTI_CODEC_GAMMA,
                                                                  level + 1) +
                                 (level > 0);
                        if (level > 0) {
                            sparse += (size_t)tutti_codec_elias_length(
                                          coding == 1 ? TUTTI_CODEC_OMEGA : TUTTI_CODEC_GAMMA, (uint32_t)(i - last)) +
                                      1 +
                                      (size_t)tutti_codec_elias_length(
                                          coding == 1 ? TUTTI_CODEC_OMEGA : TUTTI_CODEC_GAMMA, level);
                            last = i;
                        }
                    }
                    sparse += (size_t)tutti_codec_elias_length(coding == 1 ? TUTTI_CODEC_OMEGA : TUTTI_CODEC_GAMMA,
                                                               (uint32_t)(end - last));
                    wanted += 32 + (dense < sparse ? dense : sparse);
                }
                if (coding == 2) {
                    tutti_codec_huffman_lengths(2 * (int)half, count, length);
                    for (uint32_t k = 0; k < 2 * half; k++)
                        sum += (size_t)count[k] * length[k], at_most += (size_t)count[k] * (size_t)bits;
                    wanted = 8 * (n == 0 ? 0 : 4 * buckets + half) + (sum < at_most ? sum : at_most);
                }
                free(fixed), subject_close(s);
                snprintf(spec, sizeof spec, "qsgd(bits=%d,bucket=%d,norm=l2,coding=%s)", bits, BUCKET, names[coding]);
                s = subject_open(spec, n), v = subject_view(s, 1);
                free(subject_encode(s, &v, x, &bytes));
                if (bytes != (wanted + 7) / 8)
                    fail_msg("%s of %zu: %zu bytes, the codes have %zu bits", spec, n, bytes, wanted);
                subject_close(s);
            }
}

static void decode_errors_name_the_fault_and_the_remedy(void **state)
{
    float y[20] = { 0 };
    uint8_t m[8 * 16] = { 0 };
    tutti_error err;
    subject *s = subject_open("topk(ratio=0.2)", 10);
    tutti_view v = subject_view(s, 0);
    (void)state;

    s->codec->ops->decode_add(s->codec, &v, m, 15, 1, y, &err);
    assert_string_equal(err.text, "codec 'topk': a message of 15 bytes for the 10 elements from 0 on should have 16; "
                                  "do both workers run the same codec with the same options?");
    m[0] = 7, m[4] = 7;
    s->codec->ops->decode_add(s->codec, &v, m, 16, 1, y, &err);
    assert_string_equal(err.text, "codec 'topk': index 2 of 2 kept elements is 7, and it should be from 8 to 9; the "
                                  "message was damaged or is another codec's");
    subject_close(s);

    s = subject_open("qsgd", 10);
    v = subject_view(s, 0);
    tutti_codec_put_f32(m, -1);
    s->codec->ops->decode_add(s->codec, &v, m, 9, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': the scale of bucket 1 of 1 is -1, and scales are 0 or more; the "
                                  "message was damaged or is another codec's");
    subject_close(s);

    s = subject_open("qsgd(levels=5)", 3);
    v = subject_view(s, 0);
    memset(m, 0, sizeof m);
    tutti_codec_put_f32(m, 1);
    m[4] = 0xd5, m[5] = 6; /* 5, -5, 6 */
    s->codec->ops->decode_add(s->codec, &v, m, 6, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': element 3 of 3 has level 6, and the greatest is 5; the message was "
                                  "damaged or is another codec's");
    subject_close(s);

    s = subject_open("qsgd(levels=2,coding=elias)", 3);
    v = subject_view(s, 0);
    memset(m, 0, sizeof m);
    tutti_codec_put_f32(m, 1);
    m[4] = 4; /* 001: 4 or more, level 3 at least */
    s->codec->ops->decode_add(s->codec, &v, m, 8, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': element 1 of 3 in a message of 8 bytes: its level is beyond the "
                                  "greatest; the message was damaged or is another codec's");
    subject_close(s);

    s = subject_open("qsgd(levels=2,coding=huffman)", 16);
    v = subject_view(s, 0);
    memset(m, 0, sizeof m);
    tutti_codec_put_f32(m, 1);
    m[4] = 0x01, m[5] = 0x10; /* codes 0 and 3 */
    s->codec->ops->decode_add(s->codec, &v, m, 10, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': code 3 has a word, and its level is beyond the greatest, 2; the "
                                  "message was damaged or is another codec's");
    subject_close(s);

    s = subject_open("nuqsgd(bits=4,bucket=16,tail=dense)", 20);
    v = subject_view(s, 0);
    s->codec->ops->decode_add(s->codec, &v, m, 15, 1, y, &err);
    assert_string_equal(err.text, "codec 'nuqsgd': a message of 15 bytes for the 20 elements from 0 on should have 28; "
                                  "do both workers run the same codec with the same options?");
    subject_close(s);

    s = subject_open("qsgd(bits=2,coding=huffman)", 16);
    v = subject_view(s, 0);
    memset(m, 0, sizeof m);
    tutti_codec_put_f32(m, 1);
    m[4] = 0x11, m[5] = 0; /* two words of one bit */
    s->codec->ops->decode_add(s->codec, &v, m, 7, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': element 9 of 16 in a message of 7 bytes: the message ends before it; "
                                  "the message was damaged or is another codec's");
    s->codec->ops->decode_add(s->codec, &v, m, 9, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': element 16 of 16 in a message of 9 bytes: the message continues "
                                  "after the last one; the message was damaged or is another codec's");
    m[4] = 0x21;
    s->codec->ops->decode_add(s->codec, &v, m, 8, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': the lengths of its words are those of no prefix code; the message was "
                                  "damaged or is another codec's");
    m[4] = 0x1d;
    s->codec->ops->decode_add(s->codec, &v, m, 8, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': the word of code 0 has 13 bits, and words have 12 at most; the "
                                  "message was damaged or is another codec's");
    s->codec->ops->decode_add(s->codec, &v, m, 5, 1, y, &err);
    assert_string_equal(err.text, "codec 'qsgd': a message of 5 bytes for the 16 elements from 0 on should have 6 or "
                                  "more; do both workers run the same codec with the same options?");
    subject_close(s);

    s = subject_open("minmax8", 4);
    v = subject_view(s, 0);
    tutti_codec_put_f32(m, 2), tutti_codec_put_f32(m + 4, 1);
    s->codec->ops->decode_add(s->codec, &v, m, 12, 1, y, &err);
    assert_string_equal(err.text, "codec 'minmax8': chunk 1 of 1 goes from 2 to 1, which is no range; the message was "
                                  "damaged or is another codec's");
    subject_close(s);
}

/* codec.h, third paragraph. */
static void nonfinite_values_are_visible_after_decoding(void **state)
{
    static const char *const whole[] = {
        "int8", "qsgd",          "qsgd(norm=l2)",       "qsgd(coding=elias)", "nuqsgd",
        "sign", "onebit",        "onebit-col",          "sign-vote",          "minmax8",
        "alq",  "amq(norm=max)", "qsgd(coding=huffman)"
    };
    float x[600], y[600];
    uint64_t seed = 6;
    (void)state;

    for (int bad = 0; bad < 3; bad++) {
        const float it = (const float[]){ NAN, INFINITY, -INFINITY }[bad];
        for (size_t k = 0; k < TUTTI_LENGTH(whole); k++) {
            subject *s = subject_open(whole[k], 600);
            const size_t bucket = strncmp(whole[k], "qsgd", 4) == 0 || strcmp(whole[k], "nuqsgd") == 0 ? 512 : 600;
            subject_fill(600, x, 0, &seed);
            x[100] = it;
            subject_round_trip(s, 0, x, y);
            for (size_t i = 0; i < 600; i++)
                assert_int_equal(isnan(y[i]) != 0, i < bucket);
            subject_close(s);
        }
        for (int k = 0; k < 3; k++) {
            subject *s =
                subject_open((const char *const[]){ "topk(ratio=0.002)", "threshold(value=100)", "wangni" }[k], 600);
            subject_fill(600, x, 0, &seed);
            x[k == 2 ? 0 : 100] = it;
            subject_round_trip(s, 0, x, y);
            assert_true(k == 2 ? isnan(y[0]) : bad == 0 ? isnan(y[100]) : y[100] == it);
            subject_close(s);
        }
    }
}

/* All elements are finite, and the 2-norm of the first bucket is beyond float's range. */
static void a_bucket_whose_norm_overflows_is_decoded_as_nan(void **state)
{
    static const char *const with_norm[] = { "qsgd(norm=l2)", "qsgd(norm=l2,coding=elias)",
                                             "qsgd(norm=l2,coding=huffman)", "nuqsgd", "qsgd(norm=max)" };
    float x[600], y[600];
    uint64_t seed = 29;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(with_norm); k++) {
        subject *s = subject_open(with_norm[k], 600); /* buckets of 512 */
        const bool overflows = strstr(with_norm[k], "norm=max") == NULL;
        subject_fill(600, x, 0, &seed);
        x[7] = x[8] = FLT_MAX;
        subject_round_trip(s, 0, x, y);
        for (size_t i = 0; i < 600; i++)
            assert_int_equal(isnan(y[i]) != 0, overflows && i < 512);
        subject_close(s);
    }
}

/* Goal: whatever is finite goes through, at both ends of float's range: no message of an
   encoder's own is refused, and wangni's values, which have no common scale, all come back
   finite. */
static void messages_of_huge_and_tiny_values_are_decoded(void **state)
{
    static const size_t lengths[] = { 1, 2, 17, 600 };
    static const float sizes[] = { FLT_MAX, 1e37f, 1e-38f, 1e-45f };
    float x[600], y[600];
    uint64_t seed = 23;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t l = 0; l < TUTTI_LENGTH(lengths); l++)
            for (size_t z = 0; z < 2 * TUTTI_LENGTH(sizes); z++) {
                const size_t n = lengths[l];
                subject *s = subject_open(specs[k], n);
                for (size_t i = 0; i < n; i++)
                    x[i] = sizes[z / 2] * (float)(z % 2 == 0 ? (i % 2 == 0 ? 1 : -1) : 2 * subject_uniform(&seed) - 1);
                subject_round_trip(s, 0, x, y);
                for (size_t i = 0; i < n; i++)
                    assert_true(isfinite(y[i]) || strncmp(specs[k], "wangni", 6) != 0);
                subject_close(s);
            }
}

/* Mean over K draws: its distance from x, in standard errors, element by element; plus 2^-17 of a
   level, the resolution of rounding. An element that was rounded one way less than twenty times
   has no standard error worth the name and is left out; most have one. */
static void unbiased_codecs_are_unbiased(void **state)
{
    enum { N = 100, K = 6000 };
    float x[N], y[N];
    uint64_t seed = 8;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(unbiased); k++)
        for (int kind = 0; kind < 2; kind++) {
            subject *s = subject_open(unbiased[k], N);
            double sum[N] = { 0 }, squares[N] = { 0 }, most = 0;
            int up[N] = { 0 }, down[N] = { 0 }, judged = 0;
            assert_int_equal(tutti_codec_traits(s->codec) & (TUTTI_CODEC_UNBIASED | TUTTI_CODEC_CONTRACTIVE),
                             TUTTI_CODEC_UNBIASED);
            subject_fill(N, x, kind, &seed);
            x[5] = 0, x[6] = 1e-4f;
            for (uint64_t step = 0; step < K; step++) {
                subject_round_trip(s, step, x, y);
                for (size_t i = 0; i < N; i++) {
                    sum[i] += (double)y[i] - x[i];
                    squares[i] += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
                    up[i] += y[i] > x[i];
                    down[i] += y[i] < x[i];
                }
            }
            for (size_t i = 0; i < N; i++)
                most = fmax(most, fabs((double)x[i]));
            for (size_t i = 0; i < N; i++) {
                const double mean = sum[i] / K, error = sqrt(squares[i] / K / K);
                if (up[i] < 20 || down[i] < 20)
                    continue;
                judged++;
                if (fabs(mean) > 5.5 * error + 10 * most * 0x1p-17)
                    fail_msg("%s: element %zu, %g, is off by %g, %g standard errors", unbiased[k], i, (double)x[i],
                             mean, mean / error);
            }
            /* alq and amq have no level 0 unless asked */
            assert_true((y[5] == 0 || unbiased[k][0] == 'a') && judged >= N / 3);
            subject_close(s);
        }
}

/* QSGD: min(d / 4 s^2, sqrt(d) / s) |v|^2 with the 2-norm, d / 4 s^2 N^2 with the greatest. NUQSGD:
   1/8 + 2/9 t^2 up to t = 9/4, then t - 1. */
static void quantisers_keep_their_variance_bounds(void **state)
{
    enum { D = 64, K = 400 };
    float x[D], y[D];
    uint64_t seed = 10;
    (void)state;

    for (int round = 0; round < 60; round++) {
        const int bits = 3 + round % 5, kind = round % 4,
                  levels = 1 + (int)(subject_random(&seed) % (round % 3 == 0 ? 127 : 16));
        const double s = levels, tau = ldexp(sqrt(D), -((1 << (bits - 1)) - 2));
        const double factor[3] = { fmin(D / (4 * s * s), sqrt(D) / s), D / (4 * s * s),
                                   tau <= 2.25 ? 0.125 + 2.0 / 9 * tau * tau : tau - 1 };
        subject_fill(D, x, kind, &seed);
        for (int which = 0; which < 3; which++) {
            char spec[64];
            double loss = 0, most = 0, norm = subject_norm2(D, x);
            subject *c;
            snprintf(spec, sizeof spec, which == 2 ? "nuqsgd(bits=%d,bucket=64)" : "qsgd(levels=%d,bucket=64,norm=%s)",
                     which == 2 ? bits : levels, which == 0 ? "l2" : "max");
            c = subject_open(spec, D);
            for (size_t i = 0; i < D; i++)
                most = fmax(most, fabs((double)x[i]));
            for (uint64_t step = 0; step < K; step++) {
                subject_round_trip(c, step, x, y);
                loss += subject_loss(D, x, y) / K;
            }
            /* A mean of K losses: a tenth above the expectation is beyond ten standard errors
               here. */
            if (loss > 1.1 * factor[which] * (which == 1 ? most * most : norm) + 1e-9)
                fail_msg("%s: %g, bound %g", spec, loss, factor[which] * (which == 1 ? most * most : norm));
            subject_close(c);
        }
    }
}

/* Powers of two and signs pass through a quantiser; a one-hot vector is exact. */
static void quantisers_commute_with_powers_of_two(void **state)
{
    static const char *const scaled[] = {
        "qsgd(bits=4,bucket=64)", "qsgd(bits=2,norm=l2)", "nuqsgd(bits=4)", "int8", "qsgd(coding=elias)",
        "qsgd(levels=5,norm=l2)", "nuqsgd(bits=4,bucket=64,tail=dense)", "sign",
    };
    float x[200], x2[200], y[200], y2[200];
    uint64_t seed = 12;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(scaled); k++) {
        subject *s = subject_open(scaled[k], 200);
        for (int power = -40; power <= 40; power += 8) {
            subject_fill(200, x, 0, &seed);
            for (size_t i = 0; i < 200; i++)
                x2[i] = -ldexpf(x[i], power);
            subject_round_trip(s, 9, x, y);
            subject_round_trip(s, 9, x2, y2);
            for (size_t i = 0; i < 200; i++)
                assert_true(y2[i] == -ldexpf(y[i], power));
        }
        subject_fill(200, x, 2, &seed);
        subject_round_trip(s, 9, x, y);
        for (size_t i = 0; i < 200 && strcmp(scaled[k], "sign") != 0; i++)
            assert_true(x[i] == y[i]);
        subject_close(s);
    }
}

static void draws_belong_to_worker_step_stage_and_place(void **state)
{
    enum { N = 1024 };
    float x[N], whole[N], part[N], other[N];
    uint64_t seed = 13;
    subject *a = subject_open_as("qsgd(bits=4,bucket=128)", 1, N, 0, TUTTI_CPU_AVX512),
            *b = subject_open_as("qsgd(bits=4,bucket=128)", 1, N, 1, TUTTI_CPU_AVX512);
    tutti_view v = subject_view(a, 4);
    size_t bytes;
    uint8_t *m;
    (void)state;

    subject_fill(N, x, 0, &seed);
    subject_round_trip(a, 4, x, whole);
    for (size_t first = 0, count; first < N; first += count) { /* cut at buckets: the same bits */
        count = 128 * (1 + subject_random(&seed) % 3);
        count = count < N - first ? count : N - first;
        v.first = first, v.count = count, v.cols = count;
        m = subject_encode(a, &v, x + first, &bytes);
        subject_decode(a, &v, m, bytes, part + first);
        free(m);
    }
    assert_memory_equal(whole, part, sizeof whole);
    subject_round_trip(b, 4, x, other), assert_memory_not_equal(whole, other, sizeof whole);
    subject_round_trip(a, 5, x, other), assert_memory_not_equal(whole, other, sizeof whole);
    v = subject_view(a, 4), v.stage = 1;
    m = subject_encode(a, &v, x, &bytes);
    subject_decode(a, &v, m, bytes, other), assert_memory_not_equal(whole, other, sizeof whole);
    free(m);
    subject_close(a);
    subject_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_sizes_match_the_papers_formulas),
        cmocka_unit_test(all_processors_write_and_read_the_same_bits),
        cmocka_unit_test(decode_add_adds_a_scaled_result),
        cmocka_unit_test(damaged_messages_are_refused_or_harmless),
        cmocka_unit_test(foreign_messages_are_refused_or_harmless),
        cmocka_unit_test(damaged_messages_from_one_worker_to_another_are_refused_or_harmless),
        cmocka_unit_test(variable_message_sizes_match_their_code_lengths),
        cmocka_unit_test(decode_errors_name_the_fault_and_the_remedy),
        cmocka_unit_test(nonfinite_values_are_visible_after_decoding),
        cmocka_unit_test(a_bucket_whose_norm_overflows_is_decoded_as_nan),
        cmocka_unit_test(messages_of_huge_and_tiny_values_are_decoded),
        cmocka_unit_test(unbiased_codecs_are_unbiased),
        cmocka_unit_test(quantisers_keep_their_variance_bounds),
        cmocka_unit_test(quantisers_commute_with_powers_of_two),
        cmocka_unit_test(draws_belong_to_worker_step_stage_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
