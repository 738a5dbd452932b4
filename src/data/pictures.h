/* pictures.h: PNG and JPEG files as pixels of one size. The decoders are packaged libraries; a
   build may be without either. */
#ifndef TUTTI_PICTURES_H
#define TUTTI_PICTURES_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A file may have TUTTI_PICTURE_FILE_MOST bytes, a side TUTTI_PICTURE_SIDE_MOST pixels, a picture
   TUTTI_PICTURE_PIXELS_MOST of them. */
enum {
    TUTTI_PICTURE_FILE_MOST = 1 << 26,
    TUTTI_PICTURE_SIDE_MOST = 1 << 14,
    TUTTI_PICTURE_PIXELS_MOST = 1 << 25
};

/* Is it a picture by its extension: .png, .jpg or .jpeg, in any case? */
bool tutti_picture_named(const char *name);

/* pixels: channels x size x size bytes, plane after plane: 3 (red, green, blue) or 1 (grey).

   The largest centred square is resized to size x size by a triangle filter as wide as the two
   sizes' ratio, at least 1, and rounded. So a picture of that size does not change. Grey is 0.299
   red + 0.587 green + 0.114 blue. Transparent pixels are blended over black. 16 bits per channel
   become 8.

   `path` is for the messages. TUTTI_ERR_CORRUPT: not a PNG or JPEG, truncated, damaged, too
   large. TUTTI_ERR_USAGE: this build has no decoder for it. */
tutti_status tutti_picture_decode(const char *path, const uint8_t *file, size_t bytes, int channels,
                                  int size, uint8_t *pixels, tutti_error *err);

/* tutti_picture_decode of a file. */
tutti_status tutti_picture_read(tutti_runtime *rt, const char *path, int channels, int size,
                                uint8_t *pixels, tutti_error *err);

/* "libpng 1.6.39, libjpeg-turbo 2.1.5", or what is missing. */
const char *tutti_picture_built_with(void);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
