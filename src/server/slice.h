/* slice.h: the format of a range of the flat space in messages to and from a server: plain
   values, but of a table whose rows are known (TUTTI_SPARSE_ROWS) only those rows.

   Words of 4 bytes, the range's tensors in order. A tensor is its floats. A table is one word,
   the number of rows, then their ids (in the whole table, ascending), then the rows; or WHOLE,
   then all of the table's floats within the range. Rows are sent while ids and rows are less than
   the whole (Parallax's rule, src/engine/rows.c); in a table that is sent whole every row counts
   as touched. A lazy optimiser would then move rows that no worker has touched, so with one a
   table is sent whole only if every row is touched. A range begins and ends between rows
   (tutti_slice_cut). */
#ifndef TUTTI_SLICE_H
#define TUTTI_SLICE_H
#include "../engine/engine_facility.h"

typedef struct tutti_slice {
    size_t first, count;
    int tensor;                          /* the first tensor that it overlaps */
    size_t tables;                       /* number of tables in it whose rows are known */
    size_t ids;                          /* words by which those may exceed the whole */
} tutti_slice;

/* The next part: values, or a table. */
typedef struct tutti_slice_part {
    int tensor;                          /* the table; -1: values */
    size_t first, count;                 /* in the flat space: the elements within the shard */
    bool whole;
    size_t n; const uint32_t *ids;       /* its rows, unless whole */
    const float *values;                 /* count, or n rows */
} tutti_slice_part;
typedef struct tutti_slice_reader {
    const tutti_method *m;
    const tutti_slice *slice;
    const float *at;
    int tensor;
} tutti_slice_reader;
/* words: checked, or this process's own */
tutti_slice_reader tutti_slice_read(const tutti_method *m, const tutti_slice *s,
                                    const float *words);
bool tutti_slice_next(tutti_slice_reader *r, tutti_slice_part *p);

/* The beginning of the row that contains `at`; outside tables `at`. */
size_t tutti_slice_cut(const tutti_method *m, size_t at);
tutti_slice tutti_slice_of(const tutti_method *m, size_t first, size_t count);
/* The most words. */
static inline size_t tutti_slice_room(const tutti_slice *s)
{
    return s->count + s->tables + s->ids;
}
/* words: the number of words of the gradient g (flat) with its known rows; pack: writes them.
   Without tables they are g itself. */
size_t tutti_slice_words(const tutti_method *m, const tutti_slice *s);
void tutti_slice_pack(const tutti_method *m, const tutti_slice *s, const float *g, float *words);
/* Writes all values (of element s->first on), but no rows of tables that workers request (asked).
   Returns the number of words. */
size_t tutti_slice_whole(const tutti_method *m, const tutti_slice *s, const float *values,
                         float *words);
/* Checks words from a worker, which are not trusted: they determine what is read and written.
   TUTTI_ERR_CORRUPT. */
tutti_status tutti_slice_check(const tutti_method *m, const tutti_slice *s, const float *words,
                               size_t n, int worker, tutti_error *err);
/* x: flat; absent rows are unchanged. */
void tutti_slice_store(const tutti_method *m, const tutti_slice *s, const float *words, float *x);
/* Replaces the same rows by those of values (of element s->first on). */
void tutti_slice_fetch(const tutti_method *m, const tutti_slice *s, const float *values,
                       float *words);
/* For an exchange's sum: its rows are now those of the table's gradient, in addition to those
   known before unless it `begins`. */
void tutti_slice_known(const tutti_method *m, const tutti_slice *s, const float *words,
                       bool begins);
/* n rows; rows: begins with row `low` */
void tutti_slice_gather(size_t cols, size_t n, const uint32_t *ids, const float *rows, uint32_t low,
                        float *out);
/* Likewise, to the same rows of `to`. */
void tutti_slice_copy(size_t cols, size_t n, const uint32_t *ids, const float *from, float *to,
                      uint32_t low);
/* Makes one step of o, the run's optimiser, on values (of element s->first on). zeros: of the
   shard's count, 0 before and after, for optimisers that need every row; NULL with
   tutti_optim_by_rows. */
void tutti_slice_update(const tutti_method *m, tutti_optim *o, const tutti_slice *s,
                        const float *words, float *values, float *zeros, const tutti_rate *rate);
/* Copies what tutti_slice_whole writes: from values (of element s->first on) to the same place in
   `to`. */
void tutti_slice_given(const tutti_method *m, const tutti_slice *s, const float *values, float *to);
/* words := tutti_compensate of them, from read to values; mean may be NULL. All three begin at
   element s->first; in tables for the rows of words. */
void tutti_slice_compensate(const tutti_method *m, const tutti_slice *s,
                            const tutti_compensation *c, const float *values, const float *read,
                            float *words, float *mean);
/* sum += a words, over the full shard; sets marks, one for each row of the shard's tables, one
   table after another. */
void tutti_slice_add(const tutti_method *m, const tutti_slice *s, float a, const float *words,
                     float *sum, uint8_t *marks);
/* Number of marks; first: index of the first among those of the whole model. */
size_t tutti_slice_marks(const tutti_method *m, const tutti_slice *s, size_t *first);
/* Makes a step along sum, for marked rows and values outside tables; sum and marks are 0
   afterwards. */
void tutti_slice_update_added(const tutti_method *m, const tutti_slice *s, float *sum,
                              uint8_t *marks, float *values, const tutti_rate *rate);
/* out := the tree sum of a[r] parts[r], n of them, a missing row being zeros: the bits of
   tutti_tree_sum over slices in full. scratch: n each; zeros: a row of the widest table. Returns
   the number of words. */
typedef struct tutti_slice_summand {
    tutti_slice_reader reader;
    tutti_slice_part part;
    size_t at;
} tutti_slice_summand;
size_t tutti_slice_sum(const tutti_method *m, const tutti_slice *s, int n,
                       const float *const *parts, const float *a, tutti_slice_summand *scratch,
                       const float **from, const float *zeros, float *out);
#endif
