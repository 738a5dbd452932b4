/* words.c: converts a configuration to the words of a command. The files of a run have all of its
   settings; a user needs the command that makes them. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "page_internal.h"
#include "base/settings.h"
#include "base/options.h"
#include "collective/world.h"
#include "train/measured.h"

/* Does the option concern only how this process is started? */
static bool of_the_start(const char *name)
{
    static const char *const names[] = { "out", "resume", "overwrite", "meet", "quiet" };

    for (size_t i = 0; i < TUTTI_LENGTH(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Appends "flag", "value" (of a switch "flag") if the value differs from `usual`. The optimizer is
   always appended, since the default depends on the method, and figures depend on it. */
static bool add_option(json_t *words, const tutti_option *o, const tutti_train_config *config,
                       const tutti_train_config *usual)
{
    char flag[80], value[4200], without[4200];
    bool reported = true;

    if (o->type == TUTTI_TEXT || o->type == TUTTI_SPEC) {
        /* as it was given: quotes are for specs */
        snprintf(value, sizeof value, "%s",
                 *(const char *const *)(const void *)((const char *)config + o->offset));
        snprintf(without, sizeof without, "%s",
                 *(const char *const *)(const void *)((const char *)usual + o->offset));
    } else {
        tutti_option_print(o, config, value, sizeof value);
        tutti_option_print(o, usual, without, sizeof without);
    }
    if (strcmp(value, without) == 0 && strcmp(o->name, "optimizer") != 0)
        return true;
    snprintf(flag, sizeof flag, "%s%s", strlen(o->name) == 1 ? "-" : "--", o->name);
    reported = json_array_append_new(words, json_string(flag)) == 0;
    if (o->type == TUTTI_BOOL && o->initial == 0) /* a switch, which takes no value */
        return reported;
    return json_array_append_new(words, json_string(value)) == 0 && reported;
}

/* What a file or a variable gives without an effect is refused as a flag. The directory of the
   results, which lets a run overwrite, is not in `config` here. */
static bool is_void(const char *name, const tutti_train_config *config)
{
    return strcmp(name, "overwrite") != 0 && tutti_cli_is_void(name, config);
}

tutti_status tutti_words_of(const tutti_train_config *config, json_t **words, tutti_error *err)
{
    tutti_train_config usual;
    tutti_settings *settings = NULL;
    tutti_status status = tutti_settings_open(&settings, tutti_train_options, &usual, err);
    bool whole;

    *words = json_array();
    whole = *words != NULL && json_array_append_new(*words, json_string("tutti")) == 0 &&
            json_array_append_new(*words, json_string("train")) == 0;
    usual.method = "";
    usual.n = 1;
    if (tutti_measured_named(config->model)) { /* it has defaults of its own */
        usual.data = "";
        usual.batch = 0;
    }
    if (tutti_world_simulated(config->transport)) /* as `train` sets it where the user has not */
        usual.threads = 1;
    for (const tutti_option *o = tutti_train_options; o->name != NULL && status == TUTTI_OK; o++)
        if (!of_the_start(o->name) && !is_void(o->name, config))
            whole = add_option(*words, o, config, &usual) && whole;
    tutti_settings_close(settings);
    if (status == TUTTI_OK && !whole)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a command");
    if (status != TUTTI_OK) {
        json_decref(*words);
        *words = NULL;
    }
    return status;
}

void tutti_word_print(FILE *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-";

    if (text[0] != 0 && text[strspn(text, plain)] == 0) {
        fputs(text, out);
        return;
    }
    putc('\'', out);
    for (; *text != 0; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){ *text, 0 }, out);
    putc('\'', out);
}

void tutti_words_print(FILE *out, const json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i++) {
        fputs(i > 0 ? " " : "", out);
        tutti_word_print(out, json_string_value(json_array_get(words, i)));
    }
}
