/* Goal: a method may look at its whole gradient before the first piece is sent, ask what its
   codec would make of it, and then take the codec or leave it: what was asked is what is then
   sent, a round past the codec is ddp's and moves nothing that the codec keeps, and in a round
   through it what is kept and what is sent are together what there was, to the bit. Method: a
   method made for it; the codec's states are read between steps, and its recursion is computed
   separately. */
#include <stdlib.h>

#include "toy.h"
#include "engine/exchange/ask.h"

enum { WORKERS = 3, STEPS = 9, TENSORS = 3, N = 1000 + 33 + 500 };
static const size_t count[TENSORS] = { 1000, 33, 500 };
static const char *const names[TENSORS] = { "c", "b", "a" };

typedef struct probe {
    int64_t every;               /* the last of every `every` steps goes through the codec; 0: none */
    const char *codec;
    double *whole, *sent;        /* TENSORS; declared */
    bool nan, complete;          /* of the last step: the codec was asked about a gradient that
                                    is not finite; all of g was there */
} probe;

static const tutti_option probe_options[] = {
    { "every", TUTTI_INT, TUTTI_AT(probe, every), 3, 0, 100, NULL, "" },
    { "codec", TUTTI_SPEC, TUTTI_AT(probe, codec), 0, 0, 0, "ef(topk(ratio=0.1))", "" },
    { 0 }
};

static tutti_status probe_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    probe *s = m->self;
    const tutti_state numbers = { .name = "probe.whole", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = TENSORS },
                      others = { .name = "probe.sent", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = TENSORS };

    m->piece_bytes = m->first_piece_bytes = 2048; /* several pieces */
    m->whole = true;
    tutti_declare(plan, &numbers, &s->whole);
    tutti_declare(plan, &others, &s->sent);
    TUTTI_TRY(tutti_exchange_declare(m, plan, s->codec, err));
    return tutti_exchange_ask_declare(m, plan, err);
}

static float gradient(int rank, uint64_t step, size_t i)
{
    return (float)(tutti_normal((tutti_rng){ 5, 1 + (uint64_t)rank, step }, i) * (double)(1 + i % 7));
}

static tutti_status probe_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    probe *s = m->self;
    const bool through = s->every > 0 && m->step % (uint64_t)s->every == (uint64_t)s->every - 1;

    if (p->index == 0) {
        s->complete = true;
        for (size_t i = 0; i < N; i++)
            s->complete = s->complete && (m->g[i] == gradient(m->rank, m->step, i) || isnan(m->g[i]));
        TUTTI_TRY(tutti_exchange_ask(m, m->weight, s->whole, s->sent, err));
        s->nan = isnan(s->whole[0]) && isnan(s->sent[TENSORS - 1]);
    }
    return (through ? tutti_exchange : tutti_exchange_plain)(m, p, m->weight, err);
}

static const tutti_method_ops probe_ops = {
    .name = "probe", .options = probe_options, .self_bytes = sizeof(probe), .traits = TUTTI_REPLICAS_EQUAL,
    .declare = probe_declare, .exchange = probe_exchange,
};
static const tutti_method_ops *const probes[] = { &probe_ops, NULL };

typedef struct job {
    tutti_engine_options options;
    int bad_step;                /* in which worker 1's gradient has a NaN; -1: none */
    float x[STEPS][WORKERS][N], e[STEPS + 1][WORKERS][N];
    double whole[STEPS][WORKERS][TENSORS], sent[STEPS][WORKERS][TENSORS];
    bool nan[STEPS][WORKERS], kept[STEPS][WORKERS];
} job;

/* The residual, and a hash of all states of the codec. */
static tutti_status look(tutti_engine *e, float *residual, uint64_t *hash, tutti_error *err)
{
    const tutti_saved *pieces;
    size_t n;

    *hash = 0;
    TUTTI_TRY(tutti_engine_state(e, &pieces, &n, err));
    for (size_t k = 0; k < n; k++)
        if (strncmp(pieces[k].state, "codec", 5) == 0) {
            const char *name = pieces[k].state;
            *hash = *hash * 31 + tutti_hash(pieces[k].data,
                                            (pieces[k].end - pieces[k].begin) * tutti_dtype_bytes(pieces[k].dtype));
            for (size_t t = 0, first = 0; t < TENSORS; first += count[t++])
                if (strcmp(name + strlen(name) - 2, ".e") == 0 && strcmp(pieces[k].tensor, names[t]) == 0)
                    memcpy(residual + first, pieces[k].data, count[t] * sizeof(float));
        }
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    tutti_param params[TENSORS];
    tutti_engine *e;
    tutti_status status;
    uint64_t before = 0, after = 0;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = TENSORS - 1 - k };
    TUTTI_TRY(tutti_engine_open_from(&e, world, params, TENSORS, &j->options,
                                     strncmp(j->options.method, "ddp", 3) == 0 ? tutti_methods : probes, err));
    status = TUTTI_OK;
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        const tutti_method *m = tutti_engine_method(e);
        const probe *own = m->self;
        const int r = m->rank;
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (size_t i = 0; i < N; i++)
                m->g[i] = (float)p.scale * gradient(r, (uint64_t)s, i);
            if (r == 1 && s == j->bad_step)
                m->g[700] = NAN;
            for (int k = 0; k < TENSORS; k++)
                TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
        if (status == TUTTI_OK)
            status = look(e, j->e[s + 1][r], &after, err);
        memcpy(j->x[s][r], m->x, N * sizeof(float));
        j->kept[s][r] = s > 0 && before == after;
        before = after;
        if (m->ops == &probe_ops && status == TUTTI_OK) {
            memcpy(j->whole[s][r], own->whole, sizeof j->whole[s][r]);
            memcpy(j->sent[s][r], own->sent, sizeof j->sent[s][r]);
            j->nan[s][r] = own->nan;
            CHECK(own->complete);
        }
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static job *job_of(const char *method)
{
    job *j = calloc(1, sizeof *j);

    j->options = (tutti_engine_options){ .method = method, .optimizer = "sgd(lr=1)", .batch = 2 };
    j->bad_step = -1;
    return j;
}

