/* Checkpoints: what some ranks saved, any others read; equal saves are equal files; what does
   not fit together is refused on every rank with the rank's name; what is damaged is seen and
   passed over. Files are in memory. */
#include "saved.h"
#include "runtime/files.h"

typedef struct fixture { memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->m = memory_files_open(NULL);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    memory_files_close(f->m);
    free(f);
    return 0;
}

static void checkpoint_is_read_by_any_number_of_ranks(void **state)
{
    fixture *f = *state;

    for (int size = 1; size <= 3; size++) {
        char found[100], dir[20];
        snprintf(dir, sizeof dir, "run%d/checkpoints", size);
        assert_int_equal(save_plain(&f->m->rt, dir, size, 1200, size, 2), TUTTI_OK);
        assert_int_equal(tutti_checkpoint_find(&f->m->rt, dir, found, sizeof found, NULL, 0, NULL), TUTTI_OK);
        for (int readers = 1; readers <= 4; readers++)
            expect_whole(&f->m->rt, found, size, readers, size);
        assert_int_equal(memory_files_count(f->m, dir, ""), 1);
        assert_int_equal(memory_files_count(f->m, found, "rank-"), size);
        assert_int_equal(memory_files_count(f->m, found, ""), size + 1);
    }
}

static void turn_round(holding *h, int rank, int size)
{
    holding own = *h;
    hold(h, size - 1 - rank, size, false);
    for (int k = 4; k < KINDS; k++) { /* its own stays its own */
        h->items[k] = own.items[k];
        h->items[k].data = h->memory[k];
    }
    fill(h, 5);
}

static void ranks_may_save_any_part_of_global_state(void **state)
{
    fixture *f = *state;
    saving s = { .files = &f->m->rt, .dir = "a", .facts = "{\"seed\": 7}", .step = 20, .keep = 1, .spoil = turn_round };

    assert_int_equal(save_by(&s, 3), TUTTI_OK);
    expect_whole(&f->m->rt, "a/step-00000020", 3, 3, 5);
}

static void equal_saves_give_equal_files(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {
        "manifest.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors",
    };

    assert_int_equal(save_plain(&f->m->rt, "a", 2, 5, 1, 2), TUTTI_OK);
    assert_int_equal(save_plain(&f->m->rt, "b", 2, 5, 1, 2), TUTTI_OK);
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++) {
        char path[100];
        size_t n, other_n;
        uint8_t *one, *other;
        snprintf(path, sizeof path, "a/step-00000005/%s", names[k]);
        one = memory_files_get(f->m, path, &n);
        path[0] = 'b';
        other = memory_files_get(f->m, path, &other_n);
        assert_non_null(one);
        assert_int_equal(n, other_n);
        assert_memory_equal(one, other, n);
    }
}

static void the_manifest_is_the_json_that_is_documented(void **state)
{
    static const char begin[] = "{\n \"facts\": {\n  \"seed\": 7\n },\n \"files\": [\n  {\n   \"bytes\": ";
    fixture *f = *state;
    json_t *root, *state0;
    uint8_t *text;
    size_t n;

    assert_int_equal(save_plain(&f->m->rt, "a", 1, 5, 1, 2), TUTTI_OK);
    text = memory_files_get(f->m, "a/step-00000005/manifest.json", &n);
    assert_memory_equal(text, begin, sizeof begin - 1);
    root = json_loadb((const char *)text, n, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "format")), "tutti-checkpoint");
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 5);
    assert_int_equal(json_integer_value(json_object_get(root, "world")), 1);
    assert_string_equal(json_string_value(json_object_get(root, "version")), tutti_version());
    assert_int_equal(json_array_size(json_object_get(root, "states")), KINDS);
    state0 = json_array_get(json_object_get(root, "states"), 1); /* by name: ef.residual is first but one */
    assert_string_equal(json_string_value(json_object_get(state0, "state")), "engine.step");
    assert_string_equal(json_string_value(json_object_get(state0, "keep")), "same");
    assert_string_equal(json_string_value(json_object_get(state0, "dtype")), "I64");
    json_decref(root);
}

