/* Goal: stages on ranks give each micro-batch the bits of one pass through the whole network,
   send one message a micro-batch, boundary and direction, hold no more than they declare, wait at
   gates without stopping for good, and end with a sentence when a rank is gone. Method: a small
   gpt in stages, ranks that are threads; stages of arithmetic for the rest. */
#include "../nn/subject.h"
#include "tutti/method/pipeline.h"
#include "nn/stages.h"
#include "pipeline/pipe.h"

enum { MICRO = 9, BATCH = 3, RANKS = 4 };

/* ---- a network ---- */
static const char *const gpt = "gpt(layers=3,dim=16,heads=2)";
static const tutti_nn_task text = { .classes = 19, .context = 24 };
static const int firsts[RANKS + 1] = { 0, 8, 11, 17, 22 };

typedef struct trained {
    const subject *s;
    const side *whole;
    int stages, in_flight;
    tutti_nn_stage *stage;
    float **values, **gradients;
    double loss;
    int most, open;
    const float *const (*expected)[ROOM]; /* by micro-batch */
    const double *losses;
} trained;

static tutti_nn_samples samples_of(const subject *s, int64_t p)
{
    const size_t at = (size_t)((p - 1) * BATCH * s->task.context);
    return (tutti_nn_samples){ .count = BATCH, .tokens = s->tokens + at, .next = s->next + at };
}

static tutti_status nn_forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out,
                               size_t *left, tutti_error *err)
{
    trained *t = self;
    const tutti_nn_samples x = samples_of(t->s, p);

    *left = BATCH * tutti_nn_stage_leaves(t->stage);
    t->open++;
    t->most = t->open > t->most ? t->open : t->most;
    if (entered != BATCH * tutti_nn_stage_enters(t->stage))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%zu values entered", entered);
    return tutti_nn_stage_forward(t->stage, slot, &x, in, (const float *const *)t->values, out, err);
}

static tutti_status nn_backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    trained *t = self;
    double loss;

    t->open--;
    TUTTI_TRY(tutti_nn_stage_backward(t->stage, slot, slope, MICRO * BATCH, false, t->gradients, back, &loss, err));
    if (tutti_nn_stage_leaves(t->stage) == 0 && loss != t->losses[p - 1])
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the loss of %lld is another", (long long)p);
    for (int k = 0; k < t->s->count; k++)
        if (t->gradients[k] != NULL &&
            memcmp(t->gradients[k], t->expected[p - 1][k], t->s->params[k].count * sizeof(float)) != 0)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the gradient of %s of %lld is another", t->s->params[k].name,
                              (long long)p);
    return TUTTI_OK;
}

static tutti_status nn_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const int ranks[RANKS] = { 0, 1, 2, 3 };
    trained t = *(const trained *)arg;
    const int stage = tutti_world_rank(world), end = stage + 1 == t.stages ? firsts[RANKS] : firsts[stage + 1];
    float *gradients[ROOM] = { NULL };
    tutti_nn_stage_options o = {
        .nn = { .batch = BATCH }, .first = firsts[stage], .end = end, .slots = t.in_flight
    };
    const tutti_pipe_work work = { .self = &t, .forward = nn_forward, .backward = nn_backward };
    const int behind = t.stages - stage, most = t.in_flight < behind ? t.in_flight : behind;
    uint64_t messages, bytes;
    size_t sent;
    tutti_pipe *pipe;

    for (int k = 0; k < t.s->count; k++)
        if (t.s->params[k].unit >= o.first && t.s->params[k].unit < end)
            gradients[k] = calloc(t.s->params[k].count, sizeof(float));
    t.gradients = gradients;
    TUTTI_TRY(tutti_nn_store_open(&o.store, 0, err));
    TUTTI_TRY(tutti_nn_stage_open(&t.stage, gpt, &text, &o, err));
    TUTTI_TRY(tutti_pipe_open(&pipe, world,
                              &(tutti_pipe_options){ t.stages, stage, t.in_flight, ranks, 7,
                                                     BATCH * tutti_nn_stage_enters(t.stage),
                                                     BATCH * tutti_nn_stage_leaves(t.stage) },
                              err));
    TUTTI_TRY(tutti_pipe_run(pipe, 5, &work, err)); /* and continues where it was */
    TUTTI_TRY(tutti_pipe_run(pipe, MICRO, &work, err));
    tutti_pipe_sent(pipe, &messages, &bytes);
    sent = tutti_nn_stage_enters(t.stage) + tutti_nn_stage_leaves(t.stage);
    tutti_pipe_close(pipe);
    tutti_nn_stage_close(t.stage);
    tutti_nn_store_close(o.store);
    for (int k = 0; k < t.s->count; k++)
        free(gradients[k]);
    if (messages != (uint64_t)MICRO * (uint64_t)((stage > 0) + (stage + 1 < t.stages)) ||
        bytes != MICRO * BATCH * sent * sizeof(float))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "stage %d sent %llu messages, %llu bytes", stage,
                          (unsigned long long)messages, (unsigned long long)bytes);
    if (t.most != most)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "stage %d had %d under way", stage, t.most);
    return TUTTI_OK;
}

