/* layers_bench.c: the functions of src/nn/math on one thread, for bench/layers/run.

   usage: layers_bench [LEVEL: 0 scalar, 1 AVX2, 2 AVX-512]

   Prints a line an operation: its name, microseconds of the best of some calls, bytes that have to
   pass through memory once, floating-point operations (of attention: those below the diagonal).
   The first lines are the yardsticks: memcpy of 32 MiB, and products and sums in registers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nn/math/math.h"
#include "base/machine.h"
#include "kernels/device.h"

enum {
    TOKENS = 1024,
    WIDTH = 256,
    HIDDEN = 1024,
    VOCABULARY = 50257,
    ROWS = 64,
    IMAGES = 64,
    SIDE = 28,
    CHANNELS = 32
};

typedef struct bench {
    const nn_math *m;
    tutti_device *d;
    float *a, *b, *c, *e, *scratch;   /* `most` floats each */
    uint32_t ids[TOKENS], labels[TOKENS], unique[TOKENS], order[TOKENS], begin[TOKENS + 1];
    uint64_t sort[2 * TOKENS];
    nn_entropy state[TOKENS];
    nn_attention attention;
    size_t most;
} bench;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void copy(bench *b) { memcpy(b->b, b->a, (size_t)32 << 20); }

static void gelu(bench *b) { b->m->gelu(TOKENS * HIDDEN, b->a, b->b); }
static void gelu_back(bench *b) { b->m->gelu_back(TOKENS * HIDDEN, b->a, b->c, b->b); }
static void gelu_tanh(bench *b) { b->m->gelu_tanh(TOKENS * HIDDEN, b->a, b->b); }
static void gelu_tanh_back(bench *b) { b->m->gelu_tanh_back(TOKENS * HIDDEN, b->a, b->c, b->b); }
static void layer_norm(bench *b)
{
    b->m->layer_norm(&(nn_norm){ TOKENS, WIDTH, b->e, b->e + WIDTH, 1e-5f }, b->a, b->b,
                     &(nn_row_statistics){ b->scratch, b->scratch + TOKENS });
}
static void layer_norm_back(bench *b)
{
    b->m->layer_norm_back(
        &(nn_norm){ TOKENS, WIDTH, b->e, NULL, 0 }, b->a,
        &(nn_row_statistics){ b->scratch, b->scratch + TOKENS }, b->c,
        &(nn_norm_slopes){ b->b, false, b->e + 2 * WIDTH, b->e + 3 * WIDTH, false },
        b->scratch + 2 * TOKENS);
}
static void rms_norm(bench *b)
{
    b->m->rms_norm(&(nn_norm){ TOKENS, WIDTH, b->e, NULL, 1e-5f }, b->a, b->b, b->scratch);
}
static void rms_norm_back(bench *b)
{
    b->m->rms_norm_back(&(nn_norm){ TOKENS, WIDTH, b->e, NULL, 0 }, b->a, b->scratch, b->c,
                        &(nn_norm_slopes){ b->b, false, b->e + 2 * WIDTH, NULL, false },
                        b->scratch + 2 * TOKENS);
}
static void gather(bench *b) { b->m->gather(TOKENS, WIDTH, b->ids, b->a, b->b); }
static void scatter(bench *b)
{
    b->m->scatter_add(TOKENS, &(nn_columns){ WIDTH, 0, WIDTH }, b->ids, b->c, b->b);
}
static void sparse(bench *b)
{
    const size_t u = tutti_nn_unique(TOKENS, b->ids, b->unique, b->order, b->begin, b->sort);
    b->m->sum_rows(WIDTH, 0, u, &(nn_grouped){ b->order, b->begin }, b->c, b->b);
}
static void rotary(bench *b)
{
    b->m->rotary(
        &(nn_rotation){ TOKENS, 4, WIDTH / 4, WIDTH, b->e + b->most / 2, b->scratch + b->most / 2 },
        TOKENS, false, b->b);
}
static void dropout(bench *b)
{
    tutti_nn_dropout(b->m, b->d, (tutti_rng){ 1, 2, 3 }, 0, TOKENS * HIDDEN, 0.1f, b->a, b->b);
}
static void entropy_of(bench *b, size_t rows, size_t classes)
{
    b->m->entropy(&(nn_logits){ rows, 0, classes, classes, b->a }, b->labels, b->state);
    b->m->entropy_back(&(nn_logits){ rows, 0, classes, classes, b->a }, b->labels, b->state, 1,
                       b->b);
}
static void entropy_small(bench *b) { entropy_of(b, TOKENS, WIDTH); }
static void entropy_large(bench *b) { entropy_of(b, ROWS, VOCABULARY); }

