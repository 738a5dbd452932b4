/* slice.c: the format of a shard in messages (slice.h). The rows of a server's shard are scattered
   over memory that no cache holds, and each row is a few cache lines. So an update of rows would
   wait for the latency of memory; loops over rows therefore prefetch some rows ahead. */
#include "slice.h"
#include "engine/engine_facility.h"
#include "optim/optim.h"
#include "kernels/compensate.h"
#include <inttypes.h>
#include <string.h>

enum {
    AHEAD = 12,
    LINE = 16
}; /* AHEAD: rows by which prefetching is ahead; LINE: floats of a cache line */
static const uint32_t whole_table = UINT32_MAX; /* a table has fewer rows (layout.c) */

static bool is_table(const tutti_method *m, int tensor)
{
    return tutti_engine_rows_known(m->engine, tensor) != NULL;
}

static uint32_t word_at(const float *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static float *put_word(float *at, uint32_t word)
{
    memcpy(at, &word, sizeof word);
    return at + 1;
}

static float *write_values(float *at, const float *values, size_t n)
{
    if (n > 0)
        memcpy(at, values, n * sizeof *at);
    return at + n;
}

/* The tensor that contains element `at`, or the last. */
static int tensor_at(const tutti_method *m, size_t at)
{
    int low = 0, high = m->layout->n_tensors - 1;

    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (m->layout->tensor[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

size_t tutti_slice_cut(const tutti_method *m, size_t at)
{
    const int tensor = tensor_at(m, at);
    const tutti_tensor *t = &m->layout->tensor[tensor];

    return is_table(m, tensor) && at < t->first + t->count ? at - (at - t->first) % t->cols : at;
}

/* The part of `tensor` within the shard; its first row there. */
static size_t within(const tutti_method *m, const tutti_slice *s, int tensor, size_t *first)
{
    const tutti_tensor *t = &m->layout->tensor[tensor];
    const size_t end =
        t->first + t->count < s->first + s->count ? t->first + t->count : s->first + s->count;

    *first = t->first > s->first ? t->first : s->first;
    return end > *first ? end - *first : 0;
}

tutti_slice tutti_slice_of(const tutti_method *m, size_t first, size_t count)
{
    tutti_slice s = { .first = first, .count = count, .tensor = tensor_at(m, first) };
    size_t begin;

    for (int i = s.tensor;
         i < m->layout->n_tensors && m->layout->tensor[i].first < first + count && count > 0; i++)
        if (is_table(m, i)) {
            s.tables++;
            s.ids += tutti_optim_lazy(m->optim)
                         ? within(m, &s, i, &begin) / m->layout->tensor[i].cols
                         : 0;
        }
    return s;
}

/* Tensors up to the next table are one range of values: returns its length, from `tensor` on,
   which is advanced past it. */
static size_t values_from(const tutti_method *m, const tutti_slice *s, int *tensor, size_t *first)
{
    size_t begin;

    within(m, s, *tensor, first);
    for (begin = *first;
         *tensor < m->layout->n_tensors && m->layout->tensor[*tensor].first < s->first + s->count &&
         !is_table(m, *tensor);
         ++*tensor) {
        size_t at;
        const size_t count = within(m, s, *tensor, &at);
        begin = at + count;
    }
    return begin - *first;
}

/* ---- reading ---- */

tutti_slice_reader tutti_slice_read(const tutti_method *m, const tutti_slice *s, const float *words)
{
    return (tutti_slice_reader){ m, s, words, s->tensor };
}

bool tutti_slice_next(tutti_slice_reader *r, tutti_slice_part *p)
{
    const tutti_method *m = r->m;

    if (r->tensor >= m->layout->n_tensors ||
        m->layout->tensor[r->tensor].first >= r->slice->first + r->slice->count ||
        r->slice->count == 0)
        return false;
    *p = (tutti_slice_part){ .tensor = -1 };
    if (!is_table(m, r->tensor)) {
        p->count = values_from(m, r->slice, &r->tensor, &p->first);
        p->values = r->at;
        r->at += p->count;
        return true;
    }
    p->tensor = r->tensor++;
    p->count = within(m, r->slice, p->tensor, &p->first);
    p->n = word_at(r->at);
    p->whole = p->n == whole_table;
    p->ids = (const uint32_t *)(const void *)(r->at + 1);
    p->values = r->at + 1 + (p->whole ? 0 : p->n);
    r->at = p->values + (p->whole ? p->count : p->n * m->layout->tensor[p->tensor].cols);
    return true;
}

/* The position of row `id` of the part's table among the values of the shard. */
static size_t row_at(const tutti_slice_reader *r, const tutti_slice_part *p, uint32_t id)
{
    const tutti_tensor *t = &r->m->layout->tensor[p->tensor];
    return t->first + id * t->cols - r->slice->first;
}

tutti_status tutti_slice_check(const tutti_method *m, const tutti_slice *s, const float *words,
                               size_t n, int worker, tutti_error *err)
{
    const float *at = words, *end = words + n;
    int tensor = s->tensor;

    while (tensor < m->layout->n_tensors && m->layout->tensor[tensor].first < s->first + s->count) {
        const tutti_tensor *t = &m->layout->tensor[tensor];
        size_t first, count, rows, low;
        uint32_t rows_given;
        if (!is_table(m, tensor)) {
            count = values_from(m, s, &tensor, &first);
            if ((size_t)(end - at) < count)
                break;
            at += count;
            continue;
        }
        count = within(m, s, tensor++, &first);
        if (at == end)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, worker,
                "worker %d sent %zu bytes, which end before %s; all workers must run one version",
                worker, n * sizeof *words, t->name);
        rows_given = word_at(at++);
        rows = count / t->cols;
        low = (first - t->first) / t->cols;
        if (rows_given != whole_table && rows_given > rows)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, worker,
                "worker %d sent %" PRIu32
                " rows of %s, but %zu are served here; all workers must run one version",
                worker, rows_given, t->name, rows);
        if ((size_t)(end - at) < (rows_given == whole_table ? count : rows_given * (1 + t->cols)))
            break;
        if (rows_given != whole_table)
            TUTTI_TRY(tutti_rows_check_sent(t, (tutti_range){ low, rows }, at, rows_given, worker,
                                            err));
        at += rows_given == whole_table ? count : rows_given * (1 + t->cols);
    }
    return at == end && (tensor >= m->layout->n_tensors ||
                         m->layout->tensor[tensor].first >= s->first + s->count)
               ? TUTTI_OK
               : tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                                 "worker %d sent %zu bytes, which do not make a slice of %zu "
                                 "values; all workers must run one version",
                                 worker, n * sizeof *words, s->count);
}

/* ---- writing ---- */

/* The number of known rows of g within the shard; *begin: their first in the list. */
static size_t rows_within(const tutti_method *m, int tensor, size_t first, size_t count,
                          size_t *begin)
{
    const tutti_tensor *t = &m->layout->tensor[tensor];
    const tutti_rows *known = tutti_engine_rows_known(m->engine, tensor);
    const size_t bound[2] = { (first - t->first) / t->cols, (first + count - t->first) / t->cols };
    size_t at[2];

    for (int k = 0; k < 2; k++) {
        size_t low = 0, high = known->n;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (known->ids[middle] < bound[k])
                low = middle + 1;
            else
                high = middle;
        }
        at[k] = low;
    }
    *begin = at[0];
    return at[1] - at[0];
}

