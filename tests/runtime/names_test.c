/* Goal: a name service that is slow, or never answers, costs its time limit and nothing else;
   answers and failures are passed on. Method: resolvers of the test's own, which wait until they
   are let go; the sanitizers see what is left. */
#include "runtime/names.h"
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static atomic_bool open_gate;
static atomic_int inside, through;

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static int numbers(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    struct addrinfo numeric = *hints;

    numeric.ai_flags |= AI_NUMERICHOST;
    return getaddrinfo(strcmp(host, "here") == 0 ? "127.0.0.1" : host, service, &numeric, list);
}

static int behind_a_gate(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int code;

    atomic_fetch_add(&inside, 1);
    while (!atomic_load(&open_gate))
        nap();
    code = numbers(host, service, hints, list);
    atomic_fetch_add(&through, 1);
    return code;
}

static int refuses(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    (void)service, (void)hints, (void)list;
    errno = EMFILE;
    return strcmp(host, "system") == 0 ? EAI_SYSTEM : EAI_FAIL;
}

static const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET };

static void answers_and_failures_are_passed_on(void **state)
{
    struct addrinfo *list;
    (void)state;

    assert_null(tutti_lookup_by(numbers, "here", "80", &hints, TUTTI_LOOKUP_NS, &list));
    assert_non_null(list);
    assert_int_equal(((struct sockaddr_in *)(void *)list->ai_addr)->sin_port, htons(80));
    freeaddrinfo(list);
    assert_string_equal(tutti_lookup_by(refuses, "system", "80", &hints, TUTTI_LOOKUP_NS, &list),
                        strerrordesc_np(EMFILE));
    assert_null(list);
    assert_string_equal(tutti_lookup_by(refuses, "any", "80", &hints, TUTTI_LOOKUP_NS, &list), gai_strerror(EAI_FAIL));
    assert_null(list);
}

static void localhost_needs_no_name_service(void **state)
{
    struct addrinfo *list, six = hints, asked = hints;
    (void)state;

    asked.ai_flags = AI_NUMERICHOST; /* fails where a name service would be asked */
    assert_null(tutti_lookup("localhost", "80", &asked, &list));
    assert_int_equal(((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    freeaddrinfo(list);
    asked.ai_family = AF_UNSPEC;
    assert_null(tutti_lookup("LOCALHOST", NULL, &asked, &list));
    assert_int_equal(list->ai_family, AF_INET);
    freeaddrinfo(list);
    six.ai_flags = AI_NUMERICHOST;
    six.ai_family = AF_INET6;
    assert_null(tutti_lookup("localhost", "80", &six, &list));
    assert_true(IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)list->ai_addr)->sin6_addr));
    freeaddrinfo(list);
    assert_non_null(tutti_lookup("localhost.example", "80", &asked, &list));
}

static void numeric_addresses_are_resolved_and_bad_services_rejected(void **state)
{
    struct addrinfo *list;
    (void)state;

    assert_null(tutti_lookup("127.0.0.1", "9", &hints, &list));
    assert_non_null(list);
    freeaddrinfo(list);
    assert_non_null(tutti_lookup("127.0.0.1", "no-such-service-9", &hints, &list));
    assert_null(list);
}

static void loopback_addresses_are_those_that_no_other_host_reaches(void **state)
{
    static const struct { const char *text; bool loopback; } cases[] = {
        { "127.0.0.1", true }, { "127.8.0.9", true },   { "::1", true },
        { "10.0.0.1", false }, { "128.0.0.1", false }, { "::", false }, { "fe80::1", false },
    };
    const struct addrinfo both = { .ai_socktype = SOCK_STREAM };

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct addrinfo *list;
        assert_null(tutti_lookup(cases[k].text, "9", &both, &list));
        assert_int_equal(tutti_is_loopback(list->ai_addr), cases[k].loopback);
        freeaddrinfo(list);
    }
}

/* Given up, and answered later: by then the names that were asked for are gone, and the answer is
   not wanted. */
static void a_late_answer_is_thrown_away(void **state)
{
    char host[] = "here", service[] = "80";
    struct addrinfo *list;
    struct timespec begin, end;
    (void)state;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_string_equal(tutti_lookup_by(behind_a_gate, host, service, &hints, 20000000, &list),
                        "the name service gives no answer within 5 s");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_null(list);
    assert_true(end.tv_sec - begin.tv_sec < 10);
    memset(host, 'x', sizeof host - 1);
    memset(service, 'x', sizeof service - 1);
    while (atomic_load(&inside) == 0)
        nap();
    assert_int_equal(atomic_load(&through), 0);
    atomic_store(&open_gate, true);
    while (atomic_load(&through) == 0)
        nap();
    for (int k = 0; k < 50; k++) /* the thread has some instructions left to run: for the leak checker */
        nap();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_failures_are_passed_on),
        cmocka_unit_test(numeric_addresses_are_resolved_and_bad_services_rejected),
        cmocka_unit_test(localhost_needs_no_name_service),
        cmocka_unit_test(loopback_addresses_are_those_that_no_other_host_reaches),
        cmocka_unit_test(a_late_answer_is_thrown_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
