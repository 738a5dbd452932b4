/* measured.c: reads the file of a measured network. Parser contract: a text of at most 16 MiB,
   which is not trusted. Each refusal names the file, the place in it, and what is allowed. Unknown
   members are refused, so that a misspelt one does not silently become a default. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "measured.h"
#include "base/json.h"
#include "base/options.h"
#include "runtime/files.h"

enum { BYTES_MOST = 16 << 20, NAME_MOST = 512, DIMS_MOST = 8 };
#define VALUES_MOST ((uint64_t)1 << 40)
#define SECONDS_MOST 1e6

typedef struct reader {
    const char *path;
    tutti_error *err;
    char where[80]; /* "tensors, number 3" */
} reader;

#define REFUSE(r, ...) refuse((r), __VA_ARGS__)

__attribute__((format(printf, 2, 3))) static tutti_status refuse(const reader *r,
                                                                 const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tutti_fail(r->err, TUTTI_ERR_USAGE, 0, "%.200s: %s%s%s", r->path, r->where,
                      r->where[0] != 0 ? ": " : "", text);
}

/* `names` ends with NULL. */
static tutti_status only(const reader *r, json_t *object, const char *const *names)
{
    const char *key;
    char near[128];

    key = tutti_base_json_unknown(object, names, near, sizeof near);
    return key == NULL ? TUTTI_OK : REFUSE(r, "there is no member '%.40s'%s", key, near);
}

/* initial NAN: it must be there. */
static tutti_status read_seconds(const reader *r, json_t *object, const char *name, double initial,
                                 double *out)
{
    json_t *value = json_object_get(object, name);

    *out = value == NULL ? initial : json_number_value(value);
    if ((value == NULL && isnan(initial)) || (value != NULL && !json_is_number(value)) ||
        !(*out >= 0 && *out <= SECONDS_MOST))
        return REFUSE(r, "'%s' must be a number of seconds from 0 to %g", name, SECONDS_MOST);
    return TUTTI_OK;
}

static tutti_status read_whole(const reader *r, json_t *object, const char *name, json_int_t low,
                               json_int_t high, json_int_t *out)
{
    json_t *value = json_object_get(object, name);

    *out = json_integer_value(value);
    if (!json_is_integer(value) || *out < low || *out > high)
        return REFUSE(r, "'%s' must be a whole number from %lld to %lld", name, (long long)low,
                      (long long)high);
    return TUTTI_OK;
}

