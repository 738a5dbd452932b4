/* groups_internal.h: what the files of the group generator share; groups.h is its door. groups.c
   has the line and what starts, groups_plan.c who is planned with whom, groups_verdict.c losses. */
#ifndef TUTTI_GOSSIP_GROUPS_INTERNAL_H
#define TUTTI_GOSSIP_GROUPS_INTERNAL_H
#include "groups.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

/* a member of a group that has started */
enum { TO_JOIN = 1, RUNS, WELL, SPOILT, OUT };

typedef struct tutti_groups_entry {
    struct tutti_groups_entry *next;
    int64_t id;
    bool started, kept, undone;  /* kept: a member was told already that it counts; undone: that it
                                    does not */
    int64_t since_ns;            /* since when somebody waits in it */
    int64_t go_ns;               /* when it started */
    int n;
    int *member;                 /* n, ascending */
    int *state;                  /* n */
    int *blame;                  /* n: of SPOILT */
} tutti_groups_entry;

typedef struct tutti_groups_peer {
    bool asks, leaves;           /* it waits for an answer to a request */
    bool says;                   /* it waits for a verdict */
    int64_t about;               /* on that tutti_groups_entry */
    bool gone, lost, absent;     /* it has left the phase; is not there any more; has not come */
    bool shunned;                /* another, which is there as well, cannot reach it */
    tutti_groups_entry *in;                   /* was told of it, and it is not over */
    int64_t asked_ns;
    int64_t takes_ns, reduces_ns;             /* what a request takes it, and of that the P-Reduce;
                                                 0: not known */
    int64_t last;                /* the last group that it was told of */
    bool kept;                   /* and that it counts */
    int64_t undone;              /* the last that it was told does not count; 0: none */
} tutti_groups_peer;

struct tutti_groups {
    tutti_groups_setup o;
    tutti_groups_peer *w;
    tutti_groups_entry *line, **end;          /* planned and started, by plan */
    int64_t number, before;      /* of the last group; before the plan that is being made */
    bool apart;
    int *pick, *deal, *taken;    /* scratch: workers each */
    int64_t *asked;              /* workers: requests of each */
    int64_t usual_ns;            /* what a request takes the worker in the middle; 0: not known */
    int64_t *sorted;             /* scratch: workers */
    tutti_groups_figures figures;
};

/* ---- groups.c ---- */
/* A group at the end of the line; NULL: no memory. */
tutti_groups_entry *tutti_groups_append(tutti_groups *g, const int *member, int n, int64_t id);
void tutti_groups_take_out(tutti_groups *g, tutti_groups_entry *p);
/* The index of member v; -1: it is none. */
int tutti_groups_place(const tutti_groups_entry *p, int v);
/* The first group that still waits for v; NULL: none. */
tutti_groups_entry *tutti_groups_planned(const tutti_groups *g, int v);
/* Answers what v has asked. p: the group that it is told of, or NULL. */
tutti_status tutti_groups_tell(tutti_groups *g, int v, tutti_groups_word word,
                               const tutti_groups_entry *p, tutti_error *err);
bool tutti_groups_is_free(const tutti_groups *g, int v);
/* It leaves all that has not started. */
void tutti_groups_forget(tutti_groups *g, int v);
/* Somebody has gone from groups, and whoever waited in one that is no more is served anew. */
tutti_status tutti_groups_settle(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* Members in that state. */
int tutti_groups_count_of(const tutti_groups_entry *p, int state);
/* Of the groups that have started and wait for v, the first by id: several generators may have told
   others of one. NULL: none. */
tutti_groups_entry *tutti_groups_to_join(const tutti_groups *g, int v);

/* ---- groups_plan.c ---- */
/* Groups at the end of the line, of w, which has asked and has none planned, and of others; none if
   nobody else is free. */
tutti_status tutti_groups_plan(tutti_groups *g, int w, tutti_error *err);
/* v asks: what that adds to its lag. */
void tutti_groups_lag(tutti_groups *g, int v, tutti_groups_times takes);
#pragma GCC visibility pop
#endif
