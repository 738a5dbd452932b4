/* machines.c: a world of one machine that reports several. A file of its own, since what is
   inside a world and what methods see of it have names in common. */
#include "collective/collective_internal.h"

void put_on_machines(tutti_world *world, int of_machine, int first);
void put_on_machines(tutti_world *world, int of_machine, int first)
{
    if (world->host == NULL)
        world->host = tutti_alloc((size_t)world->size, sizeof *world->host);
    for (int r = 0; r < world->size && world->host != NULL; r++)
        world->host[r] = r < first ? r / of_machine : first / of_machine;
}
