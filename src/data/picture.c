/* picture.c: decodes PNG and JPEG files to pixels of one size (pictures.h). A file is not trusted:
   the decoders read no more bytes than it has, and sizes are checked before memory is allocated.
   Both decoders are called through interfaces that return errors, so longjmp is not needed. */
#include "data_internal.h"
#include "data/pictures.h"
#include "runtime/files.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#ifdef TUTTI_PNG
#include <png.h>
#endif
#ifdef TUTTI_JPEG
#include <turbojpeg.h>
#endif

const char *tutti_picture_built_with(void)
{
#if defined TUTTI_PNG && defined TUTTI_JPEG
    return "libpng " TUTTI_PNG ", libjpeg-turbo " TUTTI_JPEG;
#elif defined TUTTI_PNG
    return "libpng " TUTTI_PNG ", without libjpeg-turbo";
#elif defined TUTTI_JPEG
    return "libjpeg-turbo " TUTTI_JPEG ", without libpng";
#else
    return "without libpng and libjpeg-turbo";
#endif
}

bool tutti_picture_named(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                           strcasecmp(dot, ".jpeg") == 0);
}

/* ---- decoding, to height x width x 3 bytes, tutti_free it ---- */

typedef struct picture { int width, height; uint8_t *rgb; } picture;

#if defined TUTTI_PNG || defined TUTTI_JPEG
static tutti_status take_room(picture *p, const char *path, unsigned long width,
                              unsigned long height, tutti_error *err)
{
    if (width == 0 || height == 0 || width > TUTTI_PICTURE_SIDE_MOST ||
        height > TUTTI_PICTURE_SIDE_MOST || width * height > TUTTI_PICTURE_PIXELS_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' is a picture of %lu x %lu; sides are from 1 to %d pixels, and at "
                          "most %d pixels in all: make it smaller",
                          path, width, height, TUTTI_PICTURE_SIDE_MOST, TUTTI_PICTURE_PIXELS_MOST);
    p->width = (int)width;
    p->height = (int)height;
    p->rgb = tutti_alloc((size_t)width * height, 3);
    return p->rgb != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory for the %lu x %lu pixels of '%s'", width, height, path);
}
#endif

#if !defined TUTTI_PNG || !defined TUTTI_JPEG
static tutti_status left_out(const char *path, const char *format, const char *library,
                             const char *package, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "'%s' is a %s file, and this build of Tutti is without %s; install it "
                      "(Debian: %s) and build again, or convert the file",
                      path, format, library, package);
}
#endif

#ifdef TUTTI_PNG
static tutti_status decode_png(picture *p, const char *path, const uint8_t *file, size_t bytes,
                               tutti_error *err)
{
    png_image image = { .version = PNG_IMAGE_VERSION };
    const png_color black = { 0, 0, 0 };
    tutti_status status = TUTTI_OK;

    if (!png_image_begin_read_from_memory(&image, file, bytes))
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is no whole PNG file (%s); make or fetch it again", path,
                            image.message);
    if (status == TUTTI_OK)
        status = take_room(p, path, image.width, image.height, err);
    image.format = PNG_FORMAT_RGB;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    if (status == TUTTI_OK && !png_image_finish_read(&image, &black, p->rgb, 0, NULL))
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is no whole PNG file (%s); make or fetch it again", path,
                            image.message);
    png_image_free(&image);
    return status;
}
#else
static tutti_status decode_png(picture *p, const char *path, const uint8_t *file, size_t bytes,
                               tutti_error *err)
{
    (void)p, (void)file, (void)bytes;
    return left_out(path, "PNG", "libpng", "libpng-dev", err);
}
#endif

#ifdef TUTTI_JPEG
/* A valid file may be of a kind that the decoder does not support (arithmetic coding, 12 bits). */
static tutti_status not_decoded(tjhandle decoder, const char *path, tutti_error *err)
{
    const char *why = tjGetErrorStr2(decoder);

    return strstr(why, "nsupported") != NULL || strstr(why, "not supported") != NULL
               ? tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is a JPEG file of a kind that is not read (%s); save it again as "
                            "an ordinary JPEG or a PNG file",
                            path, why)
               : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is no whole JPEG file (%s); make or fetch it again", path, why);
}

