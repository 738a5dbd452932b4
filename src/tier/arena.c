/* arena.c: memory counted against a limit, by name. Memory allocated elsewhere is charged to it;
   memory taken here comes from tutti_alloc. A refusal lists the largest users, since these are
   what a user can change.

   What take gives has a header before it, with its size and the start of its allocation:

       began       | header | memory (aligned)           |
       <- alignment and header -><- bytes ->                          */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tier/tier.h"

enum { WORDS = 61, NAME = 41, LISTED = 4 };

typedef struct name { struct name *next; char text[NAME]; uint64_t now, peak; } name;
typedef struct header { void *began; name *of; size_t bytes; } header;

struct tutti_arena {
    tutti_runtime *rt;
    tutti_monitor *lock;
    char what[WORDS], mend[WORDS];
    uint64_t limit, now, peak;  /* with all below under the lock */
    name *names;                /* the newest first */
};

tutti_status tutti_arena_open(tutti_arena **out, tutti_runtime *rt, const char *what,
                              const char *mend, uint64_t limit, tutti_error *err)
{
    tutti_arena *a = tutti_alloc(1, sizeof *a);
    tutti_status status;

    *out = NULL;
    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "counting %s", what);
    a->rt = rt;
    a->limit = limit;
    snprintf(a->what, sizeof a->what, "%s", what);
    snprintf(a->mend, sizeof a->mend, "%s", mend);
    status = tutti_monitor_open(&a->lock, rt, err);
    if (status != TUTTI_OK) {
        tutti_free(a);
        return status;
    }
    *out = a;
    return TUTTI_OK;
}

void tutti_arena_close(tutti_arena *a)
{
    if (a == NULL)
        return;
    assert(a->now == 0);
    while (a->names != NULL) {
        name *const n = a->names;
        a->names = n->next;
        tutti_free(n);
    }
    tutti_monitor_close(a->lock);
    tutti_free(a);
}

static name *find_name(tutti_arena *a, const char *text)
{
    name *n = a->names;

    while (n != NULL && strncmp(n->text, text, NAME - 1) != 0)
        n = n->next;
    return n;
}

/* Returns the largest of those that come after `last`: smaller, or as large and further on. */
static const name *next_largest(const tutti_arena *a, const name *last)
{
    const name *most = NULL;
    bool passed = last == NULL;
    for (const name *n = a->names; n != NULL; n = n->next) {
        const bool after = last == NULL || n->now < last->now || (passed && n->now == last->now);
        if (n != last && n->now > 0 && after && (most == NULL || n->now > most->now))
            most = n;
        passed |= n == last;
    }
    return most;
}

/* "'gradients' 100, 'activations' 50 and others 7": the largest first. Under the lock. */
static void list_names(const tutti_arena *a, char *out, size_t room)
{
    const name *last = NULL;
    uint64_t rest = a->now;
    size_t used = 0;

    out[0] = '\0';
    for (int k = 0; k < LISTED && used < room; k++) {
        const name *most = next_largest(a, last);
        if (most == NULL)
            break;
        used += (size_t)snprintf(out + used, room - used, "%s'%s' %" PRIu64, k == 0 ? ": " : ", ",
                                 most->text, most->now);
        rest -= most->now;
        last = most;
    }
    if (rest > 0 && used < room)
        snprintf(out + used, room - used, " and others %" PRIu64, rest);
}

/* Under the lock. The name, made if need be. */
static name *name_of(tutti_arena *a, const char *text, tutti_error *err)
{
    name *n = find_name(a, text);

    if (n != NULL)
        return n;
    n = tutti_alloc(1, sizeof *n);
    if (n == NULL) {
        tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "counting '%.*s' in %s", NAME - 1, text, a->what);
        return NULL;
    }
    snprintf(n->text, sizeof n->text, "%s", text);
    n->next = a->names;
    return a->names = n;
}

/* Likewise: updates the peaks of the name and of the whole arena. */
static void note_peaks(tutti_arena *a, name *n)
{
    if (n->peak < n->now)
        n->peak = n->now;
    if (a->peak < a->now)
        a->peak = a->now;
}

/* Under the lock. *of is the name. */
static tutti_status charge(tutti_arena *a, const char *text, uint64_t bytes, name **of,
                           tutti_error *err)
{
    *of = NULL;
    if (bytes > a->limit - a->now) {
        char who[260];
        list_names(a, who, sizeof who);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "%s: '%.*s' needs %" PRIu64 " bytes, and %" PRIu64 " of %" PRIu64
                          " are free%s; %s to %" PRIu64 " at least",
                          a->what, NAME - 1, text, bytes, a->limit - a->now, a->limit, who, a->mend,
                          a->now + bytes);
    }
    *of = name_of(a, text, err);
    if (*of == NULL)
        return TUTTI_ERR_MEMORY;
    (*of)->now += bytes;
    a->now += bytes;
    note_peaks(a, *of);
    return TUTTI_OK;
}

