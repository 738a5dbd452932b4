/* Goal: directories of PNG and JPEG files become samples as pictures.h and pictures.c define,
   CIFAR-10's files as cifar.c defines, and what cannot be used is named before training begins.
   Method: files are made here by the libraries' own writers, and a few by hand; what is expected
   is computed from the rules, pixel by pixel. */
#include "make.h"
#include "data/data_internal.h"
#include "data/pictures.h"
#include <math.h>
#include <png.h>
#include <turbojpeg.h>

typedef struct fixture { tutti_runtime *real; memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(tutti_runtime_open_posix(&f->real, NULL), TUTTI_OK);
    f->m = memory_files_open(f->real);
    unsetenv("TUTTI_DATA");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    memory_files_close(f->m);
    tutti_runtime_close(f->real);
    free(f);
    return 0;
}

/* ---- making files ---- */

static bytes png_of(const void *pixels, int width, int height, png_uint_32 format)
{
    png_image image = { .version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height,
                        .format = format };
    png_alloc_size_t n = 0;
    bytes b;

    assert_true(png_image_write_get_memory_size(image, n, 0, pixels, 0, NULL));
    b.data = malloc(n);
    assert_true(png_image_write_to_memory(&image, b.data, &n, 0, pixels, 0, NULL));
    b.n = n;
    return b;
}

static bytes jpeg_of(const uint8_t *rgb, int width, int height, int kind)
{
    tjhandle t = tjInitCompress();
    unsigned char *made = NULL;
    unsigned long n = 0;
    bytes b;

    assert_int_equal(tjCompress2(t, rgb, width, 0, height, kind, &made, &n,
                                 kind == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444, 95, 0), 0);
    b.data = malloc(n);
    memcpy(b.data, made, n);
    b.n = n;
    tjFree(made);
    tjDestroy(t);
    return b;
}

static void put(memory_files *m, const char *path, bytes b)
{
    memory_files_put(m, path, b.data, b.n);
    free(b.data);
}

/* A PNG of one colour. */
static bytes flat(int width, int height, uint8_t r, uint8_t g, uint8_t b)
{
    uint8_t *rgb = malloc((size_t)(3 * width * height));
    bytes file;

    for (int i = 0; i < width * height; i++)
        rgb[3 * i] = r, rgb[3 * i + 1] = g, rgb[3 * i + 2] = b;
    file = png_of(rgb, width, height, PNG_FORMAT_RGB);
    free(rgb);
    return file;
}

static void decode(bytes b, int channels, int size, uint8_t *pixels)
{
    tutti_error err = { 0 };

    if (tutti_picture_decode("f", b.data, b.n, channels, size, pixels, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    free(b.data);
}

/* ---- one picture ---- */

static void a_picture_of_the_target_size_is_unchanged(void **state)
{
    uint8_t rgb[4 * 4 * 3], pixels[48], grey[16];

    (void)state;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 53 % 256);
    decode(png_of(rgb, 4, 4, PNG_FORMAT_RGB), 3, 4, pixels);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 16; i++)
            assert_int_equal(pixels[16 * c + i], rgb[3 * i + c]);
    decode(png_of(rgb, 4, 4, PNG_FORMAT_RGB), 1, 4, grey);
    for (int i = 0; i < 16; i++)
        assert_int_equal(grey[i],
                         (int)floor(0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2] + 0.5));
}

/* A grey file has three equal channels, and one channel of it is the file's. */
static void grey_pictures_convert_to_equal_colour_channels(void **state)
{
    uint8_t in[9], out[27], one[9];

    (void)state;
    for (int i = 0; i < 9; i++)
        in[i] = (uint8_t)(28 * i);
    decode(png_of(in, 3, 3, PNG_FORMAT_GRAY), 3, 3, out);
    decode(png_of(in, 3, 3, PNG_FORMAT_GRAY), 1, 3, one);
    for (int i = 0; i < 27; i++)
        assert_int_equal(out[i], in[i % 9]);
    assert_memory_equal(one, in, 9);
    for (int i = 0; i < 9; i++)
        in[i] = 77;
    decode(jpeg_of(in, 3, 3, TJPF_GRAY), 3, 3, out);
    for (int i = 0; i < 27; i++)
        assert_int_equal(out[i], 77);
}

