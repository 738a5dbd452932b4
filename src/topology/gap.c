/* gap.c: the spectral gap. P: the product of W over a period; B = P - J takes the mean out. Its norm is the largest |eigenvalue| of B where B is
   symmetric, else the root of that of B^T B (whose rounding, 1e-16, becomes 1e-8 in the root: only where the true value is 0 does that show, and there B itself
   is 0 to rounding). The eigenvalues: Householder's reduction to tridiagonal form, then bisection on Sturm's count (Golub and Van Loan,
   section 8.3 and 8.4): about 100 lines that cannot fail to converge, where power iteration needs ever more steps as the gap closes. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "topology_internal.h"

/* P := W_k P, row by row into `next`. */
static void multiply(const tutti_graph *g, uint64_t k, const double *p, double *next, int *index, double *w)
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

/* a: symmetric, n x n; overwritten. diagonal, off (off[i] beside diagonal[i] and diagonal[i + 1]), v, p: n each. */
static void tridiagonal(double *a, size_t n, double *diagonal, double *off, double *v, double *p)
{
    for (size_t c = 0; c + 2 < n; c++) {
        double norm2 = 0, head = a[(c + 1) * n + c], beta, dot = 0;
        for (size_t i = c + 1; i < n; i++)
            norm2 += a[i * n + c] * a[i * n + c];
        off[c] = head > 0 ? -sqrt(norm2) : sqrt(norm2);
        if (norm2 == head * head) { /* nothing below to take out */
            off[c] = head;
            continue;
        }
        for (size_t i = c + 1; i < n; i++)
            v[i] = a[i * n + c];
        v[c + 1] -= off[c];
        beta = 1 / (norm2 - head * off[c]); /* 2 / |v|^2 */
        for (size_t i = c + 1; i < n; i++) { /* p = beta A v */
            double sum = 0;
            for (size_t j = c + 1; j < n; j++)
                sum += a[i * n + j] * v[j];
            p[i] = beta * sum;
            dot += p[i] * v[i];
        }
        for (size_t i = c + 1; i < n; i++) /* A := (1 - beta v v^T) A (1 - beta v v^T) */
            p[i] -= beta * dot / 2 * v[i];
        for (size_t i = c + 1; i < n; i++)
            for (size_t j = c + 1; j < n; j++)
                a[i * n + j] -= v[i] * p[j] + p[i] * v[j];
    }
    for (size_t i = 0; i < n; i++)
        diagonal[i] = a[i * n + i];
    if (n > 1)
        off[n - 2] = a[(n - 1) * n + n - 2];
}

/* How many eigenvalues lie below x. */
static size_t below(const double *diagonal, const double *off, size_t n, double x)
{
    size_t count = 0;
    double q = 1;

    for (size_t i = 0; i < n; i++) {
        q = diagonal[i] - x - (i > 0 ? off[i - 1] * off[i - 1] / q : 0);
        if (q == 0)
            q = 1e-300;
        count += q < 0;
    }
    return count;
}

static double eigenvalue(const double *diagonal, const double *off, size_t n, size_t which, double bound)
{
    double low = -bound, high = bound;

    for (int turn = 0; turn < 100 && high - low > 1e-16 * bound; turn++) {
        const double middle = (low + high) / 2;
        if (below(diagonal, off, n, middle) > which)
            high = middle;
        else
            low = middle;
    }
    return (low + high) / 2;
}

/* Largest |eigenvalue| of a symmetric matrix; it is overwritten. room: 4 n. */
static double largest(double *a, size_t n, double *room)
{
    double *diagonal = room, *off = room + n, bound = 0;

    tridiagonal(a, n, diagonal, off, room + 2 * n, room + 3 * n);
    for (size_t i = 0; i < n; i++) { /* Gershgorin */
        const double reach = fabs(diagonal[i]) + (i > 0 ? fabs(off[i - 1]) : 0) + (i + 1 < n ? fabs(off[i]) : 0);
        bound = reach > bound ? reach : bound;
    }
    return bound == 0 ? 0 : fmax(fabs(eigenvalue(diagonal, off, n, 0, bound)), fabs(eigenvalue(diagonal, off, n, n - 1, bound)));
}

static double factor(const tutti_graph *g, double **p, double **q, double *w, int *index)
{
    const size_t n = (size_t)g->n;
    bool symmetric = true;
    double *b, *square, most = 0;

    for (size_t i = 0; i < n * n; i++)
        (*p)[i] = i % (n + 1) == 0;
    for (uint64_t k = 0; k < g->period; k++) {
        double *swap = *p;
        multiply(g, k, *p, *q, index, w);
        *p = *q;
        *q = swap;
    }
    b = *p;
    square = *q;
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
        return largest(b, n, w);
    memset(square, 0, n * n * sizeof *square);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++)
                square[i * n + j] += b[r * n + i] * b[r * n + j];
    return sqrt(largest(square, n, w));
}

tutti_status tutti_graph_gap(const tutti_graph *g, double *gap, tutti_error *err)
{
    const size_t n = (size_t)g->n, d = (size_t)g->degree_max + 1;
    double *p, *q, *w;
    int *index;
    tutti_status status = TUTTI_OK;

    *gap = 0;
    if (g->n > TUTTI_GRAPH_GAP_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the spectral gap of a graph of %d members; it is computed up to %d, with full matrices", g->n, TUTTI_GRAPH_GAP_MAX);
    p = tutti_alloc(n * n, sizeof *p);
    q = tutti_alloc(n * n, sizeof *q);
    w = tutti_alloc(4 * n + 2 * d, sizeof *w);
    index = tutti_alloc(2 * d, sizeof *index);
    if (p == NULL || q == NULL || w == NULL || index == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the spectral gap of %d members takes %zu bytes", g->n, 16 * n * n);
    else
        *gap = 1 - factor(g, &p, &q, w, index);
    tutti_free(p);
    tutti_free(q);
    tutti_free(w);
    tutti_free(index);
    return status;
}
