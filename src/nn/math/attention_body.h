/* attention_body.h: private: softmax(scale Q K^T) V without a matrix of length x length (math.h;
   FlashAttention: Dao et al. 2022; the backward is its appendix B.4). Included by math_body.h.

   Lanes are queries. A block of QUERIES queries is transposed once (Q^T: width x QUERIES). A tile
   of scores S^T = K Q^T, NN_KEYS x QUERIES, is then a product whose left factor is read in place,
   one element at a time. Maxima and sums over keys are maxima and sums of vectors, and no lane is
   ever shuffled:

     S^T   (keys x queries)  = K    (keys x width)    Q^T  (width x queries)
     O^T   (width x queries) = V^T  (width x keys)    P^T  (keys x queries)
     dP^T  (keys x queries)  = V    (keys x width)    dO^T (width x queries)
     dQ^T  (width x queries) = K^T  (width x keys)    dS^T (keys x queries)
     dV    (keys x width)   += P^T  (keys x queries)  dO   (queries x width)
     dK    (keys x width)   += dS^T (keys x queries)  Q    (queries x width)

     P = exp(scale S - max),  dS = P (dP - D) scale,  D = sum over width of dO O

   where O is the output, and dX the slope of X. Every element of a product is one chain of fused
   products and sums in the order of the inner index, continued from tile to tile; elements above
   the diagonal add 0. So the number of queries in a block, which differs by level, changes no bit.
   NN_KEYS does, since the forward's running maximum is updated once for each tile. */

enum { QUERIES = LANES * TILE_VECTORS };

/* c (rows x vectors, in registers) += a b. Element (r, t) of a is a[r a_row + t a_step]. Row t of b
   begins at b + t b_step; its last vector has k floats. */
INLINE void multiply_tile(size_t rows, size_t vectors, size_t k, size_t depth, const float *a,
                          size_t a_row, size_t a_step, const float *b, size_t b_step,
                          lanes c[TILE_ROWS][TILE_VECTORS])
{
    for (size_t t = 0; t < depth; t++) {
        lanes part[TILE_VECTORS];
        UNROLLED for (size_t v = 0; v < vectors; v++)
            part[v] = load(b + t * b_step + v * LANES, v + 1 < vectors ? LANES : k);
        UNROLLED for (size_t r = 0; r < rows; r++) {
            const lanes one = lanes_all(a[r * a_row + t * a_step]);
            UNROLLED for (size_t v = 0; v < vectors; v++)
                c[r][v] = lanes_fma(one, part[v], c[r][v]);
        }
    }
}

/* A product c = a b; a, b: as of multiply_tile. */
typedef struct product {
    size_t depth;        /* columns of a, rows of b */
    const float *a;
    size_t a_row, a_step;
    const float *b;
    size_t b_step;
    float *c;
    size_t c_row;
    const float *factor; /* not fresh: c = factor c + a b, with a factor for each column; NULL: 1 */
    bool fresh;          /* c = a b */
} product;

/* Computes rows [first, first + rows) of c, `vectors` vectors from `column` on. */
INLINE void multiply_rows(const product *p, size_t rows, size_t vectors, size_t k, size_t first,
                          size_t column)
{
    lanes c[TILE_ROWS][TILE_VECTORS];
    float *const out = p->c + first * p->c_row + column;

    lanes_clear(c[0], TILE_ROWS * TILE_VECTORS);
    UNROLLED for (size_t r = 0; r < rows; r++)
        UNROLLED for (size_t v = 0; v < vectors; v++) {
            const size_t count = v + 1 < vectors ? LANES : k;
            c[r][v] = lanes_all(0);
            if (!p->fresh)
                c[r][v] = load(out + r * p->c_row + v * LANES, count);
            if (p->factor != NULL)
                c[r][v] = lanes_mul(c[r][v], load(p->factor + column + v * LANES, count));
        }
    multiply_tile(rows, vectors, k, p->depth, p->a + first * p->a_row, p->a_row, p->a_step,
                  p->b + column, p->b_step, c);
    UNROLLED for (size_t r = 0; r < rows; r++)
        UNROLLED for (size_t v = 0; v < vectors; v++)
            store(out + r * p->c_row + v * LANES, v + 1 < vectors ? LANES : k, c[r][v]);
}

/* Computes all rows of c, `vectors` vectors from `column` on. The number of rows of a tile is a
   constant in each call, so that its sums stay in registers. */
INLINE void multiply_strip(const product *p, size_t rows, size_t vectors, size_t k, size_t column)
{
    size_t first = 0;

    for (; rows - first >= TILE_ROWS; first += TILE_ROWS)
        multiply_rows(p, TILE_ROWS, vectors, k, first, column);
    for (; rows - first >= 4 && TILE_ROWS > 4; first += 4)
        multiply_rows(p, TILE_ROWS > 4 ? 4 : 1, vectors, k, first, column);
    for (; first < rows; first++)
        multiply_rows(p, 1, vectors, k, first, column);
}

