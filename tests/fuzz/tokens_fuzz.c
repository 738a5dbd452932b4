/* Any bytes as a token file (first byte 0, 4, ...), an encoding (1) or a click log (2). Bit 2 of
   the first byte sets the hashes right first, so that the fuzzer gets behind them. What is taken is
   sound: every id is below the vocabulary, an encoding gives the input back exactly, and a click
   that is written is read back the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/clicks.h"
#include "data/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void tokens(uint8_t *file, size_t size, bool mend)
{
    tutti_error err = { 0 };
    tutti_tokens t;
    uint64_t hash;
    tutti_status status;

    if (mend && size >= 64) {
        hash = tutti_hash(file + 64, size - 64);
        memcpy(file + 40, &hash, 8);
        hash = tutti_hash(file, 56);
        memcpy(file + 56, &hash, 8);
    }
    status = tutti_tokens_parse(&t, "f", file, size, &err);
    if (status == TUTTI_OK)
        status = tutti_tokens_verify(&t, "f", &err);
    require((status == TUTTI_OK) == (err.text[0] == '\0'));
    for (uint64_t i = 0; status == TUTTI_OK && i < t.count; i++)
        require((t.id_bytes == 2 ? ((const uint16_t *)t.ids)[i] : ((const uint32_t *)t.ids)[i]) < t.vocabulary);
}

static void encoding(uint8_t *file, size_t size, bool mend)
{
    tutti_error err = { 0 };
    tutti_bpe *b;
    char *text = malloc(size + 32);

    require(text != NULL);
    memcpy(text, file, size);
    if (mend)
        size += (size_t)snprintf(text + size, 32, "hash %016llx\n", (unsigned long long)tutti_hash(file, size));
    if (tutti_bpe_parse(&b, "f", (uint8_t *)text, size, &err) == TUTTI_OK) {
        uint32_t *ids = malloc(size * sizeof *ids + 1);
        uint8_t *back = malloc(size + 1);
        uint64_t count = 0;
        require(ids != NULL && back != NULL &&
                tutti_bpe_encode(b, (uint8_t *)text, size, ids, &count, &err) == TUTTI_OK && count <= size);
        require(tutti_bpe_decode(b, ids, count, back, size) == size && memcmp(back, text, size) == 0);
        free(ids);
        free(back);
        tutti_bpe_close(b);
    } else
        require(b == NULL && err.text[0] != '\0');
    free(text);
}

static void clicks(const uint8_t *file, size_t size)
{
    size_t used = 0;

    for (size_t at = 0; at < size; at += used) {
        char line[TUTTI_CLICKS_LINE_MOST];
        tutti_error err = { 0 };
        tutti_click click, again;
        size_t n;
        if (tutti_click_parse(&click, &(tutti_click_place){ "f", 1 }, file + at, size - at, &used,
                              &err) != TUTTI_OK) {
            require(err.text[0] != '\0');
            return;
        }
        require(used > 0 && used <= size - at);
        n = tutti_click_print(&click, line);
        require(n <= sizeof line &&
                tutti_click_parse(&again, &(tutti_click_place){ "f", 1 }, (uint8_t *)line, n, &used,
                                  &err) == TUTTI_OK &&
                memcmp(&click, &again, sizeof click) == 0);
        require(tutti_click_row(&click, 5, 7) < 7);
        require(tutti_click_parse(&again, &(tutti_click_place){ "f", 1 }, file + at, size - at,
                                  &used, &err) == TUTTI_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *file;

    if (size == 0)
        return 0;
    file = malloc(size); /* aligned, and of its own, so that the sanitizer sees its end */
    require(file != NULL);
    memcpy(file, data + 1, size - 1);
    require(tutti_utf8_valid(file, size - 1) <= size - 1);
    if (data[0] % 4 == 1)
        encoding(file, size - 1, data[0] & 4);
    else if (data[0] % 4 == 2)
        clicks(file, size - 1);
    else
        tokens(file, size - 1, data[0] & 4);
    free(file);
    return 0;
}
