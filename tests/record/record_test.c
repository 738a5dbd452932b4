/* Goal: the record of a client's run has what the engine says it did, on one clock, whatever
   becomes of a rank. Method: ranks that are threads train the toy and write a record; its files are
   read back and compared with the engine's figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/toy.h"
#include "record/files.h"
#include "record/record_internal.h"
#include "sanitized.h"
#include "folder.h"
#include "record/merge.h"

enum { RANKS = 3, STEPS = 5 };

typedef struct job {
    char folder[SCRATCH_PATH + 64], other[SCRATCH_PATH + 64]; /* other: of rank 1, if it is not "" */
    bool overwrite, unended;     /* unended: rank 1 does not come to its end */
    int kill_after;              /* steps after which the process is killed; 0: it is not */
    const char *method;
    /* results */
    tutti_figures figures[RANKS];
    size_t exchanges[RANKS];     /* events of the engine */
    int failures[RANKS];         /* calls of the record that have failed */
    char sentence[512];
} job;


static job job_in(const char *name)
{
    job j = { .method = "ddp" };

    snprintf(j.folder, sizeof j.folder, "%s/%s", root, name);
    return j;
}

static tutti_status train(job *j, tutti_record *r, tutti_engine *e, toy *t, tutti_error *err)
{
    const int rank = tutti_engine_method(e)->rank;

    for (int s = 0; s < STEPS; s++) {
        const int64_t now = tutti_now_ns(tutti_engine_method(e)->rt);
        tutti_error why = { .rank = -1 };
        TUTTI_TRY(tutti_record_span(r, "work", now, now + 1000, err));
        TUTTI_TRY(toy_step(e, t, err));
        tutti_record_loss(r, rank + s);
        if (tutti_record_step(r, &why) != TUTTI_OK) {
            j->failures[rank]++;
            if (rank == 0)
                snprintf(j->sentence, sizeof j->sentence, "%s", why.text);
            CHECK(why.status == TUTTI_ERR_IO);
        }
        if (s + 1 == j->kill_after && rank == 1)
            kill(getpid(), SIGKILL);
    }
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world);
    toy t = toy_default();
    const tutti_record_options options = {
        .folder = rank == 1 && j->other[0] != 0 ? j->other : j->folder,
        .overwrite = j->overwrite,
        .facts = "{\"script\": \"toy.c\", \"command\": [\"toy\", \"--fast\"], \"model\": \"toy\"}",
        .samples = true,
        .log_to = "tensorboard,csv",
    };
    const tutti_trace_event *events;
    tutti_record *r;
    tutti_engine *e;
    tutti_status status;

    t.options.method = j->method;
    t.options.trace_events = TUTTI_RECORD_EVENTS;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    status = tutti_record_open(&r, e, &options, err);
    if (status != TUTTI_OK) {
        tutti_engine_close(e);
        return status;
    }
    status = train(j, r, e, &t, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_figures(e, &j->figures[rank]);
    for (size_t i = tutti_engine_trace(e, &events); i-- > 0;)
        j->exchanges[rank] += strcmp(events[i].what, "exchange") == 0;
    if (status == TUTTI_OK)
        status = tutti_record_close(r, !(j->unended && rank == 1), err);
    tutti_engine_close(e);
    return status;
}

static void run(job *j)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", RANKS, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

static void refused(job *j, tutti_status status, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", RANKS, run_rank, j, &err), status);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' is not in: %s", sentence, err.text);
}

/* ---- files ---- */

static bool there(const job *j, const char *name)
{
    char path[TUTTI_RECORD_PATH];

    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    return access(path, F_OK) == 0;
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

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text != NULL ? text : "";
}