/* Computes a product with QUERIES columns. */
static void multiply_queries(const product *p, size_t rows)
{
    multiply_strip(p, rows, TILE_VECTORS, LANES, 0);
}

/* Computes a product of any size. */
static void multiply(const product *p, size_t rows, size_t columns)
{
    size_t column = 0;

    for (; columns - column >= QUERIES; column += QUERIES)
        multiply_strip(p, rows, TILE_VECTORS, LANES, column);
    for (; columns - column >= LANES; column += LANES)
        multiply_strip(p, rows, 1, LANES, column);
    if (column < columns)
        multiply_strip(p, rows, 1, columns - column, column);
}

/* Transposes: to (columns x rows) = from (rows x columns). */
static void transpose(size_t rows, size_t columns, const float *from, size_t from_step, float *to,
                 size_t to_step)
{
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t c = 0; c < columns; c += LANES) {
            const float *f = from + r * from_step + c;
            float *t = to + c * to_step + r;
            if (rows - r >= LANES && columns - c >= LANES)
                lanes_transpose(f, from_step, t, to_step);
            else
                for (size_t i = 0; i < LANES && r + i < rows; i++)
                    for (size_t j = 0; j < LANES && c + j < columns; j++)
                        t[j * to_step + i] = f[i * from_step + j];
        }
}

/* A block of queries of one head, with the scratch of forward and backward. Members that only the
   backward uses are marked. */
typedef struct block {
    const nn_attention *a;
    size_t first, count;       /* the queries are [first, first + count), count <= QUERIES */
    size_t keys;               /* they attend to keys [0, keys) */
    /* QUERIES x width, contiguous rows: rows far apart would fall into few sets of the first
       cache. */
    float *q, *slope;          /* slope: dO; backward */
    float *q_transposed, *slope_transposed; /* width x QUERIES; slope_transposed: backward */
    float *out;                /* width x QUERIES: O^T, or dQ^T in backward */
    float *p;                  /* NN_KEYS x QUERIES: scores, then P^T */
    float *ds;                 /* NN_KEYS x QUERIES: dP^T, then dS^T; backward */
    float *max, *sum;          /* QUERIES: running maximum and sum of the softmax */
    float *factor;             /* QUERIES: factor of earlier sums in the current tile */
    float *d, *lse;            /* QUERIES: D, and log of the sum of exp; backward */
} block;

static block block_of(const nn_attention *a, float *scratch)
{
    const size_t wide = QUERIES * a->width, tile = NN_KEYS * QUERIES;
    block b = { .a = a, .q = scratch };

    b.slope = b.q + wide;
    b.q_transposed = b.slope + wide;
    b.slope_transposed = b.q_transposed + wide;
    b.out = b.slope_transposed + wide;
    b.p = b.out + wide;
    b.ds = b.p + tile;
    b.max = b.ds + tile;
    b.sum = b.max + QUERIES;
    b.factor = b.sum + QUERIES;
    b.d = b.factor + QUERIES;
    b.lse = b.d + QUERIES;
    return b;
}

/* Copies the block's rows from a matrix, and transposes them. Queries beyond b->count are 0. */
static void load_rows(const block *b, const float *from, size_t step, float *rows,
                      float *transposed)
{
    const size_t width = b->a->width;

    if (b->count < QUERIES) {
        memset(rows + b->count * width, 0, (QUERIES - b->count) * width * sizeof *rows);
        memset(transposed, 0, QUERIES * width * sizeof *transposed);
    }
    for (size_t r = 0; r < b->count; r++)
        memcpy(rows + r * width, from + r * step, width * sizeof *rows);
    transpose(b->count, width, rows, width, transposed, QUERIES);
}

/* Makes *b the block of queries that begins with query `first`. */
static void set_block(block *b, size_t first)
{
    b->first = first;
    b->count = b->a->length - first < QUERIES ? b->a->length - first : QUERIES;
    b->keys = b->a->causal ? first + b->count : b->a->length;
}

