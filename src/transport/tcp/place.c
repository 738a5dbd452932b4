/* place.c: implements place.h: the meeting place of a run, from the environment to a connection. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "place.h"
#include "base/errors.h"

/* ---- what the environment specifies ---- */
tutti_status tutti_tcp_read_place(tcp_finder *f, const tutti_launch *launch, tutti_error *err)
{
    const tcp_within *within = launch->within;
    tcp_endpoint *const e = f->e;
    const char *id = tutti_variable(launch->environment, TUTTI_MEET_VARIABLE_ID),
               *key = tutti_variable(launch->environment, TUTTI_MEET_VARIABLE_KEY);
    const char *file = tutti_variable(launch->environment, TUTTI_MEET_VARIABLE_KEY_FILE),
               *where = tutti_variable(launch->environment, TUTTI_MEET_VARIABLE);

    if (within != NULL) {
        f->id = within->id;
        f->key = within->key;
        if (within->stop != NULL && (e->ended_fd = fcntl(*within->stop, F_DUPFD_CLOEXEC, 0)) < 0)
            return tutti_fail(err, TUTTI_ERR_IO, errno, "worker %d cannot copy a descriptor",
                              e->rank);
        where = within->where;
    } else {
        if (id == NULL || (key == NULL && file == NULL))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                TUTTI_MEET_VARIABLE " is set, but not %s; the launcher sets all of them, start the "
                                    "workers with it",
                id == NULL ? TUTTI_MEET_VARIABLE_ID
                           : TUTTI_MEET_VARIABLE_KEY " or " TUTTI_MEET_VARIABLE_KEY_FILE);
        if (key != NULL && file != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "both " TUTTI_MEET_VARIABLE_KEY " and " TUTTI_MEET_VARIABLE_KEY_FILE
                              " are set; unset one of them");
        TUTTI_TRY(tutti_run_id_parse(&f->id, id, err));
        TUTTI_TRY(key != NULL ? tutti_run_key_parse(&f->key, key, err)
                              : tutti_run_key_read(&f->key, file, err));
    }
    snprintf(f->where, sizeof f->where, "%s", where);
    return TUTTI_OK;
}

tutti_status tutti_tcp_finder_sleep(const tcp_finder *f, struct pollfd *polled, nfds_t n,
                                    int64_t ns, tutti_error *err)
{
    const struct timespec t = { ns > 0 ? ns / 1000000000 : 0, ns > 0 ? ns % 1000000000 : 0 };

    polled[n] = (struct pollfd){ .fd = f->e->ended_fd, .events = POLLIN };
    if (ppoll(polled, n + 1, &t, NULL) > 0 && polled[n].revents != 0)
        return tutti_fail(err, TUTTI_CLOSED, 0,
                          "worker %d is to connect with the others no more", f->e->rank);
    return TUTTI_OK;
}

tutti_status tutti_tcp_find_place(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *const e = f->e;
    bool said = e->waits == NULL;

    for (;;) {
        tutti_error why = { .rank = -1 };
        struct pollfd polled[1];
        const tutti_status status = tutti_tcp_resolve(f->where, &f->place, &why);
        const int64_t left = f->deadline_ns - tutti_now_ns(e->rt);
        if (status != TUTTI_ERR_IO || left <= 0)
            return status == TUTTI_OK ? status : tutti_fail(err, status, 0, "%s", why.text);
        if (!said && tutti_now_ns(e->rt) >= e->report_ns) {
            char line[480];
            snprintf(line, sizeof line, "worker %d waits for the meeting place: %.400s", e->rank,
                     why.text);
            e->waits(e->waits_user, line);
            said = true;
        }
        TUTTI_TRY(tutti_tcp_finder_sleep(f, polled, 0, left < TCP_TICK ? left : TCP_TICK, err));
    }
}

tutti_status tutti_tcp_serve_place(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    const tutti_meet_options options = {
        .address = f->place.at.ss_family == AF_UNIX    ? f->where
                   : f->place.at.ss_family == AF_INET6 ? "::"
                                                       : "0.0.0.0",
        .port = tutti_tcp_address_port(&f->place),
        .size = e->size,
        .id = f->id,
        .key = f->key,
        .gather_ns = (int64_t)(e->options.open_timeout * 1e9),
        .silence_ns = (int64_t)(e->options.peer_timeout * 1e9),
    };

    if (options.port == 0 && f->place.at.ss_family != AF_UNIX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            TUTTI_MEET_VARIABLE
            "='%s' has no port at which worker 0 could serve the meeting place; write host:port",
            f->where);
    return tutti_meet_open(&e->meet, e->rt, &options, err);
}

