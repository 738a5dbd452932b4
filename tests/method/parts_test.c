/* Goal: servers whose parts are not equal, on the workers' ranks and on dedicated ranks in one
   run (setup.parts, setup.mixed). Bits are those of ddp whichever server has which part. Each
   pair exchanges what the parts prescribe, to the byte, and nothing where one has no part.
   Without ranks that only serve a run with equal parts is parameter-server's, to the byte. A
   model that is kept in such shards loses no gradient. Method: methods of this file, ddp's bits,
   the formula. */
#include "trial.h"
#include "tutti/method/server.h"

/* ---- methods: sums; a model at its servers ---- */

typedef struct parted {
    int64_t workers_part, servers_part, servers, node, step; /* step: by how much the k-th part
                                                                exceeds the one before */
    double bucket;
    tutti_server_sums *sums;
    tutti_server *server;
} parted;
enum { SERVE };

static const tutti_option parted_options[] = {
    { "workers_part", TUTTI_INT, TUTTI_AT(parted, workers_part), 1, 0, 1e6, NULL, "of a worker that serves" },
    { "servers_part", TUTTI_INT, TUTTI_AT(parted, servers_part), 1, 0, 1e6, NULL, "of a rank that only serves" },
    { "servers", TUTTI_INT, TUTTI_AT(parted, servers), 0, 0, 65536, NULL, "workers that serve; 0: all" },
    { "node", TUTTI_INT, TUTTI_AT(parted, node), 1, 1, 64, NULL, "workers that sum among themselves first" },
    { "step", TUTTI_INT, TUTTI_AT(parted, step), 0, 0, 1e6, NULL, "that each has more than the one before it" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(parted, bucket), 25, 1.0 / 1048576, 65536, NULL, "bucket size" },
    { 0 }
};

/* In order of rank. */
static int parts_of(const tutti_method *m, const parted *s, uint32_t *parts)
{
    const int nodes = m->workers / (int)s->node, beside = s->servers > 0 ? (int)s->servers : nodes;

    for (int k = 0; k < beside + m->servers; k++)
        parts[k] = (uint32_t)((k < beside ? s->workers_part : s->servers_part) + s->step * k);
    return beside + m->servers;
}

static tutti_status sums_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    parted *s = m->self;
    uint32_t parts[TRIAL_RANKS];

    parts_of(m, s, parts);
    m->piece_bytes = m->first_piece_bytes = (size_t)(s->bucket * 1048576);
    return tutti_server_sums_declare(&s->sums, m, plan,
                                     &(tutti_server_sums_options){ .service = SERVE, .servers = (int)s->servers,
                                                                   .node = (int)s->node, .mixed = true,
                                                                   .parts = parts },
                                     err);
}

static tutti_status sums_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_server_sums_exchange(((parted *)m->self)->sums, p, err);
}

static tutti_status sums_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_sums_run(((parted *)m->self)->sums, err);
}

/* values += d, and every worker gets the current values. */
static tutti_status model_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    tutti_server *server = ((parted *)m->self)->server;

    tutti_server_add(server, -0.0625f, r->in);
    return tutti_server_give(server, &r->note, 1, 0, err);
}

static tutti_status model_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    parted *s = m->self;
    uint32_t parts[TRIAL_RANKS];

    parts_of(m, s, parts);
    return tutti_server_declare(&s->server, m, plan,
                                &(tutti_server_setup){ .rule = model_rule, .service = SERVE,
                                                       .servers = (int)s->servers, .mixed = true, .parts = parts },
                                err);
}

static tutti_status model_step(tutti_method *m, tutti_error *err)
{
    parted *s = m->self;
    tutti_server_answers answers;

    return tutti_server_push(s->server, 0, 0, m->g, m->x, &answers, err);
}

static tutti_status model_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((parted *)m->self)->server, err);
}

static tutti_status model_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(((parted *)m->self)->server, err);
}

static const tutti_service sums_services[] = { [SERVE] = { "server", sums_serve }, { 0 } };
static const tutti_service model_services[] = { [SERVE] = { "server", model_serve }, { 0 } };
static const tutti_method_ops sums_ops = {
    .name = "parted", .title = "Sums at servers of unequal parts", .family = "server", .options = parted_options,
    .self_bytes = sizeof(parted), .services = sums_services, .declare = sums_declare, .exchange = sums_exchange,
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_PARAMETER_SERVERS | TUTTI_THROUGH_SERVERS | TUTTI_SPARSE_ROWS,
};
static const tutti_method_ops model_ops = {
    .name = "parted-model", .title = "A model at servers of unequal parts", .family = "server",
    .options = parted_options, .self_bytes = sizeof(parted), .services = model_services, .declare = model_declare,
    .step = model_step, .final_model = model_final_model,
    .traits = TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_FAULT_TOLERANT,
};
static const tutti_method_ops *const methods[] = { &sums_ops, &model_ops, NULL };

static trial of_parts(const char *method, const char *optimizer, int steps, int servers)
{
    trial t = trial_served(method, optimizer, steps, servers);

    t.methods = methods;
    return t;
}

/* ---- bits ---- */

