/* Sparsification: how many elements travel, which, and what workers together send. Goal: what
   sparsification promises about numbers of elements: E[nnz] = sum p, the union of workers'
   choices, division by the number of all workers whichever of them sent, ties, zeros, NaN.
   Method: messages are read here by their layout. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "base/machine.h"

enum { WORKERS = 4 };
#define ROW(x) ((float *[]){ x[0], x[1], x[2], x[3] })

/* The number of elements sent is the sum of the probabilities on average, and the set A, where p
   = 1, is always sent. */
static void mean_number_of_sent_elements_is_the_probability_sum(void **state)
{
    enum { N = 800, K = 1500 };
    static const char *const specs[] = {
        "wangni(sparsity=0.02)", "wangni(sparsity=0.3)", "wangni(solver=closed,epsilon=0.5)",
        "wangni(solver=closed,epsilon=20)",
    };
    static float x[N];
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (int kind = 0; kind < 2; kind++) {
            subject *s = subject_open(specs[k], N);
            double sum = 0, spread = 0, sent = 0, lambda = 0;
            size_t always = 0;
            subject_fill(N, x, kind, &seed);
            for (uint64_t step = 0; step < K; step++) {
                const tutti_view v = subject_view(s, step);
                size_t bytes;
                uint8_t *m = subject_encode(s, &v, x, &bytes);
                if (step == 0) {
                    lambda = 1 / (double)tutti_codec_get_f32(m + 8);
                    for (size_t i = 0; i < N; i++) {
                        const double p = fmin(lambda * fabs((double)x[i]), 1);
                        assert_true(p > 0);
                        sum += p, spread += p * (1 - p), always += lambda * fabs((double)x[i]) >= 1 + 1e-6;
                    }
                    if (strstr(specs[k], "sparsity") != NULL)
                        assert_true(fabs(sum / N - (k == 0 ? 0.02 : 0.3)) < 1e-4);
                }
                assert_true(tutti_codec_get_u32(m) >= always);
                sent += tutti_codec_get_u32(m) + tutti_codec_get_u32(m + 4);
                free(m);
            }
            if (fabs(sent / K - sum) > 5.5 * sqrt(spread / K))
                fail_msg("%s: %g elements are sent on average; the probabilities add up to %g", specs[k], sent / K,
                         sum);
            subject_close(s);
        }
}

/* The union of what W workers choose has between k elements, where they choose the same, and W k,
   where they choose disjointly; the mean is over all workers, whichever of them sent an element.
   Random-k with the shared seed: k. */