/* True if the whole part of a table is sent, rather than that many of its rows. */
static bool is_whole(const tutti_method *m, int tensor, size_t count, size_t n)
{
    const size_t cols = m->layout->tensor[tensor].cols;
    return n * (cols + (tutti_optim_lazy(m->optim) ? 0 : 1)) >= count;
}

/* *n: the number of rows that are sent, from *begin on. Returns whether the whole is sent. */
static bool goes_whole(const tutti_method *m, int tensor, size_t first, size_t count, size_t *begin,
                       size_t *n)
{
    *n = *begin = 0;
    if (tutti_engine_rows_known(m->engine, tensor)->all)
        return true;
    *n = rows_within(m, tensor, first, count, begin);
    return is_whole(m, tensor, count, *n);
}

size_t tutti_slice_words(const tutti_method *m, const tutti_slice *s)
{
    size_t words = s->tables, first, begin, n;

    for (int tensor = s->tensor; tensor < m->layout->n_tensors &&
                                 m->layout->tensor[tensor].first < s->first + s->count &&
                                 s->count > 0;) {
        size_t count;
        if (!is_table(m, tensor)) {
            words += values_from(m, s, &tensor, &first);
            continue;
        }
        count = within(m, s, tensor, &first);
        words += goes_whole(m, tensor, first, count, &begin, &n)
                     ? count
                     : n * (1 + m->layout->tensor[tensor].cols);
        tensor++;
    }
    return words;
}

