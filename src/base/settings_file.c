/* settings_file.c: settings from a file: one mapping of names to scalars, in YAML or JSON.

   YAML is read as libyaml's events, not its documents. An event knows its line. A hostile file
   (deep nesting, aliases of aliases) is refused at the first event that is no scalar, before
   anything is built. jansson builds a tree first, but a bounded one (files have at most 1 MiB,
   jansson nests at most 2048 deep). It keeps no lines, so they are looked up in the text by the
   order of the keys, which its objects keep. */
#include "base_internal.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { FILE_BYTES = 1 << 20, PATH_BYTES = 160, WHERE_BYTES = PATH_BYTES + 32 };

typedef struct { /* one text that is being read */
    tutti_settings *settings;
    const char *path, *text;
    size_t bytes;
    tutti_error *err;
} source;

/* "run.yaml:3" for sentences and for the origin. The end of a long path is the most useful part;
   the rest would push the sentence out. */
static const char *print_where(const source *src, size_t line, char out[WHERE_BYTES])
{
    const char *path = src->path;
    const size_t bytes = strlen(path);

    if (bytes > PATH_BYTES)
        for (path += bytes - PATH_BYTES; ((unsigned char)*path & 0xC0) == 0x80; path++)
            ; /* not in the middle of a UTF-8 character */
    snprintf(out, WHERE_BYTES, "%s%s:%zu", path == src->path ? "" : "...", path, line);
    return out;
}

/* Finds the option of a key; refuses unknown keys and those met before in this text. */
static tutti_status find_key(const source *src, const char *key, size_t line,
                             const tutti_option **out)
{
    tutti_settings *s = src->settings;
    char where[WHERE_BYTES];
    struct tutti_base_setting *entry;

    *out = tutti_option_find(s->options, key);
    if (*out == NULL)
        return tutti_base_option_unknown(s->options, print_where(src, line, where), "key", key,
                                         src->err);
    entry = &s->entries[*out - s->options];
    if (entry->line != 0)
        return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                          "%s: key '%s' is given twice, first in line %zu; keep one",
                          print_where(src, line, where), tutti_base_show(key).text, entry->line);
    entry->line = line;
    return TUTTI_OK;
}

static tutti_status set(const source *src, const tutti_option *option, const char *value,
                        size_t line)
{
    char where[WHERE_BYTES];

    return tutti_base_settings_set(src->settings, option, TUTTI_FROM_FILE, value,
                                   print_where(src, line, where), src->err);
}

static tutti_status fail_line(const source *src, size_t line, const char *sentence)
{
    char where[WHERE_BYTES];

    return tutti_fail(src->err, TUTTI_ERR_USAGE, 0, "%s: %s", print_where(src, line, where),
                      sentence);
}

static tutti_status fail_no_value(const source *src, size_t line, const tutti_option *option)
{
    char where[WHERE_BYTES];

    return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                      "%s: option '%s' has no value; give one or remove the line",
                      print_where(src, line, where), option->name);
}

static tutti_status fail_nested(const source *src, size_t line, const tutti_option *option,
                                const char *found)
{
    char where[WHERE_BYTES];

    return tutti_fail(
        src->err, TUTTI_ERR_USAGE, 0,
        "%s: option '%s' is %s; it must be one value (quote it if it is meant as text)",
        print_where(src, line, where), option->name, found);
}

/* ---- YAML ---- */

static tutti_status fail_yaml(const source *src, const yaml_parser_t *parser)
{
    char where[WHERE_BYTES];

    if (parser->error == YAML_MEMORY_ERROR)
        return tutti_fail(src->err, TUTTI_ERR_MEMORY, ENOMEM, "%s: reading YAML", src->path);
    if (parser->error == YAML_READER_ERROR) /* no line: the text could not even be decoded */
        return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                          "%s: no YAML: %s at byte %zu; save the file as UTF-8 text", src->path,
                          parser->problem, parser->problem_offset + 1);
    return tutti_fail(
        src->err, TUTTI_ERR_USAGE, 0, "%s: no YAML: %s%s%s; write one 'name: value' a line",
        print_where(src, parser->problem_mark.line + 1, where),
        parser->context != NULL ? parser->context : "", parser->context != NULL ? ": " : "",
        parser->problem != NULL ? parser->problem : "not understood");
}

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

/* The next event; *event is empty (YAML_NO_EVENT) on failure and may then be deleted as well. */
static tutti_status next_event(const source *src, yaml_parser_t *parser, yaml_event_t *event)
{
    if (yaml_parser_parse(parser, event))
        return TUTTI_OK;
    *event = (yaml_event_t){ .type = YAML_NO_EVENT };
    return fail_yaml(src, parser);
}

