/* probe.c: prints the help of a transport that is loaded by name, or the sentence why not. With a
   second word it goes to that folder first. */
#include <stdio.h>
#include <unistd.h>
#include <tutti/transport.h>

int main(int argc, char **argv)
{
    const tutti_transport_ops *ops;
    tutti_error err;
    char tried[400];

    if (argc > 2 && chdir(argv[2]) != 0)
        return 2;
    if (tutti_transport_load(argv[1], &ops, tried, sizeof tried, &err) != TUTTI_OK) {
        printf("tried '%s'\n%s\n", tried, err.text);
        return 1;
    }
    printf("%s\n", ops->help);
    return 0;
}
