/* state_known.c: what a newcomer knows of the state that it fetches: the pieces that the manifests
   of all holders list together, in order. A piece that several have must have the same hashes in
   all of them: replicas that differ are found here. */
#include "state_internal.h"
#include <errno.h>
#include <string.h>

void tutti_fetch_free_piece(piece *p)
{
    tutti_free((void *)p->saved.state);
    tutti_free((void *)p->saved.tensor);
    tutti_free(p->saved.data);
    tutti_free(p->hash);
    tutti_free(p->is);
}

/* The place in the order of the first piece that does not stand before p. */
static size_t place_of(const tutti_fetch *f, const tutti_saved *p)
{
    size_t low = 0, high = f->n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (tutti_image_order(sorted(f, middle), p) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static tutti_status differs(const tutti_saved *p, const char *how, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "holders of the state differ: '%.60s/%.60s' (elements [%llu, %llu)) has "
                      "other %s than another one's; a replica has diverged",
                      p->state, p->tensor, (unsigned long long)p->begin, (unsigned long long)p->end,
                      how);
}

static tutti_status check_neighbour(const tutti_saved *have, const tutti_saved *p, tutti_error *err)
{
    if (!same_state(have, p))
        return TUTTI_OK;
    if (!same_form(have, p))
        return differs(p, "sizes, or another type,", err);
    return have->owner == p->owner && have->begin < p->end && p->begin < have->end
               ? differs(p, "boundaries", err)
               : TUTTI_OK;
}

/* Compares a piece with what is known. *known: its index; f->n: it is new. */
static tutti_status compare(const tutti_fetch *f, const tutti_manifest_piece *p, size_t *known,
                            tutti_error *err)
{
    const size_t at = place_of(f, &p->saved);
    const piece *have = at < f->n ? &f->pieces[f->order[at]] : NULL;

    *known = f->n;
    if (have == NULL || tutti_image_order(&have->saved, &p->saved) != 0 ||
        have->saved.end != p->saved.end) {
        if (at > 0)
            TUTTI_TRY(check_neighbour(sorted(f, at - 1), &p->saved, err));
        return have != NULL ? check_neighbour(&have->saved, &p->saved, err) : TUTTI_OK;
    }
    if (!same_form(&have->saved, &p->saved))
        return differs(&p->saved, "sizes, or another type,", err);
    for (uint64_t k = 0; k < p->ranges; k++)
        if (have->hash[k] != tutti_elastic_number(p->hashes + 8 * k, 8))
            return differs(&p->saved, "bits", err);
    *known = f->order[at];
    return TUTTI_OK;
}

static bool wanted(const tutti_fetch *f, const tutti_saved *p)
{
    return f->options.wants == NULL || f->options.wants(f->options.user, p);
}

/* Checks all of a manifest against what is known, before any of it counts. *fresh: its new
   pieces. */
static tutti_status check_manifest(const tutti_fetch *f, tutti_manifest_reader r, size_t *fresh,
                                   tutti_error *err)
{
    tutti_manifest_piece p;
    uint64_t needed = f->needed;

    *fresh = 0;
    if (f->world != 0 &&
        (r.world != f->world || r.workers != f->workers ||
         (f->facts != NULL && r.facts[0] != 0 && strcmp(r.facts, f->facts) != 0)))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "holders of the state differ: one is of a run of %d workers of %d ranks, "
                          "another of %d of %d, or their settings are not the same",
                          r.workers, r.world, f->workers, f->world);
    while (tutti_manifest_next(&r, &f->options.of, &p)) {
        size_t known;
        TUTTI_TRY(compare(f, &p, &known, err));
        if (known < f->n)
            continue;
        ++*fresh;
        if (!wanted(f, &p.saved))
            continue;
        if (tutti_image_bytes(&p.saved) > f->options.most - needed)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "a manifest of state lists more than the %llu bytes that may be "
                              "taken, at '%.60s/%.60s'",
                              (unsigned long long)f->options.most, p.saved.state, p.saved.tensor);
        needed += tutti_image_bytes(&p.saved);
    }
    return TUTTI_OK;
}

static tutti_status reserve(tutti_fetch *f, size_t room, tutti_error *err)
{
    piece *pieces;
    size_t *order;

    if (room <= f->room)
        return TUTTI_OK;
    pieces = tutti_alloc(room, sizeof *pieces);
    order = tutti_alloc(room, sizeof *order);
    if (pieces == NULL || order == NULL) {
        tutti_free(pieces);
        tutti_free(order);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                          room);
    }
    if (f->n > 0) {
        memcpy(pieces, f->pieces, f->n * sizeof *pieces);
        memcpy(order, f->order, f->n * sizeof *order);
    }
    tutti_free(f->pieces);
    tutti_free(f->order);
    f->pieces = pieces;
    f->order = order;
    f->room = room;
    return TUTTI_OK;
}

