/* cast_simd.h: the conversions of cast.c in `vec` and `hvec`; included by cast_LEVEL.c after both.
   The rest of a vector goes through the scalar conversions, which give the same bits. Great results
   go past the caches. */

/* `of` and `one`, a vector's and a number's conversion, are constants: they are inlined, as is
   `past`, the caches. */
INLINE void narrow(size_t n, const float *x, uint16_t *y, hvec (*of)(const float *),
                   uint16_t (*one)(float), bool past)
{
    size_t i = 0;

    if (past) {
        for (; (uintptr_t)(y + i) % sizeof(vec) != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 2 * WIDTH; i += 2 * WIDTH) {
            tutti_kernels_ask_for(x + i, 2 * WIDTH);
            half_stream(y + i, of(x + i), of(x + i + WIDTH));
        }
        stream_end();
    }
    for (; n - i >= WIDTH; i += WIDTH)
        half_put(y + i, of(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

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
