/* Goal: norms of rows, embeddings, positions and cross-entropy are their formulas, their
   backwards the derivatives, with the same bits at every level and however they are split.
   Method: formulas in double and central differences of them; random shapes; parts against the
   whole bit for bit. */
#include "math_test.h"

static const size_t widths[] = { 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 131, 256 };

/* ---- norms ---- */
typedef struct norm {
    bool layer;
    size_t rows, columns;
    float *x, *gamma, *beta, *dy, *y, *mean, *rstd, *dx, *dgamma, *dbeta, *scratch;
} norm;

static norm norm_of(bool layer, size_t rows, size_t columns, uint64_t seed)
{
    norm s = { .layer = layer, .rows = rows, .columns = columns };
    const size_t n = rows * columns;
    s.x = drawn(n, seed, 2);
    for (size_t i = 0; i < n; i++)
        s.x[i] += 3;
    s.gamma = drawn(columns, seed + 1, 1);
    s.beta = drawn(columns, seed + 2, 1);
    s.dy = drawn(n, seed + 3, 1);
    s.y = room(n);
    s.mean = room(rows);
    s.rstd = room(rows);
    s.dx = room(n);
    s.dgamma = room(columns);
    s.dbeta = room(columns);
    s.scratch = room((layer ? 4 : 2) * columns);
    return s;
}

static void norm_free(norm *s)
{
    float *const all[] = { s->x,    s->gamma, s->beta,   s->dy,    s->y,      s->mean,
                           s->rstd, s->dx,    s->dgamma, s->dbeta, s->scratch };
    for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
        free(all[i]);
}

static void norm_forward(const nn_math *m, norm *s, size_t first, size_t rows)
{
    const size_t at = first * s->columns;
    if (s->layer)
        m->layer_norm(&(nn_norm){ rows, s->columns, s->gamma, s->beta, 1e-5f }, s->x + at,
                      s->y + at, &(nn_row_statistics){ s->mean + first, s->rstd + first });
    else
        m->rms_norm(&(nn_norm){ rows, s->columns, s->gamma, NULL, 1e-5f }, s->x + at, s->y + at,
                    s->rstd + first);
}

static void norm_back(const nn_math *m, norm *s, size_t first, size_t rows, float *dx, bool add_x, float *dgamma,
                      float *dbeta, bool add)
{
    const size_t at = first * s->columns;
    if (s->layer)
        m->layer_norm_back(&(nn_norm){ rows, s->columns, s->gamma, NULL, 0 }, s->x + at,
                           &(nn_row_statistics){ s->mean + first, s->rstd + first }, s->dy + at,
                           &(nn_norm_slopes){ dx, add_x, dgamma, dbeta, add }, s->scratch);
    else
        m->rms_norm_back(&(nn_norm){ rows, s->columns, s->gamma, NULL, 0 }, s->x + at,
                         s->rstd + first, s->dy + at,
                         &(nn_norm_slopes){ dx, add_x, dgamma, NULL, add }, s->scratch);
    assert_guarded("norm's scratch", s->scratch, (s->layer ? 4 : 2) * s->columns);
}

static void norm_row_in_double(bool layer, size_t n, const double *x, const double *gamma, const double *beta,
                               double *y)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += layer ? x[i] / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(square + (double)1e-5f) * gamma[i] + (layer ? beta[i] : 0);
}

static double norm_objective(const norm *s, const double *x, const double *gamma, const double *beta, double *y)
{
    double f = 0;
    for (size_t r = 0; r < s->rows; r++) {
        norm_row_in_double(s->layer, s->columns, x + r * s->columns, gamma, beta, y);
        for (size_t i = 0; i < s->columns; i++)
            f += y[i] * (double)s->dy[r * s->columns + i];
    }
    return f;
}

static void check_differences(const char *what, const norm *s, double *x, double *gamma, double *beta, double *varied,
                              size_t n, const float *slope)
{
    double *y = calloc(s->columns, sizeof *y), *expected = calloc(n, sizeof *expected);
    for (size_t i = 0; i < n; i++) {
        const double keep = varied[i], h = 1e-5;
        varied[i] = keep + h;
        const double up = norm_objective(s, x, gamma, beta, y);
        varied[i] = keep - h;
        expected[i] = (up - norm_objective(s, x, gamma, beta, y)) / (2 * h);
        varied[i] = keep;
    }
    assert_near(what, n, slope, expected, 3e-6);
    free(y);
    free(expected);
}

