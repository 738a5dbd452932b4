/* Goal: updates by piece let a unit begin as soon as its own parameters are there, across the
   border of two steps, and never before. Method: the trace, in virtual time. Worker 0 leads. Each
   piece has 128 elements, so which units it meets follows from the sizes of the tensors. */
#include "engine/pieces_job.h"
#include "forked.h"

enum { PIECE = 128, PIECES = (2131 + PIECE - 1) / PIECE };

typedef struct call {
    job *j;
    int n;
} call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const call *c = arg;
    return tutti_world_run("sim", c->n, job_rank, c->j, err);
}

/* flops: of a unit forward; backward takes twice as long. A piece takes about as long as FLOPS. */
enum { FLOPS = 20000000 };
static job *run_of(const char *method, const char *options, double flops, int n, bool own_memory)
{
    job *j = job_of("", "sgd(lr=0.1,momentum=0.9)");
    call c = { j, n };
    tutti_error err = { .rank = -1 };

    snprintf(j->method, sizeof j->method, "%s(bytes=%d%s)", method, PIECE * (int)sizeof(float), options);
    j->own_memory = own_memory;
    j->flops = flops;
    j->options.trace_events = TUTTI_LENGTH(j->trace);
    j->options.data_samples = 0;
    if (forked(in_child, &c, &err) != TUTTI_OK)
        fail_msg("%s, %d workers: %s", j->method, n, err.text);
    assert_true(j->n_trace < (int)TUTTI_LENGTH(j->trace));
    assert_int_equal(j->pieces, PIECES);
    return j;
}

static job *run(const char *options, double flops, int n)
{
    return run_of("cut", options, flops, n, false);
}

static const tutti_trace_event *event(const job *j, const char *what, int index, uint64_t step)
{
    for (int i = 0; i < j->n_trace; i++)
        if (j->trace[i].index == index && j->trace[i].step == step && strcmp(j->trace[i].what, what) == 0)
            return &j->trace[i];
    fail_msg("%s: there is no %s of %d in step %d", j->method, what, index, (int)step);
    return NULL;
}

static bool meets(const job *j, int piece, int unit)
{
    size_t first = 0, begin = (size_t)piece * PIECE;

    for (int k = 0; k < TENSORS; first += j->count[k++])
        if (j->unit[k] == unit && first < begin + PIECE && begin < first + j->count[k])
            return true;
    return false;
}

static const char led[] = ",by_piece=yes,order=led,forward=yes,width=2";

static void a_unit_waits_for_its_own_parameters_and_no_others(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        job *j = run(led, 0.25 * FLOPS, n);
        int ahead = 0;
        for (uint64_t step = 0; step + 1 < STEPS; step++)
            for (int u = 0; u < UNITS; u++) {
                const int64_t begin = event(j, "forward", u, step + 1)->begin_ns;
                for (int k = 0; k < PIECES; k++) {
                    const tutti_trace_event *x = event(j, "exchange", k, step), *o = event(j, "update", k, step);
                    assert_true(x->begin_ns < x->end_ns && x->end_ns <= o->begin_ns && o->begin_ns <= o->end_ns);
                    if (meets(j, k, u))
                        assert_true(o->end_ns <= begin);
                    else if (u == 0)
                        ahead += x->end_ns > begin;
                }
            }
        /* the first unit computes while pieces of others are still in transit */
        assert_true(ahead >= 2 * (STEPS - 1));
        drop(j);
    }
}

/* Shards: the values of all workers are there when a unit begins, and the first unit begins while
   values of others are in transit. Gradients travel concurrently with the backward. */
static void shard_values_are_gathered_during_the_next_forward(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++)
        for (int n = 2; n <= RANKS; n++) {
            job *j = run_of("cut-shards", held == 1 ? ",held=yes" : "", 0.25 * FLOPS, n, held == 1);
            int ahead = 0, beside = 0;
            for (uint64_t step = 0; step + 1 < STEPS; step++)
                for (int u = 0; u < UNITS; u++) {
                    const int64_t begin = event(j, "forward", u, step + 1)->begin_ns,
                                  end = event(j, "backward", 0, step)->end_ns;
                    for (int k = 0; k < PIECES; k++) {
                        const tutti_trace_event *x = event(j, "exchange", k, step), *o = event(j, "gather", k, step);
                        assert_true(x->begin_ns < x->end_ns && x->end_ns <= o->begin_ns && o->begin_ns < o->end_ns);
                        if (meets(j, k, u))
                            assert_true(o->end_ns <= begin);
                        else if (u == 0)
                            ahead += o->end_ns > begin;
                        beside += x->end_ns < end;
                    }
                }
            assert_true(ahead >= 2 * (STEPS - 1));
            if (held == 1) /* small ones are not given to the lane else */
                assert_true(beside > 0);
            drop(j);
        }
}

