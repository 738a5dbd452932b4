/* Goal: nothing of a manifest counts that is damaged, of something else, too large, or contradicts
   another one. Misuse and a lack of memory leave a fetch as it was.
   Method: as state_test.c. Any bytes as a manifest are the fuzz target state_manifest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "allocations.h"
#include "newcomer.h"
#include "tier/tier.h"

/* ---- holders that differ ---- */

static void assert_refused(tutti_image *other, tutti_status status, const char *sentence)
{
    newcomer *n = newcomer_open();
    tutti_error err = { 0 };
    uint64_t here, needed, before;

    add(n, 1, image_of(2, 0, 0));
    answer_some(n, 1);
    tutti_fetch_progress(n->f, &here, &before);
    add(n, 2, other);
    assert_int_equal(answer(n, take(n, n->queued - 1), false, &err), status);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s", err.text);
    tutti_fetch_progress(n->f, &here, &needed);
    assert_true(needed == before); /* nothing of it counts */
    answer_some(n, QUEUE);
    assert_int_equal(n->asked[1], 0);
    assert_fetched(n, 2, 0);
    newcomer_close(n);
}

static tutti_image *with_piece(int which, const tutti_saved *change)
{
    tutti_image *plain = image_of(2, 1, 0), *image = NULL;
    tutti_saved items[3];
    float data[WIDE] = { 0 };

    memcpy(items, plain->pieces, 2 * sizeof *items);
    items[which] = *change;
    items[which].data = data;
    assert_int_equal(tutti_image_copy(&image, plain, items, which == 2 ? 3 : 2, NULL), TUTTI_OK);
    tutti_image_close(plain);
    return image;
}

static void replicas_that_differ_are_found(void **state)
{
    tutti_saved other = piece("x", "w", TUTTI_SAME, WIDE);
    tutti_image *image;

    (void)state;
    assert_refused(with_piece(1, &other), TUTTI_ERR_STATE,
                   "holders of the state differ: 'x/w' (elements [0, 250)) has other bits than another one's; a "
                   "replica has diverged");
    other = piece("x", "w", TUTTI_SAME, WIDE - 1);
    assert_refused(with_piece(1, &other), TUTTI_ERR_STATE, "has other sizes, or another type, than");
    other = piece("x", "w", TUTTI_SLICE, WIDE);
    assert_refused(with_piece(1, &other), TUTTI_ERR_STATE, "has other sizes, or another type, than");
    other = piece("x", "w", TUTTI_SAME, WIDE);
    other.begin = 200;
    assert_refused(with_piece(1, &other), TUTTI_ERR_STATE, "'x/w' (elements [200, 250)) has other boundaries than");
    other = piece("z", "w", TUTTI_SAME, WIDE); /* what is new does not count, either */
    image = with_piece(2, &other);
    ((float *)image->pieces[1].data)[7] += 1;
    assert_refused(image, TUTTI_ERR_STATE, "has other bits than");
    assert_refused(image_of(3, 1, 0), TUTTI_ERR_STATE,
                   "holders of the state differ: one is of a run of 3 workers of 3 ranks, another of 2 of 2, or their "
                   "settings are not the same");
    image = image_of(2, 1, 0);
    image->facts[3] = 'n';
    assert_refused(image, TUTTI_ERR_STATE, "or their settings are not the same");
}

static void a_manifest_takes_no_more_than_may_be_taken(void **state)
{
    const tutti_saved large = piece("z", "w", TUTTI_SAME, WIDE);
    tutti_image *image = with_piece(2, &large);

    (void)state;
    image->pieces[2].count = image->pieces[2].end = 1 << 20;
    tutti_free(image->pieces[2].data);
    image->pieces[2].data = tutti_alloc(4 << 20, 1);
    assert_refused(image, TUTTI_ERR_MEMORY,
                   "a manifest of state lists more than the 1048576 bytes that may be taken, at 'z/w'");
}

/* ---- manifests ---- */

