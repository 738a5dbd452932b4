/* page_internal.h: what the pages of `tutti report` and `tutti compare` are made of: runs read
   back from their files, tables with the same content in three places, pictures, the page
   itself. */
#ifndef TUTTI_CLI_PAGE_INTERNAL_H
#define TUTTI_CLI_PAGE_INTERNAL_H
#include "cli_internal.h"

/* ---- history.c: a run, read back from its directory ---- */

/* A line of metrics.jsonl: a report (train_loss) or an evaluation (test_loss). waited: by all
   workers since the previous report. NAN: not reported. */
typedef struct tutti_moment {
    double step, samples, seconds, bytes, train_loss, test_loss, accuracy, waited;
} tutti_moment;
/* The x axis of a picture of moments: its title, its word in a sentence, its unit. */
typedef struct tutti_over_axis {
    const char *title, *words;
    size_t offset;
    double unit;
} tutti_over_axis;
enum { TUTTI_OVER = 3 };
extern const tutti_over_axis tutti_over[TUTTI_OVER]; /* time, steps, bytes */
double tutti_moment_at(const tutti_moment *m, const tutti_over_axis *axis);
typedef struct tutti_history {
    json_t *config, *summary;        /* objects; summary is NULL where the run has not ended */
    tutti_moment *moments;           /* in the order of the file */
    size_t n;
} tutti_history;
/* DIR's config.json, metrics.jsonl and, if it is there, summary.json. A last line without its
   newline is ignored: its writer was interrupted. TUTTI_ERR_USAGE: there is no run.
   TUTTI_ERR_CORRUPT, with the line: what is there is no such file. */
tutti_status tutti_history_open(tutti_history *h, tutti_runtime *rt, const char *directory,
                                tutti_error *err);
void tutti_history_close(tutti_history *h);
/* A number of the object, NAN where it has none. */
double tutti_history_number(const json_t *object, const char *name);
const char *tutti_history_text(const json_t *object, const char *name); /* "" where it has none */
/* A file of at most 64 MiB, with a 0 appended; tutti_free it. */
tutti_status tutti_history_read(tutti_runtime *rt, const char *path, char **text, size_t *bytes,
                                tutti_error *err);

/* ---- words.c: commands that can be typed ---- */

/* The words of `tutti train` that make this configuration: "--model", "mlp", ...: what differs
   from the defaults, independent of the environment in which they are typed, and the optimizer.
   They include the method's own defaults. A JSON array of strings; NULL: no memory. */
tutti_status tutti_words_of(const tutti_train_config *config, json_t **words, tutti_error *err);
/* Words as a shell reads them, blanks between. */
void tutti_words_print(FILE *out, const json_t *words);

/* ---- cells.c: one table, written as text, as CSV and into a page ---- */

/* Each figure is made text once, so that it reads the same everywhere. */
typedef struct tutti_cells tutti_cells;
typedef enum {
    TUTTI_CELL_TEXT,
    TUTTI_CELL_NUMBER,
    TUTTI_CELL_RANGE /* three numbers: middle, least, most; CSV has a column each */
} tutti_cell;
typedef struct tutti_column {
    const char *name, *title;    /* in CSV; elsewhere */
    tutti_cell kind;
    int decimals;                /* of its numbers; 0: four digits that count */
} tutti_column;
/* keeps columns. NULL: no memory. */
tutti_cells *tutti_cells_open(const tutti_column *columns, int n);
void tutti_cells_close(tutti_cells *t);
/* The next cell, row by row. NAN: there is none, an empty field in CSV. */
void tutti_cells_text(tutti_cells *t, const char *text);
void tutti_cells_number(tutti_cells *t, double value);
void tutti_cells_range(tutti_cells *t, const double of[3]);
/* anchor: what the last row's first cell leads to in a page. */
void tutti_cells_anchor(tutti_cells *t, const char *anchor);
/* Was there memory for all of it? */
bool tutti_cells_whole(const tutti_cells *t);
void tutti_cells_print(const tutti_cells *t, FILE *out);
void tutti_cells_csv(const tutti_cells *t, FILE *out);
void tutti_cells_html(const tutti_cells *t, FILE *out);
/* Four digits that count, all of a whole number; no exponent. */
void tutti_figure_print(double value, char *text, size_t bytes);