static void pieces_are_updated_after_the_backward_of_their_units(void **state)
{
    job *j = run(led, 2 * FLOPS, 3);
    int early = 0;

    (void)state;
    for (uint64_t step = 0; step < STEPS; step++)
        for (int k = 0; k < PIECES; k++)
            for (int u = 0; u < UNITS; u++)
                if (meets(j, k, u)) {
                    const int64_t end = event(j, "backward", u, step)->end_ns;
                    assert_true(end <= event(j, "update", k, step)->begin_ns);
                    early += event(j, "exchange", k, step)->end_ns < end;
                }
    assert_true(early > 0); /* some were exchanged before, and had to wait */
    drop(j);
}

/* Of what waits at the lane of the leader, the least unit goes first. */
static void leader_admits_pieces_in_order_of_unit(void **state)
{
    job *j = run(",by_piece=yes,order=led,forward=yes", 0.25 * FLOPS, 3);
    int overtaken = 0;

    (void)state;
    for (uint64_t step = 0; step < STEPS; step++)
        for (int a = 0; a < PIECES; a++)
            for (int b = 0; b < PIECES; b++) {
                const tutti_trace_event *qa = event(j, "queue", a, step), *qb = event(j, "queue", b, step);
                int least[2] = { 0, 0 };
                while (!meets(j, a, least[0]))
                    least[0]++;
                while (!meets(j, b, least[1]))
                    least[1]++;
                /* a stood there when b was admitted */
                if (qa->begin_ns < qb->end_ns && qb->end_ns < qa->end_ns) {
                    assert_true(least[1] < least[0] || (least[1] == least[0] && b < a));
                    overtaken += qa->begin_ns < qb->begin_ns;
                }
            }
    assert_true(overtaken > 0);
    drop(j);
}

static void updates_by_piece_match_the_barrier_and_are_repeatable(void **state)
{
    static const char *const orders[] = { ",by_piece=yes", ",by_piece=yes,order=led,width=3,credit=1024",
                                          ",by_piece=yes,order=led,forward=yes,width=2" };

    (void)state;
    for (int n = 1; n <= RANKS; n++) {
        job *barrier = run("", 0.25 * FLOPS, n);
        for (size_t o = 0; o < TUTTI_LENGTH(orders); o++) {
            job *a = run(orders[o], 0.25 * FLOPS, n), *b = run(orders[o], 0.25 * FLOPS, n);
            job_same(barrier, a, n, 0);
            assert_int_equal(a->n_trace, b->n_trace);
            for (int i = 0; i < a->n_trace; i++)
                if (a->trace[i].begin_ns != b->trace[i].begin_ns || a->trace[i].end_ns != b->trace[i].end_ns ||
                    a->trace[i].index != b->trace[i].index || a->trace[i].step != b->trace[i].step)
                    fail_msg("%s, %d workers: event %d is another in the second run", a->method, n, i);
            if (n > 1)
                assert_true(a->figures[0].wall_ns < barrier->figures[0].wall_ns);
            for (int r = 0; r < n; r++) {
                const tutti_figures *f = &a->figures[r];
                assert_int_equal(f->wall_ns, f->compute_ns + f->exposed_ns + f->other_ns);
            }
            drop(a);
            drop(b);
        }
        drop(barrier);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_waits_for_its_own_parameters_and_no_others),
        cmocka_unit_test(shard_values_are_gathered_during_the_next_forward),
        cmocka_unit_test(pieces_are_updated_after_the_backward_of_their_units),
        cmocka_unit_test(leader_admits_pieces_in_order_of_unit),
        cmocka_unit_test(updates_by_piece_match_the_barrier_and_are_repeatable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
