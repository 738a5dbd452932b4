/* Codecs at the lengths where kernels turn from one loop to the next, and at unaligned addresses.
   Goal: the same bytes and the same decoded bits from every processor's kernels as from the
   scalar ones, for n in {0, 1, 7, 8, 31, 32, 33, 255, 256, 257, 1e6+3}, wherever vectors and
   messages lie; payloads of exactly the formula's length; a decoder that touches nothing but its
   y, and reads nothing but its message (which a sanitizer sees). Method: the scalar kernels are
   the oracle; vectors begin 1 to 15 floats, messages 1 to 7 bytes, past a line of the cache. The
   last test reads the lists: it fails for a codec that is registered and in none of them. */
#include <dirent.h>
#include "subject.h"
#include "state/plan.h"
#include "base/machine.h"
#include "codec/codec.h"

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
static size_t of_qsgd_levels(size_t n) { return quantised(n, 5, 64); }
static size_t of_nuqsgd3(size_t n) { return quantised(n, 3, 128); }
static size_t of_nuqsgd5(size_t n) { return quantised(n, 5, 512); }
static size_t of_nuqsgd5_dense(size_t n) { return quantised(n / 512 * 512, 5, 512) + 4 * (n % 512); }
static size_t of_alq(size_t n) { return quantised(n, 3, 8192); }
static size_t of_sign(size_t n) { return up(n, 8) + 4 * (n > 0); }
static size_t of_sign_blocks(size_t n) { return up(n, 8) + 4 * up(n, 64); }
static size_t of_vote(size_t n) { return n > 0 ? n / 8 + 1 : 0; }
static size_t of_column(size_t n) { return up(n, 8) + 8 * (n > 0); }
static size_t of_topk(size_t n) { return 8 * up(n, 100); }
/* of cells of 5 to 8 elements, but of one that is alone */
static size_t of_dct(size_t n) { return n < 2 ? 4 * n : 12 * up(n, 8) + up(9 * up(n, 8), 8); }
static size_t of_chunk_topk(size_t n)
{
    return n < 2 ? 17 * n : 16 + up(6 * up(n, 8), 8) + up(9 * up(n, 8), 8);
}

static const struct { const char *spec; size_t (*bytes)(size_t n);
} rows[] = {
    /* NULL: the message says its length */
    { "int8", of_int8 },
    { "minmax8", of_minmax8 },
    { "minmax8(chunk=256)", of_minmax8_chunks },
    { "qsgd", of_qsgd },
    { "qsgd(bits=2,bucket=64,norm=l2)", of_qsgd2 },
    { "qsgd(bits=8)", of_qsgd8 },
    { "qsgd(levels=9,bucket=64)", of_qsgd_levels },
    { "nuqsgd(bits=3,bucket=128)", of_nuqsgd3 },
    { "nuqsgd(bits=5)", of_nuqsgd5 },
    { "nuqsgd(bits=5,tail=dense)", of_nuqsgd5_dense },
    { "e3m0(bucket=512)", of_qsgd },
    { "alq", of_alq },
    { "amq", of_alq },
    { "sign", of_sign },
    { "sign(block=64)", of_sign_blocks },
    { "onebit", of_sign },
    { "sign-vote", of_vote },
    { "onebit-col", of_column },
    { "topk", of_topk },
    { "dct(topk=3,chunk=8)", of_dct },
    { "chunk-topk(topk=3,chunk=8)", of_chunk_topk },
    { "topk(index_code=delta,value_dtype=bf16)", NULL },
    { "topk(ratio=0.1,index_code=auto)", NULL },
    { "threshold(value=2.5)", NULL },
    { "wangni(sparsity=0.1)", NULL },
    { "qsgd(coding=huffman)", NULL },
    { "qsgd(bits=2,bucket=512,norm=l2,coding=elias)", NULL },
    { "nuqsgd(coding=elias)", NULL },
    { "nuqsgd(bits=3,zero_level=off,coding=omega)", NULL },
};

static void messages_match_scalar_code_at_any_alignment(void **state)
{
    float *x = malloc((LONG + SLACK) * sizeof *x), *y = malloc((LONG + 2 * SLACK) * sizeof *y),
          *first_y = malloc((LONG + 1) * sizeof *y);
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
                const size_t shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % (SLACK - 1),
                             bytes_shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % 7;
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
                assert_int_equal(
                    s->codec->ops->decode_add(s->codec, &v, place + bytes_shift, bytes, 0.7f, y + shift, NULL),
                    TUTTI_OK);
                for (size_t i = 0; i < n + 2 * SLACK; i++) /* and only there */
                    assert_true((i >= shift && i < shift + n) || y[i] == 0.5f);
                if (cpu == 0) {
                    first = place, first_bytes = bytes;
                    memcpy(first_y, y, n * sizeof *y);
                } else {
                    if (bytes != first_bytes || memcmp(place + bytes_shift, first, bytes) != 0 ||
                        memcmp(y + shift, first_y, n * sizeof *y) != 0)
                        fail_msg("%s of %zu elements at %zu floats and %zu bytes past a line differs from the scalar "
                                 "one at level %d",
                                 rows[k].spec, n, shift, bytes_shift, cpu);
                    free(place);
                }
                subject_close(s);
            }
            free(first), free(plain);
        }
    free(x), free(y), free(first_y);
}

