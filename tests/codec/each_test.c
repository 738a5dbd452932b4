/* What each codec of the message form promises. Goal: what it loses, keeps and expects is what
   its paper states, and its codes are as long as they must be. Method: formulas and second,
   separate computations, on several shapes of vectors; messages that no encoder writes. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "base/machine.h"

/* Both codings of the same codes decode to the same numbers; lengths are the codes'; nothing
   but zeros costs a bit each at most. */
static void elias_messages_decode_like_fixed_width_ones(void **state)
{
    static const struct {
        uint32_t k;
        int gamma, omega;
    } lengths[] = { { 1, 1, 1 }, { 2, 3, 3 },  { 3, 3, 3 },   { 4, 5, 6 },  { 7, 5, 6 },
                    { 8, 7, 7 }, { 15, 7, 7 }, { 16, 9, 11 }, { 31, 9, 11 } };
    static const int levels[] = { 1, 2, 3, 5, 7, 12, 15, 31, 40, 63, 100, 127 };
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST], z[SUBJECT_LONGEST];
    uint64_t seed = 14;
    (void)state;

    for (size_t i = 0; i < TUTTI_LENGTH(lengths); i++) {
        assert_int_equal(tutti_codec_elias_length(TUTTI_CODEC_GAMMA, lengths[i].k), lengths[i].gamma);
        assert_int_equal(tutti_codec_elias_length(TUTTI_CODEC_OMEGA, lengths[i].k), lengths[i].omega);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(levels); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++)
            for (int norm = 0; norm < 2; norm++) {
                const size_t n = subject_lengths[at];
                char spec[64];
                subject *s;
                subject_fill(n, x, (int)(at % 5), &seed);
                for (size_t i = 0; i < n; i++)
                    x[i] = at % 3 == 0 && i / 128 % 2 == 0 ? 0 : x[i]; /* whole buckets of zeros */
                snprintf(spec, sizeof spec, "qsgd(levels=%d,bucket=128,norm=%s)", levels[k], norm ? "l2" : "max");
                s = subject_open(spec, n), subject_round_trip(s, 1, x, y), subject_close(s);
                for (int coding = 0; coding < 2; coding++) {
                    snprintf(spec, sizeof spec, "qsgd(levels=%d,bucket=128,norm=%s,coding=%s)", levels[k],
                             norm ? "l2" : "max", coding ? "omega" : "elias");
                    s = subject_open(spec, n), subject_round_trip(s, 1, x, z), subject_close(s);
                    for (size_t i = 0; i < n; i++)
                        assert_true(y[i] == z[i]);
                }
            }
    /* QSGD, theorem 3.2: with s = 1 and the 2-norm about sqrt(n) elements are not 0: 13 bits each
       are more than enough. */
    for (int round = 0; round < 10; round++) {
        subject *s = subject_open("qsgd(bits=2,bucket=2048,norm=l2,coding=elias)", 2048);
        subject_fill(2048, x, 0, &seed);
        assert_true(subject_round_trip(s, (uint64_t)round, x, y) * 8 < 32 + 13 * (1 + 46 + 4 * 7));
        subject_close(s);
    }
}

/* Lengths of a prefix code, optimal: no shorter than the entropy, less than a bit longer; and
   longer where limited only where it must. */
