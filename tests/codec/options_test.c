/* Goal: what options other than the papers' defaults promise: multipliers and levels of NUQSGD,
   what ALQ's fits see and where they end, what becomes of a residual when the learning rate
   changes, whose norms Accordion compares. Method: against second computations that do not share
   code, against other codecs that must then be the same to the byte, over many draws. */
#include "subject.h"

#include "codec/regime.h"
#include "codec/codec_internal.h"
#include "codec/mixture.h"
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"
#include "kernels/codes.h"

/* ---- nuqsgd ---- */
/* With no zero they are AMQ's before its first fit, to the byte. */
static void powers_without_a_zero_are_amqs_first_levels(void **state)
{
    enum { N = 3000 };
    static float x[N];
    uint64_t seed = 1;

    (void)state;
    for (int bits = 3; bits <= 5; bits++) {
        char one[100], two[100];
        subject *a, *b;
        snprintf(one, sizeof one, "nuqsgd(bits=%d,bucket=512,zero_level=off)", bits);
        snprintf(two, sizeof two, "amq(bits=%d,bucket=512,first=0,second=0,every=0,on_lr_drop=off,initial=powers)",
                 bits);
        a = subject_open(one, N), b = subject_open(two, N);
        for (uint64_t step = 0; step < 3; step++) {
            const tutti_view v = subject_view(a, step);
            size_t p, q;
            uint8_t *m, *n;
            subject_fill(N, x, (int)step % 2, &seed);
            m = subject_encode(a, &v, x, &p), n = subject_encode(b, &v, x, &q);
            assert_int_equal(p, q);
            assert_memory_equal(m, n, p);
            free(m), free(n);
        }
        subject_close(a), subject_close(b);
    }
}

static void any_multiplier_rounds_to_its_powers_without_bias(void **state)
{
    enum { N = 512, DRAWS = 4000 };
    static const struct { const char *spec; double p; int positive; bool zero; } rows[] = {
        { "nuqsgd(bits=3,bucket=512,multiplier=0.2)", 0.2, 3,
          true }, { "nuqsgd(bits=4,bucket=512,multiplier=0.7,norm=max)", 0.7, 7, true },
        { "nuqsgd(bits=3,bucket=512,multiplier=0.3,zero_level=off)", 0.3, 4,
          false }, { "nuqsgd(bits=4,bucket=512,multiplier=0.6,coding=huffman)", 0.6, 7, true },
    };
    static float x[N], y[N];
    static double sum[N], square[N];
    uint64_t seed = 2;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open(rows[k].spec, N);
        double scale;
        size_t zeros = 0;
        subject_fill(N, x, 0, &seed);
        x[7] = 0;
        scale = sqrt(subject_norm2(N, x));
        for (size_t i = 0; i < N && strstr(rows[k].spec, "max") != NULL; i++)
            scale = i == 0 ? fabs((double)x[0]) : fmax(scale, fabs((double)x[i]));
        memset(sum, 0, sizeof sum), memset(square, 0, sizeof square);
        for (int draw = 0; draw < DRAWS; draw++) {
            subject_round_trip(s, (uint64_t)draw, x, y);
            for (size_t i = 0; i < N; i++) {
                const double r = fabs((double)y[i]) / scale;
                double level = 1;
                int j = 0;
                for (; j < rows[k].positive + (y[i] < 0 && rows[k].zero) && fabs(r / level - 1) > 1e-5; j++)
                    level *= rows[k].p;
                if (j == rows[k].positive + (y[i] < 0 && rows[k].zero) && !(rows[k].zero && y[i] == 0))
                    fail_msg("%s: %g is no power of %g", rows[k].spec, r, rows[k].p);
                zeros += y[i] == 0;
                sum[i] += (double)y[i];
                square[i] += (double)y[i] * y[i];
            }
            assert_true(!rows[k].zero || y[7] == 0);
        }
        assert_true((zeros > 0) == rows[k].zero);
        for (size_t i = 0; i < N; i++) {
            const double mean = sum[i] / DRAWS, error = sqrt(fmax(square[i] / DRAWS - mean * mean, 0) / DRAWS);
            /* of 512; and half of what sixteen bits resolve */
            if (!(fabs(mean - (double)x[i]) <= 5.5 * error + 2e-5 * scale))
                fail_msg("%s, element %zu: %g on average, not %g (standard error %g)", rows[k].spec, i, mean,
                         (double)x[i], error);
        }
        subject_close(s);
    }
}

/* ---- levels and tails ---- */
/* As many as bits hold are what `bits` gives, to the byte; any other number takes the fewest bits
   that hold it. */
