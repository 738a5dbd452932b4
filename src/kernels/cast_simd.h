/* cast_simd.h: template of the conversions of cast.c. cast_LEVEL.c includes it after simd_LEVEL.h
   and after its definitions of `hvec`, WIDTH numbers of 16 bits, and of the operations on it. The
   last elements are converted one by one, with the same bits. Results of TUTTI_KERNELS_STREAM bytes
   and more bypass the caches. */

/* Converts floats to 16 bits. of, one: the conversion of a vector and of one number; past: y
   bypasses the caches. They are constants, so the calls are inlined. */
INLINE void narrow(size_t n, const float *x, uint16_t *y, hvec (*of)(const float *),
                   uint16_t (*one)(float), bool past)
{
    size_t i = 0;

    if (past) {
        for (; (uintptr_t)(y + i) % sizeof(vec) != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 2 * WIDTH; i += 2 * WIDTH) {
            tutti_kernels_prefetch(x + i, 2 * WIDTH);
            half_stream(y + i, of(x + i), of(x + i + WIDTH));
        }
        stream_end();
    }
    for (; n - i >= WIDTH; i += WIDTH)
        half_put(y + i, of(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

/* Converts 16 bits to floats. from, one: the conversion of a vector and of one number. */
INLINE void widen(size_t n, const uint16_t *x, float *y, vec (*from)(const uint16_t *),
                  float (*one)(uint16_t))
{
    size_t i = 0;

    if (n * sizeof *y >= TUTTI_KERNELS_STREAM) {
        for (; (uintptr_t)(y + i) % sizeof(vec) != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= WIDTH; i += WIDTH)
            vec_stream(y + i, from(x + i));
        stream_end();
    }
    for (; n - i >= WIDTH; i += WIDTH)
        vec_put(y + i, WIDTH, from(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

static void LEVEL(bf16_from_f32)(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, bf16_of, tutti_kernels_bf16, n * sizeof *y >= TUTTI_KERNELS_STREAM);
}

static void LEVEL(bf16_past)(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, bf16_of, tutti_kernels_bf16, true);
}

static void LEVEL(bf16_cut)(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, cut_of, tutti_kernels_bf16_cut, n * sizeof *y >= TUTTI_KERNELS_STREAM);
}

static void LEVEL(f16_from_f32)(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, f16_of, tutti_kernels_f16, n * sizeof *y >= TUTTI_KERNELS_STREAM);
}

static void LEVEL(f16_past)(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, f16_of, tutti_kernels_f16, true);
}

static void LEVEL(f32_from_bf16)(size_t n, const uint16_t *x, float *y)
{
    widen(n, x, y, from_bf16, tutti_kernels_from_bf16);
}

static void LEVEL(f32_from_f16)(size_t n, const uint16_t *x, float *y)
{
    widen(n, x, y, from_f16, tutti_kernels_from_f16);
}

static void LEVEL(f64_from_f32)(size_t n, const float *x, double *y)
{
    size_t i = 0;

    for (; n - i >= DWIDTH; i += DWIDTH)
        dvec_put(y + i, dvec_get(x + i));
    for (; i < n; i++)
        y[i] = (double)x[i];
}

static void LEVEL(f32_from_f64)(size_t n, const double *x, float *y)
{
    size_t i = 0;

    for (; n - i >= DWIDTH; i += DWIDTH)
        floats_of(x + i, y + i);
    for (; i < n; i++)
        y[i] = (float)x[i];
}

void LEVEL(tutti_kernels_cast)(tutti_kernels *t)
{
    t->bf16_from_f32 = LEVEL(bf16_from_f32);
    t->bf16_past = LEVEL(bf16_past);
    t->bf16_cut = LEVEL(bf16_cut);
    t->f32_from_bf16 = LEVEL(f32_from_bf16);
    t->f16_from_f32 = LEVEL(f16_from_f32);
    t->f16_past = LEVEL(f16_past);
    t->f32_from_f16 = LEVEL(f32_from_f16);
    t->f64_from_f32 = LEVEL(f64_from_f32);
    t->f32_from_f64 = LEVEL(f32_from_f64);
}
