/* mpi_launcher.h: the options of the transport mpi, and which launcher started this process.
   Implemented in launcher.c. Included by the plug-in that chooses an implementation of MPI
   (choose.c) and, through mpi_internal.h, by the plug-in built for each implementation. Contains
   nothing of MPI's own. */
#ifndef TUTTI_MPI_LAUNCHER_H
#define TUTTI_MPI_LAUNCHER_H
#include "tutti/transport.h"

/* In the order of the options' choices in launcher.c. */
typedef enum mpi_kind { KIND_AUTO, KIND_OPENMPI, KIND_MPICH } mpi_kind;
typedef enum mpi_threads { THREADS_SERIALIZED, THREADS_MULTIPLE, THREADS_FUNNELED } mpi_threads;
/* implementation: mpi_kind; threads: mpi_threads; spin: us to poll before a wait sleeps. */
typedef struct mpi_options { int implementation, threads; int64_t spin; } mpi_options;
extern const tutti_option tutti_mpi_options[];

/* The launcher of MPI that started this process. */
typedef struct mpi_found {
    mpi_kind kind;               /* AUTO: the launcher does not show which MPI (PMIx, Slurm) */
    int size;                    /* number of ranks; -1: not known */
    char text[80];               /* the variable that shows it: "OMPI_COMM_WORLD_SIZE=4" */
} mpi_found;
/* Searches the environment for such a launcher; false: none. */
bool tutti_mpi_launcher(char *const *environment, mpi_found *found);
const char *tutti_mpi_name(int kind);    /* "Open MPI", "MPICH" */
const char *tutti_mpi_starter(int kind); /* Debian's name of its mpirun */
/* Checks that a launcher of MPI started this process and that the implementation `wanted`
   (mpi_kind) fits it. *kind: the implementation to use; AUTO: any. TUTTI_ERR_USAGE. */
tutti_status tutti_mpi_check_launcher(int wanted, char *const *environment, int *kind,
                                      tutti_error *err);
/* Parses a spec "mpi(...)"; NULL or "": all defaults. TUTTI_ERR_USAGE. */
tutti_status tutti_mpi_parse(const char *spec_text, mpi_options *options, tutti_error *err);
#endif
