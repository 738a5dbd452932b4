/* Goal: the latest figures of a run are at http://ADDRESS:PORT/metrics, and no client, whatever it
   sends or does not send, stops or delays the run or other clients. Method: bytes of requests and
   their codes; clients over real sockets, among them silent, slow and wrong ones, while figures
   are shown and asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/files.h"
#include "record/record_internal.h"

enum { ROOM = 1 << 16, PATIENCE_MS = 30000 };

static tutti_runtime *rt;

static int set_up(void **state)
{
    (void)state;
    return tutti_runtime_open_posix(&rt, NULL) == TUTTI_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_runtime_close(rt);
    return 0;
}

/* ---- requests ---- */

static void requests_have_codes(void **state)
{
    static const struct {
        const char *text;
        int code;
        bool head;
    } cases[] = {
        { "", 0, false },
        { "G", 0, false },
        { "GET /metrics HTTP/1.1", 0, false },
        { "GET /metrics HTTP/1.1\r", 0, false },
        { "GET /metrics HTTP/1.1\r\n", 0, false },
        { "GET /metrics HTTP/1.1\r\nHost: a\r\n", 0, false },
        { "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200, false },
        { "GET /metrics HTTP/1.1\r\n\r\n", 200, false },
        { "GET /metrics HTTP/1.0\n\n", 200, false },
        { "GET /metrics?x=1&y=/ HTTP/1.1\r\n\r\n", 200, false },
        { "GET http://host:9400/metrics HTTP/1.1\r\n\r\n", 200, false },
        { "GET http://host:9400/metrics?a=b HTTP/1.1\r\n\r\n", 200, false },
        { "GET http://host:9400 HTTP/1.1\r\n\r\n", 404, false },
        { "GET http:// HTTP/1.1\r\n\r\n", 404, false },
        { "HEAD /metrics HTTP/1.1\r\n\r\n", 200, true },
        { "GET / HTTP/1.1\r\n", 404, false },
        { "GET /metrics/ HTTP/1.1\r\n", 404, false },
        { "GET /../metrics HTTP/1.1\r\n", 404, false },
        { "GET metrics HTTP/1.1\r\n", 404, false },
        { "POST /metrics HTTP/1.1\r\n", 405, false },
        { "get /metrics HTTP/1.1\r\n", 405, false },
        { "GET /metrics HTTP/2.0\r\n", 505, false },
        { "GET /metrics HTTP/1.12\r\n", 400, false },
        { "GET /metrics FTP/1.1\r\n", 400, false },
        { "GET /metrics\r\n", 400, false },
        { "GET  /metrics HTTP/1.1\r\n", 400, false },
        { " GET /metrics HTTP/1.1\r\n", 400, false },
        { "GET /metrics HTTP/1.1 \r\n", 400, false },
        { "\r\n", 400, false },
        { "\n", 400, false },
        { "GET /met\rrics HTTP/1.1\r\n", 400, false },
        { "GET /\x7f", 400, false },
        { "\x16\x03\x01\x02", 400, false }, /* TLS */
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        bool head = !cases[i].head;
        const int code = tutti_record_request(cases[i].text, strlen(cases[i].text), &head);
        if (code != cases[i].code || head != cases[i].head)
            fail_msg("%d for: %s", code, cases[i].text);
    }
}

/* The end of a request is found wherever it was cut, and no byte behind the given ones is read. */
static void requests_come_in_any_parts(void **state)
{
    static const char whole[] = "HEAD /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
    const size_t n = sizeof whole - 1;

    (void)state;
    for (size_t k = 0; k <= n; k++) {
        char *part = malloc(k > 0 ? k : 1); /* for the address sanitizer */
        bool head;
        assert_non_null(part);
        memcpy(part, whole, k);
        assert_int_equal(tutti_record_request(part, k, &head), k == n ? 200 : 0);
        free(part);
    }
}

static void a_request_has_a_most(void **state)
{
    static char text[TUTTI_RECORD_REQUEST];
    bool head;

    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(tutti_record_request(text, sizeof text - 1, &head), 0);
    assert_int_equal(tutti_record_request(text, sizeof text, &head), 431);
    memcpy(text, "GET /metrics HTTP/1.1\r\n", 23);
    assert_int_equal(tutti_record_request(text, sizeof text - 1, &head), 0);
    assert_int_equal(tutti_record_request(text, sizeof text, &head), 431);
    memcpy(text + sizeof text - 4, "\r\n\r\n", 4);
    assert_int_equal(tutti_record_request(text, sizeof text, &head), 200);
}

/* ---- clients ---- */

/* Opens a port that was free; gives its number. */
static int opened(tutti_record_port **p)
{
    static int next;
    tutti_error err = { .rank = -1 };

    if (next == 0)
        next = 15000 + (int)getpid() % 15000;
    for (int k = 0; k < 100; k++) {
        char where[16];
        next = next < 31000 ? next + 1 : 15000;
        snprintf(where, sizeof where, "%d", next);
        if (tutti_record_port_open(p, rt, where, &err) == TUTTI_OK)
            return next;
        assert_null(*p);
    }
    fail_msg("no port: %s", err.text);
    return 0;
}

static int connected(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void say(int fd, const char *text, size_t n)
{
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), n);
}

