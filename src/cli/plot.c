/* plot.c: draws pictures by gnuplot, a child process that reads a script from us and writes SVG.
   The script contains numbers and constant texts only, never text from a file, since a gnuplot
   script can start programs. page.c puts names into the SVG, in place of ~0~, ~1~, ... Only the
   marks and the drawing of the SVG are used. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_internal.h"

/* The colours can be distinguished on white and on black, by colour-blind readers too. */
const char *tutti_plot_colour(int colour)
{
    static const char *const colours[TUTTI_PLOT_COLOURS] = { "#3b82c4", "#d9772b", "#2a9d6f",
                                                             "#c4508f", "#8a6fd1", "#a98914",
                                                             "#1f9fb5", "#8c7264" };
    return colours[(unsigned)colour % TUTTI_PLOT_COLOURS];
}

static void put_data(FILE *script, const tutti_plot *plot)
{
    for (int k = 0; k < plot->n; k++) {
        const tutti_plot_series *s = &plot->series[k];
        const double *at = plot->by_name ? s->x : s->y;
        fprintf(script, "$s%d << EOD\n", k);
        for (size_t i = 0; i < s->n; i++)
            if (isfinite(s->x[i]) && isfinite(s->y[i])) {
                fprintf(script, "%.9g %.9g", s->x[i], s->y[i]);
                if (s->low != NULL)
                    fprintf(script, " %.9g %.9g", isfinite(s->low[i]) ? s->low[i] : at[i],
                            isfinite(s->high[i]) ? s->high[i] : at[i]);
                putc('\n', script);
            }
        fputs("EOD\n", script);
    }
}

/* Sets the range of x, which begins at 0. Bars need half of their width on either side. */
static void put_range(FILE *script, const tutti_plot *plot)
{
    double most = 0;
    bool bars = false;

    for (int k = 0; k < plot->n; k++) {
        bars = bars || plot->series[k].kind == TUTTI_PLOT_BARS;
        for (size_t i = 0; i < plot->series[k].n; i++)
            most = isfinite(plot->series[k].x[i]) ? fmax(most, plot->series[k].x[i]) : most;
    }
    if (bars)
        fprintf(script, "set xrange [-0.7:%.9g]\n", most + 0.7);
    else if (most > 0)
        fputs("set xrange [0:*]\n", script);
}

/* ---- numbers at the ends of lines ---- */

typedef struct label {
    double x, y;
    int number, colour;
} label;

static int by_height(const void *a, const void *b)
{
    const label *l = a, *m = b;

    return (l->y > m->y) - (l->y < m->y);
}

/* Moves labels up that would overlap; each is a line high. */
static void spread(label *labels, int n, double wide, double high)
{
    qsort(labels, (size_t)n, sizeof *labels, by_height);
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (fabs(labels[i].x - labels[k].x) < 0.05 * wide &&
                labels[i].y < labels[k].y + 0.045 * high)
                labels[i].y = labels[k].y + 0.045 * high;
}

static void put_numbers(FILE *script, const tutti_plot *plot)
{
    label *labels = tutti_alloc((size_t)plot->n + 1, sizeof *labels);
    double left = 0, right = 0, low = INFINITY, high = -INFINITY;
    int n = 0;

    for (int k = 0; k < plot->n && labels != NULL; k++) {
        const tutti_plot_series *s = &plot->series[k];
        for (size_t i = 0; i < s->n; i++)
            if (isfinite(s->x[i]) && isfinite(s->y[i])) {
                left = fmin(left, s->x[i]);
                right = fmax(right, s->x[i]);
                low = fmin(low, s->y[i]);
                high = fmax(high, s->y[i]);
                if (s->number > 0)
                    labels[n] = (label){ s->x[i], s->y[i], s->number, s->colour };
            }
        n += s->number > 0 && labels[n].number == s->number;
    }
    if (labels != NULL && n > 0) {
        fputs("set rmargin 5\n", script);
        spread(labels, n, right - left, plot->from_zero ? high : high - low);
        for (int i = 0; i < n; i++)
            fprintf(
                script,
                "set label '%d' at %.9g,%.9g left offset character 0.6,0 font ',11' tc rgb '%s'\n",
                labels[i].number, labels[i].x, labels[i].y, tutti_plot_colour(labels[i].colour));
    }
    tutti_free(labels);
}

