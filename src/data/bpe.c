/* bpe.c: byte-pair encoding: the merges, their file, encoding and decoding. bpe_train.c learns the
   merges.

   A text is split into words, and a merge never crosses the end of a word. A word follows GPT-2's
   rule, on bytes instead of Unicode: an optional space, then a run of letters (ASCII letters and
   all bytes from 0x80, so that characters of UTF-8 stay together), of digits or of other signs.
   Other white space is a word of its own, but its last space belongs to the word that follows. A
   run ends after 64 bytes, so that the work for a word is bounded. The words of a text, joined,
   are the text.

   To encode a word of n bytes, the pair of neighbours whose merge was learnt first is joined, the
   leftmost of equal pairs, until no pair has a merge: at most n^2 / 2 look-ups in a hash table of
   merges. Words repeat, so a cache of encoded words, with one slot for each hash, has nearly all.

   The file has lines of ASCII, each ended by LF:

       tutti-bpe 1
       vocabulary N
       LEFT RIGHT      N - 256 lines; both ids are below the id of the merge
       hash H          16 hex digits: XXH3-64 of all lines before */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_internal.h"
#include "runtime/files.h"

enum { CACHE_SLOTS = 1 << 13, TOKEN_BYTES_MOST = TEXT_WORD_MOST };

struct tutti_bpe {
    uint32_t vocabulary;
    uint64_t *pair;               /* vocabulary - 256: left << 32 | right */
    uint64_t *key;                /* slots: pairs, hashed with open addressing; ~0: empty */
    uint32_t *id;                 /* slots: what the pair makes */
    size_t slots;                 /* a power of two, at least twice the merges */
    uint8_t *bytes;               /* of all ids, back to back */
    uint64_t *begin;              /* vocabulary + 1 */
};

/* ---- words ---- */

enum { LETTER, DIGIT, SPACE, SIGN };

static int kind_of(uint8_t c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
        return LETTER;
    return c >= '0' && c <= '9' ? DIGIT : c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : SIGN;
}

size_t tutti_text_word(const uint8_t *text, uint64_t bytes)
{
    const uint64_t most = bytes < TEXT_WORD_MOST ? bytes : TEXT_WORD_MOST;
    uint64_t n = text[0] == ' ' && most > 1 && kind_of(text[1]) != SPACE;
    const int kind = kind_of(text[n]);

    while (n < most && kind_of(text[n]) == kind)
        n++;
    if (kind == SPACE && n > 1 && n < bytes && text[n - 1] == ' ' && kind_of(text[n]) != SPACE)
        n--;
    return (size_t)n;
}

/* ---- building ---- */

static size_t find_slot(const tutti_bpe *b, uint64_t pair)
{
    size_t at = (size_t)(pair * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (b->slots - 1);

    while (b->key[at] != pair && b->key[at] != UINT64_MAX)
        at = (at + 1) & (b->slots - 1);
    return at;
}

/* Fills the table of merges, and b->begin: where each token will begin. *total: bytes of all
   tokens. */
static tutti_status enter_merges(tutti_bpe *b, const char *path, uint64_t *total, tutti_error *err)
{
    const uint32_t merges = b->vocabulary - 256;

    *total = 256;
    memset(b->key, 0xFF, b->slots * sizeof *b->key);
    for (uint32_t k = 0; k <= 256; k++)
        b->begin[k] = k;
    for (uint32_t k = 0; k < merges; k++) {
        const uint32_t left = (uint32_t)(b->pair[k] >> 32), right = (uint32_t)b->pair[k],
                       made = 256 + k;
        uint64_t bytes;
        size_t at;
        if (left >= made || right >= made)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s': merge %u joins %u and %u, but only ids below %u exist before it", path, k,
                left, right, made);
        bytes = b->begin[left + 1] - b->begin[left] + b->begin[right + 1] - b->begin[right];
        if (bytes > TOKEN_BYTES_MOST)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s': merge %u makes a token of %" PRIu64
                              " bytes; words have at most %d",
                              path, k, bytes, TOKEN_BYTES_MOST);
        at = find_slot(b, b->pair[k]);
        if (b->key[at] == b->pair[k])
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s': merges %u and %u join the same ids %u and %u", path,
                              b->id[at] - 256, k, left, right);
        b->key[at] = b->pair[k];
        b->id[at] = made;
        *total += bytes;
        b->begin[made + 1] = *total;
    }
    return TUTTI_OK;
}

static void write_tokens(tutti_bpe *b)
{
    for (uint32_t k = 0; k < 256; k++)
        b->bytes[k] = (uint8_t)k;
    for (uint32_t k = 0; k < b->vocabulary - 256; k++) {
        const uint32_t left = (uint32_t)(b->pair[k] >> 32), right = (uint32_t)b->pair[k];
        const size_t n = (size_t)(b->begin[left + 1] - b->begin[left]);
        memcpy(b->bytes + b->begin[256 + k], b->bytes + b->begin[left], n);
        memcpy(b->bytes + b->begin[256 + k] + n, b->bytes + b->begin[right],
               (size_t)(b->begin[right + 1] - b->begin[right]));
    }
}

