/* gather_test.c: two processes gather by variables of torchrun. Goal: what a rank is handed is
   whole, and a failure at any allocation leaves no descriptor, no file and no rank that waits for
   ever. Method: the other rank is a forked child; here the n-th allocation fails, for each n. How
   ranks use the result is tested in tests/cli/gather_test.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "launch/gather.h"
#include "transport/shm/shm_region.h"
#include "tutti/launch.h"
#include "together.h"
#include "launch/launch.h"

#define WAIT_NS INT64_C(1000000000)

static long allocations, fail_at; /* 0: none */
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return ++allocations == fail_at ? NULL : __real_tutti_alloc(count, size);
}

static char folder[] = "/tmp/tutti-gather-XXXXXX", runtime_directory[80], place[90];

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

static tutti_status gather_as(int rank, const char *transport, tutti_launch_gathering **g, tutti_error *err)
{
    char name[20], port[32];
    char *const environment[] = { name, (char *)(uintptr_t) "WORLD_SIZE=2", (char *)(uintptr_t) "MASTER_ADDR=localhost",
                                  port, runtime_directory, NULL };
    tutti_launch_place found;

    snprintf(name, sizeof name, "RANK=%d", rank);
    snprintf(port, sizeof port, "MASTER_PORT=29500");
    *g = NULL;
    if (tutti_launch_find_place(environment, &found, err) != TUTTI_OK ||
        !tutti_launch_gathers(&found, transport, environment))
        return TUTTI_ERR_STATE;
    return tutti_launch_gather(g, &found, transport, environment, WAIT_NS, NULL, NULL, err);
}

static const char *value(char *const *environment, const char *name)
{
    return tutti_variable(environment, name);
}

/* The other rank, which ends with its status. */
static pid_t other(int rank, const char *transport)
{
    const pid_t pid = fork();
    tutti_launch_gathering *g;
    tutti_status status;

    if (pid != 0)
        return pid;
    fail_at = 0;
    status = gather_as(rank, transport, &g, NULL);
    if (status == TUTTI_OK)
        usleep(20000); /* the first one is not to see it end */
    tutti_launch_gather_close(g);
    _exit((int)status);
}

static int status_of(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ranks_without_a_launcher_get_the_variables_of_one(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const char *transport = k % 2 == 0 ? "shm" : "tcp";
        const int rank = k / 2, before = entries("/proc/self/fd");
        tutti_launch_gathering *g;
        tutti_error err = { .rank = -1 };
        const pid_t pid = other(1 - rank, transport);
        assert_int_equal(gather_as(rank, transport, &g, &err), TUTTI_OK);
        if (k % 2 == 0) {
            tutti_shm_region region;
            const int fd = atoi(value(tutti_launch_gathered(g), "TUTTI_SHM_FD"));
            assert_int_equal(tutti_shm_region_attach(&region, fd, rank, 2, &err), TUTTI_OK);
            assert_int_equal(region.header->size, 2);
            tutti_shm_region_close(&region); /* and the descriptor with it */
            assert_null(value(tutti_launch_gathered(g), "TUTTI_RUN_KEY"));
        } else {
            assert_int_equal(strlen(value(tutti_launch_gathered(g), "TUTTI_RUN_KEY")), 64);
            assert_null(value(tutti_launch_gathered(g), "TUTTI_SHM_FD"));
        }
        assert_string_equal(value(tutti_launch_gathered(g), "WORLD_SIZE"), "2");
        assert_int_equal(status_of(pid), TUTTI_OK);
        tutti_launch_gather_close(g);
        assert_int_equal(entries("/proc/self/fd"), before);
        assert_int_equal(entries(place), 2); /* . and .. */
    }
}

/* Allocation `first` fails, or one a stride later, or two. Most of it is waiting until the other
   one gives up, so strides go side by side. */
enum { STRIDE = 2 };
static void no_memory(int rank, long first)
{
    bool done = false;

    for (long n = first; !done; n += STRIDE) {
        const int before = entries("/proc/self/fd");
        tutti_launch_gathering *g;
        tutti_error err = { .rank = -1 };
        const pid_t pid = other(1 - rank, "shm");
        tutti_status status;
        allocations = 0;
        fail_at = n;
        status = gather_as(rank, "shm", &g, &err);
        fail_at = 0;
        done = status == TUTTI_OK;
        if (done)
            close(atoi(value(tutti_launch_gathered(g), "TUTTI_SHM_FD")));
        else {
            assert_int_equal(status, TUTTI_ERR_MEMORY);
            assert_null(g);
        }
        status_of(pid); /* it ends, well or not */
        tutti_launch_gather_close(g);
        assert_int_equal(entries("/proc/self/fd"), before);
        assert_int_equal(entries(place), 2);
        assert_true(n < 100);
    }
}

static void no_memory_at_odd_steps_of_rank_0(void **state) { (void)state, no_memory(0, 1); }
static void no_memory_at_even_steps_of_rank_0(void **state) { (void)state, no_memory(0, 2); }
static void no_memory_at_odd_steps_of_rank_1(void **state) { (void)state, no_memory(1, 1); }
static void no_memory_at_even_steps_of_rank_1(void **state) { (void)state, no_memory(1, 2); }

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(runtime_directory, sizeof runtime_directory, "XDG_RUNTIME_DIR=%s", folder);
    snprintf(place, sizeof place, "%s/tutti", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    rmdir(place);
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_without_a_launcher_get_the_variables_of_one),
        cmocka_unit_test(no_memory_at_odd_steps_of_rank_0),
        cmocka_unit_test(no_memory_at_even_steps_of_rank_0),
        cmocka_unit_test(no_memory_at_odd_steps_of_rank_1),
        cmocka_unit_test(no_memory_at_even_steps_of_rank_1),
    };

    return together(tests, TUTTI_LENGTH(tests), make_folder, remove_folder, argc > 1 ? argv[1] : NULL);
}
