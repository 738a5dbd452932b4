/* clicks.h: click logs in the format of the Criteo display advertising data (Kaggle 2014,
   Terabyte). A line is a label, 13 integers and 26 categories as 8 hex digits, by tabs. Any field
   but the label may be missing. This header has a reader, and a generator with known
   probabilities. docs/DATA.md has the formulas. */
#ifndef TUTTI_CLICKS_H
#define TUTTI_CLICKS_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */
enum { TUTTI_CLICKS_INTEGERS = 13, TUTTI_CLICKS_CATEGORIES = 26, TUTTI_CLICKS_LINE_MOST = 600 };
typedef struct tutti_click {
    uint8_t label;                /* 0, 1 */
    uint64_t has;                 /* bit i: integer i is present; bit 13 + c: category c */
    int32_t integer[TUTTI_CLICKS_INTEGERS];
    uint32_t category[TUTTI_CLICKS_CATEGORIES];
} tutti_click;

/* Parses the line that begins at text[0]; `bytes` (more than 0) are left of the text. *used: the
   line's length with its line end, which the last line may lack. path, line (from 1): for the
   sentence. */
tutti_status tutti_click_parse(tutti_click *click, const char *path, uint64_t line,
                               const uint8_t *text, uint64_t bytes, size_t *used,
                               tutti_error *err);

/* The network's input for integer i: log(1 + x) if x is above 0; 0 for others and missing ones.
   (A data set then standardises them, data.h.) */
float tutti_click_integer(const tutti_click *click, int i);

/* The row of a table of `rows` (2 or more) that a category is hashed to: 1 to rows - 1; 0 if it is
   missing. Different tables hash differently. */
uint32_t tutti_click_row(const tutti_click *click, int category, uint32_t rows);

/* ---- the generator: click k is a function of (options, k) ---- */
typedef struct tutti_click_model {
    uint64_t seed;
    /* Of each category, 1 to 2^32. Value v (0, 1, ...) has probability in proportion to
       (v + 1)^-zipf. */
    uint64_t values;
    double zipf;                  /* above 0 */
    double spread;                /* approximate deviation of the logit over the clicks */
    double bias;                  /* added to the logit */
    double missing;               /* probability that a field is missing, 0 to below 1 */
} tutti_click_model;

/* The click, its true probability of label 1 in *p, and its label drawn with it. */
void tutti_click_draw(const tutti_click_model *m, uint64_t k, tutti_click *click, double *p);

/* Prints it as a line with its line end. Returns the length, at most TUTTI_CLICKS_LINE_MOST. */
size_t tutti_click_print(const tutti_click *click, char *line);

/* The area under the ROC curve of ranking n clicks by their true p: *expected: over labels drawn
   by p, *seen: with the given labels. If all labels are equal it is undefined: NaN. Allocates. */
tutti_status tutti_click_auc(const double *p, const uint8_t *labels, size_t n, double *expected,
                             double *seen, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