/* Makes a bpe of merges that are known to be valid. It owns them, also on failure. */
tutti_status tutti_bpe_make(tutti_bpe **out, uint64_t *pairs, uint32_t vocabulary, const char *path,
                            tutti_error *err)
{
    tutti_bpe *b = tutti_alloc(1, sizeof *b);
    uint64_t total = 0;
    tutti_status status;

    *out = NULL;
    if (b == NULL) {
        tutti_free(pairs);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the encoding '%s'", path);
    }
    b->vocabulary = vocabulary;
    b->pair = pairs;
    for (b->slots = 512; b->slots < 2 * (size_t)(vocabulary - 256); b->slots *= 2)
        ;
    b->key = tutti_alloc(b->slots, sizeof *b->key);
    b->id = tutti_alloc(b->slots, sizeof *b->id);
    b->begin = tutti_alloc((size_t)vocabulary + 1, sizeof *b->begin);
    if (b->key == NULL || b->id == NULL || b->begin == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %u ids of '%s'",
                            vocabulary, path);
    else
        status = enter_merges(b, path, &total, err);
    if (status == TUTTI_OK && (b->bytes = tutti_alloc((size_t)total, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory for the tokens of '%s' (%" PRIu64 " bytes)", path, total);
    if (status != TUTTI_OK) {
        tutti_bpe_close(b);
        return status;
    }
    write_tokens(b);
    *out = b;
    return TUTTI_OK;
}

void tutti_bpe_close(tutti_bpe *bpe)
{
    if (bpe == NULL)
        return;
    tutti_free(bpe->pair);
    tutti_free(bpe->key);
    tutti_free(bpe->id);
    tutti_free(bpe->bytes);
    tutti_free(bpe->begin);
    tutti_free(bpe);
}

uint32_t tutti_bpe_vocabulary(const tutti_bpe *bpe)
{
    return bpe->vocabulary;
}

uint64_t tutti_bpe_hash(const tutti_bpe *bpe)
{
    return tutti_hash(bpe->pair, (bpe->vocabulary - 256) * sizeof *bpe->pair);
}

const uint8_t *tutti_bpe_bytes(const tutti_bpe *bpe, uint32_t id, size_t *bytes)
{
    assert(id < bpe->vocabulary);
    *bytes = (size_t)(bpe->begin[id + 1] - bpe->begin[id]);
    return bpe->bytes + bpe->begin[id];
}

/* ---- the file ---- */

typedef struct reader { const char *path; const uint8_t *at, *end; uint64_t line; } reader;

static tutti_status bad_line(const reader *r, const char *wanted, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s': line %" PRIu64
                      " is not %s; it is damaged or no encoding made by `tutti data bpe`",
                      r->path, r->line, wanted);
}

static bool skip_text(reader *r, const char *text)
{
    const size_t n = strlen(text);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    r->line += n > 0 && text[n - 1] == '\n';
    return true;
}

/* Parses a decimal number below 2^32 without leading zeros. */
static bool take_number(reader *r, uint32_t *value)
{
    const uint8_t *begin = r->at;
    uint64_t v = 0;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && v <= UINT32_MAX)
        v = 10 * v + (uint64_t)(*r->at++ - '0');
    *value = (uint32_t)v;
    return r->at > begin && v <= UINT32_MAX && (*begin != '0' || r->at == begin + 1);
}

/* Reads n merges to pairs, and the hash of all before it. */
static tutti_status read_merges(reader *r, const uint8_t *file, uint64_t *pairs, uint32_t n,
                                tutti_error *err)
{
    char hash[40];
    for (uint32_t k = 0; k < n; k++) {
        uint32_t left, right;
        if (!take_number(r, &left) || !skip_text(r, " ") || !take_number(r, &right) ||
            !skip_text(r, "\n"))
            return bad_line(r, "'LEFT RIGHT'", err);
        pairs[k] = (uint64_t)left << 32 | right;
    }
    snprintf(hash, sizeof hash, "hash %016" PRIx64 "\n", tutti_hash(file, (size_t)(r->at - file)));
    return skip_text(r, hash) && r->at == r->end
               ? TUTTI_OK
               : bad_line(r, "the last line with the hash of the others", err);
}

tutti_status tutti_bpe_parse(tutti_bpe **out, const char *path, const uint8_t *file, size_t bytes,
                             tutti_error *err)
{
    reader r = { path, file, file + bytes, 1 };
    uint32_t vocabulary;
    uint64_t *pairs;
    tutti_status status;

    *out = NULL;
    if (!skip_text(&r, "tutti-bpe 1\n"))
        return bad_line(&r, "'tutti-bpe 1'", err);
    if (!skip_text(&r, "vocabulary ") || !take_number(&r, &vocabulary) || !skip_text(&r, "\n"))
        return bad_line(&r, "'vocabulary N'", err);
    if (vocabulary < 256 || vocabulary > TUTTI_BPE_VOCABULARY_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s': the vocabulary is %u; it must be from 256 to %d", path, vocabulary,
                          TUTTI_BPE_VOCABULARY_MOST);
    if ((size_t)(r.end - r.at) / 4 <
        vocabulary - 256) /* "0 0\n"; before memory is taken on its word */
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %zu bytes, too few for the %u merges it speaks of; it was cut "
                          "short: make or fetch it again",
                          path, bytes, vocabulary - 256);
    pairs = tutti_alloc((size_t)vocabulary - 256 + 1, sizeof *pairs);
    if (pairs == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %u merges of '%s'",
                          vocabulary - 256, path);
    status = read_merges(&r, file, pairs, vocabulary - 256, err);
    if (status != TUTTI_OK) {
        tutti_free(pairs);
        return status;
    }
    return tutti_bpe_make(out, pairs, vocabulary, path, err);
}

