/* seal.c: a text of JSON that has the hash of itself as one of its members. The hash is that of the
   text in which its 16 digits are zeros. So the header of a file and an index that other programs
   read, and ignore the member of, show a changed byte. */
#include "state_internal.h"
#include <string.h>

#define DIGITS 16
static const char key[] = "\"" TUTTI_STATE_SEAL "\":", zeros[] = TUTTI_STATE_UNSEALED;

/* Returns the first digit of the hash; NULL: the text has none. */
static char *find_digits(char *text, size_t bytes)
{
    const char *const end = text + bytes;
    char *at = text;
    uint64_t hash;

    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1)) != NULL) {
        char digits[DIGITS + 1] = "";
        at += sizeof key - 1;
        while (at < end && *at == ' ')
            at++;
        if (end - at < DIGITS + 2 || at[0] != '"' || at[DIGITS + 1] != '"')
            continue;
        memcpy(digits, at + 1, DIGITS);
        if (tutti_state_unhex(digits, &hash))
            return at + 1;
    }
    return NULL;
}

void tutti_state_seal(char *text, size_t bytes)
{
    char *digits = find_digits(text, bytes), hash[DIGITS + 1];

    if (digits == NULL || memcmp(digits, zeros, DIGITS) != 0)
        return;
    tutti_state_hex(hash, tutti_hash(text, bytes));
    memcpy(digits, hash, DIGITS);
}

tutti_seal tutti_state_seal_of(char *text, size_t bytes)
{
    char *digits = find_digits(text, bytes), was[DIGITS], hash[DIGITS + 1];

    if (digits == NULL)
        return TUTTI_SEAL_NONE;
    memcpy(was, digits, DIGITS);
    memcpy(digits, zeros, DIGITS);
    tutti_state_hex(hash, tutti_hash(text, bytes));
    memcpy(digits, was, DIGITS);
    return memcmp(was, hash, DIGITS) == 0 ? TUTTI_SEAL_WHOLE : TUTTI_SEAL_BROKEN;
}
