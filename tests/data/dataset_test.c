/* Data sets: what is read is what was written, plain or compressed, on the rank that fills and on
   those that share; MNIST gives its known figures; and each way in which a file can be wrong has
   its sentence and takes no memory on the file's word. */
#include <math.h>
#include "make.h"
#include "runtime/files.h"

typedef struct fixture { tutti_runtime *real; memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(tutti_runtime_open_posix(&f->real, NULL), TUTTI_OK);
    f->m = memory_files_open(f->real);
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

static void an_opened_set_knows_its_shape_before_anything_is_read(void **state)
{
    fixture *f = *state;
    const tutti_data_shape *shape;
    tutti_data *d;

    put_set(f->m, 7, 3, 4, 5, false);
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", NULL), TUTTI_OK);
    shape = tutti_data_shape_of(d);
    assert_int_equal(shape->samples[TUTTI_TRAIN], 7);
    assert_int_equal(shape->samples[TUTTI_TEST], 3);
    assert_int_equal(shape->channels, 1);
    assert_int_equal(shape->height, 4);
    assert_int_equal(shape->width, 5);
    assert_int_equal(shape->classes, 0);
    assert_int_equal(shape->bytes, 64 + 192 + 64 + 64 + 64);
    assert_null(tutti_data_labels(d, TUTTI_TRAIN));
    assert_int_equal(tutti_data_hash(d), 0);
    tutti_data_close(d);
}

/* The block is copied elsewhere, as another process would map it:
   nothing in it may depend on its place. */
static void images_and_labels_are_those_of_the_files_on_every_rank(void **state)
{
    fixture *f = *state;
    uint64_t hash[2];

    for (int gzip = 0; gzip < 2; gzip++) {
        tutti_data *filler, *sharer;
        uint8_t *block, *elsewhere, labels[2];
        const uint64_t ids[2] = { 6, 2 };
        const tutti_data_shape *shape;
        float x[40];

        memory_files_close(f->m);
        f->m = memory_files_open(f->real);
        put_set(f->m, 7, 13, 4, 5, gzip);
        assert_int_equal(tutti_data_open(&filler, &f->m->rt, "set", NULL), TUTTI_OK);
        assert_int_equal(tutti_data_open(&sharer, &f->m->rt, "set", NULL), TUTTI_OK);
        shape = tutti_data_shape_of(sharer);
        block = tutti_alloc(shape->bytes, 1);
        elsewhere = tutti_alloc(shape->bytes, 1);
        memset(block, 0xee, shape->bytes);
        assert_int_equal(tutti_data_attach(filler, block, true, NULL), TUTTI_OK);
        memcpy(elsewhere, block, shape->bytes);
        tutti_free(block);
        tutti_data_close(filler);
        assert_int_equal(tutti_data_attach(sharer, elsewhere, false, NULL), TUTTI_OK);

        assert_int_equal(shape->classes, 10); /* from the test labels: the 7 training ones reach 6 */
        tutti_data_gather(sharer, TUTTI_TRAIN, ids, 2, x, labels);
        assert_int_equal(labels[0], 6);
        assert_int_equal(labels[1], 2);
        for (size_t k = 0; k < 40; k++) {
            const size_t i = (size_t)ids[k / 20] * 20 + k % 20;
            assert_true(x[k] == ((float)fill_pixel(i) / 255.0f - shape->mean) / shape->deviation);
        }
        assert_int_equal(tutti_data_labels(sharer, TUTTI_TEST)[12], 2);
        hash[gzip] = tutti_data_hash(sharer);
        tutti_data_close(sharer);
        tutti_free(elsewhere);
    }
    assert_true(hash[0] == hash[1] && hash[0] != 0); /* of the contents, not of how they are stored */
}

static void mean_and_deviation_are_those_of_the_training_pixels(void **state)
{
    fixture *f = *state;
    double mean = 0, square = 0;
    tutti_data *d;
    void *block;

    put_set(f->m, 50, 4, 6, 6, true);
    for (size_t i = 0; i < 50 * 36; i++) {
        mean += fill_pixel(i) / 255.0;
        square += fill_pixel(i) / 255.0 * (fill_pixel(i) / 255.0);
    }
    mean /= 50 * 36;
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", NULL), TUTTI_OK);
    block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, NULL), TUTTI_OK);
    assert_true(fabs(tutti_data_shape_of(d)->mean - mean) < 1e-7);
    assert_true(fabs(tutti_data_shape_of(d)->deviation - sqrt(square / (50 * 36) - mean * mean)) < 1e-7);
    tutti_data_close(d);
    tutti_free(block);
}

