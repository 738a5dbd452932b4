/* Goal: the record of a client without an engine has the calls that it made, and its waiting, of
   all ranks. Method: ranks that are threads sum a value and record it with times of their own
   choice; the files are read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "record/files.h"
#include "record/record_internal.h"
#include "sanitized.h"
#include "scratch.h"
#include "tutti/comm.h"

enum { RANKS = 3, STEPS = 5 };

typedef struct job {
    char folder[SCRATCH_PATH + 64];
    int without;                 /* the rank that wants no record; -1: none, RANKS: all */
    bool unended;                /* rank 1 does not come to its end */
    uint64_t sent[RANKS];
    bool none[RANKS];            /* it got no record */
} job;

static char root[SCRATCH_PATH];

static int set_up(void **state)
{
    (void)state;
    scratch_make(root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(root);
    return 0;
}

/* A sum over the ranks, and its lines: asked for 1 us before it begins. */
static tutti_status sum_up(tutti_world *world, tutti_call_record *r, const char *group,
                           const char *codec, tutti_error *err)
{
    tutti_group all = tutti_group_of(world, NULL, RANKS, 77);
    tutti_runtime *rt = tutti_world_runtime(world);
    float x[4] = { 1, 2, 3, 4 };
    tutti_call call = { .group = group, .name = "all_reduce", .codec = codec, .bytes = sizeof x };
    const int64_t begin = tutti_now_ns(rt);

    TUTTI_TRY(tutti_allreduce(&all, TUTTI_SUM, tutti_host(x, 4, TUTTI_F32), err));
    call.asked_ns = begin - 1000;
    call.begin_ns = begin;
    call.end_ns = begin + 5000;
    TUTTI_TRY(tutti_call_record_call(r, &call, err));
    call.begin_ns = tutti_call_record_wait(r);
    tutti_sleep_until(rt, call.begin_ns + 50000);
    return tutti_call_record_waited(r, &call, NULL, err);
}

static tutti_status work(tutti_world *world, tutti_call_record *r, tutti_error *err)
{
    for (int s = 0; s < STEPS; s++) {
        TUTTI_TRY(sum_up(world, r, "the \"group\"", "", err));
        TUTTI_TRY(sum_up(world, r, "gradients", "int8", err));
        tutti_call_record_loss(r, s);
        TUTTI_TRY(tutti_call_record_step(r, err));
        TUTTI_TRY(tutti_call_record_clock(r, err));
    }
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world);
    const bool wants = rank != j->without && j->without != RANKS;
    const tutti_record_options options = { .folder = wants ? j->folder : "",
                                           .facts = "{\"script\": \"calls.c\"}",
                                           .log_to = "csv" };
    tutti_call_record *r;
    uint64_t before, messages;

    TUTTI_TRY(tutti_call_record_open(&r, world, &options, err));
    j->none[rank] = r == NULL;
    if (r == NULL)
        return TUTTI_OK;
    tutti_world_sent(world, -1, &before, &messages);
    TUTTI_TRY(work(world, r, err));
    tutti_world_sent(world, -1, &j->sent[rank], &messages);
    j->sent[rank] -= before;
    return tutti_call_record_close(r, !(j->unended && rank == 1), err);
}

static job job_in(const char *name)
{
    job j = { .without = -1 };

    snprintf(j.folder, sizeof j.folder, "%s/%s", root, name);
    return j;
}

