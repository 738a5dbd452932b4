/* Goal: metrics.prom and the port have the latest figures of a run, in the text format that
   Prometheus and node exporter read (0.0.4). Method: texts byte by byte; a parser that is written
   from the definition of the format and refuses what it does not allow, on rows of all kinds and
   on names and labels with bytes that have to be escaped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/files.h"
#include "record/record_internal.h"
#include "folder.h"

enum { ROOM = 1 << 16, FAMILIES = 64, PROM = 1 << TUTTI_RECORD_PROMETHEUS };


/* ---- a reader of the format ---- */

typedef struct reader {
    char family[FAMILIES][128];  /* those that have had a TYPE */
    int n, samples;              /* of the last family */
    char help[128];              /* the name of the HELP before */
} reader;

/* Gives the end of a name of [a-zA-Z_:][a-zA-Z0-9_:]*; NULL: there is none. */
static const char *name_end(const char *at, bool colons)
{
    const char *begin = at;

    while (isalnum((unsigned char)*at) || *at == '_' || (colons && *at == ':'))
        at++;
    return at > begin && !isdigit((unsigned char)*begin) ? at : NULL;
}

/* Gives the end of {a="b",c="d"}; NULL: there is none. */
static const char *labels_end(const char *at)
{
    for (at++; *at != '}'; at += *at == ',') {
        at = name_end(at, false);
        if (at == NULL || at[0] != '=' || at[1] != '"')
            return NULL;
        for (at += 2; *at != '"'; at++) {
            if (*at == '\\' && *++at != '\\' && *at != '"' && *at != 'n')
                return NULL;
            if (*at == 0)
                return NULL;
        }
        at++;
        if (*at != ',' && *at != '}')
            return NULL;
    }
    return at + 1;
}

static bool read_sample(reader *r, const char *line)
{
    const char *end = name_end(line, true);
    char *number_end;

    if (end == NULL || r->n == 0 || strncmp(line, r->family[r->n - 1], (size_t)(end - line)) != 0 ||
        r->family[r->n - 1][end - line] != 0)
        return false; /* of a family without a TYPE, or that has ended */
    if (*end == '{')
        end = labels_end(end);
    if (end == NULL || *end != ' ' || end[1] == ' ' || end[1] == 0)
        return false;
    strtod(end + 1, &number_end);
    r->samples++;
    return *number_end == 0;
}

static bool read_type(reader *r, const char *line)
{
    char name[128], type[16], more;

    if (sscanf(line, "# TYPE %127s %15s%c", name, type, &more) != 2)
        return false;
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->family[i], name) == 0)
            return false; /* has had one */
    if (r->n == FAMILIES || (r->n > 0 && r->samples == 0) || strcmp(r->help, name) != 0)
        return false;
    snprintf(r->family[r->n++], sizeof r->family[0], "%s", name);
    r->samples = 0;
    return strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0;
}

static bool read_help(reader *r, const char *line)
{
    const char *end = name_end(line + 7, true);

    if (end == NULL || *end != ' ' || strchr(end, '\\') != NULL)
        return false;
    snprintf(r->help, sizeof r->help, "%.*s", (int)(end - line - 7), line + 7);
    return true;
}

/* Reads a whole text; gives how many families it has. */
static int families_of(const char *given)
{
    char *text = strdup(given), *rest = text, *line;
    reader r = { .n = 0 };

    assert_non_null(text);
    assert_true(text[0] == 0 || text[strlen(text) - 1] == '\n');
    while ((line = strsep(&rest, "\n")) != NULL && rest != NULL) {
        const bool good = strncmp(line, "# HELP ", 7) == 0   ? read_help(&r, line)
                          : strncmp(line, "# TYPE ", 7) == 0 ? read_type(&r, line)
                          : line[0] == '#'                   ? true
                                                             : read_sample(&r, line);
        if (!good)
            fail_msg("no line of the format: %s", line);
    }
    assert_true(r.n == 0 || r.samples > 0);
    free(text);
    return r.n;
}

/* ---- rows ---- */

