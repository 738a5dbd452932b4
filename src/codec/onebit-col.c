/* onebit-col.c: codec onebit-col: one bit an element and two numbers a column: the means of the
   elements that are 0 or more and of the negative ones, which these decode to. Seide, Fu, Droppo,
   Li, Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
   Training of Speech DNNs", Interspeech 2014.

   Of all pairs of numbers that these bits can stand for, the means lose least, and the losses of
   either group sum to 0:  |C(x) - x|^2 = |x|^2 - sum over columns (n+ mean+^2 + n- mean-^2), where
   n+ and n- count the elements of the groups. That is never more than `sign` loses of a column.

   It is for ef(...), as published. Columns are those of the tensor. A part of a matrix (an owner's
   part, from four workers up) has means of its own for the parts of columns in it. Two means are 64
   bits, as many as the bits of 64 rows. So a view of fewer than min_rows rows is one column, as are
   vectors, and views that extend over several tensors. A column with a number that is not finite,
   or a mean beyond the range of float, decodes to NaN.

   A message has 8 columns + ceil(n / 8) bytes: mean+ and mean- of each column, then the bits (1:
   negative). The mean of an empty group is 0. */
#include "codec_internal.h"
#include "registry.h"
#include "kernels/codes.h"

typedef struct onebit_col { int64_t min_rows; } onebit_col;
typedef struct sums {
    double of[2];
    uint32_t count[2];
} sums; /* of a column: 0 and more, a NaN among them; negative */
static const tutti_option options[] = { { "min_rows", TUTTI_INT, TUTTI_AT(onebit_col, min_rows), 64,
                                          1, 1 << 30, NULL,
                                          "rows from which on columns have numbers of their own; "
                                          "with fewer a tensor, or an owner's part of one, has two "
                                          "for all" },
                                        { 0 } };

static unsigned onebit_col_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
}

/* The number of columns. Column 0 is that of the view's first element, wherever a row begins. */
static size_t columns_of(const tutti_codec *c, const tutti_view *v)
{
    const tutti_view *whole = v->tensor >= 0 ? &c->space->tensor[v->tensor] : v;
    const size_t columns = v->tensor >= 0 && whole->rows > 1 ? whole->cols : 1;

    if (v->count == 0 || v->count / columns < (size_t)((const onebit_col *)c->self)->min_rows)
        return v->count > 0;
    return columns;
}

static size_t onebit_col_bound(const tutti_codec *c, const tutti_view *v)
{
    return 8 * columns_of(c, v) + (v->count + 7) / 8;
}

static size_t scratch_of(const tutti_codec *c, const tutti_view *v)
{
    return columns_of(c, v) * sizeof(sums);
}

/* A row. No branch: the next sign cannot be predicted, and a mispredicted branch takes longer
   than all else. */
static void add_up(sums *s, size_t n, const float *x)
{
    for (size_t i = 0; i < n; i++) {
        const bool negative = x[i] < 0;
        s[i].of[negative] += (double)x[i];
        s[i].count[negative]++;
    }
}

/* A view that is one column. */
static void add_up_one(sums *s, size_t n, const float *x)
{
    for (size_t i = 0; i < n; i++) {
        const bool negative = x[i] < 0;
        s->of[negative] += (double)x[i];
        s->count[negative]++;
    }
}

static size_t onebit_col_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                                uint8_t *out)
{
    const size_t columns = columns_of(c, v);
    sums *s = scratch;

    memset(s, 0, columns * sizeof *s);
    if (columns == 1)
        add_up_one(s, v->count, x);
    for (size_t at = 0; columns > 1 && at < v->count; at += columns)
        add_up(s, columns < v->count - at ? columns : v->count - at, x + at);
    for (size_t k = 0; k < columns; k++) {
        float plus = s[k].count[0] > 0 ? (float)(s[k].of[0] / s[k].count[0]) : 0,
              minus = s[k].count[1] > 0 ? (float)(s[k].of[1] / s[k].count[1]) : 0;
        if (!isfinite(plus) || !isfinite(minus))
            plus = minus = NAN;
        tutti_codec_put_f32(out + 8 * k, plus);
        tutti_codec_put_f32(out + 8 * k + 4, minus);
    }
    tutti_signs(c->space->device, v->count, x, false, out + 8 * columns);
    tutti_device_charge(c->space->device, 2.0 * (double)v->count, 4.0 * (double)v->count);
    return onebit_col_bound(c, v);
}

static void add_one(size_t n, const uint8_t *bits, const uint8_t *values, float a, float *y)
{
    const float mean[] = { a * tutti_codec_get_f32(values), a * tutti_codec_get_f32(values + 4) };

    for (size_t i = 0; i < n; i++)
        y[i] += mean[bits[i / 8] >> i % 8 & 1];
}

/* n elements of a row, whose bits begin at `at`. */
static void add_row(size_t n, const uint8_t *bits, size_t at, const uint8_t *values, float a,
                    float *y)
{
    for (size_t i = 0; i < n; i++) {
        const size_t bit = at + i;
        y[i] +=
            a * tutti_codec_get_f32(values + 8 * i + 4 * (size_t)(bits[bit / 8] >> bit % 8 & 1));
    }
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t columns = columns_of(c, v);

    if (bytes != onebit_col_bound(c, v))
        return tutti_codec_wrong_size(c, v, bytes, onebit_col_bound(c, v), err);
    for (size_t k = 0; k < columns; k++) {
        const float plus = tutti_codec_get_f32(in + 8 * k),
                    minus = tutti_codec_get_f32(in + 8 * k + 4);
        if (!(isnan(plus) && isnan(minus)) &&
            !(isfinite(plus) && isfinite(minus) && plus >= 0 && minus <= 0))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec 'onebit-col': column %zu of %zu has the means %g and %g, and "
                              "one is of numbers of 0 or more, the other of negative ones; the "
                              "message was damaged or is another codec's",
                              k + 1, columns, (double)plus, (double)minus);
    }
    if (columns == 1)
        add_one(v->count, in + 8, in, a, y);
    else
        for (size_t at = 0; at < v->count; at += columns)
            add_row(columns < v->count - at ? columns : v->count - at, in + 8 * columns, at, in, a,
                    y + at);
    tutti_device_charge(c->space->device, 2.0 * (double)v->count, 8.0 * (double)v->count);
    return TUTTI_OK;
}

const tutti_codec_ops tutti_codec_onebit_col = {
    .name = "onebit-col",
    .paper = "Seide et al., Interspeech 2014",
    .help = "one bit an element, and the means of either sign a column of a matrix",
    .options = options,
    .self_bytes = sizeof(onebit_col),
    .traits = onebit_col_traits,
    .scratch = scratch_of,
    .bound = onebit_col_bound,
    .encode = onebit_col_encode,
    .decode_add = decode_add,
};
