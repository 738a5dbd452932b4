/* cells.c: a table that is printed to the terminal, to a CSV file and to a page. Numbers become
   text when they are added, so all three have the same digits. */
#include <math.h>
#include <string.h>

#include "page_internal.h"

enum { WIDE = 4 }; /* columns that fit on a telephone's screen */

struct tutti_cells {
    const tutti_column *columns;
    int n;
    char **cells;        /* [used]: texts; a RANGE has three */
    size_t used, room;
    char (*anchors)[32]; /* [rows]; "": none */
    size_t at;           /* column of the next cell */
    size_t rows, rows_room;
    bool whole;          /* there was memory for all cells */
};

static size_t cells_of(tutti_cell kind)
{
    return kind == TUTTI_CELL_RANGE ? 3 : 1;
}

tutti_cells *tutti_cells_open(const tutti_column *columns, int n)
{
    tutti_cells *t = tutti_alloc(1, sizeof *t);

    if (t != NULL)
        *t = (tutti_cells){ .columns = columns, .n = n, .whole = true };
    return t;
}

void tutti_cells_close(tutti_cells *t)
{
    for (size_t i = 0; t != NULL && i < t->used; i++)
        tutti_free(t->cells[i]);
    if (t != NULL) {
        tutti_free(t->cells);
        tutti_free(t->anchors);
    }
    tutti_free(t);
}

/* Returns the array with twice the capacity; without memory the old one, and the table is not
   whole. */
static void *grow_cells(tutti_cells *t, void *old, size_t used, size_t *room, size_t size)
{
    const size_t more = *room > 0 ? 2 * *room : 64;
    void *new = tutti_alloc(more, size);

    if (new == NULL) {
        t->whole = false;
        return old;
    }
    if (used > 0)
        memcpy(new, old, used * size);
    tutti_free(old);
    *room = more;
    return new;
}

static void append_cell(tutti_cells *t, const char *text)
{
    if (t->used == t->room)
        t->cells = grow_cells(t, t->cells, t->used, &t->room, sizeof *t->cells);
    if (t->whole && (t->cells[t->used] = tutti_copy_text(text)) != NULL)
        t->used++;
    else
        t->whole = false;
}

static void next(tutti_cells *t)
{
    if (t->at == 0) {
        if (t->rows == t->rows_room)
            t->anchors = grow_cells(t, t->anchors, t->rows, &t->rows_room, sizeof *t->anchors);
        if (t->whole)
            t->anchors[t->rows++][0] = 0;
    }
    t->at = (t->at + 1) % (size_t)t->n;
}

void tutti_figure_print(double value, char *text, size_t bytes)
{
    const double size = fabs(value);
    const int whole = size > 0 ? (int)floor(log10(size)) + 1 : 1;
    const bool exact = size < 1e15 && size == floor(size);

    snprintf(text, bytes, "%.*f", exact || whole >= 4 ? 0 : whole < -8 ? 12 : 4 - whole, value);
}

/* Appends a number with the decimals of its column, so that numbers below each other can be
   compared; in a column without decimals, with four significant digits, also if it is whole. */
static void put_number(tutti_cells *t, const tutti_column *column, double value)
{
    char text[400] = "";
    int decimals = column->decimals;

    if (decimals == 0 && column->kind == TUTTI_CELL_RANGE && value == floor(value) &&
        fabs(value) < 1000) {
        const double size = fabs(value);
        decimals = size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 0;
    }
    if (isfinite(value) && decimals > 0)
        snprintf(text, sizeof text, "%.*f", decimals, value);
    else if (isfinite(value))
        tutti_figure_print(value, text, sizeof text);
    append_cell(t, text);
}

void tutti_cells_text(tutti_cells *t, const char *text)
{
    next(t);
    append_cell(t, text);
}

void tutti_cells_number(tutti_cells *t, double value)
{
    const tutti_column *column = &t->columns[t->at];

    next(t);
    put_number(t, column, value);
}

void tutti_cells_range(tutti_cells *t, const double of[3])
{
    const tutti_column *column = &t->columns[t->at];

    next(t);
    for (int i = 0; i < 3; i++)
        put_number(t, column, of[i]);
}

void tutti_cells_anchor(tutti_cells *t, const char *anchor)
{
    if (t->whole && t->rows > 0)
        snprintf(t->anchors[t->rows - 1], sizeof t->anchors[0], "%s", anchor);
}

bool tutti_cells_whole(const tutti_cells *t)
{
    return t != NULL && t->whole;
}

/* Writes a cell for people to read: 12.3 (11.9 to 13.0), or a dash if it is empty. */
static void shown(char *const *cell, tutti_cell kind, char *text, size_t bytes)
{
    if (cell[0][0] == 0)
        snprintf(text, bytes, "%s", kind == TUTTI_CELL_TEXT ? "" : "-");
    else if (kind != TUTTI_CELL_RANGE ||
             (strcmp(cell[0], cell[1]) == 0 && strcmp(cell[0], cell[2]) == 0))
        snprintf(text, bytes, "%s", cell[0]);
    else
        snprintf(text, bytes, "%s (%s to %s)", cell[0], cell[1],
                 cell[2][0] != 0 ? cell[2] : "never");
}

