/* Goal: a model in stages, however it is partitioned and in whatever order micro-batches take
   their turns, gives each of them the loss and gradients of one pass through the whole network,
   to the bit, with the values that its forward saw; activations come from a store whose bound
   holds, and go back there; units of two networks may take turns; what cannot be partitioned is
   refused in a sentence. Method: every partition of every kind of model, k stages chained by
   hand, 1F1B and random orders, values of their own for each micro-batch. */
#include "allocations.h"
#include "subject.h"
#include "nn/stages.h"

enum { STAGES = 6, MICRO = 7, UNITS = 64 };

/* ---- k stages, chained by hand ---- */
typedef struct pipeline {
    const subject *s;
    int stages, slots, units;
    int64_t micro;
    tutti_nn_stage *stage[STAGES];
    tutti_nn_store *store[STAGES];
    float *up[MICRO][STAGES], *down[MICRO][STAGES]; /* behind a stage: rows, their slope */
    float *values[MICRO][ROOM], *gradients[MICRO][ROOM];
    double loss[MICRO];
    int forwards[MICRO], backwards[MICRO]; /* stages that are over */
    int slot_of[MICRO][STAGES];
    bool taken[STAGES][MICRO];
} pipeline;

static tutti_nn_samples samples_of(const subject *s, int64_t first, int64_t count)
{
    const tutti_nn_task *t = &s->task;
    const size_t each = (size_t)t->channels * (size_t)t->height * (size_t)t->width, at = (size_t)first,
                 context = (size_t)t->context;

    return (tutti_nn_samples){ .count = count,
                               .x = s->x + (context > 0 ? 0 : at * each),
                               .labels = s->labels + at,
                               .tokens = s->tokens + at * context,
                               .next = s->next + at * context,
                               .rows = s->rows + at * (size_t)t->tables,
                               .seed = 5,
                               .first = 1000 + (uint64_t)first };
}

/* cuts: where stages begin, behind the first. */
static pipeline pipeline_of(const subject *s, const char *model, tutti_nn_options options, const int *cuts, int count,
                            int slots)
{
    pipeline p = { .s = s, .stages = count + 1, .slots = slots, .micro = options.batch };
    tutti_nn_unit units[UNITS];
    tutti_error err;

    assert_int_equal(tutti_nn_units(model, &s->task, units, UNITS, &p.units, NULL), TUTTI_OK);
    for (int q = 0; q < p.stages; q++) {
        tutti_nn_stage_options o = { .nn = options, .slots = slots };
        o.first = q == 0 ? 0 : cuts[q - 1];
        o.end = q == count ? p.units : cuts[q];
        assert_int_equal(tutti_nn_store_open(&p.store[q], 0, NULL), TUTTI_OK);
        o.store = p.store[q];
        if (tutti_nn_stage_open(&p.stage[q], model, &s->task, &o, &err) != TUTTI_OK)
            fail_msg("%s: %s", model, err.text);
        assert_int_equal(tutti_nn_stage_enters(p.stage[q]), units[o.first].enters);
        assert_int_equal(tutti_nn_stage_leaves(p.stage[q]), q == count ? 0 : units[o.end].enters);
        for (int m = 0; m < MICRO && q < count; m++) {
            p.up[m][q] = calloc((size_t)p.micro * units[o.end].enters, sizeof(float));
            p.down[m][q] = calloc((size_t)p.micro * units[o.end].enters, sizeof(float));
        }
    }
    for (int m = 0; m < MICRO; m++)
        for (int k = 0; k < s->count; k++) {
            p.values[m][k] = calloc(s->params[k].count, sizeof(float));
            p.gradients[m][k] = calloc(s->params[k].count, sizeof(float));
        }
    return p;
}

static void pipeline_free(pipeline *p)
{
    for (int q = 0; q < p->stages; q++) {
        tutti_nn_store_figures f;
        tutti_nn_store_figures_of(p->store[q], &f);
        assert_int_equal(f.used, 0);
        tutti_nn_stage_close(p->stage[q]);
        tutti_nn_store_close(p->store[q]);
        for (int m = 0; m < MICRO; m++) {
            free(p->up[m][q]);
            free(p->down[m][q]);
        }
    }
    for (int m = 0; m < MICRO; m++)
        for (int k = 0; k < p->s->count; k++) {
            free(p->values[m][k]);
            free(p->gradients[m][k]);
        }
}

