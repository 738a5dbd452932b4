/* Hostile manifests: with a valid seal, so that the code behind its check is reached. Each lie
   has its sentence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "seal.h"
#include "tutti/tutti.h"
#include "state/parse.h"

#define H "\"0123456789abcdef\""
#define FILES "[{\"bytes\": 1000, \"rank\": 0, \"xxh3\": " H "}, {\"bytes\": 100, \"rank\": 2, \"xxh3\": " H "}]"
#define RANGE(begin, end, file, owner) \
    "{\"begin\": " #begin ", \"end\": " #end ", \"file\": " #file ", \"owner\": " #owner ", \"xxh3\": " H "}"
#define STATE(state, tensor, keep, count, ranges) \
    "{\"count\": " #count ", \"dtype\": \"F32\", \"keep\": \"" keep "\", \"ranges\": [" ranges \
    "], \"state\": \"" state "\", \"tensor\": \"" tensor "\"}"
#define WHOLE(files, states, step, world) \
    "{\"facts\": {}, \"files\": " files ", \"format\": \"tutti-checkpoint\", \"format_version\": 1, " \
    "\"states\": [" states "], \"step\": " step ", \"version\": \"0.1.0\", \"world\": " world
#define M(states) WHOLE(FILES, states, "7", "3")

static tutti_status parse(const char *text, tutti_error *err)
{
    tutti_checkpoint *c;
    size_t bytes;
    char *sealed = seal(text, strlen(text), &bytes);
    tutti_status status = tutti_checkpoint_parse(&c, "m", sealed, bytes, err);

    assert_true((c != NULL) == (status == TUTTI_OK));
    tutti_checkpoint_close(c);
    free(sealed);
    return status;
}

static void valid_manifests_are_accepted(void **state)
{
    static const char *const texts[] = {
        M(""),
        M(STATE("x", "w", "same", 10, RANGE(0, 4, 0, -1) "," RANGE(4, 10, 1, -1))),
        M(STATE("r", "w", "own-sum", 10, RANGE(0, 10, 0, 0) "," RANGE(0, 10, 1, 2))),
        M(STATE("s", "w", "slice", 10, RANGE(0, 4, 0, -1) "," RANGE(4, 10, 1, -1))),
        M(STATE("x", "a", "same", 0, "") "," STATE("x", "b", "same", 1, RANGE(0, 1, 0, -1))),
        WHOLE("[]", "", "9223372036854775807", "99999"),
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(texts); k++) {
        tutti_error err = { 0 };
        if (parse(texts[k], &err) != TUTTI_OK)
            fail_msg("%zu: %s", k, err.text);
    }
}

static void inconsistent_manifests_are_rejected(void **state)
{
    static const struct {
        const char *manifest, *text;
    } cases[] = {
        { M(STATE("x", "w", "same", 10, RANGE(0, 5, 0, -1) "," RANGE(4, 10, 1, -1))),
          "'m': 'x/w' has elements from 4 in two ranges; each must be saved once" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 4, 0, -1) "," RANGE(5, 10, 1, -1))),
          "'m': 'x/w' lacks elements [4, 5) of 10" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 4, 0, -1))), "'m': 'x/w' lacks elements [4, 10) of 10" },
        { M(STATE("x", "w", "same", 10, "")), "'m': 'x/w' lacks elements [0, 10) of 10" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 11, 0, -1))), "'m': 'x/w' has a range [0, 11) of 10 elements" },
        { M(STATE("x", "w", "same", 10, RANGE(4, 4, 0, -1))), "'m': 'x/w' has a range [4, 4) of 10 elements" },
        { M(STATE("x", "w", "own-mean", 10, RANGE(0, 10, 0, 1) "," RANGE(0, 9, 1, 2))),
          "'m': 'x/w' of rank 2 lacks elements [9, 10) of 10" },
        { M(STATE("x", "w", "own-mean", 10, RANGE(0, 10, 0, 2) "," RANGE(0, 10, 1, 0))),
          "'m': 'x/w' has its ranges out of order at owner 0" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 10, 0, 1))),
          "'m': 'x/w' is kept 'same' and cannot be owned by rank 1 of 3" },
        { M(STATE("x", "w", "own-zero", 10, RANGE(0, 10, 0, -1))),
          "'m': 'x/w' is kept 'own-zero' and cannot be owned by rank -1 of 3" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 10, 0, 3))),
          "'m': a range of state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 10, 2, -1))),
          "'m': a range of state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M(STATE("x", "w", "same", 10, RANGE(-1, 10, 0, -1))),
          "'m': a range of state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M(STATE("x", "w", "same", 10, RANGE(0, 10.0, 0, -1))),
          "'m': a range of state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M(STATE("x", "w", "scratch", 10, RANGE(0, 10, 0, -1))),
          "'m': state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M("7"), "'m': state 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { M(STATE("x", "w", "same", 26, RANGE(0, 26, 1, -1))),
          "'m': the file of rank 2 has 100 bytes, fewer than its ranges need" },
        { M(STATE("x", "w", "same", 4611686018427387904, RANGE(0, 4611686018427387904, 1, -1))),
          "'m': 'x/w' has 4611686018427387904 elements, more than memory can hold" },
        { M(STATE("x", "w", "same", 9223372036854775808, RANGE(0, 1, 1, -1))),
          "manifest 'm' is not valid JSON: too big integer near '9223372036854775808' (line 1, byte 227)" },
        { M(STATE("x", "w", "same", 0, "") "," STATE("x", "w", "same", 0, "")),
          "'m': 'x/w' stands twice or out of order" },
        { M(STATE("x", "w", "same", 0, "") "," STATE("x", "a", "same", 0, "")),
          "'m': 'x/a' stands twice or out of order" },
        { M(STATE("../x", "w", "same", 0, "")), "'m': no state can be named '../x/w' (UTF-8, no '/' in the state, no "
                                                "'@' in the tensor, at most 1000 bytes in all)" },
        { M(STATE("x", "w@0", "same", 0, "")), "'m': no state can be named 'x/w@0' (UTF-8, no '/' in the state, no '@' "
                                               "in the tensor, at most 1000 bytes in all)" },
        { M(STATE("", "w", "same", 0, "")), "'m': no state can be named '/w' (UTF-8, no '/' in the state, no '@' in "
                                            "the tensor, at most 1000 bytes in all)" },
        { M(STATE("a\\u001b", "w", "same", 1, "")), "'m': 'a?/w' lacks elements [0, 1) of 1" },
        { WHOLE("[{\"bytes\": 1, \"name\": \"../../etc/passwd\", \"xxh3\": " H "}]", "", "7", "3"),
          "'m': file 0 is not what the format requires; the manifest is "
          "damaged; use an older checkpoint" },
        { WHOLE("[{\"bytes\": 1, \"rank\": 3, \"xxh3\": " H "}]", "", "7", "3"),
          "'m': file 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { WHOLE("[{\"bytes\": 1, \"rank\": -1, \"xxh3\": " H "}]", "", "7", "3"),
          "'m': file 0 is not what the format requires; the manifest is damaged; use an older checkpoint" },
        { WHOLE("[{\"bytes\": 1, \"rank\": 0, \"xxh3\": \"0123456789ABCDEF\"}]", "", "7", "3"),
          "'m': file 0 is not what the format requires; the manifest is damaged; use "
          "an older checkpoint" },
        { WHOLE("[{\"bytes\": 1, \"rank\": 0, \"xxh3\": " H "}, {\"bytes\": 1, \"rank\": 0, \"xxh3\": " H "}]", "", "7",
                "3"),
          "'m': file 1 is not what the format requires; "
          "the manifest is damaged; use an older checkpoint" },
        { WHOLE("[1, 2]", "", "7", "1"),
          "'m' lists 2 files of 1 ranks; the manifest is damaged; use an older checkpoint" },
        { WHOLE("{}", "", "7", "1"), "'m' lists 0 files of 1 ranks; the manifest is damaged; use an older checkpoint" },
        { WHOLE("[]", "", "-1", "1"), "'m' has no step; the manifest is damaged; use an older checkpoint" },
        { WHOLE("[]", "", "7", "0"),
          "'m' does not state how many ranks saved it; the manifest is damaged; use an older checkpoint" },
        { WHOLE("[]", "", "7", "100000"),
          "'m' does not state how many ranks saved it; the manifest is damaged; use an older checkpoint" },
        { "{\"format\": \"other\"", "'m' does not call itself \"tutti-checkpoint\"; it is another kind of file" },
        { "{\"format\": \"tutti-checkpoint\", \"format_version\": 2",
          "'m' has format version 2, this library reads 1; use the version that wrote it" },
        { "{\"format\": \"tutti-checkpoint\", \"format_version\": 1, \"step\": 1, \"world\": 1",
          "'m' has no facts; the manifest is damaged; use an older checkpoint" },
        { "{\"facts\": {}, \"facts\": {}",
          "manifest 'm' is not valid JSON: duplicate object key near '\"facts\"' (line 1, byte 21)" },
        { "{\"facts\": {\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
          "manifest 'm' is nested deeper than 32 levels (byte 50); nothing "
          "we write is" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { 0 };
        assert_int_equal(parse(cases[k].manifest, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
    }
}

static void truncations_and_flipped_bits_break_the_seal(void **state)
{
    static const char text[] = M(STATE("x", "w", "same", 10, RANGE(0, 10, 0, -1)));
    size_t bytes;
    char *sealed = seal(text, sizeof text - 1, &bytes);
    tutti_checkpoint *c;

    (void)state;
    for (size_t k = 0; k < bytes; k++) {
        char *cut = malloc(k + 1);
        memcpy(cut, sealed, k);
        assert_int_equal(tutti_checkpoint_parse(&c, "m", cut, k, NULL), TUTTI_ERR_CORRUPT);
        free(cut);
        sealed[k] ^= 1;
        assert_int_equal(tutti_checkpoint_parse(&c, "m", sealed, bytes, NULL), TUTTI_ERR_CORRUPT);
        assert_null(c);
        sealed[k] ^= 1;
    }
    assert_int_equal(tutti_checkpoint_parse(&c, "m", sealed, bytes, NULL), TUTTI_OK);
    tutti_checkpoint_close(c);
    free(sealed);
}

static void a_manifest_from_memory_has_no_files_to_read(void **state)
{
    static const char text[] = M("");
    size_t bytes;
    char *sealed = seal(text, sizeof text - 1, &bytes);
    tutti_checkpoint *c;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_checkpoint_parse(&c, "m", sealed, bytes, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_step(c), 7);
    assert_int_equal(tutti_checkpoint_world(c), 3);
    assert_string_equal(tutti_checkpoint_facts(c), "{}");
    assert_int_equal(tutti_checkpoint_read(c, NULL, 0, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "'m' was parsed from memory; there are no files to read");
    assert_int_equal(tutti_checkpoint_verify(c, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "'m' was parsed from memory; there are no files to verify");
    tutti_checkpoint_close(c);
    free(sealed);
}

/* Goal: each range is one piece, in the manifest's order, with its state's names. An empty state
   has none, wherever it stands among the others. */
