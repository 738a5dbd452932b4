/* slice.h: a range of the flat space on its way to a server or back: values as they stand, but of a
   table whose rows are known (TUTTI_SPARSE_ROWS) those rows only.

   Words of 4 bytes, the range's tensors in order. Of a tensor there are its floats. Of a table
   there is one word, how many rows, then their ids (of the whole table, ascending), then the rows;
   or WHOLE, then all of the table's floats within the range. Rows travel while ids and rows are
   less than the whole (Parallax's rule, src/engine/rows.c); of a table that travels whole every row
   counts as touched. A lazy optimiser would then move rows that nobody has named, so under one a
   table travels whole only if every row is touched. A range begins and ends between rows
   (tutti_slice_cut). */
#ifndef TUTTI_SLICE_H
#define TUTTI_SLICE_H
#include "../engine/engine_facility.h"

typedef struct tutti_slice {
    size_t first, count;
    int tensor;                          /* the first that it meets */
    size_t tables;                       /* that it meets whose rows are known */
    size_t ids;                          /* words by which those may exceed the whole */
} tutti_slice;

/* What stands next: values, or a table. */
typedef struct tutti_slice_part {
    int tensor;                          /* the table; -1: values */
    size_t first, count;                 /* in the flat space: those within the slice */
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
/* checked, or one's own */
tutti_slice_reader tutti_slice_read(const tutti_method *m, const tutti_slice *s,
                                    const float *words);
bool tutti_slice_next(tutti_slice_reader *r, tutti_slice_part *p);

/* the beginning of the row that `at` lies in; elsewhere `at` */
size_t tutti_slice_cut(const tutti_method *m, size_t at);
tutti_slice tutti_slice_of(const tutti_method *m, size_t first, size_t count);
/* words at most */
static inline size_t tutti_slice_room(const tutti_slice *s)
{
    return s->count + s->tables + s->ids;
}
/* The gradient g (flat) as it is known now. words: how many it makes;
   without tables they are g itself. */
size_t tutti_slice_words(const tutti_method *m, const tutti_slice *s);
void tutti_slice_pack(const tutti_method *m, const tutti_slice *s, const float *g, float *words);
/* All values (of element s->first on), but no rows of tables that workers
   ask for (asked). Gives the words. */
size_t tutti_slice_whole(const tutti_method *m, const tutti_slice *s, const float *values,
                         float *words);
/* Is that a slice? What came from a worker is not trusted: it names what is
   read and written. TUTTI_ERR_CORRUPT. */
tutti_status tutti_slice_check(const tutti_method *m, const tutti_slice *s, const float *words,
                               size_t n, int worker, tutti_error *err);
/* x: flat; rows that are not there stay */
void tutti_slice_store(const tutti_method *m, const tutti_slice *s, const float *words, float *x);
/* the same rows, of values (of element s->first on), in place of what stands there */
void tutti_slice_fetch(const tutti_method *m, const tutti_slice *s, const float *values,
                       float *words);
/* Of an exchange's sum: these are the rows of the table's gradient now, besides those
   known before unless it `begins`. */
void tutti_slice_known(const tutti_method *m, const tutti_slice *s, const float *words,
                       bool begins);
/* n rows; rows: row `low` */
void tutti_slice_gather(size_t cols, size_t n, const uint32_t *ids, const float *rows, uint32_t low,
                        float *out);
/* likewise, to the same rows of `to` */
void tutti_slice_copy(size_t cols, size_t n, const uint32_t *ids, const float *from, float *to,
                      uint32_t low);
/* One step of o, the run's optimiser, on values (of element s->first on). zeros: count of the
   slice, 0 before and after, for optimisers that want every row; NULL where tutti_optim_by_rows. */
void tutti_slice_update(const tutti_method *m, tutti_optim *o, const tutti_slice *s,
                        const float *words, float *values, float *zeros, const tutti_rate *rate);
/* What tutti_slice_whole gives: of values (of element s->first on) to the same place in `to`. */
void tutti_slice_given(const tutti_method *m, const tutti_slice *s, const float *values, float *to);
/* words := tutti_compensate of them, from read to values; mean may be NULL. All three of element
   s->first on; of tables the rows that words has. */
void tutti_slice_compensate(const tutti_method *m, const tutti_slice *s,
                            const tutti_compensation *c, const float *values, const float *read,
                            float *words, float *mean);
/* sum += a words, over the slice as it stands in full; marks the rows, 1 each, of the
   slice's tables one after another. */
void tutti_slice_add(const tutti_method *m, const tutti_slice *s, float a, const float *words,
                     float *sum, uint8_t *marks);
/* how many; first: among those of the whole model */
size_t tutti_slice_marks(const tutti_method *m, const tutti_slice *s, size_t *first);
/* Along what was added, where marked or no table; it is 0 afterwards, and nothing marked. */
void tutti_slice_update_added(const tutti_method *m, const tutti_slice *s, float *sum,
                              uint8_t *marks, float *values, const tutti_rate *rate);
/* out := the tree sum of a[r] parts[r], n of them, a missing row being zeros: the
   bits of tutti_tree_sum over slices in full. scratch: n each; zeros: a row of
   the widest table. Gives the words. */
typedef struct tutti_slice_summand {
    tutti_slice_reader reader;
    tutti_slice_part part;
    size_t at;
} tutti_slice_summand;
size_t tutti_slice_sum(const tutti_method *m, const tutti_slice *s, int n,
                       const float *const *parts, const float *a, tutti_slice_summand *scratch,
                       const float **from, const float *zeros, float *out);
#endif