static int64_t count_of(const pipeline *p, int m)
{
    return m == MICRO - 1 && p->micro > 1 ? p->micro - 1 : p->micro; /* the last is short */
}

static int free_slot(const pipeline *p, int q)
{
    for (int i = 0; i < p->slots; i++)
        if (!p->taken[q][i])
            return i;
    return -1;
}

static void forward(pipeline *p, int m)
{
    const int q = p->forwards[m]++, slot = p->slot_of[m][q] = free_slot(p, q);
    const int64_t count = count_of(p, m);
    const tutti_nn_samples samples = samples_of(p->s, m * p->micro, count);
    float *in = q > 0 ? p->up[m][q - 1] : NULL;
    tutti_error err;

    p->taken[q][slot] = true;
    if (tutti_nn_stage_forward(p->stage[q], slot, &samples, in, (const float *const *)p->values[m], p->up[m][q],
                               &err) != TUTTI_OK)
        fail_msg("forward of %d in stage %d: %s", m, q, err.text);
    for (int64_t i = 0; in != NULL && i < count * (int64_t)tutti_nn_stage_enters(p->stage[q]); i++)
        in[i] = NAN; /* it may be changed */
}

static void backward(pipeline *p, int m, bool add, float *const *gradients)
{
    const int q = p->stages - 1 - p->backwards[m]++, slot = p->slot_of[m][q];
    double loss;
    tutti_error err;

    if (tutti_nn_stage_backward(p->stage[q], slot, p->down[m][q], (double)p->s->samples, add, gradients,
                                q > 0 ? p->down[m][q - 1] : NULL, &loss, &err) != TUTTI_OK)
        fail_msg("backward of %d in stage %d: %s", m, q, err.text);
    if (q == p->stages - 1)
        p->loss[m] = loss;
    else
        assert_true(loss == 0);
    p->taken[q][slot] = false;
}

/* Computes forward or backward of a drawn micro-batch among those that are next in some stage. In
   each stage micro-batches are taken in their order. */
static bool step(pipeline *p, uint64_t draw)
{
    int ready[2 * MICRO], n = 0;

    for (int m = 0; m < MICRO; m++) {
        const int f = p->forwards[m], b = p->backwards[m];
        if (f < p->stages && (m == 0 || p->forwards[m - 1] > f) && free_slot(p, f) >= 0)
            ready[n++] = m;
        if (f == p->stages && b < p->stages && (m == 0 || p->backwards[m - 1] > b))
            ready[n++] = MICRO + m;
    }
    if (n == 0)
        return false;
    n = ready[draw % (uint64_t)n];
    if (n < MICRO)
        forward(p, n);
    else
        backward(p, n - MICRO, false, p->gradients[n - MICRO]);
    return true;
}

/* Each micro-batch by itself, through the whole network. */
static void check_bits(const char *what, pipeline *p, side *d, tutti_nn_options options)
{
    for (int m = 0; m < MICRO; m++) {
        const tutti_nn_samples x = samples_of(p->s, m * p->micro, count_of(p, m));
        const float *const *values = (const float *const *)p->values[m];
        const double divisor = (double)p->s->samples;
        const tutti_nn_task *t = &p->s->task;
        tutti_status status;

        (void)options;
        tutti_nn_draw(d->nn, x.seed, x.first);
        status =
            t->context > 0
                ? tutti_nn_pass_tokens(
                      d->nn,
                      &(tutti_nn_samples){ .count = x.count, .tokens = x.tokens, .next = x.next },
                      &(tutti_nn_step){ divisor, false, false, values, d->gradients, NULL },
                      &d->loss, NULL)
            : t->tables > 0
                ? tutti_nn_pass_rows(
                      d->nn,
                      &(tutti_nn_samples){
                          .count = x.count, .x = x.x, .labels = x.labels, .rows = x.rows },
                      &(tutti_nn_step){ divisor, false, false, values, d->gradients, NULL },
                      &d->loss, NULL)
                : tutti_nn_pass(
                      d->nn, &(tutti_nn_samples){ .count = x.count, .x = x.x, .labels = x.labels },
                      &(tutti_nn_step){ divisor, false, false, values, d->gradients, NULL },
                      &d->loss, NULL);
        assert_int_equal(status, TUTTI_OK);
        if (d->loss != p->loss[m])
            fail_msg("%s: micro-batch %d: losses %.17g and %.17g", what, m, d->loss, p->loss[m]);
        for (int k = 0; k < p->s->count; k++)
            if (memcmp(d->gradients[k], p->gradients[m][k], p->s->params[k].count * sizeof(float)) != 0)
                fail_msg("%s: micro-batch %d: gradient of %s differs", what, m, p->s->params[k].name);
    }
}