static double number_of(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* How many events of that category a rank has in a trace. */
static size_t count(const json_t *trace, int rank, const char *category)
{
    size_t n = 0, i;
    json_t *e;

    json_array_foreach(trace, i, e) {
        n += json_integer_value(json_object_get(e, "pid")) == rank && strcmp(text_of(e, "cat"), category) == 0;
    }
    return n;
}

static void a_run_leaves_the_files_of_tutti_train(void **state)
{
    static const int steps[] = { 1, 2, 4, 5 }; /* 5: at the end */
    job j = job_in("whole");
    json_t *trace, *summary, *workers, *config, *line;
    char path[TUTTI_RECORD_PATH], text[4096];
    double bytes = 0;
    FILE *f;

    (void)state;
    run(&j);
    trace = load(&j, "trace.json");
    summary = load(&j, "summary.json");
    config = load(&j, "config.json");
    workers = json_object_get(summary, "by_worker");
    for (int r = 0; r < RANKS; r++) {
        const json_t *row = json_array_get(workers, (size_t)r);
        assert_int_equal(count(trace, r, "work"), STEPS);
        assert_true(j.exchanges[r] >= STEPS);
        assert_int_equal(count(trace, r, "exchange"), j.exchanges[r]);
        assert_int_equal(count(trace, r, "ready"), STEPS * TOY_TENSORS);
        assert_true(number_of(row, "bytes_sent") == (double)j.figures[r].bytes_sent);
        assert_true(number_of(row, "steps") == STEPS);
        bytes += (double)j.figures[r].bytes_sent;
    }
    assert_true(bytes > 0);
    assert_true(number_of(summary, "bytes_sent_total") == bytes);
    assert_true(number_of(summary, "samples") == (double)j.figures[0].samples);
    assert_string_equal(text_of(summary, "method"), "ddp");
    assert_string_equal(text_of(config, "script"), "toy.c");
    assert_int_equal(json_integer_value(json_object_get(config, "n")), RANKS);
    json_decref(trace);
    json_decref(summary);
    json_decref(config);

    snprintf(path, sizeof path, "%s/metrics.jsonl", j.folder);
    f = fopen(path, "r");
    assert_non_null(f);
    for (size_t i = 0; i < TUTTI_LENGTH(steps); i++) {
        assert_non_null(fgets(text, sizeof text, f));
        line = json_loads(text, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(line, "step")), steps[i]);
        if (steps[i] == 4) { /* steps 3 and 4 of all: 2 + 3, and the mean of the ranks */
            assert_true(number_of(line, "train_loss") == 3.5);
            assert_int_equal(json_array_size(json_object_get(line, "wait_seconds_by_worker")), RANKS);
            assert_true(number_of(line, "bytes_sent_total") > 0);
        }
        json_decref(line);
    }
    assert_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_false(there(&j, "rank-00000.json") || there(&j, "trace-00001.json") || there(&j, "merging"));
}

/* Skipped where the machine has no locale with a decimal comma. */
static void the_locale_of_the_process_does_not_matter(void **state)
{
    job j = job_in("comma");
    json_t *trace;

    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        skip();
    run(&j);
    setlocale(LC_ALL, "C");
    trace = load(&j, "trace.json");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(count(trace, r, "exchange"), j.exchanges[r]);
    json_decref(trace);
}

static void folders_that_cannot_be_are_refused_by_all_ranks(void **state)
{
    job j = job_in("refused"), elsewhere = job_in("here"), file = job_in("file/below");
    char path[TUTTI_RECORD_PATH];
    FILE *f;

    (void)state;
    assert_int_equal(mkdir(j.folder, 0700), 0);
    snprintf(path, sizeof path, "%s/notes.txt", j.folder);
    assert_non_null(f = fopen(path, "w"));
    fclose(f);
    refused(&j, TUTTI_ERR_USAGE, "is not empty: it has 'notes.txt'; give this run another one");
    j.overwrite = true;
    run(&j);
    j.overwrite = false;
    refused(&j, TUTTI_ERR_USAGE, "is not empty");
    j.overwrite = true;
    run(&j); /* in place of the first */
    assert_true(there(&j, "notes.txt") && there(&j, "summary.json"));

    snprintf(elsewhere.other, sizeof elsewhere.other, "%s/there", root);
    refused(&elsewhere, TUTTI_ERR_USAGE, "trace");
    assert_false(there(&elsewhere, "config.json"));

    snprintf(path, sizeof path, "%s/file", root);
    assert_non_null(f = fopen(path, "w"));
    fclose(f);
    refused(&file, TUTTI_ERR_IO, "file");
}

