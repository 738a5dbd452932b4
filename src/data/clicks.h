/* clicks.h: click logs in the format of the Criteo display advertising data (Kaggle 2014,
   Terabyte). A line is a label, 13 integers and 26 categories as 8 hex digits, separated by tabs.
   Any field but the label may be missing. This header has a parser of lines, a generator with known
   probabilities, and the area under the ROC curve. docs/DATA.md has the formulas.

   Included by clicklog.c, which makes a data set of a log, by src/train for the area, by `tutti
   data clicks` and by tests. Implemented in clicks.c. */
#ifndef TUTTI_CLICKS_H
#define TUTTI_CLICKS_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */
enum { TUTTI_CLICKS_INTEGERS = 13, TUTTI_CLICKS_CATEGORIES = 26, TUTTI_CLICKS_LINE_MOST = 600 };
/* A line. */
typedef struct tutti_click {
    uint8_t label;                /* 0, 1 */
    uint64_t has;                 /* bit i: integer i is present; bit 13 + c: category c is */
    int32_t integer[TUTTI_CLICKS_INTEGERS];
    uint32_t category[TUTTI_CLICKS_CATEGORIES];
} tutti_click;

/* A line of a click log, for errors. */
typedef struct tutti_click_place {
    const char *path;
    uint64_t line;
} tutti_click_place;
/* Parses the line that begins at text[0]. bytes: rest of the text, above 0. *used: length of the
   line with its line end, which the last line may lack. path, line (from 1): for messages. */
tutti_status tutti_click_parse(tutti_click *click, const tutti_click_place *place,
                               const uint8_t *text, uint64_t bytes, size_t *used, tutti_error *err);

/* Returns log(1 + x) of integer i; 0 if x is not above 0 or missing. A data set standardises these
   values (data.h). */
float tutti_click_integer(const tutti_click *click, int i);

/* Returns the row that a category is hashed to, in a table of `rows` rows (2 or more): 1 to rows -
   1; 0: the category is missing. Each of the 26 categories has a hash of its own. */
uint32_t tutti_click_row(const tutti_click *click, int category, uint32_t rows);

/* ---- the generator: click k is a function of (options, k) ---- */
typedef struct tutti_click_model {
    uint64_t seed;
    uint64_t values;              /* different values of each category, 1 to 2^32 */
    double zipf;                  /* above 0: value v (0, 1, ...) has a probability in proportion to
                                     (v + 1)^-zipf */
    double spread;                /* approximate standard deviation of the logit over the clicks */
    double bias;                  /* added to the logit */
    double missing;               /* probability that a field is missing, 0 to below 1 */
} tutti_click_model;

/* Draws click k. *p: the probability of label 1, with which its label was drawn. */
void tutti_click_draw(const tutti_click_model *m, uint64_t k, tutti_click *click, double *p);

/* Writes a click as a line with its line end. Returns the length, at most
   TUTTI_CLICKS_LINE_MOST. */
size_t tutti_click_print(const tutti_click *click, char *line);

/* Computes the area under the ROC curve when n clicks are ranked by p. *seen: with the given
   labels; NaN if all are equal. *expected: the expectation over labels drawn with the probabilities
   p; of use only if p are probabilities. Allocates. */
tutti_status tutti_click_auc(const double *p, const uint8_t *labels, size_t n, double *expected,
                             double *seen, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
