/* platform.c: `tutti platform`: prints the description of a cluster for simulated runs. */
#include <string.h>

#include "cli_internal.h"
#include "platform/platform.h"

int tutti_cli_platform(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    const char *name, *title;
    const tutti_option *options;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("tutti platform SPEC > FILE.xml\n\nWrites a cluster for simulated runs, as SimGrid "
               "XML: tutti platform 'cluster(n=64,rate=25Gbps)' > cluster.xml\n");
        for (int i = 0; tutti_platform_shape(i, &name, &title, &options); i++) {
            printf("\n%s: %s\n\n  option               type   default                    meaning\n",
                   name, title);
            tutti_cli_print_options(stdout, options, false);
        }
        return EXIT_DONE;
    }
    if (argc != 2)
        return tutti_cli_usage("platform", "it takes one spec, not %d arguments", argc - 1);
    return tutti_platform_print(stdout, argv[1], &err) == TUTTI_OK ? EXIT_DONE
                                                                   : tutti_cli_fail(&err);
}