/* Runs the job in a process of its own, whose files may have that many bytes. Returns how the
   process has ended. */
static int run_apart(const job *j, rlim_t most)
{
    int status;
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = { most, most };
        job mine = *j;
        tutti_error err = { .rank = -1 };
        signal(SIGXFSZ, SIG_IGN);
        if (most != RLIM_INFINITY)
            setrlimit(RLIMIT_FSIZE, &limit);
        if (tutti_world_run("shm", RANKS, run_rank, &mine, &err) != TUTTI_OK)
            _exit(1);
        for (int r = 0; r < RANKS; r++)
            if (mine.failures[r] != 1 || mine.figures[r].steps != STEPS)
                _exit(2);
        _exit(strstr(mine.sentence, "trace-00000.json") == NULL ? 3 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* The folder's trace has whole lines of all ranks. */
static void merges(const job *j, int closed)
{
    tutti_error err = { .rank = -1 };
    int ranks, ended;
    json_t *trace;

    if (tutti_record_merge(rt, j->folder, &ranks, &ended, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ranks, RANKS);
    assert_int_equal(ended, closed);
    trace = load(j, "trace.json");
    for (int r = 0; r < RANKS; r++)
        assert_in_range(count(trace, r, "ready"), 1, STEPS * TOY_TENSORS - 1);
    json_decref(trace);
    assert_false(there(j, "summary.json"));
    assert_true(there(j, "trace-00002.json"));
}

static void a_full_disk_stops_the_record_and_not_the_run(void **state)
{
    const job j = job_in("full");

    (void)state;
    if (SANITIZED_THREAD)
        skip(); /* it cannot fork with threads */
    assert_int_equal(run_apart(&j, 3000), 0);
    merges(&j, 0);
}

static void a_killed_process_leaves_a_trace_that_loads(void **state)
{
    job j = job_in("killed");
    char path[TUTTI_RECORD_PATH];
    int status;
    FILE *f;

    (void)state;
    if (SANITIZED_THREAD)
        skip();
    j.kill_after = 3;
    status = run_apart(&j, RLIM_INFINITY);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    tutti_record_path(path, j.folder, TUTTI_RECORD_TRACE, 1);
    assert_non_null(f = fopen(path, "a"));
    fputs("{\"name\":\"ready a\",\"cat\":\"ready\",\"ph\":\"i\",\"pid\":1,\"ti", f); /* within a write */
    fclose(f);
    merges(&j, 0);
}

static void a_rank_that_has_failed_leaves_no_summary(void **state)
{
    job j = job_in("failed");
    tutti_error err = { .rank = -1 };
    int ranks, ended;

    (void)state;
    j.unended = true;
    run(&j);
    assert_int_equal(tutti_record_merge(rt, j.folder, &ranks, &ended, &err), TUTTI_OK);
    assert_int_equal(ended, RANKS - 1);
    assert_true(there(&j, "trace.json"));
    assert_false(there(&j, "summary.json"));
}

static void a_method_without_common_steps_is_recorded_too(void **state)
{
    job j = job_in("async");
    json_t *trace;

    (void)state;
    j.method = "local-sgd(period=2)";
    run(&j);
    trace = load(&j, "trace.json");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(count(trace, r, "work"), STEPS);
    json_decref(trace);
}

/* ---- clocks ---- */

static void put(const job *j, const char *name, const char *text)
{
    char path[TUTTI_RECORD_PATH];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    assert_non_null(f = fopen(path, "w"));
    fputs(text, f);
    fclose(f);
}

/* ---- a process that is killed while it merges ---- */

static tutti_runtime_ops dying;  /* those of rt, which fail once `lives` has come to 0 */
static int lives;

static int dying_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    return mode == TUTTI_FILE_READ || lives-- > 0 ? rt->ops->file_open(self, path, mode, fd) : EIO;
}

static int dying_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    return lives-- > 0 ? rt->ops->file_write(self, fd, from, bytes, done) : EIO;
}

static int dying_rename(void *self, const char *from, const char *to)
{
    return lives-- > 0 ? rt->ops->file_rename(self, from, to) : EIO;
}

static int dying_remove(void *self, const char *path)
{
    return lives-- > 0 ? rt->ops->file_remove(self, path) : EIO;
}

static char *text_in(const job *j, const char *name)
{
    char path[TUTTI_RECORD_PATH], *text = calloc(1, 1 << 20);
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    assert_non_null(f = fopen(path, "r"));
    assert_non_null(text);
    assert_in_range(fread(text, 1, 1 << 20, f), 1, (1 << 20) - 1);
    fclose(f);
    return text;
}

/* Whatever it has done by then, the next merge brings the same trace and summary, and leaves none
   of the files of ranks, nor a claim. */
static void a_merge_that_was_killed_is_completed_by_the_next(void **state)
{
    static const char *const inputs[] = { "trace-00000.json", "trace-00001.json", "trace-00002.json",
                                          "rank-00000.json",  "rank-00001.json",  "rank-00002.json" };
    enum { INPUTS = sizeof inputs / sizeof inputs[0] };
    job j = job_in("merging");
    char *texts[INPUTS], *trace = NULL, *summary = NULL;
    tutti_runtime mortal = { &dying, rt->self };
    bool whole = false;
    int tries;

    (void)state;
    j.unended = true;
    run(&j);
    for (int k = 0; k < INPUTS; k++) /* rank 1 gets the end of rank 0 */
        texts[k] = text_in(&j, k == 4 ? inputs[3] : inputs[k]);
    dying = *rt->ops;
    dying.file_open = dying_open;
    dying.file_write = dying_write;
    dying.file_rename = dying_rename;
    dying.file_remove = dying_remove;
    for (tries = 0; !whole; tries++) {
        tutti_error err = { .rank = -1 };
        char *again;
        int ranks, closed;
        for (int k = 0; k < INPUTS; k++)
            put(&j, inputs[k], texts[k]);
        put(&j, "merging", "");
        lives = tries;
        whole = tutti_record_merge(&mortal, j.folder, &ranks, &closed, &err) == TUTTI_OK;
        if (tutti_record_merge(rt, j.folder, &ranks, &closed, &err) != TUTTI_OK)
            fail_msg("after %d operations: %s", tries, err.text);
        again = text_in(&j, "trace.json");
        if (trace != NULL && strcmp(again, trace) != 0)
            fail_msg("after %d operations the trace is another one", tries);
        free(trace);
        trace = again;
        again = text_in(&j, "summary.json");
        if (summary != NULL && strcmp(again, summary) != 0)
            fail_msg("after %d operations the summary is another one", tries);
        free(summary);
        summary = again;
        for (int k = 0; k < INPUTS; k++)
            assert_false(there(&j, inputs[k]));
        assert_false(there(&j, "merging") || there(&j, "merged") || there(&j, "trace.json.tmp"));
    }
    assert_true(tries > 2 * INPUTS);
    for (int k = 0; k < INPUTS; k++)
        free(texts[k]);
    free(trace);
    free(summary);
}

/* Rank 1's clock is 5 s ahead at 10 s, and 5.001 s at 20 s of its own. */
static void times_of_all_ranks_are_those_of_rank_0(void **state)
{
    static const struct { const char *name; double ts; } expected[] = {
        { "forward", 5e6 }, { "backward", 9999500 }, { "exchange 0", 14999000 }
    };
    const job j = job_in("clocks");
    json_t *trace, *e;
    size_t i, found = 0;
    int ranks, closed;

    (void)state;
    assert_int_equal(mkdir(j.folder, 0700), 0);
    put(&j, "config.json", "{\"n\": 2, \"servers\": 0}");
    put(&j, "trace-00000.json", "[\n{\"name\":\"forward\",\"cat\":\"forward\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
        "\"ts\":1.500,\"dur\":2.000,\"args\":{\"step\":0}},\n"
        "{\"name\":\"before\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
        "\"ts\":-0.250,\"dur\":2.000,\"args\":{\"step\":0}},\n"
        "{\"name\":\"no time\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
        "\"ts\":0x10,\"dur\":2.000,\"args\":{\"step\":0}},\n");
    put(&j, "trace-00001.json", "[\n"
        "{\"name\":\"measured\",\"ph\":\"M\",\"pid\":1,\"args\":{\"reference\":0,\"at_ns\":10000000000,"
        "\"ahead_ns\":5000000000,\"within_ns\":700,\"lost\":0}},\n"
        "{\"name\":\"forward\",\"cat\":\"forward\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":10000000.000,"
        "\"dur\":2.000,\"args\":{\"step\":0}},\n"
        "{\"name\":\"backward\",\"cat\":\"backward\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":15000000.000,"
        "\"dur\":2.000,\"args\":{\"step\":0}},\n"
        "{\"name\":\"exchange 0\",\"cat\":\"exchange\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":20000000.000,"
        "\"dur\":2.000,\"args\":{\"step\":0}},\n"
        "{\"name\":\"measured\",\"ph\":\"M\",\"pid\":1,\"args\":{\"reference\":0,\"at_ns\":20000000000,"
        "\"ahead_ns\":5001000000,\"within_ns\":900,\"lost\":7}},\n"
        "garbage that no rank has written\n");
    assert_int_equal(tutti_record_merge(rt, j.folder, &ranks, &closed, NULL), TUTTI_OK);
    assert_int_equal(ranks, 2);
    trace = load(&j, "trace.json");
    json_array_foreach(trace, i, e) {
        const int pid = (int)json_integer_value(json_object_get(e, "pid"));
        if (strcmp(text_of(e, "name"), "clock") == 0 && pid == 1) {
            const json_t *args = json_object_get(e, "args");
            assert_true(number_of(args, "within_us") == 0.9 && number_of(args, "lost") == 7);
        }
        if (strcmp(text_of(e, "ph"), "X") != 0)
            continue;
        if (pid == 0)
            assert_true(number_of(e, "ts") == (strcmp(text_of(e, "name"), "before") == 0 ? -0.25 : 1.5));
        else {
            assert_string_equal(text_of(e, "name"), expected[found].name);
            assert_true(number_of(e, "ts") == expected[found++].ts);
        }
    }
    assert_int_equal(found, 3);
    json_decref(trace);
}

/* Lines with few digits, which all get twenty: the merged text is nearly twice as long. */
static void times_that_become_longer_have_room(void **state)
{
    enum { LINES = 4000 };
    static char text[200 + LINES * 40];
    const job j = job_in("longer");
    json_t *trace, *e;
    size_t i, used, found = 0;
    int ranks, closed;

    (void)state;
    assert_int_equal(mkdir(j.folder, 0700), 0);
    put(&j, "config.json", "{\"n\": 1, \"servers\": 0}");
    used = (size_t)snprintf(text, sizeof text,
                            "[\n{\"name\":\"measured\",\"args\":{\"reference\":0,\"at_ns\":0,"
                            "\"ahead_ns\":-4000000000000000000,\"within_ns\":1,\"lost\":0}},\n");
    for (int k = 0; k < LINES; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"ph\":\"X\",\"ts\":0,\"d\":0},\n");
    put(&j, "trace-00000.json", text);
    assert_int_equal(tutti_record_merge(rt, j.folder, &ranks, &closed, NULL), TUTTI_OK);
    trace = load(&j, "trace.json");
    json_array_foreach(trace, i, e)
        if (strcmp(text_of(e, "ph"), "X") == 0) {
            assert_true(number_of(e, "ts") == 4e15);
            found++;
        }
    assert_int_equal(found, LINES);
    json_decref(trace);
}

static void a_clock_is_interpolated_between_measurements(void **state)
{
    const tutti_record_clock of[] = { { 0, 100, 10, 1 }, { 0, 200, 20, 1 }, { 1, 300, 90, 1 }, { 1, 400, 80, 1 } };

    (void)state;
    assert_int_equal(tutti_record_clock_ahead(of, 4, 150), 15);
    assert_int_equal(tutti_record_clock_ahead(of, 4, 250), 90); /* another reference */
    assert_int_equal(tutti_record_clock_ahead(of, 4, 350), 85);
    assert_int_equal(tutti_record_clock_ahead(of, 2, 300), 30); /* after the last */
    assert_int_equal(tutti_record_clock_ahead(of, 1, 12345), 10);
}

static void names_of_other_files_are_no_ranks(void **state)
{
    (void)state;
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_TRACE, "trace-00012.json"), 12);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_CLOSED, "rank-00000.json"), 0);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_TRACE, "trace.json"), -1);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_TRACE, "trace-12.json"), -1);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_TRACE, "trace-00012.json.part"), -1);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_TRACE, "trace--0012.json"), -1);
    assert_int_equal(tutti_record_rank_of(TUTTI_RECORD_CLOSED, "trace-00012.json"), -1);
}

