/* Synthetic problems: what their samples are, where the optimum is, how it moves; as definitions
   (problem.h) and as data sets (data.h). */
#include "make.h"
#include <math.h>

typedef struct set { tutti_data *data; uint8_t *block; const tutti_data_shape *shape; } set;

static set open_set(tutti_runtime *rt, const char *spec)
{
    tutti_error err = { 0 };
    set s;

    if (tutti_data_open_spec(&s.data, rt, spec, NULL, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    s.shape = tutti_data_shape_of(s.data);
    s.block = tutti_alloc(s.shape->bytes, 1);
    if (tutti_data_attach(s.data, s.block, true, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    return s;
}

static void close_set(set s)
{
    tutti_data_close(s.data);
    tutti_free(s.block);
}

/* All samples of a split at a step; free it. */
static float *all_of(const set *s, tutti_split split, uint64_t step, uint8_t *labels)
{
    const size_t n = s->shape->samples[split], dim = (size_t)s->shape->width;
    uint64_t *ids = calloc(n, sizeof *ids);
    float *x = calloc(n * dim, sizeof *x);

    for (size_t i = 0; i < n; i++)
        ids[i] = i;
    tutti_data_gather_at(s->data, split, ids, n, step, x, labels);
    free(ids);
    return x;
}

static int set_up(void **state)
{
    tutti_runtime *rt;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    *state = rt;
    return 0;
}

static int tear_down(void **state)
{
    tutti_runtime_close(*state);
    return 0;
}

/* Goal: the mean of a split is its optimum. Method: pairs +e, -e leave the rounding of each sample
   only: half an ulp of values below 8 (2^-22), over any number. */
static void the_mean_of_each_split_is_the_optimum(void **state)
{
    static const char *const specs[] = {
        "quadratic(dim=30)", "quadratic(dim=30,skew=1,noise=1,classes=3,samples=600)",
        "quadratic(dim=7,classes=1,samples=2,seed=5)", "quadratic(dim=30,simplex=on,noise=0.01)",
        "quadratic(dim=30,drift=500,skew=0.5)",
    };
    uint8_t labels[8192];
    float best[30];

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (uint64_t step = 0; step < 3000; step += 1234) {
            set s = open_set(*state, specs[k]);
            const int dim = s.shape->width;
            assert_true(tutti_data_optimum(s.data, step, best));
            for (int split = 0; split < 2; split++) {
                float *x = all_of(&s, (tutti_split)split, step, labels);
                uint64_t count[64] = { 0 };
                for (int j = 0; j < dim; j++) {
                    double mean = 0;
                    for (uint64_t i = 0; i < s.shape->samples[split]; i++)
                        mean += (double)x[i * (uint64_t)dim + (uint64_t)j];
                    assert_true(fabs(mean / (double)s.shape->samples[split] - (double)best[j]) <= 0x1p-21);
                }
                for (uint64_t i = 0; i < s.shape->samples[split]; i++)
                    count[labels[i]]++;
                for (int c = 0; c < s.shape->classes; c++)
                    assert_int_equal(count[c], s.shape->samples[split] / (uint64_t)s.shape->classes);
                free(x);
            }
            close_set(s);
        }
}

/* Deviation of n draws from the centre of their class: noise within five standard errors noise /
   sqrt(2 n); of class centres: each class has another optimum, skew (1 - 1 / classes)^(1/2) away on
   average. Pairs halve the number of independent draws. */
static void noise_and_skew_are_the_deviations_that_were_asked_for(void **state)
{
    set s = open_set(*state, "quadratic(dim=50,noise=0.3,skew=2,classes=16)");
    uint8_t labels[4096];
    float *x = all_of(&s, TUTTI_TRAIN, 0, labels), best[50];
    static double centre[16][50];
    double spread = 0, noise = 0;

    assert_true(tutti_data_optimum(s.data, 0, best));
    for (size_t i = 0; i < 4096; i++)
        for (size_t j = 0; j < 50; j++)
            centre[labels[i]][j] += (double)x[i * 50 + j] / 256;
    for (size_t c = 0; c < 16; c++)
        for (size_t j = 0; j < 50; j++)
            spread += pow(centre[c][j] - (double)best[j], 2) / (15 * 50);
    for (size_t i = 0; i < 4096; i++)
        for (size_t j = 0; j < 50; j++)
            noise += pow((double)x[i * 50 + j] - centre[labels[i]][j], 2) / (4096 * 50);
    assert_true(fabs(sqrt(spread) / 2 - 1) < 5 / sqrt(2.0 * 15 * 50));
    assert_true(fabs(sqrt(noise) / 0.3 - 1) < 5 / sqrt(2.0 * 2048 * 50));
    free(x);
    close_set(s);
}

static void samples_follow_seed_split_and_index_and_nothing_else(void **state)
{
    static const char *const kinds[] = { "quadratic", "logistic" };

    for (int k = 0; k < 2; k++) {
        char text[4][80];
        set s[4];
        uint8_t labels[5][512];
        float *x[5];
        snprintf(text[0], sizeof text[0], "%s(dim=9,samples=256)", kinds[k]);
        snprintf(text[1], sizeof text[1], "%s(dim=9,samples=256,seed=0)", kinds[k]);
        snprintf(text[2], sizeof text[2], "%s(dim=9,samples=512)", kinds[k]);
        snprintf(text[3], sizeof text[3], "%s(dim=9,samples=256,seed=1)", kinds[k]);
        for (int i = 0; i < 4; i++) {
            s[i] = open_set(*state, text[i]);
            x[i] = all_of(&s[i], TUTTI_TRAIN, 0, labels[i]);
        }
        x[4] = all_of(&s[0], TUTTI_TEST, 0, labels[4]);
        assert_memory_equal(s[0].block, s[1].block, s[0].shape->bytes);
        assert_memory_equal(x[0], x[2], 256 * 9 * sizeof(float)); /* a larger set begins with the smaller one */
        assert_memory_equal(labels[0], labels[2], 256);
        for (size_t i = 0; i < 32; i++) {
            assert_memory_not_equal(x[0] + i * 9, x[3] + i * 9, 9 * sizeof(float));
            assert_memory_not_equal(x[0] + i * 9, x[4] + i * 9, 9 * sizeof(float));
        }
        for (int i = 0; i < 4; i++)
            close_set(s[i]);
        for (int i = 0; i < 5; i++)
            free(x[i]);
    }
}

/* The samples of a step are the same whichever workers compute them, drift included: the loaders
   of 1 and of 4 workers are compared. */
static void a_step_has_the_same_samples_for_any_number_of_workers(void **state)
{
    set s = open_set(*state, "quadratic(dim=5,samples=160,drift=300)");
    const tutti_share one = { 160, 1, 32, 1, 3 }, four = { 160, 4, 8, 1, 3 };
    tutti_loader *all, *part[4];

    assert_int_equal(tutti_loader_open(&all, *state, s.data, &one, 0, 0, 3, NULL), TUTTI_OK);
    for (int w = 0; w < 4; w++)
        assert_int_equal(tutti_loader_open(&part[w], *state, s.data, &four, w, 0, w, NULL), TUTTI_OK);
    for (int step = 0; step < 12; step++) {
        tutti_batch whole, b;
        float still[5];
        uint64_t epoch, position, id;
        uint8_t label;
        assert_int_equal(tutti_loader_take(all, &whole, NULL), TUTTI_OK);
        for (int w = 0; w < 4; w++) {
            assert_int_equal(tutti_loader_take(part[w], &b, NULL), TUTTI_OK);
            assert_int_equal(b.samples, 8);
            assert_memory_equal(b.x, whole.x + w * 8 * 5, 8 * 5 * sizeof(float));
            assert_memory_equal(b.labels, whole.labels + w * 8, 8);
        }
        tutti_share_pass(&one, (uint64_t)step, 0, 0, &epoch, &position);
        id = tutti_share_sample(&one, epoch, position);
        tutti_data_gather(s.data, TUTTI_TRAIN, &id, 1, still, &label);
        assert_true((memcmp(still, whole.x, sizeof still) == 0) == (step == 0)); /* later steps have drifted */
    }
    tutti_loader_close(all);
    for (int w = 0; w < 4; w++)
        tutti_loader_close(part[w]);
    close_set(s);
}

/* Goal: the optimum moves drift / 1000 a step along a line, turns at its ends and comes
   back, and every sample moves with it. */
static void drift_moves_everything_exactly_as_stated(void **state)
{
    for (int simplex = 0; simplex < 2; simplex++) {
        const double drift = simplex ? 0.25 : 40;
        set s = open_set(*state, simplex ? "quadratic(dim=12,drift=0.25,simplex=on,noise=0.01)"
                                         : "quadratic(dim=12,drift=40,skew=1)");
        tutti_problem p;
        double from[12], way[12], length = 0;
        float first[12], now[12], before[12];
        uint8_t labels[4096];
        float *still = all_of(&s, TUTTI_TRAIN, 0, labels);
        uint64_t end;

        assert_int_equal(
            tutti_problem_read(&p, simplex ? "quadratic(dim=12,drift=0.25,simplex=on)" : "quadratic(dim=12,drift=40)",
                               "data", NULL, NULL),
            TUTTI_OK);
        assert_int_equal(tutti_problem_path(&p, from, way, NULL), TUTTI_OK);
        for (int j = 0; j < 12; j++)
            length += way[j] * way[j];
        length = sqrt(length);
        end = (uint64_t)(length * 1000 / drift); /* the last whole step before the turn */
        assert_true(end > 100);
        assert_true(tutti_data_optimum(s.data, 0, first));
        memcpy(before, first, sizeof before);
        for (uint64_t step = 1; step < 3 * end; step += 7) {
            double moved = 0, sum = 0, place = fmod(drift * (double)step / 1000, 2 * length);
            float *x;
            assert_true(tutti_data_optimum(s.data, step, now));
            for (int j = 0; j < 12; j++) {
                moved += pow((double)now[j] - (double)first[j], 2);
                sum += (double)now[j];
                assert_true(!simplex || now[j] >= 0);
            }
            place = place < length ? place : 2 * length - place;
            assert_true(fabs(sqrt(moved) - place) < 1e-6 * (1 + length));
            assert_true(!simplex || fabs(sum - 1) < 1e-6);
            if (step % 35 != 1)
                continue;
            x = all_of(&s, TUTTI_TRAIN, step, labels);
            for (size_t i = 0; i < 4096 * 12; i += 13)
                assert_true(fabs(((double)x[i] - (double)still[i]) - ((double)now[i % 12] - (double)first[i % 12])) <
                            2e-6);
            free(x);
        }
        free(still);
        close_set(s);
    }
}

static void the_simplex_centre_is_a_distribution(void **state)
{
    static const char *const specs[] = {
        "quadratic(dim=1,simplex=on)", "quadratic(dim=2,simplex=on)", "quadratic(dim=1000,simplex=on,samples=16)",
        "quadratic(dim=100,simplex=on,seed=9)",
    };

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        set s = open_set(*state, specs[k]);
        float x[1000];
        double sum = 0, most = 0;
        assert_true(tutti_data_optimum(s.data, 0, x));
        for (int j = 0; j < s.shape->width; j++) {
            assert_true(x[j] >= 0);
            sum += (double)x[j];
            most = fmax(most, (double)x[j]);
        }
        assert_true(fabs(sum - 1) < 1e-6);
        assert_true(s.shape->width == 1 || most > 1.5 / s.shape->width); /* not the start */
        close_set(s);
    }
}

/* Goal: noise changes labels and nothing else, in the share that was asked for; features have the
   spectrum's variances. Bounds: five standard errors. */
static void logistic_has_a_linear_teacher_and_requested_label_noise(void **state)
{
    for (int classes = 2; classes <= 10; classes += 8) {
        char text[80];
        set right, wrong;
        static uint8_t a[4096], b[4096];
        float *x, *same;
        double variance[4], differ = 0;
        size_t count[10] = { 0 };

        snprintf(text, sizeof text, "logistic(dim=4,condition=100,noise=0,classes=%d)", classes);
        right = open_set(*state, text);
        snprintf(text, sizeof text, "logistic(dim=4,condition=100,noise=0.2,classes=%d)", classes);
        wrong = open_set(*state, text);
        x = all_of(&right, TUTTI_TRAIN, 0, a);
        same = all_of(&wrong, TUTTI_TRAIN, 5000, b);
        assert_memory_equal(x, same, 4096 * 4 * sizeof *x);
        tutti_problem_spectrum(4, 100, variance);
        for (int j = 0; j < 4; j++) {
            double square = 0;
            for (size_t i = 0; i < 4096; i++)
                square += pow((double)x[i * 4 + (size_t)j], 2) / 4096;
            assert_true(fabs(square / variance[j] - 1) < 5 * sqrt(2.0 / 4096));
        }
        for (size_t i = 0; i < 4096; i++) {
            assert_true(a[i] < classes && b[i] < classes);
            differ += a[i] != b[i];
            count[a[i]]++;
        }
        assert_true(fabs(differ / 4096 - 0.2) < 5 * sqrt(0.2 * 0.8 / 4096));
        for (int c = 0; c < classes && classes == 2; c++)
            assert_true(fabs((double)count[c] / 4096 - 0.5) < 5 * 0.5 / sqrt(4096));
        /* A linear teacher without a bias: a sample and its mirror image have different labels, so
           a perceptron separates the clean set. */
        if (classes == 2) {
            double w[4] = { 0 };
            int mistakes = 1;
            for (int epoch = 0; epoch < 2000 && mistakes > 0; epoch++) {
                mistakes = 0;
                for (size_t i = 0; i < 512; i++) {
                    double y = 0, sign = a[i] == 1 ? 1 : -1;
                    for (size_t j = 0; j < 4; j++)
                        y += w[j] * (double)x[i * 4 + j];
                    if (y * sign <= 0) {
                        mistakes++;
                        for (size_t j = 0; j < 4; j++)
                            w[j] += sign * (double)x[i * 4 + j];
                    }
                }
            }
            assert_int_equal(mistakes, 0);
        }
        assert_false(tutti_data_optimum(right.data, 0, x));
        free(x);
        free(same);
        close_set(right);
        close_set(wrong);
    }
}

static void shapes_and_hashes_reflect_the_options(void **state)
{
    set a = open_set(*state, "quadratic"), b = open_set(*state, "quadratic(dim=100,condition=100)");
    static const char *const others[] = {
        "quadratic(drift=1)", "quadratic(condition=10)", "quadratic(seed=1)", "quadratic(samples=8192)",
        "logistic(dim=100,classes=8)",
    };
    tutti_data *sharer;
    char path[200];
    float x[2][100];

    assert_true(a.shape->samples[0] == 4096 && a.shape->samples[1] == 512);
    assert_true(a.shape->channels == 1 && a.shape->height == 1 && a.shape->width == 100 && a.shape->classes == 8 &&
                a.shape->value_bytes == 4);
    assert_true(tutti_data_hash(a.data) == tutti_data_hash(b.data) && tutti_data_hash(a.data) != 0);
    for (size_t k = 0; k < TUTTI_LENGTH(others); k++) {
        set o = open_set(*state, others[k]);
        assert_true(tutti_data_hash(o.data) != tutti_data_hash(a.data));
        close_set(o);
    }
    assert_int_equal(
        tutti_data_find(*state, " quadratic ( 100, condition = 100, noise=1 ) ", NULL, path, sizeof path, NULL),
        TUTTI_OK);
    assert_string_equal(path, "quadratic(noise=1)");
    /* Another rank of the host takes the block as it is. */
    assert_int_equal(tutti_data_open_spec(&sharer, *state, "quadratic", NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_data_attach(sharer, a.block, false, NULL), TUTTI_OK);
    assert_true(tutti_data_hash(sharer) == tutti_data_hash(a.data));
    assert_true(tutti_data_optimum(a.data, 0, x[0]) && tutti_data_optimum(sharer, 0, x[1]));
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    tutti_data_close(sharer);
    close_set(a);
    close_set(b);
}

static void a_block_nobody_filled_is_refused(void **state)
{
    tutti_data *d;
    tutti_error err;
    void *block;

    assert_int_equal(tutti_data_open_spec(&d, *state, "quadratic(dim=3)", NULL, NULL), TUTTI_OK);
    block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, false, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "the data set of 'quadratic(dim=3)' has not been filled on this host; the rank that "
                                  "fills it must have done so, without failure, "
                                  "before the others attach");
    tutti_data_close(d);
    tutti_free(block);
}

static void invalid_problem_options_are_rejected_with_a_message(void **state)
{
    static const struct { const char *spec, *sentence;
    } cases[] = {
        { "quadratic(dim=0)", "data 'quadratic': option 'dim' is 0; it must be from 1 to 16384 (values of a sample)" },
        { "quadratic(condition=0.5)", "data 'quadratic': option 'condition' is 0.5; it must be from 1 to 1000000000000 "
                                      "(largest curvature over the smallest; the largest "
                                      "is 1, so lr < 2 is stable)" },
        { "quadratic(condition=nan)", "data 'quadratic': option 'condition' is 'nan'; it must be a number from 1 to "
                                      "1000000000000 (largest curvature over the smallest; "
                                      "the largest is 1, so lr < 2 is stable)" },
        { "quadratic(noise=-1)",
          "data 'quadratic': option 'noise' is -1; it must be from 0 to 1000000 (deviation of samples round the "
          "centre of their class, each value)" },
        { "quadratic(samples=0)", "data 'quadratic': option 'samples' is 0; it must be from 2 to 16777216 (training "
                                  "samples, a multiple of 2 x classes; an eighth as many "
                                  "test samples)" },
        { "quadratic(samples=100)",
          "data 'quadratic': samples is 100; it must be a multiple of 2 x classes = 16, so that every class has "
          "the same number of pairs" },
        { "quadratic(classes=1,skew=1)",
          "data 'quadratic': skew is 1, but there is one class; it takes classes of 2 or more" },
        { "quadratic(dim=1,simplex=on,drift=2)",
          "data 'quadratic': drift is 2, but the simplex of dim 1 is one point; it takes a dim of 2 or more" },
        { "quadratic(dim=16384,samples=16777216)",
          "data 'quadratic': 16777216 samples of 16384 values are more than the 2^31 values possible; use fewer of "
          "either" },
        { "quadratic(simplex=maybe)",
          "data 'quadratic': option 'simplex' is 'maybe'; it must be true or false (the common centre lies on the "
          "probability simplex, and x starts at 1 / dim instead of 0)" },
        { "quadratic(drft=1)", "data 'quadratic': unknown option 'drft'; did you mean 'drift'?" },
        { "logistic(noise=1.5)",
          "data 'logistic': option 'noise' is 1.5; it must be from 0 to 1 (share of the labels that are replaced "
          "by another class)" },
        { "logistic(classes=1)",
          "data 'logistic': option 'classes' is 1; it must be from 2 to 64 (classes of the labels)" },
        { "logistic(skew=1)",
          "data 'logistic': unknown option 'skew'; there are dim, condition, noise, classes, samples and seed" },
        { "quadratik(dim=3)",
          "no data at 'quadratik(dim=3)'; did you mean 'quadratic'?; give 'mnist', 'speech', "
          "'cifar10', 'images', 'moby-dick', 'text', "
          "'tokens', 'clicks', 'quadratic', 'logistic', a directory of images, or a text" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { 0 };
        tutti_data *d;
        assert_int_equal(tutti_data_open_spec(&d, *state, cases[k].spec, NULL, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].sentence);
        assert_null(d);
    }
}

static void problems_are_read_named_printed_and_compared(void **state)
{
    tutti_problem a, b;
    tutti_error err;
    char text[200];
    bool bare;

    (void)state;
    assert_string_equal(tutti_problem_named("quadratic(dim=3)")->name, "quadratic");
    assert_string_equal(tutti_problem_named(" logistic ")->name, "logistic");
    assert_null(tutti_problem_named("quadratics"));
    assert_null(tutti_problem_named("./quadratic"));
    assert_null(tutti_problem_named(""));
    assert_int_equal(tutti_problem_read(&a, "quadratic", "model", &bare, NULL), TUTTI_OK);
    assert_true(bare && a.dim == 100 && a.condition == 100 && a.samples == 4096);
    assert_int_equal(tutti_problem_read(&b, "quadratic(condition=7,drift=0.5)", "data", &bare, NULL), TUTTI_OK);
    assert_false(bare);
    tutti_problem_print(&b, text, sizeof text);
    assert_string_equal(text, "quadratic(condition=7,drift=0.5)");
    assert_int_equal(tutti_problem_same(&a, &a, &err), TUTTI_OK);
    assert_int_equal(tutti_problem_same(&a, &b, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "model and data are two different problems: condition is 100 in the model and 7 in "
                                  "the data; give the options once, or the same ones "
                                  "twice");
    assert_int_equal(tutti_problem_read(&b, "logistic", "data", NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_problem_same(&a, &b, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "the model is quadratic and the data are logistic; name one of them and leave the other out");
    assert_int_equal(tutti_problem_read(&b, "mlp(3)", "model", NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "model 'mlp(3)' is no synthetic problem");
    assert_true(b.kind == TUTTI_PROBLEM_NONE);
    assert_int_equal(tutti_problem_print(&b, text, sizeof text), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_mean_of_each_split_is_the_optimum),
        TEST(noise_and_skew_are_the_deviations_that_were_asked_for),
        TEST(samples_follow_seed_split_and_index_and_nothing_else),
        TEST(a_step_has_the_same_samples_for_any_number_of_workers),
        TEST(drift_moves_everything_exactly_as_stated),
        TEST(the_simplex_centre_is_a_distribution),
        TEST(logistic_has_a_linear_teacher_and_requested_label_noise),
        TEST(shapes_and_hashes_reflect_the_options),
        TEST(a_block_nobody_filled_is_refused),
        TEST(invalid_problem_options_are_rejected_with_a_message),
        TEST(problems_are_read_named_printed_and_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