static void norms_and_their_gradients_match_the_formula(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 1; i < 10; i++) /* a layer norm of one or two columns is a constant or a step */
            for (int layer = 0; layer < 2; layer++) {
                norm s = norm_of(layer, 1 + i % 4, widths[i] + 2, i);
                const size_t n = s.rows * s.columns;
                double *x = widened(n, s.x), *gamma = widened(s.columns, s.gamma), *beta = widened(s.columns, s.beta),
                       *y = calloc(n, sizeof *y);
                norm_forward(level(l), &s, 0, s.rows);
                for (size_t r = 0; r < s.rows; r++)
                    norm_row_in_double(layer, s.columns, x + r * s.columns, gamma, beta, y + r * s.columns);
                assert_near("y", n, s.y, y, 1e-6);
                norm_back(level(l), &s, 0, s.rows, s.dx, false, s.dgamma, s.dbeta, false);
                check_differences("dx", &s, x, gamma, beta, x, n, s.dx);
                check_differences("dgamma", &s, x, gamma, beta, gamma, s.columns, s.dgamma);
                if (layer)
                    check_differences("dbeta", &s, x, gamma, beta, beta, s.columns, s.dbeta);
                assert_guarded("y", s.y, n);
                assert_guarded("dx", s.dx, n);
                assert_guarded("dgamma", s.dgamma, s.columns);
                assert_guarded("dbeta", s.dbeta, s.columns);
                free(x);
                free(gamma);
                free(beta);
                free(y);
                norm_free(&s);
            }
}

/* A row of 1000 + small: the variance is that of the small part, not the rounding of squares. */
static void a_large_mean_does_not_cancel_the_variance(void **state)
{
    norm s = norm_of(true, 1, 256, 3);
    double y[256], *x, *gamma, *beta;

    (void)state;
    for (size_t i = 0; i < 256; i++)
        s.x[i] = 1000 + (s.x[i] - 3) / 16;
    x = widened(256, s.x);
    gamma = widened(256, s.gamma);
    beta = widened(256, s.beta);
    norm_forward(level(levels() - 1), &s, 0, 1);
    norm_row_in_double(true, 256, x, gamma, beta, y);
    assert_near("y", 256, s.y, y, 1e-3); /* the mean itself is rounded to 6e-5, 5e-4 of a deviation */
    free(x);
    free(gamma);
    free(beta);
    norm_free(&s);
}

/* Rows one by one, in place, without parameters, added; parameters alone, in parts of NN_ROWS added
   in order: always the bits of one call. */
static void norms_agree_bitwise_at_every_cpu_level_and_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(widths); i++)
        for (int layer = 0; layer < 2; layer++) {
            const size_t columns = widths[i], rows = between(i, 1, 1, 200), n = rows * columns;
            norm a = norm_of(layer, rows, columns, i);
            norm_forward(level(0), &a, 0, rows);
            norm_back(level(0), &a, 0, rows, a.dx, false, a.dgamma, a.dbeta, false);
            for (int l = 0; l < levels(); l++) {
                const nn_math *m = level(l);
                norm b = norm_of(layer, rows, columns, i);
                float *total[2] = { calloc(columns, sizeof(float)), calloc(columns, sizeof(float)) };
                for (size_t r = rows; r-- > 0;)
                    norm_forward(m, &b, r, 1);
                assert_same("y", n, b.y, a.y);
                assert_same("rstd", rows, b.rstd, a.rstd);
                if (layer)
                    assert_same("mean", rows, b.mean, a.mean);
                norm_back(m, &b, 0, rows, NULL, false, b.dgamma, b.dbeta, false);
                assert_same("dgamma alone", columns, b.dgamma, a.dgamma);
                if (layer)
                    assert_same("dbeta alone", columns, b.dbeta, a.dbeta);
                for (size_t r = 0; r < rows; r += NN_ROWS) {
                    norm_back(m, &b, r, rows - r < NN_ROWS ? rows - r : NN_ROWS, NULL, false, b.dgamma, b.dbeta, false);
                    for (size_t j = 0; j < columns; j++) {
                        total[0][j] += b.dgamma[j];
                        total[1][j] += layer ? b.dbeta[j] : 0;
                    }
                }
                assert_same("dgamma in parts", columns, total[0], a.dgamma);
                if (layer)
                    assert_same("dbeta in parts", columns, total[1], a.dbeta);
                memcpy(b.dx, b.x, n * sizeof *b.dx); /* a residual branch's slope */
                memcpy(b.dgamma, b.gamma, columns * sizeof(float));
                memcpy(b.dbeta, b.beta, columns * sizeof(float));
                norm_back(m, &b, 0, rows, b.dx, true, b.dgamma, b.dbeta, true);
                for (size_t j = 0; j < n; j++)
                    assert_true(b.dx[j] == b.x[j] + a.dx[j]);
                for (size_t j = 0; j < columns; j++)
                    assert_true(b.dgamma[j] == b.gamma[j] + a.dgamma[j] &&
                                (!layer || b.dbeta[j] == b.beta[j] + a.dbeta[j]));
                for (size_t r = 0; r < rows; r++) /* in place, a row at a time */
                    norm_back(m, &b, r, 1, b.dy + r * columns, false, NULL, NULL, false);
                assert_same("dx in place", n, b.dy, a.dx);
                free(total[0]);
                free(total[1]);
                norm_free(&b);
            }
            norm_free(&a);
        }
}

