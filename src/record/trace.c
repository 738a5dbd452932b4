/* trace.c: a record's folder, this rank's trace in it while it is written, and at rank 0 the rows
   of metrics.jsonl.

   Lines are converted to text once and appended to the rank's own file, with the times of its own
   clock. merge.c puts them on one clock, by the lines "measured". */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"
#include "collective/compare.h"

/* ---- lines ---- */

tutti_status tutti_record_trace_room(tutti_record_trace *t, size_t bytes, tutti_error *err)
{
    const size_t room = 2 * (t->room + bytes);
    char *more;

    if (t->length + bytes <= t->room)
        return TUTTI_OK;
    more = tutti_alloc(room, 1);
    if (more == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu bytes of a trace", room);
    if (t->length > 0)
        memcpy(more, t->text, t->length);
    tutti_free(t->text);
    t->text = more;
    t->room = room;
    return TUTTI_OK;
}

tutti_status tutti_record_trace_clock(tutti_record_trace *t, uint64_t lost, tutti_error *err)
{
    const tutti_record_clock *c = &t->clock;

    TUTTI_TRY(tutti_record_trace_room(t, TUTTI_RECORD_LINE, err));
    t->length += (size_t)snprintf(
        t->text + t->length, TUTTI_RECORD_LINE,
        "{\"name\":\"measured\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"reference\":%d,"
        "\"at_ns\":%lld,\"ahead_ns\":%lld,\"within_ns\":%lld,\"lost\":%llu}},\n",
        t->rank, c->reference, (long long)c->at_ns, (long long)c->ahead_ns,
        (long long)c->within_ns, (unsigned long long)lost);
    return TUTTI_OK;
}

tutti_status tutti_record_trace_stopped(tutti_record_trace *t, tutti_status status)
{
    if (status != TUTTI_OK) {
        tutti_file_close(t->file, NULL);
        tutti_record_rows_close(t->rows, NULL);
        t->file = NULL;
        t->rows = NULL;
    }
    return status;
}

tutti_status tutti_record_trace_write(tutti_record_trace *t, tutti_error *err)
{
    const size_t length = t->length;

    t->length = 0;
    return t->file != NULL && length > 0
               ? tutti_record_trace_stopped(t, tutti_file_write(t->file, t->text, length, err))
               : TUTTI_OK;
}

/* ---- the folder ---- */

/* Is this a file that a record writes? */
static bool is_ours(const char *name)
{
    static const char *const files[] = { "config.json", "summary.json", "trace.json", "report.html",
                                         TUTTI_RECORD_MERGING, TUTTI_RECORD_MERGED };

    for (size_t i = 0; i < TUTTI_LENGTH(files); i++)
        if (strcmp(name, files[i]) == 0)
            return true;
    return tutti_record_rows_is(name) || tutti_record_rank_of(TUTTI_RECORD_TRACE, name) >= 0 ||
           tutti_record_rank_of(TUTTI_RECORD_CLOSED, name) >= 0;
}

typedef struct looked { tutti_record_trace *t; bool overwrite; } looked;

/* Removes a file of an earlier record, or refuses the folder. */
static tutti_status take_name(void *user, const char *name, tutti_error *err)
{
    const looked *l = user;
    char path[TUTTI_RECORD_PATH];

    if (!l->overwrite)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the trace's folder %s is not empty: it has '%.200s'; give this run "
                          "another one, or say that an earlier record may be removed (overwrite)",
                          l->t->folder, name);
    if (!is_ours(name))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/%.255s", l->t->folder, name);
    return tutti_file_remove(l->t->rt, path, err);
}

static tutti_status take_folder(tutti_record_trace *t, const tutti_record_options *o,
                                tutti_error *err)
{
    looked l = { t, o->overwrite };

    if (o->folder == NULL || o->folder[0] == 0 || strlen(o->folder) >= sizeof t->folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the trace's folder has a name of %zu bytes; give 1 to %zu",
                          o->folder != NULL ? strlen(o->folder) : (size_t)0, sizeof t->folder - 1);
    snprintf(t->folder, sizeof t->folder, "%s", o->folder);
    if (!tutti_file_exists(t->rt, t->folder))
        return tutti_directory_make(t->rt, t->folder, err);
    return tutti_directory_list(t->rt, t->folder, take_name, &l, err);
}

tutti_status tutti_record_facts(const char *facts, json_t **out, tutti_error *err)
{
    json_error_t why;
    json_t *o = facts != NULL ? json_loads(facts, JSON_REJECT_DUPLICATES, &why) : json_object();

    *out = json_is_object(o) ? o : NULL;
    if (*out != NULL)
        return TUTTI_OK;
    tutti_fail(err, TUTTI_ERR_USAGE, 0, "the facts of a record are no object of JSON: %s",
               o != NULL ? "they have another type" : why.text);
    json_decref(o);
    return TUTTI_ERR_USAGE;
}

