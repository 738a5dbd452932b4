#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "newcomer.h"

/* ---- the run that the state is of ---- */

static float value(int of, size_t i)
{
    return (float)tutti_uniform((tutti_rng){ 3, (uint64_t)of, 0 }, i);
}

tutti_saved piece(const char *state, const char *tensor, tutti_keep keep, uint64_t count)
{
    return (tutti_saved){ .state = state, .tensor = tensor, .keep = keep, .dtype = TUTTI_F32, .owner = -1,
                          .count = count, .end = count };
}

tutti_image *image_of(int world, int rank, int with)
{
    float x[WIDE], b[5], m[WIDE], own[OWN];
    tutti_saved items[5];
    size_t n = 0;
    tutti_image *image = NULL;

    for (size_t i = 0; i < WIDE; i++) {
        x[i] = value(1, i);
        m[i] = value(2, i);
    }
    for (size_t i = 0; i < 5; i++)
        b[i] = value(3, i);
    for (size_t i = 0; i < OWN; i++)
        own[i] = value(10 + rank, i);
    items[n] = piece("x", "w", TUTTI_SAME, WIDE);
    items[n++].data = x;
    if ((with & SHARDS) != 0) {
        items[n] = piece("m", "w", TUTTI_SLICE, WIDE);
        items[n].begin = (uint64_t)(WIDE * rank / world);
        items[n].end = (uint64_t)(WIDE * (rank + 1) / world);
        items[n].data = m + items[n].begin;
        n++;
    }
    items[n] = piece("b", "", TUTTI_SAME, 5);
    items[n++].data = b;
    if ((with & OWNED) != 0) {
        items[n] = piece("client", "", TUTTI_OWN_MEAN, OWN);
        items[n].owner = rank;
        items[n++].data = own;
    }
    assert_int_equal(tutti_image_copy(&image,
                                      &(tutti_image){ .step = STEP, .rank = rank, .world = world, .workers = world,
                                                      .whole = with == 0,
                                                      .facts = (char *)"{\"model\":\"m\"}" },
                                      items, n, NULL),
                     TUTTI_OK);
    return image;
}

/* ---- a newcomer ---- */

void ask(void *user, uint64_t holder, uint64_t range)
{
    newcomer *n = user;
    const size_t k = (size_t)holder - 1;

    assert_true(holder >= 1 && holder <= HOLDERS && n->queued < QUEUE);
    n->queue[n->queued++] = (request){ holder, range };
    if (range == TUTTI_FETCH_MANIFEST)
        return;
    n->asked[k]++;
    n->owed[k]++;
    n->most_owed = n->owed[k] > n->most_owed ? n->owed[k] : n->most_owed;
}

tutti_elastic_state state_of_run(void)
{
    return (tutti_elastic_state){ .run = "fifteen bytes..", .step = STEP, .range_bytes = RANGE };
}

newcomer *newcomer_open(void)
{
    newcomer *n = test_calloc(1, sizeof *n);

    n->of = state_of_run();
    assert_int_equal(tutti_fetch_open(&n->f,
                                      &(tutti_fetch_options){ .of = n->of, .most = 1 << 20, .stall_ns = STALL,
                                                              .request = ask, .user = n },
                                      NULL),
                     TUTTI_OK);
    return n;
}

void newcomer_close(newcomer *n)
{
    tutti_fetch_close(n->f);
    for (int k = 0; k < HOLDERS; k++)
        tutti_image_close(n->image[k]);
    test_free(n);
}

void add(newcomer *n, uint64_t id, tutti_image *image)
{
    tutti_image_close(n->image[id - 1]);
    n->image[id - 1] = image;
    assert_int_equal(tutti_fetch_add(n->f, n->now_ns, id, NULL), TUTTI_OK);
}

request take(newcomer *n, size_t at)
{
    const request r = n->queue[at];

    memmove(n->queue + at, n->queue + at + 1, (n->queued - at - 1) * sizeof *n->queue);
    n->queued--;
    n->owed[r.holder - 1] -= r.range != TUTTI_FETCH_MANIFEST;
    return r;
}

