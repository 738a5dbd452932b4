/* training.h: a training run of the engine on a quadratic, and a separate computation of the same
   algorithm in double precision. For the pieces of pieces_train.c, which has the run, and of
   pieces_gossip.c. */
#ifndef TUTTI_TESTS_TRAINING_H
#define TUTTI_TESTS_TRAINING_H
#include "explore.h"
#include "tutti/method/gossip.h"

enum { STEPS = 5, PERIOD = 64, TENSORS = 3 };
static const double rate = 0.25;

/* Where the optimum of worker `rank` is in that step. Element i behaves as element i % PERIOD, so
   that the reference is short. */
static inline double pull(int rank, uint64_t step, size_t i)
{
    return (double)((rank * 13 + (int)step * 29 + (int)(i % PERIOD) * 7) % 41) / 4 - 5;
}

typedef struct training training;
/* one step of the reference, over all workers */
typedef void (*reference)(training *t, int workers);

typedef struct training_case {
    const char *method, *codec, *graph; /* codec, graph: NULL: none */
    int overlap;                        /* of push-sum; 0: the graph is no push graph */
    uint64_t round;                     /* slowmo: steps of a round; 0: there is none */
    uint64_t every;                     /* steps from one exchange to the next; 0: 1 */
    bool large;                         /* the first piece is large enough for a lane */
    reference next;
} training_case;

struct training {
    training_case is;
    size_t count[TENSORS];
    double x[EXPLORE_RANKS][PERIOD]; /* the reference, after `step` steps */
    /* push-sum: numerators and weights, held and on their way */
    struct { double x[PERIOD], w; } own[EXPLORE_RANKS], flies[EXPLORE_RANKS];
    double anchor[PERIOD], u[PERIOD]; /* of slowmo */
    uint64_t step;
    tutti_graph *graph;
};

/* A step of plain descent along the mean gradient: what ddp makes. */
void training_ddp(training *t, int workers);

/* Every rank calls it: trains, and compares every step and the model agreed on. */
tutti_status training_run(tutti_world *world, explore_case *c, training_case is, tutti_error *err);
#endif