/* ---- beginning and end ---- */

/* All ranks continue, or all fail: `mine` is this rank's, with its sentence in *err. text: has to
   be the same on all. */
static tutti_status agree(tutti_group *all, tutti_status mine, const char *text, tutti_error *err)
{
    if (all->size == 1)
        return mine;
    if (mine == TUTTI_OK)
        return tutti_compare_text(all, text, err);
    tutti_compare_refuse(all, err, err);
    return mine;
}

/* port: taken. */
static tutti_status make_files(tutti_record_trace *t, json_t *config, tutti_record_port *port,
                               tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];
    tutti_status status;

    tutti_record_path(path, t->folder, TUTTI_RECORD_TRACE, t->rank);
    status = tutti_file_open(&t->file, t->rt, path, TUTTI_FILE_CREATE, err);
    if (status == TUTTI_OK)
        status = tutti_record_trace_room(t, (size_t)6 * TUTTI_RECORD_LINE, err);
    if (status == TUTTI_OK) {
        t->length = (size_t)snprintf(t->text, TUTTI_RECORD_LINE, "[\n");
        t->length += tutti_record_head(t->text + t->length, t->rank, t->workers, &t->clock, 0);
        status = tutti_record_trace_write(t, err);
    }
    if (status == TUTTI_OK && t->rank == 0)
        status = tutti_record_write_object(t->rt, t->folder, "config.json", config, err);
    else
        json_decref(config);
    if (status == TUTTI_OK && t->rank == 0)
        return tutti_record_rows_begin(&t->rows,
                                       &(tutti_record_place){ .rt = t->rt,
                                                              .folder = t->folder,
                                                              .forms = t->forms,
                                                              .opened = port },
                                       false, 0, err);
    tutti_record_port_close(port);
    return status;
}

/* Opens the port at rank 0, before an earlier record is removed; others look at what it is called.
   It stays open: else another program could take it meanwhile. */
static tutti_status open_port(const tutti_record_trace *t, const char *where,
                              tutti_record_port **port, tutti_error *err)
{
    if (t->rank != 0 || where == NULL || where[0] == 0)
        return tutti_record_port_check(where, false, err);
    return tutti_record_port_open(port, t->rt, where, err);
}

tutti_status tutti_record_trace_open(tutti_record_trace *t, tutti_group *all,
                                     const tutti_record_options *o, json_t *config,
                                     tutti_status status, tutti_error *err)
{
    tutti_record_port *port = NULL;
    char text[TUTTI_RECORD_PATH];

    snprintf(text, sizeof text,
             "trace=%.2000s\nreport every=%llu\nlog-to=%.200s\nmetrics-port=%.80s\n",
             o->folder != NULL ? o->folder : "", (unsigned long long)o->report_every,
             o->log_to != NULL ? o->log_to : "", o->metrics_port != NULL ? o->metrics_port : "");
    if (status == TUTTI_OK)
        status = tutti_record_log_to(o->log_to, &t->forms, err);
    if (status == TUTTI_OK)
        status = open_port(t, o->metrics_port, &port, err);
    status = agree(all, status == TUTTI_OK ? take_folder(t, o, err) : status, text, err);
    t->clock.at_ns = tutti_now_ns(t->rt);
    if (status == TUTTI_OK && tutti_record_clocks_differ(all->world))
        status = tutti_record_clock_compare(all, &t->clock, err);
    if (status != TUTTI_OK) {
        tutti_record_port_close(port);
        json_decref(config);
        return status;
    }
    TUTTI_TRY(agree(all, make_files(t, config, port, err), text, err));
    return tutti_record_trace_clock(t, 0, err);
}

void tutti_record_trace_leave_nothing(tutti_record_trace *t)
{
    char path[TUTTI_RECORD_PATH];

    if (t->file == NULL)
        return;
    tutti_record_trace_stopped(t, TUTTI_ERR_USAGE);
    tutti_record_path(path, t->folder, TUTTI_RECORD_TRACE, t->rank);
    tutti_file_remove(t->rt, path, NULL);
    if (t->rank != 0)
        return;
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    tutti_file_remove(t->rt, path, NULL);
    tutti_record_rows_remove(&(tutti_record_place){ .rt = t->rt, .folder = t->folder }, NULL);
}

tutti_status tutti_record_trace_close(tutti_record_trace *t, tutti_status status, bool merges,
                                      tutti_error *err)
{
    const bool wrote = t->file != NULL && merges;

    for (int k = 0; k < 2; k++) {
        tutti_error *why = status == TUTTI_OK ? err : NULL;
        const tutti_status closing =
            k == 0 ? tutti_file_close(t->file, why) : tutti_record_rows_close(t->rows, why);
        status = status == TUTTI_OK ? closing : status;
    }
    tutti_free(t->text);
    return status == TUTTI_OK && wrote
               ? tutti_record_merge_if_last(t->rt, t->folder, t->ranks, err)
               : status;
}
