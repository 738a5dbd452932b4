/* norm_body.h: private: layer norm (Ba et al. 2016) and RMS norm (Zhang, Sennrich 2019; math.h).
   Included by math_body.h. A row is read twice while it is in the first cache: the variance is
   computed with the mean of the first reading, since the difference of mean square and squared mean
   cancels. */

/* Sets `result` to the sum over [0, n) of `value`, an expression of i and k for each vector as in
   EACH_VECTOR. Four vectors of sums hide the latency of an addition. */
#define ROW_SUM(result, n, value)                                                       \
    do {                                                                                \
        lanes part_[4] = { lanes_all(0), lanes_all(0), lanes_all(0), lanes_all(0) };    \
        size_t at_ = 0;                                                                 \
        for (; (n) - at_ >= 4 * LANES; at_ += 4 * LANES)                                \
            UNROLLED for (size_t v_ = 0; v_ < 4; v_++) {                                \
                const size_t i = at_ + v_ * LANES, k = LANES;                           \
                part_[v_] = lanes_add(part_[v_], value);                                \
            }                                                                           \
        for (; (n) - at_ >= LANES; at_ += LANES) {                                      \
            const size_t i = at_, k = LANES;                                            \
            part_[0] = lanes_add(part_[0], value);                                      \
        }                                                                               \
        if (at_ < (n)) {                                                                \
            const size_t i = at_, k = (n) - at_;                                        \
            part_[0] = lanes_add(part_[0], lanes_first(value, k));                      \
        }                                                                               \
        result = lanes_sum(lanes_add(lanes_add(part_[0], part_[1]),                     \
                                     lanes_add(part_[2], part_[3])));                   \
    } while (0)

INLINE lanes squared(lanes a) { return lanes_mul(a, a); }

/* Returns the dot product of x and y. */
static float dot(size_t n, const float *x, const float *y)
{
    float total;
    ROW_SUM(total, n, lanes_mul(load(x + i, k), load(y + i, k)));
    return total;
}

INLINE float root_of(float mean_square, float eps)
{
    return 1 / sqrtf(mean_square + eps);
}

static void layer_norm(const nn_norm *n, const float *x, float *y, const nn_row_statistics *s)
{
    const size_t rows = n->rows, columns = n->columns;
    const float *gamma = n->gamma, *beta = n->beta;
    float *mean = s->mean, *rstd = s->rstd;

    for (size_t r = 0; r < rows; r++, x += columns, y += columns) {
        float total, squares;
        lanes m, scale;
        ROW_SUM(total, columns, load(x + i, k));
        mean[r] = total / (float)columns;
        m = lanes_all(mean[r]);
        ROW_SUM(squares, columns, squared(lanes_sub(load(x + i, k), m)));
        rstd[r] = root_of(squares / (float)columns, n->eps);
        scale = lanes_all(rstd[r]);
        EACH_VECTOR(columns, store(y + i, k,
                                   lanes_fma(lanes_mul(lanes_sub(load(x + i, k), m), scale),
                                             load(gamma + i, k), load(beta + i, k))));
    }
}

static void rms_norm(const nn_norm *n, const float *x, float *y, float *rstd)
{
    const size_t rows = n->rows, columns = n->columns;
    const float *gamma = n->gamma;

    for (size_t r = 0; r < rows; r++, x += columns, y += columns) {
        float squares;
        lanes s;
        ROW_SUM(squares, columns, squared(load(x + i, k)));
        rstd[r] = root_of(squares / (float)columns, n->eps);
        s = lanes_all(rstd[r]);
        EACH_VECTOR(columns,
                    store(y + i, k, lanes_mul(lanes_mul(load(x + i, k), s), load(gamma + i, k))));
    }
}

/* ---- backward. With h = (x - mean) rstd (RMS norm: mean 0) and g = dy gamma:

     dx = rstd (g - mean(g) - h mean(g h)), for RMS norm without mean(g)
     dgamma = sum of dy h over the rows, dbeta = sum of dy

   where mean(.) is over a row's columns. ---- */
/* Partial sums of dgamma and dbeta over NN_ROWS rows, and their totals; each [columns]. beta and
   total_beta are NULL for RMS norm; gamma is NULL if only dx is wanted. */
typedef struct norm_sums { float *gamma, *beta, *total_gamma, *total_beta; } norm_sums;

/* Computes one row: adds to the partial sums, and writes dx or adds to it. layer: layer norm, else
   RMS norm. */
