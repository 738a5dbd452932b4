/* Goal: codec_report measures what a codec makes of gradients, and changes no bit, no byte and no
   message of the run; its numbers are those of independent computations. Method: the toy client on
   ranks that are threads, through every codec of the registry; records are read after every
   step. */
#include "engine/engine_internal.h"
#include "state/plan.h"
#include "toy.h"
#include "tutti/codec.h"
#include "tutti/tutti.h"
#include "codec/codec.h"
#include "sanitized.h"

enum { RANKS = 4, STEPS = 6, MOST_STEPS = 40 };
static const size_t counts[TOY_TENSORS] = { 10, 3000, 33, 2001, 7 };

typedef struct seen {
    uint64_t hash[RANKS], sent[RANKS][2];
    uint64_t payload[TOY_TENSORS];                      /* of rank 0, as all that follows */
    tutti_codec_record record[MOST_STEPS][TOY_TENSORS]; /* figure: not valid */
    double bound[MOST_STEPS][TOY_TENSORS], levels[MOST_STEPS][TOY_TENSORS]; /* levels: sum; -1: none reported */
    double mean[MOST_STEPS][TOY_TENSORS];               /* |mean gradient|, after the exchange */
    double kept[MOST_STEPS][TOY_TENSORS];               /* |codec.e|, after the step; -1: there is no such state */
    bool measured;
} seen;
typedef struct job { toy t; seen *out; } job;

static double norm(const tutti_method *m, const float *x, int tensor)
{
    return sqrt(tutti_norm2(m->device, m->layout->tensor[tensor].count, x + m->layout->tensor[tensor].first));
}

static const float *state_of(const tutti_engine *e, const char *name)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        if (strcmp(tutti_plan_state(e->plan, i, &memory)->name, name) == 0)
            return memory;
    }
    return NULL;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const job *j = arg;
    const int rank = tutti_world_rank(world);
    toy t = j->t;
    tutti_engine *e;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int s = 0; s < t.steps && status == TUTTI_OK; s++) {
        const tutti_codec_record *records = tutti_engine_codec_records(e);
        const float *kept = state_of(e, "codec.e");
        status = toy_step(e, &t, err);
        for (int i = 0; i < TOY_TENSORS && rank == 0 && status == TUTTI_OK; i++) {
            j->out->measured = records != NULL;
            j->out->mean[s][i] = norm(&e->m, e->m.g, i);
            j->out->kept[s][i] = kept != NULL ? norm(&e->m, kept, i) : -1;
            j->out->bound[s][i] = j->out->levels[s][i] = -1;
            if (records != NULL)
                j->out->record[s][i] = records[i];
            for (int k = 0; records != NULL && k < records[i].n_figures; k++) {
                const tutti_codec_figure *f = &records[i].figure[k];
                double sum = 0;
                for (size_t l = 0; l < f->n; l++)
                    sum += f->value[l];
                *(strcmp(f->name, "bound") == 0 ? &j->out->bound[s][i] : &j->out->levels[s][i]) = sum;
            }
        }
    }
    j->out->hash[rank] = toy_hash(e);
    tutti_world_sent(world, TUTTI_ANY, &j->out->sent[rank][0], &j->out->sent[rank][1]);
    if (rank == 0 && tutti_engine_payload(e) != NULL)
        memcpy(j->out->payload, tutti_engine_payload(e), sizeof j->out->payload);
    tutti_engine_close(e);
    return status;
}

static tutti_engine_options with(const char *codec, uint64_t every)
{
    return (tutti_engine_options){
        .method = "ddp", .batch = 4, .seed = 3, .codec = codec, .codec_report = every, .optimizer = "sgd(lr=0.05)"
    };
}

