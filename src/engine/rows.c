/* rows.c: tables: gradients in which a pass touches few rows. g is whole and correct at any time,
   and in addition the rows that may be non-zero are known. So a method that does not know of rows
   reads the gradient as ever, and one that does skips what is 0 anyway. When a pass begins with a
   cleared gradient only these rows are cleared, not the whole table.

   Exchange (Kim et al. 2019, Parallax, section 2.2 and table 1). With n_r rows at worker r, a
   gather of rows sends (N - 1) sum_r n_r (row + id) bytes in all, an all-reduce of the whole
   table 2 (N - 1) table. So rows are sent while sum_r n_r (row + id) < 2 table, which all know
   after a gather of the n_r. Sums use the library's tree over the workers, in which a missing row
   is zeros: the bits are those of the whole table's all-reduce. If the table is sent whole, or a
   method's exchange is its own, every row counts as touched until the next pass. Then more is
   read, and nothing else is different, unless the optimiser is lazy. Under a lazy one the rows
   that a step has named decide what is updated, which must not depend on how they are sent. So
   along with a whole table one bit a row of each worker is gathered: rows / 8 bytes, for a table
   of 4 columns rows bytes.

   Buffers grow to twice what was ever needed, so that a run soon allocates no more. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "optim/optim.h"

enum { WORD = 64 };

tutti_status tutti_engine_rows_open(tutti_engine *e, tutti_error *err)
{
    const bool knows = e->m.traits & TUTTI_SPARSE_ROWS;
    const size_t workers = (size_t)e->m.workers;

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        tutti_engine_rows *r = &e->rows[i];
        if (!t->row_sparse)
            continue;
        r->knows = knows;
        if (!knows)
            continue;
        e->tensors[i].asked = e->params[i].asks_rows && e->m.ops->rows_acquire != NULL;
        r->mark = tutti_alloc((t->rows + WORD - 1) / WORD, sizeof *r->mark);
        r->known.ids = r->ids = tutti_alloc(t->rows, sizeof *r->ids);
        r->row_count = tutti_alloc(workers, sizeof *r->row_count);
        r->word_count = tutti_alloc(workers, sizeof *r->word_count);
        r->cursor = tutti_alloc(workers, sizeof *r->cursor);
        r->from = tutti_alloc(workers, sizeof *r->from);
        r->zeros = tutti_alloc(t->cols, sizeof *r->zeros);
        if (r->mark == NULL || r->ids == NULL || r->row_count == NULL || r->word_count == NULL ||
            r->cursor == NULL || r->from == NULL || r->zeros == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "memory for the touched rows of %s (%zu rows, %zu workers)",
                              t->name, t->rows, workers);
    }
    return TUTTI_OK;
}

void tutti_engine_rows_close(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors && e->rows != NULL; i++) {
        tutti_engine_rows *r = &e->rows[i];
        tutti_free(r->mark);
        tutti_free(r->ids);
        tutti_free(r->row_count);
        tutti_free(r->word_count);
        tutti_free(r->cursor);
        tutti_free(r->from);
        tutti_free(r->zeros);
        tutti_free(r->mine);
        tutti_free(r->all);
        tutti_free(r->needed);
        tutti_free(r->fresh);
    }
    tutti_free(e->rows);
}

/* Converts the marks to a list, and clears them. */
static void list_marks(const tutti_tensor *t, tutti_engine_rows *r)
{
    r->known.n = 0;
    for (size_t w = 0; w < (t->rows + WORD - 1) / WORD; w++) {
        for (uint64_t bits = r->mark[w]; bits != 0; bits &= bits - 1)
            r->ids[r->known.n++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
        r->mark[w] = 0;
    }
}

static void mark(tutti_engine_rows *r, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        r->mark[ids[i] / WORD] |= UINT64_C(1) << ids[i] % WORD;
}

void tutti_engine_rows_clear(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        tutti_engine_rows *r = &e->rows[i];
        float *g;
        if (!t->row_sparse || e->m.held != TUTTI_HELD_WHOLE)
            continue;
        g = e->m.g + t->first;
        if (!r->knows || r->known.all)
            tutti_fill(e->m.device, t->count, 0, g);
        else
            for (size_t k = 0; k < r->known.n; k++)
                tutti_fill(e->m.device, t->cols, 0, g + r->ids[k] * t->cols);
        r->known.n = 0;
        r->known.all = false;
    }
}

