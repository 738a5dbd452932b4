/* Goal: what TensorBoard and spreadsheets read has the rows of metrics.jsonl, each once, also when
   a run was killed and goes on. Method: bytes that another program has computed from the format;
   rows are written, files are damaged as by a kill, and read back by a parser of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "record/files.h"
#include "record/record_internal.h"
#include "folder.h"

enum { ALL = (1 << TUTTI_RECORD_FORMS) - 1, ROOM = 1 << 16, BOARDS = 4, STEPS = 16, LONG = 2000, LONG_ROOM = 1 << 20 };


/* ---- files ---- */

static tutti_record_place place_in(char folder[TUTTI_RECORD_PATH], const char *name)
{
    snprintf(folder, TUTTI_RECORD_PATH, "%s/%s", root, name);
    assert_int_equal(mkdir(folder, 0755), 0);
    return (tutti_record_place){ .rt = rt, .folder = folder, .forms = ALL };
}

static size_t read_file(const char *folder, const char *name, unsigned char text[ROOM])
{
    char path[TUTTI_RECORD_PATH];
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(text, 1, ROOM - 1, f);
    fclose(f);
    text[n] = 0;
    return n;
}

static void append(const char *folder, const char *name, const char *text)
{
    char path[TUTTI_RECORD_PATH];
    FILE *f;

    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    f = fopen(path, "ab");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int in_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Returns how many files of events of ours there are. names: set to theirs, in order. */
static int boards(const char *folder, char names[BOARDS][256])
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (tutti_record_board_is(e->d_name)) {
            assert_true(n < BOARDS);
            snprintf(names[n++], 256, "%s", e->d_name);
        }
    closedir(d);
    qsort(names, (size_t)n, sizeof names[0], in_order);
    return n;
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static void has_crc(const unsigned char *data, size_t bytes)
{
    const uint32_t crc = tutti_crc32c(data, bytes);

    assert_int_equal((uint32_t)little(data + bytes, 4),
                     (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8U));
}

/* What a reader has that has read some files of events. */
typedef struct reader { int steps[STEPS], n, starts; } reader; /* starts: one as the run begins */

/* Reads an event other than the first of a file as TensorBoard does: after a START that is not the
   first one it has nothing of that step or later ones. Steps are below 128. */
static void read_event(reader *r, const unsigned char *event)
{
    assert_int_equal(event[9], 16);
    assert_true(event[10] < 128);
    if (event[11] == (7 << 3 | 2)) {
        assert_memory_equal(event + 12, "\x02\x08\x01", 3);
        r->starts++;
        while (r->starts > 1 && r->n > 0 && r->steps[r->n - 1] >= event[10])
            r->n--;
        return;
    }
    assert_int_equal(event[11], 5 << 3 | 2);
    assert_true(r->n < STEPS);
    r->steps[r->n++] = event[10];
}

/* Reads a file, and checks lengths, CRCs, and that the first record is the version. whole: no
   record is cut off; else that one is the last. */
static void read_board(reader *r, const char *folder, const char *name, bool whole)
{
    static unsigned char text[ROOM];
    const size_t bytes = read_file(folder, name, text);
    size_t length;

    for (size_t at = 0; at < bytes; at += 16 + length) {
        const unsigned char *event = text + at + 12;
        length = bytes - at >= 16 ? (size_t)little(text + at, 8) : SIZE_MAX;
        if (length > bytes - at - 16) {
            assert_false(whole);
            return;
        }
        has_crc(text + at, 8);
        has_crc(event, length);
        assert_int_equal(event[0], 9);
        if (at == 0) {
            assert_int_equal(length, 24);
            assert_memory_equal(event + 9, "\x1a\x0d" "brain.Event:2", 15);
        } else
            read_event(r, event);
    }
}

/* Reads all files in the order of their names. */
static void read_boards(reader *r, const char *folder)
{
    char names[BOARDS][256];
    const int n = boards(folder, names);

    *r = (reader){ .n = 0 };
    for (int i = 0; i < n; i++)
        read_board(r, folder, names[i], i == n - 1);
}

static void has_steps(const char *folder, int last, int starts)
{
    reader r;

    read_boards(&r, folder);
    assert_int_equal(r.n, last);
    assert_int_equal(r.starts, starts);
    for (int i = 0; i < last; i++)
        assert_int_equal(r.steps[i], i + 1);
}

static json_t *row_of(int step)
{
    return json_pack("{s:i, s:n, s:f, s:f, s:[f, f]}", "step", step, "epoch", "train_loss",
                     1.0 / 3 / step, "lr", 0.5, "wait_seconds_by_worker", 0.25, 0.75);
}

static void put(tutti_record_rows *rows, int from, int to)
{
    for (int step = from; step <= to; step++)
        assert_int_equal(tutti_record_put(rows, row_of(step), NULL), TUTTI_OK);
}

/* ---- tests ---- */

/* The bytes were computed from the formats' definitions by a program in another language. */
static void bytes_of_a_row_are_those_of_the_format(void **state)
{
    static const unsigned char golden[] = {
        0x2c, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0xae, 0xcc, 0x45,   /* length and CRC */
        0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x10, 0xac, 2,   /* 1.5 s, step 300 */
        0x2a, 0x1e, 0x0a, 0x11,                              /* summary, value */
        0x0a, 0x0a, 't', 'r', 'a', 'i', 'n', '_', 'l', 'o', 's', 's', 0x15, 0, 0, 0x80, 0x3e,
        0x0a, 0x09, 0x0a, 0x02, 'l', 'r', 0x15, 0, 0, 0, 0x3f,
        0xb6, 0x25, 0x28, 0x89
    };
    json_t *row = json_pack("{s:i, s:f, s:n, s:f}", "step", 300, "train_loss", 0.25, "epoch", "lr",
                            0.5);
    tutti_record_bytes b = { 0 };

    (void)state;
    tutti_record_board_row(&b, 1.5, row);
    assert_false(b.failed);
    assert_int_equal(b.n, sizeof golden);
    assert_memory_equal(b.at, golden, sizeof golden);
    tutti_free(b.at);
    json_decref(row);
}

static void note(void *user, const char *tag, const json_t *value)
{
    char *text = user;
    const size_t n = strlen(text);

    if (json_is_null(value))
        snprintf(text + n, 1200 - n, "%s=null ", tag);
    else
        snprintf(text + n, 1200 - n, "%s=%g ", tag, json_number_value(value));
}

static void numbers_of_a_row_have_names(void **state)
{
    static const struct {
        const char *row, *numbers;
    } cases[] = {
        { "{\"step\": 3, \"a\": 1, \"b\": null, \"c\": \"x\", \"d\": true, \"e\": [2, null, 3]}",
          "a=1 b=null e/0=2 e/1=null e/2=3 " },
        { "{\"step\": 3, \"method_figures\": {\"m\": 4, \"w\": [5, 6]}}",
          "method_figures/m=4 method_figures/w/0=5 method_figures/w/1=6 " },
        { "{\"step\": 3, \"tensor\": \"fc1.weight\", \"lost\": 0.5, \"counts\": [1, 2]}",
          "codec/fc1.weight/lost=0.5 " },
        { "{\"step\": 3, \"epoch\": 1, \"samples\": 2, \"test_loss\": null, \"test_auc\": 4}",
          "evaluation/epoch=1 evaluation/samples=2 test_loss=null test_auc=4 " },
        { "{\"step\": 3, \"epoch\": 1, \"wall_seconds\": 2}", "epoch=1 wall_seconds=2 " },
        { "{\"step\": 3}", "" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        json_t *row = json_loads(cases[i].row, 0, NULL);
        char text[1200] = "";
        assert_non_null(row);
        assert_true(tutti_record_scalars(row, note, text));
        assert_string_equal(text, cases[i].numbers);
        json_decref(row);
    }
}

/* Tags as long as the names of tensors are, whatever those have. */
static void long_names_are_whole(void **state)
{
    char name[1000], wanted[1100], got[1200] = "";
    json_t *row;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa9", 3);
    row = json_pack("{s:i, s:s, s:i}", "step", 1, "tensor", name, "lost", 2);
    assert_non_null(row);
    snprintf(wanted, sizeof wanted, "codec/%s/lost=2 ", name);
    assert_true(tutti_record_scalars(row, note, got));
    assert_string_equal(got, wanted);
    json_decref(row);
}

/* The table has a line a row, with the digits of metrics.jsonl. */
static void has_table(const char *folder, int last)
{
    static unsigned char text[ROOM], lines[ROOM];
    int n = 0;

    read_file(folder, "metrics.csv", text);
    read_file(folder, "metrics.jsonl", lines);
    for (char *line = strtok((char *)text, "\n"); line != NULL; line = strtok(NULL, "\n"), n++) {
        char begins[64];
        json_t *row = row_of(n > 0 ? n : 1);
        char *loss = json_dumps(json_object_get(row, "train_loss"),
                                JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        snprintf(begins, sizeof begins, "%d,,,%s,0.5,", n, loss);
        if (n == 0)
            assert_memory_equal(line, "step,epoch,samples,train_loss,lr,", 33);
        else {
            assert_memory_equal(line, begins, strlen(begins));
            assert_non_null(strstr((char *)lines, loss));
        }
        free(loss);
        json_decref(row);
    }
    assert_int_equal(n, last + 1);
}

static void a_killed_run_that_goes_on_has_each_row_once(void **state)
{
    static unsigned char text[ROOM], kept[ROOM];
    char folder[TUTTI_RECORD_PATH], names[BOARDS][256], first[256];
    const tutti_record_place in = place_in(folder, "again");
    tutti_record_rows *rows;
    size_t bytes;

    (void)state;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, 1, 4);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_equal(boards(folder, names), 1);
    memcpy(first, names[0], sizeof first);
    append(folder, first, "half a record");
    append(folder, "metrics.jsonl", "{\"step\": ");
    append(folder, "metrics.csv", "5,,");
    append(folder, "events.out.tfevents.1.host", "of another program");
    bytes = read_file(folder, first, kept);

    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 2, NULL), TUTTI_OK);
    put(rows, 3, 5);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    has_steps(folder, 5, 2);
    /* a new index 0 goes on where the lost one was */
    assert_int_equal(tutti_record_rows_open(&rows, &in, NULL), TUTTI_OK);
    put(rows, 6, 6);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);

    has_steps(folder, 6, 2);
    has_table(folder, 6);
    /* within a second, and yet each has a later name; what was written stays as it is */
    assert_int_equal(boards(folder, names), 3);
    assert_string_equal(names[0], first);
    assert_int_equal(read_file(folder, first, text), bytes);
    assert_memory_equal(text, kept, bytes);
    assert_int_equal(read_file(folder, "events.out.tfevents.1.host", text), 18);
}