static void run(const tutti_engine_options *options, int n, int steps, seen *out)
{
    static const size_t rows[TOY_TENSORS] = { 0, 60, 0, 3, 0 };
    tutti_error err = { .rank = -1 };
    job j = { .t = toy_default(), .out = out };

    memcpy(j.t.count, counts, sizeof counts);
    memcpy(j.t.rows, rows, sizeof rows);
    j.t.options = *options;
    j.t.steps = steps;
    if (options->nonfinite == TUTTI_NONFINITE_SKIP) {
        j.t.bad_rank = j.t.bad_step = 1;
        j.t.bad_tensor = 3;
    }
    memset(out, 0, sizeof *out);
    if (tutti_world_run("shm", n, run_rank, &j, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", options->codec, n, err.text);
}

/* Every codec of the registry is in one of these. */
static const char *const codecs[] = {
    "fp32",
    "fp16",
    "bf16",
    "trunc16",
    "int8",
    "minmax8",
    "qsgd",
    "qsgd(coding=elias,norm=l2)",
    "nuqsgd(coding=huffman)",
    "nuqsgd(zero_level=off,tail=dense)",
    "alq(bucket=512,first=2)",
    "amq(bucket=512,first=2)",
    "ef(sign)",
    "ef(sign,server=on)",
    "ef(onebit)",
    "ef(onebit-col)",
    "sign-vote",
    "topk(ratio=0.1)",
    "ef(dct(topk=8,chunk=16))",
    "ef(chunk-topk(topk=8,chunk=16))",
    "ef(e3m0)",
    "ef(topk(index_code=delta,value_dtype=fp16),momentum=0.9)",
    "ef(threshold(0.1))",
    "ef(randomk(ratio=0.1))",
    "randomk(unbiased=on)",
    "wangni",
    "powersgd(rank=2)",
    "ef(powersgd(rank=2,ef_rule=aggregated,factor_dtype=fp16))",
    "large(bf16,min=100)",
    "ef21(topk(ratio=0.1))",
    "dgc(topk(ratio=0.1))",
    "dgc(sign)",
    "ef(accordion(low=topk(ratio=0.5),high=topk,unit=step,interval=2))",
    "ef(topk(ratio=0.1),flush_every=3)",
};

static void every_codec_is_in_the_list(void **state)
{
    (void)state;
    for (int k = 0; tutti_codecs[k] != NULL; k++) {
        bool found = false;
        for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
            found = found || strstr(codecs[c], tutti_codecs[k]->name) != NULL;
        if (!found)
            fail_msg("no spec here has %s in it", tutti_codecs[k]->name);
    }
}

static void measuring_changes_no_bit_and_no_message(void **state)
{
    static seen off, on;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c += UNLESS_SANITIZED(1, 3))
        for (int n = 1; n <= RANKS; n += n == 1 ? 2 : 1) { /* alone; all to all; by owners */
            tutti_engine_options options = with(codecs[c], 0);
            options.nonfinite = n == 3 ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
            run(&options, n, STEPS, &off);
            options.codec_report = 1;
            run(&options, n, STEPS, &on);
            assert_false(off.measured);
            assert_true(on.measured);
            if (memcmp(off.hash, on.hash, sizeof on.hash) != 0 || memcmp(off.sent, on.sent, sizeof on.sent) != 0 ||
                memcmp(off.payload, on.payload, sizeof on.payload) != 0)
                fail_msg("%s on %d workers", codecs[c], n);
            for (int s = 0; s < STEPS; s++)
                for (int i = 0; i < TOY_TENSORS; i++) {
                    const tutti_codec_record *r = &on.record[s][i];
                    if (r->step != (uint64_t)s + 1 || r->bits != 8.0 * (double)r->bytes / (double)counts[i] ||
                        !(r->density >= 0 && r->density <= 1) || !(r->union_density <= 1))
                        fail_msg("%s on %d workers, step %d, tensor %d: at %llu, %g bits, densities %g and %g",
                                 codecs[c], n, s, i, (unsigned long long)r->step, r->bits, r->density,
                                 r->union_density);
                }
        }
}

/* One worker's mean is its own part as decoded, so what stands in g after a step is d. */
static void numbers_are_those_of_the_definitions(void **state)
{
    static seen fp32, topk, qsgd, sign;
    const tutti_engine_options a = with("fp32", 1), b = with("topk(ratio=0.1)", 1),
                               c = with("qsgd(norm=l2,bucket=64)", 1), d = with("sign", 1);

    (void)state;
    run(&a, 1, STEPS, &fp32), run(&b, 1, STEPS, &topk), run(&c, 1, STEPS, &qsgd), run(&d, 1, STEPS, &sign);
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < TOY_TENSORS; i++) {
            const size_t n = counts[i], k = (n + 9) / 10;
            const tutti_codec_record *f = &fp32.record[s][i], *t = &topk.record[s][i], *q = &qsgd.record[s][i],
                                     *g = &sign.record[s][i];
            assert_true(f->lost == 0 && f->density == 1 && f->bits == 32 && f->norm == fp32.mean[s][i] &&
                        fp32.bound[s][i] == 0 && isnan(f->residual));
            assert_string_equal(t->codec, "topk");
            assert_true(t->density == (double)k / (double)n && t->union_density == t->density);
            assert_true(topk.bound[s][i] == 1 - (double)k / (double)n && t->lost <= topk.bound[s][i]);
            /* what is sent and what is not are orthogonal */
            assert_true(fabs(t->lost - (1 - pow(topk.mean[s][i] / t->norm, 2))) < 1e-6);
            assert_true(q->bytes == (4 * n + 7) / 8 + 4 * ((n + 63) / 64) && qsgd.levels[s][i] == (double)n);
            assert_true(fabs(g->lost - (1 - g->rho * g->rho)) < 1e-6); /* of the scale |x|_1 / n */
        }
}

