/* together.h: runs the tests of a program side by side, each in a process of its own. It is for
   programs that wait more than they compute: for a silence to last, for a grace to be over, for a
   job that is stopped. What a test prints comes when it has ended, in one piece. A test that has
   not ended after TOGETHER_SECONDS is named and killed with its children. When this program is
   killed, so are they.

       int main(int argc, char **argv)
       {
           const struct CMUnitTest tests[] = { ... };
           return together(tests, TUTTI_LENGTH(tests), setup, teardown, argc > 1 ? argv[1] : NULL);
       }

   With a name only that test is run, in this process, as a debugger likes it. */
#ifndef TUTTI_TESTS_TOGETHER_H
#define TUTTI_TESTS_TOGETHER_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { TOGETHER_SECONDS = 110, TOGETHER_MOST = 32 };

static double together_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void together_print(FILE *file)
{
    char part[4096];
    size_t n;

    rewind(file);
    while ((n = fread(part, 1, sizeof part, file)) > 0)
        fwrite(part, 1, n, stdout);
    fclose(file);
}

/* Each test is a group by itself, so group fixtures run for each. Gives the number of tests that
   failed. */
static int together(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                    CMFixtureFunction teardown, const char *only)
{
    struct { pid_t pid; FILE *output; } running[TOGETHER_MOST];
    const double begin = together_now();
    int failed = 0;
    size_t left = n;

    if (n > TOGETHER_MOST) {
        fprintf(stderr, "together: %zu tests; there is room for %d\n", n, TOGETHER_MOST);
        return 1;
    }
    if (only != NULL) {
        cmocka_set_test_filter(only);
        return _cmocka_run_group_tests(only, tests, n, setup, teardown);
    }
    fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        const pid_t parent = getpid();
        running[i].output = tmpfile();
        running[i].pid = running[i].output != NULL ? fork() : -1;
        if (running[i].pid < 0) {
            perror("together");
            exit(1); /* those that run are killed with us */
        }
        if (running[i].pid == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            dup2(fileno(running[i].output), STDOUT_FILENO);
            dup2(fileno(running[i].output), STDERR_FILENO);
            exit(_cmocka_run_group_tests(tests[i].name, &tests[i], 1, setup, teardown) != 0);
        }
    }
    while (left > 0) {
        const bool late = together_now() - begin > TOGETHER_SECONDS;
        for (size_t i = 0; i < n; i++) {
            int how = 0;
            if (running[i].pid == 0)
                continue;
            if (late) {
                printf("together: %s has not ended after %d s and is killed; it has printed:\n",
                       tests[i].name, TOGETHER_SECONDS);
                kill(-running[i].pid, SIGKILL);
            }
            if (waitpid(running[i].pid, &how, late ? 0 : WNOHANG) != running[i].pid)
                continue;
            together_print(running[i].output);
            if (how != 0)
                printf("together: %s: %s %d\n", tests[i].name,
                       WIFSIGNALED(how) ? "ended by signal" : "failed with code",
                       WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
            failed += how != 0;
            running[i].pid = 0;
            left--;
        }
        fflush(stdout);
        usleep(5000);
    }
    printf("together: %zu tests, %d failed, %.1f s\n", n, failed, together_now() - begin);
    return failed;
}
#endif
