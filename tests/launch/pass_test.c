/* pass_test.c: the file by which others join a run, where several processes write it at one time:
   each write succeeds, a reader finds it whole, and no other file is left, nor one of a writer that
   was killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "launch/launch.h"

enum { WRITERS = 6, TIMES = 300 };

static tutti_launch_pass pass_of(int writer)
{
    tutti_launch_pass pass = { .n = writer + 1 };

    memset(&pass.id, 7, sizeof pass.id);
    memset(&pass.key, 9, sizeof pass.key);
    for (int k = 0; k < pass.n; k++)
        snprintf(pass.at[k], sizeof *pass.at, "10.0.0.%d:4%03d", writer, k);
    return pass;
}

static void write_it(int writer, const char *path)
{
    const tutti_launch_pass pass = pass_of(writer);
    tutti_error err = { 0 };

    for (int k = 0; k < TIMES; k++)
        if (tutti_launch_pass_write(&pass, path, &err) != TUTTI_OK) {
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
    _exit(0);
}

static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    for (const struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d))
        n += entry->d_name[0] != '.';
    closedir(d);
    return n;
}

static void members_that_write_at_one_time_leave_a_whole_file(void **state)
{
    char folder[] = "/tmp/tutti-pass-XXXXXX", path[64];
    pid_t writers[WRITERS];
    struct stat about;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/join", folder);
    for (int w = 0; w < WRITERS; w++) {
        writers[w] = fork();
        assert_true(writers[w] >= 0);
        if (writers[w] == 0)
            write_it(w, path);
    }
    for (int left = WRITERS, failed; left > 0;) {
        tutti_launch_pass there;
        tutti_error err = { 0 };
        if (tutti_launch_pass_read(&there, path, &err) == TUTTI_OK) {
            const tutti_launch_pass whole = pass_of(there.n - 1);
            assert_memory_equal(&there, &whole, sizeof whole);
        } else
            assert_true(access(path, F_OK) != 0 || left == WRITERS); /* before the first */
        if (waitpid(-1, &failed, WNOHANG) > 0) {
            assert_int_equal(failed, 0);
            left--;
        }
    }
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(files_in(folder), 1);
    unlink(path);
    rmdir(folder);
}

static void write_at(const char *path, const tutti_launch_pass *pass)
{
    tutti_error err = { 0 };

    if (tutti_launch_pass_write(pass, path, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* As of a writer that was killed before it could rename its file. */
static void leave_at(const char *folder, const char *name, const tutti_launch_pass *pass, int age_s)
{
    struct timespec times[2] = { { 0 } };
    char path[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_at(path, pass);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= age_s;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_at(const char *folder, const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Of this run, and old: one that is new may be under way. */
static void what_a_killed_writer_has_left_is_removed(void **state)
{
    const tutti_launch_pass pass = pass_of(1);
    tutti_launch_pass other = pass;
    char folder[] = "/tmp/tutti-pass-XXXXXX", path[64];
    static const char *const stay[] = { "join", "join.part-newest", "join.part-others", "join.backup",
                                        "joins.part-aaaaaa" };

    (void)state;
    memset(&other.id, 8, sizeof other.id);
    assert_non_null(mkdtemp(folder));
    leave_at(folder, "join.part-aaaaaa", &pass, 3600);
    leave_at(folder, "join.part-newest", &pass, 0);
    leave_at(folder, "join.part-others", &other, 3600);
    leave_at(folder, "join.backup", &pass, 3600);
    leave_at(folder, "joins.part-aaaaaa", &pass, 3600);
    snprintf(path, sizeof path, "%s/join", folder);
    write_at(path, &pass);
    assert_false(is_at(folder, "join.part-aaaaaa"));
    for (size_t k = 0; k < TUTTI_LENGTH(stay); k++) {
        if (!is_at(folder, stay[k]))
            fail_msg("%s was removed", stay[k]);
        snprintf(path, sizeof path, "%s/%s", folder, stay[k]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_write_at_one_time_leave_a_whole_file),
        cmocka_unit_test(what_a_killed_writer_has_left_is_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
