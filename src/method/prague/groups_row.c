/* groups_row.c: Prague's static schedule: the groups of each sync, which all workers know without
   asking, and the check that they are a partition that connects all. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "groups.h"

/* True if there are several machines, and one of them has several workers. */
static bool by_machine(int workers, const int *machine, int *machines)
{
    int last = -1;

    for (int v = 0; v < workers && machine != NULL; v++)
        last = machine[v] > last ? machine[v] : last;
    *machines = last + 1;
    return *machines > 1 && *machines < workers;
}

/* The worker at that place in that machine; -1: there is none. */
static int resident(int workers, const int *machine, int m, int place)
{
    for (int v = 0; v < workers; v++)
        if (machine[v] == m && place-- == 0)
            return v;
    return -1;
}

static int row_of_machines(int workers, const int *machine, uint64_t phase, int w, int *member)
{
    const int m = machine[w];
    int machines, n = 0, place = 0, other;

    by_machine(workers, machine, &machines);
    if (phase % 2 == 0) {
        for (int v = 0; v < workers; v++)
            if (machine[v] == m)
                member[n++] = v;
        return n;
    }
    for (int v = 0; v < w; v++)
        place += machine[v] == m;
    other = phase == 1 ? m ^ 1 : (m % 2 == 1 ? m + 1 : m - 1);
    if (phase == 3 && machines % 2 == 0)
        other = (other + machines) % machines; /* round the end */
    other = resident(workers, machine, other, place);
    member[n++] = w;
    if (other >= 0) {
        member[other < w ? 0 : 1] = other;
        member[other < w ? 1 : 0] = w;
        n++;
    }
    return n;
}

enum { DIGITS_MOST = 32 };

/* Factorises n into factors of at most `size`; returns their number, 0: impossible. */
static int digits_of(int n, int size, int factor[DIGITS_MOST])
{
    int digits = 0;

    while (n > 1) {
        int f = size < n ? size : n;
        while (f > 1 && n % f != 0)
            f--;
        if (f == 1)
            return 0;
        factor[digits++] = f;
        n /= f;
    }
    return digits;
}

static int row_of_digits(const int *factor, uint64_t phase, int w, int *member)
{
    int stride = 1, digit;

    for (uint64_t t = 0; t < phase; t++)
        stride *= factor[t];
    digit = w / stride % factor[phase];
    for (int k = 0; k < factor[phase]; k++)
        member[k] = w + (k - digit) * stride;
    return factor[phase];
}

/* Splits the line of ranks into groups, in every other phase shifted by half a group. */
static int row_of_line(int workers, int size, uint64_t phase, int w, int *member)
{
    const int turn = phase == 0 ? 0 : size / 2, at = (w - turn + workers) % workers;
    int first = at / size * size, n = workers - first < size ? workers - first : size;

    if (workers - first == 1) { /* one would be alone */
        first -= size;
        n = size + 1;
    } else
        n += workers - first - n == 1;
    n += first;
    for (int v = 0, k = 0; v < workers; v++) {
        const int place = (v - turn + workers) % workers;
        if (place >= first && place < n)
            member[k++] = v;
    }
    return n - first;
}

uint64_t tutti_groups_period(int workers, int size, const int *machine)
{
    int machines, factor[DIGITS_MOST], digits;

    if (by_machine(workers, machine, &machines))
        return 4;
    digits = digits_of(workers, size, factor);
    return digits > 0 ? (uint64_t)digits : workers > size ? 2 : 1;
}

int tutti_groups_row(int workers, int size, const int *machine, uint64_t k, int worker, int *member)
{
    const uint64_t phase = k % tutti_groups_period(workers, size, machine);
    int machines, factor[DIGITS_MOST];

    if (by_machine(workers, machine, &machines))
        return row_of_machines(workers, machine, phase, worker, member);
    return digits_of(workers, size, factor) > 0 ? row_of_digits(factor, phase, worker, member)
                                                : row_of_line(workers, size, phase, worker, member);
}