/* The triangle's weights, written out: half as large is 1, 3, 3, 1 eighths, cut at the borders;
   twice as large 1, 3 quarters. */
static void the_centre_crop_is_scaled_by_a_triangle_filter(void **state)
{
    uint8_t wide[8 * 4 * 3] = { 0 }, small[3 * 4], large[3 * 64];
    const double left[2] = { 3.0 / 7, 3.0 / 7 };

    (void)state;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 8; x++)
            for (int c = 0; c < 3; c++) /* only the columns 2 to 5 are looked at */
                wide[3 * (8 * y + x) + c] = x < 2 || x > 5 ? 255 : (uint8_t)(40 * (x - 2));
    decode(png_of(wide, 8, 4, PNG_FORMAT_RGB), 3, 2, small);
    for (int i = 0; i < 12; i++) { /* 0, 40, 80, 120: the left sees 0, 1, 2, the right 1, 2, 3 */
        const double first = left[0] * 0 + left[1] * 40 + 80.0 / 7, second = 40.0 / 7 + left[1] * 80 + left[0] * 120;
        assert_int_equal(small[i], (int)floor((i % 2 == 0 ? first : second) + 0.5));
    }
    decode(png_of(wide, 8, 4, PNG_FORMAT_RGB), 3, 8, large);
    for (int i = 0; i < 8; i++) {
        const double at = (i + 0.5) / 2 - 0.5, low = floor(at);
        const double value = at < 0 ? 0 : at > 3 ? 120 : 40 * (low + (at - low));
        assert_int_equal(large[i], (int)floor(value + 0.5));
    }
}

static void transparent_pixels_become_black(void **state)
{
    const uint8_t rgba[4] = { 255, 255, 255, 0 }, opaque[4] = { 200, 100, 50, 255 };
    uint8_t pixels[3];

    (void)state;
    decode(png_of(rgba, 1, 1, PNG_FORMAT_RGBA), 3, 1, pixels);
    assert_true(pixels[0] == 0 && pixels[1] == 0 && pixels[2] == 0);
    decode(png_of(opaque, 1, 1, PNG_FORMAT_RGBA), 3, 1, pixels);
    assert_true(pixels[0] == 200 && pixels[1] == 100 && pixels[2] == 50);
}

static void refuses(const uint8_t *file, size_t n, tutti_status status, const char *sentence)
{
    uint8_t pixels[3 * 16];
    tutti_error err = { 0 };

    assert_int_equal(tutti_picture_decode("f.png", file, n, 3, 4, pixels, &err), status);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' lacks '%s'", err.text, sentence);
}

/* Every prefix of a file, and the file with any byte changed, is refused or decoded; never more
   than that. A prefix of a JPEG that contains the whole picture may be accepted. */
static void damaged_files_are_refused_by_name(void **state)
{
    bytes png = flat(9, 7, 10, 200, 30), jpeg;
    uint8_t rgb[40 * 40 * 3], pixels[48];
    size_t cut = 0;

    (void)state;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * i % 251);
    jpeg = jpeg_of(rgb, 40, 40, TJPF_RGB);
    refuses(png.data, 0, TUTTI_ERR_CORRUPT, "'f.png' is empty");
    refuses((const uint8_t *)"GIF89a", 6, TUTTI_ERR_CORRUPT, "begins neither as a PNG nor as a JPEG file");
    for (size_t n = 4; n < png.n - 16; n++) /* without the checksum of its last rows */
        refuses(png.data, n, TUTTI_ERR_CORRUPT, "'f.png' is no whole PNG file");
    for (size_t n = 3; n + 40 < jpeg.n; n += 7)
        refuses(jpeg.data, n, TUTTI_ERR_CORRUPT, "'f.png' is no whole JPEG file");
    for (size_t at = 0; at < png.n; at++) {
        png.data[at] ^= 0x5a;
        cut += tutti_picture_decode("f", png.data, png.n, 3, 4, pixels, NULL) != TUTTI_OK;
        png.data[at] ^= 0x5a;
    }
    assert_true(cut > png.n / 2);
    free(png.data);
    free(jpeg.data);
}