void tutti_engine_rows_all(tutti_engine *e, int tensor)
{
    if (e->rows[tensor].knows) /* else pieces on several threads may overlap it */
        e->rows[tensor].known.all = true;
}

const tutti_rows *tutti_engine_rows_known(const tutti_engine *e, int tensor)
{
    return e->rows[tensor].knows ? &e->rows[tensor].known : NULL;
}

void tutti_engine_rows_sum(tutti_engine *e, int tensor, bool anew)
{
    tutti_engine_rows *r = &e->rows[tensor];

    if (!r->knows)
        return;
    r->summed = true;
    if (anew) {
        r->known.n = 0;
        r->known.all = false;
    }
}

void tutti_engine_rows_add(tutti_engine *e, int tensor, const uint32_t *ids, size_t first, size_t n)
{
    tutti_engine_rows *r = &e->rows[tensor];

    if (n == 0 || (ids != NULL && r->known.all))
        return;
    if (ids != NULL)
        memcpy(r->ids + r->known.n, ids, n * sizeof *ids);
    for (size_t k = 0; k < n && ids == NULL; k++)
        r->ids[r->known.n + k] = (uint32_t)(first + k);
    r->known.n += n;
}

void tutti_engine_rows_whole(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++)
        e->tensors[i].asked = false;
}

bool tutti_engine_rows_asked(const tutti_engine *e, int tensor)
{
    return e->tensors[tensor].asked;
}

void tutti_engine_rows_away(tutti_engine *e, int tensor, bool away)
{
    e->rows[tensor].away = e->tensors[tensor].asked = away;
}

void tutti_engine_rows_touch(tutti_engine *e, int tensor, const uint32_t *ids, size_t n)
{
    tutti_engine_rows *r = &e->rows[tensor];

    if (!r->knows || r->known.all || n == 0)
        return;
    if (r->known.n == 0) {
        memcpy(r->ids, ids, n * sizeof *ids);
        r->known.n = n;
        return;
    }
    mark(r, r->ids, r->known.n);
    mark(r, ids, n);
    list_marks(&e->tensors[tensor], r);
}

static tutti_status grow_words(uint32_t **memory, size_t *room, size_t words, tutti_error *err)
{
    if (words <= *room)
        return TUTTI_OK;
    tutti_free(*memory);
    *room = 0;
    *memory = tutti_alloc(2 * words, sizeof **memory);
    if (*memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu words of rows", words);
    *room = 2 * words;
    return TUTTI_OK;
}

/* Puts the ids that were not requested yet into r->fresh. */
static tutti_status leave_out_needed(tutti_engine_rows *r, const uint32_t *ids, size_t n,
                                     size_t *n_fresh, tutti_error *err)
{
    size_t at = 0;

    *n_fresh = 0;
    TUTTI_TRY(grow_words(&r->fresh, &r->fresh_room, n, err));
    for (size_t k = 0; k < n; k++) {
        while (at < r->n_needed && r->needed[at] < ids[k])
            at++;
        if (at == r->n_needed || r->needed[at] != ids[k])
            r->fresh[(*n_fresh)++] = ids[k];
    }
    return TUTTI_OK;
}

/* Merges r->fresh into r->needed. The highest first, so that none is overwritten before it is
   read. */
static tutti_status take_in_fresh(tutti_engine_rows *r, size_t n_fresh, tutti_error *err)
{
    size_t old = r->n_needed, to = old + n_fresh;

    if (to > r->needed_room) {
        uint32_t *before = r->needed;
        r->needed = tutti_alloc(2 * to, sizeof *r->needed);
        if (r->needed == NULL) {
            r->needed = before;
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu words of rows", to);
        }
        if (old > 0)
            memcpy(r->needed, before, old * sizeof *before);
        tutti_free(before);
        r->needed_room = 2 * to;
    }
    r->n_needed = to;
    while (n_fresh > 0) {
        const bool stays = old > 0 && r->needed[old - 1] > r->fresh[n_fresh - 1];
        r->needed[--to] = stays ? r->needed[--old] : r->fresh[--n_fresh];
    }
    return TUTTI_OK;
}

/* The index of the first of n ids that does not ascend or is not among the rows `valid`; n: none.
   *wrong: that id. */
static size_t first_wrong(tutti_range valid, const void *ids, size_t n, uint32_t *wrong)
{
    uint32_t before = 0;

    for (size_t k = 0; k < n; k++, before = *wrong) {
        memcpy(wrong, (const char *)ids + k * sizeof *wrong, sizeof *wrong);
        if (*wrong < valid.first || *wrong - valid.first >= valid.count ||
            (k > 0 && *wrong <= before))
            return k;
    }
    return n;
}

/* What workers send determines what is written, so it is not trusted. */
tutti_status tutti_rows_check_sent(const tutti_tensor *t, tutti_range valid, const void *ids,
                                   size_t n, int worker, tutti_error *err)
{
    uint32_t id = 0;
    const size_t k = first_wrong(valid, ids, n, &id);

    return k == n ? TUTTI_OK
                  : tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                                    "worker %d sent row %lu of %s at place %zu, where rows %zu to "
                                    "%zu are valid, in ascending order; all workers must run one "
                                    "version",
                                    worker, (unsigned long)id, t->name, k, valid.first,
                                    valid.first + valid.count - 1);
}

