/* extent_simd.h: template of the kernels of extent.c. extent_LEVEL.c includes it after
   simd_codes_LEVEL.h. */
enum { LANES = TUTTI_KERNELS_LANES, PARTS = LANES / DWIDTH };

static float LEVEL(absmax)(size_t n, const float *x)
{
    const ivec magnitude = ivec_all(0x7fffffff);
    /* four accumulators, since each maximum waits for the one before it */
    ivec most = ivec_all(0), more[4] = { most, most, most, most };
    size_t i = 0;

    for (; n - i >= 4 * WIDTH; i += 4 * WIDTH)
        _Pragma("GCC unroll 4") for (size_t j = 0; j < 4; j++) more[j] =
            ivec_max_u32(more[j], ivec_and(vec_bits(vec_get(x + i + j * WIDTH, WIDTH)), magnitude));
    most = ivec_max_u32(ivec_max_u32(more[0], more[1]), ivec_max_u32(more[2], more[3]));
    for (; n - i >= WIDTH; i += WIDTH)
        most = ivec_max_u32(most, ivec_and(vec_bits(vec_get(x + i, WIDTH)), magnitude));
    if (i < n)
        most = ivec_max_u32(most, ivec_and(vec_bits(vec_get(x + i, n - i)), magnitude));
    return tutti_kernels_float(ivec_most_u32(most));
}

static void LEVEL(extent)(size_t n, const float *x, float *least, float *greatest)
{
    const ivec magnitude = ivec_all(0x7fffffff);
    ivec low = magnitude, high = ivec_all(INT32_MIN);
    int32_t lows[WIDTH], highs[WIDTH], lowest = INT32_MAX, highest = INT32_MIN;
    size_t i = 0;

    for (; n - i >= WIDTH; i += WIDTH) {
        const ivec bits = vec_bits(vec_get(x + i, WIDTH)),
                   v = ivec_xor(bits, ivec_and(ivec_sra31(bits), magnitude));
        low = ivec_min_i32(low, v);
        high = ivec_max_i32(high, v);
    }
    ivec_put(lows, low);
    ivec_put(highs, high);
    for (int j = 0; j < WIDTH; j++) {
        lowest = lows[j] < lowest ? lows[j] : lowest;
        highest = highs[j] > highest ? highs[j] : highest;
    }
    for (; i < n; i++) {
        const int32_t v = tutti_kernels_ordered(tutti_kernels_bits(x[i]));
        lowest = v < lowest ? v : lowest;
        highest = v > highest ? v : highest;
    }
    *least = tutti_kernels_float((uint32_t)tutti_kernels_ordered((uint32_t)lowest));
    *greatest = tutti_kernels_float((uint32_t)tutti_kernels_ordered((uint32_t)highest));
}

static double LEVEL(norm1)(size_t n, const float *x)
{
    double lane[LANES];
    dvec sum[PARTS];
    size_t i = 0;

    _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)
        sum[j] = dvec_zero();
    for (; n - i >= LANES; i += LANES)
        _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)
            sum[j] = dvec_add(sum[j], dvec_abs(dvec_get(x + i + j * DWIDTH)));
    _Pragma("GCC unroll 4") for (size_t j = 0; j < PARTS; j++)
        dvec_put(lane + j * DWIDTH, sum[j]);
    for (size_t j = 0; i + j < n; j++)
        lane[j] += x[i + j] < 0 ? -(double)x[i + j] : (double)x[i + j];
    return tutti_kernels_fold(lane);
}

void LEVEL(tutti_kernels_extent)(tutti_kernels *t)
{
    t->absmax = LEVEL(absmax);
    t->extent = LEVEL(extent);
    t->norm1 = LEVEL(norm1);
}