void tutti_slice_pack(const tutti_method *m, const tutti_slice *s, const float *g, float *words)
{
    size_t first, begin, n;

    for (int tensor = s->tensor; tensor < m->layout->n_tensors &&
                                 m->layout->tensor[tensor].first < s->first + s->count &&
                                 s->count > 0;) {
        const tutti_tensor *t = &m->layout->tensor[tensor];
        const uint32_t *ids;
        size_t count;
        if (!is_table(m, tensor)) {
            count = values_from(m, s, &tensor, &first);
            words = write_values(words, g + first, count);
            continue;
        }
        ids = tutti_engine_rows_known(m->engine, tensor)->ids;
        count = within(m, s, tensor++, &first);
        if (goes_whole(m, (int)(t - m->layout->tensor), first, count, &begin, &n)) {
            words = write_values(put_word(words, whole_table), g + first, count);
            continue;
        }
        words = put_word(words, (uint32_t)n);
        if (n > 0)
            memcpy(words, ids + begin, n * sizeof *ids);
        words += n;
        for (size_t k = 0; k < n; k++) {
            const float *row = g + t->first + ids[begin + k] * t->cols;
            if (k + AHEAD < n)
                for (size_t c = 0; c < t->cols; c += LINE)
                    __builtin_prefetch(g + t->first + ids[begin + k + AHEAD] * t->cols + c);
            words = write_values(words, row, t->cols);
        }
    }
}

size_t tutti_slice_whole(const tutti_method *m, const tutti_slice *s, const float *values,
                         float *words)
{
    float *at = words;
    size_t first;

    for (int tensor = s->tensor; tensor < m->layout->n_tensors &&
                                 m->layout->tensor[tensor].first < s->first + s->count &&
                                 s->count > 0;) {
        const bool table = is_table(m, tensor), asked = table && m->layout->tensor[tensor].asked;
        const size_t count =
            table ? within(m, s, tensor, &first) : values_from(m, s, &tensor, &first);
        tensor += table;
        if (table)
            at = put_word(at, asked ? 0 : whole_table);
        if (!asked)
            at = write_values(at, values + (first - s->first), count);
    }
    return (size_t)(at - words);
}

void tutti_slice_store(const tutti_method *m, const tutti_slice *s, const float *words, float *x)
{
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p)) {
        if (p.tensor < 0 || p.whole)
            memcpy(x + p.first, p.values, p.count * sizeof *x);
        else
            for (size_t k = 0, cols = m->layout->tensor[p.tensor].cols; k < p.n; k++)
                memcpy(x + s->first + row_at(&r, &p, p.ids[k]), p.values + k * cols,
                       cols * sizeof *x);
    }
}

void tutti_slice_fetch(const tutti_method *m, const tutti_slice *s, const float *values,
                       float *words)
{
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p)) {
        float *to = words + (p.values - words);
        if (p.tensor < 0 || p.whole)
            memcpy(to, values + (p.first - s->first), p.count * sizeof *to);
        else
            for (size_t k = 0, cols = m->layout->tensor[p.tensor].cols; k < p.n; k++)
                memcpy(to + k * cols, values + row_at(&r, &p, p.ids[k]), cols * sizeof *to);
    }
}

void tutti_slice_known(const tutti_method *m, const tutti_slice *s, const float *words, bool begins)
{
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p)) {
        const tutti_tensor *t = &m->layout->tensor[p.tensor];
        tutti_engine_rows_sum(m->engine, p.tensor, begins);
        if (p.whole && tutti_optim_lazy(m->optim)) /* only that part of it */
            tutti_engine_rows_add(m->engine, p.tensor, NULL, (p.first - t->first) / t->cols,
                                  p.count / t->cols);
        else if (p.whole)
            tutti_engine_rows_all(m->engine, p.tensor);
        else
            tutti_engine_rows_add(m->engine, p.tensor, p.ids, 0, p.n);
    }
}

