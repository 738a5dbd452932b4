/* Goal: services become quiescent all over the run exactly when tutti.h states, leave nothing in
   flight, continue afterwards and end; gradients of an asynchronous method are handed out once
   each. Method: toy methods on ranks that are threads, with random pauses; what a service does is
   counted in memory that all ranks share, and may not move while all are quiescent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method.h"

enum { MOST = 8, GRADIENTS = 4096 };
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

/* What the test's ranks share. */
typedef struct shared {
    const tutti_method_ops *ops;
    int phases, steps;           /* steps a phase */
    bool show;
    uint64_t first;              /* gradients done before: a resumed run */
    _Atomic int64_t asked, served, active; /* rounds begun; requests served; services at work */
    _Atomic int held, released;
    _Atomic int taken[GRADIENTS];
    int bad_rank, bad_round;     /* the service of that rank fails there; -1 */
    int own[MOST];
    tutti_figures figures[MOST];
} shared;

typedef struct relay { tutti_monitor *lock; shared *s; int64_t rounds; } relay;
static shared *now; /* of the one test that runs: a method's ops have no place for it */

static void pause_a_little(tutti_method *m, uint64_t what)
{
    const uint64_t draw = tutti_random((tutti_rng){ 5, (uint64_t)m->rank, what }, 0) % 8;
    if (draw < 3)
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + (int64_t)draw * 100000);
}

/* Each round asks the next worker, whose server asks the one after it (a request that
   sets off another), two hops in all. */
static tutti_status relay_ask(tutti_method *m, tutti_error *err)
{
    relay *r = m->self;
    tutti_status status;

    while ((status = tutti_round_next(m, 0, false, err)) == TUTTI_OK) {
        tutti_header note = { .kind = 1, .a = 2 };
        atomic_fetch_add(&now->active, 1);
        atomic_fetch_add(&now->asked, 1);
        pause_a_little(m, (uint64_t)r->rounds);
        if (m->rank == now->bad_rank && r->rounds == now->bad_round)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d: the relay broke", m->rank);
        r->rounds++;
        TUTTI_TRY(tutti_rpc_call(m, 1, (m->rank + 1) % m->workers, &note, tutti_nothing(), tutti_nothing(), err));
        CHECK(note.a == 3);
        pause_a_little(m, 1000 + (uint64_t)r->rounds);
        atomic_fetch_sub(&now->active, 1);
    }
    return status;
}

static tutti_status relay_serve(tutti_method *m, tutti_error *err)
{
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(m, 1, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_header further = { .a = note.a - 1 };
        atomic_fetch_add(&now->active, 1);
        atomic_fetch_add(&now->served, 1);
        if (note.a > 1)
            TUTTI_TRY(
                tutti_rpc_call(m, 2, (m->rank + 1) % m->workers, &further, tutti_nothing(), tutti_nothing(), err));
        TUTTI_TRY(tutti_rpc_reply(m, &note, &(tutti_header){ .a = 3 }, err));
        pause_a_little(m, (uint64_t)note.ticket); /* still at work after the answer */
        atomic_fetch_sub(&now->active, 1);
    }
    return status;
}

static tutti_status relay_end_of_the_line(tutti_method *m, tutti_error *err)
{
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(m, 2, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        atomic_fetch_add(&now->active, 1);
        atomic_fetch_add(&now->served, 1);
        TUTTI_TRY(tutti_rpc_reply(m, &note, NULL, err));
        pause_a_little(m, (uint64_t)note.ticket);
        atomic_fetch_sub(&now->active, 1);
    }
    return status;
}

static tutti_status relay_step(tutti_method *m, tutti_error *err)
{
    TUTTI_TRY(tutti_base_step(m, err));
    tutti_round_post(m, 0, 2);
    return m->step % 3 == 0 ? tutti_round_await(m, 0, 1, err) : TUTTI_OK;
}

static tutti_status relay_quiesce(tutti_method *m, tutti_error *err)
{
    (void)m;
    (void)err;
    atomic_fetch_add(&now->held, 1);
    return TUTTI_OK;
}

static tutti_status relay_resume(tutti_method *m, tutti_error *err)
{
    (void)m;
    (void)err;
    atomic_fetch_add(&now->released, 1);
    return TUTTI_OK;
}

static const tutti_service relay_services[] = {
    { "ask", relay_ask }, { "serve", relay_serve }, { "end", relay_end_of_the_line }, { 0 }
};
static const tutti_method_ops own_pace = {
    .name = "relay", .self_bytes = sizeof(relay), .traits = TUTTI_ASYNC, .services = relay_services,
    .step = relay_step, .quiesce = relay_quiesce, .resume = relay_resume,
};
static const tutti_method_ops together = {
    .name = "relay", .self_bytes = sizeof(relay), .services = relay_services, .step = relay_step,
    .quiesce = relay_quiesce, .resume = relay_resume,
};
static const tutti_method_ops without_services = { .name = "relay", .traits = TUTTI_ASYNC };

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (p.index == 0 && m->ops->traits & TUTTI_ASYNC && m->rng.step < GRADIENTS)
            atomic_fetch_add(&now->taken[m->rng.step], 1);
        pause_a_little((tutti_method *)m, 77 + m->rng.step);
        m->g[0] = 1;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, (double)p.samples, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* nothing may be in flight, and nothing may begin */
