/* Goal: values that are held by unit are there from unit_acquire to unit_release, whatever the
   client does. An order that changes, from one step to the next or within one, gives the bits of
   ddp; a unit that is acquired twice, or skipped, too. Two workers that need different units end
   with a sentence that names both, and a worker that has left is named. Clients that cannot be
   served are refused. Method: a client of four units whose order is a list a step, on ranks that
   are threads, with a lane and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { TENSORS = 5, UNITS = 4, STEPS = 4, RANKS = 3, SIZE = 700 + 30 + 200 + 64 + 9, END = -1 };
static const size_t counts[TENSORS] = { 700, 30, 200, 64, 9 };
static const int units[TENSORS] = { 3, 3, 2, 1, 0 };
static const char *const names[TENSORS] = { "head.w", "head.b", "c", "b", "a" };

typedef struct script {
    const char *method;
    tutti_engine_options options;
    const int *forward[STEPS]; /* by step; END-ended; NULL: 0 1 2 3 */
    const int *odd_one;          /* of the last worker in step 2; NULL: as the others */
    bool apart, values;
    bool parts;                  /* a unit has done a part of its backward before it has gradients */
    bool leaves;                 /* worker 1 leaves while worker 0 is between two units */

    float x[RANKS][SIZE];
    double live;
    tutti_status ended;          /* how worker 0 has, and why */
    tutti_error why;
} script;

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = (float)((i * 7 + (size_t)tensor) % 11) / 11;
}

static tutti_status look(tutti_engine *e, int unit, float *sum)
{
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k] && units[k] == unit; i++)
            *sum += tutti_engine_values(e, k)[i];
    return TUTTI_OK;
}

/* Gradients depend on what forward read. */
static tutti_status pass(tutti_engine *e, const int *order, bool parts, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    float sum = 0, before = 0, after = 0, g[SIZE];

    for (; *order != END; order++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, *order, false, err));
        look(e, *order, &sum);
        TUTTI_TRY(tutti_engine_unit_release(e, *order, false, err));
        for (int k = 0; k < TENSORS; k++) /* nowhere else */
            if (m->held == TUTTI_HELD_BY_UNIT)
                assert_null(tutti_engine_values(e, k));
    }
    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        if (parts) {
            TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
            TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        }
        look(e, u, &before);
        for (int k = 0; k < TENSORS; k++) {
            const float *x = tutti_engine_values(e, k);
            for (size_t i = 0; i < counts[k] && units[k] == u; i++)
                g[i] = 0.25f * x[i] + 0.001f * sum + (float)((m->step + i + (size_t)m->rank) % 5) / 8;
            if (units[k] == u)
                TUTTI_TRY(tutti_engine_grad_ready_from(e, k, g, TUTTI_F32, err));
        }
        if (parts) /* what is exchanged meanwhile could be updated */
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 3000000);
        look(e, u, &after);
        if (before < after || before > after)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "values of unit %d change before it is done", u);
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    return tutti_engine_pass_end(e, 0, err);
}

static tutti_status copy_values(tutti_engine *e, float *to, tutti_error *err)
{
    const tutti_layout *l = tutti_engine_method(e)->layout;

    for (int k = 0; k < TENSORS; k++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, units[k], false, err));
        memcpy(to + l->tensor[k].first, tutti_engine_values(e, k), counts[k] * sizeof *to);
        TUTTI_TRY(tutti_engine_unit_release(e, units[k], false, err));
    }
    return TUTTI_OK;
}

/* The others wait for what they have prefetched while they do something else. */
static tutti_status leave(tutti_engine *e, tutti_error *err)
{
    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        if (tutti_engine_method(e)->rank == 1)
            return tutti_fail(err, TUTTI_ERR_IO, 0, "worker 1 leaves");
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
        tutti_engine_doing(e, tutti_engine_doing(e, TUTTI_DOING_REPORT));
    }
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int forward[] = { 0, 1, 2, 3, END };
    script *s = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine_options options = s->options;
    tutti_param params[TENSORS];
    static float own[RANKS][SIZE];
    const tutti_metric_record *told;
    tutti_engine *e;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { counts[k] },
                                   .unit = s->apart ? k % 2 : units[k],
                                   .values = s->values ? own[rank] : NULL };
    options.method = s->method;
    options.initial = fill;
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    for (int t = 0; t < STEPS && status == TUTTI_OK; t++) {
        const int *order = s->forward[t] != NULL ? s->forward[t] : forward;
        tutti_pass p;
        if (t == 2 && s->odd_one != NULL && rank + 1 == tutti_world_size(world))
            order = s->odd_one;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK &&
               (status = s->leaves ? leave(e, err) : pass(e, order, s->parts, err)) == TUTTI_OK)
            ;
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        if (t == 1 && status == TUTTI_OK) { /* looking between steps moves nothing */
            static float seen[RANKS][SIZE];
            status = tutti_engine_eval_begin(e, err);
            if (status == TUTTI_OK)
                status = copy_values(e, seen[rank], err);
            if (status == TUTTI_OK)
                status = tutti_engine_eval_end(e, err);
        }
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        status = copy_values(e, s->x[rank], err);
    for (int k = 0; status == TUTTI_OK && rank == 0 && k < tutti_engine_metrics(e, &told); k++)
        if (strcmp(told[k].name, "units_live") == 0)
            s->live = told[k].value;
    tutti_engine_close(e);
    if (rank == 0) {
        s->ended = status;
        s->why = *err;
    }
    return status;
}

