/* Goal: what herring.md asks of Herring on ranks that are real threads: ddp's bits for every number
   of servers, fusion size, slots, nodes and rails; servers whose bytes differ by 16 a buffer at
   most, whatever the tensors; exact traffic of every pair and 2 (N - 1) messages a rail, node and
   buffer; slots that are never exceeded; memory that goes by slots; fp16 on the wire; nodes that
   leave with their workers; what is refused. Latency, overlap and rates in virtual time are
   tests/cli/herring_test.py's, schedules tests/explore's. */
#include "trial.h"

#include "engine/engine_internal.h"
#include "state/plan.h"

static const int sizes[] = { 2, 3, 4, 5, 8 };

/* ---- bits ---- */

static void results_match_ddp_bit_for_bit(void **state)
{
    static const char *const flat[] = {
        "herring(node=none)",
        "herring(node=none,fusion_mb=0.0005,min_shard_kb=0,slots=1)",
        "herring(node=none,fusion_mb=0.0011,min_shard_kb=0,slots=3)",
        "herring",
    };
    char method[120];

    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
        const int n = sizes[p];
        for (size_t k = 0; k < TUTTI_LENGTH(flat); k++)
            trial_is_ddp(flat[k], k % 2 == 0 ? "sgd(lr=0.1,momentum=0.9)" : "adamw(lr=0.01)", n, 0, k == 1 ? 5 : 0,
                       k == 2 ? 3 : 0);
        trial_is_ddp("herring(servers=2,fusion_mb=0.0005,min_shard_kb=0)", "sgd(lr=0.1)", n, 0, 0, 2);
        if (n <= 5)
            trial_is_ddp("herring(fusion_mb=0.0007,min_shard_kb=0)", "adamw(lr=0.01)", n, 1 + (int)p % 3, 0, 0);
    }
    for (int n = 4; n <= 8; n += 4) /* nodes, rails, servers of their own */
        for (int node = 2; node <= n; node *= 2)
            for (int rails = 1; rails <= node; rails += 1 + (node > 2)) {
                snprintf(method, sizeof method, "herring(node=%d,rails=%d,fusion_mb=0.0011,min_shard_kb=0,slots=2)",
                         node, rails);
                trial_is_ddp(method, "sgd(lr=0.1,momentum=0.9)", n, 0, node == 2 ? 5 : 0, rails);
                if (n == 4)
                    trial_is_ddp(method, "sgd(lr=0.1)", n, 1 + rails, 0, 0);
            }
    trial_is_ddp("herring(node=2,servers=1,fusion_mb=0.0011,min_shard_kb=0)", "sgd(lr=0.1)", 6, 0, 0, 2);
}

static void one_worker_matches_single_and_sends_nothing(void **state)
{
    static const char *const methods[] = { "herring", "herring(node=none,slots=1)", "herring(wire=fp16)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "adamw(lr=0.01)", 5), b = trial_of("single", "adamw(lr=0.01)", 5);
        trial_run(&a, 1);
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
    static const char *const methods[] = { "herring(node=none,fusion_mb=0.002,min_shard_kb=0)", "herring(node=2)",
                                           "herring(wire=fp16,node=none)" };
    trial b = trial_of("ddp", "sgd(lr=0.0625)", 6);

    (void)state;
    b.gradient = trial_bad;
    b.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&b, 4);
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "sgd(lr=0.0625)", 6);
        trial_ends_when_not_finite(&a);
        trial_run(&a, 4);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(a.figures[r].skipped, 1);
            assert_true(trial_same(&a, a.x[r][6], b.x[0][6])); /* ones, which fp16 has, too */
        }
        trial_drop(&a);
    }
    trial_drop(&b);
}

/* ---- halves ---- */

static float too_large(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return rank == 1 && step == 2 && i == 1010 ? 70000 : 1;
}