/* Rounds that are summed: the numbers on the wire and what they unfold to. PowerSGD on
   matrices whose sides are those lengths. */
static const char *const summed[] = {
    "fp32", "fp16", "bf16", "trunc16", "randomk(ratio=0.1)", "randomk(ratio=0.3,block=7,unbiased=on)"
};
static void summed_rounds_match_scalar_code_at_any_alignment(void **state)
{
    float *x = malloc((LONG + SLACK) * sizeof *x), *y[2];
    uint64_t seed = 2;
    (void)state;

    for (int k = 0; k < 2; k++)
        y[k] = malloc((LONG + SLACK) * sizeof *x);
    for (size_t k = 0; k < TUTTI_LENGTH(summed); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at];
            float *plain = malloc((n + 1) * sizeof *plain);
            uint8_t *first = NULL;
            subject_fill(n, plain, (int)(k + at) % 4, &seed);
            for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++) {
                const size_t shift = cpu == 0 ? 0 : 1 + subject_random(&seed) % (SLACK - 1);
                subject *s = subject_open_as(summed[k], 1, n, 1, (tutti_cpu)cpu);
                const tutti_view v = subject_view(s, 5);
                const size_t bytes =
                    s->codec->ops->width(s->codec, &v, 0) * tutti_dtype_bytes(tutti_codec_number(s->codec, &v));
                uint8_t *wire = malloc(bytes + 1);
                void *wires[SUBJECT_ROUNDS] = { wire };
                memcpy(x + shift, plain, n * sizeof *x);
                s->codec->ops->fold(s->codec, &v, 0, x + shift, s->scratch, wires);
                s->codec->ops->unfold(s->codec, &v, s->scratch, wires, y[cpu > 0] + (cpu > 0 ? shift : 0));
                if (cpu > 0 && (memcmp(wire, first, bytes) != 0 || memcmp(y[1] + shift, y[0], n * sizeof *x) != 0))
                    fail_msg("%s of %zu elements at %zu floats past a line differs from the scalar one at level %d",
                             summed[k], n, shift, cpu);
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
            for (int cpu = 0; cpu <= (int)tutti_cpu_best();
                 cpu += (int)tutti_cpu_best() > 0 ? (int)tutti_cpu_best() : 1) {
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

/* What wrappers keep and give back: three steps of two workers, where one owns a sum in every
   other step; every byte of state and every element that reaches the model. */
static const char *const wrapped[] = {
    "ef(sign)",
    "ef(topk(ratio=0.1),server=on)",
    "ef(sign(block=64),momentum=0.9,nesterov=on)",
    "ef(fp16,decay=0.9)",
    "ef(powersgd(rank=2))",
    "ef(topk,flush_every=2)",
    "large(qsgd,min=33,small=fp16)",
    "ef(large(topk(ratio=0.1),min=9,small=bf16))",
    "ef21(topk(ratio=0.2))",
    "ef21(sign)",
    "dgc(topk(ratio=0.1))",
    "dgc(topk(ratio=0.3),nesterov=on,clip=1,masking=off)",
    "accordion(low=topk(ratio=0.5),high=topk(ratio=0.05),unit=step,interval=2)",
    "ef(accordion(low=powersgd(rank=2),high=powersgd(rank=1),unit=step,interval=2))",
};
static void wrapper_state_matches_scalar_code_at_any_alignment(void **state)
{
    enum { WORKERS = 2, STEPS = 3, MOST = 257 };
    static float g[WORKERS][MOST + SLACK], y[WORKERS][MOST + SLACK], first[STEPS][MOST];
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(wrapped); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths) - 1; at++) {
            const size_t n = lengths[at], rows_of = n % 8 == 0 && n > 8 ? 8 : 1; /* some are matrices */
            uint8_t *kept = NULL;
            for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++) {
                const size_t shift = cpu == 0 ? 0 : 1 + (k + at + (size_t)cpu) % (SLACK - 1);
                uint64_t seed = 100 * k + at; /* the same gradients on every processor */
                subject *s[WORKERS];
                subject_said h[WORKERS] = { { .n = 0 } };
                size_t used = 0;
                for (int w = 0; w < WORKERS; w++) {
                    s[w] = subject_open_as(wrapped[k], rows_of, n / rows_of, w, (tutti_cpu)cpu);
                    s[w]->space.workers = WORKERS;
                }
                for (uint64_t step = 0; step < STEPS; step++) {
                    h[0].n = h[1].n = 0;
                    subject_begin(s, WORKERS, step, 0, 0.1, h);
                    for (int w = 0; w < WORKERS; w++)
                        subject_fill(n, g[w] + shift, (int)step % 2, &seed);
                    subject_exchange(s, WORKERS, step, step % 2 == 1, (float *[]){ g[0] + shift, g[1] + shift },
                                     (float *[]){ y[0] + shift, y[1] + shift });
                    if (cpu == 0 && n > 0)
                        memcpy(first[step], y[0], n * sizeof **first);
                    if (n > 0 && (memcmp(y[0] + shift, first[step], n * sizeof **first) != 0 ||
                                  memcmp(y[0] + shift, y[1] + shift, n * sizeof **first) != 0))
                        fail_msg("%s of %zu elements at %zu floats past a line differs from the scalar one at level %d "
                                 "in step %llu",
                                 wrapped[k], n, shift, cpu, (unsigned long long)step);
                }
                if (cpu == 0)
                    kept = malloc(WORKERS * subject_memory(s[0], false) + 1);
                for (int w = 0; w < WORKERS; w++) {
                    for (size_t i = 0; i < tutti_plan_count(s[w]->plan); i++) {
                        void *memory;
                        const tutti_state *of = tutti_plan_state(s[w]->plan, i, &memory);
                        const size_t bytes = of->keep == TUTTI_SCRATCH ? 0 : of->count * tutti_dtype_bytes(of->dtype);
                        if (bytes > 0 && cpu == 0)
                            memcpy(kept + used, memory, bytes);
                        if (bytes > 0 && memcmp(kept + used, memory, bytes) != 0)
                            fail_msg(
                                "%s of %zu elements: state '%s' of worker %d differs from the scalar one at level %d",
                                wrapped[k], n, of->name, w, cpu);
                        used += bytes;
                    }
                    subject_close(s[w]);
                }
            }
            free(kept);
        }
}