static void figures_of_evaluations_are_checked(void **state)
{
    static const struct { const char *figures, *sentence; } of[] = {
        { "{\"f1\": 0.5, \"val/loss\": null, \"test_accuracy\": 1}", NULL },
        { "", "are an object of JSON" },
        { "{}", "are an object of JSON" },
        { "[1]", "are an object of JSON" },
        { "{\"f1\": 1, \"f1\": 2}", "are an object of JSON" },
        { "{\"f1\": NaN}", "are an object of JSON" },
        { "{\"f1\": \"1\"}", "the figure f1 is no number" },
        { "{\"f1\": 1, \"g\": [1]}", "the figure g is no number" },
        { "{\"1f\": 1}", "a figure is called '1f'" },
        { "{\"a//b\": 1}", "a figure is called 'a//b'" },
        { "{\"bytes_sent/total\": 1}", "this name is the record's own" },
        { "{\"test_accuracy\": -0.5}", "test_accuracy is -0.5; it is a fraction of 1" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(of); i++)
        for (int calls = 0; calls < 2; calls++) {
            tutti_error err = { .rank = -1 };
            const tutti_status status = calls ? tutti_call_record_log(NULL, of[i].figures, &err)
                                              : tutti_record_log(NULL, of[i].figures, &err);
            assert_int_equal(status, of[i].sentence == NULL ? TUTTI_OK : TUTTI_ERR_USAGE);
            if (of[i].sentence != NULL && strstr(err.text, of[i].sentence) == NULL)
                fail_msg("%s: %s", of[i].figures, err.text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_evaluations_are_checked),
        cmocka_unit_test(a_run_leaves_the_files_of_tutti_train),
        cmocka_unit_test(the_locale_of_the_process_does_not_matter),
        cmocka_unit_test(folders_that_cannot_be_are_refused_by_all_ranks),
        cmocka_unit_test(a_full_disk_stops_the_record_and_not_the_run),
        cmocka_unit_test(a_killed_process_leaves_a_trace_that_loads),
        cmocka_unit_test(a_rank_that_has_failed_leaves_no_summary),
        cmocka_unit_test(a_merge_that_was_killed_is_completed_by_the_next),
        cmocka_unit_test(a_method_without_common_steps_is_recorded_too),
        cmocka_unit_test(times_of_all_ranks_are_those_of_rank_0),
        cmocka_unit_test(times_that_become_longer_have_room),
        cmocka_unit_test(a_clock_is_interpolated_between_measurements),
        cmocka_unit_test(names_of_other_files_are_no_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