/* Gradients of few bits are exact as halves, and so are their means here. */
static void fp16_wire_keeps_representable_values_exact_and_replicas_equal(void **state)
{
    static const char *const methods[] = {
        "herring(wire=fp16,node=none)",
        "herring(wire=fp16,node=none,fusion_mb=0.0005,min_shard_kb=0,slots=2)",
        "herring(wire=fp16,node=2,servers=1)",
    };
    trial big = trial_of("herring(wire=fp16,node=none)", "sgd(lr=0.1)", 4);
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int kind = 0; kind < 2; kind++) {
            trial a = trial_of(methods[k], "sgd(lr=0.0625)", 5), b = trial_of("ddp", "sgd(lr=0.0625)", 5);
            a.gradient = b.gradient = kind == 0 ? trial_constant : trial_quadratic;
            trial_run(&a, 4);
            trial_run(&b, 4);
            for (int r = 0; r < 4; r++)
                for (int s = 0; s <= 5; s++) {
                    assert_true(trial_same(&a, a.x[r][s], a.x[0][s]));
                    assert_true(kind == 0 ? trial_same(&a, a.x[r][s], b.x[r][s])
                                          : trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-3);
                }
            assert_true(kind == 0 || !trial_same(&a, a.x[0][5], b.x[0][5]));
            trial_drop(&a);
            trial_drop(&b);
        }
    big.gradient = too_large;
    assert_int_equal(trial_try(&big, 4, &err), TUTTI_ERR_NUMBER);
    assert_non_null(
        strstr(err.text, "element 10 of b in what worker 1 sends is 70000, but as fp16 the largest is 65504"));
    trial_drop(&big);
}

/* ---- servers have the same to do ---- */

enum { MANY = 200, STEPS = 3 };
typedef struct load {
    const char *method;
    int servers;
    double bytes[TRIAL_RANKS], shards[TRIAL_RANKS];
    int n;
    size_t used;
    int pieces;
    double contributions; /* elements, of rank 0 */
} load;

static tutti_status load_rank(tutti_world *world, void *arg, tutti_error *err)
{
    load *l = arg;
    tutti_param params[MANY];
    char names[MANY][8];
    tutti_engine *e = NULL;
    tutti_pass p;
    tutti_status status;
    const tutti_method *m;
    bool more;

    for (int k = 0; k < MANY; k++) { /* one huge tensor, and small ones */
        snprintf(names[k], sizeof names[k], "t%d", k);
        params[k] =
            (tutti_param){ .name = names[k], .dims = 1, .dim = { k == 77 ? 60001 : 1 + (uint64_t)k * 37 % 41 } };
    }
    status = tutti_engine_open(
        &e, world, params, MANY,
        &(tutti_engine_options){ .method = l->method, .optimizer = "sgd(lr=0.1)", .batch = 1, .servers = l->servers },
        err);
    m = status == TUTTI_OK ? tutti_engine_method(e) : NULL;
    for (size_t i = 0; status == TUTTI_OK && m->rank == 0 && i < tutti_plan_count(e->plan); i++) {
        const tutti_state *s = tutti_plan_state(e->plan, i, NULL);
        if (strcmp(s->name, "server.contributions") == 0)
            l->contributions = (double)s->count;
    }
    if (status == TUTTI_OK && m->rank >= m->workers)
        status = tutti_engine_more(e, STEPS, &more, err);
    for (int step = 0; status == TUTTI_OK && m->rank < m->workers && step < STEPS; step++) {
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (size_t i = 0; i < m->layout->used; i++)
                m->g[i] = (float)(i % 7);
            for (int k = 0; k < MANY && status == TUTTI_OK; k++)
                status = tutti_engine_grad_ready(e, k, err);
            if (status == TUTTI_OK)
                status = tutti_engine_pass_end(e, 0, err);
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK && m->rank == 0) {
        const tutti_metric_record *told;
        const int metrics = tutti_engine_metrics(e, &told);
        l->n = 0;
        l->used = m->layout->used;
        l->pieces = m->layout->n_pieces;
        for (int k = 0; k < metrics; k++)
            if (strcmp(told[k].name, "server_bytes") == 0 || strcmp(told[k].name, "server_shards") == 0) {
                (strcmp(told[k].name, "server_bytes") == 0 ? l->bytes : l->shards)[told[k].at] = told[k].value;
                l->n = told[k].at >= l->n ? (int)told[k].at + 1 : l->n;
            }
    }
    tutti_engine_close(e);
    return status;
}

static void run_load(load *l, int ranks)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", ranks, load_rank, l, &err) != TUTTI_OK)
        fail_msg("%s on %d ranks: %s", l->method, ranks, err.text);
}

