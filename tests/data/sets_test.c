/* Specs of data sets: which texts are names and which are paths, what the options do to what is
   attached, and the sentences of those that are refused. */
#include "make.h"
#include "data/data_internal.h"

typedef struct fixture { tutti_runtime *real; memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(tutti_runtime_open_posix(&f->real, NULL), TUTTI_OK);
    f->m = memory_files_open(f->real);
    put_set_in(f->m, "data/mnist", 12, 5, 28, 28, false);
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

typedef struct attached { tutti_data *data; uint8_t *block; size_t bytes; } attached;

static attached attach(fixture *f, const char *text)
{
    attached a = { 0 };
    assert_int_equal(tutti_data_open_spec(&a.data, &f->m->rt, text, NULL, NULL), TUTTI_OK);
    a.bytes = tutti_data_shape_of(a.data)->bytes;
    a.block = tutti_alloc(a.bytes, 1);
    memset(a.block, 0xee, a.bytes);
    assert_int_equal(tutti_data_attach(a.data, a.block, true, NULL), TUTTI_OK);
    return a;
}

static void detach(attached a)
{
    tutti_data_close(a.data);
    tutti_free(a.block);
}

static void undistorted_sets_equal_the_plain_directory(void **state)
{
    static const char *const texts[] = {
        "mnist", "mnist()", "mnist(distort=0)", "mnist(distort=0,seed=3)", " mnist ( 0 ) ",
    };
    attached plain = attach(*state, "data/mnist");

    for (size_t j = 0; j < TUTTI_LENGTH(texts); j++) {
        attached a = attach(*state, texts[j]);
        assert_memory_equal(plain.block, a.block, plain.bytes);
        assert_true(tutti_data_hash(plain.data) == tutti_data_hash(a.data));
        detach(a);
    }
    detach(plain);
}

static void distortion_changes_both_splits_their_moments_and_the_hash_but_no_label(void **state)
{
    attached plain = attach(*state, "mnist"), a = attach(*state, "mnist(distort=0.5)"),
             same = attach(*state, "mnist(0.5,0)");
    attached others[] = { attach(*state, "mnist(0.5,1)"), attach(*state, "mnist(0.25)") };

    assert_memory_equal(a.block, same.block, a.bytes);
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const uint64_t samples = tutti_data_shape_of(a.data)->samples[split];
        const uint8_t *labels = tutti_data_labels(plain.data, (tutti_split)split),
                      *images = labels - (samples * 784 + 63) / 64 * 64;
        assert_memory_equal(labels, tutti_data_labels(a.data, (tutti_split)split), samples);
        for (uint64_t i = 0; i < samples; i++)
            assert_memory_not_equal(images + i * 784, a.block + (images - plain.block) + i * 784, 784);
    }
    assert_true(tutti_data_shape_of(a.data)->mean != tutti_data_shape_of(plain.data)->mean);
    assert_true(tutti_data_shape_of(a.data)->deviation != tutti_data_shape_of(plain.data)->deviation);
    assert_int_equal(tutti_data_shape_of(a.data)->classes, 10);
    assert_true(tutti_data_hash(a.data) != tutti_data_hash(plain.data));
    for (size_t j = 0; j < 2; j++) {
        assert_true(tutti_data_hash(a.data) != tutti_data_hash(others[j].data));
        detach(others[j]);
    }
    detach(plain);
    detach(a);
    detach(same);
}

/* The moments are those of the distorted pixels: what is gathered has
   mean 0 and deviation 1 all the same. */
static void gathered_samples_are_normalised_by_the_distorted_moments(void **state)
{
    attached a = attach(*state, "mnist(distort=1)");
    uint64_t ids[12];
    static float x[12 * 784];
    uint8_t labels[12];
    double sum = 0, square = 0;

    for (uint64_t i = 0; i < 12; i++)
        ids[i] = i;
    tutti_data_gather(a.data, TUTTI_TRAIN, ids, 12, x, labels);
    for (size_t p = 0; p < TUTTI_LENGTH(x); p++) {
        sum += (double)x[p];
        square += (double)x[p] * (double)x[p];
    }
    assert_true(sum < 0.05 && sum > -0.05);
    assert_true(square / (12 * 784) > 0.9999 && square / (12 * 784) < 1.0001);
    detach(a);
}

