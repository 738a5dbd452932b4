/* codecs.c: `tutti codecs`: lists and explains the codecs, from the registry of codecs. */
#include <string.h>

#include "cli_internal.h"
#include "tutti/codec.h"

static tutti_codec_about about(size_t i)
{
    tutti_codec_about codec;

    tutti_codec_listed((int)i, &codec);
    return codec;
}

/* Returns how workers exchange a codec's output. */
static const char *form_help(const char *form)
{
    return strcmp(form, "wrapper") == 0 ? "wraps other codecs"
           : strcmp(form, "summed") == 0
               ? "summed on the way (all-reduce)"
               : "each message is decoded (all-gather; from 4 workers up all-to-all, re-encoding, "
                 "all-gather, if parts of a tensor may be encoded; or as --collective specifies)";
}

static json_t *codec_json(size_t i)
{
    const tutti_codec_about c = about(i);
    json_t *options = json_array();

    for (const tutti_option *o = c.options; o->name != NULL; o++)
        json_array_append_new(options, tutti_cli_option_json(o));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", c.name, "help", c.help, "paper", c.paper,
                     "form", c.form, "options", options);
}

static void print_one(size_t i)
{
    const tutti_codec_about c = about(i);

    char text[1024];

    snprintf(text, sizeof text, "%s: %s", c.name, c.help);
    tutti_cli_wrap(stdout, "", 0, text);
    snprintf(text, sizeof text, "%s; %s", c.paper, form_help(c.form));
    tutti_cli_wrap(stdout, "", 2, text);
    if (c.options[0].name != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, c.options, false);
    }
}

static const char *codec_name(size_t i)
{
    return about(i).name;
}

static const char *codec_form(size_t i)
{
    return about(i).form;
}

static const char *form_title(const char *group)
{
    return strcmp(group, "wrapper") == 0 ? "Wrappers: round other codecs, ef(topk(ratio=0.01))"
        : strcmp(group, "summed") == 0   ? "Summed on the way, by all-reduce"
                                         : "Messages: each is decoded";
}

static void line(size_t i, char *text, size_t bytes)
{
    const tutti_codec_about c = about(i);

    snprintf(text, bytes, "%s %s", c.form, c.help);
}

int tutti_cli_codecs(int argc, char **argv)
{
    static const tutti_cli_catalogue catalogue = {
        .command = "codecs",
        .kind = "codec",
        .room = 16,
        .help = "Lists what gradients may travel as, or explains one. Use: tutti train --codec "
                "'ef(topk(ratio=0.01))'.",
        .advice = "`tutti codecs NAME` explains one. A codec pays where the network is slower than "
                  "the computation: --codec-cost explain measures that before the first step.",
        .name = codec_name,
        .json = codec_json,
        .print = print_one,
        .group = codec_form,
        .group_title = form_title,
        .line = line,
    };
    return tutti_cli_list(&catalogue, argc, argv);
}
