/* settings.h: merges option values from defaults, a file, the environment and flags into one
   struct, and records where each value came from. Used by the command (src/cli/settings.c).

   Precedence: flag > environment > file > default, whatever the order of the calls. Between two
   calls of one origin the later one wins. A value with lower precedence is not stored, but it is
   parsed and checked.

   self: the caller's struct that receives the values. Its TEXT and SPEC members point to the
   table's defaults or to copies; a copy is freed when its option is set again or by
   tutti_settings_close.

   Errors: TUTTI_ERR_USAGE for an unknown name, an invalid value or a file that is refused;
   TUTTI_ERR_IO if a file cannot be read; TUTTI_ERR_MEMORY. After a failed call some of its values
   may be set. */
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

/* Writes the defaults to self. options and self must outlive the settings. After a failure *out is
   NULL. */
tutti_status tutti_settings_open(tutti_settings **out, const tutti_option *options, void *self,
                                 tutti_error *err);
/* s may be NULL. */
void tutti_settings_close(tutti_settings *s);

/* A mapping of option name to scalar: YAML by libyaml, or JSON if the first non-blank byte is '{'
   (jansson). Quotes are optional in YAML. In JSON a TEXT or SPEC option must be a string; any other
   option may be a string or a JSON number or boolean. An empty file sets nothing. Reads the file
   synchronously.

   Refused with file:line and a remedy: nested mappings, lists, aliases, a second document, zero
   bytes, duplicate keys, unknown keys (similar ones listed), missing values (null). Refused with
   the file alone: files over 1 MiB, UTF-16, YAML that is not UTF-8. */
tutti_status tutti_settings_file(tutti_settings *s, const char *path, tutti_error *err);

/* The same with a filter. It is called for each value that is valid and not overridden by a
   stronger origin; false: the value is not stored. where: "run.yaml:3". */
tutti_status tutti_settings_file_filtered(tutti_settings *s, const char *path,
                                          bool (*filter)(void *user, const tutti_option *option,
                                                         const char *value, const char *where),
                                          void *user, tutti_error *err);

/* tutti_settings_file from memory; `path` is for the messages. This is what the fuzz target
   calls. */
tutti_status tutti_settings_text(tutti_settings *s, const char *path, const char *text,
                                 size_t bytes, tutti_error *err);

/* Prefix "TUTTI_": TUTTI_LR_SCHEDULE=... sets lr-schedule. Variables of the prefix that are not
   options are ignored (for example TUTTI_DATA). environment: NULL-terminated, as environ; not NULL.
   Of several variables with one name only the first is read, as by getenv. */
tutti_status tutti_settings_environment(tutti_settings *s, const char *prefix,
                                        char *const *environment, tutti_error *err);

/* Sets an option from the command line. where: the source for messages and tutti_settings_origin,
   as "--batch". value and where are copied. */
tutti_status tutti_settings_flag(tutti_settings *s, const char *name, const char *value,
                                 const char *where, tutti_error *err);

/* Replaces the table's default. It applies while no file, variable or flag sets the option.
   where: as "default of asgd". value and where are copied. */
tutti_status tutti_settings_default(tutti_settings *s, const char *name, const char *value,
                                    const char *where, tutti_error *err);

/* Replaces a value and keeps its origin. The source becomes "OLD and WHERE", or WHERE if there was
   none. value and where are copied. */
tutti_status tutti_settings_complete(tutti_settings *s, const char *name, const char *value,
                                     const char *where, tutti_error *err);

/* The origin of an option's value; TUTTI_FROM_DEFAULT for an unknown name, too. *where (where may
   be NULL): "run.yaml:3", "TUTTI_BATCH", "--batch" or ""; valid until the option is set again or
   the settings are closed. */
tutti_origin tutti_settings_origin(const tutti_settings *s, const char *name, const char **where);
#pragma GCC visibility pop
#endif
