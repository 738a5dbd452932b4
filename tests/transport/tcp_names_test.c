/* Goal: a meeting place whose name is not known yet, or whose host gets another address while the
   run starts, is found; a name that stays unknown is an error when the time is up. So it is where
   pods are started together. Method: real ranks, and a name service of the test's own. */
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "tcp_help.h"

/* What the name service knows of NAME: nothing for the first `unknown` questions, then that it is
   127.0.0.2, where nothing listens, for `wrong` more, and then that it is 127.0.0.1. */
#define NAME "meet.test"
static atomic_int asked, unknown, wrong;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int k;

    if (host == NULL || strcmp(host, NAME) != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, service, hints, list);
    k = atomic_fetch_add(&asked, 1);
    if (k < atomic_load(&unknown))
        return EAI_NONAME;
    return __real_getaddrinfo(k < atomic_load(&unknown) + atomic_load(&wrong) ? "127.0.0.2" : "127.0.0.1", service,
                              hints, list);
}

static void knows(int not_for, int wrong_for)
{
    atomic_store(&asked, 0);
    atomic_store(&unknown, not_for);
    atomic_store(&wrong, wrong_for);
}

static void open_named(run_of *run, tutti_runtime *rt, int size)
{
    run_open(run, rt, "127.0.0.1", size, 0);
    snprintf(run->where, sizeof run->where, NAME ":%d", tutti_meet_port(run->meet));
}

static void both_ranks_come(void **state)
{
    real_rank ranks[2];
    run_of run;

    open_named(&run, *state, 2);
    for (int r = 0; r < 2; r++)
        rank_start(&ranks[r], &run, r, "tcp(open-timeout=20)", NULL, NULL);
    for (int r = 0; r < 2; r++) {
        tutti_status status = rank_end(&ranks[r]);
        if (status != TUTTI_OK)
            print_message("rank %d: %s\n", r, ranks[r].err.text);
        assert_int_equal(status, TUTTI_OK);
    }
    run_close(&run);
}

static void a_name_that_becomes_known_is_found(void **state)
{
    knows(3, 0);
    both_ranks_come(state);
    assert_true(atomic_load(&asked) >= 4);
}

static void a_host_that_gets_another_address_is_found(void **state)
{
    knows(0, 3);
    both_ranks_come(state);
    assert_true(atomic_load(&asked) >= 4);
}

static void a_name_that_stays_unknown_is_an_error(void **state)
{
    real_rank rank;
    run_of run;

    knows(1 << 30, 0);
    open_named(&run, *state, 2);
    rank_start(&rank, &run, 1, "tcp(open-timeout=0.7)", NULL, NULL);
    assert_int_equal(rank_end(&rank), TUTTI_ERR_IO);
    assert_says(rank.err.text, "no address is known for the host '" NAME "': Name or service not known; give one in "
                               "numbers, or mend the name service");
    assert_true(atomic_load(&asked) >= 2);
    run_close(&run);
}

static int setup(void **state) { return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1; }
static int teardown(void **state) { tutti_runtime_close(*state); return 0; }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_becomes_known_is_found),
        cmocka_unit_test(a_host_that_gets_another_address_is_found),
        cmocka_unit_test(a_name_that_stays_unknown_is_an_error),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
