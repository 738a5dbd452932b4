/* complete.c: `tutti complete` and `tutti completion`: completions of a command line, and the
   scripts by which shells ask for them. `tutti complete WORD...` gets the words after "tutti"; the
   last is incomplete, maybe empty. It prints each completion of that word on a line.
   After a completion that ends with "=" or "(", or has a "(" without its ")", the shell adds no
   blank. If nothing is printed, the word may be the name of a file.

   All completions come from the tables that commands use: of commands (main.c), of their options,
   of methods, codecs, models and the like with their options. */
#include <string.h>

#include "cli_internal.h"
#include "tier/tier.h"
#include "tutti/codec.h"
#include "data/data.h"
#include "tutti/method.h"
#include "nn/nn.h"
#include "codec/codec.h"
#include "transport/registry.h"
#include "optim/optim.h"

/* An entry of a registry; name NULL: the end. */
typedef struct entry {
    const char *name;
    const tutti_option *options;
} entry;

static entry method(size_t i)
{
    return tutti_methods[i] == NULL ? (entry){ 0 }
                                    : (entry){ tutti_methods[i]->name, tutti_methods[i]->options };
}

static entry codec(size_t i)
{
    return tutti_codecs[i] == NULL ? (entry){ 0 }
                                   : (entry){ tutti_codecs[i]->name, tutti_codecs[i]->options };
}

static entry model(size_t i)
{
    return tutti_models[i] == NULL ? (entry){ 0 }
                                   : (entry){ tutti_models[i]->name, tutti_models[i]->options };
}

static entry optimizer(size_t i)
{
    return tutti_optims[i] == NULL ? (entry){ 0 }
                                   : (entry){ tutti_optims[i]->name, tutti_optims[i]->options };
}

static entry data(size_t i)
{
    return (entry){ tutti_data_sets[i].name, tutti_data_sets[i].options };
}

static entry transport(size_t i)
{
    return tutti_transports[i] == NULL
               ? (entry){ 0 }
               : (entry){ tutti_transports[i]->name, tutti_transports[i]->options };
}

static entry partition(size_t i)
{
    return (entry){ tutti_partitions[i].name, tutti_partitions[i].options };
}

static entry tier(size_t i)
{
    return (entry){ tutti_tiers[i].name, tutti_tiers[i].options };
}

/* The values of options with these names. by_commas: an option may have several. */
static const struct {
    const char *option;
    entry (*of)(size_t i);
    bool by_commas;
} taken[] = {
    { "method", method },       { "methods", method, true }, { "codec", codec },
    { "codecs", codec, true },  { "model", model },          { "data", data },
    { "optimizer", optimizer }, { "transport", transport },  { "partition", partition },
    { "tier", tier },
};

/* The arguments of commands that list a kind. */
static const struct {
    int (*run)(int argc, char **argv);
    entry (*of)(size_t i);
} catalogues[] = {
    { tutti_cli_methods, method },
    { tutti_cli_codecs, codec },
    { tutti_cli_transports, transport },
};

const tutti_option *tutti_cli_options_of(const char *option, const char *name)
{
    for (size_t k = 0; k < TUTTI_LENGTH(taken); k++)
        for (size_t i = 0; strcmp(taken[k].option, option) == 0 && taken[k].of(i).name != NULL; i++)
            if (strcmp(taken[k].of(i).name, name) == 0)
                return taken[k].of(i).options;
    return NULL;
}

/* The word that is completed, and the position in it from which it has to match. */
typedef struct begun {
    const char *word, *at;
} begun;

/* Prints a completion, if it continues what was typed. tail: appended to it. */
static void offer(begun b, const char *with, size_t length, const char *tail)
{
    if (strlen(b.at) <= length && strncmp(with, b.at, strlen(b.at)) == 0)
        printf("%.*s%.*s%s\n", (int)(b.at - b.word), b.word, (int)length, with, tail);
}

static void offer_word(begun b, const char *with)
{
    offer(b, with, strlen(with), "");
}

/* Offers each of "a|b|c". */
static void offer_choices(begun b, const char *choices)
{
    for (const char *at = choices; *at != 0; at += strcspn(at, "|"), at += *at == '|')
        offer(b, at, strcspn(at, "|"), "");
}

