/* file.c: resources and schedules as JSON. Parser contract: a text of at most 1 MiB, which is not
   trusted. Each refusal names the file, the place in it, and what is allowed. Unknown members are
   refused, so that a misspelt one does not silently become a default. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "placement_internal.h"
#include "placement/placement.h"
#include "base/json.h"
#include "base/options.h"

enum { BYTES_MOST = 1 << 20 };

typedef struct reader {
    const char *path;
    tutti_error *err;
    char where[160];             /* "type 'cpu'" */
} reader;

#define REFUSE(r, format, ...) \
    tutti_fail((r)->err, TUTTI_ERR_USAGE, 0, "%.120s: %.160s: " format, (r)->path, (r)->where, \
               __VA_ARGS__)

static tutti_status open_text(json_t **root, const char *path, const char *text, size_t bytes,
                              const char *schema, tutti_error *err)
{
    json_error_t why;
    const char *got;

    *root = NULL;
    if (bytes > BYTES_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%.200s: %zu bytes; at most %d (1 MiB)", path,
                          bytes, BYTES_MOST);
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (*root == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%.200s: no JSON: %.100s (line %d, column %d)",
                          path, why.text, why.line, why.column);
    got = json_string_value(json_object_get(*root, "schema"));
    if (got != NULL && strcmp(got, schema) == 0)
        return TUTTI_OK;
    tutti_fail(err, TUTTI_ERR_USAGE, 0,
               "%.200s: its schema is '%.40s'; it must be an object with \"schema\": \"%s\"", path,
               got != NULL ? got : "", schema);
    json_decref(*root);
    *root = NULL;
    return TUTTI_ERR_USAGE;
}

/* `names` ends with NULL. */
static tutti_status only(const reader *r, json_t *object, const char *const *names)
{
    const char *key;
    char near[128];

    if (!json_is_object(object))
        return REFUSE(r, "it must be an object with '%s'", names[0]);
    key = tutti_base_json_unknown(object, names, near, sizeof near);
    return key == NULL ? TUTTI_OK : REFUSE(r, "there is no member '%.40s'%s", key, near);
}

/* Bounds are for tutti_placement_check. initial NAN: it must be there. */
static tutti_status read_number(const reader *r, json_t *object, const char *name, double initial,
                                double *out)
{
    json_t *value = json_object_get(object, name);

    *out = initial;
    if (value == NULL && !isnan(initial))
        return TUTTI_OK;
    if (!json_is_number(value))
        return REFUSE(r, "'%s' must be a number", name);
    *out = json_number_value(value);
    return TUTTI_OK;
}

static tutti_status whole(const reader *r, json_t *object, const char *name, int low, int high,
                          int *out)
{
    json_t *value = json_object_get(object, name);

    *out = 0;
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high)
        return REFUSE(r, "'%s' must be a whole number from %d to %d", name, low, high);
    *out = (int)json_integer_value(value);
    return TUTTI_OK;
}

