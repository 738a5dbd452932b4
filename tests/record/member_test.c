/* Goal: the trace of workers that come and go has what each part has, on one clock, as often as it
   is made; it has an upper limit, and a folder of another run is refused. Method: parts are written
   for members with clocks of their own, and cut off as by a kill; the trace is read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/files.h"
#include "record/merge.h"
#include "record/record_internal.h"
#include "folder.h"

#define S INT64_C(1000000000)
enum { RUN = 77, MOST = 1000 };


static void folder_of(char folder[SCRATCH_PATH + 64], const char *name)
{
    snprintf(folder, SCRATCH_PATH + 64, "%s/%s", root, name);
    assert_int_equal(mkdir(folder, 0755), 0);
    assert_int_equal(tutti_record_parts_begin(rt, folder, RUN, NULL), TUTTI_OK);
}

static tutti_status open_part(tutti_record_part **p, const char *folder, int worker, int workers,
                              tutti_error *err)
{
    return tutti_record_part_open(p,
                                  &(tutti_record_member){ .rt = rt,
                                                          .folder = folder,
                                                          .run = RUN,
                                                          .worker = worker,
                                                          .most = MOST,
                                                          .most_workers = workers },
                                  err);
}

/* A part of an epoch, by a clock that is that far ahead. */
static tutti_record_part *begin(const char *folder, int worker, uint64_t epoch, int64_t ahead_ns)
{
    tutti_record_clock clock = { .at_ns = tutti_now_ns(rt), .ahead_ns = ahead_ns };
    tutti_record_part *p;

    assert_int_equal(open_part(&p, folder, worker, 100, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_clock(p, &clock, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_in(p, epoch, 5 * epoch, 3, NULL), TUTTI_OK);
    return p;
}

static void add(tutti_record_part *p, uint64_t step, int64_t begin_ns)
{
    const tutti_trace_event e = {
        .what = "forward", .index = -1, .step = step, .begin_ns = begin_ns, .end_ns = begin_ns + S
    };

    assert_int_equal(tutti_record_part_add(p, NULL, &e, NULL), TUTTI_OK);
}

/* The trace of a folder; *lost: of the merge. */
static json_t *merge(const char *folder, int parts, uint64_t *lost)
{
    char path[TUTTI_RECORD_PATH];
    json_t *trace;
    int n;

    assert_int_equal(tutti_record_merge_members(rt, folder, &n, lost, NULL), TUTTI_OK);
    assert_int_equal(n, parts);
    snprintf(path, sizeof path, "%.3000s/trace.json", folder);
    trace = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_array(trace));
    return trace;
}

/* The event of that name on the track of that worker; NULL: none. There are not two of them. */
static const json_t *find(const json_t *trace, int worker, const char *name)
{
    const json_t *found = NULL, *e;
    size_t i;

    json_array_foreach(trace, i, e) {
        if (json_integer_value(json_object_get(e, "pid")) != worker ||
            strcmp(json_string_value(json_object_get(e, "name")), name) != 0)
            continue;
        assert_null(found);
        found = e;
    }
    return found;
}

static double at(const json_t *e, const char *name)
{
    return json_number_value(json_object_get(e, name));
}

static const json_t *arg(const json_t *e, const char *name)
{
    return json_object_get(json_object_get(e, "args"), name);
}

static void parts_are_merged_on_one_clock_as_often_as_one_likes(void **state)
{
    const int64_t ahead[] = { 0, 1000 * S, -500 * S };
    char folder[SCRATCH_PATH + 64];
    tutti_record_part *p[3];
    json_t *trace, *again;
    uint64_t lost;
    int64_t now;

    (void)state;
    folder_of(folder, "merged");
    for (int k = 0; k < 3; k++)
        p[k] = begin(folder, k, k < 2 ? 1 : 2, ahead[k]);
    now = tutti_now_ns(rt);
    for (int k = 0; k < 3; k++)
        add(p[k], 7, now + ahead[k]);
    assert_int_equal(tutti_record_part_over(p[0], false, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_in(p[0], 2, 10, 2, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_over(p[0], true, 4, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_over(p[2], false, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_close(p[0], NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_close(p[1], NULL, NULL), TUTTI_OK); /* as if killed */
    assert_int_equal(tutti_record_part_close(p[2], "leave", NULL), TUTTI_OK);
    trace = merge(folder, 3, &lost);
    assert_int_equal(lost, 4);
    for (int k = 0; k < 3; k++)
        assert_true(fabs(at(find(trace, k, "forward"), "ts") - (double)now * 1e-3) < 0.01);
    assert_null(arg(find(trace, 0, "epoch 1"), "cut"));
    assert_int_equal(json_integer_value(arg(find(trace, 0, "epoch 2"), "step")), 10);
    assert_null(find(trace, 0, "loss"));
    assert_true(json_is_true(arg(find(trace, 1, "epoch 1"), "cut")));
    assert_non_null(find(trace, 1, "loss"));
    assert_null(find(trace, 1, "join"));
    assert_non_null(find(trace, 2, "join"));
    assert_non_null(find(trace, 2, "leave"));
    assert_null(find(trace, 2, "loss"));
    again = merge(folder, 3, &lost);
    assert_true(json_equal(trace, again));
    json_decref(again);
    json_decref(trace);
}

static void a_part_that_is_cut_off_anywhere_gives_whole_json(void **state)
{
    char folder[SCRATCH_PATH + 64], path[TUTTI_RECORD_PATH];
    tutti_record_part *p;
    struct stat about;
    uint64_t lost;

    (void)state;
    folder_of(folder, "cut");
    p = begin(folder, 3, 2, 0);
    for (uint64_t k = 0; k < 4; k++)
        add(p, k, tutti_now_ns(rt));
    assert_int_equal(tutti_record_part_over(p, false, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_part_close(p, "failure", NULL), TUTTI_OK);
    snprintf(path, sizeof path, "%.3000s/trace-parts/trace-00003.json", folder);
    assert_int_equal(stat(path, &about), 0);
    for (off_t bytes = about.st_size; bytes >= 0; bytes--) {
        assert_int_equal(truncate(path, bytes), 0);
        json_decref(merge(folder, 1, &lost));
    }
}

static void a_part_and_all_parts_have_an_upper_limit(void **state)
{
    enum { PARTS = 12, WORKERS = 2 };
    char folder[SCRATCH_PATH + 64];
    tutti_record_part *p;
    uint64_t lost, kept = 0;
    json_t *trace;

    (void)state;
    folder_of(folder, "limit");
    for (int k = 0; k < PARTS; k++) {
        size_t left;
        assert_int_equal(open_part(&p, folder, k, WORKERS, NULL), TUTTI_OK);
        left = tutti_record_part_left(p);
        assert_true(left <= MOST && (k >= WORKERS || left > MOST / 2));
        assert_int_equal(tutti_record_part_in(p, 1, 0, 1, NULL), TUTTI_OK);
        for (uint64_t i = 0; i < MOST + 10; i++)
            add(p, i, tutti_now_ns(rt));
        assert_int_equal(tutti_record_part_left(p), 0);
        assert_int_equal(tutti_record_part_over(p, true, 0, NULL), TUTTI_OK);
        assert_int_equal(tutti_record_part_close(p, NULL, NULL), TUTTI_OK);
        kept += left;
    }
    assert_true(kept <= 2 * WORKERS * MOST);
    trace = merge(folder, PARTS, &lost);
    assert_int_equal(lost, (uint64_t)PARTS * (MOST + 10) - kept);
    assert_true(json_array_size(trace) < kept + 16 * PARTS);
    json_decref(trace);
}

static void a_folder_of_another_run_is_refused_and_cleared(void **state)
{
    char folder[SCRATCH_PATH + 64], path[TUTTI_RECORD_PATH];
    tutti_error err = { .rank = -1 };
    tutti_record_part *p;
    uint64_t lost;
    int n;

    (void)state;
    folder_of(folder, "other");
    tutti_record_part_close(begin(folder, 0, 1, 0), NULL, NULL);
    assert_int_equal(tutti_record_parts_begin(rt, folder, RUN + 1, NULL), TUTTI_OK);
    assert_int_equal(open_part(&p, folder, 1, 3, &err), TUTTI_ERR_USAGE);
    assert_null(p);
    assert_non_null(strstr(err.text, "is of another run"));
    assert_int_equal(open_part(&p, root, 1, 3, &err), TUTTI_ERR_USAGE);
    snprintf(path, sizeof path, "%.3000s/trace-parts/mine", folder);
    fclose(fopen(path, "w"));
    assert_int_equal(tutti_record_parts_remove(rt, folder, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_merge_members(rt, folder, &n, &lost, NULL), TUTTI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tutti_record_parts_remove(rt, folder, NULL), TUTTI_OK);
    snprintf(path, sizeof path, "%.3000s/trace-parts", folder);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_merged_on_one_clock_as_often_as_one_likes),
        cmocka_unit_test(a_part_that_is_cut_off_anywhere_gives_whole_json),
        cmocka_unit_test(a_part_and_all_parts_have_an_upper_limit),
        cmocka_unit_test(a_folder_of_another_run_is_refused_and_cleared),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