tutti_status answer(newcomer *n, request r, bool spoils, tutti_error *err)
{
    const tutti_image *image = n->image[r.holder - 1];
    uint8_t copy[RANGE], *manifest;
    const void *at;
    size_t bytes;
    tutti_status status;

    if (r.range == TUTTI_FETCH_MANIFEST) {
        assert_int_equal(tutti_elastic_manifest(image, &n->of, &manifest, &bytes, NULL), TUTTI_OK);
        manifest[bytes / 2] ^= spoils ? 16 : 0;
        status = tutti_fetch_manifest(n->f, n->now_ns, r.holder, manifest, bytes, err);
        tutti_free(manifest);
        return status;
    }
    assert_true(tutti_elastic_range(image, &n->of, r.range, &at, &bytes));
    assert_true(bytes >= 1 && bytes <= RANGE);
    memcpy(copy, at, bytes);
    copy[bytes / 2] ^= spoils ? 16 : 0;
    return tutti_fetch_range(n->f, n->now_ns, r.holder, r.range, copy, bytes, err);
}

void answer_some(newcomer *n, size_t most)
{
    for (size_t k = 0; k < most && n->queued > 0; k++) {
        tutti_error err = { 0 };
        if (answer(n, take(n, 0), false, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    }
}

void forget(newcomer *n, uint64_t holder)
{
    for (size_t k = n->queued; k-- > 0;)
        if (n->queue[k].holder == holder)
            take(n, k);
}

int asked_in_all(const newcomer *n)
{
    int sum = 0;

    for (int k = 0; k < HOLDERS; k++)
        sum += n->asked[k];
    return sum;
}

void assert_described(const newcomer *n, const char *sentence)
{
    char text[300];

    tutti_fetch_describe(n->f, text, sizeof text);
    if (strcmp(text, sentence) != 0)
        fail_msg("%s", text);
}

/* All that the run has, read from the checkpoint that was fetched. */
void assert_state(const tutti_image *image, int world, int with)
{
    tutti_checkpoint *c = NULL;
    float x[WIDE], b[5], m[WIDE], own[OWN];
    tutti_error err = { 0 };
    tutti_saved target;

    if (tutti_image_checkpoint(&c, image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_checkpoint_step(c), STEP);
    assert_int_equal(tutti_checkpoint_world(c), world);
    assert_string_equal(tutti_checkpoint_facts(c), "{\"model\":\"m\"}");
    assert_int_equal(tutti_checkpoint_verify(c, NULL), TUTTI_OK);
    target = piece("x", "w", TUTTI_SAME, WIDE);
    target.data = x;
    assert_int_equal(tutti_checkpoint_read(c, &target, 1, NULL), TUTTI_OK);
    target = piece("b", "", TUTTI_SAME, 5);
    target.data = b;
    assert_int_equal(tutti_checkpoint_read(c, &target, 1, NULL), TUTTI_OK);
    for (size_t i = 0; i < WIDE; i++)
        assert_true(x[i] == value(1, i));
    for (size_t i = 0; i < 5; i++)
        assert_true(b[i] == value(3, i));
    target = piece("m", "w", TUTTI_SLICE, WIDE);
    target.begin = 3; /* another cut than that of any rank */
    target.data = m;
    assert_true(tutti_checkpoint_has(c, "m") == ((with & SHARDS) != 0));
    if ((with & SHARDS) != 0) {
        assert_int_equal(tutti_checkpoint_read(c, &target, 1, NULL), TUTTI_OK);
        for (size_t i = 3; i < WIDE; i++)
            assert_true(m[i - 3] == value(2, i));
    }
    for (int r = 0; r < world && (with & OWNED) != 0; r++) {
        target = piece("client", "", TUTTI_OWN_MEAN, OWN);
        target.owner = r;
        target.data = own;
        assert_int_equal(tutti_checkpoint_read(c, &target, 1, NULL), TUTTI_OK);
        for (size_t i = 0; i < OWN; i++)
            assert_true(own[i] == value(10 + r, i));
    }
    tutti_checkpoint_close(c);
}

void assert_fetched(newcomer *n, int world, int with)
{
    tutti_image *image = NULL;
    uint64_t here, needed;
    tutti_error err = { 0 };

    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCHED);
    tutti_fetch_progress(n->f, &here, &needed);
    assert_true(here == needed);
    assert_true(tutti_fetch_tick(n->f, n->now_ns) == INT64_MAX);
    assert_int_equal(tutti_fetch_take(n->f, &image, NULL), TUTTI_OK);
    assert_state(image, world, with);
    tutti_image_close(image);
    assert_int_equal(tutti_fetch_take(n->f, &image, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "the state of step 12 is taken already");
}