static void only_the_newest_are_kept(void **state)
{
    fixture *f = *state;

    for (uint64_t step = 10; step <= 50; step += 10)
        assert_int_equal(save_plain(&f->m->rt, "a", 1, step, (int)step, 3), TUTTI_OK);
    assert_int_equal(memory_files_count(f->m, "a", ""), 3);
    expect_whole(&f->m->rt, "a/step-00000030", 1, 1, 30);
    expect_whole(&f->m->rt, "a/step-00000040", 1, 1, 40);

    /* A run that went back to step 30 now saves step 35: that checkpoint stays, though two others
       have higher numbers. */
    assert_int_equal(save_plain(&f->m->rt, "a", 1, 35, 35, 1), TUTTI_OK);
    assert_int_equal(memory_files_count(f->m, "a", ""), 1);
    expect_whole(&f->m->rt, "a/step-00000035", 1, 1, 35);

    for (uint64_t step = 60; step <= 90; step += 10)
        assert_int_equal(save_plain(&f->m->rt, "a", 1, step, (int)step, 0), TUTTI_OK); /* 0: all */
    assert_int_equal(memory_files_count(f->m, "a", ""), 5);

    /* One that is damaged does not count, and what is not ours is left alone. */
    memory_files_put(f->m, "a/step-00000080/manifest.json", "{}", 2);
    memory_files_put(f->m, "a/notes/mine.txt", "x", 1);
    memory_files_put(f->m, "a/step-00000035/mine.txt", "x", 1);
    memory_files_put(f->m, "a/tmp-00000077-0123456789abcdef/manifest.json.part", "x", 1);
    assert_int_equal(save_plain(&f->m->rt, "a", 1, 100, 100, 3), TUTTI_OK);
    assert_int_equal(memory_files_count(f->m, "a", "step-"), 4);
    expect_whole(&f->m->rt, "a/step-00000070", 1, 1, 70);
    assert_int_equal(memory_files_count(f->m, "a/step-00000035", ""), 1);
    assert_int_equal(memory_files_count(f->m, "a", "tmp-"), 0);
    assert_int_equal(memory_files_count(f->m, "a/notes", ""), 1);
}

static void a_step_can_be_saved_again(void **state)
{
    fixture *f = *state;
    size_t n;

    assert_int_equal(save_plain(&f->m->rt, "a", 2, 10, 1, 2), TUTTI_OK);
    assert_int_equal(save_plain(&f->m->rt, "a", 3, 10, 2, 2), TUTTI_OK);
    expect_whole(&f->m->rt, "a/step-00000010", 3, 2, 2);
    assert_int_equal(memory_files_count(f->m, "a", ""), 1);
    memory_files_get(f->m, "a/step-00000010/manifest.json", &n);
    memory_files_put(f->m, "a/step-00000010/manifest.json", "x", 1); /* and so can a damaged one */
    assert_int_equal(save_plain(&f->m->rt, "a", 1, 10, 3, 2), TUTTI_OK);
    expect_whole(&f->m->rt, "a/step-00000010", 1, 1, 3);
    assert_int_equal(memory_files_count(f->m, "a", ""), 1);
}

/* ---- what is not saved ---- */

