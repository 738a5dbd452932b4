/* mpi_launcher.h: what the chooser (mpi.so) and the two implementations share: the options, and
   whose launcher started this process. No MPI here. */
#ifndef TUTTI_MPI_LAUNCHER_H
#define TUTTI_MPI_LAUNCHER_H
#include "tutti/transport.h"

/* order of the option's choices */
typedef enum mpi_kind_of { KIND_AUTO, KIND_OPENMPI, KIND_MPICH } mpi_kind_of;
typedef enum mpi_threads { THREADS_SERIALIZED, THREADS_MULTIPLE, THREADS_FUNNELED } mpi_threads;
typedef struct mpi_options { int implementation, threads; int64_t spin; } mpi_options;
extern const tutti_option tutti_mpi_options[];

typedef struct mpi_found {
    mpi_kind_of kind;            /* AUTO: by a launcher that does not show which (PMIx, Slurm) */
    int size;                    /* -1: not known */
    char text[80];               /* "OMPI_COMM_WORLD_SIZE=4" */
} mpi_found;
/* False: no launcher of MPI's started this process. */
bool tutti_mpi_launcher(char *const *environment, mpi_found *found);
const char *tutti_mpi_name(int kind);                               /* "Open MPI" */
/* "mpirun" of it, as Debian calls it */
const char *tutti_mpi_starter(int kind);
/* Does the wanted implementation fit the launcher? The texts of all refusals are here. */
tutti_status tutti_mpi_fits(int wanted, char *const *environment, int *kind, tutti_error *err);
tutti_status tutti_mpi_parse(const char *spec_text, mpi_options *options, tutti_error *err);
#endif