/* Reads until the other end has closed, without a reset. Gives how many bytes came. */
static size_t until_end(int fd, char *text, size_t room)
{
    size_t n = 0;

    for (;;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        ssize_t got;
        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        got = recv(fd, text + n, room - 1 - n, 0);
        assert_true(got >= 0);
        if (got == 0)
            break;
        n += (size_t)got;
        assert_true(n + 1 < room);
    }
    text[n] = 0;
    return n;
}

static size_t heard(int fd, char *text, size_t room)
{
    const size_t n = until_end(fd, text, room);

    close(fd);
    return n;
}

static void answers(int port, const char *request, const char *wanted)
{
    static char text[ROOM];
    const int fd = connected(port);

    say(fd, request, strlen(request));
    heard(fd, text, sizeof text);
    assert_string_equal(text, wanted);
}

#define FIGURES "tutti_step{run=\"a\"} 3\n"
static const char get[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
static const char reply[] = "HTTP/1.1 200 OK\r\n"
                            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                            "Content-Length: 22\r\nConnection: close\r\n\r\n" FIGURES;

#define NOT_FOUND \
    "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n" \
    "Content-Length: 28\r\nConnection: close\r\n\r\nthe figures are at /metrics\n"

static void show(tutti_record_port *p, const char *text)
{
    assert_int_equal(tutti_record_port_show(p, text, strlen(text), NULL), TUTTI_OK);
}

static void figures_are_what_was_last_shown(void **state)
{
    tutti_record_port *p;
    const int port = opened(&p);

    (void)state;
    answers(port, get, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                       "Content-Length: 0\r\nConnection: close\r\n\r\n");
    show(p, "# earlier\n");
    show(p, FIGURES);
    answers(port, get, reply);
    answers(port, "HEAD /metrics HTTP/1.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 22\r\nConnection: close\r\n\r\n");
    answers(port, "DELETE /metrics HTTP/1.1\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Content-Length: 44\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n"
            "figures can be read (GET), and nothing else\n");
    answers(port, "GET / HTTP/1.1\r\n\r\n", NOT_FOUND);
    tutti_record_port_close(p);
}

/* Each of these is answered or left alone, and the next client has its figures. */
static void wrong_clients_harm_nobody(void **state)
{
    static char big[1 << 20], text[ROOM];
    tutti_record_port *p;
    const int port = opened(&p);

    (void)state;
    show(p, FIGURES);
    memset(big, 'x', sizeof big);
    for (int k = 0; k < 5; k++) {
        const int fd = connected(port);
        if (k == 0)
            say(fd, "\x16\x03\x01\x02\x00\x01", 6);
        if (k == 1) /* more than is read: the port may reset the connection */
            (void)send(fd, big, sizeof big, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k == 2) { /* half a request, and its end */
            say(fd, get, 10);
            assert_int_equal(shutdown(fd, SHUT_WR), 0);
        }
        if (k == 3) /* a whole one, and a client that reads no reply */
            say(fd, get, sizeof get - 1);
        if (k == 0 || k == 2)
            heard(fd, text, sizeof text);
        else
            close(fd);
        if (k == 0)
            assert_memory_equal(text, "HTTP/1.1 400 Bad Request\r\n", 26);
        answers(port, get, reply);
    }
    tutti_record_port_close(p);
}

/* Sends more than the port needs, before and after its reply. Is the connection never reset? */
static bool takes_all(int port)
{
    static char request[2 * TUTTI_RECORD_REQUEST], text[ROOM];
    const int fd = connected(port);
    bool good = true;

    memset(request, 'x', sizeof request);
    memcpy(request, "PUT /metrics HTTP/1.1\r\n", 23);
    say(fd, request, sizeof request);
    until_end(fd, text, sizeof text);
    assert_memory_equal(text, "HTTP/1.1 405 Method Not Allowed\r\n", 33);
    for (int i = 0; good && i < 100; i++)
        good = send(fd, "x", 1, MSG_NOSIGNAL) == 1;
    close(fd);
    return good;
}

/* The port closes when it has read what it does not need: else a reset might overtake the reply. It
   reads for a second, so a client that the machine delays may try again. */
static void a_client_that_sends_more_has_its_reply(void **state)
{
    tutti_record_port *p;
    const int port = opened(&p);
    bool good = false;

    (void)state;
    for (int k = 0; !good && k < 10; k++)
        good = takes_all(port);
    assert_true(good);
    tutti_record_port_close(p);
}

static void a_request_in_bytes_is_answered(void **state)
{
    static char text[ROOM];
    tutti_record_port *p;
    const int port = opened(&p), fd = connected(port);

    (void)state;
    show(p, FIGURES);
    for (size_t i = 0; i < sizeof get - 1; i++) {
        say(fd, get + i, 1);
        if (i % 8 == 0)
            tutti_sleep_until(rt, tutti_now_ns(rt) + 1000000);
    }
    heard(fd, text, sizeof text);
    assert_string_equal(text, reply);
    tutti_record_port_close(p);
}

/* As many silent clients as there are places, and more: they are closed when their time is over,
   and clients that came later are answered. New figures are shown meanwhile, at once. */
static void silent_clients_lose_their_places(void **state)
{
    enum { SILENT = 20, PLACES = 16 };
    static char text[ROOM];
    int silent[SILENT];
    tutti_record_port *p;
    const int port = opened(&p);
    int64_t begin;

    (void)state;
    for (int i = 0; i < SILENT; i++)
        silent[i] = connected(port);
    begin = tutti_now_ns(rt);
    for (int i = 0; i < 1000; i++)
        show(p, FIGURES);
    assert_true(tutti_now_ns(rt) - begin < INT64_C(20) * 1000000000); /* or it waits for clients */
    answers(port, get, reply);
    for (int i = 0; i < PLACES; i++)
        assert_int_equal(heard(silent[i], text, sizeof text), 0);
    for (int i = PLACES; i < SILENT; i++)
        close(silent[i]); /* which have come later, and still have time */
    tutti_record_port_close(p);
}

/* A reply that is larger than what sockets hold comes whole, to several clients that begin to read
   late, while other figures are shown. */
static void a_large_reply_is_whole(void **state)
{
    enum { BYTES = 8 << 20, CLIENTS = 3 };
    char *all = malloc(BYTES), *got = malloc(BYTES + ROOM);
    tutti_record_port *p;
    const int port = opened(&p);
    int fd[CLIENTS];

    (void)state;
    assert_non_null(all);
    assert_non_null(got);
    for (size_t i = 0; i < BYTES; i++)
        all[i] = (char)('a' + i % 23);
    assert_int_equal(tutti_record_port_show(p, all, BYTES, NULL), TUTTI_OK);
    for (int k = 0; k < CLIENTS; k++) {
        struct pollfd wait = { .events = POLLIN };
        wait.fd = fd[k] = connected(port);
        say(fd[k], get, sizeof get - 1);
        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1); /* its reply is made */
    }
    show(p, FIGURES);
    for (int k = 0; k < CLIENTS; k++) {
        const size_t n = heard(fd[k], got, BYTES + ROOM);
        assert_true(n > BYTES);
        assert_memory_equal(got + n - BYTES, all, BYTES);
    }
    free(all);
    free(got);
    tutti_record_port_close(p);
}