static void spoil_hole(holding *h, int rank, int size) { if (rank == size - 1) h->items[0].end -= 2; }
static void spoil_overlap(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[0].begin -= 1; }
static void spoil_count(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[0].count = 38; }
static void spoil_dtype(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[0].dtype = TUTTI_I32; }
static void spoil_keep(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[2].keep = TUTTI_SCRATCH; }
static void spoil_owner(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[4].owner = 0; }
static void spoil_nobody(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[4].owner = -1; }
static void spoil_range(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[2].end = 38; }
static void spoil_data(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[2].data = NULL; }
static void spoil_state(holding *h, int rank, int size) { (void)size; (void)rank; h->items[5].state = "a/b"; }
static void spoil_twice(holding *h, int rank, int size) { (void)size; if (rank == 1) h->items[1] = h->items[0]; }
static void spoil_huge(holding *h, int rank, int size)
{
    (void)size;
    if (rank == 0)
        h->items[5].count = UINT64_C(1) << 62, h->items[5].dtype = TUTTI_F64;
}

static void inconsistent_items_are_rejected_on_every_rank(void **state)
{
    fixture *f = *state;
    static const struct { void (*spoil)(holding *h, int rank, int size); int rank; const char *text;
    } cases[] = {
        { spoil_hole, 0, "rank 0: the ranks' parts do not make a whole: 'x/0.weight' lacks elements [35, 37) of 37" },
        { spoil_overlap, 0,
          "rank 0: the ranks' parts do not make a whole: 'x/0.weight' has elements from 11 in two ranges; each must be "
          "saved once" },
        { spoil_count, 1,
          "rank 1: 'x/0.weight' is 38 elements of F32 kept 'same' on rank 1, but 37 of F32 kept 'same' on rank 0; all "
          "ranks must declare it identically" },
        { spoil_dtype, 1,
          "rank 1: 'x/0.weight' is 37 elements of I32 kept 'same' on rank 1, but 37 of F32 kept 'same' on rank 0; all "
          "ranks must declare it identically" },
        { spoil_keep, 1, "rank 1: 'optim.m/0.weight' is kept 'scratch', which is not saved" },
        { spoil_owner, 1, "rank 1: 'ef.residual/0.weight' is rank 0's own and only that rank can save it" },
        { spoil_nobody, 0,
          "rank 0: the ranks' parts do not make a whole: 'ef.residual/0.weight' is kept 'own-sum' and cannot be owned "
          "by rank -1 of 3" },
        { spoil_range, 1, "rank 1: 'optim.m/0.weight' has no elements [12, 38) of 37 to save" },
        { spoil_data, 1, "rank 1: 'optim.m/0.weight' has no elements [12, 24) of 37 to save" },
        { spoil_state, 0,
          "rank 0: the ranks' parts do not make a whole: no state can be named 'a/b/' (UTF-8, no '/' in the state, no "
          "'@' in the tensor, at "
          "most 1000 bytes in all)" },
        { spoil_twice, 1,
          "rank 1: cannot write 'a/tmp-00000020-5a5a5a5a5a5a5a5a/rank-00001-of-00003.safetensors': two tensors are "
          "named 'x/0.weight@12'" },
        { spoil_huge, 0, "rank 0: 'note/' has 4611686018427387904 elements, more than memory can hold" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        saving s = {
            .files = &f->m->rt, .dir = "a", .facts = "{\"seed\": 7}", .step = 20, .keep = 1, .spoil = cases[k].spoil
        };
        char text[480];
        assert_int_equal(save_plain(&f->m->rt, "a", 2, 10, 1, 1), TUTTI_OK);
        assert_int_equal(save_by(&s, 3), TUTTI_ERR_USAGE);
        snprintf(text, sizeof text, "cannot save the checkpoint of step 20: %s", cases[k].text);
        assert_string_equal(s.err[0].text, text);
        assert_int_equal(s.err[0].rank, cases[k].rank);
        assert_int_equal(memory_files_count(f->m, "a", ""), 1);
        expect_whole(&f->m->rt, "a/step-00000010", 2, 2, 1);
    }
}

static void facts_must_be_one_object(void **state)
{
    fixture *f = *state;
    static const struct { const char *facts, *text;
    } cases[] = {
        { "[]", "cannot save the checkpoint of step 20: rank 0: the checkpoint's facts are no JSON object" },
        { "{", "cannot save the checkpoint of step 20: rank 0: text of the checkpoint's facts is not valid JSON: "
               "string or '}' expected near end of file "
               "(line 1, byte 1)" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        saving s = { .files = &f->m->rt, .dir = "a", .facts = cases[k].facts, .step = 20, .keep = 1 };
        assert_int_equal(save_by(&s, 2), TUTTI_ERR_USAGE);
        assert_string_equal(s.err[0].text, cases[k].text);
        assert_int_equal(memory_files_count(f->m, "", ""), 0);
    }
}

/* Everything else of the saving is as rank 0's. */
static tutti_status save_other_step(tutti_world *world, void *arg, tutti_error *err)
{
    saving *s = arg;
    const int rank = tutti_world_rank(world);
    (void)err;
    s->status[rank] = tutti_checkpoint_save_through(world, s->files, s->dir, s->step, NULL, 0,
                                                    rank == 1 ? "{\"a\":1}" : s->facts, s->keep, &s->err[rank]);
    return TUTTI_OK;
}

static void ranks_that_save_different_steps_are_reported(void **state)
{
    fixture *f = *state;
    saving s = { .files = &f->m->rt, .dir = "a", .facts = "{}", .step = 20, .keep = 1 };

    assert_int_equal(tutti_world_run("shm", 2, save_other_step, &s, NULL), TUTTI_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s.status[r], TUTTI_ERR_STATE);
        assert_string_equal(s.err[r].text, "cannot save the checkpoint of step 20: rank 1 saves another step or other "
                                           "facts than rank 0; all must save the same");
    }
}

static void a_disk_too_small_is_refused_before_anything_is_touched(void **state)
{
    fixture *f = *state;
    saving s = { .files = &f->m->rt, .dir = "a/b/c", .facts = "{}", .step = 20, .keep = 1 };

    f->m->space = 70000;
    assert_int_equal(save_by(&s, 2), TUTTI_ERR_IO);
    assert_string_equal(s.err[0].text, "cannot save the checkpoint of step 20: it needs 73627 bytes and rank 0 sees "
                                       "70000 left at 'a/b/c'; free space there or "
                                       "keep fewer checkpoints");
    assert_int_equal(f->m->operations, 0);
    f->m->space = 73627;
    assert_int_equal(save_by(&s, 2), TUTTI_OK);
}

static tutti_status save_without_rank_one(tutti_world *world, void *arg, tutti_error *err)
{
    return tutti_world_rank(world) == 1 ? tutti_fail(err, TUTTI_ERR_NUMBER, 0, "rank 1 gives up")
                                        : save_rank(world, arg, err);
}

static void a_rank_that_dies_ends_the_save_for_all(void **state)
{
    fixture *f = *state;
    saving s = { .files = &f->m->rt, .dir = "a", .facts = "{\"seed\": 7}", .step = 20, .keep = 1 };

    assert_int_equal(save_plain(&f->m->rt, "a", 3, 10, 1, 1), TUTTI_OK);
    assert_int_equal(tutti_world_run("shm", 3, save_without_rank_one, &s, NULL), TUTTI_ERR_NUMBER);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(s.status[r], TUTTI_ERR_PEER);
        assert_int_equal(s.err[r].rank, 1);
        assert_non_null(strstr(s.err[r].text, "rank 1 is gone"));
    }
    assert_int_equal(memory_files_count(f->m, "a", ""), 1);
    expect_whole(&f->m->rt, "a/step-00000010", 3, 3, 1);
}

