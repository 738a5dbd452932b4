/* widths.c: tutti_pipeline_widths (plan.h). Dynamic programming over the ends of stages finds the
   number of workers with which a pipeline takes a micro-batch every `period` seconds. Bisection
   finds the least period for which `workers` are enough. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"

#include <math.h>

typedef struct widths {
    int units, stages;
    const bool *cut;
    const double *until;         /* [units + 1]: seconds of the units before each */
    int *need;                   /* [stages + 1][units + 1]: fewest workers of that number of stages
                                    on the units before that one */
    /* [stages + 1][units + 1]: first unit of the last of these stages */
    int *from;
} widths;

static int workers_of(double seconds, double period, int most)
{
    const double k = ceil(seconds / period);
    return k < 1 ? 1 : k > most ? most + 1 : (int)k;
}

/* Returns the fewest workers with which no stage takes more than `period` seconds per micro-batch;
   most + 1: more than `most`. Fills need and from. */
static int fewest(const widths *x, double period, int most)
{
    const int row = x->units + 1;

    for (int u = 0; u <= x->units; u++)
        x->need[u] = u == 0 ? 0 : most + 1;
    for (int q = 1; q <= x->stages; q++)
        for (int u = 0; u <= x->units; u++) {
            int *const best = &x->need[q * row + u];
            *best = most + 1;
            x->from[q * row + u] = 0;
            for (int v = 0; v < u; v++) {
                const int k = x->cut[v] && x->need[(q - 1) * row + v] <= most
                                  ? x->need[(q - 1) * row + v] +
                                        workers_of(x->until[u] - x->until[v], period, most)
                                  : most + 1;
                if (k < *best) {
                    *best = k;
                    x->from[q * row + u] = v;
                }
            }
        }
    return x->need[x->stages * row + x->units];
}

/* Reads the plan from the tables. Each remaining worker is assigned to the stage that is slowest
   then. */
static void assign_widths(const widths *x, double period, int workers, int *first, int *width)
{
    int left = workers;

    first[x->stages] = x->units;
    for (int q = x->stages - 1; q >= 0; q--)
        first[q] = x->from[(q + 1) * (x->units + 1) + first[q + 1]];
    for (int q = 0; q < x->stages; q++) {
        width[q] = workers_of(x->until[first[q + 1]] - x->until[first[q]], period, workers);
        left -= width[q];
    }
    for (; left > 0; left--) {
        int slowest = 0;
        for (int q = 1; q < x->stages; q++)
            if ((x->until[first[q + 1]] - x->until[first[q]]) * width[slowest] >
                (x->until[first[slowest + 1]] - x->until[first[slowest]]) * width[q])
                slowest = q;
        width[slowest]++;
    }
}

static void find_widths(const widths *x, int workers, int *first, int *width)
{
    /* high: one worker a stage suffices */
    double low = 0, high = x->until[x->units] > 0 ? x->until[x->units] : 1;

    for (int i = 0; i < 200 && high - low > 1e-13 * high; i++) {
        const double middle = (low + high) / 2;
        if (fewest(x, middle, workers) <= workers)
            high = middle;
        else
            low = middle;
    }
    fewest(x, high, workers);
    assign_widths(x, high, workers, first, width);
}

tutti_status tutti_pipeline_widths(int units, const bool *cut, const double *seconds, int stages,
                                   int workers, int *first, int *width, tutti_error *err)
{
    const size_t cells = ((size_t)stages + 1) * ((size_t)units + 1);
    int places = 0;
    double *until;
    widths x = { .units = units, .stages = stages, .cut = cut };

    for (int u = 0; u < units; u++)
        places += cut[u];
    if (stages < 1 || stages > workers || stages > places || units < 1 || !cut[0])
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d stages on %d workers, of a model that may be cut into %d at most",
                          stages, workers, places);
    x.need = tutti_alloc(cells, sizeof *x.need);
    x.from = tutti_alloc(cells, sizeof *x.from);
    x.until = until = tutti_alloc((size_t)units + 1, sizeof *until);
    if (x.need != NULL && x.from != NULL && until != NULL) {
        for (int u = 0; u < units; u++)
            until[u + 1] = until[u] + seconds[u];
        find_widths(&x, workers, first, width);
    }
    tutti_free(x.need);
    tutti_free(x.from);
    tutti_free(until);
    return x.need != NULL && x.from != NULL && until != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory for a plan of %d units on %d workers", units, workers);
}
