/* Goal: ad-psgd.md's invariants on ranks that are real threads, whatever the schedule was: one
   worker, the sum, no gradient lost, roles, exact traffic of every pair, odd rings, every pace.
   Schedules in their hundreds, deadlock and resuming are tests/explore's. */
#include "trial.h"
#include "tutti/method/gossip.h"
#include "topology/graph.h"
#include "sanitized.h"

static const int sizes[] = { 2, 3, 4, 5, 7, 8 };

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "ad-psgd", "ad-psgd(graph=ring,exchanges=3,outstanding=0)", "ad-psgd(exchanges=0,lr_staleness=on)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int asks = 0; asks < 2; asks++) {
            trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
            a.asks = asks;
            trial_run(&a, 1);
            trial_run(&b, 1);
            assert_true(trial_same(&a, a.x[0][7], b.x[0][7]));
            assert_int_equal(a.done[0], 7);
            assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
            assert_int_equal(a.figures[0].steps, 7);
            assert_int_equal(a.figures[0].samples, 14);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* What the average at the end sends from i to j: as much as that of local-sgd, which sends
   nothing else. */
static void of_the_end(int n, uint64_t bytes[TRIAL_RANKS][TRIAL_RANKS], uint64_t messages[TRIAL_RANKS][TRIAL_RANKS])
{
    trial t = trial_of("local-sgd(period=1000)", "sgd(lr=0.1)", 2);
    trial_run(&t, n);
    memcpy(bytes, t.bytes, sizeof t.bytes);
    memcpy(messages, t.messages, sizeof t.messages);
    trial_drop(&t);
}

/* With constant gradients c_i, sum_i x_i = sum_i x_i(0) - eta sum_i m_i c_i after any interleaving;
   the agreed model is that sum / n. */
static void check_sum(const trial *t, double eta)
{
    const int n = t->workers;

    for (size_t i = 0; i < trial_size(t); i++) {
        double sum = 0, size = fabs((double)trial_initial_value(i));
        for (int r = 0; r < n; r++) {
            const double moved = eta * t->done[r] * (double)trial_constant(r, 0, i, 0);
            sum += trial_initial_value(i) - moved;
            size = fmax(size, fabs(moved));
        }
        if (!(fabs(t->x[0][t->steps][i] - sum / n) < 2e-6 * fmax(size, 1)))
            fail_msg("%s on %d, element %zu: the mean is %.9g, expected %.9g", t->method, n, i,
                     (double)t->x[0][t->steps][i], sum / n);
        for (int r = 1; r < n; r++)
            assert_true(t->x[r][t->steps][i] == t->x[0][t->steps][i]);
    }
}

/* roles: of the paper's two groups; NULL: all ask and answer. In addition to what the roles
   forbid: an averaging is a model each way, and each worker that asks asks as often as it
   should. */
static void check_traffic(const trial *t, const char *spec, bool bipartite, int exchanges)
{
    const uint64_t model = trial_size(t) * sizeof(float);
    const int n = t->workers;
    uint64_t end_bytes[TRIAL_RANKS][TRIAL_RANKS], end_messages[TRIAL_RANKS][TRIAL_RANKS], all = 0, due = 0;
    bool asks[TRIAL_RANKS];
    int partner[TRIAL_RANKS], partners, left_out;
    tutti_graph *g;

    assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_OK);
    assert_int_equal(tutti_graph_roles(g, asks, &left_out, NULL), TUTTI_OK);
    of_the_end(n, end_bytes, end_messages);
    for (int i = 0; i < n; i++) {
        uint64_t mine = 0, counted_bytes = 0, counted_messages = 0;
        bool may[TRIAL_RANKS] = { false };
        assert_int_equal(tutti_graph_partners(g, bipartite ? asks : NULL, i, partner, &partners, NULL), TUTTI_OK);
        assert_true(partners > 0);
        for (int k = 0; k < partners; k++)
            may[partner[k]] = true;
        for (int j = 0; j < n; j++) {
            const uint64_t bytes = t->bytes[i][j] - end_bytes[i][j];
            uint64_t messages = t->messages[i][j] - end_messages[i][j];
            counted_bytes += t->bytes[i][j];
            counted_messages += t->messages[i][j];
            /* with worker 0's empty messages, which hand out the gradients: one in advance a
               step, up to one more for each, one that refuses */
            if (t->asks && (i == 0 || j == 0) && i != j) {
                const uint64_t empty = messages - bytes / model, steps = (uint64_t)t->done[i == 0 ? j : i];
                assert_true(empty >= steps + 1 && empty <= 2 * steps + 1);
                messages -= empty;
                counted_messages -= empty;
            }
            assert_int_equal(bytes, messages * model);
            assert_true(messages == 0 || may[j]);
            assert_int_equal(bytes, t->bytes[j][i] - end_bytes[j][i]); /* one up, one down */
            mine += messages;
        }
        if (exchanges > 0 && (!bipartite || asks[i])) {
            due += 2 * (uint64_t)exchanges * (uint64_t)t->done[i];
            assert_true(bipartite ? mine == (uint64_t)exchanges * (uint64_t)t->done[i]
                                  : mine >= (uint64_t)exchanges * (uint64_t)t->done[i]);
        }
        all += mine;
        assert_int_equal(t->figures[i].bytes_sent, counted_bytes);
        assert_int_equal(t->figures[i].messages_sent, counted_messages);
    }
    if (exchanges > 0)
        assert_int_equal(all, due);
    tutti_graph_close(g);
}

