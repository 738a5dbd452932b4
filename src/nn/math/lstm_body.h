/* lstm_body.h: private: one time step of an lstm without its matrix products (math.h; Hochreiter,
   Schmidhuber 1997, with the forget gate of Gers et al. 2000). Included by math_body.h. */

/* Returns tanh(x), within 4 ulp: an odd polynomial over an even one, with the coefficients of
   Eigen's ptanh. Beyond the clamp the result is 1 as a float. A NaN stays a NaN. */
INLINE lanes lanes_tanh(lanes x)
{
    const lanes v = lanes_min(lanes_all(7.90531110763549805f),
                              lanes_max(lanes_all(-7.90531110763549805f), x)),
                square = lanes_mul(v, v);
    lanes p =
        lanes_fma(square, lanes_all(-2.76076847742355e-16f), lanes_all(2.00018790482477e-13f));
    lanes q = lanes_fma(square, lanes_all(1.19825839466702e-06f), lanes_all(1.18534705686654e-04f));

    p = lanes_fma(p, square, lanes_all(-8.60467152213735e-11f));
    p = lanes_fma(p, square, lanes_all(5.12229709037114e-08f));
    p = lanes_fma(p, square, lanes_all(1.48572235717979e-05f));
    p = lanes_fma(p, square, lanes_all(6.37261928875436e-04f));
    p = lanes_fma(p, square, lanes_all(4.89352455891786e-03f));
    q = lanes_fma(q, square, lanes_all(2.26843463243900e-03f));
    q = lanes_fma(q, square, lanes_all(4.89352518554385e-03f));
    return lanes_div(lanes_mul(p, v), q);
}

static void lstm(const nn_lstm_step *s, float *out, size_t stride)
{
    const size_t rows = s->rows, width = s->width;
    const float *before = s->before;
    float *gates = s->gates, *cell = s->cell;

    for (size_t r = 0; r < rows; r++) {
        float *a = gates + r * 4 * width, *c = cell + r * width, *h = out + r * stride;
        EACH_VECTOR(width, {
            lanes unused;
            const lanes in = lanes_sigmoid(load(a + i, k), &unused),
                        forget = lanes_sigmoid(load(a + width + i, k), &unused);
            const lanes fresh = lanes_tanh(load(a + 2 * width + i, k)),
                        open = lanes_sigmoid(load(a + 3 * width + i, k), &unused);
            lanes now = lanes_mul(in, fresh);
            if (before != NULL)
                now = lanes_fma(forget, load(before + r * width + i, k), now);
            store(a + i, k, in);
            store(a + width + i, k, forget);
            store(a + 2 * width + i, k, fresh);
            store(a + 3 * width + i, k, open);
            store(c + i, k, now);
            store(h + i, k, lanes_mul(open, lanes_tanh(now)));
        });
    }
}

/* Returns the derivative of the sigmoid where the sigmoid is y: y (1 - y). */
INLINE lanes sigmoid_derivative(lanes y) { return lanes_fnma(y, y, y); }

static void lstm_back(const nn_lstm_step *s, const float *dy, size_t stride, const float *dh,
                      float *dc)
{
    const size_t rows = s->rows, width = s->width;
    const float *before = s->before, *cell = s->cell;
    float *gates = s->gates;
    const lanes one = lanes_all(1);

    for (size_t r = 0; r < rows; r++) {
        float *a = gates + r * 4 * width, *carry = dc + r * width;
        const float *c = cell + r * width, *slope = dy + r * stride;
        EACH_VECTOR(width, {
            const lanes in = load(a + i, k), forget = load(a + width + i, k),
                        fresh = load(a + 2 * width + i, k), open = load(a + 3 * width + i, k);
            const lanes tanh_cell = lanes_tanh(load(c + i, k));
            lanes out = load(slope + i, k);
            lanes now;
            if (dh != NULL)
                out = lanes_add(out, load(dh + r * width + i, k));
            now = lanes_mul(lanes_mul(out, open), lanes_fnma(tanh_cell, tanh_cell, one));
            if (dh != NULL)
                now = lanes_add(now, load(carry + i, k));
            store(a + i, k, lanes_mul(lanes_mul(now, fresh), sigmoid_derivative(in)));
            store(a + width + i, k,
                  before != NULL ? lanes_mul(lanes_mul(now, load(before + r * width + i, k)),
                                             sigmoid_derivative(forget))
                                 : lanes_all(0));
            store(a + 2 * width + i, k,
                  lanes_mul(lanes_mul(now, in), lanes_fnma(fresh, fresh, one)));
            store(a + 3 * width + i, k,
                  lanes_mul(lanes_mul(out, tanh_cell), sigmoid_derivative(open)));
            store(carry + i, k, lanes_mul(now, forget));
        });
    }
}