/* ---- embeddings ---- */
static void unique_sorts_ids_and_keeps_the_order_of_equal_ones(void **state)
{
    static const uint32_t limits[] = { 1, 2, 7, 300, 70000, UINT32_MAX };

    (void)state;
    for (size_t n = 0; n < 1500; n = 2 * n + 1)
        for (size_t i = 0; i < TUTTI_LENGTH(limits); i++) {
            uint32_t *ids = drawn_ids(n, i + n, limits[i]), *unique = calloc(n + 1, 4), *order = calloc(n + 1, 4),
                     *begin = calloc(n + 1, 4);
            uint64_t *scratch = calloc(2 * n + 1, 8);
            const size_t u = tutti_nn_unique(n, ids, unique, order, begin, scratch);
            size_t seen = 0;
            assert_true(u <= n && begin[u] == n);
            for (size_t k = 0; k < u; k++) {
                assert_true(begin[k] < begin[k + 1] && (k == 0 || unique[k - 1] < unique[k]));
                for (uint32_t j = begin[k]; j < begin[k + 1]; j++, seen++)
                    assert_true(ids[order[j]] == unique[k] && (j == begin[k] || order[j - 1] < order[j]));
            }
            assert_int_equal(seen, n);
            free(ids);
            free(unique);
            free(order);
            free(begin);
            free(scratch);
        }
}

static void rows_gathered_and_summed_are_those_of_the_ids(void **state)
{
    enum { V = 40 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(widths); i++)
        for (int l = 0; l < levels(); l++) {
            const nn_math *m = level(l);
            const size_t w = widths[i], n = between(i, 2, 1, 300), cut = between(i, 3, 0, w), half = n / 2;
            uint32_t *ids = drawn_ids(n, i, V - 3), unique[V], *order = malloc(n * 4), *begin = malloc((n + 1) * 4);
            uint32_t *all = malloc(n * 4);
            uint64_t *scratch = malloc(2 * n * 8);
            float *table = drawn(V * w, i, 1), *y = room(n * w), *dense = room(V * w), *apart = room(V * w),
                  *rows = room(V * w), *expected = calloc(V * w, sizeof(float));

            m->gather(half, w, ids, table, y);
            m->gather(n - half, w, ids + half, table, y + half * w);
            for (size_t t = 0; t < n; t++)
                assert_memory_equal(y + t * w, table + ids[t] * w, w * sizeof *y);
            assert_guarded("gather", y, n * w);

            for (size_t t = 0; t < n; t++)
                for (size_t j = 0; j < w; j++)
                    expected[ids[t] * w + j] += y[t * w + j];
            memset(dense, 0, V * w * sizeof *dense);
            memset(apart, 0, V * w * sizeof *apart);
            m->scatter_add(n, &(nn_columns){ w, 0, w }, ids, y, dense);
            m->scatter_add(n, &(nn_columns){ w, cut, w - cut }, ids, y, apart);
            m->scatter_add(n, &(nn_columns){ w, 0, cut }, ids, y, apart);
            assert_same("scatter_add", V * w, dense, expected);
            assert_same("scatter_add in parts", V * w, apart, expected);
            assert_guarded("scatter_add", dense, V * w);

            const size_t u = tutti_nn_unique(n, ids, all, order, begin, scratch), some = between(i, 4, 0, u);
            memcpy(unique, all, u * sizeof *all);
            m->sum_rows(w, some, u - some, &(nn_grouped){ order, begin }, y, rows);
            m->sum_rows(w, 0, some, &(nn_grouped){ order, begin }, y, rows);
            for (size_t k = 0; k < u; k++)
                assert_same("sum_rows", w, rows + k * w, expected + unique[k] * w);
            free(ids);
            free(order);
            free(begin);
            free(all);
            free(scratch);
            float *const floats[] = { table, y, dense, apart, rows, expected };
            for (size_t k = 0; k < TUTTI_LENGTH(floats); k++)
                free(floats[k]);
        }
}