/* ---- reading ---- */

static void targets_that_the_checkpoint_does_not_have_are_refused(void **state)
{
    fixture *f = *state;
    uint8_t to[400];
    static const struct { tutti_saved t; const char *text;
    } cases[] = {
        { { .state = "y", .tensor = "0.weight" },
          "checkpoint 'a/step-00000010' has no 'y/0.weight'; it was saved with another model, method, codec or "
          "optimizer" },
        { { .state = "x", .tensor = "0.weight", .dtype = TUTTI_F64, .count = 37, .owner = -1 },
          "checkpoint 'a/step-00000010' has 'x/0.weight' as F32, this run needs F64; use the settings it was saved "
          "with" },
        { { .state = "x", .tensor = "0.weight", .count = 36, .owner = -1 },
          "checkpoint 'a/step-00000010' has 'x/0.weight' with 37 elements, this run needs 36; use the settings it was "
          "saved with" },
        { { .state = "x", .tensor = "0.weight", .count = 37, .owner = 1 },
          "checkpoint 'a/step-00000010', saved by 2 ranks, has no 'x/0.weight' of rank 1; use the settings it was "
          "saved with" },
        { { .state = "ef.residual", .tensor = "0.weight", .dtype = TUTTI_BF16, .count = 11, .owner = 2 },
          "checkpoint 'a/step-00000010', saved by 2 ranks, has no 'ef.residual/0.weight' of rank 2; use the settings "
          "it was saved with" },
        { { .state = "ef.residual", .tensor = "0.weight", .dtype = TUTTI_BF16, .count = 11, .owner = -1 },
          "checkpoint 'a/step-00000010' has 'ef.residual/0.weight' for each rank on its own, this run needs one for "
          "all; use the settings it was saved with" },
        { { .state = "x", .tensor = "0.weight", .count = 37, .owner = -1, .begin = 3, .end = 38 },
          "no elements [3, 38) of the 37 of 'x/0.weight' can be read" },
    };
    tutti_checkpoint *c;
    tutti_error err;

    assert_int_equal(save_plain(&f->m->rt, "a", 2, 10, 1, 1), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&c, &f->m->rt, "a/step-00000010", NULL), TUTTI_OK);
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_saved t = cases[k].t;
        t.data = to;
        assert_int_equal(tutti_checkpoint_read(c, &t, 1, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].text);
    }
    assert_int_equal(tutti_checkpoint_read(c, NULL, 0, &err), TUTTI_OK);
    tutti_checkpoint_close(c);
    tutti_checkpoint_close(NULL);
}

