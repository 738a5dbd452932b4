/* Codecs at the lengths where kernels turn from one loop to the next, and at addresses that nobody has aligned.
   Goal: wire-formats.md's invariants: the same bytes and the same decoded bits from every processor's kernels as from the scalar ones, for n in {0, 1, 7, 8, 31, 32, 33, 255, 256, 257, 1e6+3}, wherever vectors and
   messages lie; payloads of exactly the formula's length; a decoder that touches nothing but its y, and reads nothing but its message (which a sanitizer sees).
   Method: the scalar kernels are the oracle; vectors begin 1 to 15 floats, messages 1 to 7 bytes, past a line of the cache. */
#include "subject.h"

enum { LONG = 1000003, SLACK = 16 };
static const size_t lengths[] = { 0, 1, 7, 8, 31, 32, 33, 255, 256, 257, LONG };

static size_t up(size_t a, size_t b) { return (a + b - 1) / b; }
static size_t quantised(size_t n, size_t bits, size_t bucket) { return up(n * bits, 8) + 4 * up(n, bucket); }
static size_t of_int8(size_t n) { return quantised(n, 8, 2048); }
static size_t of_minmax8(size_t n) { return n + 8 * (n > 0); }
static size_t of_minmax8_chunks(size_t n) { return n + 8 * up(n, 256); }
static size_t of_qsgd(size_t n) { return quantised(n, 4, 512); }
static size_t of_qsgd2(size_t n) { return quantised(n, 2, 64); }
static size_t of_qsgd8(size_t n) { return quantised(n, 8, 512); }
static size_t of_nuqsgd3(size_t n) { return quantised(n, 3, 128); }
static size_t of_nuqsgd5(size_t n) { return quantised(n, 5, 512); }
static size_t of_alq(size_t n) { return quantised(n, 3, 8192); }
static size_t of_sign(size_t n) { return up(n, 8) + 4 * (n > 0); }
static size_t of_sign_blocks(size_t n) { return up(n, 8) + 4 * up(n, 64); }
static size_t of_topk(size_t n) { return 8 * up(n, 100); }

static const struct { const char *spec; size_t (*bytes)(size_t n); } rows[] = { /* NULL: the message says its length */
    { "int8", of_int8 }, { "minmax8", of_minmax8 }, { "minmax8(chunk=256)", of_minmax8_chunks }, { "qsgd", of_qsgd }, { "qsgd(bits=2,bucket=64,norm=l2)", of_qsgd2 }, { "qsgd(bits=8)", of_qsgd8 },
    { "nuqsgd(bits=3,bucket=128)", of_nuqsgd3 }, { "nuqsgd(bits=5)", of_nuqsgd5 }, { "alq", of_alq }, { "amq", of_alq }, { "sign", of_sign }, { "sign(block=64)", of_sign_blocks }, { "onebit", of_sign },
    { "topk", of_topk }, { "topk(index_code=delta,value_dtype=bf16)", NULL }, { "topk(ratio=0.1,index_code=auto)", NULL }, { "threshold(value=2.5)", NULL }, { "wangni(sparsity=0.1)", NULL }, { "qsgd(coding=huffman)", NULL }, { "qsgd(bits=2,bucket=512,norm=l2,coding=elias)", NULL },
};

static void messages_are_the_scalar_ones_wherever_they_lie(void **state)
{
    float *x = malloc((LONG + SLACK) * sizeof *x), *y = malloc((LONG + 2 * SLACK) * sizeof *y), *first_y = malloc((LONG + 1) * sizeof *y);
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at];
            uint8_t *first = NULL, *place;
            size_t first_bytes = 0;
            float *plain = malloc((n + 1) * sizeof *plain);
            subject_fill(n, plain, (int)(k + at) % 4, &seed);
            for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++) {
                const size_t shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % (SLACK - 1), bytes_shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % 7;
                subject *s = subject_open_as(rows[k].spec, 1, n, 1, (tutti_cpu)cpu);
                const tutti_view v = subject_view(s, 5);
                const size_t bound = s->codec->ops->bound(s->codec, &v);
                size_t bytes;
                memcpy(x + shift, plain, n * sizeof *x);
                place = malloc(bytes_shift + bound + 1);
                bytes = s->codec->ops->encode(s->codec, &v, x + shift, s->scratch, place + bytes_shift);
                assert_true(bytes <= bound && (rows[k].bytes == NULL || bytes == rows[k].bytes(n)));
                memmove(place, place + bytes_shift, bytes);
                place = realloc(place, bytes_shift + bytes + (bytes_shift + bytes == 0)); /* nothing stands behind it */
                memmove(place + bytes_shift, place, bytes);
                for (size_t i = 0; i < n + 2 * SLACK; i++)
                    y[i] = 0.5f;
                assert_int_equal(s->codec->ops->decode_add(s->codec, &v, place + bytes_shift, bytes, 0.7f, y + shift, NULL), TUTTI_OK);
                for (size_t i = 0; i < n + 2 * SLACK; i++) /* and only there */
                    assert_true((i >= shift && i < shift + n) || y[i] == 0.5f);
                if (cpu == 0) {
                    first = place, first_bytes = bytes;
                    memcpy(first_y, y, n * sizeof *y);
                } else {
                    if (bytes != first_bytes || memcmp(place + bytes_shift, first, bytes) != 0 || memcmp(y + shift, first_y, n * sizeof *y) != 0)
                        fail_msg("%s of %zu elements at %zu floats and %zu bytes past a line differs from the scalar one at level %d", rows[k].spec, n, shift, bytes_shift, cpu);
                    free(place);
                }
                subject_close(s);
            }
            free(first), free(plain);
        }
    free(x), free(y), free(first_y);
}