static void no_gradient_is_lost_and_traffic_matches_the_formula(void **state)
{
    static const struct { const char *method, *graph; bool bipartite; int exchanges; } kinds[] = {
        { "ad-psgd(graph=ring)", "ring", false, 1 },
        { "ad-psgd(graph=complete,peer=cyclic,exchanges=2)", "complete", false, 2 },
        { "ad-psgd(graph=star,outstanding=0)", "star", false, 1 },
        { "ad-psgd(graph=exponential,outstanding=-1,exchanges=3)", "exponential", false, 3 },
        { "ad-psgd(graph=star,roles=bipartite,outstanding=0)", "star", true, 1 },
        { "ad-psgd(graph=grid,roles=bipartite,exchanges=2)", "grid", true, 2 },
        { "ad-psgd(graph=grid,exchanges=0)", "grid", false, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int asks = 0; asks < 2; asks++) {
                trial t = trial_of(kinds[k].method, "sgd(lr=0.0625)", 9);
                int done = 0;
                t.gradient = trial_constant;
                t.asks = asks;
                trial_run(&t, sizes[p]);
                check_sum(&t, 0.0625);
                check_traffic(&t, kinds[k].graph, kinds[k].bipartite, kinds[k].exchanges);
                for (int r = 0; r < sizes[p]; r++) {
                    done += t.done[r];
                    assert_true(asks || t.done[r] == 9);
                    assert_int_equal(t.figures[r].steps, 9);
                    assert_int_equal(t.figures[r].samples, 9 * 2 * sizes[p]);
                }
                assert_int_equal(done, 9 * sizes[p]);
                trial_drop(&t);
            }
}

/* Averaging one pair after another takes 1 / (n - 1) of the squared distance if every pair is as
   likely as any other (ad-psgd.md, invariant 3): random partners are, and cyclic ones come
   equally often. Without overlap, since with it a late neighbour, as any is on a busy machine,
   does not hold up the others, and is met less often. */
static void all_pairs_average_equally_often(void **state)
{
    (void)state;
    for (int cyclic = 0; cyclic < 2; cyclic++)
        for (int n = 3; n <= 5; n++) {
            trial t = trial_of(cyclic ? "ad-psgd(graph=complete,exchanges=48,peer=cyclic)"
                                      : "ad-psgd(graph=complete,exchanges=48,outstanding=0)",
                               "sgd(lr=0.0625)", TRIAL_STEPS);
            const double asked = 48.0 * TRIAL_STEPS / (n - 1); /* of one by another */
            uint64_t end_bytes[TRIAL_RANKS][TRIAL_RANKS], end_messages[TRIAL_RANKS][TRIAL_RANKS];
            t.gradient = trial_constant;
            trial_run(&t, n);
            of_the_end(n, end_bytes, end_messages);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    if (i != j) { /* i asks j, and answers it */
                        const double met = (double)(t.messages[i][j] - end_messages[i][j]);
                        if (!(fabs(met - 2 * asked) <= (cyclic ? 0 : 5 * sqrt(2 * asked))))
                            fail_msg("%s on %d: workers %d and %d average %g times; %g are due", t.method, n, i, j, met,
                                     2 * asked);
                    }
            trial_drop(&t);
        }
}

static float nothing(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)i;
    (void)x;
    return step == 0 ? (float)(rank * 8) : 0;
}

