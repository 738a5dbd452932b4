/* methods.c: `tutti methods`: lists and explains the methods, from the registry of methods. */
#include <string.h>

#include "cli_internal.h"
#include "tier/tier.h"
#include "tutti/method.h"
#include "method/registry.h"

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

static json_t *method_json(size_t k)
{
    const tutti_method_ops *m = tutti_methods[k];
    json_t *options = json_array(), *defaults = json_object(), *constraints = json_array(),
           *object = json_object(), *conditional = json_array();

    for (const tutti_option *o = m->options; o != NULL && o->name != NULL; o++)
        json_array_append_new(options, tutti_cli_option_json(o));
    for (const tutti_method_default *d = m->defaults; d != NULL && d->option != NULL; d++)
        if (d->when == NULL)
            json_object_set_new(defaults, d->option, json_string(d->value));
        else
            json_array_append_new(conditional, json_pack("{s:s, s:s, s:s}", "option", d->option,
                                                         "value", d->value, "when", d->when));
    for (size_t i = 0; m->constraints != NULL && m->constraints[i] != NULL; i++)
        json_array_append_new(constraints, json_string(m->constraints[i]));
    json_object_set_new(object, "name", json_string(m->name));
    json_object_set_new(object, "title", json_string(m->title));
    json_object_set_new(object, "authors", json_string(m->authors));
    json_object_set_new(object, "year", json_integer(m->year));
    json_object_set_new(object, "family", json_string(m->family));
    json_object_set_new(
        object, "axes",
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "topology", text_or_null(m->axes.topology),
                  "synchrony", text_or_null(m->axes.synchrony), "codec",
                  text_or_null(m->axes.codec), "schedule", text_or_null(m->axes.schedule),
                  "placement", text_or_null(m->axes.placement), "update",
                  text_or_null(m->axes.update)));
    json_object_set_new(object, "options", options);
    json_object_set_new(object, "defaults", defaults);
    json_object_set_new(object, "conditional_defaults", conditional);
    json_object_set_new(object, "constraints", constraints);
    json_object_set_new(object, "sheet", json_sprintf("docs/methods/%s.md", m->name));
    return object;
}

/* Prints the possible values of the option `tier`, with their options, of a method that has it. */
static void print_tiers(const tutti_method_ops *m)
{
    const tutti_option *tier = tutti_option_find(m->options, "tier");

    for (size_t i = 0; tier != NULL && tier->type == TUTTI_SPEC && tutti_tiers[i].name != NULL;
         i++) {
        char text[400];
        if (tutti_tiers[i].options == NULL || tutti_tiers[i].options[0].name == NULL)
            continue;
        putchar('\n');
        snprintf(text, sizeof text,
                 "tier=%s(...), %s, has options of its own:", tutti_tiers[i].name,
                 tutti_tiers[i].help);
        tutti_cli_wrap(stdout, "", 2, text);
        tutti_cli_print_options(stdout, tutti_tiers[i].options, false);
    }
}

static void print_one(size_t k)
{
    const tutti_method_ops *m = tutti_methods[k];
    bool completes = false;
    char text[1024];

    for (const tutti_method_default *d = m->defaults; d != NULL && d->option != NULL; d++)
        completes = completes || tutti_method_default_completes(d);
    snprintf(text, sizeof text, "%s: %s", m->name, m->title);
    tutti_cli_wrap(stdout, "", 0, text);
    snprintf(text, sizeof text, "%s, %d. Family: %s; page: docs/methods/%s.md", m->authors, m->year,
             m->family, m->name);
    tutti_cli_wrap(stdout, "", 2, text);
    snprintf(text, sizeof text,
             "topology: %s; synchrony: %s; codec: %s; schedule: %s; placement: %s; update: %s",
             m->axes.topology, m->axes.synchrony, m->axes.codec, m->axes.schedule,
             m->axes.placement, m->axes.update);
    tutti_cli_wrap(stdout, "", 2, text);
    if (m->options != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, m->options, false);
    }
    print_tiers(m);
    if (m->defaults != NULL)
        printf("\n  Defaults for options of the run (n: the workers):\n");
    for (const tutti_method_default *d = m->defaults; d != NULL && d->option != NULL; d++)
        printf("  --%-18s %s%s%s\n", d->option, d->value, d->when != NULL ? " with " : "",
               d->when != NULL ? d->when : "");
    if (completes)
        tutti_cli_wrap(stdout, "", 2,
                       "With optimizer=NAME: what is not given of an optimizer of that name.");
    for (size_t i = 0; m->constraints != NULL && m->constraints[i] != NULL; i++) {
        if (i == 0)
            putchar('\n');
        tutti_cli_wrap(stdout, "  -", 4, m->constraints[i]);
    }
}

static const char *method_name(size_t i)
{
    return tutti_methods[i] != NULL ? tutti_methods[i]->name : NULL;
}

static const char *method_group(size_t i)
{
    return tutti_methods[i]->family;
}

static const char *group_title(const char *group)
{
    static const struct { const char *family, *title;
    } titles[] = {
        { "baseline", "The yardstick: nothing is exchanged" },
        { "all-reduce", "All-reduce: a step has the gradients of all workers" },
        { "periodic", "Periodic: models are averaged every few steps" },
        { "gossip", "Gossip: models are averaged with a few neighbours" },
        { "pipeline", "Pipelines: each worker has some layers, and samples go through them" },
        { "server",
          "Servers: they have the model, workers bring gradients, together or as each is done" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(titles); k++)
        if (strcmp(titles[k].family, group) == 0)
            return titles[k].title;
    return group;
}

static void line(size_t i, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s (%d)", tutti_methods[i]->title, tutti_methods[i]->year);
}

int tutti_cli_methods(int argc, char **argv)
{
    static const tutti_cli_catalogue catalogue = {
        .command = "methods",
        .kind = "method",
        .room = 27,
        .help = "Lists the training methods, or explains one: its paper, axes, options, defaults "
                "of the run and constraints.",
        .advice = "`tutti methods NAME` explains one, `tutti train --method "
                  "'NAME(OPTION=VALUE,...)'` trains with it. Where nothing speaks for another, "
                  "take ddp, which is the default.",
        .name = method_name,
        .json = method_json,
        .print = print_one,
        .group = method_group,
        .group_title = group_title,
        .line = line,
    };
    return tutti_cli_list(&catalogue, argc, argv);
}
