/* tokens.c: maps files (tutti_contents), checks UTF-8, and reads and writes files of token ids
   (text.h).

   A token file, little-endian:
      0  8  "TUTTITOK"
      8  4  version, 1
     12  4  bytes of an id: 2 or 4
     16  8  number of ids
     24  8  vocabulary: every id is below, at most 2^31
     32  8  made by: tutti_bpe_hash of the encoding, 0 for bytes
     40  8  XXH3-64 of the ids
     48  8  0
     56  8  XXH3-64 of bytes 0 to 55
     64     the ids
   So a damaged header or another kind of file is detected when the file is opened, and damaged ids
   when it is verified. Ids are used where they are mapped, so tutti_tokens_open fails on a machine
   that is not little-endian (the library is built for none). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "text_internal.h"
#include "runtime/files.h"

enum { HEADER = 64, VERSION = 1 };
static const char magic[8] = { 'T', 'U', 'T', 'T', 'I', 'T', 'O', 'K' };

/* ---- contents ---- */

tutti_status tutti_contents_open(tutti_contents *c, tutti_runtime *rt, const char *path,
                                 tutti_error *err)
{
    const void *at;
    tutti_status status;

    *c = (tutti_contents){ 0 };
    TUTTI_TRY(tutti_file_open(&c->file, rt, path, TUTTI_FILE_READ, err));
    status = tutti_file_map(c->file, &at, err);
    if (status == TUTTI_OK) {
        static const uint8_t mark[3] = { 0xEF, 0xBB, 0xBF };
        c->at = at;
        c->bytes = tutti_file_bytes(c->file);
        if (c->bytes >= sizeof mark && memcmp(c->at, mark, sizeof mark) == 0) {
            c->at += sizeof mark;
            c->bytes -= sizeof mark;
        }
    } else
        tutti_contents_close(c);
    return status;
}

void tutti_contents_close(tutti_contents *c)
{
    tutti_file_close(c->file, NULL);
    *c = (tutti_contents){ 0 };
}

/* ---- UTF-8 ---- */

/* Returns how many bytes follow the first byte of a character; 4: it is none. */
static unsigned following(uint8_t first)
{
    if (first < 0x80)
        return 0;
    return first < 0xC2 ? 4 : first <= 0xDF ? 1 : first <= 0xEF ? 2 : first <= 0xF4 ? 3 : 4;
}

/* Returns the number of bytes of the character at s, of n bytes that are left; 0: it is not
   valid. */
static unsigned character(const uint8_t *s, uint64_t n)
{
    const unsigned more = following(s[0]);
    /* not longer than need be, no surrogates, not above 10FFFF */
    const uint8_t low = s[0] == 0xE0   ? 0xA0
                        : s[0] == 0xF0 ? 0x90
                                       : 0x80,
                  high = s[0] == 0xED   ? 0x9F
                         : s[0] == 0xF4 ? 0x8F
                                        : 0xBF;

    if (more == 4 || n < more + 1 || (more > 0 && (s[1] < low || s[1] > high)))
        return 0;
    for (unsigned k = 2; k <= more; k++)
        if ((s[k] & 0xC0) != 0x80)
            return 0;
    return more + 1;
}

uint64_t tutti_utf8_valid(const uint8_t *text, uint64_t bytes)
{
    uint64_t at = 0;

    while (at < bytes) {
        unsigned n;
        uint64_t eight;
        /* ASCII, mostly */
        if (bytes - at >= 8 &&
            (memcpy(&eight, text + at, 8), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            at += 8;
            continue;
        }
        n = character(text + at, bytes - at);
        if (n == 0)
            return at;
        at += n;
    }
    return bytes;
}

/* ---- token files ---- */

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t v = 0;

    for (int k = bytes - 1; k >= 0; k--)
        v = v << 8 | at[k];
    return v;
}

static void write_token(uint8_t *at, int bytes, uint64_t v)
{
    for (int k = 0; k < bytes; k++, v >>= 8)
        at[k] = (uint8_t)v;
}

/* Do the width of ids, their number and the file's length agree? bytes: of the ids. */
static tutti_status check_ids(const tutti_tokens *t, const char *path, uint64_t vocabulary,
                              uint64_t bytes, tutti_error *err)
{
    size_t want;

    if (vocabulary < 1 || vocabulary > UINT64_C(1) << 31 ||
        (t->id_bytes == 2 && vocabulary > 65536))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s': a vocabulary of %" PRIu64 " is not possible with ids of %d bytes",
                          path, vocabulary, t->id_bytes);
    if (!tutti_size_mul((size_t)t->count, (size_t)t->id_bytes, &want) || want != bytes)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %" PRIu64 " bytes of ids, but its header speaks of %" PRIu64
                          " ids of %d bytes; it was cut short or added to: make or fetch it again",
                          path, bytes, t->count, t->id_bytes);
    return TUTTI_OK;
}

