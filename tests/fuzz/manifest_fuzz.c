/* Any text as a checkpoint's manifest. The first byte selects how: bit 0 puts the seal of
   manifest.c behind it, so that the fuzzer gets past the hash. What is taken is printed as a
   manifest that reads back the same. */
#include "../state/seal.h"
#include "../../src/state/state_internal.h"
#include "state/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void read_back(const tutti_checkpoint *c)
{
    tutti_checkpoint *other;
    char *text, *again;
    size_t bytes, again_bytes;

    require(tutti_manifest_print(c, &text, &bytes, NULL) == TUTTI_OK);
    require(tutti_checkpoint_parse(&other, "f", text, bytes, NULL) == TUTTI_OK);
    require(other->step == c->step && other->world == c->world && other->n_files == c->n_files &&
            other->n_states == c->n_states && other->n_ranges == c->n_ranges && strcmp(other->facts, c->facts) == 0);
    require(tutti_manifest_print(other, &again, &again_bytes, NULL) == TUTTI_OK);
    require(again_bytes == bytes && memcmp(text, again, bytes) == 0);
    tutti_checkpoint_close(other);
    tutti_free(text);
    tutti_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_checkpoint *c;
    tutti_error err = { 0 };
    char *text;
    size_t bytes;

    if (size == 0)
        return 0;
    if (data[0] & 1) {
        text = seal((const char *)data + 1, size - 1, &bytes);
    } else {
        bytes = size - 1;
        text = malloc(bytes + (bytes == 0));
        require(text != NULL);
        memcpy(text, data + 1, bytes);
    }
    if (tutti_checkpoint_parse(&c, "f", text, bytes, &err) == TUTTI_OK)
        read_back(c);
    else
        require(c == NULL && err.text[0] != '\0');
    tutti_checkpoint_close(c);
    free(text);
    return 0;
}