static uint8_t fill_grey(size_t i)
{
    (void)i;
    return 100;
}

static void images_of_one_grey_become_zeros(void **state)
{
    fixture *f = *state;
    const uint32_t dim[3] = { 7, 4, 5 };
    bytes grey = make_idx(3, dim, fill_grey);
    const uint64_t id = 3;
    uint8_t label;
    tutti_data *d;
    void *block;
    float x[20];

    put_set(f->m, 7, 3, 4, 5, false);
    memory_files_put(f->m, "set/train-images-idx3-ubyte", grey.data, grey.n);
    free(grey.data);
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", NULL), TUTTI_OK);
    block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, NULL), TUTTI_OK);
    tutti_data_gather(d, TUTTI_TRAIN, &id, 1, x, &label);
    for (int k = 0; k < 20; k++)
        assert_true(fabsf(x[k]) < 1e-6f);
    tutti_data_close(d);
    tutti_free(block);
}

static void mnist_has_its_known_figures(void **state)
{
    fixture *f = *state;
    const tutti_data_shape *shape;
    tutti_data *d;
    void *block;

    assert_int_equal(tutti_data_open(&d, f->real, TUTTI_SOURCE_DIR "/data/mnist", NULL), TUTTI_OK);
    shape = tutti_data_shape_of(d);
    assert_int_equal(shape->samples[TUTTI_TRAIN], 60000);
    assert_int_equal(shape->samples[TUTTI_TEST], 10000);
    block = tutti_alloc(shape->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, NULL), TUTTI_OK);
    assert_int_equal(shape->classes, 10);
    assert_true(fabsf(shape->mean - 0.1307f) < 5e-5f);
    assert_true(fabsf(shape->deviation - 0.3081f) < 5e-5f);
    assert_memory_equal(tutti_data_labels(d, TUTTI_TRAIN), ((uint8_t[]){ 5, 0, 4, 1, 9, 2, 1, 3 }), 8);
    assert_memory_equal(tutti_data_labels(d, TUTTI_TEST), ((uint8_t[]){ 7, 2, 1, 0, 4, 1, 4, 9 }), 8);
    tutti_data_close(d);
    tutti_free(block);
}

/* ---- faults ---- */

/* Opens and, if that goes well, attaches; gives the sentence. */
static tutti_status try_set(fixture *f, tutti_error *err)
{
    tutti_data *d;
    tutti_status status = tutti_data_open(&d, &f->m->rt, "set", err);

    if (status == TUTTI_OK) {
        void *block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
        status = tutti_data_attach(d, block, true, err);
        if (status != TUTTI_OK) { /* others do not learn that it was filled */
            tutti_error other;
            assert_int_equal(tutti_data_attach(d, block, false, &other), TUTTI_ERR_STATE);
            assert_non_null(strstr(
                other.text,
                "has not been filled on this host; the rank that fills it must have done so, without failure, before "
                "the others attach"));
        }
        tutti_free(block);
    } else {
        assert_null(d);
    }
    tutti_data_close(d);
    return status;
}

/* A sound set, except for one file of these bytes. */
static void expect(void **state, const char *name, const uint8_t *data, size_t n, tutti_status status, const char *text)
{
    fixture *f = *state;
    tutti_error err = { 0 };
    char path[100];

    memory_files_close(f->m);
    f->m = memory_files_open(f->real);
    put_set(f->m, 7, 3, 4, 5, false);
    snprintf(path, sizeof path, "set/%s", name);
    memory_files_put(f->m, path, data, n);
    assert_int_equal(try_set(f, &err), status);
    assert_string_equal(err.text, text);
}