static tutti_status name_of(const reader *r, json_t *object, const char *name, const char *initial,
                            char *out, size_t bytes)
{
    json_t *value = json_object_get(object, name);
    const char *text = value == NULL && initial != NULL ? initial : json_string_value(value);

    if (text == NULL || strlen(text) >= bytes || (text[0] == 0 && initial == NULL))
        return REFUSE(r, "'%s' must be text of 1 to %zu bytes", name, bytes - 1);
    for (const char *c = text; *c != 0; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return REFUSE(r, "'%s' has a control character", name);
    snprintf(out, bytes, "%s", text);
    return TUTTI_OK;
}

static tutti_status list_of(const reader *r, json_t *root, const char *name, int most, json_t **out,
                            int *count)
{
    *out = json_object_get(root, name);
    *count = 0;
    if (!json_is_array(*out) || json_array_size(*out) < 1 || json_array_size(*out) > (size_t)most)
        return REFUSE(r, "'%s' must be a list of 1 to %d", name, most);
    *count = (int)json_array_size(*out);
    return TUTTI_OK;
}

/* ---- resources ---- */

static int type_named(const tutti_placement_problem *p, const char *name)
{
    for (int t = 0; t < p->types; t++)
        if (strcmp(p->type[t].name, name) == 0)
            return t;
    return -1;
}

static tutti_status read_type(reader *r, json_t *object, tutti_placement_problem *p,
                              tutti_placement_speed *speed)
{
    static const char *const names[] = {
        "name", "price", "units", "flops", "bandwidth", "compute_share", "communicate_share", NULL
    };
    tutti_placement_type *type = &p->type[p->types];

    snprintf(r->where, sizeof r->where, "types, number %d", p->types + 1);
    TUTTI_TRY(only(r, object, names));
    TUTTI_TRY(name_of(r, object, "name", NULL, type->name, sizeof type->name));
    if (type_named(p, type->name) >= 0)
        return REFUSE(r, "there is a type '%s' before it", type->name);
    snprintf(r->where, sizeof r->where, "type '%s'", type->name);
    TUTTI_TRY(read_number(r, object, "price", NAN, &type->price));
    TUTTI_TRY(whole(r, object, "units", 1, TUTTI_PLACEMENT_UNITS_MOST, &type->units));
    TUTTI_TRY(read_number(r, object, "flops", 0, &speed->flops));
    TUTTI_TRY(read_number(r, object, "bandwidth", 0, &speed->bandwidth));
    TUTTI_TRY(read_number(r, object, "compute_share", 1, &speed->compute_share));
    TUTTI_TRY(read_number(r, object, "communicate_share", 1, &speed->communicate_share));
    p->types++;
    return TUTTI_OK;
}

/* {"compute": S, "communicate": S, "compute_share": A, "communicate_share": B}. In place of a share
   there may be seconds with more units: "compute_with": {"4": S, ...}. */
static tutti_status read_share(const reader *r, json_t *object, const char *share, const char *with,
                               double one, double *out)
{
    json_t *times = json_object_get(object, with), *value;
    int units[64], n = 0;
    double seconds[64];
    const char *key;

    TUTTI_TRY(read_number(r, object, share, 1, out));
    if (times == NULL)
        return TUTTI_OK;
    if (json_object_get(object, share) != NULL)
        return REFUSE(r, "'%s' and '%s' specify the same value; give one", share, with);
    if (!json_is_object(times) || json_object_size(times) < 1 ||
        json_object_size(times) > TUTTI_LENGTH(units) || !(one > 0))
        return REFUSE(
            r,
            "'%s' must be an object of 1 to %zu numbers of units and their seconds, and one unit's "
            "above 0",
            with, TUTTI_LENGTH(units));
    json_object_foreach(times, key, value) {
        int64_t count = 0;
        const tutti_option many = { "units", TUTTI_INT, 0, 0, 2, TUTTI_PLACEMENT_UNITS_MOST,
                                    NULL,    "" };
        TUTTI_TRY(tutti_fail_within(r->err, tutti_option_set(&many, with, key, &count, r->err),
                                    "%.120s: %.100s", r->path, r->where));
        if (!json_is_number(value) || !(json_number_value(value) >= 0))
            return REFUSE(r, "'%s' of %s units must be seconds", with, key);
        units[n] = (int)count;
        seconds[n++] = json_number_value(value);
    }
    *out = tutti_placement_share(one, units, seconds, n);
    return TUTTI_OK;
}

static tutti_status read_time(reader *r, json_t *object, tutti_placement_time *time)
{
    static const char *const names[] = {
        "compute",          "communicate", "compute_share", "communicate_share", "compute_with",
        "communicate_with", NULL
    };

    TUTTI_TRY(only(r, object, names));
    TUTTI_TRY(read_number(r, object, "compute", NAN, &time->compute));
    TUTTI_TRY(read_number(r, object, "communicate", NAN, &time->communicate));
    TUTTI_TRY(read_share(r, object, "compute_share", "compute_with", time->compute,
                         &time->compute_share));
    return read_share(r, object, "communicate_share", "communicate_with", time->communicate,
                      &time->communicate_share);
}

static tutti_status read_layer(reader *r, json_t *object, tutti_placement_problem *p)
{
    static const char *const names[] = { "name", "kind", "enters", "values", "on", NULL };
    tutti_placement_layer *layer = &p->layer[p->layers];
    json_t *on;

    snprintf(r->where, sizeof r->where, "layers, number %d", p->layers + 1);
    TUTTI_TRY(only(r, object, names));
    TUTTI_TRY(name_of(r, object, "name", NULL, layer->name, sizeof layer->name));
    snprintf(r->where, sizeof r->where, "layer '%s'", layer->name);
    TUTTI_TRY(name_of(r, object, "kind", "", layer->kind, sizeof layer->kind));
    TUTTI_TRY(read_number(r, object, "enters", 0, &layer->enters));
    TUTTI_TRY(read_number(r, object, "values", 0, &layer->values));
    on = json_object_get(object, "on");
    if (!json_is_object(on) || json_object_size(on) != (size_t)p->types)
        return REFUSE(r, "'on' must be an object with the times on each of the %d types", p->types);
    for (int t = 0; t < p->types; t++) {
        json_t *time = json_object_get(on, p->type[t].name);
        snprintf(r->where, sizeof r->where, "layer '%s' on '%s'", layer->name, p->type[t].name);
        if (time == NULL)
            return REFUSE(r, "its times are missing in '%s'", "on");
        TUTTI_TRY(read_time(r, time, &p->time[p->layers][t]));
    }
    p->layers++;
    return TUTTI_OK;
}

static tutti_status read_problem(reader *r, json_t *root, tutti_placement_problem *p,
                                 tutti_placement_speed *speed)
{
    static const char *const names[] = { "schema",   "types", "layers",  "batch",
                                         "examples", "floor", "besides", NULL };
    json_t *list;
    int n;

    TUTTI_TRY(only(r, root, names));
    TUTTI_TRY(read_number(r, root, "batch", 1, &p->batch));
    TUTTI_TRY(read_number(r, root, "examples", NAN, &p->examples));
    TUTTI_TRY(read_number(r, root, "floor", NAN, &p->floor));
    TUTTI_TRY(read_number(r, root, "besides", 0, &p->besides));
    TUTTI_TRY(list_of(r, root, "types", TUTTI_PLACEMENT_TYPES_MOST, &list, &n));
    for (int t = 0; t < n; t++)
        TUTTI_TRY(read_type(r, json_array_get(list, (size_t)t), p, &speed[t]));
    if (json_object_get(root, "layers") == NULL)
        return TUTTI_OK;
    snprintf(r->where, sizeof r->where, "resources");
    TUTTI_TRY(list_of(r, root, "layers", TUTTI_PLACEMENT_LAYERS_MOST, &list, &n));
    for (int l = 0; l < n; l++)
        TUTTI_TRY(read_layer(r, json_array_get(list, (size_t)l), p));
    return tutti_fail_within(r->err, tutti_placement_check(p, r->err), "%.120s", r->path);
}

tutti_status tutti_placement_parse(const char *path, const char *text, size_t bytes,
                                   tutti_placement_problem *p,
                                   tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST],
                                   tutti_error *err)
{
    reader r = { path, err, "resources" };
    tutti_status status;
    json_t *root;

    *p = (tutti_placement_problem){ 0 };
    memset(speed, 0, TUTTI_PLACEMENT_TYPES_MOST * sizeof *speed);
    TUTTI_TRY(open_text(&root, path, text, bytes, "tutti-resources-1", err));
    status = read_problem(&r, root, p, speed);
    json_decref(root);
    if (status != TUTTI_OK)
        *p = (tutti_placement_problem){ 0 };
    return status;
}

