/* accusations.c: collections of accusations, by rows of those that are accused. */
#include "accusations.h"
#include <string.h>

enum { RANK_BYTES = 4 };

bool tutti_accusations_open(tutti_accusations *a, int size)
{
    *a = (tutti_accusations){ .size = size, .row = ((size_t)size + 7) / 8 };
    a->accused = tutti_alloc((size_t)size, sizeof *a->accused);
    a->by = tutti_alloc((size_t)size, a->row);
    return a->accused != NULL && a->by != NULL;
}

void tutti_accusations_close(tutti_accusations *a)
{
    tutti_free(a->accused);
    tutti_free(a->by);
    a->accused = NULL;
    a->by = NULL;
}

static uint8_t *row_of(const tutti_accusations *a, int whom)
{
    return a->by + (size_t)whom * a->row;
}

void tutti_accusations_clear(tutti_accusations *a)
{
    for (int i = 0; i < a->n; i++)
        memset(row_of(a, a->accused[i]), 0, a->row);
    a->n = 0;
}

/* Returns its row, as one of the accused. */
static uint8_t *list(tutti_accusations *a, int whom)
{
    int at = a->n;

    while (at > 0 && a->accused[at - 1] > whom)
        at--;
    if (at == 0 || a->accused[at - 1] != whom) {
        memmove(&a->accused[at + 1], &a->accused[at], (size_t)(a->n - at) * sizeof *a->accused);
        a->accused[at] = whom;
        a->n++;
    }
    return row_of(a, whom);
}

void tutti_accuse(tutti_accusations *a, int who, int whom)
{
    list(a, whom)[who / 8] |= (uint8_t)(1u << who % 8);
}

bool tutti_accusations_same(const tutti_accusations *a, const tutti_accusations *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->accused[i] != b->accused[i] ||
            memcmp(row_of(a, a->accused[i]), row_of(b, b->accused[i]), a->row) != 0)
            return false;
    return true;
}

void tutti_accusations_merge(tutti_accusations *into, const tutti_accusations *from)
{
    for (int i = 0; i < from->n; i++) {
        const uint8_t *const more = row_of(from, from->accused[i]);
        uint8_t *const row = list(into, from->accused[i]);
        for (size_t k = 0; k < into->row; k++)
            row[k] |= more[k];
    }
}

int tutti_accusers(const tutti_accusations *a, int whom, const bool *members)
{
    int n = 0;

    for (int who = 0; who < a->size; who++)
        n += members[who] && tutti_accuses(a, who, whom);
    return n;
}

/* ---- tables ---- */
size_t tutti_accusations_bytes(const tutti_accusations *a)
{
    return (size_t)a->n * (RANK_BYTES + a->row);
}

size_t tutti_accusations_bytes_most(const tutti_accusations *a)
{
    return (size_t)a->size * (RANK_BYTES + a->row);
}

void tutti_accusations_pack(const tutti_accusations *a, uint8_t *to)
{
    for (int i = 0; i < a->n; i++, to += RANK_BYTES + a->row) {
        for (int k = 0; k < RANK_BYTES; k++)
            to[k] = (uint8_t)((uint32_t)a->accused[i] >> 8 * k);
        memcpy(to + RANK_BYTES, row_of(a, a->accused[i]), a->row);
    }
}

/* A row has an accuser, and no rank beyond the last. */
static bool is_row(const tutti_accusations *a, const uint8_t *row)
{
    const unsigned beyond = a->size % 8 == 0 ? 0 : 0xffu << a->size % 8 & 0xff;

    if ((row[a->row - 1] & beyond) != 0)
        return false;
    for (size_t k = 0; k < a->row; k++)
        if (row[k] != 0)
            return true;
    return false;
}

bool tutti_accusations_unpack(tutti_accusations *a, const uint8_t *from, size_t bytes)
{
    const size_t each = RANK_BYTES + a->row, n = bytes / each;
    int64_t last = -1;

    tutti_accusations_clear(a);
    if (bytes % each != 0 || n > (size_t)a->size)
        return false;
    for (size_t i = 0; i < n; i++, from += each) {
        uint32_t rank = 0;
        for (int k = 0; k < RANK_BYTES; k++)
            rank |= (uint32_t)from[k] << 8 * k;
        if (rank <= last || rank >= (uint32_t)a->size || !is_row(a, from + RANK_BYTES)) {
            tutti_accusations_clear(a);
            return false;
        }
        last = rank;
        memcpy(list(a, (int)rank), from + RANK_BYTES, a->row);
    }
    return true;
}