static tutti_record_place place_in(char folder[TUTTI_RECORD_PATH], const char *name)
{
    snprintf(folder, TUTTI_RECORD_PATH, "%s/%s", root, name);
    assert_int_equal(mkdir(folder, 0755), 0);
    return (tutti_record_place){ .rt = rt, .folder = folder, .forms = PROM };
}

static void put(tutti_record_rows *rows, const char *row)
{
    json_t *object = json_loads(row, 0, NULL);

    assert_non_null(object);
    assert_int_equal(tutti_record_put(rows, object, NULL), TUTTI_OK);
}

static char *text_of(const char *folder)
{
    static char text[ROOM];
    char path[TUTTI_RECORD_PATH];
    FILE *f;

    snprintf(path, sizeof path, "%.3000s/metrics.prom", folder);
    f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, ROOM - 1, f)] = 0;
    fclose(f);
    return text;
}

static bool has(const char *folder, const char *line)
{
    return strstr(text_of(folder), line) != NULL;
}

/* What a row is as text, behind the first line. */
static void is_text(const char *row, const char *wanted)
{
    static int n;
    char folder[TUTTI_RECORD_PATH], name[32];
    tutti_record_rows *rows;
    tutti_record_place in;
    const char *text;

    snprintf(name, sizeof name, "text%d", n++);
    in = place_in(folder, name);
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, row);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    text = text_of(folder);
    families_of(text);
    text = strchr(text, '\n') + 1;
    for (const char *at; (at = strstr(wanted, "RUN")) != NULL;) { /* the folder's name */
        assert_true(strncmp(text, wanted, (size_t)(at - wanted)) == 0);
        text += at - wanted;
        assert_true(strncmp(text, name, strlen(name)) == 0);
        text += strlen(name);
        wanted = at + 3;
    }
    assert_string_equal(text, wanted);
}

static void rows_are_text_of_the_format(void **state)
{
    (void)state;
    is_text("{\"step\": 3, \"train_loss\": 0.1, \"lr\": null, \"bytes_sent_total\": 12345678901}",
            "# HELP tutti_step step of the last line of metrics.jsonl\n"
            "# TYPE tutti_step gauge\n"
            "tutti_step{run=\"RUN\"} 3\n"
            "# HELP tutti_train_loss mean training loss since the line before\n"
            "# TYPE tutti_train_loss gauge\n"
            "tutti_train_loss{run=\"RUN\"} 0.1\n"
            "# HELP tutti_bytes_sent_total bytes sent by all workers so far\n"
            "# TYPE tutti_bytes_sent_total counter\n"
            "tutti_bytes_sent_total{run=\"RUN\"} 12345678901\n");
    is_text("{\"step\": 3, \"wait_seconds_by_worker\": [0.5, null, 1.5]}",
            "# HELP tutti_step step of the last line of metrics.jsonl\n"
            "# TYPE tutti_step gauge\n"
            "tutti_step{run=\"RUN\"} 3\n"
            "# HELP tutti_wait_seconds_by_worker seconds of waiting for other workers since the "
            "line before\n"
            "# TYPE tutti_wait_seconds_by_worker gauge\n"
            "tutti_wait_seconds_by_worker{run=\"RUN\",worker=\"0\"} 0.5\n"
            "tutti_wait_seconds_by_worker{run=\"RUN\",worker=\"2\"} 1.5\n");
    is_text("{\"step\": 3, \"test_loss\": 0.5, \"samples\": 7, \"method_figures\": "
            "{\"k.a-b\": 1, \"w\": [2]}}",
            "# HELP tutti_evaluation_step step of the model that was evaluated last\n"
            "# TYPE tutti_evaluation_step gauge\n"
            "tutti_evaluation_step{run=\"RUN\"} 3\n"
            "# HELP tutti_test_loss loss of the last evaluation\n"
            "# TYPE tutti_test_loss gauge\n"
            "tutti_test_loss{run=\"RUN\"} 0.5\n"
            "# HELP tutti_evaluation_samples samples of the model that was evaluated last\n"
            "# TYPE tutti_evaluation_samples gauge\n"
            "tutti_evaluation_samples{run=\"RUN\"} 7\n"
            "# HELP tutti_method_figures_k_a_b what the method has reported\n"
            "# TYPE tutti_method_figures_k_a_b gauge\n"
            "tutti_method_figures_k_a_b{run=\"RUN\"} 1\n"
            "# HELP tutti_method_figures_w what the method has reported\n"
            "# TYPE tutti_method_figures_w gauge\n"
            "tutti_method_figures_w{run=\"RUN\",worker=\"0\"} 2\n");
    is_text("{\"step\": 3, \"tensor\": \"a/b\\\"c\\\\d\\ne\", \"codec\": \"topk\", \"new\": 0.5, "
            "\"levels\": [1, 2]}",
            "# HELP tutti_codec_step step at which the codec was last measured on this tensor\n"
            "# TYPE tutti_codec_step gauge\n"
            "tutti_codec_step{run=\"RUN\",tensor=\"a/b\\\"c\\\\d\\ne\"} 3\n"
            "# HELP tutti_codec_new what the codec has reported of this tensor\n"
            "# TYPE tutti_codec_new gauge\n"
            "tutti_codec_new{run=\"RUN\",tensor=\"a/b\\\"c\\\\d\\ne\"} 0.5\n");
    is_text("{\"step\": 3, \"new\": {\"3\": 0.5}}",
            "# HELP tutti_step step of the last line of metrics.jsonl\n"
            "# TYPE tutti_step gauge\n"
            "tutti_step{run=\"RUN\"} 3\n"
            "# HELP tutti_new figure of metrics.jsonl\n"
            "# TYPE tutti_new gauge\n"
            "tutti_new{run=\"RUN\",worker=\"3\"} 0.5\n");
}

