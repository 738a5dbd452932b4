/* catalogue.c: tutti_cli_list, by which commands list the entries of a registry or explain one of
   them: `tutti methods`, `tutti codecs`, `tutti transports`. */
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "base/options.h"

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

/* Returns the number of the entry with that name; -1: there is none. */
static int index_of(const tutti_cli_catalogue *c, const char *name)
{
    for (size_t i = 0; c->name(i) != NULL; i++)
        if (strcmp(c->name(i), name) == 0)
            return (int)i;
    return -1;
}

static int unknown(const tutti_cli_catalogue *c, const char *name)
{
    const char *names[64];
    size_t n = 0;
    char near[128];

    for (; n < TUTTI_LENGTH(names) && c->name(n) != NULL; n++)
        names[n] = c->name(n);
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_cli_usage(c->command, "there is no %s '%s'%s", c->kind, name, near);
}

static void print_group(const tutti_cli_catalogue *c, const char *group)
{
    char lead[64], text[512];

    putchar('\n');
    tutti_cli_wrap(stdout, "", 0, c->group_title(group));
    for (size_t i = 0; c->name(i) != NULL; i++)
        if (strcmp(c->group(i), group) == 0) {
            snprintf(lead, sizeof lead, "  %s", c->name(i));
            c->line(i, text, sizeof text);
            tutti_cli_wrap(stdout, lead, c->room, text);
        }
}

/* Groups in the order of their first members. */
static void print_list(const tutti_cli_catalogue *c)
{
    tutti_cli_wrap(stdout, "", 0, c->help);
    for (size_t i = 0; c->name(i) != NULL; i++) {
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first = first && strcmp(c->group(k), c->group(i)) != 0;
        if (first)
            print_group(c, c->group(i));
    }
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0, c->advice);
}

int tutti_cli_list(const tutti_cli_catalogue *c, int argc, char **argv)
{
    int one = -1;
    bool json = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("tutti %s [NAME] [--json]\n\n%s --json: an array of objects.\n", c->command,
                   c->help);
            return EXIT_DONE;
        } else if (argv[i][0] == '-')
            return tutti_cli_usage(c->command, "there is no option '%s'", argv[i]);
        else if ((one = index_of(c, argv[i])) < 0)
            return unknown(c, argv[i]);
    }
    if (json) {
        json_t *array = json_array();
        char *text;
        for (size_t i = 0; c->name(i) != NULL; i++)
            if (one < 0 || one == (int)i)
                json_array_append_new(array, c->json(i));
        text = json_dumps(array, JSON_INDENT(2));
        json_decref(array);
        if (text == NULL)
            return EXIT_TRAINING;
        puts(text);
        free(text);
    } else if (one >= 0)
        c->print((size_t)one);
    else
        print_list(c);
    return EXIT_DONE;
}
