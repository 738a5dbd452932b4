/* options.h: parts of option tables and specs that no plug-in needs: conditions, printing, single
   arguments, sizes in bytes. Implemented by options.c, option_print.c, table.c, spec.c and text.c.
   Included by the modules that show or check tables. */
#ifndef TUTTI_BASE_OPTIONS_H
#define TUTTI_BASE_OPTIONS_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* "int", "real", "bool", "choice", "text", "spec". */
const char *tutti_option_type_name(tutti_option_type type);

/* Is `when` a valid condition for the table's rows? NULL is. */
bool tutti_option_is_condition(const tutti_option *options, const char *when);

/* Does the condition, which must be valid, hold for these values? NULL: yes. */
bool tutti_option_holds(const tutti_option *options, const char *when, const void *self);

/* Parses one value and writes it; a refused one writes nothing. The sentence has `what`, the
   option's name, the value and what is allowed. Independent of the locale.
     - BOOL, and a CHOICE that has on and off: true|on|yes|1 or false|off|no|0 in any case.
     - Numbers: 12, 1e-3. "64k", " 1", "0x10" and "inf" are invalid.
     - TEXT, SPEC: keeps the pointer `value`. SPEC values are checked for form (name, arguments,
       balanced brackets). "" is valid where it is the default. */
tutti_status tutti_option_set(const tutti_option *option, const char *what, const char *value,
                              void *self, tutti_error *err);

/* The value as written in a spec (in quotes if need be); returns strlen, as snprintf. Doubles in
   the shortest form that reads back equal. */
int tutti_option_print(const tutti_option *option, const void *self, char *out, size_t bytes);

size_t tutti_spec_count(const tutti_spec *spec); /* args given */

/* The option of the table that arg i, below count, sets, and its value, which lives as long as
   the spec. NULL: it is not in the table. */
const tutti_option *tutti_spec_arg(const tutti_spec *spec, const tutti_option *options, size_t i,
                                   const char **value);

/* Canonical text "name(key=value,...)" with every option of the table that is not at its default;
   returns strlen, as snprintf. */
int tutti_spec_print(const char *name, const tutti_option *options, const void *self, char *out,
                     size_t bytes);

/* Parses a size in bytes from text of `length` bytes: "4", "64KiB", "512MiB": from 1 B to 1024
   GiB, with at most one unit B, KiB, MiB or GiB. TUTTI_ERR_USAGE: invalid. */
tutti_status tutti_bytes_parse(const char *text, size_t length, size_t *bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
