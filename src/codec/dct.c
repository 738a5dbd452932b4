/* dct.c: codec dct: the greatest coefficients of a cosine transform of each cell of a tensor. The
   extraction of DeMo (Peng, Chen, Su, Quesnelle, Kingma, Liu, "DeMo: Decoupled Momentum
   Optimization", ICLR 2026, arXiv 2411.19870), whose momentum is error feedback around it:
   ef(dct,decay=0.999).

     cells    a side of d elements is cut into ceil(d / chunk) parts, whose lengths differ by one at
              most: part i begins at floor(i d / parts). A matrix is cut along both sides, anything
              else is one row
     encode   Q = D_h X D_w^T, the orthonormal DCT-II; sent are the topk of greatest magnitude of
              each cell, of equal ones the lowest indexes; all where a cell has no more
     decode   D_h^T Q D_w

   The authors' code cuts a side into parts of its largest divisor up to chunk. Both are equal where
   chunk divides the side, and where that divisor is the longest part here. A side that is a larger
   prime has parts of one element there, so that nothing is compressed.

   A message: the values of all cells, cell by cell, each by ascending index, four bytes or two
   (value_dtype); then their indexes, packed: ceil(log2(h w)) bits each, of coefficient (u, v) u w +
   v. Its length depends on the shape only.

   mean=senders: a coefficient of the mean is the mean of those workers that have sent it, as in the
   authors' code; a worker that has not does not count as 0. Such a mean is no sum of decoded
   messages, so the codec makes it itself (`mean`), and it goes to no single worker
   (TUTTI_CODEC_JOINT). Coefficients are added in the order of ranks, and transformed back once.

   The transform is two products by tutti_rows_product, so its bits are the same at each level. The
   matrices are made of sums, products and quotients of doubles in one order, without the system's
   cosine: the same on each machine. A cell costs h w (h + w) multiply-adds a direction, at chunk=64
   128 an element: once to encode, and once for each message that is decoded; with mean=senders once
   for all of them. The matrices of all lengths up to chunk, and their transposes, are 8 chunk^3 / 3
   bytes: 0.7 MB at 64.

   A number that is not finite makes its cell not finite. The coefficients that are sent then have a
   NaN or an infinity, and so has the whole decoded cell. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"

enum { ALL, SENDERS };
enum { SIDE_MOST = TUTTI_DCT_CHUNK_MOST, CELL_MOST = SIDE_MOST * SIDE_MOST, SELECT_SLACK = 16 };
static const tutti_dtype value_types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

typedef struct dct {
    int64_t topk, chunk;
    int value, mean;
    size_t longest;              /* side of a cell that occurs */
    float *basis;                /* for each length up to `longest` D and its transpose */
    double norm;                 /* of all of that */
} dct;
static const tutti_option options[] = { TUTTI_ROW_DCT_TOPK(TUTTI_AT(dct, topk)),
                                        TUTTI_ROW_DCT_CHUNK(TUTTI_AT(dct, chunk)),
                                        TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(dct, value), NULL),
                                        TUTTI_ROW_DCT_MEAN(TUTTI_AT(dct, mean), ALL),
                                        { 0 } };

/* ---- the matrices ---- */

/* Elements before the matrices of length n: the sum of 2 t^2 over the lengths t below n. */
static size_t basis_place(size_t n)
{
    return (n - 1) * n * (2 * n - 1) / 3;
}

/* cos(pi turn / (2 n)), within 2^-52. */
static double cosine(size_t turn, size_t n)
{
    const double pi = 3.14159265358979323846;
    double x, square, sum = 1;
    bool negative, odd;

    turn %= 4 * n;
    turn = turn > 2 * n ? 4 * n - turn : turn;
    negative = turn > n;
    turn = negative ? 2 * n - turn : turn;
    odd = 2 * turn > n; /* beyond pi/4 it is the sine of what is left to pi/2 */
    x = pi * (double)(odd ? n - turn : turn) / (double)(2 * n);
    square = x * x;
    for (int i = 10; i > 0; i--)
        sum = 1 - square * sum / ((2 * i) * (odd ? 2 * i + 1 : 2 * i - 1));
    sum = odd ? x * sum : sum;
    return negative ? -sum : sum;
}