/* Warnings of the library count as damage: with one, a part of the picture is guessed. */
static tutti_status decode_jpeg(picture *p, const char *path, const uint8_t *file, size_t bytes,
                                tutti_error *err)
{
    tjhandle decoder = tjInitDecompress();
    int width = 0, height = 0, sampling, space;
    tutti_status status = TUTTI_OK;

    if (decoder == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the JPEG decoder for '%s'", path);
    if (tjDecompressHeader3(decoder, file, (unsigned long)bytes, &width, &height, &sampling,
                            &space) != 0)
        status = not_decoded(decoder, path, err);
    else if (width < 1 || height < 1) /* tables alone */
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is no whole JPEG file (it ends before its picture); make or "
                            "fetch it again",
                            path);
    else if (space == TJCS_CMYK || space == TJCS_YCCK)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' is a JPEG file in the four colours of print (CMYK); convert it "
                            "to RGB",
                            path);
    if (status == TUTTI_OK)
        status = take_room(p, path, (unsigned long)width, (unsigned long)height, err);
    if (status == TUTTI_OK &&
        tjDecompress2(decoder, file, (unsigned long)bytes, p->rgb, width, 0, height, TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0)
        status = not_decoded(decoder, path, err);
    tjDestroy(decoder);
    return status;
}
#else
static tutti_status decode_jpeg(picture *p, const char *path, const uint8_t *file, size_t bytes,
                                tutti_error *err)
{
    (void)p, (void)file, (void)bytes;
    return left_out(path, "JPEG", "libjpeg-turbo", "libturbojpeg0-dev", err);
}
#endif