static void huffman_codes_are_within_one_bit_of_the_entropy(void **state)
{
    uint64_t seed = 22;
    (void)state;

    for (int round = 0; round < 200; round++) {
        const int symbols = 4 << round % 7;
        uint32_t count[256];
        uint8_t length[256];
        double all = 0, bits = 0, entropy = 0, kraft = 0;
        int used = 0;
        for (int k = 0; k < symbols; k++) {
            count[k] = round % 5 == 0            ? (uint32_t)(k < 30 ? 1 << k : 0)
                       : round % 5 == 1 && k > 0 ? 0
                                                 : (uint32_t)(pow(subject_uniform(&seed), 4) * 1000);
            all += count[k], used += count[k] > 0;
        }
        tutti_codec_huffman_lengths(symbols, count, length);
        for (int k = 0; k < symbols; k++) {
            assert_true((length[k] > 0) == (count[k] > 0) && length[k] <= TUTTI_CODEC_HUFFMAN_LONGEST);
            bits += (double)count[k] * length[k] / fmax(all, 1);
            entropy -= count[k] > 0 ? count[k] / all * log2(count[k] / all) : 0;
            kraft += length[k] > 0 ? ldexp(1, -length[k]) : 0;
        }
        assert_true(used < 2 || kraft == 1);
        assert_true(bits >= entropy - 1e-9);
        if (!(bits < entropy + 1 + 1e-9))
            fail_msg("round %d of %d symbols: %g bits, entropy %g", round, symbols, bits, entropy);
    }
}

/* Huffman's encoding of the same codes decode to the same numbers, in no more bytes than fixed
   width and the table, and fewer where codes are uneven. */
static void huffman_messages_decode_like_fixed_width_ones(void **state)
{
    static const char *const all[] = {
        "qsgd(bits=%d,bucket=128", "nuqsgd(bits=%d,bucket=128", "alq(bits=%d,bucket=128",
        "amq(bits=%d,bucket=128,norm=max",
    };
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST], z[SUBJECT_LONGEST];
    uint64_t seed = 23;
    (void)state;

    for (int bits = 3; bits <= 8; bits++)
        for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++)
            for (size_t k = 0; k < TUTTI_LENGTH(all); k++) {
                const size_t n = subject_lengths[at];
                char spec[80];
                size_t fixed, huffman, used;
                subject *s;
                subject_fill(n, x, (int)(at % 5), &seed);
                for (size_t i = 0; i < n; i++)
                    x[i] = at % 3 == 0 && i / 128 % 2 == 0 ? 0 : x[i];
                used = (size_t)snprintf(spec, sizeof spec, all[k], bits);
                snprintf(spec + used, sizeof spec - used, ")");
                s = subject_open(spec, n), fixed = subject_round_trip(s, 1, x, y), subject_close(s);
                snprintf(spec + used, sizeof spec - used, ",coding=huffman)");
                s = subject_open(spec, n), huffman = subject_round_trip(s, 1, x, z), subject_close(s);
                for (size_t i = 0; i < n; i++)
                    assert_true(y[i] == z[i]);
                assert_true(huffman <= fixed + ((size_t)1 << (bits - 1)));
                assert_true(k > 0 || n < 2500 || bits > 5 || huffman < fixed);
            }
}

/* The middle of two powers goes to the greater one, and so does that of 0 and the least. The scale
   is the least power of two that is not below the greatest magnitude. A bucket with a number that
   is not finite, or beyond 2^127, is NaN; another is not affected. */
