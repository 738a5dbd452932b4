/* The client's own optimiser, memory and types: an update of the client's by the library's rule
   gives the bits of that rule in the engine, under every method that takes one. */
#include "client_job.h"
#include "sanitized.h"
#include "scratch.h"
#include "kernels/device.h"

/* ---- the methods ---- */

/* Methods that exchange gradients, and update x. */
static const char *const exchanging[] = {
    "ddp", "bagua", "bagua(algorithm=bytegrad)", "parameter-server", "parallax", "byteps(partition_bytes=1000)",
    "bytescheduler(partition_mb=0.001,cross_barrier=off)", "hetero-ring(adapt_every=1000)",
    "ata(allocation=uniform)",
    "stragglar(straggler=0)", "powersgd(rank=2)", "qsgd", "nuqsgd", "alq", "amq", "gradient-sparsification",
    "accordion(low=powersgd(rank=4),high=powersgd(rank=1),interval=1)",
};
/* Those whose bits do not depend on time. */
static const char *const determined[] = {
    "single", "scadles(rates=3,batch_min=1,simulate_clock=on)", "local-sgd(period=3)", "local-sgd(period=3,warmup=2)",
    "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9))", "lasgd(local_steps=3,max_delay=1)",
    "lasgd(local_steps=3,max_delay=0,warmup=2)", "d-psgd", "d-psgd(order=atc)", "noloco(period=3)", "hop", "sgp",
    "sgp(overlap=1)",
    "sgp(graph=ring)", "rand-psgd(pace=step)", "rand-psgd(pace=step,mixing=delay-by-one)",
    "asr-adpsgd(mixing=delay-by-one)", "dabmd(compute_ms=1e6,microbatch=2)",
    "dabmd(compute_ms=1e6,microbatch=2,graph=ring,weighting=node)", "accordion(mode=batch,batch_high=12)",
    "accordion(mode=localsteps,period_low=2,period_high=4)", "bagua(algorithm=decentralized)",
    "bagua(algorithm=low_precision_decentralized)",
};
/* Of changes to a run a method is tried with these, from another one on than the method before. */
enum { EVERY = UNLESS_SANITIZED(1, 3) };
/* Those that are asynchronous: with one worker. */
static const char *const alone[] = {
    "ad-psgd", "rand-psgd", "asr-adpsgd", "bagua(algorithm=async)", "h-adpsgd", "hermes(minibatch=1,chunk=2)", "oscars",
    "decoupled-diloco(period=2)",
    "asgd(hogwild=on)", "byteps(async=on)",
    "asgd(hogwild=on,locks=row)", "asgd(hogwild=on,locks=full)",
};

static void client_update_matches_the_engines_update_bit_for_bit(void **state)
{
    (void)state;
    for (int workers = UNLESS_SANITIZED(1, 3); workers <= 3; workers++) {
        for (size_t k = 0; k < TUTTI_LENGTH(exchanging); k++)
            compare(exchanging[k], CLIENT, workers, NULL);
        for (size_t k = 0; k < TUTTI_LENGTH(determined); k++)
            if (strstr(determined[k], "batch_high") == NULL || workers == 3)
                compare(determined[k], CLIENT, workers, NULL);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(alone); k++)
        compare(alone[k], CLIENT, 1, NULL);
}


/* ---- with what else there is ---- */

static void accumulates(run *r)
{
    r->options.accumulate = 3;
}

static void clips(run *r)
{
    r->options.clip_norm = 0.5;
}

static void has_memory(run *r)
{
    r->own = true;
}

static void hands_over(run *r)
{
    r->from = true;
    r->options.accumulate = 2;
}

static void leaves_steps_out(run *r)
{
    r->options.nonfinite = TUTTI_NONFINITE_SKIP;
    r->bad_step = 4;
    r->bad = NAN;
}

static void scales(run *r)
{
    r->options.loss_scale = "dynamic(init=1024,interval=2)";
    r->bad_step = 4;
    r->bad = INFINITY;
}

static void changes_the_rate(run *r)
{
    r->lr_after = 0.011;
}

static void shows(run *r)
{
    r->show = true;
}