/* Many targets on few keys, in an odd order and of one element each:
   every one filled, each key read once. */
static void overlapping_and_scattered_targets_are_all_filled(void **state)
{
    fixture *f = *state;
    tutti_saved t[37 + 1];
    float x[37], all[37];
    holding want;
    tutti_checkpoint *c;
    uint64_t before;

    assert_int_equal(save_plain(&f->m->rt, "a", 3, 10, 1, 1), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&c, &f->m->rt, "a/step-00000010", NULL), TUTTI_OK);
    for (uint64_t k = 0; k < 37; k++) {
        const uint64_t e = k * 10 % 37;
        t[k] = (tutti_saved){
            .state = "x", .tensor = "0.weight", .owner = -1, .count = 37, .begin = e, .end = e + 1, .data = &x[e]
        };
    }
    t[37] = (tutti_saved){
        .state = "x", .tensor = "0.weight", .owner = -1, .count = 37, .begin = 0, .end = 37, .data = all
    };
    before = f->m->reads;
    assert_int_equal(tutti_checkpoint_read(c, t, 38, NULL), TUTTI_OK);
    assert_int_equal(f->m->reads - before, 3 * 3); /* of three files: length, header, one key */
    hold(&want, 0, 1, true);
    fill(&want, 1);
    assert_memory_equal(x, want.memory[0], sizeof x);
    assert_memory_equal(all, want.memory[0], sizeof all);
    tutti_checkpoint_close(c);
}

/* ---- damage ---- */

/* Any byte of any file: open, read or verify sees it and names the file; an older checkpoint
   is found instead where the manifest or a size shows it. Every byte is tried with one
   flipped bit; the shards are small. */