static void server_loads_are_balanced_within_16_bytes_per_buffer(void **state)
{
    static const struct {
        const char *method;
        int workers, own, servers, pieces, each;
    } cases[] = {
        { "herring(node=none)", 4, 0, 4, 1, 1 },
        { "herring(node=none,fusion_mb=0.01,min_shard_kb=0)", 5, 0, 5, 25, 1 },
        { "herring(node=none,servers=3,fusion_mb=0.001,min_shard_kb=0)", 4, 0, 3, 0, 1 },
        { "herring(node=2,fusion_mb=0.01,min_shard_kb=0)", 6, 0, 6, 25, 1 },
        { "herring(node=4,rails=3,fusion_mb=0.01,min_shard_kb=0)", 8, 0, 6, 25, 1 },
        { "herring(fusion_mb=0.01,min_shard_kb=0)", 4, 3, 3, 25, 1 },
        { "herring(node=2,fusion_mb=0.01,min_shard_kb=0)", 4, 3, 3, 25, 2 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        load l = { .method = cases[k].method, .servers = cases[k].own };
        double least, most, sum = 0;
        run_load(&l, cases[k].workers + cases[k].own);
        assert_int_equal(l.n, cases[k].servers);
        if (cases[k].pieces > 0)
            assert_int_equal(l.pieces, cases[k].pieces);
        least = most = l.bytes[0];
        for (int j = 0; j < l.n; j++) {
            least = fmin(least, l.bytes[j]);
            most = fmax(most, l.bytes[j]);
            sum += l.bytes[j];
            assert_true(l.shards[j] == (double)(STEPS * l.pieces * cases[k].each));
        }
        /* every byte is in one shard; where ranks serve all rails they have one of each slot */
        assert_true(sum == (double)(STEPS * l.used * sizeof(float)));
        if (!(most - least <= 16.0 * STEPS * l.pieces * cases[k].each))
            fail_msg("%s on %d: servers have from %.0f to %.0f bytes of %d buffers", l.method, cases[k].workers, least,
                     most, STEPS * l.pieces);
    }
}

/* Contributions are kept for as many buffers as there are slots, N shards each: Q S. */
static void memory_is_proportional_to_slots(void **state)
{
    load one = { .method = "herring(wire=fp16,node=none,fusion_mb=0.004,min_shard_kb=0,slots=1)" },
         four = { .method = "herring(wire=fp16,node=none,fusion_mb=0.004,min_shard_kb=0,slots=4)" },
         windows = { .method = "herring(node=none,fusion_mb=0.004,min_shard_kb=0)" };
    const double buffer = 0.004 * 1048576 / sizeof(float), slack = 4 * 2 * 16;

    (void)state;
    run_load(&one, 4);
    run_load(&four, 4);
    run_load(&windows, 4);
    assert_true(one.contributions >= buffer && one.contributions <= buffer + 16 + slack);
    assert_true(four.contributions == 4 * one.contributions);
    assert_true(windows.contributions == 0);
}

/* ---- traffic ---- */

/* Part k of s of n elements, at multiples of 4; parts differ by 4 at most. */
static uint64_t shard(uint64_t n, uint64_t s, uint64_t k)
{
    const uint64_t units = (n + 3) / 4, end = k + 1 == s ? n : units * (k + 1) / s * 4;
    return end - units * k / s * 4;
}

typedef struct traffic {
    const char *more;
    int workers, own, node, rails, nodes_serving, each;
} traffic;

/* What i sends to j of a buffer of n elements, and in how many messages, between nodes. */
static uint64_t due(const traffic *c, uint64_t n, int i, int j, uint64_t *messages)
{
    const int w = c->workers, u = i % c->node;
    uint64_t elements = 0;

    *messages = 0;
    if (c->own > 0 && (i < w) != (j < w)) { /* a request, or an answer */
        const int worker = i < w ? i : j, server = (i < w ? j : i) - w;
        if (worker % c->node < c->rails) {
            elements =
                shard(shard(n, (uint64_t)c->rails, (uint64_t)(worker % c->node)), (uint64_t)c->own, (uint64_t)server);
            *messages = 1;
        }
    } else if (c->own == 0 && i / c->node != j / c->node && u == j % c->node && u < c->rails)
        for (int way = 0; way < 2; way++) { /* i asks j, i answers j */
            const int server = (way == 0 ? j : i) / c->node;
            if (server < c->nodes_serving) {
                elements +=
                    shard(shard(n, (uint64_t)c->rails, (uint64_t)u), (uint64_t)c->nodes_serving, (uint64_t)server);
                ++*messages;
            }
        }
    return elements;
}

/* What the members of a node send each other for a buffer: reduce-scatter, all-gather of
   slots. */
static uint64_t inside(const traffic *c, uint64_t n, int i, int j)
{
    const int u = i % c->node, v = j % c->node;
    const uint64_t of_j = v < c->rails ? shard(n, (uint64_t)c->rails, (uint64_t)v) : 0,
                   of_i = u < c->rails ? shard(n, (uint64_t)c->rails, (uint64_t)u) : 0;
    return of_j + of_i;
}

static void messages_per_pair_match_the_papers_formula(void **state)
{
    static const traffic cases[] = {
        { "node=none", 2, 0, 1, 1, 2, 4 },
        { "node=none", 5, 0, 1, 1, 5, 4 },
        { "servers=2", 4, 0, 1, 1, 2, 4 },
        { "node=2", 4, 0, 2, 2, 2, 4 },
        { "node=2", 8, 0, 2, 2, 4, 4 },
        { "node=4", 8, 0, 4, 4, 2, 4 },
        { "node=2,rails=1", 6, 0, 2, 1, 3, 4 },
        { "node=2,servers=1", 6, 0, 2, 2, 1, 4 },
        { "", 4, 3, 1, 1, 0, 4 },
        { "node=2", 4, 2, 2, 2, 0, 4 },
        { "node=none,wire=fp16", 4, 0, 1, 1, 4, 2 },
        { "node=4", 4, 0, 4, 4, 0, 4 },
    };
    static const uint64_t whole[] = { 1533 }, cut[] = { 512, 512, 509 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const traffic *c = &cases[k];
        const int ranks = c->workers + c->own;
        uint64_t messages[2][TRIAL_RANKS][TRIAL_RANKS];
        for (int form = 0; form < 2; form++) {
            const uint64_t *buffer = form == 0 ? whole : cut;
            const int buffers = form == 0 ? 1 : 3;
            char method[120];
            trial t;
            snprintf(method, sizeof method, "herring(%s%s%s)", c->more, c->more[0] != 0 && form > 0 ? "," : "",
                     form == 0 ? "" : "fusion_mb=0.001953125,min_shard_kb=0");
            t = trial_served(method, "sgd(lr=0.1)", 5, c->own);
            trial_run(&t, ranks);
            memcpy(messages[form], t.messages, sizeof t.messages);
            for (int i = 0; i < ranks; i++)
                for (int j = 0; j < ranks; j++) {
                    uint64_t bytes = 0, some;
                    for (int b = 0; b < buffers && i != j; b++) {
                        bytes += (uint64_t)c->each * due(c, buffer[b], i, j, &some);
                        if (c->node > 1 && i < c->workers && j < c->workers && i / c->node == j / c->node)
                            bytes += 4 * inside(c, buffer[b], i, j);
                    }
                    if (t.bytes[i][j] != 5 * bytes)
                        fail_msg("%s on %d and %d servers: %d sent %d %llu bytes, expected %llu", method, c->workers,
                                 c->own, i, j, (unsigned long long)t.bytes[i][j], (unsigned long long)(5 * bytes));
                }
            trial_drop(&t);
        }
        /* two buffers more a step */
        for (int i = 0; i < ranks; i++)
            for (int j = 0; j < ranks; j++) {
                uint64_t each = 0;
                due(c, 512, i, j, &each);
                if (i != j && i / c->node != j / c->node && messages[1][i][j] - messages[0][i][j] != 5 * 2 * each)
                    fail_msg("herring(%s) on %d: %d sends %d %llu messages for ten buffers more, expected %llu",
                             c->more, c->workers, i, j, (unsigned long long)(messages[1][i][j] - messages[0][i][j]),
                             (unsigned long long)(10 * each));
            }
    }
}

/* ---- slots ---- */

static void buffers_in_flight_do_not_exceed_the_slots(void **state)
{
    (void)state;
    for (int slots = 1; slots <= 8; slots *= 2)
        for (int kind = 0; kind < 3; kind++) {
            char method[120];
            trial t;
            snprintf(method, sizeof method, "herring(%s,slots=%d,fusion_mb=0.0002,min_shard_kb=0)",
                     kind == 0   ? "node=none"
                     : kind == 1 ? "node=2"
                                 : "node=none,wire=fp16",
                     slots);
            t = trial_of(method, "sgd(lr=0.1)", 4);
            trial_run(&t, 4);
            for (int r = 0; r < 4; r++) {
                assert_true(trial_metric(&t, "slots_most", r) >= 1 && trial_metric(&t, "slots_most", r) <= slots);
                assert_true(trial_metric(&t, "slots_mean", r) <= trial_metric(&t, "slots_most", r));
                assert_true(trial_metric(&t, "two_hops_seconds", r) <= trial_metric(&t, "two_hops_seconds_most", r));
                assert_true(trial_metric(&t, "hidden_seconds", r) <= trial_metric(&t, "exchange_seconds", r));
            }
            trial_drop(&t);
        }
}

/* ---- what is refused ---- */

static void check_refused(const char *method, int ranks, int servers, int lane, const char *sentence)
{
    trial t = trial_served(method, "sgd(lr=0.1)", 2, servers);
    tutti_error err;

    t.options.lane = lane;
    assert_int_equal(trial_try(&t, ranks, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s on %d ranks: '%s' does not say '%s'", method, ranks, err.text, sentence);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    (void)state;
    check_refused("herring(node=3)", 6, 0, 0,
                  "node has 3 workers, and sums of that many do not occur in the order in which all methods sum");
    check_refused("herring(node=4)", 6, 0, 0, "node is 4, which does not divide the 6 workers");
    check_refused("herring(node=2,rails=3)", 4, 0, 0, "rails is 3, but a node has 2 workers");
    check_refused("herring(node=2,servers=3)", 4, 0, 0, "servers is 3, but there are 2 nodes");
    check_refused("herring(servers=5)", 4, 0, 0, "servers is 5, but there are 4 workers");
    check_refused("herring(placement=dedicated)", 4, 0, 0, "placement is dedicated, but no rank only serves");
    check_refused("herring(placement=colocated)", 4, 1, 0,
                  "placement is colocated, but there are ranks that only serve (--servers)");
    check_refused("herring(node=none,fusion_mb=0.1)", 4, 0, 0,
                  "fusion_mb is 0.1, so each of 4 shards has 26214 bytes, fewer than 65536 (min_shard_kb)");
    check_refused("herring(node=none,fusion_mb=0.00004,min_shard_kb=0)", 4, 0, 0, "10 bytes, fewer than 16");
    check_refused("herring(slots=0)", 2, 0, 0, "slots");
    check_refused("herring(slots=2)", 2, 0, 3, "lane is 3, but 2 buffers are under way at a time (slots)");
    check_refused("herring(servers=2)", 4, 1, 0, "has 2 servers, but 1 ranks only serve");
}

/* Buffers grow with the servers until each shard is worth a message. */
static void a_buffer_grows_with_its_servers(void **state)
{
    static const struct {
        const char *method;
        double bytes;
    } cases[] = {
        { "herring(node=none)", 25 << 20 },
        { "herring(node=none,min_shard_kb=8192)", 4 * 8192 * 1024.0 },
        { "herring(node=2,min_shard_kb=8192)", 4 * 8192 * 1024.0 },
        { "herring(node=2,rails=1,min_shard_kb=16384)", 2 * 16384 * 1024.0 },
        { "herring(node=none,fusion_mb=0.25)", 262144 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, "sgd(lr=0.1)", 2);
        trial_run(&t, 4);
        assert_true(trial_metric(&t, "fusion_bytes", -1) == cases[k].bytes);
        trial_drop(&t);
    }
}

/* ---- nodes ---- */

/* Threads are on one machine whose memory they share: nothing needs a server, unless one is asked
   for. */
static void single_host_sums_without_servers(void **state)
{
    static const struct {
        const char *method;
        int own;
        double nodes;
        bool serves;
    } cases[] = {
        { "herring", 0, 1, false },
        { "herring(node=machine)", 0, 1, false },
        { "herring(node=none)", 0, 4, true },
        { "herring(servers=2)", 0, 4, true },
        { "herring", 2, 4, true },
        { "herring(node=2)", 0, 2, true },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_served(cases[k].method, "sgd(lr=0.1)", 3, cases[k].own);
        bool served = false;
        trial_run(&t, 4 + cases[k].own);
        for (int i = 0; i < t.metrics; i++)
            served = served || strcmp(t.metric_name[i], "server_bytes") == 0;
        assert_int_equal(served, cases[k].serves);
        assert_true(trial_metric(&t, "nodes", -1) == cases[k].nodes);
        trial_drop(&t);
    }
}

/* Worker 1 is lost: worker 0 cannot sum without it and leaves, too. The other node continues with
   the mean of what it has. */
typedef struct lost {
    int workers, servers;
    tutti_status ended[TRIAL_RANKS];
    char text[TRIAL_RANKS][640];
    float x[4];
} lost;

static tutti_status lost_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "a", .dims = 1, .dim = { 300 } };
    lost *l = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine *e = NULL;
    tutti_pass p;
    bool more = true;
    tutti_status status = tutti_engine_open(
        &e, world, &param, 1,
        &(tutti_engine_options){
            .method = "herring(node=2)", .optimizer = "sgd(lr=0.25)", .batch = 2, .servers = l->servers },
        err);

    for (int step = 0; status == TUTTI_OK && step < 8; step++) {
        const tutti_method *m = tutti_engine_method(e);
        if (rank >= l->workers) {
            status = step == 0 ? tutti_engine_more(e, 8, &more, err) : TUTTI_OK;
            continue;
        }
        if (rank == 1 && step == 3) {
            status = tutti_fail(err, TUTTI_ERR_IO, 0, "this rank was told to fail");
            break;
        }
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (size_t i = 0; i < 300; i++)
                m->g[i] = (float)(1 + rank);
            status = tutti_engine_grad_ready(e, 0, err);
            if (status == TUTTI_OK)
                status = tutti_engine_pass_end(e, 0, err);
            if (status != TUTTI_OK)
                break;
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK && rank < 4)
        l->x[rank] = tutti_engine_method(e)->x[7];
    if (status == TUTTI_OK)
        status = tutti_engine_part(e, err);
    if (status != TUTTI_OK)
        snprintf(l->text[rank], sizeof l->text[0], "%s", err->text);
    tutti_engine_close(e);
    return l->ended[rank] = status;
}

static void node_fails_with_its_lost_worker_and_others_continue(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++) {
        lost l = { .workers = 4, .servers = servers };
        tutti_error err = { .rank = -1 };
        tutti_world_run("shm", 4 + servers, lost_rank, &l, &err);
        assert_int_equal(l.ended[1], TUTTI_ERR_IO);
        assert_int_equal(l.ended[0], TUTTI_ERR_PEER); /* for which worker 1 alone answers */
        assert_non_null(strstr(l.text[0], "worker 0 leaves the run: the workers of its node have lost worker 1"));
        for (int r = 2; r < 4 + servers; r++)
            if (l.ended[r] != TUTTI_OK)
                fail_msg("rank %d ended with %d: %s", r, (int)l.ended[r], l.text[r]);
        /* three steps of all workers, whose mean is 2.5; five of workers 2 and 3, whose mean is
           3.5 */
        assert_true(l.x[2] == -0.25f * (3 * 2.5f + 5 * 3.5f));
        assert_true(l.x[3] == l.x[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_match_ddp_bit_for_bit),
        cmocka_unit_test(one_worker_matches_single_and_sends_nothing),
        cmocka_unit_test(step_with_a_nonfinite_gradient_matches_ddp),
        cmocka_unit_test(fp16_wire_keeps_representable_values_exact_and_replicas_equal),
        cmocka_unit_test(server_loads_are_balanced_within_16_bytes_per_buffer),
        cmocka_unit_test(memory_is_proportional_to_slots),
        cmocka_unit_test(messages_per_pair_match_the_papers_formula),
        cmocka_unit_test(buffers_in_flight_do_not_exceed_the_slots),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(a_buffer_grows_with_its_servers),
        cmocka_unit_test(single_host_sums_without_servers),
        cmocka_unit_test(node_fails_with_its_lost_worker_and_others_continue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
