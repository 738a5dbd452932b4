/* append_text.c: appends a line to a backend's description of itself (nn_backend.describe). */
#include "nn_internal.h"
#include <stdarg.h>
#include <stdio.h>

int tutti_nn_append_text(char *text, size_t bytes, int length, const char *format, ...)
{
    const size_t used = (size_t)length < bytes ? (size_t)length : bytes;
    va_list args;
    int more;

    va_start(args, format);
    more = vsnprintf(used < bytes ? text + used : NULL, bytes - used, format, args);
    va_end(args);
    return length + more;
}
