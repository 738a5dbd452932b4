/* disk.h: a directory on a disk for the tests of tiers: the build's. Where that is in memory, or
   refuses to bypass the page cache, tests that need a disk are skipped, and print that. */
#ifndef TUTTI_TESTS_DISK_H
#define TUTTI_TESTS_DISK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/files.h"
#include "runtime/queue.h"
#include "tier/tier.h"

#define DISK TUTTI_BINARY_DIR

static inline tutti_runtime *runtime_of_test(void)
{
    tutti_runtime *rt;

    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    return rt;
}

/* "on" where the disk can bypass the page cache, else "off". */
static inline const char *disk_direct(tutti_runtime *rt)
{
    static const char *known;
    tutti_file *f;

    if (known == NULL) {
        tutti_error err;
        known = "on";
        if (tutti_file_scratch(&f, rt, DISK, 4096, true, &err) != TUTTI_OK) {
            printf("skipped: what is past the page cache; %s\n", err.text);
            known = "off";
        } else
            tutti_file_close(f, NULL);
    }
    return known;
}

/* May this process use io_uring, in this build and on this kernel? */
static inline bool uring_allowed(tutti_runtime *rt)
{
    static int known = -1;
    tutti_queue *q;
    tutti_error err;

    if (known < 0) {
        known = tutti_queue_open(&q, rt, 1, &err) == TUTTI_OK;
        if (known == 0)
            printf("skipped: engine=uring; %s\n", err.text);
        else
            tutti_queue_close(q);
    }
    return known != 0;
}
#endif
