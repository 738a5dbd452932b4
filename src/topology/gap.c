/* gap.c: the spectral gap, and other full matrices of a graph (gossip.h). P: the product of W over
   a period; B = P - J, which subtracts the mean. The gap is 1 - |B|. The norm |B| is the largest
   |eigenvalue| of B if B is symmetric, else the root of the largest eigenvalue of B^T B. The
   rounding error of B^T B, 1e-16, becomes 1e-8 in the root. That is visible only where the true
   value is 0, and there B itself is 0 to rounding. For drawn graphs lambda_2(E[W^T W]) is known
   (tutti_graph_rules.second). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "topology_internal.h"
#include "graph.h"

/* w: of doubles, as many as a row of the graph and the search for eigenvalues take; index: of
   members. */
typedef struct workspace { double *p, *q, *w; int *index; } workspace;

/* next := W_k p, row by row. */
static void multiply(const tutti_graph *g, uint64_t k, const double *p, double *next, int *index,
                     double *w)
{
    const size_t n = (size_t)g->n;
    const int d = g->degree_max + 1;

    for (size_t i = 0; i < n; i++) {
        double self;
        int n_in, n_out;
        tutti_graph_round(g, k, (int)i, index, w, &n_in, index + d, w + d, &n_out, &self);
        for (size_t c = 0; c < n; c++)
            next[i * n + c] = self * p[i * n + c];
        for (int a = 0; a < n_in; a++)
            for (size_t c = 0; c < n; c++)
                next[i * n + c] += w[a] * p[(size_t)index[a] * n + c];
    }
}

/* p := W_first+rounds-1 .. W_first; q is scratch. p and q may be swapped. */
static void product(const tutti_graph *g, uint64_t first, uint64_t rounds, workspace *s)
{
    const size_t n = (size_t)g->n;

    for (size_t i = 0; i < n * n; i++)
        s->p[i] = i % (n + 1) == 0;
    for (uint64_t k = 0; k < rounds; k++) {
        double *swap = s->p;
        multiply(g, first + k, s->p, s->q, s->index, s->w);
        s->p = s->q;
        s->q = swap;
    }
}

static double largest(double *a, size_t n, double *room)
{
    double low, high;
    tutti_eigen_full(a, n, room, 0, &low, &high);
    return fmax(fabs(low), fabs(high));
}

static double factor(const tutti_graph *g, workspace *s)
{
    const size_t n = (size_t)g->n;
    bool symmetric = true;
    double *b, *square, most = 0;

    product(g, 0, g->period, s);
    b = s->p;
    square = s->q;
    for (size_t i = 0; i < n * n; i++) {
        b[i] -= 1.0 / (double)n;
        most = fmax(most, fabs(b[i]));
    }
    if (most * (double)n < 1e-13) /* the mean, to rounding */
        return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            symmetric = symmetric && fabs(b[i * n + j] - b[j * n + i]) <= 1e-15;
    if (symmetric)
        return largest(b, n, s->w);
    memset(square, 0, n * n * sizeof *square);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < n; i++) {
            const double here = b[r * n + i];
            if (here != 0)
                for (size_t j = 0; j < n; j++)
                    square[i * n + j] += here * b[r * n + j];
        }
    return sqrt(largest(square, n, s->w));
}

static void workspace_close(workspace *s)
{
    tutti_free(s->p);
    tutti_free(s->q);
    tutti_free(s->w);
    tutti_free(s->index);
}

static tutti_status workspace_open(workspace *s, const tutti_graph *g, bool both, const char *what,
                                   tutti_error *err)
{
    const size_t n = (size_t)g->n, d = (size_t)g->degree_max + 1;

    *s = (workspace){ 0 };
    if (g->n > TUTTI_GRAPH_GAP_MAX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the %s of a graph of %d members; it is computed up to %d, with full matrices", what,
            g->n, TUTTI_GRAPH_GAP_MAX);
    *s = (workspace){ tutti_alloc(n * n, sizeof *s->p),
                      both ? tutti_alloc(n * n, sizeof *s->q) : NULL,
                      tutti_alloc(4 * n + 2 * d, sizeof *s->w),
                      tutti_alloc(2 * d, sizeof *s->index) };
    if (s->p != NULL && (!both || s->q != NULL) && s->w != NULL && s->index != NULL)
        return TUTTI_OK;
    workspace_close(s);
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the %s of %d members takes %zu bytes", what,
                      g->n, (both ? 16 : 8) * n * n);
}

tutti_status tutti_graph_gap(const tutti_graph *g, double *gap, tutti_error *err)
{
    workspace s;

    *gap = 0;
    if (g->family->drawn) {
        *gap = 1 - sqrt(g->family->second(g));
        return TUTTI_OK;
    }
    TUTTI_TRY(workspace_open(&s, g, true, "spectral gap", err));
    if (g->weights == TUTTI_WEIGHTS_PUSH || g->edges != NULL) {
        const tutti_status status =
            tutti_fail_within(err, tutti_graph_require(g, "doubly-stochastic", err),
                              "the spectral gap is the distance from the mean");
        if (status != TUTTI_OK) {
            workspace_close(&s);
            return status;
        }
    }
    *gap = 1 - factor(g, &s);
    workspace_close(&s);
    return TUTTI_OK;
}

tutti_status tutti_graph_product(const tutti_graph *g, uint64_t first, uint64_t rounds, double *w,
                                 tutti_error *err)
{
    const size_t n = (size_t)g->n;
    workspace s;

    TUTTI_TRY(workspace_open(&s, g, true, "product of rounds", err));
    product(g, first, rounds, &s);
    memcpy(w, s.p, n * n * sizeof *w);
    workspace_close(&s);
    return TUTTI_OK;
}

tutti_status tutti_graph_laplacian(const tutti_graph *g, double *second, double *last,
                                   tutti_error *err)
{
    const size_t n = (size_t)g->n;
    workspace s;
    tutti_graph_list list;

    *second = *last = 0;
    TUTTI_TRY(workspace_open(&s, g, false, "Laplacian", err));
    list = (tutti_graph_list){ .at = s.index };
    for (size_t i = 0; i < n; i++) {
        tutti_graph_neighbours(g, 0, (int)i, -1, &list);
        s.p[i * n + i] = list.count;
        for (int a = 0; a < list.count; a++)
            s.p[i * n + (size_t)list.at[a]] = -1;
    }
    tutti_eigen_full(s.p, n, s.w, n > 1 ? 1 : 0, second, last);
    workspace_close(&s);
    return TUTTI_OK;
}