static void the_first_id_beyond_the_vocabulary_is_found(void **state)
{
    const uint32_t ids[] = { 0, 4, 3, 5, 9 };

    (void)state;
    assert_int_equal(tutti_nn_first_above(5, ids, 5), 3);
    assert_int_equal(tutti_nn_first_above(5, ids, 10), 5);
    assert_int_equal(tutti_nn_first_above(5, ids, 0), 0);
    assert_int_equal(tutti_nn_first_above(0, ids, 0), 0);
}

/* ---- positions ---- */
static void learned_positions_are_added_and_gradients_summed_over_batch(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 0; i < TUTTI_LENGTH(widths); i++) {
            const size_t batch = between(i, 5, 1, 5), values = 3 * widths[i];
            float *table = drawn(values, 1, 1), *x = drawn(batch * values, 2, 1), *y = drawn(batch * values, 2, 1),
                  *d = room(values), *added = drawn(values, 3, 1), *before = drawn(values, 3, 1);
            level(l)->positions(batch, values, table, y);
            for (size_t j = 0; j < batch * values; j++)
                assert_true(y[j] == x[j] + table[j % values]);
            level(l)->positions_back(batch, values, x, d, false);
            level(l)->positions_back(batch, values, x, added, true);
            for (size_t j = 0; j < values; j++) {
                float total = 0;
                for (size_t b = 0; b < batch; b++)
                    total += x[b * values + j];
                assert_true(d[j] == total && added[j] == before[j] + total);
            }
            assert_guarded("positions", y, batch * values);
            assert_guarded("positions_back", d, values);
            float *const all[] = { table, x, y, d, added, before };
            for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
                free(all[k]);
        }
}

/* By the angle, in complex numbers; back again; gaps between heads' rows untouched;
   parts at multiples of the length. */
static void rotary_embedding_rotates_pairs_by_position_and_inverts(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 0; i < TUTTI_LENGTH(widths); i++) {
            const size_t length = between(i, 6, 1, 20), heads = between(i, 7, 1, 3), width = 2 * widths[i],
                         stride = heads * width + i % 3, rows = 3 * length, half = width / 2;
            float *cosine = room(length * half), *sine = room(length * half), *x = drawn(rows * stride, i, 1),
                  *y = drawn(rows * stride, i, 1), *again = room(rows * stride);
            tutti_nn_rotary(length, width, 10000, cosine, sine);
            level(l)->rotary(&(nn_rotation){ length, heads, width, stride, cosine, sine }, rows,
                             false, y);
            for (size_t r = 0; r < rows; r++)
                for (size_t h = 0; h < heads; h++)
                    for (size_t j = 0; j < half; j++) {
                        const size_t at = r * stride + h * width + j;
                        const double angle = (double)(r % length) * pow(10000, -(double)j / (double)half),
                                     a = (double)x[at], b = (double)x[at + half];
                        assert_true(fabs((double)y[at] - (a * cos(angle) - b * sin(angle))) < 1e-6);
                        assert_true(fabs((double)y[at + half] - (a * sin(angle) + b * cos(angle))) < 1e-6);
                    }
            for (size_t r = 0; r < rows; r++)
                assert_same("gap", stride - heads * width, y + r * stride + heads * width,
                            x + r * stride + heads * width);
            memcpy(again, x, rows * stride * sizeof *x);
            level(0)->rotary(&(nn_rotation){ length, heads, width, stride, cosine, sine }, length,
                             false, again);
            level(l)->rotary(&(nn_rotation){ length, heads, width, stride, cosine, sine },
                             2 * length, false, again + length * stride);
            assert_same("rotary in parts", rows * stride, again, y);
            level(l)->rotary(&(nn_rotation){ length, heads, width, stride, cosine, sine }, rows,
                             true, y);
            for (size_t j = 0; j < rows * stride; j++)
                assert_true(fabsf(y[j] - x[j]) < 2e-6f);
            float *const all[] = { cosine, sine, x, y, again };
            for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
                free(all[k]);
        }
}