static void e3m0_rounds_to_the_nearest_power(void **state)
{
    static const struct { float x, y; } rows[] = {
        { 1, 1 }, { 0.75f, 1 }, { 0.7499999f, 0.5f }, { -0.375f, -0.5f }, { -0.374f, -0.25f }, { 0.0625f, 0.0625f },
        { 0x1.8p-6f, 0x1p-5f }, { 0x1.7fffp-6f, 0x1p-6f }, { 0x1p-7f, 0x1p-6f }, { -0x1p-7f, -0x1p-6f },
        { 0x1.fffp-8f, 0 }, { -1e-30f, 0 }, { 0, 0 }, { -0.9f, -1 }, { 0.1f, 0.125f }, { 0.6f, 0.5f },
    };
    static const float scales[] = { 1, 0.5f, 1024, 0x1p-60f, 0x1p126f };
    enum { BUCKET = 16 };
    float x[2 * BUCKET], y[2 * BUCKET];
    (void)state;

    assert_int_equal(TUTTI_LENGTH(rows), BUCKET);
    for (size_t k = 0; k < TUTTI_LENGTH(scales); k++)
        for (int greatest = 0; greatest < 2; greatest++)
            for (int bad = 0; bad < 4; bad++) {
                subject *s = subject_open("e3m0(bucket=16)", 2 * BUCKET);
                for (int i = 0; i < BUCKET; i++) {
                    x[i] = scales[k] * rows[i].x;
                    x[BUCKET + i] = bad == 0 ? 0 : 1;
                }
                x[0] = greatest ? x[0] : 0.51f * scales[k]; /* either has this scale */
                x[BUCKET + 3] = (const float[]){ 0, NAN, -INFINITY, 0x1.8p127f }[bad];
                subject_round_trip(s, 0, x, y);
                for (int i = 0; i < BUCKET; i++) {
                    const float wanted = scales[k] * (i > 0 || greatest ? rows[i].y : 0.5f);
                    if (y[i] != wanted)
                        fail_msg("scale %g: %g is decoded to %g, not %g", (double)scales[k], (double)x[i],
                                 (double)y[i], (double)wanted);
                    assert_true(bad == 0 ? y[BUCKET + i] == 0 : isnan(y[BUCKET + i]));
                }
                subject_close(s);
            }
}

static void topk_keeps_the_largest_elements(void **state)
{
    static const double ratios[] = { 0.001, 0.01, 0.25, 1 };
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 15;
    (void)state;

    for (size_t at = 1; at < TUTTI_LENGTH(subject_lengths); at++)
        for (int r = 0; r < 4; r++)
            for (int kind = 0; kind < 5; kind++) {
                const size_t n = subject_lengths[at], k = share(n, ratios[r]);
                char spec[40];
                size_t sent = 0;
                float least = INFINITY, left = 0;
                subject *s;
                snprintf(spec, sizeof spec, "topk(ratio=%g)", ratios[r]);
                s = subject_open(spec, n);
                subject_fill(n, x, kind, &seed);
                subject_round_trip(s, 0, x, y);
                for (size_t i = 0; i < n; i++) {
                    assert_true(y[i] == x[i] || y[i] == 0);
                    if (y[i] != 0)
                        sent++, least = fminf(least, fabsf(y[i]));
                    else
                        left = fmaxf(left, fabsf(x[i]));
                }
                assert_true(sent <= k && least >= left);
                assert_true(subject_loss(n, x, y) <= (1 - (double)k / (double)n) * subject_norm2(n, x) * (1 + 1e-12));
                subject_close(s);
            }
}

/* |x|^2 - |x|_1^2 / n, resp. (2 - 2 rho) |x|^2 */
static void sign_and_onebit_losses_match_the_papers_formulas(void **state)
{
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 16;
    (void)state;

    for (size_t at = 1; at < TUTTI_LENGTH(subject_lengths); at++)
        for (int kind = 0; kind < 5; kind++) {
            const size_t n = subject_lengths[at];
            subject *l1 = subject_open("sign", n), *l2 = subject_open("onebit", n);
            double sum = 0, kept = 0, norm, rho;
            subject_fill(n, x, kind, &seed);
            for (size_t i = 0; i < n; i++)
                sum += fabs((double)x[i]);
            norm = subject_norm2(n, x);
            rho = norm > 0 ? sum / sqrt((double)n * norm) : 1;
            subject_round_trip(l1, 0, x, y);
            assert_true(fabs(subject_loss(n, x, y) - (1 - rho * rho) * norm) <= 1e-6 * norm);
            for (size_t i = 0; i < n; i++) {
                assert_true(x[i] < 0 ? y[i] < 0 : y[i] >= 0); /* the sign of 0 is + */
                kept += fabs((double)y[i]);
            }
            assert_true(fabs(kept - sum) <= 1e-6 * sum); /* the mean magnitude is kept */
            assert_true(n < 2000 || kind != 0 || fabs(subject_loss(n, x, y) / norm / 0.363 - 1) < 0.1);
            subject_round_trip(l2, 0, x, y);
            assert_true(fabs(subject_loss(n, x, y) - (2 - 2 * rho) * norm) <= 1e-6 * norm);
            assert_true(n < 2000 || kind != 0 || fabs(subject_loss(n, x, y) / norm / 0.404 - 1) < 0.1);
            assert_true(fabs(subject_norm2(n, y) - norm) <= 1e-6 * norm);
            assert_int_equal(tutti_codec_traits(l1->codec), TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED);
            assert_int_equal(tutti_codec_traits(l2->codec), TUTTI_CODEC_FIXED);
            subject_close(l1);
            subject_close(l2);
        }
    /* one large element among zeros; of normal ones (rho^2 = 2 / pi) above, within a tenth */
    for (int l2 = 0; l2 < 2; l2++) {
        subject *s = subject_open(l2 ? "onebit" : "sign", 100);
        memset(x, 0, sizeof x);
        x[40] = -2;
        subject_round_trip(s, 0, x, y);
        assert_true(fabs(subject_loss(100, x, y) / 4 - (l2 ? 1.8 : 0.99)) < 1e-5);
        subject_close(s);
    }
}

