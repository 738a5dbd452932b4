/* registry.c: the transports that are built in, a line each; tests/transport compares the table with the folders. */
#include <string.h>
#include "transport_internal.h"

const tutti_transport_ops *const tutti_transports[] = {
    &tutti_transport_shm,
    NULL,
};

const tutti_transport_ops *tutti_transport_find(const char *name)
{
    for (size_t i = 0; tutti_transports[i] != NULL; i++) {
        if (strcmp(tutti_transports[i]->name, name) == 0)
            return tutti_transports[i];
    }
    return NULL;
}