static void levels_travel_in_as_few_bits_as_hold_them(void **state)
{
    enum { N = 3000 };
    static const char *const also[] = { "", ",norm=l2", ",coding=elias", ",coding=huffman,tail=dense" };
    static float x[N], y[N];
    uint64_t seed = 9;

    (void)state;
    for (int levels = 1; levels <= 127; levels++) {
        const char *more = also[levels % (int)TUTTI_LENGTH(also)];
        int bits = 2;
        char one[100], two[100];
        subject *a, *b;
        tutti_view v;
        size_t p, q;
        uint8_t *m, *n;
        while (levels >= 1 << (bits - 1))
            bits++;
        snprintf(one, sizeof one, "qsgd(levels=%d,bucket=256%s)", levels, more),
            snprintf(two, sizeof two, "qsgd(bits=%d,bucket=256%s)", bits, more);
        a = subject_open(one, N), b = subject_open(two, N), v = subject_view(a, 3);
        subject_fill(N, x, levels % 2, &seed);
        m = subject_encode(a, &v, x, &p), n = subject_encode(b, &v, x, &q);
        if (strstr(more, "coding") == NULL)
            assert_int_equal(p, q);
        if (levels == (1 << (bits - 1)) - 1) {
            assert_int_equal(p, q);
            assert_memory_equal(m, n, p);
        }
        subject_decode(a, &v, m, p, y);
        for (size_t i = 0; i < N / 256 * 256; i++) { /* a level, counted in double */
            double most = 0, scale;
            for (size_t k = i / 256 * 256; k < (i / 256 + 1) * 256; k++)
                most = fmax(most, fabs((double)x[k]));
            scale = levels % 4 == 1 ? sqrt(subject_norm2(256, x + i / 256 * 256)) : most;
            if (fabs((double)y[i] / scale * levels - nearbyint((double)y[i] / scale * levels)) > 2e-5 ||
                fabs((double)y[i]) > scale * (1 + 1e-6) || fabs((double)y[i] - x[i]) > scale / levels * (1 + 1e-3))
                fail_msg("%s: %g of %g became %g", one, (double)x[i], scale, (double)y[i]);
            if (fabs((double)x[i]) == scale)
                assert_true(y[i] == x[i]);
        }
        free(m), free(n);
        subject_close(a), subject_close(b);
    }
}

/* tail=dense: the last elements of a tensor are exact where they fill no bucket, and full buckets
   are the same as with tail=short, to the byte; nothing changes where all buckets are full. In a
   part of a tensor that is not its end the last bucket is short. */
static void a_dense_tail_is_exact_and_touches_nothing_else(void **state)
{
    static const struct {
        const char *spec;
        size_t bits;
    } rows[] = { { "nuqsgd(bits=4,bucket=64%s)", 4 },
                 { "alq(bits=3,bucket=64%s)", 3 },
                 { "amq(bits=2,bucket=64%s)", 2 },
                 { "qsgd(bits=5,bucket=64%s)", 5 } };
    static const size_t lengths[] = { 0, 1, 63, 64, 65, 128, 640, 700 };
    float x[700], y[700], z[700];
    uint64_t seed = 10;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (size_t at = 0; at < TUTTI_LENGTH(lengths); at++) {
            const size_t n = lengths[at], whole = n / 64 * 64;
            char spec[80];
            subject *s[2];
            tutti_view v;
            size_t bytes[2];
            uint8_t *m[2];
            subject_fill(n, x, 0, &seed);
            for (int dense = 0; dense < 2; dense++) {
                snprintf(spec, sizeof spec, rows[k].spec, dense ? ",tail=dense" : "");
                s[dense] = subject_open(spec, n);
            }
            v = subject_view(s[0], 4);
            for (int dense = 0; dense < 2; dense++) {
                m[dense] = subject_encode(s[dense], &v, x, &bytes[dense]);
                subject_decode(s[dense], &v, m[dense], bytes[dense], dense ? y : z);
            }
            assert_int_equal(bytes[1], 4 * (whole / 64) + whole / 8 * rows[k].bits + 4 * (n - whole));
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == (i < whole ? z[i] : x[i]));
            assert_true(n != whole || (bytes[0] == bytes[1] && memcmp(m[0], m[1], bytes[0]) == 0));
            free(m[0]), free(m[1]);
            if (n > 100) { /* an owner's part */
                v.count = v.cols = 100;
                for (int dense = 0; dense < 2; dense++)
                    m[dense] = subject_encode(s[dense], &v, x, &bytes[dense]);
                assert_int_equal(bytes[0], bytes[1]);
                assert_memory_equal(m[0], m[1], bytes[0]);
                free(m[0]), free(m[1]);
            }
            subject_close(s[0]), subject_close(s[1]);
        }
}

/* coding=elias, omega: the same numbers as with fixed width, in exactly the bits of Elias's codes
   of each level's place in this order: the bucket's most frequent one first, then by turns one
   above and one below. */
