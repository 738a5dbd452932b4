/* Goal: no memory is an ordinary result. Method: tutti_alloc is wrapped at link time; the 1st, 2nd,
   3rd ... allocation fails until opening, filling (zlib's memory is ours too) and loading succeed.
   The address sanitizer sees what leaks. */
#include "make.h"
#include "data/pictures.h"
#include "data/text.h"

static size_t until_failure = SIZE_MAX;

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return until_failure != SIZE_MAX && until_failure-- == 0 ? NULL : __real_tutti_alloc(count, size);
}

static tutti_status use(tutti_runtime *real, memory_files *m, const char *spec, void *block, tutti_error *err)
{
    const tutti_share share = { 7, 1, 2, 1, 0 };
    tutti_loader *l = NULL;
    tutti_data *d = NULL;
    tutti_batch b;
    tutti_status status = tutti_data_open_spec(&d, &m->rt, spec, NULL, err);

    if (status == TUTTI_OK)
        status = tutti_data_attach(d, block, true, err);
    if (status == TUTTI_OK)
        status = tutti_loader_open(&l, real, d, &share, 0, 0, 2, err);
    until_failure = SIZE_MAX; /* the loader's thread allocates nothing, and other threads may */
    if (status == TUTTI_OK)
        status = tutti_loader_take(l, &b, err);
    tutti_loader_close(l);
    tutti_data_close(d);
    return status;
}

/* Six files, seven training samples. */
static void put_cifar(memory_files *m)
{
    static const uint8_t records[2 * 3073] = { 0 };
    char path[40];

    for (int k = 1; k <= 5; k++) {
        snprintf(path, sizeof path, "cifar/data_batch_%d.bin", k);
        memory_files_put(m, path, records, 3073 * (k < 3 ? 2 : 1));
    }
    memory_files_put(m, "cifar/test_batch.bin", records, 3073);
    memory_files_put(m, "cifar/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 20);
}

static void without_memory_opening_filling_and_loading_fail_cleanly(void **state)
{
    tutti_runtime *real;
    memory_files *m;
    static const struct {
        const char *spec;
        size_t allocations, first; /* of a path the first two are for whether it is a file */
    } sets[] = { { "mnist(distort=1)", 40 },
                 { "quadratic(dim=3,samples=16)", 6 },
                 { "logistic(dim=3,samples=8)", 6 },
                 { "text(file=book.txt,context=4)", 9 },
                 { "tokens(file=book.tok,context=4)", 9 },
                 { "cifar", 20, 2 },
                 { "images(dir=pictures,size=4)", 60 } };
    /* without libpng there is no last one */
    const size_t n_sets = TUTTI_LENGTH(sets) - (strncmp(tutti_picture_built_with(), "libpng", 6) != 0);
    void *block = __real_tutti_alloc(65536, 1);
    uint8_t text[300];
    uint32_t ids[sizeof text];
    size_t at;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&real, NULL), TUTTI_OK);
    m = memory_files_open(real);
    unsetenv("TUTTI_DATA");
    put_set_in(m, "data/mnist", 7, 3, 4, 5, true);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)('a' + (ids[i] = (uint32_t)i % 26));
    memory_files_put(m, "book.txt", text, sizeof text);
    assert_int_equal(
        tutti_tokens_write(&m->rt, "book.tok", &(tutti_token_ids){ ids, sizeof text, 26 }, 0, NULL),
        TUTTI_OK);
    put_cifar(m);
    for (int k = 0; k < 10; k++) {
        char path[40];
        bytes png = make_png(5, 6);
        snprintf(path, sizeof path, "pictures/%s/%d.png", k < 5 ? "a" : "b", k);
        memory_files_put(m, path, png.data, png.n);
        free(png.data);
    }
    for (size_t k = 0; k < n_sets; k++) {
        tutti_status status = TUTTI_ERR_MEMORY;
        for (at = sets[k].first; status != TUTTI_OK; at++) {
            tutti_error err = { 0 };
            until_failure = at;
            status = use(real, m, sets[k].spec, block, &err);
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
            assert_true(status == TUTTI_OK || strlen(err.text) > 10);
        }
        assert_true(at > sets[k].allocations);
    }
    memory_files_close(m);
    tutti_runtime_close(real);
    tutti_free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(without_memory_opening_filling_and_loading_fail_cleanly) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