/* Four colour channels, as for print: the picture is whole, and is not to be downloaded again. */
static void cmyk_pictures_are_rejected(void **state)
{
    uint8_t cmyk[8 * 8 * 4] = { 0 };
    bytes jpeg = jpeg_of(cmyk, 8, 8, TJPF_CMYK);

    (void)state;
    refuses(jpeg.data, jpeg.n, TUTTI_ERR_CORRUPT, "'f.png' is a JPEG file in the four colours of print (CMYK); convert "
            "it to RGB");
    free(jpeg.data);
}

/* The header alone states how large it is, and no memory is allocated on its word. */
static void too_large_a_picture_is_refused(void **state)
{
    bytes png = flat(3, 3, 1, 2, 3);

    (void)state;
    for (int k = 0; k < 8; k++)
        png.data[16 + k] = (uint8_t[]){ 0, 0, 0x41, 0, 0, 0, 0x41, 0 }[k]; /* 16640 x 16640 */
    const uint32_t crc = (uint32_t)crc32(0, png.data + 12, 17);
    for (int k = 0; k < 4; k++)
        png.data[29 + k] = (uint8_t)(crc >> (24 - 8 * k));
    refuses(png.data, png.n, TUTTI_ERR_CORRUPT, "a picture of 16640 x 16640; sides are from 1 to 16384 pixels");
    free(png.data);
}

/* ---- directories ---- */

typedef struct attached { tutti_data *data; uint8_t *block; } attached;

static attached attach(fixture *f, const char *text)
{
    attached a = { 0 };
    tutti_error err = { 0 };

    if (tutti_data_open_spec(&a.data, &f->m->rt, text, NULL, &err) != TUTTI_OK)
        fail_msg("%s: %s", text, err.text);
    a.block = tutti_alloc((size_t)tutti_data_shape_of(a.data)->bytes, 1);
    if (tutti_data_attach(a.data, a.block, true, &err) != TUTTI_OK)
        fail_msg("%s: %s", text, err.text);
    return a;
}

static void detach(attached a)
{
    tutti_data_close(a.data);
    tutti_free(a.block);
}

static void cannot(fixture *f, const char *text, tutti_status status, const char *sentence)
{
    tutti_error err = { 0 };
    tutti_data *d;
    tutti_status got = tutti_data_open_spec(&d, &f->m->rt, text, NULL, &err);
    uint8_t *block = NULL;

    if (got == TUTTI_OK) {
        block = tutti_alloc((size_t)tutti_data_shape_of(d)->bytes, 1);
        got = tutti_data_attach(d, block, true, &err);
        tutti_data_close(d);
    }
    tutti_free(block);
    if (got != status || strstr(err.text, sentence) == NULL)
        fail_msg("%s: %d, '%s' lacks '%s'", text, (int)got, err.text, sentence);
}

static uint8_t first_byte(const attached *a, tutti_split split, uint64_t i)
{
    return a->block[a->data->parts[split][DATA_X].offset + i * a->data->pixels];
}