/* The write that fails is one of a file of a form, and names it. What the run then has it can go on
   from, once there is room. */
/* What a frozen index 0 writes when it goes on is in none of the files of its successor. */
static void another_index_0_writes_files_of_its_own(void **state)
{
    char folder[TUTTI_RECORD_PATH];
    const tutti_record_place first = place_in(folder, "frozen");
    tutti_record_place later = first;
    tutti_record_rows *frozen, *second, *third;

    (void)state;
    later.anew = true;
    assert_int_equal(tutti_record_rows_begin(&frozen, &first, false, 0, NULL), TUTTI_OK);
    put(frozen, 1, 3);
    assert_int_equal(tutti_record_rows_begin(&second, &later, true, 3, NULL), TUTTI_OK);
    put(frozen, 4, 4);
    put(second, 4, 5);
    has_steps(folder, 5, 2);
    assert_int_equal(tutti_record_rows_open(&third, &later, NULL), TUTTI_OK);
    put(second, 6, 6);
    put(third, 6, 7);
    assert_int_equal(tutti_record_rows_close(frozen, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(second, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(third, NULL), TUTTI_OK);
    has_table(folder, 7);
}

static void a_full_disk_leaves_files_that_go_on(void **state)
{
    static const char *const files[] = { "events.out.tfevents.", "metrics.csv" };
    static const unsigned forms[] = { 1 << TUTTI_RECORD_TENSORBOARD, 1 << TUTTI_RECORD_CSV };
    static const rlim_t room[] = { 500, 400 };
    struct rlimit before, small;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 2; i++) {
        char folder[TUTTI_RECORD_PATH];
        tutti_record_place in = place_in(folder, i == 0 ? "full0" : "full1");
        tutti_error err = { .rank = -1 };
        tutti_record_rows *rows;
        tutti_status status = TUTTI_OK;
        in.forms = forms[i];
        small = (struct rlimit){ room[i], before.rlim_max };
        assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        for (int step = 1; step < STEPS && status == TUTTI_OK; step++)
            status = tutti_record_put(rows, json_pack("{s:i, s:f}", "step", step, "lr", 0.5), &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, TUTTI_ERR_IO);
        assert_non_null(strstr(err.text, files[i]));
        tutti_record_rows_close(rows, NULL);
        in.forms = ALL;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 2, NULL), TUTTI_OK);
        put(rows, 3, 6);
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
        has_steps(folder, 6, i == 0 ? 2 : 1);
    }
}

