/* element_body.h: private: GELU (Hendrycks, Gimpel 2016), sums and dropout (math.h). Included by
   math_body.h. Each element is computed by itself. */

static void gelu(size_t n, const float *x, float *y)
{
    EACH_VECTOR(n, {
        const lanes v = load(x + i, k);
        lanes gaussian;
        store(y + i, k, lanes_mul(v, lanes_normal(v, &gaussian)));
    });
}

/* The derivative is P(x) + x exp(-x^2 / 2) / sqrt(2 pi). */
static void gelu_back(size_t n, const float *x, const float *dy, float *dx)
{
    EACH_VECTOR(n, {
        const lanes v = load(x + i, k);
        lanes gaussian;
        const lanes p = lanes_normal(v, &gaussian);
        store(dx + i, k,
              lanes_mul(load(dy + i, k),
                        lanes_fma(lanes_mul(v, lanes_all(0.39894228f)), gaussian, p)));
    });
}

/* Returns (1 + tanh(u)) / 2 = sigmoid(2 u) for u = sqrt(2 / pi) (x + 0.044715 x^3), and sets
   *derivative to its derivative by x. From |x| = 20 on the result is 0 or 1; clamping x there keeps
   x^3 finite. */
INLINE lanes tanh_gate(lanes x, lanes *derivative)
{
    const lanes v = lanes_min(lanes_all(20), lanes_max(lanes_all(-20), x)),
                square = lanes_mul(v, v);
    const float two_root = 1.59576912f; /* 2 sqrt(2 / pi) */
    lanes by_u;
    const lanes s = lanes_sigmoid(
        lanes_mul(v, lanes_fma(square, lanes_all(0.044715f * two_root), lanes_all(two_root))),
        &by_u);

    *derivative = lanes_mul(by_u,
                       lanes_fma(square, lanes_all(3 * 0.044715f * two_root), lanes_all(two_root)));
    return s;
}

static void gelu_tanh(size_t n, const float *x, float *y)
{
    EACH_VECTOR(n, {
        const lanes v = load(x + i, k);
        lanes derivative;
        store(y + i, k, lanes_mul(v, tanh_gate(v, &derivative)));
    });
}

static void gelu_tanh_back(size_t n, const float *x, const float *dy, float *dx)
{
    EACH_VECTOR(n, {
        const lanes v = load(x + i, k);
        lanes derivative;
        const lanes s = tanh_gate(v, &derivative);
        store(dx + i, k, lanes_mul(load(dy + i, k), lanes_fma(v, derivative, s)));
    });
}

static void sum(size_t n, const float *a, const float *b, float *y)
{
    EACH_VECTOR(n, store(y + i, k, lanes_add(load(a + i, k), load(b + i, k))));
}

static void drop(size_t n, const uint16_t *draws, uint32_t least, float scale, const float *x,
                 float *y)
{
    EACH_VECTOR(n, store(y + i, k,
                         lanes_and(lanes_kept(draws + i, least, k),
                                   lanes_mul(load(x + i, k), lanes_all(scale)))));
}