static void check_cuts(const char *model, tutti_nn_task task, tutti_nn_options options, const int *cuts, int count)
{
    subject s = subject_of(model, task, MICRO * options.batch);
    side d = side_of(&s, model, &options);
    char what[200];

    for (int order = 0; order < 3; order++) {
        pipeline p = pipeline_of(&s, model, options, cuts, count, order == 0 ? 1 : 4);
        for (int m = 0; m < MICRO; m++)
            for (int k = 0; k < s.count; k++)
                for (size_t i = 0; i < s.params[k].count; i++)
                    p.values[m][k][i] = d.values[k][i] * (1 - 0.01F * (float)m);
        for (uint64_t i = 0; step(&p, tutti_random((tutti_rng){ 11, (uint64_t)order, 0 }, i)); i++)
            ;
        assert_int_equal(p.backwards[MICRO - 1], p.stages);
        snprintf(what, sizeof what, "%s, %s, %d stages from %d on, order %d", model,
                 tutti_dtype_name(options.precision), count + 1, count > 0 ? cuts[0] : 0, order);
        check_bits(what, &p, &d, options);
        pipeline_free(&p);
    }
    side_free(&s, &d);
    subject_free(&s);
}

/* In one piece, in two at every place, and in as many as there are places. */
static void check(const char *model, tutti_nn_task task, tutti_nn_options options)
{
    tutti_nn_unit units[UNITS];
    int cuts[UNITS], n = 0, count;

    assert_int_equal(tutti_nn_units(model, &task, units, UNITS, &count, NULL), TUTTI_OK);
    assert_in_range(count, 1, UNITS);
    check_cuts(model, task, options, NULL, 0);
    for (int u = 1; u < count; u++)
        if (units[u].cut) {
            check_cuts(model, task, options, &u, 1);
            cuts[n++] = u;
        }
    assert_true(n > 0);
    while (n > STAGES - 1) { /* every second */
        for (int i = 0; 2 * i < n; i++)
            cuts[i] = cuts[2 * i];
        n = (n + 1) / 2;
    }
    check_cuts(model, task, options, cuts, n);
}

static const tutti_nn_task images = { .channels = 1, .height = 12, .width = 12, .classes = 5 },
                           text = { .classes = 19, .context = 24 },
                           frames = { .channels = 1, .height = 9, .width = 6, .classes = 4 },
                           clicks = { .channels = 1, .height = 1, .width = 3, .classes = 2, .tables = 4, .rows = 7 };

static void stages_in_any_order_match_the_whole_network_bitwise(void **state)
{
    const tutti_nn_options plain = { .batch = 10 }, bf16 = { .batch = 12, .precision = TUTTI_BF16 };

    (void)state;
    check("mlp(hidden=24)", images, plain);
    check("mlp(hidden=24)", images, bf16);
    check("cnn", images, plain);
    check("cnn(recompute=on)", images, bf16);
    check("gpt(layers=2,dim=16,heads=2,dropout=0.1)", text, plain);
    check("gpt(layers=2,dim=16,heads=2,recompute=on)", text, plain);
    check("gpt(layers=2,dim=16,heads=2)", text, bf16);
    check("gpt(layers=2,dim=16,heads=2,tiles=3)", text, plain);
    check("wordlm(dim=8,hidden=12)", text, plain);
    check("blstm(layers=2,hidden=6)", frames, plain);
    check("blstm(layers=2,hidden=6,recompute=on)", frames, bf16);
    check("ctr(dim=3,hidden=8)", clicks, plain);
}