/* A form that is asked for later has the rows from the beginning. One that is no more asked for
   leaves no file. */
static void forms_may_change_when_a_run_is_resumed(void **state)
{
    static unsigned char text[ROOM];
    char folder[TUTTI_RECORD_PATH], names[BOARDS][256], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "later");
    tutti_record_rows *rows;

    (void)state;
    snprintf(path, sizeof path, "%.3000s/metrics.csv", folder);
    in.forms = 0;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, 1, 4);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_equal(boards(folder, names), 0);
    in.forms = ALL;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 3, NULL), TUTTI_OK);
    put(rows, 4, 5);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    has_steps(folder, 5, 1);
    has_table(folder, 5);
    in.forms = 1 << TUTTI_RECORD_CSV;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 4, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_equal(boards(folder, names), 0);
    has_table(folder, 4);
    in.forms = 0;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 4, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_true(read_file(folder, "metrics.jsonl", text) > 0);
}

/* Of a calendar that was set back, or a name that no calendar gives. */
static void a_later_file_has_a_later_name(void **state)
{
    static const struct {
        const char *there, *next;
    } cases[] = {
        { "events.out.tfevents.9000000000.host.tutti", "events.out.tfevents.9000000001." },
        { "events.out.tfevents.0000000007.host.tutti", "events.out.tfevents." },
        { "events.out.tfevents.99999999999999999999999999.host.tutti", "events.out.tfevents." },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        char folder[TUTTI_RECORD_PATH], names[BOARDS][256], name[16];
        tutti_record_rows *rows;
        tutti_record_place in;
        snprintf(name, sizeof name, "date%zu", i);
        in = place_in(folder, name);
        append(folder, cases[i].there, "");
        assert_int_equal(tutti_record_rows_open(&rows, &in, NULL), TUTTI_OK);
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
        assert_int_equal(boards(folder, names), 2);
        if (i < 2) {
            assert_string_equal(names[0], cases[i].there);
            assert_memory_equal(names[1], cases[i].next, strlen(cases[i].next));
        }
    }
}