/* Writes the scores of keys [first, first + count) to b->p; -infinity for keys after the query. */
static void scores(const block *b, const float *k, size_t first, size_t count)
{
    static const float index[LANES] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    const size_t stride = b->a->stride;
    const product p = { .depth = b->a->width,
                        .a = k + first * stride,
                        .a_row = stride,
                        .a_step = 1,
                        .b = b->q_transposed,
                        .b_step = QUERIES,
                        .c = b->p,
                        .c_row = QUERIES,
                        .fresh = true };

    multiply_queries(&p, count);
    for (size_t r = first < b->first ? b->first - first : 0; r < count && b->a->causal; r++)
        for (size_t i = 0; i < QUERIES; i += LANES) {
            float *const s = b->p + r * QUERIES + i;
            /* numbers below 64 + 32 */
            const lanes_which early =
                lanes_below(lanes_get(index), lanes_all((float)(first + r - b->first) - (float)i));
            lanes_put(s, lanes_pick(early, lanes_all(-INFINITY), lanes_get(s)));
        }
}

/* Makes one step of the online softmax: replaces a tile's scores by exp(scale score - max), and
   updates the running maximum and sum. b->factor: by what earlier sums are multiplied. begins: this
   is the first tile. */
static void softmax_tile(const block *b, size_t count, bool begins)
{
    const lanes scale = lanes_all(b->a->scale);

    for (size_t i = 0; i < QUERIES; i += LANES) {
        float *const p = b->p + i;
        lanes most = lanes_get(p), other = most, max, minus, sum = lanes_all(0), odd = lanes_all(0),
              shrink;
        size_t r = 0;
        for (r = 1; r + 1 < count; r += 2) {
            most = lanes_max(lanes_get(p + r * QUERIES), most);
            other = lanes_max(lanes_get(p + (r + 1) * QUERIES), other);
        }
        if (r < count)
            most = lanes_max(lanes_get(p + r * QUERIES), most);
        max = lanes_mul(lanes_max(other, most), scale);
        if (!begins)
            max = lanes_max(lanes_get(b->max + i), max);
        minus = lanes_mul(max, lanes_all(-1));
        for (r = 0; r + 1 < count; r += 2) {
            const lanes x = lanes_exp(lanes_fma(lanes_get(p + r * QUERIES), scale, minus)),
                        y = lanes_exp(lanes_fma(lanes_get(p + (r + 1) * QUERIES), scale, minus));
            lanes_put(p + r * QUERIES, x);
            lanes_put(p + (r + 1) * QUERIES, y);
            sum = lanes_add(sum, x);
            odd = lanes_add(odd, y);
        }
        if (r < count) {
            const lanes x = lanes_exp(lanes_fma(lanes_get(p + r * QUERIES), scale, minus));
            lanes_put(p + r * QUERIES, x);
            sum = lanes_add(sum, x);
        }
        sum = lanes_add(sum, odd);
        if (!begins) {
            shrink = lanes_exp(lanes_sub(lanes_get(b->max + i), max));
            lanes_put(b->factor + i, shrink);
            sum = lanes_fma(lanes_get(b->sum + i), shrink, sum);
        }
        lanes_put(b->sum + i, sum);
        lanes_put(b->max + i, max);
    }
}

/* Computes the output of a block of queries. */
static void attend(block *b, const float *q, const float *k, const float *v, float *o, float *lse)
{
    const size_t stride = b->a->stride, width = b->a->width;

    load_rows(b, q + b->first * stride, stride, b->q, b->q_transposed);
    for (size_t key = 0; key < b->keys; key += NN_KEYS) {
        const size_t count = b->keys - key < NN_KEYS ? b->keys - key : NN_KEYS;
        const product p = { .depth = count,
                            .a = v + key * stride,
                            .a_row = 1,
                            .a_step = stride,
                            .b = b->p,
                            .b_step = QUERIES,
                            .c = b->out,
                            .c_row = QUERIES,
                            .factor = key == 0 ? NULL : b->factor,
                            .fresh = key == 0 };
        scores(b, k, key, count);
        softmax_tile(b, count, key == 0);
        multiply_queries(&p, width);
    }
    for (size_t i = 0; i < QUERIES; i += LANES) {
        const lanes one_over = lanes_div(lanes_all(1), lanes_get(b->sum + i));
        for (size_t j = 0; j < width; j++)
            lanes_put(b->out + j * QUERIES + i,
                      lanes_mul(lanes_get(b->out + j * QUERIES + i), one_over));
    }
    transpose(width, b->count, b->out, QUERIES, o + b->first * b->a->out_stride, b->a->out_stride);
    for (size_t i = 0; i < b->count; i++)
        lse[b->first + i] = b->max[i] + logf(b->sum[i]);
}

/* Returns the offset of unit u (math.h, attention) in rows of `stride` floats. */
INLINE size_t unit_at(const nn_attention *a, size_t unit, size_t stride)
{
    return unit / a->heads * a->length * stride + unit % a->heads * a->width;
}

