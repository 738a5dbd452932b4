/* explore.h: runs a distributed piece of the library under seeded schedules.

   A piece is a function that every rank of a small world runs: a collective, a method's training
   run, a checkpoint. Ranks and their threads are fibers of one process. A scheduler of our own runs
   them in virtual time. Runtime and transport offer the library's own tables (base.h,
   transport.h), so the product's code runs unchanged.

   A seed draws everything that a real machine decides:
     - which fiber runs next, at every call of runtime and transport, and at every atomic and
       copy in the rendezvous table in shared memory (instrument.h);
     - how long a fiber dawdles there, and which rank is the slow one;
     - the latency of every message: different senders or tags arrive in any order, equal
       (sender, tag) in the order of sending;
     - whether sends are strict (done when received), or small ones are done at once;
     - whether collectives use shared memory or messages;
     - wakes without a cause, which monitors may have.
   Where the piece says so, it also draws losses:
     - the moments at which ranks die, and how long each of the others does not notice;
     - which of their last messages still arrive, and at which ranks;
     - that two live ranks lose each other, and what the others learn of it.

   The strategies are a random walk, and priorities with few random changes (Burckhardt et al., "A
   Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010). Memory is
   sequentially consistent here. What only weaker orders break, the thread sanitizer has to find.

   Why not SimGrid: a schedule takes a millisecond here, and thirty there. A choice can be made at
   every call here, and not only where a rank waits. Shared memory is covered too. The simulator
   has tests of its own.

   What is a failure:
     - a deadlock, a loop that never ends, or a wait that outlasts the piece's time;
     - a result that the piece's own checks refuse, or a crash;
     - a payload that changed while its message was in flight;
     - a monitor used wrongly: unlocked or woken by a fiber that does not hold it, locked twice, or
       closed in use;
     - a rank that fails where none may.
   Each is reported with which fiber waits for which, and with the seed, which reproduces the run:

     explore PIECE --seeds 1..200        explore PIECE --seed 17 [--verbose]        explore --list

   Adding a piece is a function and a row:

     // every rank runs it; explore_draw(c, "what", n) gives the same draws on all
     static tutti_status ring(tutti_world *world, explore_case *c, tutti_error *err)
     {
         ...
         EXPLORE_CHECK(sum == 6);
         return TUTTI_OK;
     }

     const explore_piece explore_my_pieces[] = {
         { .name = "my-ring", .help = "...", .least = 2, .most = 5, .rank_main = ring },
         { 0 }
     };

   They stand in a file of tests/explore. The file is listed in its CMakeLists.txt, the table in
   explore_main.c. Without more, every rank must end well. `judge` looks at how each rank ended, for
   pieces in which ranks fail or die. `shared` is memory of all ranks. It needs no lock: only one
   fiber runs at a time, and none is interrupted between two calls of the library. */
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
    int least, most; /* ranks; the seed draws how many */
    tutti_status (*rank_main)(tutti_world *world, explore_case *c, tutti_error *err);

    /* Called before the run, outside of it: what all ranks begin with. NULL: nothing. */
    tutti_status (*prepare)(explore_case *c, tutti_error *err);
    /* Called after the run, outside of it. NULL: every rank must have ended well. With deaths, all
       others must have ended, well or with TUTTI_ERR_PEER. */
    tutti_status (*judge)(const explore_case *c, tutti_error *err);

    explore_carrier carrier;
    bool deaths; /* one rank may die, at a moment that the seed draws */

    /* At most that many ranks may die, never all, and the transport continues (transport.h:
       events, expel). A connection may also be cut between two live ranks. */
    int losses;

    /* With deaths or losses: about how many steps a run takes. The moment of a death is one of
       them. 0: of up to 4,096, early ones more often. */
    unsigned steps;
    double seconds; /* of virtual time, at which all must have ended; 0: 100 */
} explore_piece;

struct explore_case {
    const explore_piece *piece;
    uint64_t seed;
    int ranks;
    bool windows;          /* collectives use shared memory */
    unsigned char *shared; /* EXPLORE_SHARED bytes, zeroed */

    /* for judge */
    bool cut; /* a connection was cut */
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
/* With losses: this rank is past its beginning, which needs all ranks. Deaths and cuts may come
   only when all ranks have called it. The steps of a death are counted from there. */
void explore_ready(void);
/* With losses: has a rank died, been expelled, or lost another? */
bool explore_lost_any(void);
/* A line in the log of the run, shown with a failure. */
void explore_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A point where other fibers may run; instrument.h puts it before the atomics of the rendezvous
   table in shared memory. Does nothing outside of a run. */
void explore_pause(void);
/* in two halves, with a pause between them */
void *explore_copy(void *to, const void *from, size_t bytes);
/* This rank has a slow link from now on: what it sends or receives takes EXPLORE_SLOW_NS, counted
   from when it is both sent and received, and a receive is taken for that long. -1: no rank. */
#define EXPLORE_SLOW_NS INT64_C(100000000000)
void explore_slow_link(int rank);
/* From now on that thread of that rank takes up to most_ns, drawn, over each call and each wake:
   what it learns is out of date by then. EXPLORE_SLOW_THREADS threads at most. */
enum { EXPLORE_SLOW_THREADS = 4 };
void explore_slow_thread(int rank, const char *name, int64_t most_ns);
/* With losses: once all are ready that rank dies in a call of that thread, one of its first
   `calls`, drawn. */
void explore_dies_in(int rank, const char *name, uint64_t calls);
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

/* Runs one seed. A process may do so once. Gives TUTTI_OK, or the finding with its sentence.
   `log` gets the last events and which fiber waits for which. */
typedef struct explore_report {
    uint64_t steps, events_hash;
    double seconds;
    char text[2000];
    size_t log_used;
    char log[1 << 19];
} explore_report;
tutti_status explore_run(const explore_piece *piece, uint64_t seed, bool verbose,
                         explore_report *report);

/* For the conformance suite of transports. Its run() takes seed and strategy from the spec
   explore(seed=n). */
extern const tutti_transport_ops explore_transport;
#endif
