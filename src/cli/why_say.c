/* why_say.c: words for what ranks are in, and the diagnosis: who waits for whom. */
#include <stdarg.h>
#include <string.h>

#include "why_internal.h"

#define LONG_NS INT64_C(1000000000) /* a wait of which something is said */

static void add(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static double seconds_since(const why_found *found, int64_t since_ns)
{
    return since_ns < found->now_ns ? (double)(found->now_ns - since_ns) * 1e-9 : 0;
}

/* "0", "0 and 2", "0, 1 and 3": of the ranks r with among[r]. */
static void add_ranks(char *text, size_t bytes, uint64_t among)
{
    int left = 0;

    for (int r = 0; r < TUTTI_ACTIVITY_MEMBERS; r++)
        left += (int)(among >> r & 1);
    add(text, bytes, left == 1 ? "rank " : "ranks ");
    for (int r = 0; r < TUTTI_ACTIVITY_MEMBERS; r++)
        if ((among >> r & 1) != 0)
            add(text, bytes, "%d%s", r, --left > 1 ? ", " : left == 1 ? " and " : "");
}

static const tutti_activity_entry *in_kind(const why_rank *rank, tutti_activity_kind kind)
{
    const tutti_activity_entry *oldest = NULL;

    for (int k = 0; k < rank->view.n_now; k++) {
        const tutti_activity_entry *e = &rank->view.now[k];
        if (e->kind == (uint32_t)kind && (oldest == NULL || e->since_ns < oldest->since_ns))
            oldest = e;
    }
    return oldest;
}

static const tutti_activity_entry *in_call(const why_rank *rank, uint64_t call)
{
    for (int k = 0; k < rank->view.n_now; k++)
        if (rank->view.now[k].kind == TUTTI_ACTIVITY_COLLECTIVE && rank->view.now[k].call == call)
            return &rank->view.now[k];
    return NULL;
}

static const why_rank *rank_of(const why_found *found, int rank)
{
    for (int k = 0; k < found->n; k++)
        if (found->ranks[k].view.about.rank == rank)
            return &found->ranks[k];
    return NULL;
}

static bool is_here(const why_found *found, int rank)
{
    const uint64_t *here = found->ranks[0].view.about.here;

    return rank < TUTTI_ACTIVITY_RANKS && (here[rank / 64] >> rank % 64 & 1) != 0;
}

static const char *of_state(char state)
{
    switch (state) {
    case 'T': return "stopped (SIGSTOP)";
    case 't': return "stopped by a debugger";
    case 'D': return "waiting for a device or a file system (state D)";
    case 'Z':
    case 'X': return "dead, and not reaped by its parent";
    default: return NULL;
    }
}

/* ---- what a rank is in ---- */

static void describe_entry(const tutti_activity_entry *e, char *text, size_t bytes)
{
    switch ((tutti_activity_kind)e->kind) {
    case TUTTI_ACTIVITY_CLIENT:
        add(text, bytes, "%s", e->what);
        if (e->index >= 0)
            add(text, bytes, " of unit %d", e->index);
        break;
    case TUTTI_ACTIVITY_EXCHANGE:
        add(text, bytes, "exchange of piece %d", e->index);
        if (e->of[0] != '\0')
            add(text, bytes, " ('%s' first)", e->of);
        break;
    case TUTTI_ACTIVITY_COLLECTIVE:
        add(text, bytes, "%s %u", e->what, e->number);
        if (e->count > 0)
            add(text, bytes, " of %llu elements", (unsigned long long)e->count);
        break;
    case TUTTI_ACTIVITY_MESSAGE: add(text, bytes, "%s, waits for rank %d", e->what, e->peer); break;
    }
}

void tutti_why_describe(const why_found *found, const why_rank *rank, char *text, size_t bytes,
                        double *seconds)
{
    static const tutti_activity_kind order[] = { TUTTI_ACTIVITY_CLIENT, TUTTI_ACTIVITY_EXCHANGE,
                                                 TUTTI_ACTIVITY_COLLECTIVE,
                                                 TUTTI_ACTIVITY_MESSAGE };

    text[0] = '\0';
    *seconds = 0;
    for (size_t k = 0; k < TUTTI_LENGTH(order); k++) {
        const tutti_activity_entry *e = in_kind(rank, order[k]);
        if (e == NULL || (order[k] == TUTTI_ACTIVITY_MESSAGE &&
                          in_kind(rank, TUTTI_ACTIVITY_COLLECTIVE) != NULL))
            continue;
        add(text, bytes, "%s", text[0] != '\0' ? "; " : "");
        describe_entry(e, text, bytes);
        *seconds = seconds_since(found, e->since_ns); /* of the innermost */
    }
    if (text[0] != '\0')
        return;
    add(text, bytes,
        rank->view.changing > 0 ? "many short calls" : "code of its own, in no call of Tutti");
    if (rank->view.n_events > 0 && rank->view.changing == 0)
        *seconds = seconds_since(found, rank->view.events[rank->view.n_events - 1].ended_ns);
}

/* ---- diagnosis ---- */

/* How many events of a rank are that call, or one of the same number of a group that was made anew
   with an old context. *last: the newest of them. */
static int times(const why_rank *rank, uint64_t call, const tutti_activity_entry **last)
{
    int n = 0;

    for (int k = 0; k < rank->view.n_events; k++)
        if (rank->view.events[k].call == call &&
            rank->view.events[k].kind == TUTTI_ACTIVITY_COLLECTIVE) {
            *last = &rank->view.events[k];
            n++;
        }
    return n;
}

static bool has_all_events(const why_rank *rank)
{
    return rank->view.events_ever == (uint64_t)rank->view.n_events;
}

/* Has a member come to that call, in which `waiter` is? 1: it is in it, or has been; 0: it has not;
   -1: it cannot be known: its events do not reach back to when others entered. */
static int has_come(const why_rank *rank, const why_rank *waiter, const tutti_activity_entry *call)
{
    const tutti_activity_entry *last = NULL, *before = NULL;
    const int ended = times(rank, call->call, &last),
              ended_there = times(waiter, call->call, &before);

    if (in_call(rank, call->call) != NULL)
        return 1;
    if (rank->view.changing > 0)
        return -1;
    if (has_all_events(rank) && has_all_events(waiter))
        return ended > ended_there;
    if (ended > 0 && ended_there == 0)
        return 1;
    if (last != NULL) /* of a call before this one, if it was over when this one began */
        return last->ended_ns <= call->since_ns ? 0 : -1;
    return has_all_events(rank) ||
                   (rank->view.n_events > 0 && rank->view.events[0].since_ns < call->since_ns)
               ? 0
               : -1;
}

/* What is to be said of a rank that others wait for. Returns whether it is certain. */
static bool add_missing(const why_found *found, int rank, char *text, size_t bytes)
{
    const why_rank *of = rank_of(found, rank);
    char doing[WHY_TEXT];
    double seconds;

    if (of == NULL && !is_here(found, rank)) {
        add(text, bytes, "; rank %d is on another host: run `tutti why` there", rank);
        return false;
    }
    if (of == NULL) {
        add(text, bytes, "; no process of this host is rank %d any more", rank);
        return true;
    }
    if (of_state(of->state) != NULL) {
        add(text, bytes, "; its process %ld is %s", of->process, of_state(of->state));
        return true;
    }
    tutti_why_describe(found, of, doing, sizeof doing, &seconds);
    add(text, bytes, "; its process %ld is in %s", of->process, doing);
    if (seconds > 0)
        add(text, bytes, ", for %.1f s", seconds);
    return true;
}

/* The oldest collective that a rank has waited in for long, NULL: none. */
static const tutti_activity_entry *oldest_call(const why_found *found, const why_rank **waiter)
{
    const tutti_activity_entry *oldest = NULL;

    for (int k = 0; k < found->n; k++) {
        const tutti_activity_entry *e = in_kind(&found->ranks[k], TUTTI_ACTIVITY_COLLECTIVE);
        if (e != NULL && found->now_ns - e->since_ns >= LONG_NS &&
            (oldest == NULL || e->since_ns < oldest->since_ns)) {
            oldest = e;
            *waiter = &found->ranks[k];
        }
    }
    return oldest;
}

/* Members of a call, bit r for rank r. */
typedef struct members {
    uint64_t in;                 /* are in it */
    uint64_t out;                /* have not come to it */
    uint64_t unknown;
} members;

static members sort_members(const why_found *found, const why_rank *waiter,
                            const tutti_activity_entry *call)
{
    members of = { 0 };

    for (int r = 0; r < TUTTI_ACTIVITY_MEMBERS; r++) {
        const uint64_t bit = UINT64_C(1) << r;
        const why_rank *rank = rank_of(found, r);
        int come;
        if ((call->members & bit) == 0)
            continue;
        come = rank != NULL ? has_come(rank, waiter, call) : is_here(found, r) ? 0 : -1;
        if (rank != NULL && in_call(rank, call->call) != NULL)
            of.in |= bit;
        else if (come == 0)
            of.out |= bit;
        else if (come < 0)
            of.unknown |= bit;
    }
    return of;
}

/* A process that is stopped while others wait, whatever it was in. */
static bool add_stopped(const why_found *found, char *text, size_t bytes)
{
    bool any = false;

    for (int k = 0; k < found->n; k++) {
        const why_rank *rank = &found->ranks[k];
        if (rank->state != 'T' && rank->state != 't' && rank->state != 'Z')
            continue;
        add(text, bytes, "%s", any ? "; " : "");
        if (rank->view.about.rank >= 0)
            add(text, bytes, "rank %d: its ", rank->view.about.rank);
        add(text, bytes, "process %ld is %s", rank->process, of_state(rank->state));
        any = true;
    }
    return any;
}

static bool diagnose_call(const why_found *found, const members *of,
                          const tutti_activity_entry *call, char *text, size_t bytes)
{
    const uint64_t in = of->in, out = of->out, unknown = of->unknown;
    const double seconds = seconds_since(found, call->since_ns);
    bool certain = true;
    char name[100] = "";

    describe_entry(call, name, sizeof name);
    if (out != 0) {
        add_ranks(text, bytes, out);
        add(text, bytes, " %s not entered %s, in which ", (out & (out - 1)) == 0 ? "has" : "have",
            name);
        add_ranks(text, bytes, in);
        add(text, bytes, " %s for %.1f s", (in & (in - 1)) == 0 ? "has waited" : "have waited",
            seconds);
        for (int r = 0; r < TUTTI_ACTIVITY_MEMBERS; r++)
            if ((out >> r & 1) != 0)
                certain = add_missing(found, r, text, bytes) && certain;
        return certain;
    }
    if (add_stopped(found, text, bytes)) {
        add(text, bytes, "; the others have waited in %s for %.1f s", name, seconds);
        return true;
    }
    add(text, bytes, "%s has lasted for %.1f s", name, seconds);
    if (unknown != 0) {
        add(text, bytes, "; it cannot be seen from here whether it is entered by ");
        add_ranks(text, bytes, unknown);
    } else
        add(text, bytes,
            "; all its ranks of this host have come to it, so a connection or a slow transfer "
            "holds it");
    return false;
}

/* A rank that waits for a message of another one. */
static bool diagnose_message(const why_found *found, char *text, size_t bytes)
{
    for (int k = 0; k < found->n; k++) {
        const why_rank *rank = &found->ranks[k];
        const tutti_activity_entry *e = in_kind(rank, TUTTI_ACTIVITY_MESSAGE);
        const why_rank *peer = e != NULL ? rank_of(found, e->peer) : NULL;
        if (e == NULL || found->now_ns - e->since_ns < LONG_NS ||
            (peer != NULL ? of_state(peer->state) == NULL : !is_here(found, e->peer)))
            continue;
        add(text, bytes, "rank %d has waited for rank %d for %.1f s (%s)", rank->view.about.rank,
            e->peer, seconds_since(found, e->since_ns), e->what);
        return add_missing(found, e->peer, text, bytes);
    }
    return false;
}

/* What members of an elastic run are in that have no world: the one that has been in it longest. */
static void add_members(const why_found *found, char *text, size_t bytes)
{
    const why_rank *oldest = NULL;
    char doing[WHY_TEXT];
    double longest = 0, seconds;
    int n = 0;

    for (int k = 0; k < found->n; k++) {
        if (found->ranks[k].view.about.rank >= 0)
            continue;
        n++;
        tutti_why_describe(found, &found->ranks[k], doing, sizeof doing, &seconds);
        if (oldest == NULL || seconds > longest) {
            oldest = &found->ranks[k];
            longest = seconds;
        }
    }
    if (oldest == NULL)
        return;
    tutti_why_describe(found, oldest, doing, sizeof doing, &seconds);
    add(text, bytes, "%s%d process%s between two epochs of the members; %s%ld is in %s, for %.1f s",
        text[0] != '\0' ? ". " : "", n, n == 1 ? " is" : "es are", n == 1 ? "" : "the slowest, ",
        oldest->process, doing, longest);
}

void tutti_why_diagnose(const why_found *found, char *text, size_t bytes, bool *certain)
{
    const why_rank *waiter = NULL;
    const tutti_activity_entry *call = oldest_call(found, &waiter);

    text[0] = '\0';
    *certain = false;
    if (call != NULL && call->members != 0) {
        const members of = sort_members(found, waiter, call);
        *certain = diagnose_call(found, &of, call, text, bytes);
    } else if (diagnose_message(found, text, bytes) || add_stopped(found, text, bytes))
        *certain = true;
    else if (call != NULL)
        add(text, bytes, "a collective has lasted for %.1f s",
            seconds_since(found, call->since_ns));
    add_members(found, text, bytes);
    if (text[0] == '\0')
        add(text, bytes,
            "no rank of this host has waited in a collective for a second: the run goes on");
    add(text, bytes, ".");
}