static void flipped_bits_in_any_file_are_detected(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {
        "manifest.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors",
    };

    assert_int_equal(save_plain(&f->m->rt, "a", 1, 10, 1, 2), TUTTI_OK);
    assert_int_equal(save_plain(&f->m->rt, "a", 2, 20, 2, 2), TUTTI_OK);
    for (size_t file = 0; file < TUTTI_LENGTH(names); file++) {
        char path[100], found[100];
        uint8_t *data;
        size_t n;
        snprintf(path, sizeof path, "a/step-00000020/%s", names[file]);
        data = memory_files_get(f->m, path, &n);
        for (size_t k = 0; k < n; k += file == 0 ? 3 : 1) {
            tutti_error err = { 0 };
            tutti_checkpoint *c;
            tutti_status status;
            data[k] ^= (uint8_t)(1u << k % 8);
            status = tutti_checkpoint_open(&c, &f->m->rt, "a/step-00000020", &err);
            assert_true(file != 0 || status == TUTTI_ERR_CORRUPT);
            if (status == TUTTI_OK)
                status = tutti_checkpoint_verify(c, &err);
            tutti_checkpoint_close(c);
            assert_int_equal(status, TUTTI_ERR_CORRUPT);
            assert_non_null(strstr(err.text, path));
            if (file == 0) {
                assert_int_equal(tutti_checkpoint_find(&f->m->rt, "a", found, sizeof found, NULL, 0, NULL), TUTTI_OK);
                assert_string_equal(found, "a/step-00000010");
            }
            data[k] ^= (uint8_t)(1u << k % 8);
        }
    }
    expect_whole(&f->m->rt, "a/step-00000020", 2, 2, 2);
}

static void damage_to_a_tensor_names_file_tensor_and_range(void **state)
{
    static const char begin[] =
        "'a/step-00000010/rank-00001-of-00002.safetensors', tensor 'optim.m/0.weight@18' (elements [18, 37)) has hash ",
                      end[] = "; it was damaged: use an older checkpoint";
    fixture *f = *state;
    holding h;
    tutti_checkpoint *c;
    tutti_error err;
    uint8_t *data;
    size_t n;

    assert_int_equal(save_plain(&f->m->rt, "a", 2, 10, 1, 1), TUTTI_OK);
    data = memory_files_get(f->m, "a/step-00000010/rank-00001-of-00002.safetensors", &n);
    for (size_t at = 8; at < n; at++) /* the F64 shard is first in the file: find its first value */
        if (data[at] == value_of(2, -1, 144, 1) && data[at + 1] == value_of(2, -1, 145, 1) &&
            data[at + 2] == value_of(2, -1, 146, 1)) {
            data[at + 9] ^= 4;
            break;
        }
    assert_int_equal(tutti_checkpoint_open(&c, &f->m->rt, "a/step-00000010", NULL), TUTTI_OK);
    hold(&h, 0, 1, true);
    assert_int_equal(tutti_checkpoint_read(c, &h.items[2], 1, &err), TUTTI_ERR_CORRUPT);
    assert_memory_equal(err.text, begin, sizeof begin - 1);
    assert_string_equal(err.text + strlen(err.text) - (sizeof end - 1), end);
    assert_int_equal(tutti_checkpoint_verify(c, &err), TUTTI_ERR_CORRUPT);
    assert_memory_equal(err.text, begin, sizeof begin - 1);
    h.items[2].end = 18; /* a caller that needs only what is sound may have it */
    assert_int_equal(tutti_checkpoint_read(c, h.items, 4, &err), TUTTI_OK);
    tutti_checkpoint_close(c);
}

