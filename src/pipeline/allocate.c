/* allocate.c: tutti_pipeline_allocate (tutti/method/pipeline.h). */
#include "tutti/method/pipeline.h"
#include "allocate.h"

/* [n] workers: the node and the speed of each. */
typedef struct placed_workers {
    int n;
    const int *node;
    const double *speed;
} placed_workers;

static tutti_status check_workers(tutti_pipeline_allocation how, const placed_workers *of,
                                  int *nodes, int *each, tutti_error *err)
{
    const int workers = of->n, *const node = of->node;
    const double *speed = of->speed;

    *nodes = 0;
    for (int w = 0; w < workers; w++) {
        if (node[w] < 0 || node[w] >= workers || !(speed[w] > 0))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "worker %d of %d is on node %d and has the speed %g; nodes are 0 to "
                              "%d, speeds above 0",
                              w, workers, node[w], speed[w], workers - 1);
        *nodes = node[w] >= *nodes ? node[w] + 1 : *nodes;
    }
    if (*nodes == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "pipelines of no workers");
    *each = workers / *nodes;
    for (int n = 0; n < *nodes; n++) {
        int count = 0;
        for (int w = 0; w < workers; w++)
            count += node[w] == n;
        if (count != *each)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "node %d has %d of %d workers; on %d nodes pipelines of equal length "
                              "need %d on each, or, if that is no whole number, another number of "
                              "workers",
                              n, count, workers, *nodes, *each);
    }
    if (how == TUTTI_PIPELINE_HYBRID && (*nodes % 2 != 0 || *each % 2 != 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "allocation hd pairs nodes and halves them: it needs an even number of "
                          "nodes and of workers on each, and here are %d with %d each; use ed or "
                          "np",
                          *nodes, *each);
    return TUTTI_OK;
}

/* Returns the index of node n among all nodes by total speed, the fastest first; of equals the
   lower node first. */
static int rank_of(int workers, const int *node, const double *speed, int nodes, int n)
{
    int rank = 0;
    double mine = 0;

    for (int w = 0; w < workers; w++)
        mine += node[w] == n ? speed[w] : 0;
    for (int other = 0; other < nodes; other++) {
        double its = 0;
        for (int w = 0; w < workers; w++)
            its += node[w] == other ? speed[w] : 0;
        rank += its > mine || (its == mine && other < n);
    }
    return rank;
}

tutti_status tutti_pipeline_allocate(tutti_pipeline_allocation how, int workers, const int *node,
                                     const double *speed, int *members, int *pipelines, int *stages,
                                     tutti_error *err)
{
    int nodes, each = 0;

    *pipelines = *stages = 0;
    TUTTI_TRY(check_workers(how, &(placed_workers){ workers, node, speed }, &nodes, &each, err));
    *pipelines = how == TUTTI_PIPELINE_EQUAL ? each : nodes;
    *stages = how == TUTTI_PIPELINE_EQUAL ? nodes : each;
    for (int v = 0; v < *pipelines; v++) {
        int n = 0;
        for (int w = 0; w < workers; w++) {
            int before = 0, rank, pair;
            bool mine;
            for (int other = 0; other < w; other++)
                before += node[other] == node[w]; /* its place on its node */
            rank = rank_of(workers, node, speed, nodes, node[w]);
            pair = rank < nodes / 2 ? rank : nodes - 1 - rank;
            mine = how == TUTTI_PIPELINE_EQUAL  ? before == v
                   : how == TUTTI_PIPELINE_NODE ? node[w] == v
                                                : v == 2 * pair + (before >= each / 2);
            if (mine)
                members[v * *stages + n++] = w;
        }
    }
    return TUTTI_OK;
}