static void attention(const nn_attention *a, size_t first, size_t count,
                      const nn_attention_values *of, float *scratch)
{
    block b = block_of(a, scratch);

    for (size_t u = first; u < first + count; u++) {
        const size_t at = unit_at(a, u, a->stride);
        for (size_t query = 0; query < a->length; query += QUERIES) {
            set_block(&b, query);
            attend(&b, of->q + at, of->k + at, of->v + at, of->o + unit_at(a, u, a->out_stride),
                   of->lse + u * a->length);
        }
    }
}

/* ---- backward ---- */
/* Replaces the scores in b->p by P, and dP in b->ds by dS. */
static void slope_of_scores(const block *b, size_t count)
{
    const lanes scale = lanes_all(b->a->scale);

    for (size_t i = 0; i < QUERIES; i += LANES) {
        const lanes minus = lanes_mul(lanes_get(b->lse + i), lanes_all(-1)),
                    d = lanes_get(b->d + i);
        for (size_t r = 0; r < count; r++) {
            float *const p = b->p + r * QUERIES + i, *const ds = b->ds + r * QUERIES + i;
            const lanes x = lanes_exp(lanes_fma(lanes_get(p), scale, minus));
            lanes_put(p, x);
            lanes_put(ds, lanes_mul(lanes_mul(x, scale), lanes_sub(lanes_get(ds), d)));
        }
    }
}

/* Computes dQ of a block of queries of one unit, whose values and slopes begin at the pointers, and
   adds its contributions to dK and dV. */
static void attend_back(block *b, const nn_attention_values *of, const nn_attention_slopes *to)
{
    const float *q = of->q, *k = of->k, *v = of->v, *o = of->o, *lse = of->lse, *slope = to->o;
    const size_t stride = b->a->stride, out_stride = b->a->out_stride, width = b->a->width;

    load_rows(b, q + b->first * stride, stride, b->q, b->q_transposed);
    load_rows(b, slope + b->first * out_stride, out_stride, b->slope, b->slope_transposed);
    for (size_t r = 0; r < QUERIES; r++) {
        const bool exists = r < b->count;
        b->lse[r] = exists ? lse[b->first + r] : INFINITY; /* P = 0 for queries that do not exist */
        b->d[r] = exists ? dot(width, o + (b->first + r) * out_stride, b->slope + r * width) : 0;
    }
    for (size_t key = 0; key < b->keys; key += NN_KEYS) {
        const size_t count = b->keys - key < NN_KEYS ? b->keys - key : NN_KEYS;
        const product dp = { .depth = width,
                             .a = v + key * stride,
                             .a_row = stride,
                             .a_step = 1,
                             .b = b->slope_transposed,
                             .b_step = QUERIES,
                             .c = b->ds,
                             .c_row = QUERIES,
                             .fresh = true };
        const product dv = { .depth = b->count,
                             .a = b->p,
                             .a_row = QUERIES,
                             .a_step = 1,
                             .b = b->slope,
                             .b_step = width,
                             .c = to->v + key * stride,
                             .c_row = stride };
        const product dk = { .depth = b->count,
                             .a = b->ds,
                             .a_row = QUERIES,
                             .a_step = 1,
                             .b = b->q,
                             .b_step = width,
                             .c = to->k + key * stride,
                             .c_row = stride };
        const product dq = { .depth = count,
                             .a = k + key * stride,
                             .a_row = 1,
                             .a_step = stride,
                             .b = b->ds,
                             .b_step = QUERIES,
                             .c = b->out,
                             .c_row = QUERIES,
                             .fresh = key == 0 };
        scores(b, k, key, count);
        multiply_queries(&dp, count);
        slope_of_scores(b, count);
        multiply(&dv, count, width);
        multiply(&dk, count, width);
        multiply_queries(&dq, width);
    }
    transpose(width, b->count, b->out, QUERIES, to->q + b->first * stride, stride);
}

static void attention_back(const nn_attention *a, size_t first, size_t count,
                           const nn_attention_values *of, const nn_attention_slopes *to,
                           float *scratch)
{
    block b = block_of(a, scratch);

    for (size_t u = first; u < first + count; u++) {
        const size_t at = unit_at(a, u, a->stride), out = unit_at(a, u, a->out_stride);
        const nn_attention_values unit = { of->q + at, of->k + at, of->v + at, of->o + out,
                                           of->lse + u * a->length };
        const nn_attention_slopes slopes = { to->o + out, to->q + at, to->k + at, to->v + at };
        for (size_t r = 0; r < a->length; r++) { /* every block of queries adds to them */
            memset(slopes.k + r * a->stride, 0, a->width * sizeof(float));
            memset(slopes.v + r * a->stride, 0, a->width * sizeof(float));
        }
        for (size_t query = 0; query < a->length; query += QUERIES) {
            set_block(&b, query);
            attend_back(&b, &unit, &slopes);
        }
    }
}