static void is_adam(run *r)
{
    r->rule = "adamw(lr=0.01,weight_decay=0.1)";
}

static void threads(run *r)
{
    r->threads = true;
}

static void other_options_keep_their_effect_with_a_client_update(void **state)
{
    static const char *const methods[] = { "ddp", "parameter-server", "d-psgd", "local-sgd(period=3)",
                                           "rand-psgd(pace=step,mixing=delay-by-one)", "sgp(overlap=1)",
                                           "asr-adpsgd(mixing=delay-by-one)" };
    static void (*const changes[])(run *r) = { accumulates, clips,   has_memory, hands_over, leaves_steps_out, scales,
                                               changes_the_rate, shows, is_adam };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t c = k % EVERY; c < TUTTI_LENGTH(changes); c += EVERY)
            compare(methods[k], CLIENT, 2, changes[c]);
}

static void (*change_of_rounds)(run *r);

/* Logical shares, so that a step is a round of local steps. In the last one of an epoch some shares
   have no samples. */
static void makes_rounds(run *r)
{
    r->options.elastic_shares = 5;
    r->options.data_samples = 67;
    if (change_of_rounds != NULL)
        change_of_rounds(r);
}

static void rounds_of_local_steps_have_the_same_bits_with_a_client_update(void **state)
{
    static const char *const methods[] = { "local-sgd(period=3)", "local-sgd(period=2,outer=sgd(lr=0.7,momentum=0.9))",
                                           "diloco(period=2)", "slowmo(period=3,buffers=reset)" };
    static void (*const changes[])(run *r) = { NULL, accumulates, clips, has_memory, hands_over, changes_the_rate,
                                               shows, is_adam, threads };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t c = k % EVERY; c < TUTTI_LENGTH(changes); c += EVERY) {
            change_of_rounds = changes[c];
            compare(methods[k], CLIENT, 1 + (int)(k + c) % 3, makes_rounds);
        }
}

static void rounds_with_a_client_update_have_the_same_bits_with_any_number_of_workers(void **state)
{
    run one = run_of("local-sgd(period=3)", CLIENT);

    (void)state;
    change_of_rounds = is_adam;
    makes_rounds(&one);
    must(&one, 1);
    for (int workers = 2; workers <= RANKS; workers += UNLESS_SANITIZED(1, 2)) {
        run more = run_of("local-sgd(period=3)", CLIENT);
        makes_rounds(&more);
        must(&more, workers);
        same(&one, &more, 1);
        drop(&more);
    }
    drop(&one);
}

static void skipped_step_calls_no_update(void **state)
{
    static void (*const changes[])(run *r) = { leaves_steps_out, scales };

    (void)state;
    for (int c = 0; c < 2; c++) {
        run r = run_of("ddp", CLIENT);
        changes[c](&r);
        must(&r, 2);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(r.updates[k], STEPS - 1);
            assert_int_equal(r.skipped[k], 1);
        }
        drop(&r);
    }
}

/* Its sentence ends the run. */
static tutti_status no_update(void *user, double factor, tutti_error *err)
{
    (void)user;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the client's sentence, at factor %g", factor);
}

static tutti_status closed_update(void *user, double factor, tutti_error *err)
{
    (void)user, (void)factor, (void)err;
    return TUTTI_CLOSED;
}

static void failing_client_update_ends_the_run_with_its_error(void **state)
{
    static const char *const methods[] = { "ddp", "d-psgd", "ad-psgd" };
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run r = run_of(methods[k], ITSELF);
        r.options.update = no_update;
        assert_int_equal(on_threads(&r, 2, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "the client's sentence, at factor 1"));
        r.options.update = closed_update;
        assert_int_equal(on_threads(&r, 2, &err), TUTTI_ERR_STATE);
        assert_non_null(strstr(err.text, "update gave TUTTI_CLOSED"));
        drop(&r);
    }
}