static void a_run_that_begins_leaves_nothing_of_an_earlier_one(void **state)
{
    char folder[TUTTI_RECORD_PATH], names[BOARDS][256], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "anew");
    tutti_record_rows *rows;

    (void)state;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, 1, 2);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    in.forms = 0;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_equal(boards(folder, names), 0);
    snprintf(path, sizeof path, "%.3000s/metrics.csv", folder);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_file_that_cannot_be_is_named(void **state)
{
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    const tutti_record_place in = place_in(folder, "wrong");
    tutti_error err = { .rank = -1 };
    tutti_record_rows *rows;

    (void)state;
    snprintf(path, sizeof path, "%.3000s/metrics.csv", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    append(folder, "metrics.csv/mine", "text"); /* else it would be removed */
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 0, &err), TUTTI_ERR_IO);
    assert_null(rows);
    assert_non_null(strstr(err.text, "metrics.csv"));
}

/* A table of another program is kept, whether or not the run is to have one. */
static void a_strangers_table_stays(void **state)
{
    static unsigned char text[ROOM];
    char folder[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "strange");
    tutti_error err = { .rank = -1 };
    tutti_record_rows *rows;

    (void)state;
    append(folder, "metrics.csv", "mine");
    for (int keeps = 0; keeps < 2; keeps++) {
        in.forms = ALL;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, keeps, 0, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "metrics.csv is not of a run; move it"));
        in.forms = 0;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, keeps, 0, NULL), TUTTI_OK);
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    }
    assert_int_equal(read_file(folder, "metrics.csv", text), 4);
}

/* Lines of a long run: two for each step, one of them longer than what is read at first, and a last
   line without an end. */
static size_t long_record(char *text, size_t ends[LONG + 1])
{
    size_t n = 0;

    ends[0] = 0;
    for (int step = 1; step <= LONG; step++) {
        const int pad = step == LONG / 2 ? 300000 : 60;
        n += (size_t)sprintf(text + n, "{\"step\": %d, \"test_loss\": 1}\n", step);
        n += (size_t)sprintf(text + n, "{\"step\": %d, \"text\": \"%*s\"}\n", step, pad, "");
        ends[step] = n;
    }
    n += (size_t)sprintf(text + n, "{\"step\": %d, \"te", LONG);
    return n;
}

