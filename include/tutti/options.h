/* options.h: option tables. A table is used to parse, to validate, to print help, and for `tutti
   methods --json`, `tutti config --explain` and the docs. Specs (`adam(lr=0.001)`), the command's
   flags, files and the environment share the same tables. */
#ifndef TUTTI_OPTIONS_H
#define TUTTI_OPTIONS_H
#include "base.h"
#include <stdio.h>
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ---- */
typedef enum {
    TUTTI_INT,                   /* int64_t */
    TUTTI_REAL,                  /* double */
    TUTTI_BOOL,                  /* bool */
    TUTTI_CHOICE,                /* int: the index */
    TUTTI_TEXT,                  /* const char * */
    TUTTI_SPEC                   /* const char * */
} tutti_option_type;

/* Tables end with {0}; NULL is an empty table.

   when: condition under which the option has an effect: "solver=greedy", "select=randk|blockk",
   "momentum>0", for a text "steps=auto", or "file=none" for an empty one, several joined by '&'.
   NULL: always. Otherwise a spec may give only the default; the sentence names both options.

   reach: an effect of a value other than the default beyond the processes of this machine and the
   run's own folder, as used in sentences after the option's name: "starts programs". Such a value
   is accepted only from the starter of a run and never from a folder, which may be another
   person's. NULL: no such effect; reading a file is not one. */
typedef struct tutti_option {
    /* As in a spec or a file; a flag is "--" + name. Words are joined by '-' in flags, '_' in
       specs. */
    const char *name;
    tutti_option_type type;
    size_t offset;               /* offset of the value in the owner's struct */
    /* INT, REAL: finite, inclusive bounds. CHOICE: initial is the index. BOOL: 0 or 1. */
    double initial, min, max;
    /* TEXT, SPEC: default, never NULL once applied ("" if none). CHOICE: "a|b|c". */
    const char *text;
    const char *help;            /* one line, with unit */
    const char *when, *reach;
} tutti_option;
#define TUTTI_AT(type, member) offsetof(type, member)

/* "int", "real", "bool", "choice", "text", "spec". */
const char *tutti_option_type_name(tutti_option_type type);
void tutti_options_default(const tutti_option *options, void *self);

/* Checks a user-written table before it is used: each option must have a name that is legal in a
   spec, a separate member within the self_bytes of the struct, a default within its bounds, and a
   `when` of options of this table. TUTTI_ERR_STATE with the first one that does not. Opening a
   method, a codec, an optimizer, a model or a tier does this. what: "method 'ddp'". */
tutti_status tutti_options_check(const tutti_option *options, const char *what, size_t self_bytes,
                                 tutti_error *err);

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

/* Parses a list a:b:c of positive reals of at most 1e9, as in TEXT values: returns how many there
   are, and writes as many of the first as fit to values. "" has none. -1: invalid list.
   Independent of the locale. */
int tutti_option_positives(const char *text, double *values, int room);

/* The value as written in a spec (in quotes if need be); returns strlen, as snprintf. Doubles in
   the shortest form that reads back equal. */
int tutti_option_print(const tutti_option *option, const void *self, char *out, size_t bytes);

/* '-' and '_' are equivalent; NULL: none. */
const tutti_option *tutti_option_find(const tutti_option *options, const char *name);

/* "; did you mean 'lr' or 'lrs'?" or "": similar names by edit distance, at most three. names: n
   of them. */
void tutti_suggest(const char *name, const char *const *names, size_t n, char *out, size_t bytes);

/* ---- specs: name, name(), name(arg,...). An arg is a value, in table order, or key=value. A value
   may itself be a spec; lists are a:b:c (TEXT).

   Names are letters, digits, '_', '-' and '.', a letter first. A value may be in double quotes,
   with \" and \\ for those two. It must be if it has blanks at its ends, a comma outside of
   brackets or an unbalanced bracket. White space around tokens is ignored.

   These are errors: positional after keyed, a key given twice, an unknown key (similar ones are
   suggested), an unbalanced bracket, anything after the end, more than 4096 bytes or 16 levels.
   ---- */
typedef struct tutti_spec tutti_spec;
tutti_status tutti_spec_open(tutti_spec **out, const char *text, tutti_error *err); /* allocates */
void tutti_spec_close(tutti_spec *spec);
const char *tutti_spec_name(const tutti_spec *spec);
size_t tutti_spec_count(const tutti_spec *spec); /* args given */

/* The option of the table that arg i, below count, sets, and its value, which lives as long as
   the spec. NULL: it is not in the table. */
const tutti_option *tutti_spec_arg(const tutti_spec *spec, const tutti_option *options, size_t i,
                                   const char **value);

/* Defaults first, then the args; on failure self has some of them. `what`: "method 'ddp'".
   TEXT and SPEC values point into `spec`, which must outlive self. */
tutti_status tutti_spec_apply(const tutti_spec *spec, const char *what,
                              const tutti_option *options, void *self, tutti_error *err);

/* Canonical text "name(key=value,...)" with every option of the table that is not at its default;
   returns strlen, as snprintf. */
int tutti_spec_print(const char *name, const tutti_option *options, const void *self, char *out,
                     size_t bytes);

/* Parses a size in bytes from text of `length` bytes: "4", "64KiB", "512MiB": from 1 B to 1024
   GiB, with at most one unit B, KiB, MiB or GiB. TUTTI_ERR_USAGE: invalid. */
tutti_status tutti_bytes_parse(const char *text, size_t length, size_t *bytes, tutti_error *err);

/* ---- knobs: parameters that change only the speed of a run, which is tuned while it trains
   (steps.h, tutti_tune_declare) ---- */
/* A number from low to high, or one of several choices.

   log: logarithmic scale; low must be above 0.
   multiple: values are multiples of it, within the box. 1: whole numbers. 0: any number.
   choices: names of the values 0, 1, ..., NULL-ended, without an order; low, high, log and
   multiple are then ignored. NULL: it is a number.
   first: the default, which must lie in the box. */
typedef struct tutti_knob {
    const char *name;                    /* pointer kept; used in figures and events */
    double low, high;
    bool log;
    double multiple;
    const char *const *choices;          /* kept */
    double first;
} tutti_knob;
enum { TUTTI_KNOBS_MOST = 6, TUTTI_POINTS_MOST = 200, TUTTI_KNOB_WORDS = 64 };
/* knobs: copied; 1 to TUTTI_KNOBS_MOST.
   points: most points in total, including the default, which is the first; 2 to
   TUTTI_POINTS_MOST.
   drawn: how many of the others are drawn at random before the Gaussian process is used.
   xi: minimum improvement over the best that is sought, in standard deviations of the times
   given. A larger value explores more.
   seed: of the random draws. */
typedef struct tutti_tuner_options {
    const tutti_knob *knobs;
    int n_knobs;
    int points, drawn;
    double xi;
    uint64_t seed;
} tutti_tuner_options;
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