static void asynchronous_methods_call_the_client_update(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(alone); k++) {
        run r = run_of(alone[k], CLIENT);
        if (SANITIZED_THREAD && strcmp(alone[k], "asgd(hogwild=on)") == 0) { /* its races are what it is */
            drop(&r);
            continue;
        }
        must(&r, 3);
        for (int w = 0; w < 3; w++) {
            assert_true(r.updates[w] >= STEPS);
            for (size_t i = 0; i < TOTAL; i++)
                assert_true(isfinite(r.x[w][i]));
        }
        drop(&r);
    }
}

/* ---- methods of others ---- */

typedef struct apart { float *x, *copy; tutti_monitor *lock; } apart;

static tutti_status apart_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    apart *s = m->self;

    (void)err;
    tutti_declare_vector(plan, "apart.x", TUTTI_OWN_MEAN, &s->x);
    tutti_declare_vector(plan, "apart.copy", TUTTI_SCRATCH, &s->copy);
    return TUTTI_OK;
}

static tutti_status apart_open(tutti_method *m, tutti_error *err)
{
    apart *s = m->self;

    tutti_copy(m->device, m->n, m->x, s->x);
    return tutti_monitor_open(&s->lock, m->rt, err);
}

static void apart_close(tutti_method *m)
{
    if (m->self != NULL)
        tutti_monitor_close(((apart *)m->self)->lock);
}

/* The update is of a separate model, by half the rate, and x stays as it was until then. */
static tutti_status apart_step(tutti_method *m, tutti_error *err)
{
    apart *s = m->self;

    tutti_copy(m->device, m->n, m->x, s->copy);
    TUTTI_TRY(tutti_base_step_on(m, s->x, m->rank == 0 ? s->lock : NULL, 0.5, err));
    if (memcmp(s->copy, m->x, m->n * sizeof(float)) != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "the update of another model has moved x");
    tutti_copy(m->device, m->n, s->x, m->x);
    return TUTTI_OK;
}

static tutti_status twice_step(tutti_method *m, tutti_error *err)
{
    return tutti_base_step_on(m, m->x, NULL, 2, err);
}

#define APART .self_bytes = sizeof(apart), .declare = apart_declare, .open = apart_open, .close = apart_close
static const tutti_method_ops apart_method = { .name = "apart", APART, .step = apart_step };
static const tutti_method_ops equal_method = {
    .name = "equal", APART, .step = apart_step, .exchange = tutti_base_exchange, .traits = TUTTI_REPLICAS_EQUAL
};
static const tutti_method_ops twice_method = {
    .name = "twice", .step = twice_step, .exchange = tutti_base_exchange, .traits = TUTTI_REPLICAS_EQUAL
};
static const tutti_method_ops owning_method = { .name = "owning", .traits = TUTTI_OWNS_UPDATE };
static const tutti_method_ops *const others[] = { &apart_method, &equal_method, &twice_method, &owning_method, NULL };

static void is_of_others(run *r)
{
    r->methods = others;
}

static void fails(const char *method, owner who, tutti_status status, const char *says)
{
    run r = run_of(method, who);
    tutti_error err;

    r.methods = others;
    if (on_threads(&r, 2, &err) != status || strstr(err.text, says) == NULL)
        fail_msg("%s: '%s' instead of '%s'", method, err.text, says);
    drop(&r);
}

static void custom_methods_can_use_client_updates(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 3; workers += 2) {
        compare("apart", CLIENT, workers, is_of_others);
        compare("twice", CLIENT, workers, is_of_others);
    }
    fails("owning", CLIENT, TUTTI_ERR_USAGE, "has an update of its own");
    fails("equal", CLIENT, TUTTI_ERR_STATE, "updates another model");
    fails("equal", ITSELF, TUTTI_ERR_STATE, "updates another model");
    fails("twice", ITSELF, TUTTI_ERR_STATE, "updates by another rate");
}

/* ---- exchange only ---- */

static void client_updating_by_itself_matches_the_engine_exactly(void **state)
{
    static void (*const changes[])(run *r) = { NULL, accumulates, clips, has_memory, hands_over, shows, is_adam };

    (void)state;
    for (int workers = UNLESS_SANITIZED(1, 2); workers <= 3; workers++)
        for (size_t k = 0; k < TUTTI_LENGTH(exchanging); k += workers == 2 ? EVERY : 1)
            for (size_t c = 0; c < (workers == 2 ? TUTTI_LENGTH(changes) : 1); c++)
                compare(exchanging[k], ITSELF, workers, changes[c]);
}