/* ---- cross-entropy ---- */
static void in_chunks(const nn_math *m, size_t rows, size_t classes, size_t chunk, size_t stride, const float *logits,
                      const uint32_t *labels, nn_entropy *state, float *slope)
{
    for (int back = 0; back < 2; back++)
        for (size_t c = 0; c < classes; c += chunk) {
            const size_t count = classes - c < chunk ? classes - c : chunk;
            if (back == 0)
                m->entropy(&(nn_logits){ rows, c, count, stride, logits + c }, labels, state);
            else
                m->entropy_back(&(nn_logits){ rows, c, count, stride, logits + c }, labels, state,
                                0.25f, slope + c);
        }
}

static void cross_entropy_is_accurate_and_independent_of_chunks(void **state)
{
    static const size_t classes[] = { 1, 2, 3, 10, 15, 16, 17, 256, 511, 512, 513, 1500, 5000 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(classes); i++) {
        const size_t n = classes[i], rows = between(i, 8, 1, 6), stride = n + i % 4;
        float *x = drawn(rows * stride, i, i % 2 == 0 ? 3 : 30), *first = room(rows * stride),
              *slope = room(rows * stride);
        uint32_t *labels = drawn_ids(rows, i, (uint32_t)n);
        nn_entropy *a = calloc(rows, sizeof *a), *b = calloc(rows, sizeof *b);
        size_t right, count_right = 0;
        double total = 0;

        in_chunks(level(0), rows, n, n, stride, x, labels, a, first);
        for (size_t r = 0; r < rows; r++) {
            double sum = 0, max = -INFINITY, *expected = calloc(n, sizeof *expected);
            size_t best = 0;
            for (size_t c = 0; c < n; c++) {
                if ((double)x[r * stride + c] > max)
                    best = c;
                max = fmax(max, (double)x[r * stride + c]);
            }
            for (size_t c = 0; c < n; c++)
                sum += exp((double)x[r * stride + c] - max);
            for (size_t c = 0; c < n; c++)
                expected[c] = 0.25 * (exp((double)x[r * stride + c] - max) / sum - (c == labels[r]));
            for (size_t c = 0; c < n; c++)
                if (!(fabs((double)first[r * stride + c] - expected[c]) <= 3e-7 * fabs(expected[c]) + 3e-8))
                    fail_msg("slope of class %zu of %zu is %.9g, not %.9g", c, n, (double)first[r * stride + c],
                             expected[c]);
            total += max + log(sum) - (double)x[r * stride + labels[r]];
            count_right += best == labels[r];
            assert_int_equal(a[r].best, best);
            free(expected);
        }
        const double loss = tutti_nn_entropy_loss(rows, a, labels, &right);
        assert_true(fabs(loss - total) <= 1e-6 * (double)rows + 1e-6 * fabs(total));
        assert_int_equal(right, count_right);
        for (int l = 0; l < levels(); l++)
            for (size_t chunk = NN_CLASSES; chunk < 2 * n + NN_CLASSES; chunk += NN_CLASSES) {
                memset(slope, 0x5a, rows * stride * sizeof *slope);
                in_chunks(level(l), rows, n, chunk, stride, x, labels, b, slope);
                assert_memory_equal(a, b, rows * sizeof *a);
                for (size_t r = 0; r < rows; r++)
                    assert_same("slope", n, slope + r * stride, first + r * stride);
                assert_guarded("slope", slope, rows * stride);
            }
        memcpy(slope, x, rows * stride * sizeof *x); /* in place, rows one by one */
        for (size_t r = 0; r < rows; r++)
            in_chunks(level(levels() - 1), 1, n, n, stride, slope + r * stride, labels + r, b + r, slope + r * stride);
        for (size_t r = 0; r < rows; r++)
            assert_same("slope in place", n, slope + r * stride, first + r * stride);
        free(x);
        free(first);
        free(slope);
        free(labels);
        free(a);
        free(b);
    }
}

