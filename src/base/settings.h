/* settings.h: the values of one table of options (base.h) with the origin of each.

   Precedence: flag > environment > file > default, whatever the order of the calls below; of
   equal origins the later call. A value that a stronger origin hides is still checked. TEXT and
   SPEC members of self point to copies that live until their option is set again or the settings
   are closed. After a failed call some of its values may be set. */
#ifndef TUTTI_BASE_SETTINGS_H
#define TUTTI_BASE_SETTINGS_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef enum {
    TUTTI_FROM_DEFAULT,
    TUTTI_FROM_FILE,
    TUTTI_FROM_ENVIRONMENT,
    TUTTI_FROM_FLAG
} tutti_origin;
typedef struct tutti_settings tutti_settings;

/* Writes the defaults to self. The pointers self and options are kept. */
tutti_status tutti_settings_open(tutti_settings **out, const tutti_option *options, void *self,
                                 tutti_error *err);
void tutti_settings_close(tutti_settings *s);

/* A mapping of option name to scalar: YAML by libyaml, or JSON if the first non-blank byte is '{'
   (jansson). Quotes are optional in YAML; in JSON text must be a string, other values may be. An
   empty file sets nothing. Blocks on the file.

   Refused with file:line and a remedy: nested mappings, lists, duplicate keys, unknown keys
   (similar ones listed), missing values (null), files over 1 MiB. */
tutti_status tutti_settings_file(tutti_settings *s, const char *path, tutti_error *err);

/* The same, but filter is called before each value is set. where: "run.yaml:3". If it returns
   false the value is not set. */
tutti_status tutti_settings_file_filtered(tutti_settings *s, const char *path,
                                          bool (*filter)(void *user, const tutti_option *option,
                                                         const char *value, const char *where),
                                          void *user, tutti_error *err);

/* The same from memory; `path` is for the messages. This is what the fuzz target calls. */
tutti_status tutti_settings_text(tutti_settings *s, const char *path, const char *text,
                                 size_t bytes, tutti_error *err);

/* Prefix "TUTTI_": TUTTI_LR_SCHEDULE=... sets lr-schedule. Variables of the prefix that are not
   options are ignored (for example TUTTI_DATA). `environment` as environ. */
tutti_status tutti_settings_environment(tutti_settings *s, const char *prefix,
                                        char *const *environment, tutti_error *err);

/* where: "--batch"; copied. */
tutti_status tutti_settings_flag(tutti_settings *s, const char *name, const char *value,
                                 const char *where, tutti_error *err);

/* Sets another default than the table's, with its source, "default of asgd". It applies where no
   origin gives a value. Copied. */
tutti_status tutti_settings_default(tutti_settings *s, const char *name, const char *value,
                                    const char *where, tutti_error *err);

/* Completes a value that an origin has given: it becomes `value`, and its source becomes the old
   one "and" `where`. Copied. */
tutti_status tutti_settings_complete(tutti_settings *s, const char *name, const char *value,
                                     const char *where, tutti_error *err);

/* *where: "run.yaml:3", "TUTTI_BATCH", "--batch", "". */
tutti_origin tutti_settings_origin(const tutti_settings *s, const char *name, const char **where);
#pragma GCC visibility pop
#endif