/* ~, null and nothing at all, unquoted. */
static bool is_null(const yaml_event_t *scalar)
{
    const char *value = (const char *)scalar->data.scalar.value;

    return scalar->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (value[0] == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0);
}

static bool has_zero(const yaml_event_t *scalar)
{
    return strlen((const char *)scalar->data.scalar.value) != scalar->data.scalar.length;
}

static tutti_status read_yaml_value(const source *src, const yaml_event_t *event,
                                    const tutti_option *option)
{
    const size_t line = line_of(event);

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        if (has_zero(event))
            return fail_line(src, line, "the value holds a zero byte; remove it");
        if (is_null(event))
            return fail_no_value(src, line, option);
        return set(src, option, (const char *)event->data.scalar.value, line);
    case YAML_SEQUENCE_START_EVENT:
        return fail_nested(src, line, option, "a list");
    case YAML_MAPPING_START_EVENT:
        return fail_nested(src, line, option, "a mapping");
    default:
        return fail_nested(src, line, option, "an alias");
    }
}

/* The pairs of the mapping, up to and with its end. */
static tutti_status read_yaml_pairs(const source *src, yaml_parser_t *parser)
{
    for (;;) {
        tutti_status status;
        const tutti_option *option;
        yaml_event_t event;
        bool end;

        TUTTI_TRY(next_event(src, parser, &event));
        end = event.type == YAML_MAPPING_END_EVENT;
        status =
            end ? TUTTI_OK
            : event.type != YAML_SCALAR_EVENT || has_zero(&event)
                ? fail_line(src, line_of(&event), "a key must be the name of an option")
                : find_key(src, (const char *)event.data.scalar.value, line_of(&event), &option);
        yaml_event_delete(&event);
        if (status != TUTTI_OK || end)
            return status;

        TUTTI_TRY(next_event(src, parser, &event));
        status = read_yaml_value(src, &event, option);
        yaml_event_delete(&event);
        TUTTI_TRY(status);
    }
}

/* Stream: at most one document, which is a mapping or empty. */
static tutti_status read_yaml_stream(const source *src, yaml_parser_t *parser)
{
    for (size_t documents = 0;;) {
        tutti_status status = TUTTI_OK;
        yaml_event_type_t type;
        yaml_event_t event;

        TUTTI_TRY(next_event(src, parser, &event));
        type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && documents++ > 0)
            status = fail_line(src, line_of(&event),
                               "a second document begins; settings are one mapping");
        else if (type == YAML_SEQUENCE_START_EVENT || type == YAML_ALIAS_EVENT ||
                 (type == YAML_SCALAR_EVENT && !is_null(&event)))
            status = fail_line(src, line_of(&event),
                               "settings must be a mapping; write one 'name: value' a line");
        yaml_event_delete(&event);
        if (status == TUTTI_OK && type == YAML_MAPPING_START_EVENT)
            status = read_yaml_pairs(src, parser);
        if (status != TUTTI_OK || type == YAML_STREAM_END_EVENT)
            return status;
    }
}

static tutti_status read_yaml(const source *src)
{
    tutti_status status;
    yaml_parser_t parser;

    if (!yaml_parser_initialize(&parser))
        return tutti_fail(src->err, TUTTI_ERR_MEMORY, ENOMEM, "%s: reading YAML", src->path);
    /* and not what the first bytes look like */
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)src->text, src->bytes);
    status = read_yaml_stream(src, &parser);
    yaml_parser_delete(&parser);
    return status;
}

/* ---- JSON ---- */

typedef struct { size_t at, line; int depth; } finder; /* {0, 1, 0}: at the beginning */

/* The line of the next key of the outermost object. The text is JSON that jansson has
   read: strings end, brackets match. */
static size_t next_key_line(const source *src, finder *f)
{
    bool before_key = false; /* behind "{" or "," of the outermost object */

    for (; f->at < src->bytes; f->at++) {
        switch (src->text[f->at]) {
        case '\n':
            f->line++;
            break;
        case '{':
        case '[':
            before_key = ++f->depth == 1;
            break;
        case '}':
        case ']':
            f->depth--;
            break;
        case ',':
            before_key = f->depth == 1;
            break;
        case '"':
            for (f->at++; f->at < src->bytes && src->text[f->at] != '"'; f->at++)
                f->at += src->text[f->at] == '\\';
            if (before_key) {
                f->at++;
                return f->line;
            }
            break;
        default:
            break;
        }
    }
    return f->line;
}