void tutti_slice_gather(size_t cols, size_t n, const uint32_t *ids, const float *rows, uint32_t low,
                        float *out)
{
    for (size_t k = 0; k < n; k++) {
        if (k + AHEAD < n)
            for (size_t c = 0; c < cols; c += LINE)
                __builtin_prefetch(rows + (ids[k + AHEAD] - low) * cols + c);
        memcpy(out + k * cols, rows + (ids[k] - low) * cols, cols * sizeof *out);
    }
}

void tutti_slice_copy(size_t cols, size_t n, const uint32_t *ids, const float *from, float *to,
                      uint32_t low)
{
    for (size_t k = 0; k < n; k++) {
        for (size_t c = 0; c < cols && k + AHEAD < n; c += LINE) {
            __builtin_prefetch(from + (ids[k + AHEAD] - low) * cols + c);
            __builtin_prefetch(to + (ids[k + AHEAD] - low) * cols + c, 1);
        }
        memcpy(to + (ids[k] - low) * cols, from + (ids[k] - low) * cols, cols * sizeof *to);
    }
}

/* ---- updates ---- */

/* Adjacent rows are updated in one call. */
static void update_rows(tutti_optim *o, const tutti_slice_reader *r, const tutti_slice_part *p,
                        float *values, const tutti_rate *rate)
{
    const size_t cols = r->m->layout->tensor[p->tensor].cols;
    size_t asked = 0;

    for (size_t k = 0, run; k < p->n; k += run) {
        const size_t at = row_at(r, p, p->ids[k]);
        for (run = 1; k + run < p->n && p->ids[k + run] == p->ids[k] + run; run++)
            ;
        for (; asked < k + run + AHEAD && asked < p->n; asked++)
            for (size_t c = 0; c < cols; c += LINE)
                __builtin_prefetch(values + row_at(r, p, p->ids[asked]) + c, 1);
        tutti_update(o, r->slice->first + at, run * cols, values + at, p->values + k * cols, rate);
    }
}

/* For an optimiser that needs every row: absent rows get zeros. */
static void update_all(tutti_optim *o, const tutti_slice_reader *r, const tutti_slice_part *p,
                       float *values, float *zeros, const tutti_rate *rate)
{
    const size_t cols = r->m->layout->tensor[p->tensor].cols, at = p->first - r->slice->first;

    for (size_t k = 0; k < p->n; k++)
        memcpy(zeros + row_at(r, p, p->ids[k]), p->values + k * cols, cols * sizeof *zeros);
    tutti_update(o, p->first, p->count, values + at, zeros + at, rate);
    for (size_t k = 0; k < p->n; k++)
        memset(zeros + row_at(r, p, p->ids[k]), 0, cols * sizeof *zeros);
}

void tutti_slice_update(const tutti_method *m, tutti_optim *o, const tutti_slice *s,
                        const float *words, const tutti_slice_values *to, const tutti_rate *rate)
{
    float *values = to->values, *zeros = to->zeros;
    const bool by_rows = tutti_optim_by_rows(o);
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p))
        if (p.tensor < 0 || p.whole)
            tutti_update(o, p.first, p.count, values + (p.first - s->first), p.values, rate);
        else if (by_rows)
            update_rows(o, &r, &p, values, rate);
        else
            update_all(o, &r, &p, values, zeros, rate);
}

void tutti_slice_given(const tutti_method *m, const tutti_slice *s, const float *values, float *to)
{
    size_t first;

    for (int tensor = s->tensor; tensor < m->layout->n_tensors &&
                                 m->layout->tensor[tensor].first < s->first + s->count &&
                                 s->count > 0;) {
        const bool table = is_table(m, tensor), asked = table && m->layout->tensor[tensor].asked;
        const size_t count =
            table ? within(m, s, tensor, &first) : values_from(m, s, &tensor, &first);
        tensor += table;
        if (!asked)
            tutti_copy(m->device, count, values + (first - s->first), to + (first - s->first));
    }
}