static void elias_codes_count_from_the_most_frequent_level(void **state)
{
    static const struct { const char *spec; bool exponents;
    } rows[] = {
        { "nuqsgd(bits=%d,bucket=128", true },
        { "nuqsgd(bits=%d,bucket=128,norm=max", true },
        { "nuqsgd(bits=%d,bucket=128,multiplier=0.9", false },
        { "nuqsgd(bits=%d,bucket=128,multiplier=0.9,zero_level=off,norm=max", false },
    };
    static float x[SUBJECT_LONGEST], y[SUBJECT_LONGEST], z[SUBJECT_LONGEST];
    uint64_t seed = 45;
    bool elsewhere = false;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (int bits = 3; bits <= 8; bits++)
            for (size_t at = 0; at < TUTTI_LENGTH(subject_lengths); at++)
                for (int omega = 0; omega < 2; omega++) {
                    const size_t n = subject_lengths[at], buckets = (n + 127) / 128;
                    const tutti_codec_coding code = omega ? TUTTI_CODEC_OMEGA : TUTTI_CODEC_GAMMA;
                    const int half = 1 << (bits - 1);
                    size_t bytes, wanted = 0;
                    char spec[100];
                    uint8_t *fixed, *m;
                    subject *s;
                    tutti_view v;
                    subject_fill(n, x, (int)(at % 5), &seed);
                    for (size_t i = 0; i < n; i++)
                        x[i] = at % 3 == 0 && i / 128 % 2 == 0 ? 0 : x[i];
                    snprintf(spec + snprintf(spec, sizeof spec, rows[k].spec, bits), 8, ")");
                    s = subject_open(spec, n), v = subject_view(s, 1);
                    fixed = subject_encode(s, &v, x, &bytes);
                    subject_decode(s, &v, fixed, bytes, y);
                    subject_close(s);
                    for (size_t b = 0; b < buckets; b++) {
                        size_t seen[128] = { 0 }, signs = 0, dense, sparse = 0, last = b * 128 - 1;
                        int origin = 0, places = 0;
                        wanted += 32;
                        if (!(tutti_codec_get_f32(fixed + 4 * b) > 0))
                            continue;
                        for (size_t i = b * 128; i < n && i < (b + 1) * 128; i++) {
                            int c = 0, level;
                            for (int j = 0; j < bits; j++)
                                c |= (fixed[4 * buckets + (i * (size_t)bits + (size_t)j) / 8] >>
                                          (i * (size_t)bits + (size_t)j) % 8 &
                                      1)
                                     << j;
                            level = rows[k].exponents ? c % half : c < half ? half - 1 - c : c - half;
                            seen[level]++;
                            signs += level > 0 || !rows[k].exponents;
                            if (level > 0) {
                                sparse += (size_t)tutti_codec_elias_length(code, (uint32_t)(i - last)) + 1 +
                                          (size_t)tutti_codec_elias_length(code, (uint32_t)level);
                                last = i;
                            }
                        }
                        sparse += (size_t)tutti_codec_elias_length(
                            code, (uint32_t)((n < (b + 1) * 128 ? n : (b + 1) * 128) - last));
                        for (int l = 1; l < half; l++)
                            origin = seen[l] > seen[origin] ? l : origin;
                        elsewhere = elsewhere || origin > 1;
                        dense = (size_t)tutti_codec_elias_length(code, (uint32_t)origin + 1) + signs;
                        for (int away = 0; away < half; away++)
                            for (int side = 0; side < (away > 0 ? 2 : 1); side++) {
                                const int l = side == 0 ? origin + away : origin - away;
                                if (l >= 0 && l < half)
                                    dense += seen[l] * (size_t)tutti_codec_elias_length(code, (uint32_t)++places);
                            }
                        assert_int_equal(places, half);
                        wanted += rows[k].exponents && sparse < dense ? sparse : dense;
                    }
                    snprintf(spec + snprintf(spec, sizeof spec, rows[k].spec, bits), 16, ",coding=%s)",
                             omega ? "omega" : "elias");
                    s = subject_open(spec, n), v = subject_view(s, 1);
                    m = subject_encode(s, &v, x, &bytes);
                    if (bytes != (wanted + 7) / 8 || bytes > s->codec->ops->bound(s->codec, &v))
                        fail_msg("%s of %zu: %zu bytes, formula %zu, bound %zu", spec, n, bytes, (wanted + 7) / 8,
                                 s->codec->ops->bound(s->codec, &v));
                    subject_decode(s, &v, m, bytes, z);
                    for (size_t i = 0; i < n; i++)
                        assert_true(y[i] == z[i]);
                    free(fixed), free(m);
                    subject_close(s);
                }
    assert_true(elsewhere); /* else they need not have an origin */
}

