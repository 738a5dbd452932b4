/* The header of an IDX file: what is accepted, and for each thing that is not, a sentence that
   states what was found. */
#include "make.h"

static void a_header_gives_its_dimensions(void **state)
{
    const uint8_t head[] = { 0, 0, 8, 3, 0, 0, 0xea, 0x60, 0, 0, 0, 28, 0, 0, 0, 28 };
    tutti_idx_header h;

    (void)state;
    assert_int_equal(tutti_idx_parse("f", head, sizeof head, &h, NULL), TUTTI_OK);
    assert_int_equal(h.rank, 3);
    assert_int_equal(h.dim[0], 60000);
    assert_int_equal(h.dim[1], 28);
    assert_int_equal(h.dim[2], 28);
    assert_int_equal(h.dim[3], 0);
    assert_int_equal(h.bytes, 60000 * 784);
}

static void every_truncation_is_refused(void **state)
{
    const uint8_t head[] = { 0, 0, 8, 2, 0, 0, 0, 5, 0, 0, 0, 7 };

    (void)state;
    for (size_t have = 0; have <= sizeof head; have++) {
        uint8_t *exact = malloc(have + (have == 0)); /* so that a read past the end is seen */
        tutti_idx_header h;
        memcpy(exact, head, have);
        assert_int_equal(tutti_idx_parse("f", exact, have, &h, NULL),
                         have == sizeof head ? TUTTI_OK : TUTTI_ERR_CORRUPT);
        free(exact);
    }
}

static void invalid_idx_headers_are_rejected_with_a_message(void **state)
{
    static const struct { uint8_t head[20]; size_t have; const char *text;
    } cases[] = {
        { { 0 }, 3, "'f' ends after 3 bytes, inside the 4 bytes every IDX file begins with; fetch it again" },
        { { 0, 0, 8, 3, 0, 0 }, 6, "'f' ends after 6 bytes, inside its header of 16 (3 dimensions); fetch it again" },
        { { 'P', 'K', 3, 4 },
          20,
          "'f' begins with 50 4b 03 04, but an IDX file begins with 00 00; it is another kind of file" },
        { { 0x1f, 0x8b, 8, 0 },
          20,
          "'f' holds gzip data where an IDX header was expected; it was compressed twice: gunzip it once" },
        { { 0, 0, 0x0d, 1 },
          20,
          "'f' has elements of type 0x0d (float) at byte 2; only 0x08 (unsigned byte) is read: convert it" },
        { { 0, 0, 0x07, 1 },
          20,
          "'f' has elements of type 0x07 (no type of the format) at byte 2; only 0x08 (unsigned byte) is read: convert "
          "it" },
        { { 0, 0, 8, 0 }, 20, "'f' has 0 dimensions by its byte 3; 1 to 4 are read" },
        { { 0, 0, 8, 5 }, 20, "'f' has 5 dimensions by its byte 3; 1 to 4 are read" },
        { { 0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0 },
          20,
          "'f' has dimension 2 of size 0 (bytes 8 to 11); it holds no sample" },
        { { 0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 },
          20,
          "'f' has dimensions whose product overflows 64 bits at dimension 3 (4294967295); the header is damaged: "
          "fetch the file again" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err;
        tutti_idx_header h;
        assert_int_equal(tutti_idx_parse("f", cases[k].head, cases[k].have, &h, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
        assert_int_equal(h.rank, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_gives_its_dimensions),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(invalid_idx_headers_are_rejected_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
