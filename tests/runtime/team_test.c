/* Teams. Goal: every item is worked on once, by the same thread each time, in parts of whole
   grains. A loop ends when all parts have; opening survives threads that cannot be had. Method:
   loops of awkward lengths over teams of 1 to 7, each item counted and marked with its thread. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "runtime/team.h"
#include "tutti/base.h"

enum { MOST = 1000 };

typedef struct marks { int times[MOST]; pthread_t who[MOST]; size_t grain, items; bool whole; } marks;

static void mark(void *arg, size_t first, size_t count)
{
    marks *m = arg;

    if (count == 0 || first % m->grain != 0 || (count % m->grain != 0 && first + count != m->items))
        m->whole = false; /* several threads may, and then the test has failed */
    for (size_t i = first; i < first + count; i++) {
        m->times[i]++;
        m->who[i] = pthread_self();
    }
}

static void every_item_is_done_once_and_by_the_same_thread(void **state)
{
    static const size_t lengths[] = { 0, 1, 2, 7, 64, 999, MOST }, grains[] = { 1, 3, 64, 5000 };
    tutti_runtime *rt;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    for (int threads = 1; threads <= 7; threads++) {
        tutti_team *t;
        assert_int_equal(tutti_team_open(&t, rt, "team", threads, NULL), TUTTI_OK);
        assert_int_equal(tutti_team_threads(t), threads);
        for (size_t l = 0; l < TUTTI_LENGTH(lengths); l++)
            for (size_t g = 0; g < TUTTI_LENGTH(grains); g++) {
                static marks m, again;
                m = again = (marks){ .grain = grains[g], .items = lengths[l], .whole = true };
                tutti_team_run(t, lengths[l], grains[g], mark, &m);
                tutti_team_run(t, lengths[l], grains[g], mark, &again);
                assert_true(m.whole);
                for (size_t i = 0; i < MOST; i++) {
                    assert_int_equal(m.times[i], i < lengths[l]);
                    assert_true(i >= lengths[l] || pthread_equal(m.who[i], again.who[i]));
                }
                assert_true(lengths[l] == 0 || pthread_equal(m.who[0], pthread_self()));
            }
        tutti_team_close(t);
    }
    tutti_team_close(NULL);
    tutti_runtime_close(rt);
}

static int left;

static int few_threads(void *self, void **thread, const char *name, void (*run)(void *arg), void *arg)
{
    const tutti_runtime *below = self;

    return left-- > 0 ? below->ops->thread_open(below->self, thread, name, run, arg) : EAGAIN;
}

static void opening_a_team_fails_if_a_thread_cannot_start(void **state)
{
    tutti_runtime *below, rt;
    tutti_runtime_ops ops;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&below, NULL), TUTTI_OK);
    ops = *below->ops; /* whose other calls do not look at `self` */
    ops.thread_open = few_threads;
    rt = (tutti_runtime){ &ops, below };
    for (int k = 0; k < 3; k++) {
        tutti_error err;
        tutti_team *t;
        left = k;
        assert_int_equal(tutti_team_open(&t, &rt, "team", 4, &err), TUTTI_ERR_IO);
        assert_null(t);
        assert_non_null(strstr(err.text, "cannot start thread 'team'"));
    }
    tutti_runtime_close(below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once_and_by_the_same_thread),
        cmocka_unit_test(opening_a_team_fails_if_a_thread_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
