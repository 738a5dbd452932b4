/* Goal: a server (src/engine/server.c) takes no request that no client of its version makes: twice before an answer, with a version that does not exist yet, with another slice's length, in a window that is none. The run ends, with the name
   of who asked.
   Method: a method with a server at worker 0 that keeps answers back until all have asked; worker 1 asks by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/server_internal.h"
#include "tutti/engine.h"
#include "tutti/server.h"

enum { WORKERS = 3, COUNT = 100, MOST = 2 };
typedef enum { AS_EVER, TWICE, NEWER, SHORTER, EMPTY, THERE } how;
typedef struct asks { tutti_server *server; tutti_note held[WORKERS + 1]; int n; } asks;
static how now; /* of the one test that runs: a method's ops have no place for it */

static tutti_status asks_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    asks *s = m->self;

    s->held[s->n++] = r->note;
    if (s->n < (now == TWICE ? WORKERS + 1 : WORKERS))
        return TUTTI_OK;
    s->n = 0;
    TUTTI_TRY(tutti_server_give(s->server, s->held, WORKERS, 0, err));
    return now == TWICE ? tutti_server_give(s->server, s->held + WORKERS, 1, 0, err) : TUTTI_OK; /* were the second one of a worker taken, the run would end well */
}

static tutti_status asks_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return tutti_server_declare(&((asks *)m->self)->server, m, plan, &(tutti_server_setup){ .rule = asks_rule, .service = 0, .servers = 1 }, err);
}

static tutti_status asks_open(tutti_method *m, tutti_error *err) { return tutti_server_open(((asks *)m->self)->server, err); }
static void asks_close(tutti_method *m) { tutti_server_close(((asks *)m->self)->server); }
static tutti_status asks_serve(tutti_method *m, tutti_error *err) { return tutti_server_run(((asks *)m->self)->server, err); }

static tutti_status asks_step(tutti_method *m, tutti_error *err)
{
    asks *s = m->self;
    tutti_server_answers answers;
    const int member[MOST] = { 0, 0 };
    tutti_note note[MOST] = { { .kind = 0 } };
    float room[MOST][256];
    tutti_buffer request[MOST], reply[MOST];
    tutti_engine_call call[MOST];
    tutti_request *each[MOST];
    const size_t used = m->layout->used;

    if (m->rank != 1 || now == AS_EVER)
        return tutti_server_push(s->server, 0, 0, m->g, m->x, &answers, err);
    memset(call, 0, sizeof call);
    for (int k = 0; k < MOST; k++) {
        note[k].a = now == NEWER ? 7 : 0;
        note[k].kind = now == THERE ? FROM_THERE : 0; /* of a method whose g is in no window */
        request[k] = now == EMPTY ? tutti_f32(m->device, m->g, 1) : tutti_f32(m->device, m->g, used - (now == SHORTER ? 16 : 0));
        reply[k] = tutti_f32(m->device, room[k], used);
    }
    return tutti_engine_calls(m->engine, 0, now == TWICE ? 2 : 1, member, note, request, NULL, reply, call, each, err);
}

static tutti_status asks_agree(tutti_method *m, tutti_error *err) { return tutti_server_agree(((asks *)m->self)->server, err); }

static const tutti_service services[] = { { "serve", asks_serve }, { 0 } };
static const tutti_method_ops asks_ops = { .name = "asks", .self_bytes = sizeof(asks), .traits = TUTTI_UPDATES_SLICES, .services = services, .declare = asks_declare, .open = asks_open, .close = asks_close, .step = asks_step,
                                           .agree = asks_agree };
static const tutti_method_ops *const methods[] = { &asks_ops, NULL };

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { COUNT } };
    tutti_engine *e;
    tutti_status status;

    (void)arg;
    TUTTI_TRY(tutti_engine_open_from(&e, world, &param, 1, &(tutti_engine_options){ .method = "asks", .optimizer = "sgd(lr=0.5)", .batch = 1 }, methods, err));
    status = TUTTI_OK;
    for (int k = 0; k < 3 && status == TUTTI_OK; k++) {
        tutti_pass p;
        while ((status = tutti_engine_pass(e, &p, err)) == TUTTI_OK) {
            memset(tutti_engine_gradient(e, 0), 0, COUNT * sizeof(float));
            TUTTI_TRY(tutti_engine_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_passed(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static void requests_that_no_worker_of_its_version_makes_are_refused_by_name(void **state)
{
    static const struct { how how; const char *sentence; } cases[] = {
        { AS_EVER, NULL }, { TWICE, "worker 1 asks again before it was answered; all workers must run one version" },
        { NEWER, "worker 1 says that it has version 7 of a slice of which there is 0; all workers must run one checkpoint" },
        { SHORTER, "worker 1 sent " }, { EMPTY, "worker 1 sent 4 bytes for a slice of " },
        { THERE, "worker 1 wants a slice to be read or written in its window, which this one is not; all workers must run one version" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { .rank = -1 };
        tutti_status status;
        now = cases[k].how;
        status = tutti_world_run("shm", WORKERS, run_rank, NULL, &err);
        if (cases[k].sentence == NULL) {
            if (status != TUTTI_OK)
                fail_msg("%s", err.text);
        } else if (status != TUTTI_ERR_CORRUPT || strstr(err.text, cases[k].sentence) == NULL)
            fail_msg("wanted '%s', got %d: '%s'", cases[k].sentence, (int)status, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_no_worker_of_its_version_makes_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("method/requests", tests, NULL, NULL);
}