/* ---- unit by unit ---- */

/* The input of a micro-batch, in memory that is freed once its first unit is done. */
static tutti_status begin_forward(const pipeline *p, tutti_nn_stage *stage, int m, bool *over, tutti_error *err)
{
    const tutti_nn_task *t = &p->s->task;
    const size_t n = (size_t)count_of(p, m), context = (size_t)t->context,
                 each = context > 0 ? 0 : (size_t)t->channels * (size_t)t->height * (size_t)t->width;
    const tutti_nn_samples whole = samples_of(p->s, m * p->micro, (int64_t)n);
    tutti_nn_samples part = whole;
    float *x = calloc(n * each + 1, sizeof *x);
    uint8_t *labels = calloc(n, 1);
    uint32_t *words[3];
    const uint32_t *from[3] = { whole.tokens, whole.next, whole.rows };
    const size_t count[3] = { n * context, n * context, n * (size_t)t->tables };
    tutti_status status;

    memcpy(x, whole.x, n * each * sizeof *x);
    memcpy(labels, whole.labels, n);
    for (int i = 0; i < 3; i++) {
        words[i] = calloc(count[i] + 1, sizeof *words[i]);
        if (count[i] > 0)
            memcpy(words[i], from[i], count[i] * sizeof *words[i]);
    }
    part.x = x;
    part.labels = labels;
    part.tokens = words[0];
    part.next = words[1];
    part.rows = words[2];
    status = tutti_nn_stage_begin_forward(stage, 0, &part, NULL, (const float *const *)p->values[m], NULL, over, err);
    memset(x, 0x7f, n * each * sizeof *x);
    memset(labels, 0x7f, n);
    for (int i = 0; i < 3; i++) {
        memset(words[i], 0x7f, count[i] * sizeof *words[i]);
        free(words[i]);
    }
    free(x);
    free(labels);
    return status;
}

/* Two networks of the whole model and one store; whose unit is next is drawn. */
static void take_turns(const char *model, tutti_nn_task task, tutti_nn_options options)
{
    subject s = subject_of(model, task, MICRO * options.batch);
    side d = side_of(&s, model, &options);
    pipeline p = pipeline_of(&s, model, options, NULL, 0, 1);
    tutti_nn_stage *stage[2] = { p.stage[0] };
    const tutti_nn_stage_options o = { .nn = options, .end = p.units, .slots = 1, .store = p.store[0] };
    enum { IDLE, FORWARD, FULL, BACKWARD } phase[2] = { IDLE, IDLE };
    int at[2], next = 0, together = 0;
    tutti_error err;

    assert_int_equal(tutti_nn_stage_open(&stage[1], model, &task, &o, NULL), TUTTI_OK);
    for (int m = 0; m < MICRO; m++)
        for (int k = 0; k < s.count; k++)
            for (size_t i = 0; i < s.params[k].count; i++)
                p.values[m][k][i] = d.values[k][i] * (1 - 0.01F * (float)m);
    for (uint64_t draw = 0; next < MICRO || phase[0] != IDLE || phase[1] != IDLE; draw++) {
        const int j = (int)(tutti_random((tutti_rng){ 12, 0, 0 }, draw) % 2);
        tutti_status status = TUTTI_OK;
        bool over = false;
        if (phase[j] == IDLE && next < MICRO) {
            at[j] = next++;
            phase[j] = FORWARD;
            status = begin_forward(&p, stage[j], at[j], &over, &err);
        } else if (phase[j] == FULL) {
            phase[j] = BACKWARD;
            status = tutti_nn_stage_begin_backward(stage[j], 0, NULL, (double)s.samples, false, p.gradients[at[j]],
                                                   NULL, &over, &p.loss[at[j]], &err);
        } else if (phase[j] != IDLE)
            status = tutti_nn_stage_go_on(stage[j], 0, &over, &err);
        if (status != TUTTI_OK)
            fail_msg("%s: %s", model, err.text);
        if (over)
            phase[j] = phase[j] == FORWARD ? FULL : IDLE;
        together += phase[0] != IDLE && phase[1] != IDLE && (phase[0] == BACKWARD) != (phase[1] == BACKWARD);
    }
    assert_true(together > 0);
    check_bits(model, &p, &d, options);
    tutti_nn_stage_close(stage[1]);
    pipeline_free(&p);
    side_free(&s, &d);
    subject_free(&s);
}