static void elias_heads_that_no_encoder_writes_are_refused(void **state)
{
    /* the scale 1, then an origin */
    static const struct { const char *spec; uint8_t bytes[8]; const char *words;
    } rows[] = {
        /* gamma of 5: 00 1 10 */
        { "nuqsgd(bits=3,coding=elias)",
          { 0, 0, 0x80, 0x3f, 0x04 | 0x08, 0xff, 0xff },
          "element 1 of 8 in a message of 8 bytes: the origin of its bucket's levels is beyond the greatest" },
        { "nuqsgd(bits=3,coding=elias)",
          { 0, 0, 0x80, 0x3f, 0, 0, 0, 0 },
          "the origin of its bucket's levels is beyond the greatest" },
        /* the sparse form */
        { "nuqsgd(bits=3,zero_level=off,coding=omega)",
          { 0, 0, 0x80, 0xbf, 0, 0, 0, 0 },
          "its bucket has no valid scale" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        subject *s = subject_open(rows[k].spec, 8);
        const tutti_view v = subject_view(s, 1);
        float y[8] = { 0 };
        tutti_error err = { 0 };
        assert_int_equal(s->codec->ops->decode_add(s->codec, &v, rows[k].bytes, 8, 1, y, &err), TUTTI_ERR_CORRUPT);
        if (strstr(err.text, rows[k].words) == NULL)
            fail_msg("%s: %s", rows[k].spec, err.text);
        subject_close(s);
    }
}

static void invalid_codec_options_are_rejected(void **state)
{
    static const struct { const char *spec, *words;
    } rows[] = {
        { "qsgd(bits=1)",
          "bits is 1, and a sign and at least one level above 0 take 2; signs alone are codec sign, or onebit" },
        { "qsgd(bits=4,levels=7)", "bits is 4 and levels is 7, and either determines the other" },
        { "qsgd(levels=128)",
          "'levels' is 128; it must be from 0 to 127 (s, the number of levels above 0, instead of bits; 8 bits hold "
          "no more than 127" },
        { "qsgd(levels=-1)", "'levels' is -1" },
        { "nuqsgd(bits=2)",
          "'bits' is 2; it must be from 3 to 8 (bits of an element with its sign; two would be ternary, which is "
          "qsgd(bits=2))" },
        { "nuqsgd(tail=long)", "short or dense" },
        { "nuqsgd(bits=8,multiplier=0.01)",
          "multiplier is 0.01, and with 8 bits its first 127 powers lie closer than 32-bit numbers can distinguish; "
          "take fewer bits, or a multiplier of about 0.9" },
        { "nuqsgd(multiplier=1)", "'multiplier' is 1" },
        { "nuqsgd(multiplier=0)", "'multiplier' is 0" },
        { "alq(zero_level=on,symmetric=on)", "'symmetric'" },
        { "alq(components=513)", "513" },
        { "alq(samples=0)", "'samples' is 0" },
        { "topk(warmup_ratios=0.25:x)", "warmup_ratios is '0.25:x', and it is a list of shares" },
        { "topk(warmup_ratios=0.25:)", "list of shares" },
        { "topk(warmup_ratios=0)", "list of shares" },
        { "topk(warmup_ratios=75:93.75)",
          "warmup_ratios: epoch 0 has 75 after 1; they are shares of what is sent, which come down from at most 1" },
        { "topk(warmup_ratios=0.25:0.5)", "warmup_ratios: epoch 1 has 0.5 after 0.25" },
        { "topk(ratio=0.1,warmup_ratios=0.5:0.05)",
          "warmup_ratios ends with 0.05, which is less than ratio, 0.1, that follows it" },
        { "topk(warmup=2,warmup_ratios=0.5)",
          "warmup is 2 epochs, and warmup_ratios gives the ratio of each of 1; give only one of them" },
        { "alq(sweeps=0)", "'sweeps' is 0" },
        { "ef(topk,decay=1.5)", "'decay' is 1.5" },
        { "accordion(low=topk,high=topk,unit=step,norm_window=interval)", "'norm_window'" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_view tensor = { .count = 100, .rows = 1, .cols = 100 };
        const tutti_codec_space space = { .n = 100, .tensor = &tensor, .n_tensors = 1, .workers = 1 };
        tutti_codec *c = NULL;
        tutti_plan *plan;
        tutti_error err = { 0 };
        assert_int_equal(tutti_plan_open(&plan, 100, NULL), TUTTI_OK);
        assert_int_equal(tutti_codec_declare(&c, plan, rows[k].spec, "codec", &space, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, rows[k].words) == NULL)
            fail_msg("%s: %s", rows[k].spec, err.text);
        tutti_plan_close(plan);
    }
}

/* ---- alq ---- */
/* Of four steps before the fit: root mean square of norms, mean and deviation of all normalised
   elements. Steps before them are no part of it. */
static void a_fit_uses_exactly_the_sampled_steps(void **state)
{
    enum { BUCKET = 256, BUCKETS = 5, N = BUCKET * BUCKETS, FIT = 6, SAMPLES = 4 };
    subject *s = subject_open("alq(bucket=256,first=6,second=0,every=0,samples=4,initial=powers)", N);
    subject_said h = { .n = 0 };
    const float *of = subject_state(s, "codec.buckets", TUTTI_OWN_ZERO),
                *seen = subject_state(s, "codec.seen", TUTTI_OWN_ZERO);
    static double norm[BUCKETS], sum[BUCKETS], squares[BUCKETS];
    static float x[N];
    uint64_t seed = 3;

    (void)state;
    s->space.workers = 1;
    for (uint64_t step = 0; step <= FIT; step++) {
        const tutti_view v = subject_view(s, step);
        size_t bytes;
        if (step == FIT)
            for (size_t b = 0; b < BUCKETS; b++) {
                const double mean = sum[b] / (SAMPLES * BUCKET),
                             deviation = sqrt(squares[b] / (SAMPLES * BUCKET) - mean * mean);
                assert_true(seen[b] == SAMPLES);
                /* n - 1 for n */
                if (!(fabs((double)of[3 * b] / sqrt(norm[b] / SAMPLES) - 1) < 1e-6) ||
                    !(fabs((double)of[3 * b + 1] - mean) < 1e-6) ||
                    !(fabs((double)of[3 * b + 2] / deviation - 1) < 0.003))
                    fail_msg("bucket %zu: %g %g %g, not %g %g %g", b, (double)of[3 * b], (double)of[3 * b + 1],
                             (double)of[3 * b + 2], sqrt(norm[b] / SAMPLES), mean, deviation);
            }
        subject_begin(&s, 1, step, 0, 0.1, &h);
        assert_int_equal(h.n, step == FIT);
        subject_fill(N, x, step % 2 == 0 ? 0 : 1, &seed);
        for (size_t i = 0; i < N; i++)
            x[i] = x[i] * (float)(step + 1) + 0.1f * (float)step; /* of another size and mean each */
        for (size_t b = 0; b < BUCKETS && step >= FIT - SAMPLES && step < FIT; b++) {
            const double square = subject_norm2(BUCKET, x + b * BUCKET);
            norm[b] += square;
            for (size_t i = b * BUCKET; i < (b + 1) * BUCKET; i++) {
                sum[b] += x[i] / sqrt(square);
                squares[b] += (double)x[i] * x[i] / square;
            }
        }
        free(subject_encode(s, &v, x, &bytes));
    }
    subject_close(s);
}

/* The rate falls before step 3: fitted after two steps at the new one, though the
   schedule asks for one in between. */
static void a_learning_rate_drop_delays_the_next_fit(void **state)
{
    subject *s = subject_open("alq(bucket=64,first=4,second=9,every=0,samples=2,initial=powers)", 512);
    subject_said h = { .n = 0 };
    static float x[512];
    uint64_t seed = 4;
    int at[8] = { 0 };

    (void)state;
    s->space.workers = 1;
    for (uint64_t step = 0; step < 12; step++) {
        const tutti_view v = subject_view(s, step);
        size_t bytes;
        const int said = h.n;
        subject_begin(&s, 1, step, 0, step < 3 ? 0.1 : 0.04, &h);
        if (h.n > said)
            at[said] = (int)step;
        subject_fill(512, x, 0, &seed);
        free(subject_encode(s, &v, x, &bytes));
    }
    assert_true(h.n == 2 && at[0] == 5 && at[1] == 9);
    subject_close(s);
}

static void symmetric_option_gives_paired_levels(void **state)
{
    static float x[4096];
    uint64_t seed = 5;

    (void)state;
    for (int symmetric = 0; symmetric < 2; symmetric++)
        for (int gd = 0; gd < 2; gd++) {
            char spec[120];
            subject *s;
            subject_said h = { .n = 0 };
            const float *level;
            double apart = 0, from, to;
            snprintf(spec, sizeof spec,
                     "alq(bucket=512,first=1,second=0,every=0,initial=powers,variant=%s,symmetric=%s)",
                     gd ? "gd" : "cd", symmetric ? "on" : "off");
            s = subject_open(spec, 4096);
            s->space.workers = 1;
            subject_fill(4096, x, 0, &seed);
            for (size_t i = 0; i < 4096; i++)
                x[i] = x[i] + 0.7f; /* skewed */
            for (uint64_t step = 0; step < 2; step++) {
                const tutti_view v = subject_view(s, step);
                size_t bytes;
                subject_begin(&s, 1, step, 0, 0.1, &h);
                free(subject_encode(s, &v, x, &bytes));
            }
            level = subject_state(s, "codec.levels", TUTTI_SAME);
            assert_int_equal(sscanf(strstr(h.text[0], "psi"), "psi %lf -> %lf", &from, &to), 2);
            assert_true(to < from);
            for (int l = 0; l < 8; l++)
                apart = fmax(apart, fabs((double)level[l] + level[7 - l]));
            assert_true(symmetric ? apart == 0 : apart > 1e-3);
            if (symmetric && !gd) { /* and no pair is better elsewhere: of the gradients and their mirror images */
                const float *of = subject_state(s, "codec.buckets", TUTTI_OWN_ZERO);
                tutti_codec_normal part[16];
                tutti_codec_mixture m = { .n = 16, .of = part };
                double it[8];
                for (size_t b = 0; b < 16; b++)
                    part[b] = (tutti_codec_normal){ (double)of[3 * (b / 2)] * of[3 * (b / 2)],
                                                    (b % 2 == 0 ? 1 : -1) * (double)of[3 * (b / 2) + 1],
                                                    (double)of[3 * (b / 2) + 2], 0 };
                assert_true(tutti_codec_mixture_make(&m));
                for (int l = 0; l < 8; l++)
                    it[l] = (double)level[l];
                for (int l = 1; l < 7; l++)
                    assert_true(fabs(tutti_codec_psi_slope(&m, it, l)) < 1e-5);
            }
            subject_close(s);
        }
}

static void more_sweeps_reach_a_smaller_psi(void **state)
{
    tutti_codec_normal part[2] = { { 1, 0.02, 0.05, 0 }, { 0.5, -0.1, 0.02, 0 } };
    tutti_codec_mixture m = { .n = 2, .of = part };
    double last = INFINITY;
    static const int sweeps[] = { 1, 3, 30, 0 };

    (void)state;
    assert_true(tutti_codec_mixture_make(&m));
    for (size_t k = 0; k < TUTTI_LENGTH(sweeps); k++) {
        double level[8], psi;
        tutti_codec_powers(8, 0.5, level);
        m.sweeps = sweeps[k];
        psi = tutti_codec_psi_descend(&m, 8, level, -1, false);
        assert_true(psi < last);
        last = psi;
    }
}

/* ---- ef ---- */
/* The paper's recursion with the rate inside; rates are powers of two, so that
   both are the same to the last bit. */
static void residual_with_rate_inside_follows_the_paper(void **state)
{
    enum { N = 400, K = 20 };
    subject *s = subject_open("ef(topk(ratio=0.05),lr=inside)", N), *outside = subject_open("ef(topk(ratio=0.05))", N);
    subject_said h = { .n = 0 };
    static float g[N], y[N], z[N], p[N];
    static double x[N], kept[N];
    float *const gs[] = { g }, *const ys[] = { y }, *const zs[] = { z };
    uint64_t seed = 6;
    bool differs = false;

    (void)state;
    for (uint64_t step = 0; step < 30; step++) {
        const double lr = step < 10 ? 0.5 : step < 17 ? 0.125 : 0.25;
        uint32_t index[N];
        float value[N];
        subject_fill(N, g, 0, &seed);
        subject_begin(&s, 1, step, 0, lr, &h);
        subject_exchange(&s, 1, step, false, gs, ys);
        subject_exchange(&outside, 1, step, false, gs, zs);
        for (size_t i = 0; i < N; i++)
            p[i] = (float)(lr * (double)g[i] + kept[i]);
        tutti_select_top(s->device, N, p, K, index, value);
        for (size_t i = 0; i < N; i++)
            kept[i] = (double)p[i];
        for (size_t k = 0; k < K; k++) {
            x[index[k]] += (double)value[k];
            kept[index[k]] = 0;
        }
        for (size_t i = 0; i < N; i++) {
            x[i] -= lr * (double)y[i];
            differs = differs || memcmp(&y[i], &z[i], sizeof y[i]) != 0;
            if (x[i] != 0)
                fail_msg("step %llu, element %zu: off by %g", (unsigned long long)step, i, x[i]);
        }
    }
    assert_true(differs);
    subject_close(s), subject_close(outside);
}

static void decay_scales_and_reset_clears_the_residual(void **state)
{
    enum { N = 400 };
    subject *s = subject_open("ef(topk(ratio=0.05),decay=0.5)", N),
            *drop = subject_open("ef(topk(ratio=0.05),reset_on_lr_drop=on)", N);
    subject_said h = { .n = 0 };
    static float g[N], y[N];
    float *const gs[] = { g }, *const ys[] = { y };
    const float *e = subject_state(s, "codec.e", TUTTI_OWN_MEAN),
                *kept = subject_state(drop, "codec.e", TUTTI_OWN_MEAN);
    uint64_t seed = 7;

    (void)state;
    subject_fill(N, g, 0, &seed);
    subject_exchange(&s, 1, 0, false, gs, ys);
    for (int twice = 0; twice < 2; twice++) {
        float was[N];
        memcpy(was, e, sizeof was);
        memset(g, 0, sizeof g);
        subject_exchange(&s, 1, 1, false, gs, ys);
        for (size_t i = 0; i < N; i++)
            assert_true(y[i] + e[i] == 0.5f * was[i]);
    }
    for (uint64_t step = 0; step < 6; step++) {
        const double lr[] = { 1, 0.9, 2, 1.1, 0.55, 0.5 };
        subject_begin(&drop, 1, step, 0, lr[step], &h);
        assert_true((subject_norm2(N, kept) == 0) == (step == 0 || step == 4)); /* from 1.1 to 0.55 */
        subject_fill(N, g, 0, &seed);
        subject_exchange(&drop, 1, step, false, gs, ys);
    }
    subject_close(s), subject_close(drop);
}

/* server=on: the residual of the owner of a sum is rescaled with the rate, as the workers' own
   residuals are. inside: both keep their weight, and rate times (delivered + residual) is rate
   times input; rates are powers of two. reset_on_lr_drop: all residuals are 0 after the fall. */
static void owner_residuals_are_rescaled_with_the_learning_rate(void **state)
{
    enum { N = 400, STEPS = 24 };
    static const char *const specs[] = {
        "ef(topk(ratio=0.05),server=on,lr=inside)", "ef(sign,server=on,lr=inside)",
        "ef(topk(ratio=0.05),server=on,reset_on_lr_drop=on)",
    };
    static float g[SUBJECT_WORKERS][N], y[SUBJECT_WORKERS][N], was[2][N];
    float *const gs[] = { g[0], g[1], g[2], g[3] }, *const ys[] = { y[0], y[1], y[2], y[3] };
    uint64_t seed = 8;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        const bool forgets = strstr(specs[k], "reset") != NULL;
        subject *s[SUBJECT_WORKERS];
        const float *e[SUBJECT_WORKERS], *owner;
        double given[N] = { 0 }, before = 0;
        for (int w = 0; w < SUBJECT_WORKERS; w++) {
            s[w] = subject_open_as(specs[k], 1, N, w, TUTTI_CPU_AVX512);
            e[w] = subject_state(s[w], "codec.e", TUTTI_OWN_MEAN);
        }
        owner = subject_state(s[0], "codec.owner", TUTTI_OWN_SUM);
        for (uint64_t step = 0; step < STEPS; step++) {
            const double lr = step < 8 ? 0.5 : step < 16 ? 0.125 : 0.25;
            const float by = step == 0 || lr == before ? 1 : forgets ? lr < before ? 0 : 1 : (float)(before / lr);
            subject_said h[SUBJECT_WORKERS] = { { .n = 0 } };
            memcpy(was[0], owner, sizeof was[0]), memcpy(was[1], e[1], sizeof was[1]);
            assert_true(step == 0 || (subject_norm2(N, owner) > 0 && subject_norm2(N, e[1]) > 0));
            subject_begin(s, SUBJECT_WORKERS, step, 0, lr, h);
            for (size_t i = 0; i < N; i++)
                if (owner[i] != by * was[0][i] || e[1][i] != by * was[1][i])
                    fail_msg("%s, step %d, element %zu: the owner's %g became %g, the worker's %g became %g",
                            specs[k], (int)step, i,
                             (double)was[0][i], (double)owner[i], (double)was[1][i], (double)e[1][i]);
            for (int w = 0; w < SUBJECT_WORKERS; w++)
                subject_fill(N, g[w], 0, &seed);
            subject_exchange(s, SUBJECT_WORKERS, step, true, gs, ys);
            for (size_t i = 0; i < N; i++) {
                double owed = (double)owner[i];
                for (int w = 0; w < SUBJECT_WORKERS; w++) {
                    given[i] += lr * (double)g[w][i] / SUBJECT_WORKERS;
                    owed += (double)e[w][i] / SUBJECT_WORKERS;
                }
                given[i] -= lr * (double)y[0][i];
                if (!forgets && fabs(given[i] - lr * owed) > 1e-4)
                    fail_msg("%s, step %d, element %zu: %g is owed, and %g is kept", specs[k], (int)step, i,
                            given[i], lr * owed);
            }
            before = lr;
        }
        for (int w = 0; w < SUBJECT_WORKERS; w++)
            subject_close(s[w]);
    }
}

/* ---- accordion ---- */
/* Worker 0's gradients fall to a fifth between the windows; those of all others, and so the mean,
   hardly fall. */
static void norm_source_selects_local_rank0_or_average_norms(void **state)
{
    enum { N = 64, WORKERS = 4 };
    static const struct { const char *source, *norms; bool high; size_t summed; } rows[] = {
        { "local", "0: 8 -> 6.974 (0.13) high", true, 1 }, { "rank0", "0: 8 -> 1.6 (0.8) low", false, 1 },
        { "averaged", "0: 8 -> 6.4 (0.2) high", true, 0 },
    };
    static float g[WORKERS][N], y[WORKERS][N];

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        char spec[160];
        subject *s[WORKERS];
        subject_said h[WORKERS] = { { .n = 0 } };
        float *gs[WORKERS], *ys[WORKERS];
        snprintf(spec, sizeof spec,
                 "accordion(low=topk(ratio=1),high=topk(ratio=0.1),unit=step,interval=2,eta=0.4,norm_source=%s)",
                 rows[k].source);
        for (int w = 0; w < WORKERS; w++) {
            s[w] = subject_open_as(spec, 1, N, w, TUTTI_CPU_AVX512);
            s[w]->space.workers = WORKERS;
            gs[w] = g[w], ys[w] = y[w];
        }
        for (uint64_t step = 0; step <= 4; step++) {
            const size_t summed = subject_begin(s, WORKERS, step, 0, 0.1, h);
            assert_int_equal(summed, step == 2 || step == 4 ? rows[k].summed : 0);
            for (int w = 0; w < WORKERS; w++)
                for (size_t i = 0; i < N; i++)
                    g[w][i] = w == 0 && step >= 2 ? 0.2f : 1;
            if (step < 4)
                subject_exchange(s, WORKERS, step, false, gs, ys);
        }
        for (int w = 0; w < WORKERS; w++) {
            assert_int_equal(subject_state(s[w], "codec.levels", TUTTI_SAME)[0] == 1, rows[k].high);
            assert_int_equal(h[w].n, 2);
            assert_non_null(strstr(h[w].text[1], rows[k].norms));
            subject_close(s[w]);
        }
    }
}