/* Closing waits for no client, whose connections end, and the port is free then: also while a
   forked process lives that has inherited the sockets. */
static void a_closed_port_is_free(void **state)
{
    char where[16], text[ROOM];
    tutti_record_port *p;
    const int port = opened(&p), idle = connected(port);
    pid_t child;

    (void)state;
    snprintf(where, sizeof where, "%d", port);
    assert_int_not_equal(tutti_record_port_check(where, true, NULL), TUTTI_OK);
    answers(port, "GET / HTTP/1.0\r\n", NOT_FOUND); /* so the idle client has its place */
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    tutti_record_port_close(p);
    assert_int_equal(tutti_record_port_check(where, true, NULL), TUTTI_OK);
    assert_int_equal(tutti_record_port_open(&p, rt, where, NULL), TUTTI_OK);
    show(p, FIGURES);
    answers(port, get, reply);
    tutti_record_port_close(p);
    tutti_record_port_close(NULL);
    assert_int_equal(heard(idle, text, sizeof text), 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* ---- places ---- */

static void places_are_checked(void **state)
{
    static const char *const right[] = { "9400", "1", "65535", "127.0.0.1:9400", "0.0.0.0:9400",
                                         "localhost:9400", "[::1]:9400", "[::]:9400", "" };
    static const char *const wrong[] = { "0", "65536", "99999999999", "-1", "+1", " 9400", "9400 ",
                                         "9400a", ":9400", "127.0.0.1", "127.0.0.1:", "::1:9400",
                                         "[::1]", "[]:9400", "[127.0.0.1]:9400", "host:9400",
                                         "127.0.0.1:9400:1", "http://127.0.0.1:9400" };

    (void)state;
    assert_int_equal(tutti_record_port_check(NULL, true, NULL), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_LENGTH(right); i++)
        assert_int_equal(tutti_record_port_check(right[i], false, NULL), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++) {
        tutti_error err = { .rank = -1 };
        for (int binds = 0; binds < 2; binds++)
            if (tutti_record_port_check(wrong[i], binds, &err) != TUTTI_ERR_USAGE)
                fail_msg("taken: %s", wrong[i]);
        assert_non_null(strstr(err.text, wrong[i]));
        assert_non_null(strstr(err.text, "give a port from 1 to 65535"));
    }
}

static void a_port_that_cannot_be_had_is_named(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_record_port *p, *second;
    char where[32];
    const int port = opened(&p);

    (void)state;
    snprintf(where, sizeof where, "%d", port);
    assert_int_equal(tutti_record_port_open(&second, rt, where, &err), TUTTI_ERR_USAGE);
    assert_null(second);
    assert_non_null(strstr(err.text, where));
    assert_non_null(strstr(err.text, "another run of this one, has it; choose another port"));
    snprintf(where, sizeof where, "0.0.0.0:%d", port);
    assert_int_equal(tutti_record_port_check(where, true, &err), TUTTI_ERR_USAGE);
    tutti_record_port_close(p);
    /* of a range for documentation (RFC 5737) */
    assert_int_equal(tutti_record_port_check("192.0.2.1:9400", true, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "it is no address of this host"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_have_codes),
        cmocka_unit_test(requests_come_in_any_parts),
        cmocka_unit_test(a_request_has_a_most),
        cmocka_unit_test(figures_are_what_was_last_shown),
        cmocka_unit_test(wrong_clients_harm_nobody),
        cmocka_unit_test(a_client_that_sends_more_has_its_reply),
        cmocka_unit_test(a_request_in_bytes_is_answered),
        cmocka_unit_test(silent_clients_lose_their_places),
        cmocka_unit_test(a_large_reply_is_whole),
        cmocka_unit_test(a_closed_port_is_free),
        cmocka_unit_test(places_are_checked),
        cmocka_unit_test(a_port_that_cannot_be_had_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