/* Each figure is the last one there was, whatever rows came since; one that is null now is gone,
   and comes again at its place. The lines of a name stay together. */
static void figures_are_the_latest(void **state)
{
    char folder[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "latest");
    tutti_record_rows *rows;

    (void)state;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    assert_int_equal(families_of(text_of(folder)), 0);
    put(rows, "{\"step\": 1, \"train_loss\": 4, \"x\": [1, 2]}");
    put(rows, "{\"step\": 1, \"test_loss\": 3}");
    put(rows, "{\"step\": 2, \"train_loss\": null, \"x\": [3, null, 4]}");
    assert_false(has(folder, "tutti_train_loss"));
    assert_true(has(folder, "tutti_step{run=\"latest\"} 2\n"));
    assert_true(has(folder, "tutti_test_loss{run=\"latest\"} 3\n"));
    assert_true(has(folder, "tutti_evaluation_step{run=\"latest\"} 1\n"));
    assert_true(has(folder, "tutti_x{run=\"latest\",worker=\"0\"} 3\n"
                            "tutti_x{run=\"latest\",worker=\"2\"} 4\n"));
    assert_int_equal(families_of(text_of(folder)), 4);
    put(rows, "{\"step\": 3, \"train_loss\": 2, \"x\": [3, 5, 4]}");
    assert_true(has(folder, "tutti_train_loss{run=\"latest\"} 2\n"));
    assert_int_equal(families_of(text_of(folder)), 5);
    /* those of tensors are there with the next row, or at the end */
    put(rows, "{\"step\": 3, \"tensor\": \"a\", \"lost\": 0.5}");
    put(rows, "{\"step\": 3, \"tensor\": \"b\", \"lost\": 0.25}");
    assert_false(has(folder, "codec"));
    put(rows, "{\"step\": 4, \"train_loss\": 1}");
    assert_true(has(folder, "tutti_codec_lost{run=\"latest\",tensor=\"a\"} 0.5\n"
                            "tutti_codec_lost{run=\"latest\",tensor=\"b\"} 0.25\n"));
    put(rows, "{\"step\": 5, \"tensor\": \"a\", \"lost\": 0.75}");
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_true(has(folder, "tutti_codec_lost{run=\"latest\",tensor=\"a\"} 0.75\n"));
    assert_int_equal(families_of(text_of(folder)), 7);
}

