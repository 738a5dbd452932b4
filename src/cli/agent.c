/* agent.c: `tutti agent`, which `tutti train -H` starts by ssh on each other host. It reads its job
   from standard input. */
#include <unistd.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "launch/launch.h"

int tutti_cli_agent(int argc, char **argv)
{
    if (argc > 1)
        return tutti_cli_usage("train",
                               "`tutti agent` takes no arguments such as '%s': `tutti train -H` "
                               "starts it on each host",
                               argv[1]);
    return tutti_launch_agent(STDIN_FILENO, STDOUT_FILENO);
}
