/* Goal: a server (src/server/rule.c) refuses every request that no client of its version makes:
   twice before an answer, with a version that does not exist yet, with another shard's length, in
   a window that is none, with rows that a table does not have. Likewise the worker that sums rows
   of tables (src/engine/rows.c) refuses ids, numbers and bits beyond the table. The run ends,
   with the name of the sender. Method: a method with a server at worker 0 that keeps answers back
   until all have asked, and one that sums; worker 1 asks, and sums, through calls of this file,
   correctly too, so that it is known to do it as the library does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "server/server_internal.h"
#include "tutti/tutti.h"
#include "tutti/method/server.h"

enum { WORKERS = 3, COUNT = 100, MOST = 2, ROWS = 40, COLS = 4, WORD_BITS = 64 };
typedef enum { AS_EVER, TWICE, NEWER, SHORTER, EMPTY, THERE, BY_ROWS } how; /* BY_ROWS: and those behind it */
typedef struct asks { tutti_server *server; tutti_header held[WORKERS]; int n; } asks;
static how now; /* of the one test that runs: a method's ops have no place for a pointer, nor for the next */
/* dropped: words at the end; touched, bits: of sums */
static struct rows_sent { uint32_t told, ids[2]; size_t dropped; int64_t touched; uint64_t bits; } sent;

static tutti_status asks_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    asks *s = m->self;
    const int wanted = now == TWICE ? MOST : WORKERS; /* were the second one taken, the run would end well */

    s->held[s->n++] = r->note;
    if (s->n < wanted)
        return TUTTI_OK;
    s->n = 0;
    return tutti_server_give(s->server, s->held, wanted, 0, err);
}

static tutti_status asks_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return tutti_server_declare(&((asks *)m->self)->server, m, plan,
                                &(tutti_server_setup){ .rule = asks_rule, .service = 0, .servers = 1 }, err);
}

static tutti_status asks_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((asks *)m->self)->server, err);
}

/* slice.h: w as it stands, then how many rows of the table, their ids, the rows. Gives the number
   of 4-byte words. */
static size_t by_rows(float *words)
{
    memset(words, 0, COUNT * sizeof *words);
    memcpy(words + COUNT, &sent.told, sizeof sent.told);
    memcpy(words + COUNT + 1, sent.ids, sizeof sent.ids);
    memset(words + COUNT + 3, 0, 2 * COLS * sizeof *words);
    return COUNT + 3 + 2 * COLS - sent.dropped;
}

static tutti_status asks_step(tutti_method *m, tutti_error *err)
{
    asks *s = m->self;
    tutti_server_answers answers;
    const int member[MOST] = { 0, 0 };
    tutti_header note[MOST] = { { .kind = 0 } };
    float room[MOST][512], words[COUNT + 3 + 2 * COLS];
    tutti_buffer request[MOST], reply[MOST];
    tutti_engine_call call[MOST];
    tutti_request *each[MOST];
    const size_t used = m->layout->used;
    tutti_status status;

    if (m->rank != 1 && now == TWICE) /* the two are all that come */
        return TUTTI_OK;
    if (m->rank != 1 || now == AS_EVER)
        return tutti_server_push(s->server, 0, 0, m->g, m->x, &answers, err);
    memset(call, 0, sizeof call);
    for (int k = 0; k < MOST; k++) {
        note[k].a = now == NEWER ? 7 : 0;
        note[k].kind = now == THERE ? FROM_WINDOW : 0; /* of a method whose g is in no window */
        request[k] = now == BY_ROWS ? tutti_f32(m->device, words, by_rows(words))
                     : now == EMPTY ? tutti_f32(m->device, m->g, 1)
                                    : tutti_f32(m->device, m->g, used - (now == SHORTER ? 16 : 0));
        reply[k] = tutti_f32(m->device, room[k], now == BY_ROWS ? TUTTI_LENGTH(room[k]) : used);
    }
    status =
        tutti_engine_calls(m->engine, 0, now == TWICE ? 2 : 1, member, note, request, NULL, reply, call, each, err);
    /* it was ended because a service here has learned of the server's end first */
    return status == TUTTI_CLOSED ? tutti_engine_check_services(m->engine, err) : status;
}

static tutti_status asks_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(((asks *)m->self)->server, err);
}

static const tutti_service services[] = { { "serve", asks_serve }, { 0 } };
static const tutti_method_ops asks_ops = {
    .name = "asks", .self_bytes = sizeof(asks), .traits = TUTTI_SHARDED_OPTIMIZER, .services = services,
    .declare = asks_declare, .step = asks_step, .final_model = asks_final_model,
};
static const tutti_method_ops asks_rows_ops = {
    .name = "asks-rows", .self_bytes = sizeof(asks), .traits = TUTTI_SHARDED_OPTIMIZER | TUTTI_SPARSE_ROWS,
    .services = services, .declare = asks_declare, .step = asks_step, .final_model = asks_final_model,
};

