/* The time of a step of AdamW on host memory in a hand-written loop: AVX-512 intrinsics, whole
   vectors, a static part for each thread, no ranges, options or other rules. Its sums are fused
   in the fastest way, so its bits are not PyTorch's. src/optim/tiled.c is compared with it.

   Bound: g, m, v, w are read and m, v, w written, 28 bytes a parameter; with the copy in BF16,
   which goes past the caches, 30.

   usage: adamw_limit PARAMETERS THREADS COPY ROUNDS
   Prints the median time of a parameter in nanoseconds. Exit code 77: this processor has no
   AVX-512. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __AVX512F__
#include <immintrin.h>
#include <omp.h>

enum { WARM = 2, ROUNDS_MOST = 1000, LINE = 32 };

typedef struct vectors { float *w, *m, *v, *g; unsigned short *half; } vectors;

static __m256i bf16(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));

    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16));
}

static void step(const vectors *x, size_t from, size_t to, int t, int copy)
{
    const float lr = 1e-3f, b1 = 0.9f, b2 = 0.999f, eps = 1e-8f, decay = 0.01f;
    const float c1 = 1 - powf(b1, (float)t), c2 = 1 - powf(b2, (float)t);
    const __m512 B1 = _mm512_set1_ps(b1), O1 = _mm512_set1_ps(1 - b1), B2 = _mm512_set1_ps(b2),
                 O2 = _mm512_set1_ps(1 - b2), E = _mm512_set1_ps(eps), S = _mm512_set1_ps(-lr / c1),
                 R = _mm512_set1_ps(1 / sqrtf(c2)), W = _mm512_set1_ps(1 - lr * decay);

    for (size_t i = from; i < to; i += LINE) {
        __m256i half[2];
        for (size_t k = 0; k < 2; k++) {
            const size_t at = i + 16 * k;
            const __m512 g = _mm512_load_ps(x->g + at);
            const __m512 m = _mm512_fmadd_ps(B1, _mm512_load_ps(x->m + at), _mm512_mul_ps(O1, g));
            const __m512 v =
                _mm512_fmadd_ps(B2, _mm512_load_ps(x->v + at), _mm512_mul_ps(O2, _mm512_mul_ps(g, g)));
            const __m512 d = _mm512_fmadd_ps(_mm512_sqrt_ps(v), R, E);
            const __m512 w =
                _mm512_fmadd_ps(S, _mm512_div_ps(m, d), _mm512_mul_ps(_mm512_load_ps(x->w + at), W));
            _mm512_store_ps(x->m + at, m);
            _mm512_store_ps(x->v + at, v);
            _mm512_store_ps(x->w + at, w);
            half[k] = bf16(w);
        }
        if (copy)
            _mm512_stream_si512((__m512i *)(void *)(x->half + i),
                                _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1));
    }
    _mm_sfence();
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The part of a thread, in whole lines of the copy. */
static size_t part(size_t n, int thread, int threads)
{
    return n / LINE * (size_t)thread / (size_t)threads * LINE;
}

int main(int argc, char **argv)
{
    static double took[ROUNDS_MOST];
    const size_t n = argc == 5 ? strtoull(argv[1], NULL, 10) / LINE * LINE : 0;
    const int threads = argc == 5 ? atoi(argv[2]) : 0, copy = argc == 5 && atoi(argv[3]) != 0,
              rounds = argc == 5 ? atoi(argv[4]) : 0;
    vectors x;

    if (n == 0 || threads < 1 || rounds < 1 || rounds > ROUNDS_MOST) {
        fprintf(stderr, "usage: adamw_limit PARAMETERS THREADS COPY ROUNDS (1 to %d)\n", ROUNDS_MOST);
        return 2;
    }
    x.w = aligned_alloc(64, n * sizeof *x.w);
    x.m = aligned_alloc(64, n * sizeof *x.m);
    x.v = aligned_alloc(64, n * sizeof *x.v);
    x.g = aligned_alloc(64, n * sizeof *x.g);
    x.half = aligned_alloc(64, n * sizeof *x.half);
    if (x.w == NULL || x.m == NULL || x.v == NULL || x.g == NULL || x.half == NULL)
        return 1;
    omp_set_num_threads(threads);
#pragma omp parallel
    for (size_t i = part(n, omp_get_thread_num(), threads); i < part(n, omp_get_thread_num() + 1, threads); i++) {
        x.w[i] = 0.1f;
        x.m[i] = x.v[i] = 0;
        x.g[i] = 0.01f;
        x.half[i] = 0;
    }
    for (int r = -WARM; r < rounds; r++) {
        const double begin = now();
#pragma omp parallel
        step(&x, part(n, omp_get_thread_num(), threads), part(n, omp_get_thread_num() + 1, threads), r + WARM + 1,
             copy);
        if (r >= 0)
            took[r] = now() - begin;
    }
    qsort(took, (size_t)rounds, sizeof *took, ascending);
    printf("%.6f\n", took[rounds / 2] * 1e9 / (double)n);
    return 0;
}
#else
int main(void)
{
    fputs("adamw_limit: this processor has no AVX-512\n", stderr);
    return 77;
}
#endif