INLINE void norm_row(size_t columns, const float *x, const float *gamma, float mean, float rstd,
                     const float *dy, float *dx, bool add_x, const norm_sums *s, bool layer)
{
    const lanes m = lanes_all(mean), r = lanes_all(rstd);
    lanes g_sum = lanes_all(0), gh_sum = lanes_all(0);

    EACH_VECTOR(columns, {
        const lanes d = load(dy + i, k);
        const lanes h = lanes_mul(layer ? lanes_sub(load(x + i, k), m) : load(x + i, k), r),
                    g = lanes_mul(d, load(gamma + i, k)), gh = lanes_mul(g, h);
        if (layer)
            g_sum = lanes_add(g_sum, g); /* 0 beyond k, where dy and gamma are read as 0 */
        gh_sum = lanes_add(gh_sum, k == LANES ? gh : lanes_first(gh, k));
        if (s->gamma != NULL) {
            store(s->gamma + i, k, lanes_fma(d, h, load(s->gamma + i, k)));
            if (layer)
                store(s->beta + i, k, lanes_add(load(s->beta + i, k), d));
        }
    });
    if (dx != NULL) {
        const lanes a = lanes_all(layer ? lanes_sum(g_sum) / (float)columns : 0),
                    b = lanes_all(lanes_sum(gh_sum) / (float)columns);
        EACH_VECTOR(columns, {
            const lanes h = lanes_mul(layer ? lanes_sub(load(x + i, k), m) : load(x + i, k), r),
                        g = lanes_mul(load(dy + i, k), load(gamma + i, k));
            const lanes slope = lanes_mul(r, lanes_fnma(h, b, layer ? lanes_sub(g, a) : g));
            store(dx + i, k, add_x ? lanes_add(load(dx + i, k), slope) : slope);
        });
    }
}

/* total += part */
static void add_to_total(size_t columns, const float *part, float *total)
{
    EACH_VECTOR(columns, store(total + i, k, lanes_add(load(total + i, k), load(part + i, k))));
}

/* out = total, or out += total (add) */
static void write_total(size_t columns, const float *total, bool add, float *out)
{
    EACH_VECTOR(columns,
                store(out + i, k,
                      add ? lanes_add(load(out + i, k), load(total + i, k)) : load(total + i, k)));
}

static void layer_norm_back(const nn_norm *n, const float *x, const nn_row_statistics *kept,
                            const float *dy, const nn_norm_slopes *to, float *scratch)
{
    const size_t rows = n->rows, columns = n->columns;
    const float *gamma = n->gamma, *mean = kept->mean, *rstd = kept->rstd;
    float *dx = to->dx;
    const bool sums = to->dgamma != NULL;
    const norm_sums s = { sums ? scratch : NULL, scratch + columns, scratch + 2 * columns,
                          scratch + 3 * columns };

    if (sums)
        memset(s.total_gamma, 0, 2 * columns * sizeof(float));
    for (size_t first = 0; first < rows; first += NN_ROWS) {
        const size_t end = rows - first < NN_ROWS ? rows : first + NN_ROWS;
        if (sums)
            memset(s.gamma, 0, 2 * columns * sizeof(float));
        for (size_t r = first; r < end; r++)
            norm_row(columns, x + r * columns, gamma, mean[r], rstd[r], dy + r * columns,
                     dx != NULL ? dx + r * columns : NULL, to->add_x, &s, true);
        if (sums) {
            add_to_total(columns, s.gamma, s.total_gamma);
            add_to_total(columns, s.beta, s.total_beta);
        }
    }
    if (sums) {
        write_total(columns, s.total_gamma, to->add, to->dgamma);
        write_total(columns, s.total_beta, to->add, to->dbeta);
    }
}

static void rms_norm_back(const nn_norm *n, const float *x, const float *rstd, const float *dy,
                          const nn_norm_slopes *to, float *scratch)
{
    const size_t rows = n->rows, columns = n->columns;
    const float *gamma = n->gamma;
    float *dx = to->dx;
    const bool sums = to->dgamma != NULL;
    const norm_sums s = { sums ? scratch : NULL, NULL, scratch + columns, NULL };

    if (sums)
        memset(s.total_gamma, 0, columns * sizeof(float));
    for (size_t first = 0; first < rows; first += NN_ROWS) {
        const size_t end = rows - first < NN_ROWS ? rows : first + NN_ROWS;
        if (sums)
            memset(s.gamma, 0, columns * sizeof(float));
        for (size_t r = first; r < end; r++)
            norm_row(columns, x + r * columns, gamma, 0, rstd[r], dy + r * columns,
                     dx != NULL ? dx + r * columns : NULL, to->add_x, &s, false);
        if (sums)
            add_to_total(columns, s.gamma, s.total_gamma);
    }
    if (sums)
        write_total(columns, s.total_gamma, to->add, to->dgamma);
}