tutti_status tutti_rows_check_passed(const tutti_tensor *t, const uint32_t *ids, size_t n,
                                     const char *call, tutti_error *err)
{
    uint32_t id = 0;
    const size_t k = first_wrong((tutti_range){ 0, t->rows }, ids, n, &id);

    return k == n ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                               "%s was called for row %lu of %s at place %zu; rows must ascend, "
                               "and there are %zu",
                               call, (unsigned long)id, t->name, k, t->rows);
}

/* Within one pass the `ids` of grad_ready_rows must be among those of rows_acquire, which are
   kept for that check. On return *fresh has the ids that this pass had not requested before. */
tutti_status tutti_engine_rows_need(tutti_engine *e, int tensor, const uint32_t **fresh,
                                    size_t *n_fresh, tutti_error *err)
{
    const tutti_tensor *t = &e->tensors[tensor];
    tutti_engine_rows *r = &e->rows[tensor];
    const uint32_t *const ids = *fresh;
    const size_t n = *n_fresh;

    if (e->step.announced[tensor])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "rows_acquire was called for %s after its gradient was announced; a pass "
                          "asks for the rows that it reads before that",
                          t->name);
    TUTTI_TRY(tutti_rows_check_passed(t, ids, n, "rows_acquire", err));
    if (!r->needs)
        r->n_needed = 0;
    r->needs = true;
    TUTTI_TRY(leave_out_needed(r, ids, n, n_fresh, err));
    *fresh = r->fresh;
    return take_in_fresh(r, *n_fresh, err);
}

tutti_status tutti_engine_rows_were_needed(const tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err)
{
    const tutti_engine_rows *r = &e->rows[tensor];
    size_t at = 0;

    for (size_t k = 0; k < n; k++) {
        while (at < (r->needs ? r->n_needed : 0) && r->needed[at] < ids[k])
            at++;
        if (!r->needs || at == r->n_needed || r->needed[at] != ids[k])
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "grad_ready_rows was called for row %lu of %s, which this pass has "
                              "not asked for; call rows_acquire with all rows that it reads, "
                              "before it reads them",
                              (unsigned long)ids[k], e->tensors[tensor].name);
    }
    return TUTTI_OK;
}

/* ---- the gradient, where it may be non-zero ---- */

/* The table, if its rows are known; else NULL. */
static const tutti_engine_rows *known_of(const tutti_engine *e, int tensor)
{
    const tutti_engine_rows *r = &e->rows[tensor];
    return r->knows && !r->known.all ? r : NULL;
}

bool tutti_engine_finite(const tutti_engine *e, const tutti_piece *p)
{
    const tutti_engine_rows *r = p->rows != NULL ? known_of(e, p->first_tensor) : NULL;
    const size_t cols = e->tensors[p->first_tensor].cols;
    bool finite = true;

    if (r == NULL) /* tables with known rows are pieces by themselves */
        return tutti_finite(e->m.device, p->count, p->g);
    for (size_t k = 0; k < r->known.n && finite; k++)
        finite = tutti_finite(e->m.device, cols, p->g + r->ids[k] * cols);
    return finite;
}

