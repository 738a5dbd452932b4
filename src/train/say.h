/* say.h: lines for the user. Index 0 prints, the others do nothing, but for
   tutti_train_say_here. */
#ifndef TUTTI_TRAIN_SAY_H
#define TUTTI_TRAIN_SAY_H
#include "train/train_internal.h"

/* Prints a line. status: as of tutti_train_io.say. */
void tutti_train_say(const tutti_run *run, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same on any worker, of what concerns it alone. */
void tutti_train_say_here(const tutti_run *run, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The fields of a line. Two blanks separate them. */
enum { TUTTI_TRAIN_FIELDS = 8 };
typedef struct tutti_train_fields {
    int n;
    struct {
        int rank;                    /* the field with the largest rank is omitted first */
        char text[64];
    } at[TUTTI_TRAIN_FIELDS];        /* [n] */
} tutti_train_fields;
void tutti_train_add_field(tutti_train_fields *f, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints as many fields as the terminal is wide enough for, and removes the others from *f. */
void tutti_train_say_fields(const tutti_run *run, int status, tutti_train_fields *f);
/* Shows how far an evaluation is: `done` of `of` samples. At most five times a second. */
void tutti_train_report_evaluating(tutti_run *run, const char *what, uint64_t done, uint64_t of);
/* Prints the new events of the engine that the user should know of, such as a codec's risks. */
void tutti_train_say_warnings(tutti_run *run);
#endif