static const nn_channels images = { IMAGES, 1, SIDE * SIDE, CHANNELS };
static void batch_norm(bench *b)
{
    b->m->batch_norm(&images, &(nn_batch_norm){ b->e, b->e + CHANNELS, 1e-5f, false }, b->a, b->b,
                     &(nn_row_statistics){ b->scratch, b->scratch + CHANNELS },
                     &(nn_running){ 0.1f, b->scratch + 2 * CHANNELS, b->scratch + 3 * CHANNELS });
}
static void batch_norm_back(bench *b)
{
    b->m->batch_norm_back(
        &images, &(nn_batch_norm_kept){ b->a, NULL, b->e, b->scratch, b->scratch + CHANNELS },
        &(nn_batch_norm_slopes){ b->c, b->b, b->e + 2 * CHANNELS, b->e + 3 * CHANNELS, false });
}

static void attend(bench *b, size_t batch, size_t heads, size_t length, size_t width)
{
    const size_t d = heads * width;
    b->attention = (nn_attention){ batch, heads, length, width, 3 * d, d, 1 / sqrtf((float)width), true };
    b->m->attention(&b->attention, 0, batch * heads,
                    &(nn_attention_values){ b->a, b->a + d, b->a + 2 * d, b->b, b->e }, b->scratch);
}
static void attend_back(bench *b)
{
    const nn_attention *a = &b->attention; /* of the forward before */
    const size_t d = a->heads * a->width;
    float *out = b->e + TOKENS * 64;
    b->m->attention_back(a, 0, a->batch * a->heads,
                         &(nn_attention_values){ b->a, b->a + d, b->a + 2 * d, b->b, b->e },
                         &(nn_attention_slopes){ b->c, out, out + d, out + 2 * d }, b->scratch);
}
static void attention_128(bench *b) { attend(b, 8, 4, 128, 64); }
static void attention_1024(bench *b) { attend(b, 2, 4, 1024, 64); }
static void attention_wide(bench *b) { attend(b, 4, 8, 128, 128); }

typedef struct operation { const char *name; void (*run)(bench *b); double bytes, flops; } operation;
#define WORDS(n) (4.0 * (n))
#define CAUSAL(batch, heads, length, width, products) \
    ((double)(batch) * (heads) * (length) * (length) / 2 * (width)*2 * (products))
