/* Goal: blocks that go through the network side by side give the bits of blocks one after
   another, with the calls of a pass of one block, and write a gradient only from need to ready,
   so that all units can have their gradients in one memory; what is held is as little as nn.h
   states. Method: every kind of network, of 2 to 7 blocks with tails, written and added,
   precisions, segments; all gradients in one buffer, taken from there when they are ready. */
#include "allocations.h"
#include "subject.h"

/* ---- bits ---- */
static void check(const char *model, tutti_nn_task task, int64_t samples, tutti_nn_options options)
{
    const int64_t some[] = { samples, samples / 2 + 1, 1, samples, samples };
    subject s = subject_of(model, task, samples);
    char what[240];

    options.batch = samples;
    side a = side_of(&s, model, &options);
    options.by_unit = true;
    side b = side_of(&s, model, &options);
    for (size_t i = 0; i < TUTTI_LENGTH(some); i++) {
        snprintf(what, sizeof what, "%s, %s, pass %zu of %lld samples", model, tutti_dtype_name(options.precision), i,
                 (long long)some[i]);
        tutti_nn_draw(a.nn, 5, 1000 * i);
        tutti_nn_draw(b.nn, 5, 1000 * i);
        for (int k = 0; k < s.count && i > 0; k++) /* copies of what was there are old */
            for (size_t j = 0; j < s.params[k].count; j++)
                b.values[k][j] = a.values[k][j] *= 0.99F;
        run(&s, &a, some[i], i == 4, NULL);
        run(&s, &b, some[i], i == 4, NULL);
        same_bits(what, &s, &a, &b);
    }
    side_free(&s, &a);
    side_free(&s, &b);
    subject_free(&s);
}

static void unit_wise_passes_match_block_wise_passes_bitwise(void **state)
{
    const tutti_nn_task images = { .channels = 1, .height = 12, .width = 12, .classes = 5 },
                        text = { .classes = 19, .context = 300 }, /* blocks of two windows */
                        clicks = { .channels = 1, .height = 1, .width = 3, .classes = 2, .tables = 4, .rows = 7 };
    const tutti_nn_options plain = { 0 }, reference = { .backend = "reference" }, bf16 = { .precision = TUTTI_BF16 };

    (void)state;
    check("mlp(hidden=24)", images, 128, plain);
    check("mlp(hidden=24)", images, 400, plain);
    check("mlp(hidden=24)", images, 150, reference);
    check("mlp(hidden=24)", images, 150, bf16);
    check("cnn", images, 150, plain);
    check("cnn(recompute=on)", images, 200, bf16);
    check("resnet(depth=8,recompute=on)", images, 130, plain);
    check("blstm(layers=2,hidden=6)", images, 200, bf16);
    check("quadratic(dim=144)", (tutti_nn_task){ .channels = 1, .height = 12, .width = 12, .classes = 1 }, 200, plain);
    check("gpt(layers=2,dim=16,heads=2,dropout=0.1)", text, 13, plain);
    check("gpt(layers=2,dim=16,heads=2,recompute=on)", text, 7, bf16);
    check("gpt(layers=2,dim=16,heads=2,tied=on,recompute=on)", text, 13, plain);
    check("gpt(layers=2,dim=16,heads=2,tiles=3)", text, 13, plain);
    check("gpt(layers=2,dim=16,heads=2,tiles=3,recompute=on)", text, 7, bf16);
    check("wordlm(dim=8,hidden=12)", (tutti_nn_task){ .classes = 19, .context = 20 }, 150, plain);
    check("ctr(dim=3,hidden=8)", clicks, 400, plain);
}

/* Each block's backend has copies of weights. Those not used by a short pass are not those of the
   current values. */
static void stale_weight_copies_of_unused_blocks_are_refreshed(void **state)
{
    static const char *const models[] = { "cnn", "mlp(hidden=24)" };
    const tutti_nn_task images = { .channels = 1, .height = 12, .width = 12, .classes = 5 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(models); i++)
        for (int k = 0; k < 2; k++) {
            tutti_nn_options options = { .batch = 200, .precision = k == 0 ? TUTTI_F32 : TUTTI_BF16 };
            subject s = subject_of(models[i], images, 200);
            side a = side_of(&s, models[i], &options);
            options.by_unit = true;
            side b = side_of(&s, models[i], &options);
            run(&s, &b, 200, false, NULL);
            for (int p = 0; p < s.count; p++)
                for (size_t j = 0; j < s.params[p].count; j++)
                    a.values[p][j] = b.values[p][j] *= 0.9F;
            run(&s, &b, 20, false, NULL);
            b.same = true;
            run(&s, &a, 100, false, NULL);
            run(&s, &b, 100, false, NULL);
            same_bits(models[i], &s, &a, &b);
            run(&s, &a, 200, false, NULL);
            run(&s, &b, 200, false, NULL);
            same_bits(models[i], &s, &a, &b);
            run(&s, &b, 200, false, NULL);
            same_bits(models[i], &s, &a, &b);
            side_free(&s, &a);
            side_free(&s, &b);
            subject_free(&s);
        }
}