static void averaging_alone_preserves_the_mean_and_contracts_the_models(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        trial t = trial_of(p % 2 == 0 ? "ad-psgd(exchanges=4,outstanding=0)"
                                      : "ad-psgd(graph=star,roles=bipartite,exchanges=4,outstanding=0)",
                           "sgd(lr=1)", 15);
        double first = 0, last = 0;
        t.gradient = nothing;
        t.show = true; /* so that step s begins when the averagings of step s - 1 are over everywhere */
        trial_run(&t, sizes[p]);
        for (int r = 0; r < sizes[p]; r++) {
            const double mean = trial_initial_value(5) - 4.0 * (sizes[p] - 1);
            first += pow(8.0 * r - 4.0 * (sizes[p] - 1), 2);
            last += pow((double)t.x[r][t.steps - 1][5] - mean, 2);
            assert_true(fabs((double)t.x[r][t.steps][5] - mean) < 1e-4);
        }
        if (last > first / 20)
            fail_msg("%d workers are %g apart after averaging, %g before", sizes[p], last, first);
        trial_drop(&t);
    }
}

/* All ask at once, round an even ring: with weights of one half throughout the models would only
   change places. The requests are served by threads in any order, hence this many trials; in each
   the models must come together. */
static void simultaneous_requests_bring_the_models_together(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n *= 2)
        for (int again = 0; again < 8; again++) {
            trial t = trial_of("ad-psgd(graph=ring,peer=cyclic,exchanges=1,outstanding=0)", "sgd(lr=1)", 15);
            double most = 0;
            t.gradient = nothing;
            trial_run(&t, n);
            for (int r = 0; r < n; r++)
                most = fmax(most, fabs(t.x[r][14][5] - (trial_initial_value(5) - 4.0 * (n - 1))));
            if (most > 3.5 * (n - 1))
                fail_msg("%d workers are still %g from their mean after 14 rounds", n, most);
            trial_drop(&t);
        }
}

static void evaluating_between_steps_loses_no_gradient(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        trial t = trial_of("ad-psgd(exchanges=2,outstanding=-1)", "sgd(lr=0.0625)", 8);
        t.gradient = trial_constant;
        t.show = true;
        trial_run(&t, sizes[p]);
        check_sum(&t, 0.0625);
        trial_drop(&t);
    }
}

static tutti_status refused(const char *method, int n, tutti_error *err)
{
    trial t = trial_of(method, "sgd(lr=0.1)", 2);
    const tutti_status status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void invalid_options_are_rejected(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(refused("ad-psgd(graph=rign)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(
        err.text, "method 'ad-psgd': there is no graph 'rign'; did you mean 'ring'?; `tutti topology` lists them");
    assert_int_equal(refused("ad-psgd(graph=bipartite-exp)", 5, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'ad-psgd': graph 'bipartite-exp' cannot have 5 members; their number must be "
                                  "an even number: 4 or 6; ring and exponential take any number");
    for (int n = 3; n <= 7; n += 2) { /* an odd cycle, named by two neighbours on it */
        assert_int_equal(refused("ad-psgd(graph=ring,roles=bipartite)", n, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(
            err.text, "method 'ad-psgd' with roles=bipartite, for which roles=any is the way out: graph 'ring' of "));
        assert_non_null(strstr(err.text, "has no two roles: members "));
    }
    assert_int_equal(refused("ad-psgd(roles=both)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ad-psgd(exchanges=-1)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ad-psgd(exchanges=1000001)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ad-psgd(outstanding=-2)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ad-psgd(outstanding=1000001)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ad-psgd(outstanding=1000000,graph=ring)", 4, &err), TUTTI_OK);
}

static void batch_shares_are_rejected_without_synchronous_steps(void **state)
{
    const int64_t batch_of[2] = { 1, 3 };
    trial t = trial_of("ad-psgd", "sgd(lr=0.1)", 2);
    tutti_error err;

    (void)state;
    t.options.batch_of = batch_of;
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "batch-share cuts a step by worker, but method 'ad-psgd' lets every worker go at its "
                                  "own pace; omit batch-share, or take a synchronous method");
    trial_drop(&t);
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    (void)state;
    trial_not_finite("ad-psgd", "sgd(lr=0.0625)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(no_gradient_is_lost_and_traffic_matches_the_formula),
        cmocka_unit_test(all_pairs_average_equally_often),
        cmocka_unit_test(averaging_alone_preserves_the_mean_and_contracts_the_models),
        cmocka_unit_test(simultaneous_requests_bring_the_models_together),
        cmocka_unit_test(evaluating_between_steps_loses_no_gradient),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(batch_shares_are_rejected_without_synchronous_steps),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
