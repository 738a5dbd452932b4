/* sets.c: what a person may write for a data set: the name of one we know or of a synthetic problem, with options, or the path of a directory. What exists under the text as it
   stands is a path even if it has brackets in it, and so is all that has a '/'; only a bare name of ours is never a path (./mnist is). */
#include "data_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) TUTTI_AT(tutti_data_distortion, member)
static const tutti_option mnist_options[] = {
    { "distort", TUTTI_REAL, AT(distort), 0, 0, 1, NULL, "strength of shifts, turns and clutter, on both splits; 0: the images as they are" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL, "of the distortions; that of the run has no part in them" },
    { 0 }
};

const tutti_data_set tutti_data_sets[] = {
    { "mnist", "handwritten digits, 60000 + 10000 images of 28 x 28", mnist_options, false },
    { "quadratic", "points whose mean is the known optimum of a quadratic; it may differ by class, lie on the simplex, drift", tutti_quadratic_options, true },
    { "logistic", "normal features with the labels of a linear teacher, some of them wrong", tutti_logistic_options, true },
    { 0 }
};

static const tutti_data_set *find_set(const char *name)
{
    for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++)
        if (strcmp(set->name, name) == 0)
            return set;
    return NULL;
}

static tutti_status unknown(const char *text, const char *name, tutti_error *err)
{
    const char *names[16];
    char near[100], all[160] = "";
    size_t n = 0, used = 0;

    for (; tutti_data_sets[n].name != NULL && n < TUTTI_LENGTH(names); n++) {
        names[n] = tutti_data_sets[n].name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s'%s'", n == 0 ? "" : ", ", names[n]);
    }
    if (name != NULL)
        tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "no data at '%.160s'%s; give %s or a directory with the four MNIST files", text, name != NULL ? near : "", all);
}

/* ---- where a text leads ---- */

static tutti_status take_path(char *path, size_t bytes, const char *text, tutti_error *err)
{
    const size_t length = strlen(text);

    if (length >= bytes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the data path has %zu bytes, more than the %zu allowed", length, bytes - (bytes > 0));
    memcpy(path, text, length + 1);
    return TUTTI_OK;
}

static tutti_status find_folder(tutti_runtime *rt, const char *name, const char *installed, char *path, size_t bytes, tutti_error *err)
{
    const char *const places[3] = { getenv("TUTTI_DATA"), "data", installed };
    char tried[300] = "";
    size_t used = 0;

    for (size_t k = 0; k < TUTTI_LENGTH(places); k++) {
        int length;
        if (places[k] == NULL || places[k][0] == '\0')
            continue;
        length = snprintf(path, bytes, "%s/%s", places[k], name);
        if (length < 0 || (size_t)length >= bytes) {
            if (bytes > 0)
                path[0] = '\0';
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the data path '%s/%s' is longer than the %zu bytes allowed", places[k], name,
                              bytes - (bytes > 0));
        }
        if (tutti_file_exists(rt, path))
            return TUTTI_OK;
        length = snprintf(tried + used, sizeof tried - used, "%s'%s'", used > 0 ? ", " : "", path);
        if (length > 0 && (size_t)length < sizeof tried - used)
            used += (size_t)length;
        else
            tried[used] = '\0';
        path[0] = '\0';
    }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "no data set '%s' (looked for %s); set TUTTI_DATA to the folder that holds %s/, or give "
                      "the path of a directory of IDX files", name, tried, name);
}

static tutti_status find(tutti_runtime *rt, const char *text, const char *installed, char *path, size_t bytes, tutti_data_distortion *how,
                         tutti_problem *problem, tutti_error *err)
{
    const tutti_data_set *set;
    tutti_spec *spec;
    tutti_status status;

    if (bytes > 0)
        path[0] = '\0';
    *how = (tutti_data_distortion){ 0 };
    *problem = (tutti_problem){ 0 };
    if (find_set(text) == NULL) {
        if (text[0] != '\0' && tutti_file_exists(rt, text))
            return take_path(path, bytes, text, err);
        if (text[0] == '\0' || strchr(text, '/') != NULL)
            return unknown(text, NULL, err);
    }
    status = tutti_spec_open(&spec, text, err);
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status, "no directory '%.80s', and as the name of a data set", text);
    set = find_set(tutti_spec_name(spec));
    if (set == NULL) {
        status = unknown(text, tutti_spec_name(spec), err);
    } else if (set->drawn) {
        char canonical[512];
        status = tutti_problem_read(problem, text, "data", NULL, err);
        tutti_problem_print(problem, canonical, sizeof canonical);
        if (status == TUTTI_OK)
            status = take_path(path, bytes, canonical, err);
    } else {
        char what[40];
        snprintf(what, sizeof what, "data '%s'", set->name);
        status = tutti_spec_apply(spec, what, set->options, how, err);
        if (status == TUTTI_OK)
            status = find_folder(rt, set->name, installed, path, bytes, err);
    }
    tutti_spec_close(spec);
    return status;
}

tutti_status tutti_data_find(tutti_runtime *rt, const char *text, const char *installed, char *path, size_t bytes, tutti_error *err)
{
    tutti_data_distortion how;
    tutti_problem problem;

    return find(rt, text, installed, path, bytes, &how, &problem, err);
}

tutti_status tutti_data_open_spec(tutti_data **out, tutti_runtime *rt, const char *text, const char *installed, tutti_error *err)
{
    tutti_data_distortion how;
    tutti_problem problem;
    char path[4096];

    *out = NULL;
    TUTTI_TRY(find(rt, text, installed, path, sizeof path, &how, &problem, err));
    if (problem.kind != TUTTI_PROBLEM_NONE)
        return tutti_data_problem_open(out, rt, &problem, err);
    TUTTI_TRY(tutti_data_open(out, rt, path, err));
    tutti_data_distort_by(*out, &how);
    return TUTTI_OK;
}
