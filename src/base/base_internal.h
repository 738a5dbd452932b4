/* base_internal.h: what the files of this module share: text for messages, parsing and storing of
   options, limits of control groups. The sections name the file that implements them. No other
   module includes it; tests do. */
#ifndef TUTTI_BASE_INTERNAL_H
#define TUTTI_BASE_INTERNAL_H
#include "base/settings.h"
#include "tutti/base.h"

/* ---- text.c ---- */
/* Untrusted text as a message may show it: at most 120 bytes, then "..."; control characters (below
   U+0020, U+007F to U+009F) are '?'. So no message contains a huge value or an escape sequence of a
   terminal. Use: tutti_base_show(value).text as an argument of one call. show_span reads at most
   120 of the bytes. */
typedef struct { char text[128]; } tutti_base_shown;
tutti_base_shown tutti_base_show(const char *text);
tutti_base_shown tutti_base_show_span(const char *text, size_t bytes);
/* Returns the length of text, which has `bytes` bytes, without a UTF-8 character that is truncated
   at its end: at most three bytes fewer. */
size_t tutti_base_whole_characters(const char *text, size_t bytes);

/* The valid names that are most similar to a misspelt one. */
typedef struct {
    const char *name;            /* the misspelt one; set by the caller, the rest is 0 */
    size_t count;                /* entries of best, 0 to 3 */
    /* The most similar first; of equal distance in the order of the offers. */
    struct { const char *name; size_t bytes; int distance; } best[3];
} tutti_base_near;
/* Adds a candidate if it is similar to near->name and among the best three. candidate: not copied;
   need not have a NUL. */
void tutti_base_near_offer(tutti_base_near *near, const char *candidate, size_t candidate_bytes);
/* Writes "; did you mean 'a', 'b' or 'c'?", or "" if there is no candidate. */
void tutti_base_near_print(const tutti_base_near *near, char *out, size_t bytes);
/* Are the names equal, if '-' and '_' count as equal? */
bool tutti_base_same_name(const char *a, const char *b);

/* ---- numbers.c ---- */
enum { TUTTI_BASE_REAL_BYTES = 32 };
/* Writes the shortest decimal that reads back as the same value: 0.001, 100, 1e-9, 6.02e23, with
   '.' in every locale. Returns its length. */
int tutti_base_print_real(double value, char out[TUTTI_BASE_REAL_BYTES]);
/* Prints a bound of an option as a person would write it: 1e9, and not 9.5367431640625e-7 but
   9.54e-7 (rounded up, so that it is allowed); of a size in MiB with its bytes. */
void tutti_base_print_bound(const tutti_option *option, double value, char *out, size_t bytes);
/* Reads [+-]digits; `huge` if it does not fit: it is a number then, though out of every range. */
bool tutti_base_read_integer(const char *text, int64_t *out, bool *huge);
/* Reads [+-]digits[.digits][e[+-]digits]. false: it is none. */
bool tutti_base_read_real(const char *text, double *out);

/* ---- options.c, option_print.c ---- */
/* The value of an option, by its type. Parsing and storing are separate functions, so that a value
   that is not stored, because another one overrides it, is checked, too. */
typedef union {
    int64_t integer;             /* INT */
    double real;                 /* REAL */
    bool truth;                  /* BOOL */
    int choice;                  /* CHOICE: its index */
    const char *text;            /* TEXT, SPEC: the text that was parsed, not copied */
} tutti_base_value;
/* Parses and checks a value. what: begins the message. TUTTI_ERR_USAGE. */
tutti_status tutti_base_option_parse(const tutti_option *option, const char *what,
                                     const char *value, tutti_base_value *out, tutti_error *err);
/* Returns the condition after the one at `at`, in conditions joined by '&' (tutti_option.when,
   base.h); NULL: there is none. */
const char *tutti_base_next_condition(const char *at);
/* Checks that an option whose value in `self` is not its default has an effect: that its `when`
   holds with the values of the others. To be called once all options are stored.
   TUTTI_ERR_USAGE. */
tutti_status tutti_base_option_has_effect(const tutti_option *options, const tutti_option *option,
                                          const char *what, const void *self, tutti_error *err);
/* Returns the option's default; its value in self. */
tutti_base_value tutti_base_option_initial(const tutti_option *option);
tutti_base_value tutti_base_option_stored(const tutti_option *option, const void *self);
/* Sets *choice to the next one, of `bytes` bytes, of *rest, which is "a|b|c"; false after the
   last. */
bool tutti_base_next_choice(const char **rest, const char **choice, size_t *bytes);
/* Writes a parsed value to self. */
void tutti_base_option_store(const tutti_option *option, const tutti_base_value *value, void *self);
/* Returns TUTTI_ERR_USAGE with "WHAT: unknown KIND 'NAME'" and similar names, or all names if none
   is similar. */
tutti_status tutti_base_option_unknown(const tutti_option *options, const char *what,
                                       const char *kind, const char *name, tutti_error *err);

/* ---- table.c ---- */
/* Is it a valid name of an option or a method, as a spec can contain it? NULL is not. */
bool tutti_base_is_name(const char *text);

/* ---- cgroup.c: the limits of this process' control groups. root: prefix of /proc and /sys; ""
   except in tests. ---- */
int tutti_base_quota_of(const char *root);     /* CPUs, at least 1; INT_MAX: no limit */
size_t tutti_base_memory_of(const char *root); /* bytes; SIZE_MAX: no limit */

/* ---- spec.c ---- */
/* Checks the syntax of a spec, whatever its names and values. Allocates nothing.
   TUTTI_ERR_USAGE. */
tutti_status tutti_base_spec_check(const char *text, tutti_error *err);

/* ---- settings.c, for settings_file.c; settings.h has the contracts ---- */
struct tutti_settings {
    const tutti_option *options;
    void *self;        /* the caller's struct */
    size_t count;      /* of options */
    /* tutti_settings_file_filtered's, while its file is read; else NULL */
    bool (*filter)(void *user, const tutti_option *option, const char *value, const char *where);
    void *filter_user;
    struct tutti_base_setting {
        tutti_origin origin; /* of the value in self */
        char *where;   /* source of the value, owned; NULL: "" */
        char *text;    /* TEXT, SPEC: the copy that self points to, owned; NULL: the table's
                          default */
        size_t line;   /* of the option in the text being read, from 1; 0: not met
                          (settings_file.c) */
    } entries[];       /* [count], in the order of options */
};
/* Checks a value, and stores it unless the present one has a stronger origin. value and where are
   copied. */
tutti_status tutti_base_settings_set(tutti_settings *s, const tutti_option *option,
                                     tutti_origin origin, const char *value, const char *where,
                                     tutti_error *err);
#endif
