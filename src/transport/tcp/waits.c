/* waits.c: reports which ranks have not joined the meeting place yet (tutti_tcp_report_missing),
   where rank 0 serves it. Where a launcher of Tutti serves it, the launcher reports them by host
   (src/launch/hosts.c). */
#include <stdio.h>
#include <string.h>
#include "tcp_internal.h"

enum { SHOWN = 12 }; /* most groups of ranks in one report */

typedef struct words {
    char text[400];
    size_t used;                 /* bytes of text, without the NUL */
    int shown;                   /* groups so far; those after SHOWN are counted only */
} words;

/* Appends ranks first to last, on one host. */
static void append_range(words *w, int first, int last, const char *host)
{
    const size_t room = sizeof w->text - w->used;
    char range[64];

    if (w->shown++ >= SHOWN)
        return;
    snprintf(range, sizeof range, first == last ? "%d" : "%d to %d", first, last);
    w->used += (size_t)snprintf(w->text + w->used, room, "%s%s%s%.64s", w->shown > 1 ? ", " : "",
                                range, host[0] != '\0' ? " on " : "", host);
    if (w->used >= sizeof w->text)
        w->used = sizeof w->text - 1;
}

/* Lists the ranks that are missing, or those that are not, as groups of consecutive ranks of one
   host. */
static void list_ranks(const tutti_meet *m, int size, bool missing, words *w)
{
    int next;

    *w = (words){ .used = 0 };
    for (int r = 0; r < size; r = next) {
        const tutti_meet_rank *one = tutti_meet_rank_of(m, r);
        next = r + 1;
        if ((one->state == TUTTI_MEET_ABSENT) != missing)
            continue;
        while (next < size &&
               (tutti_meet_rank_of(m, next)->state == TUTTI_MEET_ABSENT) == missing &&
               strcmp(tutti_meet_rank_of(m, next)->host_name, one->host_name) == 0)
            next++;
        append_range(w, r, next - 1, one->host_name);
    }
    if (w->shown > SHOWN)
        snprintf(w->text + w->used, sizeof w->text - w->used, " and others");
}

void tutti_tcp_report_missing(tcp_endpoint *e)
{
    const int64_t now = tutti_now_ns(e->rt);
    words missing, here;
    char line[sizeof missing.text + sizeof here.text + 200];

    if (e->waits == NULL || now < e->report_ns || tutti_meet_complete(e->meet) ||
        tutti_meet_missing(e->meet, NULL, 0) == 0)
        return;
    e->report_ns = now + TCP_REPORT_AGAIN;
    list_ranks(e->meet, e->size, true, &missing);
    list_ranks(e->meet, e->size, false, &here);
    snprintf(line, sizeof line,
             "waiting for ranks that have not come to the meeting place: %s of %d%s%s",
             missing.text, e->size, here.used > 0 ? "; here are: " : "", here.text);
    e->waits(e->waits_user, line);
}