/* Returns what follows the last comma outside of parentheses. */
static begun last_of_list(begun b)
{
    const char *from = b.at;
    int depth = 0;

    for (const char *at = b.at; *at != 0; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0 && *at == ',')
            from = at + 1;
    }
    return (begun){ b.word, from };
}

static void offer_values(const tutti_option *o, begun b);

/* Completes what follows "name(": options, or a value of one. */
static void offer_inside(const tutti_option *options, begun b)
{
    const begun last = last_of_list(b);
    const char *equals = strchr(last.at, '=');
    const tutti_option *o = options;
    char name[64];

    for (; equals == NULL && o != NULL && o->name != NULL; o++)
        offer(last, o->name, strlen(o->name), "=");
    if (equals == NULL)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(equals - last.at), last.at);
    o = tutti_option_find(options, name);
    if (o != NULL)
        offer_values(o, (begun){ b.word, equals + 1 });
}

/* Completes the name of an entry of a registry, or, after its "(", its options. */
static void offer_entries(entry (*of)(size_t i), begun b)
{
    const size_t length = strcspn(b.at, "(");

    for (size_t i = 0; of(i).name != NULL; i++) {
        const entry e = of(i);
        if (b.at[length] == 0)
            offer_word(b, e.name);
        else if (strlen(e.name) == length && strncmp(e.name, b.at, length) == 0)
            offer_inside(e.options, (begun){ b.word, b.at + length + 1 });
    }
}

static void offer_values(const tutti_option *o, begun b)
{
    if (o->type == TUTTI_CHOICE)
        offer_choices(b, o->text);
    else if (o->type == TUTTI_BOOL)
        offer_choices(b, "on|off");
    for (size_t k = 0; k < TUTTI_LENGTH(taken) && (o->type == TUTTI_SPEC || o->type == TUTTI_TEXT);
         k++)
        if (strcmp(taken[k].option, o->name) == 0)
            offer_entries(taken[k].of, taken[k].by_commas ? last_of_list(b) : b);
}

static const tutti_option *find_option(const tutti_command *c, const char *name)
{
    const tutti_option *o = NULL;

    for (size_t k = 0; k < TUTTI_LENGTH(c->tables) && c->tables[k] != NULL && o == NULL; k++)
        o = tutti_option_find(c->tables[k], name);
    return o;
}

/* Is the value of the flag the next word? */
static bool wants_value(const tutti_option *o)
{
    return o->type != TUTTI_BOOL || o->initial != 0;
}

static void offer_flags(const tutti_command *c, const char *word)
{
    for (size_t k = 0; k < TUTTI_LENGTH(c->tables) && c->tables[k] != NULL; k++)
        for (const tutti_option *o = c->tables[k]; o->name != NULL; o++) {
            char flag[80];
            snprintf(flag, sizeof flag, "%s%s", strlen(o->name) == 1 ? "-" : "--", o->name);
            offer_word((begun){ word, word }, flag);
        }
    offer_word((begun){ word, word }, "--help");
}

/* Offers words that are no flags: subcommands, or "list|inspect [...]" of the command's
   arguments. */
static void offer_words(const tutti_command *c, begun b)
{
    char first[160];

    for (const tutti_command *s = c->sub; s != NULL && s->name != NULL; s++)
        offer_word(b, s->name);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(c->arguments, " "), c->arguments);
    if (c->sub == NULL && strchr(first, '|') != NULL && first[0] != '-')
        offer_choices(b, first);
    for (size_t i = 0; i < TUTTI_LENGTH(catalogues); i++)
        if (c->run == catalogues[i].run)
            offer_entries(catalogues[i].of, b);
}

static const tutti_command *command_of(const tutti_command *list, const char *name)
{
    while (list->name != NULL && (list->help == NULL || strcmp(list->name, name) != 0))
        list++;
    return list->name != NULL ? list : NULL;
}

static void offer_commands(begun b)
{
    for (const tutti_command *c = tutti_commands; c->name != NULL; c++)
        if (c->help != NULL)
            offer_word(b, c->name);
    offer_word(b, "help");
    offer_word(b, "--help");
    offer_word(b, "--version");
}

