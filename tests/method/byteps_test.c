/* Goal: what byteps.md asks of BytePS on ranks that are real threads: ddp's bits for every number
   of dedicated servers, chunk, window and machine; the paper's split, whose parts sum to the
   whole and load all links equally; without servers it is the parameter server to the byte, with
   as many as machines the classic one; exact traffic of every pair; chunks in flight; what is
   refused. Times in virtual time are tests/cli/byteps_test.py's, schedules tests/explore's. */
#include "trial.h"

/* ---- bits ---- */

static void results_match_ddp_bit_for_bit(void **state)
{
    static const char *const forms[] = {
        "byteps",
        "byteps(partition_bytes=1000,credits=1)",
        "byteps(partition_bytes=700,credits=3)",
        "byteps(partition_bytes=600,priority=layer)",
        "byteps(partition_bytes=256,assign=greedy)",
        "byteps(partition_bytes=600,cross_barrier=on)",
        "byteps(partition_bytes=800,cross_barrier=on,priority=layer,credits=2)",
    };
    static const int servers[] = { 0, 1, 2, 4 };

    (void)state;
    for (size_t f = 0; f < TUTTI_LENGTH(forms); f++) {
        const bool crosses = strstr(forms[f], "cross") != NULL;
        for (size_t k = 0; k < TUTTI_LENGTH(servers); k++)
            trial_is_ddp(forms[f], k % 2 == 0 ? "sgd(lr=0.1,momentum=0.9)" : "adamw(lr=0.01)", 4, servers[k],
                       f % 2 == 1 && !crosses ? 5 : 0, (int64_t)k % 3);
        trial_is_ddp(forms[f], "sgd(lr=0.1)", 3, 5, 0, 0);
        trial_is_ddp(forms[f], "adamw(lr=0.01)", 2, 1, 0, 2);
        trial_is_ddp(forms[f], "sgd(lr=0.1)", 7, 1, 0, 0);
    }
}

