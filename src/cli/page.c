/* page.c: writes a page as one HTML file, which contains its style and pictures and loads nothing
   from elsewhere. It follows the reader's choice of light or dark, and adapts to the width of the
   screen: pictures are side by side where they fit, and a table that is too wide scrolls by
   itself. It has no scripts. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page_internal.h"
#include "record/files.h"

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#1d2329;--soft:#5c6670;--line:#d5dae0;--ground:#fff;--box:#f4f6f8;--shade:#8a95a0}"
    "\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa5b0;--line:#3a424b;--ground:#"
    "14181c;"
    "--box:#1e242a;--shade:#5d6873}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:1560px;padding:16px;background:var(--ground);color:var(--ink);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:.3em 0 0}h2{font-size:1.15rem;margin:1.6em 0 .4em}p{margin:.4em "
    "0;max-width:60em}\n"
    "a{color:inherit}.soft{color:var(--soft)}\n"
    ".grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr)"
    ")}\n"
    "figure{margin:0;padding:8px;background:var(--box);border-radius:6px;min-width:0}\n"
    "figcaption{font-size:.87rem;color:var(--soft)}\n"
    "svg{display:block;width:100%;height:auto}svg.marks{position:absolute;width:0;height:0}\n"
    "svg [color=black]{color:var(--ink)}svg [stroke=black]{stroke:var(--ink)}svg "
    "[fill=black]{fill:var(--ink)}\n"
    "svg [stroke=gray]{stroke:var(--line)}\n"
    ".keys{display:flex;flex-wrap:wrap;gap:4px 16px;margin:.5em 0;padding:0;list-style:none}\n"
    ".keys b{display:inline-block;width:22px;border-top:3px solid "
    "var(--c);vertical-align:middle;margin-right:6px}\n"
    ".keys b.dashed{border-top-style:dashed}.keys b.dotted{border-top-style:dotted}"
    ".keys b.double{border-top:5px double var(--c)}.keys i{font-style:normal;color:var(--soft)}\n"
    ".series{pointer-events:visiblePainted}.series:hover path{stroke-width:3.5px}"
    "svg:has(.series:hover) .series:not(:hover){opacity:.18}\n"
    ".wide{overflow-x:auto;background:linear-gradient(to right,var(--ground) 30%,transparent) "
    "left/48px 100%,"
    "linear-gradient(to left,var(--ground) 30%,transparent) right/48px 100%,"
    "linear-gradient(to right,var(--shade),transparent) left/16px 100%,"
    "linear-gradient(to left,var(--shade),transparent) right/16px 100%;background-repeat:no-repeat;"
    "background-attachment:local,local,scroll,scroll}\n"
    ".more{display:none;color:var(--soft);font-size:.87rem}@media(max-width:720px){.more{display:"
    "block}}\n"
    "table{border-collapse:collapse;font-size:.9rem;margin:.4em 0}\n"
    "th,td{padding:3px 8px 3px 0;text-align:left;border-bottom:1px solid "
    "var(--line);vertical-align:top}\n"
    "th{font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,small{white-space:nowrap}small{color:var(--soft)}\n"
    "pre{background:var(--box);padding:8px;border-radius:6px;white-space:pre-wrap;overflow-wrap:"
    "anywhere;"
    "font-size:.85rem;margin:.3em 0}\n"
    ":target{outline:2px solid #3b82c4;outline-offset:2px}\n";

void tutti_page_say(FILE *out, const char *text)
{
    for (; *text != 0; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            putc(*text, out);
        }
}

tutti_status tutti_page_open(tutti_page *p, bool pictures, const char *title, const char *subtitle,
                             tutti_error *err)
{
    *p = (tutti_page){ .pictures = pictures };
    p->out = open_memstream(&p->text, &p->bytes);
    if (p->out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a page");
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          p->out);
    tutti_page_say(p->out, title);
    fprintf(p->out, "</title>\n<style>\n%s</style>\n<h1>", style);
    tutti_page_say(p->out, title);
    fputs("</h1>\n<p class=\"soft\">", p->out);
    tutti_page_say(p->out, subtitle);
    fputs("</p>\n", p->out);
    return TUTTI_OK;
}

void tutti_page_drop(tutti_page *p)
{
    if (p->out != NULL)
        fclose(p->out);
    free(p->text);
    *p = (tutti_page){ 0 };
}

tutti_status tutti_page_write(tutti_page *p, tutti_runtime *rt, const char *directory,
                              const char *name, tutti_error *err)
{
    bool whole;
    tutti_status status;

    fprintf(p->out, "<p class=\"soft\">Tutti %s</p>\n</html>\n", tutti_version());
    whole = !ferror(p->out);
    whole = fclose(p->out) == 0 && whole;
    p->out = NULL;
    status = whole ? tutti_record_write(rt, directory, name, p->text, p->bytes, err)
                   : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making the page %s", name);
    tutti_page_drop(p);
    return status;
}

void tutti_page_figures_begin(tutti_page *p)
{
    fputs(p->pictures ? "<div class=\"grid\">\n" : "", p->out);
}

void tutti_page_figures_end(tutti_page *p)
{
    fputs(p->pictures ? "</div>\n" : "", p->out);
}

static bool shows_something(const tutti_plot *plot)
{
    for (int k = 0; k < plot->n; k++)
        for (size_t i = 0; i < plot->series[k].n; i++)
            if (isfinite(plot->series[k].x[i]) && isfinite(plot->series[k].y[i]))
                return true;
    return false;
}

/* Prints a name, shortened to TUTTI_PLOT_NAME characters. */
static void put_name(tutti_page *p, const char *name)
{
    char shown[4 * TUTTI_PLOT_NAME + 8];
    size_t length = 0, letters = 0;
    const size_t most = strlen(name) > TUTTI_PLOT_NAME ? TUTTI_PLOT_NAME - 1 : TUTTI_PLOT_NAME;

    for (; name[length] != 0; length++) {
        letters += ((unsigned char)name[length] & 0xc0) != 0x80;
        if (letters > most || length == 4 * TUTTI_PLOT_NAME)
            break;
    }
    snprintf(shown, sizeof shown, "%.*s%s", (int)length, name,
             name[length] != 0 ? "\xe2\x80\xa6" : "");
    tutti_page_say(p->out, shown);
}