/* By owners a tensor is encoded part by part; parts are whole buckets of 64, so
   that together they are the tensor. */
static void parts_of_a_tensor_are_put_together(void **state)
{
    static seen parts, whole;
    const tutti_engine_options options = with("qsgd(norm=l2,bucket=64)", 1);
    tutti_engine_options gathered = options;

    (void)state;
    gathered.collective = "allgather";
    run(&options, RANKS, 1, &parts), run(&gathered, RANKS, 1, &whole);
    for (int i = 0; i < TOY_TENSORS; i++) {
        const tutti_codec_record *p = &parts.record[0][i], *w = &whole.record[0][i];
        assert_true(p->bytes == w->bytes && parts.levels[0][i] == (double)counts[i] && p->density == w->density &&
                    parts.bound[0][i] == whole.bound[0][i]);
        assert_true(fabs(p->lost / w->lost - 1) < 1e-9 && fabs(p->rho / w->rho - 1) < 1e-9 && p->norm == w->norm);
        assert_true(parts.payload[i] > whole.payload[i] || counts[i] < 100);
    }
}

static void the_variance_factor_is_below_its_bound_on_average(void **state)
{
    static const char *const unbiased[] = {
        "qsgd(norm=l2,bucket=64)", "qsgd(bits=2,norm=l2,bucket=64)", "qsgd(bits=2,bucket=64)", "nuqsgd(bucket=64)",
        "nuqsgd(bits=3,multiplier=0.7,bucket=64)", "nuqsgd(zero_level=off,bucket=64)", "alq(bucket=64,first=2)",
        "alq(bucket=64,first=2,zero_level=on)", "amq(bucket=64,first=2)", "randomk(ratio=0.1,unbiased=on)",
        "randomk(ratio=0.3)",
    };
    static seen s;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(unbiased); c++) {
        const tutti_engine_options options = with(unbiased[c], 1);
        run(&options, 2, MOST_STEPS, &s);
        for (int i = 0; i < TOY_TENSORS; i++) {
            double lost = 0, bound = 0;
            for (int k = 0; k < MOST_STEPS; k++) {
                if (!(s.bound[k][i] >= 0))
                    fail_msg("%s, tensor %d, step %d: bound %g", unbiased[c], i, k, s.bound[k][i]);
                lost += s.record[k][i].lost / MOST_STEPS;
                bound += s.bound[k][i] / MOST_STEPS;
            }
            /* of few elements forty draws say little */
            if (!(lost > 0 && lost <= bound * (counts[i] > 100 ? 1.05 : 2)))
                fail_msg("%s, tensor %d: %g is lost, and the bound is %g", unbiased[c], i, lost, bound);
        }
    }
}

static void the_residual_is_what_error_feedback_keeps(void **state)
{
    static const char *const fed[] = {
        "ef(topk(ratio=0.1))", "ef(sign,server=on)", "ef(powersgd(rank=2))", "ef(randomk(ratio=0.1))",
    };
    static seen s;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(fed); c++)
        for (int n = 1; n <= RANKS; n += 3) {
            const tutti_engine_options options = with(fed[c], 1);
            run(&options, n, STEPS, &s);
            for (int k = 0; k < STEPS; k++)
                for (int i = 0; i < TOY_TENSORS; i++)
                    if (!(fabs(s.record[k][i].residual * s.record[k][i].norm - s.kept[k][i]) <=
                          1e-6 * s.record[k][i].norm))
                        fail_msg("%s on %d, step %d, tensor %d: %g of %g, and %g is kept", fed[c], n, k, i,
                                 s.record[k][i].residual, s.record[k][i].norm, s.kept[k][i]);
        }
}

