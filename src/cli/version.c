/* version.c: `tutti version`. */
#include "cli_internal.h"
#include "runtime/queue.h"
#include "tutti/launch.h"
#include "data/pictures.h"
#include "base/machine.h"
#include "launch/launch.h"

int tutti_cli_version(int argc, char **argv)
{
    const char *const queues = tutti_queue_built_with();

    (void)argc, (void)argv;
    printf("tutti %s\ncpu %s, %d core%s\njansson %s\n%s\n%s\n", tutti_version(),
           tutti_cpu_name(tutti_cpu_best()), tutti_cores(), tutti_cores() == 1 ? "" : "s",
           JANSSON_VERSION,
           queues[0] != '\0' ? queues : "without liburing: tiers on disks go by threads",
           tutti_picture_built_with());
    return EXIT_DONE;
}