static void units_of_two_stages_take_turns(void **state)
{
    const tutti_nn_options plain = { .batch = 10 }, bf16 = { .batch = 12, .precision = TUTTI_BF16 };

    (void)state;
    take_turns("mlp(hidden=24)", images, plain);
    take_turns("cnn", images, plain);
    take_turns("cnn(recompute=on)", images, bf16);
    take_turns("gpt(layers=2,dim=16,heads=2,dropout=0.1)", text, plain);
    take_turns("gpt(layers=2,dim=16,heads=2,recompute=on)", text, plain);
    take_turns("gpt(layers=2,dim=16,heads=2)", text, bf16);
    take_turns("wordlm(dim=8,hidden=12)", text, plain);
    take_turns("blstm(layers=2,hidden=6)", frames, plain);
    take_turns("ctr(dim=3,hidden=8)", clicks, plain);
}

static void a_stage_has_at_most_one_pass_in_progress(void **state)
{
    subject s = subject_of("mlp(hidden=24)", images, MICRO * 10);
    const tutti_nn_options options = { .batch = 10 };
    side d = side_of(&s, "mlp(hidden=24)", &options);
    pipeline p = pipeline_of(&s, "mlp(hidden=24)", options, NULL, 0, 2);
    const tutti_nn_samples x = samples_of(&s, 0, 10);
    const float *const *values = (const float *const *)d.values;
    tutti_error err;
    bool over;
    double loss;

    (void)state;
    assert_int_equal(tutti_nn_stage_go_on(p.stage[0], 0, &over, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "it has no pass in progress"));
    assert_int_equal(tutti_nn_stage_begin_forward(p.stage[0], 0, &x, NULL, values, NULL, &over, &err), TUTTI_OK);
    assert_false(over);
    assert_int_equal(tutti_nn_stage_begin_forward(p.stage[0], 1, &x, NULL, values, NULL, &over, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "slot 0 is in the midst"));
    assert_int_equal(tutti_nn_stage_begin_backward(p.stage[0], 0, NULL, 10, false, d.gradients, NULL, &over, &loss,
                                                   &err),
                     TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "its forward is not over"));
    assert_int_equal(tutti_nn_stage_go_on(p.stage[0], 1, &over, &err), TUTTI_ERR_USAGE);
    tutti_nn_stage_drop(p.stage[0], 0); /* another may begin */
    assert_int_equal(tutti_nn_stage_begin_forward(p.stage[0], 1, &x, NULL, values, NULL, &over, &err), TUTTI_OK);
    tutti_nn_stage_drop(p.stage[0], 1);
    pipeline_free(&p);
    side_free(&s, &d);
    subject_free(&s);
}

/* ---- gradients that are added ---- */
static void micro_batches_add_up(void **state)
{
    static const char *const models[] = { "mlp(hidden=24)", "cnn" };
    const tutti_nn_options options = { .batch = 10 };
    const int cut = 2;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(models); i++) {
        subject s = subject_of(models[i], images, MICRO * options.batch);
        side d = side_of(&s, models[i], &options);
        pipeline p = pipeline_of(&s, models[i], options, &cut, 1, 2);
        for (int m = 0; m < MICRO; m++)
            for (int k = 0; k < s.count; k++)
                memcpy(p.values[m][k], d.values[k], s.params[k].count * sizeof(float));
        for (int m = 0; m < MICRO; m++) {
            const tutti_nn_samples x = samples_of(&s, m * p.micro, count_of(&p, m));
            while (p.forwards[m] < p.stages)
                forward(&p, m);
            while (p.backwards[m] < p.stages)
                backward(&p, m, m > 0, p.gradients[0]);
            assert_int_equal(
                tutti_nn_pass(d.nn,
                              &(tutti_nn_samples){ .count = x.count, .x = x.x, .labels = x.labels },
                              &(tutti_nn_step){ (double)s.samples, m > 0, true,
                                                (const float *const *)d.values, d.gradients, NULL },
                              &d.loss, NULL),
                TUTTI_OK);
        }
        for (int k = 0; k < s.count; k++)
            if (memcmp(d.gradients[k], p.gradients[0][k], s.params[k].count * sizeof(float)) != 0)
                fail_msg("%s: gradient of %s differs", models[i], s.params[k].name);
        pipeline_free(&p);
        side_free(&s, &d);
        subject_free(&s);
    }
}

