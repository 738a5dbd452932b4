/* compare_lists.c: the options of a comparison that are lists: methods, codecs, seeds, and axes
   (KEY=VALUES) with all combinations of several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"

/* Splits text at separators that are outside of brackets and quotes. */
static tutti_status split(const char *what, const char *text, char separator, bool empty,
                          json_t **list, tutti_error *err)
{
    const char *from = text;
    int depth = 0;
    bool quoted = false;

    *list = json_array();
    for (const char *at = text;; at++) {
        quoted = quoted != (*at == '"');
        depth += !quoted && *at == '(';
        depth -= !quoted && *at == ')' && depth > 0;
        if (*at != 0 && (*at != separator || depth > 0 || quoted))
            continue;
        if (at == from && !empty)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s is '%.120s', in which an element is missing next to a '%c'", what,
                              text, separator);
        if (json_array_append_new(*list, json_stringn(from, (size_t)(at - from))) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is no text in UTF-8", what);
        if (*at == 0)
            return TUTTI_OK;
        from = at + 1;
    }
}

tutti_status tutti_compare_once(const char *what, const json_t *list, tutti_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(list, i), json_array_get(list, k)))
                return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s has '%.80s' twice; give it once",
                                  what, json_string_value(json_array_get(list, i)));
    return TUTTI_OK;
}

tutti_status tutti_compare_list(const char *what, const char *text, char separator, bool empty,
                              json_t **list, tutti_error *err)
{
    TUTTI_TRY(split(what, text, separator, empty, list, err));
    return tutti_compare_once(what, *list, err);
}

tutti_status tutti_compare_seeds(const char *text, json_t **seeds, tutti_error *err)
{
    const bool listed = strchr(text, ',') != NULL;
    json_t *words;
    tutti_status status = tutti_compare_list("seeds", text, ',', false, &words, err);

    *seeds = json_array();
    for (size_t i = 0; i < json_array_size(words) && status == TUTTI_OK; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        char *end;
        const long long value = strtoll(word, &end, 10);
        if (word[0] < '0' || word[0] > '9' || *end != 0 || value > 9007199254740992 ||
            (!listed && (value < 1 || value > 1000)))
            status = tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "seeds is '%.80s'; write how many (1 to 1000), or a list of them: 4,8,15", text);
        for (long long k = 0; status == TUTTI_OK && k < (listed ? 1 : value); k++)
            json_array_append_new(*seeds, json_integer(listed ? value : k));
    }
    json_decref(words);
    return status;
}

tutti_status tutti_compare_combine(const char *flag, const json_t *texts, char separator,
                                   json_t **points, tutti_error *err)
{
    *points = json_array();
    json_array_append_new(*points, json_object());
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i)), *equals = strchr(text, '=');
        json_t *values = NULL, *more = json_array();
        char key[64], what[80];
        tutti_status status = TUTTI_OK;
        if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof key)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "--%s is '%.80s'; write an option and its values: %s", flag, text,
                                separator == ',' ? "lr=0.02,0.05,0.1" : "'slow=;0:5'");
        snprintf(key, sizeof key, "%.*s",
                 equals != NULL && status == TUTTI_OK ? (int)(equals - text) : 0, text);
        snprintf(what, sizeof what, "--%s %.60s", flag, key);
        if (status == TUTTI_OK && json_object_get(json_array_get(*points, 0), key) != NULL)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "--%s has '%s' twice; give all its values at once", flag, key);
        if (status == TUTTI_OK)
            status =
                tutti_compare_list(what, equals + 1, separator, separator == ';', &values, err);
        for (size_t p = 0; p < json_array_size(*points) && status == TUTTI_OK; p++)
            for (size_t v = 0; v < json_array_size(values); v++) {
                json_t *point = json_copy(json_array_get(*points, p));
                json_object_set(point, key, json_array_get(values, v));
                json_array_append_new(more, point);
            }
        json_decref(values);
        json_decref(*points);
        *points = more;
        TUTTI_TRY(status);
        if (json_array_size(more) > TUTTI_COMPARE_RUNS_MOST)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "--%s makes more than %d combinations", flag,
                              TUTTI_COMPARE_RUNS_MOST);
    }
    return TUTTI_OK;
}

void tutti_compare_point(json_t *point, char *text, size_t bytes)
{
    const char *key;
    json_t *value;
    size_t used = 0;

    text[0] = 0;
    json_object_foreach(point, key, value)
    {
        const char *of = json_string_value(value);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used > 0 ? " " : "", key,
                                 of[0] != 0 ? of : "none");
        used = used < bytes ? used : bytes - 1;
    }
}
