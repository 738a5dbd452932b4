/* version.c: `tutti version`. */
#include "cli_internal.h"
#include "tutti/launch.h"

int tutti_cli_version(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("tutti %s\ncpu %s, %d core%s\njansson %s\n", tutti_version(), tutti_cpu_name(tutti_cpu_best()),
           tutti_cores(), tutti_cores() == 1 ? "" : "s", JANSSON_VERSION);
    return EXIT_DONE;
}