/* ---- memory ---- */
static size_t slot_bytes(const tutti_nn_stage *stage, int first, int end)
{
    size_t all = 0, back = 0;

    for (int u = first; u < end; u++) {
        size_t taken, given;
        tutti_nn_stage_unit_bytes(stage, u, &taken, &given);
        all += taken;
        back += given;
    }
    assert_int_equal(all, back);
    return all;
}

/* 1F1B: stage q of k has min(k - q, micro-batches) in flight at most. */
static void schedule_1f1b_stores_only_micro_batches_in_flight(void **state)
{
    static const char *const model = "gpt(layers=4,dim=16,heads=2)";
    const tutti_nn_options options = { .batch = 4 };
    const int cuts[] = { 8, 14, 20 };
    subject s = subject_of(model, text, MICRO * options.batch);
    side d = side_of(&s, model, &options);
    pipeline p = pipeline_of(&s, model, options, cuts, 3, MICRO);
    bool moved = true;

    (void)state;
    for (int m = 0; m < MICRO; m++)
        for (int k = 0; k < s.count; k++)
            memcpy(p.values[m][k], d.values[k], s.params[k].count * sizeof(float));
    for (int next[STAGES] = { 0 }, back[STAGES] = { 0 }; moved;) {
        moved = false;
        for (int q = p.stages - 1; q >= 0; q--) {
            const int m = next[q], b = back[q];
            if (b < MICRO && p.forwards[b] == p.stages && p.backwards[b] == p.stages - 1 - q) {
                backward(&p, b, false, p.gradients[b]);
                back[q]++;
                moved = true;
            } else if (m < MICRO && p.forwards[m] == q && m - b < p.stages - q) {
                forward(&p, m);
                next[q]++;
                moved = true;
            }
        }
    }
    check_bits(model, &p, &d, options);
    for (int q = 0; q < p.stages; q++) {
        const size_t each = slot_bytes(p.stage[q], q > 0 ? cuts[q - 1] : 0, q < 3 ? cuts[q] : p.units);
        tutti_nn_store_figures f;
        tutti_nn_store_figures_of(p.store[q], &f);
        assert_int_equal(f.used_most, each * (size_t)(p.stages - q));
        assert_in_range(f.held_most, f.used_most, f.used_most + 1024); /* samples of the short one */
    }
    pipeline_free(&p);
    side_free(&s, &d);
    subject_free(&s);
}