/* D of length n: sqrt(2 / n) cos(pi (2 j + 1) k / (2 n)), in row 0 sqrt(1 / n). */
static void make_one(size_t n, float *forth, float *back)
{
    float turns[4 * SIDE_MOST];

    for (size_t turn = 0; turn < 4 * n; turn++)
        turns[turn] = (float)(sqrt(2.0 / (double)n) * cosine(turn, n));
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++)
            forth[k * n + j] = back[j * n + k] =
                k == 0 ? (float)sqrt(1.0 / (double)n) : turns[(2 * j + 1) * k % (4 * n)];
}

static double basis_norm(const tutti_codec *c)
{
    const dct *s = c->self;

    return tutti_norm2(c->space->device, basis_place(s->longest + 1), s->basis);
}

static void open(tutti_codec *c)
{
    dct *s = c->self;

    for (size_t n = 1; n <= s->longest; n++)
        make_one(n, s->basis + basis_place(n), s->basis + basis_place(n) + n * n);
    s->norm = basis_norm(c);
}

/* Scratch may be anything when a step begins, and the matrices are made again if it is. */
static size_t dct_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    (void)m, (void)round, (void)numbers;
    if (!(basis_norm(c) == ((const dct *)c->self)->norm))
        open(c);
    return 0;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    dct *s = c->self;

    s->longest = c->space->n < (size_t)s->chunk ? c->space->n : (size_t)s->chunk;
    s->longest = s->longest > 0 ? s->longest : 1;
    tutti_codec_declare_floats(c, plan, "basis", TUTTI_SCRATCH, basis_place(s->longest + 1),
                               &s->basis);
}

/* D of length n, or its transpose. */
static const float *basis_of(const dct *s, size_t n, bool transposed)
{
    return s->basis + basis_place(n) + (transposed ? n * n : 0);
}

/* ---- cells ---- */

typedef struct cell {
    size_t down, across;         /* its number along both sides */
    size_t row, col, h, w;       /* where it is in the view; h 0: before the first */
    size_t k;                    /* coefficients sent */
    int bits;                    /* of an index */
    size_t first, bit;           /* coefficients, and bits of indexes, of the cells before */
} cell;

static size_t parts_of(size_t side, size_t chunk)
{
    return (side + chunk - 1) / chunk;
}

/* To the next cell of a view, row by row of cells; false: that was the last, and first and bit are
   those of all. */
static bool next_cell(const tutti_codec *c, const tutti_view *v, cell *at)
{
    const dct *s = c->self;
    const size_t chunk = (size_t)s->chunk, downs = parts_of(v->rows, chunk),
                 acrosses = parts_of(v->cols, chunk);

    if (at->h > 0) {
        at->first += at->k;
        at->bit += at->k * (size_t)at->bits;
        at->across++;
    }
    if (at->across == acrosses) {
        at->across = 0;
        at->down++;
    }
    if (v->count == 0 || at->down == downs)
        return false;
    at->row = at->down * v->rows / downs;
    at->h = (at->down + 1) * v->rows / downs - at->row;
    at->col = at->across * v->cols / acrosses;
    at->w = (at->across + 1) * v->cols / acrosses - at->col;
    at->k = at->h * at->w < (size_t)s->topk ? at->h * at->w : (size_t)s->topk;
    for (at->bits = 0; (size_t)1 << at->bits < at->h * at->w;)
        at->bits++;
    return true;
}

/* Coefficients, and bits of indexes, of a whole view. */
static cell count_all(const tutti_codec *c, const tutti_view *v)
{
    cell at = { 0 };

    while (next_cell(c, v, &at))
        ;
    return at;
}

static size_t value_bytes(const dct *s)
{
    return tutti_dtype_bytes(value_types[s->value]);
}

static size_t dct_bound(const tutti_codec *c, const tutti_view *v)
{
    const cell all = count_all(c, v);

    return all.first * value_bytes(c->self) + (all.bit + 7) / 8;
}

/* Transforms a cell whose column x is block[x h], forth or back. Returns where the result is, row
   by row: in `block` or in `work`, each of h w elements. */
static float *transform(const tutti_codec *c, const cell *at, bool back, float *block, float *work)
{
    const dct *s = c->self;
    tutti_device *d = c->space->device;

    tutti_rows_product(d, at->h, at->w, (int)at->w, block, at->h, basis_of(s, at->w, !back), work);
    if (at->h == 1)
        return work;
    tutti_rows_product(d, at->h, at->w, (int)at->h, basis_of(s, at->h, !back), at->h, work, block);
    return block;
}

/* ---- encoding ---- */

