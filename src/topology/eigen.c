/* eigen.c: eigenvalues of symmetric matrices (topology_internal.h), by two algorithms.
     full      Householder's reduction to tridiagonal form, then bisection on Sturm's count (Golub
               and Van Loan, Matrix Computations, sections 8.3 and 8.4): cannot fail to converge,
               where power iteration needs ever more steps as the gap closes. O(n^3).
     sparse    the top eigenvalue by locally optimal conjugate gradients (Knyazev, SIAM J. Sci.
               Comput. 23, 2001, one vector, no preconditioner): each iteration takes the best of
               the space of iterate, residual and last direction. A matrix is only applied:
               O(edges) an iteration.
   The code uses + - * / and square roots only, which IEEE 754 rounds in one way. So all members
   compute the same bits, whatever library they run on. */
#include <math.h>
#include <string.h>

#include "topology_internal.h"

/* ---- full ---- */

/* a: symmetric, n x n; overwritten. diagonal, off (off[i] is the element between diagonal[i] and
   diagonal[i + 1]), v, p: n each. */
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
        memset(p + c + 1, 0, (n - c - 1) * sizeof *p);
        /* p = beta A v, by columns (rows: it is symmetric), which the
           compiler iterations into vector operations */
        for (size_t j = c + 1; j < n; j++)
            for (size_t i = c + 1; i < n; i++)
                p[i] += v[j] * a[j * n + i];
        for (size_t i = c + 1; i < n; i++) {
            p[i] *= beta;
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

/* The number of eigenvalues below x. */
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

static double eigenvalue(const double *diagonal, const double *off, size_t n, size_t which,
                         double bound)
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

void tutti_eigen_full(double *a, size_t n, double *scratch, size_t which, double *value,
                      double *largest)
{
    double *diagonal = scratch, *off = scratch + n, bound = 0;

    tridiagonal(a, n, diagonal, off, scratch + 2 * n, scratch + 3 * n);
    for (size_t i = 0; i < n; i++) { /* Gershgorin */
        const double reach =
            fabs(diagonal[i]) + (i > 0 ? fabs(off[i - 1]) : 0) + (i + 1 < n ? fabs(off[i]) : 0);
        bound = reach > bound ? reach : bound;
    }
    *value = bound == 0 ? 0 : eigenvalue(diagonal, off, n, which, bound);
    *largest = bound == 0 ? 0 : eigenvalue(diagonal, off, n, n - 1, bound);
}

/* ---- sparse ---- */

static double dot(size_t n, const double *x, const double *y)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* y := y + f x */
static void add_scaled(size_t n, double f, const double *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += f * x[i];
}

static void scale(size_t n, double f, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= f;
}

static void centre(size_t n, double *x)
{
    double mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        x[i] -= mean;
}

/* The eigenvector of the largest eigenvalue of a symmetric m x m
   matrix, m <= 3, by Jacobi's rotations. */
static void top_of_three(double a[3][3], int m, double top[3])
{
    double v[3][3] = { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } };
    int best = 0;

    for (int sweep = 0; sweep < 30; sweep++)
        for (int p = 0; p < m; p++)
            for (int q = p + 1; q < m; q++) {
                double theta, t, c, s;
                if (a[p][q] == 0)
                    continue;
                theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
                t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                c = 1 / sqrt(t * t + 1);
                s = t * c;
                for (int k = 0; k < m; k++) {
                    const double kp = a[k][p], kq = a[k][q];
                    a[k][p] = c * kp - s * kq;
                    a[k][q] = s * kp + c * kq;
                }
                for (int k = 0; k < m; k++) {
                    const double pk = a[p][k], qk = a[q][k], vp = v[k][p], vq = v[k][q];
                    a[p][k] = c * pk - s * qk;
                    a[q][k] = s * pk + c * qk;
                    v[k][p] = c * vp - s * vq;
                    v[k][q] = s * vp + c * vq;
                }
            }
    for (int k = 1; k < m; k++)
        if (a[k][k] > a[best][best])
            best = k;
    for (int k = 0; k < 3; k++)
        top[k] = k < m ? v[k][best] : 0;
}

size_t tutti_eigen_scratch(size_t n)
{
    return 5 * n;
}

double tutti_eigen_top(const tutti_operator *a, double *x, double tolerance, int iterations,
                       double *scratch)
{
    const size_t n = a->n;
    double *ax = scratch, *r = scratch + n, *ar = scratch + 2 * n, *p = scratch + 3 * n,
           *ap = scratch + 4 * n;
    double value = 0, most = 0;
    bool direction = false;

    for (int turn = 0; turn <= iterations; turn++) {
        double m[3][3], c[3], length;
        double *const basis[3] = { x, r, p }, *const image[3] = { ax, ar, ap };
        int many = 2;

        if (turn % 32 == 0) { /* what is carried along as sums drifts */
            centre(n, x);
            length = sqrt(dot(n, x, x));
            if (length == 0)
                return 0;
            scale(n, 1 / length, x);
            a->apply(a->of, x, ax);
        }
        value = dot(n, x, ax);
        most = fmax(most, fabs(value));
        memcpy(r, ax, n * sizeof *r);
        add_scaled(n, -value, x, r);
        centre(n, r);
        length = sqrt(dot(n, r, r));
        if (length <= tolerance * most || turn == iterations)
            break;
        scale(n, 1 / length, r);
        add_scaled(n, -dot(n, x, r), x, r);
        a->apply(a->of, r, ar);
        if (direction) {
            for (int b = 0; b < 2; b++) {
                const double along = dot(n, basis[b], p);
                add_scaled(n, -along, basis[b], p);
                add_scaled(n, -along, image[b], ap);
            }
            length = sqrt(dot(n, p, p));
            if (length > 1e-12) {
                scale(n, 1 / length, p);
                scale(n, 1 / length, ap);
                many = 3;
            }
        }
        for (int i = 0; i < many; i++)
            for (int j = 0; j <= i; j++)
                m[i][j] = m[j][i] = dot(n, basis[i], image[j]);
        top_of_three(m, many, c);
        if (many == 2) {
            memset(p, 0, n * sizeof *p);
            memset(ap, 0, n * sizeof *ap);
        }
        scale(n, c[2], p); /* direction: what is new in x */
        scale(n, c[2], ap);
        add_scaled(n, c[1], r, p);
        add_scaled(n, c[1], ar, ap);
        scale(n, c[0], x);
        scale(n, c[0], ax);
        add_scaled(n, 1, p, x);
        add_scaled(n, 1, ap, ax);
        direction = true;
    }
    return value;
}