void tutti_engine_scale_piece(tutti_engine *e, tutti_piece *p, float a)
{
    const tutti_engine_rows *r = p->rows != NULL ? known_of(e, p->first_tensor) : NULL;
    const size_t cols = e->tensors[p->first_tensor].cols;

    if (r == NULL)
        tutti_scale(e->m.device, p->count, a, p->g);
    for (size_t k = 0; r != NULL && k < r->known.n; k++)
        tutti_scale(e->m.device, cols, a, p->g + r->ids[k] * cols);
}

/* Consecutive rows are updated in one call. */
static void update_rows(tutti_engine *e, const tutti_tensor *t, const tutti_engine_rows *r,
                        float *x, const tutti_rate *rate)
{
    for (size_t k = 0, run; k < r->known.n; k += run) {
        const size_t first = t->first + r->ids[k] * t->cols;
        for (run = 1; k + run < r->known.n && r->ids[k + run] == r->ids[k] + run; run++)
            ;
        tutti_update(e->m.optim, first, run * t->cols, x + first, e->m.g + first, rate);
    }
}

void tutti_engine_update_piece(tutti_engine *e, const tutti_piece *p, const tutti_rate *rate)
{
    tutti_optim *o = e->m.optim;
    const tutti_engine_rows *r =
        p->rows != NULL && tutti_optim_by_rows(o) ? known_of(e, p->first_tensor) : NULL;

    if (r != NULL)
        update_rows(e, &e->tensors[p->first_tensor], r, e->m.x, rate);
    else
        tutti_update(o, p->first, p->count, p->x, p->g, rate);
}

const tutti_rows *tutti_engine_rows_to_update(const tutti_engine *e, int tensor)
{
    const tutti_engine_rows *r = tutti_optim_by_rows(e->m.optim) ? known_of(e, tensor) : NULL;
    return r != NULL ? &r->known : NULL;
}

void tutti_engine_update(tutti_engine *e, float *x, const tutti_rate *rate)
{
    tutti_optim *o = e->m.optim;
    size_t done = 0;

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const tutti_engine_rows *r = tutti_optim_by_rows(o) ? known_of(e, i) : NULL;
        if (r == NULL && !e->rows[i].away)
            continue;
        if (t->first > done)
            tutti_update(o, done, t->first - done, x + done, e->m.g + done, rate);
        if (!e->rows[i].away)
            update_rows(e, t, r, x, rate);
        done = t->first + t->count;
    }
    if (e->m.n > done)
        tutti_update(o, done, e->m.n - done, x + done, e->m.g + done, rate);
}

/* ---- exchange ---- */

/* r->all has for each worker in turn n ids and n rows, times its weight. Computes the sum and the
   list of its rows. */
static tutti_status sum_rows(tutti_engine *e, const tutti_tensor *t, tutti_engine_rows *r, float *g,
                             int workers, tutti_error *err)
{
    const uint32_t *at = r->all;

    for (int w = 0; w < workers; w++) {
        TUTTI_TRY(tutti_rows_check_sent(t, (tutti_range){ 0, t->rows }, at,
                                        (size_t)r->row_count[w], w, err));
        mark(r, at, (size_t)r->row_count[w]);
        r->cursor[w] = at;
        at += r->word_count[w];
    }
    list_marks(t, r);
    for (size_t k = 0; k < r->known.n; k++) {
        const uint32_t *begin = r->all;
        for (int w = 0; w < workers; w++) {
            const size_t n = (size_t)r->row_count[w];
            r->from[w] = r->zeros;
            if (r->cursor[w] < begin + n && *r->cursor[w] == r->ids[k])
                r->from[w] = (const float *)(const void *)(begin + n) +
                             (size_t)(r->cursor[w]++ - begin) * t->cols;
            begin += r->word_count[w];
        }
        tutti_tree_sum(e->m.device, t->cols, workers, r->from, NULL, g + r->ids[k] * t->cols);
    }
    return TUTTI_OK;
}

static void pack(tutti_engine *e, const tutti_tensor *t, tutti_engine_rows *r, const float *g,
                 float weight)
{
    float *rows;

    if (r->known.n == 0)
        return;
    rows = (float *)(void *)(r->mine + r->known.n);
    memcpy(r->mine, r->ids, r->known.n * sizeof *r->ids);
    for (size_t k = 0; k < r->known.n; k++)
        memcpy(rows + k * t->cols, g + r->ids[k] * t->cols, t->cols * sizeof *rows);
    tutti_scale(e->m.device, r->known.n * t->cols, weight, rows);
}