/* n workers in groups of `size`; machine: of each. */
typedef struct members {
    int n, size;
    const int *machine;
} members;

/* y := F_k x. Checks that each worker is in its own group of sync k. */
static tutti_status mix_groups(const members *of, uint64_t k, const double *x, double *y, int *row,
                               tutti_error *err)
{
    const int n = of->n;

    for (int w = 0; w < n; w++) {
        const int some = tutti_groups_row(n, of->size, of->machine, k, w, row);
        double sum = 0;
        bool mine = false;
        for (int j = 0; j < some; j++) {
            mine = mine || row[j] == w;
            sum += x[row[j]];
        }
        if (!mine)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the static schedule leaves worker %d out of its own group in phase "
                              "%llu",
                              w, (unsigned long long)k);
        y[w] = sum / some;
    }
    return TUTTI_OK;
}

/* Subtracts the mean of x and scales it to length 1, or to 0 where it is all rounding. Returns
   the length. */
static double centre(int n, double *x)
{
    double mean = 0, size = 0;

    for (int w = 0; w < n; w++)
        mean += x[w] / n;
    for (int w = 0; w < n; w++)
        size += (x[w] - mean) * (x[w] - mean);
    size = size > 1e-24 ? sqrt(size) : 0;
    for (int w = 0; w < n; w++)
        x[w] = size > 0 ? (x[w] - mean) / size : 0;
    return size;
}

enum { ROUNDS = 200, ROUNDS_OF_MANY = 20, MANY = 256 };

static tutti_status check_contraction(const members *of, double *x, double *y, int *rows,
                                      double *lambda, tutti_error *err)
{
    const int n = of->n, size = of->size, *const machine = of->machine;
    int *const row = rows, *const other = rows + n;
    const uint64_t period = tutti_groups_period(n, size, machine);
    double shrinks = 0;

    for (uint64_t k = 0; k < period; k++)
        for (int w = 0; w < n; w++) {
            const int some = tutti_groups_row(n, size, machine, k, w, row);
            for (int j = 0; j < some; j++)
                if (tutti_groups_row(n, size, machine, k, row[j], other) != some ||
                    memcmp(row, other, (size_t)some * sizeof *row) != 0)
                    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                      "the static schedule is no partition: workers %d and %d "
                                      "differ on the group of phase %llu",
                                      w, row[j], (unsigned long long)k);
        }
    for (int w = 0; w < n; w++)
        x[w] = tutti_normal((tutti_rng){ 1, 0, 0 }, (uint64_t)w);
    centre(n, x);
    for (int round = 0; round < (n > MANY ? ROUNDS_OF_MANY : ROUNDS); round++) {
        for (uint64_t k = 0; k < 2 * period; k++) {
            /* F, then its transpose: each F_k is symmetric */
            TUTTI_TRY(mix_groups(of, k < period ? k : 2 * period - 1 - k, x, y, row, err));
            memcpy(x, y, (size_t)n * sizeof *x);
        }
        shrinks = centre(n, x);
    }
    if (lambda != NULL)
        *lambda = sqrt(shrinks);
    return shrinks < 1 - 1e-9
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the static schedule does not connect all %d workers in a cycle of "
                            "%llu phases; take another group_size",
                            n, (unsigned long long)period);
}

tutti_status tutti_groups_check(int workers, int size, const int *machine, double *lambda,
                                tutti_error *err)
{
    const size_t n = (size_t)workers;
    double *const x = tutti_alloc(2 * n, sizeof *x);
    int *const row = tutti_alloc(2 * n, sizeof *row);
    const tutti_status status =
        x != NULL && row != NULL
            ? check_contraction(&(members){ workers, size, machine }, x, x + n, row, lambda, err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "checking the schedule of %zu workers", n);

    tutti_free(x);
    tutti_free(row);
    return status;
}