static void nonfinite_values_pass_through_with_nonfinite_keep(void **state)
{
    run r = run_of("ddp", ITSELF);
    tutti_error err;

    (void)state;
    r.options.nonfinite = TUTTI_NONFINITE_KEEP;
    r.bad_step = 4;
    r.bad = INFINITY;
    must(&r, 2);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < TOTAL; i++)
            assert_true(isfinite(r.x[k][i]) == (i != 600 + 3));
    r.options.nonfinite = TUTTI_NONFINITE_STOP;
    assert_int_equal(on_threads(&r, 2, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "worker 1: the gradient of b is inf at element 3 in step 4"));
    drop(&r);
}

/* The client skips such a step, as a loss scaler does. What codecs keep back is that of a run
   whose engine does so. */
static void codec_keeps_nothing_of_a_step_the_client_skips(void **state)
{
    static const struct { const char *method, *codec; } rows[] = {
        { "ddp", "" }, { "ddp", "ef(topk(ratio=0.1))" }, { "powersgd(rank=2)", "" }, { "ddp", "fp16" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        run a = run_of(rows[k].method, ENGINE), b = run_of(rows[k].method, ITSELF);
        a.options.codec = b.options.codec = rows[k].codec;
        a.options.nonfinite = TUTTI_NONFINITE_SKIP;
        b.options.nonfinite = TUTTI_NONFINITE_KEEP;
        b.judges = true;
        a.bad_step = b.bad_step = 4;
        a.bad = b.bad = INFINITY;
        must(&a, 3);
        must(&b, 3);
        same(&a, &b, 3);
        for (int w = 0; w < 3; w++)
            assert_int_equal(b.updates[w], STEPS - 1);
        drop(&a);
        drop(&b);
    }
}

/* ---- types ---- */

static void gradient_of_any_type_and_memory_equals_widened_copy(void **state)
{
    static const tutti_dtype dtypes[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };

    (void)state;
    for (size_t d = 0; d < TUTTI_LENGTH(dtypes); d++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2)
            for (int c = 0; c < 4; c++) {
                run a = run_of(c % 2 == 0 ? "ddp" : "d-psgd", ENGINE), b = run_of(a.method, ENGINE);
                a.dtype = b.dtype = dtypes[d];
                a.options.accumulate = b.options.accumulate = accumulate;
                a.rounded = true;
                b.from = c < 2;
                b.kept = !b.from;
                must(&a, 2);
                must(&b, 2);
                same(&a, &b, 2);
                drop(&a);
                drop(&b);
            }
}

static void missing_gradient_counts_as_zero_without_an_event(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        run a = run_of("ddp", ENGINE), b = run_of("ddp", CLIENT);
        a.left_out = b.left_out = 1;
        a.options.accumulate = b.options.accumulate = accumulate;
        b.from = true;
        must(&a, 2);
        must(&b, 2);
        same(&a, &b, 2);
        assert_int_equal(a.unused[1], 1);
        assert_int_equal(b.unused[1], 0);
        drop(&a);
        drop(&b);
    }
}

static void numbers_that_are_not_finite_stay_what_they_are_in_16_bits(void **state)
{
    static const tutti_dtype dtypes[] = { TUTTI_BF16, TUTTI_F16 };
    static const struct { float bad; const char *says; } rows[] = {
        { NAN, "nan" }, { INFINITY, "inf" }, { -INFINITY, "-inf" }
    };

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 3; k++) {
            run r = run_of("ddp", CLIENT);
            tutti_error err;
            char says[80];
            r.dtype = dtypes[d];
            r.from = r.own = true;
            r.bad_step = 2;
            r.bad = rows[k].bad;
            snprintf(says, sizeof says, "worker 1: the gradient of b is %s at element 3 in step 2", rows[k].says);
            assert_int_equal(on_threads(&r, 2, &err), TUTTI_ERR_NUMBER);
            if (strstr(err.text, says) == NULL)
                fail_msg("%s", err.text);
            drop(&r);
        }
}

