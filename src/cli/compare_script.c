/* compare_script.c: the plan of a comparison of a script:

     tutti compare ddp 'local-sgd(period=8)' -n 4 -- python train.py --method {method} --seed {seed}

   Before "--" are the methods and the options of `tutti run`, behind it the command. In its words
   {method}, {seed}, {codec} and the names of --grid and --vary are replaced, and {{ and }} are
   braces. There is no shell: a word stays a word, whatever a method has in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "base/options.h"

int tutti_compare_script_at(int argc, char **argv)
{
    int at = 1;

    while (at < argc && strcmp(argv[at], "--") != 0)
        at++;
    return at;
}

/* ---- words with names in braces ---- */

/* Writes a word with its names replaced. values: {name: text}. used: gets the names that were
   there, as members; NULL: not wanted. */
static tutti_status replace(FILE *out, const char *word, const json_t *values, json_t *used,
                            tutti_error *err)
{
    for (const char *at = word; *at != 0; at++) {
        const size_t length = *at == '{' ? strcspn(at + 1, "{}") : 0;
        char name[80];
        const json_t *value;
        if ((*at != '{' && *at != '}') || at[1] == *at) {
            putc(*at, out);
            at += *at == '{' || *at == '}';
            continue;
        }
        if (*at == '}' || at[1 + length] != '}' || length >= sizeof name)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the command has '%.120s', in which a brace is alone; write {method} "
                              "for what is to be put in, {{ and }} for braces",
                              word);
        snprintf(name, sizeof name, "%.*s", (int)length, at + 1);
        value = json_object_get(values, name);
        if (value == NULL) {
            const char *names[64], *key;
            char near[160];
            size_t n = 0;
            for (void *i = json_object_iter((json_t *)(uintptr_t)values);
                 i != NULL && n < TUTTI_LENGTH(names);
                 i = json_object_iter_next((json_t *)(uintptr_t)values, i)) {
                key = json_object_iter_key(i);
                names[n++] = key;
            }
            tutti_suggest(name, names, n, near, sizeof near);
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the command has {%.60s}, and nothing has that name%s; {method}, "
                              "{seed}, {codec} and the names of --grid and --vary are put in, and "
                              "{{%.60s}} is text with braces",
                              name, near, name);
        }
        if (used != NULL)
            json_object_set_new(used, name, json_true());
        fputs(json_string_value(value), out);
        at += length + 1;
    }
    return TUTTI_OK;
}

/* Appends the words of the command with their names replaced. words NULL: only checks them. */
static tutti_status append_command(json_t *words, const json_t *command, const json_t *values,
                                   json_t *used, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < json_array_size(command) && status == TUTTI_OK; i++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        if (out != NULL)
            status = replace(out, json_string_value(json_array_get(command, i)), values, used, err);
        if (out == NULL || fclose(out) != 0)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a command");
        if (status == TUTTI_OK && words != NULL &&
            json_array_append_new(words, json_string(text)) != 0)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a command");
        free(text);
    }
    return status;
}

/* Returns {name: text} of a run. */
static json_t *values_of(const tutti_compare_choice *of)
{
    char seed[32];
    json_t *values;

    snprintf(seed, sizeof seed, "%lld", (long long)of->seed);
    values = json_pack("{s:s, s:s, s:s}", "method", of->method, "seed", seed, "codec",
                       of->codec[0] != 0 ? of->codec : "none");
    json_object_update(values, of->condition);
    json_object_update(values, of->point);
    return values;
}

/* ---- one run ---- */

typedef struct script {
    json_t *options;             /* words of `tutti run` before "--", as they were typed */
    json_t *command;             /* words behind it */
} script;

/* Checks words as `tutti run` would. words: "tutti", "run", ... */
static tutti_status check_words(const json_t *words, tutti_error *err)
{
    const size_t n = json_array_size(words) - 1;
    const char **argv = tutti_alloc(n + 1, sizeof *argv);
    tutti_status status;

    if (argv == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "checking a command");
    for (size_t i = 0; i < n; i++)
        argv[i] = json_string_value(json_array_get(words, i + 1));
    status = tutti_cli_run_check((int)n, (char **)(uintptr_t)argv, err);
    tutti_free(argv);
    return status;
}

/* Makes the command of one run. user: script. */
static tutti_status make_words(const void *user, const tutti_compare_choice *of, json_t **words,
                               tutti_error *err)
{
    const script *s = user;
    json_t *values = values_of(of), *value;
    const char *key;
    char word[4200];
    tutti_status status;

    *words = json_pack("[s, s]", "tutti", "run");
    json_array_extend(*words, s->options);
    json_object_foreach(of->condition, key, value)
    {
        if (tutti_option_find(tutti_cli_run_options, key) == NULL ||
            json_string_value(value)[0] == 0)
            continue;
        snprintf(word, sizeof word, "--%s=%s", key, json_string_value(value));
        json_array_append_new(*words, json_string(word));
    }
    json_array_append_new(*words, json_string("--"));
    status = append_command(*words, s->command, values, NULL, err);
    if (status == TUTTI_OK)
        status = check_words(*words, err);
    json_decref(values);
    if (status != TUTTI_OK) {
        json_decref(*words);
        *words = NULL;
    }
    return status;
}