static void a_record_is_cut_after_a_step(void **state)
{
    static const int untils[] = { 0, 1, LONG / 2 - 1, LONG / 2, LONG / 2 + 1, LONG - 900, LONG - 1, LONG };
    static char text[LONG_ROOM], kept[LONG_ROOM];
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    size_t ends[LONG + 1], n = long_record(text, ends);
    tutti_record_place in = place_in(folder, "long");

    (void)state;
    in.forms = 0;
    snprintf(path, sizeof path, "%.3000s/metrics.jsonl", folder);
    for (size_t k = 0; k < TUTTI_LENGTH(untils); k++)
        for (int whole = 0; whole < 2; whole++) { /* without the last line */
            const size_t end = ends[untils[k]];
            tutti_record_rows *rows;
            struct stat before, after;
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(text, 1, whole ? ends[LONG] : n, f), whole ? ends[LONG] : n);
            fclose(f);
            assert_int_equal(stat(path, &before), 0);
            assert_int_equal(tutti_record_rows_begin(&rows, &in, true, (uint64_t)untils[k], NULL), TUTTI_OK);
            assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
            assert_int_equal(stat(path, &after), 0);
            assert_int_equal(before.st_ino == after.st_ino, whole && untils[k] == LONG); /* it is not written */
            f = fopen(path, "rb");
            assert_non_null(f);
            assert_int_equal(fread(kept, 1, sizeof kept, f), end);
            fclose(f);
            assert_memory_equal(kept, text, end);
        }
}

/* Snapshots are evaluated when later steps have their rows, and have the steps of their own. */
static void an_evaluation_of_an_earlier_step_keeps_no_later_row(void **state)
{
    static char text[LONG_ROOM];
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "snapshots");
    tutti_record_rows *rows;
    size_t n;
    FILE *f;

    (void)state;
    in.forms = 0;
    snprintf(path, sizeof path, "%.3000s/metrics.jsonl", folder);
    for (int pad = 0; pad < 50; pad++) { /* what is read first begins with each of the two rows */
        n = 0;
        for (int step = 1; step <= LONG; step++)
            n += (size_t)sprintf(text + n, "{\"step\": %d}\n{\"step\": 0, \"test_loss\": 1}\n", step);
        sprintf(text + n, "{\"step\": %d}%*s\n", LONG, pad, "");
        f = fopen(path, "wb");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
        assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 10, NULL), TUTTI_OK);
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
        f = fopen(path, "rb");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        assert_non_null(strstr(text, "{\"step\": 10}\n"));
        assert_null(strstr(text, "{\"step\": 11}\n"));
    }
}

static void names_of_forms_are_checked(void **state)
{
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        { "tensorbord", "log-to has 'tensorbord'; there are tensorboard, csv and prometheus" },
        { "tensorbord", "did you mean 'tensorboard'?" },
        { "csv,csv", "log-to has 'csv' twice" },
        { "csv,", "ends with a comma" },
        { ",csv", "log-to has ''" },
        { "csv tensorboard", "log-to has 'csv tensorboard'" },
        { "wandb", "a package of Python" },
        { "csv,mlflow", "log_to='mlflow' of tutti.torch" },
    };
    unsigned forms = 7;

    (void)state;
    assert_int_equal(tutti_record_log_to("", &forms, NULL), TUTTI_OK);
    assert_int_equal(forms, 0);
    assert_int_equal(tutti_record_log_to("csv", &forms, NULL), TUTTI_OK);
    assert_int_equal(forms, 1 << TUTTI_RECORD_CSV);
    assert_int_equal(tutti_record_log_to("csv,prometheus,tensorboard", &forms, NULL), TUTTI_OK);
    assert_int_equal(forms, ALL);
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++) {
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_record_log_to(wrong[i].text, &forms, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, wrong[i].sentence) == NULL)
            fail_msg("'%s' is not in: %s", wrong[i].sentence, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_row_are_those_of_the_format),
        cmocka_unit_test(numbers_of_a_row_have_names),
        cmocka_unit_test(long_names_are_whole),
        cmocka_unit_test(a_killed_run_that_goes_on_has_each_row_once),
        cmocka_unit_test(another_index_0_writes_files_of_its_own),
        cmocka_unit_test(a_full_disk_leaves_files_that_go_on),
        cmocka_unit_test(forms_may_change_when_a_run_is_resumed),
        cmocka_unit_test(a_later_file_has_a_later_name),
        cmocka_unit_test(a_run_that_begins_leaves_nothing_of_an_earlier_one),
        cmocka_unit_test(a_file_that_cannot_be_is_named),
        cmocka_unit_test(a_strangers_table_stays),
        cmocka_unit_test(a_record_is_cut_after_a_step),
        cmocka_unit_test(an_evaluation_of_an_earlier_step_keeps_no_later_row),
        cmocka_unit_test(names_of_forms_are_checked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