static tutti_status decode_file(picture *p, const char *path, const uint8_t *file, size_t bytes,
                                tutti_error *err)
{
    static const uint8_t png[4] = { 0x89, 'P', 'N', 'G' }, jpeg[3] = { 0xff, 0xd8, 0xff };

    if (bytes >= sizeof png && memcmp(file, png, sizeof png) == 0)
        return decode_png(p, path, file, bytes, err);
    if (bytes >= sizeof jpeg && memcmp(file, jpeg, sizeof jpeg) == 0)
        return decode_jpeg(p, path, file, bytes, err);
    if (bytes == 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' is empty; make or fetch it again", path);
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s' begins neither as a PNG nor as a JPEG file; convert it", path);
}

/* ---- resizing: each new pixel is a weighted mean of old ones ---- */

/* New pixel i is the sum over k < count[i] of weight[i * most + k] times old pixel first[i] + k.
   The weights of a new pixel have the sum 1. */
typedef struct taps { int most; int *first, *count; double *weight; } taps;

static tutti_status taps_open(taps *t, int from, int to, tutti_error *err)
{
    const double ratio = (double)from / to, reach = ratio > 1 ? ratio : 1;

    t->most = 2 * (int)ceil(reach) + 2;
    t->first = tutti_alloc((size_t)to, 2 * sizeof *t->first);
    t->weight = tutti_alloc((size_t)to * (size_t)t->most, sizeof *t->weight);
    if (t->first == NULL || t->weight == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "scaling a picture of %d to %d pixels",
                          from, to);
    t->count = t->first + to;
    for (int i = 0; i < to; i++) {
        const double centre = (i + 0.5) * ratio;
        int low = (int)floor(centre - reach + 0.5), high = (int)floor(centre + reach + 0.5);
        double *weight = t->weight + (size_t)i * (size_t)t->most, sum = 0;
        low = low > 0 ? low : 0;
        high = high < from ? high : from;
        t->first[i] = low;
        t->count[i] = high - low;
        assert(t->count[i] > 0 && t->count[i] <= t->most);
        for (int k = low; k < high; k++) {
            const double apart = fabs(k + 0.5 - centre) / reach;
            sum += weight[k - low] = apart < 1 ? 1 - apart : 0;
        }
        for (int k = 0; k < high - low; k++)
            weight[k] /= sum;
    }
    return TUTTI_OK;
}

static void taps_close(taps *t)
{
    tutti_free(t->first);
    tutti_free(t->weight);
}

static uint8_t nearest(double value)
{
    const double v = floor(value + 0.5);

    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void fit_rows(const picture *p, int side, int size, const taps *t, double *rows)
{
    const size_t left = (size_t)(p->width - side) / 2, top = (size_t)(p->height - side) / 2;

    for (int y = 0; y < side; y++) {
        const uint8_t *line = p->rgb + ((top + (size_t)y) * (size_t)p->width + left) * 3;
        for (int i = 0; i < size; i++)
            for (int c = 0; c < 3; c++) {
                const double *weight = t->weight + (size_t)i * (size_t)t->most;
                double sum = 0;
                for (int k = 0; k < t->count[i]; k++)
                    sum += weight[k] * line[(size_t)(t->first[i] + k) * 3 + (size_t)c];
                rows[((size_t)y * (size_t)size + (size_t)i) * 3 + (size_t)c] = sum;
            }
    }
}

static void fit_columns(const double *rows, int size, int channels, const taps *t, uint8_t *pixels)
{
    const size_t plane = (size_t)size * (size_t)size;

    for (int j = 0; j < size; j++)
        for (int i = 0; i < size; i++) {
            const double *weight = t->weight + (size_t)j * (size_t)t->most;
            const size_t at = (size_t)j * (size_t)size + (size_t)i;
            double sum[3] = { 0 };
            for (int k = 0; k < t->count[j]; k++)
                for (size_t c = 0; c < 3; c++)
                    sum[c] += weight[k] *
                              rows[((size_t)(t->first[j] + k) * (size_t)size + (size_t)i) * 3 + c];
            if (channels == 1)
                pixels[at] = nearest(0.299 * sum[0] + 0.587 * sum[1] + 0.114 * sum[2]);
            for (size_t c = 0; c < 3 && channels == 3; c++)
                pixels[c * plane + at] = nearest(sum[c]);
        }
}

static tutti_status fit(const picture *p, const char *path, int channels, int size, uint8_t *pixels,
                        tutti_error *err)
{
    const int side = p->width < p->height ? p->width : p->height;
    double *rows = tutti_alloc((size_t)side * (size_t)size, 3 * sizeof *rows);
    taps t = { 0 };
    tutti_status status = rows != NULL
                              ? taps_open(&t, side, size, err)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "scaling '%s'", path);

    if (status == TUTTI_OK) {
        fit_rows(p, side, size, &t, rows);
        fit_columns(rows, size, channels, &t, pixels);
    }
    taps_close(&t);
    tutti_free(rows);
    return status;
}

tutti_status tutti_picture_decode(const char *path, const uint8_t *file, size_t bytes, int channels,
                                  int size, uint8_t *pixels, tutti_error *err)
{
    picture p = { 0 };
    tutti_status status = decode_file(&p, path, file, bytes, err);

    assert((channels == 1 || channels == 3) && size >= 1);
    if (status == TUTTI_OK)
        status = fit(&p, path, channels, size, pixels, err);
    tutti_free(p.rgb);
    return status;
}

tutti_status tutti_picture_read(tutti_runtime *rt, const char *path, int channels, int size,
                                uint8_t *pixels, tutti_error *err)
{
    tutti_file *file;
    uint8_t *contents = NULL;
    uint64_t bytes;
    tutti_status status;

    TUTTI_TRY(tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err));
    bytes = tutti_file_bytes(file);
    if (bytes > TUTTI_PICTURE_FILE_MOST)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s' has %llu bytes; a picture's file has at most %d: make it smaller",
                            path, (unsigned long long)bytes, TUTTI_PICTURE_FILE_MOST);
    else if ((contents = tutti_alloc((size_t)bytes + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %llu bytes of '%s'",
                            (unsigned long long)bytes, path);
    else
        status = tutti_file_read(file, 0, contents, (size_t)bytes, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK)
        status = tutti_picture_decode(path, contents, (size_t)bytes, channels, size, pixels, err);
    tutti_free(contents);
    return status;
}