static void distributed_stages_are_bit_identical_to_the_whole_network(void **state)
{
    static const float *expected[MICRO][ROOM];
    const tutti_nn_options options = { .batch = BATCH };
    subject s = subject_of(gpt, text, MICRO * BATCH);
    side d = side_of(&s, gpt, &options);
    double losses[MICRO];
    tutti_error err;

    (void)state;
    for (int m = 0; m < MICRO; m++) {
        const tutti_nn_samples x = samples_of(&s, m + 1);
        assert_int_equal(
            tutti_nn_pass_tokens(
                d.nn, &(tutti_nn_samples){ .count = BATCH, .tokens = x.tokens, .next = x.next },
                &(tutti_nn_step){ MICRO * BATCH, false, false, (const float *const *)d.values,
                                  d.gradients, NULL },
                &losses[m], NULL),
            TUTTI_OK);
        for (int k = 0; k < s.count; k++)
            expected[m][k] =
                memcpy(malloc(s.params[k].count * sizeof(float)), d.gradients[k], s.params[k].count * sizeof(float));
    }
    for (int stages = 1; stages <= RANKS; stages++)
        for (int in_flight = 1; in_flight <= 5; in_flight += 2) {
            trained t = { .s = &s, .stages = stages, .in_flight = in_flight, .values = d.values,
                          .expected = (const float *const(*)[ROOM])expected, .losses = losses };
            if (tutti_world_run("shm", stages, nn_rank, &t, &err) != TUTTI_OK)
                fail_msg("%d stages, %d in flight: %s", stages, in_flight, err.text);
        }
    for (int m = 0; m < MICRO; m++)
        for (int k = 0; k < s.count; k++)
            free((void *)(uintptr_t)expected[m][k]);
    side_free(&s, &d);
    subject_free(&s);
}

/* ---- stages of arithmetic ---- */
typedef struct simple {
    tutti_world *world;
    int stage, stages, dies_at;  /* micro-batch in which rank 1 leaves; 0: it stays */
    int64_t forwards, backwards, gate; /* gate: of this many micro-batches each opens the next */
    float kept[8];
} simple;

static tutti_status simple_forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out,
                                   size_t *left, tutti_error *err)
{
    simple *s = self;

    if (s->stage == 1 && p == s->dies_at)
        return tutti_fail(err, TUTTI_ERR_IO, 0, "a stage that fails");
    if (p != ++s->forwards || (s->stage > 0 && entered != (size_t)(1 + p % 3)))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "forward of %lld with %zu values", (long long)p, entered);
    s->kept[slot] = in != NULL ? in[0] + 1 : (float)p;
    *left = (size_t)(1 + p % 3);
    for (size_t i = 0; out != NULL && i < *left; i++)
        out[i] = s->kept[slot];
    return TUTTI_OK;
}

static tutti_status simple_backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    simple *s = self;
    const float expected = (float)p + (float)s->stage;

    if (p != ++s->backwards || s->kept[slot] != expected || (slope != NULL && slope[0] != -(float)p))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "backward of %lld has %g", (long long)p,
                          (double)s->kept[slot]);
    for (int64_t i = 0; back != NULL && i < 1 + p % 3; i++)
        back[i] = -(float)p;
    return TUTTI_OK;
}

static int64_t simple_admitted(void *self)
{
    const simple *s = self;
    return s->gate == 0 ? INT64_MAX : s->gate;
}

/* A gate that opens when nothing is in flight. */
static tutti_status simple_await(void *self, int64_t p, tutti_error *err)
{
    simple *s = self;

    if (s->forwards != s->backwards || p <= s->gate)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "awaits %lld", (long long)p);
    s->gate += 3;
    return TUTTI_OK;
}