static void folders_determine_class_and_split(void **state)
{
    fixture *f = *state;
    attached a;

    put(f->m, "d/train/cat/b.png", flat(5, 5, 20, 0, 0));
    put(f->m, "d/train/cat/a.JPG", flat(5, 5, 10, 0, 0)); /* what it is, its bytes say */
    put(f->m, "d/train/ant/x.jpeg", flat(6, 4, 30, 0, 0));
    put(f->m, "d/val/cat/only.png", flat(5, 5, 40, 0, 0));
    put(f->m, "d/train/.DS_Store", flat(1, 1, 0, 0, 0));
    a = attach(f, "d");
    const tutti_data_shape *s = tutti_data_shape_of(a.data);
    assert_true(s->samples[TUTTI_TRAIN] == 3 && s->samples[TUTTI_TEST] == 1 && s->channels == 3 && s->height == 32 &&
                s->width == 32 && s->classes == 2);
    assert_string_equal(tutti_data_class_name(a.data, 0), "ant");
    assert_string_equal(tutti_data_class_name(a.data, 1), "cat");
    assert_null(tutti_data_class_name(a.data, 2));
    assert_memory_equal(tutti_data_labels(a.data, TUTTI_TRAIN), ((uint8_t[]){ 0, 1, 1 }), 3);
    assert_memory_equal(tutti_data_labels(a.data, TUTTI_TEST), ((uint8_t[]){ 1 }), 1);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(first_byte(&a, TUTTI_TRAIN, i), ((int[]){ 30, 10, 20 })[i]);
    assert_int_equal(first_byte(&a, TUTTI_TEST, 0), 40);
    detach(a);
    put(f->m, "d/test/ant/only.png", flat(5, 5, 50, 0, 0)); /* where both are, test is the test */
    a = attach(f, "images(dir=d,size=3,grey=on)");
    assert_true(tutti_data_shape_of(a.data)->channels == 1 && tutti_data_shape_of(a.data)->height == 3);
    assert_int_equal(first_byte(&a, TUTTI_TEST, 0), (int)floor(0.299 * 50 + 0.5));
    detach(a);
}

/* Of 10 and 21 files a fifth are 2 and 4; the same ones on every worker, others by another seed;
   each file is in one split. */
static void test_set_is_drawn_by_class_without_split_folders(void **state)
{
    fixture *f = *state;
    char path[80];
    uint8_t seen[2][31] = { { 0 } };
    bool other = false;

    for (int i = 0; i < 31; i++) {
        snprintf(path, sizeof path, "d/%s/%02d.png", i < 10 ? "a" : "b", i);
        put(f->m, path, flat(2, 2, (uint8_t)(i + 1), 0, 0));
    }
    attached a = attach(f, "images(dir=d,test=0.2)"), again = attach(f, "images(dir=d,test=0.2)"),
             b = attach(f, "images(dir=d,test=0.2,seed=1)");
    assert_true(tutti_data_shape_of(a.data)->samples[TUTTI_TRAIN] == 25 &&
                tutti_data_shape_of(a.data)->samples[TUTTI_TEST] == 6);
    assert_memory_equal(tutti_data_labels(a.data, TUTTI_TEST), ((uint8_t[]){ 0, 0, 1, 1, 1, 1 }), 6);
    for (uint64_t i = 0; i < 25; i++)
        seen[0][first_byte(&a, TUTTI_TRAIN, i) - 1]++;
    for (uint64_t i = 0; i < 6; i++) {
        seen[0][first_byte(&a, TUTTI_TEST, i) - 1]++;
        other = other || first_byte(&a, TUTTI_TEST, i) != first_byte(&b, TUTTI_TEST, i);
    }
    for (int i = 0; i < 31; i++)
        assert_int_equal(seen[0][i], 1);
    assert_true(other && tutti_data_hash(a.data) == tutti_data_hash(again.data));
    detach(a);
    detach(again);
    detach(b);
}