/* ---- calls ---- */
typedef struct watch {
    const subject *s;
    side *d;
    float *kept[ROOM];
    char calls[1024];
} watch;

static void note(watch *w, char what, int at, bool backward)
{
    const size_t length = strlen(w->calls);
    snprintf(w->calls + length, sizeof w->calls - length, "%c%d%s ", what, at, backward ? "" : "f");
}

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    note(user, 'n', unit, backward);
    return TUTTI_OK;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    note(user, 'd', unit, backward);
    return TUTTI_OK;
}

/* The gradient is taken away. */
static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    watch *w = user;
    const size_t n = w->s->params[param].count;

    (void)err;
    note(w, 'r', param, true);
    memcpy(w->kept[param], w->d->gradients[param], n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        w->d->gradients[param][i] = NAN;
    return TUTTI_OK;
}

/* most: values of the largest unit; units with convolutions are one. */
static void check_one_room(const char *model, tutti_nn_task task, int64_t samples, size_t most, const char *calls)
{
    subject s = subject_of(model, task, samples);
    side a = side_of(&s, model, &(tutti_nn_options){ .batch = samples }),
         b = side_of(&s, model, &(tutti_nn_options){ .batch = samples, .by_unit = true });
    watch w = { .s = &s, .d = &b };
    const tutti_nn_hooks hooks = {
        .user = &w, .unit_acquire = on_need, .unit_release = on_done, .grad_ready = on_ready
    };
    const size_t before = tutti_nn_bytes(b.nn);
    float *own[ROOM];

    memcpy(own, b.gradients, sizeof own);
    assert_int_equal(tutti_nn_unit_gradients(b.nn, b.gradients, NULL), TUTTI_OK);
    assert_in_range(tutti_nn_bytes(b.nn) - before, most * sizeof(float), (most + 64) * sizeof(float));
    for (int k = 0; k < s.count; k++) {
        w.kept[k] = calloc(s.params[k].count, sizeof(float));
        if (s.params[k].row_sparse)
            assert_ptr_equal(b.gradients[k], NULL);
        b.gradients[k] = b.gradients[k] == NULL ? own[k] : b.gradients[k];
    }
    run(&s, &a, samples, false, NULL);
    run(&s, &b, samples, false, &hooks);
    for (int k = 0; k < s.count; k++) {
        b.gradients[k] = w.kept[k];
        w.kept[k] = own[k];
    }
    same_bits(model, &s, &a, &b);
    assert_string_equal(w.calls, calls);
    for (int k = 0; k < s.count; k++)
        free(w.kept[k]);
    side_free(&s, &a);
    side_free(&s, &b);
    subject_free(&s);
}

static void units_share_one_gradient_buffer(void **state)
{
    const tutti_nn_task images = { .channels = 1, .height = 12, .width = 12, .classes = 5 };

    (void)state;
    check_one_room("mlp(hidden=24)", images, 300, 144 * 24 + 24,
                   "n0f d0f n1f d1f n2f d2f n2 r0 r1 d2 n1 r2 r3 d1 n0 r4 r5 d0 ");
    check_one_room("cnn", images, 200, (9 + 1) * 32 + (32 * 9 + 1) * 64,
                   "n0f n1f d0f d1f n2f d2f n3f d3f n3 r0 r1 d3 n2 r2 r3 d2 n1 n0 r4 r5 r6 r7 d1 d0 ");
    check_one_room("gpt(layers=1,dim=16,heads=2)", (tutti_nn_task){ .classes = 19, .context = 300 }, 13, 300 * 16,
                   "n0f d0f n1f d1f n2f d2f n3f d3f n4f d4f n5f d5f n6f d6f n7f d7f n8f d8f n9f d9f "
                   "n9 r0 d9 n8 r1 r2 d8 n7 r3 r4 d7 n6 r5 r6 d6 n5 r7 r8 d5 n4 r9 r10 d4 n3 r11 r12 d3 "
                   "n2 r13 r14 d2 n1 r15 d1 n0 r16 d0 ");
}

