/* screen.c: the terminal: its width, lines that replace each other, text that is wrapped. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli_internal.h"

int tutti_cli_columns(int fd)
{
    const char *given = getenv("COLUMNS");
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return isatty(fd) && given != NULL && atoi(given) > 0 ? atoi(given) : 0;
}

bool tutti_screen_replaces(void)
{
    const char *kind = getenv("TERM");

    return isatty(STDOUT_FILENO) && (kind == NULL || strcmp(kind, "dumb") != 0);
}

int tutti_screen_columns(void *user)
{
    const tutti_screen *s = user;
    const int columns = s->terminal ? tutti_cli_columns(STDOUT_FILENO) : 0;

    return columns > 1 ? columns - 1
                       /* in its last column a cursor is neither in this line nor in the next */
                       : columns;
}

void tutti_screen_say(void *user, int status, const char *line)
{
    tutti_screen *s = user;
    const int columns = status != 0 ? tutti_screen_columns(s) : 0;

    if (status == 3) {
        tutti_screen_end(s);
        fflush(stdout);
        fprintf(stderr, "tutti: %s\n", line);
        return;
    }
    if (!s->terminal && status == 2)
        return;
    if (!s->terminal)
        puts(line);
    else if (status == 0)
        printf("\r\033[K%s\n", line);
    else
        printf("\r\033[K%.*s", columns > 0 ? columns : (int)strlen(line), line);
    s->open = s->terminal && status != 0;
    tutti_cli_flush(NULL);
}

void tutti_screen_end(tutti_screen *s)
{
    if (s->open)
        putchar('\n');
    s->open = false;
}

int tutti_cli_page_width(void)
{
    const int columns = tutti_cli_columns(STDOUT_FILENO);

    /* longer lines are hard to follow */
    return columns == 0 ? 80 : columns < 40 ? 40 : columns > 120 ? 120 : columns;
}

void tutti_cli_wrap(FILE *out, const char *lead, int indent, const char *text)
{
    const int width = tutti_cli_page_width();
    int at = (int)strlen(lead);
    bool first = true; /* of its line */

    fputs(lead, out);
    if (at > 0 && at + 1 > indent) {
        putc('\n', out);
        at = 0;
    }
    for (; at < indent; at++)
        putc(' ', out);
    while (*(text += strspn(text, " ")) != 0) {
        const int word = (int)strcspn(text, " ");
        if (!first && at + 1 + word > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", word, text);
        at += word + !first;
        first = false;
        text += word;
    }
    putc('\n', out);
}