/* Columns by a second computation, of whole matrices and of parts that begin and end within rows:
   the numbers are the means of either sign in a column of the part, so what a group loses sums to
   0, other numbers would lose more, and what is lost is |x|^2 less what the means keep. Below
   min_rows, and of vectors, all is one column. */
static void onebit_columns_decode_to_the_mean_of_each_sign(void **state)
{
    enum { MOST = 3000 };
    static const struct {
        size_t rows, cols;
    } shapes[] = { { 1, 100 }, { 100, 1 }, { 70, 40 }, { 129, 3 }, { 24, 100 }, { 3, 1000 }, { 7, 1 } };
    static float x[MOST], y[MOST];
    uint64_t seed = 24;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(shapes); k++)
        for (int min_rows = 1; min_rows <= 64; min_rows += 63)
            for (int part = 0; part < 6; part++) {
                const size_t rows = shapes[k].rows, cols = shapes[k].cols, n = rows * cols;
                char spec[40];
                subject *s;
                tutti_view v;
                size_t bytes, columns;
                uint8_t *m;
                snprintf(spec, sizeof spec, "onebit-col(min_rows=%d)", min_rows);
                s = subject_open_as(spec, rows, cols, 0, (tutti_cpu)(part % ((int)tutti_cpu_best() + 1)));
                v = subject_view(s, 1);
                if (part > 0) {
                    v.first = (size_t)(subject_random(&seed) % n),
                    v.count = (size_t)(subject_random(&seed) % (n - v.first)) + 1;
                    v.rows = 1, v.cols = v.count;
                }
                subject_fill(v.count, x, part % 5, &seed);
                m = subject_encode(s, &v, x, &bytes);
                subject_decode(s, &v, m, bytes, y);
                columns = rows > 1 && v.count / cols >= (size_t)min_rows ? cols : 1;
                assert_int_equal(bytes, 8 * columns + (v.count + 7) / 8);
                for (size_t c = 0; c < columns; c++)
                    for (int negative = 0; negative < 2; negative++) {
                        double sum = 0, size = 0, square = 0, loss = 0, off = 0;
                        size_t of = 0;
                        for (size_t i = 0; i < v.count; i++)
                            if ((v.first + i) % columns == c && (x[i] < 0) == (negative == 1)) {
                                assert_true(negative == 1 ? y[i] <= 0 : y[i] >= 0);
                                sum += (double)x[i], size += fabs((double)x[i]), square += (double)x[i] * x[i],
                                    loss += pow((double)x[i] - (double)y[i], 2), off += (double)x[i] - (double)y[i],
                                    of++;
                            }
                        if (of > 0 &&
                            (fabs(off) > 1e-6 * size || fabs(loss - (square - sum * sum / (double)of)) > 1e-6 * square))
                            fail_msg("%s of %zu x %zu, %zu from %zu on, column %zu, sign %d: is off by %g and loses %g",
                                     spec, rows, cols, v.count, v.first, c, negative, off, loss);
                    }
                free(m);
                subject_close(s);
            }
}