static tutti_status read_json_value(const source *src, json_t *value, const tutti_option *option,
                                    size_t line)
{
    const bool is_text = option->type == TUTTI_TEXT || option->type == TUTTI_SPEC;
    char number[TUTTI_BASE_REAL_BYTES];

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return fail_nested(src, line, option, "an object");
    case JSON_ARRAY:
        return fail_nested(src, line, option, "a list");
    case JSON_NULL:
        return fail_no_value(src, line, option);
    case JSON_STRING:
        return set(src, option, json_string_value(value), line);
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        /* 3.0 and 1e3 are whole numbers of JSON, which has one kind of number. */
        if (option->type == TUTTI_INT && trunc(json_real_value(value)) == json_real_value(value) &&
            fabs(json_real_value(value)) <= 0x1p53)
            snprintf(number, sizeof number, "%.0f", json_real_value(value));
        else
            tutti_base_print_real(json_real_value(value), number);
        break;
    case JSON_TRUE:
        memcpy(number, "true", 5);
        break;
    case JSON_FALSE:
        memcpy(number, "false", 6);
        break;
    }
    if (is_text) {
        char where[WHERE_BYTES];
        return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                          "%s: option '%s' is %s; it must be text, in quotes",
                          print_where(src, line, where), option->name, number);
    }
    return set(src, option, number, line);
}

static tutti_status read_json(const source *src)
{
    tutti_status status = TUTTI_OK;
    finder lines = { 0, 1, 0 };
    char where[WHERE_BYTES];
    json_error_t problem;
    const char *key;
    json_t *value, *root = json_loadb(src->text, src->bytes, JSON_REJECT_DUPLICATES, &problem);

    if (root == NULL) {
        const size_t line = problem.line > 0 ? (size_t)problem.line : 1;
        switch (json_error_code(&problem)) {
        case json_error_out_of_memory:
            return tutti_fail(src->err, TUTTI_ERR_MEMORY, ENOMEM, "%s: reading JSON", src->path);
        case json_error_duplicate_key:
            return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                              "%s: a key is given twice (%s); keep one",
                              print_where(src, line, where), tutti_base_show(problem.text).text);
        default:
            return tutti_fail(src->err, TUTTI_ERR_USAGE, 0,
                              "%s: no JSON: %s; settings that begin with '{' are read as JSON",
                              print_where(src, line, where), tutti_base_show(problem.text).text);
        }
    }
    json_object_foreach(root, key, value) {
        const size_t line = next_key_line(src, &lines);
        const tutti_option *option;

        status = find_key(src, key, line, &option);
        if (status == TUTTI_OK)
            status = read_json_value(src, value, option, line);
        if (status != TUTTI_OK)
            break;
    }
    json_decref(root);
    return status;
}

/* ---- both ---- */

/* UTF-16 with its mark at the beginning. libyaml would read it and jansson would
   not; what is written here is read as bytes by all readers. */
static bool is_utf16(const char *text, size_t bytes)
{
    return bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
}

tutti_status tutti_settings_text(tutti_settings *s, const char *path, const char *text,
                                 size_t bytes, tutti_error *err)
{
    const source src = { .settings = s, .path = path, .text = text, .bytes = bytes, .err = err };
    size_t first = 0;

    if (bytes > FILE_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: larger than %d bytes (1 MiB); settings are one 'name: value' a line",
                          path, FILE_BYTES);
    if (is_utf16(text, bytes))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: the text is UTF-16; save the file as UTF-8 text", path);
    for (size_t i = 0; i < s->count; i++)
        s->entries[i].line = 0;
    while (first < bytes && (text[first] == ' ' || text[first] == '\t' || text[first] == '\r' ||
                             text[first] == '\n'))
        first++;
    return first < bytes && text[first] == '{' ? read_json(&src) : read_yaml(&src);
}

tutti_status tutti_settings_file(tutti_settings *s, const char *path, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    size_t used = 0;
    ssize_t got = 1;
    char *text;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, errno,
                          "cannot open settings file '%s'; check the path", path);
    /* a byte more than allowed, so that too much is seen whatever the file claims */
    text = tutti_alloc(FILE_BYTES + 1, 1);
    if (text == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading settings file '%s'", path);
        goto out;
    }
    while (used < FILE_BYTES + 1 && got > 0) {
        got = read(fd, text + used, FILE_BYTES + 1 - used);
        if (got > 0)
            used += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    if (got < 0)
        status = tutti_fail(err, errno == EISDIR ? TUTTI_ERR_USAGE : TUTTI_ERR_IO, errno,
                            "cannot read settings file '%s'; check that it is a file", path);
    else
        status = tutti_settings_text(s, path, text, used, err);
out:
    tutti_free(text);
    close(fd);
    return status;
}

tutti_status tutti_settings_file_filtered(tutti_settings *s, const char *path,
                                          bool (*filter)(void *user, const tutti_option *option,
                                                         const char *value, const char *where),
                                          void *user, tutti_error *err)
{
    tutti_status status;

    s->filter = filter;
    s->filter_user = user;
    status = tutti_settings_file(s, path, err);
    s->filter = NULL;
    return status;
}