static void run(job *j)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", WORKERS, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s: %s", j->options.method, err.text);
}

static void round_bypassing_the_codec_matches_ddp_and_keeps_residuals(void **state)
{
    static const char *const codecs[] = { "ef(topk(ratio=0.1))", "ef(topk(ratio=0.1),server=on)", "ef(sign)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++) {
        char method[100];
        job *j, *ddp = job_of("ddp");
        snprintf(method, sizeof method, "probe(every=0,codec=%s)", codecs[c]);
        j = job_of(method);
        j->options.loss_scale = "static(scale=64)";
        run(j);
        run(ddp);
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < WORKERS; r++) {
                assert_memory_equal(j->x[s][r], ddp->x[s][r], sizeof j->x[s][r]);
                assert_true(s == 0 || j->kept[s][r]);
            }
        free(j);
        free(ddp);
    }
}

/* Of three workers all messages go to all. */
static void encoded_round_sends_the_prediction_and_keeps_the_rest(void **state)
{
    job *j = job_of("probe(every=3)");

    (void)state;
    run(j);
    for (int s = 0; s < STEPS; s++) {
        float mean[N];
        for (int r = 0; r < WORKERS; r++) {
            double whole[TENSORS] = { 0 }, sent[TENSORS] = { 0 };
            for (size_t i = 0, t = 0, end = count[0]; i < N; i++) {
                const float before = j->e[s][r][i], v = gradient(r, (uint64_t)s, i) + before, after = j->e[s + 1][r][i];
                if (i == end)
                    end += count[++t];
                whole[t] += (double)v * v;
                if (s % 3 != 2)
                    assert_true(after == before);
                else {
                    assert_true(after == 0 || after == v);
                    sent[t] += after == 0 ? (double)v * v : 0;
                }
            }
            for (int t = 0; t < TENSORS; t++) {
                assert_true(fabs(j->whole[s][r][t] - whole[t]) <= 1e-5 * whole[t]);
                assert_true(s % 3 != 2 || fabs(j->sent[s][r][t] - sent[t]) <= 1e-5 * whole[t]);
                assert_true(j->sent[s][r][t] < j->whole[s][r][t]);
            }
        }
        for (size_t i = 0; i < N && s % 3 == 2; i++) {
            float c[WORKERS];
            for (int r = 0; r < WORKERS; r++) {
                const float v = gradient(r, (uint64_t)s, i) + j->e[s][r][i];
                c[r] = (j->e[s + 1][r][i] == 0 ? v : 0) * (1.0f / WORKERS);
            }
            mean[i] = (c[0] + c[1]) + c[2];
            assert_true(j->x[s][0][i] == j->x[s - 1][0][i] - mean[i]);
        }
    }
    free(j);
}

static void nonfinite_gradient_is_reported_and_skipped(void **state)
{
    job *j = job_of("probe(every=1)"), *without = job_of("probe(every=1)");

    (void)state;
    j->bad_step = 4;
    j->options.nonfinite = TUTTI_NONFINITE_SKIP;
    run(j);
    run(without);
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < WORKERS; r++)
            assert_int_equal(j->nan[s][r], s == 4 && r == 1);
    for (int r = 0; r < WORKERS; r++) {
        assert_true(j->kept[4][r]); /* the step is skipped by the codec, too */
        assert_memory_equal(j->x[4][r], j->x[3][r], sizeof j->x[3][r]);
        assert_memory_equal(j->x[3][r], without->x[3][r], sizeof j->x[3][r]);
    }
    free(j);
    free(without);
}

static void is_refused(job *j, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", 4, run_rank, j, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s", err.text);
    free(j);
}

static void codec_queries_are_rejected_without_per_worker_encoding(void **state)
{
    job *teams = job_of("probe"), *cost = job_of("probe");

    (void)state;
    teams->options.codec_hierarchy = "2";
    cost->options.codec_cost = TUTTI_CODEC_COST_AUTO_OFF;
    is_refused(teams, "codec-hierarchy is '2', but method 'probe' decides by what the codec makes of every worker's");
    is_refused(cost, "codec-cost is auto-off, but method 'probe' decides by itself in which steps");
    is_refused(job_of("probe(codec=powersgd)"), "method 'probe' looks at what each worker would send, and codec "
                                                "'powersgd' sums it on its way");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_bypassing_the_codec_matches_ddp_and_keeps_residuals),
        cmocka_unit_test(encoded_round_sends_the_prediction_and_keeps_the_rest),
        cmocka_unit_test(nonfinite_gradient_is_reported_and_skipped),
        cmocka_unit_test(codec_queries_are_rejected_without_per_worker_encoding),
    };
    return cmocka_run_group_tests_name("engine/asked", tests, NULL, NULL);
}