static void selected_elements_unite_and_average_over_all_workers(void **state)
{
    enum { N = 1000, K = 50 };
    static float g[WORKERS][N], y[WORKERS][N];
    uint64_t seed = 2;
    (void)state;

    for (int kind = 0; kind < 3; kind++) { /* the same; disjoint; as it comes */
        subject *s[WORKERS];
        size_t all = 0;
        for (int w = 0; w < WORKERS; w++) {
            s[w] = subject_open_as("topk(ratio=0.05)", 1, N, w, TUTTI_CPU_AVX512);
            subject_fill(N, g[w], 0, &seed);
            for (size_t i = 0; i < N && kind < 2; i++)
                g[w][i] = (float)(i % WORKERS == (kind == 0 ? 0 : (size_t)w) && i < WORKERS * K ? 10 + w : 0.01);
        }
        subject_exchange(s, WORKERS, 0, false, ROW(g), ROW(y));
        for (size_t i = 0; i < N; i++) {
            double mean = 0;
            bool sent = false;
            for (int w = 0; w < WORKERS; w++) {
                size_t above = 0; /* an independent count of the elements above: is i among the k greatest of w? */
                for (size_t j = 0; j < N; j++)
                    above += fabsf(g[w][j]) > fabsf(g[w][i]) || (fabsf(g[w][j]) == fabsf(g[w][i]) && j < i);
                sent |= above < K;
                mean += above < K ? (double)g[w][i] / WORKERS : 0;
            }
            all += sent;
            assert_true(fabs((double)y[0][i] - mean) < 1e-6 * 14);
        }
        assert_in_range(all, K, WORKERS * K);
        assert_true(kind == 2 || all == (kind == 0 ? K : WORKERS * K));
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
    {
        subject *s[WORKERS];
        size_t all = 0;
        for (int w = 0; w < WORKERS; w++) {
            s[w] = subject_open_as("randomk(ratio=0.05)", 1, N, w, TUTTI_CPU_AVX512);
            subject_fill(N, g[w], 0, &seed);
        }
        subject_exchange(s, WORKERS, 0, false, ROW(g), ROW(y));
        for (size_t i = 0; i < N; i++)
            all += y[0][i] != 0;
        assert_int_equal(all, K);
        for (int w = 0; w < WORKERS; w++)
            subject_close(s[w]);
    }
}

static void require_indexes(const uint8_t *m, size_t k, const size_t *wanted)
{
    for (size_t j = 0; j < k; j++)
        if (tutti_codec_get_u32(m + 4 * j) != wanted[j])
            fail_msg("index %zu of %zu is %u instead of %zu", j, k, (unsigned)tutti_codec_get_u32(m + 4 * j),
                     wanted[j]);
}

/* Exactly k whatever is equal, the lowest indexes first; k zeros where there are only zeros, of
   both signs; a NaN is greater than all and seen by every decoder. On all processors, at lengths
   around their vectors. */
static void topk_selects_ties_zeros_and_nan_by_fixed_rules(void **state)
{
    static const size_t lengths[] = { 1, 8, 31, 33, 256, 700 };
    float x[700], y[700];
    size_t first[700];
    (void)state;

    for (size_t i = 0; i < 700; i++)
        first[i] = i;
    for (int cpu = 0; cpu <= (int)tutti_cpu_best(); cpu++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at], k = (n + 9) / 10;
            subject *s = subject_open_as("topk(ratio=0.1)", 1, n, 0, (tutti_cpu)cpu);
            const tutti_view v = subject_view(s, 0);
            uint8_t *m;
            size_t bytes, wanted[700], found = 0;
            for (int kind = 0; kind < 4; kind++) { /* equal; equal except for the sign; zeros; negative zeros */
                for (size_t i = 0; i < n; i++)
                    x[i] = kind == 0 ? 0.3f : kind == 1 ? i % 3 == 0 ? -2.0f : 2.0f : kind == 2 ? 0.0f : -0.0f;
                m = subject_encode(s, &v, x, &bytes);
                assert_int_equal(bytes, 8 * k);
                require_indexes(m, k, first);
                subject_decode(s, &v, m, bytes, y);
                for (size_t i = 0; i < n; i++)
                    assert_true(y[i] == (i < k ? x[i] : 0));
                free(m);
            }
            for (size_t i = 0; i < n; i++) /* one that is greater, at the end, and ties below it */
                x[i] = i + 1 == n ? -9.0f : i % 2 == 0 ? 1.0f : -1.0f;
            for (size_t j = 0; j + 1 < k; j++)
                wanted[found++] = j;
            wanted[found] = n - 1;
            m = subject_encode(s, &v, x, &bytes);
            require_indexes(m, k, wanted);
            free(m);
            x[n / 2] = NAN;
            m = subject_encode(s, &v, x, &bytes);
            subject_decode(s, &v, m, bytes, y);
            assert_true(isnan(y[n / 2]));
            free(m);
            subject_close(s);
        }
}

/* However indexes travel, what is decoded is the same to the bit; delta has the sum of its steps'
   codes, 2 floor(log2 d) + 1 bits each, bitmap a bit an element, auto the shorter of int32 and
   bitmap. Values of 16 bits are the nearest ones. */
