/* subject.h: a codec from a spec, on a flat space of one matrix or of several, with its state. It
   encodes into memory that is exactly as long as promised. */
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
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

enum { SUBJECT_TENSORS = 8 };
typedef struct subject_shape { size_t rows, cols; } subject_shape;
typedef struct subject {
    tutti_device *device;
    tutti_plan *plan;
    tutti_view tensor; /* of the first; what is encoded where a test names no view */
    tutti_view tensors[SUBJECT_TENSORS];
    tutti_codec_space space;
    tutti_codec *codec;
    void *scratch; /* for the first */
} subject;

static inline subject *subject_open_on(const char *spec, int n, const subject_shape *shape,
                                       int rank, tutti_cpu cpu)
{
    subject *s = calloc(1, sizeof *s);
    tutti_error err = { 0 };
    tutti_view late;
    size_t all = 0;

    assert_non_null(s);
    assert_int_equal(tutti_device_open_host(&s->device, NULL, cpu, NULL), TUTTI_OK);
    for (int t = 0; t < n; t++) {
        s->tensors[t] = (tutti_view){
            .tensor = t, .first = all, .count = shape[t].rows * shape[t].cols,
            .rows = shape[t].rows, .cols = shape[t].cols,
        };
        all += s->tensors[t].count;
    }
    s->tensor = s->tensors[0];
    s->space = (tutti_codec_space){
        .n = all, .tensor = s->tensors, .n_tensors = n, .rank = rank, .workers = 4, .seed = 42,
        .device = s->device,
    };
    assert_int_equal(tutti_plan_open(&s->plan, all, NULL), TUTTI_OK);
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

static inline subject *subject_open_as(const char *spec, size_t rows, size_t cols, int rank,
                                       tutti_cpu cpu)
{
    return subject_open_on(spec, 1, &(subject_shape){ rows, cols }, rank, cpu);
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

/* A message in memory of exactly its size, which the caller frees; a write beyond bound() is
   seen. */
static inline uint8_t *subject_encode(subject *s, const tutti_view *v, const float *x,
                                      size_t *bytes)
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

static inline void subject_decode(subject *s, const tutti_view *v, const uint8_t *in, size_t bytes,
                                  float *y)
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
        const double u = 1 - subject_uniform(state),
                     g = sqrt(-2 * log(u)) * cos(6.283185307179586 * subject_uniform(state));
        x[i] = (float)(kind == 0   ? g
                       : kind == 1 ? g * g * g
                       : kind == 2 ? (i == hot ? -3.7 : 0)
                       : kind == 3 ? floor(g)
                                   : 0.3);
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

/* The memory of a state by its name, declared as it should be. */
static inline float *subject_state(const subject *s, const char *name, tutti_keep keep)
{
    void *memory = NULL;

    for (size_t i = 0; i < tutti_plan_count(s->plan); i++) {
        const tutti_state *state = tutti_plan_state(s->plan, i, &memory);
        if (strcmp(state->name, name) == 0) {
            assert_int_equal(state->keep, keep);
            return memory;
        }
    }
    fail_msg("no state '%s'", name);
    return NULL;
}

/* Bytes of all that is declared; of a run and saved, or also what a step needs for itself. */
static inline size_t subject_memory(const subject *s, bool scratch)
{
    size_t bytes = 0;

    for (size_t i = 0; i < tutti_plan_count(s->plan); i++) {
        const tutti_state *state = tutti_plan_state(s->plan, i, NULL);
        bytes += scratch || state->keep != TUTTI_SCRATCH
                     ? state->count * tutti_dtype_bytes(state->dtype)
                     : 0;
    }
    return bytes;
}

/* A step of workers of one process, as an exchange makes it: y[w] = what w's model gets of the
   mean of g. again: worker 0 owns the mean and encodes it once more (message codecs). Vectors
   that are not finite are sent as they are. */
enum { SUBJECT_WORKERS = 4, SUBJECT_ROUNDS = 8 };
/* Element i of numbers on the wire := their mean over the workers. */
static inline void subject_mean(subject *const *s, int workers, tutti_dtype dtype,
                                void *const *wire, size_t i)
{
    tutti_device *d = s[0]->device;
    double sum = 0;
    float one;

    for (int w = 0; w < workers; w++) {
        tutti_cast(d, (tutti_buffer){ d, (char *)wire[w] + i * tutti_dtype_bytes(dtype), 1, dtype },
                   tutti_f32(d, &one, 1));
        sum += (double)one;
    }
    one = (float)(sum / workers);
    for (int w = 0; w < workers; w++)
        tutti_cast(d, tutti_f32(d, &one, 1),
                   (tutti_buffer){ d, (char *)wire[w] + i * tutti_dtype_bytes(dtype), 1, dtype });
}

static inline void subject_exchange_view(subject *const *s, int workers, tutti_view v, bool again,
                                         float *const *g, float *const *y)
{
    const size_t n = v.count;
    tutti_codec *leaf[SUBJECT_WORKERS];
    const float *p[SUBJECT_WORKERS];
    void *wire[SUBJECT_WORKERS][SUBJECT_ROUNDS], *scratch[SUBJECT_WORKERS];
    uint8_t *message[SUBJECT_WORKERS];
    size_t bytes[SUBJECT_WORKERS];
    float *mean = calloc(n + 1, sizeof *mean);
    bool finite;

    for (int w = 0; w < workers; w++) {
        leaf[w] = tutti_codec_chosen(s[w]->codec, &v);
        p[w] = leaf[w]->ops->rounds == 0 && tutti_finite(s[w]->device, n, g[w])
                   ? tutti_codec_before(s[w]->codec, &v, g[w])
                   : g[w];
        scratch[w] = aligned_alloc(64, leaf[w]->ops->scratch == NULL
                                           ? 64
                                           : (leaf[w]->ops->scratch(leaf[w], &v) + 64) / 64 * 64);
        for (int round = 0; round < SUBJECT_ROUNDS; round++)
            wire[w][round] = malloc(n * 4 + 64);
        message[w] = leaf[w]->ops->rounds > 0 ? NULL : malloc(leaf[w]->ops->bound(leaf[w], &v) + 1);
        if (message[w] != NULL) {
            bytes[w] = leaf[w]->ops->encode(leaf[w], &v, p[w], scratch[w], message[w]);
            assert_int_equal(leaf[0]->ops->decode_add(leaf[0], &v, message[w], bytes[w],
                                                      1.0f / (float)workers, mean, NULL),
                             TUTTI_OK);
        }
    }
    for (int round = 0; round < leaf[0]->ops->rounds; round++) {
        for (int w = 0; w < workers; w++)
            if (round == 0 && tutti_finite(s[w]->device, n, p[w]))
                p[w] = tutti_codec_fold_first(s[w]->codec, &v, p[w], scratch[w], wire[w]);
            else
                leaf[w]->ops->fold(leaf[w], &v, round, p[w], scratch[w], wire[w]);
        for (size_t i = 0; i < leaf[0]->ops->width(leaf[0], &v, round); i++) {
            void *of[SUBJECT_WORKERS];
            for (int w = 0; w < workers; w++)
                of[w] = wire[w][round];
            subject_mean(s, workers, tutti_codec_number(leaf[0], &v), of, i);
        }
    }
    finite = message[0] == NULL || tutti_finite(s[0]->device, n, mean);
    for (int w = 0; w < workers; w++) {
        if (message[w] != NULL && finite)
            assert_int_equal(tutti_codec_sent(s[w]->codec, &v, message[w], bytes[w], NULL),
                             TUTTI_OK);
        else if (message[w] == NULL) {
            tutti_codec_sent_rounds(s[w]->codec, &v, p[w], scratch[w], wire[w]);
            leaf[w]->ops->unfold(leaf[w], &v, scratch[w], wire[w], y[w]);
        }
    }
    if (again && finite && message[0] != NULL) {
        tutti_view owner = v;
        owner.stage = 1;
        p[0] = tutti_codec_before(s[0]->codec, &owner, mean);
        bytes[0] = leaf[0]->ops->encode(leaf[0], &owner, p[0], scratch[0], message[0]);
        assert_int_equal(tutti_codec_sent(s[0]->codec, &owner, message[0], bytes[0], NULL),
                         TUTTI_OK);
        memset(mean, 0, n * sizeof *mean);
        assert_int_equal(
            leaf[0]->ops->decode_add(leaf[0], &owner, message[0], bytes[0], 1, mean, NULL),
            TUTTI_OK);
    }
    for (int w = 0; w < workers; w++) {
        if (message[w] != NULL && n > 0)
            memcpy(y[w], mean, n * sizeof *mean);
        tutti_codec_after(s[w]->codec, &v, y[w]);
        for (int round = 0; round < SUBJECT_ROUNDS; round++)
            free(wire[w][round]);
        free(scratch[w]), free(message[w]);
    }
    free(mean);
}

static inline void subject_exchange(subject *const *s, int workers, uint64_t step, bool again,
                                    float *const *g, float *const *y)
{
    subject_exchange_view(s, workers, subject_view(s[0], step), again, g, y);
}

/* A step begins: tutti_codec_begin for workers of one process, round by round; h: what each
   reports. Gives the number of summed numbers. */
/* warning, matrices: the last of kind "codec", "matrices"; the rest one after the other */
typedef struct subject_said {
    char text[8][1300], warning[400], matrices[1000];
    int n, reports;
} subject_said;
static inline void subject_hear(void *with, const char *kind, const char *text)
{
    subject_said *h = with;

    if (strcmp(kind, "codec") == 0) {
        snprintf(h->warning, sizeof h->warning, "%s", text);
        return;
    }
    if (strcmp(kind, "matrices") == 0) {
        snprintf(h->matrices, sizeof h->matrices, "%s", text);
        h->reports++;
        return;
    }
    assert_true(h->n < 8 && (strcmp(kind, "levels") == 0 || strcmp(kind, "accordion") == 0));
    snprintf(h->text[h->n++], sizeof h->text[0], "%s", text);
}

static inline size_t subject_begin_codec(tutti_codec *const *c, int workers, uint64_t step,
                                         uint64_t epoch, double lr, subject_said *h)
{
    enum { NUMBERS_MOST = 4096 };
    size_t all = 0;

    for (size_t i = 0; i < TUTTI_LENGTH(c[0]->inner); i++)
        if (c[0]->inner[i] != NULL) {
            tutti_codec *below[SUBJECT_WORKERS];
            for (int w = 0; w < workers; w++)
                below[w] = c[w]->inner[i];
            all += subject_begin_codec(below, workers, step, epoch, lr, h);
        }
    for (int round = 0; c[0]->ops->begin != NULL; round++) {
        float *numbers[SUBJECT_WORKERS] = { NULL };
        double sum[NUMBERS_MOST] = { 0 };
        size_t n = 0;
        for (int w = 0; w < workers; w++) {
            const tutti_codec_moment m = {
                .step = step, .epoch = epoch, .lr = lr, .say = subject_hear, .with = &h[w]
            };
            const size_t mine = c[w]->ops->begin(c[w], &m, round, &numbers[w]);
            assert_true(mine <= NUMBERS_MOST && (w == 0 || mine == n));
            n = mine;
            for (size_t i = 0; i < n; i++)
                sum[i] += (double)numbers[w][i];
        }
        if (n == 0)
            break;
        for (int w = 0; w < workers; w++)
            for (size_t i = 0; i < n; i++)
                numbers[w][i] = (float)sum[i];
        all += n;
    }
    return all;
}

static inline size_t subject_begin(subject *const *s, int workers, uint64_t step, uint64_t epoch,
                                   double lr, subject_said *h)
{
    tutti_codec *c[SUBJECT_WORKERS];

    for (int w = 0; w < workers; w++)
        c[w] = s[w]->codec;
    return subject_begin_codec(c, workers, step, epoch, lr, h);
}

static const size_t subject_lengths[] = { 0,   1,   7,   8,   9,   15,   16,   17,   127,
                                          128, 129, 511, 512, 513, 1023, 1024, 1025, 2500 };
enum { SUBJECT_LONGEST = 2500 };

/* That share of n elements: at least one. */
static inline size_t share(size_t n, double ratio)
{
    return n == 0 ? 0 : (size_t)fmax(1, ceil(ratio * (double)n - 1e-9));
}
#endif
