/* lists.h: the unmatched requests of a rank: the sends of any rank to it, and its own receives.

   Each request is in two lists. The lists by tag are in the order of posting; whatever ends several
   requests, or chooses among the sends of several ranks, walks those. The lists of the index are of
   one (tag, sender), but for collisions. A partner is searched there, so posting a message takes
   the same work however many other requests wait. Pure: no clock, no thread, no SimGrid. */
#ifndef TUTTI_SIM_LISTS_H
#define TUTTI_SIM_LISTS_H
#include "tutti/transport.h"

enum { SIM_BUCKETS = 16 };        /* lists by tag of each kind */

/* Intrusive lists: circular; the head is a link that belongs to no element. */
typedef struct sim_link { struct sim_link *next, *prev; } sim_link;
/* The struct of that type whose `member` is at the address `at`. */
#define SIM_OWNER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))
static inline void sim_list_init(sim_link *head) { head->next = head->prev = head; }
static inline bool sim_list_empty(const sim_link *head) { return head->next == head; }
/* Inserts a link in front of `before`; with a head as `before`, at the end of its list. */
static inline void sim_list_insert(sim_link *before, sim_link *at)
{
    at->next = before;
    at->prev = before->prev;
    before->prev->next = at;
    before->prev = at;
}
static inline void sim_list_remove(sim_link *at)
{
    at->next->prev = at->prev;
    at->prev->next = at->next;
    at->next = at->prev = at;
}

/* The state of a send or receive: in the log of the thread that posted it; in a list; matched. */
typedef enum { SIM_LOGGED, SIM_LISTED, SIM_FLYING } sim_op_state;
typedef struct sim_op sim_op;
struct sim_op {
    sim_link link;                /* LISTED: in a list by tag of the receiving rank, by sequence;
                                     free: next is in run->free_ops */
    sim_link key;                 /* LISTED: in a list of the index of that rank, by sequence */
    sim_link own;                 /* LISTED: in `own` of the rank that posted it */
    sim_link with;                /* LISTED: in `with` of its peer, or run->with_any */
    tutti_request *request;       /* NULL: cancelled while LOGGED */
    struct sim_transfer *transfer; /* FLYING; else NULL */
    struct sim_thread *waiter;    /* the thread that waits for it; NULL: none */
    uint64_t tag;
    uint64_t sequence;            /* order of posting in virtual time */
    void *data;                   /* the caller's: payload or receive buffer */
    size_t bytes;                 /* size of data */
    int rank;                     /* that posted it */
    int peer;                     /* the other rank; TUTTI_ANY: a receive from any */
    int64_t posted_ns;            /* virtual time of posting */
    sim_op_state state;
    bool sends;                   /* a send */
    bool several_waiters;         /* more than one thread waits for it */
    bool due;                     /* a LISTED send that the matcher will offer to a receive from
                                     ANY */
};

typedef struct sim_lists {
    sim_link sends[SIM_BUCKETS];  /* sim_op.link: unmatched sends of any rank to this one */
    sim_link receives[SIM_BUCKETS]; /* sim_op.link: its unmatched receives */
    sim_link *index;              /* [slots]: sim_op.key: both, by tag and sender */
    size_t slots;                 /* a power of 2 */
    size_t n;                     /* number of requests in the lists */
    uint64_t seen;                /* requests that were looked at so far: the work done */
} sim_lists;

/* Makes empty lists; false: no memory. */
bool sim_lists_open(sim_lists *l);
/* Frees the lists' own memory; *l may be zeroed. */
void sim_lists_close(sim_lists *l);
/* Inserts a request by its sequence; its state is LISTED then. */
void sim_lists_insert(sim_lists *l, sim_op *op);
void sim_lists_remove(sim_lists *l, sim_op *op);
/* Returns < 0, 0 or > 0 as `a` comes before b or after it in the order in which requests are ended:
   by the rank that receives, sends before receives, by list, by sequence. */
int sim_order(const sim_op *a, const sim_op *b);
/* Returns the list by tag in which `lists`, l->sends or l->receives, has that tag. */
sim_link *sim_lists_of(sim_link *lists, uint64_t tag);
/* Does the message go to this receive, by tag and sender? */
bool sim_fit(const sim_op *send, const sim_op *recv);
/* Returns the first posted request that fits `op`, which may be in the lists; NULL: none. A send
   that is `due` fits none. */
sim_op *sim_lists_partner(sim_lists *l, const sim_op *op);
/* Returns the send that fits a receive and was posted at the earliest nanosecond, of those of
   several ranks that of the lowest; NULL: none. */
sim_op *sim_lists_earliest(sim_lists *l, const sim_op *recv);
#endif
