/* explore.h: runs a distributed piece of the library under seeded schedules.

   A piece is a function that every rank of a small world runs: a collective, a method's
   training run, a checkpoint. Its ranks and their threads are fibers of one process under a
   scheduler of our own, in virtual time, on a runtime and a transport that offer the library's
   own tables (runtime.h, transport.h), so the product's code runs unchanged. A seed draws
   everything that a real machine decides:
     - who runs next, at every call of the runtime and of the transport, and at every atomic and
       copy of shared memory in the board (instrument.h);
     - how long a fiber dawdles there, and which rank is the slow one;
     - the latency of every message: of different senders or tags any order, of equal
       (sender, tag) the order of sending;
     - whether sends are strict (done when taken) or small ones are done at once; whether the
       board or messages carry collectives;
     - wakes without a cause, which monitors may have;
     - where the piece says so, the moments at which ranks die, how long each of the others does not
       notice, and what of their last messages still arrives to whom; also that two live ranks lose
       each other, and what of it others hear.
   Not SimGrid: a schedule is a matter of a millisecond here and not of thirty, a choice can be
   made at every call and not only where somebody waits, and the board runs as well. The
   simulator has tests of its own. The strategies are a random walk and priorities with few
   random changes (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of
   Finding Bugs", ASPLOS 2010). Memory is sequentially consistent here: what only weaker orders
   break, the thread sanitizer has to find.

   What is a failure: a deadlock; a loop that never ends, or a wait that outlasts the piece's time;
   a result that the piece's own checks refuse; a crash; a payload that changed while its message
   was in flight; a monitor used wrongly (unlocked or woken by who does not hold it, locked twice,
   closed in use); a rank that fails where none may. Each is told with who waits for whom and the
   seed; the seed gives the same run again:

     explore PIECE --seeds 1..200        explore PIECE --seed 17 [--verbose]        explore --list

   Adding a piece is a function and a row:

     static tutti_status ring(tutti_world *world, explore_case *c, tutti_error *err)
     // every rank; explore_draw(c, n): the same draws on all { ...
     EXPLORE_CHECK(sum == 6); return TUTTI_OK; }

     const explore_piece explore_my_pieces[] = { { .name = "my-ring", .help = "...", .least = 2,
     .most = 5, .rank_main = ring }, { 0 } };

   in a file of tests/explore (listed in its CMakeLists.txt; the table itself in explore_main.c).
   Without more, every rank must end well. `judge` looks at how each rank ended, for pieces in which
   ranks fail or die. All ranks share the process: `shared` is theirs in common, and since only one
   fiber runs at a time and none is interrupted between two calls of the library, it needs no
   lock. */
#ifndef TUTTI_TESTS_EXPLORE_H
#define TUTTI_TESTS_EXPLORE_H
#include "tutti/comm.h"

enum { EXPLORE_RANKS = 16, EXPLORE_SHARED = 1 << 20 };

/* of collectives; EITHER: the seed draws it */
typedef enum { EXPLORE_EITHER, EXPLORE_MESSAGES, EXPLORE_WINDOWS } explore_carrier;
typedef enum { EXPLORE_ENDED, EXPLORE_DIED } explore_end;

typedef struct explore_case explore_case;
typedef struct explore_piece {
    const char *name, *help;
    int least, most;             /* ranks; the seed draws how many */
    tutti_status (*rank_main)(tutti_world *world, explore_case *c, tutti_error *err);
    /* After the run, outside of it. NULL: every rank has ended well; with deaths: all others have
       ended, well or with TUTTI_ERR_PEER. */
    tutti_status (*judge)(const explore_case *c, tutti_error *err);
    explore_carrier carrier;
    bool deaths;                 /* one rank may die, at a moment that the seed draws */
    /* so many ranks at most may die, never all, and the transport goes on (transport.h: events,
       expel); also a connection may be cut between two that live */
    int losses;
    /* with deaths or losses: about how many steps a run takes, among which that moment lies; 0:
       early ones more often, up to 4,096 */
    unsigned steps;
    double seconds;              /* of virtual time, at which all must have ended; 0: 100 */
} explore_piece;

struct explore_case {
    const explore_piece *piece;
    uint64_t seed;
    int ranks;
    bool windows;                /* the board carries collectives */
    unsigned char *shared;       /* EXPLORE_SHARED bytes, zeroed */
    /* for judge */
    bool cut;                    /* a connection was cut */
    struct {
        explore_end end;
        bool expelled;
        tutti_status status;
        tutti_error err;
    } rank[EXPLORE_RANKS];
};

/* 0 .. n-1, drawn from the seed; `what` names the draw: equal names give equal values on all
   ranks. */
uint64_t explore_draw(const explore_case *c, const char *what, uint64_t n);
/* With losses: this rank is past its beginning, which needs all. When all are, deaths and cuts may
   come; their steps are counted from there. */
void explore_ready(void);
/* With losses: has a rank died, been expelled, or lost another? */
bool explore_lost_any(void);
/* A line in the log of the run, shown with a failure. */
void explore_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A point where others may run; instrument.h puts it before the atomics of the
   board. Does nothing outside of a run. */
void explore_pause(void);
/* in two halves, with a pause between them */
void *explore_copy(void *to, const void *from, size_t bytes);
/* From now on what this rank sends or receives takes EXPLORE_SLOW_NS, from when it is both sent and
   received: its link is slow, and a receive is taken for that long. -1: no rank. */
#define EXPLORE_SLOW_NS INT64_C(100000000000)
void explore_slow_link(int rank);
/* Lets virtual time pass for up to `most_ns`, drawn. */
void explore_dawdle(int64_t most_ns);

#define EXPLORE_CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "%s:%d: not so: %s", __FILE__, __LINE__, \
                              #condition); \
    } while (0)
#define EXPLORE_EXPECT(condition, ...) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, __VA_ARGS__); \
    } while (0)

/* One run of one seed in this process, which has had its run then; TUTTI_OK or the finding with its
   sentence. `log` gets the last events and who waits for whom. */
typedef struct explore_report {
    uint64_t steps, events_hash;
    double seconds;
    char text[2000];
    size_t log_used;
    char log[1 << 19];
} explore_report;
tutti_status explore_run(const explore_piece *piece, uint64_t seed, bool verbose,
                         explore_report *report);

/* for the conformance suite of transports: its run() takes seed and
   strategy from the spec explore(seed=n) */
extern const tutti_transport_ops explore_transport;
#endif
