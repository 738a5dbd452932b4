/* compare_specs.c: reads specs of methods and codecs, the figure by which runs are compared (--by),
   and the target. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "record/files.h"
#include "tutti/codec.h"
#include "tutti/method.h"
#include "base/numbers.h"
#include "base/options.h"
#include "codec/codec.h"

/* ---- methods and codecs ---- */

/* Checks the name and the options of a method or a codec. Other faults (an inner codec, a number
   of workers that it cannot have) are found by its run. */
static tutti_status check_spec(const char *kind, const char *text, const char *const *names,
                               size_t n,
                               const tutti_option *(*options)(const char *name, size_t *bytes),
                               tutti_error *err)
{
    tutti_spec *spec;
    char near[160], what[120];
    size_t bytes = 0, k = 0;
    void *self = NULL;
    tutti_status status = tutti_fail_within(err, tutti_spec_open(&spec, text, err), "%s", kind);

    while (status == TUTTI_OK && k < n && strcmp(names[k], tutti_spec_name(spec)) != 0)
        k++;
    if (status == TUTTI_OK && k == n) {
        tutti_suggest(tutti_spec_name(spec), names, n, near, sizeof near);
        status =
            tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no %s '%.60s'%s; `tutti %ss` lists them",
                       kind, tutti_spec_name(spec), near, kind);
    }
    if (status == TUTTI_OK) {
        const tutti_option *table = options(names[k], &bytes);
        snprintf(what, sizeof what, "%s '%.60s'", kind, names[k]);
        self = tutti_alloc(bytes + 1, 1);
        status = self != NULL ? tutti_spec_apply(spec, what, table, self, err)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %s", what);
    }
    tutti_free(self);
    tutti_spec_close(spec);
    return status;
}

static const tutti_option *method_options(const char *name, size_t *bytes)
{
    const tutti_method_ops *m = tutti_method_find(name);

    *bytes = m->self_bytes;
    return m->options;
}

static const tutti_option *codec_options(const char *name, size_t *bytes)
{
    const tutti_codec_ops *c = tutti_codec_find(name);

    *bytes = c->self_bytes;
    return c->options;
}

/* The names of all methods or codecs. */
static size_t names_of(bool methods, const char **names, size_t most)
{
    size_t n = 0;

    for (; n < most && (methods ? tutti_methods[n] != NULL : tutti_codecs[n] != NULL); n++)
        names[n] = methods ? tutti_methods[n]->name : tutti_codecs[n]->name;
    return n;
}

tutti_status tutti_compare_check_spec(const char *kind, const char *text, bool own, bool *known,
                                      tutti_error *err)
{
    const bool methods = strcmp(kind, "method") == 0;
    const size_t length = strcspn(text, "( ");
    const char *names[128];
    const size_t n = names_of(methods, names, TUTTI_LENGTH(names));
    bool found = !methods && strcmp(text, "none") == 0;

    if (known != NULL)
        *known = found;
    if (found)
        return TUTTI_OK;
    for (size_t k = 0; k < n && !found; k++)
        found = strlen(names[k]) == length && strncmp(names[k], text, length) == 0;
    if (known != NULL)
        *known = found;
    if (own && !found)
        return TUTTI_OK;
    return check_spec(kind, text, names, n, methods ? method_options : codec_options, err);
}

/* Applies a spec to new memory. NULL: it is none. */
static void *applied(const char *text, const tutti_option *table, size_t bytes, tutti_spec **spec)
{
    void *self = tutti_alloc(bytes + 1, 1);

    *spec = NULL;
    if (self != NULL && tutti_spec_open(spec, text, NULL) == TUTTI_OK &&
        tutti_spec_apply(*spec, "spec", table, self, NULL) == TUTTI_OK)
        return self;
    tutti_spec_close(*spec);
    *spec = NULL;
    tutti_free(self);
    return NULL;
}

