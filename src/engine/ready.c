/* ready.c: gradients as the client announces them: whole or by rows, in place or from its own
   memory. They are copied to pieces, whose further processing is in pieces.c. */
#include "engine_internal.h"
#include "hooks.h"

/* Checks that a gradient may be announced now. */
static tutti_status check_ready(tutti_engine *e, int tensor, tutti_error *err)
{
    if (e->stage != STAGE_PASS)
        return tutti_engine_wrong(err, "grad_ready", "outside a pass");
    if (tensor < 0 || tensor >= e->layout.n_tensors)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "grad_ready was called for tensor %d; there are %d", tensor,
                          e->layout.n_tensors);
    if (e->step.announced[tensor])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the gradient of %s was announced twice in one pass; a weight used twice "
                          "is announced once, when its gradient is complete",
                          e->tensors[tensor].name);
    return tutti_engine_failed(e, tutti_facilities_announce(e, tensor, err), err);
}

/* Refuses an in-place gradient if gradients are held by piece and the client has no memory of its
   own for it: then it has no access to the engine's. */
static tutti_status check_handed(const tutti_engine *e, const char *call, int tensor,
                                 tutti_error *err)
{
    if (e->m.held == TUTTI_HELD_WHOLE || e->params[tensor].gradient != NULL)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s was called for %s, but method '%s' holds gradients by piece and the "
                      "client has none of its memory; hand the gradient over by %s_from",
                      call, e->tensors[tensor].name, e->m.ops->name, call);
}

/* Copies the gradient to the tensor's pieces, one after another. So a tensor may have more pieces
   than there are buffers. */
static tutti_status copy_to_pieces(tutti_engine *e, int tensor, const tutti_engine_source *s,
                                   tutti_error *err)
{
    for (int k = e->pieces_of[tensor].first; k < e->pieces_of[tensor].end; k++) {
        TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_fill_piece(e, &e->pieces[k], err), err));
        tutti_engine_take_gradient(e, tensor, k, s);
        tutti_engine_piece_tensor_ready(e, k);
    }
    return TUTTI_OK;
}

static tutti_status announce(tutti_engine *e, int tensor, const tutti_engine_source *s,
                             tutti_error *err)
{
    e->step.announced[tensor] = true;
    if (e->options.trace_events > 0) {
        const int64_t now = tutti_now_ns(e->rt);
        tutti_engine_mark(e, "ready", tensor, 0, now, now);
    }
    return copy_to_pieces(e, tensor, s, err);
}

/* The source of a gradient that is already in g. */
static tutti_engine_source in_place(tutti_engine *e, int tensor)
{
    return (tutti_engine_source){ .from = tutti_engine_gradient(e, tensor) };
}

/* Checks that a whole gradient may be announced. */
static tutti_status check_whole(tutti_engine *e, int tensor, tutti_error *err)
{
    TUTTI_TRY(check_ready(e, tensor, err));
    if (e->params[tensor].asks_rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "grad_ready was called for %s, which asks for rows; use grad_ready_rows "
                          "with those that were touched",
                          e->tensors[tensor].name);
    if (e->tensors[tensor].row_sparse)
        tutti_engine_rows_all(e, tensor);
    return TUTTI_OK;
}

tutti_status tutti_engine_grad_ready(tutti_engine *e, int tensor, tutti_error *err)
{
    tutti_engine_source s;

    TUTTI_TRY(check_whole(e, tensor, err));
    TUTTI_TRY(check_handed(e, "grad_ready", tensor, err));
    s = e->params[tensor].gradient == NULL
            ? in_place(e, tensor)
            : (tutti_engine_source){ .from = e->params[tensor].gradient,
                                     .dtype = e->params[tensor].dtype };
    return announce(e, tensor, &s, err);
}

static tutti_status check_type(const char *call, int tensor, tutti_dtype dtype, tutti_error *err)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s was called for tensor %d with dtype %d; gradients are in F32, BF16 "
                            "or F16 (base.h)",
                            call, tensor, (int)dtype);
}

tutti_status tutti_engine_grad_ready_from(tutti_engine *e, int tensor, const void *gradient,
                                          tutti_dtype dtype, tutti_error *err)
{
    TUTTI_TRY(check_type("grad_ready_from", tensor, dtype, err));
    TUTTI_TRY(check_whole(e, tensor, err));
    return announce(e, tensor, &(tutti_engine_source){ .from = gradient, .dtype = dtype }, err);
}

static tutti_status announce_rows(tutti_engine *e, int tensor, const tutti_engine_source *s,
                                  tutti_error *err)
{
    const uint32_t *ids = s->ids;
    const size_t n = s->n;
    const tutti_tensor *t;

    TUTTI_TRY(check_ready(e, tensor, err));
    t = &e->tensors[tensor];
    if (!t->row_sparse)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "grad_ready_rows was called for %s, which was not given as row_sparse; use grad_ready",
            t->name);
    TUTTI_TRY(tutti_rows_check_passed(t, ids, n, "grad_ready_rows", err));
    if (e->params[tensor].asks_rows)
        TUTTI_TRY(tutti_engine_rows_were_needed(e, tensor, ids, n, err));
    tutti_engine_rows_touch(e, tensor, ids, n);
    return announce(e, tensor, s, err);
}

tutti_status tutti_engine_grad_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err)
{
    const bool known = tensor >= 0 && tensor < e->layout.n_tensors;

    if (known)
        TUTTI_TRY(check_handed(e, "grad_ready_rows", tensor, err));
    return announce_rows(
        e, tensor,
        &(tutti_engine_source){ .from = known ? e->params[tensor].gradient : NULL,
                                .dtype = known ? e->params[tensor].dtype : TUTTI_F32,
                                .rows = true,
                                .whole = true,
                                .ids = ids,
                                .n = n },
        err);
}

tutti_status tutti_engine_grad_ready_rows_from(tutti_engine *e, int tensor, const uint32_t *ids,
                                               size_t n, const void *rows, tutti_dtype dtype,
                                               tutti_error *err)
{
    TUTTI_TRY(check_type("grad_ready_rows_from", tensor, dtype, err));
    return announce_rows(
        e, tensor,
        &(tutti_engine_source){
            .from = rows, .dtype = dtype, .rows = true, .whole = false, .ids = ids, .n = n },
        err);
}

tutti_status tutti_engine_unused(tutti_engine *e, tutti_error *err)
{
    tutti_engine_source s;

    for (int i = 0; i < e->layout.n_tensors; i++)
        if (!e->step.announced[i]) {
            if (!e->step.reported_unused)
                tutti_event(&e->m, "unused-parameter",
                            "%s had no gradient in step %llu; it counts as zero (reported once)",
                            e->tensors[i].name, (unsigned long long)e->counts.progress.step);
            e->step.reported_unused = true;
            TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_announce(e, i, err), err));
            s = (tutti_engine_source){ 0 };
            if (e->m.held == TUTTI_HELD_WHOLE &&
                e->tensors[i].row_sparse) /* g is 0 there already */
                s = in_place(e, i);
            TUTTI_TRY(copy_to_pieces(e, i, &s, err));
        }
    return TUTTI_OK;
}