static void refund(tutti_arena *a, name *n, uint64_t bytes)
{
    assert(n != NULL && bytes <= n->now && bytes <= a->now);
    n->now -= bytes;
    a->now -= bytes;
}

tutti_status tutti_arena_charge(tutti_arena *a, const char *text, uint64_t bytes, tutti_error *err)
{
    tutti_status status;
    name *n;

    tutti_lock(a->lock);
    status = charge(a, text, bytes, &n, err);
    tutti_unlock(a->lock);
    return status;
}

void tutti_arena_refund(tutti_arena *a, const char *text, uint64_t bytes)
{
    tutti_lock(a->lock);
    refund(a, find_name(a, text), bytes);
    tutti_unlock(a->lock);
}

tutti_status tutti_arena_charge_all(tutti_arena *a, const tutti_arena_part *parts, size_t n,
                                    tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    uint64_t sum = 0;
    size_t done = 0;

    tutti_lock(a->lock);
    for (; done < n && status == TUTTI_OK; done++) {
        /* beyond the limit for now, so that all can be listed */
        name *const of = name_of(a, parts[done].name, err);
        if (of == NULL || parts[done].bytes > UINT64_MAX / 2 - a->now) {
            status = of == NULL ? TUTTI_ERR_MEMORY
                                : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                                             "%s: '%.*s' needs %" PRIu64 " bytes", a->what,
                                             NAME - 1, parts[done].name, parts[done].bytes);
            break;
        }
        of->now += parts[done].bytes;
        a->now += parts[done].bytes;
        sum += parts[done].bytes;
    }
    if (status == TUTTI_OK && a->now > a->limit) {
        char who[260];
        list_names(a, who, sizeof who);
        status = tutti_fail(
            err, TUTTI_ERR_MEMORY, 0,
            "%s: %" PRIu64 " bytes are needed, and %" PRIu64 " of %" PRIu64 " are free%s; %s to "
            "%" PRIu64 " at least",
            a->what, sum, a->limit - (a->now - sum), a->limit, who, a->mend, a->now);
    }
    for (size_t k = 0; k < done; k++) {
        name *const of = find_name(a, parts[k].name);
        if (status == TUTTI_OK)
            note_peaks(a, of);
        else
            refund(a, of, parts[k].bytes);
    }
    tutti_unlock(a->lock);
    return status;
}

tutti_status tutti_arena_take(tutti_arena *a, const char *text, size_t bytes, size_t alignment,
                              void **memory, tutti_error *err)
{
    tutti_status status;
    header *h;
    size_t all;
    char *began, *place;
    name *n;

    *memory = NULL;
    if (alignment < TUTTI_ARENA_ALIGN)
        alignment = TUTTI_ARENA_ALIGN;
    assert((alignment & (alignment - 1)) == 0 && sizeof(header) <= TUTTI_ARENA_ALIGN);
    tutti_lock(a->lock);
    status = charge(a, text, bytes, &n, err);
    tutti_unlock(a->lock);
    if (status != TUTTI_OK)
        return status;
    began = tutti_size_add(bytes, alignment + TUTTI_ARENA_ALIGN, &all) ? tutti_alloc(all, 1) : NULL;
    if (began == NULL) {
        tutti_lock(a->lock);
        refund(a, n, bytes);
        tutti_unlock(a->lock);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "%s: the machine has no %zu bytes for '%.*s'; close other programs or "
                          "use fewer workers",
                          a->what, bytes, NAME - 1, text);
    }
    place = began + TUTTI_ARENA_ALIGN;
    place += (alignment - (uintptr_t)place % alignment) % alignment;
    h = (header *)(void *)(place - TUTTI_ARENA_ALIGN);
    *h = (header){ .began = began, .of = n, .bytes = bytes };
    *memory = place;
    return TUTTI_OK;
}

void tutti_arena_give(tutti_arena *a, void *memory)
{
    const header *h;

    if (memory == NULL)
        return;
    h = (const header *)(const void *)((char *)memory - TUTTI_ARENA_ALIGN);
    tutti_lock(a->lock);
    refund(a, h->of, h->bytes);
    tutti_unlock(a->lock);
    tutti_free(h->began);
}

tutti_arena_sum tutti_arena_count(tutti_arena *a, const char *text)
{
    tutti_arena_sum sum = { 0, 0, a->limit };
    const name *n;

    tutti_lock(a->lock);
    n = text == NULL ? NULL : find_name(a, text);
    if (text == NULL) {
        sum.now = a->now;
        sum.peak = a->peak;
    } else if (n != NULL) {
        sum.now = n->now;
        sum.peak = n->peak;
    }
    tutti_unlock(a->lock);
    return sum;
}
