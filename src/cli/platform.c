/* platform.c: `tutti platform`: prints the description of a cluster for simulated runs,
   or when its hosts are lost. */
#include <string.h>

#include "cli_internal.h"
#include "platform/platform.h"
#include "platform/spot.h"

static void help(void)
{
    const char *name, *title;
    const tutti_option *options;

    printf("tutti platform SPEC > FILE.xml\n\nWrites a cluster for simulated runs, as SimGrid "
           "XML: tutti platform 'cluster(n=64,rate=25Gbps)' > cluster.xml\n");
    for (int i = 0; tutti_platform_shape(i, &name, &title, &options); i++) {
        printf("\n%s: %s\n\n  option               type   default                    meaning\n", name,
               title);
        tutti_cli_print_options(stdout, options, false);
    }
    printf("\nWrites when hosts of a cluster are taken away and given back, as spot instances are, "
           "for --fail @FILE:\ntutti platform 'spot(n=64,places=8)' > spot.txt\n\n  option               "
           "type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_spot_options, false);
}

/* Is it a trace rather than a cluster? */
static bool is_spot(const char *text)
{
    tutti_spec *spec = NULL;
    const bool is = tutti_spec_open(&spec, text, NULL) == TUTTI_OK &&
                    strcmp(tutti_spec_name(spec), TUTTI_SPOT_NAME) == 0;

    tutti_spec_close(spec);
    return is;
}

int tutti_cli_platform(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help();
        return EXIT_DONE;
    }
    if (argc != 2)
        return tutti_cli_usage("platform", "it takes one spec, not %d arguments", argc - 1);
    return (is_spot(argv[1]) ? tutti_spot_print : tutti_platform_print)(stdout, argv[1], &err) ==
                   TUTTI_OK
               ? EXIT_DONE
               : tutti_cli_fail(&err);
}
