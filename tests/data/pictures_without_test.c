/* Goal: a build without libpng and libjpeg-turbo refuses their files in a sentence that names
   what to install, and reads no further. Method: the file of the decoders is compiled here,
   without either, in place of the library's. */
#undef TUTTI_PNG
#undef TUTTI_JPEG
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/picture.c"

static void refuses(const uint8_t *file, size_t n, tutti_status status, const char *sentence)
{
    uint8_t pixels[3];
    tutti_error err = { 0 };

    assert_int_equal(tutti_picture_decode("d/a.png", file, n, 3, 1, pixels, &err), status);
    assert_string_equal(err.text, sentence);
}

static void missing_image_libraries_are_named_with_packages(void **state)
{
    (void)state;
    refuses((const uint8_t *)"\x89PNG\r\n\x1a\n", 8, TUTTI_ERR_USAGE,
            "'d/a.png' is a PNG file, and this build of Tutti is without libpng; install it (Debian: libpng-dev) and "
            "build again, or convert the file");
    refuses((const uint8_t *)"\xff\xd8\xff\xe0", 4, TUTTI_ERR_USAGE,
            "'d/a.png' is a JPEG file, and this build of Tutti is without libjpeg-turbo; install it (Debian: "
            "libturbojpeg0-dev) and build again, or convert the file");
    refuses((const uint8_t *)"GIF89a", 6, TUTTI_ERR_CORRUPT,
            "'d/a.png' begins neither as a PNG nor as a JPEG file; convert it");
    assert_string_equal(tutti_picture_built_with(), "without libpng and libjpeg-turbo");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(missing_image_libraries_are_named_with_packages) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
