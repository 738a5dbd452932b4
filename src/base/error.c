/* error.c: a status for the program, a sentence for the user. Text is put together in a local
   buffer first, so that a sentence may quote the one it replaces (the arguments may point into
   err->text). */
#include "base_internal.h"
#include "errors.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES sizeof(((tutti_error *)0)->text)

#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)

/* strerrordesc_np would need glibc 2.32. */
const char *tutti_errno_text(int number)
{
    return strerror_l(number, newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* which glibc has once */
}

const char *tutti_version(void)
{
    return QUOTE(TUTTI_VERSION_MAJOR) "." QUOTE(TUTTI_VERSION_MINOR) "." QUOTE(TUTTI_VERSION_PATCH);
}

const char *tutti_status_name(tutti_status status)
{
    switch (status) {
    case TUTTI_OK:          return "ok";
    case TUTTI_CLOSED:      return "closed";
    case TUTTI_TIMEOUT:     return "timeout";
    case TUTTI_ERR_USAGE:   return "usage";
    case TUTTI_ERR_MEMORY:  return "memory";
    case TUTTI_ERR_IO:      return "io";
    case TUTTI_ERR_CORRUPT: return "corrupt";
    case TUTTI_ERR_PEER:    return "peer";
    case TUTTI_ERR_STATE:   return "state";
    case TUTTI_ERR_NUMBER:  return "number";
    }
    return "unknown";
}

/* Appends at most room - 1 bytes to out[0..*used), always ended by 0. */
static void append(char *out, size_t room, size_t *used, const char *text, size_t bytes)
{
    const size_t left = room - 1 - *used;

    if (bytes > left)
        bytes = tutti_base_whole_characters(text, left);
    memcpy(out + *used, text, bytes);
    *used += bytes;
    out[*used] = '\0';
}

/* Formats into out[0..room) and gives the length; a text that is too long is truncated. */
static size_t format_text(char *out, size_t room, const char *format, va_list args)
{
    const int length = vsnprintf(out, room, format, args);
    size_t bytes;

    if (length < 0) { /* a format this C library refuses: show at least which */
        out[0] = '\0';
        bytes = 0;
        append(out, room, &bytes, format, strlen(format));
        return bytes;
    }
    if ((size_t)length < room)
        return (size_t)length;
    bytes = tutti_base_whole_characters(out, room - 1);
    out[bytes] = '\0';
    return bytes;
}

static void fill_error(tutti_error *err, tutti_status status, int rank, int cause,
                       const char *format, va_list args)
{
    char text[TEXT_BYTES], words[96];
    size_t used, reserved = 0;

    if (cause != 0) {
        const int length = snprintf(words, sizeof words, " (%s)", tutti_errno_text(cause));
        if (length > 0)
            reserved = (size_t)length < sizeof words ? (size_t)length : sizeof words - 1;
    }
    /* A long sentence must not lose its cause: space for it is reserved first. */
    used = format_text(text, sizeof text - reserved, format, args);
    append(text, sizeof text, &used, words, reserved);
    memcpy(err->text, text, used + 1);
    err->status = status;
    err->rank = rank;
    err->cause = cause;
}

tutti_status tutti_fail(tutti_error *err, tutti_status status, int cause, const char *format, ...)
{
    if (err != NULL) {
        const int kept = errno;
        va_list args;

        va_start(args, format);
        fill_error(err, status, -1, cause, format, args);
        va_end(args);
        errno = kept;
    }
    return status;
}

tutti_status tutti_fail_rank(tutti_error *err, tutti_status status, int rank, const char *format,
                             ...)
{
    if (err != NULL) {
        const int kept = errno;
        va_list args;

        va_start(args, format);
        fill_error(err, status, rank, 0, format, args);
        va_end(args);
        errno = kept;
    }
    return status;
}

tutti_status tutti_fail_within(tutti_error *err, tutti_status status, const char *format, ...)
{
    if (err != NULL && status != TUTTI_OK) {
        const int kept = errno;
        char text[TEXT_BYTES];
        size_t used;
        va_list args;

        va_start(args, format);
        used = format_text(text, sizeof text, format, args);
        va_end(args);
        append(text, sizeof text, &used, ": ", 2);
        append(text, sizeof text, &used, err->text, strnlen(err->text, sizeof err->text));
        memcpy(err->text, text, used + 1);
        err->status = status;
        errno = kept;
    }
    return status;
}
