/* Goal: what workers have of the state in memory is what they would write to a checkpoint, and a
   run that others continue from there, in another number, has the bits of an undisturbed one.
   Method: the client of engine/logical (logical_job.h). The images of all ranks, or of those that
   are left, go through manifests and ranges to a newcomer, which opens what it has as a checkpoint.
   The reference is a run that is not disturbed, and the directory that tutti_engine_save writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "logical_job.h"
#include "scratch.h"
#include "elastic/state.h"
#include "engine/image.h"
#include "tutti/files.h"

enum { SHARES = 12, RANGE = 256 };

typedef struct leg {
    job j;
    uint64_t until;                      /* steps done at its end */
    const tutti_image *from;             /* NULL: it is the first one */
    bool copied;                         /* the images have copies of what the next worker has */
    uint64_t sent[RANKS];                /* bytes, for those */
    tutti_image *image[RANKS];           /* at its end */
    const char *directory;               /* and a checkpoint; NULL: none */
    float x[SIZE];                       /* of rank 0, at its end */
    float own[OWN];
} leg;

static tutti_status begin(leg *l, tutti_engine *e, tutti_error *err)
{
    tutti_checkpoint *c;
    tutti_status status;

    if (l->from == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_image_checkpoint(&c, l->from, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static tutti_status end(leg *l, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int rank = m->rank;
    float x[SIZE];

    tutti_figures before, after;

    tutti_engine_figures(e, &before);
    TUTTI_TRY((l->copied ? tutti_engine_image_copied : tutti_engine_image)(e, "{\"a\":1}", &l->image[rank], err));
    tutti_engine_figures(e, &after);
    l->sent[rank] = after.bytes_sent - before.bytes_sent;
    if (l->directory != NULL)
        TUTTI_TRY(tutti_engine_save(e, l->directory, "{\"a\":1}", 0, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (rank < m->workers)
        TUTTI_TRY(job_values(e, x, err));
    if (rank == 0)
        memcpy(l->x, x, sizeof l->x);
    if (rank == 0 && l->j.options.own_values > 0)
        memcpy(l->own, tutti_engine_client_state(e), sizeof l->own);
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    leg *l = arg;
    tutti_engine *e = NULL;
    tutti_status status = job_open(&e, world, &l->j, err);
    bool serves = status == TUTTI_OK && tutti_engine_method(e)->rank >= tutti_engine_method(e)->workers;

    if (status == TUTTI_OK)
        status = begin(l, e, err);
    while (status == TUTTI_OK && !serves && tutti_engine_method(e)->step < l->until)
        status = job_step(&l->j, e, err);
    if (status == TUTTI_OK)
        status = end(l, e, err);
    tutti_engine_close(e);
    return status;
}

static void go(leg *l, int n)
{
    tutti_error err;

    if (tutti_world_run("shm", n, run_rank, l, &err) != TUTTI_OK)
        fail_msg("%s, %d workers, until step %d: %s", l->j.options.method, n, (int)l->until, err.text);
}

static void close_images(leg *l)
{
    for (int k = 0; k < RANKS; k++) {
        tutti_image_close(l->image[k]);
        l->image[k] = NULL;
    }
}

/* ---- from member to newcomer ---- */

typedef struct wire { uint64_t holder[2 * RANKS], range[2 * RANKS]; size_t n; } wire;

static void ask(void *user, uint64_t holder, uint64_t range)
{
    wire *w = user;

    assert_true(w->n < 2 * RANKS);
    w->holder[w->n] = holder;
    w->range[w->n++] = range;
}

static void answer(tutti_fetch *f, const tutti_elastic_state *of, const tutti_image *image, uint64_t holder,
                   uint64_t range)
{
    tutti_error err = { 0 };
    uint8_t *manifest;
    const void *at;
    size_t bytes;
    tutti_status status;

    if (range != TUTTI_FETCH_MANIFEST) {
        assert_true(tutti_elastic_range(image, of, range, &at, &bytes));
        status = tutti_fetch_range(f, 0, holder, range, at, bytes, &err);
    } else {
        assert_int_equal(tutti_elastic_manifest(image, of, &manifest, &bytes, NULL), TUTTI_OK);
        status = tutti_fetch_manifest(f, 0, holder, manifest, bytes, &err);
        tutti_free(manifest);
    }
    if (status != TUTTI_OK)
        fail_msg("holder %d: %s", (int)holder, err.text);
}

/* What a newcomer has after it has asked those that are in `left`. NULL: not all is there. */
static tutti_image *fetched(const leg *l, int n, unsigned left)
{
    const tutti_elastic_state of = { .run = "images", .step = l->until, .range_bytes = RANGE };
    wire w = { 0 };
    tutti_fetch *f;
    tutti_image *image = NULL;

    assert_int_equal(tutti_fetch_open(&f,
                                      &(tutti_fetch_options){ .of = of, .most = 1 << 20, .window = 1, .stall_ns = 1,
                                                              .request = ask, .user = &w },
                                      NULL),
                     TUTTI_OK);
    for (int r = 0; r < n; r++)
        if ((left >> r & 1) != 0)
            assert_int_equal(tutti_fetch_add(f, 0, (uint64_t)r + 1, NULL), TUTTI_OK);
    while (w.n > 0) {
        const uint64_t holder = w.holder[w.n - 1], range = w.range[w.n - 1];
        w.n--;
        answer(f, &of, l->image[holder - 1], holder, range);
    }
    if (tutti_fetch_state_of(f) == TUTTI_FETCHED)
        assert_int_equal(tutti_fetch_take(f, &image, NULL), TUTTI_OK);
    tutti_fetch_close(f);
    return image;
}

/* ---- what it is ---- */

/* All elements of that state of that owner, or NULL if that checkpoint does not have them. */
static void *whole(tutti_checkpoint *c, tutti_saved piece)
{
    void *data = test_calloc((size_t)piece.count + 1, tutti_dtype_bytes(piece.dtype));
    tutti_error err = { 0 };

    piece.begin = 0;
    piece.end = piece.count;
    piece.data = data;
    if (tutti_checkpoint_read(c, &piece, 1, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return data;
}

/* Each state that `a` has, `b` has, too, with the same elements. */
static void assert_holds(tutti_checkpoint *a, tutti_checkpoint *b)
{
    tutti_saved piece;

    for (size_t i = 0; tutti_checkpoint_piece(a, i, &piece); i++) {
        void *one = whole(a, piece), *other = whole(b, piece);
        assert_memory_equal(one, other, (size_t)piece.count * tutti_dtype_bytes(piece.dtype));
        test_free(one);
        test_free(other);
    }
}

static void assert_is_directory(const tutti_image *image, const char *directory)
{
    tutti_checkpoint *a, *b;
    char found[SCRATCH_PATH + 64];
    tutti_runtime *rt;
    tutti_error err = { 0 };

    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&a, rt, found, NULL), TUTTI_OK);
    if (tutti_image_checkpoint(&b, image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_checkpoint_step(a), tutti_checkpoint_step(b));
    assert_int_equal(tutti_checkpoint_world(a), tutti_checkpoint_world(b));
    assert_string_equal(tutti_checkpoint_facts(a), tutti_checkpoint_facts(b));
    assert_holds(a, b);
    assert_holds(b, a);
    tutti_checkpoint_close(a);
    tutti_checkpoint_close(b);
    tutti_runtime_close(rt);
}

/* With it a worker has copies of the next one's shards. */
static bool always(void *user, uint64_t step)
{
    (void)user;
    (void)step;
    return true;
}

static void images_of_all_ranks_are_the_checkpoint(void **state)
{
    static const struct { const char *method, *codec; int n, shares; bool commit; } of[] = {
        { "ddp", NULL, 3, SHARES }, { "bytescheduler(partition_mb=0.0005)", NULL, 2, 0 },
        { "zero", NULL, 4, SHARES }, { "zero(group=2)", NULL, 4, 0 }, { "ddp", "ef(sign)", 3, 0 },
        { "zero(stage=2)", NULL, 4, SHARES }, { "zero(stage=2)", NULL, 3, SHARES, true },
        { "zero(stage=3)", NULL, 4, SHARES }, { "zero(stage=3)", NULL, 3, SHARES, true },
        { "zero(stage=3,group=2)", NULL, 4, 0, true },
        { "zero", NULL, 4, SHARES, true }, { "zero", NULL, 2, 0, true }, { "zero(group=2)", NULL, 4, 0, true },
        { "powersgd", NULL, 2, 0 }, { "powersgd", NULL, 3, SHARES }, { "ddp", "ef(randomk)", 4, SHARES },
        { "local-sgd(period=2)", NULL, 3, 0 }, { "d-psgd", NULL, 4, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        leg *l = test_calloc(1, sizeof *l);
        char directory[SCRATCH_PATH];
        tutti_image *image;
        scratch_make(directory);
        l->j = job_of(of[k].method, of[k].shares);
        l->j.matrices = true;
        l->j.options.codec = of[k].codec;
        l->j.options.commit = of[k].commit ? always : NULL;
        l->j.options.own_values = OWN;
        l->until = 4;
        l->directory = directory;
        go(l, of[k].n);
        image = fetched(l, of[k].n, ~0U);
        if (image == NULL)
            fail_msg("%s: the images are not all", of[k].method);
        assert_is_directory(image, directory);
        tutti_image_close(image);
        close_images(l);
        scratch_remove(directory);
        test_free(l);
    }
}

/* ---- who goes on from there ---- */

enum { ZERO = 1, COPIES = 3 };
static const char *const methods[] = {
    "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)", "zero(bucket_mb=0.001,first_bucket_mb=0.0005)",
    "bytescheduler(partition_mb=0.0005,credit_mb=0.002,fuse_mb=0.0002)",
    "zero(bucket_mb=0.001,first_bucket_mb=0.0005)", "zero(stage=2,bucket_mb=0.001,first_bucket_mb=0.0005)",
    "zero(stage=3,bucket_mb=0.001,first_bucket_mb=0.0005)",
    "zero(stage=3,bucket_mb=0.001,first_bucket_mb=0.0005,persist=40)"
};
enum { VALUES = 5 };

/* The run that nobody leaves or joins. */
static leg *undisturbed(int shares, int workers)
{
    leg *l = test_calloc(1, sizeof *l);

    l->j = job_of("ddp", shares);
    l->j.options.own_values = OWN;
    l->until = 12;
    go(l, workers);
    close_images(l);
    return l;
}

/* n goes 4 -> 3 -> 2 -> 6, three steps each. A newcomer gets the state of all, or, where a worker
   has all, or copies of the next one's shards, of those that are left when rank 0 is lost. */
static void any_number_goes_on_with_the_bits_of_an_undisturbed_run(void **state)
{
    static const int workers[] = { 4, 3, 2, 6 };
    leg *const plain = undisturbed(0, SHARES), *const shared = undisturbed(SHARES, 5),
        *const l = test_calloc(1, sizeof *l);

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        const unsigned left = k == ZERO ? ~0U : ~1U;
        tutti_image *image = NULL;
        *l = (leg){ .j = job_of(methods[k], SHARES) };
        l->j.options.own_values = OWN;
        l->j.options.commit = k >= COPIES ? always : NULL;
        for (size_t i = 0; i < TUTTI_LENGTH(workers); i++) {
            l->until += 3;
            l->from = image;
            go(l, workers[i]);
            tutti_image_close(image);
            image = fetched(l, workers[i], left);
            assert_non_null(image);
            close_images(l);
        }
        tutti_image_close(image);
        assert_memory_equal(l->x, plain->x, sizeof l->x);
        assert_memory_equal(l->own, shared->own, sizeof l->own);
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(l->j.taken[i], plain->j.taken[i]);
    }
    test_free(plain);
    test_free(shared);
    test_free(l);
}

/* Residuals and momenta of shares go where the shares go. */
static void what_a_share_keeps_goes_on_with_any_number(void **state)
{
    static const int workers[] = { 4, 3, 2, 6 };
    static const struct { const char *method, *codec; } of[] = {
        { "powersgd(bucket_mb=0.0005)", NULL },
        { "powersgd(rank=2,iters_per_step=2,ef_rule=aggregated,start_iter=4)", NULL },
        { "ddp", "ef(powersgd,momentum=0.5,lr=inside)" },
        { "ddp", "ef(randomk(ratio=0.2),flush_every=5)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        leg *const plain = test_calloc(1, sizeof *plain), *const l = test_calloc(1, sizeof *l);
        tutti_image *image = NULL;
        plain->j = job_of(of[k].method, 0);
        plain->j.options.codec = of[k].codec;
        plain->j.options.lr_schedule = "step(every=4,gamma=0.5)";
        plain->j.matrices = true;
        plain->until = 12;
        *l = *plain;
        l->j.options.elastic_shares = SHARES;
        l->j.options.commit = k % 2 == 0 ? always : NULL;
        l->until = 0;
        go(plain, SHARES);
        close_images(plain);
        for (size_t i = 0; i < TUTTI_LENGTH(workers); i++) {
            l->until += 3;
            l->from = image;
            go(l, workers[i]);
            tutti_image_close(image);
            assert_null(fetched(l, workers[i], ~1U)); /* one has what no other has */
            image = fetched(l, workers[i], ~0U);
            assert_non_null(image);
            close_images(l);
        }
        tutti_image_close(image);
        assert_memory_equal(l->x, plain->x, sizeof l->x);
        test_free(plain);
        test_free(l);
    }
}

/* After a round all is common: each worker by itself has it, and any number goes on. */
static void any_worker_has_all_that_outlives_a_round(void **state)
{
    static const int workers[] = { 4, 3, 2, 6 };
    static const char *const of[] = { "local-sgd(period=2)", "diloco(period=3)",
                                      "slowmo(period=2,buffers=reset)", "palsgd(period=2,form=elastic)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        leg *const whole = test_calloc(1, sizeof *whole), *const l = test_calloc(1, sizeof *l);
        tutti_image *image = NULL;
        whole->j = job_of(of[k], SHARES);
        whole->j.options.own_values = OWN;
        whole->until = 12;
        *l = *whole;
        l->j.options.commit = always;
        go(whole, 5);
        close_images(whole);
        l->until = 0;
        for (size_t i = 0; i < TUTTI_LENGTH(workers); i++) {
            l->until += 3;
            l->from = image;
            go(l, workers[i]);
            tutti_image_close(image);
            image = NULL;
            for (int r = 0; r < workers[i]; r++) {
                tutti_image_close(image);
                image = fetched(l, workers[i], 1U << r);
                if (image == NULL)
                    fail_msg("%s: worker %d of %d has not all", of[k], r, workers[i]);
            }
            close_images(l);
        }
        tutti_image_close(image);
        assert_memory_equal(l->x, whole->x, sizeof l->x);
        assert_memory_equal(l->own, whole->own, sizeof l->own);
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(l->j.taken[i], whole->j.taken[i]);
        test_free(whole);
        test_free(l);
    }
}

static void assert_same_image(const tutti_image *a, const tutti_image *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t k = 0; k < a->n; k++)
        assert_true(tutti_image_order(&a->pieces[k], &b->pieces[k]) == 0 && a->hash[k] == b->hash[k]);
    assert_string_equal(a->facts, b->facts);
}

/* Any workers may be lost unless two are neighbours: all sets of them are tried. */
static void a_lost_shard_is_at_the_worker_before_it(void **state)
{
    (void)state;
    for (int k = 0; k < 15; k++) {
        const int n = 1 + k / 3;
        leg *l = test_calloc(1, sizeof *l);
        tutti_image *all;
        l->j = job_of(methods[k % 3 == 0 ? ZERO : VALUES], SHARES);
        l->j.options.own_values = OWN;
        l->j.options.optimizer = k % 3 == 1 ? "sgd(lr=0.1)" : "adamw(lr=0.01)"; /* values, but no slots */
        l->j.options.commit = always;
        l->until = 3;
        go(l, n);
        all = fetched(l, n, ~0U);
        for (unsigned left = 1; left < 1U << n; left++) {
            tutti_image *image = fetched(l, n, left);
            bool there = true;
            for (int r = 0; r < n; r++)
                there = there && ((left >> r & 1) != 0 || (left >> (r + n - 1) % n & 1) != 0);
            if ((image != NULL) != there)
                fail_msg("%d workers, of which %x are left: %s", n, left, there ? "it is stuck" : "it has all");
            if (image != NULL)
                assert_same_image(image, all);
            tutti_image_close(image);
        }
        tutti_image_close(all);
        close_images(l);
        test_free(l);
    }
}

/* Bytes of the residuals and momenta of shares. */
static uint64_t bytes_of_shares(const tutti_image *image, size_t *pieces)
{
    uint64_t bytes = 0;

    *pieces = 0;
    for (size_t k = 0; k < image->n; k++)
        if (image->pieces[k].keep == TUTTI_SLICE) {
            bytes += tutti_image_bytes(&image->pieces[k]);
            ++*pieces;
        }
    return bytes;
}

static void assert_has_it_of(const tutti_image *image, const tutti_image *part)
{
    for (size_t k = 0; k < part->n; k++) {
        bool there = false;
        for (size_t i = 0; i < image->n; i++)
            there = there || (tutti_image_order(&image->pieces[i], &part->pieces[k]) == 0 &&
                              image->hash[i] == part->hash[k] &&
                              memcmp(image->pieces[i].data, part->pieces[k].data,
                                     (size_t)tutti_image_bytes(&part->pieces[k])) == 0);
        assert_true(there);
    }
}

/* Each worker sends what it has of shares to the one before it, with 32 bytes a piece and 16 more.
   Any workers may be lost then unless two are neighbours. Those that have all send nothing. */
static void what_a_lost_worker_kept_of_shares_is_at_the_worker_before_it(void **state)
{
    static const struct { const char *method, *codec; size_t pieces; } of[] = {
        { "powersgd(bucket_mb=0.0005)", NULL, 1 }, { "ddp", "ef(powersgd,momentum=0.5,lr=inside)", 2 },
        { "ddp", NULL, 0 }, { "zero", NULL, 0 }
    };

    (void)state;
    for (size_t k = 0; k < 5 * TUTTI_LENGTH(of); k++) {
        const size_t m = k / 5;
        const int n = 1 + (int)(k % 5);
        leg *l = test_calloc(1, sizeof *l), *plain = test_calloc(1, sizeof *plain);
        tutti_image *all;
        l->j = job_of(of[m].method, SHARES);
        l->j.options.codec = of[m].codec;
        l->j.options.commit = always;
        l->j.options.own_values = OWN;
        l->j.matrices = true;
        l->until = 3;
        *plain = *l;
        l->copied = true;
        go(l, n);
        go(plain, n);
        all = fetched(plain, n, ~0U);
        for (int r = 0; r < n; r++) {
            size_t pieces;
            const uint64_t bytes = bytes_of_shares(plain->image[r], &pieces);
            const bool sends = of[m].pieces > 0 && n > 1;
            assert_true(of[m].pieces == 0 || pieces == of[m].pieces);
            assert_true(of[m].pieces == 0 || n == 5 || bytes == SHARES / (unsigned)n * pieces * 4 * SIZE);
            assert_int_equal(l->sent[r], sends ? 16 + 32 * pieces + bytes : 0);
            assert_int_equal(l->image[r]->copies, sends ? 1 : plain->image[r]->copies);
            assert_has_it_of(l->image[r], plain->image[r]);
            if (sends)
                assert_has_it_of(l->image[r], plain->image[(r + 1) % n]);
            else
                assert_int_equal(l->image[r]->n, plain->image[r]->n);
        }
        for (unsigned left = 1; left < 1U << n; left++) {
            tutti_image *image = fetched(l, n, left);
            bool there = true;
            for (int r = 0; r < n; r++)
                there = there && ((left >> r & 1) != 0 || (left >> (r + n - 1) % n & 1) != 0);
            if ((image != NULL) != (there || m == 2))
                fail_msg("%s, %d workers, of which %x are left: %s", of[m].method, n, left,
                         there ? "it is stuck" : "it has all");
            if (image != NULL)
                assert_same_image(image, all);
            tutti_image_close(image);
        }
        tutti_image_close(all);
        close_images(l);
        close_images(plain);
        test_free(l);
        test_free(plain);
    }
}

/* A shard, or what a worker has for itself, is lost with it. */
static void what_is_lost_with_a_worker_is_not_taken_for_whole(void **state)
{
    static const char *const of[] = { "zero", "local-sgd(period=2)", "ddp" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        leg *l = test_calloc(1, sizeof *l);
        l->j = job_of(of[k], 0);
        l->j.options.own_values = OWN; /* without logical shares each worker has others */
        l->until = 2;
        go(l, 3);
        for (int lost = 0; lost < 3; lost++)
            assert_null(fetched(l, 3, ~(1U << lost)));
        close_images(l);
        test_free(l);
    }
}

/* A client's pieces stand among those of the engine, travel with them, and change nothing that is
   loaded. */
static void a_clients_pieces_travel_with_the_engines(void **state)
{
    static const uint8_t bytes[] = { 7, 0, 255 };
    static const char *const names[] = { "a", "zz", "elastic" };
    tutti_saved own[TUTTI_LENGTH(names)];
    leg *const l = test_calloc(1, sizeof *l), *const plain = undisturbed(SHARES, 5);
    tutti_image *image;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        own[k] = (tutti_saved){ .state = names[k], .tensor = "", .dtype = TUTTI_U8, .keep = TUTTI_SAME, .owner = -1,
                                .count = k + 1, .end = k + 1, .data = (void *)(uintptr_t)bytes };
    *l = (leg){ .j = job_of(methods[COPIES], SHARES), .until = 5 };
    l->j.options.own_values = OWN;
    l->j.options.commit = always;
    go(l, 4);
    for (int r = 0; r < 4; r++) {
        const size_t n = l->image[r]->n;
        assert_int_equal(tutti_image_add(l->image[r], own, TUTTI_LENGTH(own), NULL), TUTTI_OK);
        assert_int_equal(l->image[r]->n, n + TUTTI_LENGTH(own));
        for (size_t k = 1; k < l->image[r]->n; k++)
            assert_true(tutti_image_order(&l->image[r]->pieces[k - 1], &l->image[r]->pieces[k]) < 0);
    }
    image = fetched(l, 4, ~1U);
    assert_non_null(image);
    for (size_t k = 0, found = 0; k < image->n || found < TUTTI_LENGTH(names); k++) {
        assert_true(k < image->n);
        for (size_t i = 0; i < TUTTI_LENGTH(names); i++)
            if (strcmp(image->pieces[k].state, names[i]) == 0) {
                assert_memory_equal(image->pieces[k].data, bytes, i + 1);
                found++;
            }
    }
    close_images(l);
    l->from = image;
    l->until = 12;
    go(l, 3);
    assert_memory_equal(l->x, plain->x, sizeof l->x);
    tutti_image_close(image);
    close_images(l);
    test_free(plain);
    test_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_of_all_ranks_are_the_checkpoint),
        cmocka_unit_test(any_number_goes_on_with_the_bits_of_an_undisturbed_run),
        cmocka_unit_test(what_a_share_keeps_goes_on_with_any_number),
        cmocka_unit_test(any_worker_has_all_that_outlives_a_round),
        cmocka_unit_test(a_lost_shard_is_at_the_worker_before_it),
        cmocka_unit_test(what_a_lost_worker_kept_of_shares_is_at_the_worker_before_it),
        cmocka_unit_test(what_is_lost_with_a_worker_is_not_taken_for_whole),
        cmocka_unit_test(a_clients_pieces_travel_with_the_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