/* Epochs of three steps, checks every two epochs: of the first of each two, or of both. Norms 1, 9;
   1, 1; 1, 1: only with the whole interval there is a change, from 5 to 1. */
static void a_window_is_an_epoch_or_the_interval(void **state)
{
    enum { N = 16 };
    static float g[N], y[N];
    float *const gs[] = { g }, *const ys[] = { y };

    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        subject *s =
            subject_open(whole ? "accordion(low=topk(ratio=1),high=topk(ratio=0.1),interval=2,norm_window=interval)"
                               : "accordion(low=topk(ratio=1),high=topk(ratio=0.1),interval=2)",
                         N);
        subject_said h = { .n = 0 };
        int high = 0;
        for (uint64_t step = 0; step < 21; step++) {
            const uint64_t epoch = step / 3;
            const int said = h.n;
            subject_begin(&s, 1, step, epoch, 0.1, &h);
            if (h.n > said)
                assert_true(step % 3 == 0 && epoch > 0 && (whole ? epoch % 2 == 0 : epoch % 2 == 1));
            if (epoch >= 4 && step % 3 == 0)
                high += subject_state(s, "codec.levels", TUTTI_SAME)[0] == 1;
            for (size_t i = 0; i < N; i++)
                g[i] = epoch == 1 ? 9 : 1;
            subject_exchange(&s, 1, step, false, gs, ys);
        }
        /* whole: before epochs 2, 4, 6; else before 1, 3, 5 */
        assert_int_equal(h.n, 3);
        assert_int_equal(high, whole ? 1 : 3);                    /* before epochs 4, 5, 6 */
        subject_close(s);
    }
}