static tutti_status give(const tutti_elastic_state *of, const uint8_t *bytes, size_t n, tutti_error *err)
{
    newcomer *of_bytes = newcomer_open();
    tutti_status status;

    tutti_fetch_close(of_bytes->f);
    assert_int_equal(tutti_fetch_open(&of_bytes->f,
                                      &(tutti_fetch_options){ .of = *of, .most = 1 << 20, .stall_ns = STALL,
                                                              .request = ask, .user = of_bytes },
                                      NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_fetch_add(of_bytes->f, 0, 1, NULL), TUTTI_OK);
    status = tutti_fetch_manifest(of_bytes->f, 0, 1, bytes, n, err);
    assert_int_equal(tutti_fetch_state_of(of_bytes->f), status == TUTTI_OK ? TUTTI_FETCHING : TUTTI_FETCH_STUCK);
    newcomer_close(of_bytes);
    return status;
}

static void a_damaged_manifest_is_refused_whole(void **state)
{
    const tutti_elastic_state of = state_of_run();
    tutti_image *image = image_of(2, 1, SHARDS | OWNED);
    uint8_t *bytes;
    size_t n;

    (void)state;
    assert_int_equal(tutti_elastic_manifest(image, &of, &bytes, &n, NULL), TUTTI_OK);
    assert_int_equal(give(&of, bytes, n, NULL), TUTTI_OK);
    for (size_t k = 0; k < n; k++) {
        bytes[k] ^= 1 << k % 8;
        assert_int_equal(give(&of, bytes, n, NULL), TUTTI_ERR_CORRUPT);
        bytes[k] ^= 1 << k % 8;
        assert_int_equal(give(&of, bytes, k, NULL), TUTTI_ERR_CORRUPT);
    }
    tutti_free(bytes);
    tutti_image_close(image);
}

static void a_manifest_of_something_else_is_refused(void **state)
{
    static const char *const sentences[] = {
        "a manifest of state is of another run; use an address of this run",
        "a manifest of state is of step 12, and the epoch begins at step 13",
        "a manifest of state has ranges of 64 bytes instead of 128",
    };
    const tutti_elastic_state of = state_of_run();
    tutti_image *image = image_of(2, 1, 0);
    uint8_t *bytes;
    size_t n;
    tutti_error err = { 0 };

    (void)state;
    assert_int_equal(tutti_elastic_manifest(image, &of, &bytes, &n, NULL), TUTTI_OK);
    for (int k = 0; k < 3; k++) {
        tutti_elastic_state other = of;
        other.run[3] ^= k == 0;
        other.step += k == 1;
        other.range_bytes += k == 2 ? RANGE : 0;
        assert_int_equal(give(&other, bytes, n, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, sentences[k]);
    }
    tutti_free(bytes);
    image->step = 11;
    assert_int_equal(tutti_elastic_manifest(image, &of, &bytes, &n, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the state in memory is of step 11, and the manifest is to be of step 12");
    assert_null(bytes);
    tutti_image_close(image);
}

/* ---- images ---- */

/* State that is kept in a tier, which has no address, is copied like any other. */
static void what_is_in_a_tier_is_copied(void **state)
{
    tutti_runtime *rt;
    tutti_tier *tier;
    tutti_io io = { 0 }, *const one = &io;
    float x[WIDE];
    tutti_saved item = piece("x", "w", TUTTI_SAME, WIDE);
    tutti_image *image;

    (void)state;
    for (size_t i = 0; i < WIDE; i++)
        x[i] = (float)i + 0.25f;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_open(&tier, rt, "host", 4096 + sizeof x, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_write(tier, &io, 4096, x, sizeof x, NULL), TUTTI_OK);
    assert_int_equal(tutti_tier_wait(tier, &one, 1, NULL), TUTTI_OK);
    item.tier = tier;
    item.at = 4096;
    assert_int_equal(tutti_image_copy(&image,
                                      &(tutti_image){ .step = STEP, .world = 1, .workers = 1, .whole = true,
                                                      .facts = (char *)"{}" },
                                      &item, 1, NULL),
                     TUTTI_OK);
    tutti_tier_close(tier);
    tutti_runtime_close(rt);
    assert_memory_equal(image->pieces[0].data, x, sizeof x);
    assert_true(image->hash[0] == tutti_hash(x, sizeof x));
    tutti_image_close(image);
}

/* ---- misuse, memory ---- */

static void options_that_cannot_be_are_named(void **state)
{
    const tutti_fetch_options good = { .of = { .range_bytes = RANGE }, .stall_ns = 1, .request = ask };
    static const char *const sentences[] = {
        "state is fetched in ranges of 24 bytes; they must be a multiple of 16",
        "65 requests at a time to one holder of the state; from 1 to 64 are sent",
        "to fetch state, a time after which a holder is passed over, above 0, and a function that sends requests are "
        "needed",
    };
    tutti_error err = { 0 };
    tutti_fetch *f;
    newcomer *n = newcomer_open();

    (void)state;
    for (int k = 0; k < 3; k++) {
        tutti_fetch_options bad = good;
        bad.of.range_bytes = k == 0 ? 24 : RANGE;
        bad.window = k == 1 ? 65 : 0;
        bad.stall_ns = k == 2 ? 0 : 1;
        assert_int_equal(tutti_fetch_open(&f, &bad, &err), TUTTI_ERR_USAGE);
        assert_null(f);
        assert_string_equal(err.text, sentences[k]);
    }
    assert_int_equal(tutti_fetch_add(n->f, 0, 0, NULL), TUTTI_ERR_USAGE);
    add(n, 1, image_of(1, 0, 0));
    assert_int_equal(tutti_fetch_add(n->f, 0, 1, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "holder 1 of the state is known");
    assert_int_equal(tutti_fetch_manifest(n->f, 0, 2, NULL, 0, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "a manifest of state came from 2, which was not asked");
    newcomer_close(n);
    tutti_fetch_close(NULL);
}

/* Wherever memory runs out: that call says so, and nothing is taken for whole that is not. With
   memory again, another holder gives the rest. */
static void memory_runs_out_anywhere(void **state)
{
    bool failed = true;

    (void)state;
    for (int most = 0; failed; most++) {
        newcomer *n = newcomer_open();
        tutti_image *const first = image_of(2, 0, 0), *image = NULL;
        uint8_t *bytes = NULL;
        size_t size;
        tutti_status status;
        n->image[0] = first;
        allocations_left = most;
        status = tutti_fetch_add(n->f, 0, 1, NULL);
        if (status == TUTTI_OK)
            status = tutti_elastic_manifest(first, &n->of, &bytes, &size, NULL);
        if (status == TUTTI_OK)
            status = tutti_fetch_manifest(n->f, 0, 1, bytes, size, NULL);
        tutti_free(bytes);
        failed = status != TUTTI_OK;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        allocations_left = -1;
        assert_true(tutti_fetch_state_of(n->f) != TUTTI_FETCHED);
        if (failed) {
            n->queued = 0;
            add(n, 2, image_of(2, 1, 0));
        } else
            take(n, 0); /* its manifest is here */
        answer_some(n, QUEUE);
        assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCHED);
        for (int room = 0;; room++) { /* a failure leaves all where it is */
            allocations_left = room;
            status = tutti_fetch_take(n->f, &image, NULL);
            allocations_left = -1;
            if (status == TUTTI_OK)
                break;
            assert_int_equal(status, TUTTI_ERR_MEMORY);
        }
        assert_state(image, 2, 0);
        tutti_image_close(image);
        newcomer_close(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_that_differ_are_found),
        cmocka_unit_test(a_manifest_takes_no_more_than_may_be_taken),
        cmocka_unit_test(a_damaged_manifest_is_refused_whole),
        cmocka_unit_test(a_manifest_of_something_else_is_refused),
        cmocka_unit_test(what_is_in_a_tier_is_copied),
        cmocka_unit_test(options_that_cannot_be_are_named),
        cmocka_unit_test(memory_runs_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