static const operation operations[] = {
    { "memcpy", copy, 2.0 * (32 << 20), 0 },
    { "gelu", gelu, WORDS(2 * TOKENS * HIDDEN), 0 },
    { "gelu_back", gelu_back, WORDS(3 * TOKENS * HIDDEN), 0 },
    { "gelu_tanh", gelu_tanh, WORDS(2 * TOKENS * HIDDEN), 0 },
    { "gelu_tanh_back", gelu_tanh_back, WORDS(3 * TOKENS * HIDDEN), 0 },
    { "layer_norm", layer_norm, WORDS(2 * TOKENS * WIDTH), 0 },
    { "layer_norm_back", layer_norm_back, WORDS(3 * TOKENS * WIDTH), 0 },
    { "rms_norm", rms_norm, WORDS(2 * TOKENS * WIDTH), 0 },
    { "rms_norm_back", rms_norm_back, WORDS(3 * TOKENS * WIDTH), 0 },
    { "embedding", gather, WORDS(2 * TOKENS * WIDTH), 0 },
    { "embedding_back", scatter, WORDS(3 * TOKENS * WIDTH), 0 },
    { "embedding_sparse", sparse, WORDS(2 * TOKENS * WIDTH), 0 },
    { "rotary", rotary, WORDS(2 * TOKENS * WIDTH), 0 },
    { "dropout", dropout, WORDS(2 * TOKENS * HIDDEN), 0 },
    { "entropy_256", entropy_small, WORDS(3 * TOKENS * WIDTH), 0 },
    { "entropy_50257", entropy_large, WORDS(3 * ROWS * VOCABULARY), 0 },
    { "batch_norm", batch_norm, WORDS(3 * IMAGES * SIDE * SIDE * CHANNELS), 0 },
    { "batch_norm_back", batch_norm_back, WORDS(5 * IMAGES * SIDE * SIDE * CHANNELS), 0 },
    { "attention_128", attention_128, 0, CAUSAL(8, 4, 128, 64, 2) },
    { "attention_128_back", attend_back, 0, CAUSAL(8, 4, 128, 64, 5) },
    { "attention_1024", attention_1024, 0, CAUSAL(2, 4, 1024, 64, 2) },
    { "attention_1024_back", attend_back, 0, CAUSAL(2, 4, 1024, 64, 5) },
    { "attention_wide", attention_wide, 0, CAUSAL(4, 8, 128, 128, 2) },
    { "attention_wide_back", attend_back, 0, CAUSAL(4, 8, 128, 128, 5) },
};

int main(int count, char **words)
{
    static bench b;
    const tutti_cpu cpu = count > 1 ? (tutti_cpu)atoi(words[1]) : tutti_cpu_best();

    b.most = (size_t)VOCABULARY * WIDTH;
    float **const arrays[] = { &b.a, &b.b, &b.c, &b.e, &b.scratch };
    for (size_t i = 0; i < TUTTI_LENGTH(arrays); i++)
        if ((*arrays[i] = tutti_alloc(b.most, sizeof(float))) == NULL)
            return 1;
    if (tutti_device_open_host(&b.d, NULL, cpu, NULL) != TUTTI_OK)
        return 1;
    b.m = nn_math_of(cpu);
    tutti_fill_normal(b.d, b.most, (tutti_rng){ 1, 1, 0 }, b.a);
    tutti_fill_normal(b.d, b.most, (tutti_rng){ 1, 2, 0 }, b.c);
    tutti_fill_uniform(b.d, b.most, (tutti_rng){ 1, 3, 0 }, 0.5f, 1.5f, b.e);
    tutti_fill_uniform(b.d, b.most, (tutti_rng){ 1, 4, 0 }, 0.5f, 1.5f, b.scratch);
    tutti_nn_rotary(TOKENS, WIDTH / 4, 10000, b.e + b.most / 2, b.scratch + b.most / 2);
    for (size_t i = 0; i < TOKENS; i++) {
        b.ids[i] = (uint32_t)(tutti_random((tutti_rng){ 1, 5, 0 }, i) % VOCABULARY);
        b.labels[i] = b.ids[i] % WIDTH;
    }
    for (size_t o = 0; o < TUTTI_LENGTH(operations); o++) {
        double best = INFINITY;
        const double end = now_us() + 25000;
        for (int n = 0; n < 5 || now_us() < end; n++) {
            const double begin = now_us();
            operations[o].run(&b);
            const double took = now_us() - begin;
            best = took < best ? took : best;
        }
        printf("%s %.2f %.0f %.0f\n", operations[o].name, best, operations[o].bytes, operations[o].flops);
        fflush(stdout);
    }
    tutti_device_close(b.d);
    for (size_t i = 0; i < TUTTI_LENGTH(arrays); i++)
        tutti_free(*arrays[i]);
    return 0;
}
