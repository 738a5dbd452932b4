/* Any bytes as a picture: the first selects the number of channels (bit 0: one, else three) and
   the size to which it is scaled (bits 1 to 3). Bit 7 puts the beginning of a JPEG before the
   rest, bit 6 that of a PNG, so that the fuzzer gets to the decoders at once. What is accepted
   has written all of its pixels and nothing behind them, and is the same a second time; what is
   not has a sentence. The decoders are packaged libraries: what is tested here is how they are
   called. */
#include <stdlib.h>
#include <string.h>

#include "data/pictures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t png[8] = { 0x89, 'P', 'N', 'G', 13, 10, 26, 10 }, jpeg[4] = { 0xff, 0xd8, 0xff, 0xe0 };
    const int channels = size > 0 && (data[0] & 1) ? 1 : 3, side = size > 0 ? 1 + (data[0] >> 1 & 7) * 5 : 1;
    const size_t n = (size_t)(channels * side * side);
    const size_t head = size > 0 && (data[0] & 128) ? sizeof jpeg : size > 0 && (data[0] & 64) ? sizeof png : 0;
    uint8_t *file, *pixels[2];
    tutti_error err = { 0 };

    if (size == 0)
        return 0;
    file = malloc(head + size); /* of its own, so that the sanitizer sees its end */
    require(file != NULL);
    memcpy(file, head == sizeof jpeg ? jpeg : png, head);
    memcpy(file + head, data + 1, size - 1);
    for (int k = 0; k < 2; k++) {
        pixels[k] = malloc(n);
        require(pixels[k] != NULL);
        memset(pixels[k], k == 0 ? 0 : 255, n);
    }
    if (tutti_picture_decode("f", file, head + size - 1, channels, side, pixels[0], &err) == TUTTI_OK) {
        require(tutti_picture_decode("f", file, head + size - 1, channels, side, pixels[1], &err) == TUTTI_OK);
        require(memcmp(pixels[0], pixels[1], n) == 0);
    } else
        require(err.text[0] != '\0');
    free(pixels[0]);
    free(pixels[1]);
    free(file);
    return 0;
}