/* ---- schedules ---- */

static tutti_status read_stage(reader *r, json_t *object, bool model, tutti_placement_schedule *s)
{
    const int q = s->stages, before = q > 0 ? s->stage[q - 1].end : 0;
    json_t *sparse;

    snprintf(r->where, sizeof r->where, "stage %d", q);
    if (!json_is_object(object))
        return REFUSE(r, "it must be an object with '%s'", "type");
    TUTTI_TRY(name_of(r, object, "type", NULL, s->stage[q].type, sizeof s->stage[q].type));
    TUTTI_TRY(whole(r, object, "first_layer", 0, TUTTI_PLACEMENT_LAYERS_MOST, &s->stage[q].first));
    TUTTI_TRY(whole(r, object, "end_layer", 0, TUTTI_PLACEMENT_LAYERS_MOST, &s->stage[q].end));
    TUTTI_TRY(whole(r, object, "units", 1, TUTTI_PLACEMENT_UNITS_MOST, &s->stage[q].units));
    if (s->stage[q].first != before || s->stage[q].end <= before)
        return REFUSE(r,
                      "it has layers %d to %d; stages follow one another, so it begins with %d and "
                      "ends behind it",
                      s->stage[q].first, s->stage[q].end - 1, before);
    if (q > 0 && strcmp(s->stage[q].type, s->stage[q - 1].type) == 0)
        return REFUSE(r, "it is on '%s' as the stage before; they are one stage", s->stage[q].type);
    sparse = json_object_get(object, "sparse");
    if (!json_is_boolean(sparse))
        return REFUSE(r, "'%s' must be true or false", "sparse");
    s->stage[q].sparse = json_is_true(sparse);
    if (model) {
        TUTTI_TRY(whole(r, object, "first_unit", 0, 1 << 20, &s->unit[q]));
        TUTTI_TRY(whole(r, object, "end_unit", 0, 1 << 20, &s->unit[q + 1]));
        if (q == 0 ? s->unit[0] != 0 : s->unit[q] <= s->unit[q - 1])
            return REFUSE(r, "it begins with unit %d; stages follow one another, from unit 0 on",
                          s->unit[q]);
        if (s->unit[q + 1] <= s->unit[q])
            return REFUSE(r, "it ends at unit %d, where it begins", s->unit[q + 1]);
    }
    s->stages++;
    return TUTTI_OK;
}