static void unusable_picture_folders_are_rejected_by_name(void **state)
{
    fixture *f = *state;

    put(f->m, "one/a/1.png", flat(2, 2, 1, 0, 0));
    cannot(f, "one", TUTTI_ERR_USAGE, "'one' has the folder of one class; pictures of at least two classes");
    put(f->m, "one/b/1.png", flat(2, 2, 1, 0, 0));
    cannot(f, "one", TUTTI_ERR_USAGE, "'one' has no picture to test on: of 2 in 2 classes a share of 0.1 is none");
    put(f->m, "other/a/1.png", flat(2, 2, 1, 0, 0));
    put(f->m, "other/b/readme.txt", flat(2, 2, 1, 0, 0));
    cannot(f, "other", TUTTI_ERR_USAGE, "'other/b/readme.txt' is no picture by its name");
    put(f->m, "loose/a/1.png", flat(2, 2, 1, 0, 0));
    put(f->m, "loose/2.png", flat(2, 2, 1, 0, 0));
    cannot(f, "loose", TUTTI_ERR_USAGE, "'loose/2.png' is no folder; next to the folders of the classes nothing else");
    put(f->m, "empty/a/1.png", flat(2, 2, 1, 0, 0));
    put(f->m, "empty/b/.keep", flat(2, 2, 1, 0, 0));
    cannot(f, "empty", TUTTI_ERR_USAGE, "'empty/b' is a class without a picture");
    put(f->m, "new/train/a/1.png", flat(2, 2, 1, 0, 0));
    put(f->m, "new/train/b/1.png", flat(2, 2, 1, 0, 0));
    put(f->m, "new/test/c/1.png", flat(2, 2, 1, 0, 0));
    cannot(f, "new", TUTTI_ERR_USAGE, "'new/test/c' is a class that the folder train has not");
    cannot(f, "images", TUTTI_ERR_USAGE, "data 'images' needs to know its directory; write images(dir=PATH)");
    cannot(f, "images(dir=nowhere)", TUTTI_ERR_USAGE, "no directory of pictures at 'nowhere'");
}

/* All are looked at, and the first is named, before training begins. */
static void files_that_cannot_be_used_are_counted(void **state)
{
    fixture *f = *state;
    const char *const names[] = { "d/a/1.png", "d/a/2.png", "d/b/1.png", "d/b/2.png" };
    bytes cut = flat(8, 8, 1, 2, 3);

    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        put(f->m, names[k], flat(8, 8, 1, 2, 3));
    cut.n /= 2;
    memory_files_put(f->m, "d/a/2.png", cut.data, cut.n);
    cannot(f, "images(dir=d,test=0.5)", TUTTI_ERR_CORRUPT, "'d/a/2.png' is no whole PNG file");
    memory_files_put(f->m, "d/b/1.png", "", 0);
    cannot(f, "images(dir=d,test=0.5)", TUTTI_ERR_CORRUPT,
           "2 of the 4 pictures cannot be used; the first: 'd/a/2.png' is no whole PNG file");
    free(cut.data);
}

/* ---- CIFAR-10 ---- */

enum { RECORD = 3073 };

/* Records with these labels; the pixels of record i are its number, then 1, 2, ... */
static void put_batch(fixture *f, const char *path, const uint8_t *labels, size_t n, uint8_t number)
{
    uint8_t *file = malloc(n * RECORD);

    for (size_t i = 0; i < n; i++) {
        file[i * RECORD] = labels[i];
        for (size_t k = 0; k < RECORD - 1; k++)
            file[i * RECORD + 1 + k] = (uint8_t)(k == 0 ? number + i : k);
    }
    memory_files_put(f->m, path, file, n * RECORD);
    free(file);
}

static void put_cifar(fixture *f, const char *folder)
{
    char path[80];

    for (uint8_t k = 1; k <= 5; k++) {
        snprintf(path, sizeof path, "%s/data_batch_%d.bin", folder, k);
        put_batch(f, path, (uint8_t[]){ k, 9 }, 2, (uint8_t)(10 * k));
    }
    snprintf(path, sizeof path, "%s/test_batch.bin", folder);
    put_batch(f, path, (uint8_t[]){ 3, 0, 7 }, 3, 100);
}

