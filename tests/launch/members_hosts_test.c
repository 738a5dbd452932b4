/* members_hosts_test.c: which workers of other hosts a launcher has, as lists of hosts come one
   after another (elastic_hosts.c). No process is started: a place is due, or free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "launch/elastic_internal.h"

enum { HERE = 2, MOST = 6, PLACES = 2 * MOST };

static const char *const *command_of(void *commands, const char *host)
{
    static const char *const argv[] = { "true", NULL };

    (void)commands;
    (void)host;
    return argv;
}

static char said[2000];

static void note(void *user, const char *line)
{
    (void)user;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

typedef struct launcher {
    tutti_launch_host here;
    tutti_launch_elastic_options options;
    worker workers[HERE + PLACES];
    elastic e;
} launcher;

static void begin(launcher *l, const char *source)
{
    *l = (launcher){ .here = { .name = "localhost", .workers = HERE } };
    l->options = (tutti_launch_elastic_options){ .workers = HERE, .hosts = &l->here, .n_hosts = 1,
                                                 .most = MOST, .source = source,
                                                 .command = command_of, .say = note };
    l->e = (elastic){ .options = &l->options, .workers = l->workers, .n = HERE + PLACES };
    assert_int_equal(tutti_runtime_open_posix(&l->e.rt, NULL), TUTTI_OK);
    for (int k = 0; k < l->e.n; k++) {
        l->workers[k].pidfd = -1;
        l->workers[k].elsewhere = k >= HERE;
    }
    said[0] = '\0';
}

/* A list comes, "localhost:2,b:2". */
static void list(launcher *l, const char *text)
{
    tutti_launch_host *hosts = NULL;
    int n = 0, workers;

    if (text[0] != '\0')
        assert_int_equal(tutti_launch_parse_hosts(text, &hosts, &n, &workers, NULL), TUTTI_OK);
    tutti_launch_elastic_take_hosts(&l->e, hosts, n);
    tutti_free(hosts);
}

static int on(const launcher *l, const char *host)
{
    int n = 0;

    for (int k = HERE; k < l->e.n; k++)
        n += strcmp(l->workers[k].host, host) == 0 && l->workers[k].start_at != 0;
    return n;
}

static void end(launcher *l)
{
    tutti_runtime_close(l->e.rt);
}

static void test_workers_follow_the_lines(void **state)
{
    launcher l;

    (void)state;
    begin(&l, "@hosts");
    list(&l, "b:1,localhost:9,c:2");
    assert_int_equal(on(&l, "b"), 1);
    assert_int_equal(on(&l, "c"), 2);
    assert_int_equal(on(&l, "localhost"), 0);
    list(&l, "b:2,localhost:9,c:2");
    assert_int_equal(on(&l, "b"), 2);
    list(&l, "localhost:9,c:1");
    assert_int_equal(on(&l, "b"), 2); /* it may have been read while it was written */
    assert_int_equal(on(&l, "c"), 2);
    list(&l, "localhost:9,c:1");
    assert_int_equal(on(&l, "b"), 0);
    assert_int_equal(on(&l, "c"), 1);
    list(&l, "");
    assert_int_equal(on(&l, "c"), 1);
    list(&l, "");
    assert_int_equal(on(&l, "c"), 0);
    end(&l);
}

static void test_a_line_that_is_missing_once_changes_nothing(void **state)
{
    launcher l;

    (void)state;
    begin(&l, "|hosts");
    list(&l, "localhost,b:3");
    for (int k = 0; k < 5; k++) {
        list(&l, "localhost");
        assert_int_equal(on(&l, "b"), 3);
        list(&l, "localhost,b:3");
        assert_int_equal(on(&l, "b"), 3);
    }
    assert_string_equal(said, "host b is listed: 3 workers are started there\n");
    end(&l);
}

static void test_there_are_never_more_than_most(void **state)
{
    launcher l;

    (void)state;
    begin(&l, "@hosts");
    list(&l, "localhost,b:3,c:3");
    assert_int_equal(on(&l, "b") + on(&l, "c"), MOST - HERE);
    assert_int_equal(on(&l, "b"), 3);
    list(&l, "localhost,d:3,c:3"); /* b may come back */
    assert_int_equal(on(&l, "d"), 0);
    list(&l, "localhost,d:3,c:3");
    assert_int_equal(on(&l, "b"), 0);
    assert_int_equal(on(&l, "c") + on(&l, "d"), MOST - HERE);
    list(&l, "localhost,c:4");
    list(&l, "localhost,c:4");
    assert_int_equal(on(&l, "c"), 4);
    list(&l, "localhost,d:1,c:4");
    list(&l, "localhost,d:1,c:4"); /* none leaves for another */
    assert_int_equal(on(&l, "c"), 4);
    assert_int_equal(on(&l, "d"), 0);
    end(&l);
}

static void test_a_host_that_comes_back_begins_anew(void **state)
{
    launcher l;
    int given_up = -1;

    (void)state;
    begin(&l, "@hosts");
    list(&l, "localhost,b:1");
    for (int k = HERE; k < l.e.n; k++)
        if (strcmp(l.workers[k].host, "b") == 0)
            given_up = k;
    l.workers[given_up].start_at = 0; /* it was lost too often */
    l.workers[given_up].started_again = 3;
    list(&l, "localhost,b:1");
    assert_int_equal(on(&l, "b"), 0);
    list(&l, "localhost");
    list(&l, "localhost");
    list(&l, "localhost,b:1");
    assert_int_equal(on(&l, "b"), 1);
    for (int k = HERE; k < l.e.n; k++)
        assert_int_equal(l.workers[k].started_again, 0);
    end(&l);
}

/* Without a source there is one list, whatever `most` is. */
static void test_hosts_that_stay_have_all_their_workers(void **state)
{
    launcher l;

    (void)state;
    begin(&l, NULL);
    list(&l, "localhost:2,b:2,c:5");
    assert_int_equal(on(&l, "b"), 2);
    assert_int_equal(on(&l, "c"), 5);
    assert_string_equal(said, "");
    end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_follow_the_lines),
        cmocka_unit_test(test_a_line_that_is_missing_once_changes_nothing),
        cmocka_unit_test(test_there_are_never_more_than_most),
        cmocka_unit_test(test_a_host_that_comes_back_begins_anew),
        cmocka_unit_test(test_hosts_that_stay_have_all_their_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
