/* folder.h: a folder and a runtime, for all tests of a program. */
#ifndef TUTTI_TESTS_RECORD_FOLDER_H
#define TUTTI_TESTS_RECORD_FOLDER_H
#include "scratch.h"
#include "tutti/base.h"

static char root[SCRATCH_PATH];
static tutti_runtime *rt;

static int set_up(void **state)
{
    (void)state;
    scratch_make(root);
    return tutti_runtime_open_posix(&rt, NULL) == TUTTI_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_runtime_close(rt);
    scratch_remove(root);
    return 0;
}
#endif