/* ---- plot.c: pictures by gnuplot ---- */

typedef enum {
    TUTTI_PLOT_LINE,
    TUTTI_PLOT_DASHES,
    TUTTI_PLOT_POINTS,
    TUTTI_PLOT_BARS
} tutti_plot_kind;
typedef struct tutti_plot_series {
    tutti_plot_kind kind;
    int colour;                  /* of tutti_plot_colour; beyond them lines have other dashes */
    size_t n;
    const double *x, *y;         /* n; a point with a NAN is skipped, and the line continues */
    const double *low, *high;    /* n: points with a range round y (by_name: x); NULL: none */
    const char *name;            /* any text, shown when the reader points at it; NULL: none */
    int number;                  /* stands at the end of the line; 0: none does */
} tutti_plot_series;
/* Bars are drawn in their order from 0 on: of a stack the tallest comes first. */
typedef struct tutti_plot {
    const char *x, *y;           /* of the axes: words of ours, without quotes */
    bool from_zero;
    bool by_name;                /* y is 1, 2, ... of the series from the top, named at the axis */
    const tutti_plot_series *series;
    int n;
    int high;                    /* of the picture; 0: TUTTI_PLOT_HIGH */
} tutti_plot;
enum { TUTTI_PLOT_COLOURS = 8, TUTTI_PLOT_DASHED = 4 }; /* sorts of lines, solid ones first */
const char *tutti_plot_colour(int colour); /* "#3b82c4"; any number */
/* Is gnuplot there? The sentence of TUTTI_ERR_USAGE tells the user what to do. Blocks. */
tutti_status tutti_plot_check(tutti_error *err);
/* The inside of an SVG of TUTTI_PLOT_WIDE x tutti_plot_high(), and the marks (defs) that it refers
   to, the same in all pictures. Names stand in it as ~0~, ~1~, ... of the series. free() both.
   Blocks. */
enum {
    TUTTI_PLOT_WIDE = 460,
    TUTTI_PLOT_HIGH = 310,
    TUTTI_PLOT_NAME = 24         /* letters of a name at an axis */
};
tutti_status tutti_plot_svg(const tutti_plot *plot, char **inside, char **marks, tutti_error *err);

int tutti_plot_high(const tutti_plot *plot);

/* ---- page.c ---- */

typedef struct tutti_page {
    FILE *out;
    char *text;
    size_t bytes;
    bool pictures, marked;
    int figures;
} tutti_page;
tutti_status tutti_page_open(tutti_page *p, bool pictures, const char *title, const char *subtitle,
                             tutti_error *err);
/* Ends it and writes DIRECTORY/name; closes it in any case. */
tutti_status tutti_page_write(tutti_page *p, tutti_runtime *rt, const char *directory,
                              const char *name, tutti_error *err);
void tutti_page_drop(tutti_page *p); /* of a page that is not to be written */
/* Writes text with the characters that HTML would read as markup escaped. */
void tutti_page_say(FILE *out, const char *text);
/* Sections of figures are grids: between begin and end come figures only. */
void tutti_page_figures_begin(tutti_page *p);
void tutti_page_figures_end(tutti_page *p);
/* A figure with nothing to show is omitted, as all are without pictures. command: the anchor of
   the command that made it. */
tutti_status tutti_page_figure(tutti_page *p, const tutti_plot *plot, const char *caption,
                               const char *command, tutti_error *err);
/* A word of the legend of the figures that follow. number: as of a series. */
void tutti_page_key(tutti_page *p, int colour, bool dashed, int number, const char *text);
void tutti_page_command(tutti_page *p, const char *anchor, const char *title, const json_t *words);
#endif
