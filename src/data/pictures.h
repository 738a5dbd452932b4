/* pictures.h: converts PNG and JPEG files to pixels of one size. The decoders are libpng and
   libjpeg; a build may lack either. Included by pictures.c, which makes a data set of a directory,
   by sets.c, by `tutti predict` and `tutti version`, and by tests. Implemented in picture.c. */
#ifndef TUTTI_PICTURES_H
#define TUTTI_PICTURES_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum {
    TUTTI_PICTURE_FILE_MOST = 1 << 26,  /* most bytes of a file */
    TUTTI_PICTURE_SIDE_MOST = 1 << 14,  /* most pixels of a side */
    TUTTI_PICTURE_PIXELS_MOST = 1 << 25 /* most pixels of a picture */
};

/* Has the name the extension of a picture: .png, .jpg or .jpeg, in upper or lower case? */
bool tutti_picture_named(const char *name);

/* Decodes a file in memory. pixels: [channels x size x size], planes of red, green and blue
   (channels 3) or of grey (1).

   The largest centred square is resized to size x size by a triangle filter whose half-width is the
   ratio of the two sizes, at least 1, and rounded. So a picture of that size does not change. Grey
   is 0.299 red + 0.587 green + 0.114 blue. Transparent pixels are blended over black. 16 bits per
   channel are reduced to 8.

   path: for messages. TUTTI_ERR_CORRUPT: not a PNG or JPEG file, truncated, damaged, too large.
   TUTTI_ERR_USAGE: this build has no decoder for it. */
tutti_status tutti_picture_decode(const char *path, const uint8_t *file, size_t bytes, int channels,
                                  int size, uint8_t *pixels, tutti_error *err);

/* Reads a file and decodes it (tutti_picture_decode). */
tutti_status tutti_picture_read(tutti_runtime *rt, const char *path, int channels, int size,
                                uint8_t *pixels, tutti_error *err);

/* Returns the versions of the decoders, "libpng 1.6.39, libjpeg-turbo 2.1.5", or which of them this
   build lacks. */
const char *tutti_picture_built_with(void);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