/* ---- no codec is left out ---- */

/* Is `spec` that codec, by itself? */
static bool is_of(const char *spec, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(spec, name, length) == 0 && (spec[length] == '\0' || spec[length] == '(');
}

/* The fuzzer's list, from its source: entries, whatever their commas. */
static int fuzzed_specs(char spec[][100], int most)
{
    FILE *f = fopen(TUTTI_SOURCE_DIR "/tests/fuzz/codec_decode_fuzz.c", "r");
    char line[1000];
    bool within = false;
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL && !(within && line[0] == '}')) {
        for (char *at = line; within && (at = strchr(at, '"')) != NULL; at++) {
            assert_true(n < most && sscanf(++at, "%99[^\"]", spec[n++]) == 1);
            at = strchr(at, '"');
            assert_non_null(at);
        }
        within = within || strstr(line, "specs[] = {") != NULL;
    }
    fclose(f);
    return n;
}

/* Inputs of the fuzz target, unpacked by its build, that choose entry k of n. */
static int seeds_of(int k, int n)
{
    static const char folder[] = TUTTI_BINARY_DIR "/corpus/codec_decode";
    DIR *d = opendir(folder);
    int found = 0;

    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        char path[sizeof folder + sizeof entry->d_name + 1];
        FILE *seed;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        seed = fopen(path, "rb");
        assert_non_null(seed);
        found += fgetc(seed) % n == k;
        fclose(seed);
    }
    closedir(d);
    return found;
}

/* Each codec is in one of the lists above; those with messages of their own are fuzzed; those
   that are fuzzed have seeds. */
static void every_registered_codec_is_tested_and_fuzzed(void **state)
{
    static char fuzzed[64][100];
    const int n = fuzzed_specs(fuzzed, (int)TUTTI_LENGTH(fuzzed));
    (void)state;

    assert_true(n > 20);
    for (size_t k = 0; tutti_codecs[k] != NULL; k++) {
        const tutti_codec_ops *o = tutti_codecs[k];
        /* nothing of these is decoded without a sum over the workers */
        bool listed = is_of("powersgd", o->name),
             seen = o->rounds > 1 || (o->choose != NULL && (o->before != NULL || o->watch != NULL));
        for (size_t i = 0; i < TUTTI_LENGTH(rows); i++)
            listed = listed || (o->bound != NULL && is_of(rows[i].spec, o->name));
        for (size_t i = 0; i < TUTTI_LENGTH(summed); i++)
            listed = listed || (o->rounds > 0 && is_of(summed[i], o->name));
        for (size_t i = 0; i < TUTTI_LENGTH(wrapped); i++)
            listed = listed || (o->choose != NULL && is_of(wrapped[i], o->name));
        for (int i = 0; i < n; i++)
            seen = seen || is_of(fuzzed[i], o->name);
        if (!listed)
            fail_msg("codec '%s' is in none of this file's lists", o->name);
        if (!seen)
            fail_msg("codec '%s' is not in the list of tests/fuzz/codec_decode_fuzz.c", o->name);
    }
    for (int k = 0; k < n; k++)
        if (seeds_of(k, n) == 0)
            fail_msg("'%s', number %d in tests/fuzz/codec_decode_fuzz.c, has no input in corpus/codec_decode.txt there",
                     fuzzed[k], k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrapper_state_matches_scalar_code_at_any_alignment),
        cmocka_unit_test(every_registered_codec_is_tested_and_fuzzed),
        cmocka_unit_test(messages_match_scalar_code_at_any_alignment),
        cmocka_unit_test(summed_rounds_match_scalar_code_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