static void pieces_are_listed_by_state_tensor_owner_and_place(void **state)
{
    static const char text[] = M(STATE("a", "", "same", 0, "") "," STATE(
        "r", "w", "own-sum", 10,
        RANGE(0, 10, 0, 0) "," RANGE(0, 10, 1, 2)) "," STATE("x", "a", "same", 0,
                                                             "") "," STATE("x", "w", "same", 10,
                                                                           RANGE(0, 4, 0, -1) "," RANGE(
                                                                               4, 10, 1, -1)) "," STATE("z", "", "same",
                                                                                                        0, ""));
    static const struct {
        const char *state;
        tutti_keep keep;
        int owner;
        uint64_t begin, end;
    } wanted[] = { { "r", TUTTI_OWN_SUM, 0, 0, 10 },
                   { "r", TUTTI_OWN_SUM, 2, 0, 10 },
                   { "x", TUTTI_SAME, -1, 0, 4 },
                   { "x", TUTTI_SAME, -1, 4, 10 } };
    size_t bytes;
    char *sealed = seal(text, sizeof text - 1, &bytes);
    tutti_checkpoint *c;
    tutti_saved piece;

    (void)state;
    assert_int_equal(tutti_checkpoint_parse(&c, "m", sealed, bytes, NULL), TUTTI_OK);
    for (size_t k = 0; k < TUTTI_LENGTH(wanted); k++) {
        assert_true(tutti_checkpoint_piece(c, k, &piece));
        assert_string_equal(piece.state, wanted[k].state);
        assert_string_equal(piece.tensor, "w");
        assert_int_equal(piece.keep, wanted[k].keep);
        assert_int_equal(piece.owner, wanted[k].owner);
        assert_int_equal(piece.count, 10);
        assert_int_equal(piece.begin, wanted[k].begin);
        assert_int_equal(piece.end, wanted[k].end);
        assert_null(piece.data);
    }
    assert_false(tutti_checkpoint_piece(c, TUTTI_LENGTH(wanted), &piece));
    assert_null(piece.state);
    tutti_checkpoint_close(c);
    free(sealed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_manifests_are_accepted),
        cmocka_unit_test(inconsistent_manifests_are_rejected),
        cmocka_unit_test(truncations_and_flipped_bits_break_the_seal),
        cmocka_unit_test(a_manifest_from_memory_has_no_files_to_read),
        cmocka_unit_test(pieces_are_listed_by_state_tensor_owner_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
