/* page_internal.h: the parts of the pages of `tutti report` and `tutti compare`: runs read from
   their files, tables, pictures, pages. Included by report.c, compare_internal.h and the files that
   implement it; each section is named after one of them. */
#ifndef TUTTI_CLI_PAGE_INTERNAL_H
#define TUTTI_CLI_PAGE_INTERNAL_H
#include "cli_internal.h"

/* ---- history.c: a run, read from its directory ---- */

/* A line of metrics.jsonl: a report (with a train_loss) or an evaluation (with a test_loss, or
   other figures that a script has logged). A figure that the line does not have is NAN. */
typedef struct tutti_moment {
    double step, samples;
    double seconds, bytes;           /* since the run began; bytes: sent by all ranks */
    double train_loss, test_loss;
    double accuracy;                 /* 0 to 1 */
    double waited;                   /* seconds, sum over workers, since the previous report */
    json_t *figures;                 /* the line, if it has figures of an evaluation; else NULL */
} tutti_moment;
/* The x axis of a picture of moments. */
typedef struct tutti_over_axis {
    const char *title;               /* "MB sent by all" */
    const char *words;               /* "bytes": what a sentence calls it */
    size_t offset;                   /* of the member of tutti_moment */
    double unit;                     /* by which the member is divided */
} tutti_over_axis;
enum { TUTTI_OVER = 3 };
extern const tutti_over_axis tutti_over[TUTTI_OVER]; /* time, steps, bytes */
/* Returns where a moment is on that axis. */
double tutti_moment_at(const tutti_moment *m, const tutti_over_axis *axis);
typedef struct tutti_history {
    json_t *config;                  /* object */
    json_t *summary;                 /* object; NULL: the run has not ended */
    tutti_moment *moments;           /* [n], in the order of the file */
    size_t n;
} tutti_history;
/* Reads config.json, metrics.jsonl and, if there is one, summary.json of a run's directory. A last
   line without its newline is ignored, since its writer was interrupted. What a script's moments
   lack of bytes is on the line through the moments around them, by steps. TUTTI_ERR_USAGE: there is
   no run. TUTTI_ERR_CORRUPT: a file is malformed; the sentence names the line. */
tutti_status tutti_history_open(tutti_history *h, tutti_runtime *rt, const char *directory,
                                tutti_error *err);
void tutti_history_close(tutti_history *h);
/* Returns the names of the evaluations' figures, as members of an object. json_decref it. */
json_t *tutti_history_figures(const tutti_history *h);
/* Returns a number of the object; NAN: it has none of that name. */
double tutti_history_number(const json_t *object, const char *name);
/* Returns a text of the object, which lives as long as the object; "": it has none of that name. */
const char *tutti_history_text(const json_t *object, const char *name);
/* Reads a file of at most 64 MiB. *text: a 0 follows its *bytes bytes; tutti_free it. */
tutti_status tutti_history_read(tutti_runtime *rt, const char *path, char **text, size_t *bytes,
                                tutti_error *err);

/* ---- words.c: commands that can be typed ---- */

/* Sets *words to the command that makes this configuration, an array of texts: "tutti", "train",
   "--model", "mlp", ... It has the options that differ from the defaults of `tutti train`, also
   those that the method has set, and always the optimizer. json_decref it; NULL after a failure. */
tutti_status tutti_words_of(const tutti_train_config *config, json_t **words, tutti_error *err);
/* Prints words with blanks between them, quoted for a shell. */
void tutti_words_print(FILE *out, const json_t *words);

/* ---- cells.c: a table that is printed as text, as CSV and as HTML ---- */

/* A table. Each number is converted to text once, so that it has the same digits everywhere. */
typedef struct tutti_cells tutti_cells;
typedef enum {
    TUTTI_CELL_TEXT,
    TUTTI_CELL_NUMBER,
    TUTTI_CELL_RANGE             /* median, least and most; in CSV three columns */
} tutti_cell;
typedef struct tutti_column {
    const char *name;            /* in CSV */
    const char *title;           /* elsewhere */
    tutti_cell kind;
    int decimals;                /* of its numbers; 0: four significant digits */
} tutti_column;
/* Returns a table without rows; NULL: no memory. columns: [n], kept. */
tutti_cells *tutti_cells_open(const tutti_column *columns, int n);
void tutti_cells_close(tutti_cells *t);
/* Each sets the next cell, row by row. NAN: the cell is empty. */
void tutti_cells_text(tutti_cells *t, const char *text);
void tutti_cells_number(tutti_cells *t, double value);
void tutti_cells_range(tutti_cells *t, const double of[3]);
/* Makes the first cell of the last row a link to that anchor of the page. */
void tutti_cells_anchor(tutti_cells *t, const char *anchor);
/* Was there memory for all cells? */
bool tutti_cells_whole(const tutti_cells *t);
void tutti_cells_print(const tutti_cells *t, FILE *out);
void tutti_cells_csv(const tutti_cells *t, FILE *out);
void tutti_cells_html(const tutti_cells *t, FILE *out);
/* Writes value with four significant digits, a whole number with all digits; without an
   exponent. */