static void sequential_blocks_cannot_share_gradient_memory(void **state)
{
    const tutti_nn_task images = { .channels = 1, .height = 12, .width = 12, .classes = 5 };
    subject s = subject_of("mlp(hidden=24)", images, 65);
    tutti_error err;

    (void)state;
    for (int64_t batch = 64; batch <= 65; batch++) {
        side a = side_of(&s, "mlp(hidden=24)", &(tutti_nn_options){ .batch = batch });
        float *gradients[ROOM];
        assert_int_equal(tutti_nn_unit_gradients(a.nn, gradients, &err), batch == 64 ? TUTTI_OK : TUTTI_ERR_USAGE);
        side_free(&s, &a);
    }
    assert_string_equal(err.text, "units share memory for their gradients only where blocks go side by side, and this "
                                  "network runs its blocks of 64 samples one after another; open it with by_unit");
    subject_free(&s);
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_later_calls_succeed(void **state)
{
    const char *const model = "gpt(layers=2,dim=8,heads=2,tied=on,recompute=on)";
    const tutti_nn_task text = { .classes = 19, .context = 300 };
    const tutti_nn_options options = { .batch = 5, .precision = TUTTI_BF16, .by_unit = true };
    subject s = subject_of(model, text, 5);
    tutti_status status = TUTTI_ERR_MEMORY;
    side a = side_of(&s, model, &(tutti_nn_options){ .batch = 5, .precision = TUTTI_BF16 }), b;
    double loss;
    int n;

    (void)state;
    for (n = 0; status != TUTTI_OK; n++) {
        tutti_nn *nn;
        allocations_left = n;
        status = tutti_nn_open(&nn, model, &text, &options, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        tutti_nn_close(nn);
    }
    assert_true(n > 30);
    b = side_of(&s, model, &options);
    for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) { /* what is added to, and a tail's plan */
        allocations_left = n;
        status = tutti_nn_pass_tokens(
            b.nn, &(tutti_nn_samples){ .count = 5, .tokens = s.tokens, .next = s.next },
            &(tutti_nn_step){ 5, true, false, (const float *const *)b.values, b.gradients, NULL },
            &loss, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
    }
    assert_true(n > 1);
    run(&s, &a, 5, false, NULL);
    allocations_left = 0; /* nothing is new */
    run(&s, &b, 5, false, NULL);
    allocations_left = -1;
    same_bits(model, &s, &a, &b);
    side_free(&s, &a);
    side_free(&s, &b);
    subject_free(&s);
}

/* ---- memory ---- */
static size_t bytes_of(int64_t batch, bool by_unit, tutti_dtype precision)
{
    const tutti_nn_task task = { .channels = 1, .height = 12, .width = 12, .classes = 5 };
    tutti_nn *nn;
    size_t bytes;

    assert_int_equal(tutti_nn_open(&nn, "mlp(hidden=1024)", &task,
                                   &(tutti_nn_options){ .batch = batch, .by_unit = by_unit, .precision = precision },
                                   NULL),
                     TUTTI_OK);
    bytes = tutti_nn_bytes(nn);
    tutti_nn_close(nn);
    return bytes;
}

/* 144-1024-1024-5. Of eight blocks: three buffers of the largest unit, one of them the leaf, and
   no set; activations of each. One pair of blocks needs the leaf alone. In 16 bits each weight of
   one unit, instead of all, has two more bytes. */
static void buffers_are_sized_for_the_largest_unit(void **state)
{
    const size_t unit = (1024 * 1024 + 1024) * 4, one = bytes_of(64, false, TUTTI_F32),
                 copies = (144 * 1024 + 1024 * 1024 + 1024 * 5) * 2, slack = 64 << 10;

    (void)state;
    assert_in_range(bytes_of(512, true, TUTTI_F32), 8 * one + 3 * unit - slack, 8 * one + 3 * unit + slack);
    assert_in_range(bytes_of(128, true, TUTTI_F32), 2 * one + unit - slack, 2 * one + unit + slack);
    const size_t narrow = bytes_of(64, false, TUTTI_BF16) - copies;
    assert_in_range(bytes_of(128, true, TUTTI_BF16), 2 * narrow + unit + 1024 * 1024 * 2 - slack,
                    2 * narrow + unit + 1024 * 1024 * 2 + slack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unit_wise_passes_match_block_wise_passes_bitwise),
        cmocka_unit_test(stale_weight_copies_of_unused_blocks_are_refreshed),
        cmocka_unit_test(failed_allocations_are_errors_and_later_calls_succeed),
        cmocka_unit_test(units_share_one_gradient_buffer),
        cmocka_unit_test(sequential_blocks_cannot_share_gradient_memory),
        cmocka_unit_test(buffers_are_sized_for_the_largest_unit),
    };
    return cmocka_run_group_tests_name("nn/by_unit", tests, NULL, NULL);
}
