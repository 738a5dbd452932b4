/* groups_internal.h: the state of the group generator (groups.h), and the calls between its three
   files: groups.c (the queue of groups and their starts), groups_plan.c (the plans) and
   groups_verdict.c (losses). tests/method/groups_test.c includes it, too. v is a worker, g the
   generator, and p a group. */
#ifndef TUTTI_PRAGUE_GROUPS_INTERNAL_H
#define TUTTI_PRAGUE_GROUPS_INTERNAL_H
#include "groups.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* State of a member in a group that has started. TO_JOIN: it does not know of the group yet, since
   another generator has started the group. RUNS: it was sent the group. WELL, SPOILT: its P-Reduce
   succeeded, failed. OUT: it is lost or excluded. */
enum { TO_JOIN = 1, RUNS, WELL, SPOILT, OUT };

/* A group that is planned or has started. */
typedef struct tutti_groups_entry {
    struct tutti_groups_entry *next;
    int64_t id;
    bool started;
    bool kept;                   /* a member knows that the group counts */
    bool undone;                 /* a member knows that the group does not count */
    bool apart;                  /* its members use no shared memory; does not change after the
                                    start */
    int64_t since_ns;            /* since when a member waits for the start; TUTTI_FOREVER: none */
    int64_t go_ns;               /* when it started */
    int n;
    int *member;                 /* [n]: ranks, ascending */
    int *state;                  /* [n]: 0 before the start */
    int *blame;                  /* [n]: the rank that a SPOILT member blames */
} tutti_groups_entry;

typedef struct tutti_groups_peer {
    bool asks;                   /* its request is not answered yet */
    bool leaves;                 /* that is the request of a leaving worker */
    bool awaits_verdict;         /* its report that a P-Reduce has ended is not answered yet */
    int64_t reported_id;         /* id of that P-Reduce */
    bool gone;                   /* it makes no more steps in this phase */
    bool lost;
    bool absent;                 /* a group has stopped waiting for it; false after its next
                                    request */
    bool shunned;                /* a surviving worker cannot reach it: no group is planned with
                                    it */
    tutti_groups_entry *in;      /* the started group that it is in; NULL: none */
    int64_t asked_ns;            /* time of its last request */
    int64_t takes_ns;            /* time between its requests, without waiting; 0: unknown */
    int64_t reduces_ns;          /* the part of takes_ns that is the P-Reduce; 0: unknown */
    int64_t last;                /* id of the last group that it was assigned to; 0: none */
    bool kept;                   /* it knows that this group counts */
    int64_t undone;              /* id of the last group that it knows not to count; 0: none */
} tutti_groups_peer;

struct tutti_groups {
    tutti_groups_setup o;
    tutti_groups_peer *w;        /* [workers] */
    tutti_groups_entry *queue;   /* planned and started groups, in the order of planning */
    tutti_groups_entry **end;    /* the NULL at the end of the queue */
    int64_t number;              /* number of the newest group */
    int64_t before;              /* value of `number` before the plan that is being made */
    bool apart;                  /* a worker was lost */
    int *pick, *deal, *taken;    /* [workers] each: scratch */
    int64_t *asked;              /* [workers]: number of requests of each */
    int64_t usual_ns;            /* median of takes_ns over the workers; 0: unknown */
    int64_t *sorted;             /* [workers]: scratch */
    tutti_groups_figures figures;
};

/* ---- groups.c ---- */

/* Appends a group of n workers to the queue and returns it. NULL: no memory. */
tutti_groups_entry *tutti_groups_append(tutti_groups *g, const int *member, int n, int64_t id);
/* Removes a group from the queue and frees it. */
void tutti_groups_remove(tutti_groups *g, tutti_groups_entry *p);
/* Returns v's index in p->member; -1: v is no member. */
int tutti_groups_index_of(const tutti_groups_entry *p, int v);
/* Returns the first group with v that has not started; NULL: none. */
tutti_groups_entry *tutti_groups_planned(const tutti_groups *g, int v);
/* Answers v's request or report. p: the group to send; NULL: none. */
tutti_status tutti_groups_reply(tutti_groups *g, int v, tutti_groups_decision decision,
                                const tutti_groups_entry *p, tutti_error *err);
/* Returns true if groups may be planned with v. */
bool tutti_groups_is_free(const tutti_groups *g, int v);
/* Removes v from all groups that have not started. A group of fewer than two is removed. */
void tutti_groups_forget(tutti_groups *g, int v);
/* Serves the pending requests and starts groups, after a worker was removed from groups. */
tutti_status tutti_groups_settle(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* Returns the number of members in that state. */
int tutti_groups_count_of(const tutti_groups_entry *p, int state);
/* Returns the group with the lowest id in which v's state is TO_JOIN; NULL: none. There may be
   several, since several generators may have started groups with v. */
tutti_groups_entry *tutti_groups_to_join(const tutti_groups *g, int v);

/* ---- groups_plan.c ---- */

/* Appends groups to the queue for w, which has asked and has no group planned, and for other
   workers. Appends none for w if no other worker is free. */
tutti_status tutti_groups_plan(tutti_groups *g, int w, tutti_error *err);
/* Updates v's lag with the durations of its request. */
void tutti_groups_lag(tutti_groups *g, int v, tutti_groups_times takes);
#pragma GCC visibility pop
#endif