/* There is room for it. */
static tutti_status add_piece(tutti_fetch *f, const tutti_manifest_piece *from, tutti_error *err)
{
    const size_t bytes = (size_t)tutti_image_bytes(&from->saved), at = place_of(f, &from->saved);
    piece p = { .saved = from->saved, .wanted = wanted(f, &from->saved), .ranges = from->ranges };

    p.free = p.wanted ? p.ranges : 0;
    p.saved.state = tutti_copy_text(from->saved.state);
    p.saved.tensor = tutti_copy_text(from->saved.tensor);
    p.saved.data = p.wanted ? tutti_alloc(bytes + 1, 1) : NULL;
    p.hash = tutti_alloc((size_t)p.ranges + 1, sizeof *p.hash);
    p.is = tutti_alloc((size_t)p.ranges + 1, 1);
    if (p.saved.state == NULL || p.saved.tensor == NULL || p.hash == NULL || p.is == NULL ||
        (p.wanted && p.saved.data == NULL)) {
        tutti_fetch_free_piece(&p);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for '%.60s/%.60s' (%zu bytes)",
                          from->saved.state, from->saved.tensor, bytes);
    }
    for (uint64_t k = 0; k < p.ranges; k++)
        p.hash[k] = tutti_elastic_number(from->hashes + 8 * k, 8);
    memmove(f->order + at + 1, f->order + at, (f->n - at) * sizeof *f->order);
    f->order[at] = f->n;
    f->pieces[f->n++] = p;
    f->needed += p.wanted ? bytes : 0;
    return TUTTI_OK;
}

/* What the first manifest decides, and the first that has facts. */
static tutti_status take_run(tutti_fetch *f, const tutti_manifest_reader *r, tutti_error *err)
{
    const bool facts = f->facts == NULL && r->facts[0] != 0;

    if (f->ranks == NULL)
        f->ranks = tutti_alloc((size_t)r->world, sizeof *f->ranks);
    if (f->ranks != NULL && facts)
        f->facts = tutti_copy_text(r->facts);
    if (f->ranks == NULL || (facts && f->facts == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a manifest of state");
    f->world = r->world;
    f->workers = r->workers;
    return TUTTI_OK;
}

/* All that this rank has, and those whose copies it has, is in a manifest. */
static void mark(tutti_fetch *f, const tutti_manifest_reader *r)
{
    for (int k = 0; k <= r->copies; k++) {
        bool *const rank = &f->ranks[(r->rank + k) % f->world];
        f->n_ranks += !*rank;
        *rank = true;
    }
}

tutti_status tutti_fetch_list(tutti_fetch *f, holder *h, const uint8_t *bytes, size_t n,
                              tutti_error *err)
{
    tutti_manifest_reader r;
    tutti_manifest_piece p;
    size_t fresh;

    tutti_status status;

    TUTTI_TRY(tutti_manifest_begin(&r, &f->options.of, bytes, n, err));
    status = check_manifest(f, r, &fresh, err);
    if (status == TUTTI_ERR_STATE && r.facts[0] == 0) /* they are of workers of another epoch */
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "what a holder has beside its state is of other workers than the state");
    TUTTI_TRY(status);
    TUTTI_TRY(take_run(f, &r, err));
    TUTTI_TRY(reserve(f, f->n + fresh, err));
    h->has = tutti_alloc(r.pieces + 1, sizeof *h->has);
    if (h->has == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                          r.pieces);
    while (tutti_manifest_next(&r, &f->options.of, &p)) {
        size_t known;
        TUTTI_TRY(compare(f, &p, &known, err));
        if (known == f->n)
            TUTTI_TRY(add_piece(f, &p, err));
        f->pieces[known].holders++;
        h->has[h->n_has++] = (has){ known, h->ranges };
        h->ranges += p.ranges;
    }
    h->listed = true;
    f->whole = f->whole || r.whole;
    mark(f, &r);
    return TUTTI_OK;
}

/* ---- is it all? ---- */

bool tutti_fetch_covers(const tutti_fetch *f, const tutti_saved **what, int *owner)
{
    size_t k = 0;

    while (k < f->n) {
        const tutti_saved *const s = *what = sorted(f, k);
        const bool each = s->keep != TUTTI_SAME && s->keep != TUTTI_SLICE;
        const int last = each ? f->workers - 1 : -1;
        for (*owner = each ? 0 : -1; *owner <= last; ++*owner) {
            uint64_t at = 0;
            for (; k < f->n && same_state(sorted(f, k), s) && sorted(f, k)->owner == *owner; k++)
                if (sorted(f, k)->begin == at) /* else there is a gap, and at stays */
                    at = sorted(f, k)->end;
            if (at != s->count)
                return false;
        }
    }
    return f->n > 0;
}

bool tutti_fetch_is_listed(const tutti_fetch *f)
{
    return f->facts != NULL && (f->whole || f->n_ranks == f->world);
}
