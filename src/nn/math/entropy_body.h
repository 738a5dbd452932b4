/* entropy_body.h: private: softmax and cross-entropy (math.h). Included by math_body.h. The
   classes of a row are read NN_CLASSES at a time with a running maximum (Milakov, Gimelshein
   2018), so that chunks of classes give the bits of the whole row. The maximum skips NaNs; the sum
   does not. */

/* Returns exp(a - b); 1 if a = b, also if both are -infinity, which is the maximum of no logits. */
INLINE float ratio(float a, float b)
{
    float of[LANES];
    if (a == b)
        return 1;
    lanes_put(of, lanes_exp(lanes_sub(lanes_all(a), lanes_all(b))));
    return of[0];
}

/* Loads the first k lanes at p; the others are -infinity. */
INLINE lanes load_or_least(const float *p, size_t k)
{
    float some[LANES];
    if (k == LANES)
        return lanes_get(p);
    for (size_t i = 0; i < LANES; i++)
        some[i] = i < k ? p[i] : -INFINITY;
    return lanes_get(some);
}

/* Updates *s with the logits x of classes [first, first + count), count <= NN_CLASSES. */
static void entropy_block(size_t first, size_t count, const float *x, nn_entropy *s)
{
    lanes most = lanes_all(-INFINITY), total = lanes_all(0), base;
    float block, max;

    EACH_VECTOR(count, most = lanes_max(load_or_least(x + i, k), most));
    block = lanes_greatest(most);
    max = block > s->max ? block : s->max;
    if (block > s->max) {
        size_t index = 0;
        while (index + LANES < count && lanes_without(lanes_get(x + index), block))
            index += LANES;
        while (index + 1 < count && x[index] != block)
            index++;
        s->best = (uint32_t)(first + index);
    }
    /* if all logits so far are -infinity, each exp must be 0, not exp(-infinity + infinity) */
    base = lanes_all(max == -INFINITY ? 0 : max);
    EACH_VECTOR(count,
                total = lanes_add(total, lanes_exp(lanes_sub(load_or_least(x + i, k), base))));
    s->sum = s->sum * ratio(s->max, max) + lanes_sum(total);
    s->max = max;
}

static void entropy(const nn_logits *l, const uint32_t *labels, nn_entropy *state)
{
    const size_t rows = l->rows, first = l->first, count = l->count, stride = l->stride;

    for (size_t r = 0; r < rows; r++) {
        nn_entropy s = first == 0 ? (nn_entropy){ -INFINITY, 0, 0, 0 } : state[r];
        const float *x = l->values + r * stride;
        for (size_t c = 0; c < count; c += NN_CLASSES)
            entropy_block(first + c, count - c < NN_CLASSES ? count - c : NN_CLASSES, x + c, &s);
        if (labels[r] >= first && labels[r] - first < count)
            s.label = x[labels[r] - first];
        state[r] = s;
    }
}

static void entropy_back(const nn_logits *l, const uint32_t *labels, const nn_entropy *state,
                         float scale, float *slope)
{
    const size_t rows = l->rows, first = l->first, count = l->count, stride = l->stride;

    for (size_t r = 0; r < rows; r++) {
        const float *x = l->values + r * stride;
        float *g = slope + r * stride;
        const lanes max = lanes_all(state[r].max), factor = lanes_all(scale / state[r].sum);
        EACH_VECTOR(count,
                    store(g + i, k, lanes_mul(lanes_exp(lanes_sub(load(x + i, k), max)), factor)));
        if (labels[r] >= first && labels[r] - first < count)
            g[labels[r] - first] -= scale;
    }
}