tutti_status tutti_tokens_parse(tutti_tokens *t, const char *path, const uint8_t *file,
                                uint64_t bytes, tutti_error *err)
{
    const uint16_t one = 1;
    uint64_t vocabulary, version;

    *t = (tutti_tokens){ 0 };
    if (*(const uint8_t *)&one != 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' cannot be used here: this machine is not little-endian", path);
    if (bytes < HEADER || memcmp(file, magic, sizeof magic) != 0)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' is no token file (%" PRIu64 " bytes%s); `tutti data tokens` makes one of a text",
            path, bytes, bytes < HEADER ? "" : ", and it does not begin with TUTTITOK");
    if (get(file + 56, 8) != tutti_hash(file, 56))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s': the hash of its header is wrong; it is damaged: make or fetch it again", path);
    version = get(file + 8, 4);
    t->id_bytes = (int)get(file + 12, 4);
    t->count = get(file + 16, 8);
    vocabulary = get(file + 24, 8);
    t->made_by = get(file + 32, 8);
    t->hash = get(file + 40, 8);
    if (version != VERSION)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has version %" PRIu64 " of the format; this Tutti reads version %d",
                          path, version, VERSION);
    if ((t->id_bytes != 2 && t->id_bytes != 4) || get(file + 48, 8) != 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s': ids of %d bytes; there are only those of 2 and 4", path,
                          t->id_bytes);
    TUTTI_TRY(check_ids(t, path, vocabulary, bytes - HEADER, err));
    t->vocabulary = (uint32_t)vocabulary;
    t->ids = file + HEADER;
    return TUTTI_OK;
}

tutti_status tutti_tokens_open(tutti_tokens *t, tutti_runtime *rt, const char *path,
                               tutti_error *err)
{
    tutti_contents c;
    tutti_status status;

    *t = (tutti_tokens){ 0 };
    TUTTI_TRY(tutti_contents_open(&c, rt, path, err));
    status = tutti_tokens_parse(t, path, c.at, c.bytes, err);
    if (status == TUTTI_OK)
        t->contents = c;
    else
        tutti_contents_close(&c);
    return status;
}

tutti_status tutti_tokens_verify(const tutti_tokens *t, const char *path, tutti_error *err)
{
    const uint16_t *two = t->ids;
    const uint32_t *four = t->ids;
    uint32_t largest = 0;
    uint64_t at = 0;

    if (tutti_hash(t->ids, (size_t)t->count * (size_t)t->id_bytes) != t->hash)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s': the hash of its ids is wrong; it is damaged: make or fetch it again", path);
    for (uint64_t i = 0; t->id_bytes == 2 && i < t->count; i++)
        largest = two[i] > largest ? two[i] : largest;
    for (uint64_t i = 0; t->id_bytes == 4 && i < t->count; i++)
        largest = four[i] > largest ? four[i] : largest;
    if (t->count == 0 || largest < t->vocabulary)
        return TUTTI_OK;
    while ((t->id_bytes == 2 ? two[at] : four[at]) < t->vocabulary)
        at++;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s': id %u at place %" PRIu64
                      " is beyond its vocabulary of %u; make it again",
                      path, t->id_bytes == 2 ? two[at] : four[at], at, t->vocabulary);
}

void tutti_tokens_close(tutti_tokens *t)
{
    tutti_contents_close(&t->contents);
    *t = (tutti_tokens){ 0 };
}

tutti_status tutti_tokens_write(tutti_runtime *rt, const char *path, const tutti_token_ids *of,
                                uint64_t made_by, tutti_error *err)
{
    const uint32_t *ids = of->ids, vocabulary = of->vocabulary;
    const uint64_t count = of->count;
    const int id_bytes = vocabulary <= 65536 ? 2 : 4;
    uint8_t head[HEADER] = { 0 };
    tutti_file *file;
    size_t bytes;
    uint8_t *to;
    tutti_status status;

    if (!tutti_size_mul((size_t)count, (size_t)id_bytes, &bytes) ||
        (to = tutti_alloc(bytes + 1, 1)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing '%s' with %" PRIu64 " ids", path,
                          count);
    for (uint64_t i = 0; i < count; i++) {
        if (ids[i] >= vocabulary) {
            tutti_free(to);
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%s' is not written: id %u at place %" PRIu64
                              " is beyond the vocabulary of %u",
                              path, ids[i], i, vocabulary);
        }
        write_token(to + i * (uint64_t)id_bytes, id_bytes, ids[i]);
    }
    memcpy(head, magic, sizeof magic);
    write_token(head + 8, 4, VERSION);
    write_token(head + 12, 4, (uint64_t)id_bytes);
    write_token(head + 16, 8, count);
    write_token(head + 24, 8, vocabulary);
    write_token(head + 32, 8, made_by);
    write_token(head + 40, 8, tutti_hash(to, bytes));
    write_token(head + 56, 8, tutti_hash(head, 56));
    status = tutti_file_begin(&file, rt, path, false, err);
    if (status == TUTTI_OK)
        status = tutti_file_write(file, head, sizeof head, err);
    if (status == TUTTI_OK)
        status = tutti_file_write(file, to, bytes, err);
    tutti_free(to);
    return tutti_file_end(file, status, err);
}