static void plain_files_of_a_wrong_length_or_shape_are_refused(void **state)
{
    const uint32_t dim[3] = { 7, 4, 5 }, wide[3] = { 3, 4, 6 }, eight[3] = { 8, 4, 5 };
    bytes b = make_idx(3, dim, fill_pixel), w = make_idx(3, wide, fill_pixel), e = make_idx(3, eight, fill_pixel),
          l = make_idx(1, dim, fill_label);
    uint8_t huge[16] = { 0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1 };

    expect(state, "train-images-idx3-ubyte", b.data, b.n - 1, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has 155 bytes, too few for the 156 its header speaks of; it was cut short: "
           "fetch it again");
    expect(state, "train-images-idx3-ubyte", b.data, 10, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' ends after 10 bytes, inside its header of 16 (3 dimensions); fetch it again");
    expect(state, "train-images-idx3-ubyte", b.data, 0, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' ends after 0 bytes, inside the 4 bytes every IDX file begins with; fetch it "
           "again");
    expect(state, "train-images-idx3-ubyte", huge, sizeof huge, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has 16 bytes, too few for the 18446744065119617041 its header speaks of; it "
           "was cut short: fetch it again");
    b.data = realloc(b.data, b.n + 2);
    memset(b.data + b.n, 0, 2);
    expect(state, "train-images-idx3-ubyte", b.data, b.n + 2, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has 2 bytes after the 156 its header speaks of; cut them off or fetch the "
           "file again");
    expect(state, "train-images-idx3-ubyte", l.data, l.n, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has 1 dimensions, but images (samples, height, width) have 3; it is another "
           "file under this name");
    expect(state, "t10k-labels-idx1-ubyte", b.data, b.n, TUTTI_ERR_CORRUPT,
           "'set/t10k-labels-idx1-ubyte' has 3 dimensions, but labels (samples) have 1; it is another file under this "
           "name");
    expect(state, "train-images-idx3-ubyte", e.data, e.n, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has 8 images but 'set/train-labels-idx1-ubyte' has 7 labels; they are not of "
           "one data set");
    expect(state, "t10k-images-idx3-ubyte", w.data, w.n, TUTTI_ERR_CORRUPT,
           "'set/train-images-idx3-ubyte' has images of 4 x 5 but 'set/t10k-images-idx3-ubyte' of 4 x 6; both splits "
           "need one size");
    free(b.data);
    free(w.data);
    free(e.data);
    free(l.data);
}

#define SET "set/"
#define NAME "train-images-idx3-ubyte"
static void damaged_gzip_files_are_refused(void **state)
{
    const uint32_t dim[3] = { 7, 4, 5 };
    bytes b = make_idx(3, dim, fill_pixel), z = make_gzip(b.data, b.n), s = make_gzip(b.data, b.n - 1),
          twice = make_gzip(z.data, z.n), l;
    char text[300];

    expect(state, NAME, z.data, 100, TUTTI_ERR_CORRUPT,
           "'" SET NAME "' ends at byte 100 in the middle of its gzip stream; it was cut short: fetch it again");
    snprintf(text, sizeof text,
             "'" SET NAME "' ends at byte %zu in the middle of its gzip stream; it was cut short: fetch it again",
             z.n - 1);
    expect(state, NAME, z.data, z.n - 1, TUTTI_ERR_CORRUPT, text);
    expect(state, NAME, s.data, s.n, TUTTI_ERR_CORRUPT,
           "'" SET NAME
           "' ends after 139 of the 140 bytes of data its header speaks of; it was cut short: fetch it again");
    expect(state, NAME, twice.data, twice.n, TUTTI_ERR_CORRUPT,
           "'" SET NAME "' holds gzip data where an IDX header was expected; it was compressed twice: gunzip it once");
    z.data[z.n - 8] ^= 1;
    snprintf(text, sizeof text,
             "cannot inflate '" SET NAME
             "': incorrect data check near byte %zu of the file; it is damaged: fetch it again",
             z.n - 4);
    expect(state, NAME, z.data, z.n, TUTTI_ERR_CORRUPT, text);
    z.data[z.n - 8] ^= 1;
    z.data[z.n - 4] ^= 1;
    snprintf(text, sizeof text,
             "cannot inflate '" SET NAME
             "': incorrect length check near byte %zu of the file; it is damaged: fetch it again",
             z.n);
    expect(state, NAME, z.data, z.n, TUTTI_ERR_CORRUPT, text);
    z.data[z.n - 4] ^= 1;
    z.data = realloc(z.data, z.n + 3);
    memcpy(z.data + z.n, "abc", 3);
    for (size_t more = 1; more <= 3; more += 2) {
        snprintf(text, sizeof text,
                 "'" SET NAME
                 "' has %zu bytes after the end of its gzip stream at byte %zu; cut them off or fetch the file again",
                 more, z.n);
        expect(state, NAME, z.data, z.n + more, TUTTI_ERR_CORRUPT, text);
    }
    free(s.data);
    b.data = realloc(b.data, b.n + 5);
    memset(b.data + b.n, 0, 5);
    s = make_gzip(b.data, b.n + 5);
    expect(state, NAME, s.data, s.n, TUTTI_ERR_CORRUPT,
           "'" SET NAME "' inflates to more than the 156 bytes its header speaks of; fetch it again");

    /* A header that no gzip file of this size could fill asks for memory in vain. */
    l = make_gzip((uint8_t[16]){ 0, 0, 8, 3, 0, 1, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28 }, 16);
    snprintf(text, sizeof text,
             "'set/train-images-idx3-ubyte' has %zu bytes of gzip, too few for the 51380240 its header speaks of; it "
             "was cut short: "
             "fetch it again",
             l.n);
    expect(state, "train-images-idx3-ubyte", l.data, l.n, TUTTI_ERR_CORRUPT, text);
    free(b.data);
    free(z.data);
    free(s.data);
    free(l.data);
    free(twice.data);
}

/* RFC 1952, 2.2: members may follow one another; parallel compressors write such files. The first
   is made to end at, just before and just behind what is read at once (64 KiB), so that the
   second's two magic bytes are cut at each place. */
static void a_gzip_file_may_have_several_members(void **state)
{
    fixture *f = *state;
    const uint32_t dim[3] = { 7, 4, 5 };
    bytes b = make_idx(3, dim, fill_pixel), second = make_gzip(b.data + 3, b.n - 3),
          one = make_gzip_extra(b.data, 3, 1);
    const size_t extras[] = { 1, 65536 - 2 - one.n + 1, 65536 - 1 - one.n + 1, 65536 - one.n + 1,
                              65536 + 1 - one.n + 1 };

    for (size_t k = 0; k < TUTTI_LENGTH(extras); k++) {
        bytes first = make_gzip_extra(b.data, 3, extras[k]);
        uint8_t *both = malloc(first.n + second.n + 1);
        tutti_error err;

        assert_int_equal(first.n, one.n - 1 + extras[k]);
        memcpy(both, first.data, first.n);
        memcpy(both + first.n, second.data, second.n);
        both[first.n + second.n] = 0x1f;
        put_set(f->m, 7, 3, 4, 5, false);
        memory_files_put(f->m, "set/train-images-idx3-ubyte", both, first.n + second.n);
        assert_int_equal(try_set(f, &err), TUTTI_OK);
        memory_files_put(f->m, "set/train-images-idx3-ubyte", both, first.n + second.n + 1);
        assert_int_equal(try_set(f, &err), TUTTI_ERR_CORRUPT); /* half a magic */
        free(first.data);
        free(both);
    }
    free(b.data);
    free(one.data);
    free(second.data);
}

/* Any single byte of a compressed file: it is refused, or the byte meant nothing (the header's
   time) and the contents are the same. */
static void no_flipped_byte_of_a_gzip_file_changes_what_is_read(void **state)
{
    fixture *f = *state;
    const char *path = "set/train-images-idx3-ubyte.gz";
    size_t n, taken = 0;
    uint64_t hash = 0;
    uint8_t *data;

    put_set(f->m, 7, 3, 4, 5, true);
    data = memory_files_get(f->m, path, &n);
    for (size_t k = 0; k <= n; k++) { /* the first time round nothing is flipped */
        tutti_data *d = NULL;
        void *block = NULL;
        if (k > 0)
            data[k - 1] ^= 0x10;
        if (tutti_data_open(&d, &f->m->rt, "set", NULL) == TUTTI_OK) {
            block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
            if (tutti_data_attach(d, block, true, NULL) == TUTTI_OK) {
                hash = k == 0 ? tutti_data_hash(d) : hash;
                assert_true(tutti_data_hash(d) == hash);
                taken++;
            }
        }
        tutti_data_close(d);
        tutti_free(block);
        if (k > 0)
            data[k - 1] ^= 0x10;
    }
    assert_true(taken < 10 && hash != 0);
}

static void a_file_that_is_missing_or_a_directory_is_named(void **state)
{
    fixture *f = *state;
    tutti_error err;
    tutti_data *d;

    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "no data set at 'set' (No such file or directory)");
    put_set(f->m, 7, 3, 4, 5, false);
    tutti_file_remove(&f->m->rt, "set/t10k-images-idx3-ubyte", NULL);
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "data set 'set' has neither 't10k-images-idx3-ubyte' nor "
                                  "'t10k-images-idx3-ubyte.gz'; put the four MNIST files there "
                                  "(No such file or directory)");
    tutti_directory_make(&f->m->rt, "set/t10k-images-idx3-ubyte", NULL);
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", &err), TUTTI_ERR_IO);
    assert_string_equal(err.text,
                        "cannot open 'set/t10k-images-idx3-ubyte'; a regular file is needed (Is a directory)");
    assert_null(d);
}