/* ---- the script ---- */

/* Has the series only one point? Then a dot is drawn, since a line would not be visible. */
static bool is_dot(const tutti_plot_series *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += isfinite(s->x[i]) && isfinite(s->y[i]);
    return n == 1;
}

static void put_style(FILE *script, const tutti_plot *plot, const tutti_plot_series *s)
{
    static const char *const dashes[TUTTI_PLOT_DASHED] = { "1", "(12,5)", "(3,4)", "(12,4,3,4)" };
    static const int points[TUTTI_PLOT_DASHED] = { 7, 5, 9, 13 };
    const int sort = s->colour / TUTTI_PLOT_COLOURS % TUTTI_PLOT_DASHED;

    if (s->low != NULL)
        fprintf(script, "1:2:3:4 with %s pt %d ps 0.7 lw 1.6",
                plot->by_name ? "xerrorbars" : "yerrorbars", points[sort]);
    else if (s->kind == TUTTI_PLOT_BARS)
        fputs("1:2 with boxes fs solid noborder", script);
    else if (s->kind == TUTTI_PLOT_POINTS || is_dot(s))
        fprintf(script, "1:2 with points pt %d ps 0.9", points[sort]);
    else if (s->kind == TUTTI_PLOT_DASHES)
        fputs("1:2 with lines lw 1.8 dt 2", script);
    else
        fprintf(script, "1:2 with linespoints lw 1.6 dt %s pt %d ps 0.25", dashes[sort],
                points[sort]);
}

/* Puts the names of series at the axis, from the top. */
static void put_names(FILE *script, const tutti_plot *plot)
{
    size_t longest = 1;

    for (int k = 0; k < plot->n; k++) {
        const size_t length = plot->series[k].name != NULL ? strlen(plot->series[k].name) : 0;
        longest = length > longest ? length : longest;
    }
    longest = longest < TUTTI_PLOT_NAME ? longest : TUTTI_PLOT_NAME;
    fprintf(script, "set lmargin %zu\nset yrange [%d.5:0.5]\nset ytics font ',11' (", longest + 1,
            plot->n);
    for (int k = 0; k < plot->n; k++)
        fprintf(script, "%s'~%d~' %d", k > 0 ? "," : "", k, k + 1);
    fputs(")\n", script);
}

int tutti_plot_high(const tutti_plot *plot)
{
    return plot->high > 0 ? plot->high : TUTTI_PLOT_HIGH;
}

static void put_script(FILE *script, const tutti_plot *plot)
{
    fprintf(
        script,
        "set terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13'\nset encoding utf8\n"
        "set decimalsign '.'\nset border 3\nset tics nomirror out scale 0.5\n"
        "set grid back lt 1 lc rgb 'gray' lw 0.5\nunset key\n"
        "set boxwidth 0.8\nset format '%%g'\nset xlabel '%s'\nset ylabel '%s'\n",
        TUTTI_PLOT_WIDE, tutti_plot_high(plot), plot->x, plot->y);
    if (plot->by_name)
        put_names(script, plot);
    else if (plot->from_zero)
        fputs("set yrange [0:*]\n", script);
    put_range(script, plot);
    put_numbers(script, plot);
    put_data(script, plot);
    fputs("plot", script);
    for (int k = 0; k < plot->n; k++) {
        const tutti_plot_series *s = &plot->series[k];
        fprintf(script, "%s $s%d using ", k > 0 ? "," : "", k);
        put_style(script, plot, s);
        fprintf(script, " lc rgb '%s' notitle", tutti_plot_colour(s->colour));
    }
    putc('\n', script);
}