/* A rank that shares the block neither distorts it again nor needs to know how it was made. */
static void a_rank_that_shares_the_block_leaves_it_alone(void **state)
{
    fixture *f = *state;
    attached a = attach(f, "mnist(distort=1)");
    uint8_t *kept = malloc(a.bytes);
    tutti_data *sharer;

    memcpy(kept, a.block, a.bytes);
    assert_int_equal(tutti_data_open_spec(&sharer, &f->m->rt, "mnist(distort=1)", NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_data_attach(sharer, a.block, false, NULL), TUTTI_OK);
    assert_memory_equal(kept, a.block, a.bytes);
    assert_true(tutti_data_hash(sharer) == tutti_data_hash(a.data));
    tutti_data_close(sharer);
    free(kept);
    detach(a);
}

static void leads_to(fixture *f, const char *text, const char *wanted)
{
    char path[200];
    tutti_error err = { 0 };

    if (tutti_data_find(&f->m->rt, text, NULL, path, sizeof path, &err) != TUTTI_OK)
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(path, wanted);
}

static void existing_paths_win_over_data_set_specs(void **state)
{
    fixture *f = *state;

    memory_files_put(f->m, "mnist(distort=0.5)/a", "", 0);
    memory_files_put(f->m, "a(b)/c, d/a", "", 0);
    memory_files_put(f->m, "elsewhere/a", "", 0);
    memory_files_put(f->m, "mnist/a", "", 0);
    leads_to(f, "mnist(distort=0.5)", "mnist(distort=0.5)");
    leads_to(f, "a(b)/c, d", "a(b)/c, d");
    leads_to(f, "elsewhere", "elsewhere");
    leads_to(f, "mnist(distort=0.25)", "data/mnist");
    leads_to(f, "mnist", "data/mnist"); /* a bare name is ours wherever one stands */
    leads_to(f, "./mnist", "./mnist");
}

/* Labels of the fixture are i % 10, so that 9 is the highest; each file gets one that is higher. By
   its path the same directory has as many classes as that says. */
static void labels_beyond_the_classes_are_rejected_with_their_position(void **state)
{
    static const char *const sets[] = { "mnist", "speech" };
    static const char *const files[] = { "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte" };
    static const uint32_t count[] = { 12, 5 };
    static const uint8_t labels[] = { 9, 10, 255 };
    fixture *f = *state;

    for (size_t j = 0; j < TUTTI_LENGTH(sets) * TUTTI_LENGTH(files) * TUTTI_LENGTH(labels); j++) {
        const char *set = sets[j % 2];
        const size_t split = j / 2 % 2, at = count[split] - 2;
        const uint8_t label = labels[j / 4];
        bytes b = make_idx(1, &count[split], fill_label);
        char folder[40], path[100], sentence[400];
        tutti_error err = { 0 };
        attached a;
        b.data[8 + at] = label;
        snprintf(folder, sizeof folder, "data/%s", set);
        snprintf(path, sizeof path, "%s/%s", folder, files[split]);
        put_set_in(f->m, folder, 12, 5, 28, 28, false);
        memory_files_put(f->m, path, b.data, b.n);
        free(b.data);
        snprintf(sentence, sizeof sentence,
                 "'%s': label %zu is %d, but the set has the classes 0 to 9; it is damaged: make or fetch it again, or "
                 "give the path of its directory if it is a set of another kind",
                 path, at, label);
        assert_int_equal(tutti_data_open_spec(&a.data, &f->m->rt, set, NULL, NULL), TUTTI_OK);
        a.block = tutti_alloc(tutti_data_shape_of(a.data)->bytes, 1);
        assert_int_equal(tutti_data_attach(a.data, a.block, true, &err), label > 9 ? TUTTI_ERR_CORRUPT : TUTTI_OK);
        assert_string_equal(err.text, label > 9 ? sentence : "");
        detach(a);
        a = attach(f, folder);
        assert_int_equal(tutti_data_shape_of(a.data)->classes, label + 1);
        detach(a);
    }
}

static void refused(fixture *f, const char *text, const char *sentence)
{
    char path[200] = "old";
    tutti_error err = { 0 };
    tutti_data *d;

    assert_int_equal(tutti_data_find(&f->m->rt, text, NULL, path, sizeof path, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    assert_string_equal(path, "");
    assert_int_equal(tutti_data_open_spec(&d, &f->m->rt, text, NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    assert_null(d);
}

static void invalid_data_specs_are_rejected_with_a_hint(void **state)
{
    refused(
        *state, "mnist(distort=2)",
        "data 'mnist': option 'distort' is 2; it must be from 0 to 1 (strength of shifts, turns and clutter, on both "
        "splits; 0: the images as they are)");
    refused(*state, "mnist(distort=-0.1)",
            "data 'mnist': option 'distort' is -0.1; it must be from 0 to 1 (strength of shifts, turns and clutter, on "
            "both splits; 0: the images as they are)");
    refused(*state, "mnist(distort=much)",
            "data 'mnist': option 'distort' is 'much'; it must be a number from 0 to 1 (strength of shifts, turns and "
            "clutter, on both splits; 0: the images as they are)");
    refused(*state, "mnist(distrt=1)", "data 'mnist': unknown option 'distrt'; did you mean 'distort'?");
    refused(*state, "mnist(1,2,3)", "data 'mnist': argument 3 ('3') is one too many; it takes at most 2");
    refused(*state, "mnist(seed=1.5)",
            "data 'mnist': option 'seed' is '1.5'; it must be a whole number from 0 to 9007199254740992 (of the "
            "distortions; that of the run has no part in them)");
    refused(*state, "mnist(distort=1",
            "no file or directory 'mnist(distort=1', and as the name of a data set: spec 'mnist(distort=1': missing "
            "')' at the end");
    refused(*state, "minst(distort=1)",
            "no data at 'minst(distort=1)'; did you mean 'mnist'?; give 'mnist', 'speech', "
            "'cifar10', 'images', 'moby-dick', 'text', "
            "'tokens', 'clicks', 'quadratic', 'logistic', a directory of images, or a text");
    refused(*state, "minst",
            "no data at 'minst'; did you mean 'mnist'?; give 'mnist', 'speech', "
            "'cifar10', 'images', 'moby-dick', 'text', 'tokens', "
            "'clicks', 'quadratic', 'logistic', a directory of images, or a text");
    refused(*state, "no such thing",
            "no file or directory 'no such thing', and as the name of a data set: spec 'no such thing': unexpected "
            "text after the "
            "name at byte 4; write name(key=value,...)");
    refused(*state, "",
            "no data at ''; give 'mnist', 'speech', "
            "'cifar10', 'images', 'moby-dick', 'text', 'tokens', 'clicks', 'quadratic', 'logistic', "
            "a directory of images, or a text");
    refused(*state, "/nowhere/mnist(distort=1)",
            "no data at '/nowhere/mnist(distort=1)'; give 'mnist', 'speech', "
            "'cifar10', 'images', 'moby-dick', 'text', 'tokens', 'clicks', "
            "'quadratic', 'logistic', a directory of images, or a text");
}

static void a_missing_data_set_error_lists_the_searched_paths(void **state)
{
    fixture *f = *state;

    memory_files_close(f->m);
    f->m = memory_files_open(f->real);
    setenv("TUTTI_DATA", "mine", 1);
    refused(f, "mnist(distort=1)",
            "no data set 'mnist' (looked for 'mine/mnist', 'data/mnist'); set TUTTI_DATA to the folder that holds "
            "mnist/, or give a "
            "path");
    refused(f, "speech",
            "no data set 'speech' (looked for 'mine/speech', 'data/speech'); make it with tools/speech-data, set "
            "TUTTI_DATA to the folder that holds speech/, or give a path");
    refused(f, "speech(distort=1)", "data 'speech': unknown option 'distort'; there are none");
    unsetenv("TUTTI_DATA");
}

static void every_known_set_has_a_title_and_options_with_help(void **state)
{
    (void)state;
    for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++) {
        assert_true(strlen(set->title) > 10);
        for (const tutti_option *o = set->options; o->name != NULL; o++)
            assert_true(strlen(o->help) > 10);
    }
    assert_string_equal(tutti_data_sets[0].name, "mnist");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(labels_beyond_the_classes_are_rejected_with_their_position),
        TEST(undistorted_sets_equal_the_plain_directory),
        TEST(distortion_changes_both_splits_their_moments_and_the_hash_but_no_label),
        TEST(gathered_samples_are_normalised_by_the_distorted_moments),
        TEST(a_rank_that_shares_the_block_leaves_it_alone),
        TEST(existing_paths_win_over_data_set_specs),
        TEST(invalid_data_specs_are_rejected_with_a_hint),
        TEST(a_missing_data_set_error_lists_the_searched_paths),
        TEST(every_known_set_has_a_title_and_options_with_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
