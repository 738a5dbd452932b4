/* mnist.h: makes a folder with the first samples of MNIST, by a function of tests/cli/command.py.
   Needs TUTTI_SOURCE_DIR. */
#ifndef TUTTI_TESTS_MNIST_H
#define TUTTI_TESTS_MNIST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static inline void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void shell(const char *format, ...)
{
    char command[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

/* Makes FOLDER/NAME with this number of training samples and of test samples. */
static inline void small_mnist(const char *folder, const char *name, int train, int test)
{
    shell("python3 -B -c 'import sys; sys.path.insert(0, \"%s/tests/cli\"); from command import *; "
          "small_mnist(\"%s/%s\", %d, %d)'",
          TUTTI_SOURCE_DIR, folder, name, train, test);
}
#endif
