/* tune_bench.c: what the tuner itself costs (bench/run tune), one line a case.

     tune_bench [ROUNDS]

   ask     seconds of one tutti_tuner_ask after that many observations
   limit   seconds of the computations that it needs at least: as many Cholesky factors of that
           size and solves with one right side as there are values of hyperparameters to try, the
           covariances of all pairs of points for each, and for the candidates the covariances
           with all points and the triangular solves. LAPACK's are counted as it does them: n^3 /
           3 operations a factor, n^2 a candidate.

   The least of ROUNDS (default 5) each, CPU time of this thread. Prints one JSON object a case. */
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tune/tuner.h"

enum { POINTS = 200, CANDIDATES = 512 + 128, GRID = 5, SWEEPS = 2, BATCH = 64, FITS = 1 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double covariance(const double *u, const double *v, int knobs)
{
    double square = 0, a;

    for (int k = 0; k < knobs; k++)
        square += (u[k] - v[k]) * (u[k] - v[k]) * 4;
    a = sqrt(5 * square);
    return (1 + a + a * a / 3) * exp(-a);
}

static double limit(int n, int knobs, const double *u, double *c, double *right, double *candidates)
{
    const int factors = FITS * (SWEEPS * (knobs + 1) * GRID + 1);
    const double begin = now();

    for (int f = 0; f < factors; f++) {
        for (int j = 0; j < n; j++)
            for (int i = j; i < n; i++)
                c[i + j * n] = covariance(u + i * knobs, u + j * knobs, knobs) + (i == j ? 1e-2 : 0);
        if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', n, c, n) != 0)
            exit(1);
        for (int i = 0; i < n; i++)
            right[i] = i;
        LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', n, 1, c, n, right, n);
    }
    for (int first = 0; first < CANDIDATES; first += BATCH) {
        for (int j = 0; j < BATCH; j++)
            for (int i = 0; i < n; i++)
                candidates[i + j * n] = covariance(u + i * knobs, u + (j * 3 + first) % n * knobs, knobs);
        LAPACKE_dtrtrs_work(LAPACK_COL_MAJOR, 'L', 'N', 'N', n, BATCH, c, n, candidates, n);
    }
    return now() - begin;
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 14, 60, 199 };
    static double u[POINTS * 3], c[POINTS * POINTS], right[POINTS], candidates[POINTS * BATCH];
    const int rounds = argc > 1 ? atoi(argv[1]) : 5;

    for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++)
        for (int knobs = 1; knobs <= 3; knobs++) {
            const int n = sizes[s];
            const tutti_knob box[3] = { { .name = "a", .high = 1 }, { .name = "b", .high = 1 },
                                        { .name = "c", .high = 1 } };
            const tutti_tuner_options o = { .knobs = box, .n_knobs = knobs, .points = n + 1, .drawn = 0, .xi = 0.1 };
            double ask = INFINITY, least = INFINITY, value[3];
            tutti_tuner *t;
            if (tutti_tuner_open(&t, &o, NULL) != TUTTI_OK)
                return 1;
            for (int i = 0; i < n; i++) {
                double seconds = 1;
                for (int k = 0; k < knobs; k++) {
                    const tutti_rng rng = { .seed = 1, .stream = (uint64_t)k };
                    u[i * knobs + k] = i == 0 ? 0 : tutti_uniform(rng, (uint64_t)i);
                    seconds += (u[i * knobs + k] - 0.4) * (u[i * knobs + k] - 0.4);
                }
                if (tutti_tuner_tell(t, u + i * knobs, seconds, NULL) != TUTTI_OK)
                    return 1;
            }
            for (int r = 0; r < rounds; r++) {
                const double begin = now();
                if (tutti_tuner_ask(t, value, NULL) != TUTTI_OK)
                    return 1;
                ask = fmin(ask, now() - begin);
                least = fmin(least, limit(n, knobs, u, c, right, candidates));
            }
            printf("{\"points\": %d, \"knobs\": %d, \"ask\": %.9f, \"limit\": %.9f}\n", n, knobs, ask, least);
            tutti_tuner_close(t);
        }
    return 0;
}
