/* mpi_conformance_test.c: the transport for one MPI under the suite. One job of as
   many ranks as the largest test wants; all of them go through the suite side by side,
   and a test of n ranks is done by the first n while the others wait. The program
   starts MPI, the transport finds it started.

   A rank dies by a failure report: MPI kills the whole job when a process is killed. Arguments:
   thread level ("serialized", "multiple", "funneled"), and one test by name (* and ? allowed).
   Memory of ours is counted: all of it must have been given back once MPI has ended, which may hold
   what a world left that was closed while a peer did not react. */
#include <mpi.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "conformance.h"
#include "mpi_job.h"
#include "mpi_memory.h"

enum { RANKS = 11 };

extern const tutti_transport_ops tutti_transport_plugin;

/* ---- ranks ---- */
typedef struct outcome { int run, n, status, rank; char text[480]; } outcome;
typedef struct job { int rank, size, runs; char spec[40]; } job;
static job here;

/* Ranks that wait must leave the cores to those that work: MPI's own barrier would spin. */
static void meet_quietly(void)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
        usleep(300);
}

static tutti_status as_job(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    const tutti_launch launch = { .rank = here.rank, .size = n, .spec = here.spec };
    tutti_error own = { .rank = -1 };
    outcome mine = { .run = here.runs++, .n = n }, all[RANKS];
    tutti_status status = TUTTI_OK;
    const outcome *root = NULL;

    (void)rt;
    if (n > here.size)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a test of %d ranks in a job of %d", n, here.size);
    if (here.rank < n)
        status = rank_main(&launch, arg, &own);
    mine.status = (int)status;
    mine.rank = own.rank;
    snprintf(mine.text, sizeof mine.text, "%s", status != TUTTI_OK ? own.text : "");
    meet_quietly();
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < here.size; r++) {
        if (all[r].run != mine.run || all[r].n != n) { /* one of them has left a test early: it has reported why */
            fprintf(stderr, "rank %d is at run %d, rank %d at run %d: a test has failed on one of them\n", here.rank,
                    mine.run, r, all[r].run);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (all[r].status != TUTTI_OK &&
            (root == NULL || (root->status == TUTTI_ERR_PEER && all[r].status != TUTTI_ERR_PEER)))
            root = &all[r];
    }
    return root != NULL ? tutti_fail_rank(err, (tutti_status)root->status, root->rank, "%s", root->text) : TUTTI_OK;
}

int main(int argc, char **argv)
{
    static const char *const levels[] = { "single", "funneled", "serialized", "multiple" };
    static const int values[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
    const conformance_subject subject = {
        .name = "mpi", .ops = &tutti_transport_plugin, .run = as_job, .edges = { 192, 16 << 10, 512 << 10 },
        .starve = mpi_memory_starve,
    };
    const char *level = argc > 1 ? argv[1] : "serialized";
    int wanted = MPI_THREAD_SERIALIZED, provided, failed, any, kept;

    if (!mpi_job_inside())
        return mpi_job_run(RANKS, argv + 1);
    for (size_t i = 0; i < TUTTI_LENGTH(levels); i++)
        wanted = strcmp(level, levels[i]) == 0 ? values[i] : wanted;
    MPI_Init_thread(NULL, NULL, wanted, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &here.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &here.size);
    snprintf(here.spec, sizeof here.spec, "mpi(threads=%s)", wanted < MPI_THREAD_FUNNELED ? "serialized" : level);
    if (here.rank != 0 && freopen("/dev/null", "w", stdout) == NULL) /* failures go to stderr */
        return 1;
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    failed = conformance_run(&subject);
    kept = mpi_memory_pieces();
    meet_quietly();
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    if (mpi_memory_pieces() != 0) {
        fprintf(stderr, "rank %d: %d pieces of memory were not given back, %d before MPI ended\n", here.rank,
                mpi_memory_pieces(), kept);
        any = 1;
    }
    return any;
}