static tutti_status simple_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const int ranks[] = { 0, 1, 2 };
    simple s = *(const simple *)arg;
    const tutti_pipe_work work = { &s, simple_forward, simple_backward, simple_admitted, simple_await, NULL };
    tutti_status status;
    tutti_pipe *pipe;

    s.stage = tutti_world_rank(world);
    TUTTI_TRY(tutti_pipe_open(&pipe, world,
                              &(tutti_pipe_options){ 3, s.stage, 4, ranks, 1, s.stage > 0 ? 3 : 0,
                                                     s.stage < 2 ? 3 : 0 },
                              err));
    status = tutti_pipe_run(pipe, 20, &work, err);
    if (status != TUTTI_OK) { /* it can only be closed */
        assert_int_equal(tutti_pipe_run(pipe, 21, &work, NULL), TUTTI_ERR_USAGE);
        if (s.dies_at > 0 && s.stage != 1)
            assert_int_equal(status, TUTTI_ERR_PEER);
    } else {
        assert_int_equal(s.forwards, 20);
        assert_int_equal(s.backwards, 20);
    }
    tutti_pipe_close(pipe);
    return status;
}

static void variable_size_messages_arrive_in_order_and_gates_open(void **state)
{
    tutti_error err;

    (void)state;
    for (int64_t gate = 0; gate < 5; gate++)
        if (tutti_world_run("shm", 3, simple_rank, &(simple){ .gate = gate }, &err) != TUTTI_OK)
            fail_msg("gate %lld: %s", (long long)gate, err.text);
}

static void a_stage_that_is_gone_ends_the_others(void **state)
{
    tutti_error err;

    (void)state;
    for (int p = 1; p < 20; p += 6) {
        assert_int_equal(tutti_world_run("shm", 3, simple_rank, &(simple){ .dies_at = p }, &err), TUTTI_ERR_IO);
        assert_non_null(strstr(err.text, "a stage that fails"));
    }
}

/* ---- stages on several ranks each ---- */
typedef struct wide {
    int stages, width[4], in_flight;
    int64_t period;

    int stage, member;
    int64_t forwards, backwards, full, most; /* the last number of each */
    int64_t of[16];              /* by slot */
} wide;

/* The next number behind p that is this rank's. */
static int64_t next_of(const wide *w, int64_t p)
{
    do
        p++;
    while ((p - 1) % w->period % w->width[w->stage] != w->member);
    return p;
}

static tutti_status wide_forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out,
                                 size_t *left, tutti_error *err)
{
    wide *w = self;

    if (p != next_of(w, w->forwards) ||
        (w->stage > 0 && (entered != (size_t)(1 + p % 3) || in[0] != (float)(10 * p + w->stage - 1))))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "forward of %lld with %zu values", (long long)p, entered);
    w->forwards = p;
    w->of[slot] = p;
    w->most = ++w->full > w->most ? w->full : w->most;
    *left = (size_t)(1 + p % 3);
    for (size_t i = 0; out != NULL && i < *left; i++)
        out[i] = (float)(10 * p + w->stage);
    return TUTTI_OK;
}

static tutti_status wide_backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    wide *w = self;

    if (p != next_of(w, w->backwards) || w->of[slot] != p ||
        (slope != NULL && slope[0] != -(float)(10 * p + w->stage + 1)))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "backward of %lld", (long long)p);
    w->backwards = p;
    w->full--;
    for (int64_t i = 0; back != NULL && i < 1 + p % 3; i++)
        back[i] = -(float)(10 * p + w->stage);
    return TUTTI_OK;
}

static tutti_status wide_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const int ranks[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static const int64_t lasts[] = { 1, 9, 10, 35 };
    wide w = *(const wide *)arg;
    const tutti_pipe_work work = { .self = &w, .forward = wide_forward, .backward = wide_backward };
    tutti_pipe_options o = { .stages = w.stages, .in_flight = w.in_flight, .ranks = ranks, .width = w.width,
                             .period = w.period };
    tutti_status status = TUTTI_OK;
    tutti_pipe *pipe;
    int64_t due = 0, mine = 0;
    uint64_t messages, bytes;

    w.member = tutti_world_rank(world);
    for (w.stage = 0; w.member >= w.width[w.stage]; w.stage++)
        w.member -= w.width[w.stage];
    o.stage = w.stage;
    o.member = w.member;
    o.enters = w.stage > 0 ? 3 : 0;
    o.leaves = w.stage < w.stages - 1 ? 3 : 0;
    TUTTI_TRY(tutti_pipe_open(&pipe, world, &o, err));
    for (size_t i = 0; i < TUTTI_LENGTH(lasts) && status == TUTTI_OK; i++) { /* and continues where it was */
        status = tutti_pipe_run(pipe, lasts[i], &work, err);
        while (next_of(&w, due) <= lasts[i]) {
            due = next_of(&w, due);
            mine++;
        }
        if (status == TUTTI_OK && (w.forwards != due || w.backwards != due))
            status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%lld of %lld", (long long)w.backwards, (long long)due);
    }
    tutti_pipe_sent(pipe, &messages, &bytes);
    if (status == TUTTI_OK && messages != (uint64_t)(mine * ((w.stage > 0) + (w.stage < w.stages - 1))))
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%llu messages", (unsigned long long)messages);
    if (status == TUTTI_OK && w.most > tutti_pipe_slots(&o, w.stage))
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%lld under way", (long long)w.most);
    tutti_pipe_close(pipe);
    return status;
}