/* Levels that change with the layers' gradients, over 40 steps with a fall of the rate; then the
   same from the reported replay, to the last bit, and nothing is summed for it. */
static void a_replayed_run_matches_the_original_bitwise(void **state)
{
    enum { N = 300, PARTS = 3, STEPS = 40 };
    static const char form[] =
        "ef(accordion(low=topk(ratio=0.3),high=topk(ratio=0.05),unit=step,interval=3,eta=0.3%s%s))";
    static float first[STEPS][N];
    char replay[600] = "", spec[900];
    bool differs = false;

    (void)state;
    for (int again = 0; again < 2; again++) {
        tutti_view tensor[PARTS];
        tutti_codec_space space = { .n = N, .tensor = tensor, .n_tensors = PARTS, .workers = 1, .seed = 1 };
        tutti_codec *c;
        tutti_plan *plan;
        tutti_error err = { 0 };
        uint64_t seed = 8;
        void *level = NULL;
        for (int t = 0; t < PARTS; t++)
            tensor[t] = (tutti_view){ .tensor = t, .first = (size_t)t * 100, .count = 100, .rows = 1, .cols = 100 };
        assert_int_equal(tutti_device_open_host(&space.device, NULL, TUTTI_CPU_AVX512, NULL), TUTTI_OK);
        assert_int_equal(tutti_plan_open(&plan, N, NULL), TUTTI_OK);
        snprintf(spec, sizeof spec, form, again ? ",replay=" : "", again ? replay : "");
        if (tutti_codec_declare(&c, plan, spec, "codec", &space, &err) != TUTTI_OK)
            fail_msg("%s: %s", spec, err.text);
        assert_int_equal(tutti_plan_carry_out(plan, NULL, NULL), TUTTI_OK);
        tutti_codec_open(c);
        for (size_t i = 0; i < tutti_plan_count(plan); i++)
            if (strcmp(tutti_plan_state(plan, i, NULL)->name, "codec.codec.levels") == 0)
                tutti_plan_state(plan, i, &level);
        assert_non_null(level);
        for (uint64_t step = 0; step < STEPS; step++) {
            subject_said h = { .n = 0 };
            float g[N], y[N];
            const size_t summed = subject_begin_codec(&c, 1, step, 0, step < 25 ? 0.1 : 0.01, &h);
            assert_true(!again || (summed == 0 && h.n == 0));
            /* a check and a fall of the rate may come before the same step: the last report
               counts */
            for (int k = 0; k < h.n && !again; k++) {
                const char *word = strstr(h.text[k], "replay ") + strlen("replay ");
                char *last = strrchr(replay, ':');
                if (k > 0)
                    *(last != NULL ? last : replay) = 0;
                snprintf(replay + strlen(replay), sizeof replay - strlen(replay), "%s%s", replay[0] != 0 ? ":" : "",
                         word);
            }
            subject_fill(N, g, 0, &seed);
            for (int t = 0; t < PARTS; t++) {
                tutti_view v = tensor[t];
                float *x = g + v.first;
                const float *p;
                tutti_codec *leaf;
                uint8_t out[800];
                uint64_t scratch[1000];
                size_t bytes;
                v.step = step;
                for (size_t i = 0; i < v.count; i++)
                    x[i] = x[i] * 0.1f + (t == 0 ? 1 : t == 1 ? (float)(step / 9 % 2) + 1 : (float)(step / 6 % 3) + 1);
                p = tutti_codec_before(c, &v, x);
                leaf = tutti_codec_chosen(c, &v);
                bytes = leaf->ops->encode(leaf, &v, p, scratch, out);
                memset(y + v.first, 0, v.count * sizeof *y);
                assert_int_equal(leaf->ops->decode_add(leaf, &v, out, bytes, 1, y + v.first, NULL), TUTTI_OK);
                assert_int_equal(tutti_codec_sent(c, &v, out, bytes, NULL), TUTTI_OK);
                tutti_codec_after(c, &v, y + v.first);
            }
            differs =
                differs || ((float *)level)[0] != ((float *)level)[1] || ((float *)level)[1] != ((float *)level)[2];
            if (again)
                assert_memory_equal(y, first[step], sizeof y);
            memcpy(first[step], y, sizeof y);
        }
        assert_true(differs);
        tutti_codec_close(c);
        tutti_plan_close(plan);
        tutti_device_close(space.device);
    }
}

