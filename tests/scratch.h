/* scratch.h: a folder that a test writes in, and its end. It is in memory where there is plenty of
   it: a checkpoint waits for its files to be on their disk, and no test with such a folder looks at
   what a loss of power leaves. Of the folders that killed tests have left the next tests of the
   command remove those there (tests/cli/command.py: `scratch`). So this process holds a lock on
   each of its own for as long as it lives. */
#ifndef TUTTI_TESTS_SCRATCH_H
#define TUTTI_TESTS_SCRATCH_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>

enum { SCRATCH_PATH = 256 };

/* Makes one and writes where it is. */
static inline void scratch_make(char path[SCRATCH_PATH])
{
    const char *const disk = getenv("TMPDIR");
    struct statvfs about;
    int held;

    if (statvfs("/dev/shm", &about) == 0 &&
        (unsigned long long)about.f_bavail * about.f_frsize >= 1ull << 30)
        snprintf(path, SCRATCH_PATH, "/dev/shm/tutti-test-XXXXXX");
    else
        snprintf(path, SCRATCH_PATH, "%s/tutti-test-XXXXXX", disk != NULL ? disk : "/tmp");
    assert_non_null(mkdtemp(path));
    held = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(held >= 0 && flock(held, LOCK_SH) == 0);
}

static inline int scratch_remove_entry(const char *path, const struct stat *about, int kind,
                                       struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

/* With all that is in it. */
static inline void scratch_remove(const char *path)
{
    assert_int_equal(nftw(path, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}
#endif