static void the_activation_memory_limit_is_enforced(void **state)
{
    const tutti_nn_options options = { .batch = 10 };
    subject s = subject_of("cnn", images, MICRO * options.batch);
    side d = side_of(&s, "cnn", &options);
    const tutti_nn_samples x = samples_of(&s, 0, 10), small = samples_of(&s, 0, 3);
    const float *const *values = (const float *const *)d.values;
    tutti_nn_stage_options o = { .nn = options, .end = 4, .slots = 3 };
    tutti_nn_stage *stage;
    tutti_nn_store_figures f;
    tutti_nn_store *store;
    tutti_error err;
    size_t each;
    double loss;

    (void)state;
    assert_int_equal(tutti_nn_store_open(&o.store, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_nn_stage_open(&stage, "cnn", &images, &o, NULL), TUTTI_OK);
    each = slot_bytes(stage, 0, 4);
    tutti_nn_stage_close(stage);
    tutti_nn_store_close(o.store);

    assert_int_equal(tutti_nn_store_open(&store, 2 * each + 64, NULL), TUTTI_OK);
    o.store = store;
    assert_int_equal(tutti_nn_stage_open(&stage, "cnn", &images, &o, NULL), TUTTI_OK);
    assert_int_equal(tutti_nn_stage_forward(stage, 0, &x, NULL, values, NULL, &err), TUTTI_OK);
    assert_int_equal(tutti_nn_stage_forward(stage, 1, &x, NULL, values, NULL, &err), TUTTI_OK);
    assert_int_equal(tutti_nn_stage_forward(stage, 2, &x, NULL, values, NULL, &err), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "fewer micro-batches at a time"));
    tutti_nn_store_figures_of(store, &f);
    assert_int_equal(f.used, 2 * each);
    assert_in_range(f.used_most, 2 * each, 2 * each + 64);
    assert_in_range(f.held_most, 2 * each, 2 * each + 64);

    /* what is in flight has not suffered; the slot is free */
    assert_int_equal(tutti_nn_stage_backward(stage, 2, NULL, 70, false, d.gradients, NULL, &loss, &err),
                     TUTTI_ERR_USAGE);
    assert_int_equal(tutti_nn_stage_forward(stage, 1, &x, NULL, values, NULL, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_nn_stage_backward(stage, 0, NULL, 70, false, d.gradients, NULL, &loss, &err), TUTTI_OK);
    assert_int_equal(tutti_nn_pass(d.nn,
                                   &(tutti_nn_samples){ .count = 10, .x = x.x, .labels = x.labels },
                                   &(tutti_nn_step){ 70, false, false, values, d.gradients, NULL },
                                   &d.loss, NULL),
                     TUTTI_OK);
    assert_true(loss == d.loss);
    assert_int_equal(tutti_nn_stage_forward(stage, 2, &small, NULL, values, NULL, &err), TUTTI_OK);
    tutti_nn_stage_drop(stage, 2);
    tutti_nn_stage_drop(stage, 2);
    tutti_nn_store_figures_of(store, &f);
    assert_int_equal(f.used, each);
    tutti_nn_stage_close(stage); /* with a slot that is full */
    tutti_nn_store_figures_of(store, &f);
    assert_int_equal(f.used, 0);
    tutti_nn_store_close(store);
    side_free(&s, &d);
    subject_free(&s);
}

static size_t bytes_of(const char *model, int first, int end)
{
    tutti_nn_stage_options o = { .nn = { .batch = 8 }, .first = first, .end = end, .slots = 1 };
    tutti_nn_stage *stage;
    size_t bytes;

    assert_int_equal(tutti_nn_store_open(&o.store, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_nn_stage_open(&stage, model, &text, &o, NULL), TUTTI_OK);
    bytes = slot_bytes(stage, first, end);
    tutti_nn_stage_close(stage);
    tutti_nn_store_close(o.store);
    return bytes;
}

/* A block's rows of 16 values and no more, in addition to the stage's output. */
static void recomputed_activations_are_not_stored(void **state)
{
    const size_t rows = 8 * 24 * 16 * sizeof(float);

    (void)state;
    assert_in_range(bytes_of("gpt(layers=4,dim=16,heads=2,recompute=on)", 8, 14), rows, 3 * rows);
    assert_true(bytes_of("gpt(layers=4,dim=16,heads=2)", 8, 14) > 8 * rows);
}

/* ---- what is refused ---- */
static void refused(const char *model, const tutti_nn_task *task, tutti_nn_stage_options o, const char *sentence)
{
    tutti_nn_stage *stage;
    tutti_error err;

    assert_int_equal(tutti_nn_store_open(&o.store, 0, NULL), TUTTI_OK);
    o.slots = o.slots == 0 ? 1 : o.slots;
    o.nn.batch = o.nn.batch == 0 ? 8 : o.nn.batch;
    if (tutti_nn_stage_open(&stage, model, task, &o, &err) != TUTTI_ERR_USAGE)
        fail_msg("%s: not refused: %s", model, sentence);
    assert_null(stage);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: %s", model, err.text);
    tutti_nn_store_close(o.store);
}

static void invalid_stage_boundaries_are_rejected_with_a_message(void **state)
{
    const tutti_nn_task vector = { .channels = 1, .height = 1, .width = 9, .classes = 1 };

    (void)state;
    refused("cnn", &images, (tutti_nn_stage_options){ .first = 1, .end = 4 }, "convolutions go through all");
    refused("cnn", &images, (tutti_nn_stage_options){ .end = 1 }, "the next that can begin one is layer 7");
    refused("cnn", &images, (tutti_nn_stage_options){ .first = 2, .end = 2 }, "a stage has one at least");
    refused("cnn", &images, (tutti_nn_stage_options){ .end = 5 }, "4 layers with parameters");
    refused("cnn", &images, (tutti_nn_stage_options){ .end = 4, .slots = -1 }, "1 to 256");
    refused("cnn", &images, (tutti_nn_stage_options){ .end = 4, .nn = { .batch = 65 } }, "64 at most, a block");
    refused("cnn", &images, (tutti_nn_stage_options){ .end = 4, .nn = { .backend = "reference" } }, "use onednn");
    refused("resnet(depth=8)", &images, (tutti_nn_stage_options){ .end = 1 }, "batch norms or branches has no stages");
    refused("quadratic(dim=9)", &vector, (tutti_nn_stage_options){ .end = 1 }, "one layer");
    refused("gpt(layers=1,dim=16,heads=2)", &text, (tutti_nn_stage_options){ .end = 3 }, "is joined at layer");
    refused("gpt(layers=1,dim=16,heads=2,tied=on)", &text, (tutti_nn_stage_options){ .end = 2 },
            "must be on one stage");
    refused("gpt(layers=1,dim=16,heads=2,recompute=on)", &text, (tutti_nn_stage_options){ .end = 1 },
            "begins with a norm or an lstm");
    refused("mlp", &text, (tutti_nn_stage_options){ .end = 1 }, "windows of 24 tokens");
}

/* ---- memory that is not there ---- */
static void stages_recover_from_failed_allocations(void **state)
{
    static const char *const models[] = { "cnn", "gpt(layers=1,dim=16,heads=2)" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        const tutti_nn_task task = i == 0 ? images : text;
        subject s = subject_of(models[i], task, 8);
        const tutti_nn_options options = { .batch = 8 };
        side d = side_of(&s, models[i], &options);
        const tutti_nn_samples x = samples_of(&s, 0, 8);
        tutti_nn_stage_options o = { .nn = options, .first = 0, .end = 2, .slots = 2 };
        float *out = calloc(8 * 1024, sizeof *out);
        tutti_status status = TUTTI_ERR_MEMORY;
        tutti_nn_stage *stage;

        for (int n = 0; status != TUTTI_OK; n++) {
            assert_int_equal(tutti_nn_store_open(&o.store, 0, NULL), TUTTI_OK);
            allocations_left = n;
            status = tutti_nn_stage_open(&stage, models[i], &task, &o, NULL);
            allocations_left = -1;
            if (status != TUTTI_OK) {
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_null(stage);
                tutti_nn_store_close(o.store);
            }
        }
        status = TUTTI_ERR_MEMORY;
        for (int n = 0; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_stage_forward(stage, 0, &x, NULL, (const float *const *)d.values, out, NULL);
            allocations_left = -1;
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        }
        tutti_nn_stage_close(stage);
        tutti_nn_store_close(o.store);
        free(out);
        side_free(&s, &d);
        subject_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_in_any_order_match_the_whole_network_bitwise),
        cmocka_unit_test(units_of_two_stages_take_turns),
        cmocka_unit_test(a_stage_has_at_most_one_pass_in_progress),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(schedule_1f1b_stores_only_micro_batches_in_flight),
        cmocka_unit_test(the_activation_memory_limit_is_enforced),
        cmocka_unit_test(recomputed_activations_are_not_stored),
        cmocka_unit_test(invalid_stage_boundaries_are_rejected_with_a_message),
        cmocka_unit_test(stages_recover_from_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
