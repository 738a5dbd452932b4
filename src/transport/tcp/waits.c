/* waits.c: which ranks have not joined yet at the meeting place that rank 0 serves, as text for a
   person. Where a launcher of Tutti serves the meeting place, the launcher reports it, by host
   (hosts.c). */
#include <stdio.h>
#include <string.h>
#include "tcp_internal.h"

enum { SHOWN = 12 }; /* groups of ranks in one text; a person does not read more */

typedef struct words {
    char text[400];
    size_t used;
    int shown;
} words;

/* Appends ranks first to last, on one host. */
static void append_range(words *w, int first, int last, const char *host)
{
    const size_t room = sizeof w->text - w->used;
    char range[64];

    if (w->shown++ >= SHOWN)
        return;
    snprintf(range, sizeof range, first == last ? "%d" : "%d to %d", first, last);
    w->used += (size_t)snprintf(w->text + w->used, room, "%s%s%s%.64s", w->shown > 1 ? ", " : "", range,
                                host[0] != '\0' ? " on " : "", host);
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
        while (next < size && (tutti_meet_rank_of(m, next)->state == TUTTI_MEET_ABSENT) == missing &&
               strcmp(tutti_meet_rank_of(m, next)->host_name, one->host_name) == 0)
            next++;
        append_range(w, r, next - 1, one->host_name);
    }
    if (w->shown > SHOWN)
        snprintf(w->text + w->used, sizeof w->text - w->used, " and others");
}

void tutti_tcp_say_missing(tcp_endpoint *e)
{
    const int64_t now = tutti_now_ns(e->rt);
    words missing, here;
    char line[sizeof missing.text + sizeof here.text + 200];

    if (e->waits == NULL || now < e->say_ns || tutti_meet_complete(e->meet) ||
        tutti_meet_missing(e->meet, NULL, 0) == 0)
        return;
    e->say_ns = now + TCP_SAY_AGAIN;
    list_ranks(e->meet, e->size, true, &missing);
    list_ranks(e->meet, e->size, false, &here);
    snprintf(line, sizeof line, "waiting for ranks that have not come to the meeting place: %s of %d%s%s", missing.text,
             e->size, here.used > 0 ? "; here are: " : "", here.text);
    e->waits(e->waits_user, line);
}
