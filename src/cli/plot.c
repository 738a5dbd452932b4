/* plot.c: pictures by gnuplot, a child that reads a script of ours and writes SVG. It gets numbers
   and our own words only, never text from a file: a gnuplot script can start programs. What the
   lines are stands in the page's legend. Of its SVG the marks and the drawing are taken. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_internal.h"

/* To be told apart on white and on black, by those too who see few colours. */
const char *tutti_plot_colour(int colour)
{
    static const char *const colours[TUTTI_PLOT_COLOURS] = { "#3b82c4", "#d9772b", "#2a9d6f", "#c4508f",
                                                             "#8a6fd1", "#a98914", "#1f9fb5", "#8c7264" };
    return colours[(unsigned)colour % TUTTI_PLOT_COLOURS];
}

static void put_data(FILE *script, const tutti_plot *plot)
{
    for (int k = 0; k < plot->n; k++) {
        const tutti_plot_series *s = &plot->series[k];
        fprintf(script, "$s%d << EOD\n", k);
        for (size_t i = 0; i < s->n; i++)
            if (isfinite(s->x[i]) && isfinite(s->y[i])) {
                fprintf(script, "%.9g %.9g", s->x[i], s->y[i]);
                if (s->low != NULL)
                    fprintf(script, " %.9g %.9g", isfinite(s->low[i]) ? s->low[i] : s->y[i],
                            isfinite(s->high[i]) ? s->high[i] : s->y[i]);
                putc('\n', script);
            }
        fputs("EOD\n", script);
    }
}

/* From 0 on, as no axis of ours begins elsewhere; bars need half of their width beside them. */
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

static void put_script(FILE *script, const tutti_plot *plot)
{
    static const char *const kinds[] = { [TUTTI_PLOT_LINE] = "1:2 with linespoints lw 1.6 pt 7 ps 0.25",
                                         [TUTTI_PLOT_DASHES] = "1:2 with lines lw 1.8 dt 2",
                                         [TUTTI_PLOT_POINTS] = "1:2 with points pt 7 ps 0.9",
                                         [TUTTI_PLOT_BARS] = "1:2 with boxes fs solid noborder" };

    fprintf(script,
            "set terminal svg size %d,%d dynamic font 'sans-serif,13'\nset encoding utf8\nset decimalsign '.'\n"
            "set border 3\nset tics nomirror out scale 0.5\nset grid back lt 1 lc rgb 'gray' lw 0.5\nunset key\n"
            "set boxwidth 0.8\nset format '%%g'\nset xlabel '%s'\nset ylabel '%s'\n",
            TUTTI_PLOT_WIDE, TUTTI_PLOT_HIGH, plot->x, plot->y);
    if (plot->from_zero)
        fputs("set yrange [0:*]\n", script);
    put_range(script, plot);
    put_data(script, plot);
    fputs("plot", script);
    for (int k = 0; k < plot->n; k++) {
        const tutti_plot_series *s = &plot->series[k];
        fprintf(script, "%s $s%d using %s lc rgb '%s' notitle", k > 0 ? "," : "", k,
                s->low != NULL ? "1:2:3:4 with yerrorbars pt 7 ps 0.7 lw 1.6" : kinds[s->kind],
                tutti_plot_colour(s->colour));
    }
    putc('\n', script);
}

/* gnuplot as it is without anybody's settings; its standard streams. */
static void become_gnuplot(int in, int out, const char *argument)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("LC_ALL", "C.UTF-8", 1);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0)
        execlp("gnuplot", "gnuplot", "-d", argument, (char *)NULL);
    _exit(127);
}

/* Starts it with a script and reads all that it prints; *code: how it ended, 127: it is not
   there. */
static tutti_status run_gnuplot(FILE *script, const char *argument, char **text, int *code, tutti_error *err)
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
    return *code >= 0 ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_IO, state, "starting gnuplot, which draws the pictures");
}

tutti_status tutti_plot_check(tutti_error *err)
{
    FILE *nothing = tmpfile();
    char *text = NULL;
    int code = -1;
    tutti_status status = nothing != NULL ? run_gnuplot(nothing, "--version", &text, &code, err)
                                          : tutti_fail(err, TUTTI_ERR_IO, errno, "making a temporary file");

    if (nothing != NULL)
        fclose(nothing);
    if (status == TUTTI_OK && (code != 0 || strncmp(text, "gnuplot ", 8) != 0))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "gnuplot, which draws the pictures, cannot be started; install it (Debian: gnuplot-nox), "
                            "or say --pictures off for a page with tables alone");
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
    while (end != NULL && end > drawn && strncmp(end, "</g>", 4) != 0) /* that of its canvas, which has an id */
        end--;
    if (status == TUTTI_OK && (code != 0 || end == NULL || end == drawn))
        status = tutti_fail(err, TUTTI_ERR_IO, 0,
                            "gnuplot has drawn no picture that can be read (code %d); "
                            "say --pictures off for a page with tables alone",
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