bool tutti_compare_differs(const char *kind, const char *given, const char *is)
{
    const bool methods = strcmp(kind, "method") == 0;
    const size_t length = strcspn(given, "( ");
    char name[64], one[512], other[512];
    tutti_spec *wanted, *had;
    const tutti_option *table;
    size_t bytes = 0;
    void *a, *b;
    bool differs = false;

    snprintf(name, sizeof name, "%.*s", (int)length, given);
    if (length >= sizeof name || strncmp(is, given, length) != 0 ||
        strcspn(is, "( ") != length ||
        (methods ? tutti_method_find(name) == NULL : tutti_codec_find(name) == NULL))
        return false;
    table = methods ? method_options(name, &bytes) : codec_options(name, &bytes);
    a = applied(given, table, bytes, &wanted);
    b = applied(is, table, bytes, &had);
    for (size_t i = 0; a != NULL && b != NULL && i < tutti_spec_count(wanted) && !differs; i++) {
        const char *value;
        const tutti_option *o = tutti_spec_arg(wanted, table, i, &value);
        if (o == NULL)
            continue;
        tutti_option_print(o, a, one, sizeof one);
        tutti_option_print(o, b, other, sizeof other);
        differs = strcmp(one, other) != 0;
    }
    tutti_spec_close(wanted);
    tutti_spec_close(had);
    tutti_free(a);
    tutti_free(b);
    return differs;
}

/* ---- figures ---- */

tutti_status tutti_compare_by_of(const char *text, tutti_compare_by *by, tutti_error *err)
{
    static const char *const least[] = { "test_loss", "train_loss" },
                             *const most[] = { "test_accuracy", "test_auc" };
    const char *name = text;
    bool says, known;

    *by = (tutti_compare_by){ .name = "" };
    if (text == NULL || text[0] == 0)
        return TUTTI_OK;
    by->most = strncmp(name, "max:", 4) == 0;
    says = known = by->most || strncmp(name, "min:", 4) == 0;
    name += says ? 4 : 0;
    for (size_t i = 0; i < TUTTI_LENGTH(least) && !says; i++) {
        known = known || strcmp(name, least[i]) == 0 || strcmp(name, most[i]) == 0;
        by->most = by->most || strcmp(name, most[i]) == 0;
    }
    if (!known)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "by is '%.80s'; say which end of it is better: max:%.80s or min:%.80s",
                          text, name, name);
    if (name[0] == 0 || strlen(name) >= sizeof by->name || strpbrk(name, "= ,\"<>&") != NULL ||
        (tutti_record_is_own(name) && strcmp(name, "train_loss") != 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "by is '%.100s'; write max:NAME or min:NAME, with the name of a figure "
                          "that the runs' evaluations have",
                          text);
    snprintf(by->name, sizeof by->name, "%s", name);
    return TUTTI_OK;
}

/* The target of the figure by which runs are compared. */
static tutti_status target_by(const char *text, const tutti_compare_by *by, double *value,
                              tutti_error *err)
{
    const size_t n = strlen(by->name);
    const char *end;

    if (strncmp(text, by->name, n) != 0 || text[n] != '=' ||
        !tutti_number_begins(text + n + 1, value, &end) || *end != 0 || !isfinite(*value))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "target is '%.80s'; runs are compared by %s, so write %s=V", text,
                          by->name, by->name);
    return TUTTI_OK;
}

tutti_status tutti_compare_target(const char *text, const tutti_compare_by *by, bool *accuracy,
                                  double *value, tutti_error *err)
{
    const char *equals = strchr(text, '=');
    const char *end;

    if (by->name[0] != 0) {
        *accuracy = false;
        return target_by(text, by, value, err);
    }
    *accuracy = strncmp(text, "accuracy=", 9) == 0;
    *value = (double)NAN;
    if ((!*accuracy && strncmp(text, "loss=", 5) != 0) ||
        !tutti_number_begins(equals + 1, value, &end) || *end != 0 ||
        !(*value > 0) || (*accuracy && *value > 1) || !isfinite(*value))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "target is '%.80s'; write accuracy=A with A above 0 and at most 1, or "
                          "loss=L with L above 0",
                          text);
    return TUTTI_OK;
}
