/* mpi_memory.h: how many pieces of memory of ours a process holds, by the linker's --wrap of
   tutti_alloc and tutti_free. MPI's own leaks do not count. */
#ifndef TUTTI_TESTS_MPI_MEMORY_H
#define TUTTI_TESTS_MPI_MEMORY_H
#include <stdbool.h>
int mpi_memory_pieces(void);
/* The calling thread gets none, or gets some again. */
void mpi_memory_starve(bool on);
#endif