/* Prints text of an SVG, with the names of series in place of ~0~, ~1~, ... */
static void put_text(tutti_page *p, const tutti_plot *plot, const char *from, const char *end)
{
    while (from < end) {
        char *behind = NULL;
        const long k = *from == '~' ? strtol(from + 1, &behind, 10) : -1;
        if (k < 0 || k >= plot->n || *behind != '~' || plot->series[k].name == NULL) {
            putc(*from++, p->out);
            continue;
        }
        put_name(p, plot->series[k].name);
        from = behind + 1;
    }
}

/* Prints the drawing of a picture. Ids must be unique in a page, so those that gnuplot gives to
   groups in every picture are removed. The group of a series gets the name of the series as its
   title, which the browser shows when the reader points at it. */
static void put_drawing(tutti_page *p, const tutti_plot *plot, const char *from)
{
    static const char group[] = "<g id=\"gnuplot_plot_";

    for (const char *named; (named = strstr(from, "<g id=\"")) != NULL;) {
        const bool is_series = strncmp(named, group, strlen(group)) == 0;
        const long k = is_series ? strtol(named + strlen(group), NULL, 10) - 1 : -1;
        const char *close = strchr(named, '>'),
                   *title = close != NULL ? strstr(close, "</title>") : NULL;
        put_text(p, plot, from, named);
        if (close == NULL) {
            from = named + strlen(named);
            break;
        }
        fputs(is_series ? "<g class=\"series\">" : "<g>", p->out);
        from = close + 1;
        if (!is_series || title == NULL)
            continue;
        from = title + strlen("</title>");
        if (k >= 0 && k < plot->n && plot->series[k].name != NULL) {
            fputs("<title>", p->out);
            tutti_page_say(p->out, plot->series[k].name);
            fputs("</title>", p->out);
        }
    }
    put_text(p, plot, from, from + strlen(from));
}

tutti_status tutti_page_figure(tutti_page *p, const tutti_plot *plot, const char *caption,
                               const char *command, tutti_error *err)
{
    char *inside, *marks;
    tutti_status status;

    if (!p->pictures || !shows_something(plot))
        return TUTTI_OK;
    status = tutti_plot_svg(plot, &inside, &marks, err);
    if (status == TUTTI_OK) {
        p->figures++;
        fprintf(p->out, "<figure id=\"figure-%d\">", p->figures);
        if (!p->marked)
            fprintf(p->out,
                    "<svg class=\"marks\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" "
                    "aria-hidden=\"true\">%s"
                    "</svg>\n",
                    marks);
        p->marked = true;
        fprintf(
            p->out,
            "<svg viewBox=\"0 0 %d %d\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" "
            "aria-label=\"",
            TUTTI_PLOT_WIDE, tutti_plot_high(plot));
        tutti_page_say(p->out, caption);
        fputs("\">", p->out);
        put_drawing(p, plot, inside);
        fputs("</svg>\n<figcaption>", p->out);
        tutti_page_say(p->out, caption);
        fprintf(p->out, " <a href=\"#%s\">command</a></figcaption></figure>\n", command);
    }
    free(inside);
    free(marks);
    return status;
}

void tutti_page_key(tutti_page *p, int colour, bool dashed, int number, const char *text)
{
    static const char *const sorts[TUTTI_PLOT_DASHED] = { "", "dashed", "dotted", "double" };
    const char *sort = dashed ? "dashed" : sorts[colour / TUTTI_PLOT_COLOURS % TUTTI_PLOT_DASHED];

    fprintf(p->out, "<li><b%s%s%s style=\"--c:%s\"></b>", sort[0] != 0 ? " class=\"" : "", sort,
            sort[0] != 0 ? "\"" : "", tutti_plot_colour(colour));
    if (number > 0)
        fprintf(p->out, "<i>%d</i> ", number);
    tutti_page_say(p->out, text);
    fputs("</li>\n", p->out);
}

void tutti_page_command(tutti_page *p, const char *anchor, const char *title, const json_t *words)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *plain = open_memstream(&text, &bytes);

    fprintf(p->out, "<div id=\"%s\"><p class=\"soft\">", anchor);
    tutti_page_say(p->out, title);
    fputs("</p><pre>", p->out);
    if (plain != NULL) {
        tutti_words_print(plain, words);
        fclose(plain);
        tutti_page_say(p->out, text != NULL ? text : "");
    }
    fputs("</pre></div>\n", p->out);
    free(text);
}
