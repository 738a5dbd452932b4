/* layout.c: the flat vector. Tensors are stored contiguously, in the order in which their
   gradients become ready, without padding, so that a piece sends exactly the elements of its
   tensors. Pieces are split between tensors, as DDP's buckets are (Li et al. 2020, section 3.2.3):
   tensors are appended to a piece until it has reached the limit. The first piece has a smaller
   limit, so that communication starts early. If the method sets m->cut_bytes, pieces are split by
   bytes, inside tensors too, so that a large tensor is many pieces: then each piece is full before
   the next begins. A table whose rows are known is a piece by itself in either case.

   Only pieces change after open, and only by tutti_recut, while none is in flight. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"

enum { PADDING = 64, CUT = 64 / sizeof(float) }; /* elements; a cut piece is a multiple of CUT */

static tutti_status check_name(const tutti_engine *e, const tutti_param *p, int i, tutti_error *err)
{
    if (p->name == NULL || p->name[0] == 0 || strlen(p->name) > 1023 ||
        strpbrk(p->name, "@\"\\\n") != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter %d has the name '%s'; names have 1 to 1023 bytes without @, "
                          "quotes, backslashes or line ends",
                          i, p->name == NULL ? "" : p->name);
    for (int k = 0; k < i; k++)
        if (strcmp(e->tensors[k].name, p->name) == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "two parameters (%d and %d) have the name '%s'; give each its own "
                              "(tied weights are one parameter)",
                              k, i, p->name);
    return TUTTI_OK;
}

static tutti_status check_shape(const tutti_param *p, size_t *count, tutti_error *err)
{
    *count = 1;
    if (p->dims < 1 || p->dims > 4)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter '%s' has %d dimensions; 1 to 4 are known", p->name, p->dims);
    for (int d = 0; d < p->dims; d++)
        if (p->dim[d] == 0 || !tutti_size_mul(*count, (size_t)p->dim[d], count))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "parameter '%s' has dimension %d of %llu; each must be positive and "
                              "the product must fit",
                              p->name, d, (unsigned long long)p->dim[d]);
    if (p->unit < 0 || p->unit >= 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter '%s' is in unit %d; units count from 0 at the input", p->name,
                          p->unit);
    return TUTTI_OK;
}

static tutti_status check_kind(const tutti_param *p, tutti_error *err)
{
    if (p->dtype != TUTTI_F32 && p->dtype != TUTTI_BF16 && p->dtype != TUTTI_F16)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "parameter '%s' has dtype %d; a client's values are in F32, BF16 or F16 (base.h)",
            p->name, (int)p->dtype);
    if (p->dtype != TUTTI_F32 && p->values == NULL && p->gradient == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter '%s' has dtype %s but no memory of the client's, and the "
                          "engine's is F32; give values, or gradients by "
                          "tutti_engine_grad_ready_from",
                          p->name, tutti_dtype_name(p->dtype));
    if (p->asks_rows && !p->row_sparse)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "parameter '%s' asks_rows, but is not row_sparse; only a table's rows are asked for",
            p->name);
    if (p->row_sparse && (p->dims < 2 || p->dim[0] > UINT32_MAX))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter '%s' is row_sparse with %d dimension%s and %llu rows; a table "
                          "has two dimensions or more, and at most %u rows",
                          p->name, p->dims, p->dims > 1 ? "s" : "", (unsigned long long)p->dim[0],
                          UINT32_MAX);
    return TUTTI_OK;
}

static tutti_status place_one(tutti_engine *e, const tutti_param *p, int i, size_t *at,
                              tutti_error *err)
{
    tutti_tensor *t = &e->tensors[i];
    size_t count;

    TUTTI_TRY(check_name(e, p, i, err));
    TUTTI_TRY(check_shape(p, &count, err));
    TUTTI_TRY(check_kind(p, err));
    *t = (tutti_tensor){ .name = t->name,
                         .first = *at,
                         .count = count,
                         .unit = p->unit,
                         .rows = p->dims > 1 ? (size_t)p->dim[0] : count,
                         .cols = p->dims > 1 ? count / (size_t)p->dim[0] : 1,
                         .row_sparse = p->row_sparse };
    if (!tutti_size_add(*at, count, at))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "parameter '%s' makes the model larger than this machine's addresses",
                          p->name);
    if (e->layout.n_units <= p->unit)
        e->layout.n_units = p->unit + 1;
    return TUTTI_OK;
}

tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n, tutti_error *err)
{
    const size_t padding = PADDING * (size_t)e->m.workers;
    size_t at = 0, bytes = 0;
    char *name;

    if (params == NULL || n < 1 || n > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "an engine over %d parameters; it needs at least one", n);
    for (int i = 0; i < n; i++)
        bytes += params[i].name == NULL ? 1 : strlen(params[i].name) + 1;
    e->tensors = tutti_alloc((size_t)n, sizeof *e->tensors);
    e->params = tutti_alloc((size_t)n, sizeof *e->params);
    e->pieces_of = tutti_alloc((size_t)n, sizeof *e->pieces_of);
    e->step.announced = tutti_alloc((size_t)n, sizeof *e->step.announced);
    e->rows = tutti_alloc((size_t)n, sizeof *e->rows);
    e->names = name = tutti_alloc(bytes, 1);
    if (e->tensors == NULL || e->params == NULL || e->pieces_of == NULL ||
        e->step.announced == NULL || e->rows == NULL || e->names == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d parameters", n);
    for (int i = 0; i < n; i++) {
        TUTTI_TRY(place_one(e, &params[i], i, &at, err));
        e->tensors[i].name = strcpy(name, params[i].name);
        name += strlen(name) + 1;
        e->params[i] = params[i];
        e->params[i].name = e->tensors[i].name;
    }
    e->layout.used = at;
    if (!tutti_size_add(at, padding - 1, &at))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the model is larger than this machine's addresses");
    e->layout.tensor = e->tensors;
    e->layout.n_tensors = n;
    e->layout.n = at / padding * padding;
    e->m.layout = &e->layout;
    e->m.n = e->layout.n;
    return TUTTI_OK;
}

/* ---- pieces ---- */

/* Elements of a piece that is split by bytes. */
static size_t cut_of(size_t bytes)
{
    const size_t n = bytes / sizeof(float) / CUT + (bytes % (CUT * sizeof(float)) != 0);
    return (n > 0 ? n : 1) * CUT;
}

static bool by_unit(const tutti_engine *e)
{
    return e->m.held == TUTTI_HELD_BY_UNIT;
}

/* An upper bound of the number of pieces, whatever tutti_recut sets: in each stretch between two
   tables one is not full, and the first is smaller. Or one ends with each tensor. */
double tutti_engine_most_pieces(const tutti_engine *e)
{
    const size_t least = e->m.piece_bytes_least > 0 && e->m.piece_bytes_least < e->m.piece_bytes
                             ? e->m.piece_bytes_least
                             : e->m.piece_bytes;
    const size_t full = e->layout.used / cut_of(least);
    double tables = 0;

    if (!e->m.cut_bytes)
        return e->layout.n_tensors;
    for (int i = 0; i < e->layout.n_tensors; i++)
        tables += e->rows[i].knows;
    return (double)full + 2 * tables + 3 +
           (e->m.close_bytes > 0 || by_unit(e) ? e->layout.n_tensors : 0);
}

/* True if a piece of `count` elements is full once it has this part of tensor i. first: it is the
   first piece; ends: the part is the tensor's last. */
static bool is_full(const tutti_engine *e, bool first, size_t count, int i, bool ends)
{
    const tutti_method *m = &e->m;
    const size_t bytes = first ? m->first_piece_bytes : m->piece_bytes;

    if (by_unit(e) && ends && i + 1 < e->layout.n_tensors &&
        e->tensors[i + 1].unit != e->tensors[i].unit)
        return true;
    if (!m->cut_bytes)
        return count * sizeof(float) >= bytes;
    return count == cut_of(bytes) ||
           (ends && m->close_bytes > 0 && count * sizeof(float) >= m->close_bytes);
}

int tutti_engine_pieces(const tutti_engine *e, size_t *largest)
{
    size_t count = 0; /* elements of the piece that is being filled */
    int n = 0;

    *largest = 0;
    for (int i = 0; i < e->layout.n_tensors; i++) {
        const size_t of = e->tensors[i].count;
        if (e->rows[i].knows) {
            n += (count > 0) + (of > 0);
            count = 0;
            continue;
        }
        for (size_t at = 0, some; at < of; at += some) {
            const size_t room = cut_of(n == 0 ? e->m.first_piece_bytes : e->m.piece_bytes) - count;
            some = !e->m.cut_bytes || of - at < room ? of - at : room;
            count += some;
            *largest = count > *largest ? count : *largest;
            if (is_full(e, n == 0, count, i, at + some == of)) {
                n++;
                count = 0;
            }
        }
    }
    return n + (count > 0);
}

static void cut_pieces(tutti_engine *e)
{
    tutti_piece *p = NULL;
    int n = 0;

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const bool table = e->rows[i].knows;
        if (table) /* a piece by itself */
            p = NULL;
        e->pieces_of[i].first = p != NULL ? p->index : n;
        for (size_t at = 0, some; at < t->count; at += some) {
            const size_t bytes =
                (p != NULL ? p->index : n) == 0 ? e->m.first_piece_bytes : e->m.piece_bytes;
            const size_t room =
                e->m.cut_bytes && !table ? cut_of(bytes) - (p != NULL ? p->count : 0) : t->count;
            if (p == NULL) {
                p = &e->pieces[n];
                *p = (tutti_piece){ .index = n,
                                    .first = t->first + at,
                                    .first_tensor = i,
                                    .rows = table ? &e->rows[i].known : NULL,
                                    .group.algorithm = e->sums.collective };
                e->piece_state[n++].unit = t->unit;
            }
            some = t->count - at < room ? t->count - at : room;
            p->count += some;
            p->tensors++;
            if (t->unit < e->piece_state[p->index].unit)
                e->piece_state[p->index].unit = t->unit;
            if (table || is_full(e, p->index == 0, p->count, i, at + some == t->count))
                p = NULL;
        }
        e->pieces_of[i].end = n;
    }
    e->layout.piece = e->pieces;
    e->layout.n_pieces = n;
    for (int k = 0; k < n; k++)
        tutti_engine_piece_reset(e, k);
    for (int k = 0; k < n && e->m.x != NULL; k++) { /* otherwise there is no memory yet */
        e->pieces[k].g = e->m.g != NULL ? e->m.g + e->pieces[k].first : NULL;
        e->pieces[k].x = e->m.x + e->pieces[k].first;
    }
}

tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err)
{
    const double most = tutti_engine_most_pieces(e);
    const size_t room = (size_t)most;

    if (most > INT_MAX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s' cuts %zu values into up to %.0f pieces; take larger ones, %d are possible",
            e->m.ops->name, e->layout.used, most, INT_MAX);
    if (e->pieces != NULL) { /* the split is known; now there is memory */
        cut_pieces(e);
        return TUTTI_OK;
    }
    e->pieces = tutti_alloc(room, sizeof *e->pieces);
    e->piece_state = tutti_alloc(room, sizeof *e->piece_state);
    if (e->pieces == NULL || e->piece_state == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cutting %zu values into up to %zu pieces",
                          e->layout.used, room);
    for (size_t k = 0; k < room; k++)
        e->piece_state[k].engine = e;
    cut_pieces(e);
    return TUTTI_OK;
}

tutti_status tutti_recut(tutti_method *m, size_t piece_bytes, size_t first_piece_bytes,
                         tutti_error *err)
{
    tutti_engine *e = m->engine;
    const char *keeps =
        m->piece_bytes_least == 0 ? "its declare() has not set how small they may become"
        : e->sums.exchange != NULL
            ? "a codec's memory is for those that there were when the run began"
        : tutti_method_does(m, TUTTI_LATE_GRADIENTS) != NULL
            ? "exchanges that are late are under way with those that there were"
        : e->pieces_stay ? "its servers go by those that there were when the run began"
                         : NULL;

    if (e->stage != STAGE_BETWEEN || e->step.pass.index >= 0)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s': tutti_recut is legal within pass, of a step's first pass (steps.h)",
            m->ops->name);
    if (keeps != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s' cannot split its pieces again: %s",
                          m->ops->name, keeps);
    if (piece_bytes < m->piece_bytes_least || first_piece_bytes == 0 ||
        first_piece_bytes > piece_bytes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' cuts pieces of %zu bytes, the first of %zu; they may have "
                          "%zu and more, and the first no more than the others",
                          m->ops->name, piece_bytes, first_piece_bytes, m->piece_bytes_least);
    tutti_facilities_settle(e, false);
    m->piece_bytes = piece_bytes;
    m->first_piece_bytes = first_piece_bytes;
    cut_pieces(e);
    return TUTTI_OK;
}

static float *of_tensor(const tutti_engine *e, float *flat, int tensor)
{
    return flat != NULL && tensor >= 0 && tensor < e->layout.n_tensors
               ? flat + e->tensors[tensor].first
               : NULL;
}

float *tutti_engine_values(tutti_engine *e, int tensor)
{
    float *values;

    return tensor >= 0 && tensor < e->layout.n_tensors &&
                   tutti_facilities_values(e, tensor, &values)
               ? values
               : of_tensor(e, e->m.x, tensor);
}

float *tutti_engine_gradient(tutti_engine *e, int tensor)
{
    return of_tensor(e, e->m.g, tensor);
}

void tutti_engine_piece_reset(tutti_engine *e, int k)
{
    tutti_engine_piece *s = &e->piece_state[k];

    s->pending = s->gathers = false;
    s->held = e->pieces[k].tensors;
    s->exchanged = false;
}