static unsigned dct_traits(const tutti_codec *c)
{
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_WHOLE_TENSOR | TUTTI_CODEC_FIXED |
           (((const dct *)c->self)->mean == SENDERS ? TUTTI_CODEC_JOINT : 0);
}

/* Elements of the largest cell, and of what selects from it. */
static size_t cell_elements(const tutti_codec *c, const tutti_view *v)
{
    const size_t chunk = (size_t)((const dct *)c->self)->chunk;

    return (v->rows < chunk ? v->rows : chunk) * (v->cols < chunk ? v->cols : chunk);
}

/* A smaller cell may need a few places more than the largest. */
static size_t select_elements(const tutti_codec *c, const tutti_view *v)
{
    const size_t n = cell_elements(c, v), topk = (size_t)((const dct *)c->self)->topk;

    return tutti_select_room(n, n < topk ? n : topk) + SELECT_SLACK;
}

static size_t scratch_bytes(const tutti_codec *c, const tutti_view *v)
{
    return sizeof(float) * 2 * (cell_elements(c, v) + select_elements(c, v));
}

/* Copies a cell, column after column. */
static void load_cell(const tutti_codec *c, const tutti_view *v, const cell *at, const float *x,
                      float *block)
{
    for (size_t i = 0; i < at->h; i++)
        for (size_t j = 0; j < at->w; j++)
            block[j * at->h + i] = x[(at->row + i) * v->cols + at->col + j];
    tutti_device_charge(c->space->device, 0, 8.0 * (double)(at->h * at->w));
}

static void put_values(const tutti_codec *c, size_t k, const float *value, uint8_t *out)
{
    const dct *s = c->self;
    tutti_device *d = c->space->device;
    uint16_t half[TUTTI_CODEC_BLOCK];

    for (size_t i = 0; i < k && s->value == 0; i++)
        tutti_codec_put_f32(out + 4 * i, value[i]);
    for (size_t at = 0, some; at < k && s->value != 0; at += some) {
        some = k - at < TUTTI_CODEC_BLOCK ? k - at : TUTTI_CODEC_BLOCK;
        tutti_cast(d, (tutti_buffer){ d, (void *)(uintptr_t)(value + at), some, TUTTI_F32 },
                   (tutti_buffer){ d, half, some, value_types[s->value] });
        for (size_t i = 0; i < some; i++) {
            out[2 * (at + i)] = (uint8_t)half[i];
            out[2 * (at + i) + 1] = (uint8_t)(half[i] >> 8);
        }
    }
}

static size_t dct_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                         uint8_t *out)
{
    const size_t each = value_bytes(c->self), most = cell_elements(c, v),
                 indexes = count_all(c, v).first * each;
    float *block = scratch, *work = block + most, *value = work + most;
    uint32_t *index = (uint32_t *)(void *)(value + select_elements(c, v));
    tutti_codec_writer to = { .out = out + indexes };
    cell at = { 0 };

    while (next_cell(c, v, &at)) {
        load_cell(c, v, &at, x, block);
        tutti_select_top(c->space->device, at.h * at.w, transform(c, &at, false, block, work), at.k,
                         index, value);
        put_values(c, at.k, value, out + at.first * each);
        for (size_t i = 0; i < at.k; i++)
            tutti_codec_write(&to, index[i], at.bits);
    }
    tutti_codec_write_end(&to);
    return indexes + to.bytes;
}

/* ---- decoding ---- */

/* The number of `bits` bits, up to 14, from bit `at` on. */
static uint32_t bits_at(const uint8_t *in, size_t at, int bits)
{
    uint32_t word = 0;

    for (size_t k = at / 8; 8 * k < at + (size_t)bits; k++)
        word |= (uint32_t)in[k] << 8 * (k - at / 8);
    return word >> at % 8 & ((1u << bits) - 1);
}

static tutti_status check_message(const tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                  size_t bytes, tutti_error *err)
{
    const cell all = count_all(c, v);
    const size_t values = all.first * value_bytes(c->self), wanted = values + (all.bit + 7) / 8;
    cell at = { 0 };

    if (bytes != wanted)
        return tutti_codec_wrong_size(c, v, bytes, wanted, err);
    while (next_cell(c, v, &at))
        for (size_t i = 0, least = 0; i < at.k; i++) {
            const size_t index = bits_at(in + values, at.bit + i * (size_t)at.bits, at.bits);
            if (index < least || index >= at.h * at.w)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "codec '%s': index %zu of %zu of the cell at row %zu, column %zu "
                                  "is %zu, and it should be from %zu to %zu; the message was "
                                  "damaged or is another codec's",
                                  c->ops->name, i + 1, at.k, at.row, at.col, index, least,
                                  at.h * at.w - 1);
            least = index + 1;
        }
    if (all.bit % 8 != 0 && in[bytes - 1] >> all.bit % 8 != 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': bits are set behind the last of %zu indexes; the message "
                          "was damaged or is another codec's", c->ops->name, all.first);
    return TUTTI_OK;
}

