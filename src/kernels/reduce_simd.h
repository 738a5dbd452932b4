/* reduce_simd.h: template of the sums of reduce.c, with the sixteen lanes in PARTS accumulators of
   type dvec. reduce_LEVEL.c includes it after simd_LEVEL.h. The last elements, fewer than sixteen,
   are added to the lanes one by one. */
enum { LANES = TUTTI_KERNELS_LANES, PARTS = LANES / DWIDTH };

/* Each loop over the accumulators must be unrolled, so that the array is in registers and not in
   memory. */
#define EACH_PART _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)
#define EACH_RUN _Pragma("GCC unroll 4") for (size_t r = 0; r < runs; r++)

/* Computes sums[runs] of the squares of `runs` consecutive runs of n elements, 1 <= runs <= SIDE.
   An addition waits for the one before it in the same sum, so several sums take the time of one. */
enum { SIDE = WIDTH == 16 ? 4 : 2 };
INLINE void norm2_of(const size_t runs, size_t n, const float *x, double *sums)
{
    double lane[LANES];
    dvec sum[SIDE][PARTS];
    size_t i = 0;

    EACH_RUN
        EACH_PART
            sum[r][j] = dvec_zero();
    for (; n - i >= LANES; i += LANES)
        EACH_RUN
            EACH_PART {
                const dvec v = dvec_get(x + r * n + i + j * DWIDTH);
                sum[r][j] = dvec_fma(v, v, sum[r][j]);
            }
    if (i == n) {
        EACH_RUN
            sums[r] = dvec_fold(sum[r]);
        return;
    }
    EACH_RUN {
        EACH_PART
            dvec_put(lane + j * DWIDTH, sum[r][j]);
        for (size_t j = 0; i + j < n; j++)
            lane[j] += (double)x[r * n + i + j] * (double)x[r * n + i + j];
        sums[r] = tutti_kernels_fold(lane);
    }
}

static double LEVEL(norm2)(size_t n, const float *x)
{
    double sum;

    norm2_of(1, n, x, &sum);
    return sum;
}

static void LEVEL(norm2_each)(size_t n, size_t each, const float *x, double *sums)
{
    for (; SIDE == 4 && n / 4 >= each; n -= 4 * each, x += 4 * each, sums += 4)
        norm2_of(SIDE, each, x, sums);
    for (; n / 2 >= each; n -= 2 * each, x += 2 * each, sums += 2)
        norm2_of(2, each, x, sums);
    for (size_t some; n > 0; n -= some, x += some, sums++) {
        some = n < each ? n : each;
        norm2_of(1, some, x, sums);
    }
}

static double LEVEL(dot)(size_t n, const float *x, const float *y)
{
    double lane[LANES];
    dvec sum[PARTS];
    size_t i = 0;

    EACH_PART
        sum[j] = dvec_zero();
    for (; n - i >= LANES; i += LANES)
        EACH_PART
            sum[j] = dvec_fma(dvec_get(x + i + j * DWIDTH), dvec_get(y + i + j * DWIDTH), sum[j]);
    EACH_PART
        dvec_put(lane + j * DWIDTH, sum[j]);
    for (size_t j = 0; i + j < n; j++)
        lane[j] += (double)x[i + j] * (double)y[i + j];
    return tutti_kernels_fold(lane);
}

static bool LEVEL(finite)(size_t n, const float *x)
{
    size_t i = 0;

    for (; n - i >= WIDTH; i += WIDTH)
        if (!vec_all_finite(vec_get(x + i, WIDTH)))
            return false;
    return i == n || vec_all_finite(vec_get(x + i, n - i));
}

void LEVEL(tutti_kernels_reduce)(tutti_kernels *t)
{
    t->norm2 = LEVEL(norm2);
    t->norm2_each = LEVEL(norm2_each);
    t->dot = LEVEL(dot);
    t->finite = LEVEL(finite);
}
