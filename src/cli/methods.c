/* methods.c: `tutti methods`: the catalogue, from the methods' own tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

json_t *tutti_cli_option_json(const tutti_option *o)
{
    json_t *object = json_object();
    json_t *initial, *low = json_null(), *high = json_null();

    switch (o->type) {
    case TUTTI_INT:
        initial = json_integer((json_int_t)o->initial);
        low = json_integer((json_int_t)o->min);
        high = json_integer((json_int_t)o->max);
        break;
    case TUTTI_REAL:
        initial = json_real(o->initial);
        low = json_real(o->min);
        high = json_real(o->max);
        break;
    case TUTTI_BOOL: initial = json_boolean(o->initial != 0); break;
    case TUTTI_CHOICE: {
        const char *at = o->text;
        json_t *choices = json_array();
        for (int i = 0;; i++) {
            const size_t length = strcspn(at, "|");
            json_array_append_new(choices, json_stringn(at, length));
            if (at[length] == 0)
                break;
            at += length + 1;
        }
        initial = json_deep_copy(json_array_get(choices, (size_t)o->initial));
        json_object_set_new(object, "choices", choices);
        break;
    }
    default: initial = json_string(o->text != NULL ? o->text : "");
    }
    json_object_set_new(object, "name", json_string(o->name));
    json_object_set_new(object, "type", json_string(tutti_option_type_name(o->type)));
    json_object_set_new(object, "default", initial);
    json_object_set_new(object, "min", low);
    json_object_set_new(object, "max", high);
    json_object_set_new(object, "help", json_string(o->help));
    return object;
}

static json_t *method_json(const tutti_method_ops *m)
{
    json_t *options = json_array(), *constraints = json_array(), *object = json_object();

    for (const tutti_option *o = m->options; o != NULL && o->name != NULL; o++)
        json_array_append_new(options, tutti_cli_option_json(o));
    for (size_t i = 0; m->constraints != NULL && m->constraints[i] != NULL; i++)
        json_array_append_new(constraints, json_string(m->constraints[i]));
    json_object_set_new(object, "name", json_string(m->name));
    json_object_set_new(object, "title", json_string(m->title));
    json_object_set_new(object, "authors", json_string(m->authors));
    json_object_set_new(object, "year", json_integer(m->year));
    json_object_set_new(object, "family", json_string(m->family));
    json_object_set_new(object, "axes", json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "topology", text_or_null(m->axes.topology), "synchrony", text_or_null(m->axes.synchrony),
        "codec", text_or_null(m->axes.codec), "schedule", text_or_null(m->axes.schedule), "placement", text_or_null(m->axes.placement), "update", text_or_null(m->axes.update)));
    json_object_set_new(object, "options", options);
    json_object_set_new(object, "constraints", constraints);
    json_object_set_new(object, "sheet", m->sheet[0] != 0 ? json_string(m->sheet) : json_null());
    return object;
}

static void print_one(const tutti_method_ops *m)
{
    printf("%s: %s\n  %s, %d. Family: %s%s%s\n", m->name, m->title, m->authors, m->year, m->family, m->sheet[0] != 0 ? "; sheet: " : "", m->sheet);
    printf("  topology: %s; synchrony: %s; codec: %s; schedule: %s; placement: %s; update: %s\n", m->axes.topology, m->axes.synchrony, m->axes.codec, m->axes.schedule,
           m->axes.placement, m->axes.update);
    if (m->options != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, m->options, false);
    }
    for (size_t i = 0; m->constraints != NULL && m->constraints[i] != NULL; i++)
        printf("%s  - %s\n", i == 0 ? "\n" : "", m->constraints[i]);
}

int tutti_cli_methods(int argc, char **argv)
{
    const tutti_method_ops *one = NULL;
    bool json = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("tutti methods [NAME] [--json]\n\nLists the training methods, or explains one: its paper, axes, options and constraints. --json: an array of objects.\n");
            return EXIT_DONE;
        } else if (argv[i][0] == '-')
            return tutti_cli_usage("methods", "there is no option '%s'", argv[i]);
        else if ((one = tutti_method_find(argv[i])) == NULL) {
            const char *names[64];
            size_t n = 0;
            char near[128];
            for (; tutti_methods[n] != NULL && n < TUTTI_LENGTH(names); n++)
                names[n] = tutti_methods[n]->name;
            tutti_suggest(argv[i], names, n, near, sizeof near);
            return tutti_cli_usage("methods", "there is no method '%s'%s", argv[i], near);
        }
    }
    if (json) {
        json_t *array = json_array();
        char *text;
        for (size_t i = 0; tutti_methods[i] != NULL; i++)
            if (one == NULL || one == tutti_methods[i])
                json_array_append_new(array, method_json(tutti_methods[i]));
        text = json_dumps(array, JSON_INDENT(2));
        json_decref(array);
        if (text == NULL)
            return EXIT_TRAINING;
        puts(text);
        free(text);
    } else if (one != NULL)
        print_one(one);
    else
        for (size_t i = 0; tutti_methods[i] != NULL; i++)
            printf("  %-24s %-12s %s (%d)\n", tutti_methods[i]->name, tutti_methods[i]->family, tutti_methods[i]->title, tutti_methods[i]->year);
    return EXIT_DONE;
}