static void argmax_ties_go_low_and_nonfinite_losses_are_incorrect(void **state)
{
    enum { N = 1100 };

    (void)state;
    for (int l = 0; l < levels(); l++) {
        const nn_math *m = level(l);
        float x[N], g[N];
        uint32_t label = 700;
        nn_entropy s;
        size_t right;
        for (size_t i = 0; i < N; i++)
            x[i] = 0;
        x[700] = x[701] = x[1099] = 5;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(isfinite(tutti_nn_entropy_loss(1, &s, &label, &right)) && right == 1 && s.best == 700);
        label = 701;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        tutti_nn_entropy_loss(1, &s, &label, &right);
        assert_int_equal(right, 0);

        x[3] = NAN; /* loses no maximum, spoils the sum */
        label = 700;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(isnan(tutti_nn_entropy_loss(1, &s, &label, &right)) && right == 0);
        m->entropy_back(&(nn_logits){ 1, 0, N, N, x }, &label, &s, 1, g);
        assert_true(isnan(g[0]) && isnan(g[700]));
        x[3] = INFINITY;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(isnan(tutti_nn_entropy_loss(1, &s, &label, &right)) && right == 0);

        for (size_t i = 0; i < N; i++) /* a class that cannot be, a whole chunk of them, a label that cannot be */
            x[i] = i < 600 ? -INFINITY : 1;
        label = 600;
        m->entropy(&(nn_logits){ 1, 0, NN_CLASSES, N, x }, &label, &s);
        m->entropy(&(nn_logits){ 1, NN_CLASSES, N - NN_CLASSES, N, x + NN_CLASSES }, &label, &s);
        assert_true(fabs(tutti_nn_entropy_loss(1, &s, &label, &right) - log(500)) < 1e-6 && right == 1);
        m->entropy_back(&(nn_logits){ 1, 0, N, N, x }, &label, &s, 1, g);
        assert_true(g[0] == 0 && fabsf(g[600] + 1 - 0.002f) < 1e-6f && fabsf(g[601] - 0.002f) < 1e-8f);
        label = 5;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(tutti_nn_entropy_loss(1, &s, &label, &right) == (double)INFINITY && right == 0);

        for (size_t i = 0; i < N; i++)
            x[i] = -INFINITY;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(isnan(tutti_nn_entropy_loss(1, &s, &label, &right)) && right == 0);
        for (size_t i = 0; i < N; i++) /* as large as floats go: nothing overflows */
            x[i] = i == 9 ? 3e38f : -3e38f;
        label = 9;
        m->entropy(&(nn_logits){ 1, 0, N, N, x }, &label, &s);
        assert_true(tutti_nn_entropy_loss(1, &s, &label, &right) == 0 && right == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_and_their_gradients_match_the_formula),
        cmocka_unit_test(a_large_mean_does_not_cancel_the_variance),
        cmocka_unit_test(norms_agree_bitwise_at_every_cpu_level_and_split),
        cmocka_unit_test(unique_sorts_ids_and_keeps_the_order_of_equal_ones),
        cmocka_unit_test(rows_gathered_and_summed_are_those_of_the_ids),
        cmocka_unit_test(the_first_id_beyond_the_vocabulary_is_found),
        cmocka_unit_test(learned_positions_are_added_and_gradients_summed_over_batch),
        cmocka_unit_test(rotary_embedding_rotates_pairs_by_position_and_inverts),
        cmocka_unit_test(cross_entropy_is_accurate_and_independent_of_chunks),
        cmocka_unit_test(argmax_ties_go_low_and_nonfinite_losses_are_incorrect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
