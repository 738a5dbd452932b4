/* common.c: what all commands share: exit codes, error messages, the path of installed files. */
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "cli_internal.h"

const tutti_command *tutti_commands;

int tutti_cli_code(tutti_status status)
{
    return status == TUTTI_OK          ? EXIT_DONE
           : status == TUTTI_ERR_USAGE ? EXIT_USAGE
           : status == TUTTI_ERR_PEER  ? EXIT_LOST
                                       : EXIT_TRAINING;
}

int tutti_cli_fail(const tutti_error *err)
{
    fprintf(stderr, "tutti: %s\n", err->text);
    return tutti_cli_code(err->status);
}

int tutti_cli_usage(const char *command, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "tutti %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; see `tutti %s --help`\n", command);
    return EXIT_USAGE;
}

const char *tutti_cli_installed(char *path, size_t bytes, const char *folder)
{
    char self[2048];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    path[0] = 0;
    if (length <= 0)
        return path;
    self[length] = 0;
    slash = strrchr(self, '/');
    if (slash != NULL) {
        *slash = 0;
        snprintf(path, bytes, "%s/../share/tutti/%s", self, folder);
    }
    return path;
}