static void an_older_checkpoint_is_found_and_the_reason_reported(void **state)
{
    fixture *f = *state;
    char found[100], skipped[400], small[60];
    const uint8_t *data;
    tutti_error err;
    size_t n;

    for (uint64_t step = 10; step <= 40; step += 10)
        assert_int_equal(save_plain(&f->m->rt, "run/checkpoints", 1, step, (int)step, 9), TUTTI_OK);
    data = memory_files_get(f->m, "run/checkpoints/step-00000040/rank-00000-of-00001.safetensors", &n);
    assert_int_equal(n, 930);
    memory_files_put(f->m, "run/checkpoints/step-00000040/rank-00000-of-00001.safetensors", data, n - 1);
    tutti_file_remove(&f->m->rt, "run/checkpoints/step-00000030/manifest.json", NULL);
    memory_files_put(f->m, "run/checkpoints/step-0000099/manifest.json", "", 0); /* no name of ours */
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "run", found, sizeof found, skipped, sizeof skipped, NULL),
                     TUTTI_OK);
    assert_string_equal(found, "run/checkpoints/step-00000020");
    assert_string_equal(skipped,
                        "step-00000040: 'run/checkpoints/step-00000040/rank-00000-of-00001.safetensors' has 929 "
                        "bytes, but 930 according to the manifest; use an older checkpoint\nstep-00000030: cannot "
                        "open 'run/checkpoints/step-00000030/manifest.json'; check the path (No such file or "
                        "directory)\n");
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "run", found, sizeof found, small, sizeof small, NULL), TUTTI_OK);
    assert_string_equal(small, ""); /* no half lines */
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "run/checkpoints/step-00000010", found, sizeof found, skipped,
                                           sizeof skipped, NULL),
                     TUTTI_OK);
    assert_string_equal(found, "run/checkpoints/step-00000010");
    assert_string_equal(skipped, "");
    assert_int_equal(
        tutti_checkpoint_find(&f->m->rt, "run/checkpoints/step-00000040", found, sizeof found, NULL, 0, &err),
        TUTTI_ERR_CORRUPT);
    assert_string_equal(found, "");
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "run", found, 10, NULL, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the path 'run/checkpoints/step-00000020' is longer than the 10 bytes allowed");
}

static void missing_checkpoints_are_reported_with_what_was_searched(void **state)
{
    fixture *f = *state;
    char found[100];
    tutti_error err;

    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "a", found, sizeof found, NULL, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "no checkpoint at 'a' (No such file or directory)");
    memory_files_put(f->m, "a/metrics.jsonl", "", 0);
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "a", found, sizeof found, NULL, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "no checkpoint in 'a': neither a manifest.json, nor a folder step-..., nor any in "
                                  "checkpoints/; give a run's --out or a "
                                  "checkpoint's own folder");
    memory_files_put(f->m, "a/step-00000001/manifest.json", "", 0);
    assert_int_equal(tutti_checkpoint_find(&f->m->rt, "a", found, sizeof found, NULL, 0, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "none of the 1 checkpoints in 'a' is whole; of the newest: "
                                  "'a/step-00000001/manifest.json' has 0 bytes, fewer than any "
                                  "manifest; the manifest is damaged; use an older checkpoint");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checkpoint_is_read_by_any_number_of_ranks),
        TEST(ranks_may_save_any_part_of_global_state),
        TEST(equal_saves_give_equal_files),
        TEST(the_manifest_is_the_json_that_is_documented),
        TEST(only_the_newest_are_kept),
        TEST(a_step_can_be_saved_again),
        TEST(inconsistent_items_are_rejected_on_every_rank),
        TEST(facts_must_be_one_object),
        TEST(ranks_that_save_different_steps_are_reported),
        TEST(a_disk_too_small_is_refused_before_anything_is_touched),
        TEST(a_rank_that_dies_ends_the_save_for_all),
        TEST(targets_that_the_checkpoint_does_not_have_are_refused),
        TEST(overlapping_and_scattered_targets_are_all_filled),
        TEST(flipped_bits_in_any_file_are_detected),
        TEST(damage_to_a_tensor_names_file_tensor_and_range),
        TEST(an_older_checkpoint_is_found_and_the_reason_reported),
        TEST(missing_checkpoints_are_reported_with_what_was_searched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
