/* python.c: functions for the Python package (python.h). */
#include "python.h"

#include <stdlib.h>

static void fail(int code, void *user)
{
    (void)user;
    if (code == 0) /* with glibc a handler may call exit(), and those that are left are called */
        exit(1);
}

void tutti_python_fail_at_exit(void)
{
    on_exit(fail, NULL);
}