/* What tutti_exchange makes of a table: all report how many rows they have touched; then ids and
   rows, or, where the table travels whole under a lazy optimiser, a bit a row. */
static tutti_status sums_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    int64_t told[WORKERS];
    size_t counts[WORKERS], words = 0;
    uint32_t mine[(size_t)ROWS * (1 + COLS)] = { 0 }, all[(size_t)WORKERS * ROWS * (1 + COLS)];
    uint64_t bits[WORKERS];

    if (m->rank != 1 || now != BY_ROWS || p->rows == NULL)
        return tutti_exchange(m, p, 1, err);
    TUTTI_TRY(
        tutti_allgather(&p->group, tutti_host(&sent.touched, 1, TUTTI_I64), tutti_host(told, WORKERS, TUTTI_I64), err));
    if (sent.touched < 0 || sent.touched > ROWS)
        return TUTTI_OK; /* no worker continues */
    for (int r = 0; r < WORKERS; r++)
        words += counts[r] = (size_t)told[r] * (1 + COLS);
    if (words >= 2 * (size_t)ROWS * COLS) {
        TUTTI_TRY(tutti_allgather(&p->group, tutti_host(&sent.bits, 1, TUTTI_I64), tutti_host(bits, WORKERS, TUTTI_I64),
                                  err));
        return tutti_allreduce_weighted(&p->group, 1, tutti_f32(m->device, p->g, p->count), err);
    }
    memcpy(mine, sent.ids, sizeof sent.ids);
    return tutti_allgather_v(&p->group, counts, tutti_host(mine, counts[1], TUTTI_I32),
                             tutti_host(all, words, TUTTI_I32), err);
}