static void invalid_replay_texts_are_rejected(void **state)
{
    static const struct { const char *replay, *words;
    } rows[] = {
        { "40", "replay: '40' is not STEP.LEVELS, such as 40.lhhl; levels are l (low) and h (high)" },
        { "40.", "'40.' is not" },
        { ".lh", "'.lh' is not" },
        { "4.lx", "'4.lx' is not" },
        { "4.l::5.h", "'' is not" },
        { "4.lhl", "replay: '4.lhl' has 3 levels, and there are 2 parts; give each its letter, or one for all" },
        { "4.l:4.h", "replay: '4.h' comes after step 4; steps must ascend" },
        { "x", "'x' is not" },
        { "-4.l", "'-4.l' is not" },
    };
    float high[2];

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_error err = { 0 };
        assert_int_equal(tutti_regime_check_replay(rows[k].replay, 2, false, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, rows[k].words) == NULL)
            fail_msg("%s: %s", rows[k].replay, err.text);
    }
    assert_int_equal(tutti_regime_check_replay("3.lh:7.h", 2, false, NULL), TUTTI_OK);
    assert_int_equal(tutti_regime_check_replay("", 2, true, NULL), TUTTI_OK);
    assert_int_equal(tutti_regime_check_replay("3.lh:7.h", 2, true, NULL), TUTTI_ERR_USAGE);
    for (uint64_t step = 0; step < 10; step++) {
        tutti_regime_replay("3.lh:7.h", step, 2, high);
        assert_true(high[0] == (step >= 7) && high[1] == (step >= 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_without_a_zero_are_amqs_first_levels),
        cmocka_unit_test(any_multiplier_rounds_to_its_powers_without_bias),
        cmocka_unit_test(levels_travel_in_as_few_bits_as_hold_them),
        cmocka_unit_test(a_dense_tail_is_exact_and_touches_nothing_else),
        cmocka_unit_test(elias_codes_count_from_the_most_frequent_level),
        cmocka_unit_test(elias_heads_that_no_encoder_writes_are_refused),
        cmocka_unit_test(invalid_codec_options_are_rejected),
        cmocka_unit_test(a_fit_uses_exactly_the_sampled_steps),
        cmocka_unit_test(a_learning_rate_drop_delays_the_next_fit),
        cmocka_unit_test(symmetric_option_gives_paired_levels),
        cmocka_unit_test(more_sweeps_reach_a_smaller_psi),
        cmocka_unit_test(residual_with_rate_inside_follows_the_paper),
        cmocka_unit_test(decay_scales_and_reset_clears_the_residual),
        cmocka_unit_test(owner_residuals_are_rescaled_with_the_learning_rate),
        cmocka_unit_test(norm_source_selects_local_rank0_or_average_norms),
        cmocka_unit_test(a_window_is_an_epoch_or_the_interval),
        cmocka_unit_test(a_replayed_run_matches_the_original_bitwise),
        cmocka_unit_test(invalid_replay_texts_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
