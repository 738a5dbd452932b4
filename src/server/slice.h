/* slice.h: the format in which a shard, a range of the flat space, is sent to a server and back.
   Included by the files of src/server; implemented by slice.c. Pure functions of the layout and of
   the known rows; any thread, except where they change known rows.

   The format. 4-byte words, for the tensors of the range in order. A tensor that is no table is
   its floats. A table whose rows are known (TUTTI_SPARSE_ROWS) is one word, the number of its rows
   that are sent, then their ids (row numbers in the whole table, ascending), then the rows. Or, if
   it is sent whole, that word is UINT32_MAX, followed by all floats of the table within the range.

   Rows are sent while ids and rows together are fewer words than the whole (Parallax's rule,
   src/engine/rows.c). Every row of a table that is sent whole counts as touched. A lazy optimiser
   would then move rows that no worker has touched; so with a lazy optimiser a table is sent whole
   only if every row is touched. A range begins and ends between rows (tutti_slice_cut). */
#ifndef TUTTI_SLICE_H
#define TUTTI_SLICE_H
#include "../engine/engine_facility.h"
#include "kernels/compensate.h"

typedef struct tutti_slice {
    size_t first, count;                 /* in the flat space */
    int tensor;                          /* the first tensor that the range overlaps */
    size_t tables;                       /* number of tables in it whose rows are known */
    size_t ids;                          /* words by which their ids may exceed what the whole
                                            tables have; 0 unless the optimiser is lazy */
} tutti_slice;

/* ---- reading ---- */

/* A part of a shard: either values, of tensors up to the next table, or a table. */
typedef struct tutti_slice_part {
    int tensor;                          /* the table; -1: values */
    size_t first, count;                 /* the elements of the part within the shard, in the flat
                                            space */
    bool whole;                          /* a table that is sent whole */
    size_t n;                            /* otherwise: number of its rows */
    const uint32_t *ids;                 /* [n]: their ids */
    const float *values;                 /* [count]; or of a table that is not whole [n][cols] */
} tutti_slice_part;
/* A position in the words of a shard. */
typedef struct tutti_slice_reader {
    const tutti_method *m;
    const tutti_slice *slice;
    const float *at;                     /* the next word */
    int tensor;                          /* the next tensor */
} tutti_slice_reader;
/* Returns a reader at the beginning of `words`, which tutti_slice_check has checked, or which this
   process has written. */
tutti_slice_reader tutti_slice_read(const tutti_method *m, const tutti_slice *s,
                                    const float *words);
/* Sets *p to the next part; false: there is none. */
bool tutti_slice_next(tutti_slice_reader *r, tutti_slice_part *p);
/* Checks the n words that a worker has sent, which decide what is read and written and so are not
   trusted. TUTTI_ERR_CORRUPT. */
tutti_status tutti_slice_check(const tutti_method *m, const tutti_slice *s, const float *words,
                               size_t n, int worker, tutti_error *err);

/* ---- ranges ---- */

/* Returns where a range that is to begin at element `at` begins: at the beginning of the row that
   contains `at`; outside tables at `at`. */
size_t tutti_slice_cut(const tutti_method *m, size_t at);
/* Returns the shard [first, first + count), which begins and ends between rows. */
tutti_slice tutti_slice_of(const tutti_method *m, size_t first, size_t count);
/* Returns the most words that a shard may take. */
static inline size_t tutti_slice_words_most(const tutti_slice *s)
{
    return s->count + s->tables + s->ids;
}

/* ---- writing. Below, g, x: element 0 of the flat space; values, read, sum, to, mean: element
   s->first. "The rows of `words`": of each table the rows that `words` has, or all if it is whole
   ---- */

/* Returns the number of words of the gradient g, with the rows that are known of it. */
size_t tutti_slice_words(const tutti_method *m, const tutti_slice *s);
/* Writes them. */
void tutti_slice_pack(const tutti_method *m, const tutti_slice *s, const float *g, float *words);
/* Writes all values, but no row of a table whose rows workers request (asked). Returns the number
   of words. */
size_t tutti_slice_whole(const tutti_method *m, const tutti_slice *s, const float *values,
                         float *words);