static void a_file_that_changes_between_open_and_attach_is_refused(void **state)
{
    fixture *f = *state;
    const uint32_t dim[3] = { 8, 4, 5 };
    bytes b = make_idx(3, dim, fill_pixel);
    tutti_error err;
    tutti_data *d;
    void *block;

    put_set(f->m, 7, 3, 4, 5, false);
    assert_int_equal(tutti_data_open(&d, &f->m->rt, "set", NULL), TUTTI_OK);
    memory_files_put(f->m, "set/train-images-idx3-ubyte", b.data, b.n);
    block = tutti_alloc(tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "'set/train-images-idx3-ubyte' was changed since it was opened; start again");
    tutti_data_close(d);
    tutti_free(block);
    free(b.data);
}

/* Every read in turn fails: the sentence of the file comes up, and nothing
   leaks (the address sanitizer's part). */
static void a_read_that_fails_is_reported_wherever_it_is(void **state)
{
    fixture *f = *state;
    tutti_status status = TUTTI_ERR_IO;
    uint64_t k = 0;

    put_set(f->m, 7, 3, 4, 5, true);
    while (status != TUTTI_OK) {
        tutti_error err = { 0 };
        f->m->reads = 0;
        f->m->fail_read_at = ++k;
        status = try_set(f, &err);
        if (status == TUTTI_ERR_STATE)
            continue;
        if (status != TUTTI_OK) {
            assert_int_equal(status, TUTTI_ERR_IO);
            assert_int_equal(err.cause, EIO);
        }
        assert_true(k < 100);
    }
    assert_true(k > 16); /* four files, opened and attached, two reads each */
}