static void vote_and_column_decoders_reject_invalid_messages(void **state)
{
    static float y[128 * 2];
    uint8_t m[48] = { 0 };
    tutti_error err;
    subject *s = subject_open("sign-vote", 10);
    tutti_view v = subject_view(s, 0);
    (void)state;

    m[1] = 1 << 3;
    assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, 2, 1, y, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "codec 'sign-vote': bits are set behind the last of 10 elements; the message was "
                                  "damaged or is another codec's");
    subject_close(s);
    s = subject_open_as("onebit-col", 128, 2, 0, TUTTI_CPU_AVX512);
    v = subject_view(s, 0);
    tutti_codec_put_f32(m + 8, -1);
    assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, 48, 1, y, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text,
                        "codec 'onebit-col': column 2 of 2 has the means -1 and 0, and one is of numbers of 0 or more, "
                        "the other of negative ones; the message was damaged or is another codec's");
    tutti_codec_put_f32(m + 8, NAN);
    assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, 48, 1, y, &err), TUTTI_ERR_CORRUPT);
    tutti_codec_put_f32(m + 12, NAN); /* a column that was not finite */
    assert_int_equal(s->codec->ops->decode_add(s->codec, &v, m, 48, 1, y, &err), TUTTI_OK);
    for (int i = 0; i < 256; i++)
        assert_int_equal(isnan(y[i]) != 0, i % 2);
    subject_close(s);
}

/* The majority, whichever worker votes first; the sign of 0 and a tie are +; a minority that
   votes against all others changes nothing. The second message, an owner's, changes no vote. */
static void the_majority_of_signs_decides(void **state)
{
    enum { N = 500 };
    static float g[4][N], y[4][N], first[N];
    uint64_t seed = 25;
    (void)state;

    for (int workers = 1; workers <= 4; workers++)
        for (int again = 0; again < 2; again++) {
            subject *s[4];
            for (int w = 0; w < workers; w++) {
                s[w] = subject_open_as("sign-vote", 1, N, w, TUTTI_CPU_AVX512);
                subject_fill(N, g[w], w % 2 == 0 ? 3 : 0, &seed); /* zeros among them */
            }
            subject_exchange(s, workers, 0, again, (float *[]){ g[0], g[1], g[2], g[3] },
                             (float *[]){ y[0], y[1], y[2], y[3] });
            for (int i = 0; i < N; i++) {
                int votes = 0;
                for (int w = 0; w < workers; w++)
                    votes += g[w][i] < 0 ? -1 : 1;
                for (int w = 0; w < workers; w++)
                    assert_true(y[w][i] == (votes < 0 ? -1 : 1));
            }
            memcpy(first, y[0], sizeof first);
            subject_exchange(s, workers, 1, again,
                             (float *[]){ g[workers - 1], g[workers > 2 ? 1 : 0], g[workers > 3 ? 2 : 0], g[0] },
                             (float *[]){ y[0], y[1], y[2], y[3] });
            assert_memory_equal(y[0], first, sizeof first);
            for (int i = 0; i < N && workers > 2; i++) /* all but one of one mind, and one against them */
                for (int w = 1; w < workers; w++)
                    g[w][i] = w == 1 ? -3 * g[0][i] - (g[0][i] == 0) : g[0][i];
            subject_exchange(s, workers, 2, again, (float *[]){ g[0], g[1], g[2], g[3] },
                             (float *[]){ y[0], y[1], y[2], y[3] });
            for (int i = 0; i < N && workers > 2; i++)
                assert_true(y[0][i] == (g[0][i] < 0 ? -1 : 1));
            g[0][17] = NAN;
            subject_exchange(s, workers, 3, again, (float *[]){ g[0], g[1], g[2], g[3] },
                             (float *[]){ y[0], y[1], y[2], y[3] });
            for (int i = 0; i < N; i++)
                assert_true(isnan(y[workers - 1][i])); /* all learn of it */
            for (int w = 0; w < workers; w++)
                subject_close(s[w]);
        }
}