static void run(job *j, const char *transport)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run(transport, RANKS, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

static json_t *load(const job *j, const char *name)
{
    char path[TUTTI_RECORD_PATH];
    json_error_t why;
    json_t *o;

    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    o = json_load_file(path, 0, &why);
    if (o == NULL)
        fail_msg("%s:%d: %s", path, why.line, why.text);
    return o;
}

static bool there(const job *j, const char *name)
{
    char path[TUTTI_RECORD_PATH];

    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    return access(path, F_OK) == 0;
}

static double number_of(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text != NULL ? text : "";
}

/* How many spans of a category and codec a rank has; checks each. */
static int spans_of(const json_t *trace, int rank, const char *category, const char *codec)
{
    int n = 0;
    size_t i;
    json_t *e;

    json_array_foreach(trace, i, e) {
        const json_t *args = json_object_get(e, "args");
        if (number_of(e, "pid") != rank || strcmp(text_of(e, "cat"), category) != 0 ||
            strcmp(text_of(args, "codec"), codec) != 0)
            continue;
        assert_string_equal(text_of(e, "name"), "all_reduce");
        assert_true(number_of(args, "bytes") == 16 && number_of(args, "step") == n);
        if (strcmp(category, "call") == 0) {
            assert_true(number_of(e, "dur") == 5 && number_of(args, "queued_us") == 1);
            assert_int_equal((int)number_of(e, "tid"), codec[0] == 0 ? 3 : 4);
        } else {
            assert_true(number_of(e, "dur") >= 50 && number_of(e, "tid") == 0);
        }
        n++;
    }
    return n;
}

static int threads_of(const json_t *trace, int rank, const char *name)
{
    int n = 0;
    size_t i;
    json_t *e;

    json_array_foreach(trace, i, e) {
        n += number_of(e, "pid") == rank && strcmp(text_of(e, "name"), "thread_name") == 0 &&
             strcmp(text_of(json_object_get(e, "args"), "name"), name) == 0;
    }
    return n;
}

static void check_trace(const json_t *trace)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(spans_of(trace, r, "call", ""), STEPS);
        assert_int_equal(spans_of(trace, r, "call", "int8"), STEPS);
        assert_int_equal(spans_of(trace, r, "wait", ""), STEPS);
        assert_int_equal(spans_of(trace, r, "wait", "int8"), STEPS);
        assert_int_equal(threads_of(trace, r, "the ?group?"), 1);
        assert_int_equal(threads_of(trace, r, "gradients"), 1);
    }
}

static void check_calls(const json_t *calls)
{
    const json_t *coded = json_array_get(calls, 1);

    assert_int_equal(json_array_size(calls), 2);
    assert_string_equal(text_of(coded, "group"), "gradients");
    assert_string_equal(text_of(coded, "call"), "all_reduce");
    assert_string_equal(text_of(coded, "codec"), "int8");
    assert_true(number_of(coded, "calls") == STEPS && number_of(coded, "bytes") == 16 * STEPS);
    assert_true(number_of(coded, "seconds") == STEPS * 5e-6);
    assert_true(number_of(coded, "waited_seconds") >= STEPS * 50e-6);
}

static void all_ranks_have_their_calls_and_their_waiting(void **state)
{
    static const char *const transports[] = { "shm", "tcp" };
    double bytes;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(transports); k++) {
        job j = job_in(transports[k]);
        json_t *trace, *summary, *rows;
        run(&j, transports[k]);
        trace = load(&j, "trace.json");
        summary = load(&j, "summary.json");
        check_trace(trace);
        check_calls(json_object_get(summary, "calls"));
        rows = json_object_get(summary, "by_worker");
        bytes = 0;
        for (int r = 0; r < RANKS; r++) {
            const json_t *row = json_array_get(rows, (size_t)r);
            assert_true(number_of(row, "bytes_sent") == (double)j.sent[r] && j.sent[r] > 0);
            assert_true(number_of(row, "exposed_comm_seconds") >= 2 * STEPS * 50e-6);
            assert_true(number_of(row, "steps") == STEPS);
            bytes += (double)j.sent[r];
        }
        assert_true(number_of(summary, "bytes_sent_total") == bytes);
        assert_true(there(&j, "metrics.csv") && !there(&j, "rank-00000.json"));
        json_decref(trace);
        json_decref(summary);
    }
}

static void a_rank_that_fails_leaves_what_it_has_written(void **state)
{
    job j = job_in("unended");

    (void)state;
    j.unended = true;
    run(&j, "shm");
    assert_true(there(&j, "trace-00001.json") && there(&j, "rank-00000.json"));
    assert_false(there(&j, "rank-00001.json") || there(&j, "summary.json"));
}

static void all_want_a_record_or_none(void **state)
{
    tutti_error err = { .rank = -1 };
    job none = job_in("none"), some = job_in("some");

    (void)state;
    none.without = RANKS;
    run(&none, "shm");
    assert_true(none.none[0] && none.none[1] && none.none[2] && !there(&none, ""));
    some.without = 1;
    assert_int_equal(tutti_world_run("shm", RANKS, run_rank, &some, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "worker 1 has trace '' but worker 0 has"));
    assert_false(there(&some, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_their_calls_and_their_waiting),
        cmocka_unit_test(a_rank_that_fails_leaves_what_it_has_written),
        cmocka_unit_test(all_want_a_record_or_none),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