/* Offers the further words of a command; `before`: the word before. */
static void offer_rest(const tutti_command *c, const char *before, const char *word, bool first)
{
    const char *const equals = strchr(word, '=');
    const tutti_option *o =
        before[0] == '-' ? find_option(c, before + 1 + (before[1] == '-')) : NULL;
    char name[64];

    if (o != NULL && wants_value(o))
        offer_values(o, (begun){ word, word });
    else if (strncmp(word, "--", 2) == 0 && equals != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)(equals - word - 2), word + 2);
        if ((o = find_option(c, name)) != NULL)
            offer_values(o, (begun){ word, equals + 1 });
    } else if (word[0] == '-')
        offer_flags(c, word);
    else if (first)
        offer_words(c, (begun){ word, word });
}

int tutti_cli_complete(int argc, char **argv)
{
    const char *const word = argc > 1 ? argv[argc - 1] : "", *const before =
                                                                 argc > 2 ? argv[argc - 2] : "";
    const tutti_command *c = argc > 2 ? command_of(tutti_commands, argv[1]) : NULL;
    const tutti_command *sub =
        c != NULL && c->sub != NULL && argc > 3 ? command_of(c->sub, argv[2]) : NULL;

    if (argc <= 2 || (argc == 3 && strcmp(argv[1], "help") == 0))
        offer_commands((begun){ word, word });
    else if (c != NULL)
        offer_rest(sub != NULL ? sub : c, before, word, argc == 3);
    return EXIT_DONE;
}

/* bash splits a line also at "=", "(" and quotes. So the script splits it again, at blanks only,
   and returns completions without the part that bash considers typed already. */
static const char bash[] =
    "# Completion of tutti for bash: source it, or put it where bash-completion looks for "
    "`tutti`.\n"
    "_tutti()\n"
    "{\n"
    "    local line=${COMP_LINE:0:COMP_POINT} cur=${COMP_WORDS[COMP_CWORD]} word begun found\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && words+=(\"\")\n"
    "    word=${words[-1]#[\\'\\\"]}\n"
    "    begun=${cur#[\\'\\\"]}\n"
    "    [[ $begun == [=:\\(] ]] && begun=\n"
    "    words[-1]=$word\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r found; do\n"
    "        [[ -z $found ]] && continue\n"
    "        found=${found:$((${#word} - ${#begun}))}\n"
    "        [[ $found == *= || ( $word$found == *\\(* && $word$found != *\\) ) ]] || found+=' '\n"
    "        COMPREPLY+=(\"$found\")\n"
    "    done < <(\"${words[0]}\" complete \"${words[@]:1}\" 2>/dev/null)\n"
    "}\n"
    "complete -o nospace -o default -F _tutti tutti\n";

static const char zsh[] = "#compdef tutti\n"
                          "# Completion of tutti for zsh: source it after compinit, or put it into "
                          "a folder of fpath as _tutti.\n"
                          "_tutti()\n"
                          "{\n"
                          "    local -a whole begun\n"
                          "    local found\n"
                          "    for found in ${(f)\"$(${(Q)words[1]} complete "
                          "\"${(@Q)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
                          "        if [[ $found == *= || ( $found == *\\(* && $found != *\\) ) ]]; "
                          "then begun+=(\"$found\")\n"
                          "        else whole+=(\"$found\"); fi\n"
                          "    done\n"
                          "    (($#whole)) && compadd -- $whole\n"
                          "    (($#begun)) && compadd -S '' -- $begun\n"
                          "    (($#whole + $#begun)) || _files\n"
                          "}\n"
                          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _tutti \"$@\"; "
                          "else compdef _tutti tutti; fi\n";

int tutti_cli_completion(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("tutti completion bash|zsh\n\n");
        tutti_cli_wrap(stdout, "", 0,
                       "Prints the script by which the shell completes commands, options and what "
                       "they take: methods, codecs, models and, behind a '(', their options. An "
                       "installation has it where both shells look. Else:");
        printf("\n  source <(tutti completion bash)       # in ~/.bashrc\n"
               "  source <(tutti completion zsh)        # in ~/.zshrc, behind compinit\n");
        return EXIT_DONE;
    }
    if (argc != 2 || (strcmp(argv[1], "bash") != 0 && strcmp(argv[1], "zsh") != 0))
        return tutti_cli_usage("completion", "name the shell: bash or zsh");
    fputs(argv[1][0] == 'b' ? bash : zsh, stdout);
    return EXIT_DONE;
}