/* What comes out of a vote: 1 where its mean is 0 (of either sign), positive, or infinite; -1
   where it is negative; NaN where it is NaN, and nowhere else. */
static void a_vote_is_the_sign_of_its_mean(void **state)
{
    static const float special[] = { 0, -0.0f, INFINITY, -INFINITY, 1e-45f, -1e-45f, NAN };
    enum { N = 10007 };
    static float mean[N], y[N];
    uint64_t seed = 26;
    (void)state;

    for (size_t kinds = 0; kinds <= TUTTI_LENGTH(special); kinds++) {
        subject *s = subject_open_as("sign-vote", 1, N, 0, kinds % 2 ? TUTTI_CPU_SCALAR : TUTTI_CPU_AVX512);
        const tutti_view v = subject_view(s, 0);
        subject_fill(N, mean, 0, &seed);
        for (size_t i = 0; i < 20 * kinds; i++) /* some stretches have none */
            mean[subject_random(&seed) % N] = special[i % kinds];
        memcpy(y, mean, sizeof y);
        s->codec->ops->after(s->codec, &v, y);
        for (int i = 0; i < N; i++)
            assert_true(isnan(mean[i]) ? isnan(y[i]) : y[i] == (mean[i] < 0 ? -1 : 1));
        subject_close(s);
    }
}

static void eight_bits_err_by_half_a_step_at_most(void **state)
{
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 18;
    (void)state;

    for (size_t at = 1; at < TUTTI_LENGTH(subject_lengths); at++)
        for (int kind = 0; kind < 5; kind++) {
            const size_t n = subject_lengths[at];
            subject *i8 = subject_open("int8(bucket=0)", n), *mm = subject_open("minmax8", n);
            const float shift = kind == 0 ? 1000 : 0, by = kind == 1 ? 1e-30f : 1;
            double low = INFINITY, high = -INFINITY, most = 0;
            subject_fill(n, x, kind, &seed);
            for (size_t i = 0; i < n; i++) {
                x[i] = x[i] * by + shift;
                low = fmin(low, (double)x[i]), high = fmax(high, (double)x[i]), most = fmax(most, fabs((double)x[i]));
            }
            subject_round_trip(i8, 0, x, y);
            for (size_t i = 0; i < n; i++) {
                assert_true(fabs((double)x[i] - y[i]) <= most / 254 * (1 + 1e-4));
                assert_true(fabs((double)x[i]) != most || x[i] == y[i]);
            }
            assert_true(subject_loss(n, x, y) <= (1 - 1 / (double)n) * subject_norm2(n, x) * (1 + 1e-6) + 1e-300);
            subject_round_trip(mm, 0, x, y);
            for (size_t i = 0; i < n; i++) {
                assert_true(fabs((double)x[i] - y[i]) <= (high - low) / 510 * (1 + 1e-4) + 3e-7 * most);
                assert_true(kind != 4 || x[i] == y[i]); /* equal numbers are exact */
                assert_true(((double)x[i] != low && (double)x[i] != high) || x[i] == y[i]);
            }
            subject_close(i8);
            subject_close(mm);
        }
}

