/* mpi_allreduce.c: MPI_Allreduce of float32, in place, measured as `tutti bench allreduce` does:
   fill, barrier, time the call, maximum over ranks; median and 99th percentile over the calls.

   usage: mpi_allreduce SIZES SECONDS
   Prints BYTES MEDIAN_US P99_US CALLS on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 7, MOST = 5000 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double call(float *x, long n, int rank)
{
    double begin;

    for (long i = 0; i < n; i++)
        x[i] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return 1e6 * (MPI_Wtime() - begin);
}

static void measure(long bytes, double seconds, int rank, int size)
{
    static double mine[MOST], all[MOST];
    const long n = bytes / (long)sizeof(float);
    const float sum = (float)size * (float)(size + 1) / 2;
    float *x = NULL;
    double first[3], calls;
    int count;

    if (posix_memalign((void **)&x, 1 << 21, (size_t)n * sizeof *x) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < 3; i++)
        first[i] = call(x, n, rank);
    for (long i = 0; i < n; i++)
        if (x[i] != sum) {
            fprintf(stderr, "the sum of %ld bytes is wrong: element %ld is %g, not %g\n", bytes, i, (double)x[i],
                    (double)sum);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    qsort(first, 3, sizeof *first, compare);
    calls = seconds * 1e6 / (first[1] + 1);
    count = calls < LEAST ? LEAST : calls > MOST ? MOST : (int)calls;
    MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        mine[i] = call(x, n, rank);
    MPI_Reduce(mine, all, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(all, (size_t)count, sizeof *all, compare);
        printf("%ld %.4f %.4f %d\n", bytes, (all[(count - 1) / 2] + all[count / 2]) / 2,
               all[(99 * count + 99) / 100 - 1], count);
        fflush(stdout);
    }
    free(x);
}

int main(int argc, char **argv)
{
    int rank, size;
    char *rest = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (char *word = strtok_r(argv[1], ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        measure(atol(word), atof(argv[2]), rank, size);
    MPI_Finalize();
    return 0;
}