static tutti_status read_text(const reader *r, json_t *object, const char *name, const char **out)
{
    json_t *value = json_object_get(object, name);

    *out = json_string_value(value);
    if (*out == NULL || (*out)[0] == 0 || strlen(*out) > NAME_MOST)
        return REFUSE(r, "'%s' must be text of 1 to %d bytes", name, NAME_MOST);
    for (const char *c = *out; *c != 0; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return REFUSE(r, "'%s' has a control character", name);
    return TUTTI_OK;
}

/* The engine has four dimensions and looks at the first two, so the last of more are one. */
static tutti_status read_shape(const reader *r, json_t *object, tutti_nn_param *p)
{
    json_t *shape = json_object_get(object, "shape");
    const size_t dims = json_array_size(shape);

    if (!json_is_array(shape) || dims > DIMS_MOST)
        return REFUSE(r, "'shape' must be a list of 0 to %d sizes", DIMS_MOST);
    p->dims = dims < 1 ? 1 : dims < 4 ? (int)dims : 4;
    p->count = 1;
    for (int d = 0; d < p->dims; d++)
        p->dim[d] = 1;
    for (size_t d = 0; d < dims; d++) {
        json_t *size = json_array_get(shape, d);
        const json_int_t n = json_integer_value(size);
        if (!json_is_integer(size) || n < 1 || (uint64_t)n > VALUES_MOST / p->count)
            return REFUSE(r,
                          "'shape' has sizes that are whole numbers from 1 on, and 2^40 values at "
                          "most; its number %zu is not so",
                          d + 1);
        p->count *= (size_t)n;
        p->dim[d < 4 ? d : 3] *= (size_t)n;
    }
    p->rows = p->dim[0];
    p->cols = p->count / p->rows;
    return TUTTI_OK;
}

static tutti_status read_dtype(const reader *r, json_t *object)
{
    static const char *const types[] = { "float32", "float16", "bfloat16", "float64" };
    const char *dtype = json_string_value(json_object_get(object, "dtype"));

    for (size_t i = 0; i < TUTTI_LENGTH(types) && dtype != NULL; i++)
        if (strcmp(types[i], dtype) == 0)
            return TUTTI_OK;
    return REFUSE(r, "'dtype' must be \"float32\", \"float16\", \"bfloat16\" or \"float64\"");
}

/* *needed: when forward reaches the tensor. */
static tutti_status read_tensor(const reader *r, json_t *object, tutti_measured_model *m, int k,
                                double *needed)
{
    static const char *const names[] = { "name",           "shape",         "dtype",
                                         "needed_seconds", "ready_seconds", NULL };

    if (!json_is_object(object))
        return REFUSE(r, "it must be an object with 'name', 'shape', 'dtype', 'ready_seconds'");
    TUTTI_TRY(only(r, object, names));
    TUTTI_TRY(read_text(r, object, "name", &m->name[k]));
    TUTTI_TRY(read_shape(r, object, &m->param[k]));
    TUTTI_TRY(read_dtype(r, object));
    TUTTI_TRY(read_seconds(r, object, "needed_seconds", 0, needed));
    TUTTI_TRY(read_seconds(r, object, "ready_seconds", NAN, &m->ready[k]));
    if (*needed > m->forward)
        return REFUSE(r, "'needed_seconds' is %g, after the end of forward at %g", *needed,
                      m->forward);
    if (m->ready[k] > m->backward)
        return REFUSE(r, "'ready_seconds' is %g, after the end of backward at %g", m->ready[k],
                      m->backward);
    if (k > 0 && m->ready[k] < m->ready[k - 1])
        return REFUSE(r,
                      "'ready_seconds' is %g, and %g of the tensor before it; tensors must stand "
                      "in the order in which their gradients become ready",
                      m->ready[k], m->ready[k - 1]);
    return TUTTI_OK;
}

/* Are both parameters of the same module, as PyTorch names them: "fc.weight", "fc.bias"? */
static bool same_module(const char *a, const char *b)
{
    const char *end = strrchr(a, '.'), *other = strrchr(b, '.');

    return end != NULL && other != NULL && end - a == other - b &&
           strncmp(a, b, (size_t)(end - a)) == 0;
}

/* Numbers the units from the one that forward reaches first, which backward reaches last. */
static void number_units(tutti_measured_model *m, const double *needed)
{
    double after = 0;

    for (int k = m->n - 1; k >= 0; k--) {
        if (k == m->n - 1 || !same_module(m->name[k], m->name[k + 1]))
            m->needed[m->units++] = needed[k];
        else if (needed[k] < m->needed[m->units - 1])
            m->needed[m->units - 1] = needed[k];
        m->param[k].unit = m->units - 1;
    }
    for (int u = 0; u < m->units; u++) {
        after = fmax(after, m->needed[u]);
        m->needed[u] = after;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tutti_status check_names(reader *r, const tutti_measured_model *m)
{
    const char **sorted = tutti_alloc((size_t)m->n, sizeof *sorted);
    tutti_status status = TUTTI_OK;

    if (sorted == NULL)
        return tutti_fail(r->err, TUTTI_ERR_MEMORY, ENOMEM, "reading the %d tensors of '%.200s'",
                          m->n, r->path);
    memcpy(sorted, m->name, (size_t)m->n * sizeof *sorted);
    qsort(sorted, (size_t)m->n, sizeof *sorted, by_name);
    for (int k = 1; k < m->n && status == TUTTI_OK; k++)
        if (strcmp(sorted[k - 1], sorted[k]) == 0)
            status = REFUSE(r, "two tensors are named '%.100s'; a shared one stands there once",
                            sorted[k]);
    tutti_free(sorted);
    return status;
}

static tutti_status read_tensors(reader *r, tutti_measured_model *m, tutti_error *err)
{
    json_t *list = json_object_get(m->root, "tensors");
    const size_t n = json_array_size(list);
    uint64_t values = 0;
    double *needed;
    tutti_status status = TUTTI_OK;

    if (!json_is_array(list) || n < 1 || n > TUTTI_MEASURED_TENSORS_MOST)
        return REFUSE(r, "'tensors' must be a list of 1 to %d tensors",
                      TUTTI_MEASURED_TENSORS_MOST);
    m->n = (int)n;
    m->param = tutti_alloc(n, sizeof *m->param);
    m->name = tutti_alloc(n, sizeof *m->name);
    m->ready = tutti_alloc(n, sizeof *m->ready);
    m->needed = tutti_alloc(n, sizeof *m->needed);
    needed = tutti_alloc(n, sizeof *needed);
    if (m->param == NULL || m->name == NULL || m->ready == NULL || m->needed == NULL ||
        needed == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the %zu tensors of '%.200s'", n,
                            r->path);
    for (int k = 0; k < m->n && status == TUTTI_OK; k++) {
        snprintf(r->where, sizeof r->where, "tensors, number %d", k + 1);
        status = read_tensor(r, json_array_get(list, (size_t)k), m, k, &needed[k]);
        values += m->param[k].count;
        if (status == TUTTI_OK && values > VALUES_MOST)
            status = REFUSE(r, "with it there are more than 2^40 values");
    }
    r->where[0] = 0;
    if (status == TUTTI_OK)
        number_units(m, needed);
    tutti_free(needed);
    return status == TUTTI_OK ? check_names(r, m) : status;
}

static tutti_status read_all(reader *r, tutti_measured_model *m, tutti_error *err)
{
    static const char *const names[] = {
        "schema",           "module",           "batch",
        "forward_seconds",  "backward_seconds", "optimizer_seconds",
        "activation_bytes", "tensors",          NULL
    };
    const char *schema = json_string_value(json_object_get(m->root, "schema"));
    json_int_t whole = 0;

    if (schema == NULL || strcmp(schema, "tutti-measured-1") != 0)
        return REFUSE(r,
                      "its schema is '%.40s'; it must be an object with \"schema\": "
                      "\"tutti-measured-1\"",
                      schema != NULL ? schema : "");
    TUTTI_TRY(only(r, m->root, names));
    m->module = "";
    if (json_object_get(m->root, "module") != NULL)
        TUTTI_TRY(read_text(r, m->root, "module", &m->module));
    TUTTI_TRY(read_whole(r, m->root, "batch", 1, TUTTI_MEASURED_BATCH_MOST, &whole));
    m->batch = whole;
    TUTTI_TRY(read_seconds(r, m->root, "forward_seconds", NAN, &m->forward));
    TUTTI_TRY(read_seconds(r, m->root, "backward_seconds", NAN, &m->backward));
    if (m->forward + m->backward <= 0)
        return REFUSE(r, "forward and backward take no time; one of them must");
    TUTTI_TRY(read_seconds(r, m->root, "optimizer_seconds", 0, &m->optimizer));
    whole = 0;
    if (json_object_get(m->root, "activation_bytes") != NULL)
        TUTTI_TRY(read_whole(r, m->root, "activation_bytes", 0, (json_int_t)1 << 50, &whole));
    m->activation_bytes = (uint64_t)whole;
    return read_tensors(r, m, err);
}

tutti_status tutti_measured_parse(tutti_measured_model **out, const char *path, const char *text,
                                  size_t bytes, tutti_error *err)
{
    reader r = { .path = path, .err = err };
    json_error_t why;
    tutti_measured_model *m;
    tutti_status status;

    *out = NULL;
    if (bytes > BYTES_MOST)
        return REFUSE(&r, "%zu bytes; at most %d (16 MiB)", bytes, BYTES_MOST);
    m = tutti_alloc(1, sizeof *m);
    if (m == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%.200s'", path);
    m->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    status = m->root != NULL ? read_all(&r, m, err)
                             : REFUSE(&r, "no JSON: %.100s (line %d, column %d)", why.text,
                                      why.line, why.column);
    if (status == TUTTI_OK)
        *out = m;
    else
        tutti_measured_close(m);
    return status;
}

void tutti_measured_close(tutti_measured_model *m)
{
    if (m == NULL)
        return;
    tutti_free(m->param);
    tutti_free(m->name);
    tutti_free(m->ready);
    tutti_free(m->needed);
    json_decref(m->root);
    tutti_free(m);
}

/* ---- the spec ---- */

typedef struct options {
    const char *file;
} options;
static const tutti_option options_of[] = {
    { "file", TUTTI_TEXT, TUTTI_AT(options, file), 0, 0, 0, "",
      "shapes and times of a network, as tutti.plan of Python writes it" },
    { 0 }
};

bool tutti_measured_named(const char *model)
{
    static const char name[] = "measured";
    const size_t n = sizeof name - 1;

    model += strspn(model, " \t\n\v\f\r");
    return strncmp(model, name, n) == 0 &&
           (model[n] == 0 || strchr("( \t\n\v\f\r", model[n]) != NULL);
}

static tutti_status read_file(tutti_measured_model **out, tutti_runtime *rt, const char *path,
                              tutti_error *err)
{
    tutti_file *file;
    char *text = NULL;
    size_t bytes;
    tutti_status status;

    TUTTI_TRY(tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err));
    bytes = tutti_file_bytes(file) > BYTES_MOST ? BYTES_MOST + 1 : (size_t)tutti_file_bytes(file);
    if (bytes > BYTES_MOST)
        status = tutti_measured_parse(out, path, "", (size_t)tutti_file_bytes(file), err);
    else if ((text = tutti_alloc(bytes + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%.200s'", path);
    else
        status = tutti_file_read(file, 0, text, bytes, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK)
        status = tutti_measured_parse(out, path, text, bytes, err);
    tutti_free(text);
    return status;
}

tutti_status tutti_measured_open(tutti_measured_model **out, tutti_runtime *rt, const char *model,
                                 tutti_error *err)
{
    options o = { 0 };
    tutti_spec *spec = NULL;
    tutti_status status = tutti_spec_open(&spec, model, err);

    *out = NULL;
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "model 'measured'", options_of, &o, err);
    if (status == TUTTI_OK && o.file[0] == 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "model 'measured' needs the file of its measurements; write "
                            "measured(file=F)");
    if (status == TUTTI_OK)
        status = read_file(out, rt, o.file, err);
    tutti_spec_close(spec);
    return status;
}
