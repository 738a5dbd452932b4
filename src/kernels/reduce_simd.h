/* reduce_simd.h: the sums of reduce.c with its sixteen lanes in `dvec` accumulators; included by one file a level after its
   simd_LEVEL.h. The rest, fewer than sixteen elements, is added to the lanes one by one. */
enum { LANES = TUTTI_KERNELS_LANES, PARTS = LANES / DWIDTH };

/* The accumulators are an array only on paper: each loop over the parts must be unrolled, or they live in memory (a third of the
   speed). */
#define EACH_PART _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)

static double LEVEL(norm2)(size_t n, const float *x)
{
    double lane[LANES];
    dvec sum[PARTS];
    size_t i = 0;

    EACH_PART
        sum[j] = dvec_zero();
    for (; n - i >= LANES; i += LANES)
        EACH_PART {
            const dvec v = dvec_get(x + i + j * DWIDTH);
            sum[j] = dvec_fma(v, v, sum[j]);
        }
    EACH_PART
        dvec_put(lane + j * DWIDTH, sum[j]);
    for (size_t j = 0; i + j < n; j++)
        lane[j] += (double)x[i + j] * (double)x[i + j];
    return tutti_kernels_fold(lane);
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
    t->dot = LEVEL(dot);
    t->finite = LEVEL(finite);
}