void tutti_slice_compensate(const tutti_method *m, const tutti_slice *s,
                            const tutti_compensation *c, const tutti_slice_read_at *read_at,
                            float *words, float *mean)
{
    const float *values = read_at->values, *read = read_at->read;
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p)) {
        float *g = words + (p.values - words);
        const size_t at = p.first - s->first;
        if (p.tensor < 0 || p.whole)
            tutti_compensate(m->device, p.count, c, values + at, read + at, g,
                             mean == NULL ? NULL : mean + at);
        else
            for (size_t k = 0, cols = m->layout->tensor[p.tensor].cols; k < p.n; k++) {
                const size_t row = row_at(&r, &p, p.ids[k]);
                tutti_compensate(m->device, cols, c, values + row, read + row, g + k * cols,
                                 mean == NULL ? NULL : mean + row);
            }
    }
}

size_t tutti_slice_marks(const tutti_method *m, const tutti_slice *s, size_t *first)
{
    size_t rows = 0;

    *first = 0;
    for (int i = 0; i < m->layout->n_tensors && m->layout->tensor[i].first < s->first + s->count;
         i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        size_t at;
        if (!is_table(m, i))
            continue;
        rows += within(m, s, i, &at) / t->cols;
        *first +=
            (t->first < s->first ? (t->first + t->count < s->first ? t->count : s->first - t->first)
                                 : 0) /
            t->cols;
    }
    return rows;
}

void tutti_slice_add(const tutti_method *m, const tutti_slice *s, float a, const float *words,
                     float *sum, uint8_t *marks)
{
    tutti_slice_reader r = tutti_slice_read(m, s, words);
    tutti_slice_part p;

    while (tutti_slice_next(&r, &p)) {
        const tutti_tensor *t = p.tensor < 0 ? NULL : &m->layout->tensor[p.tensor];
        if (t == NULL || p.whole)
            tutti_axpy(m->device, p.count, a, p.values, sum + (p.first - s->first));
        for (size_t k = 0; t != NULL && !p.whole && k < p.n; k++) {
            tutti_axpy(m->device, t->cols, a, p.values + k * t->cols,
                       sum + row_at(&r, &p, p.ids[k]));
            marks[p.ids[k] - (p.first - t->first) / t->cols] = 1;
        }
        if (p.whole)
            memset(marks, 1, p.count / t->cols);
        marks += t == NULL ? 0 : p.count / t->cols;
    }
}

/* A table of the shard: rows of `cols` values from the element `first` on. */
typedef struct table_place {
    size_t first, cols, rows;
} table_place;

/* Updates a table's marked rows; adjacent ones in one call. */
static void update_marked(const tutti_method *m, const table_place *t, float *sum,
                          const uint8_t *marks, float *values, const tutti_rate *rate)
{
    const size_t first = t->first, cols = t->cols, rows = t->rows;

    for (size_t k = 0, run; k < rows; k += run) {
        const uint8_t *next = memchr(marks + k, 1, rows - k);
        if (next == NULL)
            return;
        k = (size_t)(next - marks);
        for (run = 1; k + run < rows && marks[k + run] != 0; run++)
            ;
        tutti_update(m->optim, first + k * cols, run * cols, values + k * cols, sum + k * cols,
                     rate);
        tutti_fill(m->device, run * cols, 0, sum + k * cols);
    }
}

void tutti_slice_update_added(const tutti_method *m, const tutti_slice *s, float *sum,
                              uint8_t *marks, float *values, const tutti_rate *rate)
{
    const bool by_rows = tutti_optim_by_rows(m->optim);
    size_t first;

    for (int tensor = s->tensor; tensor < m->layout->n_tensors &&
                                 m->layout->tensor[tensor].first < s->first + s->count &&
                                 s->count > 0;) {
        const bool table = is_table(m, tensor);
        const size_t cols = m->layout->tensor[tensor].cols,
                     count =
                         table ? within(m, s, tensor, &first) : values_from(m, s, &tensor, &first),
                     at = first - s->first;
        if (table && by_rows)
            update_marked(m, &(table_place){ first, cols, count / cols }, sum + at, marks,
                          values + at, rate);
        else {
            tutti_update(m->optim, first, count, values + at, sum + at, rate);
            tutti_fill(m->device, count, 0, sum + at);
        }
        if (table)
            memset(marks, 0, count / cols);
        marks += table ? count / cols : 0;
        tensor += table;
    }
}