/* Copies from `values` to `to` what tutti_slice_whole writes. */
void tutti_slice_given(const tutti_method *m, const tutti_slice *s, const float *values, float *to);
/* Copies the shard in `words` to x; rows that `words` does not have are unchanged. */
void tutti_slice_store(const tutti_method *m, const tutti_slice *s, const float *words, float *x);
/* Replaces the values and the rows in `words` by those of `values`. */
void tutti_slice_fetch(const tutti_method *m, const tutti_slice *s, const float *values,
                       float *words);
/* Of the sum of an exchange: adds the rows of `words` to the known rows of g. begins: forgets
   those known before. The thread of the exchange. */
void tutti_slice_known(const tutti_method *m, const tutti_slice *s, const float *words,
                       bool begins);
/* Copies the n rows `ids` of a table with `cols` columns to out[n][cols]. rows: the address of row
   `low`. */
void tutti_slice_gather(size_t cols, size_t n, const uint32_t *ids, const float *rows, uint32_t low,
                        float *out);
/* Copies the n rows `ids` from one table to another. from, to: the addresses of row `low`. */
void tutti_slice_copy(size_t cols, size_t n, const uint32_t *ids, const float *from, float *to,
                      uint32_t low);

/* ---- updates and sums ---- */

/* The values of a shard. zeros: [s->count], zeros before and after, for optimisers that update
   every row; NULL if tutti_optim_by_rows(o). */
typedef struct tutti_slice_values {
    float *values, *zeros;
} tutti_slice_values;
/* Makes one step of the optimiser o on the values along the gradient in `words`. */
void tutti_slice_update(const tutti_method *m, tutti_optim *o, const tutti_slice *s,
                        const float *words, const tutti_slice_values *to, const tutti_rate *rate);
/* The values of a shard now, and those that a worker has read. */
typedef struct tutti_slice_read_at {
    const float *values, *read;
} tutti_slice_read_at;
/* Applies tutti_compensate to the gradient in `words`, which was computed at the values that were
   read, for those of now. mean: changed where `words` has rows; NULL: none. */
void tutti_slice_compensate(const tutti_method *m, const tutti_slice *s,
                            const tutti_compensation *c, const tutti_slice_read_at *at,
                            float *words, float *mean);
/* Adds a times the gradient in `words` to sum[s->count], and sets the marks of its rows to 1.
   marks: [tutti_slice_marks], one for each row of the shard's tables, table after table. */
void tutti_slice_add(const tutti_method *m, const tutti_slice *s, float a, const float *words,
                     float *sum, uint8_t *marks);
/* Returns the number of marks of the shard, and sets *first to the index of its first mark among
   those of the whole model. */
size_t tutti_slice_marks(const tutti_method *m, const tutti_slice *s, size_t *first);
/* Makes one step of m->optim on `values` along `sum`, for marked rows and for all values outside
   tables. Then sets sum and marks to 0. */
void tutti_slice_update_added(const tutti_method *m, const tutti_slice *s, float *sum,
                              uint8_t *marks, float *values, const tutti_rate *rate);
/* One summand of tutti_slice_sum: scratch. */
typedef struct tutti_slice_summand {
    tutti_slice_reader reader;
    tutti_slice_part part;
    size_t at;
} tutti_slice_summand;
/* Parts of a sum: n shards, each times a[r]. a: NULL: all 1. */
typedef struct tutti_slice_summands {
    int n;
    const float *const *parts;
    const float *a;
} tutti_slice_summands;
/* Scratch of a sum. each, from: [n]. zeros: a row of zeros of the widest table. */
typedef struct tutti_slice_scratch {
    tutti_slice_summand *each;
    const float **from;
    const float *zeros;
} tutti_slice_scratch;
/* Writes to `out` the tree sum of the shards; an absent row counts as zeros. The bits are those of
   tutti_tree_sum over full vectors. Returns the number of words. */
size_t tutti_slice_sum(const tutti_method *m, const tutti_slice *s, const tutti_slice_summands *of,
                       const tutti_slice_scratch *scratch, float *out);
#endif