/* ---- what is typed ---- */

/* Refuses an option of `tutti train`, in words of its own. */
static tutti_status refuse_train(const char *word, tutti_error *err)
{
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (strncmp(name, "--", 2) != 0 || tutti_option_find(tutti_cli_run_options, name + 2) != NULL ||
        tutti_option_find(tutti_train_options, name + 2) == NULL)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s is an option of `tutti train`, and this compares a script, which has its "
                      "own: write them behind --; `tutti run --help` lists those that may be "
                      "before it",
                      name);
}

/* Reads the words before "--": options of `tutti run`, and methods. */
static tutti_status read_words(script *s, json_t *methods, int at, char **argv, tutti_error *err)
{
    for (int i = 1; i < at; i++) {
        const int from = i;
        json_t *list = NULL;
        tutti_status status;
        if (argv[i][0] != '-') {
            status = tutti_compare_list("methods", argv[i], ',', false, &list, err);
            json_array_extend(methods, list);
            json_decref(list);
            TUTTI_TRY(status);
            continue;
        }
        TUTTI_TRY(refuse_train(argv[i], err));
        TUTTI_TRY(tutti_cli_run_option(at, argv, &i, err));
        for (int k = from; k <= i; k++)
            json_array_append_new(s->options, json_string(argv[k]));
    }
    return TUTTI_OK;
}

/* Checks the specs of a list. Names that the library does not know are the script's own. note:
   says so. */
static tutti_status check_specs(const char *kind, const json_t *list, bool note, tutti_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        bool known;
        TUTTI_TRY(tutti_compare_check_spec(kind, text, true, &known, err));
        if (!known && note)
            fprintf(stderr, "tutti: note: the library has no %s '%.80s'; the script gets it as a "
                            "name of its own\n",
                    kind, text);
    }
    return TUTTI_OK;
}

static bool is_reserved(const char *name)
{
    return strcmp(name, "method") == 0 || strcmp(name, "seed") == 0 || strcmp(name, "codec") == 0;
}

/* Checks the names of --grid or --vary: the command has each, or it is an option of `tutti run`. */
static tutti_status check_axes(const char *flag, json_t *first, const json_t *others,
                               const json_t *used, tutti_error *err)
{
    const bool vary = strcmp(flag, "vary") == 0;
    const char *key;
    json_t *value;

    json_object_foreach(first, key, value)
    {
        if (is_reserved(key) || json_object_get(others, key) != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "--%s is of '%s', which has a flag of its own or is given twice", flag,
                              key);
        if (json_object_get(used, key) == NULL &&
            !(vary && tutti_option_find(tutti_cli_run_options, key) != NULL))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "--%s is of '%s'; the command has to take it: write {%s} there%s",
                              flag, key, key, vary ? ", or vary an option of `tutti run`" : "");
    }
    return TUTTI_OK;
}

/* Refuses a command that would be the same for different runs. */
static tutti_status check_command(const script *s, const tutti_compare_lists *l, tutti_error *err)
{
    const tutti_compare_choice any = { .method = "",
                                       .codec = "",
                                       .condition = json_array_get(l->conditions, 0),
                                       .point = json_array_get(l->points, 0) };
    const struct { const char *name; size_t n; const char *flag; } needed[] = {
        { "method", 2, "" },
        { "seed", json_array_size(l->seeds), "; or give one seed (--seeds 1)" },
        { "codec", json_array_size(l->codecs), "" },
    };
    json_t *values = values_of(&any), *used = json_object();
    tutti_status status = append_command(NULL, s->command, values, used, err);

    for (size_t i = 0; i < TUTTI_LENGTH(needed) && status == TUTTI_OK; i++)
        if (needed[i].n > 1 && json_object_get(used, needed[i].name) == NULL)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "the command has no {%s}, so that each %s would be the same run; "
                                "write it where the script takes it: --%s {%s}%s",
                                needed[i].name, needed[i].name, needed[i].name, needed[i].name,
                                needed[i].flag);
    if (status == TUTTI_OK && json_array_size(l->codecs) == 1 &&
        strcmp(json_string_value(json_array_get(l->codecs, 0)), "none") != 0 &&
        json_object_get(used, "codec") == NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the command has no {codec}, so --codecs would change nothing; write "
                            "it where the script takes it: --codec {codec}");
    if (status == TUTTI_OK)
        status = check_axes("grid", any.point, any.condition, used, err);
    if (status == TUTTI_OK)
        status = check_axes("vary", any.condition, NULL, used, err);
    json_decref(values);
    json_decref(used);
    return status;
}

