/* Goal: a skipped step leaves whatever a codec keeps as if it had not been; and an overflow in
   the codec is not taken for one of the gradient. Method: a quadratic of each worker's own, whose
   gradient depends on the model alone, so that a run with skipped steps must be, to the last bit,
   the run without them: residuals, momenta, estimates, factors and sums of gradients are all in
   it. The number that is not finite is in the last tensor alone, so that all others have been
   exchanged when it is found. */
#include "toy.h"

enum { RANKS = 5, STEPS = 24, ELEMENTS = 10 + 3000 + 33 + 2001 + 7 };
typedef struct job {
    toy t;
    uint64_t bad;                /* bit s: in step s a number that is not finite */
    int bad_rank;
    /* the gradient of element 12 in those steps instead, on all workers; 0: none */
    float steep;
    float x[ELEMENTS];           /* rank 0's at the end */
    uint64_t hash[RANKS], skipped[RANKS];
    double scale[RANKS];
    int events;
    char event[16][400];
} job;

static tutti_status step(job *j, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const bool bad = (j->bad >> m->step & 1) != 0;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int i = 0; i < ELEMENTS; i++)
            m->g[i] = (float)p.scale * (m->x[i] - (float)((m->rank * 13 + i % 17) * 5 % 19) / 8);
        if (bad && j->steep != 0)
            m->g[12] = (float)p.scale * j->steep;
        else if (bad && m->rank == j->bad_rank)
            m->g[ELEMENTS - 3] = INFINITY;
        for (int k = 0; k < TOY_TENSORS; k++)
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int r = tutti_world_rank(world);
    const tutti_event_record *events;
    toy t = j->t;
    tutti_figures f;
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    status = TUTTI_OK;
    for (int s = 0; s < t.steps && status == TUTTI_OK; s++)
        status = step(j, e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_figures(e, &f);
    j->hash[r] = toy_hash(e);
    j->skipped[r] = f.skipped;
    j->scale[r] = f.loss_scale;
    if (r == 0) {
        memcpy(j->x, tutti_engine_method(e)->x, sizeof j->x);
        j->events = tutti_engine_events(e, &events);
        for (int k = 0; k < j->events && k < 16; k++)
            snprintf(j->event[k], sizeof j->event[k], "%s: %s", events[k].kind, events[k].text);
    }
    tutti_engine_close(e);
    return status;
}

static job job_of(const char *method, const char *codec, int steps)
{
    job j = { .t = toy_matrices(), .bad_rank = 1 };

    j.t.options.method = method;
    j.t.options.codec = codec;
    j.t.options.optimizer = "sgd(lr=0.05)";
    j.t.options.data_samples = 4000; /* one epoch */
    j.t.steps = steps;
    return j;
}

static tutti_status try_job(job *j, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, rank, j, err);
}

static void run(job *j, int n)
{
    tutti_error err;
    if (try_job(j, n, &err) != TUTTI_OK)
        fail_msg("%s, codec '%s' on %d: %s", j->t.options.method, j->t.options.codec, n, err.text);
    for (int r = 1; r < n; r++)
        assert_int_equal(j->hash[r], j->hash[0]);
}

/* None draws by the step's number, which differs. With a lane and without, one piece a tensor and
   one for all. */
static void run_with_skipped_steps_matches_the_run_without_them(void **state)
{
    static const struct { const char *method, *codec; int n; } cases[] = {
        { "ddp", "ef(topk(ratio=0.02))", 3 },
        { "ddp", "ef(topk(ratio=0.02),momentum=0.9)", 2 },
        { "ddp", "ef(sign,server=on)", 5 },
        { "ddp", "ef(powersgd(rank=1))", 3 },
        { "ddp", "ef(powersgd(rank=1,ef_rule=aggregated))", 2 },
        { "ddp", "ef21(topk(ratio=0.02))", 4 },
        { "ddp", "ef21(topk(ratio=0.05),eta=0.5)", 3 },
        { "ddp", "ef(bf16)", 3 },
        { "dgc(ratio=0.02,min_numel=100,warmup=0)", "", 3 },
        { "dgc(ratio=0.02,min_numel=100,warmup=0,nesterov=on)", "", 4 },
        { "dgc(ratio=0.02,min_numel=100,warmup=0,momentum=0.8)", "", 3 },
        { "onebit-adam(freeze_step=2)", "", 4 },
        { "qadam(warmup_steps=2,error_feedback=on)", "", 3 },
        { "signum", "", 3 },
        { "signum", "", 4 },
        { "demo(topk=4,chunk=16)", "", 3 },
        { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.02),interval=3,unit=step,eta=0.3,min_numel=0)", "", 3 },
    };
    static const int lanes[] = { 0, -1, 2 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const bool sorted = strncmp(cases[c].method, "ddp", 3) == 0;
        job plain = job_of(cases[c].method, cases[c].codec, 12),
            bumpy = job_of(sorted && c % 2 == 1 ? "ddp(0.000001,0.000001)" : cases[c].method, cases[c].codec, 17);
        plain.t.options.lane = 0;
        bumpy.t.options.lane = lanes[c % 3];
        plain.t.options.optimizer = bumpy.t.options.optimizer = strncmp(cases[c].method, "onebit", 6) == 0
                ? "sgd(lr=0.01)" : strstr(cases[c].method, "momentum=0.8") != NULL
                ? "sgd(lr=0.05,weight_decay=0.1)" : "sgd(lr=0.05)";
        bumpy.t.options.nonfinite = TUTTI_NONFINITE_SKIP;
        bumpy.bad = 1 << 3 | 3 << 7 | 1 << 11 | 1 << 14;
        run(&plain, cases[c].n);
        run(&bumpy, cases[c].n);
        assert_int_equal(bumpy.skipped[0], 5);
        if (memcmp(bumpy.x, plain.x, sizeof plain.x) != 0)
            fail_msg("%s, codec '%s' on %d workers: a step that was left out left something behind", cases[c].method,
                     cases[c].codec, cases[c].n);
    }
}