static tutti_status look(tutti_engine *e, tutti_world *world, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, 99);
    const tutti_method *m = tutti_engine_method(e);
    int64_t before[2];

    if (now->show)
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
    TUTTI_TRY(tutti_barrier(&all, err)); /* no rank looks before all are quiescent */
    CHECK(atomic_load(&now->active) == 0);
    before[0] = atomic_load(&now->asked);
    before[1] = atomic_load(&now->served);
    CHECK(before[1] == 2 * before[0]);
    tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 2000000);
    CHECK(atomic_load(&now->active) == 0 && atomic_load(&now->asked) == before[0] &&
          atomic_load(&now->served) == before[1]);
    TUTTI_TRY(tutti_barrier(&all, err)); /* no rank continues before all have looked */
    return now->show ? tutti_engine_eval_end(e, err) : TUTTI_OK;
}

static tutti_status work(tutti_engine *e, tutti_world *world, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const bool own = m->ops->traits & TUTTI_ASYNC;

    for (int phase = 1; phase <= now->phases; phase++) {
        const uint64_t until =
            (uint64_t)(phase * now->steps) * (own ? (uint64_t)m->workers : 1) + (own ? (uint64_t)phase % 3 : 0);
        bool more, again;
        TUTTI_TRY(tutti_engine_more(e, until, &more, err));
        while (more) {
            TUTTI_TRY(tutti_engine_more(e, until, &again, err));
            CHECK(again); /* asking twice takes nothing */
            TUTTI_TRY(one_step(e, err));
            now->own[m->rank]++;
            TUTTI_TRY(tutti_engine_more(e, until, &more, err));
        }
        if (own || now->show)
            TUTTI_TRY(look(e, world, err));
        if (own && m->rank == 0) {
            tutti_received received;
            tutti_engine_received(e, &received);
            CHECK(received.gradients == until && received.samples == 2 * (double)until &&
                  received.loss_sum == received.samples);
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_figures(e, &now->figures[m->rank]);
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_method_ops *const methods[] = { now->ops, NULL };
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 5 } };
    tutti_engine *e;
    tutti_status status;

    (void)arg;
    status = tutti_engine_open_from(&e, world, &param, 1,
                                    &(tutti_engine_options){ .method = "relay", .optimizer = "sgd(lr=1)", .batch = 2 },
                                    methods, err);
    if (status == TUTTI_OK)
        status = work(e, world, err);
    tutti_engine_close(e);
    return status;
}

static shared shared_of(const tutti_method_ops *ops)
{
    return (shared){ .ops = ops, .phases = 4, .steps = 5, .bad_rank = -1 };
}

static const int sizes[] = { 1, 2, 3, 5, 8 };

static void quiescent_run_has_nothing_in_flight_and_continues_afterwards(void **state)
{
    static shared s;

    (void)state;
    now = &s;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
        for (int kind = 0; kind < 3; kind++) {
            const int n = sizes[p];
            tutti_error err = { .rank = -1 };
            int64_t steps = 0;
            s = shared_of(kind == 0 ? &together : &own_pace);
            s.show = kind < 2;
            if (tutti_world_run("shm", n, run_rank, NULL, &err) != TUTTI_OK)
                fail_msg("%d workers, kind %d: %s", n, kind, err.text);
            for (int r = 0; r < n; r++)
                steps += s.own[r];
            assert_int_equal(steps, 20 * n + (kind > 0)); /* 4 phases of 5 steps each; the last phase's odd gradient */
            assert_int_equal(s.asked, 2 * steps);
            assert_int_equal(s.held, 4 * n + (kind == 0 ? 0 : 0));
            assert_int_equal(s.released, 4 * n);
            for (int r = 0; r < n; r++) {
                assert_int_equal(s.figures[r].gradients, kind == 0 ? 20 : 20 * n + 1);
                assert_int_equal(s.figures[r].steps, kind == 0 ? 20 : (20 * n + 1 + n - 1) / n);
                assert_int_equal(s.figures[r].own_steps, s.own[r]);
            }
        }
}

static void every_gradient_is_handed_out_once(void **state)
{
    static shared s;

    (void)state;
    now = &s;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
        for (int kind = 0; kind < 2; kind++) {
            const int n = sizes[p];
            tutti_error err = { .rank = -1 };
            s = shared_of(kind == 0 ? &own_pace : &without_services);
            s.steps = 30;
            if (tutti_world_run("shm", n, run_rank, NULL, &err) != TUTTI_OK)
                fail_msg("%d workers, kind %d: %s", n, kind, err.text);
            for (int k = 0; k < GRADIENTS; k++)
                assert_int_equal(s.taken[k], k < 120 * n + 1);
        }
}

static void failing_service_ends_the_run_with_its_error(void **state)
{
    static shared s;

    (void)state;
    now = &s;
    for (int round = 0; round < 12; round++)
        for (int kind = 0; kind < 2; kind++) {
            tutti_error err = { .rank = -1 };
            s = shared_of(kind == 0 ? &own_pace : &together);
            s.show = true;
            s.bad_rank = round % 4;
            s.bad_round = round % 5; /* each takes its first step whatever the others do, and
                                        then asks for two rounds a step */
            assert_int_equal(tutti_world_run("shm", 4, run_rank, NULL, &err), TUTTI_ERR_STATE);
            assert_non_null(strstr(err.text, "the relay broke"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiescent_run_has_nothing_in_flight_and_continues_afterwards),
        cmocka_unit_test(every_gradient_is_handed_out_once),
        cmocka_unit_test(failing_service_ends_the_run_with_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