/* Messages of few workers are encoded once; a length of four bytes precedes those of variable
   length. */
static void bytes_add_up_to_the_payload(void **state)
{
    static const struct {
        const char *codec;
        uint64_t before;
    } cases[] = { { "topk", 0 },
                  { "qsgd", 0 },
                  { "qsgd(coding=elias)", 4 },
                  { "bf16", 0 },
                  { "ef(powersgd(rank=2))", 0 },
                  { "randomk(ratio=0.1)", 0 } };
    static seen s;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const tutti_engine_options options = with(cases[c].codec, 1);
        run(&options, 3, STEPS, &s);
        for (int i = 0; i < TOY_TENSORS; i++) {
            uint64_t bytes = 0;
            for (int k = 0; k < STEPS; k++)
                bytes += s.record[k][i].bytes + cases[c].before;
            assert_int_equal(bytes, s.payload[i]);
        }
    }
}

static void union_density_shows_whether_workers_select_alike(void **state)
{
    static seen shared, own;
    const tutti_engine_options a = with("randomk(ratio=0.1)", 1), b = with("topk(ratio=0.1)", 1);

    (void)state;
    run(&a, 3, STEPS, &shared), run(&b, 3, STEPS, &own);
    for (int s = 0; s < STEPS; s++) {
        const tutti_codec_record *r = &shared.record[s][1], *t = &own.record[s][1];
        assert_true(r->density == 0.1 && r->union_density == 0.1);
        assert_true(t->density == 0.1 && t->union_density > 0.1 && t->union_density <= 0.3);
    }
}

static void codec_report_is_made_at_its_interval_only(void **state)
{
    static seen s;
    tutti_engine_options options = with("topk", 3);

    (void)state;
    run(&options, 2, 8, &s);
    for (int k = 0; k < 8; k++)
        assert_int_equal(s.record[k][1].step, (k + 1) / 3 * 3);
    options.method = "local-sgd(period=4)"; /* exchanges after 4 and 8: the first at or after 3 and 6 */
    run(&options, 2, 8, &s);
    for (int k = 0; k < 8; k++)
        assert_int_equal(s.record[k][1].step, (k + 1) / 4 * 4);
}

static void codec_report_without_an_encoded_exchange_is_rejected(void **state)
{
    static const struct { const char *method, *codec, *text; } cases[] = {
        { "ddp", NULL,
          "codec-report is '5', but gradients travel as they are: there is no codec; give one, or "
          "leave codec-report at 0" },
        { "d-psgd(ring)", "topk(ratio=0.5)",
          "codec-report is '5', but the codec is of models, between neighbours, and no gradients are exchanged "
          "through it; leave codec-report at 0" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        static seen s;
        job j = { .t = toy_default(), .out = &s };
        tutti_error err = { .rank = -1 };
        j.t.options.method = cases[c].method;
        j.t.options.codec = cases[c].codec;
        j.t.options.codec_report = 5;
        assert_int_equal(tutti_world_run("shm", 2, run_rank, &j, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].text) == NULL)
            fail_msg("'%s' has not '%s'", err.text, cases[c].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_is_in_the_list),
        cmocka_unit_test(measuring_changes_no_bit_and_no_message),
        cmocka_unit_test(numbers_are_those_of_the_definitions),
        cmocka_unit_test(parts_of_a_tensor_are_put_together),
        cmocka_unit_test(the_variance_factor_is_below_its_bound_on_average),
        cmocka_unit_test(the_residual_is_what_error_feedback_keeps),
        cmocka_unit_test(bytes_add_up_to_the_payload),
        cmocka_unit_test(union_density_shows_whether_workers_select_alike),
        cmocka_unit_test(codec_report_is_made_at_its_interval_only),
        cmocka_unit_test(codec_report_without_an_encoded_exchange_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