static void check_bits(const char *method, int n, int servers, double clip, bool show)
{
    trial a = of_parts(method, "sgd(lr=0.1,momentum=0.9)", 4, servers),
          b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 4);

    a.options.clip_norm = b.options.clip_norm = clip;
    a.show = show;
    trial_run(&a, n + servers);
    trial_run(&b, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= 4; s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s on %d workers and %d servers: after step %d worker %d differs from ddp", method, n,
                         servers, s, r);
    trial_drop(&a);
    trial_drop(&b);
}

static void any_assignment_of_parts_matches_ddp_bit_for_bit(void **state)
{
    static const struct { const char *method; int n, servers; } cases[] = {
        { "parted", 1, 1 }, { "parted", 3, 0 }, { "parted", 3, 2 },
        { "parted(workers_part=3,servers_part=6,bucket_mb=0.003)", 4, 1 },     /* BytePS's optimum there */
        { "parted(workers_part=2,servers_part=6)", 4, 2 },
        { "parted(workers_part=0,servers_part=1)", 4, 4 },
        { "parted(workers_part=1,servers_part=0,bucket_mb=0.001)", 3, 2 },
        { "parted(workers_part=0,servers_part=0,step=5,servers=2)", 3, 2 },
        { "parted(workers_part=999999,servers_part=1)", 2, 3 },
        { "parted(node=2,workers_part=1,servers_part=3,bucket_mb=0.002)", 4, 2 },
        { "parted(node=2,workers_part=0,servers_part=3)", 6, 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        check_bits(cases[k].method, cases[k].n, cases[k].servers, k % 3 == 1 ? 5 : 0, k % 2 == 1);
}

/* ---- traffic ---- */

enum { STEPS = 5 };

static void traffic_per_pair_matches_the_assigned_parts(void **state)
{
    static const struct { const char *method; int n, servers; uint32_t parts[TRIAL_RANKS]; } cases[] = {
        { "parted", 3, 0, { 1, 1, 1 } },
        { "parted", 3, 2, { 1, 1, 1, 1, 1 } },
        { "parted(workers_part=3,servers_part=6)", 4, 1, { 3, 3, 3, 3, 6 } },
        { "parted(workers_part=2,servers_part=6)", 4, 2, { 2, 2, 2, 2, 6, 6 } },
        { "parted(workers_part=0,servers_part=1)", 3, 3, { 0, 0, 0, 1, 1, 1 } },
        { "parted(workers_part=1,servers_part=0)", 3, 2, { 1, 1, 1, 0, 0 } },
        { "parted(workers_part=1,servers_part=1,step=7)", 3, 1, { 1, 8, 15, 22 } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int ranks = cases[c].n + cases[c].servers;
        trial t = of_parts(cases[c].method, "sgd(lr=0.0625)", STEPS, cases[c].servers);
        trial_run(&t, ranks);
        trial_parts_travel(&t, ranks, cases[c].parts, 0, trial_floats);
        trial_drop(&t);
    }
}

static void equal_parts_match_parameter_server_byte_for_byte(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        trial a = of_parts("parted(bucket_mb=0.002)", "sgd(lr=0.1)", 4, 0),
              b = trial_of("parameter-server(bucket_mb=0.002,first_bucket_mb=0.002)", "sgd(lr=0.1)", 4);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int r = 0; r < n; r++)
            assert_true(trial_same(&a, a.x[r][4], b.x[r][4]));
        assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
        assert_memory_equal(a.messages, b.messages, sizeof a.messages);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- a model ---- */

static void model_in_unequal_shards_loses_no_gradient(void **state)
{
    static const struct { const char *method; int n, servers; } cases[] = {
        { "parted-model", 2, 1 },
        { "parted-model(workers_part=3,servers_part=6)", 4, 1 },
        { "parted-model(workers_part=0,servers_part=1)", 3, 2 },
        { "parted-model(workers_part=1,servers_part=0,servers=2)", 3, 1 },
        { "parted-model(step=3)", 3, 3 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int show = 0; show < 2; show++) {
            const int n = cases[c].n, ranks = n + cases[c].servers;
            trial t = of_parts(cases[c].method, "sgd(lr=0.0625)", 8, cases[c].servers);
            t.gradient = trial_constant;
            t.show = show != 0;
            trial_run(&t, ranks);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double want = trial_initial_value(i);
                for (int r = 0; r < n; r++)
                    want -= 0.0625 * t.done[r] * (double)trial_constant(r, 0, i, 0);
                for (int r = 0; r < n; r++)
                    if (t.x[r][8][i] != (float)want)
                        fail_msg("%s on %d and %d, rank %d, element %zu: %.9g, expected %.9g", t.method, n,
                                 cases[c].servers, r, i, (double)t.x[r][8][i], want);
            }
            trial_drop(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_assignment_of_parts_matches_ddp_bit_for_bit),
        cmocka_unit_test(traffic_per_pair_matches_the_assigned_parts),
        cmocka_unit_test(equal_parts_match_parameter_server_byte_for_byte),
        cmocka_unit_test(model_in_unequal_shards_loses_no_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