/* A run that goes on has the figures of the rows that are kept, and no others. */
static void a_resumed_run_has_what_is_kept(void **state)
{
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "again");
    tutti_record_rows *rows;

    (void)state;
    snprintf(path, sizeof path, "%.3000s/metrics.prom", folder);
    in.forms = 0;
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, "{\"step\": 1, \"train_loss\": 4}");
    put(rows, "{\"step\": 2, \"train_loss\": 3}");
    put(rows, "{\"step\": 3, \"train_loss\": 2, \"new\": 1}");
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    in.forms = PROM; /* asked for later */
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 2, NULL), TUTTI_OK);
    assert_true(has(folder, "tutti_train_loss{run=\"again\"} 3\n"));
    assert_false(has(folder, "tutti_new"));
    put(rows, "{\"step\": 3, \"train_loss\": 1}");
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    /* a new index 0 */
    assert_int_equal(tutti_record_rows_open(&rows, &in, NULL), TUTTI_OK);
    assert_true(has(folder, "tutti_step{run=\"again\"} 3\n"));
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    in.forms = 0; /* no more asked for */
    assert_int_equal(tutti_record_rows_begin(&rows, &in, true, 3, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* The label is the last part of the folder's name. Bytes that are not UTF-8 cannot be in it. */
static void folders_name_the_run(void **state)
{
    static const struct {
        const char *folder, *label;
    } cases[] = {
        { "one", "one" },        { "two/", "two" },          { "thr\"ee//", "thr\\\"ee" },
        { "back\\", "back\\\\" }, { "l\nine", "l\\nine" },    { "\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9" },
        { "\xff\xc3\xa9", "???" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        char folder[TUTTI_RECORD_PATH], line[256];
        tutti_record_place in = place_in(folder, cases[i].folder);
        tutti_record_rows *rows;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
        put(rows, "{\"step\": 1}");
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
        snprintf(line, sizeof line, "tutti_step{run=\"%s\"} 1\n", cases[i].label);
        if (!has(folder, line))
            fail_msg("%s is not in: %s", line, text_of(folder));
        assert_int_equal(families_of(text_of(folder)), 1);
    }
}

static void a_strangers_file_stays(void **state)
{
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "strange");
    tutti_error err = { .rank = -1 };
    tutti_record_rows *rows;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%.3000s/metrics.prom", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("mine 1\n", f);
    fclose(f);
    for (int keeps = 0; keeps < 2; keeps++) {
        in.forms = PROM;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, keeps, 0, &err), TUTTI_ERR_USAGE);
        assert_null(rows);
        assert_non_null(strstr(err.text, "metrics.prom is not of a run; move it"));
        in.forms = 0;
        assert_int_equal(tutti_record_rows_begin(&rows, &in, keeps, 0, NULL), TUTTI_OK);
        assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    }
    assert_string_equal(text_of(folder), "mine 1\n");
}

/* A port that cannot be had changes no file: the rows of the earlier run are still there. */
static void a_refused_port_changes_nothing(void **state)
{
    char folder[TUTTI_RECORD_PATH], path[TUTTI_RECORD_PATH];
    tutti_record_place in = place_in(folder, "refused");
    tutti_error err = { .rank = -1 };
    tutti_record_rows *rows;
    struct stat found;

    (void)state;
    snprintf(path, sizeof path, "%.3000s/metrics.jsonl", folder);
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, NULL), TUTTI_OK);
    put(rows, "{\"step\": 1}");
    assert_int_equal(tutti_record_rows_close(rows, NULL), TUTTI_OK);
    in.port = "192.0.2.1:9400"; /* of a range for documentation (RFC 5737) */
    assert_int_equal(tutti_record_rows_begin(&rows, &in, false, 0, &err), TUTTI_ERR_USAGE);
    assert_null(rows);
    assert_non_null(strstr(err.text, "metrics-port 192.0.2.1:9400 cannot be had"));
    assert_int_equal(stat(path, &found), 0);
    assert_true(found.st_size > 0);
    assert_true(has(folder, "tutti_step{run=\"refused\"} 1\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_text_of_the_format),
        cmocka_unit_test(figures_are_the_latest),
        cmocka_unit_test(a_resumed_run_has_what_is_kept),
        cmocka_unit_test(folders_name_the_run),
        cmocka_unit_test(a_strangers_file_stays),
        cmocka_unit_test(a_refused_port_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