/* ---- sums ---- */

/* The least row that some summand has and has not added yet; `rows`: none. */
static size_t next_row(const tutti_slice_summand *each, int n, uint32_t low, size_t rows)
{
    size_t least = rows;

    for (int k = 0; k < n; k++) {
        const size_t mine = each[k].part.whole            ? each[k].at
                            : each[k].at < each[k].part.n ? each[k].part.ids[each[k].at] - low
                                                          : rows;
        least = mine < least ? mine : least;
    }
    return least;
}

/* Rows of a table that are summed, from the id `low` on: all that any summand has, in ascending
   order, or every one. */
typedef struct summed {
    uint32_t low;
    size_t rows;
    bool every;
} summed;

/* Sums a table. ids: receives the ids of its rows; NULL: every row is written. Returns their
 * number; sums them unless `rows_out` is NULL. */
static size_t sum_rows(const tutti_method *m, const tutti_slice_summands *of,
                       const tutti_slice_scratch *scratch, const summed *table, float *ids,
                       float *rows_out)
{
    const int n = of->n;
    const uint32_t low = table->low;
    const size_t rows = table->rows;
    const bool every = table->every;
    tutti_slice_summand *each = scratch->each;
    const float **from = scratch->from;
    const size_t cols = m->layout->tensor[each[0].part.tensor].cols;
    size_t count = 0;

    for (int k = 0; k < n; k++)
        each[k].at = 0;
    for (size_t row = every ? 0 : next_row(each, n, low, rows); row < rows;
         row = every ? row + 1 : next_row(each, n, low, rows), count++) {
        for (int k = 0; k < n; k++) {
            const tutti_slice_part *p = &each[k].part;
            const bool has =
                p->whole ? each[k].at == row : each[k].at < p->n && p->ids[each[k].at] - low == row;
            from[k] = has ? p->values + each[k].at * cols : scratch->zeros;
            each[k].at += has;
        }
        if (ids != NULL)
            put_word(ids + count, low + (uint32_t)row);
        if (rows_out != NULL)
            tutti_tree_sum(m->device, cols, n, from, of->a, rows_out + count * cols);
    }
    return count;
}

size_t tutti_slice_sum(const tutti_method *m, const tutti_slice *s, const tutti_slice_summands *of,
                       const tutti_slice_scratch *scratch, float *out)
{
    const int n = of->n;
    tutti_slice_summand *each = scratch->each;
    const float **from = scratch->from;
    float *at = out;

    for (int k = 0; k < n; k++)
        each[k].reader = tutti_slice_read(m, s, of->parts[k]);
    for (;;) {
        bool more = false, every = false;
        size_t cols, rows, count;
        uint32_t low;
        for (int k = 0; k < n; k++) {
            more = tutti_slice_next(&each[k].reader, &each[k].part);
            every = every || each[k].part.whole;
            from[k] = each[k].part.values;
        }
        if (!more)
            return (size_t)(at - out);
        if (each[0].part.tensor < 0) {
            tutti_tree_sum(m->device, each[0].part.count, n, from, of->a, at);
            at += each[0].part.count;
            continue;
        }
        cols = m->layout->tensor[each[0].part.tensor].cols;
        rows = each[0].part.count / cols;
        low =
            (uint32_t)((each[0].part.first - m->layout->tensor[each[0].part.tensor].first) / cols);
        count = every ? rows : sum_rows(m, of, scratch, &(summed){ low, rows, false }, NULL, NULL);
        every = every || is_whole(m, each[0].part.tensor, each[0].part.count, count);
        at = put_word(at, every ? whole_table : (uint32_t)count);
        sum_rows(m, of, scratch, &(summed){ low, rows, every }, every ? NULL : at,
                 every ? at : at + count);
        at += every ? each[0].part.count : count * (1 + cols);
    }
}