static tutti_status read_all(script *s, tutti_compare_lists *l, const tutti_compare_config *c,
                             int argc, char **argv, tutti_error *err)
{
    const int at = tutti_compare_script_at(argc, argv);

    s->options = json_array();
    s->command = json_array();
    l->methods = json_array();
    if (c->methods[0] != 0) {
        json_decref(l->methods);
        TUTTI_TRY(tutti_compare_list("methods", c->methods, ',', false, &l->methods, err));
    }
    for (int i = at + 1; i < argc; i++)
        json_array_append_new(s->command, json_string(argv[i]));
    if (json_array_size(s->command) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no command behind --; write it there: -- python train.py "
                          "--method {method} --seed {seed}");
    TUTTI_TRY(read_words(s, l->methods, at, argv, err));
    if (json_array_size(l->methods) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "nothing to compare; write the methods before --: tutti compare ddp "
                          "local-sgd -n 4 -- COMMAND");
    TUTTI_TRY(tutti_compare_once("methods", l->methods, err));
    if (c->jobs > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "jobs is %lld, but scripts run one by one: each would take the others' "
                          "time; leave it out",
                          (long long)c->jobs);
    TUTTI_TRY(tutti_compare_lists_read(l, c, err));
    TUTTI_TRY(check_command(s, l, err));
    TUTTI_TRY(check_specs("method", l->methods, c->resume[0] == 0 && !c->quiet, err));
    return check_specs("codec", l->codecs, c->resume[0] == 0 && !c->quiet, err);
}

tutti_status tutti_compare_script_plan(const tutti_compare_config *c, int argc, char **argv,
                                       json_t *typed, json_t **plan, tutti_error *err)
{
    script s = { NULL, NULL };
    const tutti_compare_maker maker = { make_words, &s, false };
    tutti_compare_lists l = { 0 };
    tutti_status status = read_all(&s, &l, c, argc, argv, err);

    *plan = NULL;
    if (status == TUTTI_OK)
        status = tutti_compare_fill_plan(c, &l, &maker, typed, plan, err);
    if (status == TUTTI_OK && (json_object_set(*plan, "script", s.command) != 0 ||
                               json_object_set(*plan, "options", s.options) != 0))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a plan");
    tutti_compare_lists_drop(&l);
    json_decref(s.options);
    json_decref(s.command);
    return status;
}

/* ---- resuming ---- */

void tutti_compare_script_resume(FILE *out, const json_t *plan, const char *directory)
{
    const json_t *typed = json_object_get(plan, "command");
    bool behind = false;

    fputs("tutti compare --resume ", out);
    tutti_word_print(out, directory);
    for (size_t i = 2; i < json_array_size(typed); i++) {
        const char *word = json_string_value(json_array_get(typed, i));
        behind = behind || strcmp(word, "--") == 0;
        if (!behind && (strcmp(word, "--out") == 0 || strcmp(word, "--resume") == 0)) {
            i++;
            continue;
        }
        if (!behind && (strncmp(word, "--out=", 6) == 0 || strncmp(word, "--resume=", 9) == 0))
            continue;
        putc(' ', out);
        tutti_word_print(out, word);
    }
}

tutti_status tutti_compare_script_again(const json_t *plan, const json_t *again,
                                        const char *directory, tutti_error *err)
{
    static const char *const members[] = { "rows", "points",  "left_out", "runs",
                                          "target", "script", "options" };
    const char *const was = tutti_history_text(plan, "directory");
    char *text = NULL;
    size_t bytes;
    FILE *out;
    bool same = again != NULL;

    if (again != NULL && strcmp(was, tutti_history_text(again, "directory")) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.300s was begun in %.300s, and its command may mean another file here; "
                          "resume it there",
                          directory, was);
    same = same && strcmp(tutti_history_text(plan, "by"), tutti_history_text(again, "by")) == 0;
    for (size_t i = 0; i < TUTTI_LENGTH(members) && same; i++)
        same = json_equal(json_object_get(plan, members[i]), json_object_get(again, members[i]));
    if (same)
        return TUTTI_OK;
    out = open_memstream(&text, &bytes);
    if (out != NULL) {
        tutti_compare_script_resume(out, plan, directory);
        fclose(out);
    }
    tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s %s: %.700s",
               again == NULL ? "this comparison is of a script, and a command counts only when it "
                               "is given again"
                             : "--resume continues a comparison as it was planned, and these words "
                               "make other runs; it was begun as",
               again == NULL ? "behind --resume" : "this", text != NULL ? text : "");
    free(text);
    return TUTTI_ERR_USAGE;
}
