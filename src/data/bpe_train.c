/* bpe_train.c: learns a byte-pair encoding. The text is split into words (bpe.c), and each
   different word is kept once, with its frequency: of 50 MB of English some 300,000. A pair of
   neighbours counts once for each of its occurrences in a word, times the word's frequency. Then,
   for each merge, the most frequent pair is taken from a heap, and the words that have it are
   rewritten. All pairs of a rewritten word are subtracted before and added after, which is exact
   also where pairs overlap ("aaa"), and cheap, since words are short.

     pair    a slot of a hash table: its key, its count, and the words that have had it (a list of
             nodes; some may not have it any more)
     heap    (count, pair) with the count when it was pushed. If the count has decreased since, the
             pair is pushed again when it is at the top. The count of a pair increases only in the
             merge that makes one of its two ids, at whose end it is pushed

   Of equal counts the lower pair comes first, so the result does not depend on any order. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "text_internal.h"

enum { NONE = UINT32_MAX };
/* A word: it begins at text[begin], occurs `times` times, and is encoded as ids[at] to ids[at + n -
   1]. */
typedef struct word { uint64_t begin, times; uint32_t n; uint32_t at; } word;
/* A slot of the table of pairs; key ~0: empty. first: the first node of its words; NONE: no
   word. */
typedef struct pair { uint64_t key, count; uint32_t first; bool pushed; } pair;
typedef struct node { uint32_t word, next; } node; /* next NONE: the last one */
typedef struct entry { uint64_t count, key; } entry; /* of the heap */

typedef struct trainer {
    const uint8_t *text;
    word *words; size_t n_words, room_words;
    uint32_t *word_slot; size_t word_slots;     /* index + 1; 0: empty */
    uint32_t *ids; size_t n_ids;
    pair *pairs; size_t n_pairs, pair_slots;
    node *nodes; size_t n_nodes, room_nodes;
    entry *heap; size_t n_heap, room_heap;
    uint64_t *fresh; size_t n_fresh, room_fresh; /* pairs that this merge has made */
} trainer;