static void all_index_codes_decode_to_the_same_elements(void **state)
{
    static const size_t lengths[] = { 1, 8, 33, 256, 700, 1025, 2500 };
    static const char *const codes[] = { "int32", "delta", "bitmap", "auto" };
    static const char *const types[] = { "fp32", "fp16", "bf16" };
    static float x[2500], y[2500], plain[2500];
    uint64_t seed = 9;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++)
        for (int ratio = 0; ratio < 4; ratio++)
            for (int all = 0; all < 2; all++) { /* topk; threshold */
                const size_t n = lengths[at];
                size_t k = 0, bits = 0;
                subject_fill(n, x, 0, &seed);
                for (int type = 0; type < 3; type++)
                    for (int code = 0; code < 4; code++) {
                        char spec[100];
                        subject *s;
                        const size_t each = type == 0 ? 4 : 2;
                        size_t bytes, wanted, last = 0;
                        snprintf(spec, sizeof spec,
                                 all ? "threshold(value=%g,value_dtype=%s,index_code=%s)"
                                     : "topk(ratio=%g,value_dtype=%s,index_code=%s)",
                                 (all ? (const double[]){ 2.5, 1, 1e-20, 100 }
                                      : (const double[]){ 0.001, 0.03, 0.3, 1 })[ratio],
                                 types[type], codes[code]);
                        s = subject_open(spec, n);
                        bytes = subject_round_trip(s, 1, x, type == 0 && code == 0 ? plain : y);
                        if (type == 0 && code == 0)
                            for (size_t i = 0; i < n; i++)
                                if (plain[i] != 0) {
                                    bits += 2 * (size_t)ilogb((double)(i + 1 - last)) + 1;
                                    last = i + 1, k++;
                                }
                        for (size_t i = 0; i < n && (type > 0 || code > 0); i++)
                            if (type == 0 ? y[i] != plain[i]
                                          : !(fabs((double)y[i] - (double)plain[i]) <=
                                              fabs((double)plain[i]) * (type == 1 ? 0x1p-11 : 0x1p-8) + 0x1p-25))
                                fail_msg("%s of %zu: element %zu is %g, sent as int32 and fp32 %g", spec, n, i,
                                         (double)y[i], (double)plain[i]);
                        wanted = code == 1 ? (bits + 7) / 8
                                 : code == 2 || (code == 3 && 4 * k > (n + 7) / 8) ? (n + 7) / 8 : 4 * k;
                        wanted += each * k + (all && code > 0 ? 4 : 0);
                        if (bytes != wanted)
                            fail_msg("%s of %zu: %zu bytes for %zu elements, the formula says %zu", spec, n, bytes, k,
                                     wanted);
                        subject_close(s);
                    }
            }
}

/* One index more than there are values, in the map or in what fills its last byte up, and steps
   that go on: refused, and nothing is added. */
static void indexes_without_a_value_are_refused(void **state)
{
    enum { N = 33 };
    float x[N], y[N] = { 0 };
    uint64_t seed = 10;
    (void)state;

    for (int delta = 0; delta < 2; delta++) {
        /* 4 */
        subject *s = subject_open(delta ? "topk(ratio=0.1,index_code=delta)" : "topk(ratio=0.1,index_code=bitmap)", N);
        const tutti_view v = subject_view(s, 0);
        size_t bytes;
        uint8_t *m;
        for (int i = 0; i < N; i++)
            /* four steps of 1, a bit each: the other half of the byte is 0 */
            x[i] = delta ? i < 4 : (float)subject_uniform(&seed) + 0.1f;
        m = subject_encode(s, &v, x, &bytes);
        for (int bit = delta ? 4 : 0; bit < (delta ? 8 : 40); bit++) {
            tutti_error err = { 0 };
            if ((m[bit / 8] >> bit % 8 & 1) != 0)
                continue;
            m[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, bytes, 1, y, &err), TUTTI_ERR_CORRUPT);
            assert_non_null(strstr(err.text, "the indexes continue after the last of 4"));
            m[bit / 8] ^= (uint8_t)(1u << bit % 8);
            for (int i = 0; i < N; i++)
                assert_true(y[i] == 0);
        }
        free(m);
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_number_of_sent_elements_is_the_probability_sum),
        cmocka_unit_test(selected_elements_unite_and_average_over_all_workers),
        cmocka_unit_test(topk_selects_ties_zeros_and_nan_by_fixed_rules),
        cmocka_unit_test(all_index_codes_decode_to_the_same_elements),
        cmocka_unit_test(indexes_without_a_value_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