static const tutti_method_ops sums_ops = {
    .name = "sums", .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SPARSE_ROWS, .exchange = sums_exchange,
};
static const tutti_method_ops *const methods[] = { &asks_ops, &asks_rows_ops, &sums_ops, NULL };

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[2] = { { .name = "w", .dims = 1, .dim = { COUNT } },
                                    { .name = "table", .dims = 2, .dim = { ROWS, COLS }, .row_sparse = true } };
    const char *const method = arg;
    const bool table = strcmp(method, "asks") != 0;
    uint32_t ids[ROWS];
    tutti_engine *e;
    tutti_status status;

    for (uint32_t k = 0; k < ROWS; k++)
        ids[k] = k;
    TUTTI_TRY(tutti_engine_open_from(
        &e, world, params, 1 + table,
        &(tutti_engine_options){ .method = method, .optimizer = "sgd(lr=0.5,momentum=0.5,lazy=on)", .batch = 1 },
        methods, err));
    status = TUTTI_OK;
    for (int k = 0; k < 3 && status == TUTTI_OK; k++) {
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            memset(tutti_engine_gradient(e, 0), 0, COUNT * sizeof(float));
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            if (table) /* few rows, or all but one */
                TUTTI_TRY(tutti_engine_grad_ready_rows(e, 1, ids, sent.touched == ROWS - 1 ? ROWS - 1 : 2, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static void malformed_requests_are_rejected_with_the_senders_rank(void **state)
{
    static const struct { how how; const char *sentence;
    } cases[] = {
        { AS_EVER, NULL },
        { TWICE, "worker 1 asks again before it was answered; all workers must run one version" },
        { NEWER,
          "worker 1 reports version 7 of a shard that is at version 0; all workers must run one checkpoint" },
        { SHORTER, "worker 1 sent " },
        { EMPTY, "worker 1 sent 4 bytes for a slice of " },
        { THERE, "worker 1 wants a slice to be read or written in its window, which this one is not; all workers must "
                 "run one version" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { .rank = -1 };
        tutti_status status;
        now = cases[k].how;
        status = tutti_world_run("shm", WORKERS, run_rank, (void *)(uintptr_t)"asks", &err);
        if (cases[k].sentence == NULL) {
            if (status != TUTTI_OK)
                fail_msg("%s", err.text);
        } else if (status != TUTTI_ERR_CORRUPT || strstr(err.text, cases[k].sentence) == NULL)
            fail_msg("wanted '%s', got %d: '%s'", cases[k].sentence, (int)status, err.text);
    }
}

/* One case, as sent by worker 1. sentence: NULL: the run ends well. */
static void send_rows(const char *method, struct rows_sent what, const char *sentence)
{
    tutti_error err = { .rank = -1 };
    tutti_status status;

    now = BY_ROWS;
    sent = what;
    status = tutti_world_run("shm", WORKERS, run_rank, (void *)(uintptr_t)method, &err);
    if (sentence == NULL ? status != TUTTI_OK : status != TUTTI_ERR_CORRUPT || strstr(err.text, sentence) == NULL)
        fail_msg("%s: wanted '%s', got %d: '%s'", method, sentence != NULL ? sentence : "", (int)status, err.text);
}

static void invalid_row_requests_are_rejected_with_the_senders_rank(void **state)
{
    (void)state;
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 5 }, 0, 0, 0 }, NULL);
    send_rows("asks-rows", (struct rows_sent){ 2, { 0, ROWS - 1 }, 0, 0, 0 }, NULL);
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, ROWS }, 0, 0, 0 },
              "worker 1 sent row 40 of table at place 1, where rows 0 to 39 are valid, in ascending order");
    send_rows("asks-rows", (struct rows_sent){ 2, { UINT32_MAX, 5 }, 0, 0, 0 },
              "worker 1 sent row 4294967295 of table at place 0, where rows 0 to 39 are valid");
    send_rows("asks-rows", (struct rows_sent){ 2, { 5, 3 }, 0, 0, 0 },
              "worker 1 sent row 3 of table at place 1, where rows 0 to 39 are valid, in ascending order");
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 3 }, 0, 0, 0 }, "worker 1 sent row 3 of table at place 1");
    send_rows("asks-rows", (struct rows_sent){ ROWS + 1, { 3, 5 }, 0, 0, 0 },
              "worker 1 sent 41 rows of table, but 40 are served here");
    /* fewer than it announces */
    send_rows("asks-rows", (struct rows_sent){ 3, { 3, 5 }, 0, 0, 0 },
              "worker 1 sent 444 bytes, which do not make a slice of ");
    /* more */
    send_rows("asks-rows", (struct rows_sent){ 1, { 3, 5 }, 0, 0, 0 },
              "worker 1 sent 444 bytes, which do not make a slice of ");
    /* cut within a row */
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 5 }, 1, 0, 0 },
              "worker 1 sent 440 bytes, which do not make a slice of ");
    /* within the ids */
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 5 }, 2 * COLS + 1, 0, 0 },
              "worker 1 sent 408 bytes, which do not make a slice of ");
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 5 }, 2 * COLS + 3, 0, 0 },
              "worker 1 sent 400 bytes, which end before table");
    /* within w */
    send_rows("asks-rows", (struct rows_sent){ 2, { 3, 5 }, 2 * COLS + 4, 0, 0 },
              "worker 1 sent 396 bytes, which do not make a slice of ");
}

static void rows_beyond_the_table_are_rejected_in_sums(void **state)
{
    const uint64_t beyond = UINT64_C(1) << ROWS, last = UINT64_C(1) << (WORD_BITS - 1);

    (void)state;
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, 2, 0 }, NULL);
    send_rows("sums", (struct rows_sent){ 0, { 3, ROWS }, 0, 2, 0 },
              "worker 1 sent row 40 of table at place 1, where rows 0 to 39 are valid, in ascending order");
    send_rows("sums", (struct rows_sent){ 0, { UINT32_MAX, 5 }, 0, 2, 0 }, "worker 1 sent row 4294967295 of table");
    send_rows("sums", (struct rows_sent){ 0, { 5, 3 }, 0, 2, 0 },
              "worker 1 sent row 3 of table at place 1, where rows 0 to 39 are valid, in ascending order");
    send_rows("sums", (struct rows_sent){ 0, { 3, 3 }, 0, 2, 0 }, "worker 1 sent row 3 of table");
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, ROWS + 1, 0 },
              "worker 1 has touched 41 rows of table, which has 40");
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, -1, 0 },
              "worker 1 has touched -1 rows of table, which has 40");
    /* the table whole, and a bit a row */
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, ROWS - 1, beyond - 1 }, NULL);
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, ROWS - 1, beyond },
              "worker 1 has touched rows of table beyond its 40");
    send_rows("sums", (struct rows_sent){ 0, { 3, 5 }, 0, ROWS - 1, last | 1 },
              "worker 1 has touched rows of table beyond its 40");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_requests_are_rejected_with_the_senders_rank),
        cmocka_unit_test(invalid_row_requests_are_rejected_with_the_senders_rank),
        cmocka_unit_test(rows_beyond_the_table_are_rejected_in_sums),
    };
    return cmocka_run_group_tests_name("method/requests", tests, NULL, NULL);
}
