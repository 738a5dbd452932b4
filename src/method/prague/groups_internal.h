/* groups_internal.h: what the files of the group generator share; groups.h is its public header.
   groups.c has the line of groups and their starts, groups_plan.c the plans, groups_verdict.c
   losses. */
#ifndef TUTTI_PRAGUE_GROUPS_INTERNAL_H
#define TUTTI_PRAGUE_GROUPS_INTERNAL_H
#include "groups.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* states of a member of a group that has started */
enum { TO_JOIN = 1, RUNS, WELL, SPOILT, OUT };

typedef struct tutti_groups_entry {
    struct tutti_groups_entry *next;
    int64_t id;
    bool started, kept, undone;  /* kept: a member already knows that it counts; undone: that it
                                    does not count */
    bool apart;                  /* its members use no shared memory. Once a member was told, all
                                    others must be told the same */
    int64_t since_ns;            /* since when a member waits in it */
    int64_t go_ns;               /* when it started */
    int n;
    int *member;                 /* n, ascending */
    int *state;                  /* n */
    int *blame;                  /* n: the rank that a SPOILT member blames */
} tutti_groups_entry;

typedef struct tutti_groups_peer {
    bool asks, leaves;           /* asks: it waits for an answer to a request */
    bool says;                   /* it waits for a verdict */
    int64_t about;               /* on the group with this id */
    bool gone, lost, absent;     /* it has left the phase; is lost; has not come */
    bool shunned;                /* another surviving worker cannot reach it */
    tutti_groups_entry *in;                   /* the group that it was assigned to and that is not
                                                 over */
    int64_t asked_ns;
    int64_t takes_ns, reduces_ns;             /* duration between its requests without waiting,
                                                 and of that the P-Reduce; 0: unknown */
    int64_t last;                /* id of the last group that it was assigned to */
    bool kept;                   /* and it knows that this group counts */
    int64_t undone;              /* id of the last group that it knows not to count; 0: none */
} tutti_groups_peer;

struct tutti_groups {
    tutti_groups_setup o;
    tutti_groups_peer *w;
    tutti_groups_entry *line, **end;          /* planned and started groups, in the order of
                                                 planning */
    int64_t number, before;      /* number of the last group; of the last one before the plan that
                                    is being made */
    bool apart;
    int *pick, *deal, *taken;    /* scratch: workers each */
    int64_t *asked;              /* workers: requests of each */
    int64_t usual_ns;            /* the median worker's time between requests; 0: unknown */
    int64_t *sorted;             /* scratch: workers */
    tutti_groups_figures figures;
};

/* ---- groups.c ---- */
/* Appends a group to the line; NULL: no memory. */
tutti_groups_entry *tutti_groups_append(tutti_groups *g, const int *member, int n, int64_t id);
void tutti_groups_take_out(tutti_groups *g, tutti_groups_entry *p);
/* The index of member v; -1: v is no member. */
int tutti_groups_place(const tutti_groups_entry *p, int v);
/* The first group that still waits for v; NULL: none. */
tutti_groups_entry *tutti_groups_planned(const tutti_groups *g, int v);
/* Answers v's question. p: the group that v is assigned to, or NULL. */
tutti_status tutti_groups_tell(tutti_groups *g, int v, tutti_groups_word word,
                               const tutti_groups_entry *p, tutti_error *err);
bool tutti_groups_is_free(const tutti_groups *g, int v);
/* Removes v from all groups that have not started. */
void tutti_groups_forget(tutti_groups *g, int v);
/* After a worker has been removed from groups: serves again each worker whose group has ceased to
   exist. */
tutti_status tutti_groups_settle(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* The number of members in that state. */
int tutti_groups_count_of(const tutti_groups_entry *p, int state);
/* Of the groups that have started and wait for v, the one with the lowest id: several generators
   may have assigned others to one. NULL: none. */
tutti_groups_entry *tutti_groups_to_join(const tutti_groups *g, int v);

/* ---- groups_plan.c ---- */
/* Appends groups to the line for w, which has asked and has none planned, and for others; none if
   no other worker is free. */
tutti_status tutti_groups_plan(tutti_groups *g, int w, tutti_error *err);
/* v asks: updates its lag. */
void tutti_groups_lag(tutti_groups *g, int v, tutti_groups_times takes);
#pragma GCC visibility pop
#endif