void tutti_figure_print(double value, char *text, size_t bytes);

/* ---- plot.c: pictures, drawn by gnuplot ---- */

typedef enum {
    TUTTI_PLOT_LINE,
    TUTTI_PLOT_DASHES,
    TUTTI_PLOT_POINTS,
    TUTTI_PLOT_BARS
} tutti_plot_kind;
typedef struct tutti_plot_series {
    tutti_plot_kind kind;
    int colour;                  /* 0, 1, ...; from TUTTI_PLOT_COLOURS on colours are repeated, with
                                    other dashes */
    size_t n;
    const double *x, *y;         /* [n]; a point with a NAN is skipped, and the line continues */
    const double *low, *high;    /* [n]: range of y (by_name: of x) at each point; NULL: none */
    const char *name;            /* any text, shown when the reader points at the series; NULL:
                                    none */
    int number;                  /* printed at the end of the line; 0: none */
} tutti_plot_series;
/* Bars of different series at the same x cover each other, so the tallest comes first. */
typedef struct tutti_plot {
    const char *x, *y;           /* titles of the axes: constants without quotes */
    bool from_zero;              /* the y axis begins at 0 */
    bool by_name;                /* series k has y = k + 1 from the top, and its name at the axis */
    const tutti_plot_series *series; /* [n] */
    int n;
    int high;                    /* height of the picture; 0: TUTTI_PLOT_HIGH */
} tutti_plot;
enum { TUTTI_PLOT_COLOURS = 8, TUTTI_PLOT_DASHED = 4 }; /* kinds of dashes, solid first */
/* Returns a colour such as "#3b82c4", for any number. */
const char *tutti_plot_colour(int colour);
/* Checks that gnuplot is installed. TUTTI_ERR_USAGE: it is not. Blocks. */
tutti_status tutti_plot_check(tutti_error *err);
enum {
    TUTTI_PLOT_WIDE = 460,       /* width of a picture */
    TUTTI_PLOT_HIGH = 310,
    TUTTI_PLOT_NAME = 24         /* most letters of a name at an axis */
};
/* Draws a picture. *inside: content of an SVG element of TUTTI_PLOT_WIDE x tutti_plot_high(), in
   which ~0~, ~1~, ... stand for the names of the series. *marks: the definitions (defs) that it
   refers to, the same for all pictures. free() both. Blocks. */
tutti_status tutti_plot_svg(const tutti_plot *plot, char **inside, char **marks, tutti_error *err);

int tutti_plot_high(const tutti_plot *plot); /* height of the picture */

/* ---- page.c ---- */

/* A page of HTML that is being written. */
typedef struct tutti_page {
    FILE *out;                   /* where its content is printed to */
    char *text;                  /* [bytes]: what was printed, after a flush; free() */
    size_t bytes;
    bool pictures;               /* draw pictures */
    bool marked;                 /* the marks of pictures are in the page */
    int figures;                 /* figures so far */
} tutti_page;
/* Begins a page. */
tutti_status tutti_page_open(tutti_page *p, bool pictures, const char *title, const char *subtitle,
                             tutti_error *err);
/* Ends the page, writes DIRECTORY/name, and frees the page in any case. */
tutti_status tutti_page_write(tutti_page *p, tutti_runtime *rt, const char *directory,
                              const char *name, tutti_error *err);
/* Frees a page that is not to be written. */
void tutti_page_drop(tutti_page *p);
/* Prints text, with the characters escaped that are markup in HTML. */
void tutti_page_say(FILE *out, const char *text);
/* Begin and end a grid of figures, in which nothing else is printed. */
void tutti_page_figures_begin(tutti_page *p);
void tutti_page_figures_end(tutti_page *p);
/* Draws a figure. Omitted if it has no points, or without p->pictures. command: anchor of the
   command that made it; NULL: none. */
tutti_status tutti_page_figure(tutti_page *p, const tutti_plot *plot, const char *caption,
                               const char *command, tutti_error *err);
/* Prints an entry of the legend of the figures that follow. number: as of a series. */
void tutti_page_key(tutti_page *p, int colour, bool dashed, int number, const char *text);
/* Prints a command, with a title and an anchor to which figures refer. */
void tutti_page_command(tutti_page *p, const char *anchor, const char *title, const json_t *words);
#endif
