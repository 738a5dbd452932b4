/* groups.h: the group generator of Prague: who averages with whom, and in which order. It is pure
   code: no threads, no messages, no clock. It is told what has happened, and it answers workers
   through a function that its owner gives it. src/gossip/preduce.c is the protocol around it. */
#ifndef TUTTI_GOSSIP_GROUPS_H
#define TUTTI_GOSSIP_GROUPS_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

/* What a worker that has asked is told. Each question gets one answer.

   To a request:
     GO       P-Reduce with these members, under this id
     NOTHING  there is nobody to average with; or, of one that leaves, nothing is left to do
   To the word that a P-Reduce is over:
     KEEP     it counts
     AGAIN    it does not count: undo it, and make this one
     UNDO     it does not count, and nobody is left to make it with */
typedef enum {
    TUTTI_GROUPS_GO,
    TUTTI_GROUPS_NOTHING,
    TUTTI_GROUPS_KEEP,
    TUTTI_GROUPS_AGAIN,
    TUTTI_GROUPS_UNDO
} tutti_groups_word;
typedef struct tutti_groups_answer {
    int worker;
    tutti_groups_word word;
    int64_t id;                  /* of GO and AGAIN; grows at every worker */
    const int *member;           /* n, ascending; good during the call */
    int n;
    bool apart;                  /* somebody is lost: use no memory in common */
} tutti_groups_answer;

/* ids: number of the group << 33 | who has planned it << 20 | attempt << 13 | who has decided on
   that attempt. A generator that others have dismissed may decide too, and otherwise: its attempt
   is another one. */
enum { TUTTI_GROUPS_WORKERS_MOST = 1 << 13, TUTTI_GROUPS_ATTEMPTS_MOST = 120 };
static inline int64_t tutti_groups_id(int64_t number, int planner)
{
    return number << 33 | (int64_t)planner << 20;
}
static inline int64_t tutti_groups_number(int64_t id)
{
    return id >> 33;
}
static inline int tutti_groups_attempt(int64_t id)
{
    return (int)(id >> 13 & 127);
}
static inline int64_t tutti_groups_id_again(int64_t id, int rank)
{
    return ((id >> 13) + 1) << 13 | rank;
}
/* A later attempt at the same group, or the same by a later generator. */
static inline bool tutti_groups_supersedes(int64_t later, int64_t id)
{
    return later >> 20 == id >> 20 && later > id;
}

typedef enum { TUTTI_GROUPS_RANDOM, TUTTI_GROUPS_STATIC, TUTTI_GROUPS_SMART } tutti_groups_kind;
enum { TUTTI_GROUPS_REQUEST = 1 << 20 };
typedef struct tutti_groups_setup {
    int workers;
    tutti_groups_kind kind;      /* static: tutti_groups_row says the groups, and nobody requests */
    int size;                    /* of a group; 2 .. workers */
    int64_t filter;              /* requests by which a worker may lag; 0: any number */
    const int *machine;          /* workers: a number of each, from 0 on by first worker; kept.
                                    NULL: no inter- and intra-rounds */
    int64_t timeout_ns;          /* that a group waits for a member that has not come */
    int rank;                    /* of the generator: part of ids */
    uint64_t seed;
    uint64_t *draws;             /* so many draws were made: the owner's, who saves it */
    int64_t *lag;                /* workers: what the filter has of each, in parts of a request:
                                    TUTTI_GROUPS_REQUEST of them are one. Likewise */
    tutti_status (*answer)(void *to, const tutti_groups_answer *a, tutti_error *err);
    void *to;
} tutti_groups_setup;
typedef struct tutti_groups tutti_groups;

/* setup is copied. */
tutti_status tutti_groups_open(tutti_groups **out, const tutti_groups_setup *setup,
                               tutti_error *err);
void tutti_groups_close(tutti_groups *g); /* takes NULL */
/* A new phase: nobody has asked, nothing is planned. */
void tutti_groups_clear(tutti_groups *g);

/* Without what it waits for others: to compute, from one request to the next, and for a P-Reduce.
   0: not known. */
typedef struct tutti_groups_times {
    int64_t computes_ns, reduces_ns;
} tutti_groups_times;

/* The worker wants to average: the count-th time, this one included. takes: what that takes it, by
   its own clock. leaves: it makes no more steps; it wants what is planned with it, one after the
   other, and then NOTHING. */
tutti_status tutti_groups_request(tutti_groups *g, int worker, int64_t count,
                                  tutti_groups_times takes, bool leaves, int64_t now_ns,
                                  tutti_error *err);
/* Its P-Reduce is over. blame: -1: it went well; else the rank whose loss has spoilt it. A group
   that is not known is taken over as it is told. In runs that do not go on after a loss nobody says
   this: the next request says that the last P-Reduce went well. */
tutti_status tutti_groups_over(tutti_groups *g, int worker, int64_t id, const int *member, int n,
                               int blame, int64_t now_ns, tutti_error *err);
/* That worker is lost. */
tutti_status tutti_groups_lost(tutti_groups *g, int worker, int64_t now_ns, tutti_error *err);
/* Groups that have waited too long go on without whom they wait for. */
tutti_status tutti_groups_late(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* When that is next; TUTTI_FOREVER: nothing waits. */
int64_t tutti_groups_due(const tutti_groups *g);

/* A generator that takes over from a lost one, before anybody has asked it: the last group that
   worker was told of, and whether it has been told that it counts; n 0 and not kept: that it does
   not. */
tutti_status tutti_groups_report(tutti_groups *g, int worker, int64_t id, const int *member,
                                 int n, bool kept, tutti_error *err);

/* Likewise, behind the reports: it has left the last one, and asks nobody any more. */
void tutti_groups_left(tutti_groups *g, int worker);

typedef struct tutti_groups_figures {
    uint64_t groups;             /* started */
    uint64_t conflicts;          /* planned with a worker that an earlier group still waited for */
    uint64_t nothing;            /* requests answered with NOTHING, but by who leaves */
    uint64_t again;              /* groups that a loss has spoilt */
    uint64_t left_out;           /* workers that a group did not wait for any longer */
    uint64_t waits;              /* requests answered with GO, and how long that took in all */
    int64_t wait_ns;
} tutti_groups_figures;
const tutti_groups_figures *tutti_groups_look(const tutti_groups *g);
/* Requests of that worker, but those of one that leaves. */
int64_t tutti_groups_asked(const tutti_groups *g, int worker);

/* ---- static schedule: the groups of sync k ---- */

/* The members of the worker's group, ascending, itself among them; n = 1: it is left out. machine:
   as above. With machines of several workers the phases are: all of a machine; workers of
   equal place in machines 2i and 2i + 1; all of a machine; those of machines 2i + 1 and 2i + 2.
   Else groups over one digit of the rank (mixed radix `size`), a digit a phase. */
int tutti_groups_row(int workers, int size, const int *machine, uint64_t k, int worker,
                     int *member);
uint64_t tutti_groups_period(int workers, int size, const int *machine);
/* Partition, consistency, connection over a cycle. lambda (may be NULL): what a cycle leaves of the
   distance from the mean at most, its second singular value, by power iteration. TUTTI_ERR_USAGE
   says what is wrong. Allocates. */
tutti_status tutti_groups_check(int workers, int size, const int *machine, double *lambda,
                                tutti_error *err);
#pragma GCC visibility pop
#endif