tutti_status tutti_bpe_read(tutti_bpe **out, tutti_runtime *rt, const char *path, tutti_error *err)
{
    tutti_contents c;
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(tutti_contents_open(&c, rt, path, err));
    status = tutti_bpe_parse(out, path, c.at, (size_t)c.bytes, err);
    tutti_contents_close(&c);
    return status;
}

tutti_status tutti_bpe_write(const tutti_bpe *bpe, tutti_runtime *rt, const char *path,
                             tutti_error *err)
{
    const size_t room = 64 + (size_t)(bpe->vocabulary - 256) * 16 + 32;
    char *text = tutti_alloc(room, 1);
    size_t n = 0;
    tutti_file *file;
    tutti_status status;

    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing '%s'", path);
    n += (size_t)snprintf(text, room, "tutti-bpe 1\nvocabulary %u\n", bpe->vocabulary);
    for (uint32_t k = 0; k < bpe->vocabulary - 256; k++)
        n += (size_t)snprintf(text + n, room - n, "%u %u\n", (uint32_t)(bpe->pair[k] >> 32),
                              (uint32_t)bpe->pair[k]);
    n += (size_t)snprintf(text + n, room - n, "hash %016" PRIx64 "\n", tutti_hash(text, n));
    status = tutti_file_begin(&file, rt, path, false, err);
    if (status == TUTTI_OK)
        status = tutti_file_end(file, tutti_file_write(file, text, n, err), err);
    tutti_free(text);
    return status;
}

/* ---- encoding, decoding ---- */

typedef struct cached {
    uint8_t bytes, count;
    uint8_t word[TEXT_WORD_MOST];
    uint32_t ids[TEXT_WORD_MOST];
} cached;

static size_t encode_word(const tutti_bpe *b, const uint8_t *word, size_t bytes, uint32_t *ids)
{
    uint32_t made[TEXT_WORD_MOST]; /* by joining ids[i] and ids[i + 1]; UINT32_MAX: nothing */
    size_t n = bytes;

    for (size_t i = 0; i < n; i++)
        ids[i] = word[i];
    for (size_t i = 0; i + 1 < n; i++) {
        const size_t at = find_slot(b, (uint64_t)ids[i] << 32 | ids[i + 1]);
        made[i] = b->key[at] == UINT64_MAX ? UINT32_MAX : b->id[at];
    }
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (made[i] < best) {
                best = made[i];
                at = i;
            }
        if (best == UINT32_MAX)
            return n;
        ids[at] = best;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
        memmove(made + at, made + at + 1, (n - 1 - at) * sizeof *made);
        for (size_t i = at > 0 ? at - 1 : 0; i <= at && i + 1 < n; i++) {
            const size_t slot = find_slot(b, (uint64_t)ids[i] << 32 | ids[i + 1]);
            made[i] = b->key[slot] == UINT64_MAX ? UINT32_MAX : b->id[slot];
        }
    }
}

tutti_status tutti_bpe_encode(const tutti_bpe *bpe, const uint8_t *text, uint64_t bytes,
                              uint32_t *ids, uint64_t *count, tutti_error *err)
{
    cached *cache = tutti_alloc(CACHE_SLOTS, sizeof *cache);
    uint64_t n = 0;

    *count = 0;
    if (cache == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "encoding a text of %" PRIu64 " bytes",
                          bytes);
    for (uint64_t at = 0; at < bytes;) {
        const size_t word = tutti_text_word(text + at, bytes - at);
        cached *c = &cache[tutti_hash(text + at, word) & (CACHE_SLOTS - 1)];
        if (c->bytes != word || memcmp(c->word, text + at, word) != 0) {
            c->bytes = (uint8_t)word;
            memcpy(c->word, text + at, word);
            c->count = (uint8_t)encode_word(bpe, text + at, word, c->ids);
        }
        memcpy(ids + n, c->ids, c->count * sizeof *ids);
        n += c->count;
        at += word;
    }
    tutti_free(cache);
    *count = n;
    return TUTTI_OK;
}

uint64_t tutti_bpe_decode(const tutti_bpe *bpe, const uint32_t *ids, uint64_t count, uint8_t *text,
                          uint64_t capacity)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < count; i++) {
        size_t n;
        const uint8_t *of = tutti_bpe_bytes(bpe, ids[i], &n);
        if (bytes < capacity)
            memcpy(text + bytes, of, capacity - bytes < n ? (size_t)(capacity - bytes) : n);
        bytes += n;
    }
    return bytes;
}
