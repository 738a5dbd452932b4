/* out.c: the output directory. Nothing in it changes until a run is accepted, so that a refused
   start neither damages an existing run nor leaves files. So tutti_train_prepare only checks, and
   tutti_train_accept, called after all checks, removes what --overwrite discards and writes
   config.json and model.json. */
#include <stdlib.h>
#include <string.h>

#include "model_file.h"
#include "trace_part.h"
#include "train_internal.h"
#include "collective/table.h"
#include "runtime/files.h"

/* Is `path` the directory, or in it? */
static bool lies_in(const char *path, const char *directory)
{
    char *a = realpath(path, NULL), *b = realpath(directory, NULL);
    const size_t n = b != NULL ? strlen(b) : 0;
    const bool begins = a != NULL && b != NULL && strncmp(a, b, n) == 0;
    /* b is "/" or has no '/' at its end */
    const bool in = begins && (a[n] == 0 || a[n] == '/' || b[n - 1] == '/');

    free(a);
    free(b);
    return in;
}

/* Refuses a directory that has results of another run, unless --overwrite is given. */
static tutti_status refuse_other_runs(tutti_runtime *rt, const tutti_train_config *c,
                                      tutti_error *err)
{
    static const char *const results[] = { "summary.json", "model.safetensors" };
    char path[4096], found[4096];

    if (c->overwrite || (c->resume[0] != 0 && lies_in(c->resume, c->out)))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/checkpoints", c->out);
    if (tutti_file_exists(rt, path) &&
        tutti_checkpoint_find(rt, path, found, sizeof found, NULL, 0, NULL) == TUTTI_OK)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s already holds a run with checkpoints; continue it (--resume %s), "
                          "give this run another --out, or give --overwrite",
                          c->out, c->out);
    for (size_t i = 0; i < TUTTI_LENGTH(results); i++) {
        snprintf(path, sizeof path, "%s/%s", c->out, results[i]);
        if (tutti_file_exists(rt, path))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s already holds the results of a run (%s); give this run another "
                              "--out, or give --overwrite",
                              c->out, results[i]);
    }
    return TUTTI_OK;
}

/* Makes the directory. If the path for checkpoints is not a directory, this fails now and not at
   the first checkpoint. */
static tutti_status make_out(tutti_runtime *rt, const tutti_train_config *c, tutti_error *err)
{
    char path[4096];

    TUTTI_TRY(tutti_directory_make(rt, c->out, err));
    snprintf(path, sizeof path, "%s/checkpoints", c->out);
    return tutti_file_exists(rt, path) ? tutti_directory_make(rt, path, err) : TUTTI_OK;
}

tutti_status tutti_train_prepare(tutti_runtime *rt, const tutti_train_config *c, tutti_error *err)
{
    if (c->collective_table[0] != 0)
        TUTTI_TRY(tutti_fail_within(err, tutti_collective_table_check(rt, c->collective_table, err),
                                    "collective-table"));
    TUTTI_TRY(tutti_record_port_check(c->metrics_port, true, err));
    TUTTI_TRY(make_out(rt, c, err));
    return refuse_other_runs(rt, c, err);
}

typedef struct place { tutti_runtime *rt; const char *directory; } place;

static tutti_status remove_file(void *user, const char *name, tutti_error *err)
{
    const place *in = user;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", in->directory, name);
    return tutti_file_remove(in->rt, path, err);
}

/* The prefix of the new names of checkpoints that are being removed. All are renamed before the
   first is removed. A save removes folders with this prefix, too. */
static const char going[] = "tmp-removed-";

static tutti_status rename_checkpoint(void *user, const char *name, tutti_error *err)
{
    const place *in = user;
    char from[4096], to[4096];

    if (strncmp(name, "step-", 5) != 0)
        return TUTTI_OK;
    snprintf(from, sizeof from, "%.3800s/%.200s", in->directory, name);
    snprintf(to, sizeof to, "%.3800s/%s%.200s", in->directory, going, name);
    return tutti_file_rename(in->rt, from, to, err);
}

static tutti_status remove_checkpoint(void *user, const char *name, tutti_error *err)
{
    const place *in = user;
    char path[4096];
    place within = { in->rt, path };

    if (strncmp(name, going, sizeof going - 1) != 0)
        return TUTTI_OK;
    snprintf(path, sizeof path, "%.3800s/%.200s", in->directory, name);
    TUTTI_TRY(tutti_directory_list(in->rt, path, remove_file, &within, err));
    return tutti_file_remove(in->rt, path, err);
}

static tutti_status remove_checkpoints(tutti_runtime *rt, const char *directory, tutti_error *err)
{
    place in = { rt, directory };

    if (!tutti_file_exists(rt, directory))
        return TUTTI_OK;
    /* left by a start that was killed */
    TUTTI_TRY(tutti_directory_list(rt, directory, remove_checkpoint, &in, err));
    TUTTI_TRY(tutti_directory_list(rt, directory, rename_checkpoint, &in, err));
    return tutti_directory_list(rt, directory, remove_checkpoint, &in, err);
}

tutti_status tutti_train_accept(tutti_run *run, tutti_error *err)
{
    static const char *const results[] = { "summary.json", "model.safetensors", "trace.json" };
    const tutti_train_config *c = run->config;
    tutti_train_config stored;
    char path[4096], data[8256], *json;
    tutti_status status;

    if (run->all.index != 0)
        return TUTTI_OK;
    TUTTI_TRY(make_out(run->rt, c, err)); /* it exists, unless tutti_train_prepare was not called */
    if (c->overwrite && !(c->resume[0] != 0 && lies_in(c->resume, c->out))) {
        place in = { run->rt, c->out };
        for (size_t i = 0; i < TUTTI_LENGTH(results); i++)
            TUTTI_TRY(remove_file(&in, results[i], err));
        snprintf(path, sizeof path, "%s/checkpoints", c->out);
        TUTTI_TRY(remove_checkpoints(run->rt, path, err));
    }
    TUTTI_TRY(tutti_train_part_accept(run, c->resume[0] != 0 && lies_in(c->resume, c->out), err));
    stored = *c; /* its readers may be in any directory */
    TUTTI_TRY(tutti_train_data_stored(run, data, sizeof data, err));
    stored.data = data;
    TUTTI_TRY(tutti_train_config_json(&stored, &json, err));
    status = tutti_record_write(run->rt, c->out, "config.json", json, strlen(json), err);
    tutti_free(json);
    return status == TUTTI_OK ? tutti_train_write_model_file(run, err) : status;
}
