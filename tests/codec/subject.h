/* subject.h: a codec from a spec on a flat space of one matrix, with its state; encoding into memory exactly as long as promised. */
#ifndef TUTTI_TEST_CODEC_SUBJECT_H
#define TUTTI_TEST_CODEC_SUBJECT_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <tutti/codec.h>

typedef struct subject {
    tutti_device *device;
    tutti_plan *plan;
    tutti_view tensor;
    tutti_codec_space space;
    tutti_codec *codec;
    void *scratch;
} subject;

static inline subject *subject_open_as(const char *spec, size_t rows, size_t cols, int rank, tutti_cpu cpu)
{
    subject *s = calloc(1, sizeof *s);
    tutti_error err = { 0 };
    tutti_view late;

    assert_non_null(s);
    assert_int_equal(tutti_device_open_host(&s->device, NULL, cpu, NULL), TUTTI_OK);
    s->tensor = (tutti_view){ .count = rows * cols, .rows = rows, .cols = cols };
    s->space = (tutti_codec_space){ .n = rows * cols, .tensor = &s->tensor, .n_tensors = 1, .rank = rank, .workers = 4, .seed = 42, .device = s->device };
    assert_int_equal(tutti_plan_open(&s->plan, rows * cols, NULL), TUTTI_OK);
    if (tutti_codec_declare(&s->codec, s->plan, spec, "codec", &s->space, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    assert_int_equal(tutti_plan_carry_out(s->plan, NULL, NULL), TUTTI_OK);
    tutti_codec_open(s->codec);
    late = s->tensor;
    late.step = 1000000; /* beyond any warm-up, where a codec needs most */
    if (s->codec->ops->choose == NULL && s->codec->ops->scratch != NULL)
        s->scratch = aligned_alloc(64, (s->codec->ops->scratch(s->codec, &late) + 64) / 64 * 64);
    return s;
}

static inline subject *subject_open(const char *spec, size_t n)
{
    return subject_open_as(spec, 1, n, 0, TUTTI_CPU_AVX512);
}

static inline void subject_close(subject *s)
{
    tutti_codec_close(s->codec);
    tutti_plan_close(s->plan);
    tutti_device_close(s->device);
    free(s->scratch);
    free(s);
}

static inline tutti_view subject_view(const subject *s, uint64_t step)
{
    tutti_view v = s->tensor;

    v.step = step;
    return v;
}

/* A message in memory of exactly its size, which the caller frees; a write beyond bound() is seen. */
static inline uint8_t *subject_encode(subject *s, const tutti_view *v, const float *x, size_t *bytes)
{
    const size_t bound = s->codec->ops->bound(s->codec, v);
    uint8_t *out = malloc(bound + 16), *exact;

    memset(out + bound, 0xc3, 16);
    *bytes = s->codec->ops->encode(s->codec, v, x, s->scratch, out);
    assert_true(*bytes <= bound);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(out[bound + i], 0xc3);
    exact = malloc(*bytes + (*bytes == 0));
    memcpy(exact, out, *bytes);
    free(out);
    return exact;
}

static inline void subject_decode(subject *s, const tutti_view *v, const uint8_t *in, size_t bytes, float *y)
{
    tutti_error err = { 0 };

    for (size_t i = 0; i < v->count; i++)
        y[i] = 0;
    if (s->codec->ops->decode_add(s->codec, v, in, bytes, 1, y, &err) != TUTTI_OK)
        fail_msg("%s: %s", s->codec->ops->name, err.text);
}

/* y = decoded(encoded(x)) */
static inline size_t subject_round_trip(subject *s, uint64_t step, const float *x, float *y)
{
    const tutti_view v = subject_view(s, step);
    size_t bytes;
    uint8_t *m = subject_encode(s, &v, x, &bytes);

    subject_decode(s, &v, m, bytes, y);
    free(m);
    return bytes;
}

static inline uint64_t subject_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64: the tests' own */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline double subject_uniform(uint64_t *state)
{
    return (double)(subject_random(state) >> 11) * 0x1p-53;
}

/* kind 0: normal; 1: normal cubed, heavy tails; 2: one number; 3: few values; 4: all equal */
static inline void subject_fill(size_t n, float *x, int kind, uint64_t *state)
{
    const size_t hot = n == 0 ? 0 : (size_t)(subject_random(state) % n);

    for (size_t i = 0; i < n; i++) {
        const double u = 1 - subject_uniform(state), g = sqrt(-2 * log(u)) * cos(6.283185307179586 * subject_uniform(state));
        x[i] = (float)(kind == 0 ? g : kind == 1 ? g * g * g : kind == 2 ? (i == hot ? -3.7 : 0) : kind == 3 ? floor(g) : 0.3);
    }
}

static inline double subject_norm2(size_t n, const float *x)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static inline double subject_loss(size_t n, const float *x, const float *y)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

static const size_t subject_lengths[] = { 0, 1, 7, 8, 9, 15, 16, 17, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025, 2500 };
enum { SUBJECT_LONGEST = 2500 };
#endif