/* Micro-batches take turns in each stage, starting over in each period, whatever the widths. */
static void micro_batches_take_turns_in_stages_of_different_widths(void **state)
{
    static const wide cases[] = {
        { 3, { 2, 3, 1 }, 9, 7 }, { 3, { 1, 4, 2 }, 9, 4 }, { 2, { 3, 2 }, 9, 5 },    { 2, { 2, 2 }, 1, 9 },
        { 3, { 5, 1, 3 }, 2, 5 }, { 1, { 3 }, 9, 3 },       { 4, { 3, 1, 1, 1 }, 9, 8 }, { 3, { 1, 1, 6 }, 9, 6 },
    };
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        int ranks = 0;
        for (int q = 0; q < cases[i].stages; q++)
            ranks += cases[i].width[q];
        if (tutti_world_run("shm", ranks, wide_rank, (void *)(uintptr_t)&cases[i], &err) != TUTTI_OK)
            fail_msg("case %zu: %s", i, err.text);
    }
}

/* Two equally fast stages: with one worker behind three each of these needs two in flight. */
static void slots_follow_from_widths(void **state)
{
    static const int one[] = { 1, 1, 1 }, wide_first[] = { 3, 1 }, wide_last[] = { 1, 3 }, uneven[] = { 8, 1, 1, 1 };

    (void)state;
    for (int q = 0; q < 3; q++)
        assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 3, .in_flight = 9, .width = one }, q),
                         3 - q);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 2, .in_flight = 9, .width = wide_first }, 0), 2);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 2, .in_flight = 9, .width = wide_last }, 0), 4);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 2, .in_flight = 9, .width = wide_last }, 1), 1);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 4, .in_flight = 9, .width = uneven }, 0), 2);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 4, .in_flight = 9, .width = uneven }, 1), 3);
    assert_int_equal(tutti_pipe_slots(&(tutti_pipe_options){ .stages = 4, .in_flight = 2, .width = uneven }, 1), 2);
}

static tutti_status refused_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const int ranks[] = { 0, 1 }, far[] = { 0, 5 }, none[] = { 0 }, two[] = { 2 };
    const int me = tutti_world_rank(world);
    const tutti_pipe_options bad[] = { { 2, me, 0, ranks, 1, me > 0, me < 1 },
                                       { 2, 2, 1, ranks, 1, 1, 0 },
                                       { 2, me, 1, far, 1, me > 0, me < 1 },
                                       { 2, 1 - me, 1, ranks, 1, me < 1, me > 0 },
                                       { 2, me, 1, ranks, 1, 1, 1 },
                                       { 1, 0, 1, ranks, 1, 0, 0, none, 0, 4 },
                                       { 1, 0, 1, ranks, 1, 0, 0, two, 2, 4 },
                                       { 1, 0, 1, ranks, 1, 0, 0, two, 1 - me, 4 },
                                       { 1, 0, 1, ranks, 1, 0, 0, two, me, 1 } };
    tutti_pipe *pipe;

    (void)arg, (void)err;
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++) {
        assert_int_equal(tutti_pipe_open(&pipe, world, &bad[i], NULL), TUTTI_ERR_USAGE);
        assert_null(pipe);
    }
    return TUTTI_OK;
}

static void invalid_pipe_options_are_rejected(void **state)
{
    (void)state;
    assert_int_equal(tutti_world_run("shm", 2, refused_rank, NULL, NULL), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributed_stages_are_bit_identical_to_the_whole_network),
        cmocka_unit_test(variable_size_messages_arrive_in_order_and_gates_open),
        cmocka_unit_test(a_stage_that_is_gone_ends_the_others),
        cmocka_unit_test(micro_batches_take_turns_in_stages_of_different_widths),
        cmocka_unit_test(slots_follow_from_widths),
        cmocka_unit_test(invalid_pipe_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