/* Gathers the rows that any worker has touched, for a table that is sent whole. The bits
   determine what is updated, so they are not trusted. */
static tutti_status gather_marks(tutti_piece *p, const tutti_tensor *t, tutti_engine_rows *r,
                                 tutti_error *err)
{
    const size_t words = (t->rows + WORD - 1) / WORD, workers = (size_t)p->group.size;
    uint64_t *all;

    TUTTI_TRY(grow_words(&r->all, &r->all_room, 2 * words * workers, err));
    all = (uint64_t *)(void *)r->all;
    mark(r, r->ids, r->known.n);
    TUTTI_TRY(tutti_allgather(&p->group, tutti_host(r->mark, words, TUTTI_I64),
                              tutti_host(all, words * workers, TUTTI_I64), err));
    for (size_t w = 0; w < workers; w++) {
        if (t->rows % WORD != 0 && all[w * words + words - 1] >> t->rows % WORD != 0)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, (int)w,
                                   "worker %zu has touched rows of %s beyond its %zu; all workers "
                                   "must run one version",
                                   w, t->name, t->rows);
        for (size_t k = 0; k < words; k++)
            r->mark[k] |= all[w * words + k];
    }
    list_marks(t, r);
    return TUTTI_OK;
}

tutti_status tutti_engine_sum(tutti_engine *e, tutti_piece *p, float weight, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const tutti_tensor *t = &e->tensors[p->first_tensor];
    tutti_engine_rows *r = &e->rows[p->first_tensor];
    const int workers = p->group.size;
    size_t words = 0, table = 2 * t->count;
    bool every = false, done;
    int64_t mine;

    TUTTI_TRY(tutti_facilities_sum(e, p, NULL, &done, err));
    if (done)
        return TUTTI_OK;
    if (p->rows != NULL)
        r->summed = true;
    if (p->rows == NULL || (workers == 1 && r->known.all))
        return tutti_allreduce_weighted(&p->group, weight, tutti_f32(m->device, p->g, p->count),
                                        err);
    if (workers == 1) {
        for (size_t k = 0; k < r->known.n && weight != 1; k++)
            tutti_scale(m->device, t->cols, weight, p->g + r->ids[k] * t->cols);
        return TUTTI_OK;
    }
    mine = r->known.all ? (int64_t)t->rows : (int64_t)r->known.n;
    TUTTI_TRY(tutti_allgather(&p->group, tutti_host(&mine, 1, TUTTI_I64),
                              tutti_host(r->row_count, (size_t)workers, TUTTI_I64), err));
    for (int w = 0; w < workers; w++) {
        if (r->row_count[w] < 0 || (uint64_t)r->row_count[w] > t->rows)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, w,
                                   "worker %d has touched %" PRId64 " rows of %s, which has %zu", w,
                                   r->row_count[w], t->name, t->rows);
        every = every || (size_t)r->row_count[w] == t->rows;
        r->word_count[w] = (size_t)r->row_count[w] * (1 + t->cols);
        words += r->word_count[w];
    }
    if (words >= table) {
        if (every || !tutti_optim_lazy(m->optim))
            r->known.all = true;
        else
            TUTTI_TRY(gather_marks(p, t, r, err));
        return tutti_allreduce_weighted(&p->group, weight, tutti_f32(m->device, p->g, p->count),
                                        err);
    }
    if (r->known.all) {
        /* this worker has all rows, but the others so few that sending rows is still cheaper */
        r->known.all = false;
        r->known.n = t->rows;
        for (size_t k = 0; k < t->rows; k++)
            r->ids[k] = (uint32_t)k;
    }
    TUTTI_TRY(grow_words(&r->mine, &r->mine_room, (size_t)mine * (1 + t->cols), err));
    TUTTI_TRY(grow_words(&r->all, &r->all_room, words, err));
    pack(e, t, r, p->g, weight);
    TUTTI_TRY(tutti_allgather_v(&p->group, r->word_count,
                                tutti_host(r->mine, (size_t)mine * (1 + t->cols), TUTTI_I32),
                                tutti_host(r->all, words, TUTTI_I32), err));
    return sum_rows(e, t, r, p->g, workers, err);
}