/* Levels are fitted to a sample of the step before; where that is skipped, to the next one's. */
static void skipped_fitting_sample_is_taken_in_the_next_step(void **state)
{
    job j = job_of("ddp", "alq(bucket=256,first=4,second=9,every=0)", 12);

    (void)state;
    j.t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    j.bad = 3 << 3;
    run(&j, 3);
    assert_int_equal(j.events, 5); /* what levels begin as, two steps, two fits */
    assert_non_null(strstr(j.event[0], "levels: alq: step 0: psi"));
    assert_non_null(strstr(j.event[3], "levels: alq: step 6: psi"));
    assert_non_null(strstr(j.event[4], "levels: alq: step 9: psi"));
}

/* ---- whose overflow it is ---- */
static void an_overflow_of_the_codec_does_not_move_the_loss_scale(void **state)
{
    static const char *const methods[] = { "ddp", "ddp(0.000001,0.000001)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        job j = job_of(methods[k], "fp16", 8);
        tutti_error err;
        j.t.options.loss_scale = "dynamic(init=256,interval=100)";
        j.steep = 1e6f;
        j.bad = 1 << 2;
        /* the scale skips overflows of gradients; this one is for nonfinite to decide */
        assert_int_equal(try_job(&j, 3, &err), TUTTI_ERR_NUMBER);
        assert_string_equal(err.text,
                            "the mean gradient of d.weight is inf at element 2 in step 2, as fp16 decoded it; lower "
                            "the learning rate, take a codec with a wider range (bf16 instead of fp16) or leave "
                            "such steps out (nonfinite=skip)");
        j.t.options.nonfinite = TUTTI_NONFINITE_SKIP;
        run(&j, 3);
        for (int r = 0; r < 3; r++)
            assert_true(j.skipped[r] == 1 && j.scale[r] == 256);
        assert_int_equal(j.events, 1);
        assert_string_equal(j.event[0],
                            "nonfinite: the mean gradient of d.weight is not finite in step 2 as fp16 decoded it, "
                            "though each worker's own is; the step was skipped. A codec with a wider range (bf16 "
                            "instead of fp16) or a lower learning rate mends it");
    }
}

/* The mean of all is not finite either, also on workers whose own gradient is. */
static void local_overflow_is_reported_before_the_decoded_mean(void **state)
{
    for (int skip = 0; skip < 2; skip++)
        for (int who = 0; who < 3; who++) {
            job j = job_of("ddp(0.000001,0.000001)", "fp16", 5);
            j.t.options.loss_scale = "dynamic(init=256,interval=100)";
            j.t.options.nonfinite = skip ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
            j.bad = 1 << 2;
            j.bad_rank = who;
            run(&j, 3);
            for (int r = 0; r < 3; r++)
                assert_true(j.skipped[r] == 1 && j.scale[r] == 128);
            assert_int_equal(j.events, 1);
            assert_non_null(strstr(j.event[0], "overflow: worker "));
            assert_int_equal(j.event[0][strlen("overflow: worker ")] - '0', who);
        }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_with_skipped_steps_matches_the_run_without_them),
        cmocka_unit_test(skipped_fitting_sample_is_taken_in_the_next_step),
        cmocka_unit_test(an_overflow_of_the_codec_does_not_move_the_loss_scale),
        cmocka_unit_test(local_overflow_is_reported_before_the_decoded_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