/* Nothing else moves x: the client's optimiser works on its own numbers of 16 bits, whichever
   side calls it. */
static void client_with_16_bit_values_keeps_its_optimisers_results(void **state)
{
    static const tutti_dtype dtypes[] = { TUTTI_BF16, TUTTI_F16 };

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int workers = 1; workers <= 3; workers++) {
            run a = run_of("ddp", ITSELF), b = run_of("ddp", CLIENT);
            uint16_t half[TOTAL];
            float wide[TOTAL];
            a.own = b.own = a.from = b.from = true;
            a.dtype = b.dtype = dtypes[d];
            must(&a, workers);
            must(&b, workers);
            for (int k = 0; k < workers; k++)
                assert_memory_equal(a.x[k], b.x[k], TOTAL * sizeof(float));
            narrow(dtypes[d], TOTAL, b.x[0], half);
            widen(dtypes[d], TOTAL, half, wide);
            assert_memory_equal(wide, b.x[0], TOTAL * sizeof(float));
            drop(&a);
            drop(&b);
        }
}

/* Where others move x, the engine keeps the bits that 16-bit numbers cannot hold, and what is
   delivered is x rounded (train looks). Models that average stay nearer to float32's than 16 bits
   alone would be. */
static void averages_keep_the_bits_that_the_client_does_not_see(void **state)
{
    static const char *const methods[] = { "d-psgd", "local-sgd(period=2)", "ad-psgd", "sgp(overlap=1)" };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++) {
        run r = run_of(methods[m], CLIENT);
        uint16_t half[TOTAL];
        float wide[TOTAL];
        size_t finer = 0;
        r.own = r.from = r.show = true;
        r.dtype = TUTTI_BF16;
        must(&r, 3);
        narrow(TUTTI_BF16, TOTAL, r.x[0], half);
        widen(TUTTI_BF16, TOTAL, half, wide);
        for (size_t i = 0; i < TOTAL; i++)
            finer += wide[i] != r.x[0][i];
        assert_true(finer > TOTAL / 4);
        drop(&r);
    }
}

/* ---- tables ---- */

/* Rows that no worker has touched are zeros of the gradient, whichever side updates and in
   whatever type. */