/* In the child: becomes gnuplot, without the user's settings. in, out: its standard streams. */
static void become_gnuplot(int in, int out, const char *argument)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("LC_ALL", "C.UTF-8", 1);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(nowhere, STDERR_FILENO) >= 0)
        execlp("gnuplot", "gnuplot", "-d", argument, (char *)NULL);
    _exit(127);
}

/* Runs gnuplot with a script and reads all that it prints. *code: its exit code; 127: it is not
   installed. */
static tutti_status run_gnuplot(FILE *script, const char *argument, char **text, int *code,
                                tutti_error *err)
{
    size_t bytes = 0;
    FILE *kept = open_memstream(text, &bytes), *printed = NULL;
    int ends[2] = { -1, -1 }, state = 0;
    char some[4096];
    pid_t child;

    *code = -1;
    if (kept == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a picture");
    fflush(script);
    rewind(script);
    if (pipe2(ends, O_CLOEXEC) == 0 && (child = fork()) >= 0) {
        if (child == 0)
            become_gnuplot(fileno(script), ends[1], argument);
        close(ends[1]);
        printed = fdopen(ends[0], "r");
        for (size_t n; printed != NULL && (n = fread(some, 1, sizeof some, printed)) > 0;)
            fwrite(some, 1, n, kept);
        while (waitpid(child, &state, 0) < 0 && errno == EINTR)
            ;
        *code = WIFEXITED(state) ? WEXITSTATUS(state) : 1;
    } else
        state = errno;
    if (printed != NULL)
        fclose(printed);
    if (fclose(kept) != 0 || *text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a picture");
    return *code >= 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_IO, state, "starting gnuplot, which draws the pictures");
}

tutti_status tutti_plot_check(tutti_error *err)
{
    FILE *nothing = tmpfile();
    char *text = NULL;
    int code = -1;
    tutti_status status = nothing != NULL
                              ? run_gnuplot(nothing, "--version", &text, &code, err)
                              : tutti_fail(err, TUTTI_ERR_IO, errno, "making a temporary file");

    if (nothing != NULL)
        fclose(nothing);
    if (status == TUTTI_OK && (code != 0 || strncmp(text, "gnuplot ", 8) != 0))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "gnuplot, which draws the pictures, cannot be started; install it "
                            "(Debian: gnuplot-nox), or give --pictures off for a page with only "
                            "tables");
    free(text);
    return status;
}

tutti_status tutti_plot_svg(const tutti_plot *plot, char **inside, char **marks, tutti_error *err)
{
    FILE *script = tmpfile();
    char *svg = NULL, *defs, *drawn, *end;
    int code = 0;
    tutti_status status;

    *inside = *marks = NULL;
    if (script == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "making a temporary file for a picture");
    put_script(script, plot);
    status = run_gnuplot(script, "-", &svg, &code, err);
    fclose(script);
    defs = status == TUTTI_OK ? strstr(svg, "<defs>") : NULL;
    drawn = defs != NULL ? strstr(defs, "</defs>") : NULL;
    end = drawn != NULL ? strstr(drawn, "</svg>") : NULL;
    while (end != NULL && end > drawn &&
           strncmp(end, "</g>", 4) != 0) /* that of its canvas, which has an id */
        end--;
    if (status == TUTTI_OK && (code != 0 || end == NULL || end == drawn))
        status = tutti_fail(err, TUTTI_ERR_IO, 0,
                            "gnuplot has drawn no picture that can be read (code %d); give "
                            "--pictures off for a page with only tables",
                            code);
    if (status == TUTTI_OK) {
        drawn += strlen("</defs>");
        *marks = strndup(defs, (size_t)(drawn - defs));
        *inside = strndup(drawn, (size_t)(end - drawn));
        if (*marks == NULL || *inside == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "keeping a picture");
    }
    free(svg);
    return status;
}
