/* errors.h: texts of errors of the system. Implemented by error.c. */
#ifndef TUTTI_BASE_ERRORS_H
#define TUTTI_BASE_ERRORS_H
#pragma GCC visibility push(default)

/* A description of errno's value `number`, in English whatever the locale is. It lives as long as
   the process, but for a number that is no error's: until the thread's next call. */
const char *tutti_errno_text(int number);
#pragma GCC visibility pop
#endif