static script script_of(const char *method, int lane)
{
    return (script){ .method = method,
                     .options = { .batch = 2, .needs = true, .optimizer = "adamw(lr=0.01)", .lane = lane } };
}

static void go(script *s, int n)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", n, rank_main, s, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", s->method, n, err.text);
}

static void any_unit_order_matches_ddp_bit_for_bit(void **state)
{
    static const int turned[] = { 3, 1, 0, 2, END }, twice[] = { 0, 1, 1, 0, 2, 3, 2, END }, fewer[] = { 0, 3, END };
    static const char *const methods[] = {
        "zero(stage=3)", "zero(stage=3,persist=64,bucket_mb=0.0005,first_bucket_mb=0.0005)", "zero-infinity(ahead=3)"
    };
    static const int *const changes[][STEPS] = {
        { NULL, NULL, turned, turned }, { NULL, twice, NULL, fewer }, { fewer, NULL, twice, turned },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(changes); c++)
        for (int n = 1; n <= RANKS; n++)
            for (int lane = -1; lane <= 1; lane += 2) {
                static script a, b;
                a = script_of("ddp", lane);
                memcpy(a.forward, changes[c], sizeof a.forward);
                go(&a, n);
                for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
                    b = script_of(methods[k], lane);
                    memcpy(b.forward, changes[c], sizeof b.forward);
                    go(&b, n);
                    for (int r = 0; r < n; r++)
                        assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
                    assert_true(b.live <= (k == 0 ? 2 : 4));
                }
            }
}

/* Its gradients come with the last part, and until that is released its values stay. */
static void a_unit_whose_backward_is_in_parts_keeps_its_values(void **state)
{
    static const char *const methods[] = { "bytescheduler(cross_barrier=on)", "byteps(cross_barrier=on)",
                                          "zero(stage=1)", "zero(stage=2)" };

    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int lane = -1; lane <= 1; lane += 2) {
            static script a, b;
            a = script_of("ddp", lane);
            go(&a, n);
            for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
                b = script_of(methods[k], lane);
                b.parts = true;
                go(&b, n);
                for (int r = 0; r < n; r++)
                    assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
            }
        }
}

static void fails(script *s, int n, tutti_status status, const char *one, const char *other)
{
    tutti_error err = { .rank = -1 };
    const tutti_status ended = tutti_world_run("shm", n, rank_main, s, &err);

    if (ended != status || strstr(err.text, one) == NULL || (other != NULL && strstr(err.text, other) == NULL))
        fail_msg("%s on %d: %s: %s", s->method, n, tutti_status_name(ended), err.text);
}

/* Which of the two speaks is as it comes. */
static void workers_acquiring_different_units_fail_with_an_error(void **state)
{
    static const int other[] = { 0, 2, 1, 3, END }, fewer[] = { 0, 1, 2, END }, more[] = { 0, 1, 2, 3, 1, END },
                     none[] = { END };
    static const int *const odd[] = { other, fewer, more, none };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(odd); k++)
        for (int n = 2; n <= RANKS; n++)
            for (int lane = -1; lane <= 1; lane += 2) {
                static script s;
                s = script_of(k % 2 == 0 ? "zero(stage=3)" : "zero-infinity", lane);
                s.odd_one = odd[k];
                fails(&s, n, TUTTI_ERR_STATE, "under method 'zero",
                      "all workers need the same units in the same order");
            }
}

/* Also where its failure was found while no unit was waited for: the sentence is worker 0's. */
static void a_worker_that_leaves_is_named_by_those_that_wait_for_a_unit(void **state)
{
    (void)state;
    for (int k = 0; k < 20; k++) {
        static script s;
        tutti_error err = { .rank = -1 };
        s = script_of("zero(stage=3)", 1);
        s.leaves = true;
        assert_int_equal(tutti_world_run("shm", 2, rank_main, &s, &err), TUTTI_ERR_IO);
        if (s.ended != TUTTI_ERR_PEER || s.why.rank != 1)
            fail_msg("worker 0: %s: %s", tutti_status_name(s.ended), s.why.text);
    }
}

static void unsupported_clients_are_rejected(void **state)
{
    static script s;

    (void)state;
    s = script_of("zero(stage=3)", 0);
    s.options.needs = false;
    fails(&s, 2, TUTTI_ERR_USAGE, "this client does not report when it needs which unit", NULL);
    s = script_of("zero(stage=3)", 0);
    s.apart = true;
    fails(&s, 2, TUTTI_ERR_USAGE, "stands apart from the tensors before it", NULL);
    s = script_of("zero(stage=3)", 0);
    s.values = true;
    fails(&s, 2, TUTTI_ERR_USAGE, "the client has memory of its own for 'head.w'", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_unit_order_matches_ddp_bit_for_bit),
        cmocka_unit_test(a_unit_whose_backward_is_in_parts_keeps_its_values),
        cmocka_unit_test(workers_acquiring_different_units_fail_with_an_error),
        cmocka_unit_test(a_worker_that_leaves_is_named_by_those_that_wait_for_a_unit),
        cmocka_unit_test(unsupported_clients_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