/* ---- the meeting place ---- */
/* Reports once that worker 0 is missing. Other ranks may report the same; worker 0, once it is
   there, reports repeatedly which ranks are missing. */
static void report_worker_0_missing(const tcp_finder *f, const tcp_call *call)
{
    const tcp_endpoint *e = f->e;
    char line[480];

    snprintf(line, sizeof line,
             "worker %d waits for worker 0, which is to serve the meeting place at %s: %s", e->rank,
             f->where, call->cause != 0 ? tutti_errno_text(call->cause) : "nobody answers");
    e->waits(e->waits_user, line);
}

/* A launcher on this host listens before it starts a worker, and ends that when all have come. So
   where it refuses a connection, waiting does not help. */
static bool is_over(const tcp_finder *f, const tcp_call *call)
{
    return !f->e->at_rank_0 && f->place.at.ss_family == AF_UNIX && call->cause == ECONNREFUSED;
}

tutti_status tutti_tcp_call_place(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    tcp_call call = {
        .fd = -1,
        .to = f->place,
        .timeout_ns = (int64_t)(e->options.peer_timeout * 1e9),
        .hello = { .low = TCP_VERSION_LOW,
                   .high = TCP_VERSION_HIGH,
                   .purpose = TCP_TO_MEET,
                   .from = e->rank,
                   .size = e->size,
                   .id = f->id },
    };
    bool said = e->waits == NULL || !e->at_rank_0 || e->rank == 0;
    tutti_status status;

    for (;;) {
        const int64_t now = tutti_now_ns(e->rt);
        struct pollfd polled[2] = { { .fd = call.fd, .events = tutti_tcp_call_events(&call) } };
        if (!said && now >= e->report_ns) {
            report_worker_0_missing(f, &call);
            said = true;
        }
        if (is_over(f, &call)) {
            tutti_tcp_hang_up(&call.fd);
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "worker %d finds the meeting place at %s (" TUTTI_MEET_VARIABLE
                              ") closed: all workers have met there, or the launcher has ended. Over "
                              "tcp a process can open one world only in a run: open it once and keep "
                              "it, or start the run over shared memory (shm), where a second one is "
                              "possible",
                              e->rank, f->where);
        }
        if (now >= f->deadline_ns) {
            tutti_tcp_hang_up(&call.fd);
            return tutti_fail(
                err, TUTTI_ERR_IO, call.cause,
                "worker %d did not reach the meeting place at %s within %g s (" TUTTI_MEET_VARIABLE
                "); is the launcher running, and does it listen there?",
                e->rank, f->where, e->options.open_timeout);
        }
        status = tutti_tcp_finder_sleep(f, polled, 1,
                                        call.state == TCP_CALL_IDLE       ? call.again_ns - now
                                        : f->deadline_ns - now < TCP_TICK ? f->deadline_ns - now
                                                                          : TCP_TICK,
                                        err);
        if (status == TUTTI_OK && call.state == TCP_CALL_IDLE && call.cause != 0 &&
            tutti_tcp_resolve(f->where, &f->place, NULL) == TUTTI_OK)
            call.to = f->place; /* a host that was started again may have another address */
        if (status == TUTTI_OK)
            status = tutti_tcp_call_step(&call, e->rt, &f->key, &e->rules, err);
        if (status != TUTTI_OK)
            tutti_tcp_hang_up(&call.fd);
        if (status != TUTTI_OK)
            return tutti_fail_within(err, status, "worker %d goes to the meeting place", e->rank);
        if (call.state == TCP_CALL_DONE)
            break;
    }
    status = tutti_tcp_line_open(
        &e->control, call.fd, &call.session, &e->rules,
        e->rules.table_bytes > TCP_REASON_BYTES ? e->rules.table_bytes : TCP_REASON_BYTES, err);
    e->control.received_ns = tutti_now_ns(e->rt);
    sodium_memzero(&call, sizeof call);
    return status;
}
