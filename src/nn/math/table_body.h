/* table_body.h: private: functions on rows of tables (math.h): embeddings, learned and rotary
   positions. Included by math_body.h. */

static void gather_rows(size_t n, size_t width, const uint32_t *ids, const float *table, float *y)
{
    for (size_t t = 0; t < n; t++)
        memcpy(y + t * width, table + ids[t] * width, width * sizeof *y);
}

/* y += x */
INLINE void add_to(size_t n, const float *x, float *y)
{
    EACH_VECTOR(n, store(y + i, k, lanes_add(load(y + i, k), load(x + i, k))));
}

static void scatter_add(size_t n, const nn_columns *c, const uint32_t *ids, const float *dy,
                        float *table)
{
    const size_t width = c->width, first = c->first, count = c->count;

    for (size_t t = 0; t < n; t++)
        add_to(count, dy + t * width + first, table + ids[t] * width + first);
}

static void sum_rows(size_t width, size_t first, size_t count, const nn_grouped *ids,
                     const float *dy, float *rows)
{
    const uint32_t *order = ids->order, *begin = ids->begin;

    for (size_t u = first; u < first + count; u++) {
        memset(rows + u * width, 0, width * sizeof *rows);
        for (uint32_t j = begin[u]; j < begin[u + 1]; j++)
            add_to(width, dy + order[j] * width, rows + u * width);
    }
}

static void positions(size_t batch, size_t values, const float *table, float *x)
{
    for (size_t b = 0; b < batch; b++)
        add_to(values, table, x + b * values);
}

static void positions_back(size_t batch, size_t values, const float *dy, float *dtable, bool add)
{
    EACH_VECTOR(values, {
        lanes total = lanes_all(0);
        for (size_t b = 0; b < batch; b++)
            total = lanes_add(total, load(dy + b * values + i, k));
        store(dtable + i, k, add ? lanes_add(load(dtable + i, k), total) : total);
    });
}

static void rotary(const nn_rotation *p, size_t rows, bool back, float *x)
{
    const size_t length = p->length, heads = p->heads, width = p->width, stride = p->stride;
    const float *cosine = p->cosine, *sine = p->sine;
    const size_t half = width / 2;
    const lanes sign = lanes_all(back ? -1 : 1);

    for (size_t r = 0; r < rows; r++) {
        const float *c = cosine + r % length * half, *s = sine + r % length * half;
        for (size_t h = 0; h < heads; h++) {
            float *low = x + r * stride + h * width, *high = low + half;
            EACH_VECTOR(half, {
                const lanes a = load(low + i, k);
                const lanes b = load(high + i, k);
                const lanes cos = load(c + i, k);
                const lanes sin = lanes_mul(load(s + i, k), sign);
                store(low + i, k, lanes_fnma(b, sin, lanes_mul(a, cos)));
                store(high + i, k, lanes_fma(a, sin, lanes_mul(b, cos)));
            });
        }
    }
}