static void summing_within_hosts_first_matches_ddp_bit_for_bit(void **state)
{
    static const struct { const char *method; int n, servers; } cases[] = {
        { "byteps(node=2,partition_bytes=1000)", 4, 0 },  { "byteps(node=2,partition_bytes=1000)", 4, 1 },
        { "byteps(node=2,credits=2)", 6, 2 },             { "byteps(node=2,partition_bytes=700)", 4, 3 },
        { "byteps(node=4,partition_bytes=700)", 4, 2 },   { "byteps(node=machine)", 3, 1 },
        { "byteps(node=2,partition_bytes=300,assign=greedy)", 4, 1 },
        { "byteps(node=2,partition_bytes=700,priority=layer,cross_barrier=on)", 4, 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        trial_is_ddp(cases[k].method, "sgd(lr=0.1,momentum=0.9)", cases[k].n, cases[k].servers, 0, (int64_t)k % 2);
}

static void one_worker_matches_single_and_sends_nothing(void **state)
{
    (void)state;
    for (int servers = 0; servers <= 2; servers++) {
        trial a = trial_served("byteps", "adamw(lr=0.01)", 5, servers), b = trial_of("single", "adamw(lr=0.01)", 5);
        trial_run(&a, 1 + servers);
        trial_run(&b, 1);
        for (int s = 0; s <= 5; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
        assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void step_with_a_nonfinite_gradient_matches_ddp(void **state)
{
    trial b = trial_of("ddp", "sgd(lr=0.0625)", 6);

    (void)state;
    b.gradient = trial_bad;
    b.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&b, 4);
    for (int servers = 0; servers <= 4; servers += 2) {
        trial a = trial_served("byteps(partition_bytes=2000)", "sgd(lr=0.0625)", 6, servers);
        a.gradient = trial_bad;
        a.options.nonfinite = TUTTI_NONFINITE_SKIP;
        trial_run(&a, 4 + servers);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(a.figures[r].skipped, 1);
            assert_true(trial_same(&a, a.x[r][6], b.x[0][6]));
        }
        trial_drop(&a);
    }
    trial_drop(&b);
}

/* Gradients of few bits are exact as halves, and so are their means here. */
static void fp16_wire_keeps_representable_values_exact_and_replicas_equal(void **state)
{
    (void)state;
    for (int servers = 0; servers <= 4; servers++)
        for (int kind = 0; kind < 2; kind++) {
            trial a = trial_served("byteps(wire=fp16,partition_bytes=1000)", "sgd(lr=0.0625)", 5, servers),
                  b = trial_of("ddp", "sgd(lr=0.0625)", 5);
            a.gradient = b.gradient = kind == 0 ? trial_constant : trial_quadratic;
            trial_run(&a, 4 + servers);
            trial_run(&b, 4);
            for (int r = 0; r < 4; r++)
                for (int s = 0; s <= 5; s++) {
                    assert_true(trial_same(&a, a.x[r][s], a.x[0][s]));
                    assert_true(kind == 0 ? trial_same(&a, a.x[r][s], b.x[r][s])
                                          : trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-3);
                }
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- the split ---- */

/* k M_cpu + n M_gpu = M; both kinds of machines carry as much each way; without servers as in an
   all-reduce, with n of them M / B. */
static void split_matches_the_paper_and_balances_all_links(void **state)
{
    static const struct { int n, k; double server, machine, link; } table[] = { /* the sheet's */
        { 4, 0, 0, 0.25, 1.5 }, { 4, 1, 1.0 / 3, 1.0 / 6, 4.0 / 3 }, { 4, 2, 0.3, 0.1, 1.2 }, { 4, 4, 0.25, 0, 1 },
        { 2, 1, 0.5, 0.25, 1 }, { 3, 5, 0.2, 0, 1 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(table); c++) {
        const int n = table[c].n, k = table[c].k;
        trial t = trial_served("byteps", "sgd(lr=0.1)", 1, k);
        double server, machine, link;
        trial_run(&t, n + k);
        server = trial_metric(&t, "share_of_server", -1);
        machine = trial_metric(&t, "share_of_machine", -1);
        link = trial_metric(&t, "share_of_link", -1);
        assert_true(fabs(server - table[c].server) < 1e-12 && fabs(machine - table[c].machine) < 1e-12);
        assert_true(fabs(link - table[c].link) < 1e-12);
        assert_true(fabs(k * server + n * machine - 1) < 1e-12);
        assert_true(fabs(1 + (n - 2) * machine - link) < 1e-12);
        assert_true(k == 0 || k > n || fabs(n * server - link) < 1e-12);
        trial_drop(&t);
    }
}

/* ---- traffic ---- */

enum { ALL = 1533, STEPS = 5 };

static void traffic_per_pair_matches_the_split(void **state)
{
    static const struct { int n, k, bytes; uint32_t parts[TRIAL_RANKS]; } cases[] = {
        { 4, 0, 0, { 1, 1, 1, 1 } },
        { 4, 1, 0, { 3, 3, 3, 3, 6 } },
        { 4, 2, 0, { 2, 2, 2, 2, 6, 6 } },
        { 4, 2, 2048, { 2, 2, 2, 2, 6, 6 } },
        { 4, 1, 1024, { 3, 3, 3, 3, 6 } },
        { 4, 4, 2048, { 0, 0, 0, 0, 1, 1, 1, 1 } },
        { 2, 1, 0, { 1, 1, 2 } },
        { 3, 5, 1024, { 0, 0, 0, 1, 1, 1, 1, 1 } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int bytes = cases[c].bytes;
        char method[80];
        trial t;
        snprintf(method, sizeof method, "byteps(partition_bytes=%d)", bytes > 0 ? bytes : 4096000);
        t = trial_served(method, "sgd(lr=0.0625)", STEPS, cases[c].k);
        trial_run(&t, cases[c].n + cases[c].k);
        trial_parts_travel(&t, cases[c].n + cases[c].k, cases[c].parts, (uint64_t)bytes / 4, trial_floats);
        trial_drop(&t);
    }
}

/* Of a rank each way, per step, what the formula gives, except for a rounding a chunk and
   server. */
static void bytes_per_link_match_the_formula(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        for (int k = 0; k <= n; k++) {
            trial t = trial_served("byteps(partition_bytes=2048)", "sgd(lr=0.0625)", 1, k);
            double want;
            trial_run(&t, n + k);
            want = 4.0 * ALL * trial_metric(&t, "share_of_link", -1);
            for (int i = 0; i < n + k; i++) {
                uint64_t out = 0, in = 0;
                for (int j = 0; j < n + k; j++) {
                    out += i != j ? t.bytes[i][j] : 0;
                    in += i != j ? t.bytes[j][i] : 0;
                }
                assert_int_equal(out, in);
                assert_true(fabs((double)out - want) <= 3.0 * 64 * n);
            }
            trial_drop(&t);
        }
}

static void check_same_traffic(const char *method, const char *other, int n, int servers)
{
    trial a = trial_served(method, "sgd(lr=0.1)", 4, servers), b = trial_served(other, "sgd(lr=0.1)", 4, servers);

    trial_run(&a, n + servers);
    trial_run(&b, n + servers);
    for (int r = 0; r < n; r++)
        assert_true(trial_same(&a, a.x[r][4], b.x[r][4]));
    assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
    assert_memory_equal(a.messages, b.messages, sizeof a.messages);
    trial_drop(&a);
    trial_drop(&b);
}

/* In chunks as large as its buckets. */
static void traffic_without_or_with_n_servers_matches_parameter_server(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        check_same_traffic("byteps", "parameter-server", n, 0);
    for (int n = 1; n <= 4; n++)
        check_same_traffic("byteps", "parameter-server", n, n);
    check_same_traffic("byteps", "parameter-server", 3, 5);
}

/* Layers first: worker 0 notifies each other worker of every chunk, in a message without
   payload. */
static void leader_ordered_lane_sends_one_message_per_chunk(void **state)
{
    trial a = trial_served("byteps(partition_bytes=1024)", "sgd(lr=0.1)", STEPS, 1),
          b = trial_served("byteps(partition_bytes=1024,priority=layer)", "sgd(lr=0.1)", STEPS, 1);

    (void)state;
    trial_run(&a, 5);
    trial_run(&b, 5);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            assert_int_equal(a.bytes[i][j], b.bytes[i][j]);
            assert_int_equal(b.messages[i][j] - a.messages[i][j], i == 0 && j > 0 && j < 4 ? STEPS * 6 : 0);
        }
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- whole chunks ---- */

/* Each chunk goes from every worker to one server and back. Of 24 chunks, all of 64 elements but
   the last, no server has a chunk more than its part, and the paper's parts of 4 and 2 machines, 2,
   2, 2, 2, 6 and 6 twentieths, are 2.4 chunks and 7.2. */
static void greedy_assignment_balances_whole_chunks_across_servers(void **state)
{
    static const struct { int n, k; double most; } cases[] = { { 4, 0, 1.002 }, { 4, 2, 1.3 }, { 4, 4, 1.002 },
                                                               { 3, 0, 1.002 }, { 1, 0, 1 } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n, ranks = n + cases[c].k;
        trial t = trial_served("byteps(partition_bytes=256,assign=greedy)", "sgd(lr=0.0625)", STEPS, cases[c].k);
        uint64_t bytes = 0, messages = 0;
        trial_run(&t, ranks);
        for (int i = 0; i < ranks; i++)
            for (int j = 0; j < ranks; j++) {
                bytes += i != j ? t.bytes[i][j] : 0;
                messages += i != j ? t.messages[i][j] : 0;
            }
        if (n > 1) {
            const double imbalance = trial_metric(&t, "imbalance", -1);
            assert_true(imbalance >= 1 - 1e-12 && imbalance <= cases[c].most);
            assert_true(cases[c].k < n || bytes == 2ULL * STEPS * 4 * ALL * (uint64_t)n);
            assert_true(cases[c].k < n || messages == 2ULL * STEPS * 24 * (uint64_t)n);
            assert_true(cases[c].k > 0 || bytes == 2ULL * STEPS * 4 * ALL * (uint64_t)(n - 1));
            assert_true(cases[c].k > 0 || messages == 2ULL * STEPS * 24 * (uint64_t)(n - 1));
        }
        trial_drop(&t);
    }
}

/* ---- chunks in flight ---- */

static void chunks_in_flight_do_not_exceed_the_credits(void **state)
{
    (void)state;
    for (int credits = 1; credits <= 8; credits *= 2)
        for (int kind = 0; kind < 3; kind++) {
            char method[120];
            trial t;
            snprintf(method, sizeof method, "byteps(credits=%d,partition_bytes=500%s)", credits,
                     kind == 0 ? "" : kind == 1 ? ",node=2" : ",wire=fp16,priority=layer");
            t = trial_served(method, "sgd(lr=0.1)", 4, 1);
            trial_run(&t, 5);
            for (int r = 0; r < 4; r++) {
                assert_true(trial_metric(&t, "slots_most", r) >= 1 && trial_metric(&t, "slots_most", r) <= credits);
                assert_true(trial_metric(&t, "hidden_seconds", r) <= trial_metric(&t, "exchange_seconds", r));
            }
            trial_drop(&t);
        }
}

/* ---- async ---- */

/* The initial weights and all that was sent since: in numbers that float32 holds exactly. */
static void asynchronous_updates_are_each_applied_once(void **state)
{
    static const struct { int n, servers; } sizes[] = { { 1, 0 }, { 1, 1 }, { 2, 0 }, { 3, 1 }, { 4, 0 },
                                                        { 4, 1 }, { 4, 2 }, { 4, 4 }, { 3, 5 } };

    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
        for (int kind = 0; kind < 4; kind++) {
            const int n = sizes[p].n, ranks = n + sizes[p].servers;
            trial t = trial_served(kind == 3 ? "byteps(async=on,wire=fp16)" : "byteps(async=on)", "sgd(lr=0.0625)", 8,
                                sizes[p].servers);
            t.gradient = trial_constant;
            t.asks = kind == 1;
            t.show = kind == 2;
            trial_run(&t, ranks);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double want = trial_initial_value(i);
                for (int r = 0; r < n; r++)
                    want -= 0.0625 * t.done[r] * (double)trial_constant(r, 0, i, 0);
                for (int r = 0; r < n; r++) /* a rank that only serves has no x */
                    if (t.x[r][8][i] != (float)want)
                        fail_msg("%s on %d and %d servers, rank %d, element %zu: %.9g, expected %.9g", t.method, n,
                                 sizes[p].servers, r, i, (double)t.x[r][8][i], want);
            }
            trial_drop(&t);
        }
}

/* x + (x' - x) is x' except for its rounding, and x' itself where numbers are few bits. */
static void one_asynchronous_worker_matches_single(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.0625)", "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int servers = 0; servers <= 1; servers++) {
            trial a = trial_served("byteps(async=on)", optimizers[o], 6, servers),
                  b = trial_of("single", optimizers[o], 6);
            a.gradient = b.gradient = o == 0 ? trial_constant : trial_quadratic;
            trial_run(&a, 1 + servers);
            trial_run(&b, 1);
            for (int s = 0; s <= 6; s++)
                assert_true(o == 0 ? trial_same(&a, a.x[0][s], b.x[0][s])
                                   : trial_apart(&a, a.x[0][s], b.x[0][s]) < 1e-4);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Each pair sends what the other has of the model, once a gradient each way. At the end all
   gather it; or, where ranks only serve, the first worker does, and notifies the others. */
static void async_traffic_follows_the_same_split(void **state)
{
    static const struct { int n, k; uint32_t parts[TRIAL_RANKS]; } cases[] = {
        { 4, 0, { 1, 1, 1, 1 } }, { 4, 2, { 2, 2, 2, 2, 6, 6 } }, { 3, 3, { 0, 0, 0, 1, 1, 1 } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n, ranks = n + cases[c].k;
        const uint32_t *parts = cases[c].parts;
        trial t = trial_served("byteps(async=on)", "sgd(lr=0.0625)", STEPS, cases[c].k);
        uint64_t beyond = 0;
        trial_run(&t, ranks);
        for (int i = 0; i < ranks; i++)
            for (int j = 0; j < ranks; j++) {
                const uint64_t mine = trial_part(parts, ranks, i, ALL),
                               its = trial_part(parts, ranks, j, ALL),
                               want = STEPS * 4 * ((i < n ? its : 0) + (j < n ? mine : 0));
                if (i != j && t.bytes[i][j] < want)
                    fail_msg("%s on %d and %d: %d sent %d %llu bytes, expected %llu", t.method, n, cases[c].k, i, j,
                             (unsigned long long)t.bytes[i][j], (unsigned long long)want);
                beyond += i != j ? t.bytes[i][j] - want : 0;
            }
        assert_int_equal(beyond, cases[c].k == 0 ? (uint64_t)(ranks - 1) * 4 * ALL
                                                 : (uint64_t)n * 4 * ALL - 4 * trial_part_begin(parts, ranks, 1, ALL));
        trial_drop(&t);
    }
}

/* ---- what is refused ---- */

static void check_refused(const char *method, int n, int servers, double clip, int lane, const char *sentence)
{
    trial t = trial_served(method, "sgd(lr=0.1)", 2, servers);
    tutti_error err;

    t.options.lane = lane;
    t.options.clip_norm = clip;
    assert_int_equal(trial_try(&t, n + servers, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s on %d and %d servers: '%s' does not say '%s'", method, n, servers, err.text, sentence);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    (void)state;
    check_refused("byteps(partition_bytes=0)", 2, 0, 0, 0, "partition_bytes");
    check_refused("byteps(partition_bytes=300)", 4, 1, 0, 0,
                  "partition_bytes is 300, but 5 servers have a part of each chunk, of 64 bytes at least; give 320");
    check_refused("byteps(credits=65)", 2, 0, 0, 0, "credits");
    check_refused("byteps(credits=2)", 2, 0, 0, 3, "lane is 3, but 2 buffers are under way at a time (credits)");
    check_refused("byteps(node=3)", 6, 0, 0, 0, "node has 3 workers, and sums of that many do not occur in the order");
    check_refused("byteps(node=4)", 6, 0, 0, 0, "node is 4, which does not divide the 6 workers");
    check_refused("byteps(cross_barrier=on)", 2, 1, 5, 0, "clip-norm");
    check_refused("byteps(async=on,credits=2)", 2, 0, 0, 0, "async=off");
    check_refused("byteps(wire=fp8)", 2, 0, 0, 0, "wire");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_match_ddp_bit_for_bit),
        cmocka_unit_test(summing_within_hosts_first_matches_ddp_bit_for_bit),
        cmocka_unit_test(one_worker_matches_single_and_sends_nothing),
        cmocka_unit_test(step_with_a_nonfinite_gradient_matches_ddp),
        cmocka_unit_test(fp16_wire_keeps_representable_values_exact_and_replicas_equal),
        cmocka_unit_test(split_matches_the_paper_and_balances_all_links),
        cmocka_unit_test(traffic_per_pair_matches_the_split),
        cmocka_unit_test(bytes_per_link_match_the_formula),
        cmocka_unit_test(traffic_without_or_with_n_servers_matches_parameter_server),
        cmocka_unit_test(leader_ordered_lane_sends_one_message_per_chunk),
        cmocka_unit_test(greedy_assignment_balances_whole_chunks_across_servers),
        cmocka_unit_test(chunks_in_flight_do_not_exceed_the_credits),
        cmocka_unit_test(asynchronous_updates_are_each_applied_once),
        cmocka_unit_test(one_asynchronous_worker_matches_single),
        cmocka_unit_test(async_traffic_follows_the_same_split),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