static void data_sets_are_looked_up_in_search_path_order(void **state)
{
    fixture *f = *state;
    char path[100];
    tutti_error err;

    unsetenv("TUTTI_DATA");
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", "/inst", path, sizeof path, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "no data set 'mnist' (looked for 'data/mnist', '/inst/mnist'); set TUTTI_DATA to the "
                                  "folder that holds mnist/, or give "
                                  "a path");
    memory_files_put(f->m, "inst/mnist/a", "", 0);
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", "/inst", path, sizeof path, NULL), TUTTI_OK);
    assert_string_equal(path, "/inst/mnist");
    memory_files_put(f->m, "data/mnist/a", "", 0);
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", "/inst", path, sizeof path, NULL), TUTTI_OK);
    assert_string_equal(path, "data/mnist");
    setenv("TUTTI_DATA", "mine", 1);
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", NULL, path, sizeof path, NULL), TUTTI_OK);
    assert_string_equal(path, "data/mnist");
    memory_files_put(f->m, "mine/mnist/a", "", 0);
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", NULL, path, sizeof path, NULL), TUTTI_OK);
    assert_string_equal(path, "mine/mnist");
    assert_int_equal(tutti_data_find(&f->m->rt, "mnist", NULL, path, 8, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the data path 'mine/mnist' is longer than the 7 bytes allowed");
    assert_string_equal(path, "");
    unsetenv("TUTTI_DATA");
    assert_int_equal(tutti_data_find(&f->m->rt, "elsewhere", NULL, path, sizeof path, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "no data at 'elsewhere'; give 'mnist', 'speech', "
                        "'cifar10', 'images', 'moby-dick', 'text', 'tokens', 'clicks', "
                        "'quadratic', 'logistic', a directory of images, or a text");
    memory_files_put(f->m, "elsewhere/a", "", 0);
    assert_int_equal(tutti_data_find(&f->m->rt, "elsewhere", NULL, path, sizeof path, NULL), TUTTI_OK);
    assert_string_equal(path, "elsewhere");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_opened_set_knows_its_shape_before_anything_is_read),
        TEST(images_and_labels_are_those_of_the_files_on_every_rank),
        TEST(mean_and_deviation_are_those_of_the_training_pixels),
        TEST(images_of_one_grey_become_zeros),
        TEST(mnist_has_its_known_figures),
        TEST(plain_files_of_a_wrong_length_or_shape_are_refused),
        TEST(damaged_gzip_files_are_refused),
        TEST(a_gzip_file_may_have_several_members),
        TEST(no_flipped_byte_of_a_gzip_file_changes_what_is_read),
        TEST(a_file_that_is_missing_or_a_directory_is_named),
        TEST(a_file_that_changes_between_open_and_attach_is_refused),
        TEST(a_read_that_fails_is_reported_wherever_it_is),
        TEST(data_sets_are_looked_up_in_search_path_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