static void threshold_sends_what_reaches_it(void **state)
{
    float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST];
    uint64_t seed = 19;
    (void)state;

    for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++) {
        const size_t n = subject_lengths[at];
        subject *s = subject_open("threshold(value=0.5)", n);
        size_t sent = 0;
        subject_fill(n, x, 0, &seed);
        if (n > 1)
            x[1] = -0.5f;
        for (size_t i = 0; i < n; i++)
            sent += fabsf(x[i]) >= 0.5f;
        assert_int_equal(subject_round_trip(s, 0, x, y), 8 * sent);
        for (size_t i = 0; i < n; i++)
            assert_true(y[i] == (fabsf(x[i]) >= 0.5f ? x[i] : 0));
        subject_close(s);
    }
}

/* lambda from the message; the optimum by sorting, as the paper's algorithm 2 has it. */
static double lambda_of(subject *s, const float *x, size_t *kept)
{
    const tutti_view v = subject_view(s, 0);
    size_t bytes;
    uint8_t *m = subject_encode(s, &v, x, &bytes);
    const double lambda = 1 / (double)tutti_codec_get_f32(m + 8);

    *kept = tutti_codec_get_u32(m);
    assert_int_equal(bytes, 12 + 8 * *kept + 4 * (size_t)tutti_codec_get_u32(m + 4));
    free(m);
    return lambda;
}

static int descending(const void *a, const void *b)
{
    return (*(const double *)a < *(const double *)b) - (*(const double *)a > *(const double *)b);
}

static void wangni_probabilities_are_the_optimum(void **state)
{
    enum { N = 1000 };
    float x[N];
    double m[N];
    uint64_t seed = 20;
    (void)state;

    for (int round = 0; round < 40; round++) {
        const double epsilon = (const double[]){ 0.05, 0.5, 2, 20 }[round % 4];
        double g2, s1 = 0, s2 = 0, p = 0, variance = 0, wanted, lambda, greedy;
        char spec[80];
        size_t k = 0, kept;
        subject *s;
        subject_fill(N, x, round % 2, &seed);
        g2 = subject_norm2(N, x);
        for (size_t i = 0; i < N; i++)
            m[i] = fabs((double)x[i]), s1 += m[i], s2 += m[i] * m[i];
        qsort(m, N, sizeof *m, descending);
        for (; k < N && m[k] * s1 > epsilon * g2 + s2; k++) /* the smallest k with |g_(k+1)| S1 <= eps G2 + S2 */
            s1 -= m[k], s2 -= m[k] * m[k];
        wanted = s1 / (epsilon * g2 + s2);
        snprintf(spec, sizeof spec, "wangni(solver=closed,epsilon=%g)", epsilon);
        s = subject_open(spec, N), lambda = lambda_of(s, x, &kept), subject_close(s);
        assert_true(fabs(lambda / wanted - 1) < 1e-6);
        assert_int_equal(kept, k);
        for (size_t i = 0; i < N; i++) {
            const double q = fmin(lambda * fabs((double)x[i]), 1);
            p += q;
            variance += x[i] == 0 ? 0 : (double)x[i] * x[i] / q;
        }
        assert_true(fabs(variance / ((1 + epsilon) * g2) - 1) < 1e-6); /* the budget is used up */
        snprintf(spec, sizeof spec, "wangni(sparsity=%.17g)", p / N);
        s = subject_open(spec, N), greedy = lambda_of(s, x, &kept), subject_close(s);
        assert_true(fabs(greedy / lambda - 1) < 1e-5); /* both solvers agree at the same expected number */
    }
}

static void wangni_keeps_everything_when_all_probabilities_are_one(void **state)
{
    float x[50], y[50];
    uint64_t seed = 21;
    static const char *const all[] = { "wangni(sparsity=1)", "wangni(solver=closed,epsilon=0)" };
    (void)state;

    for (int k = 0; k < 2; k++) {
        subject *s = subject_open(all[k], 50);
        subject_fill(50, x, 0, &seed);
        subject_round_trip(s, 0, x, y);
        for (size_t i = 0; i < 50; i++)
            assert_true(x[i] == y[i]);
        memset(x, 0, sizeof x);
        assert_int_equal(subject_round_trip(s, 0, x, y), 12);
        subject_close(s);
    }
}

