/* Goal: samples as bytes are what a gather gives, of every kind of set, at any step; bytes that
   such a set cannot have made are refused. Method: packed, unpacked and compared with a gather of
   the same samples; one number of a message made wrong at a time. */
#include "make.h"
#include <math.h>
#include "data/clicks.h"

enum { SOME = 7 };
static const uint64_t ids[SOME] = { 3, 0, 11, 3, 8, 1, 20 };

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

typedef struct set { tutti_data *data; void *block; const tutti_data_shape *shape; size_t values, bytes; } set;

static set open_set(tutti_runtime *rt, const char *spec)
{
    tutti_error err = { 0 };
    set s;
    const tutti_status status = strchr(spec, '(') != NULL ? tutti_data_open_spec(&s.data, rt, spec, NULL, &err)
                                                          : tutti_data_open(&s.data, rt, spec, &err);
    if (status != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    s.shape = tutti_data_shape_of(s.data);
    s.block = tutti_alloc(s.shape->bytes + 1, 1);
    if (tutti_data_attach(s.data, s.block, true, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    s.values = (size_t)s.shape->channels * (size_t)s.shape->height * (size_t)s.shape->width;
    s.bytes = tutti_data_sample_bytes(s.data);
    return s;
}

static void close_set(set *s)
{
    tutti_data_close(s->data);
    tutti_free(s->block);
}

static tutti_data_buffers room_of(const set *s)
{
    return (tutti_data_buffers){ calloc(SOME * s->values + 1, sizeof(float)), calloc(SOME, 1),
                              calloc(SOME * s->values + 1, 4), calloc(SOME * s->values + 1, 4),
                              calloc(SOME * (size_t)s->shape->tables + 1, 4) };
}

static void drop(tutti_data_buffers *room)
{
    free(room->x);
    free(room->labels);
    free(room->tokens);
    free(room->next);
    free(room->rows);
}

static void gather(const set *s, uint64_t step, tutti_data_buffers *to)
{
    if (s->shape->context > 0) {
        tutti_data_gather_tokens(s->data, TUTTI_TRAIN, ids, SOME, to->tokens, to->next);
        return;
    }
    tutti_data_gather_at(s->data, TUTTI_TRAIN, ids, SOME, step, to->x, to->labels);
    if (s->shape->tables > 0)
        tutti_data_gather_rows(s->data, TUTTI_TRAIN, ids, SOME, to->rows);
}

static void is_what_a_gather_gives(set *s, size_t each)
{
    uint8_t *packed = malloc(SOME * s->bytes);
    tutti_error err;

    assert_int_equal(s->bytes, each);
    tutti_data_pack(s->data, TUTTI_TRAIN, ids, SOME, packed);
    for (uint64_t step = 0; step < 40; step += 13) {
        tutti_data_buffers wanted = room_of(s), got = room_of(s);
        gather(s, step, &wanted);
        if (tutti_data_unpack(s->data, packed, SOME, step, &got, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(got.x, wanted.x, SOME * s->values * sizeof(float));
        assert_memory_equal(got.labels, wanted.labels, SOME);
        assert_memory_equal(got.tokens, wanted.tokens, SOME * s->values * 4);
        assert_memory_equal(got.next, wanted.next, SOME * s->values * 4);
        assert_memory_equal(got.rows, wanted.rows, SOME * (size_t)s->shape->tables * 4);
        drop(&wanted);
        drop(&got);
    }
    free(packed);
}

/* Sample 4 has at byte `at` these bytes. */
static void is_refused(const set *s, size_t at, const void *these, size_t n, const char *sentence)
{
    uint8_t *packed = malloc(SOME * s->bytes);
    tutti_data_buffers got = room_of(s);
    tutti_error err = { .rank = -1 };

    tutti_data_pack(s->data, TUTTI_TRAIN, ids, SOME, packed);
    memcpy(packed + 4 * s->bytes + at, these, n);
    assert_int_equal(tutti_data_unpack(s->data, packed, SOME, 0, &got, &err), TUTTI_ERR_CORRUPT);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s", err.text);
    drop(&got);
    free(packed);
}

static void images_are_packed_as_pixels_and_a_label(void **state)
{
    fixture *f = *state;
    set s;

    put_set(f->m, 53, 3, 3, 5, false);
    s = open_set(&f->m->rt, "set");
    is_what_a_gather_gives(&s, 3 * 5 + 1);
    is_refused(&s, 15, "\x0A", 1, "sample 4 of those that came has label 10, and they are below 10");
    close_set(&s);
}

static void packed_problems_are_floats_that_drift_after_unpacking(void **state)
{
    fixture *f = *state;
    const float bad = NAN;
    set s = open_set(f->real, "quadratic(dim=6,samples=64,drift=0.1)");

    is_what_a_gather_gives(&s, 6 * 4 + 1);
    is_refused(&s, 8, &bad, 4, "sample 4 of those that came has nan as its value 2");
    close_set(&s);
    s = open_set(f->real, "logistic(dim=6,samples=64)");
    is_what_a_gather_gives(&s, 6 * 4 + 1);
    is_refused(&s, 24, "\xFF", 1, "sample 4 of those that came has label 255, and they are below 2");
    close_set(&s);
}

static void texts_are_packed_as_windows_of_tokens(void **state)
{
    fixture *f = *state;
    char text[4000];
    set s;

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcd efg\n"[i * 7 % 9];
    memory_files_put(f->m, "text.txt", text, sizeof text);
    s = open_set(&f->m->rt, "text(file=text.txt,context=16)");
    is_what_a_gather_gives(&s, 17);
    close_set(&s);
}

static void clicks_are_packed_as_values_rows_and_label(void **state)
{
    fixture *f = *state;
    const uint32_t row = 50;
    char *log = malloc(200 * TUTTI_CLICKS_LINE_MOST);
    size_t n = 0;
    set s;

    for (int k = 0; k < 200; k++) {
        n += (size_t)sprintf(log + n, "%d", k % 3 == 0);
        for (int i = 0; i < TUTTI_CLICKS_INTEGERS; i++)
            n += (size_t)sprintf(log + n, "\t%d", k * (i + 1) % 17);
        for (int i = 0; i < TUTTI_CLICKS_CATEGORIES; i++)
            n += (size_t)sprintf(log + n, "\t%08x", (unsigned)(k * 31 + i));
        n += (size_t)sprintf(log + n, "\n");
    }
    memory_files_put(f->m, "log.tsv", log, n);
    free(log);
    s = open_set(&f->m->rt, "clicks(file=log.tsv,rows=50,val=0.2)");
    is_what_a_gather_gives(&s, 13 * 4 + 26 * 4 + 1);
    is_refused(&s, 13 * 4 + 3 * 4, &row, 4, "sample 4 of those that came has row 50, and they are below 50");
    close_set(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(images_are_packed_as_pixels_and_a_label, set_up, tear_down),
        cmocka_unit_test_setup_teardown(packed_problems_are_floats_that_drift_after_unpacking, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_are_packed_as_windows_of_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(clicks_are_packed_as_values_rows_and_label, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("data/pack", tests, NULL, NULL);
}
