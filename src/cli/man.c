/* man.c: pages of the manual, from the tables that commands use: `tutti man` prints tutti(1), and
   `tutti man COMMAND [SUBCOMMAND]` the page of a command. The build calls it and installs the
   pages; it is not listed for users. */
#include <ctype.h>
#include <string.h>

#include "cli_internal.h"

/* Escapes text for roff: backslashes, dashes (as minus), and a dot or a quote at a line's
   beginning. */
static void put_text(const char *text)
{
    for (const char *at = text; *at != 0; at++) {
        if (at == text && (*at == '.' || *at == '\''))
            fputs("\\&", stdout);
        if (*at == '\\')
            fputs("\\e", stdout);
        else if (*at == '-')
            fputs("\\-", stdout);
        else
            putchar(*at);
    }
}

static void put_upper(const char *text)
{
    for (; *text != 0; text++)
        putchar(*text == '-' ? '-' : toupper((unsigned char)*text));
}

/* Prints the title of a page, "TUTTI-PLAN-MEMORY" 1, and its section NAME. */
static void put_head(const char *name, const char *help)
{
    fputs(".TH ", stdout);
    put_upper(name);
    printf(" 1 \"\" \"Tutti %s\" \"Tutti\"\n.SH NAME\n", tutti_version());
    put_text(name);
    fputs(" \\- ", stdout);
    put_text(help);
    putchar('\n');
}

static void put_option(const tutti_option *o)
{
    static const char *const kinds[] = {
        [TUTTI_INT] = "N", [TUTTI_REAL] = "X", [TUTTI_TEXT] = "TEXT", [TUTTI_SPEC] = "SPEC"
    };
    const char *text = o->text != NULL ? o->text : "";
    char initial[64];

    printf(".TP\n.B %s", strlen(o->name) == 1 ? "\\-" : "\\-\\-");
    put_text(o->name);
    if (o->type == TUTTI_CHOICE) {
        fputs(" \\fI", stdout);
        put_text(text);
        fputs("\\fR", stdout);
    } else if (o->type == TUTTI_BOOL && o->initial != 0)
        fputs(" \\fIon|off\\fR", stdout);
    else if (o->type != TUTTI_BOOL)
        printf(" \\fI%s\\fR", kinds[o->type]);
    putchar('\n');
    put_text(o->help);
    if (o->type == TUTTI_INT || o->type == TUTTI_REAL) {
        snprintf(initial, sizeof initial, "%.12g", o->initial);
        text = initial;
    } else if (o->type == TUTTI_CHOICE || o->type == TUTTI_BOOL)
        text = "";
    if (text[0] != 0) {
        fputs(" [", stdout);
        put_text(text);
        putchar(']');
    }
    putchar('\n');
}

static void put_end(const char *see)
{
    printf(".SH EXIT STATUS\n"
           "0 done, 1 training failed, 2 bad usage or configuration, 3 a worker was lost and the "
           "method could not "
           "continue, 128 + signal when stopped by one.\n"
           ".SH SEE ALSO\n.BR %s (1)\n",
           see);
}

/* name: "tutti-plan-memory"; words: "tutti plan memory". */
static void put_command(const tutti_command *c, const char *name, const char *words)
{
    bool any = false;

    put_head(name, c->help);
    fputs(".SH SYNOPSIS\n.B ", stdout);
    put_text(words);
    fputs("\n", stdout);
    put_text(c->arguments);
    fputs(c->arguments[0] != 0 ? "\n" : "", stdout);
    printf(".SH DESCRIPTION\n");
    put_text(c->help);
    printf(".\n.PP\n.B ");
    put_text(words);
    printf(" \\-\\-help\nexplains it.\n");
    for (const tutti_command *s = c->sub; s != NULL && s->name != NULL; s++) {
        fputs(".TP\n.B ", stdout);
        put_text(words);
        printf(" %s\n", s->name);
        put_text(s->help);
        putchar('\n');
    }
    for (size_t k = 0; k < TUTTI_LENGTH(c->tables) && c->tables[k] != NULL; k++)
        for (const tutti_option *o = c->tables[k]; o->name != NULL; o++) {
            if (!any)
                printf(".SH OPTIONS\n");
            any = true;
            put_option(o);
        }
    put_end("tutti");
}

static void put_all(void)
{
    put_head("tutti", "trains neural networks on many workers and spends as little time as "
                      "possible waiting for them");
    printf(".SH SYNOPSIS\n.B tutti\n\\fICOMMAND\\fR [...]\n.SH COMMANDS\n");
    for (const tutti_command *c = tutti_commands; c->name != NULL; c++) {
        if (c->help == NULL)
            continue;
        printf(".TP\n.B %s\n", c->name);
        put_text(c->help);
        printf(" (\\fBtutti\\-%s\\fR(1))\n", c->name);
    }
    put_end("tutti-train");
}

static const tutti_command *find_command(const tutti_command *c, const char *name)
{
    while (c != NULL && c->name != NULL && (c->help == NULL || strcmp(c->name, name) != 0))
        c++;
    return c != NULL && c->name != NULL ? c : NULL;
}

int tutti_cli_man(int argc, char **argv)
{
    const tutti_command *c = argc > 1 ? find_command(tutti_commands, argv[1]) : NULL,
                        *sub = c != NULL && argc > 2 ? find_command(c->sub, argv[2]) : NULL;
    char name[160], words[160];

    if (argc == 1) {
        put_all();
        return EXIT_DONE;
    }
    if (c == NULL || argc > 3 || (argc == 3 && sub == NULL))
        return tutti_cli_usage("man", "there is no such command");
    snprintf(name, sizeof name, "tutti-%s%s%s", c->name, sub != NULL ? "-" : "",
             sub != NULL ? sub->name : "");
    snprintf(words, sizeof words, "tutti %s%s%s", c->name, sub != NULL ? " " : "",
             sub != NULL ? sub->name : "");
    put_command(sub != NULL ? sub : c, name, words);
    return EXIT_DONE;
}
