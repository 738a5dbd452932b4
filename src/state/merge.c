/* merge.c: combines the reports of all ranks on what they have saved to a manifest in memory. */
#include "state_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const tutti_saved_piece *x = a, *y = b;
    const int order = tutti_state_order(x->state, x->tensor, y->state, y->tensor);

    if (order != 0)
        return order;
    if (x->range.owner != y->range.owner)
        return x->range.owner < y->range.owner ? -1 : 1;
    if (x->range.begin != y->range.begin)
        return x->range.begin < y->range.begin ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static tutti_status check_kind(const tutti_manifest_state *s, const tutti_saved_piece *first,
                               const tutti_saved_piece *p, tutti_error *err)
{
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];

    if (p->keep == s->keep && p->dtype == s->dtype && p->count == s->count)
        return TUTTI_OK;
    return tutti_fail_rank(
        err, TUTTI_ERR_USAGE, p->rank,
        "'%s/%s' is %llu elements of %s kept '%s' on rank %d, but %llu of %s kept '%s' on rank %d; "
        "all ranks must declare it identically",
        tutti_state_shown(state, p->state), tutti_state_shown(tensor, p->tensor),
        (unsigned long long)p->count, tutti_dtype_name(p->dtype), tutti_keep_name(p->keep), p->rank,
        (unsigned long long)s->count, tutti_dtype_name(s->dtype), tutti_keep_name(s->keep),
        first->rank);
}

static tutti_status add_state(tutti_checkpoint *c, const tutti_saved_piece *p, tutti_error *err)
{
    tutti_manifest_state *s = &c->states[c->n_states++];

    *s = (tutti_manifest_state){ .state = tutti_copy_text(p->state),
                                 .tensor = tutti_copy_text(p->tensor),
                                 .keep = p->keep,
                                 .dtype = p->dtype,
                                 .count = p->count,
                                 .first = c->n_ranges };
    return s->state != NULL && s->tensor != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the states of all ranks");
}

static tutti_status add_piece(tutti_checkpoint *c, const tutti_saved_piece *p, tutti_error *err)
{
    tutti_manifest_range *r = &c->ranges[c->n_ranges];
    uint32_t file = 0;

    if (p->range.begin == p->range.end) /* nothing of it was written */
        return TUTTI_OK;
    while (file < c->n_files && c->files[file].rank != p->rank)
        file++;
    if (file == c->n_files)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                               "rank %d lists tensors but has written no file", p->rank);
    *r = p->range;
    r->file = file;
    c->n_ranges++;
    c->states[c->n_states - 1].n++;
    return TUTTI_OK;
}

tutti_status tutti_manifest_merge(tutti_checkpoint **out, const char *path,
                                  tutti_saved_piece *pieces, size_t n,
                                  const tutti_manifest_file *files, size_t n_files,
                                  tutti_error *err)
{
    tutti_checkpoint *c = tutti_alloc(1, sizeof *c);
    const tutti_saved_piece *first = NULL;
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (c == NULL || (c->path = tutti_copy_text(path)) == NULL ||
        (c->files = tutti_alloc(n_files + 1, sizeof *c->files)) == NULL ||
        (c->states = tutti_alloc(n + 1, sizeof *c->states)) == NULL ||
        (c->ranges = tutti_alloc(n + 1, sizeof *c->ranges)) == NULL) {
        tutti_checkpoint_close(c);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %zu tensors of all ranks", n);
    }
    if (n_files > 0)
        memcpy(c->files, files, n_files * sizeof *files);
    c->n_files = n_files;
    if (n > 0)
        qsort(pieces, n, sizeof *pieces, by_place);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++) {
        const tutti_saved_piece *p = &pieces[k];
        if (p->keep < TUTTI_SAME || p->keep >= TUTTI_SCRATCH || p->dtype < TUTTI_F32 ||
            p->dtype > TUTTI_I8) {
            status = tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                                     "rank %d's list of what it saves is not what it should be",
                                     p->rank);
        } else if (first == NULL ||
                   tutti_state_order(first->state, first->tensor, p->state, p->tensor) != 0) {
            first = p;
            status = add_state(c, p, err);
        }
        if (status == TUTTI_OK)
            status = check_kind(&c->states[c->n_states - 1], first, p, err);
        if (status == TUTTI_OK)
            status = add_piece(c, p, err);
    }
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_checkpoint_close(c);
    return status;
}