/* A column without any content is printed in CSV only. */
static bool empty(const tutti_cells *t, int column)
{
    size_t at = 0;

    for (size_t r = 0; r < t->rows; r++)
        for (int c = 0; c < t->n; c++) {
            if (c == column && t->cells[at][0] != 0)
                return false;
            at += cells_of(t->columns[c].kind);
        }
    return true;
}

/* Prints a cell of column c, numbers to the right. width: of the column; -1: it is empty, and left
 * out. */
static void print_cell(const tutti_cells *t, int c, int width, const char *text, FILE *out)
{
    if (width >= 0)
        fprintf(out, "%s%*s", c > 0 ? "  " : "",
                t->columns[c].kind != TUTTI_CELL_TEXT ? width : -width, text);
}

void tutti_cells_print(const tutti_cells *t, FILE *out)
{
    int width[64] = { 0 };
    char text[1400];

    for (int c = 0; c < t->n; c++)
        width[c] = empty(t, c) ? -1 : (int)strlen(t->columns[c].title);
    for (size_t r = 0, at = 0; r < t->rows; r++)
        for (int c = 0; c < t->n; c++) {
            shown(&t->cells[at], t->columns[c].kind, text, sizeof text);
            at += cells_of(t->columns[c].kind);
            if (width[c] >= 0)
                width[c] = (int)strlen(text) > width[c] ? (int)strlen(text) : width[c];
        }
    for (int c = 0; c < t->n; c++)
        print_cell(t, c, width[c], t->columns[c].title, out);
    putc('\n', out);
    for (size_t r = 0, at = 0; r < t->rows; r++) {
        for (int c = 0; c < t->n; c++) {
            shown(&t->cells[at], t->columns[c].kind, text, sizeof text);
            at += cells_of(t->columns[c].kind);
            print_cell(t, c, width[c], text, out);
        }
        putc('\n', out);
    }
}

static void csv_field(FILE *out, const char *text, bool first)
{
    fputs(first ? "" : ",", out);
    if (text[strcspn(text, ",\"\r\n")] == 0) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (; *text != 0; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){ *text, 0 }, out);
    putc('"', out);
}

void tutti_cells_csv(const tutti_cells *t, FILE *out)
{
    static const char *const ends[] = { "", "_least", "_most" };
    size_t at = 0;

    for (int c = 0; c < t->n; c++)
        for (size_t k = 0; k < cells_of(t->columns[c].kind); k++)
            fprintf(out, "%s%s%s", c > 0 || k > 0 ? "," : "", t->columns[c].name, ends[k]);
    putc('\n', out);
    for (size_t r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->n; c++)
            for (size_t k = 0; k < cells_of(t->columns[c].kind); k++)
                csv_field(out, t->cells[at++], c == 0 && k == 0);
        putc('\n', out);
    }
}

void tutti_cells_html(const tutti_cells *t, FILE *out)
{
    char text[1400];
    size_t at = 0;

    int columns = 0;

    for (int c = 0; c < t->n; c++)
        columns += !empty(t, c);
    if (columns > WIDE) /* where a telephone shows some of them only */
        fputs("<p class=\"more\">The table continues to the right.</p>\n", out);
    fputs("<div class=\"wide\"><table>\n<tr>", out);
    for (int c = 0; c < t->n; c++) {
        if (empty(t, c))
            continue;
        fprintf(out, "<th%s>", t->columns[c].kind != TUTTI_CELL_TEXT ? " class=\"n\"" : "");
        tutti_page_say(out, t->columns[c].title);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (size_t r = 0; r < t->rows; r++) {
        fputs("<tr>", out);
        for (int c = 0; c < t->n; c++) {
            const bool link = c == 0 && t->anchors[r][0] != 0;
            char *range;
            shown(&t->cells[at], t->columns[c].kind, text, sizeof text);
            at += cells_of(t->columns[c].kind);
            if (empty(t, c))
                continue;
            range = t->columns[c].kind == TUTTI_CELL_RANGE ? strchr(text, ' ') : NULL;
            fprintf(out, "<td%s>", t->columns[c].kind != TUTTI_CELL_TEXT ? " class=\"n\"" : "");
            if (link)
                fprintf(out, "<a href=\"#%s\">", t->anchors[r]);
            if (range != NULL) { /* it may wrap to the line below where the cell is too narrow */
                *range = 0;
                tutti_page_say(out, text);
                fprintf(out, " <small>%s</small></td>", range + 1);
                continue;
            }
            tutti_page_say(out, text);
            fputs(link ? "</a></td>" : "</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}
