/* base_internal.h: what the files of this module share: text for sentences, and the two halves of
   setting an option. */
#ifndef TUTTI_BASE_INTERNAL_H
#define TUTTI_BASE_INTERNAL_H
#include "base/settings.h"
#include "tutti/base.h"

/* ---- text.c ---- */
/* Untrusted text made fit for a sentence: truncated at 120 bytes ("..." added), control characters
   (below U+0020, U+007F to U+009F) as '?', so that neither a huge value nor a terminal's escape
   sequence comes out of a message. At most 120 bytes of it are read by tutti_base_show_span.
   Used as tutti_base_show(value).text within one call. */
typedef struct { char text[128]; } tutti_base_shown;
tutti_base_shown tutti_base_show(const char *text);
tutti_base_shown tutti_base_show_span(const char *text, size_t bytes);
/* The length of text (`bytes`) without a UTF-8 character that is cut off at its end: at most three
   bytes fewer. */
size_t tutti_base_whole_characters(const char *text, size_t bytes);

/* Keeps the three nearest of the names that are offered; names need not end with 0. */
typedef struct {
    const char *name;
    size_t count;
    /* nearest first; equals in the order offered */
    struct { const char *name; size_t bytes; int distance; } best[3];
} tutti_base_near;
void tutti_base_near_offer(tutti_base_near *near, const char *candidate, size_t candidate_bytes);
/* "; did you mean 'a', 'b' or 'c'?" or "" */
void tutti_base_near_print(const tutti_base_near *near, char *out, size_t bytes);
bool tutti_base_same_name(const char *a, const char *b); /* '-' and '_' count as equal */

/* ---- options.c ---- */
enum { TUTTI_BASE_REAL_BYTES = 32 };
/* The shortest decimal that reads back equal: 0.001, 100, 1e-9, 6.02e23. No locale. Gives
   strlen. */
int tutti_base_print_real(double value, char out[TUTTI_BASE_REAL_BYTES]);

/* Parsing apart from storing, so that a value which another one overrides is checked all the
   same. */
typedef union {
    int64_t integer;
    double real;
    bool truth;
    int choice;
    const char *text;
} tutti_base_value;
tutti_status tutti_base_option_parse(const tutti_option *option, const char *what,
                                     const char *value, tutti_base_value *out, tutti_error *err);
/* In conditions joined by '&' (base.h, when), the one after `at`; NULL: there is none. */
const char *tutti_base_condition_behind(const char *at);
/* Once all of a spec's are stored: has this one, if it is not what it is
   by default, an effect among them? */
tutti_status tutti_base_option_has_effect(const tutti_option *options, const tutti_option *option,
                                          const char *what, const void *self, tutti_error *err);
void tutti_base_option_store(const tutti_option *option, const tutti_base_value *value, void *self);
/* Fails with "WHAT: unknown KIND 'NAME'" and near names, or all names where none is near. */
tutti_status tutti_base_option_unknown(const tutti_option *options, const char *what,
                                       const char *kind, const char *name, tutti_error *err);

/* ---- table.c ---- */
bool tutti_base_is_name(const char *text); /* of an option, a method: one that a spec can
                                              contain */

/* ---- cgroup.c: the limits as files below `root` have them ("": this machine's) ---- */
int tutti_base_quota_of(const char *root);
size_t tutti_base_memory_of(const char *root); /* SIZE_MAX: none */

/* ---- spec.c ---- */
/* the form alone; allocates nothing */
tutti_status tutti_base_spec_check(const char *text, tutti_error *err);

/* ---- settings.c, for settings_file.c ---- */
struct tutti_settings {
    const tutti_option *options;
    void *self;
    size_t count;
    /* of the file that is being read; NULL: none */
    bool (*filter)(void *user, const tutti_option *option, const char *value, const char *where);
    void *filter_user;
    struct tutti_base_setting {
        tutti_origin origin;
        char *where;   /* owned; NULL: "" */
        char *text;    /* owned; TEXT and SPEC, what self points to; NULL: the table's default */
        size_t line;   /* in the text that is being read, 0: not met; settings_file.c only */
    } entries[];
};
/* value is copied. Checks always, writes unless a stronger origin has spoken. */
tutti_status tutti_base_settings_set(tutti_settings *s, const tutti_option *option,
                                     tutti_origin origin, const char *value, const char *where,
                                     tutti_error *err);
#endif
