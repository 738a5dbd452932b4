/* codecs.c: `tutti codecs`: what gradients may travel as, from the codecs' own tables. */
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/codec.h"

/* How workers exchange it. */
static const char *form(const tutti_codec_ops *c)
{
    return c->choose != NULL ? "wrapper" : c->rounds > 0 ? "summed" : "message";
}

static const char *form_help(const tutti_codec_ops *c)
{
    return c->choose != NULL ? "wraps other codecs" : c->rounds > 0 ? "summed on the way (all-reduce)" : "each message is decoded (all-gather; from 4 workers up all-to-all, re-encoding, all-gather)";
}

static json_t *codec_json(const tutti_codec_ops *c)
{
    json_t *options = json_array();

    for (const tutti_option *o = c->options; o->name != NULL; o++)
        json_array_append_new(options, tutti_cli_option_json(o));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", c->name, "help", c->help, "paper", c->paper, "form", form(c), "options", options);
}

static void print_one(const tutti_codec_ops *c)
{
    printf("%s: %s\n  %s; %s\n", c->name, c->help, c->paper, form_help(c));
    if (c->options[0].name != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, c->options, false);
    }
}

int tutti_cli_codecs(int argc, char **argv)
{
    const tutti_codec_ops *one = NULL;
    bool json = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("tutti codecs [NAME] [--json]\n\nLists what gradients may travel as, or explains one. Use: tutti train --codec 'ef(topk(ratio=0.01))'. --json: an array of objects.\n");
            return EXIT_DONE;
        } else if (argv[i][0] == '-')
            return tutti_cli_usage("codecs", "there is no option '%s'", argv[i]);
        else if ((one = tutti_codec_find(argv[i])) == NULL) {
            const char *names[64];
            size_t n = 0;
            char near[128];
            for (; tutti_codecs[n] != NULL && n < TUTTI_LENGTH(names); n++)
                names[n] = tutti_codecs[n]->name;
            tutti_suggest(argv[i], names, n, near, sizeof near);
            return tutti_cli_usage("codecs", "there is no codec '%s'%s", argv[i], near);
        }
    }
    if (json) {
        json_t *array = json_array();
        char *text;
        for (size_t i = 0; tutti_codecs[i] != NULL; i++)
            if (one == NULL || one == tutti_codecs[i])
                json_array_append_new(array, codec_json(tutti_codecs[i]));
        text = json_dumps(array, JSON_INDENT(2));
        json_decref(array);
        if (text == NULL)
            return EXIT_TRAINING;
        puts(text);
        free(text);
    } else if (one != NULL)
        print_one(one);
    else
        for (size_t i = 0; tutti_codecs[i] != NULL; i++)
            printf("  %-12s %-8s %s\n", tutti_codecs[i]->name, form(tutti_codecs[i]), tutti_codecs[i]->help);
    return EXIT_DONE;
}