/* Each element is 2^-1.2 of the one before, so that the set of those with p = 1 grows by one or two
   a round: more than a hundred rounds lead to the optimum,
   and to everything where everything is asked for. Zeros are never sent. */
static void wangni_iterates_until_the_selection_is_stable(void **state)
{
    enum { N = 200 };
    static const struct { const char *spec; double epsilon, sparsity; } rows[] = {
        { "wangni(solver=closed,epsilon=0)", 0, -1 }, { "wangni(sparsity=1)", -1, 1 },
        { "wangni(solver=closed,epsilon=1e-60)", 1e-60, -1 },
        { "wangni(solver=closed,epsilon=1e-90)", 1e-90, -1 }, { "wangni(sparsity=0.9)", -1, 0.9 },
    };
    float x[N + 3] = { 0 }, y[N + 3];
    (void)state;

    for (int i = 0; i < N; i++)
        x[i + 1 + (i > 50)] = (float)((i % 3 == 0 ? -1 : 1) * exp2(120 - 1.2 * i)); /* a zero among them */
    for (size_t r = 0; r < TUTTI_LENGTH(rows); r++) {
        subject *s = subject_open(rows[r].spec, N + 3);
        size_t kept, wanted = N;
        const double lambda = lambda_of(s, x, &kept);
        double variance = 0, p = 0, g2 = subject_norm2(N + 3, x);
        for (size_t i = 0; i < N + 3; i++)
            if (x[i] != 0) {
                const double q = kept == N ? 1 : fmin(lambda * fabs((double)x[i]), 1);
                variance += (double)x[i] * x[i] / q - (double)x[i] * x[i];
                p += q;
            }
        if (rows[r].epsilon > 0) /* the least k with |g_(k+1)| S1 <= eps G2 + S2, summed from the least element on */
            for (double s1 = 0, s2 = 0; wanted > 0; wanted--) {
                const double m = fabs((double)x[wanted + (wanted > 51)]);
                s1 += m, s2 += m * m;
                if (m * s1 > rows[r].epsilon * g2 + s2)
                    break;
            }
        if (rows[r].sparsity < 0 || rows[r].sparsity == 1)
            assert_int_equal(kept, wanted);
        else
            assert_true(fabs(p - 0.9 * (N + 3)) < 1e-3);
        assert_true(rows[r].epsilon <= 0 || (kept > 70 && kept < N &&
                fabs(variance / (rows[r].epsilon * g2) - 1) < 1e-5));
        subject_round_trip(s, 0, x, y);
        for (size_t i = 0; i < N + 3 && kept == N; i++)
            assert_true(x[i] == y[i]);
        subject_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elias_messages_decode_like_fixed_width_ones),
        cmocka_unit_test(huffman_codes_are_within_one_bit_of_the_entropy),
        cmocka_unit_test(huffman_messages_decode_like_fixed_width_ones),
        cmocka_unit_test(e3m0_rounds_to_the_nearest_power),
        cmocka_unit_test(topk_keeps_the_largest_elements),
        cmocka_unit_test(sign_and_onebit_losses_match_the_papers_formulas),
        cmocka_unit_test(onebit_columns_decode_to_the_mean_of_each_sign),
        cmocka_unit_test(vote_and_column_decoders_reject_invalid_messages),
        cmocka_unit_test(the_majority_of_signs_decides),
        cmocka_unit_test(a_vote_is_the_sign_of_its_mean),
        cmocka_unit_test(eight_bits_err_by_half_a_step_at_most),
        cmocka_unit_test(threshold_sends_what_reaches_it),
        cmocka_unit_test(wangni_probabilities_are_the_optimum),
        cmocka_unit_test(wangni_keeps_everything_when_all_probabilities_are_one),
        cmocka_unit_test(wangni_iterates_until_the_selection_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