static float value_at(const tutti_codec *c, const uint8_t *in, size_t i)
{
    const dct *s = c->self;
    tutti_device *d = c->space->device;
    uint16_t half;
    float value;

    if (s->value == 0)
        return tutti_codec_get_f32(in + 4 * i);
    half = (uint16_t)(in[2 * i] | in[2 * i + 1] << 8);
    tutti_cast(d, (tutti_buffer){ d, &half, 1, value_types[s->value] }, tutti_f32(d, &value, 1));
    return value;
}

/* Adds a message's coefficients of a cell to block, which has columns as load_cell's. Counts them
   in `senders`, unless NULL. indexes: bytes before the indexes. */
static void add_coefficients(const tutti_codec *c, const cell *at, const uint8_t *in,
                             size_t indexes, float *block, uint16_t *senders)
{
    for (size_t i = 0; i < at->k; i++) {
        const size_t index = bits_at(in + indexes, at->bit + i * (size_t)at->bits, at->bits),
                     place = index % at->w * at->h + index / at->w;
        block[place] += value_at(c, in, at->first + i);
        if (senders != NULL)
            senders[place]++;
    }
    tutti_device_charge(c->space->device, (double)at->k, 16.0 * (double)at->k);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t indexes = count_all(c, v).first * value_bytes(c->self);
    tutti_device *d = c->space->device;
    float block[CELL_MOST], work[CELL_MOST];
    cell at = { 0 };

    TUTTI_TRY(check_message(c, v, in, bytes, err));
    while (next_cell(c, v, &at)) {
        const float *x;
        tutti_fill(d, at.h * at.w, 0, block);
        add_coefficients(c, &at, in, indexes, block, NULL);
        x = transform(c, &at, true, block, work);
        for (size_t i = 0; i < at.h; i++)
            tutti_axpy(d, at.w, a, x + i * at.w, y + (at.row + i) * v->cols + at.col);
    }
    return TUTTI_OK;
}

static tutti_status dct_mean(tutti_codec *c, const tutti_view *v, const tutti_codec_messages *all,
                             float *y, tutti_error *err)
{
    const size_t indexes = count_all(c, v).first * value_bytes(c->self);
    tutti_device *d = c->space->device;
    float block[CELL_MOST], work[CELL_MOST];
    uint16_t senders[CELL_MOST];
    cell at = { 0 };

    for (*all->bad = 0; *all->bad < all->n; ++*all->bad) {
        const tutti_codec_message *m = &all->first[(size_t)*all->bad * all->stride];
        TUTTI_TRY(check_message(c, v, m->at, m->bytes, err));
    }
    while (next_cell(c, v, &at)) {
        const size_t n = at.h * at.w;
        const float *x;
        tutti_fill(d, n, 0, block);
        memset(senders, 0, n * sizeof *senders);
        for (int r = 0; r < all->n; r++)
            add_coefficients(c, &at, all->first[(size_t)r * all->stride].at, indexes, block,
                             senders);
        for (size_t i = 0; i < n; i++)
            block[i] /= (float)(senders[i] > 0 ? senders[i] : 1);
        tutti_device_charge(d, (double)n, 10.0 * (double)n);
        x = transform(c, &at, true, block, work);
        for (size_t i = 0; i < at.h; i++)
            tutti_copy(d, at.w, x + i * at.w, y + (at.row + i) * v->cols + at.col);
    }
    return TUTTI_OK;
}

const tutti_codec_ops tutti_codec_dct = {
    .name = "dct",
    .paper = "Peng et al., ICLR 2026 (DeMo)",
    .help = "the greatest coefficients of a cosine transform, of each chunk of a tensor",
    .options = options,
    .self_bytes = sizeof(dct),
    .traits = dct_traits,
    .declare = declare,
    .open = open,
    .begin = dct_begin,
    .scratch = scratch_bytes,
    .bound = dct_bound,
    .encode = dct_encode,
    .decode_add = decode_add,
    .mean = dct_mean,
};