/* A stage's end_unit is in unit[] until the next one's first_unit stands there: they must agree. */
static tutti_status read_stages(reader *r, json_t *root, tutti_placement_schedule *s)
{
    json_t *list;
    int n;

    TUTTI_TRY(name_of(r, root, "model", "", s->model, sizeof s->model));
    TUTTI_TRY(list_of(r, root, "stages", TUTTI_PLACEMENT_LAYERS_MOST, &list, &n));
    for (int q = 0; q < n; q++) {
        const int end = s->unit[q];
        TUTTI_TRY(read_stage(r, json_array_get(list, (size_t)q), s->model[0] != 0, s));
        if (q > 0 && s->unit[q] != end)
            return REFUSE(r, "it begins with unit %d, and the stage before ends at %d", s->unit[q],
                          end);
    }
    s->layers = s->stage[n - 1].end;
    return TUTTI_OK;
}

tutti_status tutti_placement_read(const char *path, const char *text, size_t bytes,
                                  tutti_placement_schedule *s, tutti_error *err)
{
    reader r = { path, err, "schedule" };
    tutti_status status;
    json_t *root;

    *s = (tutti_placement_schedule){ 0 };
    TUTTI_TRY(open_text(&root, path, text, bytes, "tutti-stages-1", err));
    status = read_stages(&r, root, s);
    json_decref(root);
    if (status != TUTTI_OK)
        *s = (tutti_placement_schedule){ 0 };
    return status;
}