/* Rounds that are summed: the numbers on the wire and what they unfold to. PowerSGD on matrices whose sides are those lengths. */
static void summed_rounds_are_the_scalar_ones_wherever_they_lie(void **state)
{
    static const char *const specs[] = { "fp32", "fp16", "bf16", "trunc16", "randomk(ratio=0.1)", "randomk(ratio=0.3,block=7,unbiased=on)" };
    float *x = malloc((LONG + SLACK) * sizeof *x), *y[2];
    uint64_t seed = 2;
    (void)state;

    for (int k = 0; k < 2; k++)
        y[k] = malloc((LONG + SLACK) * sizeof *x);
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at];
            float *plain = malloc((n + 1) * sizeof *plain);
            uint8_t *first = NULL;
            subject_fill(n, plain, (int)(k + at) % 4, &seed);
            for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++) {
                const size_t shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % (SLACK - 1);
                subject *s = subject_open_as(specs[k], 1, n, 1, (tutti_cpu)cpu);
                const tutti_view v = subject_view(s, 5);
                const size_t bytes = s->codec->ops->width(s->codec, &v, 0) * tutti_dtype_bytes(tutti_codec_number(s->codec, &v));
                uint8_t *wire = malloc(bytes + 1);
                void *wires[SUBJECT_ROUNDS] = { wire };
                memcpy(x + shift, plain, n * sizeof *x);
                s->codec->ops->fold(s->codec, &v, 0, x + shift, s->scratch, wires);
                s->codec->ops->unfold(s->codec, &v, s->scratch, wires, y[cpu > 0] + (cpu > 0 ? shift : 0));
                if (cpu > 0 && (memcmp(wire, first, bytes) != 0 || memcmp(y[1] + shift, y[0], n * sizeof *x) != 0))
                    fail_msg("%s of %zu elements at %zu floats past a line differs from the scalar one at level %d", specs[k], n, shift, cpu);
                if (cpu == 0)
                    first = wire;
                else
                    free(wire);
                subject_close(s);
            }
            free(first), free(plain);
        }
    for (size_t rows_at = 4; rows_at < TUTTI_LENGTH(lengths) - 1; rows_at++)
        for (size_t cols_at = 4; cols_at < TUTTI_LENGTH(lengths) - 1; cols_at++) {
            const size_t rows_of = lengths[rows_at], cols = lengths[cols_at], n = rows_of * cols;
            subject_fill(n, x + 3, 0, &seed);
            for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu += (int)tutti_cpu_best() > 0 ? (int)tutti_cpu_best() : 1) {
                subject *s = subject_open_as("powersgd(rank=3)", rows_of, cols, 0, (tutti_cpu)cpu);
                subject_exchange(&s, 1, 0, false, (float *[]){ x + 3 }, (float *[]){ y[cpu > 0] + 5 * (cpu > 0) });
                if (cpu > 0 && memcmp(y[1] + 5, y[0], n * sizeof *x) != 0)
                    fail_msg("powersgd of %zu x %zu differs from the scalar one", rows_of, cols);
                subject_close(s);
            }
        }
    for (int k = 0; k < 2; k++)
        free(y[k]);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_the_scalar_ones_wherever_they_lie),
        cmocka_unit_test(summed_rounds_are_the_scalar_ones_wherever_they_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