/* Ensures capacity for one more element; *at may move. */
static bool grow_array(void **at, size_t *room, size_t used, size_t size)
{
    const size_t more = *room < 1024 ? 1024 : 2 * *room;
    void *to;

    if (used < *room)
        return true;
    if ((to = tutti_alloc(more, size)) == NULL)
        return false;
    if (used > 0)
        memcpy(to, *at, used * size);
    tutti_free(*at);
    *at = to;
    *room = more;
    return true;
}
#define GROW(t, list) \
    grow_array((void **)&(t)->list, &(t)->room_##list, (t)->n_##list, sizeof *(t)->list)

/* ---- words ---- */

static bool widen_words(trainer *t)
{
    const size_t slots = t->word_slots == 0 ? 1 << 12 : 2 * t->word_slots;
    uint32_t *table = tutti_alloc(slots, sizeof *table);

    if (table == NULL)
        return false;
    for (size_t k = 0; k < t->word_slots; k++)
        if (t->word_slot[k] != 0) {
            const word *w = &t->words[t->word_slot[k] - 1];
            size_t at = tutti_hash(t->text + w->begin, w->n) & (slots - 1);
            while (table[at] != 0)
                at = (at + 1) & (slots - 1);
            table[at] = t->word_slot[k];
        }
    tutti_free(t->word_slot);
    t->word_slot = table;
    t->word_slots = slots;
    return true;
}

static bool count_words(trainer *t, uint64_t bytes)
{
    for (uint64_t begin = 0; begin < bytes;) {
        const uint32_t n = (uint32_t)tutti_text_word(t->text + begin, bytes - begin);
        size_t at;
        if (2 * t->n_words >= t->word_slots && !widen_words(t))
            return false;
        at = tutti_hash(t->text + begin, n) & (t->word_slots - 1);
        while (t->word_slot[at] != 0) {
            const word *w = &t->words[t->word_slot[at] - 1];
            if (w->n == n && memcmp(t->text + w->begin, t->text + begin, n) == 0)
                break;
            at = (at + 1) & (t->word_slots - 1);
        }
        if (t->word_slot[at] == 0) {
            if (t->n_words == NONE - 1 || !GROW(t, words))
                return false;
            t->words[t->n_words++] = (word){ .begin = begin, .n = n };
            t->word_slot[at] = (uint32_t)t->n_words;
            t->n_ids += n;
        }
        t->words[t->word_slot[at] - 1].times++;
        begin += n;
    }
    return true;
}

/* ---- pairs ---- */

static size_t slot_of(const trainer *t, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (t->pair_slots - 1);

    while (t->pairs[at].key != key && t->pairs[at].key != UINT64_MAX)
        at = (at + 1) & (t->pair_slots - 1);
    return at;
}

static bool widen_pairs(trainer *t)
{
    pair *old = t->pairs;
    const size_t slots = t->pair_slots;

    t->pair_slots = slots == 0 ? 1 << 16 : 2 * slots;
    t->pairs = tutti_alloc(t->pair_slots, sizeof *t->pairs);
    if (t->pairs == NULL) {
        t->pairs = old;
        t->pair_slots = slots;
        return false;
    }
    for (size_t k = 0; k < t->pair_slots; k++)
        t->pairs[k].key = UINT64_MAX;
    for (size_t k = 0; k < slots; k++)
        if (old[k].key != UINT64_MAX)
            t->pairs[slot_of(t, old[k].key)] = old[k];
    tutti_free(old);
    return true;
}

/* Adds `times` to the count of each pair of the word. New pairs are added to the list `fresh`, and
   get the word. */
static bool add_pairs(trainer *t, uint32_t index)
{
    const word *w = &t->words[index];

    for (uint32_t i = 0; i + 1 < w->n; i++) {
        const uint64_t key = (uint64_t)t->ids[w->at + i] << 32 | t->ids[w->at + i + 1];
        pair *p;
        if (2 * t->n_pairs >= t->pair_slots && !widen_pairs(t))
            return false;
        p = &t->pairs[slot_of(t, key)];
        if (p->key == UINT64_MAX) {
            *p = (pair){ .key = key, .first = NONE };
            t->n_pairs++;
        }
        if (!p->pushed) {
            if (!GROW(t, fresh))
                return false;
            if (p->count == 0)
                t->fresh[t->n_fresh++] = key;
            if (p->first == NONE || t->nodes[p->first].word != index) {
                if (t->n_nodes == NONE - 1 || !GROW(t, nodes))
                    return false;
                t->nodes[t->n_nodes] = (node){ index, p->first };
                p->first = (uint32_t)t->n_nodes++;
            }
        }
        p->count += w->times;
    }
    return true;
}

static void subtract_pairs(trainer *t, uint32_t index)
{
    const word *w = &t->words[index];

    for (uint32_t i = 0; i + 1 < w->n; i++)
        t->pairs[slot_of(t, (uint64_t)t->ids[w->at + i] << 32 | t->ids[w->at + i + 1])].count -=
            w->times;
}

/* ---- the heap: the most frequent first, of equals the lowest pair ---- */

static bool entry_before(const entry *a, const entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static bool push(trainer *t, entry e)
{
    size_t at = t->n_heap;

    if (!GROW(t, heap))
        return false;
    t->n_heap++;
    for (; at > 0 && entry_before(&e, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = e;
    return true;
}

static entry pop(trainer *t)
{
    const entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < t->n_heap) {
        if (child + 1 < t->n_heap && entry_before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!entry_before(&t->heap[child], &last))
            break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = last;
    return top;
}

static bool push_fresh(trainer *t)
{
    for (size_t k = 0; k < t->n_fresh; k++) {
        pair *p = &t->pairs[slot_of(t, t->fresh[k])];
        if (!p->pushed && p->count > 0 && !push(t, (entry){ p->count, p->key }))
            return false;
        p->pushed = true;
    }
    t->n_fresh = 0;
    return true;
}

/* ---- merging ---- */

/* Joins every occurrence of the pair in the word, from the left. */
static void rewrite(trainer *t, word *w, uint64_t key, uint32_t made)
{
    const uint32_t left = (uint32_t)(key >> 32), right = (uint32_t)key;
    uint32_t *ids = t->ids + w->at;
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n; n++)
        if (i + 1 < w->n && ids[i] == left && ids[i + 1] == right) {
            ids[n] = made;
            i += 2;
        } else
            ids[n] = ids[i++];
    w->n = n;
}

static bool holds(const trainer *t, const word *w, uint64_t key)
{
    for (uint32_t i = 0; i + 1 < w->n; i++)
        if (((uint64_t)t->ids[w->at + i] << 32 | t->ids[w->at + i + 1]) == key)
            return true;
    return false;
}

static bool merge_pair(trainer *t, uint64_t key, uint32_t made)
{
    for (uint32_t k = t->pairs[slot_of(t, key)].first; k != NONE; k = t->nodes[k].next) {
        word *w = &t->words[t->nodes[k].word];
        if (!holds(t, w, key))
            continue;
        subtract_pairs(t, t->nodes[k].word);
        rewrite(t, w, key, made);
        if (!add_pairs(t, t->nodes[k].word))
            return false;
    }
    return push_fresh(t);
}

/* Returns the next pair to merge. *count: its count; 0: no pair is left. */
static bool most_frequent(trainer *t, uint64_t *key, uint64_t *count)
{
    *count = 0;
    while (t->n_heap > 0 && *count == 0) {
        const entry top = pop(t);
        const uint64_t now = t->pairs[slot_of(t, top.key)].count;
        if (now == top.count) {
            *key = top.key;
            *count = now;
        } else if (now > 0 && !push(t, (entry){ now, top.key }))
            return false;
    }
    return true;
}

static bool count_pairs(trainer *t, uint64_t bytes)
{
    if (!count_words(t, bytes))
        return false;
    t->ids = tutti_alloc(t->n_ids + 1, sizeof *t->ids);
    if (t->ids == NULL || t->n_ids > UINT32_MAX)
        return false;
    t->n_ids = 0;
    for (uint32_t k = 0; k < t->n_words; k++) {
        word *w = &t->words[k];
        w->at = (uint32_t)t->n_ids;
        for (uint32_t i = 0; i < w->n; i++)
            t->ids[t->n_ids++] = t->text[w->begin + i];
        if (!add_pairs(t, k))
            return false;
    }
    return push_fresh(t);
}

tutti_status tutti_bpe_train(tutti_bpe **out, const uint8_t *text, uint64_t bytes,
                             uint32_t vocabulary, tutti_error *err)
{
    trainer t = { .text = text };
    uint64_t *pairs;
    bool room;
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (vocabulary < 256 || vocabulary > TUTTI_BPE_VOCABULARY_MOST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a vocabulary of %u ids is not possible; it must be from 256 (the bytes) to %d",
            vocabulary, TUTTI_BPE_VOCABULARY_MOST);
    pairs = tutti_alloc((size_t)vocabulary - 256 + 1, sizeof *pairs);
    room = pairs != NULL && count_pairs(&t, bytes);
    for (uint32_t made = 256; room && made < vocabulary && status == TUTTI_OK; made++) {
        uint64_t count = 0;
        room = most_frequent(&t, &pairs[made - 256], &count);
        if (room && count < 2)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "a vocabulary of %u ids is more than the text gives: after %u no "
                                "pair occurs twice; ask for at most %u, or give a longer text",
                                vocabulary, made, made);
        else if (room)
            room = merge_pair(&t, pairs[made - 256], made);
    }
    if (!room)
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                       "learning %u ids from a text of %" PRIu64 " bytes (%zu different words)",
                       vocabulary, bytes, t.n_words);
    tutti_free(t.words);
    tutti_free(t.word_slot);
    tutti_free(t.ids);
    tutti_free(t.pairs);
    tutti_free(t.nodes);
    tutti_free(t.heap);
    tutti_free(t.fresh);
    if (status == TUTTI_OK)
        return tutti_bpe_make(out, pairs, vocabulary, "what was learnt", err);
    tutti_free(pairs);
    return status;
}