static void a_table_gives_the_bits_of_the_same_tensor_announced_whole(void **state)
{
    static const struct { const char *method; owner who; } rows[] = {
        { "ddp", CLIENT },    { "ddp", ITSELF },
        { "d-psgd", CLIENT }, { "parameter-server", CLIENT },
        { "parameter-server", ITSELF }, { "local-sgd(period=3)", CLIENT },
    };
    static const tutti_dtype dtypes[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (size_t d = 0; d < TUTTI_LENGTH(dtypes); d++)
            for (int way = 0; way < 4; way++) {
                const int workers = 1 + (int)(k + d + (size_t)way) % 3;
                run a = run_of(rows[k].method, rows[k].who), b = run_of(rows[k].method, rows[k].who);
                a.own = b.own = a.few = b.few = b.sparse = true;
                a.dtype = b.dtype = dtypes[d];
                a.from = b.from = way % 2 == 0;
                a.kept = b.kept = way % 2 == 1;
                a.options.accumulate = b.options.accumulate = way < 2 ? 1 : 2;
                must(&a, workers);
                must(&b, workers);
                same(&a, &b, workers);
                drop(&a);
                drop(&b);
            }
}

/* ---- threads ---- */

static void calls_may_come_from_any_thread(void **state)
{
    static const char *const methods[] = { "ddp", "parameter-server", "d-psgd", "local-sgd(period=3)",
                                           "asr-adpsgd(mixing=delay-by-one)", "powersgd(rank=2)" };
    static const char *const racing[] = { "ata", "hetero-ring", "ad-psgd", "h-adpsgd", "oscars", "rand-psgd" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run a = run_of(methods[k], ENGINE), b = run_of(methods[k], CLIENT);
        b.threads = b.show = a.show = true;
        b.lr_after = a.lr_after = 0.02;
        must(&a, 3);
        must(&b, 3);
        same(&a, &b, 3);
        drop(&a);
        drop(&b);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(racing); k++) {
        run r = run_of(racing[k], CLIENT);
        r.threads = true;
        must(&r, 3);
        drop(&r);
    }
    compare("ddp", ITSELF, 3, threads);
}

/* ---- checkpoints ---- */

static void resumed_run_matches_the_uninterrupted_run(void **state)
{
    static const struct { const char *method; owner who; bool own; tutti_dtype dtype; } rows[] = {
        { "ddp", CLIENT, false, TUTTI_F32 },   { "ddp", CLIENT, true, TUTTI_BF16 },
        { "ddp", ITSELF, false, TUTTI_F32 },   { "ddp", ITSELF, true, TUTTI_F32 },
        { "ddp", ITSELF, true, TUTTI_F16 },    { "d-psgd", CLIENT, true, TUTTI_BF16 },
        { "local-sgd(period=3)", CLIENT, false, TUTTI_F32 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        run a = run_of(rows[k].method, rows[k].who), b = run_of(rows[k].method, rows[k].who);
        char directory[SCRATCH_PATH];
        scratch_make(directory);
        a.own = b.own = rows[k].own;
        a.dtype = b.dtype = rows[k].dtype;
        a.directory = b.directory = directory;
        a.save_at = b.load_at = 5;
        must(&a, 2);
        for (int w = 0; w < 2; w++)
            memcpy(b.momentum[w], a.momentum[w], TOTAL * sizeof(float));
        must(&b, 2);
        for (int w = 0; w < 2; w++)
            assert_memory_equal(a.x[w], b.x[w], TOTAL * sizeof(float));
        scratch_remove(directory);
        drop(&a);
        drop(&b);
    }
}

/* ---- refusals ---- */

static void refuses_a(run r, int workers, const char *says)
{
    tutti_error err;
    const tutti_status status = on_threads(&r, workers, &err);

    if (status != TUTTI_ERR_USAGE || strstr(err.text, says) == NULL)
        fail_msg("%s: %d, '%s' instead of '%s'", r.method, (int)status, err.text, says);
    drop(&r);
}

static void conflicts_with_client_updates_are_rejected_with_a_fix(void **state)
{
    static const char *const servers[] = { "asgd", "ssp", "backup-workers(backup=1)", "ringmaster-asgd",
                                           "ringleader-asgd", "dude-asgd" };
    static const char *const directions[] = { "dgc", "onebit-adam", "qadam", "signum", "demo",
                                              "bagua(algorithm=qadam)" };
    static const struct { const char *method, *says; } whole[] = {
        { "single", "exchanges no gradients" },
        { "d-psgd", "exchanges no gradients" },
        { "ad-psgd", "exchanges no gradients" },
        { "hermes(minibatch=1,chunk=2)", "exchanges no gradients" },
        { "local-sgd", "keeps a model of its own on each worker" },
        { "lasgd", "keeps a model of its own on each worker" },
        { "bagua(algorithm=async)", "keeps a model of its own on each worker" },
        { "h-adpsgd", "keeps a model of its own on each worker" },
        { "accordion(mode=localsteps)", "keeps a model of its own on each worker" },
        { "accordion(mode=batch,batch_high=8)", "makes one update of several steps" },
        { "scadles", "decides how many samples a step has" },
    };
    run r;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(servers); k++)
        for (int who = CLIENT; who <= ITSELF; who++)
            refuses_a(run_of(servers[k], (owner)who), 2, "updates at its servers");
    for (size_t k = 0; k < TUTTI_LENGTH(directions); k++)
        for (int who = CLIENT; who <= ITSELF; who++)
            refuses_a(run_of(directions[k], (owner)who), 2, "along a direction of its own");
    for (size_t k = 0; k < TUTTI_LENGTH(whole); k++) {
        refuses_a(run_of(whole[k].method, ITSELF), 2, whole[k].says);
        refuses_a(run_of(whole[k].method, ITSELF), 2, "tutti.torch.prepare");
    }
    r = run_of("local-sgd", ITSELF);
    r.options.elastic_shares = 4;
    refuses_a(r, 2, "but method 'local-sgd' makes a step of several updates, each in passes of its own");
    r = run_of("slowmo(buffers=maintain)", CLIENT);
    r.options.elastic_shares = 4;
    refuses_a(r, 2, "but buffers are maintained");
    r = run_of("ddp", CLIENT);
    r.options.lr_schedule = "cosine";
    r.options.steps = STEPS;
    refuses_a(r, 2, "lr-schedule is 'cosine', but optimizer is 'client'");
    r = run_of("ddp", CLIENT);
    r.options.nonfinite = TUTTI_NONFINITE_KEEP;
    refuses_a(r, 2, "nonfinite is keep, which is for a client that updates by itself");
    r = run_of("ddp", ENGINE);
    r.options.nonfinite = TUTTI_NONFINITE_KEEP;
    refuses_a(r, 1, "nonfinite is keep, which is for a client that updates by itself");
    r = run_of("ddp", ITSELF);
    r.options.nonfinite = TUTTI_NONFINITE_SKIP;
    refuses_a(r, 2, "nonfinite=skip may skip a step");
    r = run_of("ddp", ITSELF);
    r.options.loss_scale = "dynamic";
    refuses_a(r, 2, "loss-scale may skip a step");
    r = run_of("ddp", ENGINE);
    r.options.update = update;
    refuses_a(r, 2, "so nothing would call it");
    r = run_of("ddp", CLIENT);
    r.kept = true;
    r.wrong = TUTTI_F64;
    refuses_a(r, 2, "a client's values are in F32, BF16 or F16");
    r = run_of("asgd", ENGINE);
    r.lr_after = 0.1;
    refuses_a(r, 2, "take the learning rate from lr-schedule");
    r = run_of("ddp", ENGINE);
    r.lr_after = INFINITY;
    refuses_a(r, 2, "the learning rate is inf");
    r = run_of("ddp", CLIENT);
    r.from = true;
    r.wrong = TUTTI_I8;
    refuses_a(r, 2, "gradients are in F32, BF16 or F16");
    r = run_of("ddp", CLIENT);
    r.own = true;
    r.wrong = TUTTI_I64;
    refuses_a(r, 2, "parameter 'c' has dtype 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_update_matches_the_engines_update_bit_for_bit),
        cmocka_unit_test(other_options_keep_their_effect_with_a_client_update),
        cmocka_unit_test(rounds_of_local_steps_have_the_same_bits_with_a_client_update),
        cmocka_unit_test(rounds_with_a_client_update_have_the_same_bits_with_any_number_of_workers),
        cmocka_unit_test(skipped_step_calls_no_update),
        cmocka_unit_test(failing_client_update_ends_the_run_with_its_error),
        cmocka_unit_test(asynchronous_methods_call_the_client_update),
        cmocka_unit_test(custom_methods_can_use_client_updates),
        cmocka_unit_test(client_updating_by_itself_matches_the_engine_exactly),
        cmocka_unit_test(nonfinite_values_pass_through_with_nonfinite_keep),
        cmocka_unit_test(codec_keeps_nothing_of_a_step_the_client_skips),
        cmocka_unit_test(gradient_of_any_type_and_memory_equals_widened_copy),
        cmocka_unit_test(missing_gradient_counts_as_zero_without_an_event),
        cmocka_unit_test(numbers_that_are_not_finite_stay_what_they_are_in_16_bits),
        cmocka_unit_test(client_with_16_bit_values_keeps_its_optimisers_results),
        cmocka_unit_test(averages_keep_the_bits_that_the_client_does_not_see),
        cmocka_unit_test(a_table_gives_the_bits_of_the_same_tensor_announced_whole),
        cmocka_unit_test(calls_may_come_from_any_thread),
        cmocka_unit_test(resumed_run_matches_the_uninterrupted_run),
        cmocka_unit_test(conflicts_with_client_updates_are_rejected_with_a_fix),
    };
    int failed;

    if (tutti_device_open_host(&device, NULL, TUTTI_CPU_AVX512, NULL) != TUTTI_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_device_close(device);
    return failed;
}
