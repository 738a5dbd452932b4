/* mpi_job.h: a test that is a job of MPI's. Started plainly, the program starts itself again
   under the launcher of the MPI it is linked with, so that ctest and a person run it the same
   way; then it is one of the ranks. */
#ifndef TUTTI_TESTS_MPI_JOB_H
#define TUTTI_TESTS_MPI_JOB_H
#include <stdbool.h>

/* Was this process started by MPI's launcher? */
bool mpi_job_inside(void);
/* This program with `arguments` (ends with NULL) as a job of n ranks, more than there are cores if
   need be. Gives the job's exit code. */
int mpi_job_run(int n, char *const *arguments);
#endif