static void cifar_is_its_six_files_in_order(void **state)
{
    fixture *f = *state;
    static const char names[] = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
    attached a;

    put_cifar(f, "c");
    a = attach(f, "c");
    const tutti_data_shape *s = tutti_data_shape_of(a.data);
    assert_true(s->samples[TUTTI_TRAIN] == 10 && s->samples[TUTTI_TEST] == 3 && s->channels == 3 && s->height == 32 &&
                s->classes == 10);
    assert_null(tutti_data_class_name(a.data, 0));
    for (uint8_t i = 0; i < 10; i++) {
        assert_int_equal(tutti_data_labels(a.data, TUTTI_TRAIN)[i], i % 2 == 0 ? i / 2 + 1 : 9);
        assert_int_equal(first_byte(&a, TUTTI_TRAIN, i), 10 * (i / 2 + 1) + i % 2);
    }
    assert_memory_equal(tutti_data_labels(a.data, TUTTI_TEST), ((uint8_t[]){ 3, 0, 7 }), 3);
    for (size_t k = 1; k < RECORD - 1; k++)
        assert_int_equal((&a.block[a.data->parts[TUTTI_TEST][DATA_X].offset])[2 * (RECORD - 1) + k], (uint8_t)k);
    detach(a);
    memory_files_put(f->m, "c/batches.meta.txt", names, sizeof names - 1);
    a = attach(f, "c");
    assert_string_equal(tutti_data_class_name(a.data, 3), "cat");
    assert_string_equal(tutti_data_class_name(a.data, 9), "truck");
    detach(a);
    memory_files_put(f->m, "c/batches.meta.txt", names, 20); /* too few: none */
    a = attach(f, "c");
    assert_null(tutti_data_class_name(a.data, 0));
    detach(a);
}

static void cifar_files_with_wrong_size_or_label_are_rejected(void **state)
{
    fixture *f = *state;

    put_cifar(f, "c");
    memory_files_put(f->m, "c/data_batch_3.bin", "abc", 3);
    cannot(f, "c", TUTTI_ERR_CORRUPT, "'c/data_batch_3.bin' has 3 bytes, but records of 3073 bytes each make a");
    put_batch(f, "c/data_batch_3.bin", (uint8_t[]){ 1, 10 }, 2, 1);
    cannot(f, "c", TUTTI_ERR_CORRUPT, "'c/data_batch_3.bin': the label of record 1 is 10, but CIFAR-10 has the");
    put_batch(f, "c/data_batch_3.bin", (uint8_t[]){ 1, 1 }, 2, 1);
    put_cifar(f, "data/cifar10");
    cannot(f, "cifar10", TUTTI_ERR_CORRUPT,
           "'data/cifar10/data_batch_1.bin' has 6146 bytes, but 10000 records of 3073 bytes each make 30730000");
    put_batch(f, "few/data_batch_1.bin", (uint8_t[]){ 1, 1 }, 2, 1);
    cannot(f, "few", TUTTI_ERR_USAGE, "'few/data_batch_2.bin' is not there; CIFAR-10 has data_batch_1.bin to");
}

/* What a network trained on another set wants. */
static void pixels_are_normalised_with_chosen_statistics(void **state)
{
    fixture *f = *state;
    attached a;
    float x[3 * 32 * 32];
    uint8_t label;

    put_cifar(f, "c");
    a = attach(f, "c");
    tutti_data_normalise(a.data, 0.25f, 0.5f);
    tutti_data_gather(a.data, TUTTI_TEST, (uint64_t[]){ 1 }, 1, x, &label);
    assert_true(x[0] == ((float)101 / 255.0f - 0.25f) / 0.5f && x[7] == ((float)7 / 255.0f - 0.25f) / 0.5f);
    detach(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_picture_of_the_target_size_is_unchanged),
        TEST(grey_pictures_convert_to_equal_colour_channels),
        TEST(the_centre_crop_is_scaled_by_a_triangle_filter),
        TEST(transparent_pixels_become_black),
        TEST(damaged_files_are_refused_by_name),
        TEST(cmyk_pictures_are_rejected),
        TEST(too_large_a_picture_is_refused),
        TEST(folders_determine_class_and_split),
        TEST(test_set_is_drawn_by_class_without_split_folders),
        TEST(unusable_picture_folders_are_rejected_by_name),
        TEST(files_that_cannot_be_used_are_counted),
        TEST(cifar_is_its_six_files_in_order),
        TEST(cifar_files_with_wrong_size_or_label_are_rejected),
        TEST(pixels_are_normalised_with_chosen_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
