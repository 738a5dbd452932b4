/* text.c: reads and writes JSON, names and hashes for the files of this module. */
#include "state_internal.h"
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3_state_t: its memory is ours */
#include <xxhash.h>

/* Deepest nesting of brackets outside strings; text that is no JSON gives some number, and the
   parser reports the fault. */
static size_t nesting(const char *text, size_t bytes, size_t *at)
{
    size_t depth = 0, most = 0;
    bool quoted = false;

    for (size_t k = 0; k < bytes; k++) {
        const char c = text[k];
        if (quoted) {
            if (c == '\\')
                k++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > most) {
                most = depth;
                *at = k;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return most;
}

/* jansson's allocator is one for the whole process, hence not ours to set; what it
   can take is bounded by the text. */
tutti_status tutti_state_json(json_t **out, const char *text, size_t bytes, const char *what,
                              tutti_error *err)
{
    json_error_t why;
    char shown[TUTTI_STATE_SHOWN];
    size_t at = 0;

    *out = NULL;
    if (nesting(text, bytes, &at) > TUTTI_STATE_DEPTH_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "%s is nested deeper than %d levels (byte %zu); nothing we write is",
                          what, TUTTI_STATE_DEPTH_MOST, at);
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (*out == NULL && json_error_code(&why) == json_error_out_of_memory)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to parse the %s", what);
    if (*out == NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s is not valid JSON: %s (line %d, byte %d)",
                          what, tutti_state_shown(shown, why.text), why.line, why.position);
    return TUTTI_OK;
}

/* Returns how many bytes follow the first byte of a character; 4: it is none. */
static size_t following(unsigned char first)
{
    if (first < 0x80)
        return 0;
    return first < 0xC2 ? 4 : first <= 0xDF ? 1 : first <= 0xEF ? 2 : first <= 0xF4 ? 3 : 4;
}

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool tutti_state_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s != 0) {
        const size_t more = following(s[0]);
        if (more == 4)
            return false;
        for (size_t k = 1; k <= more; k++)
            if ((s[k] & 0xC0) != 0x80)
                return false;
        if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
            (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
            return false;
        s += 1 + more;
    }
    return true;
}

const char *tutti_state_shown(char out[TUTTI_STATE_SHOWN], const char *name)
{
    size_t n = strlen(name), cut = n;

    if (cut > 60) {
        cut = 60;
        while (cut > 0 && ((unsigned char)name[cut] & 0xC0) == 0x80) /* not inside a character */
            cut--;
    }
    for (size_t k = 0; k < cut; k++)
        out[k] = (unsigned char)name[k] < 0x20 || name[k] == 0x7f ? '?' : name[k];
    strcpy(out + cut, cut < n ? "..." : "");
    return out;
}

bool tutti_state_dtype(const char *name, tutti_dtype *dtype)
{
    static const tutti_dtype known[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_I32,
                                         TUTTI_I64, TUTTI_U8,   TUTTI_F64, TUTTI_I8 };

    for (size_t k = 0; k < TUTTI_LENGTH(known); k++)
        if (strcmp(name, tutti_dtype_name(known[k])) == 0) {
            *dtype = known[k];
            return true;
        }
    return false;
}

bool tutti_state_count(const json_t *value, uint64_t *count)
{
    *count = 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *count = (uint64_t)json_integer_value(value);
    return true;
}

void tutti_state_hex(char out[17], uint64_t hash)
{
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

bool tutti_state_unhex(const char *text, uint64_t *hash)
{
    *hash = 0;
    if (strlen(text) != 16)
        return false;
    for (size_t k = 0; k < 16; k++) {
        const char c = text[k];
        if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
            return false;
        *hash = *hash << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

char *tutti_state_join(const char *directory, const char *name)
{
    const size_t bytes = strlen(directory) + strlen(name) + 2;
    char *path = tutti_alloc(bytes, 1);

    if (path != NULL)
        snprintf(path, bytes, "%s/%s", directory, name);
    return path;
}

struct tutti_state_hash { XXH3_state_t state; };

tutti_state_hash *tutti_state_hash_open(void)
{
    tutti_state_hash *h = tutti_alloc(1, sizeof *h);

    if (h != NULL) {
        XXH3_INITSTATE(&h->state);
        tutti_state_hash_begin(h);
    }
    return h;
}

void tutti_state_hash_close(tutti_state_hash *h)
{
    tutti_free(h);
}

void tutti_state_hash_begin(tutti_state_hash *h)
{
    XXH3_64bits_reset(&h->state);
}

void tutti_state_hash_add(tutti_state_hash *h, const void *data, size_t bytes)
{
    XXH3_64bits_update(&h->state, data, bytes);
}

uint64_t tutti_state_hash_end(const tutti_state_hash *h)
{
    return XXH3_64bits_digest(&h->state);
}
